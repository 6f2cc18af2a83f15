/* core/quantize/original_vocab.c - a folder's tokenizer as GGUF has it: SentencePiece BPE and
 * byte-level BPE with merges. */
#include <stdio.h>
#include <string.h>

#include "core/quantize/original_folder.h"
#include "core/text/tokens/known.h"

/* Names that llama.cpp knows, of pre-tokenizers that cut in different ways. */
static const char *const names[] = {
    "llama-bpe",   "qwen2",        "gpt-2",    "gpt-4o",     "deepseek-llm", "deepseek-coder",
    "deepseek-v3", "smollm",       "tekken",   "falcon",     "starcoder",    "refact",
    "command-r",   "mpt",          "olmo",     "dbrx",       "stablelm2",    "poro-chat",
    "glm4",        "chatglm-bpe",  "viking",   "tekken",     "minerva-7b",   "exaone",
    "bloom",       "gpt3-finnish", "superbpe", "kimi-k2",    "qwen35",       "hunyuan-dense",
    "seed-coder",  "afmoe",        "trillion", "bailingmoe", "llama4",       "granite-docling"};

static int same_splits(const gw_vocab *v, const gw_known_pretokenizer *k) {
    if (v->n_splits != k->n) {
        return 0;
    }
    for (size_t i = 0; i < k->n; i++) {
        const gw_vocab_split *a = &v->splits[i], *b = &k->splits[i];
        if (a->pattern == NULL || b->pattern == NULL || strcmp(a->pattern, b->pattern) != 0 ||
            a->rule != b->rule || a->invert != b->invert || a->literal != b->literal) {
            return 0;
        }
    }
    return 1;
}

static gw_status put_pre(gw_original *s, const gw_vocab *v) {
    const char *pre = v->pre[0] != '\0' ? v->pre : NULL;
    for (size_t i = 0; pre == NULL && i < sizeof names / sizeof names[0]; i++) {
        const gw_known_pretokenizer *known = NULL;
        if (gw_known_find(names[i], names[i], &known) == GW_OK && same_splits(v, known) &&
            ((known->flags & GW_KNOWN_IGNORE_MERGES) != 0) == (v->ignore_merges != 0)) {
            pre = names[i];
        }
    }
    if (pre == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(s->checkpoint),
                       "its tokenizer cuts texts in a way that GGUF has no name for; "
                       "--override-kv tokenizer.ggml.pre=str:NAME does not help without one");
    }
    gw_pair_text(&s->pairs, "tokenizer.ggml.pre", pre, strlen(pre));
    return GW_OK;
}

static void put_tokens(gw_original *s, const gw_vocab *v, size_t n) {
    char text[32];
    gw_bytes *b = &s->pairs;
    gw_pair_array(b, "tokenizer.ggml.tokens", GW_GGUF_TEXT, n);
    for (size_t i = 0; i < n; i++) { /* rows of the embedding that no token has are padding */
        int pad = snprintf(text, sizeof text, "[PAD%zu]", i);
        int there = i < v->n_tokens && v->tokens[i].bytes > 0;
        gw_bytes_text(b, there ? v->tokens[i].text : text,
                      there ? v->tokens[i].bytes : (size_t)pad);
    }
    gw_pair_array(b, "tokenizer.ggml.token_type", GW_GGUF_I32, n);
    for (size_t i = 0; i < n; i++) {
        gw_bytes_number(b, i < v->n_tokens ? v->tokens[i].kind : GW_TOKEN_UNUSED, 4);
    }
    if (v->kind == GW_VOCAB_SPM_BPE) {
        gw_pair_array(b, "tokenizer.ggml.scores", GW_GGUF_F32, n);
        for (size_t i = 0; i < n; i++) {
            float score = i < v->n_tokens ? (float)v->tokens[i].score : -1000.0f;
            gw_bytes_number(b, GW_F32_BITS(score), 4);
        }
    }
}

