/* core/text/regex.h - expressions of tokenizers and templates, compiled. The only user of PCRE2. */
#ifndef GW_TEXT_REGEX_H
#define GW_TEXT_REGEX_H

#include <stddef.h>

#include "core/base/status.h"

typedef struct gw_regex gw_regex;

/* pattern: Oniguruma's words (pattern.h), or plain text when literal. Read-only afterwards, any
 * thread. GW_E_UNSUPPORTED: PCRE2 refuses it; `where` and the pattern are named. */
gw_status gw_regex_new(const char *where, const char *pattern, int literal, gw_regex **out);
void gw_regex_free(gw_regex *regex); /* accepts NULL */

/* Scratch of one thread. */
typedef struct gw_regex_work gw_regex_work;
gw_status gw_regex_work_new(gw_regex_work **out);
void gw_regex_work_free(gw_regex_work *work); /* accepts NULL */

/* The first match in text [n], well-formed UTF-8, that begins at byte `at` or behind it:
 * *found and its bytes *start..*end. GW_E_LIMIT: it backtracks without end. */
gw_status gw_regex_find(const gw_regex *regex, gw_regex_work *work, const char *text, size_t n,
                        size_t at, int *found, size_t *start, size_t *end);

#endif
