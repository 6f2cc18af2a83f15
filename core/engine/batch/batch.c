/* core/engine/batch/batch.c - the public engine of many requests: life, the queue from other
 * threads, statistics. */
#include <stdlib.h>
#include <string.h>

#include "core/base/options.h"
#include "core/engine/batch/batch_state.h"

enum { PARALLEL = 16, QUEUE = 64, CONTEXTS = 4 };

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status read_options(gw_batch *b, const gw_batch_options *given, size_t size) {
    if (given != NULL) {
        GW_TRY(gw_options_take(&b->o, sizeof b->o, given, size, "batch"));
    }
    gw_batch_options *o = &b->o;
    if (o->n_ctx < 0) {
        return gw_fail(GW_E_ARGUMENT, "context", "%d tokens; 1 or more are needed", o->n_ctx);
    }
    if (o->parallel < 0 || o->parallel > GW_PARALLEL_MAX) {
        return gw_fail(GW_E_ARGUMENT, "parallel", "%d is outside 1..%d", o->parallel,
                       GW_PARALLEL_MAX);
    }
    if (o->queue < 0 || o->queue_tokens < 0 || o->cache_tokens < 0 || !(o->step_seconds >= 0.0)) {
        return gw_fail(GW_E_ARGUMENT, "batch", "a limit below 0");
    }
    if (o->draft_lookup < 0 || o->draft_lookup > GW_LOOKUP_SUFFIX) {
        return gw_fail(GW_E_ARGUMENT, "draft lookup", "%d is none", o->draft_lookup);
    }
    if (!(o->draft_assume >= 0.0 && o->draft_assume <= 1.0)) {
        return gw_fail(GW_E_ARGUMENT, "assumed acceptance", "%g is not between 0 and 1",
                       o->draft_assume);
    }
    o->parallel = o->parallel > 0 ? o->parallel : PARALLEL;
    o->queue = o->queue > 0 ? o->queue : QUEUE;
    b->parallel = o->parallel;
    b->n_ctx = o->n_ctx > 0 ? o->n_ctx : b->model->hp.n_ctx;
    b->random = o->disorder;
    return GW_OK;
}

/* Pages of the cache: at least those of the longest text. */
static gw_status pool_pages(const gw_batch *b, int64_t *pages) {
    int64_t one = (b->n_ctx - 1) / GW_PAGE + 1;
    int64_t texts = b->parallel < CONTEXTS ? b->parallel : CONTEXTS, asked = b->o.cache_tokens;
    *pages = asked > 0 ? (asked - 1) / GW_PAGE + 1 : texts * one;
    if (*pages < one) {
        return gw_fail(GW_E_ARGUMENT, "cache",
                       "%lld tokens are less than a context of %d; ask for a larger cache or a "
                       "shorter context",
                       (long long)asked, (int)b->n_ctx);
    }
    return *pages <= INT32_MAX / 2
               ? GW_OK
               : gw_fail(GW_E_ARGUMENT, "cache", "%lld tokens are too many", (long long)asked);
}

/* Rows of a decode pass. */
static int most_rows(const gw_batch *b) {
    return b->parallel < GW_DECODE_MAX ? GW_DECODE_MAX : b->parallel;
}

/* Does a row depend on how long the prompt is that it is read with? Then pages of one prompt do not
 * serve another. */
static int reads_whole(const gw_model *model) {
    const gw_blueprint *bp = model->weights != NULL ? gw_weights_blueprint(model->weights) : NULL;
    int whole = 0;
    for (int i = 0; bp != NULL && i < bp->n_blocks; i++) {
        whole |= (bp->block[i].flags & GW_FLAG_WHOLE) != 0;
    }
    return whole;
}

