/* apps/conversation.c - messages, turns, what the session holds: see conversation.h. */
#include "apps/conversation.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "apps/output.h"
#include "apps/signals.h"

/* ---- open and close -------------------------------------------------------------------------- */

static int no_memory(void) {
    app_error("out of memory");
    return APP_FAILURE;
}

static int open_parts(conversation *c) {
    app_generator *g = &c->g;
    int code = app_open_chat(g->o, g->model, &c->chat);
    if (code != APP_OK) {
        return code;
    }
    c->n_ctx = (size_t)generator_n_ctx(g);
    g->limit =
        g->shifts && !g->o->context_shift ? (int32_t)c->n_ctx : 0; /* nobody asked for more */
    code = app_open_session(g->o, g->model, (int32_t)c->n_ctx, g->o->batch, &g->session);
    if (code != APP_OK) {
        return code;
    }
    code = generator_open(g, c->chat);
    return code == APP_OK ? chat_answer_open(&c->answer, g->o, g->model, c->chat) : code;
}

int conversation_open(conversation *c, const app_options *o) {
    *c = (conversation){.g = {.o = o, .pending = -1, .shifts = !o->no_context_shift}, .stale = 1};
    const app_need need = {.n_ctx = o->n_ctx < 0 ? -4096 : o->n_ctx,
                           .batch = o->batch,
                           .eyes = &c->pictures.images,
                           .blind = c->blind};
    int code = app_open_model(o, o->model, o->threads, &need, &c->g.model);
    if (code != APP_OK) {
        return code;
    }
    gw_model_describe(c->g.model, &c->g.info);
    code = open_parts(c);
    if (code == APP_OK && o->system != NULL) {
        code = conversation_set_system(c, o->system, strlen(o->system));
    }
    return code;
}

static void drop_message(conversation *c) { free((void *)(uintptr_t)c->messages[--c->n].text); }

void conversation_close(conversation *c) {
    while (c->n > 0) {
        drop_message(c);
    }
    free(c->messages);
    free(c->images);
    gw_free(c->seen);
    pictures_free(&c->pictures);
    chat_answer_close(&c->answer);
    gw_chat_free(c->chat);
    generator_close(&c->g);
}

/* ---- messages -------------------------------------------------------------------------------- */

char *conversation_text(const char *text, size_t bytes, const char *more) {
    size_t n = strlen(more);
    char *copy = malloc(bytes + n + 2);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
        memcpy(copy + bytes + 1, more, n + 1);
    }
    return copy;
}

/* role: a constant. The text is copied. */
static int add_message_with(conversation *c, const char *role, const char *text, size_t bytes,
                            const char *more) {
    if (c->n == c->capacity) {
        size_t room = c->capacity * 2 + 16;
        gw_chat_message *grown = realloc(c->messages, room * sizeof *grown);
        if (grown == NULL) {
            return no_memory();
        }
        c->messages = grown;
        c->capacity = room;
    }
    char *copy = conversation_text(text, bytes, more);
    if (copy == NULL) {
        return no_memory();
    }
    c->messages[c->n++] = (gw_chat_message){role, copy, bytes};
    return APP_OK;
}

static int add_message(conversation *c, const char *role, const char *text, size_t bytes) {
    return add_message_with(c, role, text, bytes, "");
}

const gw_chat_message *conversation_system(const conversation *c) {
    return c->n > 0 && strcmp(c->messages[0].role, "system") == 0 ? &c->messages[0] : NULL;
}

int conversation_set_system(conversation *c, const char *text, size_t bytes) {
    if (bytes > 0) { /* added at the end, moved to the front */
        int code = add_message(c, "system", text, bytes);
        if (code != APP_OK) {
            return code;
        }
        gw_chat_message added = c->messages[c->n - 1];
        memmove(c->messages + 1, c->messages, (c->n - 1) * sizeof *c->messages);
        c->messages[0] = added;
    }
    size_t old = bytes > 0 ? 1 : 0;
    if (c->n > old && strcmp(c->messages[old].role, "system") == 0) {
        free((void *)(uintptr_t)c->messages[old].text);
        c->n--;
        memmove(c->messages + old, c->messages + old + 1, (c->n - old) * sizeof *c->messages);
    }
    c->stale = 1;
    return APP_OK;
}

void conversation_reset(conversation *c) {
    size_t keep = conversation_system(c) != NULL;
    free(c->images);
    c->images = NULL;
    while (c->n > keep) {
        drop_message(c);
    }
    c->forgotten = 0;
    c->stale = 1;
}

