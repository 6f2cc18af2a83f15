/* apps/manual.c - the man page and shell completions, written from the option table when the
 * program is built: `godwit help --man`, `godwit help --completion bash|zsh|fish`. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "apps/common.h"
#include "apps/output.h"

/* The i-th name of a row, 0 after the last. */
static size_t name_at(const app_option *row, int i, const char **name) {
    const char *at = row->names;
    for (;; i--) {
        at += strspn(at, " ");
        size_t n = strcspn(at, " ");
        if (n == 0 || i == 0) {
            *name = at;
            return n;
        }
        at += n;
    }
}

static int is_file(const app_option *row) {
    return row->value != NULL &&
           (strstr(row->value, "FILE") != NULL || strstr(row->value, "PATH") != NULL ||
            strncmp(row->value, "MODEL", 5) == 0);
}

/* Text with every character of `special` after a backslash. */
static void escaped(const char *text, size_t n, const char *special) {
    for (size_t i = 0; i < n; i++) {
        if (strchr(special, text[i]) != NULL) {
            out_text("\\");
        }
        out_write(text + i, 1);
    }
}

/* Text inside '...' of a shell. */
static void quoted(const char *text) {
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\'') {
            out_text("'\\''");
        } else {
            out_write(c, 1);
        }
    }
}

static int has_choices(const app_option *row) {
    return row->kind == KIND_CHOICE || row->kind == KIND_PAIR || row->kind == KIND_MODE;
}

/* The choices of a row as words: 'a|b' -> 'a b'. */
static void choices(const app_option *row) {
    for (const char *c = row->value; *c != '\0'; c++) {
        out_write(*c == '|' ? " " : c, 1);
    }
}

/* ---- man page -------------------------------------------------------------------------------- */

static void roff(const char *text) {
    int begins = 1;
    for (const char *c = text; *c != '\0'; c++) {
        if (begins && (*c == '.' || *c == '\'')) {
            out_text("\\&");
        }
        if (*c == '\\') {
            out_text("\\e");
        } else if (*c == '-') {
            out_text("\\-");
        } else if (*c == '\'') {
            out_text("\\(aq");
        } else if (*c == '|') {
            out_text("|\\:"); /* a line may end there */
        } else {
            out_write(c, 1);
        }
        begins = *c == '\n';
    }
}

static void man_option(const app_option *row) {
    const char *name;
    out_text(".TP\n");
    for (int i = 0;; i++) {
        size_t n = name_at(row, i, &name);
        if (n == 0) {
            break;
        }
        out_text(i > 0 ? ", \\fB" : "\\fB");
        escaped(name, n, "-");
        out_text("\\fR");
    }
    if (row->value != NULL) {
        out_text(" \\fI");
        roff(row->value);
        out_text("\\fR");
    }
    out_text("\n");
    roff(row->help);
    if (row->preset != NULL) {
        out_text(" (default ");
        roff(row->preset);
        out_text(")");
    }
    out_text("\n");
}

static void man_command(const app_command *c) {
    out_print(".SH \"GODWIT ");
    for (const char *p = c->name; *p != '\0'; p++) {
        out_print("%c", toupper((unsigned char)*p));
    }
    out_text("\"\n\\fBgodwit ");
    out_text(c->name);
    out_text("\\fR ");
    roff(c->usage);
    out_text("\n.PP\n");
    roff(c->detail);
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        if ((row->commands & c->bit) != 0) {
            man_option(row);
        }
    }
    out_text(".PP\nExamples:\n.PP\n.nf\n");
    roff(c->examples);
    out_text(".fi\n");
}

static void man_page(void) {
    out_text(
        ".TH GODWIT 1 \"\" \"godwit " GW_VERSION "\" \"User Commands\"\n.SH NAME\n"
        "godwit \\- run transformer language models\n.SH SYNOPSIS\n"
        "\\fBgodwit\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
        "Runs transformer language models from GGUF files and Hugging Face folders, on the "
        "CPU and on GPUs. Answers go to standard output, everything else to standard error.\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print(".TP\n\\fB%s\\fR\n", app_commands[i]->name);
        roff(app_commands[i]->summary);
        out_text("\n");
    }
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        man_command(app_commands[i]);
    }
    out_text(".SH ENVIRONMENT\n.TP\n\\fBGODWIT_ARG_\\fINAME\\fR\n"
             "sets the option with that long name, in capitals and with underscores; the argument "
             "wins.\n.TP\n\\fBGODWIT_CPU\\fR\ncaps the instruction set: scalar, avx2, avx512, "
             "vnni, amx, "
             "neon, i8mm, rvv.\n.TP\n\\fBNO_COLOR\\fR\nno colours.\n.TP\n\\fBXDG_STATE_HOME\\fR\n"
             "where the lines typed in a chat are kept.\n.SH EXIT STATUS\n"
             "0 done, 1 failure (one line on standard error says what, where and what to do), 2 "
             "wrong usage, 130 stopped by Ctrl\\-C, 143 by SIGTERM.\n");
}

/* ---- completions ----------------------------------------------------------------------------- */

static void command_names(void) {
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print("%s ", app_commands[i]->name);
    }
    out_text("help");
}

static void all_names(const app_option *row, const char *between) {
    const char *name;
    size_t n;
    for (int i = 0; (n = name_at(row, i, &name)) != 0; i++) {
        out_text(i > 0 ? between : "");
        out_write(name, n);
    }
}

static void bash_command(const app_command *c, int values) {
    const char *name;
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        if ((row->commands & c->bit) == 0 || (values && !has_choices(row))) {
            continue;
        }
        if (!values) {
            all_names(row, " ");
            out_text(" ");
            continue;
        }
        size_t n;
        out_text("    ");
        for (int i = 0; (n = name_at(row, i, &name)) != 0; i++) {
            out_print("%s%s:%.*s", i > 0 ? "|" : "", c->name, (int)n, name);
        }
        out_text(") words=\"");
        choices(row);
        out_text("\" ;;\n");
    }
}

