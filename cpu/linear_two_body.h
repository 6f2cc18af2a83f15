/* cpu/linear_two_body.h - two neighbouring blocks of one activation row at once, for the formats
 * that are read most; after a vocabulary (simd_*.h) and linear_unpack.h.
 *
 * While memory gives a core 15 GB/s, decode has some 40 cycles for a block of 16 rows in Q4_0; what
 * computing takes of them cannot be waited for alongside for ever. Against block after block
 * (add_one): high nibbles are not shifted down, but their sum is; what blocks share is loaded and
 * widened once; chains of products, 5 cycles a link, are short and interleaved.
 */
#if V_GROUP > 1

/* Compiler barrier, so that loads stay in order: some prefetchers follow ascending addresses only.
 */
#define V_IN_ORDER() __asm__ volatile("" ::: "memory")

/* acc += the terms of blocks sub and sub + 1 of a group, or of two groups of one block. */
V_FN void add_two(const v_float *ws, const v_float *s, const gw_xblock *x, v_lanes *a) {
    for (int j = 0; j < 2; j++) {
        a->of[j][0] = v_fma(v_mul(ws[j], v_dup(x[j].dx)), s[j], a->of[j][0]);
    }
}

V_FN void two_q8_0_blocks(const unsigned char *group, const gw_xblock *x, v_lanes *a) {
    const int h = 0;
    v_float ws[2], sum[2];
    v_int s[2], t[2];
    for (int j = 0; j < 2; j++, group += GW_STRIP_GROUP_q8_0) {
        s[j] = v_words(x[j].u.start);
        t[j] = v_words(0);
        for (int i = 0; i < 8; i += 2) {
            s[j] = v_dot4(s[j], v_signed(v_load(VECTOR(group, i))), x[j].q + 4 * i);
            t[j] = v_dot4(t[j], v_signed(v_load(VECTOR(group, i + 1))), x[j].q + 4 * i + 4);
        }
        V_IN_ORDER();
        ws[j] = v_load_f16(HALVES(group + 512, 0));
        V_IN_ORDER();
    }
    for (int j = 0; j < 2; j++) {
        sum[j] = v_to_float(v_sum(s[j], t[j]));
    }
    add_two(ws, sum, x, a);
}

V_FN void two_q4_0_blocks(const unsigned char *group, const gw_xblock *x, v_lanes *a) {
    const int h = 0;
    v_float ws[2], sum[2];
    v_int low[2], high[2];
    for (int j = 0; j < 2; j++) {
        low[j] = v_words(x[j].u.start);
        high[j] = v_words(0);
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 2; j++) {
            v_word w = v_load_once(VECTOR(group + j * GW_STRIP_GROUP_q4_0, i));
            low[j] = v_dot4(low[j], v_and(w, v_bytes(15)), x[j].q + 4 * i);
            high[j] = v_dot4(high[j], v_and(w, v_bytes(0xf0)), x[j].q + 4 * i + 16);
        }
    }
    for (int j = 0; j < 2; j++) {
        ws[j] = v_load_f16(HALVES(group + j * GW_STRIP_GROUP_q4_0 + 256, 0));
        sum[j] = v_to_float(v_sum(low[j], v_down_4(high[j])));
    }
    add_two(ws, sum, x, a);
}

/* Bytes: scales and minimums 0 .. 3 or 4 .. 7 of Q4_K and Q5_K (gw_six_bit_scale), in their lower
 * six bits. */
V_FN void six_bits(v_word *sc, v_word *m, const unsigned char *scales, int upper) {
    const int h = 0;
    v_word a = v_load(VECTOR(scales, 0)), b = v_load(VECTOR(scales, 1));
    if (upper) {
        v_word low = v_load(VECTOR(scales, 2));
        a = v_select(v_bytes(15), low, v_right(a, 2));
        b = v_select(v_bytes(15), v_right(low, 4), v_right(b, 2));
    }
    *sc = a;
    *m = b;
}

