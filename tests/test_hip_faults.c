/* tests/test_hip_faults.c - the host side of the hip backend over the emulator: weights through the
 * staging ring, graphs and launches one by one, profiles; and faults, which end in one clear error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/hip/hip.h"
#include "core/plan/plan.h"

extern const gw_backend gw_backend_hip;

static const gw_backend *const hip = &gw_backend_hip;

enum { ROWS = 200, COLS = 256 };

static struct gw_device *open_hip(const char *settings) {
    struct gw_device *device = NULL;
    setenv("GODWIT_HIP", settings, 1);
    gw_status status = hip->open(0, NULL, &device);
    unsetenv("GODWIT_HIP");
    if (status != GW_OK) {
        fail_msg("cannot open: %s", gw_error_text());
    }
    return device;
}

/* ---- one node -------------------------------------------------------------------------------- */

/* EMBED of three rows, run `passes` times; everything is released whatever fails. */
typedef struct trial {
    gw_tensor table, out;
    gw_node node;
    struct gw_segment *segment;
    float result[3 * COLS];
    gw_node_time time;
} trial;

static float value_of(int64_t row, int64_t col) { return (float)(row * 31 % 97) - (float)col / 8; }

static gw_status freeze_trial(trial *t, struct gw_device *device) {
    static float weights[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) {
        weights[i] = value_of(i / COLS, i % COLS);
    }
    gw_weight_source src = {.map = weights, .keep_rows = 1};
    size_t n;
    memset(t, 0, sizeof *t);
    t->table = (gw_tensor){.name = "table", .fmt = GW_FMT_F32, .n_dim = 2, .dim = {ROWS, COLS}};
    t->out = (gw_tensor){.name = "out", .fmt = GW_FMT_F32, .n_dim = 2, .dim = {3, COLS}};
    GW_TRY(hip->load_weight(device, &t->table, &src));
    GW_TRY(hip->alloc(device, sizeof t->result, &t->out.buf));
    t->node = (gw_node){.op = GW_OP_EMBED, .w = {&t->table}, .out = &t->out, .what = "fault"};
    const gw_kernel *kernels = hip->kernels(device, &n);
    for (size_t i = 0; i < n && t->node.kernel == NULL; i++) {
        if (kernels[i].op == GW_OP_EMBED && kernels[i].accepts(&kernels[i], &t->node, device)) {
            t->node.kernel = &kernels[i];
        }
    }
    assert_non_null(t->node.kernel);
    return hip->freeze(device, &t->node, 1, 3, &t->segment);
}

static gw_status run_trial(trial *t, struct gw_device *device) {
    static gw_step step;
    step = (gw_step){.n = 3, .n_pick = 3, .token = {5, 199, 0}};
    GW_TRY(hip->run(t->segment, &step));
    step = (gw_step){.n = 2, .n_pick = 2, .token = {7, 198}}; /* the first has its own copy */
    GW_TRY(hip->run(t->segment, &step));
    GW_TRY(hip->wait(device));
    return hip->read(t->out.buf, 0, t->result, sizeof t->result);
}

static void end_trial(trial *t) {
    hip->segment_free(t->segment);
    hip->release(t->table.buf);
    hip->release(t->out.buf);
}

static gw_status try_node(struct gw_device *device) {
    trial t;
    gw_status status = freeze_trial(&t, device);
    status = status == GW_OK ? run_trial(&t, device) : status;
    end_trial(&t);
    const int rows[3] = {7, 198, 0}; /* of the second pass two, of the first the last */
    for (int i = 0; i < 3 * COLS && status == GW_OK; i++) {
        assert_true(t.result[i] == value_of(rows[i / COLS], i % COLS));
    }
    return status;
}

static void ways_to_launch(void **state) {
    (void)state;
    static const char *const ways[] = {"", "no-graph", "check"};
    for (int i = 0; i < 3; i++) {
        struct gw_device *device = open_hip(ways[i]);
        assert_int_equal(try_node(device), GW_OK);
        hip->close(device);
    }
}

static void a_profile_counts_and_times(void **state) {
    (void)state;
    struct gw_device *device = open_hip("");
    trial t;
    assert_int_equal(freeze_trial(&t, device), GW_OK);
    hip->profile(t.segment, &t.time);
    assert_int_equal(run_trial(&t, device), GW_OK);
    assert_int_equal(t.time.calls, 2);
    assert_true(t.time.seconds > 0 && t.time.seconds < 10);
    hip->profile(t.segment, NULL);
    assert_int_equal(run_trial(&t, device), GW_OK);
    assert_int_equal(t.time.calls, 2);
    end_trial(&t);
    hip->close(device);
}

static void a_roof_is_measured(void **state) {
    (void)state;
    struct gw_device *device = open_hip("");
    gw_roof roof = {0};
    assert_int_equal(hip->roof(device, &roof), GW_OK);
    assert_true(roof.read_gbps > 0);
    assert_int_equal(try_node(device), GW_OK);
    hip->close(device);
}

