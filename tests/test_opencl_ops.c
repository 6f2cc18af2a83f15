/* tests/test_opencl_ops.c - every kernel of the opencl backend equals the scalar CPU bit for bit,
 * on each way through the ops; weights in several allocations. Runs on the first OpenCL device;
 * without one everything is skipped.
 */
#include "op_table.h"
#include "pocl.h"

static struct gw_device *open_exact(const char *settings, int exact) {
    const gw_device_options options = {.exact = exact};
    struct gw_device *device = NULL;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    unsetenv("POCL_EXTRA_BUILD_FLAGS");
    setenv("GODWIT_OPENCL", settings, 1);
    gw_status status = gw_backend_opencl.open(0, &options, &device);
    unsetenv("GODWIT_OPENCL");
    if (status != GW_OK) {
        fail_msg("cannot open: %s", gw_error_text());
    }
    choose_pocl_method(device, settings);
    return device;
}
static struct gw_device *open_opencl(const char *settings) { return open_exact(settings, 1); }

/* PoCL 3.1 takes seconds to optimize a program of the way for graphics processors; with
 * GODWIT_OPENCL_ALL it does. What 5.0 does not optimize its "cbs" gets wrong. */
static struct gw_device *open_quickly(const char *settings, int exact) {
    struct gw_device *device = open_exact(settings, exact);
    if (strstr(settings, "team") != NULL && getenv("GODWIT_OPENCL_ALL") == NULL &&
        is_pocl_3(device)) {
        setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 1);
    }
    return device;
}

static struct gw_device *open_matrix(int exact) {
    struct gw_device *device = open_exact("no-cache,any-floats", exact);
    gw_device_info info;
    gw_backend_opencl.describe(device, 0, &info);
    if (strstr(info.detail, "matrix") == NULL) {
        print_message("SKIP: no matrix instructions here\n");
        gw_backend_opencl.close(device);
        skip();
    }
    return device;
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* In parts, for oclgrind, which ends on inline assembly. */
static int simulated(void) { return getenv("GODWIT_OP_CASES") != NULL; }

/* Kernels cannot see how weights were loaded: mapped ones are for one way through the ops, and not
 * for a simulator. */
static void check_table(struct gw_device *device, int cases, const char *other, int mapped) {
    static op_bench bench;
    int forms = mapped && !simulated() ? OT_PRODUCED | OT_MAPPED : OT_PRODUCED;
    ot_open(&bench, &gw_backend_opencl, device, forms);
    ot_check_table(&bench, oc_case, cases, other);
    ot_close(&bench);
}

/* The way that the device would take. */
static void bits_as_found(void **state) {
    (void)state;
    int all = getenv("GODWIT_OPENCL_ALL") != NULL || simulated();
    check_table(open_opencl("no-cache,any-floats"), all ? OC_TOTAL : OC_FEW, NULL, 1);
}
/* The way for graphics processors, on any device. PoCL compiles it slowly: every format only with
 * GODWIT_OPENCL_ALL. What takes it longest to optimize it does for other tests: attention for
 * bits_last_joins, products of few rows for test_opencl.py. */
#define TEAM_WAY "no-cache,team,plain,any-floats"
static void bits_team(void **state) {
    static op_bench bench;
    int all = getenv("GODWIT_OPENCL_ALL") != NULL;
    (void)state;
    check_table(open_quickly(TEAM_WAY, 1), all || simulated() ? OC_TOTAL : OC_COUNT,
                all ? NULL : "", 0);
    if (all || simulated()) {
        return;
    }
    ot_open(&bench, &gw_backend_opencl, open_opencl(TEAM_WAY), OT_PRODUCED);
    for (int i = 0; i < OC_COUNT; i++) {
        op_case c = oc_case(i);
        int product = c.op == GW_OP_LINEAR || c.op == GW_OP_GLU;
        if (product ? c.order == GW_ORDER_PREFILL : c.op != GW_OP_ATTENTION) {
            ot_check_case(&bench, &c);
        }
    }
    ot_close(&bench);
}

/* Of attention in digits, whose kernels are compiled for each width, cases that other ways run. */
static int is_spared(const op_case *c) {
    return c->digits && c->slots == 1 && !simulated() && getenv("GODWIT_OPENCL_ALL") == NULL;
}

/* With the trees that lanes make where they have instructions to exchange values, each exchange
 * done through local memory, and codes as AMD's products of signed bytes want them (exchange.cl).
 */
static void bits_shuffles(void **state) {
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_opencl, open_quickly(TEAM_WAY ",shuffles", 1),
            simulated() ? OT_PRODUCED : OT_PRODUCED | OT_MAPPED);
    bench.left_out = is_spared;
    ot_check_table(&bench, oc_case, OC_COUNT, "");
    ot_close(&bench);
}

