/* core/engine/sampling/answer.c - gw_answer: the reader of an answer and its grammar, for the
 * tokens of a model. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/model_state.h"
#include "core/engine/sampling/constraint.h"
#include "core/text/answer/answer.h"
#include "include/godwit_answer.h"

enum { PROMPT = 64 }; /* tokens of a prompt that are looked at */

struct gw_answer {
    const gw_model *model;
    gw_answer_options o; /* texts below */
    char *named, *schema;
    const gw_tool_form *tools;
    const gw_reasoning_form *reasoning;
    gw_tools list;
    int borrows; /* the list is another answer's */
    gw_reader *reader;
    gw_text_stream *stream;
    gw_bytes rules, notes;
    int32_t *special; /* [n_special] the tokens that are no text */
    size_t n_special;
};

/* ---- marks ----------------------------------------------------------------------------------- */

static int is_special(const gw_vocab_token *t) {
    return (t->kind == GW_TOKEN_CONTROL || t->special) && t->kind != GW_TOKEN_UNKNOWN &&
           t->bytes > 0;
}

static gw_status list_special(gw_answer *a) {
    const gw_vocab *vocab = a->model->vocab;
    size_t n = 0;
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        n += (size_t)is_special(&vocab->tokens[i]);
    }
    a->special = calloc(n + 1, sizeof *a->special);
    if (a->special == NULL) {
        return gw_fail(GW_E_NOMEM, a->model->name, "no memory for reading an answer");
    }
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        if (is_special(&vocab->tokens[i])) {
            a->special[a->n_special++] = (int32_t)i;
        }
    }
    return GW_OK;
}

static int is_token(const void *user, const char *text, size_t n) {
    const gw_answer *a = user;
    for (size_t i = 0; i < a->n_special; i++) {
        const gw_vocab_token *t = &a->model->vocab->tokens[a->special[i]];
        if (t->bytes == n && memcmp(t->text, text, n) == 0) {
            return 1;
        }
    }
    return 0;
}

static gw_marks marks_of(const gw_answer *a) { return (gw_marks){is_token, a}; }

/* ---- forms ----------------------------------------------------------------------------------- */

const char *gw_answer_form_name(int reasoning, size_t i) {
    const gw_tool_form *t = reasoning ? NULL : gw_tool_form_at(i);
    const gw_reasoning_form *g = reasoning ? gw_reasoning_form_at(i) : NULL;
    return t != NULL ? t->name : g != NULL ? g->name : NULL;
}

static gw_status unknown_form(int reasoning, const char *name) {
    char list[1024] = "";
    const char *one, *before = "";
    for (size_t i = 0; (one = gw_answer_form_name(reasoning, i)) != NULL; i++) {
        if (strcmp(one, before) != 0 && strlen(list) + strlen(one) + 3 < sizeof list) {
            strcat(strcat(list, i > 0 ? ", " : ""), one);
        }
        before = one;
    }
    return gw_fail(GW_E_ARGUMENT, reasoning ? "reasoning form" : "tool form",
                   "'%.40s' is not known; there are %s", name, list);
}

