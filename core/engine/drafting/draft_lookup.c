/* core/engine/drafting/draft_lookup.c - chains of positions that end alike, the longest copy, and
 * votes of many copies. */
#include "core/engine/drafting/draft_lookup.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"

enum { NOWHERE = -1, BORDER = -1 /* between the texts of a pool */ };

/* The corpus and then the text lie in one array. Chains run through both; copies do not reach over
 * the border, because a candidate's tokens are compared from its own side only. */
struct gw_lookup {
    int32_t *tokens;   /* [capacity] */
    int32_t *previous; /* [capacity] the position before with the same hash, or NOWHERE */
    int32_t *head;     /* [mask + 1] the last position of a hash, or NOWHERE            */
    uint32_t mask;
    size_t n_corpus, n, capacity;
};

/* Of the tokens up to *end. */
static uint32_t hash_of(const gw_lookup *l, const int32_t *end) {
    uint32_t h = (uint32_t)end[0] * 2654435761u ^ (uint32_t)end[-1] * 2246822519u;
    return (h ^ h >> 15) & l->mask;
}

static uint32_t hash_at(const gw_lookup *l, size_t i) { return hash_of(l, l->tokens + i); }

/* First position of the side, corpus or text, that position i lies in. */
static size_t side(const gw_lookup *l, size_t i) { return i < l->n_corpus ? 0 : l->n_corpus; }

static void append_one(gw_lookup *l, int32_t token) {
    size_t i = l->n++;
    l->tokens[i] = token;
    l->previous[i] = NOWHERE;
    if (i > side(l, i)) {
        uint32_t h = hash_at(l, i);
        l->previous[i] = l->head[h];
        l->head[h] = (int32_t)i;
    }
}

gw_status gw_lookup_new(const int32_t *corpus, size_t n_corpus, size_t n_ctx, gw_lookup **out) {
    uint64_t capacity;
    if (!gw_size_add(n_corpus, n_ctx, &capacity) || capacity >= 1u << 30) {
        return gw_fail(GW_E_LIMIT, "draft file", "%zu tokens are too many to search", n_corpus);
    }
    uint32_t size = 1024;
    while (size < capacity && size < 1u << 24) {
        size *= 2;
    }
    gw_lookup *l = calloc(1, sizeof *l);
    if (l != NULL) {
        l->tokens = calloc((size_t)capacity + 1, sizeof *l->tokens);
        l->previous = calloc((size_t)capacity + 1, sizeof *l->previous);
        l->head = malloc(size * sizeof *l->head);
    }
    if (l == NULL || l->tokens == NULL || l->previous == NULL || l->head == NULL) {
        gw_lookup_free(l);
        return gw_fail(GW_E_NOMEM, "draft file", "no memory to search %zu tokens",
                       (size_t)capacity);
    }
    memset(l->head, 0xff, size * sizeof *l->head);
    l->mask = size - 1;
    l->capacity = (size_t)capacity;
    l->n_corpus = n_corpus;
    for (size_t i = 0; i < n_corpus; i++) {
        append_one(l, corpus[i]);
    }
    *out = l;
    return GW_OK;
}

void gw_lookup_free(gw_lookup *l) {
    if (l != NULL) {
        free(l->tokens);
        free(l->previous);
        free(l->head);
        free(l);
    }
}

gw_status gw_lookup_new_behind(const gw_lookup *l, size_t n_corpus, const int32_t *tokens, size_t n,
                               size_t n_ctx, gw_lookup **out) {
    int32_t *all = calloc(n_corpus + n + 1, sizeof *all);
    if (all == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for a source of %zu tokens", n);
    }
    memcpy(all, l->tokens, n_corpus * sizeof *all);
    memcpy(all + n_corpus, tokens, n * sizeof *all);
    gw_status status = gw_lookup_new(all, n_corpus + n, n_ctx, out);
    free(all);
    return status;
}

void gw_lookup_append(gw_lookup *l, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n && l->n < l->capacity; i++) {
        append_one(l, tokens[i]);
    }
}

