/* backends/hip/adapters.c - products of adapters, EXPERTS_GLU and EXPERTS_DOWN of a rank: a launch
 * each for rows in any number; for one row, both in the launch of the product they belong to. And
 * EXPERTS_LORA_A and _B, those of experts.
 */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "kernels_hip/experts/adapters_params.h"
#include "kernels_hip/linear/linear_params.h"
#include "kernels_hip/strip.h"

enum { FEW = 64 /* rows up to which tiles are of few */ };

/* ---- A --------------------------------------------------------------------------------------- */

static int is_adapter(const gw_node *node) {
    return node->args.experts.rank > 0 && node->args.experts.order == GW_ORDER_DECODE &&
           node->w[0]->fmt == GW_FMT_F32 && node->in[0]->fmt == GW_FMT_F32;
}

static int accepts_a(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    const gw_experts_args *a = &node->args.experts;
    (void)kernel;
    (void)device;
    return is_adapter(node) && node->w[0]->layout == GW_HIP_LAYOUT_STRIPS && node->w[1] == NULL &&
           node->w[2] == NULL && a->act.kind == GW_ACT_NONE && !a->gate_input &&
           node->out->fmt == GW_FMT_F32 && a->experts <= 65535;
}

static gw_status record_a(struct gw_segment *segment, const gw_kernel *kernel,
                          const gw_node *node) {
    const gw_experts_args *a = &node->args.experts;
    size_t entries = (size_t)segment->rows * (size_t)a->used;
    struct gw_lora_a_params p = {.step = gw_hip_step(segment),
                                 .x = gw_hip_at(node->in[0]),
                                 .route = gw_hip_at(node->in[1]),
                                 .a = gw_hip_at(node->w[0]),
                                 .y = gw_hip_at(node->out),
                                 .k = (int32_t)gw_hip_width(node->w[0]),
                                 .n = (int32_t)(node->w[0]->dim[0] / a->experts),
                                 .used = a->used};
    int shared = GW_LORA_FEW_SHARED(p.k);
    int few = segment->rows <= FEW && p.k % GW_ACT_BLOCK == 0 && p.n % GW_LORA_FEW_A == 0 &&
              shared + 1024 <= segment->device->shared_bytes;
    int tile = few ? GW_LORA_FEW : GW_LORA_GROUPS * GW_LORA_MANY;
    unsigned across = gw_hip_groups((size_t)p.n, few ? GW_LORA_FEW_A : GW_STRIP_ROWS);
    (void)kernel;
    /* A row has an adapter once at most. */
    p.tiles = (int32_t)gw_hip_groups((size_t)segment->rows, (size_t)tile);
    GW_TRY(
        gw_hip_scratch(segment, entries * (size_t)p.n * GW_LORA_CLASSES * sizeof(float), &p.sums));
    GW_TRY(gw_hip_counters(segment, (size_t)a->experts * across * (size_t)p.tiles, &p.count));
    return gw_hip_record(segment, node, few ? "gw_lora_a_rows" : "gw_lora_a_tile",
                         (unsigned)p.tiles * GW_LORA_CLASSES, across, (unsigned)a->experts,
                         few ? GW_LORA_FEW_THREADS : GW_LORA_A_THREADS, 1, 1,
                         few ? (unsigned)shared : 0, &p, sizeof p);
}

/* ---- B --------------------------------------------------------------------------------------- */

static int accepts_b(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    const gw_experts_args *a = &node->args.experts;
    (void)kernel;
    (void)device;
    return is_adapter(node) && node->w[0]->layout == GW_LAYOUT_ROWS && node->w[1] == NULL &&
           !a->gate_input && a->used <= 4 &&
           (a->rank % GW_LANES == 0 || a->rank == 8 || a->rank == 16);
}

