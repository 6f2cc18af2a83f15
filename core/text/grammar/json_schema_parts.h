/* core/text/grammar/json_schema_parts.h - what the files json_schema*.c share; for them only. */
#ifndef GW_TEXT_JSON_SCHEMA_PARTS_H
#define GW_TEXT_JSON_SCHEMA_PARTS_H

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/text/buffer.h"
#include "core/text/grammar/json_schema.h"
#include "core/text/grammar/json_schema_decimal.h"
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
    gw_decimal **decimals; /* [n_numbers] parsed at their first use; NULL: not yet */
    size_t n_numbers, numbers_capacity, decimals_capacity;
    gw_bytes key; /* of the value that is looked up */
    gw_arena *arena;
    gw_schema_part *parts;
    size_t n_parts, capacity;
    size_t flattened;          /* keywords copied on the way */
    int unevaluated;           /* what is flattened asks which members others have looked at */
    json_t *any;               /* {} */
    const char *dropped;       /* a branch of oneOf that nothing told from the others, in words */
    int contradicted;          /* the last failure was that no value is possible; */
    const char *contradiction; /* the first of them, in words */
} gw_schema_work;

/* Values, each once by type and value: 1 and 1.0 are equal, 1 and "1" are not (core, 4.2.2). */
typedef struct gw_schema_set {
    gw_schema_work *w;
    gw_map *map;
} gw_schema_set;

/* json_schema_value.c. Opened, and closed in any case. */
gw_status gw_schema_set_open(gw_schema_work *w, gw_schema_set *set);
void gw_schema_set_close(gw_schema_set *set);
/* *is_new 0: an equal value was there. */
gw_status gw_schema_set_add(gw_schema_set *set, const json_t *value, int *is_new);
gw_status gw_schema_set_add_all(gw_schema_set *set, const json_t *list);
gw_status gw_schema_set_has(gw_schema_set *set, const json_t *value, int *is);

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
/* Of the values that a flat schema speaks of: bits of their types; $dynamicRef is refused. "type":
 * its bits, or `spoken` where it is absent. */
gw_status gw_schema_spoken(const gw_schema_part *p, unsigned *spoken);
gw_status gw_schema_get_types(gw_schema_work *w, const gw_schema_part *p, unsigned spoken,
                              unsigned *types);
static inline int gw_schema_is_schema(const json_t *x) {
    return json_is_object(x) || json_is_boolean(x);
}

/* ---- json_schema_one.c ----------------------------------------------------------------------- */

/* oneOf of a flat schema, its branches' rules [n]: each becomes the rule of what is of no other
 * branch. */
gw_status gw_schema_part_branches(gw_schema_work *w, const gw_schema_part *p, size_t *rules,
                                  size_t n);

/* ---- json_schema_listed.c -------------------------------------------------------------------- */

/* What stands beside "enum" or "const" of a flat schema, read once for all of its values. */
typedef struct gw_schema_judge {
    gw_schema_work *w;
    gw_schema_part p;
    unsigned spoken, types;
    const json_t *only;
    gw_schema_set excluded;
    int has_strings, no_strings; /* read; none is possible */
    struct gw_schema_strings *strings;
} gw_schema_judge;

gw_status gw_schema_judge_open(gw_schema_work *w, json_t *flat, const char *where,
                               gw_schema_judge *j);
/* Is a value that the schema lists valid under all of it? */
gw_status gw_schema_judge_value(gw_schema_judge *j, const json_t *value, int *is);
void gw_schema_judge_close(gw_schema_judge *j);
/* Rule sN: the values of "const" or "enum", those that fit. */
gw_status gw_schema_put_listed(gw_schema_work *w, const gw_schema_part *p, size_t rule);
/* Rule sN: n texts, one after the other in `all`, which end at ends [n]; any order, twice too. */
gw_status gw_schema_put_texts(gw_schema_work *w, size_t rule, const gw_bytes *all,
                              const size_t *ends, size_t n);

/* ---- json_schema_flat.c ---------------------------------------------------------------------- */

