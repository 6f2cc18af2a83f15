/* core/image/picture.h - a JPEG, PNG or WebP file as upright 8-bit RGB.
 *
 * The bytes of a pixel are those of Pillow followed by transformers' convert_to_rgb: the EXIF
 * orientation is applied, palettes and grey are expanded, of 16 bits the upper 8 are kept (of grey
 * too, which Pillow clips to white), CMYK is taken for Adobe's inverted kind, transparent pixels
 * are composited over white; colour profiles and gamma are not looked at. Of an animation the first
 * frame is taken.
 *
 * Each format is read by the system's library (libjpeg-turbo, libpng, libwebp), if the build had
 * it. A file whose data end early or are damaged is refused, never filled up. Sizes are checked
 * before anything is allocated for them; memory and time are linear in the larger of file and
 * picture. No state outlives a call; any thread.
 */
#ifndef GW_IMAGE_PICTURE_H
#define GW_IMAGE_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

enum { GW_PICTURE_DIGEST = 32, GW_PICTURE_PIXELS = 1 << 27, GW_PICTURE_SIDE = 65535 };

typedef struct gw_picture {
    int32_t width, height;             /* 1 or more                                              */
    uint8_t *rgb;                      /* [height, width, 3], malloc'd                           */
    uint8_t digest[GW_PICTURE_DIGEST]; /* SHA-256 of the file: the picture's name in caches */
} gw_picture;

/* file [n]; where: how messages name it. max_pixels: 1 .. GW_PICTURE_PIXELS; 0: that many.
 * GW_E_MAGIC: none of the three formats; GW_E_UNSUPPORTED: a kind of them that is not read, or a
 * build without the library; GW_E_TRUNCATED, GW_E_SYNTAX: a cut or damaged file; GW_E_LIMIT: too
 * many pixels; GW_E_NOMEM. *out: gw_picture_free. */
gw_status gw_picture_decode(const char *where, const void *file, size_t n, int64_t max_pixels,
                            gw_picture *out);
void gw_picture_free(gw_picture *picture); /* what it holds; accepts one that is all 0 */

/* The digest alone. */
void gw_picture_name(const void *file, size_t n, uint8_t digest[GW_PICTURE_DIGEST]);

#endif
