/* core/base/build_log.h - what a compiler of kernels says, as part of a message of one line. */
#ifndef GW_BASE_BUILD_LOG_H
#define GW_BASE_BUILD_LOG_H

#include <stddef.h>

enum { GW_LOG_LINES = 20, GW_LOG_BYTES = 1500 };

/* The first lines of the log, in place, behind one another. */
static inline void gw_log_to_line(char *log) {
    size_t used = 0;
    for (int lines = 0; log[used] != '\0' && lines < GW_LOG_LINES && used < GW_LOG_BYTES; used++) {
        if (log[used] == '\n') {
            log[used] = ' ';
            lines++;
        }
    }
    log[used] = '\0';
}

#endif
