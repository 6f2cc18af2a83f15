/* kernels_hip/linear/linear.hip - LINEAR and GLU of quantized weights, one row of x at a time. */
#include "kernels_hip/linear/linear_quant.h"
#include "kernels_hip/linear/strip_read.h"

/* A thread has a block of a row (of two rows where LANES is 32). */
template <class F, int ORDER = 0, int PARTS = 0, int LORA = 0>
struct gw_dot : gw_quantized<F::BYTES, 1, F::TERM, F::OFFSET> {
    enum { SUMS = F::SPAN ? 1 : SETS, SORTS = ORDER, MORE = PARTS, ADAPTS = LORA };

#if GW_COPIES
    struct held {
        float factor; /* of the scales of x */
    };
    __device__ static inline void hold(held &h, float factor) { h.factor = factor; }
#else
    typedef gw_nothing held;
#endif

    /* The thread's block of x. */
    struct act {
        unsigned scale, number, q[8];

        __device__ inline void load(const unsigned *x, int i, const held &h) {
            struct __align__(8) pair {
                unsigned w[2];
            };
#if GW_COPIES
            const float dx = GW_F32_FROM_BITS(x[i]) * h.factor;
            scale = GW_F32_BITS(dx);
            number = x[GW_ACT_GROUP + i];
            if (F::TERM == GW_TERM_AFFINE) {
                number = GW_F32_BITS(dx * GW_F32_FROM_BITS(number));
            }
#pragma unroll
            for (int t = 0; t < 4; t++) {
                const pair v = *(const pair *)(x + 2 * GW_ACT_GROUP + 8 * t + 2 * i);
                q[t] = v.w[0];
                q[4 + t] = v.w[1];
            }
#else
            const pair *from = (const pair *)(x + i * ACT_WORDS);
            (void)h;
            scale = from[0].w[0];
            number = from[0].w[1];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                q[2 * k] = from[1 + k].w[0];
                q[2 * k + 1] = from[1 + k].w[1];
            }
#endif
        }
    };

    __device__ static inline int first_x(int q) { return GW_ACT_GROUP_WORDS * q; }
    template <class Source>
    __device__ static inline void add(Source &source, int, const unsigned *x, int, float *sums, int,
                                      held &h) {
        const int lane = gw_wave_lane(), i = lane % 4;
        act a; /* before the weights are waited for */
        a.load(x, i, h);
        const unsigned char *record = source.take();
        gw_row_block<F> codes[SETS];
        gw_block_scales<F> scales[SUMS];
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            codes[s].load(record, 8 * s, lane);
        }
#pragma unroll
        for (int s = 0; s < SUMS; s++) { /* of two rows, odd lanes have the second one's term */
            scales[s].load(record, F::SPAN ? (SETS - 1) * (i & 1) * 8 : 8 * s, lane / 4, i);
        }
        source.done();
        int spans[SETS];
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            int half[2] = {F::TERM == GW_TERM_SIGNED && F::OFFSET ? (int)a.number : 0, 0};
#pragma unroll
            for (int t = 0; t < 4; t++) {
                unsigned w[2];
                codes[s].words(t, w);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    half[h] = gw_dp4a((int)w[h], (int)a.q[4 * h + t], half[h]);
                }
            }
            const int sum = F::TERM == GW_TERM_HALVES || F::TERM == GW_TERM_Q2
                                ? gw_sub_scale<F>(scales[s % SUMS].sub, 0) * half[0] +
                                      gw_sub_scale<F>(scales[s % SUMS].sub, 1) * half[1]
                                : half[0] + half[1];
            if (F::SPAN) {
                spans[s] = sum;
            } else {
                sums[s % SUMS] = scales[s % SUMS].term(sum, GW_F32_FROM_BITS(a.scale), a.number,
                                                       sums[s % SUMS]);
            }
        }
        if (F::SPAN) {
            const int sum = of_quad(spans, i & 1);
            sums[0] = scales[0].term(sum, GW_F32_FROM_BITS(a.scale), a.number, sums[0]);
        }
    }
    /* Of four neighbours' parts of a row; of two rows, even and odd lanes get one each. */
    template <class T> __device__ static inline T of_quad(const T *v, int odd) {
        T sum = odd ? v[SETS - 1] : v[0];
        sum = sum + gw_quad_xor<1>(odd ? v[0] : v[SETS - 1]);
        return sum + gw_quad_xor<2>(sum);
    }
    /* Lanes of arith.h without a term are +0. */
    __device__ static inline void leave(float *values, int q, const float *sums) {
        const int lane = gw_wave_lane(), odd = lane & 1;
        const float v = F::SPAN ? sums[0] + 0.0f : of_quad(sums, SETS == 2 && odd);
        if (lane % 4 < SETS) {
            values[q * GW_STRIP_ROWS + lane / 4 + 8 * (SETS - 1) * odd] = v;
        }
    }
};

