/* core/image/picture.c - which reader a file needs, limits, transparency, digests. */
#include "core/image/picture.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/image/decode.h"

enum { WORK_BYTES = 1 << 30 }; /* most that one picture may need while it is decoded */

gw_status gw_raster_check(const gw_encoded *in, int64_t width, int64_t height, int64_t extra) {
    if (width < 1 || height < 1) {
        return gw_fail(GW_E_SYNTAX, in->where, "declares a picture of %lld x %lld pixels",
                       (long long)width, (long long)height);
    }
    if (width > GW_PICTURE_SIDE || height > GW_PICTURE_SIDE || width * height > in->max_pixels) {
        return gw_fail(GW_E_LIMIT, in->where,
                       "%lld x %lld pixels are more than what is read, %lld in all and %d a side; "
                       "scale it down",
                       (long long)width, (long long)height, (long long)in->max_pixels,
                       GW_PICTURE_SIDE);
    }
    if (width * height > WORK_BYTES / (4 + extra)) {
        return gw_fail(GW_E_LIMIT, in->where,
                       "%lld x %lld pixels stored this way (progressive) need more than 1 GiB to "
                       "decode; save it as a plain JPEG or scale it down",
                       (long long)width, (long long)height);
    }
    return GW_OK;
}

gw_status gw_raster_alloc(const gw_encoded *in, gw_raster *out) {
    size_t bytes = (size_t)out->width * (size_t)out->height * (size_t)out->channels;
    out->pixels = malloc(bytes);
    return out->pixels != NULL ? GW_OK
                               : gw_fail(GW_E_NOMEM, in->where, "no memory for %d x %d pixels",
                                         (int)out->width, (int)out->height);
}

/* ---- transparency ---------------------------------------------------------------------------- */

/* value * alpha + white * (255 - alpha), over 255: Pillow's alpha_composite over an opaque pixel.
 */
static uint8_t over_white(uint8_t value, uint32_t alpha) {
    uint32_t weight = alpha << 7,
             sum = value * weight + 255 * ((255u << 7) - weight) + (0x80u << 7);
    return (uint8_t)((((sum >> 8) + sum) >> 8) >> 7);
}

/* [.., 4] becomes [.., 3], in place. */
static void composite(gw_raster *r) {
    size_t n = (size_t)r->width * (size_t)r->height;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *px = r->pixels + 4 * i;
        uint8_t *out = r->pixels + 3 * i;
        uint32_t alpha = px[3];
        for (int c = 0; c < 3; c++) {
            out[c] = alpha == 255 ? px[c] : alpha == 0 ? 255 : over_white(px[c], alpha);
        }
    }
    void *smaller = realloc(r->pixels, 3 * n);
    r->pixels = smaller != NULL ? smaller : r->pixels;
    r->channels = 3;
}

/* ---- formats --------------------------------------------------------------------------------- */

typedef gw_status (*read_fn)(const gw_encoded *in, gw_raster *out);

static int begins(const gw_encoded *in, size_t at, const char *magic, size_t n) {
    return in->n >= at + n && memcmp(in->data + at, magic, n) == 0;
}

/* Formats that people send and nobody reads here: their name, for the message. */
static const char *other_format(const gw_encoded *in) {
    return begins(in, 0, "GIF8", 4)                                             ? "a GIF"
           : begins(in, 0, "BM", 2)                                             ? "a BMP"
           : begins(in, 0, "II*\0", 4) || begins(in, 0, "MM\0*", 4)             ? "a TIFF"
           : begins(in, 4, "ftypavif", 8) || begins(in, 4, "ftypavis", 8)       ? "an AVIF"
           : begins(in, 4, "ftyphei", 7) || begins(in, 4, "ftypmif1", 8)        ? "a HEIC"
           : begins(in, 0, "\xff\x0a", 2) || begins(in, 0, "\0\0\0\x0cJXL ", 8) ? "a JPEG XL"
           : begins(in, 0, "%PDF", 4)                                           ? "a PDF"
           : begins(in, 0, "<svg", 4)                                           ? "an SVG"
                                                                                : NULL;
}

static gw_status reader_of(const gw_encoded *in, read_fn *out) {
    if (begins(in, 0, "\xff\xd8\xff", 3)) {
        *out = gw_jpeg_read;
    } else if (begins(in, 0, "\x89PNG\r\n\x1a\n", 8)) {
        *out = gw_png_read;
    } else if (begins(in, 0, "RIFF", 4) && begins(in, 8, "WEBP", 4)) {
        *out = gw_webp_read;
    } else {
        const char *other = other_format(in);
        return gw_fail(GW_E_MAGIC, in->where, "is %s%s; JPEG, PNG and WebP are read",
                       other != NULL ? other : "no picture", other != NULL ? " file" : "");
    }
    return GW_OK;
}

void gw_picture_name(const void *file, size_t n, uint8_t digest[GW_PICTURE_DIGEST]) {
    gw_sha256 hash;
    gw_sha256_begin(&hash);
    gw_sha256_add(&hash, file, n);
    gw_sha256_end(&hash, digest);
}

gw_status gw_picture_decode(const char *where, const void *file, size_t n, int64_t max_pixels,
                            gw_picture *out) {
    int64_t limit =
        max_pixels > 0 && max_pixels < GW_PICTURE_PIXELS ? max_pixels : GW_PICTURE_PIXELS;
    gw_encoded in = {where, file, n, limit};
    gw_raster raster = {.orientation = 1};
    read_fn read = NULL;
    GW_TRY(reader_of(&in, &read));
    GW_TRY(read(&in, &raster));
    if (raster.channels == 4) {
        composite(&raster);
    }
    gw_status status = gw_raster_orient(&in, &raster);
    if (status != GW_OK) {
        free(raster.pixels);
        return status;
    }
    *out = (gw_picture){.width = raster.width, .height = raster.height, .rgb = raster.pixels};
    gw_picture_name(file, n, out->digest);
    return GW_OK;
}

void gw_picture_free(gw_picture *picture) {
    free(picture->rgb);
    *picture = (gw_picture){0};
}
