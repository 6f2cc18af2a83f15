/* core/plan/op_lora.c - what nodes of EXPERTS_LORA_A and EXPERTS_LORA_B must look like, and cost.
 */
#include "core/plan/op_check.h"

/* The routes in1, in2, and w0 with so many rows of each expert of a place. */
static gw_status check_lora(const gw_node *node, int64_t rows, int64_t cols) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    const gw_tensor *w = node->w[0];
    for (int i = 1; i < 3; i++) {
        const gw_tensor *route = node->in[i];
        if (!is_matrix(route, GW_FMT_F32, 2 * (int64_t)(i == 1 ? a->used : a->at_once)) ||
            !same_rows(route, node->out)) {
            return refuse(node, i == 1 ? "the route" : "the adapters", route,
                          "f32 [n, 2 of each row]");
        }
    }
    if (w == NULL || w->n_dim != 2 || w->fmt != GW_FMT_F32 || w->dim[1] != cols ||
        w->dim[0] != (int64_t)a->places * a->experts * rows) {
        return refuse(node, "the matrix", w, "f32, the rows of all experts of every adapter");
    }
    return GW_OK;
}

static gw_status check_numbers(const gw_node *node) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    GW_TRY(check_out(node));
    if (a->used < 1 || a->used > a->experts || a->places < 1 || a->at_once < 1 || a->rank < 1 ||
        !is_matrix(node->out, GW_FMT_F32, node->out->dim[1])) {
        return refuse(node, "the output", node->out, "f32, of adapters of some of the experts");
    }
    return GW_OK;
}

gw_status gw_op_check_lora_a(const gw_node *node) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    const gw_tensor *x = node->in[0], *w = node->w[0];
    int64_t d = w != NULL ? w->dim[1] : 0;
    GW_TRY(check_numbers(node));
    if ((!is_matrix(x, GW_FMT_F32, d) && !is_matrix(x, GW_FMT_F32, a->used * d)) ||
        !same_rows(x, node->out)) {
        return refuse(node, "the input", x, "f32 [n, d] or [n, used d]");
    }
    GW_TRY(check_lora(node, a->rank, d));
    return node->out->dim[1] == (int64_t)a->used * a->at_once * a->rank
               ? GW_OK
               : refuse(node, "the output", node->out, "f32 [n, used at_once R]");
}

gw_status gw_op_check_lora_b(const gw_node *node) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    const gw_tensor *h = node->in[0], *y = node->in[3];
    GW_TRY(check_numbers(node));
    if (!is_matrix(h, GW_FMT_F32, (int64_t)a->used * a->at_once * a->rank) ||
        !same_rows(h, node->out)) {
        return refuse(node, "the input", h, "f32 [n, used at_once R]");
    }
    if (!is_matrix(y, GW_FMT_F32, node->out->dim[1]) || !same_rows(y, node->out)) {
        return refuse(node, "what is added to", y, "f32 of the output's shape");
    }
    int64_t each = a->sum ? 1 : a->used;
    if (node->out->dim[1] % each != 0) {
        return refuse(node, "the output", node->out, "f32 [n, used m]");
    }
    return check_lora(node, node->out->dim[1] / each, a->rank);
}

/* Each row reads what its experts have of its adapters. */
void gw_op_cost_lora(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    const gw_tensor *w = node->w[0];
    double values = (double)w->dim[0] / a->places / a->experts * (double)w->dim[1];
    (void)positions;
    *ops = 2.0 * rows * a->used * a->at_once * values;
    *bytes = (double)sizeof(float) * rows *
             (a->used * a->at_once * values + (double)node->in[0]->dim[1] +
              (node->in[3] != NULL ? 2.0 : 1.0) * (double)node->out->dim[1]);
}
