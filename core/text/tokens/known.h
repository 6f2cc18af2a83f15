/* core/text/tokens/known.h - the pre-tokenizers that files know by a name (tokenizer.ggml.pre). */
#ifndef GW_TEXT_TOKENS_KNOWN_H
#define GW_TEXT_TOKENS_KNOWN_H

#include "core/text/tokens/vocab.h"

extern const char GW_PATTERN_GPT2[];  /* what tokenizer.json calls ByteLevel with use_regex */
extern const char GW_PATTERN_WORDS[]; /* its Whitespace: what is between is dropped */

/* What a name means beyond where it cuts; keys of the file go first where they say the same. */
enum {
    GW_KNOWN_IGNORE_MERGES = 1, /* a word that is a token is taken whole               */
    GW_KNOWN_BOS = 2,           /* the text begins with bos                            */
    GW_KNOWN_NFC = 4,           /* the model's own tokenizer composes to NFC first     */
    GW_KNOWN_PIECES = 8,        /* pieces are plain text, no byte alphabet; bytes as a fallback */
    GW_KNOWN_MARKS = 16,        /* with PIECES: a space is written U+2581              */
    GW_KNOWN_SEP = 32           /* a separator stands between a text and its pair      */
};

typedef struct gw_known_pretokenizer {
    const gw_vocab_split *splits; /* each cuts the pieces of the one before */
    size_t n;
    unsigned flags;
} gw_known_pretokenizer;

/* Of n splits those of published tokenizers that take quadratic time become those that cut the same
 * in linear time; returns how many splits there are then. */
size_t gw_known_linear(gw_vocab_split *splits, size_t n);

/* GW_E_UNSUPPORTED: nobody's name; the message lists all that are known. *out is constant. */
gw_status gw_known_find(const char *where, const char *name, const gw_known_pretokenizer **out);

#endif
