/* cpu/ops_scalar.c - the ops in plain C, line by line after arith.h: the anchor that every other
 * level must equal in every bit. Written for reading, not for speed.
 */
#include "cpu/ops.h"

#include <math.h>
#include <string.h>

#include "core/tensor/blocks.h"
#include "core/tensor/digits.h"

static float norm(float *y, const float *x, const float *w, size_t d, float eps) {
    float lane[GW_LANES] = {0.0f};
    for (size_t b = 0; b * GW_ACT_BLOCK < d; b++) {
        size_t left = d - b * GW_ACT_BLOCK;
        lane[b % GW_LANES] +=
            gw_block_squares(x + b * GW_ACT_BLOCK, left < GW_ACT_BLOCK ? (int)left : GW_ACT_BLOCK);
    }
    for (size_t i = 0; i < d; i++) {
        y[i] = x[i] * w[i];
    }
    return gw_rms_scale(gw_fold_lanes(lane), (int)d, eps);
}

static void head_norm(float *y, const float *x, const float *w, size_t d, float eps) {
    float lane[GW_LANES] = {0.0f};
    for (size_t i = 0; i < d; i++) {
        lane[i % GW_LANES] = fmaf(x[i], x[i], lane[i % GW_LANES]);
    }
    float scale = gw_rms_scale(gw_fold_lanes(lane), (int)d, eps);
    for (size_t i = 0; i < d; i++) {
        y[i] = (x[i] * scale) * w[i];
    }
}

static float sum(const float *x, size_t d) {
    float lane[GW_LANES] = {0.0f};
    for (size_t b = 0; b * GW_ACT_BLOCK < d; b++) {
        float block[GW_ACT_BLOCK] = {0.0f};
        size_t left = d - b * GW_ACT_BLOCK;
        memcpy(block, x + b * GW_ACT_BLOCK,
               (left < GW_ACT_BLOCK ? left : GW_ACT_BLOCK) * sizeof *x);
        lane[b % GW_LANES] += gw_fold_lanes(block);
    }
    return gw_fold_lanes(lane);
}

static void encode(gw_act8 *y, const float *x, size_t blocks) {
    for (size_t b = 0; b < blocks; b++) {
        gw_act8_encode(&y[b], x + b * GW_ACT_BLOCK);
    }
}

static void silu_mul(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = gw_silu(gate[i]) * up[i];
    }
}

static void act(float *y, const float *gate, const float *up, size_t n, const gw_cpu_act *a) {
    for (size_t i = 0; i < n; i++) {
        float v = gw_act_gate(a->kind, gate[i], a->limit, a->alpha, a->p, a->q);
        y[i] = up != NULL ? v * gw_act_factor(a->kind, up[i], a->limit) : v;
    }
}

static void rope(float *y, const float *x, const float *table, size_t r, size_t e,
                 int interleaved) {
    size_t half = r / 2;
    for (size_t i = 0; i < half; i++) {
        size_t at = interleaved ? 2 * i : i, to = interleaved ? at + 1 : at + half;
        float a = x[at], b = x[to];
        y[at] = gw_rope_first(a, b, table[i], table[half + i]);
        y[to] = gw_rope_second(a, b, table[i], table[half + i]);
    }
    for (size_t i = r; i < e; i++) {
        y[i] = x[i];
    }
}

static void to_f16(gw_u16 *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = gw_f32_to_f16(x[i]);
    }
}

