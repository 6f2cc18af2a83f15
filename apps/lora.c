/* apps/lora.c - see lora.h. */
#include "apps/lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"

static int read_scale(lora_spec *s) {
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

int lora_read(const app_options *o, size_t i, lora_spec *out) {
    const char *text = o->lora.at[i], *equals = strchr(text, '='), *slash = strchr(text, '/');
    size_t n = equals != NULL ? (size_t)(equals - text) : 0;
    int named = equals != NULL && (slash == NULL || equals < slash);
    const char *path = named ? equals + 1 : text;
    *out = (lora_spec){.scale = 1.0f};
    if (named && (n == 0 || n >= sizeof out->name)) {
        app_error("--lora: the name in '%.60s' has %zu bytes; expected 1 to %zu", text, n,
                  sizeof out->name - 1);
        return -1;
    }
    if (path[0] == '\0' || strlen(path) >= sizeof out->path) {
        app_error("--lora: '%.60s' names no file or folder", text);
        return -1;
    }
    snprintf(out->name, sizeof out->name, "%.*s", named ? (int)n : 0, text);
    snprintf(out->path, sizeof out->path, "%s", path);
    return read_scale(out);
}

int lora_check(const app_options *o) {
    lora_spec one, other;
    for (size_t i = 0; i < o->lora.n; i++) {
        if (lora_read(o, i, &one) != 0) {
            return -1;
        }
        for (size_t k = 0; k < i && one.name[0] != '\0'; k++) {
            if (lora_read(o, k, &other) == 0 && strcmp(one.name, other.name) == 0) {
                app_error("--lora: the name '%.100s' stands twice", one.name);
                return -1;
            }
        }
    }
    return 0;
}

gw_lora_file *lora_list(const app_options *o) {
    size_t n = o->lora.n;
    gw_lora_file *files = calloc(1, n * (sizeof *files + sizeof(lora_spec)) + 1);
    lora_spec *list = files != NULL ? (lora_spec *)(void *)(files + n) : NULL;
    for (size_t i = 0; i < n && files != NULL; i++) {
        if (lora_read(o, i, &list[i]) != 0) {
            free(files);
            return NULL;
        }
        files[i] = (gw_lora_file){.path = list[i].path,
                                  .name = list[i].name[0] != '\0' ? list[i].name : NULL,
                                  .scale = list[i].scale};
    }
    return files;
}

gw_status lora_open(const app_options *o, gw_model *model) {
    if (o->lora.n == 0) {
        return GW_OK;
    }
    gw_lora_file *files = lora_list(o);
    gw_status status = files != NULL ? gw_model_adapt(model, files, o->lora.n, o->lora_at_once)
                                     : GW_E_NOMEM; /* lora_check has looked at the options */
    free(files);
    return status;
}
