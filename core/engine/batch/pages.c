/* core/engine/batch/pages.c - see pages.h. */
#include "core/engine/batch/pages.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/os.h"
#include "core/base/status.h"

enum { NONE = -1 };

typedef struct page {
    int32_t refs;         /* of a place always 0 */
    int32_t next, before; /* in the list of kept ones, oldest first; next also in the free list */
    int32_t chain;        /* in its bucket */
    gw_page_name name;    /* 0: nobody can find it */
    gw_page_name parent;
} page;

/* Numbers [first, first + n) of the list: pages of the cache, or places in main memory. */
typedef struct tier {
    int32_t first, n, n_free, n_kept, free, oldest, newest;
} tier;

struct gw_pages {
    page *at;        /* [pool.n + host.n] */
    int32_t *tokens; /* [pool.n + host.n, GW_PAGE] of those with a name */
    int32_t *bucket; /* [n_buckets], a power of two */
    int32_t n_buckets;
    tier pool, host;
    gw_pages_host_fn keep;
    void *keep_user;
    gw_page_name next_name;
    uint64_t key[2]; /* of the hash: clients must not choose collisions */
    uint64_t evictions;
};

static tier make_tier(gw_pages *p, int32_t first, int32_t n) {
    tier t = {.first = first, .n = n, .n_free = n, .free = n > 0 ? first : NONE};
    t.oldest = t.newest = NONE;
    for (int32_t i = 0; i < n; i++) {
        p->at[first + i].next = i + 1 < n ? first + i + 1 : NONE;
    }
    return t;
}

