/* tests/test_hip_emulator.c - the emulator of tests/hip_host finds what it is there to find: values
 * handed over without a barrier, diverging threads, writes outside a buffer; and it lets right
 * kernels pass. And tiles shared out among more blocks than products of tests have
 * (gemm_stream_k.h), of tokens as gemm_tiling.h says. Kernels: tests/hip_host/faults.hip.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/arith.h"
#include "kernels_hip/gemm/gemm_tiling.h"
#include "tests/hip_host/faults_params.h"

enum { THREADS = 128, BLOCKS = 3, WORDS = THREADS * 8, LAUNCH_FAILED = 719 };

/* The driver under test. */
static struct {
    void *library;
    int lanes;
    const char *processor;
    int (*alloc)(uint64_t *out, size_t bytes);
    int (*release)(uint64_t at);
    int (*load)(void **out, const void *image);
    int (*find)(void **out, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **params, void **extra);
    const char *(*fault)(void);
    void *module;
} emu;

static void find_entry(const char *name, void *field) {
    void *at = dlsym(emu.library, name);
    assert_non_null(at);
    memcpy(field, &at, sizeof at);
}

static void open_emulator(const char *path) {
    emu.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (emu.library == NULL) {
        fail_msg("%s", dlerror());
    }
    const int *lanes;
    find_entry("gw_emulated_warp", (void *)&lanes);
    emu.lanes = *lanes;
    find_entry("gw_emulated_processor", (void *)&emu.processor);
    find_entry("cuMemAlloc_v2", (void *)&emu.alloc);
    find_entry("cuMemFree_v2", (void *)&emu.release);
    find_entry("cuModuleLoadData", (void *)&emu.load);
    find_entry("cuModuleGetFunction", (void *)&emu.find);
    find_entry("cuLaunchKernel", (void *)&emu.launch);
    find_entry("gw_emulator_fault", (void *)&emu.fault);
    assert_int_equal(emu.load(&emu.module, NULL), 0);
}

/* The words a kernel left in `out`; its error. in: WORDS words, or NULL. */
static int run(const char *kernel, const char *order, const uint32_t *in, uint32_t *out,
               size_t words) {
    struct gw_test_params p;
    void *function, *params[1] = {&p};
    setenv("GODWIT_EMULATOR_ORDER", order, 1);
    assert_int_equal(emu.find(&function, emu.module, kernel), 0);
    assert_int_equal(emu.alloc(&p.out, words * 4), 0);
    assert_int_equal(emu.alloc(&p.in, WORDS * 4), 0);
    if (in != NULL) {
        memcpy((void *)(uintptr_t)p.in, in, WORDS * 4);
    }
    int error = emu.launch(function, words > THREADS ? (unsigned)(words / THREADS) : 1, 1, 1,
                           THREADS, 1, 1, THREADS * 4, NULL, params, NULL);
    memcpy(out, (void *)(uintptr_t)p.out, words * 4);
    emu.release(p.out);
    emu.release(p.in);
    return error;
}

static const char *const orders[] = {"forward", "reverse"};

static int neighbours_wrong(const char *kernel, const char *order) {
    uint32_t out[THREADS * BLOCKS];
    int wrong = 0;
    assert_int_equal(run(kernel, order, NULL, out, THREADS * BLOCKS), 0);
    for (uint32_t i = 0; i < THREADS * BLOCKS; i++) {
        uint32_t id = i % THREADS;
        wrong += out[i] != (id + 1) % THREADS + (id + THREADS - 1) % THREADS;
    }
    return wrong;
}

static void values_cross_at_barriers_only(void **state) {
    (void)state;
    for (int o = 0; o < 2; o++) {
        assert_int_equal(neighbours_wrong("gw_test_neighbours", orders[o]), 0);
        assert_true(neighbours_wrong("gw_test_no_barrier", orders[o]) >= BLOCKS);
    }
}

static int handed_over_wrong(const char *kernel, const char *order) {
    uint32_t out[THREADS];
    int wrong = 0;
    assert_int_equal(run(kernel, order, NULL, out, THREADS), 0);
    for (uint32_t i = 0; i < THREADS / 2; i++) {
        uint32_t word = THREADS / 2 - 1 - i;
        wrong += out[i] != word + ((word + 100) << 8) + ((word + 200) << 16);
    }
    return wrong;
}

static void values_cross_at_gates(void **state) {
    uint32_t out[THREADS];
    (void)state;
    for (int o = 0; o < 2; o++) {
        assert_int_equal(handed_over_wrong("gw_test_gates", orders[o]), 0);
        assert_int_equal(handed_over_wrong("gw_test_no_gate", orders[o]), THREADS / 2);
        assert_int_equal(run("gw_test_word", orders[o], NULL, out, THREADS), 0);
        assert_int_equal(out[THREADS - 1], 7);
    }
}

