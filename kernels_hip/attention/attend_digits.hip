/* kernels_hip/attention/attend_digits.hip - attention of prompts in integers (docs/arithmetic.md,
 * "Attention in digits"): what groups of pages below a row's own come to, bit for bit, by matrix
 * instructions of one wave, or dot products in their place. With GW_QUADS queries are rows of the
 * first operand; else pages are, so that weights need not go to other threads, or to one (gfx11).
 */
#include "kernels_hip/attention/attend_digits_tile.h"

/* c += pages times queries, over 32 digits. */
GW_DEVICE void product(int *c, const unsigned *queries, const unsigned *page) {
#if GW_QUADS
    gw_mma_int8(c, queries, page);
#else
    gw_mma_int8(c, page, queries);
#endif
}

/* Words of a thread for 64 digits of a row, and for 32. */
#if GW_WMMA
#define WORDS_OF_64 4 * GW_WMMA_QUARTERS
#define WORDS_OF_32 2 * GW_WMMA_QUARTERS
#else
#define WORDS_OF_64 4
#define WORDS_OF_32 2
#endif

/* Digits of SPAN rows of a page, 64 of them. at: rows_at below. */
GW_DEVICE void load_rows(unsigned *words, const uint8_t *at) {
#if GW_LOAD_MATRICES
    gw_load_matrices(words, at);
#elif GW_WMMA
#pragma unroll
    for (int i = 0; i < 4; i++) {
        gw_wmma_load(words + i * GW_WMMA_QUARTERS, at + 16 * i, gw_wave_lane());
    }
#else
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = *(const unsigned *)(at + 16 * i);
    }
#endif
}
/* Where a lane reads them, in rows of so many bytes. */
GW_DEVICE int rows_at(int lane, int row_bytes) {
#if GW_LOAD_MATRICES
    return lane % 8 * row_bytes + lane / 8 * 16;
#elif GW_WMMA
    return lane % 16 * row_bytes;
#else
    return NARROW ? lane / 4 * row_bytes + lane % 4 * 4 : lane % 16 * row_bytes + lane / 16 * 4;
#endif
}

/* The operand of 32 digits of a query; gfx11: of which each half of the wave has half. */
#if GW_MATRIX == GW_MATRIX_WMMA_11
struct whole_query {
    unsigned w[GW_MMA_B];

    __device__ inline whole_query(const unsigned *words) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const gw_wmma_whole<4> sixteen(words + 2 * h, gw_wave_lane());
#pragma unroll
            for (int i = 0; i < 4; i++) {
                w[4 * h + i] = sixteen.w[i];
            }
        }
    }
    __device__ inline operator const unsigned *() const { return w; }
};
#define OPERAND(words) whole_query(words)
#else
#define OPERAND(words) words
#endif

/* ---- a page ---------------------------------------------------------------------------------- */

template <int E> struct steps_unit {
    enum {
        EV = GW_DIGITS_EV(E),
        KEY_ROW = GW_DIGITS_KEY_ROW(E),
        VALUE_ROW = GW_DIGITS_VALUE_ROW,
        KEYS = GW_DIGITS_KEYS(E),
        VALUES = GW_DIGITS_VALUES(EV),
        PLACE = GW_DIGITS_PLACE(E),
        KEY_SCALES = GW_PAGE * KEY_ROW,
        CHANNELS = EV * VALUE_ROW,
        STAGES = GW_COPIES ? GW_DIGITS_STAGES(E) : 1,
        TOGETHER = 0
    };
    __device__ static inline void show(void) {}

    __device__ static inline void scores(const state<E> &s, const uint8_t *keys,
                                         float (*x)[RESULTS], int lane) {
        const float *scales = (const float *)(keys + KEY_SCALES);
        const uint8_t *rows = keys + rows_at(lane, KEY_ROW);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            int both[RESULTS] = {0, 0, 0, 0}, mixed[RESULTS] = {0, 0, 0, 0};
#pragma unroll
            for (int k = 0; k < E; k += 64) {
                unsigned high[WORDS_OF_64], low[WORDS_OF_64];
                load_rows(high, rows + t * SPAN * KEY_ROW + k);
                load_rows(low, rows + t * SPAN * KEY_ROW + E + k);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    product(both, OPERAND(s.q.high[k / 32 + i]), high + WORDS_OF_32 * i);
                    product(mixed, OPERAND(s.q.high[k / 32 + i]), low + WORDS_OF_32 * i);
                    product(mixed, OPERAND(s.q.low[k / 32 + i]), high + WORDS_OF_32 * i);
                }
            }
#pragma unroll
            for (int i = 0; i < RESULTS; i++) {
                x[t][i] = score_of<E>(s.q, i, both[i], mixed[i], scales + t * SPAN, lane);
            }
#if GW_WMMA
            gw_wmma_now(x[t]);
#endif
            gw_read_no_earlier();
        }
    }

    template <int ALL>
    __device__ static inline void add(state<E> &s, const uint8_t *values, const weights &w,
                                      const float *scale, const float *share, int page, int lane) {
        const float *channels = (const float *)(values + CHANNELS);
        const uint8_t *rows = values + rows_at(lane, VALUE_ROW);
#pragma unroll
        for (int t = 0; t < EV / SPAN; t++) {
            int both[RESULTS] = {0, 0, 0, 0}, mixed[RESULTS] = {0, 0, 0, 0};
            unsigned high[WORDS_OF_64], low[WORDS_OF_64];
            load_rows(high, rows + t * SPAN * VALUE_ROW);
            load_rows(low, rows + t * SPAN * VALUE_ROW + GW_PAGE);
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                product(both, w.high[k], high + WORDS_OF_32 * k);
                product(mixed, w.high[k], low + WORDS_OF_32 * k);
                product(mixed, w.low[k], high + WORDS_OF_32 * k);
            }
#pragma unroll
            for (int i = 0; i < RESULTS; i++) {
                join_value<E, ALL>(s, s.o[t][i], i, both[i], mixed[i], scale, share,
                                   channels + t * SPAN, page, lane);
            }
#if GW_WMMA
            gw_wmma_now(s.o[t]);
#endif
            gw_read_no_earlier();
        }
    }
};

/* E: the width of a head is at most that. */
#define KERNEL(E, BLOCKS)                                                                          \
    GW_KERNEL(gw_attend_digits_##E, struct gw_digits_params, THREADS, BLOCKS) {                    \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        attend<E, steps_unit<E>>(p, shared);                                                       \
    }
KERNEL(64, 3)
KERNEL(128, 2)
KERNEL(256, 1)
