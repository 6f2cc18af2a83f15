/* core/model/hf_vocab_files.c - what tokenizer files next to tokenizer.json leave open, as the code
 * of the models' makers settles it: special tokens, pre-tokenizer, what frames a text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/model/checkpoint_parts.h"

static gw_status nomem(const gw_checkpoint *c) {
    return gw_fail(GW_E_NOMEM, c->where, "no memory for the vocabulary");
}

static gw_status set_token(const gw_checkpoint *c, gw_vocab *v, size_t id, const char *text,
                           gw_token_kind kind) {
    GW_TRY(gw_vocab_grow(c->where, v, id + 1));
    gw_vocab_token *t = &v->tokens[id];
    t->text = gw_arena_copy(v->arena, text, strlen(text));
    t->bytes = (uint32_t)strlen(text);
    t->kind = (uint8_t)kind;
    t->special = kind == GW_TOKEN_CONTROL;
    return t->text != NULL ? GW_OK : nomem(c);
}

static int32_t id_of(const gw_vocab *v, const char *text) {
    for (size_t i = v->n_tokens; i-- > 0;) { /* special tokens are at either end */
        if (v->tokens[i].bytes == strlen(text) &&
            memcmp(v->tokens[i].text, text, v->tokens[i].bytes) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* ---- tiktoken ---------------------------------------------------------------------------- */

/* A row of added_tokens_decoder of tokenizer_config.json: id -> {content, special, lstrip, ...}. */
typedef struct added_row {
    unsigned long id;
    const char *text; /* the file's, not empty */
    int special, lstrip, rstrip, single;
} added_row;

/* special: where the row does not say. */
static gw_status read_added(const gw_checkpoint *c, const char *key, const json_t *row,
                            size_t limit, int special, added_row *out) {
    char *end;
    *out = (added_row){.id = strtoul(key, &end, 10), .special = special};
    if (*key < '0' || *key > '9' || *end != '\0' || out->id >= limit || !json_is_object(row)) {
        return gw_fail(GW_E_METADATA, c->where,
                       "added_tokens_decoder of tokenizer_config.json has the id \"%.40s\"", key);
    }
    GW_TRY(gw_json_text(c->where, row, "content", &out->text));
    GW_TRY(gw_json_bool(c->where, row, "special", &out->special));
    GW_TRY(gw_json_bool(c->where, row, "lstrip", &out->lstrip));
    GW_TRY(gw_json_bool(c->where, row, "rstrip", &out->rstrip));
    GW_TRY(gw_json_bool(c->where, row, "single_word", &out->single));
    return out->text != NULL && *out->text != '\0'
               ? GW_OK
               : gw_fail(GW_E_METADATA, c->where,
                         "token %lu of added_tokens_decoder has no content", out->id);
}

static void take_strips(gw_vocab_token *t, const added_row *row) {
    t->lstrip = (uint8_t)row->lstrip;
    t->rstrip = (uint8_t)row->rstrip;
    t->single_word = (uint8_t)row->single;
}

static gw_status add_named(const gw_checkpoint *c, json_t *names, gw_vocab *v, size_t limit) {
    const char *key;
    json_t *row;
    json_object_foreach(names, key, row) {
        added_row r;
        GW_TRY(read_added(c, key, row, limit, 1, &r));
        GW_TRY(set_token(c, v, r.id, r.text, r.special ? GW_TOKEN_CONTROL : GW_TOKEN_USER));
        take_strips(&v->tokens[r.id], &r);
    }
    return GW_OK;
}

/* Places from `first` on that have no name get one with their number less `zero`. */
static gw_status name_rest(const gw_checkpoint *c, gw_vocab *v, size_t first, size_t n, size_t zero,
                           const char *format) {
    GW_TRY(gw_vocab_grow(c->where, v, first + n));
    for (size_t i = first; i < first + n; i++) {
        char name[64];
        if (v->tokens[i].bytes == 0) {
            int length = snprintf(name, sizeof name, "%s%zu|>", format, i - zero);
            GW_TRY(length > 0 ? set_token(c, v, i, name, GW_TOKEN_CONTROL) : GW_OK);
        }
    }
    return GW_OK;
}

enum { SPECIALS = 256 }; /* of Llama 3 and Kimi */

/* Llama 3 by heart; 3.1 renamed some of the reserved ones. */
static gw_status add_llama3(gw_checkpoint *c, gw_vocab *v) {
    static const struct {
        const char *name;
        size_t at;
        int later;
    } NAMES[] = {{"<|begin_of_text|>", 0, 0},
                 {"<|end_of_text|>", 1, 0},
                 {"<|finetune_right_pad_id|>", 4, 1},
                 {"<|start_header_id|>", 6, 0},
                 {"<|end_header_id|>", 7, 0},
                 {"<|eom_id|>", 8, 1},
                 {"<|eot_id|>", 9, 0},
                 {"<|python_tag|>", 10, 1}};
    json_t *params = NULL;
    int later = 0;
    size_t first = v->n_tokens, reserved = 0;
    GW_TRY(gw_hf_json(c, "params.json", &params));
    gw_status status =
        params != NULL ? gw_json_bool(c->where, params, "use_scaled_rope", &later) : GW_OK;
    json_decref(params);
    GW_TRY(status);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (!NAMES[i].later || later) {
            GW_TRY(set_token(c, v, first + NAMES[i].at, NAMES[i].name, GW_TOKEN_CONTROL));
        }
    }
    GW_TRY(gw_vocab_grow(c->where, v, first + SPECIALS));
    for (size_t i = first; i < first + SPECIALS; i++) {
        char name[64];
        if (v->tokens[i].bytes == 0) {
            snprintf(name, sizeof name, "<|reserved_special_token_%zu|>", reserved++);
            GW_TRY(set_token(c, v, i, name, GW_TOKEN_CONTROL));
        }
    }
    v->bos = (int32_t)first;
    v->eos = (int32_t)first + 1;
    v->add_bos = 1;
    return GW_OK;
}

