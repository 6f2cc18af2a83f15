/* core/model/build.c - walks the blocks of a spec and emits nodes. Knows blocks, no family. */
#include "core/model/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/build_walk.h"
#include "core/plan/digits.h"

static const gw_group alone = {.n = 1};

gw_status gw_graph_new(const gw_graph_inputs *in, gw_graph *out) {
    const gw_blueprint *bp = gw_weights_blueprint(in->weights);
    size_t each = in->lora != NULL ? 14 : 6; /* nodes of a block at most */
    size_t cards = 1, views = GW_MAX_DEVICES * (2 + GW_SPEC_VALUES);
    for (int d = 0; in->groups != NULL && d < in->n_devices; d++) {
        cards = (size_t)in->groups[d].n > cards ? (size_t)in->groups[d].n : cards;
    }
    size_t most = cards * (each * (size_t)bp->n_blocks * ((size_t)in->hp->n_layers + 1) + 4);
    most += 2 * (size_t)in->n_taps;
    gw_graph g = {.max_nodes = most, .max_tensors = most + 4 + views + 3 * (size_t)in->n_taps};
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

/* ---- one emitter per block ------------------------------------------------------------------ */

/* Rows of pictures: in place of their embedding, or added after a layer. */
static void see(walk *w, int which) {
    gw_tensor *out = stream_on(w, w->device);
    gw_node *node = new_node(w, GW_OP_MIX, which == 0 ? "seen" : "seen_deep", out);
    node->in[0] = w->graph->stream[w->card];
    node->in[1] = which == 0 ? view_of_rows(w, on_device(w, w->in->gate, 1, 0)) : NULL;
    node->in[2] = view_of_rows(w, on_device(w, w->in->seen, 1 + w->in->n_deep, which));
    node->args.mix.gate_act = GW_ACT_NONE;
    w->graph->stream[w->card] = out;
}

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
    if (w->in->ids != NULL && w->in->ids[w->device].n_dim > 0) {
        node->in[0] = &w->in->ids[w->device];
    }
    finish(w, b, out);
    if (b->out == GW_VALUE_STREAM && b->section == GW_SECTION_START && w->in->gate != NULL) {
        see(w, 0);
    }
}

static void emit_norm(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    int64_t cols = x != NULL ? x->dim[1] : 1;
    int adds = (b->flags & GW_FLAG_ADD) != 0, more = adds || weight(w, b, 2) != NULL;
    gw_tensor *out = more || w->last || b->out == GW_VALUE_STREAM ? new_result(w, b, cols)
                                                                  : new_value(w, b, cols);
    gw_node *node = new_node(w, GW_OP_NORM, role(w, b, 0), out);
    node->in[0] = x;
    node->in[1] = adds ? w->graph->stream[w->card] : NULL;
    for (int i = 0; i < 3; i++) {
        node->w[i] = weight(w, b, i);
    }
    node->args.norm.eps = (float)number(w, b, GW_ARG_EPS, (double)w->in->hp->norm_eps);
    node->args.norm.kind = b->flags & GW_FLAG_LAYERNORM ? GW_NORM_LAYER : GW_NORM_RMS;
    finish(w, b, out);
    /* Blocks out of a norm are not those of its floats: adapters take floats of their own, so that
     * the product keeps its bits. */
    if (b->out != GW_VALUE_STREAM && !more && readers(w, b->out) == (AS_ACT8 | AS_LORA)) {
        gw_tensor *blocks = new_tensor(w, GW_FMT_ACT8, cols);
        gw_node *again = new_node(w, GW_OP_NORM, role(w, b, 0), blocks);
        gw_tensor *made = again->out;
        *again = *node;
        again->out = made;
        w->value[b->out].act8 = blocks;
    }
}

/* y and of each row the products with its adapters, as of experts: y + sum of scale * B (A x). out
 * may be y where it is placed. */
