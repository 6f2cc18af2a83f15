/* kernels_hip/rows/exchange.hip - EXCHANGE among cards that reach one another's memory: every card
 * writes its columns into the memory of all, if the launch in front has not, and takes what
 * arrives. */
#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/rows/exchange_params.h"
#include "kernels_hip/rows/row_leave.h"
#include "kernels_hip/sends.h"

/* Columns or blocks from `at` of a row on: whose they are, and where in its rows. */
struct exchange_spot {
    int card, at, own; /* own: columns that the card has of a row */
};

GW_DEVICE exchange_spot exchange_find(const struct gw_exchange_params &p, int at) {
    const int part = p.first[p.to.cards], in_part = at % part;
    int card = 0;
    while (card + 1 < p.to.cards && in_part >= p.first[card + 1]) {
        card++;
    }
    const int each = p.first[card + 1] - p.first[card];
    const exchange_spot spot = {card, at / part * each + in_part - p.first[card], p.parts * each};
    return spot;
}

/* Nanoseconds by a clock that all kernels of a card share; 0 where there is none of known rate. */
GW_DEVICE unsigned long long exchange_nanoseconds(void) {
    unsigned long long now = 0;
#if defined(GW_NVIDIA)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
    return now;
}

/* Of a loop that polls: is round i, in which nothing came, the last? *p.lost becomes 1 when it ends
 * without what was waited for, and then nothing is waited for. *begun: 0 at first. */
GW_DEVICE int exchange_gives_up(const struct gw_exchange_params &p, int i,
                                unsigned long long &begun) {
#if defined(GW_EMULATOR)
    *p.lost |= gw_emulator_card_wait();
    (void)i, (void)begun;
    return 1;
#else
    const unsigned long long patience = 4000000000ull;
    const int polls = 1 << 21; /* where there is no clock: two to four seconds */
    if (i % 1024 != 1023) {
        return 0;
    }
    const unsigned long long now = exchange_nanoseconds();
    begun = begun == 0 ? now : begun;
    if (*(volatile int32_t *)p.lost != 0 || (now != 0 ? now - begun > patience : i > polls)) {
        *(volatile int32_t *)p.lost = 1;
        return 1;
    }
    return 0;
#endif
}

/* What a card sends from its pair `first` on, EACH times two words as gw_pair_of has them, as
 * soon as all are there. They are asked for together, for one answer of memory takes most of a
 * microsecond. */
template <int EACH>
__device__ static inline void exchange_take(const struct gw_exchange_params &p, unsigned number,
                                            int card, int first, gw_two_pairs (&v)[EACH]) {
    const uint32_t *at = gw_arrival(p.to, p.to.card, number, card, first);
    unsigned long long begun = 0;
    for (int i = 0;; i++) {
        unsigned wrong = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            v[j] = gw_card_load(at + j * 4 * GW_LANES);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            wrong |= (v[j].word[1] ^ number) | (v[j].word[3] ^ number);
        }
        if (wrong == 0 || exchange_gives_up(p, i, begun)) {
            return;
        }
    }
}

/* Before this card's share is read. Where the launch in front has sent it nothing is read of it;
 * that its first words are here says that what came before it is there. */
__device__ static inline void exchange_begin(const struct gw_exchange_params &p, unsigned number,
                                             int live) {
    if (!p.sent) {
        gw_grid_dependency_wait();
    } else if (live > 0) {
        gw_two_pairs first[1];
        exchange_take<1>(p, number, p.to.card, 0, first);
    }
}
/* Before anything is written that the launch in front may read. */
GW_DEVICE void exchange_write(const struct gw_exchange_params &p) {
    if (!p.early) {
        gw_grid_dependency_wait();
    }
}

/* each(i): all units of the launch, those of whole teams side by side. */
#define EXCHANGE_EACH(i, n)                                                                        \
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < (n);                            \
         i += (int)(gridDim.x * blockDim.x))

/* A unit is four columns of a row; rows have whole teams of them. The last four may be fewer: what
 * is not there travels as 0. */
