/* core/text/tokens/vocab_json.c - reads the model and the added tokens of a tokenizer.json. */
#include "core/text/tokens/vocab_json.h"

#include <string.h>

#include "core/base/hash.h"

enum { ID_SLACK = 65536 }; /* ids may have holes, but not many more than there are tokens */

static gw_status no_memory(const char *where) {
    return gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
}

/* ---- tokens ------------------------------------------------------------------------------ */

static gw_status read_id(const char *where, const json_t *value, const char *text, size_t limit,
                         size_t *id) {
    if (!json_is_integer(value)) {
        return gw_fail(GW_E_TYPE, where, "the id of token \"%.40s\" is not an integer", text);
    }
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number >= limit) {
        return gw_fail(GW_E_METADATA, where, "token \"%.40s\" has the id %lld, out of range", text,
                       (long long)number);
    }
    *id = (size_t)number;
    return GW_OK;
}

/* One walk over both lists finds the largest id, so that the table can be made. */
static gw_status count_ids(const char *where, json_t *vocab, const json_t *added, size_t *n) {
    size_t limit = 2 * (json_object_size(vocab) + json_array_size(added)) + ID_SLACK, most = 0, i;
    const char *text;
    json_t *value;
    json_object_foreach(vocab, text, value) {
        size_t id = 0;
        GW_TRY(read_id(where, value, text, limit, &id));
        most = id + 1 > most ? id + 1 : most;
    }
    json_array_foreach(added, i, value) {
        size_t id = 0;
        if (!json_is_object(value)) {
            return gw_fail(GW_E_TYPE, where, "added token %zu is not an object", i);
        }
        GW_TRY(read_id(where, json_object_get(value, "id"), "(added)", limit, &id));
        most = id + 1 > most ? id + 1 : most;
    }
    *n = most;
    return GW_OK;
}

static gw_status set_text(const char *where, gw_vocab *v, gw_vocab_token *t, const char *text) {
    size_t n = strlen(text);
    if (n > UINT32_MAX) {
        return gw_fail(GW_E_LIMIT, where, "a token is too long");
    }
    t->text = gw_arena_copy(v->arena, text, n);
    t->bytes = (uint32_t)n;
    return t->text != NULL ? GW_OK : no_memory(where);
}

static int is_byte_name(const char *text) {
    return strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
}

/* Unigram: [text, score], the id is the place. */
static gw_status read_pieces(const char *where, const json_t *scores, gw_vocab *v) {
    size_t i;
    json_t *pair;
    json_array_foreach(scores, i, pair) {
        const char *text = json_string_value(json_array_get(pair, 0));
        gw_vocab_token *t = &v->tokens[i];
        GW_TRY(set_text(where, v, t, text));
        t->score = json_number_value(json_array_get(pair, 1));
        t->kind = v->byte_fallback && is_byte_name(text) ? GW_TOKEN_BYTE : GW_TOKEN_NORMAL;
    }
    return GW_OK;
}

/* Texts of a Unigram vocabulary -> ids, as the others have them. */
static gw_status index_pieces(const char *where, const json_t *scores, json_t *index) {
    size_t i;
    json_t *pair;
    json_array_foreach(scores, i, pair) {
        const char *text = json_string_value(json_array_get(pair, 0));
        if (json_array_size(pair) != 2 || text == NULL ||
            !json_is_number(json_array_get(pair, 1))) {
            return gw_fail(GW_E_TYPE, where, "piece %zu is not a text and a score", i);
        }
        if (json_object_get(index, text) == NULL &&
            json_object_set_new(index, text, json_integer((json_int_t)i)) != 0) {
            return no_memory(where);
        }
    }
    return GW_OK;
}

