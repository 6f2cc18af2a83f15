/* core/text/grammar/json_schema_dfa.c - building, trimming and combining automata; see
 * json_schema_dfa.h. */
#include "core/text/grammar/json_schema_dfa.h"

#include "core/base/hash.h"
#include "core/text/utf8.h"

#define NOWHERE UINT32_MAX

static gw_status no_memory(void) { return gw_fail(GW_E_NOMEM, GW_SCHEMA, "no memory"); }

static gw_status too_large(const char *where) {
    return gw_fail(GW_E_LIMIT, GW_SCHEMA,
                   "at %s: what it asks of a text takes more than %d states; ask for less", where,
                   GW_DFA_STATES);
}

/* ---- building -------------------------------------------------------------------------------- */

gw_status gw_dfa_state(gw_dfa_builder *b, int accepts) {
    void *grown = b->accepts;
    if (b->n == GW_DFA_STATES) {
        return too_large(b->where);
    }
    gw_status status = gw_array_reserve(&grown, &b->accepts_capacity, b->n + 1, 1);
    b->accepts = grown;
    GW_TRY(status);
    grown = b->first;
    status = gw_array_reserve(&grown, &b->first_capacity, b->n + 2, sizeof *b->first);
    b->first = grown;
    GW_TRY(status);
    b->accepts[b->n] = (uint8_t)accepts;
    b->first[b->n++] = (uint32_t)b->n_edges;
    return GW_OK;
}

gw_status gw_dfa_edge_to(gw_dfa_builder *b, uint32_t low, uint32_t high, uint32_t to) {
    if (low <= 0xDFFF && high >= 0xD800) { /* surrogates are left out */
        if (low < 0xD800) {
            GW_TRY(gw_dfa_edge_to(b, low, 0xD7FF, to));
        }
        return high > 0xDFFF ? gw_dfa_edge_to(b, 0xE000, high, to) : GW_OK;
    }
    if (b->n_edges > b->first[b->n - 1]) {
        gw_dfa_edge *last = &b->edges[b->n_edges - 1];
        if (last->to == to && last->high + 1 == low) {
            last->high = high;
            return GW_OK;
        }
    }
    if (b->n_edges == GW_DFA_EDGES) {
        return too_large(b->where);
    }
    void *grown = b->edges;
    gw_status status =
        gw_array_reserve(&grown, &b->edges_capacity, b->n_edges + 1, sizeof *b->edges);
    b->edges = grown;
    GW_TRY(status);
    b->edges[b->n_edges++] = (gw_dfa_edge){low, high, to};
    return GW_OK;
}

void gw_dfa_drop(gw_dfa_builder *b) {
    free(b->accepts);
    free(b->first);
    free(b->edges);
    *b = (gw_dfa_builder){.arena = b->arena, .where = b->where};
}

/* live[state]: a state that accepts can be reached. Numbers grow along most ways, so one look from
 * the last to the first finds nearly all. */
static void find_live(const gw_dfa_builder *b, uint8_t *live) {
    for (int again = 1; again;) {
        again = 0;
        for (size_t s = b->n; s-- > 0;) {
            uint8_t is = live[s] | b->accepts[s];
            for (uint32_t e = b->first[s]; e < b->first[s + 1] && !is; e++) {
                is = live[b->edges[e].to];
            }
            again |= is != live[s];
            live[s] = is;
        }
    }
}

/* same[state]: a state behind it that accepts the same and has the same edges. */
static gw_status find_same(const gw_dfa_builder *b, const uint8_t *live, uint32_t *same) {
    gw_map *known = gw_map_new();
    gw_status status = known != NULL ? GW_OK : no_memory();
    for (size_t s = b->n; s-- > 0 && status == GW_OK;) {
        size_t n = 0, at = b->first[s], most = b->first[s + 1] - at, value = s;
        same[s] = (uint32_t)s;
        uint32_t *key = gw_arena_array(b->arena, 3 * most + 1, sizeof *key);
        if (key == NULL) {
            status = no_memory();
            break;
        }
        key[n++] = b->accepts[s];
        for (size_t e = at; e < at + most; e++) {
            gw_dfa_edge x = b->edges[e];
            if (live[x.to]) {
                uint32_t to = x.to > s ? same[x.to] : x.to == s ? NOWHERE : x.to;
                if (n > 1 && key[n - 1] == to && key[n - 2] + 1 == x.low) {
                    key[n - 2] = x.high;
                    continue;
                }
                key[n++] = x.low;
                key[n++] = x.high;
                key[n++] = to;
            }
        }
        gw_map_result result = gw_map_add(known, key, n * sizeof *key, s, &value);
        if (result == GW_MAP_PRESENT) {
            same[s] = (uint32_t)value;
        }
        status = result == GW_MAP_NOMEM ? no_memory() : GW_OK;
    }
    gw_map_free(known);
    return status;
}

