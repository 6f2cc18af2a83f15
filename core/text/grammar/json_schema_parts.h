/* core/text/grammar/json_schema_parts.h - what the files json_schema*.c share; for them only. */
#ifndef GW_TEXT_JSON_SCHEMA_PARTS_H
#define GW_TEXT_JSON_SCHEMA_PARTS_H

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/text/buffer.h"
#include "core/text/grammar/json_schema.h"
#include "core/text/grammar/json_schema_dfa.h"

/* ---- json_schema.c --------------------------------------------------------------------------- */

typedef struct gw_schema_part {
    json_t *schema;
    const char *where; /* JSON pointer */
} gw_schema_part;

typedef struct gw_schema_work {
    gw_bytes out, class_rules;
    int notation;        /* GW_JSON_PYTHON, ...: json_schema.h */
    json_t *root, *made; /* made: schemas that were put together, kept alive */
    gw_map *known;       /* address of a schema: its part */
    gw_map *numbers;     /* address of a number: where its text stands in number_texts */
    gw_map *classes;     /* ranges of characters: the rule of the set */
    gw_map *negations;   /* address of a schema: its opposite, in `made` */
    const char **number_texts;
    size_t n_numbers, numbers_capacity;
    gw_arena *arena;
    gw_schema_part *parts;
    size_t n_parts, capacity;
    size_t flattened;          /* keywords copied on the way */
    int unevaluated;           /* what is flattened asks which members others have looked at */
    json_t *any;               /* {} */
    int contradicted;          /* the last failure was that no value is possible; */
    const char *contradiction; /* the first of them, in words */
} gw_schema_work;

/* The number of a schema's rule, which is written later. Borrowed; `made` keeps new ones. */
gw_status gw_schema_rule(gw_schema_work *w, json_t *schema, const char *where, size_t *rule);
/* Takes the reference; NULL: no memory. */
gw_status gw_schema_keep(gw_schema_work *w, json_t *schema);
/* where/key/name as a JSON pointer (RFC 6901), cut where it gets too long for a message. */
const char *gw_schema_beneath(gw_schema_work *w, const char *where, const char *key,
                              const char *name);
gw_status gw_schema_no_memory(void);
/* "key" must be `want`; "key" is not supported; no value is possible. */
gw_status gw_schema_wrong(const gw_schema_part *p, const char *key, const char *want);
gw_status gw_schema_refuse(const gw_schema_part *p, const char *key);
gw_status gw_schema_contradiction(gw_schema_work *w, const char *where, const char *what);
/* A schema is read, and the standard's rules are in `out`; then rules, root last or first; then all
 * parts that they name. Closed in any case. */
gw_status gw_schema_open(gw_schema_work *w, const char *text, size_t n, int notation);
gw_status gw_schema_finish(gw_schema_work *w);
void gw_schema_close(gw_schema_work *w);
/* Of a flat schema: bits of its types, 0: any; rules [*n] of anyOf or oneOf. */
gw_status gw_schema_types_of(gw_schema_work *w, const gw_schema_part *p, unsigned *types);
gw_status gw_schema_branches(gw_schema_work *w, const gw_schema_part *p, size_t **rules, size_t *n);
/* Is a value that "enum" or "const" of a flat schema lists valid under all of it? */
gw_status gw_schema_judge_listed(gw_schema_work *w, json_t *flat, const char *where,
                                 const json_t *value, int *is);
static inline int gw_schema_is_schema(const json_t *x) {
    return json_is_object(x) || json_is_boolean(x);
}

/* ---- json_schema_flat.c ---------------------------------------------------------------------- */

/* A new schema that says the same without references and without what combines schemas, but for
 * anyOf and oneOf; `not` is a list of {"enum"} and {"pattern"}. */
gw_status gw_schema_flatten(gw_schema_work *w, const gw_schema_part *p, json_t **out);
/* The schema that "$ref" names. */
gw_status gw_schema_target(gw_schema_work *w, const gw_schema_part *p, json_t **target);
/* Item i of the values, or of the patterns, that "not" of a flat schema rules out; NULL behind
 * them. */
const json_t *gw_schema_excluded(const gw_schema_part *p, size_t i);
const char *gw_schema_unlike(const gw_schema_part *p, size_t i);

/* ---- json_schema_not.c ----------------------------------------------------------------------- */

/* {"not": schema} without the word: what it allows is not allowed by the schema. Borrowed. */
gw_status gw_schema_negate(gw_schema_work *w, const gw_schema_part *p, json_t **out);

/* ---- json_schema_object.c, _array.c, _string.c, _number.c: rules sN-object, sN-array, sN-string,
 * sN-integer, sN-number of part N, which is flat --------------------------------------------- */

