/* core/engine/model.h - what is loaded: checkpoint, tokenizer, weights on devices, plans' nodes. */
#ifndef GW_ENGINE_MODEL_H
#define GW_ENGINE_MODEL_H

#include "core/model/checkpoint.h"
#include "core/plan/plan.h"
#include "core/text/tokenizer.h"

/* The body of gw_model_open; backends is the registry (NULL-terminated), which core never names. */
gw_status gw_engine_open(const gw_model_options *options, const gw_backend *const *backends,
                         gw_model **out);

const gw_tokenizer *gw_model_tokenizer(const gw_model *model);
const gw_vocab *gw_model_vocab(const gw_model *model);
int32_t gw_model_n_vocab(const gw_model *model);
const gw_model *gw_session_model(const gw_session *s);

#endif
