/* cpu/linear_pair_body.h - prompts: the terms of two strips at once; after a vocabulary (simd_*.h)
 * and linear_unpack.h.
 *
 * A product that reads its activations from memory is a load for every product, and the loads of a
 * term are then more than its multiplications. So two strips share a word of activations, spread
 * over a register once. Codes wait unpacked in the first-level cache, for as many activation rows
 * as share them, because the registers have sums: of four rows, and of the four before, whose terms
 * are added between products. A processor that runs two programs does not look far enough ahead to
 * do so by itself. Terms of four blocks (linear_scaled_body.h) are too few for that to pay:
 * registers have the sums of a block and of a span there.
 */
#if V_GROUP > 1

enum {
    PAIR_ROWS = 48, /* activation rows that share an unpacking, a multiple of GW_TILE */
    PAIR_FEW = 32,  /* fewer are as soon done strip by strip                          */
    PAIR_STEP = 4   /* of them at once, a divisor of GW_TILE                          */
};

/* acc [n][2][16] += the terms of all blocks of two strips, `bytes` apart, for n <= PAIR_ROWS
 * activation rows; x in tiles of GW_TILE rows, each [blocks][rows]. */
typedef void pair_fn(const unsigned char *strip, size_t bytes, size_t blocks, const gw_xblock *x,
                     size_t n, float *acc);

/* Sums of each strip. */
typedef struct v_pair_sums {
    v_int s[2][PAIR_STEP];
} v_pair_sums;

/* a [16] += the term of a strip and a row. */
V_FN void add_pair_term(shape f, const v_block *u, const gw_xblock *x, v_int s, float *a) {
    v_acts few;
    v_spread(&few, x);
    v_fstore(a, add_sum(f, u, &few, v_to_float(s), v_fload(a)));
}

/* Sums of n <= PAIR_STEP activation rows x; u: a block of each strip. With `adds`, a [n][2][16] +=
 * the terms of the rows `before`, whose sums are done. */
V_FN void sum_pair(shape f, const v_block *u, const gw_xblock *x, const int n, v_pair_sums *to,
                   const gw_xblock *before, const v_pair_sums *done, float *a, const int adds) {
    V_UNROLL_ALL
    for (int g = 0; g < n; g++) {
        to->s[0][g] = v_words(f.kind == AFFINE ? 0 : f.kind == WIDE ? x[g].start1 : x[g].u.start);
        to->s[1][g] = to->s[0][g];
    }
    V_UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        const v_word first = v_load_again(&u[0].c[i]), second = v_load_again(&u[1].c[i]);
        V_UNROLL_ALL
        for (int g = 0; g < n; g++) {
            const v_word q = v_dup_word(x[g].q + 4 * i);
            to->s[0][g] = v_dot(to->s[0][g], first, q);
            to->s[1][g] = v_dot(to->s[1][g], second, q);
        }
        if (adds && i < 2 * n) {
            add_pair_term(f, u + i % 2, before + i / 2, done->s[i % 2][i / 2],
                          a + i * GW_STRIP_ROWS);
        }
    }
}

V_FN void add_pair_terms(shape f, const v_block *u, const gw_xblock *x, const int n,
                         const v_pair_sums *done, float *a) {
    V_UNROLL_ALL
    for (int i = 0; i < 2 * n; i++, a += GW_STRIP_ROWS) {
        add_pair_term(f, u + i % 2, x + i / 2, done->s[i % 2][i / 2], a);
    }
}

/* a [n][2][16] += the terms of n activation rows, PAIR_STEP or fewer. */
V_FN void add_few_pairs(shape f, const v_block *u, const gw_xblock *x, float *a, const int n) {
    v_pair_sums sums;
    sum_pair(f, u, x, n, &sums, NULL, NULL, NULL, 0);
    add_pair_terms(f, u, x, n, &sums, a);
}

/* a [n][2][16] += the terms of n activation rows, a multiple of PAIR_STEP, of which GW_TILE lie
 * side by side and the next ones `apart` blocks from those. */
V_FN void add_many_pairs(shape f, const v_block *u, const gw_xblock *x, size_t apart, size_t n,
                         float *a) {
    v_pair_sums sums, done;
    const gw_xblock *before = x;
    sum_pair(f, u, x, PAIR_STEP, &done, NULL, NULL, NULL, 0);
    V_ROLLED
    for (size_t g = PAIR_STEP; g < n; g += PAIR_STEP, a += 2 * PAIR_STEP * GW_STRIP_ROWS) {
        const gw_xblock *at = x + g / GW_TILE * apart + g % GW_TILE;
        sum_pair(f, u, at, PAIR_STEP, &sums, before, &done, a, 1);
        done = sums;
        before = at;
    }
    add_pair_terms(f, u, before, PAIR_STEP, &done, a);
}

