/* apps/chat_answer.c - see chat_answer.h. */
#include "apps/chat_answer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/output.h"
#include "core/base/os.h"

int chat_text_add(chat_text *t, const char *text, size_t bytes) {
    if (bytes + 1 > t->capacity - t->bytes) {
        size_t more = t->capacity * 2 + bytes + 4096;
        char *grown = realloc(t->at, more);
        if (grown == NULL) {
            app_error("out of memory");
            return APP_FAILURE;
        }
        t->at = grown;
        t->capacity = more;
    }
    memcpy(t->at + t->bytes, text, bytes);
    t->bytes += bytes;
    t->at[t->bytes] = '\0';
    return APP_OK;
}

static void drop_calls(chat_answer *a) {
    while (a->n_calls > 0) {
        chat_call *c = &a->calls[--a->n_calls];
        free(c->name);
        free(c->id);
        free(c->arguments.at);
    }
}

/* ---- the reader ------------------------------------------------------------------------------ */

/* A reader with these tools (NULL: none) instead of the one there is. */
static int renew(chat_answer *a, const chat_text *tools) {
    const char *choice = a->o->tool_choice;
    int has = tools != NULL && tools->bytes > 0;
    gw_answer_options options = {
        .tool_form = a->o->tool_form,
        .reasoning_form = a->o->reasoning_form,
        .tools = has ? tools->at : NULL,
        .tools_bytes = has ? tools->bytes : 0,
        .whole_calls = 1,
        .id_seed = a->o->seed * 1000003u + a->answers,
    };
    options.chat_template = gw_chat_template(a->chat, &options.chat_template_bytes);
    int none = choice != NULL && strcmp(choice, "none") == 0;
    if (has && choice != NULL && strcmp(choice, "auto") != 0 && (none || !a->after_results)) {
        options.choice = none ? GW_TOOLS_NONE : GW_TOOLS_REQUIRED;
        options.named = none || strcmp(choice, "required") == 0 ? NULL : choice;
    }
    gw_answer *reader = NULL;
    gw_status status = gw_answer_new(a->model, &options, &reader);
    if (status != GW_OK) {
        return app_fail(status);
    }
    gw_answer_free(a->reader);
    a->reader = reader;
    return APP_OK;
}

int chat_answer_open(chat_answer *a, const app_options *o, const gw_model *model,
                     const gw_chat *chat) {
    *a = (chat_answer){.o = o, .model = model, .chat = chat};
    int code = renew(a, NULL);
    return code == APP_OK && o->tools != NULL ? chat_answer_tools(a, o->tools) : code;
}

void chat_answer_close(chat_answer *a) {
    drop_calls(a);
    free(a->calls);
    free(a->tools.at);
    free(a->text.at);
    free(a->thoughts.at);
    gw_grammar_free(a->grammar);
    gw_answer_free(a->reader);
    *a = (chat_answer){0};
}

int chat_answer_tools(chat_answer *a, const char *path) {
    app_text file = {0};
    int code = path != NULL ? app_read_file(path, &file) : APP_OK;
    chat_text tools = {.at = file.at, .bytes = file.bytes, .capacity = file.bytes};
    code = code == APP_OK ? renew(a, &tools) : code;
    if (code != APP_OK) {
        free(file.at);
        return code;
    }
    free(a->tools.at);
    a->tools = tools;
    return APP_OK;
}