/* What is left, numbered in the order in which it is reached. */
static gw_status renumber(gw_dfa_builder *b, const uint8_t *live, const uint32_t *same,
                          gw_dfa *out) {
    uint32_t *number = gw_arena_array(b->arena, b->n, sizeof *number);
    uint32_t *order = gw_arena_array(b->arena, b->n, sizeof *order), n = 0;
    gw_dfa d = {.accepts = gw_arena_array(b->arena, b->n, 1),
                .first = gw_arena_array(b->arena, b->n + 1, sizeof *d.first),
                .edges = gw_arena_array(b->arena, b->n_edges + 1, sizeof *d.edges)};
    if (number == NULL || order == NULL || d.accepts == NULL || d.first == NULL ||
        d.edges == NULL) {
        return no_memory();
    }
    memset(number, 0xFF, b->n * sizeof *number);
    order[n++] = same[0];
    number[same[0]] = 0;
    uint32_t filled = 0;
    for (uint32_t at = 0; at < n; at++) {
        uint32_t s = order[at];
        d.accepts[at] = b->accepts[s];
        d.first[at] = filled;
        for (uint32_t e = b->first[s]; e < b->first[s + 1]; e++) {
            gw_dfa_edge x = b->edges[e];
            if (!live[x.to]) {
                continue;
            }
            x.to = same[x.to];
            if (number[x.to] == NOWHERE) {
                number[x.to] = n;
                order[n++] = x.to;
            }
            x.to = number[x.to];
            gw_dfa_edge *last = filled > d.first[at] ? &d.edges[filled - 1] : NULL;
            if (last != NULL && last->to == x.to && last->high + 1 == x.low) {
                last->high = x.high;
            } else {
                d.edges[filled++] = x;
            }
        }
    }
    d.n = n;
    d.first[n] = filled;
    *out = d;
    return GW_OK;
}

gw_status gw_dfa_finish(gw_dfa_builder *b, gw_dfa *out) {
    uint8_t *live = gw_arena_alloc(b->arena, b->n + 1);
    uint32_t *same = gw_arena_array(b->arena, b->n + 1, sizeof *same);
    gw_status status = live != NULL && same != NULL ? GW_OK : no_memory();
    if (status == GW_OK && gw_arena_bytes(b->arena) > GW_DFA_BYTES) {
        status = gw_fail(GW_E_LIMIT, GW_SCHEMA,
                         "at %s: what the schema asks of texts, numbers and names takes more than "
                         "%d MiB; require less",
                         b->where, GW_DFA_BYTES >> 20);
    }
    GW_TRY_DONE(status);
    b->first[b->n] = (uint32_t)b->n_edges;
    find_live(b, live);
    GW_TRY_DONE(find_same(b, live, same));
    status = renumber(b, live, same, out);
done:
    gw_dfa_drop(b);
    return status;
}

/* ---- two at once ----------------------------------------------------------------------------- */

typedef struct pairs {
    gw_dfa_builder b;
    const gw_dfa *x, *y;
    gw_dfa_op op;
    gw_map *known;
    uint32_t (*list)[2];
    size_t n, capacity;
} pairs;