static gw_status read_vocab(const char *where, json_t *vocab, const json_t *scores, gw_vocab *v) {
    const char *text;
    json_t *value;
    if (scores != NULL) {
        return read_pieces(where, scores, v);
    }
    json_object_foreach(vocab, text, value) {
        gw_vocab_token *t = &v->tokens[json_integer_value(value)];
        if (t->text != NULL) {
            return gw_fail(GW_E_METADATA, where, "tokens \"%.40s\" and \"%.40s\" have one id, %lld",
                           t->text, text, (long long)json_integer_value(value));
        }
        GW_TRY(set_text(where, v, t, text));
        t->kind = v->byte_fallback && is_byte_name(text) ? GW_TOKEN_BYTE : GW_TOKEN_NORMAL;
    }
    return GW_OK;
}

static gw_status read_added_token(const char *where, const json_t *from, json_t *vocab,
                                  gw_vocab *v) {
    size_t id = (size_t)json_integer_value(json_object_get(from, "id"));
    gw_vocab_token *t = &v->tokens[id];
    const char *content = NULL;
    int special = 0, lstrip = 0, rstrip = 0, single = 0, normalized = 0;
    GW_TRY(gw_json_text(where, from, "content", &content));
    GW_TRY(gw_json_bool(where, from, "special", &special));
    GW_TRY(gw_json_bool(where, from, "lstrip", &lstrip));
    GW_TRY(gw_json_bool(where, from, "rstrip", &rstrip));
    GW_TRY(gw_json_bool(where, from, "single_word", &single));
    GW_TRY(gw_json_bool(where, from, "normalized", &normalized));
    if (content == NULL || *content == '\0') {
        return gw_fail(GW_E_METADATA, where, "added token %zu has no content", id);
    }
    const json_t *known = json_object_get(vocab, content);
    if ((t->text != NULL && strcmp(t->text, content) != 0) ||
        (known != NULL && (size_t)json_integer_value(known) != id)) {
        return gw_fail(GW_E_METADATA, where,
                       "added token \"%.40s\" and the vocabulary disagree about id %zu", content,
                       id);
    }
    if (t->text == NULL) {
        GW_TRY(set_text(where, v, t, content));
        t->added_only = 1;
    }
    if (t->kind != GW_TOKEN_BYTE) {
        t->kind = special ? GW_TOKEN_CONTROL : GW_TOKEN_USER;
    }
    t->special = (uint8_t)special;
    t->lstrip = (uint8_t)lstrip;
    t->rstrip = (uint8_t)rstrip;
    t->single_word = (uint8_t)single;
    t->normalized = (uint8_t)normalized;
    return GW_OK;
}

static gw_status read_tokens(const char *where, const json_t *root, json_t *vocab,
                             const json_t *scores, gw_vocab *v) {
    json_t *added = NULL, *one;
    size_t i;
    GW_TRY(gw_json_array(where, root, "added_tokens", &added));
    GW_TRY(count_ids(where, vocab, added, &v->n_tokens));
    v->n_tokens = v->n_tokens < json_array_size(scores) ? json_array_size(scores) : v->n_tokens;
    v->tokens = gw_arena_array(v->arena, v->n_tokens, sizeof *v->tokens);
    if (v->tokens == NULL) {
        return no_memory(where);
    }
    GW_TRY(read_vocab(where, vocab, scores, v));
    json_array_foreach(added, i, one) { GW_TRY(read_added_token(where, one, vocab, v)); }
    for (i = 0; i < v->n_tokens; i++) { /* holes between the ids */
        if (v->tokens[i].text == NULL) {
            v->tokens[i].text = "";
            v->tokens[i].kind = GW_TOKEN_UNUSED;
        }
    }
    return GW_OK;
}

/* ---- merges ------------------------------------------------------------------------------ */

