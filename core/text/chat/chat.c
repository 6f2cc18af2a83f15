/* core/text/chat/chat.c - renders conversations; see chat.h and godwit.h. */
#include "core/text/chat/chat_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/utf8.h"

/* ---- markers ----------------------------------------------------------------------------- */

static int32_t marker_id(const gw_vocab *v, const char *spelling, size_t bytes) {
    if (bytes == 3 && memcmp(spelling, "bos", 3) == 0) {
        return v->bos;
    }
    if (bytes == 3 && memcmp(spelling, "eos", 3) == 0) {
        return v->eos;
    }
    return gw_chat_marker(v, spelling, bytes);
}

static int is_id_name(const char *spelling, size_t bytes) {
    return bytes == 3 && (memcmp(spelling, "bos", 3) == 0 || memcmp(spelling, "eos", 3) == 0);
}

static const gw_chat_marked *find_marker(const gw_chat *c, const char *spelling, size_t bytes) {
    for (int i = 0; i < c->n_markers; i++) {
        const gw_chat_marked *m = &c->markers[i];
        if (m->bytes == bytes && memcmp(m->spelling, spelling, bytes) == 0) {
            return m;
        }
    }
    return NULL;
}

static void add_markers(gw_chat *c, const char *pattern) {
    for (const char *at = pattern; (at = strchr(at, '{')) != NULL;) {
        at++;
        size_t bytes = strcspn(at, "}");
        if (find_marker(c, at, bytes) == NULL && c->n_markers < GW_CHAT_MARKERS) {
            c->markers[c->n_markers++] =
                (gw_chat_marked){at, bytes, marker_id(c->vocab, at, bytes)};
        }
    }
}

static void bar(gw_chat *c, int32_t id) {
    for (size_t i = 0; i < c->n_barred; i++) {
        if (c->barred[i] == id) {
            return;
        }
    }
    if (id >= 0 && c->n_barred < sizeof c->barred / sizeof c->barred[0]) {
        c->barred[c->n_barred++] = id;
    }
}

static void find_markers_of(gw_chat *c, const gw_chat_style *s) {
    const char *patterns[] = {s->begin, s->system != NULL ? s->system : "", s->user, s->answer,
                              s->end};
    c->n_markers = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        add_markers(c, patterns[i]);
    }
    for (int i = 0; i < c->n_markers; i++) {
        bar(c, c->markers[i].id);
    }
}

static void find_markers(gw_chat *c) {
    const gw_chat_style *s = c->style;
    for (size_t i = 0; gw_chat_style_at(i) != NULL; i++) {
        find_markers_of(c, gw_chat_style_at(i));
    }
    if (s != NULL) {
        find_markers_of(c, s); /* its own stay */
    }
    for (int i = 0; i < c->vocab->n_end; i++) {
        bar(c, c->vocab->end[i]);
    }
    if (s != NULL && s->end[0] == '{') {
        const gw_chat_marked *m = find_marker(c, s->end + 1, strcspn(s->end + 1, "}"));
        c->end = m->id;
        if (m->id < 0 && !is_id_name(m->spelling, m->bytes)) {
            snprintf(c->end_text, sizeof c->end_text, "%.*s", (int)m->bytes, m->spelling);
        }
    }
}

/* ---- open -------------------------------------------------------------------------------- */

static gw_status unknown_name(const char *name) {
    char known[512] = "";
    size_t used = 0;
    for (size_t i = 0; gw_chat_style_name(i) != NULL; i++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                         gw_chat_style_name(i));
        used += n > 0 && (size_t)n < sizeof known - used ? (size_t)n : 0;
    }
    return gw_fail(GW_E_ARGUMENT, "chat template", "'%.40s' is not known; known are %s", name,
                   known);
}

/* A name is one of the model's templates, else a form. */
static gw_status choose(gw_chat *c, const gw_chat_settings *settings, const gw_chat_own *own) {
    const char *text = settings->template_text;
    size_t bytes = settings->template_bytes;
    c->source = GW_CHAT_BY_NAME;
    if (text == NULL && own != NULL && (settings->name == NULL || own->named)) {
        text = own->text;
        bytes = own->bytes;
        c->source = settings->name == NULL ? GW_CHAT_BY_TEMPLATE : GW_CHAT_BY_NAME;
    }
    if (text != NULL && bytes > 0) {
        c->style = gw_chat_style_of_template(text, bytes, c->vocab);
        return gw_chat_take_template(c, settings, own, text, bytes);
    }
    if (settings->name != NULL) {
        c->style = gw_chat_style_named(settings->name, c->vocab);
        return c->style != NULL ? GW_OK : unknown_name(settings->name);
    }
    c->style = gw_chat_style_of_vocab(c->vocab);
    c->source = strcmp(c->style->name, "plain") == 0 ? GW_CHAT_BY_DEFAULT : GW_CHAT_BY_VOCAB;
    return GW_OK;
}

