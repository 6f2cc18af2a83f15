/* backends/hip/linear.c - LINEAR and GLU in the decode order: nodes to launches, one per run of
 * stacked weights of one format. What a weight's format and the plan's rows ask for decides the
 * kernel: dot products for one row, matrix instructions for several where the device has them.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "core/tensor/blocks.h"
#include "kernels_hip/linear/linear_params.h"
#include "kernels_hip/rows/rows_params.h"
#include "kernels_hip/strip.h"

enum { PARTS = GW_LINEAR_PARTS, CLUSTER = 2 /* blocks that share rows of x as they come */ };

/* ---- what is accepted ------------------------------------------------------------------------ */

/* A row of the table per format; its state is one of these. */
#define QUANTIZED_FORMAT(X, FORMAT, name, ...) X(FORMAT, #name)
#define EACH_FORMAT(X)                                                                             \
    X(F32, "f32")                                                                                  \
    X(F16, "f16")                                                                                  \
    X(BF16, "bf16")                                                                                \
    X(E4M3, "e4m3") X(NVFP4_CODES, "nvfp4_codes") GW_QUANT_FORMATS(QUANTIZED_FORMAT, X)
#define NUMBER(FORMAT, name) [GW_FMT_##FORMAT] = GW_FMT_##FORMAT,
static const int numbers[GW_FMT_COUNT] = {EACH_FORMAT(NUMBER)};

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device,
                   int parts) {
    gw_linear_shape s;
    if (node->args.linear.order != GW_ORDER_DECODE ||
        (int)node->w[0]->fmt != *(const int *)kernel->state) {
        return 0;
    }
    for (int i = 0; i < parts && node->w[i] != NULL; i++) {
        const gw_tensor *w = node->w[i], *bias = parts == PARTS ? node->w[PARTS + i] : NULL;
        gw_fmt input = gw_format_of(w->fmt)->is_float ? GW_FMT_F32 : GW_FMT_ACT8;
        if (node->in[0]->fmt != input || w->layout != GW_HIP_LAYOUT_STRIPS ||
            (bias != NULL && bias->fmt != GW_FMT_F32) ||
            !gw_hip_shape(device, w, 1, parts == 2, 0, &s)) {
            return 0;
        }
    }
    return 1;
}

static int accepts_linear(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    return node->out->fmt == GW_FMT_F32 && accepts(kernel, node, device, PARTS);
}

static int accepts_glu(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    int fits = node->out->fmt == GW_FMT_F32 ||
               (node->out->fmt == GW_FMT_ACT8 && gw_hip_width(node->out) % GW_ACT_BLOCK == 0);
    return fits && accepts(kernel, node, device, 2);
}

static gw_status record_linear(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node);
static gw_status record_glu(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node);

/* Can a norm right behind a node come without its factor? */
static int can_leave(const gw_node *node, const gw_node *norm) {
    return norm->op == GW_OP_NORM && gw_op_is_plain(norm) && norm->in[0] == node->out &&
           norm->w[0]->fmt == GW_FMT_F32 && gw_hip_width(node->out) % GW_LINEAR_ITEM == 0;
}

/* Does this product, embedding or sum of experts store what the norm after it needs? */
static int stores_norm(const struct gw_segment *segment, const gw_node *node, const gw_node *norm) {
    gw_linear_shape s;
    if (!can_leave(node, norm)) {
        return 0;
    }
    return (node->op == GW_OP_EMBED && gw_op_is_plain(node)) ||
           gw_hip_experts_leave(segment, node) ||
           (node->op == GW_OP_EXCHANGE && node->out->fmt == GW_FMT_F32) ||
           (node->op == GW_OP_LINEAR && node->kernel->record == record_linear &&
            node->w[1] == NULL && gw_hip_width(node->out) == (size_t)node->w[0]->dim[0] &&
            gw_hip_shape(segment->device, node->w[0], segment->rows, 0, 1, &s));
}

/* Does it read x through shared memory, where the norm's factor comes to it? */
static int takes_norm(const struct gw_segment *segment, const gw_node *norm, const gw_node *node) {
    int glu = node->op == GW_OP_GLU;
    gw_linear_shape s;
    if (node->in[0] != norm->out ||
        (glu ? node->kernel->record != record_glu
             : node->op != GW_OP_LINEAR || node->kernel->record != record_linear)) {
        return 0;
    }
    for (int i = 0; i < (glu ? 2 : PARTS) && node->w[i] != NULL; i++) {
        if (!gw_hip_shape(segment->device, node->w[i], segment->rows, glu, 0, &s) ||
            s.row_words == 0) {
            return 0;
        }
    }
    return 1;
}

/* Has a result that is not stored another reader than nodes[0], by its in[0]? */
static int has_readers(const gw_tensor *result, const gw_node *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (int j = i == 0; j < GW_MAX_IN; j++) {
            if (nodes[i].in[j] == result) {
                return 1;
            }
        }
    }
    return 0;
}

/* Formats whose product of one row has a variant (kernels_hip/strip.h). */
#define NAME_OF(FORMAT, name) #name,
static const char *const with_order[] = {GW_STRIP_ORDER(NAME_OF) NULL};
static const char *const with_beside[] = {GW_STRIP_BESIDE(NAME_OF) NULL};
static const char *const with_parts[] = {GW_STRIP_PARTS(NAME_OF) NULL};
#undef NAME_OF