static gw_status record_b(struct gw_segment *segment, const gw_kernel *kernel,
                          const gw_node *node) {
    const gw_experts_args *a = &node->args.experts;
    struct gw_lora_b_params p = {.step = gw_hip_step(segment),
                                 .a = gw_hip_at(node->in[0]),
                                 .route = gw_hip_at(node->in[1]),
                                 .b = gw_hip_at(node->w[0]),
                                 .addend = node->in[2] != NULL ? gw_hip_at(node->in[2]) : 0,
                                 .y = gw_hip_at(node->out),
                                 .m = (int32_t)(node->w[0]->dim[0] / a->experts),
                                 .wide = (int32_t)gw_hip_width(node->w[0]),
                                 .rank = a->rank,
                                 .used = a->used,
                                 .rows =
                                     segment->rows <= FEW ? GW_LORA_B_ROWS / 2 : GW_LORA_B_ROWS};
    char name[32];
    (void)kernel;
    int whole = p.m % GW_LORA_B_COLUMNS == 0 && a->rank <= GW_LANES && a->used <= 4 &&
                p.wide <= 3 * a->rank;
    for (int k = 0; k < 3; k++) {
        p.end[k] = a->end[k];
        p.part[k] = a->part[k];
        whole = whole && a->end[k] % GW_LORA_B_COLUMNS == 0;
    }
    size_t of_block = (size_t)GW_LORA_B_THREADS * (whole ? GW_LORA_B_COLUMNS : 1);
    if (whole) {
        snprintf(name, sizeof name, "gw_lora_b_%d", a->rank);
    } else {
        snprintf(name, sizeof name, "gw_lora_b_more");
    }
    return gw_hip_record(segment, node, name, gw_hip_groups((size_t)p.m, of_block),
                         gw_hip_groups((size_t)segment->rows, (size_t)p.rows), 1, GW_LORA_B_THREADS,
                         1, 1, 0, &p, sizeof p);
}

/* ---- one row --------------------------------------------------------------------------------- */

/* A product of one row and its adapters. */
typedef struct adapted {
    const gw_node *encode; /* a QUANTIZE of x in front of the product, or NULL */
    const gw_node *product, *a, *b;
    const gw_node *act;    /* of gate and up, or NULL                      */
    const gw_node *blocks; /* a QUANTIZE of that, or NULL                  */
    size_t taken;          /* nodes; 0: there is none                      */
} adapted;

static int is_glu(const gw_node *product, const gw_node *act) {
    const gw_act_args *a = &act->args.act;
    return act->op == GW_OP_ACT && a->gated && a->kind == GW_ACT_SILU && a->limit == 0.0f &&
           act->w[0] == NULL && product->w[1] != NULL && product->w[2] == NULL &&
           product->w[3] == NULL && product->w[4] == NULL && product->in[1] == NULL &&
           product->w[0]->fmt == product->w[1]->fmt &&
           product->w[0]->dim[0] == product->w[1]->dim[0] &&
           product->w[0]->dim[0] % GW_ACT_BLOCK == 0;
}

/* Is it LINEAR and the two products of its adapters, with which the rest that is left can do? */
static int is_adapted(const adapted *t, const gw_node *rest, size_t left) {
    const gw_node *product = t->product, *a = t->a, *b = t->b;
    return product->op == GW_OP_LINEAR && a->op == GW_OP_EXPERTS_GLU &&
           b->op == GW_OP_EXPERTS_DOWN && a->kernel->record == record_a &&
           b->kernel->record == record_b && b->in[0] == a->out && b->in[2] == product->out &&
           a->args.experts.rank <= 16 && !product->crosses && !a->crosses &&
           gw_hip_width(a->in[0]) % GW_ACT_BLOCK == 0 &&
           gw_hip_width(a->in[0]) == gw_hip_width(product->in[0]) &&
           gw_hip_width(product->out) == gw_hip_width(b->out) &&
           !gw_hip_is_read(a->out, rest, left) &&
           (b->out == product->out || gw_hip_same_place(b->out, product->out) ||
            !gw_hip_is_read(product->out, rest, left));
}

/* A QUANTIZE of what the adapters read and nobody else does in blocks. */
static int encodes(const gw_node *nodes, size_t n) {
    return n > 3 && nodes[0].op == GW_OP_QUANTIZE && nodes[0].w[0] == NULL && !nodes[0].crosses &&
           nodes[1].op == GW_OP_LINEAR && nodes[1].w[1] == NULL && nodes[1].in[0] == nodes[0].out &&
           nodes[2].op == GW_OP_EXPERTS_GLU && nodes[2].in[0] == nodes[0].in[0] &&
           !gw_hip_is_read(nodes[0].out, nodes + 2, n - 2);
}

/* Thread blocks write while others still read. normed: what they read is a norm's input. */
static int is_free(const adapted *t, const gw_tensor *out) {
    return out == NULL || (gw_hip_disjoint(out, t->a->in[0]) &&
                           (t->encode != NULL || gw_hip_disjoint(out, t->product->in[0])));
}

