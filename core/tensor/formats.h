/* core/tensor/formats.h - what the rest of the program may know about a number format.
 *
 * A *format* says what the bytes mean. How those bytes are arranged on one device (transposed,
 * interleaved, scales split off) is a *layout*, private to the backend that wants it, and never a
 * new format. Adding a format: one enum entry, one struct with its functions in blocks.h, one row
 * in formats.c and one in format_list.h; tests/test_formats.c names what is missing.
 */
#ifndef GW_TENSOR_FORMATS_H
#define GW_TENSOR_FORMATS_H

#include "core/base/status.h"
#include "core/tensor/arith.h"

/* clang-format off */
typedef enum gw_fmt {
    GW_FMT_F32, GW_FMT_F16, GW_FMT_BF16,
    GW_FMT_E4M3, GW_FMT_NVFP4_CODES,                /* a float per 128                       */
    GW_FMT_Q8_0, GW_FMT_Q4_0, GW_FMT_Q4_1, GW_FMT_Q5_0, GW_FMT_Q5_1,
    GW_FMT_Q2_K, GW_FMT_Q3_K, GW_FMT_Q4_K, GW_FMT_Q5_K, GW_FMT_Q6_K,
    GW_FMT_IQ4_NL, GW_FMT_IQ4_XS, GW_FMT_MXFP4,
    GW_FMT_INT8,                                    /* one float scale per row               */
    GW_FMT_INT4_G32, GW_FMT_INT4_G64, GW_FMT_INT4_G128, GW_FMT_INT4_G256, /* f16 scale, zero  */
    GW_FMT_BL3H_B64, GW_FMT_BL2_B32, GW_FMT_BL3_B32, GW_FMT_BL5_B64, GW_FMT_BL6_B64,
    GW_FMT_BL8_B32, GW_FMT_BL8_B64,                 /* block-linear: f16 scale, zero         */
    GW_FMT_IQ3_S_CODES, GW_FMT_IQ3_XXS_CODES, GW_FMT_IQ2_CODES, GW_FMT_IQ1_CODES, /* in memory */
    GW_FMT_ACT8,                                    /* activations, never in a file          */
    GW_FMT_I32,                                     /* token ids, page tables                */
    /* In files only: small.h. */
    GW_FMT_IQ2_XXS, GW_FMT_IQ2_XS, GW_FMT_IQ2_S, GW_FMT_IQ3_XXS, GW_FMT_IQ3_S,
    GW_FMT_IQ1_S, GW_FMT_IQ1_M, GW_FMT_TQ1_0, GW_FMT_TQ2_0, GW_FMT_Q1_0, GW_FMT_Q2_0, GW_FMT_NVFP4,
    GW_FMT_COUNT
} gw_fmt;
/* clang-format on */

/* A row of a matrix is row_header bytes followed by cols / block_elems blocks; of floats the last
 * block may be short, in as many bytes as the others: nothing is made of what it lacks. */
typedef struct gw_format {
    const char *name;   /* "q4_0": lower case; printed in upper case for people            */
    int gguf_type;      /* tensor type number in a GGUF file, from GW_GGUF_OWN on our own;
                         * -1: not in GGUF */
    size_t block_elems; /* weights per block                                               */
    size_t block_bytes; /* always a sizeof                                                 */
    size_t row_header;  /* bytes before the blocks of each row (int8: its float scale)     */
    int is_float;       /* up to NVFP4_CODES: sums run per element, the input stays float  */
    /* Exact expansion of one row, [cols] weights. */
    void (*decode)(float *dst, const void *row, size_t cols);
    /* Quantize one row; NULL where the engine never makes this format. Deterministic. */
    void (*encode)(void *row, const float *src, size_t cols);
    size_t span; /* activation blocks of a term; 0 where there is none */
    /* THE arithmetic (docs/arithmetic.md): add to `acc` the term of the `span` blocks (of 32
     * weights) from b on, a multiple of `span`, of a row times as many activation blocks from x on;
     * several have one scale (gw_act8_span). NULL for floats, which sum per element, and for formats
     * that a model's weights do not stay in (small.h). */
    float (*term)(const void *row, size_t b, const gw_act8 *x, float acc);
    /* The same in the order of prompts: of formats with integer scales, four blocks make a term. */
    size_t prompt_span;
    float (*prompt_term)(const void *row, size_t b, const gw_act8 *x, float acc);
} gw_format;

/* GGUF's numbers, and its relatives', end far below; other readers refuse what is not theirs. */
enum { GW_GGUF_OWN = 26368 /* 'g' << 8 */ };

const gw_format *gw_format_of(gw_fmt fmt);                /* never NULL for fmt < GW_FMT_COUNT */
gw_status gw_format_from_gguf(int64_t type, gw_fmt *out); /* GW_E_TYPE names the number      */
/* The name of a type that GGUF had for Q4_0 with interleaved rows; NULL for any other. */
const char *gw_format_repacked(int64_t type);
/* 1 when known; any case. "bl4-b32" and "bl4-b64" are INT4_G32 and INT4_G64, "blN" the block-linear
 * format of N bits with blocks of 64 where there is one. */
int gw_format_from_name(const char *name, gw_fmt *out);

/* Blocks of a row. */
static inline size_t gw_format_blocks(const gw_format *f, size_t cols) {
    return (cols + f->block_elems - 1) / f->block_elems;
}

/* Bytes of one row, and of a [rows, cols] matrix stored row after row without padding.
 * GW_E_METADATA when cols is no multiple of block_elems (but for floats), GW_E_OVERFLOW when it
 * does not fit. */
gw_status gw_row_bytes(gw_fmt fmt, uint64_t cols, size_t *bytes);
gw_status gw_matrix_bytes(gw_fmt fmt, uint64_t rows, uint64_t cols, size_t *bytes);

#endif
