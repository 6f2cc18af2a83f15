/* kernels_hip/linear/linear_tiles.h - what the linear kernels share: the walk over tiles, what
 * comes with a result, and what an item leaves when all of its columns are there.
 */
#ifndef GW_KERNELS_HIP_LINEAR_TILES_H
#define GW_KERNELS_HIP_LINEAR_TILES_H

#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/linear/linear_params.h"
#include "kernels_hip/sends.h"
#include "kernels_hip/strip.h"

enum {
    WAVES = GW_LINEAR_THREADS / LANES, /* that multiply */
    SETS = 64 / LANES,                 /* rows of a thread: one, or lane / 4 and lane / 4 + 8 */
};

GW_DEVICE int gw_wave(void) { return (int)threadIdx.x / LANES; }

struct gw_nothing {};

/* Where a group of waves is. A LINEAR item is a tile for each group, with a norm behind it two
 * tiles; a GLU item is two tiles of gate and two of up: so 32 columns are there together. MORE:
 * there may be more than GW_LINEAR_PARTS matrices. */
template <int GROUPS, int GLU, int MORE = 0> struct gw_walk {
    enum { TILES = GLU ? 4 : 2 }; /* of an item, but for those of LINEAR for one group alone */
    int item, round, group, rounds;

    __device__ static inline int pairs(const gw_linear_params &p) {
        return GLU || GROUPS > 1 || p.behind != 0;
    }
    __device__ inline void open(const gw_linear_params &p, int g) {
        item = (int)blockIdx.x;
        round = 0;
        group = g;
        rounds = pairs(p) ? TILES / GROUPS : 1;
    }
    __device__ inline int ends_item(void) const {
        return (!GLU && GROUPS > 1) || round + 1 == rounds;
    }
    __device__ inline void next(void) {
        round++;
        if ((!GLU && GROUPS > 1) || round == rounds) {
            round = 0;
            item += (int)gridDim.x;
        }
    }
    /* Which of the tiles of an item: of GLU gate, gate, up, up. */
    __device__ inline int place(void) const { return GROUPS * round + group; }
    __device__ inline int tile(void) const {
        return GLU          ? 2 * item + (place() & 1)
               : GROUPS > 1 ? item * GROUPS + group
                            : item * rounds + round;
    }
    __device__ static inline int items(const gw_linear_params &p) {
        return pairs(p) ? (p.tiles + 1) / 2 : p.tiles;
    }
    __device__ inline int part(const gw_linear_params &p) const {
        if (GLU) {
            return place() / 2;
        }
        const int t = tile();
        if (MORE) {
            int k = 0;
#pragma unroll
            for (int i = 1; i < (int)GW_LINEAR_MOST; i++) {
                k = i < p.parts && t >= p.part[i].tile ? i : k;
            }
            return k;
        }
        return p.parts > 2 && t >= p.part[2].tile ? 2 : p.parts > 1 && t >= p.part[1].tile ? 1 : 0;
    }
    /* The strip of this tile; beyond the end the last one, whose results nobody wants. */
    __device__ inline const unsigned char *strip(const gw_linear_params &p, size_t bytes) const {
        const int k = part(p), last = (p.part[k].rows + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS - 1;
        const int s = tile() - p.part[k].tile;
        return p.part[k].w + (size_t)(s < last ? s : last) * bytes;
    }
};

/* ---- what waves have of a result ------------------------------------------------------------- */

/* The classes' parts of a result, `apart` floats from one another: gw_join_lanes of arith.h, of
 * which a wave has joined its own. */
template <int CLASSES> __device__ static inline float gw_join_classes(const float *v, int apart) {
    float z[CLASSES];
#pragma unroll
    for (int c = 0; c < CLASSES; c++) {
        z[c] = v[c * apart];
    }
#pragma unroll
    for (int h = 1; h < CLASSES; h *= 2) {
#pragma unroll
        for (int c = 0; c < CLASSES; c += 2 * h) {
            z[c] = z[c] + z[c + h];
        }
    }
    return z[0];
}

/* ---- what becomes of a result ---------------------------------------------------------------- */

/* bias and residual of a result, and where it goes, looked up before it is there: who hands it out
 * is waited for. */
struct gw_outlet {
    float *y; /* 0: nobody wants it, or GLU */
    float bias, residual;
    int biased;
    int pair; /* that other cards get it as; number: of the exchange, 0: none */
    unsigned number;

    /* Of matrix row `row` of the tile and row n of x. */
    template <int GROUPS, int GLU, int MORE>
    __device__ inline void open(const gw_linear_params &p, const gw_walk<GROUPS, GLU, MORE> &at,
                                int row, int n, int live) {
        y = 0;
        bias = residual = 0.0f;
        biased = pair = 0;
        number = 0;
        if (!GLU && at.tile() < p.tiles) {
            const gw_linear_part &w = p.part[at.part(p)];
            const int r = (at.tile() - w.tile) * GW_STRIP_ROWS + row;
            const size_t to =
                (size_t)((int)blockIdx.y * p.width + n) * p.stride + (size_t)(w.column + r);
            if (r < w.rows && n < live) {
                y = (float *)p.y + to;
                biased = w.bias != 0;
                if (biased) {
                    bias = w.bias[r];
                }
                if (p.residual) {
                    residual = p.residual[to];
                }
                if (p.sends.cards > 0) {
                    number = gw_ask_number(p);
                    pair = gw_pair_of_column((int)blockIdx.y * p.width + n, p.stride, w.column + r);
                }
            }
        }
    }
    /* Sum v to its place, with what adapters add; the result. */
    template <int ADAPTS = 0>
    __device__ inline float put(const gw_linear_params &p, float v, float more = 0.0f) const {
        v = biased ? v + bias : v;
        v = p.residual ? v + residual : v;
        v = ADAPTS ? v + more : v;
        if (y) {
            *y = v;
            if (p.sends.cards > 0) {
                gw_send_word(p.sends, number, pair, GW_F32_BITS(v));
            }
        }
        return v;
    }
};

/* This lane's weight of the norm behind LINEAR item `item`; asked for when it begins. */
template <int GLU>
__device__ static inline float gw_ask_behind(const gw_linear_params &p, int item) {
    return !GLU && p.behind ? p.behind[item * GW_LINEAR_ITEM + gw_lane()] : 0.0f;
}

/* How many of first, first + step, .. are below `live`. */
GW_DEVICE int gw_rows_of(int first, int step, int live) {
    return first < live ? (live - first - 1) / step + 1 : 0;
}

/* What an item leaves of rows first, first + step, .. of x, COUNT of them, as far as they are
 * alive; a lane has a column. The whole team calls these. All rows are made side by side, for who
 * waits for the next launch waits for this. */

/* y of GLU. number: gw_ask_number. KEEPS: floats of it go to p.lora.kept as well, if that is
 * there. */
template <int COUNT, int KEEPS = 0>
__device__ static inline void gw_leave_glu(const gw_linear_params &p, int item, int first, int step,
                                           int live, const float *gate, const float *up,
                                           unsigned number) {
    const int at = (int)blockIdx.y * p.width + first;
    const size_t row = (size_t)at;
    const int c = item * GW_LINEAR_ITEM + gw_lane();
    float v[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        v[i] = gw_silu(gate[i]) * up[i];
        if (KEEPS && p.lora.kept && first + i * step < live && c < p.part[0].rows) {
            p.lora.kept[(row + (size_t)(i * step)) * p.stride + c] = v[i];
        }
    }
    if (p.form != GW_FORM_FLOATS) {
        const size_t blocks = (size_t)(p.stride / GW_ACT_BLOCK);
        const int n = gw_rows_of(first, step, live);
        gw_team_act8<COUNT> codes;
        codes.encode(v);
        if (p.sends.cards > 0) {
            gw_send_blocks<COUNT>(p.sends, number, codes, at, step, (int)blocks, item, n);
        }
        codes.store(p.y, row * blocks + (size_t)item, blocks * (size_t)step, p.form, n);
    } else if (c < p.part[0].rows) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (first + i * step < live) {
                ((float *)p.y)[(row + (size_t)(i * step)) * p.stride + c] = v[i];
                if (p.sends.cards > 0) {
                    gw_send_word(p.sends, number, gw_pair_of_column(at + i * step, p.stride, c),
                                 GW_F32_BITS(v[i]));
                }
            }
        }
    }
}

