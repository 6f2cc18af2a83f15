/* backends/hip/more.c - every form of EMBED, NORM and ROPE_KV that rows.c does not take, and ACT,
 * MIX, ROUTE: nodes to launches. */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "kernels_hip/rows/more_params.h"

enum { KEPT_MOST = 40 << 10 }; /* bytes of a row in shared memory */

static gw_hip_ptr at_or_none(const gw_tensor *t) { return t != NULL ? gw_hip_at(t) : 0; }

static int is_out(const gw_tensor *t) {
    return t->fmt == GW_FMT_F32 || (t->fmt == GW_FMT_ACT8 && gw_hip_width(t) % GW_ACT_BLOCK == 0);
}

static gw_status along_rows(struct gw_segment *segment, const gw_node *node, const char *kernel,
                            size_t width, const void *params, size_t bytes) {
    return gw_hip_record(segment, node, kernel, gw_hip_groups(width, GW_MORE_THREADS),
                         (unsigned)segment->rows, 1, GW_MORE_THREADS, 1, 1, 0, params, bytes);
}

/* ---- EMBED ----------------------------------------------------------------------------------- */

static int is_table(const gw_tensor *t) {
    return t == NULL || (t->layout == GW_LAYOUT_ROWS &&
                         (t->fmt == GW_FMT_F32 || t->fmt == GW_FMT_F16 || t->fmt == GW_FMT_BF16));
}

static int accepts_embed(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return gw_hip_embeds(node) && is_table(node->w[1]) && is_table(node->w[2]);
}

/* What comes to the rows of the tokens, in place. */
static gw_status record_table(struct gw_segment *segment, const gw_node *node, int by_type) {
    const gw_tensor *table = node->w[by_type ? 2 : 1];
    struct gw_more_embed_params p = {.step = gw_hip_step(segment),
                                     .x = gw_hip_at(node->out),
                                     .table = at_or_none(table),
                                     .width = (int32_t)gw_hip_width(node->out),
                                     .offset = by_type ? 0 : node->args.embed.offset,
                                     .by_type = by_type,
                                     .scale = by_type ? 0.0f : node->args.embed.scale};
    char name[48];
    snprintf(name, sizeof name, "gw_more_embed_%s",
             gw_format_of(table != NULL ? table->fmt : GW_FMT_F32)->name);
    return along_rows(segment, node, name, gw_hip_width(node->out), &p, sizeof p);
}

static gw_status record_embed(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    (void)kernel;
    GW_TRY(gw_hip_record_embed(segment, node));
    GW_TRY(record_table(segment, node, 0));
    return node->w[2] != NULL ? record_table(segment, node, 1) : GW_OK;
}

/* ---- PICK ------------------------------------------------------------------------------------ */

static int accepts_pick(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->args.pick.kind != GW_PICK_ROWS && node->in[0]->fmt == GW_FMT_F32 &&
           node->out->fmt == GW_FMT_F32;
}

static gw_status record_pick(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    gw_pick_kind kind = node->args.pick.kind;
    struct gw_more_pool_params p = {.step = gw_hip_step(segment),
                                    .in = gw_hip_at(node->in[0]),
                                    .out = gw_hip_at(node->out),
                                    .width = (int32_t)gw_hip_width(node->out),
                                    .last = kind == GW_PICK_LAST,
                                    .mean = kind == GW_PICK_MEAN};
    (void)kernel;
    return along_rows(segment, node, "gw_more_pool", gw_hip_width(node->out), &p, sizeof p);
}

/* ---- NORM ------------------------------------------------------------------------------------ */

static int accepts_norm(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && is_out(node->out);
}

