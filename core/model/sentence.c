/* core/model/sentence.c - reads modules.json, limits and prompts of an embedding model's folder;
 * see sentence.h. */
#include "core/model/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- modules -------------------------------------------------------------------------------- */

/* Class and folder of an entry of modules.json. */
static gw_status read_entry(const char *where, const json_t *module, const char **class,
                            const char **part) {
    const char *type = "";
    *part = "";
    GW_TRY(gw_json_text(where, module, "type", &type));
    GW_TRY(gw_json_text(where, module, "path", part));
    const char *dot = strrchr(type, '.');
    *class = dot != NULL ? dot + 1 : type;
    if (strstr(*part, "..") != NULL || (*part)[0] == '/') {
        return gw_fail(GW_E_METADATA, where, "names \"%.80s\", which is no part of the folder",
                       *part);
    }
    return GW_OK;
}

gw_status gw_sentence_first(const char *folder, char *part, size_t room, int *tabled, int *found) {
    json_t *modules = NULL;
    const char *class = "", *first = "";
    *tabled = *found = 0;
    part[0] = '\0';
    GW_TRY(gw_sentence_json(folder, "", "modules.json", &modules));
    gw_status status = GW_OK;
    if (json_array_size(modules) > 0) {
        *found = 1;
        status = read_entry(folder, json_array_get(modules, 0), &class, &first);
        *tabled = strcmp(class, "StaticEmbedding") == 0;
    }
    if (status == GW_OK && strlen(first) < room) {
        memcpy(part, first, strlen(first) + 1);
    }
    json_decref(modules);
    return status;
}

gw_status gw_sentence_judges(const char *folder, int *judges) {
    json_t *modules = NULL;
    const char *class = "", *part;
    gw_status status = GW_OK;
    *judges = 0;
    GW_TRY(gw_sentence_json(folder, "", "modules.json", &modules));
    for (size_t i = 0; status == GW_OK && i < json_array_size(modules); i++) {
        status = read_entry(folder, json_array_get(modules, i), &class, &part);
        *judges |= strcmp(class, "LogitScore") == 0;
    }
    json_decref(modules);
    return status;
}

/* ---- limits --------------------------------------------------------------------------------- */

/* The settings of the transformer's part, under any of the names that versions gave the file. */
static gw_status read_transformer(const char *folder, const char *part, json_t **out) {
    static const char *const names[] = {
        "sentence_bert_config.json",       "sentence_roberta_config.json",
        "sentence_distilbert_config.json", "sentence_camembert_config.json",
        "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
        "sentence_xlnet_config.json"};
    *out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && *out == NULL; i++) {
        GW_TRY(gw_sentence_settings(folder, part, names[i], out));
    }
    return GW_OK;
}

gw_status gw_sentence_lowers(const char *folder, int *lowers) {
    json_t *root = NULL;
    *lowers = 0;
    GW_TRY(read_transformer(folder, "", &root));
    gw_status status =
        json_is_object(root) ? gw_json_bool(folder, root, "do_lower_case", lowers) : GW_OK;
    json_decref(root);
    return status;
}

static int32_t limit_of(const json_t *value) {
    double n = json_is_number(value) ? json_number_value(value) : 0.0;
    return n >= 1.0 && n < (double)(1 << 30) ? (int32_t)n : 0; /* 1e30: none */
}

/* How pairs are written: the form of contents, and what the template is given besides messages;
 * what else its caller may be given is about lengths. */
static gw_status read_pairs(const char *folder, const json_t *root, gw_sentence *s) {
    static const char *const others[] = {"restore_suffix", "truncation", "max_length", "padding",
                                         "return_tensors", "tokenize",   "return_dict"};
    const json_t *message = json_object_get(json_object_get(root, "modality_config"), "message");
    const char *form = "auto";
    json_t *all = NULL, *given = NULL;
    GW_TRY(json_is_object(message) ? gw_json_text(folder, message, "format", &form) : GW_OK);
    s->structured = strcmp(form, "structured") == 0 ? 1 : strcmp(form, "flat") == 0 ? 0 : -1;
    GW_TRY(gw_json_object(folder, root, "processing_kwargs", &all));
    GW_TRY(all != NULL ? gw_json_object(folder, all, "chat_template", &given) : GW_OK);
    s->variables = given != NULL ? json_copy(given) : NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        json_object_del(s->variables, others[i]);
    }
    return GW_OK;
}

