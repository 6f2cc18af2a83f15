/* core/image/png.c - PNG through libpng. The library reports errors by a call that must not return;
 * it goes back to the one setjmp in this file. */
#include "core/image/decode.h"

#ifndef GODWIT_PNG
gw_status gw_png_read(const gw_encoded *in, gw_raster *out) {
    (void)out;
    return gw_fail(GW_E_UNSUPPORTED, in->where,
                   "is a PNG file, and this build has no libpng; build it with libpng-dev");
}
#else

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

enum { CHUNK_BYTES = 8 << 20, CHUNKS = 1000 }; /* of what is not the picture */

typedef struct reading {
    jmp_buf back;
    const gw_encoded *in;
    size_t at; /* in the file */
    png_structp png;
    png_infop info;
    gw_status status; /* with text: why it went back */
    char text[160];
    gw_raster raster;
    png_bytep *rows; /* [height] */
} reading;

static void on_error(png_structp png, png_const_charp text) {
    reading *r = png_get_error_ptr(png);
    if (r->status == GW_OK) {
        r->status = GW_E_SYNTAX;
    }
    snprintf(r->text, sizeof r->text, "%s", text);
    longjmp(r->back, 1);
}

static void on_warning(png_structp png, png_const_charp text) {
    (void)png, (void)text; /* about what no pixel depends on */
}

static void on_read(png_structp png, png_bytep to, size_t n) {
    reading *r = png_get_io_ptr(png);
    if (n > r->in->n - r->at) {
        r->status = GW_E_TRUNCATED;
        png_error(png, "the file ends within it");
    }
    memcpy(to, r->in->data + r->at, n);
    r->at += n;
}

/* A transparent grey of 2 or 4 bits: Pillow, whose pixels count, compares it with values that are
 * widened to 8 bits, so that none but 0 is ever it. */
static int is_no_key(reading *r) {
    png_color_16p key = NULL;
    int depth = png_get_bit_depth(r->png, r->info);
    png_get_tRNS(r->png, r->info, NULL, NULL, &key);
    return png_get_color_type(r->png, r->info) == PNG_COLOR_TYPE_GRAY &&
           (depth == 2 || depth == 4) && key != NULL && key->gray != 0;
}

/* Everything as 8-bit RGB, with alpha where there is transparency. */
static void set_transforms(reading *r) {
    int color = png_get_color_type(r->png, r->info);
    int keyed = png_get_valid(r->png, r->info, PNG_INFO_tRNS) != 0 && !is_no_key(r);
    png_set_strip_16(r->png);
    png_set_expand(r->png); /* palettes, grey of less than 8 bits, a transparent colour */
    if ((color & PNG_COLOR_MASK_COLOR) == 0) {
        png_set_gray_to_rgb(r->png);
    }
    if (!keyed && (color & PNG_COLOR_MASK_ALPHA) == 0) {
        png_set_strip_alpha(r->png); /* which the key has made, if any */
    }
    r->raster.channels = (color & PNG_COLOR_MASK_ALPHA) != 0 || keyed ? 4 : 3;
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

static int exif_of(reading *r) {
    png_bytep data = NULL;
    png_uint_32 n = 0;
    if (png_get_eXIf_1(r->png, r->info, &n, &data) == 0 || data == NULL) {
        return 1;
    }
    return gw_exif_orientation(data, n);
}

/* Between the creation of the library's objects and their end; r->status on errors that are not the
 * library's. */
static void read_picture(reading *r) {
    png_set_read_fn(r->png, r, on_read);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* gw_raster_check has limits */
    png_set_chunk_cache_max(r->png, CHUNKS);
    png_set_chunk_malloc_max(r->png, CHUNK_BYTES);
    png_read_info(r->png, r->info);
    r->status = gw_raster_check(r->in, png_get_image_width(r->png, r->info),
                                png_get_image_height(r->png, r->info), 0);
    if (r->status != GW_OK) {
        return;
    }
    r->raster.width = (int32_t)png_get_image_width(r->png, r->info);
    r->raster.height = (int32_t)png_get_image_height(r->png, r->info);
    set_transforms(r);
    size_t row = (size_t)r->raster.width * (size_t)r->raster.channels;
    if (png_get_rowbytes(r->png, r->info) != row) {
        png_error(r->png, "rows of an unexpected width");
    }
    r->status = gw_raster_alloc(r->in, &r->raster);
    r->rows = r->status == GW_OK ? malloc((size_t)r->raster.height * sizeof *r->rows) : NULL;
    if (r->status == GW_OK && r->rows == NULL) {
        r->status = gw_fail(GW_E_NOMEM, r->in->where, "no memory for the rows of a picture");
    }
    if (r->status == GW_OK) {
        for (int32_t y = 0; y < r->raster.height; y++) {
            r->rows[y] = r->raster.pixels + (size_t)y * row;
        }
        png_read_image(r->png, r->rows);
        png_read_end(r->png, r->info); /* EXIF may come after the picture */
        r->raster.orientation = exif_of(r);
    }
}

gw_status gw_png_read(const gw_encoded *in, gw_raster *out) {
    reading *r = calloc(1, sizeof *r); /* not on the stack: setjmp */
    if (r == NULL) {
        return gw_fail(GW_E_NOMEM, in->where, "no memory for a PNG reader");
    }
    r->in = in;
    if (setjmp(r->back) == 0) {
        r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
        r->info = r->png != NULL ? png_create_info_struct(r->png) : NULL;
        if (r->info == NULL) {
            r->status = gw_fail(GW_E_NOMEM, in->where, "no memory for a PNG reader");
        } else {
            read_picture(r);
        }
    } else {
        gw_fail(r->status, in->where, "is a PNG that cannot be read: %s", r->text);
    }
    png_destroy_read_struct(&r->png, &r->info, NULL);
    gw_status status = r->status;
    if (status == GW_OK) {
        *out = r->raster;
    } else {
        free(r->raster.pixels);
    }
    free(r->rows);
    free(r);
    return status;
}

#endif