/* As on NVIDIA: the group that comes last joins what the others found. */
static void bits_last_joins(void **state) {
    static op_bench bench;
    (void)state;
    ot_open(&bench, &gw_backend_opencl, open_opencl("no-cache,team,plain,last-joins,any-floats"),
            OT_PRODUCED);
    if (simulated()) {
        ot_check_table(&bench, oc_case, OC_COUNT, NULL);
    }
    for (int i = 0; i < OC_COUNT && !simulated(); i++) {
        op_case c = oc_case(i);
        if (c.op == GW_OP_ATTENTION && !c.digits &&
            (c.pos >= 300 || (c.out == GW_FMT_ACT8 && c.pos > 0) || (c.n == 1 && c.pos < 64))) {
            ot_check_case(&bench, &c);
        }
    }
    ot_close(&bench);
}

/* Prompts on matrix instructions; where the device has none, the same kernels with every
 * instruction done through local memory. Each size of tile, over its borders and over a stage's.
 * Few formats on PoCL, which compiles slowly, without GODWIT_OPENCL_ALL, and the smaller tile for
 * the first two of them: terms of a block, and of four. */
static void check_matrix(struct gw_device *device, int every) {
    static const struct { int n, k, m; } sizes[] = {{21, 96, 80}, {40, 416, 100}, {70, 608, 300}};
    static const gw_fmt few[] = {GW_FMT_Q4_0, GW_FMT_Q5_K,   GW_FMT_Q8_0,
                                 GW_FMT_Q5_1, GW_FMT_IQ4_XS, GW_FMT_Q2_K,
                                 GW_FMT_Q3_K, GW_FMT_Q6_K,   GW_FMT_INT4_G128};
    static op_bench bench;
    ot_open(&bench, &gw_backend_opencl, device, OT_PRODUCED);
    for (int i = 0; i < (every ? GW_FMT_ACT8 : (int)(sizeof few / sizeof few[0])); i++) {
        const gw_fmt fmt = every ? (gw_fmt)i : few[i];
        const int step = (int)gw_format_of(fmt)->block_elems;
        if (gw_format_of(fmt)->is_float) {
            continue;
        }
        for (size_t j = every || i < 2 ? 0 : 2; j < sizeof sizes / sizeof sizes[0]; j++) {
            op_case c = {.op = j == 1 ? GW_OP_GLU : GW_OP_LINEAR,
                         .why = "matrix instructions",
                         .n = sizes[j].n,
                         .k = (sizes[j].k + step - 1) / step * step,
                         .m = {sizes[j].m},
                         .fmt = {fmt, fmt, fmt},
                         .out = GW_FMT_F32,
                         .order = GW_ORDER_PREFILL,
                         .bias = j == 2,
                         .residual = j == 2};
            ot_check_case(&bench, &c);
        }
    }
    ot_close(&bench);
}
/* Attention of a prompt's rows, and the second half of GLU, go another way with them. */
static void check_rows(struct gw_device *device) {
    static const op_case more[] = {
        {.op = GW_OP_ATTENTION,
         .why = "three heads to a KV head",
         .n = 50,
         .heads = 6,
         .kv_heads = 2,
         .e = 128,
         .kv = GW_FMT_F16,
         .pos = 100,
         .slots = 1,
         .out = GW_FMT_F32},
        {.op = GW_OP_ATTENTION,
         .why = "groups of pages",
         .n = 70,
         .heads = 4,
         .kv_heads = 2,
         .e = 64,
         .kv = GW_FMT_F16,
         .pos = 64 * 18 - 30,
         .slots = 1,
         .out = GW_FMT_ACT8},
        {.op = GW_OP_ATTENTION,
         .why = "groups of pages, q8_0, two sequences",
         .n = 37,
         .heads = 3,
         .kv_heads = 1,
         .e = 128,
         .kv = GW_FMT_Q8_0,
         .pos = 64 * 16 - 9,
         .slots = 2,
         .out = GW_FMT_F32},
        {.op = GW_OP_GLU,
         .why = "more than a group's share",
         .n = 18,
         .k = 64,
         .m = {2144},
         .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0},
         OC_PRE,
         .out = GW_FMT_ACT8},
    };
    static op_bench bench;
    ot_open(&bench, &gw_backend_opencl, device, OT_PRODUCED);
    for (int i = 0; i < OC_COUNT; i++) {
        op_case c = oc_case(i);
        int here = c.op == GW_OP_ATTENTION || (c.op == GW_OP_GLU && c.order == GW_ORDER_PREFILL);
        if (here && !c.digits && c.n > GW_DECODE_MAX) {
            ot_check_case(&bench, &c);
        }
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        ot_check_case(&bench, &more[i]);
    }
    ot_close(&bench);
}

