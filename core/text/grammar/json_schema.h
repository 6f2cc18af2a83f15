/* core/text/grammar/json_schema.h - a JSON schema as a grammar (grammar.h) of the JSON that it
 * accepts.
 *
 * What the grammar makes is always valid; not all that is valid is made: members come in the order
 * of `properties`, white space is short, numbers have at most 16 digits before the point and 16
 * behind it. docs/grammar.md lists the keywords. What is not known here is refused, never passed
 * over.
 */
#ifndef GW_TEXT_JSON_SCHEMA_H
#define GW_TEXT_JSON_SCHEMA_H

#include "core/text/grammar/grammar.h"

/* Messages name the JSON pointer. GW_E_UNSUPPORTED, GW_E_METADATA (a contradiction, a reference to
 * nowhere, a value that is never whole), GW_E_TYPE, GW_E_LIMIT, and those of gw_json_parse. */
gw_status gw_json_schema_compile(const char *text, size_t n, gw_program **out);

#endif
