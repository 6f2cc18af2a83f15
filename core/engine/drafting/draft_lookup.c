/* core/engine/drafting/draft_lookup.c - chains of positions that end alike. */
#include "core/engine/drafting/draft_lookup.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"

enum { NOWHERE = -1 };

/* The corpus and then the text lie in one array. Chains run through both; copies do not reach over
 * the border, because a candidate's tokens are compared from its own side only. */
struct gw_lookup {
    int32_t *tokens;   /* [capacity] */
    int32_t *previous; /* [capacity] the position before with the same hash, or NOWHERE */
    int32_t *head;     /* [mask + 1] the last position of a hash, or NOWHERE            */
    uint32_t mask;
    size_t n_corpus, n, capacity;
};

static uint32_t hash_at(const gw_lookup *l, size_t i) {
    uint32_t h = (uint32_t)l->tokens[i] * 2654435761u ^ (uint32_t)l->tokens[i - 1] * 2246822519u;
    return (h ^ h >> 15) & l->mask;
}

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

/* How many tokens before and at position i equal the end of the text. */
static int shared(const gw_lookup *l, size_t i) {
    size_t room = i - side(l, i) + 1, text = l->n - l->n_corpus;
    room = room < text ? room : text;
    room = room < GW_LOOKUP_LONG ? room : GW_LOOKUP_LONG;
    int n = 0;
    while ((size_t)n < room && l->tokens[i - (size_t)n] == l->tokens[l->n - 1 - (size_t)n]) {
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
        int n = ends ? 0 : shared(l, p);
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
