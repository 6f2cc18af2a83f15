/* kernels_hip/gemm/gemm_group.hip - the prompt's products on matrix instructions of four waves,
 * where a device has them: quantized weights (gemm_ring.h), and F16, BF16 and E4M3 as in
 * gemm_half.hip. A tile has 128 rows and 128 tokens, or others (gemm_tiling.h). gw_spread puts what
 * a stage needs of its tokens together in memory as it will lie in shared memory.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/gemm/gemm_block_terms.h"
#include "kernels_hip/gemm/gemm_half.h"
#include "kernels_hip/gemm/gemm_scaled_terms.h"
#include "kernels_hip/gemm/gemm_span_terms.h"

#if GW_GROUP_MMA

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The codes of block b of a token as 16-bit floats, each 16 bytes to where `at` says. The first
 * pairs of four, 16 bytes of each half of a block, and the second pairs stand apart, as the
 * instruction wants codes 4 t .. 4 t + 3 of lane t. */
template <class At>
__device__ static inline void store_halves(unsigned char *code, const unsigned *act, At at) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unsigned pair[2][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            gw_halves_of_bytes<128>(act[2 + 4 * h + j] ^ 0x80808080u, &pair[0][j], &pair[1][j]);
        }
        store4(code + at(2 * h), pair[0]);
        store4(code + at(2 * h + 1), pair[1]);
    }
}

/* A thread has a block of a token, neighbours have neighbouring tokens. */
GW_KERNEL(gw_spread, struct gw_spread_params, GW_SPREAD_THREADS) {
    const int t = (int)(blockIdx.x * 8 + threadIdx.x % 8), live = gw_live(p.step);
    const int b = (int)(blockIdx.y * (GW_SPREAD_THREADS / 8) + threadIdx.x / 8);
    const int blocks = p.k / GW_ACT_BLOCK, units = (blocks + BLOCKS - 1) / BLOCKS;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (t >= live || b >= units * BLOCKS) {
        return;
    }
    unsigned act[ACT_BYTES / 4] = {0}; /* what a row has not beyond its last block adds nothing */
    const uint8_t *x = (const uint8_t *)p.x + ((size_t)t * blocks + b) * ACT_BYTES;
#pragma unroll
    for (int j = 0; j < ACT_BYTES / 4; j += 2) {
        if (b < blocks) {
            load2(act + j, x + 4 * j);
        }
    }
    const int token = t % GROUP_TOKENS, i = b % BLOCKS, numbers = p.numbers * BLOCKS;
    unsigned char *stage = (unsigned char *)p.y +
                           ((size_t)(t / GROUP_TOKENS) * units + b / BLOCKS) *
                               (size_t)(GROUP_TOKENS * (4 * numbers + 2 * BLOCKS * GW_ACT_BLOCK));
    store_halves(stage + GROUP_TOKENS * 4 * numbers, act,
                 [&](int piece) { return gw_block_code(token, i, piece); });
    const float scale = GW_F32_FROM_BITS(act[0]);
    const int one = (int16_t)(act[1] & 0xffffu), two = (int16_t)(act[1] >> 16);
    const float number[3] = {scale, p.numbers == 2 ? scale * (float)(one + two) : (float)one,
                             (float)two};
#pragma unroll
    for (int n = 0; n < 3; n++) {
        if (n < p.numbers) {
            *(float *)(stage + gw_group_number(GROUP_TOKENS, token, i * p.numbers + n)) = number[n];
        }
    }
}

/* For stages that are one term: the block of a thread, with the one scale of its stage.
 * Neighbouring lanes have the blocks of a stage, so all of a team call it; beyond the row's last it
 * is zeros. */
__device__ static inline void take_block(unsigned *act, const struct gw_spread_params &p, int t,
                                         int b) {
    const int blocks = p.k / GW_ACT_BLOCK;
    const uint8_t *x = (const uint8_t *)p.x + ((size_t)t * blocks + b) * ACT_BYTES;
#pragma unroll
    for (int j = 0; j < ACT_BYTES / 4; j += 2) {
        act[j] = act[j + 1] = 0;
        if (b < blocks) {
            load2(act + j, x + 4 * j);
        }
    }
    gw_span_blocks(act);
}