gw_status gw_chat_bind_settings(const gw_vocab *vocab, const gw_tokenizer *tokenizer,
                                const gw_chat_settings *settings, const gw_chat_own *own,
                                gw_chat **out) {
    gw_chat *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return gw_fail(GW_E_NOMEM, "chat template", "no memory");
    }
    c->vocab = vocab;
    c->tokenizer = tokenizer;
    c->end = -1;
    gw_status status = choose(c, settings, own);
    if (status == GW_OK) {
        find_markers(c);
        status = c->template != NULL ? gw_chat_settle_template(c) : GW_OK;
    }
    if (status != GW_OK) {
        gw_chat_free(c);
        return status;
    }
    *out = c;
    return GW_OK;
}

gw_status gw_chat_bind(const gw_vocab *vocab, const gw_tokenizer *tokenizer, const char *name,
                       const char *template_text, size_t bytes, gw_chat **out) {
    const gw_chat_settings settings = {.name = name};
    const gw_chat_own own = {.text = template_text, .bytes = bytes};
    return gw_chat_bind_settings(vocab, tokenizer, &settings, &own, out);
}

void gw_chat_free(gw_chat *chat) {
    if (chat != NULL) {
        gw_chat_drop_template(chat);
        free(chat);
    }
}

const char *gw_chat_name(const gw_chat *chat) {
    return chat->name[0] != '\0' ? chat->name : chat->style->name;
}

const char *gw_chat_origin(const gw_chat *chat) {
    static const char *const words[] = {"as asked", "the model's template", "the model's tokens",
                                        "the model names none"};
    return words[chat->source];
}

size_t gw_chat_stops(const gw_chat *chat, const char **texts, size_t capacity) {
    const char *all[] = {chat->end_text, chat->template == NULL ? chat->style->stop : ""};
    size_t n = 0;
    for (size_t i = 0; i < 2; i++) {
        if (all[i][0] != '\0') {
            if (n < capacity) {
                texts[n] = all[i];
            }
            n++;
        }
    }
    return n;
}

int gw_chat_is_end(const gw_chat *chat, int32_t id) {
    for (int i = 0; i < chat->vocab->n_end; i++) {
        if (chat->vocab->end[i] == id) {
            return 1;
        }
    }
    return id >= 0 && id == chat->end;
}

/* ---- rendering --------------------------------------------------------------------------- */

static gw_status add_piece(gw_chat_form *r, int32_t id, const char *text, size_t bytes) {
    if (id < 0 && bytes == 0) {
        return GW_OK;
    }
    void *pieces = r->pieces;
    gw_status status = gw_array_reserve(&pieces, &r->capacity, r->n + 1, sizeof *r->pieces);
    r->pieces = pieces;
    GW_TRY(status);
    r->pieces[r->n++] = (gw_text_piece){id, text, bytes};
    return GW_OK;
}

static void trim(const char **text, size_t *n, int front, int back) {
    while (front && *n > 0) {
        uint32_t cp;
        size_t length = gw_utf8_next(*text, *n, &cp);
        if (length == 0 || !gw_utf8_is_space(cp)) {
            break;
        }
        *text += length;
        *n -= length;
    }
    while (back && *n > 0) {
        size_t length = 1;
        uint32_t cp;
        while (length < 4 && length < *n && ((*text)[*n - length] & 0xC0) == 0x80) {
            length++;
        }
        if (gw_utf8_next(*text + *n - length, length, &cp) != length || !gw_utf8_is_space(cp)) {
            break;
        }
        *n -= length;
    }
}

static gw_status add_pattern(gw_chat_form *r, const char *pattern, const gw_chat_message *m,
                             int flag);

/* The text of a message, and in front of a user's the system text that had to wait. */
static gw_status add_message(gw_chat_form *r, const gw_chat_message *m, int flag) {
    const gw_chat_style *s = r->c->style;
    const gw_chat_message *system = flag == GW_CHAT_TRIM_USER ? r->system : NULL;
    int whole = flag == GW_CHAT_TRIM_USER && (s->flags & GW_CHAT_TRIM_WHOLE) != 0;
    if (system != NULL) {
        r->system = NULL;
        GW_TRY(add_pattern(r, s->join, system, GW_CHAT_TRIM_SYSTEM));
    }
    const char *text = m->text;
    size_t bytes = m->bytes;
    int trimmed = (s->flags & flag) != 0;
    trim(&text, &bytes, trimmed || (whole && system == NULL), trimmed || whole);
    return add_piece(r, GW_CHAT_TYPED, text, bytes);
}