/* "max_seq_length" of the transformer's settings, else the tokenizer's own limit. */
static gw_status read_limit(const char *folder, const char *part, gw_sentence *s) {
    json_t *root = NULL;
    s->structured = -1;
    GW_TRY(read_transformer(folder, part, &root));
    s->n_ctx = limit_of(json_object_get(root, "max_seq_length"));
    gw_status status =
        s->n_judges > 0 && json_is_object(root) ? read_pairs(folder, root, s) : GW_OK;
    json_decref(root);
    GW_TRY(status);
    if (s->n_ctx == 0) {
        GW_TRY(gw_sentence_settings(folder, part, "tokenizer_config.json", &root));
        s->n_ctx = limit_of(json_object_get(root, "model_max_length"));
        json_decref(root);
    }
    return GW_OK;
}

static gw_status read_prompts(const char *folder, gw_sentence *s) {
    static const char name[] = "config_sentence_transformers.json";
    json_t *root = NULL, *prompts = NULL;
    const char *standard = "";
    gw_status status = GW_OK;
    GW_TRY(gw_sentence_settings(folder, "", name, &root));
    if (json_is_object(root)) {
        GW_TRY_DONE(gw_json_object(folder, root, "prompts", &prompts));
        GW_TRY_DONE(gw_json_text(folder, root, "default_prompt_name", &standard));
        s->prompts = json_incref(prompts);
        snprintf(s->standard, sizeof s->standard, "%s", standard);
        s->truncate = limit_of(json_object_get(root, "truncate_dim"));
    }
done:
    json_decref(root);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static gw_status read_all(const char *folder, const char *where, const json_t *modules,
                          gw_sentence *s) {
    const char *class, *part, *first = "";
    if (!json_is_array(modules)) {
        return gw_fail(GW_E_TYPE, where, "must be a list of modules");
    }
    for (size_t i = 0; i < json_array_size(modules); i++) {
        const char *type = json_string_value(json_object_get(json_array_get(modules, i), "type"));
        s->named_late |= type != NULL && strncmp(type, "pylate.", 7) == 0;
        GW_TRY(read_entry(where, json_array_get(modules, i), &class, &part));
        first = i == 0 ? part : first;
        if (gw_module_is_transformer(class) && i > 0) {
            return gw_fail(GW_E_UNSUPPORTED, where,
                           "names a transformer that is not the first module");
        }
        GW_TRY(gw_module_read(folder, where, class, part, s));
    }
    if (s->n_modules > 0 && s->module[s->n_modules - 1].kind == GW_MODULE_NORMALIZE &&
        s->at_pooling >= 0) {
        s->normalize = 1;
        s->n_modules--;
    }
    GW_TRY(read_limit(folder, first, s));
    return read_prompts(folder, s);
}

gw_status gw_sentence_read(const char *folder, gw_sentence *out) {
    char where[4200];
    json_t *modules = NULL;
    gw_sentence s = {.at_pooling = -1};
    *out = s;
    snprintf(where, sizeof where, "%.4096s/modules.json", folder);
    GW_TRY(gw_sentence_json(folder, "", "modules.json", &modules));
    if (modules == NULL) {
        return GW_OK;
    }
    s.found = 1;
    gw_status status = read_all(folder, where, modules, &s);
    json_decref(modules);
    if (status == GW_OK) {
        *out = s;
    } else {
        gw_sentence_free(&s);
    }
    return status;
}

gw_status gw_sentence_project(gw_sentence *s, const char *where, int at, int32_t out, int32_t in,
                              float *matrix) {
    if (s->n_modules == GW_MODULES_MOST) {
        return gw_fail(GW_E_LIMIT, where, "names more than %d modules", GW_MODULES_MOST - 1);
    }
    memmove(&s->module[at + 1], &s->module[at], (size_t)(s->n_modules - at) * sizeof s->module[0]);
    s->module[at] =
        (gw_module){.kind = GW_MODULE_DENSE, .dense = {.in = in, .out = out, .weight = matrix}};
    s->n_modules++;
    s->at_pooling += s->at_pooling >= at;
    return GW_OK;
}

void gw_sentence_free(gw_sentence *s) {
    for (int i = 0; i < GW_MODULES_MOST; i++) {
        free(s->module[i].dense.weight);
        free(s->module[i].dense.bias);
        free(s->module[i].dense.straight);
    }
    json_decref(s->prompts);
    json_decref(s->variables);
    memset(s, 0, sizeof *s);
    s->at_pooling = -1;
}
