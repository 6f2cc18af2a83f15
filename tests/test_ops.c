/* tests/test_ops.c - every kernel of the cpu backend, at every level that this processor runs,
 * equals the scalar one bit for bit; the scalar one keeps its derived distance from the oracle.
 */
#include "op_bounds.h"
#include "op_table.h"

#include <inttypes.h>

#include "backends/cpu/cpu.h"
#include "core/base/hash.h"
#include "tests/sanitized.h"

extern const gw_backend gw_backend_ref;

/* NULL when this processor or build lacks the level. */
static struct gw_device *open_level(const char *level, int threads) {
    struct gw_device *device = NULL;
    gw_device_options options = {.threads = threads};
    setenv("GODWIT_CPU", level, 1);
    gw_status status = gw_backend_cpu.open(0, &options, &device);
    unsetenv("GODWIT_CPU");
    if (status != GW_OK) {
        assert_int_equal(status, GW_E_ARGUMENT);
        return NULL;
    }
    return device;
}

/* ---- bits
 * --------------------------------------------------------------------------------------------- */

static op_result anchors[OC_TOTAL]; /* computed once for all levels */

static int free_anchors(void **state) {
    (void)state;
    for (int i = 0; i < OC_TOTAL; i++) {
        oc_free_result(&anchors[i]);
    }
    return 0;
}

/* As large as a device's tiles and groups of pages: the scalar kernels take ways through it that
 * they take through others. */
static int is_large(const op_case *c) {
    double products = (double)c->n * c->k * (c->m[0] + c->m[1] + c->m[2]);
    double attended = (double)c->n * c->heads * c->e * (c->pos + c->n);
    return products > 1e7 || (c->op == GW_OP_ATTENTION && attended > 1e7);
}

/* As large as the tiles of cards, which no kernel of the CPU has. */
static int is_for_cards(const op_case *c) {
    return (double)c->n * c->k * (c->m[0] + c->m[1] + c->m[2]) > 2e7;
}

/* With sanitizers one level alone has the large cases, but for those of cards, and the mapped
 * weights. */
static int has_all(const char *level) {
    return !TEST_SANITIZED || strcmp(level, "avx2") == 0 || strcmp(level, "neon") == 0;
}

/* Mapped weights or read ones: the same kernels over the same rows, so that with sanitizers one
 * level does for the mapped. On an emulated processor the release has been through the mapped.
 * Scalar kernels are compared with themselves there: once. */
static int forms_of(const char *level) {
    if ((TEST_EMULATED || TEST_SANITIZED) && strcmp(level, "scalar") == 0) {
        return OT_PRODUCED;
    }
    return !TEST_EMULATED && has_all(level) ? OT_EVERY_FORM : OT_PRODUCED | OT_ROWS;
}

static int is_large_or_without_weights(const op_case *c) {
    return is_large(c) || !ot_has_weights(c->op);
}

/* Levels that have products of quantized weights, all else being another's: NEON's, scalar. */
static int only_products(const char *level) {
    return strcmp(level, "i8mm") == 0 || strcmp(level, "rvv") == 0;
}

/* What a level does not go through, mostly with sanitizers: beside is_large, what it would go
 * through as another does. Ops without weights are AVX-512's at the level "vnni"; the scalar ones
 * are run for the results that all levels are compared with. */
static int (*left_out_at(const char *level))(const op_case *c) {
    int shares = strcmp(level, "vnni") == 0 || strcmp(level, "scalar") == 0;
    return only_products(level) ? is_large_or_without_weights
           : !TEST_SANITIZED    ? NULL
           : has_all(level)     ? is_for_cards
           : shares             ? is_large_or_without_weights
                                : is_large;
}

/* The scalar kernels stand in the table of every level and know nothing of it (a row of the table
 * names its own): they run at the level "scalar" only. */
