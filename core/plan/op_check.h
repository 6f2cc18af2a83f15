/* core/plan/op_check.h - what checks of nodes need of their operands, and those of CONV, SCAN
 * and WIDEN (op_state.c) and of adapters of experts (op_lora.c), which the op table names. For
 * op*.c alone.
 */
#ifndef GW_PLAN_OP_CHECK_H
#define GW_PLAN_OP_CHECK_H

#include "core/plan/op.h"

#include <stdio.h>

gw_status gw_op_check_conv(const gw_node *node);
gw_status gw_op_check_scan(const gw_node *node);
gw_status gw_op_check_lora_a(const gw_node *node);
gw_status gw_op_check_lora_b(const gw_node *node);
void gw_op_cost_lora(const gw_node *node, int rows, int positions, double *bytes, double *ops);
gw_status gw_op_check_exp_gates(const gw_node *node);
gw_status gw_op_check_divide(const gw_node *node);
gw_status gw_op_check_widen(const gw_node *node);
/* The state in1 of a node, `width` floats of each sequence. */
gw_status gw_op_check_state(const gw_node *node, int64_t width);

static inline const char *dims_text(const gw_tensor *t, char *text, size_t room) {
    if (t == NULL) {
        snprintf(text, room, "nothing");
        return text;
    }
    int used =
        snprintf(text, room, "%s [", t->fmt < GW_FMT_COUNT ? gw_format_of(t->fmt)->name : "?");
    for (int i = 0; i < t->n_dim && used > 0 && (size_t)used < room; i++) {
        used +=
            snprintf(text + used, room - (size_t)used, i ? ", %lld" : "%lld", (long long)t->dim[i]);
    }
    if (used > 0 && (size_t)used + 1 < room) {
        snprintf(text + used, room - (size_t)used, "]");
    }
    return text;
}

/* Refuse the node because of operand `t`. */
static inline gw_status refuse(const gw_node *node, const char *operand, const gw_tensor *t,
                               const char *want) {
    char where[96], have[96];
    snprintf(where, sizeof where, "layer %d %s (%s)", node->layer, node->what ? node->what : "?",
             gw_op_describe(node->op)->name);
    return gw_fail(GW_E_METADATA, where, "%s is %s, expected %s", operand,
                   dims_text(t, have, sizeof have), want);
}

static inline int is_float(const gw_tensor *t) { return gw_format_of(t->fmt)->is_float; }
static inline int has_whole_blocks(const gw_tensor *t) {
    return is_float(t) || t->dim[1] % (int64_t)gw_format_of(t->fmt)->block_elems == 0;
}
static inline int is_weight(const gw_tensor *t) { return t->fmt < GW_FMT_ACT8; }

static inline int is_matrix(const gw_tensor *t, gw_fmt fmt, int64_t cols) {
    return t != NULL && t->n_dim == 2 && t->fmt == fmt && t->dim[0] > 0 && t->dim[1] == cols;
}
static inline int is_vector(const gw_tensor *t, int64_t n) {
    return t != NULL && t->n_dim == 1 && t->fmt == GW_FMT_F32 && t->dim[0] == n;
}
/* f32, or act8 when whole blocks fit. */
static inline int is_activation(const gw_tensor *t, int64_t cols) {
    return is_matrix(t, GW_FMT_F32, cols) ||
           (is_matrix(t, GW_FMT_ACT8, cols) && cols % GW_ACT_BLOCK == 0);
}
static inline int same_rows(const gw_tensor *a, const gw_tensor *b) {
    return a->dim[0] == b->dim[0];
}

static inline gw_status check_out(const gw_node *node) {
    const gw_tensor *y = node->out;
    if (y == NULL || y->n_dim != 2 || y->dim[0] < 1 || y->dim[1] < 1) {
        return refuse(node, "the output", y, "[rows, columns]");
    }
    return GW_OK;
}

#endif