/* ["a","b"], or "a b" with exactly one space. */
static gw_status read_merge(const char *where, const json_t *from, size_t i, gw_vocab *v) {
    const char *left = NULL, *right = NULL;
    size_t left_bytes = 0, right_bytes = 0;
    if (json_is_string(from)) {
        left = json_string_value(from);
        const char *space = strchr(left, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL) {
            return gw_fail(GW_E_METADATA, where, "merge %zu, \"%.40s\", does not have two parts", i,
                           left);
        }
        left_bytes = (size_t)(space - left);
        right = space + 1;
        right_bytes = strlen(right);
    } else if (json_is_array(from)) {
        const json_t *a = json_array_get(from, 0), *b = json_array_get(from, 1);
        if (json_array_size(from) != 2 || !json_is_string(a) || !json_is_string(b)) {
            return gw_fail(GW_E_METADATA, where, "merge %zu does not have two parts", i);
        }
        left = json_string_value(a);
        left_bytes = json_string_length(a);
        right = json_string_value(b);
        right_bytes = json_string_length(b);
    } else {
        return gw_fail(GW_E_TYPE, where, "merge %zu is neither text nor a pair", i);
    }
    gw_vocab_merge *m = &v->merges[i];
    m->left = gw_arena_copy(v->arena, left, left_bytes);
    m->right = gw_arena_copy(v->arena, right, right_bytes);
    m->left_bytes = (uint32_t)left_bytes;
    m->right_bytes = (uint32_t)right_bytes;
    return m->left != NULL && m->right != NULL ? GW_OK : no_memory(where);
}

static gw_status read_merges(const char *where, const json_t *model, gw_vocab *v) {
    json_t *merges = NULL;
    GW_TRY(gw_json_array(where, model, "merges", &merges));
    v->n_merges = json_array_size(merges);
    v->merges = gw_arena_array(v->arena, v->n_merges, sizeof *v->merges);
    if (v->merges == NULL) {
        return no_memory(where);
    }
    size_t i;
    json_t *one;
    json_array_foreach(merges, i, one) { GW_TRY(read_merge(where, one, i, v)); }
    return GW_OK;
}

/* ---- the model --------------------------------------------------------------------------- */

static const struct {
    const char *type;
    gw_vocab_kind kind;
    const char *shown_by; /* the member that tells it where a file has no type */
} MODELS[] = {{"BPE", GW_VOCAB_RANK_BPE, "merges"},
              {"Unigram", GW_VOCAB_UNIGRAM, "unk_id"},
              {"WordPiece", GW_VOCAB_WORDPIECE, "max_input_chars_per_word"},
              {"WordLevel", GW_VOCAB_WORDLEVEL, "unk_token"}};

static gw_status read_kind(const char *where, const json_t *model, gw_vocab *v) {
    const char *type = NULL;
    GW_TRY(gw_json_text(where, model, "type", &type));
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        if (type != NULL ? strcmp(type, MODELS[i].type) == 0
                         : json_object_get(model, MODELS[i].shown_by) != NULL) {
            v->kind = MODELS[i].kind;
            return GW_OK;
        }
    }
    return gw_fail(GW_E_UNSUPPORTED, where,
                   "a tokenizer of type %.40s is not supported; BPE, Unigram, WordPiece and "
                   "WordLevel are",
                   type != NULL ? type : "(none)");
}

static gw_status read_affix(const char *where, const json_t *model, const char *key, gw_vocab *v,
                            const char **out) {
    const char *text = "";
    GW_TRY(gw_json_text(where, model, key, &text));
    if (*text != '\0') {
        *out = gw_arena_copy(v->arena, text, strlen(text));
        GW_TRY(*out == NULL ? no_memory(where) : GW_OK);
    }
    return GW_OK;
}

static gw_status read_settings(const char *where, const json_t *model, gw_vocab *v) {
    int64_t most = 100;
    v->inside_prefix = v->kind == GW_VOCAB_WORDPIECE ? "##" : NULL;
    GW_TRY(gw_json_bool(where, model, "byte_fallback", &v->byte_fallback));
    GW_TRY(gw_json_bool(where, model, "fuse_unk", &v->fuse_unk));
    GW_TRY(gw_json_bool(where, model, "ignore_merges", &v->ignore_merges));
    GW_TRY(read_affix(where, model, "continuing_subword_prefix", v, &v->inside_prefix));
    GW_TRY(read_affix(where, model, "end_of_word_suffix", v, &v->word_suffix));
    GW_TRY(gw_json_int(where, model, "max_input_chars_per_word", &most));
    if (most < 1) {
        return gw_fail(GW_E_METADATA, where, "max_input_chars_per_word is %lld", (long long)most);
    }
    v->word_max = (size_t)most;
    return GW_OK;
}

