/* cpu/linear_unpack.h - one unpacking per format: from a strip to codes and scales of V_ROWS rows.
 *
 * unpack_F(u, group, head, sub, h): block `sub` of a group, rows h .. h + V_ROWS - 1; head points
 * at the strip's row headers. Codes come out as 8 words, word i the weights 4 i .. 4 i + 3.
 */

typedef struct v_block {
    v_word c[8];
    v_float ws, wm;  /* scale and minimum of the block; of halves: d and -dmin */
    v_float d, dmin; /* formats with integer scales: d and -dmin               */
    v_scales scales; /* the integer scales of the halves                       */
    v_pair mins;     /* Q2_K: their minimums                                   */
    v_int min;       /* Q4_K, Q5_K: that of the block                          */
} v_block;

#define VECTOR(base, i) ((base) + 64 * (size_t)(i) + 4 * (size_t)h) /* of 32-bit words */
#define HALVES(base, i) ((base) + 32 * (size_t)(i) + 2 * (size_t)h) /* of 16-bit words */

/* A table of format_list.h in 16 bytes, `plus` more. */
#define LEVEL_AT(levels, plus, i)                                                                  \
    (signed char)((signed char)(GW_LEVEL_WORD(levels, (i) / 4) >> (i) % 4 * 8 & 255u) + (plus))
#define FOUR_LEVELS(levels, plus, i)                                                               \
    LEVEL_AT(levels, plus, i), LEVEL_AT(levels, plus, (i) + 1), LEVEL_AT(levels, plus, (i) + 2),   \
        LEVEL_AT(levels, plus, (i) + 3)
#define ALL_LEVELS(levels, plus)                                                                   \
    {                                                                                              \
        FOUR_LEVELS(levels, plus, 0), FOUR_LEVELS(levels, plus, 4), FOUR_LEVELS(levels, plus, 8),  \
            FOUR_LEVELS(levels, plus, 12)                                                          \
    }
static const signed char iq4_levels[16] = ALL_LEVELS(GW_LEVELS_IQ4, 0);
static const signed char e2m1_levels[16] = ALL_LEVELS(GW_LEVELS_E2M1, 0);

/* 4 vectors of nibbles: low ones are weights 0 .. 15, high ones 16 .. 31. */
V_FN void take_nibbles(v_word *c, const unsigned char *base, int h) {
    for (int i = 0; i < 4; i++) {
        v_word w = v_load(VECTOR(base, i));
        c[i] = v_and(w, v_bytes(15));
        c[i + 4] = v_and(v_right(w, 4), v_bytes(15));
    }
}

V_FN void take_fifth_bits(v_word *c, const unsigned char *base, int h) {
    v_word bits = v_load(VECTOR(base, 0));
    for (int i = 0; i < 4; i++) {
        c[i] = v_or(c[i], v_and(v_left(bits, 4 - i), v_bytes(16)));
        c[i + 4] = v_or(c[i + 4], v_and(v_right(bits, i), v_bytes(16)));
    }
}

V_FN void take_levels(v_word *c, const signed char *levels) {
    for (int i = 0; i < 8; i++) {
        c[i] = v_signed(v_levels(c[i], levels));
    }
}

V_FN void take_bytes(v_word *c, const unsigned char *base, int h) {
    for (int i = 0; i < 8; i++) {
        c[i] = v_signed(v_load(VECTOR(base, i)));
    }
}

/* Nibble sub % 2 of 8 vectors: Q4_K and Q5_K. */
V_FN void take_k_nibbles(v_word *c, const unsigned char *base, int sub, int h) {
    base += (size_t)(sub / 2) * 512;
    for (int i = 0; i < 8; i++) {
        c[i] = v_and(v_right(v_load(VECTOR(base, i)), sub % 2 * 4), v_bytes(15));
    }
}

/* Two bits sub % 4 of plane sub / 4: Q2_K and Q3_K. */
V_FN void take_two_bits(v_word *c, const unsigned char *base, int sub, int h) {
    base += (size_t)(sub / 4) * 512;
    for (int i = 0; i < 8; i++) {
        c[i] = v_and(v_right(v_load(VECTOR(base, i)), sub % 4 * 2), v_bytes(3));
    }
}

