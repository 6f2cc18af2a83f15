/* apps/serve/job.c - the life of a request that generates: see job.h. */
#include "apps/serve/job.h"

#include <stdlib.h>
#include <string.h>

#include "apps/serve/job_parts.h"
#include "apps/serve/lora.h"
#include "apps/serve/metrics.h"
#include "apps/serve/random.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"

enum { RELAXED = 480, LONG_BODY = 1 << 14 };

/* ---- texts ----------------------------------------------------------------------------------- */

json_t *job_text(const text_buffer *t) {
    return t->n > 0 ? json_stringn(t->at, t->n) : json_string("");
}

/* ---- the end --------------------------------------------------------------------------------- */

static void detach(job *j) {
    if (j->c != NULL) {
        conn_watched(j->c, &(conn_watch){0});
        j->c = NULL;
    }
}

/* Nobody else knows it any more. */
static void try_free(job *j) {
    if (j->busy || j->n_done < j->n_requests || j->events_task.queued || j->back.queued ||
        j->c != NULL) {
        return;
    }
    models_forget(&j->wait);
    job_drop_events(j);
    for (size_t i = 0; i < j->n_requests; i++) {
        gw_request_free(j->requests[i]);
    }
    free(j->requests);
    job_free_choices(j);
    if (j->m != NULL) {
        models_release(j->s->models, j->m);
    }
    *j->link = j->next;
    if (j->next != NULL) {
        j->next->link = j->link;
    }
    j->s->n_jobs--;
    account_set(j->s->account, &j->hold, 0);
    ask_free(&j->ask);
    free(j->body);
    json_decref(j->own);
    free(j);
}

/* While a worker submits the job's requests they are its own; on_submitted sees to them. */
static void cancel(job *j) {
    atomic_store(&j->gone, 1);
    for (size_t i = 0; !j->busy && i < j->n_requests; i++) {
        gw_request_cancel(j->requests[i]);
    }
}

/* What the access log and the metrics are told. */
static void note_end(job *j) {
    conn_note *note = conn_notes(j->c);
    if (j->m != NULL) {
        snprintf(note->model, sizeof note->model, "%s", j->m->id);
    }
    if (j->submitted) {
        note->prompt = j->n_prompt;
        note->cached = j->n_cached;
        note->tokens = j->n_generated;
    }
}

void job_fail(job *j, const fault *f) {
    if (j->ended || j->c == NULL) {
        return;
    }
    j->ended = 1;
    note_end(j);
    cancel(j);
    conn *c = j->c;
    if (!j->streaming) {
        detach(j);
        reply_fault(c, f);
    } else {
        if (j->api->fail != NULL) {
            j->api->fail(j, f);
        }
        detach(j);
        conn_end(c);
    }
}

void job_finish(job *j) {
    if (j->ended || j->c == NULL) {
        return;
    }
    j->ended = 1;
    note_end(j);
    if (j->submitted) {
        metrics_took(j->s->metrics, TIME_WHOLE, app_seconds() - j->began);
    }
    conn *c = j->c;
    if (j->streaming) {
        if (j->api->end != NULL) {
            j->api->end(j);
        }
        detach(j);
        conn_end(c);
    } else {
        int ready = j->api->run != NULL || j->api->here != NULL;
        json_t *whole = ready ? j->own : j->api->whole(j);
        j->own = ready ? NULL : j->own;
        char relaxed[RELAXED];
        job_relaxed(j, relaxed, sizeof relaxed);
        detach(j);
        reply_answer(c, whole, relaxed);
    }
}

void job_hold(job *j, int on) {
    for (size_t i = 0; j->held != on && i < j->n_requests; i++) {
        gw_request_hold(j->requests[i], on);
    }
    j->held = on;
}

/* ---- the client ------------------------------------------------------------------------------ */

static void on_gone(void *user) {
    job *j = user;
    if (!j->ended && j->c != NULL) {
        note_end(j);
        metrics_cancelled(j->s->metrics);
    }
    j->c = NULL;
    j->ended = 1;
    models_forget(&j->wait);
    job_hold(j, 0);
    cancel(j);
    try_free(j);
}

