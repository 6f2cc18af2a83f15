/* tests/test_opencl_faults.c - the OpenCL backend when something fails: allocations, launches, the
 * compiler, damaged programs on disk. Each ends in one clear error, nothing hangs, and the
 * processor computes as before. Runs on the first OpenCL device; without one everything is skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/opencl/opencl.h"
#include "core/plan/backend.h"

#define MODEL "tests/data/tales-2m-q4_0.gguf"

extern const gw_backend gw_backend_opencl;

static gw_status try_open(const char *settings, struct gw_device **device) {
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", settings, 1);
    gw_status status = gw_backend_opencl.open(0, NULL, device);
    unsetenv("GODWIT_OPENCL");
    return status;
}

static struct gw_device *open_opencl(const char *settings) {
    struct gw_device *device = NULL;
    if (try_open(settings, &device) != GW_OK) {
        fail_msg("cannot open: %s", gw_error_text());
    }
    return device;
}

/* ---- one node -------------------------------------------------------------------------------- */

/* Load, freeze and run one node by hand; everything is released whatever fails. */
static gw_status try_node(struct gw_device *device, int64_t rows) {
    const gw_backend *b = &gw_backend_opencl;
    size_t row = 0;
    assert_int_equal(gw_row_bytes(GW_FMT_Q8_0, 256, &row), GW_OK);
    unsigned char *bytes = malloc((size_t)rows * row);
    assert_non_null(bytes);
    memset(bytes, 1, (size_t)rows * row);
    gw_weight_source src = {.map = bytes};
    gw_tensor w[2] = {{.name = "w", .fmt = GW_FMT_Q8_0, .n_dim = 2, .dim = {rows, 256}}};
    gw_tensor x = {.name = "x", .fmt = GW_FMT_ACT8, .n_dim = 2, .dim = {3, 256}};
    gw_tensor y = {.name = "y", .fmt = GW_FMT_ACT8, .n_dim = 2, .dim = {3, rows}};
    static gw_step step = {.n = 3, .n_pick = 3};
    struct gw_segment *segment = NULL;
    w[1] = w[0];
    gw_status s = b->load_weight(device, &w[0], &src);
    s = s == GW_OK ? b->load_weight(device, &w[1], &src) : s;
    s = s == GW_OK ? b->alloc(device, 3 * 8 * sizeof(gw_act8), &x.buf) : s;
    s = s == GW_OK ? b->alloc(device, 3 * (size_t)rows / 32 * sizeof(gw_act8), &y.buf) : s;
    if (s == GW_OK) {
        gw_node node = {.op = GW_OP_GLU,
                        .args.linear.order = GW_ORDER_PREFILL,
                        .in = {&x},
                        .w = {&w[0], &w[1]},
                        .out = &y,
                        .what = "fault"};
        size_t n;
        const gw_kernel *kernels = b->kernels(device, &n);
        for (size_t i = 0; i < n && node.kernel == NULL; i++) {
            if (kernels[i].op == node.op && kernels[i].accepts(&kernels[i], &node, device)) {
                node.kernel = &kernels[i];
            }
        }
        assert_non_null(node.kernel);
        s = b->freeze(device, &node, 1, 3, &segment);
    }
    s = s == GW_OK ? b->run(segment, &step) : s;
    s = s == GW_OK ? b->wait(device) : s;
    b->segment_free(segment);
    b->release(w[0].buf);
    b->release(w[1].buf);
    b->release(x.buf);
    b->release(y.buf);
    free(bytes);
    return s;
}

