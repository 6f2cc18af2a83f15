/* kernels_hip/norm.h - a row through NORM by a block of threads: the factor (docs/arithmetic.md,
 * section 5), and the row times it, as f32 or act8. Of its own launch (rows.hip), and of every
 * block of a product that has the norm in front of it (linear_stream.h).
 *
 * One row is all latency. Its 32 chains are one team's work, so they lie in shared memory chain by
 * chain; a thread keeps the values that it brings there, to scale them, and the weights come before
 * the wait for earlier launches.
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

/* Four neighbours of a row of `width` from i on; beyond it 0. WHOLE: the width is a multiple of 4,
 * and rows begin at 16 bytes. */
template <int WHOLE>
__device__ static inline gw_norm_four gw_norm_take(const float *row, int width, int i) {
    gw_norm_four r = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (WHOLE) {
        return i < width ? gw_norm_read(row + i) : r;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        r.v[j] = i + j < width ? row[i + j] : 0.0f;
    }
    return r;
}

/* The first fours of this thread. */
template <int WHOLE, int FOURS = GW_NORM_FOURS>
__device__ static inline void gw_norm_ask(const float *row, int width, gw_norm_four *early) {
#pragma unroll
    for (int k = 0; k < FOURS; k++) {
        early[k] = gw_norm_take<WHOLE>(row, width, 4 * (int)threadIdx.x + k * GW_NORM_STEP);
    }
}

/* Four number k of those asked for. */
template <int FOURS = GW_NORM_FOURS>
__device__ static inline gw_norm_four gw_norm_early(const gw_norm_four *early, int k) {
    gw_norm_four r = early[FOURS - 1];
#pragma unroll
    for (int m = FOURS - 2; m >= 0; m--) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            r.v[j] = k == m ? early[m].v[j] : r.v[j];
        }
    }
    return r;
}

/* A lane's chain continued over `terms` of it, a multiple of 2 AHEAD. */
GW_DEVICE float gw_squares(const float *chain, int terms, float sum) {
    enum { AHEAD = GW_NORM_GROUP / 2 };
    float x[2][AHEAD]; /* one is on its way while the other is added */
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        x[0][j] = chain[j];
    }
#pragma unroll 2
    for (int i = 0; i < terms; i += AHEAD) {
        const int next = i + AHEAD < terms ? i + AHEAD : i;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            x[1][j] = chain[next + j];
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            sum = GW_FMA(x[0][j], x[0][j], sum);
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            x[0][j] = x[1][j];
        }
    }
    return sum;
}

/* The factor of a row, in *factor too; the first GW_NORM_THREADS threads of a block call it.
 * values: the first fours of this thread. stage: GW_NORM_STAGE(piece) floats of shared memory,
 * where the row passes `piece` values at a time. */
template <int WHOLE, int FOURS = GW_NORM_FOURS>
__device__ static inline float gw_norm_factor(const float *row, int width, float eps, float *stage,
                                              int piece, float *factor,
                                              const gw_norm_four *values) {
    const int team = gw_team(), lane = gw_lane(), pitch = GW_NORM_PITCH(piece);
    float *first = stage + lane % 8 * 4 * pitch, sum = 0.0f;
    for (int base = 0, k = 0; base < width; base += piece) {
        const int end = base + piece < width ? base + piece : width;
        const int spans = (end - base + GW_NORM_SPAN - 1) / GW_NORM_SPAN;
        if (base > 0) {
            gw_sync_some<1, GW_NORM_THREADS>();
        }
#pragma unroll 1
        for (int i = 4 * (int)threadIdx.x; i < spans * GW_NORM_SPAN; i += GW_NORM_STEP, k++) {
            const gw_norm_four v = k < FOURS && base == 0
                                       ? gw_norm_early<FOURS>(values, k)
                                       : gw_norm_take<WHOLE>(row, width, base + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                first[j * pitch + i / 32] = v.v[j];
            }
        }
        gw_sync_some<1, GW_NORM_THREADS>();
        if (team == 0) {
            sum = gw_squares(stage + lane * pitch, spans * GW_NORM_GROUP, sum);
        }
    }
    if (team == 0) {
        sum = gw_fold(sum);
        if (lane == 0) {
            *factor = gw_rms_scale(sum, width, eps);
        }
    }
    gw_sync_some<1, GW_NORM_THREADS>();
    return *factor;
}

/* The row times factor and weight, four neighbours of a thread at a time, `put` with the first of
 * them as put(i, values), values of whole teams: those beyond the width are 0. weights, values: the
 * first fours of this thread. */
template <int WHOLE, int FOURS = GW_NORM_FOURS, class Put>
__device__ static inline void gw_norm_apply(const float *row, const float *weight, int width,
                                            float factor, const gw_norm_four *weights,
                                            const gw_norm_four *values, Put put) {
    const int end = (width + 127) / 128 * 128; /* whole teams */
#pragma unroll 1
    for (int i = 4 * (int)threadIdx.x, k = 0; i < end; i += GW_NORM_STEP, k++) {
        gw_norm_four w, v;
        if (k < FOURS) {
            w = gw_norm_early<FOURS>(weights, k);
            v = gw_norm_early<FOURS>(values, k);
        } else {
            w = gw_norm_take<WHOLE>(weight, width, i);
            v = gw_norm_take<WHOLE>(row, width, i);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v.v[j] = (v.v[j] * factor) * w.v[j];
        }
        put(i, v);
    }
}

#endif
