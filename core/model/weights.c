/* core/model/weights.c - matches the roles of a spec to stored tensors and loads them. */
#include "core/model/weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One weight of one layer: what is stored, what it becomes. */
typedef struct entry {
    const gw_stored *stored; /* NULL: absent */
    gw_tensor t;             /* buf NULL until loaded */
    int keep_rows;           /* the embedding table */
    int owned;               /* t.buf is released with the weights; vectors share one buffer */
    int block, layer;        /* the first block that uses it; layer n_layers: outside */
} entry;

struct gw_weights {
    gw_blueprint bp;
    gw_hparams hp;
    const char *where; /* of the options; used while loading */
    const gw_checkpoint *checkpoint;
    const gw_plan_device *devices;
    int n_devices;
    entry *entries; /* of weight r: entries[start[r] + layer] */
    size_t start[GW_SPEC_WEIGHTS + 1];
    struct gw_buffer *vectors[GW_MAX_DEVICES]; /* all norms and biases, at equal offsets */
    gw_tensor *copies[GW_MAX_DEVICES];         /* [entries] vectors as they lie on a device */
};

/* ---- matching ------------------------------------------------------------------------------- */

static const char *stored_where(const gw_weights *w) { return w->where; }

static const char *pattern_of(const gw_weights *w, const gw_spec_weight *s) {
    return gw_checkpoint_container(w->checkpoint) == GW_CONTAINER_GGUF ? s->gguf : s->hf;
}

/* The name on disk: %d replaced by the layer. */
static void disk_name(const gw_weights *w, const gw_spec_weight *s, int layer, char *out,
                      size_t room) {
    const char *pattern = pattern_of(w, s), *mark = strstr(pattern, "%d");
    if (mark == NULL) {
        snprintf(out, room, "%s", pattern);
    } else {
        snprintf(out, room, "%.*s%d%s", (int)(mark - pattern), pattern, layer, mark + 2);
    }
}

