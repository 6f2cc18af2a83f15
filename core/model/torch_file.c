/* core/model/torch_file.c - see torch_file.h. NAME/data.pkl describes views, NAME/data/KEY holds
 * the storages that they look at. */
#include "core/model/torch_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
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
    if (p->elements > e->bytes / (bits / 8) || end > p->elements) {
        return gw_fail(GW_E_BOUNDS, f->where,
                       "tensor %s reaches to element %" PRIu64 " of a storage of %" PRIu64
                       " in %" PRIu64 " bytes",
                       p->name, end, p->elements, e->bytes);
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

static gw_status read_all(torch_file *f, gw_arena *arena, gw_safetensor **out, size_t *n) {
    const gw_archive_entry *table = NULL;
    gw_pickled *views = NULL;
    size_t count = 0;
    GW_TRY(index_entries(f, &table));
    GW_TRY(check_order(f));
    GW_TRY(gw_pickle_read(f->where, table->data, table->bytes, arena, &views, &count));
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

gw_status gw_torch_parse(const char *where, const void *data, uint64_t size, int fd,
                         gw_arena *arena, gw_safetensor **out, size_t *n) {
    torch_file f = {.where = where, .fd = fd};
    gw_archive_entry *entries = NULL;
    GW_TRY(gw_archive_read(where, data, size, arena, &entries, &f.n_entries));
    f.entries = entries;
    f.names = gw_map_new();
    gw_status status = f.names != NULL ? read_all(&f, arena, out, n)
                                       : gw_fail(GW_E_NOMEM, where, "no memory for the directory");
    gw_map_free(f.names);
    return status;
}
