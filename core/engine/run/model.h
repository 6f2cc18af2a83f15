/* core/engine/run/model.h - what is loaded: checkpoint, tokenizer, weights on devices, plans'
 * nodes. */
#ifndef GW_ENGINE_MODEL_H
#define GW_ENGINE_MODEL_H

#include "core/model/checkpoint.h"
#include "core/plan/plan.h"
#include "core/tensor/sample.h"
#include "core/text/tokens/tokenizer.h"

/* The body of gw_model_open; backends is the registry (NULL-terminated), which core never names. */
gw_status gw_engine_open(const gw_model_options *options, const gw_backend *const *backends,
                         gw_model **out);

/* The body of gw_eyes_forecast; tower.c. */
gw_status gw_engine_eyes_forecast(const gw_model_options *options,
                                  const gw_backend *const *backends, gw_eyes_need *out);

/* The body of gw_forecast_new. */
gw_status gw_engine_forecast(const gw_model_options *options, const gw_backend *const *backends,
                             gw_forecast **out);

const gw_tokenizer *gw_model_tokenizer(const gw_model *model);
const gw_vocab *gw_model_vocab(const gw_model *model);
int32_t gw_model_n_vocab(const gw_model *model);
/* Which tokens of its target a draft model's logits are of, [n_vocab]; NULL: the same. And logits
 * [n_vocab] of the draft model at their places among those of its target [n], the others -INFINITY:
 * to has been filled with that. */
const int32_t *gw_model_draft_tokens(const gw_model *model);
/* A model that drafts by blocks (specs/dflash.spec): `rows` rows in one pass, the last token of the
 * text and then `mask`, whose logits from row `first` on are of the tokens that follow. rows 0: it
 * drafts token by token. */
typedef struct gw_draft_block {
    int32_t rows, mask, first;
} gw_draft_block;
gw_draft_block gw_model_draft_block(const gw_model *model);
/* Of such a model, how the token before each row changes what the row says (draft_chain.c). rank 0:
 * not at all; sure: it also says how sure it is of each token. */
typedef enum gw_chain_kind { GW_CHAIN_PLAIN, GW_CHAIN_GATED, GW_CHAIN_REMEMBERS } gw_chain_kind;
typedef struct gw_draft_chain {
    int32_t rank;
    gw_chain_kind kind;
    int sure, sure_by_token;
} gw_draft_chain;
gw_draft_chain gw_model_draft_chain(const gw_model *model);
void gw_model_spread(const gw_model *draft, const float *logits, float *to);
const gw_model *gw_session_model(const gw_session *s);

/* The halves of gw_session_decode. The first may return while a device is at work; nothing but the
 * second may then be asked of this session. */
gw_status gw_session_decode_begin(gw_session *s, const int32_t *tokens, size_t n);
gw_status gw_session_decode_end(gw_session *s);
/* Both halves, of tokens whose logits nobody reads: there are none afterwards. */
gw_status gw_session_feed(gw_session *s, const int32_t *tokens, size_t n);
/* Can steps be drawn where the logits are; and does such a step begin before the host has the token
 * that it appends? */
int gw_session_steps(const gw_session *s);
int gw_session_draws(const gw_session *s, const gw_choice *rule); /* by such a rule? */
int gw_session_steps_ahead(const gw_session *s);
/* Where they can: append one token; *id: what the rule draws behind it, without logits; less than
 * 0, and the session as it was, when that is impossible. more: the next call will append *id, and
 * may be begun. gw_session_settle forgets such a beginning, and waits for it. */
gw_status gw_session_step(gw_session *s, const gw_choice *rule, int32_t token, int more,
                          int32_t *id);
gw_status gw_session_settle(gw_session *s);
/* Room for gw_session_draw_end; nothing where steps cannot be drawn. */
gw_status gw_session_draw_rows(gw_session *s);
/* In place of gw_session_decode_end: ids [rows] that the rule draws behind each row, without
 * logits. *drawn 0: one of them is impossible; then the logits are there. */
gw_status gw_session_draw_end(gw_session *s, const gw_choice *rule, int32_t *ids, int *drawn);
/* fn is called some times within a pass of decode, whenever the host has computed a part of it;
 * NULL: no longer. Nothing may then be asked of this session. */
gw_status gw_session_pause(gw_session *s, gw_pause_fn fn, void *user);
/* 1 when all of other is computed on a device that works beside the host, and part of s by the
 * host. */
int gw_session_needs_host(const gw_session *s, const gw_session *other);
/* 1 when a pass of s ends on a device that works beside the host and computes nothing of other. */
int gw_session_leaves_host(const gw_session *s, const gw_session *other);

#endif