/* A new schema that says the same without references and without what combines schemas, but for
 * anyOf and oneOf; `not` is a list of {"enum"} and {"pattern"}. */
gw_status gw_schema_flatten(gw_schema_work *w, const gw_schema_part *p, json_t **out);
/* Words of our own in a flat schema, which no JSON text can have as names of members:
 * CLOSINGS: a list of {"properties", "patternProperties", "additionalProperties"}, each about the
 * members that it neither names nor has a pattern for;
 * OUTSIDE, in "not": such an object, which some member does not keep to. */
#define GW_SCHEMA_CLOSINGS                                                                         \
    "\xFF"                                                                                         \
    "closings"
#define GW_SCHEMA_OUTSIDE                                                                          \
    "\xFF"                                                                                         \
    "outside"

/* The schema that "$ref" names. */
gw_status gw_schema_target(gw_schema_work *w, const gw_schema_part *p, json_t **target);
/* Item i of the values, or of the patterns, that "not" of a flat schema rules out; NULL behind
 * them. */
const json_t *gw_schema_excluded(const gw_schema_part *p, size_t i);
const char *gw_schema_unlike(const gw_schema_part *p, size_t i);
/* The same of what a number must not be a multiple of, and of OUTSIDE. */
const json_t *gw_schema_unmultiple(const gw_schema_part *p, size_t i);
json_t *gw_schema_outside(const gw_schema_part *p, size_t i);

/* ---- json_schema_refs.c ---------------------------------------------------------------------- */

/* Every "$ref" to a schema that has a name ("$id", "id", "$anchor") becomes a pointer. */
gw_status gw_schema_name_refs(gw_schema_work *w);

/* ---- json_schema_not.c ----------------------------------------------------------------------- */

/* {"not": schema} without the word: what it allows is not allowed by the schema. Borrowed. */
gw_status gw_schema_negate(gw_schema_work *w, const gw_schema_part *p, json_t **out);
/* Rule sN of a flat schema with OUTSIDE in "not": a choice of members that break the first one. */
gw_status gw_schema_put_outside(gw_schema_work *w, const gw_schema_part *p, size_t rule);

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
/* Is a number a multiple of what "multipleOf" of a flat schema says, and of nothing that it rules
 * out? Exactly and as a validator finds that divides in binary64. */
gw_status gw_schema_judge_multiple(gw_schema_work *w, const gw_schema_part *p, const json_t *value,
                                   int *is);
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

/* ---- json_schema_array.c, _unique.c ---------------------------------------------------------- */

typedef struct gw_schema_elements {
    gw_schema_work *w;
    const gw_schema_part *p;
    size_t rule;
    json_t *first; /* [n_first] schemas of the first ones */
    json_t *rest;  /* NULL: no more of them */
    size_t n_first;
    int64_t low, high;
} gw_schema_elements;

/* Rule sN-a0: elements of which no two are the same. */
gw_status gw_schema_put_unique(gw_schema_elements *e);

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
/* A number, parsed once. GW_E_LIMIT: more digits than GW_DECIMAL_DIGITS. */
gw_status gw_schema_decimal(gw_schema_work *w, const json_t *number, const gw_decimal **out);
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
/* The texts of a value, one or two, after those in `all`; not where quotes are tokens. */
gw_status gw_schema_write_value(gw_schema_work *w, const json_t *value, gw_bytes *all, size_t *ends,
                                size_t *n);
int gw_schema_quotes_are_tokens(const gw_schema_work *w);

/* ---- json_schema_merge.c --------------------------------------------------------------------- */

/* Both at once: into (changed), with; both flat. where: as above. */
gw_status gw_schema_merge(gw_schema_work *w, json_t *into, json_t *with, const char *where);
/* Is a keyword that changes nothing? */
int gw_schema_is_note(const char *key);
/* Can no value that is written for one schema be valid for the other, and is that easy to see?
 * Both are flat. */
int gw_schema_apart(gw_schema_work *w, const json_t *a, const json_t *b);

#endif
