/* core/tensor/ngram_row.h - the row that one hash of an n-gram names, in the words of dialect.h.
 * Integers of 64 bits, which wrap.
 */
#ifndef GW_TENSOR_NGRAM_ROW_H
#define GW_TENSOR_NGRAM_ROW_H

#include "core/tensor/dialect.h"

#if defined(__OPENCL_VERSION__)
typedef ulong gw_u64;
typedef long gw_i64;
#else
typedef uint64_t gw_u64;
typedef int64_t gw_i64;
#endif

enum { GW_NGRAM_SIZE = 8, GW_NGRAM_HASHES = 64 }; /* longest; hashes of a row at most */

typedef struct gw_ngram {
    gw_i32 size, heads;           /* lengths 2 .. size, heads hashes for each              */
    gw_i32 end, unused;           /* what counts where a text, or the one before, ends     */
    gw_u64 factor[GW_NGRAM_SIZE]; /* by distance */
    gw_i64 rows[GW_NGRAM_HASHES], first[GW_NGRAM_HASHES]; /* of each hash */
} gw_ngram;

/* What the nearest i tokens are mixed to (0: none yet), and the token i before. */
GW_FN gw_u64 gw_ngram_mixed(GW_GLOBAL const gw_ngram *g, gw_u64 mixed, int i, int token) {
    return mixed ^ (gw_u64)token * g->factor[i];
}
/* The row of hash n; mixed: of the tokens that it takes, n / heads + 2. */
GW_FN gw_i64 gw_ngram_row(GW_GLOBAL const gw_ngram *g, gw_u64 mixed, int n) {
    gw_i64 left = (gw_i64)mixed % g->rows[n];
    return g->first[n] + (left < 0 ? left + g->rows[n] : left);
}

#endif
