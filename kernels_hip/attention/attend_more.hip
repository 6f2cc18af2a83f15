/* kernels_hip/attention/attend_more.hip - ATTENTION in every form (docs/arithmetic.md, section 5):
 * values of another width than keys, chunks, capped scores, slopes, biases, sinks, both ways, heads
 * of any width. Two
 * launches, as attention.hip and attend_join.hip; a team has one page of one head and reads the
 * caches where they are, so that nothing limits the width. */
#include "kernels_hip/act8.h"
#include "kernels_hip/attention/attend_more_params.h"
#include "kernels_hip/attention/attention.h"
#include "core/tensor/act.h"

/* Positions and pages that a row sees. */
struct more_span : gw_span {
    int high; /* the last position seen */
};
GW_DEVICE more_span span_more(const struct gw_attend_more_params &p, int row) {
    more_span s;
    (gw_span &)s = span_of(p.step, row, p.window);
    const int later = -p.chunk < s.pos ? -p.chunk : s.pos;
    const int chunk = p.chunk > 0 ? s.pos - s.pos % p.chunk : later;
    s.lo = chunk > s.lo ? chunk : s.lo;
    s.first = s.lo / GW_PAGE;
    s.high = s.pos;
    if (p.both) {
        const int last = gw_step_last(p.step, row), edge = s.pos + p.window - 1;
        s.high = p.window > 0 && edge < last ? edge : last;
        s.last = s.high / GW_PAGE;
    }
    return s;
}

/* What comes to the score of a key so far behind its query. */
GW_DEVICE float more_bias(const struct gw_attend_more_params &p, int h, int behind) {
    const int low = behind < -p.reach ? -p.reach : behind, at = low > p.reach ? p.reach : low;
    return p.bias[(size_t)h * (2 * p.reach + 1) + p.reach + at];
}

/* Scores of positions lane and lane + 32 of a page. */
template <class CELLS>
__device__ static inline void score_two(const float *q, const uint8_t *tile, int e, float *s) {
    const uint8_t *scales = tile + GW_PAGE * e;
    const int lane = gw_lane();
    gw_scale scale[2];
    s[0] = s[1] = 0.0f;
#pragma unroll 16
    for (int i = 0; i < e; i++) {
        if (CELLS::SCALED && i % 32 == 0) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float of;
                gw_cells_f16::read<1>(scales, i / 32 * GW_PAGE + lane + c * GW_LANES, &of);
                scale[c] = gw_scale(of);
            }
        }
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float k;
            CELLS::template read_scaled<1>(tile, i * GW_PAGE + lane + c * GW_LANES, scale + c, &k);
            s[c] = GW_FMA(q[i], k, s[c]);
        }
    }
}

/* Values lane, lane + 32, .. of a head from `base` on: chains over positions [from, end). */
enum { AT_ONCE = 4 };
/* Where value i of position j stands, and its scale: as a row of V, or as part of K's columns. */
struct value_cells {
    const uint8_t *tile, *scales;
    int ev, first, within;
    __device__ inline int at(int i, int j) const {
        return within ? (first + i) * GW_PAGE + j : j * ev + i;
    }
    __device__ inline int scale_at(int i, int j) const {
        return within ? (first + i) / 32 * GW_PAGE + j : j * (ev / 32) + i / 32;
    }
};
template <class CELLS>
__device__ static inline void mix_values(const float *weight, const value_cells &cells, int base,
                                         int from, int end, float *o) {
    const int lane = gw_lane(), ev = cells.ev;
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        o[k] = 0.0f;
    }
#pragma unroll 8
    for (int j = from; j < end; j++) {
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = base + k * GW_LANES + lane;
            if (i < ev) {
                gw_scale scale(0.0f);
                float v;
                if (CELLS::SCALED) {
                    gw_cells_f16::read<1>(cells.scales, cells.scale_at(i, j), &v);
                    scale = gw_scale(v);
                }
                CELLS::template read_scaled<1>(cells.tile, cells.at(i, j), &scale, &v);
                o[k] = GW_FMA(weight[j], v, o[k]);
            }
        }
    }
}