static int has_variant(const char *const *names, gw_fmt fmt) {
    while (*names != NULL && strcmp(*names, gw_hip_kernels_of(fmt)) != 0) {
        names++;
    }
    return *names != NULL;
}

/* ---- products of several nodes --------------------------------------------------------------- */

/* Is the sigmoid of nodes[0], a product of one matrix, read by nothing but a MIX, as its gate? Then
 * the MIX computes the sigmoid, and the product writes to the gate's buffer. */
static int is_late_gate(const gw_node *nodes, size_t n) {
    const gw_node *act = &nodes[1], *reader = NULL;
    if (n < 2 || act->op != GW_OP_ACT || act->in[0] != nodes[0].out || act->w[0] != NULL ||
        act->args.act.gated || act->args.act.kind != GW_ACT_SIGMOID || act->crosses ||
        act->out->fmt != GW_FMT_F32 || nodes[0].w[1] != NULL ||
        gw_hip_is_read(nodes[0].out, &nodes[2], n - 2)) {
        return 0;
    }
    for (size_t i = 2; i < n && (i == 2 || nodes[i - 1].out != act->out); i++) {
        if (reader == NULL && nodes[i].op == GW_OP_ACT) { /* the segment knows one late gate */
            return 0;
        }
        for (int j = 0; j < GW_MAX_IN; j++) {
            if (nodes[i].in[j] == act->out && (reader != NULL || j != 1)) {
                return 0;
            }
            reader = nodes[i].in[j] == act->out ? &nodes[i] : reader;
        }
    }
    return reader != NULL && reader->op == GW_OP_MIX && reader->args.mix.gate_act == GW_ACT_NONE;
}

/* Products of one row, in a launch. */
struct gw_together {
    const gw_node *node[GW_LINEAR_MOST];
    const gw_tensor *out[GW_LINEAR_MOST]; /* where each goes */
    int n, parts;
    size_t taken; /* nodes */
};

/* Does node join them, with its result at `out`? */
static int joins(const struct gw_together *t, const gw_node *node, const gw_tensor *out) {
    gw_fmt fmt = t->n > 0 ? t->node[0]->w[0]->fmt : node->w[0]->fmt;
    int parts = 0;
    for (int i = 0; i < PARTS && node->w[i] != NULL; i++, parts++) {
        if (node->w[i]->fmt != fmt) {
            return 0;
        }
    }
    for (int i = 0; i < t->n; i++) {
        if (out->buf != t->out[0]->buf || node->in[0] != t->node[0]->in[0] ||
            !gw_hip_disjoint(out, t->out[i])) {
            return 0;
        }
    }
    return t->parts + parts <= (int)GW_LINEAR_MOST && gw_hip_disjoint(out, node->in[0]);
}

static struct gw_together together(const struct gw_segment *segment, const gw_node *nodes,
                                   size_t n) {
    const struct gw_device *d = segment->device;
    struct gw_together t = {.n = 0};
    int one_row = segment->rows == 1 && segment->order == NULL && gw_hip_has_copies(d);
    for (size_t i = 0; i < n && one_row && !d->no_fuse && t.n < (int)GW_LINEAR_MOST;) {
        const gw_node *node = &nodes[i];
        if (node->op != GW_OP_LINEAR || node->kernel->record != record_linear ||
            node->in[0]->fmt != GW_FMT_ACT8 || node->in[1] != NULL || node->crosses ||
            node->args.linear.order != GW_ORDER_DECODE ||
            !has_variant(with_parts, node->w[0]->fmt)) {
            break;
        }
        int late = is_late_gate(node, n - i);
        const gw_tensor *out = late ? node[1].out : node->out;
        if (!joins(&t, node, out)) {
            break;
        }
        t.node[t.n] = node;
        t.out[t.n++] = out;
        for (int k = 0; k < PARTS && node->w[k] != NULL; k++) {
            t.parts++;
        }
        i += late ? 2 : 1;
        t.taken = i;
    }
    t.taken = t.n > 1 ? t.taken : 0;
    return t;
}

size_t gw_hip_joined_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    return together(segment, nodes, n).taken;
}

/* Bytes of a row as floats and of its order, behind its blocks, while a product makes these. */
static size_t sorted_bytes(const gw_tensor *w) {
    return 2 * gw_hip_groups(gw_hip_width(w), GW_ACT_BLOCK) * GW_ACT_BLOCK * sizeof(float);
}

/* Can nodes[0] be fused into nodes[1], if what it reads stays until then? */
static int takes_order(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    const struct gw_device *d = segment->device;
    const gw_node *order = &nodes[0], *node = &nodes[1];
    if (n < 2 || d->no_fuse || segment->rows != 1 || !gw_hip_has_copies(d) || order->crosses ||
        order->op != GW_OP_QUANTIZE || order->w[0] == NULL || node->in[0] != order->out ||
        gw_hip_width(order->out) % GW_ACT_BLOCK != 0) {
        return 0;
    }
    int glu = node->op == GW_OP_GLU && node->kernel->record == record_glu;
    if (!glu && (node->op != GW_OP_LINEAR || node->kernel->record != record_linear)) {
        return 0;
    }
    for (int i = 0; i < (glu ? 2 : PARTS) && node->w[i] != NULL; i++) {
        gw_linear_shape s;
        if (!has_variant(with_order, node->w[i]->fmt) ||
            !gw_hip_shape(d, node->w[i], 1, glu, 1, &s) || s.most != 1 || s.row_words == 0 ||
            s.shared + sorted_bytes(node->w[i]) > (size_t)d->shared_bytes) {
            return 0;
        }
    }
    return !has_readers(order->out, &nodes[1], n - 1);
}

