/* core/text/grammar/grammar_stacks.c - the nodes, and what a byte does to a state; see
 * grammar_stacks.h.
 *
 * A move takes every edge whose op matches the byte, and then follows the ops that match nothing.
 * Rules that are called on the way are collected with all their callers and entered once, each
 * behind those that may call it (no rule is left-recursive, so there is such an order): the work is
 * bounded by the program and not by the number of parses. A rule that may be empty is also passed
 * over where it is called, so a RETURN that is reached without a byte has been dealt with already.
 */
#include "core/text/grammar/grammar_stacks.h"

#include <stdlib.h>
#include <string.h>

enum {
    NODES = 1 << 17,
    EDGES = 1 << 20,
    CONFIGS = 1 << 18, /* of one move */
    SEEN = 1 << 19,
    TABLE = 1 << 18,
    JOINS = 1 << 14,
    JOIN_WORK = 1 << 22, /* edges looked at in one move */
    ROW_WORDS = 1 << 22
};

#define NONE UINT32_MAX

typedef struct seen_slot {
    gw_edge key;
    uint32_t stamp;
} seen_slot;

typedef struct waiting { /* a caller of a rule */
    gw_edge edge;
    uint32_t next;
} waiting;

typedef struct known_join {
    uint32_t a, b, joined;
} known_join;

struct gw_stacks {
    const gw_program *p;
    gw_stack_node *nodes; /* [NODES] */
    gw_edge *edges;       /* [EDGES] */
    uint32_t *table;      /* [TABLE] node + 1; 0: free */
    uint32_t n_nodes, n_edges, start;
    uint32_t *row_of; /* [NODES] row + 1; 0: none */
    uint32_t *rows;   /* [n_rows, n_classes] */
    uint32_t n_rows, rows_max;
    known_join *joins; /* [JOINS] */
    /* one move */
    gw_edge *work, *out, *scratch; /* [CONFIGS] each */
    uint32_t n_work, n_out, n_scratch, n_seen;
    seen_slot *seen; /* [SEEN] */
    uint32_t stamp;
    waiting *waiting; /* [CONFIGS] */
    uint32_t n_waiting;
    uint32_t *callers; /* [n_rules] first waiting, NONE */
    uint32_t *heap;    /* [n_rules] ranks of rules with callers */
    uint32_t n_heap;
    uint64_t join_work;
    int inside; /* rules are being entered: returns are dealt with already */
    int full, too_deep;
};

static uint32_t address(gw_edge e) { return (uint32_t)(e >> 32); }
static uint32_t below(gw_edge e) { return (uint32_t)e; }
static gw_edge edge_of(uint32_t at, uint32_t node) { return (gw_edge)at << 32 | node; }

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint32_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (uint32_t)(x >> 32);
}

