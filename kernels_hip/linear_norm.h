/* kernels_hip/linear_norm.h - how x comes to shared memory in front of a product: copied, or
 * through a NORM that every block computes for itself.
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
 * (row_words apart), up to word `end` of a row; what it has beyond `words` becomes 0. AT_ONCE:
 * pieces of a row that a thread waits for at once. put(at) is what stores the G words from `at` on:
 * a function of (row, words). */
template <int G, int ROWS, int AT_ONCE, class Put>
__device__ static inline void gw_stage(const unsigned char *x, size_t row_bytes, int words, int end,
                                       unsigned *shared, int row_words, int n, Put put) {
    struct __align__(4 * G) piece {
        unsigned w[G];
    };
    const int step = G * GW_LINEAR_THREADS;
    for (int base = (int)threadIdx.x * G; base < end; base += AT_ONCE * step) {
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
            const int at = base + k * step;
            const auto store = put(at);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r < n && at < end) {
                    store(shared + r * row_words, v[k][r].w);
                }
            }
        }
    }
}

/* The row of x through the norm to shared memory, act8 or f32, by way of `free`: GW_NORM_STAGE(
 * p.piece) floats behind GW_LINEAR_NORM_MORE. The first block keeps it in p.normed when it is live.
 * rest() is called behind the loads of x. Behind it a barrier is due. */
template <class K, class Rest>
__device__ static inline void gw_norm_row(const gw_linear_params &p, unsigned *x, float *free,
                                          int live, const gw_norm_four *weights, Rest rest) {
    const int width = p.row_bytes / 4;
    const float *row = (const float *)p.x;
    gw_norm_four values[GW_NORM_FOURS];
    gw_norm_ask<1>(row, width, values);
    rest();
    const float factor =
        gw_norm_factor<1>(row, width, p.eps, free + GW_LINEAR_NORM_MORE, p.piece, free, values);
    const int keep = live > 0 && blockIdx.x == 0;
    gw_norm_apply<1>(row, p.norm, width, factor, weights, values,
                     [&](int i, const gw_norm_four &v) {
                         if (K::ACT8) {
                             const int block = i / GW_ACT_BLOCK * GW_ACT_WORDS;
                             gw_act8_four code;
                             code.encode(v.v);
                             if (keep && i < width) {
                                 code.store((unsigned *)p.normed + block);
                             }
                             code.sums = K::number(code.scale, code.sums);
                             K::store(code, x, i / GW_ACT_BLOCK);
                         } else {
                             *(gw_norm_four *)(x + i) = v;
                             if (keep && i < width) {
                                 *(gw_norm_four *)((float *)p.normed + i) = v;
                             }
                         }
                     });
}

/* As many rows of x as a block has, GW_LINEAR_NORM_ROWS at most, through the norm to act8, `there`
 * of them in memory, `live` to be kept. A row is whole in shared memory, and a team of its own has
 * its chains; what a thread scales it reads from there again, so that little code runs once. Behind
 * it a barrier is due. */
template <class K, class Rest>
__device__ static inline void gw_norm_rows(const gw_linear_params &p, unsigned *x, float *free,
                                           int there, int live, const gw_norm_four *weights,
                                           Rest rest) {
    enum { ROWS = GW_LINEAR_NORM_ROWS };
    const int width = p.row_bytes / 4, end = (width + 127) / 128 * 128; /* whole teams */
    const int first = (int)blockIdx.y * p.width, team = gw_team(), lane = gw_lane();
    const int pitch = GW_NORM_PITCH(p.piece), apart = GW_NORM_STAGE(p.piece);
    float *stage = free + GW_LINEAR_NORM_MORE, *mine = stage + lane % 8 * 4 * pitch;
    const float *rows = (const float *)p.x + (size_t)first * (size_t)width;
    gw_norm_four values[ROWS][GW_NORM_FOURS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        gw_norm_ask<1>(rows + (size_t)r * (size_t)width, r < there ? width : 0, values[r]);
    }
    rest();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int k = 0; k < GW_NORM_FOURS; k++) {
            const int i = 4 * (int)threadIdx.x + k * GW_NORM_STEP;
            if (r < there && i < p.piece) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    mine[r * apart + j * pitch + i / 32] = values[r][k].v[j];
                }
            }
        }
    }
    gw_sync_some<1, GW_NORM_THREADS>();
    if (team < there) {
        const float sum =
            gw_fold(gw_squares(stage + team * apart + lane * pitch, p.piece / 32, 0.0f));
        if (lane == 0) {
            free[team] = gw_rms_scale(sum, width, p.eps);
        }
    }
    gw_sync_some<1, GW_NORM_THREADS>();
#pragma unroll 1
    for (int turn = 0; turn < there * GW_NORM_FOURS; turn++) {
        const int r = turn / GW_NORM_FOURS, k = turn % GW_NORM_FOURS;
        const int i = 4 * (int)threadIdx.x + k * GW_NORM_STEP;
        if (i < end) {
            const gw_norm_four w = gw_norm_early(weights, k);
            const int block = i / GW_ACT_BLOCK * GW_ACT_WORDS;
            gw_act8_four code;
            float v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[j] = (mine[r * apart + j * pitch + i / 32] * free[r]) * w.v[j];
            }
            code.encode(v);
            if (blockIdx.x == 0 && r < live && i < width) {
                code.store((unsigned *)p.normed + block +
                           (size_t)(first + r) * (size_t)(p.terms * GW_ACT_WORDS));
            }
            code.sums = K::number(code.scale, code.sums);
            K::store(code, x + r * p.row_words, i / GW_ACT_BLOCK);
        }
    }
}

#endif
