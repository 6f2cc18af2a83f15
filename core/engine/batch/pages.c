/* core/engine/batch/pages.c - see pages.h. */
#include "core/engine/batch/pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/base/hash.h"
#include "core/base/status.h"

enum { NONE = -1 };

typedef struct page {
    int32_t refs;
    int32_t next, before; /* in the list of kept ones, oldest first; next also in the free list */
    int32_t chain;        /* in its bucket */
    gw_page_name name;    /* 0: nobody can find it */
    gw_page_name parent;
} page;

struct gw_pages {
    page *at;
    int32_t *tokens; /* [n, GW_PAGE] of those with a name */
    int32_t *bucket; /* [n_buckets], a power of two */
    int32_t n, n_buckets, n_free, n_kept, free, oldest, newest;
    gw_page_name next_name;
    uint64_t key[2]; /* of the hash: clients must not choose collisions */
    uint64_t evictions;
};

gw_status gw_pages_new(int32_t n, gw_pages **out) {
    gw_pages *p = calloc(1, sizeof *p);
    int32_t buckets = 16;
    while (buckets < n && buckets < (1 << 29)) {
        buckets *= 2;
    }
    if (p != NULL) {
        p->at = calloc((size_t)n, sizeof *p->at);
        p->tokens = calloc((size_t)n * GW_PAGE, sizeof *p->tokens);
        p->bucket = calloc((size_t)buckets, sizeof *p->bucket);
    }
    if (p == NULL || p->at == NULL || p->tokens == NULL || p->bucket == NULL) {
        gw_pages_free(p);
        return gw_fail(GW_E_NOMEM, "cache", "no memory for a list of %d pages", (int)n);
    }
    p->n = p->n_free = n;
    p->n_buckets = buckets;
    p->oldest = p->newest = NONE;
    p->next_name = 1;
    for (int32_t i = 0; i < n; i++) {
        p->at[i].next = i + 1 < n ? i + 1 : NONE;
    }
    for (int32_t i = 0; i < buckets; i++) {
        p->bucket[i] = NONE;
    }
    if (getrandom(p->key, sizeof p->key, GRND_NONBLOCK) != (ssize_t)sizeof p->key) {
        p->key[0] ^=
            (uint64_t)(uintptr_t)p; /* early in a boot: where memory lies is all there is */
    }
    *out = p;
    return GW_OK;
}

