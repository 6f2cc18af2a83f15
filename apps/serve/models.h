/* apps/serve/models.h - the models that are served: which there are, loading when one is asked for,
 * unloading what nobody uses, and for each loaded one a thread that computes.
 *
 * Functions belong to the loop's thread, fields of a model that is ready may be read by any; they
 * stay until it is released.
 */
#ifndef GW_APPS_SERVE_MODELS_H
#define GW_APPS_SERVE_MODELS_H

#include <jansson.h>
#include <stdio.h>

#include "apps/pictures.h"
#include "apps/serve/adapters.h"
#include "apps/serve/fault.h"
#include "apps/serve/sights.h"
#include "apps/serve/server.h"
#include "include/godwit_encoder.h"
#include "include/godwit_lora.h"

typedef enum model_state {
    MODEL_ABSENT,
    MODEL_WAITING,
    MODEL_LOADING,
    MODEL_READY,
    MODEL_DOZING, /* going to sleep: requests for it wait */
    MODEL_ASLEEP, /* its weights are in main memory alone */
    MODEL_FAILED
} model_state;

typedef struct models models;

typedef struct model {
    const char *id;   /* what requests name it by */
    const char *path; /* NULL: the one in the program */
    gw_model *gw;
    gw_model_info info;
    gw_chat *chat; /* NULL: its template is not understood; chat_fault says why */
    char chat_fault[512];
    const char *chat_template; /* the source; "" where a form writes */
    size_t chat_template_bytes;
    sights *sights; /* NULL: it takes no pictures; blind says why, where somebody may wonder */
    char blind[PICTURES_BLIND];
    gw_model *draft;     /* drafts for the batch, or NULL */
    gw_batch *batch;     /* NULL: it makes vectors and scores, no text */
    gw_encoder *encoder; /* NULL: it makes text */
    gw_encoder_info encodes;
    /* By number (adapters.h); the loop's. In texts that choose none; and which of gw's adapters it
     * is, -1: none. */
    float lora_scales[GW_LORA_MOST];
    int32_t lora_at[GW_LORA_MOST];
    int32_t n_ctx;
    int32_t anchor; /* a token of which the text is known: what another adds is its own text */
    size_t anchor_bytes;
} model;

/* The models that -m names. Exit code. */
int models_open(server *s, models **out);
/* Begins to load the first, where it is the only one. */
void models_start(models *all);
void models_tick(models *all);
void models_drain(models *all);
/* Ends the threads; nothing may be submitted any more. All requests have ended then. */
void models_stop(models *all);
void models_free(models *all);
int models_failed(const models *all); /* the only model could not be loaded */

/* Whoever waits for a model. done is called once, perhaps at once: with the model, which is then in
 * use until models_release, or with NULL and what is wrong. */
typedef struct model_wait {
    void (*done)(void *user, model *m, const fault *f);
    void *user;
    struct model_wait *next, **link; /* models.c's */
} model_wait;
/* name NULL or "": the first. */
void models_acquire(models *all, const char *name, model_wait *wait);
void models_forget(model_wait *wait); /* done will not be called */
void models_release(models *all, model *m);

/* How long it stays loaded once nobody uses it: seconds, below 0 for ever, 0 not at all; NAN: as
 * --idle-unload says. */
void models_keep(models *all, model *m, double seconds);
/* Unloads it, at the latest when nobody uses it any more. 0, or -1 and *f: there is no such model.
 */
int models_let_go(models *all, const char *name, fault *f);

/* Puts to sleep all that are awake, as soon as each has no more work. 0, or -1 and *f: none sleeps
 * here. */
int models_sleep_all(models *all, fault *f);
void models_wake_all(models *all);       /* as far as there is room */
int models_all_sleep(const models *all); /* does one sleep, and is none awake? */

/* Adapters of the only model, while it is served. */
const adapters *models_adapters(const models *all);
/* One more, once those requests that are under way have ended with what they have; who comes
 * meanwhile waits. done is called once, on the loop's thread: *f is NULL, or why there is none;
 * name, path: malloc'd, taken over. */
typedef struct adapter_wait {
    char *name, *path;
    int in_place; /* it may take the place of one with this name */
    void (*done)(void *user, const fault *f);
    void *user;
    model_wait wait; /* models_lora.c's, as the rest */
    models *all;
} adapter_wait;
void models_load_adapter(models *all, adapter_wait *wait);
/* No request that comes from now on has it. Its memory goes when the next adapter comes. 0, or -1
 * and *f. */
int models_unload_adapter(models *all, const char *name, fault *f);

/* Only what is loaded: NULL and *f where it is not. In use until models_release. One that sleeps
 * is as it was, but without batch and encoder. */
int models_sleeps(const model *m);
model *models_now(models *all, const char *name, fault *f);

size_t models_count(const models *all);
const char *models_id(const models *all, size_t i);
model_state models_state(const models *all, size_t i);
/* What is known of the i-th, loaded or not. NULL: not loaded. */
const model *models_at(const models *all, size_t i);
/* The number of the model of this name; models_count where there is none. */
size_t models_find(const models *all, const char *name);
uint64_t models_bytes(const models *all, size_t i); /* of its files; 0: unknown */
/* Seconds that the i-th stays loaded if nobody asks: a year for ever. */
double models_left(const models *all, size_t i);
double models_progress(const models *all); /* of what is being loaded, 0 .. 1 */
/* Why the i-th failed, in loading or at work; NULL: it did not. */
const char *models_failure(const models *all, size_t i);
/* Is the server able to answer: 200, 503 while its only model loads, 500 when its only model's
 * device is lost, or one of several models lost its device and cannot be loaded again: a new
 * process may help then, and nothing else. */
int models_health(const models *all, fault *f);
int models_rows(const models *all); /* choices under way */
struct evbuffer;
void models_metrics(const models *all, struct evbuffer *to);
/* Seconds until what waits at this model may be done: for Retry-After. */
int models_patience(const model *m);

/* While a worker computes with the encoder of a model: one at a time. */
void model_lock(model *m);
void model_unlock(model *m);

/* The bytes that this token adds to a text, malloc'd, NUL-terminated. Any thread. NULL: no memory.
 */
char *model_token_text(const model *m, int32_t id, size_t *bytes);

#endif
