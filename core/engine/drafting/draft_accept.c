/* core/engine/drafting/draft_accept.c - which drafts are kept when text and draft are only alike in
 * distribution. */
#include "core/engine/drafting/draft_accept.h"

#include <float.h>
#include <math.h>

#include "core/tensor/arith.h"

void gw_draft_weigh(gw_candidates *c, int greedy) {
    size_t best = gw_candidates_best(c);
    if (best == c->n) {
        c->n = c->ranked = 0;
        return;
    }
    if (greedy) {
        c->at[0] = c->at[best];
        c->at[0].key = 1;
        c->n = c->ranked = 1;
        return;
    }
    float top = c->at[best].logit;
    double sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        c->at[i].key = gw_exp(c->at[i].logit - top);
        sum += (double)c->at[i].key;
    }
    for (size_t i = 0; i < c->n; i++) {
        c->at[i].key = (float)((double)c->at[i].key / sum);
    }
}

static const gw_candidate *find(const gw_candidates *c, int32_t token) {
    for (size_t i = 0; i < c->n; i++) {
        if (c->at[i].token == token) {
            return &c->at[i];
        }
    }
    return NULL;
}

float gw_draft_weight(const gw_candidates *c, int32_t token) {
    const gw_candidate *x = find(c, token);
    return x != NULL ? x->key : 0.0f;
}

int gw_draft_keeps(float q, float p, float u) { return (double)u * (double)p < (double)q; }

void gw_draft_residual(gw_candidates *c, const float *p, int32_t drafted) {
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        gw_candidate x = c->at[i];
        float other = p != NULL ? p[x.token] : x.token == drafted ? 1.0f : 0.0f;
        float rest = x.key - other;
        if (rest >= FLT_MIN) {
            c->at[i] = c->at[n];
            x.logit = gw_log(rest);
            c->at[n++] = x;
        }
    }
    c->n = n > 0 ? n : c->n;
    c->ranked = 0;
}

int gw_draft_in_pool(const gw_candidates *c, int32_t token) {
    const gw_candidate *x = find(c, token);
    return x != NULL && x->logit > -INFINITY;
}

float gw_draft_uniform(uint64_t seed, uint32_t sequence, int32_t position) {
    return gw_sampler_uniform(seed, sequence, position);
}
