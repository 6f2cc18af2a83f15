/* kernels_hip/rows/exchange.hip - EXCHANGE among cards that reach one another's memory: every card
 * writes its columns into the memory of all others, and takes theirs as they arrive. */
#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/rows/exchange_params.h"
#include "kernels_hip/rows/row_leave.h"

/* Columns or blocks from `at` of a row on: whose they are, and where in its rows. */
struct exchange_spot {
    int card, at, own; /* own: columns that the card has of a row */
};

GW_DEVICE exchange_spot exchange_find(const struct gw_exchange_params &p, int at) {
    const int part = p.first[p.cards], in_part = at % part;
    int card = 0;
    while (card + 1 < p.cards && in_part >= p.first[card + 1]) {
        card++;
    }
    const int each = p.first[card + 1] - p.first[card];
    const exchange_spot spot = {card, at / part * each + in_part - p.first[card], p.parts * each};
    return spot;
}

/* The place of two words, number j of EACH, of unit q of a row of `units`: neighbouring threads
 * have neighbouring units, and write side by side. */
template <int EACH>
__device__ static inline size_t exchange_pair(int row, int units, int q, int j) {
    const size_t wide = (size_t)(units + GW_LANES - 1) / GW_LANES * GW_LANES;
    return 2 * ((row * wide + q / GW_LANES * GW_LANES) * EACH + j * GW_LANES + q % GW_LANES);
}

/* Where a card's pair number i of exchange `number` arrives in the memory of card `in`. */
GW_DEVICE uint32_t *exchange_place(const struct gw_exchange_params &p, int in, unsigned number,
                                   int card, size_t i) {
    return p.arrives[in] + 2 * ((size_t)(number % 2 * p.cards + card) * p.cell + i);
}

/* Two words of this card to all others. */
GW_DEVICE void exchange_send(const struct gw_exchange_params &p, unsigned number, size_t i,
                             unsigned a, unsigned b) {
    const gw_two_pairs v = {{a, number, b, number}};
    for (int other = 1; other < p.cards; other++) {
        const int to = (p.card + other) % p.cards;
        gw_card_store(exchange_place(p, to, number, p.card, i), v);
    }
}

/* Nanoseconds by a clock that all kernels of a card share; 0 where there is none of known rate. */
GW_DEVICE unsigned long long exchange_nanoseconds(void) {
    unsigned long long now = 0;
#if defined(GW_NVIDIA)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
    return now;
}

/* What a card sends from its pair `first` on, EACH times two words as exchange_pair has them, as
 * soon as all are there. They are asked for together, for one answer of memory takes most of a
 * microsecond. *p.lost becomes 1 when they do not come, and then nothing is waited for. */
template <int EACH>
__device__ static inline void exchange_take(const struct gw_exchange_params &p, unsigned number,
                                            int card, size_t first, gw_two_pairs (&v)[EACH]) {
    const uint32_t *at = exchange_place(p, p.card, number, card, first);
    const unsigned long long patience = 4000000000ull;
    const int polls = 1 << 21; /* where there is no clock: two to four seconds */
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
        if (wrong == 0) {
            return;
        }
#if defined(GW_EMULATOR)
        gw_emulator_card_wait();
        (void)polls, (void)begun, (void)patience;
        return;
#else
        if (i % 1024 != 1023) {
            continue;
        }
        const unsigned long long now = exchange_nanoseconds();
        begun = begun == 0 ? now : begun;
        if (*(volatile int32_t *)p.lost != 0 || (now != 0 ? now - begun > patience : i > polls)) {
            *(volatile int32_t *)p.lost = 1;
            return;
        }
#endif
    }
}

/* The number of this exchange. Behind a launch all its blocks have counted, together to a multiple
 * of GW_EXCHANGE_BLOCKS; a block that reads late has not counted itself, so the multiple below is
 * what all of them read. */
GW_DEVICE unsigned exchange_number(const struct gw_exchange_params &p) {
    const unsigned long long blocks = *(const volatile unsigned long long *)&p.count->blocks;
    return (unsigned)(blocks / GW_EXCHANGE_BLOCKS) + 1;
}

/* This block has read the number and sent what it sends. Nobody waits for the count but the next
 * exchange, which begins behind this launch. */
