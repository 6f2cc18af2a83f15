/* backends/hip/experts.c - EXPERTS_GLU, EXPERTS_DOWN: nodes to launches. A few generated tokens of
 * quantized weights have a launch each, in which a shared expert has its part; many have their rows
 * sorted by expert, and so have prompts, a product at a time; what none of these takes, odd widths
 * and float weights, has a team for each number.
 */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "kernels_hip/experts/experts_params.h"
#include "kernels_hip/gemm/gemm_params.h"
#include "kernels_hip/strip.h"

enum { MOST_ENTRIES = 65535 /* of a grid */ };

typedef enum way { DECODE, MANY, SORTED, APART } way;

/* ---- what is accepted ------------------------------------------------------------------------ */

static int64_t rows_of(const gw_node *node) {
    return node->w[0]->dim[0] / node->args.experts.experts;
}

static int term_of(gw_fmt fmt) {
#define TERM(FORMAT, name, low, high, offset, levels, term, ...) [GW_FMT_##FORMAT] = term,
    static const int terms[GW_FMT_COUNT] = {GW_STRIP_FORMATS(TERM)};
#undef TERM
    return terms[fmt];
}

/* Shared memory of a block of gw_experts_gemm. */
static int gemm_shared(const struct gw_device *d, gw_fmt fmt) {
    int wide = gw_hip_is_wide(d);
    return GW_GEMM_SHARED(wide, GW_GEMM_WAVES_FEW, GW_EXPERTS_TOKENS, term_of(fmt),
                          gw_hip_record_bytes(fmt));
}

static int many_shared(const struct gw_device *d, const gw_tensor *w) {
    int records = (int)gw_hip_groups(gw_hip_width(w), GW_STRIP_FLOATS);
    return GW_EXPERTS_MANY_SHARED(d->warp, records, gw_hip_record_bytes(w->fmt));
}

/* Rows of a decode plan from which on an expert's weights, read once for all of its entries, make
 * up for the sort. */
static int takes_many(const gw_node *node, const struct gw_device *d) {
    return node->in[0]->dim[0] > GW_EXPERTS_FEW && gw_hip_has_matrices(d) &&
           node->args.experts.experts <= GW_EXPERTS_MOST &&
           many_shared(d, node->w[0]) <= d->shared_bytes;
}

static way way_of(const gw_node *node, const struct gw_device *d) {
    const gw_experts_args *a = &node->args.experts;
    int glu = node->op == GW_OP_EXPERTS_GLU, unit = glu ? GW_ACT_BLOCK : GW_STRIP_ROWS;
    int whole = rows_of(node) % unit == 0, pair = 1, fits = 1;
    for (int i = 0; i < 2 && node->w[i] != NULL && (glu || i == 0); i++) {
        pair = pair && node->w[i]->fmt == node->w[0]->fmt;
        fits = fits && gemm_shared(d, node->w[i]->fmt) <= d->shared_bytes;
    }
    if (gw_format_of(node->w[0]->fmt)->is_float || !whole) {
        return APART;
    }
    if (a->order == GW_ORDER_DECODE) {
        int room = glu || GW_EXPERTS_DOWN_SHARED(a->used + 1) <= d->shared_bytes;
        return pair && takes_many(node, d) ? MANY : pair && room ? DECODE : APART;
    }
    return gw_hip_has_matrices(d) && fits && a->experts <= GW_EXPERTS_MOST ? SORTED : APART;
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    const gw_experts_args *a = &node->args.experts;
    int glu = node->op == GW_OP_EXPERTS_GLU;
    int is_float = gw_format_of(node->w[0]->fmt)->is_float;
    (void)kernel;
    (void)device;
    for (int i = 0; i < (glu ? 2 : 1) && node->w[i] != NULL; i++) {
        if (node->w[i]->layout != GW_HIP_LAYOUT_STRIPS ||
            gw_hip_record_bytes(node->w[i]->fmt) == 0) {
            return 0;
        }
    }
    return node->in[0]->fmt == (is_float ? GW_FMT_F32 : GW_FMT_ACT8) &&
           node->in[0]->dim[0] * a->used <= MOST_ENTRIES &&
           (node->out->fmt == GW_FMT_F32 || rows_of(node) % GW_ACT_BLOCK == 0);
}