/* ---- weights --------------------------------------------------------------------------------- */

static gw_status make_rows(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const size_t row = *(const size_t *)src->state;
    for (int64_t r = 0; r < n; r++) {
        memset((char *)dst + (size_t)r * row, (int)((first + r) * 7 % 251), row);
    }
    return GW_OK;
}

static gw_status no_rows(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    (void)src;
    (void)dst;
    return first > 100 ? gw_fail(GW_E_IO, "rows", "%d rows are gone", (int)n) : GW_OK;
}

/* More than the ring holds, from a map and from a conversion; and one that stops half way. */
static void weights_larger_than_the_ring(void **state) {
    (void)state;
    struct gw_device *device = open_hip("");
    size_t row = 4 * 4096, n = 2600;
    unsigned char *want = malloc(n * row), *got = malloc(n * row);
    assert_true(want != NULL && got != NULL);
    gw_weight_source made = {.rows = make_rows, .state = &row, .keep_rows = 1};
    gw_weight_source mapped = {.map = want, .keep_rows = 1}, broken = {.rows = no_rows};
    assert_int_equal(make_rows(&made, 0, (int64_t)n, want), GW_OK);
    for (int i = 0; i < 2; i++) {
        gw_tensor t = {.name = "w", .fmt = GW_FMT_F32, .n_dim = 2, .dim = {(int64_t)n, 4096}};
        assert_int_equal(hip->load_weight(device, &t, i == 0 ? &made : &mapped), GW_OK);
        memset(got, 0, n * row);
        assert_int_equal(hip->read(t.buf, t.offset, got, n * row), GW_OK);
        assert_memory_equal(got, want, n * row);
        hip->release(t.buf);
    }
    gw_tensor t = {.name = "w", .fmt = GW_FMT_F32, .n_dim = 2, .dim = {(int64_t)n, 4096}};
    assert_int_equal(hip->load_weight(device, &t, &broken), GW_E_IO);
    assert_null(t.buf);
    free(want);
    free(got);
    assert_int_equal(try_node(device), GW_OK);
    hip->close(device);
}

/* A format is a product's with a record of strips, an embedding's with a kernel; others are
 * refused, never laid down as records of no bytes. */
static void formats_without_kernels_are_refused(void **state) {
    (void)state;
    struct gw_device *device = open_hip("");
    for (int fmt = 0; fmt < GW_FMT_COUNT; fmt++) {
        const char *name = gw_format_of((gw_fmt)fmt)->name;
        gw_tensor t = {.name = "w", .fmt = (gw_fmt)fmt, .n_dim = 2, .dim = {32, 256}};
        gw_tensor out = {.fmt = GW_FMT_F32, .n_dim = 2, .dim = {1, 256}};
        gw_node node = {.op = GW_OP_EMBED, .w = {&t}, .out = &out};
        gw_plan_device d = {hip, device};
        gw_hip_function function;
        gw_hip_layout layout = {.bytes = 0};
        char kernel[48];
        gw_status status = gw_hip_layout_of(device, &t, 0, &layout);
        assert_int_equal(status, fmt < GW_FMT_ACT8 ? GW_OK : GW_E_UNSUPPORTED);
        assert_true(status != GW_OK || layout.bytes >= (size_t)32 * 256 / 8);
        snprintf(kernel, sizeof kernel, "gw_embed_%s", name);
        for (char *c = kernel; *c != '\0'; c++) {
            *c = *c == '-' ? '_' : *c;
        }
        int there = gw_hip_find(device, kernel, &function) == GW_OK;
        if ((gw_plan_kernel(&d, &node) != NULL) != there) {
            fail_msg("an embedding in %s: %s", name, there ? "refused" : "taken without a kernel");
        }
    }
    hip->close(device);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    int k = 1, failed = 1;
    for (; failed && k < 20; k++) {
        char settings[32];
        snprintf(settings, sizeof settings, "fail-alloc=%d", k);
        struct gw_device *device = open_hip(settings);
        gw_status status = try_node(device);
        failed = status != GW_OK;
        if (failed) {
            assert_int_equal(status, GW_E_NOMEM);
            assert_non_null(strstr(gw_error_text(), "simulated"));
            assert_int_equal(try_node(device), GW_OK); /* the device is as good as before */
        }
        hip->close(device);
    }
    assert_true(k > 6); /* weight, two halves of the ring, output, step, its pinned copy */
    assert_false(failed);
}

/* Memory of the host that kernels reach: zeros, written and read, none of the card's, refused in
 * one line. */