/* The same for any n, once per kind of term and not per format. */
#define ADD_PAIRS(KIND)                                                                            \
    static __attribute__((noinline)) void add_pairs_##KIND(const v_block *u, const gw_xblock *x,   \
                                                           size_t apart, size_t n, float *a) {     \
        const shape f = {KIND, 0, 0};                                                              \
        const size_t most = n / PAIR_STEP * PAIR_STEP;                                             \
        if (most > 0) {                                                                            \
            add_many_pairs(f, u, x, apart, most, a);                                               \
            x += most / GW_TILE * apart + most % GW_TILE;                                          \
            a += 2 * most * GW_STRIP_ROWS;                                                         \
        }                                                                                          \
        for (; most < n; n--, x++, a += 2 * GW_STRIP_ROWS) {                                       \
            add_few_pairs(f, u, x, a, 1);                                                          \
        }                                                                                          \
    }
ADD_PAIRS(SIGNED)
ADD_PAIRS(AFFINE)
ADD_PAIRS(WIDE)
#undef ADD_PAIRS

V_FN void add_pairs(shape f, const v_block *u, const gw_xblock *x, size_t apart, size_t n,
                    float *a) {
    switch (f.kind) {
    case AFFINE:
        add_pairs_AFFINE(u, x, apart, n, a);
        break;
    case WIDE:
        add_pairs_WIDE(u, x, apart, n, a);
        break;
    default: /* SHIFTED starts where SIGNED does */
        add_pairs_SIGNED(u, x, apart, n, a);
        break;
    }
}

/* ---- formats with integer scales (linear_scaled_body.h) ---- */

/* GW_ACT_SPAN blocks of a strip. */
typedef struct v_scaled_span {
    v_word c[GW_ACT_SPAN][8];
    v_scales scales[GW_ACT_SPAN];
    v_minimums min;
    v_float d, dmin;
} v_scaled_span;

/* S of n <= PAIR_STEP activation rows of blocks x, x + step, ..; u: a span of each strip. */
V_FN void sum_scaled_pair(shape f, const v_scaled_span *u, const gw_xblock *x, size_t step,
                          const int n, v_pair_sums *to) {
    V_UNROLL_ALL
    for (int g = 0; g < n; g++) {
        to->s[0][g] = to->s[1][g] = v_words(0);
    }
    V_ROLLED
    for (int j = 0; j < GW_ACT_SPAN; j++, x += step) {
        v_int s[2][PAIR_STEP], t[2][PAIR_STEP]; /* t: of second halves */
        V_UNROLL_ALL
        for (int g = 0; g < n; g++) {
            s[0][g] = s[1][g] = v_words(has_minimums(f) ? 0 : x[g].u.start);
            t[0][g] = t[1][g] = v_words(has_minimums(f) ? 0 : x[g].start1);
        }
        V_UNROLL_ALL
        for (int i = 0; i < 8; i++) {
            const int word = has_halves(f) ? i % 2 * 4 + i / 2 : i; /* halves in turn */
            v_int(*sum)[PAIR_STEP] = has_halves(f) && word >= 4 ? t : s;
            const v_word first = v_load_again(&u[0].c[j][word]);
            const v_word second = v_load_again(&u[1].c[j][word]);
            V_UNROLL_ALL
            for (int g = 0; g < n; g++) {
                const v_word q = v_dup_word(x[g].q + 4 * word);
                sum[0][g] = v_dot(sum[0][g], first, q);
                sum[1][g] = v_dot(sum[1][g], second, q);
            }
        }
        V_UNROLL_ALL
        for (int i = 0; i < 2 * n; i++) {
            const v_scales *scale = &u[i % 2].scales[j];
            v_int *sum = &to->s[i % 2][i / 2];
            *sum = v_add_product(*sum, scale->first, s[i % 2][i / 2]);
            *sum = has_halves(f) ? v_add_product(*sum, scale->second, t[i % 2][i / 2]) : *sum;
        }
    }
}

/* a [n][2][16] += the terms of n activation rows, PAIR_STEP or fewer. */
V_FN void add_few_scaled_pairs(shape f, const v_scaled_span *u, const gw_xblock *x, size_t step,
                               float *a, const int n) {
    v_pair_sums sums;
    sum_scaled_pair(f, u, x, step, n, &sums);
    V_UNROLL_ALL
    for (int i = 0; i < 2 * n; i++, a += GW_STRIP_ROWS) {
        const v_scaled_span *own = u + i % 2;
        v_fstore(a, add_scaled_term(f, own->d, own->dmin, own->min.of, x + i / 2, step,
                                    sums.s[i % 2][i / 2], v_fload(a)));
    }
}

/* a [n][2][16] += the terms of n <= GW_TILE activation rows that lie side by side: once per kind of
 * term and not per format. */
#define ADD_SCALED_PAIRS(KIND)                                                                     \
    static __attribute__((noinline)) void add_scaled_pairs_##KIND(                                 \
        const v_scaled_span *u, const gw_xblock *x, size_t n, float *a) {                          \
        const shape f = {KIND, 0, 0};                                                              \
        size_t g = 0;                                                                              \
        V_ROLLED                                                                                   \
        for (; g + PAIR_STEP <= n; g += PAIR_STEP) {                                               \
            add_few_scaled_pairs(f, u, x + g, n, a + 2 * g * GW_STRIP_ROWS, PAIR_STEP);            \
        }                                                                                          \
        V_ROLLED                                                                                   \
        for (; g < n; g++) {                                                                       \
            add_few_scaled_pairs(f, u, x + g, n, a + 2 * g * GW_STRIP_ROWS, 1);                    \
        }                                                                                          \
    }
