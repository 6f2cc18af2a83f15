/* core/engine/run/images.c - pictures of the public interface: a model's settings read from its
 * files, picture files made into patches, and conversations with pictures in them. */
#include "include/godwit_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/sha256.h"
#include "core/image/marks.h"
#include "core/model/config.h"
#include "core/model/gguf.h"
#include "core/model/mmproj.h"
#include "core/text/chat/chat_parts.h"
#include "core/text/chat/inserted.h"

enum { PATH_BYTES = 4096 };

struct gw_images {
    gw_processor p;
};

/* ---- settings -------------------------------------------------------------------------------- */

/* *out stays NULL where there is no such file. */
static gw_status read_json(const char *folder, const char *name, json_t **out) {
    char path[PATH_BYTES];
    gw_file file;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || n >= PATH_BYTES || gw_path_look(path) == GW_PATH_NONE) {
        return GW_OK;
    }
    GW_TRY(gw_file_open(path, path, &file));
    gw_status status =
        gw_json_parse_settings(path, file.data != NULL ? file.data : "", (size_t)file.size, out);
    gw_file_close(&file);
    if (status == GW_OK && !json_is_object(*out)) {
        status = gw_fail(GW_E_TYPE, path, "must be a JSON object");
    }
    return status;
}

/* The end of a long name says more than its beginning. */
static void name_file(gw_processor *p, const char *folder, const char *name) {
    size_t n = strlen(folder), most = sizeof p->file - strlen(name) - 1;
    snprintf(p->file, sizeof p->file, "%s%s", folder + (n > most ? n - most : 0), name);
}

/* Which of the two files has the image processor: 5.x writes it into processor_config.json, inside.
 */
static gw_status read_folder(const char *folder, gw_processor *out) {
    json_t *outer = NULL, *own = NULL, *config = NULL;
    gw_status status = GW_OK;
    GW_TRY_DONE(read_json(folder, "processor_config.json", &outer));
    GW_TRY_DONE(read_json(folder, "preprocessor_config.json", &own));
    GW_TRY_DONE(read_json(folder, "config.json", &config));
    const json_t *settings = gw_json_has(outer, "image_processor") ? outer : own;
    if (settings == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_UNSUPPORTED, folder,
                            "the model takes no pictures: it has no preprocessor_config.json"));
    }
    GW_TRY_DONE(gw_processor_from_folder(folder, settings, config, out));
    name_file(out, folder,
              settings == outer ? "/processor_config.json" : "/preprocessor_config.json");
done:
    json_decref(outer);
    json_decref(own);
    json_decref(config);
    return status;
}

static gw_status read_mmproj(const char *path, gw_processor *out) {
    gw_file file;
    gw_gguf *gguf = NULL;
    json_t *keys = NULL;
    GW_TRY(gw_file_open(path, path, &file));
    gw_status status = gw_gguf_parse(path, file.data, file.size, -1, &gguf);
    status = status == GW_OK ? gw_config_gguf_facts(gguf, "clip", &keys) : status;
    status = status == GW_OK ? gw_processor_from_mmproj(path, keys, out) : status;
    if (status == GW_OK) {
        name_file(out, path, "");
    }
    json_decref(keys);
    gw_gguf_free(gguf);
    gw_file_close(&file);
    return status;
}

gw_status gw_images_open(const char *path, const char *mmproj, gw_images **out) {
    gw_processor p;
    char near[PATH_BYTES] = "";
    if (mmproj == NULL && path != NULL && gw_path_look(path) != GW_PATH_FOLDER) {
        GW_TRY(gw_folder_mmproj(path, near, sizeof near));
        mmproj = near[0] != '\0' ? near : NULL;
    }
    if (mmproj != NULL) {
        GW_TRY(read_mmproj(mmproj, &p));
    } else if (path != NULL && gw_path_look(path) == GW_PATH_FOLDER) {
        GW_TRY(read_folder(path, &p));
    } else {
        return gw_fail(GW_E_UNSUPPORTED, path != NULL ? path : "the built-in model",
                       "has no vision tower in it: name the mmproj file that belongs to it");
    }
    if (gw_marks_of(&p) == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, path, "how pictures of %s stand in a text is not known",
                       p.kind);
    }
    gw_images *made = malloc(sizeof *made);
    if (made == NULL) {
        return gw_fail(GW_E_NOMEM, path, "no memory");
    }
    made->p = p;
    *out = made;
    return GW_OK;
}

void gw_images_free(gw_images *images) { free(images); }

int64_t gw_images_most_patches(const gw_images *images) { return gw_patches_most(&images->p); }

