/* core/model/weights_fetch.c - matrices of layers in main memory on their way to a card, for a
 * chunk of a prompt: as load_weight lays them out, into places that the layers use in turn. */
#include <stdlib.h>
#include <string.h>

#include "core/model/weights_parts.h"

/* A place is for one role, and for one layout of it. */
static gw_tensor *place_for(gw_weights *w, size_t begin, const gw_tensor *t) {
    for (size_t i = begin; i < w->n_places; i++) {
        if (w->places[i].fmt == t->fmt && memcmp(w->places[i].dim, t->dim, sizeof t->dim) == 0) {
            return &w->places[i];
        }
    }
    return NULL;
}

static int is_asked_for(const gw_entry *e) {
    return gw_entry_there(e) && e->owned && e->t.n_dim == 2 && e->t.device == 0 && !e->keep_rows;
}

/* A matrix that the device does not take is left where it is: its block then is, too. */
static gw_status add_entry(gw_weights *w, size_t begin, size_t i) {
    const gw_entry *e = &w->entries[i];
    const gw_plan_device *d = &w->devices[w->fetched_on];
    gw_tensor *place = place_for(w, begin, &e->t);
    if (place == NULL) {
        gw_weight_source src = gw_entry_source(e);
        src.changes = 1;
        gw_tensor t = e->t;
        t.buf = NULL;
        gw_status status = d->backend->load_weight(d->device, &t, &src);
        if (status != GW_OK) {
            return status == GW_E_UNSUPPORTED ? GW_OK : status;
        }
        t.device = w->fetched_on;
        place = &w->places[w->n_places++];
        *place = t;
    }
    w->fetched[i] = *place;
    w->fetched[i].name = e->t.name;
    return GW_OK;
}

gw_status gw_weights_fetch_new(gw_weights *w, int device) {
    size_t n = w->start[w->bp.n_weights];
    if (w->fetched != NULL) {
        return w->fetched_on == device ? GW_OK
                                       : gw_fail(GW_E_ARGUMENT, w->where, "is fetched elsewhere");
    }
    w->fetched = calloc(n + 1, sizeof *w->fetched);
    w->places = calloc(n + 1, sizeof *w->places);
    w->fetched_on = device;
    gw_status status = w->fetched != NULL && w->places != NULL
                           ? GW_OK
                           : gw_fail(GW_E_NOMEM, w->where, "no memory for the weights");
    for (int r = 0; r < w->bp.n_weights && status == GW_OK; r++) {
        size_t begin = w->n_places;
        for (size_t i = w->start[r]; i < w->start[r + 1] && status == GW_OK; i++) {
            int asked = w->bp.weight[r].per_layer && is_asked_for(&w->entries[i]);
            status = asked ? add_entry(w, begin, i) : GW_OK;
        }
    }
    if (status != GW_OK) {
        gw_weights_free_fetched(w);
    }
    return status;
}

void gw_weights_free_fetched(gw_weights *w) {
    for (size_t i = 0; i < w->n_places; i++) {
        w->devices[w->fetched_on].backend->release(w->places[i].buf);
    }
    free(w->places);
    free(w->fetched);
    w->places = w->fetched = NULL;
    w->n_places = 0;
}

int gw_weights_is_fetched(const gw_weights *w, const gw_tensor *t) {
    size_t n = w->start[w->bp.n_weights];
    return w->fetched != NULL && t >= w->fetched && t < w->fetched + n;
}

gw_status gw_weights_fetch(const gw_weights *w, const gw_tensor *t, int64_t first, int64_t n) {
    const gw_plan_device *d = &w->devices[w->fetched_on];
    gw_weight_source src = gw_entry_source(&w->entries[t - w->fetched]);
    return d->backend->fetch_weight(d->device, t, &src, first, n);
}
