/* apps/pictures.c - the pictures of --image. */
#include "apps/pictures.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/signals.h"

enum { FILE_MOST = 1 << 29 }; /* more than the most pixels take uncompressed */

/* Room for one more. */
static int grow(app_pictures *p) {
    gw_patches **at = realloc(p->at, (p->n + 1) * sizeof *at);
    p->at = at != NULL ? at : p->at;
    char **name = realloc(p->name, (p->n + 1) * sizeof *name);
    p->name = name != NULL ? name : p->name;
    gw_sight **sight = realloc(p->sight, (p->n + 1) * sizeof *sight);
    p->sight = sight != NULL ? sight : p->sight;
    return at != NULL && name != NULL && sight != NULL ? APP_OK : app_fail(GW_E_NOMEM);
}

int pictures_read(app_pictures *p, const char *path) {
    app_text file = {0};
    int code = grow(p);
    char *name = code == APP_OK ? strdup(path) : NULL;
    code = code == APP_OK && name == NULL ? app_fail(GW_E_NOMEM) : code;
    code = code == APP_OK ? app_read_bytes(path, "picture", FILE_MOST, &file) : code;
    if (code == APP_OK) {
        gw_status status = gw_image_read(p->images, path, file.at, file.bytes, &p->at[p->n]);
        free(file.at);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code != APP_OK) {
        free(name);
        return code;
    }
    p->name[p->n] = name;
    p->sight[p->n++] = NULL;
    return APP_OK;
}

size_t pictures_find(const app_pictures *p, const char *path) {
    size_t i = 0;
    while (i < p->n && strcmp(p->name[i], path) != 0) {
        i++;
    }
    return i;
}

/* Ctrl-C ends a picture that is being seen. */
static int stopped(void *user) { return *(const volatile int *)user; }

gw_status pictures_see(app_pictures *p, gw_model *model, size_t i) {
    return p->sight[i] != NULL ? GW_OK
                               : gw_model_see_between(model, p->at[i], stopped,
                                                      (void *)(uintptr_t)signals_cancel(),
                                                      &p->sight[i]);
}

gw_status pictures_open_model(const app_options *o, gw_model_options *options, gw_model **model,
                              gw_images **images, char *blind) {
    gw_images *found = NULL;
    gw_status status =
        o->no_mmproj ? GW_E_UNSUPPORTED : gw_images_open(options->path, o->mmproj, &found);
    if (status != GW_OK && o->mmproj != NULL && !o->no_mmproj) {
        return status;
    }
    options->images = found != NULL;
    options->mmproj = found != NULL ? o->mmproj : NULL;
    status = gw_model_open(options, model);
    if (found == NULL || status == GW_OK) {
        *images = found;
        return status;
    }
    gw_images_free(found);
    if (o->mmproj != NULL || status == GW_E_CANCELLED || status == GW_E_NOMEM) {
        return status;
    }
    snprintf(blind, PICTURES_BLIND, "%s", gw_error_text());
    options->images = 0;
    return gw_model_open(options, model);
}

int pictures_open(app_pictures *p, const app_options *o) {
    if (o->image_files.n == 0 && o->mmproj == NULL) {
        return APP_OK;
    }
    gw_status status = gw_images_open(o->model, o->mmproj, &p->images);
    int code = status == GW_OK ? APP_OK : app_fail(status);
    for (size_t i = 0; i < o->image_files.n && code == APP_OK; i++) {
        code = pictures_read(p, o->image_files.at[i]);
    }
    return code;
}

int pictures_check(const app_options *o) {
    app_pictures none = {0};
    int code = pictures_open(&none, o);
    pictures_free(&none);
    return code;
}

void pictures_free(app_pictures *p) {
    for (size_t i = 0; i < p->n; i++) {
        gw_image_free(p->at[i]);
        gw_sight_free(p->sight[i]);
        free(p->name[i]);
    }
    free(p->at);
    free(p->name);
    free(p->sight);
    gw_free(p->seen);
    gw_images_free(p->images);
    *p = (app_pictures){0};
}

