/* apps/serve/models.c - models that come and go: see models.h. */
#include "apps/serve/models.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/pictures.h"
#include "apps/serve/grammars.h"
#include "apps/serve/listen.h"
#include "apps/serve/models_parts.h"
#include "apps/signals.h"
#include "apps/speculation.h"
#include "core/base/os.h"

/* ---- the engine's thread --------------------------------------------------------------------- */

static void wake(void *user) {
    entry *e = user;
    pthread_mutex_lock(&e->lock);
    e->woken = 1;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* 0: it is to end. */
static int wait_for_work(entry *e, int idle) {
    pthread_mutex_lock(&e->lock);
    while (idle && !e->woken && !e->stop) {
        pthread_cond_wait(&e->wake, &e->lock);
    }
    e->woken = 0;
    int stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return !stop;
}

/* A pass of the texts. Other than 0: the model has stopped. */
static int step(entry *e) {
    if (!e->halted && gw_batch_step(e->m.batch, &e->work) != GW_OK) {
        fault_set(&e->why, 500, NULL, "%s: the model has stopped: %s", e->m.id, gw_error_text());
        e->halted = 1;
    }
    return e->halted;
}

/* Between parts of a picture texts have as long as the last part took, one pass at least. */
static int let_texts(void *user) {
    entry *e = user;
    double now = app_seconds(), end = now + (now - e->resumed);
    int halted;
    do {
        halted = step(e);
        now = app_seconds();
    } while (!halted && e->work > 0 && now < end);
    e->resumed = now;
    return halted;
}

static void *engine(void *user) {
    entry *e = user;
    size_t pictures = 0;
    e->work = 0;
    e->halted = 0;
    while (!e->halted && wait_for_work(e, e->work == 0 && pictures == 0)) {
        e->resumed = app_seconds();
        pictures = e->m.sights != NULL ? sights_serve(e->m.sights, e->m.gw, let_texts, e) : 0;
        if (step(e) != 0) {
            loop_post(e->all->s->loop, &e->died);
        }
    }
    if (e->m.sights != NULL) {
        sights_close(e->m.sights);
    }
    gw_batch_drain(e->m.batch);
    return NULL;
}

void models_stop_engine(entry *e) {
    if (e->has_engine) {
        pthread_mutex_lock(&e->lock);
        e->stop = 1;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->engine, NULL);
        e->has_engine = 0;
    }
}

int models_start_engine(entry *e) {
    e->stop = e->woken = 0;
    if (e->m.sights != NULL) {
        sights_open(e->m.sights);
    }
    e->has_engine = pthread_create(&e->engine, NULL, engine, e) == 0;
    return e->has_engine;
}

/* What is loaded of a model goes; nobody uses it. */
void models_unload(entry *e) {
    grammars_forget(e->all->s->grammars, &e->m);
    models_stop_engine(e);
    gw_batch_free(e->m.batch);
    gw_encoder_free(e->m.encoder);
    sights_free(e->m.sights);
    gw_chat_free(e->m.chat);
    app_close_model(e->m.draft);
    app_close_model(e->m.gw);
    e->m = (model){.id = e->m.id, .path = e->m.path};
    e->bytes = e->kept = 0;
    e->asleep = e->tired = e->drafts_known = 0;
}

/* Of several models the next request loads it again, which may help: other devices are other
 * models' own, and some faults pass. */
static void clear_failed(entry *e) {
    if (e->all->n > 1 && e->users == 0) {
        models_unload(e);
    }
}