static gw_status add_qwen(gw_checkpoint *c, gw_vocab *v) {
    enum { EXTRA = 205 };
    const gw_vocab_step nfc = {.kind = GW_CHANGE_NFC};
    size_t first = v->n_tokens;
    GW_TRY(set_token(c, v, first, "<|endoftext|>", GW_TOKEN_CONTROL));
    GW_TRY(set_token(c, v, first + 1, "<|im_start|>", GW_TOKEN_CONTROL));
    GW_TRY(set_token(c, v, first + 2, "<|im_end|>", GW_TOKEN_CONTROL));
    v->eos = (int32_t)first;
    GW_TRY(name_rest(c, v, first + 3, EXTRA, first + 3, "<|extra_"));
    return gw_vocab_add_step(v, &v->normal, &v->n_normal, &nfc);
}

gw_status gw_hf_tiktoken(gw_checkpoint *c, const char *name, gw_vocab *v) {
    json_t *config = NULL, *names = NULL;
    size_t first = v->n_tokens;
    int qwen = strcmp(name, "qwen.tiktoken") == 0, kimi = strcmp(name, "tiktoken.model") == 0;
    GW_TRY(gw_hf_json(c, "tokenizer_config.json", &config));
    gw_status status = GW_OK;
    if (config != NULL) {
        status = gw_json_object(c->where, config, "added_tokens_decoder", &names);
    }
    if (status == GW_OK && names != NULL) {
        status = add_named(c, names, v, first + (1 << 16));
    }
    int named = names != NULL && json_object_size(names) > 0;
    json_decref(config);
    GW_TRY(status);
    if (kimi) {
        GW_TRY(name_rest(c, v, first, SPECIALS, 0, "<|reserved_token_"));
    } else if (!named) {
        GW_TRY(qwen ? add_qwen(c, v) : add_llama3(c, v));
    }
    snprintf(v->pre, sizeof v->pre, "%s", kimi ? "kimi-k2" : qwen ? "qwen2" : "llama-bpe");
    return gw_vocab_check(c->where, v);
}

