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

#if GW_MMA

enum { WIDE = LANES == 32, STAGES = GW_HALF_STAGES(WIDE, 0) };

/* Column of place `at` within a piece of 128. */
__device__ static inline int piece_column(int at) {
    return at % 32 / 8 * 32 + at / 32 * 8 + at % 8;
}

/* Two tiles of tokens, both registers of each, of the k step whose chunks begin at `chunk`. */
__device__ static inline void half_tokens(unsigned *b, const unsigned char *x, int token, int chunk,
                                          int lane) {
#ifdef GW_LOAD_MATRICES
    gw_load_matrices(b, x + chunk_at(token + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
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

/* Where value `at` of a row, in the order of the records, stands (struct gw_narrow_params). */
__device__ static inline size_t narrow_at(const gw_narrow_params &p, int row, int pieces, int at) {
    if (!p.tiled) {
        return (size_t)row * pieces * 128 + at;
    }
    const size_t stage = (size_t)(row / 128) * pieces * 2 + at / 64;
    return stage * (128 * 64) + chunk_at(row % 128, at % 64 / 8) / 2 + at % 8;
}

/* One row of activations: to 16 bits, in the order of columns of the records. */
template <int FORMAT> __device__ static inline void narrow_row(const gw_narrow_params &p) {
    __shared__ unsigned largest[GW_NARROW_THREADS / GW_LANES];
    const int row = (int)blockIdx.x, pieces = (p.k + 127) / 128;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const float *x = p.x + (size_t)row * p.k;
    unsigned top = 0;
    for (int i = (int)threadIdx.x; i < p.k && FORMAT != BF16; i += GW_NARROW_THREADS) {
        top = gw_larger(top, GW_F32_BITS(x[i]) & 0x7fffffffu);
    }
    top = gw_team_max(top);
    if (gw_lane() == 0) {
        largest[gw_team()] = top;
    }
    __syncthreads();
    for (int i = 0; i < GW_NARROW_THREADS / GW_LANES; i++) {
        top = gw_larger(top, largest[i]);
    }
    /* The largest value gets the exponent 13: its bits less those of 2^13. */
    int shift = (int)(top >> 23) - (127 + 13);
    shift = shift < -100 ? -100 : shift > 100 ? 100 : shift;
    shift = FORMAT == BF16 || top >= 0x7f800000u ? 0 : shift;
    const float down = GW_F32_FROM_BITS((unsigned)(127 - shift) << 23);
    if (threadIdx.x == 0) {
        p.scale[row] = GW_F32_FROM_BITS((unsigned)(127 + shift) << 23);
    }
    for (int i = (int)threadIdx.x; i < pieces * 128; i += GW_NARROW_THREADS) {
        const int c = i / 128 * 128 + piece_column(i % 128);
        const float v = c < p.k ? x[c] * down : 0.0f;
        const unsigned u = GW_F32_BITS(v);
        const unsigned short b = (unsigned short)((u & 0x7fffffffu) > 0x7f800000u
                                                      ? 0x7fc0u
                                                      : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
        p.y[narrow_at(p, row, pieces, i)] = FORMAT == BF16 ? b : gw_narrow_f16(v);
    }
}

typedef gw_tile<GW_GEMM_ROWS, GW_GEMM_TOKENS(WIDE), LANES == 32 ? 4 : 2, 2> half_tile;

GW_KERNEL(gw_narrow_f16, struct gw_narrow_params, GW_NARROW_THREADS) { narrow_row<F16>(p); }
GW_KERNEL(gw_narrow_bf16, struct gw_narrow_params, GW_NARROW_THREADS) { narrow_row<BF16>(p); }
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
