/* core/text/grammar/json_schema_refs.c - "$ref" to what has a name: "$id", "id", "$anchor"; see
 * json_schema_parts.h.
 *
 * One walk notes which schemas have a name and where they stand, a second one turns every "$ref"
 * that leads to one of them into a pointer from the root ("#/..."), so that nothing later needs to
 * know the base of a schema (RFC 3986, 5; JSON Schema core 2020-12, 8.2). What leads elsewhere
 * stays as it is and is refused where it is used.
 */
#include <stdio.h>

#include "core/text/grammar/json_schema_parts.h"

enum { URI_MAX = 1000, POINTER_MAX = 1000, NAMES_MAX = 20000 };

typedef struct refs {
    gw_schema_work *w;
    gw_map *names;         /* absolute name: number in pointers */
    const char **pointers; /* [n] from the root */
    size_t n, capacity;
    int old; /* of draft 3 or 4, where "id" is a base */
    int rewrites;
    char pointer[POINTER_MAX]; /* of what is walked through */
    size_t at;
} refs;

/* ---- names ----------------------------------------------------------------------------------- */

/* How long the part of a URI up to its path is: "http://a.b" of "http://a.b/c". */
static size_t authority(const char *uri) {
    const char *colon = strstr(uri, "://");
    if (colon == NULL) {
        return 0;
    }
    return (size_t)(colon + 3 - uri) + strcspn(colon + 3, "/?#");
}

static int has_scheme(const char *uri) {
    size_t n = strcspn(uri, ":/?#");
    return n > 0 && uri[n] == ':';
}

/* A reference without its fragment, made absolute by its base. 0: too long. */
static int resolve(const char *base, const char *ref, char out[URI_MAX]) {
    size_t path = strcspn(ref, "#"), keep = strcspn(base, "?#");
    int n;
    if (path == 0) {
        n = snprintf(out, URI_MAX, "%.*s", (int)strcspn(base, "#"), base);
    } else if (has_scheme(ref)) {
        n = snprintf(out, URI_MAX, "%.*s", (int)path, ref);
    } else if (ref[0] == '/') {
        n = snprintf(out, URI_MAX, "%.*s%.*s", (int)authority(base), base, (int)path, ref);
    } else {
        while (keep > authority(base) && base[keep - 1] != '/') {
            keep--;
        }
        const char *from = strncmp(ref, "./", 2) == 0 ? ref + 2 : ref;
        n = snprintf(out, URI_MAX, "%.*s%.*s", (int)keep, base, (int)(path - (size_t)(from - ref)),
                     from);
    }
    return n >= 0 && n < URI_MAX;
}

static gw_status add_name(refs *r, const char *base, const char *fragment) {
    char text[2 * URI_MAX];
    int n = snprintf(text, sizeof text, "%s#%s", base, fragment);
    if (n < 0 || (size_t)n >= sizeof text || r->n == NAMES_MAX) {
        return GW_OK; /* what is not known is refused where it is used */
    }
    void *grown = r->pointers;
    gw_status status = gw_array_reserve(&grown, &r->capacity, r->n + 1, sizeof *r->pointers);
    r->pointers = grown;
    GW_TRY(status);
    const char *key = gw_arena_copy(r->w->arena, text, (size_t)n);
    r->pointers[r->n] = gw_arena_copy(r->w->arena, r->pointer, r->at);
    if (key == NULL || r->pointers[r->n] == NULL) {
        return gw_schema_no_memory();
    }
    gw_map_result result = gw_map_add(r->names, key, (size_t)n, r->n, NULL); /* the first counts */
    r->n += result == GW_MAP_ADDED;
    return result == GW_MAP_NOMEM ? gw_schema_no_memory() : GW_OK;
}

/* The names of a schema; *base becomes its own where it has one. */
static gw_status take_names(refs *r, const json_t *schema, const char **base) {
    static const char *const ids[] = {"$id", "id"}, *const anchors[] = {"$anchor",
                                                                        "$dynamicAnchor"};
    char uri[URI_MAX];
    for (size_t i = 0; i < 2; i++) {
        const char *id = json_string_value(json_object_get(schema, ids[i]));
        if (id == NULL || !resolve(*base, id, uri)) {
            continue;
        }
        const char *fragment = strchr(id, '#');
        if (fragment != NULL && fragment[1] != '\0') {
            GW_TRY(r->rewrites ? GW_OK : add_name(r, uri, fragment + 1));
        } else if (id[0] != '#') {
            GW_TRY(r->rewrites ? GW_OK : add_name(r, uri, ""));
            if (i == 0 || r->old || r->at == 0) {
                *base = gw_arena_copy(r->w->arena, uri, strlen(uri));
            }
        }
    }
    for (size_t i = 0; i < 2 && *base != NULL && !r->rewrites; i++) {
        const char *anchor = json_string_value(json_object_get(schema, anchors[i]));
        GW_TRY(anchor != NULL ? add_name(r, *base, anchor) : GW_OK);
    }
    return *base != NULL ? GW_OK : gw_schema_no_memory();
}

