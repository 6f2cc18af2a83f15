/* core/text/grammar/grammar_compile.c - rules into a program: what is reachable, checked, one after
 * the other. Everything is linear in the rules; nothing recurses. */
#include "core/text/grammar/grammar_source.h"

typedef struct compiler {
    gw_source *s;
    uint32_t root;
    uint8_t *reached; /* [n_rules] */
    uint32_t *queue;  /* [n_rules] reachable rules, root first */
    uint32_t n_queue;
    uint32_t *use_first, *uses; /* alternatives that need a rule, by rule */
    uint32_t *missing;          /* [n_alts] */
    gw_program *p;
    size_t capacity;
} compiler;

static gw_status no_memory(const compiler *c) {
    return gw_fail(GW_E_NOMEM, c->s->where, "no memory");
}

static int shown(const gw_source_rule *r) { return r->name_bytes < 60 ? (int)r->name_bytes : 60; }

/* The rule that the user knows, to be blamed. */
static const gw_source_rule *blame(compiler *c, uint32_t rule) {
    c->s->blamed = c->s->rules[rule].owner;
    return &c->s->rules[c->s->blamed];
}

#define EACH_ALT(c, rule, a)                                                                       \
    for (uint32_t a = (c)->s->rules[rule].first; a != GW_NONE; a = (c)->s->alts[a].next)
#define EACH_ITEM(c, alt, i)                                                                       \
    for (uint32_t i = (c)->s->alts[alt].first; i != GW_NONE; i = (c)->s->items[i].next)

/* ---- reachable ------------------------------------------------------------------------------- */

static void reach(compiler *c) {
    c->queue[c->n_queue++] = c->root;
    c->reached[c->root] = 1;
    for (uint32_t at = 0; at < c->n_queue; at++) {
        EACH_ALT(c, c->queue[at], a) {
            EACH_ITEM(c, a, i) {
                const gw_source_item *x = &c->s->items[i];
                if (x->is_rule && x->max > 0 && !c->reached[x->arg]) {
                    c->reached[x->arg] = 1;
                    c->queue[c->n_queue++] = x->arg;
                }
            }
        }
    }
}

/* ---- properties that rules inherit ----------------------------------------------------------- */

/* Alternatives by the rules that they cannot do without: counted, then filled. */
static gw_status list_uses(compiler *c) {
    const gw_source *s = c->s;
    uint32_t total = 0;
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t q = 0; q < c->n_queue; q++) {
            EACH_ALT(c, c->queue[q], a) {
                EACH_ITEM(c, a, i) {
                    const gw_source_item *x = &s->items[i];
                    if (x->is_rule && x->min > 0) {
                        if (fill) {
                            c->uses[c->use_first[x->arg]++] = a;
                        } else {
                            c->use_first[x->arg + 1]++;
                            total++;
                        }
                    }
                }
            }
        }
        if (!fill) {
            c->uses = calloc((size_t)total + 1, sizeof *c->uses);
            if (c->uses == NULL) {
                return no_memory(c);
            }
            for (size_t r = 0; r < s->n_rules; r++) {
                c->use_first[r + 1] += c->use_first[r];
            }
        }
    }
    for (size_t r = s->n_rules; r > 0; r--) { /* filling moved each to the next one's place */
        c->use_first[r] = c->use_first[r - 1];
    }
    c->use_first[0] = 0;
    return GW_OK;
}

/* has[rule]: one of its alternatives consists of nothing but rules that have it, and of bytes if
 * those count (Dowling and Gallier 1984). stack [n_rules] is scratch. */
static void inherit(compiler *c, int bytes_have, uint8_t *has, uint32_t *stack) {
    const gw_source *s = c->s;
    uint32_t n = 0;
    for (uint32_t q = 0; q < c->n_queue; q++) {
        uint32_t rule = c->queue[q];
        EACH_ALT(c, rule, a) {
            c->missing[a] = 0;
            EACH_ITEM(c, a, i) {
                const gw_source_item *x = &s->items[i];
                if (x->min > 0 && c->missing[a] != GW_NONE && (x->is_rule || !bytes_have)) {
                    c->missing[a] = x->is_rule ? c->missing[a] + 1 : GW_NONE;
                }
            }
            if (c->missing[a] == 0 && !has[rule]) {
                has[rule] = 1;
                stack[n++] = rule;
            }
        }
    }
    while (n > 0) {
        uint32_t rule = stack[--n];
        for (uint32_t u = c->use_first[rule]; u < c->use_first[rule + 1]; u++) {
            uint32_t a = c->uses[u], of = s->alts[a].rule;
            if (c->missing[a] != GW_NONE && --c->missing[a] == 0 && !has[of]) {
                has[of] = 1;
                stack[n++] = of;
            }
        }
    }
}

