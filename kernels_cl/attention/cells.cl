/* kernels_cl/attention/cells.cl - ATTENTION over caches in 4 and 5 bits (PACKED,
 * core/tensor/cells.h): queries and results are rotated; for prompts pages become pages of q8_0,
 * which have the same numbers; generated tokens are summed in codes (CODES; docs/arithmetic.md,
 * section 5), a page of one head by a team or an item, and attend_form_join joins the pages.
 */
#ifdef CODES

#ifdef GW_ITEM
#define CODES_ITEMS 1
#define EACH_LANE for (int lane = 0; lane < TEAM; lane++)
#define MEET
#else
#define CODES_ITEMS TEAM
#define EACH_LANE
#define MEET barrier(CLK_LOCAL_MEM_FENCE)
#define LOCALS(X)                                                                                  \
    X(float, weights, GW_PAGE)                                                                     \
    X(float, scratch, TEAM) X(char, query, GW_CODES_MOST) X(float, scales, GW_CODES_MOST / 32)
LOCALS_TYPE
#endif

static inline int code_of(__global const uchar *cells, int is_k, int i, int j, int e) {
    const int low = cells[gw_cells_code_at(e, is_k, j, i)] >> i % 2 * 4 & 15;
    if (PACKED == 4) {
        return low - 8;
    }
    return (low | (cells[gw_cells_high_at(e) + gw_cells_bit_at(e, is_k, j, i)] >> i % 8 & 1) << 4) -
           16;
}
static inline float scale_of(__global const uchar *cells, int is_k, int b, int j, int e) {
    return widen_half(((__global const ushort *)(cells + gw_cells_scales_at(
                          e, PACKED)))[gw_cells_scale_at(e, is_k, j, 32 * b)]);
}

/* Groups: pages, heads, rows from row0 on. q is rotated. */
KERNEL(CODES_ITEMS)
attend_codes(STEP, IN(q), OUT(k), OUT(v), IN(pages), OUT(part), const int row0, const int heads,
             const int kv_heads, const int e, const int page_stride, const float scale,
             const int window SPLIT_ARGS) {
    const int h = GROUP_ID(1), row = row0 + GROUP_ID(2), g = h / (heads / kv_heads);
#ifdef GW_ITEM
    float weights[GW_PAGE], scales[GW_CODES_MOST / 32];
    char query[GW_CODES_MOST];
#else
    LOCALS_HERE
    const int id = LOCAL_ID, lane = id;
#endif
    if (row >= LIVE) {
        return;
    }
    const int pos = STEP_POS(row), lo = window > 0 && pos >= window ? pos - window + 1 : 0;
    const int first = lo / GW_PAGE, last = pos / GW_PAGE;
    EACH_LANE {
        if (lane < e / 32) {
            __global const float *from =
                READS(float, q) + ((size_t)row * heads + h) * e + 32 * lane;
            float x[32];
            gw_act8 block;
            for (int i = 0; i < 32; i++) {
                x[i] = from[i];
            }
            gw_act8_encode(&block, x);
            for (int i = 0; i < 32; i++) {
                query[32 * lane + i] = block.q[i];
            }
            scales[lane] = block.scale;
        }
    }
    for (int p = first + GROUP_ID(0); p <= last; p += GROUP_COUNT(0)) {
        const int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + p];
        const int base = p * GW_PAGE, from = max(lo - base, 0), end = min(pos - base + 1, GW_PAGE);
        __global const uchar *keys = CACHE(k, page, e), *values = CACHE(v, page, e);
        __global float *to = WRITES(float, part) +
                             (((size_t)(row - row0) * heads + h) * page_stride + p) * (e + 2);
        MEET; /* the query is there, weights of the page before are read */
        EACH_LANE {
            for (int j = lane; j < GW_PAGE; j += TEAM) {
                float s = 0.0f;
                for (int b = 0; b < e / 32; b++) {
                    int t = 0;
                    for (int i = 32 * b; i < 32 * b + 32; i++) {
                        t += query[i] * code_of(keys, 1, i, j, e);
                    }
                    s = fma(scales[b] * scale_of(keys, 1, b, j, e), (float)t, s);
                }
                weights[j] = s * scale;
            }
        }
        MEET;
        float top = -INFINITY;
        for (int j = from; j < end; j++) {
            top = weights[j] > top ? weights[j] : top;
        }
        MEET;
        EACH_LANE {
            for (int j = lane; j < GW_PAGE; j += TEAM) {
                weights[j] = j >= from && j < end ? gw_exp(weights[j] - top) : 0.0f;
            }
        }
        MEET;
#ifdef GW_ITEM
        float half_[TEAM];
        EACH_LANE {
            half_[lane] = weights[lane] + weights[lane + TEAM];
        }
        const float sum = gw_fold_lanes(half_);
#else
        const float sum = team_fold(weights[lane] + weights[lane + TEAM], scratch, id);
#endif
        EACH_LANE {
            for (int i = lane; i < e; i += TEAM) {
                uint size = 0;
                for (int j = from; j < end; j++) {
                    const float w = weights[j] * scale_of(values, 0, i / 32, j, e);
                    size = max(size, as_uint(w) & 0x7fffffffu);
                }
                const float inverse = gw_codes_inverse(size);
                int o = 0;
                for (int j = from; j < end; j++) {
                    const float w = weights[j] * scale_of(values, 0, i / 32, j, e);
                    o += gw_codes_of(w, inverse) * code_of(values, 0, i, j, e);
                }
                to[i] = (float)o * gw_codes_scale(size);
            }
            if (lane == 0) {
                to[e] = top;
                to[e + 1] = sum;
            }
        }
    }
}

