/* kernels_cl/rows/rope_form.cl - ROPE_KV in every form (docs/arithmetic.md, section 5). One item or
 * team per row and head of q, k and v.
 */
#ifdef GW_ITEM
#define ROPE_ITEMS 1
#else
#define ROPE_ITEMS TEAM
#define LOCALS(X) X(float, scratch, TEAM)
LOCALS_TYPE
#endif

enum { LAYER = 1, INTERLEAVED = 2, AFTER = 4, PLAIN = 8, NORM_V = 16 }; /* of `how` */

/* A head on its way; all: the heads beside it begin there. mean, scale: of its norm. */
typedef struct form_head {
    __global const float *all, *weight, *angle;
    int e, r, head, heads, how;
    int normed, weighted, row_wide, wide; /* wide: the weight has all heads */
    float mean, scale;
} form_head;

static inline float head_normed(const form_head *t, float x, int h, int i) {
    const float y = (t->how & LAYER ? x - t->mean : x) * t->scale;
    return t->weighted ? y * t->weight[t->wide ? h * t->e + i : i] : y;
}

/* Value i of head h where the norm comes, if it comes before. */
static inline float head_before(const form_head *t, int h, int i) {
    const float x = t->all[h * t->e + i];
    return t->normed && !(t->how & AFTER) ? head_normed(t, x, h, i) : x;
}

static inline float head_rotated(const form_head *t, int h, int i) {
    const int half_ = t->r / 2, mixed = t->how & INTERLEAVED;
    if (i >= t->r) {
        return head_before(t, h, i);
    }
    const int second = mixed ? i % 2 : i >= half_, pair = mixed ? i / 2 : second ? i - half_ : i;
    const int at = mixed ? 2 * pair : pair, to = mixed ? at + 1 : at + half_;
    const float a = head_before(t, h, at), b = head_before(t, h, to);
    const float c = t->angle[pair], s = t->angle[half_ + pair];
    return second ? gw_rope_second(a, b, c, s) : gw_rope_first(a, b, c, s);
}

static inline float head_value(const form_head *t, int i) {
    const float y = head_rotated(t, t->head, i);
    return t->normed && (t->how & AFTER) ? head_normed(t, y, t->head, i) : y;
}

/* What the norm goes over: values of one head, or of all of them. */
static inline float norm_input(const form_head *t, int i) {
    const int h = t->row_wide ? i / t->e : t->head, at = t->row_wide ? i - h * t->e : i;
    return t->how & AFTER ? head_rotated(t, h, at) : t->all[h * t->e + at];
}
#define NORM_WIDTH_OF(t) ((t)->row_wide ? (t)->heads * (t)->e : (t)->e)

/* Lane `lane` of the sum of all values, or of the squares of what they are from the mean. */
static inline float norm_lane(const form_head *t, int lane, int squares) {
    float sum = 0.0f;
    for (int i = lane; i < NORM_WIDTH_OF(t); i += TEAM) {
        const float c = t->how & LAYER && squares ? norm_input(t, i) - t->mean : norm_input(t, i);
        sum = squares ? fma(c, c, sum) : sum + c;
    }
    return sum;
}

#ifdef GW_ITEM
static inline float norm_sum(const form_head *t, int squares) {
    float lane[TEAM];
    for (int i = 0; i < TEAM; i++) {
        lane[i] = norm_lane(t, i, squares);
    }
    return gw_fold_lanes(lane);
}
#define NORM_SUM(t, squares) norm_sum(t, squares)
#else
#define NORM_SUM(t, squares) team_fold(norm_lane(t, id, squares), scratch, id)
#endif

#ifdef PACKED
/* 32 rotated values, from value `first` on, of position j. */
static inline void put_packed(__global CELL *cells, int is_v, int j, int e, int first,
                              const float *x) {
    float peak = 0.0f;
    int finite = 1;
    for (int i = 0; i < 32; i++) {
        finite &= (as_uint(x[i]) & 0x7fffffffu) < 0x7f800000u;
        peak = fabs(x[i]) > fabs(peak) ? x[i] : peak;
    }
    const ushort scale = gw_cells_scale(peak, finite, PACKED);
    const float d = gw_f16_to_f32(scale);
    ((__global ushort *)(cells + gw_cells_scales_at(e, PACKED)))[gw_cells_scale_at(e, !is_v, j,
                                                                                   first)] = scale;
    for (int i = 0; i < 32; i += 8) {
        int fifth = 0;
        for (int k = i; k < i + 8; k += 2) {
            const int low = gw_cells_code(x[k], d, PACKED);
            const int next = gw_cells_code(x[k + 1], d, PACKED);
            cells[gw_cells_code_at(e, !is_v, j, first + k)] = (CELL)((low & 15) | (next & 15) << 4);
            fifth |= (low >> 4 | next >> 4 << 1) << (k - i);
        }
        if (PACKED == 5) {
            cells[gw_cells_high_at(e) + gw_cells_bit_at(e, !is_v, j, first + i)] = (CELL)fifth;
        }
    }
}
#endif