GW_KERNEL(gw_exchange_f32, struct gw_exchange_params, GW_EXCHANGE_THREADS) {
    gw_grid_launch_dependents();
    const int fours = ((p.width + 3) / 4 + GW_LANES - 1) / GW_LANES * GW_LANES;
    const int live = gw_live(p.step), units = live * fours;
    const unsigned number = gw_exchange_number(p.step, p.to);
    exchange_begin(p, number, live);
    EXCHANGE_EACH(u, p.sent ? 0 : units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        if (i >= p.width || spot.card != p.to.card) {
            continue;
        }
        const uint32_t *from = p.share + (size_t)row * spot.own + spot.at;
        const int all = (spot.own + 3) / 4, q = spot.at / 4;
        unsigned v[4];
        for (int j = 0; j < 4; j++) {
            v[j] = spot.at + j < spot.own ? from[j] : 0;
        }
        gw_send_two(p.to, number, gw_pair_of<2>(row, all, q, 0), v[0], v[1]);
        gw_send_two(p.to, number, gw_pair_of<2>(row, all, q, 1), v[2], v[3]);
    }
#if defined(GW_EMULATOR) /* a block that waits runs again: no thread has done more than send */
    __syncthreads();
    EXCHANGE_EACH(u, units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        const int all = (spot.own + 3) / 4, q = spot.at / 4;
        gw_two_pairs two[2];
        if (i < p.width && (p.sent || spot.card != p.to.card)) {
            exchange_take<2>(p, number, spot.card, gw_pair_of<2>(row, all, q, 0), two);
        }
    }
    __syncthreads();
#endif
    EXCHANGE_EACH(u, units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        const int all = (spot.own + 3) / 4, q = spot.at / 4;
        row_four v = {{0.0f, 0.0f, 0.0f, 0.0f}}, plus = v, weights = v;
        for (int j = 0; p.plus != 0 && j < 4; j++) { /* on its way while words are waited for */
            plus.v[j] = i + j < p.width ? p.plus[(size_t)row * p.width + i + j] : 0.0f;
        }
        if (p.behind != 0 && i < p.width) {
            weights = row_read(p.behind + i);
        }
        if (i < p.width && !p.sent && spot.card == p.to.card) {
            const uint32_t *from = p.share + (size_t)row * spot.own + spot.at;
            for (int j = 0; j < 4; j++) {
                v.v[j] = GW_F32_FROM_BITS(spot.at + j < spot.own ? from[j] : 0);
            }
        } else if (i < p.width) {
            gw_two_pairs two[2];
            exchange_take<2>(p, number, spot.card, gw_pair_of<2>(row, all, q, 0), two);
            for (int j = 0; j < 4; j++) {
                v.v[j] = GW_F32_FROM_BITS(two[j / 2].word[j % 2 * 2]);
            }
        }
        for (int j = 0; p.plus != 0 && j < 4; j++) {
            if (i + j < p.width) {
                v.v[j] = v.v[j] + plus.v[j];
            }
        }
        exchange_write(p);
        row_leave(p, row, i, v, weights);
    }
    gw_grid_dependency_wait(); /* who waits for this launch waits for the one in front, too */
}

/* A unit is a block of 32 values, ten words. */
GW_KERNEL(gw_exchange_act8, struct gw_exchange_params, GW_EXCHANGE_THREADS) {
    gw_grid_launch_dependents();
    const int whole = (p.width + GW_ACT_GROUP - 1) / GW_ACT_GROUP * GW_ACT_GROUP;
    const int blocks = p.form != GW_FORM_PLAIN ? whole : p.width;
    const int live = gw_live(p.step), units = live * blocks;
    const unsigned number = gw_exchange_number(p.step, p.to);
    exchange_begin(p, number, live);
    EXCHANGE_EACH(u, p.sent ? 0 : units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        if (b >= p.width || spot.card != p.to.card) {
            continue;
        }
        const size_t at = ((size_t)row * spot.own + spot.at) * GW_ACT_WORDS;
        unsigned words[GW_ACT_WORDS]; /* all are asked for before the first is sent */
#pragma unroll
        for (int word = 0; word < GW_ACT_WORDS; word++) {
            words[word] = p.share[at + word];
        }
#pragma unroll
        for (int word = 0; word < GW_ACT_WORDS; word += 2) {
            gw_send_two(p.to, number, gw_pair_of<5>(row, spot.own, spot.at, word / 2), words[word],
                        words[word + 1]);
        }
    }
#if defined(GW_EMULATOR)
    __syncthreads();
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        gw_two_pairs two[5];
        if (b < p.width && (p.sent || spot.card != p.to.card)) {
            exchange_take<5>(p, number, spot.card, gw_pair_of<5>(row, spot.own, spot.at, 0), two);
        }
    }
    __syncthreads();
#endif
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        const size_t at = ((size_t)row * spot.own + spot.at) * GW_ACT_WORDS;
        unsigned words[GW_ACT_WORDS] = {0};
        gw_act8 block;
        if (b < p.width && !p.sent && spot.card == p.to.card) {
#pragma unroll
            for (int word = 0; word < GW_ACT_WORDS; word++) {
                words[word] = p.share[at + word];
            }
        } else if (b < p.width) {
            gw_two_pairs two[5];
            exchange_take<5>(p, number, spot.card, gw_pair_of<5>(row, spot.own, spot.at, 0), two);
#pragma unroll
            for (int word = 0; word < GW_ACT_WORDS; word++) {
                words[word] = two[word / 2].word[word % 2 * 2];
            }
        }
        memcpy(&block, words, sizeof block);
        exchange_write(p);
        gw_store_act8(p.out, (size_t)row * blocks + b, p.form, block);
    }
    gw_grid_dependency_wait();
}

