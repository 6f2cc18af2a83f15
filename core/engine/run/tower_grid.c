/* core/engine/run/tower_grid.c - what the host makes for the grid of a tile: the order of patches,
 * and rows of learned positions. In double precision, rounded once: the same on any host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/tower.h"

/* ---- order ---------------------------------------------------------------------------------- */

void gw_grid_free(gw_grid_order *o) {
    free(o->from);
    free(o->at);
    free(o->window);
    free(o->group);
    memset(o, 0, sizeof *o);
}

typedef struct grid {
    int32_t rows, columns, merge; /* in patches */
    int by_block;
} grid;

/* Where the patch of a row and column stands among those that come. */
static int32_t came_as(const grid *g, int32_t row, int32_t column) {
    const int32_t m = g->merge;
    if (!g->by_block) {
        return row * g->columns + column;
    }
    return (row / m * (g->columns / m) + column / m) * m * m + row % m * m + column % m;
}

/* The group at (row, column) of the grid of groups is the next one. */
static void take_group(const grid *g, int32_t row, int32_t column, int32_t window, int32_t *n,
                       gw_grid_order *o) {
    const int32_t m = g->merge;
    o->group[*n / (m * m)] = row * (g->columns / m) + column;
    for (int32_t i = 0; i < m * m; i++, ++*n) {
        o->at[*n][0] = row * m + i / m;
        o->at[*n][1] = column * m + i % m;
        o->from[*n] = came_as(g, o->at[*n][0], o->at[*n][1]);
        o->window[*n] = window;
    }
}

gw_status gw_grid_arrange(int32_t rows, int32_t columns, int32_t merge, int by_block,
                          int32_t window, gw_grid_order *out) {
    const grid g = {rows, columns, merge, by_block};
    const size_t n = (size_t)rows * (size_t)columns;
    const int32_t high = rows / merge, wide = columns / merge;
    const int32_t step = window > 0 ? window : high > wide ? high : wide;
    gw_grid_order o = {.n = (int32_t)n};
    o.from = malloc(n * sizeof *o.from);
    o.at = malloc(n * sizeof *o.at);
    o.window = malloc(n * sizeof *o.window);
    o.group = malloc(n * sizeof *o.group);
    if (o.from == NULL || o.at == NULL || o.window == NULL || o.group == NULL) {
        gw_grid_free(&o);
        return gw_fail(GW_E_NOMEM, "image", "no memory for %zu patches", n);
    }
    int32_t taken = 0;
    for (int32_t top = 0; top < high; top += step) {
        for (int32_t left = 0; left < wide; left += step, o.n_windows++) {
            for (int32_t r = top; r < high && r < top + step; r++) {
                for (int32_t c = left; c < wide && c < left + step; c++) {
                    take_group(&g, r, c, o.n_windows, &taken, &o);
                }
            }
        }
    }
    *out = o;
    return GW_OK;
}

/* ---- positions ------------------------------------------------------------------------------ */

enum { MOST_TAPS = 64 };

/* What one axis of a table gives one place of a grid: weights of entries from `first` on. */
typedef struct taps {
    int32_t first, n;
    double weight[MOST_TAPS];
} taps;

static taps one_tap(int32_t at) { return (taps){.first = at, .n = 1, .weight = {1.0}}; }

/* Between the corners of the table; the place in single precision, as torch.linspace gives it. */
static taps aligned(int32_t i, int32_t n, int32_t side) {
    const float step = n > 1 ? (float)(side - 1) / (float)(n - 1) : 0.0f;
    /* The second half counts from the end. */
    const float x =
        i < n / 2 || n == 1 ? step * (float)i : (float)(side - 1) - step * (float)(n - 1 - i);
    const int32_t low = (int32_t)x;
    const double part = (double)(x - (float)low);
    if (low + 1 >= side) {
        return one_tap(side - 1);
    }
    return (taps){.first = low, .n = 2, .weight = {1.0 - part, part}};
}

/* The middle of place i of n in a table of `side`; narrower grids average (antialias). */
static taps resized(int32_t i, int32_t n, int32_t side) {
    const double scale = (double)side / n, support = scale > 1.0 ? scale : 1.0;
    const double middle = (i + 0.5) * scale;
    int32_t low = (int32_t)(middle - support + 0.5), high = (int32_t)(middle + support + 0.5);
    low = low > 0 ? low : 0;
    high = high < side ? high : side;
    high = high > low + MOST_TAPS ? low + MOST_TAPS : high;
    taps t = {.first = low, .n = high - low};
    double sum = 0.0;
    for (int32_t k = 0; k < t.n; k++) {
        double x = fabs((low + k - middle + 0.5) / support);
        t.weight[k] = x < 1.0 ? 1.0 - x : 0.0;
        sum += t.weight[k];
    }
    for (int32_t k = 0; k < t.n; k++) {
        t.weight[k] /= sum;
    }
    return t;
}

static double cubic(double x) { /* a = -0.75 */
    const double a = -0.75, y = fabs(x);
    return y <= 1.0  ? ((a + 2.0) * y - (a + 3.0)) * y * y + 1.0
           : y < 2.0 ? ((a * y - 5.0 * a) * y + 8.0 * a) * y - 4.0 * a
                     : 0.0;
}