/* Values of a head into the page `cells`, column `at`, e of them. Q8: a block is an item's; PACKED:
 * what is rotated together. */
static inline void put_cells(const form_head *t, __global CELL *cells, int is_v, int at, int e,
                             int id) {
#ifdef PACKED
    const int span = gw_cells_width(e);
    for (int first = id * span; first < e; first += ROPE_ITEMS * span) {
        float x[GW_CELLS_MOST];
        for (int i = 0; i < span; i++) {
            x[i] = head_value(t, first + i);
        }
        gw_cells_mix(x, span);
        for (int b = 0; b < span; b += 32) {
            put_packed(cells, is_v, at, e, first + b, x + b);
        }
    }
#elif defined(Q8)
    for (int b = id; b < e / 32; b += ROPE_ITEMS) {
        float x[32];
        uint top = 0;
        for (int i = 0; i < 32; i++) {
            x[i] = head_value(t, 32 * b + i);
            top = max(top, as_uint(x[i]) & 0x7fffffffu);
        }
        const ushort scale = q8_scale(top);
        for (int i = 0; i < 32; i++) {
            cells[CELL_AT(is_v, 32 * b + i, at, e)] = q8_code(x[i], scale);
        }
        ((__global ushort *)(cells + GW_PAGE * e))[SCALE_AT(is_v, b, at, e)] = scale;
    }
#else
    for (int i = id; i < e; i += ROPE_ITEMS) {
        cells[CELL_AT(is_v, i, at, e)] = NARROW(head_value(t, i));
    }
#endif
}

/* Groups: heads of q, k and v from `first` on. flags: q_norm, k_norm, table, factor of q. span:
 * gw_norm_span. */
KERNEL(ROPE_ITEMS)
rope_form(STEP, IN(in), OUT(k), OUT(v), IN(pages), IN(q_norm), IN(k_norm), IN(table), IN(factor),
          OUT(turned), const int first, const int heads, const int kv_heads, const int e,
          const int ev, const int r, const int page_stride, const int span, const int how,
          const float eps, const int flags SPLIT_ARGS) {
    const int row = GROUP_ID(1), h = first + GROUP_ID(0), id = LOCAL_ID;
#ifndef GW_ITEM
    LOCALS_HERE
#endif
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    const int pos = STEP_POS(row), is_q = h < heads, is_v = h >= heads + kv_heads;
    const int g = is_q ? 0 : is_v ? h - heads - kv_heads : h - heads;
    form_head t;
    t.all = READS(float, in) + (size_t)row * ((heads + kv_heads) * e + kv_heads * ev) +
            (is_q ? 0 : is_v ? (heads + kv_heads) * e : heads * e);
    t.weight = is_q ? READS(float, q_norm) : READS(float, k_norm);
    t.angle = READS(float, table) + (size_t)(pos - STEP_LESS(row)) * r;
    t.e = is_v ? ev : e;
    t.r = is_v ? 0 : r;
    t.head = is_q ? h : g;
    t.heads = is_q ? heads : kv_heads;
    t.how = is_v ? 0 : how;
    t.weighted = !is_v && (flags & (is_q ? 1 : 2)) != 0;
    t.normed = is_v ? (how & NORM_V) != 0 : t.weighted || (how & PLAIN);
    t.row_wide = !is_v && span == 2;
    t.wide = span != 0;
    t.mean = 0.0f;
    const float all = NORM_SUM(&t, 0);
    t.mean = all / (float)NORM_WIDTH_OF(&t);
    t.scale = gw_rms_scale(NORM_SUM(&t, 1), NORM_WIDTH_OF(&t), eps);
    if (is_q) {
        __global float *y = WRITES(float, turned) + ((size_t)row * heads + h) * e;
        const float by = flags & 8 ? READS(float, factor)[pos] : 1.0f;
        for (int i = id; i < e; i += ROPE_ITEMS) {
            const float value = head_value(&t, i);
            y[i] = flags & 8 ? value * by : value;
        }
        return;
    }
    const int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + pos / GW_PAGE];
    __global CELL *cells = (__global CELL *)(is_v ? CACHE(v, page, ev) : CACHE(k, page, e));
    put_cells(&t, cells, is_v, pos % GW_PAGE, t.e, id);
}
