/* core/model/build.c - walks the blocks of a spec and emits nodes. Knows blocks, no family. */
#include "core/model/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A value that blocks hand on by name: as floats, as activation blocks, or both. */
typedef struct handed {
    gw_tensor *f32, *act8;
} handed;

/* State of one walk. */
typedef struct walk {
    gw_graph *graph;
    const gw_graph_inputs *in;
    const gw_blueprint *bp;
    handed value[GW_SPEC_VALUES];
    int layer, device, block; /* block: index in the blueprint */
    gw_block_kind before;     /* the block before it           */
    int last;                 /* of the section: its result goes to `result` */
    const gw_tensor *result;
} walk;

gw_status gw_graph_new(const gw_graph_inputs *in, gw_graph *out) {
    const gw_blueprint *bp = gw_weights_blueprint(in->weights);
    enum { EACH = 4 }; /* nodes of a block at most */
    size_t most = EACH * (size_t)bp->n_blocks * ((size_t)in->hp->n_layers + 1) + 4;
    gw_graph g = {.max_nodes = most, .max_tensors = most + 4 + GW_MAX_DEVICES};
    g.nodes = calloc(g.max_nodes, sizeof *g.nodes);
    g.blocks = calloc(g.max_nodes, sizeof *g.blocks);
    g.tensors = calloc(g.max_tensors, sizeof *g.tensors);
    if (g.nodes == NULL || g.blocks == NULL || g.tensors == NULL) {
        gw_graph_free(&g);
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %zu nodes", most);
    }
    *out = g;
    return GW_OK;
}

void gw_graph_free(gw_graph *graph) {
    free(graph->nodes);
    free(graph->blocks);
    free(graph->tensors);
    memset(graph, 0, sizeof *graph);
}

/* max_tensors and max_nodes are counted from the blocks: never exceeded. */
static gw_tensor *new_tensor(walk *w, gw_fmt fmt, int64_t cols) {
    gw_tensor *t = &w->graph->tensors[w->graph->n_tensors++];
    *t = (gw_tensor){.fmt = fmt, .n_dim = 2, .dim = {w->in->rows, cols}, .device = w->device};
    return t;
}

static gw_tensor *new_view(walk *w, const gw_tensor *of) {
    gw_tensor *t = &w->graph->tensors[w->graph->n_tensors++];
    *t = *of;
    return t;
}

/* The stream on a device. */
static gw_tensor *stream_on(walk *w, int device) {
    gw_tensor **view = &w->graph->streams[device];
    if (*view == NULL) {
        *view = new_view(w, &w->in->stream[device]);
    }
    return *view;
}

static gw_node *new_node(walk *w, gw_op op, const char *what, gw_tensor *out) {
    w->graph->blocks[w->graph->n_nodes] = w->block;
    gw_node *node = &w->graph->nodes[w->graph->n_nodes++];
    *node = (gw_node){.op = op, .what = what, .layer = w->layer, .device = w->device, .out = out};
    return node;
}

static const gw_tensor *weight(const walk *w, const gw_spec_block *b, int arg) {
    return gw_weights_get(w->in->weights, b->weight[arg], w->layer, w->device);
}

static const gw_layer *layer_of(const walk *w) {
    return &w->in->hp->layer[w->layer < 0 ? 0 : w->layer];
}

/* A number of the block, or `absent` where the spec gives none. */
static double number(const walk *w, const gw_spec_block *b, int slot, double absent) {
    return b->number[slot].n > 0 ? gw_spec_value(w->bp, w->in->hp, w->layer, b->number[slot])
                                 : absent;
}

static const char *role(const walk *w, const gw_spec_block *b, int arg) {
    return b->weight[arg] >= 0 ? w->bp->weight[b->weight[arg]].role : "value";
}

/* ---- formats: who reads a value how --------------------------------------------------------- */

static int is_quantized(const gw_tensor *matrix) {
    return matrix != NULL && !gw_format_of(matrix->fmt)->is_float;
}

/* The matrix by which block b reads its input; NULL: it reads floats. */
static const gw_tensor *reads_by(const walk *w, const gw_spec_block *b) {
    int arg = b->kind == GW_BLOCK_EXPERTS && b->weight[0] < 0 ? 1 : 0;
    return gw_block_matrices(b) > 0 ? weight(w, b, arg) : NULL;
}

/* Which value of the input each column of a quantized matrix takes; NULL: in order. */
static const gw_tensor *columns_of(const walk *w, const gw_spec_block *b, int arg) {
    return gw_weights_columns(w->in->weights, b->weight[arg], w->layer, w->device);
}

static int runs(const walk *w, const gw_spec_block *b) {
    return gw_block_runs(b, w->in->hp, w->layer < 0 ? w->in->hp->n_layers : w->layer) &&
           b->section == w->bp->block[w->block].section;
}

enum { AS_F32 = 1, AS_ACT8 = 2 };

/* How the blocks behind this one read value v, up to where it is given anew. */
static int readers(const walk *w, int v) {
    int mask = 0;
    for (int i = w->block + 1; i < w->bp->n_blocks; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (!runs(w, b)) {
            continue;
        }
        if (b->in == v) {
            mask |= is_quantized(reads_by(w, b)) && columns_of(w, b, 0) == NULL ? AS_ACT8 : AS_F32;
        }
        mask |= b->side == v || b->plus == v || b->more == v ? AS_F32 : 0;
        if (b->out == v) {
            break;
        }
    }
    return mask;
}

static int is_kept(const walk *w, int v) { return w->bp->width[v].n > 0; }

/* Of a value that start gives: where it lies, in every plan. */
static gw_tensor *kept_value(walk *w, int v) {
    if (w->graph->kept[v] == NULL) {
        w->graph->kept[v] = new_view(w, &w->in->kept[v]);
        w->graph->kept[v]->dim[0] = w->in->rows;
    }
    return w->graph->kept[v];
}

