/* kernels_hip/rows/more.hip - every form of the ops that treat each row on its own, which rows.hip
 * has for the plain ones, and ACT, MIX and ROUTE (docs/arithmetic.md, section 5). */
#include "kernels_hip/act8.h"
#include "kernels_hip/rows/cells.h"
#include "kernels_hip/device.h"
#include "kernels_hip/narrow.h"
#include "kernels_hip/rows/more_params.h"
#include "kernels_hip/rows/rope.h"
#include "kernels_hip/rows/route.h"
#include "kernels_hip/rows/row_sum.h"
#include "core/tensor/act.h"

enum { TEAMS = GW_MORE_TEAMS };

/* ---- EMBED ----------------------------------------------------------------------------------- */

#define EMBED(format, type, widen)                                                                 \
    GW_KERNEL(gw_more_embed_##format, struct gw_more_embed_params, GW_MORE_THREADS) {              \
        const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);         \
        gw_grid_launch_dependents();                                                               \
        gw_grid_dependency_wait();                                                                 \
        if (row >= gw_live(p.step) || i >= p.width) {                                              \
            return;                                                                                \
        }                                                                                          \
        const size_t at = (size_t)row * p.width + i;                                               \
        float v = p.x[at];                                                                         \
        v = p.scale != 0.0f ? v * p.scale : v;                                                     \
        if (p.table) {                                                                             \
            const int place = gw_step_pos(p.step, row) - gw_step_less(p.step, row);                \
            const int own = p.by_type ? gw_step_type(p.step, row) : place;                         \
            const size_t from = (size_t)(own + p.offset) * p.width + i;                            \
            v = v + widen(((const type *)p.table)[from]);                                          \
        }                                                                                          \
        p.x[at] = v;                                                                               \
    }
#define SAME(x) (x)
EMBED(f32, float, SAME)
EMBED(f16, gw_u16, gw_f16_to_f32)
EMBED(bf16, gw_u16, gw_bf16_to_f32)

/* ---- PICK ------------------------------------------------------------------------------------ */

/* The first of n rows whose slot is at least `slot`; slots do not fall. */
GW_DEVICE int first_of_slot(const struct gw_step_params &s, int n, int slot) {
    int low = 0, high = n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (gw_step_slot(s, middle) < slot) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

GW_KERNEL(gw_more_pool, struct gw_more_pool_params, GW_MORE_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= p.step.step[GW_STEP_N_PICK] || i >= p.width) {
        return;
    }
    const int n = p.step.step[GW_STEP_N], first = first_of_slot(p.step, n, row);
    const int end = first_of_slot(p.step, n, row + 1);
    float v = p.in[(size_t)(p.last ? end - 1 : first) * p.width + i];
    if (p.mean) {
        for (int r = first + 1; r < end; r++) {
            v = v + p.in[(size_t)r * p.width + i];
        }
        v = v / (float)(end - first);
    }
    p.out[(size_t)row * p.width + i] = v;
}

/* ---- NORM ------------------------------------------------------------------------------------ */

/* gw_team_encode, of a block whose scale lacks a factor. */
GW_DEVICE void encode_times(void *out, size_t block, int form, float x, float factor) {
    const int lane = gw_lane();
    const unsigned top = gw_team_max(GW_F32_BITS(x) & 0x7fffffffu);
    const unsigned code = gw_act8_code(x, gw_act8_inverse(top));
    const int q = top < 0x7f800000u ? (int)(code << 24) >> 24 : 0;
    const gw_half_sums sums(q);
    gw_i8 *to = form == GW_FORM_PLAIN
                    ? ((gw_act8 *)out)[block].q + lane
                    : (gw_i8 *)((unsigned *)out + block / GW_ACT_GROUP * GW_ACT_GROUP_WORDS +
                                gw_group_word((int)(block % GW_ACT_GROUP), lane / 4)) +
                          lane % 4;
    *to = (gw_i8)q;
    if (lane == 0) {
        const gw_act8 head = {
            gw_act8_scale(top) * factor, {(gw_i16)sums.first, (gw_i16)sums.second}, {0}};
        gw_store_act8_head(out, block, form, head);
    }
}

