/* core/model/archive.c - see archive.h. From the end: the last record says where the directory is,
 * the directory where the entries are, and each entry must repeat its name. */
#include "core/model/archive.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/reader.h"

enum { END_BYTES = 22, COMMENT_MAX = 65535, ENTRY_BYTES = 46, LOCAL_BYTES = 30, ENCRYPTED = 1 };

typedef struct archive {
    const char *where;
    const uint8_t *data;
    uint64_t size;
    uint64_t begin, bytes, count; /* the directory */
} archive;

static gw_status contradiction(const archive *a, const char *what) {
    return gw_fail(GW_E_ARCHIVE, a->where, "%s: the archive is damaged or made to mislead", what);
}

/* `bytes` bytes at `at`, which may be anything; NULL: they are not all there. */
static const uint8_t *bytes_at(const archive *a, uint64_t at, uint64_t bytes) {
    return at <= a->size && bytes <= a->size - at ? a->data + at : NULL;
}

static int is_record(const uint8_t *p, uint8_t third, uint8_t fourth) {
    return p != NULL && p[0] == 'P' && p[1] == 'K' && p[2] == third && p[3] == fourth;
}

/* Of the 64-bit extension, where the plain record has no room for the numbers. */
static gw_status read_wide_end(archive *a, uint64_t end) {
    const uint8_t *locator = end >= 20 ? bytes_at(a, end - 20, 20) : NULL;
    if (!is_record(locator, 6, 7)) {
        return contradiction(a, "the 64-bit directory record is missing");
    }
    const uint8_t *p = bytes_at(a, gw_load_le(locator + 8, 8), 56);
    if (!is_record(p, 6, 6)) {
        return contradiction(a, "the 64-bit directory record is not where it should be");
    }
    a->count = gw_load_le(p + 32, 8);
    a->bytes = gw_load_le(p + 40, 8);
    a->begin = gw_load_le(p + 48, 8);
    return GW_OK;
}

static gw_status find_directory(archive *a) {
    uint64_t at = a->size - (a->size < END_BYTES ? a->size : END_BYTES), tried = 0;
    const uint8_t *p = bytes_at(a, at, END_BYTES);
    while (p != NULL && tried <= COMMENT_MAX &&
           !(is_record(p, 5, 6) && gw_load_le(p + 20, 2) == tried)) {
        p = at > 0 ? bytes_at(a, --at, END_BYTES) : NULL;
        tried++;
    }
    if (p == NULL || tried > COMMENT_MAX) {
        return gw_fail(GW_E_TRUNCATED, a->where,
                       "has no directory at its end; is the download complete?");
    }
    a->count = gw_load_le(p + 10, 2);
    a->bytes = gw_load_le(p + 12, 4);
    a->begin = gw_load_le(p + 16, 4);
    if (a->count == 0xffff || a->bytes == 0xffffffff || a->begin == 0xffffffff) {
        GW_TRY(read_wide_end(a, at));
    }
    if (a->begin > at || a->bytes > at - a->begin || a->count > a->bytes / ENTRY_BYTES) {
        return contradiction(a, "the directory does not fit in front of its end");
    }
    return GW_OK;
}

/* The 64-bit numbers of the extra field, in place of those that are all ones. */
static gw_status widen(const archive *a, const uint8_t *extra, size_t n, uint64_t *const v[3]) {
    gw_reader r = gw_reader_of(extra, n);
    const uint8_t *head, *body;
    while ((head = gw_reader_take(&r, 4)) != NULL) {
        size_t bytes = (size_t)gw_load_le(head + 2, 2);
        body = gw_reader_take(&r, bytes);
        if (body == NULL) {
            return contradiction(a, "an extra field does not fit its record");
        }
        gw_reader wide = gw_reader_of(body, bytes);
        for (int i = 0; gw_load_le(head, 2) == 1 && i < 3; i++) {
            if (*v[i] == 0xffffffff && !gw_reader_u64(&wide, v[i])) {
                return contradiction(a, "a 64-bit size is missing");
            }
        }
    }
    return GW_OK;
}

