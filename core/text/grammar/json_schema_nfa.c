/* core/text/grammar/json_schema_nfa.c - a regular expression as an automaton: Thompson's
 * construction (1968), then the subset construction over classes of characters that no set tells
 * apart.
 *
 * Assertions (^ $ \b \B) are states of their own: they are passed when the character before and
 * the one behind are known. Recursion is as deep as the expression's groups.
 */
#include "core/base/hash.h"
#include "core/text/grammar/json_schema_regex.h"

enum { STATES_MAX = 60000, COPIES_MAX = 2000, CLASSES_MAX = 4000, WORK_MAX = 1 << 24 };

typedef enum op { SPLIT, SET, BEGIN, END, EDGE, INNER, ACCEPT } op;

typedef struct nfa_state {
    op op;
    uint32_t a, b; /* next; SET: the set in b */
} nfa_state;

/* The character before: none, or of this kind; UNSURE: dialects differ whether it is of a word. */
typedef enum before { START, WORD, NO_WORD, UNSURE, LAST } before;

typedef struct machine {
    gw_regex *r;
    nfa_state *states;
    size_t n, capacity;
    uint32_t rest; /* any characters behind what matched */
    /* classes of characters */
    gw_char_range *spans; /* [n_spans] all characters, in order */
    uint32_t *class_of;   /* [n_spans] */
    size_t n_spans, n_classes;
    uint8_t *in;    /* [sets, n_classes] */
    uint8_t *kinds; /* [n_classes] before */
    /* subsets */
    gw_map *known;
    uint32_t **keys; /* [n_keys] before, count, states */
    size_t n_keys, keys_capacity;
    uint32_t *marks, mark; /* [n] */
    uint32_t *list, *stack;
    size_t n_list;
    size_t work; /* states looked at so far */
} machine;

static gw_status no_memory(void) { return gw_fail(GW_E_NOMEM, GW_SCHEMA, "no memory"); }

static gw_status too_large(const machine *m) {
    return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: too large a pattern", m->r->where);
}

/* ---- states ---------------------------------------------------------------------------------- */

static gw_status add_state(machine *m, op kind, uint32_t a, uint32_t b, uint32_t *out) {
    void *states = m->states;
    if (m->n == STATES_MAX) {
        return too_large(m);
    }
    gw_status status = gw_array_reserve(&states, &m->capacity, m->n + 1, sizeof *m->states);
    m->states = states;
    GW_TRY(status);
    *out = (uint32_t)m->n;
    m->states[m->n++] = (nfa_state){kind, a, b};
    return GW_OK;
}

static gw_status build(machine *m, uint32_t node, uint32_t next, uint32_t *out);

/* Where a text may be shorter, a repetition beyond COPIES_MAX is cut; where it must not be
 * forgotten that it may be longer, it has no end. */
static gw_status build_repeat(machine *m, const gw_regex_node *node, uint32_t next, uint32_t *out) {
    uint32_t min = node->min, max = node->max, at = next;
    if (max != GW_REGEX_NONE && max > COPIES_MAX) {
        max = m->r->wide ? GW_REGEX_NONE : min > COPIES_MAX ? min : COPIES_MAX;
    }
    if (max == GW_REGEX_NONE) {
        GW_TRY(add_state(m, SPLIT, 0, next, &at));
        uint32_t loop = at, inside;
        GW_TRY(build(m, node->first, loop, &inside));
        m->states[loop].a = inside;
        max = min;
    }
    for (uint32_t i = min; i < max; i++) {
        uint32_t inside;
        GW_TRY(build(m, node->first, at, &inside));
        GW_TRY(add_state(m, SPLIT, inside, next, &at));
    }
    for (uint32_t i = 0; i < min; i++) {
        GW_TRY(build(m, node->first, at, &at));
    }
    *out = at;
    return GW_OK;
}