static void adapt(walk *w, const gw_spec_block *b, const gw_lora_product *p, const gw_tensor *y,
                  gw_tensor *out) {
    gw_experts_args args = {.experts = gw_lora_bank_places(w->in->lora),
                            .used = gw_lora_bank_at_once(w->in->lora),
                            .act = {.kind = GW_ACT_NONE},
                            .order = GW_ORDER_DECODE,
                            .rank = gw_lora_bank_rank(w->in->lora)};
    for (int k = 0; k < 3; k++) {
        args.end[k] = p->end[k];
        args.part[k] = p->part[k];
    }
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *inner = new_tensor(w, GW_FMT_F32, args.used * (p->a.dim[0] / args.experts));
    gw_node *node = new_node(w, GW_OP_EXPERTS_GLU, "lora_a", inner);
    node->in[0] = x;
    node->in[1] = lora_route(w);
    node->w[0] = &p->a;
    node->args.experts = args;
    node = new_node(w, GW_OP_EXPERTS_DOWN, "lora_b", out);
    node->in[0] = inner;
    node->in[1] = lora_route(w);
    node->in[2] = y;
    node->w[0] = &p->b;
    node->args.experts = args;
}

/* Up to three matrices stacked, and their biases, from arg and arg + 3; then `plus` (may be NULL),
 * and what adapters add. out NULL: a new tensor. */
static gw_tensor *new_product(walk *w, const gw_spec_block *b, int n, const char *what,
                              const gw_tensor *plus, gw_tensor *out) {
    const gw_tensor *x = input(w, b, weight(w, b, 0));
    const gw_lora_product *lora = adapted(w, b);
    int64_t cols = 0;
    for (int i = 0; i < n; i++) {
        cols += weight(w, b, i) != NULL ? weight(w, b, i)->dim[0] : 0;
    }
    out = out != NULL ? out : new_tensor(w, GW_FMT_F32, cols);
    int in_place = lora == NULL || (out->buf != NULL && b->in != GW_VALUE_STREAM);
    gw_tensor *y = in_place ? out : new_tensor(w, GW_FMT_F32, cols);
    gw_node *node = new_node(w, GW_OP_LINEAR, what, y);
    node->in[0] = x;
    node->in[1] = plus;
    for (int i = 0; i < n; i++) {
        node->w[i] = weight(w, b, i);
        node->w[3 + i] = weight(w, b, 3 + i);
    }
    node->args.linear.order = w->in->order;
    if (lora != NULL) {
        adapt(w, b, lora, y, out);
    }
    return out;
}

static void emit_qkv(walk *w, const gw_spec_block *b) {
    give(w, b, new_product(w, b, 3, "attn_qkv", NULL, NULL));
}

static void emit_linear(walk *w, const gw_spec_block *b) {
    const gw_tensor *first = weight(w, b, 0);
    int single = gw_block_matrices(b) == 1;
    int32_t columns[GW_MAX_CARDS + 1];
    const char *what = b->section == GW_SECTION_HEAD ? "head" : role(w, b, 0);
    if (is_cut(w, b, 0, columns)) {
        const gw_tensor *share = new_product(w, b, 1, what, NULL, NULL);
        gw_tensor *whole = new_result(w, b, columns[w->group->n]);
        exchange(w, share, columns, 1, NULL, whole);
        finish(w, b, whole);
        return;
    }
    gw_tensor *out = single && first != NULL && (w->last || b->out == GW_VALUE_STREAM)
                         ? new_result(w, b, first->dim[0])
                         : NULL;
    finish(w, b, new_product(w, b, gw_block_matrices(b), what, NULL, out));
}

/* Width of a head of layer `cache`: that of a cache in blocks is a multiple of 32, whose last values
 * are zeros where the model's is none (gw_kv_width). */
static int32_t cached_width(walk *w, int cache) {
    const gw_tensor *k = on_device(w, w->in->k, w->in->hp->n_layers, cache);
    int32_t own = w->in->hp->layer[cache].d_head;
    return k != NULL && k->n_dim == 4 && k->dim[2] > own ? (int32_t)k->dim[2] : own;
}

/* Of each head so many columns, zeros beyond its own. */
static void emit_widen(walk *w, const gw_tensor *x, int32_t heads, gw_tensor *out) {
    gw_node *node = new_node(w, GW_OP_WIDEN, "widen", out);
    node->in[0] = x;
    node->args.widen.heads = heads;
}