/* ---- the session's share --------------------------------------------------------------------- */

/* Session and drafter go back to the first n tokens held. */
static gw_status go_back(conversation *c, size_t n) {
    app_generator *g = &c->g;
    gw_status status = GW_OK;
    if ((size_t)gw_session_pos(g->session) > n) {
        status = gw_session_rewind(g->session, (int32_t)n);
    }
    if (status == GW_OK && g->draft.drafter != NULL) {
        status = gw_drafter_rewind(g->draft.drafter, (int32_t)n);
    }
    c->n_held = n;
    g->pending = -1;
    return status;
}

/* The session holds rows of these from now on; seen is taken over. */
static void keep_seen(conversation *c, gw_seen_rows *seen, size_t n) {
    gw_free(c->seen);
    c->seen = seen;
    c->n_seen = n;
}

/* Tokens [n] after those that agree; seen: of all. */
static gw_status read_rest(conversation *c, const int32_t *tokens, size_t n, size_t same,
                           const gw_seen_rows *seen, size_t n_seen) {
    gw_seen_rows *rest = malloc((n_seen + 1) * sizeof *rest);
    size_t n_rest = 0;
    for (size_t i = 0; rest != NULL && i < n_seen; i++) {
        if (seen[i].at >= same) {
            rest[n_rest] = seen[i];
            rest[n_rest++].at -= same;
        }
    }
    app_progress progress;
    progress_begin(&progress, "reading");
    gw_status status = rest == NULL ? GW_E_NOMEM
                       : n_rest > 0
                           ? generator_read_seen(&c->g, tokens + same, n - same, rest, n_rest)
                           : generator_read(&c->g, tokens + same, n - same, &progress);
    progress_end(&progress);
    free(rest);
    return status;
}

/* Make the session hold exactly tokens [n] and see: keep what agrees, evaluate the rest. seen is
 * taken over. */
static gw_status hold(conversation *c, const int32_t *tokens, size_t n, gw_seen_rows *seen,
                      size_t n_seen) {
    app_generator *g = &c->g;
    const int32_t *held = gw_session_tokens(g->session);
    size_t same = 0, pos = (size_t)gw_session_pos(g->session);
    while (same < pos && same + 1 < n && held[same] == tokens[same]) {
        same++; /* the last one is read again if need be: its logits are wanted */
    }
    same = conversation_same(c, seen, n_seen, same);
    keep_seen(c, seen, n_seen);
    int32_t shifted = g->shifted;
    g->shifted = c->stale ? 0 : shifted;
    if (same < c->n_held || same < pos) {
        gw_status status = go_back(c, same);
        if (status != GW_OK) {
            return status;
        }
    }
    if (g->shifted != shifted &&
        g->draft.drafter != NULL) { /* places in the text begin at 0 for it, too */
        gw_status status = gw_drafter_rewind(g->draft.drafter, 0);
        if (status == GW_OK && same > 0) {
            status = gw_drafter_prompt(g->draft.drafter, tokens, same);
        }
        if (status != GW_OK) {
            return status;
        }
    }
    double start = app_seconds();
    gw_status status = read_rest(c, tokens, n, same, seen, n_seen);
    if (status != GW_OK) {
        go_back(c, same);
        return status;
    }
    c->n_held = n;
    c->last.kept = (int32_t)same;
    c->last.read = (int32_t)(n - same);
    c->last.read_seconds = app_seconds() - start;
    return GW_OK;
}

/* ---- a turn ---------------------------------------------------------------------------------- */

/* The messages [n] that the model still knows: free. NULL: no memory. */
static gw_chat_message *known_messages(const conversation *c, size_t *n) {
    size_t head = conversation_system(c) != NULL, known = c->n - c->forgotten;
    gw_chat_message *list = malloc(known * sizeof *list);
    if (list != NULL) {
        memcpy(list, c->messages, head * sizeof *list);
        memcpy(list + head, c->messages + head + c->forgotten, (known - head) * sizeof *list);
        *n = known;
    }
    return list;
}

/* Their tokens, of all or of the last one. */
static gw_status render(const conversation *c, int all, int32_t **ids, size_t *n) {
    size_t known = 0;
    gw_chat_message *list = known_messages(c, &known);
    if (list == NULL) {
        return GW_E_NOMEM;
    }
    gw_status status = conversation_has_calls(c)
                           ? conversation_request(c, list, known, ids, n)
                           : gw_chat_render(c->chat, list, known, all ? 0 : known - 1, ids, n);
    free(list);
    return status;
}

