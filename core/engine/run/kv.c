/* core/engine/run/kv.c - places the cache of every layer on its device. */
#include "core/engine/run/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"

static int is_in_blocks(gw_fmt fmt) { return fmt == GW_FMT_Q8_0 || gw_cache_bits(fmt) > 0; }

static gw_fmt fmt_of(gw_kv_pair fmt, int part) { return part == 0 ? fmt.k : fmt.v; }

static int32_t page_count(int32_t n_ctx) { return (n_ctx - 1) / GW_PAGE + 1; }

static int64_t pool_pages(gw_kv_size size) {
    return size.pages > 0 ? size.pages : (int64_t)size.slots * page_count(size.n_ctx);
}

/* Pages of a ring, 0 where it is none. All of these have to be there at once: what the first row of
 * a pass sees, the rows of the pass (two pages more than whole ones, since neither end need lie
 * between pages), those that a session may go back, and one that a step begun ahead may write. */
static int32_t ring_pages(const gw_layer *layer, gw_kv_size size) {
    int64_t rows = size.chunk > GW_DECODE_MAX ? size.chunk : GW_DECODE_MAX;
    int64_t ring = (layer->reach + rows + GW_KV_SLACK) / GW_PAGE + 3;
    int bounded = layer->reach > 0 && gw_layer_paged(layer) == 0 && size.chunk > 0 &&
                  size.slots == 1 && size.pages == 0;
    return bounded && ring < page_count(size.n_ctx) ? (int32_t)ring : 0;
}

static int64_t layer_pages(const gw_layer *layer, gw_kv_size size) {
    int32_t ring = ring_pages(layer, size);
    return ring > 0 ? ring : pool_pages(size);
}

int32_t gw_kv_width(const gw_layer *layer, gw_kv_pair fmt, int part) {
    int32_t width = part == 0 ? layer->d_head : gw_layer_v_width(layer);
    return is_in_blocks(fmt.k) || is_in_blocks(fmt.v) ? (width + 31) / 32 * 32 : width;
}

/* Bytes of K (part 0), V (1) or areas (2) of one layer. */
static int part_bytes(const gw_layer *layer, gw_kv_pair fmt, int part, gw_kv_size size,
                      uint64_t *bytes) {
    if (part == 2) {
        return gw_size_mul((uint64_t)gw_layer_paged(layer) * sizeof(float),
                           (uint64_t)pool_pages(size), bytes);
    }
    const gw_format *f = gw_format_of(fmt_of(fmt, part)); /* a page is whole blocks of any */
    uint64_t width = layer->has_cache ? (uint64_t)gw_kv_width(layer, fmt, part) : 0;
    return gw_size_mul(GW_PAGE / f->block_elems * f->block_bytes,
                       (uint64_t)layer_pages(layer, size), bytes) &&
           gw_size_mul(*bytes, (uint64_t)layer->n_kv_heads, bytes) &&
           gw_size_mul(*bytes, width, bytes);
}

uint64_t gw_kv_layer_bytes(const gw_layer *layer, gw_kv_pair fmt, gw_kv_size size) {
    uint64_t k = 0, v = 0, x = 0;
    int fits = part_bytes(layer, fmt, 0, size, &k) && part_bytes(layer, fmt, 1, size, &v) &&
               part_bytes(layer, fmt, 2, size, &x);
    return fits ? k + v + x : UINT64_MAX;
}

/* One word of a pair: n bytes. */
static int read_format(const char *word, size_t n, gw_fmt *out) {
    char name[GW_KV_NAME] = "";
    if (n >= sizeof name) {
        return 0;
    }
    memcpy(name, word, n);
    return gw_format_from_name(name, out) &&
           (*out == GW_FMT_F16 || *out == GW_FMT_F32 || is_in_blocks(*out));
}