/* ---- SentencePiece ----------------------------------------------------------------------- */

static gw_status set_frame(const gw_checkpoint *c, gw_vocab *v, const gw_vocab_part *pair,
                           size_t n) {
    v->pair = gw_arena_array(v->arena, n, sizeof *pair);
    if (v->pair == NULL) {
        return nomem(c);
    }
    memcpy(v->pair, pair, n * sizeof *pair);
    v->n_pair = n;
    return GW_OK;
}

/* XLM-R: the file's <unk> <s> </s> are <s> <pad> </s> <unk> of the model, everything after moves
 * by one, and <mask> is the last. */
static gw_status settle_xlm_roberta(gw_checkpoint *c, gw_vocab *v) {
    size_t n = v->n_tokens;
    if (n < 4) {
        return gw_fail(GW_E_METADATA, c->where, "a vocabulary of %zu pieces", n);
    }
    GW_TRY(gw_vocab_grow(c->where, v, n + 2));
    memmove(v->tokens + 4, v->tokens + 3, (n - 3) * sizeof *v->tokens);
    memset(v->tokens, 0, 4 * sizeof *v->tokens);
    GW_TRY(set_token(c, v, 0, "<s>", GW_TOKEN_CONTROL));
    GW_TRY(set_token(c, v, 1, "<pad>", GW_TOKEN_CONTROL));
    GW_TRY(set_token(c, v, 2, "</s>", GW_TOKEN_CONTROL));
    GW_TRY(set_token(c, v, 3, "<unk>", GW_TOKEN_UNKNOWN));
    GW_TRY(set_token(c, v, n + 1, "<mask>", GW_TOKEN_CONTROL));
    v->tokens[n + 1].lstrip = 1;
    v->bos = 0;
    v->pad = 1;
    v->eos = v->sep = 2;
    v->unk = 3;
    v->n_end = 0;
    v->add_bos = v->add_eos = 1;
    return GW_OK;
}

static gw_status settle_albert(gw_checkpoint *c, gw_vocab *v) {
    v->bos = id_of(v, "[CLS]");
    v->eos = id_of(v, "[SEP]");
    v->add_bos = v->bos >= 0;
    v->add_eos = v->eos >= 0;
    const gw_vocab_part pair[] = {
        {v->bos, 0}, {GW_FRAME_TEXT, 0}, {v->eos, 0}, {GW_FRAME_PAIR, 1}, {v->eos, 1}};
    return v->bos >= 0 && v->eos >= 0 ? set_frame(c, v, pair, 5) : GW_OK;
}

/* T5: no bos; 100 sentinels from the last id down, unless the file has them. */
static gw_status settle_t5(gw_checkpoint *c, const json_t *config, gw_vocab *v) {
    int64_t extra = 100;
    size_t n = v->n_tokens;
    v->add_bos = 0;
    v->add_eos = v->eos >= 0;
    if (id_of(v, "<extra_id_0>") >= 0) {
        return GW_OK;
    }
    GW_TRY(config != NULL ? gw_json_int(c->where, config, "extra_ids", &extra) : GW_OK);
    if (extra < 0 || extra > 10000) {
        return gw_fail(GW_E_METADATA, c->where, "extra_ids is %lld", (long long)extra);
    }
    for (int64_t i = 0; i < extra; i++) {
        char name[32];
        snprintf(name, sizeof name, "<extra_id_%lld>", (long long)i);
        GW_TRY(set_token(c, v, n + (size_t)(extra - 1 - i), name, GW_TOKEN_CONTROL));
    }
    return GW_OK;
}

/* ---- SentencePiece whose numbers stand in vocab.json ----------------------------------------- */

