/* apps/serve/wide.c - integers beyond 64 bits in requests: see wide.h. */
#include "apps/serve/wide.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/serve/random.h"
#include "core/base/json.h"

/* ---- marks ----------------------------------------------------------------------------------- */

enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };

static json_t *parse(const char *text, size_t bytes, const char *front, const char *end,
                     json_error_t *error) {
    size_t n = 0;
    char *widened = gw_json_widen(text, bytes, front, end, &n);
    json_t *root = widened != NULL ? json_loadb(widened, n, FLAGS, error) : NULL;
    free(widened);
    return root;
}

json_t *wide_parse_real(const char *text, size_t bytes, json_error_t *error) {
    return parse(text, bytes, "", ".0", error);
}

json_t *wide_parse_marked(const char *text, size_t bytes, wide_mark *mark) {
    char front[sizeof mark->word + 1];
    json_error_t error;
    if (mark->word[0] == '\0') {
        uint64_t secret;
        random_bytes(&secret, sizeof secret);
        snprintf(mark->word, sizeof mark->word, "wide-%016llx:", (unsigned long long)secret);
    }
    snprintf(front, sizeof front, "\"%s", mark->word);
    return parse(text, bytes, front, "\"", &error);
}

char *wide_dump(const json_t *value, const wide_mark *mark) {
    char *text = json_dumps(value, JSON_COMPACT), *from = text, *to = text;
    char front[sizeof mark->word + 1];
    if (text == NULL || mark->word[0] == '\0') {
        return text;
    }
    size_t bytes = strlen(text);
    size_t n = (size_t)snprintf(front, sizeof front, "\"%s", mark->word);
    for (char *end = text + bytes, *at; from < end;) {
        at = memmem(from, (size_t)(end - from), front, n);
        size_t plain = (size_t)((at != NULL ? at : end) - from);
        memmove(to, from, plain);
        to += plain;
        from = at != NULL ? at + n : end;
        if (at != NULL) {
            size_t digits = strcspn(from, "\"");
            memmove(to, from, digits);
            to += digits;
            from += digits + 1;
        }
    }
    *to = '\0';
    return text;
}

/* Values of these names, at any depth: what a call is given. */
static void show_arguments(json_t *value, const json_t *marked) {
    const char *key;
    json_t *x;
    size_t i;
    json_object_foreach(value, key, x) {
        json_t *other = json_object_get(marked, key);
        if (strcmp(key, "arguments") == 0 || strcmp(key, "input") == 0) {
            json_object_set(value, key, other);
        } else {
            show_arguments(x, other);
        }
    }
    json_array_foreach(value, i, x) { show_arguments(x, json_array_get(marked, i)); }
}

void wide_show(json_t *request, const json_t *marked) {
    static const char *const shown[] = {"chat_template_kwargs", "documents", NULL};
    for (const char *const *name = shown; *name != NULL; name++) {
        json_t *value = json_object_get(marked, *name);
        if (value != NULL) {
            json_object_set(request, *name, value);
        }
    }
    show_arguments(json_object_get(request, "messages"), json_object_get(marked, "messages"));
}

/* ---- schemas --------------------------------------------------------------------------------- */

typedef struct place {
    const struct place *up;
    const char *key; /* NULL: an entry of a list */
    size_t index;
} place;

typedef enum meaning { SCHEMA, NAMED /* schemas by names, which are no keywords */, EXACT } meaning;

/* The whole place, or "..." and its end. */
static void spell(const place *at, char *out, size_t room) {
    enum { DOTS = 3 };
    size_t begin = room - 1;
    out[begin] = '\0';
    for (; at != NULL; at = at->up) {
        char index[32];
        snprintf(index, sizeof index, "[%zu]", at->index);
        const char *part = at->key != NULL ? at->key : index;
        size_t n = strlen(part), dot = at->key != NULL && at->up != NULL, most = begin - DOTS;
        if (n + dot > most) {
            memcpy(out, "...", DOTS);
            memcpy(out + DOTS, part + n - most, most);
            return;
        }
        begin -= n;
        memcpy(out + begin, part, n);
        if (dot) {
            out[--begin] = '.';
        }
    }
    memmove(out, out + begin, room - begin);
}

