/* kernels_hip/rows/more.hip - every form of the ops that treat each row on its own, which rows.hip
 * has for the plain ones, and ACT, MIX and ROUTE (docs/arithmetic.md, section 5). */
#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/rows/more_params.h"
#include "kernels_hip/rows/rope.h"
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
            const int own = p.by_type ? gw_step_type(p.step, row) : gw_step_pos(p.step, row);      \
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

/* The sum of value(i) over a row of n, by blocks and lanes as NORM makes it; every thread of the
 * block gets it. */
template <class Value> __device__ static inline float row_sum(int n, float *blocks, Value value) {
    const int lane = gw_lane();
    float sum = 0.0f;
    for (int base = 0; base < n; base += GW_MORE_PIECE) {
        const int left = n - base < GW_MORE_PIECE ? n - base : GW_MORE_PIECE;
        const int here = (left + GW_LANES - 1) / GW_LANES;
        __syncthreads(); /* who read what stands there is done */
        for (int b = gw_team(); b < here; b += TEAMS) {
            const int i = b * GW_LANES + lane;
            const float all = gw_fold(i < left ? value(base + i) : 0.0f);
            if (lane == 0) {
                blocks[b] = all;
            }
        }
        __syncthreads();
        for (int b = lane; b < here; b += GW_LANES) {
            sum = sum + blocks[b];
        }
    }
    return gw_fold(sum);
}

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