V_FN void unpack_q8_0(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    (void)sub;
    take_bytes(u->c, group, h);
    u->ws = v_load_f16(HALVES(group + 512, 0));
}

V_FN void unpack_q4_0(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    (void)sub;
    take_nibbles(u->c, group, h);
    u->ws = v_load_f16(HALVES(group + 256, 0));
}

V_FN void unpack_q4_1(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    (void)sub;
    take_nibbles(u->c, group + 64, h);
    u->ws = v_load_f16(HALVES(group, 0));
    u->wm = v_load_f16(HALVES(group, 1));
}

V_FN void unpack_q5_0(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    (void)sub;
    take_nibbles(u->c, group + 64, h);
    take_fifth_bits(u->c, group, h);
    u->ws = v_load_f16(HALVES(group + 320, 0));
}

V_FN void unpack_q5_1(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    (void)sub;
    take_nibbles(u->c, group + 128, h);
    take_fifth_bits(u->c, group + 64, h);
    u->ws = v_load_f16(HALVES(group, 0));
    u->wm = v_load_f16(HALVES(group, 1));
}

V_FN void unpack_q2_k(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    take_two_bits(u->c, group + 320, sub, h);
    /* Scale bytes 2 sub and 2 sub + 1: the low or the high half of word sub / 2. */
    v_word pair = v_right(v_load(VECTOR(group + 64, sub / 2)), sub % 2 * 16);
    v_word first = v_and(pair, v_words(15)), second = v_and(v_right(pair, 8), v_words(15));
    u->scales = v_half_scales(first, second, 0);
    u->mins =
        v_pair_of(v_and(v_right(pair, 4), v_words(15)), v_and(v_right(pair, 12), v_words(15)));
    u->d = u->ws = v_load_f16(HALVES(group, 0));
    u->dmin = u->wm = v_neg(v_load_f16(HALVES(group, 1)));
}

/* Six-bit scale number i of Q3_K, 0 .. 15, less 32. */
V_FN v_int q3_k_scale(const unsigned char *scales, int i, int h) {
    v_word low = v_load(VECTOR(scales, i % 8 / 4)), high = v_load(VECTOR(scales, 2));
    low = v_and(v_right(low, i % 4 * 8 + i / 8 * 4), v_words(15));
    high = v_and(v_right(high, i % 4 * 8 + i / 4 * 2), v_words(3));
    return v_sub(v_or(low, v_left(high, 4)), v_words(32));
}

V_FN void unpack_q3_k(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    take_two_bits(u->c, group + 704, sub, h);
    for (int i = 0; i < 8; i++) {
        v_word high = v_load(VECTOR(group + 192, i)); /* its bit sub belongs at bit 2 */
        high = sub < 2 ? v_left(high, 2 - sub) : v_right(high, sub - 2);
        u->c[i] = v_or(u->c[i], v_and(high, v_bytes(4)));
    }
    u->scales = v_half_scales(q3_k_scale(group, 2 * sub, h), q3_k_scale(group, 2 * sub + 1, h), 4);
    u->d = u->ws = v_load_f16(HALVES(group + 1728, 0));
}

/* Scale and minimum of Q4_K and Q5_K (gw_six_bit_scale), times d and -dmin. */
V_FN void take_six_bits(v_block *u, const unsigned char *group, int sub, int h) {
    const unsigned char *scales = group + 64;
    v_word a = v_load(VECTOR(scales, 0)), b = v_load(VECTOR(scales, 1)), sc, m;
    int byte = sub % 4 * 8;
    if (sub < 4) {
        sc = v_and(v_right(a, byte), v_words(63));
        m = v_and(v_right(b, byte), v_words(63));
    } else {
        v_word low = v_load(VECTOR(scales, 2));
        sc = v_or(v_and(v_right(low, byte), v_words(15)),
                  v_left(v_and(v_right(a, byte + 6), v_words(3)), 4));
        m = v_or(v_and(v_right(low, byte + 4), v_words(15)),
                 v_left(v_and(v_right(b, byte + 6), v_words(3)), 4));
    }
    u->d = v_load_f16(HALVES(group, 0));
    u->dmin = v_neg(v_load_f16(HALVES(group, 1)));
    u->scales = v_half_scales(sc, sc, 0);
    u->min = m;
    u->ws = v_mul(u->d, v_to_float(sc));
    u->wm = v_mul(u->dmin, v_to_float(m));
}

