/* kernels_hip/experts/experts_sum.hip - products with experts' weights of any shape and format, in
 * both orders: a team per result, where the order is that of decode a lane for each of arith.h's,
 * else the first lane alone; of plain floats a thread per result where that is all that works. */
#include "kernels_hip/experts/experts.h"
#include "kernels_hip/gemm/gemm_record.h"
#include "kernels_hip/strip_e4m3.h"

enum { TEAMS = GW_EXPERTS_THREADS / GW_LANES };

/* ---- quantized weights ----------------------------------------------------------------------- */

/* The term of block i of a record. */
template <class F>
__device__ static inline float add_block(const uint8_t *record, int row, int i, const unsigned *act,
                                         float acc) {
    scales<F> s;
    float of_row[F::ROW], token[F::TOKEN];
    int sum[2] = {0, 0};
    load_scales<F>(s, record, row);
    row_numbers<F>(s, i, of_row);
#pragma unroll
    for (int t = 0; t < 4; t++) {
        quarter<F> q;
        load_quarter<F>(q, record, row, t);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int code = 0;
#pragma unroll
            for (int c = 0; c < BLOCKS; c++) { /* registers have constant numbers */
                code = c == i ? (int)codes<F, 0>(q, c, h) : code;
            }
            sum[F::HALVES ? h : 0] = gw_dp4a(code, (int)act[2 + 4 * h + t], sum[F::HALVES ? h : 0]);
        }
    }
    token_numbers<F>(GW_F32_FROM_BITS(act[0]), act[1], token);
    const float first = F::HALVES ? of_row[1 % F::ROW] * (float)sum[0] : (float)sum[0]; /* exact */
    return add_sums<F>(first, (float)sum[1], of_row, token, acc);
}

/* WHOLE: a record is one term. */
template <class F, int WHOLE> struct quantized {
    enum { STEP = WHOLE ? BLOCKS : 1 }; /* blocks of a term */
    __device__ static inline size_t x_bytes(int k) {
        return (size_t)(k / GW_ACT_BLOCK) * ACT_BYTES;
    }
    __device__ static inline int terms(int k) { return k / GW_ACT_BLOCK / STEP; }
    /* Number n of the terms of row r. */
    __device__ static inline float add(const uint8_t *w, int r, int k, int n, const uint8_t *x,
                                       float acc) {
        const int units = (k / GW_ACT_BLOCK + BLOCKS - 1) / BLOCKS, b = n * STEP;
        const uint8_t *record = w + ((size_t)(r / 16) * units + b / BLOCKS) * F::RECORD;
        const unsigned *act = (const unsigned *)(x + (size_t)b * ACT_BYTES);
        return WHOLE ? row_record<F>(record, r % 16).term(act, acc)
                     : add_block<F>(record, r % 16, b % BLOCKS, act, acc);
    }
};

/* ---- floats ---------------------------------------------------------------------------------- */

