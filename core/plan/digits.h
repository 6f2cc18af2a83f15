/* core/plan/digits.h - which ATTENTION sums its pages in integers (docs/arithmetic.md, section 5,
 * "Attention in digits"). The rule stands here alone; backends read gw_attn_args.digits.
 */
#ifndef GW_PLAN_DIGITS_H
#define GW_PLAN_DIGITS_H

#include "core/plan/op.h"

/* Can this ATTENTION do so, whatever product reads its result? 1 or 0. Reads args.attn, in and w;
 * in[1] and in[2] may be any tensors or NULL. */
int gw_attn_in_digits(const gw_node *node);

/* Does this ATTENTION sum its pages in the codes of a cache of 4 or 5 bits ("Attention in codes")?
 * 1 or 0. */
int gw_attn_in_codes(const gw_node *node);

#endif
