/* cpu/simd_rvv.h - the vector vocabulary of simd_avx2.h in RISC-V's vectors 1.0: 16 rows per
 * vector, in as many registers as that takes; the same code for every length from 128 bits on.
 *
 * Bytes of code words lie plane after plane (strip.h: GW_STRIP_PLANES): byte k of the words of all
 * 16 rows, so that one instruction multiplies a code of each row by one activation, into sums of 16
 * bits that are emptied before they overflow. Unpacked codes go through memory: all of a block are
 * more than there are registers, and a byte plane out of the middle of one takes an instruction as
 * a load does. Vectors are those of the compiler's extension, which may lie in structs.
 */
#ifndef GW_CPU_SIMD_RVV_H
#define GW_CPU_SIMD_RVV_H

#include "cpu/linear_quant.h"

#pragma clang attribute push(__attribute__((target("arch=+v"))), apply_to = function)
#include <riscv_vector.h>

#define V_FN static inline __attribute__((always_inline))
#define V_ROWS 16
#define V_SIGNED_OFFSET 0
#define V_GROUP 1
#define V_TOGETHER 4  /* activation rows that share a load of codes; sums of more spill */
#define V_ONE_PLACE 1 /* no processor with these was tried: weights are read in order   */

#define V_OF(type, bytes, align) __attribute__((vector_size(bytes), aligned(align), may_alias)) type
typedef __attribute__((vector_size(64))) uint32_t v_word;
typedef __attribute__((vector_size(64))) int32_t v_signed_int;
typedef __attribute__((vector_size(64))) float v_float;
typedef __attribute__((vector_size(32))) int16_t v_short;
typedef v_word v_int;
typedef V_OF(uint32_t, 64, 4) v_word_there; /* in memory: as aligned as strips and floats are */
typedef V_OF(float, 64, 4) v_float_there;
typedef V_OF(uint16_t, 32, 2) v_half_there;
typedef V_OF(uint8_t, 16, 1) v_byte_there;
typedef V_OF(int8_t, 16, 1) v_code_there;
#undef V_OF

V_FN void v_prefetch(const void *p) { (void)p; }

V_FN v_word v_load(const void *p) { return *(const v_word_there *)p; }
V_FN v_word v_and(v_word a, v_word b) { return a & b; }
V_FN v_word v_or(v_word a, v_word b) { return a | b; }
V_FN v_word v_words(int b) { return (v_word){0} + (uint32_t)b; }
V_FN v_word v_bytes(int b) { return (v_word){0} + (uint32_t)b * 0x01010101u; }
V_FN v_word v_left(v_word a, int n) { return a << (uint32_t)n; }
V_FN v_word v_right(v_word a, int n) { return a >> (uint32_t)n; }
V_FN v_int v_signed_byte(v_word a, int byte) {
    return (v_int)((v_signed_int)v_left(a, 24 - 8 * byte) >> 24);
}
V_FN v_int v_sub(v_int a, v_int b) { return a - b; }
V_FN v_int v_load_u16(const void *p) {
    return __builtin_convertvector(*(const v_half_there *)p, v_word);
}
V_FN v_word v_levels(v_word index, const signed char *table) {
    uint8_t at[64];
    const vint8m1_t levels = __riscv_vle8_v_i8m1(table, 16);
    memcpy(at, &index, sizeof at);
    for (int i = 0; i < 64; i += 16) {
        const vint8m1_t level =
            __riscv_vrgather_vv_i8m1(levels, __riscv_vle8_v_u8m1(at + i, 16), 16);
        __riscv_vse8_v_i8m1((int8_t *)at + i, level, 16);
    }
    memcpy(&index, at, sizeof at);
    return index;
}

V_FN v_float v_zero(void) { return (v_float){0}; }
V_FN v_float v_fload(const float *p) { return *(const v_float_there *)(const void *)p; }
V_FN void v_fstore(float *p, v_float a) { *(v_float_there *)(void *)p = a; }
V_FN v_float v_dup(float a) { return a - (v_float){0}; /* of -0 too */ }
V_FN v_float v_add(v_float a, v_float b) { return a + b; }
V_FN v_float v_mul(v_float a, v_float b) { return a * b; }
V_FN v_float v_fma(v_float a, v_float b, v_float c) { return __builtin_elementwise_fma(a, b, c); }
V_FN v_float v_neg(v_float a) { return -a; }
V_FN v_float v_to_float(v_int a) { return __builtin_convertvector((v_signed_int)a, v_float); }

/* Version 1.0 alone has no 16-bit floats: exponent and mantissa as those of a float 2^-112 as
 * large, subnormal ones included; infinity and NaN then have an exponent to fill up. */