static gw_status make_parts(gw_batch *b) {
    int64_t pages = 0;
    b->whole = reads_whole(b->model);
    GW_TRY(pool_pages(b, &pages));
    gw_session_options so = {.n_ctx = b->n_ctx,
                             .chunk = b->o.chunk,
                             .kv_type = b->o.kv_type,
                             .cancel = b->o.cancel,
                             .progress = b->o.progress,
                             .progress_user = b->o.progress_user};
    gw_sharing sharing = {.slots = b->parallel, .pages = pages, .widest = most_rows(b)};
    GW_TRY(gw_drafts_state_entries(&b->o, &sharing.state_entries));
    GW_TRY(gw_session_make(b->model, &so, &sharing, &b->session));
    b->session->cancel = NULL; /* from now on requests are cancelled, not passes */
    b->chunk = b->session->chunk;
    b->widest = sharing.widest;
    b->stats.pages = pages;
    b->stats.host_cache_layers = b->session->hosted_caches;
    GW_TRY(gw_session_draw_rows(b->session));
    GW_TRY(gw_drafts_open(b));
    GW_TRY(gw_snapshots_open(b));
    GW_TRY(gw_host_open(b));
    GW_TRY(gw_pages_new((int32_t)pages, b->host.n, &b->pages));
    gw_host_begin(b);
    size_t n = (size_t)b->parallel;
    b->running = calloc(n, sizeof(gw_seq *));
    b->slot = calloc(n, sizeof(gw_seq *));
    b->order = calloc(n, sizeof(gw_seq *));
    b->rows = calloc(GW_CHUNK_MAX, sizeof *b->rows);
    b->of_row = calloc(GW_CHUNK_MAX, sizeof(gw_seq *));
    b->top = calloc(GW_TOP_LOGPROBS, sizeof *b->top);
    b->ahead.pages = calloc((size_t)b->n_ctx / GW_PAGE + 1, sizeof *b->ahead.pages);
    size_t page = gw_rows_copy_bytes(b->session);
    size_t of_draft = b->drafts.model != NULL ? gw_rows_copy_bytes(b->drafts.model) : 0;
    b->copy_room = malloc((page > of_draft ? page : of_draft) + 1);
    return b->running != NULL && b->slot != NULL && b->order != NULL && b->rows != NULL &&
                   b->of_row != NULL && b->top != NULL && b->ahead.pages != NULL &&
                   b->copy_room != NULL
               ? GW_OK
               : gw_fail(GW_E_NOMEM, "batch", "no memory for %d sequences", (int)b->parallel);
}

static void free_batch(gw_batch *b) {
    gw_drafts_close(b);
    gw_ahead_close(b);
    gw_snapshots_close(b);
    gw_host_close(b);
    gw_session_free(b->session);
    gw_pages_free(b->pages);
    free(b->running);
    free(b->slot);
    free(b->order);
    free(b->pictures.at);
    free(b->pictures.name);
    free(b->pictures.used);
    free(b->lora_roots.at);
    free(b->rows);
    free(b->of_row);
    free(b->top);
    free(b->copy_room);
    pthread_cond_destroy(&b->woken);
    pthread_mutex_destroy(&b->waiting);
    free(b);
}

gw_status gw_batch_new_sized(gw_model *model, const gw_batch_options *options, size_t size,
                             gw_batch **out) {
    if (model->weights == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name, "only the vocabulary of this model is open");
    }
    gw_batch *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return gw_fail(GW_E_NOMEM, "batch", "no memory for it");
    }
    b->model = model;
    atomic_flag_clear(&b->copying);
    pthread_mutex_init(&b->waiting, NULL);
    gw_os_cond(&b->woken);
    gw_status status;
    GW_TRY_DONE(read_options(b, options, size));
    GW_TRY_DONE(make_parts(b));
    gw_batch_show_stats(b);
    *out = b;
    return GW_OK;
done:
    free_batch(b);
    return status;
}

/* ---- from other threads ---------------------------------------------------------------------- */

static void wake(gw_batch *b) {
    pthread_mutex_lock(&b->waiting);
    pthread_cond_signal(&b->woken);
    pthread_mutex_unlock(&b->waiting);
    if (b->o.wake != NULL) {
        b->o.wake(b->o.wake_user);
    }
}

static gw_status check_request(const gw_batch *b, const gw_request_options *o) {
    int32_t vocab = gw_model_n_vocab(b->model);
    size_t room = (size_t)b->n_ctx - (o->max_tokens != 0);
    if (o->n_tokens == 0) {
        return gw_fail(GW_E_ARGUMENT, "prompt", "it has no tokens");
    }
    if (o->n_tokens > room) {
        return gw_fail(GW_E_CONTEXT, "context",
                       "the prompt has %zu tokens, of which %zu fit a context of %d", o->n_tokens,
                       room, (int)b->n_ctx);
    }
    for (size_t i = 0; i < o->n_tokens; i++) {
        if (o->tokens[i] < 0 || o->tokens[i] >= vocab) {
            return gw_fail(GW_E_ARGUMENT, "tokens", "token %zu is %d, outside 0..%d", i,
                           (int)o->tokens[i], (int)vocab - 1);
        }
    }
    if (o->n < 0 || o->n > GW_PARALLEL_MAX) {
        return gw_fail(GW_E_ARGUMENT, "n", "%d choices; at most %d", (int)o->n, GW_PARALLEL_MAX);
    }
    int32_t most = o->logprobs > o->prompt_logprobs ? o->logprobs : o->prompt_logprobs;
    if (o->logprobs < 0 || o->prompt_logprobs < 0 || most > GW_TOP_LOGPROBS + 1) {
        return gw_fail(GW_E_ARGUMENT, "logprobs", "at most %d of a token", GW_TOP_LOGPROBS);
    }
    if (o->prompt_logprobs_from < 0 || (size_t)o->prompt_logprobs_from > o->n_tokens) {
        return gw_fail(GW_E_ARGUMENT, "logprobs", "from token %d of a prompt of %zu",
                       (int)o->prompt_logprobs_from, o->n_tokens);
    }
    return GW_OK;
}

