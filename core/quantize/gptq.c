/* core/quantize/gptq.c - see gptq.h. In double throughout; a sum over columns runs in the order of
 * the columns, whatever the tiles, so that threads that share out rows change no bit. */
#include "core/quantize/gptq.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clones.h"

enum { LAZY = 256, TILE = 256, LANES = 8 };

/* ---- the order ------------------------------------------------------------------------------ */

typedef struct ranked {
    double key;
    int at;
} ranked;

/* Falling keys, lowest index first among equals. */
static int falling(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->key != y->key) {
        return x->key > y->key ? -1 : 1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Columns [from, from + n) by falling diagonal into out. */
static void sort_columns(const double *diagonal, int from, int n, ranked *work, int *out) {
    for (int i = 0; i < n; i++) {
        work[i] = (ranked){diagonal[from + i], from + i};
    }
    qsort(work, (size_t)n, sizeof *work, falling);
    for (int i = 0; i < n; i++) {
        out[i] = work[i].at;
    }
}

/* Groups of `size` columns in [from, from + n) by falling sum, each laid out by the next level. */
static int sort_groups(const gw_gptq *g, const double *diagonal, int from, int n, int size,
                       ranked *work, int *out) {
    int groups = (n + size - 1) / size, used = 0;
    ranked *list = malloc((size_t)groups * sizeof *list);
    if (list == NULL) {
        return 0;
    }
    for (int k = 0; k < groups; k++) {
        int first = from + k * size, end = first + size < from + n ? first + size : from + n;
        list[k] = (ranked){0.0, first};
        for (int i = first; i < end; i++) {
            list[k].key += diagonal[i];
        }
        if (end - first < size) { /* a short group comes last, so that groups begin at multiples */
            list[k].key = -1.0;
        }
    }
    qsort(list, (size_t)groups, sizeof *list, falling);
    int done = 1;
    for (int k = 0; k < groups && done; k++) {
        int first = list[k].at, width = first + size < from + n ? size : from + n - first;
        int below = size > g->sub ? g->sub : size > g->together ? g->together : 0;
        if (below > 0) {
            done = sort_groups(g, diagonal, first, width, below, work, out + used);
        } else {
            sort_columns(diagonal, first, width, work, out + used);
        }
        used += width;
    }
    free(list);
    return done;
}

static gw_status make_order(const char *where, gw_gptq *g, const double *diagonal) {
    ranked *work = malloc((size_t)g->n * sizeof *work);
    int done = work != NULL;
    if (done && g->order == GW_GPTQ_NONE) {
        for (int i = 0; i < g->n; i++) {
            g->column[i] = i;
        }
    } else if (done && g->order == GW_GPTQ_FALLING) {
        done = sort_groups(g, diagonal, 0, g->n, g->block, work, g->column);
    } else if (done) {
        sort_columns(diagonal, 0, g->n, work, g->column);
    }
    free(work);
    return done ? GW_OK : gw_fail(GW_E_NOMEM, where, "no memory for an order of %d columns", g->n);
}

/* ---- U -------------------------------------------------------------------------------------- */

/* Sum over k < n of a[k] b[k], eight lanes, joined in order. */
GW_CLONES static double dot(const double *a, const double *b, int n) {
    double lane[LANES] = {0};
    int k = 0;
    for (; k + LANES <= n; k += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] += a[k + l] * b[k + l];
        }
    }
    double sum =
        ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    for (; k < n; k++) {
        sum += a[k] * b[k];
    }
    return sum;
}

/* y -= s x */
GW_CLONES static void subtract(double *restrict y, const double *restrict x, double s, int n) {
    for (int i = 0; i < n; i++) {
        y[i] -= s * x[i];
    }
}

/* Lower L of a = L L^T in place, upper part untouched; 0 when a is not positive definite. */
static int cholesky(double *a, int n) {
    for (int i = 0; i < n; i++) {
        double *row = a + (size_t)i * (size_t)n;
        for (int j = 0; j <= i; j++) {
            const double *other = a + (size_t)j * (size_t)n;
            double sum = row[j] - dot(row, other, j);
            if (j < i) {
                row[j] = sum / other[j];
            } else if (sum > 0.0 && sum < 1e300) {
                row[j] = sqrt(sum);
            } else {
                return 0;
            }
        }
    }
    return 1;
}