/* A value of a row whose mean and factor are known; weight and bias stand for themselves. */
GW_DEVICE float normed(const struct gw_more_norm_params &p, float x, float mean, float r,
                       float weight, float bias) {
    if (p.layer) {
        x = (x - mean) * r;
        return p.weight ? (p.bias ? GW_FMA(x, weight, bias) : x * weight) : p.bias ? x + bias : x;
    }
    x = x * weight * r;
    return p.bias ? x + bias : x;
}

GW_KERNEL(gw_more_norm, struct gw_more_norm_params, GW_MORE_THREADS) {
    __shared__ float blocks[GW_ROW_PIECE / GW_LANES];
    __shared__ unsigned room[TEAMS];
    GW_SHARED_DYNAMIC(float, kept);
    const int row = (int)blockIdx.x, n = p.width, lane = gw_lane();
    unsigned top = 0;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const float *x = p.in + (size_t)row * n;
    float mean = 0.0f;
    if (p.layer) {
        mean = gw_row_sum(n, blocks, [&](int i) { return x[i]; }) / (float)n;
    }
    const float squares = gw_row_sum(n, blocks, [&](int i) {
        const float c = p.layer ? x[i] - mean : x[i];
        return c * c;
    });
    const float r = gw_rms_scale(squares, n, p.eps);
    const float factor = p.factor ? p.factor[0] : 1.0f;
    /* Blocks of a plain RMS norm are made before the row's factor comes to them. */
    const int later = p.form != GW_FORM_FLOATS && !p.layer && !p.bias;
    for (int b = gw_team(); b * GW_LANES < n; b += TEAMS) {
        const int i = b * GW_LANES + lane, there = i < n;
        const float w = p.weight && there ? p.weight[i] : 1.0f;
        const float bias = p.bias && there ? p.bias[i] : 0.0f;
        float y = there ? x[i] : 0.0f;
        y = normed(p, y, mean, later ? 1.0f : r, w, bias);
        if (p.form != GW_FORM_FLOATS) {
            const size_t block = (size_t)row * (n / GW_ACT_BLOCK) + b;
            encode_times(p.out, block, p.form, y, later ? r : 1.0f);
        } else if (there) {
            const size_t at = (size_t)row * n + i;
            y = p.addend ? p.addend[at] + y : y;
            y = p.factor ? y * factor : y;
            ((float *)p.out)[at] = y;
            if (p.narrow.y) {
                kept[gw_kept_at(i)] = y;
                top = gw_larger(top, GW_F32_BITS(y) & 0x7fffffffu);
            }
        }
    }
    if (p.narrow.y) {
        top = gw_narrow_top(top, room);
        gw_narrow_kept(p.narrow, row, n, top, (int)threadIdx.x, GW_MORE_THREADS, kept);
    }
}

/* Of values lane i of 32 blocks, v[b], what gw_row_sum makes of their row. A lane hands half of its
 * blocks on for the same half of its own, five times: the tree of gw_fold for all blocks at once,
 * of which lane b has block b in the end. */
enum { EACH = GW_MORE_TEAM_WIDTH / GW_LANES };
template <int H> GW_DEVICE void fold_half(float *v) {
    const int high = (gw_lane() & H) != 0;
#pragma unroll
    for (int b = 0; b < H; b++) {
        const float one = v[b], two = v[b + H]; /* values: a choice of places is one in memory */
        v[b] = (high ? two : one) + gw_shuffle_xor(high ? one : two, H);
    }
}
template <class Value> GW_DEVICE float team_sum(Value value) {
    static_assert((int)EACH == (int)GW_LANES, "a lane has a block in the end");
    float v[EACH];
#pragma unroll
    for (int b = 0; b < EACH; b++) {
        v[b] = value(b);
    }
    fold_half<16>(v);
    fold_half<8>(v);
    fold_half<4>(v);
    fold_half<2>(v);
    fold_half<1>(v);
    return gw_fold(0.0f + v[0]);
}

