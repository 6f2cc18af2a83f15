/* core/engine/run/kv.c - places the cache of every layer on its device. */
#include "core/engine/run/kv.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"

static int32_t page_count(int32_t n_ctx) { return (n_ctx - 1) / GW_PAGE + 1; }

/* Bytes of K (or V) of one layer. */
static int layer_bytes(const gw_hparams *hp, gw_fmt fmt, int32_t slots, int32_t n_ctx,
                       uint64_t *bytes) {
    const gw_format *f = gw_format_of(fmt); /* a page is whole blocks of any format */
    return gw_size_mul(GW_PAGE / f->block_elems * f->block_bytes, (uint64_t)slots, bytes) &&
           gw_size_mul(*bytes, (uint64_t)page_count(n_ctx), bytes) &&
           gw_size_mul(*bytes, (uint64_t)hp->n_kv_heads, bytes) &&
           gw_size_mul(*bytes, (uint64_t)hp->d_head, bytes);
}

gw_status gw_kv_format(const char *kv_type, gw_fmt *out) {
    gw_fmt fmt = GW_FMT_F16;
    if (kv_type != NULL && (!gw_format_from_name(kv_type, &fmt) ||
                            (fmt != GW_FMT_F16 && fmt != GW_FMT_F32 && fmt != GW_FMT_Q8_0))) {
        return gw_fail(GW_E_ARGUMENT, "kv-type", "'%.40s' is none of f16, f32, q8_0", kv_type);
    }
    *out = fmt;
    return GW_OK;
}

gw_status gw_kv_bytes(const gw_hparams *hp, gw_fmt fmt, int32_t slots, int32_t n_ctx,
                      uint64_t *layer, uint64_t *table) {
    uint64_t one, all;
    if (!layer_bytes(hp, fmt, slots, n_ctx, &one) ||
        !gw_size_mul(one, 2 * (uint64_t)hp->n_layers, &all) || all > SIZE_MAX) {
        return gw_fail(GW_E_OVERFLOW, "context", "a cache of %d positions does not fit 64 bits",
                       n_ctx);
    }
    if ((int64_t)slots * page_count(n_ctx) > INT32_MAX) {
        return gw_fail(GW_E_OVERFLOW, "context", "%d slots of %d pages are too many", slots,
                       page_count(n_ctx));
    }
    *layer = 2 * one;
    *table = (uint64_t)slots * (uint64_t)page_count(n_ctx) * sizeof(int32_t);
    return GW_OK;
}

/* The same table on every device. */
static gw_status fill_page_tables(gw_kv *kv, int32_t slots, int32_t pages) {
    size_t n = (size_t)slots * (size_t)pages;
    int32_t *table = calloc(n, sizeof *table);
    if (table == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for %zu pages", n);
    }
    for (size_t i = 0; i < n; i++) {
        table[i] = (int32_t)i;
    }
    gw_status status = GW_OK;
    for (int d = 0; d < kv->n_devices && status == GW_OK; d++) {
        const gw_plan_device *to = &kv->devices[d];
        status = to->backend->alloc(to->device, n * sizeof *table, &kv->pages[d]);
        if (status == GW_OK) {
            status = to->backend->write(kv->pages[d], 0, table, n * sizeof *table);
        }
        kv->page_table[d] = (gw_tensor){.name = "page table",
                                        .fmt = GW_FMT_I32,
                                        .n_dim = 2,
                                        .dim = {slots, pages},
                                        .buf = kv->pages[d],
                                        .device = d};
    }
    free(table);
    return status;
}

static gw_status new_layer(gw_kv *kv, int32_t l, const gw_hparams *hp, gw_fmt fmt, int64_t rows,
                           uint64_t bytes) {
    const gw_plan_device *d = &kv->devices[kv->k[l].device];
    size_t page = (size_t)bytes / 2 / (size_t)rows;
    GW_TRY(d->backend->alloc_pages != NULL
               ? d->backend->alloc_pages(d->device, (size_t)bytes, page, &kv->cells[l])
               : d->backend->alloc(d->device, (size_t)bytes, &kv->cells[l]));
    gw_tensor t = {.fmt = fmt, .n_dim = 4, .buf = kv->cells[l], .device = kv->k[l].device};
    kv->k[l] = kv->v[l] = t;
    kv->k[l].name = "K cache";
    kv->v[l].name = "V cache";
    memcpy(kv->k[l].dim, (int64_t[4]){rows, hp->n_kv_heads, hp->d_head, GW_PAGE}, sizeof t.dim);
    memcpy(kv->v[l].dim, (int64_t[4]){rows, hp->n_kv_heads, GW_PAGE, hp->d_head}, sizeof t.dim);
    kv->v[l].offset = (size_t)bytes / 2;
    return GW_OK;
}

