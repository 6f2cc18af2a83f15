/* core/model/torch_file.c - see torch_file.h. NAME/data.pkl describes views, NAME/data/KEY holds
 * the storages that they look at. Before PyTorch 1.6 the same stood in one file without an archive.
 */
#include "core/model/torch_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/reader.h"
#include "core/base/size.h"
#include "core/base/text.h"
#include "core/model/archive.h"
#include "core/model/pickle.h"

#define TABLE "/data.pkl"

typedef struct torch_file {
    const char *where;
    int fd;
    const gw_archive_entry *entries;
    size_t n_entries;
    gw_map *names;    /* -> index into entries */
    const char *root; /* what every name begins with */
    size_t root_bytes;
} torch_file;

static gw_status index_entries(torch_file *f, const gw_archive_entry **table) {
    for (size_t i = 0; i < f->n_entries; i++) {
        const char *name = f->entries[i].name;
        if (gw_map_add(f->names, name, strlen(name), i, NULL) == GW_MAP_NOMEM) {
            return gw_fail(GW_E_NOMEM, f->where, "no memory for the directory");
        }
        size_t n = strcspn(name, "/");
        if (strcmp(name + n, TABLE) == 0) {
            if (*table != NULL) {
                return gw_fail(GW_E_ARCHIVE, f->where, "has two tables of tensors, %s and %s",
                               (*table)->name, name);
            }
            *table = &f->entries[i];
            f->root = name;
            f->root_bytes = n;
        }
    }
    return *table != NULL
               ? GW_OK
               : gw_fail(GW_E_METADATA, f->where,
                         "is a zip archive without data.pkl: not what torch.save writes");
}

/* The entry root/NAME, NULL when there is none. */
static const gw_archive_entry *find_entry(const torch_file *f, const char *name) {
    char path[512];
    size_t i;
    int n = snprintf(path, sizeof path, "%.*s/%s", (int)f->root_bytes, f->root, name);
    return n > 0 && (size_t)n < sizeof path && gw_map_find(f->names, path, (size_t)n, &i)
               ? &f->entries[i]
               : NULL;
}

static gw_status check_order(const torch_file *f) {
    const gw_archive_entry *e = find_entry(f, "byteorder");
    int big = e != NULL && e->bytes == 3 && memcmp(e->data, "big", 3) == 0;
    return !big ? GW_OK
                : gw_fail(GW_E_VERSION, f->where,
                          "holds big-endian data; save the model on a little-endian machine");
}

/* How many elements of the storage the view reaches over, 0 when it has none itself. */
static gw_status reach(const torch_file *f, const gw_pickled *p, uint64_t *count, uint64_t *end) {
    uint64_t last = p->offset, step;
    *count = 1;
    for (int i = 0; i < p->n_dim; i++) {
        uint64_t size = p->size[i];
        if (!gw_size_mul(*count, size, count) ||
            !gw_size_mul(size > 0 ? size - 1 : 0, p->stride[i], &step) ||
            !gw_size_add(last, step, &last) || last >= INT64_MAX || size > INT64_MAX) {
            return gw_fail(GW_E_OVERFLOW, f->where,
                           "tensor %s has more elements than 64 bits count", p->name);
        }
    }
    *end = *count > 0 ? last + 1 : 0;
    return GW_OK;
}

static int is_contiguous(const gw_pickled *p) {
    uint64_t expected = 1;
    for (int i = p->n_dim; i-- > 0;) {
        if (p->size[i] != 1 && p->stride[i] != expected) {
            return 0;
        }
        expected *= p->size[i];
    }
    return 1;
}

static gw_status place(const torch_file *f, const gw_pickled *p, gw_safetensor *t) {
    char key[256];
    unsigned bits = 0;
    uint64_t count, end, bytes, from;
    snprintf(key, sizeof key, "data/%.240s", p->storage);
    const gw_archive_entry *e = find_entry(f, key);
    if (e == NULL) {
        return gw_fail(GW_E_METADATA, f->where, "the storage %.40s of tensor %s is missing",
                       p->storage, p->name);
    }
    t->stored.name = p->name;
    if (!gw_safetensors_dtype(p->dtype, t, &bits)) {
        return gw_fail(GW_E_TYPE, f->where, "tensor %s is of the unknown type %s", p->name,
                       p->dtype);
    }
    GW_TRY(reach(f, p, &count, &end));
    uint64_t elements = p->in_bytes ? p->elements / (bits / 8) : p->elements;
    if (elements > e->bytes / (bits / 8) || end > elements) {
        return gw_fail(GW_E_BOUNDS, f->where,
                       "tensor %s reaches to element %" PRIu64 " of a storage of %" PRIu64
                       " in %" PRIu64 " bytes",
                       p->name, end, elements, e->bytes);
    }
    int contiguous = count == 0 || is_contiguous(p);
    from = count > 0 ? p->offset * (bits / 8) : 0;
    bytes = contiguous ? count * (bits / 8) : 0;
    t->usable = t->usable && contiguous && p->n_dim <= 4;
    t->dtype = contiguous ? t->dtype : "transposed";
    t->stored.n_dim = p->n_dim <= 4 ? p->n_dim : 0;
    for (int i = 0; i < t->stored.n_dim; i++) {
        t->stored.dim[i] = (int64_t)p->size[i];
    }
    t->stored.data = e->data + from;
    t->stored.bytes = (size_t)bytes;
    t->stored.fd = f->fd;
    t->stored.at = e->at + from;
    return GW_OK;
}

