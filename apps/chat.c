/* apps/chat.c - `godwit chat`: lines in, answers out, and the commands that begin with a slash. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/chat_tools.h"
#include "apps/conversation.h"
#include "apps/line.h"
#include "apps/output.h"
#include "apps/signals.h"

typedef struct chat_job {
    const app_options *o;
    conversation c;
    app_lines *lines;
    chat_text pasted; /* a message of several lines */
    int is_pasted;    /* it was not typed: text, whatever it begins with */
    int done;
    int interrupts; /* Ctrl-C at the prompt, one after the other */
} chat_job;

/* What was asked for is said even under --quiet. */
static void say(const char *text) { fputs(text, stderr); }

/* ---- slash commands -------------------------------------------------------------------------- */

typedef struct slash {
    const char *name, *value, *help;
    int (*run)(chat_job *job, const char *rest);
} slash;

static int slash_help(chat_job *job, const char *rest);
static int turn(chat_job *job, const char *text, size_t bytes);

static int slash_exit(chat_job *job, const char *rest) {
    (void)rest;
    job->done = 1;
    return APP_OK;
}

static int slash_reset(chat_job *job, const char *rest) {
    (void)rest;
    conversation_reset(&job->c);
    app_note("a new conversation");
    return APP_OK;
}

static int slash_system(chat_job *job, const char *rest) {
    if (rest[0] != '\0') {
        return conversation_set_system(&job->c, rest, strlen(rest));
    }
    const gw_chat_message *system = conversation_system(&job->c);
    if (system == NULL) {
        say("no system message\n");
    } else {
        fprintf(stderr, "%.*s\n", (int)system->bytes, system->text);
    }
    return APP_OK;
}

static int needs_file(const char *name, const char *rest) {
    if (rest[0] == '\0') {
        app_error("%s needs a file name", name);
        return APP_FAILURE;
    }
    return APP_OK;
}

static int slash_save(chat_job *job, const char *rest) {
    int code = needs_file("/save", rest);
    if (code == APP_OK) {
        code = conversation_save(&job->c, rest);
    }
    if (code == APP_OK) {
        app_note("%zu messages saved", job->c.n);
    }
    return code;
}

static int load(chat_job *job, const char *path) {
    int code = conversation_load(&job->c, path);
    if (code != APP_OK) {
        return code;
    }
    app_note("%zu messages loaded", job->c.n);
    const char *last = job->c.messages[job->c.n - 1].role;
    int waits = strcmp(last, "user") == 0 || strcmp(last, "tool") == 0;
    return waits ? turn(job, NULL, 0) : APP_OK;
}

static int slash_load(chat_job *job, const char *rest) {
    int code = needs_file("/load", rest);
    return code == APP_OK ? load(job, rest) : code;
}

static int slash_tools(chat_job *job, const char *rest) {
    int code = rest[0] != '\0'
                   ? conversation_tools(&job->c, strcmp(rest, "none") == 0 ? NULL : rest)
                   : APP_OK;
    if (code == APP_OK) {
        chat_tools_list(&job->c.answer);
    }
    return code;
}

static int slash_image(chat_job *job, const char *rest) {
    int code = needs_file("/image", rest);
    code = code == APP_OK ? conversation_image(&job->c, rest) : code;
    if (code == APP_OK) {
        app_note("the next message shows it");
    }
    return code;
}

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

static int slash_stats(chat_job *job, const char *rest) {
    const conversation *c = &job->c;
    const chat_turn *t = &c->last;
    (void)rest;
    fprintf(stderr, "model   %s, %s %s; %s\n", c->g.info.name, c->g.info.architecture,
            c->g.info.format, c->g.info.device);
    fprintf(stderr, "chat    template %s (%s), %zu messages, %zu of %zu tokens, seed %" PRIu64 "\n",
            gw_chat_name(c->chat), gw_chat_origin(c->chat), c->n, c->n_held, c->n_ctx,
            job->o->seed);
    if (c->turns > 0) {
        fprintf(stderr,
                "turn    %d tokens kept, %d read in %.3f s; %d written at %.1f tok/s, first after "
                "%.3f s; %s\n",
                (int)t->kept, (int)t->read, t->read_seconds, (int)t->written,
                rate(t->timed, t->text_seconds), t->first_seconds + t->read_seconds, t->ended);
        fprintf(stderr, "all     %d turns, %d tokens read in %.3f s, %d written in %.3f s\n",
                (int)c->turns, (int)c->read, c->read_seconds, (int)c->written, c->text_seconds);
    }
    if (c->g.draft.drafter != NULL && c->turns > 0) {
        draft_note(job->o, &c->g.draft);
    }
    return APP_OK;
}

