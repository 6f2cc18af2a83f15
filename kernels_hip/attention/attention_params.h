/* kernels_hip/attention/attention_params.h - parameters of the kernels of attention. */
#ifndef GW_KERNELS_HIP_ATTENTION_PARAMS_H
#define GW_KERNELS_HIP_ATTENTION_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"
#include "kernels_hip/rows/rope_params.h"
#include "kernels_hip/sends_params.h"

enum {
    GW_ATTEND_THREADS = 64,      /* two teams, each with work of its own                */
    GW_ATTEND_CHUNK = 2048,      /* bytes of K or V that come together, or less         */
    GW_ATTEND_CHUNK_WIDE = 1024, /* on waves of 64, whose units have less shared memory */
    GW_ATTEND_LEAST = 4,         /* fewest chunks of a page's K or V                    */
    GW_ATTEND_MOST_ROWS = 32,    /* of K in a chunk: one block of q8_0, one scale       */
    GW_ATTEND_STAGES = 4,        /* chunks of a team's ring; not more than the fewest   */
    GW_ATTEND_DEEP = 8,          /* the same where K and V are as many                  */
    GW_ATTEND_HEADS = 8,         /* most heads at once                                  */
    GW_GROUP_THREADS = 256,      /* of a block that has groups of pages                 */
    GW_GROUP_HEADS = 4,          /* most heads at once there                            */
    GW_JOIN_THREADS = 256,
    GW_JOIN_WIDTH = 32           /* values of a head that a block joins                 */
};

/* What pages leave behind, or groups of pages, of `rows` rows from row0 on: for every row, head and
 * page, counted from the first that the row sees, its maximum, its sum, and e_padded values (e
 * rounded up to 4). */
struct gw_attend_parts {
    GW_DEV(float) top;    /* [rows, heads, page_stride]           */
    GW_DEV(float) sum;    /* [rows, heads, page_stride]           */
    GW_DEV(float) values; /* [rows, heads, page_stride, e_padded] */
    int32_t row0, rows;
    int32_t page_stride; /* a multiple of 4 */
    int32_t e_padded;
};

/* Bytes of shared memory that a team has for queries. */
#define GW_ATTEND_QUERIES(heads, e) (((heads) * (e)*4 + 15) / 16 * 16)

/* gw_attend_CACHE_hH_vV: H heads at once, V values of a head per lane; gw_attend_CACHE_hH_eE: of
 * heads of E values, whose pages come in the pieces that gw_cut of attend_pages.h names;
 * gw_attend_CACHE_hH_deepE, wholeE: with more of those pieces on their way, or all. Grid: any
 * number of blocks; they share the pages. Dynamic shared memory: two times team_bytes. A page of
 * one KV head comes in k_chunks pieces of k_rows of e and v_chunks pieces of v_rows of 64; each of
 * them at least GW_ATTEND_LEAST, and all of k_bytes or v_bytes but the last of K. */
struct gw_attend_params { /* what comes first, and why: linear_params.h */
    struct gw_step_params step;
    GW_DEV(const void) k; /* caches, core/plan/op.h */
    GW_DEV(const void) v;
    GW_DEV(const int32_t) pages; /* [slots, table_stride]  */
    GW_DEV(const float) q;       /* [rows, heads, e]       */
    GW_DEV(const float) sinks;   /* [heads] or 0; read where a launch joins its pages itself */

    int32_t table_stride, heads, kv_heads, e, window;
    int32_t scale_bytes; /* of a page of q8_0; else 0               */
    int32_t slots;       /* of gw_attend_block, _rows, _split: tiles of a page in shared memory */
    float scale;
    /* in not 0: ROPE_KV comes with it, for a step of one row, with gw_attend_rows of several; then
     * q is not read, and k and v get the rows' cells. */
    struct gw_rope_params turn;

    /* Where a launch joins its pages itself (block, rows, split): `out` [rows, heads, e] has
     * that form (act8_params.h). arrived: [rows of parts, heads] blocks of gw_attend_split that are
     * done, 0 between launches. block_has: what one of its blocks has, heads of a KV head, or rows
     * of gw_attend_rows. */
    int32_t block_has, form;
    GW_DEV(void) out;
    GW_DEV(unsigned) arrived;
    struct gw_attend_parts parts;
    int32_t k_rows, k_bytes, k_chunks, v_rows, v_bytes, v_chunks;
    int32_t chunk;       /* bytes of a place of the ring            */
    int32_t fresh_bytes; /* of a new position's values and scales, of K or V; 0 without turn.in */
    int32_t team_bytes;  /* of shared memory: weights of positions, queries, scales, new cells of
                          * K and V, ring */
    int32_t unused;
    struct gw_sends sends; /* out goes to all cards as well, when sends.cards is not 0 */
};

/* gw_attend_block_CACHE: with the same parameters, of which parts, arrived and what cuts pages are
 * not read; out is set, e is a multiple of 4 and at most the threads of a block, and a row sees
 * at most as many pages as there is room for, and GW_LANES. Grid: (heads of a KV head, rows, KV
 * heads). Dynamic shared memory: GW_BLOCK_DESK bytes for those pages and `slots` tiles of the
 * cache, an even number of them. */