static void check_level(const char *level) {
    static op_bench bench;
    struct gw_device *device = open_level(level, 2);
    if (device == NULL) {
        print_message("SKIP: %s does not run here\n", level);
        skip();
    }
    ot_open(&bench, &gw_backend_cpu, device, forms_of(level));
    bench.anchors = anchors;
    bench.elsewhere = strcmp(level, "scalar") == 0 ? NULL : ".scalar";
    bench.left_out = left_out_at(level);
    /* Kernels whose cases are left out are reached at the other level. */
    ot_check_table(&bench, oc_case, OC_TOTAL, only_products(level) ? "cpu." : NULL);
    ot_close(&bench);
}

static void bits_scalar(void **state) {
    (void)state;
    check_level("scalar");
}
static void bits_avx2(void **state) {
    (void)state;
    check_level("avx2");
}
static void bits_avx512(void **state) {
    (void)state;
    check_level("avx512");
}
static void bits_vnni(void **state) {
    (void)state;
    check_level("vnni");
}
static void bits_amx(void **state) {
    (void)state;
    check_level("amx");
}
static void bits_neon(void **state) {
    (void)state;
    check_level("neon");
}
static void bits_i8mm(void **state) {
    (void)state;
    check_level("i8mm");
}
static void bits_rvv(void **state) {
    (void)state;
    check_level("rvv");
}

/* One arithmetic for every compiler and processor: a build that is given digests of another one's
 * scalar results as GODWIT_OP_BITS (it wrote them to GODWIT_OP_BITS_TO) has the same. Cases that
 * make NaN are left out: C leaves a NaN's bits to the processor. */
static void bits_are_those_of_other_builds(void **state) {
    (void)state;
    const char *to = getenv("GODWIT_OP_BITS_TO"), *from = getenv("GODWIT_OP_BITS");
    if (to == NULL && from == NULL) {
        print_message("SKIP: GODWIT_OP_BITS names no digests of another build\n");
        skip();
    }
    FILE *file = fopen(to != NULL ? to : from, to != NULL ? "w" : "r");
    assert_non_null(file);
    int compared = 0;
    for (int i = 0; i < OC_TOTAL; i++) {
        op_case c = oc_case(i);
        const op_result *r = &anchors[i];
        if (r->out == NULL || c.wild == 1) {
            continue;
        }
        uint64_t key[2] = {0, 0};
        key[0] = gw_hash_bytes(key, r->out, r->out_bytes);
        key[1] = r->k == NULL ? 0 : gw_hash_bytes(key, r->k, r->cache_bytes);
        uint64_t hash = key[0] ^ key[1];
        hash = r->v == NULL ? hash : gw_hash_bytes(key, r->v, r->value_bytes);
        if (to != NULL) {
            assert_true(fprintf(file, "%d %016" PRIx64 "\n", i, hash) > 0);
            continue;
        }
        int number = -1;
        uint64_t want = 0;
        assert_int_equal(fscanf(file, "%d %" SCNx64, &number, &want), 2);
        if (number != i || want != hash) {
            fail_msg("%s (%s): other bits than the build that wrote %s", gw_op_describe(c.op)->name,
                     c.why, from);
        }
        compared++;
    }
    assert_int_equal(fclose(file), 0);
    assert_true(to != NULL || compared > 100);
}

