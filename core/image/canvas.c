/* core/image/canvas.c - Llama 4's choice among grids of tiles. The published processor computes the
 * scales of grids in float32, and later ones in doubles or float32 by where a number came from. */
#include "core/image/canvas.h"

#include <math.h>

enum { MOST_GRIDS = 512 }; /* of GW_MOST_TILES tiles and fewer there are 280 */

typedef struct grid {
    int32_t rows, columns;
} grid;

/* All grids in the order of the published list: those of one aspect next to one another, aspects by
 * when they first occur as the number of tiles falls. */
static int list_grids(int32_t max_tiles, grid out[MOST_GRIDS]) {
    grid found[MOST_GRIDS];
    int n = 0, sorted = 0;
    for (int32_t tiles = max_tiles; tiles >= 1; tiles--) {
        for (int32_t rows = 1; rows <= tiles && n < MOST_GRIDS; rows++) {
            if (tiles % rows == 0) {
                found[n++] = (grid){rows, tiles / rows};
            }
        }
    }
    for (int i = 0; i < n; i++) {
        grid g = found[i];
        int seen = 0;
        for (int k = 0; k < i && !seen; k++) {
            seen = found[k].rows * g.columns == g.rows * found[k].columns;
        }
        for (int k = i; k < n && !seen; k++) {
            if (found[k].rows * g.columns == g.rows * found[k].columns) {
                out[sorted++] = found[k];
            }
        }
    }
    return sorted;
}

static float scale_of(const gw_processor *p, grid g, int32_t width, int32_t height) {
    float w = (float)(g.columns * p->side_w) / (float)width;
    float h = (float)(g.rows * p->side_h) / (float)height;
    return h > w ? w : h;
}

/* The smallest scale that enlarges, else the largest; of its grids the one of least area. */
static grid best_grid(const gw_processor *p, int32_t width, int32_t height) {
    grid all[MOST_GRIDS], best = {1, 1};
    int n = list_grids(p->max_tiles, all);
    float chosen = -1.0F;
    for (int i = 0; i < n; i++) {
        float s = scale_of(p, all[i], width, height);
        int better = chosen < 0 ? 1 : chosen >= 1 && s >= 1 ? s < chosen : s > chosen && chosen < 1;
        chosen = better ? s : chosen;
    }
    int32_t area = INT32_MAX;
    for (int i = 0; i < n; i++) {
        if (scale_of(p, all[i], width, height) == chosen && all[i].rows * all[i].columns < area) {
            best = all[i];
            area = best.rows * best.columns;
        }
    }
    return best;
}

/* A length of the target and whether it came from the list, whose numbers are divided in float32.
 */
typedef struct length {
    int32_t value;
    int single;
} length;

static length length_of(int32_t own, int32_t side, int32_t target) {
    int32_t at_least = own > side ? own : side;
    return at_least <= target ? (length){at_least, 0} : (length){target, 1};
}

static double ratio(length to, int32_t from) {
    return to.single ? (double)((float)to.value / (float)from) : (double)to.value / from;
}

static int32_t times(int32_t own, length to, double scale) {
    return (int32_t)floor(to.single ? (double)((float)own * (float)scale) : own * scale);
}

gw_status gw_canvas_choose(const char *where, const gw_processor *p, int32_t width, int32_t height,
                           gw_layout *out) {
    grid g = best_grid(p, width, height);
    int64_t canvas_w = (int64_t)g.columns * p->side_w, canvas_h = (int64_t)g.rows * p->side_h;
    if (canvas_w > GW_PICTURE_SIDE || canvas_h > GW_PICTURE_SIDE) {
        return gw_fail(GW_E_LIMIT, where, "would be %lld x %lld pixels for this model",
                       (long long)canvas_w, (long long)canvas_h);
    }
    out->canvas = (gw_extent){(int32_t)canvas_w, (int32_t)canvas_h};
    out->rows = g.rows;
    out->columns = g.columns;
    length to_w = length_of(width, p->side_h, out->canvas.w);
    length to_h = length_of(height, p->side_h, out->canvas.h);
    double scale_w = ratio(to_w, width), scale_h = ratio(to_h, height);
    int single = to_w.single || to_h.single;
    if (single ? (float)scale_w < (float)scale_h : scale_w < scale_h) {
        int32_t h = times(height, to_w, scale_w);
        out->scaled = (gw_extent){to_w.value, h < to_h.value ? h : to_h.value};
    } else {
        int32_t w = times(width, to_h, scale_h);
        out->scaled = (gw_extent){w < to_w.value ? w : to_w.value, to_h.value};
    }
    out->scaled.w = out->scaled.w > 1 ? out->scaled.w : 1;
    out->scaled.h = out->scaled.h > 1 ? out->scaled.h : 1;
    if (g.rows * g.columns > 1) {
        out->whole = (gw_extent){p->side_w, p->side_h};
    }
    return GW_OK;
}
