/* tests/test_opencl_ops.c - every kernel of the opencl backend equals the scalar CPU bit for bit,
 * on each way through the ops; weights in several allocations; faults end in one clear error. Runs
 * on the first OpenCL device; without one everything is skipped.
 */
#include "op_cases.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

extern const gw_backend gw_backend_cpu, gw_backend_opencl;

enum { MOST_KERNELS = 256 };

static struct gw_device *open_opencl(const char *settings) {
    struct gw_device *device = NULL;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    setenv("GODWIT_OPENCL", settings, 1);
    gw_status status = gw_backend_opencl.open(0, NULL, &device);
    unsetenv("GODWIT_OPENCL");
    if (status != GW_OK) {
        fail_msg("cannot open: %s", gw_error_text());
    }
    return device;
}

static struct gw_device *open_scalar(void) {
    struct gw_device *device = NULL;
    gw_device_options options = {.threads = 1};
    setenv("GODWIT_CPU", "scalar", 1);
    assert_int_equal(gw_backend_cpu.open(0, &options, &device), GW_OK);
    unsetenv("GODWIT_CPU");
    return device;
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void run_scalar(const op_case *c, struct gw_device *device, op_result *r) {
    op_setup s;
    oc_open(&s, c, &gw_backend_cpu, device, 1, 0);
    const gw_kernel *kernel = oc_find(&s, ".scalar");
    assert_non_null(kernel);
    oc_run(&s, kernel, r);
    oc_close(&s);
}

/* Returns how many kernels ran. */
static int check_case(const op_case *c, struct gw_device *scalar, struct gw_device *device,
                      unsigned char *ran) {
    op_result want, got;
    size_t n;
    int count = 0;
    const gw_kernel *kernels = gw_backend_opencl.kernels(device, &n);
    run_scalar(c, scalar, &want);
    for (int mapped = 0; mapped < 2; mapped++) {
        for (size_t i = 0; i < n; i++) {
            op_setup s;
            if (kernels[i].op != c->op) {
                continue;
            }
            oc_open(&s, c, &gw_backend_opencl, device, 0, mapped);
            if (kernels[i].accepts(&kernels[i], &s.node, device)) {
                oc_run(&s, &kernels[i], &got);
                oc_same(kernels[i].name, c, &got, &want);
                oc_free_result(&got);
                ran[i] = 1;
                count++;
            }
            oc_close(&s);
        }
    }
    oc_free_result(&want);
    return count;
}

/* GODWIT_OP_CASES=FIRST-LAST picks a part of the table (for slow simulators). */
static void check_table(const char *settings) {
    static unsigned char ran[MOST_KERNELS];
    struct gw_device *device = open_opencl(settings), *scalar = open_scalar();
    const char *part = getenv("GODWIT_OP_CASES");
    int first = 0, last = OC_TOTAL - 1;
    size_t n;
    if (part != NULL) {
        assert_int_equal(sscanf(part, "%d-%d", &first, &last), 2);
    }
    const gw_kernel *kernels = gw_backend_opencl.kernels(device, &n);
    assert_true(n <= MOST_KERNELS);
    memset(ran, 0, sizeof ran);
    for (int i = first; i <= last && i < OC_TOTAL; i++) {
        op_case c = oc_case(i);
        if (check_case(&c, scalar, device, ran) == 0) {
            fail_msg("no kernel takes %s (%s)", gw_op_describe(c.op)->name, c.why);
        }
    }
    for (size_t i = 0; i < n && part == NULL; i++) {
        if (!ran[i]) {
            fail_msg("no case reaches kernel %s", kernels[i].name);
        }
    }
    gw_backend_opencl.close(device);
    gw_backend_cpu.close(scalar);
}

static void bits_as_found(void **state) {
    (void)state;
    check_table("");
}
static void bits_item(void **state) {
    (void)state;
    check_table("item");
}
static void bits_team(void **state) {
    (void)state;
    check_table("team,plain,any-floats");
}

/* Decode products of every width that has a kernel of its own, and chunks of 64 rows. */
static void check_widths(const char *settings) {
    struct gw_device *device = open_opencl(settings), *scalar = open_scalar();
    static const gw_fmt formats[] = {GW_FMT_Q4_0, GW_FMT_Q6_K, GW_FMT_F16};
    unsigned char ran[MOST_KERNELS];
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        for (int n = 1; n <= 14; n += n < 3 ? 1 : 3) { /* plans of n + 2 rows */
            op_case c = {.op = n % 2 ? GW_OP_LINEAR : GW_OP_GLU,
                         .why = "width",
                         .n = n,
                         .k = 1280,
                         .m = {224},
                         .fmt = {formats[f], formats[f], formats[f]},
                         .out = n % 2 || n == 4 ? GW_FMT_F32 : GW_FMT_ACT8,
                         .order = GW_ORDER_DECODE,
                         .bias = n % 2,
                         .residual = n % 2};
            assert_true(check_case(&c, scalar, device, ran) > 0);
        }
    }
    op_case embed = {.op = GW_OP_EMBED,
                     .why = "several allocations",
                     .n = 9,
                     .k = 256,
                     .m = {500},
                     .fmt = {GW_FMT_Q4_0},
                     .out = GW_FMT_F32};
    assert_true(check_case(&embed, scalar, device, ran) > 0);
    gw_backend_opencl.close(device);
    gw_backend_cpu.close(scalar);
}

