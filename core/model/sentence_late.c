/* core/model/sentence_late.c - settings of late interaction (Khattab and Zaharia 2020,
 * arXiv:2004.12832): config_sentence_transformers.json as PyLate writes it, artifact.metadata as
 * ColBERT's own library does; see sentence.h. */
#include <stdio.h>
#include <string.h>

#include "core/model/sentence.h"

/* A member that is there and not null. */
static const json_t *stated(const json_t *root, const char *key) {
    const json_t *value = json_object_get(root, key);
    return json_is_null(value) ? NULL : value;
}

static gw_status take_text(const char *where, const json_t *root, const char *key, char *out,
                           size_t room) {
    const json_t *value = stated(root, key);
    if (value == NULL) {
        return GW_OK;
    }
    if (!json_is_string(value) || json_string_length(value) >= room) {
        return gw_fail(GW_E_TYPE, where, "\"%s\" must be a text of less than %zu bytes", key, room);
    }
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    return GW_OK;
}

static gw_status take_length(const char *where, const json_t *root, const char *key, int32_t *out) {
    const json_t *value = stated(root, key);
    if (value == NULL) {
        return GW_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 3 ||
        json_integer_value(value) > INT32_MAX) {
        return gw_fail(GW_E_TYPE, where, "\"%s\" must be a number of tokens, 3 or more", key);
    }
    *out = (int32_t)json_integer_value(value);
    return GW_OK;
}

static gw_status take_flag(const char *where, const json_t *root, const char *key, int *out) {
    return stated(root, key) == NULL ? GW_OK : gw_json_bool(where, root, key, out);
}

/* Names of the members, in the order of the two libraries' files. */
typedef struct naming {
    const char *file, *prefix[2], *length[2], *sees;
} naming;
static const naming pylate = {"config_sentence_transformers.json",
                              {"document_prefix", "query_prefix"},
                              {"document_length", "query_length"},
                              "attend_to_expansion_tokens"};
static const naming stanford = {"artifact.metadata",
                                {"doc_token_id", "query_token_id"},
                                {"doc_maxlen", "query_maxlen"},
                                "attend_to_mask_tokens"};

static gw_status take_all(const char *where, const json_t *root, const naming *n, gw_late *out) {
    for (int i = 0; i < 2; i++) {
        GW_TRY(take_text(where, root, n->prefix[i], out->prefix[i], sizeof out->prefix[i]));
        GW_TRY(take_length(where, root, n->length[i], &out->length[i]));
    }
    GW_TRY(take_flag(where, root, n->sees, &out->sees));
    GW_TRY(take_flag(where, root, "do_query_expansion", &out->expands));
    const json_t *words = stated(root, "skiplist_words");
    if (words != NULL && !json_is_array(words)) {
        return gw_fail(GW_E_TYPE, where, "\"skiplist_words\" must be a list");
    }
    out->skips = words != NULL ? json_deep_copy(words) : NULL;
    return GW_OK;
}

/* The mask token's text, which queries are filled up with. */
static gw_status take_mask(const char *folder, gw_late *out) {
    json_t *root = NULL;
    GW_TRY(gw_sentence_settings(folder, "", "tokenizer_config.json", &root));
    const json_t *mask = json_object_get(root, "mask_token");
    mask = json_is_object(mask) ? json_object_get(mask, "content") : mask;
    if (json_is_string(mask) && json_string_length(mask) < sizeof out->mask) {
        memcpy(out->mask, json_string_value(mask), json_string_length(mask) + 1);
    }
    json_decref(root);
    return GW_OK;
}

gw_status gw_late_read(const char *folder, int own_library, gw_late *out) {
    const naming *n = own_library ? &stanford : &pylate;
    json_t *root = NULL;
    char where[4200];
    gw_late late = {.length = {180, 32}, .expands = 1, .mask = "[MASK]"};
    memcpy(late.prefix[0], own_library ? "[unused1]" : "[D] ", own_library ? 10 : 5);
    memcpy(late.prefix[1], own_library ? "[unused0]" : "[Q] ", own_library ? 10 : 5);
    snprintf(where, sizeof where, "%.4096s/%s", folder, n->file);
    GW_TRY(take_mask(folder, &late));
    GW_TRY(gw_sentence_settings(folder, "", n->file, &root));
    gw_status status = json_is_object(root) ? take_all(where, root, n, &late) : GW_OK;
    json_decref(root);
    if (status == GW_OK) {
        late.sees = late.sees && late.expands;
        *out = late;
    } else {
        gw_late_free(&late);
    }
    return status;
}

void gw_late_free(gw_late *late) {
    json_decref(late->skips);
    memset(late, 0, sizeof *late);
}