/* Every rule that a text can get into has to have a way out. */
static gw_status check_ends(compiler *c) {
    uint8_t *ends = calloc(c->s->n_rules + 1, 1);
    uint32_t *stack = calloc(c->s->n_rules + 1, sizeof *stack);
    gw_status status = ends != NULL && stack != NULL ? GW_OK : no_memory(c);
    if (status == GW_OK) {
        inherit(c, 1, ends, stack);
    }
    for (uint32_t q = 0; q < c->n_queue && status == GW_OK; q++) {
        if (!ends[c->queue[q]]) {
            const gw_source_rule *r = blame(c, c->queue[q]);
            status = gw_fail(GW_E_METADATA, c->s->where,
                             "no text can end rule '%.*s': it needs itself again and again",
                             shown(r), r->name);
        }
    }
    if (status == GW_OK) {
        inherit(c, 0, c->p->nullable, stack);
    }
    free(ends);
    free(stack);
    return status;
}

/* ---- the order of left calls ----------------------------------------------------------------- */

typedef struct cursor { /* a rule and how far its left calls have been followed */
    uint32_t rule, alt, item;
} cursor;

/* The next rule that `rule` may begin with. */
static int next_left(const compiler *c, cursor *at, uint32_t *rule) {
    const gw_source *s = c->s;
    while (at->alt != GW_NONE) {
        while (at->item != GW_NONE) {
            const gw_source_item *x = &s->items[at->item];
            int goes_on = x->min == 0 || x->max == 0 || (x->is_rule && c->p->nullable[x->arg]);
            at->item = goes_on ? x->next : GW_NONE;
            if (x->is_rule && x->max > 0) {
                *rule = x->arg;
                return 1;
            }
        }
        at->alt = s->alts[at->alt].next;
        at->item = at->alt != GW_NONE ? s->alts[at->alt].first : GW_NONE;
    }
    return 0;
}

static cursor cursor_of(const compiler *c, uint32_t rule) {
    uint32_t alt = c->s->rules[rule].first;
    return (cursor){rule, alt, alt != GW_NONE ? c->s->alts[alt].first : GW_NONE};
}

/* Depth first from every rule; a rule that is met inside itself is left-recursive. Leaving order,
 * reversed, puts every rule behind those that may begin with it. */
