/* cpu/linear_span_body.h - terms of GW_ACT_SPAN blocks that share a scale of the weights and, since
 * prepare(), one of the activations: INT4_G128, INT4_G256. After a vocabulary (simd_*.h) and
 * linear_unpack.h.
 *
 * Products of all blocks are one integer sum, kept in registers where those suffice: a quarter of
 * the float steps is left.
 */

V_FN v_float add_span_sum(v_float ws, v_float wm, const gw_xblock *x, v_int s, v_float acc) {
    acc = v_fma(v_mul(ws, v_dup(x->dx)), v_to_float(s), acc);
    return v_fma(wm, v_dup(x->u.dxs), acc);
}

/* Sums of half a span, of all rows of a strip. */
typedef struct v_held {
    v_int s[GW_STRIP_ROWS / V_ROWS];
} v_held;

/* *to = *held (NULL: 0) + the products of blocks [sub, sub + n) of a group. */
#if V_GROUP > 1
/* High nibbles are not shifted down, but their sum is; four sums, since products of one wait for
 * another. Halves of a span, which come from several places, load a word for each of its uses: out
 * of memory a Zen 5 reads them 8% faster so, and a Sapphire Rapids as fast. */
V_FN void sum_blocks(const unsigned char *group, int sub, const int n, const gw_xblock *x,
                     const v_held *held, v_held *to) {
    const int h = 0;
    const unsigned char *codes = group + 64 + (size_t)sub * 256;
    v_int low[2] = {held != NULL ? held->s[0] : v_words(0), v_words(0)};
    v_int high[2] = {v_words(0), v_words(0)};
    for (int i = 0; i < 4 * n; i++) {
        const gw_i8 *q = x[i / 4].q + i % 4 * 4;
        const unsigned char *at = VECTOR(codes, i);
        v_word w = n == GW_ACT_SPAN ? v_load_once(at) : v_load(at);
        low[i % 2] = v_dot4(low[i % 2], v_and(w, v_bytes(15)), q);
        high[i % 2] = v_dot4(high[i % 2], v_and(w, v_bytes(0xf0)), q + 16);
    }
    to->s[0] = v_sum(v_sum(low[0], low[1]), v_down_4(v_sum(high[0], high[1])));
}
#else
V_FN void sum_blocks(const unsigned char *group, int sub, const int n, const gw_xblock *x,
                     const v_held *held, v_held *to) {
    for (int i = 0; i < GW_STRIP_ROWS / V_ROWS; i++) {
        to->s[i] = held != NULL ? held->s[i] : v_words(0);
    }
    for (int j = 0; j < n; j++, x++) {
        v_acts spread;
        v_spread(&spread, x);
        for (int h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {
            v_int *s = &to->s[h / V_ROWS];
            v_block u;
            unpack_int4_g256(&u, group, group, sub + j, h);
            *s = v_dot_unsigned(*s, u.c, spread.q, 8, 8);
        }
    }
}
#endif

/* acc [16 rows] + the term that begins with x and has these sums. */
V_FN void add_held(const unsigned char *group, const gw_xblock *x, const v_held *held,
                   v_float *acc) {
    for (int h = 0; h < GW_STRIP_ROWS; h += V_ROWS, acc++) {
        v_float ws = v_load_f16(HALVES(group, 0)), wm = v_load_f16(HALVES(group, 1));
        *acc = add_span_sum(ws, wm, x, held->s[h / V_ROWS], *acc);
    }
}

/* acc [16 rows] + the term of one activation row, of the blocks from `sub` on; or that in halves,
 * the second with the sums of the first. */
V_FN void add_one_span(const unsigned char *group, int sub, const gw_xblock *x, v_float *acc) {
    v_held all;
    sum_blocks(group, sub, GW_ACT_SPAN, x, NULL, &all);
    add_held(group, x, &all, acc);
}
V_FN void begin_span(const unsigned char *group, int sub, const gw_xblock *x, v_held *held) {
    sum_blocks(group, sub, GW_ACT_SPAN / 2, x, NULL, held);
}
V_FN void end_span(const unsigned char *group, int sub, const gw_xblock *x, const v_held *held,
                   v_float *acc) {
    v_held all;
    sum_blocks(group, sub, GW_ACT_SPAN / 2, x, held, &all);
    add_held(group, x - GW_ACT_SPAN / 2, &all, acc);
}

#if V_GROUP > 1

/* a [n][16] += the terms of n <= GW_TILE of `count` activation rows. Sums of high nibbles are apart
 * where there are registers for them; fewer rows also need more sums, not to wait for products. */
V_FN void add_some_spans(const unsigned char *group, int sub, const gw_xblock *x, size_t count,
                         float *a, const int n) {
    const int h = 0, apart = 2 * n <= GW_TILE;
    const unsigned char *codes = group + 64 + (size_t)sub * 256;
    v_int s[GW_TILE], t[GW_TILE];
    V_UNROLL_ALL
    for (int g = 0; g < n; g++) {
        s[g] = t[g] = v_words(0);
    }
    const gw_xblock *block = x;
    V_ROLLED
    for (int j = 0; j < GW_ACT_SPAN; j++, codes += 256, block += count) {
        V_UNROLL_ALL
        for (int i = 0; i < 4; i++) {
            v_word w = v_load_once(VECTOR(codes, i)), low = v_and(w, v_bytes(15));
            v_word high = apart ? v_and(w, v_bytes(0xf0)) : v_and(v_right(w, 4), v_bytes(15));
            V_UNROLL_ALL
            for (int g = 0; g < n; g++) {
                s[g] = v_dot4(s[g], low, block[g].q + 4 * i);
            }
            V_UNROLL_ALL
            for (int g = 0; g < n; g++) {
                v_int *sum = apart ? &t[g] : &s[g];
                *sum = v_dot4(*sum, high, block[g].q + 4 * i + 16);
            }
        }
    }
    const v_float ws = v_load_f16(HALVES(group, 0)), wm = v_load_f16(HALVES(group, 1));
    V_UNROLL_ALL
    for (int g = 0; g < n; g++, a += GW_STRIP_ROWS) {
        v_int sum = apart ? v_sum(s[g], v_down_4(t[g])) : s[g];
        v_fstore(a, add_span_sum(ws, wm, x + g, sum, v_fload(a)));
    }
}

/* a [count][16] += the terms of `count` <= GW_TILE activation rows, x [GW_ACT_SPAN][count]. */
V_FN void add_spans(const unsigned char *group, int sub, const gw_xblock *x, size_t count,
                    float *a) {
    if (count == GW_TILE) {
        add_some_spans(group, sub, x, count, a, GW_TILE);
        return;
    }
    size_t done = 0;
#define SOME(n)                                                                                    \
    add_some_spans(group, sub, x + done, count, a + done * GW_STRIP_ROWS, n);                      \
    done += (n);
    if (count & 8) {
        SOME(8)
    }
    if (count & 4) {
        SOME(4)
    }
    switch (count & 3) {
    case 3:
        SOME(3)
        break;
    case 2:
        SOME(2)
        break;
    case 1:
        SOME(1)
        break;
    default:
        break;
    }
#undef SOME
}

#else

/* a [count][16] += the terms of `count` activation rows, x [GW_ACT_SPAN][count]: a block's codes
 * stay in registers, sums in the first-level cache. */
V_FN void add_spans(const unsigned char *group, int sub, const gw_xblock *x, size_t count,
                    float *a) {
    for (int h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {
        v_int s[GW_TILE];
        v_block u;
        for (int j = 0; j < GW_ACT_SPAN; j++) {
            const gw_xblock *block = x + (size_t)j * count;
            size_t i = 0;
            unpack_int4_g256(&u, group, group, sub + j, h);
#if V_TOGETHER > 1
            for (; i + V_TOGETHER <= count; i += V_TOGETHER) {
                for (size_t g = i; j == 0 && g < i + V_TOGETHER; g++) {
                    s[g] = v_words(0);
                }
                v_dot_rows(s + i, u.c, 0, 8, block + i, V_TOGETHER, 8);
            }
#endif
            for (; i < count; i++) {
                v_acts spread;
                v_spread(&spread, block + i);
                s[i] = v_dot_unsigned(j == 0 ? v_words(0) : s[i], u.c, spread.q, 8, 8);
            }
        }
        for (size_t i = 0; i < count; i++) {
            float *to = a + i * GW_STRIP_ROWS + h;
            v_fstore(to, add_span_sum(u.ws, u.wm, x + i, s[i], v_fload(to)));
        }
    }
}
#endif
