/* backends/cpu/listed.c - hyper-connections, ROTATE, GROUP_DOT, compressed caches and attention
 * over lists, n-grams: rows to threads. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/tensor/sample.h"

static const float *floats(const char *base, size_t stride, size_t i) {
    return (const float *)(const void *)(base + i * stride);
}

static float *out_row(const gw_cpu_launch *l, size_t i) {
    return (float *)(void *)(l->out + i * l->out_stride);
}

static void run_rows(const gw_cpu_launch *l, gw_cpu_worker *worker,
                     void (*row)(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i)) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 1, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            row(l, worker, i);
        }
    }
}

static int accepts_floats(const gw_node *node) {
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

/* ---- HYPER ----------------------------------------------------------------------------------- */

static void hyper_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const gw_hyper_args *a = &l->u.hyper.args;
    (void)worker;
    gw_hyper_row(a->streams, a->rounds, a->eps, l->u.hyper.in_only, floats(l->in, l->in_stride, i),
                 l->u.hyper.scale, l->u.hyper.base, out_row(l, i));
}

static void run_hyper(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_rows(l, worker, hyper_row);
}

int gw_cpu_accepts_hyper(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel, (void)device;
    return accepts_floats(node);
}

gw_status gw_cpu_record_hyper(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_hyper;
    l->u.hyper.args = node->args.hyper;
    l->u.hyper.in_only = node->out->dim[1] == node->args.hyper.streams;
    GW_TRY(gw_cpu_vector(segment, node->w[0], &l->u.hyper.scale));
    return gw_cpu_vector(segment, node->w[1], &l->u.hyper.base);
}

/* ---- ROTATE ---------------------------------------------------------------------------------- */

static void rotate_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const gw_rotate_args *a = &l->u.rotate.args;
    size_t r = (size_t)a->rope_dim, e = l->width / (size_t)a->heads;
    float *y = out_row(l, i), *angles = (float *)(void *)worker->scratch;
    memcpy(y, floats(l->in, l->in_stride, i), l->width * sizeof *y);
    if (r == 0) {
        return;
    }
    memcpy(angles, l->u.rotate.table + (size_t)(worker->step->pos[i] - worker->step->less[i]) * r,
           r * sizeof *angles);
    for (size_t k = r / 2; k < r && a->back; k++) {
        angles[k] = -angles[k];
    }
    for (size_t h = 0; h < (size_t)a->heads; h++) {
        float *at = y + h * e + a->first;
        l->ops->rope(at, at, angles, r, r, a->style == GW_ROPE_INTERLEAVED);
    }
}

static void run_rotate(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_rows(l, worker, rotate_row);
}

int gw_cpu_accepts_rotate(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel, (void)device;
    return accepts_floats(node);
}

gw_status gw_cpu_record_rotate(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_rotate;
    l->u.rotate.args = node->args.rotate;
    gw_cpu_need_scratch(segment, (size_t)(node->args.rotate.rope_dim + 1) * sizeof(float));
    return gw_cpu_vector(segment, node->w[0], &l->u.rotate.table);
}

/* ---- GROUP_DOT ------------------------------------------------------------------------------- */

static void dot_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    size_t groups = (size_t)l->u.dot.groups, m = l->in_stride / sizeof(float) / groups;
    const float *x = floats(l->in, l->in_stride, i), *z = floats(l->in1, l->in1_stride, i);
    (void)worker;
    for (size_t g = 0; g < groups; g++) {
        float lane[GW_LANES] = {0.0f};
        for (size_t k = 0; k < m; k++) {
            lane[k % GW_LANES] = fmaf(x[g * m + k], z[g * m + k], lane[k % GW_LANES]);
        }
        out_row(l, i)[g] = gw_dot_value(gw_fold_lanes(lane), l->u.dot.scale, l->u.dot.root);
    }
}

static void run_dot(const gw_cpu_launch *l, gw_cpu_worker *worker) { run_rows(l, worker, dot_row); }

int gw_cpu_accepts_group_dot(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    (void)kernel, (void)device;
    return accepts_floats(node) && node->in[1]->fmt == GW_FMT_F32;
}