/* The states that match a node and then go on to `next`. */
static gw_status build(machine *m, uint32_t at, uint32_t next, uint32_t *out) {
    const gw_regex_node *nodes = m->r->nodes, *node = &nodes[at];
    static const op assertions[] = {[GW_REGEX_BEGIN] = BEGIN,
                                    [GW_REGEX_END] = END,
                                    [GW_REGEX_EDGE] = EDGE,
                                    [GW_REGEX_INNER] = INNER};
    uint32_t child, begin;
    *out = next;
    switch (node->kind) {
    case GW_REGEX_EMPTY:
        return GW_OK;
    case GW_REGEX_SET:
        return add_state(m, SET, next, node->arg, out);
    case GW_REGEX_CAT:
        for (child = node->last; child != GW_REGEX_NONE; child = nodes[child].before) {
            GW_TRY(build(m, child, *out, out));
        }
        return GW_OK;
    case GW_REGEX_ALT:
        GW_TRY(build(m, node->last, next, out));
        for (child = nodes[node->last].before; child != GW_REGEX_NONE;
             child = nodes[child].before) {
            GW_TRY(build(m, child, next, &begin));
            GW_TRY(add_state(m, SPLIT, begin, *out, out));
        }
        return GW_OK;
    case GW_REGEX_REPEAT:
        return build_repeat(m, node, next, out);
    default:
        return add_state(m, assertions[node->kind], next, 0, out);
    }
}

/* ---- classes of characters ------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Spans of characters between the ends of all sets. */
static gw_status cut_spans(machine *m) {
    size_t n = 2, used = 0;
    for (size_t s = 0; s < m->r->n_sets; s++) {
        n += 2 * m->r->sets[s].n;
    }
    uint32_t *cuts = gw_arena_array(m->r->arena, n, sizeof *cuts);
    m->spans = gw_arena_array(m->r->arena, n, sizeof *m->spans);
    m->class_of = gw_arena_array(m->r->arena, n, sizeof *m->class_of);
    if (cuts == NULL || m->spans == NULL || m->class_of == NULL) {
        return no_memory();
    }
    cuts[used++] = 0;
    cuts[used++] = GW_CHAR_MAX + 1;
    for (size_t s = 0; s < m->r->n_sets; s++) {
        for (size_t i = 0; i < m->r->sets[s].n; i++) {
            cuts[used++] = m->r->sets[s].ranges[i].low;
            cuts[used++] = m->r->sets[s].ranges[i].high + 1;
        }
    }
    qsort(cuts, used, sizeof *cuts, by_number);
    for (size_t i = 0; i + 1 < used; i++) {
        if (cuts[i] < cuts[i + 1]) {
            m->spans[m->n_spans++] = (gw_char_range){cuts[i], cuts[i + 1] - 1};
        }
    }
    return GW_OK;
}

/* Classes are what all sets so far hold together or not at all. Each set numbers them anew, so that
 * there are never more of them than spans. */
static void divide_by(machine *m, const gw_chars *set, uint32_t *inside, uint32_t *outside) {
    size_t k = 0;
    memset(inside, 0xFF, m->n_spans * sizeof *inside);
    memset(outside, 0xFF, m->n_spans * sizeof *outside);
    m->n_classes = 0;
    for (size_t i = 0; i < m->n_spans; i++) {
        while (k < set->n && set->ranges[k].high < m->spans[i].low) {
            k++;
        }
        int in = k < set->n && set->ranges[k].low <= m->spans[i].low;
        uint32_t *number = &(in ? inside : outside)[m->class_of[i]];
        if (*number == UINT32_MAX) {
            *number = (uint32_t)m->n_classes++;
        }
        m->class_of[i] = *number;
    }
}

static gw_status divide_classes(machine *m) {
    uint32_t *inside = gw_arena_array(m->r->arena, m->n_spans, sizeof *inside);
    uint32_t *outside = gw_arena_array(m->r->arena, m->n_spans, sizeof *outside);
    if (inside == NULL || outside == NULL) {
        return no_memory();
    }
    m->n_classes = 1;
    for (size_t s = 0; s < m->r->n_sets; s++) {
        divide_by(m, &m->r->sets[s], inside, outside);
    }
    return m->n_classes <= CLASSES_MAX ? GW_OK : too_large(m);
}

static before kind_of(uint32_t cp) {
    int word = (cp >= '0' && cp <= '9') || (cp >= 'A' && cp <= 'Z') || cp == '_' ||
               (cp >= 'a' && cp <= 'z');
    return word ? WORD : cp < 0x80 ? NO_WORD : UNSURE;
}

