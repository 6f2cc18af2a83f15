/* core/model/weights.c - loads the weights that weights_find.c has matched; sizes. */
#include "core/model/weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/model/packed.h"
#include "core/model/weights_parts.h"

/* ---- what matrices become ------------------------------------------------------------------- */

typedef gw_entry entry;

static gw_status parse_convert(const char *text, gw_fmt *out) {
    static const struct {
        const char *name;
        gw_fmt fmt;
    } known[] = {{"float", GW_FMT_F32},
                 {"bf16", GW_FMT_BF16},
                 {"f16", GW_FMT_F16},
                 {"e4m3", GW_FMT_E4M3},
                 {"int8", GW_FMT_INT8},
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
    return gw_fail(
        GW_E_ARGUMENT, "weights",
        "'%.40s' is none of float, bf16, f16, e4m3, int8, int4-g32, int4-g64, int4-g128, int4-g256",
        text);
}

/* Floats become quantized; of those that are, as floats, the rest as they are. */
static int can_become(const entry *e, gw_fmt fmt) {
    const gw_format *f = gw_format_of(fmt);
    int is_float = gw_format_of(e->t.fmt)->is_float;
    if (e->n_stored == 0 || e->t.n_dim != 2 || e->keep_rows) {
        return 0;
    }
    if (fmt == GW_FMT_E4M3 && e->plain) { /* for products alone */
        return 0;
    }
    return fmt == GW_FMT_F32 ? !is_float || e->t.fmt == GW_FMT_NVFP4_CODES
           : f->is_float
               ? e->t.fmt != fmt && !e->keep_float
               : is_float && !e->keep_float && f->encode != NULL &&
                     e->t.dim[1] % (int64_t)f->block_elems == 0 && e->t.dim[1] % GW_ACT_BLOCK == 0;
}

static gw_status convert_formats(gw_weights *w, const char *text) {
    gw_fmt fmt = GW_FMT_INT8;
    GW_TRY(parse_convert(text, &fmt));
    size_t changed = 0;
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        entry *e = &w->entries[i];
        if (can_become(e, fmt)) {
            e->t.fmt = fmt;
            changed++;
        }
    }
    if (changed == 0 && !gw_format_of(fmt)->is_float) { /* being so already is no fault */
        return gw_fail(GW_E_ARGUMENT, "weights",
                       "%s has no float matrix that can become %s; load it as stored", w->where,
                       text);
    }
    return GW_OK;
}

/* Experts in MXFP4 follow the rule of packed matrices in GGUF files too: small ones are floats, so
 * that a file and its folder have one text. */
static void widen_small(gw_weights *w) {
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        entry *e = &w->entries[i];
        int64_t each = e->experts > 0 ? e->experts : 1;
        if (e->t.fmt == GW_FMT_MXFP4 && can_become(e, GW_FMT_F32) &&
            e->t.dim[0] / each * e->t.dim[1] < GW_PACKED_LEAST) {
            e->t.fmt = GW_FMT_F32;
        }
    }
}

/* Of a role in a layer; what layers have is that of the first outside of them. */
static size_t index_of(const gw_weights *w, int role, int layer) {
    int named = w->bp.weight[role].per_layer && layer > 0 && layer < w->hp.n_layers;
    return w->start[role] + (named ? (size_t)layer : 0);
}

/* Entry of an argument of a block in a layer; NULL: none, or absent. */
static entry *argument(gw_weights *w, const gw_spec_block *b, int k, int layer) {
    int r = b->weight[k];
    if (r < 0) {
        return NULL;
    }
    entry *e = &w->entries[index_of(w, r, layer)];
    return gw_entry_there(e) ? e : NULL;
}

static int same_column(const entry *a, const entry *b) {
    size_t n = (size_t)a->t.dim[1] * sizeof *a->column;
    return a->column == b->column ||
           (a->column != NULL && b->column != NULL && a->t.dim[1] == b->t.dim[1] &&
            memcmp(a->column, b->column, n) == 0);
}

/* What became float after all is read as floats where it is packed. */
static void settle_packed(gw_weights *w) {
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        entry *e = &w->entries[i];
        if (e->n_stored > 0 && e->stored[0]->packed != NULL && gw_format_of(e->t.fmt)->is_float) {
            const gw_format *from = gw_format_of(e->from);
            int stays = from->is_float && (from->block_elems == 1 || e->from == e->t.fmt);
            e->from = stays ? e->from : GW_FMT_F32;
            e->column = NULL;
        }
    }
}