GW_KERNEL(gw_more_norm, struct gw_more_norm_params, GW_MORE_THREADS) {
    __shared__ float blocks[GW_MORE_PIECE / GW_LANES];
    const int row = (int)blockIdx.x, n = p.width, lane = gw_lane();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const float *x = p.in + (size_t)row * n;
    float mean = 0.0f;
    if (p.layer) {
        mean = row_sum(n, blocks, [&](int i) { return x[i]; }) / (float)n;
    }
    const float squares = row_sum(n, blocks, [&](int i) {
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
        if (p.layer) {
            y = (y - mean) * r;
            y = p.weight ? (p.bias ? GW_FMA(y, w, bias) : y * w) : p.bias ? y + bias : y;
        } else {
            y = y * w;
            y = later ? y : y * r;
            y = p.bias ? y + bias : y;
        }
        if (p.form != GW_FORM_FLOATS) {
            const size_t block = (size_t)row * (n / GW_ACT_BLOCK) + b;
            encode_times(p.out, block, p.form, y, later ? r : 1.0f);
        } else if (there) {
            const size_t at = (size_t)row * n + i;
            y = p.addend ? p.addend[at] + y : y;
            ((float *)p.out)[at] = p.factor ? y * factor : y;
        }
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

template <class PUT> __device__ static inline void more_rope(const struct gw_more_rope_params &p) {
    typedef typename PUT::cell cell;
    const int row = (int)blockIdx.y, lane = gw_lane();
    const int h = (int)blockIdx.x * TEAMS + gw_team();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || h >= p.heads + 2 * p.kv_heads) {
        return; /* whole teams; only teams meet below */
    }
    const int pos = gw_step_pos(p.step, row), j = pos % GW_PAGE;
    const float *in = p.in + (size_t)row * ((p.heads + p.kv_heads) * p.e + p.kv_heads * p.ev);
    if (h < p.heads) {
        const more_head m = head_of(p, in, 0, h, pos);
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
    gw_u16 *scales = (gw_u16 *)(tile + GW_PAGE * width); /* of cells of one byte */
    const auto put = [&](int i, float y) {
        PUT::put((cell *)tile, is_v ? j * width + i : i * GW_PAGE + j, scales,
                 is_v ? j * (width / 32) + i / 32 : i / 32 * GW_PAGE + j, y);
    };
    if (!is_v) {
        const more_head m = head_of(p, in, 1, g, pos);
        for (int i = lane; i < width; i += GW_LANES) {
            put(i, m.value(i));
        }
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
    for (int i = lane; i < width; i += GW_LANES) {
        put(i, p.norm_v ? x[i] * scale : x[i]);
    }
}
#define ROPE(format)                                                                               \
    GW_KERNEL(gw_more_rope_##format, struct gw_more_rope_params, GW_MORE_THREADS) {                \
        more_rope<gw_put_##format>(p);                                                             \
    }
ROPE(f32)
ROPE(f16)
ROPE(q8_0)

/* ---- ACT, MIX -------------------------------------------------------------------------------- */

/* Column i of a row's result, by a whole team. */
GW_DEVICE void leave(void *out, int form, int row, int width, int i, float v) {
    if (form != GW_FORM_FLOATS) {
        gw_team_encode(out, ((size_t)row * width + i) / GW_ACT_BLOCK, form, v);
    } else if (i < width) {
        ((float *)out)[(size_t)row * width + i] = v;
    }
}

GW_KERNEL(gw_more_act, struct gw_more_act_params, GW_MORE_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || i - gw_lane() >= p.width) {
        return; /* whole teams */
    }
    const gw_act_kind kind = (gw_act_kind)p.kind;
    float v = 0.0f;
    if (i < p.width) {
        const float g = p.gate[(size_t)row * p.gate_step + i];
        v = p.numbers ? gw_act_gate(kind, g, p.numbers[3], p.numbers[2], p.numbers[0], p.numbers[1])
                      : gw_act_gate(kind, g, p.limit, p.alpha, 0.0f, 0.0f);
        if (p.up) {
            v = v * gw_act_factor(kind, p.up[(size_t)row * p.up_step + i], p.limit);
        }
    }
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
        v = p.factor ? v * p.factor[0] : v;
    }
    leave(p.out, p.form, row, p.width, i, v);
}

/* ---- ROUTE ----------------------------------------------------------------------------------- */

struct route_best {
    float score;
    int expert;
};
/* The larger score, of equal ones the lower expert; -1: none. */
GW_DEVICE route_best better(route_best a, route_best b) {
    const int other = b.expert >= 0 && (a.expert < 0 || b.score > a.score ||
                                        (b.score == a.score && b.expert < a.expert));
    return other ? b : a;
}
/* Of scores [from, end) those that are not taken; every lane gets it. */
GW_DEVICE route_best best_of(const float *scores, const unsigned *taken, int from, int end) {
    route_best best = {0.0f, -1};
    for (int i = from + gw_lane(); i < end; i += GW_LANES) {
        const route_best one = {scores[i], taken[i / 32] >> i % 32 & 1 ? -1 : i};
        best = better(best, one);
    }
    for (int h = GW_LANES / 2; h > 0; h /= 2) {
        const route_best other = {gw_shuffle_xor(best.score, h), gw_shuffle_xor(best.expert, h)};
        best = better(best, other);
    }
    return best;
}

/* What a row's experts have in shared memory: scores, what they are chosen by, worths of groups;
 * and bits: who is out of the choice, who is chosen. The whole team calls what follows. */
struct route_desk {
    float *score, *rank, *worth;
    unsigned *out, *chosen;
};

/* All experts but those of the best groups are out. */
GW_DEVICE void keep_groups(const struct gw_more_route_params &p, const route_desk &d) {
    const int each = p.experts / p.groups, lane = gw_lane();
    for (int g = lane; g < p.groups; g += GW_LANES) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * each; i < (g + 1) * each; i++) {
            const float x = d.rank[i];
            second = x > first ? first : x > second ? x : second;
            first = x > first ? x : first;
        }
        d.worth[g] = p.group_best > 1 && each > 1 ? first + second : first;
    }
    gw_sync_team();
    for (int k = 0; k < p.groups_used; k++) { /* bits of groups, in the chosen ones' place */
        const int g = best_of(d.worth, d.chosen, 0, p.groups).expert;
        gw_sync_team();
        if (lane == 0) {
            d.chosen[g / 32] |= 1u << g % 32;
        }
        gw_sync_team();
    }
    for (int w = lane; w < GW_ROUTE_WORDS(p.experts); w += GW_LANES) {
        for (int i = 32 * w; i < p.experts && i < 32 * w + 32; i++) {
            const int g = i / each;
            d.out[w] |= (d.chosen[g / 32] >> g % 32 & 1 ? 0u : 1u) << i % 32;
        }
    }
    gw_sync_team();
    for (int w = lane; w < GW_ROUTE_WORDS(p.experts); w += GW_LANES) {
        d.chosen[w] = 0;
    }
    gw_sync_team();
}

/* Of x, softmax over the experts that are left and not too far below the best one: its own value.
 * The best is out from then on. */
GW_DEVICE float sparse_gate(const struct gw_more_route_params &p, const float *x,
                            const unsigned *out, route_best best) {
    float sum = 0.0f;
    for (int i = 0; i < p.experts; i++) {
        const float size = GW_F32_FROM_BITS(GW_F32_BITS(x[i]) & 0x7fffffffu);
        const float most = size > best.score ? size : best.score;
        const int far = (best.score - x[i]) / most > 2.0f * p.jitter;
        sum = (out[i / 32] >> i % 32 & 1) || far ? sum : sum + gw_exp(x[i] - best.score);
    }
    return 1.0f / sum;
}