/* The output of a node that can write either form. */
static gw_tensor *new_value(walk *w, const gw_spec_block *b, int64_t cols) {
    if (is_kept(w, b->out) && b->section == GW_SECTION_START) {
        return kept_value(w, b->out);
    }
    int act8 = b->out != GW_VALUE_STREAM && readers(w, b->out) == AS_ACT8;
    return new_tensor(w, act8 ? GW_FMT_ACT8 : GW_FMT_F32, cols);
}

static void give(walk *w, const gw_spec_block *b, gw_tensor *t) {
    w->value[b->out] = (handed){t->fmt == GW_FMT_F32 ? t : NULL, t->fmt == GW_FMT_ACT8 ? t : NULL};
}

static const gw_tensor *as_f32(walk *w, int v) {
    if (v != GW_VALUE_STREAM && w->value[v].f32 == NULL && is_kept(w, v)) {
        return kept_value(w, v);
    }
    return v == GW_VALUE_STREAM ? w->graph->stream : w->value[v].f32;
}

/* Made once where floats are there and blocks are asked for. */
static const gw_tensor *as_act8(walk *w, int v) {
    const gw_tensor *x = as_f32(w, v);
    if (v != GW_VALUE_STREAM && w->value[v].act8 != NULL) {
        return w->value[v].act8;
    }
    gw_tensor *out = new_tensor(w, GW_FMT_ACT8, x != NULL ? x->dim[1] : 1);
    new_node(w, GW_OP_QUANTIZE, "quantize", out)->in[0] = x;
    if (v != GW_VALUE_STREAM) {
        w->value[v].act8 = out;
    }
    return out;
}

/* The same with values in the order of a matrix's columns: for that product alone. */
static const gw_tensor *in_columns(walk *w, int v, const gw_tensor *columns) {
    const gw_tensor *x = as_f32(w, v);
    gw_tensor *out = new_tensor(w, GW_FMT_ACT8, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_QUANTIZE, "quantize", out);
    node->in[0] = x;
    node->w[0] = columns;
    return out;
}

static const gw_tensor *input(walk *w, const gw_spec_block *b, const gw_tensor *matrix) {
    const gw_tensor *columns = columns_of(w, b, 0);
    if (is_quantized(matrix) && columns != NULL) {
        return in_columns(w, b->in, columns);
    }
    return is_quantized(matrix) ? as_act8(w, b->in) : as_f32(w, b->in);
}

/* Where a float result goes: the stream of this device, the logits, or a tensor of its own. */
static gw_tensor *new_result(walk *w, const gw_spec_block *b, int64_t cols) {
    if (b->out == GW_VALUE_STREAM) {
        return stream_on(w, w->device);
    }
    return w->last ? new_view(w, w->result) : new_tensor(w, GW_FMT_F32, cols);
}

static void finish(walk *w, const gw_spec_block *b, gw_tensor *out) {
    if (b->out == GW_VALUE_STREAM) {
        w->graph->stream = out;
    }
    give(w, b, out);
}

/* ---- one emitter per block ------------------------------------------------------------------ */

static void emit_embed(walk *w, const gw_spec_block *b) {
    const gw_tensor *table = weight(w, b, 0);
    gw_tensor *out = b->out == GW_VALUE_STREAM ? stream_on(w, w->device)
                                               : new_value(w, b, table != NULL ? table->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_EMBED, "embed", out);
    node->w[0] = table;
    node->w[1] = weight(w, b, 1);
    node->w[2] = weight(w, b, 2);
    node->args.embed.scale = (float)number(w, b, GW_ARG_SCALE, 0.0);
    node->args.embed.offset = (int)number(w, b, GW_ARG_OFFSET, 0.0);
    if (w->in->ids != NULL && w->in->ids->device == w->device) {
        node->in[0] = w->in->ids;
    }
    finish(w, b, out);
}

static void emit_norm(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    int64_t cols = x != NULL ? x->dim[1] : 1;
    int adds = (b->flags & GW_FLAG_ADD) != 0, more = adds || weight(w, b, 2) != NULL;
    gw_tensor *out = more || w->last || b->out == GW_VALUE_STREAM ? new_result(w, b, cols)
                                                                  : new_value(w, b, cols);
    gw_node *node = new_node(w, GW_OP_NORM, role(w, b, 0), out);
    node->in[0] = x;
    node->in[1] = adds ? w->graph->stream : NULL;
    for (int i = 0; i < 3; i++) {
        node->w[i] = weight(w, b, i);
    }
    node->args.norm.eps = (float)number(w, b, GW_ARG_EPS, (double)w->in->hp->norm_eps);
    node->args.norm.kind = b->flags & GW_FLAG_LAYERNORM ? GW_NORM_LAYER : GW_NORM_RMS;
    finish(w, b, out);
}

/* Up to three matrices stacked, and their biases, from arg and arg + 3. */
static gw_node *new_product(walk *w, const gw_spec_block *b, int n, const char *what,
                            gw_tensor *out) {
    const gw_tensor *x = input(w, b, weight(w, b, 0));
    int64_t cols = 0;
    for (int i = 0; i < n; i++) {
        cols += weight(w, b, i) != NULL ? weight(w, b, i)->dim[0] : 0;
    }
    out = out != NULL ? out : new_tensor(w, GW_FMT_F32, cols);
    gw_node *node = new_node(w, GW_OP_LINEAR, what, out);
    node->in[0] = x;
    for (int i = 0; i < n; i++) {
        node->w[i] = weight(w, b, i);
        node->w[3 + i] = weight(w, b, 3 + i);
    }
    node->args.linear.order = w->in->order;
    return node;
}

static void emit_qkv(walk *w, const gw_spec_block *b) {
    give(w, b, new_product(w, b, 3, "attn_qkv", NULL)->out);
}

