/* core/text/grammar/json_pattern.c - a regular expression of a whole text as a grammar: the pattern
 * of a schema, of a text without quotes; see json_schema.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/grammar/json_schema.h"

gw_status gw_json_pattern_compile(const char *text, size_t bytes, gw_program **out) {
    static const char root[] = "root ::= p-text\n";
    json_t *pattern = json_pack("{s:s, s:o}", "type", "string", "pattern",
                                json_sprintf("^(?:%.*s)$", (int)bytes, text));
    char *schema = pattern != NULL ? json_dumps(pattern, JSON_COMPACT) : NULL;
    gw_bytes rules = {0};
    int kinds;
    gw_status status;
    json_decref(pattern);
    if (schema == NULL || bytes > GW_GRAMMAR_BYTES_MAX) {
        GW_TRY_DONE(gw_fail(GW_E_ENCODING, "pattern", "too long, or not UTF-8"));
    }
    GW_TRY_DONE(
        gw_json_schema_rules(schema, strlen(schema), "#", "p-", "", GW_JSON_TOLD, &rules, &kinds));
    GW_TRY_DONE(gw_bytes_add(&rules, root, sizeof root - 1));
    status = gw_grammar_link("pattern", rules.data, rules.n, out);
done:
    free(schema);
    free(rules.data);
    return status;
}
