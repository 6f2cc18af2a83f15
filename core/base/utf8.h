/* core/base/utf8.h - UTF-8 character by character: the one place that knows which bytes are some.
 */
#ifndef GW_BASE_UTF8_H
#define GW_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of the well-formed character that begins at p [n], 0 when there is none.
 * Well-formed as in Unicode table 3-7: no overlong forms, no surrogates. cp may be NULL. */
size_t gw_utf8_next(const char *p, size_t n, uint32_t *cp);
/* How many bytes from p on are well-formed characters. */
size_t gw_utf8_span(const char *p, size_t n);
/* Length of the ill-formed sequence at p [n], n > 0: the longest beginning of a character, at
 * least 1. *open = 1 when more bytes could still complete it (it reaches the end of p). */
size_t gw_utf8_bad(const char *p, size_t n, int *open);
/* Characters of well-formed text [n]. */
size_t gw_utf8_count(const char *text, size_t n);
/* text [n] with U+FFFD for every byte that belongs to no character: out [3 * n]; returns the bytes
 * written. */
size_t gw_utf8_clean(const char *text, size_t n, char *out);
/* Write cp (a Unicode scalar value); returns 1..4. */
size_t gw_utf8_put(uint32_t cp, char out[4]);

#endif
