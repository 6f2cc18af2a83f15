/* core/model/gguf_vocab.c - tokenizer.ggml.* -> gw_vocab. Token texts stay in the mapped file.
 *
 * What any vocabulary must satisfy (byte tokens, scores, ids, merges) is gw_vocab_check's business;
 * here are the types and counts of the GGUF arrays, and the defaults of its keys.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/os.h"
#include "core/model/checkpoint_parts.h"
#include "core/text/tokens/known.h"
#include "core/text/tokens/normalize.h"

static gw_status nomem(const gw_gguf *g) {
    return gw_fail(GW_E_NOMEM, gw_gguf_where(g), "no memory for the vocabulary");
}

static int is(gw_gguf_view text, const char *word) {
    return text.bytes == strlen(word) && memcmp(text.text, word, strlen(word)) == 0;
}

static gw_status read_kind(const gw_gguf *g, gw_vocab *v, int *found) {
    gw_gguf_view model = {"", 0};
    GW_TRY(gw_gguf_text(g, "tokenizer.ggml.model", &model, found));
    if (!*found || is(model, "no_vocab") || is(model, "none")) {
        *found = 0;
    } else if (is(model, "llama")) {
        v->kind = GW_VOCAB_SPM_BPE;
    } else if (is(model, "gpt2")) {
        v->kind = GW_VOCAB_BYTE_BPE;
    } else if (is(model, "bert")) {
        v->kind = GW_VOCAB_WORDPIECE;
    } else if (is(model, "t5")) {
        v->kind = GW_VOCAB_UNIGRAM;
    } else if (is(model, "rwkv")) {
        v->kind = GW_VOCAB_LONGEST;
    } else if (is(model, "gemma4") || is(model, "whitespace")) {
        v->kind = GW_VOCAB_RANK_BPE;
        memcpy(v->pre, model.text, (size_t)model.bytes); /* unless the file names another */
    } else {
        return gw_fail(GW_E_UNSUPPORTED, gw_gguf_where(g),
                       "tokenizer %.*s is not supported; llama, gpt2, bert, t5, rwkv, gemma4 and "
                       "whitespace are",
                       (int)(model.bytes < 40 ? model.bytes : 40), model.text);
    }
    return GW_OK;
}

/* Merges are what a pre-tokenizer has a name for. */
static int has_merges(const gw_vocab *v) {
    return v->kind == GW_VOCAB_BYTE_BPE || v->kind == GW_VOCAB_RANK_BPE;
}

/* The pre-tokenizer's name and what it means; asked: in place of what the file says, NULL: nothing.
 * SentencePiece, BERT and T5 have none. */
static gw_status read_pre(const gw_gguf *g, const char *asked, gw_vocab *v, unsigned *flags) {
    gw_gguf_view pre = {v->pre[0] != '\0' ? v->pre : "default", 0};
    const gw_known_pretokenizer *known = NULL;
    if (!has_merges(v)) {
        return GW_OK;
    }
    pre.bytes = strlen(pre.text);
    GW_TRY(gw_gguf_text(g, "tokenizer.ggml.pre", &pre, NULL));
    if (asked != NULL) {
        pre = (gw_gguf_view){asked, strlen(asked)};
    }
    if (pre.bytes == 0 || pre.bytes >= sizeof v->pre ||
        memchr(pre.text, 0, (size_t)pre.bytes) != NULL) {
        return gw_fail(
            GW_E_METADATA, gw_gguf_where(g),
            "tokenizer.ggml.pre is no name; --pretokenizer NAME says which it should be");
    }
    memmove(v->pre, pre.text, (size_t)pre.bytes);
    v->pre[pre.bytes] = '\0';
    GW_TRY(gw_known_find(gw_gguf_where(g), v->pre, &known));
    *flags = known->flags;
    v->kind = *flags & GW_KNOWN_PIECES ? GW_VOCAB_RANK_BPE : v->kind;
    return GW_OK;
}

