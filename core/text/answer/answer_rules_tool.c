/* core/text/answer/answer_rules_tool.c - the rules of one tool: its calls, and its arguments by its
 * schema, in the notation of the form; see answer_rules.h. A schema that cannot be kept becomes any
 * value and a note. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/text/answer/answer_rules.h"
#include "core/text/grammar/json_schema.h"

enum { POINTER = 700 };

#define PUT(...) GW_TRY(gw_rules_put(w->out, __VA_ARGS__))

static gw_status add_note(gw_rules_work *w, const gw_tool *tool, const char *why) {
    char line[1200];
    int n = snprintf(line, sizeof line, "the schema of '%.60s' is not kept: %s", tool->name, why);
    size_t bytes = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
    return gw_bytes_add(w->notes, line, bytes + 1); /* each with its NUL */
}

static int is_fatal(gw_status status) { return status == GW_E_NOMEM; }

/* ---- schemas --------------------------------------------------------------------------------- */

/* Names as Gemma's templates sort them. */
static int by_name(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    int order = strcasecmp(x, y);
    return order != 0 ? order : strcmp(x, y);
}

/* A copy whose properties are in the order of their names; NULL: no memory. */
static json_t *in_order(const json_t *schema) {
    json_t *copy = json_is_array(schema) ? json_array() : json_object(), *value;
    size_t n = 0, i;
    const char *key, **names = calloc(json_object_size(schema) + 1, sizeof *names);
    if (copy == NULL || names == NULL) {
        free(names);
        json_decref(copy);
        return NULL;
    }
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) { names[n++] = key; }
    qsort(names, n, sizeof *names, by_name);
    for (i = 0; i < n; i++) {
        value = json_object_get(schema, names[i]);
        int deep = json_is_object(value) || json_is_array(value);
        json_object_set_new(copy, names[i], deep ? in_order(value) : json_incref(value));
    }
    json_array_foreach((json_t *)(uintptr_t)schema, i, value) {
        int deep = json_is_object(value) || json_is_array(value);
        json_array_append_new(copy, deep ? in_order(value) : json_incref(value));
    }
    free(names);
    return copy;
}

/* The parameters as text; an object in any case. */
static char *schema_text(const gw_tool *tool, int sorted) {
    if (tool->parameters == NULL) {
        return strdup("{\"type\":\"object\"}");
    }
    json_t *copy = sorted ? in_order(tool->parameters) : json_copy(tool->parameters);
    if (copy != NULL && json_object_get(copy, "type") == NULL &&
        json_object_get(copy, "$ref") == NULL) {
        json_object_set_new(copy, "type", json_string("object"));
    }
    /* numbers as people write them: 0.1, not 0.10000000000000001 */
    char *text = copy != NULL ? json_dumps(copy, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(copy);
    return text;
}

/* How values are written that are no text of their own: bits of gw_json_schema_rules. */
static int notation_of(const gw_rules_work *w) {
    static const char quote[] = "<|\"|>";
    if (gw_pattern_find(&w->call, GW_STEP_GEMMA) < w->call.n) {
        const gw_marks *marks = &w->r->marks;
        int token =
            marks->is_token != NULL && marks->is_token(marks->user, quote, sizeof quote - 1);
        return token ? GW_JSON_GEMMA_TOKEN : GW_JSON_GEMMA;
    }
    return gw_pattern_find(&w->call, GW_STEP_PYTHON) < w->call.n ||
                   (w->r->tools->flags & GW_TOOLS_PYTHON) != 0
               ? GW_JSON_PYTHON
               : 0;
}

/* Arguments as one object: rule "ti-a-root". */
static gw_status put_arguments(gw_rules_work *w, size_t i) {
    static const char any[] = "{\"type\":\"object\"}";
    const gw_tool *tool = &w->r->list->at[i];
    int how = notation_of(w), gemma = (how & (GW_JSON_GEMMA | GW_JSON_GEMMA_TOKEN)) != 0;
    char prefix[48], *text = schema_text(tool, gemma);
    if (text == NULL) {
        return gw_fail(GW_E_NOMEM, "tools", "no memory");
    }
    snprintf(prefix, sizeof prefix, "t%zu-a-", i);
    gw_program *program = NULL; /* alone, so that what is wrong with it is said of this tool */
    gw_status status = gw_json_schema_compile(text, strlen(text), &program);
    gw_program_free(program);
    if (status == GW_OK) {
        status = gw_json_schema_rules(text, strlen(text), "#", prefix, NULL, how, w->out, NULL);
    }
    if (status != GW_OK && !is_fatal(status)) {
        status = add_note(w, tool, gw_error_text());
        if (status == GW_OK) {
            status =
                gw_json_schema_rules(any, sizeof any - 1, "#", prefix, NULL, how, w->out, NULL);
        }
    }
    free(text);
    return status;
}

/* ---- parameters one by one ------------------------------------------------------------------- */

/* What the members of the arguments are: behind references of the whole. */
static const json_t *members_of(const gw_tool *tool, char pointer[POINTER]) {
    const json_t *schema = tool->parameters;
    snprintf(pointer, POINTER, "#");
    for (int i = 0; i < 8; i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        const json_t *at = tool->parameters;
        if (ref == NULL || json_object_get(schema, "properties") != NULL || ref[0] != '#' ||
            strlen(ref) > 200) {
            break;
        }
        for (const char *step = ref + 1; *step == '/' && at != NULL;) {
            char name[256];
            size_t n = strcspn(step + 1, "/");
            snprintf(name, sizeof name, "%.*s", (int)n, step + 1);
            at = json_object_get(at, name);
            step += n + 1;
        }
        schema = at;
        snprintf(pointer, POINTER, "%s", ref);
    }
    return schema;
}

/* The names that are required, as members of an object; NULL: no memory. */
static json_t *required_names(const json_t *schema) {
    json_t *names = json_object(), *item;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, item) {
        if (json_is_string(item)) {
            json_object_set_new(names, json_string_value(item), json_true());
        }
    }
    return names;
}