static gw_status list_classes(machine *m) {
    GW_TRY(cut_spans(m));
    GW_TRY(divide_classes(m));
    m->in = gw_arena_array(m->r->arena, m->r->n_sets + 1, m->n_classes);
    m->kinds = gw_arena_alloc(m->r->arena, m->n_classes);
    if (m->in == NULL || m->kinds == NULL) {
        return no_memory();
    }
    for (size_t s = 0; s < m->r->n_sets; s++) {
        const gw_chars *set = &m->r->sets[s];
        size_t k = 0;
        for (size_t i = 0; i < m->n_spans; i++) {
            while (k < set->n && set->ranges[k].high < m->spans[i].low) {
                k++;
            }
            m->in[s * m->n_classes + m->class_of[i]] |=
                k < set->n && set->ranges[k].low <= m->spans[i].low;
        }
    }
    for (size_t i = 0; i < m->n_spans; i++) {
        m->kinds[m->class_of[i]] = (uint8_t)(m->r->has_edges ? kind_of(m->spans[i].low) : NO_WORD);
    }
    return GW_OK;
}

/* ---- subsets --------------------------------------------------------------------------------- */

static int passes(const machine *m, op kind, before was, before comes) {
    if (kind == BEGIN) {
        return was == START;
    }
    if (kind == END) {
        return comes == LAST;
    }
    if (was == UNSURE || comes == UNSURE) {
        return m->r->wide;
    }
    return ((was == WORD) != (comes == WORD)) == (kind == EDGE);
}

/* Follow what matches nothing into m->list. comes START: what comes is not known yet, and only what
 * can be decided without it is. */
static void expand(machine *m, const uint32_t *from, size_t n, before was, before comes) {
    size_t depth = 0;
    m->n_list = 0;
    m->mark++;
    for (size_t i = n; i-- > 0;) {
        if (m->marks[from[i]] != m->mark) {
            m->marks[from[i]] = m->mark;
            m->stack[depth++] = from[i];
        }
    }
    while (depth > 0) {
        uint32_t at = m->stack[--depth], next[2] = {UINT32_MAX, UINT32_MAX};
        m->work++;
        const nfa_state *s = &m->states[at];
        if (s->op == SPLIT) {
            next[0] = s->b;
            next[1] = s->a;
        } else if (s->op == SET || s->op == ACCEPT || (comes == START && s->op != BEGIN)) {
            m->list[m->n_list++] = at;
        } else if (passes(m, s->op, was, comes)) {
            next[0] = s->a;
        }
        for (int i = 0; i < 2; i++) {
            if (next[i] != UINT32_MAX && m->marks[next[i]] != m->mark) {
                m->marks[next[i]] = m->mark;
                m->stack[depth++] = next[i];
            }
        }
    }
}

/* The number of the subset of the states from [n]; UINT32_MAX: it is empty. */
static gw_status subset(machine *m, const uint32_t *from, size_t n, before was, uint32_t *out) {
    size_t known;
    expand(m, from, n, was, START);
    *out = UINT32_MAX;
    if (m->n_list == 0) {
        return GW_OK;
    }
    for (size_t i = 0; i < m->n_list; i++) {
        if (m->states[m->list[i]].op == ACCEPT) { /* whatever follows: nothing else matters */
            const uint32_t end = m->list[i];
            expand(m, &end, 1, was, START);
            m->list[m->n_list++] = m->rest;
            break;
        }
    }
    uint32_t *key = gw_arena_array(m->r->arena, m->n_list + 2, sizeof *key);
    if (key == NULL) {
        return no_memory();
    }
    memcpy(key + 2, m->list, m->n_list * sizeof *key);
    qsort(key + 2, m->n_list, sizeof *key, by_number);
    key[0] = was;
    key[1] = (uint32_t)m->n_list;
    size_t bytes = (m->n_list + 2) * sizeof *key;
    if (gw_map_find(m->known, key, bytes, &known)) {
        *out = (uint32_t)known;
        return GW_OK;
    }
    void *keys = m->keys;
    gw_status status = gw_array_reserve(&keys, &m->keys_capacity, m->n_keys + 1, sizeof *m->keys);
    m->keys = keys;
    GW_TRY(status);
    if (gw_map_add(m->known, key, bytes, m->n_keys, NULL) == GW_MAP_NOMEM) {
        return no_memory();
    }
    *out = (uint32_t)m->n_keys;
    m->keys[m->n_keys++] = key;
    return GW_OK;
}

static int accepts(machine *m, const uint32_t *key) {
    expand(m, key + 2, key[1], (before)key[0], LAST);
    for (size_t i = 0; i < m->n_list; i++) {
        if (m->states[m->list[i]].op == ACCEPT) {
            return 1;
        }
    }
    return 0;
}