struct float_f32 {
    enum { BYTES = 4 };
    __device__ static inline float widen(const uint8_t *at) { return *(const float *)at; }
};
struct float_f16 {
    enum { BYTES = 2 };
    __device__ static inline float widen(const uint8_t *at) {
        return gw_widen_f16(*(const gw_u16 *)at);
    }
};
struct float_bf16 {
    enum { BYTES = 2 };
    __device__ static inline float widen(const uint8_t *at) {
        return gw_bf16_to_f32(*(const gw_u16 *)at);
    }
};
template <class F> struct floats {
    enum { STEP = 1, WIDE = F::BYTES == 4 };
    __device__ static inline size_t x_bytes(int k) { return (size_t)k * 4; }
    __device__ static inline int terms(int k) { return k; }
    __device__ static inline float add(const uint8_t *w, int r, int k, int n, const uint8_t *x,
                                       float acc) {
        const size_t records = (size_t)(k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
        const int c = n % GW_STRIP_FLOATS, e = c / 32;
        const int q = WIDE ? c % 32 / 4 : c % 32 / 8, t = WIDE ? c % 4 : c % 8 / 2;
        const uint8_t *record =
            w + ((size_t)(r / 16) * records + (size_t)(n / GW_STRIP_FLOATS)) * (WIDE ? 8192 : 4096);
        const uint8_t *at =
            record + 1024 * q + 64 * (r % 16) + 16 * t + (WIDE ? 4 * e : 2 * (2 * e + c % 2));
        return GW_FMA(((const float *)x)[n], F::widen(at), acc);
    }
};

struct floats_e4m3 {
    enum { STEP = 1 };
    __device__ static inline size_t x_bytes(int k) { return (size_t)k * 4; }
    __device__ static inline int terms(int k) { return k; }
    __device__ static inline float add(const uint8_t *w, int r, int k, int n, const uint8_t *x,
                                       float acc) {
        const size_t records = (size_t)(k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
        const int row = r % 16, c = n % 32, e = n % GW_STRIP_FLOATS / 32;
        const uint8_t *record =
            w + ((size_t)(r / 16) * records + (size_t)(n / GW_STRIP_FLOATS)) * GW_STRIP_E4M3_RECORD;
        const uint8_t code =
            record[GW_STRIP_E4M3_CLASS * (c / 8) + 32 * row + 8 * (c % 8 / 2) + 2 * e + c % 2];
        const float scale = ((const float *)(record + GW_STRIP_E4M3_CODES))[row];
        return GW_FMA(((const float *)x)[n], gw_e4m3_value(code) * scale, acc);
    }
};

struct floats_nvfp4 {
    enum { STEP = 1 };
    __device__ static inline size_t x_bytes(int k) { return (size_t)k * 4; }
    __device__ static inline int terms(int k) { return k; }
    __device__ static inline float add(const uint8_t *w, int r, int k, int n, const uint8_t *x,
                                       float acc) {
        const size_t records = (size_t)(k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
        const int row = r % 16, c = n % 32, e = n % GW_STRIP_FLOATS / 32;
        const size_t at = (size_t)(r / 16) * records + (size_t)(n / GW_STRIP_FLOATS);
        const uint8_t *record = w + at * GW_STRIP_NVFP4_RECORD;
        const uint8_t *codes = record + GW_STRIP_NVFP4_CLASS * (c / 8) + 16 * row + 4 * (c % 8 / 2);
        const float scale = gw_strip_nvfp4_scale(
            record + GW_STRIP_NVFP4_CODES + GW_STRIP_NVFP4_HEAD * row, e, c / 8);
        const float v = gw_widen_e2m1(*(const unsigned *)codes, 2 * e + c % 2);
        return GW_FMA(((const float *)x)[n], v * scale, acc);
    }
};

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Terms of the prefill order, of that of decode. */
template <class Prompt, class W>
__device__ static inline void sum_one(const struct gw_experts_params &p) {
    const int entry = (int)blockIdx.y, lane = gw_lane();
    const int i = (int)blockIdx.x * TEAMS + gw_team();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (entry >= gw_live(p.step) * p.used || i >= p.m) {
        return; /* whole teams */
    }
    const int r = gw_expert_of(p, entry) * p.m + i;
    const uint8_t *x =
        (const uint8_t *)p.x + (size_t)(p.by_entry ? entry : entry / p.used) * W::x_bytes(p.k);
    float acc = 0.0f;
    if (p.prefill) {
        for (int t = 0, n = Prompt::terms(p.k); t < n && lane == 0; t++) {
            acc = Prompt::add(p.w[0], r, p.k, t, x, acc);
        }
    } else {
        const int n = W::terms(p.k), mine = lane % W::STEP == 0 ? lane / W::STEP : n;
        for (int t = mine; t < n; t += GW_LANES / W::STEP) {
            acc = W::add(p.w[0], r, p.k, t, x, acc);
        }
#pragma unroll
        for (int h = 1; h < GW_LANES; h *= 2) {
            acc = acc + gw_shuffle_xor(acc, h);
        }
    }
    if (lane == 0) {
        p.sums[0][(size_t)entry * p.m + i] = gw_expert_sum(p, entry, 0, (size_t)r, acc);
    }
}

/* The same with a thread for each result: chains of the prefill order, and of decode results of at
 * most GW_LANES terms, whose lanes have one each and are joined here as gw_shuffle_xor joins
 * them. */
template <class W> __device__ static inline void sum_each(const struct gw_experts_params &p) {
    const size_t n = (size_t)blockIdx.x * GW_EXPERTS_THREADS + threadIdx.x;
    const int entry = (int)(n / p.m), i = (int)(n % p.m);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (entry >= gw_live(p.step) * p.used) {
        return;
    }
    const int r = gw_expert_of(p, entry) * p.m + i;
    const uint8_t *x =
        (const uint8_t *)p.x + (size_t)(p.by_entry ? entry : entry / p.used) * W::x_bytes(p.k);
    float acc = 0.0f;
    if (p.prefill) {
#pragma unroll 8
        for (int t = 0; t < p.k; t++) {
            acc = W::add(p.w[0], r, p.k, t, x, acc);
        }
    } else {
        float of[GW_LANES];
#pragma unroll
        for (int t = 0; t < GW_LANES; t++) {
            of[t] = t < p.k ? W::add(p.w[0], r, p.k, t, x, 0.0f) : 0.0f;
        }
#pragma unroll
        for (int h = 1; h < GW_LANES; h *= 2) {
#pragma unroll
            for (int t = 0; t < GW_LANES; t += 2 * h) {
                of[t] = of[t] + of[t + h];
            }
        }
        acc = of[0];
    }
    p.sums[0][n] = gw_expert_sum(p, entry, 0, (size_t)r, acc);
}

#define SUM_QUANTIZED(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)            \
    GW_KERNEL(gw_experts_sum_##name, struct gw_experts_params, GW_EXPERTS_THREADS) {               \
        typedef format<low, high, offset, levels, term, sub, heads, bytes> F;                      \
        sum_one<quantized<F, F::WHOLE>, quantized<F, F::SPAN>>(p);                                 \
    }
GW_STRIP_KERNELS(SUM_QUANTIZED)
#define SUM(name, kind)                                                                            \
    GW_KERNEL(gw_experts_sum_##name, struct gw_experts_params, GW_EXPERTS_THREADS) {               \
        sum_one<kind, kind>(p);                                                                    \
    }
#define EACH(name, kind)                                                                           \
    GW_KERNEL(gw_experts_each_##name, struct gw_experts_params, GW_EXPERTS_THREADS) {              \
        sum_each<kind>(p);                                                                         \
    }
SUM(f32, floats<float_f32>)
SUM(f16, floats<float_f16>)
SUM(bf16, floats<float_bf16>)
SUM(e4m3, floats_e4m3)
SUM(nvfp4_codes, floats_nvfp4)
EACH(f32, floats<float_f32>)
EACH(f16, floats<float_f16>)
EACH(bf16, floats<float_bf16>)