static void shape_text(const int64_t *dim, int n, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        int wrote = snprintf(out + used, room - used, "%s%lld", i ? ", " : "[", (long long)dim[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    snprintf(out + used, room - used, "%s", n ? "]" : "[]");
}

static gw_status check_stored(const gw_weights *w, const gw_spec_weight *s, const gw_stored *t) {
    int64_t want[2];
    char have_text[112], want_text[64];
    for (int i = 0; i < s->n_dim; i++) {
        want[i] = gw_spec_extent(s->dim[i], &w->hp);
    }
    if (t->n_dim != s->n_dim || memcmp(t->dim, want, (size_t)s->n_dim * sizeof *want) != 0) {
        shape_text(t->dim, t->n_dim, have_text, sizeof have_text);
        shape_text(want, s->n_dim, want_text, sizeof want_text);
        return gw_fail(GW_E_METADATA, stored_where(w), "tensor %s is %s, the model needs %s",
                       t->name, have_text, want_text);
    }
    if (t->fmt >= GW_FMT_ACT8 || (s->n_dim == 1 && !gw_format_of(t->fmt)->is_float)) {
        return gw_fail(GW_E_TYPE, stored_where(w), "tensor %s is stored as %s, which is no %s",
                       t->name, gw_format_of(t->fmt)->name,
                       s->n_dim == 1 ? "norm weight or bias" : "weight format");
    }
    size_t bytes;
    GW_TRY(gw_matrix_bytes(t->fmt, s->n_dim == 2 ? (uint64_t)t->dim[0] : 1,
                           (uint64_t)t->dim[s->n_dim - 1], &bytes));
    if (bytes != t->bytes) {
        return gw_fail(GW_E_METADATA, stored_where(w), "tensor %s holds %zu bytes, not %zu",
                       t->name, t->bytes, bytes);
    }
    return GW_OK;
}

/* Fill the entry of a weight in a layer from the checkpoint. */
static gw_status match(gw_weights *w, int role, int layer) {
    const gw_spec_weight *s = &w->bp.weight[role];
    entry *e = &w->entries[w->start[role] + (size_t)layer];
    char name[160];
    disk_name(w, s, layer, name, sizeof name);
    const gw_stored *t = gw_checkpoint_find(w->checkpoint, name);
    int tied = s->fallback >= 0 && (t == NULL || w->hp.tied);
    if (tied) {
        disk_name(w, &w->bp.weight[s->fallback], layer, name, sizeof name);
        t = gw_checkpoint_find(w->checkpoint, name);
    }
    const char *why = t == NULL ? gw_checkpoint_unusable(w->checkpoint, name) : NULL;
    if (why != NULL) {
        return gw_fail(GW_E_TYPE, stored_where(w), "tensor %s holds %s, which no weight can be",
                       name, why);
    }
    if (t == NULL && s->optional) {
        return GW_OK;
    }
    if (t == NULL) {
        return gw_fail(GW_E_METADATA, stored_where(w), "tensor %s is missing (%s of a %s model)",
                       name, s->role, w->bp.family);
    }
    GW_TRY(check_stored(w, s, t));
    e->stored = t;
    e->t.name = t->name;
    e->t.fmt = s->n_dim == 1 ? GW_FMT_F32 : t->fmt;
    e->t.n_dim = s->n_dim;
    memcpy(e->t.dim, t->dim, sizeof e->t.dim);
    return GW_OK;
}

/* 1 when name is PREFIX number SUFFIX of the pattern; *end: what follows the number. */
static int is_layer_name(const char *pattern, const char *name, const char **end) {
    const char *mark = strstr(pattern, "%d");
    size_t n = mark != NULL ? (size_t)(mark - pattern) : 0;
    if (mark == NULL || strncmp(pattern, name, n) != 0) {
        return 0;
    }
    const char *p = name + n;
    while (*p >= '0' && *p <= '9') {
        p++;
    }
    *end = p;
    return p > name + n && *p == '.';
}

static int ends_in(const char *name, const char *tail) {
    size_t n = strlen(name), m = strlen(tail);
    return n >= m && strcmp(name + n - m, tail) == 0;
}

/* A weight of a layer that no rule names would be dropped silently and give wrong text. */
static gw_status check_leftovers(const gw_weights *w) {
    for (size_t i = 0; i < gw_checkpoint_count(w->checkpoint); i++) {
        const char *name = gw_checkpoint_at(w->checkpoint, i)->name, *tail = NULL;
        int in_layer = 0, known = 0;
        for (int r = 0; r < w->bp.n_weights && !known; r++) {
            const char *pattern = pattern_of(w, &w->bp.weight[r]);
            if (is_layer_name(pattern, name, &tail)) {
                in_layer = 1;
                known = strcmp(tail, strstr(pattern, "%d") + 2) == 0;
            }
        }
        if (in_layer && !known && (ends_in(name, ".weight") || ends_in(name, ".bias"))) {
            return gw_fail(GW_E_UNSUPPORTED, stored_where(w),
                           "tensor %s has no place in the model family %s", name, w->bp.family);
        }
    }
    return GW_OK;
}

static gw_status match_all(gw_weights *w) {
    for (int r = 0; r < w->bp.n_weights; r++) {
        int layers = (int)(w->start[r + 1] - w->start[r]);
        for (int l = 0; l < layers; l++) {
            GW_TRY(match(w, r, l));
        }
    }
    for (int b = w->bp.n_blocks - 1; b >= 0; b--) { /* the first user of a weight comes last */
        const gw_spec_block *block = &w->bp.block[b];
        if (block->kind == GW_BLOCK_EMBED) {
            w->entries[w->start[block->weight[0]]].keep_rows = 1;
        }
        for (int k = 0; k < GW_SPEC_ARGS; k++) {
            int r = block->weight[k];
            for (size_t i = r < 0 ? 0 : w->start[r]; r >= 0 && i < w->start[r + 1]; i++) {
                w->entries[i].block = b;
                w->entries[i].layer =
                    w->bp.weight[r].per_layer ? (int)(i - w->start[r]) : w->hp.n_layers;
            }
        }
    }
    return check_leftovers(w);
}

/* ---- what matrices become ------------------------------------------------------------------- */

static gw_status parse_convert(const char *text, gw_fmt *out) {
    static const struct {
        const char *name;
        gw_fmt fmt;
    } known[] = {{"int8", GW_FMT_INT8},
                 {"int4-g32", GW_FMT_INT4_G32},
                 {"int4-g64", GW_FMT_INT4_G64},
                 {"int4-g128", GW_FMT_INT4_G128},
                 {"int4-g256", GW_FMT_INT4_G256}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, known[i].name) == 0) {
            *out = known[i].fmt;
            return GW_OK;
        }
    }
    return gw_fail(GW_E_ARGUMENT, "weights",
                   "'%.40s' is none of int8, int4-g32, int4-g64, int4-g128, int4-g256", text);
}