GW_KERNEL(gw_spread_span, struct gw_spread_params, GW_SPREAD_THREADS) {
    const int t = (int)blockIdx.y, blocks = p.k / GW_ACT_BLOCK, live = gw_live(p.step);
    const int b = (int)(blockIdx.x * blockDim.x + threadIdx.x), i = b % BLOCKS;
    const int wide = p.form == GW_STAGE_SPAN;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (t >= live) {
        return; /* the whole block */
    }
    unsigned act[ACT_BYTES / 4];
    take_block(act, p, t, b);
    if (b >= blocks) {
        return;
    }
    const gw_cut cut = wide ? gw_cut_of(live, p.tiles, p.blocks) : gw_cut_with(live, 0);
    const int tile = gw_cut_tile(cut, t), token = t - gw_cut_from(cut, tile);
    const int tokens = gw_cut_tokens(cut, tile);
    unsigned char *stage =
        (unsigned char *)p.y + ((size_t)tile * (blocks / BLOCKS) + b / BLOCKS) *
                                   (size_t)(wide ? GW_GROUP_TOKENS(GW_STAGE_SPAN, 2)
                                                 : GW_GROUP_TOKENS(GW_STAGE_DIGITS, 1));
    unsigned char *numbers = stage + tokens * (BLOCKS * GW_ACT_BLOCK);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        store4(stage + half_at(token, i, h), act + 2 + 4 * h);
    }
    if (i < (wide ? 2 : 1)) {
        const float scale = GW_F32_FROM_BITS(act[0]);
        *(float *)(numbers + gw_group_number(tokens, token, i)) =
            i ? scale * (float)gw_first_sum(act[1]) : scale;
    }
}

GW_KERNEL(gw_spread_scaled, struct gw_spread_params, GW_SPREAD_THREADS) {
    const int t = (int)blockIdx.y, blocks = p.k / GW_ACT_BLOCK, live = gw_live(p.step);
    const int b = (int)(blockIdx.x * blockDim.x + threadIdx.x), i = b % BLOCKS;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (t >= live) {
        return; /* the whole block */
    }
    unsigned act[ACT_BYTES / 4];
    take_block(act, p, t, b);
    if (b >= blocks) {
        return;
    }
    const gw_cut cut = gw_cut_with(live, 0);
    const int tile = gw_cut_tile(cut, t), token = t - gw_cut_from(cut, tile);
    const int tokens = gw_cut_tokens(cut, tile);
    unsigned char *stage = (unsigned char *)p.y + ((size_t)tile * (blocks / BLOCKS) + b / BLOCKS) *
                                                      (size_t)GW_GROUP_TOKENS(GW_STAGE_SCALED, 1);
    store_halves(stage + GROUP_TOKENS * GW_SCALED_NUMBERS, act,
                 [&](int piece) { return gw_scaled_code(tokens, token, i, piece); });
    unsigned sums = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum = gw_dp4a((int)act[2 + 4 * h + j], 0x01010101, sum);
        }
        sums |= (unsigned)gw_f32_to_f16((float)sum) << 16 * h; /* below 2048: exact */
    }
    *(unsigned *)(stage + GROUP_TOKENS * GW_SCALED_SUMS_AT + token * 16 + i * 4) = sums;
    if (i == 0) {
        *(unsigned *)(stage + gw_group_number(GROUP_TOKENS, token, 0)) = act[0];
    }
}

/* ---- quantized weights ----------------------------------------------------------------------- */

template <class F, int SPAN = F::SPAN, int SCALED = F::SCALED> struct product {
    __device__ static inline void run(const gw_gemm_params &p, unsigned char *shared) {
        gw_ring_run<gw_block_product, F>(p, shared);
    }
};
template <class F> struct product<F, 1, 0> {
    __device__ static inline void run(const gw_gemm_params &p, unsigned char *shared) {
        gw_ring_run<gw_span_product, F>(p, shared);
    }
};
template <class F> struct product<F, 0, 1> {
    __device__ static inline void run(const gw_gemm_params &p, unsigned char *shared) {
        gw_ring_run<gw_scaled_product, F>(p, shared);
    }
};

#define GROUP(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                    \
    GW_KERNEL(gw_gemm_group_##name, struct gw_gemm_params, GW_GROUP_BLOCK, 1) {                    \
        GW_SHARED_TILES(unsigned char, shared);                                                    \
        product<format<low, high, offset, levels, term, sub, heads, bytes>>::run(p, shared);       \
    }
GW_STRIP_KERNELS(GROUP)

/* ---- F16, BF16 and E4M3 ---------------------------------------------------------------------- */

enum { STAGES = GW_HALF_STAGES(1, 1), F16 = 0, BF16, E4M3 };

/* What a lane needs of a stage's weights, by k step. */
template <class T, int E>
__device__ static inline void half_stage_operands(unsigned (*a)[T::MT][GW_MMA_A],
                                                  const gw_tile_at &at,
                                                  const unsigned char *stage) {
#pragma unroll
    for (int n = 0; n < RECORDS; n++) {
        gw_16b w[T::MT][T::AR];
        half_weights<T, E>(w, at, stage, n);
        half_operands<T>(a[2 * n], w, 0);
        half_operands<T>(a[2 * n + 1], w, 1);
    }
}

/* While the matrix units have a stage, the operands of the next one come to registers. Two stages
 * of E4M3 are a block, whose sums go to the total. */
