/* kernels_hip/rows/listed.hip - hyper-connections, ROTATE, GROUP_DOT, compressed caches and
 * attention over lists (docs/arithmetic.md, section 5). */
#include "kernels_hip/device.h"
#include "kernels_hip/rows/listed_params.h"
#include "core/tensor/area.h"
#include "core/tensor/sample.h"

/* ---- HYPER, ROTATE, GROUP_DOT ---------------------------------------------------------------- */

GW_KERNEL(gw_listed_hyper, struct gw_listed_hyper_params, GW_LISTED_THREADS) {
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row < gw_live(p.step)) {
        gw_hyper_row(p.streams, p.rounds, p.eps, p.width == p.streams, p.in + (size_t)row * p.width,
                     p.scale, p.base, p.out + (size_t)row * p.width);
    }
}

/* Value i of r that rotate, at `from`. */
GW_DEVICE float turned(const float *from, const float *angles, int i, int r, int interleaved,
                       int back) {
    const int half = r / 2, pair = interleaved ? i / 2 : i % half;
    const int is_second = interleaved ? i % 2 : i >= half;
    const float a = from[interleaved ? 2 * pair : pair];
    const float b = from[interleaved ? 2 * pair + 1 : pair + half];
    const float c = angles[pair], s = back ? -angles[half + pair] : angles[half + pair];
    return is_second ? gw_rope_second(a, b, c, s) : gw_rope_first(a, b, c, s);
}

GW_KERNEL(gw_listed_rotate, struct gw_listed_rotate_params, GW_LISTED_THREADS) {
    const int row = (int)blockIdx.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || at >= p.width) {
        return;
    }
    const int e = p.width / p.heads, i = at % e - p.first;
    const size_t place = (size_t)row * p.width + at;
    float v = p.in[place];
    if (i >= 0 && i < p.rope_dim) {
        const float *angles = p.table +
            (size_t)(gw_step_pos(p.step, row) - gw_step_less(p.step, row)) * p.rope_dim;
        v = turned(p.in + place - i, angles, i, p.rope_dim, p.interleaved, p.back);
    }
    p.out[place] = v;
}

GW_KERNEL(gw_listed_dot, struct gw_listed_dot_params, GW_LISTED_THREADS) {
    const int row = (int)blockIdx.y, g = (int)blockIdx.x * GW_LISTED_TEAMS + gw_team();
    const int m = p.width / p.groups;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || g >= p.groups) {
        return; /* whole teams */
    }
    const size_t base = (size_t)row * p.width + (size_t)g * m;
    float sum = 0.0f;
    for (int i = gw_lane(); i < m; i += GW_LANES) {
        sum = GW_FMA(p.in[base + i], p.other[base + i], sum);
    }
    sum = gw_dot_value(gw_fold(sum), p.scale, p.root);
    if (gw_lane() == 0) {
        p.out[(size_t)row * p.groups + g] = sum;
    }
}

/* ---- areas ----------------------------------------------------------------------------------- */

GW_DEVICE gw_area area_of(const struct gw_area_params &a) {
    gw_area of;
    of.at = a.at;
    of.width = a.width;
    of.ratio = a.ratio;
    of.entry = a.entry;
    return of;
}
GW_DEVICE const int32_t *mapped_of(const struct gw_step_params &s, const struct gw_area_params &a,
                                   int row) {
    return a.mapped + (size_t)gw_step_slot(s, row) * a.table_stride;
}
/* `from`: of gw_area_row or gw_area_entry. */
GW_DEVICE float *area_at(const struct gw_area_params &a, const int32_t *mapped, int pos, int from) {
    return a.pages + (size_t)mapped[pos / GW_PAGE] * a.page_floats + from;
}

GW_KERNEL(gw_listed_keep, struct gw_listed_compress_params, GW_LISTED_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const gw_area a = area_of(p.area);
    const int width = gw_area_kept(&a);
    if (row < gw_live(p.step) && i < width) {
        const int pos = gw_step_pos(p.step, row);
        area_at(p.area, mapped_of(p.step, p.area, row), pos, gw_area_row(&a, pos))[i] =
            p.in[(size_t)row * width + i];
    }
}