/* Inverse of lower L in place: rows of M = (unit - sum over k < i of L_ik M_k) / L_ii. line [n]. */
static int invert(double *a, int n, double *line) {
    for (int i = 0; i < n; i++) {
        double *row = a + (size_t)i * (size_t)n, d = row[i];
        memset(line, 0, (size_t)i * sizeof *line);
        for (int k = 0; k < i; k++) {
            subtract(line, a + (size_t)k * (size_t)n, row[k], k + 1);
        }
        for (int k = 0; k < i; k++) {
            row[k] = line[k] / d;
        }
        row[i] = 1.0 / d;
        if (!(row[i] > 0.0 && row[i] < 1e300)) {
            return 0;
        }
    }
    return 1;
}

/* U of inverse(H) = U^T U. With J the reversal, J H J = L L^T; then U = J inverse(L) J. */
static int factor(const gw_gptq *g, const float *xtx, const double *diagonal, double add,
                  double *line) {
    size_t n = (size_t)g->n;
    double *a = g->u;
    for (size_t i = 0; i < n; i++) {
        size_t row = (size_t)g->column[n - 1 - i];
        for (size_t j = 0; j < i; j++) {
            a[i * n + j] = (double)xtx[row * n + (size_t)g->column[n - 1 - j]];
        }
        a[i * n + i] = diagonal[row] + add;
    }
    if (!cholesky(a, g->n) || !invert(a, g->n, line)) {
        return 0;
    }
    for (size_t i = 0, k = n * n - 1; i < k; i++, k--) { /* J M J is M read backwards */
        double t = a[i];
        a[i] = a[k];
        a[k] = t;
    }
    return 1;
}

uint64_t gw_gptq_bytes(uint64_t n) {
    return n * n * (sizeof(double) + sizeof(float)) + n * 64 +
           GW_GPTQ_ROWS * n * (sizeof(double) + sizeof(gw_coded) / 32);
}

static gw_status read_diagonal(const char *where, const float *xtx, int n, double *diagonal,
                               double *mean, int *alive) {
    double sum = 0.0;
    *alive = 0;
    for (int i = 0; i < n; i++) {
        const float *row = xtx + (size_t)i * (size_t)n;
        for (int k = 0; k < n; k++) {
            if (!gw_all_finite(row + k, 1)) {
                return gw_fail(GW_E_NUMERIC, where, "X^T X: value %d of row %d is not finite", k,
                               i);
            }
        }
        diagonal[i] = (double)row[i];
        if (diagonal[i] > 0.0) {
            sum += diagonal[i];
            (*alive)++;
        }
    }
    *mean = *alive > 0 ? sum / *alive : 0.0;
    return *alive > 0 ? GW_OK : gw_fail(GW_E_NUMERIC, where, "X^T X is zero: no text was seen");
}

gw_status gw_gptq_prepare(const char *where, const float *xtx, int n, double damp,
                          gw_gptq_order order, const gw_coding *coding, gw_gptq *out) {
    gw_gptq g = {.n = n,
                 .block = coding->block,
                 .sub = coding->sub,
                 .together = coding->together > 0 ? coding->together : coding->sub,
                 .order = order};
    size_t count = (size_t)n;
    double *diagonal = calloc(count, sizeof *diagonal), *line = calloc(count, sizeof *line);
    double mean = 0.0;
    int alive = 0, made = 0;
    gw_status status = GW_OK;
    g.column = calloc(count, sizeof *g.column);
    g.importance = calloc(count, sizeof *g.importance);
    g.dead = calloc(count, 1);
    g.u = count <= SIZE_MAX / sizeof *g.u / count ? malloc(count * count * sizeof *g.u) : NULL;
    if (diagonal == NULL || line == NULL || g.column == NULL || g.importance == NULL ||
        g.dead == NULL || g.u == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, where, "no memory for the inputs of %d columns", n));
    }
    GW_TRY_DONE(read_diagonal(where, xtx, n, diagonal, &mean, &alive));
    for (int i = 0; i < n; i++) {
        if (!(diagonal[i] > 0.0)) {
            diagonal[i] = mean;
        }
        g.importance[i] = (float)diagonal[i];
    }
    GW_TRY_DONE(make_order(where, &g, diagonal));
    for (int i = 0; i < n; i++) {
        size_t c = (size_t)g.column[i];
        g.dead[i] = (unsigned char)(xtx[c * count + c] > 0.0f ? 0 : 1);
    }
    for (g.damp = damp; !made; g.damp *= 10.0) {
        made = factor(&g, xtx, diagonal, g.damp * mean, line);
        if (made || g.damp >= 1.0) {
            break;
        }
    }
    status = made ? GW_OK
                  : gw_fail(GW_E_NUMERIC, where, "X^T X has no Cholesky factor, even when damped");
