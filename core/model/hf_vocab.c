/* core/model/hf_vocab.c - the tokenizer files of a Hugging Face folder -> gw_vocab.
 *
 * tokenizer.json, else one of the files of FILES; then tokenizer_config.json, config.json and
 * generation_config.json say which tokens begin and end a text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/model/checkpoint_parts.h"
#include "core/model/sentence.h"

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

/* vocab.txt alone: how the text is normalized, and the names of what frames it. */
static gw_status read_bert_config(const gw_checkpoint *c, const json_t *config, gw_vocab *v) {
    int lower = 1, accents = -1, han = 1;
    GW_TRY(gw_json_bool(c->where, config, "do_lower_case", &lower));
    GW_TRY(gw_json_bool(c->where, config, "strip_accents", &accents));
    GW_TRY(gw_json_bool(c->where, config, "tokenize_chinese_chars", &han));
    const struct {
        const char *key;
        int32_t *to;
    } rows[] = {{"cls_token", &v->bos},
                {"sep_token", &v->eos},
                {"unk_token", &v->unk},
                {"pad_token", &v->pad},
                {"mask_token", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t id = token_id(config, rows[i].key, v);
        if (id >= 0) {
            v->tokens[id].kind = GW_TOKEN_CONTROL;
            v->tokens[id].special = 1;
        }
        if (id >= 0 && rows[i].to != NULL) {
            *rows[i].to = id;
        }
    }
    v->add_bos = v->bos >= 0;
    v->add_eos = v->eos >= 0;
    v->n_pair = 0;
    return gw_vocab_bert(c->where, v, lower, accents, han);
}

static gw_status read_tokenizer_config(gw_checkpoint *c, int has_json, gw_vocab *v) {
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
    int bos = v->add_bos, eos = v->add_eos;
    gw_status status = gw_json_bool(c->where, config, "add_bos_token", &v->add_bos);
    if (status == GW_OK) {
        status = gw_json_bool(c->where, config, "add_eos_token", &v->add_eos);
    }
    if (bos != v->add_bos || eos != v->add_eos) { /* the template says otherwise */
        v->n_single = 0;
    }
    int legacy = 1; /* of tokenizer.model: a space also after every special token */
    if (status == GW_OK) {
        status = gw_json_bool(c->where, config, "legacy", &legacy);
    }
    v->space_first_only |= v->kind == GW_VOCAB_SPM_BPE && !legacy;
    if (status == GW_OK && v->kind == GW_VOCAB_WORDPIECE && !has_json) {
        status = read_bert_config(c, config, v);
    }
    json_decref(config);
    return status;
}

static int has_parts(const gw_vocab_part *parts, size_t n, size_t n_tokens) {
    for (size_t i = 0; i < n; i++) {
        if (parts[i].id >= (int64_t)n_tokens) {
            return 0;
        }
    }
    return 1;
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
    int32_t *ids[] = {&v->bos, &v->eos, &v->unk, &v->pad, &v->sep};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        *ids[i] = *ids[i] < (int32_t)rows ? *ids[i] : -1;
    }
    for (size_t i = 0; i < GW_FILL_MARKS; i++) {
        v->fill[i] = v->fill[i] < (int32_t)rows ? v->fill[i] : -1;
    }
    int kept = 0;
    for (int i = 0; i < v->n_end; i++) {
        if (v->end[i] < (int32_t)rows) {
            v->end[kept++] = v->end[i];
        }
    }
    v->n_end = kept;
    v->n_single = has_parts(v->single, v->n_single, rows) ? v->n_single : 0;
    v->n_pair = has_parts(v->pair, v->n_pair, rows) ? v->n_pair : 0;
    return GW_OK;
}

/* "do_lower_case" of an embedding model: texts become lower case before anything else does. */
static gw_status lower_first(const gw_checkpoint *c, gw_vocab *v) {
    const gw_vocab_step step = {.kind = GW_CHANGE_LOWERCASE};
    int lowers = 0;
    GW_TRY(gw_sentence_lowers(c->where, &lowers));
    if (!lowers) {
        return GW_OK;
    }
    GW_TRY(gw_vocab_add_step(v, &v->normal, &v->n_normal, &step));
    gw_vocab_step added = v->normal[v->n_normal - 1];
    memmove(v->normal + 1, v->normal, (v->n_normal - 1) * sizeof *v->normal);
    v->normal[0] = added;
    return GW_OK;
}

