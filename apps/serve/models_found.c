/* apps/serve/models_found.c - looks for models in files and folders: see models_found.h. */
#include "apps/serve/models_found.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/model_name.h"
#include "core/base/os.h"

typedef struct list {
    found_model *at;
    size_t n;
} list;

static int out_of_memory(void) {
    app_error("out of memory");
    return APP_FAILURE;
}

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcasecmp(text + n - m, end) == 0;
}

static int is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int has_file(const char *folder, const char *name) {
    char path[4096];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0;
}

/* The bytes of a file; of a folder those of all its files. */
static uint64_t bytes_of(const char *path) {
    struct stat st;
    uint64_t sum = 0;
    if (path == NULL || stat(path, &st) != 0) {
        return 0;
    }
    if (!S_ISDIR(st.st_mode)) {
        return (uint64_t)st.st_size;
    }
    DIR *folder = opendir(path);
    for (struct dirent *d; folder != NULL && (d = readdir(folder)) != NULL;) {
        char file[4096];
        int n = snprintf(file, sizeof file, "%s/%s", path, d->d_name);
        if (n > 0 && (size_t)n < sizeof file && stat(file, &st) == 0 && S_ISREG(st.st_mode)) {
            sum += (uint64_t)st.st_size;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return sum;
}

/* The last part of the path, without ".gguf" and the number of a part. */
static char *name_of(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    char *name = strndup(path + begin, n - begin);
    if (name != NULL && ends_with(name, ".gguf")) {
        name[strlen(name) - 5] = '\0';
        char *part = strstr(name, "-00001-of-");
        if (part != NULL) {
            *part = '\0';
        }
    }
    for (char *c = name; c != NULL && *c != '\0'; c++) { /* it stands in labels and in JSON */
        if ((unsigned char)*c < 0x20 || *c == '"' || *c == '\\' || (unsigned char)*c >= 0x7f) {
            *c = '_';
        }
    }
    return name;
}

static int add_model(list *l, const char *path) {
    found_model *grown = realloc(l->at, (l->n + 1) * sizeof *grown);
    if (grown == NULL) {
        return out_of_memory();
    }
    l->at = grown;
    found_model *m = &l->at[l->n++];
    *m = (found_model){.id = path != NULL ? name_of(path) : strdup("built-in"),
                       .path = path != NULL ? strdup(path) : NULL,
                       .bytes = bytes_of(path)};
    if (m->id == NULL || (path != NULL && m->path == NULL)) {
        return out_of_memory();
    }
    return APP_OK;
}

/* Does none before it have its name? */
static int check_unique(const list *l, size_t at) {
    for (size_t i = 0; i < at; i++) {
        if (strcmp(l->at[i].id, l->at[at].id) == 0) {
            app_error("two models are called '%s': %s and %s (--alias names them)", l->at[i].id,
                      l->at[i].path, l->at[at].path);
            return APP_USAGE;
        }
    }
    return APP_OK;
}

/* A part of a split model that is not the first one. */
static int is_later_part(const char *name) {
    const char *of = strstr(name, "-of-");
    return of != NULL && of - name > 6 && of[-6] == '-' && strspn(of - 5, "0123456789") == 5 &&
           strncmp(of - 5, "00001", 5) != 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every .gguf file that is a model, and every folder with a config.json. */
static int add_folder(list *l, const char *path) {
    DIR *folder = opendir(path);
    char **paths = NULL;
    size_t n = 0;
    int code = APP_OK;
    if (folder == NULL) {
        app_error("%s: cannot open: %s", path, strerror(errno));
        return APP_FAILURE;
    }
    for (struct dirent *d; code == APP_OK && (d = readdir(folder)) != NULL;) {
        char *file = NULL, **grown;
        if (d->d_name[0] == '.' || asprintf(&file, "%s/%s", path, d->d_name) < 0) {
            continue;
        }
        int wanted = is_folder(file) ? has_file(file, "config.json")
                                     : ends_with(file, ".gguf") && !is_later_part(d->d_name) &&
                                           !model_name_is_image_part(file);
        grown = wanted ? realloc(paths, (n + 1) * sizeof *paths) : NULL;
        if (grown != NULL) {
            paths = grown;
            paths[n++] = file;
        } else {
            free(file);
            code = wanted ? out_of_memory() : APP_OK;
        }
    }
    closedir(folder);
    if (n > 0) {
        qsort(paths, n, sizeof *paths, by_name);
    }
    for (size_t i = 0; i < n; i++) {
        code = code == APP_OK ? add_model(l, paths[i]) : code;
        free(paths[i]);
    }
    free(paths);
    if (code == APP_OK && n == 0) {
        app_error("%s: no model in it: neither a config.json, nor .gguf files, nor folders of "
                  "models",
                  path);
        return APP_FAILURE;
    }
    return code;
}

/* It stands in JSON and in a line of the log. */
static int rename_model(list *l, size_t at, const char *name) {
    json_t *text = json_string(name); /* NULL: not UTF-8 */
    int bad = name[0] == '\0' || text == NULL;
    json_decref(text);
    for (const char *c = name; *c != '\0'; c++) {
        bad |= (unsigned char)*c < 0x20 || *c == 0x7f;
    }
    if (bad) {
        app_error("--alias: a name of UTF-8 text without control characters is needed");
        return APP_USAGE;
    }
    free(l->at[at].id);
    l->at[at].id = strdup(name);
    return l->at[at].id != NULL ? APP_OK : out_of_memory();
}

int found_models(const app_options *o, found_model **found, size_t *n) {
    list l = {0};
    int code = APP_OK;
    for (size_t i = 0; i < o->models.n && code == APP_OK; i++) {
        const char *path = o->models.at[i];
        struct stat st;
        if (stat(path, &st) != 0) {
            app_error("%s: cannot open: %s", path, strerror(errno));
            code = APP_FAILURE;
        } else {
            code = is_folder(path) && !has_file(path, "config.json") ? add_folder(&l, path)
                                                                     : add_model(&l, path);
        }
    }
    if (code == APP_OK && l.n == 0) {
        code = add_model(&l, NULL);
    }
    if (code == APP_OK && o->aliases.n > l.n) {
        app_error("--alias: %zu names for %zu models", o->aliases.n, l.n);
        code = APP_USAGE;
    }
    for (size_t i = 0; i < o->aliases.n && code == APP_OK; i++) {
        code = rename_model(&l, i, o->aliases.at[i]);
    }
    for (size_t i = 1; i < l.n && code == APP_OK; i++) {
        code = check_unique(&l, i);
    }
    *found = l.at;
    *n = l.n;
    return code;
}

void found_free(found_model *found, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(found[i].id);
        free(found[i].path);
    }
    free(found);
}
