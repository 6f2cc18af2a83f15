/* core/text/utf8.h - white space among characters, and the byte alphabet of GPT-2. */
#ifndef GW_TEXT_UTF8_H
#define GW_TEXT_UTF8_H

#include <stdint.h>

#include "core/base/utf8.h"

/* White_Space of the Unicode character database. */
int gw_utf8_is_space(uint32_t cp);

/* The printable stand-in of each byte in byte-level vocabularies (GPT-2): U+0021..U+0143. */
uint32_t gw_byte_letter(uint8_t byte);
/* The byte behind a letter, -1 when it is none. */
int gw_letter_byte(uint32_t cp);

#endif
