/* core/model/hf_folder.c - the files of a Hugging Face folder: config.json, generation_config.json,
 * model.safetensors or the parts that model.safetensors.index.json names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/list.h"
#include "core/base/os.h"
#include "core/base/text.h"
#include "core/model/checkpoint_parts.h"
#include "core/model/config.h"
#include "core/model/guess.h"
#include "core/model/torch_file.h"

gw_status gw_hf_json(gw_checkpoint *c, const char *name, json_t **out) {
    const char *path = gw_checkpoint_join(c, c->where, name);
    *out = NULL;
    if (path == NULL) {
        return gw_checkpoint_nomem(c);
    }
    if (gw_path_look(path) == GW_PATH_NONE) {
        return GW_OK;
    }
    gw_file file;
    GW_TRY(gw_file_open(path, path, &file));
    json_t *root = NULL;
    size_t n = 0;
    char *plain = gw_config_plain_json(file.data != NULL ? file.data : "", (size_t)file.size, &n);
    gw_status status =
        plain != NULL ? gw_json_parse_settings(path, plain, n, &root) : gw_checkpoint_nomem(c);
    free(plain);
    gw_file_close(&file);
    GW_TRY(status);
    if (!json_is_object(root)) {
        json_decref(root);
        return gw_fail(GW_E_TYPE, path, "must be a JSON object");
    }
    *out = root;
    return GW_OK;
}

int gw_is_torch_name(const char *path) {
    return gw_text_ends(path, ".bin") || gw_text_ends(path, ".pt") || gw_text_ends(path, ".pth") ||
           gw_text_ends(path, ".ckpt");
}

gw_status gw_weights_file_load(gw_checkpoint *c, const char *path) {
    gw_file file;
    gw_safetensor *list = NULL;
    size_t n = 0;
    GW_TRY(gw_checkpoint_map(c, path, &file));
    GW_TRY(gw_is_torch_name(path)
               ? gw_torch_parse(path, file.data, file.size, file.fd, c->arena, &list, &n)
               : gw_safetensors_parse(path, file.data, file.size, file.fd, c->arena, &list, &n));
    for (size_t i = 0; i < n; i++) {
        const gw_stored *t = &list[i].stored;
        GW_TRY(list[i].usable ? gw_checkpoint_add(c, path, t)
                              : gw_checkpoint_add_unusable(c, path, t, list[i].dtype));
    }
    return GW_OK;
}

/* A part is a file of this folder: a plain name, so that an index cannot point elsewhere. */
static gw_status part_path(gw_checkpoint *c, const char *index, const char *name,
                           const char **out) {
    if (name[0] == '\0' || strchr(name, '/') != NULL || strchr(name, '\\') != NULL ||
        !(gw_text_ends(name, ".safetensors") || gw_is_torch_name(name))) {
        return gw_fail(GW_E_METADATA, index,
                       "weight_map names \"%s\"; a .safetensors file of the same folder is needed",
                       name);
    }
    const char *path = gw_checkpoint_join(c, c->where, name);
    if (path == NULL) {
        return gw_checkpoint_nomem(c);
    }
    if (gw_path_look(path) == GW_PATH_NONE) {
        return gw_fail(GW_E_METADATA, path, "is named by %s and is missing",
                       gw_os_last_slash(index) != NULL ? gw_os_last_slash(index) + 1 : index);
    }
    *out = path;
    return GW_OK;
}

/* Every tensor that the map names must be there, in whichever part. */
static gw_status check_map(const gw_checkpoint *c, const char *index, json_t *map) {
    const char *name;
    json_t *part;
    json_object_foreach(map, name, part) {
        if (gw_checkpoint_find(c, name) == NULL && gw_checkpoint_unusable(c, name) == NULL) {
            return gw_fail(GW_E_METADATA, index, "tensor %s is not in %s", name,
                           json_string_value(part));
        }
    }
    return GW_OK;
}

static gw_status load_map(gw_checkpoint *c, const char *index, json_t *map) {
    gw_map *seen = gw_map_new();
    gw_status status = seen != NULL ? GW_OK : gw_checkpoint_nomem(c);
    const char *name;
    json_t *part;
    json_object_foreach(map, name, part) {
        if (status != GW_OK) {
            break;
        }
        const char *file = json_string_value(part), *path;
        if (file == NULL) {
            status = gw_fail(GW_E_TYPE, index, "weight_map of %s must be a file name", name);
            break;
        }
        gw_map_result added = gw_map_add(seen, file, strlen(file), 0, NULL);
        if (added == GW_MAP_PRESENT) {
            continue;
        }
        status = added == GW_MAP_NOMEM ? gw_checkpoint_nomem(c) : part_path(c, index, file, &path);
        if (status == GW_OK) {
            status = gw_weights_file_load(c, path);
        }
    }
    gw_map_free(seen);
    return status == GW_OK ? check_map(c, index, map) : status;
}

