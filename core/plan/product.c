/* core/plan/product.c - one product alone, timed: made-up tensors, a frozen pass over copies. */
#include "core/plan/product.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

enum { COPIES_BYTES = 256 << 20, COPIES_LEAST = 2, COPIES_MOST = 64, NODES_MOST = 256, PASSES = 5 };
static const double PATIENCE = 0.5; /* seconds, once every pass has run */
/* Seconds of a pass beside which its start and the wait for its end, some 10 us on a GPU, are
 * little. */
static const double PASS_LEAST = 2e-3;

typedef struct rig {
    const gw_backend *backend;
    struct gw_device *device;
    gw_tensor w[COPIES_MOST], x, y;
    gw_node nodes[NODES_MOST];
    int copies, turns; /* a pass goes through the copies so many times */
    size_t row_bytes;  /* of w, as stored */
    struct gw_segment *segment;
} rig;

/* ---- tensors --------------------------------------------------------------------------------- */

/* Rows of bytes 0x20 .. 0x3f: whatever field they fall in, a half float is between 2^-7 and 2. */
static gw_status make_rows(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const rig *r = src->state;
    uint32_t state = (uint32_t)first * 2654435761u + 1;
    unsigned char *at = dst;
    for (size_t i = 0; i < (size_t)n * r->row_bytes; i++) {
        state = state * 1664525u + 1013904223u;
        at[i] = (unsigned char)(0x20 | (state >> 24 & 0x1f));
    }
    return GW_OK;
}

static gw_status make_input(rig *r, int32_t n, int64_t cols, int is_float) {
    size_t bytes, blocks = (size_t)n * (size_t)cols / GW_ACT_BLOCK;
    r->x = (gw_tensor){.fmt = is_float ? GW_FMT_F32 : GW_FMT_ACT8, .n_dim = 2, .dim = {n, cols}};
    GW_TRY(gw_matrix_bytes(r->x.fmt, (uint64_t)n, (uint64_t)cols, &bytes));
    void *host = malloc(bytes);
    if (host == NULL) {
        return gw_fail(GW_E_NOMEM, "product", "no memory for %zu bytes", bytes);
    }
    for (size_t i = 0; is_float && i < (size_t)n * (size_t)cols; i++) {
        ((float *)host)[i] = (float)(i % 17) * 0.125f - 1.0f;
    }
    for (size_t b = 0; !is_float && b < blocks; b++) {
        float v[GW_ACT_BLOCK];
        for (size_t i = 0; i < GW_ACT_BLOCK; i++) {
            v[i] = (float)((b + i) % 17) * 0.125f - 1.0f;
        }
        gw_act8_encode((gw_act8 *)host + b, v);
    }
    gw_status status = r->backend->alloc(r->device, bytes, &r->x.buf);
    status = status == GW_OK ? r->backend->write(r->x.buf, 0, host, bytes) : status;
    free(host);
    return status;
}

