/* core/engine/sampling/sampler_list.c - lists of candidates: filling, ranking, the largest, the
 * draw. */
#include "core/engine/sampling/sampler.h"

#include <math.h>

#include "core/tensor/arith.h"

/* ---- candidates ------------------------------------------------------------------------------ */

void gw_candidates_fill(gw_candidates *c, const float *logits, int32_t n_vocab) {
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        float x = logits[id];
        c->at[n] = (gw_candidate){.logit = x, .key = x, .token = id};
        n += x == x; /* a NaN is overwritten by the next one */
    }
    c->n = n;
    c->ranked = 0;
}

/* In lanes, which compilers turn into vectors. */
float gw_logits_top(const float *logits, size_t n) {
    enum { LANES = 16 };
    float lane[LANES], top = -INFINITY;
    size_t i = 0;
    for (int j = 0; j < LANES; j++) {
        lane[j] = -INFINITY;
    }
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] = logits[i + (size_t)j] > lane[j] ? logits[i + (size_t)j] : lane[j];
        }
    }
    for (; i < n; i++) {
        top = logits[i] > top ? logits[i] : top;
    }
    for (int j = 0; j < LANES; j++) {
        top = lane[j] > top ? lane[j] : top;
    }
    return top;
}

/* Of the largest of each block the m-th is a bound: m logits are no less. Blocks below it are not
 * looked at again. */
int gw_candidates_fill_top(gw_candidates *c, const float *logits, int32_t n_vocab, size_t m) {
    enum { BLOCKS = 1024, LEAST = 16, SPARE = 4 };
    size_t n = (size_t)n_vocab, block = n / BLOCKS + 1;
    block = (block + LEAST - 1) / LEAST * LEAST;
    size_t blocks = (n + block - 1) / block;
    float top[BLOCKS];
    if (m == 0 || m > blocks / SPARE) {
        return 0;
    }
    for (size_t b = 0; b < blocks; b++) {
        size_t at = b * block, left = n - at;
        float x = top[b] = gw_logits_top(logits + at, left < block ? left : block);
        c->at[b] = (gw_candidate){.logit = x, .key = x, .token = (int32_t)b};
    }
    c->n = blocks;
    c->ranked = 0;
    gw_candidates_rank(c, m);
    float bound = c->at[m - 1].key;
    c->n = c->ranked = 0;
    for (size_t b = 0; b < blocks; b++) {
        size_t at = b * block, end = n - at < block ? n : at + block;
        for (; at < end && top[b] >= bound; at++) {
            if (logits[at] >= bound) {
                c->at[c->n++] = (gw_candidate){logits[at], logits[at], (int32_t)at};
            }
        }
    }
    return 1;
}

static int before(const gw_candidate *a, const gw_candidate *b) {
    return a->key > b->key || (a->key == b->key && a->token < b->token);
}

/* Restore the heap whose root is the candidate that ranks last. */
static void sift(gw_candidate *heap, size_t n, size_t i) {
    gw_candidate x = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && before(&heap[child], &heap[child + 1])) {
            child++;
        }
        if (!before(&x, &heap[child])) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

void gw_candidates_rank(gw_candidates *c, size_t m) {
    m = m < c->n ? m : c->n;
    if (m <= c->ranked) {
        return;
    }
    gw_candidate *heap = c->at + c->ranked;
    size_t size = m - c->ranked, rest = c->n - c->ranked;
    for (size_t i = size / 2; i-- > 0;) {
        sift(heap, size, i);
    }
    for (size_t i = size; i < rest; i++) {
        if (before(&heap[i], &heap[0])) {
            gw_candidate out = heap[0];
            heap[0] = heap[i];
            heap[i] = out;
            sift(heap, size, 0);
        }
    }
    for (size_t left = size; left > 1; left--) { /* the last goes to the end, again and again */
        gw_candidate last = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = last;
        sift(heap, left - 1, 0);
    }
    c->ranked = m;
}

/* ---- the choice ------------------------------------------------------------------------------ */

size_t gw_candidates_best(const gw_candidates *c) {
    size_t best = c->n;
    for (size_t i = 0; i < c->n; i++) {
        const gw_candidate *x = &c->at[i];
        if (x->logit > -INFINITY &&
            (best == c->n || x->logit > c->at[best].logit ||
             (x->logit == c->at[best].logit && x->token < c->at[best].token))) {
            best = i;
        }
    }
    return best < c->n && c->at[best].logit < INFINITY ? best : c->n;
}

size_t gw_candidates_draw(const gw_candidates *c, uint64_t seed, int32_t position) {
    return gw_candidates_draw_of(c, seed, 0, position);
}

size_t gw_candidates_draw_of(const gw_candidates *c, uint64_t seed, uint32_t sequence,
                             int32_t position) {
    size_t best = gw_candidates_best(c);
    if (best == c->n) {
        return best;
    }
    gw_u32 low = (gw_u32)seed, high = (gw_u32)(seed >> 32), at = (gw_u32)position;
    float most = c->at[best].logit + gw_gumbel(low, high, sequence, at, (gw_u32)c->at[best].token);
    for (size_t i = 0; i < c->n; i++) {
        const gw_candidate *x = &c->at[i];
        if (x->logit + GW_NOISE_MAX < most) {
            continue; /* no noise can make it win */
        }
        float y = x->logit + gw_gumbel(low, high, sequence, at, (gw_u32)x->token);
        if (y > most || (y == most && x->token < c->at[best].token)) {
            most = y;
            best = i;
        }
    }
    return best;
}

float gw_sampler_uniform(uint64_t seed, uint32_t sequence, int32_t position) {
    gw_u32 cell = gw_philox(0, (gw_u32)position, sequence, (gw_u32)seed, (gw_u32)(seed >> 32)) >> 9;
    return ((float)cell + 0.5f) * 1.1920928955078125e-7f; /* (2 cell + 1) / 2^24, exact */
}
