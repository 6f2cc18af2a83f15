/* core/text/answer/answer_relax.c - schemas of tools that are too large together; see answer.h.
 * What is let go of allows more, never less: nothing inside of `not` or a condition is touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/answer/answer.h"

/* In steps of a program, of which GW_GRAMMAR_OPS_MAX may be had. */
enum {
    FIT_STEPS = GW_GRAMMAR_OPS_MAX / 8 * 5,
    VALUE_STEPS = 24,  /* of any value */
    MEMBER_STEPS = 40, /* of a member with its name */
    CHAR_STEPS = 3,    /* of each character that a length counts */
    DEEP = 512         /* schemas inside each other; what is deeper is not looked at */
};

/* The lengths and counts that are kept at each level. */
static const double caps[GW_RELAX_MAX + 1] = {1e18, 4096, 1024, 256, 64, 16, 4, 0, 0};

static const char *const maps[] = {"properties", "patternProperties", "$defs", "definitions",
                                   "dependentSchemas"};
static const char *const lists[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
static const char *const singles[] = {"items", "additionalProperties", "additionalItems",
                                      "unevaluatedItems", "unevaluatedProperties"};
static const char *const counts[] = {"maxLength",   "minLength",     "maxItems",
                                     "minItems",    "maxProperties", "minProperties",
                                     "maxContains", "minContains"};
enum {
    MAPS = sizeof maps / sizeof maps[0],
    LISTS = sizeof lists / sizeof lists[0],
    SINGLES = sizeof singles / sizeof singles[0],
    COUNTS = sizeof counts / sizeof counts[0]
};

/* ---- the estimate ---------------------------------------------------------------------------- */

static double kept(const json_t *schema, const char *name, int level) {
    const json_t *value = json_object_get(schema, name);
    double x = json_is_number(value) ? json_number_value(value) : 0;
    return x > 0 && x <= caps[level] ? x : 0;
}

static double most(double a, double b) { return a > b ? a : b; }

/* {m,n} of a pattern are written out. */
static double pattern_steps(const char *pattern) {
    double steps = 8.0 * (double)strlen(pattern);
    for (const char *at = pattern; (at = strchr(at, '{')) != NULL; at++) {
        const char *comma = at + 1 + strspn(at + 1, "0123456789");
        double m = strtod(at + 1, NULL), n = *comma == ',' ? strtod(comma + 1, NULL) : m;
        steps += CHAR_STEPS * (m > n ? m : n) * (at > pattern && at[-1] == ')' ? 8 : 1);
    }
    return steps;
}

static double text_steps(const json_t *schema, int level) {
    const char *pattern = json_string_value(json_object_get(schema, "pattern"));
    double length = most(kept(schema, "maxLength", level), kept(schema, "minLength", level));
    if (pattern == NULL || level >= GW_RELAX_MAX - 1) {
        return CHAR_STEPS * length;
    }
    double own = pattern_steps(pattern);
    return own + length * (own < 512 ? own / 8 + CHAR_STEPS : 64);
}

static double value_steps(const json_t *schema, int level, int depth);

static double all_steps(const json_t *list, int level, int depth) {
    const json_t *one;
    size_t i;
    double sum = 0;
    json_array_foreach(list, i, one) { sum += value_steps(one, level, depth); }
    return sum;
}

static double member_steps(const json_t *map, int level, int depth) {
    const char *name;
    json_t *one;
    double sum = 0;
    json_object_foreach((json_t *)(uintptr_t)map, name, one) {
        sum += MEMBER_STEPS + 2.0 * (double)strlen(name) + value_steps(one, level, depth);
    }
    return sum;
}

static double listed_steps(const json_t *list) {
    const json_t *one;
    size_t i;
    double sum = 0;
    json_array_foreach(list, i, one) { sum += 6 + 2.0 * (double)json_string_length(one); }
    return sum;
}

static double value_steps(const json_t *schema, int level, int depth) {
    if (!json_is_object(schema) || depth == DEEP) {
        return VALUE_STEPS;
    }
    double sum =
        VALUE_STEPS + text_steps(schema, level) + listed_steps(json_object_get(schema, "enum"));
    for (size_t i = 0; i < MAPS; i++) {
        sum += member_steps(json_object_get(schema, maps[i]), level, depth + 1);
    }
    for (size_t i = 0; i < LISTS; i++) {
        sum += all_steps(json_object_get(schema, lists[i]), level, depth + 1);
    }
    for (size_t i = 0; i < SINGLES; i++) {
        const json_t *one = json_object_get(schema, singles[i]);
        sum += json_is_array(one)    ? all_steps(one, level, depth + 1)
               : json_is_object(one) ? value_steps(one, level, depth + 1)
                                     : 0;
    }
    double items = most(kept(schema, "maxItems", level), kept(schema, "minItems", level));
    return sum + CHAR_STEPS * items;
}

int gw_tools_fit(const gw_tools *tools) {
    int level = 0;
    for (; level < GW_RELAX_MAX; level++) {
        double sum = 0;
        for (size_t i = 0; i < tools->n; i++) {
            sum += MEMBER_STEPS + value_steps(tools->at[i].parameters, level, 0);
        }
        if (sum <= FIT_STEPS) {
            break;
        }
    }
    return level;
}

/* ---- letting go ------------------------------------------------------------------------------ */

typedef struct relaxing {
    int level, changed;
} relaxing;

static json_t *relaxed(const json_t *schema, relaxing *r, int depth);

static json_t *relaxed_all(const json_t *given, relaxing *r, int depth) {
    json_t *copy = json_is_array(given) ? json_array() : json_object(), *one;
    const char *name;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)given, name, one) {
        json_object_set_new(copy, name, relaxed(one, r, depth));
    }
    json_array_foreach((json_t *)(uintptr_t)given, i, one) {
        json_array_append_new(copy, relaxed(one, r, depth));
    }
    return copy;
}