V_FN void unpack_q4_k(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    take_k_nibbles(u->c, group + 256, sub, h);
    take_six_bits(u, group, sub, h);
}

V_FN void unpack_q5_k(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    take_k_nibbles(u->c, group + 768, sub, h);
    for (int i = 0; i < 8; i++) {
        v_word high = v_load(VECTOR(group + 256, i)); /* its bit sub belongs at bit 4 */
        high = sub < 4 ? v_left(high, 4 - sub) : v_right(high, sub - 4);
        u->c[i] = v_or(u->c[i], v_and(high, v_bytes(16)));
    }
    take_six_bits(u, group, sub, h);
}

V_FN void unpack_q6_k(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)head;
    const unsigned char *low = group + 1280 + (size_t)(sub / 4) * 1024 + (size_t)(sub % 2) * 512;
    const unsigned char *high = group + 256 + (size_t)(sub / 4) * 512;
    for (int i = 0; i < 8; i++) {
        v_word l = v_and(v_right(v_load(VECTOR(low, i)), sub % 4 / 2 * 4), v_bytes(15));
        v_word t = v_load(VECTOR(high, i)); /* its bits 2 j and up belong at bit 4 */
        t = sub % 4 < 2 ? v_left(t, 4 - sub % 4 * 2) : v_right(t, sub % 4 * 2 - 4);
        u->c[i] = v_or(l, v_and(t, v_bytes(0x30)));
    }
    v_word scales = v_load(VECTOR(group, sub / 2));
    u->scales = v_half_scales(v_signed_byte(scales, sub % 2 * 2),
                              v_signed_byte(scales, sub % 2 * 2 + 1), 32);
    u->d = u->ws = v_load_f16(HALVES(group + 3328, 0));
}

V_FN void unpack_iq4_nl(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                        int h) {
    unpack_q4_0(u, group, head, sub, h);
    take_levels(u->c, iq4_levels);
}

V_FN void unpack_iq4_xs(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                        int h) {
    (void)head;
    take_nibbles(u->c, group + 128 + (size_t)sub * 256, h);
    take_levels(u->c, iq4_levels);
    v_word low = v_and(v_right(v_load(VECTOR(group + 64, 0)), sub * 4), v_words(15));
    v_word high = v_and(v_right(v_load_u16(HALVES(group, 1)), sub * 2), v_words(3));
    v_int ls = v_sub(v_or(low, v_left(high, 4)), v_words(32));
    u->d = v_load_f16(HALVES(group, 0));
    u->scales = v_half_scales(ls, ls, 0);
    u->ws = v_mul(u->d, v_to_float(ls));
}

V_FN void unpack_mxfp4(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                       int h) {
    (void)head;
    (void)sub;
    take_nibbles(u->c, group, h);
    take_levels(u->c, e2m1_levels);
    u->ws = v_load_e8m0(group + 256 + h);
}

V_FN void unpack_int8(v_block *u, const unsigned char *group, const unsigned char *head, int sub,
                      int h) {
    (void)sub;
    take_bytes(u->c, group, h);
    u->ws = v_fload((const float *)(const void *)(head + 4 * h));
}

#define UNPACK_INT4(name)                                                                          \
    V_FN void unpack_##name(v_block *u, const unsigned char *group, const unsigned char *head,     \
                            int sub, int h) {                                                      \
        (void)head;                                                                                \
        take_nibbles(u->c, group + 64 + (size_t)sub * 256, h);                                     \
        u->ws = v_load_f16(HALVES(group, 0));                                                      \
        u->wm = v_load_f16(HALVES(group, 1));                                                      \
    }
UNPACK_INT4(int4_g32)
UNPACK_INT4(int4_g64)
UNPACK_INT4(int4_g128)
UNPACK_INT4(int4_g256)

UNPACK_INT4(bl3h_b64) /* strip.h */

/* ---- planes.h ---- */

/* Bits in words of which each has those of four words of codes: weight 4 (2 t + j) + k in byte k of
 * word j at bit 2 t. */
