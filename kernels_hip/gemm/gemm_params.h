/* kernels_hip/gemm/gemm_params.h - parameters of the prompt's matrix products (gemm*.hip), and the
 * sizes that the host needs for their launches.
 */
#ifndef GW_KERNELS_HIP_GEMM_PARAMS_H
#define GW_KERNELS_HIP_GEMM_PARAMS_H

#include "kernels_hip/narrow_params.h"
#include "kernels_hip/params.h"

enum {
    GW_GEMM_PARTS = 3,
    GW_GEMM_THREADS = 256,
    GW_GEMM_ROWS = 128,     /* of a tile; of gate and up together in a GLU; quantized: 16 a wave */
    GW_GEMM_MANY = 128,     /* tokens up to which a wave has one strip  */
    GW_GEMM_WAVES_FEW = 4,  /* fewest of a block, for at most 64 tokens */
    GW_GEMM_WAVES_MANY = 8, /* the same for more                        */
    GW_PLAIN_TOKENS = 16,
    GW_ORDERED_SIDE = 64, /* rows and tokens of a block of gw_gemm_ordered_FORMAT */
    GW_ORDERED_FEW = 32,  /* of gw_gemm_ordered_few_FORMAT, which has no GLU     */
    GW_NARROW_THREADS = 256
};

/* wide: waves of 32 with matrix instructions, on NVIDIA sm_80 and later; they have room for more
 * tokens per tile and more stages. group: sm_90, where four waves may share an instruction. */
#define GW_GEMM_TOKENS(wide) ((wide) ? 128 : 64)
#define GW_HALF_STAGES(wide, group) ((group) ? 5 : (wide) ? 3 : 2)
#define GW_HALF_SHARED(wide, group)                                                                \
    (GW_HALF_STAGES(wide, group) * (GW_GEMM_ROWS + GW_GEMM_TOKENS(wide)) * 128)

/* 16-bit weights and many tokens (gemm_wide.hip): tokens of a tile, stages of 64 columns, tiles of
 * the same tokens that follow one another. */
enum {
    GW_WIDE_TOKENS = 256,
    GW_WIDE_RING = 4,
    GW_WIDE_BAND = 8,
    GW_WIDE_STAGE = (GW_WIDE_TOKENS + GW_GEMM_ROWS) * 128,
    GW_WIDE_SHARED = GW_WIDE_RING * (GW_WIDE_STAGE + 2 * 8) /* gates */
};

/* Numbers per block of a row of activations that a term needs. */
#define GW_GEMM_NUMBERS(term)                                                                      \
    ((term) == GW_TERM_AFFINE || (term) == GW_TERM_SPAN ? 2 : (term) == GW_TERM_Q2 ? 3 : 1)
/* Quantized weights: waves of a block at most, records of a wave in shared memory, and all of the
 * latter, of which the results of a GLU need less. */
#define GW_GEMM_WAVES(wide) ((wide) ? 12 : 8)
#define GW_GEMM_RING(wide, record) (!(wide) ? 2 : (record) > 1280 ? 3 : 5)
#define GW_GEMM_SHARED(wide, waves, tokens, term, record)                                          \
    (GW_GEMM_RING(wide, record) * (waves) * (record) +                                             \
     2 * (tokens) * (128 + 16 * GW_GEMM_NUMBERS(term)))

/* The same for products of more than GW_GEMM_MANY tokens, whose stages are of all waves. */
#define GW_LARGE_RING(wide) ((wide) ? 3 : 2)
#define GW_LARGE_SHARED(wide, term, record)                                                        \
    (GW_LARGE_RING(wide) * GW_GEMM_ROWS / 16 * (record) +                                          \
     2 * GW_GEMM_TOKENS(wide) * (128 + 16 * GW_GEMM_NUMBERS(term)))

/* And for those with instructions of four waves (gemm_ring.h): stages of four blocks of 32, tokens
 * and then weights; as many stages on their way; results of a GLU; gates: a stage has come, has
 * been read; the block's share. Four waves more copy, and leave their registers to the others.
 *
 * What a stage is made of, a format's GW_GROUP_FORM:
 *   BLOCKS  each block is a term: codes of tokens are 16-bit floats, each block has its numbers
 *   SPAN    a stage is one: codes stay codes, numbers are the stage's, and a tile may have
 *           GW_GROUP_WIDE tokens (gemm_tiling.h)
 *   SCALED  the same with integer scales, which are multiplied into the weights' codes, as 16-bit
 *           floats: a scale of a token, and the sums of its halves of blocks, 16-bit floats too
 *   DIGITS  of Q6_K and of levels, where such products may need more bits than a 16-bit float has,
 *           they are two int8 digits
 */
enum {
    GW_SPREAD_THREADS = 256,
    GW_GROUP_FEEDERS = 4, /* waves */
    GW_GROUP_BLOCK = GW_GEMM_THREADS + 32 * GW_GROUP_FEEDERS,
    GW_GROUP_REGISTERS = 240,
    GW_GROUP_FEEDER_REGISTERS = 24,
    GW_GROUP_WIDE = 160,
    GW_GROUP_SHARE = 48 /* bytes */
};
enum { GW_STAGE_BLOCKS, GW_STAGE_SPAN, GW_STAGE_SCALED, GW_STAGE_DIGITS };
#define GW_GROUP_FORM(low, high, levels, term, sub)                                                \
    ((term) == GW_TERM_SPAN                                      ? GW_STAGE_SPAN                   \
     : !(sub)                                                    ? GW_STAGE_BLOCKS                 \
     : (levels) != GW_LEVELS_NONE || ((low) == 4 && (high) == 2) ? GW_STAGE_DIGITS                 \
                                                                 : GW_STAGE_SCALED)