/* What is said of all arguments together cannot be kept where they are written one by one. */
static gw_status note_beyond(gw_rules_work *w, const gw_tool *tool, const json_t *schema) {
    static const char *const beyond[] = {"anyOf",
                                         "oneOf",
                                         "allOf",
                                         "not",
                                         "if",
                                         "patternProperties",
                                         "minProperties",
                                         "maxProperties",
                                         "propertyNames",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies"};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        if (json_object_get(schema, beyond[i]) != NULL) {
            char why[120];
            snprintf(why, sizeof why, "\"%s\" of all arguments together", beyond[i]);
            GW_TRY(add_note(w, tool, why));
        }
    }
    return GW_OK;
}

typedef struct property {
    const char *name;
    size_t i, k; /* of the tool, of the property */
    const char *schema;
    const char *pointer;
    int kinds;   /* GW_JSON_... */
    unsigned is; /* GW_IS_... */
} property;

/* Rules "ti-pk-text", "-other", "-root" of a value in the notation of the form. */
static gw_status put_property_rules(gw_rules_work *w, property *p, const char *raw_end, int how,
                                    const char *tag) {
    static const char any[] = "{}";
    char prefix[64];
    snprintf(prefix, sizeof prefix, "t%zu-%s%zu-", p->i, tag, p->k);
    gw_status status = GW_E_METADATA;
    how |= notation_of(w);
    if (p->schema != NULL) {
        status = gw_json_schema_rules(p->schema, strlen(p->schema), p->pointer, prefix, raw_end,
                                      how, w->out, &p->kinds);
        if (status == GW_OK || is_fatal(status)) {
            return status;
        }
        GW_TRY(add_note(w, &w->r->list->at[p->i], gw_error_text()));
    }
    return gw_json_schema_rules(any, sizeof any - 1, "#", prefix, raw_end, how, w->out, &p->kinds);
}

/* The text behind the value, without which the value is written. */
static void raw_end_of(const gw_rules_work *w, char end[GW_SYMBOLS_MAX]) {
    const gw_pattern *p = &w->param;
    size_t at = gw_pattern_find(p, GW_STEP_VALUE) + 1, n = 0;
    while (at < p->n && p->steps[at].kind == GW_STEP_SPACE) {
        at++;
    }
    for (size_t i = 0; at < p->n && i < p->steps[at].n; i++) {
        unsigned c = p->symbols[p->steps[at].at + i];
        if (c >= GW_SYMBOL_OPENS) {
            break; /* no text spells what follows */
        }
        end[n++] = (char)c;
    }
    if (at < p->n && n < p->steps[at].n && n > 0) { /* as much of it as is text is not enough */
        n = 0;
    }
    end[n] = '\0';
}