GW_KERNEL(gw_listed_compress, struct gw_listed_compress_params, GW_LISTED_THREADS) {
    const int row = (int)blockIdx.x * GW_LISTED_TEAMS + gw_team(), lane = gw_lane();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return; /* whole teams */
    }
    const gw_area a = area_of(p.area);
    const int last = gw_step_pos(p.step, row), e = a.entry;
    if ((last + 1) % a.ratio != 0) {
        return;
    }
    const int32_t *mapped = mapped_of(p.step, p.area, row);
    float *to = area_at(p.area, mapped, last, gw_area_entry(&a, last)), sum = 0.0f;
    for (int c = lane; c < e; c += GW_LANES) {
        const float v = gw_area_column(&a, p.series, p.area.pages, (size_t)p.area.page_floats,
                                       mapped, p.bias, last, c);
        to[c] = v;
        sum = GW_FMA(v, v, sum);
    }
    const float r = gw_rms_scale(gw_fold(sum), e, p.eps);
    for (int c = lane; c < e && p.weight; c += GW_LANES) {
        to[c] = (to[c] * r) * p.weight[c];
    }
    gw_sync_team();
    const int half = p.rope_dim / 2;
    for (int pair = lane; pair < half; pair += GW_LANES) {
        const float *angles = p.table + (size_t)(last + 1 - a.ratio) * p.rope_dim;
        const int one = p.interleaved ? 2 * pair : pair,
                  two = p.interleaved ? one + 1 : pair + half;
        const float x = to[p.first + one], y = to[p.first + two];
        to[p.first + one] = gw_rope_first(x, y, angles[pair], angles[half + pair]);
        to[p.first + two] = gw_rope_second(x, y, angles[pair], angles[half + pair]);
    }
}

GW_KERNEL(gw_listed_score, struct gw_listed_choose_params, GW_LISTED_THREADS) {
    const int here = (int)blockIdx.y, row = p.row0 + here;
    const int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_area a = area_of(p.area);
    const int complete = (gw_step_pos(p.step, row) + 1) / a.ratio;
    if (k >= complete || complete <= p.most) {
        return;
    }
    const int last = gw_area_last(&a, k);
    const float *key =
        area_at(p.area, mapped_of(p.step, p.area, row), last, gw_area_entry(&a, last));
    const float *by = p.by ? p.by + (size_t)row * p.heads : 0;
    const float score =
        gw_area_score(p.in + (size_t)row * p.heads * a.entry, by, p.heads, a.entry, key);
    p.keys[(size_t)here * 2 * p.room + k] = gw_float_key(score);
}

/* Blocks of positions, by each head alone. */
GW_KERNEL(gw_listed_score_blocks, struct gw_listed_choose_params, GW_LISTED_THREADS) {
    const int here = (int)blockIdx.y, row = p.row0 + here / p.lists, h = here % p.lists;
    const int k = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    const gw_area a = area_of(p.area);
    const int among = gw_choose_among(gw_step_pos(p.step, row), p.block, p.local);
    if (k >= among || among <= p.most) {
        return;
    }
    const float *q = p.in + ((size_t)row * p.lists + h) * a.entry;
    p.keys[(size_t)here * 2 * p.room + k] = gw_float_key(
        gw_area_block_score(&a, q, p.area.pages, (size_t)p.area.page_floats,
                            mapped_of(p.step, p.area, row), k * p.block, (k + 1) * p.block - 1));
}

GW_DEVICE int team_sum(int v) {
    for (int h = GW_LANES / 2; h > 0; h /= 2) {
        v += gw_shuffle_xor(v, h);
    }
    return v;
}
/* How many of n keys are at least `least`. */
GW_DEVICE int count_from(const uint32_t *key, int n, uint32_t least) {
    int count = 0;
    for (int k = gw_lane(); k < n; k += GW_LANES) {
        count += key[k] >= least;
    }
    return team_sum(count);
}

