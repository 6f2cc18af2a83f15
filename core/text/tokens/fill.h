/* core/text/tokens/fill.h - marks by which a model fills in text between a prefix and a suffix, and
 * the prompt that is made of them. Sources: the models' own tokenizers; GGUF's keys as in
 * llama.cpp b11434; mistral-common (suffix first, no middle).
 */
#ifndef GW_TEXT_TOKENS_FILL_H
#define GW_TEXT_TOKENS_FILL_H

#include "core/text/tokens/tokenizer.h"
#include "include/godwit_fill.h"

/* By their spelling, those marks that no key named; marks that end what is filled in join
 * vocab->end. Called by gw_vocab_check. */
void gw_fill_find(gw_vocab *vocab);

/* The bodies of gw_fill_lacks, gw_fill_in. */
const char *gw_fill_missing(const gw_vocab *vocab);
gw_status gw_fill_prompt(const gw_vocab *vocab, const gw_tokenizer *t, const gw_fill *fill,
                         int32_t **ids, size_t *n, size_t *cut);

#endif
