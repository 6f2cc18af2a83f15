/* kernels_hip/experts/experts_gemm.hip - experts' products of a prompt: tiles of the entries of one
 * expert (gw_experts_sort), as gemm.hip has tiles of neighbouring tokens. */
#include "kernels_hip/experts/experts.h"
#include "kernels_hip/gemm/gemm_strips.h"

#if GW_MMA

/* Tiles of tokens are taken two at a time (load_tokens): multiples of 16 entries are whole pairs
 * where such a tile has 8 tokens. */
enum { WAVES_HERE = GW_GEMM_WAVES_FEW, PAIRS_OF_16 = GW_MMA_N == 8 };

/* This thread's blocks of x, of tokens that stay the same. */
template <class T> struct sources {
    const uint8_t *row[T::X_EACH]; /* 0: none */

    __device__ inline void open(const gw_experts_params &p, const gw_experts_tile &tile,
                                int blocks) {
#pragma unroll
        for (int e = 0; e < T::X_EACH; e++) {
            const int at = tile.first + ((int)threadIdx.x + e * (int)blockDim.x) / BLOCKS;
            row[e] = 0;
            if (at < tile.end) {
                const int entry = p.list[at], from = p.by_entry ? entry : entry / p.used;
                row[e] = (const uint8_t *)p.x + (size_t)from * (size_t)blocks * ACT_BYTES;
            }
        }
    }
    __device__ inline void fetch(acts<T> &a, int block, int blocks) const {
#pragma unroll
        for (int e = 0; e < T::X_EACH; e++) {
            const int b = block + ((int)threadIdx.x + e * (int)blockDim.x) % BLOCKS;
#pragma unroll
            for (int j = 0; j < ACT_BYTES / 4; j += 2) {
                a.w[e][j] = a.w[e][j + 1] = 0;
                if (row[e] && b < blocks) {
                    load2(a.w[e] + j, row[e] + (size_t)b * ACT_BYTES + 4 * j);
                }
            }
        }
    }
};

template <class F, int NT>
__device__ static inline void product(const gw_experts_params &p, const gw_experts_tile &tile_of,
                                      unsigned char *shared) {
    typedef tile<F, NT> T;
    const int wave = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    const int blocks = p.k / GW_ACT_BLOCK, units = (blocks + BLOCKS - 1) / BLOCKS;
    const int strips = p.m / GW_MMA_M, mine = (int)blockIdx.y * WAVES_HERE + wave;
    const int strip = tile_of.expert * strips + (mine < strips ? mine : strips - 1);
    const int which = (int)blockIdx.z;
    const uint8_t *from = p.w[which] + (size_t)strip * units * F::RECORD;
    unsigned char *x = shared + WAVES_HERE * T::RING * F::RECORD;
    unsigned char *ring = shared + wave * T::RING * F::RECORD;
    const token_places places = find_tokens(lane);
    sources<T> source;
    acts<T> a;
    float acc[NT][GW_MMA_C];
#pragma unroll
    for (int i = 0; i < NT * GW_MMA_C; i++) {
        acc[i / GW_MMA_C][i % GW_MMA_C] = 0.0f;
    }
#pragma unroll
    for (int s = 0; s + 1 < T::RING; s++) {
        copy_record<F, T>(ring + s * F::RECORD, from, lane, s < units);
    }
    source.open(p, tile_of, blocks);
    source.fetch(a, 0, blocks);
    stash_acts<F, T>(a, x);
    source.fetch(a, BLOCKS, blocks);
    for (int u = 0, turn = 0; u < units; u++, turn = turn + 1 == T::RING ? 0 : turn + 1) {
        const int before = turn == 0 ? T::RING - 1 : turn - 1;
        gw_copy_wait<T::RING - 2>();
        __syncthreads();
        copy_record<F, T>(ring + before * F::RECORD, from, lane, u + T::RING - 1 < units);
        if (u + 1 < units) {
            stash_acts<F, T>(a, x + (u + 1) % 2 * (T::X + T::N));
            source.fetch(a, (u + 2) * BLOCKS, blocks);
        }
        const unsigned char *record = ring + turn * F::RECORD, *stage = x + u % 2 * (T::X + T::N);
        if (F::WHOLE) {
            compute_record<F, T>(record, stage, places, lane, acc);
        } else {
            compute_blocks<F, T>(record, stage, places, lane, acc);
        }
    }
#pragma unroll
    for (int k = 0; k < GW_MMA_C; k++) {
        const int r = mine * GW_MMA_M + gw_mma_c_row(lane, k), there = mine < strips;
        const size_t of = (size_t)tile_of.expert * p.m + r;
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const int at = tile_of.first + j * GW_MMA_N + gw_mma_c_col(lane, k);
            if (there && at < tile_of.end) {
                const int entry = p.list[at];
                p.sums[which][(size_t)entry * p.m + r] =
                    gw_expert_sum(p, entry, which, of, acc[j][k]);
            }
        }
    }
}

template <class F>
__device__ static inline void product_any(const gw_experts_params &p, unsigned char *shared) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if ((int)blockIdx.x >= *p.n_tiles) {
        return;
    }
    const gw_experts_tile at = p.tiles[blockIdx.x];
    const int entries = at.end - at.first;
    if (PAIRS_OF_16 && entries <= 16) {
        product<F, 2>(p, at, shared);
    } else if (entries <= 32) {
        product<F, 32 / GW_MMA_N>(p, at, shared);
    } else if (PAIRS_OF_16 && entries <= 48) {
        product<F, 6>(p, at, shared);
    } else {
        product<F, 64 / GW_MMA_N>(p, at, shared);
    }
}

/* Three blocks to a multiprocessor: waves wait for their records, and more of them hide it. */
#define GEMM(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                     \
    GW_KERNEL(gw_experts_gemm_##name, struct gw_experts_params, WAVES_HERE *LANES, 3) {            \
        GW_SHARED_DYNAMIC(unsigned char, shared);                                                  \
        product_any<format<low, high, offset, levels, term, sub, heads, bytes>>(p, shared);        \
    }
GW_STRIP_KERNELS(GEMM)

#endif