static uint32_t hash_of(const gw_edge *list, uint32_t n) {
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ list[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return mix(h);
}

static void enter(gw_stacks *s, uint32_t node) {
    uint32_t at = s->nodes[node].hash & (TABLE - 1);
    while (s->table[at] != 0) {
        at = (at + 1) & (TABLE - 1);
    }
    s->table[at] = node + 1;
}

/* The node of these edges, sorted and all of other addresses. */
static uint32_t intern(gw_stacks *s, const gw_edge *list, uint32_t n) {
    if (n == 0) {
        return 0;
    }
    uint32_t hash = hash_of(list, n), at = hash & (TABLE - 1), depth = 0, least = GW_GRAMMAR_FAR;
    for (; s->table[at] != 0; at = (at + 1) & (TABLE - 1)) {
        const gw_stack_node *known = &s->nodes[s->table[at] - 1];
        if (known->hash == hash && known->n == n &&
            memcmp(s->edges + known->first, list, n * sizeof *list) == 0) {
            return s->table[at] - 1;
        }
    }
    if (s->n_nodes == NODES || n > EDGES - s->n_edges) {
        s->full = 1;
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = s->nodes[below(list[i])].depth + 1;
        depth = d > depth ? d : depth;
        uint32_t bytes = s->p->least[address(list[i])] + s->nodes[below(list[i])].least;
        least = bytes < least ? bytes : least;
    }
    memcpy(s->edges + s->n_edges, list, n * sizeof *list);
    s->nodes[s->n_nodes] = (gw_stack_node){s->n_edges, n, hash, depth, least};
    s->n_edges += n;
    s->table[at] = s->n_nodes + 1;
    return s->n_nodes++;
}

static int push_scratch(gw_stacks *s, gw_edge e) {
    if (s->n_scratch == CONFIGS || ++s->join_work > JOIN_WORK) {
        s->full = 1;
        return 0;
    }
    s->scratch[s->n_scratch++] = e;
    return 1;
}

/* The stacks of both nodes. It calls itself as deep as the stacks are: GW_GRAMMAR_DEPTH_MAX. */
static uint32_t join(gw_stacks *s, uint32_t a, uint32_t b) {
    if (a > b) {
        uint32_t swap = a;
        a = b;
        b = swap;
    }
    if (a == b || a == 0 || s->full) {
        return b;
    }
    known_join *known = &s->joins[mix(edge_of(a, b)) & (JOINS - 1)];
    if (known->a == a && known->b == b) {
        return known->joined;
    }
    const gw_edge *x = s->edges + s->nodes[a].first, *y = s->edges + s->nodes[b].first;
    const gw_edge *x_end = x + s->nodes[a].n, *y_end = y + s->nodes[b].n;
    uint32_t base = s->n_scratch;
    while (x < x_end || y < y_end) {
        gw_edge next;
        if (y == y_end || (x < x_end && address(*x) < address(*y))) {
            next = *x++;
        } else if (x == x_end || address(*y) < address(*x)) {
            next = *y++;
        } else {
            next = edge_of(address(*x), join(s, below(*x), below(*y)));
            x++;
            y++;
        }
        if (!push_scratch(s, next)) {
            return 0;
        }
    }
    uint32_t joined = intern(s, s->scratch + base, s->n_scratch - base);
    s->n_scratch = base;
    if (!s->full) {
        *known = (known_join){a, b, joined};
    }
    return joined;
}

/* Without memory, unlike qsort. */
static void sort_edges(gw_edge *list, uint32_t n) {
    if (n < 24) {
        for (uint32_t i = 1; i < n; i++) {
            gw_edge x = list[i];
            uint32_t at = i;
            for (; at > 0 && list[at - 1] > x; at--) {
                list[at] = list[at - 1];
            }
            list[at] = x;
        }
        return;
    }
    uint32_t root = n / 2, end = n;
    while (end > 1) {
        if (root > 0) {
            root--;
        } else {
            gw_edge last = list[--end];
            list[end] = list[0];
            list[0] = last;
        }
        gw_edge x = list[root];
        uint32_t at = root;
        for (uint32_t child; (child = 2 * at + 1) < end; at = child) {
            child += child + 1 < end && list[child + 1] > list[child];
            if (list[child] <= x) {
                break;
            }
            list[at] = list[child];
        }
        list[at] = x;
    }
}

/* Any edges, in any order; the list is used up. */
static uint32_t node_of(gw_stacks *s, gw_edge *list, uint32_t n) {
    uint32_t m = 0;
    sort_edges(list, n);
    for (uint32_t i = 0; i < n; i++) {
        if (m > 0 && address(list[m - 1]) == address(list[i])) {
            list[m - 1] = edge_of(address(list[i]), join(s, below(list[m - 1]), below(list[i])));
        } else {
            list[m++] = list[i];
        }
    }
    return s->full ? 0 : intern(s, list, m);
}

/* ---- a move ---------------------------------------------------------------------------------- */

static void push(gw_stacks *s, uint32_t at, uint32_t node) {
    gw_edge key = edge_of(at, node);
    uint32_t slot = mix(key) & (SEEN - 1);
    for (; s->seen[slot].stamp == s->stamp; slot = (slot + 1) & (SEEN - 1)) {
        if (s->seen[slot].key == key) {
            return;
        }
    }
    if (s->n_seen == CONFIGS || s->n_work == CONFIGS) {
        s->full = 1;
        return;
    }
    s->seen[slot] = (seen_slot){key, s->stamp};
    s->n_seen++;
    s->work[s->n_work++] = key;
}

static void await(gw_stacks *s, uint32_t rule, gw_edge caller) {
    if (s->n_waiting == CONFIGS) {
        s->full = 1;
        return;
    }
    if (s->callers[rule] == NONE) { /* into the heap: the least rank at its root */
        uint32_t at = s->n_heap++, rank = s->p->rank[rule];
        for (; at > 0 && s->heap[(at - 1) / 2] > rank; at = (at - 1) / 2) {
            s->heap[at] = s->heap[(at - 1) / 2];
        }
        s->heap[at] = rank;
    }
    s->waiting[s->n_waiting] = (waiting){caller, s->callers[rule]};
    s->callers[rule] = s->n_waiting++;
}

static uint32_t next_rule(gw_stacks *s) {
    uint32_t least = s->heap[0], last = s->heap[--s->n_heap], at = 0;
    for (uint32_t child; (child = 2 * at + 1) < s->n_heap; at = child) {
        child += child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] >= last) {
            break;
        }
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return s->p->by_rank[least];
}