static const slash commands[] = {
    {"/help", "", "this list", slash_help},
    {"/reset", "", "forget the conversation, but not the system message", slash_reset},
    {"/system", " [TEXT]", "say what the model is told before everything, or show it",
     slash_system},
    {"/save", " FILE", "write the conversation as JSON", slash_save},
    {"/load", " FILE", "go on with a saved conversation", slash_load},
    {"/image", " FILE", "a picture in front of the next message (JPEG, PNG, WebP)", slash_image},
    {"/tools", " [FILE]", "tools that the model may call, or `none`; show them", slash_tools},
    {"/stats", "", "tokens, speeds, context", slash_stats},
    {"/exit", "", "end; so do Ctrl-D and two Ctrl-C at the prompt", slash_exit},
    {"/quit", "", "the same", slash_exit},
};
enum { SLASHES = sizeof commands / sizeof commands[0] };

static int slash_help(chat_job *job, const char *rest) {
    (void)job;
    (void)rest;
    for (int i = 0; i < SLASHES; i++) {
        char left[32];
        snprintf(left, sizeof left, "%s%s", commands[i].name, commands[i].value);
        fprintf(stderr, "  %-16s %s\n", left, commands[i].help);
    }
    say("Several lines that are pasted are one message, and a / in front of them is text.\n"
        "A line that ends in \\ goes on in the next; \"\"\" begins and ends a message of several\n"
        "lines; a space before a / makes it text. Ctrl-C stops an answer.\n");
    return APP_OK;
}

static int run_slash(chat_job *job, const char *line) {
    size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    for (int i = 0; i < SLASHES; i++) {
        if (strlen(commands[i].name) == n && memcmp(commands[i].name, line, n) == 0) {
            if (commands[i].value[0] == '\0' && rest[0] != '\0') {
                app_error("%s takes no value", commands[i].name);
                return APP_FAILURE;
            }
            return commands[i].run(job, rest);
        }
    }
    app_error("%.*s is no command: /help lists them; a space in front makes it text",
              n < 60 ? (int)n : 60, line);
    return APP_FAILURE;
}

/* ---- messages of several lines --------------------------------------------------------------- */

static int is_fence(const char *text, size_t bytes) {
    return bytes >= 3 && memcmp(text, "\"\"\"", 3) == 0;
}

/* The whole message that begins on the prompt `fresh`, in job->pasted. */
static app_line read_message(chat_job *job, const char *fresh, size_t *dropped) {
    static const char more[] = ". ";
    chat_text *t = &job->pasted;
    const char *text;
    size_t bytes = 0;
    t->bytes = 0;
    job->is_pasted = 0;
    app_line got = lines_read(job->lines, fresh, &text, &bytes);
    if (got != LINE_TEXT) {
        *dropped = bytes;
        return got;
    }
    job->is_pasted = lines_pasted(job->lines);
    if (job->is_pasted) {
        return chat_text_add(t, text, bytes) == APP_OK ? LINE_TEXT : LINE_FAILED;
    }
    int fenced = is_fence(text, bytes);
    text += fenced ? 3 : 0;
    bytes -= fenced ? 3 : 0;
    for (;;) {
        int closes = fenced && bytes >= 3 && is_fence(text + bytes - 3, 3);
        int goes_on = fenced ? !closes : bytes > 0 && text[bytes - 1] == '\\';
        size_t own = bytes - (closes ? 3 : !fenced && goes_on ? 1 : 0);
        if (chat_text_add(t, text, own) != APP_OK) {
            return LINE_FAILED;
        }
        if (!goes_on) {
            return LINE_TEXT;
        }
        if (!(fenced && t->bytes == 0) && chat_text_add(t, "\n", 1) != APP_OK) {
            return LINE_FAILED;
        }
        got = lines_read(job->lines, more, &text, &bytes);
        *dropped = 1; /* the lines before */
        if (got == LINE_END) {
            return LINE_TEXT; /* the end of the file closes what is open */
        }
        if (got != LINE_TEXT) {
            return got;
        }
    }
}