gw_status gw_kv_format(const char *kv_type, gw_kv_pair *out) {
    kv_type = kv_type != NULL ? kv_type : "f16";
    gw_kv_pair fmt;
    size_t n = strcspn(kv_type, ",");
    const char *v = kv_type[n] == ',' ? kv_type + n + 1 : kv_type;
    if (!read_format(kv_type, n, &fmt.k) || !read_format(v, strlen(v), &fmt.v)) {
        return gw_fail(GW_E_ARGUMENT, "kv-type",
                       "'%.40s' is none of f16, f32, q8_0, q5_0, q4_0, and no two of them as "
                       "q8_0,q4_0",
                       kv_type);
    }
    *out = fmt;
    return GW_OK;
}

const char *gw_kv_name(gw_kv_pair fmt, char out[GW_KV_NAME]) {
    const char *v = gw_format_of(fmt.v)->name;
    snprintf(out, GW_KV_NAME, fmt.k == fmt.v ? "%s" : "%s,%s", gw_format_of(fmt.k)->name, v);
    return out;
}

uint32_t gw_kv_number(gw_kv_pair fmt) {
    return (uint32_t)fmt.k | (fmt.k == fmt.v ? 0 : ((uint32_t)fmt.v + 1) << 16);
}

int gw_kv_of_number(uint32_t number, gw_kv_pair *out) {
    uint32_t k = number & 0xffff, v = number >> 16 > 0 ? (number >> 16) - 1 : k;
    if (k >= (uint32_t)GW_FMT_COUNT || v >= (uint32_t)GW_FMT_COUNT) {
        return 0;
    }
    *out = (gw_kv_pair){(gw_fmt)k, (gw_fmt)v};
    return 1;
}

/* Two formats for caches whose kernels read one. */
static gw_status check_pair(const gw_hparams *hp, gw_kv_pair fmt) {
    const char *what = hp->n_source > 0 ? "caches of source texts" : NULL;
    for (int32_t l = 0; what == NULL && l < hp->n_layers; l++) {
        const gw_layer *layer = &hp->layer[l];
        what = layer->n_areas > 0 ? "caches of chosen entries" : NULL;
        if (layer->has_cache && gw_layer_v_width(layer) == 0) {
            what = "values that are part of their keys";
        }
    }
    char name[GW_KV_NAME];
    return what == NULL ? GW_OK
                        : gw_fail(GW_E_UNSUPPORTED, "kv-type",
                                  "%s are two formats, and this model has %s: give one format",
                                  gw_kv_name(fmt, name), what);
}

/* May heads of the layer be wider in the cache than they are? A norm over them may not, nor keys or
 * queries by themselves. */
static int widens(const gw_hparams *hp, const gw_blueprint *bp, const gw_layer *layer) {
    const unsigned apart = GW_FLAG_KEYS | GW_FLAG_QUERY | GW_FLAG_NORM_V;
    int plain = bp != NULL && hp->n_source == 0 && layer->n_areas == 0 &&
                gw_layer_v_width(layer) == layer->d_head;
    for (int i = 0; plain && i < bp->n_blocks; i++) {
        const gw_spec_block *b = &bp->block[i];
        plain = b->kind != GW_BLOCK_ROPE_KV ||
                (b->weight[0] < 0 && b->weight[1] < 0 && (b->flags & apart) == 0);
    }
    return plain;
}

static gw_status check_format(const gw_hparams *hp, const gw_blueprint *bp, gw_fmt fmt, int is_k) {
    const char *name = gw_format_of(fmt)->name;
    for (int32_t l = 0; is_in_blocks(fmt) && l < hp->n_layers; l++) {
        const gw_layer *layer = &hp->layer[l];
        if (gw_cache_bits(fmt) > 0 && (layer->n_areas > 0 || hp->n_source > 0)) {
            return gw_fail(GW_E_UNSUPPORTED, "kv-type",
                           "%s is not there for caches of %s; f16, f32 and q8_0 work", name,
                           hp->n_source > 0 ? "source texts" : "chosen entries");
        }
        int width = is_k ? layer->d_head : gw_layer_v_width(layer);
        if (layer->has_cache && width % 32 != 0 && !widens(hp, bp, layer)) {
            return gw_fail(GW_E_UNSUPPORTED, "kv-type",
                           "%s has blocks of 32 values, heads of layer %d of this model have %d "
                           "and cannot be widened; f16 and f32 work",
                           name, (int)l, width);
        }
    }
    return GW_OK;
}

