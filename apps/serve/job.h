/* apps/serve/job.h - a request that generates, from its JSON to its answer, by whatever API.
 *
 *   loop     job_start: the body is taken, the client watched
 *   worker   read: the API's JSON becomes an ask
 *   loop     the model is acquired, or waited for
 *   worker   prepare: template, tokens, grammar; submitted to the engine
 *   engine   events are copied into the job's list
 *   loop     events become parts of the answer, and the API writes them
 *
 * A job ends when all its requests have ended, whether or not somebody still listens.
 */
#ifndef GW_APPS_SERVE_JOB_H
#define GW_APPS_SERVE_JOB_H

#include <jansson.h>

#include <stdatomic.h>

#include "apps/serve/ask.h"
#include "apps/serve/grammars.h"
#include "apps/serve/models.h"
#include "apps/serve/reply.h"
#include "apps/serve/text.h"

typedef struct job job;
typedef struct choice choice;

typedef struct call {
    char *id, *name;
    text_buffer arguments;
    int broken; /* it was none after all */
    int whole;  /* its arguments are whole; where the answer was cut off they are not */
    int item;   /* the API's: its place in the answer */
} call;

typedef struct token_prob {
    int32_t token;
    float logprob; /* NAN: unknown (the first token of a text) */
    char *text;    /* its bytes, malloc'd */
    size_t bytes;
    size_t at, span;          /* where they stand among all that was generated; 0: no text */
    size_t shown_from, shown; /* those of them that are part of the answer's text */
    struct token_top {
        float logprob;
        int32_t token;
        char *text;
        size_t bytes;
    } * top; /* [n_top] */
    size_t n_top;
} token_prob;

struct choice {
    job *j;
    int index;         /* of the answer */
    size_t prompt;     /* number of its prompt */
    gw_answer *answer; /* NULL: text only */
    int needs_grammar; /* of this prompt's choices: the first one's */
    grammar_key key;
    const kept_grammar *grammar;
    gw_stop *stop; /* on the text of an answer; NULL: none, or the engine looks for them */
    text_buffer text, reasoning;
    call *calls;
    size_t n_calls;
    token_prob *probs; /* [n_probs], of which probs_sent have been handed out */
    size_t n_probs, probs_sent;
    size_t probs_settled;  /* of them it is known which of their bytes the text shows */
    text_buffer unspelled; /* bytes that were generated since, */
    size_t spelled;        /* ... and before */
    int32_t *tokens;       /* [n_tokens] when they are asked for */
    size_t n_tokens;
    int ended, finished;   /* nothing more counts; finish has been written */
    const char *stop_text; /* the stop string that came true */
    gw_finish why;
    int calls_made; /* calls that are not broken */
    double last;
    int opened, state, item; /* the API's own */
};

/* How one API reads requests and writes answers. Functions but read run on the loop's thread; those
 * of a stream may be NULL. */
typedef struct api {
    const char *id_prefix; /* "chatcmpl-" */
    int json_lines;        /* its streams are lines of JSON */
    int no_ping;           /* no comments in them */
    int shows_end;         /* the token that ends a text is among its probabilities */
    /* From the request to the ask; on a worker. 0 or -1 and *f. */
    int (*read)(job *j, const json_t *body, fault *f);
    void (*begin)(job *j);
    void (*text)(choice *c, const char *text, size_t bytes);
    void (*reasoning)(choice *c, const char *text, size_t bytes);
    void (*call_begin)(choice *c, call *k);
    void (*call_arguments)(choice *c, call *k, const char *text, size_t bytes);
    void (*call_end)(choice *c, call *k);
    void (*progress)(job *j, int32_t read, int32_t prompt, int32_t cached);
    void (*finish)(choice *c); /* this choice is whole */
    void (*end)(job *j);       /* all are */
    void (*fail)(job *j, const fault *f);
    json_t *(*whole)(job *j); /* the answer at once */
    /* What needs the model but generates nothing: on a worker, in place of all of these. The
     * answer, or NULL and j->f. */
    json_t *(*run)(job *j);
    /* What needs no model that is loaded: on the loop's thread, which it must not keep. */
    json_t *(*here)(job *j);
    const char *const *echoed; /* members of the request that the answer has; ends with NULL */
} api;

struct job {
    server *s;
    job *next, **link;
    conn *c; /* NULL: the client has gone */
    const api *api;
    char id[48];
    int64_t created;
    double began, first, last; /* seconds; 0: not yet. last: when something was written */
    char client[64];
    uint64_t salt, fair;
    char *body;
    size_t n_body;
    account_hold hold;
    uint64_t read_cost; /* memory that the request as JSON takes */
    uint64_t kept_cost; /* ... that its tools take until the answer has ended */
    loop_work_kind work_kind;
    atomic_int gone; /* nobody waits for it: workers give up */
    ask ask;
    fault f;
    model *m;
    gw_lora_pick lora;  /* that it has */
    const char *called; /* the adapter by which the request names the model; or NULL */
    model_wait wait;
    loop_task work, back, events_task;
    int busy;      /* a worker has it */
    int submitted; /* events may be written */
    int streaming, ended, held;
    int heard;             /* the engine has begun with it */
    gw_request **requests; /* [ask.n_prompts], of which n_requests have been submitted */
    size_t n_requests, n_done;
    choice *choices; /* [n_choices] */
    size_t n_choices;
    struct event_copy *events, **events_end;
    int lost_events;      /* no memory for one */
    size_t n_done_unseen; /* of these, ends of requests */
    int64_t n_prompt, n_cached, n_generated, n_reasoning;
    size_t n_cut; /* tokens of what is filled in that the prompt had no room for */
    double queued_seconds, prompt_seconds, seconds;
    json_t *own; /* the API's */
    int state, number;
};

/* Answers now or later. */
void job_start(conn *c, const api *a);

/* What jobs that run have generated so far. */
uint64_t jobs_tokens(const server *s);
void jobs_tick(server *s);    /* comments in streams that are silent; who has waited too long */
void jobs_end_all(server *s); /* those that still run end with an error */
void jobs_free_all(server *s);

/* ---- for the APIs ---------------------------------------------------------------------------- */

/* On a worker: the prompt of a conversation. for_text: nothing will be generated. 0 or -1 and j->f.
 */
int job_chat_text(job *j, int for_text, gw_chat_text *out);
/* The reason in the words of OpenAI's APIs: "stop", "length", "tool_calls". */
const char *choice_reason(const choice *c);
json_t *job_usage(const job *j);
json_t *job_timings(const job *j);
const char *job_model(const job *j); /* or its adapter, by the name that the request has */
const char *job_fingerprint(void);
/* An object of a stream or an answer: id, object, created, model, system_fingerprint. */
json_t *job_object(const job *j, const char *object);
/* Probabilities from number `from` on, as chat completions show them: those of tokens that the text
 * shows, put together they are the text (with `legacy`: as completions
 * do; offset: characters of the text before; text: what they are part of, or NULL: each token
 * counts in full). Sets *from behind the last. */
json_t *choice_probs(choice *c, size_t *from);
json_t *choice_probs_legacy(choice *c, size_t *from, size_t *offset, const char *text);
json_t *job_text(const text_buffer *t); /* "" while empty */
/* Bytes as a JSON text: what is no UTF-8 comes as U+FFFD. */
json_t *job_bytes(const char *text, size_t bytes);

/* On a worker: nobody waits for the answer any more. */
static inline int job_is_gone(job *j) { return atomic_load(&j->gone); }

/* An event of the stream, or a line of it; and the time of it. */
void job_event(job *j, const char *name, json_t *body);

#endif