gw_status gw_cpu_record_group_dot(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_dot;
    l->u.dot = node->args.dot;
    return GW_OK;
}

/* ---- areas ----------------------------------------------------------------------------------- */

static const int32_t *pages_of(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t i) {
    return l->u.area.mapped + (size_t)worker->step->slot[i] * l->u.area.page_stride;
}

/* `from`: of gw_area_row or gw_area_entry. */
static float *area_at(const gw_cpu_launch *l, const int32_t *pages, int pos, int from) {
    return l->u.area.pages + (size_t)pages[pos / GW_PAGE] * l->u.area.page_floats + from;
}

static void take_area(gw_cpu_launch *l, const gw_tensor *pages, const gw_tensor *table) {
    l->u.area.pages = (float *)(void *)gw_cpu_data(pages);
    l->u.area.page_floats = (size_t)pages->dim[1];
    l->u.area.mapped = (const int32_t *)(const void *)gw_cpu_data(table);
    l->u.area.page_stride = (size_t)table->dim[1];
}

static void keep_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const gw_area *a = &l->u.area.compress.area;
    int pos = worker->step->pos[i];
    memcpy(area_at(l, pages_of(l, worker, i), pos, gw_area_row(a, pos)),
           floats(l->in, l->in_stride, i), (size_t)gw_area_kept(a) * sizeof(float));
}

static void run_keep(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_rows(l, worker, keep_row);
}

/* The entry that row i completes. */
static void compress_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const gw_compress_args *c = &l->u.area.compress;
    const gw_area *a = &c->area;
    const int32_t *pages = pages_of(l, worker, i);
    int last = worker->step->pos[i];
    size_t e = (size_t)a->entry, r = (size_t)c->rope_dim;
    if ((last + 1) % a->ratio != 0) {
        return;
    }
    float *to = area_at(l, pages, last, gw_area_entry(a, last));
    float *x = (float *)(void *)worker->scratch;
    for (size_t k = 0; k < e; k++) {
        x[k] = gw_area_column(a, c->series, l->u.area.pages, l->u.area.page_floats, pages,
                              l->u.area.bias, last, (int)k);
    }
    if (l->u.area.weight != NULL) {
        l->ops->head_norm(to, x, l->u.area.weight, e, c->eps);
    } else {
        memcpy(to, x, e * sizeof *to);
    }
    if (r > 0) {
        const float *angles = l->u.area.table + (size_t)(last + 1 - a->ratio) * r;
        l->ops->rope(to + c->first, to + c->first, angles, r, r, c->style == GW_ROPE_INTERLEAVED);
    }
}

static void run_compress(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_rows(l, worker, compress_row);
}

int gw_cpu_accepts_compress(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel, (void)device;
    return node->in[0]->fmt == GW_FMT_F32;
}

/* All rows are kept before an entry is made of them. */
gw_status gw_cpu_record_compress(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    gw_cpu_launch *keep = gw_cpu_append(segment, kernel, node);
    keep->run = run_keep;
    keep->u.area.compress = node->args.compress;
    take_area(keep, node->in[1], node->in[2]);
    if (node->args.compress.area.width == 0) {
        return GW_OK;
    }
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_compress;
    l->u.area.compress = node->args.compress;
    take_area(l, node->in[1], node->in[2]);
    gw_cpu_need_scratch(segment, (size_t)node->args.compress.area.entry * sizeof(float));
    GW_TRY(gw_cpu_vector(segment, node->w[0], &l->u.area.bias));
    GW_TRY(gw_cpu_vector(segment, node->w[1], &l->u.area.weight));
    return gw_cpu_vector(segment, node->w[2], &l->u.area.table);
}