int gw_hip_can_fuse_order(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    /* Behind a fused norm it reads memory of the segment. */
    return takes_order(segment, nodes, n) &&
           (segment->norm != NULL || gw_hip_disjoint(nodes[1].out, nodes[0].in[0]));
}

/* Can a launch that makes nodes[0] leave what nodes[1], a norm of it, is to nodes[2]? */
static int reads_norm(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    const gw_node *norm = &nodes[1];
    struct gw_together t = together(segment, &nodes[2], n - 2);
    if (t.taken > 0 && !norm->crosses && !segment->device->no_fuse && segment->norm == NULL) {
        int all = !gw_hip_is_read(norm->out, &nodes[2 + t.taken], n - 2 - t.taken);
        for (int i = 0; i < t.n; i++) {
            all = all && takes_norm(segment, norm, t.node[i]);
        }
        return all;
    }
    if (norm->crosses || has_readers(norm->out, &nodes[2], n - 2)) {
        return 0;
    }
    int sorted = takes_order(segment, &nodes[2], n - 2) && nodes[2].in[0] == norm->out;
    /* A product between two fused norms would store the second one's x over the first one's. */
    return !segment->device->no_fuse && segment->norm == NULL &&
           (sorted || takes_norm(segment, norm, &nodes[2]));
}

int gw_hip_can_fuse_norm(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    return stores_norm(segment, &nodes[0], &nodes[1]) && reads_norm(segment, nodes, n);
}

int gw_hip_can_leave_norm(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    return n > 2 && can_leave(&nodes[0], &nodes[1]) && reads_norm(segment, nodes, n);
}

/* Blocks in a row that a product stores: a row in groups has whole groups. */
static size_t left_blocks(const struct gw_segment *segment, const gw_node *norm) {
    size_t blocks = gw_hip_width(norm->out) / GW_ACT_BLOCK;
    int grouped = gw_hip_has_copies(segment->device) && norm->out->fmt == GW_FMT_ACT8;
    return grouped ? gw_hip_groups(blocks, GW_ACT_GROUP) * GW_ACT_GROUP : blocks;
}

/* Memory between two products with a fused norm: x without the norm's factor, then the sums of
 * squares. Blocks beyond the end of a row stay zero, so rows of another length get other memory. */
static gw_status left_between(struct gw_segment *segment, const gw_node *norm, gw_hip_ptr *x,
                              gw_hip_ptr *squares) {
    size_t width = gw_hip_width(norm->out), rows = (size_t)segment->rows;
    size_t x_bytes = rows * left_blocks(segment, norm) * GW_ACT_BLOCK * sizeof(float);
    x_bytes = (x_bytes + 255) / 256 * 256;
    if (segment->left_width != width) {
        GW_TRY(gw_hip_private(segment, x_bytes + rows * width / GW_ACT_BLOCK * sizeof(float),
                              &segment->left));
        segment->left_width = width;
    }
    *x = segment->left;
    *squares = *x + x_bytes;
    return GW_OK;
}

/* ---- the form of x --------------------------------------------------------------------------- */

/* The number that the terms of a format need of a block of x beside its scale, for so many rows at
 * a time (number() of kernels_hip/linear/linear_quant.h); 0: none. */