/* What would be chosen, with teams of 1, 2 and 7 (more than this machine may have). */
static void bits_do_not_depend_on_threads(void **state) {
    (void)state;
    enum { BRIEF = TEST_SANITIZED || TEST_EMULATED, TEAMS = BRIEF ? 2 : 3 };
    static const int teams[3] = {1, 7, 2};
    struct gw_device *device[TEAMS];
    for (int t = 0; t < TEAMS; t++) {
        gw_device_options options = {.threads = teams[t]};
        assert_int_equal(gw_backend_cpu.open(0, &options, &device[t]), GW_OK);
    }
    for (int i = 0; i < OC_TOTAL; i++) {
        op_case c = oc_case(i);
        op_result want = {0}, got;
        if (BRIEF && is_large(&c)) {
            continue; /* how work is cut up is the same code everywhere */
        }
        for (int t = 0; t < TEAMS; t++) {
            op_setup s;
            oc_open(&s, &c, &gw_backend_cpu, device[t], 0, 0);
            const gw_kernel *kernel = oc_find(&s, "");
            assert_non_null(kernel);
            oc_run(&s, kernel, t == 0 ? &want : &got);
            if (t > 0) {
                oc_same(kernel->name, &c, &got, &want);
                oc_free_result(&got);
            }
            oc_close(&s);
        }
        oc_free_result(&want);
    }
    for (int t = 0; t < TEAMS; t++) {
        gw_backend_cpu.close(device[t]);
    }
}

/* ---- accuracy: op_bounds.h
 * ------------------------------------------------------------------------------------------ */

/* Cache entries: V is copied or encoded from equal floats, so equal bits. K is the rotated key; as
 * f16 each side rounds once more, by half an ulp: 2^-11 of it, or 2^-25 below the normal range. */
static void check_cache(const op_setup *s, const op_result *got, const op_result *want, int is_k) {
    const op_case *c = s->c;
    gw_fmt kv = oc_kv(c, is_k);
    const gw_format *f = gw_format_of(kv);
    size_t bytes = is_k ? got->cache_bytes : got->value_bytes;
    size_t n = bytes / f->block_bytes * f->block_elems, written = 0;
    const unsigned char *got_at = is_k ? got->k : got->v, *want_at = is_k ? want->k : want->v;
    if (!is_k && !c->norm_v && gw_cache_bits(kv) == 0) {
        oc_same_bytes("V cache of the scalar kernel", c, "values", got_at, want_at, bytes);
    }
    for (size_t i = 0; i < n; i++) {
        double a = oc_cached(c, got_at, is_k, i), b = oc_cached(c, want_at, is_k, i);
        if (isnan(a) && isnan(b)) {
            continue; /* nothing was written there, by both */
        }
        /* Normed values are at most sqrt(e); without a norm at most 1. Rotation adds two. */
        double most = rope_size(c) * (is_k || !c->norm_v ? 1.0 : sqrt((double)oc_v_dim(c)));
        double relative =
            gw_op_is_plain(&s->node) ? head_relative((size_t)c->e) + 3.0 * u : rope_relative(c);
        double error = slack * relative * most +
                       (kv == GW_FMT_F16 ? 2.0 * (0x1p-11 * fabs(b) * slack + 0x1p-25) : 0.0);
        /* As q8_0 each side is off by half a code of its scale, which is rounded to f16 itself. */
        error += kv == GW_FMT_Q8_0 ? most / 127.0 * (1.0 + 0x1p-9) * slack : 0.0;
        if (gw_cache_bits(kv) > 0) { /* rotated; of two equal peaks each side may take its own */
            double rotated = most * sqrt((double)gw_cells_width(is_k ? c->e : oc_v_dim(c)));
            error += rotated * 2.5 / (double)(1 << (gw_cache_bits(kv) - 1));
        }
        written++;
        if (!(fabs(a - b) <= error)) {
            fail_msg("%s: cache entry %zu is %.9g, not %.9g within %.3g", c->why, i, a, b, error);
        }
    }
    assert_int_equal(written, c->n * c->kv_heads * (is_k ? c->e : oc_v_dim(c)));
}

/* An act8 result: the f32 result rounded to a code: half a scale, and the roundings of
 * x * (127 / amax), at most 127 * 4 u of a code. */