static void to_q8(gw_i8 *codes, gw_u16 *scales, const float *x, size_t n) {
    for (size_t b = 0; b < n / 32; b++) {
        gw_block_q8_0 block;
        gw_format_of(GW_FMT_Q8_0)->encode(&block, x + 32 * b, 32);
        scales[b] = gw_load_u16(block.d);
        memcpy(codes + 32 * b, block.q, 32);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Value `at` of a page of [e, GW_PAGE] or [GW_PAGE, e]; scale: the place of its scale in q8_0. */
static float cached(const char *page, gw_fmt fmt, int e, size_t at, size_t scale) {
    if (fmt == GW_FMT_F16) {
        return gw_f16_to_f32(((const gw_u16 *)(const void *)page)[at]);
    }
    if (fmt == GW_FMT_F32) {
        return ((const float *)(const void *)page)[at];
    }
    const char *scales = page + GW_PAGE * (size_t)e;
    return gw_load_f16((const gw_u8 *)scales + 2 * scale) * (float)((const gw_i8 *)page)[at];
}

static float cached_k(const char *page, const gw_cpu_attention *job, int i, int j) {
    return cached(page, job->k_fmt, job->e, (size_t)(i * GW_PAGE + j),
                  (size_t)(i / 32 * GW_PAGE + j));
}
static float cached_v(const char *page, const gw_cpu_attention *job, int i, int j) {
    if (job->v == NULL) {
        return cached_k(page, job, job->v_first + i, j);
    }
    return cached(page, job->v_fmt, job->ev, (size_t)(j * job->ev + i),
                  (size_t)(j * (job->ev / 32) + i / 32));
}

/* The page of position 64 * p of a row's sequence in a cache, for one KV head; of 4 or 5 bits as
 * q8_0 in its part of room. */
static const char *page_at(const gw_cpu_attention *job, const void *cache, int row, int g, int p,
                           float *room) {
    size_t page = (size_t)job->pages[(size_t)job->slot[row] * job->page_stride + (size_t)p];
    int is_k = cache == job->k, bits = is_k ? job->k_bits : job->v_bits;
    size_t e = (size_t)(is_k ? job->e : job->ev);
    const char *at = (const char *)cache + (page * (size_t)job->kv_heads + (size_t)g) *
                                               gw_cpu_page_bytes(is_k ? job->k_fmt : job->v_fmt, e);
    room += is_k ? 0 : GW_CPU_CELLS_ROOM(job->e);
    return bits > 0 ? gw_cpu_unpack(room, at, bits, e, is_k) : at;
}

static float join_page(const float *p) {
    float a[GW_PAGE];
    memcpy(a, p, sizeof a);
    for (int h = GW_PAGE / 2; h > 0; h /= 2) {
        for (int j = 0; j < h; j++) {
            a[j] = a[j] + a[j + h];
        }
    }
    return a[0];
}

/* One query: scores [pages * GW_PAGE], top [pages] (page maxima), sums [e] (a group of pages). */
static void attend_one(const gw_cpu_attention *job, int row, size_t head, const float *q,
                       float *out, float *scores, float *top, float *sums, float *room) {
    int e = job->e, ev = job->ev, g = (int)head / job->group;
    int pos = job->pos[row], lo = gw_cpu_first_seen(pos, job->window, job->chunk);
    int high = gw_cpu_last_seen(job, row), first = lo / GW_PAGE, last = high / GW_PAGE;
    float best = job->sinks != NULL ? job->sinks[head] : -INFINITY;
    for (int p = first; p <= last; p++) {
        const char *page = page_at(job, job->k, row, g, p, room);
        top[p - first] = -INFINITY;
        for (int j = 0; j < GW_PAGE; j++) {
            int seen = p * GW_PAGE + j >= lo && p * GW_PAGE + j <= high;
            float s = 0.0f;
            for (int i = 0; i < e && seen; i++) {
                s = fmaf(q[i], cached_k(page, job, i, j), s);
            }
            s = gw_cpu_shape_score(job, head, s * job->scale, p * GW_PAGE + j - pos);
            scores[(p - first) * GW_PAGE + j] = s;
            top[p - first] = seen && s > top[p - first] ? s : top[p - first];
        }
        best = top[p - first] > best ? top[p - first] : best;
    }
    float total = -0.0f; /* so that a single group's sums are the result's, whatever their sign */
    for (int i = 0; i < ev; i++) {
        out[i] = -0.0f;
    }
    for (int base = first; base <= last; base += GW_PAGE_GROUP) {
        int stop = base + GW_PAGE_GROUP <= last ? base + GW_PAGE_GROUP : last + 1;
        float best_here = -INFINITY, total_here = 0.0f;
        for (int p = base; p < stop; p++) {
            best_here = top[p - first] > best_here ? top[p - first] : best_here;
        }
        for (int i = 0; i < ev; i++) {
            sums[i] = 0.0f;
        }
        for (int p = base; p < stop; p++) {
            const char *page = page_at(job, job->v != NULL ? job->v : job->k, row, g, p, room);
            float *s = scores + (p - first) * GW_PAGE;
            int from = lo > p * GW_PAGE ? lo - p * GW_PAGE : 0;
            int end = high < (p + 1) * GW_PAGE ? high - p * GW_PAGE + 1 : GW_PAGE;
            for (int j = 0; j < GW_PAGE; j++) {
                s[j] = j >= from && j < end ? gw_exp(s[j] - top[p - first]) : 0.0f;
            }
            float weight = gw_exp(top[p - first] - best_here);
            total_here = fmaf(join_page(s), weight, total_here);
            for (int i = 0; i < ev; i++) {
                float o = 0.0f;
                for (int j = from; j < end; j++) {
                    o = fmaf(s[j], cached_v(page, job, i, j), o);
                }
                sums[i] = fmaf(o, weight, sums[i]);
            }
        }
        float weight = gw_exp(best_here - best);
        total = fmaf(total_here, weight, total);
        for (int i = 0; i < ev; i++) {
            out[i] = fmaf(sums[i], weight, out[i]);
        }
    }
    total = job->sinks != NULL ? total + gw_exp(job->sinks[head] - best) : total;
    for (int i = 0; i < ev; i++) {
        out[i] = out[i] / total;
    }
}

/* ---- attention in digits --------------------------------------------------------------------- */

typedef struct digits {
    gw_i32 n[GW_DIGITS_MOST];
    float scale;
} digits;

static void cut_digits(digits *d, const float *x, int n) {
    gw_u32 size = 0;
    for (int i = 0; i < n; i++) {
        size = gw_digits_size(x[i]) > size ? gw_digits_size(x[i]) : size;
    }
    float amax = gw_digits_amax(size), inverse = gw_digits_inverse(amax);
    d->scale = gw_digits_scale(amax);
    for (int i = 0; i < n; i++) {
        d->n[i] = gw_digits_of(x[i], inverse);
    }
}

/* 256 high high + high low + low high. */
static gw_i32 multiply_digits(gw_i32 a, gw_i32 b) {
    return a * gw_digits_high(b) + gw_digits_high(a) * gw_digits_low(b);
}

/* M, L and O of some pages. */
typedef struct softmax_state {
    float top, sum, o[GW_DIGITS_MOST];
} softmax_state;

static void open_state(softmax_state *s) { *s = (softmax_state){.top = -INFINITY}; }

static void join_state(softmax_state *s, const softmax_state *more, int ev) {
    float top = more->top > s->top ? more->top : s->top;
    float was = gw_exp(s->top - top), now = gw_exp(more->top - top);
    s->top = top;
    s->sum = fmaf(more->sum, now, s->sum * was);
    for (int i = 0; i < ev; i++) {
        s->o[i] = fmaf(more->o[i], now, s->o[i] * was);
    }
}

static void sum_digits(const gw_cpu_attention *job, const char *k, const char *v, const digits *q,
                       softmax_state *out) {
    float p[GW_PAGE], x[GW_DIGITS_MOST], most[GW_DIGITS_MOST];
    float by = q->scale * 256.0f * job->scale;
    gw_i32 sums[GW_DIGITS_MOST] = {0}, weights = 0;
    digits d;
    out->top = -INFINITY;
    for (int j = 0; j < GW_PAGE; j++) {
        gw_i32 sum = 0;
        for (int i = 0; i < job->e; i++) {
            x[i] = cached_k(k, job, i, j);
        }
        cut_digits(&d, x, job->e);
        for (int i = 0; i < job->e; i++) {
            sum += multiply_digits(q->n[i], d.n[i]);
        }
        p[j] = (float)sum * (by * d.scale);
        out->top = p[j] > out->top ? p[j] : out->top;
    }
    for (int i = 0; i < job->ev; i++) {
        gw_u32 size = 0;
        for (int j = 0; j < GW_PAGE; j++) {
            gw_u32 here = gw_digits_size(cached_v(v, job, i, j));
            size = here > size ? here : size;
        }
        most[i] = gw_digits_amax(size);
    }
    gw_i32 cut[GW_PAGE][GW_DIGITS_MOST];
    for (int j = 0; j < GW_PAGE; j++) {
        for (int i = 0; i < job->ev; i++) {
            x[i] = most[i] == 0.0f ? 0.0f : cached_v(v, job, i, j) / most[i];
        }
        cut_digits(&d, x, job->ev);
        memcpy(cut[j], d.n, sizeof cut[j]);
        p[j] = gw_exp(p[j] - out->top);
        weights += gw_digits_of(p[j], (float)GW_DIGITS_TOP);
        p[j] = p[j] * d.scale;
    }
    out->sum = (float)weights * GW_DIGITS_PART;
    cut_digits(&d, p, GW_PAGE);
    for (int j = 0; j < GW_PAGE; j++) {
        for (int i = 0; i < job->ev; i++) {
            sums[i] += multiply_digits(d.n[j], cut[j][i]);
        }
    }
    for (int i = 0; i < job->ev; i++) {
        out->o[i] = (float)sums[i] * (d.scale * 256.0f * most[i]);
    }
}

/* The page of the row's own position, of which it sees n positions. */
static void sum_own_page(const gw_cpu_attention *job, const char *k, const char *v, const float *q,
                         int n, softmax_state *out) {
    float p[GW_PAGE] = {0.0f};
    out->top = -INFINITY;
    for (int j = 0; j < n; j++) {
        float s = 0.0f;
        for (int i = 0; i < job->e; i++) {
            s = fmaf(q[i], cached_k(k, job, i, j), s);
        }
        p[j] = s * job->scale;
        out->top = p[j] > out->top ? p[j] : out->top;
    }
    for (int j = 0; j < n; j++) {
        p[j] = gw_exp(p[j] - out->top);
    }
    out->sum = join_page(p);
    for (int i = 0; i < job->ev; i++) {
        out->o[i] = 0.0f;
        for (int j = 0; j < n; j++) {
            out->o[i] = fmaf(p[j], cached_v(v, job, i, j), out->o[i]);
        }
    }
}

static void attend_one_digits(const gw_cpu_attention *job, int row, size_t head, const float *q,
                              float *out, float *room) {
    int g = (int)head / job->group, own = job->pos[row] / GW_PAGE;
    softmax_state all, group, page;
    digits d;
    cut_digits(&d, q, job->e);
    open_state(&all);
    for (int first = 0; first < own; first += GW_DIGITS_GROUP) {
        open_state(&group);
        for (int p = first; p < own && p < first + GW_DIGITS_GROUP; p++) {
            sum_digits(job, page_at(job, job->k, row, g, p, room),
                       page_at(job, job->v, row, g, p, room), &d, &page);
            join_state(&group, &page, job->ev);
        }
        join_state(&all, &group, job->ev);
    }
    sum_own_page(job, page_at(job, job->k, row, g, own, room),
                 page_at(job, job->v, row, g, own, room), q, job->pos[row] % GW_PAGE + 1, &page);
    join_state(&all, &page, job->ev);
    if (job->sinks != NULL) {
        float sink = job->sinks[head], top = sink > all.top ? sink : all.top;
        float was = gw_exp(all.top - top);
        all.sum = all.sum * was + gw_exp(sink - top);
        for (int i = 0; i < job->ev; i++) {
            all.o[i] = all.o[i] * was;
        }
    }
    for (int i = 0; i < job->ev; i++) {
        out[i] = all.o[i] / all.sum;
    }
}

#define NAME(f) f##_scalar
#define VT
#include "cpu/attend_codes_body.h"
#undef NAME
#undef VT

size_t gw_cpu_codes_scratch(size_t heads, size_t pages, size_t e) {
    size_t parts = GW_PAGE_GROUP + pages / GW_PAGE_GROUP + 1;
    return 2 * GW_CPU_CELLS_ROOM(e) * sizeof(float) + heads * sizeof(codes_query_scalar) +
           parts * heads * sizeof(codes_sums_scalar);
}

static void attend(const gw_cpu_attention *job, const gw_cpu_attention_part *part, void *scratch) {
    if (job->codes) {
        attend_codes_scalar(job, part, scratch);
        return;
    }
    size_t e = (size_t)job->e, ev = (size_t)job->ev;
    float *q = scratch, *room = q + e;
    float *scores = room + GW_CPU_CELLS_ROOM(e) + GW_CPU_CELLS_ROOM(ev);
    for (int i = 0; i < part->rows * part->heads; i++) {
        int row = part->row + i / part->heads, head = i % part->heads;
        size_t at = (size_t)(part->g * job->group + part->head + head);
        float *out = part->out + (size_t)(i / part->heads) * part->out_stride + (size_t)head * ev;
        gw_cpu_take_query(job, q, job->q + (size_t)row * job->q_stride + at * e);
        if (job->digits) {
            attend_one_digits(job, row, at, q, out, room);
        } else {
            int lo = gw_cpu_first_seen(job->pos[row], job->window, job->chunk);
            size_t pages = (size_t)(gw_cpu_last_seen(job, row) / GW_PAGE - lo / GW_PAGE + 1);
            float *top = scores + pages * GW_PAGE;
            attend_one(job, row, at, q, out, scores, top, top + pages, room);
        }
    }
}

/* A query, and a page of keys and one of values as q8_0. */
static size_t unpacked_floats(size_t e) { return e + 2 * GW_CPU_CELLS_ROOM(e); }

size_t gw_cpu_attention_scratch(size_t queries, size_t pages, size_t e) {
    size_t groups = pages / GW_PAGE_GROUP + 1, room = GW_ATTEND_ROOM(e);
    size_t floats = queries * (pages * (GW_PAGE + 2) + groups + 3) + 4 * queries * room +
                    GW_PAGE * room + 64 + (GW_PAGE + e) * GW_ATTEND_TURNED + unpacked_floats(e);
    return floats * sizeof(float);
}

size_t gw_cpu_digits_scratch(size_t queries, size_t e) {
    enum { EACH = 11, ARRAYS = 11, LINE = 16 }; /* EACH: arrays of a number for each query */
    size_t floats = queries * (4 * e + GW_PAGE + EACH) + 3 * GW_PAGE * e + 2 * GW_PAGE + e +
                    unpacked_floats(e);
    return (floats + (EACH + ARRAYS) * LINE) * sizeof(float);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void conv(float *y, const float *const *x, const float *w, const float *bias,
                 const gw_cpu_conv *c, size_t from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int t = 0; t < c->taps; t++) {
            sum = fmaf(w[(size_t)t * c->width + from + i], x[t][from + i], sum);
        }
        y[i] = bias != NULL ? sum + bias[from + i] : sum;
    }
}

static void scan_delta(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n) {
    for (size_t c = 0; c < n; c++) {
        float known = 0.0f, out = 0.0f;
        for (size_t j = 0; j < s->keys; j++) {
            known = fmaf(s->k[j], from[j * s->width + c] * s->d[j * s->d_step], known);
        }
        float u = (s->v[c] - known) * s->beta;
        for (size_t j = 0; j < s->keys; j++) {
            float m = fmaf(s->k[j], u, from[j * s->width + c] * s->d[j * s->d_step]);
            to[j * s->width + c] = m;
            out = fmaf(s->q[j], m, out);
        }
        y[c] = out;
    }
}

static void scan_ssm(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n) {
    for (size_t c = 0; c < n; c++) {
        float x = s->v[c], u = s->beta * x, out = 0.0f;
        for (size_t j = 0; j < s->keys; j++) {
            float m = fmaf(s->k[j], u, from[j * s->width + c] * s->d[0]);
            to[j * s->width + c] = m;
            out = fmaf(s->q[j], m, out);
        }
        y[c] = fmaf(s->skip, x, out);
    }
}

static void scan_steps(float *t, const float *x, const float *bias, size_t n, float low,
                       float high) {
    for (size_t i = 0; i < n; i++) {
        float v = gw_softplus(bias != NULL ? x[i] + bias[i] : x[i]);
        t[i] = v < low ? low : v > high ? high : v;
    }
}

static void scan_channels(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n) {
    for (size_t c = 0; c < n; c++) {
        float x = s->v[c], t = s->steps[c], u = t * x, out = 0.0f;
        for (size_t j = 0; j < s->keys; j++) {
            size_t at = j * s->width + c;
            float m = fmaf(s->k[j], u, from[at] * gw_exp(t * s->d[at]));
            to[at] = m;
            out = fmaf(s->q[j], m, out);
        }
        y[c] = fmaf(s->skips[c], x, out);
    }
}

static void scan_wkv(float *y, float *to, const float *from, const gw_cpu_scan *s, size_t n) {
    for (size_t c = 0; c < n; c++) {
        float known = 0.0f, out = 0.0f;
        for (size_t j = 0; j < s->keys; j++) {
            known = fmaf(s->e[j], from[j * s->width + c], known);
        }
        for (size_t j = 0; j < s->keys; j++) {
            float m = fmaf(s->b[j], -known, from[j * s->width + c] * s->d[j]);
            m = fmaf(s->k[j], s->v[c], m);
            to[j * s->width + c] = m;
            out = fmaf(s->q[j], m, out);
        }
        y[c] = out;
    }
}

const gw_cpu_ops gw_cpu_ops_scalar = {.level = GW_CPU_SCALAR,
                                      .norm = norm,
                                      .head_norm = head_norm,
                                      .sum = sum,
                                      .encode = encode,
                                      .silu_mul = silu_mul,
                                      .act = act,
                                      .rope = rope,
                                      .to_f16 = to_f16,
                                      .to_q8 = to_q8,
                                      .attend = attend,
                                      .conv = conv,
                                      .scan_delta = scan_delta,
                                      .scan_ssm = scan_ssm,
                                      .scan_steps = scan_steps,
                                      .scan_channels = scan_channels,
                                      .scan_wkv = scan_wkv,
                                      .attend_multiple = 1};
