/* kernels_hip/attention/attend_digits_group.hip - attention of prompts in integers, as
 * attend_digits.hip, by matrix instructions of four waves: those read the digits of a page once for
 * all 64 queries, and go on while the threads make weights of what came before. Digits lie in rows
 * of 128 bytes, pieces of 16 exchanged as the instructions want them.
 */
#include "kernels_hip/attention/attend_digits_tile.h"

#if GW_GROUP_MMA

/* Columns of a product, and what a thread has of them; products that are on their way while the
 * results of another are taken. */
enum { CHUNK = 32, SUMS = CHUNK / 2, AHEAD = 1, PLACES = AHEAD + 1 };

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

    /* Products of N steps of 32 digits with 32 columns: high ones, and both mixed ones. */
    template <int N>
    __device__ static inline void begin(int *both, int *mixed, const unsigned (*high)[WORDS],
                                        const unsigned (*low)[WORDS], gw_group_at columns) {
        gw_group_begin();
#pragma unroll
        for (int k = 0; k < N; k++) {
            const gw_group_at at_high = columns + at(32 * k), at_low = columns + at(32 * (N + k));
            gw_group_int8<CHUNK>(both, high[k], at_high, k > 0);
            gw_group_int8<CHUNK>(mixed, high[k], at_low, k > 0);
            gw_group_int8<CHUNK>(mixed, low[k], at_high, 1);
        }
        gw_group_end();
    }
    /* Byte `byte` of rows that lie in pieces of 128. */
    __device__ static inline int at(int byte) {
        return byte / 128 * (GW_PAGE * 128 / 16) + byte % 128 / 32 * GW_GROUP_K_STEP;
    }
    /* Until all but `left` of the products are there. */
    __device__ static inline void wait(int left, int *both, int *mixed) {
        if (left > 0) {
            gw_group_wait<AHEAD>();
        } else {
            gw_group_wait<0>();
        }
        gw_group_keep<SUMS>(both);
        gw_group_keep<SUMS>(mixed);
    }

    __device__ static inline void scores(const state<E> &s, const uint8_t *keys,
                                         float (*x)[RESULTS], int lane) {
        enum { CHUNKS = GW_PAGE / CHUNK };
        int both[PLACES][SUMS], mixed[PLACES][SUMS];
        const float *scales = (const float *)(keys + KEY_SCALES);
        const gw_group_at columns = gw_group_columns(keys);
#pragma unroll
        for (int c = 0; c < CHUNKS + AHEAD; c++) {
            if (c < CHUNKS) {
                begin<E / 32>(both[c % PLACES], mixed[c % PLACES], s.q.high, s.q.low,
                              columns + c * (CHUNK / 8) * GW_GROUP_COLUMNS_8);
            }
            const int of = c - AHEAD, place = (c + PLACES - AHEAD) % PLACES;
            if (of < 0) {
                continue;
            }
            wait(c < CHUNKS ? AHEAD : 0, both[place], mixed[place]);
#pragma unroll
            for (int i = 0; i < SUMS; i++) {
                const int t = of * (CHUNK / SPAN) + i / RESULTS;
                x[t][i % RESULTS] = score_of<E>(s.q, i % RESULTS, both[place][i], mixed[place][i],
                                                scales + t * SPAN, lane);
            }
        }
    }

    template <int ALL>
    __device__ static inline void add(state<E> &s, const uint8_t *values, const weights &w,
                                      const float *scale, const float *share, int page, int lane) {
        enum { CHUNKS = EV / CHUNK };
        int both[PLACES][SUMS], mixed[PLACES][SUMS];
        const float *channels = (const float *)(values + CHANNELS);
        const gw_group_at columns = gw_group_columns(values);
#pragma unroll
        for (int c = 0; c < CHUNKS + AHEAD; c++) {
            if (c < CHUNKS) {
                begin<STEPS>(both[c % PLACES], mixed[c % PLACES], w.high, w.low,
                             columns + c * (CHUNK / 8) * GW_GROUP_COLUMNS_8);
            }
            const int of = c - AHEAD, place = (c + PLACES - AHEAD) % PLACES;
            if (of < 0) {
                continue;
            }
            wait(c < CHUNKS ? AHEAD : 0, both[place], mixed[place]);
#pragma unroll
            for (int i = 0; i < SUMS; i++) {
                const int t = of * (CHUNK / SPAN) + i / RESULTS;
                join_value<E, ALL>(s, s.o[t][i % RESULTS], i % RESULTS, both[place][i],
                                   mixed[place][i], scale, share, channels + t * SPAN, page, lane);
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
