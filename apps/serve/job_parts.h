/* apps/serve/job_parts.h - the pieces of job.h's jobs, for job*.c only. */
#ifndef GW_APPS_SERVE_JOB_PARTS_H
#define GW_APPS_SERVE_JOB_PARTS_H

#include "apps/serve/job.h"

/* An event of the engine, as it is kept until the loop takes it. */
typedef struct event_copy {
    struct event_copy *next;
    gw_event e;
    size_t prompt; /* number of the request */
    gw_logprob top[GW_TOP_LOGPROBS];
    char text[]; /* text, then error, each NUL-terminated */
} event_copy;

/* Which of a job's requests an event belongs to. */
typedef struct job_request {
    job *j;
    size_t prompt;
} job_request;

/* job_prepare.c, on a worker: tokens and choices; and submits, unless 1 says that grammars are to
 * be compiled first, which may take long. 0, 1, or -1 and j->f. */
int job_prepare(job *j);
/* The rest of it. 0 or -1 and j->f. */
int job_compile(job *j);
/* job_grammar.c: the grammars that the choices need, as far as they are known; how many are not. */
size_t job_find_grammars(job *j);
/* Compiles the others. 0 or -1 and j->f. */
int job_make_grammars(job *j);
/* What they do not keep of schemas, as the value of a header; "": nothing. */
void job_relaxed(const job *j, char *out, size_t room);
/* Requests for prompts that have none yet, as far as the queue has room; any thread, one at a time.
 */
int job_submit_more(job *j);
/* job_pictures.c, on a worker: all that are not yet, by which their texts are known. for_text: they
 * will not be encoded. 0 or -1 and j->f. */
int job_look(job *j, int for_text);
/* The last prompt has these pictures, [n] numbers of the ask's. */
int job_take_order(job *j, const size_t *order, size_t n);
/* The rows of the pictures of all prompts, and where they stand. */
int job_see(job *j);
uint64_t job_looks_bytes(const job *j);
/* A prompt as llama-server takes it with pictures, {"prompt_string": TEXT, "multimodal_data":
 * [...]}: its tokens; its pictures are the ask's last ones. */
int job_read_pictures(job *j, const json_t *given, int32_t **ids, size_t *n);
/* job_events.c: what the engine calls, and what the loop does with it. */
void job_on_event(void *user, const gw_event *event);
void job_take_events(job *j);
void job_drop_events(job *j);
void job_free_choices(job *j);
/* job.c: writes the answer's end, or the error. */
void job_finish(job *j);
void job_fail(job *j, const fault *f);
void job_hold(job *j, int on);

#endif
