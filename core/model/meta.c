/* core/model/meta.c - the metadata of a checkpoint as short texts, for people. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/model/checkpoint_parts.h"

enum { SHOWN = 200, ITEMS = 4 }; /* bytes of a text, elements of an array */

typedef struct line {
    char text[4 * SHOWN * ITEMS + 64];
    size_t used;
} line;

static void put(line *l, const char *text, size_t n) {
    size_t room = sizeof l->text - 1 - l->used;
    n = n < room ? n : room;
    memcpy(l->text + l->used, text, n);
    l->used += n;
    l->text[l->used] = '\0';
}

/* Control characters become escapes, bytes that are not UTF-8 question marks; cut at a character.
 */
static void put_text(line *l, const char *text, uint64_t bytes, size_t most) {
    int utf8 = gw_text_is_utf8(text, (size_t)bytes);
    size_t n = bytes < most ? (size_t)bytes : most;
    while (utf8 && n < bytes && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        char escape[8];
        if (c == '\n' || c == '\t' || c == '\r') {
            put(l, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2);
        } else if (c < 0x20 || c == 0x7f) {
            put(l, escape, (size_t)snprintf(escape, sizeof escape, "\\x%02x", c));
        } else {
            put(l, c >= 0x80 && !utf8 ? "?" : text + i, 1);
        }
    }
    if (n < bytes) {
        put(l, "...", 3);
    }
}

static void put_number(line *l, gw_gguf_type type, gw_reader *r) {
    static const uint8_t bytes[GW_GGUF_TYPES] = {
        [GW_GGUF_U8] = 1,  [GW_GGUF_I8] = 1,  [GW_GGUF_U16] = 2, [GW_GGUF_I16] = 2,
        [GW_GGUF_U32] = 4, [GW_GGUF_I32] = 4, [GW_GGUF_F32] = 4, [GW_GGUF_BOOL] = 1,
        [GW_GGUF_U64] = 8, [GW_GGUF_I64] = 8, [GW_GGUF_F64] = 8};
    const uint8_t *p = gw_reader_take(r, bytes[type]);
    char text[40];
    if (p == NULL) {
        return;
    }
    uint64_t bits = gw_load_le(p, bytes[type]);
    uint32_t low = (uint32_t)bits;
    int shift = 64 - 8 * bytes[type], n;
    float f;
    double d;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &bits, sizeof d);
    switch (type) {
    case GW_GGUF_F32:
        n = snprintf(text, sizeof text, "%.9g", (double)f);
        break;
    case GW_GGUF_F64:
        n = snprintf(text, sizeof text, "%.17g", d);
        break;
    case GW_GGUF_BOOL:
        n = snprintf(text, sizeof text, "%s", bits != 0 ? "true" : "false");
        break;
    case GW_GGUF_I8:
    case GW_GGUF_I16:
    case GW_GGUF_I32:
    case GW_GGUF_I64:
        n = snprintf(text, sizeof text, "%" PRId64, (int64_t)(bits << shift) >> shift);
        break;
    default:
        n = snprintf(text, sizeof text, "%" PRIu64, bits);
        break;
    }
    put(l, text, (size_t)n);
}

static void show_pair(line *l, gw_gguf_pair *p) {
    l->used = 0;
    l->text[0] = '\0';
    if (!p->is_array) {
        if (p->type == GW_GGUF_TEXT) {
            put_text(l, (const char *)p->value.data, p->value.size, SHOWN);
        } else {
            put_number(l, p->type, &p->value);
        }
        return;
    }
    if (p->type == GW_GGUF_ARRAY) { /* arrays in it are not taken apart */
        put(l, "[[...]]", 7);
        return;
    }
    gw_gguf_array list = {p->count, p->value};
    put(l, "[", 1);
    for (uint64_t i = 0; i < p->count && i < ITEMS; i++) {
        put(l, ", ", i > 0 ? 2 : 0);
        if (p->type == GW_GGUF_TEXT) {
            gw_gguf_view text = gw_gguf_next_text(&list);
            put(l, "\"", 1);
            put_text(l, text.text, text.bytes, SHOWN / ITEMS);
            put(l, "\"", 1);
        } else {
            put_number(l, p->type, &list.items);
        }
    }
    put(l, p->count > ITEMS ? ", ...]" : "]", p->count > ITEMS ? 6 : 1);
}