static gw_status convert_formats(gw_weights *w, const char *text) {
    gw_fmt fmt = GW_FMT_INT8;
    GW_TRY(parse_convert(text, &fmt));
    const gw_format *f = gw_format_of(fmt);
    size_t changed = 0;
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        entry *e = &w->entries[i];
        int can = e->stored != NULL && e->t.n_dim == 2 && !e->keep_rows &&
                  gw_format_of(e->t.fmt)->is_float && f->encode != NULL &&
                  e->t.dim[1] % (int64_t)f->block_elems == 0 && e->t.dim[1] % GW_ACT_BLOCK == 0;
        if (can) {
            e->t.fmt = fmt;
            changed++;
        }
    }
    if (changed == 0) {
        return gw_fail(GW_E_ARGUMENT, "weights",
                       "%s has no float matrix that can become %s; load it as stored",
                       stored_where(w), text);
    }
    return GW_OK;
}

/* Products over several matrices need one kind of input. */
static void unmix_products(gw_weights *w) {
    for (int b = 0; b < w->bp.n_blocks; b++) {
        const gw_spec_block *block = &w->bp.block[b];
        int n = block->kind == GW_BLOCK_QKV ? 3 : block->kind == GW_BLOCK_GLU ? 2 : 0;
        for (int l = 0; n > 0 && l < w->hp.n_layers; l++) {
            int floats = 0;
            for (int k = 0; k < n; k++) {
                entry *e = &w->entries[w->start[block->weight[k]] + (size_t)l];
                floats += gw_format_of(e->t.fmt)->is_float;
            }
            for (int k = 0; floats > 0 && floats < n && k < n; k++) {
                entry *e = &w->entries[w->start[block->weight[k]] + (size_t)l];
                e->t.fmt = gw_format_of(e->t.fmt)->is_float ? e->t.fmt : GW_FMT_F32;
            }
        }
    }
}

/* ---- sources -------------------------------------------------------------------------------- */

/* Bytes [at, at + bytes) of a stored tensor; through the file where there is one: a tensor that is
 * converted need not be mapped in. */
static gw_status read_stored(const gw_stored *t, size_t at, size_t bytes, void *dst) {
    if (t->fd < 0) {
        memcpy(dst, (const unsigned char *)t->data + at, bytes);
        return GW_OK;
    }
    unsigned char *out = dst;
    while (bytes > 0) {
        ssize_t got = pread(t->fd, out, bytes, (off_t)(t->at + at));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return gw_fail(GW_E_IO, t->name, "cannot read: %s", strerror(errno));
        }
        if (got == 0) {
            return gw_fail(GW_E_TRUNCATED, t->name, "the file became shorter while it was read");
        }
        out += got;
        at += (size_t)got;
        bytes -= (size_t)got;
    }
    return GW_OK;
}

static gw_status rows_as_stored(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const entry *e = src->state;
    size_t row = e->stored->bytes / (size_t)e->stored->dim[0];
    return read_stored(e->stored, (size_t)first * row, (size_t)n * row, dst);
}

/* Decode to float, then encode; row by row, so that the bytes depend on nothing else. */
static gw_status rows_converted(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const entry *e = src->state;
    const gw_format *from = gw_format_of(e->stored->fmt), *to = gw_format_of(e->t.fmt);
    size_t cols = (size_t)e->t.dim[1], in_row = e->stored->bytes / (size_t)e->stored->dim[0];
    size_t out_row;
    GW_TRY(gw_row_bytes(e->t.fmt, cols, &out_row));
    void *raw = malloc(in_row);
    float *values = malloc(cols * sizeof *values);
    gw_status status = GW_OK;
    if (raw == NULL || values == NULL) {
        status = gw_fail(GW_E_NOMEM, e->t.name, "no memory to convert a row");
    }
    for (int64_t r = 0; r < n && status == GW_OK; r++) {
        unsigned char *out = (unsigned char *)dst + (size_t)r * out_row;
        status = read_stored(e->stored, (size_t)(first + r) * in_row, in_row, raw);
        if (status == GW_OK && e->t.fmt == GW_FMT_F32) {
            from->decode((float *)(void *)out, raw, cols);
        } else if (status == GW_OK) {
            from->decode(values, raw, cols);
            to->encode(out, values, cols);
        }
    }
    free(raw);
    free(values);
    return status;
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Give back the pages of a mapped tensor that the device now holds in its own layout, so that a
 * model is in memory once. Pages shared with a neighbour stay. */
static void drop_pages(const gw_stored *t) {
    long size = sysconf(_SC_PAGESIZE);
    uintptr_t page = size > 0 ? (uintptr_t)size : 4096;
    uintptr_t first = ((uintptr_t)t->data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)t->data + t->bytes) / page * page;
    if (t->fd >= 0 && end > first) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED); /* a wish */
    }
}

