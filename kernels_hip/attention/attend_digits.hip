/* kernels_hip/attention/attend_digits.hip - attention of prompts in integers (docs/arithmetic.md,
 * "Attention in digits"): what groups of pages below a row's own come to, bit for bit, by matrix
 * instructions of one wave, or dot products in their place. Waves of 32 have queries as rows of the
 * first operand; waves of 64 have pages there, so that weights need not go to other threads.
 */
#include "kernels_hip/attention/attend_digits_tile.h"

/* c += pages times queries, over 32 digits. */
GW_DEVICE void product(int *c, const unsigned *queries, const unsigned *page) {
#if LANES == 32
    gw_mma_int8(c, queries, page);
#else
    gw_mma_int8(c, page, queries);
#endif
}

/* Digits of SPAN rows of a page, 64 of them: two words for each 32. at: gw_digits_rows below. */
GW_DEVICE void load_rows(unsigned *words, const uint8_t *at) {
#if GW_LOAD_MATRICES
    gw_load_matrices(words, at);
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
#else
    return NARROW ? lane / 4 * row_bytes + lane % 4 * 4 : lane % 16 * row_bytes + lane / 16 * 4;
#endif
}

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
                unsigned high[4], low[4];
                load_rows(high, rows + t * SPAN * KEY_ROW + k);
                load_rows(low, rows + t * SPAN * KEY_ROW + E + k);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    product(both, s.q.high[k / 32 + i], high + 2 * i);
                    product(mixed, s.q.high[k / 32 + i], low + 2 * i);
                    product(mixed, s.q.low[k / 32 + i], high + 2 * i);
                }
            }
#pragma unroll
            for (int i = 0; i < RESULTS; i++) {
                x[t][i] = score_of<E>(s.q, i, both[i], mixed[i], scales + t * SPAN, lane);
            }
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
            unsigned high[4], low[4];
            load_rows(high, rows + t * SPAN * VALUE_ROW);
            load_rows(low, rows + t * SPAN * VALUE_ROW + GW_PAGE);
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                product(both, w.high[k], high + 2 * k);
                product(mixed, w.high[k], low + 2 * k);
                product(mixed, w.low[k], high + 2 * k);
            }
#pragma unroll
            for (int i = 0; i < RESULTS; i++) {
                join_value<E, ALL>(s, s.o[t][i], i, both[i], mixed[i], scale, share,
                                   channels + t * SPAN, page, lane);
            }
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
