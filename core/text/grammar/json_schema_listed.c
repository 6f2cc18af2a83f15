/* core/text/grammar/json_schema_listed.c - "enum" and "const": which of their values are valid, and
 * the values as rules; see json_schema_parts.h.
 *
 * The cost is linear in the list: conditions that stand next to it are read once, values that are
 * ruled out are looked up by hash, and many values become a tree of their texts, so that the
 * matcher looks at one branch for a byte and not at every value.
 */
#include <stdio.h>

#include "core/base/utf8.h"
#include "core/text/grammar/json_schema_parts.h"

#define PUT(...) GW_TRY(gw_schema_put(&w->out, __VA_ARGS__))

enum { TREE_MIN = 32 }; /* fewer values are alternatives of one rule */

/* ---- which ones fit -------------------------------------------------------------------------- */

gw_status gw_schema_judge_open(gw_schema_work *w, json_t *flat, const char *where,
                               gw_schema_judge *j) {
    const json_t *x;
    *j = (gw_schema_judge){.w = w, .p = {flat, where}, .types = ~0u};
    GW_TRY(gw_schema_spoken(&j->p, &j->spoken));
    if (json_object_get(flat, "type") != NULL) {
        GW_TRY(gw_schema_get_types(w, &j->p, 0, &j->types));
    }
    j->only = json_object_get(flat, "const");
    GW_TRY(gw_schema_set_open(w, &j->excluded));
    for (size_t i = 0; (x = gw_schema_excluded(&j->p, i)) != NULL; i++) {
        int is_new;
        GW_TRY(gw_schema_set_add(&j->excluded, x, &is_new));
    }
    return GW_OK;
}

void gw_schema_judge_close(gw_schema_judge *j) { gw_schema_set_close(&j->excluded); }

static gw_status read_strings(gw_schema_judge *j) {
    if (j->has_strings) {
        return GW_OK;
    }
    j->strings = gw_arena_alloc(j->w->arena, sizeof *j->strings);
    if (j->strings == NULL) {
        return gw_schema_no_memory();
    }
    gw_status status = gw_schema_read_strings(j->w, &j->p, j->strings);
    j->no_strings = status == GW_E_METADATA && j->w->contradicted;
    j->has_strings = 1;
    if (j->no_strings) {
        j->w->contradicted = 0;
        return GW_OK;
    }
    return status;
}

static gw_status judge_string(gw_schema_judge *j, const json_t *value, int *is) {
    GW_TRY(read_strings(j));
    const gw_schema_strings *s = j->strings;
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    if (j->no_strings) {
        *is = 0;
    } else if (s->limited) {
        *is = gw_dfa_accepts(&s->dfa, text, n);
    } else if (s->low > 0 || s->high >= 0) {
        int64_t count = (int64_t)gw_utf8_count(text, n);
        *is = count >= s->low && (s->high < 0 || count <= s->high);
    }
    return GW_OK;
}

static gw_status judge_number(gw_schema_judge *j, const json_t *value, int *is) {
    static const struct {
        const char *key;
        int below, above, equal;
    } bounds[] = {{"minimum", 0, 1, 1},
                  {"maximum", 1, 0, 1},
                  {"exclusiveMinimum", 0, 1, 0},
                  {"exclusiveMaximum", 1, 0, 0}};
    for (size_t i = 0; i < 4; i++) {
        const json_t *x = json_object_get(j->p.schema, bounds[i].key);
        int c = json_is_number(x) ? gw_schema_compare(j->w, value, x) : 0;
        *is &= !json_is_number(x) || (c < 0   ? bounds[i].below
                                      : c > 0 ? bounds[i].above
                                              : bounds[i].equal);
    }
    for (size_t i = 0; i < 2 && *is; i++) { /* true: the bound itself is out (draft 4) */
        const json_t *out = json_object_get(j->p.schema, bounds[i + 2].key);
        const json_t *x = json_object_get(j->p.schema, bounds[i].key);
        *is = !json_is_true(out) || !json_is_number(x) || gw_schema_compare(j->w, value, x) != 0;
    }
    return *is ? gw_schema_judge_multiple(j->w, &j->p, value, is) : GW_OK;
}

