/* backends/cpu/state.c - CONV, SCAN and EXP_GATES: sequences and columns or heads to threads;
 * DIVIDE, GROUP_NORM, HEADS, COLUMNS and WIDEN. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"

/* ---- sequences of a step --------------------------------------------------------------------- */

/* The next row of row i's sequence in the step, or -1. */
static int next_row(const gw_step *step, int rows, int i) {
    for (int j = i + 1; j < rows; j++) {
        if (step->slot[j] == step->slot[i]) {
            return j;
        }
    }
    return -1;
}

static int is_first(const gw_step *step, int i) {
    for (int j = i - 1; j >= 0; j--) {
        if (step->slot[j] == step->slot[i]) {
            return 0;
        }
    }
    return 1;
}

static int count_rows(const gw_step *step, int rows, int i) {
    int n = 0;
    for (; i >= 0; i = next_row(step, rows, i)) {
        n++;
    }
    return n;
}

/* The entry before position pos. */
static float *entry(const gw_cpu_launch *l, int32_t slot, int32_t pos) {
    size_t at = (size_t)slot * l->u.state.entries + (size_t)pos % l->u.state.entries;
    return l->u.state.state + at * l->u.state.state_width;
}

static void take_state(gw_cpu_launch *l, const gw_node *node) {
    l->u.state.state = (float *)(void *)gw_cpu_data(node->in[1]);
    l->u.state.entries = (size_t)node->in[1]->dim[1];
    l->u.state.state_width = (size_t)node->in[1]->dim[2];
}

/* ---- CONV ------------------------------------------------------------------------------------ */

enum { CONV_COLUMNS = 256 };

static const float *floats(const char *base, size_t stride, int i) {
    return (const float *)(const void *)(base + (size_t)i * stride);
}

/* Columns [at, at + n) of the sequence that begins with row `first`. */
static void conv_columns(const gw_cpu_launch *l, gw_cpu_worker *worker, int first, size_t at,
                         size_t n) {
    const gw_step *step = worker->step;
    int rows = gw_cpu_live(l, step), taps = l->u.state.conv.taps, k = 0;
    int all = count_rows(step, rows, first);
    int apart = l->u.state.conv.apart > 1 ? l->u.state.conv.apart : 1, before = (taps - 1) * apart;
    const gw_cpu_conv conv = {.taps = taps, .width = l->width};
    const gw_cpu_act act = {.kind = l->u.state.conv.act};
    const float *x[GW_CONV_REACH + 1], *tap[GW_CONV_TAPS];
    const float *from = entry(l, step->slot[first], step->pos[first]);
    if (step->pos[first] == 0) {
        from = (const float *)(const void *)worker->scratch;
        memset(worker->scratch, 0, l->u.state.state_width * sizeof *from);
    }
    for (int t = 0; t < before; t++) {
        x[t + 1] = from + (size_t)t * l->width;
    }
    for (int i = first; i >= 0; i = next_row(step, rows, i), k++) {
        float *y = (float *)(void *)(l->out + (size_t)i * l->out_stride) + at;
        memmove(x, x + 1, (size_t)before * sizeof *x);
        x[before] = floats(l->in, l->in_stride, i);
        for (int t = 0; t < taps; t++) {
            tap[t] = x[t * apart];
        }
        l->ops->conv(y, tap, l->u.state.w, l->u.state.bias, &conv, at, n);
        if (act.kind != GW_ACT_NONE) {
            l->ops->act(y, y, NULL, n, &act);
        }
        float *to = entry(l, step->slot[i], step->pos[i] + 1);
        for (int t = 0; t < before && all - k - 1 < (int)l->u.state.entries - 1; t++) {
            memcpy(to + (size_t)t * l->width + at, x[t + 1] + at, n * sizeof *to);
        }
    }
}