static gw_weight_source source_of(const entry *e) {
    gw_weight_source src = {.state = e, .keep_rows = e->keep_rows, .rows = rows_converted};
    size_t align = e->t.fmt == GW_FMT_F32 ? sizeof(float) : sizeof(gw_u16);
    if (e->t.fmt == e->stored->fmt) {
        src.rows = rows_as_stored;
        src.map = (uintptr_t)e->stored->data % align == 0 ? e->stored->data : NULL;
    }
    return src;
}

static gw_status load_matrix(const gw_weights *w, entry *e, const gw_where *where) {
    gw_weight_source src = source_of(e);
    int device = where[e->layer * w->bp.n_blocks + e->block];
    const gw_plan_device *d = &w->devices[device];
    GW_TRY(d->backend->load_weight(d->device, &e->t, &src));
    e->t.device = device;
    e->owned = 1;
    if (src.map != NULL && e->t.layout != GW_LAYOUT_ROWS) {
        drop_pages(e->stored);
    }
    return GW_OK;
}

static gw_status load_vector(const gw_weights *w, const entry *e, size_t at) {
    size_t n = (size_t)e->t.dim[0];
    void *raw = malloc(e->stored->bytes);
    float *values = malloc(n * sizeof *values);
    gw_status status = GW_OK;
    if (raw == NULL || values == NULL) {
        status = gw_fail(GW_E_NOMEM, e->t.name, "no memory for %zu values", n);
    }
    if (status == GW_OK) {
        status = read_stored(e->stored, 0, e->stored->bytes, raw);
    }
    if (status == GW_OK) {
        gw_format_of(e->stored->fmt)->decode(values, raw, n);
    }
    for (int d = 0; d < w->n_devices && status == GW_OK; d++) {
        gw_tensor *copy = &w->copies[d][e - w->entries];
        status = w->devices[d].backend->write(w->vectors[d], at, values, n * sizeof *values);
        *copy = e->t;
        copy->buf = w->vectors[d];
        copy->offset = at;
        copy->device = d;
    }
    free(raw);
    free(values);
    return status;
}

static void unload(gw_weights *w) {
    for (size_t i = 0; w->entries != NULL && i < w->start[w->bp.n_weights]; i++) {
        entry *e = &w->entries[i];
        if (e->owned) {
            w->devices[e->t.device].backend->release(e->t.buf);
            e->t.buf = NULL;
            e->owned = 0;
        }
    }
    for (int d = 0; d < w->n_devices; d++) {
        if (w->vectors[d] != NULL) {
            w->devices[d].backend->release(w->vectors[d]);
        }
        free(w->copies[d]);
        w->vectors[d] = NULL;
        w->copies[d] = NULL;
    }
}

/* Place of a vector in the common buffer, rounded up to 64 bytes. */
static size_t vector_bytes(const entry *e) {
    return ((size_t)e->t.dim[0] * sizeof(float) + 63) / 64 * 64;
}

/* Bytes of all vectors; *stored (may be NULL): of all tensors in the file. */
static size_t sum_vectors(const gw_weights *w, uint64_t *stored) {
    size_t vectors = 64;
    uint64_t total = 0;
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        const entry *e = &w->entries[i];
        total += e->stored != NULL ? e->stored->bytes : 0;
        vectors += e->stored != NULL && e->t.n_dim == 1 ? vector_bytes(e) : 0;
    }
    if (stored != NULL) {
        *stored = total;
    }
    return vectors;
}

static gw_status make_vectors(gw_weights *w, size_t bytes) {
    for (int d = 0; d < w->n_devices; d++) {
        const gw_plan_device *to = &w->devices[d];
        w->copies[d] = calloc(w->start[w->bp.n_weights] + 1, sizeof *w->copies[d]);
        if (w->copies[d] == NULL) {
            return gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
        }
        GW_TRY(to->backend->alloc(to->device, bytes, &w->vectors[d]));
    }
    return GW_OK;
}