/* normed: what it reads is a norm of something that is not written meanwhile. */
static adapted find(const struct gw_segment *segment, const gw_node *nodes, size_t n, int normed) {
    const adapted none = {.taken = 0};
    if (segment->rows != 1 || n < 3) {
        return none;
    }
    const int more = !normed && encodes(nodes, n);
    adapted t = {.encode = more ? nodes : NULL,
                 .product = nodes + more,
                 .a = nodes + more + 1,
                 .b = nodes + more + 2,
                 .taken = 3 + (size_t)more};
    const gw_node *next = nodes + t.taken;
    size_t left = n - t.taken;
    if (!is_adapted(&t, next, left)) {
        return none;
    }
    if (!more && left > 0 && is_glu(t.product, next) && next->in[0] == t.b->out && !t.b->crosses &&
        !gw_hip_is_read(t.b->out, next + 1, left - 1)) {
        t.act = next;
        int quantized = left > 1 && next[1].op == GW_OP_QUANTIZE && next[1].w[0] == NULL &&
                        next[1].in[0] == t.act->out && t.act->out->fmt == GW_FMT_F32;
        t.blocks = quantized ? next + 1 : NULL;
        t.taken += quantized ? 2 : 1;
    }
    const gw_tensor *out = t.act != NULL ? t.act->out : t.b->out;
    if (!normed && (!is_free(&t, out) || !is_free(&t, t.blocks != NULL ? t.blocks->out : NULL))) {
        return none;
    }
    return gw_hip_can_adapt(segment, t.product, t.act != NULL, more, gw_hip_width(t.a->out)) ? t
                                                                                             : none;
}

/* Two norms of one thing: as floats for the adapters, and in blocks for the product after them. */
static int are_norms(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    const gw_node *floats = &nodes[0], *blocks = &nodes[1];
    if (n < 5 || segment->device->no_fuse || segment->norm != NULL || floats->op != GW_OP_NORM ||
        blocks->op != GW_OP_NORM || floats->in[0] != blocks->in[0] ||
        floats->w[0] != blocks->w[0] || floats->out->fmt != GW_FMT_F32 ||
        blocks->out->fmt != GW_FMT_ACT8 || !gw_op_is_plain(floats) || !gw_op_is_plain(blocks) ||
        floats->crosses || blocks->crosses) {
        return 0;
    }
    adapted t = find(segment, nodes + 2, n - 2, 1);
    const gw_node *rest = nodes + 2 + t.taken;
    size_t left = t.taken > 0 ? n - 2 - t.taken : 0;
    return t.taken > 0 && t.a->in[0] == floats->out && t.product->in[0] == blocks->out &&
           gw_hip_takes_norm(segment, blocks, t.product) &&
           gw_hip_disjoint(t.act != NULL ? t.act->out : t.b->out, floats->in[0]) &&
           (t.blocks == NULL || gw_hip_disjoint(t.blocks->out, floats->in[0])) &&
           !gw_hip_is_read(floats->out, rest, left) && !gw_hip_is_read(blocks->out, rest, left);
}

int gw_hip_can_fuse_norms(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    return n > 5 && gw_hip_has_norm(segment, &nodes[0], &nodes[1]) &&
           are_norms(segment, nodes + 1, n - 1);
}

static int is_normed(const struct gw_segment *segment, const gw_node *nodes) {
    return segment->norm != NULL && segment->unmade != NULL && nodes[0].op == GW_OP_LINEAR &&
           segment->unmade + 1 == segment->norm && nodes[0].in[0] == segment->norm->out;
}

size_t gw_hip_adapted_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    int normed = is_normed(segment, nodes);
    return segment->norm != NULL && !normed ? 0 : find(segment, nodes, n, normed).taken;
}

/* The norm after a product of one matrix that is to be fused into it, or NULL; one as floats in
 * front of that is not made. */
static const gw_node *next_norm(struct gw_segment *segment, const adapted *t, const gw_node *norm,
                                size_t n) {
    if (t->act != NULL || t->product->w[1] != NULL || n < 2 || segment->norm != NULL) {
        return NULL;
    }
    if (gw_hip_can_leave_norm(segment, t->b, n + 1)) {
        return norm;
    }
    if (norm->op != GW_OP_NORM || !gw_op_is_plain(norm) || norm->in[0] != t->b->out ||
        norm->w[0]->fmt != GW_FMT_F32 || gw_hip_width(t->b->out) % GW_ACT_BLOCK != 0 ||
        !are_norms(segment, norm, n)) {
        return NULL;
    }
    segment->unmade = norm;
    return norm + 1;
}