static void emit_linear(walk *w, const gw_spec_block *b) {
    const gw_tensor *first = weight(w, b, 0);
    int single = gw_block_matrices(b) == 1;
    gw_tensor *out = single && first != NULL && (w->last || b->out == GW_VALUE_STREAM)
                         ? new_result(w, b, first->dim[0])
                         : NULL;
    const char *what = b->section == GW_SECTION_HEAD ? "head" : role(w, b, 0);
    finish(w, b, new_product(w, b, gw_block_matrices(b), what, out)->out);
}

/* The page table of a source's caches, or of a layer's cache of the text itself. */
static const gw_tensor *table_of(const walk *w, int source, int layer) {
    int kind = w->in->table_of != NULL ? w->in->table_of[layer] : 0;
    return source && w->in->source_table != NULL
               ? &w->in->source_table[w->device]
               : &w->in->page_table[kind * GW_MAX_DEVICES + w->device];
}

static void emit_rope_kv(walk *w, const gw_spec_block *b) {
    const gw_layer *l = layer_of(w);
    const gw_hparams *hp = w->in->hp;
    int keys = (b->flags & GW_FLAG_KEYS) != 0;
    gw_tensor *q = new_tensor(w, GW_FMT_F32, keys ? 1 : (int64_t)l->n_heads * l->d_head);
    gw_node *node = new_node(w, GW_OP_ROPE_KV, "rope_kv", q);
    int alone = (b->flags & GW_FLAG_QUERY) != 0;
    node->in[0] = as_f32(w, b->in);
    if (!alone) {
        node->in[1] = &w->in->k[w->layer];
        node->in[2] = &w->in->v[w->layer];
        node->in[3] = table_of(w, w->layer < w->in->hp->n_source, w->layer);
    }
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    if (l->rope >= 0) {
        node->w[2] = &w->in->rope[w->device * GW_MAX_ROPES + l->rope];
    }
    if (l->q_factor >= 0) {
        node->w[3] = &w->in->q_factor[w->device * GW_MAX_FACTORS + l->q_factor];
    }
    node->args.rope =
        (gw_rope_args){.heads = keys ? 0 : l->n_heads,
                       .kv_heads = alone ? 0 : l->n_kv_heads,
                       .head_dim = l->d_head,
                       .rope_dim = l->rope >= 0 ? hp->rope[l->rope].dim : 0,
                       .style = l->rope >= 0 ? hp->rope[l->rope].style : GW_ROPE_HALVES,
                       .eps = (float)number(w, b, GW_ARG_EPS, (double)hp->norm_eps),
                       .v_dim = l->v_head != l->d_head ? l->v_head : 0,
                       .norm_kind = b->flags & GW_FLAG_LAYERNORM ? GW_NORM_LAYER : GW_NORM_RMS,
                       .norm_span = b->flags & GW_FLAG_ROW     ? GW_SPAN_ROW
                                    : b->flags & GW_FLAG_HEADS ? GW_SPAN_HEADS
                                                               : GW_SPAN_HEAD,
                       .norm_after = (b->flags & GW_FLAG_AFTER) != 0,
                       .norm_plain = (b->flags & GW_FLAG_PLAIN) != 0,
                       .norm_v = (b->flags & GW_FLAG_NORM_V) != 0};
    give(w, b, q);
}

static void emit_attention(walk *w, const gw_spec_block *b) {
    const gw_layer *l = layer_of(w);
    gw_tensor *out = new_value(w, b, (int64_t)l->n_heads * l->v_head);
    gw_node *node = new_node(w, GW_OP_ATTENTION, "attention", out);
    int cross = (b->flags & GW_FLAG_CROSS) != 0;
    int cache = (int)number(w, b, GW_ARG_CACHE, (double)l->cache_of);
    cache = cache < 0 || cache >= w->in->hp->n_layers ? w->layer : cache;
    node->in[0] = as_f32(w, b->in);
    node->in[1] = &w->in->k[cache];
    node->in[2] = &w->in->v[cache];
    node->in[3] = table_of(w, cross || w->layer < w->in->hp->n_source, cache);
    for (int i = 0; i < 3; i++) {
        node->w[i] = weight(w, b, i);
    }
    node->args.attn = (gw_attn_args){.scale = l->attn_scale,
                                     .heads = l->n_heads,
                                     .kv_heads = l->n_kv_heads,
                                     .head_dim = l->d_head,
                                     .v_dim = l->v_head != l->d_head ? l->v_head : 0,
                                     .window = l->window,
                                     .chunk = l->chunk,
                                     .softcap = l->attn_cap,
                                     .both = cross || !l->causal,
                                     .reach = (int)number(w, b, GW_ARG_REACH, 0.0),
                                     .order = w->in->order};
    give(w, b, out);
}

/* Scale, gate and cap of x, and the stream where the block adds to it. */
static gw_node *new_mix(walk *w, const gw_spec_block *b, const gw_tensor *x, gw_tensor *out) {
    gw_node *node = new_node(w, GW_OP_MIX, "mix", out);
    node->in[0] = x;
    node->in[2] = b->flags & GW_FLAG_ADD ? w->graph->stream : NULL;
    node->args.mix.scale = (float)number(w, b, GW_ARG_SCALE, 0.0);
    node->args.mix.gate_act = GW_ACT_NONE;
    return node;
}

static void emit_residual(walk *w, const gw_spec_block *b) {
    double scale = number(w, b, GW_ARG_SCALE, 1.0);
    const char *what = w->before == GW_BLOCK_ATTENTION ? "attn_out" : "ffn_down";
    gw_tensor *stream = w->graph->stream;
    if (scale == 1.0) {
        gw_node *node = new_product(w, b, 1, what, stream_on(w, w->device));
        node->in[1] = stream;
        finish(w, b, node->out);
        return;
    }
    const gw_tensor *y = new_product(w, b, 1, what, NULL)->out;
    finish(w, b, new_mix(w, b, y, new_result(w, b, y->dim[1]))->out);
}

