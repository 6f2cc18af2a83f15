/* core/engine/batch/pages.h - which page of the cache holds what: counted, shared, found again.
 *
 * A page holds GW_PAGE positions of all layers. It is in use by some sequences (refs), or kept
 * because it may serve again, or free. A page that is full of prompt tokens, computed on nothing
 * but such pages, may be shared: it is known by the page before it and its tokens. Both are
 * compared, so nothing rests on a hash. Of those that are kept the one that was used longest ago
 * goes first; a page is let go before the one in front of it, so what is kept can always be
 * reached.
 *
 * What is let go may stay in main memory, in one of so many places, under the name that it had: so
 * what stands behind it is found as before. A place keeps its page when that is fetched, and the
 * one that was used longest ago gives way.
 *
 * Host memory only, all taken at once; not thread-safe. This file counts; contents of pages and
 * places are the caller's matter (gw_pages_host_fn, host.h).
 */
#ifndef GW_ENGINE_BATCH_PAGES_H
#define GW_ENGINE_BATCH_PAGES_H

#include "core/tensor/tensor.h"
#include "include/godwit.h"

typedef struct gw_pages gw_pages;

/* The name of a shared page, never given twice. In front of the first page of a text stands a root:
 * GW_PAGES_ROOT with a salt in its other bits, or a name that was made for it. */
typedef uint64_t gw_page_name;
#define GW_PAGES_ROOT 0x8000000000000000u

/* n pages, and so many places in main memory. */
gw_status gw_pages_new(int32_t n, int32_t places, gw_pages **out);
void gw_pages_free(gw_pages *pages);

/* A page is let go, and a place is free for it: copies the page there; 0: it is not kept. */
typedef int (*gw_pages_host_fn)(void *user, int32_t page, int32_t place);
void gw_pages_set_host(gw_pages *p, gw_pages_host_fn keep, void *user);

/* A page for one sequence, contents unknown; -1: none is free. Lets go of one that is kept. */
int32_t gw_pages_take(gw_pages *p);
/* One more sequence uses it. */
void gw_pages_share(gw_pages *p, int32_t page);
/* One less. Pages of a sequence are dropped from the last to the first. */
void gw_pages_drop(gw_pages *p, int32_t page);

/* The page with these tokens [GW_PAGE] behind `before`, for one more sequence; -1: none. */
int32_t gw_pages_find(gw_pages *p, gw_page_name before, const int32_t *tokens);
/* The same page where only a place has it: a page for one sequence, into which the caller copies
 * what *place holds, before anything else is done here; -1: no place has it, or no page is free. */
int32_t gw_pages_fetch(gw_pages *p, gw_page_name before, const int32_t *tokens, int32_t *place);
/* Its name, wherever it is; 0: nowhere. */
gw_page_name gw_pages_known(const gw_pages *p, gw_page_name before, const int32_t *tokens);
/* A page in use holds these tokens behind `before`: others may find it. Its name; that of another
 * page where one with this content is known already. */
gw_page_name gw_pages_publish(gw_pages *p, int32_t page, gw_page_name before,
                              const int32_t *tokens);
gw_page_name gw_pages_name(const gw_pages *p, int32_t page);
gw_page_name gw_pages_new_root(gw_pages *p);

/* Could be taken: free, or only kept. */
int32_t gw_pages_available(const gw_pages *p);
typedef struct gw_pages_count {
    int32_t all, used, kept;
    int32_t places, placed; /* in main memory, and those of them that have a page */
    uint64_t evictions;
} gw_pages_count;
gw_pages_count gw_pages_counts(const gw_pages *p);
/* Forget all that is kept, in main memory too. */
void gw_pages_forget(gw_pages *p);
/* Let go of the page that was kept longest, perhaps for a place; 0: none is. */
int gw_pages_evict(gw_pages *p);
/* 1 when counts and lists agree with one another: for tests. */
int gw_pages_check(const gw_pages *p);

#endif
