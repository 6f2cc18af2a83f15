/* kernels_hip/gemm/gemm_half.h - what the prompt's products on 16-bit matrix instructions share
 * (gemm_half.hip, gemm_group.hip): stages of weights and tokens in shared memory.
 *
 * Weights stay as they lie: a strip of 16 rows has records of 32 columns, 1 KB each, in the order
 * that the matrix instruction takes them; activations follow in the same order of columns.
 */
#ifndef GW_KERNELS_HIP_GEMM_HALF_H
#define GW_KERNELS_HIP_GEMM_HALF_H

#include "kernels_hip/gemm/gemm_tile.h"

#if GW_MMA
enum { RECORD = 1024, RECORDS = 2, TOKEN_BYTES = RECORDS * 64 };

/* 16 bytes `chunk` of a token's part of a stage; neighbouring tokens use different banks. */
__device__ static inline int chunk_at(int token, int chunk) {
    return token * TOKEN_BYTES + ((chunk ^ token) & 7) * 16;
}

template <class T> struct half_stage {
    enum {
        CHUNKS = RECORDS * RECORD / 16, /* 16 bytes each: of a strip, of a token */
        X_CHUNKS = TOKEN_BYTES / 16,
        W_EACH = T::STRIPS * CHUNKS / T::THREADS,
        X_EACH = T::TOKENS * X_CHUNKS / T::THREADS,
        TOKENS_AT = T::STRIPS * RECORDS * RECORD,
        BYTES = TOKENS_AT + T::TOKENS * TOKEN_BYTES
    };
};

/* What a thread copies next. */
template <class T> struct half_source {
    const uint8_t *w[half_stage<T>::W_EACH], *x[half_stage<T>::X_EACH];
};

template <class T>
__device__ static inline void half_begin(half_source<T> &l, const gw_gemm_params &p,
                                         const gw_tile_at &at, int records) {
    typedef half_stage<T> S;
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        const int id = (int)threadIdx.x + i * T::THREADS, s = id / S::CHUNKS;
        const size_t strip = (size_t)gw_tile_strip(p, at, s);
        l.w[i] = gw_tile_weight(p, at, s).plane[0] + strip * records * RECORD + id % S::CHUNKS * 16;
    }
#pragma unroll
    for (int i = 0; i < S::X_EACH; i++) {
        const int id = (int)threadIdx.x + i * T::THREADS, t = at.token + id / S::X_CHUNKS;
        const size_t token = (size_t)(t < at.live ? t : at.live - 1);
        l.x[i] = (const uint8_t *)p.x + token * records * 64 + id % S::X_CHUNKS * 16;
    }
}

/* One stage: RECORDS records of every strip, and as much of every token. */
template <class T>
__device__ static inline void half_load(half_source<T> &l, int there, gw_shared_at to) {
    typedef half_stage<T> S;
    if (there) {
#pragma unroll
        for (int i = 0; i < S::W_EACH; i++) {
            gw_copy_async(to + ((int)threadIdx.x + i * T::THREADS) * 16, l.w[i]);
            l.w[i] += RECORDS * RECORD;
        }
        const gw_shared_at x = to + S::TOKENS_AT;
#pragma unroll
        for (int i = 0; i < S::X_EACH; i++) {
            const int id = (int)threadIdx.x + i * T::THREADS;
            gw_copy_async(x + chunk_at(id / S::X_CHUNKS, id % S::X_CHUNKS), l.x[i]);
            l.x[i] += TOKEN_BYTES;
        }
    }
    gw_copy_commit();
}

/* A lane's part of record r of its strips: words of 16 bytes by k step and operand. */
template <class T>
__device__ static inline void half_weights(gw_16b (*w)[T::AR], const gw_tile_at &at,
                                           const unsigned char *from, int r) {
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            const int place = gw_tile_row(at.lane, k) * 64 + gw_tile_pair(at.lane) * 16;
            w[i][k] = *(const gw_16b *)(from + ((at.m + i) * RECORDS + r) * RECORD + place);
        }
    }
}

/* Operands of k step `half` of a record. */
template <class T>
__device__ static inline void half_operands(unsigned (*a)[GW_MMA_A], const gw_16b (*w)[T::AR],
                                            int half) {
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
#pragma unroll
        for (int k = 0; k < GW_MMA_A; k++) {
            a[i][k] = w[i][k % T::AR].w[half * 2 + k / T::AR];
        }
    }
}

/* Sums times the powers of two of their rows. */
template <class T>
__device__ static inline void half_scale(const gw_gemm_params &p, const gw_tile_at &at,
                                         float (*acc)[T::NT][GW_MMA_C]) {
#pragma unroll
    for (int j = 0; j < T::NT; j++) {
#pragma unroll
        for (int k = 0; k < GW_MMA_C; k++) {
            const int t = at.token + at.n + j * GW_MMA_N + gw_mma_c_col(at.lane, k);
            const float by = p.scale[t < at.live ? t : at.live - 1];
#pragma unroll
            for (int i = 0; i < T::MT; i++) {
                acc[i][j][k] = acc[i][j][k] * by;
            }
        }
    }
}

#endif

#endif
