/* kernels_hip/linear/linear_float.hip - LINEAR and GLU of F32, F16, BF16, E4M3 and NVFP4 weights in
 * the decode order.
 *
 * Element k belongs to lane k mod 32 of arith.h. A wave of F16 has class q of its tile, lanes 8 q
 * .. 8 q + 7 (F32: 4 q .. 4 q + 3); a thread two lanes (one) of a row, four elements of each at a
 * time. E4M3 and NVFP4 are as F16, but for fewer bytes, and the scales of the rows, which all waves
 * of a tile bring behind theirs.
 */
#include "kernels_hip/linear/linear_async.h"
#include "kernels_hip/linear/linear_registers.h"
#include "kernels_hip/strip.h"
#include "kernels_hip/strip_e4m3.h"

struct gw_f32 {
    enum { CLASSES = 8, PAIR = 1, EACH = 16, HEADS = 0, SCALES = 1, RECORDS = 1 };
    typedef gw_16b words; /* EACH bytes: of a thread, in a row */
    __device__ static inline float element(const gw_16b &v, int i) {
        return GW_F32_FROM_BITS(v.w[i]);
    }
    __device__ static inline float scale(const unsigned char *, int, int) { return 1.0f; }
};
struct gw_f16 {
    enum { CLASSES = 4, PAIR = 2, EACH = 16, HEADS = 0, SCALES = 1, RECORDS = 1 };
    typedef gw_16b words;
    __device__ static inline float element(const gw_16b &v, int i) {
        return gw_widen_f16((gw_u16)(v.w[i / 2] >> 16 * (i % 2)));
    }
    __device__ static inline float scale(const unsigned char *, int, int) { return 1.0f; }
};
struct gw_bf16 {
    enum { CLASSES = 4, PAIR = 2, EACH = 16, HEADS = 0, SCALES = 1, RECORDS = 1 };
    typedef gw_16b words;
    __device__ static inline float element(const gw_16b &v, int i) {
        return gw_bf16_to_f32((gw_u16)(v.w[i / 2] >> 16 * (i % 2)));
    }
    __device__ static inline float scale(const unsigned char *, int, int) { return 1.0f; }
};

struct gw_e4m3 {
    enum {
        CLASSES = 4,
        PAIR = 2,
        EACH = 8,
        HEADS = 4, /* bytes of a row's float */
        SCALES = 1,
        RECORDS = GW_COPIES ? (int)GW_LINEAR_E4M3_RECORDS : 1
    };
    struct __align__(8) words {
        unsigned w[2];
    };
    __device__ static inline float element(const words &v, int i) {
        const unsigned both = gw_e4m3_numbers(v.w[i / 4], i / 2 % 2);
        return gw_widen_f16((gw_u16)(both >> 16 * (i % 2)));
    }
    __device__ static inline float scale(const unsigned char *head, int, int) {
        return *(const float *)head * GW_E4M3_TIMES;
    }
};
struct gw_nvfp4_codes {
    enum { CLASSES = 4, PAIR = 2, EACH = 4, HEADS = 12, SCALES = 4, RECORDS = 1 };
    struct words {
        unsigned w;
    };
    __device__ static inline float element(const words &v, int i) { return gw_widen_e2m1(v.w, i); }
    __device__ static inline float scale(const unsigned char *head, int e, int q) {
        return gw_strip_nvfp4_scale(head, e, q);
    }
};

/* N rows of x; WHERE: 1 when they stay in global memory, because they are too long. Where a wave of
 * 32 would have two rows of a class for each thread, SPLIT gives 8 of the 16 rows to one wave and 8
 * to another, half of two records at a time: so a tile keeps 8 waves busy, and twice as many
 * blocks. Records of bytes come several at a time (F::RECORDS), for what a slot costs beside its
 * arithmetic, some 45 instructions, does not depend on how many weights it has. */
