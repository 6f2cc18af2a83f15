/* core/text/grammar/json_schema_parts.h - what the files json_schema*.c share; for them only. */
#ifndef GW_TEXT_JSON_SCHEMA_PARTS_H
#define GW_TEXT_JSON_SCHEMA_PARTS_H

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/text/buffer.h"

#define GW_SCHEMA "JSON schema"

/* ---- json_schema.c --------------------------------------------------------------------------- */

typedef struct gw_schema_part {
    json_t *schema;
    const char *where; /* JSON pointer */
} gw_schema_part;

typedef struct gw_schema_work {
    gw_bytes out;
    json_t *root, *made; /* made: schemas that were put together, kept alive */
    gw_map *known;       /* address of a schema: its part */
    gw_arena *arena;
    gw_schema_part *parts;
    size_t n_parts, capacity;
    size_t flattened; /* keywords copied on the way */
    json_t *any;      /* {} */
} gw_schema_work;

/* The number of a schema's rule, which is written later. Borrowed; `made` keeps new ones. */
gw_status gw_schema_rule(gw_schema_work *w, json_t *schema, const char *where, size_t *rule);
/* where/key/name as a JSON pointer (RFC 6901), cut where it gets too long for a message. */
const char *gw_schema_beneath(gw_schema_work *w, const char *where, const char *key,
                              const char *name);
gw_status gw_schema_no_memory(void);
/* "key" must be `want`; no value is possible. */
gw_status gw_schema_wrong(const gw_schema_part *p, const char *key, const char *want);
gw_status gw_schema_contradiction(const gw_schema_part *p, const char *what);

/* ---- json_schema_types.c: rules sN-object, sN-array, sN-string, sN-integer of part N ------------
 */

gw_status gw_schema_put_object(gw_schema_work *w, const gw_schema_part *p, size_t rule);
gw_status gw_schema_put_array(gw_schema_work *w, const gw_schema_part *p, size_t rule);
gw_status gw_schema_put_string(gw_schema_work *w, const gw_schema_part *p, size_t rule);
gw_status gw_schema_put_integer(gw_schema_work *w, const gw_schema_part *p, size_t rule);
/* Has it a minimum or a maximum? */
int gw_schema_has_bounds(const gw_schema_part *p);

/* ---- json_schema_text.c: strings and numbers as GBNF ----------------------------------------- */

gw_status gw_schema_put(gw_bytes *out, const char *fmt, ...) GW_PRINTF(2, 3);
/* "text" as a literal of GBNF. */
gw_status gw_schema_put_literal(gw_bytes *out, const char *text, size_t n);
/* A JSON value as such a literal, in its shortest form. */
gw_status gw_schema_put_value(gw_bytes *out, const json_t *value);
/* Whole numbers from low to high, as alternatives. */
gw_status gw_schema_put_range(gw_bytes *out, int64_t low, int64_t high);
/* The inside of a string in one of the known formats; 0: unknown. */
const char *gw_schema_format(const char *name);

/* ---- json_schema_pattern.c ------------------------------------------------------------------- */

/* The inside of a JSON string that matches a regular expression of ECMA-262, in parentheses. where:
 * the JSON pointer for messages. */
gw_status gw_schema_put_pattern(gw_bytes *out, const char *where, const char *pattern, size_t n);

/* ---- json_schema_merge.c --------------------------------------------------------------------- */

/* Both at once: into (changed), with. where: as above. */
gw_status gw_schema_merge(json_t *into, json_t *with, const char *where);
/* Is a keyword that changes nothing? */
int gw_schema_is_note(const char *key);
/* Can no value that is written for one schema be valid for the other, and is that easy to see?
 * Neither has $ref or allOf. */
int gw_schema_apart(const json_t *a, const json_t *b);

#endif
