/* core/base/utf8.c - UTF-8 by the table of the standard: see utf8.h. */
#include "core/base/utf8.h"

#include <string.h>

/* Bytes of the character that a lead byte announces; 0 for a byte that cannot lead. */
static size_t lead_length(uint8_t lead) {
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 0;
    }
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Whether `byte` may stand at place i (1..3) of a character led by `lead`. */
static int may_follow(uint8_t lead, size_t i, uint8_t byte) {
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1) {
        switch (lead) {
        case 0xE0:
            low = 0xA0;
            break;
        case 0xED:
            high = 0x9F;
            break;
        case 0xF0:
            low = 0x90;
            break;
        case 0xF4:
            high = 0x8F;
            break;
        default:
            break;
        }
    }
    return byte >= low && byte <= high;
}

size_t gw_utf8_next(const char *p, size_t n, uint32_t *cp) {
    const uint8_t *s = (const uint8_t *)p;
    if (n == 0) {
        return 0;
    }
    size_t length = lead_length(s[0]);
    if (length == 0 || length > n) {
        return 0;
    }
    uint32_t value = length == 1 ? s[0] : s[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (!may_follow(s[0], i, s[i])) {
            return 0;
        }
        value = value << 6 | (s[i] & 0x3Fu);
    }
    if (cp != NULL) {
        *cp = value;
    }
    return length;
}

size_t gw_utf8_span(const char *p, size_t n) {
    size_t at = 0;
    while (at < n) {
        size_t length = gw_utf8_next(p + at, n - at, NULL);
        if (length == 0) {
            break;
        }
        at += length;
    }
    return at;
}

size_t gw_utf8_bad(const char *p, size_t n, int *open) {
    const uint8_t *s = (const uint8_t *)p;
    size_t length = lead_length(s[0]);
    size_t i = 1;
    while (i < length && i < n && may_follow(s[0], i, s[i])) {
        i++;
    }
    *open = i < length && i == n;
    return i;
}

size_t gw_utf8_count(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((uint8_t)text[i] & 0xC0) != 0x80;
    }
    return count;
}

size_t gw_utf8_clean(const char *text, size_t n, char *out) {
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        size_t length = gw_utf8_next(text + at, n - at, NULL);
        size_t put = length > 0 ? length : 3;
        memcpy(out + used, length > 0 ? text + at : "\xEF\xBF\xBD", put);
        used += put;
        at += length > 0 ? length : 1;
    }
    return used;
}

size_t gw_utf8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    out[0] = (char)((0xF00u >> length & 0xF0u) | cp);
    return length;
}