template <class F, int N, int WHERE> struct gw_floats {
    enum {
        DIRECT = WHERE,
        ACT8 = 0,
        SORTS = 0,
        MORE = 0,
        ADAPTS = 0,
        SPAN = 0,
        FORM = GW_FORM_FLOATS,
        X_ROWS = N,
        PAIR = F::PAIR,
        SPLIT = LANES == 32 && PAIR == 2 ? 2 : 1,
        MANY = SPLIT * F::RECORDS, /* records, or halves, of a slot */
        STORED = F::CLASSES,       /* of a record in memory */
        CLASSES = STORED * SPLIT,
        EACH = F::EACH,
        HEADS = F::HEADS,
        SCALES = F::SCALES,        /* of a row, for the fours of a thread's elements */
        CODES = 64 * EACH / SPLIT, /* bytes that lie together */
        PART = CODES + 16 * HEADS / SPLIT,
        RECORD = MANY * PART,
        JUMP = STORED * 64 * EACH + 16 * HEADS,
        STEP = MANY * JUMP,
        X_STEP = MANY * GW_STRIP_FLOATS,
        ROWS = SETS / SPLIT, /* of a thread */
        SUMS = N * PAIR * ROWS,
        JOINED = STORED
    };
    typedef gw_nothing held;
    __device__ static inline void hold(held &, float) {}
    /* The class and the half of a tile's rows that wave q has. */
    __device__ static inline int stored(int q) { return q % STORED; }
    __device__ static inline int upper(int q) { return q / STORED; }

    /* For a lane with 16 bytes, those of its number. */
    __device__ static inline size_t first(int q) {
        const int at = 16 * gw_wave_lane();
        return HEADS > 0 ? place(q, at) - (size_t)at : place(q, 0);
    }
    __device__ static inline size_t strip(int terms) { return (size_t)records(terms) * JUMP; }
    __device__ static inline int records(int terms) {
        return (terms + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
    }
    __device__ static inline int parts(int terms, int) { return records(terms); }
    __device__ static inline int slots(int terms) { return (records(terms) + MANY - 1) / MANY; }
    /* Where byte `at` of a part is: codes, then floats of their rows. */
    __device__ static inline size_t place(int q, int at) {
        return HEADS > 0 && at >= (int)CODES
                   ? (size_t)(STORED * 64 * EACH + upper(q) * (16 * HEADS / SPLIT) + at - CODES)
                   : (size_t)(stored(q) * 64 * EACH + upper(q) * CODES + at);
    }
    __device__ static inline int first_x(int q) {
        return (stored(q) * 4 + gw_wave_lane() % 4) * (int)PAIR;
    }
    __device__ static inline int x_bytes(int terms) { return (terms + 3) / 4 * 16; }
    /* Factors, and zeros behind the last column; with GW_COPIES. */
    __device__ static inline void settle(const gw_linear_params &p, unsigned *x, int n,
                                         const float *factors) {
        for (int r = 0; r < n; r++) {
            const float factor = factors ? factors[r] : 1.0f;
            for (int i = 4 * (int)threadIdx.x; i < p.row_words; i += 4 * GW_LINEAR_THREADS) {
                gw_16b *at = (gw_16b *)(x + r * p.row_words + i);
                gw_16b v = *at;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    v.w[j] = i < p.terms ? GW_F32_BITS(GW_F32_FROM_BITS(v.w[j]) * factor) : 0;
                }
                *at = v;
            }
        }
    }
    template <int G, class Ready>
    __device__ static inline void stage_by(const gw_linear_params &p, unsigned *x,
                                           const unsigned char *from, int n,
                                           const gw_factors<N> &factors, Ready ready) {
        struct __align__(4 * G) words {
            unsigned w[G];
        };
        const auto put = [&](int at) {
            return [&factors, at](unsigned *row, const unsigned *w, int r) {
                words v;
#pragma unroll
                for (int j = 0; j < G; j++) {
                    v.w[j] = GW_F32_BITS(GW_F32_FROM_BITS(w[j]) * factors.of[r]);
                }
                *(words *)(row + at) = v;
            };
        };
        gw_stage<G, N, (N < 4 ? 4 : 1)>(from, (size_t)p.row_bytes, p.terms, p.row_words, x,
                                        p.row_words, n, put, ready);
    }
    template <class Ready>
    __device__ static inline void stage(const gw_linear_params &p, unsigned *x,
                                        const unsigned char *from, int n,
                                        const gw_factors<N> &factors, Ready ready) {
        if (p.terms % 4 == 0) {
            stage_by<4>(p, x, from, n, factors, ready);
        } else {
            stage_by<1>(p, x, from, n, factors, ready);
        }
    }
    /* What a thread multiplies of a record: x is where its columns begin. */
    struct part {
        float x[N][4][PAIR], scale[ROWS][SCALES];
        typename F::words w[ROWS];

        __device__ inline void load_x(const unsigned *from, int row_words, int live) {
#pragma unroll
            for (int n = 0; n < N; n++) {
                const unsigned *at = from + (n < live ? n : 0) * row_words;
#pragma unroll
                for (int e = 0; e < 4; e++) {
#pragma unroll
                    for (int o = 0; o < PAIR; o++) {
                        x[n][e][o] = GW_F32_FROM_BITS(at[32 * e + o]);
                    }
                }
            }
        }
        __device__ inline void add(float *sums) const {
#pragma unroll
            for (int n = 0; n < N; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
#pragma unroll
                    for (int o = 0; o < PAIR; o++) {
#pragma unroll
                        for (int s = 0; s < ROWS; s++) {
                            float &sum = sums[(n * PAIR + o) * ROWS + s];
                            float v = F::element(w[s], e * PAIR + o);
                            v = HEADS > 0 ? v * scale[s][e % SCALES] : v;
                            sum = fmaf(v, x[n][e][o], sum);
                        }
                    }
                }
            }
        }
    };
    template <class Source>
    __device__ static inline void add(Source &source, int left, const unsigned *x, int row_words,
                                      float *sums, int live, gw_nothing &) {
        const int lane = gw_wave_lane(), q = stored(gw_wave() % CLASSES);
        enum { FIRST = N == 1 ? (int)MANY : N == 2 ? (int)SPLIT : 1 }; /* more: many registers */
        part of[MANY];
#pragma unroll
        for (int h = 0; h < FIRST; h++) { /* before the weights are waited for */
            of[h].load_x(x + (h < left ? h : 0) * GW_STRIP_FLOATS, row_words, live);
        }
        const unsigned char *record = source.take();
#pragma unroll
        for (int h = 0; h < MANY; h++) {
#pragma unroll
            for (int s = 0; s < ROWS; s++) {
                const unsigned char *part_of = record + h * PART;
                of[h].w[s] = *(const typename F::words *)(part_of + EACH * (lane + s * LANES));
                const unsigned char *head = part_of + CODES + HEADS * (lane / 4 + s * (LANES / 4));
#pragma unroll
                for (int e = 0; e < SCALES; e++) {
                    of[h].scale[s][e] = F::scale(head, e, q);
                }
            }
        }
        source.done();
        if (left >= MANY) { /* without branches between them their steps mix */
#pragma unroll
            for (int h = 0; h < MANY; h++) {
                if (h >= FIRST) {
                    of[h].load_x(x + h * GW_STRIP_FLOATS, row_words, live);
                }
                of[h].add(sums);
            }
            return;
        }
#pragma unroll
        for (int h = 0; h < MANY - 1; h++) {
            if (h < left) {
                if (h >= FIRST) {
                    of[h].load_x(x + h * GW_STRIP_FLOATS, row_words, live);
                }
                of[h].add(sums);
            }
        }
    }
    /* Both lanes of a thread are neighbours, four threads have the class's of a row. */
    __device__ static inline void leave(float *values, int q, const float *sums) {
        enum { STEP = GW_LINEAR_SUMS_STEP(N) };
        const int lane = gw_wave_lane();
        float *to = values + stored(q) * N * STEP + upper(q) * 8 + lane / 4;
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int s = 0; s < ROWS; s++) {
                float v = sums[n * PAIR * ROWS + s];
                v = PAIR == 2 ? v + sums[(n * PAIR + PAIR - 1) * ROWS + s] : v;
                v = v + gw_quad_xor<1>(v);
                v = v + gw_quad_xor<2>(v);
                if (lane % 4 == 0) {
                    to[n * STEP + 8 * s] = v;
                }
            }
        }
    }
};

