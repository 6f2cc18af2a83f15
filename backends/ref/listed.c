/* backends/ref/listed.c - hyper-connections, ROTATE, GROUP_DOT, compressed caches and attention
 * over lists, n-grams: straight from their definition in core/plan/op.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/ref/ref.h"
#include "core/tensor/sample.h"

static const float *vector(const gw_tensor *t) { return t != NULL ? ref_floats(t, 0) : NULL; }
static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

static size_t scratch_row(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)ref_cols(node->in[0]) + (size_t)ref_cols(node->out);
}

/* ---- HYPER ---------------------------------------------------------------------------------- */

/* Rows, or columns, of m [n, n] divided by their sums. */
static void balance(double *m, int n, int rows, double eps) {
    for (int i = 0; i < n; i++) {
        double sum = eps;
        for (int j = 0; j < n; j++) {
            sum += m[rows ? i * n + j : j * n + i];
        }
        for (int j = 0; j < n; j++) {
            m[rows ? i * n + j : j * n + i] /= sum;
        }
    }
}

static void mix_matrix(const gw_hyper_args *a, const double *logits, double *out) {
    int n = a->streams;
    double m[GW_HYPER_MOST * GW_HYPER_MOST], eps = (double)a->eps;
    for (int i = 0; i < n; i++) {
        double sum = 0.0, top = -INFINITY;
        for (int j = 0; j < n; j++) {
            top = logits[i * n + j] > top ? logits[i * n + j] : top;
        }
        for (int j = 0; j < n; j++) {
            m[i * n + j] = exp(logits[i * n + j] - top);
            sum += m[i * n + j];
        }
        for (int j = 0; j < n; j++) {
            m[i * n + j] = m[i * n + j] / sum + eps;
        }
    }
    balance(m, n, 0, eps);
    for (int turn = 1; turn < a->rounds; turn++) {
        balance(m, n, 1, eps);
        balance(m, n, 0, eps);
    }
    for (int i = 0; i < n * n; i++) {
        out[i % n * n + i / n] = m[i];
    }
}

static void run_hyper(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_hyper_args *a = &node->args.hyper;
    int n = a->streams, all = (int)ref_cols(node->out);
    double *x = scratch, *y = scratch + all;
    (void)step;
    for (int i = 0; i < rows; i++) {
        ref_read(x, node->in[0], i);
        for (int k = 0; k < all; k++) {
            int part = k < n ? 0 : k < 2 * n ? 1 : 2;
            x[k] = x[k] * (double)vector(node->w[0])[part] + (double)vector(node->w[1])[k];
            y[k] = k < n ? sigmoid(x[k]) + (double)a->eps : 2.0 * sigmoid(x[k]);
        }
        if (all > n) {
            mix_matrix(a, x + 2 * n, y + 2 * n);
        }
        ref_write(node->out, i, y);
    }
}

/* ---- ROTATE, GROUP_DOT ---------------------------------------------------------------------- */

static void run_rotate(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_rotate_args *a = &node->args.rotate;
    int64_t e = ref_cols(node->out) / a->heads;
    for (int i = 0; i < rows; i++) {
        ref_read(scratch, node->in[0], i);
        for (int h = 0; h < a->heads; h++) {
            ref_turn(scratch + h * e + a->first, a->rope_dim, a->style, node->w[0],
                     step->pos[i] - step->less[i], a->back);
        }
        ref_write(node->out, i, scratch);
    }
}

static void run_group_dot(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_dot_args *a = &node->args.dot;
    int64_t m = ref_cols(node->in[0]) / a->groups;
    (void)step;
    for (int i = 0; i < rows; i++) {
        const float *x = ref_floats(node->in[0], i), *z = ref_floats(node->in[1], i);
        for (int g = 0; g < a->groups; g++) {
            double sum = 0.0;
            for (int64_t k = g * m; k < (g + 1) * m; k++) {
                sum += (double)x[k] * (double)z[k];
            }
            sum *= (double)a->scale;
            double size = fabs(sum) > 1e-6 ? fabs(sum) : 1e-6;
            scratch[g] = !a->root ? sum : sum < 0.0 ? -sqrt(size) : sum > 0.0 ? sqrt(size) : 0.0;
        }
        ref_write(node->out, i, scratch);
    }
}