static void a_roof_is_measured(void **state) {
    (void)state;
    static const char *const settings[] = {"", "team", "fail-alloc=1", "max-alloc=100000"};
    for (int i = 0; i < 4; i++) {
        struct gw_device *device = open_opencl(settings[i]);
        gw_roof roof = {.read_gbps = -1};
        assert_int_equal(gw_backend_opencl.roof(device, &roof), GW_OK);
        assert_true(i < 2 ? roof.read_gbps > 0 : roof.read_gbps == 0);
        assert_int_equal(try_node(device, 96), GW_OK);
        gw_backend_opencl.close(device);
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    int k = 1, failed = 1;
    for (; failed && k < 20; k++) {
        char settings[32];
        snprintf(settings, sizeof settings, "no-cache,fail-alloc=%d", k);
        struct gw_device *device = open_opencl(settings);
        gw_status s = try_node(device, 96);
        failed = s != GW_OK;
        if (failed) {
            assert_int_equal(s, GW_E_NOMEM);
            assert_non_null(strstr(gw_error_text(), "simulated"));
            assert_int_equal(try_node(device, 96), GW_OK); /* the device is as good as before */
        }
        gw_backend_opencl.close(device);
    }
    assert_true(k > 5); /* two weights, input, output, step, scratch */
    assert_false(failed);
}

static void a_failing_launch_loses_the_device(void **state) {
    (void)state;
    for (int k = 1; k <= 2; k++) { /* gate and up; what joins them */
        char settings[32];
        snprintf(settings, sizeof settings, "no-cache,fail-enqueue=%d", k);
        struct gw_device *device = open_opencl(settings);
        assert_int_equal(try_node(device, 96), GW_E_DEVICE);
        assert_non_null(strstr(gw_error_text(), "CL_OUT_OF_RESOURCES"));
        assert_int_equal(try_node(device, 96), GW_E_DEVICE); /* and stays lost */
        gw_roof roof;
        assert_int_equal(gw_backend_opencl.roof(device, &roof), GW_E_DEVICE);
        gw_backend_opencl.close(device);
    }
}

static void a_failing_build_shows_the_log(void **state) {
    struct gw_device *device = NULL;
    (void)state;
    assert_int_equal(try_open("fail-build", &device), GW_E_DEVICE);
    assert_null(device);
    assert_non_null(strstr(gw_error_text(), "cannot build"));
    assert_non_null(strstr(gw_error_text(), "made to fail"));
}

static void too_much_memory_is_refused(void **state) {
    (void)state;
    struct gw_device *device = open_opencl("no-cache");
    struct gw_buffer *buffer = NULL;
    assert_int_equal(gw_backend_opencl.alloc(device, (size_t)1 << 50, &buffer), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "needs"));
    assert_null(buffer);
    gw_backend_opencl.close(device);
}

/* What the driver is asked to fill buffers with, in bytes at a time; all of them. */
static const gw_cl_driver *driver;
static size_t filled;

static cl_int count_fill(cl_command_queue queue, cl_mem mem, const void *pattern, size_t size,
                         size_t at, size_t bytes, cl_uint n, const cl_event *events,
                         cl_event *out) {
    assert_int_equal(size, 16);
    filled += bytes;
    return driver->EnqueueFillBuffer(queue, mem, pattern, size, at, bytes, n, events, out);
}

/* Filled with single bytes, a buffer of 2 GB costs NVIDIA's driver 580 the device (memory.c). */
static void buffers_are_cleared_sixteen_bytes_at_a_time(void **state) {
    const gw_backend *b = &gw_backend_opencl;
    unsigned char got[1000], zeros[1000] = {0};
    struct gw_buffer *one = NULL, *pages = NULL;
    (void)state;
    struct gw_device *device = open_opencl("no-cache,max-alloc=13000");
    gw_cl_driver counting = *device->cl;
    counting.EnqueueFillBuffer = count_fill;
    driver = device->cl;
    device->cl = &counting;
    filled = 0;
    gw_status status = b->alloc(device, 1000, &one);
    status = status == GW_OK ? b->alloc_pages(device, 8 * 4096, 4096, &pages) : status;
    device->cl = driver;
    assert_int_equal(status, GW_OK);
    assert_int_equal(filled, 1008 + 8 * 4096);
    assert_int_equal(b->read(one, 0, got, sizeof got), GW_OK);
    assert_memory_equal(got, zeros, sizeof got);
    b->release(one);
    b->release(pages);
    b->close(device);
}

/* A cache of eight pages where the device gives three at once: written and read over the borders.
 * Of the host's memory it takes none of the device's. */
