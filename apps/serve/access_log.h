/* apps/serve/access_log.h - one line for each answer, as text or JSON. A line that cannot be
 * written (a full disk, a reader that does not read) is counted and lost; nothing waits for it. */
#ifndef GW_APPS_SERVE_ACCESS_LOG_H
#define GW_APPS_SERVE_ACCESS_LOG_H

#include "apps/serve/conn.h"
#include "apps/serve/sink.h"

typedef struct access_entry {
    const char *client, *method, *target, *id;
    int status;
    int whole; /* 0: the client left before the answer was whole */
    uint64_t bytes;
    double seconds;
    const conn_note *note;
} access_entry;

typedef struct access_log access_log;

typedef struct access_options {
    const char *path; /* NULL: standard error, where it is shown at all */
    int json, quiet;
    sink *shared; /* of standard error */
} access_options;

/* Exit code; *out may be NULL. */
int access_log_open(const access_options *o, access_log **out);
void access_log_write(access_log *log, const access_entry *entry);
/* Of a file alone: opened again by its name, for who has renamed it. */
void access_log_reopen(access_log *log);
uint64_t access_log_lost(const access_log *log);
void access_log_close(access_log *log);

#endif