int gw_hip_experts_leave(const struct gw_segment *segment, const gw_node *node) {
    if (node->op != GW_OP_EXPERTS_DOWN || rows_of(node) % GW_ACT_BLOCK != 0) {
        return 0;
    }
    way how = way_of(node, segment->device);
    return how == DECODE || how == MANY;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void name_of(char *name, size_t room, const char *family, gw_fmt fmt) {
    snprintf(name, room, "gw_experts_%s_%s", family, gw_hip_kernels_of(fmt));
}

static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

static unsigned entries_of(const struct gw_segment *segment, const struct gw_experts_params *p) {
    return (unsigned)segment->rows * (unsigned)p->used;
}

/* Rows by expert, in memory of the segment, unless a node before had the same route. */
static gw_status sort(struct gw_segment *segment, const gw_node *node,
                      struct gw_experts_params *p) {
    unsigned entries = entries_of(segment, p);
    size_t list = padded(entries * sizeof(int32_t));
    size_t most = GW_EXPERTS_TILES(entries, (unsigned)p->experts, (unsigned)p->tokens);
    size_t bytes = 256 + list + most * sizeof(struct gw_experts_tile);
    int known = segment->sorted.of == node->in[1];
    for (int i = segment->sorted.node; i < segment->node && known; i++) {
        known = segment->nodes[i].out != node->in[1];
    }
    if (segment->sorted.bytes < bytes) {
        GW_TRY(gw_hip_private(segment, bytes, &segment->sorted.at));
        segment->sorted.bytes = bytes;
        known = 0;
    }
    p->n_tiles = segment->sorted.at;
    p->list = p->n_tiles + 256;
    p->tiles = p->list + list;
    if (known) {
        return GW_OK;
    }
    segment->sorted.of = node->in[1];
    segment->sorted.node = segment->node;
    return gw_hip_record(segment, node, "gw_experts_sort", 1, 1, 1, GW_EXPERTS_THREADS, 1, 1, 0, p,
                         sizeof *p);
}

/* A thread for each result: in the prefill order, and where results have a term a lane at most. */
static int is_each(const gw_node *node, const struct gw_experts_params *p, gw_fmt fmt) {
    int plain = fmt == GW_FMT_F32 || fmt == GW_FMT_F16 || fmt == GW_FMT_BF16;
    return plain && (node->args.experts.order == GW_ORDER_PREFILL || p->k <= GW_LANES);
}

/* The products of weight i to p->sums[i]; of sorted entries those of n weights of a format. */
static gw_status product(struct gw_segment *segment, const gw_node *node, way how,
                         const struct gw_experts_params *of, int i, int n) {
    struct gw_experts_params one = *of, *p = &one;
    gw_fmt fmt = node->w[i]->fmt;
    unsigned entries = entries_of(segment, p);
    char name[64];
    for (int j = 0; j < n; j++) {
        p->w[j] = of->w[i + j];
        p->bias[j] = of->bias[i + j];
        p->sums[j] = of->sums[i + j];
    }
    if (how == APART) {
        int each = is_each(node, p, fmt);
        size_t numbers = each ? (size_t)entries * (size_t)p->m : (size_t)p->m;
        size_t of_block = each ? GW_EXPERTS_THREADS : GW_EXPERTS_THREADS / GW_LANES;
        name_of(name, sizeof name, each ? "each" : "sum", fmt);
        return gw_hip_record(segment, node, name, gw_hip_groups(numbers, of_block),
                             each ? 1 : entries, 1, GW_EXPERTS_THREADS, 1, 1, 0, p, sizeof *p);
    }
    name_of(name, sizeof name, "gemm", fmt);
    return gw_hip_record(segment, node, name,
                         GW_EXPERTS_TILES(entries, (unsigned)p->experts, (unsigned)p->tokens),
                         gw_hip_groups((size_t)p->m, GW_GEMM_WAVES_FEW * GW_STRIP_ROWS),
                         (unsigned)n, (unsigned)(GW_GEMM_WAVES_FEW * segment->device->warp), 1, 1,
                         (unsigned)gemm_shared(segment->device, fmt), p, sizeof *p);
}

static struct gw_experts_params params_of(struct gw_segment *segment, const gw_node *node) {
    const gw_experts_args *a = &node->args.experts;
    int glu = node->op == GW_OP_EXPERTS_GLU;
    struct gw_experts_params p = {.step = gw_hip_step(segment),
                                  .x = gw_hip_at(node->in[0]),
                                  .route = gw_hip_at(node->in[1]),
                                  .y = gw_hip_at(node->out),
                                  .k = (int32_t)gw_hip_width(node->w[0]),
                                  .m = (int32_t)rows_of(node),
                                  .used = a->used,
                                  .experts = a->experts,
                                  .by_entry = !glu,
                                  .prefill = a->order == GW_ORDER_PREFILL,
                                  .gate_input = a->gate_input,
                                  .kind = (int32_t)a->act.kind,
                                  .form = gw_hip_form(segment, node->out),
                                  .limit = a->act.limit,
                                  .alpha = a->act.alpha};
    int n = glu ? 2 : 1;
    for (int i = 0; i < n; i++) {
        p.w[i] = node->w[i] != NULL ? gw_hip_at(node->w[i]) : 0;
        p.bias[i] = node->w[n + i] != NULL ? gw_hip_at(node->w[n + i]) : 0;
    }
    p.addend = !glu && node->in[2] != NULL ? gw_hip_at(node->in[2]) : 0;
    return p;
}

static int blocks_of(int64_t n) { return (int)(n / GW_ACT_BLOCK); }

static int records_of(int64_t n) {
    return (int)gw_hip_groups((size_t)blocks_of(n), GW_STRIP_BLOCKS);
}

/* Of a block of gw_experts_down: as many waves as its pieces keep busy in the same number of turns;
 * half of them where a multiprocessor would have a second block only after its first one. */
static unsigned down_waves(const struct gw_device *d, const struct gw_experts_params *p,
                           unsigned rows) {
    int each = records_of(p->k), own = p->own[0] != 0 ? records_of(p->own_n) : 0;
    each = each < GW_EXPERTS_CLASSES ? each : GW_EXPERTS_CLASSES;
    own = own < GW_EXPERTS_CLASSES ? own : GW_EXPERTS_CLASSES;
    size_t pieces = (size_t)(p->used * each + own), most = GW_EXPERTS_DOWN_MOST((size_t)d->warp);
    most = (size_t)p->m / GW_STRIP_ROWS * rows > (size_t)d->units ? most / 2 : most;
    return gw_hip_groups(pieces, gw_hip_groups(pieces, most));
}

static gw_status record_decode(struct gw_segment *segment, const gw_node *node,
                               struct gw_experts_params *p) {
    const struct gw_device *d = segment->device;
    int glu = node->op == GW_OP_EXPERTS_GLU, shared = p->own[0] != 0;
    unsigned rows = (unsigned)segment->rows;
    char name[64];
    name_of(name, sizeof name, glu ? "glu" : "down", node->w[0]->fmt);
    if (glu) {
        unsigned across = (unsigned)(p->m > p->own_n ? p->m : p->own_n) / GW_ACT_BLOCK;
        return gw_hip_record(segment, node, name, across,
                             entries_of(segment, p) + (shared ? rows : 0), 1,
                             (unsigned)(GW_EXPERTS_GLU_WAVES * d->warp), 1, 1, 0, p, sizeof *p);
    }
    unsigned waves = down_waves(d, p, rows);
    return gw_hip_record(segment, node, name, (unsigned)p->m / GW_STRIP_ROWS, rows, 1,
                         waves * (unsigned)d->warp, 1, 1,
                         (unsigned)GW_EXPERTS_DOWN_SHARED(p->used + shared), p, sizeof *p);
}

/* Strips of a wave: some 24 kB of weights, in front of which stand the rows of x. */
static int strips_of_wave(const struct gw_device *d, const gw_node *node) {
    enum { BYTES = 24576, MOST = 8 };
    size_t records = gw_hip_groups(gw_hip_width(node->w[0]), GW_STRIP_FLOATS);
    size_t strip = records * (size_t)gw_hip_record_bytes(node->w[0]->fmt), n = BYTES / strip;
    size_t all = (size_t)rows_of(node) / GW_STRIP_ROWS,
           waves = (size_t)(GW_EXPERTS_THREADS / d->warp);
    size_t most = gw_hip_groups(all, waves);
    most = most < MOST ? most : MOST;
    return n < 1 ? 1 : n < most ? (int)n : (int)most;
}

/* Entries sorted by expert, in the decode order. */
static gw_status record_many(struct gw_segment *segment, const gw_node *node,
                             struct gw_experts_params *p) {
    const struct gw_device *d = segment->device;
    int glu = node->op == GW_OP_EXPERTS_GLU;
    unsigned entries = entries_of(segment, p), rows = (unsigned)segment->rows;
    char name[64];
    p->tokens = GW_EXPERTS_MANY;
    p->each = glu ? 1 : strips_of_wave(d, node);
    name_of(name, sizeof name, glu ? "many_glu" : "many_down", node->w[0]->fmt);
    GW_TRY(sort(segment, node, p));
    if (!glu) {
        GW_TRY(
            gw_hip_scratch(segment, (size_t)entries * (size_t)p->m * sizeof(float), &p->sums[0]));
    }
    size_t of_block = (size_t)(GW_EXPERTS_THREADS / d->warp * p->each) * GW_STRIP_ROWS;
    GW_TRY(gw_hip_record(segment, node, name,
                         GW_EXPERTS_TILES(entries, (unsigned)p->experts, (unsigned)p->tokens),
                         gw_hip_groups((size_t)p->m, of_block), 1, GW_EXPERTS_THREADS, 1, 1,
                         (unsigned)many_shared(d, node->w[0]), p, sizeof *p));
    return glu ? GW_OK
               : gw_hip_record(segment, node, "gw_experts_join",
                               gw_hip_groups((size_t)p->m, GW_EXPERTS_THREADS), rows, 1,
                               GW_EXPERTS_THREADS, 1, 1, 0, p, sizeof *p);
}

/* What the norm behind a sum of experts is left, in a plan where that has no launch. */
static gw_status leave_norm(struct gw_segment *segment, struct gw_experts_params *p) {
    if (segment->behind == NULL) {
        return GW_OK;
    }
    p->behind = gw_hip_at(segment->behind->w[0]);
    GW_TRY(gw_hip_norm_memory(segment, segment->behind, &p->left, &p->left_squares, &p->left_form,
                              &p->left_blocks));
    return gw_hip_counters(segment, (size_t)segment->rows * (size_t)(p->m / GW_ACT_BLOCK),
                           &p->arrived);
}

static gw_status record_experts(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const struct gw_device *d = segment->device;
    struct gw_experts_params p = params_of(segment, node);
    way how = way_of(node, d);
    int glu = node->op == GW_OP_EXPERTS_GLU, n = glu && node->w[1] != NULL ? 2 : 1;
    unsigned entries = entries_of(segment, &p),
             across = gw_hip_groups((size_t)p.m, GW_EXPERTS_THREADS);
    (void)kernel;
    GW_TRY(leave_norm(segment, &p));
    if (how == DECODE) {
        return record_decode(segment, node, &p);
    }
    if (how == MANY) {
        return record_many(segment, node, &p);
    }
    size_t bytes = padded((size_t)entries * (size_t)p.m * sizeof(float));
    p.tokens = GW_EXPERTS_TOKENS;
    GW_TRY(gw_hip_scratch(segment, (size_t)n * bytes, &p.sums[0]));
    p.sums[1] = p.sums[0] + bytes;
    if (how == SORTED) {
        GW_TRY(sort(segment, node, &p));
    }
    int together = how == SORTED && n == 2 && node->w[0]->fmt == node->w[1]->fmt ? 2 : 1;
    for (int i = 0; i < n; i += together) {
        GW_TRY(product(segment, node, how, &p, i, together));
    }
    return gw_hip_record(segment, node, glu ? "gw_experts_act" : "gw_experts_join", across,
                         glu ? entries : (unsigned)segment->rows, 1, GW_EXPERTS_THREADS, 1, 1, 0,
                         &p, sizeof p);
}

/* ---- a shared expert ------------------------------------------------------------------------- */

enum { S_GLU, S_DOWN, E_GLU, E_DOWN, MIX, SHARED_NODES };

/* Plain products of the same rows and format as the experts', the second of the first's result. */
static int are_shared(const gw_node *nodes) {
    const gw_node *glu = &nodes[S_GLU], *down = &nodes[S_DOWN], *first = &nodes[E_GLU],
                  *last = &nodes[E_DOWN];
    if (glu->op != GW_OP_GLU || down->op != GW_OP_LINEAR || first->op != GW_OP_EXPERTS_GLU ||
        last->op != GW_OP_EXPERTS_DOWN || last->in[0] != first->out) {
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (glu->w[i]->fmt != first->w[0]->fmt || glu->w[i]->layout != GW_HIP_LAYOUT_STRIPS) {
            return 0;
        }
    }
    return glu->in[0] == first->in[0] && glu->in[0]->fmt == GW_FMT_ACT8 &&
           glu->args.linear.order == GW_ORDER_DECODE && down->in[0] == glu->out &&
           down->args.linear.order == GW_ORDER_DECODE && down->in[1] == NULL &&
           down->w[1] == NULL && down->w[3] == NULL && down->w[0]->fmt == last->w[0]->fmt &&
           down->w[0]->layout == GW_HIP_LAYOUT_STRIPS && glu->out->fmt == GW_FMT_ACT8 &&
           glu->w[0]->dim[0] % GW_ACT_BLOCK == 0 && down->out->fmt == GW_FMT_F32 &&
           gw_hip_width(down->out) == gw_hip_width(last->out);
}

/* Stream and result of the experts plus the shared one's times a number a row. */
static int mixes(const gw_node *mix, const gw_node *shared, const gw_node *experts) {
    const gw_mix_args *a = &mix->args.mix;
    return mix->op == GW_OP_MIX && mix->in[0] == shared->out && mix->in[1] != NULL &&
           gw_hip_width(mix->in[1]) == 1 && mix->in[1]->fmt == GW_FMT_F32 &&
           mix->in[2] == experts->out && mix->w[0] == NULL && a->scale == 0.0f && a->cap == 0.0f &&
           a->gate_act == GW_ACT_NONE && mix->out->fmt == GW_FMT_F32;
}

size_t gw_hip_shared_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    const struct gw_device *d = segment->device;
    if (n < SHARED_NODES || d->no_fuse || !are_shared(nodes) ||
        !mixes(&nodes[MIX], &nodes[S_DOWN], &nodes[E_DOWN]) || way_of(&nodes[E_GLU], d) != DECODE ||
        way_of(&nodes[E_DOWN], d) != DECODE) {
        return 0;
    }
    for (int i = 0; i < (int)SHARED_NODES; i++) {
        if (nodes[i].crosses && i != MIX) {
            return 0;
        }
    }
    const gw_node *next = &nodes[SHARED_NODES];
    size_t left = n - SHARED_NODES;
    const gw_tensor *y = nodes[E_DOWN].out, *in = nodes[E_DOWN].in[2];
    /* Blocks write the sum while others may still read what they add to. */
    int in_place = in == NULL || y == in || gw_hip_same_place(nodes[MIX].out, in) ||
                   gw_hip_disjoint(nodes[MIX].out, in);
    return in_place && !gw_hip_is_read(nodes[S_GLU].out, next, left) &&
                   !gw_hip_is_read(nodes[S_DOWN].out, next, left) &&
                   (gw_hip_same_place(y, nodes[MIX].out) || !gw_hip_is_read(y, next, left))
               ? SHARED_NODES
               : 0;
}

