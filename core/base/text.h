/* core/base/text.h - small questions about bytes that should be text. */
#ifndef GW_BASE_TEXT_H
#define GW_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* 1 when the bytes are well-formed UTF-8 (Unicode table 3-7: no overlong forms, no surrogates). */
int gw_text_is_utf8(const void *text, size_t n);

/* Appends to the text in out[room] as much as fits, always terminated; 1 when all of it did. */
__attribute__((format(printf, 3, 4))) int gw_text_append(char *out, size_t room, const char *fmt,
                                                         ...);

/* "12.9 MB": powers of 1000 with so many significant digits. Returns out. */
enum { GW_SIZE_TEXT = 24 };
const char *gw_text_size(uint64_t bytes, int digits, char out[GW_SIZE_TEXT]);

int gw_text_starts(const char *text, const char *prefix);
int gw_text_ends(const char *text, const char *suffix);

#endif
