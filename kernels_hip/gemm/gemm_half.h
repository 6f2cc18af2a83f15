/* kernels_hip/gemm/gemm_half.h - what the prompt's products on 16-bit matrix instructions share
 * (gemm_half.hip, gemm_group.hip): stages of weights and tokens in shared memory.
 *
 * Weights stay as they lie: a strip of 16 rows has records of 32 columns, 1 KB each, in the order
 * that the matrix instruction takes them; activations follow in the same order of columns. E4M3
 * (E: 1) has half as many bytes, which become binary16 on their way to registers; the sums of a
 * block of 128 columns, four records, are multiplied by its rows' floats and added to a total.
 */
#ifndef GW_KERNELS_HIP_GEMM_HALF_H
#define GW_KERNELS_HIP_GEMM_HALF_H

#include "kernels_hip/gemm/gemm_tile.h"
#include "kernels_hip/strip_e4m3.h"

#if GW_MMA
enum { RECORD = 1024, RECORDS = 2, TOKEN_BYTES = RECORDS * 64 };

/* 16 bytes `chunk` of a token's part of a stage; neighbouring tokens use different banks. */
__device__ static inline int chunk_at(int token, int chunk) {
    return token * TOKEN_BYTES + ((chunk ^ token) & 7) * 16;
}

template <class T, int E> struct half_stage {
    enum {
        BYTES_OF_RECORD = E ? (int)GW_STRIP_E4M3_CLASS : (int)RECORD,
        CHUNKS = RECORDS * BYTES_OF_RECORD / 16, /* 16 bytes each: of a strip, of a token */
        X_CHUNKS = TOKEN_BYTES / 16,
        W_EACH = T::STRIPS * CHUNKS / T::THREADS,
        X_EACH = T::TOKENS * X_CHUNKS / T::THREADS,
        TOKENS_AT = T::STRIPS * RECORDS * BYTES_OF_RECORD,
        BYTES = TOKENS_AT + T::TOKENS * TOKEN_BYTES
    };
};

/* Of a row's quarter in a record of E4M3. */
struct __align__(8) half_codes {
    unsigned w[2];
};

/* Two codes of a word as they are multiplied, HALF_UP times gw_e4m3_value: matrix units of AMD take
 * subnormals for zeros. */
#if defined(GW_AMD)
#define HALF_UP 256.0f
__device__ static inline unsigned half_of_codes(unsigned word, int k) {
    typedef _Float16 half2v __attribute__((ext_vector_type(2)));
    union {
        unsigned w;
        half2v h;
    } v = {gw_e4m3_halves(word, k)};
    v.h = v.h * (_Float16)HALF_UP;
    return v.w;
}
#else
#define HALF_UP 1.0f
__device__ static inline unsigned half_of_codes(unsigned word, int k) {
    return gw_e4m3_halves(word, k);
}
#endif

/* What a thread copies next. */
template <class T, int E> struct half_source {
    const uint8_t *w[half_stage<T, E>::W_EACH], *x[half_stage<T, E>::X_EACH];
    int stage; /* E: how many have been asked for */
};

/* Strip s of the tile. */
template <int E>
__device__ static inline const uint8_t *half_strip(const gw_gemm_params &p, const gw_tile_at &at,
                                                   int s, int records) {
    const size_t bytes = E ? (size_t)records / 4 * GW_STRIP_E4M3_RECORD : (size_t)records * RECORD;
    return gw_tile_weight(p, at, s).plane[0] + (size_t)gw_tile_strip(p, at, s) * bytes;
}

template <class T, int E>
__device__ static inline void half_begin(half_source<T, E> &l, const gw_gemm_params &p,
                                         const gw_tile_at &at, int records) {
    typedef half_stage<T, E> S;
    l.stage = 0;
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        const int id = (int)threadIdx.x + i * T::THREADS, s = id / S::CHUNKS;
        l.w[i] = half_strip<E>(p, at, s, records) + id % S::CHUNKS * 16;
    }
#pragma unroll
    for (int i = 0; i < S::X_EACH; i++) {
        const int id = (int)threadIdx.x + i * T::THREADS, t = at.token + id / S::X_CHUNKS;
        const size_t token = (size_t)(t < at.live ? t : at.live - 1);
        l.x[i] = (const uint8_t *)p.x + token * records * 64 + id % S::X_CHUNKS * 16;
    }
}

/* One stage: RECORDS records of every strip, and as much of every token. */
template <class T, int E>
__device__ static inline void half_load(half_source<T, E> &l, int there, gw_shared_at to) {
    typedef half_stage<T, E> S;
    if (there) {
        /* Behind every second stage of E4M3 are the floats of rows. */
        const int floats = E && l.stage % 2 ? GW_STRIP_E4M3_RECORD - GW_STRIP_E4M3_CODES : 0;
        l.stage++;
#pragma unroll
        for (int i = 0; i < S::W_EACH; i++) {
            gw_copy_async(to + ((int)threadIdx.x + i * T::THREADS) * 16, l.w[i]);
            l.w[i] += RECORDS * S::BYTES_OF_RECORD + floats;
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
template <class T, int E>
__device__ static inline void half_weights(gw_16b (*w)[T::AR], const gw_tile_at &at,
                                           const unsigned char *from, int r) {
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
#pragma unroll
        for (int k = 0; k < T::AR; k++) {
            const unsigned char *record =
                from + ((at.m + i) * RECORDS + r) * half_stage<T, E>::BYTES_OF_RECORD;
            const int place = gw_tile_row(at.lane, k) * 4 + GW_TILE_PAIR(at.lane, k);
            if (E) {
                const half_codes codes = *(const half_codes *)(record + 8 * place);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    w[i][k].w[e] = half_of_codes(codes.w[e / 2], e % 2);
                }
            } else {
                w[i][k] = *(const gw_16b *)(record + 16 * place);
            }
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

/* Floats of the rows of a lane's results in block n of 128 columns of E4M3. */
template <class T>
__device__ static inline void half_floats(float (*scale)[T::CR], const gw_gemm_params &p,
                                          const gw_tile_at &at, int records, int n) {
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
        const uint8_t *strip = half_strip<1>(p, at, at.m + i, records);
        const float *of =
            (const float *)(strip + (size_t)n * GW_STRIP_E4M3_RECORD + GW_STRIP_E4M3_CODES);
#pragma unroll
        for (int k = 0; k < T::CR; k++) {
            scale[i][k] = of[gw_mma_c_row(at.lane, k * T::CC)];
        }
    }
}
/* The block's sums to the totals; the next block's begin anew. */
template <class T>
__device__ static inline void half_total(float (*total)[T::NT][GW_MMA_C],
                                         float (*acc)[T::NT][GW_MMA_C],
                                         const float (*scale)[T::CR]) {
#pragma unroll
    for (int i = 0; i < T::MT; i++) {
#pragma unroll
        for (int j = 0; j < T::NT; j++) {
#pragma unroll
            for (int k = 0; k < GW_MMA_C; k++) {
                total[i][j][k] = fmaf(scale[i][k / T::CC], acc[i][j][k], total[i][j][k]);
                acc[i][j][k] = 0.0f;
            }
        }
    }
}

/* Sums times the powers of two of their rows. */
template <class T, int E>
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
                acc[i][j][k] = acc[i][j][k] * (E ? by * (1.0f / HALF_UP) : by);
            }
        }
    }
}

#endif

#endif
