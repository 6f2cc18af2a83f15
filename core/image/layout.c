/* core/image/layout.c - the rules of sizes, each by the arithmetic of its published processor:
 * which steps are in doubles, in float32 or in integers decides sizes at the edges. */
#include "core/image/layout.h"

#include <math.h>

#include "core/image/canvas.h"

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Sizes as they are computed, before they are known to fit. */
typedef struct wide {
    double w, h;
} wide;

static gw_status keep(const char *where, wide size, gw_extent *out) {
    if (!(size.w >= 1 && size.h >= 1 && size.w <= GW_PICTURE_SIDE && size.h <= GW_PICTURE_SIDE &&
          size.w * size.h <= GW_PICTURE_PIXELS)) {
        return gw_fail(GW_E_LIMIT, where,
                       "would be made %.0f x %.0f pixels for this model; crop it to a less extreme "
                       "shape",
                       size.w, size.h);
    }
    *out = (gw_extent){(int32_t)size.w, (int32_t)size.h};
    return GW_OK;
}

/* Multiples of factor whose area is within [low, high]; floor_to: not below this. */
static wide smart(double width, double height, double factor, double low, double high,
                  double floor_to) {
    wide s = {fmax(floor_to, rint(width / factor) * factor),
              fmax(floor_to, rint(height / factor) * factor)};
    if (s.w * s.h > high) {
        double beta = sqrt(height * width / high);
        s.w = fmax(factor, floor(width / beta / factor) * factor);
        s.h = fmax(factor, floor(height / beta / factor) * factor);
    } else if (s.w * s.h < low) {
        double beta = sqrt(low / (height * width));
        s.w = ceil(width * beta / factor) * factor;
        s.h = ceil(height * beta / factor) * factor;
    }
    return s;
}

static gw_status too_long(const char *where, int32_t width, int32_t height) {
    return gw_fail(GW_E_LIMIT, where,
                   "is %d x %d pixels; this model takes no picture that is more than %d times as "
                   "long as wide",
                   (int)width, (int)height, GW_LAYOUT_ASPECT);
}

static gw_status size_smart(const char *where, const gw_processor *p, int32_t width, int32_t height,
                            gw_layout *out) {
    double longer = (double)most(width, height), shorter = (double)least(width, height);
    if (longer / shorter > GW_LAYOUT_ASPECT) {
        return too_long(where, width, height);
    }
    wide size = smart(width, height, (double)p->patch * p->merge, (double)p->min_pixels,
                      (double)p->max_pixels, 0);
    return keep(where, size, &out->scaled);
}

static gw_status size_frames(const char *where, const gw_processor *p, int32_t width,
                             int32_t height, gw_layout *out) {
    const double factor = (double)p->patch * p->merge;
    double w = width, h = height;
    if (h < factor || w < factor) {
        double times = fmax(factor / h, factor / w);
        h = floor(h * times);
        w = floor(w * times);
    }
    if (fmax(h, w) / fmin(h, w) > GW_LAYOUT_ASPECT) {
        return too_long(where, width, height);
    }
    wide size = smart(w, h, factor, (double)p->min_pixels / p->temporal,
                      (double)p->max_pixels / p->temporal, 0);
    return keep(where, size, &out->scaled);
}

static gw_status size_longest(const char *where, const gw_processor *p, int32_t width,
                              int32_t height, gw_layout *out) {
    double ratio = fmax((double)height / p->longest, (double)width / p->longest);
    int64_t w = width, h = height, factor = (int64_t)p->patch * p->merge;
    if (ratio > 1) {
        w = (int64_t)floor(width / ratio);
        h = (int64_t)floor(height / ratio);
    }
    /* An edge that became 0 is one patch there: (0 - 1) // n + 1 is 0, which nothing can resize to.
     */
    wide size = {(double)((most(w, 1) - 1) / factor + 1) * (double)factor,
                 (double)((most(h, 1) - 1) / factor + 1) * (double)factor};
    return keep(where, size, &out->scaled);
}

static gw_status size_budget(const char *where, const gw_processor *p, int32_t width,
                             int32_t height, gw_layout *out) {
    double patches = (double)p->max_tokens * p->merge * p->merge;
    double target = patches * p->patch * p->patch, multiple = (double)p->patch * p->merge;
    double factor = sqrt(target / ((double)width * height));
    wide s = {floor(factor * width / multiple) * multiple,
              floor(factor * height / multiple) * multiple};
    double longest = p->max_tokens * multiple;
    if (s.h == 0 && s.w > 0) {
        s.h = multiple;
        s.w = fmin((double)(width / height) * multiple, longest);
    } else if (s.w == 0 && s.h > 0) {
        s.w = multiple;
        s.h = fmin((double)(height / width) * multiple, longest);
    }
    return keep(where, s, &out->scaled);
}