/* ---- tools ------------------------------------------------------------------------------------
 */

/* The result of one call; *given 0: nobody gave one. */
static int take_result(chat_job *job, const chat_call *call, int *given) {
    const char *command = chat_tool_command(job->o, call->name);
    chat_text out = {0};
    *given = 1;
    if (command != NULL) {
        int code = chat_tool_run(job->o, command, call, &out);
        code = code == APP_OK ? conversation_result(&job->c, call, out.at, out.bytes) : code;
        free(out.at);
        return code;
    }
    char prompt[120];
    size_t dropped = 0;
    snprintf(prompt, sizeof prompt, "result of %.80s> ", call->name);
    if (read_message(job, prompt, &dropped) != LINE_TEXT) {
        *given = 0;
        return APP_OK;
    }
    return conversation_result(&job->c, call, job->pasted.at, job->pasted.bytes);
}

/* Results for the calls of the last answer, and the answers to those, until there is no call. */
static int answer_calls(chat_job *job) {
    int code = APP_OK;
    for (int round = 0; code == APP_OK && conversation_call(&job->c, 0) != NULL; round++) {
        size_t before = job->c.n;
        int given = round < CHAT_TOOL_ROUNDS;
        if (!given) {
            app_note("[%d rounds of calls: enough]", CHAT_TOOL_ROUNDS);
        }
        const chat_call *call;
        for (size_t i = 0; given && code == APP_OK; i++) {
            call = conversation_call(&job->c, i);
            if (call == NULL) {
                break;
            }
            code = take_result(job, call, &given);
        }
        if (!given || code != APP_OK) { /* a call without its result is none that was made */
            conversation_cut(&job->c, before - 1);
            return code;
        }
        code = conversation_go_on(&job->c);
    }
    return code;
}

