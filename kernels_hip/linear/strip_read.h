/* kernels_hip/linear/strip_read.h - codes and scales out of a record of a strip (strip.h), and the
 * term of docs/arithmetic.md. A format is a struct of numbers, made from GW_STRIP_KERNELS.
 */
#ifndef GW_KERNELS_HIP_STRIP_READ_H
#define GW_KERNELS_HIP_STRIP_READ_H

#include "core/tensor/planes.h"
#include "kernels_hip/device.h"
#include "kernels_hip/gemm/gemm_format.h"
#include "kernels_hip/linear/linear_quant.h"
#include "kernels_hip/strip.h"

#define GW_STRIP_FORMAT(NAME, name, low, high, offset, levels, term, sub, heads, head_bytes)       \
    struct gw_strip_##name {                                                                       \
        static constexpr int LOW = low, HIGH = high, OFFSET = offset, LEVELS = levels,             \
                             TERM = term, SUB = sub, HEADS = heads, HEAD_BYTES = head_bytes,       \
                             SPAN = term == GW_TERM_SPAN, AFFINE = term == GW_TERM_AFFINE || SPAN, \
                             SUB_AT = GW_STRIP_LOW(low) + GW_STRIP_HIGH(high),                     \
                             HEAD_AT = SUB_AT + GW_STRIP_SUB(sub),                                 \
                             BYTES = GW_STRIP_RECORD(low, high, sub, heads, head_bytes);           \
    };
GW_STRIP_KERNELS(GW_STRIP_FORMAT)
#undef GW_STRIP_FORMAT

/* The codes of a row in block `lane` % 4 of a record: of row `lane` / 4 of those from `first` on,
 * which are 8 (LANES of 32) or 16. */
template <class F> struct gw_row_block {
    unsigned low[F::LOW == 8 ? 8 : 4], high[4];

    /* Word i of the four quarters; by matrix, a lane names a quarter of a row for the others. */
    __device__ static inline void load_16(unsigned *w, const unsigned char *plane, int first,
                                          int lane) {
#if defined(GW_LOAD_MATRICES)
        gw_load_matrices(w, plane + GW_STRIP_AT_16(lane % 8, lane / 8) + 64 * first);
#else
#pragma unroll
        for (int t = 0; t < 4; t++) {
            w[t] = *(const unsigned *)(plane + GW_STRIP_AT_16(lane / 4, t) + 64 * first +
                                       lane % 4 * 4);
        }
#endif
    }
    __device__ static inline void load_8(unsigned *w, const unsigned char *plane, int first,
                                         int lane) {
        const int i = lane % 4;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            w[t] =
                *(const unsigned *)(plane + GW_STRIP_AT_8(lane / 4, t) + 32 * first + i / 2 * 4) >>
                i % 2 * 4;
        }
    }
    __device__ inline void load(const unsigned char *record, int first, int lane) {
        const unsigned char *above = record + GW_STRIP_LOW(F::LOW);
        if (F::LOW == 2) {
            load_8(low, record, first, lane);
        } else {
#pragma unroll
            for (int h = 0; h < F::LOW / 4; h++) {
                load_16(low + 4 * h, record + 1024 * h, first, lane);
            }
        }
        if (F::HIGH == 1) {
            const gw_16b v = *(const gw_16b *)(above + 16 * first + lane / 4 * 16);
#pragma unroll
            for (int t = 0; t < 4; t++) {
                high[t] = v.w[t] >> 2 * (lane % 4);
            }
        } else if (F::HIGH == 2) {
            load_8(high, above, first, lane);
        }
    }
    /* Four codes of half h, quarter t, as stored, a byte each. */
    __device__ inline unsigned stored(int h, int t) const {
        unsigned v = F::LOW == 8   ? low[(4 * h + t) % (F::LOW == 8 ? 8 : 4)]
                     : F::LOW == 4 ? low[t] >> 4 * h & 0x0f0f0f0fu
                                   : low[t] >> 2 * h & 0x03030303u;
        if (F::HIGH == 1) {
            v |= (high[t] >> h & 0x01010101u) << (F::LOW & 7);
        } else if (F::HIGH == 2) {
            v |= (high[t] >> 2 * h & 0x03030303u) << (F::LOW & 7);
        }
        return v;
    }
    /* Quarter t of both halves, as they are multiplied. */
    __device__ inline void words(int t, unsigned *w) const {
        if (F::LEVELS) {
            level_pairs<F::LEVELS>(
                F::LOW == 4 && F::HIGH == 0 ? low[t] : stored(0, t) | stored(1, t) << 4, w);
            return;
        }
        w[0] = stored(0, t);
        w[1] = stored(1, t);
    }
};

