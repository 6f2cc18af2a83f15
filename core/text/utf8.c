/* core/text/utf8.c - see utf8.h. */
#include "core/text/utf8.h"

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