static gw_status add_pattern(gw_chat_form *r, const char *pattern, const gw_chat_message *m,
                             int flag) {
    for (const char *at = pattern; *at != '\0';) {
        if (*at == '%') {
            GW_TRY(add_message(r, m, flag));
            at++;
        } else if (*at == '{') {
            size_t bytes = strcspn(++at, "}");
            const gw_chat_marked *k = find_marker(r->c, at, bytes);
            if (k->id >= 0) {
                GW_TRY(add_piece(r, k->id, NULL, 0));
            } else if (!is_id_name(at, bytes)) {
                GW_TRY(add_piece(r, -1, at, bytes));
            }
            at += bytes + 1;
        } else {
            size_t bytes = strcspn(at, "{%");
            GW_TRY(add_piece(r, -1, at, bytes));
            at += bytes;
        }
    }
    return GW_OK;
}

static gw_status add_role(gw_chat_form *r, const gw_chat_message *m) {
    const gw_chat_style *s = r->c->style;
    if (strcmp(m->role, "system") == 0) {
        if (s->system != NULL) {
            return add_pattern(r, s->system, m, GW_CHAT_TRIM_SYSTEM);
        }
        if (r->system != NULL) {
            return gw_fail(GW_E_ARGUMENT, "chat", "two system messages without a user's between");
        }
        r->system = m;
        return GW_OK;
    }
    if (strcmp(m->role, "user") == 0) {
        return add_pattern(r, s->user, m, GW_CHAT_TRIM_USER);
    }
    if (strcmp(m->role, "assistant") != 0) {
        return gw_fail(GW_E_ARGUMENT, "chat", "'%.40s' is no role; system, user and assistant are",
                       m->role);
    }
    GW_TRY(add_pattern(r, s->answer, m, 0));
    GW_TRY(add_pattern(r, s->said, m, GW_CHAT_TRIM_ANSWER));
    if (r->goes_on) {
        return GW_OK;
    }
    GW_TRY(add_pattern(r, s->end, m, 0));
    return add_pattern(r, s->after, m, 0);
}

static gw_status add_beginning(gw_chat_form *r, const gw_chat_message *first) {
    const gw_chat *c = r->c;
    int own = strncmp(c->style->begin, "{bos}", 5) == 0 || strncmp(c->style->user, "{bos}", 5) == 0;
    if (!own && c->vocab->add_bos) {
        GW_TRY(add_piece(r, c->vocab->bos, NULL, 0));
    }
    GW_TRY(add_pattern(r, c->style->begin, NULL, 0));
    if (c->style->preset[0] != '\0' && strcmp(first->role, "system") != 0) {
        r->preset = (gw_chat_message){"system", c->style->preset, strlen(c->style->preset)};
        return add_role(r, &r->preset);
    }
    return GW_OK;
}

gw_text_rules gw_chat_rules(const gw_chat *chat, int joined) {
    return (gw_text_rules){.barred = chat->barred,
                           .n_barred = chat->n_barred,
                           .joined = joined,
                           .strip_after =
                               chat->template == NULL && (chat->style->flags & GW_CHAT_STRIP) != 0};
}

gw_status gw_chat_fill(gw_chat_form *r, const gw_chat_message *messages, size_t n, size_t from) {
    if (from == 0) {
        GW_TRY(add_beginning(r, &messages[0]));
    } else {
        GW_TRY(add_pattern(r, r->c->style->end, NULL, 0));
        GW_TRY(add_pattern(r, r->c->style->after, NULL, 0));
    }
    for (size_t i = from; i < n; i++) {
        r->goes_on = r->unfinished && i + 1 == n;
        GW_TRY(add_role(r, &messages[i]));
    }
    if (r->system != NULL) {
        return gw_fail(GW_E_ARGUMENT, "chat",
                       "template %s puts a system message into the user's message behind it; "
                       "there is none",
                       r->c->style->name);
    }
    int answered = n > 0 && strcmp(messages[n - 1].role, "assistant") == 0;
    return answered || r->closed ? GW_OK : add_pattern(r, r->c->style->answer, NULL, 0);
}

gw_status gw_chat_render(const gw_chat *chat, const gw_chat_message *messages, size_t n,
                         size_t from, int32_t **ids, size_t *n_ids) {
    if (n == 0 || from >= n || (from > 0 && strcmp(messages[from - 1].role, "assistant") != 0)) {
        return gw_fail(GW_E_ARGUMENT, "chat",
                       n == 0 ? "no message to render"
                              : "rendering goes on only behind an assistant's message");
    }
    if (chat->template != NULL) {
        return gw_chat_render_template(chat, messages, n, from, ids, n_ids);
    }
    gw_chat_form r = {.c = chat};
    gw_text_rules rules = gw_chat_rules(chat, from > 0);
    gw_status status = gw_chat_fill(&r, messages, n, from);
    if (status == GW_OK) {
        status = gw_tokenizer_encode_pieces(chat->tokenizer, r.pieces, r.n, &rules, ids, n_ids);
    }
    free(r.pieces);
    return status;
}
