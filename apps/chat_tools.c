/* apps/chat_tools.c - see chat_tools.h. Nothing is run that the command line does not name. */
#include "apps/chat_tools.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/chat_run.h"
#include "apps/terminal.h"

const char *chat_tool_command(const app_options *o, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < o->tool_commands.n; i++) {
        const char *rule = o->tool_commands.at[i];
        if (strcspn(rule, "=") == n && memcmp(rule, name, n) == 0) {
            return rule + n + 1;
        }
    }
    return NULL;
}

int chat_tool_check(const app_options *o) {
    for (size_t i = 0; i < o->tool_commands.n; i++) {
        const char *equals = strchr(o->tool_commands.at[i], '=');
        if (equals == NULL || equals == o->tool_commands.at[i] || equals[1] == '\0') {
            app_error("--tool-command: '%s' is not NAME=COMMAND", o->tool_commands.at[i]);
            return APP_USAGE;
        }
    }
    return APP_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

void chat_run_late(double timeout, char why[CHAT_WHY]) {
    snprintf(why, CHAT_WHY, "\nerror: the command took longer than %g s and was ended", timeout);
}

void chat_run_ended(int code, char why[CHAT_WHY]) {
    if (code != 0) {
        snprintf(why, CHAT_WHY, "\nerror: the command failed with code %d", code);
    }
}

int chat_tool_run(const app_options *o, const char *command, const chat_call *call,
                  chat_text *out) {
    char why[CHAT_WHY] = "";
    fflush(NULL);
    int code = chat_run(command, &call->arguments, o->tool_timeout, out, why);
    if (code < 0) {
        app_error("cannot run the command of %s: %s", call->name, strerror(errno));
        return APP_FAILURE;
    }
    if (out->bytes > 0 && out->at[out->bytes - 1] == '\n') {
        out->at[--out->bytes] = '\0';
    }
    const char *line = out->bytes == 0 && why[0] != '\0' ? why + 1 : why;
    return code == APP_OK ? chat_text_add(out, line, strlen(line)) : code;
}

/* ---- the list -------------------------------------------------------------------------------- */

void chat_tools_list(const chat_answer *a) {
    json_t *list = a->tools.bytes > 0 ? json_loadb(a->tools.at, a->tools.bytes, 0, NULL) : NULL;
    json_t *item;
    size_t i;
    fprintf(stderr, "calls as %s, reasoning as %s\n", gw_answer_tool_form(a->reader),
            gw_answer_reasoning_form(a->reader));
    if (json_array_size(list) == 0) {
        fputs("no tools: /tools FILE loads them\n", stderr);
    }
    json_array_foreach(list, i, item) {
        json_t *function = json_object_get(item, "function");
        const char *name =
            json_string_value(json_object_get(function != NULL ? function : item, "name"));
        const char *command = name != NULL ? chat_tool_command(a->o, name) : NULL;
        if (name != NULL) {
            fprintf(stderr, "  %-24s %s\n", name, command != NULL ? command : "result is typed");
        }
    }
    json_decref(list);
}