/* Of 128 cases: each stage in one block, and sums left for who goes on with them. */
static void tiles_are_shared_out(void **state) {
    uint32_t out[THREADS];
    (void)state;
    assert_int_equal(run("gw_test_shares", "forward", NULL, out, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(out[i] % 65536, 0);
    }
    assert_true(out[0] >= 65536); /* the middle of a tile is among them */
}

/* How tokens are cut, by hand: of 168 tiles along the rows on 132 blocks, and of few. */
static void tokens_are_cut(void **state) {
    static const struct {
        int live, rows, blocks;
        gw_cut cut;
    } cases[] = {
        {0, 168, 132, {0, 0, 0}},     {16, 168, 132, {0, 0, 32}},  {64, 168, 132, {0, 0, 64}},
        {65, 168, 132, {0, 1, 0}},    {128, 168, 132, {0, 1, 0}},  {129, 168, 132, {1, 0, 0}},
        {160, 168, 132, {1, 0, 0}},   {161, 168, 132, {0, 1, 64}}, {192, 168, 132, {0, 1, 64}},
        {193, 168, 132, {1, 0, 64}},  {224, 168, 132, {1, 0, 64}}, {225, 168, 132, {0, 2, 0}},
        {256, 168, 132, {0, 2, 0}},   {257, 168, 132, {1, 1, 0}},  {288, 168, 132, {1, 1, 0}},
        {289, 168, 132, {2, 0, 0}},   {320, 168, 132, {2, 0, 0}},  {352, 168, 132, {1, 1, 64}},
        {416, 168, 132, {1, 2, 0}},   {512, 168, 132, {0, 4, 0}},  {640, 168, 132, {0, 5, 0}},
        {2048, 168, 132, {0, 16, 0}}, {144, 86, 132, {0, 1, 32}},  {144, 120, 132, {1, 0, 0}},
        {288, 32, 132, {0, 2, 32}},   {288, 48, 132, {0, 2, 32}},  {288, 67, 132, {1, 1, 0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_cut cut = gw_cut_of(cases[i].live, cases[i].rows, cases[i].blocks);
        if (memcmp(&cut, &cases[i].cut, sizeof cut) != 0) {
            fail_msg("%d tokens, %d rows: %d %d %d", cases[i].live, cases[i].rows, cut.wide,
                     cut.whole, cut.last);
        }
    }
}

/* All tokens are in one tile each, in no more of them than before, and that takes no longer. */
static void every_token_has_a_tile(void **state) {
    static const int rows[] = {1, 7, 32, 48, 67, 103, 168, 1000};
    (void)state;
    for (int i = 0; i < 8 * 1500; i++) {
        int live = i / 8, tokens = 0;
        gw_cut before = gw_cut_with(live, 0), cut = gw_cut_of(live, rows[i % 8], 132);
        assert_true(gw_cut_time(cut, rows[i % 8], 132) <= gw_cut_time(before, rows[i % 8], 132));
        assert_true(gw_cut_tiles(cut) <= (live + 127) / 128);
        for (int tile = 0; tile < gw_cut_tiles(cut); tile++) {
            assert_true(tokens < live);
            assert_int_equal(gw_cut_from(cut, tile), tokens);
            assert_int_equal(gw_cut_tile(cut, tokens), tile);
            tokens += gw_cut_tokens(cut, tile);
            assert_int_equal(gw_cut_tile(cut, tokens - 1), tile);
        }
        assert_true(tokens >= live);
        assert_true(live % 128 > 0 || cut.wide == 0);
    }
}

static void expect_fault(const char *kernel, const char *words) {
    uint32_t out[THREADS];
    for (int o = 0; o < 2; o++) {
        assert_int_equal(run(kernel, orders[o], NULL, out, THREADS), LAUNCH_FAILED);
        if (strstr(emu.fault(), words) == NULL || strstr(emu.fault(), kernel) == NULL) {
            fail_msg("%s: the fault was '%s'", kernel, emu.fault());
        }
        /* and the emulator goes on */
        assert_int_equal(neighbours_wrong("gw_test_neighbours", orders[o]), 0);
    }
}

static void diverging_threads_are_named(void **state) {
    (void)state;
    expect_fault("gw_test_barrier_for_some", "96 of 128 threads wait at a barrier");
    expect_fault("gw_test_stays_away", "127 of 128 threads wait at a barrier");
    expect_fault("gw_test_two_barriers", "others of its block at a barrier");
    expect_fault("gw_test_gate_stays_shut", "128 wait at gates");
    expect_fault("gw_test_gate_not_made", "at a gate that nobody made");
    expect_fault("gw_test_word_not_written", "waits for a word that no block has written");
    expect_fault("gw_test_fetch_left_behind", "ended before 1 fetches came");
    expect_fault("gw_test_fetch_askew", "fetches 504 bytes");
    expect_fault("gw_test_some_stay_away", "32 of 64 threads wait at a barrier of some");
    expect_fault("gw_test_shuffle_of_some", "16 of 32 threads wait at a shuffle");
    expect_fault("gw_test_shuffle_or_ballot", "others of its wave at a");
}

static void writes_outside_a_buffer_are_found(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("SKIP: the address sanitizer ends the process here\n");
    skip();
#else
    expect_fault("gw_test_beyond_the_end", "behind the end of a buffer");
    expect_fault("gw_test_before_the_start", "before the start of a buffer");
#endif
}

static void shared_memory_holds_nothing_by_itself(void **state) {
    uint32_t in[WORDS], out[THREADS];
    (void)state;
    for (uint32_t i = 0; i < WORDS; i++) {
        in[i] = i * 3 + 1;
    }
#ifndef __SANITIZE_ADDRESS__ /* there it is no section that could be filled */
    assert_int_equal(run("gw_test_not_written", "forward", in, out, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(out[i], 0xffffffffu);
    }
    assert_int_equal(run("gw_test_copy_without_wait", "forward", in, out, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(out[i], 0xffffffffu);
    }
    assert_int_equal(run("gw_test_copy_with_wait", "forward", in, out, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(out[i], in[4 * (i + THREADS)]);
    }
    assert_int_equal(run("gw_test_fetch", "forward", in, out, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(out[i], in[i]);
    }
#endif
}

/* The same sums as gw_test_teams_apart. */
static void teams_do_not_disturb_one_another(void **state) {
    uint32_t out[THREADS];
    (void)state;
    for (int o = 0; o < 2; o++) {
        assert_int_equal(run("gw_test_teams_apart", orders[o], NULL, out, THREADS), 0);
        for (int team = 0; team < THREADS / 32; team++) {
            int v[32];
            for (int i = 0; i < 32; i++) {
                v[i] = team * 32 + i;
            }
            for (int round = 0; round <= team; round++) {
                int sum = 0;
                for (int i = 0; i < 32; i++) {
                    sum += v[i];
                }
                for (int i = 0; i < 32; i++) {
                    v[i] = sum % 1000 + i;
                }
            }
            for (int i = 0; i < 32; i++) {
                assert_int_equal(out[team * 32 + i], v[i]);
            }
        }
        assert_int_equal(run("gw_test_ways_to_move", orders[o], NULL, out, THREADS), 0);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(out[i], 0);
        }
    }
}

/* Random small numbers through the map of lanes to elements, against plain sums. */
static void matrices_multiply_exactly(void **state) {
    uint32_t in[WORDS], out[6 * THREADS];
    int8_t *eight = (int8_t *)in;
    gw_u16 *half = (gw_u16 *)(in + 256);
    int cols = strncmp(emu.processor, "sm_", 3) == 0 ? 8 : 16;
    uint32_t random = 1;
    (void)state;
    for (int i = 0; i < 32 * 32; i++) {
        random = random * 1664525u + 1013904223u;
        eight[i] = (int8_t)(random >> 24);
    }
    int small[2][32 * 16];
    for (int i = 0; i < 32 * 16; i++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            random = random * 1664525u + 1013904223u;
            small[bf16][i] = (int)(random >> 28) - 8;
            float x = (float)small[bf16][i];
            half[bf16 * 512 + i] = bf16 ? (gw_u16)(GW_F32_BITS(x) >> 16) : gw_f32_to_f16(x);
        }
    }
    assert_int_equal(run("gw_test_multiply", "forward", in, out, 6 * THREADS), 0);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < cols; j++) {
            int sum = 100;
            for (int k = 0; k < 32; k++) {
                sum += eight[i * 32 + k] * eight[(16 + j) * 32 + k];
            }
            assert_int_equal((int)out[i * 16 + j], sum);
            for (int bf16 = 0; bf16 < 2; bf16++) {
                sum = 100;
                for (int k = 0; k < 16; k++) {
                    sum += small[bf16][i * 16 + k] * small[bf16][(16 + j) * 16 + k];
                }
                assert_int_equal((int)out[(bf16 + 1) * 256 + i * 16 + j], sum);
            }
        }
    }
}

static int run_on(const char *path) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_cross_at_barriers_only),
        cmocka_unit_test(values_cross_at_gates),
        cmocka_unit_test(tiles_are_shared_out),
        cmocka_unit_test(tokens_are_cut),
        cmocka_unit_test(every_token_has_a_tile),
        cmocka_unit_test(diverging_threads_are_named),
        cmocka_unit_test(writes_outside_a_buffer_are_found),
        cmocka_unit_test(shared_memory_holds_nothing_by_itself),
        cmocka_unit_test(teams_do_not_disturb_one_another),
        cmocka_unit_test(matrices_multiply_exactly),
    };
    open_emulator(path);
    return cmocka_run_group_tests_name(strrchr(path, '/') + 1, tests, NULL, NULL);
}

int main(void) {
    int failed = run_on(GODWIT_EMULATORS "libgodwit_emu32.so");
    failed += run_on(GODWIT_EMULATORS "libgodwit_emu64.so");
    return failed + run_on(GODWIT_EMULATORS "libgodwit_emuradeon.so");
}