/* ---- references ------------------------------------------------------------------------------ */

static int find(const refs *r, const char *base, const char *fragment, size_t *at) {
    char text[2 * URI_MAX];
    int n = snprintf(text, sizeof text, "%s#%s", base, fragment);
    return n >= 0 && (size_t)n < sizeof text && gw_map_find(r->names, text, (size_t)n, at);
}

/* "$ref" of a schema with this base as a pointer from the root, where it leads to a known name. */
static gw_status rewrite(refs *r, json_t *schema, const char *base) {
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    char uri[URI_MAX], text[POINTER_MAX + URI_MAX];
    size_t at;
    if (ref == NULL || !resolve(base, ref, uri)) {
        return GW_OK;
    }
    const char *hash = strchr(ref, '#'), *fragment = hash != NULL ? hash + 1 : "", *below = "";
    if (fragment[0] == '/' || fragment[0] == '\0') {
        below = fragment;
        if (!find(r, uri, "", &at)) {
            return GW_OK; /* "#/..." of a root without a name is one already */
        }
    } else if (!find(r, uri, fragment, &at)) {
        return GW_OK;
    }
    int n = snprintf(text, sizeof text, "#%s%s", r->pointers[at], below);
    if (n < 0 || (size_t)n >= sizeof text || strcmp(text, ref) == 0) {
        return GW_OK;
    }
    return json_object_set_new(schema, "$ref", json_string(text)) == 0 ? GW_OK
                                                                       : gw_schema_no_memory();
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* name as a step of the pointer; 0: it gets too long, and nothing below has a name. */
static int push(refs *r, const char *name) {
    size_t at = r->at;
    if (at + 1 >= POINTER_MAX) {
        return 0;
    }
    r->pointer[at++] = '/';
    for (; *name != '\0'; name++) {
        const char *escape = *name == '~'   ? "~0"
                             : *name == '/' ? "~1"
                             : *name == '%' ? "%25"
                                            : NULL;
        size_t n = escape != NULL ? strlen(escape) : 1;
        if (at + n >= POINTER_MAX) {
            return 0;
        }
        memcpy(r->pointer + at, escape != NULL ? escape : name, n);
        at += n;
    }
    r->at = at;
    return 1;
}

static int holds_values(const char *key) {
    static const char *const words[] = {"enum", "const", "default", "examples", "example"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(key, words[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* named: x is an object of schemas by their names. It calls itself as deep as jansson lets a text
 * be. */
static gw_status walk(refs *r, json_t *x, const char *base, int named) {
    static const char *const lists[] = {"properties", "patternProperties", "definitions",
                                        "$defs",      "dependencies",      "dependentSchemas"};
    size_t before = r->at, i;
    const char *key;
    json_t *y;
    if (json_is_object(x) && !named) {
        GW_TRY(take_names(r, x, &base));
        GW_TRY(r->rewrites ? rewrite(r, x, base) : GW_OK);
    }
    json_object_foreach(x, key, y) {
        int list = 0;
        for (i = 0; i < sizeof lists / sizeof lists[0]; i++) {
            list |= strcmp(key, lists[i]) == 0;
        }
        if ((json_is_object(y) || json_is_array(y)) && (named || !holds_values(key)) &&
            push(r, key)) {
            GW_TRY(walk(r, y, base, list && !named));
        }
        r->at = before;
    }
    json_array_foreach(x, i, y) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        if ((json_is_object(y) || json_is_array(y)) && push(r, number)) {
            GW_TRY(walk(r, y, base, 0));
        }
        r->at = before;
    }
    return GW_OK;
}

gw_status gw_schema_name_refs(gw_schema_work *w) {
    refs r = {.w = w, .names = gw_map_new()};
    const char *draft = json_string_value(json_object_get(w->root, "$schema"));
    r.old =
        draft != NULL && (strstr(draft, "draft-03") != NULL || strstr(draft, "draft-04") != NULL);
    gw_status status = r.names != NULL ? GW_OK : gw_schema_no_memory();
    if (status == GW_OK) {
        status = walk(&r, w->root, "", 0);
    }
    r.rewrites = 1;
    r.at = 0;
    if (status == GW_OK && r.n > 0) {
        status = walk(&r, w->root, "", 0);
    }
    gw_map_free(r.names);
    free(r.pointers);
    return status;
}