/* The tokens that the session has to hold before the answer: *ids [*n], freed with gw_free. */
static gw_status wanted(conversation *c, int32_t **ids, size_t *n) {
    int32_t *more = NULL;
    size_t n_more = 0;
    if (c->stale || conversation_has_calls(c)) {
        c->stale = 1;
        return render(c, 1, ids, n);
    }
    gw_status status = render(c, 0, &more, &n_more);
    if (status == GW_E_UNSUPPORTED) { /* the template writes past answers differently */
        c->stale = 1;
        return render(c, 1, ids, n);
    }
    if (status != GW_OK) {
        return status;
    }
    int32_t *all = malloc((c->n_held + n_more) * sizeof *all);
    if (all == NULL) {
        gw_free(more);
        return GW_E_NOMEM;
    }
    memcpy(all, gw_session_tokens(c->g.session), c->n_held * sizeof *all);
    memcpy(all + c->n_held, more, n_more * sizeof *all);
    gw_free(more);
    *ids = all;
    *n = c->n_held + n_more;
    return GW_OK;
}

/* The oldest question and its answer; 0 when only the newest message is left. */
static int forget_oldest(conversation *c) {
    size_t first = (conversation_system(c) != NULL) + c->forgotten;
    if (first + 1 >= c->n) {
        return 0;
    }
    size_t answered = strcmp(c->messages[first + 1].role, "assistant") == 0 && first + 2 < c->n;
    c->forgotten += 1 + answered;
    c->stale = 1;
    return 1;
}

/* The same, with room for an answer: without --no-context-shift the oldest messages go, down to
 * three quarters of the context. */
static gw_status wanted_and_fitting(conversation *c, int32_t **ids, size_t *n) {
    size_t limit = c->n_ctx, before = c->forgotten;
    gw_status status = wanted(c, ids, n);
    while (status == GW_OK && *n >= limit && !c->g.o->no_context_shift && forget_oldest(c)) {
        limit = c->n_ctx / 4 * 3;
        gw_free(*ids);
        *ids = NULL;
        status = wanted(c, ids, n);
    }
    if (c->forgotten != before) {
        app_note("[the context is full: the oldest %zu messages are out of the model's sight]",
                 c->forgotten);
    }
    return status;
}

/* What no shift within an answer forgets: --keep tokens, and at least the beginning that every
 * conversation with this system message has. */
static gw_status find_fixed_part(conversation *c) {
    const gw_chat_message *system = conversation_system(c);
    gw_chat_message a[2] = {{"user", "a", 1}, {"user", "a", 1}}, b[2] = {{"user", "b", 1}};
    int32_t *x = NULL, *y = NULL;
    size_t n_x = 0, n_y = 0, same = 0, n = 1;
    if (system != NULL) {
        a[0] = b[0] = *system;
        b[1] = (gw_chat_message){"user", "b", 1};
        n = 2;
    }
    gw_status status = gw_chat_render(c->chat, a, n, 0, &x, &n_x);
    if (status == GW_OK) {
        status = gw_chat_render(c->chat, b, n, 0, &y, &n_y);
    }
    while (status == GW_OK && same < n_x && same < n_y && x[same] == y[same]) {
        same++;
    }
    gw_free(x);
    gw_free(y);
    c->g.keep = c->g.o->keep > (int32_t)same ? c->g.o->keep : (int32_t)same;
    return status;
}

/* A token of the answer; *end when the answer ends with it. */
static int take_piece(conversation *c, const gw_piece *piece, int *end) {
    app_generator *g = &c->g;
    if (!g->o->ignore_eos && gw_chat_is_end(c->chat, piece->token)) {
        c->last.ended = "end of the answer";
        *end = 1;
        return APP_OK;
    }
    c->n_held++;
    c->last.written++;
    if (generator_stopped(g)) { /* the message ends earlier than the tokens do */
        c->last.ended = "stop string";
        c->stale = *end = 1;
    }
    int is_text = gw_answer_is_text(c->answer.reader, piece->token);
    int code =
        chat_answer_more(&c->answer, is_text ? piece->text : NULL, piece->bytes, piece->token);
    return code == APP_OK && out_flush() != 0 ? APP_FAILURE : code;
}

static void time_piece(conversation *c, double start, double *first) {
    double now = app_seconds();
    if (*first == 0) {
        *first = now;
        c->last.first_seconds = now - start;
    } else {
        c->last.timed++;
        c->last.text_seconds = now - *first;
    }
}