gw_status gw_kv_check(const gw_hparams *hp, const gw_blueprint *bp, gw_kv_pair fmt) {
    GW_TRY(fmt.k == fmt.v ? GW_OK : check_pair(hp, fmt));
    GW_TRY(check_format(hp, bp, fmt.k, 1));
    return check_format(hp, bp, fmt.v, 0);
}

gw_status gw_kv_bytes(const gw_hparams *hp, gw_kv_pair fmt, gw_kv_size size, uint64_t *table) {
    uint64_t one = 0, all = 0;
    int fits = 1;
    for (int32_t i = 0; i < GW_KV_PARTS * hp->n_layers; i++) {
        fits = fits && part_bytes(&hp->layer[i / GW_KV_PARTS], fmt, i % GW_KV_PARTS, size, &one) &&
               gw_size_add(all, one, &all);
    }
    if (!fits || all > SIZE_MAX) {
        return gw_fail(GW_E_OVERFLOW, "context", "a cache of %d positions does not fit 64 bits",
                       size.n_ctx);
    }
    if ((int64_t)size.slots * page_count(size.n_ctx) > INT32_MAX || pool_pages(size) > INT32_MAX) {
        return gw_fail(GW_E_OVERFLOW, "context", "%d slots of %d pages are too many", size.slots,
                       page_count(size.n_ctx));
    }
    *table = (uint64_t)size.slots * (uint64_t)page_count(size.n_ctx) * sizeof(int32_t) *
             (size.chunk > 0 ? GW_KV_KINDS : 1);
    return GW_OK;
}

/* The same table on every device. Entries beyond the pool are page 0, until they are mapped. */
static gw_status fill_page_tables(gw_kv *kv, int kind, int32_t slots, int32_t pages, int64_t pool) {
    size_t n = (size_t)slots * (size_t)pages;
    int32_t *table = calloc(n, sizeof *table);
    if (table == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for %zu pages", n);
    }
    for (size_t i = 0; i < n; i++) {
        table[i] = kind > 0 ? (int32_t)i % kv->ring[kind] : (int64_t)i < pool ? (int32_t)i : 0;
    }
    gw_status status = GW_OK;
    for (int d = 0; d < kv->n_devices && status == GW_OK; d++) {
        const gw_plan_device *to = &kv->devices[d];
        status = to->backend->alloc(to->device, n * sizeof *table, &kv->pages[kind][d]);
        if (status == GW_OK) {
            status = to->backend->write(kv->pages[kind][d], 0, table, n * sizeof *table);
        }
        kv->page_table[kind][d] = (gw_tensor){.name = "page table",
                                              .fmt = GW_FMT_I32,
                                              .n_dim = 2,
                                              .dim = {slots, pages},
                                              .buf = kv->pages[kind][d],
                                              .device = d};
    }
    free(table);
    return status;
}

/* Cells of so many bytes, of whole pages or (page 0) in one piece, where layer l has them. */
static gw_status new_cells(const gw_kv *kv, int d, int32_t l, size_t bytes, size_t page,
                           struct gw_buffer **out) {
    const gw_plan_device *to = &kv->devices[d];
    if (kv->in_host[l]) {
        return to->backend->alloc_mapped(to->device, bytes, page, out);
    }
    return to->backend->alloc_pages != NULL && page > 0
               ? to->backend->alloc_pages(to->device, bytes, page, out)
               : to->backend->alloc(to->device, bytes, out);
}