static void on_room(void *user) {
    job *j = user;
    job_hold(j, 0);
    loop_post(j->s->loop, &j->events_task);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void on_events(void *arg) {
    job *j = arg;
    if (j->submitted || j->ended) {
        job_take_events(j);
    }
    try_free(j);
}

static void on_submitted(void *arg) {
    job *j = arg;
    j->busy = 0;
    if (j->c == NULL || j->ended) {
        cancel(j);
    } else if (j->f.status != 0) {
        job_fail(j, &j->f);
    } else if (j->api->run != NULL) {
        job_finish(j);
    } else {
        j->submitted = 1;
        j->last = app_seconds();
        if (j->ask.stream) {
            j->streaming = 1;
            char relaxed[RELAXED];
            job_relaxed(j, relaxed, sizeof relaxed);
            reply_stream(j->c, j->api->json_lines, relaxed);
            if (j->api->begin != NULL) {
                j->api->begin(j);
            }
        }
    }
    if (j->submitted || j->ended) {
        job_take_events(j);
    }
    try_free(j);
}

static void prepared(job *j, int code) {
    if (code != 0 && j->f.status == 0) {
        fault_set(&j->f, 503, NULL, "out of memory");
    }
    j->back.run = on_submitted;
    loop_post(j->s->loop, &j->back);
}

static void compile(void *arg) {
    job *j = arg;
    prepared(j, job_is_gone(j) ? -1 : job_compile(j));
}

static void prepare(void *arg) {
    job *j = arg;
    if (job_is_gone(j)) {
        prepared(j, -1);
    } else if (j->api->run != NULL) {
        j->own = j->api->run(j);
        prepared(j, j->own != NULL ? 0 : -1);
    } else {
        int code = job_prepare(j);
        if (code <= 0) {
            prepared(j, code);
        } else {
            j->work.run = compile;
            loop_work(j->s->loop, LOOP_LONG, &j->work);
        }
    }
}

static void on_model(void *user, model *m, const fault *f) {
    job *j = user;
    const ask *a = &j->ask;
    fault own = {0};
    j->m = m;
    if (m != NULL && lora_of_request(j->s->models, m, a->model, a->has_lora ? &a->lora : NULL,
                                     &j->lora, &own) != 0) {
        f = &own;
    }
    if (!a->has_lora && adapters_find(models_adapters(j->s->models), a->model) >= 0) {
        j->called = a->model;
    }
    if (m == NULL || f != NULL) {
        job_fail(j, f);
        loop_post(j->s->loop, &j->events_task); /* which frees it */
        return;
    }
    ask_take_model(&j->ask, j->s->o, m->gw);
    models_keep(j->s->models, m, j->ask.keep_alive);
    j->busy = 1;
    j->work.run = prepare;
    loop_work(j->s->loop, j->work_kind, &j->work);
}

/* On the loop's thread, where no model is needed. */
static void answer_here(job *j) {
    j->own = j->api->here(j);
    if (j->own == NULL) {
        job_fail(j, &j->f);
    } else {
        job_finish(j);
    }
}

static void on_read(void *arg) {
    job *j = arg;
    j->busy = 0;
    j->work_kind = j->ask.pictures.n > 0 ? LOOP_LONG : j->work_kind;
    if (j->c != NULL && j->f.status != 0) {
        job_fail(j, &j->f);
    } else if (j->c != NULL && j->api->here != NULL) {
        answer_here(j);
    } else if (j->c != NULL) {
        j->wait.done = on_model;
        j->wait.user = j;
        models_acquire(j->s->models, j->ask.model, &j->wait);
    }
    try_free(j);
}

/* What the request takes as JSON, and again while its prompt is made, is held before it is parsed.
 */
static int hold_request(job *j) {
    uint64_t cost = 2 * ask_parse_cost(j->body, j->n_body);
    if (cost > ACCOUNT_REQUEST) {
        return fault_set(&j->f, 413, NULL,
                         "the body has so many values that it would take %llu MiB of memory, and "
                         "a request may take %d",
                         (unsigned long long)(cost >> 20), ACCOUNT_REQUEST >> 20);
    }
    j->read_cost = cost;
    if (account_set(j->s->account, &j->hold, j->n_body + cost) != 0) {
        fault_set(&j->f, 503, NULL, "too many long requests are held at once: try again later");
        j->f.retry_after = 5;
        return -1;
    }
    return 0;
}

/* The C library keeps what many small values took, for others like them: too much of it is the
 * system's. */
static void give_back(uint64_t bytes) {
    enum { KEPT = 1 << 23 };
    if (bytes > KEPT) {
        gw_os_trim();
    }
}

static void read_body(void *arg) {
    job *j = arg;
    json_t *root = !job_is_gone(j) && hold_request(j) == 0
                       ? ask_parse(j->body, j->n_body, &j->ask.wide, &j->f)
                       : NULL;
    if (root != NULL) {
        free(j->body);
        j->body = NULL;
        j->ask.root = root;
        if (j->api->read(j, root, &j->f) != 0 && j->f.status == 0) {
            fault_set(&j->f, 503, NULL, "out of memory");
        }
        if (j->api->run == NULL && j->api->here == NULL) {
            ask_trim_request(&j->ask, j->api->echoed);
            give_back(j->read_cost);
        }
        account_set(j->s->account, &j->hold, j->read_cost);
    }
    free(j->body);
    j->body = NULL;
    j->back.run = on_read;
    loop_post(j->s->loop, &j->back);
}

static void make_id(job *j) {
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[16];
    size_t n = strlen(j->api->id_prefix);
    random_bytes(bytes, sizeof bytes);
    memcpy(j->id, j->api->id_prefix, n);
    for (size_t i = 0; i < sizeof bytes; i++) {
        j->id[n++] = hex[bytes[i] >> 4];
        j->id[n++] = hex[bytes[i] & 15];
    }
}

void job_start(conn *c, const api *a) {
    server *s = conn_server(c);
    fault f = {0};
    job *j = NULL;
    if (s->draining) {
        fault_set(&f, 503, NULL, "the server is ending");
        f.retry_after = 10;
    } else if ((j = calloc(1, sizeof *j)) == NULL) {
        fault_set(&f, 503, NULL, "out of memory");
    }
    if (j == NULL) {
        reply_fault(c, &f);
        return;
    }
    j->s = s;
    j->c = c;
    j->api = a;
    j->began = app_seconds();
    j->created = (int64_t)time(NULL);
    j->fair = conn_client_number(c);
    j->salt = s->n_keys > 0 ? j->fair : 0;
    j->body = conn_take_body(c, &j->n_body, &j->hold);
    j->work_kind = j->n_body > LONG_BODY ? LOOP_LONG : LOOP_SHORT;
    j->events_end = &j->events;
    j->events_task = (loop_task){.run = on_events, .arg = j};
    j->work = (loop_task){.run = read_body, .arg = j, .client = j->fair};
    j->back = (loop_task){.arg = j};
    make_id(j);
    ask_init(&j->ask, s->o);
    j->link = &s->jobs;
    j->next = s->jobs;
    if (j->next != NULL) {
        j->next->link = &j->next;
    }
    s->jobs = j;
    s->n_jobs++;
    conn_watched(c, &(conn_watch){.gone = on_gone, .room = on_room, .user = j});
    j->busy = 1;
    loop_work(s->loop, j->work_kind, &j->work);
}

/* ---- all jobs -------------------------------------------------------------------------------- */

uint64_t jobs_tokens(const server *s) {
    uint64_t sum = 0;
    for (const job *j = s->jobs; j != NULL; j = j->next) {
        sum += (uint64_t)j->n_generated;
    }
    return sum;
}

/* What an engine never began with has cost nothing, and somebody else may be quicker. */
static void end_if_waited(job *j, double now) {
    int32_t most = j->s->o->queue_time;
    if (most > 0 && j->submitted && !j->ended && !j->heard && now - j->began >= most) {
        fault f;
        fault_set(&f, 503, NULL, "no turn in %d s: try again later", (int)most);
        f.retry_after = models_patience(j->m);
        job_fail(j, &f);
    }
}

void jobs_tick(server *s) {
    double now = app_seconds(), after = s->o->sse_ping;
    for (job *j = s->jobs; j != NULL; j = j->next) {
        if (j->submitted && !j->ended && j->n_requests < j->ask.n_prompts &&
            job_submit_more(j) != 0) {
            job_fail(j, &j->f);
        }
        end_if_waited(j, now);
        if (after > 0 && j->streaming && j->c != NULL && !j->ended && !j->api->json_lines &&
            !j->api->no_ping && !conn_full(j->c) && now - j->last >= after) {
            reply_ping(j->c);
            j->last = now;
        }
    }
}

void jobs_end_all(server *s) {
    fault f;
    fault_set(&f, 503, NULL, "the server is ending");
    for (job *j = s->jobs, *next; j != NULL; j = next) {
        next = j->next;
        models_forget(&j->wait);
        job_fail(j, &f);
    }
}

void jobs_free_all(server *s) {
    while (s->jobs != NULL) {
        job *j = s->jobs;
        j->c = NULL;
        j->busy = 0;
        j->events_task.queued = j->back.queued = 0;
        j->n_done = j->n_requests;
        try_free(j);
    }
}
