/* apps/lora.c - see lora.h. */
#include "apps/lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"

/* [NAME=]PATH[:SCALE]. A name has no slash; what follows the last colon is a scale where it is a
 * number, else part of the path. */
typedef struct spec {
    char name[GW_LORA_NAME], path[4096];
    float scale;
    int named;
} spec;

static int read_scale(spec *s) {
    char *colon = strrchr(s->path, ':'), *end = NULL;
    if (colon == NULL || colon[1] == '\0') {
        return 0;
    }
    double scale = strtod(colon + 1, &end);
    if (*end != '\0') {
        return 0;
    }
    if (!(scale >= -1e6 && scale <= 1e6)) {
        app_error("--lora: '%.60s' is no scale from -1000000 to 1000000", colon + 1);
        return -1;
    }
    s->scale = (float)scale;
    *colon = '\0';
    return 0;
}

static int parse(const char *text, spec *s) {
    const char *equals = strchr(text, '='), *slash = strchr(text, '/');
    size_t n = equals != NULL ? (size_t)(equals - text) : 0;
    *s = (spec){.scale = 1.0f};
    s->named = equals != NULL && (slash == NULL || equals < slash);
    const char *path = s->named ? equals + 1 : text;
    if (s->named && (n == 0 || n >= sizeof s->name)) {
        app_error("--lora: the name in '%.60s' has %zu bytes; expected 1 to %zu", text, n,
                  sizeof s->name - 1);
        return -1;
    }
    if (path[0] == '\0' || strlen(path) >= sizeof s->path) {
        app_error("--lora: '%.60s' names no file or folder", text);
        return -1;
    }
    snprintf(s->name, sizeof s->name, "%.*s", s->named ? (int)n : 0, text);
    snprintf(s->path, sizeof s->path, "%s", path);
    return read_scale(s);
}

int lora_name(const app_options *o, size_t i, char *out, size_t room) {
    const char *text = o->lora.at[i], *equals = strchr(text, '='), *slash = strchr(text, '/');
    int named = equals != NULL && equals > text && (slash == NULL || equals < slash);
    if (named) {
        snprintf(out, room, "%.*s", (int)(equals - text), text);
    }
    return named;
}

int lora_named(const app_options *o, const char *name, gw_lora_pick *out) {
    spec s;
    for (size_t i = 0; name != NULL && i < o->lora.n; i++) {
        if (parse(o->lora.at[i], &s) == 0 && s.named && strcmp(s.name, name) == 0) {
            *out = (gw_lora_pick){.n = 1, .adapter = {(int32_t)i}, .scale = {s.scale}};
            return 1;
        }
    }
    return 0;
}

int lora_check(const app_options *o) {
    spec s;
    for (size_t i = 0; i < o->lora.n; i++) {
        gw_lora_pick first;
        if (parse(o->lora.at[i], &s) != 0) {
            return -1;
        }
        if (s.named && lora_named(o, s.name, &first) && first.adapter[0] != (int32_t)i) {
            app_error("--lora: the name '%.100s' stands twice", s.name);
            return -1;
        }
    }
    return 0;
}

gw_lora_file *lora_list(const app_options *o, int by_name) {
    size_t n = o->lora.n;
    gw_lora_file *files = calloc(1, n * (sizeof *files + sizeof(spec)) + 1);
    spec *list = files != NULL ? (spec *)(void *)(files + n) : NULL;
    for (size_t i = 0; i < n && files != NULL; i++) {
        if (parse(o->lora.at[i], &list[i]) != 0) {
            free(files);
            return NULL;
        }
        int chosen = o->lora_unapplied || (by_name && list[i].named);
        files[i] = (gw_lora_file){.path = list[i].path,
                                  .name = list[i].named ? list[i].name : NULL,
                                  .scale = chosen ? 0.0f : list[i].scale};
    }
    return files;
}

gw_status lora_open(const app_options *o, gw_model *model, int by_name) {
    if (o->lora.n == 0) {
        return GW_OK;
    }
    gw_lora_file *files = lora_list(o, by_name);
    gw_status status = files != NULL ? gw_model_adapt(model, files, o->lora.n, o->lora_at_once)
                                     : GW_E_NOMEM; /* lora_check has looked at the options */
    free(files);
    return status;
}
