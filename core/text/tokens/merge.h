/* core/text/tokens/merge.h - byte pair encoding of one word: join the best pair until none is left.
 *
 * A word is a list of symbols; a finder tells which neighbours may join, how good that is (lower is
 * better) and what comes out. The leftmost of equally good pairs goes first. A heap makes it
 * n log n in the number of symbols (Sennrich, Haddow, Birch 2016, arXiv:1508.07909, is the idea).
 */
#ifndef GW_TEXT_MERGE_H
#define GW_TEXT_MERGE_H

#include "core/base/status.h"

#define GW_NO_SYMBOL UINT32_MAX

typedef struct gw_symbol {
    uint32_t start, bytes; /* in the word's text; bytes 0: joined into another symbol */
    int32_t id;            /* -1: no token                                            */
    uint32_t prev, next;   /* GW_NO_SYMBOL at the ends                                */
    int frozen;            /* never joins                                             */
} gw_symbol;

typedef struct gw_pair { /* one entry of the heap */
    uint64_t key;        /* rank << 32 | left symbol */
    uint32_t bytes;      /* of both: tells a pair that has changed since */
    int32_t id;
} gw_pair;

/* Scratch memory of one thread, reused from word to word. Starts zeroed. */
typedef struct gw_merger {
    gw_symbol *symbols;
    size_t n, symbol_capacity;
    gw_pair *heap;
    size_t n_heap, heap_capacity;
    int32_t *path; /* scratch of the SentencePiece encoder */
    size_t path_capacity;
} gw_merger;

void gw_merger_clear(gw_merger *m); /* frees the scratch */

/* Append a symbol behind the others. */
gw_status gw_merger_add(gw_merger *m, uint32_t start, uint32_t bytes, int32_t id, int frozen);

/* 1 when the neighbours join; then *rank and *id of what comes out. */
typedef int (*gw_pair_fn)(void *context, const gw_symbol *left, const gw_symbol *right,
                          uint32_t *rank, int32_t *id);

/* Join until nothing joins. The result is the chain from symbol 0 along next. */
gw_status gw_merger_run(gw_merger *m, gw_pair_fn find, void *context);

#endif