static gw_status make_weights(rig *r, gw_fmt fmt, const gw_product *p) {
    size_t bytes;
    gw_weight_source src = {.rows = make_rows, .state = r};
    GW_TRY(gw_row_bytes(fmt, (uint64_t)p->cols, &r->row_bytes));
    GW_TRY(gw_matrix_bytes(fmt, (uint64_t)p->rows, (uint64_t)p->cols, &bytes));
    size_t copies = COPIES_BYTES / (bytes > 0 ? bytes : 1) + COPIES_LEAST;
    copies = copies < COPIES_MOST ? copies : COPIES_MOST;
    for (; (size_t)r->copies < copies; r->copies++) {
        gw_tensor *w = &r->w[r->copies];
        *w = (gw_tensor){.name = "weight", .fmt = fmt, .n_dim = 2, .dim = {p->rows, p->cols}};
        GW_TRY(r->backend->load_weight(r->device, w, &src));
    }
    return GW_OK;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static const gw_kernel *kernel_for(const rig *r, const gw_node *node) {
    size_t count;
    const gw_kernel *kernels = r->backend->kernels(r->device, &count);
    return gw_kernel_first(kernels, count, node, r->device);
}

static gw_status freeze(rig *r, const gw_product *p, int32_t n, int turns) {
    gw_fmt fmt = r->w[0].fmt;
    size_t bytes;
    GW_TRY(make_input(r, n, p->cols, gw_format_of(fmt)->is_float));
    r->y = (gw_tensor){.fmt = GW_FMT_F32, .n_dim = 2, .dim = {n, p->rows}};
    GW_TRY(gw_matrix_bytes(GW_FMT_F32, (uint64_t)n, (uint64_t)p->rows, &bytes));
    GW_TRY(r->backend->alloc(r->device, bytes, &r->y.buf));
    r->turns = turns;
    for (int i = 0; i < turns * r->copies; i++) {
        gw_node *node = &r->nodes[i];
        gw_tensor *w = &r->w[i % r->copies];
        *node = (gw_node){.op = GW_OP_LINEAR, .in = {&r->x}, .w = {w}, .out = &r->y};
        node->what = "product";
        node->args.linear.order = n <= GW_DECODE_MAX ? GW_ORDER_DECODE : GW_ORDER_PREFILL;
        GW_TRY(gw_op_describe(node->op)->check(node));
        node->kernel = i == 0 ? kernel_for(r, node) : r->nodes[0].kernel;
        if (node->kernel == NULL) {
            return gw_fail(GW_E_UNSUPPORTED, "product", "no kernel here takes %s, K=%lld, N=%lld",
                           p->format, (long long)p->cols, (long long)p->rows);
        }
    }
    size_t nodes = (size_t)(turns * r->copies);
    return r->backend->freeze(r->device, r->nodes, nodes, n, &r->segment);
}

static void release(const rig *r, struct gw_buffer **buffer) {
    if (*buffer != NULL) {
        r->backend->release(*buffer);
    }
    *buffer = NULL;
}

static void free_segment(rig *r) {
    if (r->segment != NULL) {
        r->backend->segment_free(r->segment);
    }
    r->segment = NULL;
    release(r, &r->x.buf);
    release(r, &r->y.buf);
}

/* Seconds of one product: the best pass. */
static gw_status time_pass(rig *r, const gw_step *step, int passes, double patience, double *best) {
    double begin = gw_seconds_now();
    *best = 0.0;
    for (int i = 0; i <= passes || gw_seconds_now() - begin < patience;
         i++) { /* the first one warms up */
        double start = gw_seconds_now();
        GW_TRY(r->backend->run(r->segment, step));
        GW_TRY(r->backend->wait(r->device));
        double each = (gw_seconds_now() - start) / (r->turns * r->copies);
        *best = i > 0 && (*best <= 0.0 || each < *best) ? each : *best;
    }
    return GW_OK;
}

static gw_status time_one(rig *r, const gw_product *p, gw_step *step, gw_product_result *out) {
    GW_TRY(freeze(r, p, out->n, 1));
    step->n = step->n_pick = out->n;
    GW_TRY(time_pass(r, step, 1, 0.0, &out->seconds));
    double turns = PASS_LEAST / (out->seconds * r->copies);
    if (turns > 1.0) {
        const int most = NODES_MOST / r->copies;
        free_segment(r);
        GW_TRY(freeze(r, p, out->n, turns < most ? (int)turns + 1 : most));
    }
    GW_TRY(time_pass(r, step, PASSES, PATIENCE, &out->seconds));
    gw_op_describe(GW_OP_LINEAR)->cost(&r->nodes[0], out->n, 0, &out->bytes, &out->ops);
    out->is_float = gw_format_of(r->w[0].fmt)->is_float;
    strncpy(out->kernel, r->nodes[0].kernel->name, sizeof out->kernel - 1);
    return GW_OK;
}

gw_status gw_product_time(const gw_backend *backend, struct gw_device *device,
                          const gw_product *product, const int32_t *n, size_t count,
                          gw_product_result *results) {
    gw_status status;
    gw_fmt fmt;
    if (!gw_format_from_name(product->format, &fmt) || fmt >= GW_FMT_ACT8) {
        return gw_fail(GW_E_ARGUMENT, "product", "'%.40s' is no format of weights",
                       product->format);
    }
    rig *r = calloc(1, sizeof *r);
    gw_step *step = calloc(1, sizeof *step);
    if (r == NULL || step == NULL) {
        status = gw_fail(GW_E_NOMEM, "product", "no memory to measure with");
        goto done;
    }
    r->backend = backend;
    r->device = device;
    GW_TRY_DONE(make_weights(r, fmt, product));
    for (size_t i = 0; i < count; i++) {
        results[i] = (gw_product_result){.n = n[i]};
        status = n[i] >= 1 && n[i] <= GW_CHUNK_MAX
                     ? time_one(r, product, step, &results[i])
                     : gw_fail(GW_E_ARGUMENT, "product", "%d rows: 1 to %d", n[i], GW_CHUNK_MAX);
        free_segment(r);
        GW_TRY_DONE(status);
    }
done:
    for (int i = 0; r != NULL && i < COPIES_MOST; i++) {
        release(r, &r->w[i].buf);
    }
    free(r);
    free(step);
    return status;
}