/* The unknown token: by its text, of Unigram by its id. */
static gw_status read_unknown(const char *where, const json_t *model, const json_t *vocab,
                              gw_vocab *v) {
    const char *unk = NULL;
    int64_t id = -1;
    if (v->kind == GW_VOCAB_UNIGRAM) {
        GW_TRY(gw_json_int(where, model, "unk_id", &id));
        if (id < -1 || id >= (int64_t)v->n_tokens) {
            return gw_fail(GW_E_METADATA, where, "unk_id is %lld, there are %zu tokens",
                           (long long)id, v->n_tokens);
        }
    } else {
        unk = v->kind == GW_VOCAB_WORDPIECE ? "[UNK]" : NULL;
        GW_TRY(gw_json_text(where, model, "unk_token", &unk));
        const json_t *known = unk != NULL ? json_object_get(vocab, unk) : NULL;
        id = json_is_integer(known) ? json_integer_value(known) : -1;
        v->byte_unk = id >= 0;
    }
    v->unk = (int32_t)id;
    return GW_OK;
}

static gw_status read_tables(const char *where, const json_t *root, const json_t *model,
                             json_t *vocab, const json_t *scores, gw_vocab *v) {
    if (json_object_size(vocab) == 0) {
        return gw_fail(GW_E_METADATA, where, "the tokenizer has no vocabulary");
    }
    GW_TRY(read_tokens(where, root, vocab, scores, v));
    if (v->kind == GW_VOCAB_RANK_BPE) {
        GW_TRY(read_merges(where, model, v));
    }
    return read_unknown(where, model, vocab, v);
}

static gw_status read_model(const char *where, const json_t *root, gw_vocab *v) {
    json_t *model = NULL, *vocab = NULL, *scores = NULL;
    GW_TRY(gw_json_object(where, root, "model", &model));
    if (model == NULL) {
        return gw_fail(GW_E_METADATA, where, "no \"model\": this is not a tokenizer.json");
    }
    GW_TRY(read_kind(where, model, v));
    GW_TRY(read_settings(where, model, v));
    if (v->kind != GW_VOCAB_UNIGRAM) {
        GW_TRY(gw_json_object(where, model, "vocab", &vocab));
        return read_tables(where, root, model, vocab, NULL, v);
    }
    GW_TRY(gw_json_array(where, model, "vocab", &scores));
    vocab = json_object();
    gw_status status = vocab == NULL ? no_memory(where) : index_pieces(where, scores, vocab);
    status = status == GW_OK ? read_tables(where, root, model, vocab, scores, v) : status;
    json_decref(vocab);
    return status;
}

gw_status gw_vocab_read_tokenizer_json(const char *where, const void *bytes, size_t n,
                                       gw_vocab *out) {
    json_t *root = NULL;
    gw_vocab v;
    gw_vocab_init(&v);
    GW_TRY(gw_json_parse_settings(where, bytes, n, &root));
    gw_status status = GW_OK;
    v.arena = gw_arena_new();
    GW_TRY_DONE(v.arena == NULL ? no_memory(where) : GW_OK);
    GW_TRY_DONE(json_is_object(root) ? GW_OK : gw_fail(GW_E_TYPE, where, "not a JSON object"));
    GW_TRY_DONE(read_model(where, root, &v));
    GW_TRY_DONE(gw_vocab_json_pipeline(where, root, &v));
    GW_TRY_DONE(gw_vocab_check(where, &v));
    *out = v;
done:
    json_decref(root);
    if (status != GW_OK) {
        gw_vocab_free(&v);
    }
    return status;
}