#elif !defined(PACKED)

/* Rows of floats, each `span` of them by a Hadamard matrix. Items: spans. */
KERNEL_OF_ANY_SIZE rotate_cells(STEP, IN(in), OUT(out), const int width, const int span) {
    const int row = GROUP_ID(1);
    if (row >= LIVE) {
        return;
    }
    for (int first = ITEM_ID * span; first < width; first += ITEM_COUNT * span) {
        __global const float *from = READS(float, in) + (size_t)row * width + first;
        __global float *to = WRITES(float, out) + (size_t)row * width + first;
        float x[GW_CELLS_MOST];
        for (int i = 0; i < span; i++) {
            x[i] = from[i];
        }
        gw_cells_mix(x, span);
        for (int i = 0; i < span; i++) {
            to[i] = x[i];
        }
    }
}

#else

/* Eight codes of a page: four positions of two keys, or eight values of a position. Items: those of
 * all pages of a row's text, of one KV head; pages that an earlier row of the same text sees are
 * that one's. */
KERNEL_OF_ANY_SIZE unpack_cells(STEP, IN(cache), OUT(to), IN(pages), const int kv_heads,
                                const int e, const int page_stride, const int window,
                                const int is_v SPLIT_ARGS) {
    const int row = GROUP_ID(2), g = GROUP_ID(1);
    if (row >= LIVE || (row > 0 && STEP_SLOT(row - 1) == STEP_SLOT(row))) {
        return;
    }
    int end = row + 1;
    while (end < LIVE && STEP_SLOT(end) == STEP_SLOT(row)) {
        end++;
    }
    const int pos = STEP_POS(row), words = GW_PAGE / 8 * e, quarter = GW_PAGE / 4;
    const int first = window > 0 && pos >= window ? (pos - window + 1) / GW_PAGE : 0;
    const int n = (STEP_POS(end - 1) / GW_PAGE - first + 1) * words;
    __global const int *table = READS(int, pages) + (size_t)STEP_SLOT(row) * page_stride + first;
    for (int i = ITEM_ID; i < n; i += ITEM_COUNT) {
        const int page = table[i / words], w = i % words;
        __global const uchar *from = CACHE(cache, page, e), *high = from + gw_cells_high_at(e);
        __global uchar *page_to =
            to_buf + to_off + ((size_t)page * kv_heads + g) * (GW_PAGE / 16 * 17 * e);
        const uint codes = ((__global const uint *)from)[w];
        const uint even = codes & 0x0f0f0f0fu, odd = codes >> 4 & 0x0f0f0f0fu;
        __global uint *made = (__global uint *)page_to;
        if (is_v) {
            const uint fifth = PACKED == 5 ? high[w] : 0u;
            const uchar4 a = as_uchar4(even), b = as_uchar4(odd);
            made[2 * w] = gw_cells_bytes(as_uint((uchar4)(a.s0, b.s0, a.s1, b.s1)),
                                         gw_cells_spread(fifth & 15u), PACKED);
            made[2 * w + 1] = gw_cells_bytes(as_uint((uchar4)(a.s2, b.s2, a.s3, b.s3)),
                                             gw_cells_spread(fifth >> 4), PACKED);
        } else {
            const int r = w / quarter, j = w % quarter;
            const uint fifth =
                PACKED == 5 ? ((__global const uint *)high)[r / 4 * quarter + j] >> r % 4 * 2 : 0u;
            made[2 * r * quarter + j] = gw_cells_bytes(even, fifth & 0x01010101u, PACKED);
            made[(2 * r + 1) * quarter + j] =
                gw_cells_bytes(odd, fifth >> 1 & 0x01010101u, PACKED);
        }
        if (w < GW_PAGE / 64 * e) {
            made[GW_PAGE / 4 * e + w] =
                ((__global const uint *)(from + gw_cells_scales_at(e, PACKED)))[w];
        }
    }
}

#endif
