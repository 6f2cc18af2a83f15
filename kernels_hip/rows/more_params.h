/* kernels_hip/rows/more_params.h - parameters of the kernels in more.hip. Widths in elements;
 * buffers are dense rows of that width. */
#ifndef GW_KERNELS_HIP_MORE_PARAMS_H
#define GW_KERNELS_HIP_MORE_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/narrow_params.h"
#include "kernels_hip/params.h"
#include "kernels_hip/rows/route_params.h"

enum {
    GW_MORE_THREADS = 256,
    GW_MORE_TEAMS = GW_MORE_THREADS / 32,
    GW_MORE_TEAM_WIDTH = 1024, /* gw_more_norm_team: whole blocks of 32, at most */
    GW_MORE_LAY_ROWS = 64,
    GW_MORE_LAY_STEP = GW_MORE_LAY_ROWS + 2
};

/* gw_more_embed_FORMAT: rows of EMBED, in place: * scale (0: none), + the table's row of the step
 * position + offset, or of the step's type (table 0: none; f32, f16 or bf16). Grid (anything,
 * rows).
 */
struct gw_more_embed_params {
    struct gw_step_params step;
    GW_DEV(float) x;
    GW_DEV(const void) table;
    int32_t width, offset, by_type;
    float scale;
};

/* gw_more_pool: PICK's first, last or mean row of every slot; grid (anything, rows). */
struct gw_more_pool_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(float) out;
    int32_t width, last, mean;
};

/* gw_more_norm: any NORM; a block per row, grid (rows). weight, bias, addend and factor may be 0.
 * gw_more_norm_team: a team per row, of floats. narrow: the result once more for the product behind
 * it; then dynamic shared memory: its row or rows. */
struct gw_more_norm_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) weight;
    GW_DEV(const float) bias;
    GW_DEV(const float) addend;
    GW_DEV(const float) factor;
    GW_DEV(void) out;
    int32_t width, form; /* of out */
    int32_t layer;       /* LayerNorm, else RMS */
    float eps;
    struct gw_narrow_to narrow;
};

/* gw_more_rope_CACHE: any ROPE_KV; a team per head of q, k and v, grid (heads over GW_MORE_TEAMS,
 * rows), those of [first, end): where k and v have two formats, v has a launch of its own.
 * gw_more_lay_CACHE: of many rows whose K is neither rotated nor normed; grid (kv_heads, rows over
 * GW_MORE_LAY_ROWS), dynamic shared memory: e GW_MORE_LAY_STEP cells. */
struct gw_more_rope_params {
    struct gw_step_params step;
    GW_DEV(const float) in;     /* [rows, (heads + kv_heads) e + kv_heads ev]  */
    GW_DEV(const float) q_norm; /* may be 0, as the next three                 */
    GW_DEV(const float) k_norm;
    GW_DEV(const float) table;  /* [positions, 2, rope_dim / 2]                */
    GW_DEV(const float) factor; /* of q, [positions]                           */
    GW_DEV(float) out;          /* q [rows, heads e]                           */
    GW_DEV(void) k;             /* caches, core/plan/op.h; where kv_heads is 0 */
    GW_DEV(void) v;             /* they are 0, as the table of pages; v 0 and ev 0: part of k */
    GW_DEV(const int32_t) pages;
    int32_t page_stride, heads, kv_heads, e, ev, rope_dim, interleaved;
    int32_t layer;        /* LayerNorm, else RMS                                      */
    int32_t span;         /* gw_norm_span                                             */
    int32_t after, plain; /* norms come after the rotation; also where there is no weight */
    int32_t norm_v;
    int32_t first, end; /* heads of q, then of k, then of v                        */
    int32_t without_k; /* gw_more_rope: gw_more_lay has K                           */
    int32_t lay_all;   /* gw_more_lay: V too, and q as it is; there is no gw_more_rope */
    int32_t k_bytes, v_bytes; /* of a page of a KV head */
    float eps;
};

/* gw_more_act: y = act(gate) (* up); rows of gate begin gate_step floats apart, those of up up_step
 * (up 0: no product). A team per 32 columns, grid (anything, rows). gw_more_act_row: a block per
 * row, grid (rows), dynamic shared memory for a row: the result in 16 bits alone, for the product
 * behind it. */
struct gw_more_act_params {
    struct gw_step_params step;
    GW_DEV(const float) gate;
    GW_DEV(const float) up;
    GW_DEV(const float) numbers; /* of XIELU and CLAMP, [4] */
    GW_DEV(void) out;
    int32_t gate_step, up_step, width, form, kind;
    float limit, alpha;
    struct gw_narrow_to narrow; /* of gw_more_act_row */
};

/* gw_more_mix: a team per 32 columns, grid (anything, rows). What may be 0 is left out. */
struct gw_more_mix_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) gate;   /* [rows, gates] */
    GW_DEV(const float) addend; /* [rows, width] */
    GW_DEV(const float) factor; /* [factors]: 1, or a column's own */
    GW_DEV(void) out;
    int32_t width, gates, gate_kind, form, factors;
    float scale, cap;
};

/* gw_more_sparse: SPARSE_GLU; a block per row, grid (rows). */
struct gw_more_sparse_params {
    struct gw_step_params step;
    GW_DEV(const float) in; /* [rows, 2 width] */
    GW_DEV(float) out;
    int32_t width, kind;
    float deviations;
};

/* gw_more_route: a block per row, grid (rows). Dynamic shared memory: GW_ROUTE_SHARED. */
struct gw_more_route_params {
    struct gw_step_params step;
    GW_DEV(const float) logits; /* [rows, experts] */
    GW_DEV(float) out;          /* [rows, 2 used]  */
    struct gw_route_params route;
};

#endif