static void run_conv(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t pieces = (l->width + CONV_COLUMNS - 1) / CONV_COLUMNS, first, end;
    size_t rows = (size_t)gw_cpu_live(l, worker->step);
    while (gw_cpu_take(worker, rows * pieces, 4, &first, &end)) {
        for (size_t p = first; p < end; p++) {
            size_t at = p % pieces * CONV_COLUMNS;
            size_t n = l->width - at < CONV_COLUMNS ? l->width - at : CONV_COLUMNS;
            if (is_first(worker->step, (int)(p / pieces))) {
                conv_columns(l, worker, (int)(p / pieces), at, n);
            }
        }
    }
}

int gw_cpu_accepts_conv(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

gw_status gw_cpu_record_conv(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    size_t c = l->width, taps = (size_t)node->args.conv.taps;
    const float *w;
    l->run = run_conv;
    l->u.state.conv = node->args.conv;
    take_state(l, node);
    gw_cpu_need_scratch(segment, l->u.state.state_width * sizeof(float));
    GW_TRY(gw_cpu_vector(segment, node->w[1], &l->u.state.bias));
    GW_TRY(gw_cpu_vector(segment, node->w[0], &w));
    float *turned = malloc(c * taps * sizeof *turned);
    if (turned == NULL) {
        return gw_fail(GW_E_NOMEM, node->what, "no memory for %zu values", c * taps);
    }
    for (size_t i = 0; i < c * taps; i++) {
        turned[i % taps * c + i / taps] = w[i];
    }
    segment->copies[segment->n_copies++] = turned;
    l->u.state.w = turned;
    return GW_OK;
}

/* ---- SCAN ------------------------------------------------------------------------------------ */

/* Of a thread's scratch: q, k and decays of a head, steps of its channels, then a memory that is
 * not kept. */
typedef struct scan_room {
    float *q, *k, *d, *t, *memory;
} scan_room;

static scan_room room_of(const gw_cpu_launch *l, const gw_cpu_worker *worker) {
    size_t keys = (size_t)l->u.state.scan.k_dim;
    float *at = (float *)(void *)worker->scratch;
    float *t = at + 3 * keys;
    return (scan_room){at, at + keys, at + 2 * keys, t, t + l->u.state.scan.v_dim};
}

static float decay(const gw_cpu_launch *l, size_t h, float x, size_t at) {
    x = l->u.state.bias != NULL ? x + l->u.state.bias[at] : x;
    return gw_delta_decay(l->u.state.w[h], x, l->u.state.scan.low);
}

static void load_delta(const gw_cpu_launch *l, int i, size_t h, size_t g, const scan_room *room,
                       gw_cpu_scan *s) {
    const gw_scan_args *a = &l->u.state.scan;
    size_t keys = (size_t)a->k_dim, all = (size_t)a->groups * keys;
    const float *x = floats(l->in, l->in_stride, i);
    const float *logits = floats(l->u.state.decay, l->u.state.decay_stride, i);
    l->ops->head_norm(room->q, x + g * keys, l->u.state.q_scale, keys, a->eps);
    l->ops->head_norm(room->k, x + all + g * keys, l->u.state.k_scale, keys, a->eps);
    size_t n = a->by_channel ? keys : 1;
    for (size_t j = 0; j < n; j++) {
        room->d[j] = decay(l, h, logits[h * n + j], h * n + j);
    }
    s->q = room->q;
    s->k = room->k;
    s->d = room->d;
    s->d_step = a->by_channel ? 1 : 0;
    s->v = x + 2 * all + h * (size_t)a->v_dim;
    s->beta = gw_sigmoid(floats(l->u.state.beta, l->u.state.beta_stride, i)[h]);
}

static void load_ssm(const gw_cpu_launch *l, int i, size_t h, size_t g, const scan_room *room,
                     gw_cpu_scan *s) {
    const gw_scan_args *a = &l->u.state.scan;
    size_t keys = (size_t)a->k_dim, wide = (size_t)a->v_dim, all = (size_t)a->heads * wide;
    const float *x = floats(l->in, l->in_stride, i);
    const float *logits = floats(l->u.state.decay, l->u.state.decay_stride, i);
    size_t own = a->by_channel ? wide : 1, at = h * own;
    const float *bias = l->u.state.bias != NULL ? l->u.state.bias + at : NULL;
    l->ops->scan_steps(room->t, logits + at, bias, own, a->low, a->high);
    s->k = x + all + g * keys;
    s->q = s->k + (size_t)a->groups * keys;
    s->v = x + h * wide;
    if (a->by_channel) {
        s->steps = room->t;
        s->d = l->u.state.w + h * keys * wide;
        s->skips = l->u.state.skip + h * wide;
        return;
    }
    room->d[0] = gw_exp(room->t[0] * l->u.state.w[h]);
    s->d = room->d;
    s->beta = room->t[0];
    s->skip = l->u.state.skip[h];
}

/* A write of strength 1 without a D of its own: +0 times the value. */
static void load_retention(const gw_cpu_launch *l, int i, size_t h, size_t g, gw_cpu_scan *s) {
    const gw_scan_args *a = &l->u.state.scan;
    size_t keys = (size_t)a->k_dim, wide = (size_t)a->v_dim;
    const float *x = floats(l->in, l->in_stride, i);
    s->k = x + (size_t)a->heads * wide + g * keys;
    s->q = s->k + (size_t)a->groups * keys;
    s->v = x + h * wide;
    s->d = floats(l->u.state.decay, l->u.state.decay_stride, i) + h;
    s->beta = 1.0f;
    s->skip = 0.0f;
}

static void load_wkv(const gw_cpu_launch *l, int i, size_t h, const scan_room *room,
                     gw_cpu_scan *s) {
    const gw_scan_args *a = &l->u.state.scan;
    size_t keys = (size_t)a->k_dim, wide = (size_t)a->v_dim, all = (size_t)a->heads * keys;
    const float *x = floats(l->in, l->in_stride, i);
    const float *decay = floats(l->u.state.decay, l->u.state.decay_stride, i) + h * keys;
    const float *back = floats(l->u.state.beta, l->u.state.beta_stride, i) + h * keys;
    s->q = x + h * keys;
    s->k = s->q + all;
    s->v = x + 2 * all + h * wide;
    x += 2 * all + (size_t)a->heads * wide + h * keys;
    for (size_t j = 0; j < keys; j++) {
        room->d[j] = gw_exp(GW_WKV_DECAY * decay[j]);
        room->q[j] = x[j] * a->k_scale;
        room->k[j] = room->q[j] * back[j];
    }
    s->d = room->d;
    s->e = room->q;
    s->b = room->k;
}

/* Head h of the sequence that begins with row `first`. */
static void scan_head(const gw_cpu_launch *l, gw_cpu_worker *worker, int first, size_t h) {
    const gw_scan_args *a = &l->u.state.scan;
    const gw_step *step = worker->step;
    int rows = gw_cpu_live(l, step), k = 0, all = count_rows(step, rows, first);
    size_t wide = (size_t)a->v_dim, bytes = (size_t)a->k_dim * wide * sizeof(float);
    size_t at = h * (size_t)a->k_dim * wide;
    size_t g = a->tiled ? h % (size_t)a->groups : h / (size_t)(a->heads / a->groups);
    scan_room room = room_of(l, worker);
    const float *from = entry(l, step->slot[first], step->pos[first]) + at;
    if (step->pos[first] == 0) {
        memset(room.memory, 0, bytes);
        from = room.memory;
    }
    for (int i = first; i >= 0; i = next_row(step, rows, i), k++) {
        int kept = all - k - 1 < (int)l->u.state.entries - 1;
        float *to = kept ? entry(l, step->slot[i], step->pos[i] + 1) + at : room.memory;
        float *y = (float *)(void *)(l->out + (size_t)i * l->out_stride) + h * wide;
        gw_cpu_scan s = {.keys = (size_t)a->k_dim, .width = wide};
        if (a->kind == GW_SCAN_DELTA) {
            load_delta(l, i, h, g, &room, &s);
            l->ops->scan_delta(y, to, from, &s, wide);
        } else if (a->kind == GW_SCAN_WKV) {
            load_wkv(l, i, h, &room, &s);
            l->ops->scan_wkv(y, to, from, &s, wide);
        } else if (a->kind == GW_SCAN_RETENTION) {
            load_retention(l, i, h, g, &s);
            l->ops->scan_ssm(y, to, from, &s, wide);
        } else {
            load_ssm(l, i, h, g, &room, &s);
            (a->by_channel ? l->ops->scan_channels : l->ops->scan_ssm)(y, to, from, &s, wide);
        }
        from = to;
    }
}

static void run_scan(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t heads = (size_t)l->u.state.scan.heads, first, end;
    size_t rows = (size_t)gw_cpu_live(l, worker->step);
    while (gw_cpu_take(worker, rows * heads, 1, &first, &end)) {
        for (size_t p = first; p < end; p++) {
            if (is_first(worker->step, (int)(p / heads))) {
                scan_head(l, worker, (int)(p / heads), p % heads);
            }
        }
    }
}

int gw_cpu_accepts_scan(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

static gw_status constant(struct gw_segment *segment, const gw_node *node, size_t n, float value,
                          const float **out) {
    float *values = malloc((n + 1) * sizeof *values);
    if (values == NULL) {
        return gw_fail(GW_E_NOMEM, node->what, "no memory for %zu values", n);
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = value;
    }
    segment->copies[segment->n_copies++] = values;
    *out = values;
    return GW_OK;
}

/* A of channels: of each head [v, k] to [k, v], as its memory lies. */
static gw_status keys_first(struct gw_segment *segment, const gw_node *node, const float **w) {
    size_t keys = (size_t)node->args.scan.k_dim, wide = (size_t)node->args.scan.v_dim;
    size_t all = (size_t)node->args.scan.heads * keys * wide;
    float *by_key = malloc(all * sizeof *by_key);
    if (by_key == NULL) {
        return gw_fail(GW_E_NOMEM, node->what, "no memory for %zu values", all);
    }
    for (size_t i = 0; i < all; i++) {
        size_t h = i / (keys * wide), c = i / keys % wide, j = i % keys;
        by_key[(h * keys + j) * wide + c] = (*w)[i];
    }
    segment->copies[segment->n_copies++] = by_key;
    *w = by_key;
    return GW_OK;
}

gw_status gw_cpu_record_scan(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    size_t keys = (size_t)a->k_dim;
    l->run = run_scan;
    l->u.state.scan = *a;
    take_state(l, node);
    l->u.state.decay = gw_cpu_data(node->in[2]);
    l->u.state.decay_stride = gw_cpu_row_stride(node->in[2]);
    if (a->kind == GW_SCAN_DELTA || a->kind == GW_SCAN_WKV) {
        l->u.state.beta = gw_cpu_data(node->in[3]);
        l->u.state.beta += node->in[3] == node->in[2] ? (size_t)a->heads * sizeof(float) : 0;
        l->u.state.beta_stride = gw_cpu_row_stride(node->in[3]);
    }
    gw_cpu_need_scratch(segment, (3 * keys + (keys + 1) * (size_t)a->v_dim) * sizeof(float));
    GW_TRY(gw_cpu_vector(segment, node->w[0], &l->u.state.w));
    if (a->kind == GW_SCAN_SSM && a->by_channel) {
        GW_TRY(keys_first(segment, node, &l->u.state.w));
    }
    GW_TRY(gw_cpu_vector(segment, node->w[1], &l->u.state.bias));
    GW_TRY(gw_cpu_vector(segment, node->w[2], &l->u.state.skip));
    GW_TRY(constant(segment, node, keys, a->q_scale, &l->u.state.q_scale));
    return constant(segment, node, keys, a->k_scale, &l->u.state.k_scale);
}

/* ---- EXP_GATES, DIVIDE ----------------------------------------------------------------------- */

static void exp_gates(const gw_cpu_launch *l, gw_cpu_worker *worker, int first) {
    const gw_step *step = worker->step;
    size_t heads = l->u.state.state_width;
    int rows = gw_cpu_live(l, step), all = count_rows(step, rows, first), k = 0;
    float *m = (float *)(void *)worker->scratch;
    memcpy(m, entry(l, step->slot[first], step->pos[first]), heads * sizeof *m);
    if (step->pos[first] == 0) {
        memset(m, 0, heads * sizeof *m);
    }
    for (int i = first; i >= 0; i = next_row(step, rows, i), k++) {
        const float *write = floats(l->in, l->in_stride, i), *forget = write + heads;
        float *y = (float *)(void *)(l->out + (size_t)i * l->out_stride);
        for (size_t h = 0; h < heads; h++) {
            float kept = gw_log_kept(m[h], forget[h]);
            m[h] = kept < write[h] ? write[h] : kept;
            y[h] = gw_exp(kept - m[h]);
            y[heads + h] = gw_exp(write[h] - m[h]);
            y[2 * heads + h] = gw_exp(-m[h]);
        }
        if (all - k - 1 < (int)l->u.state.entries - 1) {
            memcpy(entry(l, step->slot[i], step->pos[i] + 1), m, heads * sizeof *m);
        }
    }
}

static void run_exp_gates(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 1, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            if (is_first(worker->step, (int)i)) {
                exp_gates(l, worker, (int)i);
            }
        }
    }
}

