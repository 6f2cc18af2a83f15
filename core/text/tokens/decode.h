/* core/text/tokens/decode.h - ids to bytes, one after the other: what a token stands for where it
 * is. */
#ifndef GW_TEXT_DECODE_H
#define GW_TEXT_DECODE_H

#include "core/text/tokens/tokenizer.h"

/* Where a text stands. Starts zeroed. */
typedef struct gw_decode_state {
    int begun; /* the space that encoding put in front has been dealt with, or a token came */
    uint32_t dropped; /* characters that were stripped from the beginning      */
    int ended_start;  /* nothing is stripped any more                          */
    int ended_word;   /* the token before ended a word                         */
    int32_t last;     /* the token before + 1                                  */
} gw_decode_state;

/* The bytes that `id` adds to the text; *text lives as long as the tokenizer. GW_E_ARGUMENT: no
 * such token. What a decoder strips from the end of a text only gw_tokenizer_decode strips. */
gw_status gw_decode_next(const gw_tokenizer *t, gw_decode_state *state, int32_t id,
                         int keep_special, const char **text, size_t *bytes);

#endif
