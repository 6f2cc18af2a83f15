/* cpu/linear_pair_body.h - prompts: the terms of two strips at once; after a vocabulary (simd_*.h)
 * and linear_unpack.h.
 *
 * A product that reads its activations from memory is a load for every product, and the loads of a
 * term are then more than its multiplications. So two strips share a word of activations, spread
 * over a register once. Codes wait unpacked in the first-level cache, for as many activation rows
 * as share them, because the registers have sums: of four rows, and of the four before, whose terms
 * are added between products. A processor that runs two programs does not look far enough ahead to
 * do so by itself.
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

/* Sums of each strip; t: of the second half of a block, where halves have scales. */
typedef struct v_pair_sums {
    v_int s[2][PAIR_STEP], t[2][PAIR_STEP];
} v_pair_sums;

/* a [16] += the term of a strip and a row. */
V_FN void add_pair_term(shape f, const v_block *u, const gw_xblock *x, v_int s, v_int t, float *a) {
    const int halved = f.kind == HALVED || f.kind == HALVED_MIN;
    v_acts few;
    v_spread(&few, x);
    v_float sum = halved ? v_scale_halves(&u->scales, s, t) : v_to_float(s);
    v_fstore(a, add_sum(f, u, &few, sum, v_fload(a)));
}

/* Sums of n <= PAIR_STEP activation rows x; u: a block of each strip. With `adds`, a [n][2][16] +=
 * the terms of the rows `before`, whose sums are done, unless they have halves: those are too many
 * for the registers. */
V_FN void sum_pair(shape f, const v_block *u, const gw_xblock *x, const int n, v_pair_sums *to,
                   const gw_xblock *before, const v_pair_sums *done, float *a, const int adds) {
    const int halved = f.kind == HALVED || f.kind == HALVED_MIN;
    V_UNROLL_ALL
    for (int g = 0; g < n; g++) {
        to->s[0][g] = v_words(f.kind == AFFINE ? 0 : f.kind == WIDE ? x[g].start1 : x[g].u.start);
        to->s[1][g] = to->s[0][g];
        to->t[0][g] = to->t[1][g] = v_words(halved ? x[g].start1 : 0);
    }
    V_UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        const int word = halved ? i % 2 * 4 + i / 2 : i; /* halves in turn */
        v_int(*sum)[PAIR_STEP] = halved && word >= 4 ? to->t : to->s;
        const v_word first = v_load_again(&u[0].c[word]), second = v_load_again(&u[1].c[word]);
        V_UNROLL_ALL
        for (int g = 0; g < n; g++) {
            const v_word q = v_dup_word(x[g].q + 4 * word);
            sum[0][g] = v_dot(sum[0][g], first, q);
            sum[1][g] = v_dot(sum[1][g], second, q);
        }
        if (adds && i < 2 * n) {
            add_pair_term(f, u + i % 2, before + i / 2, done->s[i % 2][i / 2], v_words(0),
                          a + i * GW_STRIP_ROWS);
        }
    }
}

V_FN void add_pair_terms(shape f, const v_block *u, const gw_xblock *x, const int n,
                         const v_pair_sums *done, float *a) {
    V_UNROLL_ALL
    for (int i = 0; i < 2 * n; i++, a += GW_STRIP_ROWS) {
        add_pair_term(f, u + i % 2, x + i / 2, done->s[i % 2][i / 2], done->t[i % 2][i / 2], a);
    }
}

/* a [n][2][16] += the terms of n activation rows, PAIR_STEP or fewer. */
V_FN void add_few_pairs(shape f, const v_block *u, const gw_xblock *x, float *a, const int n) {
    v_pair_sums sums;
    sum_pair(f, u, x, n, &sums, NULL, NULL, NULL, 0);
    add_pair_terms(f, u, x, n, &sums, a);
}

/* Of blocks whose halves have scales: sums of the second half, and those of the first one times
 * their scale. Integers below 2^24, so that any order of them is exact. */
typedef struct v_half_sums {
    v_int t[2][PAIR_STEP];
    v_float scaled[2][PAIR_STEP];
} v_half_sums;

V_FN void add_half_term(shape f, const v_block *u, const gw_xblock *x, v_float scaled, v_int t,
                        float *a) {
    v_acts few;
    v_spread(&few, x);
    v_float sum = v_fma(u->scales.second, v_to_float(t), scaled);
    v_fstore(a, add_sum(f, u, &few, sum, v_fload(a)));
}

/* sum_pair for them, of PAIR_STEP rows: the terms of the rows before are added between the products
 * of the first half, and its sums are scaled between those of the second. */
