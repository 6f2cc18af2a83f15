/* core/base/text.c - UTF-8 by the table, prefixes and suffixes, texts that grow in a fixed room. */
#include "core/base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the well-formed character at p, 0 when there is none. left >= 1. */
static size_t char_bytes(const uint8_t *p, size_t left) {
    if (p[0] < 0x80) {
        return 1;
    }
    size_t n = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 ? 4 : 0;
    if (n == 0 || n > left || p[0] > 0xf4) {
        return 0;
    }
    uint8_t low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

int gw_text_is_utf8(const void *text, size_t n) {
    const uint8_t *p = text;
    for (size_t at = 0; at < n;) {
        size_t step = char_bytes(p + at, n - at);
        if (step == 0) {
            return 0;
        }
        at += step;
    }
    return 1;
}

int gw_text_starts(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

int gw_text_ends(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

int gw_text_append(char *out, size_t room, const char *fmt, ...) {
    size_t used = strlen(out);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(out + used, room - used, fmt, args);
    va_end(args);
    return n >= 0 && (size_t)n < room - used;
}