/* Heads [first, first + n) of a layer on device d. */
static gw_status new_layer(gw_kv *kv, int d, int32_t l, const gw_layer *layer, int32_t first,
                           int32_t n, gw_kv_size size) {
    int64_t rows = layer_pages(layer, size);
    size_t at = (size_t)d * (size_t)kv->n_layers + (size_t)l;
    gw_layer own = *layer;
    uint64_t k = 0, v = 0, x = 0;
    gw_tensor t = {.n_dim = 4, .device = d};
    own.n_kv_heads = n;
    (void)part_bytes(&own, kv->fmt, 0, size, &k);
    (void)part_bytes(&own, kv->fmt, 1, size, &v);
    (void)part_bytes(&own, kv->fmt, 2, size, &x);
    size_t page = (size_t)k / (size_t)rows; /* of equal halves where v is as wide */
    int whole = kv->fmt.k == kv->fmt.v && (v == k || v == 0) && x == 0;
    if (layer->has_cache) {
        GW_TRY(new_cells(kv, d, l, (size_t)(k + v + x), whole ? page : 0, &kv->cells[at]));
    }
    t.buf = kv->cells[at];
    kv->k[at] = kv->v[at] = t;
    kv->k[at].name = "K cache";
    kv->v[at].name = "V cache";
    kv->k[at].fmt = kv->fmt.k;
    kv->v[at].fmt = kv->fmt.v;
    memcpy(kv->k[at].dim, (int64_t[4]){rows, n, gw_kv_width(layer, kv->fmt, 0), GW_PAGE},
           sizeof t.dim);
    memcpy(kv->v[at].dim, (int64_t[4]){rows, n, GW_PAGE, gw_kv_width(layer, kv->fmt, 1)},
           sizeof t.dim);
    kv->v[at].offset = (size_t)k;
    kv->paged[at] = (gw_tensor){.name = "areas",
                                .fmt = GW_FMT_F32,
                                .n_dim = 2,
                                .dim = {rows, gw_layer_paged(layer)},
                                .buf = kv->cells[at],
                                .offset = (size_t)(k + v),
                                .device = d};
    kv->first_head[at] = first;
    kv->heads[l] = layer->has_cache ? layer->n_kv_heads : 0;
    return GW_OK;
}

/* A layer's cache on every device that has heads of it. */
static gw_status new_layers(gw_kv *kv, int32_t l, int device, const gw_group *groups,
                            const gw_blueprint *bp, const gw_hparams *hp, gw_kv_size size) {
    const gw_layer *layer = &hp->layer[l];
    gw_cut_heads cut;
    if (groups == NULL || groups[device].n < 2) {
        return new_layer(kv, device, l, layer, 0, layer->n_kv_heads, size);
    }
    int is_cut = gw_cut_attention(bp, hp, &groups[device], l, &cut);
    for (int c = 0; c < groups[device].n; c++) {
        GW_TRY(new_layer(kv, groups[device].device[c], l, layer, is_cut ? cut.kv_first[c] : 0,
                         is_cut ? cut.kv_count[c] : layer->n_kv_heads, size));
    }
    return GW_OK;
}

/* Layers whose caches have equal rings share a page table. */
static void sort_layers(gw_kv *kv, const gw_hparams *hp, gw_kv_size size) {
    kv->n_kinds = 1;
    for (int32_t l = 0; l < hp->n_layers; l++) {
        int32_t ring = ring_pages(&hp->layer[l], size);
        int kind = ring > 0;
        while (kind > 0 && kind < kv->n_kinds && kv->reach[kind] != hp->layer[l].reach) {
            kind++;
        }
        if (kind == kv->n_kinds) {
            kv->n_kinds++;
            kv->ring[kind] = ring;
            kv->reach[kind] = hp->layer[l].reach;
        }
        kv->table_of[l] = (unsigned char)kind;
    }
}