/* Ctrl-C: what was held back is still part of the answer. */
static int stop_here(conversation *c) {
    gw_piece piece;
    int there = 1, end = 0, code = APP_OK;
    c->last.ended = "stopped";
    gw_status status = generator_over(&c->g);
    c->g.failed = GW_OK;
    while (status == GW_OK && code == APP_OK && there && !end) {
        status = generator_next(&c->g, 0, &piece, &there);
        code = status == GW_OK && there ? take_piece(c, &piece, &end) : code;
    }
    return status == GW_OK ? code : app_fail(status);
}

/* Tokens until the answer ends; APP_FAILURE when that is an error, and Ctrl-C is none. */
static int generate(conversation *c) {
    app_generator *g = &c->g;
    int whole = g->o->n_predict < 0 && g->limit > 0;
    int32_t limit = whole ? g->limit : g->o->n_predict;
    double start = app_seconds(), first = 0;
    int code = APP_OK, end = 0;
    c->last.ended = whole ? "as long as the context" : "as long as asked for";
    while (code == APP_OK && !end && (limit < 0 || c->last.written < limit)) {
        size_t most = limit < 0 ? SIZE_MAX : (size_t)(limit - c->last.written);
        int32_t shifted = g->shifted;
        gw_piece piece;
        int there = 0;
        gw_status status = generator_next(g, most, &piece, &there);
        if (g->shifted != shifted) {
            c->n_seen = 0; /* they stand elsewhere now */
            c->n_held -= (size_t)(g->shifted - shifted);
            c->stale = 1; /* the messages are longer than what is left */
        }
        if (there) {
            time_piece(c, start, &first);
            code = take_piece(c, &piece, &end);
        } else if (status == GW_OK) {
            int cut = whole && strcmp(g->ended, "as long as asked for") == 0;
            c->last.ended = strcmp(g->ended, "end of text") == 0 ? "end of the answer"
                            : cut                                ? c->last.ended
                                                                 : g->ended;
            end = 1;
        }
        if (!end && (status == GW_OK || status == GW_E_CANCELLED) && signals_take_interrupt()) {
            return code == APP_OK ? stop_here(c) : code;
        }
        if (status != GW_OK) {
            return app_fail(status);
        }
    }
    return code;
}

/* The held-back end of the text; and the session catches up with the last token, or forgets what
 * came after the answer. */
static int settle(conversation *c) {
    app_generator *g = &c->g;
    gw_piece rest = {.text = ""};
    size_t pos = (size_t)gw_session_pos(g->session);
    gw_status status = gw_writer_rest(g->writer, &rest);
    int code = status == GW_OK ? chat_answer_more(&c->answer, rest.text, rest.bytes, -1)
                               : app_fail(status);
    code = code == APP_OK ? chat_answer_end(&c->answer) : code;
    status = GW_OK;
    if (g->draft.drafter != NULL) {
        status = gw_drafter_rewind(g->draft.drafter, (int32_t)c->n_held);
    }
    if (status == GW_OK && pos > c->n_held) {
        status = gw_session_rewind(g->session, (int32_t)c->n_held);
    } else if (status == GW_OK && pos < c->n_held && pos < c->n_ctx) {
        status = gw_session_decode(g->session, &g->pending, 1);
    }
    g->pending = -1;
    if (status != GW_OK || (size_t)gw_session_pos(g->session) != c->n_held) {
        go_back(c, (size_t)gw_session_pos(g->session));
        c->stale = 1;
    }
    return status == GW_OK || status == GW_E_CANCELLED ? code : app_fail(status);
}

static int context_full(const conversation *c, size_t n) {
    if (!c->g.o->no_context_shift) {
        app_error("the message needs %zu tokens, context is %zu: make it shorter, -c sets the size",
                  n + 1, c->n_ctx);
        return APP_FAILURE;
    }
    app_error("the conversation needs %zu tokens, context is %zu: /reset begins a new one, -c sets "
              "the size, without --no-context-shift the oldest messages are forgotten",
              n + 1, c->n_ctx);
    return APP_FAILURE;
}

static void count(conversation *c) {
    c->turns++;
    c->read += c->last.read;
    c->written += c->last.written;
    c->read_seconds += c->last.read_seconds;
    c->text_seconds += c->last.text_seconds;
}

