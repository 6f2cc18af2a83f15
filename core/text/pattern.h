/* core/text/pattern.h - a pattern of a tokenizer file, in PCRE2's words. */
#ifndef GW_TEXT_PATTERN_H
#define GW_TEXT_PATTERN_H

#include "core/text/buffer.h"

/* Appends to out what PCRE2 must be given to match as Oniguruma does with its Ruby syntax, which
 * tokenizer.json is written for: \s is White_Space, \h a hexadecimal digit, && in a class is the
 * intersection and [ a class within. GW_E_NOMEM; GW_E_LIMIT: classes nested too deeply. A pattern
 * that is not well formed stays so. */
gw_status gw_pattern_spell(const char *pattern, gw_bytes *out);

/* Appends an expression for the runs of UnicodeScripts: one script, with spaces and characters of
 * none inside; Han, Hiragana and Katakana are one. */
gw_status gw_pattern_scripts(gw_bytes *out);

#endif