/* What a class of characters leads to. */
static gw_status step(machine *m, const uint32_t *key, uint32_t class, uint32_t *moved,
                      uint32_t *out) {
    size_t n = 0;
    before comes = (before)m->kinds[class];
    if (m->work > WORK_MAX) {
        return too_large(m);
    }
    expand(m, key + 2, key[1], (before)key[0], comes);
    for (size_t i = 0; i < m->n_list; i++) {
        const nfa_state *s = &m->states[m->list[i]];
        if (s->op == SET && m->in[s->b * m->n_classes + class]) {
            moved[n++] = s->a;
        }
    }
    return subset(m, moved, n, comes, out);
}

static gw_status list_subsets(machine *m, uint32_t start, gw_dfa_builder *b) {
    uint32_t first, *to = gw_arena_array(m->r->arena, m->n_classes, sizeof *to);
    uint32_t *moved = gw_arena_array(m->r->arena, m->n + 1, sizeof *moved);
    if (to == NULL || moved == NULL) {
        return no_memory();
    }
    GW_TRY(subset(m, &start, 1, START, &first));
    if (first == UINT32_MAX) {
        return gw_dfa_state(b, 0);
    }
    for (size_t i = 0; i < m->n_keys; i++) {
        const uint32_t *key = m->keys[i];
        GW_TRY(gw_dfa_state(b, accepts(m, key)));
        for (uint32_t c = 0; c < m->n_classes; c++) {
            GW_TRY(step(m, key, c, moved, &to[c]));
        }
        for (size_t s = 0; s < m->n_spans; s++) {
            if (to[m->class_of[s]] != UINT32_MAX) {
                GW_TRY(gw_dfa_edge_to(b, m->spans[s].low, m->spans[s].high, to[m->class_of[s]]));
            }
        }
    }
    return GW_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gw_status add_any(gw_regex *r, uint32_t *set) {
    void *sets = r->sets;
    gw_status status = gw_array_reserve(&sets, &r->sets_capacity, r->n_sets + 3, sizeof *r->sets);
    r->sets = sets;
    GW_TRY(status);
    *set = (uint32_t)r->n_sets;
    memset(r->sets + r->n_sets, 0, 3 * sizeof *r->sets);
    r->n_sets += r->has_edges ? 3 : 1; /* \b divides characters too */
    GW_TRY(gw_chars_add(&r->sets[*set], 0, GW_CHAR_MAX));
    if (r->has_edges) {
        GW_TRY(gw_chars_shorthand(&r->sets[*set + 1], 'w', 0));
        GW_TRY(gw_chars_add(&r->sets[*set + 2], 0x80, GW_CHAR_MAX));
    }
    for (size_t i = 0; i < r->n_sets; i++) {
        GW_TRY(gw_chars_tidy(&r->sets[i]));
    }
    return GW_OK;
}

/* Any characters, the node, any characters. */
static gw_status build_whole(machine *m, uint32_t node, int anchored, uint32_t *start) {
    uint32_t any, end, tail, loop;
    GW_TRY(add_any(m->r, &any));
    GW_TRY(add_state(m, ACCEPT, 0, 0, &end));
    GW_TRY(add_state(m, SPLIT, 0, end, &tail));
    GW_TRY(add_state(m, SET, tail, any, &loop));
    m->states[tail].a = m->rest = loop;
    GW_TRY(build(m, node, tail, start));
    if (!anchored) {
        uint32_t split;
        GW_TRY(add_state(m, SPLIT, *start, 0, &split));
        GW_TRY(add_state(m, SET, split, any, &loop));
        m->states[split].b = loop;
        *start = split;
    }
    return GW_OK;
}

gw_status gw_regex_automaton(gw_regex *r, uint32_t node, int anchored, gw_dfa *out) {
    machine m = {.r = r};
    gw_dfa_builder b = {.arena = r->arena, .where = r->where};
    uint32_t start = 0;
    gw_status status = GW_OK;
    GW_TRY_DONE(build_whole(&m, node, anchored, &start));
    GW_TRY_DONE(list_classes(&m));
    m.known = gw_map_new();
    m.marks = gw_arena_array(r->arena, m.n, sizeof *m.marks);
    m.list = gw_arena_array(r->arena, m.n, sizeof *m.list);
    m.stack = gw_arena_array(r->arena, m.n, sizeof *m.stack);
    if (m.known == NULL || m.marks == NULL || m.list == NULL || m.stack == NULL) {
        GW_TRY_DONE(no_memory());
    }
    GW_TRY_DONE(list_subsets(&m, start, &b));
    status = gw_dfa_finish(&b, out);
done:
    gw_dfa_drop(&b);
    gw_map_free(m.known);
    free(m.keys);
    free(m.states);
    return status;
}