/* Choice i of a seed: splitmix64's finish, so that seeds beside each other share nothing. */
static uint64_t seed_of(uint64_t seed, int32_t i) {
    uint64_t x = seed + (uint64_t)i * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return i == 0 ? seed : x ^ (x >> 31);
}

static gw_status make_seq(const gw_batch *b, gw_request *r, const gw_request_options *o,
                          int32_t i) {
    gw_seq *s = &r->seq[i];
    gw_sampler_options sampler;
    gw_sampler_defaults(&sampler);
    sampler = o->sampler != NULL ? *o->sampler : sampler;
    sampler.seed = seed_of(sampler.seed, i);
    gw_writer_options w = {.sampler = &sampler,
                           .grammar = o->grammar,
                           .chat = o->chat,
                           .stops = o->stops,
                           .n_stops = o->n_stops,
                           .bans = o->bans,
                           .n_bans = o->n_bans,
                           .logprobs = o->logprobs > 0,
                           .n_top = o->logprobs > 0 ? (size_t)o->logprobs - 1 : 0,
                           .special = o->special,
                           .ignore_eos = o->ignore_eos,
                           .mid_text = o->mid_text};
    GW_TRY(gw_writer_new(b->model, &w, &s->writer));
    int64_t room = (int64_t)b->n_ctx + 1, most = (int64_t)r->n_prompt + r->max_tokens;
    int64_t spare = o->n_bans > 0 ? GW_BAN_HELD : 0; /* tokens that may go again */
    room = r->max_tokens >= 0 && most + spare + 1 < room ? most + spare + 1 : room;
    s->r = r;
    s->choice = i;
    s->slot = -1;
    s->n = r->n_prompt;
    s->room = (int32_t)room;
    s->tokens = calloc((size_t)room, sizeof *s->tokens);
    s->pages = calloc((size_t)(b->n_ctx - 1) / GW_PAGE + 1, sizeof *s->pages);
    if (s->tokens == NULL || s->pages == NULL) {
        return gw_fail(GW_E_NOMEM, "request", "no memory for %lld tokens", (long long)room);
    }
    memcpy(s->tokens, o->tokens, o->n_tokens * sizeof *s->tokens);
    GW_TRY(gw_seq_drafts_open(b, s));
    return gw_writer_begin(s->writer, o->tokens, o->n_tokens);
}

static void free_new(gw_request *r) { /* nobody else has it */
    atomic_store(&r->handles, 1);
    gw_request_drop(r);
}

static gw_status make_request(gw_batch *b, const gw_request_options *o, const gw_lora_pick *lora,
                              gw_request **out) {
    gw_request *r = calloc(1, sizeof *r);
    int32_t n = o->n > 0 ? o->n : 1;
    if (r == NULL || (r->seq = calloc((size_t)n, sizeof *r->seq)) == NULL) {
        free(r);
        return gw_fail(GW_E_NOMEM, "request", "no memory for %d choices", (int)n);
    }
    r->batch = b;
    r->event = o->event;
    r->user = o->user;
    r->n = r->open = n;
    r->n_prompt = (int32_t)o->n_tokens;
    r->max_tokens = o->max_tokens;
    r->want_prompt = o->prompt_logprobs > 0;
    r->prompt_top = o->prompt_logprobs > 0 ? o->prompt_logprobs - 1 : 0;
    r->no_cache = o->no_cache || b->whole;
    r->seq[0].top_rows = o->prompt_logprobs_from > 1 ? o->prompt_logprobs_from - 1 : 0;
    r->special = o->special;
    r->root = GW_PAGES_ROOT | o->salt;
    r->client = o->client;
    r->priority = o->priority;
    r->finish = GW_FINISH_STOP;
    r->submitted = gw_seconds_now();
    gw_status taken = gw_lora_row_of(b->model, lora, &r->lora);
    taken = taken == GW_OK ? gw_request_see(r, b, o) : taken;
    if (taken != GW_OK) {
        free_new(r);
        return taken;
    }
    for (int32_t i = 0; i < n; i++) {
        gw_status status = make_seq(b, r, o, i);
        if (status != GW_OK) {
            free_new(r);
            return status;
        }
    }
    *out = r;
    return GW_OK;
}