gw_status gw_schema_judge_value(gw_schema_judge *j, const json_t *value, int *is) {
    unsigned of = gw_schema_type_of(j->w, value);
    *is = (of & j->types) != 0 && (j->only == NULL || gw_schema_equal(j->w, j->only, value));
    if (*is && (of & j->spoken & (1u << GW_OBJECT | 1u << GW_ARRAY)) != 0) {
        return gw_fail(GW_E_UNSUPPORTED, GW_SCHEMA,
                       "at %s: \"%s\" together with other conditions on the values is not "
                       "supported",
                       j->p.where, j->only != NULL ? "const" : "enum");
    }
    if (*is && gw_map_count(j->excluded.map) > 0) {
        GW_TRY(gw_schema_set_has(&j->excluded, value, is));
        *is = !*is;
    }
    if (*is && json_is_string(value)) {
        return judge_string(j, value, is);
    }
    return *is && json_is_number(value) ? judge_number(j, value, is) : GW_OK;
}

/* ---- texts of many values as a tree ---------------------------------------------------------- */

typedef struct listed_text {
    const char *text;
    size_t n;
} listed_text;

typedef struct tree {
    gw_schema_work *w;
    size_t rule, n_nodes;
    listed_text *texts; /* sorted, each once */
} tree;

typedef struct tree_node { /* texts [first, end) agree in their first `depth` bytes */
    size_t first, end, depth;
} tree_node;

static int by_text(const void *a, const void *b) {
    const listed_text *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int c = n > 0 ? memcmp(x->text, y->text, n) : 0;
    return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
}

/* How far the first and the last of sorted texts agree, and so all of them; never within a
 * character. */
static size_t common(const listed_text *a, const listed_text *b, size_t from) {
    size_t n = a->n < b->n ? a->n : b->n, at = from;
    while (at < n && a->text[at] == b->text[at]) {
        at++;
    }
    while (at > from && ((at < a->n && ((unsigned char)a->text[at] & 0xC0) == 0x80) ||
                         (at < b->n && ((unsigned char)b->text[at] & 0xC0) == 0x80))) {
        at--;
    }
    return at;
}

/* Behind the character at `at`. */
static size_t next_character(const listed_text *t, size_t at) {
    do {
        at++;
    } while (at < t->n && ((unsigned char)t->text[at] & 0xC0) == 0x80);
    return at;
}

/* The rule of node k: an alternative for each character that goes on. */
static gw_status put_node(tree *t, const tree_node *node, size_t k, tree_node *more, size_t *n) {
    gw_schema_work *w = t->w;
    const char *bar = "";
    size_t i = node->first;
    PUT("s%zu-e%zu ::= ", t->rule, k);
    if (t->texts[i].n == node->depth) {
        PUT("\"\"");
        bar = " | ";
        i++;
    }
    while (i < node->end) {
        const listed_text *x = &t->texts[i];
        size_t after = next_character(x, node->depth), end = i + 1;
        while (end < node->end && t->texts[end].n >= after &&
               memcmp(x->text, t->texts[end].text, after) == 0) {
            end++;
        }
        size_t depth = end > i + 1 ? common(x, &t->texts[end - 1], after) : x->n;
        PUT("%s", bar);
        GW_TRY(gw_schema_put_literal(&w->out, x->text + node->depth, depth - node->depth));
        if (end > i + 1) {
            PUT(" s%zu-e%zu", t->rule, t->n_nodes);
            more[(*n)++] = (tree_node){i, end, depth};
            t->n_nodes++;
        }
        bar = " | ";
        i = end;
    }
    PUT("\n");
    return GW_OK;
}

