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

/* This block has taken what it takes. */
GW_DEVICE void exchange_end(const struct gw_exchange_params &p, unsigned number) {
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(&p.count->arrived, 1u) == gridDim.x - 1) {
        p.count->arrived = 0;
        p.count->number = number;
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
    gw_grid_dependency_wait();
    const unsigned number = *(const volatile uint32_t *)&p.count->number + 1;
    const int fours = ((p.width + 3) / 4 + GW_LANES - 1) / GW_LANES * GW_LANES;
    const int units = gw_live(p.step) * fours;
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
        for (int j = 0; i < p.width && spot.card != p.card && j < 4; j += 2) {
            const size_t pair = exchange_pair<2>(row, all, q, j / 2);
            gw_card_wait(exchange_place(p, p.card, number, spot.card, pair), number, p.lost);
        }
    }
    __syncthreads();
#endif
    EXCHANGE_EACH(u, units) {
        const int row = u / fours, i = 4 * (u % fours);
        const exchange_spot spot = exchange_find(p, i < p.width ? i : 0);
        const int all = (spot.own + 3) / 4, q = spot.at / 4;
        row_four v = {{0.0f, 0.0f, 0.0f, 0.0f}};
        for (int j = 0; i < p.width && j < 4; j += 2) {
            if (spot.card == p.card) {
                const uint32_t *from = p.share + (size_t)row * spot.own + spot.at;
                v.v[j] = GW_F32_FROM_BITS(spot.at + j < spot.own ? from[j] : 0);
                v.v[j + 1] = GW_F32_FROM_BITS(spot.at + j + 1 < spot.own ? from[j + 1] : 0);
            } else {
                const size_t pair = exchange_pair<2>(row, all, q, j / 2);
                const gw_two_pairs two = gw_card_wait(
                    exchange_place(p, p.card, number, spot.card, pair), number, p.lost);
                v.v[j] = GW_F32_FROM_BITS(two.word[0]);
                v.v[j + 1] = GW_F32_FROM_BITS(two.word[2]);
            }
        }
        for (int j = 0; p.plus != 0 && j < 4; j++) {
            if (i + j < p.width) {
                v.v[j] = v.v[j] + p.plus[(size_t)row * p.width + i + j];
            }
        }
        row_leave(p, row, i, v);
    }
    exchange_end(p, number);
}

/* A unit is a block of 32 values, ten words. */
GW_KERNEL(gw_exchange_act8, struct gw_exchange_params, GW_EXCHANGE_THREADS) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const unsigned number = *(const volatile uint32_t *)&p.count->number + 1;
    const int whole = (p.width + GW_ACT_GROUP - 1) / GW_ACT_GROUP * GW_ACT_GROUP;
    const int blocks = p.form != GW_FORM_PLAIN ? whole : p.width;
    const int units = gw_live(p.step) * blocks;
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        if (b >= p.width || spot.card != p.card) {
            continue;
        }
        const size_t at = ((size_t)row * spot.own + spot.at) * GW_ACT_WORDS;
        for (int word = 0; word < GW_ACT_WORDS; word += 2) {
            exchange_send(p, number, exchange_pair<5>(row, spot.own, spot.at, word / 2),
                          p.share[at + word], p.share[at + word + 1]);
        }
    }
#if defined(GW_EMULATOR)
    __syncthreads();
    EXCHANGE_EACH(u, units) {
        const int row = u / blocks, b = u % blocks;
        const exchange_spot spot = exchange_find(p, b < p.width ? b : 0);
        for (int word = 0; b < p.width && spot.card != p.card && word < GW_ACT_WORDS; word += 2) {
            const size_t pair = exchange_pair<5>(row, spot.own, spot.at, word / 2);
            gw_card_wait(exchange_place(p, p.card, number, spot.card, pair), number, p.lost);
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
#pragma unroll
        for (int word = 0; word < GW_ACT_WORDS; word += 2) {
            if (b >= p.width) {
                continue;
            }
            if (spot.card == p.card) {
                words[word] = p.share[at + word];
                words[word + 1] = p.share[at + word + 1];
            } else {
                const size_t pair = exchange_pair<5>(row, spot.own, spot.at, word / 2);
                const gw_two_pairs two = gw_card_wait(
                    exchange_place(p, p.card, number, spot.card, pair), number, p.lost);
                words[word] = two.word[0];
                words[word + 1] = two.word[2];
            }
        }
        memcpy(&block, words, sizeof block);
        gw_store_act8(p.out, (size_t)row * blocks + b, p.form, block);
    }
    exchange_end(p, number);
}
