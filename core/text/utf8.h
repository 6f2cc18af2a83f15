/* core/text/utf8.h - UTF-8 character by character, and the byte alphabet of GPT-2. */
#ifndef GW_TEXT_UTF8_H
#define GW_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of the well-formed character that begins at p [n], 0 when there is none.
 * Well-formed as in Unicode table 3-7. cp may be NULL. */
size_t gw_utf8_next(const char *p, size_t n, uint32_t *cp);
/* How many bytes from p on are well-formed characters. */
size_t gw_utf8_span(const char *p, size_t n);
/* Length of the ill-formed sequence at p [n], n > 0: the longest beginning of a character, at
 * least 1. *open = 1 when more bytes could still complete it (it reaches the end of p). */
size_t gw_utf8_bad(const char *p, size_t n, int *open);
/* Write cp (a Unicode scalar value); returns 1..4. */
size_t gw_utf8_put(uint32_t cp, char out[4]);
/* White_Space of the Unicode character database. */
int gw_utf8_is_space(uint32_t cp);

/* The printable stand-in of each byte in byte-level vocabularies (GPT-2): U+0021..U+0143. */
uint32_t gw_byte_letter(uint8_t byte);
/* The byte behind a letter, -1 when it is none. */
int gw_letter_byte(uint32_t cp);

#endif
