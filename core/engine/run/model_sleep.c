/* core/engine/run/model_sleep.c - a model that gives its devices' memory to others for a while: see
 * godwit_sleep.h. */
#include "include/godwit_sleep.h"

#include "core/base/clock.h"
#include "core/engine/run/tower.h"

/* A model, and that of its tower. */
enum { PARTS = 2 };
static int parts_of(gw_model *m, gw_model *part[PARTS]) {
    part[0] = m;
    part[1] = m->tower != NULL ? gw_tower_model(m->tower) : NULL;
    return part[1] != NULL ? 2 : 1;
}

/* Activations are nobody's while there is no plan. */
static gw_status drop_arenas(gw_model *m) {
    gw_arena_set *fresh = NULL;
    GW_TRY(gw_arena_set_new(m->place.devices, m->place.n_devices, &fresh));
    gw_arena_set_free(m->arenas);
    m->arenas = fresh;
    return GW_OK;
}

static gw_status rest(gw_model *m, uint64_t *kept) {
    uint64_t own = 0;
    GW_TRY(drop_arenas(m));
    gw_status status = gw_weights_sleep(m->weights, &own);
    *kept += own;
    return status;
}

static gw_status wait_for_all(const gw_model *m) {
    for (int d = 0; d < m->place.n_devices; d++) {
        GW_TRY(m->place.devices[d].backend->wait(m->place.devices[d].device));
    }
    return GW_OK;
}

gw_status gw_model_awake(const gw_model *m) {
    return m->sleep.asleep ? gw_fail(GW_E_ARGUMENT, m->name, "sleeps: gw_model_wake comes first")
                           : GW_OK;
}

gw_status gw_model_sleep(gw_model *m) {
    double begin = gw_seconds_now();
    if (m->weights == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, m->name,
                       "was opened without its weights, so it cannot sleep");
    }
    if (m->sleep.asleep) {
        return GW_OK;
    }
    uint64_t kept = 0;
    gw_model *part[PARTS];
    const int n = parts_of(m, part);
    gw_status status = GW_OK;
    if (n > 1) {
        gw_tower_rest(m->tower);
    }
    for (int i = 0; i < n && status == GW_OK; i++) {
        status = rest(part[i], &kept);
    }
    m->sleep.asleep = 1;
    if (status != GW_OK) {
        gw_status back = gw_model_wake(m); /* says something only where that fails */
        return back != GW_OK ? back : status;
    }
    m->sleep.kept = kept;
    m->sleep.sleep_seconds = gw_seconds_now() - begin;
    return GW_OK;
}

gw_status gw_model_wake(gw_model *m) {
    double begin = gw_seconds_now();
    if (!m->sleep.asleep) {
        return GW_OK;
    }
    gw_model *part[PARTS];
    const int n = parts_of(m, part);
    gw_status status = GW_OK;
    for (int i = 0; i < n && status == GW_OK; i++) {
        status = gw_weights_wake(part[i]->weights);
        status = status == GW_OK ? wait_for_all(part[i]) : status;
    }
    status = status == GW_OK && n > 1 ? gw_tower_return(m->tower) : status;
    if (status != GW_OK) {
        return status;
    }
    m->sleep.asleep = 0;
    m->sleep.wake_seconds = gw_seconds_now() - begin;
    return GW_OK;
}

void gw_model_sleep_info(const gw_model *model, gw_sleep_info *out) { *out = model->sleep; }