/* The activation that the block names, or that a number of the model says. */
static gw_act_kind act_of(const walk *w, const gw_spec_block *b) {
    if (b->act_number < 0) {
        return b->act;
    }
    int row = w->layer < 0 ? 0 : w->layer;
    double x = w->in->hp->values[(size_t)row * (size_t)w->in->hp->n_values + (size_t)b->act_number];
    return x >= 0.0 && x < GW_ACT_KINDS ? (gw_act_kind)x : GW_ACT_KINDS;
}

static gw_act_args act_args(const walk *w, const gw_spec_block *b, int gated) {
    return (gw_act_args){.kind = act_of(w, b),
                         .gated = gated,
                         .limit = (float)number(w, b, GW_ARG_LIMIT, 0.0),
                         .alpha = (float)number(w, b, GW_ARG_ALPHA, 0.0)};
}

static void emit_act(walk *w, const gw_spec_block *b, const gw_tensor *x, gw_act_args act) {
    int64_t cols = x->dim[1] / (act.gated ? 2 : 1);
    gw_tensor *out = w->last ? new_result(w, b, cols) : new_value(w, b, cols);
    gw_node *node = new_node(w, GW_OP_ACT, "act", out);
    node->in[0] = x;
    node->w[0] = act.gated ? NULL : weight(w, b, 1);
    node->args.act = act;
    give(w, b, out);
}

static void emit_glu(walk *w, const gw_spec_block *b) {
    gw_act_args act = act_args(w, b, 1);
    int biased = weight(w, b, 3) != NULL || weight(w, b, 4) != NULL;
    if (act.kind != GW_ACT_SILU || act.limit > 0.0f || biased) {
        emit_act(w, b, new_product(w, b, 2, "ffn_gate_up", NULL)->out, act);
        return;
    }
    const gw_tensor *x = input(w, b, weight(w, b, 0)), *gate = weight(w, b, 0);
    gw_tensor *out = new_value(w, b, gate != NULL ? gate->dim[0] : 1);
    gw_node *node = new_node(w, GW_OP_GLU, "ffn_gate_up", out);
    node->in[0] = x;
    node->w[0] = gate;
    node->w[1] = weight(w, b, 1);
    node->args.linear.order = w->in->order;
    give(w, b, out);
}

static void emit_mlp(walk *w, const gw_spec_block *b) {
    emit_act(w, b, new_product(w, b, 1, "ffn_up", NULL)->out, act_args(w, b, 0));
}

static void emit_mix(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    int64_t cols = x != NULL ? x->dim[1] : 1;
    gw_tensor *out =
        w->last || b->out == GW_VALUE_STREAM ? new_result(w, b, cols) : new_value(w, b, cols);
    gw_node *node = new_mix(w, b, x, out);
    node->in[1] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->in[2] = b->plus >= 0 ? as_f32(w, b->plus) : node->in[2];
    node->w[0] = weight(w, b, 0);
    node->args.mix.cap = (float)number(w, b, GW_ARG_CAP, 0.0);
    finish(w, b, out);
}

static void emit_add(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    finish(w, b, new_mix(w, b, x, new_result(w, b, x != NULL ? x->dim[1] : 1))->out);
}

static void emit_route(walk *w, const gw_spec_block *b) {
    int used = (int)number(w, b, GW_ARG_USED, 1.0);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, 2 * (int64_t)(used > 0 ? used : 1));
    gw_node *node = new_node(w, GW_OP_ROUTE, "route", out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->args.route =
        (gw_route_args){.used = used,
                        .score = b->act_number < 0 ? b->score : (gw_score)act_of(w, b),
                        .groups = (int)number(w, b, GW_ARG_GROUPS, 0.0),
                        .groups_used = (int)number(w, b, GW_ARG_GROUPS_USED, 0.0),
                        .group_best = (int)number(w, b, GW_ARG_BEST, 2.0),
                        .renorm = number(w, b, GW_ARG_RENORM, 0.0) != 0.0,
                        .scale = (float)number(w, b, GW_ARG_SCALE, 0.0),
                        .jitter = (float)number(w, b, GW_ARG_JITTER, 0.0)};
    give(w, b, out);
}

/* gate, up and down of the chosen experts; an expert without a gate has its first matrix in w0. */
static void emit_experts(walk *w, const gw_spec_block *b) {
    int gated = weight(w, b, 0) != NULL, first = gated ? 0 : 1;
    const gw_tensor *one = weight(w, b, first), *down = weight(w, b, 2);
    const gw_tensor *x = input(w, b, one), *route = as_f32(w, b->side);
    gw_experts_args args = {.experts = layer_of(w)->n_experts,
                            .used = route != NULL ? (int)(route->dim[1] / 2) : 1,
                            .act = act_args(w, b, gated),
                            .gate_input = (b->flags & GW_FLAG_GATE_INPUT) != 0,
                            .order = w->in->order};
    int experts = args.experts > 0 ? args.experts : 1;
    int64_t f = one != NULL ? one->dim[0] / experts : 1;
    gw_fmt fmt = is_quantized(down) ? GW_FMT_ACT8 : GW_FMT_F32;
    gw_tensor *hidden = new_tensor(w, fmt, args.used * f);
    gw_node *node = new_node(w, GW_OP_EXPERTS_GLU, "experts_gate_up", hidden);
    node->in[0] = x;
    node->in[1] = route;
    node->w[0] = one;
    node->w[1] = gated ? weight(w, b, 1) : NULL;
    node->w[2] = weight(w, b, 3 + first);
    node->w[3] = gated ? weight(w, b, 4) : NULL;
    node->args.experts = args;
    const gw_tensor *stream = w->graph->stream;
    gw_tensor *out = new_result(w, b, down != NULL ? down->dim[0] / experts : 1);
    node = new_node(w, GW_OP_EXPERTS_DOWN, "experts_down", out);
    node->in[0] = hidden;
    node->in[1] = route;
    node->in[2] = b->flags & GW_FLAG_ADD ? stream : NULL;
    node->w[0] = down;
    node->w[1] = weight(w, b, 5);
    node->args.experts = args;
    finish(w, b, out);
}

