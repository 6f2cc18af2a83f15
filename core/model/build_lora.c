/* core/model/build_lora.c - emits experts that adapters change: gate and up each alone, what
 * adapters add to them before the activation, and what they add to the sum over the experts. */
#include "core/model/build_walk.h"

/* y and what adapters add to matrix k of the block, whose input x is; out may be y where it is
 * placed. */
static const gw_tensor *adapt(walk *w, const gw_lora_experts *lora, int k, const gw_node *product,
                              const gw_tensor *x, const gw_tensor *y, gw_tensor *out) {
    const gw_tensor *a = &lora->a[k], *b = &lora->b[k];
    const gw_experts_args *e = &product->args.experts;
    gw_experts_lora_args args = {.experts = e->experts,
                                 .used = e->used,
                                 .places = gw_lora_bank_places(w->in->lora) - 1,
                                 .at_once = gw_lora_bank_at_once(w->in->lora),
                                 .rank = (int)b->dim[1],
                                 .sum = k == 2,
                                 .gated = (k == 2) != e->gate_input};
    int64_t wide = (int64_t)args.used * args.at_once * args.rank;
    gw_tensor *inner = new_tensor(w, GW_FMT_F32, wide);
    gw_node *node = new_node(w, GW_OP_EXPERTS_LORA_A, "lora_a", inner);
    node->in[0] = x;
    node->in[1] = product->in[1];
    node->in[2] = lora_route(w);
    node->w[0] = a;
    node->args.experts_lora = args;
    node = new_node(w, GW_OP_EXPERTS_LORA_B, "lora_b", out);
    node->in[0] = inner;
    node->in[1] = product->in[1];
    node->in[2] = lora_route(w);
    node->in[3] = y;
    node->w[0] = b;
    node->args.experts_lora = args;
    return out;
}

static gw_node *new_product(walk *w, const gw_spec_block *b, gw_op op, const char *what,
                            const gw_experts_args *args, gw_tensor *out) {
    gw_node *node = new_node(w, op, what, out);
    node->in[1] = as_f32(w, b->side);
    node->args.experts = *args;
    return node;
}

/* Sums of gate (k 0) or up (1) of each of a row's experts, with what adapters add. */
static const gw_tensor *sums_of(walk *w, const gw_spec_block *b, const gw_lora_experts *lora, int k,
                                const gw_experts_args *like) {
    const gw_tensor *one = weight(w, b, k);
    gw_experts_args args = *like;
    int64_t f = one->dim[0] / (args.experts > 0 ? args.experts : 1);
    gw_tensor *y = new_tensor(w, GW_FMT_F32, args.used * f);
    args.act = (gw_act_args){.kind = GW_ACT_NONE};
    const gw_tensor *x = input(w, b, one);
    gw_node *node = new_product(w, b, GW_OP_EXPERTS_GLU, "experts_gate_up", &args, y);
    node->in[0] = x;
    node->w[0] = one;
    node->w[2] = weight(w, b, 3 + k);
    return lora->a[k].n_dim == 0 ? y
                                 : adapt(w, lora, k, node, as_f32(w, b->in), y,
                                         new_tensor(w, GW_FMT_F32, args.used * f));
}

/* What goes into down, as floats. */
static const gw_tensor *hidden_of(walk *w, const gw_spec_block *b, const gw_lora_experts *lora,
                                  int gated, const gw_experts_args *args) {
    const gw_tensor *y = sums_of(w, b, lora, gated ? 0 : 1, args);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, y->dim[1]);
    if (gated) {
        const gw_tensor *up = sums_of(w, b, lora, 1, args);
        gw_tensor *both = new_tensor(w, GW_FMT_F32, 2 * y->dim[1]);
        gw_node *node = new_node(w, GW_OP_COLUMNS, "experts_gate_up", both);
        node->in[0] = y;
        node->in[1] = up;
        y = both;
    }
    gw_node *node = new_node(w, GW_OP_ACT, "act", out);
    node->in[0] = y;
    node->args.act = args->act;
    return out;
}

void gw_emit_adapted_experts(walk *w, const gw_spec_block *b, const gw_lora_experts *lora) {
    int gated = weight(w, b, 0) != NULL;
    const gw_tensor *down = weight(w, b, 2), *route = as_f32(w, b->side), *x;
    gw_experts_args args = {.experts = layer_of(w)->n_experts,
                            .used = route != NULL ? (int)(route->dim[1] / 2) : 1,
                            .act = act_args(w, b, gated),
                            .gate_input = (b->flags & GW_FLAG_GATE_INPUT) != 0,
                            .order = w->in->order};
    const gw_tensor *hidden = x = hidden_of(w, b, lora, gated, &args);
    if (is_quantized(down)) {
        gw_tensor *blocks = new_tensor(w, GW_FMT_ACT8, hidden->dim[1]);
        new_node(w, GW_OP_QUANTIZE, "quantize", blocks)->in[0] = hidden;
        x = blocks;
    }
    gw_tensor *out = new_result(w, b, down->dim[0] / args.experts);
    int alone = lora->a[2].n_dim == 0 || out->buf != NULL;
    gw_tensor *y = alone ? out : new_tensor(w, GW_FMT_F32, out->dim[1]);
    gw_node *node = new_product(w, b, GW_OP_EXPERTS_DOWN, "experts_down", &args, y);
    node->in[0] = x;
    node->in[2] = b->flags & GW_FLAG_ADD ? w->graph->stream[w->card] : NULL;
    node->w[0] = down;
    node->w[1] = weight(w, b, 5);
    if (lora->a[2].n_dim > 0) {
        adapt(w, lora, 2, node, hidden, y, out);
    }
    finish(w, b, out);
}
