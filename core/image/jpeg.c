/* core/image/jpeg.c - JPEG through libjpeg-turbo, with Pillow's choices: the accurate inverse
 * transform, smooth upsampling. The library reports errors by a call that must not return; it goes
 * back to the one setjmp in this file. */
#include "core/image/decode.h"

#ifndef GODWIT_JPEG
gw_status gw_jpeg_read(const gw_encoded *in, gw_raster *out) {
    (void)out;
    return gw_fail(
        GW_E_UNSUPPORTED, in->where,
        "is a JPEG file, and this build has no libjpeg; build it with libjpeg62-turbo-dev");
}
#else

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

enum { MOST_SCANS = 100, EXIF_MARKER = JPEG_APP0 + 1 };

typedef struct reading {
    struct jpeg_error_mgr errors; /* first: the library hands it back */
    jmp_buf back;
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    gw_status status; /* with text: why it went back */
    char text[JMSG_LENGTH_MAX];
    JSAMPROW row; /* [width, 4], of CMYK */
} reading;

static void go_back(reading *r, gw_status status, const char *text) {
    r->status = status;
    snprintf(r->text, sizeof r->text, "%s", text);
    longjmp(r->back, 1);
}

static void on_error(j_common_ptr info) {
    reading *r = (reading *)(void *)info->err;
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    int memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
    go_back(r, memory ? GW_E_NOMEM : GW_E_SYNTAX, text);
}

/* Warnings that mean pixels which the file does not have; the library would make them up. */
static void on_message(j_common_ptr info, int level) {
    reading *r = (reading *)(void *)info->err;
    if (level >= 0) {
        return;
    }
    switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
        go_back(r, GW_E_TRUNCATED, "the file ends within the picture");
        return;
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION:
        go_back(r, GW_E_SYNTAX, "the picture's data are damaged");
        return;
    default:
        return; /* bytes between markers, odd versions: no pixel depends on them */
    }
}

static void on_output(j_common_ptr info) { (void)info; } /* the library prints nothing */

/* A scan of some bytes can cover the whole picture: without a bound, a small file runs for hours.
 */
static void on_progress(j_common_ptr info) {
    j_decompress_ptr jpeg = (j_decompress_ptr)info;
    if (jpeg->input_scan_number > MOST_SCANS) {
        go_back((reading *)(void *)info->err, GW_E_LIMIT, "more than 100 scans");
    }
}

/* Pillow's conversion of Adobe's inverted inks. */
static void rgb_of_inks(const uint8_t *cmyk, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++, cmyk += 4, rgb += 3) {
        uint32_t white = cmyk[3]; /* 255 - black */
        for (int c = 0; c < 3; c++) {
            uint32_t product = (255u - cmyk[c]) * white + 128;
            uint32_t ink = ((product >> 8) + product) >> 8;
            rgb[c] = (uint8_t)(white > ink ? white - ink : 0);
        }
    }
}

static int exif_of(j_decompress_ptr jpeg) {
    for (jpeg_saved_marker_ptr m = jpeg->marker_list; m != NULL; m = m->next) {
        if (m->marker == EXIF_MARKER && m->data_length >= 6 && memcmp(m->data, "Exif\0", 6) == 0) {
            return gw_exif_orientation(m->data, m->data_length);
        }
    }
    return 1;
}

static void read_rows(reading *r, gw_raster *out) {
    size_t width = (size_t)out->width;
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        uint8_t *rgb = out->pixels + 3 * width * r->jpeg.output_scanline;
        JSAMPROW row = r->row != NULL ? r->row : rgb;
        jpeg_read_scanlines(&r->jpeg, &row, 1);
        if (r->row != NULL) {
            rgb_of_inks(r->row, width, rgb);
        }
    }
}

/* Between the creation of the library's object and its end; r->status on errors that are not the
 * library's. */
static void read_picture(const gw_encoded *in, reading *r, gw_raster *out) {
    j_decompress_ptr jpeg = &r->jpeg;
    jpeg_mem_src(jpeg, in->data, (unsigned long)in->n);
    jpeg_save_markers(jpeg, EXIF_MARKER, 0xffff);
    jpeg_read_header(jpeg, TRUE);
    int inks = jpeg->num_components == 4;
    if (!inks && jpeg->num_components != 3 && jpeg->num_components != 1) {
        r->status = gw_fail(GW_E_UNSUPPORTED, in->where, "is a JPEG of %d colour components",
                            jpeg->num_components);
        return;
    }
    int stored = jpeg_has_multiple_scans(jpeg) ? 2 * jpeg->num_components : 0;
    r->status = gw_raster_check(in, jpeg->image_width, jpeg->image_height, stored);
    if (r->status != GW_OK) {
        return;
    }
    jpeg->out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    *out = (gw_raster){.width = (int32_t)jpeg->image_width,
                       .height = (int32_t)jpeg->image_height,
                       .channels = 3,
                       .orientation = exif_of(jpeg)};
    r->status = gw_raster_alloc(in, out);
    if (r->status == GW_OK && inks) {
        r->row = malloc(4 * (size_t)out->width);
        r->status = r->row != NULL ? GW_OK : gw_fail(GW_E_NOMEM, in->where, "no memory for a row");
    }
    if (r->status == GW_OK) {
        jpeg_start_decompress(jpeg);
        read_rows(r, out);
        jpeg_finish_decompress(jpeg);
    }
}

gw_status gw_jpeg_read(const gw_encoded *in, gw_raster *out) {
    reading *r = calloc(1, sizeof *r);
    gw_raster *made = calloc(1, sizeof *made); /* not on the stack: setjmp */
    if (r == NULL || made == NULL) {
        free(r);
        free(made);
        return gw_fail(GW_E_NOMEM, in->where, "no memory for a JPEG reader");
    }
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = on_output;
    r->progress.progress_monitor = on_progress;
    if (setjmp(r->back) == 0) {
        jpeg_create_decompress(&r->jpeg);
        r->jpeg.progress = &r->progress;
        read_picture(in, r, made);
    } else {
        gw_fail(r->status, in->where, "is a JPEG that cannot be read: %s", r->text);
    }
    jpeg_destroy_decompress(&r->jpeg);
    gw_status status = r->status;
    if (status == GW_OK) {
        *out = *made;
    } else {
        free(made->pixels);
    }
    free(r->row);
    free(made);
    free(r);
    return status;
}

#endif
