/* kernels_hip/attention/cells.hip - what ATTENTION over caches in 4 and 5 bits needs for kernels
 * that read q8_0: queries and results are rotated, and pages become pages of q8_0, which have the
 * same numbers.
 */
#include "kernels_hip/act8.h"
#include "kernels_hip/rows/cells.h"
#include "kernels_hip/attention/cells_params.h"

enum { TEAMS = GW_CELLS_THREADS / GW_LANES };

/* ---- rotation -------------------------------------------------------------------------------- */

template <int N, int ACT8>
__device__ static inline void rotate_span(const struct gw_cells_rotate_params &p, size_t at) {
    const float *in = p.in + at;
    float v[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = in[GW_LANES * k + gw_lane()];
    }
    gw_cells_rotate<N>(v);
    if (ACT8) {
        gw_team_act8<N> codes;
        codes.encode(v);
        codes.store(p.out, at / GW_ACT_BLOCK, 1, p.form, N);
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        ((float *)p.out)[at + GW_LANES * k + gw_lane()] = v[k];
    }
}

template <int ACT8>
__device__ static inline void rotate_rows(const struct gw_cells_rotate_params &p) {
    const int row = (int)blockIdx.y, first = ((int)blockIdx.x * TEAMS + gw_team()) * p.span;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || first >= p.width) {
        return; /* whole teams */
    }
    const size_t at = (size_t)row * p.width + first;
    switch (p.span) {
    case 32: rotate_span<1, ACT8>(p, at); break;
    case 64: rotate_span<2, ACT8>(p, at); break;
    case 128: rotate_span<4, ACT8>(p, at); break;
    default: rotate_span<8, ACT8>(p, at); break;
    }
}
GW_KERNEL(gw_cells_rotate_f32, struct gw_cells_rotate_params, GW_CELLS_THREADS) {
    rotate_rows<0>(p);
}
GW_KERNEL(gw_cells_rotate_act8, struct gw_cells_rotate_params, GW_CELLS_THREADS) {
    rotate_rows<1>(p);
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* [e / 2, 64] bytes -> [e, 64]: a thread has four positions of two values. */
GW_DEVICE void unpack_keys(uint8_t *to, const uint8_t *from, int e, int bits) {
    const uint8_t *high = from + gw_cells_high_at(e);
    for (int w = (int)threadIdx.x; w < GW_PAGE / 8 * e; w += GW_CELLS_THREADS) {
        const int r = w / (GW_PAGE / 4), j = w % (GW_PAGE / 4) * 4;
        const unsigned codes = *(const unsigned *)(from + r * GW_PAGE + j);
        const unsigned fifth =
            bits == 5 ? *(const unsigned *)(high + r / 4 * GW_PAGE + j) >> r % 4 * 2 : 0u;
        *(unsigned *)(to + 2 * r * GW_PAGE + j) =
            gw_cells_bytes(codes & 0x0f0f0f0fu, fifth & 0x01010101u, bits);
        *(unsigned *)(to + (2 * r + 1) * GW_PAGE + j) =
            gw_cells_bytes(codes >> 4 & 0x0f0f0f0fu, fifth >> 1 & 0x01010101u, bits);
    }
}

/* [64, e / 2] bytes -> [64, e]: a thread has eight values of a position. */
GW_DEVICE void unpack_values(uint8_t *to, const uint8_t *from, int e, int bits) {
    const uint8_t *high = from + gw_cells_high_at(e);
    for (int w = (int)threadIdx.x; w < GW_PAGE / 8 * e; w += GW_CELLS_THREADS) {
        const unsigned codes = *(const unsigned *)(from + 4 * w);
        const unsigned fifth = bits == 5 ? high[w] : 0u;
        const unsigned even = codes & 0x0f0f0f0fu, odd = codes >> 4 & 0x0f0f0f0fu;
        *(unsigned *)(to + 8 * w) = gw_cells_bytes(gw_pick_bytes(odd, even, 0x05010400u),
                                                   gw_cells_spread(fifth & 15u), bits);
        *(unsigned *)(to + 8 * w + 4) = gw_cells_bytes(gw_pick_bytes(odd, even, 0x07030602u),
                                                       gw_cells_spread(fifth >> 4), bits);
    }
}

/* Whole 16 bytes. Several loads of a thread are in flight: they cross a link. */
GW_DEVICE void copy_tile(uint8_t *to, const uint8_t *from, int bytes) {
    struct __align__(16) words {
        unsigned at[4];
    };
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < bytes / 16; i += GW_CELLS_THREADS) {
        ((words *)to)[i] = ((const words *)from)[i];
    }
}

/* Rows [row, end) are of one sequence. */
GW_DEVICE int end_of_rows(const struct gw_step_params &step, int row, int live) {
    enum { AT_ONCE = 8 };
    const int slot = gw_step_slot(step, row);
    int end = row + 1;
    for (int same = 1; end + AT_ONCE <= live; end += AT_ONCE) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            same &= gw_step_slot(step, end + i) == slot;
        }
        if (!same) {
            break;
        }
    }
    while (end < live && gw_step_slot(step, end) == slot) {
        end++;
    }
    return end;
}

GW_KERNEL(gw_cells_unpack, struct gw_cells_unpack_params, GW_CELLS_THREADS) {
    const int parts = p.k && p.v ? 2 : 1, live = gw_live(p.step);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    for (int row = 0, end; row < live; row = end) {
        end = end_of_rows(p.step, row, live);
        const int pos = gw_step_pos(p.step, row), last = gw_step_pos(p.step, end - 1) / GW_PAGE;
        const int first = p.window > 0 && pos >= p.window ? (pos - p.window + 1) / GW_PAGE : 0;
        const int32_t *pages = p.pages + (size_t)gw_step_slot(p.step, row) * p.table_stride + first;
        const int items = (last - first + 1) * p.kv_heads * parts;
        for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
            const int is_v = p.k ? item % parts : 1, at = item / parts;
            const int e = is_v ? p.ev : p.e, bits = is_v ? p.v_bits : p.k_bits;
            const size_t tile = (size_t)pages[at / p.kv_heads] * p.kv_heads + at % p.kv_heads;
            if (p.tile > 0) {
                copy_tile((uint8_t *)(is_v ? p.v_out : p.k_out) + tile * p.tile,
                          (const uint8_t *)(is_v ? p.v : p.k) + tile * p.tile, p.tile);
                continue;
            }
            const uint8_t *from = (const uint8_t *)(is_v ? p.v : p.k) +
                                  tile * (gw_cells_scales_at(e, bits) + GW_PAGE / 16 * e);
            uint8_t *to = (uint8_t *)(is_v ? p.v_out : p.k_out) + tile * (GW_PAGE / 16 * 17 * e);
            if (is_v) {
                unpack_values(to, from, e, bits);
            } else {
                unpack_keys(to, from, e, bits);
            }
            const unsigned *scales = (const unsigned *)(from + gw_cells_scales_at(e, bits));
            for (int i = (int)threadIdx.x; i < GW_PAGE / 64 * e; i += GW_CELLS_THREADS) {
                ((unsigned *)(to + GW_PAGE * e))[i] = scales[i];
            }
        }
    }
}
