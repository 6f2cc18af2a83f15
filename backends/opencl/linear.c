/* backends/opencl/linear.c - LINEAR and GLU: nodes to launches, one per matrix and allocation where
 * decode.c does not stack them.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"

enum { MOST_WIDTH = GW_DECODE_MAX, TILE = 64, ITEMS = 64 };

/* One matrix product: y[:, column ...] = x w^T (+ bias) (+ residual). */
typedef struct product {
    const gw_tensor *w, *x, *bias, *residual;
    gw_order order;
    cl_mem narrowed; /* x in the weights' format; NULL: it is not */
    cl_mem spans;    /* x with one scale per span; NULL: the product reads x */
    cl_mem y;
    cl_ulong y_offset;
    int64_t y_stride, column; /* in floats */
} product;

/* ---- what is accepted ------------------------------------------------------------------------ */

int gw_cl_layout_fits(const gw_tensor *w, const struct gw_device *device) {
    if (gw_cl_planes_of(w->fmt) != NULL) {
        return w->layout == (device->item ? GW_CL_LAYOUT_STRIPS : GW_CL_LAYOUT_PLANES);
    }
    return w->layout == (device->item ? GW_LAYOUT_ROWS : (int)GW_CL_LAYOUT_LANES);
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device,
                   int parts) {
    const gw_fmt input = node->in[0]->fmt;
    if (gw_format_of(node->w[0]->fmt) != kernel->state) {
        return 0;
    }
    for (int i = 0; i < parts && node->w[i] != NULL; i++) {
        int floats = gw_cl_planes_of(node->w[i]->fmt) == NULL;
        const gw_tensor *bias = node->op == GW_OP_LINEAR ? node->w[3 + i] : NULL;
        if (input != (floats ? GW_FMT_F32 : GW_FMT_ACT8) ||
            !gw_cl_layout_fits(node->w[i], device) || (bias != NULL && bias->fmt != GW_FMT_F32)) {
            return 0;
        }
    }
    return 1;
}

int gw_cl_accepts_linear(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    return node->out->fmt == GW_FMT_F32 && accepts(kernel, node, device, 3);
}

int gw_cl_accepts_glu(const gw_kernel *kernel, const gw_node *node,
                      const struct gw_device *device) {
    int fits = node->out->fmt == GW_FMT_F32 ||
               (node->out->fmt == GW_FMT_ACT8 && gw_cl_width(node->out) % GW_ACT_BLOCK == 0);
    return fits && accepts(kernel, node, device, 2);
}

/* ---- one product ----------------------------------------------------------------------------- */

static int on_matrix(const struct gw_device *device, const product *p) {
    return device->matrix && !device->item && p->order == GW_ORDER_PREFILL &&
           gw_cl_planes_of(p->w->fmt) != NULL;
}

static const char *source_of(const struct gw_device *device, const product *p) {
    return device->item                         ? "float_item"
           : on_matrix(device, p)               ? "linear_matrix"
           : p->narrowed != NULL                ? "float_matrix"
           : gw_cl_planes_of(p->w->fmt) != NULL ? "linear_team"
                                                : "float_team";
}

#define MATRIX_OPTIONS " -DMATRIX -DROWS=%zu -DTOKENS=%zu -DGROUP=%zu"

/* A group's share of a product on matrix instructions. */
typedef struct matrix_tile {
    size_t rows, tokens, items;
} matrix_tile;

/* Few tokens take smaller tiles; 16-bit floats larger ones, where there are enough of them. */
static matrix_tile tile_of(const struct gw_segment *segment, const product *p, size_t m) {
    static const matrix_tile tiles[] = {
        {128, 128, GW_CL_GROUP}, {128, 64, GW_CL_GROUP}, {64, 64, GW_CL_GROUP / 2}};
    static const matrix_tile small = {64, 32, GW_CL_GROUP / 2};
    const size_t rows = (size_t)segment->rows, units = (size_t)segment->device->units;
    const matrix_tile *last = &tiles[2], *t = p->narrowed != NULL ? tiles : last;
    while (t < last && gw_cl_groups(m, t->rows) * gw_cl_groups(rows, t->tokens) < units) {
        t++;
    }
    return rows <= small.tokens ? small : *t;
}