/* Attention in digits: on PoCL narrow heads, and those that take two slices, in two pieces each. */
static void check_digits(struct gw_device *device, int every) {
    static op_bench bench;
    int ran = 0;
    ot_open(&bench, &gw_backend_opencl, device, OT_PRODUCED);
    for (int i = 0; i < OC_COUNT; i++) {
        op_case c = oc_case(i);
        if (c.digits && (every || c.slots > 1 || c.e == 96 || c.e == 256)) {
            ot_check_case(&bench, &c);
            ran++;
        }
    }
    assert_true(ran >= 3);
    ot_close(&bench);
}

static void matrix_as_found(void **state) {
    (void)state;
    check_matrix(open_matrix(1), 1);
}
static void matrix_team(void **state) {
    (void)state;
    check_matrix(open_quickly("no-cache,team,plain,matrix", 1),
                 getenv("GODWIT_OPENCL_ALL") != NULL);
}
static void digits_as_found(void **state) {
    (void)state;
    check_digits(open_matrix(1), 1);
}
static void digits_team(void **state) {
    (void)state;
    check_digits(open_quickly("no-cache,team,plain,matrix", 1),
                 getenv("GODWIT_OPENCL_ALL") != NULL);
}
static void rows_as_found(void **state) {
    (void)state;
    check_rows(open_matrix(1));
}
static void rows_team(void **state) {
    (void)state;
    check_rows(open_opencl("no-cache,team,plain,matrix"));
}

/* ---- a step in one launch -------------------------------------------------------------------- */

/* One group on PoCL, all of them on NVIDIA's cards. */
#define ONE_LAUNCH "no-cache,team,last-joins,must-walk,any-floats,walk=4096,walk-rows=16"
static struct gw_device *open_walk(void) {
    return open_opencl(simulated() ? ONE_LAUNCH ",plain" : ONE_LAUNCH);
}

/* Each op in the launch that walks a list of them. Compiling takes seconds a case: all of them only
 * with GODWIT_OPENCL_ALL, else float products of one row. */
static void bits_walk(void **state) {
    static op_bench bench;
    int all = getenv("GODWIT_OPENCL_ALL") != NULL, ran = 0;
    (void)state;
    ot_open(&bench, &gw_backend_opencl, open_walk(), OT_PRODUCED);
    for (int i = 0; i < OC_COUNT; i++) {
        op_case c = oc_case(i);
        int product = c.op == GW_OP_LINEAR || c.op == GW_OP_GLU;
        int some = product && c.n == 1 && gw_format_of(c.fmt[0])->is_float;
        if ((all || some) && !c.digits && (!product || c.order == GW_ORDER_DECODE) &&
            c.n + OC_SPARE_ROWS <= GW_DECODE_MAX) {
            ot_check_case(&bench, &c);
            ran++;
        }
    }
    assert_true(ran >= 5);
    ot_close(&bench);
}

