/* apps/conversation_pictures.c - pictures of messages: a message names the files of those that
 * stand in front of its text, {"images": [PATH, ...]}; see conversation.h. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/conversation.h"
#include "core/base/os.h"

static int no_memory(void) {
    app_error("out of memory");
    return APP_FAILURE;
}

/* The files that a message names; NULL: none. json_decref(*members). */
static const json_t *files_of(const gw_chat_message *m, json_t **members) {
    const char *text = m->text + m->bytes + 1;
    *members = text[0] != '\0' ? json_loads(text, 0, NULL) : NULL;
    return json_object_get(*members, "images");
}

/* ---- files ----------------------------------------------------------------------------------- */

static int check(const conversation *c) {
    size_t bytes;
    if (c->pictures.images == NULL) {
        app_error("this model takes no pictures%s%s", c->blind[0] != '\0' ? ": " : "", c->blind);
        return APP_FAILURE;
    }
    if (gw_chat_template(c->chat, &bytes) == NULL) {
        app_error(
            "the form %s has no place for pictures: --chat-template names a template that has",
            gw_chat_name(c->chat));
        return APP_FAILURE;
    }
    return APP_OK;
}

/* Reads a file that is not read yet. */
static int know(conversation *c, const char *path) {
    int known = pictures_find(&c->pictures, path) < c->pictures.n;
    return known ? APP_OK : pictures_read(&c->pictures, path);
}

static int add_image(conversation *c, const char *path) {
    char *whole = realpath(path, NULL); /* a saved conversation is loaded from anywhere */
    int code = know(c, whole != NULL ? whole : path);
    json_t *members =
        c->images != NULL ? json_loads(c->images, 0, NULL) : json_pack("{s:[]}", "images");
    if (code == APP_OK) {
        json_t *list = json_object_get(members, "images");
        int added = json_array_append_new(list, json_string(whole != NULL ? whole : path)) == 0;
        char *text = added ? json_dumps(members, JSON_COMPACT) : NULL;
        if (text != NULL) {
            free(c->images);
            c->images = text;
        } else {
            code = no_memory();
        }
    }
    json_decref(members);
    free(whole);
    return code;
}

/* Takes back what a shell or a file manager does to a path that is dragged or pasted here: blanks
 * after it, quotation marks around it, file://, %20, a backslash before a blank; ~ is expanded. */
static char *plain_path(const char *typed) {
    const char *home = getenv("HOME");
    size_t n = strlen(typed), room = n + (home != NULL ? strlen(home) : 0) + 1, used = 0;
    char *out = malloc(room);
    while (n > 0 && strchr(" \t\r\n", typed[n - 1]) != NULL) {
        n--;
    }
    int quoted = n > 1 && (typed[0] == '"' || typed[0] == '\'') && typed[n - 1] == typed[0];
    typed += quoted;
    n -= quoted ? 2 : 0;
    int url = n >= 8 && strncmp(typed, "file:///", 8) == 0;
    typed += url ? 7 : 0;
    n -= url ? 7 : 0;
    if (out != NULL && !quoted && home != NULL && typed[0] == '~' && (n == 1 || typed[1] == '/')) {
        used = (size_t)snprintf(out, room, "%s", home);
        typed++;
        n--;
    }
    for (size_t i = 0; i < n && out != NULL; i++) {
        int coded = url && typed[i] == '%' && i + 2 < n && isxdigit((unsigned char)typed[i + 1]) &&
                    isxdigit((unsigned char)typed[i + 2]);
        if (coded) {
            char hex[3] = {typed[i + 1], typed[i + 2], '\0'};
            out[used] = (char)strtol(hex, NULL, 16);
            used += out[used] != '\0';
            i += 2;
        } else {
            i += !quoted && !url && typed[i] == '\\' && i + 1 < n;
            out[used++] = typed[i];
        }
    }
    if (out != NULL) {
        out[used] = '\0';
    }
    return out;
}

int conversation_image(conversation *c, const char *typed) {
    int code = check(c);
    if (code != APP_OK) {
        return code;
    }
    char *plain = access(typed, F_OK) == 0 ? strdup(typed) : plain_path(typed);
    code = plain != NULL ? add_image(c, plain) : no_memory();
    free(plain);
    return code;
}