static gw_status pair_number(pairs *p, uint32_t x, uint32_t y, uint32_t *out) {
    uint32_t key[2] = {x, y};
    size_t known;
    if (gw_map_find(p->known, key, sizeof key, &known)) {
        *out = (uint32_t)known;
        return GW_OK;
    }
    if (p->n == GW_DFA_STATES) {
        return too_large(p->b.where);
    }
    uint32_t *copy = gw_arena_array(p->b.arena, 2, sizeof *copy);
    void *grown = p->list;
    gw_status status = gw_array_reserve(&grown, &p->capacity, p->n + 1, sizeof *p->list);
    p->list = grown;
    GW_TRY(status);
    if (copy == NULL) {
        return no_memory();
    }
    memcpy(copy, key, sizeof key);
    memcpy(p->list[p->n], key, sizeof key);
    if (gw_map_add(p->known, copy, sizeof key, p->n, NULL) == GW_MAP_NOMEM) {
        return no_memory();
    }
    *out = (uint32_t)p->n++;
    return GW_OK;
}

/* Where `at` leads from a state, and up to which character. */
static uint32_t look_up(const gw_dfa *d, uint32_t state, uint32_t *edge, uint32_t at,
                        uint32_t *until) {
    if (state == NOWHERE) {
        *until = GW_CHAR_MAX;
        return NOWHERE;
    }
    uint32_t end = d->first[state + 1];
    while (*edge < end && d->edges[*edge].high < at) {
        ++*edge;
    }
    if (*edge == end) {
        *until = GW_CHAR_MAX;
        return NOWHERE;
    }
    const gw_dfa_edge *e = &d->edges[*edge];
    *until = e->low <= at ? e->high : e->low - 1;
    return e->low <= at ? e->to : NOWHERE;
}

static gw_status add_pair_edges(pairs *p, uint32_t x, uint32_t y) {
    uint32_t ex = x != NOWHERE ? p->x->first[x] : 0, ey = y != NOWHERE ? p->y->first[y] : 0;
    for (uint32_t at = 0; at <= GW_CHAR_MAX;) {
        uint32_t until_x, until_y, to;
        uint32_t to_x = look_up(p->x, x, &ex, at, &until_x);
        uint32_t to_y = look_up(p->y, y, &ey, at, &until_y);
        uint32_t until = until_x < until_y ? until_x : until_y;
        int dead = p->op == GW_DFA_AND  ? to_x == NOWHERE || to_y == NOWHERE
                   : p->op == GW_DFA_OR ? to_x == NOWHERE && to_y == NOWHERE
                                        : to_x == NOWHERE;
        if (!dead) {
            GW_TRY(pair_number(p, to_x, to_y, &to));
            GW_TRY(gw_dfa_edge_to(&p->b, at, until, to));
        }
        at = until + 1;
    }
    return GW_OK;
}

gw_status gw_dfa_combine(gw_arena *arena, const char *where, const gw_dfa *a, const gw_dfa *b,
                         gw_dfa_op op, gw_dfa *out) {
    pairs p = {.b = {.arena = arena, .where = where}, .x = a, .y = b, .op = op};
    uint32_t start;
    gw_status status = (p.known = gw_map_new()) != NULL ? GW_OK : no_memory();
    GW_TRY_DONE(status);
    GW_TRY_DONE(pair_number(&p, 0, 0, &start));
    for (size_t i = 0; i < p.n; i++) {
        uint32_t x = p.list[i][0], y = p.list[i][1];
        int in_a = x != NOWHERE && a->accepts[x], in_b = y != NOWHERE && b->accepts[y];
        GW_TRY_DONE(gw_dfa_state(&p.b, op == GW_DFA_AND  ? in_a && in_b
                                       : op == GW_DFA_OR ? in_a || in_b
                                                         : in_a && !in_b));
        GW_TRY_DONE(add_pair_edges(&p, x, y));
    }
    status = gw_dfa_finish(&p.b, out);
done:
    gw_dfa_drop(&p.b);
    gw_map_free(p.known);
    free(p.list);
    return status;
}

/* ---- simple ones ----------------------------------------------------------------------------- */

gw_status gw_dfa_lengths(gw_arena *arena, const char *where, int64_t low, int64_t high,
                         gw_dfa *out) {
    gw_dfa_builder b = {.arena = arena, .where = where};
    int64_t last = high < 0 ? low : high;
    gw_status status = last < GW_DFA_STATES ? GW_OK : too_large(where);
    for (int64_t i = 0; i <= last && status == GW_OK; i++) {
        status = gw_dfa_state(&b, i >= low);
        if (status == GW_OK && (i < last || high < 0)) {
            status = gw_dfa_edge_to(&b, 0, GW_CHAR_MAX, (uint32_t)(i < last ? i + 1 : i));
        }
    }
    if (status == GW_OK) {
        return gw_dfa_finish(&b, out);
    }
    gw_dfa_drop(&b);
    return status;
}

