/* core/text/tokens/decode.h - ids to bytes, one after the other: the rule of the leading space. */
#ifndef GW_TEXT_DECODE_H
#define GW_TEXT_DECODE_H

#include "core/text/tokens/tokenizer.h"

/* Where a text stands. Starts zeroed. */
typedef struct gw_decode_state {
    int begun; /* the space that encoding put in front has been dealt with */
} gw_decode_state;

/* The bytes that `id` adds to the text; *text lives as long as the tokenizer. GW_E_ARGUMENT: no
 * such token. */
gw_status gw_decode_next(const gw_tokenizer *t, gw_decode_state *state, int32_t id,
                         int keep_special, const char **text, size_t *bytes);

#endif
