/* core/text/grammar/json_schema_one.c - oneOf: no value may be of two branches; see
 * json_schema_parts.h.
 *
 * Where types, values or a member do not tell two branches apart, one has what is not of the other:
 * a choice of one thing that the other requires and that does not hold. Choices that contradict the
 * branch are left out at once, and of many some are enough: what is written is valid all the same.
 */
#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

enum { ONE_OF_MAX = 256, CHOICES_MANY = 24, CHOICES_FEW = 4, BRANCHES_FEW = 8 };

typedef struct parting {
    gw_schema_work *w;
    const gw_schema_part *p;
    json_t *list;  /* oneOf */
    json_t **flat; /* [n]; NULL: a branch without values */
    size_t n, most;
    int cut; /* choices were left out */
} parting;

static gw_status note_drop(gw_schema_work *w, const gw_schema_part *p, size_t i, size_t k) {
    char text[300];
    if (w->dropped == NULL) {
        snprintf(text, sizeof text,
                 "at %.150s: \"oneOf\": a value may be of both %zu and %zu; \"anyOf\" allows "
                 "that, a \"const\" member tells them apart",
                 p->where, k < i ? k : i, k < i ? i : k);
        w->dropped = gw_arena_copy(w->arena, text, strlen(text));
    }
    return w->dropped != NULL ? GW_OK : gw_schema_no_memory();
}

