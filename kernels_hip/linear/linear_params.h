/* kernels_hip/linear/linear_params.h - parameters of LINEAR and GLU in the decode order
 * (linear*.hip), and the shape of their blocks.
 *
 * A block has a group of waves per tile (16 rows of the matrix), and in it a wave per class of the
 * lanes of arith.h: 8, or 4 for 16-bit floats. What each wave has of a result comes together in
 * shared memory. With GW_COPIES other waves do what is not multiplying: they fetch several rows of
 * x, join sums and hand results out.
 */
#ifndef GW_KERNELS_HIP_LINEAR_PARAMS_H
#define GW_KERNELS_HIP_LINEAR_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"
#include "kernels_hip/sends_params.h"

enum {
    GW_LINEAR_PARTS = 3,
    /* Matrices of gw_linear_FORMAT_parts, which may be several nodes': two lines of parameters more
     * than for GW_LINEAR_PARTS, so that what follows them lies in its line as before. */
    GW_LINEAR_MOST = 7,
    GW_LINEAR_THREADS = 512, /* that multiply */
    GW_LINEAR_CLASSES = 8,   /* of quantized weights */
    GW_LINEAR_ITEM = 32,     /* columns that a block of several groups, GLU, or one in front of a
                              * norm makes at a time: two tiles, of GLU two of each */
    GW_LINEAR_RING = 7168,   /* bytes that a wave has on the way, about     */
    GW_LINEAR_WIDER = 11264, /* the same where a slot has more than 2048: few of those fit */
    GW_LINEAR_SOME = 4,
    GW_LINEAR_LESS = 2,
    GW_LINEAR_EARLY = 4,     /* slots asked for before x, where it would have to wait for them */
    GW_LINEAR_AHEAD = 18432, /* bytes of a strip that are asked for ahead of its launch    */
    GW_LINEAR_FLOAT_RECORD = 1024,
    GW_LINEAR_E4M3_RECORDS = 2, /* times as many records of E4M3 in a slot, with GW_COPIES */
    GW_LINEAR_GATES = 128,      /* bytes, with GW_COPIES */
    GW_LINEAR_FACTORS = 64,     /* bytes, of the rows of x; behind the gates */
    GW_LINEAR_MANY = 16,        /* rows of x that linear_many.hip takes at a time */
    GW_LINEAR_PLACES = 4,       /* for sums, with GW_COPIES, at most; else one */
    /* Of rows of x that come in pieces: words of one that a slot of all waves takes; with
     * GW_COPIES, words from row to row, 4 banks apart, and how many pieces there are at a time, at
     * most. */
    GW_LINEAR_PIECE = GW_LINEAR_CLASSES * GW_ACT_GROUP_WORDS,
    GW_LINEAR_PIECE_STEP = GW_LINEAR_PIECE + 4,
    GW_LINEAR_PIECES = 4,
};
/* Slots of a wave where all of them fit, else GW_LINEAR_SOME or GW_LINEAR_LESS. */
#define GW_LINEAR_DEPTH(record) (((record) > 2048 ? GW_LINEAR_WIDER : GW_LINEAR_RING) / (record))

/* Waves that join, for so many rows of x. With 20 waves in all threads have 96 registers, with one
 * more 80 (sm_80, sm_90). Threads of a block; where x comes in pieces a wave more fetches them. */
#define GW_LINEAR_JOINERS(rows) ((rows) < 3 ? 2 : (rows) > 8 ? 4 : 3)
#define GW_LINEAR_BLOCK(rows, copies, pieces)                                                      \
    (GW_LINEAR_THREADS + ((copies) ? 32 * (GW_LINEAR_JOINERS(rows) + ((pieces) != 0)) : 0))

/* Floats of a wave's partial sums of a tile: 16 results per class and row of x, rows padded against
 * bank conflicts, and 16 of padding at the end because two groups are read together. */
#define GW_LINEAR_SUMS_STEP(rows) ((rows) > 1 ? 20 : 16)
#define GW_LINEAR_SUMS(rows, classes) ((classes) * (rows)*GW_LINEAR_SUMS_STEP(rows) + 16)

/* Floats of the columns of an item, for `width` rows of x; without GW_COPIES. */
#define GW_LINEAR_COLUMNS(width, glu, behind)                                                      \
    ((glu) ? (width)*2 * GW_LINEAR_ITEM : (behind) ? (width)*GW_LINEAR_ITEM : 0)

/* One of the matrices stacked by LINEAR, or gate and up. */
struct gw_linear_part {
    GW_DEV(const uint8_t) w;  /* strips (kernels_hip/strip.h)             */
    GW_DEV(const float) bias; /* [rows]; may be 0                        */
    int32_t rows;
    int32_t tile;   /* its first tile among those of all parts            */
    int32_t column; /* its first column in y                              */
    int32_t unused;
};

