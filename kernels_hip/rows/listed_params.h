/* kernels_hip/rows/listed_params.h - parameters of the kernels in listed.hip. Widths in elements;
 * buffers are dense rows of that width. */
#ifndef GW_KERNELS_HIP_LISTED_PARAMS_H
#define GW_KERNELS_HIP_LISTED_PARAMS_H

#include "kernels_hip/params.h"

enum {
    GW_LISTED_THREADS = 128,
    GW_LISTED_TEAMS = GW_LISTED_THREADS / 32,
    GW_LISTED_WIDEST = 512 /* of a value */
};

/* gw_area of core/tensor/area.h in pages of page_floats; table_stride: pages of a slot. */
struct gw_area_params {
    GW_DEV(float) pages;
    GW_DEV(const int32_t) mapped;
    int32_t at, width, ratio, entry, page_floats, table_stride;
};

/* gw_listed_hyper: a thread per row. */
struct gw_listed_hyper_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) scale;
    GW_DEV(const float) base;
    GW_DEV(float) out;
    int32_t width, streams, rounds;
    float eps;
};

/* gw_listed_rotate: a thread per column, grid (columns, rows). */
struct gw_listed_rotate_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) table; /* 0 where rope_dim is */
    GW_DEV(float) out;
    int32_t width, heads, first, rope_dim, interleaved, back;
};

/* gw_listed_dot: a team per group, grid (groups over teams, rows). */
struct gw_listed_dot_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) other;
    GW_DEV(float) out;
    int32_t width, groups, root;
    float scale;
};

/* gw_listed_keep: a thread per column, grid (columns, rows); where an area has rows
 * gw_listed_compress behind it: a team per row, grid (rows over teams). */
struct gw_listed_compress_params {
    struct gw_step_params step;
    struct gw_area_params area;
    GW_DEV(const float) in;
    GW_DEV(const float) bias;   /* may be 0 */
    GW_DEV(const float) weight; /* may be 0 */
    GW_DEV(const float) table;  /* 0 where rope_dim is */
    int32_t series, first, rope_dim, interleaved;
    float eps;
};

/* gw_listed_score: a thread per entry, grid (entries, rows); gw_listed_choose, the next launch: a
 * team per row. Rows from row0 on; of each `room` keys, then as many numbers. block > 0: `lists`
 * heads of a row are rows of their own there, and blocks of so many positions are entries
 * (gw_listed_score_blocks); else block is the entries' ratio and `lists` 1. */
struct gw_listed_choose_params {
    struct gw_step_params step;
    struct gw_area_params area;
    GW_DEV(const float) in;
    GW_DEV(const float) by; /* may be 0 */
    GW_DEV(uint32_t) keys;
    GW_DEV(float) out;
    int32_t heads, most, ties, room, row0, rows, block, local, lists;
};

/* gw_listed_attend: a team per head, grid (heads over teams, rows from row0 on). Of each row and
 * head `room` scores, then a maximum for each page of them. */
struct gw_listed_attend_params {
    struct gw_step_params step;
    struct gw_area_params area; /* pages 0: none */
    GW_DEV(const float) q;
    GW_DEV(const void) k;
    GW_DEV(const void) v;      /* 0: columns of k from v_first on */
    GW_DEV(const float) list;  /* rows of lists x `most`; may be 0 */
    GW_DEV(const float) sinks; /* may be 0 */
    GW_DEV(float) scores;
    GW_DEV(float) out;
    int32_t heads, kv_heads, e, ev, v_first; /* ev: width of a value */
    int32_t most, window, room, kind, row0;  /* kind: 0 f32, 1 f16, 2 q8_0 */
    int32_t local, lists;
    float scale;
};

#endif