/* Products over several matrices need one kind of input, and one order of its columns. */
static void unmix_products(gw_weights *w) {
    for (int b = 0; b < w->bp.n_blocks; b++) {
        const gw_spec_block *block = &w->bp.block[b];
        int n = gw_block_matrices(block);
        for (int l = 0; n > 1 && l < w->hp.n_layers; l++) {
            int floats = 0, all = 0;
            int mixed = 0;
            const entry *first = NULL;
            for (int k = 0; k < n && gw_block_runs(block, &w->hp, l); k++) {
                entry *e = argument(w, block, k, l);
                first = first != NULL ? first : e;
                floats += e != NULL && gw_format_of(e->t.fmt)->is_float;
                mixed = mixed || (e != NULL && !same_column(e, first));
                all += e != NULL;
            }
            for (int k = 0; (mixed || (floats > 0 && floats < all)) && k < n; k++) {
                entry *e = argument(w, block, k, l);
                if (e != NULL && !gw_format_of(e->t.fmt)->is_float) {
                    e->t.fmt = GW_FMT_F32;
                }
            }
        }
    }
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Give back the pages of a mapped tensor that the device now holds in its own layout, so that a
 * model is in memory once. Pages shared with a neighbour stay. */
static void drop_pages(const gw_stored *t) {
    long size = sysconf(_SC_PAGESIZE);
    uintptr_t page = size > 0 ? (uintptr_t)size : 4096;
    uintptr_t first = ((uintptr_t)t->data + page - 1) / page * page;
    uintptr_t end =
        ((uintptr_t)t->data + (t->packed != NULL ? t->code_bytes : t->bytes)) / page * page;
    if ((t->fd >= 0 || t->packed != NULL) && end > first) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED); /* a wish */
    }
}

/* Who loads an entry: the place of its block, and the groups of places. */
typedef struct loading {
    const gw_where *where;
    const gw_group *groups; /* or NULL */
} loading;

/* The group that has entry e; of one device where that is alone. */
static gw_group group_of(const gw_weights *w, const entry *e, const loading *l) {
    int device = l->where[e->layer * w->bp.n_blocks + e->block];
    return l->groups != NULL ? l->groups[device] : (gw_group){.n = 1, .device = {device}};
}

static gw_status load_shares(gw_weights *w, const entry *e, const gw_group *group) {
    for (int c = 0; c < group->n; c++) {
        const gw_plan_device *d = &w->devices[group->device[c]];
        gw_tensor **shares = &w->shares[group->device[c]];
        gw_entry_share share;
        if (*shares == NULL) {
            *shares = calloc(w->start[w->bp.n_weights] + 1, sizeof **shares);
        }
        if (*shares == NULL) {
            return gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
        }
        GW_TRY(gw_entry_share_of(w, e, group, c, &share));
        gw_weight_source src = gw_entry_share_source(e, &share);
        GW_TRY(d->backend->load_weight(d->device, &share.t, &src));
        share.t.device = group->device[c];
        (*shares)[e - w->entries] = share.t;
    }
    return GW_OK;
}

static gw_status load_matrix(gw_weights *w, entry *e, const loading *l) {
    gw_weight_source src = gw_entry_source(e);
    gw_group group = group_of(w, e, l);
    int keeps = 0; /* some device reads the mapping */
    if (group.n > 1) {
        GW_TRY(load_shares(w, e, &group));
        for (int c = 0; c < group.n; c++) {
            keeps |= w->shares[group.device[c]][e - w->entries].layout == GW_LAYOUT_ROWS;
        }
    } else {
        const gw_plan_device *d = &w->devices[group.device[0]];
        GW_TRY(d->backend->load_weight(d->device, &e->t, &src));
        e->t.device = group.device[0];
        e->owned = 1;
        keeps = e->t.layout == GW_LAYOUT_ROWS;
    }
    for (int i = 0; i < e->n_stored; i++) {
        if (e->stored[i]->packed != NULL || (src.map != NULL && !keeps)) {
            drop_pages(e->stored[i]);
        }
    }
    return GW_OK;
}