static gw_status gguf_meta(gw_checkpoint *c, gw_meta *rows, line *l) {
    const gw_gguf *g = c->gguf[0];
    for (size_t i = 0; i < gw_gguf_pairs(g); i++) {
        gw_gguf_pair p = gw_gguf_pair_at(g, i);
        show_pair(l, &p);
        const char *value = gw_arena_copy(c->arena, l->text, l->used);
        l->used = 0;
        put_text(l, p.key.text, p.key.bytes, SHOWN); /* keys are free to hold odd characters */
        rows[i] = (gw_meta){gw_arena_copy(c->arena, l->text, l->used), p.type_name, value,
                            p.is_array, p.count};
        if (value == NULL || rows[i].key == NULL) {
            return gw_checkpoint_nomem(c);
        }
    }
    return GW_OK;
}

static const char *type_of(const json_t *value) {
    return json_is_integer(value)   ? "integer"
           : json_is_real(value)    ? "number"
           : json_is_boolean(value) ? "bool"
           : json_is_string(value)  ? "text"
           : json_is_array(value)   ? "array"
           : json_is_object(value)  ? "object"
                                    : "null";
}

enum { INSIDE = 2 }; /* members of members are rows of their own, a.b.c, and no deeper */

static int opens(const json_t *value, int depth) {
    return json_is_object(value) && json_object_size(value) > 0 && depth < INSIDE;
}

static size_t count_rows(const json_t *object, int depth) {
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)object, key, value) {
        n += opens(value, depth) ? count_rows(value, depth + 1) : 1;
    }
    return n;
}

static gw_status hf_row(gw_checkpoint *c, const char *key, const json_t *value, line *l,
                        gw_meta *row) {
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    const char *plain = json_is_string(value) ? json_string_value(value) : text;
    l->used = 0;
    l->text[0] = '\0';
    put_text(l, plain != NULL ? plain : "", plain != NULL ? strlen(plain) : 0, SHOWN);
    const char *copy = gw_arena_copy(c->arena, l->text, l->used);
    l->used = 0;
    put_text(l, key, strlen(key), SHOWN);
    *row = (gw_meta){gw_arena_copy(c->arena, l->text, l->used), type_of(value), copy,
                     json_is_array(value), json_is_array(value) ? json_array_size(value) : 1};
    free(text);
    return copy == NULL || row->key == NULL ? gw_checkpoint_nomem(c) : GW_OK;
}

/* Rows of an object whose members are called `before`KEY. */
static gw_status hf_meta(gw_checkpoint *c, const json_t *object, const char *before, int depth,
                         gw_meta **rows, line *l) {
    const char *key;
    json_t *value;
    gw_status status = GW_OK;
    json_object_foreach((json_t *)object, key, value) {
        size_t n = strlen(before) + strlen(key) + 2;
        char *name = status == GW_OK ? malloc(n) : NULL;
        if (name == NULL) {
            return status == GW_OK ? gw_checkpoint_nomem(c) : status;
        }
        snprintf(name, n, "%s%s%s", before, key, opens(value, depth) ? "." : "");
        status = opens(value, depth) ? hf_meta(c, value, name, depth + 1, rows, l)
                                     : hf_row(c, name, value, l, (*rows)++);
        free(name);
    }
    return status;
}

gw_status gw_checkpoint_meta(gw_checkpoint *c, gw_meta **out, size_t *n) {
    size_t count =
        c->container == GW_CONTAINER_GGUF ? gw_gguf_pairs(c->gguf[0]) : count_rows(c->config, 0);
    gw_meta *rows = calloc(count + 1, sizeof *rows), *next = rows;
    line *l = malloc(sizeof *l);
    gw_status status = rows == NULL || l == NULL           ? gw_checkpoint_nomem(c)
                       : c->container == GW_CONTAINER_GGUF ? gguf_meta(c, rows, l)
                                                           : hf_meta(c, c->config, "", 0, &next, l);
    free(l);
    if (status != GW_OK) {
        free(rows);
        return status;
    }
    *out = rows;
    *n = count;
    return GW_OK;
}

const char *gw_checkpoint_describe(gw_checkpoint *c) {
    char text[96];
    size_t files = c->container == GW_CONTAINER_GGUF ? c->n_gguf : c->n_files;
    static const char *const NAMES[] = {[GW_CONTAINER_GGUF] = "GGUF",
                                        [GW_CONTAINER_HF] = "Hugging Face folder",
                                        [GW_CONTAINER_WEIGHTS] = "tensors alone"};
    const char *what = NAMES[c->container];
    int n = snprintf(text, sizeof text, "%s, %zu %sfile%s", what, files,
                     c->container == GW_CONTAINER_GGUF ? "" : "weight ", files == 1 ? "" : "s");
    return gw_arena_copy(c->arena, text, (size_t)n);
}