template <class T, int FORMAT>
__device__ static inline void half_sums(const gw_gemm_params &p, const gw_tile_at &at, int records,
                                        unsigned char *shared, float (*total)[T::NT][GW_MMA_C]) {
    enum { E = FORMAT == E4M3, STAGE = half_stage<T, E>::BYTES, STEPS = 2 * RECORDS };
    const gw_shared_at to = gw_shared_address(shared);
    const gw_group_at columns = gw_group_columns(shared + half_stage<T, E>::TOKENS_AT) +
                                at.n / GW_MMA_N * GW_GROUP_COLUMNS_8;
    unsigned a[2][STEPS][T::MT][GW_MMA_A];
    float block[E ? T::MT : 1][T::NT][GW_MMA_C], scale[T::MT][T::CR];
    float(*acc)[T::NT][GW_MMA_C] = E ? block : total;
    half_source<T, E> l;
    half_begin<T, E>(l, p, at, records);
#pragma unroll
    for (int s = 0; s + 1 < STAGES; s++) {
        half_load<T, E>(l, s * RECORDS < records, to + s * STAGE);
    }
    gw_copy_wait<STAGES - 2>();
    gw_group_show();
    __syncthreads();
    half_stage_operands<T, E>(a[0], at, shared);
    for (int i = 0; E && i < T::MT * T::NT * GW_MMA_C; i++) {
        total[0][i / GW_MMA_C][i % GW_MMA_C] = 0.0f;
    }
    for (int r = 0, turn = 0; r < records;) {
        if (E) { /* they have the block's time to come */
            half_floats<T>(scale, p, at, records, r / (2 * RECORDS));
        }
#pragma unroll
        for (int odd = 0; odd < 2; odd++, r += RECORDS) { /* stages are even in number */
            gw_group_keep<T::MT * T::NT * GW_MMA_C>(&acc[0][0][0]);
            gw_group_begin();
#pragma unroll
            for (int i = 0; i < STEPS * T::MT; i++) {
                const int step = i / T::MT;
                const gw_group_at b = columns + turn * (STAGE / 16) + step * GW_GROUP_K_STEP;
                float *sum = &acc[i % T::MT][0][0];
                const int goes_on = step > 0 || (E ? odd > 0 : r > 0);
                if (FORMAT == BF16) {
                    gw_group_bf16<T::NT * GW_MMA_N>(sum, a[odd][step][i % T::MT], b, goes_on);
                } else {
                    gw_group_f16<T::NT * GW_MMA_N>(sum, a[odd][step][i % T::MT], b, goes_on);
                }
            }
            gw_group_end();
            gw_group_wait<1>(); /* the stage before is free */
            gw_group_keep<T::MT * T::NT * GW_MMA_C>(&acc[0][0][0]);
            gw_group_keep<STEPS * T::MT * GW_MMA_A>(&a[1 - odd][0][0][0]);
            gw_copy_wait<STAGES - 3>();
            gw_group_show();
            __syncthreads();
            half_load<T, E>(l, r + (STAGES - 1) * RECORDS < records,
                            to + (turn == 0 ? STAGES - 1 : turn - 1) * STAGE);
            turn = turn + 1 == STAGES ? 0 : turn + 1;
            half_stage_operands<T, E>(a[1 - odd], at, shared + turn * STAGE);
        }
        if (E) {
            gw_group_wait<0>();
            gw_group_keep<T::MT * T::NT * GW_MMA_C>(&acc[0][0][0]);
            half_total<T>(total, acc, scale);
        }
    }
    gw_group_wait<0>();
    gw_group_keep<T::MT * T::NT * GW_MMA_C>(&acc[0][0][0]);
}

template <int FORMAT>
__device__ static inline void half_group(const gw_gemm_params &p, unsigned char *shared) {
    typedef gw_tile<GW_GEMM_ROWS, GROUP_TOKENS, 4, 2> T;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_tile_at at = gw_tile_find<T>(p, (int)blockIdx.x);
    if (at.live == 0) {
        return;
    }
    float acc[T::MT][T::NT][GW_MMA_C];
    half_sums<T, FORMAT>(p, at, (p.k + 127) / 128 * 4, shared, acc);
    __syncthreads();
    if (FORMAT != BF16) {
        half_scale<T, FORMAT == E4M3>(p, at, acc);
    }
    if (p.glu) {
        gw_tile_glu<T>(p, at, acc, (float *)shared);
    } else {
        gw_tile_linear<T>(p, at, acc);
    }
}

GW_KERNEL(gw_gemm_group_f16, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_TILES(unsigned char, shared);
    half_group<F16>(p, shared);
}
GW_KERNEL(gw_gemm_group_bf16, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_TILES(unsigned char, shared);
    half_group<BF16>(p, shared);
}
GW_KERNEL(gw_gemm_group_e4m3, struct gw_gemm_params, GW_GEMM_THREADS, 1) {
    GW_SHARED_TILES(unsigned char, shared);
    half_group<E4M3>(p, shared);
}

#endif