void gw_lookup_forget(gw_lookup *l, size_t n) {
    while (l->n > l->n_corpus + n) {
        size_t i = l->n - 1;
        if (i > l->n_corpus) { /* the last position is the head of its chain */
            l->head[hash_at(l, i)] = l->previous[i];
        }
        l->n--;
    }
}

/* How many tokens before and at position i equal those up to *end, of a text of so many. */
static int shared(const gw_lookup *l, size_t i, const int32_t *end, size_t text) {
    size_t room = i - side(l, i) + 1;
    room = room < text ? room : text;
    room = room < GW_LOOKUP_LONG ? room : GW_LOOKUP_LONG;
    int n = 0;
    while ((size_t)n < room && l->tokens[i - (size_t)n] == *(end - n)) {
        n++;
    }
    return n;
}

size_t gw_lookup_find(const gw_lookup *l, size_t most, int32_t *next, int *length) {
    if (l->n < l->n_corpus + GW_LOOKUP_MIN || most == 0) {
        return 0;
    }
    int best = GW_LOOKUP_MIN - 1;
    size_t at = 0;
    int32_t i = l->previous[l->n - 1];
    for (int visits = 0; i != NOWHERE && visits < GW_LOOKUP_VISITS; visits++) {
        size_t p = (size_t)i;
        int ends = p + 1 == l->n_corpus; /* nothing follows it there */
        int n = ends ? 0 : shared(l, p, l->tokens + l->n - 1, l->n - l->n_corpus);
        if (n > best) {
            best = n;
            at = p;
            if (best == GW_LOOKUP_LONG) {
                break;
            }
        }
        i = l->previous[p];
    }
    if (best < GW_LOOKUP_MIN) {
        return 0;
    }
    *length = best;
    size_t end = at < l->n_corpus ? l->n_corpus : l->n, follow = end - at - 1;
    size_t n = at < l->n_corpus && follow < most ? follow : most;
    for (size_t k = 0; k < n; k++) {
        next[k] = k < follow ? l->tokens[at + 1 + k] : next[k - follow];
    }
    return n;
}

/* ---- votes ----------------------------------------------------------------------------------- */

/* A copy of the end of the text. */
typedef struct copy {
    const int32_t *follow; /* [left] what came after it                     */
    int32_t left, shared;
    int repeats; /* it runs into the end of the text, which then repeats itself */
} copy;

/* Votes for tokens, by open addressing. */
typedef struct ballot {
    int32_t token[2 * GW_LOOKUP_COPIES], count[2 * GW_LOOKUP_COPIES];
} ballot;

/* A continuation that is as improbable as that is not worth a row. */
static const float LEAST = 0.1f;

/* Copies in the chain from position i on join out [n]; returns how many there are then. */
static int gather(const gw_lookup *l, int32_t i, const int32_t *end, size_t text, copy *out,
                  int n) {
    const int own = l->tokens + l->n - 1 == end;
    for (int visits = 0; i != NOWHERE && visits < GW_LOOKUP_VISITS && n < GW_LOOKUP_COPIES;
         visits++) {
        const size_t p = (size_t)i, stop = p < l->n_corpus ? l->n_corpus : l->n;
        const int same = shared(l, p, end, text);
        if (same >= GW_LOOKUP_MIN && p + 1 < stop && l->tokens[p + 1] != BORDER) {
            out[n++] = (copy){.follow = l->tokens + p + 1,
                              .left = (int32_t)(stop - p - 1),
                              .shared = same,
                              .repeats = own && p >= l->n_corpus};
        }
        i = l->previous[p];
    }
    return n;
}

/* The token that came k after a copy; BORDER: none. next [k]: those chosen so far. */
static int32_t vote_of(const copy *c, int32_t k, const int32_t *next) {
    return k < c->left ? c->follow[k] : c->repeats ? next[k - c->left] : BORDER;
}

