/* kernels_hip/linear.hip - LINEAR and GLU of quantized weights, one row of x at a time. */
#include "kernels_hip/linear_quant.h"
#include "kernels_hip/strip_read.h"

/* A thread has a block of a row (of two rows where LANES is 32). */
template <class F> struct gw_dot : gw_quantized<F::BYTES, 1, F::TERM, F::OFFSET> {
    enum { SUMS = SETS, OUTS = 1, FOLDERS = 64, VALUES = 64 };

    __device__ static inline int first_x(int q) {
        return (GW_STRIP_BLOCKS * q + gw_wave_lane() % 4) * ACT_WORDS;
    }
    template <class Ring, class Refill>
    __device__ static inline void add(Ring &ring, int slot, Refill refill, int, const unsigned *x,
                                      int, float *sums, int, gw_nothing &) {
        struct __align__(8) pair {
            unsigned w[2];
        };
        const int lane = gw_wave_lane(), i = lane % 4;
        const pair *from = (const pair *)x;
        pair act[ACT_WORDS / 2]; /* before the weights are waited for */
#pragma unroll
        for (int k = 0; k < ACT_WORDS / 2; k++) {
            act[k] = from[k];
        }
        const unsigned char *record = ring.get(slot);
        gw_row_block<F> codes[SETS];
        gw_block_scales<F> scales[SETS];
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            codes[s].load(record, 8 * s, lane);
            scales[s].load(record, 8 * s, lane / 4, i);
        }
        ring.done();
        refill();
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            int half[2] = {F::TERM == GW_TERM_SIGNED && F::OFFSET ? (int)act[0].w[1] : 0, 0};
#pragma unroll
            for (int t = 0; t < 4; t++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    half[h] = gw_dp4a((int)codes[s].word(h, t),
                                      (int)act[1 + 2 * h + t / 2].w[t % 2], half[h]);
                }
            }
            const int sum = F::TERM == GW_TERM_HALVES || F::TERM == GW_TERM_Q2
                                ? gw_sub_scale<F>(scales[s].sub, 0) * half[0] +
                                      gw_sub_scale<F>(scales[s].sub, 1) * half[1]
                                : half[0] + half[1];
            sums[s] = scales[s].term(sum, GW_F32_FROM_BITS(act[0].w[0]), act[0].w[1], sums[s]);
        }
    }
    template <int ONCE> __device__ static inline float join(const float *values, int fold, int) {
        float v = gw_join_8<ONCE>(values + fold, VALUES);
        v = v + gw_quad_xor<2>(v);
        return v + gw_quad_xor<1>(v);
    }
    __device__ static inline int speaks(int fold) { return fold % 4 == 0; }
    __device__ static inline int out_row(int fold) { return fold / 4; }
    __device__ static inline int out_col(int, int) { return 0; }
};

#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_linear_##name, struct gw_linear_params, GW_LINEAR_BLOCK(SETS, GW_COPIES), 1) {    \
        gw_product<gw_dot<gw_strip_##name>, 0>(p);                                                 \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name, struct gw_linear_params, GW_LINEAR_BLOCK(SETS, GW_COPIES), 1) {       \
        gw_product<gw_dot<gw_strip_##name>, 1>(p);                                                 \
    }
GW_STRIP_FORMATS(KERNELS)

/* Gate and up of two formats come in two launches; a team per 32 columns joins them. */
GW_KERNEL(gw_glu_join, struct gw_glu_join_params, 256) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int row = (int)blockIdx.y, block = (int)blockIdx.x * 8 + gw_team();
    const int column = block * GW_LANES + gw_lane();
    if (row >= gw_live(p.step) || block * GW_LANES >= p.width) {
        return; /* whole teams */
    }
    const size_t at = (size_t)row * p.width + column;
    const float v = column < p.width ? gw_silu(p.gate[at]) * p.up[at] : 0.0f;
    if (p.act8) {
        gw_team_encode((gw_act8 *)p.y + (size_t)row * (p.width / GW_ACT_BLOCK) + block, v);
    } else if (column < p.width) {
        ((float *)p.y)[at] = v;
    }
}