static gw_status place_all(const torch_file *f, const gw_pickled *views, size_t count,
                           gw_arena *arena, gw_safetensor **out, size_t *n) {
    gw_safetensor *list = gw_arena_array(arena, count, sizeof *list);
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, f->where, "no memory for the tensor list");
    }
    for (size_t i = 0; i < count; i++) {
        GW_TRY(place(f, &views[i], &list[i]));
    }
    *out = list;
    *n = count;
    return GW_OK;
}

static gw_status read_all(torch_file *f, gw_arena *arena, gw_safetensor **out, size_t *n) {
    const gw_archive_entry *table = NULL;
    gw_pickled *views = NULL;
    size_t count = 0;
    GW_TRY(index_entries(f, &table));
    GW_TRY(check_order(f));
    GW_TRY(gw_pickle_read(f->where, table->data, table->bytes, arena, &views, &count));
    return place_all(f, views, count, arena, out, n);
}

/* ---- the form before zip archives --------------------------------------------------------- */

/* The storages as entries "/data/KEY", which they would be in an archive. */
static gw_status find_storages(torch_file *f, gw_reader *r, const gw_pickled_storage *keys,
                               size_t n, gw_arena *arena) {
    gw_archive_entry *list = gw_arena_array(arena, n, sizeof *list);
    for (size_t i = 0; list != NULL && i < n; i++) {
        char name[256];
        gw_safetensor type;
        unsigned bits = 0;
        uint64_t count, bytes;
        int used = snprintf(name, sizeof name, "/data/%.240s", keys[i].key);
        gw_archive_entry *e = &list[i];
        if (!gw_safetensors_dtype(keys[i].dtype, &type, &bits) || !gw_reader_u64(r, &count) ||
            !gw_size_mul(count, bits / 8, &bytes)) {
            return gw_fail(GW_E_TRUNCATED, f->where, "ends before storage %.40s", keys[i].key);
        }
        e->at = r->at;
        e->bytes = bytes;
        e->data = gw_reader_take(r, bytes);
        e->name = gw_arena_copy(arena, name, (size_t)used);
        if (e->data == NULL) {
            return gw_fail(GW_E_TRUNCATED, f->where,
                           "storage %.40s has %" PRIu64 " bytes, %" PRIu64
                           " are left; is the download complete?",
                           keys[i].key, bytes, gw_reader_left(r));
        }
        if (e->name == NULL ||
            gw_map_add(f->names, e->name, (size_t)used, i, NULL) == GW_MAP_NOMEM) {
            list = NULL;
        }
    }
    f->entries = list;
    f->n_entries = n;
    return list != NULL ? GW_OK : gw_fail(GW_E_NOMEM, f->where, "no memory for the tensor list");
}

static gw_status read_old(torch_file *f, const void *data, uint64_t size, gw_arena *arena,
                          gw_safetensor **out, size_t *n) {
    gw_pickled *views = NULL;
    gw_pickled_storage *keys = NULL;
    size_t count = 0, n_keys = 0;
    uint64_t at = 0;
    GW_TRY(gw_pickle_read_old(f->where, data, size, arena, &views, &count, &keys, &n_keys, &at));
    gw_reader r = gw_reader_of(data, size);
    (void)gw_reader_take(&r, at);
    f->root = "";
    GW_TRY(find_storages(f, &r, keys, n_keys, arena));
    return place_all(f, views, count, arena, out, n);
}

gw_status gw_torch_parse(const char *where, const void *data, uint64_t size, int fd,
                         gw_arena *arena, gw_safetensor **out, size_t *n) {
    torch_file f = {.where = where, .fd = fd};
    gw_archive_entry *entries = NULL;
    int old = gw_pickle_is_old(data, size);
    if (!old) {
        GW_TRY(gw_archive_read(where, data, size, arena, &entries, &f.n_entries));
        f.entries = entries;
    }
    f.names = gw_map_new();
    gw_status status = f.names == NULL ? gw_fail(GW_E_NOMEM, where, "no memory for the directory")
                       : old           ? read_old(&f, data, size, arena, out, n)
                                       : read_all(&f, arena, out, n);
    gw_map_free(f.names);
    return status;
}
