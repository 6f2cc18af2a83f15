/* core/text/utf8.c - see utf8.h. */
#include "core/text/utf8.h"

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

int gw_utf8_is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

/* Bytes with a visible Latin-1 character stand for themselves; the other 68 follow at U+0100 in
 * increasing order: 0x00..0x20, 0x7F..0xA0, 0xAD. */
uint32_t gw_byte_letter(uint8_t byte) {
    if (byte <= 0x20) {
        return 0x100u + byte;
    }
    if (byte >= 0x7F && byte <= 0xA0) {
        return 0x121u + (byte - 0x7Fu);
    }
    return byte == 0xAD ? 0x143u : byte;
}

int gw_letter_byte(uint32_t cp) {
    if (cp >= 0x100 && cp <= 0x120) {
        return (int)(cp - 0x100);
    }
    if (cp >= 0x121 && cp <= 0x142) {
        return (int)(cp - 0x121 + 0x7F);
    }
    if (cp == 0x143) {
        return 0xAD;
    }
    return cp > 0x20 && cp < 0x100 && !(cp >= 0x7F && cp <= 0xA0) && cp != 0xAD ? (int)cp : -1;
}
