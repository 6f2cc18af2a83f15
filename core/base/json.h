/* core/base/json.h - JSON from files: strict, bounded in depth, duplicates refused.
 *
 * Parsing is jansson's (at most 2048 levels). Values are read by typed getters that fail on any
 * other type; a getter leaves its result unchanged and returns GW_OK when the key is absent or
 * null, so a caller sets the default first.
 */
#ifndef GW_BASE_JSON_H
#define GW_BASE_JSON_H

#include <jansson.h>

#include "core/base/status.h"

/* n bytes of text, the whole of them. GW_E_SYNTAX, GW_E_ENCODING (not UTF-8, NUL), GW_E_DUPLICATE,
 * GW_E_LIMIT (depth), GW_E_OVERFLOW (a number), GW_E_NOMEM. *out is released by json_decref. */
gw_status gw_json_parse(const char *where, const void *text, size_t n, json_t **out);
/* The same, but \u0000 is a character of texts (not of members' names): who reads them counts by
 * json_string_length. */
gw_status gw_json_parse_nul(const char *where, const void *text, size_t n, json_t **out);

/* The same, of any value, with every number as a real: none is too large an integer. */
gw_status gw_json_parse_reals(const char *where, const void *text, size_t n, json_t **out);

/* The same for the settings of a model, in which Python writes integers of any size (1e30 as "no
 * limit"): an integer beyond 64 bits is a real number, which no getter of integers takes. */
gw_status gw_json_parse_settings(const char *where, const void *text, size_t n, json_t **out);

/* A copy of a JSON text in which every integer beyond 64 bits, its sign included, is between two
 * words: "" and ".0" make it a real number, quotation marks a text. Freed by the caller, of *n_out
 * bytes. NULL: no memory. */
char *gw_json_widen(const char *text, size_t n, const char *front, const char *end, size_t *n_out);

/* Members of an object; GW_E_TYPE names the key. */
gw_status gw_json_int(const char *where, const json_t *object, const char *key, int64_t *out);
gw_status gw_json_real(const char *where, const json_t *object, const char *key, double *out);
gw_status gw_json_bool(const char *where, const json_t *object, const char *key, int *out);
gw_status gw_json_text(const char *where, const json_t *object, const char *key, const char **out);
gw_status gw_json_object(const char *where, const json_t *object, const char *key, json_t **out);
gw_status gw_json_array(const char *where, const json_t *object, const char *key, json_t **out);

/* 1 when the key is there and not null. */
int gw_json_has(const json_t *object, const char *key);

#endif