int chat_answer_begin(chat_answer *a, const int32_t *prompt, size_t n, int free_text) {
    gw_grammar *grammar = NULL;
    const char *note;
    a->text.bytes = a->thoughts.bytes = 0;
    a->reasoned = a->thinking = 0;
    a->words = 0;
    drop_calls(a);
    a->answers++;
    if (a->tools.bytes > 0 && renew(a, &a->tools) != APP_OK) { /* other ids than before */
        return APP_FAILURE;
    }
    gw_status status = gw_answer_begin(a->reader, prompt, n);
    if (status == GW_OK && a->tools.bytes > 0 && !free_text) {
        status = gw_answer_grammar(a->reader, a->chat, &grammar);
    }
    if (status != GW_OK) {
        return app_fail(status);
    }
    for (size_t i = 0; a->answers == 1 && (note = gw_answer_note(a->reader, i)) != NULL; i++) {
        app_note("[%s]", note);
    }
    gw_grammar_free(a->grammar);
    a->grammar = grammar;
    return APP_OK;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static int has_colour(int fd) {
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && (none == NULL || none[0] == '\0') &&
           !(term != NULL && strcmp(term, "dumb") == 0);
}

static void begin_thinking(chat_answer *a) {
    a->thinking = a->o->show_reasoning ? 2 : 1;
    a->since = app_seconds();
    if (a->thinking == 2) {
        out_text(has_colour(STDOUT_FILENO) ? "\033[2m" : "");
    } else if (isatty(STDERR_FILENO) && !terminal_quiet()) {
        fputs(has_colour(STDERR_FILENO) ? "\033[2mthinking ...\033[0m" : "thinking ...", stderr);
    }
}

static void end_thinking(chat_answer *a) {
    if (a->thinking == 2) {
        out_text(has_colour(STDOUT_FILENO) ? "\033[0m\n\n" : "\n\n");
    } else if (a->thinking == 1 && isatty(STDERR_FILENO) && !terminal_quiet()) {
        const char *dim = has_colour(STDERR_FILENO) ? "\033[2m" : "";
        fprintf(stderr, "%s%s[thought for %.1f s, %zu words; --show-reasoning shows them]%s\n",
                dim[0] != '\0' ? "\r\033[K" : "\r", dim, app_seconds() - a->since, a->words,
                dim[0] != '\0' ? "\033[0m" : "");
    }
    a->thinking = 0;
}

static int show_reasoning(chat_answer *a, const gw_part *p) {
    if (a->thinking == 0) {
        begin_thinking(a);
    }
    a->reasoned = 1;
    for (size_t i = 0; i < p->bytes; i++) {
        a->words += p->text[i] == ' ' || p->text[i] == '\n';
    }
    if (a->thinking == 1) {
        return chat_text_add(&a->thoughts, p->text, p->bytes);
    }
    return out_write(p->text, p->bytes) != 0 ? APP_FAILURE : APP_OK;
}

/* White space in front belongs to the template, not to the answer; but to a grammar it belongs. */
static int show_text(chat_answer *a, const char *text, size_t bytes) {
    if (a->text.bytes == 0 && !a->keep_blank) {
        size_t blank = 0;
        while (blank < bytes && strchr(" \t\r\n", text[blank]) != NULL && text[blank] != '\0') {
            blank++;
        }
        text += blank;
        bytes -= blank;
    }
    if (bytes == 0) {
        return APP_OK;
    }
    if (a->thinking) {
        end_thinking(a);
    }
    int code = chat_text_add(&a->text, text, bytes);
    return code == APP_OK && out_write(text, bytes) != 0 ? APP_FAILURE : code;
}

static int begin_call(chat_answer *a, const gw_part *p) {
    if (a->n_calls == a->capacity) {
        size_t more = a->capacity * 2 + 4;
        chat_call *grown = realloc(a->calls, more * sizeof *grown);
        if (grown == NULL) {
            app_error("out of memory");
            return APP_FAILURE;
        }
        a->calls = grown;
        a->capacity = more;
    }
    chat_call *c = &a->calls[a->n_calls];
    *c = (chat_call){.name = strdup(p->name), .id = strdup(p->id)};
    a->n_calls++;
    if (c->name == NULL || c->id == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    return APP_OK;
}

static int show_call(chat_answer *a) {
    const chat_call *c = &a->calls[a->n_calls - 1];
    int dim = has_colour(STDOUT_FILENO);
    if (a->thinking) {
        end_thinking(a);
    }
    if (a->text.bytes > 0 && a->text.at[a->text.bytes - 1] != '\n' && a->n_calls == 1) {
        out_text("\n");
    }
    return out_print("%s[%s %s]%s\n", dim ? "\033[2m" : "", c->name, c->arguments.at,
                     dim ? "\033[0m" : "") != 0
               ? APP_FAILURE
               : APP_OK;
}

static int take_parts(chat_answer *a, const gw_part *parts, size_t n) {
    int code = APP_OK;
    for (size_t i = 0; i < n && code == APP_OK; i++) {
        const gw_part *p = &parts[i];
        switch (p->kind) {
        case GW_PART_TEXT:
            code = show_text(a, p->text, p->bytes);
            break;
        case GW_PART_REASONING:
            code = show_reasoning(a, p);
            break;
        case GW_PART_CALL:
            code = begin_call(a, p);
            break;
        case GW_PART_ARGUMENTS:
            code = chat_text_add(&a->calls[a->n_calls - 1].arguments, p->text, p->bytes);
            break;
        case GW_PART_CALL_END:
            code = show_call(a);
            break;
        default: /* BROKEN never comes: calls are whole */
            break;
        }
    }
    return code;
}

int chat_answer_more(chat_answer *a, const char *text, size_t bytes, int32_t id) {
    const gw_part *parts = NULL;
    size_t n = 0;
    gw_status status = text != NULL ? gw_answer_push_text(a->reader, text, bytes, &parts, &n)
                                    : gw_answer_push(a->reader, id, &parts, &n);
    return status == GW_OK ? take_parts(a, parts, n) : app_fail(status);
}

int chat_answer_end(chat_answer *a) {
    int code = chat_answer_more(a, NULL, 0, -1);
    int folded = a->thinking == 1;
    if (a->thinking) {
        end_thinking(a);
    }
    /* one that was broken off before it came to an answer: there is nothing else to show */
    if (folded && code == APP_OK && a->text.bytes == 0 && a->n_calls == 0 &&
        a->thoughts.bytes > 0) {
        int ends = a->thoughts.at[a->thoughts.bytes - 1] == '\n';
        code = out_write(a->thoughts.at, a->thoughts.bytes) != 0 ? APP_FAILURE : APP_OK;
        out_text(ends ? "" : "\n");
    }
    return code;
}

/* ---- for the next turn ----------------------------------------------------------------------- */

/* Arguments as an object where they are JSON that can be read, as templates want them. */
static json_t *arguments_json(const chat_call *c) {
    json_t *object = json_loadb(c->arguments.at, c->arguments.bytes, 0, NULL);
    return object != NULL ? object : json_stringn(c->arguments.at, c->arguments.bytes);
}

char *chat_answer_members(const chat_answer *a) {
    json_t *list = json_array();
    char *text = NULL;
    for (size_t i = 0; i < a->n_calls && list != NULL; i++) {
        const chat_call *c = &a->calls[i];
        json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "type", "function", "id", c->id,
                                 "function", "name", c->name, "arguments", arguments_json(c));
        if (json_array_append_new(list, call) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    json_t *members = list != NULL ? json_pack("{s:o}", "tool_calls", list) : NULL;
    if (members != NULL) {
        text = a->n_calls > 0 ? json_dumps(members, JSON_COMPACT) : strdup("");
    }
    json_decref(members);
    if (text == NULL) {
        app_error("out of memory");
    }
    return text;
}
