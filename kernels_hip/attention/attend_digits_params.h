/* kernels_hip/attention/attend_digits_params.h - parameters of attention of prompts in integers
 * (docs/arithmetic.md, section 5, "Attention in digits").
 *
 * Four kinds of launches: digits of k and v of all pages that rows see below their own; the rows'
 * own pages in float (attend_more.hip); groups of pages; their join. Digits lie in scratch memory,
 * for each page of the caches and KV head, as blocks want them in shared memory:
 *   keys    [64] rows of 2 E + 16 bytes: the high digits of a position, E wide, the low ones, 16
 *           that keep rows in different banks; then the 64 scales
 *   values  of each slice of EV channels: [EV] rows of 144 bytes: the high digits of a channel's 64
 *           positions, the low ones, 16; then c of each channel; then the 64 scales
 * E: the width of a head, rounded up to one that there is a kernel for, the rest zeros.
 */
#ifndef GW_KERNELS_HIP_ATTEND_DIGITS_PARAMS_H
#define GW_KERNELS_HIP_ATTEND_DIGITS_PARAMS_H

#include "core/tensor/arith.h"
#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"

enum {
    GW_DIGITS_WAVES = 4,
    GW_DIGITS_QUERIES = 64, /* of a tile: pairs of a row and a head of one KV head, 16 a wave */
    GW_DIGITS_MAKE_THREADS = 256,
    GW_DIGITS_JOIN_THREADS = 256
};
/* Places for keys or values of a page, where copies need no registers. */
#define GW_DIGITS_STAGES(e) ((e) <= 128 ? 3 : 2)
#define GW_DIGITS_EV(e) ((e) <= 128 ? (e) : 128)
#define GW_DIGITS_KEY_ROW(e) (2 * (e) + 16)
#define GW_DIGITS_VALUE_ROW (2 * GW_PAGE + 16)
#define GW_DIGITS_KEYS(e) (GW_PAGE * GW_DIGITS_KEY_ROW(e) + 4 * GW_PAGE)
#define GW_DIGITS_VALUES(ev) ((ev) * (GW_DIGITS_VALUE_ROW + 4) + 4 * GW_PAGE)
#define GW_DIGITS_PLACE(e)                                                                         \
    (GW_DIGITS_KEYS(e) > GW_DIGITS_VALUES(GW_DIGITS_EV(e)) ? GW_DIGITS_KEYS(e)                     \
                                                           : GW_DIGITS_VALUES(GW_DIGITS_EV(e)))
/* The same for matrix instructions of four waves: rows of 128 bytes, those of a position its high
 * and low digits after one another, the next 128 bytes behind all 64 positions; in each row piece c
 * of 16 bytes at c ^ row % 8. */
#define GW_DIGITS_GROUP_KEYS(e) (GW_PAGE * (2 * (e) + 4))
#define GW_DIGITS_GROUP_VALUES(ev) ((ev) * (2 * GW_PAGE + 4) + 4 * GW_PAGE)
#define GW_DIGITS_GROUP_PLACE(e)                                                                   \
    (((GW_DIGITS_GROUP_KEYS(e) > GW_DIGITS_GROUP_VALUES(GW_DIGITS_EV(e))                           \
           ? GW_DIGITS_GROUP_KEYS(e)                                                               \
           : GW_DIGITS_GROUP_VALUES(GW_DIGITS_EV(e))) +                                            \
      1023) /                                                                                      \
     1024 * 1024)
/* Shared memory of gw_attend_digits_E, _group_E: places, what queries see, and what waves of 64
 * exchange. */
#define GW_DIGITS_SHARED(place, stages)                                                            \
    ((stages) * (place) + 8 * GW_DIGITS_QUERIES + 128 * GW_DIGITS_WAVES)
/* Of gw_attend_digits_make_CACHE_E: digits, what threads exchange, and a page of the caches, where
 * that has room. */
#define GW_DIGITS_FETCHES(e, copies) ((e) <= 128 || (copies))
#define GW_DIGITS_MAKE_SHARED(e, copies)                                                           \
    (GW_DIGITS_PLACE(e) + 4 * ((e) + GW_DIGITS_MAKE_THREADS) +                                     \
     (GW_DIGITS_FETCHES(e, copies) ? 2 * GW_PAGE * (e) : 0))

/* Grid of gw_attend_digits_make_CACHE_E, gw_attend_digits_E and gw_attend_digits_group_E: anything,
 * blocks share the work. gw_attend_digits_join: a team for each query of the tiles. */
struct gw_digits_params {
    struct gw_step_params step;
    GW_DEV(const float) q; /* [rows, heads e]          */
    GW_DEV(const void) k;  /* caches, core/plan/op.h   */
    GW_DEV(const void) v;
    GW_DEV(const int32_t) pages;  /* [slots, table_stride]    */
    GW_DEV(const float) sinks;    /* [heads] or 0             */
    GW_DEV(void) out;             /* [rows, heads e], of form */
    GW_DEV(unsigned char) keys;   /* [pages, kv_heads] of GW_DIGITS_KEYS              */
    GW_DEV(unsigned char) values; /* [pages, kv_heads, slices] of GW_DIGITS_VALUES    */
    GW_DEV(const float) own_top;  /* [rows, heads] of each row's own page             */
    GW_DEV(const float) own_sum;
    GW_DEV(const float) own_values; /* [rows, heads e] */
    /* Of groups: [tiles, kv_heads, groups, 64], of as many tiles as there is room for at once. */
    GW_DEV(float) top;
    GW_DEV(float) sum;
    GW_DEV(float) sums;               /* .., e */
    int32_t room;                     /* tiles times KV heads times groups that have room */
    int32_t turn;                     /* which of the turns that so many take             */
    int32_t heads, kv_heads, e, wide; /* wide: E */
    int32_t table_stride, form;
    int32_t k_bytes, v_bytes; /* of a page of a KV head in the caches */
    int32_t only;             /* of gw_attend_digits_make: 1 keys, 2 values; 0: both */
    int32_t group;            /* 1: for matrix instructions of four waves */
    float scale;
};

#endif