static gw_status read_texts(const gw_gguf *g, gw_vocab *v) {
    gw_gguf_array list;
    int found;
    GW_TRY(gw_gguf_list(g, "tokenizer.ggml.tokens", GW_GGUF_TEXT, &list, &found));
    if (!found || list.count == 0 || list.count > 1 << 24) {
        return gw_fail(GW_E_METADATA, gw_gguf_where(g), "tokenizer.ggml.tokens %s",
                       !found            ? "is missing"
                       : list.count == 0 ? "is empty"
                                         : "has more than 2^24 entries");
    }
    v->n_tokens = (size_t)list.count;
    v->tokens = gw_arena_array(v->arena, v->n_tokens, sizeof *v->tokens);
    if (v->tokens == NULL) {
        return nomem(g);
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        gw_gguf_view text = gw_gguf_next_text(&list);
        if (text.bytes > UINT32_MAX) {
            return gw_fail(GW_E_LIMIT, gw_gguf_where(g), "token %zu is too long", i);
        }
        v->tokens[i] = (gw_vocab_token){
            .text = text.text, .bytes = (uint32_t)text.bytes, .kind = GW_TOKEN_NORMAL};
    }
    return GW_OK;
}

static gw_status same_count(const gw_gguf *g, const char *key, uint64_t n, const gw_vocab *v) {
    if (n == v->n_tokens) {
        return GW_OK;
    }
    return gw_fail(GW_E_METADATA, gw_gguf_where(g), "%s has %" PRIu64 " entries for %zu tokens",
                   key, n, v->n_tokens);
}

static gw_status read_scores(const gw_gguf *g, gw_vocab *v) {
    gw_gguf_array list;
    int found;
    GW_TRY(gw_gguf_list(g, "tokenizer.ggml.scores", GW_GGUF_F32, &list, &found));
    if (!found) {
        return v->kind != GW_VOCAB_SPM_BPE && v->kind != GW_VOCAB_UNIGRAM
                   ? GW_OK
                   : gw_fail(GW_E_METADATA, gw_gguf_where(g), "tokenizer.ggml.scores is missing");
    }
    GW_TRY(same_count(g, "tokenizer.ggml.scores", list.count, v));
    for (size_t i = 0; i < v->n_tokens; i++) {
        v->tokens[i].score = gw_gguf_next_f32(&list);
    }
    return GW_OK;
}

static gw_status read_kinds(const gw_gguf *g, gw_vocab *v) {
    gw_gguf_array list;
    int found;
    GW_TRY(gw_gguf_list(g, "tokenizer.ggml.token_type", GW_GGUF_I32, &list, &found));
    if (!found) {
        return GW_OK;
    }
    GW_TRY(same_count(g, "tokenizer.ggml.token_type", list.count, v));
    for (size_t i = 0; i < v->n_tokens; i++) {
        int32_t kind = gw_gguf_next_i32(&list);
        if (kind < 0 || kind > GW_TOKEN_BYTE) {
            return gw_fail(GW_E_METADATA, gw_gguf_where(g), "token %zu has the unknown kind %d", i,
                           kind);
        }
        v->tokens[i].kind = (uint8_t)(kind == 0 ? GW_TOKEN_NORMAL : kind);
    }
    return GW_OK;
}

/* "left right": the first space after the first character separates, and there is no other. */
static gw_status read_merges(const gw_gguf *g, gw_vocab *v) {
    gw_gguf_array list;
    int found;
    GW_TRY(gw_gguf_list(g, "tokenizer.ggml.merges", GW_GGUF_TEXT, &list, &found));
    if (!found) {
        return gw_fail(GW_E_METADATA, gw_gguf_where(g), "tokenizer.ggml.merges is missing");
    }
    if (list.count > 1 << 24) {
        return gw_fail(GW_E_LIMIT, gw_gguf_where(g), "tokenizer.ggml.merges is too long");
    }
    v->n_merges = (size_t)list.count;
    v->merges = gw_arena_array(v->arena, v->n_merges, sizeof *v->merges);
    if (v->merges == NULL) {
        return nomem(g);
    }
    for (size_t i = 0; i < v->n_merges; i++) {
        gw_gguf_view text = gw_gguf_next_text(&list);
        size_t n = text.bytes < UINT32_MAX ? (size_t)text.bytes : 0;
        const char *space = n > 2 ? memchr(text.text + 1, ' ', n - 2) : NULL;
        size_t left = space != NULL ? (size_t)(space - text.text) : 0, right = n - left - 1;
        if (space == NULL || memchr(space + 1, ' ', right) != NULL) {
            return gw_fail(GW_E_METADATA, gw_gguf_where(g),
                           "merge %zu is not two texts with a space between", i);
        }
        v->merges[i] = (gw_vocab_merge){text.text, space + 1, (uint32_t)left, (uint32_t)right};
    }
    return GW_OK;
}

