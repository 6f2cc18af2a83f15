/* core/text/grammar/json_schema_text.c - literals, ranges of numbers, formats; see
 * json_schema_parts.h. */
#include "core/text/grammar/json_schema_parts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { OUT_MAX = 1 << 20 };

gw_status gw_schema_put(gw_bytes *out, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text || out->n > OUT_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "it becomes a grammar of more than 1 MiB");
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

gw_status gw_schema_put_value(gw_bytes *out, const json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL) {
        return gw_fail(GW_E_NOMEM, GW_SCHEMA, "no memory");
    }
    gw_status status = gw_schema_put_literal(out, text, strlen(text));
    free(text);
    return status;
}

/* ---- whole numbers --------------------------------------------------------------------------- */

/* `left` digits, any. */
static gw_status any_digits(gw_bytes *out, size_t left) {
    return left == 0 ? GW_OK : gw_schema_put(out, " [0-9]{%zu}", left);
}

/* As many digits as digits [n] has, and not below (above: not above) them. */
static gw_status bounded(gw_bytes *out, const char *digits, size_t n, int above) {
    GW_TRY(gw_schema_put(out, " ("));
    for (size_t i = 0; i < n; i++) {
        char d = digits[i];
        if (d != (above ? '0' : '9')) { /* the digits before are the same, this one differs */
            GW_TRY(gw_schema_put(out, " \"%.*s\" [%c-%c]", (int)i, digits,
                                 above ? '0' : (char)(d + 1), above ? (char)(d - 1) : '9'));
            GW_TRY(any_digits(out, n - i - 1));
            GW_TRY(gw_schema_put(out, " |"));
        }
    }
    return gw_schema_put(out, " \"%.*s\" )", (int)n, digits);
}

/* low and high have the same number of digits. */
static gw_status same_length(gw_bytes *out, uint64_t low, uint64_t high) {
    char a[24], b[24];
    size_t n = (size_t)snprintf(a, sizeof a, "%" PRIu64, low), same = 0;
    snprintf(b, sizeof b, "%" PRIu64, high);
    while (same < n && a[same] == b[same]) {
        same++;
    }
    GW_TRY(gw_schema_put(out, " \"%.*s\"", (int)same, a));
    if (same == n) {
        return GW_OK;
    }
    size_t rest = n - same - 1;
    GW_TRY(gw_schema_put(out, " ( \"%c\"", a[same]));
    GW_TRY(bounded(out, a + same + 1, rest, 0));
    if (b[same] - a[same] > 1) {
        GW_TRY(gw_schema_put(out, " | [%c-%c]", a[same] + 1, b[same] - 1));
        GW_TRY(any_digits(out, rest));
    }
    GW_TRY(gw_schema_put(out, " | \"%c\"", b[same]));
    GW_TRY(bounded(out, b + same + 1, rest, 1));
    return gw_schema_put(out, " )");
}

static gw_status magnitudes(gw_bytes *out, const char *sign, uint64_t low, uint64_t high) {
    uint64_t end = 9;
    const char *bar = "";
    while (low <= high) {
        uint64_t to = high < end ? high : end;
        if (low <= to) {
            GW_TRY(gw_schema_put(out, "%s%s", bar, sign));
            GW_TRY(same_length(out, low, to));
            bar = " | ";
            low = to + 1;
        }
        end = end > UINT64_MAX / 10 - 1 ? UINT64_MAX : end * 10 + 9;
    }
    return GW_OK;
}

gw_status gw_schema_put_range(gw_bytes *out, int64_t low, int64_t high) {
    if (low < 0) {
        uint64_t most = (uint64_t)0 - (uint64_t)low;
        uint64_t least = high < 0 ? (uint64_t)0 - (uint64_t)high : 1;
        GW_TRY(magnitudes(out, "\"-\"", least, most));
        GW_TRY(gw_schema_put(out, "%s", high >= 0 ? " | " : ""));
    }
    return high >= 0 ? magnitudes(out, "", low < 0 ? 0 : (uint64_t)low, (uint64_t)high) : GW_OK;
}

/* ---- formats (RFC 3339, RFC 9562) ------------------------------------------------------------ */

#define DATE                                                                                       \
    "( [1-9] [0-9]{3} \"-\" ( ( \"01\" | \"03\" | \"05\" | \"07\" | \"08\" | \"10\" | \"12\" ) "   \
    "\"-\" ( \"0\" [1-9] | [12] [0-9] | \"3\" [01] ) | ( \"04\" | \"06\" | \"09\" | \"11\" ) "     \
    "\"-\" ( \"0\" [1-9] | [12] [0-9] | \"30\" ) | \"02-\" ( \"0\" [1-9] | \"1\" [0-9] | \"2\" "   \
    "[0-8] ) ) )"
#define HOUR_MINUTE "( [01] [0-9] | \"2\" [0-3] ) \":\" [0-5] [0-9]"
#define TIME                                                                                       \
    "( " HOUR_MINUTE " \":\" [0-5] [0-9] ( \".\" [0-9]{1,6} )? ( \"Z\" | [+-] " HOUR_MINUTE " ) )"
#define HEX4 "[0-9a-f]{4}"

const char *gw_schema_format(const char *name) {
    static const struct {
        const char *name, *text;
    } formats[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE " \"T\" " TIME},
        {"uuid", HEX4 " " HEX4 " \"-\" " HEX4 " \"-\" " HEX4 " \"-\" " HEX4 " \"-\" " HEX4 " " HEX4
                      " " HEX4},
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(name, formats[i].name) == 0) {
            return formats[i].text;
        }
    }
    return NULL;
}