#if !GW_COPIES
template <class F, int N, int WHERE> struct gw_slot<gw_floats<F, N, WHERE>> {
    __device__ static inline size_t place(int q, int at) {
        return gw_floats<F, N, WHERE>::place(q, at);
    }
};
#endif

#define KERNELS(name, variant, n, direct)                                                          \
    GW_KERNEL(gw_linear_##name##variant, struct gw_linear_params,                                  \
              GW_LINEAR_BLOCK(n, GW_COPIES, 0), 1) {                                               \
        gw_product<gw_floats<gw_##name, n, direct>, 0>(p);                                         \
    }                                                                                              \
    GW_KERNEL(gw_glu_##name##variant, struct gw_linear_params, GW_LINEAR_BLOCK(n, GW_COPIES, 0),   \
              1) {                                                                                 \
        gw_product<gw_floats<gw_##name, n, direct>, 1>(p);                                         \
    }
#define WIDTHS(name)                                                                               \
    KERNELS(name, _1, 1, 0)                                                                        \
    KERNELS(name, _2, 2, 0) KERNELS(name, _4, 4, 0) KERNELS(name, _long, 1, 1)
WIDTHS(f32)
WIDTHS(f16)
WIDTHS(bf16)
WIDTHS(e4m3)
WIDTHS(nvfp4_codes)
