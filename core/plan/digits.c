/* core/plan/digits.c - see digits.h. */
#include "core/plan/digits.h"

#include "core/tensor/cells.h"
#include "core/tensor/digits.h"

static int is_narrow_cache(const gw_tensor *t) {
    return t != NULL && (t->fmt == GW_FMT_F16 || t->fmt == GW_FMT_Q8_0 ||
                         gw_cache_bits(t->fmt) > 0);
}

int gw_attn_in_digits(const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    int e = a->head_dim;
    return node->op == GW_OP_ATTENTION && a->order == GW_ORDER_PREFILL && !a->both &&
           (a->v_dim == 0 || a->v_dim == e) && e % GW_DIGITS_LEAST == 0 && e >= GW_DIGITS_LEAST &&
           e <= GW_DIGITS_MOST && a->window == 0 && a->chunk == 0 && a->softcap == 0.0f &&
           node->w[1] == NULL && node->w[2] == NULL && is_narrow_cache(node->in[1]) &&
           is_narrow_cache(node->in[2]);
}

int gw_attn_in_codes(const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    return node->op == GW_OP_ATTENTION && a->order == GW_ORDER_DECODE && !a->both &&
           (a->v_dim == 0 || a->v_dim == a->head_dim) && a->head_dim <= GW_CODES_MOST &&
           a->chunk == 0 && a->softcap == 0.0f && node->w[1] == NULL && node->w[2] == NULL &&
           node->in[2] != NULL && node->in[2]->fmt == node->in[1]->fmt &&
           gw_cache_bits(node->in[1]->fmt) > 0;
}