V_FN void sum_half_pair(shape f, const v_block *u, const gw_xblock *x, v_half_sums *to,
                        const gw_xblock *before, const v_half_sums *done, float *a,
                        const int adds) {
    v_int s[2][PAIR_STEP];
    V_UNROLL_ALL
    for (int g = 0; g < PAIR_STEP; g++) {
        s[0][g] = s[1][g] = v_words(x[g].u.start);
    }
    V_UNROLL_ALL
    for (int i = 0; i < 4; i++) {
        const v_word first = v_load_again(&u[0].c[i]), second = v_load_again(&u[1].c[i]);
        V_UNROLL_ALL
        for (int g = 0; g < PAIR_STEP; g++) {
            const v_word q = v_dup_word(x[g].q + 4 * i);
            s[0][g] = v_dot(s[0][g], first, q);
            s[1][g] = v_dot(s[1][g], second, q);
        }
        if (adds) {
            V_UNROLL_ALL
            for (int p = 0; p < 2; p++) {
                add_half_term(f, u + p, before + i, done->scaled[p][i], done->t[p][i],
                              a + (2 * i + p) * GW_STRIP_ROWS);
            }
        }
    }
    V_UNROLL_ALL
    for (int g = 0; g < PAIR_STEP; g++) {
        to->t[0][g] = to->t[1][g] = v_words(x[g].start1);
    }
    V_UNROLL_ALL
    for (int i = 0; i < 4; i++) {
        const v_word first = v_load_again(&u[0].c[i + 4]), second = v_load_again(&u[1].c[i + 4]);
        V_UNROLL_ALL
        for (int g = 0; g < PAIR_STEP; g++) {
            const v_word q = v_dup_word(x[g].q + 4 * i + 16);
            to->t[0][g] = v_dot(to->t[0][g], first, q);
            to->t[1][g] = v_dot(to->t[1][g], second, q);
        }
        V_UNROLL_ALL
        for (int p = 0; p < 2; p++) {
            to->scaled[p][i] = v_mul(u[p].scales.first, v_to_float(s[p][i]));
        }
    }
}

V_FN void add_many_half_pairs(shape f, const v_block *u, const gw_xblock *x, size_t apart, size_t n,
                              float *a) {
    v_half_sums sums, done;
    const gw_xblock *before = x;
    sum_half_pair(f, u, x, &done, NULL, NULL, NULL, 0);
    V_ROLLED
    for (size_t g = PAIR_STEP; g < n; g += PAIR_STEP, a += 2 * PAIR_STEP * GW_STRIP_ROWS) {
        const gw_xblock *at = x + g / GW_TILE * apart + g % GW_TILE;
        sum_half_pair(f, u, at, &sums, before, &done, a, 1);
        done = sums;
        before = at;
    }
    V_UNROLL_ALL
    for (int i = 0; i < 2 * PAIR_STEP; i++, a += GW_STRIP_ROWS) {
        add_half_term(f, u + i % 2, before + i / 2, done.scaled[i % 2][i / 2], done.t[i % 2][i / 2],
                      a);
    }
}

/* a [n][2][16] += the terms of n activation rows, a multiple of PAIR_STEP, of which GW_TILE lie
 * side by side and the next ones `apart` blocks from those. */
V_FN void add_many_pairs(shape f, const v_block *u, const gw_xblock *x, size_t apart, size_t n,
                         float *a) {
    if (f.kind == HALVED || f.kind == HALVED_MIN) {
        add_many_half_pairs(f, u, x, apart, n, a);
        return;
    }
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
ADD_PAIRS(HALVED)
ADD_PAIRS(HALVED_MIN)
ADD_PAIRS(WIDE)
#undef ADD_PAIRS

V_FN void add_pairs(shape f, const v_block *u, const gw_xblock *x, size_t apart, size_t n,
                    float *a) {
    switch (f.kind) {
    case AFFINE:
        add_pairs_AFFINE(u, x, apart, n, a);
        break;
    case HALVED:
        add_pairs_HALVED(u, x, apart, n, a);
        break;
    case HALVED_MIN:
        add_pairs_HALVED_MIN(u, x, apart, n, a);
        break;
    case WIDE:
        add_pairs_WIDE(u, x, apart, n, a);
        break;
    default: /* SHIFTED starts where SIGNED does */
        add_pairs_SIGNED(u, x, apart, n, a);
        break;
    }
}

#define PAIR_PASS(name, NAME, weights, bytes_of_group, head)                                       \
    static void pair_##name(const unsigned char *strip, size_t bytes, size_t blocks,               \
                            const gw_xblock *x, size_t n, float *acc) {                            \
        SIZES(name);                                                                               \
        const shape f = SHAPE(name);                                                               \
        const size_t whole = n / GW_TILE * GW_TILE, rest = n - whole;                              \
        for (size_t b = 0; b < blocks; b++) {                                                      \
            const int sub = (int)(b % SUBS);                                                       \
            const unsigned char *group = strip + HEAD + b / SUBS * GROUP;                          \
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
