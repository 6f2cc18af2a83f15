/* core/text/grammar/json_schema_value.c - values of a schema: numbers as they are written, types,
 * equality, literals; see json_schema_parts.h.
 */
#include "core/text/grammar/json_schema_decimal.h"
#include "core/text/grammar/json_schema_parts.h"

const char *const gw_schema_types[GW_TYPES] = {"object", "array",   "string", "integer",
                                               "number", "boolean", "null"};

/* ---- numbers as they are written ------------------------------------------------------------- */

typedef struct scan {
    gw_schema_work *w;
    const char *at, *end;
} scan;

/* The next number of a text that is known to be JSON. */
static const char *next_number(scan *s) {
    for (int quoted = 0; s->at < s->end; s->at++) {
        char c = *s->at;
        if (quoted && c == '\\') {
            s->at++;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && (c == '-' || (c >= '0' && c <= '9'))) {
            const char *begin = s->at;
            while (s->at < s->end && strchr("+-.eE0123456789", *s->at) != NULL && *s->at != '\0') {
                s->at++;
            }
            return gw_arena_copy(s->w->arena, begin, (size_t)(s->at - begin));
        }
    }
    return NULL;
}

static gw_status take_number(scan *s, const json_t *value) {
    gw_schema_work *w = s->w;
    void *texts = w->number_texts;
    gw_status status =
        gw_array_reserve(&texts, &w->numbers_capacity, w->n_numbers + 1, sizeof *w->number_texts);
    w->number_texts = texts;
    GW_TRY(status);
    const char *text = next_number(s);
    uintptr_t *key = gw_arena_alloc(w->arena, sizeof *key);
    if (text == NULL || key == NULL) {
        return gw_schema_no_memory();
    }
    *key = (uintptr_t)value;
    w->number_texts[w->n_numbers] = text;
    return gw_map_add(w->numbers, key, sizeof *key, w->n_numbers++, NULL) == GW_MAP_NOMEM
               ? gw_schema_no_memory()
               : GW_OK;
}

/* In the order of the text: members keep theirs, and none comes twice. It calls itself as deep as
 * jansson lets a text be. */
static gw_status take_numbers(scan *s, json_t *value) {
    const char *key;
    json_t *x;
    size_t i;
    if (json_is_number(value)) {
        return take_number(s, value);
    }
    json_object_foreach(value, key, x) { GW_TRY(take_numbers(s, x)); }
    json_array_foreach(value, i, x) { GW_TRY(take_numbers(s, x)); }
    return GW_OK;
}

gw_status gw_schema_parse(gw_schema_work *w, const char *text, size_t n) {
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* RFC 8259, 8.1: may be passed over */
        text += 3;
        n -= 3;
    }
    GW_TRY(gw_json_parse_reals(GW_SCHEMA, text, n, &w->root));
    scan s = {.w = w, .at = text, .end = text + n};
    return take_numbers(&s, w->root);
}

const char *gw_schema_number(const gw_schema_work *w, const json_t *number) {
    uintptr_t address = (uintptr_t)number;
    size_t at;
    return gw_map_find(w->numbers, &address, sizeof address, &at) ? w->number_texts[at] : "0";
}

int gw_schema_compare(gw_schema_work *w, const json_t *a, const json_t *b) {
    uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    gw_decimal x, y;
    size_t at;
    if (gw_map_find(w->numbers, &first, sizeof first, &at) &&
        gw_map_find(w->numbers, &second, sizeof second, &at) &&
        gw_decimal_parse(w->arena, gw_schema_number(w, a), &x) == GW_OK &&
        gw_decimal_parse(w->arena, gw_schema_number(w, b), &y) == GW_OK) {
        return gw_decimal_compare(&x, &y);
    }
    double p = json_number_value(a), q = json_number_value(b);
    return (p > q) - (p < q);
}

/* ---- values ---------------------------------------------------------------------------------- */

unsigned gw_schema_type_of(gw_schema_work *w, const json_t *value) {
    gw_decimal x;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return 1u << GW_OBJECT;
    case JSON_ARRAY:
        return 1u << GW_ARRAY;
    case JSON_STRING:
        return 1u << GW_STRING;
    case JSON_TRUE:
    case JSON_FALSE:
        return 1u << GW_BOOLEAN;
    case JSON_NULL:
        return 1u << GW_NULL;
    default:
        return gw_decimal_parse(w->arena, gw_schema_number(w, value), &x) == GW_OK &&
                       gw_decimal_is_whole(&x)
                   ? 1u << GW_NUMBER | 1u << GW_INTEGER
                   : 1u << GW_NUMBER;
    }
}

int gw_schema_equal(gw_schema_work *w, const json_t *a, const json_t *b) {
    const char *key;
    json_t *x;
    size_t i;
    if (json_is_number(a) && json_is_number(b)) {
        return gw_schema_compare(w, a, b) == 0;
    }
    if (json_typeof(a) != json_typeof(b) || json_array_size(a) != json_array_size(b) ||
        json_object_size(a) != json_object_size(b)) {
        return 0;
    }
    json_array_foreach((json_t *)(uintptr_t)a, i, x) {
        if (!gw_schema_equal(w, x, json_array_get(b, i))) {
            return 0;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)a, key, x) {
        const json_t *other = json_object_get(b, key);
        if (other == NULL || !gw_schema_equal(w, x, other)) {
            return 0;
        }
    }
    return json_is_string(a) ? json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b) : 1;
}
