/* apps/serve/reply.c - answers: see reply.h. */
#include "apps/serve/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *reply_dump(json_t *body, size_t *bytes) {
    char *text = body != NULL
                     ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9))
                     : NULL;
    json_decref(body);
    *bytes = text != NULL ? strlen(text) : 0;
    return text;
}

static void reply_more(conn *c, int status, const char *type, const char *text, size_t bytes,
                       const char *extra) {
    conn_begin(c, status, type, (int64_t)bytes, extra);
    conn_write(c, text, bytes);
    conn_end(c);
}

void reply_text(conn *c, int status, const char *type, const char *text, size_t bytes) {
    reply_more(c, status, type, text, bytes, NULL);
}

static void add_relaxed(char *extra, size_t room, const char *relaxed) {
    size_t n = strlen(extra);
    if (relaxed[0] != '\0') {
        snprintf(extra + n, room - n, "Godwit-Relaxed: %s\r\n", relaxed);
    }
}

static void reply_body(conn *c, int status, json_t *body, const char *extra) {
    size_t n;
    char *text = reply_dump(body, &n);
    static const char none[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"unavailable_error\",\"code\":503}}";
    if (text == NULL) {
        reply_text(c, 503, "application/json", none, sizeof none - 1);
        return;
    }
    reply_more(c, status, "application/json; charset=utf-8", text, n, extra);
    free(text);
}

void reply_json(conn *c, int status, json_t *body) { reply_body(c, status, body, NULL); }

void reply_answer(conn *c, json_t *body, const char *relaxed) {
    char extra[560] = "";
    add_relaxed(extra, sizeof extra, relaxed);
    reply_body(c, 200, body, extra);
}

json_t *reply_fault_object(conn_form form, const fault *f) {
    char words[512];
    const char *text = fault_text(f, form, words), *param = fault_param(f, form);
    if (form == FORM_OLLAMA) {
        return json_pack("{s:s}", "error", text);
    }
    if (form == FORM_MESSAGES) {
        json_t *error = json_pack("{s:s, s:s}", "type", fault_type(f->status, 1), "message", text);
        if (error != NULL && f->detail != NULL) {
            json_object_set_new(
                error, "details",
                json_pack("{s:s, s:[s]}", "error_code", f->detail, "unsupported", f->param));
        }
        return error != NULL ? json_pack("{s:s, s:o}", "type", "error", "error", error) : NULL;
    }
    int too_long = f->limit > 0;
    json_t *error = json_pack(
        "{s:s, s:s, s:o, s:s?}", "message", text, "type",
        too_long && form == FORM_NATIVE ? "exceed_context_size_error" : fault_type(f->status, 0),
        "code", f->code != NULL ? json_string(f->code) : json_integer(f->status), "param",
        param[0] != '\0' ? param : NULL);
    if (error != NULL && f->limit > 0) {
        json_object_set_new(error, "n_prompt_tokens", json_integer(f->got));
        json_object_set_new(error, "n_ctx", json_integer(f->limit));
    }
    return error != NULL ? json_pack("{s:o}", "error", error) : NULL;
}

void reply_fault(conn *c, const fault *f) {
    size_t n;
    char extra[96] = "";
    char *text = reply_dump(reply_fault_object(conn_get_form(c), f), &n);
    if (text == NULL) {
        conn_abort(c);
        return;
    }
    if (f->retry_after > 0) {
        snprintf(extra, sizeof extra, "Retry-After: %d\r\n", f->retry_after);
    } else if (f->status == 415) {
        snprintf(extra, sizeof extra, "Accept-Encoding: identity\r\n");
    } else if (f->status == 401) {
        snprintf(extra, sizeof extra, "WWW-Authenticate: Bearer\r\n");
    }
    conn_begin(c, f->status, "application/json; charset=utf-8", (int64_t)n, extra);
    conn_write(c, text, n);
    conn_end(c);
    free(text);
}

void reply_stream(conn *c, int json_lines, const char *relaxed) {
    char extra[640] = "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n";
    add_relaxed(extra, sizeof extra, relaxed);
    conn_begin(c, 200, json_lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8", -1,
               extra);
}

/* Before, the text and after as one write, so that a chunk is a whole event. */
static void write_framed(conn *c, const char *name, json_t *body, const char *prefix,
                         const char *end) {
    size_t n;
    char *text = reply_dump(body, &n);
    size_t before = (name != NULL ? strlen(name) + 8 : 0) + strlen(prefix), after = strlen(end);
    char *line = text != NULL ? malloc(before + n + after + 1) : NULL;
    if (line == NULL) {
        free(text);
        conn_abort(c);
        return;
    }
    int used = snprintf(line, before + n + after + 1, "%s%s%s%s", name != NULL ? "event: " : "",
                        name != NULL ? name : "", name != NULL ? "\n" : "", prefix);
    memcpy(line + used, text, n);
    memcpy(line + used + n, end, after);
    conn_write(c, line, (size_t)used + n + after);
    free(line);
    free(text);
}

void reply_event(conn *c, const char *name, json_t *body) {
    write_framed(c, name, body, "data: ", "\n\n");
}

void reply_line(conn *c, json_t *body) { write_framed(c, NULL, body, "", "\n"); }
void reply_done(conn *c) { conn_write(c, "data: [DONE]\n\n", 14); }
void reply_ping(conn *c) { conn_write(c, ": \n\n", 4); }