/* Converters write -1 for "none", and ids of another vocabulary: *out stays, with a note. */
static gw_status read_id(const gw_gguf *g, const char *key, gw_vocab *v, int32_t *out) {
    int64_t id;
    int found;
    GW_TRY(gw_gguf_int(g, key, &id, &found));
    if (found && id >= 0 && (uint64_t)id < v->n_tokens) {
        *out = (int32_t)id;
    } else if (found && id != -1 && id != UINT32_MAX) {
        snprintf(v->note, sizeof v->note,
                 "%s is %" PRId64 " and names none of the %zu tokens: it is not used", key, id,
                 v->n_tokens);
    }
    return GW_OK;
}

static int kind_at(const gw_vocab *v, size_t id) {
    return id < v->n_tokens ? v->tokens[id].kind : 0;
}

/* BERT in a GGUF file: U+2581 in front of the beginning of a word, nothing within; names in
 * brackets as they are. Here: nothing in front, "##" within, as BERT itself has it. */
static gw_status unmark_words(const gw_gguf *g, gw_vocab *v) {
    for (size_t i = 0; i < v->n_tokens; i++) {
        gw_vocab_token *t = &v->tokens[i];
        int named = t->bytes > 1 && t->text[0] == '[' && t->text[t->bytes - 1] == ']';
        if (t->kind == GW_TOKEN_CONTROL || t->kind == GW_TOKEN_UNKNOWN || named || t->bytes == 0) {
            continue;
        }
        if (t->bytes > 3 && memcmp(t->text, GW_SPACE_MARK, 3) == 0) {
            t->text += 3;
            t->bytes -= 3;
            continue;
        }
        char *text = gw_arena_alloc(v->arena, (size_t)t->bytes + 3);
        if (text == NULL) {
            return nomem(g);
        }
        memcpy(text, "##", 2);
        memcpy(text + 2, t->text, t->bytes);
        t->text = text;
        t->bytes += 2;
    }
    return GW_OK;
}

/* RWKV's in a GGUF file: bytes as Python writes them between quotes. */
static gw_status unescape(const gw_gguf *g, gw_vocab *v) {
    for (size_t i = 0; i < v->n_tokens; i++) {
        gw_vocab_token *t = &v->tokens[i];
        if (t->kind == GW_TOKEN_NORMAL && memchr(t->text, '\\', t->bytes) != NULL) {
            char *text = gw_arena_alloc(v->arena, t->bytes);
            if (text == NULL) {
                return nomem(g);
            }
            t->bytes = (uint32_t)gw_vocab_unescape(t->text, t->bytes, 0, text);
            t->text = text;
        }
    }
    return GW_OK;
}

/* What frames a text, by key or by name; these are no words of a text. */
static gw_status read_bert_ids(const gw_gguf *g, gw_vocab *v) {
    static const char *const NAMES[] = {"[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"};
    int32_t ids[5], sep = v->eos;
    memset(ids, -1, sizeof ids);
    for (size_t i = 0; i < v->n_tokens; i++) {
        for (size_t k = 0; k < 5; k++) {
            if (v->tokens[i].bytes == strlen(NAMES[k]) &&
                memcmp(v->tokens[i].text, NAMES[k], v->tokens[i].bytes) == 0) {
                ids[k] = (int32_t)i;
            }
        }
    }
    ids[0] = v->bos >= 0 ? v->bos : ids[0];
    ids[1] = sep >= 0 ? sep : ids[1];
    ids[2] = v->unk >= 0 ? v->unk : ids[2];
    ids[3] = v->pad >= 0 ? v->pad : ids[3];
    GW_TRY(read_id(g, "tokenizer.ggml.cls_token_id", v, &ids[0]));
    GW_TRY(read_id(g, "tokenizer.ggml.seperator_token_id", v, &ids[1]));
    GW_TRY(read_id(g, "tokenizer.ggml.mask_token_id", v, &ids[4]));
    v->bos = ids[0];
    v->eos = ids[1];
    v->unk = ids[2];
    v->pad = ids[3];
    for (size_t k = 0; k < 5; k++) {
        if (ids[k] >= 0) {
            v->tokens[ids[k]].kind = GW_TOKEN_CONTROL;
        }
    }
    return GW_OK;
}

