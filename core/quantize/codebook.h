/* core/quantize/codebook.h - GGUF's codebooks turned round: of a vector of numbers the point of
 * least weighted error.
 *
 * A point is a key: its coordinates' numbers, `bits` each, the first lowest. Where every coordinate
 * by itself goes to its nearest value, the key that comes out may name no point; then those near
 * that key are tried, which are listed once, at the first use of a codebook.
 */
#ifndef GW_QUANTIZE_CODEBOOK_H
#define GW_QUANTIZE_CODEBOOK_H

#include "core/tensor/formats.h"

enum {
    GW_BOOK_DIM = 8,   /* most coordinates                        */
    GW_BOOK_SIZES = 8, /* most values that a coordinate can have  */
    GW_BOOK_NEAR = 24  /* points that are tried for a key that names none */
};

typedef struct gw_codebook {
    int dim, bits;      /* coordinates of a point, bits of each in a key                          */
    int n_sizes;        /* values that a coordinate can have                                      */
    int n;              /* points                                                                 */
    const float *sizes; /* those values, in the unit in which codes are counted: 8, 25, 43; of
                           IQ1 -8, 0, 8, to which one is added or not                        */
    const gw_u16 *points;
    gw_i16 *at; /* key: number of the point, or -1 - number of the list              */
    gw_u16 (*near)[GW_BOOK_NEAR]; /* keys of the points near a key that names none           */
} gw_codebook;

/* The codebook of IQ2_XXS .. IQ1_M. Safe on any thread. */
const gw_codebook *gw_codebook_of(gw_fmt fmt);

typedef struct gw_near {
    gw_u16 key;
    float error;  /* sum of a (scale size - x)^2 over the coordinates */
    float xl, ll; /* sums of a x size and a size^2                    */
} gw_near;

/* The point of least error, the first of equals. sizes [n_sizes]: those of the book, or moved. */
gw_near gw_codebook_nearest(const gw_codebook *book, const float *x, const float *a, float scale,
                            const float *sizes);

#endif