static int wanted_form(gw_fmt fmt, int width) {
#define TERM(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                     \
    [GW_FMT_##FORMAT] = {term, offset},
    static const struct { int term, offset; } formats[GW_FMT_COUNT] = {GW_STRIP_FORMATS(TERM)};
#undef TERM
    int term = formats[fmt].term, offset = formats[fmt].offset;
    if (term == GW_TERM_SPAN) {
        return GW_FORM_SPAN;
    }
    if (term == GW_TERM_AFFINE) {
        return width == 1 ? GW_FORM_FLOAT : GW_FORM_SCALED;
    }
    if (term == GW_TERM_SIGNED && width == 1 && offset != 0) {
        return offset == 8 ? GW_FORM_LESS_8 : GW_FORM_LESS_16;
    }
    return term == GW_TERM_Q2 || (term == GW_TERM_HALVES && width == 1) ? GW_FORM_SUMS : 0;
}

/* Does this node read in[0] in groups? *wanted: the form that all of its weights need, together
 * with those of earlier readers; GW_FORM_SUMS when they do not agree. */
static int reads_groups(const struct gw_segment *segment, const gw_node *node, int *wanted) {
    int glu = node->op == GW_OP_GLU;
    if (node->kernel->record != record_linear && node->kernel->record != record_glu) {
        return 0;
    }
    for (int i = 0; i < (glu ? 2 : PARTS) && node->w[i] != NULL; i++) {
        gw_linear_shape s;
        if (!gw_hip_shape(segment->device, node->w[i], segment->rows, glu, 0, &s)) {
            return 0;
        }
        int form = wanted_form(node->w[i]->fmt, s.most);
        form = form == GW_FORM_SPAN ? 0 : form; /* several thread blocks write a span's blocks */
        *wanted = *wanted == 0 || form == *wanted ? form : form == 0 ? *wanted : GW_FORM_SUMS;
    }
    return 1;
}

/* A tensor that is read before a node of this segment writes it comes from another segment, in
 * plain form, and so is one that another device reads. */
int gw_hip_form(const struct gw_segment *segment, const gw_tensor *t) {
    int made = 0, read = 0, wanted = 0;
    if (t->fmt != GW_FMT_ACT8) {
        return GW_FORM_FLOATS;
    }
    if (!gw_hip_has_copies(segment->device) || segment->nodes == NULL ||
        gw_hip_width(t) % (GW_ACT_GROUP * GW_ACT_BLOCK) != 0) {
        return GW_FORM_PLAIN;
    }
    for (size_t i = 0; i < segment->n_nodes; i++) {
        const gw_node *node = &segment->nodes[i];
        if (node->out == t) {
            int prompt = node->op == GW_OP_GLU && node->kernel->record != record_glu;
            if (prompt || node->op == GW_OP_LINEAR || node->crosses) {
                return GW_FORM_PLAIN;
            }
            made = 1;
        }
        for (int j = 0; j < GW_MAX_IN; j++) {
            if (node->in[j] != t) {
                continue;
            }
            if (!made || j > 0 || !reads_groups(segment, node, &wanted)) {
                return GW_FORM_PLAIN;
            }
            read = 1;
        }
    }
    return !made || !read ? GW_FORM_PLAIN : wanted != 0 ? wanted : GW_FORM_SUMS;
}

/* The form of what a product leaves in front of a norm. The scales of several rows lack the norm's
 * factor, and so would what is made from them. */
static int left_form(const struct gw_segment *segment, const gw_node *norm) {
    int form = gw_hip_form(segment, norm->out);
    if (form == GW_FORM_FLOATS || !gw_hip_has_copies(segment->device)) {
        return form;
    }
    return form == GW_FORM_PLAIN || segment->rows > 1 ? GW_FORM_SUMS : form;
}

gw_status gw_hip_norm_memory(struct gw_segment *segment, const gw_node *norm, gw_hip_ptr *x,
                             gw_hip_ptr *squares, int32_t *form, int32_t *blocks) {
    *form = left_form(segment, norm);
    *blocks = (int32_t)left_blocks(segment, norm);
    return left_between(segment, norm, x, squares);
}

static size_t moved_bytes(const gw_tensor *t) {
    size_t each = t->fmt == GW_FMT_ACT8 ? sizeof(gw_act8) / sizeof(float) : GW_ACT_BLOCK;
    return (size_t)t->dim[0] * gw_hip_groups(gw_hip_width(t), GW_ACT_BLOCK) * each * sizeof(float);
}

int gw_hip_can_move(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    const gw_node *next = &nodes[1];
    return n > 1 && !nodes[0].crosses && next->op == GW_OP_LINEAR &&
           next->kernel->record == record_linear && next->in[0] == nodes[0].out &&
           !has_readers(nodes[0].out, next, n - 1) &&
           (segment->moved.bytes == 0 || segment->moved.bytes == moved_bytes(nodes[0].out));
}

gw_status gw_hip_move(struct gw_segment *segment, const gw_tensor *t, gw_hip_ptr *at) {
    if (segment->moved.bytes == 0) {
        segment->moved.bytes = moved_bytes(t);
        GW_TRY(gw_hip_private(segment, segment->moved.bytes, &segment->moved.at));
    }
    segment->moved.of = t;
    *at = segment->moved.at;
    return GW_OK;
}

/* Where rows of a tensor are that the node being recorded reads. */
static gw_hip_ptr moved_or_at(const struct gw_segment *segment, const gw_tensor *t) {
    return segment->moved.of == t && t != NULL ? segment->moved.at : gw_hip_at(t);
}

/* Has a launch put these rows into groups of that form, and has no node written them since? */
static int are_grouped(const struct gw_segment *segment, const gw_tensor *t, int form) {
    for (int i = segment->grouped.node; i < segment->node; i++) {
        if (segment->nodes[i].out == t) {
            return 0;
        }
    }
    return segment->grouped.of == t && segment->grouped.form == form;
}

/* Rows to groups of a form, through memory of this segment. */
static gw_status put_in_groups(struct gw_segment *segment, const gw_node *node, int form, int plain,
                               struct gw_linear_params *p) {
    unsigned blocks = gw_hip_groups((size_t)p->terms, GW_ACT_GROUP) * GW_ACT_GROUP;
    struct gw_act8_group_params group = {.step = gw_hip_step(segment),
                                         .from = p->x,
                                         .blocks = p->terms,
                                         .plain = plain,
                                         .form = form};
    const gw_tensor *of = p->squares == 0 ? node->in[0] : NULL;
    if (of != NULL && are_grouped(segment, of, form)) {
        p->x = segment->grouped.at;
        return GW_OK;
    }
    GW_TRY(gw_hip_private(segment, (size_t)p->x_rows * (size_t)p->row_bytes, &group.to));
    p->x = group.to;
    segment->grouped.of = of;
    segment->grouped.at = group.to;
    segment->grouped.form = form;
    segment->grouped.node = segment->node;
    return gw_hip_record(segment, node, "gw_act8_group", gw_hip_groups(blocks, 128),
                         (unsigned)p->x_rows, 1, 128, 1, 1, 0, &group, sizeof group);
}

/* x as a block of shape s fetches it: in groups, and floats in whole 16 bytes; through memory of
 * this segment where it is not. */
static gw_status take_x(struct gw_segment *segment, const gw_node *node, const gw_tensor *w,
                        const gw_linear_shape *s, struct gw_linear_params *p) {
    const struct gw_device *d = segment->device;
    int is_float = gw_format_of(w->fmt)->is_float;
    int wanted = is_float ? 0 : wanted_form(w->fmt, s->most);
    int groups = (p->terms + GW_ACT_GROUP - 1) / GW_ACT_GROUP;
    p->row_bytes = p->terms * (int32_t)(is_float ? sizeof(float) : sizeof(gw_act8));
    if (!gw_hip_has_copies(d)) {
        return GW_OK;
    }
    if (is_float) {
        p->settles = p->squares != 0 || p->row_words != p->terms;
        if (s->row_words == 0 || p->terms % 4 == 0) {
            return GW_OK;
        }
        struct gw_pad_params pad = {.step = gw_hip_step(segment),
                                    .from = p->x,
                                    .width = p->terms,
                                    .padded = (p->terms + 3) / 4 * 4};
        p->row_bytes = pad.padded * 4;
        GW_TRY(gw_hip_private(segment, (size_t)p->x_rows * (size_t)p->row_bytes, &pad.to));
        p->x = pad.to;
        return gw_hip_record(segment, node, "gw_pad", gw_hip_groups((size_t)pad.padded, 128),
                             (unsigned)p->x_rows, 1, 128, 1, 1, 0, &pad, sizeof pad);
    }
    p->row_bytes = groups * GW_ACT_GROUP_WORDS * 4;
    int form =
        p->squares != 0 ? left_form(segment, segment->norm) : gw_hip_form(segment, node->in[0]);
    if (form == GW_FORM_PLAIN || (s->row_words == 0 && wanted != 0 && form != wanted)) {
        int plain = form == GW_FORM_PLAIN;
        form = wanted != 0 ? wanted : GW_FORM_SUMS;
        GW_TRY(put_in_groups(segment, node, form, plain, p));
    }
    p->settles = (p->squares != 0 && s->most > 1) || (wanted != 0 && form != wanted);
    return GW_OK;
}

/* ---- launches -------------------------------------------------------------------------------- */

static int strips_of(const gw_tensor *w) {
    return (int)gw_hip_groups((size_t)w->dim[0], GW_STRIP_ROWS);
}

/* Ring slots to prefetch before x is read: all of them if this launch can overlap its predecessor;
 * few if it cannot, because x would queue after megabytes of weights. */
static int early_slots(const struct gw_segment *segment, const gw_linear_shape *s) {
    const gw_hip_launch *before = segment->n > 0 ? &segment->launches[segment->n - 1] : NULL;
    unsigned together = s->shared + (before != NULL ? before->shared_bytes : 0);
    int apart = before != NULL && together > (unsigned)segment->device->shared_bytes;
    return apart && s->depth > GW_LINEAR_EARLY ? GW_LINEAR_EARLY : s->depth;
}

/* The product in front prefetches the first weights of this launch, `blocks` blocks of strips of so
 * many bytes, because memory would be idle until the blocks of this launch begin. When it does so:
 *   it has few weights (has_all)   as soon as it has x: its own weights have been requested by then
 *   others                         when it ends
 *   GLU                            never: some of its blocks have an item more, and still read */
static void ask_ahead(struct gw_segment *segment, const struct gw_linear_params *p, size_t strip,
                      unsigned blocks, int glu) {
    gw_hip_launch *before = segment->n > 0 ? &segment->launches[segment->n - 1] : NULL;
    if (before == NULL || !before->asks_ahead) {
        return;
    }
    struct gw_linear_params *to = before->params;
    size_t bytes = strip < GW_LINEAR_AHEAD ? strip : GW_LINEAR_AHEAD;
    unsigned most = (unsigned)p->part[0].rows / GW_LINEAR_ITEM; /* an item has two strips of each */
    blocks = blocks < most ? blocks : most;
    unsigned others = !before->has_all || blocks < before->grid[0] ? 0 : blocks - before->grid[0];
    to->ahead_blocks = (int32_t)(blocks - others); /* the others have begun already */
    to->ahead_step = (int32_t)(2 * strip);
    to->ahead_bytes = (int32_t)(bytes / 16 * 16);
    to->ahead_end = !before->has_all;
    to->ahead[0] = p->part[0].w + others * 2 * strip;
    to->ahead[1] = glu ? p->part[1].w + others * 2 * strip : to->ahead[0] + strip;
}

/* Are blocks of attention to run beside those of this product of one row, which is in front of it
 * or behind it? Where multiprocessors are left over they have those. */
static int runs_beside(const struct gw_segment *segment, const gw_node *node, gw_fmt fmt,
                       const gw_linear_shape *s, int blocks) {
    const gw_node *next = node + 1 < segment->nodes + segment->n_nodes ? node + 1 : NULL;
    int heads = next != NULL && next->op == GW_OP_ROPE_KV ? next->args.rope.heads
                : segment->front == GW_OP_ATTENTION       ? node[-1].args.attn.heads
                                                          : 0;
    return node->op == GW_OP_LINEAR && s->most == 1 && gw_hip_has_copies(segment->device) &&
           has_variant(with_beside, fmt) && heads > 0 && blocks + heads > segment->device->units;
}

/* How many blocks take so many tiles, and which of them share rows of x. Blocks stay for as many
 * tiles as there are; one of them fills a multiprocessor with loads. Those that read the same
 * weights for other rows, `turns` of them, run at the same time, so that the second cache has them.
 * Several rows come to each block of a cluster at once: else the second cache would give them to
 * every block for itself. */
static unsigned share_out(const struct gw_device *d, const gw_linear_shape *s, unsigned items,
                          unsigned turns, struct gw_linear_params *p) {
    unsigned most = (unsigned)d->units * (d->driver->nvidia ? 1 : 2) / turns;
    most = most > 0 ? most : 1;
    p->cluster = 1;
    if (gw_hip_has_clusters(d) && s->most > 1 && s->row_words > 0 && most >= CLUSTER) {
        p->cluster = CLUSTER;
        most -= most % CLUSTER;
        items += (CLUSTER - items % CLUSTER) % CLUSTER;
    }
    return items < most ? items : most;
}

/* How a product's adapters are cut among its blocks: units of as few rows as give each block one at
 * most, and as much of them and of a block's rows of B in shared memory as fits, of which the bytes
 * come back. */
static unsigned cut_adapters(const struct gw_device *d, const gw_linear_shape *s, unsigned blocks,
                             unsigned items, int glu, struct gw_linear_lora *l) {
    unsigned bytes = s->shared + (unsigned)GW_LINEAR_ADAPT(l->k, l->used, l->n);
    unsigned row = 4 * (unsigned)GW_ADAPT_ROW(l->rank) * GW_LANES;
    int records = (int)gw_hip_groups((size_t)l->k, GW_STRIP_FLOATS);
    l->each = 1;
    while (l->each < 8 && l->used * l->n / l->each * (int)GW_LINEAR_CLASSES > (int)blocks) {
        l->each *= 2;
    }
    l->units = l->used * l->n / l->each * (int)GW_LINEAR_CLASSES;
    if (l->units == 0) {
        return bytes;
    }
    int fit = (int)(((unsigned)d->shared_bytes - bytes) / row);
    int rounds = (int)gw_hip_groups(items, blocks) * (glu ? 2 : 1);
    l->rounds = fit < rounds ? fit : rounds;
    bytes += (unsigned)l->rounds * row;
    fit = (int)(((unsigned)d->shared_bytes - bytes) / (64 * (unsigned)l->each));
    l->held = fit < records ? fit : records;
    return bytes + 64 * (unsigned)(l->each * l->held);
}

static const char *adapts(const struct gw_linear_params *p) {
    return p->lora.floats ? "_adapt_floats" : "_adapt";
}

static gw_status launch(struct gw_segment *segment, const gw_node *node, struct gw_linear_params *p,
                        const gw_tensor *w, int glu) {
    const struct gw_device *d = segment->device;
    const gw_format *format = gw_format_of(w->fmt);
    gw_linear_shape s;
    char name[64];
    const gw_node *norm = segment->norm, *behind = segment->behind, *order = segment->order;
    if (!gw_hip_shape(d, w, segment->rows, glu, behind != NULL, &s)) { /* accepts() has seen */
        return gw_fail(GW_E_UNSUPPORTED, w->name, "rows of %zu values are too long for %s",
                       gw_hip_width(w), d->name);
    }
    snprintf(name, sizeof name, "gw_%s_%s%s", glu ? "glu" : "linear", gw_hip_kernels_of(w->fmt),
             s.variant);
    p->step = gw_hip_step(segment);
    p->x = order != NULL ? gw_hip_at(order->in[0]) : moved_or_at(segment, node->in[0]);
    p->terms = (int32_t)(gw_hip_width(w) / (format->is_float ? 1 : GW_ACT_BLOCK));
    if (norm != NULL) {
        GW_TRY(left_between(segment, norm, &p->x, &p->squares));
        p->eps = norm->args.norm.eps;
    }
    if (behind != NULL) {
        p->behind = gw_hip_at(behind->w[0]);
        GW_TRY(gw_hip_norm_memory(segment, behind, &p->left, &p->left_squares, &p->left_form,
                                  &p->left_blocks));
    }
    p->row_words = s.row_words > 0 ? s.row_words : p->terms;
    p->width = s.width;
    p->depth = s.depth;
    p->span = s.span;
    p->places = s.places;
    p->x_rows = (int32_t)(norm != NULL ? segment->rows : node->in[0]->dim[0]);
    if (order != NULL) {
        p->columns = gw_hip_at(order->w[0]);
        p->row_words += (int32_t)(sorted_bytes(w) / 4);
        s.shared += (unsigned)sorted_bytes(w);
    } else if (p->lora.floats) {
        p->x = p->lora.x;
        p->row_words += (int32_t)(sorted_bytes(w) / 8);
        s.shared += (unsigned)sorted_bytes(w) / 2;
    } else {
        GW_TRY(take_x(segment, node, w, &s, p));
    }
    size_t together = glu || behind != NULL ? 2 : (size_t)s.groups;
    unsigned items = gw_hip_groups((size_t)p->tiles, together);
    unsigned turns = gw_hip_groups((size_t)segment->rows, (size_t)s.width);
    unsigned blocks = share_out(d, &s, items, turns, p);
    if (p->lora.count != 0) {
        s.shared = cut_adapters(d, &s, blocks, items, glu, &p->lora);
    }
    p->early = early_slots(segment, &s);
    size_t records = gw_hip_groups(gw_hip_width(w), GW_STRIP_FLOATS);
    size_t strip = records * (size_t)gw_hip_record_bytes(w->fmt);
    int slots = (int)gw_hip_groups(records, GW_LINEAR_CLASSES); /* of a wave in a strip */
    int ahead = gw_hip_has_copies(d) && !format->is_float;
    int has_all = ahead && items <= blocks && slots <= p->early;
    if (ahead) {
        ask_ahead(segment, p, strip, blocks, glu);
    }
    /* What attention reads meanwhile would come behind megabytes; there is time enough. */
    p->paced = segment->rows == 1 && has_all && slots > 2 && segment->front == GW_OP_ATTENTION;
    const char *variant = order != NULL                                         ? "_order"
                          : p->lora.count != 0                                  ? adapts(p)
                          : p->parts > PARTS                                    ? "_parts"
                          : runs_beside(segment, node, w->fmt, &s, (int)blocks) ? "_beside"
                                                                                : "";
    snprintf(name + strlen(name), sizeof name - strlen(name), "%s", variant);
    GW_TRY(gw_hip_record(segment, node, name, blocks, turns, 1, s.threads, 1, 1, s.shared, p,
                         sizeof *p));
    gw_hip_launch *l = &segment->launches[segment->n - 1];
    l->cluster = (unsigned)p->cluster;
    l->items = items;
    l->has_slack = !format->is_float;
    l->asks_ahead = ahead && !glu;
    l->has_all = has_all;
    return GW_OK;
}

/* The part of a product's adapters that its matrices [first, end) have: their rows of A. */
static struct gw_linear_lora lora_of(const struct gw_linear_lora *all, int first, int end) {
    struct gw_linear_lora l = *all;
    int from = INT32_MAX, to = 0;
    for (int i = first; i < end; i++) {
        int at = all->part[i];
        l.part[i - first] = at;
        l.row[i - first] = all->row[i];
        from = at >= 0 && at < from ? at : from;
        to = at >= 0 && at + all->rank > to ? at + all->rank : to;
    }
    l.first = to > 0 ? from : 0;
    l.n = to > 0 ? to - from : 0;
    return l;
}

/* Parts [first, end) of a LINEAR node, all of one format, to y; lora may be NULL. */
static gw_status launch_parts(struct gw_segment *segment, const gw_node *node, int first, int end,
                              int64_t column, const gw_tensor *y,
                              const struct gw_linear_lora *lora) {
    struct gw_linear_params p = {
        .y = gw_hip_at(y), .stride = (int32_t)y->dim[1], .parts = end - first};
    p.residual = node->in[1] != NULL ? gw_hip_at(node->in[1]) : 0;
    if (lora != NULL) {
        p.lora = lora_of(lora, first, end);
    }
    for (int i = first; i < end; i++) {
        const gw_tensor *w = node->w[i], *bias = node->w[PARTS + i];
        p.part[i - first] = (struct gw_linear_part){.w = gw_hip_at(w),
                                                    .bias = bias != NULL ? gw_hip_at(bias) : 0,
                                                    .rows = (int32_t)w->dim[0],
                                                    .tile = p.tiles,
                                                    .column = (int32_t)column};
        p.tiles += strips_of(w);
        column += w->dim[0];
    }
    return launch(segment, node, &p, node->w[first], 0);
}

static gw_status record_parts(struct gw_segment *segment, const gw_node *node, const gw_tensor *y,
                              const struct gw_linear_lora *lora) {
    int64_t column = 0;
    int launches = 0;
    for (int first = 0, end; first < PARTS && node->w[first] != NULL; first = end, launches++) {
        int64_t columns = 0;
        for (end = first;
             end < PARTS && node->w[end] != NULL && node->w[end]->fmt == node->w[first]->fmt;
             end++) {
            columns += node->w[end]->dim[0];
        }
        GW_TRY(launch_parts(segment, node, first, end, column, y, lora));
        column += columns;
    }
    if (launches == 1) {
        segment->launches[segment->n - 1].sends_at = offsetof(struct gw_linear_params, sends);
    }
    return GW_OK;
}

static gw_status record_linear(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    (void)kernel;
    return record_parts(segment, node, node->out, NULL);
}

gw_status gw_hip_record_joined(struct gw_segment *segment, const gw_node *nodes, size_t n) {
    struct gw_together t = together(segment, nodes, n);
    struct gw_linear_params p = {.y = gw_hip_at(t.out[0])};
    for (int i = 1; i < t.n; i++) {
        p.y = gw_hip_at(t.out[i]) < p.y ? gw_hip_at(t.out[i]) : p.y;
    }
    for (int i = 0; i < t.n; i++) {
        const gw_node *node = t.node[i];
        int64_t column = (int64_t)((gw_hip_at(t.out[i]) - p.y) / sizeof(float));
        for (int k = 0; k < PARTS && node->w[k] != NULL; k++, p.parts++) {
            const gw_tensor *w = node->w[k], *bias = node->w[PARTS + k];
            p.part[p.parts] = (struct gw_linear_part){.w = gw_hip_at(w),
                                                      .bias = bias != NULL ? gw_hip_at(bias) : 0,
                                                      .rows = (int32_t)w->dim[0],
                                                      .tile = p.tiles,
                                                      .column = (int32_t)column};
            p.tiles += strips_of(w);
            column += w->dim[0];
        }
        segment->late_gate = t.out[i] != node->out ? t.out[i] : segment->late_gate;
    }
    return launch(segment, t.node[t.n - 1], &p, t.node[0]->w[0], 0);
}

/* Gate and up of two formats: each to scratch, then joined. */
static gw_status record_apart(struct gw_segment *segment, const gw_node *node) {
    size_t width = gw_hip_width(node->out), rows = (size_t)segment->rows;
    size_t bytes = (rows * width * sizeof(float) + 255) / 256 * 256;
    gw_hip_ptr scratch = 0;
    GW_TRY(gw_hip_scratch(segment, 2 * bytes, &scratch));
    for (size_t i = 0; i < 2; i++) {
        struct gw_linear_params p = {
            .part[0] = {.w = gw_hip_at(node->w[i]), .rows = (int32_t)width},
            .y = scratch + i * bytes,
            .parts = 1,
            .tiles = strips_of(node->w[i]),
            .stride = (int32_t)width};
        GW_TRY(launch(segment, node, &p, node->w[i], 0));
    }
    struct gw_glu_join_params join = {.step = gw_hip_step(segment),
                                      .gate = scratch,
                                      .up = scratch + bytes,
                                      .y = gw_hip_at(node->out),
                                      .width = (int32_t)width,
                                      .form = gw_hip_form(segment, node->out)};
    return gw_hip_record(segment, node, "gw_glu_join", gw_hip_groups(width, 256), (unsigned)rows, 1,
                         256, 1, 1, 0, &join, sizeof join);
}

static gw_status record_glu(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    (void)kernel;
    if (node->w[0]->fmt != node->w[1]->fmt) {
        return record_apart(segment, node);
    }
    struct gw_linear_params p = {.y = gw_hip_at(node->out),
                                 .stride = (int32_t)gw_hip_width(node->out),
                                 .parts = 2,
                                 .tiles = strips_of(node->w[0]),
                                 .form = gw_hip_form(segment, node->out)};
    for (int i = 0; i < 2; i++) {
        p.part[i] = (struct gw_linear_part){.w = gw_hip_at(node->w[i]),
                                            .rows = (int32_t)node->w[i]->dim[0]};
    }
    GW_TRY(launch(segment, node, &p, node->w[0], 1));
    segment->launches[segment->n - 1].sends_at = offsetof(struct gw_linear_params, sends);
    return GW_OK;
}

/* ---- products with adapters ------------------------------------------------------------------ */

int gw_hip_can_adapt(const struct gw_segment *segment, const gw_node *node, int glu, int floats,
                     size_t columns) {
    const struct gw_device *d = segment->device;
    gw_linear_shape s;
    if (segment->rows != 1 || d->no_fuse || !gw_hip_has_copies(d) || node->op != GW_OP_LINEAR ||
        node->kernel->record != record_linear || node->in[0]->fmt != GW_FMT_ACT8 ||
        segment->order != NULL) {
        return 0;
    }
    for (int i = 0; i < PARTS && node->w[i] != NULL; i++) {
        const gw_tensor *w = node->w[i];
        unsigned more = (unsigned)GW_LINEAR_ADAPT(gw_hip_width(w), 1, columns) +
                        (floats ? (unsigned)sorted_bytes(w) / 2 : 0);
        if (!has_variant(with_parts, w->fmt) || !gw_hip_shape(d, w, 1, glu, 1, &s) || s.most != 1 ||
            s.row_words == 0 || s.shared + more > (unsigned)d->shared_bytes) {
            return 0;
        }
    }
    return 1;
}

int gw_hip_takes_norm(const struct gw_segment *segment, const gw_node *norm, const gw_node *node) {
    return takes_norm(segment, norm, node);
}

int gw_hip_has_norm(const struct gw_segment *segment, const gw_node *node, const gw_node *norm) {
    return stores_norm(segment, node, norm);
}

gw_status gw_hip_record_adapted(struct gw_segment *segment, const gw_node *node, const gw_tensor *y,
                                int glu, const struct gw_linear_lora *lora) {
    if (!glu) {
        return record_parts(segment, node, y, lora);
    }
    struct gw_linear_params p = {.y = gw_hip_at(y),
                                 .stride = (int32_t)gw_hip_width(y),
                                 .parts = 2,
                                 .tiles = strips_of(node->w[0]),
                                 .form = gw_hip_form(segment, y),
                                 .lora = lora_of(lora, 0, 2)};
    for (int i = 0; i < 2; i++) {
        p.part[i] = (struct gw_linear_part){.w = gw_hip_at(node->w[i]),
                                            .rows = (int32_t)node->w[i]->dim[0]};
    }
    return launch(segment, node, &p, node->w[0], 1);
}

/* clang-format off */
#define ROWS(FORMAT, name) \
    {GW_OP_LINEAR, "hip.linear." name, accepts_linear, record_linear, &numbers[GW_FMT_##FORMAT], 0}, \
    {GW_OP_GLU, "hip.glu." name, accepts_glu, record_glu, &numbers[GW_FMT_##FORMAT], 0},
const gw_kernel gw_hip_linear_kernels[] = {
    EACH_FORMAT(ROWS)
    {.name = NULL},
};
/* clang-format on */