static void emit_pool(walk *w, const gw_spec_block *b) {
    double kind = number(w, b, GW_ARG_KIND, GW_PICK_FIRST);
    const gw_tensor *x = w->graph->hidden;
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x->dim[1]);
    gw_node *node = new_node(w, GW_OP_PICK, "pool", out);
    node->in[0] = x;
    node->args.pick.kind =
        kind >= GW_PICK_FIRST && kind <= GW_PICK_MEAN ? (gw_pick_kind)kind : GW_PICK_FIRST;
    give(w, b, out);
}

/* ---- states, groups, columns ---------------------------------------------------------------- */

static const gw_tensor *state_of(const walk *w) {
    return &w->in->state[w->layer * w->bp->n_blocks + w->block];
}

static void emit_conv(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_CONV, role(w, b, 0), out);
    node->in[0] = x;
    node->in[1] = state_of(w);
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->args.conv = (gw_conv_args){.taps = (int)number(w, b, GW_ARG_TAPS, 0.0),
                                     .act = act_of(w, b),
                                     .apart = (int)number(w, b, GW_ARG_APART, 1.0)};
    give(w, b, out);
}

static void emit_scan(walk *w, const gw_spec_block *b) {
    int delta = b->kind == GW_BLOCK_DELTA;
    gw_scan_args a = {.kind = delta ? GW_SCAN_DELTA : GW_SCAN_SSM,
                      .heads = (int)number(w, b, GW_ARG_HEADS, 0.0),
                      .groups = (int)number(w, b, GW_ARG_GROUPS, number(w, b, GW_ARG_HEADS, 0.0)),
                      .k_dim = (int)number(w, b, GW_ARG_KEYS, 0.0),
                      .v_dim = (int)number(w, b, GW_ARG_VALUES, 0.0),
                      .by_channel = (b->flags & GW_FLAG_BY_CHANNEL) != 0,
                      .tiled = number(w, b, GW_ARG_TILED, 0.0) != 0.0,
                      .low = (float)number(w, b, GW_ARG_LOW, 0.0),
                      .high = (float)number(w, b, GW_ARG_HIGH, (double)INFINITY)};
    if (a.k_dim > 0) { /* vectors of length 1, q divided by the square root of its width */
        a.eps = (float)(number(w, b, GW_ARG_EPS, 1e-6) / a.k_dim);
        a.q_scale = (float)(1.0 / a.k_dim);
        a.k_scale = (float)(1.0 / sqrt((double)a.k_dim));
    }
    int64_t cols = (int64_t)a.heads * a.v_dim;
    gw_tensor *out = new_tensor(w, GW_FMT_F32, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_SCAN, delta ? "delta" : "ssm", out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = state_of(w);
    node->in[2] = as_f32(w, b->side);
    node->in[3] = delta ? as_f32(w, b->plus) : NULL;
    for (int i = 0; i < (delta ? 2 : 3); i++) {
        node->w[i] = weight(w, b, i);
    }
    node->args.scan = a;
    give(w, b, out);
}

static void emit_norm_groups(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    int groups = (int)number(w, b, GW_ARG_HEADS, 1.0), measure = (b->flags & GW_FLAG_MEASURE) != 0;
    int64_t cols = x != NULL ? x->dim[1] : 1;
    gw_tensor *out = b->section == GW_SECTION_START && is_kept(w, b->out)
                         ? kept_value(w, b->out)
                         : new_tensor(w, GW_FMT_F32, measure ? groups : cols);
    gw_node *node = new_node(w, GW_OP_GROUP_NORM, role(w, b, 0), out);
    node->in[0] = x;
    node->in[1] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->w[0] = weight(w, b, 0);
    node->args.group_norm =
        (gw_group_norm_args){.groups = groups,
                             .measure = measure,
                             .eps = (float)number(w, b, GW_ARG_EPS, (double)w->in->hp->norm_eps),
                             .gate_act = act_of(w, b),
                             .gate_first = (b->flags & GW_FLAG_BEFORE) != 0};
    give(w, b, out);
}

static void emit_heads(walk *w, const gw_spec_block *b) {
    const gw_tensor *matrix = weight(w, b, 0);
    gw_heads_args a = {.heads = (int)number(w, b, GW_ARG_HEADS, 1.0),
                       .first = (int)number(w, b, GW_ARG_FIRST, 0.0),
                       .pass_first = (int)number(w, b, GW_ARG_PASS_FIRST, 0.0),
                       .pass = (int)number(w, b, GW_ARG_PASS, 0.0)};
    int64_t rows = matrix != NULL && a.heads > 0 ? matrix->dim[0] : 1;
    gw_tensor *out = new_tensor(w, GW_FMT_F32, rows + (int64_t)a.heads * a.pass);
    gw_node *node = new_node(w, GW_OP_HEADS, role(w, b, 0), out);
    node->in[0] = as_f32(w, b->in);
    node->w[0] = matrix;
    node->args.heads = a;
    give(w, b, out);
}

static gw_tensor *new_float(walk *w, const gw_spec_block *b, int64_t cols) {
    return w->last || b->out == GW_VALUE_STREAM ? new_result(w, b, cols)
                                                : new_tensor(w, GW_FMT_F32, cols);
}

static void emit_columns(walk *w, const gw_spec_block *b) {
    enum { PARTS = 4 };
    const int values[PARTS] = {b->in, b->side, b->plus, b->more};
    const gw_tensor *in[PARTS] = {NULL};
    int64_t cols = 0;
    for (int i = 0; i < PARTS; i++) {
        in[i] = values[i] >= 0 ? as_f32(w, values[i]) : NULL;
        cols += in[i] != NULL ? in[i]->dim[1] : 0;
    }
    int first = (int)number(w, b, GW_ARG_FIRST, 0.0), own = in[0] != NULL ? (int)in[0]->dim[1] : 1;
    cols = cols - own + (int)number(w, b, GW_ARG_WIDTH, own - first);
    gw_tensor *out = new_float(w, b, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_COLUMNS, "columns", out);
    memcpy(node->in, in, sizeof in);
    node->args.columns.first = first;
    finish(w, b, out);
}

static void emit_streams(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_streams_args a = {.streams = (int)number(w, b, GW_ARG_HEADS, 1.0),
                         .inputs = (int)number(w, b, GW_ARG_INPUTS, 1.0),
                         .from = (int)number(w, b, GW_ARG_FIRST, 0.0),
                         .plus = (float)number(w, b, GW_ARG_PLUS, 0.0)};
    int64_t cols = x != NULL && a.inputs > 0 ? x->dim[1] / a.inputs * a.streams : 1;
    gw_tensor *out = new_float(w, b, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_STREAMS, "streams", out);
    node->in[0] = x;
    node->in[1] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->in[2] = b->plus >= 0 ? as_f32(w, b->plus) : NULL;
    node->args.streams = a;
    finish(w, b, out);
}

static void emit_sparse_glu(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL && x->dim[1] > 1 ? x->dim[1] / 2 : 1);
    gw_node *node = new_node(w, GW_OP_SPARSE_GLU, "act", out);
    node->in[0] = x;
    node->args.sparse = (gw_sparse_args){.act = act_of(w, b),
                                         .deviations = (float)number(w, b, GW_ARG_DEVIATIONS, 0.0)};
    give(w, b, out);
}

