/* core/model/gguf_split.c - a GGUF file alone, or the set NAME-0000i-of-0000n.gguf it begins. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/checkpoint_parts.h"

enum { PARTS_MAX = 1024, SUFFIX = 20 /* "-00001-of-00003.gguf" */ };

typedef struct split {
    int64_t no, count, tensors; /* tensors: of the whole set; -1: not stated */
} split;

static gw_status read_split(const gw_gguf *g, split *out) {
    split s = {0, 1, -1};
    GW_TRY(gw_gguf_int(g, "split.no", &s.no, NULL));
    GW_TRY(gw_gguf_int(g, "split.count", &s.count, NULL));
    GW_TRY(gw_gguf_int(g, "split.tensors.count", &s.tensors, NULL));
    if (s.count == 0) {
        s.count = 1;
    }
    if (s.count < 0 || s.count > PARTS_MAX || s.no < 0 || s.no >= s.count) {
        return gw_fail(GW_E_METADATA, gw_gguf_where(g),
                       "says it is part %" PRId64 " of %" PRId64 " (split.no, split.count)",
                       s.no + 1, s.count);
    }
    *out = s;
    return GW_OK;
}

static const char *integers(const gw_stored *t) {
    size_t n = 1;
    for (int i = 0; i < t->n_dim; i++) {
        n *= (size_t)t->dim[i];
    }
    return t->bytes == n * sizeof(int64_t) ? "I64" : "I32";
}

static gw_status add_part(gw_checkpoint *c, gw_gguf *g) {
    c->gguf[c->n_gguf++] = g;
    for (size_t i = 0; i < gw_gguf_tensors(g); i++) {
        const gw_stored *t = gw_gguf_tensor(g, i);
        GW_TRY(t->fmt == GW_FMT_I32
                   ? gw_checkpoint_add_unusable(c, gw_gguf_where(g), t, integers(t))
                   : gw_checkpoint_add(c, gw_gguf_where(g), t));
    }
    return GW_OK;
}

static gw_status open_part(gw_checkpoint *c, const char *path, gw_gguf **out) {
    gw_file file;
    GW_TRY(gw_checkpoint_map(c, path, &file));
    return gw_gguf_parse(c->file_names[c->n_files - 1], file.data, file.size, file.fd, out);
}

/* The path of part i of n, from the path of the first; NULL: it is not named like one. */
static const char *part_path(gw_checkpoint *c, const char *first, int64_t i, int64_t n) {
    char suffix[64];
    size_t length = strlen(first);
    snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", 1, (int)n);
    if (length < SUFFIX || strcmp(first + length - SUFFIX, suffix) != 0) {
        return NULL;
    }
    char *path = gw_arena_copy(c->arena, first, length);
    if (path != NULL) {
        snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", (int)i + 1, (int)n);
        memcpy(path + length - SUFFIX, suffix, SUFFIX);
    }
    return path;
}

static gw_status check_part(const gw_gguf *g, const split *set, int64_t i) {
    split s;
    GW_TRY(read_split(g, &s));
    if (s.no != i || s.count != set->count || s.tensors != set->tensors) {
        return gw_fail(GW_E_METADATA, gw_gguf_where(g),
                       "belongs to another model: it says part %" PRId64 " of %" PRId64
                       " with %" PRId64 " tensors in all, the first part says part %" PRId64
                       " of %" PRId64 " with %" PRId64,
                       s.no + 1, s.count, s.tensors, i + 1, set->count, set->tensors);
    }
    return GW_OK;
}

static gw_status load_rest(gw_checkpoint *c, const char *path, const split *set) {
    if (set->no != 0) {
        return gw_fail(GW_E_METADATA, c->where,
                       "is part %" PRId64 " of %" PRId64 " of a model; give the first part "
                       "(-00001-of-%05d.gguf), the others are found beside it",
                       set->no + 1, set->count, (int)set->count);
    }
    if (path == NULL) {
        return gw_fail(GW_E_METADATA, c->where,
                       "an image in memory cannot be the first of %" PRId64 " parts", set->count);
    }
    gw_gguf **parts = realloc(c->gguf, (size_t)set->count * sizeof(gw_gguf *));
    if (parts == NULL) {
        return gw_checkpoint_nomem(c);
    }
    c->gguf = parts;
    for (int64_t i = 1; i < set->count; i++) {
        const char *part = part_path(c, path, i, set->count);
        if (part == NULL) {
            return gw_fail(GW_E_METADATA, c->where,
                           "is the first of %" PRId64 " parts; its name must end in "
                           "-00001-of-%05d.gguf for the others to be found",
                           set->count, (int)set->count);
        }
        if (gw_path_look(part) == GW_PATH_NONE) {
            return gw_fail(GW_E_METADATA, part, "part %" PRId64 " of %" PRId64 " is missing", i + 1,
                           set->count);
        }
        gw_gguf *g = NULL;
        GW_TRY(open_part(c, part, &g));
        gw_status status = check_part(g, set, i);
        if (status != GW_OK) {
            gw_gguf_free(g);
            return status;
        }
        GW_TRY(add_part(c, g));
    }
    return GW_OK;
}

gw_status gw_gguf_load(gw_checkpoint *c, const char *path, const void *memory, size_t bytes) {
    gw_gguf *first = NULL;
    if (path != NULL) {
        GW_TRY(open_part(c, path, &first));
    } else {
        GW_TRY(gw_gguf_parse(c->where, memory, bytes, -1, &first));
        c->memory_bytes = bytes;
    }
    c->gguf = calloc(1, sizeof(gw_gguf *));
    if (c->gguf == NULL) {
        gw_gguf_free(first);
        return gw_checkpoint_nomem(c);
    }
    GW_TRY(add_part(c, first));
    split set;
    GW_TRY(read_split(first, &set));
    if (set.count > 1) {
        GW_TRY(load_rest(c, path, &set));
    }
    if (set.tensors >= 0 && (uint64_t)set.tensors != c->n) {
        return gw_fail(GW_E_METADATA, c->where,
                       "%" PRId64 " tensors are promised (split.tensors.count), %zu are there",
                       set.tensors, c->n);
    }
    return GW_OK;
}

const gw_gguf *gw_checkpoint_gguf(const gw_checkpoint *c, size_t part) {
    return part < c->n_gguf ? c->gguf[part] : NULL;
}
