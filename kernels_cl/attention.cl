/* kernels_cl/attention.cl - what the kernels of ROPE_KV and ATTENTION share (docs/arithmetic.md,
 * section 5): caches, rotation, pages.
 *
 * HALF: caches hold f16. A partial is e values o, then the page's maximum m and its sum l.
 */
#ifdef ATTENTION

#ifdef HALF
#define CELL ushort
#define WIDEN(x) widen_half(x)
#define NARROW(x) gw_f32_to_f16(x)
#define LOAD16(p) vload_half16(0, (__global const half *)(p))
#else
#define CELL float
#define WIDEN(x) (x)
#define NARROW(x) (x)
#define LOAD16(p) vload16(0, p)
#endif

/* A head of one row on its way through norm and rotation; r: how many values turn. */
typedef struct turning {
    __global const float *x, *weight, *angle;
    float scale;
    int normed, r, interleaved;
} turning;

static inline float normed_value(const turning *t, int i) {
    return t->normed ? (t->x[i] * t->scale) * t->weight[i] : t->x[i];
}

static inline float turned_value(const turning *t, int i) {
    const int half_ = t->r / 2;
    if (i >= t->r) {
        return normed_value(t, i);
    }
    const int pair = t->interleaved ? i / 2 : i < half_ ? i : i - half_;
    const int at = t->interleaved ? 2 * pair : pair, to = t->interleaved ? at + 1 : at + half_;
    float a = normed_value(t, at), b = normed_value(t, to);
    float c = t->angle[pair], s = t->angle[half_ + pair];
    return (t->interleaved ? i & 1 : i >= half_) ? gw_rope_second(a, b, c, s)
                                                 : gw_rope_first(a, b, c, s);
}

#define ROPE_ARGS                                                                                  \
    IN(q_norm), IN(k_norm), IN(table), OUT(turned), const int r, const int interleaved,            \
        const int normed, const float eps

/* Head h of q, k and v side by side in a row of `in`. */
#define TURNING(in_row, h, heads, kv_heads, e, pos)                                                \
    {(in_row) + (h) * (e),                                                                         \
     (h) < (heads) ? READS(float, q_norm) : READS(float, k_norm),                                  \
     READS(float, table) + (size_t)(pos) * r,                                                      \
     1.0f,                                                                                         \
     (h) < (heads) + (kv_heads) && (normed & ((h) < (heads) ? 1 : 2)),                             \
     (h) < (heads) + (kv_heads) ? r : 0,                                                           \
     interleaved}

#define SPAN                                                                                       \
    const int pos = STEP_POS(row);                                                                 \
    const int lo = window > 0 && pos >= window ? pos - window + 1 : 0;                             \
    const int first = lo / GW_PAGE, last = pos / GW_PAGE

#ifdef E
#define HEAD_WIDTH E
#else
#define HEAD_WIDTH e
#endif
#define PARTIAL(row_, head, page)                                                                  \
    (WRITES(float, part) +                                                                         \
     (((size_t)(row_) * heads + (head)) * page_stride + (page)) * (HEAD_WIDTH + 2))

#endif