/* gw_choose_keys by a team. */
GW_KERNEL(gw_listed_choose, struct gw_listed_choose_params, GW_LISTED_THREADS) {
    const int here = (int)blockIdx.x * GW_LISTED_TEAMS + gw_team();
    const int row = p.row0 + here / p.lists, lane = gw_lane(), most = p.most;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (here >= p.rows || row >= gw_live(p.step)) {
        return; /* whole teams */
    }
    uint32_t *key = p.keys + (size_t)here * 2 * p.room, least = 0;
    int32_t *order = (int32_t *)(key + p.room);
    const int complete = gw_choose_among(gw_step_pos(p.step, row), p.block, p.local);
    const int text = (gw_step_last(p.step, row) + 1) / p.block;
    const int whole = gw_choose_whole(p.ties, complete, text);
    const int narrows = complete > most;
    int above = 0, listed = 0;
    for (int bit = 31; bit >= 0 && narrows; bit--) {
        const uint32_t next = least | 1u << bit;
        least = count_from(key, complete, next) >= most ? next : least;
    }
    if (narrows) {
        const int reach = count_from(key, complete, least);
        above = least == 0xffffffffu ? 0 : count_from(key, complete, least + 1);
        if (reach > most && whole / 64 < most) {
            for (int k = complete + lane; k < whole; k += GW_LANES) {
                key[k] = 0;
            }
            gw_sync_team();
            if (lane == 0) {
                listed = gw_select(key, order, whole, most);
            }
            listed = team_sum(lane == 0 ? listed : 0);
            gw_sync_team();
            for (int k = lane; k < most && listed; k += GW_LANES) {
                key[order[k]] = 0xffffffffu;
            }
            gw_sync_team();
        }
    }
    int made = 0, equal = most - above;
    float *out = p.out + ((size_t)row * p.lists + here % p.lists) * most;
    for (int base = 0; base < complete; base += GW_LANES) {
        const int k = base + lane, in = k < complete;
        const uint32_t own = in && narrows ? key[k] : 0;
        const int same = in && narrows && !listed && own == least;
        const unsigned lower = (1u << lane) - 1, alike = gw_ballot(same);
        int is = in && (!narrows || (listed ? own == 0xffffffffu : own > least));
        is |= same && __popc(alike & lower) < equal;
        const unsigned chosen = gw_ballot(is);
        const int place = made + __popc(chosen & lower);
        if (is && place < most) {
            out[place] = (float)k;
        }
        made += __popc(chosen);
        equal -= __popc(alike);
    }
    for (int k = made + lane; k < most; k += GW_LANES) {
        out[k] = -1.0f;
    }
}

/* ---- LISTED ---------------------------------------------------------------------------------- */

/* A position of the cache, or an entry of the area. */
struct listed_item {
    const float *entry;
    const void *page; /* of K or of V */
    int at;           /* in the page  */
};
struct listed_row {
    const struct gw_listed_attend_params &p;
    const int32_t *mapped;
    const float *list;
    gw_seen seen;
    int pos, g;
};
GW_DEVICE listed_item item_of(const listed_row &r, int n, int is_k) {
    const struct gw_listed_attend_params &p = r.p;
    listed_item x = {0, 0, 0};
    int of = n / r.seen.each, pos = r.seen.from + n - r.seen.listed;
    of = r.list && n < r.seen.listed ? (int)r.list[of] : of;
    if (n < r.seen.listed && p.area.pages) {
        const gw_area a = area_of(p.area);
        const int last = gw_area_last(&a, of);
        x.entry = area_at(p.area, r.mapped, last, gw_area_entry(&a, last));
        return x;
    }
    pos = n < r.seen.listed ? of * r.seen.each + n % r.seen.each : pos;
    const int e = is_k ? p.e : p.ev;
    const size_t bytes = (size_t)GW_PAGE * e * (p.kind == 0 ? 4 : 2) / (p.kind == 2 ? 2 : 1) +
                         (p.kind == 2 ? (size_t)GW_PAGE * e / 32 * 2 : 0);
    const size_t page = (size_t)r.mapped[pos / GW_PAGE] * p.kv_heads + r.g;
    x.page = (const uint8_t *)(is_k ? p.k : p.v) + page * bytes;
    x.at = pos % GW_PAGE;
    return x;
}
GW_DEVICE float value_of(const listed_row &r, const listed_item &x, int is_k, int c) {
    const int e = is_k ? r.p.e : r.p.ev, at = is_k ? c * GW_PAGE + x.at : x.at * e + c;
    if (x.entry) {
        return x.entry[c];
    }
    if (r.p.kind == 0) {
        return ((const float *)x.page)[at];
    }
    if (r.p.kind == 1) {
        return gw_f16_to_f32(((const gw_u16 *)x.page)[at]);
    }
    const gw_u16 *scales = (const gw_u16 *)((const uint8_t *)x.page + GW_PAGE * e);
    const int scale = is_k ? c / 32 * GW_PAGE + x.at : x.at * (e / 32) + c / 32;
    return gw_f16_to_f32(scales[scale]) * (float)((const gw_i8 *)x.page)[at];
}