gw_status gw_kv_new(const gw_plan_device *devices, int n_devices, const int *where,
                    const unsigned char *host, const gw_group *groups, const gw_blueprint *bp,
                    const gw_hparams *hp, gw_kv_pair fmt, gw_kv_size size, gw_kv *out) {
    gw_kv kv = {.devices = devices, .n_devices = n_devices, .n_layers = hp->n_layers};
    kv.layers = hp->layer;
    size_t n = (size_t)n_devices * (size_t)hp->n_layers;
    uint64_t table = 0;
    gw_status status;
    kv.fmt = fmt;
    GW_TRY(gw_kv_bytes(hp, fmt, size, &table));
    kv.k = calloc(n, sizeof *kv.k);
    kv.v = calloc(n, sizeof *kv.v);
    kv.paged = calloc(n, sizeof *kv.paged);
    kv.cells = calloc(n, sizeof(struct gw_buffer *));
    kv.first_head = calloc(n, sizeof *kv.first_head);
    kv.table_of = calloc((size_t)hp->n_layers, sizeof *kv.table_of);
    kv.in_host = calloc((size_t)hp->n_layers, sizeof *kv.in_host);
    kv.heads = calloc((size_t)hp->n_layers, sizeof *kv.heads);
    if (kv.k == NULL || kv.v == NULL || kv.paged == NULL || kv.cells == NULL ||
        kv.first_head == NULL || kv.table_of == NULL || kv.in_host == NULL || kv.heads == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for %d layers", hp->n_layers);
        goto done;
    }
    memcpy(kv.in_host, host, (size_t)hp->n_layers * sizeof *host);
    sort_layers(&kv, hp, size);
    for (int32_t l = 0; l < hp->n_layers; l++) {
        GW_TRY_DONE(new_layers(&kv, l, where[l], groups, bp, hp, size));
    }
    for (int kind = 0; kind < kv.n_kinds; kind++) {
        GW_TRY_DONE(
            fill_page_tables(&kv, kind, size.slots, page_count(size.n_ctx), pool_pages(size)));
    }
    *out = kv;
    return GW_OK;
done:
    gw_kv_free(&kv);
    return status;
}

gw_status gw_kv_map(gw_kv *kv, int32_t slot, int32_t first, const int32_t *pages, int32_t n) {
    for (int d = 0; d < kv->n_devices; d++) {
        const gw_tensor *table = &kv->page_table[0][d];
        size_t at = (size_t)slot * (size_t)table->dim[1] + (size_t)first;
        GW_TRY(kv->devices[d].backend->write(kv->pages[0][d], at * sizeof *pages, pages,
                                             (size_t)n * sizeof *pages));
    }
    return GW_OK;
}

/* Some device's tensor of a layer, for its shape. */
static const gw_tensor *shape_of(const gw_kv *kv, int layer, int part) {
    size_t at = (size_t)layer;
    for (int d = 1; kv->cells[at] == NULL && d < kv->n_devices; d++) {
        at += (size_t)kv->n_layers;
    }
    return part == 0 ? &kv->k[at] : part == 1 ? &kv->v[at] : &kv->paged[at];
}

/* Bytes of one head of a page. */
static size_t head_bytes(const gw_kv *kv, int layer, int part) {
    const gw_format *f = gw_format_of(fmt_of(kv->fmt, part));
    const gw_tensor *t = shape_of(kv, layer, part);
    size_t cells = kv->heads[layer] > 0 ? (size_t)(t->dim[2] * t->dim[3]) : 0;
    return cells / f->block_elems * f->block_bytes;
}

int gw_kv_windowed(const gw_hparams *hp) {
    for (int32_t l = 0; l < hp->n_layers; l++) {
        if (hp->layer[l].reach > 0) {
            return 1;
        }
    }
    return 0;
}

/* The first page that a ring still holds, when positions up to `high` were written; one later than
 * it need be, for a step that was begun ahead. */