/* A call that is the last thing of its rule leaves no address behind: what repeats by calling
 * itself at the end does not grow. */
static void call(gw_stacks *s, uint32_t rule, uint32_t back, uint32_t node) {
    if (s->p->steps[back].op == GW_GRAMMAR_RETURN) {
        const gw_stack_node *callers = &s->nodes[node];
        for (uint32_t i = 0; i < callers->n; i++) {
            await(s, rule, s->edges[callers->first + i]);
        }
    } else if (s->nodes[node].depth + 1 >= GW_GRAMMAR_DEPTH_MAX) {
        s->too_deep = 1;
    } else {
        await(s, rule, edge_of(back, node));
    }
    if (s->p->nullable[rule]) {
        push(s, back, node);
    }
}

static void follow(gw_stacks *s) {
    while (s->n_work > 0 && !s->full) {
        gw_edge e = s->work[--s->n_work];
        uint32_t at = address(e), node = below(e);
        const gw_grammar_step *op = &s->p->steps[at];
        const gw_stack_node *callers = &s->nodes[node];
        switch ((gw_grammar_op)op->op) {
        case GW_GRAMMAR_END:
        case GW_GRAMMAR_BYTE:
            s->out[s->n_out++] = e; /* no more of them than were pushed */
            break;
        case GW_GRAMMAR_CALL:
            call(s, op->arg, at + 1, node);
            break;
        case GW_GRAMMAR_SPLIT:
            push(s, op->arg, node);
            push(s, at + 1, node);
            break;
        case GW_GRAMMAR_JUMP:
            push(s, op->arg, node);
            break;
        case GW_GRAMMAR_RETURN:
            for (uint32_t i = 0; i < callers->n && !s->inside; i++) {
                gw_edge caller = s->edges[callers->first + i];
                push(s, address(caller), below(caller));
            }
            break;
        }
    }
}

static void begin_move(gw_stacks *s) {
    s->n_work = s->n_out = s->n_scratch = s->n_seen = s->n_waiting = 0;
    s->join_work = 0;
    s->inside = 0;
    if (++s->stamp == 0) {
        memset(s->seen, 0, SEEN * sizeof *s->seen);
        s->stamp = 1;
    }
}