static void choose_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const gw_choose_args *c = &l->u.area.choose;
    const gw_area *a = &c->area;
    const int32_t *pages = pages_of(l, worker, i);
    int n = (worker->step->pos[i] + 1) / a->ratio, most = (int)l->width;
    int text = (worker->step->last[i] + 1) / a->ratio, room = text > n ? text : n;
    gw_u32 *key = (gw_u32 *)(void *)worker->scratch;
    const float *q = floats(l->in, l->in_stride, i);
    const float *by = l->u.area.by != NULL ? floats(l->u.area.by, l->u.area.by_stride, i) : NULL;
    for (int k = 0; k < n && n > most; k++) {
        int last = gw_area_last(a, k);
        key[k] = gw_float_key(gw_area_score(q, by, c->heads, a->entry,
                                            area_at(l, pages, last, gw_area_entry(a, last))));
    }
    gw_choose_keys(key, (int32_t *)(void *)(key + room), n, gw_choose_whole(c->ties, n, text), most,
                   out_row(l, i));
}

/* Row i's list of blocks for head h. */
static void choose_blocks(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i, size_t h) {
    const gw_choose_args *c = &l->u.area.choose;
    const gw_area *a = &c->area;
    const int32_t *pages = pages_of(l, worker, i);
    int n = gw_choose_among(worker->step->pos[i], c->block, c->local);
    int most = (int)l->width / c->heads;
    gw_u32 *key = (gw_u32 *)(void *)worker->scratch;
    const float *q = floats(l->in, l->in_stride, i) + h * (size_t)a->entry;
    for (int k = 0; k < n && n > most; k++) {
        key[k] = gw_float_key(gw_area_block_score(a, q, l->u.area.pages, l->u.area.page_floats,
                                                  pages, k * c->block, (k + 1) * c->block - 1));
    }
    gw_choose_keys(key, (int32_t *)(void *)(key + n), n, gw_choose_whole(c->ties, n, n), most,
                   out_row(l, i) + h * (size_t)most);
}

static void run_choose(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end, heads = (size_t)l->u.area.choose.heads;
    size_t rows = (size_t)gw_cpu_live(l, worker->step);
    if (l->u.area.choose.block == 0) {
        run_rows(l, worker, choose_row);
        return;
    }
    while (gw_cpu_take(worker, rows * heads, 1, &first, &end)) {
        for (size_t p = first; p < end; p++) {
            choose_blocks(l, worker, p / heads, p % heads);
        }
    }
}

int gw_cpu_accepts_choose(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel, (void)device;
    return accepts_floats(node);
}

gw_status gw_cpu_record_choose(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    size_t entries = (size_t)node->in[2]->dim[1] * GW_PAGE / (size_t)node->args.choose.area.ratio;
    l->run = run_choose;
    l->u.area.choose = node->args.choose;
    take_area(l, node->in[1], node->in[2]);
    if (node->in[3] != NULL) {
        l->u.area.by = gw_cpu_data(node->in[3]);
        l->u.area.by_stride = gw_cpu_row_stride(node->in[3]);
    }
    gw_cpu_need_scratch(segment, 2 * (entries + 1) * sizeof(gw_u32));
    return GW_OK;
}

/* ---- LISTED ---------------------------------------------------------------------------------- */

/* Cell i of a page of width e; scale: which of its scales is its own. */
static float cell(gw_fmt kv, const char *page, size_t e, size_t i, size_t scale) {
    const gw_u16 *cells = (const gw_u16 *)(const void *)page;
    if (kv == GW_FMT_F32) {
        return ((const float *)(const void *)page)[i];
    }
    return kv == GW_FMT_F16
               ? gw_f16_to_f32(cells[i])
               : gw_f16_to_f32(cells[GW_PAGE * e / 2 + scale]) * (float)((const gw_i8 *)page)[i];
}

/* Column `column` of K and row `column` of V, [e, P] and [P, ev], from position pos of the cache; v
 * NULL: K alone. */
static void gather_position(const gw_cpu_launch *l, const int32_t *pages, size_t g, int pos,
                            float *k, float *v, size_t column) {
    size_t e = (size_t)l->u.listed.args.head_dim, ev = l->u.listed.ev;
    size_t at = (size_t)(pos % GW_PAGE);
    size_t page = (size_t)pages[pos / GW_PAGE] * (size_t)l->u.listed.args.kv_heads + g;
    const char *from = l->u.listed.k + page * gw_cpu_page_bytes(l->u.listed.kv, e);
    for (size_t c = 0; c < e; c++) {
        k[c * GW_PAGE + column] =
            cell(l->u.listed.kv, from, e, c * GW_PAGE + at, c / 32 * GW_PAGE + at);
    }
    from = v != NULL ? l->u.listed.v + page * gw_cpu_page_bytes(l->u.listed.kv, ev) : NULL;
    for (size_t c = 0; c < ev && v != NULL; c++) {
        v[column * ev + c] = cell(l->u.listed.kv, from, ev, at * ev + c, at * (ev / 32) + c / 32);
    }
}