static gw_node *chain_end(op_setup *s, gw_node *at, gw_fmt fmt, int m) {
    static const char *const ways[] = {".scalar", ".team", ".ptx"};
    oc_make_output(s, fmt, m);
    s->node.kernel = NULL;
    for (int i = 0; i < 3 && s->node.kernel == NULL; i++) {
        s->node.kernel = oc_find(s, ways[i]);
    }
    assert_non_null(s->node.kernel);
    *at = s->node;
    return at + 1;
}

/* Norm, product, norm, gated product of one row; the rest of the node is that of the op before. */
static gw_node *chain_norm(op_setup *s, gw_node *at, gw_tensor *x, gw_fmt out) {
    int64_t dim[1] = {x->dim[1]};
    gw_tensor *w = oc_tensor(s, "norm", GW_FMT_F32, 1, dim);
    oc_fill_floats(s, w, 2.0f);
    oc_upload(s, w);
    s->node = (gw_node){.op = GW_OP_NORM, .in = {x}, .w = {w}, .args.norm.eps = 1e-5f};
    return chain_end(s, at, out, (int)x->dim[1]);
}

static void run_chain(const gw_backend *backend, struct gw_device *device, gw_fmt fmt, int d,
                      op_result *r) {
    static const op_case one = {.n = 1, .why = "norms and products"};
    const int keep_rows = backend == &gw_backend_cpu;
    const gw_fmt normed = gw_format_of(fmt)->is_float ? GW_FMT_F32 : GW_FMT_ACT8;
    op_setup s = {.c = &one, .backend = backend, .device = device, .rows = 1};
    struct gw_segment *segment;
    gw_node nodes[4], *at = nodes;
    random_seed(0);
    s.step.n = s.step.n_pick = 1;
    gw_tensor *x = oc_matrix(&s, "input", GW_FMT_F32, 1, d);
    oc_fill_floats(&s, x, 1.0f);
    oc_upload(&s, x);
    at = chain_norm(&s, at, x, normed);
    s.node = (gw_node){.op = GW_OP_LINEAR, .in = {s.node.out}};
    s.node.w[0] = oc_weight(&s, fmt, d, d, keep_rows, 0);
    at = chain_end(&s, at, GW_FMT_F32, d);
    at = chain_norm(&s, at, s.node.out, normed);
    s.node = (gw_node){.op = GW_OP_GLU, .in = {s.node.out}};
    s.node.w[0] = oc_weight(&s, fmt, 3 * d, d, keep_rows, 0);
    s.node.w[1] = oc_weight(&s, fmt, 3 * d, d, keep_rows, 0);
    at = chain_end(&s, at, GW_FMT_F32, 3 * d);
    assert_int_equal(backend->freeze(device, nodes, (size_t)(at - nodes), 1, &segment), GW_OK);
    assert_int_equal(backend->run(segment, &s.step), GW_OK);
    assert_int_equal(backend->wait(device), GW_OK);
    backend->segment_free(segment);
    *r = (op_result){.out_bytes = s.out_bytes};
    r->out = oc_download(&s, s.node.out, OC_FENCE, s.out_bytes);
    oc_close(&s);
}

/* Several ops of one program share its local memory: rows that fill a piece of weights, and rows
 * that do not; rows with more quarters of blocks than a group has items. */
static void bits_chain(void **state) {
    static const struct {
        gw_fmt fmt;
        int d;
    } chains[] = {{GW_FMT_F32, 72},    {GW_FMT_Q4_0, 2336}, {GW_FMT_INT4_G128, 2176},
                  {GW_FMT_BF16, 256},  {GW_FMT_F16, 264},   {GW_FMT_F32, 1024},
                  {GW_FMT_BF16, 2120}, {GW_FMT_Q4_0, 5152}, {GW_FMT_INT4_G256, 4096}};
    static const op_case what = {.n = 1, .why = "norms and products"};
    static op_bench bench;
    int all = getenv("GODWIT_OPENCL_ALL") != NULL && !simulated();
    size_t n = all ? sizeof chains / sizeof chains[0] : simulated() ? 1 : 3;
    (void)state;
    ot_open(&bench, &gw_backend_opencl, open_walk(), OT_PRODUCED);
    for (size_t i = 0; i < n; i++) {
        op_result want, got;
        run_chain(&gw_backend_cpu, bench.scalar, chains[i].fmt, chains[i].d, &want);
        run_chain(&gw_backend_opencl, bench.device, chains[i].fmt, chains[i].d, &got);
        oc_same("one launch", &what, &got, &want);
        oc_free_result(&want);
        oc_free_result(&got);
    }
    ot_close(&bench);
}