/* The row of a team, in its registers. */
GW_KERNEL(gw_more_norm_team, struct gw_more_norm_params, GW_MORE_THREADS) {
    GW_SHARED_DYNAMIC(float, shared);
    const int row = (int)blockIdx.x * TEAMS + gw_team(), n = p.width, lane = gw_lane();
    float *kept = shared + gw_team() * (GW_KEPT_BYTES(n) / 4), x[EACH];
    unsigned top = 0;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return; /* whole teams; only teams meet below */
    }
    const float *in = p.in + (size_t)row * n + lane;
#pragma unroll
    for (int b = 0; b < EACH; b++) {
        x[b] = b * GW_LANES < n ? in[b * GW_LANES] : 0.0f;
    }
    float mean = 0.0f;
    if (p.layer) {
        mean = team_sum([&](int b) { return x[b]; }) / (float)n;
    }
    const float squares = team_sum([&](int b) {
        const float c = p.layer ? x[b] - mean : x[b];
        return b * GW_LANES < n ? c * c : 0.0f;
    });
    const float r = gw_rms_scale(squares, n, p.eps);
    const float factor = p.factor ? p.factor[0] : 1.0f;
    enum { AT_ONCE = 8 }; /* what is read comes before what is written */
#pragma unroll
    for (int first = 0; first < EACH; first += AT_ONCE) {
        float weight[AT_ONCE], bias[AT_ONCE], addend[AT_ONCE];
#pragma unroll
        for (int b = 0; b < AT_ONCE; b++) {
            const int i = (first + b) * GW_LANES + lane, there = i < n;
            weight[b] = p.weight && there ? p.weight[i] : 1.0f;
            bias[b] = p.bias && there ? p.bias[i] : 0.0f;
            addend[b] = p.addend && there ? p.addend[(size_t)row * n + i] : 0.0f;
        }
#pragma unroll
        for (int b = 0; b < AT_ONCE; b++) {
            const int i = (first + b) * GW_LANES + lane;
            if (i < n) {
                float y = normed(p, x[first + b], mean, r, weight[b], bias[b]);
                y = p.addend ? addend[b] + y : y;
                y = p.factor ? y * factor : y;
                ((float *)p.out)[(size_t)row * n + i] = y;
                if (p.narrow.y) {
                    kept[gw_kept_at(i)] = y;
                    top = gw_larger(top, GW_F32_BITS(y) & 0x7fffffffu);
                }
            }
        }
    }
    if (p.narrow.y) {
        top = gw_team_max(top);
        gw_sync_team();
        gw_narrow_kept(p.narrow, row, n, top, lane, GW_LANES, kept);
    }
}

/* ---- ROPE_KV --------------------------------------------------------------------------------- */

/* A head of q or k on its way through norm and rotation. */
struct more_head {
    const float *row, *weight, *angle; /* row: of all heads of q or k; weight 0: 1      */
    int e, r, head, heads, interleaved;
    int layer, row_wide, wide; /* wide: the weight has all heads                         */
    int before, after;         /* where the norm is, if anywhere                         */
    float mean, scale;

