/* core/model/cut.h - which part of a weight each card of a group has, by what the weight is for.
 *
 * Products are cut by rows: each row is a sum of one card alone, in the order of any other, so that
 * any cut of any format gives the bits of one card, for prompts and for decode. Queries, keys and
 * values are cut by whole heads, so that attention needs nothing of other cards; matrices of
 * experts by the rows of each expert, so that all cards work whatever is routed where. What is not
 * named here is whole on every card.
 */
#ifndef GW_MODEL_CUT_H
#define GW_MODEL_CUT_H

#include "core/model/spec.h"
#include "core/plan/plan.h"

typedef enum gw_cut {
    GW_CUT_WHOLE,
    GW_CUT_ROWS,
    GW_CUT_HEADS,   /* rows of the query heads, equally many for each */
    GW_CUT_KV,      /* rows of the KV heads                           */
    GW_CUT_EXPERTS, /* rows of each expert                            */
} gw_cut;

/* Rows of part p of card c: [p * span + first[c], p * span + first[c] + count[c]). */
typedef struct gw_cut_rows {
    int parts;
    int64_t span;
    int32_t first[GW_MAX_CARDS], count[GW_MAX_CARDS];
} gw_cut_rows;

/* Heads of each card: query heads [head[c], head[c + 1]), KV heads kv_first[c] on. Where there are
 * fewer KV heads than cards, several cards have the same one. */
typedef struct gw_cut_heads {
    int32_t head[GW_MAX_CARDS + 1];
    int32_t kv_first[GW_MAX_CARDS], kv_count[GW_MAX_CARDS];
} gw_cut_heads;

/* n things in units over the cards of a group, by their shares: card c has [first[c], first[c+1]).
 * 0: there are fewer units than cards. */
int gw_cut_range(const gw_group *group, int64_t n, int unit, int32_t first[GW_MAX_CARDS + 1]);

/* Is attention of this layer cut by heads? It is where queries, keys and values go from their
 * product to the cache and to attention and nowhere else, and the layer has a cache of its own. */
int gw_cut_attention(const gw_blueprint *bp, const gw_hparams *hp, const gw_group *group, int layer,
                     gw_cut_heads *out);

/* How argument `arg` of a block is cut in a layer (n_layers: outside), of `rows` rows (a vector has
 * as many values). */
gw_cut gw_cut_of(const gw_blueprint *bp, const gw_hparams *hp, const gw_group *group, int layer,
                 int block, int arg, int64_t rows, gw_cut_rows *out);

#endif