gw_status gw_dfa_any(gw_arena *arena, gw_dfa *out) {
    return gw_dfa_lengths(arena, "#", 0, -1, out);
}

gw_status gw_dfa_rest(gw_arena *arena, const char *where, uint32_t divisor, uint32_t rest,
                      gw_dfa *out) {
    gw_dfa_builder b = {.arena = arena, .where = where};
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < divisor && status == GW_OK; i++) {
        status = gw_dfa_state(&b, i == rest);
        if (status == GW_OK) {
            status = gw_dfa_edge_to(&b, 0, GW_CHAR_MAX, (i + 1) % divisor);
        }
    }
    if (status == GW_OK) {
        return gw_dfa_finish(&b, out);
    }
    gw_dfa_drop(&b);
    return status;
}

gw_status gw_dfa_text(gw_arena *arena, const char *where, const char *text, size_t n, gw_dfa *out) {
    gw_dfa_builder b = {.arena = arena, .where = where};
    gw_status status = GW_OK;
    for (size_t at = 0; status == GW_OK;) {
        uint32_t cp;
        status = gw_dfa_state(&b, at == n);
        if (status != GW_OK || at == n) {
            break;
        }
        at += gw_utf8_next(text + at, n - at, &cp);
        status = gw_dfa_edge_to(&b, cp, cp, (uint32_t)b.n);
    }
    if (status == GW_OK) {
        return gw_dfa_finish(&b, out);
    }
    gw_dfa_drop(&b);
    return status;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Texts [first, end) agree in their first `at` bytes: the state after those. Its edges lead to
 * states that come later. */
typedef struct agreeing {
    size_t first, end, at;
} agreeing;

static gw_status add_agreeing(gw_dfa_builder *b, const char *const *texts, agreeing x,
                              agreeing **more, size_t *n, size_t *capacity) {
    size_t i = x.first;
    GW_TRY(gw_dfa_state(b, texts[i][x.at] == '\0'));
    while (i < x.end && texts[i][x.at] == '\0') {
        i++;
    }
    while (i < x.end) {
        const char *from = texts[i] + x.at;
        uint32_t cp;
        size_t bytes = gw_utf8_next(from, strlen(from), &cp), end = i + 1;
        while (end < x.end && strncmp(from, texts[end] + x.at, bytes) == 0) {
            end++;
        }
        void *grown = *more;
        gw_status status = gw_array_reserve(&grown, capacity, *n + 1, sizeof **more);
        *more = grown;
        GW_TRY(status);
        (*more)[*n] = (agreeing){i, end, x.at + bytes};
        GW_TRY(gw_dfa_edge_to(b, cp, cp, (uint32_t)*n));
        ++*n;
        i = end;
    }
    return GW_OK;
}

gw_status gw_dfa_texts(gw_arena *arena, const char *where, const char **texts, size_t n,
                       gw_dfa *out) {
    gw_dfa_builder b = {.arena = arena, .where = where};
    size_t states = 0, capacity = 0;
    void *list = NULL;
    gw_status status = gw_array_reserve(&list, &capacity, 1, sizeof(agreeing));
    agreeing *known = list;
    GW_TRY_DONE(status);
    qsort(texts, n, sizeof *texts, by_bytes);
    known[states++] = (agreeing){0, n, 0};
    for (size_t s = 0; s < states; s++) {
        GW_TRY_DONE(add_agreeing(&b, texts, known[s], &known, &states, &capacity));
    }
    status = gw_dfa_finish(&b, out);
done:
    gw_dfa_drop(&b);
    free(known);
    return status;
}

int gw_dfa_accepts(const gw_dfa *d, const char *text, size_t n) {
    uint32_t state = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp, until, edge = d->first[state];
        at += gw_utf8_next(text + at, n - at, &cp);
        state = look_up(d, state, &edge, cp, &until);
        if (state == NOWHERE) {
            return 0;
        }
    }
    return d->accepts[state];
}