/* Decode products of every width that has a kernel of its own, and chunks of 64 rows. */
static void check_widths(const char *settings) {
    static op_bench bench;
    static const gw_fmt formats[] = {GW_FMT_Q4_0, GW_FMT_Q6_K, GW_FMT_F16, GW_FMT_INT4_G128};
    ot_open(&bench, &gw_backend_opencl, open_quickly(settings, 1), OT_PRODUCED | OT_MAPPED);
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
            ot_check_case(&bench, &c);
        }
    }
    op_case embed = {.op = GW_OP_EMBED,
                     .why = "several allocations",
                     .n = 9,
                     .k = 256,
                     .m = {500},
                     .fmt = {GW_FMT_Q4_0},
                     .out = GW_FMT_F32};
    ot_check_case(&bench, &embed);
    ot_close(&bench);
}

/* Weights above 160 KB go into several allocations; activations of these cases stay below. */
static void widths_as_found(void **state) {
    (void)state;
    check_widths("no-cache");
    check_widths("no-cache,max-alloc=163840");
}
static void widths_team(void **state) {
    (void)state;
    check_widths("no-cache,team,plain");
    check_widths("no-cache,team,plain,max-alloc=163840");
}

/* ---- how fast a device reads ----------------------------------------------------------------- */

/* Of so little memory every item, and every group, still reads several pieces
 * (backends/opencl/roof.c), and the simulator is through it in seconds. */
static void check_roof(const char *way) {
    char settings[96];
    snprintf(settings, sizeof settings, "%s%s", way, simulated() ? ",max-alloc=1100000" : "");
    struct gw_device *device = open_opencl(settings);
    gw_roof roof = {.read_gbps = -1};
    assert_int_equal(gw_backend_opencl.roof(device, &roof), GW_OK);
    assert_true(roof.read_gbps > 0);
    gw_backend_opencl.close(device);
}
static void roof_as_found(void **state) {
    (void)state;
    check_roof("no-cache,any-floats");
}
static void roof_team(void **state) {
    (void)state;
    check_roof(TEAM_WAY);
}

/* ---- CLBlast --------------------------------------------------------------------------------- */

/* Its sums run in its own order, with a fused or a separate rounding of each product: at most k
 * roundings of u = 2^-24 along any way of a term to the top, so that a sum of terms t_i is off by
 * at most k u sum |t_i|; 1.001 covers what is of second order for k below 2^12. */
static const double u = 0x1p-24, slack = 1.001;
/* Where 16-bit matrix instructions multiply: what rounding x takes off, and how many u a sum loses
 * per term, which no standard says (they cut rather than round). */
static double narrowing, cut = 1.0;

/* Row r of weight i times row t of the input, in double; *error: how far a sum may be. */
static double exact_product(const op_setup *s, int i, size_t r, size_t t, double *error) {
    const gw_tensor *w = s->node.w[i], *x = s->node.in[0];
    const gw_format *f = gw_format_of(w->fmt);
    size_t k = (size_t)w->dim[1];
    const float *at = (const float *)oc_host(s, x) + t * k;
    float row[4096];
    double sum = 0.0, size = 0.0;
    assert_true(k <= sizeof row / sizeof row[0]);
    f->decode(row, (const char *)oc_host(s, w) + r * k * f->block_bytes, k);
    for (size_t j = 0; j < k; j++) {
        sum += (double)row[j] * at[j];
        size += fabs((double)row[j] * at[j]);
    }
    *error = slack * (narrowing + cut * (double)k * u) * size;
    return sum;
}

