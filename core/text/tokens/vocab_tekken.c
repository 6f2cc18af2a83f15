/* core/text/tokens/vocab_tekken.c - reads tekken.json of Mistral: byte strings by rank behind the
 * special tokens. */
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "core/text/tokens/base64.h"
#include "core/text/tokens/vocab.h"

enum { TOKENS_MAX = 1 << 22 };

/* What files up to version v7 do not say. */
static const char *const SPECIALS[] = {"<unk>",
                                       "<s>",
                                       "</s>",
                                       "[INST]",
                                       "[/INST]",
                                       "[AVAILABLE_TOOLS]",
                                       "[/AVAILABLE_TOOLS]",
                                       "[TOOL_RESULTS]",
                                       "[/TOOL_RESULTS]",
                                       "[TOOL_CALLS]",
                                       "[IMG]",
                                       "<pad>",
                                       "[IMG_BREAK]",
                                       "[IMG_END]",
                                       "[PREFIX]",
                                       "[MIDDLE]",
                                       "[SUFFIX]",
                                       "[SYSTEM_PROMPT]",
                                       "[/SYSTEM_PROMPT]",
                                       "[TOOL_CONTENT]"};

typedef struct counts {
    int64_t special, total;
} counts;

static gw_status read_counts(const char *where, const json_t *root, counts *c, gw_vocab *v) {
    json_t *config = NULL;
    const char *pattern = NULL;
    GW_TRY(gw_json_object(where, root, "config", &config));
    if (config == NULL) {
        return gw_fail(GW_E_METADATA, where, "no \"config\": this is not a tekken.json");
    }
    c->special = c->total = -1;
    GW_TRY(gw_json_int(where, config, "default_num_special_tokens", &c->special));
    GW_TRY(gw_json_int(where, config, "default_vocab_size", &c->total));
    GW_TRY(gw_json_text(where, config, "pattern", &pattern));
    if (c->special < 0 || c->total <= c->special || c->total > TOKENS_MAX || pattern == NULL) {
        return gw_fail(GW_E_METADATA, where,
                       "\"config\" lacks pattern, default_vocab_size or "
                       "default_num_special_tokens, or their numbers contradict each other");
    }
    char *copy = gw_arena_copy(v->arena, pattern, strlen(pattern));
    GW_TRY(copy == NULL ? gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary") : GW_OK);
    return gw_vocab_add_split(v, (gw_vocab_split){copy, GW_SPLIT_ISOLATED, 0, 0, NULL});
}

static gw_status set_token(const char *where, gw_vocab *v, size_t id, const char *text, size_t n,
                           gw_token_kind kind) {
    gw_vocab_token *t = &v->tokens[id];
    if (t->bytes > 0) {
        return gw_fail(GW_E_METADATA, where, "two tokens have the id %zu", id);
    }
    t->text = gw_arena_copy(v->arena, text, n);
    t->bytes = (uint32_t)n;
    t->kind = (uint8_t)kind;
    t->special = kind == GW_TOKEN_CONTROL;
    t->score = (double)id;
    return t->text != NULL ? GW_OK : gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
}

/* A row of `special_tokens`: rank and token_str. */
static gw_status read_special(const char *where, const json_t *row, size_t limit, gw_vocab *v) {
    int64_t rank = -1;
    const char *text = NULL;
    if (!json_is_object(row)) {
        return gw_fail(GW_E_TYPE, where, "a special token is not an object");
    }
    GW_TRY(gw_json_int(where, row, "rank", &rank));
    GW_TRY(gw_json_text(where, row, "token_str", &text));
    if (rank < 0 || (uint64_t)rank >= limit || text == NULL || *text == '\0') {
        return gw_fail(GW_E_METADATA, where, "the special token \"%.40s\" has the rank %lld",
                       text != NULL ? text : "", (long long)rank);
    }
    return set_token(where, v, (size_t)rank, text, strlen(text), GW_TOKEN_CONTROL);
}

static gw_status read_specials(const char *where, const json_t *root, size_t n, gw_vocab *v) {
    json_t *list = NULL, *row;
    size_t i;
    GW_TRY(gw_json_array(where, root, "special_tokens", &list));
    json_array_foreach(list, i, row) { GW_TRY(read_special(where, row, n, v)); }
    for (i = 0; list == NULL && i < sizeof SPECIALS / sizeof SPECIALS[0] && i < n; i++) {
        GW_TRY(set_token(where, v, i, SPECIALS[i], strlen(SPECIALS[i]), GW_TOKEN_CONTROL));
    }
    for (i = 0; i < n; i++) {
        char name[32];
        int bytes = snprintf(name, sizeof name, "<SPECIAL_%zu>", i);
        if (v->tokens[i].bytes == 0) {
            GW_TRY(set_token(where, v, i, name, (size_t)bytes, GW_TOKEN_CONTROL));
        }
        const struct {
            const char *text;
            int32_t *id;
        } known[] = {{"<s>", &v->bos}, {"</s>", &v->eos}, {"<unk>", &v->unk}, {"<pad>", &v->pad}};
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            if (strcmp(v->tokens[i].text, known[k].text) == 0) {
                *known[k].id = (int32_t)i;
            }
        }
    }
    return GW_OK;
}

