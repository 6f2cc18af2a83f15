/* core/text/chat/templated.c - conversations by a template: its variables, its text as tokens.
 *
 * Special tokens come out of what the template itself wrote, and of nothing else: each is found in
 * the parts of the text that nobody typed and put in by its id; all the rest is text, encoded in
 * one stretch between two of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/text/chat/chat_parts.h"
#include "core/text/chat/inserted.h"
#include "core/text/utf8.h"

static const char where[] = "chat template";

static gw_status no_memory(void) { return gw_fail(GW_E_NOMEM, where, "no memory"); }

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A text in quotes. Bytes that are not UTF-8 stay what they are. */
static gw_status add_quoted(gw_bytes *to, const char *text, size_t n) {
    GW_TRY(gw_bytes_add(to, "\"", 1));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        char word[8];
        if (c >= 0x20 && c != '"' && c != '\\') {
            GW_TRY(gw_bytes_add(to, text + i, 1));
        } else {
            GW_TRY(gw_bytes_add(to, word, (size_t)snprintf(word, sizeof word, "\\u%04x", c)));
        }
    }
    return gw_bytes_add(to, "\"", 1);
}

static gw_status add_words(gw_bytes *to, const char *words) {
    return gw_bytes_add(to, words, strlen(words));
}

static gw_status add_special(gw_bytes *to, const gw_vocab *v, const char *name, int32_t id) {
    if (id < 0) {
        return GW_OK;
    }
    GW_TRY(add_words(to, to->n > 1 ? ", \"" : "\""));
    GW_TRY(add_words(to, name));
    GW_TRY(add_words(to, "\": "));
    return add_quoted(to, v->tokens[id].text, v->tokens[id].bytes);
}

static gw_status write_specials(gw_chat *c) {
    const gw_vocab *v = c->vocab;
    gw_bytes text = {0};
    gw_status status;
    GW_TRY_DONE(add_words(&text, "{"));
    GW_TRY_DONE(add_special(&text, v, "bos_token", v->bos));
    GW_TRY_DONE(add_special(&text, v, "eos_token", v->eos));
    GW_TRY_DONE(add_special(&text, v, "unk_token", v->unk));
    GW_TRY_DONE(add_special(&text, v, "pad_token", v->pad));
    GW_TRY_DONE(gw_bytes_add(&text, "}", 2));
done:
    c->specials = text.data;
    return status;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* "on", "off", or an effort: by the names that published templates know. */
static gw_status take_reasoning(gw_chat *c, const char *word) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    size_t at = 0, n = sizeof efforts / sizeof efforts[0];
    int on = strcmp(word, "on") == 0, off = strcmp(word, "off") == 0;
    while (at < n && strcmp(word, efforts[at]) != 0) {
        at++;
    }
    if (strcmp(word, "auto") == 0) {
        return GW_OK; /* as the template has it */
    }
    if (!on && !off && at == n) {
        return gw_fail(GW_E_ARGUMENT, "reasoning",
                       "'%.40s' is neither auto, on, off nor an effort: none, minimal, low, "
                       "medium, high, xhigh, max",
                       word);
    }
    const char *flag = off || (at == 0 && !on) ? "false" : "true";
    int used = snprintf(c->reasoning, sizeof c->reasoning,
                        "{\"enable_thinking\": %s, \"thinking\": %s", flag, flag);
    if (at < n) {
        used += snprintf(c->reasoning + used, sizeof c->reasoning - (size_t)used,
                         ", \"reasoning_effort\": \"%s\"", word);
    }
    snprintf(c->reasoning + used, sizeof c->reasoning - (size_t)used, "}");
    return GW_OK;
}

gw_status gw_chat_take_template(gw_chat *c, const gw_chat_settings *settings,
                                const gw_chat_own *own, const char *text, size_t bytes) {
    int given = settings->template_text != NULL;
    GW_TRY(gw_template_parse(where, text, bytes, &c->template));
    if (!given && settings->name == NULL && own->tools_text != NULL) {
        GW_TRY(gw_template_parse("chat template for tools", own->tools_text, own->tools_bytes,
                                 &c->for_tools));
    }
    snprintf(c->name, sizeof c->name, "%s",
             given                    ? "given"
             : settings->name != NULL ? settings->name
             : c->style != NULL       ? ""
                                      : "own");
    if (settings->arguments != NULL && (c->arguments = strdup(settings->arguments)) == NULL) {
        return no_memory();
    }
    if (settings->reasoning != NULL) {
        GW_TRY(take_reasoning(c, settings->reasoning));
    }
    if (settings->date != NULL) {
        GW_TRY(gw_template_time_read(settings->date, &c->date));
    }
    return write_specials(c);
}