static gw_status complete(gw_checkpoint *c, int has_json, gw_vocab *v) {
    GW_TRY(lower_first(c, v));
    GW_TRY(fit_to_weights(c, v));
    if (v->kind == GW_VOCAB_SPM_BPE) {
        v->add_bos = 1; /* the slow Llama tokenizer's default */
    }
    GW_TRY(read_tokenizer_config(c, has_json, v));
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
    if (c->tabled) { /* its mean is of the text's own tokens */
        v->add_bos = v->add_eos = 0;
        v->n_single = v->n_pair = 0;
    }
    return GW_OK;
}

/* ---- which file -------------------------------------------------------------------------- */

static int is_base64_char(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/';
}

/* tokenizer.model is SentencePiece's, or text in tiktoken's form; a message of the first begins
 * with a byte below the letters. */
static gw_status read_model_file(const char *where, const void *bytes, size_t n, gw_vocab *out) {
    return n > 0 && is_base64_char(*(const char *)bytes)
               ? gw_vocab_read_tiktoken(where, bytes, n, out)
               : gw_vocab_read_sentencepiece(where, bytes, n, out);
}

/* In this order; settle: what the file itself leaves open. */
static const struct {
    const char *name;
    vocab_reader read;
    gw_status (*settle)(gw_checkpoint *c, const char *name, gw_vocab *v);
} FILES[] = {{"tokenizer.json", gw_vocab_read_tokenizer_json, NULL},
             {"tekken.json", gw_vocab_read_tekken, NULL},
             {"tiktoken.model", gw_vocab_read_tiktoken, gw_hf_tiktoken},
             {"tokenizer.model", read_model_file, gw_hf_model_file},
             {"spiece.model", gw_vocab_read_sentencepiece, gw_hf_model_file},
             {"sentencepiece.bpe.model", gw_vocab_read_sentencepiece, gw_hf_model_file},
             {"spm.model", gw_vocab_read_sentencepiece, gw_hf_model_file},
             {"source.spm", gw_vocab_read_sentencepiece, gw_hf_model_file},
             {"rwkv_vocab_v20230424.txt", gw_vocab_read_rwkv, NULL},
             {"vocab.txt", gw_vocab_read_vocab_txt, NULL},
             {"tokenizer.bin", gw_vocab_read_llama2c, NULL}};

static int ends_in(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

int gw_hf_is_vocab_file(const char *name) {
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        if (strcmp(name, FILES[i].name) == 0) {
            return 1;
        }
    }
    return ends_in(name, ".tiktoken");
}

/* NAME.tiktoken, whatever it is called: the first by name. */
static gw_status read_any_tiktoken(gw_checkpoint *c, gw_vocab *v, int *found) {
    char name[256] = "";
    DIR *dir = c->vocab_file == NULL ? opendir(c->where) : NULL;
    if (c->vocab_file != NULL) {
        snprintf(name, sizeof name, "%s", c->vocab_file);
    }
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (ends_in(e->d_name, ".tiktoken") && strlen(e->d_name) < sizeof name &&
            (*name == '\0' || strcmp(e->d_name, name) < 0)) {
            memcpy(name, e->d_name, strlen(e->d_name) + 1);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (*name == '\0') {
        return GW_OK;
    }
    GW_TRY(read_file(c, name, gw_vocab_read_tiktoken, v, found));
    return gw_hf_tiktoken(c, name, v);
}

static gw_status read_first(gw_checkpoint *c, gw_vocab *v, int *found, int *has_json) {
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        if (c->vocab_file != NULL && strcmp(c->vocab_file, FILES[i].name) != 0) {
            continue;
        }
        GW_TRY(read_file(c, FILES[i].name, FILES[i].read, v, found));
        if (*found) {
            *has_json = i == 0;
            return FILES[i].settle != NULL ? FILES[i].settle(c, FILES[i].name, v) : GW_OK;
        }
    }
    GW_TRY(read_any_tiktoken(c, v, found));
    const char *path = gw_checkpoint_join(c, c->where, "vocab.json");
    if (!*found && path != NULL && gw_path_look(path) != GW_PATH_NONE) {
        return gw_fail(GW_E_UNSUPPORTED, path,
                       "a tokenizer in vocab.json alone is not supported; tokenizer.json is "
                       "needed");
    }
    return GW_OK;
}

gw_status gw_hf_vocab(gw_checkpoint *c, gw_vocab *out, int *found) {
    gw_vocab v;
    int has_json = 0;
    gw_vocab_init(&v);
    gw_status status = read_first(c, &v, found, &has_json);
    if (status == GW_OK && *found) {
        status = complete(c, has_json, &v);
    }
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    if (*found) {
        *out = v;
    }
    return GW_OK;
}
