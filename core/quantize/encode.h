/* core/quantize/encode.h - how a number format is made from floats: one row per format.
 *
 * A block is made in steps, so that one description serves plain rounding, a search weighted by
 * importance, and error feedback (gptq.h), which changes columns between the steps:
 *   search   scales (and minimums) of a block out of all its columns, and its codes
 *   refit    the integer scale of a sub-block again, when its turn has come (K formats)
 *   code     the nearest code of one value against the scales as stored, or of a few together
 *   pack     the bytes
 * Adding a format: its gw_coding in an encode_*.c, and one line in the table of encode.c. Formats
 * whose rows are not made of such blocks (floats, INT8) are encoded by core/tensor/formats.c.
 *
 * Rules of docs/arithmetic.md, "Encoding": codes are computed against the scale as stored; a block
 * with a value that is not finite has scale NaN, zero 0, codes 0 (MXFP4: e = 255); what a binary16
 * cannot hold becomes +-65504. Everything is a function of its arguments alone: no sum depends on
 * how many blocks are made at once, on the instruction set or on threads.
 */
#ifndef GW_QUANTIZE_ENCODE_H
#define GW_QUANTIZE_ENCODE_H

#include "core/tensor/formats.h"

enum {
    GW_CODED_BLOCK = 256, /* most columns of a block                  */
    GW_CODED_SUBS = 16,   /* most sub-blocks of one                   */
    GW_CODED_AT_ONCE = 8  /* most blocks that a search is given       */
};

/* A block before it is bytes. Column i, of sub-block s = i / sub, is fma(ws[s], level, wm[s]),
 * level = code[i], or levels[code[i]]. */
typedef struct gw_coded {
    float ws[GW_CODED_SUBS], wm[GW_CODED_SUBS];
    gw_i16 scale[GW_CODED_SUBS], low[GW_CODED_SUBS]; /* integers that are stored; K formats */
    gw_u16 d, m; /* binary16, or a number of the format's own  */
    gw_i16 code[GW_CODED_BLOCK];
} gw_coded;

typedef struct gw_coding gw_coding;

/* Up to GW_CODED_AT_ONCE blocks of one shape. */
typedef struct gw_encode_in {
    const float *w; /* block b: w + b * w_stride, `cols` columns */
    size_t w_stride;
    const float *importance;  /* of columns, mean x^2 or what is in proportion to it; NULL: none */
    size_t importance_stride; /* 0: the blocks are of the same columns (of several rows)         */
    const float *mean_square; /* [blocks] mean of w^2 over the row that a block is of            */
    int blocks;
    int cols; /* of each block: the format's, or fewer in the last block of a row where the format
                 has short ones */
    int feedback; /* 1: what columns lose is passed on, so that importance alone weighs it */
} gw_encode_in;

struct gw_coding {
    gw_fmt fmt;
    int block, sub;         /* columns of a block, of a sub-block                             */
    int code_min, code_max; /* codes as in gw_coded                                           */
    const float *levels;    /* [code_max + 1] increasing; NULL: a level is its code           */
    int short_blocks;       /* 1: the last block of a row may have fewer columns              */
    int together;           /* columns that are coded at once (codebooks), 0: each by itself  */
    int by_importance;      /* 1: importance changes what search finds                        */
    void (*search)(const gw_coding *e, const gw_encode_in *in, gw_coded *out /* [blocks] */);
    /* Sub-block s from its columns w [sub] as they are now; writes scale, low, ws, wm of s, no
     * codes. NULL: scales stay as search left them. */
    void (*refit)(const gw_coding *e, int s, const float *w, const float *importance, gw_coded *b);
    /* Codes of `together` columns of sub-block s, of least sum of a (w - value)^2. */
    void (*code_together)(const gw_coding *e, const gw_coded *b, int s, const float *w,
                          const float *a, gw_i16 *code);
    void (*pack)(const gw_coding *e, const gw_coded *b, void *block);
};

/* The row of a format; NULL: core/tensor/formats.c encodes it, or nobody does. */
const gw_coding *gw_coding_of(gw_fmt fmt);
/* 1 when gw_encode_row can make it. */
int gw_can_encode(gw_fmt fmt);

/* One row of [cols] weights into gw_row_bytes(fmt, cols) bytes; importance [cols] or NULL. */
void gw_encode_row(gw_fmt fmt, const float *w, const float *importance, size_t cols, void *row);

/* The nearest code of w (or of n of them) in sub-block s, and the value that a code stands for. */
int gw_code_of(const gw_coding *e, const gw_coded *b, int s, float w);
void gw_codes_of(const gw_coding *e, const gw_coded *b, int s, const float *w, int n, gw_i16 *code);
float gw_code_value(const gw_coding *e, const gw_coded *b, int s, int code);

/* ---- for encoders ------------------------------------------------------------------------- */

/* f16(x), saturated at +-65504. */
gw_u16 gw_encode_f16(float x);
/* 1 when n values are finite. */
int gw_all_finite(const float *x, size_t n);
/* Marks a block as broken: d NaN, everything else 0. */
void gw_coded_broken(gw_coded *b, int subs);

#endif