/* ---- hyper-connections, compressed caches, lists, n-grams ----------------------------------- */

static void emit_bare_act(walk *w, const gw_spec_block *b) {
    emit_act(w, b, as_f32(w, b->in), (gw_act_args){.kind = act_of(w, b)});
}

static void emit_hyper(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_HYPER, "hyper", out);
    node->in[0] = x;
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->args.hyper = (gw_hyper_args){.streams = (int)number(w, b, GW_ARG_HEADS, 1.0),
                                       .rounds = (int)number(w, b, GW_ARG_ROUNDS, 1.0),
                                       .eps = (float)number(w, b, GW_ARG_EPS, 0.0)};
    give(w, b, out);
}

/* The rope that a block names, or the layer's; NULL: none, of no width. */
static const gw_tensor *rope_of(const walk *w, const gw_spec_block *b, int *dim,
                                gw_rope_style *style) {
    int r = (int)number(w, b, GW_ARG_TABLE, (double)layer_of(w)->rope);
    int is = r >= 0 && r < w->in->hp->n_ropes;
    *dim = is ? w->in->hp->rope[r].dim : 0;
    *style = is ? w->in->hp->rope[r].style : GW_ROPE_HALVES;
    return is ? &w->in->rope[w->device * GW_MAX_ROPES + r] : NULL;
}

static void emit_rotate(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_ROTATE, "rotate", out);
    gw_rotate_args a = {.heads = (int)number(w, b, GW_ARG_HEADS, 1.0),
                        .first = (int)number(w, b, GW_ARG_FIRST, 0.0),
                        .back = (b->flags & GW_FLAG_BACK) != 0};
    node->in[0] = x;
    node->w[0] = rope_of(w, b, &a.rope_dim, &a.style);
    node->args.rotate = a;
    give(w, b, out);
}

static void emit_dot(walk *w, const gw_spec_block *b) {
    gw_dot_args a = {.groups = (int)number(w, b, GW_ARG_HEADS, 1.0),
                     .scale = (float)number(w, b, GW_ARG_FACTOR, 1.0),
                     .root = (b->flags & GW_FLAG_ROOT) != 0};
    gw_tensor *out = new_tensor(w, GW_FMT_F32, a.groups > 0 ? a.groups : 1);
    gw_node *node = new_node(w, GW_OP_GROUP_DOT, "dot", out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = as_f32(w, b->side);
    node->args.dot = a;
    give(w, b, out);
}

/* Of a layer's areas the one that number n says; one of no size where there is none. */
static gw_area area_of(const walk *w, int n) {
    const gw_layer *l = layer_of(w);
    return n >= 0 && n < l->n_areas ? l->area[n] : (gw_area){.ratio = 0};
}

static const gw_tensor *paged_of(const walk *w) {
    return w->in->paged != NULL ? &w->in->paged[w->layer] : NULL;
}

static void emit_compress(walk *w, const gw_spec_block *b) {
    int nth = 0;
    for (int i = 0; i < w->block; i++) {
        nth += w->bp->block[i].kind == GW_BLOCK_COMPRESS &&
               gw_block_runs(&w->bp->block[i], w->in->hp, w->layer);
    }
    gw_tensor *out = new_tensor(w, GW_FMT_F32, 1);
    gw_node *node = new_node(w, GW_OP_COMPRESS, "compress", out);
    gw_compress_args a = {.area = area_of(w, nth),
                          .series = (int)number(w, b, GW_ARG_SERIES, 0.0),
                          .first = (int)number(w, b, GW_ARG_FIRST, 0.0),
                          .eps = (float)number(w, b, GW_ARG_EPS, (double)w->in->hp->norm_eps)};
    node->in[0] = as_f32(w, b->in);
    node->in[1] = paged_of(w);
    node->in[2] = table_of(w, 0, w->layer);
    node->w[0] = weight(w, b, 1);
    node->w[1] = weight(w, b, 0);
    node->w[2] = rope_of(w, b, &a.rope_dim, &a.style);
    node->args.compress = a;
    give(w, b, out);
}

static void emit_choose(walk *w, const gw_spec_block *b) {
    int64_t most = (int64_t)number(w, b, GW_ARG_MOST, 1.0);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, most > 0 ? most : 1);
    gw_node *node = new_node(w, GW_OP_CHOOSE, "choose", out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = paged_of(w);
    node->in[2] = table_of(w, 0, w->layer);
    node->in[3] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->args.choose = (gw_choose_args){.area = area_of(w, (int)number(w, b, GW_ARG_AREA, 0.0)),
                                         .heads = (int)number(w, b, GW_ARG_HEADS, 1.0),
                                         .whole = (b->flags & GW_FLAG_WHOLE) != 0};
    give(w, b, out);
}

static void emit_listed(walk *w, const gw_spec_block *b) {
    const gw_layer *l = layer_of(w);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, (int64_t)l->n_heads * l->v_head);
    gw_node *node = new_node(w, GW_OP_LISTED, "listed", out);
    int area = (int)number(w, b, GW_ARG_AREA, -1.0);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = &w->in->k[w->layer];
    node->in[2] = &w->in->v[w->layer];
    node->in[3] = table_of(w, 0, w->layer);
    node->in[4] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->in[5] = area >= 0 ? paged_of(w) : NULL;
    node->w[0] = weight(w, b, 0);
    node->args.listed = (gw_listed_args){.area = area_of(w, area),
                                         .scale = l->attn_scale,
                                         .heads = l->n_heads,
                                         .kv_heads = l->n_kv_heads,
                                         .head_dim = l->d_head,
                                         .window = l->window};
    if (area < 0) {
        node->args.listed.area.ratio = (int)number(w, b, GW_ARG_RATIO, 0.0);
    }
    give(w, b, out);
}

