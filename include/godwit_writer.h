/* include/godwit_writer.h - the part of godwit.h that writes a text; it comes with godwit.h, and
 * only so. */
#ifndef GODWIT_WRITER_H
#define GODWIT_WRITER_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From logits to text: sampler, grammar, banned strings, stop strings and decoding of one text,
 * whoever computes its logits.
 *
 *   gw_writer_begin   the text begins behind a prompt
 *   gw_writer_pick    the token behind a row of logits (or gw_session_next or gw_drafter_next, with
 *                     gw_writer_sampler)
 *   gw_writer_take    it is the text's next one, or some go with it (a banned string)
 *   gw_writer_piece   tokens that stay, with their text; the last ones may be held back
 *   gw_writer_over    nothing more is wanted; then the pieces that were held, and gw_writer_rest
 *
 * Not thread-safe; the model must outlive it. Nothing is allocated between begin and free but by
 * the parts themselves. */
typedef struct gw_writer gw_writer;

typedef struct gw_writer_options {
    const gw_sampler_options *sampler; /* NULL: the defaults                              */
    const gw_grammar *grammar;         /* borrowed until gw_writer_free; NULL: any text   */
    const gw_chat *chat;               /* borrowed; NULL: the model's own ends            */
    const char *const *stops;          /* as gw_stop_new; copied                          */
    size_t n_stops;
    const char *const *bans; /* as gw_ban_new; copied                                     */
    size_t n_bans;
    size_t n_top; /* of each token's most probable ones; logprobs: 0 is none              */
    int logprobs; /* pieces have them                                                     */
    int special, ignore_eos, mid_text; /* as in gw_request_options                        */
    size_t max_tokens; /* what the grammar wants is brought to its end within so many tokens, where
                          it can be: near the limit only what leads there in time is picked. The
                          text does not end there otherwise. 0: whatever comes             */
} gw_writer_options;

/* What stays of the text. */
typedef struct gw_piece {
    int32_t token;
    const char *text; /* whole UTF-8 characters, certain; the writer's until its next call */
    size_t bytes;
    float logprob;
    const gw_logprob *top;
    size_t n_top;
} gw_piece;

/* GW_E_ARGUMENT, GW_E_LIMIT, GW_E_NOMEM. */
gw_status gw_writer_new_sized(const gw_model *model, const gw_writer_options *options, size_t size,
                              gw_writer **out);
static inline gw_status gw_writer_new(const gw_model *model, const gw_writer_options *options,
                                      gw_writer **out) {
    return gw_writer_new_sized(model, options, sizeof *options, out);
}
void gw_writer_free(gw_writer *writer);

/* Once, before anything else. A grammar that allows nothing has ended the text then. */
gw_status gw_writer_begin(gw_writer *writer, const int32_t *prompt, size_t n);

/* The token at position pos, from logits [n_vocab]. */
gw_status gw_writer_pick(gw_writer *writer, const float *logits, int32_t pos, int32_t *token);
/* The writer's own, for what picks in its place. */
gw_sampler *gw_writer_sampler(gw_writer *writer);

/* The token picked at pos follows. *back 0: it does. n > 0: it and the n - 1 tokens before it are
 * no part of the text; the row of the last token that is left must be computed again (fed as it was
 * fed before) and another one picked. */
gw_status gw_writer_take(gw_writer *writer, int32_t token, int32_t pos, size_t *back);
/* The same of tokens [n] that the sampler has accepted already, as those of gw_drafter_next, the
 * first picked at pos. *used: those looked at; with *back > 0 the last of them and some before it
 * are no part of the text, and none behind it is. */
gw_status gw_writer_take_all(gw_writer *writer, const int32_t *tokens, size_t n, int32_t pos,
                             size_t *used, size_t *back);
/* 1 once the text has ended of itself; *stop: the stop string, -1: a token or the grammar. */
int gw_writer_ended(const gw_writer *writer, int32_t *stop);
/* The next token that stays; 0: none at present. A stop string that comes true in it ends the text,
 * and tokens behind it are gone. */
gw_status gw_writer_piece(gw_writer *writer, gw_piece *piece, int *there);
/* All but the last `most` tokens stay, whatever comes: of those held back for banned strings. */
gw_status gw_writer_release(gw_writer *writer, size_t most);
/* Nothing follows: tokens that are held back stay. */
gw_status gw_writer_over(gw_writer *writer);
/* What is left of the text when there are no more pieces, and the token that ended it (its
 * probability too) or -1. */
gw_status gw_writer_rest(gw_writer *writer, gw_piece *piece);
/* Tokens that are picked and were not handed out. */
size_t gw_writer_held(const gw_writer *writer);

#ifdef __cplusplus
}
#endif

#endif
