/* apps/line.c - see line.h. History is libedit's, in a file that only its owner may read. */
#include "apps/line.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#ifdef GODWIT_LIBEDIT
#include <histedit.h>
#endif

#include "apps/output.h"
#include "apps/signals.h"
#include "core/base/os.h"
#include "core/base/save.h"

enum { HISTORY_LINES = 1000, LINE_MAX_BYTES = 64 << 20 };

struct app_lines {
    int terminal;
    /* plain: what has been read, and the line handed out last */
    char *buffer;
    size_t used, capacity, taken;
    int ended;
    int pasted;   /* the line began with a paste */
    int marks;    /* the terminal was asked to mark pastes */
    int in_paste; /* between the marks of a bracketed paste */
#ifdef GODWIT_LIBEDIT
    EditLine *edit; /* NULL: plain */
    History *history;
    FILE *out;
    char *history_path; /* NULL: not kept */
    wchar_t prompt[64];
    wchar_t next; /* a character that follows the one handed out; 0: none */
    char mark[8]; /* bytes after an escape that were read and not yet handed out */
    size_t marked, mark_at;
#endif
};

#ifdef GODWIT_LIBEDIT
/* ---- pastes ---------------------------------------------------------------------------------- */

/* A terminal that was asked to puts these around what is pasted (xterm's bracketed paste). */
static const char paste_begins[] = "\033[200~", paste_ends[] = "\033[201~";
enum { PASTE_MARK = sizeof paste_begins - 1 };

static void ask_for_marks(app_lines *l, FILE *out, int on) {
    if (l->terminal && l->marks != on) {
        l->marks = on;
        fputs(on ? "\033[?2004h" : "\033[?2004l", out);
        fflush(out);
    }
}
#endif

/* ---- plain lines ----------------------------------------------------------------------------- */

static app_line interrupted(app_lines *l) {
    if (!signals_take_interrupt()) {
        return LINE_FAILED;
    }
    l->used = l->taken = 0;
    return LINE_INTERRUPTED;
}

static app_line read_more(app_lines *l) {
    if (l->capacity - l->used < 4096) {
        size_t more = l->capacity * 2 + 8192;
        char *grown = more <= LINE_MAX_BYTES ? realloc(l->buffer, more) : NULL;
        if (grown == NULL) {
            app_error("a line is longer than 32 MiB, or than the memory");
            return LINE_FAILED;
        }
        l->buffer = grown;
        l->capacity = more;
    }
    ssize_t n = signals_read(STDIN_FILENO, l->buffer + l->used, l->capacity - l->used - 1);
    if (n < 0 && errno == EINTR) {
        return interrupted(l);
    }
    if (n < 0) {
        app_error("standard input: cannot read: %s", strerror(errno));
        return LINE_FAILED;
    }
    l->used += n > 0 ? (size_t)n : 0;
    l->ended = n == 0;
    return LINE_TEXT;
}

static app_line read_plain(app_lines *l, const char **text, size_t *bytes) {
    memmove(l->buffer, l->buffer + l->taken, l->used - l->taken);
    l->used -= l->taken;
    l->taken = 0;
    for (size_t seen = 0;;) {
        char *newline = memchr(l->buffer + seen, '\n', l->used - seen);
        if (newline != NULL || (l->ended && l->used > 0)) {
            size_t n = newline != NULL ? (size_t)(newline - l->buffer) : l->used;
            l->taken = newline != NULL ? n + 1 : n;
            *text = l->buffer;
            *bytes = n > 0 && l->buffer[n - 1] == '\r' ? n - 1 : n;
            return LINE_TEXT;
        }
        if (l->ended) {
            l->ended = 0; /* on a terminal the next read may bring more */
            return LINE_END;
        }
        seen = l->used;
        app_line got = read_more(l);
        if (got != LINE_TEXT) {
            return got;
        }
    }
}

/* ---- edited lines ---------------------------------------------------------------------------- */

#ifdef GODWIT_LIBEDIT

static wchar_t *prompt_of(EditLine *edit) {
    app_lines *l = NULL;
    el_get(edit, EL_CLIENTDATA, &l);
    return l->prompt;
}

/* A byte typed, or one read ahead; unlike libedit's own reader it comes back when a signal has been
 * caught. */
static ssize_t next_byte(app_lines *l, char *byte) {
    if (l->mark_at < l->marked) {
        *byte = l->mark[l->mark_at++];
        return 1;
    }
    return signals_read(STDIN_FILENO, byte, 1);
}

