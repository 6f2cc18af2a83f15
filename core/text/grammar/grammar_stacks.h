/* core/text/grammar/grammar_stacks.h - sets of stacks as numbers, and the moves between them; for
 * grammar_*.c only. See grammar.h for the idea.
 *
 * A node is a sorted list of edges (address, node below). Node 0 is empty: as a state, a text that
 * is not of the grammar. A state holds addresses of BYTE ops, and of END where the text may end.
 */
#ifndef GW_TEXT_GRAMMAR_STACKS_H
#define GW_TEXT_GRAMMAR_STACKS_H

#include "core/text/grammar/grammar.h"

typedef uint64_t gw_edge; /* address << 32 | node below */

typedef struct gw_stack_node {
    uint32_t first, n; /* edges */
    uint32_t hash;
    uint32_t depth;
    uint32_t least; /* bytes until the text may end, at least; GW_GRAMMAR_FAR: nobody knows */
} gw_stack_node;

typedef struct gw_stacks gw_stacks;

gw_status gw_stacks_new(const gw_program *program, gw_stacks **out);
void gw_stacks_free(gw_stacks *s);

uint32_t gw_stacks_start(const gw_stacks *s); /* the state before any text; after _open */
/* Find the state before any text. */
gw_status gw_stacks_open(gw_stacks *s);

/* The state after a byte of class `k`; 0: none. GW_STACKS_FULL: see gw_stacks_error. */
#define GW_STACKS_FULL UINT32_MAX
uint32_t gw_stacks_step(gw_stacks *s, uint32_t state, unsigned k);

/* Known transitions of a state, [n_classes]: the state, or GW_STACKS_NEW: ask gw_stacks_step. NULL:
 * no room. */
#define GW_STACKS_NEW (UINT32_MAX - 1)
const uint32_t *gw_stacks_row(gw_stacks *s, uint32_t state);

/* The same, inlined, of a state that has a row; NULL: ask gw_stacks_row. */
typedef struct gw_stack_rows {
    const uint32_t *of; /* [state] row + 1; 0: none */
    const uint32_t *rows;
    uint32_t width;
} gw_stack_rows;
gw_stack_rows gw_stacks_rows(const gw_stacks *s); /* until the stacks are freed */
static inline const uint32_t *gw_stacks_known_row(const gw_stack_rows *r, uint32_t state) {
    return r->of[state] != 0 ? r->rows + (size_t)(r->of[state] - 1) * r->width : NULL;
}

int gw_stacks_may_end(const gw_stacks *s, uint32_t state);
/* Bytes until the text may end, at least. */
uint32_t gw_stacks_least(const gw_stacks *s, uint32_t state);
int gw_stacks_only_end(const gw_stacks *s, uint32_t state);

/* Is so much in use that gw_stacks_collect should be called when that is possible? */
int gw_stacks_crowded(const gw_stacks *s);
/* Forget what the states roots [n] do not need; they get new numbers. Rows are all forgotten. */
void gw_stacks_collect(gw_stacks *s, uint32_t *roots, size_t n);
/* Too many parses for the memory that there is: GW_E_LIMIT, in words. */
gw_status gw_stacks_error(const gw_stacks *s);
/* Has a text been cut off because it nests deeper than GW_GRAMMAR_DEPTH_MAX? */
int gw_stacks_too_deep(const gw_stacks *s);

#endif