/* The last three as older files have them. */
static const struct {
    gw_fill_mark mark;
    const char *key;
} fill_keys[] = {{GW_FILL_PREFIX, "tokenizer.ggml.fim_pre_token_id"},
                 {GW_FILL_SUFFIX, "tokenizer.ggml.fim_suf_token_id"},
                 {GW_FILL_MIDDLE, "tokenizer.ggml.fim_mid_token_id"},
                 {GW_FILL_PAD, "tokenizer.ggml.fim_pad_token_id"},
                 {GW_FILL_REPO, "tokenizer.ggml.fim_rep_token_id"},
                 {GW_FILL_FILE, "tokenizer.ggml.fim_sep_token_id"},
                 {GW_FILL_PREFIX, "tokenizer.ggml.prefix_token_id"},
                 {GW_FILL_SUFFIX, "tokenizer.ggml.suffix_token_id"},
                 {GW_FILL_MIDDLE, "tokenizer.ggml.middle_token_id"}};

static gw_status read_ids(const gw_gguf *g, gw_vocab *v) {
    if (v->kind == GW_VOCAB_SPM_BPE) { /* SentencePiece's own order, where the file is silent */
        v->unk = kind_at(v, 0) == GW_TOKEN_UNKNOWN ? 0 : -1;
        v->bos = kind_at(v, 1) == GW_TOKEN_CONTROL ? 1 : -1;
        v->eos = kind_at(v, 2) == GW_TOKEN_CONTROL ? 2 : -1;
    }
    GW_TRY(read_id(g, "tokenizer.ggml.bos_token_id", v, &v->bos));
    GW_TRY(read_id(g, "tokenizer.ggml.eos_token_id", v, &v->eos));
    GW_TRY(read_id(g, "tokenizer.ggml.unknown_token_id", v, &v->unk));
    GW_TRY(read_id(g, "tokenizer.ggml.padding_token_id", v, &v->pad));
    GW_TRY(v->kind == GW_VOCAB_WORDPIECE ? read_bert_ids(g, v) : GW_OK);
    for (size_t i = 0; i < sizeof fill_keys / sizeof fill_keys[0]; i++) {
        if (v->fill[fill_keys[i].mark] < 0) {
            GW_TRY(read_id(g, fill_keys[i].key, v, &v->fill[fill_keys[i].mark]));
        }
    }
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int32_t id = -1;
        GW_TRY(read_id(g, ends[i], v, &id));
        for (int k = 0; k < v->n_end; k++) {
            id = v->end[k] == id ? -1 : id;
        }
        if (id >= 0) {
            v->end[v->n_end++] = id;
        }
    }
    return GW_OK;
}

/* Of models with merges: what the name of the pre-tokenizer means, and the keys. */
static gw_status read_merge_flags(const gw_gguf *g, unsigned known, gw_vocab *v) {
    int lower = 0, prefix = 0;
    v->add_bos = (known & GW_KNOWN_BOS) != 0;
    v->ignore_merges = (known & GW_KNOWN_IGNORE_MERGES) != 0;
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.normalizer.lowercase", &lower, NULL));
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &prefix, NULL));
    if (known & GW_KNOWN_SEP) {
        GW_TRY(read_id(g, "tokenizer.ggml.seperator_token_id", v, &v->sep));
    }
    GW_TRY(known & GW_KNOWN_NFC ? gw_vocab_add_normal(v, GW_CHANGE_NFC, 0, NULL, NULL) : GW_OK);
    GW_TRY(lower ? gw_vocab_add_normal(v, GW_CHANGE_LOWERCASE, 0, NULL, NULL) : GW_OK);
    GW_TRY(known & GW_KNOWN_MARKS ? gw_vocab_add_normal(v, GW_CHANGE_REPLACE, 0, " ", GW_SPACE_MARK)
                                  : GW_OK);
    const char *space = v->kind == GW_VOCAB_RANK_BPE ? GW_SPACE_MARK : " ";
    return prefix && strcmp(v->pre, "mmbert") != 0
               ? gw_vocab_add_normal(v, GW_CHANGE_PREPEND, 0, space, NULL)
               : GW_OK;
}