static gw_status order_rules(compiler *c) {
    enum { NEW, OPEN, DONE };
    uint8_t *color = calloc(c->s->n_rules + 1, 1);
    cursor *stack = calloc((size_t)c->n_queue + 1, sizeof *stack);
    gw_status status = color != NULL && stack != NULL ? GW_OK : no_memory(c);
    uint32_t left = c->n_queue;
    for (uint32_t q = 0; q < c->n_queue && status == GW_OK; q++) {
        uint32_t n = 0, rule = c->queue[q];
        if (color[rule] == NEW) {
            color[rule] = OPEN;
            stack[n++] = cursor_of(c, rule);
        }
        while (n > 0 && status == GW_OK) {
            if (!next_left(c, &stack[n - 1], &rule)) {
                rule = stack[--n].rule;
                color[rule] = DONE;
                c->p->rank[rule] = --left;
                c->p->by_rank[left] = rule;
            } else if (color[rule] == NEW) {
                color[rule] = OPEN;
                stack[n++] = cursor_of(c, rule);
            } else if (color[rule] == OPEN) {
                const gw_source_rule *r = blame(c, rule);
                status = gw_fail(GW_E_METADATA, c->s->where,
                                 "rule '%.*s' is left-recursive: it may begin with itself before a "
                                 "single character; write a repetition instead",
                                 shown(r), r->name);
            }
        }
    }
    free(color);
    free(stack);
    return status;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static gw_status emit(compiler *c, uint32_t op, uint32_t arg) {
    gw_program *p = c->p;
    if (p->n_steps == GW_GRAMMAR_OPS_MAX) {
        return gw_fail(GW_E_LIMIT, c->s->where,
                       "too large: more than %d steps when repetitions are written out",
                       GW_GRAMMAR_OPS_MAX);
    }
    void *steps = p->steps;
    gw_status status =
        gw_array_reserve(&steps, &c->capacity, (size_t)p->n_steps + 1, sizeof *p->steps);
    p->steps = steps;
    GW_TRY(status);
    p->steps[p->n_steps++] = (gw_grammar_step){op, arg};
    return GW_OK;
}

static gw_status emit_once(compiler *c, const gw_source_item *x) {
    return emit(c, x->is_rule ? GW_GRAMMAR_CALL : GW_GRAMMAR_BYTE, x->arg);
}

static gw_status emit_item(compiler *c, const gw_source_item *x) {
    for (uint32_t i = 0; i < x->min; i++) {
        GW_TRY(emit_once(c, x));
    }
    uint32_t begin = c->p->n_steps;
    if (x->max == GW_NONE) {
        GW_TRY(emit(c, GW_GRAMMAR_SPLIT, begin + 3));
        GW_TRY(emit_once(c, x));
        return emit(c, GW_GRAMMAR_JUMP, begin);
    }
    uint32_t end = begin + 2 * (x->max - x->min);
    for (uint32_t i = x->min; i < x->max; i++) {
        GW_TRY(emit(c, GW_GRAMMAR_SPLIT, end));
        GW_TRY(emit_once(c, x));
    }
    return GW_OK;
}

static gw_status emit_rule(compiler *c, uint32_t rule) {
    c->p->start[rule] = c->p->n_steps;
    EACH_ALT(c, rule, a) {
        int more = c->s->alts[a].next != GW_NONE;
        uint32_t split = c->p->n_steps;
        if (more) {
            GW_TRY(emit(c, GW_GRAMMAR_SPLIT, 0));
        }
        EACH_ITEM(c, a, i) { GW_TRY(emit_item(c, &c->s->items[i])); }
        GW_TRY(emit(c, GW_GRAMMAR_RETURN, 0));
        if (more) {
            c->p->steps[split].arg = c->p->n_steps;
        }
    }
    return GW_OK;
}

/* Refine one class after the other by the sets that ops use. */
static void divide_bytes(gw_program *p) {
    p->n_classes = 1;
    for (uint32_t i = 0; i < p->n_sets && p->n_classes < 256; i++) {
        uint16_t into[256]; /* class of the members of an old one; 256: none yet */
        uint32_t n = p->n_classes;
        uint8_t outside[256] = {0};
        for (unsigned b = 0; b < 256; b++) {
            outside[p->class_of[b]] |= !gw_byte_set_has(&p->sets[i], b);
        }
        for (unsigned k = 0; k < 256; k++) {
            into[k] = 256;
        }
        for (unsigned b = 0; b < 256; b++) {
            uint8_t old = p->class_of[b];
            if (!gw_byte_set_has(&p->sets[i], b) || !outside[old]) {
                continue; /* all of it, or none: the class stays */
            }
            if (into[old] == 256) {
                into[old] = (uint16_t)n++;
            }
            p->class_of[b] = (uint8_t)into[old];
        }
        p->n_classes = n;
    }
    for (unsigned b = 256; b-- > 0;) {
        p->sample[p->class_of[b]] = (uint8_t)b;
    }
}

static gw_status emit_all(compiler *c) {
    gw_program *p = c->p;
    const gw_source *s = c->s;
    GW_TRY(emit(c, GW_GRAMMAR_END, 0));
    for (uint32_t q = 0; q < c->n_queue; q++) {
        GW_TRY(emit_rule(c, c->queue[q]));
    }
    p->sets = calloc(s->n_sets + 1, sizeof *p->sets);
    if (p->sets == NULL) {
        return no_memory(c);
    }
    if (s->n_sets > 0) {
        memcpy(p->sets, s->sets, s->n_sets * sizeof *p->sets);
    }
    p->n_sets = (uint32_t)s->n_sets;
    divide_bytes(p);
    return GW_OK;
}

/* ---- how far an end is ----------------------------------------------------------------------- */

static uint32_t sum(uint32_t a, uint32_t b) {
    return a + b < GW_GRAMMAR_FAR ? a + b : GW_GRAMMAR_FAR; /* neither is more */
}

static uint32_t least_of(const gw_program *p, uint32_t at) {
    const gw_grammar_step *step = &p->steps[at];
    switch ((gw_grammar_op)step->op) {
    case GW_GRAMMAR_BYTE:
        return sum(p->least[at + 1], 1);
    case GW_GRAMMAR_CALL:
        return sum(p->least[at + 1], p->least[p->start[step->arg]]);
    case GW_GRAMMAR_SPLIT:
        return p->least[at + 1] < p->least[step->arg] ? p->least[at + 1] : p->least[step->arg];
    case GW_GRAMMAR_JUMP:
        return p->least[step->arg];
    case GW_GRAMMAR_END:
    case GW_GRAMMAR_RETURN:
        break;
    }
    return 0;
}

/* From "nobody knows" down, until nothing changes: what a way to the end was found for is right at
 * any time, so a program that takes longer than this stays less exact and no worse. */
static gw_status measure(compiler *c) {
    enum { ROUNDS = 200 };
    gw_program *p = c->p;
    p->least = malloc((p->n_steps + 1) * sizeof *p->least);
    if (p->least == NULL) {
        return no_memory(c);
    }
    for (uint32_t i = 0; i <= p->n_steps; i++) {
        p->least[i] = GW_GRAMMAR_FAR;
    }
    for (int round = 0, changed = 1; changed && round < ROUNDS; round++) {
        changed = 0;
        for (uint32_t i = p->n_steps; i-- > 0;) {
            uint32_t least = least_of(p, i);
            changed |= least < p->least[i];
            p->least[i] = least < p->least[i] ? least : p->least[i];
        }
    }
    return GW_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gw_status open_compiler(compiler *c) {
    size_t rules = c->s->n_rules + 1;
    c->p = calloc(1, sizeof *c->p);
    c->reached = calloc(rules, 1);
    c->queue = calloc(rules, sizeof *c->queue);
    c->use_first = calloc(rules + 1, sizeof *c->use_first);
    c->missing = calloc(c->s->n_alts + 1, sizeof *c->missing);
    if (c->p == NULL || c->reached == NULL || c->queue == NULL || c->use_first == NULL ||
        c->missing == NULL) {
        return no_memory(c);
    }
    gw_program *p = c->p;
    p->n_rules = (uint32_t)c->s->n_rules;
    p->root = c->root;
    p->start = calloc(rules, sizeof *p->start);
    p->nullable = calloc(rules, 1);
    p->rank = calloc(rules, sizeof *p->rank);
    p->by_rank = calloc(rules, sizeof *p->by_rank);
    return p->start != NULL && p->nullable != NULL && p->rank != NULL && p->by_rank != NULL
               ? GW_OK
               : no_memory(c);
}

static void close_compiler(compiler *c) {
    gw_program_free(c->p);
    free(c->reached);
    free(c->queue);
    free(c->use_first);
    free(c->uses);
    free(c->missing);
}

/* Optional items that no text can end are never there; alternatives with others go. */
static void drop_endless(compiler *c, const uint8_t *ends) {
    gw_source *s = c->s;
    for (uint32_t q = 0; q < c->n_queue; q++) {
        gw_source_rule *rule = &s->rules[c->queue[q]];
        uint32_t a = rule->first, kept = GW_NONE;
        rule->first = GW_NONE;
        for (; a != GW_NONE; a = s->alts[a].next) {
            int goes = 0;
            EACH_ITEM(c, a, i) {
                gw_source_item *x = &s->items[i];
                int endless = x->is_rule && !ends[x->arg];
                goes |= endless && x->min > 0;
                x->max = endless && x->min == 0 ? 0 : x->max;
            }
            if (!goes && kept == GW_NONE) {
                rule->first = kept = a;
            } else if (!goes) {
                s->alts[kept].next = a;
                kept = a;
            }
        }
        if (kept != GW_NONE) {
            s->alts[kept].next = GW_NONE;
        }
        rule->last = kept;
    }
}

gw_status gw_source_prune(gw_source *s, uint32_t root, int *whole) {
    compiler c = {.s = s, .root = root};
    uint8_t *ends = calloc(s->n_rules + 1, 1);
    uint32_t *stack = calloc(s->n_rules + 1, sizeof *stack);
    gw_status status = ends != NULL && stack != NULL ? GW_OK : no_memory(&c);
    GW_TRY_DONE(status);
    GW_TRY_DONE(open_compiler(&c));
    reach(&c);
    GW_TRY_DONE(list_uses(&c));
    inherit(&c, 1, ends, stack);
    *whole = ends[root];
    if (*whole) {
        drop_endless(&c, ends);
    }
done:
    close_compiler(&c);
    free(ends);
    free(stack);
    return status;
}

gw_status gw_source_compile(gw_source *s, uint32_t root, gw_program **out) {
    compiler c = {.s = s, .root = root};
    gw_status status;
    GW_TRY(gw_source_shorten(s));
    GW_TRY_DONE(open_compiler(&c));
    reach(&c);
    GW_TRY_DONE(list_uses(&c));
    GW_TRY_DONE(check_ends(&c));
    GW_TRY_DONE(order_rules(&c));
    GW_TRY_DONE(emit_all(&c));
    GW_TRY_DONE(measure(&c));
    *out = c.p;
    c.p = NULL;
done:
    close_compiler(&c);
    return status;
}

void gw_program_free(gw_program *p) {
    if (p != NULL) {
        free(p->steps);
        free(p->sets);
        free(p->start);
        free(p->nullable);
        free(p->rank);
        free(p->by_rank);
        free(p->least);
        free(p);
    }
}