gw_status gw_pages_new(int32_t n, int32_t places, gw_pages **out) {
    gw_pages *p = calloc(1, sizeof *p);
    size_t all = (size_t)n + (size_t)places;
    int32_t buckets = 16;
    while ((size_t)buckets < all && buckets < (1 << 29)) {
        buckets *= 2;
    }
    if (p != NULL) {
        p->at = calloc(all, sizeof *p->at);
        p->tokens = calloc(all * GW_PAGE, sizeof *p->tokens);
        p->bucket = calloc((size_t)buckets, sizeof *p->bucket);
    }
    if (p == NULL || p->at == NULL || p->tokens == NULL || p->bucket == NULL) {
        gw_pages_free(p);
        return gw_fail(GW_E_NOMEM, "cache", "no memory for a list of %zu pages", all);
    }
    p->n_buckets = buckets;
    p->pool = make_tier(p, 0, n);
    p->host = make_tier(p, n, places);
    p->next_name = 1;
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

void gw_pages_set_host(gw_pages *p, gw_pages_host_fn keep, void *user) {
    p->keep = keep;
    p->keep_user = user;
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

static int32_t look_up(const gw_pages *p, const tier *t, gw_page_name before,
                       const int32_t *tokens) {
    int32_t i = *bucket_of(p, before, tokens);
    while (i != NONE && (i < t->first || i >= t->first + t->n || p->at[i].parent != before ||
                         memcmp(tokens_of(p, i), tokens, GW_PAGE * sizeof *tokens) != 0)) {
        i = p->at[i].chain;
    }
    return i;
}

static void give_name(gw_pages *p, int32_t i, gw_page_name name, gw_page_name before,
                      const int32_t *tokens) {
    memcpy(tokens_of(p, i), tokens, GW_PAGE * sizeof *tokens);
    int32_t *bucket = bucket_of(p, before, tokens);
    p->at[i].parent = before;
    p->at[i].name = name;
    p->at[i].chain = *bucket;
    *bucket = i;
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
    int32_t same = look_up(p, &p->pool, before, tokens);
    int32_t placed = look_up(p, &p->host, before, tokens);
    if (same != NONE) {
        return p->at[same].name;
    }
    if (p->at[i].name != 0) {
        unname(p, i);
    }
    /* That of the place: pages behind it that only places have are found behind this one. */
    give_name(p, i, placed != NONE ? p->at[placed].name : p->next_name++, before, tokens);
    return p->at[i].name;
}

gw_page_name gw_pages_known(const gw_pages *p, gw_page_name before, const int32_t *tokens) {
    int32_t i = look_up(p, &p->pool, before, tokens);
    i = i != NONE ? i : look_up(p, &p->host, before, tokens);
    return i != NONE ? p->at[i].name : 0;
}

gw_page_name gw_pages_name(const gw_pages *p, int32_t i) { return p->at[i].name; }
gw_page_name gw_pages_new_root(gw_pages *p) { return p->next_name++; }

/* ---- lists ----------------------------------------------------------------------------------- */

static void unlink_kept(gw_pages *p, tier *t, int32_t i) {
    page *x = &p->at[i];
    *(x->before != NONE ? &p->at[x->before].next : &t->oldest) = x->next;
    *(x->next != NONE ? &p->at[x->next].before : &t->newest) = x->before;
    t->n_kept--;
}

static void link_newest(gw_pages *p, tier *t, int32_t i) {
    p->at[i].before = t->newest;
    p->at[i].next = NONE;
    *(t->newest != NONE ? &p->at[t->newest].next : &t->oldest) = i;
    t->newest = i;
    t->n_kept++;
}

static void to_free(gw_pages *p, tier *t, int32_t i) {
    p->at[i].next = t->free;
    t->free = i;
    t->n_free++;
}

static int32_t from_free(gw_pages *p, tier *t) {
    int32_t i = t->free;
    t->free = p->at[i].next;
    t->n_free--;
    return i;
}

static int forget_oldest(gw_pages *p, tier *t) {
    int32_t i = t->oldest;
    if (i != NONE) {
        unlink_kept(p, t, i);
        unname(p, i);
        to_free(p, t, i);
    }
    return i != NONE;
}

static void renew(gw_pages *p, int32_t place) {
    unlink_kept(p, &p->host, place);
    link_newest(p, &p->host, place);
}

/* The page is about to be let go. Its place is counted before anything is copied there. */
static void keep_on_host(gw_pages *p, int32_t i) {
    const page *x = &p->at[i];
    int32_t place = look_up(p, &p->host, x->parent, tokens_of(p, i));
    if (place != NONE) {
        renew(p, place);
        return;
    }
    if (p->keep == NULL || (p->host.n_free == 0 && !forget_oldest(p, &p->host))) {
        return;
    }
    place = from_free(p, &p->host);
    if (!p->keep(p->keep_user, i, place - p->host.first)) {
        to_free(p, &p->host, place);
        return;
    }
    give_name(p, place, x->name, x->parent, tokens_of(p, i));
    link_newest(p, &p->host, place);
}

int gw_pages_evict(gw_pages *p) {
    if (p->pool.oldest == NONE) {
        return 0;
    }
    keep_on_host(p, p->pool.oldest);
    p->evictions++;
    return forget_oldest(p, &p->pool);
}

int32_t gw_pages_take(gw_pages *p) {
    if (p->pool.n_free == 0 && !gw_pages_evict(p)) {
        return NONE;
    }
    int32_t i = from_free(p, &p->pool);
    p->at[i].refs = 1;
    return i;
}

void gw_pages_share(gw_pages *p, int32_t i) {
    if (p->at[i].refs++ == 0) {
        unlink_kept(p, &p->pool, i);
    }
}

void gw_pages_drop(gw_pages *p, int32_t i) {
    if (--p->at[i].refs > 0) {
        return;
    }
    if (p->at[i].name == 0) {
        to_free(p, &p->pool, i);
        return;
    }
    link_newest(p, &p->pool, i);
}

int32_t gw_pages_find(gw_pages *p, gw_page_name before, const int32_t *tokens) {
    int32_t i = look_up(p, &p->pool, before, tokens);
    if (i != NONE) {
        gw_pages_share(p, i);
    }
    return i;
}

int32_t gw_pages_fetch(gw_pages *p, gw_page_name before, const int32_t *tokens, int32_t *place) {
    int32_t from = look_up(p, &p->host, before, tokens);
    if (from == NONE) {
        return NONE;
    }
    renew(p, from); /* what is let go for it takes another place, if there are two */
    int32_t i = gw_pages_take(p);
    from = look_up(p, &p->host, before, tokens);
    if (i == NONE || from == NONE) {
        if (i != NONE) {
            gw_pages_drop(p, i);
        }
        return NONE;
    }
    give_name(p, i, p->at[from].name, before, tokens);
    *place = from - p->host.first;
    return i;
}

int32_t gw_pages_available(const gw_pages *p) { return p->pool.n_free + p->pool.n_kept; }

gw_pages_count gw_pages_counts(const gw_pages *p) {
    const tier *t = &p->pool;
    return (gw_pages_count){.all = t->n,
                            .used = t->n - t->n_free - t->n_kept,
                            .kept = t->n_kept,
                            .places = p->host.n,
                            .placed = p->host.n_kept,
                            .evictions = p->evictions};
}

void gw_pages_forget(gw_pages *p) {
    while (forget_oldest(p, &p->pool)) {
        p->evictions++;
    }
    while (forget_oldest(p, &p->host)) {
    }
}

static int check_tier(const gw_pages *p, const tier *t) {
    int32_t kept = 0, idle = 0, used = 0, named = 0, found = 0, bad = t->n + 1;
    for (int32_t i = t->oldest; i != NONE && kept <= t->n; i = p->at[i].next) {
        kept += p->at[i].refs == 0 && p->at[i].name != 0 ? 1 : bad;
    }
    for (int32_t i = t->free; i != NONE && idle <= t->n; i = p->at[i].next) {
        idle += p->at[i].refs == 0 && p->at[i].name == 0 ? 1 : bad;
        if (idle == t->n_free) {
            break;
        }
    }
    for (int32_t i = t->first; i < t->first + t->n; i++) {
        used += p->at[i].refs > 0;
        named += p->at[i].name != 0;
        found += p->at[i].name != 0 && look_up(p, t, p->at[i].parent, tokens_of(p, i)) == i;
    }
    return kept == t->n_kept && idle == t->n_free && used + kept + idle == t->n && found == named &&
           (t == &p->pool || used == 0);
}

/* A page that is in the cache and in a place has one name. */
static int names_agree(const gw_pages *p) {
    int agree = 1;
    for (int32_t i = p->host.first; i < p->host.first + p->host.n; i++) {
        int32_t same =
            p->at[i].name != 0 ? look_up(p, &p->pool, p->at[i].parent, tokens_of(p, i)) : NONE;
        agree &= same == NONE || p->at[same].name == p->at[i].name;
    }
    return agree;
}

int gw_pages_check(const gw_pages *p) {
    return check_tier(p, &p->pool) && check_tier(p, &p->host) && names_agree(p);
}
