/* kernels_hip/rows/rope.h - q, k and v of a row on their way to attention and into the cache: head
 * norm, rotation, and the cells of each cache format.
 */
#ifndef GW_KERNELS_HIP_ROPE_H
#define GW_KERNELS_HIP_ROPE_H

#include "kernels_hip/device.h"
#include "kernels_hip/rows/rope_params.h"

/* A head of a row: those of q, then of k, then of v. */
struct gw_turning {
    const float *x, *weight, *angle; /* weight 0: no norm                    */
    float scale;
    int r, e, interleaved; /* r: how many values turn; of v none */

    /* The whole team calls it. */
    __device__ inline void open(const struct gw_rope_params &p, int row, int h, int pos) {
        const int is_v = h >= p.heads + p.kv_heads;
        x = p.in + ((size_t)row * (p.heads + 2 * p.kv_heads) + h) * p.e;
        weight = is_v ? (const float *)0 : h < p.heads ? p.q_norm : p.k_norm;
        angle = p.table + (size_t)pos * p.rope_dim;
        r = is_v ? 0 : p.rope_dim;
        e = p.e;
        interleaved = p.interleaved;
        scale = 0.0f;
        if (weight) {
            float sum = 0.0f;
            for (int i = gw_lane(); i < p.e; i += GW_LANES) {
                sum = GW_FMA(x[i], x[i], sum);
            }
            scale = gw_rms_scale(gw_fold(sum), p.e, p.eps);
        }
    }
    __device__ inline float normed(int i) const {
        return weight ? (x[i] * scale) * weight[i] : x[i];
    }
    __device__ inline float value(int i) const {
        const int half = r / 2;
        if (i >= r) {
            return normed(i);
        }
        const int second = interleaved ? i % 2 : i >= half;
        const int pair = interleaved ? i / 2 : i - (second ? half : 0);
        const int at = interleaved ? 2 * pair : pair, to = interleaved ? at + 1 : at + half;
        const float a = normed(at), b = normed(to), c = angle[pair], s = angle[half + pair];
        return second ? gw_rope_second(a, b, c, s) : gw_rope_first(a, b, c, s);
    }
    /* do_with(i, value i) for all of them, each by some lane: two that turn together by one. */
    template <class Do> __device__ inline void each(Do do_with) const {
        const int half = r / 2;
#pragma unroll 2
        for (int pair = gw_lane(); pair < half; pair += GW_LANES) {
            const int at = interleaved ? 2 * pair : pair, to = interleaved ? at + 1 : at + half;
            const float a = normed(at), b = normed(to), c = angle[pair], s = angle[half + pair];
            do_with(at, gw_rope_first(a, b, c, s));
            do_with(to, gw_rope_second(a, b, c, s));
        }
#pragma unroll 4
        for (int i = r + gw_lane(); i < e; i += GW_LANES) {
            do_with(i, normed(i));
        }
    }
};

/* Cells of the caches (core/plan/op.h): value x as cell `at`, and what scales it at `scale_at`.
 * Where SCALED the whole team calls put, lane i % 32 with value i of a head. */
struct gw_put_f32 {
    typedef float cell;
    enum { SCALED = 0 };
    __device__ static inline void put(cell *cells, int at, gw_u16 *, int, float x) {
        cells[at] = x;
    }
};
struct gw_put_f16 {
    typedef gw_u16 cell;
    enum { SCALED = 0 };
    __device__ static inline void put(cell *cells, int at, gw_u16 *, int, float x) {
        cells[at] = gw_narrow_f16(x);
    }
};
struct gw_put_q8_0 { /* the encoder of core/tensor/formats.c */
    typedef gw_i8 cell;
    enum { SCALED = 1 };
    __device__ static inline void put(cell *cells, int at, gw_u16 *scales, int scale_at, float x) {
        const unsigned top = gw_team_max(GW_F32_BITS(x) & 0x7fffffffu);
        gw_u16 half = 0x7e00; /* NaN */
        if (top < 0x7f800000u) {
            half = gw_f32_to_f16(GW_F32_FROM_BITS(top) / 127.0f);
            half = half >= 0x7c00 ? (gw_u16)0x7bff : half;
        }
        const float d = gw_f16_to_f32(half);
        float code = d > 0.0f ? x / d : 0.0f;
        code = code < -127.0f ? -127.0f : code > 127.0f ? 127.0f : code;
        cells[at] = (gw_i8)GW_RINT(code);
        if (gw_lane() == 0) {
            scales[scale_at] = half;
        }
    }
};

#endif
