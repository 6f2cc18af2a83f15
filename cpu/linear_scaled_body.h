/* cpu/linear_scaled_body.h - prompts of formats with integer scales: terms of GW_ACT_SPAN blocks
 * whose activations have one scale since prepare(). After a vocabulary (simd_*.h), linear_unpack.h
 * and linear_shape_body.h.
 *
 * S, the sums of blocks or halves times their scales, and M, sums of activations times minimums,
 * are integers; one float step follows for all. In the x86 levels without VNNI a scale takes the
 * place of the ones that add pairs of 16 bits; with it, and in NEON, there is a product of integers
 * for each sum of a block or half.
 */

/* S of n <= GW_TILE activation rows and V_ROWS rows of weights. */
typedef struct v_scaled_sums {
    v_int s[GW_TILE];
} v_scaled_sums;

V_FN int has_minimums(shape f) { return f.kind == AFFINE || f.kind == HALVED_MIN; }
V_FN int has_halves(shape f) { return f.kind == HALVED || f.kind == HALVED_MIN; }

/* Pairs of minimums of a span, as many as prepare_scaled() makes pairs of sums: of the two halves
 * of each block, or of two blocks. They are those of blocks 0, step, .. */
typedef struct v_minimums {
    v_pair of[GW_ACT_SPAN];
} v_minimums;
V_FN int minimum_step(shape f) { return f.kind == HALVED_MIN ? 1 : 2; }

/* Block j of a span; before: the one before it. */
V_FN void keep_minimums(shape f, v_minimums *to, const v_block *u, const v_block *before, int j) {
    if (f.kind == HALVED_MIN) {
        to->of[j] = u->mins;
    } else if (f.kind == AFFINE && j % 2 != 0) {
        to->of[j - 1] = v_pair_of(before->min, u->min);
    }
}

/* acc + the term with S; x: block 0 of the span, the next ones `step` further each. d, dmin: as
 * unpacked. */
V_FN v_float add_scaled_term(shape f, v_float d, v_float dmin, const v_pair *min,
                             const gw_xblock *x, size_t step, v_int s, v_float acc) {
    v_float y = v_to_float(s);
    if (!has_minimums(f)) {
        return v_fma(v_dup(x->dx), v_mul(d, y), acc);
    }
    v_int m = v_words(0);
    for (int j = 0; j < GW_ACT_SPAN; j += minimum_step(f)) {
        m = v_add_minimums(m, min[j], x[(size_t)j * step].sum);
    }
    return v_fma(v_dup(x->dx), v_fma(d, y, v_mul(dmin, v_to_float(m))), acc);
}

#if V_TOGETHER > 1
/* Sums of a block of n <= V_TOGETHER activation rows. */
V_FN void add_some_scaled(shape f, const v_block *u, const gw_xblock *x, v_int *to, const int n) {
    v_int s[V_TOGETHER], t[V_TOGETHER];
    for (int g = 0; g < n; g++) {
        s[g] = v_words(f.offset != 0 ? x[g].u.start : 0);
        t[g] = v_words(f.offset != 0 ? x[g].start1 : 0);
    }
    v_dot_rows(s, u->c, 0, 4, x, n, f.pairs);
    v_dot_rows(has_halves(f) ? t : s, u->c, 4, 8, x, n, f.pairs);
    for (int g = 0; g < n; g++) {
        to[g] = v_add_product(to[g], u->scales.first, s[g]);
        to[g] = has_halves(f) ? v_add_product(to[g], u->scales.second, t[g]) : to[g];
    }
}
#endif

/* S of `count` <= GW_TILE activation rows + the sums of a block. */
V_FN void add_scaled_block(shape f, const v_block *u, const gw_xblock *x, size_t count,
                           v_scaled_sums *to) {
#if V_TOGETHER > 1
    v_int *s = to->s;
    for (; count >= V_TOGETHER; count -= V_TOGETHER, x += V_TOGETHER, s += V_TOGETHER) {
        add_some_scaled(f, u, x, s, V_TOGETHER);
    }
    if (count & 4) {
        add_some_scaled(f, u, x, s, 4);
        x += 4;
        s += 4;
    }
    if (count & 2) {
        add_some_scaled(f, u, x, s, 2);
        x += 2;
        s += 2;
    }
    if (count & 1) {
        add_some_scaled(f, u, x, s, 1);
    }
#else
    for (size_t i = 0; i < count; i++) {
        v_acts spread;
        v_spread(&spread, x + i);
        to->s[i] =
            has_halves(f) ? v_add_halves(to->s[i], &u->scales, u->c, &spread, f.pairs, f.offset)
            : f.kind == SIGNED ? v_add_signed(to->s[i], &u->scales, u->c, &spread)
                               : v_add_unsigned(to->s[i], &u->scales, u->c, &spread, f.pairs);
    }
#endif
}

/* Several activation rows of a prompt, as a pass_fn; of other formats that of decode. */
#define PROMPT_PASS(name, NAME, weights, bytes, head)                                              \
    static void prompt_##name(const unsigned char *strip, size_t first, size_t end,                \
                              const gw_xblock *x, size_t count, float *restrict acc, size_t last,  \
                              stream from) {                                                       \
        SIZES(name);                                                                               \
        const shape f = SHAPE(name);                                                               \
        if (!GW_STRIP_SCALED_##name) {                                                             \
            pass_##name(strip, first, end, x, count, acc, last, from);                             \
            return;                                                                                \
        }                                                                                          \
        for (size_t b = first; b < end; b += GW_ACT_SPAN) {                                        \
            const unsigned char *group = strip + HEAD + b / SUBS * GROUP;                          \
            const gw_xblock *from_b = x + b * count;                                               \
            for (int h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {                                      \
                v_scaled_sums sums;                                                                \
                v_minimums min;                                                                    \
                v_block u, before;                                                                 \
                for (size_t i = 0; i < count; i++) {                                               \
                    sums.s[i] = v_words(0);                                                        \
                }                                                                                  \
                for (int j = 0; j < GW_ACT_SPAN; j++, before = u) {                                \
                    unpack_##name(&u, group, strip, (int)(b % SUBS) + j, h);                       \
                    keep_minimums(f, &min, &u, &before, j);                                        \
                    add_scaled_block(f, &u, from_b + (size_t)j * count, count, &sums);             \
                }                                                                                  \
                for (size_t i = 0; i < count; i++) {                                               \
                    float *a = acc + i * GW_STRIP_ROWS + h;                                        \
                    v_fstore(a, add_scaled_term(f, u.d, u.dmin, min.of, from_b + i, count,         \
                                                sums.s[i], v_fload(a)));                           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
GW_STRIP_FORMATS(PROMPT_PASS)
#undef PROMPT_PASS