static const char *type_names(unsigned is, char out[120]) {
    static const char *const names[] = {"number", "boolean", "null", "object", "array"};
    static const unsigned bits[] = {GW_IS_INTEGER | GW_IS_NUMBER, GW_IS_BOOLEAN, GW_IS_NULL,
                                    GW_IS_OBJECT, GW_IS_LIST};
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < 5; i++) {
        if (is & bits[i]) {
            n += (size_t)snprintf(out + n, 120 - n, "%s\"%s\"", n > 0 ? " | " : "", names[i]);
        }
    }
    return out;
}

/* The steps of `param` from the key on, with a value of this kind. */
static gw_status put_param(gw_rules_work *w, const property *p, int kind, const char *value) {
    char types[120];
    for (size_t at = 0; at < w->param.n;) {
        size_t to;
        GW_TRY(gw_rules_put_marks(w->out, &w->param, at, &to));
        at = to;
        switch (at < w->param.n ? w->param.steps[at].kind : GW_STEP_SPACE) {
        case GW_STEP_KEY:
            GW_TRY(gw_rules_put_text(w->out, p->name, strlen(p->name)));
            break;
        case GW_STEP_IS_TEXT:
            PUT("\"%s\" ", kind == GW_JSON_TEXT ? "true" : "false");
            break;
        case GW_STEP_TYPE:
            PUT("( %s ) ", kind == GW_JSON_TEXT ? "\"string\"" : type_names(p->is, types));
            break;
        case GW_STEP_VALUE:
            PUT("%s ", value);
            break;
        default:
            break;
        }
        at++;
    }
    return GW_OK;
}

/* "ti-pk ::= ": the parameter as the form writes it. */
static gw_status put_property(gw_rules_work *w, property *p) {
    char end[GW_SYMBOLS_MAX], value[80];
    int told = gw_pattern_find(&w->param, GW_STEP_IS_TEXT) < w->param.n ||
                       gw_pattern_find(&w->param, GW_STEP_TYPE) < w->param.n
                   ? GW_JSON_TOLD
                   : 0;
    raw_end_of(w, end);
    if (w->r->tools->raw_end != NULL) { /* XML with CDATA */
        property more = *p;
        snprintf(end, sizeof end, "%s", w->r->tools->raw_end);
        GW_TRY(put_property_rules(w, p, end, told, "p"));
        GW_TRY(put_property_rules(w, &more, "]]>", told, "c"));
        PUT("t%zu-p%zu ::= ", p->i, p->k);
        snprintf(value, sizeof value,
                 more.kinds & GW_JSON_TEXT
                     ? "( t%zu-p%zu-root | \"<![CDATA[\" t%zu-c%zu-text \"]]>\" )"
                     : "t%zu-p%zu-root",
                 p->i, p->k, p->i, p->k);
        GW_TRY(put_param(w, p, 0, value));
        PUT("\n");
        return GW_OK;
    }
    GW_TRY(put_property_rules(w, p, end, told, "p"));
    PUT("t%zu-p%zu ::= ", p->i, p->k);
    if (!told) {
        snprintf(value, sizeof value, "t%zu-p%zu-root", p->i, p->k);
        GW_TRY(put_param(w, p, 0, value));
        PUT("\n");
        return GW_OK;
    }
    for (int kind = GW_JSON_TEXT; kind <= GW_JSON_OTHER; kind++) {
        if (p->kinds & kind) {
            snprintf(value, sizeof value, "t%zu-p%zu-%s", p->i, p->k,
                     kind == GW_JSON_TEXT ? "text" : "other");
            GW_TRY(put_param(w, p, kind, value));
            PUT(kind == GW_JSON_TEXT && (p->kinds & GW_JSON_OTHER) ? "| " : "");
        }
    }
    PUT("\n");
    return GW_OK;
}

