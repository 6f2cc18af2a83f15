/* kernels_hip/attention/attention.h - what the kernels of attention share: pages that a row sees,
 * cells of the caches, and ROPE_KV of a step of one row.
 */
#ifndef GW_KERNELS_HIP_ATTENTION_H
#define GW_KERNELS_HIP_ATTENTION_H

#include "kernels_hip/attention/attention_params.h"
#include "kernels_hip/device.h"
#include "kernels_hip/rows/rope.h"

/* Pages [first, last] that a row sees. */
struct gw_span {
    int lo, pos, first, last;
};
GW_DEVICE gw_span span_of(const struct gw_step_params &step, int row, int window) {
    gw_span s;
    s.pos = gw_step_pos(step, row);
    s.lo = window > 0 && s.pos >= window ? s.pos - window + 1 : 0;
    s.first = s.lo / GW_PAGE;
    s.last = s.pos / GW_PAGE;
    return s;
}

template <int N> struct alignas(N < 4 ? 4 * N : 16) gw_f32s { float v[N]; };
template <int N> struct alignas(N < 4 ? 4 * N : 16) gw_words { unsigned v[N]; };

/* The caches' formats (core/plan/op.h) in chunks: rows of K as [.., 64], of V as [.., e]. Two or
 * more neighbours at once, aligned to their size; scales: of q8_0 alone, as a page has them. */
GW_DEVICE void widen_halves(unsigned two, float *v) {
    v[0] = gw_widen_f16((gw_u16)two);
    v[1] = gw_widen_f16((gw_u16)(two >> 16));
}
/* A scale d of q8_0, and what takes the offset of a code with it in read_scaled. */
struct gw_scale {
    float d, offset;
    __device__ inline gw_scale(void) {}
    __device__ inline explicit gw_scale(float of) : d(of), offset(of * -32896.0f) {}
};
struct gw_cells_f32 {
    typedef gw_put_f32 put;
    enum { BYTES = 4, SCALED = 0 };
    template <int N> __device__ static inline void read(const uint8_t *chunk, int at, float *v) {
        const gw_f32s<N> x = *(const gw_f32s<N> *)((const float *)chunk + at);
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = x.v[i];
        }
    }
    template <int N>
    __device__ static inline void read_scaled(const uint8_t *chunk, int at, const gw_scale *,
                                              float *v) {
        read<N>(chunk, at, v);
    }
};
struct gw_cells_f16 {
    typedef gw_put_f16 put;
    enum { BYTES = 2, SCALED = 0 };
    template <int N> __device__ static inline void read(const uint8_t *chunk, int at, float *v) {
        const gw_u16 *p = (const gw_u16 *)chunk + at;
        if (N == 1) {
            v[0] = gw_widen_f16(*p);
        } else if (N == 2) {
            widen_halves(*(const unsigned *)p, v);
        } else {
            const gw_words<(N + 1) / 2> x = *(const gw_words<(N + 1) / 2> *)p;
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                widen_halves(x.v[i], v + 2 * i);
            }
        }
    }
    template <int N>
    __device__ static inline void read_scaled(const uint8_t *chunk, int at, const gw_scale *,
                                              float *v) {
        read<N>(chunk, at, v);
    }
};
struct gw_cells_q8_0 { /* without the scale */
    typedef gw_put_q8_0 put;
    enum { BYTES = 1, SCALED = 1 };
    template <int N> __device__ static inline void read(const uint8_t *chunk, int at, float *v) {
        const unsigned codes = N == 1   ? chunk[at]
                               : N == 2 ? *(const gw_u16 *)(chunk + at)
                                        : *(const unsigned *)(chunk + at);
#pragma unroll
        for (int i = 0; i < N; i++) { /* exact: 2^23 + 128 + code is a float */
            v[i] = GW_F32_FROM_BITS(0x4b000000u | ((codes >> 8 * i & 0xffu) ^ 0x80u)) - 8388736.0f;
        }
    }
    /* Times the scales: 2^15 + 128 + code as a float whose second byte is 128 + code, and 2^15 +
     * 128 is 128 * 257, so that its product with a binary16 is a float: one rounding, of d * code,
     * which is one too. */
    template <int N>
    __device__ static inline void read_scaled(const uint8_t *chunk, int at, const gw_scale *scale,
                                              float *v) {
        gw_words<(N + 3) / 4> codes;
        if (N > 4) {
            codes = *(const gw_words<(N + 3) / 4> *)(chunk + at);
        } else {
            codes.v[0] = N == 1   ? chunk[at]
                         : N == 2 ? *(const gw_u16 *)(chunk + at)
                                  : *(const unsigned *)(chunk + at);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const unsigned word = codes.v[i / 4] ^ 0x80808080u;
            const unsigned x = gw_pick_bytes(word, 0x47000000u, 0x03000000u | (4u + i % 4) << 8);
            v[i] = GW_FMA(GW_F32_FROM_BITS(x), scale[i].d, scale[i].offset);
        }
    }
};