gw_status gw_hip_record_shared(struct gw_segment *segment, const gw_node *nodes, size_t n) {
    struct gw_experts_params glu = params_of(segment, &nodes[E_GLU]),
                             down = params_of(segment, &nodes[E_DOWN]);
    const gw_node *mix = &nodes[MIX];
    size_t hidden = gw_hip_width(nodes[S_GLU].out);
    segment->behind = gw_hip_can_leave_norm(segment, mix, n - MIX) ? &nodes[SHARED_NODES] : NULL;
    GW_TRY(leave_norm(segment, &down));
    GW_TRY(gw_hip_scratch(segment, (size_t)segment->rows * hidden / GW_ACT_BLOCK * sizeof(gw_act8),
                          &glu.own_y));
    for (int i = 0; i < 2; i++) {
        glu.own[i] = gw_hip_at(nodes[S_GLU].w[i]);
    }
    down.own[0] = gw_hip_at(nodes[S_DOWN].w[0]);
    down.own_y = glu.own_y;
    down.own_n = glu.own_n = (int32_t)hidden;
    down.own_gate = gw_hip_at(mix->in[1]);
    down.y = gw_hip_at(mix->out);
    segment->node += E_GLU;
    GW_TRY(record_decode(segment, &nodes[E_GLU], &glu));
    segment->node += E_DOWN - E_GLU;
    GW_TRY(record_decode(segment, &nodes[E_DOWN], &down));
    segment->node += MIX - E_DOWN;
    return GW_OK;
}

/* clang-format off */
const gw_kernel gw_hip_experts_kernels[] = {
    {GW_OP_EXPERTS_GLU, "hip.experts_glu", accepts, record_experts, NULL, 1},
    {GW_OP_EXPERTS_DOWN, "hip.experts_down", accepts, record_experts, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
