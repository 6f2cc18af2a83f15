/* core/model/packed.h - a matrix made of codes, scales, maybe zeros, maybe an index, as quantizers
 * publish them in folders: GPTQ, AWQ, compressed-tensors, FP8, NVFP4, MXFP4, bitsandbytes, MLX.
 *
 * packed_find.c finds the tensors, by the layout that the configuration declares (packed_parts.h);
 * here one row becomes numbers, exactly those of the publisher: scale * (code - zero) in float32.
 */
#ifndef GW_MODEL_PACKED_H
#define GW_MODEL_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include "core/tensor/formats.h"

/* How codes lie. Words are 32 bits, little-endian, first code in the lowest bits. */
typedef enum gw_codes_kind {
    GW_CODES_STREAM,  /* along the row, one stream of bits: MLX                               */
    GW_CODES_WORDS,   /* along the row, whole codes in each word: compressed-tensors          */
    GW_CODES_COLUMNS, /* [cols * bits / 32, rows]: a stream down the columns: GPTQ            */
    GW_CODES_PLANES,  /* the same, of 32 codes first all low bits, in planes of 8, 4, 2, 1 bits */
    GW_CODES_AWQ,     /* [cols, rows / 8]: eight rows in a word, order 0 2 4 6 1 3 5 7        */
    GW_CODES_I8,      /* bytes                                                                */
    GW_CODES_E4M3,
    GW_CODES_E5M2,
    GW_CODES_E2M1,   /* two in a byte, the even column below                                   */
    GW_CODES_E2M3,   /* four in three bytes, a stream of bits along the row                    */
    GW_CODES_FLOATS, /* no codes: numbers, whose rows lie in another order                    */
    GW_CODES_LEVELS  /* two in a byte, the even one above, of the matrix as one row: nf4, fp4  */
} gw_codes_kind;

/* Numbers beside the codes, [.., wide]; data NULL: there are none. */
typedef enum gw_number_kind {
    GW_NUMBER_F32,
    GW_NUMBER_F16,
    GW_NUMBER_BF16,
    GW_NUMBER_E4M3,
    GW_NUMBER_E8M0, /* 2^(byte - 127) */
    GW_NUMBER_I8,
    GW_NUMBER_U8
} gw_number_kind;

typedef struct gw_numbers {
    const uint8_t *data; /* any alignment */
    gw_number_kind kind;
    int64_t wide; /* numbers from one line to the next */
} gw_numbers;

typedef struct gw_packed {
    gw_codes_kind kind;
    int bits;
    int64_t rows, cols; /* rows of all matrices where several lie one after the other */
    int64_t each;       /* rows of one of them */
    int64_t heads; /* of whose rows 2 i and 2 i + 1 are rows i and i + half of the head; 0: not */
    const uint8_t *codes;
    size_t stride; /* bytes from a line of codes to the next */
    /* The number of a row r and a group g is at [r / high][g], or turned at [g][r]; the group of
     * column c is c / span, or order[c]. */
    int64_t high, span;
    const int32_t *order; /* [cols]; NULL: as they stand */
    /* With an order whose groups have `span` columns each: the columns group by group, which is how
     * they lie in a format that is not float. [cols] */
    const int32_t *column;
    int turned;
    gw_numbers scale, bias; /* w = scale * code + bias */
    float times, divided;   /* scales are multiplied or divided by it; 0: not */
    enum {
        GW_ZERO_NONE,
        GW_ZERO_SAME,
        GW_ZERO_WORDS,
        GW_ZERO_STREAM,
        GW_ZERO_PLANES,
        GW_ZERO_DOWN, /* [rows * bits / 32, zero_wide]: a stream down the rows */
        GW_ZERO_ROW,  /* nibbles along the groups of a row                      */
        GW_ZERO_AWQ,
        GW_ZERO_I8
    } zeros;
    const uint8_t *zero;
    int64_t zero_wide; /* words, or bytes, of a line */
    int zero_add;      /* to the zero as stored; GW_ZERO_SAME: the zero */
    /* of GW_CODES_LEVELS */
    float levels[16];
    float nested[256]; /* of scales that are codes themselves */
    gw_numbers nested_scale;
    int64_t nested_block; /* 0: scales are numbers */
    float nested_offset;
    float after; /* every product times this; 0: not */
    /* What is done to a row of numbers, so that the input need not be changed: column c times
     * column_times[c]; then, where turn_block is not 0, each turn_block columns v become v M / the
     * root of turn_block, M [turn_block, turn_block] being `turn` transposed, or itself where
     * turn_back, and the Walsh-Hadamard matrix where turn is NULL. */
    const float *column_times; /* [cols]; NULL: nothing */
    int64_t turn_block;
    const float *turn;
    int turn_back;
} gw_packed;

/* Packed matrices of fewer weights than this become floats: they would save nothing, and routers
 * and gates are among them. */
enum { GW_PACKED_LEAST = 65536 };

/* The smallest format that has every weight exactly: of codes of at most five or eight bits without
 * their zeros, and scales that a binary16 holds, Q4_0, Q5_0 or Q8_0; of one scale for each row
 * INT8; of a scale and a bias INT4_Gn; of FP8 E4M3 with scales for rows or multiples of 128 columns
 * E4M3, of other FP8 with powers of two as scales BF16; else F32. And NVFP4_CODES of NVFP4, which a
 * global scale is multiplied with, not divided by: two units of the last place of a float. */
gw_fmt gw_packed_fmt(const gw_packed *p);

/* Rows [first, first + n) of the matrix in that format, or as MXFP4, F16, BF16 where packed_find.c
 * says so; `bytes` bytes each. list: these entries of it say which rows; NULL: those themselves.
 * Any thread, several at once. */
void gw_packed_rows(const gw_packed *p, gw_fmt fmt, const int32_t *list, int64_t first, int64_t n,
                    size_t bytes, void *dst);

/* Is a row changed in such a way? Its format is then F32. */
static inline int gw_packed_is_changed(const gw_packed *p) {
    return p->column_times != NULL || p->turn_block > 0;
}
enum { GW_PACKED_TURN_MOST = 1024 }; /* columns that a matrix turns; Walsh-Hadamard: any 2^n */

float gw_e4m3_to_f32(uint8_t bits);

#endif
