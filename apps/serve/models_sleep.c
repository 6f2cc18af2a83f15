/* apps/serve/models_sleep.c - models that wait in main memory. Least recently used goes first, as
 * for unloading, and never one with work; what is put to sleep has a thread for it, so that the
 * loop goes on, and while that runs no other model is loaded. Requests that come wait meanwhile. */
#include "apps/serve/models_parts.h"

/* Main memory for all that sleep; 0: none does. */
static uint64_t budget_of(const app_options *o) {
    return o->sleep_memory > 0 ? o->sleep_memory : o->sleep_idle > 0 ? UINT64_MAX : 0;
}

static uint64_t need_of(const entry *e) {
    gw_model_info draft = {0};
    if (e->m.draft != NULL) {
        gw_model_describe(e->m.draft, &draft);
    }
    gw_eyes eyes = {0};
    gw_model_eyes(e->m.gw, &eyes);
    return e->m.info.weight_bytes + draft.weight_bytes + eyes.weight_bytes;
}

static entry *longest_asleep(models *all) {
    entry *found = NULL;
    for (size_t i = 0; i < all->n; i++) {
        entry *e = &all->entries[i];
        if (e->state == MODEL_ASLEEP && (found == NULL || e->used < found->used)) {
            found = e;
        }
    }
    return found;
}

/* 0: it cannot sleep. Others that sleep may be unloaded for it. */
static int may_sleep(entry *e) {
    uint64_t budget = budget_of(e->all->s->o), need = need_of(e);
    if (need > budget) {
        return 0;
    }
    while (models_kept(e->all) - e->kept > budget - need) {
        entry *other = longest_asleep(e->all);
        if (other == NULL) {
            return 0; /* those that are awake have it */
        }
        models_drop(other, "another model needs main memory to sleep in");
    }
    return 1;
}

static void *doze(void *user) {
    entry *e = user;
    models_stop_engine(e);
    gw_batch_free(e->m.batch);
    gw_encoder_free(e->m.encoder);
    e->m.batch = NULL;
    e->m.encoder = NULL;
    gw_status status = gw_model_sleep(e->m.gw);
    if (status == GW_OK && e->m.draft != NULL) {
        status = gw_model_sleep(e->m.draft);
    }
    e->asleep = status == GW_OK;
    if (!e->asleep) {
        fault_set(&e->why, 500, NULL, "%s", gw_error_text());
    }
    loop_post(e->all->s->loop, &e->dozed);
    return NULL;
}

void models_rest(entry *e, const char *why) {
    if (!may_sleep(e)) {
        models_drop(e, why);
        return;
    }
    e->tired = 0;
    e->state = MODEL_DOZING;
    e->awake_bytes = e->bytes;
    e->has_loader = pthread_create(&e->loader, NULL, doze, e) == 0;
    if (!e->has_loader) {
        models_drop(e, why);
        return;
    }
    e->all->loading = e;
    app_note("%s goes to sleep: %s", e->m.id, why);
}

static uint64_t kept_by(const gw_model *gw) {
    gw_sleep_info info = {0};
    if (gw != NULL) {
        gw_model_sleep_info(gw, &info);
    }
    return info.kept;
}

void models_dozed(void *user) {
    entry *e = user;
    pthread_join(e->loader, NULL);
    e->has_loader = 0;
    e->all->loading = NULL;
    if (e->asleep) {
        e->bytes = 0;
        e->kept = kept_by(e->m.gw) + kept_by(e->m.draft);
        e->sleeps++;
        e->state = MODEL_ASLEEP;
    } else {
        models_drop(e, e->why.text);
    }
    if (e->waits != NULL) {
        e->state = MODEL_WAITING; /* somebody has come meanwhile */
    }
    models_go_on(e->all);
}

gw_status models_wake(entry *e) {
    double begin = app_seconds();
    gw_status status = gw_model_wake(e->m.gw);
    if (status == GW_OK && e->m.draft != NULL) {
        status = gw_model_wake(e->m.draft);
    }
    status = status == GW_OK ? models_open_batch(e, e->all->s->o) : status;
    e->took = app_seconds() - begin;
    return status;
}

/* ---- clients that say when ------------------------------------------------------------------- */

int models_sleep_all(models *all, fault *f) {
    if (budget_of(all->s->o) == 0) {
        return fault_set(f, 400, NULL,
                         "no model sleeps here: --sleep-memory gives main memory for it");
    }
    for (size_t i = 0; i < all->n; i++) {
        all->entries[i].tired = all->entries[i].state == MODEL_READY;
    }
    models_tick(all);
    return 0;
}

void models_wake_all(models *all) {
    for (size_t i = 0; i < all->n; i++) {
        entry *e = &all->entries[i];
        e->tired = 0;
        if (e->state == MODEL_ASLEEP && !all->draining) {
            e->state = MODEL_WAITING;
        }
    }
    models_go_on(all);
}

int models_all_sleep(const models *all) {
    int asleep = 0;
    for (size_t i = 0; i < all->n; i++) {
        asleep += all->entries[i].state == MODEL_ASLEEP;
        if (all->entries[i].state != MODEL_ASLEEP && all->entries[i].state != MODEL_ABSENT) {
            return 0;
        }
    }
    return asleep > 0;
}
