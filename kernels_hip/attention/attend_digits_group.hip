/* kernels_hip/attention/attend_digits_group.hip - attention of prompts in integers, as
 * attend_digits.hip, by matrix instructions of four waves: those read the digits of a page once for
 * all 64 queries, and go on while the threads make weights of what came before. Digits lie in rows
 * of 128 bytes, pieces of 16 exchanged as the instructions want them.
 */
#include "kernels_hip/attention/attend_digits_tile.h"

#if GW_GROUP_MMA

enum { CHUNK = 32, SUMS = CHUNK / 2 }; /* columns of a product, and what a thread has of them */

template <int E> struct group_unit {
    enum {
        EV = GW_DIGITS_EV(E),
        KEYS = GW_DIGITS_GROUP_KEYS(E),
        VALUES = GW_DIGITS_GROUP_VALUES(EV),
        PLACE = GW_DIGITS_GROUP_PLACE(E),
        KEY_SCALES = GW_PAGE * 2 * E,
        CHANNELS = EV * 2 * GW_PAGE,
        STAGES = GW_DIGITS_STAGES(E),
        TOGETHER = 1
    };
    __device__ static inline void show(void) { gw_group_show(); }

    /* Products of 32 digits with columns: high ones, and both mixed ones. */
    __device__ static inline void step(int *both, int *mixed, const unsigned *high,
                                       const unsigned *low, gw_group_at at_high, gw_group_at at_low,
                                       int goes_on) {
        gw_group_int8<CHUNK>(both, high, at_high, goes_on);
        gw_group_int8<CHUNK>(mixed, high, at_low, goes_on);
        gw_group_int8<CHUNK>(mixed, low, at_high, 1);
    }
    /* Bytes from `byte` on of rows that a page has in pieces of 128. */
    __device__ static inline int at(int byte) {
        return byte / 128 * (GW_PAGE * 128 / 16) + byte % 128 / 32 * GW_GROUP_K_STEP;
    }

    __device__ static inline void scores(const state<E> &s, const uint8_t *keys,
                                         float (*x)[RESULTS], int lane) {
        enum { CHUNKS = GW_PAGE / CHUNK };
        int both[CHUNKS][SUMS], mixed[CHUNKS][SUMS];
        const float *scales = (const float *)(keys + KEY_SCALES);
        const gw_group_at columns = gw_group_columns(keys);
        gw_group_begin();
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const gw_group_at from = columns + c * (CHUNK / 8) * GW_GROUP_COLUMNS_8;
#pragma unroll
            for (int k = 0; k < E / 32; k++) {
                step(both[c], mixed[c], s.q.high[k], s.q.low[k], from + at(32 * k),
                     from + at(E + 32 * k), k > 0);
            }
            gw_group_end();
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (c + 1 < CHUNKS) {
                gw_group_wait<1>();
            } else {
                gw_group_wait<0>();
            }
            gw_group_keep<SUMS>(both[c]);
            gw_group_keep<SUMS>(mixed[c]);
#pragma unroll
            for (int i = 0; i < SUMS; i++) {
                const int t = c * (CHUNK / SPAN) + i / RESULTS;
                x[t][i % RESULTS] =
                    score_of<E>(s.q, i % RESULTS, both[c][i], mixed[c][i], scales + t * SPAN, lane);
            }
        }
    }

    template <int ALL>
    __device__ static inline void add(state<E> &s, const uint8_t *values, const weights &w,
                                      const float *scale, const float *share, int page, int lane) {
        enum { CHUNKS = EV / CHUNK };
        int both[2][SUMS], mixed[2][SUMS];
        const float *channels = (const float *)(values + CHANNELS);
        const gw_group_at columns = gw_group_columns(values);
#pragma unroll
        for (int c = 0; c <= CHUNKS; c++) { /* one is on its way while the one before it is added */
            if (c < CHUNKS) {
                const gw_group_at from = columns + c * (CHUNK / 8) * GW_GROUP_COLUMNS_8;
                gw_group_begin();
#pragma unroll
                for (int k = 0; k < STEPS; k++) {
                    step(both[c % 2], mixed[c % 2], w.high[k], w.low[k], from + at(32 * k),
                         from + at(GW_PAGE + 32 * k), k > 0);
                }
                gw_group_end();
            }
            if (c == 0) {
                continue;
            }
            if (c < CHUNKS) {
                gw_group_wait<1>();
            } else {
                gw_group_wait<0>();
            }
            gw_group_keep<SUMS>(both[(c - 1) % 2]);
            gw_group_keep<SUMS>(mixed[(c - 1) % 2]);
#pragma unroll
            for (int i = 0; i < SUMS; i++) {
                const int t = (c - 1) * (CHUNK / SPAN) + i / RESULTS;
                join_value<E, ALL>(s, s.o[t][i % RESULTS], i % RESULTS, both[(c - 1) % 2][i],
                                   mixed[(c - 1) % 2][i], scale, share, channels + t * SPAN, page,
                                   lane);
            }
        }
    }
};

#define KERNEL(E, BLOCKS)                                                                          \
    GW_KERNEL(gw_attend_digits_group_##E, struct gw_digits_params, THREADS, BLOCKS) {              \
        GW_SHARED_TILES(uint8_t, shared);                                                          \
        attend<E, group_unit<E>>(p, shared);                                                       \
    }
KERNEL(64, 3)
KERNEL(128, 2)
KERNEL(256, 1)

#endif
