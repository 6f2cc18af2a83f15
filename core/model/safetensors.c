/* core/model/safetensors.c - header length, JSON, types, shapes, ranges: in that order. */
#include "core/model/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/reader.h"
#include "core/base/size.h"
#include "core/model/guess.h"

#define HEADER_MAX 100000000u /* as the format says */

static const struct {
    const char *name;
    unsigned bits;
    int usable;
    gw_fmt fmt;
} dtypes[] = {
    {"F32", 32, 1, GW_FMT_F32},    {"F16", 16, 1, GW_FMT_F16},    {"BF16", 16, 1, GW_FMT_BF16},
    {"F64", 64, 0, GW_FMT_F32},    {"I64", 64, 0, GW_FMT_F32},    {"U64", 64, 0, GW_FMT_F32},
    {"C64", 64, 0, GW_FMT_F32},    {"I32", 32, 0, GW_FMT_F32},    {"U32", 32, 0, GW_FMT_F32},
    {"I16", 16, 0, GW_FMT_F32},    {"U16", 16, 0, GW_FMT_F32},    {"I8", 8, 0, GW_FMT_F32},
    {"U8", 8, 0, GW_FMT_F32},      {"BOOL", 8, 0, GW_FMT_F32},    {"F8_E4M3", 8, 0, GW_FMT_F32},
    {"F8_E5M2", 8, 0, GW_FMT_F32}, {"F8_E8M0", 8, 0, GW_FMT_F32}, {"F6_E2M3", 6, 0, GW_FMT_F32},
    {"F6_E3M2", 6, 0, GW_FMT_F32}, {"F4", 4, 0, GW_FMT_F32},
};

int gw_safetensors_dtype(const char *name, gw_safetensor *t, unsigned *bits) {
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            t->dtype = dtypes[i].name;
            t->usable = dtypes[i].usable;
            t->stored.fmt = dtypes[i].fmt;
            *bits = dtypes[i].bits;
            return 1;
        }
    }
    return 0;
}

static gw_status parse_dtype(const char *where, const json_t *info, gw_safetensor *t,
                             unsigned *bits) {
    const char *name = NULL;
    GW_TRY(gw_json_text(where, info, "dtype", &name));
    if (name != NULL && gw_safetensors_dtype(name, t, bits)) {
        return GW_OK;
    }
    return gw_fail(GW_E_TYPE, where, "tensor %s has dtype %s, which does not exist", t->stored.name,
                   name != NULL ? name : "(none)");
}

/* The shape, and the bytes that dtype and shape take. */
static gw_status parse_shape(const char *where, const json_t *info, unsigned bits, gw_safetensor *t,
                             uint64_t *bytes) {
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape)) {
        return gw_fail(GW_E_TYPE, where, "tensor %s has no list as its shape", t->stored.name);
    }
    size_t rank = json_array_size(shape);
    uint64_t elements = 1, last = 0;
    for (size_t i = 0; i < rank; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0) {
            return gw_fail(GW_E_TYPE, where, "dimension %zu of tensor %s is no natural number", i,
                           t->stored.name);
        }
        int64_t dim = json_integer_value(v);
        if (!gw_size_mul(elements, (uint64_t)dim, &elements)) {
            return gw_fail(GW_E_OVERFLOW, where, "tensor %s has more elements than 64 bits count",
                           t->stored.name);
        }
        if (i < 4) {
            t->stored.dim[i] = dim;
        } else if (!gw_size_mul((uint64_t)t->stored.dim[3], (uint64_t)dim, &last) ||
                   last > INT64_MAX) {
            last = 0; /* of no elements, or of more than is checked below */
        }
        t->stored.dim[3] = i < 4 ? t->stored.dim[3] : (int64_t)last;
    }
    t->stored.n_dim = rank <= 5 ? (int)(rank < 4 ? rank : 4) : 0;
    t->usable = t->usable && rank <= 5; /* kernels over time, rows and columns: the last are one */
    uint64_t total;
    if (!gw_size_mul(elements, bits, &total)) {
        return gw_fail(GW_E_OVERFLOW, where, "the bytes of tensor %s do not fit 64 bits",
                       t->stored.name);
    }
    if (total % 8 != 0) {
        return gw_fail(GW_E_TYPE, where, "tensor %s does not fill whole bytes", t->stored.name);
    }
    *bytes = total / 8;
    return GW_OK;
}

static gw_status parse_range(const char *where, const json_t *info, uint64_t bytes, uint64_t space,
                             gw_safetensor *t) {
    const json_t *range = json_object_get(info, "data_offsets");
    const json_t *from = json_array_get(range, 0), *to = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        json_integer_value(from) < 0 || json_integer_value(to) < 0) {
        return gw_fail(GW_E_TYPE, where, "data_offsets of tensor %s are not two natural numbers",
                       t->stored.name);
    }
    uint64_t begin = (uint64_t)json_integer_value(from), end = (uint64_t)json_integer_value(to);
    if (begin > end || end > space) {
        return gw_fail(GW_E_BOUNDS, where,
                       "tensor %s lies at bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
                       " bytes of data: the file is cut off or its table is wrong",
                       t->stored.name, begin, end, space);
    }
    if (end - begin != bytes) {
        return gw_fail(GW_E_TYPE, where,
                       "tensor %s has %" PRIu64 " bytes; its shape in %s takes %" PRIu64,
                       t->stored.name, end - begin, t->dtype, bytes);
    }
    t->stored.at = begin;
    t->stored.bytes = (size_t)bytes;
    return GW_OK;
}