GW_DEVICE void exchange_sent(const struct gw_exchange_params &p) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned long long rest = GW_EXCHANGE_BLOCKS - (gridDim.x - 1), one = 1;
        atomicAdd(&p.count->blocks, blockIdx.x == 0 ? rest : one);
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
    const int units = gw_live(p.step) * fours;
    gw_grid_dependency_wait();
    const unsigned number = exchange_number(p);
    EXCHANGE_EACH(u, units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        if (i >= p.width || spot.card != p.card) {
            continue;
        }
        const uint32_t *from = p.share + (size_t)row * spot.own + spot.at;
        const int all = (spot.own + 3) / 4, q = spot.at / 4;
        unsigned v[4];
        for (int j = 0; j < 4; j++) {
            v[j] = spot.at + j < spot.own ? from[j] : 0;
        }
        exchange_send(p, number, exchange_pair<2>(row, all, q, 0), v[0], v[1]);
        exchange_send(p, number, exchange_pair<2>(row, all, q, 1), v[2], v[3]);
    }
#if defined(GW_EMULATOR) /* a block that waits runs again: it has sent all, and changed nothing */
    __syncthreads();
    EXCHANGE_EACH(u, units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        const int all = (spot.own + 3) / 4, q = spot.at / 4;
        gw_two_pairs two[2];
        if (i < p.width && spot.card != p.card) {
            exchange_take<2>(p, number, spot.card, exchange_pair<2>(row, all, q, 0), two);
        }
    }
#endif
    exchange_sent(p);
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
        if (i < p.width && spot.card == p.card) {
            const uint32_t *from = p.share + (size_t)row * spot.own + spot.at;
            for (int j = 0; j < 4; j++) {
                v.v[j] = GW_F32_FROM_BITS(spot.at + j < spot.own ? from[j] : 0);
            }
        } else if (i < p.width) {
            gw_two_pairs two[2];
            exchange_take<2>(p, number, spot.card, exchange_pair<2>(row, all, q, 0), two);
            for (int j = 0; j < 4; j++) {
                v.v[j] = GW_F32_FROM_BITS(two[j / 2].word[j % 2 * 2]);
            }
        }
        for (int j = 0; p.plus != 0 && j < 4; j++) {
            if (i + j < p.width) {
                v.v[j] = v.v[j] + plus.v[j];
            }
        }
        row_leave(p, row, i, v, weights);
    }
}

/* A unit is a block of 32 values, ten words. */
GW_KERNEL(gw_exchange_act8, struct gw_exchange_params, GW_EXCHANGE_THREADS) {
    gw_grid_launch_dependents();
    const int whole = (p.width + GW_ACT_GROUP - 1) / GW_ACT_GROUP * GW_ACT_GROUP;
    const int blocks = p.form != GW_FORM_PLAIN ? whole : p.width;
    const int units = gw_live(p.step) * blocks;
    gw_grid_dependency_wait();
    const unsigned number = exchange_number(p);
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        if (b >= p.width || spot.card != p.card) {
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
            exchange_send(p, number, exchange_pair<5>(row, spot.own, spot.at, word / 2),
                          words[word], words[word + 1]);
        }
    }
#if defined(GW_EMULATOR)
    __syncthreads();
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        gw_two_pairs two[5];
        if (b < p.width && spot.card != p.card) {
            exchange_take<5>(p, number, spot.card, exchange_pair<5>(row, spot.own, spot.at, 0),
                             two);
        }
    }
#endif
    exchange_sent(p);
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        const size_t at = ((size_t)row * spot.own + spot.at) * GW_ACT_WORDS;
        unsigned words[GW_ACT_WORDS] = {0};
        gw_act8 block;
        if (b < p.width && spot.card == p.card) {
#pragma unroll
            for (int word = 0; word < GW_ACT_WORDS; word++) {
                words[word] = p.share[at + word];
            }
        } else if (b < p.width) {
            gw_two_pairs two[5];
            exchange_take<5>(p, number, spot.card, exchange_pair<5>(row, spot.own, spot.at, 0),
                             two);
#pragma unroll
            for (int word = 0; word < GW_ACT_WORDS; word++) {
                words[word] = two[word / 2].word[word % 2 * 2];
            }
        }
        memcpy(&block, words, sizeof block);
        gw_store_act8(p.out, (size_t)row * blocks + b, p.form, block);
    }
}