    __device__ inline float rotated(int h, int i) const {
        const float *x = row + h * e;
        const int half = r / 2;
        if (i >= r) {
            return before ? normed(x[i], h, i) : x[i];
        }
        const int second = interleaved ? i % 2 : i >= half;
        const int pair = interleaved ? i / 2 : i - (second ? half : 0);
        const int at = interleaved ? 2 * pair : pair, to = interleaved ? at + 1 : at + half;
        const float a = before ? normed(x[at], h, at) : x[at];
        const float b = before ? normed(x[to], h, to) : x[to];
        const float c = angle[pair], s = angle[half + pair];
        return second ? gw_rope_second(a, b, c, s) : gw_rope_first(a, b, c, s);
    }
    __device__ inline float normed(float x, int h, int i) const {
        const float y = (layer ? x - mean : x) * scale;
        return weight ? y * weight[wide ? h * e + i : i] : y;
    }
    /* What the norm goes over: values of one head, or of all of them. */
    __device__ inline float input(int i) const {
        const int h = row_wide ? i / e : head, at = row_wide ? i - h * e : i;
        return after ? rotated(h, at) : row[h * e + at];
    }
    /* The whole team calls it. */
    __device__ inline void measure(float eps) {
        const int n = row_wide ? heads * e : e;
        float sum = 0.0f;
        mean = 0.0f;
        if (layer) {
            for (int i = gw_lane(); i < n; i += GW_LANES) {
                sum = GW_FMA(1.0f, input(i), sum);
            }
            mean = gw_fold(sum) / (float)n;
            sum = 0.0f;
        }
        for (int i = gw_lane(); i < n; i += GW_LANES) {
            const float c = layer ? input(i) - mean : input(i);
            sum = GW_FMA(c, c, sum);
        }
        scale = gw_rms_scale(gw_fold(sum), n, eps);
    }
    __device__ inline float value(int i) const {
        const float y = rotated(head, i);
        return after ? normed(y, head, i) : y;
    }
};

/* Head h of q, or of k. */
__device__ static inline more_head head_of(const struct gw_more_rope_params &p, const float *row,
                                           int is_k, int h, int pos) {
    more_head m;
    const int norms = p.plain || (is_k ? p.k_norm : p.q_norm);
    m.row = row + (is_k ? p.heads * p.e : 0);
    m.weight = is_k ? p.k_norm : p.q_norm;
    m.angle = p.table + (p.table ? (size_t)pos * p.rope_dim : 0);
    m.e = p.e;
    m.r = p.rope_dim;
    m.head = h;
    m.heads = is_k ? p.kv_heads : p.heads;
    m.interleaved = p.interleaved;
    m.layer = p.layer;
    m.row_wide = p.span == 2;
    m.wide = p.span != 0;
    m.before = norms && !p.after;
    m.after = norms && p.after;
    m.mean = 0.0f;
    m.scale = 1.0f;
    if (norms) {
        m.measure(p.eps);
    }
    return m;
}

/* Position j of a page of keys or values: value_of(i), i < width. The whole team calls them. */
template <class PUT> struct more_cells {
    template <class Of>
    __device__ static inline void store(uint8_t *tile, int width, int is_k, int j, Of value_of) {
        typedef typename PUT::cell cell;
        gw_u16 *scales = (gw_u16 *)(tile + GW_PAGE * width); /* of cells of one byte */
        for (int i = gw_lane(); i < width; i += GW_LANES) {
            PUT::put((cell *)tile, is_k ? i * GW_PAGE + j : j * width + i, scales,
                     is_k ? i / 32 * GW_PAGE + j : j * (width / 32) + i / 32, value_of(i));
        }
    }
};
template <int BITS> struct more_packed {
    template <class Of>
    __device__ static inline void store(uint8_t *tile, int width, int is_k, int j, Of value_of) {
        gw_cells_store<BITS>(tile, width, is_k, j, value_of);
    }
};