/* The inputs of the columns as numbers, among the vectors. */
gw_status gw_weights_load_column(const gw_weights *w, const entry *e, size_t at) {
    size_t n = (size_t)e->t.dim[1];
    float *values = malloc(n * sizeof *values);
    gw_status status =
        values != NULL ? GW_OK : gw_fail(GW_E_NOMEM, e->t.name, "no memory for %zu values", n);
    for (size_t i = 0; status == GW_OK && i < n; i++) {
        values[i] = (float)e->column[i];
    }
    for (int d = 0; d < w->n_devices && status == GW_OK; d++) {
        gw_tensor *copy = &w->copies[d][e - w->entries];
        status = w->devices[d].backend->write(w->vectors[d], at, values, n * sizeof *values);
        *copy = e->columns;
        copy->buf = w->vectors[d];
        copy->offset = at;
        copy->device = d;
    }
    free(values);
    return status;
}

/* What device d has of a vector: its share where it is a card of the group that uses it. */
static gw_status share_on(const gw_weights *w, const entry *e, const gw_group *group, int d,
                          gw_entry_share *out) {
    const gw_group alone = {.n = 1};
    for (int c = 0; c < group->n; c++) {
        if (group->device[c] == d) {
            return gw_entry_share_of(w, e, group, c, out);
        }
    }
    return gw_entry_share_of(w, e, &alone, 0, out);
}

static gw_status load_vector(const gw_weights *w, const entry *e, const loading *l, size_t at) {
    size_t n = (size_t)e->t.dim[0];
    float *values = malloc(2 * n * sizeof *values); /* all; those of a device */
    gw_group group = group_of(w, e, l);
    gw_status status = values != NULL
                           ? gw_entry_values(e, values)
                           : gw_fail(GW_E_NOMEM, e->t.name, "no memory for %zu values", n);
    for (int d = 0; d < w->n_devices && status == GW_OK; d++) {
        gw_tensor *copy = &w->copies[d][e - w->entries];
        gw_entry_share share;
        GW_TRY_DONE(share_on(w, e, &group, d, &share));
        float *own = memcpy(values + n, values, n * sizeof *values);
        gw_entry_share_values(&share, own);
        *copy = share.t;
        copy->buf = w->vectors[d];
        copy->offset = at;
        copy->device = d;
        status = w->devices[d].backend->write(w->vectors[d], at, own,
                                              (size_t)share.t.dim[0] * sizeof *own);
    }
done:
    free(values);
    return status;
}

static void unload(gw_weights *w) {
    gw_weights_free_fetched(w);
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
        for (size_t i = 0; w->shares[d] != NULL && i < w->start[w->bp.n_weights]; i++) {
            if (w->shares[d][i].buf != NULL) {
                w->devices[d].backend->release(w->shares[d][i].buf);
            }
        }
        free(w->copies[d]);
        free(w->shares[d]);
        w->vectors[d] = NULL;
        w->copies[d] = w->shares[d] = NULL;
    }
}

size_t gw_entry_vector_bytes(const gw_entry *e) {
    size_t n = e->t.n_dim == 1 ? (size_t)e->t.dim[0] : e->column != NULL ? (size_t)e->t.dim[1] : 0;
    return (n * sizeof(float) + 63) / 64 * 64;
}

static uint64_t stored_bytes(const entry *e) {
    uint64_t sum = 0;
    for (int i = 0; i < e->n_stored; i++) {
        sum += e->stored[i]->bytes;
    }
    return sum;
}

size_t gw_weights_vectors(const gw_weights *w, uint64_t *stored) {
    size_t vectors = 64;
    uint64_t total = 0;
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        const entry *e = &w->entries[i];
        total += stored_bytes(e);
        vectors += gw_entry_there(e) ? gw_entry_vector_bytes(e) : 0;
    }
    if (stored != NULL) {
        *stored = total;
    }
    return vectors;
}

