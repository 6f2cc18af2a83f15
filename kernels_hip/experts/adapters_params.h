/* kernels_hip/experts/adapters_params.h - adapters (core/model/lora_bank.h): EXPERTS_GLU and
 * EXPERTS_DOWN of a rank, in decode order. An entry is one adapter of one row: number row *
 * used + its place in the row's route. Place 0 is zeros, and nothing of it is read.
 */
#ifndef GW_KERNELS_HIP_ADAPTERS_PARAMS_H
#define GW_KERNELS_HIP_ADAPTERS_PARAMS_H

#include "kernels_hip/params.h"

enum {
    GW_LORA_A_THREADS = 256,
    GW_LORA_CLASSES = 8,  /* of lanes: those of an F32 record (kernels_hip/strip.h)        */
    GW_LORA_GROUPS = 8,   /* of threads of gw_lora_a_tile: GW_LORA_MANY rows each          */
    GW_LORA_MANY = 4,
    GW_LORA_FEW_THREADS = 128,
    GW_LORA_FEW = 8,   /* entries of a tile of gw_lora_a_rows        */
    GW_LORA_FEW_A = 4, /* rows of A of a block of it                 */
    GW_LORA_B_THREADS = 128,
    GW_LORA_B_ROWS = 16,  /* rows of a block of gw_lora_b_.., most           */
    GW_LORA_B_COLUMNS = 2 /* of a thread, neighbours; of gw_lora_b_more one */
};

struct gw_lora_a_params {
    struct gw_step_params step;
    GW_DEV(const float) x;     /* [rows, k]                                            */
    GW_DEV(const float) route; /* [rows, 2 used]                                       */
    GW_DEV(const uint8_t) a;   /* strips of [places * n, k]                            */
    GW_DEV(float) y;           /* [entries, n]                                         */
    GW_DEV(float) sums;        /* [entries, n, classes]: what each class has of y      */
    GW_DEV(uint32_t) count;    /* [places, grid y, tiles], 0 between launches          */
    int32_t k, n, used, tiles;
};
/* gw_lora_a_rows, gw_lora_a_tile: tiles of GW_LORA_FEW or 32 entries of a place; grid (tiles *
 * classes, n over GW_LORA_FEW_A or 16, places). Of _rows k is a multiple of 32, n of GW_LORA_FEW_A;
 * dynamic shared memory: GW_LORA_FEW_SHARED. */
#define GW_LORA_FEW_SHARED(k)                                                                      \
    (((k) + 127) / 128 * 64 * GW_LORA_FEW_A + 4 * GW_LORA_FEW * (((k) + 127) / 128 * 16 + 4))

struct gw_lora_b_params {
    struct gw_step_params step;
    GW_DEV(const float) a;      /* [entries, wide]                                     */
    GW_DEV(const float) route;  /* [rows, 2 used]                                      */
    GW_DEV(const float) b;      /* [places * m, wide], row by row                      */
    GW_DEV(const float) addend; /* [rows, m], or 0                                     */
    GW_DEV(float) y;            /* [rows, m]; may be addend                            */
    int32_t m, wide, rank, used;
    int32_t rows; /* of a block */
    int32_t end[3], part[3]; /* gw_experts_args */
};
/* gw_lora_b_8, _16, _32 of that rank, where m and ends are multiples of GW_LORA_B_COLUMNS;
 * gw_lora_b_more of any. Grid (m over columns of the threads, rows over those of a block). */

/* gw_lora_expert_a, gw_lora_expert_b: EXPERTS_LORA_A and EXPERTS_LORA_B, a team of threads per
 * column of the result, grid (columns over teams, rows). */
enum { GW_LORA_EXPERT_THREADS = 128, GW_LORA_EXPERT_TEAMS = GW_LORA_EXPERT_THREADS / 32 };

struct gw_lora_expert_params {
    struct gw_step_params step;
    GW_DEV(const float) x;        /* A: [rows, k] or [rows, used k]; B: [entries of experts, k] */
    GW_DEV(const float) route;    /* [rows, 2 used]                                              */
    GW_DEV(const float) adapters; /* [rows, 2 at_once]: places, scales                           */
    GW_DEV(const float) w;        /* [places * experts * m, k], row by row                       */
    GW_DEV(const float) addend;   /* B: of the result's shape; may be y                          */
    GW_DEV(float) y;
    int32_t m, k, used, at_once, experts;
    int32_t own;        /* A: each expert of a row has an input of its own */
    int32_t sum, gated; /* B: gw_experts_lora_args                         */
};

#endif