V_FN void two_q4_k_blocks(const unsigned char *group, int sub, const gw_xblock *x, v_lanes *a) {
    const int h = 0;
    const unsigned char *base = group + 256 + (size_t)(sub / 2) * 512;
    v_float d = v_load_f16(HALVES(group, 0)), dmin = v_load_f16(HALVES(group, 1));
    v_word sc, m;
    six_bits(&sc, &m, group + 64, sub >= 4);
    V_IN_ORDER();
    v_int s[2] = {v_words(0), v_words(0)}, t[2] = {v_words(0), v_words(0)};
    for (int i = 0; i < 8; i++) {
        v_word w = v_load_once(VECTOR(base, i));
        s[i % 2] = v_dot4(s[i % 2], v_and(w, v_bytes(15)), x[0].q + 4 * i);
        t[i % 2] = v_dot4(t[i % 2], v_and(w, v_bytes(0xf0)), x[1].q + 4 * i);
    }
    v_int sum[2] = {v_sum(s[0], s[1]), v_down_4(v_sum(t[0], t[1]))};
    for (int j = 0; j < 2; j++) {
        v_float ws = v_mul(d, v_to_float(v_six_bits(sc, sub % 4 + j)));
        v_float wm = v_mul(dmin, v_to_float(v_six_bits(m, sub % 4 + j)));
        v_float acc = v_fma(v_mul(ws, v_dup(x[j].dx)), v_to_float(sum[j]), a->of[j][0]);
        a->of[j][0] = v_less(acc, wm, v_dup(x[j].u.dxs));
    }
}

V_FN void two_q6_k_blocks(const unsigned char *group, int sub, const gw_xblock *x, v_lanes *a) {
    const int h = 0;
    const unsigned char *low = group + 1280 + (size_t)(sub / 4) * 1024;
    const unsigned char *high = group + 256 + (size_t)(sub / 4) * 512;
    v_int s[2][2];
    for (int j = 0; j < 2; j++) {
        s[j][0] = v_words(x[j].u.start);
        s[j][1] = v_words(x[j].start1);
    }
    for (int k = 0; k < 4; k++) {
        for (int i = k; i < 8; i += 4) {
            v_word t = v_load_once(VECTOR(high, i));
            for (int j = 0; j < 2; j++) {
                int bits = sub % 4 + j; /* 2 bits and up belong at bit 4 */
                v_word l = v_load(VECTOR(low + j * 512, i));
                l = v_and(bits < 2 ? l : v_right(l, 4), v_bytes(15));
                v_word u = bits < 2 ? v_left(t, 4 - 2 * bits) : bits > 2 ? v_right(t, 2) : t;
                u = v_or(l, v_and(u, v_bytes(0x30)));
                s[j][i / 4] = v_dot4(s[j][i / 4], u, x[j].q + 4 * i);
            }
        }
    }
    v_word scales = v_load(VECTOR(group, sub / 2));
    v_float d = v_load_f16(HALVES(group + 3328, 0));
    v_float ws[2] = {d, d}, sum[2];
    for (int j = 0; j < 2; j++) {
        v_scales two =
            v_half_scales(v_signed_byte(scales, 2 * j), v_signed_byte(scales, 2 * j + 1), 32);
        sum[j] = v_scale_halves(&two, s[j][0], s[j][1]);
    }
    add_two(ws, sum, x, a);
}

V_FN int two_at_once(int fmt, const unsigned char *group, int sub, const gw_xblock *x, v_lanes *a) {
    switch (fmt) {
    case GW_FMT_Q8_0:
        two_q8_0_blocks(group, x, a);
        return 1;
    case GW_FMT_Q4_0:
        two_q4_0_blocks(group, x, a);
        return 1;
    case GW_FMT_Q4_K:
        two_q4_k_blocks(group, sub, x, a);
        return 1;
    case GW_FMT_Q6_K:
        two_q6_k_blocks(group, sub, x, a);
        return 1;
    default:
        return 0;
    }
}
#else
V_FN int two_at_once(int fmt, const unsigned char *group, int sub, const gw_xblock *x, v_lanes *a) {
    (void)fmt, (void)group, (void)sub, (void)x, (void)a;
    return 0;
}
#endif