/* Four entries, those beyond an edge being the edge's. */
static taps bicubic(int32_t i, int32_t n, int32_t side) {
    const double at = (i + 0.5) * ((double)side / n) - 0.5, low = floor(at);
    int32_t from = (int32_t)low - 1;
    taps t = {.first = from < 0 ? 0 : from > side - 4 ? side - 4 : from, .n = side < 4 ? side : 4};
    t.first = t.first < 0 ? 0 : t.first;
    for (int32_t k = from; k < from + 4; k++) {
        int32_t entry = k < 0 ? 0 : k >= side ? side - 1 : k;
        int32_t place = entry - t.first;
        t.weight[place < 0 ? 0 : place >= t.n ? t.n - 1 : place] += cubic(at - k);
    }
    return t;
}

/* The share of the axis that the place stands at, in single precision, among `side` buckets: how
 * many boundaries k / side (k from 1) are not above it. */
static taps bucket(int32_t i, int32_t n, int32_t side) {
    const float step = 1.0f / (float)n, share = fminf((float)i * step, 1.0f - 1e-6f);
    int32_t at = (int32_t)(share * (float)side);
    at = at > 0 ? at - 1 : 0;
    while (at + 1 < side && (float)(at + 1) * (1.0f / (float)side) <= share) {
        at++;
    }
    return one_tap(at);
}

static taps taps_of(gw_grid_kind kind, int32_t i, int32_t n, int32_t side) {
    if (kind != GW_GRID_CORNER && n == side && kind != GW_GRID_BUCKETS) {
        return one_tap(i);
    }
    switch (kind) {
    case GW_GRID_ALIGNED:
        return aligned(i, n, side);
    case GW_GRID_BILINEAR:
        return resized(i, n, side);
    case GW_GRID_BICUBIC:
        return bicubic(i, n, side);
    case GW_GRID_BUCKETS:
        return bucket(i, n, side);
    default:
        return one_tap(i);
    }
}

static void blend(const float *table, int32_t side, int32_t d, const taps *row, const taps *column,
                  float *to) {
    for (int32_t c = 0; c < d; c++) {
        double sum = 0.0;
        for (int32_t i = 0; i < row->n; i++) {
            for (int32_t k = 0; k < column->n; k++) {
                size_t at = (size_t)(row->first + i) * (size_t)side + (size_t)(column->first + k);
                sum +=
                    row->weight[i] * column->weight[k] * (double)table[at * (size_t)d + (size_t)c];
            }
        }
        to[c] = (float)sum;
    }
}

static gw_status too_small(int64_t entries, int32_t rows, int32_t columns) {
    return gw_fail(GW_E_UNSUPPORTED, "image",
                   "%d x %d patches have no place in a table of %lld positions", rows, columns,
                   (long long)entries);
}

/* Tables of rows of their own: in order, or one of columns and one of rows. */
static gw_status add_rows(gw_grid_kind kind, const float *table, int64_t entries, int32_t d,
                          const int32_t (*at)[2], int32_t n, int32_t columns, float *to) {
    const int two = kind == GW_GRID_TWO;
    for (int32_t i = 0; i < n; i++) {
        int64_t first = two ? at[i][1] : (int64_t)at[i][0] * columns + at[i][1];
        int64_t second = entries / 2 + at[i][0];
        if (first >= (two ? entries / 2 : entries) || (two && second >= entries)) {
            return too_small(entries, at[i][0] + 1, columns);
        }
        for (int32_t c = 0; c < d; c++) {
            float other = two ? table[second * d + c] : 0.0f;
            to[(size_t)i * (size_t)d + (size_t)c] = table[first * d + c] + other;
        }
    }
    return GW_OK;
}

gw_status gw_grid_places(gw_grid_kind kind, const float *table, int64_t entries, int32_t d,
                         int32_t rows, int32_t columns, const int32_t (*at)[2], int32_t n,
                         float *to) {
    int32_t side = (int32_t)sqrt((double)entries + 0.5);
    if (kind == GW_GRID_NONE) {
        memset(to, 0, (size_t)n * (size_t)d * sizeof *to);
        return GW_OK;
    }
    if (kind == GW_GRID_ROWS || kind == GW_GRID_TWO) {
        return add_rows(kind, table, entries, d, at, n, columns, to);
    }
    if ((int64_t)side * side != entries ||
        (kind == GW_GRID_CORNER && (rows > side || columns > side)) ||
        ((kind == GW_GRID_BILINEAR) &&
         ((double)side / rows > MOST_TAPS / 2 - 1 || (double)side / columns > MOST_TAPS / 2 - 1))) {
        return too_small(entries, rows, columns);
    }
    for (int32_t i = 0; i < n; i++) {
        taps row = taps_of(kind, at[i][0], rows, side);
        taps column = taps_of(kind, at[i][1], columns, side);
        blend(table, side, d, &row, &column, to + (size_t)i * (size_t)d);
    }
    return GW_OK;
}
