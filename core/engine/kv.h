/* core/engine/kv.h - the static paged KV cache: allocated once, never moved.
 *
 * Each slot (sequence) owns ceil(n_ctx / GW_PAGE) pages; the page table is the identity, so page p
 * of slot s is page s * pages + p. Rewinding is forgetting a position: nothing is cleared.
 */
#ifndef GW_ENGINE_KV_H
#define GW_ENGINE_KV_H

#include "core/model/hparams.h"
#include "core/plan/plan.h"

typedef struct gw_kv {
    gw_plan_device device;
    struct gw_buffer *cells, *pages;
    gw_tensor *k, *v;     /* [n_layers], layouts of op.h */
    gw_tensor page_table; /* [slots, pages] i32          */
} gw_kv;

/* Bytes of the caches of `slots` timelines of n_ctx positions; GW_E_OVERFLOW. */
gw_status gw_kv_bytes(const gw_hparams *hp, gw_fmt fmt, int32_t slots, int32_t n_ctx,
                      uint64_t *bytes);
/* fmt: F16 or F32. GW_E_NOMEM; the caller has compared gw_kv_bytes with the device's memory. */
gw_status gw_kv_new(const gw_plan_device *device, const gw_hparams *hp, gw_fmt fmt, int32_t slots,
                    int32_t n_ctx, gw_kv *out);
void gw_kv_free(gw_kv *kv); /* of a zeroed or built cache */

#endif
