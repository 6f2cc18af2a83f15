/* core/image/patches.c - resizing, padding, cutting, and the values of pixels. */
#include "core/image/patches.h"

#include <stdlib.h>
#include <string.h>

#include "core/image/layout.h"

enum { MOST_BYTES = 1 << 30 }; /* of the values of one picture */

/* ---- sizes ----------------------------------------------------------------------------------- */

static gw_tile tile_of(const gw_processor *p, gw_extent e, int32_t row, int32_t column) {
    gw_tile t = {
        .rows = e.h / p->patch, .columns = e.w / p->patch, .at_row = row, .at_column = column};
    t.tokens = (t.rows / p->merge) * (t.columns / p->merge);
    return t;
}

static void append(gw_patches *out, gw_tile tile) {
    tile.first = out->n;
    out->tile[out->n_tiles++] = tile;
    out->n += (int64_t)tile.rows * tile.columns;
    out->tokens += tile.tokens;
}

static gw_status plan(const char *where, const gw_processor *p, const gw_layout *l,
                      gw_patches *out) {
    int64_t tiles = (int64_t)l->rows * l->columns;
    int many = tiles > 1;
    gw_patches made = {.width = 3 * p->temporal * p->patch * p->patch, .temporal = p->temporal};
    made.tile = calloc((size_t)tiles + 1, sizeof *made.tile);
    if (made.tile == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for %lld tiles", (long long)tiles);
    }
    gw_extent one = {l->canvas.w / l->columns, l->canvas.h / l->rows};
    for (int32_t r = 0; r < l->rows; r++) {
        for (int32_t c = 0; c < l->columns; c++) {
            append(&made, tile_of(p, one, many ? r : -1, many ? c : -1));
        }
    }
    if (l->whole.w != 0) {
        append(&made, tile_of(p, l->whole, -1, -1));
    }
    made.tile_rows = many ? l->rows : 0;
    made.tile_columns = many ? l->columns : 0;
    if (made.n > MOST_BYTES / ((int64_t)made.width * (int64_t)sizeof(float))) {
        gw_patches_free(&made);
        return gw_fail(GW_E_LIMIT, where, "would need more than 1 GiB as patches; scale it down");
    }
    *out = made;
    return GW_OK;
}

gw_status gw_patches_plan(const char *where, const gw_processor *p, int32_t width, int32_t height,
                          gw_patches *out) {
    gw_layout layout;
    GW_TRY(gw_layout_of(where, p, width, height, &layout));
    return plan(where, p, &layout, out);
}

void gw_patches_free(gw_patches *patches) {
    free(patches->values);
    free(patches->tile);
    *patches = (gw_patches){0};
}

/* ---- values ---------------------------------------------------------------------------------- */

/* To the nearest bfloat16, ties to even; x is finite. */
static float bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static float value_of(const gw_processor *p, int plane, int x) {
    float scale = (float)p->scale, mean = p->mean[plane], std = p->std[plane];
    float unfold = (float)(1.0 / p->scale), v = (float)x;
    switch (p->formula) {
    case GW_FORMULA_FOLDED:
        return (v - mean * unfold) / (std * unfold);
    case GW_FORMULA_PLAIN:
        return (v / 255.0F - mean) / std;
    case GW_FORMULA_BF16:
        return bf16(bf16(bf16(v * scale) - bf16(mean)) / bf16(std));
    case GW_FORMULA_SCALE:
        break;
    }
    return v * scale;
}

typedef struct maker {
    const gw_processor *p;
    float value[3][256]; /* of each byte of each plane */
} maker;

/* One patch whose upper left pixel is at px; stride: bytes of a row of pixels. */
static void fill_patch(const maker *m, const uint8_t *px, size_t stride, float *out) {
    size_t side = (size_t)m->p->patch, area = side * side;
    if (m->p->values == GW_VALUES_PIXELS) {
        for (size_t y = 0; y < side; y++, px += stride, out += 3 * side) {
            for (size_t x = 0; x < side; x++) {
                out[3 * x] = m->value[0][px[3 * x]];
                out[3 * x + 1] = m->value[1][px[3 * x + 1]];
                out[3 * x + 2] = m->value[2][px[3 * x + 2]];
            }
        }
        return;
    }
    size_t frames = (size_t)m->p->temporal, plane = frames * area;
    for (size_t y = 0; y < side; y++, px += stride) {
        float *row = out + y * side;
        for (size_t x = 0; x < side; x++) {
            row[x] = m->value[0][px[3 * x]];
            row[plane + x] = m->value[1][px[3 * x + 1]];
            row[2 * plane + x] = m->value[2][px[3 * x + 2]];
        }
    }
    for (size_t c = 0; c < 3; c++) {
        for (size_t f = 1; f < frames; f++) {
            memcpy(out + c * plane + f * area, out + c * plane, area * sizeof *out);
        }
    }
}