gw_status gw_hip_record_adapters(struct gw_segment *segment, const gw_node *nodes, size_t n) {
    int normed = is_normed(segment, nodes);
    adapted t = find(segment, nodes, n, normed);
    const gw_experts_args *a = &t.a->args.experts;
    const gw_node *floats = normed ? segment->unmade : NULL;
    struct gw_linear_lora l = {.x = gw_hip_at(normed ? floats->in[0] : t.a->in[0]),
                               .weight = normed ? gw_hip_at(floats->w[0]) : 0,
                               .route = gw_hip_at(t.a->in[1]),
                               .a = gw_hip_at(t.a->w[0]),
                               .b = gw_hip_at(t.b->w[0]),
                               .kept = t.blocks != NULL ? gw_hip_at(t.act->out) : 0,
                               .k = (int32_t)gw_hip_width(t.a->w[0]),
                               .used = a->used,
                               .rank = a->rank,
                               .rows = (int32_t)(t.a->w[0]->dim[0] / a->experts),
                               .m = (int32_t)(t.b->w[0]->dim[0] / a->experts),
                               .wide = (int32_t)gw_hip_width(t.b->w[0]),
                               .alone = segment->device->driver->emulated,
                               .floats = t.encode != NULL};
    for (int k = 0; k < 3; k++) {
        l.part[k] = t.b->args.experts.part[k] < 0 ? -1 : t.b->args.experts.part[k] * a->rank;
        l.row[k] = k > 0 ? t.b->args.experts.end[k - 1] : 0;
    }
    size_t values = (size_t)l.used * (size_t)l.rows;
    GW_TRY(gw_hip_counters(segment, 1 + 2 * values * GW_LORA_CLASSES + 3, &l.count));
    l.sums = l.count + 4 * sizeof(uint32_t); /* pairs of words, two at a time */
    segment->behind = next_norm(segment, &t, nodes + t.taken, n - t.taken);
    const gw_tensor *y = t.blocks != NULL ? t.blocks->out : t.act != NULL ? t.act->out : t.b->out;
    return gw_hip_record_adapted(segment, t.product, y, t.act != NULL, &l);
}

/* ---- of experts ------------------------------------------------------------------------------ */

static int accepts_expert(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS;
}

static gw_status record_expert(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    const gw_tensor *w = node->w[0];
    int is_a = node->op == GW_OP_EXPERTS_LORA_A;
    struct gw_lora_expert_params p = {.step = gw_hip_step(segment),
                                      .x = gw_hip_at(node->in[0]),
                                      .route = gw_hip_at(node->in[1]),
                                      .adapters = gw_hip_at(node->in[2]),
                                      .w = gw_hip_at(w),
                                      .addend = is_a ? 0 : gw_hip_at(node->in[3]),
                                      .y = gw_hip_at(node->out),
                                      .m = (int32_t)(w->dim[0] / a->places / a->experts),
                                      .k = (int32_t)gw_hip_width(w),
                                      .used = a->used,
                                      .at_once = a->at_once,
                                      .experts = a->experts,
                                      .own = gw_hip_width(node->in[0]) > gw_hip_width(w),
                                      .sum = a->sum,
                                      .gated = a->gated};
    (void)kernel;
    return gw_hip_record(segment, node, is_a ? "gw_lora_expert_a" : "gw_lora_expert_b",
                         gw_hip_groups(gw_hip_width(node->out), GW_LORA_EXPERT_TEAMS),
                         (unsigned)segment->rows, 1, GW_LORA_EXPERT_THREADS, 1, 1, 0, &p, sizeof p);
}

/* clang-format off */
const gw_kernel gw_hip_adapters_kernels[] = {
    {GW_OP_EXPERTS_LORA_A, "hip.experts_lora_a", accepts_expert, record_expert, NULL, 1},
    {GW_OP_EXPERTS_LORA_B, "hip.experts_lora_b", accepts_expert, record_expert, NULL, 1},
    {GW_OP_EXPERTS_GLU, "hip.lora_a", accepts_a, record_a, NULL, 1},
    {GW_OP_EXPERTS_DOWN, "hip.lora_b", accepts_b, record_b, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
