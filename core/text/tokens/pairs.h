/* core/text/tokens/pairs.h - the merge list of a vocabulary as a table over pairs of ids. */
#ifndef GW_TEXT_PAIRS_H
#define GW_TEXT_PAIRS_H

#include "core/base/status.h"

typedef struct gw_pairs gw_pairs;

gw_pairs *gw_pairs_new(size_t count); /* room for count pairs; NULL: no memory */
void gw_pairs_free(gw_pairs *pairs);

/* At most `count` times. A pair that is there already takes the new values. Ids are not negative.
 */
void gw_pairs_set(gw_pairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id);
int gw_pairs_find(const gw_pairs *pairs, int32_t left, int32_t right, uint32_t *rank, int32_t *id);

#endif
