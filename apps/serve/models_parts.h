/* apps/serve/models_parts.h - what the models*.c files share: a model that may be loaded, and all
 * of them. Nobody else includes this. */
#ifndef GW_APPS_SERVE_MODELS_PARTS_H
#define GW_APPS_SERVE_MODELS_PARTS_H

#include <stdatomic.h>

#include "apps/serve/models.h"
#include "apps/serve/models_found.h"
#include "core/base/os_threads.h"
#include "include/godwit_sleep.h"

typedef struct entry {
    model m; /* first: a model is its entry */
    models *all;
    found_model found;
    model_state state;
    int users, stopping; /* stopping: its engine thread ends */
    int was_ready, lost; /* lost: its device failed; 2: and it cannot be loaded again either */
    double used, keep;   /* keep: see models_keep */
    fault why;
    uint64_t bytes; /* memory that it takes */
    /* models_sleep.c: its weights are in main memory alone; bytes there, also while it is awake;
     * bytes as soon as it is awake; to sleep once its work ends; how often it did either. */
    int asleep, tired, drafts_known, draft_lookup;
    uint64_t kept, awake_bytes, sleeps, wakes;
    double took, wake_seconds; /* of its last wake; took is the loader's */
    model_wait *waits;
    /* models_lora.c: who waits for an adapter, NULL: nobody; what gw_model_adapt is given, and
     * whose numbers they are; whether it has them */
    adapter_wait *adapting;
    int32_t lora_slot;
    gw_lora_file lora[GW_LORA_MOST];
    int32_t lora_number[GW_LORA_MOST];
    size_t n_lora;
    int adapted;
    pthread_t loader, engine;
    int has_loader, has_engine, is_loaded; /* a loader also puts to sleep, and adapts */
    atomic_uint progress;                  /* per mille */
    loop_task loaded, died, dozed, changed;
    pthread_mutex_t encoding; /* of the encoder */
    pthread_mutex_t lock;     /* of what follows */
    pthread_cond_t wake;
    int woken, stop;
    size_t work;    /* of the engine's thread: of the batch */
    int halted;     /* ... whose step has failed */
    double resumed; /* when the picture that is being encoded went on */
} entry;

struct models {
    server *s;
    found_model *found;
    size_t n_found;
    entry *entries;
    size_t n;
    entry *loading; /* or going to sleep; one at a time */
    int draining, failed;
    adapters adapters; /* of the only model */
};

/* models.c, on the loop's thread unless it says otherwise. */
void models_drop(entry *e, const char *why); /* unloads it, awake or asleep */
void models_unload(entry *e);                /* any thread, while nobody uses it */
void models_stop_engine(entry *e);
int models_start_engine(entry *e); /* of its batch; 0: there is no thread for it */
void models_tell_waiting(entry *e, model *m);
void models_go_on(models *all); /* what waits may be loaded */
gw_status models_open_batch(entry *e, const app_options *o);
/* Bytes of main memory that all that slept have; of those that are awake what they take. */
uint64_t models_kept(const models *all);

/* models_lora.c */
/* Before a thread loads it: what it is to have; and then the adapters that it has. */
void models_list_adapters(entry *e);
void models_take_adapters(entry *e);
gw_status models_give_adapters(entry *e);
void models_adapt(entry *e);     /* nobody uses it, and somebody waits for an adapter */
void models_changed(void *user); /* the loop's task */
void models_drop_adapting(entry *e, const fault *f);

/* models_sleep.c */
/* Nobody uses it: puts it to sleep in a thread of its own (all->loading is it until that ends), or
 * unloads it where it cannot sleep. */
void models_rest(entry *e, const char *why);
void models_dozed(void *user); /* the loop's task */
/* On the loader's thread. An error leaves it asleep. */
gw_status models_wake(entry *e);

#endif