/* ---- areas ---------------------------------------------------------------------------------- */

static float *area_row(const gw_tensor *t, const gw_tensor *table, const gw_area *a, int32_t slot,
                       int32_t pos) {
    int64_t page = ref_page_of(table, slot, pos);
    return (float *)(void *)ref_bytes(t) + page * t->dim[1] + gw_area_row(a, pos);
}

static float *area_entry(const gw_tensor *t, const gw_tensor *table, const gw_area *a, int32_t slot,
                         int i) {
    int last = gw_area_last(a, i);
    int64_t page = ref_page_of(table, slot, last);
    return (float *)(void *)ref_bytes(t) + page * t->dim[1] + gw_area_entry(a, last);
}

/* The entry that ends at position `last`. */
static void make_entry(const gw_node *node, int32_t slot, int32_t last, double *out) {
    const gw_compress_args *a = &node->args.compress;
    const gw_area *area = &a->area;
    int e = area->entry, ratio = area->ratio, s = a->series, first = last + 1 - ratio;
    int from = s == 2 && first > 0 ? first - ratio : first;
    for (int c = 0; c < e; c++) {
        double top = -INFINITY, sum = 0.0, all = 0.0;
        for (int turn = 0; turn < 2; turn++) {
            for (int32_t p = from; p <= last; p++) {
                const float *row = area_row(node->in[1], node->in[2], area, slot, p);
                int at = s == 2 && p >= first ? e + c : c, r = p % ratio;
                double g =
                    s == 0 ? 0.0
                           : (double)row[s * e + at] + (double)vector(node->w[0])[r * s * e + at];
                top = turn == 0 && g > top ? g : top;
                sum += turn == 1 ? exp(g - top) : 0.0;
                all += turn == 1 ? exp(g - top) * (double)row[at] : 0.0;
            }
        }
        out[c] = all / sum;
    }
    if (node->w[1] != NULL) {
        ref_norm_row(out, e, GW_NORM_RMS, a->eps, vector(node->w[1]), NULL);
    }
    ref_turn(out + a->first, a->rope_dim, a->style, node->w[2], first, 0);
}

static void run_compress(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_area *a = &node->args.compress.area;
    for (int i = 0; i < rows; i++) {
        int32_t slot = step->slot[i], pos = step->pos[i];
        memcpy(area_row(node->in[1], node->in[2], a, slot, pos), ref_floats(node->in[0], i),
               (size_t)gw_area_kept(a) * sizeof(float));
        if (a->width > 0 && (pos + 1) % a->ratio == 0) {
            make_entry(node, slot, pos, scratch);
            float *to = area_entry(node->in[1], node->in[2], a, slot, pos / a->ratio);
            for (int c = 0; c < a->entry; c++) {
                to[c] = (float)scratch[c];
            }
        }
    }
}

static size_t scratch_scores(const gw_node *node, int rows) {
    const gw_tensor *table = node->op == GW_OP_CHOOSE ? node->in[2] : node->in[3];
    return scratch_row(node, rows) + (size_t)(table->dim[1] * GW_PAGE);
}

/* Head h of row i by the key of entry k. */
static double score_of(const gw_node *node, const gw_step *step, int i, int h, int k) {
    const gw_area *a = &node->args.choose.area;
    const float *key = area_entry(node->in[1], node->in[2], a, step->slot[i], k);
    const float *q = ref_floats(node->in[0], i) + h * a->entry;
    double s = 0.0;
    for (int c = 0; c < a->entry; c++) {
        s += (double)q[c] * (double)key[c];
    }
    return s;
}