static void emit_ngram(walk *w, const gw_spec_block *b) {
    const gw_tensor *table = weight(w, b, 0);
    gw_ngram_args a = {.size = (int)number(w, b, GW_ARG_SIZE, 2.0),
                       .heads = (int)number(w, b, GW_ARG_HEADS, 1.0),
                       .index = (int)number(w, b, GW_ARG_INDEX, 0.0),
                       .vocab = w->in->hp->n_vocab,
                       .end = (int)number(w, b, GW_ARG_END, 0.0),
                       .base = (int64_t)number(w, b, GW_ARG_BASE, 0.0),
                       .seed = (int64_t)number(w, b, GW_ARG_SEED, 0.0)};
    int64_t cols = table != NULL ? table->dim[1] * (a.size - 1) * a.heads : 1;
    gw_tensor *out = new_tensor(w, GW_FMT_F32, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_NGRAM, "ngram", out);
    node->in[1] = state_of(w);
    node->w[0] = table;
    node->args.ngram = a;
    if (w->in->ids != NULL && w->in->ids->device == w->device) {
        node->in[0] = w->in->ids;
    }
    give(w, b, out);
}

/* clang-format off */
static void (*const emitters[GW_BLOCK_KINDS])(walk *, const gw_spec_block *) = {
    [GW_BLOCK_EMBED]     = emit_embed,
    [GW_BLOCK_NORM]      = emit_norm,
    [GW_BLOCK_QKV]       = emit_qkv,
    [GW_BLOCK_ROPE_KV]   = emit_rope_kv,
    [GW_BLOCK_ATTENTION] = emit_attention,
    [GW_BLOCK_RESIDUAL]  = emit_residual,
    [GW_BLOCK_GLU]       = emit_glu,
    [GW_BLOCK_LINEAR]    = emit_linear,
    [GW_BLOCK_MLP]       = emit_mlp,
    [GW_BLOCK_MIX]       = emit_mix,
    [GW_BLOCK_ADD]       = emit_add,
    [GW_BLOCK_ROUTE]     = emit_route,
    [GW_BLOCK_EXPERTS]   = emit_experts,
    [GW_BLOCK_POOL]      = emit_pool,
    [GW_BLOCK_CONV]      = emit_conv,
    [GW_BLOCK_DELTA]     = emit_scan,
    [GW_BLOCK_SSM]       = emit_scan,
    [GW_BLOCK_NORM_GROUPS] = emit_norm_groups,
    [GW_BLOCK_HEADS]     = emit_heads,
    [GW_BLOCK_COLUMNS]   = emit_columns,
    [GW_BLOCK_STREAMS]   = emit_streams,
    [GW_BLOCK_SPARSE_GLU] = emit_sparse_glu,
    [GW_BLOCK_ACT]       = emit_bare_act,
    [GW_BLOCK_HYPER]     = emit_hyper,
    [GW_BLOCK_ROTATE]    = emit_rotate,
    [GW_BLOCK_DOT]       = emit_dot,
    [GW_BLOCK_COMPRESS]  = emit_compress,
    [GW_BLOCK_CHOOSE]    = emit_choose,
    [GW_BLOCK_LISTED]    = emit_listed,
    [GW_BLOCK_NGRAM]     = emit_ngram,
};
/* clang-format on */

static int row_of(const gw_hparams *hp, int layer) { return layer < 0 ? hp->n_layers : layer; }

static int block_device(const walk *w, int block) {
    const gw_where *where = w->in->where;
    return where != NULL ? where[row_of(w->in->hp, w->layer) * w->bp->n_blocks + block] : 0;
}

int gw_graph_head_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where) {
    int last = bp->n_blocks - 1;
    while (last > 0 && bp->block[last].section == GW_SECTION_SCORE) {
        last--;
    }
    return where[(bp->block[last].section == GW_SECTION_HEAD ? hp->n_layers : hp->n_layers - 1) *
                     bp->n_blocks +
                 last];
}

int gw_graph_block_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                          int layer, gw_block_kind kind) {
    for (int b = 0; b < bp->n_blocks; b++) {
        if (bp->block[b].kind == kind && gw_block_runs(&bp->block[b], hp, layer)) {
            return where[layer * bp->n_blocks + b];
        }
    }
    return 0;
}