/* How a page's keys and values are read: both in one format, or each in its own. */
template <class CELLS> struct more_alike {
    __device__ static inline void score(const struct gw_attend_more_params &, const float *q,
                                        const uint8_t *tile, int e, float *s) {
        score_two<CELLS>(q, tile, e, s);
    }
    __device__ static inline void mix(const struct gw_attend_more_params &, const float *weight,
                                      const value_cells &cells, int base, int from, int end,
                                      float *o) {
        mix_values<CELLS>(weight, cells, base, from, end, o);
    }
};
struct more_mixed {
    __device__ static inline void score(const struct gw_attend_more_params &p, const float *q,
                                        const uint8_t *tile, int e, float *s) {
        switch (p.k_cells) {
        case GW_MORE_F32: score_two<gw_cells_f32>(q, tile, e, s); break;
        case GW_MORE_F16: score_two<gw_cells_f16>(q, tile, e, s); break;
        default: score_two<gw_cells_q8_0>(q, tile, e, s); break;
        }
    }
    __device__ static inline void mix(const struct gw_attend_more_params &p, const float *weight,
                                      const value_cells &cells, int base, int from, int end,
                                      float *o) {
        switch (p.v_cells) {
        case GW_MORE_F32: mix_values<gw_cells_f32>(weight, cells, base, from, end, o); break;
        case GW_MORE_F16: mix_values<gw_cells_f16>(weight, cells, base, from, end, o); break;
        default: mix_values<gw_cells_q8_0>(weight, cells, base, from, end, o); break;
        }
    }
};

template <class READS>
__device__ static inline void attend_more(const struct gw_attend_more_params &p) {
    __shared__ float weights[GW_ATTEND_MORE_TEAMS][GW_PAGE];
    const int here = (int)blockIdx.y, row = p.row0 + here, lane = gw_lane();
    const int group = p.heads / p.kv_heads, parts = (group + p.side - 1) / p.side;
    const int g = (int)blockIdx.x / parts;
    const int of = (int)blockIdx.x % parts * p.side + gw_team() % p.side, h = g * group + of;
    const int pages = GW_ATTEND_MORE_TEAMS / p.side, step = (int)gridDim.z * pages;
    float *weight = weights[gw_team()];
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || of >= group) {
        return; /* whole teams */
    }
    const more_span span = span_more(p, row);
    const float *q = p.q + ((size_t)row * p.heads + h) * p.e;
    const int32_t *table = p.pages + (size_t)gw_step_slot(p.step, row) * p.table_stride;
    const int within = p.v == 0;
    int page = span.first + (int)blockIdx.z * pages + gw_team() / p.side;
    for (; page <= span.last; page += step) {
        const size_t tile = (size_t)table[page] * p.kv_heads + g;
        const int base = page * GW_PAGE, from = span.lo > base ? span.lo - base : 0;
        const int end = span.high - base + 1 < GW_PAGE ? span.high - base + 1 : GW_PAGE;
        const size_t at =
            ((size_t)here * p.heads + h) * p.page_stride + (size_t)(page - span.first);
        float s[2], top = minus_infinity();
        READS::score(p, q, (const uint8_t *)p.k + tile * p.k_bytes, p.e, s);
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int j = lane + c * GW_LANES, behind = base + j - span.pos;
            s[c] = s[c] * p.scale;
            s[c] = p.softcap != 0.0f ? gw_softcap(s[c], p.softcap) : s[c];
            s[c] =
                p.slopes ? GW_FMA(p.slopes[h], (float)(behind > 0 ? -behind : behind), s[c]) : s[c];
            s[c] = p.bias ? s[c] + more_bias(p, h, behind) : s[c];
            top = j >= from && j < end && s[c] > top ? s[c] : top;
        }
        top = team_top(top);
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int j = lane + c * GW_LANES;
            s[c] = j >= from && j < end ? gw_exp(s[c] - top) : 0.0f;
            weight[j] = s[c];
        }
        const float sum = gw_fold(s[0] + s[1]);
        gw_sync_team();
        if (lane == 0) {
            p.top[at] = top;
            p.sum[at] = sum;
        }
        const uint8_t *v = within ? (const uint8_t *)p.k + tile * p.k_bytes
                                  : (const uint8_t *)p.v + tile * p.v_bytes;
        const value_cells cells = {v, v + GW_PAGE * (within ? p.e : p.ev), p.ev, p.v_first, within};
        for (int i0 = 0; i0 < p.ev; i0 += AT_ONCE * GW_LANES) {
            float o[AT_ONCE];
            READS::mix(p, weight, cells, i0, from, end, o);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (i0 + k * GW_LANES + lane < p.ev) {
                    p.values[at * p.ev + (size_t)(i0 + k * GW_LANES + lane)] = o[k];
                }
            }
        }
        gw_sync_team();
    }
}
#define ATTEND(format, ...)                                                                        \
    GW_KERNEL(gw_attend_more_##format, struct gw_attend_more_params, GW_ATTEND_MORE_THREADS) {     \
        attend_more<__VA_ARGS__>(p);                                                               \
    }