/* ---- pictures -------------------------------------------------------------------------------- */

static gw_status cut(const gw_images *images, const char *where, const gw_picture *picture,
                     gw_patches **out) {
    gw_patches *made = calloc(1, sizeof *made);
    gw_status status = made != NULL ? gw_patches_make(where, &images->p, picture, made)
                                    : gw_fail(GW_E_NOMEM, where, "no memory for a picture");
    if (status != GW_OK) {
        free(made);
        return status;
    }
    *out = made;
    return GW_OK;
}

gw_status gw_image_read(const gw_images *images, const char *where, const void *file, size_t bytes,
                        gw_patches **out) {
    gw_picture picture = {0};
    GW_TRY(gw_picture_decode(where, file, bytes, 0, &picture));
    gw_status status = cut(images, where, &picture, out);
    gw_picture_free(&picture);
    return status;
}

gw_status gw_image_from_pixels(const gw_images *images, const char *where, const gw_pixels *pixels,
                               gw_patches **out) {
    gw_picture picture = {.width = pixels->width,
                          .height = pixels->height,
                          .rgb = (uint8_t *)(uintptr_t)pixels->rgb}; /* only read */
    if (pixels->width < 1 || pixels->height < 1) {
        return gw_fail(GW_E_ARGUMENT, where, "a picture of %d x %d pixels", (int)pixels->width,
                       (int)pixels->height);
    }
    if (pixels->width > GW_PICTURE_SIDE || pixels->height > GW_PICTURE_SIDE ||
        (int64_t)pixels->width * pixels->height > GW_PICTURE_PIXELS) {
        return gw_fail(GW_E_LIMIT, where, "%d x %d pixels are too many", (int)pixels->width,
                       (int)pixels->height);
    }
    memcpy(picture.digest, pixels->digest, sizeof picture.digest);
    return cut(images, where, &picture, out);
}

void gw_image_free(gw_patches *image) {
    if (image != NULL) {
        gw_patches_free(image);
        free(image);
    }
}

void gw_image_describe(const gw_patches *image, gw_image_info *out) {
    *out = (gw_image_info){.tokens = image->tokens, .patches = image->n, .tiles = image->n_tiles};
    memcpy(out->digest, image->digest, sizeof out->digest);
}

void gw_image_salt(gw_patches *image, uint64_t salt) {
    gw_sha256 h;
    if (salt != 0) {
        gw_sha256_begin(&h);
        gw_sha256_add(&h, image->digest, sizeof image->digest);
        gw_sha256_add(&h, &salt, sizeof salt);
        gw_sha256_end(&h, image->digest);
    }
}

void gw_image_drop_pixels(gw_patches *image) {
    free(image->values);
    image->values = NULL;
}

uint64_t gw_image_bytes(const gw_patches *image) {
    uint64_t values = image->values != NULL ? (uint64_t)image->n * (uint64_t)image->width : 0;
    return sizeof *image + (uint64_t)image->n_tiles * sizeof *image->tile +
           values * sizeof *image->values;
}

/* ---- texts ----------------------------------------------------------------------------------- */

gw_status gw_image_text(const gw_images *images, const gw_patches *image, char **text) {
    const gw_marks *marks = gw_marks_of(&images->p);
    char *own = NULL;
    GW_TRY(gw_marks_text("image", &images->p, image, &own));
    size_t room = strlen(marks->before) + strlen(own) + strlen(marks->after) + 1;
    char *whole = malloc(room);
    if (whole != NULL) {
        snprintf(whole, room, "%s%s%s", marks->before, own, marks->after);
        *text = whole;
    }
    free(own);
    return whole != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "image", "no memory for its text");
}

gw_status gw_chat_write_images(const gw_chat *chat, const char *request, size_t bytes,
                               const gw_images *images, gw_patches *const *image, size_t n,
                               gw_chat_text *out) {
    if (chat->template == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, "chat", "the form %s has no pictures; a template has",
                       gw_chat_name(chat));
    }
    char **text = calloc(n + 1, sizeof *text);
    gw_status status = text != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "chat", "no memory");
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_marks_text("chat", &images->p, image[i], &text[i]);
    }
    if (status == GW_OK) {
        const gw_marks *marks = gw_marks_of(&images->p);
        gw_chat_inserts inserts = {marks->mark, marks->before, marks->after, text, n};
        status = gw_chat_write_template(chat, request, bytes, &inserts, out);
    }
    for (size_t i = 0; i < n && text != NULL; i++) {
        free(text[i]);
    }
    free(text);
    return status;
}
