/* core/text/chat/inserted.c - see inserted.h. */
#include "core/text/chat/inserted.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/buffer.h"

typedef struct insertion {
    const char *text, *mark;
    const gw_chat_inserts *inserts;
    int flat; /* marks lie in what was typed */
    gw_bytes to;
    size_t *typed, n_typed, used;
} insertion;

/* Copies text[from, end), of which nothing is a mark. After too many marks nothing counts. */
static gw_status copy(insertion *x, size_t from, size_t end, int typed) {
    if (x->used > x->inserts->n) {
        return GW_OK;
    }
    if (typed && end > from) {
        x->typed[2 * x->n_typed] = x->to.n;
        x->typed[2 * x->n_typed++ + 1] = x->to.n + end - from;
    }
    return gw_bytes_add(&x->to, x->text + from, end - from);
}

static gw_status insert_next(insertion *x) {
    const gw_chat_inserts *all = x->inserts;
    const char *const parts[] = {x->flat ? all->before : "",
                                 x->used < all->n ? all->text[x->used] : "",
                                 x->flat ? all->after : ""};
    x->used++;
    for (size_t i = 0; i < 3; i++) {
        GW_TRY(gw_bytes_add(&x->to, parts[i], strlen(parts[i])));
    }
    return GW_OK;
}

static gw_status add_part(insertion *x, size_t from, size_t end, int typed) {
    const size_t n = strlen(x->mark);
    while (from < end) {
        const char *found =
            !typed || x->flat ? memmem(x->text + from, end - from, x->mark, n) : NULL;
        size_t at = found != NULL ? (size_t)(found - x->text) : end;
        GW_TRY(copy(x, from, at, typed));
        if (found == NULL) {
            return GW_OK;
        }
        GW_TRY(insert_next(x));
        from = at + n;
    }
    return GW_OK;
}

static gw_status insert(gw_template_text *text, const char *mark, const gw_chat_inserts *inserts,
                        int flat, size_t *used) {
    insertion x = {.text = text->text, .mark = mark, .inserts = inserts, .flat = flat};
    size_t at = 0;
    /* A typed part is cut at each mark in it. */
    x.typed = malloc((text->n_typed + inserts->n + 1) * 2 * sizeof *x.typed);
    gw_status status = x.typed != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "chat", "no memory");
    GW_TRY_DONE(status);
    for (size_t i = 0; i < text->n_typed; i++) {
        size_t begin = text->typed[2 * i], end = text->typed[2 * i + 1];
        GW_TRY_DONE(add_part(&x, at, begin, 0));
        GW_TRY_DONE(add_part(&x, begin, end, 1));
        at = end;
    }
    GW_TRY_DONE(add_part(&x, at, text->bytes, 0));
    if (used != NULL) {
        *used = x.used;
    }
    if (x.used != inserts->n) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, "chat",
                            "the chat template has places for %zu pictures, %zu are given", x.used,
                            inserts->n));
    }
    GW_TRY_DONE(gw_bytes_add(&x.to, "", 1));
    free(text->text);
    free(text->typed);
    text->text = x.to.data;
    text->bytes = x.to.n - 1;
    text->typed = x.typed;
    text->n_typed = x.n_typed;
    return GW_OK;
done:
    free(x.to.data);
    free(x.typed);
    return status;
}

gw_status gw_chat_insert(gw_template_text *text, const gw_chat_inserts *inserts, size_t *used) {
    return insert(text, inserts->mark, inserts, 0, used);
}

gw_status gw_chat_insert_flat(gw_template_text *text, const char *stand_in,
                              const gw_chat_inserts *inserts) {
    return insert(text, stand_in, inserts, 1, NULL);
}

/* ---- texts alone ----------------------------------------------------------------------------- */

/* The parts of a message as one text; NULL: a part of another kind, or no memory. */
static json_t *joined(const json_t *parts, const char *stand_in) {
    gw_bytes all = {0};
    json_t *part, *text = NULL;
    size_t i;
    gw_status status = gw_bytes_add(&all, "", 0);
    json_array_foreach(parts, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *said = json_object_get(part, "text");
        int sees = type != NULL && strstr(type, "image") != NULL;
        if (!sees && !json_is_string(said)) {
            status = GW_E_ARGUMENT;
        } else if (status == GW_OK) {
            status = gw_bytes_add(&all, sees ? stand_in : json_string_value(said),
                                  sees ? strlen(stand_in) : json_string_length(said));
        }
    }
    if (status == GW_OK) {
        text = json_stringn(all.data != NULL ? all.data : "", all.n);
    }
    free(all.data);
    return text;
}

gw_status gw_chat_flatten(const char *request, size_t bytes, char stand_in[GW_CHAT_STAND_IN],
                          char **out) {
    json_t *root = json_loadb(request, bytes, JSON_ALLOW_NUL, NULL), *message;
    size_t i;
    int whole = root != NULL;
    unsigned number = 0;
    do {
        snprintf(stand_in, GW_CHAT_STAND_IN, "<picture %u of this request>", number++);
    } while (memmem(request, bytes, stand_in, strlen(stand_in)) != NULL);
    json_array_foreach(json_object_get(root, "messages"), i, message) {
        const json_t *content = json_object_get(message, "content");
        json_t *text = json_is_array(content) ? joined(content, stand_in) : NULL;
        whole &= !json_is_array(content) ||
                 (text != NULL && json_object_set_new(message, "content", text) == 0);
    }
    *out = whole ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return *out != NULL ? GW_OK
                        : gw_fail(GW_E_ARGUMENT, "chat",
                                  "the chat template takes texts alone, and a message has parts "
                                  "that are neither texts nor pictures");
}