/* ---- many rows -------------------------------------------------------------------------------
 * Words without numbers, behind which a flag comes: half the bytes. A chunk is what a block of
 * threads has at a time, units [chunk * GW_EXCHANGE_THREADS, ...), the same on every card whatever
 * its grid; each card flags each chunk when what it has of it is there. */

/* Where a card's flag of a chunk arrives: four words, behind all cells. */
GW_DEVICE uint32_t *exchange_flag(const struct gw_exchange_params &p, int in, unsigned number,
                                  int card, int chunk) {
    const size_t half = number % 2, cells = 4 * (size_t)p.to.cards * (size_t)p.to.cell;
    return p.to.arrives[in] + cells + 4 * ((half * p.to.cards + card) * p.flags + chunk);
}

/* Four words, number j of EACH, of unit q of a row of `units`; neighbours' side by side. */
template <int EACH>
__device__ static inline uint32_t *exchange_place(const struct gw_exchange_params &p, int in,
                                                  unsigned number, int card, int row, int units,
                                                  int q, int j) {
    const int wide = (units + GW_LANES - 1) / GW_LANES * GW_LANES;
    const size_t first = ((size_t)row * wide + q / GW_LANES * GW_LANES) * EACH;
    const size_t at = first + (size_t)(j * GW_LANES + q % GW_LANES);
    return gw_arrival(p.to, in, number, card, 0) + 4 * at;
}

/* On NVIDIA and AMD cards, what this thread has seen or written comes before what it does next, for
 * every card. */
GW_DEVICE void exchange_fence(void) {
#if !defined(GW_EMULATOR)
    __threadfence_system();
#endif
}

/* All of this block's words are on their way. */
GW_DEVICE void exchange_flag_all(const struct gw_exchange_params &p, unsigned number, int units) {
    const int chunks = (units + (int)blockDim.x - 1) / (int)blockDim.x;
    __syncthreads();
    for (int c = (int)(blockIdx.x + threadIdx.x * gridDim.x); c < chunks;
         c += (int)(blockDim.x * gridDim.x)) {
        exchange_fence();
        GW_EACH_CARD(p.to, to) {
            if (to != p.to.card) {
                gw_card_store_pair(exchange_flag(p, to, number, p.to.card, c), 0, number);
            }
        }
    }
}

/* Until the words of a card in the chunk of unit u are here. */
GW_DEVICE void exchange_await(const struct gw_exchange_params &p, unsigned number, int card,
                              int u) {
    const uint32_t *flag = exchange_flag(p, p.to.card, number, card, u / (int)blockDim.x);
    unsigned long long begun = 0;
    for (int i = 0; gw_card_load(flag).word[1] != number; i++) {
        if (exchange_gives_up(p, i, begun)) {
            return;
        }
    }
    exchange_fence();
}

template <int EACH>
__device__ static inline void exchange_send(const struct gw_exchange_params &p, unsigned number,
                                            int row, int units, int q,
                                            const gw_two_pairs (&v)[EACH]) {
    GW_EACH_CARD(p.to, to) {
        if (to != p.to.card) {
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                gw_card_store(exchange_place<EACH>(p, to, number, p.to.card, row, units, q, j),
                              v[j]);
            }
        }
    }
}

