/* apps/serve/models_found.h - which models -m names: files, folders, and folders of them. */
#ifndef GW_APPS_SERVE_MODELS_FOUND_H
#define GW_APPS_SERVE_MODELS_FOUND_H

#include "apps/options.h"

typedef struct found_model {
    char *id;       /* --alias, or the name of its file or folder; each once */
    char *path;     /* NULL: the one in the program */
    uint64_t bytes; /* of its files */
} found_model;

/* At least one. Exit code; *found [*n] is freed by found_free. */
int found_models(const app_options *o, found_model **found, size_t *n);
void found_free(found_model *found, size_t n);

#endif