static void check_values(const op_setup *s, const gw_tensor *got_t, const op_result *got,
                         const op_result *want) {
    size_t cols = (size_t)s->node.out->dim[1], step = TEST_SANITIZED || TEST_EMULATED ? 7 : 1;
    size_t rows = s->out_bytes > 0 ? (size_t)s->c->n : 0; /* keys alone: no rows */
    for (size_t i = 0; i < rows * cols; i += step) {
        double a = value_of(got_t, got->out, i / cols, i % cols);
        double b = value_of(s->node.out, want->out, i / cols, i % cols);
        double error = error_of(s, i / cols, i % cols, b);
        if (got_t->fmt == GW_FMT_ACT8) {
            double scale = ((const gw_act8 *)(const void *)got->out)[i / GW_ACT_BLOCK].scale;
            error += scale * (0.5 + 127.0 * 4.0 * u);
        }
        if (!(fabs(a - b) <= error)) { /* written so that NaN fails */
            fail_msg("%s (%s) row %zu column %zu: %.9g, oracle %.9g, error %.3g, bound %.3g",
                     gw_op_describe(s->c->op)->name, s->c->why, i / cols, i % cols, a, b,
                     fabs(a - b), error);
        }
    }
}

/* NaN that a case has put in is in its result. */
static int has_nan(const op_setup *s, const op_result *got) {
    size_t cols = (size_t)s->node.out->dim[1], nans = 0;
    for (size_t i = 0; i < (size_t)s->c->n * cols; i++) {
        nans += isnan(value_of(s->node.out, got->out, i / cols, i % cols)) != 0;
    }
    return nans > 0;
}

static void scalar_is_near_the_oracle(void **state) {
    (void)state;
    if (getenv("GODWIT_OP_BITS") != NULL) {
        print_message("SKIP: scalar results are held to the bits of a build that is near\n");
        skip();
    }
    struct gw_device *device = open_level("scalar", 2), *oracle;
    assert_non_null(device);
    assert_int_equal(gw_backend_ref.open(0, NULL, &oracle), GW_OK);
    for (int i = 0; i < OC_TOTAL; i++) {
        op_case c = oc_case(i), exact = c;
        op_result got, want;
        op_setup s, o;
        if ((TEST_SANITIZED || TEST_EMULATED) && is_large(&c)) {
            continue; /* its bits are those of the release, where it is near */
        }
        exact.out = c.op == GW_OP_QUANTIZE ? GW_FMT_ACT8 : GW_FMT_F32;
        oc_open(&s, &c, &gw_backend_cpu, device, 1, 0);
        oc_run(&s, oc_find(&s, ".scalar"), &got);
        oc_open(&o, &exact, &gw_backend_ref, oracle, 1, 0);
        const gw_kernel *kernel = oc_find(&o, "");
        assert_non_null(kernel);
        oc_run(&o, kernel, &want);
        if (c.op == GW_OP_QUANTIZE || c.op == GW_OP_SAMPLE) { /* nothing to approximate */
            oc_same("the scalar kernel", &c, &got, &want);
        } else if (c.op == GW_OP_SCAN && c.wild) { /* in NaN there is nothing to approximate */
            assert_true(has_nan(&s, &got));
        } else if (c.op != GW_OP_NORM || !c.wild) { /* bounds are relative: no infinities */
            check_values(&o, s.node.out, &got, &want);
        }
        if (c.op == GW_OP_ROPE_KV && !c.wild && c.kv_heads > 0) {
            check_cache(&o, &got, &want, 1);
            if (!c.within) {
                check_cache(&o, &got, &want, 0);
            }
        }
        forget_units(); /* they go by addresses, which the next case may have again */
        forget_heads();
        oc_free_result(&got);
        oc_free_result(&want);
        oc_close(&s);
        oc_close(&o);
    }
    gw_backend_cpu.close(device);
    gw_backend_ref.close(oracle);
}

/* ---- the device
 * ------------------------------------------------------------------------------------------ */

static void a_level_that_is_unknown_is_refused(void **state) {
    (void)state;
    struct gw_device *device = NULL;
    setenv("GODWIT_CPU", "sse9", 1);
    assert_int_equal(gw_backend_cpu.open(0, NULL, &device), GW_E_ARGUMENT);
    assert_non_null(strstr(gw_error_text(), "sse9"));
    unsetenv("GODWIT_CPU");
    assert_null(device);
}

