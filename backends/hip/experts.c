/* backends/hip/experts.c - EXPERTS_GLU, EXPERTS_DOWN: nodes to launches. Generated tokens of
 * quantized weights have a launch each; prompts have rows sorted by expert and a product at a time;
 * what neither takes, odd widths and float weights, has a team for each number.
 */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "kernels_hip/experts/experts_params.h"
#include "kernels_hip/gemm/gemm_params.h"
#include "kernels_hip/strip.h"

enum { MOST_ENTRIES = 65535 /* of a grid */ };

typedef enum way { DECODE, SORTED, APART } way;

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
    int wide = d->warp == 32;
    return GW_GEMM_SHARED(wide, GW_GEMM_WAVES_FEW, GW_EXPERTS_TOKENS, term_of(fmt),
                          gw_hip_record_bytes(fmt));
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
        int room = glu || GW_EXPERTS_DOWN_SHARED(a->used) <= d->shared_bytes;
        return pair && room ? DECODE : APART;
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
    return node->op == GW_OP_EXPERTS_DOWN && way_of(node, segment->device) == DECODE &&
           rows_of(node) % GW_ACT_BLOCK == 0;
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
    size_t most = GW_EXPERTS_TILES(entries, (unsigned)p->experts);
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

/* The products of weight i to p->sums[i]. */
static gw_status product(struct gw_segment *segment, const gw_node *node, way how,
                         const struct gw_experts_params *of, int i) {
    struct gw_experts_params one = *of, *p = &one;
    gw_fmt fmt = node->w[i]->fmt;
    unsigned entries = entries_of(segment, p);
    char name[64];
    p->w[0] = of->w[i];
    p->bias[0] = of->bias[i];
    p->sums[0] = of->sums[i];
    if (how == APART) {
        name_of(name, sizeof name, "sum", fmt);
        return gw_hip_record(segment, node, name,
                             gw_hip_groups((size_t)p->m, GW_EXPERTS_THREADS / GW_LANES), entries, 1,
                             GW_EXPERTS_THREADS, 1, 1, 0, p, sizeof *p);
    }
    name_of(name, sizeof name, "gemm", fmt);
    return gw_hip_record(segment, node, name,
                         (unsigned)GW_EXPERTS_TILES(entries, (unsigned)p->experts),
                         gw_hip_groups((size_t)p->m, GW_GEMM_WAVES_FEW * GW_STRIP_ROWS), 1,
                         (unsigned)(GW_GEMM_WAVES_FEW * segment->device->warp), 1, 1,
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

static gw_status record_experts(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const struct gw_device *d = segment->device;
    struct gw_experts_params p = params_of(segment, node);
    way how = way_of(node, d);
    int glu = node->op == GW_OP_EXPERTS_GLU, n = glu && node->w[1] != NULL ? 2 : 1;
    unsigned entries = entries_of(segment, &p),
             across = gw_hip_groups((size_t)p.m, GW_EXPERTS_THREADS);
    char name[64];
    (void)kernel;
    if (segment->behind != NULL) {
        p.behind = gw_hip_at(segment->behind->w[0]);
        GW_TRY(gw_hip_norm_memory(segment, segment->behind, &p.left, &p.left_squares, &p.left_form,
                                  &p.left_blocks));
        GW_TRY(gw_hip_counters(segment, (size_t)segment->rows * (size_t)(p.m / GW_ACT_BLOCK),
                               &p.arrived));
    }
    if (how == DECODE) {
        name_of(name, sizeof name, glu ? "glu" : "down", node->w[0]->fmt);
        return gw_hip_record(
            segment, node, name, (unsigned)(p.m / (glu ? GW_ACT_BLOCK : (int)GW_STRIP_ROWS)),
            glu ? entries : (unsigned)segment->rows, 1,
            (unsigned)((glu ? 2 : GW_EXPERTS_AT_ONCE(d->warp)) * GW_EXPERTS_CLASSES * d->warp), 1,
            1, glu ? 0 : (unsigned)GW_EXPERTS_DOWN_SHARED(p.used), &p, sizeof p);
    }
    size_t bytes = padded((size_t)entries * (size_t)p.m * sizeof(float));
    GW_TRY(gw_hip_scratch(segment, (size_t)n * bytes, &p.sums[0]));
    p.sums[1] = p.sums[0] + bytes;
    if (how == SORTED) {
        GW_TRY(sort(segment, node, &p));
    }
    for (int i = 0; i < n; i++) {
        GW_TRY(product(segment, node, how, &p, i));
    }
    return gw_hip_record(segment, node, glu ? "gw_experts_act" : "gw_experts_join", across,
                         glu ? entries : (unsigned)segment->rows, 1, GW_EXPERTS_THREADS, 1, 1, 0,
                         &p, sizeof p);
}

/* clang-format off */
const gw_kernel gw_hip_experts_kernels[] = {
    {GW_OP_EXPERTS_GLU, "hip.experts_glu", accepts, record_experts, NULL, 1},
    {GW_OP_EXPERTS_DOWN, "hip.experts_down", accepts, record_experts, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