static int turn(chat_job *job, const char *text, size_t bytes) {
    int code = conversation_turn(&job->c, text, bytes);
    return code == APP_OK ? answer_calls(job) : code;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int take_message(chat_job *job) {
    const chat_text *t = &job->pasted;
    if (t->bytes == 0 || strspn(t->at, " \t") == t->bytes) {
        return APP_OK;
    }
    if (t->at[0] == '/' && !job->is_pasted) {
        return run_slash(job, t->at);
    }
    int code = turn(job, t->at, t->bytes);
    job->done = job->done || job->o->single_turn;
    if (code == APP_OK && strcmp(job->c.last.ended, "context full") == 0) {
        app_note("[the context of %zu tokens is full: the answer is cut; /reset begins anew, -c "
                 "sets the size]",
                 job->c.n_ctx);
    } else if (code == APP_OK && strcmp(job->c.last.ended, "as long as the context") == 0) {
        app_note("[the answer is as long as the context and is cut; -n sets another limit, "
                 "--context-shift sets none]");
    } else if (code == APP_OK && strncmp(job->c.last.ended, "stopped", 7) == 0) {
        app_note("[%s]", job->c.last.ended);
    }
    return code;
}

/* A person reads the error and goes on; a script has to know of it. */
static int talk(chat_job *job) {
    int terminal = lines_on_terminal(job->lines), code = APP_OK;
    while (!job->done && code == APP_OK && !out_failed()) {
        size_t dropped = 0;
        app_line got = read_message(job, "> ", &dropped);
        if (got == LINE_INTERRUPTED && terminal && dropped > 0) {
            job->interrupts = 0; /* it was meant for the line */
            continue;
        }
        if (got == LINE_INTERRUPTED) {
            if (!terminal || ++job->interrupts == 2) {
                return 128 + 2; /* SIGINT */
            }
            app_note("[Ctrl-C again, Ctrl-D or /exit ends]");
            continue;
        }
        job->interrupts = 0;
        if (got == LINE_END || got == LINE_FAILED) {
            return got == LINE_END ? APP_OK : signals_exit_code(APP_FAILURE);
        }
        code = take_message(job);
        if (terminal && signals_caught() == 0) {
            code = APP_OK;
        }
    }
    return out_failed() ? APP_FAILURE : code;
}

/* A model without a template has most often not learned to answer. */
static void note_base_model(const chat_job *job) {
    if (strcmp(gw_chat_name(job->c.chat), "plain") != 0 || job->o->chat_template != NULL) {
        return;
    }
    if (job->o->model == NULL) {
        app_note("The built-in model tells stories and cannot talk: give it a beginning, such as "
                 "\"Once there was a crane\". -m MODEL is one of yours that can.");
    } else {
        app_note("The model has no chat template: most likely it is a base model, which goes on "
                 "with a text and does not follow instructions ('godwit run'; --chat-template "
                 "names a form).");
    }
}

static int start(chat_job *job) {
    conversation *c = &job->c;
    int code = conversation_open(c, job->o);
    if (code != APP_OK) {
        return code;
    }
    app_note("%s, %s %s; %s; context %zu", c->g.info.name, c->g.info.architecture, c->g.info.format,
             c->g.info.device, c->n_ctx);
    app_note("template %s (%s); /help lists the commands", gw_chat_name(c->chat),
             gw_chat_origin(c->chat));
    note_base_model(job);
    job->lines = lines_open("chat_history");
    if (job->lines == NULL) {
        return APP_FAILURE;
    }
    signals_interactive();
    code = job->o->load != NULL ? load(job, job->o->load) : APP_OK;
    for (size_t i = 0; i < job->o->image_files.n && code == APP_OK; i++) {
        code = conversation_image(c, job->o->image_files.at[i]);
    }
    return code;
}

/* The message of -p or -f. */
static int first_message(chat_job *job) {
    app_text text = {0};
    int code = app_read_prompt(job->o, NULL, 1, &text);
    if (code == APP_OK) {
        code = turn(job, text.at, text.bytes);
    }
    job->done = job->done || job->o->single_turn;
    free(text.at);
    return code;
}

static int run_chat(const app_options *o) {
    chat_job job = {.o = o};
    int code = chat_tool_check(o);
    code = code == APP_OK ? start(&job) : code;
    if (code == APP_OK && (o->prompt != NULL || o->file != NULL)) {
        code = first_message(&job);
    }
    if (code == APP_OK) {
        code = talk(&job);
    }
    if (job.c.turns > 0 && !o->no_stats && !terminal_quiet() && !out_failed()) {
        slash_stats(&job, "");
    }
    free(job.pasted.at);
    lines_close(job.lines);
    conversation_close(&job.c);
    return code;
}

const app_command command_chat = {
    .name = "chat",
    .bit = CMD_CHAT,
    .usage = "[MODEL] [--system TEXT] [-p TEXT | -f FILE] [OPTIONS]",
    .summary = "talk with a model",
    .detail =
        "Reads messages line by line and prints the answers on stdout as they come. On a terminal\n"
        "lines can be edited and older ones recalled (arrow keys, Ctrl-R; kept in\n"
        "$XDG_STATE_HOME/godwit/chat_history); down a pipe each line is a message. /help lists "
        "the\n"
        "commands: /reset, /system, /save, /load, /image, /tools, /stats, /exit. Ctrl-C stops an\n"
        "answer and keeps\n"
        "what there is of it. A message never becomes a special token, whatever it spells. Only\n"
        "what is new in a turn is evaluated. When the context is full the oldest messages are\n"
        "forgotten (--no-context-shift: that is an error).\n",
    .examples = "  godwit chat\n"
                "  godwit chat -m model.gguf --system \"Answer in one sentence.\" --temp 0.7\n"
                "  echo \"Who are you?\" | godwit chat -m model.gguf --chat-template chatml -q\n",
    .operand = "--model",
    .run = run_chat,
};