int gw_cpu_accepts_exp_gates(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

gw_status gw_cpu_record_exp_gates(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_exp_gates;
    take_state(l, node);
    gw_cpu_need_scratch(segment, l->u.state.state_width * sizeof(float));
    return GW_OK;
}

static void run_divide(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end, each = l->width / (l->in1_stride / sizeof(float));
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 1, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            const float *x = floats(l->in, l->in_stride, (int)i);
            const float *by = floats(l->in1, l->in1_stride, (int)i);
            const float *least = floats(l->u.divide.least, l->in1_stride, (int)i);
            float *y = (float *)(void *)(l->out + i * l->out_stride);
            for (size_t c = 0; c < l->width; c++) {
                y[c] = gw_divided(x[c], by[c / each], least[c / each], l->u.divide.eps);
            }
        }
    }
}

int gw_cpu_accepts_divide(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

gw_status gw_cpu_record_divide(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_divide;
    l->u.divide.least = gw_cpu_data(node->in[2]);
    l->u.divide.eps = node->args.divide.eps;
    return GW_OK;
}

/* ---- GROUP_NORM ------------------------------------------------------------------------------ */

/* As head_norm has it. */
static float squares_of(const float *x, size_t e) {
    float lane[GW_LANES] = {0.0f};
    for (size_t k = 0; k < e; k++) {
        lane[k % GW_LANES] = fmaf(x[k], x[k], lane[k % GW_LANES]);
    }
    return gw_fold_lanes(lane);
}

static float sum_of(const float *x, size_t e) {
    float lane[GW_LANES] = {0.0f};
    for (size_t k = 0; k < e; k++) {
        lane[k % GW_LANES] = lane[k % GW_LANES] + x[k];
    }
    return gw_fold_lanes(lane);
}

/* Group g of row i. */
static void norm_group(const gw_cpu_launch *l, gw_cpu_worker *worker, int i, size_t g) {
    const gw_group_norm_args *a = &l->u.group_norm.args;
    size_t e = l->u.group_norm.e, wide = l->u.group_norm.wide;
    const gw_cpu_act act = {.kind = a->gate_act};
    const float *x = floats(l->in, l->in_stride, i) + g * e;
    const float *gate = l->in1 != NULL ? floats(l->in1, l->in1_stride, i) + g * e : NULL;
    const float *w = l->u.group_norm.weight != NULL
                         ? l->u.group_norm.weight + (wide == e ? 0 : g * e)
                         : l->u.group_norm.ones;
    float *out = (float *)(void *)(l->out + (size_t)i * l->out_stride);
    float *y = a->measure ? (float *)(void *)worker->scratch : out + g * e;
    if (gate != NULL && a->gate_first) {
        float by[64];
        for (size_t k = 0; k < e; k += 64) {
            size_t n = e - k < 64 ? e - k : 64;
            l->ops->act(by, gate + k, NULL, n, &act);
            for (size_t c = 0; c < n; c++) {
                y[k + c] = x[k + c] * by[c];
            }
        }
        x = y;
    }
    if (a->measure) {
        out[g] = 1.0f / gw_rms_scale(squares_of(x, e), (int)e, a->eps);
        return;
    }
    if (a->center) {
        float mean = sum_of(x, e) / (float)e;
        for (size_t k = 0; k < e; k++) {
            y[k] = x[k] - mean;
        }
        x = y;
    }
    l->ops->head_norm(y, x, w, e, a->eps);
    for (size_t k = 0; k < e && l->u.group_norm.bias != NULL; k++) {
        y[k] = y[k] + l->u.group_norm.bias[g * e + k];
    }
    for (size_t k = 0; k < e && gate != NULL && !a->gate_first; k += 64) {
        float by[64];
        size_t n = e - k < 64 ? e - k : 64;
        l->ops->act(by, gate + k, NULL, n, &act);
        for (size_t c = 0; c < n; c++) {
            y[k + c] = y[k + c] * by[c];
        }
    }
}

static void run_group_norm(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t groups = (size_t)l->u.group_norm.args.groups, first, end;
    size_t rows = (size_t)gw_cpu_live(l, worker->step);
    while (gw_cpu_take(worker, rows * groups, 8, &first, &end)) {
        for (size_t p = first; p < end; p++) {
            norm_group(l, worker, (int)(p / groups), p % groups);
        }
    }
}

int gw_cpu_accepts_group_norm(const gw_kernel *kernel, const gw_node *node,
                              const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

gw_status gw_cpu_record_group_norm(struct gw_segment *segment, const gw_kernel *kernel,
                                   const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_group_norm;
    l->u.group_norm.args = node->args.group_norm;
    l->u.group_norm.wide = node->w[0] != NULL ? (size_t)node->w[0]->dim[0] : 0;
    l->u.group_norm.e = (size_t)node->in[0]->dim[1] / (size_t)node->args.group_norm.groups;
    gw_cpu_need_scratch(segment, l->u.group_norm.e * sizeof(float));
    GW_TRY(gw_cpu_ones(segment, node, l->u.group_norm.e, &l->u.group_norm.ones));
    GW_TRY(gw_cpu_vector(segment, node->w[1], &l->u.group_norm.bias));
    return gw_cpu_vector(segment, node->w[0], &l->u.group_norm.weight);
}

/* ---- HEADS ----------------------------------------------------------------------------------- */

static void run_heads(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    const gw_heads_args *a = &l->u.heads.args;
    size_t heads = (size_t)a->heads, first, end, wide = l->width / heads;
    size_t rows = (size_t)gw_cpu_live(l, worker->step);
    size_t sets = (rows + GW_DECODE_MAX - 1) / GW_DECODE_MAX;
    while (gw_cpu_take(worker, sets * heads, 1, &first, &end)) {
        for (size_t p = first; p < end; p++) {
            size_t h = p % heads, row = p / heads * GW_DECODE_MAX;
            size_t n = rows - row < GW_DECODE_MAX ? rows - row : GW_DECODE_MAX;
            const char *x = l->in + row * l->in_stride + h * l->u.heads.e * sizeof(float);
            float *y = (float *)(void *)(l->out + row * l->out_stride) + h * wide;
            for (size_t i = 0; i < n && a->pass > 0; i++) {
                const float *from = (const float *)(const void *)(x + i * l->in_stride);
                memcpy(y + i * l->width, from + a->pass_first, (size_t)a->pass * sizeof *y);
            }
            gw_cpu_linear job = {.w = l->u.heads.w + h * l->u.heads.head_bytes,
                                 .m = l->u.heads.m,
                                 .k = l->u.heads.k,
                                 .x = x + (size_t)a->first * sizeof(float),
                                 .x_stride = l->in_stride,
                                 .n = (int)n,
                                 .y = y + a->pass,
                                 .y_stride = l->width};
            l->u.heads.kernel->run(&job, 0, job.m, worker->scratch);
        }
    }
}

int gw_cpu_accepts_heads(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device) && node->w[0]->layout == GW_LAYOUT_ROWS &&
           gw_cpu_kernel_for(gw_cpu_row_of(kernel), node->w[0], GW_ORDER_DECODE) != NULL;
}

gw_status gw_cpu_record_heads(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    const gw_tensor *w = node->w[0];
    size_t heads = (size_t)node->args.heads.heads;
    l->run = run_heads;
    l->u.heads.args = node->args.heads;
    l->u.heads.kernel = gw_cpu_kernel_for(gw_cpu_row_of(kernel), w, GW_ORDER_DECODE);
    l->u.heads.w = gw_cpu_data(w);
    l->u.heads.m = (size_t)w->dim[0] / heads;
    l->u.heads.k = (size_t)w->dim[1];
    l->u.heads.e = (size_t)node->in[0]->dim[1] / heads;
    l->u.heads.head_bytes = l->u.heads.m * gw_cpu_row_stride(w);
    if (l->u.heads.kernel->scratch != NULL) {
        gw_cpu_need_scratch(segment, l->u.heads.kernel->scratch(l->u.heads.k, GW_DECODE_MAX));
    }
    return GW_OK;
}

/* ---- STREAMS, SPARSE_GLU --------------------------------------------------------------------- */

static void mix_streams(const gw_cpu_launch *l, int i) {
    const gw_streams_args *a = &l->u.streams.args;
    size_t m = l->width / (size_t)a->streams, inputs = (size_t)a->inputs;
    const float *x = floats(l->in, l->in_stride, i);
    const float *c = l->in1 != NULL ? floats(l->in1, l->in1_stride, i) : NULL;
    float *out = (float *)(void *)(l->out + (size_t)i * l->out_stride);
    for (size_t s = 0; s < (size_t)a->streams; s++) {
        float *y = out + s * m;
        if (l->u.streams.base != NULL) {
            memmove(y, floats(l->u.streams.base, l->u.streams.base_stride, i) + s * m,
                    m * sizeof *y);
        } else {
            memset(y, 0, m * sizeof *y);
        }
        for (size_t j = 0; j < inputs && s >= (size_t)a->from; j++) {
            float by = (c != NULL ? c[s * inputs + j] : 0.0f) + a->plus;
            for (size_t k = 0; k < m; k++) {
                y[k] = y[k] + by * x[j * m + k];
            }
        }
    }
}

static void run_streams(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 1, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            mix_streams(l, (int)i);
        }
    }
}