static void too_much_memory_is_refused_at_once(void **state) {
    (void)state;
    struct gw_device *device = open_level("scalar", 1);
    struct gw_buffer *buffer = NULL;
    assert_non_null(device);
    assert_int_equal(gw_backend_cpu.alloc(device, (size_t)1 << 50, &buffer), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "needs"));
    assert_int_equal(gw_backend_cpu.alloc(device, SIZE_MAX, &buffer), GW_E_NOMEM);
    assert_null(buffer);
    gw_backend_cpu.close(device);
}

static gw_status produce_until(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    (void)dst;
    const int64_t *stop = src->state;
    return first + n > *stop ? gw_fail(GW_E_IO, "rows", "row %d is gone", (int)*stop) : GW_OK;
}

static void a_weight_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    struct gw_device *device = open_level("scalar", 2);
    int64_t stop = 700;
    gw_weight_source src = {.rows = produce_until, .state = &stop};
    gw_tensor t = {.name = "w", .fmt = GW_FMT_Q8_0, .n_dim = 2, .dim = {1000, 1024}};
    assert_non_null(device);
    assert_int_equal(gw_backend_cpu.load_weight(device, &t, &src), GW_E_IO);
    assert_non_null(strstr(gw_error_text(), "row 700 is gone"));
    assert_null(t.buf);
    gw_backend_cpu.close(device);
}

/* Blocks that the vectors leave to the scalar encoder, or must treat like it. */
static void q8_of_odd_values(void **state) {
    (void)state;
    static const char *const levels[] = {"avx2", "avx512", "vnni", "amx", "neon", "i8mm", "rvv"};
    static const float odd[] = {0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,    1e-45f,
                                1e-38f, 6e-6f,  1.2e-5f,  8.3e6f,    8.4e6f, 3e38f,
                                -3e38f, 127.0f, 63.5f,    -0.5f};
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        struct gw_device *device = open_level(levels[l], 1);
        if (device == NULL) {
            continue;
        }
        const gw_cpu_ops *ops = gw_cpu_ops_of(device->level);
        for (size_t i = 0; i < 64 * sizeof odd / sizeof odd[0]; i++) {
            float x[32];
            gw_i8 codes[32], want_codes[32];
            gw_u16 scale = 0, want_scale = 1;
            for (int j = 0; j < 32; j++) {
                x[j] = i < 32 * sizeof odd / sizeof odd[0] ? odd[i / 32] * (float)(j % 5) * 0.25f
                                                           : 0.3f * (float)(j % 7 - 3);
            }
            x[i % 32] = odd[i / 32 % (sizeof odd / sizeof odd[0])];
            ops->to_q8(codes, &scale, x, 32);
            gw_cpu_ops_scalar.to_q8(want_codes, &want_scale, x, 32);
            assert_int_equal(scale & 0x7c00, want_scale & 0x7c00);
            assert_true(scale == want_scale || isnan(gw_f16_to_f32(scale)));
            assert_memory_equal(codes, want_codes, 32);
        }
        gw_backend_cpu.close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_scalar),
        cmocka_unit_test(bits_avx2),
        cmocka_unit_test(bits_avx512),
        cmocka_unit_test(bits_vnni),
        cmocka_unit_test(bits_amx),
        cmocka_unit_test(bits_neon),
        cmocka_unit_test(bits_i8mm),
        cmocka_unit_test(bits_rvv),
        cmocka_unit_test(bits_are_those_of_other_builds),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(q8_of_odd_values),
        cmocka_unit_test(scalar_is_near_the_oracle),
        cmocka_unit_test(a_level_that_is_unknown_is_refused),
        cmocka_unit_test(too_much_memory_is_refused_at_once),
        cmocka_unit_test(a_weight_that_cannot_be_read_is_an_error),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, free_anchors);
}
