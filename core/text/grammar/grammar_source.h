/* core/text/grammar/grammar_source.h - a grammar between its text and its program; for grammar*.c
 * only.
 *
 * Rules are lists of alternatives, alternatives are lists of items, an item is a byte or a rule
 * with how often it comes. Groups, repeated literals and classes of characters beyond ASCII are
 * rules without a name. Lists are linked by numbers, GW_NONE at the end.
 */
#ifndef GW_TEXT_GRAMMAR_SOURCE_H
#define GW_TEXT_GRAMMAR_SOURCE_H

#include "core/base/hash.h"
#include "core/text/buffer.h"
#include "core/text/grammar/grammar.h"

#define GW_NONE UINT32_MAX

typedef struct gw_source_item {
    uint32_t is_rule, arg; /* a rule, or a set of bytes */
    uint32_t min, max;     /* max GW_NONE: any number   */
    uint32_t next;
} gw_source_item;

typedef struct gw_source_alt {
    uint32_t rule, first, next;
} gw_source_alt;

typedef struct gw_source_rule {
    const char *name; /* in the text; NULL: none */
    size_t name_bytes;
    uint32_t owner; /* the rule with a name that it is part of       */
    size_t at;      /* of the definition in the text, or of the first use */
    int defined;
    uint32_t first, last; /* alternatives */
} gw_source_rule;

typedef struct gw_code_range {
    uint32_t low, high;
} gw_code_range;

typedef struct gw_source {
    const char *where;
    gw_source_rule *rules;
    gw_source_alt *alts;
    gw_source_item *items;
    gw_byte_set *sets;
    size_t n_rules, n_alts, n_items, n_sets;
    size_t rules_capacity, alts_capacity, items_capacity, sets_capacity;
    gw_map *known_sets, *known_classes;
    gw_arena *arena; /* keys of the maps */
    uint32_t blamed; /* the rule that could not be compiled; GW_NONE */
} gw_source;

gw_status gw_source_open(gw_source *s, const char *where);
void gw_source_close(gw_source *s);

gw_status gw_source_add_rule(gw_source *s, uint32_t owner, uint32_t *out);
gw_status gw_source_add_alt(gw_source *s, uint32_t rule, uint32_t *out);
/* Behind item `after` of the alternative, GW_NONE: as its first. */
gw_status gw_source_add_item(gw_source *s, uint32_t alt, uint32_t after, gw_source_item item,
                             uint32_t *out);
gw_status gw_source_set(gw_source *s, const gw_byte_set *set, uint32_t *out);
/* An item that is one character of ranges [n], sorted and apart (n > 0). */
gw_status gw_source_class(gw_source *s, uint32_t owner, const gw_code_range *ranges, size_t n,
                          gw_source_item *out);

/* GBNF into rules; *root. */
gw_status gw_source_read(gw_source *s, const char *text, size_t n, uint32_t *root);

/* Long repetitions by way of rules for a run of the same thing: {0,65536} takes a thousand steps.
 */
gw_status gw_source_shorten(gw_source *s);

/* Without alternatives that no text can end; *whole 0: root itself is one, and nothing changed. */
gw_status gw_source_prune(gw_source *s, uint32_t root, int *whole);

/* Rules into a program: what is reachable from root, checked. */
gw_status gw_source_compile(gw_source *s, uint32_t root, gw_program **out);

#endif