enum {
    GW_BLOCK_THREADS = 512,
    GW_BLOCK_FEWER = 256,       /* where blocks of products are to have registers beside */
    GW_BLOCK_PAGES = 2,         /* most of a row                                     */
    GW_BLOCK_PAGES_NARROW = 10, /* the same of one row whose heads have at most 64 values */
    GW_BLOCK_MOST = 3,          /* blocks of a multiprocessor; more take turns       */
    GW_BLOCK_ROWS = 16,
    GW_SPLIT_THREADS = 256,
    GW_SPLIT_HEADS = 8,
    GW_SPLIT_BESIDE = 4, /* blocks of a multiprocessor, of more than GW_BLOCK_ROWS rows */
    GW_SPLIT_UNITS = 16, /* most pages of a block times heads, about          */
    GW_SPLIT_JOIN = 256, /* most pages of a row times heads that a block joins */
    GW_SPLIT_PAGES = 64, /* more of them are joined by a launch of their own  */
    GW_SPLIT_ALONE = 48, /* the same where a query head has a KV head of its own */
    /* and where more pages have a team each, with a longer ring: */
    GW_SPLIT_FEW = 32,
    GW_SPLIT_FEW_NARROW = 16, /* heads of 64 values                  */
    GW_SPLIT_FEW_HEADS = 12   /* more than four heads to a KV head   */
};
#define GW_BLOCK_CELLS(e) (((e) + (e) / 64 + 4) / 4 * 4) /* floats */
#define GW_BLOCK_DESK(e, pages)                                                                    \
    ((4 * ((e) + 2 * GW_BLOCK_CELLS(e) + (pages) * (GW_PAGE + (e) + 2) + 2 * GW_BLOCK_THREADS) +   \
      15) /                                                                                        \
     16 * 16)

/* gw_attend_rows_CACHE: as gw_attend_block_CACHE, for steps of several rows, at most GW_BLOCK_ROWS.
 * Grid: (heads of a KV head, ceil(rows / block_has), KV heads). Dynamic shared memory: GW_ROWS_DESK
 * bytes for the pages that block_has rows see together and, with ROPE_KV, GW_ROWS_CELLS of a tile's
 * bytes for each row of a step; and `slots` tiles. */
enum {
    GW_ROWS_MOST = 8,   /* rows of a block                                       */
    GW_ROWS_PAGES = 16, /* most pages of a row                                   */
    GW_ROWS_ALONE = 8,  /* the same where gw_attend_split could share them       */
    GW_ROWS_NEW = 2     /* rows of k and v that a thread has on their way at once */
};
/* Bytes of a row's new cells, with which rows begin in different banks. */
#define GW_ROWS_CELLS(tile) (((tile) / GW_PAGE + 31) / 16 * 16)
#define GW_ROWS_DESK(e, rows, pages, fresh_bytes)                                                  \
    ((4 * ((rows) * ((e) + (pages) * (GW_PAGE + (e) + 2)) + 4 * GW_BLOCK_THREADS) +                \
      2 * (fresh_bytes) + 15) /                                                                    \
     16 * 16)

/* gw_attend_split_CACHE: with the same parameters, of which what cuts pages is not read; out is
 * set, e is a multiple of 4 and at most the threads of a block. Grid: (blocks that share the pages
 * of a row and KV head, rows, KV heads * ceil(heads of one / block_has)). Dynamic shared memory:
 * GW_SPLIT_DESK bytes for as many pages as half of `slots`, and `slots` tiles of the cache. All of
 * it holds at least GW_SPLIT_FLOATS floats for the pages of a row when the last block joins them.
 */
#define GW_SPLIT_DESK(e, heads, pages)                                                             \
    ((4 * ((heads) * (e) + 2 * GW_BLOCK_CELLS(e) + (pages) * (heads)*GW_PAGE +                     \
           2 * GW_SPLIT_THREADS) +                                                                 \
      15) /                                                                                        \
     16 * 16)
#define GW_SPLIT_FLOATS(e, pages) ((pages) * (e))

/* Most pages that a row sees in a window of so many positions. */
#define GW_WINDOW_PAGES(window) ((window) / GW_PAGE + 2)

/* gw_attend_group_CACHE_hH_eE: as gw_attend_CACHE_hH_eE, but it leaves groups of GW_PAGE_GROUP
 * pages behind. Dynamic shared memory: GW_GROUP_DESK, two times fresh_bytes, and team_bytes, of
 * weights of positions, scales and ring, for each team. */
#define GW_GROUP_DESK(e, heads) (4 * (heads) * ((1 + GW_PAGE_GROUP) * (e) + 2 * GW_PAGE_GROUP))

/* gw_attend_join_pages_FORM, gw_attend_join_groups_FORM (f32, act8), by what parts has: grid (heads
 * * ceil(e / GW_JOIN_WIDTH), rows). */
struct gw_join_params {
    struct gw_step_params step;
    struct gw_attend_parts parts;
    GW_DEV(void) out;          /* [rows, heads, e] */
    GW_DEV(const float) sinks; /* [heads] or 0     */
    int32_t heads, e, window, form;
    struct gw_sends sends; /* as in gw_attend_params */
};

#endif