static gw_status check_metadata(const char *where, const json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return gw_fail(GW_E_TYPE, where, "__metadata__ must be an object");
    }
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (!json_is_string(value)) {
            return gw_fail(GW_E_TYPE, where, "__metadata__ %s must be text", key);
        }
    }
    return GW_OK;
}

static gw_status parse_entries(const char *where, json_t *root, uint64_t space, gw_arena *arena,
                               gw_safetensor *list, size_t *n) {
    const char *key;
    json_t *info;
    json_object_foreach(root, key, info) {
        if (strcmp(key, "__metadata__") == 0) {
            GW_TRY(check_metadata(where, info));
            continue;
        }
        gw_safetensor *t = &list[*n];
        t->stored.name = gw_arena_copy(arena, key, strlen(key));
        if (t->stored.name == NULL) {
            return gw_fail(GW_E_NOMEM, where, "no memory for the tensor list");
        }
        if (!json_is_object(info)) {
            return gw_fail(GW_E_TYPE, where, "the entry of tensor %s must be an object", key);
        }
        unsigned bits = 0;
        uint64_t bytes = 0;
        GW_TRY(parse_dtype(where, info, t, &bits));
        GW_TRY(parse_shape(where, info, bits, t, &bytes));
        GW_TRY(parse_range(where, info, bytes, space, t));
        (*n)++;
    }
    return GW_OK;
}

static int by_place(const void *a, const void *b) {
    const gw_stored *x = &((const gw_safetensor *)a)->stored;
    const gw_stored *y = &((const gw_safetensor *)b)->stored;
    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorted by place, every tensor must begin where the one before it ended, the last end with the
 * file; then the offsets become places in the file. */
static gw_status place(const char *where, gw_reader data, int fd, gw_safetensor *list, size_t n) {
    uint64_t expected = 0, start = data.at, space = gw_reader_left(&data);
    if (n > 0) {
        qsort(list, n, sizeof *list, by_place);
    }
    for (size_t i = 0; i < n; i++) {
        gw_stored *t = &list[i].stored;
        if (t->at != expected) {
            return gw_fail(GW_E_BOUNDS, where,
                           "tensor %s begins at byte %" PRIu64 " of the data; %" PRIu64 " bytes %s",
                           t->name, t->at, t->at > expected ? t->at - expected : expected - t->at,
                           t->at > expected ? "before it belong to no tensor"
                                            : "of it belong to another tensor");
        }
        expected += t->bytes;
        t->fd = fd;
        t->data = gw_reader_take(&data, t->bytes);
        t->at += start;
    }
    if (expected != space) {
        return gw_fail(GW_E_BOUNDS, where, "%" PRIu64 " bytes at the end belong to no tensor",
                       space - expected);
    }
    return GW_OK;
}

static gw_status take_header(const char *where, gw_reader *r, json_t **root) {
    uint64_t length;
    if (!gw_reader_u64(r, &length)) {
        return gw_fail(GW_E_TRUNCATED, where,
                       "has %" PRIu64 " bytes; a safetensors file starts "
                       "with 8 bytes of header length",
                       r->size);
    }
    if (length > HEADER_MAX) {
        return gw_fail(GW_E_LIMIT, where,
                       "declares a header of %" PRIu64
                       " bytes; at most 100 MB are allowed. Is it a safetensors file? %s",
                       length, gw_guess_file(r->data, r->size));
    }
    uint64_t left = gw_reader_left(r);
    const uint8_t *text = gw_reader_take(r, length);
    if (text == NULL) {
        return gw_fail(GW_E_TRUNCATED, where,
                       "the header has %" PRIu64 " bytes, %" PRIu64
                       " of them are missing; is the download complete?",
                       length, length - left);
    }
    if (length == 0 || text[0] != '{') {
        return gw_fail(GW_E_SYNTAX, where, "the header does not start with '{'");
    }
    GW_TRY(gw_json_parse(where, text, (size_t)length, root));
    if (!json_is_object(*root)) { /* cannot be after '{'; said once more for the reader */
        json_decref(*root);
        *root = NULL;
        return gw_fail(GW_E_SYNTAX, where, "the header is no object");
    }
    return GW_OK;
}

gw_status gw_safetensors_parse(const char *where, const void *data, uint64_t size, int fd,
                               gw_arena *arena, gw_safetensor **out, size_t *n) {
    gw_reader r = gw_reader_of(data, size);
    json_t *root = NULL;
    GW_TRY(take_header(where, &r, &root));
    size_t count = 0;
    gw_safetensor *list = gw_arena_array(arena, json_object_size(root), sizeof *list);
    gw_status status = list != NULL
                           ? parse_entries(where, root, gw_reader_left(&r), arena, list, &count)
                           : gw_fail(GW_E_NOMEM, where, "no memory for the tensor list");
    json_decref(root);
    GW_TRY(status);
    GW_TRY(place(where, r, fd, list, count));
    *out = list;
    *n = count;
    return GW_OK;
}