template <class CELLS>
__device__ static inline void more_rope(const struct gw_more_rope_params &p) {
    const int row = (int)blockIdx.y, lane = gw_lane();
    const int h = p.first + (int)blockIdx.x * TEAMS + gw_team();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || h >= p.end) {
        return; /* whole teams; only teams meet below */
    }
    const int pos = gw_step_pos(p.step, row), j = pos % GW_PAGE;
    const float *in = p.in + (size_t)row * ((p.heads + p.kv_heads) * p.e + p.kv_heads * p.ev);
    if (h < p.heads) {
        const more_head m = head_of(p, in, 0, h, pos - gw_step_less(p.step, row));
        const float by = p.factor ? p.factor[pos] : 1.0f;
        for (int i = lane; i < p.e; i += GW_LANES) {
            const float y = m.value(i);
            p.out[((size_t)row * p.heads + h) * p.e + i] = p.factor ? y * by : y;
        }
        return;
    }
    const int is_v = h >= p.heads + p.kv_heads, g = h - p.heads - (is_v ? p.kv_heads : 0);
    const size_t page =
        (size_t)p.pages[(size_t)gw_step_slot(p.step, row) * p.page_stride + pos / GW_PAGE];
    const int width = is_v ? p.ev : p.e;
    uint8_t *tile = (uint8_t *)(is_v ? p.v : p.k) +
                    (page * p.kv_heads + g) * (size_t)(is_v ? p.v_bytes : p.k_bytes);
    if (!is_v) {
        if (p.without_k) {
            return;
        }
        const more_head m = head_of(p, in, 1, g, pos - gw_step_less(p.step, row));
        CELLS::store(tile, width, 1, j, [&](int i) { return m.value(i); });
        return;
    }
    const float *x = in + (p.heads + p.kv_heads) * p.e + g * p.ev;
    float scale = 1.0f;
    if (p.norm_v) {
        float sum = 0.0f;
        for (int i = lane; i < width; i += GW_LANES) {
            sum = GW_FMA(x[i], x[i], sum);
        }
        scale = gw_rms_scale(gw_fold(sum), width, p.eps);
    }
    CELLS::store(tile, width, 0, j, [&](int i) { return p.norm_v ? x[i] * scale : x[i]; });
}
#define ROPE(format, ...)                                                                          \
    GW_KERNEL(gw_more_rope_##format, struct gw_more_rope_params, GW_MORE_THREADS) {                \
        more_rope<__VA_ARGS__>(p);                                                                 \
    }
ROPE(f32, more_cells<gw_put_f32>)
ROPE(f16, more_cells<gw_put_f16>)
ROPE(q8_0, more_cells<gw_put_q8_0>)
ROPE(q5_0, more_packed<5>)
ROPE(q4_0, more_packed<4>)

/* K of many rows; lay_all: also V, and q as it is.
 * A position's cells of K lie a page apart, those of neighbours side by side: a block has a head of
 * some rows in shared memory, and then a team stores one value of 32 of them. */
