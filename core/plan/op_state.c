/* core/plan/op_state.c - what nodes of CONV and SCAN must look like. */
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

static gw_status check_wkv(const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    const gw_tensor *x = node->in[0], *s = node->in[2], *e = node->in[3], *y = node->out;
    int64_t k = (int64_t)a->heads * a->k_dim, v = (int64_t)a->heads * a->v_dim;
    if (!is_matrix(x, GW_FMT_F32, 3 * k + v) || !is_matrix(y, GW_FMT_F32, v) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, h (3 k + v)], the output f32 [n, h v]");
    }
    if (!is_matrix(s, GW_FMT_F32, k) || !same_rows(s, y) || !is_matrix(e, GW_FMT_F32, k) ||
        !same_rows(e, y) || a->groups != a->heads) {
        return refuse(node, "the decay", s, "f32 [n, h k], as what is taken back, a group a head");
    }
    return gw_op_check_state(node, k * a->v_dim);
}

gw_status gw_op_check_scan(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_scan_args *a = &node->args.scan;
    const gw_tensor *x = node->in[0], *d = node->in[2], *b = node->in[3], *y = node->out;
    if (a->heads < 1 || a->groups < 1 || a->heads % a->groups != 0 || a->k_dim < 1 ||
        a->k_dim > GW_SCAN_KEYS || a->v_dim < 1) {
        return refuse(node, "the output", y, "heads in whole groups, keys of 1 to 256");
    }
    if (a->kind == GW_SCAN_WKV) {
        return check_wkv(node);
    }
    int64_t h = a->heads, k = a->k_dim, v = a->v_dim, wide = h * v + 2 * a->groups * k;
    int delta = a->kind == GW_SCAN_DELTA, each = a->by_channel;
    int64_t decays = !each ? h : delta ? h * k : h * v, logits = delta && b == d ? 2 * h : decays;
    if (!is_matrix(x, GW_FMT_F32, wide) || !is_matrix(y, GW_FMT_F32, h * v) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, h v + 2 g k], the output f32 [n, h v]");
    }
    if (!is_matrix(d, GW_FMT_F32, logits) || !same_rows(d, y) ||
        (delta && b != d && (!is_matrix(b, GW_FMT_F32, h) || !same_rows(b, y)))) {
        return refuse(node, "the decay", d, "f32 [n, h], [n, h k or v], the write strength [n, h]");
    }
    if (!is_vector(node->w[0], delta ? h : decays * (each ? k : 1)) ||
        (node->w[1] != NULL && !is_vector(node->w[1], decays)) ||
        (!delta && !is_vector(node->w[2], decays))) {
        return refuse(node, "A, its bias or D", node->w[0], "f32 [h] or [h v k], [h], [h k or v]");
    }
    return gw_op_check_state(node, h * k * v);
}
