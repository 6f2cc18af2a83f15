/* core/model/sentence_act.h - activations of dense modules; for sentence_*.c only. */
#ifndef GW_MODEL_SENTENCE_ACT_H
#define GW_MODEL_SENTENCE_ACT_H

#include "core/model/sentence.h"

enum {
    GW_SENTENCE_IDENTITY,
    GW_SENTENCE_TANH,
    GW_SENTENCE_RELU,
    GW_SENTENCE_GELU, /* with erf */
    GW_SENTENCE_SILU,
    GW_SENTENCE_SIGMOID,
    GW_SENTENCE_LEAKY, /* slope 0.01 */
    GW_SENTENCE_SOFTPLUS
};

float gw_sentence_act(int act, float x);

#endif
