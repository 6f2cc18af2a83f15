/* core/quantize/fit.h - scales of up to eight blocks or sub-blocks at once, by least weighted
 * error.
 *
 * Eight lanes of a vector are eight sub-blocks; sums run over a sub-block's columns in order, so
 * that a result does not depend on what is in the other lanes or on the instruction set. The
 * searches are those of ggml's K formats and of its importance matrix, in closed form:
 *   symmetric  w = d q, q in -n .. n-1     affine  w = d q + m, q in 0 .. n, m <= 0
 *   levels     w = d L[q]                  absolute: affine, least sum of a |w - d q - m|
 *   swept      symmetric from one start, then each code moves where that is better
 */
#ifndef GW_QUANTIZE_FIT_H
#define GW_QUANTIZE_FIT_H

#include "core/tensor/formats.h"

enum { GW_FIT_LANES = 8, GW_FIT_COLUMNS = 64 };

typedef enum gw_fit_kind {
    GW_FIT_SYMMETRIC,
    GW_FIT_AFFINE,
    GW_FIT_ABSOLUTE,
    GW_FIT_IQ4,
    GW_FIT_SWEPT
} gw_fit_kind;

/* Weight of a column's error: of importance h, mean square s of the block, value w. */
typedef enum gw_fit_weight {
    GW_WEIGHT_MEAN,      /* h sqrt(spread s + w^2)                       */
    GW_WEIGHT_GIVEN,     /* h                                            */
    GW_WEIGHT_SQUARE,    /* w^2                                          */
    GW_WEIGHT_SIZE,      /* |w|                                          */
    GW_WEIGHT_SIZE_MORE, /* |w| + root of the mean w^2 of the sub-block  */
} gw_fit_weight;

typedef struct gw_fit_rule {
    gw_fit_kind kind;
    int n;             /* see above                                                  */
    float first, step; /* tries: levels asked for are n + first + step * k           */
    int tries;
    gw_fit_weight weight;
    float spread;
} gw_fit_rule;

typedef struct gw_fit_in {
    const float *w[GW_FIT_LANES], *importance[GW_FIT_LANES]; /* [cols] each; NULL: no such lane */
    float mean_square[GW_FIT_LANES];
    int lanes, cols;
} gw_fit_in;

typedef struct gw_fit_out {
    float scale[GW_FIT_LANES], low[GW_FIT_LANES]; /* d, m                  */
    float weight[GW_FIT_LANES];                   /* sum of column weights */
} gw_fit_out;

void gw_fit(const gw_fit_rule *rule, const gw_fit_in *in, gw_fit_out *out);

/* Of up to GW_REFIT_TRIES pairs (ws, wm) the one of least sum of importance (w - value)^2, the
 * first of equals; importance NULL: 1. Codes are low .. high, or IQ4's levels. */
enum { GW_REFIT_TRIES = 512 };
int gw_fit_choose(const float *w, const float *importance, int cols, const float *ws,
                  const float *wm, int tries, float low, float high, int iq4);

/* Numbers x [n] >= 0 as d q, q in 0 .. top, by least weighted error; returns d. */
float gw_fit_positive(const float *x, const float *weight, int n, int top, int *q);
/* Numbers x [n] as d q, q in -top .. top - 1. */
float gw_fit_signed(const float *x, const float *weight, int n, int top, int *q);

#endif
