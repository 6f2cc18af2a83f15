/* kernels_hip/act8.h - activations to int8 blocks (gw_act8_encode of arith.h): 32 lanes with a
 * value each, or eight with four.
 */
#ifndef GW_KERNELS_HIP_ACT8_H
#define GW_KERNELS_HIP_ACT8_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/device.h"

/* ---- forms ----------------------------------------------------------------------------------- */

/* Where word `word` of the codes of block i of a group is. */
GW_DEVICE int gw_group_word(int i, int word) {
    return 2 * GW_ACT_GROUP + word % 4 * 8 + 2 * i + word / 4;
}

/* The second number of a block, of `form`. */
GW_DEVICE unsigned gw_act8_second(int form, float scale, int first, int second) {
    const int sum = first + second;
    return form == GW_FORM_SCALED    ? GW_F32_BITS(scale * (float)sum)
           : form == GW_FORM_FLOAT   ? GW_F32_BITS((float)sum)
           : form == GW_FORM_LESS_8  ? (unsigned)(-8 * sum)
           : form == GW_FORM_LESS_16 ? (unsigned)(-16 * sum)
                                     : ((unsigned)first & 0xffffu) | (unsigned)second << 16;
}

/* The sums of an activation block's halves. */
GW_DEVICE int gw_first_sum(unsigned sums) { return (int)(short)(sums & 0xffffu); }
GW_DEVICE int gw_second_sum(unsigned sums) { return (int)(short)(sums >> 16); }

/* What a block begins with. */
GW_DEVICE void gw_store_act8_head(void *out, size_t block, int form, const gw_act8 &from) {
    if (form == GW_FORM_PLAIN) {
        gw_act8 *to = (gw_act8 *)out + block;
        to->scale = from.scale;
        to->sum[0] = from.sum[0];
        to->sum[1] = from.sum[1];
        return;
    }
    unsigned *head =
        (unsigned *)out + block / GW_ACT_GROUP * GW_ACT_GROUP_WORDS + block % GW_ACT_GROUP;
    head[0] = GW_F32_BITS(from.scale);
    head[GW_ACT_GROUP] = gw_act8_second(form, from.scale, from.sum[0], from.sum[1]);
}

/* ---- blocks of one scale --------------------------------------------------------------------- */

/* gw_span_code of arith.h, four at a time: codes as numbers from 0 on, two in a word. */
GW_DEVICE unsigned gw_span_word(unsigned q, unsigned part) {
    const unsigned u = q ^ 0x80808080u, more = (256 - part) * 0x00800080u + 0x00800080u;
    const unsigned even = (u & 0x00ff00ffu) * part + more;
    const unsigned odd = (u >> 8 & 0x00ff00ffu) * part + more;
    return gw_pick_bytes(odd, even, 0x07030501u) ^ 0x80808080u;
}

/* gw_act8_span of arith.h: four neighbouring lanes have a block each, as it is in memory. The whole
 * team calls it. */
GW_DEVICE void gw_span_halves(unsigned *act) {
    unsigned top = act[0] & 0x7fffffffu;
    top = gw_larger(top, (unsigned)gw_quad_xor<1>((int)top));
    top = gw_larger(top, (unsigned)gw_quad_xor<2>((int)top));
    const unsigned part = (unsigned)gw_span_part(GW_F32_FROM_BITS(act[0]), gw_span_inverse(top));
    int sum[2] = {0, 0};
#pragma unroll
    for (int word = 0; word < 8; word++) {
        act[2 + word] = gw_span_word(act[2 + word], part);
        sum[word / 4] = gw_dp4a((int)act[2 + word], 0x01010101, sum[word / 4]);
    }
    act[0] = top;
    act[1] = ((unsigned)sum[0] & 0xffffu) | (unsigned)sum[1] << 16;
}
/* The same, but what stands for a block's sums becomes the sum of all four. */
GW_DEVICE void gw_span_blocks(unsigned *act) {
    gw_span_halves(act);
    int sum = gw_first_sum(act[1]) + gw_second_sum(act[1]);
    sum += gw_quad_xor<1>(sum);
    sum += gw_quad_xor<2>(sum);
    act[1] = (unsigned)sum & 0xffffu; /* of 128 codes: 16 bits */
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* What a block's values are multiplied by; `top` has the bits of the largest |x|. */
GW_DEVICE float gw_act8_inverse(unsigned top) {
    const float amax = GW_F32_FROM_BITS(top);
    const float inverse = top < 0x7f800000u && amax > 0.0f ? 127.0f / amax : 0.0f;
    return inverse < 3.0e38f ? inverse : 0.0f;
}
GW_DEVICE float gw_act8_scale(unsigned top) {
    return top < 0x7f800000u ? GW_F32_FROM_BITS(top) / 127.0f : GW_F32_FROM_BITS(0x7fc00000u);
}

/* The code of x in the low 8 bits: added to 1.5 * 2^23, x * inverse, at most 127 and a little, is
 * rounded to an integer in the last bits, ties to even; one addition, where conversions run at a
 * quarter of the rate. */
GW_DEVICE unsigned gw_act8_code(float x, float inverse) {
    return GW_F32_BITS(x * inverse + 12582912.0f);
}

/* COUNT blocks of act8 rows of a form: block `block`, counted from the first row's first, and
 * others `apart` further on, of which the first `n` are stored. Lane l has value l of each; the
 * whole team calls it. Rows in groups have whole ones. Divisions take long, so lane i makes those
 * of block i. */
template <int COUNT> struct gw_team_act8 {
    int q[COUNT];      /* of the lane's column */
    float scale;       /* of block `lane`      */
    int first, second; /* its halves' sums     */

    __device__ inline void encode(const float *x);
    __device__ inline void store(void *out, size_t block, size_t apart, int form, int n) const;
};

template <int COUNT> __device__ inline void gw_team_act8<COUNT>::encode(const float *x) {
    const int lane = gw_lane();
    unsigned top[COUNT], mine = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        top[i] = gw_team_max(GW_F32_BITS(x[i]) & 0x7fffffffu);
        mine = i == 0 || lane == i ? top[i] : mine;
    }
    const float inverse = gw_act8_inverse(mine);
    scale = gw_act8_scale(mine);
    first = second = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float by = COUNT > 1 ? gw_shuffle(inverse, i) : inverse;
        q[i] = top[i] < 0x7f800000u ? (int)(gw_act8_code(x[i], by) << 24) >> 24 : 0;
        const gw_half_sums sums(q[i]);
        first = i == 0 || lane == i ? sums.first : first;
        second = i == 0 || lane == i ? sums.second : second;
    }
}

