/* kernels_hip/norm.h - a row through NORM by a block of threads: the factor (docs/arithmetic.md,
 * section 5), and the row times it, as f32 or act8. Of its own launch (rows.hip), and of every
 * block of a product that has the norm in front of it (linear_stream.h).
 *
 * One row is all latency. Its 32 chains are one team's work, so they lie in shared memory chain by
 * chain, four terms to a load; the weights come before the wait for earlier launches, and each
 * thread's values while the chains are added up.
 */
#ifndef GW_KERNELS_HIP_NORM_H
#define GW_KERNELS_HIP_NORM_H

#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/norm_params.h"

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

/* Four neighbours of a row of `width`, a multiple of 4; beyond it 0. */
GW_DEVICE gw_norm_four gw_norm_take(const float *row, int width, int i) {
    const gw_norm_four none = {{0.0f, 0.0f, 0.0f, 0.0f}};
    return i < width ? gw_norm_read(row + i) : none;
}

/* The first fours of this thread. */
GW_DEVICE void gw_norm_ask(const float *row, int width, gw_norm_four *early) {
#pragma unroll
    for (int k = 0; k < GW_NORM_FOURS; k++) {
        early[k] = gw_norm_take(row, width, 4 * (int)threadIdx.x + k * GW_NORM_STEP);
    }
}

/* A lane's chain continued over `fours` times four terms, an even number. */
GW_DEVICE float gw_squares(const float *chain, int fours, float sum) {
    enum { AHEAD = GW_NORM_GROUP / 4 };
    gw_norm_four x[2][AHEAD]; /* one is on its way while the other is added */
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        x[0][j] = gw_norm_read(chain + 4 * j);
    }
#pragma unroll 2
    for (int i = 0; i < fours; i += AHEAD) {
        const int next = i + AHEAD < fours ? i + AHEAD : i;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            x[1][j] = gw_norm_read(chain + 4 * (next + j));
        }
#pragma unroll
        for (int j = 0; j < 4 * AHEAD; j++) {
            sum = GW_FMA(x[0][j / 4].v[j % 4], x[0][j / 4].v[j % 4], sum);
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            x[0][j] = x[1][j];
        }
    }
    return sum;
}

/* The factor of a row, in *factor too; all GW_NORM_THREADS threads call it. stage: GW_NORM_STAGE(
 * piece) floats of shared memory, 16 byte aligned, where the row passes `piece` values at a time.
 * meanwhile() is called once, by all threads, as soon as the first piece has been asked for. */
template <class Meanwhile>
__device__ static inline float gw_norm_factor(const float *row, int width, float eps, float *stage,
                                              int piece, float *factor, Meanwhile meanwhile) {
    enum { TEAMS = GW_NORM_THREADS / GW_LANES, GROUP = GW_NORM_GROUP, SPAN = GROUP * GW_LANES };
    const int team = gw_team(), lane = gw_lane();
    float *chain = stage + lane * GW_NORM_PITCH(piece), sum = 0.0f;
    for (int base = 0; base < width; base += piece) {
        const int end = base + piece < width ? base + piece : width;
        if (base > 0) {
            __syncthreads();
        }
#pragma unroll 1
        for (int g = team;; g += TEAMS) {
            const int from = base + g * SPAN, there = from < end;
            float v[GROUP];
#pragma unroll
            for (int k = 0; k < GROUP; k++) {
                const int i = from + k * GW_LANES + lane;
                v[k] = there && i < width ? row[i] : 0.0f; /* which adds nothing */
            }
            if (base == 0 && g == team) {
                meanwhile();
            }
            if (!there) {
                break;
            }
#pragma unroll
            for (int k = 0; k < GROUP; k += 4) {
                const gw_norm_four four = {{v[k], v[k + 1], v[k + 2], v[k + 3]}};
                *(gw_norm_four *)(chain + g * GROUP + k) = four;
            }
        }
        __syncthreads();
        if (team == 0) {
            sum = gw_squares(chain, (end - base + SPAN - 1) / SPAN * (GROUP / 4), sum);
        }
    }
    if (team == 0) {
        sum = gw_fold(sum);
        if (lane == 0) {
            *factor = gw_rms_scale(sum, width, eps);
        }
    }
    __syncthreads();
    return *factor;
}

/* The row, of a width that is a multiple of 4, times factor and weight, four neighbours of a thread
 * at a time, `put` with the first of them as put(i, values), values of whole teams: those beyond
 * the width are 0. weights, values: the first fours of this thread. */
template <class Put>
__device__ static inline void gw_norm_apply(const float *row, const float *weight, int width,
                                            float factor, const gw_norm_four *weights,
                                            const gw_norm_four *values, Put put) {
    const int end = (width + 127) / 128 * 128; /* whole teams */
#pragma unroll 1
    for (int i = 4 * (int)threadIdx.x, k = 0; i < end; i += GW_NORM_STEP, k++) {
        gw_norm_four w, v;
        if (k < GW_NORM_FOURS) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                w.v[j] = k == 0 ? weights[0].v[j] : weights[1].v[j];
                v.v[j] = k == 0 ? values[0].v[j] : values[1].v[j];
            }
        } else {
            w = gw_norm_take(weight, width, i);
            v = gw_norm_take(row, width, i);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v.v[j] = (v.v[j] * factor) * w.v[j];
        }
        put(i, v);
    }
}

#endif
