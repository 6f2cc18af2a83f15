/* apps/serve/fill.h - requests for the text between a prefix and a suffix: llama-server's /infill,
 * the "suffix" of OpenAI's completions and of Ollama's generate.
 */
#ifndef APPS_SERVE_FILL_H
#define APPS_SERVE_FILL_H

#include "apps/serve/job.h"

/* llama-server's fields of /infill. 0, or -1 and
 * *f. */
int fill_read_infill(ask *a, const json_t *body, fault *f);
/* "suffix": none, null and "" ask for nothing. 0, or -1 and *f. */
int fill_read_suffix(ask *a, const json_t *body, fault *f);

/* The prompt of what is to be filled in, by the job's model, cut so that there is room for an
 * answer. ids: malloc'd [*n]. 0, or -1 and j->f; on a worker. */
int fill_prompt(job *j, int32_t **ids, size_t *n);

#endif