static double exact_linear(const op_setup *s, size_t t, size_t col, double *error) {
    size_t i = 0, r = col;
    while (r >= (size_t)s->node.w[i]->dim[0]) {
        r -= (size_t)s->node.w[i++]->dim[0];
    }
    double v = exact_product(s, (int)i, r, t, error);
    double b = s->node.w[3 + i] != NULL ? ((float *)oc_host(s, s->node.w[3 + i]))[r] : 0.0;
    double extra = 0.0;
    if (s->c->residual) { /* in place: the case's own tensor is the last that was made */
        extra = ((float *)s->host[s->n_t - 1])[t * (size_t)s->node.out->dim[1] + col];
    }
    *error += 2.0 * slack * u * (fabs(v) + fabs(b) + fabs(extra));
    return v + b + extra;
}

/* silu is 1.1-Lipschitz and its evaluation within 7 u (test_ops.c). */
static double exact_glu(const op_setup *s, size_t t, size_t col, double *error) {
    double ge, ve, g = exact_product(s, 0, col, t, &ge), v = exact_product(s, 1, col, t, &ve);
    double silu = g / (1.0 + exp(-g));
    *error = slack * (1.1 * ge * (fabs(v) + ve) + fabs(silu) * ve + 7.0 * u * fabs(silu * v));
    return silu * v;
}

static void check_near(const op_setup *s, const op_result *got) {
    size_t cols = (size_t)s->node.out->dim[1];
    for (size_t i = 0; i < (size_t)s->c->n * cols; i++) {
        double error, value;
        double want =
            (s->c->op == GW_OP_GLU ? exact_glu : exact_linear)(s, i / cols, i % cols, &error);
        if (s->node.out->fmt == GW_FMT_ACT8) {
            const gw_act8 *b = (const gw_act8 *)(const void *)got->out + i / GW_ACT_BLOCK;
            value = (double)b->scale * b->q[i % GW_ACT_BLOCK];
            error += b->scale * (0.5 + 127.0 * 4.0 * u);
        } else {
            value = ((const float *)(const void *)got->out)[i];
        }
        if (!(fabs(value - want) <= error)) {
            fail_msg("%s row %zu column %zu: %.9g, not %.9g within %.3g", s->c->why, i / cols,
                     i % cols, value, want, error);
        }
    }
}

static const gw_kernel *blas_kernel(const op_setup *s) {
    size_t n;
    const gw_kernel *kernels = s->backend->kernels(s->device, &n);
    for (size_t i = 0; i < n; i++) {
        if (strstr(kernels[i].name, ".clblast") != NULL &&
            gw_kernel_takes(&kernels[i], &s->node, s->device)) {
            return &kernels[i];
        }
    }
    return NULL;
}

static struct gw_device *open_blas(const char *settings) {
    static const gw_device_options options = {.blas = 1};
    struct gw_device *device = NULL;
    if (gw_backend_opencl.device_count() < 1) {
        print_message("SKIP: no OpenCL device here\n");
        skip();
    }
    unsetenv("POCL_EXTRA_BUILD_FLAGS");
    unsetenv("POCL_WORK_GROUP_METHOD");
    setenv("GODWIT_OPENCL", settings, 1);
    gw_status status = gw_backend_opencl.open(0, &options, &device);
    unsetenv("GODWIT_OPENCL");
    assert_int_equal(status, GW_OK);
    return device;
}

