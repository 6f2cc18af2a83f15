/* core/text/tokens/tokenizer.h - text to token ids and back. Read-only after building; any thread.
 */
#ifndef GW_TEXT_TOKENIZER_H
#define GW_TEXT_TOKENIZER_H

#include "core/text/tokens/vocab.h"

typedef struct gw_tokenizer gw_tokenizer;

/* vocab is borrowed and must outlive the tokenizer. */
gw_status gw_tokenizer_new(const gw_vocab *vocab, gw_tokenizer **out);
void gw_tokenizer_free(gw_tokenizer *t);

/* flags: GW_TEXT_BOS, GW_TEXT_SPECIAL (godwit.h). *ids malloc'd [*n] (never NULL on GW_OK).
 * Linear or n log n in the text: 1 MB of anything in under a second. */
gw_status gw_tokenizer_encode(const gw_tokenizer *t, const char *text, size_t bytes, int flags,
                              int32_t **ids, size_t *n);

/* A text and its pair, as rerankers and other encoders take two texts: framed as the model's own
 * tokenizer does ([CLS] A [SEP] B [SEP], <s> A </s></s> B </s>, ...). pair NULL: one text, as
 * gw_tokenizer_encode with GW_TEXT_BOS. flags: GW_TEXT_SPECIAL; without GW_TEXT_BOS nothing stands
 * around and between the texts. *ids and *types are malloc'd [*n]; types: the type id (segment) of
 * each token. */
gw_status gw_tokenizer_encode_pair(const gw_tokenizer *t, const char *text, size_t bytes,
                                   const char *pair, size_t pair_bytes, int flags, int32_t **ids,
                                   int32_t **types, size_t *n);

/* A text with tokens put in by id, which no text can spell: what lies between two of them is one
 * stretch, encoded as in gw_tokenizer_encode without GW_TEXT_SPECIAL. Control tokens and the
 * `barred` ones never come out of a text, whatever kind the vocabulary gives them. joined: the
 * first stretch goes on with a text that is there already (no space is put before it). */
typedef struct gw_text_piece {
    int32_t id; /* -1: a text */
    const char *text;
    size_t bytes;
} gw_text_piece;

typedef struct gw_text_rules {
    const int32_t *barred;
    size_t n_barred;
    int joined;
    int strip_after; /* a token swallows the white space behind it, whatever the vocabulary says */
} gw_text_rules;

gw_status gw_tokenizer_encode_pieces(const gw_tokenizer *t, const gw_text_piece *pieces, size_t n,
                                     const gw_text_rules *rules, int32_t **ids, size_t *n_ids);

gw_status gw_tokenizer_decode(const gw_tokenizer *t, const int32_t *ids, size_t n, int keep_special,
                              char **text, size_t *bytes);

/* The bytes one id stands for inside a text (leading-space marks resolved except at the start);
 * control tokens give nothing unless keep_special. *text lives as long as the tokenizer. */
void gw_tokenizer_piece(const gw_tokenizer *t, int32_t id, int keep_special, const char **text,
                        size_t *bytes);

#endif