/* Bytes of a stage for each token, of BLOCKS with so many numbers; of those, in front of codes. */
#define GW_GROUP_TOKEN(form, numbers)                                                              \
    ((form) == GW_STAGE_SPAN     ? 128 + 4 * (numbers)                                             \
     : (form) == GW_STAGE_BLOCKS ? 256 + 16 * (numbers)                                            \
     : (form) == GW_STAGE_SCALED ? 256 + (int)GW_SCALED_NUMBERS                                    \
                                 : 128 + 4)
enum {
    GW_SCALED_SUMS_AT = 8, /* of a token: its scale, 4 bytes of nothing, eight sums */
    GW_SCALED_NUMBERS = GW_SCALED_SUMS_AT + 16
};
#define GW_GROUP_RING(form) ((form) == GW_STAGE_BLOCKS ? 3 : (form) == GW_STAGE_SCALED ? 4 : 6)
#define GW_GROUP_MOST(form) ((form) == GW_STAGE_SPAN ? (int)GW_GROUP_WIDE : GW_GEMM_TOKENS(1))
#define GW_GROUP_TOKENS(form, numbers) (GW_GROUP_MOST(form) * GW_GROUP_TOKEN(form, numbers))
#define GW_GROUP_RESULTS(form) (GW_GROUP_MOST(form) * (GW_GEMM_ROWS / 2 + 1) * 4)
#define GW_GROUP_STAGE(form, numbers, record)                                                      \
    ((GW_GROUP_TOKENS(form, numbers) + GW_GEMM_ROWS / 16 * (record) + 1023) / 1024 * 1024)
#define GW_GROUP_AT_GATES(form, numbers, record)                                                   \
    (GW_GROUP_RING(form) * GW_GROUP_STAGE(form, numbers, record) + GW_GROUP_RESULTS(form))
#define GW_GROUP_AT_SHARE(form, numbers, record)                                                   \
    (GW_GROUP_AT_GATES(form, numbers, record) + 2 * GW_GROUP_RING(form) * 8)
#define GW_GROUP_SHARED(form, numbers, record)                                                     \
    (GW_GROUP_AT_SHARE(form, numbers, record) + (int)GW_GROUP_SHARE)

/* Tiles of a launch with a persistent grid (gemm_stream_k.h): the cost of a stage of a tile of 128
 * tokens, and of tiles of GW_GROUP_WIDE, 64 and 32; and how many sums a block may leave to the next
 * one. */
enum {
    GW_SHARE_WIDE = 31,
    GW_SHARE_WHOLE = 24,
    GW_SHARE_HALF = 15,
    GW_SHARE_QUARTER = 12,
    GW_SHARE_SUMS = GW_GEMM_ROWS * GW_GROUP_WIDE
};

/* One weight matrix: strips of 16 rows in the planes of backends/hip/layout.c. */
struct gw_gemm_weight {
    GW_DEV(const uint8_t) plane[4];
    GW_DEV(const float) bias; /* may be 0                         */
    int32_t rows;
    int32_t column; /* of its first row in the output   */
};

struct gw_gemm_params {
    struct gw_step_params step;
    struct gw_gemm_weight w[GW_GEMM_PARTS];
    GW_DEV(const void) x;         /* act8, f32, or what gw_narrow made; [rows, ...] */
    GW_DEV(const float) scale;    /* gw_narrow's, [rows]                            */
    GW_DEV(const float) residual; /* [rows, stride]; may be 0                       */
    GW_DEV(void) y;               /* f32 [rows, stride], or act8                    */
    GW_DEV(float) left;           /* f32 [blocks + 1, GW_SHARE_SUMS]                */
    GW_DEV(uint32_t) has_left;    /* [blocks + 1], 0 between launches; no others'   */
    int32_t parts, k, stride;
    int32_t glu;  /* w[0] gate, w[1] up */
    int32_t act8; /* y is act8          */
};

/* x f32 [rows, k] to 16 bits. */
struct gw_narrow_params {
    struct gw_step_params step;
    GW_DEV(const float) x;
    struct gw_narrow_to to;
    int32_t k;
};

/* x act8 [rows, k] to stages of tokens [tiles of rows, stages of four blocks, GW_GROUP_TOKENS
 * bytes] of a form: gw_spread of BLOCKS, gw_spread_scaled, gw_spread_span of the others. */
struct gw_spread_params {
    struct gw_step_params step;
    GW_DEV(const void) x;
    GW_DEV(void) y;
    int32_t k, numbers, form;
    int32_t tiles, blocks; /* of the product: tiles along its weights' rows; blocks of threads */
};

/* f32 [rows, width] each; y may be gate. */
struct gw_gemm_join_params {
    struct gw_step_params step;
    GW_DEV(const float) gate;
    GW_DEV(const float) up;
    GW_DEV(float) y;
    int32_t width;
};

#endif