/* ">>fra<<" of Marian. */
static int is_mark(const char *text, size_t n) {
    return n > 4 && memcmp(text, ">>", 2) == 0 && memcmp(text + n - 2, "<<", 2) == 0;
}

/* A token of vocab.json: the piece of this name, or one that no text is cut into. */
static void name_token(gw_vocab_token *to, const gw_vocab *pieces, const gw_map *map,
                       const char *name) {
    size_t at, n = strlen(name);
    if (gw_map_find(map, name, n, &at)) {
        *to = pieces->tokens[at];
        return;
    }
    *to = (gw_vocab_token){.bytes = (uint32_t)n, .kind = GW_TOKEN_UNUSED};
    if (is_mark(name, n)) {
        to->kind = GW_TOKEN_CONTROL;
        to->special = 1;
    }
}

/* Tokens [*n] by the numbers of vocab.json; pieces that it lacks are no tokens of the model. */
static gw_status number_tokens(const gw_checkpoint *c, const gw_vocab *pieces, json_t *numbers,
                               gw_vocab_token **out, size_t *n) {
    size_t count = json_object_size(numbers);
    gw_map *map = gw_map_new();
    gw_vocab_token *tokens = gw_arena_array(pieces->arena, count + 1, sizeof *tokens);
    const char *name;
    json_t *number;
    gw_status status = map != NULL && tokens != NULL ? GW_OK : nomem(c);
    for (size_t i = 0; i < pieces->n_tokens && status == GW_OK; i++) {
        const gw_vocab_token *t = &pieces->tokens[i];
        status = gw_map_add(map, t->text, t->bytes, i, NULL) != GW_MAP_NOMEM ? GW_OK : nomem(c);
    }
    for (size_t i = 0; i < count && status == GW_OK; i++) {
        tokens[i] = (gw_vocab_token){.bytes = 0};
    }
    json_object_foreach(numbers, name, number) {
        json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
        if (status != GW_OK) {
            break;
        }
        if (id < 0 || (uint64_t)id >= count || tokens[id].bytes > 0 || *name == '\0') {
            status = gw_fail(GW_E_METADATA, c->where,
                             "vocab.json does not number its %zu tokens: \"%.40s\"", count, name);
            break;
        }
        name_token(&tokens[id], pieces, map, name);
        tokens[id].text = gw_arena_copy(pieces->arena, name, strlen(name));
        status = tokens[id].text != NULL ? GW_OK : nomem(c);
    }
    gw_map_free(map);
    *out = tokens;
    *n = count;
    return status;
}

static gw_status control(const gw_checkpoint *c, gw_vocab *v, const char *name, gw_token_kind kind,
                         int32_t *id) {
    *id = id_of(v, name);
    return *id >= 0 ? set_token(c, v, (size_t)*id, name, kind) : GW_OK;
}

/* Languages of M2M-100 stand after the tokens of vocab.json, in the order of the tokenizer's
 * additional special tokens; a source begins with its own. */
static gw_status add_languages(gw_checkpoint *c, const json_t *config, gw_vocab *v) {
    json_t *map = NULL, *names, *given = json_object_get(config, "additional_special_tokens");
    const char *own = "en";
    char name[80];
    size_t i;
    json_t *row;
    GW_TRY(gw_hf_json(c, "special_tokens_map.json", &map));
    names = json_object_get(map, "additional_special_tokens");
    names = json_array_size(names) > 0 ? names : given;
    gw_status status = GW_OK;
    json_array_foreach(names, i, row) {
        const char *text = json_is_object(row) ? json_string_value(json_object_get(row, "content"))
                                               : json_string_value(row);
        if (status == GW_OK && text != NULL && id_of(v, text) < 0) {
            status = set_token(c, v, v->n_tokens, text, GW_TOKEN_CONTROL);
        }
    }
    json_decref(map);
    if (status == GW_OK && config != NULL) {
        status = gw_json_text(c->where, config, "src_lang", &own);
    }
    snprintf(name, sizeof name, "__%.60s__", own);
    v->bos = id_of(v, name);
    v->add_bos = v->bos >= 0;
    return status;
}