template <class PUT> __device__ static inline void more_lay(const struct gw_more_rope_params &p) {
    typedef typename PUT::cell cell;
    enum { ROWS = GW_MORE_LAY_ROWS, STEP = GW_MORE_LAY_STEP, PARTS = ROWS / GW_LANES, EACH = 2 };
    GW_SHARED_DYNAMIC(cell, cells); /* [e, STEP] */
    const int g = (int)blockIdx.x, first = (int)blockIdx.y * ROWS, lane = gw_lane();
    const int live = gw_live(p.step), width = (p.heads + p.kv_heads) * p.e + p.kv_heads * p.ev;
    const int of_q = p.lay_all ? p.heads / p.kv_heads * p.e : 0, of_v = p.lay_all ? p.ev : 0;
    int pos[PARTS], page[PARTS]; /* of rows lane and lane + 32 */
    gw_grid_launch_dependents();
    if (first >= live) {
        gw_grid_dependency_wait(); /* those behind wait for this launch alone */
        return;
    }
#pragma unroll
    for (int h = 0; h < PARTS; h++) {
        const int own = first + h * GW_LANES + lane, row = own < live ? own : first;
        pos[h] = gw_step_pos(p.step, row);
        page[h] =
            p.pages[(size_t)gw_step_slot(p.step, row) * p.page_stride + pos[h] / GW_PAGE];
    }
    gw_grid_dependency_wait();
    for (int r = gw_team(); r < ROWS && first + r < live; r += TEAMS) {
        const float *q = p.in + (size_t)(first + r) * width + g * of_q;
        const float *k = p.in + (size_t)(first + r) * width + (p.heads + g) * p.e;
        const float *v =
            p.in + (size_t)(first + r) * width + (p.heads + p.kv_heads) * p.e + g * p.ev;
        const int high = r >= GW_LANES, its_pos = gw_shuffle(high ? pos[1] : pos[0], r % GW_LANES);
        const size_t its_page = (size_t)gw_shuffle(high ? page[1] : page[0], r % GW_LANES);
        cell *to_v = (cell *)((uint8_t *)p.v + (its_page * p.kv_heads + g) * (size_t)p.v_bytes) +
                     its_pos % GW_PAGE * p.ev;
        float *to_q = p.out + (size_t)(first + r) * p.heads * p.e + g * of_q;
        for (int base = lane; base < p.e || base < of_q || base < of_v; base += EACH * GW_LANES) {
            float a[3][EACH]; /* what is read comes before what is written */
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int i = base + j * GW_LANES;
                a[0][j] = i < p.e ? k[i] : 0.0f;
                a[1][j] = i < of_v ? v[i] : 0.0f;
                a[2][j] = i < of_q ? q[i] : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int i = base + j * GW_LANES;
                if (i < p.e) {
                    PUT::put(cells, i * STEP + r, 0, 0, a[0][j]);
                }
                if (i < of_v) {
                    PUT::put(to_v, i, 0, 0, a[1][j]);
                }
                if (i < of_q) {
                    to_q[i] = a[2][j];
                }
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < PARTS; h++) {
        if (first + h * GW_LANES + lane < live) {
            cell *to = (cell *)((uint8_t *)p.k +
                                ((size_t)page[h] * p.kv_heads + g) * (size_t)p.k_bytes) +
                       pos[h] % GW_PAGE;
            for (int i = gw_team(); i < p.e; i += TEAMS) {
                to[i * GW_PAGE] = cells[i * STEP + h * GW_LANES + lane];
            }
        }
    }
}
#define LAY(format)                                                                                \
    GW_KERNEL(gw_more_lay_##format, struct gw_more_rope_params, GW_MORE_THREADS) {                 \
        more_lay<gw_put_##format>(p);                                                              \
    }
LAY(f32)
LAY(f16)

/* ---- ACT, MIX -------------------------------------------------------------------------------- */

/* Column i of a row's result, by a whole team. */
GW_DEVICE void leave(void *out, int form, int row, int width, int i, float v) {
    if (form != GW_FORM_FLOATS) {
        gw_team_encode(out, ((size_t)row * width + i) / GW_ACT_BLOCK, form, v);
    } else if (i < width) {
        ((float *)out)[(size_t)row * width + i] = v;
    }
}

GW_DEVICE float activated(const struct gw_more_act_params &p, int row, int i) {
    const gw_act_kind kind = (gw_act_kind)p.kind;
    const float g = p.gate[(size_t)row * p.gate_step + i];
    const float v =
        p.numbers ? gw_act_gate(kind, g, p.numbers[3], p.numbers[2], p.numbers[0], p.numbers[1])
                  : gw_act_gate(kind, g, p.limit, p.alpha, 0.0f, 0.0f);
    return p.up ? v * gw_act_factor(kind, p.up[(size_t)row * p.up_step + i], p.limit) : v;
}

/* value(i) of a row to where it is kept; the bits of the thread's largest magnitude. */
template <class Value> GW_DEVICE unsigned keep_row(int n, float *kept, Value value) {
    unsigned top = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < n; i += GW_MORE_THREADS) {
        const float v = value(i);
        kept[gw_kept_at(i)] = v;
        top = gw_larger(top, GW_F32_BITS(v) & 0x7fffffffu);
    }
    return top;
}