/* T5's sentinels are written as a user's tokens, and are no text. */
static void find_sentinels(gw_vocab *v) {
    static const char NAME[] = "<extra_id_";
    for (size_t i = 0; i < v->n_tokens; i++) {
        gw_vocab_token *t = &v->tokens[i];
        if (t->kind == GW_TOKEN_USER && t->bytes > sizeof NAME &&
            memcmp(t->text, NAME, sizeof NAME - 1) == 0) {
            t->kind = GW_TOKEN_CONTROL;
        }
    }
}

static gw_status read_charsmap(const gw_gguf *g, gw_vocab *v) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    gw_gguf_array list = {0};
    int found = 0;
    gw_status status = gw_gguf_list(g, key, GW_GGUF_U8, &list, &found);
    if (status == GW_E_TYPE) { /* older converters */
        status = gw_gguf_list(g, key, GW_GGUF_I8, &list, &found);
    }
    GW_TRY(status);
    if (!found || list.count == 0) {
        return GW_OK;
    }
    gw_vocab_step step = {.kind = GW_CHANGE_CHARSMAP,
                          .text = (const char *)list.items.data,
                          .text_bytes = (size_t)list.count};
    return gw_vocab_add_step(v, &v->normal, &v->n_normal, &step);
}

/* The steps that T5 and XLM-R have in their own tokenizers. */
static gw_status read_unigram_flags(const gw_gguf *g, gw_vocab *v) {
    static const gw_vocab_step MARK = {.kind = GW_CHANGE_REPLACE,
                                       .text = " ",
                                       .to = GW_SPACE_MARK,
                                       .text_bytes = 1,
                                       .to_bytes = 3},
                               PREFIX = {.kind = GW_CHANGE_PREPEND,
                                         .flags = GW_CHANGE_IF_NONE,
                                         .text = GW_SPACE_MARK,
                                         .to = "",
                                         .text_bytes = 3};
    const gw_vocab_step bytes = {.kind = GW_CHANGE_FROM_BYTES},
                        spaces = {.kind = GW_CHANGE_FROM_MARKS,
                                  .flags = GW_CHANGE_FIRST,
                                  .text = GW_SPACE_MARK,
                                  .text_bytes = 3};
    int prefix = 1, trim = 1, suffix = 0, bos = 0;
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.add_bos_token", &bos, NULL));
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &prefix, NULL));
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &trim, NULL));
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.treat_whitespace_as_suffix", &suffix, NULL));
    if (suffix) {
        return gw_fail(GW_E_UNSUPPORTED, gw_gguf_where(g),
                       "a tokenizer that writes spaces behind words "
                       "(tokenizer.ggml.treat_whitespace_as_suffix) is not supported");
    }
    v->add_eos = 1;
    v->fuse_unk = 1;
    find_sentinels(v);
    GW_TRY(read_id(g, "tokenizer.ggml.seperator_token_id", v, &v->sep));
    GW_TRY(read_charsmap(g, v));
    if (trim) {
        GW_TRY(gw_vocab_add_normal(v, GW_CHANGE_STRIP, GW_CHANGE_RIGHT, NULL, NULL));
        GW_TRY(gw_vocab_add_normal(v, GW_CHANGE_REPLACE, GW_CHANGE_PATTERN, " {2,}", " "));
    }
    if (bos) { /* XLM-R and its kind, not T5: any white space separates words */
        GW_TRY(gw_vocab_add_split(v, (gw_vocab_split){"\\s+", GW_SPLIT_REMOVED, 0, 0, NULL}));
    }
    GW_TRY(gw_vocab_add_split(v, (gw_vocab_split){.change = &MARK}));
    GW_TRY(prefix ? gw_vocab_add_split(v, (gw_vocab_split){.change = &PREFIX}) : GW_OK);
    GW_TRY(gw_vocab_add_split(v, (gw_vocab_split){GW_SPACE_MARK, GW_SPLIT_WITH_NEXT, 1, 0, NULL}));
    GW_TRY(gw_vocab_add_step(v, &v->decode, &v->n_decode, &bytes));
    return gw_vocab_add_step(v, &v->decode, &v->n_decode, &spaces);
}

