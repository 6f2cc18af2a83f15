/* backends/hip/rows.c - EMBED, PICK, NORM, QUANTIZE, ROPE_KV, SAMPLE: nodes to launches. */
#include <stdio.h>

#include "backends/hip/shape.h"
#include "kernels_hip/rows/rows_params.h"
#include "kernels_hip/rows/sample_params.h"

enum { TEAMS = GW_ROWS_THREADS / GW_LANES };

/* Blocks along a row of `pieces` (one per thread or team), rows below one another. */
static gw_status along_rows(struct gw_segment *segment, const gw_node *node, const char *kernel,
                            size_t pieces, size_t of, const void *params, size_t bytes) {
    return gw_hip_record(segment, node, kernel, gw_hip_groups(pieces, of), (unsigned)segment->rows,
                         1, GW_ROWS_THREADS, 1, 1, 0, params, bytes);
}

static int f32_or_act8(const gw_tensor *t) {
    return t->fmt == GW_FMT_F32 || (t->fmt == GW_FMT_ACT8 && gw_hip_width(t) % GW_ACT_BLOCK == 0);
}

/* ---- EMBED ----------------------------------------------------------------------------------- */

int gw_hip_embeds(const gw_node *node) {
    return node->w[0]->layout == GW_LAYOUT_ROWS && node->out->fmt == GW_FMT_F32 &&
           gw_hip_record_bytes(node->w[0]->fmt) > 0; /* the formats that rows.hip has */
}

static int accepts_embed(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return gw_hip_embeds(node);
}

gw_status gw_hip_record_embed(struct gw_segment *segment, const gw_node *node) {
    const gw_tensor *table = node->w[0];
    size_t width = gw_hip_width(node->out), row_bytes;
    char name[48];
    GW_TRY(gw_row_bytes(table->fmt, width, &row_bytes));
    struct gw_embed_params p = {.step = gw_hip_step(segment),
                                .table = gw_hip_at(table),
                                .ids = node->in[0] != NULL ? gw_hip_at(node->in[0]) : 0,
                                .out = gw_hip_at(node->out),
                                .row_bytes = (int64_t)row_bytes,
                                .width = (int32_t)width};
    snprintf(name, sizeof name, "gw_embed_%s", gw_format_of(table->fmt)->name);
    for (char *c = name; *c != '\0'; c++) {
        *c = *c == '-' ? '_' : *c;
    }
    if (segment->behind != NULL) {
        p.behind = gw_hip_at(segment->behind->w[0]);
        GW_TRY(gw_hip_norm_memory(segment, segment->behind, &p.left, &p.left_squares, &p.left_form,
                                  &p.left_blocks));
    }
    return along_rows(segment, node, name, width, 4 * GW_ROWS_THREADS, &p, sizeof p);
}

static gw_status record_embed(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    (void)kernel;
    return gw_hip_record_embed(segment, node);
}

/* ---- PICK ------------------------------------------------------------------------------------ */