static gw_status choose_forms(gw_answer *a, const gw_answer_options *o) {
    const char *text = o->chat_template;
    size_t bytes = o->chat_template_bytes;
    if (text == NULL && (o->tool_form == NULL || o->reasoning_form == NULL) &&
        gw_checkpoint_chat_template(a->model->checkpoint, NULL, &text, &bytes) != GW_OK) {
        text = NULL; /* a template that cannot be read is the chat's to complain of */
    }
    a->tools =
        o->tool_form != NULL ? gw_tool_form_named(o->tool_form) : gw_tool_form_of(text, bytes);
    a->reasoning = o->reasoning_form != NULL ? gw_reasoning_form_named(o->reasoning_form)
                                             : gw_reasoning_form_of(text, bytes);
    if (a->tools == NULL || a->reasoning == NULL) {
        return a->tools == NULL ? unknown_form(0, o->tool_form)
                                : unknown_form(1, o->reasoning_form);
    }
    return GW_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status copy_text(char **out, const char *text, size_t bytes) {
    if (text == NULL) {
        return GW_OK;
    }
    *out = malloc(bytes + 1);
    if (*out == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for reading an answer");
    }
    memcpy(*out, text, bytes);
    (*out)[bytes] = '\0';
    return GW_OK;
}

static gw_status open_reader(gw_answer *a) {
    int calls = a->list.n > 0 && a->o.choice != GW_TOOLS_NONE;
    gw_reader_options reader = {.tools = calls ? a->tools : NULL,
                                .reasoning = a->reasoning,
                                .list = &a->list,
                                .marks = marks_of(a),
                                .whole_calls = a->o.whole_calls,
                                .id_seed = a->o.id_seed};
    GW_TRY(gw_reader_new(&reader, &a->reader));
    return gw_text_stream_new(a->model->tokenizer, &a->stream);
}

static gw_status read_options(gw_answer *a, const gw_answer_options *o) {
    GW_TRY(list_special(a));
    GW_TRY(choose_forms(a, o));
    if (o->tools != NULL) {
        GW_TRY(gw_tools_read(o->tools, o->tools_bytes, &a->list));
    }
    if (o->named != NULL && gw_tools_find(&a->list, o->named, strlen(o->named)) == NULL) {
        return gw_fail(GW_E_ARGUMENT, "tools", "there is no tool '%.60s'", o->named);
    }
    if (o->choice == GW_TOOLS_REQUIRED && a->list.n == 0) {
        return gw_fail(GW_E_ARGUMENT, "tools", "a call is required, and there is no tool");
    }
    if (o->choice == GW_TOOLS_REQUIRED && a->tools->call == NULL) {
        return gw_fail(GW_E_ARGUMENT, "tools", "a call is required, and form 'none' has none");
    }
    GW_TRY(copy_text(&a->named, o->named, o->named != NULL ? strlen(o->named) : 0));
    GW_TRY(copy_text(&a->schema, o->schema, o->schema_bytes));
    return open_reader(a);
}

gw_status gw_answer_new_sized(const gw_model *model, const gw_answer_options *options, size_t size,
                              gw_answer **out) {
    gw_answer_options o = {0};
    memcpy(&o, options, size < sizeof o ? size : sizeof o);
    if (model->tokenizer == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name,
                       "the model has no tokenizer, so it writes no text");
    }
    gw_answer *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return gw_fail(GW_E_NOMEM, model->name, "no memory for reading an answer");
    }
    a->model = model;
    a->o = o;
    gw_status status = read_options(a, &o);
    if (status != GW_OK) {
        gw_answer_free(a);
        return status;
    }
    *out = a;
    return GW_OK;
}

gw_status gw_answer_new_like(const gw_answer *like, uint64_t id_seed, gw_answer **out) {
    gw_answer *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return gw_fail(GW_E_NOMEM, like->model->name, "no memory for reading an answer");
    }
    a->model = like->model;
    a->o = like->o;
    a->o.id_seed = id_seed;
    a->tools = like->tools;
    a->reasoning = like->reasoning;
    a->list = like->list;
    a->borrows = 1;
    gw_status status = list_special(a);
    status = status == GW_OK ? open_reader(a) : status;
    if (status != GW_OK) {
        gw_answer_free(a);
        return status;
    }
    *out = a;
    return GW_OK;
}

void gw_answer_free(gw_answer *a) {
    if (a != NULL) {
        gw_reader_free(a->reader);
        gw_text_stream_free(a->stream);
        if (!a->borrows) {
            gw_tools_free(&a->list);
        }
        free(a->named);
        free(a->schema);
        free(a->rules.data);
        free(a->notes.data);
        free(a->special);
        free(a);
    }
}

const char *gw_answer_tool_form(const gw_answer *answer) { return answer->tools->name; }
const char *gw_answer_reasoning_form(const gw_answer *answer) { return answer->reasoning->name; }

/* ---- reading --------------------------------------------------------------------------------- */

/* The spelling of a token that is no text: a special one, or one that ends a text, of whatever
 * kind; *bytes 0: it is text. */
static const char *spelling(const gw_answer *a, int32_t id, size_t *bytes) {
    const gw_vocab *vocab = a->model->vocab;
    *bytes = 0;
    if (id < 0 || (size_t)id >= vocab->n_tokens ||
        (!is_special(&vocab->tokens[id]) && !gw_token_is_end(a->model, id))) {
        return "";
    }
    *bytes = vocab->tokens[id].bytes;
    return vocab->tokens[id].text;
}