static gw_status load_all(gw_weights *w, const gw_where *where, const gw_weights_options *o) {
    size_t n = w->start[w->bp.n_weights], at = 0;
    uint64_t total = 0, done = 0;
    GW_TRY(make_vectors(w, sum_vectors(w, &total)));
    for (size_t i = 0; i < n; i++) {
        entry *e = &w->entries[i];
        if (e->stored == NULL) {
            continue;
        }
        if (o->cancel != NULL && *o->cancel) {
            return gw_fail(GW_E_CANCELLED, stored_where(w), "loading was cancelled");
        }
        if (e->t.n_dim == 1) {
            GW_TRY(load_vector(w, e, at));
            at += vector_bytes(e);
        } else {
            GW_TRY(load_matrix(w, e, where));
        }
        done += e->stored->bytes;
        if (o->progress != NULL) {
            o->progress(o->progress_user, done, total);
        }
    }
    return GW_OK;
}

gw_status gw_weights_size(gw_weights *w, const gw_plan_device *device, uint64_t *bytes,
                          uint64_t *vectors) {
    memset(bytes, 0, (size_t)(w->hp.n_layers + 1) * (size_t)w->bp.n_blocks * sizeof *bytes);
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        entry *e = &w->entries[i];
        if (e->stored != NULL && e->t.n_dim == 2) {
            gw_weight_source src = source_of(e);
            uint64_t own = 0;
            GW_TRY(device->backend->size_weight(device->device, &e->t, &src, &own));
            bytes[e->layer * w->bp.n_blocks + e->block] += own;
        }
    }
    *vectors = sum_vectors(w, NULL);
    return GW_OK;
}

gw_status gw_weights_load(gw_weights *w, const gw_plan_device *devices, int n_devices,
                          const gw_where *where, const gw_weights_options *options) {
    w->devices = devices;
    w->n_devices = n_devices;
    gw_status status = load_all(w, where, options);
    if (status != GW_OK) {
        unload(w);
    }
    return status;
}

gw_status gw_weights_open(const gw_checkpoint *checkpoint, const gw_blueprint *blueprint,
                          const gw_weights_options *options, gw_weights **out) {
    gw_weights *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return gw_fail(GW_E_NOMEM, options->where, "no memory for the weights");
    }
    gw_status status;
    w->bp = *blueprint;
    w->where = options->where;
    w->hp = *gw_checkpoint_hparams(checkpoint);
    w->checkpoint = checkpoint;
    for (int r = 0; r < w->bp.n_weights; r++) {
        w->start[r + 1] = w->start[r] + (w->bp.weight[r].per_layer ? (size_t)w->hp.n_layers : 1);
    }
    if (w->start[w->bp.n_weights] > gw_checkpoint_count(checkpoint) * 4 + GW_SPEC_WEIGHTS * 4) {
        /* Far more layers than tensors: say which is missing without a table of that size. */
        status = gw_fail(GW_E_METADATA, w->where, "%d layers, but only %zu tensors", w->hp.n_layers,
                         gw_checkpoint_count(checkpoint));
        goto done;
    }
    w->entries = calloc(w->start[w->bp.n_weights] + 1, sizeof *w->entries);
    if (w->entries == NULL) {
        status = gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
        goto done;
    }
    GW_TRY_DONE(match_all(w));
    if (options->convert != NULL) {
        GW_TRY_DONE(convert_formats(w, options->convert));
    }
    unmix_products(w);
    *out = w;
    return GW_OK;
done:
    gw_weights_free(w);
    return status;
}

void gw_weights_free(gw_weights *w) {
    if (w != NULL) {
        unload(w);
        free(w->entries);
        free(w);
    }
}

/* ---- samples -------------------------------------------------------------------------------- */

/* 0x2c in every byte: an f16 of 0.07, a bf16 or f32 of 2e-12, codes of 12 and 44. */
static gw_status rows_made_up(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const entry *e = src->state;
    size_t row;
    (void)first;
    GW_TRY(gw_row_bytes(e->t.fmt, (uint64_t)e->t.dim[1], &row));
    memset(dst, 0x2c, (size_t)n * row);
    return GW_OK;
}