size_t gw_cl_format_options(gw_fmt fmt, gw_order order, char *out, size_t room) {
    const gw_cl_planes *p = gw_cl_planes_of(fmt);
    if (p == NULL) {
        snprintf(out, room, "-DFORMAT_%s",
                 fmt == GW_FMT_F32    ? "F32"
                 : fmt == GW_FMT_F16  ? "F16"
                 : fmt == GW_FMT_E4M3 ? "E4M3"
                 : fmt == GW_FMT_BF16 ? "BF16"
                                      : "NVFP4");
        return strlen(out);
    }
    snprintf(out, room,
             "-DLOW_BITS=%d -DHIGH_BITS=%d -DOFFSET=%d -DLEVELS=%d -DKIND=%d -DHEAD_BYTES=%d "
             "-DHEAD_BLOCKS=%d -DSUB_BYTES=%d -DTOGETHER=%d%s",
             p->low_bits, p->high_bits, p->offset, p->levels, p->kind, p->head_bytes,
             p->head_blocks, p->sub_bytes, p->low_bits == 8 ? GW_CL_TOGETHER : 1,
             order == GW_ORDER_PREFILL && p->sub_bytes > 0 ? " -DSCALED" : "");
    return strlen(out);
}

static void arg_weight(gw_cl_call *call, const gw_tensor *w, const gw_cl_chunk *chunk) {
    gw_cl_arg_mem(call, chunk->mem, chunk->low);
    if (gw_cl_planes_of(w->fmt) != NULL || !call->segment->device->item) {
        gw_cl_arg_ulong(call, chunk->high);
        gw_cl_arg_ulong(call, chunk->head);
        gw_cl_arg_ulong(call, chunk->sub);
    }
}

static gw_status end_product(gw_cl_call *call, const product *p, size_t m) {
    const struct gw_segment *segment = call->segment;
    size_t rows = (size_t)segment->rows;
    int prefill = p->order == GW_ORDER_PREFILL;
    if (segment->device->item) {
        return prefill ? gw_cl_launch_end(call, 1, gw_cl_groups(m, GW_CL_STRIP),
                                          gw_cl_groups(rows, MOST_WIDTH), 1)
                       : gw_cl_launch_end(call, 1, m, 1, 1);
    }
    if (on_matrix(segment->device, p) || p->narrowed != NULL) {
        const matrix_tile t = tile_of(segment, p, m);
        return gw_cl_launch_end(call, t.items, gw_cl_groups(rows, t.tokens),
                                gw_cl_groups(m, t.rows), 1);
    }
    return gw_cl_launch_end(call, GW_CL_GROUP, gw_cl_groups(m, TILE), gw_cl_groups(rows, TILE), 1);
}

/* bias, residual, y, m, k, y_stride, flags */
static void arg_result(gw_cl_call *call, const product *p, const gw_cl_chunk *chunk) {
    cl_ulong at = (cl_ulong)(p->column + chunk->first) * sizeof(float);
    if (p->bias != NULL) {
        cl_ulong first = (cl_ulong)chunk->first * sizeof(float);
        gw_cl_arg_mem(call, gw_cl_mem(p->bias), p->bias->offset + first);
    } else {
        gw_cl_arg_tensor(call, NULL);
    }
    if (p->residual != NULL) {
        gw_cl_arg_mem(call, gw_cl_mem(p->residual), p->residual->offset + at);
    } else {
        gw_cl_arg_tensor(call, NULL);
    }
    gw_cl_arg_mem(call, p->y, p->y_offset + at);
    gw_cl_arg_int(call, chunk->rows);
    gw_cl_arg_int(call, p->w->dim[1]);
    gw_cl_arg_int(call, p->y_stride);
    gw_cl_arg_int(call, (p->bias != NULL ? 1 : 0) | (p->residual != NULL ? 2 : 0));
}