static void on_died(void *user) {
    entry *e = user;
    app_error("%s", e->why.text);
    e->state = MODEL_FAILED;
    e->lost = 1;
    clear_failed(e);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void on_progress(void *user, uint64_t done, uint64_t total) {
    entry *e = user;
    double share = total > 0 ? (double)done / (double)total : 0;
    atomic_store(&e->progress, (unsigned)(1000 * (share < 1 ? share : 1)));
}

static int32_t context_of(const app_options *o, const gw_model_info *info) {
    int32_t trained = info->n_ctx_train;
    if (o->n_ctx < 0) {
        return trained > 0 && trained < 4096 ? trained : 4096;
    }
    return o->n_ctx == 0 ? trained : o->n_ctx;
}

/* A token after which others are spelled in full. */
static void find_anchor(model *m) {
    int32_t *ids = NULL;
    size_t n = 0, bytes = 0;
    char *text = NULL;
    m->anchor = -1;
    if (gw_tokenize(m->gw, "a", 1, 0, &ids, &n) == GW_OK && n > 0 &&
        gw_detokenize(m->gw, &ids[n - 1], 1, 1, &text, &bytes) == GW_OK) {
        m->anchor = ids[n - 1];
        m->anchor_bytes = bytes;
    }
    gw_free(text);
    gw_free(ids);
}

char *model_token_text(const model *m, int32_t id, size_t *bytes) {
    int32_t ids[2] = {m->anchor, id};
    size_t skip = m->anchor >= 0 ? m->anchor_bytes : 0, all = 0;
    char *text = NULL;
    if (gw_detokenize(m->gw, ids + (m->anchor < 0), m->anchor < 0 ? 1 : 2, 1, &text, &all) !=
            GW_OK ||
        all < skip) {
        gw_free(text);
        return NULL;
    }
    char *own = malloc(all - skip + 1);
    if (own != NULL) {
        memcpy(own, text + skip, all - skip + 1);
        *bytes = all - skip;
    }
    gw_free(text);
    return own;
}

static void open_chat(entry *e, const app_options *o) {
    if (app_open_chat(o, e->m.gw, &e->m.chat) != APP_OK) {
        snprintf(e->m.chat_fault, sizeof e->m.chat_fault,
                 "this model cannot be talked to: %.400s (--chat-template names a form)",
                 gw_error_text());
        app_note("%s: %s", e->m.id, e->m.chat_fault);
    }
    e->m.chat_template = "";
    if (e->m.chat != NULL) {
        size_t bytes = 0;
        const char *source = gw_chat_template(e->m.chat, &bytes);
        e->m.chat_template = source != NULL ? source : "";
        e->m.chat_template_bytes = source != NULL ? bytes : 0;
    }
}

void model_lock(model *m) { pthread_mutex_lock(&((entry *)m)->encoding); }
void model_unlock(model *m) { pthread_mutex_unlock(&((entry *)m)->encoding); }

static gw_status open_encoder(entry *e, const app_options *o) {
    const gw_encoder_options options = {.n_ctx = o->n_ctx > 0 ? o->n_ctx : 0,
                                        .kv_type =
                                            strcmp(o->kv_type, "f16") == 0 ? NULL : o->kv_type,
                                        .cancel = signals_cancel()};
    gw_status status = gw_encoder_new(e->m.gw, &options, &e->m.encoder);
    if (status == GW_OK) {
        gw_encoder_get_info(e->m.encoder, &e->m.encodes);
        e->m.n_ctx = e->m.encodes.n_ctx;
    }
    return status;
}

/* With --draft auto a model that does not fit after all is none. */
static gw_status make_batch(entry *e, gw_batch_options *options) {
    gw_status status = gw_batch_new(e->m.gw, options, &e->m.batch);
    if (status == GW_E_UNSUPPORTED && e->m.draft != NULL && options->draft_lookup) {
        app_close_model(e->m.draft);
        e->m.draft = options->draft_model = NULL;
        status = gw_batch_new(e->m.gw, options, &e->m.batch);
    }
    return status == GW_E_UNSUPPORTED && e->m.draft != NULL ? GW_E_ARGUMENT : status;
}

/* What was found out is known while the model sleeps, too. */
static gw_status open_draft(entry *e, const app_options *o, gw_batch_options *options) {
    options->draft_model = e->m.draft;
    options->draft_lookup = e->draft_lookup;
    if (e->drafts_known) {
        return GW_OK;
    }
    int32_t all = e->m.n_ctx < 1 << 28 ? 4 * e->m.n_ctx : e->m.n_ctx;
    if (draft_open_many(o, e->m.gw, e->m.path, all, &e->m.draft, &options->draft_lookup) !=
        APP_OK) {
        return GW_E_ARGUMENT;
    }
    options->draft_model = e->m.draft;
    e->draft_lookup = options->draft_lookup;
    e->drafts_known = 1;
    return GW_OK;
}

/* What makes no text makes vectors. */
gw_status models_open_batch(entry *e, const app_options *o) {
    gw_batch_options options = {.n_ctx = e->m.n_ctx,
                                .chunk = o->batch,
                                .kv_type = o->kv_type,
                                .parallel = o->at_once,
                                .cache_tokens = (int64_t)o->cache_tokens,
                                .cache_host_bytes = o->cache_ram,
                                .queue = o->queue,
                                .queue_tokens = o->queue_tokens,
                                .wake = wake,
                                .wake_user = e,
                                .draft_length = o->draft_length,
                                .read_ahead = !o->no_read_ahead,
                                .cancel = signals_cancel()};
    gw_status status = o->embeddings ? GW_E_UNSUPPORTED : open_draft(e, o, &options);
    status = status == GW_OK ? make_batch(e, &options) : status;
    return status == GW_E_UNSUPPORTED ? open_encoder(e, o) : status;
}

static gw_status open_seeing(entry *e, const app_options *o, gw_model_options *options) {
    gw_images *images = NULL;
    gw_status status = o->embeddings
                           ? gw_model_open(options, &e->m.gw)
                           : pictures_open_model(o, options, &e->m.gw, &images, e->m.blind);
    if (status == GW_OK && images != NULL) {
        e->m.sights = sights_new(images, wake, e);
        return e->m.sights != NULL ? GW_OK : GW_E_NOMEM;
    }
    if (status == GW_OK && e->m.blind[0] != '\0') {
        app_note("%s takes no pictures: %s", e->m.id, e->m.blind);
    }
    return status;
}

static gw_status open_model(entry *e, const app_options *o) {
    gw_model_options options;
    int64_t pool = (int64_t)o->cache_tokens;
    const app_need need = {.n_ctx = o->n_ctx < 0                        ? -4 * 4096
                                    : pool > o->n_ctx && pool < 1 << 30 ? (int32_t)pool
                                                                        : o->n_ctx,
                           .batch = o->batch};
    if (app_model_options(o, e->m.path, o->threads, &need, &options) != APP_OK) {
        return GW_E_ARGUMENT;
    }
    options.progress = on_progress;
    options.progress_user = e;
    gw_status status = open_seeing(e, o, &options);
    status = status == GW_OK ? models_give_adapters(e) : status;
    if (status != GW_OK) {
        return status;
    }
    gw_model_describe(e->m.gw, &e->m.info);
    e->m.n_ctx = context_of(o, &e->m.info);
    return models_open_batch(e, o);
}

/* One that cannot wake, because its card was given away, is loaded like any other. */
static gw_status wake_or_load(entry *e, const app_options *o) {
    if (e->asleep && models_wake(e) == GW_OK) {
        return GW_OK;
    }
    if (e->asleep) {
        app_note("%s does not wake and is loaded anew: %s", e->m.id, gw_error_text());
        models_unload(e);
    }
    gw_status status = open_model(e, o);
    if (status != GW_OK) {
        return status;
    }
    find_anchor(&e->m);
    e->m.chat_template = "";
    if (e->m.batch != NULL) {
        open_chat(e, o);
    }
    return GW_OK;
}

static void *load(void *user) {
    entry *e = user;
    gw_status status = wake_or_load(e, e->all->s->o);
    if (status == GW_OK && e->m.batch != NULL) {
        models_start_engine(e);
    }
    e->is_loaded = e->has_engine || (status == GW_OK && e->m.encoder != NULL);
    if (!e->is_loaded) {
        fault_set(&e->why, 500, "model", "%s cannot be loaded: %s", e->m.id,
                  status == GW_OK ? "no thread for it" : gw_error_text());
        models_unload(e);
    }
    loop_post(e->all->s->loop, &e->loaded);
    return NULL;
}

/* Held meanwhile: an adapter that is among those who wait begins after them, and who comes later
 * goes on waiting. */
void models_tell_waiting(entry *e, model *m) {
    e->users++;
    while (e->waits != NULL && (m == NULL || e->adapting == NULL)) {
        model_wait *wait = e->waits;
        models_forget(wait);
        e->users += m != NULL;
        wait->done(wait->user, m, m != NULL ? NULL : &e->why);
    }
    e->users--;
    if (m != NULL && e->users == 0 && e->adapting != NULL && e->state == MODEL_READY) {
        models_adapt(e);
    }
}

static void say_awake(entry *e) {
    gw_sleep_info info;
    gw_model_sleep_info(e->m.gw, &info);
    e->asleep = 0;
    e->wakes++;
    e->wake_seconds = e->took;
    app_note("%s is awake: %.3f s, of these %.3f s for its weights", e->m.id, e->wake_seconds,
             info.wake_seconds);
}

static void say_ready(entry *e) {
    const gw_model_info *info = &e->m.info;
    gw_batch_stats stats;
    e->state = MODEL_READY;
    e->was_ready = 1;
    e->lost = 0;
    e->bytes = info->weight_bytes;
    if (!e->asleep && info->note[0] != '\0') {
        app_note("%s", info->note);
    }
    if (!e->asleep && info->placed[0] != '\0') {
        app_note("%s", info->placed);
    }
    if (e->m.batch == NULL) {
        if (e->asleep) {
            say_awake(e);
            return;
        }
        app_note("%s is ready: %s, vectors of %d values, %d tokens a text, %.2f s", e->m.id,
                 info->device, (int)e->m.encodes.width, (int)e->m.n_ctx, info->load_seconds);
        return;
    }
    gw_batch_get_stats(e->m.batch, &stats);
    e->bytes += (uint64_t)stats.pages * 64 * info->kv_bytes_per_token + stats.host_bytes;
    if (e->asleep) {
        say_awake(e);
        return;
    }
    char bytes[32], host[80] = "", away[80] = "";
    if (stats.host_pages > 0) {
        snprintf(host, sizeof host, ", %lld more in %s of main memory",
                 (long long)stats.host_pages * 64, app_bytes(stats.host_bytes, bytes));
    }
    if (stats.host_cache_layers > 0) {
        snprintf(away, sizeof away, " (of %d layers in main memory)",
                 (int)stats.host_cache_layers);
    }
    app_note("%s is ready: %s, %d tokens a request, a cache of %lld tokens for all%s%s, %.2f s",
             e->m.id, info->device, (int)e->m.n_ctx, (long long)stats.pages * 64, away, host,
             info->load_seconds);
}

static void on_loaded(void *user) {
    entry *e = user;
    models *all = e->all;
    pthread_join(e->loader, NULL);
    e->has_loader = 0;
    all->loading = NULL;
    e->used = app_seconds();
    if (e->is_loaded) {
        models_take_adapters(e);
        say_ready(e);
        notify_manager("READY=1\nSTATUS=serving");
        models_tell_waiting(e, &e->m);
    } else {
        e->state = MODEL_FAILED;
        if (signals_caught() == 0) {
            app_error("%s", e->why.text);
        }
        models_tell_waiting(e, NULL);
        e->lost = e->lost > 0 ? 2 : 0;
        if (all->n == 1 && !all->draining) {
            all->failed = 1;
            loop_end(all->s->loop);
        }
    }
    models_go_on(all);
}

/* ---- room ------------------------------------------------------------------------------------ */

static uint64_t loaded_bytes(const models *all) {
    uint64_t sum = 0;
    for (size_t i = 0; i < all->n; i++) {
        sum += all->entries[i].bytes;
    }
    return sum;
}

uint64_t models_kept(const models *all) {
    uint64_t sum = 0;
    for (size_t i = 0; i < all->n; i++) {
        sum += all->entries[i].kept;
    }
    return sum;
}

/* Is there no room for one more? */
static int is_crowded(const models *all, const entry *wanted) {
    uint64_t budget = all->s->o->models_memory;
    uint64_t need = wanted->asleep ? wanted->awake_bytes : wanted->found.bytes;
    int most = all->s->o->models_max, n = 0;
    for (size_t i = 0; i < all->n; i++) {
        n += all->entries[i].state == MODEL_READY;
    }
    return (budget > 0 && loaded_bytes(all) + need > budget) || (most > 0 && n >= most);
}

/* Of those that nobody uses the one that was used last of all; NULL: none. */
static entry *least_used(models *all) {
    entry *least = NULL;
    for (size_t i = 0; i < all->n; i++) {
        entry *e = &all->entries[i];
        if (e->state == MODEL_READY && e->users == 0 && (least == NULL || e->used < least->used)) {
            least = e;
        }
    }
    return least;
}

void models_drop(entry *e, const char *why) {
    app_note("%s is unloaded: %s", e->m.id, why);
    models_unload(e);
    e->state = MODEL_ABSENT;
}

/* Room for another one; 0: what is there is in use, and it has to wait. */
static int make_room(models *all, const entry *wanted) {
    while (all->loading == NULL && is_crowded(all, wanted)) {
        entry *least = least_used(all);
        if (least == NULL) {
            return loaded_bytes(all) == 0; /* alone it may always try */
        }
        models_rest(least, "another model needs its memory");
    }
    return all->loading == NULL; /* else what goes to sleep says when it does */
}

void models_go_on(models *all) {
    for (size_t i = 0; i < all->n && all->loading == NULL && !all->draining; i++) {
        entry *e = &all->entries[i];
        if (e->state != MODEL_WAITING || !make_room(all, e)) {
            continue;
        }
        atomic_store(&e->progress, 0);
        e->why = (fault){0};
        models_list_adapters(e);
        e->has_loader = pthread_create(&e->loader, NULL, load, e) == 0;
        if (e->has_loader) {
            e->state = MODEL_LOADING;
            all->loading = e;
        } else {
            fault_set(&e->why, 503, NULL, "no thread to load %s", e->m.id);
            e->state = MODEL_ABSENT;
            models_tell_waiting(e, NULL);
        }
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

size_t models_find(const models *all, const char *name) {
    if (name == NULL || name[0] == '\0') {
        return 0;
    }
    for (size_t i = 0; i < all->n; i++) {
        const char *id = all->entries[i].m.id;
        size_t n = strlen(id);
        /* Ollama's clients add a tag. */
        if (strcmp(id, name) == 0 ||
            (strncmp(id, name, n) == 0 && strcmp(name + n, ":latest") == 0)) {
            return i;
        }
    }
    if (adapters_lost(&all->adapters, name)) {
        return all->n; /* its texts would be another's */
    }
    return all->n == 1 ? 0 : all->n; /* adapters; programs that know no other name than their own */
}

static entry *find_entry(models *all, const char *name, fault *f) {
    size_t i = models_find(all, name);
    if (i < all->n) {
        return &all->entries[i];
    }
    char known[300] = "";
    for (size_t k = 0; k < all->n && strlen(known) < 200; k++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%.60s", k > 0 ? ", " : "", all->entries[k].m.id);
    }
    fault_set(f, 404, "model", "there is no model '%.100s' here, but %s", name, known);
    f->code = "model_not_found";
    return NULL;
}

void models_acquire(models *all, const char *name, model_wait *wait) {
    fault f = {0};
    entry *e = find_entry(all, name, &f);
    wait->link = NULL;
    if (e != NULL && e->state == MODEL_FAILED && (all->n == 1 || e->users > 0)) {
        f = e->why;
        f.status = 500;
        e = NULL;
    }
    if (e == NULL) {
        wait->done(wait->user, NULL, &f);
        return;
    }
    if (e->state == MODEL_READY && e->adapting == NULL) {
        e->users++;
        e->used = app_seconds();
        wait->done(wait->user, &e->m, NULL);
        return;
    }
    if (all->n == 1 && !e->was_ready) { /* the server itself is not ready */
        fault_set(&f, 503, NULL, "the model is being loaded: %d%%",
                  (int)(100 * models_progress(all)));
        f.retry_after = 2;
        wait->done(wait->user, NULL, &f);
        return;
    }
    wait->next = e->waits;
    wait->link = &e->waits;
    if (wait->next != NULL) {
        wait->next->link = &wait->next;
    }
    e->waits = wait;
    if (e->state == MODEL_ABSENT || e->state == MODEL_ASLEEP || e->state == MODEL_FAILED) {
        e->state = MODEL_WAITING;
        models_go_on(all);
    }
}

void models_forget(model_wait *wait) {
    if (wait->link == NULL) {
        return;
    }
    *wait->link = wait->next;
    if (wait->next != NULL) {
        wait->next->link = wait->link;
    }
    wait->link = NULL;
}

void models_release(models *all, model *m) {
    entry *e = (entry *)m;
    e->users--;
    e->used = app_seconds();
    if (e->users == 0) {
        if (e->adapting != NULL && e->state == MODEL_READY) {
            models_adapt(e);
        } else if (e->keep == 0 && e->state == MODEL_READY) {
            models_drop(e, "a client has no more use for it");
        } else if (e->state == MODEL_READY && e->tired && all->loading == NULL) {
            models_rest(e, "a client has said so");
        } else if (e->state == MODEL_FAILED) {
            clear_failed(e);
        }
        models_go_on(all); /* one may have waited for its memory */
    }
}

void models_keep(models *all, model *m, double seconds) {
    (void)all;
    ((entry *)m)->keep = seconds;
}

int models_let_go(models *all, const char *name, fault *f) {
    entry *e = find_entry(all, name, f);
    if (e != NULL && (e->state == MODEL_READY || e->state == MODEL_ASLEEP)) {
        e->keep = 0;
        if (e->users == 0) {
            models_drop(e, "a client has no more use for it");
        }
    }
    return e != NULL ? 0 : -1;
}

int models_sleeps(const model *m) {
    model_state state = ((const entry *)m)->state;
    return state == MODEL_DOZING || state == MODEL_ASLEEP;
}

model *models_now(models *all, const char *name, fault *f) {
    entry *e = find_entry(all, name, f);
    if (e == NULL) {
        return NULL;
    }
    if (e->state != MODEL_READY && !models_sleeps(&e->m)) {
        if (e->state == MODEL_FAILED) {
            *f = e->why;
        } else {
            fault_set(f, 503, NULL, "%s is not loaded%s", e->m.id,
                      all->n == 1 ? " yet" : ": a request to generate loads it");
            f->retry_after = 2;
        }
        return NULL;
    }
    e->users++;
    return &e->m;
}

/* ---- life ------------------------------------------------------------------------------------ */

int models_open(server *s, models **out) {
    models *all = calloc(1, sizeof *all);
    if (all == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    all->s = s;
    *out = all;
    int code = found_models(s->o, &all->found, &all->n_found);
    if (code != APP_OK) {
        return code;
    }
    all->entries = calloc(all->n_found, sizeof *all->entries);
    if (all->entries == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    all->n = all->n_found;
    for (size_t i = 0; i < all->n; i++) {
        entry *e = &all->entries[i];
        e->all = all;
        e->found = all->found[i];
        e->m.id = e->found.id;
        e->m.path = e->found.path;
        e->keep = NAN;
        e->loaded = (loop_task){.run = on_loaded, .arg = e};
        e->died = (loop_task){.run = on_died, .arg = e};
        e->dozed = (loop_task){.run = models_dozed, .arg = e};
        e->changed = (loop_task){.run = models_changed, .arg = e};
        pthread_mutex_init(&e->lock, NULL);
        pthread_mutex_init(&e->encoding, NULL);
        pthread_cond_init(&e->wake, NULL);
    }
    code = adapters_read(s->o, &all->adapters);
    if (code != APP_OK) {
        return code;
    }
    if (all->n > 1 && (s->o->lora.n > 0 || s->o->allow_lora_loading)) {
        app_error("--lora, --allow-lora-loading: adapters belong to one model, and %zu are served",
                  all->n);
        return APP_USAGE;
    }
    return APP_OK;
}

void models_start(models *all) {
    if (all->n == 1) {
        all->entries[0].state = MODEL_WAITING;
        models_go_on(all);
    } else {
        for (size_t i = 0; i < all->n; i++) {
            app_note("model %s: %s", all->entries[i].m.id, all->entries[i].m.path);
        }
        notify_manager("READY=1\nSTATUS=serving");
    }
}

void models_tick(models *all) {
    double idle = all->s->o->idle_unload, doze = all->s->o->sleep_idle, now = app_seconds();
    if (all->loading != NULL) {
        notify_manager("EXTEND_TIMEOUT_USEC=30000000\nSTATUS=loading the model");
    }
    idle = idle > 0 && all->n > 1 ? idle : -1;
    for (size_t i = 0; i < all->n; i++) {
        entry *e = &all->entries[i];
        double keep = isnan(e->keep) ? idle : e->keep;
        int unused = (e->state == MODEL_READY || e->state == MODEL_ASLEEP) && e->users == 0;
        if (unused && keep >= 0 && now - e->used > keep) {
            models_drop(e, "nobody has used it for a while");
        } else if (unused && e->state == MODEL_READY && all->loading == NULL &&
                   (e->tired || (doze > 0 && now - e->used > doze))) {
            models_rest(e, "nobody has used it for a while");
        }
    }
}

void models_drain(models *all) {
    all->draining = 1;
    for (size_t i = 0; i < all->n; i++) {
        entry *e = &all->entries[i];
        if (e->waits != NULL) {
            fault_set(&e->why, 503, NULL, "the server is ending");
            models_tell_waiting(e, NULL);
        }
        if (e->adapting != NULL && e->state == MODEL_READY) {
            fault_set(&e->why, 503, NULL, "the server is ending");
            models_drop_adapting(e, &e->why);
        }
    }
}

void models_stop(models *all) {
    all->draining = 1;
    for (size_t i = 0; i < all->n; i++) {
        entry *e = &all->entries[i];
        if (e->has_loader) {
            pthread_join(e->loader, NULL);
            e->has_loader = 0;
        }
        if (e->adapting != NULL) {
            fault_set(&e->why, 503, NULL, "the server is ending");
            models_drop_adapting(e, &e->why);
        }
        models_stop_engine(e);
        gw_batch_free(e->m.batch);
        e->m.batch = NULL;
    }
}

void models_free(models *all) {
    if (all == NULL) {
        return;
    }
    for (size_t i = 0; i < all->n; i++) {
        models_unload(&all->entries[i]);
        pthread_mutex_destroy(&all->entries[i].lock);
        pthread_mutex_destroy(&all->entries[i].encoding);
        pthread_cond_destroy(&all->entries[i].wake);
    }
    adapters_free(&all->adapters);
    found_free(all->found, all->n_found);
    free(all->entries);
    free(all);
}

int models_failed(const models *all) { return all->failed; }

/* ---- what is known --------------------------------------------------------------------------- */

size_t models_count(const models *all) { return all->n; }
const char *models_id(const models *all, size_t i) { return all->entries[i].m.id; }
model_state models_state(const models *all, size_t i) { return all->entries[i].state; }
uint64_t models_bytes(const models *all, size_t i) { return all->entries[i].found.bytes; }

const model *models_at(const models *all, size_t i) {
    return all->entries[i].state == MODEL_READY ? &all->entries[i].m : NULL;
}

double models_left(const models *all, size_t i) {
    enum { YEAR = 31536000 };
    const entry *e = &all->entries[i];
    double idle = all->s->o->idle_unload > 0 && all->n > 1 ? all->s->o->idle_unload : -1;
    double keep = isnan(e->keep) ? idle : e->keep, left = keep - (app_seconds() - e->used);
    return keep < 0 || left > YEAR ? YEAR : left > 0 ? left : 0;
}

double models_progress(const models *all) {
    return all->loading != NULL ? atomic_load(&all->loading->progress) / 1000.0 : 0;
}

const char *models_failure(const models *all, size_t i) {
    const entry *e = &all->entries[i];
    return e->state == MODEL_FAILED ? e->why.text : NULL;
}

int models_health(const models *all, fault *f) {
    const entry *first = &all->entries[0];
    for (size_t i = 0; i < all->n; i++) {
        const entry *e = &all->entries[i];
        if (e->state == MODEL_FAILED && e->lost > (all->n > 1)) {
            *f = e->why;
            f->status = 500;
        }
    }
    if (all->draining) {
        fault_set(f, 503, NULL, "the server is ending");
    } else if (f->status == 0 && all->n == 1 && first->state != MODEL_READY && !first->was_ready) {
        fault_set(f, 503, NULL, "the model is being loaded");
        f->retry_after = 2;
    }
    return f->status != 0 ? f->status : 200;
}

int models_rows(const models *all) {
    int rows = 0;
    for (size_t i = 0; i < all->n; i++) {
        if (all->entries[i].state == MODEL_READY && all->entries[i].m.batch != NULL) {
            gw_batch_stats stats;
            gw_batch_get_stats(all->entries[i].m.batch, &stats);
            rows += stats.running;
        }
    }
    return rows;
}

int models_patience(const model *m) {
    gw_batch_stats stats;
    gw_batch_get_stats(m->batch, &stats);
    double rate = stats.prompt_rate > 0 ? stats.prompt_rate : 100;
    double seconds = (double)stats.waiting_tokens / rate;
    if (stats.decode_seconds > 0 && stats.requests > 0) {
        double each = stats.decode_seconds / (double)stats.requests;
        seconds += each * stats.waiting / (stats.running > 0 ? stats.running : 1);
    }
    return seconds < 1 ? 1 : seconds > 60 ? 60 : (int)seconds;
}
