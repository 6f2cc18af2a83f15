/* apps/signals.h - Ctrl-C and its relatives.
 *
 * The first SIGINT, SIGTERM or SIGHUP raises a flag that the library polls; the command stops, says
 * what it has done and exits with 128 + its number (130, 143, 129). The second one ends the process
 * at once (but see signals_interactive) and takes unfinished files with it. SIGPIPE and SIGXFSZ are
 * ignored: the failed write reports itself. A SIGHUP that was ignored at the start (nohup) stays
 * so. A call of a driver that is under way when the first comes and does not return within ten
 * seconds (signals_grace) ends the process as the second does, with one line; not in a chat that
 * Ctrl-C stops.
 */
#ifndef GW_APPS_SIGNALS_H
#define GW_APPS_SIGNALS_H

#include "core/base/os.h"

void signals_setup(void);
const volatile int *signals_cancel(void); /* for the library */
int signals_caught(void);                 /* the signal, or 0 */
int signals_exit_code(int otherwise);     /* 128 + signal once one has come */
/* From now on the first signal ends the process at once: nothing is left to be stopped cleanly. */
void signals_at_once(void);
/* Seconds that drivers have, of a command that lets requests end. At least 1. */
void signals_grace(int seconds);
/* From now on Ctrl-C stops what is going on and not the program: the command calls
 * signals_take_interrupt and goes on. Only the fourth that nobody took ends the process. */
void signals_interactive(void);
/* 1 when SIGINT had come; it counts as not having come then. 0: nothing, or another signal. */
int signals_take_interrupt(void);
/* From now on SIGHUP stops nothing: it makes signals_fd readable, until signals_take_hangup has
 * said 1 for it. */
void signals_keep_hangup(void);
int signals_take_hangup(void);
/* Readable as long as one has been caught and not been taken; -1: none to be had. */
int signals_fd(void);
/* It has been answered: the exit code is that of the command. */
void signals_forget(void);
/* read(2) that a signal ends at once, whenever and on whichever thread it comes: -1 with EINTR as
 * long as one has been caught and not been taken, and only then. */
ssize_t signals_read(int fd, void *buffer, size_t bytes);
#endif