gw_status gw_weights_make_vectors(gw_weights *w, size_t bytes) {
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

static gw_status load_all(gw_weights *w, const loading *l, const gw_weights_options *o) {
    size_t n = w->start[w->bp.n_weights], at = 0;
    uint64_t total = 0, done = 0;
    GW_TRY(gw_weights_make_vectors(w, gw_weights_vectors(w, &total)));
    for (size_t i = 0; i < n; i++) {
        entry *e = &w->entries[i];
        if (!gw_entry_there(e)) {
            continue;
        }
        if (o->cancel != NULL && *o->cancel) {
            return gw_fail(GW_E_CANCELLED, w->where, "loading was cancelled");
        }
        if (e->t.n_dim == 1) {
            GW_TRY(load_vector(w, e, l, at));
            at += gw_entry_vector_bytes(e);
        } else {
            GW_TRY(load_matrix(w, e, l));
            GW_TRY(e->column != NULL ? gw_weights_load_column(w, e, at) : GW_OK);
            at += gw_entry_vector_bytes(e);
        }
        done += stored_bytes(e);
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
        if (gw_entry_there(e) && e->t.n_dim == 2) {
            gw_weight_source src = gw_entry_source(e);
            uint64_t own = 0;
            GW_TRY(device->backend->size_weight(device->device, &e->t, &src, &own));
            bytes[e->layer * w->bp.n_blocks + e->block] += own;
        }
    }
    *vectors = gw_weights_vectors(w, NULL);
    return GW_OK;
}

gw_status gw_weights_load(gw_weights *w, const gw_plan_device *devices, int n_devices,
                          const gw_where *where, const gw_group *groups,
                          const gw_weights_options *options) {
    const loading l = {.where = where, .groups = groups};
    w->devices = devices;
    w->n_devices = n_devices;
    gw_status status = load_all(w, &l, options);
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
    GW_TRY_DONE(gw_weights_match(w));
    if (options->convert != NULL) {
        GW_TRY_DONE(convert_formats(w, options->convert));
    }
    widen_small(w);
    if (options->as_stored) {
        gw_weights_keep_columns(w);
    }
    unmix_products(w);
    settle_packed(w);
    gw_weights_order(w);
    *out = w;
    return GW_OK;
done:
    gw_weights_free(w);
    return status;
}

void gw_weights_free(gw_weights *w) {
    if (w != NULL) {
        unload(w);
        free(w->pool);
        free(w->layers);
        free(w->values);
        free(w->skips);
        free(w->entries);
        free(w);
    }
}

/* ---- questions ------------------------------------------------------------------------------ */

const gw_blueprint *gw_weights_blueprint(const gw_weights *w) { return &w->bp; }
const gw_hparams *gw_weights_hparams(const gw_weights *w) { return &w->hp; }

const gw_tensor *gw_weights_get(const gw_weights *w, int role, int layer, int device) {
    if (role < 0) {
        return NULL;
    }
    size_t i = index_of(w, role, layer);
    const entry *e = &w->entries[i];
    if (!gw_entry_there(e)) {
        return NULL;
    }
    if (device == GW_WEIGHTS_WHOLE) {
        return &e->t;
    }
    if (e->t.n_dim == 1) {
        return w->copies[device] != NULL ? &w->copies[device][i] : &e->t;
    }
    if (w->fetched != NULL && device == w->fetched_on && w->fetched[i].n_dim > 0) {
        return &w->fetched[i];
    }
    int shared = w->shares[device] != NULL && w->shares[device][i].buf != NULL;
    return shared ? &w->shares[device][i] : &e->t;
}

int64_t gw_weights_rows(const gw_weights *w, int role, int layer) {
    const entry *e = role < 0 ? NULL : &w->entries[index_of(w, role, layer)];
    return e != NULL && gw_entry_there(e) ? e->t.dim[0] : 0;
}

const gw_tensor *gw_weights_columns(const gw_weights *w, int role, int layer, int device) {
    if (role < 0) {
        return NULL;
    }
    size_t i = index_of(w, role, layer);
    const entry *e = &w->entries[i];
    return e->column == NULL           ? NULL
           : w->copies[device] != NULL ? &w->copies[device][i]
                                       : &e->columns;
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
        uint64_t bytes = gw_entry_there(e) && !e->keep_rows ? loaded_bytes(e) : 0;
        total += e->experts > 0 ? bytes / (uint64_t)e->experts * (uint64_t)e->used : bytes;
    }
    return total;
}

gw_fmt gw_weights_format(const gw_weights *w) {
    uint64_t bytes[GW_FMT_COUNT] = {0};
    gw_fmt best = GW_FMT_F32;
    for (int r = 0; r < w->bp.n_weights; r++) {
        for (size_t i = w->start[r]; w->bp.weight[r].per_layer && i < w->start[r + 1]; i++) {
            const entry *e = &w->entries[i];
            bytes[e->t.fmt] += gw_entry_there(e) && e->t.n_dim == 2 ? loaded_bytes(e) : 0;
        }
    }
    for (int f = 0; f < GW_FMT_COUNT; f++) {
        best = bytes[f] > bytes[best] ? (gw_fmt)f : best;
    }
    return best;
}
