/* apps/serve/access_log.h - one line for each answer, as text or JSON. A line that cannot be
 * written (a full disk) is counted and lost; nothing waits for it. */
#ifndef GW_APPS_SERVE_ACCESS_LOG_H
#define GW_APPS_SERVE_ACCESS_LOG_H

#include "apps/serve/conn.h"

typedef struct access_entry {
    const char *client, *method, *target, *id;
    int status;
    int whole; /* 0: the client left before the answer was whole */
    uint64_t bytes;
    double seconds;
    const conn_note *note;
} access_entry;

typedef struct access_log access_log;

/* path NULL: standard error, where it is shown at all. Exit code; *out may be NULL. */
int access_log_open(const char *path, int json, int quiet, access_log **out);
void access_log_write(access_log *log, const access_entry *entry);
uint64_t access_log_lost(const access_log *log);
void access_log_close(access_log *log);

#endif