template <int COUNT>
__device__ inline void gw_team_act8<COUNT>::store(void *out, size_t block, size_t apart, int form,
                                                  int n) const {
    const int lane = gw_lane();
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const size_t at = block + (size_t)i * apart;
        gw_i8 *to = form == GW_FORM_PLAIN
                        ? ((gw_act8 *)out)[at].q + lane
                        : (gw_i8 *)((unsigned *)out + at / GW_ACT_GROUP * GW_ACT_GROUP_WORDS +
                                    gw_group_word((int)(at % GW_ACT_GROUP), lane / 4)) +
                              lane % 4;
        if (i < n) {
            *to = (gw_i8)q[i];
        }
    }
    if (lane < COUNT && lane < n) {
        const size_t at = block + (size_t)lane * apart;
        const gw_act8 head = {scale, {(gw_i16)first, (gw_i16)second}, {0}};
        gw_store_act8_head(out, at, form, head);
    }
}
template <int COUNT>
__device__ static inline void gw_team_encode(void *out, size_t block, size_t apart, int form,
                                             const float *x, int n) {
    gw_team_act8<COUNT> codes;
    codes.encode(x);
    codes.store(out, block, apart, form, n);
}
GW_DEVICE void gw_team_encode(void *out, size_t block, int form, float x) {
    gw_team_encode<1>(out, block, 0, form, &x, 1);
}

/* The same of a block that one thread has. */
GW_DEVICE void gw_store_act8(void *out, size_t block, int form, const gw_act8 &from) {
    if (form == GW_FORM_PLAIN) {
        ((gw_act8 *)out)[block] = from;
        return;
    }
    unsigned *group = (unsigned *)out + block / GW_ACT_GROUP * GW_ACT_GROUP_WORDS;
    const unsigned *codes = (const unsigned *)from.q;
    gw_store_act8_head(out, block, form, from);
#pragma unroll
    for (int word = 0; word < 8; word++) {
        group[gw_group_word((int)(block % GW_ACT_GROUP), word)] = codes[word];
    }
}

/* Lanes 8 b .. 8 b + 7 of a team hold a block, four neighbours each. */
struct gw_act8_four {
    unsigned scale, sums, q; /* the block's first two words, and this lane's four codes */

    /* The whole team calls it. */
    __device__ inline void encode(const float *x) {
        unsigned top = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            top = gw_larger(top, GW_F32_BITS(x[i]) & 0x7fffffffu);
        }
        top = gw_larger(top, (unsigned)gw_quad_xor<1>((int)top));
        top = gw_larger(top, (unsigned)gw_quad_xor<2>((int)top));
        top = gw_larger(top, gw_shuffle_xor(top, 4));
        const float inverse = gw_act8_inverse(top);
        unsigned code[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            code[i] = gw_act8_code(x[i], inverse);
        }
        q = gw_four_bytes(code[0], code[1], code[2], code[3]);
        q = top < 0x7f800000u ? q : 0;
        int sum = gw_dp4a((int)q, 0x01010101, 0);
        sum += gw_quad_xor<1>(sum); /* of 16 neighbours */
        sum += gw_quad_xor<2>(sum);
        sums = ((unsigned)sum & 0xffffu) | (unsigned)gw_shuffle_xor(sum, 4) << 16;
        scale = GW_F32_BITS(gw_act8_scale(top));
    }
    /* Block `block` of rows of a form, as gw_team_encode. */
    __device__ inline void store(void *out, size_t block, int form) const {
        const int place = gw_lane() % 8, i = (int)(block % GW_ACT_GROUP);
        if (form == GW_FORM_PLAIN) {
            unsigned *to = (unsigned *)out + block * GW_ACT_WORDS;
            to[2 + place] = q;
            if (place == 0) {
                to[0] = scale;
                to[1] = sums;
            }
            return;
        }
        unsigned *group = (unsigned *)out + block / GW_ACT_GROUP * GW_ACT_GROUP_WORDS;
        group[gw_group_word(i, place)] = q;
        if (place == 0) {
            group[i] = scale;
            group[GW_ACT_GROUP + i] = gw_act8_second(form, GW_F32_FROM_BITS(scale),
                                                     gw_first_sum(sums), gw_second_sum(sums));
        }
    }
};

#endif
