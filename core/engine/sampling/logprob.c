/* core/engine/sampling/logprob.c - see logprob.h. */
#include "core/engine/sampling/logprob.h"

#include "core/engine/sampling/sampler.h"

/* Into a list of `have` in falling order, of at most `room`; returns how many there are. */
static size_t insert(gw_logprob *top, size_t have, size_t room, int32_t token, float logit) {
    if (have == room && !(logit > top[have - 1].logprob)) {
        return have;
    }
    size_t at = have < room ? have : have - 1;
    for (; at > 0 && logit > top[at - 1].logprob; at--) {
        top[at] = top[at - 1];
    }
    top[at] = (gw_logprob){.token = token, .logprob = logit};
    return have < room ? have + 1 : have;
}

void gw_logprobs(const float *logits, int32_t n, int32_t token, float *logprob, gw_logprob *top,
                 size_t n_top) {
    float largest = gw_logits_top(logits, (size_t)n);
    double sum = 0.0;
    size_t have = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)gw_exp(logits[i] - largest);
        have = n_top > 0 ? insert(top, have, n_top, i, logits[i]) : 0;
    }
    float all = gw_log((float)sum);
    *logprob = (logits[token] - largest) - all;
    for (size_t i = 0; i < have; i++) {
        top[i].logprob = (top[i].logprob - largest) - all;
    }
}
