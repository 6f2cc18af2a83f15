/* core/engine/kv.c - places the caches of all layers in one buffer. */
#include "core/engine/kv.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"

static int32_t page_count(int32_t n_ctx) { return (n_ctx - 1) / GW_PAGE + 1; }

/* Bytes of K (or V) of one layer. */
static int layer_bytes(const gw_hparams *hp, gw_fmt fmt, int32_t slots, int32_t n_ctx,
                       uint64_t *bytes) {
    uint64_t cell = gw_format_of(fmt)->block_bytes;
    return gw_size_mul(cell * GW_PAGE, (uint64_t)slots, bytes) &&
           gw_size_mul(*bytes, (uint64_t)page_count(n_ctx), bytes) &&
           gw_size_mul(*bytes, (uint64_t)hp->n_kv_heads, bytes) &&
           gw_size_mul(*bytes, (uint64_t)hp->d_head, bytes);
}

gw_status gw_kv_bytes(const gw_hparams *hp, gw_fmt fmt, int32_t slots, int32_t n_ctx,
                      uint64_t *bytes) {
    uint64_t all;
    if (!layer_bytes(hp, fmt, slots, n_ctx, &all) ||
        !gw_size_mul(all, 2 * (uint64_t)hp->n_layers, &all) || all > SIZE_MAX) {
        return gw_fail(GW_E_OVERFLOW, "context", "a cache of %d positions does not fit 64 bits",
                       n_ctx);
    }
    *bytes = all;
    return GW_OK;
}

static gw_status fill_page_table(gw_kv *kv, int32_t slots, int32_t pages) {
    size_t n = (size_t)slots * (size_t)pages;
    int32_t *table = calloc(n, sizeof *table);
    if (table == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for %zu pages", n);
    }
    for (size_t i = 0; i < n; i++) {
        table[i] = (int32_t)i;
    }
    const gw_backend *backend = kv->device.backend;
    gw_status status = backend->alloc(kv->device.device, n * sizeof *table, &kv->pages);
    if (status == GW_OK) {
        status = backend->write(kv->pages, 0, table, n * sizeof *table);
    }
    kv->page_table = (gw_tensor){.name = "page table",
                                 .fmt = GW_FMT_I32,
                                 .n_dim = 2,
                                 .dim = {slots, pages},
                                 .buf = kv->pages};
    free(table);
    return status;
}

gw_status gw_kv_new(const gw_plan_device *device, const gw_hparams *hp, gw_fmt fmt, int32_t slots,
                    int32_t n_ctx, gw_kv *out) {
    gw_kv kv = {.device = *device};
    int32_t pages = page_count(n_ctx);
    uint64_t all = 0, layer = 0;
    gw_status status;
    GW_TRY(gw_kv_bytes(hp, fmt, slots, n_ctx, &all));
    if (!layer_bytes(hp, fmt, slots, n_ctx, &layer) || (int64_t)slots * pages > INT32_MAX) {
        return gw_fail(GW_E_OVERFLOW, "context", "%d slots of %d pages are too many", slots, pages);
    }
    kv.k = calloc((size_t)hp->n_layers, sizeof *kv.k);
    kv.v = calloc((size_t)hp->n_layers, sizeof *kv.v);
    if (kv.k == NULL || kv.v == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for %d layers", hp->n_layers);
        goto done;
    }
    GW_TRY_DONE(device->backend->alloc(device->device, (size_t)all, &kv.cells));
    GW_TRY_DONE(fill_page_table(&kv, slots, pages));
    for (int32_t l = 0; l < hp->n_layers; l++) {
        int64_t rows = (int64_t)slots * pages;
        size_t at = 2 * (size_t)l * (size_t)layer;
        kv.k[l] = (gw_tensor){.name = "K cache",
                              .fmt = fmt,
                              .n_dim = 4,
                              .dim = {rows, hp->n_kv_heads, hp->d_head, GW_PAGE},
                              .buf = kv.cells,
                              .offset = at};
        kv.v[l] = (gw_tensor){.name = "V cache",
                              .fmt = fmt,
                              .n_dim = 4,
                              .dim = {rows, hp->n_kv_heads, GW_PAGE, hp->d_head},
                              .buf = kv.cells,
                              .offset = at + (size_t)layer};
    }
    *out = kv;
    return GW_OK;
done:
    gw_kv_free(&kv);
    return status;
}

void gw_kv_free(gw_kv *kv) {
    if (kv->cells != NULL) {
        kv->device.backend->release(kv->cells);
    }
    if (kv->pages != NULL) {
        kv->device.backend->release(kv->pages);
    }
    free(kv->k);
    free(kv->v);
    memset(kv, 0, sizeof *kv);
}