static uint32_t end_move(gw_stacks *s) {
    follow(s);
    s->inside = 1;
    while (s->n_heap > 0) {
        uint32_t rule = next_rule(s), base = s->n_scratch;
        for (uint32_t at = s->callers[rule]; at != NONE && !s->full; at = s->waiting[at].next) {
            push_scratch(s, s->waiting[at].edge);
        }
        s->callers[rule] = NONE;
        if (s->full) {
            continue; /* empties the heap */
        }
        /* node_of uses what lies behind the list as scratch */
        uint32_t node = node_of(s, s->scratch + base, s->n_scratch - base);
        s->n_scratch = base;
        push(s, s->p->start[rule], node);
        follow(s);
    }
    uint32_t state = s->full ? 0 : node_of(s, s->out, s->n_out);
    return s->full ? GW_STACKS_FULL : state;
}

uint32_t gw_stacks_step(gw_stacks *s, uint32_t state, unsigned k) {
    const gw_stack_node *node = &s->nodes[state];
    unsigned byte = s->p->sample[k];
    begin_move(s);
    for (uint32_t i = 0; i < node->n; i++) {
        gw_edge e = s->edges[node->first + i];
        const gw_grammar_step *op = &s->p->steps[address(e)];
        if (op->op == GW_GRAMMAR_BYTE && gw_byte_set_has(&s->p->sets[op->arg], byte)) {
            push(s, address(e) + 1, below(e));
        }
    }
    uint32_t next = end_move(s);
    if (next != GW_STACKS_FULL && s->row_of[state] != 0) {
        s->rows[(size_t)(s->row_of[state] - 1) * s->p->n_classes + k] = next;
    }
    return next;
}

const uint32_t *gw_stacks_row(gw_stacks *s, uint32_t state) {
    uint32_t width = s->p->n_classes;
    if (s->row_of[state] == 0) {
        if (s->n_rows == s->rows_max) {
            s->full = 1;
            return NULL;
        }
        uint32_t *row = s->rows + (size_t)s->n_rows * width;
        for (uint32_t i = 0; i < width; i++) {
            row[i] = GW_STACKS_NEW;
        }
        s->row_of[state] = ++s->n_rows;
    }
    return s->rows + (size_t)(s->row_of[state] - 1) * width;
}

gw_stack_rows gw_stacks_rows(const gw_stacks *s) {
    return (gw_stack_rows){.of = s->row_of, .rows = s->rows, .width = s->p->n_classes};
}

int gw_stacks_may_end(const gw_stacks *s, uint32_t state) {
    const gw_stack_node *node = &s->nodes[state];
    return node->n > 0 && address(s->edges[node->first]) == 0;
}

uint32_t gw_stacks_least(const gw_stacks *s, uint32_t state) { return s->nodes[state].least; }

int gw_stacks_only_end(const gw_stacks *s, uint32_t state) {
    return s->nodes[state].n == 1 && gw_stacks_may_end(s, state);
}

uint32_t gw_stacks_start(const gw_stacks *s) { return s->start; }

gw_status gw_stacks_error(const gw_stacks *s) {
    (void)s;
    return gw_fail(GW_E_LIMIT, "grammar",
                   "too many readings of the text at this place; make the grammar less ambiguous");
}

int gw_stacks_too_deep(const gw_stacks *s) { return s->too_deep; }

/* ---- life ------------------------------------------------------------------------------------ */