int gw_cpu_accepts_streams(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

gw_status gw_cpu_record_streams(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_streams;
    l->u.streams.args = node->args.streams;
    if (node->in[2] != NULL) {
        l->u.streams.base = gw_cpu_data(node->in[2]);
        l->u.streams.base_stride = gw_cpu_row_stride(node->in[2]);
    }
    return GW_OK;
}

static void sparse_row(const gw_cpu_launch *l, gw_cpu_worker *worker, int i) {
    const float *g = floats(l->in, l->in_stride, i);
    float *y = (float *)(void *)(l->out + (size_t)i * l->out_stride);
    float *c = (float *)(void *)worker->scratch;
    size_t f = l->width;
    float mean = l->ops->sum(g, f) / (float)f;
    for (size_t k = 0; k < f; k++) {
        c[k] = g[k] - mean;
    }
    float r = l->ops->norm(c, c, l->u.sparse.ones, f, 0.0f);
    float cut = mean + l->u.sparse.args.deviations * (1.0f / r);
    const gw_cpu_act act = {.kind = l->u.sparse.args.act};
    for (size_t k = 0; k < f; k++) {
        float v = g[k] - cut;
        c[k] = v < 0.0f ? 0.0f : v;
    }
    l->ops->act(y, c, g + f, f, &act);
}

static void run_sparse_glu(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 1, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            sparse_row(l, worker, (int)i);
        }
    }
}