static gw_status load_index(gw_checkpoint *c, const char *name, int *found) {
    json_t *root = NULL, *map = NULL;
    const char *index = gw_checkpoint_join(c, c->where, name);
    if (index == NULL) {
        return gw_checkpoint_nomem(c);
    }
    GW_TRY(gw_hf_json(c, name, &root));
    *found = root != NULL;
    if (root == NULL) {
        return GW_OK;
    }
    gw_status status = gw_json_object(index, root, "weight_map", &map);
    if (status == GW_OK) {
        status = map != NULL ? load_map(c, index, map)
                             : gw_fail(GW_E_METADATA, index, "has no weight_map");
    }
    json_decref(root);
    return status;
}

/* In this order: what needs no pickle goes first. */
static gw_status load_weights(gw_checkpoint *c) {
    static const struct {
        const char *single, *index;
    } rows[] = {{"model.safetensors", "model.safetensors.index.json"},
                {"pytorch_model.bin", "pytorch_model.bin.index.json"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *single = gw_checkpoint_join(c, c->where, rows[i].single);
        int found = 0;
        if (single == NULL) {
            return gw_checkpoint_nomem(c);
        }
        if (gw_path_look(single) != GW_PATH_NONE) {
            return gw_weights_file_load(c, single);
        }
        GW_TRY(load_index(c, rows[i].index, &found));
        if (found) {
            return GW_OK;
        }
    }
    return gw_fail(GW_E_METADATA, c->where,
                   "has no weights: neither model.safetensors nor pytorch_model.bin, nor an index "
                   "of their parts");
}

/* MLX saves models of delta nets with 1 added to their norms, which the publisher's have not; the
 * taps of their convolution, whose axes it moves, tell. */
static gw_status refuse_shifted(const gw_checkpoint *c) {
    for (size_t i = 0; i < c->n; i++) {
        const gw_stored *t = &c->list[i];
        if (gw_text_ends(t->name, ".linear_attn.conv1d.weight") && t->n_dim == 3 &&
            t->dim[2] == 1 && t->dim[1] > 1) {
            return gw_fail(GW_E_UNSUPPORTED, c->where,
                           "was saved by MLX with 1 added to its norms (%s has its axes), which is "
                           "not read; use the original model or a GGUF file",
                           t->name);
        }
    }
    return GW_OK;
}

gw_status gw_hf_load(gw_checkpoint *c, const char *folder, int vocab_only) {
    (void)folder; /* c->where is the same path */
    GW_TRY(gw_hf_json(c, "config.json", &c->config));
    const char *adapter = gw_checkpoint_join(c, c->where, "adapter_config.json");
    if (c->config == NULL && !vocab_only && adapter != NULL &&
        gw_path_look(adapter) != GW_PATH_NONE) {
        return gw_fail(GW_E_METADATA, c->where,
                       "is an adapter (adapter_config.json), not a model: merge it into the model "
                       "it was made for");
    }
    if (c->config == NULL && !vocab_only) {
        return gw_fail(
            GW_E_METADATA, c->where,
            "is a folder without config.json; a GGUF file or a Hugging Face model folder "
            "is needed");
    }
    GW_TRY(gw_hf_json(c, "generation_config.json", &c->generation));
    if (vocab_only) {
        return GW_OK;
    }
    GW_TRY(load_weights(c));
    GW_TRY(refuse_shifted(c));
    return gw_checkpoint_join_codes(c);
}

const json_t *gw_checkpoint_generation(const gw_checkpoint *c) {
    return c->generation != NULL ? c->generation : c->config;
}

/* ---- a folder around a GGUF file ------------------------------------------------------------- */

/* "-00002-of-00005.gguf": a part that is not the first. */
static int is_later_part(const char *name) {
    const char *at = strstr(name, "-of-");
    return at != NULL && at - name > 6 && at[-6] == '-' && strncmp(at - 5, "00001", 5) != 0;
}

gw_status gw_folder_gguf(const char *folder, char *out, size_t room) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    out[0] = '\0';
    if (dir == NULL) {
        return GW_OK; /* reading its files will say why */
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, "config.json") == 0) {
            closedir(dir);
            out[0] = '\0';
            return GW_OK;
        }
        if (gw_text_ends(e->d_name, ".gguf") && !is_later_part(e->d_name) &&
            strstr(e->d_name, "mmproj") == NULL) {
            int wrote = snprintf(out, room, "%s/%s", folder, e->d_name);
            count += wrote > 0 && (size_t)wrote < room;
        }
    }
    closedir(dir);
    if (count > 1) {
        return gw_fail(GW_E_METADATA, folder, "holds %zu .gguf files: name one of them", count);
    }
    return GW_OK;
}