static gw_status record_norm(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    struct gw_more_norm_params p = {.step = gw_hip_step(segment),
                                    .in = gw_hip_at(node->in[0]),
                                    .weight = at_or_none(node->w[0]),
                                    .bias = at_or_none(node->w[1]),
                                    .addend = at_or_none(node->in[1]),
                                    .factor = at_or_none(node->w[2]),
                                    .out = gw_hip_at(node->out),
                                    .width = (int32_t)gw_hip_width(node->out),
                                    .form = gw_hip_form(segment, node->out),
                                    .layer = node->args.norm.kind == GW_NORM_LAYER,
                                    .eps = node->args.norm.eps};
    size_t row = GW_KEPT_BYTES(gw_hip_width(node->out));
    (void)kernel;
    if (node->out->fmt == GW_FMT_F32 && row <= KEPT_MOST) {
        GW_TRY(gw_hip_narrow_to(segment, node, 0, &p.narrow));
    }
    if (node->out->fmt == GW_FMT_F32 && p.width % GW_ACT_BLOCK == 0 &&
        p.width <= (int)GW_MORE_TEAM_WIDTH && segment->rows >= GW_MORE_TEAMS) {
        return gw_hip_record(segment, node, "gw_more_norm_team",
                             gw_hip_groups((size_t)segment->rows, GW_MORE_TEAMS), 1, 1,
                             GW_MORE_THREADS, 1, 1,
                             p.narrow.y != 0 ? (unsigned)row * GW_MORE_TEAMS : 0, &p, sizeof p);
    }
    return gw_hip_record(segment, node, "gw_more_norm", (unsigned)segment->rows, 1, 1,
                         GW_MORE_THREADS, 1, 1, p.narrow.y != 0 ? (unsigned)row : 0, &p, sizeof p);
}

/* ---- ROPE_KV --------------------------------------------------------------------------------- */

static int is_cache(gw_fmt fmt) {
    return fmt == GW_FMT_F16 || fmt == GW_FMT_F32 || fmt == GW_FMT_Q8_0 || gw_cache_bits(fmt) > 0;
}

static int accepts_rope_kv(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32 &&
           (node->args.rope.kv_heads == 0 ||
            (is_cache(node->in[1]->fmt) &&
             (node->in[2] == NULL || is_cache(node->in[2]->fmt))));
}

/* Heads [first, end) of q, k and v, into caches of one format. */
static gw_status record_heads(struct gw_segment *segment, const gw_node *node, gw_fmt cache,
                              struct gw_more_rope_params *p, int first, int end) {
    char name[48];
    p->first = first;
    p->end = end;
    snprintf(name, sizeof name, "gw_more_rope_%s", gw_format_of(cache)->name);
    return gw_hip_record(segment, node, name, gw_hip_groups((size_t)(end - first), GW_MORE_TEAMS),
                         (unsigned)segment->rows, 1, GW_MORE_THREADS, 1, 1, 0, p, sizeof *p);
}