/* Is there more within the time that a terminal takes for one key? */
static int more_comes(void) {
    enum { PATIENCE_MS = 50 };
    return gw_os_readable(STDIN_FILENO, PATIENCE_MS);
}

/* Behind an escape: the mark's other bytes, taken when they are all there, else kept to be handed
 * out. */
static int take_mark(app_lines *l, const char *mark) {
    if (l->mark_at < l->marked) {
        return 0; /* these were looked at already */
    }
    l->marked = l->mark_at = 0;
    for (size_t i = 1; i < PASTE_MARK; i++) {
        if (!more_comes() || signals_read(STDIN_FILENO, &l->mark[l->marked], 1) != 1) {
            return 0;
        }
        if (l->mark[l->marked++] != mark[i]) {
            return 0;
        }
    }
    l->marked = 0;
    return 1;
}

static void begin_paste(app_lines *l) {
    const LineInfo *line = el_line(l->edit);
    l->in_paste = 1;
    l->pasted |= line->cursor == line->buffer;
}

/* What would be a key's command: libedit takes what follows its quote key (Ctrl-V) as text. */
static int quoted_character(app_lines *l, wchar_t *out) {
    enum { QUOTE = 22 };
    l->next = *out == L'\r' ? L'\n' : *out;
    *out = QUOTE;
    return 1;
}

/* One character; what is not UTF-8 becomes U+FFFD. Control characters of a paste come quoted, and a
 * line end at the end of a paste is only that of a whole line. */
static int read_character(EditLine *edit, wchar_t *out) {
    mbstate_t state = {0};
    app_lines *l = NULL;
    el_get(edit, EL_CLIENTDATA, &l);
    if (l->next != 0) {
        *out = l->next;
        l->next = 0;
        return 1;
    }
    ask_for_marks(l, l->out, 1); /* after the prompt, and off before the line's end is echoed */
    for (;;) {
        char byte;
        ssize_t n = next_byte(l, &byte);
        if (n <= 0) {
            return (int)n;
        }
        if (byte == '\033' && take_mark(l, l->in_paste ? paste_ends : paste_begins)) {
            if (l->in_paste) {
                l->in_paste = 0;
            } else {
                begin_paste(l);
            }
            continue;
        }
        byte = byte == '\0' ? 4 : byte; /* a Ctrl-D typed before libedit had the terminal */
        size_t done = mbrtowc(out, &byte, 1, &state);
        if (done == (size_t)-1) {
            *out = 0xFFFD;
            return 1;
        }
        if (done != (size_t)-2) {
            if (l->in_paste && (*out < 32 || *out == 127)) {
                return quoted_character(l, out);
            }
            if (*out == L'\r' || *out == L'\n') {
                ask_for_marks(l, l->out, 0);
            }
            return 1;
        }
    }
}