static gw_status load_sample(gw_weights *w) {
    size_t bytes = sum_vectors(w, NULL), at = 0;
    const gw_plan_device *d = &w->devices[0];
    float *small = malloc(bytes);
    gw_status status = GW_OK;
    if (small == NULL) {
        return gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
    }
    for (size_t i = 0; i < bytes / sizeof *small; i++) {
        small[i] = 1e-4f; /* norms: products of made-up weights stay within an f16 */
    }
    GW_TRY_DONE(make_vectors(w, bytes));
    GW_TRY_DONE(d->backend->write(w->vectors[0], 0, small, bytes));
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        entry *e = &w->entries[i];
        if (e->stored != NULL && e->t.n_dim == 1) {
            w->copies[0][i] = e->t;
            w->copies[0][i].buf = w->vectors[0];
            w->copies[0][i].offset = at;
            at += vector_bytes(e);
        } else if (e->stored != NULL) {
            gw_weight_source src = {.rows = rows_made_up, .state = e, .keep_rows = e->keep_rows};
            GW_TRY_DONE(d->backend->load_weight(d->device, &e->t, &src));
            e->t.device = 0;
            e->owned = 1;
        }
    }
done:
    free(small);
    return status;
}

gw_status gw_weights_sample(const gw_weights *w, const gw_plan_device *device, int n,
                            gw_weights **out) {
    gw_weights *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
    }
    s->bp = w->bp;
    s->hp = w->hp;
    s->hp.n_layers = n;
    s->where = w->where;
    s->devices = device;
    s->n_devices = 1;
    for (int r = 0; r < s->bp.n_weights; r++) {
        s->start[r + 1] = s->start[r] + (s->bp.weight[r].per_layer ? (size_t)n : 1);
    }
    gw_status status;
    s->entries = calloc(s->start[s->bp.n_weights] + 1, sizeof *s->entries);
    if (s->entries == NULL) {
        status = gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
        goto done;
    }
    for (int r = 0; r < s->bp.n_weights; r++) {
        for (size_t i = 0; i < s->start[r + 1] - s->start[r]; i++) {
            size_t from = s->bp.weight[r].per_layer ? i * (size_t)w->hp.n_layers / (size_t)n : 0;
            s->entries[s->start[r] + i] = w->entries[w->start[r] + from];
        }
    }
    GW_TRY_DONE(load_sample(s));
    *out = s;
    return GW_OK;
done:
    gw_weights_free(s);
    return status;
}

/* ---- questions ------------------------------------------------------------------------------ */

const gw_blueprint *gw_weights_blueprint(const gw_weights *w) { return &w->bp; }

const gw_tensor *gw_weights_get(const gw_weights *w, int role, int layer, int device) {
    if (role < 0) {
        return NULL;
    }
    size_t i = w->start[role] + (w->bp.weight[role].per_layer ? (size_t)layer : 0);
    const entry *e = &w->entries[i];
    if (e->stored == NULL) {
        return NULL;
    }
    return e->t.n_dim == 1 && w->copies[device] != NULL ? &w->copies[device][i] : &e->t;
}

static uint64_t loaded_bytes(const entry *e) {
    size_t bytes = 0;
    gw_status status = gw_matrix_bytes(e->t.fmt, e->t.n_dim == 2 ? (uint64_t)e->t.dim[0] : 1,
                                       (uint64_t)e->t.dim[e->t.n_dim - 1], &bytes);
    return status == GW_OK ? bytes : 0;
}

uint64_t gw_weights_decode_bytes(const gw_weights *w) {
    uint64_t total = 0;
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        const entry *e = &w->entries[i];
        total += e->stored != NULL && !e->keep_rows ? loaded_bytes(e) : 0;
    }
    return total;
}

gw_fmt gw_weights_format(const gw_weights *w) {
    uint64_t bytes[GW_FMT_COUNT] = {0};
    gw_fmt best = GW_FMT_F32;
    for (int r = 0; r < w->bp.n_weights; r++) {
        for (size_t i = w->start[r]; w->bp.weight[r].per_layer && i < w->start[r + 1]; i++) {
            const entry *e = &w->entries[i];
            bytes[e->t.fmt] += e->stored != NULL && e->t.n_dim == 2 ? loaded_bytes(e) : 0;
        }
    }
    for (int f = 0; f < GW_FMT_COUNT; f++) {
        best = bytes[f] > bytes[best] ? (gw_fmt)f : best;
    }
    return best;
}