/* Is a member needed that must not be there? */
static int is_empty(const json_t *flat) {
    const json_t *properties = json_object_get(flat, "properties");
    const json_t *closed = json_object_get(flat, "additionalProperties");
    int open = !json_is_false(closed) || json_object_get(flat, "patternProperties") != NULL;
    json_t *name, *all, *x;
    size_t i, k;
    json_array_foreach(json_object_get(flat, "required"), i, name) {
        const char *text = json_string_value(name);
        const json_t *schema = text != NULL ? json_object_get(properties, text) : NULL;
        if (json_is_false(schema) || (schema == NULL && text != NULL && !open)) {
            return 1;
        }
        all = json_object_get(schema, "allOf");
        json_array_foreach(all, k, x) {
            if (json_is_false(x)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Both at once, flat; *out NULL: no value is of both. */
static gw_status meet(parting *t, json_t *choice, json_t *opposite, const char *where,
                      json_t **out) {
    gw_schema_work *w = t->w;
    json_t *both = json_pack("{s:[O,O]}", "allOf", choice, opposite);
    *out = NULL;
    GW_TRY(gw_schema_keep(w, both));
    gw_schema_part p = {both, where};
    gw_status status = gw_schema_flatten(w, &p, out);
    if (status == GW_E_METADATA && w->contradicted) {
        w->contradicted = 0;
        return GW_OK;
    }
    if (status == GW_E_UNSUPPORTED) { /* this one is not; others may be */
        t->cut = 1;
        return GW_OK;
    }
    GW_TRY(status);
    GW_TRY(gw_schema_keep(w, *out));
    *out = is_empty(*out) ? NULL : *out;
    return GW_OK;
}

/* Does it require no more than a type, values or bounds? */
static int is_shallow(const json_t *schema) {
    static const char *const deep[] = {"properties", "items", "contains",    "allOf", "anyOf",
                                       "oneOf",      "not",   "prefixItems", "$ref",  "if"};
    for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++) {
        if (json_object_get(schema, deep[i]) != NULL) {
            return 0;
        }
    }
    return 1;
}

/* A member less is the plainest way not to be of a schema (0), then another type, value, length or
 * member (1); what goes deeper (2) is tried where nothing else is left. */
static int rank(const json_t *opposite) {
    json_t *properties = json_object_get(opposite, "properties"), *x;
    const char *name;
    int shallow = 1;
    if (properties == NULL) {
        const json_t *not = json_object_get(opposite, "not");
        return is_shallow(opposite) || (not != NULL && is_shallow(not )) ? 1 : 2;
    }
    json_object_foreach(properties, name, x) {
        shallow &= is_shallow(x) || is_shallow(json_object_get(x, "not"));
    }
    return json_object_get(opposite, "required") == NULL ? 0 : shallow ? 1 : 2;
}

/* One choice with every opposite of a rank that it can have. */
static gw_status spread_one(parting *t, json_t *choice, const json_t *opposites, int of,
                            const char *where, json_t *next, size_t before) {
    json_t *opposite, *both = NULL;
    size_t k;
    json_array_foreach((json_t *)(uintptr_t)opposites, k, opposite) {
        if (rank(opposite) != of) {
            continue;
        }
        if (json_array_size(next) >= t->most && json_array_size(next) > before) {
            t->cut = 1;
            return GW_OK;
        }
        GW_TRY(meet(t, choice, opposite, where, &both));
        if (both != NULL && json_array_append(next, both) != 0) {
            return gw_schema_no_memory();
        }
    }
    return GW_OK;
}

/* The choices, each with the opposites of the plainest rank that it can have, at most t->most. */
static gw_status spread(parting *t, const json_t *opposites, const char *where, json_t **choices) {
    json_t *next = json_array(), *choice;
    size_t i;
    gw_status status = next != NULL ? GW_OK : gw_schema_no_memory();
    json_array_foreach(*choices, i, choice) {
        size_t before = json_array_size(next);
        if (before >= t->most) {
            t->cut = 1;
            break;
        }
        for (int r = 0; r < 3 && status == GW_OK && json_array_size(next) == before; r++) {
            status = spread_one(t, choice, opposites, r, where, next, before);
        }
    }
    json_decref(*choices);
    *choices = next;
    return status;
}

/* What branch i has that is not of branch k. */
static gw_status leave_out(parting *t, size_t i, size_t k, const char *where, json_t **choices) {
    gw_schema_part other = {json_array_get(t->list, k), where};
    json_t *opposite = NULL, *list;
    gw_status status = gw_schema_negate(t->w, &other, &opposite);
    if (status == GW_E_UNSUPPORTED) {
        json_array_clear(*choices);
        return note_drop(t->w, t->p, i, k);
    }
    GW_TRY(status);
    list = json_object_get(opposite, "anyOf");
    int several = json_is_array(list) && json_object_size(opposite) == 1;
    list = several ? json_incref(list) : json_pack("[O]", opposite);
    status = list != NULL ? spread(t, list, where, choices) : gw_schema_no_memory();
    json_decref(list);
    return status == GW_OK && t->cut && json_array_size(*choices) == 0 ? note_drop(t->w, t->p, i, k)
                                                                       : status;
}

static gw_status part_branch(parting *t, size_t i, size_t *rule) {
    gw_schema_work *w = t->w;
    const char *where = w->parts[*rule].where;
    json_t *choices = json_pack("[O]", t->flat[i]), *all;
    gw_status status = choices != NULL ? GW_OK : gw_schema_no_memory();
    int met = 0;
    t->cut = 0;
    for (size_t k = 0; k < t->n && status == GW_OK && json_array_size(choices) > 0; k++) {
        if (k != i && t->flat[k] != NULL && !gw_schema_apart(w, t->flat[i], t->flat[k])) {
            met = 1;
            status = leave_out(t, i, k, where, &choices);
        }
    }
    if (status == GW_OK && t->cut) { /* some that were left out may have a value */
        status = note_drop(w, t->p, i, i == 0 ? 1 : 0);
    }
    if (status != GW_OK || !met) {
        json_decref(choices);
        return status;
    }
    all = json_array_size(choices) > 0 ? json_pack("{s:o}", "anyOf", choices) : json_false();
    if (json_is_false(all)) {
        json_decref(choices);
    }
    GW_TRY(gw_schema_keep(w, all));
    return gw_schema_rule(w, all, where, rule);
}

gw_status gw_schema_part_branches(gw_schema_work *w, const gw_schema_part *p, size_t *rules,
                                  size_t n) {
    parting t = {.w = w,
                 .p = p,
                 .list = json_object_get(p->schema, "oneOf"),
                 .flat = gw_arena_array(w->arena, n + 1, sizeof(json_t *)),
                 .n = n,
                 .most = n > BRANCHES_FEW ? CHOICES_FEW : CHOICES_MANY};
    if (t.flat == NULL) {
        return gw_schema_no_memory();
    }
    if (n > ONE_OF_MAX) {
        return gw_fail(GW_E_LIMIT, GW_SCHEMA, "at %s: more than %d schemas in \"oneOf\"", p->where,
                       ONE_OF_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        gw_schema_part one = w->parts[rules[i]];
        gw_status status = gw_schema_flatten(w, &one, &t.flat[i]);
        if (status == GW_E_METADATA && w->contradicted) {
            w->contradicted = 0;
            continue; /* no value is of it */
        }
        GW_TRY(status);
        GW_TRY(gw_schema_keep(w, t.flat[i]));
    }
    for (size_t i = 0; i < n; i++) {
        GW_TRY(t.flat[i] != NULL ? part_branch(&t, i, &rules[i]) : GW_OK);
    }
    return GW_OK;
}
