/* apps/signals.h - Ctrl-C and its relatives.
 *
 * The first SIGINT or SIGTERM raises a flag that the library polls; the command stops, says what it
 * has done and exits with 130 or 143. The second one ends the process at once. SIGPIPE and SIGXFSZ
 * are ignored: the failed write reports itself.
 */
#ifndef GW_APPS_SIGNALS_H
#define GW_APPS_SIGNALS_H

void signals_setup(void);
const volatile int *signals_cancel(void); /* for the library */
int signals_caught(void);                 /* the signal, or 0 */
int signals_exit_code(int otherwise);     /* 128 + signal once one has come */
/* From now on the first signal ends the process at once: nothing is left to be stopped cleanly. */
void signals_at_once(void);
/* A file to remove if the process is ended at once; NULL: none. The text must stay valid. */
void signals_remove_on_end(const char *path);

#endif
