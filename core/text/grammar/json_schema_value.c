/* core/text/grammar/json_schema_value.c - values of a schema: numbers as they are written, types,
 * equality, literals; see json_schema_parts.h.
 */
#include <stdio.h>

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
    void *decimals = w->decimals;
    status =
        gw_array_reserve(&decimals, &w->decimals_capacity, w->n_numbers + 1, sizeof *w->decimals);
    w->decimals = decimals;
    GW_TRY(status);
    w->decimals[w->n_numbers] = NULL;
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

gw_status gw_schema_decimal(gw_schema_work *w, const json_t *number, const gw_decimal **out) {
    uintptr_t address = (uintptr_t)number;
    gw_decimal *x = NULL;
    size_t at;
    if (!gw_map_find(w->numbers, &address, sizeof address, &at)) { /* of our own making */
        char text[40];
        snprintf(text, sizeof text, "%.17g", json_number_value(number));
        x = gw_arena_alloc(w->arena, sizeof *x);
        GW_TRY(x != NULL ? gw_decimal_parse(w->arena, text, x) : gw_schema_no_memory());
        *out = x;
        return GW_OK;
    }
    if (w->decimals[at] == NULL) {
        x = gw_arena_alloc(w->arena, sizeof *x);
        GW_TRY(x != NULL ? gw_decimal_parse(w->arena, w->number_texts[at], x)
                         : gw_schema_no_memory());
        w->decimals[at] = x;
    }
    *out = w->decimals[at];
    return GW_OK;
}

int gw_schema_compare(gw_schema_work *w, const json_t *a, const json_t *b) {
    const gw_decimal *x, *y;
    if (gw_schema_decimal(w, a, &x) == GW_OK && gw_schema_decimal(w, b, &y) == GW_OK) {
        return gw_decimal_compare(x, y);
    }
    double p = json_number_value(a), q = json_number_value(b);
    return (p > q) - (p < q);
}

/* ---- values ---------------------------------------------------------------------------------- */

unsigned gw_schema_type_of(gw_schema_work *w, const json_t *value) {
    const gw_decimal *x;
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
        return gw_schema_decimal(w, value, &x) == GW_OK && gw_decimal_is_whole(x)
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

/* ---- sets of values -------------------------------------------------------------------------- */

static gw_status add_key(gw_schema_work *w, const json_t *value);

/* Digits without zeros around them, and where the point is. */
static gw_status add_number_key(gw_schema_work *w, const json_t *value) {
    const gw_decimal *x;
    char head[48];
    gw_status status = gw_schema_decimal(w, value, &x);
    if (status == GW_E_LIMIT) { /* too long to be taken apart: as it is written */
        const char *text = gw_schema_number(w, value);
        GW_TRY(gw_bytes_add(&w->key, "N", 1));
        return gw_bytes_add(&w->key, text, strlen(text) + 1);
    }
    GW_TRY(status);
    int n = snprintf(head, sizeof head, "n%s%lld,%lld:", x->negative ? "-" : "",
                     (long long)x->exponent, (long long)x->n);
    GW_TRY(gw_bytes_add(&w->key, head, (size_t)n));
    return gw_bytes_add(&w->key, x->digits, (size_t)x->n);
}

static gw_status add_text_key(gw_schema_work *w, const char *text, size_t n) {
    char head[32];
    int bytes = snprintf(head, sizeof head, "s%zu:", n);
    GW_TRY(gw_bytes_add(&w->key, head, (size_t)bytes));
    return gw_bytes_add(&w->key, text, n);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Members in the order of their names. */
static gw_status add_object_key(gw_schema_work *w, const json_t *value) {
    size_t n = json_object_size(value), i = 0;
    const char **names = malloc((n + 1) * sizeof *names), *name;
    gw_status status = names != NULL ? GW_OK : gw_schema_no_memory();
    json_t *x;
    GW_TRY_DONE(status);
    json_object_foreach((json_t *)(uintptr_t)value, name, x) { names[i++] = name; }
    qsort(names, n, sizeof *names, by_name);
    GW_TRY_DONE(gw_bytes_add(&w->key, "{", 1));
    for (i = 0; i < n; i++) {
        GW_TRY_DONE(add_text_key(w, names[i], strlen(names[i])));
        GW_TRY_DONE(add_key(w, json_object_get(value, names[i])));
    }
    status = gw_bytes_add(&w->key, "}", 1);
done:
    free(names);
    return status;
}

/* What equal values have in common and no others; it calls itself as deep as jansson lets a text
 * be. */
static gw_status add_key(gw_schema_work *w, const json_t *value) {
    size_t i;
    json_t *x;
    if (json_is_number(value)) {
        return add_number_key(w, value);
    }
    if (json_is_string(value)) {
        return add_text_key(w, json_string_value(value), json_string_length(value));
    }
    if (json_is_object(value)) {
        return add_object_key(w, value);
    }
    if (!json_is_array(value)) {
        return gw_bytes_add(&w->key,
                            json_is_true(value)    ? "t"
                            : json_is_false(value) ? "f"
                                                   : "0",
                            1);
    }
    GW_TRY(gw_bytes_add(&w->key, "[", 1));
    json_array_foreach((json_t *)(uintptr_t)value, i, x) { GW_TRY(add_key(w, x)); }
    return gw_bytes_add(&w->key, "]", 1);
}

gw_status gw_schema_set_open(gw_schema_work *w, gw_schema_set *set) {
    *set = (gw_schema_set){w, gw_map_new()};
    return set->map != NULL ? GW_OK : gw_schema_no_memory();
}

void gw_schema_set_close(gw_schema_set *set) {
    gw_map_free(set->map);
    set->map = NULL;
}

gw_status gw_schema_set_has(gw_schema_set *set, const json_t *value, int *is) {
    gw_schema_work *w = set->w;
    size_t at;
    w->key.n = 0;
    GW_TRY(add_key(w, value));
    *is = gw_map_find(set->map, w->key.data, w->key.n, &at);
    return GW_OK;
}

gw_status gw_schema_set_add(gw_schema_set *set, const json_t *value, int *is_new) {
    gw_schema_work *w = set->w;
    int known;
    GW_TRY(gw_schema_set_has(set, value, &known));
    *is_new = !known;
    if (known) {
        return GW_OK;
    }
    char *copy = gw_arena_copy(w->arena, w->key.data, w->key.n);
    return copy != NULL && gw_map_add(set->map, copy, w->key.n, gw_map_count(set->map), NULL) !=
                               GW_MAP_NOMEM
               ? GW_OK
               : gw_schema_no_memory();
}

gw_status gw_schema_set_add_all(gw_schema_set *set, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        int is_new;
        GW_TRY(gw_schema_set_add(set, json_array_get(list, i), &is_new));
    }
    return GW_OK;
}