/* The entry itself, whose head is at `at`: it must have the name that the directory gives. */
static gw_status find_data(const archive *a, uint64_t at, const uint8_t *name, size_t name_bytes,
                           gw_archive_entry *e) {
    const uint8_t *p = at < a->begin ? bytes_at(a, at, LOCAL_BYTES) : NULL;
    if (!is_record(p, 3, 4)) {
        return contradiction(a, "an entry is not where the directory says");
    }
    size_t bytes = (size_t)gw_load_le(p + 26, 2), extra = (size_t)gw_load_le(p + 28, 2);
    const uint8_t *own = bytes_at(a, at + LOCAL_BYTES, bytes);
    if (own == NULL || bytes != name_bytes || memcmp(own, name, bytes) != 0) {
        return contradiction(a, "the directory and an entry give two names");
    }
    if (gw_load_le(p + 8, 2) != 0) {
        return gw_fail(GW_E_FORBIDDEN, a->where, "%s is compressed; PyTorch stores as it is",
                       e->name);
    }
    e->at = at + LOCAL_BYTES + bytes + extra;
    e->data = bytes_at(a, e->at, e->bytes);
    if (e->data == NULL || e->at + e->bytes > a->begin) {
        return gw_fail(GW_E_ARCHIVE, a->where, "%s reaches beyond the entries of the archive",
                       e->name);
    }
    return GW_OK;
}

static gw_status read_entry(const archive *a, gw_reader *r, gw_arena *arena, gw_archive_entry *e) {
    const uint8_t *p = gw_reader_take(r, ENTRY_BYTES);
    if (!is_record(p, 1, 2)) {
        return contradiction(a, "the directory is cut off");
    }
    size_t name_bytes = (size_t)gw_load_le(p + 28, 2), extra_bytes = (size_t)gw_load_le(p + 30, 2);
    const uint8_t *name = gw_reader_take(r, name_bytes), *extra = gw_reader_take(r, extra_bytes);
    if (name == NULL || extra == NULL || gw_reader_take(r, gw_load_le(p + 32, 2)) == NULL ||
        memchr(name, 0, name_bytes) != NULL) {
        return contradiction(a, "a record of the directory is cut off or has no name");
    }
    e->name = gw_arena_copy(arena, name, name_bytes);
    if (e->name == NULL) {
        return gw_fail(GW_E_NOMEM, a->where, "no memory for the directory");
    }
    uint64_t packed = gw_load_le(p + 20, 4), at = gw_load_le(p + 42, 4);
    e->bytes = gw_load_le(p + 24, 4);
    GW_TRY(widen(a, extra, extra_bytes, (uint64_t *const[3]){&e->bytes, &packed, &at}));
    if (gw_load_le(p + 8, 2) & ENCRYPTED || gw_load_le(p + 10, 2) != 0) {
        return gw_fail(GW_E_FORBIDDEN, a->where,
                       "%s is compressed or encrypted; PyTorch stores as it is", e->name);
    }
    if (packed != e->bytes) {
        return gw_fail(GW_E_ARCHIVE, a->where, "%s has two sizes", e->name);
    }
    return find_data(a, at, name, name_bytes, e);
}

static gw_status read_entries(const archive *a, gw_arena *arena, gw_map *names,
                              gw_archive_entry *list) {
    gw_reader r = gw_reader_of(a->data + a->begin, a->bytes);
    for (size_t i = 0; i < a->count; i++) {
        GW_TRY(read_entry(a, &r, arena, &list[i]));
        gw_map_result added = gw_map_add(names, list[i].name, strlen(list[i].name), i, NULL);
        if (added != GW_MAP_ADDED) {
            return added == GW_MAP_NOMEM
                       ? gw_fail(GW_E_NOMEM, a->where, "no memory for the directory")
                       : gw_fail(GW_E_ARCHIVE, a->where, "%s occurs twice", list[i].name);
        }
    }
    return gw_reader_left(&r) == 0 ? GW_OK
                                   : contradiction(a, "the directory counts too few entries");
}

gw_status gw_archive_read(const char *where, const void *data, uint64_t size, gw_arena *arena,
                          gw_archive_entry **out, size_t *n) {
    archive a = {where, data, size, 0, 0, 0};
    if (!is_record(bytes_at(&a, 0, 4), 3, 4)) {
        return gw_fail(GW_E_MAGIC, where,
                       "is neither a zip archive, as PyTorch writes since 1.6, nor what it wrote "
                       "before; save the model again, best as safetensors");
    }
    GW_TRY(find_directory(&a));
    gw_archive_entry *list = gw_arena_array(arena, (size_t)a.count, sizeof *list);
    gw_map *names = gw_map_new();
    gw_status status = list != NULL && names != NULL
                           ? read_entries(&a, arena, names, list)
                           : gw_fail(GW_E_NOMEM, where, "no memory for the directory");
    gw_map_free(names);
    GW_TRY(status);
    *out = list;
    *n = (size_t)a.count;
    return GW_OK;
}
