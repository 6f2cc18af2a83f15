/* kernels_hip/attention/cells_params.h - parameters of the kernels of caches in 4 and 5 bits. */
#ifndef GW_KERNELS_HIP_CELLS_PARAMS_H
#define GW_KERNELS_HIP_CELLS_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/attention/attention_params.h"
#include "kernels_hip/params.h"

enum { GW_CELLS_THREADS = 128 };

/* gw_cells_rotate_f32, _act8 (the output): rows of floats, each `span` of them by a Hadamard
 * matrix; span: 32, 64, 128, 256. A team per span, grid (spans over the teams, rows). */
struct gw_cells_rotate_params {
    struct gw_step_params step;
    GW_DEV(const float) in; /* [rows, width] */
    GW_DEV(void) out;       /* the same, of `form` */
    int32_t width, span, form;
};

/* gw_cells_unpack: the pages that rows of the pass see, as q8_0, or as they are, in the same places
 * of other caches; k or v 0: they stay. Any grid. */
struct gw_cells_unpack_params {
    struct gw_step_params step;
    GW_DEV(const void) k; /* caches, core/plan/op.h */
    GW_DEV(const void) v;
    GW_DEV(void) k_out;
    GW_DEV(void) v_out;
    GW_DEV(const int32_t) pages; /* [slots, table_stride] */
    int32_t table_stride, kv_heads, e, ev, k_bits, v_bits;
    int32_t window; /* 0: none */
    int32_t tile;   /* not 0: bytes of a page of a KV head, of K or V, which are copied instead */
};

/* gw_attend_codes_CACHE_hH_eE: "Attention in codes" of rows of decode, H heads of a KV head at
 * once, of E values (e0: as e says, up to GW_CODES_MOST). A block has GW_PAGE_GROUP pages of a row
 * and KV head, a team some of them, with `slots` tiles of shared memory: of K and of V, or one for
 * both. It stores the pages joined, or, grouped 0, each page in its own place of parts. Any grid.
 * Dynamic shared memory: GW_CODES_DESK and GW_CODES_TEAM for each team. */
enum { GW_CODES_THREADS = 256, GW_CODES_HEADS = 4 };
#define GW_CODES_TILE(e, bits) ((e) * (8 * (bits) + 4))
#define GW_CODES_QUERIES(heads, e) ((heads) * ((e) + (e) / 32 * 8))
#define GW_CODES_DESK(heads, e, grouped)                                                           \
    ((GW_CODES_QUERIES(heads, e) +                                                                 \
      ((grouped) ? 4 * GW_PAGE_GROUP * (heads) * ((e) + 2) : 0) + 15) /                            \
     16 * 16)
/* Weights of positions as floats, then as codes of each block, what those are multiplied by, their
 * sums. */
#define GW_CODES_WEIGHTS(heads, e) ((heads) * (4 * GW_PAGE + (e) / 32 * (GW_PAGE + 8)))
#define GW_CODES_TEAM(heads, e, bits, slots)                                                       \
    ((GW_CODES_WEIGHTS(heads, e) + (slots) * GW_CODES_TILE(e, bits) + 15) / 16 * 16)
struct gw_attend_codes_params {
    struct gw_step_params step;
    GW_DEV(const void) k; /* caches, core/plan/op.h */
    GW_DEV(const void) v;
    GW_DEV(const int32_t) pages; /* [slots, table_stride] */
    GW_DEV(const float) q;       /* [rows, heads, e], not yet rotated */
    int32_t table_stride, heads, kv_heads, e, window;
    float scale;
    int32_t slots, grouped;
    struct gw_attend_parts parts;
};

#endif
