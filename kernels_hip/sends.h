/* kernels_hip/sends.h - words from card to card: each arrives with the number of its exchange, so
 * who polls and sees the number has the word. Products in front of an exchange send their results
 * themselves; where they do not, exchange.hip sends.
 */
#ifndef GW_KERNELS_HIP_SENDS_H
#define GW_KERNELS_HIP_SENDS_H

#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/sends_params.h"

/* The number of an exchange: one behind another on every card, whatever plans run. The step block
 * is there before any launch behind the first one begins. */
GW_DEVICE unsigned gw_exchange_number(const gw_step_params &step, const gw_sends &s) {
    return (unsigned)gw_step_exchanges(step) + (unsigned)s.index;
}

/* Of the exchange behind a launch that may send its results; 0: none. Asked for before they are
 * there. */
template <class Params> __device__ static inline unsigned gw_ask_number(const Params &p) {
    return p.sends.cards > 0 ? gw_exchange_number(p.step, p.sends) : 0;
}

/* Where the first of two pairs, number j of EACH, of unit q of a row of `units` is in a cell (a
 * unit: four floats, or a block of 32 values): neighbouring threads have neighbouring units, and
 * write side by side. */
template <int EACH> __device__ static inline int gw_pair_of(int row, int units, int q, int j) {
    const int wide = (units + GW_LANES - 1) / GW_LANES * GW_LANES;
    return 2 * ((row * wide + q / GW_LANES * GW_LANES) * EACH + j * GW_LANES + q % GW_LANES);
}
/* The same of a float in a column. */
GW_DEVICE int gw_pair_of_column(int row, int columns, int c) {
    return gw_pair_of<2>(row, (columns + 3) / 4, c / 4, c % 4 / 2) + c % 2;
}

/* Where a card's pair number i of exchange `number` arrives in the memory of card `in`. */
GW_DEVICE uint32_t *gw_arrival(const gw_sends &s, int in, unsigned number, int card, int i) {
    return s.arrives[in] + 2 * ((size_t)(number % 2 * s.cards + card) * s.cell + i);
}

/* each(to): all cards, this one too. By constant numbers on AMD, where a parameter that is looked
 * up by another is copied to scratch with all others. */
#if defined(GW_AMD)
#define GW_EACH_CARD(s, to)                                                                        \
    _Pragma("unroll") for (int to = 0; to < GW_SENDS_CARDS; to++) if (to < (s).cards)
#else
#define GW_EACH_CARD(s, to) _Pragma("unroll 1") for (int to = 0; to < (s).cards; to++)
#endif

/* A word, or two, of this card to all cards. */
GW_DEVICE void gw_send_word(const gw_sends &s, unsigned number, int i, unsigned word) {
    GW_EACH_CARD(s, to) { gw_card_store_pair(gw_arrival(s, to, number, s.card, i), word, number); }
}
GW_DEVICE void gw_send_two(const gw_sends &s, unsigned number, int i, unsigned a, unsigned b) {
    const gw_two_pairs v = {{a, number, b, number}};
    GW_EACH_CARD(s, to) { gw_card_store(gw_arrival(s, to, number, s.card, i), v); }
}

/* Block b, of `blocks` in a row, of rows row, row + step, .., n of them: to all cards. The whole
 * team calls it. */
template <int COUNT>
__device__ static inline void gw_send_blocks(const gw_sends &s, unsigned number,
                                             const gw_team_act8<COUNT> &codes, int row, int step,
                                             int blocks, int b, int n) {
    const int lane = gw_lane(), word = 2 + lane / 4;
#pragma unroll
    for (int i = 0; i < COUNT; i++) { /* four lanes have a word */
        unsigned four = ((unsigned)codes.q[i] & 0xffu) << 8 * (lane % 4);
        four |= (unsigned)gw_quad_xor<1>((int)four);
        four |= (unsigned)gw_quad_xor<2>((int)four);
        if (i < n && lane % 4 == 0) {
            const int at = gw_pair_of<5>(row + i * step, blocks, b, word / 2) + word % 2;
            gw_send_word(s, number, at, four);
        }
    }
    if (lane < COUNT && lane < n) {
        const unsigned sums = ((unsigned)codes.first & 0xffffu) | ((unsigned)codes.second & 0xffffu)
                                                                      << 16;
        gw_send_two(s, number, gw_pair_of<5>(row + lane * step, blocks, b, 0),
                    GW_F32_BITS(codes.scale), sums);
    }
}

#endif
