/* kernels_hip/linear_float.hip - LINEAR and GLU of F32, F16 and BF16 weights in the decode order.
 *
 * Element k belongs to lane k mod 32 of arith.h. A wave of F16 has class q of its tile, lanes 8 q
 * .. 8 q + 7 (F32: 4 q .. 4 q + 3); a thread two lanes (one) of a row, four elements of each at a
 * time.
 */
#include "kernels_hip/linear_stream.h"

struct gw_f32 {
    enum { CLASSES = 8, PAIR = 1 };
    __device__ static inline float element(const gw_16b &v, int i) {
        return GW_F32_FROM_BITS(v.w[i]);
    }
};
struct gw_f16 {
    enum { CLASSES = 4, PAIR = 2 };
    __device__ static inline float element(const gw_16b &v, int i) {
        return gw_widen_f16((gw_u16)(v.w[i / 2] >> 16 * (i % 2)));
    }
};
struct gw_bf16 {
    enum { CLASSES = 4, PAIR = 2 };
    __device__ static inline float element(const gw_16b &v, int i) {
        return gw_bf16_to_f32((gw_u16)(v.w[i / 2] >> 16 * (i % 2)));
    }
};

/* N rows of x; WHERE: 1 when they stay in global memory, because they are too long. */
template <class F, int N, int WHERE> struct gw_floats {
    enum {
        DIRECT = WHERE,
        ACT8 = 0,
        NORM = N == 1 && !WHERE,
        CLASSES = F::CLASSES,
        RECORD = GW_LINEAR_FLOAT_RECORD,
        PAIR = F::PAIR,
        SUMS = N * PAIR * SETS,
        OUTS = N,
        FOLDERS = 64,
        VALUES = SUMS * LANES
    };
    __device__ static inline int records(int terms) {
        return (terms + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS * CLASSES;
    }
    __device__ static inline void stage(const gw_linear_params &p, unsigned *x,
                                        const unsigned char *from, int n) {
        enum { AT_ONCE = N < 4 ? 4 : 1 };
        if (p.terms % 4 == 0) {
            gw_stage<4, N, AT_ONCE>(from, (size_t)p.row_bytes, p.terms, x, p.row_words, n);
        } else {
            gw_stage<1, N, AT_ONCE>(from, (size_t)p.row_bytes, p.terms, x, p.row_words, n);
        }
    }
    template <class Ring, class Refill>
    __device__ static inline void add(Ring &ring, int slot, Refill refill, int u, const unsigned *x,
                                      int row_words, float *sums, int live) {
        const int lane = gw_wave_lane(), t = lane % 4;
        const unsigned *first =
            x + u / CLASSES * GW_STRIP_FLOATS + (u % CLASSES * 4 + t) * (int)PAIR;
        float xv[N][4][PAIR];
#pragma unroll
        for (int n = 0; n < N; n++) { /* before the weights are waited for */
            const unsigned *at = first + (n < live ? n : 0) * row_words;
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int o = 0; o < PAIR; o++) {
                    xv[n][e][o] = GW_F32_FROM_BITS(at[32 * e + o]);
                }
            }
        }
        const unsigned char *record = ring.get(slot);
        gw_16b w[SETS];
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            w[s] = *(const gw_16b *)(record + 16 * (lane + s * LANES));
        }
        ring.done();
        refill();
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int o = 0; o < PAIR; o++) {
#pragma unroll
                    for (int s = 0; s < SETS; s++) {
                        float &sum = sums[(n * PAIR + o) * SETS + s];
                        sum = fmaf(F::element(w[s], e * PAIR + o), xv[n][e][o], sum);
                    }
                }
            }
        }
    }
    template <int ONCE> __device__ static inline float join(const float *values, int fold, int n) {
        float z[PAIR];
#pragma unroll
        for (int o = 0; o < PAIR; o++) { /* fold: thread and set of a wave */
            const float *v = values + (n * PAIR + o) * 64 + fold;
            z[o] = CLASSES == 8 ? gw_join_8<ONCE>(v, VALUES)
                   : ONCE       ? (v[0] + v[2 * VALUES]) + (v[VALUES] + v[3 * VALUES])
                                : v[0] + v[VALUES];
            z[o] = z[o] + gw_quad_xor<2>(z[o]);
            z[o] = z[o] + gw_quad_xor<1>(z[o]);
        }
        return PAIR == 2 ? z[0] + z[PAIR - 1] : z[0];
    }
    __device__ static inline int speaks(int fold) { return fold % 4 == 0; }
    __device__ static inline int out_row(int fold) { return fold / 4; }
    __device__ static inline int out_col(int, int n) { return n; }
};

#define KERNELS(name, variant, n, direct)                                                          \
    GW_KERNEL(gw_linear_##name##variant, struct gw_linear_params, GW_LINEAR_THREADS) {             \
        gw_product<gw_floats<gw_##name, n, direct>, 0>(p);                                         \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##variant, struct gw_linear_params, GW_LINEAR_THREADS) {                \
        gw_product<gw_floats<gw_##name, n, direct>, 1>(p);                                         \
    }
#define WIDTHS(name)                                                                               \
    KERNELS(name, _1, 1, 0) KERNELS(name, _2, 2, 0) KERNELS(name, _4, 4, 0) KERNELS(name, _long, 1, 1)
WIDTHS(f32)
WIDTHS(f16)
WIDTHS(bf16)