static gw_status record_chunk(struct gw_segment *segment, const product *p,
                              const gw_cl_chunk *chunk) {
    char options[288];
    int prefill = p->order == GW_ORDER_PREFILL;
    size_t used = gw_cl_format_options(p->w->fmt, p->order, options, sizeof options);
    if (!prefill) {
        snprintf(options + used, sizeof options - used, " -DDECODE");
    } else if (on_matrix(segment->device, p) || p->narrowed != NULL) {
        const matrix_tile t = tile_of(segment, p, (size_t)chunk->rows);
        snprintf(options + used, sizeof options - used, MATRIX_OPTIONS, t.rows, t.tokens, t.items);
    }
    gw_cl_call call = gw_cl_launch_new(segment, source_of(segment->device, p), options,
                                       prefill ? "linear_prefill" : "linear_decode");
    gw_cl_arg_step(&call);
    arg_weight(&call, p->w, chunk);
    if (p->narrowed != NULL || p->spans != NULL) {
        gw_cl_arg_mem(&call, p->narrowed != NULL ? p->narrowed : p->spans, 0);
    } else {
        gw_cl_arg_tensor(&call, p->x);
    }
    arg_result(&call, p, chunk);
    return end_product(&call, p, (size_t)chunk->rows);
}

/* ---- 16-bit floats on matrix instructions ---------------------------------------------------- */

static int device_halves(const struct gw_device *device, const gw_tensor *w, gw_order order) {
    return device->matrix && !device->item && !device->exact && order == GW_ORDER_PREFILL &&
           (w->fmt == GW_FMT_F16 || w->fmt == GW_FMT_BF16);
}

static int on_halves(const struct gw_segment *segment, const product *p) {
    return !segment->blas && device_halves(segment->device, p->w, p->order);
}

/* x in the format of p's weights, in memory that lasts until the next call. */
static gw_status record_narrow(struct gw_segment *segment, product *p) {
    char options[64];
    const size_t rows = (size_t)segment->rows, k = (size_t)p->w->dim[1];
    const size_t bytes =
        (rows * sizeof(float) + 255) / 256 * 256 + rows * gw_cl_lanes_bytes(p->w->fmt, k);
    GW_TRY(gw_cl_pool_get(segment->device, &segment->device->narrowed, bytes, &p->narrowed));
    size_t used = gw_cl_format_options(p->w->fmt, p->order, options, sizeof options);
    snprintf(options + used, sizeof options - used, MATRIX_OPTIONS, (size_t)TILE, (size_t)TILE,
             (size_t)GW_CL_GROUP);
    gw_cl_call call = gw_cl_launch_new(segment, "float_matrix", options, "narrow");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, p->x);
    gw_cl_arg_mem(&call, p->narrowed, 0);
    gw_cl_arg_int(&call, (int64_t)k);
    return gw_cl_launch_end(&call, GW_CL_GROUP, rows, 1, 1);
}

/* ---- through CLBlast ------------------------------------------------------------------------- */

static gw_status record_finish(struct gw_segment *segment, const product *p,
                               const gw_cl_chunk *tile, cl_mem from) {
    char options[32];
    size_t rows = (size_t)segment->rows;
    gw_cl_format_options(p->w->fmt, p->order, options, sizeof options);
    gw_cl_call call = gw_cl_launch_new(segment, "blas", options, "finish_product");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, from, 0);
    arg_result(&call, p, tile);
    if (call.status == GW_OK) {
        call.launch->part = GW_CL_FINISHES;
    }
    if (segment->device->item) {
        return gw_cl_launch_end(&call, 1, 1, rows, 1);
    }
    return gw_cl_launch_end(&call, ITEMS, gw_cl_groups((size_t)tile->rows, ITEMS), rows, 1);
}