/* Products of one row and of many; tiles of several allocations; all that may follow a product. */
static void check_blas(const char *settings) {
    /* clang-format off */
    static const op_case cases[] = {
        {.op = GW_OP_LINEAR, .why = "f16, ragged", .n = 29, .k = 300, .m = {150}, .fmt = OC_F16, OC_PRE},
        {.op = GW_OP_LINEAR, .why = "bf16, residual in place", .n = 70, .k = 640, .m = {333},
         .fmt = OC_BF16, OC_PRE, .bias = 1, .residual = 2},
        {.op = GW_OP_LINEAR, .why = "f32, stacked, one row", .n = 1, .k = 515, .m = {48, 16, 21},
         .fmt = OC_F32, OC_PRE, .bias = 1, .residual = 1},
        {.op = GW_OP_LINEAR, .why = "three formats", .n = 40, .k = 1030, .m = {257, 130, 64},
         .fmt = {GW_FMT_F32, GW_FMT_F16, GW_FMT_BF16}, OC_PRE},
        {.op = GW_OP_LINEAR, .why = "large", .n = 400, .k = 512, .m = {640}, .fmt = OC_F16, OC_PRE},
        {.op = GW_OP_GLU, .why = "f16", .n = 33, .k = 128, .m = {192}, .fmt = OC_F16, OC_PRE},
        {.op = GW_OP_GLU, .why = "f32 and bf16 to act8", .n = 12, .k = 96, .m = {160},
         .fmt = {GW_FMT_F32, GW_FMT_BF16}, OC_PRE, .out = GW_FMT_ACT8},
    };
    /* clang-format on */
    struct gw_device *device = open_blas(settings);
    gw_device_info info;
    gw_backend_opencl.describe(device, 0, &info);
    if (strstr(info.detail, "CLBlast") == NULL) {
        print_message("SKIP: %s\n", gw_backend_opencl.note(device));
        assert_non_null(strstr(gw_backend_opencl.note(device), "cannot be opened"));
        gw_backend_opencl.close(device);
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_case c = cases[i], decode = cases[i];
        op_setup s;
        op_result got;
        c.out = c.out == GW_FMT_ACT8 ? GW_FMT_ACT8 : GW_FMT_F32;
        decode.out = c.out;
        decode.order = GW_ORDER_DECODE;
        oc_open(&s, &c, &gw_backend_opencl, device, 0, 0);
        const gw_kernel *kernel = blas_kernel(&s);
        assert_non_null(kernel);
        oc_run(&s, kernel, &got);
        check_near(&s, &got);
        oc_free_result(&got);
        oc_close(&s);
        oc_open(&s, &decode, &gw_backend_opencl, device, 0, 0);
        assert_null(blas_kernel(&s)); /* prompts only */
        oc_close(&s);
    }
    assert_string_equal(gw_backend_opencl.note(device), "");
    gw_backend_opencl.close(device);
}

static void blas_as_found(void **state) {
    (void)state;
    check_blas("no-cache,any-floats");
    check_blas("no-cache,any-floats,max-alloc=1050000");
}
static void blas_team(void **state) {
    (void)state;
    check_blas("no-cache,team,plain,any-floats,max-alloc=1050000");
}

/* A product that CLBlast refuses is our own launch's, bit for bit, and so are all that follow. */
static void blas_fails(void **state) {
    static const op_case c = {.op = GW_OP_LINEAR,
                              .why = "in place",
                              .n = 20,
                              .k = 700,
                              .m = {200, 90},
                              .fmt = {GW_FMT_F16, GW_FMT_F32},
                              OC_PRE,
                              .bias = 1,
                              .residual = 2};
    (void)state;
    for (int k = 1; k <= 5; k++) { /* the trial; each of four tiles */
        char settings[64];
        static op_bench bench;
        op_result want, got;
        op_setup s;
        snprintf(settings, sizeof settings, "no-cache,max-alloc=300000,fail-blas=%d", k);
        ot_open(&bench, &gw_backend_opencl, open_blas(settings), OT_PRODUCED);
        if (strstr(gw_backend_opencl.note(bench.device), "cannot be opened") != NULL) {
            print_message("SKIP: %s\n", gw_backend_opencl.note(bench.device));
            ot_close(&bench);
            skip();
        }
        ot_scalar(&bench, &c, &want);
        oc_open(&s, &c, &gw_backend_opencl, bench.device, 0, 0);
        const gw_kernel *kernel = blas_kernel(&s);
        assert_int_equal(kernel == NULL, k == 1);
        oc_run(&s, kernel != NULL ? kernel : oc_find(&s, ".item"), &got);
        if (k <= 2) {
            oc_same("its own launch", &c, &got, &want);
        } else {
            check_near(&s, &got);
        }
        assert_non_null(strstr(gw_backend_opencl.note(bench.device), "CL_OUT_OF_RESOURCES"));
        oc_free_result(&got);
        oc_free_result(&want);
        oc_close(&s);
        ot_close(&bench);
    }
}