static int accepts_pick(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

static gw_status record_pick(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    size_t width = gw_hip_width(node->out);
    struct gw_pick_params p = {.step = gw_hip_step(segment),
                               .in = gw_hip_at(node->in[0]),
                               .out = gw_hip_at(node->out),
                               .width = (int32_t)width};
    (void)kernel;
    return along_rows(segment, node, "gw_pick", width, GW_ROWS_THREADS, &p, sizeof p);
}

/* ---- NORM ------------------------------------------------------------------------------------ */

static int accepts_norm(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && f32_or_act8(node->out) &&
           node->w[0]->fmt == GW_FMT_F32;
}

static gw_status record_norm(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    struct gw_norm_params p = {.step = gw_hip_step(segment),
                               .in = gw_hip_at(node->in[0]),
                               .weight = gw_hip_at(node->w[0]),
                               .out = gw_hip_at(node->out),
                               .width = (int32_t)gw_hip_width(node->out),
                               .form = gw_hip_form(segment, node->out),
                               .eps = node->args.norm.eps};
    (void)kernel;
    return gw_hip_record(segment, node,
                         node->out->fmt == GW_FMT_ACT8 ? "gw_norm_act8" : "gw_norm_f32",
                         (unsigned)segment->rows, 1, 1, GW_NORM_THREADS, 1, 1, 0, &p, sizeof p);
}

/* ---- QUANTIZE -------------------------------------------------------------------------------- */

static int accepts_quantize(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_ACT8 &&
           f32_or_act8(node->out);
}

static gw_status encode(struct gw_segment *segment, const gw_node *node, gw_hip_ptr from,
                        gw_hip_ptr columns, const gw_tensor *out) {
    struct gw_quantize_params p = {.step = gw_hip_step(segment),
                                   .in = from,
                                   .columns = columns,
                                   .out = gw_hip_at(out),
                                   .width = (int32_t)gw_hip_width(out),
                                   .form = gw_hip_form(segment, out)};
    return along_rows(segment, node, "gw_quantize", gw_hip_width(out) / GW_ACT_BLOCK, TEAMS, &p,
                      sizeof p);
}

gw_status gw_hip_record_encode(struct gw_segment *segment, const gw_node *node, gw_hip_ptr from,
                               const gw_tensor *out) {
    return encode(segment, node, from, 0, out);
}

static gw_status record_quantize(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    (void)kernel;
    return encode(segment, node, gw_hip_at(node->in[0]),
                  node->w[0] != NULL ? gw_hip_at(node->w[0]) : 0, node->out);
}

/* ---- ROPE_KV --------------------------------------------------------------------------------- */

static int is_norm(const gw_tensor *t) { return t == NULL || t->fmt == GW_FMT_F32; }

static int accepts_rope_kv(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    gw_fmt cache = node->in[1]->fmt;
    (void)kernel;
    (void)device;
    return is_norm(node->w[0]) && is_norm(node->w[1]) && node->in[0]->fmt == GW_FMT_F32 &&
           node->out->fmt == GW_FMT_F32 &&
           (cache == GW_FMT_F16 || cache == GW_FMT_F32 || cache == GW_FMT_Q8_0) &&
           node->in[2]->fmt == cache && node->in[3] != NULL && node->w[2]->fmt == GW_FMT_F32;
}

struct gw_rope_params gw_hip_rotation(const gw_node *rope) {
    const gw_rope_args *a = &rope->args.rope;
    return (struct gw_rope_params){.in = gw_hip_at(rope->in[0]),
                                   .q_norm = rope->w[0] != NULL ? gw_hip_at(rope->w[0]) : 0,
                                   .k_norm = rope->w[1] != NULL ? gw_hip_at(rope->w[1]) : 0,
                                   .table = gw_hip_at(rope->w[2]),
                                   .out = gw_hip_at(rope->out),
                                   .heads = a->heads,
                                   .kv_heads = a->kv_heads,
                                   .e = a->head_dim,
                                   .rope_dim = a->rope_dim,
                                   .interleaved = a->style == GW_ROPE_INTERLEAVED,
                                   .eps = a->eps};
}

static gw_status record_rope_kv(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const gw_rope_args *a = &node->args.rope;
    size_t tile_bytes;
    char name[48];
    (void)kernel;
    GW_TRY(gw_row_bytes(node->in[1]->fmt, (uint64_t)GW_PAGE * (uint64_t)a->head_dim, &tile_bytes));
    struct gw_rope_kv_params p = {.step = gw_hip_step(segment),
                                  .turn = gw_hip_rotation(node),
                                  .k = gw_hip_at(node->in[1]),
                                  .v = gw_hip_at(node->in[2]),
                                  .pages = gw_hip_at(node->in[3]),
                                  .page_stride = (int32_t)node->in[3]->dim[1],
                                  .tile_bytes = (int32_t)tile_bytes};
    const gw_format *cache = gw_format_of(node->in[1]->fmt);
    size_t rows = (size_t)segment->rows;
    int cell = cache->is_float ? (int)cache->block_bytes : 1,
        shared = GW_ROPE_SHARED(a->head_dim, cell);
    /* Stored side by side where neighbours are rows of one text. Few blocks would leave most of a
     * card idle, and take longer than stores apart, which is what many texts need anyway. */
    unsigned blocks = (unsigned)a->kv_heads * gw_hip_groups(rows, GW_ROPE_ROWS);
    p.without_k = rows >= GW_ROPE_ROWS && shared <= segment->device->shared_bytes &&
                  4 * blocks >= (unsigned)segment->device->units;
    if (p.without_k) {
        snprintf(name, sizeof name, "gw_rope_k_%s", cache->name);
        GW_TRY(gw_hip_record(segment, node, name, (unsigned)a->kv_heads,
                             gw_hip_groups(rows, GW_ROPE_ROWS), 1, GW_ROWS_THREADS, 1, 1,
                             (unsigned)shared, &p, sizeof p));
    }
    snprintf(name, sizeof name, "gw_rope_kv_%s", cache->name);
    return gw_hip_record(segment, node, name,
                         gw_hip_groups((size_t)(a->heads + 2 * a->kv_heads), TEAMS),
                         (unsigned)segment->rows, 1, GW_ROWS_THREADS, 1, 1, 0, &p, sizeof p);
}

/* ---- SAMPLE ---------------------------------------------------------------------------------- */

static int accepts_sample(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32;
}

static gw_status record_sample(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    size_t n = gw_hip_width(node->in[0]), rows = (size_t)segment->rows;
    struct gw_sample_params p = {.step = gw_hip_step(segment),
                                 .x = gw_hip_at(node->in[0]),
                                 .choice = gw_hip_at(node->in[1]),
                                 .ids = gw_hip_at(node->out),
                                 .n = (int32_t)n};
    (void)kernel;
    GW_TRY(gw_hip_scratch(segment, rows * n * sizeof(gw_listed), &p.list));
    GW_TRY(gw_hip_counters(segment, GW_SAMPLE_COUNTS * rows, &p.count));
    GW_TRY(gw_hip_draws(segment, p.ids, &p.host_ids));
    return gw_hip_record(segment, node, "gw_sample", gw_hip_groups(n, GW_SAMPLE_PIECE),
                         (unsigned)segment->rows, 1, GW_SAMPLE_THREADS, 1, 1, 0, &p, sizeof p);
}

/* clang-format off */
const gw_kernel gw_hip_rows_kernels[] = {
    {GW_OP_EMBED, "hip.embed", accepts_embed, record_embed, NULL, 0},
    {GW_OP_PICK, "hip.pick", accepts_pick, record_pick, NULL, 0},
    {GW_OP_NORM, "hip.norm", accepts_norm, record_norm, NULL, 0},
    {GW_OP_QUANTIZE, "hip.quantize", accepts_quantize, record_quantize, NULL, 0},
    {GW_OP_ROPE_KV, "hip.rope_kv", accepts_rope_kv, record_rope_kv, NULL, 0},
    {GW_OP_SAMPLE, "hip.sample", accepts_sample, record_sample, NULL, 0},
    {.name = NULL},
};
/* clang-format on */