done:
    free(diagonal);
    free(line);
    if (status != GW_OK) {
        gw_gptq_free(&g);
        return status;
    }
    *out = g;
    return GW_OK;
}

void gw_gptq_free(gw_gptq *g) {
    free(g->column);
    free(g->u);
    free(g->importance);
    free(g->dead);
    *g = (gw_gptq){0};
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* What a call works with: w and e in the order's places. */
typedef struct work {
    double *w, *e;  /* [rows, n] */
    float *mean;    /* [rows] of the squares of a row as it came */
    float *values;  /* [block] */
    float *weights; /* [block] importance of the same columns */
} work;

/* The columns of block b as they are now, by their number in the block (GROUP: by place). */
static int gather_block(const gw_gptq *g, const double *w, int place, int b, float *values,
                        float *weights) {
    int cols = b * g->block + g->block <= g->n ? g->block : g->n - b * g->block;
    for (int i = 0; i < cols; i++) {
        int c = g->column[place + i];
        int at = g->order == GW_GPTQ_GROUP ? i : c - b * g->block;
        values[at] = (float)w[place + i];
        weights[at] = g->importance[c];
    }
    return cols;
}

static void find_block(const gw_gptq *g, const gw_coding *coding, const float *values,
                       const float *weights, const float *mean, int cols, gw_coded *out) {
    (void)g;
    const gw_encode_in in = {.w = values,
                             .importance = weights,
                             .mean_square = mean,
                             .blocks = 1,
                             .cols = cols,
                             .feedback = 1};
    coding->search(coding, &in, out);
}

static int is_broken(const gw_coded *b, int s) { return b->ws[s] != b->ws[s]; }

/* The sub-block that begins at this place, by its columns as they are now. */
static void refit_sub(const gw_gptq *g, const gw_coding *coding, int place, int s, const double *w,
                      const work *k, gw_coded *o) {
    for (int j = 0; j < g->sub; j++) {
        int other = g->column[place + j];
        int at = g->order == GW_GPTQ_GROUP ? j : other % g->sub;
        k->values[at] = (float)w[place + j];
        k->weights[at] = g->importance[other];
    }
    coding->refit(coding, s, k->values, k->weights, o);
}

/* Columns that are coded at once: what a column's error costs is 1 / U_ii^2 of it. */
static void code_vector(const gw_gptq *g, const gw_coding *coding, int place, int s,
                        const double *w, const work *k, const gw_coded *o, gw_i16 *code) {
    for (int j = 0; j < g->together; j++) {
        int at = g->column[place + j] % g->together;
        double u = g->u[(size_t)(place + j) * (size_t)g->n + (size_t)(place + j)];
        k->values[at] = (float)w[place + j];
        k->weights[at] = (float)(1.0 / (u * u));
    }
    coding->code_together(coding, o, s, k->values, k->weights, code);
}

/* Places [from, end) of a row, within which errors go on at once. */
static void code_places(const gw_gptq *g, const gw_coding *coding, int from, int end, double *w,
                        double *e, const work *k, const float *mean, gw_coded *blocks,
                        gw_u8 *codes) {
    for (int i = from; i < end; i++) {
        int c = g->column[i], at = g->order == GW_GPTQ_GROUP ? i : c;
        int b = at / g->block, in_block = at % g->block, s = in_block / g->sub;
        gw_coded *o = &blocks[b];
        if (g->order != GW_GPTQ_STATIC && i % g->block == 0) {
            int cols = gather_block(g, w, i, b, k->values, k->weights);
            find_block(g, coding, k->values, k->weights, mean, cols, o);
        }
        if (g->order != GW_GPTQ_STATIC && coding->refit != NULL && i % g->sub == 0 &&
            !is_broken(o, s)) {
            refit_sub(g, coding, i, s, w, k, o);
        }
        int code = o->code[in_block];
        if (coding->together > 0 && i % g->together == 0 && !is_broken(o, s)) {
            code_vector(g, coding, i, s, w, k, o, &o->code[in_block - in_block % g->together]);
            code = o->code[in_block];
        } else if (coding->together == 0 && !is_broken(o, s)) {
            code = gw_code_of(coding, o, s, (float)w[i]);
        }
        o->code[in_block] = (gw_i16)code;
        if (codes != NULL) {
            codes[c] = (gw_u8)code;
        }
        e[i] = 0.0;
        if (!is_broken(o, s) && !g->dead[i]) {
            const double *u = g->u + (size_t)i * (size_t)g->n;
            e[i] = (w[i] - (double)gw_code_value(coding, o, s, code)) / u[i];
            subtract(w + i + 1, u + i + 1, e[i], end - i - 1);
        }
    }
}

/* The columns behind `end` for the errors of places [from, end), tile by tile. */
static void pass_on(const gw_gptq *g, int from, int end, int rows, double *w, const double *e) {
    size_t n = (size_t)g->n;
    for (int t = end; t < g->n; t += TILE) {
        int width = g->n - t < TILE ? g->n - t : TILE;
        for (int r = 0; r < rows; r++) {
            for (int i = from; i < end; i++) {
                if (e[(size_t)r * n + (size_t)i] != 0.0) {
                    subtract(w + (size_t)r * n + t, g->u + (size_t)i * n + t,
                             e[(size_t)r * n + (size_t)i], width);
                }
            }
        }
    }
}

static void take_rows(const gw_gptq *g, const gw_coding *coding, const float *w, int rows,
                      const work *k, gw_coded *out) {
    size_t n = (size_t)g->n;
    int blocks = (g->n + g->block - 1) / g->block;
    for (int r = 0; r < rows; r++) {
        double squares = 0.0;
        const float *row = w + (size_t)r * n;
        for (size_t i = 0; i < n; i++) {
            k->w[(size_t)r * n + i] = (double)row[g->column[i]];
            squares += (double)row[i] * (double)row[i];
        }
        k->mean[r] = (float)(squares / g->n);
        for (int b = 0; b < blocks && g->order == GW_GPTQ_STATIC; b++) {
            int cols = b * g->block + g->block <= g->n ? g->block : g->n - b * g->block;
            find_block(g, coding, row + b * g->block, g->importance + b * g->block, &k->mean[r],
                       cols, &out[(size_t)r * (size_t)blocks + (size_t)b]);
        }
    }
}

gw_status gw_gptq_rows(const gw_gptq *g, const gw_coding *coding, const float *w, int rows,
                       gw_coded *out, gw_u8 *codes) {
    size_t n = (size_t)g->n, all = (size_t)rows * n, block = (size_t)g->block;
    size_t blocks = (n + block - 1) / block;
    work k = {.w = malloc(all * sizeof(double)),
              .e = malloc(all * sizeof(double)),
              .mean = malloc((size_t)rows * sizeof(float)),
              .values = malloc(block * sizeof(float)),
              .weights = malloc(block * sizeof(float))};
    gw_status status = GW_OK;
    if (k.w == NULL || k.e == NULL || k.mean == NULL || k.values == NULL || k.weights == NULL) {
        status = gw_fail(GW_E_NOMEM, NULL, "no memory for %d rows of %d columns", rows, g->n);
    } else {
        take_rows(g, coding, w, rows, &k, out);
    }
    for (int from = 0; from < g->n && status == GW_OK; from += LAZY) {
        int end = from + LAZY < g->n ? from + LAZY : g->n;
        for (int r = 0; r < rows; r++) {
            code_places(g, coding, from, end, k.w + (size_t)r * n, k.e + (size_t)r * n, &k,
                        &k.mean[r], out + (size_t)r * blocks,
                        codes != NULL ? codes + (size_t)r * n : NULL);
        }
        pass_on(g, from, end, rows, k.w, k.e);
    }
    free(k.w);
    free(k.e);
    free(k.mean);
    free(k.values);
    free(k.weights);
    return status;
}