/* Lists of blocks, one for each head: a block is as good as its best position. */
static void choose_blocks(const gw_node *node, const gw_step *step, int i, double *scratch) {
    const gw_choose_args *a = &node->args.choose;
    int most = (int)ref_cols(node->out) / a->heads;
    int before = step->pos[i] / a->block + 1 - a->local, n = before > 0 ? before : 0;
    gw_u32 *key = calloc(2 * (size_t)n + 1, sizeof *key);
    for (int h = 0; h < a->heads && key != NULL; h++) {
        for (int k = 0; k < n; k++) {
            scratch[k] = -INFINITY;
            for (int p = k * a->block; p < (k + 1) * a->block; p++) {
                scratch[k] = fmax(scratch[k], score_of(node, step, i, h, p));
            }
            key[k] = gw_float_key((float)scratch[k]);
        }
        gw_choose_keys(key, (gw_i32 *)(void *)(key + n), n, gw_choose_whole(a->ties, n, n), most,
                       ref_floats(node->out, i) + h * most);
    }
    free(key);
}

static void run_choose(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_choose_args *a = &node->args.choose;
    int most = (int)ref_cols(node->out);
    for (int i = 0; i < rows; i++) {
        int complete = (step->pos[i] + 1) / a->area.ratio;
        if (a->block > 0) {
            choose_blocks(node, step, i, scratch);
            continue;
        }
        for (int k = 0; k < complete; k++) {
            scratch[k] = 0.0;
            for (int h = 0; h < a->heads; h++) {
                double s = score_of(node, step, i, h, k), by = 1.0;
                by = node->in[3] != NULL ? (double)ref_floats(node->in[3], i)[h] : by;
                scratch[k] += by * (s > 0.0 ? s : 0.0);
            }
        }
        int text = (step->last[i] + 1) / a->area.ratio, room = text > complete ? text : complete;
        int whole = gw_choose_whole(a->ties, complete, text);
        gw_u32 *key = calloc(2 * (size_t)room + 1, sizeof *key);
        for (int k = 0; k < complete && key != NULL; k++) {
            key[k] = gw_float_key((float)scratch[k] + 0.0f);
        }
        if (key != NULL) {
            gw_choose_keys(key, (gw_i32 *)(void *)(key + room), complete, whole, most,
                           ref_floats(node->out, i));
        }
        free(key);
    }
}

/* ---- LISTED --------------------------------------------------------------------------------- */

/* Of one key or value: a position of the cache, or an entry. */
typedef struct item {
    ref_cell cell;
    const float *entry;
} item;

static double item_get(const item *x, int c) {
    return x->entry != NULL ? (double)x->entry[c] : ref_cell_get(&x->cell, c);
}

/* A key, or with is_k 0 a value. */
static item item_at(const gw_node *node, int32_t slot, int is_k, int g, int32_t pos, int is_entry) {
    const gw_area *a = &node->args.listed.area;
    item x = {.entry = is_entry ? area_entry(node->in[5], node->in[3], a, slot, pos) : NULL};
    if (!is_entry) {
        int in_k = is_k || node->in[2] == NULL;
        x.cell =
            ref_cell_of(node->in[in_k ? 1 : 2], in_k, ref_page_of(node->in[3], slot, pos), g, pos);
    }
    return x;
}

static int value_width(const gw_listed_args *a) { return a->v_dim > 0 ? a->v_dim : a->head_dim; }

/* Adds an item to what a head has seen: running maximum, sum and values. */
static void see(const gw_node *node, const double *q, int32_t slot, int g, int32_t pos,
                int is_entry, double *top, double *sum, double *out) {
    const gw_listed_args *a = &node->args.listed;
    item k = item_at(node, slot, 1, g, pos, is_entry), v = item_at(node, slot, 0, g, pos, is_entry);
    double s = 0.0;
    for (int c = 0; c < a->head_dim; c++) {
        s += q[c] * item_get(&k, c);
    }
    s *= (double)a->scale;
    double next = s > *top ? s : *top, old = exp(*top - next), weight = exp(s - next);
    *sum = *sum * old + weight;
    int first = node->in[2] == NULL ? a->v_first : 0;
    for (int c = 0; c < value_width(a); c++) {
        out[c] = out[c] * old + weight * item_get(&v, first + c);
    }
    *top = next;
}

