/* core/text/grammar/json_schema.h - a JSON schema as a grammar (grammar.h) of the JSON that it
 * accepts.
 *
 * What the grammar makes is always valid; not all that is valid is made: members come in the order
 * of `properties`, white space is short, numbers have few digits, formats are a plain part of what
 * they may be. docs/grammar.md lists the keywords and limits. Words that the standard does not know
 * say nothing; a keyword that cannot be kept here is refused, never passed over.
 */
#ifndef GW_TEXT_JSON_SCHEMA_H
#define GW_TEXT_JSON_SCHEMA_H

#include "core/text/grammar/grammar.h"

/* text [n]: UTF-8, with or without a byte order mark; borrowed for the call. The caller frees *out
 * (gw_program_free). Messages name the JSON pointer. GW_E_UNSUPPORTED, GW_E_METADATA (a
 * contradiction, a reference to nowhere, a value that is never whole), GW_E_TYPE, GW_E_LIMIT, and
 * those of gw_json_parse. */
gw_status gw_json_schema_compile(const char *text, size_t n, gw_program **out);

#endif
