/* core/text/grammar/json_schema_dfa.h - deterministic automata over characters: what strings, keys
 * and numbers of a schema may be. For json_schema_*.c only.
 *
 * State 0 is the start; a character without an edge leads nowhere. Edges of a state are sorted and
 * apart. Surrogates are no characters. Everything lives in the arena. `where` is the JSON pointer
 * for messages; GW_E_LIMIT: more than GW_DFA_STATES states.
 */
#ifndef GW_TEXT_JSON_SCHEMA_DFA_H
#define GW_TEXT_JSON_SCHEMA_DFA_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/text/buffer.h"

#define GW_SCHEMA "JSON schema"

enum { GW_DFA_STATES = 6000, GW_DFA_EDGES = 400000, GW_CHAR_MAX = 0x10FFFF };
enum { GW_DFA_BYTES = 64 << 20 }; /* of the arena: memory, and so time, of all automata together */

typedef struct gw_dfa_edge {
    uint32_t low, high, to;
} gw_dfa_edge;

typedef struct gw_dfa {
    uint32_t n;
    uint8_t *accepts; /* [n] */
    uint32_t *first;  /* [n + 1] in edges */
    gw_dfa_edge *edges;
} gw_dfa;

/* Adding state by state: the edges of a state follow each other, in order. */
typedef struct gw_dfa_builder {
    gw_arena *arena;
    const char *where;
    uint8_t *accepts;
    uint32_t *first;
    gw_dfa_edge *edges;
    size_t n, n_edges, accepts_capacity, first_capacity, edges_capacity;
} gw_dfa_builder;

gw_status gw_dfa_state(gw_dfa_builder *b, int accepts);
/* From the newest state; joined with the last edge where that leads there too. */
gw_status gw_dfa_edge_to(gw_dfa_builder *b, uint32_t low, uint32_t high, uint32_t to);
/* Without states that lead nowhere, equal ones joined as far as one look from the end shows. The
 * builder is empty afterwards, on errors too (gw_dfa_drop). */
gw_status gw_dfa_finish(gw_dfa_builder *b, gw_dfa *out);
void gw_dfa_drop(gw_dfa_builder *b);

typedef enum gw_dfa_op { GW_DFA_AND, GW_DFA_OR, GW_DFA_MINUS } gw_dfa_op;

gw_status gw_dfa_combine(gw_arena *arena, const char *where, const gw_dfa *a, const gw_dfa *b,
                         gw_dfa_op op, gw_dfa *out);

/* Any string; of low to high characters (high < 0: no end); length % divisor == rest; one text. */
gw_status gw_dfa_any(gw_arena *arena, gw_dfa *out);
gw_status gw_dfa_lengths(gw_arena *arena, const char *where, int64_t low, int64_t high,
                         gw_dfa *out);
gw_status gw_dfa_rest(gw_arena *arena, const char *where, uint32_t divisor, uint32_t rest,
                      gw_dfa *out);
gw_status gw_dfa_text(gw_arena *arena, const char *where, const char *text, size_t n, gw_dfa *out);
/* n texts, each ended by a 0; n > 0. They are sorted in place. */
gw_status gw_dfa_texts(gw_arena *arena, const char *where, const char **texts, size_t n,
                       gw_dfa *out);

int gw_dfa_accepts(const gw_dfa *d, const char *text, size_t n);
static inline int gw_dfa_is_empty(const gw_dfa *d) { return d->first[d->n] == 0 && !d->accepts[0]; }

/* A regular expression of ECMA-262: the strings in which it matches somewhere. Where dialects
 * differ (is a letter beyond ASCII in \w?) wide 0 has what matches in all of them, wide 1 what
 * matches in one. GW_E_UNSUPPORTED names the character. */
gw_status gw_dfa_pattern(gw_arena *arena, const char *where, const char *text, size_t n, int wide,
                         gw_dfa *out);

#endif
