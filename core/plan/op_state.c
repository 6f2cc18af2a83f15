/* core/plan/op_state.c - what nodes of CONV, SCAN, EXP_GATES, DIVIDE and WIDEN must look like.
 */
#include "core/plan/op_check.h"

gw_status gw_op_check_state(const gw_node *node, int64_t width) {
    const gw_tensor *t = node->in[1];
    if (t == NULL || t->n_dim != 3 || t->fmt != GW_FMT_F32 || t->dim[0] < 1 || t->dim[1] < 2 ||
        t->dim[2] != width) {
        return refuse(node, "the state", t, "f32 [slots, entries, width]");
    }
    return GW_OK;
}

gw_status gw_op_check_conv(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_conv_args *a = &node->args.conv;
    const gw_tensor *x = node->in[0], *y = node->out;
    int64_t c = y->dim[1];
    if (!is_matrix(x, GW_FMT_F32, c) || !is_matrix(y, GW_FMT_F32, c) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 of the output's shape, which is f32");
    }
    if (a->taps < 2 || a->taps > GW_CONV_TAPS || !is_vector(node->w[0], c * a->taps)) {
        return refuse(node, "the taps", node->w[0], "f32 [c, T], T of 2 to 8");
    }
    if (node->w[1] != NULL && !is_vector(node->w[1], c)) {
        return refuse(node, "the bias", node->w[1], "f32 [c]");
    }
    int before = (a->taps - 1) * (a->apart > 1 ? a->apart : 1);
    if (a->apart < 0 || before >= GW_CONV_REACH) {
        return refuse(node, "the taps", node->w[0], "no more than 15 rows back");
    }
    GW_TRY(gw_op_check_state(node, before * c));
    return node->in[1]->dim[1] > before + 1
               ? GW_OK
               : refuse(node, "the state", node->in[1], "more entries than there are taps");
}

/* The node's own numbers, not an operand, are at fault. */
static gw_status refuse_args(const gw_node *node, const char *what, double first, double second,
                             const char *want) {
    char where[96];
    snprintf(where, sizeof where, "layer %d %s (%s)", node->layer, node->what ? node->what : "?",
             gw_op_describe(node->op)->name);
    return gw_fail(GW_E_METADATA, where, "%s are %g and %g, expected %s", what, first, second,
                   want);
}

/* A decay, or what goes with it: `cols` logits for each row of the output. */
static int is_logits(const gw_node *node, const gw_tensor *t, int64_t cols) {
    return is_matrix(t, GW_FMT_F32, cols) && same_rows(t, node->out);
}

static gw_status refuse_weights(const gw_node *node, const char *want) {
    for (int i = 0; i < GW_MAX_W; i++) {
        if (node->w[i] != NULL) {
            return refuse(node, "a weight", node->w[i], want);
        }
    }
    return GW_OK;
}

static gw_status check_wkv(const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    int64_t k = (int64_t)a->heads * a->k_dim, v = (int64_t)a->heads * a->v_dim;
    if (a->groups != a->heads) {
        return refuse_args(node, "heads and groups", a->heads, a->groups, "a group a head");
    }
    if (!is_logits(node, node->in[0], 3 * k + v)) {
        return refuse(node, "the input", node->in[0], "f32 [n, h (3 k + v)]");
    }
    if (!is_logits(node, node->in[2], k)) {
        return refuse(node, "the decay", node->in[2], "f32 [n, h k]");
    }
    if (!is_logits(node, node->in[3], k)) {
        return refuse(node, "what is taken back", node->in[3], "f32 [n, h k]");
    }
    GW_TRY(refuse_weights(node, "nothing: WKV has no weights"));
    return gw_op_check_state(node, k * a->v_dim);
}

static gw_status check_retention(const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    int64_t h = a->heads, k = a->k_dim, v = a->v_dim;
    if (a->by_channel) {
        return refuse(node, "the decay", node->in[2], "one a head");
    }
    if (!is_logits(node, node->in[0], h * v + 2 * a->groups * k)) {
        return refuse(node, "the input", node->in[0], "f32 [n, h v + 2 g k]");
    }
    if (!is_logits(node, node->in[2], h)) {
        return refuse(node, "the decay", node->in[2], "f32 [n, h]");
    }
    GW_TRY(refuse_weights(node, "nothing: retention has no weights"));
    return gw_op_check_state(node, h * k * v);
}