static void mapped_memory_is_the_hosts(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    static unsigned char from[BYTES], to[BYTES], zeros[BYTES];
    gw_device_info before, then;
    struct gw_device *device = open_hip("");
    struct gw_buffer *buffer = NULL, *refused = NULL;
    hip->describe(device, 0, &before);
    assert_int_equal(hip->alloc_mapped(device, BYTES, 4096, &buffer), GW_OK);
    hip->describe(device, 0, &then);
    assert_int_equal(before.free_bytes, then.free_bytes);
    assert_int_equal(hip->read(buffer, 0, to, BYTES), GW_OK);
    assert_memory_equal(to, zeros, BYTES);
    for (int i = 0; i < BYTES; i++) {
        from[i] = (unsigned char)(i * 7 + i / 251 + 1);
    }
    assert_int_equal(hip->write(buffer, 100, from, BYTES - 100), GW_OK);
    assert_int_equal(hip->read(buffer, 100, to, BYTES - 100), GW_OK);
    assert_memory_equal(to, from, BYTES - 100);
    assert_int_equal(hip->read(buffer, BYTES - 1, to, 2), GW_E_BOUNDS);
    hip->release(buffer);
    hip->close(device);
    device = open_hip("fail-alloc=1");
    assert_int_equal(hip->alloc_mapped(device, BYTES, 0, &refused), GW_E_NOMEM);
    assert_null(refused);
    assert_non_null(strstr(gw_error_text(), "1.049 MB of main memory"));
    hip->close(device);
}

static void a_failing_launch_loses_the_device(void **state) {
    (void)state;
    static const char *const settings[] = {"no-graph,fail-launch=1", "no-graph,fail-launch=2",
                                           "fail-launch=3", "fail-launch=4"};
    for (int i = 0; i < 4; i++) {
        struct gw_device *device = open_hip(settings[i]);
        assert_int_equal(try_node(device), GW_E_DEVICE);
        assert_non_null(strstr(gw_error_text(), "was lost while"));
        assert_non_null(strstr(gw_error_text(), "CUDA_ERROR_OUT_OF_MEMORY"));
        assert_int_equal(try_node(device), GW_E_DEVICE); /* and stays lost */
        assert_non_null(strstr(gw_error_text(), "was lost earlier"));
        gw_roof roof;
        assert_int_equal(hip->roof(device, &roof), GW_E_DEVICE);
        hip->close(device);
    }
}

static void a_failing_capture_names_the_kernel(void **state) {
    (void)state;
    struct gw_device *device = open_hip("fail-launch=2"); /* the first fetches the step block */
    assert_int_equal(try_node(device), GW_E_DEVICE);
    assert_non_null(strstr(gw_error_text(), "capturing gw_embed"));
    assert_int_equal(try_node(device), GW_OK); /* nothing ran: nothing is lost */
    hip->close(device);
}

static void too_much_memory_is_refused(void **state) {
    (void)state;
    struct gw_device *device = open_hip("");
    struct gw_buffer *buffer = NULL;
    assert_int_equal(hip->alloc(device, (size_t)1 << 50, &buffer), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "are left"));
    assert_null(buffer);
    hip->close(device);
}

static void ranges_are_checked(void **state) {
    (void)state;
    struct gw_device *device = open_hip("");
    struct gw_buffer *buffer = NULL;
    char byte = 0;
    assert_int_equal(hip->alloc(device, 100, &buffer), GW_OK);
    assert_int_equal(hip->write(buffer, 99, &byte, 2), GW_E_BOUNDS);
    assert_int_equal(hip->read(buffer, SIZE_MAX, &byte, 2), GW_E_BOUNDS);
    assert_int_equal(hip->read(buffer, 99, &byte, 1), GW_OK);
    hip->release(buffer);
    hip->close(device);
}

static void ordinals_beyond_the_last_are_refused(void **state) {
    (void)state;
    struct gw_device *other = NULL;
    assert_int_equal(hip->open(hip->device_count(), NULL, &other), GW_E_ARGUMENT);
    assert_int_equal(hip->open(-1, NULL, &other), GW_E_ARGUMENT);
    assert_null(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ways_to_launch),
        cmocka_unit_test(a_profile_counts_and_times),
        cmocka_unit_test(a_roof_is_measured),
        cmocka_unit_test(weights_larger_than_the_ring),
        cmocka_unit_test(formats_without_kernels_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(mapped_memory_is_the_hosts),
        cmocka_unit_test(a_failing_launch_loses_the_device),
        cmocka_unit_test(a_failing_capture_names_the_kernel),
        cmocka_unit_test(too_much_memory_is_refused),
        cmocka_unit_test(ranges_are_checked),
        cmocka_unit_test(ordinals_beyond_the_last_are_refused),
    };
    setenv("GODWIT_HIP_DRIVER", GODWIT_EMULATORS "libgodwit_emu32.so", 1);
    return cmocka_run_group_tests_name("hip host", tests, NULL, NULL);
}