static gw_status size_kimi(const char *where, const gw_processor *p, int32_t width, int32_t height,
                           gw_layout *out) {
    double rows = fmax(1, height / p->patch), columns = fmax(1, width / p->patch);
    double scale = fmin(1.0, sqrt(p->max_patches / (rows * columns)));
    double edge = (double)p->max_side * p->patch;
    scale = fmin(scale, fmin(edge / height, edge / width));
    wide s = {fmin(fmax(1, floor(width * scale)), edge),
              fmin(fmax(1, floor(height * scale)), edge)};
    double factor = (double)p->patch * p->merge;
    wide padded = {ceil(s.w / factor) * factor, ceil(s.h / factor) * factor};
    GW_TRY(keep(where, s, &out->scaled));
    return keep(where, padded, &out->canvas);
}

/* ---- tiles ------------------------------------------------------------------------------------
 */

static gw_status size_split(const char *where, const gw_processor *p, int32_t width, int32_t height,
                            gw_layout *out) {
    enum { LARGEST = 4096 };
    double aspect = (double)width / height, tile = p->side_w, w, h;
    int wider = width >= height;
    double longer = p->longest, shorter = floor(wider ? longer / aspect : longer * aspect);
    shorter += fmod(shorter, 2); /* an even one */
    shorter = fmax(shorter, 1);
    if (longer > LARGEST) {
        double again = wider ? longer / shorter : shorter / longer;
        longer = LARGEST;
        shorter = fmax(1, floor(wider ? longer / again : longer * again));
    }
    GW_TRY(keep(where, wider ? (wide){longer, shorter} : (wide){shorter, longer}, &out->first));
    if (!p->split) {
        out->scaled = (gw_extent){p->side_w, p->side_h};
        return GW_OK;
    }
    aspect = (double)out->first.w / out->first.h;
    if (out->first.w >= out->first.h) {
        w = ceil(out->first.w / tile) * tile;
        h = ceil(floor(w / aspect) / tile) * tile;
    } else {
        h = ceil(out->first.h / tile) * tile;
        w = ceil(floor(h * aspect) / tile) * tile;
    }
    GW_TRY(keep(where, (wide){w, h}, &out->scaled));
    if (out->scaled.w > p->side_w || out->scaled.h > p->side_h) {
        out->rows = out->scaled.h / p->side_h;
        out->columns = out->scaled.w / p->side_w;
        out->whole = (gw_extent){p->side_w, p->side_h};
        out->whole_of_scaled = 1;
    }
    return GW_OK;
}

/* The grid of min_tiles to max_tiles whose aspect is nearest; of two the one with more tiles while
 * the picture fills half of it. */
static void nearest_grid(const gw_processor *p, int32_t width, int32_t height, gw_layout *out) {
    double aspect = (double)width / height, area = (double)width * height, best = INFINITY;
    out->rows = out->columns = 1;
    for (int32_t n = p->min_tiles; n <= p->max_tiles; n++) {
        for (int32_t w = 1; w <= n; w++) {
            if (n % w != 0) {
                continue;
            }
            double away = fabs(aspect - (double)w / (n / w));
            double half = 0.5 * p->side_h * p->side_w * w * (n / w);
            if (away < best || (away == best && area > half)) {
                best = away;
                out->columns = w;
                out->rows = n / w;
            }
        }
    }
}

static gw_status size_aspect(const char *where, const gw_processor *p, int32_t width,
                             int32_t height, gw_layout *out) {
    if (p->split) {
        nearest_grid(p, width, height, out);
    }
    wide size = {(double)p->side_w * out->columns, (double)p->side_h * out->rows};
    if (p->thumbnail && out->rows * out->columns > 1) {
        out->whole = (gw_extent){p->side_w, p->side_h};
    }
    return keep(where, size, &out->scaled);
}

static gw_status size_lfm2(const char *where, const gw_processor *p, int32_t width, int32_t height,
                           gw_layout *out) {
    double factor = (double)p->patch * p->merge, area = factor * factor;
    double w = fmax(p->patch, rint(width / factor) * factor);
    double h = fmax(p->patch, rint(height / factor) * factor);
    int tiles = p->split && !(p->min_tiles == 1 && p->max_tiles == 1);
    wide one = smart(width, height, factor, p->min_tokens * area, p->max_tokens * area, factor);
    if (!tiles || !(w * h > p->max_tokens * area * p->tolerance)) {
        return keep(where, one, &out->scaled);
    }
    nearest_grid(p, width, height, out);
    if (p->thumbnail && out->rows * out->columns > 1) {
        GW_TRY(keep(where, one, &out->whole));
    }
    return keep(where, (wide){(double)p->side_w * out->columns, (double)p->side_h * out->rows},
                &out->scaled);
}