static void gather_entry(const gw_cpu_launch *l, const int32_t *pages, int entry, float *k,
                         float *v, size_t column) {
    const gw_area *a = &l->u.listed.args.area;
    size_t e = (size_t)a->entry;
    int last = gw_area_last(a, entry);
    const float *from = l->u.listed.pages +
                        (size_t)pages[last / GW_PAGE] * l->u.listed.page_floats +
                        gw_area_entry(a, last);
    for (size_t c = 0; c < e; c++) {
        k[c * GW_PAGE + column] = from[c];
    }
    memcpy(v + column * e, from, e * sizeof *v);
}

/* One row and KV head: what it sees side by side in pages of floats, and attention over those. */
static void listed_head(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i, size_t g) {
    const gw_listed_args *a = &l->u.listed.args;
    size_t e = (size_t)a->head_dim, group = (size_t)(a->heads / a->kv_heads), n = 0;
    const int32_t *pages =
        l->u.listed.mapped + (size_t)worker->step->slot[i] * l->u.listed.page_stride;
    const float *list =
        l->u.listed.list != NULL ? floats(l->u.listed.list, l->u.listed.list_stride, i) : NULL;
    int pos = worker->step->pos[i], has_area = l->u.listed.pages != NULL;
    int lists = a->lists > 1 ? a->lists : 1;
    int most = list != NULL ? (int)(l->u.listed.list_stride / sizeof(float)) / lists : -1;
    gw_seen s = gw_listed_seen(pos, a->area.ratio, a->window, has_area, most, a->local);
    list = list != NULL ? list + g / (size_t)(a->kv_heads / lists) * (size_t)most : NULL;
    int32_t *numbers = (int32_t *)(void *)(worker->scratch + l->u.listed.attend);
    float *k = (float *)(void *)(numbers + l->u.listed.most / GW_PAGE + GW_PAGE);
    float *v = l->u.listed.v != NULL ? k + l->u.listed.most * e : NULL;
    size_t ev = l->u.listed.ev;
    int all = s.listed + pos + 1 - s.from;
    for (; n < (size_t)all; n++) {
        float *to_k = k + n / GW_PAGE * GW_PAGE * e;
        float *to_v = v != NULL ? v + n / GW_PAGE * GW_PAGE * ev : NULL;
        int x = (int)n / s.each, own = s.from + (int)n - s.listed;
        x = list != NULL && (int)n < s.listed ? (int)list[x] : x;
        if ((int)n < s.listed && has_area) {
            gather_entry(l, pages, x, to_k, to_v, n % GW_PAGE);
        } else {
            own = (int)n < s.listed ? x * s.each + (int)n % s.each : own;
            gather_position(l, pages, g, own, to_k, to_v, n % GW_PAGE);
        }
        numbers[n / GW_PAGE] = (int32_t)(n / GW_PAGE);
    }
    const int32_t last = all - 1, slot = 0;
    const gw_cpu_attention job = {.q = floats(l->in, l->in_stride, i) + g * group * e,
                                  .q_stride = group * e,
                                  .k = k,
                                  .v = v,
                                  .k_fmt = GW_FMT_F32,
                                  .v_fmt = GW_FMT_F32,
                                  .pages = numbers,
                                  .page_stride = l->u.listed.most / GW_PAGE,
                                  .pos = &last,
                                  .slot = &slot,
                                  .kv_heads = 1,
                                  .group = (int)group,
                                  .e = (int)e,
                                  .ev = (int)ev,
                                  .v_first = a->v_first,
                                  .scale = a->scale,
                                  .sinks = l->u.listed.sinks != NULL ? l->u.listed.sinks + g * group
                                                                     : NULL};
    const gw_cpu_attention_part part = {.rows = 1,
                                        .heads = (int)group,
                                        .out = out_row(l, i) + g * group * ev,
                                        .out_stride = group * ev};
    l->ops->attend(&job, &part, worker->scratch);
}

