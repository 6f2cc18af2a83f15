/* core/model/rope.h - rotation frequencies and tables, the same bits on every host.
 *
 * Sines, cosines, exponentials and logarithms are computed here in double precision from IEEE
 * operations alone (add, multiply, divide, fma, round), because the last bit of a C library's
 * depends on the library. Scaling rules: linear (Chen et al. 2023, arXiv:2306.15595), llama3 (the
 * Llama 3.1 model card), yarn (Peng et al. 2023, arXiv:2309.00071), longrope (Ding et al. 2024,
 * arXiv:2402.13753), explicit divisors.
 */
#ifndef GW_MODEL_ROPE_H
#define GW_MODEL_ROPE_H

#include "core/model/hparams.h"

/* Angle per position of each rotated pair, freq [dim / 2] in radians, and the factor that
 * multiplies every sine and cosine (1 except with yarn and longrope), for a context of n_ctx
 * positions. r was range-checked by the checkpoint. */
void gw_rope_frequencies(const gw_rope *r, int32_t n_ctx, double *freq, double *magnitude);

/* What yarn multiplies sines and cosines by where a file states no factor: 0.1 scale log(factor) +
 * 1, and 1 for a factor that stretches nothing. */
double gw_rope_yarn_magnitude(double factor, double scale);

/* Rows of the rope table of GW_OP_ROPE_KV: table [n_pos, 2, half], cosines then sines of
 * (first + row) * freq[i], times magnitude, rounded once to float. */
void gw_rope_fill(const double *freq, int half, double magnitude, int64_t first, int64_t n_pos,
                  float *table);

/* The same for positions of three parts (time, row, column), of a rope that has them: at [n, 3].
 */
void gw_rope_fill_grid(const gw_rope *r, const double *freq, double magnitude,
                       const int32_t (*at)[3], int64_t n, float *table);

/* The functions underneath, for tests. Within 1e-15 relative (sine, cosine: absolute, |x| < 2^26).
 */
double gw_rope_exp(double x); /* |x| < 700 */
double gw_rope_log(double x); /* finite, normal, > 0 */
void gw_rope_sin_cos(double x, double *sine, double *cosine);

#endif