static void put_merges(gw_original *s, const gw_vocab *v) {
    gw_bytes *b = &s->pairs;
    gw_pair_array(b, "tokenizer.ggml.merges", GW_GGUF_TEXT, v->n_merges);
    for (size_t i = 0; i < v->n_merges; i++) {
        const gw_vocab_merge *m = &v->merges[i];
        gw_bytes_number(b, (uint64_t)m->left_bytes + 1 + m->right_bytes, 8);
        gw_bytes_put(b, m->left, m->left_bytes);
        gw_bytes_put(b, " ", 1);
        gw_bytes_put(b, m->right, m->right_bytes);
    }
}

/* They end a text too, and are known by their spelling. */
static int is_fill_mark(const gw_vocab *v, int32_t id) {
    for (size_t i = 0; i < GW_FILL_MARKS; i++) {
        if (v->fill[i] == id) {
            return 1;
        }
    }
    return 0;
}

static void put_ids(gw_original *s, const gw_vocab *v) {
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", v->bos},
               {"tokenizer.ggml.eos_token_id", v->eos},
               {"tokenizer.ggml.unknown_token_id", v->unk},
               {"tokenizer.ggml.padding_token_id", v->pad}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (ids[i].id >= 0) {
            gw_pair_u32(&s->pairs, ids[i].key, (uint32_t)ids[i].id);
        }
    }
    static const char *const ends[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (int i = 0, k = 0; i < v->n_end && k < 2; i++) { /* the others end a turn, or a message */
        if (v->end[i] != v->eos && !is_fill_mark(v, v->end[i])) {
            gw_pair_u32(&s->pairs, ends[k++], (uint32_t)v->end[i]);
        }
    }
    gw_pair_bool(&s->pairs, "tokenizer.ggml.add_bos_token", v->add_bos);
    gw_pair_bool(&s->pairs, "tokenizer.ggml.add_eos_token", v->add_eos);
    if (v->kind == GW_VOCAB_SPM_BPE) {
        gw_pair_bool(&s->pairs, "tokenizer.ggml.add_space_prefix", v->add_space_prefix);
        if (v->remove_extra_spaces) {
            gw_pair_bool(&s->pairs, "tokenizer.ggml.remove_extra_whitespaces", 1);
        }
    }
}

gw_status gw_original_take_vocab(gw_original *s) {
    const gw_vocab *v = NULL;
    const char *text = NULL;
    size_t bytes = 0, rows = (size_t)gw_checkpoint_hparams(s->checkpoint)->n_vocab;
    GW_TRY(gw_checkpoint_vocab(s->checkpoint, &v));
    GW_TRY(gw_checkpoint_chat_template(s->checkpoint, NULL, &text, &bytes));
    if (v == NULL) {
        gw_pair_text(&s->pairs, "tokenizer.ggml.model", "no_vocab", 8);
        return GW_OK;
    }
    if (v->kind != GW_VOCAB_SPM_BPE && v->kind != GW_VOCAB_BYTE_BPE) {
        return gw_fail(
            GW_E_UNSUPPORTED, gw_checkpoint_path(s->checkpoint),
            "its tokenizer is neither SentencePiece BPE (tokenizer.model) nor byte-level "
            "BPE, which GGUF files are made with here; give a GGUF file");
    }
    int spm = v->kind == GW_VOCAB_SPM_BPE;
    gw_pair_text(&s->pairs, "tokenizer.ggml.model", spm ? "llama" : "gpt2", spm ? 5 : 4);
    if (!spm) {
        GW_TRY(put_pre(s, v));
    } else {
        gw_pair_text(&s->pairs, "tokenizer.ggml.pre", "default", 7);
    }
    put_tokens(s, v, rows > v->n_tokens ? rows : v->n_tokens);
    if (!spm) {
        put_merges(s, v);
    }
    put_ids(s, v);
    if (text != NULL) {
        gw_pair_text(&s->pairs, "tokenizer.chat_template", text, bytes);
    }
    return GW_OK;
}