V_FN void or_two_bits(v_word *c, const unsigned char *base, int h, const int up) {
    for (int i = 0; i < 8; i++) {
        int left = up - i / 2 * 2;
        v_word w = v_load(VECTOR(base, i % 2));
        w = left == 0 ? w : left > 0 ? v_left(w, left) : v_right(w, -left);
        w = v_and(w, v_bytes(3 << up));
        c[i] = up > 0 ? v_or(c[i], w) : w;
    }
}

V_FN void or_single_bits(v_word *c, const unsigned char *base, int h, const int up) {
    v_word bits = v_load(VECTOR(base, 0));
    for (int i = 0; i < 8; i++) {
        v_word w = i == up ? bits : i < up ? v_left(bits, up - i) : v_right(bits, i - up);
        c[i] = v_or(c[i], v_and(w, v_bytes(1 << up)));
    }
}

/* low: of block `sub` of a group; so is high. Codes of 8 bits as those of Q8_0. */
V_FN void take_planes(v_word *c, const unsigned char *low, const int low_bits,
                      const unsigned char *high, const int high_bits, int h) {
    if (low_bits == 8) {
        for (int i = 0; i < 8; i++) {
            c[i] = v_signed(v_turned(v_load(VECTOR(low, i))));
        }
    } else if (low_bits == 4) {
        take_nibbles(c, low, h);
    } else {
        or_two_bits(c, low, h, 0);
    }
    if (high_bits == 1) {
        or_single_bits(c, high, h, low_bits & 7);
    } else if (high_bits == 2) {
        or_two_bits(c, high, h, low_bits & 7);
    }
}

#define UNPACK_PLANES(unused, NAME, name, low, high, offset, levels, term, sub_bytes, share, head) \
    static const signed char name##_levels[16] =                                                   \
        ALL_LEVELS(levels, (term) == GW_TERM_HALVES ? GW_HALVED_LEVELS : 0);                       \
    V_FN void unpack_##name(v_block *u, const unsigned char *group, const unsigned char *unused1,  \
                            int sub, int h) {                                                      \
        enum { OF = GW_STRIP_ROWS };                                                               \
        const unsigned char *scales = group + OF * GW_HEAD_BYTES(head);                            \
        const unsigned char *low_at = group + OF * GW_PLANE_LOW_AT(sub_bytes, share, head);        \
        const unsigned char *high_at = group + OF * GW_PLANE_HIGH_AT(low, sub_bytes, share, head); \
        (void)unused1, (void)name##_levels;                                                        \
        take_planes(u->c, low_at + (size_t)(64 * (low)) * (size_t)sub, low,                        \
                    high_at + (size_t)(64 * (high)) * (size_t)sub, high, h);                       \
        for (int i = 0; i < 8 && (levels) != GW_LEVELS_NONE; i++) {                                \
            v_word w = v_levels(u->c[i], name##_levels);                                           \
            u->c[i] = (term) == GW_TERM_HALVES ? w : v_signed(w);                                  \
        }                                                                                          \
        u->ws = (head) == GW_HEAD_F32    ? v_fload((const float *)(const void *)(group + 4 * h))   \
                : (head) == GW_HEAD_E8M0 ? v_load_e8m0(group + h)                                  \
                                         : v_load_f16(HALVES(group, 0));                           \
        if ((head) == GW_HEAD_PAIR) {                                                              \
            u->wm = v_load_f16(HALVES(group, 1));                                                  \
            u->wm = (offset) > 0 ? v_fma(v_dup(offset), u->ws, u->wm) : u->wm;                     \
        }                                                                                          \
        if (sub_bytes) {                                                                           \
            v_word pair = v_load_u16(HALVES(scales, sub));                                         \
            v_int first = v_signed_byte(pair, 0);                                                  \
            u->d = u->ws;                                                                          \
            if ((term) == GW_TERM_HALVES) {                                                        \
                u->scales = v_half_scales(first, v_signed_byte(pair, 1), GW_HALVED_LEVELS);        \
            } else {                                                                               \
                u->scales = v_half_scales(first, first, 0);                                        \
                u->ws = v_mul(u->ws, v_to_float(first));                                           \
            }                                                                                      \
        }                                                                                          \
    }
GW_PLANE_FORMATS(UNPACK_PLANES, 0)
