/* core/model/weights_sleep.c - weights that leave their devices and come back: buffer by buffer, so
 * that every tensor stays what it is. */
#include "core/model/weights_parts.h"

typedef gw_status (*move_fn)(const gw_plan_device *d, struct gw_buffer *buffer, uint64_t *kept);

static gw_status stow(const gw_plan_device *d, struct gw_buffer *buffer, uint64_t *kept) {
    uint64_t bytes = 0;
    GW_TRY(d->backend->stow(buffer, &bytes));
    *kept += bytes;
    return GW_OK;
}

static gw_status restore(const gw_plan_device *d, struct gw_buffer *buffer, uint64_t *kept) {
    (void)kept;
    return d->backend->restore(buffer);
}

static gw_status move(const gw_weights *w, int device, struct gw_buffer *buffer, move_fn fn,
                      uint64_t *kept) {
    const gw_plan_device *d = &w->devices[device];
    return buffer == NULL || d->backend->stow == NULL ? GW_OK : fn(d, buffer, kept);
}

/* Every buffer that unload (weights.c) releases. */
static gw_status move_all(const gw_weights *w, move_fn fn, uint64_t *kept) {
    size_t n = w->start[w->bp.n_weights];
    for (size_t i = 0; i < n; i++) {
        const gw_entry *e = &w->entries[i];
        GW_TRY(e->owned ? move(w, e->t.device, e->t.buf, fn, kept) : GW_OK);
    }
    for (size_t i = 0; i < w->n_places; i++) { /* what they hold is brought anew for each prompt */
        GW_TRY(move(w, w->fetched_on, w->places[i].buf, fn, kept));
    }
    for (int d = 0; d < w->n_devices; d++) {
        GW_TRY(move(w, d, w->vectors[d], fn, kept));
        for (size_t i = 0; w->shares[d] != NULL && i < n; i++) {
            GW_TRY(move(w, d, w->shares[d][i].buf, fn, kept));
        }
    }
    return GW_OK;
}

gw_status gw_weights_sleep(gw_weights *w, uint64_t *kept) {
    *kept = 0;
    return move_all(w, stow, kept);
}

gw_status gw_weights_wake(gw_weights *w) {
    uint64_t none = 0;
    return move_all(w, restore, &none);
}
