/* apps/serve/metrics.h - counts and times of the server, in the text format of Prometheus. Names
 * begin with godwit_, units are seconds, bytes and tokens. The loop's thread only. */
#ifndef GW_APPS_SERVE_METRICS_H
#define GW_APPS_SERVE_METRICS_H

#include "apps/serve/server.h"

typedef struct metrics metrics;

typedef enum metrics_time {
    TIME_FIRST,   /* from the request to its first token */
    TIME_BETWEEN, /* from one token to the next          */
    TIME_WHOLE,   /* of a request that generates         */
    TIME_QUEUE,   /* from the request to its admission   */
    TIME_KINDS
} metrics_time;

metrics *metrics_new(void);
void metrics_free(metrics *m);
void metrics_answered(metrics *m, int status);
void metrics_refused(metrics *m); /* what is no request */
void metrics_cancelled(metrics *m);
void metrics_took(metrics *m, metrics_time kind, double seconds);
void metrics_tokens(metrics *m, int64_t prompt, int64_t cached, int64_t generated);
/* Tokens generated so far. */
uint64_t metrics_generated(const metrics *m);

/* All of it, malloc'd; *bytes long. NULL: no memory. */
char *metrics_text(const server *s, size_t *bytes);

#endif