GW_DEVICE float larger(float a, float b) { return b > a ? b : a; }
GW_DEVICE float team_top(float v) {
    v = larger(v, gw_partner<16>(v));
    v = larger(v, gw_partner<8>(v));
    v = larger(v, gw_partner<4>(v));
    v = larger(v, gw_partner<2>(v));
    return larger(v, gw_partner<1>(v));
}

/* Of the lanes of a half of a team, which have the pages of a group. */
GW_DEVICE float group_top(float v) {
    v = larger(v, gw_partner<8>(v));
    v = larger(v, gw_partner<4>(v));
    v = larger(v, gw_partner<2>(v));
    return larger(v, gw_partner<1>(v));
}

GW_DEVICE float minus_infinity(void) { return GW_F32_FROM_BITS(0xff800000u); }

/* gw_exp without a branch, so that several are made side by side. */
GW_DEVICE float exp_below(float x) {
    const float y = gw_exp(x < -87.0f ? -87.0f : x);
    return x < -87.0f ? 0.0f : y;
}

/* A head's sink behind its only group, whose largest score is `top`: a score without a value. */
GW_DEVICE void add_sink(float sink, float top, float *o, float *total) {
    const float best = larger(sink, top), by = exp_below(top - best);
    *o = *o * by;
    *total = *total * by;
    *total = *total + exp_below(sink - best);
}

/* A group of n pages joined (docs/arithmetic.md, section 5, step 4). v: this lane's value of the
 * first page, `stride` floats from page to page; top, sum: of page lane % GW_PAGE_GROUP, below all
 * where there is none. The whole team calls it. */
struct gw_group_sums {
    float top, sum, value;
};
__device__ static inline gw_group_sums join_pages(const float *v, int stride, float top, float sum,
                                                  int n) {
    gw_group_sums all = {group_top(top), 0.0f, 0.0f};
    const float share = exp_below(top - all.top);
#pragma unroll
    for (int k = 0; k < GW_PAGE_GROUP; k++) {
        const float by = gw_shuffle(share, k), more = gw_shuffle(sum, k);
        if (k < n) {
            all.sum = GW_FMA(more, by, all.sum);
            all.value = GW_FMA(v[k * stride], by, all.value);
        }
    }
    return all;
}

/* ---- ROPE_KV of a step of one row ------------------------------------------------------------ */

/* Heads side by side in shared memory through their norm and rotation, in place; angle: the
 * position's row of t.table. */
template <int HEADS>
__device__ static inline void turn_heads(const struct gw_rope_params &t, gw_f32s<HEADS> *v,
                                         const float *weight, const float *angle) {
    const int lane = gw_lane(), half = t.rope_dim / 2;
    gw_sync_team();
    if (weight) {
        float scale[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            scale[h] = 0.0f;
        }
#pragma unroll 1
        for (int i = lane; i < t.e; i += GW_LANES) {
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                scale[h] = GW_FMA(v[i].v[h], v[i].v[h], scale[h]);
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            scale[h] = gw_rms_scale(gw_fold(scale[h]), t.e, t.eps);
        }
#pragma unroll 1
        for (int i = lane; i < t.e; i += GW_LANES) {
            const float w = weight[i];
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                v[i].v[h] = (v[i].v[h] * scale[h]) * w;
            }
        }
        gw_sync_team();
    }
#pragma unroll 1
    for (int pair = lane; pair < half; pair += GW_LANES) {
        const int at = t.interleaved ? 2 * pair : pair, to = t.interleaved ? at + 1 : at + half;
        const float c = angle[pair], s = angle[half + pair];
        gw_f32s<HEADS> a = v[at], b = v[to];
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const float x = a.v[h], y = b.v[h];
            a.v[h] = gw_rope_first(x, y, c, s);
            b.v[h] = gw_rope_second(x, y, c, s);
        }
        v[at] = a;
        v[to] = b;
    }
    gw_sync_team();
}

/* A head's floats in shared memory -> cells in the same place, which are never wider. */
template <typename CELLS> __device__ static inline void narrow_head(uint8_t *fresh, int e) {
    typedef typename CELLS::put PUT;
    gw_u16 *scales = (gw_u16 *)(fresh + 4 * e);
#pragma unroll 1
    for (int base = 0; base < e; base += GW_LANES) {
        const int i = base + gw_lane();
        const float x = i < e ? ((const float *)fresh)[i] : 0.0f;
        gw_sync_team();
        if (i < e) {
            PUT::put((typename PUT::cell *)fresh, i, scales, i / 32, x);
        }
        gw_sync_team();
    }
}

#endif
