/* apps/terminal.c - stderr: error lines, notes, the progress bar. */
#include "apps/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"

static struct {
    int quiet, bar, colour;
    void (*put)(const char *text, size_t bytes);
} terminal;

void terminal_setup(int quiet) {
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    int tty = isatty(STDERR_FILENO), dumb = term != NULL && strcmp(term, "dumb") == 0;
    terminal.quiet = quiet;
    terminal.bar = tty && !dumb && !quiet;
    terminal.colour = tty && !dumb && (no_colour == NULL || no_colour[0] == '\0');
}

int terminal_quiet(void) { return terminal.quiet; }
void terminal_divert(void (*put)(const char *text, size_t bytes)) { terminal.put = put; }

/* A line [n] that snprintf wanted to write into room bytes. */
static void put_line(char *line, size_t room, int n) {
    size_t bytes = n < 0 ? 0 : (size_t)n < room - 1 ? (size_t)n : room - 2;
    line[bytes++] = '\n';
    if (terminal.put != NULL) {
        terminal.put(line, bytes);
    } else {
        fwrite(line, 1, bytes, stderr);
    }
}

void app_error(const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++) { /* names can hold anything: keep it one line */
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    char line[1100];
    put_line(line, sizeof line,
             snprintf(line, sizeof line, "%sgodwit: error:%s %s",
                      terminal.colour ? "\033[1;31m" : "", terminal.colour ? "\033[0m" : "", text));
}

void app_note(const char *fmt, ...) {
    if (terminal.quiet) {
        return;
    }
    char line[4096];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    put_line(line, sizeof line, n);
}

double app_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_begin(app_progress *p, const char *label) {
    *p = (app_progress){.label = label, .start = app_seconds()};
}

void progress_update(app_progress *p, uint64_t done, uint64_t total, const char *extra) {
    enum { WIDTH = 30 };
    double now = app_seconds();
    if (!terminal.bar || total == 0 || (now - p->drawn < 0.1 && done < total)) {
        return;
    }
    if (now - p->start < 0.2) {
        return; /* over before it could be read */
    }
    double share = (double)done / (double)total;
    share = share > 1 ? 1 : share;
    char bar[WIDTH + 1];
    int full = (int)(share * WIDTH);
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(WIDTH - full));
    bar[WIDTH] = '\0';
    double left = share > 0 ? (now - p->start) * (1 - share) / share : 0;
    char line[256];
    snprintf(line, sizeof line, "%s [%s] %3.0f%%  %d:%02d left%s%s", p->label, bar, 100 * share,
             (int)left / 60, (int)left % 60, extra != NULL ? "  " : "", extra != NULL ? extra : "");
    int columns = gw_os_columns(STDERR_FILENO); /* a line that wraps could not be removed again */
    columns = columns > 1 ? columns : 80;
    fprintf(stderr, "\r\033[K%.*s", columns - 1, line);
    p->drawn = now;
    p->shown = 1;
}

void progress_end(app_progress *p) {
    if (p->shown) {
        fputs("\r\033[K", stderr);
        p->shown = 0;
    }
}