/* The integer scales of row `row`, two bytes per block: those of block i. */
template <class F>
__device__ static inline unsigned gw_sub(const unsigned char *record, int row, int i) {
    return *(const unsigned short *)(record + F::SUB_AT + 8 * row + 2 * i);
}
template <class F> __device__ static inline int gw_sub_scale(unsigned sub, int half) {
    return F::TERM == GW_TERM_Q2 ? (int)(sub >> 8 * half & 15u)
                                 : (int)(signed char)(sub >> 8 * half);
}

/* What a block's term needs of its weights. */
template <class F> struct gw_block_scales {
    float d, m;   /* d * dx times the integer sum, m times the activations' sum or integer sum */
    unsigned sub; /* HALVES, Q2 */

    /* Of row first + row. */
    __device__ inline void load(const unsigned char *record, int first, int row, int i) {
        const unsigned char *head = record + F::HEAD_AT + F::HEAD_BYTES * F::HEADS * first +
                                    F::HEAD_BYTES * (F::HEADS * row + (F::HEADS > 1 ? i : 0));
        m = 0.0f;
        sub = F::SUB ? gw_sub<F>(record + 8 * first, row, i) : 0;
        if (F::HEAD_BYTES == 1) {
            d = gw_e8m0_half(*head);
        } else if (F::HEAD_BYTES == 2) {
            d = gw_widen_f16(*(const unsigned short *)head);
        } else if (F::TERM == GW_TERM_SIGNED || F::TERM == GW_TERM_HALVES) {
            d = *(const float *)head;
        } else {
            const unsigned both = *(const unsigned *)head;
            d = gw_widen_f16((gw_u16)(both & 0xffffu));
            m = gw_widen_f16((gw_u16)(both >> 16));
            m = F::AFFINE ? gw_plane_zero(d, m, F::OFFSET) : m;
        }
        if (F::SUB && F::AFFINE) {
            d = d * (float)(sub & 255u);
            m = -(m * (float)(sub >> 8));
        } else if (F::SUB && F::TERM == GW_TERM_SIGNED) {
            d = d * (float)(int)(signed char)(sub & 255u);
        }
    }
    /* sum: of code * q over the block, or all of a record, each half times its integer scale; number: of
     * gw_quantized, which `sum` has begun with where codes have an offset and there is no scale. */
    __device__ inline float term(int sum, float dx, unsigned number, float acc) const {
        if (F::TERM == GW_TERM_SIGNED || F::AFFINE) {
            acc = fmaf(d * dx, (float)sum, acc);
            return F::AFFINE ? fmaf(m, GW_F32_FROM_BITS(number), acc) : acc;
        }
        const int a = gw_first_sum(number), b = gw_second_sum(number);
        if (F::OFFSET) {
            sum -= F::OFFSET * (gw_sub_scale<F>(sub, 0) * a + gw_sub_scale<F>(sub, 1) * b);
        }
        acc = fmaf(d * dx, (float)sum, acc);
        if (F::TERM == GW_TERM_Q2) {
            const int least = (int)(sub >> 4 & 15u) * a + (int)(sub >> 12) * b;
            acc = fmaf(-(m * dx), (float)least, acc);
        }
        return acc;
    }
};

#endif