/* A NORM between two products has no launch: the first one's blocks have 32 neighbours of its
 * result at a time, which is all that codes and sums of squares need, so they leave both behind, of
 * v times the norm's weights and of v; the second one's multiply by the row's factor. */
template <int COUNT>
__device__ static inline void gw_leave_norm(const gw_linear_params &p, int item, int first,
                                            int step, int live, const float *v, float weight) {
    const size_t blocks = (size_t)p.left_blocks;
    const size_t block = (size_t)((int)blockIdx.y * p.width + first) * blocks + (size_t)item;
    float x[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        x[i] = v[i] * weight;
    }
    if (p.left_form != GW_FORM_FLOATS) {
        gw_team_encode<COUNT>(p.left, block, blocks * (size_t)step, p.left_form, x,
                              gw_rows_of(first, step, live));
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (first + i * step < live) {
            const size_t at = block + (size_t)(i * step) * blocks;
            ((float *)p.left)[at * GW_ACT_BLOCK + gw_lane()] = x[i];
        }
    }
}
template <int COUNT>
__device__ static inline void gw_leave_squares(const gw_linear_params &p, int item, int first,
                                               int step, int live, const float *v) {
    const size_t blocks = (size_t)(p.stride / GW_ACT_BLOCK);
    const size_t block = (size_t)((int)blockIdx.y * p.width + first) * blocks + (size_t)item;
    float sum[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        sum[i] = gw_fold(v[i] * v[i]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (gw_lane() == 0 && first + i * step < live) {
            p.left_squares[block + (size_t)(i * step) * blocks] = sum[i];
        }
    }
}

#endif