/* M2M-100 and Marian. */
static gw_status settle_numbered(gw_checkpoint *c, const json_t *config, int languages,
                                 gw_vocab *v) {
    json_t *numbers = NULL;
    gw_vocab_token *tokens = NULL;
    size_t n = 0;
    GW_TRY(gw_hf_json(c, "vocab.json", &numbers));
    gw_status status =
        numbers != NULL
            ? number_tokens(c, v, numbers, &tokens, &n)
            : gw_fail(GW_E_METADATA, c->where, "vocab.json with the numbers of tokens is missing");
    json_decref(numbers);
    GW_TRY(status);
    v->tokens = tokens;
    v->n_tokens = n;
    v->bos = v->sep = -1;
    v->n_end = 0;
    GW_TRY(control(c, v, "</s>", GW_TOKEN_CONTROL, &v->eos));
    GW_TRY(control(c, v, "<pad>", GW_TOKEN_CONTROL, &v->pad));
    GW_TRY(control(c, v, "<unk>", GW_TOKEN_UNKNOWN, &v->unk));
    int32_t begin;
    GW_TRY(control(c, v, "<s>", GW_TOKEN_CONTROL, &begin));
    v->add_bos = 0;
    v->add_eos = v->eos >= 0;
    return languages ? add_languages(c, config, v) : GW_OK;
}

/* ---- tokens that a fine-tune adds to a SentencePiece file ------------------------------------ */

enum { ADDED_MOST = 1 << 13 };

/* One of them; where the file has the token already, it only becomes a special one. */
static gw_status add_token(const gw_checkpoint *c, gw_vocab *v, size_t own, size_t id,
                           const char *text, int special) {
    int32_t known = id_of(v, text);
    if (*text == '\0' || id >= own + ADDED_MOST) {
        return gw_fail(GW_E_METADATA, c->where, "an added token \"%.40s\" has the number %zu", text,
                       id);
    }
    if (known >= 0) {
        gw_vocab_token *t = &v->tokens[known];
        int plain = t->kind == GW_TOKEN_NORMAL || t->kind == GW_TOKEN_USER;
        t->kind =
            (uint8_t)(plain && (size_t)known < own ? (special ? GW_TOKEN_CONTROL : GW_TOKEN_USER)
                                                   : t->kind);
        t->special |= (uint8_t)special;
        return GW_OK;
    }
    /* one of the file's numbers: the token has another name than the file says (InternLM2) */
    return set_token(c, v, id, text, special ? GW_TOKEN_CONTROL : GW_TOKEN_USER);
}

/* added_tokens_decoder of tokenizer_config.json, which says what they are. */
static gw_status add_decoder(const gw_checkpoint *c, const json_t *names, gw_vocab *v, size_t own) {
    const char *key;
    json_t *row;
    json_object_foreach((json_t *)(uintptr_t)names, key, row) {
        added_row r;
        GW_TRY(read_added(c, key, row, SIZE_MAX, 0, &r));
        GW_TRY(add_token(c, v, own, r.id, r.text, r.special));
        int32_t at = id_of(v, r.text);
        if (at >= 0 && (size_t)at >= own) {
            take_strips(&v->tokens[at], &r);
        }
    }
    return GW_OK;
}

/* Older folders: added_tokens.json has their numbers, special_tokens_map.json names special ones.
 */
