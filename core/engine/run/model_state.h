/* core/engine/run/model_state.h - what a gw_model holds; for core/engine only. */
#ifndef GW_ENGINE_MODEL_STATE_H
#define GW_ENGINE_MODEL_STATE_H

#include "core/engine/run/adapters.h"
#include "core/engine/run/model.h"
#include "core/engine/placing/place.h"
#include "core/model/weights.h"
#include "core/text/tokens/stream.h"
#include "include/godwit_sleep.h"

/* What prompts took of which some weights lie in main memory: the least of so many readings. */
typedef struct gw_fetch_rate {
    double layer_row; /* seconds of a layer and a row there                 */
    double byte;      /* of a byte of weights that the card was brought     */
    int n_layer_row, n_byte;
} gw_fetch_rate;

struct gw_model {
    gw_checkpoint *checkpoint;
    gw_hparams hp;         /* zero when only the vocabulary was asked for */
    const gw_vocab *vocab; /* the checkpoint's; NULL: the model has none */
    gw_tokenizer *tokenizer;
    gw_place place; /* no devices: vocabulary only */
    gw_weights *weights;
    gw_fetch_rate fetch_rate;
    struct gw_tower *tower;     /* its eyes; NULL: none */
    gw_adapters *adapters;      /* NULL: none */
    struct gw_pair_form *pairs; /* a reranker's form of pairs; NULL: the tokenizer's */
    gw_arena_set *arenas;       /* shared by the plans of all sessions: one runs at a time */
    gw_model_info info;         /* strings below */
    char name[256], device_text[512], placed[224], format[32];
    char converted[32]; /* options.weights */
    gw_sleep_info sleep;
    int32_t *draft_token; /* [n_vocab] of its target, in place of each of its own; NULL: the same */
    gw_draft_block draft_block;
    gw_draft_chain draft_chain;
    gw_model *chain; /* its product of low rank; NULL: the blocks have no chain */
};

/* Option predictor, of what only gw_model_open itself opens: dflash-chain.spec. */
enum { GW_PREDICTOR_CHAIN = 2 };

/* model_draft.c: of a head that drafts, which of its target's tokens each of its own is; of one
 * that drafts by blocks, what a block is. */
gw_status gw_model_draft_open(gw_model *m);
/* Before weights are matched: GW_E_UNSUPPORTED, a head of a kind that is not computed (DFlash2). */
gw_status gw_model_draft_check(const gw_model *m);
/* Ids below this are tokens that the model may be fed. */
int32_t gw_model_tokens(const gw_model *m);

/* Opening in steps: the checkpoint; then devices, and weights matched but not loaded (*load: how
 * they are to be). m is freed by gw_model_free whatever happens. */
gw_status gw_model_begin(gw_model *m, const gw_model_options *options);
gw_status gw_model_prepare(gw_model *m, const gw_model_options *options,
                           const gw_backend *const *backends, const gw_passed *passed,
                           gw_weights_options *load);

/* Then all of it: placed and loaded. */
gw_status gw_model_load(gw_model *m, const gw_model_options *options,
                        const gw_backend *const *backends, const gw_passed *passed);

/* model_sleep.c. GW_E_ARGUMENT: it sleeps, and nothing can be made of it. */
gw_status gw_model_awake(const gw_model *m);

/* translation.c. The one token that this spelling is as a special one, and is not otherwise; -1. */
int32_t gw_model_special(const gw_model *m, const char *spelling);

const gw_text_stream *gw_stream_text(const gw_stream *stream);

#endif
