/* kernels_hip/linear_norm.h - the NORM in front of a product, computed by every block for itself.
 *
 * The first slots of the rings are on their way meanwhile, and take longer than this: an H200 with
 * 112 KB of weights asked for on each multiprocessor has 3.3 us to wait for memory, an MI250X more.
 */
#ifndef GW_KERNELS_HIP_LINEAR_NORM_H
#define GW_KERNELS_HIP_LINEAR_NORM_H

#include "kernels_hip/act8.h"
#include "kernels_hip/linear_params.h"
#include "kernels_hip/norm.h"

/* Rows [0, n) of `words` words each, G at a time, from `x` (row_bytes apart) to shared memory
 * (row_words apart); what a row has beyond `words` becomes 0. AT_ONCE: pieces of a row that a
 * thread waits for at once. */
template <int G, int ROWS, int AT_ONCE>
__device__ static inline void gw_stage(const unsigned char *x, size_t row_bytes, int words,
                                       unsigned *shared, int row_words, int n) {
    struct __align__(4 * G) piece {
        unsigned w[G];
    };
    const int step = G * GW_LINEAR_THREADS;
    for (int base = (int)threadIdx.x * G; base < row_words; base += AT_ONCE * step) {
        piece v[AT_ONCE][ROWS];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int at = base + k * step;
#pragma unroll
                for (int j = 0; j < G; j++) {
                    v[k][r].w[j] = 0;
                }
                if (r < n && at < words) {
                    v[k][r] = *(const piece *)(x + (size_t)r * row_bytes + 4 * at);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int at = base + k * step;
                if (r < n && at < row_words) {
                    *(piece *)(shared + r * row_words + at) = v[k][r];
                }
            }
        }
    }
}

enum {
    GW_NORM_FOURS =
        2, /* of a thread, whose weights are fetched before the wait for other kernels */
    GW_NORM_STEP = 4 * GW_LINEAR_THREADS
};

struct __align__(16) gw_norm_four {
    float v[4];
};
GW_DEVICE gw_norm_four gw_norm_read(const float *from) {
    const gw_16b bits = *(const gw_16b *)from;
    gw_norm_four r;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        r.v[j] = GW_F32_FROM_BITS(bits.w[j]);
    }
    return r;
}

GW_DEVICE void gw_norm_ask(const float *weight, int width, gw_norm_four *early) {
#pragma unroll
    for (int k = 0; k < GW_NORM_FOURS; k++) {
        const int i = 4 * (int)threadIdx.x + k * GW_NORM_STEP;
        if (i < width) {
            early[k] = gw_norm_read(weight + i);
        }
    }
}

/* Factors of rows [0, n) -> factor; a team per row. The floats of a row are at `stage`, `piece` of
 * them at a time, rows `piece` apart. FETCHED: all of them are there; else rest() is called by each
 * team as soon as the first have come and it has nothing else to do. */
template <int FETCHED, int ROWS, class Rest>
__device__ static inline void gw_norm_factors(const float *in, int width, float eps, float *stage,
                                              int piece, float *factor, int n, Rest rest) {
    enum { AT_ONCE = ROWS < 3 ? 2 : 1 };
    const int team = gw_team();
    float sum = 0.0f;
    for (int base = 0; base < width; base += piece) {
        const int count = width - base < piece ? width - base : piece;
        if (!FETCHED) {
            if (base > 0) {
                __syncthreads();
            }
            gw_stage<4, ROWS, AT_ONCE>((const unsigned char *)(in + base), (size_t)width * 4, count,
                                       (unsigned *)stage, piece, n);
        }
        __syncthreads();
        if (!FETCHED && base == 0 && team >= n) {
            rest();
        }
        if (team < n) {
            sum = gw_squares(stage + team * piece, count, sum);
        }
    }
    if (team < n) {
        sum = gw_fold(sum);
        if (gw_lane() == 0) {
            factor[team] = gw_rms_scale(sum, width, eps);
        }
    }
    __syncthreads();
    if (!FETCHED && team < n) {
        rest();
    }
}

/* Rows [first, first + n) of x through the norm to shared memory, n <= ROWS: act8 where ACT8, by
 * way of `free`; else f32 in place, where they are staged already. The first block keeps those
 * of the live ones in p.normed. Behind it a barrier is due. */
template <int ACT8, int ROWS, class Rest>
__device__ static inline void gw_norm_rows(const gw_linear_params &p, unsigned *x, float *free,
                                           int first, int n, int live, const gw_norm_four *early,
                                           Rest rest) {
    const int width = p.row_bytes / 4, piece = ACT8 ? p.piece : p.row_words;
    const float *in = (const float *)p.x + (size_t)first * (size_t)width;
    float *stage = ACT8 ? free + GW_LINEAR_NORM_MORE : (float *)x, *factor = free;
    gw_norm_factors<!ACT8, ROWS>(in, width, p.eps, stage, piece, factor, n, rest);
    enum { AT_ONCE = ROWS == 1 ? (int)GW_NORM_FOURS : 1 }; /* side by side: all is latency here */
    const int end = (width + 127) / 128 * 128;             /* whole teams */
#pragma unroll 1
    for (int base = 4 * (int)threadIdx.x, k = 0; base < end;
         base += AT_ONCE * GW_NORM_STEP, k += AT_ONCE) {
#pragma unroll
        for (int o = 0; o < AT_ONCE; o++) {
            const int i = base + o * GW_NORM_STEP;
            gw_norm_four w = {{0.0f, 0.0f, 0.0f, 0.0f}};
            if (i < width) {
                w = k + o == 0 ? early[0] : k + o == 1 ? early[1] : gw_norm_read(p.norm + i);
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                gw_norm_four v = {{0.0f, 0.0f, 0.0f, 0.0f}};
                if (r < n && i < width) {
                    v = gw_norm_read(!ACT8 || width <= piece ? stage + r * piece + i
                                                             : in + (size_t)r * (size_t)width + i);
                }
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    v.v[j] = r < n ? (v.v[j] * factor[r]) * w.v[j] : 0.0f;
                }
                const int there = r < n && i < end;
                const int keep = r < live && blockIdx.x == 0 && i < width;
                const size_t at = (size_t)(first + r) * (size_t)width + (size_t)i;
                if (ACT8) {
                    gw_act8_four code;
                    code.encode(v.v);
                    if (there) {
                        code.store(x + r * p.row_words + i / GW_ACT_BLOCK * GW_ACT_WORDS);
                    }
                    if (keep) {
                        code.store((unsigned *)p.normed + at / GW_ACT_BLOCK * GW_ACT_WORDS);
                    }
                } else if (there && i < width) {
                    *(gw_norm_four *)(stage + r * piece + i) = v;
                    if (keep) {
                        *(gw_norm_four *)((float *)p.normed + at) = v;
                    }
                }
            }
        }
    }
}

#endif
