/* kernels_hip/gemm/gemm_half.hip - the prompt's products with F16, BF16 and E4M3 weights on 16-bit
 * matrix instructions: LINEAR and GLU.
 *
 * Activations are rounded to the weights' format (for F16 after scaling a row by a power of two, so
 * that nothing overflows; E4M3 is multiplied as F16); products are summed in binary32 in one order
 * over k, which depends on nothing but k. So the result of a row is independent of the rows beside
 * it; its bits are the matrix unit's own. The ordered kernels of gemm_float.hip have the bits of
 * every other backend.
 */
#include "kernels_hip/gemm/gemm_half.h"
#include "kernels_hip/narrow.h"

#if GW_MMA

enum { WIDE = GW_QUADS, STAGES = GW_HALF_STAGES(WIDE, 0) };

/* Two tiles of tokens, both registers of each, of the k step whose chunks begin at `chunk`. */
__device__ static inline void half_tokens(unsigned *b, const unsigned char *x, int token, int chunk,
                                          int lane) {
#ifdef GW_LOAD_MATRICES
    gw_load_matrices(b, x + chunk_at(token + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
#elif GW_WMMA
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int t = token + k / 2 * GW_MMA_N + gw_mma_b_col(lane);
        gw_wmma_load(b + k * GW_WMMA_QUARTERS, x + chunk_at(t, chunk + k % 2), lane);
    }
#else
#pragma unroll
    for (int k = 0; k < 2 * GW_MMA_B; k++) {
        const int t = token + k / 2 * GW_MMA_N + gw_mma_b_col(lane);
        b[k] = *(const unsigned *)(x + chunk_at(t, chunk + k % 2) + gw_tile_pair(lane) * 4);
    }
#endif
}

enum { F16, BF16, E4M3 };

template <class T, int FORMAT>
__device__ static inline void half_compute(const gw_tile_at &at, const unsigned char *stage,
                                           float (*acc)[T::NT][GW_MMA_C]) {
    const unsigned char *x = stage + half_stage<T, FORMAT == E4M3>::TOKENS_AT;
#pragma unroll
    for (int r = 0; r < RECORDS; r++) {
        gw_16b w[T::MT][T::AR];
        half_weights<T, FORMAT == E4M3>(w, at, stage, r);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned a[T::MT][GW_MMA_A];
            half_operands<T>(a, w, half);
#pragma unroll
            for (int j = 0; j < T::NT; j += 2) {
                unsigned b[2 * GW_MMA_B];
                half_tokens(b, x, at.n + j * GW_MMA_N, r * 4 + half * 2, at.lane);
#pragma unroll
                for (int i = 0; i < T::MT; i++) {
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        if (FORMAT == BF16) {
                            gw_mma_bf16(acc[i][j + n], a[i], b + n * GW_MMA_B);
                        } else {
                            gw_mma_f16(acc[i][j + n], a[i], b + n * GW_MMA_B);
                        }
                    }
                }
            }
        }
    }
}

template <class T, int FORMAT>
__device__ static inline void half_gemm(const gw_gemm_params &p, unsigned char *shared) {
    enum { E = FORMAT == E4M3, STAGE = half_stage<T, E>::BYTES, BLOCK = 4 /* records */ };
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_tile_at at = gw_tile_find<T>(p, (int)blockIdx.x);
    const int records = (p.k + 127) / 128 * 4;
    if (at.live == 0) {
        return;
    }
    typedef float sums_of[T::MT][T::NT][GW_MMA_C];
    sums_of acc, total;
#pragma unroll
    for (int i = 0; i < T::MT * T::NT * GW_MMA_C; i++) {
        const int m = i / GW_MMA_C / T::NT, n = i / GW_MMA_C % T::NT;
        acc[m][n][i % GW_MMA_C] = total[m][n][i % GW_MMA_C] = 0.0f;
    }
    const gw_shared_at to = gw_shared_address(shared);
    half_source<T, E> l;
    half_begin<T, E>(l, p, at, records);
#pragma unroll
    for (int s = 0; s + 1 < STAGES; s++) {
        half_load<T, E>(l, s * RECORDS < records, to + s * STAGE);
    }
    float scale[T::MT][T::CR];
    for (int r = 0, turn = 0; r < records; r += RECORDS, turn = (turn + 1) % STAGES) {
        if (E && r % BLOCK == 0) { /* they have the block's time to come */
            half_floats<T>(scale, p, at, records, r / BLOCK);
        }
        gw_copy_wait<STAGES - 2>();
        __syncthreads();
        const int next = (turn + STAGES - 1) % STAGES;
        half_load<T, E>(l, r + (STAGES - 1) * RECORDS < records, to + next * STAGE);
        half_compute<T, FORMAT>(at, shared + turn * STAGE, acc);
        if (E && r % BLOCK == BLOCK - RECORDS) {
            half_total<T>(total, acc, scale);
        }
    }
    __syncthreads();
    sums_of &sums = E ? total : acc;
    if (FORMAT != BF16) {
        half_scale<T, E>(p, at, sums);
    }
    if (p.glu) {
        gw_tile_glu<T>(p, at, sums, (float *)shared);
    } else {
        gw_tile_linear<T>(p, at, sums);
    }
}

/* Rows of activations to 16 bits. */
GW_KERNEL(gw_narrow, struct gw_narrow_params, GW_NARROW_THREADS) {
    __shared__ unsigned room[GW_NARROW_THREADS / GW_LANES];
    const int row = (int)blockIdx.x;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const float *x = p.x + (size_t)row * p.k;
    const int fours = p.k % 4 == 0 ? p.k : 0; /* in whole words of 16 bytes */
    unsigned top = 0;
    for (int i = (int)threadIdx.x * 4; i < fours && !p.to.bf16; i += GW_NARROW_THREADS * 4) {
        const gw_16b v = *(const gw_16b *)(x + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            top = gw_larger(top, v.w[j] & 0x7fffffffu);
        }
    }
    for (int i = fours + (int)threadIdx.x; i < p.k && !p.to.bf16; i += GW_NARROW_THREADS) {
        top = gw_larger(top, GW_F32_BITS(x[i]) & 0x7fffffffu);
    }
    top = p.to.bf16 ? 0 : gw_narrow_top(top, room);
    const int me = (int)threadIdx.x;
    gw_narrow_row(p.to, row, p.k, top, me, GW_NARROW_THREADS, [&](int c, float *v) {
        if (fours && c + 8 <= p.k) {
#pragma unroll
            for (int h = 0; h < 8; h += 4) {
                const gw_16b four = *(const gw_16b *)(x + c + h);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    v[h + j] = GW_F32_FROM_BITS(four.w[j]);
                }
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = c + i < p.k ? x[c + i] : 0.0f;
        }
    });
}

typedef gw_tile<GW_GEMM_ROWS, GW_GEMM_TOKENS(WIDE), LANES == 32 ? 4 : 2, 2> half_tile;

GW_KERNEL(gw_gemm_half_f16, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_DYNAMIC(unsigned char, shared);
    half_gemm<half_tile, F16>(p, shared);
}
GW_KERNEL(gw_gemm_half_bf16, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_DYNAMIC(unsigned char, shared);
    half_gemm<half_tile, BF16>(p, shared);
}
GW_KERNEL(gw_gemm_half_e4m3, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_DYNAMIC(unsigned char, shared);
    half_gemm<half_tile, E4M3>(p, shared);
}

#endif