/* ---- 16-bit matrix instructions -------------------------------------------------------------- */

/* Near the sums in double; a row has the same bits whatever stands beside it. */
static void check_halves(struct gw_device *device) {
    static const op_case cases[] = {
        {.op = GW_OP_LINEAR, .why = "f16, few", .n = 5, .k = 40, .m = {70}, .fmt = OC_F16, OC_PRE},
        {.op = GW_OP_LINEAR,
         .why = "f16, bias and residual",
         .n = 70,
         .k = 700,
         .m = {200},
         .fmt = OC_F16,
         OC_PRE,
         .bias = 1,
         .residual = 1},
        {.op = GW_OP_LINEAR,
         .why = "three formats",
         .n = 40,
         .k = 520,
         .m = {90, 64, 33},
         .fmt = {GW_FMT_F16, GW_FMT_BF16, GW_FMT_F32},
         OC_PRE},
        {.op = GW_OP_GLU,
         .why = "bf16 to act8",
         .n = 150,
         .k = 288,
         .m = {320},
         .fmt = OC_BF16,
         OC_PRE,
         .out = GW_FMT_ACT8},
    };
    static op_bench bench;
    ot_open(&bench, &gw_backend_opencl, device, OT_PRODUCED);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_case c = cases[i];
        op_setup s;
        op_result got, few, exact;
        c.out = c.out == GW_FMT_ACT8 ? GW_FMT_ACT8 : GW_FMT_F32;
        ot_scalar(&bench, &c, &exact);
        oc_open(&s, &c, &gw_backend_opencl, device, 0, 0);
        oc_run(&s, oc_find(&s, ""), &got);
        narrowing = i < 2 ? 0x1p-11 : 0x1p-8; /* and what is subnormal in f16 */
        cut = 4.0;
        check_near(&s, &got);
        narrowing = 0.0, cut = 1.0;
        assert_int_equal(got.out_bytes, exact.out_bytes);
        assert_memory_not_equal(got.out, exact.out, got.out_bytes); /* else it is the other way */
        oc_close(&s);
        oc_open(&s, &c, &gw_backend_opencl, device, 0, 0);
        s.step.n = c.n / 2;
        s.out_bytes = got.out_bytes / (size_t)c.n * (size_t)(c.n / 2);
        oc_run(&s, oc_find(&s, ""), &few);
        assert_memory_equal(few.out, got.out, s.out_bytes);
        oc_free_result(&got);
        oc_free_result(&few);
        oc_free_result(&exact);
        oc_close(&s);
    }
    ot_close(&bench);
}
static void halves_as_found(void **state) {
    (void)state;
    check_halves(open_matrix(0));
}
static void halves_team(void **state) {
    (void)state;
    check_halves(open_quickly("no-cache,team,plain,matrix", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* First what PoCL compiles for test_opencl.py too, and keeps. */
        cmocka_unit_test(blas_as_found), cmocka_unit_test(blas_team),
        cmocka_unit_test(blas_fails),    cmocka_unit_test(bits_as_found),
        cmocka_unit_test(bits_team),     cmocka_unit_test(bits_last_joins),
        cmocka_unit_test(bits_shuffles), cmocka_unit_test(matrix_as_found),
        cmocka_unit_test(matrix_team),   cmocka_unit_test(bits_walk),
        cmocka_unit_test(bits_chain),    cmocka_unit_test(widths_as_found),
        cmocka_unit_test(widths_team),   cmocka_unit_test(rows_as_found),
        cmocka_unit_test(rows_team),     cmocka_unit_test(digits_as_found),
        cmocka_unit_test(digits_team),   cmocka_unit_test(halves_as_found),
        cmocka_unit_test(halves_team),   cmocka_unit_test(roof_as_found),
        cmocka_unit_test(roof_team),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST")); /* a pattern: one test alone */
    return cmocka_run_group_tests_name("opencl", tests, NULL, NULL);
}
