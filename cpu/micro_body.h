/* cpu/micro_body.h - the register tile that attention and float prefill share. Template: cpu/vec.h.
 *
 * y[t, c] = (first ? +0 : y[t, c]) then, for i = 0 .. k-1 in order, fma(x[t, i], w[i, c], y[t, c]):
 * one chain per output, so splitting k over several calls changes no bit. x is read row by row
 * (xs apart) or, where xs is PACKED, as [k, MICRO_ROWS]: rows far apart would meet in one set of
 * the first-level cache. Meanwhile as much is asked for at `next`: the tile after this one.
 *
 * MICRO_ADD, MICRO_NAME and MICRO_VT, where they are defined, name another sum (v_madd: numbers are
 * bits of pairs of integers then), its functions and their instructions; undefined at the end.
 */
#if !defined(MICRO_ADD)
#define MICRO_ADD(a, b, c) v_fma(a, b, c)
#define MICRO_NAME(f) NAME(f)
#define MICRO_VT VT
#endif
#if !defined(PACKED)
#define PACKED 0
#endif
GW_INLINE MICRO_VT void MICRO_NAME(tile)(const int rows, const int vecs, const int packed, size_t k,
                                         const float *x, size_t xs, const float *next,
                                         const float *w, size_t ws, float *y, size_t ys,
                                         int first) {
    vf sum[MICRO_ROWS][MICRO_VECS];
    GW_UNROLL
    for (int t = 0; t < rows; t++) {
        GW_UNROLL
        for (int v = 0; v < vecs; v++) {
            sum[t][v] = first ? v_zero() : v_load(y + (size_t)t * ys + (size_t)(v * VW));
        }
    }
    for (size_t i = 0; i < k; i++) {
        vf column[MICRO_VECS];
        GW_UNROLL
        for (int v = 0; v < vecs; v++) {
            column[v] = v_load(w + (size_t)(v * VW));
        }
        if (packed) {
            __builtin_prefetch(next + i * MICRO_ROWS, 0, 2);
        }
        GW_UNROLL
        for (int t = 0; t < rows; t++) {
            vf value = v_set(packed ? x[i * MICRO_ROWS + (size_t)t] : x[(size_t)t * xs + i]);
            GW_UNROLL
            for (int v = 0; v < vecs; v++) {
                sum[t][v] = MICRO_ADD(value, column[v], sum[t][v]);
            }
        }
        w += ws;
    }
    GW_UNROLL
    for (int t = 0; t < rows; t++) {
        GW_UNROLL
        for (int v = 0; v < vecs; v++) {
            v_store(y + (size_t)t * ys + (size_t)(v * VW), sum[t][v]);
        }
    }
}

#define TILE_CASE(T, V)                                                                            \
    case T:                                                                                        \
        MICRO_NAME(tile)(T, V, TILE_PACKED, k, x, xs, next, w, ws, y, ys, first);                  \
        break;
#if MICRO_ROWS == 12
#define TILE_WIDE(V)                                                                               \
    TILE_CASE(6, V)                                                                                \
    TILE_CASE(7, V) TILE_CASE(8, V) TILE_CASE(9, V) TILE_CASE(10, V) TILE_CASE(11, V)
#else
#define TILE_WIDE(V)
#endif
#define TILE_CASES(V)                                                                              \
    TILE_CASE(1, V)                                                                                \
    TILE_CASE(2, V)                                                                                \
    TILE_CASE(3, V)                                                                                \
    TILE_CASE(4, V)                                                                                \
    TILE_CASE(5, V) TILE_WIDE(V) default                                                           \
        : MICRO_NAME(tile)(MICRO_ROWS, V, TILE_PACKED, k, x, xs, next, w, ws, y, ys, first);       \
    break;

/* rows 1 .. MICRO_ROWS, MICRO_VECS vectors wide. */
#define TILE_PACKED 0
MICRO_VT static void MICRO_NAME(tile_full)(size_t rows, size_t k, const float *x, size_t xs,
                                           const float *w, size_t ws, float *y, size_t ys,
                                           int first) {
    const float *next = NULL;
    switch (rows) { TILE_CASES(MICRO_VECS) }
}
#undef TILE_PACKED

#if defined(MICRO_PACK) /* asked for by the including file */
#define TILE_PACKED 1
MICRO_VT static void MICRO_NAME(tile_packed)(size_t rows, size_t k, const float *x,
                                             const float *next, const float *w, size_t ws, float *y,
                                             size_t ys, int first) {
    const size_t xs = PACKED;
    switch (rows) { TILE_CASES(MICRO_VECS) }
}
#undef TILE_PACKED
#endif

#define TILE_PACKED 0
#if defined(MICRO_MULTIPLY) /* asked for by the including file */

/* The same, 16 columns wide: only where a full tile is wider. */
#if MICRO_VECS * VW > 16
MICRO_VT static void MICRO_NAME(tile_16)(size_t rows, size_t k, const float *x, size_t xs,
                                         const float *w, size_t ws, float *y, size_t ys,
                                         int first) {
    const float *next = NULL;
    switch (rows) { TILE_CASES(1) }
}
#else
#define TILE_16_IS_FULL
#endif

/* Any rows, columns in multiples of 16. Rows are spread evenly over tiles: eight are 4 + 4 and not
 * 6 + 2, which would leave too few chains to hide the latency of a multiply-add. */
MICRO_VT static void MICRO_NAME(multiply)(size_t rows, size_t k, const float *x, size_t xs,
                                          const float *w, size_t ws, size_t columns, float *y,
                                          size_t ys) {
    size_t tiles = (rows + MICRO_ROWS - 1) / MICRO_ROWS, high = (rows + tiles - 1) / tiles;
    for (size_t c = 0; c < columns;) {
        size_t wide = columns - c >= MICRO_VECS * VW ? MICRO_VECS * VW : 16;
        for (size_t t = 0; t < rows; t += high) {
            size_t n = rows - t < high ? rows - t : high;
#if !defined(TILE_16_IS_FULL)
            if (wide == 16) {
                MICRO_NAME(tile_16)(n, k, x + t * xs, xs, w + c, ws, y + t * ys + c, ys, 1);
                continue;
            }
#endif
            MICRO_NAME(tile_full)(n, k, x + t * xs, xs, w + c, ws, y + t * ys + c, ys, 1);
        }
        c += wide;
    }
}
#undef TILE_16_IS_FULL

#endif

#undef TILE_PACKED
#undef TILE_CASE
#undef TILE_WIDE
#undef TILE_CASES
#undef MICRO_ADD
#undef MICRO_NAME
#undef MICRO_VT