static int32_t first_page(const gw_kv *kv, int kind) {
    int32_t first = (kv->high - 1) / GW_PAGE - kv->ring[kind] + 2;
    return kind > 0 && kv->high > 0 && first > 0 ? first : 0;
}

void gw_kv_note(gw_kv *kv, int32_t n, int32_t pos) {
    kv->floor = pos == 0 ? 0 : kv->floor;
    kv->high = pos == 0 || pos + n > kv->high ? pos + n : kv->high;
    for (int kind = 1; kind < kv->n_kinds; kind++) {
        int32_t first = first_page(kv, kind);
        int32_t floor = first > 0 ? first * GW_PAGE + kv->reach[kind] - 1 : 0;
        kv->floor = floor > kv->floor ? floor : kv->floor;
    }
}

int gw_kv_has(const gw_kv *kv, int32_t pos) { return pos == 0 || pos >= kv->floor; }

size_t gw_kv_page_bytes(const gw_kv *kv, int layer, int part) {
    if (part == 2) {
        return kv->heads[layer] > 0 ? (size_t)gw_layer_paged(&kv->layers[layer]) * sizeof(float)
                                    : 0;
    }
    return (size_t)kv->heads[layer] * head_bytes(kv, layer, part);
}

size_t gw_kv_pages_bytes(const gw_kv *kv) {
    size_t sum = 0;
    for (int i = 0; i < GW_KV_PARTS * kv->n_layers; i++) {
        sum += gw_kv_page_bytes(kv, i / GW_KV_PARTS, i % GW_KV_PARTS);
    }
    return sum;
}

