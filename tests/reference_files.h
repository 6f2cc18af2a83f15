/* tests/reference_files.h - finds and reads the shared reference data of the engine tests.
 * Folder: environment GODWIT_SHARED, else ../shared. Tests skip, and say so, where it is missing.
 */
#ifndef GW_TESTS_REFERENCE_FILES_H
#define GW_TESTS_REFERENCE_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/base/file.h"
#include "core/model/safetensors.h"

/* Path of a file or folder of the shared data, in a static buffer; skips the test without it. */
static inline const char *shared_path(const char *name) {
    static char path[4][512];
    static unsigned next;
    const char *root = getenv("GODWIT_SHARED");
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", root != NULL ? root : "../shared", name);
    if (gw_path_look(out) == GW_PATH_NONE) {
        print_message("SKIP: %s is missing\n", out);
        skip();
    }
    return out;
}

typedef struct reference_file {
    gw_file file;
    gw_arena *arena;
    gw_safetensor *list;
    size_t n;
} reference_file;

static inline void reference_open(reference_file *r, const char *path) {
    assert_int_equal(gw_file_open(path, path, &r->file), GW_OK);
    r->arena = gw_arena_new();
    assert_non_null(r->arena);
    assert_int_equal(
        gw_safetensors_parse(path, r->file.data, r->file.size, -1, r->arena, &r->list, &r->n),
        GW_OK);
}

static inline void reference_close(reference_file *r) {
    gw_arena_free(r->arena);
    gw_file_close(&r->file);
}

static inline const gw_stored *reference_find(const reference_file *r, const char *name) {
    for (size_t i = 0; i < r->n; i++) {
        if (strcmp(r->list[i].stored.name, name) == 0) {
            return &r->list[i].stored;
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* The ids of an I64 tensor, malloc'd. */
static inline int32_t *reference_ids(const reference_file *r, const char *name, size_t *n) {
    const gw_stored *t = reference_find(r, name);
    *n = t->bytes / sizeof(int64_t);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) {
        int64_t id;
        memcpy(&id, (const char *)t->data + i * sizeof id, sizeof id);
        ids[i] = (int32_t)id;
    }
    return ids;
}

static inline int32_t *json_ids(const json_t *array, size_t *n) {
    assert_true(json_is_array(array));
    *n = json_array_size(array);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return ids;
}

static inline int32_t largest(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

#endif