static int refuse(const place *at, fault *f) {
    char param[sizeof f->param], whole[sizeof f->text / 2];
    spell(at, param, sizeof param);
    spell(at, whole, sizeof whole);
    return fault_set(f, 400, param, "%s: an integer here may have 64 bits at most", whole);
}

static int is_wide(const json_t *x, const json_t *marked) {
    return json_is_real(x) && json_is_string(marked);
}

static int is_one_of(const char *key, const char *const *names) {
    for (; *names != NULL; names++) {
        if (strcmp(key, *names) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A bound beyond 64 bits becomes the nearest that they hold, where that is within it. */
static int tame_bound(json_t *object, const place *at, fault *f) {
    static const char *const most[] = {"maximum", "exclusiveMaximum", NULL};
    static const char *const least[] = {"minimum", "exclusiveMinimum", NULL};
    const json_t *x = json_object_get(object, at->key);
    int above = json_real_value(x) > 0;
    if (!is_one_of(at->key, above ? most : least)) {
        return refuse(at, f);
    }
    return json_object_set_new(object, at->key, json_integer(above ? INT64_MAX : INT64_MIN)) == 0
               ? 0
               : fault_set(f, 503, NULL, "out of memory");
}

static int walk(json_t *value, const json_t *marked, meaning m, const place *at, fault *f);

static int take_member(json_t *object, const json_t *marked, const place *at, fault *f) {
    static const char *const bounds[] = {"maximum", "exclusiveMaximum", "minimum",
                                         "exclusiveMinimum", NULL};
    static const char *const exact[] = {"const", "enum", "multipleOf", "not", "if", NULL};
    static const char *const named[] = {"properties", "patternProperties", "definitions",
                                        "$defs",      "dependentSchemas",  "dependencies",
                                        NULL};
    static const char *const shown[] = {"default", "examples", "example", NULL};
    json_t *x = json_object_get(object, at->key);
    const json_t *other = json_object_get(marked, at->key);
    if (is_wide(x, other) && is_one_of(at->key, bounds)) {
        return tame_bound(object, at, f);
    }
    if (is_one_of(at->key, shown)) {
        return json_object_set(object, at->key, (json_t *)(uintptr_t)other) == 0
                   ? 0
                   : fault_set(f, 503, NULL, "out of memory");
    }
    meaning m = is_one_of(at->key, exact) ? EXACT : is_one_of(at->key, named) ? NAMED : SCHEMA;
    return walk(x, other, m, at, f);
}

static int walk(json_t *value, const json_t *marked, meaning m, const place *at, fault *f) {
    const meaning inner = m == EXACT ? EXACT : SCHEMA;
    const char *key;
    json_t *x;
    size_t i;
    if (m == EXACT && is_wide(value, marked)) {
        return refuse(at, f);
    }
    json_object_foreach(value, key, x) {
        const place next = {at, key, 0};
        int code = m == SCHEMA ? take_member(value, marked, &next, f)
                               : walk(x, json_object_get(marked, key), inner, &next, f);
        if (code != 0) {
            return code;
        }
    }
    json_array_foreach(value, i, x) {
        const place next = {at, NULL, i};
        if (walk(x, json_array_get(marked, i), inner, &next, f) != 0) {
            return -1;
        }
    }
    return 0;
}

int wide_tame(json_t *request, const json_t *marked, fault *f) {
    static const char *const schemas[] = {
        "tools", "functions",   "format",        "json_schema",   "response_format",
        "text",  "guided_json", "output_format", "output_config", "structured_outputs",
        NULL};
    for (const char *const *name = schemas; *name != NULL; name++) {
        const place at = {NULL, *name, 0};
        json_t *x = json_object_get(request, *name);
        if (walk(x, json_object_get(marked, *name), SCHEMA, &at, f) != 0) {
            return -1;
        }
    }
    return 0;
}
