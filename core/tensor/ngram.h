/* core/tensor/ngram.h - the hashes of a table of n-grams, as Qwen4's published models make them,
 * and which rows a token and those before it name (docs/arithmetic.md, section 5).
 */
#ifndef GW_TENSOR_NGRAM_H
#define GW_TENSOR_NGRAM_H

#include "core/tensor/ngram_row.h"

typedef struct gw_ngram_args {
    int size, heads; /* lengths 2 .. size, heads hashes for each                  */
    int index;       /* of this set among all of the model, which share no primes */
    int vocab, end;  /* tokens; what counts where a text, or the one before, ends */
    int64_t base, seed;
    double factor; /* the first multiplier, where a file states it; 0 */
} gw_ngram_args;

/* Steele, Lea, Flood 2014: SplitMix64. */
static inline uint64_t gw_ngram_mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline int gw_ngram_is_prime(int64_t n) {
    if (n < 4 || n % 2 == 0) {
        return n == 2 || n == 3;
    }
    for (int64_t d = 3; d * d <= n; d += 2) {
        if (n % d == 0) {
            return 0;
        }
    }
    return 1;
}

static inline void gw_ngram_init(gw_ngram *g, const gw_ngram_args *a) {
    int hashes = (a->size - 1) * a->heads;
    int64_t prime = a->base - 1, at = 0;
    uint64_t most = (uint64_t)INT64_MAX / (uint64_t)(a->vocab > 0 ? a->vocab : 1) / 2;
    g->size = a->size;
    g->heads = a->heads;
    g->end = a->end;
    most = most > 0 ? most : 1;
    for (int i = 0; i < a->size; i++) {
        uint64_t seed = (uint64_t)a->seed + 10007u * (uint64_t)a->index;
        g->factor[i] =
            2 * (gw_ngram_mix(seed + 0x9E3779B97F4A7C15u * (uint64_t)(i + 1)) % most) + 1;
    }
    for (int i = -a->index * hashes; i < hashes; i++) { /* those of the sets before are passed by */
        do {
            prime++;
        } while (!gw_ngram_is_prime(prime));
        if (i >= 0) {
            g->rows[i] = prime;
            g->first[i] = at;
            at += prime;
        }
    }
}

/* Whether the first multiplier is the one that was stated; numbers of files are doubles. */
static inline int gw_ngram_agrees(const gw_ngram *g, const gw_ngram_args *a) {
    double made = (double)g->factor[0], less = made - a->factor;
    return a->factor == 0.0 || (less <= made * 0x1p-50 && -less <= made * 0x1p-50);
}

/* token [size]: the token, then those before it, the nearest first; -1: none. row [hashes]. */
static inline void gw_ngram_find(const gw_ngram *g, const int32_t *token, int64_t *row) {
    gw_u64 mixed = gw_ngram_mixed(g, 0, 0, token[0]);
    int ended = 0, n = 0;
    for (int i = 1; i < g->size; i++) {
        ended |= token[i] < 0 || token[i] == g->end;
        mixed = gw_ngram_mixed(g, mixed, i, ended ? g->end : token[i]);
        for (int h = 0; h < g->heads; h++, n++) {
            row[n] = gw_ngram_row(g, mixed, n);
        }
    }
}

#endif
