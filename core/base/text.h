/* core/base/text.h - small questions about bytes that should be text. */
#ifndef GW_BASE_TEXT_H
#define GW_BASE_TEXT_H

#include <stddef.h>

/* 1 when the bytes are well-formed UTF-8 (Unicode table 3-7: no overlong forms, no surrogates). */
int gw_text_is_utf8(const void *text, size_t n);

int gw_text_starts(const char *text, const char *prefix);
int gw_text_ends(const char *text, const char *suffix);

#endif