/* ---- a prompt with pictures ------------------------------------------------------------------ */

/* {"messages": [...]} of one message: pictures, then the text. NULL: out of memory, or no UTF-8. */
static char *message_of(size_t n_pictures, const app_text *text) {
    json_t *parts = json_array();
    for (size_t i = 0; i < n_pictures; i++) {
        json_array_append_new(parts, json_pack("{s:s}", "type", "image"));
    }
    json_t *said = json_stringn(text->at, text->bytes);
    json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text", said));
    int whole = json_array_size(parts) == n_pictures + 1;
    json_t *request = json_pack("{s:[{s:s, s:o}], s:b}", "messages", "role", "user", "content",
                                parts, "add_generation_prompt", 1);
    char *line = whole && request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    return line;
}

static int ask_by_template(const app_pictures *p, const gw_chat *chat, const app_text *text,
                           int32_t **ids, size_t *n) {
    char *request = message_of(p->n, text);
    gw_chat_text written = {0};
    if (request == NULL) {
        app_error("the prompt is not UTF-8, or there is no memory for it");
        return APP_FAILURE;
    }
    gw_status status =
        gw_chat_write_images(chat, request, strlen(request), p->images, p->at, p->n, &written);
    free(request);
    if (status != GW_OK) {
        return app_fail(status);
    }
    *ids = written.ids; /* the caller's now */
    *n = written.n_ids;
    written.ids = NULL;
    gw_chat_text_free(&written);
    return APP_OK;
}

/* Adds the tokens of a text to ids. */
static int append(const gw_model *model, const char *text, size_t bytes, int flags, int32_t **ids,
                  size_t *n) {
    app_text piece = {.at = (char *)text, .bytes = bytes};
    int32_t *more = NULL;
    size_t n_more = 0;
    int code = app_tokenize(model, &piece, flags, &more, &n_more);
    int32_t *grown = code == APP_OK ? realloc(*ids, (*n + n_more + 1) * sizeof *grown) : NULL;
    if (code == APP_OK && grown == NULL) {
        code = app_fail(GW_E_NOMEM);
    }
    if (grown != NULL) {
        *ids = grown;
        memcpy(grown + *n, more, n_more * sizeof *more);
        *n += n_more;
    }
    gw_free(more);
    return code;
}

static int ask_plainly(const app_pictures *p, const gw_model *model, const app_text *text,
                       int32_t **ids, size_t *n) {
    int code = APP_OK;
    for (size_t i = 0; i < p->n && code == APP_OK; i++) {
        char *stands = NULL;
        gw_status status = gw_image_text(p->images, p->at[i], &stands);
        code = status == GW_OK ? append(model, stands, strlen(stands),
                                        GW_TEXT_SPECIAL | (i == 0 ? GW_TEXT_BOS : 0), ids, n)
                               : app_fail(status);
        gw_free(stands);
    }
    return code == APP_OK ? append(model, text->at, text->bytes, GW_TEXT_OPEN, ids, n) : code;
}

static int see(app_pictures *p, gw_model *model, const int32_t *ids, size_t n) {
    gw_status status = GW_OK;
    for (size_t i = 0; i < p->n && status == GW_OK; i++) {
        status = pictures_see(p, model, i);
    }
    if (status == GW_OK) {
        status = gw_see_places(model, ids, n, p->sight, p->n, &p->seen, &p->n_seen);
    }
    return status == GW_OK ? APP_OK : app_fail(status);
}

int pictures_prompt(app_pictures *p, const app_options *o, gw_model *model, const app_text *text,
                    int32_t **ids, size_t *n) {
    gw_chat *chat = NULL;
    size_t bytes = 0;
    int code = pictures_open(p, o);
    code = code == APP_OK ? app_open_chat(o, model, &chat) : code;
    if (code == APP_OK) {
        code = gw_chat_template(chat, &bytes) != NULL ? ask_by_template(p, chat, text, ids, n)
                                                      : ask_plainly(p, model, text, ids, n);
    }
    gw_chat_free(chat);
    return code == APP_OK ? see(p, model, *ids, *n) : code;
}