/* Scores and ranks of the experts. */
GW_DEVICE void score_all(const struct gw_more_route_params &p, const float *x,
                         const route_desk &d) {
    float top = 0.0f, sum = 0.0f;
    for (int w = gw_lane(); w < GW_ROUTE_WORDS(p.experts); w += GW_LANES) {
        d.out[w] = d.chosen[w] = 0;
    }
    gw_sync_team();
    if (p.score == GW_ROUTE_SOFTMAX) {
        top = best_of(x, d.out, 0, p.experts).score;
    }
    for (int i = gw_lane(); i < p.experts; i += GW_LANES) {
        const float v = x[i];
        d.score[i] = p.score == GW_ROUTE_SOFTMAX         ? gw_exp(v - top)
                     : p.score == GW_ROUTE_SIGMOID       ? gw_sigmoid(v)
                     : p.score == GW_ROUTE_SQRT_SOFTPLUS ? GW_SQRT(gw_softplus(v))
                                                         : v;
    }
    gw_sync_team();
    for (int i = 0; p.score == GW_ROUTE_SOFTMAX && i < p.experts; i++) {
        sum = sum + d.score[i];
    }
    gw_sync_team();
    for (int i = gw_lane(); i < p.experts; i += GW_LANES) {
        const float v = p.score == GW_ROUTE_SOFTMAX ? d.score[i] / sum : d.score[i];
        d.score[i] = v;
        d.rank[i] = p.bias && p.score != GW_ROUTE_SPARSEMIXER ? v + p.bias[i] : v;
    }
    gw_sync_team();
}

/* Gates of the chosen ones, in increasing order, from their scores or logits. */
GW_DEVICE void gates_of(const struct gw_more_route_params &p, float *gates) {
    const int lane = gw_lane(), chosen = p.score == GW_ROUTE_SOFTMAX_CHOSEN;
    float sum = 0.0f, top = -INFINITY;
    for (int k = 0; chosen && k < p.used; k++) {
        top = gates[k] > top ? gates[k] : top;
    }
    gw_sync_team();
    for (int k = lane; chosen && k < p.used; k += GW_LANES) {
        gates[k] = gw_exp(gates[k] - top);
    }
    gw_sync_team();
    for (int turn = !chosen; turn < 1 + (p.renorm != 0); turn++) { /* softmax, then renorm */
        sum = 0.0f;
        for (int k = 0; k < p.used; k++) {
            sum = sum + gates[k];
        }
        gw_sync_team();
        const int more =
            turn == 1 && (p.score == GW_ROUTE_SIGMOID || p.score == GW_ROUTE_SQRT_SOFTPLUS);
        for (int k = lane; k < p.used; k += GW_LANES) {
            gates[k] = gates[k] / (more ? sum + 1e-20f : sum);
        }
        gw_sync_team();
    }
}

GW_KERNEL(gw_more_route, struct gw_more_route_params, GW_ROUTE_THREADS) {
    GW_SHARED_DYNAMIC(float, shared);
    const int row = (int)blockIdx.x, n = p.experts, lane = gw_lane();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || gw_team() > 0) {
        return;
    }
    const float *x = p.logits + (size_t)row * n;
    float *out = p.out + (size_t)row * 2 * p.used;
    const route_desk d = {shared, shared + n, shared + 2 * n, (unsigned *)(shared + 3 * n),
                          (unsigned *)(shared + 3 * n) + GW_ROUTE_WORDS(n)};
    score_all(p, x, d);
    if (p.groups > 0 && p.score != GW_ROUTE_SPARSEMIXER) {
        keep_groups(p, d);
    }
    for (int k = 0; k < p.used; k++) {
        const route_best best = best_of(d.rank, d.out, 0, n);
        if (p.score == GW_ROUTE_SPARSEMIXER) {
            const float gate = sparse_gate(p, d.rank, d.out, best);
            if (lane == 0) {
                d.score[best.expert] = gate;
            }
        }
        gw_sync_team();
        if (lane == 0) {
            d.out[best.expert / 32] |= 1u << best.expert % 32;
            d.chosen[best.expert / 32] |= 1u << best.expert % 32;
        }
        gw_sync_team();
    }
    float *gates = d.worth, *ids = d.rank; /* by place, when ranks are not needed any more */
    for (int i = lane; i < n; i += GW_LANES) {
        int place = 0;
        for (int w = 0; w < i / 32; w++) {
            place += __popc(d.chosen[w]);
        }
        place += __popc(d.chosen[i / 32] & ((1u << i % 32) - 1));
        if (d.chosen[i / 32] >> i % 32 & 1) {
            gates[place] = d.score[i];
            ids[place] = (float)i;
        }
    }
    gw_sync_team();
    gates_of(p, gates);
    for (int k = lane; k < p.used; k += GW_LANES) {
        float v = gates[k];
        v = p.scale != 0.0f ? v * p.scale : v;
        v = p.factor ? v * p.factor[(int)ids[k]] : v;
        out[k] = ids[k];
        out[p.used + k] = v;
    }
}