/* A tile whose upper left pixel is at px. */
static void fill_tile(const maker *m, const uint8_t *px, size_t stride, const gw_tile *tile,
                      gw_patches *out) {
    float *to = out->values + (size_t)tile->first * (size_t)out->width;
    int32_t block = m->p->order == GW_PATCHES_BY_BLOCK ? m->p->merge : 1, side = m->p->patch;
    for (int32_t r = 0; r < tile->rows; r += block) {
        for (int32_t c = 0; c < tile->columns; c += block) {
            for (int32_t i = 0; i < block * block; i++, to += out->width) {
                size_t y = (size_t)(r + i / block) * (size_t)side;
                size_t x = (size_t)(c + i % block) * (size_t)side;
                fill_patch(m, px + y * stride + 3 * x, stride, to);
            }
        }
    }
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* from at size `to` on a canvas of 0; *out: malloc'd. */
static gw_status scale_onto(const char *where, const gw_processor *p, const uint8_t *from,
                            gw_extent size, gw_extent to, gw_extent canvas, uint8_t **out) {
    size_t row = 3 * (size_t)to.w, wide = 3 * (size_t)canvas.w;
    uint8_t *pixels = calloc((size_t)canvas.h, wide);
    if (pixels == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for %d x %d pixels", (int)canvas.w,
                       (int)canvas.h);
    }
    gw_status status =
        gw_resize(where, from, size.w, size.h, p->filter, p->pixels, to.w, to.h, pixels);
    if (status != GW_OK) {
        free(pixels);
        return status;
    }
    if (wide != row) { /* rows go apart, the last one first */
        for (int32_t y = to.h - 1; y >= 0; y--) {
            memmove(pixels + (size_t)y * wide, pixels + (size_t)y * row, row);
            memset(pixels + (size_t)y * wide + row, 0, wide - row);
        }
    }
    *out = pixels;
    return GW_OK;
}

static void fill_tiles(const maker *m, const gw_layout *l, const uint8_t *pixels, gw_patches *out) {
    size_t stride = 3 * (size_t)l->canvas.w;
    size_t high = (size_t)(l->canvas.h / l->rows), wide = (size_t)(l->canvas.w / l->columns);
    for (int32_t i = 0; i < l->rows * l->columns; i++) {
        size_t y = (size_t)(i / l->columns) * high, x = (size_t)(i % l->columns) * wide;
        fill_tile(m, pixels + y * stride + 3 * x, stride, &out->tile[i], out);
    }
}

static gw_status fill(const char *where, const maker *m, const gw_layout *l,
                      const gw_picture *picture, gw_patches *out) {
    const gw_processor *p = m->p;
    uint8_t *first = NULL, *scaled = NULL, *whole = NULL;
    const uint8_t *from = picture->rgb;
    gw_extent size = {picture->width, picture->height};
    gw_status status = GW_OK;
    if (l->first.w != 0) {
        GW_TRY_DONE(scale_onto(where, p, from, size, l->first, l->first, &first));
        from = first;
        size = l->first;
    }
    GW_TRY_DONE(scale_onto(where, p, from, size, l->scaled, l->canvas, &scaled));
    fill_tiles(m, l, scaled, out);
    if (l->whole.w != 0) {
        from = l->whole_of_scaled ? scaled : from;
        size = l->whole_of_scaled ? l->scaled : size;
        GW_TRY_DONE(scale_onto(where, p, from, size, l->whole, l->whole, &whole));
        fill_tile(m, whole, 3 * (size_t)l->whole.w, &out->tile[out->n_tiles - 1], out);
    }
done:
    free(first);
    free(scaled);
    free(whole);
    return status;
}

gw_status gw_patches_make(const char *where, const gw_processor *p, const gw_picture *picture,
                          gw_patches *out) {
    gw_layout layout;
    gw_patches made = {0};
    GW_TRY(gw_layout_of(where, p, picture->width, picture->height, &layout));
    GW_TRY(plan(where, p, &layout, &made));
    maker m = {.p = p};
    for (int c = 0; c < 3; c++) {
        for (int x = 0; x < 256; x++) {
            m.value[c][x] = value_of(p, c, x);
        }
    }
    made.values = malloc((size_t)made.n * (size_t)made.width * sizeof *made.values);
    gw_status status =
        made.values != NULL
            ? fill(where, &m, &layout, picture, &made)
            : gw_fail(GW_E_NOMEM, where, "no memory for %lld patches", (long long)made.n);
    if (status != GW_OK) {
        gw_patches_free(&made);
        return status;
    }
    memcpy(made.digest, picture->digest, sizeof made.digest);
    memcpy(made.settings, p->file, sizeof made.settings);
    *out = made;
    return GW_OK;
}