static gw_status record_rope_kv(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const gw_rope_args *a = &node->args.rope;
    gw_fmt cache = a->kv_heads > 0 ? node->in[1]->fmt : GW_FMT_F32;
    int within = a->kv_heads > 0 && node->in[2] == NULL; /* values are part of the keys */
    gw_fmt v_cache = a->kv_heads > 0 && !within ? node->in[2]->fmt : cache;
    int ev = within ? 0 : a->v_dim > 0 ? a->v_dim : a->head_dim;
    size_t k_bytes, v_bytes;
    char name[48];
    (void)kernel;
    GW_TRY(gw_row_bytes(cache, (uint64_t)GW_PAGE * (uint64_t)a->head_dim, &k_bytes));
    GW_TRY(gw_row_bytes(v_cache, (uint64_t)GW_PAGE * (uint64_t)ev, &v_bytes));
    struct gw_more_rope_params p = {.step = gw_hip_step(segment),
                                    .in = gw_hip_at(node->in[0]),
                                    .q_norm = at_or_none(node->w[0]),
                                    .k_norm = at_or_none(node->w[1]),
                                    .table = at_or_none(node->w[2]),
                                    .factor = at_or_none(node->w[3]),
                                    .out = gw_hip_at(node->out),
                                    .heads = a->heads,
                                    .kv_heads = a->kv_heads,
                                    .e = a->head_dim,
                                    .ev = ev,
                                    .rope_dim = a->rope_dim,
                                    .interleaved = a->style == GW_ROPE_INTERLEAVED,
                                    .layer = a->norm_kind == GW_NORM_LAYER,
                                    .span = (int32_t)a->norm_span,
                                    .after = a->norm_after,
                                    .plain = a->norm_plain,
                                    .norm_v = a->norm_v,
                                    .k_bytes = (int32_t)k_bytes,
                                    .v_bytes = (int32_t)v_bytes,
                                    .eps = a->eps};
    if (a->kv_heads > 0) {
        p.k = gw_hip_at(node->in[1]);
        p.v = within ? 0 : gw_hip_at(node->in[2]);
        p.pages = gw_hip_at(node->in[3]);
        p.page_stride = (int32_t)gw_hip_width(node->in[3]);
    }
    size_t lay = (size_t)a->head_dim * GW_MORE_LAY_STEP * gw_format_of(cache)->block_bytes;
    p.without_k = a->kv_heads > 0 && v_cache == cache &&
                  (cache == GW_FMT_F16 || cache == GW_FMT_F32) &&
                  segment->rows >= GW_MORE_LAY_ROWS && a->rope_dim == 0 && !a->norm_plain &&
                  node->w[1] == NULL && lay <= KEPT_MOST;
    if (p.without_k) {
        snprintf(name, sizeof name, "gw_more_lay_%s", gw_format_of(cache)->name);
        p.lay_all = node->w[0] == NULL && node->w[3] == NULL && !a->norm_v;
        GW_TRY(gw_hip_record(segment, node, name, (unsigned)a->kv_heads,
                             gw_hip_groups((size_t)segment->rows, GW_MORE_LAY_ROWS), 1,
                             GW_MORE_THREADS, 1, 1, (unsigned)lay, &p, sizeof p));
        if (p.lay_all) {
            return GW_OK;
        }
    }
    int of_k = a->heads + a->kv_heads, all = of_k + (within ? 0 : a->kv_heads);
    if (v_cache == cache) {
        return record_heads(segment, node, cache, &p, 0, all);
    }
    GW_TRY(record_heads(segment, node, cache, &p, 0, of_k));
    return record_heads(segment, node, v_cache, &p, of_k, all);
}

/* ---- ACT, MIX -------------------------------------------------------------------------------- */

static int accepts_rowwise(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && is_out(node->out);
}

gw_status gw_hip_record_act(struct gw_segment *segment, const gw_node *node,
                            const gw_act_args *args, gw_hip_ptr gate, gw_hip_ptr up, size_t step,
                            int form) {
    struct gw_more_act_params p = {.step = gw_hip_step(segment),
                                   .gate = gate,
                                   .up = up,
                                   .out = gw_hip_at(node->out),
                                   .gate_step = (int32_t)step,
                                   .up_step = (int32_t)step,
                                   .width = (int32_t)gw_hip_width(node->out),
                                   .form = form,
                                   .kind = (int32_t)args->kind,
                                   .limit = args->limit,
                                   .alpha = args->alpha};
    size_t row = GW_KEPT_BYTES(gw_hip_width(node->out));
    p.numbers = node->op == GW_OP_ACT ? at_or_none(node->w[0]) : 0;
    if (node->op == GW_OP_ACT && node->out->fmt == GW_FMT_F32 && row <= KEPT_MOST) {
        GW_TRY(gw_hip_narrow_to(segment, node, 1, &p.narrow));
    }
    if (p.narrow.y != 0) {
        return gw_hip_record(segment, node, "gw_more_act_row", (unsigned)segment->rows, 1, 1,
                             GW_MORE_THREADS, 1, 1, (unsigned)row, &p, sizeof p);
    }
    return along_rows(segment, node, "gw_more_act", gw_hip_width(node->out), &p, sizeof p);
}

static gw_status record_act(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    const gw_act_args *a = &node->args.act;
    size_t width = gw_hip_width(node->out);
    gw_hip_ptr in = gw_hip_at(node->in[0]);
    (void)kernel;
    return gw_hip_record_act(segment, node, a, in, a->gated ? in + width * sizeof(float) : 0,
                             a->gated ? 2 * width : width, gw_hip_form(segment, node->out));
}

