/* apps/judge/picture.c - loss against size, as SVG: KL on a logarithmic axis where there is a base,
 * else bits per byte. A line joins the models that none beats in both. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/judge/report.h"
#include "apps/output.h"

enum { WIDTH = 900, HEIGHT = 560, LEFT = 90, RIGHT = 190, TOP = 40, BOTTOM = 60, TICKS_MAX = 100 };

typedef struct point {
    const char *name;
    double x, y; /* megabytes; what the axis shows: the logarithm where it is one */
} point;

typedef struct axis {
    double low, high, step;
    int is_log;
} axis;

typedef struct picture {
    out_file file;
    int failed;
    point *points; /* by size */
    size_t n;
    axis x, y;
} picture;

static void put(picture *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(picture *p, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t bytes = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    p->failed = p->failed || out_file_write(&p->file, text, bytes) != 0;
}

static void put_escaped(picture *p, const char *text) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (strchr("<>&\"'", c) != NULL || c < 0x20) {
            put(p, "&#%d;", c < 0x20 ? '?' : c);
        } else {
            put(p, "%c", c);
        }
    }
}

static double at_x(const picture *p, double x) {
    return LEFT + (x - p->x.low) / (p->x.high - p->x.low) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const picture *p, double y) {
    return HEIGHT - BOTTOM - (y - p->y.low) / (p->y.high - p->y.low) * (HEIGHT - TOP - BOTTOM);
}

/* From a round number to a round number, in steps of 1, 2 or 5 times a power of ten. */
static axis round_axis(double low, double high, int is_log) {
    double room = high > low ? (high - low) * 0.05 : fabs(high) * 0.1 + 0.1;
    low -= room;
    high += room;
    double raw = (high - low) / 6, power = pow(10, floor(log10(raw))), times = raw / power;
    double step = power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
    return (axis){.low = low, .high = high, .step = step, .is_log = is_log};
}

/* Number i from the axis' beginning on: of a logarithmic one 1, 2 and 5 times powers of ten. */
static double tick(const axis *a, int i) {
    static const double times[3] = {1, 2, 5};
    if (!a->is_log) {
        return (ceil(a->low / a->step) + i) * a->step;
    }
    int first = 3 * (int)floor(a->low);
    while (log10(times[((first % 3) + 3) % 3]) + floor(first / 3.0) < a->low) {
        first++;
    }
    int k = first + i;
    return log10(times[((k % 3) + 3) % 3]) + floor(k / 3.0);
}

static void draw_axes(picture *p, const char *what) {
    put(p,
        "<g stroke=\"#ccc\" stroke-width=\"1\" font-size=\"13\">\n"
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n",
        LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    for (double x = ceil(p->x.low / p->x.step) * p->x.step; x <= p->x.high; x += p->x.step) {
        put(p,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\" "
            "stroke=\"none\" text-anchor=\"middle\">%.4g</text>\n",
            at_x(p, x), TOP, at_x(p, x), HEIGHT - BOTTOM, at_x(p, x), HEIGHT - BOTTOM + 18, x);
    }
    for (int i = 0; i < TICKS_MAX; i++) {
        double y = tick(&p->y, i);
        if (y > p->y.high) {
            break;
        }
        put(p,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
            "stroke=\"none\" text-anchor=\"end\">%.3g</text>\n",
            LEFT, at_y(p, y), WIDTH - RIGHT, at_y(p, y), LEFT - 8, at_y(p, y) + 4,
            p->y.is_log ? pow(10, y) : y);
    }
    put(p,
        "</g>\n<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">size, MB</text>\n"
        "<text x=\"20\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 20 %d)\">%s"
        "</text>\n",
        (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, (TOP + HEIGHT - BOTTOM) / 2,
        (TOP + HEIGHT - BOTTOM) / 2, what);
}

static void draw_points(picture *p) {
    double best = INFINITY;
    put(p, "<polyline fill=\"none\" stroke=\"#d55e00\" stroke-width=\"1.5\" points=\"");
    for (size_t i = 0; i < p->n; i++) {
        if (p->points[i].y < best) {
            best = p->points[i].y;
            put(p, "%.1f,%.1f ", at_x(p, p->points[i].x), at_y(p, p->points[i].y));
        }
    }
    put(p, "\"/>\n");
    for (size_t i = 0; i < p->n; i++) {
        const point *q = &p->points[i];
        put(p,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#0072b2\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"12\">",
            at_x(p, q->x), at_y(p, q->y), at_x(p, q->x) + 7, at_y(p, q->y) - 5);
        put_escaped(p, q->name);
        put(p, "</text>\n");
    }
}

static int by_size(const void *a, const void *b) {
    const point *x = a, *y = b;
    return x->x != y->x ? (x->x > y->x) - (x->x < y->x) : (x->y > y->y) - (x->y < y->y);
}

/* A model that differs in nothing has no place on a logarithmic axis: it gets the least of the
 * others', a tenth of it. */
static void collect(const judge_report *r, int is_log, picture *p) {
    double least = INFINITY;
    for (size_t i = 0; i < r->n; i++) {
        double kl = r->models[i].text.kl;
        least = r->models[i].has_text && kl > 0 && kl < least ? kl : least;
    }
    least = isfinite(least) ? least : 1;
    for (size_t i = 0; i < r->n; i++) {
        const judged *m = &r->models[i];
        if (!m->has_text) {
            continue;
        }
        double y = is_log              ? log10(m->text.kl > 0 ? m->text.kl : least / 10)
                   : m->text.bytes > 0 ? m->text.bits_per_byte
                                       : m->text.ppl;
        if (isfinite(y)) {
            p->points[p->n++] = (point){.name = m->name, .x = 1e-6 * (double)m->file_bytes, .y = y};
        }
    }
    qsort(p->points, p->n, sizeof *p->points, by_size);
}

static int draw(picture *p, const judge_report *r, const char *path) {
    int is_log = r->base != NULL;
    collect(r, is_log, p);
    if (p->n == 0) {
        app_error("%s: no model has figures of a text to be drawn", path);
        return APP_FAILURE;
    }
    double low = p->points[0].y, high = low;
    for (size_t i = 1; i < p->n; i++) {
        low = p->points[i].y < low ? p->points[i].y : low;
        high = p->points[i].y > high ? p->points[i].y : high;
    }
    p->x = round_axis(p->points[0].x, p->points[p->n - 1].x, 0);
    p->y = round_axis(low, high, is_log);
    if (out_file_open(&p->file, path, 0) != 0) {
        return APP_FAILURE;
    }
    put(p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"14\" fill=\"#222\">\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_axes(p, is_log ? "mean KL divergence, nats" : "bits per byte");
    draw_points(p);
    put(p, "<text x=\"%d\" y=\"24\">", LEFT);
    put_escaped(p, r->file);
    put(p, ", %zu windows of %d</text>\n</svg>\n", r->windows, (int)r->n_ctx);
    int code = p->failed || out_file_commit(&p->file) != 0 ? APP_FAILURE : APP_OK;
    if (code != APP_OK) {
        out_file_discard(&p->file);
    }
    return code;
}

int report_draw(const judge_report *r, const char *path) {
    picture p = {.file.fd = -1, .points = calloc(r->n, sizeof *p.points)};
    if (p.points == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    int code = draw(&p, r, path);
    free(p.points);
    return code;
}
