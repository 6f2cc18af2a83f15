/* godwit_image.h - pictures for models that see; not part of godwit.h, which it includes.
 *
 *   gw_images   how one model takes pictures: sizes, filters, and how they stand in its text
 *   gw_patches  one picture, decoded and cut as the model's vision tower reads it
 *
 * JPEG, PNG and WebP are read, by libraries that the build may lack (GW_E_UNSUPPORTED names them).
 * Pixels are those of the model's published processor, byte for byte. Objects are read-only once
 * made: any thread.
 */
#ifndef GODWIT_IMAGE_H
#define GODWIT_IMAGE_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_images gw_images;
typedef struct gw_patches gw_patches;

/* path: a model's folder, whose preprocessor_config.json or processor_config.json is read, or its
 * .gguf file; mmproj: the file of its vision tower, one of its own, which no folder needs (NULL:
 * the only one next to the .gguf file that is called so). GW_E_UNSUPPORTED: it takes no pictures,
 * or in a way that is not known here. */
gw_status gw_images_open(const char *path, const char *mmproj, gw_images **out);
void gw_images_free(gw_images *images);
/* No tile of a picture has more patches, of pictures up to 200 times as long as wide. */
int64_t gw_images_most_patches(const gw_images *images);

/* A picture's file [bytes]; where: how messages name it. GW_E_MAGIC, GW_E_TRUNCATED, GW_E_SYNTAX,
 * GW_E_UNSUPPORTED: what is wrong with the file; GW_E_LIMIT: more than 134 million pixels, or a
 * shape that the model does not take. */
gw_status gw_image_read(const gw_images *images, const char *where, const void *file, size_t bytes,
                        gw_patches **out);
/* The same of pixels instead of a file. GW_E_ARGUMENT: a side below 1. */
typedef struct gw_pixels {
    int32_t width, height;
    const unsigned char *rgb; /* [height, width, 3]                                         */
    unsigned char digest[32]; /* the picture's name in what is kept of it, the caller's own */
} gw_pixels;
gw_status gw_image_from_pixels(const gw_images *images, const char *where, const gw_pixels *pixels,
                               gw_patches **out);
void gw_image_free(gw_patches *image);

typedef struct gw_image_info {
    int64_t tokens;           /* of the text that its features take      */
    int64_t patches;          /* of all tiles                            */
    int32_t tiles;            /* it was cut into, the whole one included */
    unsigned char digest[32]; /* SHA-256 of the file */
} gw_image_info;
void gw_image_describe(const gw_patches *image, gw_image_info *out);
/* What is kept of it (its sight, pages of prompts) is found again only by pictures of the same
 * salt: clients learn nothing of one another from how long an answer takes. 0: of none. */
void gw_image_salt(gw_patches *image, uint64_t salt);
/* Its pixels are not needed any more: it was seen (godwit_see.h), or only its text is needed. */
void gw_image_drop_pixels(gw_patches *image);
uint64_t gw_image_bytes(const gw_patches *image); /* of memory that it takes */

/* gw_chat_write of a request whose messages have n parts of the kind {"type": "image"}, in their
 * order: the text has in place of each what the model reads for that picture. GW_E_ARGUMENT: the
 * template writes places for more or fewer pictures than n. */
gw_status gw_chat_write_images(const gw_chat *chat, const char *request, size_t bytes,
                               const gw_images *images, gw_patches *const *image, size_t n,
                               gw_chat_text *out);

/* What stands for a picture in front of a text without a template, with special tokens by their
 * spelling. *text: gw_free. */
gw_status gw_image_text(const gw_images *images, const gw_patches *image, char **text);

#ifdef __cplusplus
}
#endif

#endif