static void emit_rope_kv(walk *w, const gw_spec_block *b) {
    const gw_layer *l = layer_of(w);
    const gw_hparams *hp = w->in->hp;
    const own_heads own = heads_of(w);
    int keys = (b->flags & GW_FLAG_KEYS) != 0;
    int only_q = (b->flags & GW_FLAG_QUERY) != 0;
    const int32_t e = cached_width(w, w->layer);
    const gw_tensor *x = as_f32(w, b->in);
    if (e > l->d_head) {
        const int32_t heads = own.heads + 2 * own.kv_heads;
        gw_tensor *wide = new_tensor(w, GW_FMT_F32, (int64_t)heads * e);
        emit_widen(w, x, heads, wide);
        x = wide;
    }
    gw_tensor *q = new_tensor(w, GW_FMT_F32, keys ? 1 : (int64_t)own.heads * e);
    gw_node *node = new_node(w, GW_OP_ROPE_KV, "rope_kv", q);
    node->in[0] = x;
    if (!only_q) {
        node->in[1] = on_device(w, w->in->k, hp->n_layers, w->layer);
        node->in[2] = values_of(w, w->layer);
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
        (gw_rope_args){.heads = keys ? 0 : own.heads,
                       .kv_heads = only_q ? 0 : own.kv_heads,
                       .head_dim = e,
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

/* The layers in which rows of a picture see one another. */
static int sees_pictures(const walk *w) {
    return gw_spec_layer_number(w->bp, w->in->hp, "picture_rows", w->layer, 0.0) > 0.0;
}

void gw_emit_attention(walk *w, const gw_spec_block *b) {
    const gw_layer *l = layer_of(w);
    own_heads own = heads_of(w);
    int cross = (b->flags & GW_FLAG_CROSS) != 0;
    int cache = (int)number(w, b, GW_ARG_CACHE, (double)l->cache_of);
    cache = cache < 0 || cache >= w->in->hp->n_layers ? w->layer : cache;
    const int32_t e = cached_width(w, cache);
    const int widens = e > l->d_head;
    const int64_t all = (int64_t)l->n_heads * l->v_head;
    gw_tensor *whole = widens ? new_tensor(w, GW_FMT_F32, all) : new_value(w, b, all);
    gw_tensor *out = own.cut ? new_tensor(w, whole->fmt, (int64_t)own.heads * l->v_head) : whole;
    gw_tensor *made = widens ? new_tensor(w, GW_FMT_F32, (int64_t)own.heads * e) : out;
    gw_node *node = new_node(w, GW_OP_ATTENTION, "attention", made);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = on_device(w, w->in->k, w->in->hp->n_layers, cache);
    node->in[2] = values_of(w, cache);
    node->in[3] = table_of(w, cross || w->layer < w->in->hp->n_source, cache);
    for (int i = 0; i < 3; i++) {
        node->w[i] = weight(w, b, i);
    }
    node->args.attn =
        (gw_attn_args){.scale = l->attn_scale,
                       .heads = own.heads,
                       .kv_heads = own.kv_heads,
                       .head_dim = e,
                       .v_dim = l->v_head != l->d_head ? l->v_head : 0,
                       .v_first = l->v_first > 0 ? l->v_first : 0,
                       .window = l->window,
                       .chunk = l->chunk,
                       .softcap = l->attn_cap,
                       .both = cross || !l->causal || (w->in->both && sees_pictures(w)),
                       .reach = (int)number(w, b, GW_ARG_REACH, 0.0),
                       .order = w->in->order};
    /* LISTED has no digits, so a list that holds all has none. */
    node->args.attn.digits = b->kind == GW_BLOCK_ATTENTION && gw_attn_in_digits(node) &&
                             feeds_quantized(w, b->out, w->block);
    if (widens) {
        emit_widen(w, made, own.heads, out);
    }
    for (int c = 0; own.cut && c <= w->group->n; c++) {
        own.first[c] *= l->v_head;
    }
    if (own.cut) {
        exchange(w, out, own.first, 1, NULL, whole);
    }
    give(w, b, whole);
}

/* Scale, gate and cap of x, and the stream where the block adds to it. */
static gw_node *new_mix(walk *w, const gw_spec_block *b, const gw_tensor *x, gw_tensor *out) {
    gw_node *node = new_node(w, GW_OP_MIX, "mix", out);
    node->in[0] = x;
    node->in[2] = b->flags & GW_FLAG_ADD ? w->graph->stream[w->card] : NULL;
    node->args.mix.scale = (float)number(w, b, GW_ARG_SCALE, 0.0);
    node->args.mix.gate_act = GW_ACT_NONE;
    return node;
}

static void emit_residual(walk *w, const gw_spec_block *b) {
    double scale = number(w, b, GW_ARG_SCALE, 1.0);
    const char *what = w->before == GW_BLOCK_ATTENTION ? "attn_out" : "ffn_down";
    gw_tensor *stream = w->graph->stream[w->card];
    int32_t first[GW_MAX_CARDS + 1];
    int cut = is_cut(w, b, 0, first);
    if (scale == 1.0 && !cut) {
        finish(w, b, new_product(w, b, 1, what, stream, stream_on(w, w->device)));
        return;
    }
    const gw_tensor *y = new_product(w, b, 1, what, NULL, NULL);
    if (cut) {
        gw_tensor *whole =
            scale == 1.0 ? stream_on(w, w->device) : new_tensor(w, GW_FMT_F32, first[w->group->n]);
        exchange(w, y, first, 1, scale == 1.0 ? stream : NULL, whole);
        y = whole;
    }
    if (scale == 1.0) {
        finish(w, b, stream_on(w, w->device));
        return;
    }
    finish(w, b, new_mix(w, b, y, new_result(w, b, y->dim[1]))->out);
}

static void emit_act(walk *w, const gw_spec_block *b, const gw_tensor *x, gw_act_args act) {
    int64_t cols = x->dim[1] / (act.gated ? 2 : 1);
    int32_t first[GW_MAX_CARDS + 1];
    int cut = is_cut(w, b, 0, first);
    int64_t all = cut ? first[w->group->n] : cols;
    gw_tensor *whole = w->last ? new_result(w, b, all) : new_value(w, b, all);
    gw_tensor *out = cut ? new_tensor(w, whole->fmt, cols) : whole;
    gw_node *node = new_node(w, GW_OP_ACT, "act", out);
    node->in[0] = x;
    node->w[0] = act.gated ? NULL : weight(w, b, 1);
    node->args.act = act;
    if (cut) {
        exchange(w, out, first, 1, NULL, whole);
    }
    give(w, b, whole);
}

static void emit_glu(walk *w, const gw_spec_block *b) {
    gw_act_args act = act_args(w, b, 1);
    int biased = weight(w, b, 3) != NULL || weight(w, b, 4) != NULL;
    if (act.kind != GW_ACT_SILU || act.limit > 0.0f || biased || adapted(w, b) != NULL) {
        emit_act(w, b, new_product(w, b, 2, "ffn_gate_up", NULL, NULL), act);
        return;
    }
    const gw_tensor *x = input(w, b, weight(w, b, 0)), *gate = weight(w, b, 0);
    int32_t first[GW_MAX_CARDS + 1];
    int cut = is_cut(w, b, 0, first);
    int64_t cols = gate != NULL ? gate->dim[0] : 1;
    gw_tensor *whole = new_value(w, b, cut ? first[w->group->n] : cols);
    gw_tensor *out = cut ? new_tensor(w, whole->fmt, cols) : whole;
    gw_node *node = new_node(w, GW_OP_GLU, "ffn_gate_up", out);
    node->in[0] = x;
    node->w[0] = gate;
    node->w[1] = weight(w, b, 1);
    node->args.linear.order = w->in->order;
    if (cut) {
        exchange(w, out, first, 1, NULL, whole);
    }
    give(w, b, whole);
}

static void emit_mlp(walk *w, const gw_spec_block *b) {
    emit_act(w, b, new_product(w, b, 1, "ffn_up", NULL, NULL), act_args(w, b, 0));
}

static void emit_mix(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    int64_t cols = x != NULL ? x->dim[1] : 1;
    gw_tensor *out =
        w->last || b->out == GW_VALUE_STREAM ? new_result(w, b, cols) : new_value(w, b, cols);
    const gw_tensor *stream = b->flags & GW_FLAG_ADD ? w->graph->stream[w->card] : NULL;
    int two = b->plus >= 0 && stream != NULL; /* sums: a node has one */
    gw_node *node = new_mix(w, b, x, two ? new_tensor(w, GW_FMT_F32, cols) : out);
    node->in[1] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->in[2] = b->plus >= 0 ? as_f32(w, b->plus) : stream;
    node->args.mix.cap = (float)number(w, b, GW_ARG_CAP, 0.0);
    if (two) {
        const gw_tensor *sum = node->out;
        node = new_node(w, GW_OP_MIX, "mix", out);
        node->in[0] = sum;
        node->in[2] = stream;
        node->args.mix.gate_act = GW_ACT_NONE;
    }
    node->w[0] = weight(w, b, 0);
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
    const gw_lora_experts *lora = gw_lora_bank_experts(w->in->lora, w->layer, b->index);
    if (lora != NULL) {
        gw_emit_adapted_experts(w, b, lora);
        return;
    }
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
    const gw_tensor *hidden = NULL;
    int32_t columns[GW_MAX_CARDS + 1];
    gw_tensor *made = new_tensor(w, fmt, args.used * f);
    gw_node *node = new_node(w, GW_OP_EXPERTS_GLU, "experts_gate_up", made);
    node->in[0] = x;
    node->in[1] = route;
    node->w[0] = one;
    node->w[1] = gated ? weight(w, b, 1) : NULL;
    node->w[2] = weight(w, b, 3 + first);
    node->w[3] = gated ? weight(w, b, 4) : NULL;
    node->args.experts = args;
    hidden = made;
    if (is_cut(w, b, first, columns)) {
        gw_tensor *all = new_tensor(w, fmt, (int64_t)args.used * columns[w->group->n]);
        exchange(w, made, columns, args.used, NULL, all);
        hidden = all;
    }
    const gw_tensor *stream = b->flags & GW_FLAG_ADD ? w->graph->stream[w->card] : NULL;
    int64_t rows = down != NULL ? down->dim[0] / experts : 1;
    int cut = is_cut(w, b, 2, columns);
    gw_tensor *whole = new_result(w, b, cut ? columns[w->group->n] : rows);
    gw_tensor *out = cut ? new_tensor(w, GW_FMT_F32, rows) : whole;
    node = new_node(w, GW_OP_EXPERTS_DOWN, "experts_down", out);
    node->in[0] = hidden;
    node->in[1] = route;
    node->in[2] = cut ? NULL : stream;
    node->w[0] = down;
    node->w[1] = weight(w, b, 5);
    node->args.experts = args;
    if (cut) {
        exchange(w, out, columns, 1, stream, whole);
    }
    finish(w, b, whole);
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

static void emit_bare_act(walk *w, const gw_spec_block *b) {
    emit_act(w, b, as_f32(w, b->in), act_args(w, b, 0));
}

/* clang-format off */
static void (*const emitters[GW_BLOCK_KINDS])(walk *, const gw_spec_block *) = {
    [GW_BLOCK_EMBED]     = emit_embed,
    [GW_BLOCK_NORM]      = emit_norm,
    [GW_BLOCK_QKV]       = emit_qkv,
    [GW_BLOCK_ROPE_KV]   = emit_rope_kv,
    [GW_BLOCK_ATTENTION] = gw_emit_attention,
    [GW_BLOCK_RESIDUAL]  = emit_residual,
    [GW_BLOCK_GLU]       = emit_glu,
    [GW_BLOCK_LINEAR]    = emit_linear,
    [GW_BLOCK_MLP]       = emit_mlp,
    [GW_BLOCK_MIX]       = emit_mix,
    [GW_BLOCK_ADD]       = emit_add,
    [GW_BLOCK_ROUTE]     = emit_route,
    [GW_BLOCK_EXPERTS]   = emit_experts,
    [GW_BLOCK_POOL]      = emit_pool,
    [GW_BLOCK_ACT]       = emit_bare_act,
};
/* clang-format on */

static int block_device(const walk *w, int block) {
    const gw_where *where = w->in->where;
    return where != NULL ? where[row_of(w->in->hp, w->layer) * w->bp->n_blocks + block] : 0;
}

int gw_graph_stream_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                           int first) {
    for (int i = bp->n_blocks - 1; i >= 0 && where != NULL; i--) {
        const gw_spec_block *b = &bp->block[i];
        int there = first > 0 ? gw_block_runs(b, hp, first - 1) : b->section == GW_SECTION_START;
        if (there && b->out == GW_VALUE_STREAM) {
            return where[row_of(hp, first - 1) * bp->n_blocks + i];
        }
    }
    return 0;
}

/* What all cards of a group have made is there on each, so that a card that has been in it before
 * has its own; all else is as the first card has it. */
static int has_own(const gw_group *group, int card, const gw_tensor *first, const gw_tensor *own) {
    return first != NULL && own != NULL && first->device == group->device[0] &&
           own->device == group->device[card];
}

static const gw_tensor *made(const handed *v) { return v->f32 != NULL ? v->f32 : v->act8; }

/* Card c goes on where the first one is, behind a group that had fewer cards. */
static void follow_first(walk *w, int c, const gw_group *next) {
    const walk was = w[c];
    gw_tensor **stream = w->graph->stream;
    w[c] = w[0];
    w[c].card = c;
    if (was.group != next || !has_own(next, c, stream[0], stream[c])) {
        stream[c] = stream[0];
    }
    for (int v = 0; v < GW_SPEC_VALUES && was.group == next; v++) {
        if (has_own(next, c, made(&w[0].value[v]), made(&was.value[v]))) {
            w[c].value[v] = was.value[v];
        }
    }
}

/* The walks of the cards of the group that goes on; what cards of the group before it have is what
 * the same cards have now, or the first. */
static void enter_group(walk *w, int device) {
    const gw_group *before = w->group;
    const gw_group *next = w->in->groups != NULL ? &w->in->groups[device] : &alone;
    for (int c = 0; c < next->n; c++) {
        if (c > 0 && (before == NULL || c >= before->n)) {
            follow_first(w, c, next);
        }
        w[c].group = next;
        w[c].device = next->n > 1 ? next->device[c] : device;
    }
}

/* Is a block one of the walk's section? */
static int is_of(const walk *w, const gw_spec_block *b, gw_section section, int row) {
    int deep = section == GW_SECTION_LAYER && b->layer_kind == w->in->hp->deep_kind - 1;
    return b->section == section && deep == w->deep && !w->idle[b->index] &&
           gw_block_runs(b, w->in->hp, row);
}

/* Running blocks from `from` on that stand on one device or group: where they end. */
static int end_of_stage(const walk *w, gw_section section, int from, int end) {
    int row = row_of(w->in->hp, w->layer), device = block_device(w, from), i = from;
    for (; i < end; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (is_of(w, b, section, row) && block_device(w, i) != device) {
            break;
        }
    }
    return i;
}

/* Blocks [first, end) of a section in order, stage by stage and in each card by card; the last
 * one's result goes to `result`. w [GW_MAX_CARDS]. */
static void emit_blocks(walk *w, gw_section section, int first, int end, const gw_tensor *result) {
    int row = row_of(w->in->hp, w->layer);
    for (int i = first, stop; i < end; i = stop) {
        const gw_spec_block *from = &w->bp->block[i];
        stop = i + 1;
        if (!is_of(w, from, section, row)) {
            continue;
        }
        stop = end_of_stage(w, section, i, end);
        enter_group(w, block_device(w, i));
        int exchanges = w->graph->exchanges;
        for (int c = 0; c < w->group->n; c++) {
            w[c].layer = w->layer;
            w[c].result = result;
            w[c].exchanges = exchanges;
            for (int k = i; k < stop; k++) {
                const gw_spec_block *b = &w->bp->block[k];
                if (is_of(w, b, section, row)) {
                    w[c].block = k;
                    w[c].last = result != NULL && k == end - 1;
                    gw_emit_fn emit = emitters[b->kind];
                    emit = emit != NULL ? emit : gw_emit_more(b->kind);
                    emit(&w[c], b);
                    w[c].before = b->kind;
                }
            }
        }
        w->graph->exchanges = w->exchanges;
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

/* Blocks of the layer that nobody needs where each list that it makes would hold all positions:
 * those that choose, and what only they take. w [GW_MAX_CARDS]. */
static void mark_idle(walk *w) {
    char idle[GW_SPEC_BLOCKS] = {0};
    int chooses = 0, all = 1;
    unsigned read = 0; /* values that a block further on takes */
    for (int i = 0; i < w->bp->n_blocks; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (b->kind == GW_BLOCK_CHOOSE && gw_block_runs(b, w->in->hp, w->layer)) {
            chooses = 1;
            all = all && layer_of(w)->area[0].width == 0 && gw_lists_all(w, b->out);
        }
    }
    for (int i = w->bp->n_blocks - 1; i >= 0 && chooses && all; i--) {
        const gw_spec_block *b = &w->bp->block[i];
        int values[] = {b->in, b->side, b->plus, b->more};
        int pure = b->kind == GW_BLOCK_LINEAR || b->kind == GW_BLOCK_NORM ||
                   b->kind == GW_BLOCK_ROTATE || b->kind == GW_BLOCK_NORM_GROUPS;
        int lost = b->out != GW_VALUE_STREAM && !(read >> b->out & 1);
        if (!gw_block_runs(b, w->in->hp, w->layer)) {
            continue;
        }
        idle[i] = b->kind == GW_BLOCK_CHOOSE || b->kind == GW_BLOCK_COMPRESS || (pure && lost);
        read &= idle[i] ? ~0u : ~(1u << b->out);
        for (int k = 0; k < 4 && !idle[i]; k++) {
            read |= values[k] >= 0 ? 1u << values[k] : 0u;
        }
    }
    for (int c = 0; c < GW_MAX_CARDS; c++) {
        memcpy(w[c].idle, idle, sizeof idle);
    }
}

static void emit_section(walk *w, gw_section section, const gw_tensor *result) {
    int first, end;
    find_section(w->bp, section, &first, &end);
    emit_blocks(w, section, first, end, result);
}

/* The walks of all cards of the group that has left the stream before layer `first`. */
static void start_walk(gw_graph *graph, const gw_graph_inputs *in, int first,
                       walk w[GW_MAX_CARDS]) {
    memset(w, 0, GW_MAX_CARDS * sizeof *w);
    w[0] = (walk){.graph = graph, .in = in, .bp = gw_weights_blueprint(in->weights)};
    w[0].layer = w[0].block = -1;
    int device = gw_graph_stream_device(w[0].bp, in->hp, in->where, first);
    int begins = graph->stream[0] == NULL;
    w[0].group = in->groups != NULL ? &in->groups[device] : &alone;
    for (int c = 0; c < w[0].group->n; c++) {
        w[c] = w[0];
        w[c].card = c;
        w[c].device = w[0].group->n > 1 ? w[0].group->device[c] : device;
        if (begins) {
            graph->stream[c] = stream_on(&w[c], w[c].device);
        }
    }
}

/* All taps side by side: as many as a node has inputs at a time, each time after those before. */
static void join_taps(walk *w) {
    enum { AT_ONCE = 4 };
    const int64_t d = w->in->hp->d_model;
    gw_tensor *before = NULL;
    for (int i = 0; w->in->joined != NULL && i < w->in->n_taps;) {
        int k = 0;
        gw_tensor *in[AT_ONCE];
        if (before != NULL) {
            in[k++] = before;
        }
        while (k < AT_ONCE && i < w->in->n_taps) {
            in[k++] = view_of_rows(w, &w->in->taps[i++]);
        }
        w->device = w->in->joined->device;
        gw_tensor *out = i == w->in->n_taps ? view_of_rows(w, w->in->joined)
                                            : new_tensor(w, GW_FMT_F32, i * d);
        gw_node *node = new_node(w, GW_OP_COLUMNS, "taps", out);
        memcpy(node->in, in, (size_t)k * sizeof *in);
        before = out;
    }
}

/* Copies of the stream as it is before a layer. */
static void tap(walk *w, int layer) {
    for (int i = 0; i < w->in->n_taps; i++) {
        if (w->in->tap_layer[i] == layer) {
            w->device = w->in->taps[i].device;
            gw_node *node = new_node(w, GW_OP_COLUMNS, "tap", view_of_rows(w, &w->in->taps[i]));
            node->in[0] = w->graph->stream[0];
        }
    }
}

void gw_graph_body(gw_graph *graph, const gw_graph_inputs *in, int first, int end) {
    walk w[GW_MAX_CARDS];
    start_walk(graph, in, first, w);
    if (first == 0) {
        emit_section(w, GW_SECTION_START, NULL);
    }
    for (w->layer = first; w->layer < end; w->layer++) {
        tap(w, w->layer);
        mark_idle(w);
        emit_section(w, GW_SECTION_LAYER, NULL);
        for (int c = 0; w->layer < in->n_deep && in->gate != NULL && c < w->group->n; c++) {
            w[c].layer = w->layer;
            w[c].device = graph->stream[c]->device;
            see(&w[c], 1 + w->layer);
        }
    }
    if (end == in->hp->n_layers) {
        tap(w, end);
        join_taps(w);
    }
}

void gw_graph_deep(gw_graph *graph, const gw_graph_inputs *in, int layer) {
    walk w[GW_MAX_CARDS];
    start_walk(graph, in, layer + 1, w);
    w->deep = 1;
    w->layer = layer;
    emit_section(w, GW_SECTION_LAYER, &in->logits);
}

void gw_graph_head(gw_graph *graph, const gw_graph_inputs *in, int pick) {
    walk w[GW_MAX_CARDS];
    start_walk(graph, in, in->hp->n_layers, w);
    for (int c = 0; pick && c < w->group->n; c++) { /* so that only the rows picked travel */
        const gw_tensor *x = graph->stream[c];
        w[c].device = x->device;
        gw_tensor *rows = new_tensor(&w[c], GW_FMT_F32, x->dim[1]);
        new_node(&w[c], GW_OP_PICK, "pick", rows)->in[0] = x;
        graph->stream[c] = rows;
    }
    int first, end;
    find_section(w->bp, GW_SECTION_HEAD, &first, &end);
    gw_block_kind last = end > first ? w->bp->block[end - 1].kind : GW_BLOCK_NORM;
    int logits = last == GW_BLOCK_LINEAR || last == GW_BLOCK_MIX; /* an encoder has none */
    emit_blocks(w, GW_SECTION_HEAD, first, end, logits ? &in->logits : NULL);
}

void gw_graph_hidden(gw_graph *graph, const gw_graph_inputs *in) {
    walk w[GW_MAX_CARDS];
    start_walk(graph, in, in->hp->n_layers, w);
    int first, end, stop;
    find_section(w->bp, GW_SECTION_HEAD, &first, &end);
    for (stop = first; stop < end && gw_block_matrices(&w->bp->block[stop]) == 0;) {
        stop++;
    }
    size_t before = graph->n_nodes;
    int drafts = in->hidden.dim[0] > 0; /* vectors of texts are the normed ones */
    if (drafts && gw_spec_named_number(w->bp, in->hp, "hands_raw", 0.0) > 0.0) {
        w->device = in->hidden.device;
        new_node(w, GW_OP_COLUMNS, "hidden", new_view(w, &in->hidden))->in[0] = graph->stream[0];
    } else {
        emit_blocks(w, GW_SECTION_HEAD, first, stop, &in->hidden);
    }
    graph->hidden =
        graph->n_nodes > before ? graph->nodes[graph->n_nodes - 1].out : graph->stream[0];
}

void gw_graph_pool(gw_graph *graph, const gw_graph_inputs *in, gw_pick_kind kind) {
    walk w[GW_MAX_CARDS];
    start_walk(graph, in, in->hp->n_layers, w);
    w->device = graph->hidden->device;
    gw_node *node = new_node(w, GW_OP_PICK, "pool", new_view(w, &in->pooled));
    node->in[0] = graph->hidden;
    node->args.pick.kind = kind;
}

void gw_graph_score(gw_graph *graph, const gw_graph_inputs *in) {
    walk w[GW_MAX_CARDS];
    start_walk(graph, in, in->hp->n_layers, w);
    emit_section(w, GW_SECTION_SCORE, &in->scores);
}

void gw_graph_sample(gw_graph *graph, const gw_graph_inputs *in) {
    walk w[GW_MAX_CARDS];
    start_walk(graph, in, in->hp->n_layers, w);
    int only = graph->n_nodes == 0;
    w->device = in->logits.device;
    if (only) {
        gw_node *node = new_node(w, GW_OP_SAMPLE, "sample", in->ids);
        node->in[0] = new_view(w, &in->logits);
        node->in[1] = in->choice;
        return;
    }
    enter_group(w, w->device); /* each card embeds what it has drawn */
    for (int c = 0; c < w->group->n; c++) {
        int d = w[c].device;
        gw_node *node = new_node(&w[c], GW_OP_SAMPLE, "sample", &in->ids[d]);
        node->in[0] = graph->logits[c];
        node->in[1] = &in->choice[d];
    }
}