/* The most frequent token of copies [n], BORDER: none has one; *count: of how many. */
static int32_t winner(const copy *const *copies, int n, int32_t k, const int32_t *next, ballot *b,
                      int32_t *count) {
    uint32_t mask = 1;
    int32_t best = BORDER;
    *count = 0;
    while (mask < 2 * (uint32_t)n - 1) {
        mask = 2 * mask + 1;
    }
    for (uint32_t i = 0; i <= mask; i++) {
        b->token[i] = BORDER;
    }
    for (int i = 0; i < n; i++) {
        const int32_t t = vote_of(copies[i], k, next);
        uint32_t at = ((uint32_t)t * 2654435761u >> 16) & mask;
        if (t == BORDER) {
            continue;
        }
        while (b->token[at] != t && b->token[at] != BORDER) {
            at = (at + 1) & mask;
        }
        b->count[at] = b->token[at] == t ? b->count[at] + 1 : 1;
        b->token[at] = t;
        if (b->count[at] > *count) {
            *count = b->count[at];
            best = t;
        }
    }
    return best;
}

/* What copies that share at least `least` tokens say; returns how many tokens of it are expected to
 * be right. */
static float elect(const copy *all, int n, int least, size_t most, int32_t *next, float *trust,
                   size_t *made) {
    const copy *copies[GW_LOOKUP_COPIES];
    ballot b;
    int some = 0;
    float whole = 1.0f, sum = 0.0f;
    for (int i = 0; i < n; i++) {
        if (all[i].shared >= least) {
            copies[some++] = &all[i];
        }
    }
    for (*made = 0; *made < most && some > 0; ++*made) {
        int32_t k = (int32_t)*made, count, token = winner(copies, some, k, next, &b, &count);
        trust[k] = (float)count / (float)some * gw_lookup_trust(least + k);
        whole *= trust[k];
        if (token == BORDER || whole < LEAST) {
            break;
        }
        int stay = 0;
        for (int i = 0; i < some; i++) {
            if (vote_of(copies[i], k, next) == token) {
                copies[stay++] = copies[i];
            }
        }
        some = stay;
        next[k] = token;
        sum += whole;
    }
    return sum;
}

size_t gw_lookup_vote(const gw_lookup *l, const gw_lookup *pool, size_t most, int32_t *next,
                      float *trust) {
    const size_t text = l->n - l->n_corpus;
    copy copies[GW_LOOKUP_COPIES];
    int32_t other[64];
    float doubt[64], best = 0.0f;
    size_t n = 0, made;
    int longest = 0, found;
    most = most < 64 ? most : 64;
    if (text < GW_LOOKUP_MIN || most == 0) {
        return 0;
    }
    const int32_t *end = l->tokens + l->n - 1;
    found = gather(l, l->previous[l->n - 1], end, text, copies, 0);
    if (pool != NULL) {
        found = gather(pool, pool->head[hash_of(pool, end)], end, text, copies, found);
    }
    for (int i = 0; i < found; i++) {
        longest = copies[i].shared > longest ? copies[i].shared : longest;
    }
    for (int least = longest; least >= GW_LOOKUP_MIN; least /= 2) {
        const float sum = elect(copies, found, least, most, other, doubt, &made);
        if (sum > best) {
            best = sum;
            n = made;
            memcpy(next, other, n * sizeof *next);
            memcpy(trust, doubt, n * sizeof *trust);
        }
    }
    return n;
}

void gw_lookup_keep(gw_lookup *pool, const int32_t *tokens, size_t n) {
    const int32_t border = BORDER;
    const size_t half = pool->capacity / 2;
    n = n < half ? n : half;
    if (pool->n + n + 1 > pool->capacity) {
        const size_t from = pool->n > half ? pool->n - half : 0, stay = pool->n - from;
        memmove(pool->tokens, pool->tokens + from, stay * sizeof *pool->tokens);
        memset(pool->head, 0xff, ((size_t)pool->mask + 1) * sizeof *pool->head);
        pool->n = 0;
        for (size_t i = 0; i < stay && stay + n < pool->capacity; i++) {
            append_one(pool, pool->tokens[i]);
        }
    }
    gw_lookup_append(pool, tokens, n);
    gw_lookup_append(pool, &border, 1);
}