void gw_chat_drop_template(gw_chat *c) {
    gw_template_free(c->template);
    gw_template_free(c->for_tools);
    free(c->specials);
    free(c->arguments);
    gw_trie_free(c->tokens);
}

const char *gw_chat_template(const gw_chat *chat, size_t *bytes) {
    *bytes = 0;
    return chat->template != NULL ? gw_template_source(chat->template, bytes) : NULL;
}

/* ---- rendering ------------------------------------------------------------------------------- */

static int has_tools(const char *request, size_t bytes) {
    json_t *root = json_loadb(request, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    int has = json_array_size(json_object_get(root, "tools")) > 0;
    json_decref(root);
    return has;
}

static gw_status render(const gw_chat *c, const char *request, size_t bytes,
                        gw_template_text *out) {
    gw_template_input inputs[4];
    gw_template_options options = {.time = c->date, .conversation = 1};
    size_t n = 0;
    int tools = c->for_tools != NULL && has_tools(request, bytes);
    if (c->date.year == 0) {
        gw_template_time_now(&options.time);
    }
    inputs[n++] = (gw_template_input){where, c->specials, strlen(c->specials), 1};
    if (c->reasoning[0] != '\0') {
        inputs[n++] = (gw_template_input){where, c->reasoning, strlen(c->reasoning), 1};
    }
    if (c->arguments != NULL) {
        inputs[n++] =
            (gw_template_input){"template arguments", c->arguments, strlen(c->arguments), 0};
    }
    inputs[n++] = (gw_template_input){"request", request, bytes, 0};
    return gw_template_render(tools ? c->for_tools : c->template, inputs, n, &options, out);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int is_barred(const gw_chat *c, int32_t id) {
    for (size_t i = 0; i < c->n_barred; i++) {
        if (c->barred[i] == id) {
            return 1;
        }
    }
    return 0;
}

/* Added tokens of every kind, so that the longest counts. */
static gw_status find_tokens(gw_chat *c) {
    const gw_vocab *v = c->vocab;
    c->tokens = gw_trie_new();
    if (c->tokens == NULL) {
        return no_memory();
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *t = &v->tokens[i];
        int added = t->kind == GW_TOKEN_CONTROL || t->kind == GW_TOKEN_USER || t->special ||
                    is_barred(c, (int32_t)i);
        if (added && t->bytes > 0 && t->bytes <= GW_TRIE_WORD_MAX) {
            GW_TRY(gw_trie_add(c->tokens, t->text, t->bytes, (int32_t)i, 0));
        }
    }
    return GW_OK;
}

typedef struct pieces {
    gw_text_piece *at;
    size_t n, room;
} pieces;

static gw_status add_piece(pieces *p, int32_t id, const char *text, size_t bytes) {
    void *at = p->at;
    if (id < 0 && bytes == 0) {
        return GW_OK;
    }
    gw_status status = gw_array_reserve(&at, &p->room, p->n + 1, sizeof *p->at);
    p->at = at;
    GW_TRY(status);
    p->at[p->n++] = (gw_text_piece){id, text, bytes};
    return GW_OK;
}

/* A part of the text that the template wrote. A token that is found in any text stays text, unless
 * what people type may not become it. */
static gw_status add_own(const gw_chat *c, pieces *p, const char *text, size_t n) {
    size_t done = 0, at = 0;
    while (at < n) {
        int32_t id = -1;
        size_t size = gw_trie_match(c->tokens, text + at, n - at, 0, &id);
        const gw_vocab_token *t = id >= 0 ? &c->vocab->tokens[id] : NULL;
        if (size == 0) {
            at++;
            continue;
        }
        if (t->kind != GW_TOKEN_USER || t->special || is_barred(c, id)) {
            GW_TRY(add_piece(p, -1, text + done, at - done));
            GW_TRY(add_piece(p, id, NULL, 0));
            done = at + size;
        }
        at += size;
    }
    return add_piece(p, -1, text + done, n - done);
}

static gw_status cut_pieces(const gw_chat *c, const gw_template_text *text, size_t from,
                            pieces *p) {
    size_t at = from;
    for (size_t i = 0; i < text->n_typed; i++) {
        size_t begin = text->typed[2 * i], end = text->typed[2 * i + 1];
        if (end <= at) {
            continue;
        }
        if (begin > at) {
            GW_TRY(add_own(c, p, text->text + at, begin - at));
            at = begin;
        }
        GW_TRY(add_piece(p, -1, text->text + at, end - at));
        at = end;
    }
    return add_own(c, p, text->text + at, text->bytes - at);
}

/* The tokens of the text from byte `from` on; from > 0: they go on with a text that is there. */
static gw_status encode(const gw_chat *c, const gw_template_text *text, size_t from, int32_t **ids,
                        size_t *n_ids) {
    const gw_vocab *v = c->vocab;
    gw_text_rules rules = gw_chat_rules(c, from > 0);
    pieces p = {0};
    gw_status status = cut_pieces(c, text, from, &p);
    GW_TRY_DONE(status);
    int begins = from == 0 && v->add_bos && v->bos >= 0 && !(p.n > 0 && p.at[0].id == v->bos);
    if (!begins) {
        GW_TRY_DONE(gw_tokenizer_encode_pieces(c->tokenizer, p.at, p.n, &rules, ids, n_ids));
        goto done;
    }
    int32_t *rest = NULL;
    size_t n = 0;
    GW_TRY_DONE(gw_tokenizer_encode_pieces(c->tokenizer, p.at, p.n, &rules, &rest, &n));
    int32_t *whole = malloc((n + 1) * sizeof *whole);
    if (whole == NULL) {
        free(rest);
        GW_TRY_DONE(no_memory());
    }
    whole[0] = v->bos;
    memcpy(whole + 1, rest, n * sizeof *rest);
    free(rest);
    *ids = whole;
    *n_ids = n + 1;
done:
    free(p.at);
    return status;
}

/* ---- the ends of answers --------------------------------------------------------------------- */

/* What stands behind an answer: the token, if there is one at once or behind white space. */
static void find_end(gw_chat *c) {
    static const char word[] = "zqxjkv",
                      talk[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                               "{\"role\": \"assistant\", \"content\": \"zqxjkv\"}]}";
    gw_template_text text = {0};
    if (render(c, talk, sizeof talk - 1, &text) != GW_OK) {
        return; /* such a conversation is not for this template */
    }
    const char *at = text.text, *found = NULL;
    while ((at = strstr(at, word)) != NULL) {
        found = at;
        at++;
    }
    if (found != NULL) {
        found += sizeof word - 1;
        found += strspn(found, " \n");
        int32_t id = -1;
        size_t n = gw_trie_match(c->tokens, found, strlen(found), 0, &id);
        if (n > 0 && c->vocab->tokens[id].kind != GW_TOKEN_NORMAL) {
            c->end = id;
            c->end_text[0] = '\0';
        }
    }
    gw_template_text_free(&text);
}

gw_status gw_chat_settle_template(gw_chat *c) {
    GW_TRY(find_tokens(c));
    find_end(c);
    return GW_OK;
}

/* ---- requests and conversations -------------------------------------------------------------- */

/* For a template that takes texts alone. */
static gw_status render_flat(const gw_chat *c, const char *request, size_t bytes,
                             const gw_chat_inserts *inserts, gw_template_text *text) {
    char stand_in[GW_CHAT_STAND_IN], *flat = NULL;
    GW_TRY(gw_chat_flatten(request, bytes, stand_in, &flat));
    gw_status status = render(c, flat, strlen(flat), text);
    free(flat);
    return status == GW_OK ? gw_chat_insert_flat(text, stand_in, inserts) : status;
}

/* Does the template have a place for a picture that a user sends? */
static int takes_pictures(const gw_chat *c, const gw_chat_inserts *inserts) {
    static const char probe[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, "
        "{\"type\": \"text\", \"text\": \"x\"}]}], \"add_generation_prompt\": true}";
    gw_chat_inserts one = *inserts;
    gw_template_text text = {0};
    one.n = 1;
    int takes = render(c, probe, sizeof probe - 1, &text) == GW_OK &&
                gw_chat_insert(&text, &one, NULL) == GW_OK;
    gw_template_text_free(&text);
    return takes;
}

/* With pictures: many templates put texts together, and so fail at a list of parts or show none. */
static gw_status render_with(const gw_chat *c, const char *request, size_t bytes,
                             const gw_chat_inserts *inserts, gw_template_text *text) {
    size_t used = 0;
    gw_status status = render(c, request, bytes, text);
    if (inserts == NULL) {
        return status;
    }
    status = status == GW_OK ? gw_chat_insert(text, inserts, &used) : status;
    if (status == GW_OK || used > 0 || inserts->n == 0 || status == GW_E_NOMEM ||
        takes_pictures(c, inserts)) {
        return status;
    }
    gw_template_text_free(text);
    *text = (gw_template_text){0};
    return render_flat(c, request, bytes, inserts, text);
}

gw_status gw_chat_write_template(const gw_chat *c, const char *request, size_t bytes,
                                 const gw_chat_inserts *inserts, gw_chat_text *out) {
    gw_template_text text = {0};
    gw_chat_text done = {0};
    gw_status status = render_with(c, request, bytes, inserts, &text);
    if (status == GW_OK && c->tokenizer != NULL) {
        status = encode(c, &text, 0, &done.ids, &done.n_ids);
    }
    if (status != GW_OK) {
        gw_template_text_free(&text);
        return status;
    }
    done.text = text.text;
    done.bytes = text.bytes;
    done.typed = text.typed;
    done.n_typed = text.n_typed;
    *out = done;
    return GW_OK;
}

static gw_status write_messages(const gw_chat_message *messages, size_t n, int opens,
                                gw_bytes *to) {
    GW_TRY(add_words(to, "{\"messages\": ["));
    for (size_t i = 0; i < n; i++) {
        GW_TRY(add_words(to, i > 0 ? ", {\"role\": " : "{\"role\": "));
        GW_TRY(add_quoted(to, messages[i].role, strlen(messages[i].role)));
        GW_TRY(add_words(to, ", \"content\": "));
        GW_TRY(add_quoted(to, messages[i].text, messages[i].bytes));
        GW_TRY(add_words(to, "}"));
    }
    return add_words(to, opens ? "], \"add_generation_prompt\": true}" : "]}");
}

static gw_status render_messages(const gw_chat *c, const gw_chat_message *messages, size_t n,
                                 int opens, gw_template_text *out) {
    gw_bytes request = {0};
    gw_status status = write_messages(messages, n, opens, &request);
    if (status == GW_OK) {
        status = render(c, request.data, request.n, out);
    }
    free(request.data);
    return status;
}

/* Bytes of the text that the timeline holds: what was rendered before the last answer, and that
 * answer. 0: the template writes it differently by now. */
static gw_status held_bytes(const gw_chat *c, const gw_chat_message *messages, size_t from,
                            const gw_template_text *whole, size_t *held) {
    gw_template_text before = {0};
    const gw_chat_message *answer = &messages[from - 1];
    GW_TRY(render_messages(c, messages, from - 1, 1, &before));
    size_t n = before.bytes;
    int same = n <= whole->bytes && memcmp(whole->text, before.text, n) == 0 &&
               answer->bytes <= whole->bytes - n &&
               memcmp(whole->text + n, answer->text, answer->bytes) == 0;
    *held = same ? n + answer->bytes : 0;
    gw_template_text_free(&before);
    return GW_OK;
}

gw_status gw_chat_render_template(const gw_chat *c, const gw_chat_message *messages, size_t n,
                                  size_t from, int32_t **ids, size_t *n_ids) {
    gw_template_text text = {0};
    size_t held = 0;
    GW_TRY(render_messages(c, messages, n, strcmp(messages[n - 1].role, "assistant") != 0, &text));
    gw_status status = from > 1 ? held_bytes(c, messages, from, &text, &held) : GW_OK;
    if (status == GW_OK && from > 0 && held == 0) {
        status = gw_fail(GW_E_UNSUPPORTED, where,
                         "what came before is written differently now: render all of it");
    }
    if (status == GW_OK) {
        status = encode(c, &text, held, ids, n_ids);
    }
    gw_template_text_free(&text);
    return status;
}