int gw_graph_cache_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                          int layer) {
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        int fills = block->kind == GW_BLOCK_ROPE_KV && !(block->flags & GW_FLAG_QUERY);
        int reads = (block->kind == GW_BLOCK_ATTENTION && !(block->flags & GW_FLAG_CROSS)) ||
                    block->kind == GW_BLOCK_LISTED;
        if ((fills || reads) && gw_block_runs(block, hp, layer)) {
            return where[layer * bp->n_blocks + b];
        }
    }
    return 0;
}

/* Where the block before layer `first` has left the stream. */
static int stream_device(const walk *w, int first) {
    walk before = *w;
    const gw_hparams *hp = w->in->hp;
    before.layer = first - 1;
    for (int i = w->bp->n_blocks - 1; i >= 0; i--) {
        const gw_spec_block *b = &w->bp->block[i];
        int there = first > 0 ? gw_block_runs(b, hp, first - 1) : b->section == GW_SECTION_START;
        if (there && b->out == GW_VALUE_STREAM) {
            return block_device(&before, i);
        }
    }
    return 0;
}

/* Blocks [first, end) of a section in order; the last one's result goes to `result`. */
static void emit_blocks(walk *w, gw_section section, int first, int end, const gw_tensor *result) {
    int row = row_of(w->in->hp, w->layer);
    w->result = result;
    for (int i = first; i < end; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (b->section == section && gw_block_runs(b, w->in->hp, row)) {
            w->device = block_device(w, i);
            w->block = i;
            w->last = result != NULL && i == end - 1;
            emitters[b->kind](w, b);
            w->before = b->kind;
        }
    }
}

/* [*first, *end) of the blueprint's blocks are those of a section outside the layers. */
static void find_section(const gw_blueprint *bp, gw_section section, int *first, int *end) {
    *first = 0;
    while (*first < bp->n_blocks && bp->block[*first].section < section) {
        ++*first;
    }
    *end = *first;
    while (*end < bp->n_blocks && bp->block[*end].section == section) {
        ++*end;
    }
}

static void emit_section(walk *w, gw_section section, const gw_tensor *result) {
    int first, end;
    find_section(w->bp, section, &first, &end);
    emit_blocks(w, section, first, end, result);
}

/* first: the layer before which the walk begins. */
static walk start_walk(gw_graph *graph, const gw_graph_inputs *in, int first) {
    walk w = {.graph = graph, .in = in, .bp = gw_weights_blueprint(in->weights)};
    w.layer = w.block = -1;
    if (graph->stream == NULL) {
        graph->stream = stream_on(&w, stream_device(&w, first));
    }
    return w;
}

gw_status gw_graph_check(const gw_graph *graph) {
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const gw_node *node = &graph->nodes[i];
        if (node->op == GW_OP_ACT && node->args.act.kind >= GW_ACT_KINDS) {
            return gw_fail(GW_E_METADATA, "plan", "layer %d: the activation is none", node->layer);
        }
        GW_TRY(gw_op_describe(node->op)->check(node));
    }
    return GW_OK;
}

void gw_graph_body(gw_graph *graph, const gw_graph_inputs *in, int first, int end) {
    walk w = start_walk(graph, in, first);
    if (first == 0) {
        emit_section(&w, GW_SECTION_START, NULL);
    }
    for (w.layer = first; w.layer < end; w.layer++) {
        emit_section(&w, GW_SECTION_LAYER, NULL);
    }
}

void gw_graph_head(gw_graph *graph, const gw_graph_inputs *in, int pick) {
    walk w = start_walk(graph, in, in->hp->n_layers);
    if (pick) { /* where the stream is, so that only the rows picked travel */
        const gw_tensor *x = graph->stream;
        w.device = x->device;
        gw_tensor *rows = new_tensor(&w, GW_FMT_F32, x->dim[1]);
        new_node(&w, GW_OP_PICK, "pick", rows)->in[0] = x;
        graph->stream = rows;
    }
    int first, end;
    find_section(w.bp, GW_SECTION_HEAD, &first, &end);
    gw_block_kind last = end > first ? w.bp->block[end - 1].kind : GW_BLOCK_NORM;
    int logits = last == GW_BLOCK_LINEAR || last == GW_BLOCK_MIX; /* an encoder has none */
    emit_blocks(&w, GW_SECTION_HEAD, first, end, logits ? &in->logits : NULL);
}

void gw_graph_hidden(gw_graph *graph, const gw_graph_inputs *in) {
    walk w = start_walk(graph, in, in->hp->n_layers);
    int first, end, stop;
    find_section(w.bp, GW_SECTION_HEAD, &first, &end);
    for (stop = first; stop < end && gw_block_matrices(&w.bp->block[stop]) == 0;) {
        stop++;
    }
    size_t before = graph->n_nodes;
    emit_blocks(&w, GW_SECTION_HEAD, first, stop, &in->hidden);
    graph->hidden = graph->n_nodes > before ? graph->nodes[graph->n_nodes - 1].out : graph->stream;
}

void gw_graph_pool(gw_graph *graph, const gw_graph_inputs *in, gw_pick_kind kind) {
    walk w = start_walk(graph, in, in->hp->n_layers);
    w.device = graph->hidden->device;
    gw_node *node = new_node(&w, GW_OP_PICK, "pool", new_view(&w, &in->pooled));
    node->in[0] = graph->hidden;
    node->args.pick.kind = kind;
}

void gw_graph_score(gw_graph *graph, const gw_graph_inputs *in) {
    walk w = start_walk(graph, in, in->hp->n_layers);
    emit_section(&w, GW_SECTION_SCORE, &in->scores);
}

void gw_graph_sample(gw_graph *graph, const gw_graph_inputs *in) {
    walk w = start_walk(graph, in, in->hp->n_layers);
    w.device = in->logits.device;
    gw_node *node = new_node(&w, GW_OP_SAMPLE, "sample", in->ids);
    int alone = graph->n_nodes == 1;
    node->in[0] = alone ? new_view(&w, &in->logits) : graph->nodes[graph->n_nodes - 2].out;
    node->in[1] = in->choice;
}
