/* kernels_hip/rows/rows_params.h - parameters of the kernels in rows.hip. Widths in elements;
 * buffers are dense rows of that width. */
#ifndef GW_KERNELS_HIP_ROWS_PARAMS_H
#define GW_KERNELS_HIP_ROWS_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"
#include "kernels_hip/rows/rope_params.h"

enum {
    GW_ROWS_THREADS = 128, /* of every kernel but norm: four teams       */
    GW_NORM_THREADS = 512,
    GW_NORM_PIECE = 8192, /* values of a row that norm has at a time */
};

/* gw_take_step: the step block from pinned host memory, up to its last live row; n: words of the
 * whole. One block, of GW_TAKE_THREADS at most. */
enum { GW_TAKE_THREADS = 512 };
struct gw_take_step_params {
    GW_DEV(const int32_t) from;
    GW_DEV(int32_t) to;
    int32_t n;
};

/* gw_embed_FORMAT: rows of the table as stored. Grid (width over 4 GW_ROWS_THREADS, rows). */
struct gw_embed_params {
    struct gw_step_params step;
    GW_DEV(const uint8_t) table;
    GW_DEV(const int32_t) ids; /* for rows whose token is -1 */
    GW_DEV(float) out;
    int64_t row_bytes;
    int32_t width;
    /* Weights of a norm behind it, or 0, and what it leaves for the product that reads that, as in
     * gw_linear_params. */
    int32_t left_form, left_blocks;
    GW_DEV(const float) behind;
    GW_DEV(void) left;
    GW_DEV(float) left_squares;
};

/* gw_pick: grid (anything, rows). */
struct gw_pick_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(float) out;
    int32_t width;
};

/* gw_norm_f32, gw_norm_act8: a block per row; grid (rows). */
struct gw_norm_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) weight;
    GW_DEV(void) out;
    int32_t width, form; /* of out */
    float eps;
};

/* gw_quantize: f32 to act8, value i that of number columns[i] (0: i); grid (anything, rows). */
struct gw_quantize_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) columns;
    GW_DEV(void) out;
    int32_t width, form; /* of out */
};

/* gw_act8_group: rows of act8, plain or in groups with sums, to another form; grid (anything,
 * rows).
 */
struct gw_act8_group_params {
    struct gw_step_params step;
    GW_DEV(const void) from;
    GW_DEV(void) to;
    int32_t blocks, plain, form; /* of from, of from, of to */
};

/* gw_pad: rows of floats to longer ones, with zeros behind; grid (anything, rows). */
struct gw_pad_params {
    struct gw_step_params step;
    GW_DEV(const float) from;
    GW_DEV(float) to;
    int32_t width, padded;
};

/* gw_rope_kv_f16, _f32, _q8_0 (the cache): a team per head; grid (heads + 2 kv_heads over 4, rows).
 * gw_rope_k_f16, ..: K alone, of many rows; grid (kv_heads, rows over GW_ROPE_ROWS), dynamic shared
 * memory GW_ROPE_SHARED. */
enum { GW_ROPE_ROWS = 32, GW_ROPE_STEP = 34 /* cells of a value, from one to the next */ };
#define GW_ROPE_SHARED(e, cell) ((e)*GW_ROPE_STEP * (cell))
struct gw_rope_kv_params {
    struct gw_step_params step;
    struct gw_rope_params turn;
    GW_DEV(void) k; /* caches, core/plan/op.h */
    GW_DEV(void) v;
    GW_DEV(const int32_t) pages; /* [slots, page_stride]   */
    int32_t page_stride;
    int32_t tile_bytes; /* of a page of a KV head              */
    int32_t without_k;  /* gw_rope_kv: gw_rope_k has those rows' K */
};

#endif
