/* cpu/linear_acts_body.h - gw_act8_span in vectors; after a vocabulary (simd_*.h), whose width it
 * does not depend on.
 *
 * In 16 bits without a sign: q + 128 is 0 .. 255, its product with a part of 256 and what is added
 * to that (gw_span_code) below 65536. What compilers made of plain C took up to ten times as long.
 */

/* GW_ACT_SPAN blocks with one scale. */
typedef struct span {
    gw_i8 *q[GW_ACT_SPAN];      /* where the codes of each block go    */
    float dx;                   /* the scale                           */
    gw_i32 sum[GW_ACT_SPAN][2]; /* of the codes of each half of a block */
} span;

/* Codes of all blocks, each times its part of 256; their sums. */
#if defined(__x86_64__)
V_FN void v_span_codes(span *to, const gw_act8 *x, const gw_i32 *part) {
    const __m256i zero = _mm256_setzero_si256(), middle = _mm256_set1_epi8((char)0x80);
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        __m256i factor = _mm256_set1_epi16((short)part[b]);
        __m256i plus = _mm256_set1_epi16((short)((256 - part[b]) * 128 + 128));
        __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)x[b].q);
        q = _mm256_xor_si256(q, middle); /* + 128 */
        __m256i low = _mm256_mullo_epi16(_mm256_unpacklo_epi8(q, zero), factor);
        __m256i high = _mm256_mullo_epi16(_mm256_unpackhi_epi8(q, zero), factor);
        low = _mm256_srli_epi16(_mm256_add_epi16(low, plus), 8);
        high = _mm256_srli_epi16(_mm256_add_epi16(high, plus), 8);
        q = _mm256_packus_epi16(low, high);
        __m256i sums = _mm256_sad_epu8(q, zero);
        sums = _mm256_add_epi64(sums, _mm256_unpackhi_epi64(sums, sums));
        to->sum[b][0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums)) - 128 * 16;
        to->sum[b][1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)) - 128 * 16;
        _mm256_storeu_si256((__m256i *)(void *)to->q[b], _mm256_xor_si256(q, middle));
    }
}
#elif defined(__aarch64__)
V_FN void v_span_codes(span *to, const gw_act8 *x, const gw_i32 *part) {
    const uint8x16_t middle = vdupq_n_u8(0x80);
    for (int i = 0; i < GW_ACT_SPAN * 2; i++) {
        const gw_i32 b = i / 2, half = i % 2 * 16;
        const uint16x8_t plus = vdupq_n_u16((uint16_t)((256 - part[b]) * 128 + 128));
        uint8x16_t q = veorq_u8(vreinterpretq_u8_s8(vld1q_s8(x[b].q + half)), middle); /* + 128 */
        uint16x8_t low = vmovl_u8(vget_low_u8(q)), high = vmovl_high_u8(q);
        low = vmlaq_n_u16(plus, low, (uint16_t)part[b]);
        high = vmlaq_n_u16(plus, high, (uint16_t)part[b]);
        q = vshrn_high_n_u16(vshrn_n_u16(low, 8), high, 8);
        to->sum[b][i % 2] = vaddlvq_u8(q) - 128 * 16;
        vst1q_s8(to->q[b] + half, vreinterpretq_s8_u8(veorq_u8(q, middle)));
    }
}
#elif defined(__riscv)
V_FN void v_span_codes(span *to, const gw_act8 *x, const gw_i32 *part) {
    typedef __attribute__((vector_size(32))) uint16_t v_codes;
    for (int i = 0; i < GW_ACT_SPAN * 2; i++) {
        const int b = i / 2, half = i % 2 * 16;
        const v_byte_there code = *(const v_byte_there *)(const void *)(x[b].q + half) ^ 0x80;
        v_codes q = __builtin_convertvector(code, v_codes); /* + 128 */
        q = (q * (uint16_t)part[b] + (uint16_t)((256 - part[b]) * 128 + 128)) >> 8;
        to->sum[b][i % 2] = __builtin_reduce_add(q) - 128 * 16;
        *(v_byte_there *)(void *)(to->q[b] + half) =
            __builtin_convertvector(q, v_byte_there) ^ 0x80;
    }
}
#endif

V_FN void take_span(span *to, const gw_act8 *x) {
    gw_u32 top = 0;
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        gw_u32 scale = GW_F32_BITS(x[b].scale) & 0x7fffffffu;
        top = scale > top ? scale : top;
    }
    const float inverse = gw_span_inverse(top);
    gw_i32 part[GW_ACT_SPAN];
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        part[b] = gw_span_part(x[b].scale, inverse);
    }
    to->dx = GW_F32_FROM_BITS(top);
    v_span_codes(to, x, part);
}

V_FN gw_i32 sum_of_block(const span *s, int b) { return s->sum[b][0] + s->sum[b][1]; }

/* dx * (float)(sum of all q) */
V_FN float dxs_of_span(const span *s) {
    gw_i32 sum = 0;
    for (int b = 0; b < GW_ACT_SPAN; b++) {
        sum += sum_of_block(s, b);
    }
    return s->dx * (float)sum;
}
