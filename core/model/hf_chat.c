/* core/model/hf_chat.c - the chat templates of a Hugging Face folder: tokenizer_config.json and
 * chat_template.json hold one text or several named ones; newer folders have a file for each.
 */
#include <string.h>

#include "core/model/checkpoint_parts.h"

static int is_default(const char *name) { return name == NULL || strcmp(name, "default") == 0; }

/* A text; of [{"name": ..., "template": ...}, ...] or {NAME: text, ...} the one of that name. The
 * default is the one called so, else the first of a list. */
static const char *template_of(const json_t *value, const char *name) {
    const char *wanted = name == NULL ? "default" : name;
    const json_t *entry;
    size_t i;
    if (json_is_object(value)) {
        return json_string_value(json_object_get(value, wanted));
    }
    if (!json_is_array(value)) {
        return is_default(name) ? json_string_value(value) : NULL;
    }
    json_array_foreach(value, i, entry) {
        const char *own = json_string_value(json_object_get(entry, "name"));
        if (own != NULL && strcmp(own, wanted) == 0) {
            return json_string_value(json_object_get(entry, "template"));
        }
    }
    return name == NULL ? json_string_value(json_object_get(json_array_get(value, 0), "template"))
                        : NULL;
}

static gw_status keep(gw_checkpoint *c, const char *from, size_t n, const char **text,
                      size_t *bytes) {
    const char *copy = gw_arena_copy(c->arena, from, n);
    if (copy == NULL) {
        return gw_checkpoint_nomem(c);
    }
    *text = copy;
    *bytes = n;
    return GW_OK;
}

static gw_status read_file(gw_checkpoint *c, const char *path, const char **text, size_t *bytes) {
    enum { TEMPLATE_MAX = 1 << 20 };
    gw_file file;
    GW_TRY(gw_file_open(path, path, &file));
    gw_status status =
        file.size > TEMPLATE_MAX
            ? gw_fail(GW_E_LIMIT, path, "a chat template of more than 1 MiB")
            : keep(c, file.data != NULL ? file.data : "", (size_t)file.size, text, bytes);
    gw_file_close(&file);
    return status;
}

/* A name that is one of a file, and of no other folder. */
static int is_plain(const char *name) {
    return name[0] != '.' && strpbrk(name, "/\\") == NULL && strlen(name) < 80;
}

/* *text stays NULL when there is no such file. */
static gw_status read_own_file(gw_checkpoint *c, const char *name, const char **text,
                               size_t *bytes) {
    char file[160];
    int n = is_default(name)
                ? snprintf(file, sizeof file, "chat_template.jinja")
                : snprintf(file, sizeof file, "additional_chat_templates/%s.jinja", name);
    if (n < 0 || (size_t)n >= sizeof file || (!is_default(name) && !is_plain(name))) {
        return GW_OK;
    }
    const char *path = gw_checkpoint_join(c, c->where, file);
    if (path == NULL) {
        return gw_checkpoint_nomem(c);
    }
    return gw_path_look(path) != GW_PATH_NONE ? read_file(c, path, text, bytes) : GW_OK;
}

gw_status gw_hf_chat_template(gw_checkpoint *c, const char *name, const char **text,
                              size_t *bytes) {
    static const char *const files[] = {"chat_template.json", "tokenizer_config.json"};
    *text = NULL;
    *bytes = 0;
    GW_TRY(read_own_file(c, name, text, bytes));
    for (size_t i = 0; i < 2 && *text == NULL; i++) {
        json_t *config = NULL;
        GW_TRY(gw_hf_json(c, files[i], &config));
        const char *found = template_of(json_object_get(config, "chat_template"), name);
        gw_status status = found != NULL ? keep(c, found, strlen(found), text, bytes) : GW_OK;
        json_decref(config);
        GW_TRY(status);
    }
    return GW_OK;
}
