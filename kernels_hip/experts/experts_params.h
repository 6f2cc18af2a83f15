/* kernels_hip/experts/experts_params.h - parameters of EXPERTS_GLU and EXPERTS_DOWN. An entry is
 * one expert of one row: number row * used + place in the row's route. Weights are strips
 * (kernels_hip/strip.h) of all experts' rows one after the other, `m` rows of each.
 */
#ifndef GW_KERNELS_HIP_EXPERTS_PARAMS_H
#define GW_KERNELS_HIP_EXPERTS_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"

enum {
    GW_EXPERTS_THREADS = 256,
    GW_EXPERTS_TOKENS = 64, /* most entries of a tile of gw_experts_gemm                          */
    GW_EXPERTS_CLASSES = 8, /* of lanes, a wave each: linear/linear_quant.h                       */
    GW_EXPERTS_MOST = 1024, /* most experts that gw_experts_sort counts                           */
    GW_EXPERTS_MANY = 16,   /* most entries of a tile of gw_experts_many_..                       */
    GW_EXPERTS_FEW = 4      /* rows up to which each entry is multiplied for itself               */
};

/* What gw_experts_sort leaves: entries by expert, and tiles of them. */
struct gw_experts_tile {
    int32_t expert, first, end; /* entries [first, end) of the list */
};
#define GW_EXPERTS_TILES(entries, experts, tokens)                                                 \
    ((entries) / (tokens) + ((experts) < (entries) ? (experts) : (entries)))

struct gw_experts_params {
    struct gw_step_params step;
    GW_DEV(const void) x;       /* f32 or act8 (plain): [rows, k], or [rows, used * k] (by_entry) */
    GW_DEV(const float) route;  /* [rows, 2 used]                                                */
    GW_DEV(const uint8_t) w[2]; /* gate and up; or the one                                       */
    GW_DEV(const float) bias[2]; /* [experts * m] each; may be 0                                  */
    GW_DEV(const float) addend;  /* of the result of EXPERTS_DOWN, or 0                           */
    GW_DEV(void) y;
    GW_DEV(float) sums[2]; /* products of w[0], w[1]: [entries, m]                          */
    GW_DEV(int32_t) list;  /* [entries] by expert                                           */
    GW_DEV(struct gw_experts_tile) tiles;
    GW_DEV(int32_t) n_tiles;
    /* Of gw_experts_down with a norm behind it (linear_params.h has the same), or behind is 0: its
     * weights, y times them [rows, left_blocks of 32] in a form, the squares of y [rows, m / 32];
     * arrived [rows, m / 32], 0 between launches. */
    GW_DEV(const float) behind;
    GW_DEV(void) left;
    GW_DEV(float) left_squares;
    GW_DEV(uint32_t) arrived;
    /* A shared expert beside the others, in the decode order; own[0] 0: none. gw_experts_glu: its
     * gate and up, own_n rows each, and own_y = silu(gate) * up, as activation blocks (plain)
     * [rows, own_n]. gw_experts_down: own[0] of own_n columns, own_y as left; what it gives times
     * own_gate [rows] is added to y last. */
    GW_DEV(const uint8_t) own[2];
    GW_DEV(void) own_y;
    GW_DEV(const float) own_gate;
    int32_t own_n;
    int32_t left_form, left_blocks;
    int32_t k, m, used, experts;
    int32_t by_entry;   /* x has a row for each entry                 */
    int32_t prefill;    /* the order of sums                          */
    int32_t gate_input; /* gates multiply the products of EXPERTS_GLU */
    int32_t kind, form; /* the activation; of y                       */
    float limit, alpha;
    int32_t tokens; /* most entries of a tile                            */
    int32_t each;   /* strips of a wave of gw_experts_many_down          */
};

/* gw_experts_sum_FORMAT: sums[0] of w[0], in either order; grid (m over GW_EXPERTS_THREADS / 32,
 * entries). gw_experts_each_FORMAT: the same of f32, f16 and bf16, a thread per result; grid
 * (entries * m over threads); in the decode order k is at most 32. gw_experts_sort: one block.
 * gw_experts_gemm_FORMAT: the same sums of sorted entries in the prefill order, grid (most tiles,
 * strips of m over waves of a block, one weight or two of a format). gw_experts_act: sums to y of
 * EXPERTS_GLU, grid (m over threads, entries); gw_experts_join: sums to y of EXPERTS_DOWN, grid
 * (m over threads, rows).
 * gw_experts_glu_FORMAT, gw_experts_down_FORMAT: all of it in the decode order; grid (m / 32,
 * entries), (m / 16, rows). m is a multiple of 32, of 16 then. With a shared expert the first
 * `rows` of gw_experts_glu's second dimension are its, and the first one counts the larger of m
 * and own_n.
 */
/* gw_experts_many_glu_FORMAT, gw_experts_many_down_FORMAT: sorted entries in the decode order, y of
 * EXPERTS_GLU and sums of EXPERTS_DOWN; grid (most tiles, strips of m over those of a block). Tiles
 * have GW_EXPERTS_MANY entries at most. */
#define GW_EXPERTS_DEPTH(record) ((record) > 1600 ? 3 : 4) /* records of a wave on their way */
/* Words from row to row of x in shared memory: eight rows use different banks. */
#define GW_EXPERTS_MANY_WORDS(records) ((records)*GW_ACT_GROUP_WORDS + 4)
/* Sums of EXPERTS_GLU have the place of x when that has been read: floats of an entry, of gate and
 * of up. */
#define GW_EXPERTS_MANY_PITCH(lanes) (GW_EXPERTS_THREADS / (lanes)*16 + 1)
#define GW_EXPERTS_MANY_X(lanes, records)                                                          \
    (GW_EXPERTS_MANY_WORDS(records) > 2 * GW_EXPERTS_MANY_PITCH(lanes)                             \
         ? GW_EXPERTS_MANY_WORDS(records)                                                          \
         : 2 * GW_EXPERTS_MANY_PITCH(lanes))
#define GW_EXPERTS_MANY_SHARED(lanes, records, record)                                             \
    (GW_EXPERTS_THREADS / (lanes)*GW_EXPERTS_DEPTH(record) * (record) +                            \
     4 * GW_EXPERTS_MANY * GW_EXPERTS_MANY_X(lanes, records))

/* Waves of a block of gw_experts_glu; a block of gw_experts_down has as many as its experts'
 * records ask for (backends/hip/experts.c), this many at most. */
#define GW_EXPERTS_GLU_WAVES (2 * GW_EXPERTS_CLASSES)
#define GW_EXPERTS_DOWN_MOST(lanes) (1024 / (lanes))
/* Dynamic shared memory of gw_experts_down: sums of so many experts, a shared one among them. */
#define GW_EXPERTS_DOWN_SHARED(experts) (4 * 17 * GW_EXPERTS_CLASSES * (experts))

#endif