typedef gw_status (*alloc_fn)(struct gw_device *, size_t, size_t, struct gw_buffer **);
static void check_pages(alloc_fn alloc, int of_host) {
    enum { PAGE = 4096, PAGES = 8, BYTES = PAGE * PAGES };
    const gw_backend *b = &gw_backend_opencl;
    static unsigned char from[BYTES], to[BYTES];
    unsigned char want[BYTES] = {0};
    struct gw_device *device = open_opencl("no-cache,max-alloc=13000");
    struct gw_buffer *cache = NULL, *refused = NULL;
    const uint64_t reserved = device->reserved;
    assert_int_equal(b->alloc(device, BYTES, &refused), GW_E_NOMEM);
    assert_int_equal(alloc(device, BYTES, PAGE, &cache), GW_OK);
    assert_int_equal(device->reserved, reserved + (of_host ? 0 : BYTES));
    for (int i = 0; i < BYTES; i++) {
        from[i] = (unsigned char)(i * 7 + i / 251 + 1);
    }
    assert_int_equal(b->read(cache, 0, to, BYTES), GW_OK);
    assert_memory_equal(to, want, BYTES); /* zeros */
    const int ranges[][2] = {{0, PAGE}, {2 * PAGE, 2 * PAGE}, {3 * PAGE - 5, 10}, {PAGE, 7 * PAGE}};
    for (int i = 0; i < 4; i++) {
        size_t at = (size_t)ranges[i][0], n = (size_t)ranges[i][1];
        memcpy(want + at, from, n);
        assert_int_equal(b->write(cache, at, from, n), GW_OK);
        assert_int_equal(b->read(cache, at, to, n), GW_OK);
        assert_memory_equal(to, from, n);
        assert_int_equal(b->read(cache, 0, to, BYTES), GW_OK);
        assert_memory_equal(to, want, BYTES);
    }
    assert_int_equal(b->read(cache, BYTES - 1, to, 2), GW_E_BOUNDS);
    assert_int_equal(alloc(device, 25 * PAGE, PAGE, &refused), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "shorter context"));
    assert_int_equal(alloc(device, 26000, 13001, &refused), GW_E_NOMEM); /* one page */
    assert_null(refused);
    b->release(cache);
    assert_int_equal(device->reserved, reserved);
    b->close(device);
}

static void pages_lie_in_several_allocations(void **state) {
    (void)state;
    check_pages(gw_backend_opencl.alloc_pages, 0);
    check_pages(gw_backend_opencl.alloc_mapped, 1);
}

/* A table of 8 rows that nothing changes is read where the file is mapped, by a device whose memory
 * is the host's; without any of that it is copied. */
static void check_place(const char *settings, size_t shift, int changes, int there) {
    enum { ROWS = 8, COLS = 32 };
    static _Alignas(64) unsigned char file[ROWS * COLS * 2 + 4], back[ROWS * COLS * 2];
    struct gw_device *device = open_opencl(settings);
    gw_tensor t = {.name = "table", .fmt = GW_FMT_F16, .n_dim = 2, .dim = {ROWS, COLS}};
    gw_weight_source src = {.map = file + shift, .keep_rows = 1, .changes = changes};
    uint64_t reserved = device->reserved, kept = 0;
    for (size_t i = 0; i < sizeof file; i++) {
        file[i] = (unsigned char)(i * 7);
    }
    assert_int_equal(gw_backend_opencl.load_weight(device, &t, &src), GW_OK);
    assert_int_equal(t.layout, GW_LAYOUT_ROWS);
    assert_true((device->reserved == reserved) == there);
    assert_int_equal(gw_backend_opencl.stow(t.buf, &kept), GW_OK);
    assert_int_equal(kept, t.buf->bytes);
    assert_int_equal(gw_backend_opencl.restore(t.buf), GW_OK);
    assert_int_equal(gw_backend_opencl.read(t.buf, 0, back, sizeof back), GW_OK);
    assert_memory_equal(back, file + shift, sizeof back);
    if (changes) {
        static unsigned char other[sizeof back];
        src.map = other;
        assert_int_equal(gw_backend_opencl.fetch_weight(device, &t, &src, 0, ROWS / 2), GW_OK);
        assert_int_equal(gw_backend_opencl.read(t.buf, 0, back, sizeof back), GW_OK);
        assert_memory_equal(back, other, sizeof back / 2);
        assert_memory_equal(back + sizeof back / 2, file + shift + sizeof back / 2, 32);
    }
    gw_backend_opencl.release(t.buf);
    assert_int_equal(device->reserved, reserved);
    gw_backend_opencl.close(device);
}

static void weights_are_read_where_they_are(void **state) {
    struct gw_device *device = open_opencl("");
    const int unified = device->unified;
    (void)state;
    gw_backend_opencl.close(device);
    check_place("", 0, 0, unified);
    check_place("", 0, 1, 0);
    check_place("", 2, 0, 0);
    check_place("copies", 0, 0, 0);
    check_place("copies", 0, 1, 0);
}

static void ordinals_beyond_the_last_are_refused(void **state) {
    (void)state;
    struct gw_device *device = open_opencl("no-cache");
    struct gw_device *other = NULL;
    assert_int_equal(gw_backend_opencl.open(999, NULL, &other), GW_E_ARGUMENT);
    assert_int_equal(gw_backend_opencl.open(-1, NULL, &other), GW_E_ARGUMENT);
    assert_null(other);
    gw_backend_opencl.close(device);
}

/* ---- whole models -----------------------------------------------------------------------------
 */

enum { CONTEXT = 64, MOST_FAULTS = 2000 };