int gw_cpu_accepts_sparse_glu(const gw_kernel *kernel, const gw_node *node,
                              const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

gw_status gw_cpu_record_sparse_glu(struct gw_segment *segment, const gw_kernel *kernel,
                                   const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_sparse_glu;
    l->u.sparse.args = node->args.sparse;
    gw_cpu_need_scratch(segment, l->width * sizeof(float));
    return gw_cpu_ones(segment, node, l->width, &l->u.sparse.ones);
}

/* ---- COLUMNS --------------------------------------------------------------------------------- */

static void run_columns(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 4, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            char *y = l->out + i * l->out_stride;
            for (int k = 0; k < GW_MAX_IN; k++) {
                size_t bytes = l->u.columns.bytes[k];
                if (bytes > 0) {
                    memcpy(y, l->u.columns.in[k] + i * l->u.columns.stride[k], bytes);
                    y += bytes;
                }
            }
        }
    }
}

int gw_cpu_accepts_columns(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

gw_status gw_cpu_record_columns(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    size_t own = l->out_stride;
    l->run = run_columns;
    for (int k = 0; k < GW_MAX_IN; k++) {
        if (node->in[k] != NULL) {
            l->u.columns.in[k] = gw_cpu_data(node->in[k]);
            l->u.columns.stride[k] = gw_cpu_row_stride(node->in[k]);
            l->u.columns.bytes[k] = k > 0 ? l->u.columns.stride[k] : 0;
            own -= l->u.columns.bytes[k];
        }
    }
    l->u.columns.bytes[0] = own;
    l->u.columns.in[0] += (size_t)node->args.columns.first * sizeof(float);
    return GW_OK;
}

/* ---- WIDEN ----------------------------------------------------------------------------------- */

static void run_widen(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t k = l->u.widen.k, m = l->u.widen.m, copied = k < m ? k : m, first, end;
    while (gw_cpu_take(worker, (size_t)gw_cpu_live(l, worker->step), 4, &first, &end)) {
        for (size_t i = first; i < end; i++) {
            const float *x = floats(l->in, l->in_stride, (int)i);
            float *y = (float *)(void *)(l->out + i * l->out_stride);
            for (size_t h = 0; h < l->u.widen.heads; h++) {
                memcpy(y + h * m, x + h * k, copied * sizeof *y);
                memset(y + h * m + copied, 0, (m - copied) * sizeof *y);
            }
        }
    }
}

int gw_cpu_accepts_widen(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    return gw_cpu_accepts_conv(kernel, node, device);
}

gw_status gw_cpu_record_widen(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    size_t heads = (size_t)node->args.widen.heads;
    l->run = run_widen;
    l->u.widen.heads = heads;
    l->u.widen.k = (size_t)node->in[0]->dim[1] / heads;
    l->u.widen.m = (size_t)node->out->dim[1] / heads;
    return GW_OK;
}