void gw_pages_free(gw_pages *p) {
    if (p != NULL) {
        free(p->at);
        free(p->tokens);
        free(p->bucket);
        free(p);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static int32_t *bucket_of(const gw_pages *p, gw_page_name before, const int32_t *tokens) {
    uint64_t words[1 + GW_PAGE / 2];
    words[0] = before;
    memcpy(words + 1, tokens, GW_PAGE * sizeof *tokens);
    uint64_t h = gw_hash_bytes(p->key, words, sizeof words);
    return &p->bucket[h & (uint64_t)(p->n_buckets - 1)];
}

static int32_t *tokens_of(const gw_pages *p, int32_t i) { return p->tokens + (size_t)i * GW_PAGE; }

static int32_t look_up(const gw_pages *p, gw_page_name before, const int32_t *tokens) {
    int32_t i = *bucket_of(p, before, tokens);
    while (i != NONE && (p->at[i].parent != before ||
                         memcmp(tokens_of(p, i), tokens, GW_PAGE * sizeof *tokens) != 0)) {
        i = p->at[i].chain;
    }
    return i;
}

static void unname(gw_pages *p, int32_t i) {
    int32_t *link = bucket_of(p, p->at[i].parent, tokens_of(p, i));
    while (*link != i) {
        link = &p->at[*link].chain;
    }
    *link = p->at[i].chain;
    p->at[i].name = 0;
}

gw_page_name gw_pages_publish(gw_pages *p, int32_t i, gw_page_name before, const int32_t *tokens) {
    int32_t same = look_up(p, before, tokens);
    if (same != NONE) {
        return p->at[same].name;
    }
    if (p->at[i].name != 0) {
        unname(p, i);
    }
    memcpy(tokens_of(p, i), tokens, GW_PAGE * sizeof *tokens);
    int32_t *bucket = bucket_of(p, before, tokens);
    p->at[i].parent = before;
    p->at[i].name = p->next_name++;
    p->at[i].chain = *bucket;
    *bucket = i;
    return p->at[i].name;
}

gw_page_name gw_pages_name(const gw_pages *p, int32_t i) { return p->at[i].name; }
gw_page_name gw_pages_new_root(gw_pages *p) { return p->next_name++; }

/* ---- lists ----------------------------------------------------------------------------------- */

static void unlink_kept(gw_pages *p, int32_t i) {
    page *x = &p->at[i];
    *(x->before != NONE ? &p->at[x->before].next : &p->oldest) = x->next;
    *(x->next != NONE ? &p->at[x->next].before : &p->newest) = x->before;
    p->n_kept--;
}

static void to_free(gw_pages *p, int32_t i) {
    p->at[i].next = p->free;
    p->free = i;
    p->n_free++;
}

int gw_pages_evict(gw_pages *p) {
    int32_t i = p->oldest;
    if (i == NONE) {
        return 0;
    }
    unlink_kept(p, i);
    unname(p, i);
    to_free(p, i);
    p->evictions++;
    return 1;
}

int32_t gw_pages_take(gw_pages *p) {
    if (p->n_free == 0 && !gw_pages_evict(p)) {
        return NONE;
    }
    int32_t i = p->free;
    p->free = p->at[i].next;
    p->n_free--;
    p->at[i].refs = 1;
    return i;
}

void gw_pages_share(gw_pages *p, int32_t i) {
    if (p->at[i].refs++ == 0) {
        unlink_kept(p, i);
    }
}

void gw_pages_drop(gw_pages *p, int32_t i) {
    page *x = &p->at[i];
    if (--x->refs > 0) {
        return;
    }
    if (x->name == 0) {
        to_free(p, i);
        return;
    }
    x->before = p->newest;
    x->next = NONE;
    *(p->newest != NONE ? &p->at[p->newest].next : &p->oldest) = i;
    p->newest = i;
    p->n_kept++;
}

int32_t gw_pages_find(gw_pages *p, gw_page_name before, const int32_t *tokens) {
    int32_t i = look_up(p, before, tokens);
    if (i != NONE) {
        gw_pages_share(p, i);
    }
    return i;
}

int32_t gw_pages_available(const gw_pages *p) { return p->n_free + p->n_kept; }

gw_pages_count gw_pages_counts(const gw_pages *p) {
    return (gw_pages_count){p->n, p->n - p->n_free - p->n_kept, p->n_kept, p->evictions};
}

void gw_pages_forget(gw_pages *p) {
    while (gw_pages_evict(p)) {
    }
}

int gw_pages_check(const gw_pages *p) {
    int32_t kept = 0, idle = 0, used = 0, named = 0, found = 0;
    for (int32_t i = p->oldest; i != NONE && kept <= p->n; i = p->at[i].next) {
        kept += p->at[i].refs == 0 && p->at[i].name != 0 ? 1 : p->n + 1;
    }
    for (int32_t i = p->free; i != NONE && idle <= p->n; i = p->at[i].next) {
        idle += p->at[i].refs == 0 && p->at[i].name == 0 ? 1 : p->n + 1;
        if (idle == p->n_free) {
            break;
        }
    }
    for (int32_t i = 0; i < p->n; i++) {
        used += p->at[i].refs > 0;
        named += p->at[i].name != 0;
        found += p->at[i].name != 0 && look_up(p, p->at[i].parent, tokens_of(p, i)) == i;
    }
    return kept == p->n_kept && idle == p->n_free && used + kept + idle == p->n && found == named;
}