V_FN v_float v_load_f16(const void *p) {
    const v_word half = v_load_u16(p), bits = (half & 0x7fff) << 13;
    const v_word endless = (v_word)(bits >= 0x7c00u << 13) & 0x7f800000u;
    const v_float size = (v_float)bits * 0x1p112f;
    return (v_float)((v_word)size | endless | (half & 0x8000) << 16);
}

/* gw_e8m0_half of V_ROWS bytes. */
V_FN v_float v_load_e8m0(const void *p) {
    const v_word e = __builtin_convertvector(*(const v_byte_there *)p, v_word);
    const v_word tiny = 0x00200000u << (e & 1), normal = (e - 1) << 23, is_tiny = (v_word)(e < 2);
    return (v_float)((tiny & is_tiny) | (normal & ~is_tiny));
}

V_FN v_word v_signed(v_word a) {
    __asm__("" : "+vr"(a)); /* loads and stores of all words would become a call of memcpy */
    return a;
}

/* The top bit of every byte flipped: of numbers from 0 on, less 128. */
V_FN v_word v_turned(v_word a) { return a ^ 0x80808080u; }

/* An activation block. */
typedef struct v_acts {
    v_float dx, dxs;
    const gw_xblock *q;
} v_acts;

V_FN void v_spread(v_acts *v, const gw_xblock *x) {
    v->dx = v_dup(x->dx);
    v->dxs = v_dup(x->u.dxs);
    v->q = x;
}

/* No load before this sum is made: compilers load the codes of all products first, more than there
 * are registers, and spill them. */
#define V_SUM_FIRST(sum) __asm__ volatile("" : "+vr"(sum) : : "memory")

/* s [n] += words [from, end) of c times those of activation rows x [n]. pairs: half the products
 * that fit 16 bits, or 0: codes of 8 bits, of which two do. Codes of 0 .. 127 are the same signed
 * or unsigned. */
V_FN void v_dot_rows(v_int *s, const v_word *c, const int from, const int end, const gw_xblock *x,
                     const int n, const int pairs) {
    const int fit = pairs > 0 ? 2 * pairs : 2;
    const v_code_there *code = (const v_code_there *)(const void *)c;
    __asm__ volatile("" : "+r"(code) : "m"(*(const v_word(*)[8])(const void *)c));
#pragma clang loop unroll(full)
    for (int i = 4 * from; i < 4 * end; i += fit) {
        v_short sum[V_TOGETHER];
        const int stop = i + fit < 4 * end ? i + fit : 4 * end;
#pragma clang loop unroll(full)
        for (int j = i; j < stop; j++) {
            const v_short w = __builtin_convertvector(code[j], v_short);
#pragma clang loop unroll(full)
            for (int g = 0; g < n; g++) {
                const v_short product = w * (int16_t)x[g].q[j];
                sum[g] = j == i ? product : sum[g] + product;
            }
            for (int g = 0; g < n && j % 4 == 3 && j + 1 < stop; g++) {
                V_SUM_FIRST(sum[g]);
            }
        }
#pragma clang loop unroll(full)
        for (int g = 0; g < n; g++) {
            s[g] += (v_int) __builtin_convertvector(sum[g], v_signed_int);
        }
        for (int g = 0; g < n && stop % 4 == 0; g++) {
            V_SUM_FIRST(s[g]);
        }
    }
}

V_FN v_int v_dot_unsigned(v_int start, const v_word *c, const gw_xblock *x, int n, int pairs) {
    v_dot_rows(&start, c, 0, n, x, 1, pairs);
    return start;
}

typedef struct v_pair {
    v_int a, b;
} v_pair;
V_FN v_pair v_pair_of(v_int a, v_int b) {
    v_pair p = {a, b};
    return p;
}
V_FN v_int v_add_minimums(v_int sum, v_pair p, const gw_i16 *sums) {
    return sum + p.a * (uint32_t)sums[0] + p.b * (uint32_t)sums[1];
}
V_FN v_float v_pair_dot(v_pair p, const v_acts *x) {
    return v_to_float(v_add_minimums(v_words(0), p, x->q->sum));
}

typedef struct v_scales {
    v_int first, second;
} v_scales;
V_FN v_scales v_half_scales(v_int first, v_int second, int offset) {
    v_scales s = {first, second};
    (void)offset;
    return s;
}
V_FN v_int v_add_product(v_int sum, v_int scale, v_int a) { return sum + scale * a; }
V_FN v_float v_scale_halves(const v_scales *s, v_int a, v_int b) {
    return v_to_float(v_add_product(s->first * a, s->second, b));
}

#endif