/* Tile by tile, so that our own launch can take over one whose product fails. */
static gw_status record_tiles(struct gw_segment *segment, const product *p,
                              const gw_cl_chunk *chunk) {
    const gw_tensor *x = p->x;
    size_t row_bytes;
    GW_TRY(gw_row_bytes(p->w->fmt, (uint64_t)p->w->dim[1], &row_bytes));
    const size_t stride =
        segment->device->item ? row_bytes : gw_cl_lanes_bytes(p->w->fmt, (size_t)p->w->dim[1]);
    gw_cl_gemm gemm = {
        .x = gw_cl_mem(x), .x_at = x->offset / sizeof(float), .picked = segment->picked};
    int64_t most;
    GW_TRY(gw_cl_blas_tile(segment, p->w, chunk->rows, &gemm, &most));
    for (int64_t at = 0; at < chunk->rows; at += most) {
        gw_cl_chunk tile = *chunk;
        tile.first += at;
        tile.rows = chunk->rows - at < most ? chunk->rows - at : most;
        tile.low += (cl_ulong)at * stride;
        GW_TRY(gw_cl_blas_widen(segment, p->w, &tile, &gemm));
        GW_TRY(record_chunk(segment, p, &tile));
        gw_cl_launch *own = &segment->launches[segment->n - 1];
        own->part = GW_CL_MULTIPLIES;
        own->gemm = gemm;
        GW_TRY(record_finish(segment, p, &tile, gemm.y));
    }
    return GW_OK;
}

static gw_status record_product(struct gw_segment *segment, const product *p) {
    for (int i = 0; i < p->w->buf->n_chunks; i++) {
        const gw_cl_chunk *chunk = &p->w->buf->chunks[i];
        GW_TRY((segment->blas ? record_tiles : record_chunk)(segment, p, chunk));
    }
    return GW_OK;
}

gw_status gw_cl_record_linear(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    int64_t column = 0;
    product before = {0};
    (void)kernel;
    if (segment->device->item ? gw_cl_planes_of(node->w[0]->fmt) != NULL
                              : node->args.linear.order == GW_ORDER_DECODE) {
        return gw_cl_record_stacked(segment, node);
    }
    for (int i = 0; i < 3 && node->w[i] != NULL; i++) {
        product p = {.w = node->w[i],
                     .x = node->in[0],
                     .bias = node->w[3 + i],
                     .residual = node->in[1],
                     .order = node->args.linear.order,
                     .y = gw_cl_mem(node->out),
                     .y_offset = node->out->offset,
                     .y_stride = node->out->dim[1],
                     .column = column};
        if (on_halves(segment, &p) && before.narrowed != NULL && before.w->fmt == p.w->fmt) {
            p.narrowed = before.narrowed;
        } else if (on_halves(segment, &p)) {
            GW_TRY(record_narrow(segment, &p));
        } else if (gw_cl_takes_spans(p.w, p.order)) {
            p.spans = before.spans;
            GW_TRY(gw_cl_record_spans(segment, p.x, &p.spans));
        }
        GW_TRY(record_product(segment, &p));
        before = p;
        column += node->w[i]->dim[0];
    }
    return GW_OK;
}

/* ---- GLU ------------------------------------------------------------------------------------- */

static gw_status record_join(struct gw_segment *segment, const gw_node *node, cl_mem both) {
    size_t width = gw_cl_width(node->out), rows = (size_t)segment->rows;
    const int team = segment->device->matrix && !segment->device->item;
    gw_cl_call call = gw_cl_launch_new(segment, team ? "glu_team" : "rows", "", "glu_join");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, both, 0);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)width);
    gw_cl_arg_int(&call, node->out->fmt == GW_FMT_ACT8);
    size_t blocks = gw_cl_groups(width, GW_ACT_BLOCK);
    if (team) {
        return gw_cl_launch_end(&call, GW_CL_GROUP, gw_cl_groups(width, 8 * GW_CL_GROUP), rows, 1);
    }
    if (segment->device->item) {
        return gw_cl_launch_end(&call, 1, gw_cl_groups(blocks, 8), rows, 1);
    }
    return gw_cl_launch_end(&call, ITEMS, gw_cl_groups(blocks, ITEMS), rows, 1);
}