static int answer_it(conversation *c) {
    chat_answer *a = &c->answer;
    const gw_grammar *own = c->g.grammar;
    c->stale = 0;
    a->keep_blank = own != NULL;
    int code = chat_answer_begin(a, gw_session_tokens(c->g.session), c->n_held, own != NULL);
    if (code != APP_OK) {
        return code;
    }
    code = generator_begin(&c->g, own != NULL ? own : a->grammar, 0);
    if (code != APP_OK) {
        return code;
    }
    code = generate(c);
    int rest = settle(c);
    if (a->text.bytes > 0 && a->text.at[a->text.bytes - 1] != '\n' && a->n_calls == 0) {
        out_text("\n");
    }
    rest = out_flush() != 0 ? APP_FAILURE : rest;
    char *members = chat_answer_members(a);
    int added = members == NULL
                    ? APP_FAILURE
                    : add_message_with(c, "assistant", a->text.bytes > 0 ? a->text.at : "",
                                       a->text.bytes, members);
    free(members);
    /* what was thought and how calls were written is not in the messages */
    c->stale |= a->reasoned || a->n_calls > 0;
    count(c);
    return code != APP_OK ? code : rest != APP_OK ? rest : added;
}

/* Memory that this file asked for itself left no message in the library. What a template refuses is
 * no matter of usage. */
static int fail_turn(gw_status status) {
    int code = status == GW_E_NOMEM ? no_memory() : app_fail(status);
    return code == APP_USAGE ? APP_FAILURE : code;
}

static gw_status see(conversation *c, const int32_t *ids, size_t n, gw_seen_rows **seen,
                     size_t *n_seen) {
    size_t known = 0;
    gw_chat_message *list = known_messages(c, &known);
    gw_status status =
        list != NULL ? conversation_see(c, list, known, ids, n, seen, n_seen) : GW_E_NOMEM;
    free(list);
    return status;
}

/* The answer to the messages as they are; *begun 0: nothing has come of it. */
static int take_turn(conversation *c, int *begun) {
    int32_t *ids = NULL;
    size_t n = 0;
    int code;
    *begun = 0;
    c->last = (chat_turn){0};
    gw_status status = c->g.shifts ? find_fixed_part(c) : GW_OK;
    if (status == GW_OK) {
        status = wanted_and_fitting(c, &ids, &n);
    }
    if (status != GW_OK) {
        code = fail_turn(status);
    } else if (n >= c->n_ctx) {
        code = context_full(c, n);
    } else {
        gw_seen_rows *seen = NULL;
        size_t n_seen = 0;
        status = see(c, ids, n, &seen, &n_seen);
        status = status == GW_OK ? hold(c, ids, n, seen, n_seen) : status;
        int stopped = status == GW_E_CANCELLED && signals_take_interrupt();
        code = status == GW_OK ? APP_OK : stopped ? APP_OK : fail_turn(status);
        c->last.ended = stopped ? "stopped before the answer" : "";
    }
    gw_free(ids);
    *begun = code == APP_OK && status == GW_OK;
    return *begun ? answer_it(c) : code;
}

int conversation_turn(conversation *c, const char *text, size_t bytes) {
    const char *images = c->images != NULL ? c->images : "";
    int begun, code = text != NULL ? add_message_with(c, "user", text, bytes, images) : APP_OK;
    if (code != APP_OK) {
        return code;
    }
    code = take_turn(c, &begun);
    if (!begun && text != NULL) {
        drop_message(c);
    } else if (text != NULL) {
        free(c->images);
        c->images = NULL;
    }
    return code;
}

/* ---- tools ----------------------------------------------------------------------------------- */

const chat_call *conversation_call(const conversation *c, size_t i) {
    return i < c->answer.n_calls ? &c->answer.calls[i] : NULL;
}

int conversation_result(conversation *c, const chat_call *call, const char *text, size_t bytes) {
    json_t *members = json_pack("{s:s, s:s}", "tool_call_id", call->id, "name", call->name);
    char *more = members != NULL ? json_dumps(members, JSON_COMPACT) : NULL;
    int code = more != NULL ? add_message_with(c, "tool", text, bytes, more) : no_memory();
    free(more);
    json_decref(members);
    return code;
}

void conversation_cut(conversation *c, size_t n) {
    while (c->n > n) {
        drop_message(c);
    }
    c->stale = 1;
}

int conversation_go_on(conversation *c) {
    int begun;
    c->stale = 1;
    c->answer.after_results = 1;
    int code = take_turn(c, &begun);
    c->answer.after_results = 0;
    return code;
}

int conversation_tools(conversation *c, const char *path) {
    int code = chat_answer_tools(&c->answer, path);
    c->stale |= code == APP_OK;
    return code;
}
