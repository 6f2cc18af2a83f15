/* core/engine/sampling/ban.h - what a sampler asks a gw_ban, and a gw_ban for any vocabulary. The
 * public face is in godwit.h. */
#ifndef GW_ENGINE_BAN_H
#define GW_ENGINE_BAN_H

#include "core/engine/sampling/sampler.h"
#include "core/text/tokens/stream.h"

/* gw_ban_new for any vocabulary, of n_vocab tokens; the tokenizer is borrowed. */
gw_status gw_ban_make(const gw_tokenizer *tokenizer, int32_t n_vocab, const char *const *texts,
                      size_t n, int keep_special, gw_ban **out);
/* gw_ban_begin; stream NULL: at the beginning of a text. */
gw_status gw_ban_start(gw_ban *ban, const gw_text_stream *stream);

/* Takes out of a list in the order of the tokens what may not come at pos; returns how many. */
size_t gw_ban_filter(const gw_ban *ban, gw_candidates *c, int32_t pos);
int32_t gw_ban_vocab(const gw_ban *ban);

#endif
