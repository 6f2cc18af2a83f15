/* apps/terminal.h - what goes to stderr: error lines, notes, progress. Never to stdout.
 *
 * Colour only on a terminal without NO_COLOR; a progress bar only on a terminal and never under
 * --quiet.
 */
#ifndef GW_APPS_TERMINAL_H
#define GW_APPS_TERMINAL_H

#include <stddef.h>
#include <stdint.h>

#define APP_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

/* Exit codes of every command; a signal adds 128 + its number. */
enum { APP_OK = 0, APP_FAILURE = 1, APP_USAGE = 2 };

void terminal_setup(int quiet);
int terminal_quiet(void);

/* One line "godwit: error: ..." on stderr. */
void app_error(const char *fmt, ...) APP_PRINTF(1, 2);
/* One line on stderr unless quiet. */
void app_note(const char *fmt, ...) APP_PRINTF(1, 2);

/* From now on these lines go to `put` in place of stderr, which may block; NULL: no longer. */
void terminal_divert(void (*put)(const char *text, size_t bytes));

double app_seconds(void); /* monotonic */

typedef struct app_progress {
    const char *label;
    double start, drawn;
    int shown;
} app_progress;

void progress_begin(app_progress *p, const char *label);
/* extra: text after the bar, may be NULL. Draws at most ten times a second. */
void progress_update(app_progress *p, uint64_t done, uint64_t total, const char *extra);
void progress_end(app_progress *p); /* removes the bar; also before an error line */

#endif
