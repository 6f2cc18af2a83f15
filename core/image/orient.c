/* core/image/orient.c - turning pixels upright by the eight orientations of EXIF. */
#include <stdlib.h>
#include <string.h>

#include "core/image/decode.h"

/* Where the pixel of the upright picture at (x, y) is stored: at x * dx + y * dy + start. */
typedef struct walk {
    int64_t start, dx, dy;
} walk;

static walk walk_of(const gw_raster *r) {
    int64_t w = r->width, h = r->height;
    walk walks[9] = {
        [2] = {w - 1, -1, w},       /* left and right exchanged */
        [3] = {w * h - 1, -1, -w},  /* half a circle            */
        [4] = {w * (h - 1), 1, -w}, /* upside down              */
        [5] = {0, w, 1},            /* over the main diagonal   */
        [6] = {w * (h - 1), -w, 1}, /* a quarter clockwise      */
        [7] = {w * h - 1, -w, -1},  /* over the other diagonal  */
        [8] = {w - 1, w, -1},       /* a quarter the other way  */
    };
    return walks[r->orientation];
}

enum { SQUARE = 32 }; /* pixels that are read and written while they are in the cache */

gw_status gw_raster_orient(const gw_encoded *in, gw_raster *raster) {
    if (raster->orientation <= 1) {
        return GW_OK;
    }
    walk from = walk_of(raster);
    gw_raster to = *raster;
    if (raster->orientation >= 5) {
        to.width = raster->height;
        to.height = raster->width;
    }
    GW_TRY(gw_raster_alloc(in, &to));
    size_t c = (size_t)raster->channels;
    for (int64_t y0 = 0; y0 < to.height; y0 += SQUARE) {
        for (int64_t x0 = 0; x0 < to.width; x0 += SQUARE) {
            int64_t y1 = y0 + SQUARE < to.height ? y0 + SQUARE : to.height;
            int64_t x1 = x0 + SQUARE < to.width ? x0 + SQUARE : to.width;
            for (int64_t y = y0; y < y1; y++) {
                uint8_t *out = to.pixels + (size_t)(y * to.width + x0) * c;
                const uint8_t *px =
                    raster->pixels + (from.start + x0 * from.dx + y * from.dy) * (int64_t)c;
                for (int64_t x = x0; x < x1; x++, out += c, px += from.dx * (int64_t)c) {
                    out[0] = px[0];
                    out[1] = px[1];
                    out[2] = px[2];
                    if (c == 4) {
                        out[3] = px[3];
                    }
                }
            }
        }
    }
    free(raster->pixels);
    to.orientation = 1;
    *raster = to;
    return GW_OK;
}