static gw_status read_bert_flags(const gw_gguf *g, gw_vocab *v) {
    int lower = 1, accents = -1;
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.normalizer.lowercase", &lower, NULL));
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.normalizer.strip_accents", &accents, NULL));
    v->add_bos = v->add_eos = 1;
    return gw_vocab_bert(gw_gguf_where(g), v, lower, accents, 1);
}

static gw_status read_flags(const gw_gguf *g, unsigned known, gw_vocab *v) {
    if (v->kind == GW_VOCAB_SPM_BPE) {
        v->add_bos = v->add_space_prefix = 1;
        GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, NULL));
        GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &v->remove_extra_spaces,
                            NULL));
    } else {
        GW_TRY(v->kind == GW_VOCAB_UNIGRAM     ? read_unigram_flags(g, v)
               : v->kind == GW_VOCAB_WORDPIECE ? read_bert_flags(g, v)
               : v->kind == GW_VOCAB_LONGEST   ? GW_OK
                                               : read_merge_flags(g, known, v));
    }
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, NULL));
    GW_TRY(gw_gguf_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, NULL));
    v->add_bos = v->add_bos && v->bos >= 0;
    v->add_eos = v->add_eos && v->eos >= 0;
    return GW_OK;
}

static int names_phi3(const char *text, size_t n) {
    static const char *const names[] = {"phi-3", "phi3", "phi 3"};
    for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; i < 3; i++) {
            size_t size = strlen(names[i]);
            if (n - at >= size && strncasecmp(text + at, names[i], size) == 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* The special tokens of Phi-3, but for three, swallow the white space behind them: its
 * tokenizer.json says so, its GGUF files do not. */
static gw_status read_phi3(const gw_gguf *g, gw_vocab *v) {
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    gw_gguf_view name = {NULL, 0};
    GW_TRY(gw_gguf_text(g, "general.name", &name, NULL));
    if (v->kind != GW_VOCAB_SPM_BPE || name.text == NULL ||
        !names_phi3(name.text, (size_t)name.bytes)) {
        return GW_OK;
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        gw_vocab_token *t = &v->tokens[i];
        int other = t->kind != GW_TOKEN_CONTROL;
        for (size_t k = 0; k < 3; k++) {
            other |= t->bytes == strlen(others[k]) && memcmp(t->text, others[k], t->bytes) == 0;
        }
        t->rstrip = !other;
    }
    return GW_OK;
}

static gw_status read_all(const gw_gguf *g, const char *pre, gw_vocab *v) {
    unsigned known = 0;
    GW_TRY(read_pre(g, pre, v, &known));
    GW_TRY(read_texts(g, v));
    GW_TRY(read_scores(g, v));
    GW_TRY(read_kinds(g, v));
    GW_TRY(has_merges(v) ? read_merges(g, v) : GW_OK);
    GW_TRY(v->kind == GW_VOCAB_WORDPIECE ? unmark_words(g, v) : GW_OK);
    GW_TRY(v->kind == GW_VOCAB_LONGEST ? unescape(g, v) : GW_OK);
    GW_TRY(read_ids(g, v));
    GW_TRY(read_flags(g, known, v));
    GW_TRY(read_phi3(g, v));
    return gw_vocab_check(gw_gguf_where(g), v);
}

gw_status gw_gguf_vocab(const gw_gguf *g, const char *pre, gw_vocab *out, int *found) {
    gw_vocab v;
    gw_vocab_init(&v);
    GW_TRY(read_kind(g, &v, found));
    if (!*found) {
        return GW_OK;
    }
    v.arena = gw_arena_new();
    gw_status status = v.arena != NULL ? read_all(g, pre, &v) : nomem(g);
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    *out = v;
    return GW_OK;
}