static void run_listed(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end, heads = (size_t)l->u.listed.args.kv_heads;
    size_t rows = (size_t)gw_cpu_live(l, worker->step);
    while (gw_cpu_take(worker, rows * heads, 1, &first, &end)) {
        for (size_t p = first; p < end; p++) {
            listed_head(l, worker, p / heads, p % heads);
        }
    }
}

int gw_cpu_accepts_listed(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    const gw_cpu_ops *ops = gw_cpu_ops_of(gw_cpu_row_of(kernel)->level);
    gw_fmt kv = node->in[1]->fmt;
    (void)device;
    return accepts_floats(node) && node->args.listed.head_dim % ops->attend_multiple == 0 &&
           node->args.listed.v_dim % ops->attend_multiple == 0 &&
           (kv == GW_FMT_F32 || kv == GW_FMT_F16 || kv == GW_FMT_Q8_0);
}

gw_status gw_cpu_record_listed(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_listed_args *a = &node->args.listed;
    const gw_tensor *list = node->in[4], *area = node->in[5], *table = node->in[3];
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    size_t context = (size_t)table->dim[1] * GW_PAGE, ratio = (size_t)a->area.ratio;
    size_t e = (size_t)a->head_dim, group = (size_t)(a->heads / a->kv_heads), line = GW_CACHE_LINE;
    size_t ev = a->v_dim > 0 ? (size_t)a->v_dim : e;
    size_t most = area != NULL ? context / ratio : context;
    size_t local = a->local > 1 ? (size_t)a->local : 1, lists = a->lists > 1 ? (size_t)a->lists : 1;
    size_t own = area != NULL ? (size_t)a->window : ratio * local;
    size_t listed = list != NULL ? (size_t)list->dim[1] / lists * (area != NULL ? 1 : ratio) : most;
    most = (listed < most ? listed : most) + own;
    most = (most + GW_PAGE) / GW_PAGE * GW_PAGE;
    l->run = run_listed;
    l->u.listed.args = *a;
    l->u.listed.k = gw_cpu_data(node->in[1]);
    l->u.listed.v = node->in[2] != NULL ? gw_cpu_data(node->in[2]) : NULL;
    l->u.listed.ev = ev;
    l->u.listed.kv = node->in[1]->fmt;
    l->u.listed.mapped = (const int32_t *)(const void *)gw_cpu_data(table);
    l->u.listed.page_stride = (size_t)table->dim[1];
    l->u.listed.most = most;
    if (list != NULL) {
        l->u.listed.list = gw_cpu_data(list);
        l->u.listed.list_stride = gw_cpu_row_stride(list);
    }
    if (area != NULL) {
        l->u.listed.pages = (const float *)(const void *)gw_cpu_data(area);
        l->u.listed.page_floats = (size_t)area->dim[1];
    }
    size_t need = gw_cpu_attention_scratch(group, most / GW_PAGE, e > ev ? e : ev);
    l->u.listed.attend = (need + line - 1) / line * line;
    gw_cpu_need_scratch(segment, l->u.listed.attend + (most / GW_PAGE + GW_PAGE) * sizeof(int32_t) +
                                     most * (e + (node->in[2] != NULL ? ev : 0)) * sizeof(float));
    return gw_cpu_vector(segment, node->w[0], &l->u.listed.sinks);
}

/* ---- NGRAM ----------------------------------------------------------------------------------- */

static int32_t token_of(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t i) {
    int32_t token = worker->step->token[i];
    if (token < 0 && l->in != NULL) {
        memcpy(&token, l->in + i * l->in_stride, sizeof token);
    }
    return token < 0 ? 0 : token;
}