ATTEND(f16, more_alike<gw_cells_f16>)
ATTEND(f32, more_alike<gw_cells_f32>)
ATTEND(q8_0, more_alike<gw_cells_q8_0>)
ATTEND(mixed, more_mixed)

/* A thread has a value of the head, and what all of them need it makes for itself. */
GW_KERNEL(gw_attend_more_join, struct gw_attend_more_params, GW_ATTEND_MORE_THREADS) {
    const int h = (int)blockIdx.x, here = (int)blockIdx.y, row = p.row0 + here;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const more_span span = span_more(p, row);
    const int n = span.last - span.first + 1, whole = (p.ev + GW_LANES - 1) / GW_LANES * GW_LANES;
    const size_t at = ((size_t)here * p.heads + h) * p.page_stride;
    const float *tops = p.top + at, *sums = p.sum + at;
    const float sink = p.sinks ? p.sinks[h] : minus_infinity();
    float best = sink;
    for (int page = gw_lane(); page < n; page += GW_LANES) {
        best = larger(best, tops[page]);
    }
    best = team_top(best);
    for (int i = (int)threadIdx.x; i < whole; i += GW_ATTEND_MORE_THREADS) { /* whole teams */
        const int mine = i < p.ev ? i : 0;
        float total = -0.0f, o = -0.0f;
        for (int first = 0; first < n; first += GW_PAGE_GROUP) {
            const int end = first + GW_PAGE_GROUP < n ? first + GW_PAGE_GROUP : n;
            float top = minus_infinity(), sum = 0.0f, value = 0.0f;
            for (int page = first; page < end; page++) {
                top = larger(top, tops[page]);
            }
            for (int page = first; page < end; page++) {
                const float w = gw_exp(tops[page] - top);
                sum = GW_FMA(sums[page], w, sum);
                value = GW_FMA(p.values[(at + (size_t)page) * p.ev + mine], w, value);
            }
            const float w = gw_exp(top - best);
            total = GW_FMA(sum, w, total);
            o = GW_FMA(value, w, o);
        }
        total = p.sinks ? total + gw_exp(sink - best) : total;
        o = o / total;
        const size_t to = ((size_t)row * p.heads + h) * p.ev + i;
        if (p.form != GW_FORM_FLOATS) { /* heads are whole blocks then */
            gw_team_encode(p.out, to / GW_ACT_BLOCK, p.form, o);
        } else if (i < p.ev) {
            ((float *)p.out)[to] = o;
        }
    }
}