/* On teams gate and up in one launch where the two lie alike; else as a LINEAR of both, stacked,
 * then joined. */
gw_status gw_cl_record_glu(struct gw_segment *segment, const gw_kernel *kernel,
                           const gw_node *node) {
    (void)kernel;
    if (!segment->device->item && gw_cl_one_glu_launch(segment, node)) {
        return gw_cl_record_decode_glu(segment, node);
    }
    const size_t width = gw_cl_width(node->out);
    gw_cl_chunk chunk = {0};
    GW_TRY(gw_cl_scratch(segment->device, (size_t)segment->rows * 2 * width * sizeof(float),
                         &chunk.mem));
    struct gw_buffer buffer = {.device = segment->device, .n_chunks = 1, .chunks = &chunk};
    gw_tensor both = {.fmt = GW_FMT_F32,
                      .n_dim = 2,
                      .dim = {node->out->dim[0], 2 * (int64_t)width},
                      .buf = &buffer};
    const gw_node stacked = {.op = GW_OP_LINEAR,
                             .args = node->args,
                             .in = {node->in[0]},
                             .w = {node->w[0], node->w[1]},
                             .out = &both};
    GW_TRY(gw_cl_record_linear(segment, NULL, &stacked));
    return record_join(segment, node, chunk.mem);
}

/* ---- the same under --blas ------------------------------------------------------------------- */

static int goes_to_blas(const gw_node *node, const struct gw_device *device) {
    return device->blas == GW_CL_BLAS_WORKS && node->args.linear.order == GW_ORDER_PREFILL &&
           node->in[0]->fmt == GW_FMT_F32;
}

int gw_cl_accepts_blas_linear(const gw_kernel *kernel, const gw_node *node,
                              const struct gw_device *device) {
    return goes_to_blas(node, device) && gw_cl_accepts_linear(kernel, node, device);
}

int gw_cl_accepts_blas_glu(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    return goes_to_blas(node, device) && gw_cl_accepts_glu(kernel, node, device);
}

gw_status gw_cl_record_blas_linear(struct gw_segment *segment, const gw_kernel *kernel,
                                   const gw_node *node) {
    segment->blas = 1;
    gw_status status = gw_cl_record_linear(segment, kernel, node);
    segment->blas = 0;
    return status;
}

gw_status gw_cl_record_blas_glu(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    segment->blas = 1;
    gw_status status = gw_cl_record_glu(segment, kernel, node);
    segment->blas = 0;
    return status;
}

/* ---- which arithmetic ------------------------------------------------------------------------ */

/* CLBlast that failed while it ran has left parts of a product to our own kernels. */
void gw_cl_arithmetic(const struct gw_device *device, const gw_node *node, char *out) {
    const gw_kernel *kernel = node->kernel;
    int products = node->op == GW_OP_LINEAR || node->op == GW_OP_GLU, half = 0;
    for (int i = 0; i < 3 && products && node->w[i] != NULL; i++) {
        half |= device_halves(device, node->w[i], node->args.linear.order);
    }
    out[0] = '\0';
    if (kernel->record == gw_cl_record_blas_linear || kernel->record == gw_cl_record_blas_glu) {
        snprintf(out, GW_ARITHMETIC_BYTES, "clblast on %.40s%s", device->name,
                 atomic_load(&device->blas) == GW_CL_BLAS_WORKS ? "" : ", in part");
    } else if (half) {
        snprintf(out, GW_ARITHMETIC_BYTES, "half of %.60s", device->name);
    }
}
