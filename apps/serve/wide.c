/* apps/serve/wide.c - integers beyond 64 bits in schemas: see wide.h. */
#include "apps/serve/wide.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "apps/common.h"

typedef struct place {
    char text[64]; /* what a fault has room for: the end of a longer one */
} place;

static place below(const place *at, const char *key, size_t index) {
    char whole[256];
    place next;
    if (key != NULL) {
        snprintf(whole, sizeof whole, "%s%s%.100s", at->text, at->text[0] != '\0' ? "." : "", key);
    } else {
        snprintf(whole, sizeof whole, "%s[%zu]", at->text, index);
    }
    size_t n = strlen(whole), most = sizeof next.text - 1, skip = n > most ? n - most : 0;
    memcpy(next.text, whole + skip, n - skip + 1);
    return next;
}

static int is_wide(const json_t *x) {
    double value = json_is_real(x) ? json_real_value(x) : 0;
    return value >= 0x1p63 || value <= -0x1p63; /* what fits is no real number */
}

static int is_one_of(const char *key, const char *const *names) {
    for (; *names != NULL; names++) {
        if (strcmp(key, *names) == 0) {
            return 1;
        }
    }
    return 0;
}

static int refuse(const place *at, fault *f) {
    return fault_set(f, 400, at->text, "%s: an integer here may have 64 bits at most", at->text);
}

/* A bound beyond 64 bits becomes the nearest that they hold, where that is within it. */
static int tame_bound(json_t *object, const char *key, const place *at, fault *f) {
    static const char *const most[] = {"maximum", "exclusiveMaximum", NULL};
    static const char *const least[] = {"minimum", "exclusiveMinimum", NULL};
    const json_t *x = json_object_get(object, key);
    int above = json_real_value(x) > 0;
    if (!is_one_of(key, above ? most : least)) {
        return refuse(at, f);
    }
    return json_object_set_new(object, key, json_integer(above ? INT64_MAX : INT64_MIN)) == 0
               ? 0
               : fault_set(f, 503, NULL, "out of memory");
}

static int walk(json_t *value, const place *at, fault *f) {
    static const char *const bounds[] = {"maximum", "exclusiveMaximum", "minimum",
                                         "exclusiveMinimum", NULL};
    static const char *const exact[] = {"const", "multipleOf", NULL};
    const char *key;
    json_t *x;
    size_t i;
    int code = 0;
    json_object_foreach(value, key, x) {
        const place next = below(at, key, 0);
        if (is_wide(x) && is_one_of(key, bounds)) {
            code = tame_bound(value, key, &next, f);
        } else if (is_wide(x) && is_one_of(key, exact)) {
            code = refuse(&next, f);
        } else {
            code = walk(x, &next, f);
        }
        if (code != 0) {
            return code;
        }
    }
    json_array_foreach(value, i, x) {
        const place next = below(at, NULL, i);
        size_t n = strlen(at->text);
        int in_enum = n >= 5 && strcmp(at->text + n - 5, ".enum") == 0;
        if ((is_wide(x) && in_enum) ? refuse(&next, f) != 0 : walk(x, &next, f) != 0) {
            return -1;
        }
    }
    return 0;
}

int wide_tame(json_t *request, fault *f) {
    static const char *const schemas[] = {"tools",       "functions",          "format",
                                          "json_schema", "response_format",    "text",
                                          "guided_json", "structured_outputs", NULL};
    for (const char *const *name = schemas; *name != NULL; name++) {
        const place at = below(&(place){""}, *name, 0);
        if (walk(json_object_get(request, *name), &at, f) != 0) {
            return -1;
        }
    }
    return 0;
}
