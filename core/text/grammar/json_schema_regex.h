/* core/text/grammar/json_schema_regex.h - regular expressions between their text and their
 * automaton; for json_schema_pattern.c, _nfa.c and _classes.c only.
 */
#ifndef GW_TEXT_JSON_SCHEMA_REGEX_H
#define GW_TEXT_JSON_SCHEMA_REGEX_H

#include "core/text/grammar/json_schema_dfa.h"

#define GW_REGEX_NONE UINT32_MAX

typedef struct gw_char_range {
    uint32_t low, high;
} gw_char_range;

/* Characters; sorted and apart once gw_chars_tidy has seen them. */
typedef struct gw_chars {
    gw_char_range *ranges;
    size_t n, capacity;
} gw_chars;

gw_status gw_chars_add(gw_chars *set, uint32_t low, uint32_t high);
gw_status gw_chars_tidy(gw_chars *set);
gw_status gw_chars_invert(gw_chars *set); /* tidies too */
/* \d \w \s and their opposites, as all dialects (wide 0) or one of them (wide 1) have it. */
gw_status gw_chars_shorthand(gw_chars *set, int letter, int wide);
/* \p{NAME} (\P: negated). What has no meaning yet may get any in a later Unicode: it is in the set
 * where `wide`. *known 0: there is no such property here. */
gw_status gw_chars_property(gw_chars *set, const char *name, size_t n, int negated, int wide,
                            int *known);

typedef enum gw_regex_kind {
    GW_REGEX_EMPTY,
    GW_REGEX_SET,    /* a character of set `arg`                           */
    GW_REGEX_CAT,    /* children one after the other                       */
    GW_REGEX_ALT,    /* one of the children                                */
    GW_REGEX_REPEAT, /* the child, min to max times (GW_REGEX_NONE: any)   */
    GW_REGEX_BEGIN,  /* ^                                                  */
    GW_REGEX_END,    /* $                                                  */
    GW_REGEX_EDGE,   /* \b                                                 */
    GW_REGEX_INNER   /* \B                                                 */
} gw_regex_kind;

typedef struct gw_regex_node {
    gw_regex_kind kind;
    uint32_t arg, min, max;
    uint32_t first, last, before; /* children, and the sibling before this one */
} gw_regex_node;

typedef struct gw_regex_look { /* (?=...) and (?!...) behind the ^ of an alternative */
    uint32_t node;
    int negative;
} gw_regex_look;

typedef struct gw_regex {
    gw_arena *arena;
    const char *where;
    int wide, has_edges;
    gw_regex_node *nodes;
    gw_chars *sets;
    size_t n_nodes, n_sets, nodes_capacity, sets_capacity;
} gw_regex;

/* The strings in which `node` matches somewhere, at the beginning when `anchored`. */
gw_status gw_regex_automaton(gw_regex *r, uint32_t node, int anchored, gw_dfa *out);

#endif