gw_status gw_schema_put_object(gw_schema_work *w, const gw_schema_part *p, size_t rule);
gw_status gw_schema_put_array(gw_schema_work *w, const gw_schema_part *p, size_t rule);
gw_status gw_schema_put_string(gw_schema_work *w, const gw_schema_part *p, size_t rule);
gw_status gw_schema_put_number(gw_schema_work *w, const gw_schema_part *p, size_t rule,
                               int integer);

typedef struct gw_schema_strings {
    int limited; /* by dfa, lengths included; else by the lengths only */
    gw_dfa dfa;
    int64_t low, high; /* characters; high -1: any */
} gw_schema_strings;

gw_status gw_schema_read_strings(gw_schema_work *w, const gw_schema_part *p,
                                 gw_schema_strings *out);
/* The numbers that a schema allows, without an exponent. */
gw_status gw_schema_read_numbers(gw_schema_work *w, const gw_schema_part *p, int integer,
                                 gw_dfa *out);
/* Rules sN-TAG0.. of an automaton, which begins with sN-TAG0; `end` closes what is accepted.
 * in_string: 1 as characters of a JSON string, 0 as they stand, all of ASCII, 2 as they stand. */
gw_status gw_schema_put_dfa(gw_schema_work *w, size_t rule, const char *tag, const gw_dfa *d,
                            int in_string, const char *end);
/* Two counts, the second -1 when it is not there; what no text reaches is cut. */
gw_status gw_schema_counts(gw_schema_work *w, const gw_schema_part *p, const char *least,
                           const char *most, int64_t *low, int64_t *high);
/* {low,high} or {low,}. */
gw_status gw_schema_put_counts(gw_schema_work *w, int64_t low, int64_t high);

/* ---- json_schema_text.c, _formats.c ---------------------------------------------------------- */

gw_status gw_schema_put(gw_bytes *out, const char *fmt, ...) GW_PRINTF(2, 3);
/* "text" as a literal of GBNF. */
gw_status gw_schema_put_literal(gw_bytes *out, const char *text, size_t n);
/* The pattern of a format; NULL: unknown. */
const char *gw_schema_format(const char *name);

/* ---- json_schema_value.c --------------------------------------------------------------------- */

/* JSON whose numbers are known as they are written. */
gw_status gw_schema_parse(gw_schema_work *w, const char *text, size_t n);
const char *gw_schema_number(const gw_schema_work *w, const json_t *number);
int gw_schema_compare(gw_schema_work *w, const json_t *a, const json_t *b); /* numbers: -1, 0, 1 */
int gw_schema_equal(gw_schema_work *w, const json_t *a, const json_t *b);
enum { GW_OBJECT, GW_ARRAY, GW_STRING, GW_INTEGER, GW_NUMBER, GW_BOOLEAN, GW_NULL, GW_TYPES };
extern const char *const gw_schema_types[GW_TYPES];
/* Bits of the types of a value: a whole number has two. */
unsigned gw_schema_type_of(gw_schema_work *w, const json_t *value);

/* ---- json_schema_notation.c ------------------------------------------------------------------ */

enum { GW_SCHEMA_TERM = 200 };

/* The rules that all schemas share. */
gw_status gw_schema_put_standard(gw_schema_work *w);
/* true, false, null as alternatives of literals. */
const char *gw_schema_word(const gw_schema_work *w, unsigned i);
/* A text of the automaton, in its quotes (a name: as names stand): rules sN-TAG0.., and the term
 * that stands for it. */
gw_status gw_schema_put_text(gw_schema_work *w, const char *where, size_t rule, const char *tag,
                             const gw_dfa *d, int key, char term[GW_SCHEMA_TERM]);
/* A text of so many characters, in its quotes; high -1: any. */
gw_status gw_schema_put_lengths(gw_schema_work *w, int64_t low, int64_t high);
/* A value, the name of a member as literals, in its shortest form. */
gw_status gw_schema_put_value(gw_schema_work *w, const json_t *value);
gw_status gw_schema_put_key(gw_schema_work *w, const json_t *name);

/* ---- json_schema_merge.c --------------------------------------------------------------------- */

/* Both at once: into (changed), with; both flat. where: as above. */
gw_status gw_schema_merge(gw_schema_work *w, json_t *into, json_t *with, const char *where);
/* Is a keyword that changes nothing? */
int gw_schema_is_note(const char *key);
/* Can no value that is written for one schema be valid for the other, and is that easy to see?
 * Both are flat. */
int gw_schema_apart(gw_schema_work *w, const json_t *a, const json_t *b);

#endif