int conversation_read_images(conversation *c, const gw_chat_message *list, size_t n) {
    int code = APP_OK;
    for (size_t i = 0; i < n && code == APP_OK; i++) {
        json_t *members;
        const json_t *files = files_of(&list[i], &members), *file;
        size_t k;
        code = json_array_size(files) > 0 ? check(c) : APP_OK;
        json_array_foreach(files, k, file) {
            code = code == APP_OK ? know(c, json_string_value(file)) : code;
        }
        json_decref(members);
    }
    return code;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Numbers of the pictures of messages [n], in their order: free(*order). 0: no memory. */
static int order_of(const conversation *c, const gw_chat_message *list, size_t n, size_t **order,
                    size_t *n_order) {
    *order = NULL;
    *n_order = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *members;
        const json_t *files = files_of(&list[i], &members), *file;
        size_t k;
        json_array_foreach(files, k, file) {
            size_t *grown = realloc(*order, (*n_order + 1) * sizeof *grown);
            if (grown == NULL) {
                free(*order);
                json_decref(members);
                return 0;
            }
            *order = grown;
            grown[(*n_order)++] = pictures_find(&c->pictures, json_string_value(file));
        }
        json_decref(members);
    }
    return 1;
}

gw_status conversation_write(const conversation *c, const char *request,
                             const gw_chat_message *list, size_t n, gw_chat_text *out) {
    size_t *order, n_order, bytes = strlen(request);
    if (!order_of(c, list, n, &order, &n_order)) {
        return GW_E_NOMEM;
    }
    gw_status status = GW_OK;
    if (n_order == 0) {
        status = gw_chat_write(c->chat, request, bytes, out);
    } else {
        gw_patches **patches = malloc(n_order * sizeof *patches);
        for (size_t i = 0; patches != NULL && i < n_order; i++) {
            patches[i] = c->pictures.at[order[i]];
        }
        status = patches != NULL ? gw_chat_write_images(c->chat, request, bytes, c->pictures.images,
                                                        patches, n_order, out)
                                 : GW_E_NOMEM;
        free(patches);
    }
    free(order);
    return status;
}

gw_status conversation_see(conversation *c, const gw_chat_message *list, size_t n,
                           const int32_t *ids, size_t n_ids, gw_seen_rows **seen, size_t *n_seen) {
    size_t *order, n_order;
    gw_status status = GW_OK;
    if (!order_of(c, list, n, &order, &n_order)) {
        return GW_E_NOMEM;
    }
    gw_sight **sight = n_order > 0 ? malloc(n_order * sizeof *sight) : NULL;
    if (n_order > 0 && sight == NULL) {
        status = GW_E_NOMEM;
    }
    for (size_t i = 0; i < n_order && status == GW_OK; i++) {
        status = pictures_see(&c->pictures, c->g.model, order[i]);
        sight[i] = c->pictures.sight[order[i]];
    }
    if (status == GW_OK && n_order > 0) {
        status = gw_see_places(c->g.model, ids, n_ids, sight, n_order, seen, n_seen);
    }
    free(sight);
    free(order);
    return status;
}

/* ---- what the session holds ------------------------------------------------------------------ */

/* Of tokens [same] that agree those that agree in what is seen, too: a picture is read as a whole.
 */
size_t conversation_same(const conversation *c, const gw_seen_rows *seen, size_t n_seen,
                         size_t same) {
    size_t k = 0, first = 0;
    for (size_t i = 0; i < n_seen && seen[i].at < same; i++) {
        const gw_seen_rows *x = &seen[i], *held = k < c->n_seen ? &c->seen[k++] : NULL;
        first = x->first == 0 ? x->at : first;
        int equal = held != NULL && held->sight == x->sight && held->first == x->first &&
                    held->n == x->n && held->at == x->at;
        int last = x->first + x->n == gw_sight_rows(x->sight);
        size_t end = x->at + (size_t)x->n;
        if (!equal || end > same || (!last && end == same)) {
            return first;
        }
    }
    return same;
}
