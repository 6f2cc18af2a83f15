/* apps/line.h - lines that a person types: with editing and history on a terminal, where the
 * program was built with libedit; plain lines down a pipe and everywhere else. */
#ifndef GW_APPS_LINE_H
#define GW_APPS_LINE_H

#include <stddef.h>

typedef struct app_lines app_lines;

typedef enum app_line {
    LINE_TEXT,
    LINE_END,         /* end of the file, Ctrl-D           */
    LINE_INTERRUPTED, /* Ctrl-C: the line is gone; *bytes of it had been typed, where known */
    LINE_FAILED       /* said on stderr, or another signal */
} app_line;

/* name: of the history file in $XDG_STATE_HOME/godwit (else ~/.local/state/godwit). NULL: no
 * memory, said. */
app_lines *lines_open(const char *name);
void lines_close(app_lines *lines); /* saves the history; accepts NULL */
int lines_on_terminal(const app_lines *lines);

/* Did the line that was read last begin with a paste (bracketed, as terminals mark one)? It then
 * has all lines of it, and none of them is a command. */
int lines_pasted(const app_lines *lines);

/* The next line without its newline, valid until the next call; may hold any bytes. The prompt is
 * shown on terminals only. */
app_line lines_read(app_lines *lines, const char *prompt, const char **text, size_t *bytes);

#endif