/* A prompt and two tokens; logits [n_vocab] of the last, on success. The caller frees them. */
static gw_status answer(const char *settings, const gw_model_options *options, float **logits,
                        int32_t *n_vocab) {
    static const int32_t prompt[] = {1, 300, 411, 2050}, tokens[] = {522, 733};
    gw_session_options small = {.n_ctx = CONTEXT, .chunk = 4};
    gw_model *model = NULL;
    gw_session *session = NULL;
    gw_model_info info;
    setenv("GODWIT_OPENCL", settings, 1);
    gw_status status = gw_model_open(options, &model);
    unsetenv("GODWIT_OPENCL");
    status = status == GW_OK ? gw_session_new(model, &small, &session) : status;
    status = status == GW_OK ? gw_session_prefill(session, prompt, 4) : status;
    for (int i = 0; i < 2 && status == GW_OK; i++) {
        status = gw_session_decode(session, &tokens[i], 1);
    }
    if (status == GW_OK) {
        gw_model_describe(model, &info);
        *n_vocab = info.n_vocab;
        *logits = malloc((size_t)info.n_vocab * sizeof **logits);
        assert_non_null(*logits);
        memcpy(*logits, gw_session_logits(session, 0), (size_t)info.n_vocab * sizeof **logits);
    } else if (session != NULL) { /* the next call ends too, with the device's name or not at all */
        assert_true(gw_session_pos(session) >= 0);
    }
    gw_session_free(session);
    gw_model_free(model);
    return status;
}

/* Fails the k-th allocation or launch for k = first, first + step, ... until nothing fails any
 * more. After each failure the processor's answer in the same process is as before. */
static void every_fault(const char *kind, int step, gw_status expected, const char *word) {
    gw_model_options cpu = {.path = MODEL, .threads = 1}, split = cpu;
    float *want = NULL, *got = NULL;
    int32_t n_vocab = 0;
    int failures = 0, failed = 1;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    split.device = "opencl";
    split.n_ctx = cpu.n_ctx = CONTEXT;
    split.chunk = cpu.chunk = 4;
    assert_int_equal(answer("", &cpu, &want, &n_vocab), GW_OK);
    size_t bytes = (size_t)n_vocab * sizeof *want;
    for (int k = 1; failed && k < MOST_FAULTS; k += step) {
        char settings[64];
        snprintf(settings, sizeof settings, "%s=%d", kind, k);
        gw_status status = answer(settings, &split, &got, &n_vocab);
        failed = status != GW_OK;
        failures += failed;
        if (failed) {
            assert_int_equal(status, expected);
            assert_non_null(strstr(gw_error_text(), word));
            assert_int_equal(answer("", &cpu, &got, &n_vocab), GW_OK);
        }
        assert_memory_equal(got, want, bytes); /* the processor's after a failure, the device's */
        free(got);
        got = NULL;
    }
    print_message("%d failures\n", failures);
    assert_false(failed);
    assert_true(failures > 5);
    free(want);
}

static void every_allocation_of_a_model_may_fail(void **state) {
    (void)state;
    every_fault("fail-alloc", 1, GW_E_NOMEM, "simulated");
}

static void a_device_may_be_lost_at_any_launch(void **state) {
    (void)state;
    every_fault("fail-enqueue", 7, GW_E_DEVICE, "lost"); /* prompt, first token, second */
}

/* Without a word about which device: the processor, and the first lines of the log. */
static void a_compiler_that_fails_leaves_the_processor(void **state) {
    gw_model_options any = {.path = MODEL, .offload_layers = "all"}, named = {.path = MODEL};
    gw_model *model = NULL;
    gw_model_info info;
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_HIP_DRIVER", "none", 1);        /* else a card would take the layers */
    setenv("GODWIT_OPENCL", "fail-build,card", 1); /* card: chosen though it is a processor */
    assert_int_equal(gw_model_open(&any, &model), GW_OK);
    gw_model_describe(model, &info);
    assert_non_null(strstr(info.note, "the cpu computes"));
    assert_non_null(strstr(info.note, "cannot build"));
    gw_model_free(model);
    named.device = "opencl";
    assert_int_equal(gw_model_open(&named, &model), GW_E_DEVICE);
    assert_non_null(strstr(gw_error_text(), "made to fail"));
    unsetenv("GODWIT_OPENCL");
    unsetenv("GODWIT_HIP_DRIVER");
}

