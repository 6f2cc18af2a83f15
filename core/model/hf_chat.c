/* core/model/hf_chat.c - the chat template of a Hugging Face folder: tokenizer_config.json holds
 * one text or a list of named ones; newer folders have a file of their own.
 */
#include <string.h>

#include "core/model/checkpoint_parts.h"

/* One text, or of [{"name": ..., "template": ...}, ...] the one named "default", else the first. */
static const char *template_of(const json_t *value) {
    if (!json_is_array(value)) {
        return json_string_value(value);
    }
    const json_t *chosen = json_array_get(value, 0), *entry;
    size_t i;
    json_array_foreach(value, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name != NULL && strcmp(name, "default") == 0) {
            chosen = entry;
            break;
        }
    }
    return json_string_value(json_object_get(chosen, "template"));
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

gw_status gw_hf_chat_template(gw_checkpoint *c, const char **text, size_t *bytes) {
    const char *own = gw_checkpoint_join(c, c->where, "chat_template.jinja");
    json_t *config = NULL;
    *text = NULL;
    *bytes = 0;
    if (own == NULL) {
        return gw_checkpoint_nomem(c);
    }
    if (gw_path_look(own) != GW_PATH_NONE) {
        return read_file(c, own, text, bytes);
    }
    GW_TRY(gw_hf_json(c, "tokenizer_config.json", &config));
    const char *found = template_of(json_object_get(config, "chat_template"));
    gw_status status = found != NULL ? keep(c, found, strlen(found), text, bytes) : GW_OK;
    json_decref(config);
    return status;
}
