/* core/base/status.c - the words of an error: class names and the thread's last message. */
#include "core/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

enum { TEXT_BYTES = 2048, WHERE_BYTES = 512 };

static _Thread_local char last_text[TEXT_BYTES];

/* clang-format off */
static const char *const names[GW_STATUS_COUNT] = {
    [GW_OK] = "ok",                   [GW_E_NOMEM] = "memory",
    [GW_E_ARGUMENT] = "argument",     [GW_E_IO] = "io",
    [GW_E_UNSUPPORTED] = "unsupported", [GW_E_CONTEXT] = "context",
    [GW_E_DEVICE] = "device",         [GW_E_NUMERIC] = "numeric",
    [GW_E_CANCELLED] = "cancelled",   [GW_E_MAGIC] = "magic",
    [GW_E_VERSION] = "version",       [GW_E_TRUNCATED] = "truncated",
    [GW_E_LIMIT] = "limit",           [GW_E_OVERFLOW] = "overflow",
    [GW_E_TYPE] = "type",             [GW_E_DUPLICATE] = "duplicate",
    [GW_E_ALIGNMENT] = "alignment",   [GW_E_BOUNDS] = "bounds",
    [GW_E_SYNTAX] = "syntax",         [GW_E_ENCODING] = "encoding",
    [GW_E_METADATA] = "metadata",     [GW_E_FORBIDDEN] = "forbidden",
    [GW_E_ARCHIVE] = "archive",         [GW_E_BUSY] = "busy",
};
/* clang-format on */

const char *gw_status_name(gw_status status) {
    int known = (int)status >= 0 && (int)status < GW_STATUS_COUNT;
    return known && names[status] ? names[status] : "unknown";
}

const char *gw_error_text(void) { return last_text; }

/* Bytes of the printable UTF-8 character at s, 0 when it must be escaped: malformed, a control
 * character (C0, DEL, C1), or one that ends a line or turns the writing direction around. */
static size_t printable(const char *s) {
    uint32_t point = 0;
    size_t n = gw_utf8_next(s, strnlen(s, 4), &point);
    int unsafe = point < 0x20 || (point >= 0x7f && point < 0xa0) ||
                 (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
    return unsafe ? 0 : n;
}

/* Append text to out[at..limit) by whole characters; returns the new end. Text that does not fit
 * ends in "...". out has room for limit + 1 bytes. */
static size_t append(char *out, size_t at, size_t limit, const char *text) {
    const char *s = text;
    size_t dots = at; /* the last place where "..." still fits */
    while (*s) {
        char escaped[5];
        const char *piece = s;
        size_t take = printable(s), n = take;
        if (take == 0) {
            n = (size_t)snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned)(unsigned char)*s);
            piece = escaped;
            take = 1;
        }
        if (at + n > limit) {
            size_t room = limit - dots < 3 ? limit - dots : 3;
            memcpy(out + dots, "...", room);
            at = dots + room;
            break;
        }
        memcpy(out + at, piece, n);
        at += n;
        s += take;
        dots = at + 3 <= limit ? at : dots;
    }
    out[at] = '\0';
    return at;
}

gw_status gw_fail(gw_status status, const char *where, const char *fmt, ...) {
    /* The arguments may point into the present text (a message that quotes another), so the new
     * one is finished before it replaces the old. */
    char message[2 * TEXT_BYTES], line[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(message, sizeof message, fmt, args) < 0) {
        message[0] = '\0';
    }
    va_end(args);
    size_t at = 0;
    line[0] = '\0';
    if (where && where[0]) {
        at = append(line, at, WHERE_BYTES, where);
        at = append(line, at, sizeof line - 1, ": ");
    }
    at = append(line, at, sizeof line - 1, gw_status_name(status));
    at = append(line, at, sizeof line - 1, ": ");
    append(line, at, sizeof line - 1, message);
    memcpy(last_text, line, strlen(line) + 1);
    return status;
}
