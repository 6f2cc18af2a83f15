/* kernels_hip/attention/attend_digits.h - numbers as two digits of eight bits, and which tiles of
 * queries a turn has.
 */
#ifndef GW_KERNELS_HIP_ATTEND_DIGITS_H
#define GW_KERNELS_HIP_ATTEND_DIGITS_H

#include "kernels_hip/device.h"
#include "core/tensor/digits.h"
#include "kernels_hip/attention/attend_digits_params.h"
#include "kernels_hip/attention/attention.h"

/* The integer next to t, |t| < 2^22, ties to even, in the low bits of a word: its lowest byte is
 * the low digit; the second byte of the word and 128 is the high one. One addition, where
 * conversions run at a quarter of the rate. */
enum { GW_DIGITS_ZERO = 0x4b400000 };
GW_DEVICE unsigned gw_digits_word(float t) { return GW_F32_BITS(t + 12582912.0f); }
/* Of four numbers, the first one lowest. */
GW_DEVICE unsigned gw_low_digits(const unsigned *n) {
    return gw_four_bytes(n[0], n[1], n[2], n[3]);
}
GW_DEVICE unsigned gw_high_digits(const unsigned *n) {
    const unsigned a = gw_pick_bytes(n[1] + 128u, n[0] + 128u, 0x0501u);
    const unsigned b = gw_pick_bytes(n[3] + 128u, n[2] + 128u, 0x0501u);
    return (a & 0xffffu) | b << 16;
}

/* Digits of four positions of a page, for a channel, stand in a word: of those number n of word
 * `word`. Waves of 32 have weights of two neighbours and of the two eight further on together; on
 * gfx11 a thread has those of every second position. */
GW_DEVICE int gw_digits_position(int word, int n) {
#if GW_MATRIX == GW_MATRIX_WMMA_11
    return word / 4 * 16 + word % 2 * 8 + 2 * n + word % 4 / 2;
#elif GW_QUADS
    return word / 4 * 16 + word % 4 * 2 + n / 2 * 8 + n % 2;
#else
    return word * 4 + n;
#endif
}

/* Tiles [first, end) of each KV head that this turn has, and the groups of pages of each. */
struct gw_digits_turn {
    int first, end, groups;
};
GW_DEVICE gw_digits_turn gw_digits_turn_of(const gw_digits_params &p) {
    gw_digits_turn t;
    const int queries = gw_live(p.step) * (p.heads / p.kv_heads);
    const int tiles = (queries + GW_DIGITS_QUERIES - 1) / GW_DIGITS_QUERIES;
    t.groups = p.step.step[GW_STEP_POS_MAX] / (GW_PAGE * GW_DIGITS_GROUP) + 1;
    const int at_once = p.room / (p.kv_heads * t.groups);
    t.first = p.turn * at_once;
    t.end = t.first + at_once < tiles ? t.first + at_once : tiles;
    return t;
}
/* Sums (top, sum) of pages join a state: what was summed is to be multiplied by was, the new sums
 * by now. */
struct gw_digits_join {
    float was, now;
    __device__ inline gw_digits_join(float *top, float more) {
        const float most = larger(*top, more);
        was = gw_digits_exp(*top - most);
        now = gw_digits_exp(more - most);
        *top = most;
    }
};

/* Where the sums of a tile of a KV head and group are; in tiles of 64 queries. */
GW_DEVICE size_t gw_digits_entry(const gw_digits_params &p, const gw_digits_turn &t, int tile,
                                 int g, int group) {
    return ((size_t)(tile - t.first) * p.kv_heads + g) * t.groups + group;
}

#endif
