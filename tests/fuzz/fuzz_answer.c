/* tests/fuzz/fuzz_answer.c - answers of any bytes in every form: however they are cut, the same
 * parts come; calls are JSON objects; nothing is lost but marks. Input: form of calls, form of
 * reasoning, where to cut, how; then the answer, in which bytes 0x01 and 0x02 stand around the
 * spelling of a token. */
#include <jansson.h>
#include <stdio.h>

#include "core/text/answer/answer.h"
#include "core/text/utf8.h"
#include "tests/answer_cases.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD = 4, TOKEN_BEGINS = 1, TOKEN_ENDS = 2 };

typedef struct outcome {
    gw_bytes text, thought, calls;
    size_t at; /* of the open call in calls */
    size_t arguments;
    int open;
} outcome;

static void must(int fine) {
    if (!fine) {
        abort();
    }
}

static int is_token(const void *user, const char *text, size_t n) {
    (void)user;
    (void)text;
    return n > 0;
}

static void add(gw_bytes *to, const char *text, size_t n) {
    must(gw_bytes_add(to, text, n) == GW_OK);
}

static void take(outcome *o, const gw_part *parts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const gw_part *p = &parts[i];
        must(o->open == (p->kind == GW_PART_ARGUMENTS || p->kind == GW_PART_CALL_END ||
                         p->kind == GW_PART_CALL_BROKEN));
        switch (p->kind) {
        case GW_PART_TEXT:
            add(&o->text, p->text, p->bytes);
            break;
        case GW_PART_REASONING:
            add(&o->thought, p->text, p->bytes);
            break;
        case GW_PART_CALL:
            o->open = 1;
            o->at = o->calls.n;
            add(&o->calls, p->name, strlen(p->name) + 1);
            add(&o->calls, p->id, strlen(p->id) + 1);
            o->arguments = o->calls.n;
            break;
        case GW_PART_ARGUMENTS:
            add(&o->calls, p->text, p->bytes);
            break;
        case GW_PART_CALL_END: {
            const char *from = o->calls.data + o->arguments;
            size_t bytes = o->calls.n - o->arguments;
            json_error_t why;
            json_t *json = json_loadb(from, bytes, JSON_ALLOW_NUL, &why);
            /* what jansson alone refuses: half a character, numbers it has no room for, depth */
            int refused = gw_utf8_span(from, bytes) < bytes ||
                          strstr(why.text, "urrogate") != NULL || strstr(why.text, "too") != NULL ||
                          strstr(why.text, "overflow") != NULL ||
                          strstr(why.text, "NUL") != NULL || strstr(why.text, "\\u0000") != NULL ||
                          strstr(why.text, "Unicode") != NULL || strstr(why.text, "depth") != NULL;
            if (json == NULL && !refused) {
                fprintf(stderr, "%s: %.*s\n", why.text, (int)bytes, from);
            }
            must(json != NULL ? json_is_object(json) : refused);
            json_decref(json);
            o->open = 0;
            break;
        }
        default:
            o->open = 0;
            o->calls.n = o->at;
        }
    }
}

static void forget(outcome *o) {
    free(o->text.data);
    free(o->thought.data);
    free(o->calls.data);
}

/* Tokens come whole; what is between them in pieces. */
static void run(gw_reader *r, const char *text, size_t n, size_t piece, outcome *o) {
    const gw_part *parts;
    size_t n_parts;
    *o = (outcome){0};
    must(gw_reader_reset(r) == GW_OK);
    for (size_t at = 0; at < n;) {
        const char *end = text[at] == TOKEN_BEGINS ? memchr(text + at, TOKEN_ENDS, n - at) : NULL;
        size_t bytes = 1;
        if (end != NULL) {
            bytes = (size_t)(end - (text + at)) + 1;
            must(gw_reader_push(r, text + at + 1, bytes - 2, 1, &parts, &n_parts) == GW_OK);
        } else {
            while (bytes < piece && at + bytes < n && text[at + bytes] != TOKEN_BEGINS) {
                bytes++;
            }
            must(gw_reader_push(r, text + at, bytes, 0, &parts, &n_parts) == GW_OK);
        }
        take(o, parts, n_parts);
        at += bytes;
    }
    must(gw_reader_end(r, NULL, 0, &parts, &n_parts) == GW_OK);
    take(o, parts, n_parts);
    must(!o->open && o->text.n + o->thought.n <= n);
}

static int same(const gw_bytes *a, const gw_bytes *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->data, b->data, a->n) == 0);
}

static size_t count_tools(void) {
    size_t n = 0;
    while (gw_tool_form_at(n) != NULL) {
        n++;
    }
    return n;
}

static size_t count_reasoning(void) {
    size_t n = 0;
    while (gw_reasoning_form_at(n) != NULL) {
        n++;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static gw_tools tools;
    if (tools.list == NULL) {
        must(gw_tools_read(CASE_TOOLS, strlen(CASE_TOOLS), &tools) == GW_OK);
    }
    if (n < HEAD) {
        return 0;
    }
    const char *text = (const char *)data + HEAD;
    gw_reader_options options = {
        .tools = gw_tool_form_at(data[0] % count_tools()),
        .reasoning = gw_reasoning_form_at(data[1] % count_reasoning()),
        .list = data[3] & 1 ? &tools : NULL,
        .whole_calls = data[3] >> 1 & 1,
    };
    options.marks.is_token = data[3] & 4 ? is_token : NULL;
    gw_reader *r = NULL;
    outcome whole, cut;
    must(gw_reader_new(&options, &r) == GW_OK);
    run(r, text, n - HEAD, n, &whole);
    run(r, text, n - HEAD, 1 + data[2] % 16u, &cut);
    must(same(&whole.text, &cut.text) && same(&whole.thought, &cut.thought) &&
         same(&whole.calls, &cut.calls));
    forget(&whole);
    forget(&cut);
    gw_reader_free(r);
    return 0;
}
