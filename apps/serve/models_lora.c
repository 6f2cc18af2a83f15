/* apps/serve/models_lora.c - adapters that come and go while the model is served.
 *
 * A model's plans name its adapters, so one that comes is loaded while nothing runs: who is under
 * way ends with what it has, who comes waits as for a model that wakes, and a thread then gives
 * the model all its adapters anew and a batch. What is wrong with the new one leaves the model as
 * it was. One that goes is no request's any more, and is left out the next time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/models_parts.h"
#include "apps/signals.h"
#include "core/base/os.h"

const adapters *models_adapters(const models *all) { return &all->adapters; }

static void list_with(entry *e, int32_t instead, const adapter *one) {
    e->n_lora = adapters_files(&e->all->adapters, instead, one, e->lora, e->lora_number);
}

void models_list_adapters(entry *e) { list_with(e, -1, NULL); }

gw_status models_give_adapters(entry *e) {
    return e->n_lora > 0 || gw_model_adapters(e->m.gw, NULL, 0) > 0
               ? gw_model_adapt(e->m.gw, e->lora, e->n_lora, e->all->s->o->lora_at_once)
               : GW_OK;
}

/* Scales that POST /lora-adapters has set stay those of adapters that stay. */
void models_take_adapters(entry *e) {
    model *m = &e->m;
    float scales[GW_LORA_MOST] = {0.0f};
    int all_new = e->adapting == NULL;
    memset(m->lora_at, 0xff, sizeof m->lora_at);
    for (size_t i = 0; i < e->n_lora; i++) {
        int32_t number = e->lora_number[i];
        int is_new = all_new || (e->adapted && number == e->lora_slot);
        if (e->all->adapters.at[number].gone) {
            continue; /* since it was listed */
        }
        m->lora_at[number] = (int32_t)i;
        scales[number] = is_new ? e->lora[i].scale : m->lora_scales[number];
    }
    memcpy(m->lora_scales, scales, sizeof scales);
}

/* ---- one more -------------------------------------------------------------------------------- */

void models_drop_adapting(entry *e, const fault *f) {
    adapter_wait *wait = e->adapting;
    e->adapting = NULL;
    free(wait->name);
    free(wait->path);
    wait->done(wait->user, f);
}

/* On a thread of its own. Other than GW_OK: the model has no batch. */
static gw_status give_all(entry *e) {
    gw_status status = models_give_adapters(e);
    return status == GW_OK ? models_open_batch(e, e->all->s->o) : status;
}

static void *change(void *user) {
    entry *e = user;
    models_stop_engine(e);
    gw_batch_free(e->m.batch);
    e->m.batch = NULL;
    gw_status status = give_all(e);
    e->adapted = status == GW_OK;
    if (!e->adapted) {
        fault_set(&e->why, 400, "lora_path", "%s", gw_error_text());
        models_list_adapters(e);
        status = give_all(e);
    }
    e->is_loaded = status == GW_OK && e->m.batch != NULL && models_start_engine(e);
    loop_post(e->all->s->loop, &e->changed);
    return NULL;
}

void models_adapt(entry *e) {
    adapter_wait *wait = e->adapting;
    const adapter one = {.name = wait->name, .path = wait->path, .scale = 1.0f};
    e->why = (fault){0};
    list_with(e, e->lora_slot, &one);
    e->state = MODEL_LOADING;
    e->has_loader = pthread_create(&e->loader, NULL, change, e) == 0;
    if (e->has_loader) {
        e->all->loading = e;
        return;
    }
    e->state = MODEL_READY;
    fault_set(&e->why, 503, NULL, "no thread to load an adapter");
    models_drop_adapting(e, &e->why);
    models_tell_waiting(e, &e->m);
}

void models_changed(void *user) {
    entry *e = user;
    adapter_wait *wait = e->adapting;
    pthread_join(e->loader, NULL);
    e->has_loader = 0;
    e->all->loading = NULL;
    e->used = app_seconds();
    if (e->adapted) {
        app_note("%s has the adapter %s: %s", e->m.id, wait->name, wait->path);
        adapters_put(&e->all->adapters, e->lora_slot,
                     (adapter){.name = wait->name, .path = wait->path, .scale = 1.0f});
        wait->name = wait->path = NULL;
    }
    models_take_adapters(e);
    if (e->is_loaded) {
        e->state = MODEL_READY;
        models_drop_adapting(e, e->adapted ? NULL : &e->why);
        models_tell_waiting(e, &e->m);
    } else {
        app_error("%s: the model has stopped: %s", e->m.id, e->why.text);
        e->state = MODEL_FAILED;
        e->lost = 1;
        models_drop_adapting(e, &e->why);
        models_tell_waiting(e, NULL);
    }
    models_go_on(e->all);
}

/* Is there something that can be read, and a number for it? */
static int check_new(entry *e, const adapter_wait *wait, fault *f) {
    const adapters *all = &e->all->adapters;
    int32_t old = adapters_find(all, wait->name);
    if (e->m.batch == NULL) {
        return fault_set(f, 400, NULL, "%s makes vectors, which no adapter changes", e->m.id);
    }
    if ((old >= 0 && !wait->in_place) || strcmp(wait->name, e->m.id) == 0) {
        return fault_set(f, 400, "lora_name",
                         "lora_name: '%.100s' is loaded already: load_inplace replaces an adapter",
                         wait->name);
    }
    if (access(wait->path, R_OK) != 0) {
        return fault_set(f, 404, "lora_path", "lora_path: %.300s: %s", wait->path, strerror(errno));
    }
    e->lora_slot = old >= 0 ? old : adapters_room(all, wait->name);
    if (e->lora_slot < 0) {
        return fault_set(f, 400, "lora_name", "a model has at most %d adapters: unload one first",
                         (int)GW_LORA_MOST);
    }
    return 0;
}

static void on_awake(void *user, model *m, const fault *f) {
    adapter_wait *wait = user;
    models *all = wait->all;
    entry *e = (entry *)m;
    fault own = {0};
    if (m != NULL && e->adapting != NULL) { /* another came first */
        models_release(all, m);
        models_acquire(all, NULL, &wait->wait);
        return;
    }
    if (m == NULL || all->draining || check_new(e, wait, &own) != 0) {
        if (m != NULL && own.status == 0) {
            fault_set(&own, 503, NULL, "the server is ending");
        }
        free(wait->name);
        free(wait->path);
        wait->done(wait->user, m == NULL ? f : &own);
    } else {
        e->adapting = wait;
    }
    if (m != NULL) {
        models_release(all, m); /* where nobody else uses it, it begins */
    }
}

void models_load_adapter(models *all, adapter_wait *wait) {
    wait->all = all;
    wait->wait = (model_wait){.done = on_awake, .user = wait};
    models_acquire(all, NULL, &wait->wait);
}

/* ---- one less -------------------------------------------------------------------------------- */

int models_unload_adapter(models *all, const char *name, fault *f) {
    int32_t number = adapters_find(&all->adapters, name);
    if (number < 0) {
        fault_set(f, 404, "lora_name", "lora_name: there is no adapter '%.100s'", name);
        f->code = "model_not_found";
        return -1;
    }
    all->adapters.at[number].gone = 1;
    all->entries[0].m.lora_at[number] = -1;
    all->entries[0].m.lora_scales[number] = 0.0f;
    return 0;
}