size_t gw_kv_largest_page(const gw_kv *kv) {
    size_t most = 1;
    for (int i = 0; i < GW_KV_PARTS * kv->n_layers; i++) {
        size_t bytes = gw_kv_page_bytes(kv, i / GW_KV_PARTS, i % GW_KV_PARTS);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static size_t place_of(const gw_kv *kv, int kind, int32_t page) {
    return (size_t)(kind > 0 ? page % kv->ring[kind] : page);
}

/* The heads that device d has of a page: in the page at *at, *bytes of them. */
static const gw_tensor *heads_on(const gw_kv *kv, int d, int layer, int part, size_t *at,
                                 size_t *bytes) {
    size_t i = (size_t)d * (size_t)kv->n_layers + (size_t)layer;
    const gw_tensor *t = part == 0 ? &kv->k[i] : part == 1 ? &kv->v[i] : &kv->paged[i];
    if (part == 2) { /* whole on every card */
        *at = 0;
        *bytes = kv->cells[i] != NULL ? gw_kv_page_bytes(kv, layer, part) : 0;
        return t;
    }
    size_t head = head_bytes(kv, layer, part);
    *at = (size_t)kv->first_head[i] * head;
    *bytes = kv->cells[i] != NULL ? (size_t)t->dim[1] * head : 0;
    return t;
}

gw_status gw_kv_read_page(const gw_kv *kv, int layer, int part, int32_t page, void *dst) {
    int kind = kv->table_of[layer];
    if (page < first_page(kv, kind)) {
        memset(dst, 0, gw_kv_page_bytes(kv, layer, part));
        return GW_OK;
    }
    for (int d = 0; d < kv->n_devices; d++) {
        size_t at, bytes;
        const gw_tensor *t = heads_on(kv, d, layer, part, &at, &bytes);
        if (bytes > 0) {
            GW_TRY(kv->devices[d].backend->read(
                t->buf, t->offset + place_of(kv, kind, page) * bytes, (char *)dst + at, bytes));
        }
    }
    return GW_OK;
}

gw_status gw_kv_write_page(gw_kv *kv, int layer, int part, int32_t page, const void *src) {
    size_t place = place_of(kv, kv->table_of[layer], page);
    for (int d = 0; d < kv->n_devices; d++) {
        size_t at, bytes;
        const gw_tensor *t = heads_on(kv, d, layer, part, &at, &bytes);
        if (bytes > 0) {
            GW_TRY(kv->devices[d].backend->write(t->buf, t->offset + place * bytes,
                                                 (const char *)src + at, bytes));
        }
    }
    return GW_OK;
}

/* rows of `count` cells each: those from `from` on become zero. */
static void blank_rows(char *at, size_t rows, size_t count, size_t from, size_t cell) {
    for (size_t i = 0; i < rows; i++) {
        memset(at + (i * count + from) * cell, 0, (count - from) * cell);
    }
}

/* One head of a page in blocks: planes of `rows` cells for a position, bytes or scales. */
static void blank_head(gw_fmt fmt, int part, size_t e, size_t from, char *at) {
    const int bits = gw_cache_bits(fmt);
    const size_t rows[3] = {bits > 0 ? e / 2 : e, bits == 5 ? e / 8 : 0, e / 32};
    for (int i = 0; i < 3; i++) {
        size_t cell = i == 2 ? sizeof(gw_u16) : 1, n = rows[i];
        if (n > 0) {
            blank_rows(at, part == 0 ? n : 1, part == 0 ? GW_PAGE : GW_PAGE * n,
                       part == 0 ? from : from * n, cell);
        }
        at += GW_PAGE * n * cell;
    }
}

/* Rows of positions from `live` on, and entries that end there. */
static void blank_areas(const gw_layer *layer, int32_t live, float *page) {
    for (int i = 0; i < layer->n_areas; i++) {
        const gw_area *a = &layer->area[i];
        for (int p = live; p < GW_PAGE; p++) {
            memset(page + gw_area_row(a, p), 0, (size_t)a->width * sizeof *page);
        }
        int from = (live + a->ratio - 1) / a->ratio; /* which page it is, nobody says here */
        for (int k = from; k < (GW_PAGE + a->ratio - 1) / a->ratio; k++) {
            memset(page + gw_area_entry(a, 0) + (size_t)k * (size_t)a->entry, 0,
                   (size_t)a->entry * sizeof *page);
        }
    }
}

void gw_kv_blank(const gw_kv *kv, int layer, int part, int32_t live, void *page) {
    const gw_tensor *t = shape_of(kv, layer, part);
    size_t g = (size_t)kv->heads[layer], e = (size_t)t->dim[part == 0 ? 2 : 3], from = (size_t)live;
    if (g == 0 || e == 0) {
        return;
    }
    if (part == 2) {
        blank_areas(&kv->layers[layer], live, page);
        return;
    }
    gw_fmt fmt = fmt_of(kv->fmt, part);
    if (is_in_blocks(fmt)) {
        size_t head = gw_kv_page_bytes(kv, layer, part) / g;
        for (size_t h = 0; h < g; h++) {
            blank_head(fmt, part, e, from, (char *)page + h * head);
        }
        return;
    }
    size_t cell = gw_format_of(fmt)->block_bytes;
    blank_rows(page, part == 0 ? g * e : g, part == 0 ? GW_PAGE : GW_PAGE * e,
               part == 0 ? from : from * e, cell);
}

void gw_kv_free(gw_kv *kv) {
    for (int i = 0; kv->cells != NULL && i < kv->n_devices * kv->n_layers; i++) {
        if (kv->cells[i] != NULL) {
            kv->devices[i / kv->n_layers].backend->release(kv->cells[i]);
        }
    }
    for (int i = 0; i < GW_KV_KINDS * kv->n_devices; i++) {
        int d = i % kv->n_devices;
        if (kv->pages[i / kv->n_devices][d] != NULL) {
            kv->devices[d].backend->release(kv->pages[i / kv->n_devices][d]);
        }
    }
    free(kv->table_of);
    free(kv->in_host);
    free(kv->cells);
    free(kv->k);
    free(kv->v);
    free(kv->paged);
    free(kv->first_head);
    free(kv->heads);
    memset(kv, 0, sizeof *kv);
}