/* Adapters of the one row of a product, of _adapt (linear_adapt.h); units 0: none. */
struct gw_linear_lora {
    GW_DEV(const float) x;      /* [k]: what A multiplies, or what its norm reads       */
    GW_DEV(const float) weight; /* [k] of that norm, whose sums are squares; 0: none    */
    GW_DEV(const float) route;  /* [2 used]                                             */
    GW_DEV(const uint8_t) a;    /* strips of A, of each place `rows` rows               */
    GW_DEV(const float) b;      /* [places * m, wide]                                   */
    GW_DEV(uint32_t) sums;      /* [used, n, classes] of A x, each with a word that is not 0 when it
                                 * is there; 0 between launches, as is                  */
    GW_DEV(uint32_t) count;     /* of blocks that have read them                        */
    GW_DEV(float) kept;         /* y of GLU as floats as well [rows, stride]; 0: no     */
    int32_t k, used, rank, units;
    int32_t rows, first, n; /* of A: of a place; [first, first + n) are this launch's   */
    int32_t m, wide;
    int32_t part[GW_LINEAR_PARTS]; /* columns of B of each matrix begin there; -1: none */
    int32_t row[GW_LINEAR_PARTS];  /* its first row in B                                */
    int32_t alone;  /* 1: blocks run one after the other, each makes all units          */
    int32_t each;   /* rows of a unit: 1, 2, 4 or 8                                     */
    int32_t held;   /* records of a unit in shared memory                               */
    int32_t rounds; /* tiles of a block, of two that are multiplied side by side, whose rows of B
                     * are in shared memory                                             */
    int32_t floats; /* 1: the product takes the same x, and encodes it (_adapt_floats)  */
};
/* Bytes of shared memory beyond all else. */
#define GW_LINEAR_ADAPT(k, used, n) (4 * (((k) + 127) / 128 * 16 + (used) * (n)))
/* Floats of a row of B there: eight lanes read different banks. */
#define GW_ADAPT_ROW(rank) ((rank) + 4)

/* A parameter comes with the 64 bytes around it, which costs a block some 300 cycles before it can
 * ask for weights: what that takes comes first. On NVIDIA lines begin 48, 112, ... bytes from here.
 */
struct gw_linear_params {
    struct gw_step_params step;
    int32_t parts, tiles; /* GLU: tiles of one of the two                       */
    int32_t terms;        /* of a row: blocks of 32, or columns of floats       */
    int32_t depth;        /* slots of a wave, where they are copied into        */
    int32_t early;        /* of them, how many are asked for before x           */
    int32_t width;        /* rows of x that a block takes; grid y counts those  */
    int32_t row_words;    /* of x in shared memory, padded                      */
    int32_t x_rows;       /* that x has                                         */

    GW_DEV(const uint8_t) x;      /* [rows, row_bytes]: f32, or act8: with GW_COPIES in groups  */
    GW_DEV(const float) squares;  /* [rows, blocks]: x still lacks a norm's factor; or 0 */
    GW_DEV(void) y;               /* f32 [rows, stride], or act8                        */
    GW_DEV(const float) residual; /* [rows, stride]; may be 0                           */
    struct gw_linear_part part[GW_LINEAR_MOST]; /* but for _parts GW_LINEAR_PARTS at most */

    int32_t row_bytes; /* of x                                               */
    int32_t settles;   /* with GW_COPIES: x has to be changed when it is there */
    int32_t places;    /* for sums, with GW_COPIES                            */
    int32_t cluster;   /* blocks that share rows of x as they come; 1: none    */
    int32_t stride;    /* of y, in columns                                   */
    int32_t form;      /* of y, of GLU: GW_FORM_FLOATS or act8               */
    float eps;         /* of the norm in front                               */
    int32_t span;      /* linear_pieces.hip: slots of a wave in a piece of x; with GW_COPIES, pieces
                        * at a time                                          */
    /* LINEAR: weights of the norm that follows (0: none). The epilogue stores y times them as
     * quantized blocks [rows, left_blocks of 32], laid out as left_form says, and the sums of
     * squares of y [rows, stride / 32], for the product that reads the norm. */
    GW_DEV(const float) behind;
    GW_DEV(void) left;
    GW_DEV(float) left_squares;
    int32_t left_form, left_blocks;
    /* What the first ahead_blocks blocks bring to the second cache for the product behind this one,
     * block b from b * ahead_step on ahead_bytes of two strips: while memory would be idle, which
     * is as soon as they have x (ahead_end 0) or when they are done. */
    int32_t ahead_blocks;
    GW_DEV(const uint8_t) ahead[2];
    int32_t ahead_step, ahead_bytes, ahead_end;
    int32_t paced; /* of the slots before x one is on its way at a time */
    /* Of the variant for an order, with GW_COPIES: x comes as floats [columns of the matrix], value
     * i of the row is that with number columns[i], and the block encodes it. Else 0. */
    GW_DEV(const float) columns;
    struct gw_sends sends; /* y goes to all cards as well, when sends.cards is not 0 */
    struct gw_linear_lora lora;
};

/* glu_join: y = act(gate) * up of two f32 matrices [rows, width]. */
struct gw_glu_join_params {
    struct gw_step_params step;
    GW_DEV(const float) gate;
    GW_DEV(const float) up;
    GW_DEV(void) y;
    int32_t width, form;
};

#endif