static void widths_item(void **state) {
    (void)state;
    check_widths("item");
}
static void widths_team(void **state) {
    (void)state;
    check_widths("team,plain");
}
/* Weights above 160 KB go into several allocations; activations of these cases stay below. */
static void several_allocations_item(void **state) {
    (void)state;
    check_widths("item,max-alloc=163840");
}
static void several_allocations_team(void **state) {
    (void)state;
    check_widths("team,plain,max-alloc=163840");
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Load, freeze and run one node by hand; everything is released whatever fails. */
static gw_status try_node(struct gw_device *device, int64_t rows) {
    const gw_backend *b = &gw_backend_opencl;
    size_t row = oc_row_bytes(GW_FMT_Q8_0, 256);
    unsigned char *bytes = oc_alloc((size_t)rows * row);
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
    b->thaw(segment);
    b->release(w[0].buf);
    b->release(w[1].buf);
    b->release(x.buf);
    b->release(y.buf);
    free(bytes);
    return s;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    int k = 1, failed = 1;
    for (; failed && k < 20; k++) {
        char settings[32];
        snprintf(settings, sizeof settings, "fail-alloc=%d", k);
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
    for (int k = 1; k <= 3; k++) {
        char settings[32];
        snprintf(settings, sizeof settings, "fail-enqueue=%d", k);
        struct gw_device *device = open_opencl(settings);
        assert_int_equal(try_node(device, 96), GW_E_DEVICE);
        assert_non_null(strstr(gw_error_text(), "CL_OUT_OF_RESOURCES"));
        assert_int_equal(try_node(device, 96), GW_E_DEVICE); /* and stays lost */
        gw_backend_opencl.close(device);
    }
}

static void a_failing_build_shows_the_log(void **state) {
    (void)state;
    struct gw_device *device = open_opencl("fail-build");
    assert_int_equal(try_node(device, 96), GW_E_DEVICE);
    assert_non_null(strstr(gw_error_text(), "cannot build"));
    assert_non_null(strstr(gw_error_text(), "made to fail"));
    gw_backend_opencl.close(device);
}

static void too_much_memory_is_refused(void **state) {
    (void)state;
    struct gw_device *device = open_opencl("");
    struct gw_buffer *buffer = NULL;
    assert_int_equal(gw_backend_opencl.alloc(device, (size_t)1 << 50, &buffer), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "needs"));
    assert_null(buffer);
    gw_backend_opencl.close(device);
}

static void ordinals_beyond_the_last_are_refused(void **state) {
    (void)state;
    struct gw_device *device = open_opencl("");
    struct gw_device *other = NULL;
    assert_int_equal(gw_backend_opencl.open(999, NULL, &other), GW_E_ARGUMENT);
    assert_int_equal(gw_backend_opencl.open(-1, NULL, &other), GW_E_ARGUMENT);
    assert_null(other);
    gw_backend_opencl.close(device);
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
        cmocka_unit_test(bits_as_found),
        cmocka_unit_test(bits_item),
        cmocka_unit_test(bits_team),
        cmocka_unit_test(widths_item),
        cmocka_unit_test(widths_team),
        cmocka_unit_test(several_allocations_item),
        cmocka_unit_test(several_allocations_team),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_failing_launch_loses_the_device),
        cmocka_unit_test(a_failing_build_shows_the_log),
        cmocka_unit_test(too_much_memory_is_refused),
        cmocka_unit_test(ordinals_beyond_the_last_are_refused),
        cmocka_unit_test(a_damaged_cache_is_built_again),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST")); /* a pattern: one test alone */
    return cmocka_run_group_tests_name("opencl", tests, NULL, NULL);
}
