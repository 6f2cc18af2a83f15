/* core/engine/model_state.h - what a gw_model holds; for core/engine only. */
#ifndef GW_ENGINE_MODEL_STATE_H
#define GW_ENGINE_MODEL_STATE_H

#include "core/engine/model.h"
#include "core/model/weights.h"

struct gw_model {
    gw_checkpoint *checkpoint;
    gw_hparams hp;         /* zero when only the vocabulary was asked for */
    const gw_vocab *vocab; /* the checkpoint's; NULL: the model has none */
    gw_tokenizer *tokenizer;
    gw_plan_device device; /* backend NULL: vocabulary only */
    gw_weights *weights;
    gw_arena_set *arenas; /* shared by the plans of all sessions: one runs at a time */
    gw_model_info info;   /* strings below */
    char name[256], device_text[192], format[32];
};

#endif