static void attend(const gw_node *node, const gw_step *step, int i, int h, const double *q,
                   double *out) {
    const gw_listed_args *a = &node->args.listed;
    int32_t slot = step->slot[i], pos = step->pos[i];
    int complete = (pos + 1) / a->area.ratio, g = h / (a->heads / a->kv_heads);
    int has_area = node->in[5] != NULL, lists = a->lists > 1 ? a->lists : 1;
    if (a->local > 0) {
        complete = pos / a->area.ratio + 1 - a->local;
    }
    int n = node->in[4] != NULL ? (int)ref_cols(node->in[4]) / lists : complete;
    int first = g / (a->kv_heads / lists) * n; /* of the head's own list */
    int from = has_area ? pos + 1 - a->window : complete * a->area.ratio;
    double top = node->w[0] != NULL ? (double)vector(node->w[0])[h] : -INFINITY;
    double sum = node->w[0] != NULL ? 1.0 : 0.0;
    memset(out, 0, (size_t)value_width(a) * sizeof *out);
    for (int k = 0; k < n; k++) {
        int x = node->in[4] != NULL ? (int)ref_floats(node->in[4], i)[first + k] : k;
        for (int r = 0; x >= 0 && r < (has_area ? 1 : a->area.ratio); r++) {
            see(node, q, slot, g, has_area ? x : x * a->area.ratio + r, has_area, &top, &sum, out);
        }
    }
    for (int32_t p = from > 0 ? from : 0; p <= pos; p++) {
        see(node, q, slot, g, p, 0, &top, &sum, out);
    }
    for (int c = 0; c < value_width(a); c++) {
        out[c] /= sum;
    }
}

static void run_listed(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_listed_args *a = &node->args.listed;
    double *q = scratch, *out = q + ref_cols(node->in[0]);
    for (int i = 0; i < rows; i++) {
        ref_read(q, node->in[0], i);
        for (int h = 0; h < a->heads; h++) {
            attend(node, step, i, h, q + h * a->head_dim, out + h * value_width(a));
        }
        ref_write(node->out, i, out);
    }
}

/* ---- NGRAM ---------------------------------------------------------------------------------- */

static size_t scratch_ngram(const gw_node *node, int rows) {
    (void)rows;
    return (size_t)node->in[1]->dim[2];
}

static void ngram_row(const gw_node *node, const gw_step *step, int i, double *state) {
    const gw_ngram_args *a = &node->args.ngram;
    int64_t wide = node->w[0]->dim[1], row[GW_NGRAM_HASHES];
    int32_t token[GW_NGRAM_SIZE] = {step->token[i]};
    float *room = malloc((size_t)wide * sizeof *room);
    gw_ngram g;
    gw_ngram_init(&g, a);
    if (token[0] < 0 && node->in[0] != NULL) {
        memcpy(token, ref_row(node->in[0], i), sizeof *token);
    }
    token[0] = token[0] < 0 ? 0 : token[0];
    for (int k = 1; k < a->size; k++) {
        token[k] = (int32_t)state[k - 1] - 1;
    }
    gw_ngram_find(&g, token, row);
    for (int h = 0; h < (a->size - 1) * a->heads && room != NULL; h++) {
        memcpy(ref_floats(node->out, i) + h * wide, ref_weight_row(node->w[0], row[h], room),
               (size_t)wide * sizeof(float));
    }
    for (int k = a->size - 2; k > 0; k--) {
        state[k] = state[k - 1];
    }
    state[0] = token[0] + 1.0;
    free(room);
}

static void run_ngram(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    ref_each_sequence(node, step, rows, scratch, ngram_row);
}

const ref_op ref_hyper = {scratch_row, run_hyper}, ref_rotate = {scratch_row, run_rotate},
             ref_group_dot = {scratch_row, run_group_dot},
             ref_compress = {scratch_row, run_compress}, ref_choose = {scratch_scores, run_choose},
             ref_listed = {scratch_row, run_listed}, ref_ngram = {scratch_ngram, run_ngram};
