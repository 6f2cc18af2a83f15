/* kernels_hip/gemm/gemm_stream_k.h - tiles of a prompt's product shared out among blocks that stay:
 * as many blocks as there are multiprocessors, each with the same amount of work, where tiles would
 * come in rounds of which the last is rarely full (336 tiles on 132 multiprocessors take as long as
 * 396).
 *
 * A block's share is a range of stages, so two neighbours may have parts of one tile. A sum is a
 * chain over k, which whoever has the second part continues: the first part is done before all else
 * and its sums left in memory; the second comes last, and finds them there. The bits are those of a
 * tile done at once. Blocks wait for blocks of a lower number alone, which begin no later than
 * they. After "Stream-K" (Osama et al., 2023, arXiv:2301.03598), whose blocks add up parts that are
 * sums of their own.
 */
#ifndef GW_KERNELS_HIP_GEMM_STREAM_K_H
#define GW_KERNELS_HIP_GEMM_STREAM_K_H

#include "kernels_hip/gemm/gemm_tiling.h"
#include "kernels_hip/gemm/gemm_tile.h"

#if GW_GROUP_MMA

/* Tiles in the order of gemm_tiling.h, rows faster than tokens. */
struct gw_share {
    gw_cut cut;
    int rows, units; /* tiles of the same tokens; stages of a tile */
    int block;       /* number of this block */
    int from, to;    /* stages, counted through all tiles */
};

/* Stages [from, to) of a tile. */
struct gw_job {
    int tile, from, to;
};

/* Where block `block` begins. A part of a tile of less than LEAST stages is not worth what it takes
 * to hand over. */
__device__ static inline int gw_share_begin(const gw_share &s, int block, int blocks) {
    enum { LEAST = 2 };
    const int tiles = s.rows * gw_cut_tiles(s.cut), stages = s.rows * s.units;
    if (tiles <= blocks || block == blocks) {
        return (block < tiles && block < blocks ? block : tiles) * s.units;
    }
    const int wide = stages * s.cut.wide, whole = stages * s.cut.whole;
    const int all = stages * gw_cut_cost(s.cut);
    int x = all / blocks * block + all % blocks * block / blocks;
    int at = 0, of_stage = GW_SHARE_WIDE;
    if (x >= wide * (int)GW_SHARE_WIDE) {
        x -= wide * (int)GW_SHARE_WIDE;
        at = wide;
        of_stage = GW_SHARE_WHOLE;
        if (x >= whole * (int)GW_SHARE_WHOLE) {
            x -= whole * (int)GW_SHARE_WHOLE;
            at += whole;
            of_stage = gw_cut_cost_of_last(s.cut);
        }
    }
    at += x / of_stage;
    const int stage = at % s.units;
    at -= stage < LEAST ? stage : 0;
    return s.units - stage < LEAST ? at / s.units * s.units + s.units : at;
}

/* A block's number; `word` is in shared memory. To be called before gw_grid_launch_dependents, so
 * that all blocks of a launch have theirs when one of the next asks, and by all threads: a barrier
 * is in it. */
__device__ static inline int gw_share_number(const gw_gemm_params &p, unsigned *word) {
    if (threadIdx.x == 0) {
        *word = atomicInc(p.has_left, gridDim.x - 1); /* nobody waits for the word of block 0 */
    }
    __syncthreads();
    return (int)*word;
}

/* wide: tiles may be. */
template <class T>
__device__ static inline gw_share gw_share_of(const gw_gemm_params &p, int block, int units,
                                              int wide) {
    const int live = gw_live(p.step), blocks = (int)gridDim.x;
    int rows = 0;
    for (int i = 0; i < (p.glu ? 1 : p.parts); i++) {
        rows += ((p.glu ? 2 : 1) * p.w[i].rows + (int)T::ROWS - 1) / (int)T::ROWS;
    }
    const gw_cut cut = wide ? gw_cut_of(live, rows, blocks) : gw_cut_with(live, 0);
    gw_share s = {cut, rows, units, block, 0, 0};
    s.from = gw_share_begin(s, block, blocks);
    s.to = gw_share_begin(s, block + 1, blocks);
    return s;
}

/* Job number `i`, from 0 on; 0: there are no more. */
__device__ static inline int gw_share_job(const gw_share &s, int i, gw_job *job) {
    const int first = s.from / s.units, last = s.to / s.units;
    const int begin = s.from % s.units, end = s.to % s.units, opens = end > 0;
    if (first == last) {
        *job = {first, begin, end};
        return i == 0 && begin < end;
    }
    const int whole = last - first - (begin > 0);
    if (i < opens) {
        *job = {last, 0, end};
    } else if (i < opens + whole) {
        *job = {first + (begin > 0) + i - opens, 0, s.units};
    } else {
        *job = {first, begin, s.units};
        return i == opens + whole && begin > 0;
    }
    return 1;
}

/* The tile of a job. */
template <class T>
__device__ static inline gw_tile_at gw_share_tile(const gw_gemm_params &p, const gw_share &s,
                                                  int tile) {
    return gw_tile_at_row<T>(p, tile % s.rows, gw_cut_from(s.cut, tile / s.rows));
}

GW_DEVICE int gw_share_tokens(const gw_share &s, int tile) {
    return gw_cut_tokens(s.cut, tile / s.rows);
}

/* ---- sums handed over ------------------------------------------------------------------------ */

/* The block of threads that continues takes N sums of each of THREADS threads from where the one
 * before it leaves them; all of these call it. There is a place, and a word that says that they are
 * there, for each block. */
template <int THREADS, int N>
__device__ static inline void gw_share_leave(const gw_gemm_params &p, int block,
                                             const float *sums) {
    float *to = p.left + (size_t)(block + 1) * GW_SHARE_SUMS + threadIdx.x * 4;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const gw_16b v = {{GW_F32_BITS(sums[i]), GW_F32_BITS(sums[i + 1]), GW_F32_BITS(sums[i + 2]),
                           GW_F32_BITS(sums[i + 3])}};
        *(gw_16b *)(to + i * THREADS) = v;
    }
    gw_sync_some<1, THREADS>();
    if (threadIdx.x == 0) {
        gw_word_release(p.has_left + block + 1, 1);
    }
}
/* A thread or all of them wait for them, behind a barrier or gate these take them, and then one
 * thread says so, for the next launch. */
GW_DEVICE void gw_share_wait(const gw_gemm_params &p, int block) {
    gw_word_wait(p.has_left + block);
}
GW_DEVICE void gw_share_taken(const gw_gemm_params &p, int block) {
    gw_word_release(p.has_left + block, 0);
}
template <int THREADS, int N>
__device__ static inline void gw_share_take(const gw_gemm_params &p, int block, float *sums) {
    const float *from = p.left + (size_t)block * GW_SHARE_SUMS + threadIdx.x * 4;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const gw_16b v = gw_stream_fresh(from + i * THREADS);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sums[i + j] = GW_F32_FROM_BITS(v.w[j]);
        }
    }
}

#endif

#endif