GW_KERNEL(gw_exchange_many_f32, struct gw_exchange_params, GW_EXCHANGE_THREADS) {
    gw_grid_launch_dependents();
    const int fours = ((p.width + 3) / 4 + GW_LANES - 1) / GW_LANES * GW_LANES;
    const int units = gw_live(p.step) * fours;
    const unsigned number = gw_exchange_number(p.step, p.to);
    gw_grid_dependency_wait();
    EXCHANGE_EACH(u, units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        if (i < p.width && spot.card == p.to.card) {
            const uint32_t *from = p.share + (size_t)row * spot.own + spot.at;
            gw_two_pairs v[1];
            for (int j = 0; j < 4; j++) {
                v[0].word[j] = spot.at + j < spot.own ? from[j] : 0;
            }
            exchange_send<1>(p, number, row, (spot.own + 3) / 4, spot.at / 4, v);
        }
    }
    exchange_flag_all(p, number, units);
#if defined(GW_EMULATOR) /* a block that waits runs again: no thread has done more than send */
    __syncthreads();
    EXCHANGE_EACH(u, units) {
        const int i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        if (i < p.width && spot.card != p.to.card) {
            exchange_await(p, number, spot.card, u);
        }
    }
    __syncthreads();
#endif
    EXCHANGE_EACH(u, units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        row_four v = {{0.0f, 0.0f, 0.0f, 0.0f}}, weights = v;
        if (p.behind != 0 && i < p.width) {
            weights = row_read(p.behind + i);
        }
        if (i < p.width && spot.card == p.to.card) {
            const uint32_t *from = p.share + (size_t)row * spot.own + spot.at;
            for (int j = 0; j < 4; j++) {
                v.v[j] = GW_F32_FROM_BITS(spot.at + j < spot.own ? from[j] : 0);
            }
        } else if (i < p.width) {
            exchange_await(p, number, spot.card, u);
            const gw_two_pairs words =
                gw_card_load(exchange_place<1>(p, p.to.card, number, spot.card, row,
                                               (spot.own + 3) / 4, spot.at / 4, 0));
            for (int j = 0; j < 4; j++) {
                v.v[j] = GW_F32_FROM_BITS(words.word[j]);
            }
        }
        for (int j = 0; p.plus != 0 && j < 4; j++) {
            if (i + j < p.width) {
                v.v[j] = v.v[j] + p.plus[(size_t)row * p.width + i + j];
            }
        }
        row_leave(p, row, i, v, weights);
    }
}

/* The ten words of a block in three times four. */
GW_KERNEL(gw_exchange_many_act8, struct gw_exchange_params, GW_EXCHANGE_THREADS) {
    enum { EACH = (GW_ACT_WORDS + 3) / 4 };
    gw_grid_launch_dependents();
    const int whole = (p.width + GW_ACT_GROUP - 1) / GW_ACT_GROUP * GW_ACT_GROUP;
    const int blocks = p.form != GW_FORM_PLAIN ? whole : p.width;
    const int units = gw_live(p.step) * blocks;
    const unsigned number = gw_exchange_number(p.step, p.to);
    gw_grid_dependency_wait();
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        if (b < p.width && spot.card == p.to.card) {
            const uint32_t *from = p.share + ((size_t)row * spot.own + spot.at) * GW_ACT_WORDS;
            gw_two_pairs v[EACH];
#pragma unroll
            for (int word = 0; word < 4 * EACH; word++) {
                v[word / 4].word[word % 4] = word < GW_ACT_WORDS ? from[word] : 0;
            }
            exchange_send<EACH>(p, number, row, spot.own, spot.at, v);
        }
    }
    exchange_flag_all(p, number, units);
#if defined(GW_EMULATOR)
    __syncthreads();
    EXCHANGE_EACH(u, units) {
        const int b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        if (b < p.width && spot.card != p.to.card) {
            exchange_await(p, number, spot.card, u);
        }
    }
    __syncthreads();
#endif
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        unsigned words[4 * EACH] = {0};
        gw_act8 block;
        if (b < p.width && spot.card == p.to.card) {
            const uint32_t *from = p.share + ((size_t)row * spot.own + spot.at) * GW_ACT_WORDS;
#pragma unroll
            for (int word = 0; word < GW_ACT_WORDS; word++) {
                words[word] = from[word];
            }
        } else if (b < p.width) {
            exchange_await(p, number, spot.card, u);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const gw_two_pairs v = gw_card_load(exchange_place<EACH>(
                    p, p.to.card, number, spot.card, row, spot.own, spot.at, j));
                for (int k = 0; k < 4; k++) {
                    words[4 * j + k] = v.word[k];
                }
            }
        }
        memcpy(&block, words, sizeof block);
        gw_store_act8(p.out, (size_t)row * blocks + b, p.form, block);
    }
}

/* How long a word is on its way: cards 0 and 1 hand one back and forth, p.width times, each time in
 * a place of its own. */
GW_KERNEL(gw_exchange_flag, struct gw_exchange_params, GW_EXCHANGE_THREADS) {
    const int me = p.to.card;
    const unsigned number = (unsigned)p.to.index;
    const gw_two_pairs flag = {{0, number, 0, number}};
    for (int turn = 0; threadIdx.x == 0 && turn < p.width; turn++) {
        gw_two_pairs got[1];
        if (me == 1) {
            exchange_take<1>(p, number, 0, 2 * turn, got);
        }
        gw_card_store(gw_arrival(p.to, 1 - me, number, me, 2 * turn), flag);
        if (me == 0) {
            exchange_take<1>(p, number, 1, 2 * turn, got);
        }
    }
}