/* mkdir -p for the folder of path. */
static int make_folders(char *path) {
    for (char *at = strpbrk(path + 1, GW_OS_SLASHES); at != NULL;
         at = strpbrk(at + 1, GW_OS_SLASHES)) {
        *at = '\0';
        int failed = mkdir(path, 0700) != 0 && errno != EEXIST;
        *at = '/';
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* malloc'd; NULL: nowhere to keep it. */
static char *history_path(const char *name) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    int n = state != NULL && gw_os_is_absolute(state) ? asprintf(&path, "%s/godwit/%s", state, name)
            : home != NULL && gw_os_is_absolute(home)
                ? asprintf(&path, "%s/.local/state/godwit/%s", home, name)
                : -1;
    return n < 0 ? NULL : path;
}

static void save_history(app_lines *l) {
    HistEvent event;
    gw_save save;
    if (l->history_path == NULL || make_folders(l->history_path) != 0 ||
        gw_save_begin(&save, l->history_path, 0600, 0) != GW_OK) {
        return; /* a home that cannot be written is no reason to complain */
    }
    int fd = dup(save.fd);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    int saved = file != NULL ? history(l->history, &event, H_SAVE_FP, file) : -1;
    if (file != NULL) {
        saved = fclose(file) == 0 ? saved : -1;
    } else if (fd >= 0) {
        close(fd);
    }
    if (saved < 0) {
        gw_save_drop(&save);
    } else {
        (void)gw_save_end(&save);
    }
}

static void open_editor(app_lines *l, const char *name) {
    HistEvent event;
    const char *term = getenv("TERM");
    if (term == NULL || strcmp(term, "dumb") == 0) {
        return;
    }
    if (setlocale(LC_CTYPE, "") == NULL || MB_CUR_MAX == 1) {
        setlocale(LC_CTYPE, "C.UTF-8"); /* texts are UTF-8 whatever the locale says */
    }
    l->out = isatty(STDOUT_FILENO) ? stdout : stderr;
    l->edit = el_init("godwit", stdin, l->out, stderr);
    l->history = l->edit != NULL ? history_init() : NULL;
    if (l->history == NULL) {
        if (l->edit != NULL) {
            el_end(l->edit);
            l->edit = NULL;
        }
        return;
    }
    l->history_path = history_path(name);
    history(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history(l->history, &event, H_SETUNIQUE, 1);
    if (l->history_path != NULL) {
        history(l->history, &event, H_LOAD, l->history_path);
    }
    el_set(l->edit, EL_CLIENTDATA, l);
    el_wset(l->edit, EL_PROMPT, prompt_of);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_HIST, history, l->history);
    el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(l->edit, EL_BIND, "\\e[1;5C", "em-next-word", NULL);
    el_set(l->edit, EL_BIND, "\\e[1;5D", "ed-prev-word", NULL);
    el_set(l->edit, EL_BIND, "\\e[3~", "ed-delete-next-char", NULL);
    el_set(l->edit, EL_BIND, "\\e[H", "ed-move-to-beg", NULL);
    el_set(l->edit, EL_BIND, "\\e[F", "ed-move-to-end", NULL);
    el_wset(l->edit, EL_GETCFN, read_character);
    el_source(l->edit, NULL); /* ~/.editrc */
}

static void close_editor(app_lines *l) {
    if (l->edit != NULL) {
        save_history(l);
        history_end(l->history);
        el_end(l->edit);
    }
    free(l->history_path);
}

static app_line read_edited(app_lines *l, const char *prompt, const char **text, size_t *bytes) {
    int n = 0;
    mbstate_t state = {0};
    size_t room = sizeof l->prompt / sizeof l->prompt[0];
    if (mbsrtowcs(l->prompt, &prompt, room, &state) >= room) {
        l->prompt[0] = L'\0';
    }
    out_flush();
    l->pasted = l->in_paste = 0;
    el_set(l->edit, EL_PREP_TERM, 1); /* el_gets does it only after the prompt: keys typed at once
                                       * would be echoed twice */
    const char *line = el_gets(l->edit, &n);
    ask_for_marks(l, l->out, 0);
    if (signals_caught() != 0) {
        const LineInfo *info = el_line(l->edit);
        *bytes = (size_t)(info->lastchar - info->buffer);
        fputc('\n', l->out);
        fflush(l->out);
        el_reset(l->edit);
        return interrupted(l);
    }
    if (line == NULL || n <= 0) {
        fputc('\n', l->out);
        fflush(l->out);
        return LINE_END;
    }
    size_t length = (size_t)n;
    if (strspn(line, " \t\r\n") < length) {
        HistEvent event;
        history(l->history, &event, H_ENTER, line);
    }
    length -= line[length - 1] == '\n';
    *text = line;
    *bytes = length;
    return LINE_TEXT;
}

#endif

/* ---- both ------------------------------------------------------------------------------------ */

app_lines *lines_open(const char *name) {
    app_lines *l = calloc(1, sizeof *l);
    char *buffer = malloc(8192);
    if (l == NULL || buffer == NULL) {
        free(l);
        free(buffer);
        app_error("out of memory");
        return NULL;
    }
    l->buffer = buffer;
    l->capacity = 8192;
    l->terminal = isatty(STDIN_FILENO);
#ifdef GODWIT_LIBEDIT
    if (l->terminal) {
        open_editor(l, name);
    }
#else
    (void)name;
#endif
    return l;
}

void lines_close(app_lines *lines) {
    if (lines == NULL) {
        return;
    }
#ifdef GODWIT_LIBEDIT
    close_editor(lines);
#endif
    free(lines->buffer);
    free(lines);
}

int lines_on_terminal(const app_lines *lines) { return lines->terminal; }
int lines_pasted(const app_lines *lines) { return lines->pasted; }

app_line lines_read(app_lines *lines, const char *prompt, const char **text, size_t *bytes) {
#ifdef GODWIT_LIBEDIT
    if (lines->edit != NULL) {
        return read_edited(lines, prompt, text, bytes);
    }
#endif
    out_flush();
    if (lines->terminal) {
        fputs(prompt, stderr);
    }
    return read_plain(lines, text, bytes);
}
