/* core/model/hf_vocab.c - the tokenizer files of a Hugging Face folder -> gw_vocab.
 *
 * tokenizer.json, else tokenizer.model; then tokenizer_config.json, config.json and
 * generation_config.json say which tokens begin and end a text.
 */
#include <inttypes.h>
#include <string.h>

#include "core/model/checkpoint_parts.h"

typedef gw_status (*vocab_reader)(const char *where, const void *bytes, size_t n, gw_vocab *out);

static gw_status read_file(gw_checkpoint *c, const char *name, vocab_reader reader, gw_vocab *v,
                           int *found) {
    const char *path = gw_checkpoint_join(c, c->where, name);
    if (path == NULL) {
        return gw_checkpoint_nomem(c);
    }
    *found = gw_path_look(path) != GW_PATH_NONE;
    if (!*found) {
        return GW_OK;
    }
    gw_file file;
    GW_TRY(gw_file_open(path, path, &file));
    gw_status status = reader(path, file.data != NULL ? file.data : "", (size_t)file.size, v);
    gw_file_close(&file);
    return status;
}

/* A special token is written as a string or as an object with its content. -1: not known. */
static int32_t token_id(const json_t *config, const char *key, const gw_vocab *v) {
    const json_t *value = json_object_get(config, key);
    const char *text =
        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    size_t n = text != NULL ? strlen(text) : 0;
    for (size_t i = 0; i < v->n_tokens && text != NULL; i++) {
        if (v->tokens[i].bytes == n && memcmp(v->tokens[i].text, text, n) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

static void add_end(gw_vocab *v, int32_t id) {
    for (int i = 0; i < v->n_end; i++) {
        if (v->end[i] == id) {
            return;
        }
    }
    if ((size_t)v->n_end < sizeof v->end / sizeof v->end[0]) {
        v->end[v->n_end++] = id;
    }
}

/* An id of config.json; null and negative numbers mean none, rows beyond the tokens are padding. */
static gw_status check_id(const char *where, const char *key, const json_t *value,
                          const gw_checkpoint *c, const gw_vocab *v, int32_t *out) {
    int64_t limit = c->has_hparams ? c->hparams.n_vocab : (int64_t)v->n_tokens;
    if (!json_is_integer(value)) {
        return gw_fail(GW_E_TYPE, where, "\"%s\" must be a token id", key);
    }
    int64_t id = json_integer_value(value);
    if (id >= limit && id >= (int64_t)v->n_tokens) {
        return gw_fail(GW_E_METADATA, where, "\"%s\" is %" PRId64 "; there are %" PRId64 " tokens",
                       key, id, limit);
    }
    *out = id >= 0 && id < (int64_t)v->n_tokens ? (int32_t)id : -1;
    return GW_OK;
}

/* eos_token_id of either file: one id or a list; every one ends a text. */
static gw_status read_ends(const char *where, const json_t *config, const gw_checkpoint *c,
                           gw_vocab *v) {
    static const char key[] = "eos_token_id";
    if (!gw_json_has(config, key)) {
        return GW_OK;
    }
    const json_t *value = json_object_get(config, key);
    int list = json_is_array(value);
    for (size_t i = 0; i < (list ? json_array_size(value) : 1); i++) {
        int32_t id = -1;
        GW_TRY(check_id(where, key, list ? json_array_get(value, i) : value, c, v, &id));
        if (id >= 0) {
            v->eos = v->eos < 0 ? id : v->eos;
            add_end(v, id);
        }
    }
    return GW_OK;
}

static gw_status read_tokenizer_config(gw_checkpoint *c, gw_vocab *v) {
    json_t *config = NULL;
    GW_TRY(gw_hf_json(c, "tokenizer_config.json", &config));
    if (config == NULL) {
        return GW_OK;
    }
    const struct {
        const char *key;
        int32_t *to;
    } rows[] = {{"bos_token", &v->bos},
                {"eos_token", &v->eos},
                {"unk_token", &v->unk},
                {"pad_token", &v->pad}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t id = token_id(config, rows[i].key, v);
        *rows[i].to = id >= 0 ? id : *rows[i].to;
    }
    gw_status status = gw_json_bool(c->where, config, "add_bos_token", &v->add_bos);
    if (status == GW_OK) {
        status = gw_json_bool(c->where, config, "add_eos_token", &v->add_eos);
    }
    int legacy = 1; /* of tokenizer.model: a space also behind every special token */
    if (status == GW_OK) {
        status = gw_json_bool(c->where, config, "legacy", &legacy);
    }
    v->space_first_only |= v->kind == GW_VOCAB_SPM_BPE && !legacy;
    json_decref(config);
    return status;
}

/* Tokens beyond the embedding: added ones that the weights were never extended for are left out,
 * so that no text can produce them; others mean that tokenizer and weights do not belong together.
 */
static gw_status fit_to_weights(const gw_checkpoint *c, gw_vocab *v) {
    size_t rows = c->has_hparams ? (size_t)c->hparams.n_vocab : v->n_tokens;
    for (size_t i = rows; i < v->n_tokens; i++) {
        if (v->tokens[i].kind != GW_TOKEN_CONTROL && v->tokens[i].kind != GW_TOKEN_USER) {
            return gw_fail(GW_E_METADATA, c->where,
                           "the tokenizer has %zu tokens, the model %zu (vocab_size)", v->n_tokens,
                           rows);
        }
    }
    if (v->n_tokens <= rows) {
        return GW_OK;
    }
    v->n_tokens = rows;
    int32_t *ids[] = {&v->bos, &v->eos, &v->unk, &v->pad};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        *ids[i] = *ids[i] < (int32_t)rows ? *ids[i] : -1;
    }
    int kept = 0;
    for (int i = 0; i < v->n_end; i++) {
        if (v->end[i] < (int32_t)rows) {
            v->end[kept++] = v->end[i];
        }
    }
    v->n_end = kept;
    return GW_OK;
}

static gw_status complete(gw_checkpoint *c, int spm, gw_vocab *v) {
    GW_TRY(fit_to_weights(c, v));
    v->add_bos = spm ? 1 : v->add_bos; /* the slow Llama tokenizer's default */
    GW_TRY(read_tokenizer_config(c, v));
    int32_t bos = -1;
    if (v->bos < 0 && gw_json_has(c->config, "bos_token_id")) {
        GW_TRY(check_id(c->where, "bos_token_id", json_object_get(c->config, "bos_token_id"), c, v,
                        &bos));
        v->bos = bos;
    }
    if (v->eos >= 0) {
        add_end(v, v->eos);
    }
    GW_TRY(read_ends(c->where, c->config, c, v));
    GW_TRY(read_ends(c->where, c->generation, c, v));
    v->add_bos = v->add_bos && v->bos >= 0;
    v->add_eos = v->add_eos && v->eos >= 0;
    return GW_OK;
}

gw_status gw_hf_vocab(gw_checkpoint *c, gw_vocab *out, int *found) {
    gw_vocab v;
    int spm = 0;
    gw_vocab_init(&v);
    GW_TRY(read_file(c, "tokenizer.json", gw_vocab_read_tokenizer_json, &v, found));
    if (!*found) {
        GW_TRY(read_file(c, "tokenizer.model", gw_vocab_read_sentencepiece, &v, found));
        spm = *found;
    }
    if (!*found) {
        const char *path = gw_checkpoint_join(c, c->where, "vocab.json");
        if (path != NULL && gw_path_look(path) != GW_PATH_NONE) {
            return gw_fail(GW_E_UNSUPPORTED, path,
                           "a tokenizer in vocab.json alone is not supported; tokenizer.json is "
                           "needed");
        }
        return GW_OK;
    }
    gw_status status = complete(c, spm, &v);
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    *out = v;
    return GW_OK;
}