GW_KERNEL(gw_listed_attend, struct gw_listed_attend_params, GW_LISTED_THREADS) {
    __shared__ float weights[GW_LISTED_TEAMS][GW_PAGE];
    enum { EACH = GW_LISTED_WIDEST / 32 };
    const int here = (int)blockIdx.y, row = p.row0 + here, lane = gw_lane();
    const int h = (int)blockIdx.x * GW_LISTED_TEAMS + gw_team();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || h >= p.heads) {
        return; /* whole teams */
    }
    const int pos = gw_step_pos(p.step, row), pages_room = (p.room + GW_PAGE - 1) / GW_PAGE;
    const int g = h / (p.heads / p.kv_heads), own = g / (p.kv_heads / p.lists);
    const listed_row r = {
        p,
        p.area.mapped + (size_t)gw_step_slot(p.step, row) * p.area.table_stride,
        p.list ? p.list + ((size_t)row * p.lists + own) * p.most : 0,
        gw_listed_seen(pos, p.area.ratio, p.window, p.area.pages != 0, p.list ? p.most : -1,
                       p.local),
        pos,
        g};
    const int all = r.seen.listed + pos + 1 - r.seen.from, pages = (all + GW_PAGE - 1) / GW_PAGE;
    const float *q = p.q + ((size_t)row * p.heads + h) * p.e;
    float *score = p.scores + ((size_t)here * p.heads + h) * (p.room + pages_room);
    float *tops = score + p.room, *weight = weights[gw_team()];
    float best = p.sinks ? p.sinks[h] : -INFINITY;
    for (int page = 0; page < pages; page++) {
        float top = -INFINITY;
        for (int n = page * GW_PAGE + lane; n < all && n < (page + 1) * GW_PAGE; n += GW_LANES) {
            const listed_item k = item_of(r, n, 1);
            float s = 0.0f;
            for (int c = 0; c < p.e; c++) {
                s = GW_FMA(q[c], value_of(r, k, 1, c), s);
            }
            s = s * p.scale;
            score[n] = s;
            top = s > top ? s : top;
        }
        top = gw_team_top(top);
        best = top > best ? top : best;
        if (lane == 0) {
            tops[page] = top;
        }
    }
    gw_sync_team();
    const int in_k = p.v == 0, v_first = in_k ? p.v_first : 0;
    float total = -0.0f, out[EACH];
    for (int i = 0; i < EACH; i++) {
        out[i] = -0.0f;
    }
    for (int first = 0; first < pages; first += GW_PAGE_GROUP) {
        const int end = first + GW_PAGE_GROUP < pages ? first + GW_PAGE_GROUP : pages;
        float top = -INFINITY, sum = 0.0f, group[EACH];
        for (int page = first; page < end; page++) {
            top = tops[page] > top ? tops[page] : top;
        }
        for (int i = 0; i < EACH; i++) {
            group[i] = 0.0f;
        }
        for (int page = first; page < end; page++) {
            const int base = page * GW_PAGE, n = all - base < GW_PAGE ? all - base : GW_PAGE;
            const float here_top = tops[page], by = gw_exp(here_top - top);
            float two[2];
            for (int k = 0; k < 2; k++) {
                const int j = lane + k * GW_LANES;
                two[k] = j < n ? gw_exp(score[base + j] - here_top) : 0.0f;
                weight[j] = two[k];
            }
            gw_sync_team();
            sum = GW_FMA(gw_fold(two[0] + two[1]), by, sum);
            float o[EACH];
            for (int i = 0; i < EACH; i++) {
                o[i] = 0.0f;
            }
            for (int j = 0; j < n; j++) {
                const listed_item v = item_of(r, base + j, in_k);
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const int c = lane + i * GW_LANES;
                    if (c < p.ev) {
                        o[i] = GW_FMA(weight[j], value_of(r, v, in_k, v_first + c), o[i]);
                    }
                }
            }
            gw_sync_team();
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                group[i] = GW_FMA(o[i], by, group[i]);
            }
        }
        const float by = gw_exp(top - best);
        total = GW_FMA(sum, by, total);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            out[i] = GW_FMA(group[i], by, out[i]);
        }
    }
    total = p.sinks ? total + gw_exp(p.sinks[h] - best) : total;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int c = lane + i * GW_LANES;
        if (c < p.ev) {
            p.out[((size_t)row * p.heads + h) * p.ev + c] = out[i] / total;
        }
    }
}