GW_KERNEL(gw_more_act_row, struct gw_more_act_params, GW_MORE_THREADS) {
    __shared__ unsigned room[TEAMS];
    GW_SHARED_DYNAMIC(float, kept);
    const int row = (int)blockIdx.x;
    unsigned top = 0;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    if (p.kind == GW_ACT_GELU && !p.up) { /* without the choice of a kind for each value */
        const float *gate = p.gate + (size_t)row * p.gate_step;
        top = keep_row(p.width, kept, [&](int i) {
            return gw_act_gate(GW_ACT_GELU, gate[i], 0.0f, 0.0f, 0.0f, 0.0f);
        });
    } else {
        top = keep_row(p.width, kept, [&](int i) { return activated(p, row, i); });
    }
    top = gw_narrow_top(top, room);
    gw_narrow_kept(p.narrow, row, p.width, top, (int)threadIdx.x, GW_MORE_THREADS, kept);
}

GW_KERNEL(gw_more_act, struct gw_more_act_params, GW_MORE_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || i - gw_lane() >= p.width) {
        return; /* whole teams */
    }
    const float v = i < p.width ? activated(p, row, i) : 0.0f;
    leave(p.out, p.form, row, p.width, i, v);
}

GW_KERNEL(gw_more_mix, struct gw_more_mix_params, GW_MORE_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || i - gw_lane() >= p.width) {
        return; /* whole teams */
    }
    const size_t at = (size_t)row * p.width + i;
    float v = 0.0f;
    if (i < p.width) {
        v = p.in[at];
        v = p.scale != 0.0f ? v * p.scale : v;
        if (p.gate) {
            const float g = p.gate[(size_t)row * p.gates + i / (p.width / p.gates)];
            v = v * gw_act_gate((gw_act_kind)p.gate_kind, g, 0.0f, 0.0f, 0.0f, 0.0f);
        }
        v = p.cap != 0.0f ? gw_softcap(v, p.cap) : v;
        v = p.addend ? p.addend[at] + v : v;
        v = p.factor ? v * p.factor[p.factors > 1 ? i : 0] : v;
    }
    leave(p.out, p.form, row, p.width, i, v);
}

/* ---- SPARSE_GLU ------------------------------------------------------------------------------ */

GW_KERNEL(gw_more_sparse, struct gw_more_sparse_params, GW_MORE_THREADS) {
    __shared__ float blocks[GW_ROW_PIECE / GW_LANES];
    const int row = (int)blockIdx.x, n = p.width;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const float *x = p.in + (size_t)row * 2 * n;
    const float mean = gw_row_sum(n, blocks, [&](int i) { return x[i]; }) / (float)n;
    const float squares = gw_row_sum(n, blocks, [&](int i) {
        const float c = x[i] - mean;
        return c * c;
    });
    const float cut = mean + p.deviations * (1.0f / gw_rms_scale(squares, n, 0.0f));
    const gw_act_kind kind = (gw_act_kind)p.kind;
    for (int i = (int)threadIdx.x; i < n; i += GW_MORE_THREADS) {
        const float v = x[i] - cut;
        const float g = gw_act_gate(kind, v < 0.0f ? 0.0f : v, 0.0f, 0.0f, 0.0f, 0.0f);
        p.out[(size_t)row * n + i] = g * gw_act_factor(kind, x[n + i], 0.0f);
    }
}

/* ---- ROUTE ----------------------------------------------------------------------------------- */

GW_KERNEL(gw_more_route, struct gw_more_route_params, GW_ROUTE_THREADS) {
    GW_SHARED_DYNAMIC(float, shared);
    const int row = (int)blockIdx.x;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row < gw_live(p.step)) {
        const float *given = p.route.given ? p.route.given + (size_t)row * p.route.used : 0;
        gw_route_block(p.route, p.logits + (size_t)row * p.route.experts, given,
                       p.out + (size_t)row * 2 * p.route.used, shared);
    }
}
