/* core/base/status.c - the words of an error: class names and the thread's last message. */
#include "core/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
static size_t printable(const unsigned char *s) {
    if (s[0] < 0x80) {
        return s[0] >= 0x20 && s[0] != 0x7f;
    }
    size_t n = s[0] >= 0xc2 && s[0] < 0xe0   ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;
    if (n == 0) {
        return 0;
    }
    uint32_t point = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) { /* also the terminating NUL */
            return 0;
        }
        point = point << 6 | (s[i] & 0x3fu);
    }
    int valid = point >= (n == 2   ? 0x80u
                          : n == 3 ? 0x800u
                                   : 0x10000u) &&
                point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
    int unsafe = point < 0xa0 || (point >= 0x2028 && point <= 0x202e) ||
                 (point >= 0x2066 && point <= 0x2069);
    return valid && !unsafe ? n : 0;
}

/* Append text to out[at..limit) by whole characters; returns the new end. Text that does not fit
 * ends in "...". out has room for limit + 1 bytes. */
static size_t append(char *out, size_t at, size_t limit, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    size_t dots = at; /* the last place where "..." still fits */
    while (*s) {
        char escaped[5];
        const char *piece = (const char *)s;
        size_t take = printable(s), n = take;
        if (take == 0) {
            n = (size_t)snprintf(escaped, sizeof escaped, "\\x%02x", *s);
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
