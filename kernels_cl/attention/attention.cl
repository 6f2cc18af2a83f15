/* kernels_cl/attention/attention.cl - what the kernels of ROPE_KV and ATTENTION share
 * (docs/arithmetic.md, section 5): caches, rotation, pages.
 *
 * HALF: caches hold f16; Q8: q8_0 (core/plan/op.h); PACKED 4, 5: q4_0, q5_0; MIXED: keys what
 * K_CELLS says, values V_CELLS; else f32. A partial is e values o, then the page's maximum m and
 * its sum l.
 */
#ifdef ATTENTION

#if defined(PACKED) || defined(MIXED)
#define CELL uchar
#elif defined(Q8)
#define CELL char
#elif defined(HALF)
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

/* A page of one KV head: GW_PAGE positions of e values, in Q8 their scales behind them. The value
 * i and the scale of values 32 b .. 32 b + 31 of the position in column `at`. */
#ifdef PACKED
#define PAGE_BYTES(e) (gw_cells_scales_at(e, PACKED) + GW_PAGE / 16 * (e))
#elif defined(Q8)
#define PAGE_BYTES(e) (GW_PAGE * (e) / 32 * 34)
#else
#define PAGE_BYTES(e) (GW_PAGE * (e) * (int)sizeof(CELL))
#endif
#ifdef MIXED
#define CELLS_F32 0 /* K_CELLS, V_CELLS */
#define CELLS_F16 1
#define CELLS_Q8_0 2
#define BYTES_OF_CELLS(cells, e)                                                                   \
    (GW_PAGE * (e) / 32 * ((cells) == CELLS_Q8_0 ? 34 : (cells) == CELLS_F16 ? 64 : 128))
#define BYTES_OF_k(e) BYTES_OF_CELLS(K_CELLS, e)
#define BYTES_OF_v(e) BYTES_OF_CELLS(V_CELLS, e)
#define BYTES_OF(name, e) BYTES_OF_##name(e)
#else
#define BYTES_OF(name, e) PAGE_BYTES(e)
#endif
#define CACHE_AT(name, page, e) (name##_off + ((size_t)(page) * kv_heads + g) * BYTES_OF(name, e))
#ifndef SPLIT
#define SPLIT_ARGS
#define CACHE(name, page, e) (name##_buf + CACHE_AT(name, page, e))
#else /* K and V of a layer in up to 8 allocations of `each` bytes, whole pages */
#define SPLIT_ARGS                                                                                 \
    , OUT(p1), OUT(p2), OUT(p3), OUT(p4), OUT(p5), OUT(p6), OUT(p7), const ulong each
#define CACHE(name, page, e)                                                                       \
    in_piece(CACHE_AT(name, page, e), each, name##_buf, p1_buf, p2_buf, p3_buf, p4_buf, p5_buf,    \
             p6_buf, p7_buf)
static inline __global uchar *in_piece(ulong at, ulong each, __global uchar *p0,
                                       __global uchar *p1, __global uchar *p2, __global uchar *p3,
                                       __global uchar *p4, __global uchar *p5, __global uchar *p6,
                                       __global uchar *p7) {
    const int i = (int)(at / each);
    return (i < 4 ? i < 2 ? i < 1 ? p0 : p1
                    : i < 3 ? p2
                            : p3
            : i < 6 ? i < 5 ? p4 : p5
            : i < 7 ? p6
                    : p7) +
           (at - i * each);
}
#endif
#define CELL_AT(is_v, i, at, e) ((is_v) ? (at) * (e) + (i) : (i) * GW_PAGE + (at))
#define SCALE_AT(is_v, b, at, e) ((is_v) ? (at) * ((e) / 32) + (b) : (b) * GW_PAGE + (at))
#ifdef MIXED
/* The value at number `at` of a page whose codes, if it has any, are `codes` bytes. */
static inline float mixed_value(__global const uchar *page, int cells, int at, int scale_at,
                                int codes) {
    if (cells == CELLS_Q8_0) {
        return widen_half(((__global const ushort *)(page + codes))[scale_at]) *
               (float)((__global const char *)page)[at];
    }
    return cells == CELLS_F16 ? widen_half(((__global const ushort *)page)[at])
                              : ((__global const float *)page)[at];
}
#define CACHED_VALUE(cells, is_v, i, at, e)                                                        \
    mixed_value(cells, (is_v) ? V_CELLS : K_CELLS, CELL_AT(is_v, i, at, e),                        \
                SCALE_AT(is_v, (i) / 32, at, e), GW_PAGE * (e))
#elif defined(Q8)
#define CACHED_VALUE(cells, is_v, i, at, e)                                                        \
    (widen_half(((__global const ushort *)((cells) + GW_PAGE * (e)))[SCALE_AT(is_v, (i) / 32, at,  \
                                                                               e)]) *              \
     (float)(cells)[CELL_AT(is_v, i, at, e)])
#else
#define CACHED_VALUE(cells, is_v, i, at, e) WIDEN((cells)[CELL_AT(is_v, i, at, e)])
#endif

/* The encoder of Q8_0 (core/tensor/formats.c). top: bits of the largest magnitude of the block. */
static inline ushort q8_scale(uint top) {
    const ushort d = top < 0x7f800000u ? gw_f32_to_f16(as_float(top) / 127.0f) : (ushort)0x7e00;
    return d == 0x7c00 ? (ushort)0x7bff : d;
}
static inline char q8_code(float x, ushort scale) {
    const float d = gw_f16_to_f32(scale), code = d > 0.0f ? x / d : 0.0f;
    return (char)rint(code < -127.0f ? -127.0f : code > 127.0f ? 127.0f : code);
}

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

/* OWN: of each row its own page alone, the rest is in digits (digits.cl). */
#ifdef OWN
#define FIRST_SEEN (pos - pos % GW_PAGE)
#else
#define FIRST_SEEN (window > 0 && pos >= window ? pos - window + 1 : 0)
#endif
#define SPAN                                                                                       \
    const int pos = STEP_POS(row);                                                                 \
    const int lo = FIRST_SEEN;                                                                     \
    const int first = lo / GW_PAGE, last = pos / GW_PAGE

#ifdef E
#define HEAD_WIDTH E
#else
#define HEAD_WIDTH e
#endif
#ifdef OWN
#define PARTS_OF_HEAD 1
#define PART_AT(page) 0
#else
#define PARTS_OF_HEAD page_stride
#define PART_AT(page) (page)
#endif
#define PARTIAL(row_, head, page)                                                                  \
    (WRITES(float, part) +                                                                         \
     (((size_t)(row_) * heads + (head)) * PARTS_OF_HEAD + PART_AT(page)) * (HEAD_WIDTH + 2))

#if !defined(GW_ITEM) && !defined(WALK)
/* A page as it lies in the cache, to local memory; bytes: a multiple of 16. All items. */
static inline void stage_page(__local uchar *memory, __global const uchar *from, const int bytes,
                              int id) {
    UNROLL_4
    for (int i = id; i < bytes / 16; i += GROUP) {
        ((__local uint4 *)memory)[i] = ((__global const uint4 *)from)[i];
    }
}
#endif

#endif