static gw_status read_ranks(const char *where, const json_t *root, const counts *c, gw_vocab *v) {
    json_t *list = NULL, *row;
    size_t i, used = (size_t)(c->total - c->special), seen = 0;
    gw_bytes bytes = {0};
    gw_status status = GW_OK;
    GW_TRY(gw_json_array(where, root, "vocab", &list));
    json_array_foreach(list, i, row) {
        int64_t rank = -1;
        const char *text = NULL;
        GW_TRY_DONE(json_is_object(row) ? GW_OK
                                        : gw_fail(GW_E_TYPE, where,
                                                  "entry %zu of \"vocab\" is "
                                                  "not an object",
                                                  i));
        GW_TRY_DONE(gw_json_int(where, row, "rank", &rank));
        GW_TRY_DONE(gw_json_text(where, row, "token_bytes", &text));
        bytes.n = 0;
        if (rank < 0 || text == NULL || !gw_base64_read(text, strlen(text), &bytes) ||
            bytes.n == 0) {
            GW_TRY_DONE(gw_fail(GW_E_METADATA, where,
                                "entry %zu of \"vocab\" has no rank or no bytes in base64", i));
        }
        if ((uint64_t)rank < used) { /* files hold more than the model has */
            GW_TRY_DONE(set_token(where, v, (size_t)(c->special + rank), bytes.data, bytes.n,
                                  GW_TOKEN_NORMAL));
            seen++;
        }
    }
    if (seen != used) {
        GW_TRY_DONE(gw_fail(GW_E_METADATA, where, "\"vocab\" has %zu of %zu ranks", seen, used));
    }
done:
    free(bytes.data);
    return status;
}

static gw_status read_all(const char *where, const json_t *root, gw_vocab *v) {
    counts c;
    if (!json_is_object(root)) {
        return gw_fail(GW_E_TYPE, where, "not a JSON object");
    }
    GW_TRY(read_counts(where, root, &c, v));
    GW_TRY(gw_vocab_grow(where, v, (size_t)c.total));
    GW_TRY(read_specials(where, root, (size_t)c.special, v));
    GW_TRY(read_ranks(where, root, &c, v));
    v->add_bos = v->bos >= 0;
    return gw_vocab_check(where, v);
}

gw_status gw_vocab_read_tekken(const char *where, const void *bytes, size_t n, gw_vocab *out) {
    json_t *root = NULL;
    gw_vocab v;
    gw_vocab_init(&v);
    v.kind = GW_VOCAB_BYTE_RANKS;
    v.ignore_merges = 1;
    GW_TRY(gw_json_parse_nul(where, bytes, n, &root));
    v.arena = gw_arena_new();
    gw_status status = v.arena != NULL ? read_all(where, root, &v)
                                       : gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
    json_decref(root);
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    *out = v;
    return GW_OK;
}