ADD_SCALED_PAIRS(SIGNED)
ADD_SCALED_PAIRS(AFFINE)
ADD_SCALED_PAIRS(HALVED)
ADD_SCALED_PAIRS(HALVED_MIN)
#undef ADD_SCALED_PAIRS

V_FN void add_scaled_pairs(shape f, const v_scaled_span *u, const gw_xblock *x, size_t n,
                           float *a) {
    switch (f.kind) {
    case AFFINE:
        add_scaled_pairs_AFFINE(u, x, n, a);
        break;
    case HALVED:
        add_scaled_pairs_HALVED(u, x, n, a);
        break;
    case HALVED_MIN:
        add_scaled_pairs_HALVED_MIN(u, x, n, a);
        break;
    default:
        add_scaled_pairs_SIGNED(u, x, n, a);
        break;
    }
}

/* ---- all formats ---- */

#define PAIR_PASS(name, NAME, weights, bytes_of_group, head)                                       \
    V_FN void scaled_span_##name(v_scaled_span *to, const unsigned char *group, int sub) {         \
        const shape f = SHAPE(name);                                                               \
        v_block u, before;                                                                         \
        V_UNROLL                                                                                   \
        for (int j = 0; j < GW_ACT_SPAN; j++, before = u) {                                        \
            unpack_##name(&u, group, group, sub + j, 0);                                           \
            memcpy(to->c[j], u.c, sizeof u.c);                                                     \
            to->scales[j] = u.scales;                                                              \
            keep_minimums(f, &to->min, &u, &before, j);                                            \
        }                                                                                          \
        to->d = u.d;                                                                               \
        to->dmin = u.dmin;                                                                         \
    }                                                                                              \
    static void pair_##name(const unsigned char *strip, size_t bytes, size_t blocks,               \
                            const gw_xblock *x, size_t n, float *acc) {                            \
        SIZES(name);                                                                               \
        const shape f = SHAPE(name);                                                               \
        const size_t whole = n / GW_TILE * GW_TILE, rest = n - whole;                              \
        for (size_t b = 0; b < blocks; b += GW_STRIP_SCALED_##name ? GW_ACT_SPAN : 1) {            \
            const int sub = (int)(b % SUBS);                                                       \
            const unsigned char *group = strip + HEAD + b / SUBS * GROUP;                          \
            if (GW_STRIP_SCALED_##name) {                                                          \
                v_scaled_span u[2];                                                                \
                scaled_span_##name(&u[0], group, sub);                                             \
                scaled_span_##name(&u[1], group + bytes, sub);                                     \
                for (size_t t = 0; t < n; t += GW_TILE) {                                          \
                    const size_t rows = n - t < GW_TILE ? rest : GW_TILE;                          \
                    add_scaled_pairs(f, u, x + t * blocks + b * rows, rows,                        \
                                     acc + 2 * t * GW_STRIP_ROWS);                                 \
                }                                                                                  \
                continue;                                                                          \
            }                                                                                      \
            v_block u[2];                                                                          \
            unpack_##name(&u[0], group, strip, sub, 0);                                            \
            unpack_##name(&u[1], group + bytes, strip + bytes, sub, 0);                            \
            add_pairs(f, u, x + b * GW_TILE, blocks * GW_TILE, whole, acc);                        \
            add_pairs(f, u, x + whole * blocks + b * rest, 0, rest,                                \
                      acc + 2 * whole * GW_STRIP_ROWS);                                            \
        }                                                                                          \
    }
GW_STRIP_FORMATS(PAIR_PASS)
#undef PAIR_PASS

/* Strips of rows [first, end) of W two by two, for activation rows [from, from + n) at x. Returns
 * the first row of W that is left. */
static size_t prefill_pairs(const gw_cpu_linear *job, size_t first, size_t end, size_t from,
                            size_t n, float *acc, const gw_xblock *x, size_t bytes, pair_fn *pair) {
    const size_t blocks = job->k / GW_ACT_BLOCK;
    size_t r = first;
    for (; n >= PAIR_FEW && r + GW_STRIP_ROWS < end; r += 2 * GW_STRIP_ROWS) {
        const unsigned char *strip = (const unsigned char *)job->w + r / GW_STRIP_ROWS * bytes;
        for (size_t t = 0; t < n; t += PAIR_ROWS) {
            const size_t count = n - t < PAIR_ROWS ? n - t : PAIR_ROWS;
            memset(acc, 0, 2 * count * GW_STRIP_ROWS * sizeof *acc);
            pair(strip, bytes, blocks, x + t * blocks, count, acc);
            for (size_t i = 0; i < count; i++) {
                const float *sums = acc + 2 * i * GW_STRIP_ROWS;
                finish(job, from + t + i, r, v_fload(sums));
                finish(job, from + t + i, r + GW_STRIP_ROWS, v_fload(sums + GW_STRIP_ROWS));
            }
        }
    }
    return r;
}
#endif