#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_linear_##name, struct gw_linear_params, GW_LINEAR_BLOCK(1, GW_COPIES, 0), 1) {    \
        gw_product<gw_dot<gw_strip_##name>, 0>(p);                                                 \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name, struct gw_linear_params, GW_LINEAR_BLOCK(1, GW_COPIES, 0), 1) {       \
        gw_product<gw_dot<gw_strip_##name>, 1>(p);                                                 \
    }
GW_STRIP_KERNELS(KERNELS)

/* With registers to spare for blocks of attention that are to run beside: 64 a thread, as if there
 * were more threads. */
#if GW_COPIES
#define BESIDE_THREADS 1024
#define BESIDE_PRODUCT(name) gw_product<gw_dot<gw_strip_##name>, 0>(p)
#define ORDER_PRODUCT(name, glu) gw_product<gw_dot<gw_strip_##name, 1>, glu>(p)
#define PARTS_PRODUCT(name) gw_product<gw_dot<gw_strip_##name, 0, 1>, 0>(p)
#define ADAPT_PRODUCT(name, order, glu) gw_product<gw_dot<gw_strip_##name, order, 0, 1>, glu>(p)
#else
#define BESIDE_THREADS GW_LINEAR_BLOCK(1, 0, 0)
#define BESIDE_PRODUCT(name) (void)p /* the host does not launch these */
#define ORDER_PRODUCT(name, glu) (void)p
#define PARTS_PRODUCT(name) (void)p
#define ADAPT_PRODUCT(name, order, glu) (void)p
#endif
#define BESIDE(NAME, name)                                                                         \
    GW_KERNEL(gw_linear_##name##_beside, struct gw_linear_params, BESIDE_THREADS, 1) {             \
        BESIDE_PRODUCT(name);                                                                      \
    }
GW_STRIP_BESIDE(BESIDE)

/* Kernels of their own, because the others are slower with this in them: a 7b of Q4_0 by 1.8%. */
#define ORDER(NAME, name)                                                                          \
    GW_KERNEL(gw_linear_##name##_order, struct gw_linear_params, GW_LINEAR_BLOCK(1, GW_COPIES, 0), \
              1) {                                                                                 \
        ORDER_PRODUCT(name, 0);                                                                    \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##_order, struct gw_linear_params, GW_LINEAR_BLOCK(1, GW_COPIES, 0),    \
              1) {                                                                                 \
        ORDER_PRODUCT(name, 1);                                                                    \
    }
GW_STRIP_ORDER(ORDER)

/* Of the matrices of several nodes that read the same row. */
#define PARTS(NAME, name)                                                                          \
    GW_KERNEL(gw_linear_##name##_parts, struct gw_linear_params, GW_LINEAR_BLOCK(1, GW_COPIES, 0), \
              1) {                                                                                 \
        PARTS_PRODUCT(name);                                                                       \
    }
GW_STRIP_PARTS(PARTS)

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
    if (p.form != GW_FORM_FLOATS) {
        gw_team_encode(p.y, (size_t)row * (p.width / GW_ACT_BLOCK) + block, p.form, v);
    } else if (column < p.width) {
        ((float *)p.y)[at] = v;
    }
}

/* With adapters of the row, which comes in blocks or, to be encoded, as floats. */
#define ADAPT(NAME, name)                                                                          \
    GW_KERNEL(gw_linear_##name##_adapt, struct gw_linear_params, GW_LINEAR_BLOCK(1, GW_COPIES, 0), \
              1) {                                                                                 \
        ADAPT_PRODUCT(name, 0, 0);                                                                 \
    }                                                                                              \
    GW_KERNEL(gw_linear_##name##_adapt_floats, struct gw_linear_params,                            \
              GW_LINEAR_BLOCK(1, GW_COPIES, 0), 1) {                                               \
        ADAPT_PRODUCT(name, GW_SORTS_NOTHING, 0);                                                  \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##_adapt, struct gw_linear_params, GW_LINEAR_BLOCK(1, GW_COPIES, 0),    \
              1) {                                                                                 \
        ADAPT_PRODUCT(name, 0, 1);                                                                 \
    }
GW_STRIP_PARTS(ADAPT)