static void let_go(json_t *schema, relaxing *r) {
    for (size_t i = 0; i < COUNTS; i++) {
        const json_t *value = json_object_get(schema, counts[i]);
        if (json_is_number(value) && json_number_value(value) > caps[r->level]) {
            json_object_del(schema, counts[i]);
            r->changed = 1;
        }
    }
    if (r->level >= GW_RELAX_MAX - 1 && json_is_string(json_object_get(schema, "pattern"))) {
        json_object_del(schema, "pattern");
        r->changed = 1;
    }
}

static json_t *relaxed(const json_t *schema, relaxing *r, int depth) {
    if (!json_is_object(schema) || depth == DEEP) {
        return json_incref((json_t *)(uintptr_t)schema);
    }
    json_t *copy = json_copy((json_t *)(uintptr_t)schema);
    let_go(copy, r);
    for (size_t i = 0; i < MAPS; i++) {
        const json_t *map = json_object_get(schema, maps[i]);
        if (json_is_object(map)) {
            json_object_set_new(copy, maps[i], relaxed_all(map, r, depth + 1));
        }
    }
    for (size_t i = 0; i < LISTS; i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        if (json_is_array(list)) {
            json_object_set_new(copy, lists[i], relaxed_all(list, r, depth + 1));
        }
    }
    for (size_t i = 0; i < SINGLES; i++) {
        const json_t *one = json_object_get(schema, singles[i]);
        if (json_is_array(one) || json_is_object(one)) {
            json_object_set_new(copy, singles[i],
                                json_is_array(one) ? relaxed_all(one, r, depth + 1)
                                                   : relaxed(one, r, depth + 1));
        }
    }
    return copy;
}

static gw_status add_note(int level, gw_bytes *notes) {
    char line[200];
    const char *what = level == GW_RELAX_MAX       ? "nothing that is said of their arguments"
                       : level == GW_RELAX_MAX - 1 ? "no lengths, counts and patterns"
                                                   : "no lengths and counts above";
    int n = snprintf(line, sizeof line, "the tools are large together: %s", what);
    if (level < GW_RELAX_MAX - 1) {
        n += snprintf(line + n, sizeof line - (size_t)n, " %d", (int)caps[level]);
    }
    n += snprintf(line + n, sizeof line - (size_t)n, " of their schemas %s kept",
                  level == GW_RELAX_MAX ? "is" : "are");
    return gw_bytes_add(notes, line, (size_t)n + 1);
}

gw_status gw_tools_relax(const gw_tools *tools, int level, gw_tools *out, gw_bytes *notes) {
    gw_status status = GW_OK;
    if (level == 0) {
        return GW_OK;
    }
    gw_tools t = {.list = json_array(), .at = calloc(tools->n + 1, sizeof *t.at)};
    for (size_t i = 0; t.at != NULL && i < tools->n; i++) {
        relaxing r = {.level = level};
        json_t *parameters = level == GW_RELAX_MAX || tools->at[i].parameters == NULL
                                 ? NULL
                                 : relaxed(tools->at[i].parameters, &r, 0);
        t.at[t.n++] = (gw_tool){.name = tools->at[i].name, .parameters = parameters};
        if (parameters != NULL && json_array_append_new(t.list, parameters) != 0) {
            status = gw_fail(GW_E_NOMEM, "tools", "no memory");
        }
    }
    status = t.at == NULL || t.list == NULL ? gw_fail(GW_E_NOMEM, "tools", "no memory") : status;
    status = status == GW_OK ? add_note(level, notes) : status;
    if (status != GW_OK) {
        gw_tools_free(&t);
        return status;
    }
    *out = t;
    return GW_OK;
}