static gw_status put_tree(tree *t, size_t n) {
    size_t unique = 0, filled = 1;
    qsort(t->texts, n, sizeof *t->texts, by_text);
    for (size_t i = 0; i < n; i++) {
        if (unique == 0 || by_text(&t->texts[unique - 1], &t->texts[i]) != 0) {
            t->texts[unique++] = t->texts[i];
        }
    }
    /* a node has two texts at least that part there, so there are fewer nodes than texts */
    tree_node *nodes = malloc((unique + 1) * sizeof *nodes);
    if (nodes == NULL) {
        return gw_schema_no_memory();
    }
    nodes[0] = (tree_node){0, unique, 0};
    t->n_nodes = 1;
    gw_status status = GW_OK;
    for (size_t k = 0; k < filled && status == GW_OK; k++) {
        status = put_node(t, &nodes[k], k, nodes, &filled);
    }
    free(nodes);
    return status == GW_OK ? gw_schema_put(&t->w->out, "s%zu ::= s%zu-e0\n", t->rule, t->rule)
                           : status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static gw_status put_alternatives(gw_schema_work *w, const json_t *const *values, size_t n,
                                  size_t rule) {
    PUT("s%zu ::= ", rule);
    for (size_t i = 0; i < n; i++) {
        PUT("%s", i > 0 ? " | " : "");
        GW_TRY(gw_schema_put_value(w, values[i]));
    }
    PUT("\n");
    return GW_OK;
}

gw_status gw_schema_put_texts(gw_schema_work *w, size_t rule, const gw_bytes *all,
                              const size_t *ends, size_t n) {
    tree t = {.w = w, .rule = rule, .texts = malloc((n + 1) * sizeof *t.texts)};
    if (t.texts == NULL) {
        return gw_schema_no_memory();
    }
    for (size_t i = 0; i < n; i++) {
        size_t from = i > 0 ? ends[i - 1] : 0;
        t.texts[i] = (listed_text){all->data + from, ends[i] - from};
    }
    gw_status status = put_tree(&t, n);
    free(t.texts);
    return status;
}

static gw_status put_many(gw_schema_work *w, const json_t *const *values, size_t n, size_t rule) {
    gw_bytes all = {0};
    size_t *ends = malloc((2 * n + 1) * sizeof *ends), some = 0;
    gw_status status = ends != NULL ? GW_OK : gw_schema_no_memory();
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_schema_write_value(w, values[i], &all, ends, &some);
    }
    status = status == GW_OK ? gw_schema_put_texts(w, rule, &all, ends, some) : status;
    free(ends);
    free(all.data);
    return status;
}

static gw_status pick(gw_schema_judge *j, const json_t *list, const json_t **values, size_t *n) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        int is = 0;
        GW_TRY(gw_schema_judge_value(j, value, &is));
        if (is) {
            values[(*n)++] = value;
        }
    }
    return GW_OK;
}

gw_status gw_schema_put_listed(gw_schema_work *w, const gw_schema_part *p, size_t rule) {
    json_t *only = json_object_get(p->schema, "const"), *list = json_object_get(p->schema, "enum");
    gw_schema_judge j = {0};
    const json_t **values = NULL;
    size_t n = 0;
    gw_status status;
    if (list != NULL && !json_is_array(list)) {
        return gw_schema_wrong(p, "enum", "a list of values");
    }
    json_t *all = list != NULL ? json_incref(list) : json_pack("[O]", only);
    values = malloc((json_array_size(all) + 1) * sizeof *values);
    if (all == NULL || values == NULL) {
        GW_TRY_DONE(gw_schema_no_memory());
    }
    GW_TRY_DONE(gw_schema_judge_open(w, p->schema, p->where, &j));
    GW_TRY_DONE(pick(&j, all, values, &n));
    if (n == 0) {
        status = gw_schema_contradiction(w, p->where, "the list has no value of its type");
    } else if (n < TREE_MIN || gw_schema_quotes_are_tokens(w)) {
        status = put_alternatives(w, values, n, rule);
    } else {
        status = put_many(w, values, n, rule);
    }
done:
    gw_schema_judge_close(&j);
    free(values);
    json_decref(all);
    return status;
}