/* Python: name=value. */
static gw_status put_keyword(gw_rules_work *w, property *p) {
    GW_TRY(put_property_rules(w, p, NULL, 0, "p"));
    PUT("t%zu-p%zu ::= ", p->i, p->k);
    GW_TRY(gw_rules_put_text(w->out, p->name, strlen(p->name)));
    PUT("\"=\" t%zu-p%zu-root\n", p->i, p->k);
    return GW_OK;
}

/* Is each value of it one that the schema has alone? Errors are notes later. */
static gw_status put_one(gw_rules_work *w, property *p, int python) {
    return python ? put_keyword(w, p) : put_property(w, p);
}

static size_t escape_pointer(const char *base, const char *name, char out[POINTER]) {
    size_t n = (size_t)snprintf(out, POINTER, "%s/properties/", base);
    for (; *name != '\0' && n < POINTER - 4; name++) {
        if (*name == '~' || *name == '/') {
            out[n++] = '~';
            out[n++] = *name == '~' ? '0' : '1';
        } else if (*name == '%') {
            out[n++] = '%';
            out[n++] = '2';
            out[n++] = '5';
        } else {
            out[n++] = *name;
        }
    }
    out[n] = '\0';
    return n;
}

/* The schema with this property alone, where nothing in it points to elsewhere: what is read for
 * each property is then what belongs to it. NULL: the whole is needed, or no memory. */
