/* core/engine/sampling/logprob.h - probabilities of tokens by raw logits, for people who score. */
#ifndef GW_ENGINE_LOGPROB_H
#define GW_ENGINE_LOGPROB_H

#include "include/godwit.h"

/* log softmax of logits [n] at token, and the n_top largest, falling, lower tokens first. The sum
 * of exponentials is in double, in the order of tokens; exp and log are those of arith.h, so the
 * numbers are the same on every machine. */
void gw_logprobs(const float *logits, int32_t n, int32_t token, float *logprob, gw_logprob *top,
                 size_t n_top);

#endif