static gw_status record_mix(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    const gw_tensor *gate = node->in[1];
    struct gw_more_mix_params p = {.step = gw_hip_step(segment),
                                   .in = gw_hip_at(node->in[0]),
                                   .gate = at_or_none(gate),
                                   .addend = at_or_none(node->in[2]),
                                   .factor = at_or_none(node->w[0]),
                                   .out = gw_hip_at(node->out),
                                   .width = (int32_t)gw_hip_width(node->out),
                                   .gates = gate != NULL ? (int32_t)gw_hip_width(gate) : 1,
                                   .gate_kind = (int32_t)node->args.mix.gate_act,
                                   .form = gw_hip_form(segment, node->out),
                                   .scale = node->args.mix.scale,
                                   .cap = node->args.mix.cap};
    if (gate != NULL && gate == segment->late_gate) {
        p.gate_kind = GW_ACT_SIGMOID;
    }
    p.factors = node->w[0] != NULL ? (int32_t)node->w[0]->dim[0] : 0;
    (void)kernel;
    return along_rows(segment, node, "gw_more_mix", gw_hip_width(node->out), &p, sizeof p);
}

static gw_status record_sparse(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    struct gw_more_sparse_params p = {.step = gw_hip_step(segment),
                                      .in = gw_hip_at(node->in[0]),
                                      .out = gw_hip_at(node->out),
                                      .width = (int32_t)gw_hip_width(node->out),
                                      .kind = (int32_t)node->args.sparse.act,
                                      .deviations = node->args.sparse.deviations};
    (void)kernel;
    return gw_hip_record(segment, node, "gw_more_sparse", (unsigned)segment->rows, 1, 1,
                         GW_MORE_THREADS, 1, 1, 0, &p, sizeof p);
}

/* ---- ROUTE ----------------------------------------------------------------------------------- */

static int accepts_route(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    return GW_ROUTE_SHARED(gw_hip_width(node->in[0])) <= (size_t)device->shared_bytes;
}

struct gw_route_params gw_hip_route_of(const gw_node *node) {
    const gw_route_args *a = &node->args.route;
    return (struct gw_route_params){.bias = at_or_none(node->w[0]),
                                    .factor = at_or_none(node->w[1]),
                                    .given = at_or_none(node->in[1]),
                                    .experts = (int32_t)gw_hip_width(node->in[0]),
                                    .used = a->used,
                                    .score = (int32_t)a->score,
                                    .groups = a->groups,
                                    .groups_used = a->groups_used,
                                    .group_best = a->group_best,
                                    .renorm = a->renorm,
                                    .scale = a->scale,
                                    .jitter = a->jitter};
}

static gw_status record_route(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    struct gw_more_route_params p = {.step = gw_hip_step(segment),
                                     .logits = gw_hip_at(node->in[0]),
                                     .out = gw_hip_at(node->out),
                                     .route = gw_hip_route_of(node)};
    (void)kernel;
    return gw_hip_record(segment, node, "gw_more_route", (unsigned)segment->rows, 1, 1,
                         GW_ROUTE_THREADS, 1, 1, (unsigned)GW_ROUTE_SHARED(p.route.experts), &p,
                         sizeof p);
}

/* clang-format off */
const gw_kernel gw_hip_more_kernels[] = {
    {GW_OP_EMBED, "hip.embed.more", accepts_embed, record_embed, NULL, 1},
    {GW_OP_PICK, "hip.pick.more", accepts_pick, record_pick, NULL, 1},
    {GW_OP_NORM, "hip.norm.more", accepts_norm, record_norm, NULL, 1},
    {GW_OP_ROPE_KV, "hip.rope_kv.more", accepts_rope_kv, record_rope_kv, NULL, 1},
    {GW_OP_ACT, "hip.act", accepts_rowwise, record_act, NULL, 1},
    {GW_OP_MIX, "hip.mix", accepts_rowwise, record_mix, NULL, 1},
    {GW_OP_SPARSE_GLU, "hip.sparse_glu", accepts_rowwise, record_sparse, NULL, 1},
    {GW_OP_ROUTE, "hip.route", accepts_route, record_route, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