static char *alone(const char *base, const char *name, json_t *value) {
    json_t *copy =
        strcmp(base, "#") == 0 ? json_pack("{s:{s:O}}", "properties", name, value) : NULL;
    char *text = copy != NULL ? json_dumps(copy, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(copy);
    if (text != NULL && (strstr(text, "\"$ref") != NULL || strstr(text, "Ref\"") != NULL)) {
        free(text);
        text = NULL;
    }
    return text;
}

/* A property of the schema; text: the whole of it, which is read again for each that points
 * elsewhere, up to a bound (*read: bytes so far). */
static gw_status put_member(gw_rules_work *w, property *p, const char *base, const char *text,
                            json_t *value, int python, size_t *read) {
    enum { READ_MAX = 1 << 24 };
    char pointer[POINTER], *own = alone(base, p->name, value);
    p->schema = own != NULL ? own : text;
    p->pointer = pointer;
    escape_pointer(base, p->name, pointer);
    p->is = gw_answer_types(&w->r->list->at[p->i], p->name, strlen(p->name));
    *read += own != NULL ? 0 : strlen(text);
    gw_status status = GW_OK;
    if (own == NULL && *read > READ_MAX) {
        p->schema = NULL;
        status = add_note(w, &w->r->list->at[p->i], "it is large, and refers to itself too often");
    }
    status = status == GW_OK ? put_one(w, p, python) : status;
    free(own);
    return status;
}

/* Rule "ti-p": the parameters in the order of the schema; those that are not required may be left
 * out. Python: with commas between them. */
static gw_status put_parameters(gw_rules_work *w, size_t i, int python) {
    const gw_tool *tool = &w->r->list->at[i];
    char base[POINTER], *text = schema_text(tool, 0);
    const json_t *schema = members_of(tool, base), *item;
    json_t *properties = json_object_get(schema, "properties"), *value;
    json_t *needed = required_names(schema);
    gw_bytes order = {0};
    gw_status status = text != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "tools", "no memory");
    const char *name;
    size_t k = 0, at, read = 0;
    GW_TRY_DONE(status);
    GW_TRY_DONE(note_beyond(w, tool, schema));
    json_object_foreach(properties, name, value) {
        int required = json_object_get(needed, name) != NULL;
        property p = {.name = name, .i = i, .k = k};
        if (json_is_false(value)) {
            continue;
        }
        GW_TRY_DONE(put_member(w, &p, base, text, value, python, &read));
        GW_TRY_DONE(gw_bytes_add(&order, required ? "1" : "0", 1));
        k++;
    }
    json_array_foreach(json_object_get(schema, "required"), at, item) {
        property p = {.name = json_string_value(item), .i = i, .k = k, .is = GW_IS_ANYTHING};
        if (p.name != NULL && json_object_get(properties, p.name) == NULL) {
            GW_TRY_DONE(put_one(w, &p, python));
            GW_TRY_DONE(gw_bytes_add(&order, "1", 1));
            k++;
        }
    }
    /* from parameter j on: h with nothing before it, m behind another one */
    for (size_t j = 0; j <= k; j++) {
        if (j == k) {
            GW_TRY_DONE(
                gw_rules_put(w->out, "t%zu-h%zu ::= \"\"\nt%zu-m%zu ::= \"\"\n", i, j, i, j));
            break;
        }
        int required = order.data[j] == '1';
        const char *comma = python ? "\", \" " : "";
        GW_TRY_DONE(
            gw_rules_put(w->out, "t%zu-h%zu ::= t%zu-p%zu t%zu-m%zu", i, j, i, j, i, j + 1));
        GW_TRY_DONE(required ? GW_OK : gw_rules_put(w->out, " | t%zu-h%zu", i, j + 1));
        GW_TRY_DONE(gw_rules_put(w->out, "\nt%zu-m%zu ::= %st%zu-p%zu t%zu-m%zu", i, j, comma, i, j,
                                 i, j + 1));
        GW_TRY_DONE(required ? GW_OK : gw_rules_put(w->out, " | t%zu-m%zu", i, j + 1));
        GW_TRY_DONE(gw_rules_put(w->out, "\n"));
    }
    status = gw_rules_put(w->out, "t%zu-p ::= t%zu-h0\n", i, i);
done:
    json_decref(needed);
    free(order.data);
    free(text);
    return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

static gw_status put_steps(gw_rules_work *w, size_t i, const gw_pattern *p, size_t from) {
    const char *name = w->r->list->at[i].name;
    for (size_t at = from; at < p->n; at++) {
        GW_TRY(gw_rules_put_marks(w->out, p, at, &at));
        switch (at < p->n ? p->steps[at].kind : GW_STEP_SPACE) {
        case GW_STEP_NAME:
            if ((w->r->tools->flags & GW_TOOLS_NUMBERED) != 0) {
                PUT("\"functions.\" ");
            }
            GW_TRY(gw_rules_put_text(w->out, name, strlen(name)));
            if ((w->r->tools->flags & GW_TOOLS_NUMBERED) != 0) {
                PUT("\":\" [0-9]{1,2} ");
            }
            break;
        case GW_STEP_ID:
            PUT("[a-zA-Z0-9]{9} ");
            break;
        case GW_STEP_NUMBER:
            PUT("[0-9]{1,2} ");
            break;
        case GW_STEP_ARGUMENTS:
        case GW_STEP_GEMMA:
            PUT("t%zu-a-root ", i);
            break;
        case GW_STEP_OBJECT:
            GW_TRY(put_steps(w, i, &w->object, 0));
            break;
        case GW_STEP_PARAMS:
            PUT("t%zu-p ", i);
            break;
        default:
            break;
        }
    }
    return GW_OK;
}

gw_status gw_rules_call(gw_rules_work *w, size_t i, const char *name, size_t from) {
    PUT("t%zu-%s ::= ", i, name);
    GW_TRY(put_steps(w, i, &w->call, from));
    PUT("\n");
    return GW_OK;
}

gw_status gw_rules_tool(gw_rules_work *w, size_t i) {
    const gw_pattern *p = &w->call;
    const char *name = w->r->list->at[i].name;
    int python = gw_pattern_find(p, GW_STEP_PYTHON) < p->n;
    int params = gw_pattern_find(p, GW_STEP_PARAMS) < p->n;
    GW_TRY(python || params ? put_parameters(w, i, python) : put_arguments(w, i));
    if (python) {
        PUT("t%zu-one ::= ", i);
        GW_TRY(gw_rules_put_text(w->out, name, strlen(name)));
        PUT("\"(\" t%zu-p \")\"\n", i);
        return GW_OK;
    }
    if (gw_pattern_find(p, GW_STEP_LIST) < p->n) {
        PUT("t%zu-one ::= ", i);
        GW_TRY(put_steps(w, i, &w->object, 0));
        PUT("\n");
        return GW_OK;
    }
    return gw_rules_call(w, i, "call", 0);
}
