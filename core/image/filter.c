/* core/image/filter.c - filters, and their weights as integers. */
#include "core/image/filter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- filters, in Pillow's spelling of each formula: its order of operations decides last bits ---
 */

static double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

static double bilinear(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double hamming(double x) {
    x = fabs(x);
    if (x == 0.0) {
        return 1.0;
    }
    if (x >= 1.0) {
        return 0.0;
    }
    x = x * M_PI;
    return sin(x) / x * ((double)0.54f + (double)0.46f * cos(x));
}

static double bicubic(double x) { /* Keys 1981 with a = -1/2 */
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    }
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double sinc(double x) {
    if (x == 0.0) {
        return 1.0;
    }
    x = x * M_PI;
    return sin(x) / x;
}

static double lanczos(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

static const struct {
    double (*value)(double x);
    double support; /* it is 0 beyond */
} filters[GW_FILTER_COUNT] = {
    [GW_FILTER_LANCZOS] = {lanczos, 3.0}, [GW_FILTER_BILINEAR] = {bilinear, 1.0},
    [GW_FILTER_BICUBIC] = {bicubic, 2.0}, [GW_FILTER_BOX] = {box, 0.5},
    [GW_FILTER_HAMMING] = {hamming, 1.0},
};

/* ---- weights --------------------------------------------------------------------------------- */

/* Weights of output i: doubles whose sum is 1; the largest one so far goes to *largest. */
static void place(gw_taps *t, int32_t i, int32_t from, gw_filter filter, double *weight,
                  double *largest) {
    double scale = (double)from / t->n, stretch = scale < 1.0 ? 1.0 : scale;
    double support = filters[filter].support * stretch, center = (i + 0.5) * scale, sum = 0.0;
    double shrink = 1.0 / stretch;
    int32_t first = (int32_t)(center - support + 0.5), end = (int32_t)(center + support + 0.5);
    first = first < 0 ? 0 : first;
    end = end > from ? from : end;
    int32_t count = end - first < t->room ? end - first : t->room;
    for (int32_t k = 0; k < count; k++) {
        weight[k] = filters[filter].value((k + first - center + 0.5) * shrink);
        sum += weight[k];
    }
    for (int32_t k = 0; k < count; k++) {
        weight[k] = sum != 0.0 ? weight[k] / sum : weight[k];
        *largest = weight[k] > *largest ? weight[k] : *largest;
    }
    t->first[i] = first;
    t->count[i] = count;
}

/* Fractional bits: Pillow's 32 - 8 - 2; or as many as keep the largest weight within 16 bits. */
static int bits_of(gw_pixel_rule rule, double largest) {
    int bits = 22;
    if (rule == GW_PIXELS_TORCHVISION) {
        for (bits = 0; bits < 22; bits++) {
            if ((int)(0.5 + largest * (double)(1 << (bits + 1))) >= 1 << 15) {
                break;
            }
        }
    }
    return bits;
}

gw_status gw_taps_make(const char *where, int32_t from, int32_t to, gw_filter filter,
                       gw_pixel_rule rule, gw_taps *out) {
    double scale = (double)from / to;
    int32_t room = (int32_t)ceil(filters[filter].support * (scale < 1.0 ? 1.0 : scale)) * 2 + 1;
    size_t n = (size_t)to;
    gw_taps t = {.n = to, .room = room};
    double *weight = calloc(n * (size_t)room, sizeof *weight), largest = 0.0;
    t.first = malloc(n * sizeof *t.first);
    t.count = malloc(n * sizeof *t.count);
    t.weight = malloc(n * (size_t)room * sizeof *t.weight);
    if (weight == NULL || t.first == NULL || t.count == NULL || t.weight == NULL) {
        free(weight);
        gw_taps_free(&t);
        return gw_fail(GW_E_NOMEM, where, "no memory to resize a picture");
    }
    for (int32_t i = 0; i < to; i++) {
        place(&t, i, from, filter, weight + (size_t)i * (size_t)room, &largest);
    }
    t.shift = bits_of(rule, largest);
    for (size_t i = 0; i < n * (size_t)room; i++) {
        double scaled = weight[i] * (double)(1 << t.shift);
        t.weight[i] = (int32_t)(scaled < 0 ? -0.5 + scaled : 0.5 + scaled);
    }
    free(weight);
    *out = t;
    return GW_OK;
}

void gw_taps_free(gw_taps *taps) {
    free(taps->first);
    free(taps->count);
    free(taps->weight);
    *taps = (gw_taps){0};
}