/* The same for every program that the model needs, also those that are built for its plans. */
static void any_build_may_fail(void **state) {
    gw_model_options cpu = {.path = MODEL, .threads = 1, .n_ctx = CONTEXT, .chunk = 4};
    gw_model_options any = cpu, named = cpu;
    float *want = NULL, *got = NULL;
    int32_t n_vocab = 0;
    int failures = 0, failed = 1;
    (void)state;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    any.offload_layers = "all";
    named.device = "opencl";
    assert_int_equal(answer("", &cpu, &want, &n_vocab), GW_OK);
    setenv("GODWIT_HIP_DRIVER", "none", 1);
    for (int k = 1; failed && k < MOST_FAULTS; k++) {
        char settings[32];
        gw_model *model = NULL;
        gw_model_info info;
        snprintf(settings, sizeof settings, "fail-build=%d,card", k);
        setenv("GODWIT_OPENCL", settings, 1);
        assert_int_equal(gw_model_open(&any, &model), GW_OK);
        gw_model_describe(model, &info);
        failed = info.note[0] != '\0';
        failures += failed;
        if (failed) {
            assert_non_null(strstr(info.note, "the cpu computes"));
            assert_non_null(strstr(info.note, "cannot build"));
            assert_null(strstr(info.device, "opencl"));
            assert_int_equal(answer(settings, &named, &got, &n_vocab), GW_E_DEVICE);
            assert_non_null(strstr(gw_error_text(), "made to fail"));
        }
        gw_model_free(model);
        assert_int_equal(answer(settings, &any, &got, &n_vocab), GW_OK);
        assert_memory_equal(got, want, (size_t)n_vocab * sizeof *want);
        free(got);
        got = NULL;
    }
    unsetenv("GODWIT_OPENCL");
    unsetenv("GODWIT_HIP_DRIVER");
    print_message("%d failures\n", failures);
    assert_false(failed);
    assert_true(failures > 5);
    free(want);
}

/* ---- programs on disk ------------------------------------------------------------------------ */

static int each_file(const char *folder, int (*act)(const char *path)) {
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[512];
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            n += act(path);
        }
    }
    closedir(dir);
    return n;
}

static int flip_a_byte(const char *path) {
    int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 1000), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, 1000), 1);
    close(fd);
    return 1;
}
static int cut(const char *path) {
    assert_int_equal(truncate(path, 100), 0);
    return 1;
}
static int whole(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size > 1000;
}
static int drop(const char *path) { return unlink(path) == 0; }

static void a_damaged_cache_is_built_again(void **state) {
    (void)state;
    char base[] = "/tmp/godwit-cache-XXXXXX", folder[64];
    char *old = getenv("XDG_CACHE_HOME");
    old = old != NULL ? strdup(old) : NULL;
    assert_non_null(mkdtemp(base));
    snprintf(folder, sizeof folder, "%s/godwit", base);
    setenv("XDG_CACHE_HOME", base, 1);
    int (*const damage[])(const char *) = {whole, flip_a_byte, cut};
    int files = 0;
    for (int i = 0; i < 3; i++) {
        for (int fresh = 0; fresh < 2; fresh++) { /* built or rebuilt, then taken from disk */
            struct gw_device *device = open_opencl("");
            assert_int_equal(try_node(device, 96), GW_OK);
            gw_backend_opencl.close(device);
        }
        int now = each_file(folder, whole);
        assert_true(now > 0 && (i == 0 || now == files));
        files = now;
        assert_int_equal(each_file(folder, damage[i < 2 ? i + 1 : 0]), files);
    }
    each_file(folder, drop);
    rmdir(folder);
    rmdir(base);
    if (old != NULL) {
        setenv("XDG_CACHE_HOME", old, 1);
    } else {
        unsetenv("XDG_CACHE_HOME");
    }
    free(old);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_roof_is_measured),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(weights_are_read_where_they_are),
        cmocka_unit_test(a_failing_launch_loses_the_device),
        cmocka_unit_test(a_failing_build_shows_the_log),
        cmocka_unit_test(too_much_memory_is_refused),
        cmocka_unit_test(buffers_are_cleared_sixteen_bytes_at_a_time),
        cmocka_unit_test(pages_lie_in_several_allocations),
        cmocka_unit_test(ordinals_beyond_the_last_are_refused),
        cmocka_unit_test(every_allocation_of_a_model_may_fail),
        cmocka_unit_test(a_device_may_be_lost_at_any_launch),
        cmocka_unit_test(a_compiler_that_fails_leaves_the_processor),
        cmocka_unit_test(any_build_may_fail),
        cmocka_unit_test(a_damaged_cache_is_built_again),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST")); /* a pattern: one test alone */
    return cmocka_run_group_tests_name("opencl faults", tests, NULL, NULL);
}