gw_status gw_kv_new(const gw_plan_device *devices, int n_devices, const int *where,
                    const gw_hparams *hp, gw_fmt fmt, int32_t slots, int32_t n_ctx, gw_kv *out) {
    gw_kv kv = {.devices = devices, .n_devices = n_devices, .n_layers = hp->n_layers};
    int32_t pages = page_count(n_ctx);
    uint64_t layer = 0, table = 0;
    gw_status status;
    GW_TRY(gw_kv_bytes(hp, fmt, slots, n_ctx, &layer, &table));
    kv.k = calloc((size_t)hp->n_layers, sizeof *kv.k);
    kv.v = calloc((size_t)hp->n_layers, sizeof *kv.v);
    kv.cells = calloc((size_t)hp->n_layers, sizeof(struct gw_buffer *));
    if (kv.k == NULL || kv.v == NULL || kv.cells == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for %d layers", hp->n_layers);
        goto done;
    }
    for (int32_t l = 0; l < hp->n_layers; l++) {
        kv.k[l].device = where[l];
        GW_TRY_DONE(new_layer(&kv, l, hp, fmt, (int64_t)slots * pages, layer));
    }
    GW_TRY_DONE(fill_page_tables(&kv, slots, pages));
    *out = kv;
    return GW_OK;
done:
    gw_kv_free(&kv);
    return status;
}

size_t gw_kv_page_bytes(const gw_kv *kv) {
    const gw_format *f = gw_format_of(kv->k[0].fmt);
    return (size_t)(kv->k[0].dim[1] * kv->k[0].dim[2]) * GW_PAGE / f->block_elems * f->block_bytes;
}

gw_status gw_kv_read_page(const gw_kv *kv, int layer, int part, int32_t page, void *dst) {
    const gw_tensor *t = part == 0 ? &kv->k[layer] : &kv->v[layer];
    size_t bytes = gw_kv_page_bytes(kv);
    return kv->devices[t->device].backend->read(t->buf, t->offset + (size_t)page * bytes, dst,
                                                bytes);
}

gw_status gw_kv_write_page(gw_kv *kv, int layer, int part, int32_t page, const void *src) {
    const gw_tensor *t = part == 0 ? &kv->k[layer] : &kv->v[layer];
    size_t bytes = gw_kv_page_bytes(kv);
    return kv->devices[t->device].backend->write(t->buf, t->offset + (size_t)page * bytes, src,
                                                 bytes);
}

/* rows of `count` cells each: those from `from` on become zero. */
static void blank_rows(char *at, size_t rows, size_t count, size_t from, size_t cell) {
    for (size_t i = 0; i < rows; i++) {
        memset(at + (i * count + from) * cell, 0, (count - from) * cell);
    }
}

void gw_kv_blank(const gw_kv *kv, int part, int32_t live, void *page) {
    size_t g = (size_t)kv->k[0].dim[1], e = (size_t)kv->k[0].dim[2], from = (size_t)live;
    if (kv->k[0].fmt == GW_FMT_Q8_0) {
        size_t head = gw_kv_page_bytes(kv) / g;
        for (size_t h = 0; h < g; h++) { /* codes, then scales */
            char *codes = (char *)page + h * head, *scales = codes + GW_PAGE * e;
            blank_rows(codes, part == 0 ? e : 1, part == 0 ? GW_PAGE : GW_PAGE * e,
                       part == 0 ? from : from * e, 1);
            blank_rows(scales, part == 0 ? e / 32 : 1, part == 0 ? GW_PAGE : GW_PAGE * e / 32,
                       part == 0 ? from : from * (e / 32), sizeof(gw_u16));
        }
        return;
    }
    size_t cell = gw_format_of(kv->k[0].fmt)->block_bytes;
    blank_rows(page, part == 0 ? g * e : g, part == 0 ? GW_PAGE : GW_PAGE * e,
               part == 0 ? from : from * e, cell);
}

void gw_kv_free(gw_kv *kv) {
    for (int32_t l = 0; kv->cells != NULL && l < kv->n_layers; l++) {
        if (kv->cells[l] != NULL) {
            kv->devices[kv->k[l].device].backend->release(kv->cells[l]);
        }
    }
    for (int d = 0; d < kv->n_devices; d++) {
        if (kv->pages[d] != NULL) {
            kv->devices[d].backend->release(kv->pages[d]);
        }
    }
    free(kv->cells);
    free(kv->k);
    free(kv->v);
    memset(kv, 0, sizeof *kv);
}