int gw_answer_is_text(const gw_answer *a, int32_t id) {
    size_t bytes;
    spelling(a, id, &bytes);
    return bytes == 0;
}

gw_status gw_answer_begin(gw_answer *a, const int32_t *prompt, size_t n) {
    GW_TRY(gw_reader_reset(a->reader));
    GW_TRY(gw_text_stream_copy(a->stream, NULL));
    for (size_t i = n > PROMPT ? n - PROMPT : 0; i < n; i++) {
        size_t bytes;
        const char *text = spelling(a, prompt[i], &bytes);
        int token = bytes > 0;
        if (!token) {
            gw_tokenizer_piece(a->model->tokenizer, prompt[i], 0, &text, &bytes);
        }
        GW_TRY(gw_reader_prompt(a->reader, text, bytes, token));
    }
    return GW_OK;
}

gw_status gw_answer_push(gw_answer *a, int32_t id, const gw_part **parts, size_t *n) {
    size_t bytes;
    const char *text = spelling(a, id, &bytes);
    if (bytes > 0) {
        return gw_reader_push(a->reader, text, bytes, 1, parts, n);
    }
    GW_TRY(gw_text_stream_push(a->stream, id, &text, &bytes));
    return id < 0 ? gw_reader_end(a->reader, text, bytes, parts, n)
                  : gw_reader_push(a->reader, text, bytes, 0, parts, n);
}

void gw_answer_cut(gw_answer *a) { gw_reader_cut(a->reader, a->o.choice == GW_TOOLS_REQUIRED); }

int gw_answer_beginning(const gw_answer *a) { return (int)gw_reader_start(a->reader); }

gw_status gw_answer_push_text(gw_answer *a, const char *text, size_t bytes, const gw_part **parts,
                              size_t *n) {
    return gw_reader_push(a->reader, text, bytes, 0, parts, n);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The rules of an answer with these tools, compiled; *out NULL: any text. */
static gw_status compile(gw_answer *a, const gw_tools *tools, gw_program **out) {
    gw_answer_rules rules = {.tools = a->tools,
                             .reasoning = a->reasoning,
                             .list = tools,
                             .marks = marks_of(a),
                             .start = gw_reader_start(a->reader),
                             .choice = a->o.choice,
                             .named = a->named,
                             .one_call = a->o.one_call,
                             .reason_first = a->o.reason_first,
                             .free_calls = a->o.free_calls,
                             .schema = a->schema,
                             .schema_bytes = a->o.schema_bytes};
    *out = NULL;
    a->rules.n = 0;
    GW_TRY(gw_answer_write_rules(&rules, &a->rules, &a->notes));
    return a->rules.n > 0 ? gw_grammar_link("answer", a->rules.data, a->rules.n, out) : GW_OK;
}

/* Tools that are too large together are let go of in steps; a schema of the answer never is. */
static gw_status compile_relaxed(gw_answer *a, gw_program **out) {
    int level = gw_tools_fit(&a->list);
    for (;;) {
        gw_tools relaxed = {0};
        a->notes.n = 0;
        GW_TRY(gw_tools_relax(&a->list, level, &relaxed, &a->notes));
        gw_status status = compile(a, level > 0 ? &relaxed : &a->list, out);
        gw_tools_free(&relaxed);
        if (status != GW_E_LIMIT || a->list.n == 0 || level == GW_RELAX_MAX) {
            return status;
        }
        level = level < GW_RELAX_MAX - 1 ? GW_RELAX_MAX - 1 : GW_RELAX_MAX;
    }
}

gw_status gw_answer_grammar(gw_answer *a, const gw_chat *chat, gw_grammar **out) {
    gw_program *program = NULL;
    int32_t ends[GW_GRAMMAR_ENDS];
    GW_TRY(compile_relaxed(a, &program));
    if (program == NULL) {
        *out = NULL;
        return GW_OK;
    }
    size_t n = gw_grammar_ends(a->model, chat, ends, GW_GRAMMAR_ENDS);
    return gw_grammar_bind(a->model->vocab, a->model->tokenizer, gw_model_n_vocab(a->model), ends,
                           n, program, out);
}

const char *gw_answer_note(const gw_answer *a, size_t i) {
    for (size_t at = 0; at < a->notes.n; at += strlen(a->notes.data + at) + 1) {
        if (i-- == 0) {
            return a->notes.data + at;
        }
    }
    return NULL;
}