/* A place in the queue; given back by done() or at admission. */
static gw_status take_place(gw_batch *b, const gw_request_options *o) {
    long long n = (long long)o->n_tokens, most = b->o.queue_tokens;
    int before = atomic_fetch_add(&b->queued, 1);
    long long tokens = atomic_fetch_add(&b->queued_tokens, n);
    if (before < b->o.queue && (most == 0 || tokens == 0 || tokens + n <= most)) {
        return GW_OK;
    }
    atomic_fetch_sub(&b->queued, 1);
    atomic_fetch_sub(&b->queued_tokens, n);
    atomic_fetch_add(&b->refused, 1);
    return before >= b->o.queue
               ? gw_fail(GW_E_BUSY, "queue", "%d requests wait already; try again later", before)
               : gw_fail(GW_E_BUSY, "queue", "prompts of %lld tokens wait already; try again later",
                         tokens);
}

static gw_status check_open(const gw_batch *b) {
    int dead = atomic_load(&b->dead);
    if (dead != GW_OK) {
        return gw_fail((gw_status)dead, "batch", "it ended with this error; start it again");
    }
    return atomic_load(&b->draining) ? gw_fail(GW_E_CANCELLED, "batch", "it takes no more requests")
                                     : GW_OK;
}

gw_status gw_batch_submit_sized(gw_batch *b, const gw_request_options *given, size_t size,
                                gw_request **out) {
    return gw_batch_submit_adapted_sized(b, given, size, NULL, out);
}

gw_status gw_batch_submit_adapted_sized(gw_batch *b, const gw_request_options *given, size_t size,
                                        const gw_lora_pick *lora, gw_request **out) {
    gw_request_options o = {.n = 0};
    gw_request *r = NULL;
    GW_TRY(gw_options_take(&o, sizeof o, given, size, "request"));
    GW_TRY(check_open(b));
    GW_TRY(check_request(b, &o));
    GW_TRY(take_place(b, &o));
    gw_status status = make_request(b, &o, lora, &r);
    if (status != GW_OK) {
        atomic_fetch_sub(&b->queued, 1);
        atomic_fetch_sub(&b->queued_tokens, (long long)o.n_tokens);
        return status;
    }
    atomic_store(&r->handles, 2);
    *out = r; /* before the first event can come */
    r->next = atomic_load(&b->inbox);
    while (!atomic_compare_exchange_weak(&b->inbox, &r->next, r)) {
    }
    wake(b);
    return GW_OK;
}

void gw_request_cancel(gw_request *r) {
    atomic_store(&r->cancelled, 1);
    wake(r->batch);
}

void gw_request_hold(gw_request *r, int on) {
    atomic_store(&r->held, on != 0);
    wake(r->batch);
}

void gw_request_free(gw_request *r) {
    if (r != NULL) {
        gw_request_drop(r);
    }
}

void gw_batch_drain(gw_batch *b) {
    atomic_store(&b->draining, 1);
    wake(b);
}

/* ---- the thread that steps ------------------------------------------------------------------- */

/* What was submitted, in that order, into the queue. */
static void take_inbox(gw_batch *b) {
    gw_request *r = atomic_exchange(&b->inbox, NULL), *turned = NULL;
    while (r != NULL) {
        gw_request *next = r->next;
        r->next = turned;
        turned = r;
        r = next;
    }
    for (; turned != NULL; turned = turned->next) {
        turned->root = gw_batch_root(b, turned);
        for (int32_t i = 0; i < turned->n; i++) {
            gw_seq_enqueue(b, &turned->seq[i], 0);
        }
    }
}

static gw_request *first_cancelled(const gw_batch *b, int all) {
    for (int32_t i = 0; i < b->n_running; i++) {
        if (all || atomic_load(&b->running[i]->r->cancelled)) {
            return b->running[i]->r;
        }
    }
    for (gw_seq *s = b->first; s != NULL; s = s->next) {
        if (all || atomic_load(&s->r->cancelled)) {
            return s->r;
        }
    }
    return NULL;
}