gw_status gw_layout_of(const char *where, const gw_processor *p, int32_t width, int32_t height,
                       gw_layout *out) {
    gw_layout l = {.rows = 1, .columns = 1};
    gw_status status = GW_OK;
    switch (p->size) {
    case GW_SIZE_SMART:
        status = size_smart(where, p, width, height, &l);
        break;
    case GW_SIZE_FRAMES:
        status = size_frames(where, p, width, height, &l);
        break;
    case GW_SIZE_FIXED:
        l.scaled = (gw_extent){p->side_w, p->side_h};
        break;
    case GW_SIZE_LONGEST:
        status = size_longest(where, p, width, height, &l);
        break;
    case GW_SIZE_BUDGET:
        status = size_budget(where, p, width, height, &l);
        break;
    case GW_SIZE_KIMI:
        status = size_kimi(where, p, width, height, &l);
        break;
    case GW_SIZE_SPLIT:
        status = size_split(where, p, width, height, &l);
        break;
    case GW_SIZE_ASPECT:
        status = size_aspect(where, p, width, height, &l);
        break;
    case GW_SIZE_LFM2:
        status = size_lfm2(where, p, width, height, &l);
        break;
    case GW_SIZE_CANVAS:
        status = gw_canvas_choose(where, p, width, height, &l);
        break;
    }
    if (status != GW_OK) {
        return status;
    }
    l.canvas = l.canvas.w != 0 ? l.canvas : l.scaled;
    *out = l;
    return GW_OK;
}

/* ---- the largest tile -------------------------------------------------------------------------
 */

/* Of `smart`: what is made smaller has at most `high` pixels, or one side of `factor` and the other
 * by the aspect; what is made larger is rounded up on both sides. */
static double most_smart(double factor, double low, double high) {
    const double aspect = GW_LAYOUT_ASPECT;
    double thin = factor * sqrt(aspect * high);
    double larger = low + factor * sqrt(low) * (sqrt(aspect) + 1 / sqrt(aspect)) + factor * factor;
    return fmax(high, fmax(thin, larger));
}

/* Of a budget of patches, counted in whole ones: of r rows less than r + 1 are there. So with k
 * rows and columns at least no more than (1 + 1/k)^2 of the budget are, and with fewer k times the
 * longest edge. Then both sides are rounded up to a merged patch. */
static double most_kimi(const gw_processor *p) {
    const double aspect = GW_LAYOUT_ASPECT, side = p->max_side, merge = p->merge;
    double counted = side * side;
    for (double k = 1; k <= 64; k *= 2) {
        double both = (1 + 1 / k) * (1 + 1 / k) * p->max_patches, thin = k > 1 ? k * side : 0;
        counted = fmin(counted, fmax(both, thin));
    }
    double longer = fmin(side, sqrt(aspect * counted));
    return counted + merge * (longer + counted / longer) + merge * merge;
}

int64_t gw_patches_most(const gw_processor *p) {
    const double factor = (double)p->patch * p->merge, patch = (double)p->patch * p->patch;
    const double tile = (double)(p->side_w / p->patch) * (p->side_h / p->patch);
    const double token = factor * factor;
    switch (p->size) {
    case GW_SIZE_SMART:
        return (int64_t)(most_smart(factor, (double)p->min_pixels, (double)p->max_pixels) / patch);
    case GW_SIZE_FRAMES:
        return (int64_t)(most_smart(factor, (double)p->min_pixels / p->temporal,
                                    (double)p->max_pixels / p->temporal) /
                         patch);
    case GW_SIZE_LONGEST: {
        const double side = ceil(p->longest / factor) * p->merge;
        return (int64_t)(side * side);
    }
    case GW_SIZE_BUDGET:
        return (int64_t)p->max_tokens * p->merge * p->merge;
    case GW_SIZE_KIMI:
        return (int64_t)most_kimi(p);
    case GW_SIZE_LFM2:
        return (int64_t)fmax(p->split ? tile : 0,
                             most_smart(factor, p->min_tokens * token, p->max_tokens * token) /
                                 patch);
    case GW_SIZE_FIXED:
    case GW_SIZE_SPLIT:
    case GW_SIZE_ASPECT:
    case GW_SIZE_CANVAS:
        break;
    }
    return (int64_t)tile;
}