static gw_status add_numbers(gw_checkpoint *c, const json_t *numbers, gw_vocab *v, size_t own) {
    json_t *map = NULL, *list, *id;
    const char *text;
    GW_TRY(gw_hf_json(c, "special_tokens_map.json", &map));
    list = json_object_get(map, "additional_special_tokens");
    gw_status status = GW_OK;
    json_object_foreach((json_t *)(uintptr_t)numbers, text, id) {
        int special = text[0] == '<' || text[0] == '[';
        for (size_t i = 0; i < json_array_size(list); i++) {
            json_t *x = json_array_get(list, i);
            const char *name =
                json_string_value(json_is_object(x) ? json_object_get(x, "content") : x);
            special |= name != NULL && strcmp(name, text) == 0;
        }
        json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        status = number >= 0 ? add_token(c, v, own, (size_t)number, text, special)
                             : gw_fail(GW_E_METADATA, c->where,
                                       "added_tokens.json has no number for \"%.40s\"", text);
        if (status != GW_OK) {
            break;
        }
    }
    json_decref(map);
    return status;
}

static gw_status add_tokens(gw_checkpoint *c, gw_vocab *v) {
    json_t *config = NULL, *names = NULL, *numbers = NULL;
    size_t own = v->n_tokens;
    gw_status status;
    GW_TRY(gw_hf_json(c, "tokenizer_config.json", &config));
    GW_TRY_DONE(config != NULL ? gw_json_object(c->where, config, "added_tokens_decoder", &names)
                               : GW_OK);
    GW_TRY_DONE(add_decoder(c, names, v, own));
    GW_TRY_DONE(gw_hf_json(c, "added_tokens.json", &numbers));
    GW_TRY_DONE(add_numbers(c, numbers, v, own));
    for (size_t i = own; i < v->n_tokens; i++) { /* numbers that nobody has */
        char name[40];
        if (v->tokens[i].bytes == 0) {
            snprintf(name, sizeof name, "<|unused_%zu|>", i);
            GW_TRY_DONE(set_token(c, v, i, name, GW_TOKEN_CONTROL));
        }
    }
    status = GW_OK;
done:
    json_decref(config);
    json_decref(numbers);
    return status;
}

static int has(const char *text, const char *word) { return strstr(text, word) != NULL; }

gw_status gw_hf_model_file(gw_checkpoint *c, const char *name, gw_vocab *v) {
    json_t *config = NULL;
    const char *class = "", *type = "";
    if (v->kind == GW_VOCAB_BYTE_RANKS) {
        return gw_hf_tiktoken(c, name, v);
    }
    if (v->kind != GW_VOCAB_SPM_UNIGRAM) {
        GW_TRY(add_tokens(c, v));
        return gw_vocab_check(c->where, v);
    }
    GW_TRY(gw_hf_json(c, "tokenizer_config.json", &config));
    gw_status status = GW_OK;
    if (config != NULL) {
        status = gw_json_text(c->where, config, "tokenizer_class", &class);
    }
    if (status == GW_OK && c->config != NULL) {
        status = gw_json_text(c->where, c->config, "model_type", &type);
    }
    v->add_bos = 0;
    if (status == GW_OK && strcmp(name, "source.spm") == 0) {
        status = settle_numbered(c, config, 0, v);
    } else if (status == GW_OK && (has(class, "M2M100") || has(type, "m2m_100")) &&
               gw_path_look(gw_checkpoint_join(c, c->where, "vocab.json")) != GW_PATH_NONE) {
        status = settle_numbered(c, config, 1, v);
    } else if (status == GW_OK && (has(class, "XLMRoberta") || has(type, "xlm-roberta") ||
                                   strcmp(name, "sentencepiece.bpe.model") == 0)) {
        status = settle_xlm_roberta(c, v);
    } else if (status == GW_OK && (has(class, "Albert") || has(type, "albert"))) {
        status = settle_albert(c, v);
    } else if (status == GW_OK &&
               (has(class, "T5") || has(type, "t5") || strcmp(name, "spiece.model") == 0)) {
        status = settle_t5(c, config, v);
    }
    json_decref(config);
    GW_TRY(status);
    GW_TRY(add_tokens(c, v));
    return gw_vocab_check(c->where, v);
}