/* The token `back` before row i, and 1 more than that in the state; -1: none. */
static int32_t token_before(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t i,
                            int back) {
    const gw_step *step = worker->step;
    size_t at = i;
    for (size_t j = i; j-- > 0 && back > 0;) {
        if (step->slot[j] == step->slot[i]) {
            at = j;
            back--;
        }
    }
    if (back == 0) {
        return token_of(l, worker, at);
    }
    size_t entry =
        (size_t)step->slot[i] * l->u.ngram.entries + (size_t)step->pos[at] % l->u.ngram.entries;
    const float *known = l->u.ngram.state + entry * (size_t)(l->u.ngram.hashes->size - 1);
    return step->pos[at] > 0 ? (int32_t)known[back - 1] - 1 : -1;
}

/* Rows of the same sequence behind row i. */
static size_t rows_behind(const gw_step *step, size_t rows, size_t i) {
    size_t n = 0;
    for (size_t j = i + 1; j < rows; j++) {
        n += step->slot[j] == step->slot[i];
    }
    return n;
}

static void ngram_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const gw_ngram *a = l->u.ngram.hashes;
    int32_t token[GW_NGRAM_SIZE];
    int64_t row[GW_NGRAM_HASHES];
    token[0] = token_of(l, worker, i);
    for (int k = 1; k < a->size; k++) {
        token[k] = token_before(l, worker, i, k);
    }
    gw_ngram_find(a, token, row);
    for (int h = 0; h < (a->size - 1) * a->heads; h++) {
        gw_format_of(l->u.ngram.fmt)
            ->decode(out_row(l, i) + (size_t)h * l->u.ngram.wide,
                     l->u.ngram.table + (size_t)row[h] * l->u.ngram.row_bytes, l->u.ngram.wide);
    }
}

static void run_ngram(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_rows(l, worker, ngram_row);
}

/* What is known behind row i. */
static void note_row(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t i) {
    const gw_step *step = worker->step;
    size_t rows = (size_t)gw_cpu_live(l, step), width = (size_t)(l->u.ngram.hashes->size - 1);
    if (rows_behind(step, rows, i) >= l->u.ngram.entries - 1) {
        return;
    }
    size_t entry = (size_t)step->slot[i] * l->u.ngram.entries +
                   (size_t)(step->pos[i] + 1) % l->u.ngram.entries;
    float *known = l->u.ngram.state + entry * width, made[GW_NGRAM_SIZE];
    for (size_t k = 0; k < width; k++) {
        made[k] = (float)(token_before(l, worker, i, (int)k) + 1);
    }
    memcpy(known, made, width * sizeof *known);
}

/* By one thread: an entry that is written must not be one that another row still reads. */
static void run_note(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end, rows = (size_t)gw_cpu_live(l, worker->step);
    while (gw_cpu_take(worker, 1, 1, &first, &end)) {
        for (size_t i = 0; i < rows; i++) { /* those that read the oldest entry first */
            note_row(l, worker, i);
        }
    }
}

int gw_cpu_accepts_ngram(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel, (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS && node->out->fmt == GW_FMT_F32 &&
           gw_format_of(node->w[0]->fmt)->decode != NULL;
}

static void take_ngram(gw_cpu_launch *l, const gw_node *node, gw_ngram *hashes) {
    l->u.ngram.hashes = hashes;
    l->u.ngram.fmt = node->w[0]->fmt;
    l->u.ngram.table = gw_cpu_data(node->w[0]);
    l->u.ngram.row_bytes = gw_cpu_row_stride(node->w[0]);
    l->u.ngram.wide = (size_t)node->w[0]->dim[1];
    l->u.ngram.state = (float *)(void *)gw_cpu_data(node->in[1]);
    l->u.ngram.entries = (size_t)node->in[1]->dim[1];
}

gw_status gw_cpu_record_ngram(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    gw_ngram *hashes = malloc(sizeof *hashes);
    if (hashes == NULL) {
        return gw_fail(GW_E_NOMEM, node->what, "no memory for hashes");
    }
    segment->copies[segment->n_copies++] = hashes;
    gw_ngram_init(hashes, &node->args.ngram);
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node), *note;
    l->run = run_ngram;
    take_ngram(l, node, hashes);
    note = gw_cpu_append(segment, kernel, node);
    note->run = run_note;
    take_ngram(note, node, hashes);
    return GW_OK;
}
