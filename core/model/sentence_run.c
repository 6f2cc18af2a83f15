/* core/model/sentence_run.c - what the modules of an embedding model make of rows: dense layers,
 * pooling, norms; see sentence.h. All sums are in double and in the order of their indices, so that
 * a vector is the same on every machine. */
#include <math.h>
#include <string.h>

#include "core/model/sentence_act.h"
#include "core/tensor/act.h"

float gw_sentence_act(int act, float x) {
    switch (act) {
    case GW_SENTENCE_TANH:
        return gw_tanh(x);
    case GW_SENTENCE_RELU:
        return x > 0.0f ? x : 0.0f;
    case GW_SENTENCE_GELU:
        return 0.5f * x * (1.0f + gw_erf(x * 0x1.6a09e6p-1f));
    case GW_SENTENCE_SILU:
        return x * gw_sigmoid(x);
    case GW_SENTENCE_SIGMOID:
        return gw_sigmoid(x);
    case GW_SENTENCE_LEAKY:
        return x > 0.0f ? x : 0.01f * x;
    case GW_SENTENCE_SOFTPLUS:
        return x > 20.0f ? x : gw_softplus(x); /* torch's threshold */
    default:
        return x;
    }
}

static float dot(const float *w, const float *x, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)w[i] * (double)x[i];
    }
    return (float)sum;
}

static void run_dense(const gw_dense *d, const float *x, float *y) {
    for (int32_t o = 0; o < d->out; o++) {
        size_t row = (size_t)o * (size_t)d->in;
        float v = dot(d->weight + row, x, d->in);
        v = gw_sentence_act(d->act, d->bias != NULL ? v + d->bias[o] : v);
        if (d->residual) {
            v += d->straight != NULL ? dot(d->straight + row, x, d->in) : x[o];
        }
        y[o] = v;
    }
}

static void run_normalize(const float *x, float *y, int32_t n) {
    double squares = 0.0;
    for (int32_t i = 0; i < n; i++) {
        squares += (double)x[i] * (double)x[i];
    }
    double length = sqrt(squares);
    length = length > 1e-12 ? length : 1e-12; /* torch's eps */
    for (int32_t i = 0; i < n; i++) {
        y[i] = (float)((double)x[i] / length);
    }
}

static void run_layer_norm(const gw_dense *d, const float *x, float *y) {
    double mean = 0.0, variance = 0.0;
    int32_t n = d->out;
    for (int32_t i = 0; i < n; i++) {
        mean += (double)x[i];
    }
    mean /= (double)n;
    for (int32_t i = 0; i < n; i++) {
        double off = (double)x[i] - mean;
        variance += off * off;
    }
    double scale = 1.0 / sqrt(variance / (double)n + 1e-5); /* torch's eps */
    for (int32_t i = 0; i < n; i++) {
        y[i] = (float)(((double)x[i] - mean) * scale * (double)d->weight[i] + (double)d->bias[i]);
    }
}

/* ---- pooling -------------------------------------------------------------------------------- */

/* A weighted sum of rows [from, n) over `divisor`; weights 1, or the rows' places. */
static void pool_sum(const float *x, size_t from, size_t n, int32_t width, int placed,
                     double divisor, float *y) {
    for (int32_t c = 0; c < width; c++) {
        double sum = 0.0;
        for (size_t i = from; i < n; i++) {
            sum += (double)x[i * (size_t)width + (size_t)c] * (placed ? (double)(i + 1) : 1.0);
        }
        y[c] = (float)(sum / divisor);
    }
}

static void pool_max(const float *x, size_t from, size_t n, int32_t width, float *y) {
    for (int32_t c = 0; c < width; c++) {
        float most = x[from * (size_t)width + (size_t)c];
        for (size_t i = from + 1; i < n; i++) {
            float v = x[i * (size_t)width + (size_t)c];
            most = v > most ? v : most;
        }
        y[c] = most;
    }
}

static void pool(gw_pooling_mode mode, const float *x, size_t skip, size_t n, int32_t width,
                 float *y) {
    size_t from = skip < n ? skip : n - 1; /* a text of nothing but its prompt: its last token */
    size_t count = n - from, bytes = (size_t)width * sizeof *y;
    double places = 0.5 * (double)(n * (n + 1) - from * (from + 1));
    switch (mode) {
    case GW_POOL_CLS:
        memcpy(y, x + from * (size_t)width, bytes);
        return;
    case GW_POOL_LAST:
        memcpy(y, x + (n - 1) * (size_t)width, bytes);
        return;
    case GW_POOL_MAX:
        pool_max(x, from, n, width, y);
        return;
    case GW_POOL_WEIGHTED:
        pool_sum(x, from, n, width, 1, places, y);
        return;
    default:
        pool_sum(x, from, n, width, 0, mode == GW_POOL_MEAN ? (double)count : sqrt((double)count),
                 y);
        return;
    }
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int32_t width_behind(const gw_module *m, int32_t width) {
    return m->kind == GW_MODULE_POOLING ? width * m->n_modes
           : m->kind == GW_MODULE_DENSE ? m->dense.out
                                        : width;
}

gw_status gw_sentence_width(const gw_sentence *s, const char *where, int32_t width, int32_t *out) {
    for (int i = 0; i < s->n_modules; i++) {
        const gw_module *m = &s->module[i];
        int32_t want = m->kind == GW_MODULE_DENSE        ? m->dense.in
                       : m->kind == GW_MODULE_LAYER_NORM ? m->dense.out
                       : m->kind == GW_MODULE_STATIC     ? m->dense.out
                                                         : width;
        if (want != width) {
            return gw_fail(GW_E_METADATA, where, "module %d takes %d values and is given %d", i + 1,
                           (int)want, (int)width);
        }
        width = width_behind(m, width);
    }
    *out = width;
    return GW_OK;
}

size_t gw_sentence_room(const gw_sentence *s, int32_t width, size_t rows) {
    size_t most = (size_t)width * rows;
    for (int i = 0; i < s->n_modules; i++) {
        width = width_behind(&s->module[i], width);
        rows = i == s->at_pooling ? 1 : rows;
        most = (size_t)width * rows > most ? (size_t)width * rows : most;
    }
    return most;
}

float *gw_sentence_run(const gw_sentence *s, int first, float *x, float *room, size_t n,
                       int32_t width, size_t skip) {
    for (int i = first; i < s->n_modules; i++) {
        const gw_module *m = &s->module[i];
        int32_t next = width_behind(m, width);
        if (m->kind == GW_MODULE_STATIC) {
            continue;
        }
        for (size_t r = 0; r < n && m->kind != GW_MODULE_POOLING; r++) {
            const float *from = x + r * (size_t)width;
            float *to = room + r * (size_t)next;
            if (m->kind == GW_MODULE_DENSE) {
                run_dense(&m->dense, from, to);
            } else if (m->kind == GW_MODULE_LAYER_NORM) {
                run_layer_norm(&m->dense, from, to);
            } else {
                run_normalize(from, to, width);
            }
        }
        for (int k = 0; k < m->n_modes && m->kind == GW_MODULE_POOLING; k++) {
            pool(m->mode[k], x, skip, n, width, room + (size_t)k * (size_t)width);
        }
        n = m->kind == GW_MODULE_POOLING ? 1 : n;
        width = next;
        float *swap = x;
        x = room;
        room = swap;
    }
    return x;
}
