/* kernels_hip/linear/linear_norm.h - how rows of x come to shared memory in front of a product, and
 * the factors of a NORM between two products (linear_tiles.h), which they still lack.
 */
#ifndef GW_KERNELS_HIP_LINEAR_NORM_H
#define GW_KERNELS_HIP_LINEAR_NORM_H

#include "kernels_hip/device.h"
#include "kernels_hip/linear/linear_params.h"

/* The factor of a row out of the sums of its blocks, of which a lane asks for the first before they
 * are needed. They are added where factor() stands and not before, so that what is asked for
 * between the two need not wait for them. A team. */
struct gw_norm_sums {
    enum { AHEAD = 8 };
    const float *mine; /* the lane's first one */
    int blocks;
    float early[AHEAD];

    __device__ inline void ask(const float *sums, int n) {
        mine = sums + (n > 0 ? gw_lane() : 0);
        blocks = n;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const int at = j * GW_LANES;
            early[j] = at + gw_lane() < blocks ? mine[at] : 0.0f;
        }
    }
    __device__ inline float factor(int width, float eps) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            gw_have(early[j]);
            sum = sum + early[j];
        }
#pragma unroll 1
        for (int at = AHEAD * GW_LANES; at + gw_lane() < blocks; at += GW_LANES) {
            sum = sum + mine[at];
        }
        return gw_rms_scale(gw_fold(sum), width, eps);
    }
};

/* What the rows of x that a block has are still to be multiplied by. */
template <int ROWS> struct gw_factors {
    gw_norm_sums sums; /* of one row by every team, of several by a team each */
    float of[ROWS];
    float *shared; /* [ROWS] */
    int norm;      /* 0: nothing */

    /* Before x is asked for. first: the block's first row of those of x, of which `there` are in
     * memory. */
    __device__ inline void ask(const gw_linear_params &p, int blocks, int first, int there,
                               float *many) {
        const int row = ROWS == 1 ? 0 : gw_team();
        norm = p.squares != 0;
        shared = many;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            of[r] = 1.0f;
        }
        sums.ask(p.squares + (norm ? (size_t)(first + row) * (size_t)blocks : 0),
                 norm && row < there ? blocks : 0);
    }
    /* Of many rows that would be many registers. */
    __device__ inline float of_row(int r) const {
        return ROWS <= 8 ? of[r] : norm ? shared[r] : 1.0f;
    }
    /* Behind that. All that multiply call it. */
    __device__ inline void get(const gw_linear_params &p, int there) {
        if (!norm) {
            return;
        }
        const int width = sums.blocks * GW_ACT_BLOCK;
        if (ROWS == 1) {
            of[0] = sums.factor(width, p.eps);
            return;
        }
        if (gw_team() < there) {
            const float factor = sums.factor(width, p.eps);
            if (gw_lane() == 0) {
                shared[gw_team()] = factor;
            }
        }
        gw_sync_some<1, GW_LINEAR_THREADS>();
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            of[r] = shared[r];
        }
    }
};

/* Rows [0, n) of `words` words each, G at a time, from `x` (row_bytes apart) to shared memory
 * (row_words apart), up to word `end` of a row; what it has beyond `words` becomes 0. AT_ONCE:
 * pieces of a row that a thread waits for at once. put(at) is what stores the G words from `at` on:
 * a function of (row in shared memory, words, number of the row). Every thread calls ready() behind
 * the first loads, before anything is stored. */
template <int G, int ROWS, int AT_ONCE, class Put, class Ready>
__device__ static inline void gw_stage(const unsigned char *x, size_t row_bytes, int words, int end,
                                       unsigned *shared, int row_words, int n, Put put,
                                       Ready ready) {
    struct __align__(4 * G) piece {
        unsigned w[G];
    };
    enum { SOME = ROWS > 8 ? 8 : ROWS }; /* rows at once: those of more would be many registers */
    const int step = G * GW_LINEAR_THREADS;
    int turn = 0, from = 0; /* from: the first of these rows */
    do {
        const int base = (int)threadIdx.x * G + turn * AT_ONCE * step;
        piece v[AT_ONCE][SOME];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
            for (int r = 0; r < SOME; r++) {
                const int at = base + k * step;
#pragma unroll
                for (int j = 0; j < G; j++) {
                    v[k][r].w[j] = 0;
                }
                if (from + r < n && at < words) {
                    v[k][r] = *(const piece *)(x + (size_t)(from + r) * row_bytes + 4 * at);
                }
            }
        }
        if (turn == 0 && from == 0) {
            ready();
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = base + k * step;
            const auto store = put(at);
#pragma unroll
            for (int r = 0; r < SOME; r++) {
                if (from + r < n && at < end) {
                    store(shared + (from + r) * row_words, v[k][r].w, from + r);
                }
            }
        }
        from = from + SOME < ROWS ? from + SOME : 0;
        turn += from == 0;
    } while (from > 0 || turn * AT_ONCE * step < end);
}

#endif
