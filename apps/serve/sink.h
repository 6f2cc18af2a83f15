/* apps/serve/sink.h - lines for a file descriptor that may be slow or read by nobody: a thread
 * writes them, and whoever has one goes on at once. */
#ifndef GW_APPS_SERVE_SINK_H
#define GW_APPS_SERVE_SINK_H

#include <stddef.h>
#include <stdint.h>

typedef struct sink sink;

/* NULL: no memory, or no thread. The descriptor stays the caller's. */
sink *sink_new(int fd);
/* Takes the bytes, all or none; 0: there is no room for them, and they are lost. Any thread. */
int sink_put(sink *s, const char *text, size_t bytes);
/* Lines that the descriptor did not take. */
uint64_t sink_lost(sink *s);
/* Waits a moment for what is still to be written. A thread that a write does not let go stays, with
 * the little that it needs, for the end of the process. */
void sink_free(sink *s); /* accepts NULL */

#endif
