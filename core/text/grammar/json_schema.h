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

#include "core/text/buffer.h"
#include "core/text/grammar/grammar.h"

/* text [n]: UTF-8, with or without a byte order mark; borrowed for the call. The caller frees *out
 * (gw_program_free). Messages name the JSON pointer. GW_E_UNSUPPORTED, GW_E_METADATA (a
 * contradiction, a reference to nowhere, a value that is never whole), GW_E_TYPE, GW_E_LIMIT, and
 * those of gw_json_parse. */
gw_status gw_json_schema_compile(const char *text, size_t n, gw_program **out);
/* The same of text alone, without quotes: all of which the pattern [n] matches. */
gw_status gw_json_pattern_compile(const char *text, size_t n, gw_program **out);

/* The same as rules in GBNF, to be part of a larger grammar (gw_grammar_link): their names begin
 * with `prefix`, and PREFIXroot is a value of what `pointer` names ("#", "#/properties/city").
 *
 * raw_end NULL: JSON. Else the value is text where it is a string, as it stands and without
 * raw_end inside ("": anything may be inside), else JSON: PREFIXtext and PREFIXother, of which
 * PREFIXroot is either. Where a value may be both, text that could be read as one of the others is
 * left out, unless `how` has GW_JSON_TOLD: the reader is told which it is. *kinds: which of the two
 * there are (GW_JSON_...). how besides: the notation where it is not JSON: GW_JSON_PYTHON, JSON or
 * as Python prints values; GW_JSON_GEMMA, as Gemma 4 writes them, _TOKEN: its quote is a token.
 * Errors as above; `out` is then as it was. */
enum { GW_JSON_TEXT = 1, GW_JSON_OTHER = 2 };
enum { GW_JSON_TOLD = 1, GW_JSON_PYTHON = 2, GW_JSON_GEMMA = 4, GW_JSON_GEMMA_TOKEN = 8 };
gw_status gw_json_schema_rules(const char *text, size_t n, const char *pointer, const char *prefix,
                               const char *raw_end, int how, gw_bytes *out, int *kinds);

#endif