/* A, its bias, and of SSM D: `decays` logits of a row. */
static gw_status check_weights(const gw_node *node, int64_t decays) {
    const gw_scan_args *a = &node->args.scan;
    int delta = a->kind == GW_SCAN_DELTA;
    if (!is_vector(node->w[0], delta ? a->heads : decays * (a->by_channel ? a->k_dim : 1))) {
        return refuse(node, "A", node->w[0], "f32 [h], of SSM by channel [h v k]");
    }
    if (node->w[1] != NULL && !is_vector(node->w[1], decays)) {
        return refuse(node, "the bias", node->w[1], "f32 [h], by channel [h k], of SSM [h v]");
    }
    if (!delta && !is_vector(node->w[2], decays)) {
        return refuse(node, "D", node->w[2], "f32 [h], by channel [h v]");
    }
    if (!delta && !(a->low <= a->high)) { /* not for NaN either */
        return refuse_args(node, "the limits of a step", (double)a->low, (double)a->high,
                           "the lower one first");
    }
    return GW_OK;
}

gw_status gw_op_check_scan(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_scan_args *a = &node->args.scan;
    const gw_tensor *d = node->in[2], *b = node->in[3];
    if (a->heads < 1 || a->groups < 1 || a->heads % a->groups != 0) {
        return refuse_args(node, "heads and groups", a->heads, a->groups, "heads in whole groups");
    }
    if (a->k_dim < 1 || a->k_dim > GW_SCAN_KEYS || a->v_dim < 1) {
        return refuse_args(node, "keys and values", a->k_dim, a->v_dim,
                           "keys of 1 to 256, one value or more");
    }
    int64_t h = a->heads, k = a->k_dim, v = a->v_dim;
    if (!is_matrix(node->out, GW_FMT_F32, h * v)) {
        return refuse(node, "the output", node->out, "f32 [n, h v]");
    }
    if (a->kind == GW_SCAN_WKV || a->kind == GW_SCAN_RETENTION) {
        return a->kind == GW_SCAN_WKV ? check_wkv(node) : check_retention(node);
    }
    int delta = a->kind == GW_SCAN_DELTA, each = a->by_channel;
    int64_t decays = !each ? h : delta ? h * k : h * v;
    if (!is_logits(node, node->in[0], h * v + 2 * a->groups * k)) {
        return refuse(node, "the input", node->in[0], "f32 [n, h v + 2 g k]");
    }
    if (!is_logits(node, d, delta && b == d ? 2 * h : decays)) {
        return refuse(node, "the decay", d, "f32 [n, h], by channel [n, h k], of SSM [n, h v]");
    }
    if (delta && b != d && !is_logits(node, b, h)) {
        return refuse(node, "the write strength", b, "f32 [n, h]");
    }
    GW_TRY(check_weights(node, decays));
    return gw_op_check_state(node, h * k * v);
}

gw_status gw_op_check_exp_gates(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *y = node->out;
    int64_t heads = y->dim[1] / 3;
    if (heads < 1 || !is_matrix(y, GW_FMT_F32, 3 * heads)) {
        return refuse(node, "the output", y, "f32 [n, 3 h]");
    }
    if (!is_logits(node, node->in[0], 2 * heads)) {
        return refuse(node, "the input", node->in[0], "f32 [n, 2 h]");
    }
    return gw_op_check_state(node, heads);
}

gw_status gw_op_check_divide(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *by = node->in[1], *least = node->in[2], *y = node->out;
    if (!is_matrix(y, GW_FMT_F32, y->dim[1]) || !is_logits(node, node->in[0], y->dim[1])) {
        return refuse(node, "the input", node->in[0], "f32 of the output's shape, which is f32");
    }
    if (by == NULL || by->n_dim != 2 || by->dim[1] < 1 || y->dim[1] % by->dim[1] != 0 ||
        !is_logits(node, by, by->dim[1])) {
        return refuse(node, "the divisor", by, "f32 [n, c], c a divisor of the output's columns");
    }
    return is_logits(node, least, by->dim[1])
               ? GW_OK
               : refuse(node, "the least divisor", least, "f32 [n, c], as the divisor");
}

gw_status gw_op_check_widen(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *y = node->out;
    int64_t heads = node->args.widen.heads;
    if (heads < 1 || !is_matrix(y, GW_FMT_F32, y->dim[1]) || y->dim[1] % heads != 0) {
        return refuse(node, "the output", y, "f32, whole heads");
    }
    if (x == NULL || x->n_dim != 2 || x->dim[1] < 1 || x->dim[1] % heads != 0 ||
        x->dim[1] == y->dim[1] || !is_logits(node, x, x->dim[1])) {
        return refuse(node, "the input", x, "f32 [n, h k], k not the output's");
    }
    for (int i = 1; i < GW_MAX_IN; i++) {
        if (node->in[i] != NULL) {
            return refuse(node, "a further input", node->in[i], "nothing");
        }
    }
    return refuse_weights(node, "nothing: WIDEN has no weights");
}
