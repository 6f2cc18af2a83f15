/* core/text/grammar/json_schema_text.c - rules as text, literals, counts; json_schema_parts.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema_parts.h"

enum { OUT_MAX = 1 << 22 };

gw_status gw_schema_put(gw_bytes *out, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text || out->n > OUT_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "it becomes a grammar of more than 4 MiB");
    }
    return gw_bytes_add(out, text, (size_t)n);
}

gw_status gw_schema_put_literal(gw_bytes *out, const char *text, size_t n) {
    GW_TRY(gw_schema_put(out, "\""));
    for (size_t i = 0; i < n; i++) {
        unsigned c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            GW_TRY(gw_schema_put(out, "\\%c", (int)c));
        } else if (c < 0x20 || c == 0x7F) {
            GW_TRY(gw_schema_put(out, "\\x%02X", c));
        } else {
            GW_TRY(gw_bytes_add(out, text + i, 1));
        }
    }
    return gw_schema_put(out, "\"");
}

/* ---- counts ---------------------------------------------------------------------------------- */

static gw_status get_count(const gw_schema_part *p, const char *key, int least, int64_t *out) {
    const json_t *value = json_object_get(p->schema, key);
    if (value == NULL) {
        return GW_OK;
    }
    double x = json_is_number(value) ? json_number_value(value) : -1;
    if (!(x >= 0) || floor(x) < x) {
        return gw_schema_wrong(p, key, "a whole number, 0 or more");
    }
    if (x > GW_GRAMMAR_REPEAT_MAX && least) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: \"%s\" is above %d", p->where, key,
                       GW_GRAMMAR_REPEAT_MAX);
    }
    *out = x > GW_GRAMMAR_REPEAT_MAX ? GW_GRAMMAR_REPEAT_MAX : (int64_t)x;
    return GW_OK;
}

gw_status gw_schema_counts(gw_schema_work *w, const gw_schema_part *p, const char *least,
                           const char *most, int64_t *low, int64_t *high) {
    *low = 0;
    *high = -1;
    GW_TRY(get_count(p, least, 1, low));
    GW_TRY(get_count(p, most, 0, high));
    return *high >= 0 && *high < *low
               ? gw_schema_contradiction(w, p->where, "the most is less than the least")
               : GW_OK;
}

gw_status gw_schema_put_counts(gw_schema_work *w, int64_t low, int64_t high) {
    return high < 0 ? gw_schema_put(&w->out, "{%d,}", (int)low)
                    : gw_schema_put(&w->out, "{%d,%d}", (int)low, (int)high);
}