static void bash(void) {
    out_text("# bash completion for godwit, written from its option table\n_godwit() {\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\"\"\n"
             "    COMPREPLY=()\n"
             "    if [ \"$COMP_CWORD\" -eq 1 ] || [ \"${COMP_WORDS[1]}\" = help ]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"");
    command_names();
    out_text(" --help --version\" -- \"$cur\")\n        return\n    fi\n"
             "    case ${COMP_WORDS[1]}:$prev in\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        bash_command(app_commands[i], 1);
    }
    out_text("    esac\n    if [ -z \"$words\" ] && [ \"${cur:0:1}\" = - ]; then\n"
             "        case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print("        %s) words=\"", app_commands[i]->name);
        bash_command(app_commands[i], 0);
        out_text("\" ;;\n");
    }
    out_text("        esac\n    fi\n    if [ -n \"$words\" ]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n    fi\n}\n"
             "complete -o default -F _godwit godwit\n"); /* nothing found: file names */
}

static void zsh_option(const app_option *row) {
    const char *name;
    size_t n;
    int many = row->kind == KIND_TEXTS || row->kind == KIND_BIAS;
    for (int i = 0; (n = name_at(row, i, &name)) != 0; i++) {
        out_print("      '%s%.*s[", many ? "*" : "", (int)n, name);
        for (const char *c = row->help; *c != '\0'; c++) {
            out_text(*c == '\'' ? "'\\''" : *c == '[' || *c == ']' || *c == '\\' ? "\\" : "");
            if (*c != '\'') {
                out_write(c, 1);
            }
        }
        out_text("]");
        if (has_choices(row)) {
            out_text(":value:(");
            choices(row);
            out_text(")");
        } else if (row->kind != KIND_FLAG) {
            out_text(is_file(row) ? ":file:_files" : ":value: ");
        }
        out_text("' \\\n");
    }
}

static void zsh(void) {
    out_text("#compdef godwit\n# zsh completion for godwit, written from its option table\n"
             "_godwit() {\n  if (( CURRENT == 2 )); then\n    local -a commands=(\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print("      '%s:", app_commands[i]->name);
        quoted(app_commands[i]->summary);
        out_text("'\n");
    }
    out_text("      'help:options and examples of a command'\n    )\n"
             "    _describe command commands\n    return\n  fi\n  local command=$words[2]\n"
             "  shift words\n  (( CURRENT-- ))\n  case $command in\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print("  %s)\n    _arguments \\\n", app_commands[i]->name);
        for (const app_option *row = app_option_table; row->names != NULL; row++) {
            if ((row->commands & app_commands[i]->bit) != 0) {
                zsh_option(row);
            }
        }
        if (app_commands[i]->operand != NULL) {
            out_text("      ':file:_files' \\\n");
        }
        out_text("      && return\n    ;;\n");
    }
    out_text("  esac\n}\n_godwit \"$@\"\n");
}

static void fish_option(const app_option *row) {
    const char *name;
    size_t n;
    out_text("complete -c godwit -n '__fish_seen_subcommand_from");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        if ((row->commands & app_commands[i]->bit) != 0) {
            out_print(" %s", app_commands[i]->name);
        }
    }
    out_text("'");
    for (int i = 0; (n = name_at(row, i, &name)) != 0; i++) {
        int dashes = n > 2 && name[1] == '-' ? 2 : 1;
        out_print(" %s %.*s",
                  dashes == 2 ? "-l"
                  : n == 2    ? "-s"
                              : "-o",
                  (int)n - dashes, name + dashes);
    }
    if (has_choices(row)) {
        out_text(" -x -a '");
        choices(row);
        out_text("'");
    } else if (row->kind != KIND_FLAG) {
        out_text(is_file(row) ? " -r -F" : " -x");
    }
    out_text(" -d '");
    for (const char *c = row->help; *c != '\0'; c++) {
        out_text(*c == '\'' || *c == '\\' ? "\\" : "");
        out_write(c, 1);
    }
    out_text("'\n");
}

static void fish(void) {
    out_text("# fish completion for godwit, written from its option table\n"
             "complete -c godwit -f\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print("complete -c godwit -n __fish_use_subcommand -a %s -d '", app_commands[i]->name);
        for (const char *c = app_commands[i]->summary; *c != '\0'; c++) {
            out_text(*c == '\'' || *c == '\\' ? "\\" : "");
            out_write(c, 1);
        }
        out_text("'\n");
    }
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        if (app_commands[i]->operand != NULL) {
            out_print("complete -c godwit -n '__fish_seen_subcommand_from %s' -F\n",
                      app_commands[i]->name);
        }
    }
    out_text("complete -c godwit -n __fish_use_subcommand -a help -d 'options and examples'\n");
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        if (row->commands != 0) {
            fish_option(row);
        }
    }
}

int manual_write(const char *what, const char *shell) {
    if (strcmp(what, "--man") == 0 && shell == NULL) {
        man_page();
    } else if (strcmp(what, "--completion") == 0 && shell != NULL && strcmp(shell, "bash") == 0) {
        bash();
    } else if (strcmp(what, "--completion") == 0 && shell != NULL && strcmp(shell, "zsh") == 0) {
        zsh();
    } else if (strcmp(what, "--completion") == 0 && shell != NULL && strcmp(shell, "fish") == 0) {
        fish();
    } else {
        app_error("'godwit help' takes a command, --man, or --completion bash, zsh or fish");
        return APP_USAGE;
    }
    return out_close() == 0 ? APP_OK : APP_FAILURE;
}