gw_status gw_stacks_new(const gw_program *program, gw_stacks **out) {
    gw_stacks *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, "grammar", "no memory");
    }
    s->p = program;
    s->rows_max = ROW_WORDS / program->n_classes;
    s->nodes = calloc(NODES, sizeof *s->nodes);
    s->edges = calloc(EDGES, sizeof *s->edges);
    s->table = calloc(TABLE, sizeof *s->table);
    s->row_of = calloc(NODES, sizeof *s->row_of);
    s->rows = calloc(ROW_WORDS, sizeof *s->rows);
    s->joins = calloc(JOINS, sizeof *s->joins);
    s->work = calloc(CONFIGS, sizeof *s->work);
    s->out = calloc(CONFIGS, sizeof *s->out);
    s->scratch = calloc(CONFIGS, sizeof *s->scratch);
    s->seen = calloc(SEEN, sizeof *s->seen);
    s->waiting = calloc(CONFIGS, sizeof *s->waiting);
    s->callers = calloc(program->n_rules + 1, sizeof *s->callers);
    s->heap = calloc(program->n_rules + 1, sizeof *s->heap);
    if (s->nodes == NULL || s->edges == NULL || s->table == NULL || s->row_of == NULL ||
        s->rows == NULL || s->joins == NULL || s->work == NULL || s->out == NULL ||
        s->scratch == NULL || s->seen == NULL || s->waiting == NULL || s->callers == NULL ||
        s->heap == NULL) {
        gw_stacks_free(s);
        return gw_fail(GW_E_NOMEM, "grammar", "no memory");
    }
    memset(s->callers, 0xFF, (program->n_rules + 1) * sizeof *s->callers);
    s->n_nodes = 1; /* the empty one */
    *out = s;
    return GW_OK;
}

gw_status gw_stacks_open(gw_stacks *s) {
    begin_move(s);
    await(s, s->p->root, edge_of(0, 0));
    if (s->p->nullable[s->p->root]) {
        push(s, 0, 0);
    }
    uint32_t start = end_move(s);
    if (start == GW_STACKS_FULL) {
        return gw_stacks_error(s);
    }
    s->start = start;
    return GW_OK;
}

void gw_stacks_free(gw_stacks *s) {
    if (s != NULL) {
        free(s->nodes);
        free(s->edges);
        free(s->table);
        free(s->row_of);
        free(s->rows);
        free(s->joins);
        free(s->work);
        free(s->out);
        free(s->scratch);
        free(s->seen);
        free(s->waiting);
        free(s->callers);
        free(s->heap);
        free(s);
    }
}

/* ---- collecting ------------------------------------------------------------------------------ */

int gw_stacks_crowded(const gw_stacks *s) {
    return s->full || s->n_nodes > NODES / 2 || s->n_edges > EDGES / 2 ||
           s->n_rows > s->rows_max / 2;
}

/* A node stands behind all that lie below it, so one walk down marks and one walk up moves. */
void gw_stacks_collect(gw_stacks *s, uint32_t *roots, size_t n) {
    uint32_t *moved = s->row_of; /* rows go anyway */
    memset(moved, 0, NODES * sizeof *moved);
    moved[0] = moved[s->start] = 1;
    for (size_t i = 0; i < n; i++) {
        moved[roots[i]] = 1;
    }
    for (uint32_t node = s->n_nodes; node-- > 0;) {
        for (uint32_t i = 0; moved[node] && i < s->nodes[node].n; i++) {
            moved[below(s->edges[s->nodes[node].first + i])] = 1;
        }
    }
    memset(s->table, 0, TABLE * sizeof *s->table);
    uint32_t n_nodes = 0, n_edges = 0;
    for (uint32_t node = 0; node < s->n_nodes; node++) {
        if (!moved[node]) {
            continue;
        }
        gw_stack_node x = s->nodes[node];
        for (uint32_t i = 0; i < x.n; i++) {
            gw_edge e = s->edges[x.first + i];
            s->edges[n_edges + i] = edge_of(address(e), moved[below(e)]);
        }
        x.first = n_edges;
        x.hash = hash_of(s->edges + n_edges, x.n);
        n_edges += x.n;
        moved[node] = n_nodes;
        s->nodes[n_nodes] = x;
        if (n_nodes > 0) {
            enter(s, n_nodes);
        }
        n_nodes++;
    }
    s->n_nodes = n_nodes;
    s->n_edges = n_edges;
    s->start = moved[s->start];
    for (size_t i = 0; i < n; i++) {
        roots[i] = moved[roots[i]];
    }
    memset(s->row_of, 0, NODES * sizeof *s->row_of);
    memset(s->joins, 0, JOINS * sizeof *s->joins);
    s->n_rows = 0;
    s->full = 0;
}
