/* apps/help.c - help text, made from the option table. */
#include <stdio.h>
#include <string.h>

#include "apps/options.h"
#include "apps/output.h"

enum { LEFT = 30, WIDTH = 100 };

/* "  -m, --model PATH" into line. */
static size_t left_column(const app_option *row, char *line, size_t capacity) {
    size_t used = (size_t)snprintf(line, capacity, " ");
    const char *at = row->names;
    for (int i = 0;; i++) {
        at += strspn(at, " ");
        size_t n = strcspn(at, " ");
        if (n == 0) {
            break;
        }
        used += (size_t)snprintf(line + used, capacity - used, "%s%.*s", i > 0 ? ", " : " ", (int)n,
                                 at);
        at += n;
    }
    if (row->value != NULL) {
        used += (size_t)snprintf(line + used, capacity - used,
                                 row->kind == KIND_MODE ? " [%s]" : " %s", row->value);
    }
    return used;
}

/* "(default 40; 0 to 2147483647)" or nothing. */
static void limits(const app_option *row, char *text, size_t capacity) {
    char range[64] = "";
    int numbers = row->kind == KIND_INT || row->kind == KIND_INTS || row->kind == KIND_REAL;
    if (numbers && row->max == 2147483647.0) {
        snprintf(range, sizeof range, "%.0f or more", row->min);
    } else if (numbers) {
        snprintf(range, sizeof range, "%.8g to %.8g", row->min, row->max);
    }
    if (row->preset != NULL && range[0] != '\0') {
        snprintf(text, capacity, " (default %s; %s)", row->preset, range);
    } else if (row->preset != NULL) {
        snprintf(text, capacity, " (default %s)", row->preset);
    } else if (range[0] != '\0') {
        snprintf(text, capacity, " (%s)", range);
    } else {
        text[0] = '\0';
    }
}

/* Words of text from column LEFT on; the cursor is at column `used`. */
static void wrapped(const char *text, size_t used) {
    if (used >= LEFT) {
        out_text("\n");
        used = 0;
    }
    out_print("%*s", (int)(LEFT - used), "");
    size_t column = LEFT;
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, " ");
        if (column > LEFT && column + 1 + n > WIDTH) {
            out_print("\n%*s", LEFT, "");
            column = LEFT;
        } else if (column > LEFT) {
            out_text(" ");
            column++;
        }
        out_write(at, n);
        column += n;
        at += n;
        at += strspn(at, " ");
    }
    out_text("\n");
}

static void print_option(const app_option *row) {
    char line[512], text[512], ends[128];
    size_t used = left_column(row, line, sizeof line);
    limits(row, ends, sizeof ends);
    snprintf(text, sizeof text, "%s%s", row->help, ends);
    out_text(line);
    wrapped(text, used);
}

/* The most used options, or all of them under the headings of the table. Returns how many are not
 * shown. */
static int print_options(const app_command *command, int all) {
    const char *heading = NULL;
    int hidden = 0;
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        if (row->names[0] == '\0') {
            heading = row->help;
        } else if ((row->commands & command->bit) != 0 && (all || (row->commands & CMD_BRIEF))) {
            if (all && heading != NULL) {
                out_print("\n %s:\n", heading);
                heading = NULL;
            }
            print_option(row);
        } else {
            hidden += (row->commands & command->bit) != 0;
        }
    }
    return hidden;
}

int help_command(const app_command *command, int all) {
    out_print("godwit %s - %s\n\nusage: godwit %s %s\n\n%s\n%s:\n", command->name, command->summary,
              command->name, command->usage, command->detail,
              all ? "options" : "most used options");
    int hidden = print_options(command, all);
    if (hidden > 0) {
        out_print("\n%d more, in groups: godwit %s --help all\n", hidden, command->name);
    }
    if (all) {
        out_text(
            "\nAn option can be set by a variable as well: GODWIT_ARG_ and its long name, as in\n"
            "GODWIT_ARG_THREADS=4 or GODWIT_ARG_QUIET=1. The argument wins. GODWIT_CPU=scalar,\n"
            "avx2, avx512, vnni, amx, neon, i8mm or rvv caps the instruction set.\n");
    }
    out_print("\nexamples:\n%s", command->examples);
    return out_close() == 0 ? APP_OK : APP_FAILURE;
}