static void end_cancelled(gw_batch *b) {
    gw_request *r;
    while ((r = first_cancelled(b, 0)) != NULL) {
        gw_request_end(b, r, GW_FINISH_CANCELLED, GW_OK, "");
    }
}

static void end_all(gw_batch *b, gw_finish finish, gw_status status, const char *error) {
    gw_request *r;
    take_inbox(b);
    while ((r = first_cancelled(b, 1)) != NULL) {
        gw_request_end(b, r, finish, status, error);
    }
}

void gw_batch_show_stats(gw_batch *b) {
    gw_batch_stats *s = &b->stats;
    gw_pages_count pages = gw_pages_counts(b->pages);
    s->running = b->n_running;
    s->held = 0;
    for (int32_t i = 0; i < b->n_running; i++) {
        s->held += atomic_load(&b->running[i]->r->held) != 0;
    }
    s->pages_used = pages.used;
    s->pages_cached = pages.kept;
    s->host_pages = pages.places;
    s->host_pages_cached = pages.placed;
    s->evictions = pages.evictions;
    while (atomic_flag_test_and_set(&b->copying)) {
    }
    b->shown = *s;
    atomic_flag_clear(&b->copying);
}

void gw_batch_stats_get_sized(const gw_batch *given, gw_batch_stats *out, size_t size) {
    gw_batch *b = (gw_batch *)(uintptr_t)given; /* the flag changes, nothing else */
    gw_batch_stats own;
    while (atomic_flag_test_and_set(&b->copying)) {
    }
    own = b->shown;
    atomic_flag_clear(&b->copying);
    own.waiting = atomic_load(&b->queued);
    own.waiting_tokens = atomic_load(&b->queued_tokens);
    own.refused = atomic_load(&b->refused);
    memset(out, 0, size);
    memcpy(out, &own, size < sizeof own ? size : sizeof own);
}

static size_t count_work(const gw_batch *b) {
    size_t n = atomic_load(&b->inbox) != NULL;
    for (int32_t i = 0; i < b->n_running; i++) {
        n += !atomic_load(&b->running[i]->r->held) || atomic_load(&b->running[i]->r->cancelled);
    }
    for (const gw_seq *s = b->first; s != NULL; s = s->next) {
        n += !atomic_load(&s->r->held) || atomic_load(&s->r->cancelled);
    }
    return n;
}

static gw_status one_step(gw_batch *b) {
    take_inbox(b);
    end_cancelled(b);
    if (b->o.disorder != 0) {
        gw_batch_disturb(b);
    }
    GW_TRY(gw_batch_admit(b));
    GW_TRY(gw_batch_decode(b));
    end_cancelled(b);
    GW_TRY(gw_batch_prefill(b));
    return count_work(b) == 0 ? gw_ahead_step(b) : GW_OK;
}

gw_status gw_batch_step(gw_batch *b, size_t *work) {
    GW_TRY(atomic_load(&b->dead) != GW_OK ? check_open(b) : GW_OK);
    gw_status status = one_step(b);
    if (status != GW_OK) {
        char text[512];
        size_t n = strlen(gw_error_text());
        n = n < sizeof text ? n : sizeof text - 1;
        memcpy(text, gw_error_text(), n);
        text[n] = '\0';
        atomic_store(&b->dead, (int)status);
        end_all(b, GW_FINISH_ERROR, status, text);
        gw_batch_show_stats(b);
        return status;
    }
    gw_batch_show_stats(b);
    *work = count_work(b) + (size_t)b->ahead.n;
    return GW_OK;
}

gw_status gw_batch_wait(gw_batch *b, double seconds, size_t *work) {
    const struct timespec end = gw_os_deadline(seconds > 1e9 ? 1e9 : seconds > 0 ? seconds : 0);
    GW_TRY(atomic_load(&b->dead) != GW_OK ? check_open(b) : GW_OK);
    pthread_mutex_lock(&b->waiting);
    size_t n = count_work(b) + (size_t)b->ahead.n;
    for (int late = 0; n == 0 && !late && !atomic_load(&b->draining);
         n = count_work(b) + (size_t)b->ahead.n) {
        late = (seconds < 0 ? pthread_cond_wait(&b->woken, &b->waiting)
                            : pthread_cond_timedwait(&b->woken, &b->waiting, &end)) != 0;
    }
    pthread_mutex_unlock(&b->waiting);
    *work = n;
    return GW_OK;
}

void gw_batch_free(gw_batch *b) {
    if (b == NULL) {
        return;
    }
    atomic_store(&b->draining, 1);
    end_all(b, GW_FINISH_CANCELLED, GW_OK, "");
    free_batch(b);
}
