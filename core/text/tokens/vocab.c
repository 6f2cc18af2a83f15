/* core/text/tokens/vocab.c - checks that make a vocabulary safe to build a tokenizer on. */
#include "core/text/tokens/vocab.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/text/tokens/fill.h"
#include "core/text/tokens/normalize.h"
#include "core/text/tokens/trie.h"
#include "core/text/utf8.h"

enum { TOKENS_MAX = 1 << 26, TOKEN_BYTES_MAX = 1 << 20, STEP_TEXT_MAX = 1 << 16 };

void gw_vocab_init(gw_vocab *vocab) {
    memset(vocab, 0, sizeof *vocab);
    vocab->bos = vocab->eos = vocab->unk = vocab->pad = vocab->sep = -1;
    memset(vocab->fill, -1, sizeof vocab->fill);
}

void gw_vocab_free(gw_vocab *vocab) {
    if (vocab != NULL) {
        gw_arena_free(vocab->arena);
        gw_vocab_init(vocab);
    }
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* "<0xHH>" */
static int spelled_byte(const gw_vocab_token *t, uint8_t *byte) {
    if (t->bytes != 6 || memcmp(t->text, "<0x", 3) != 0 || t->text[5] != '>') {
        return 0;
    }
    int high = hex_digit(t->text[3]), low = hex_digit(t->text[4]);
    *byte = (uint8_t)(high * 16 + low);
    return high >= 0 && low >= 0;
}

static gw_status check_token(const char *where, const gw_vocab *vocab, size_t id) {
    gw_vocab_token *t = &vocab->tokens[id];
    t->kind = t->kind == 0 ? GW_TOKEN_NORMAL : t->kind;
    if (t->kind > GW_TOKEN_BYTE) {
        return gw_fail(GW_E_METADATA, where, "token %zu has the unknown kind %u", id,
                       (unsigned)t->kind);
    }
    if (t->bytes == 0 && (t->kind == GW_TOKEN_NORMAL || t->kind == GW_TOKEN_USER)) {
        t->kind = GW_TOKEN_UNUSED; /* no text can be made of it: a converter lost its bytes */
    }
    if (t->bytes > TOKEN_BYTES_MAX) {
        return gw_fail(GW_E_LIMIT, where, "token %zu is %u bytes long", id, (unsigned)t->bytes);
    }
    if (!isfinite(t->score)) {
        return gw_fail(GW_E_METADATA, where, "the score of token %zu is not a number", id);
    }
    if (t->kind == GW_TOKEN_BYTE && !spelled_byte(t, &t->byte)) {
        return gw_fail(GW_E_METADATA, where,
                       "byte token %zu is spelled \"%.*s\", not <0x00>..<0xFF>", id,
                       t->bytes > 20 ? 20 : (int)t->bytes, t->text);
    }
    if (t->kind == GW_TOKEN_CONTROL || t->kind == GW_TOKEN_UNKNOWN) {
        t->special = 1;
    }
    if ((t->special || t->kind == GW_TOKEN_USER) && t->bytes > GW_TRIE_WORD_MAX) {
        return gw_fail(GW_E_LIMIT, where,
                       "added token %zu is %u bytes long, at most %d are handled", id,
                       (unsigned)t->bytes, (int)GW_TRIE_WORD_MAX);
    }
    return GW_OK;
}

/* SentencePiece-like: none of the byte tokens, or each exactly once. */
/* LONGEST: where no longer token fits a byte is one, or unknown. */
static gw_status check_single_bytes(const char *where, const gw_vocab *vocab) {
    unsigned char seen[256] = {0};
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        const gw_vocab_token *t = &vocab->tokens[i];
        if (t->bytes == 1) {
            seen[(unsigned char)t->text[0]] = 1;
        }
    }
    for (unsigned b = 0; b < 256 && vocab->unk < 0; b++) {
        if (!seen[b]) {
            return gw_fail(GW_E_METADATA, where, "no token is the byte 0x%02X", b);
        }
    }
    return GW_OK;
}

static gw_status check_byte_tokens(const char *where, gw_vocab *vocab) {
    int32_t seen[256];
    memset(seen, -1, sizeof seen);
    size_t count = 0;
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        const gw_vocab_token *t = &vocab->tokens[i];
        if (t->kind != GW_TOKEN_BYTE) {
            continue;
        }
        if (seen[t->byte] >= 0) {
            return gw_fail(GW_E_METADATA, where, "tokens %d and %zu both stand for byte 0x%02X",
                           (int)seen[t->byte], i, (unsigned)t->byte);
        }
        seen[t->byte] = (int32_t)i;
        count++;
    }
    int needs_unk = GW_VOCAB_IS_SPM(vocab->kind) && vocab->unk < 0;
    if (count == 0 && (vocab->byte_fallback || needs_unk)) {
        return gw_fail(GW_E_METADATA, where, "the vocabulary has no byte tokens%s",
                       vocab->byte_fallback ? "" : " and no unknown token");
    }
    for (unsigned b = 0; count > 0 && b < 256; b++) {
        if (seen[b] < 0) {
            return gw_fail(GW_E_METADATA, where, "the token of byte 0x%02X is missing", b);
        }
    }
    vocab->byte_fallback = count > 0;
    return GW_OK;
}

/* Byte-level: rare bytes are missing in published vocabularies (control characters, leads of
 * unassigned planes, bytes that UTF-8 never uses); without the others ordinary text is lost. */
static int is_rare(unsigned b) {
    return (b < 0x20 && b != '\t' && b != '\n' && b != '\r') || b == 0x7F || b == 0xC0 ||
           b == 0xC1 || b > 0xF0;
}

static gw_status check_letters(const char *where, const gw_vocab *vocab, const gw_map *map) {
    for (unsigned b = 0; b < 256; b++) {
        char letter[4];
        size_t n = gw_utf8_put(gw_byte_letter((uint8_t)b), letter), id;
        if (!gw_map_find(map, letter, n, &id) && !is_rare(b)) {
            return gw_fail(GW_E_METADATA, where, "no token stands for byte 0x%02X", b);
        }
    }
    return vocab->n_tokens > 0 ? GW_OK : gw_fail(GW_E_METADATA, where, "no tokens");
}

static gw_status check_merges(const char *where, const gw_vocab *vocab, const gw_map *map) {
    size_t prefix = vocab->inside_prefix != NULL ? strlen(vocab->inside_prefix) : 0;
    gw_bytes whole = {0};
    gw_status status = GW_OK;
    for (size_t i = 0; i < vocab->n_merges; i++) {
        const gw_vocab_merge *m = &vocab->merges[i];
        size_t id;
        if (m->left_bytes == 0 || m->right_bytes == 0) {
            GW_TRY_DONE(gw_fail(GW_E_METADATA, where, "merge %zu has an empty side", i));
        }
        size_t skip = prefix > 0 && m->right_bytes > prefix &&
                              memcmp(m->right, vocab->inside_prefix, prefix) == 0
                          ? prefix
                          : 0;
        whole.n = 0;
        GW_TRY_DONE(gw_bytes_add(&whole, m->left, m->left_bytes));
        GW_TRY_DONE(gw_bytes_add(&whole, m->right + skip, m->right_bytes - skip));
        if (!gw_map_find(map, m->left, m->left_bytes, &id) ||
            !gw_map_find(map, m->right, m->right_bytes, &id) ||
            !gw_map_find(map, whole.data, whole.n, &id)) {
            GW_TRY_DONE(gw_fail(GW_E_METADATA, where,
                                "merge %zu (\"%.*s\" and \"%.*s\") is not made of tokens", i,
                                m->left_bytes > 40 ? 40 : (int)m->left_bytes, m->left,
                                m->right_bytes > 40 ? 40 : (int)m->right_bytes, m->right));
        }
    }
done:
    free(whole.data);
    return status;
}

static gw_status check_texts(const char *where, const gw_vocab *vocab) {
    gw_map *map = gw_map_new();
    gw_status status = GW_OK;
    if (map == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
    }
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        const gw_vocab_token *t = &vocab->tokens[i];
        if (t->bytes > 0 && gw_map_add(map, t->text, t->bytes, i, NULL) == GW_MAP_NOMEM) {
            GW_TRY_DONE(gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary"));
        }
    }
    if (vocab->kind == GW_VOCAB_BYTE_BPE) {
        GW_TRY_DONE(check_letters(where, vocab, map));
    }
    GW_TRY_DONE(check_merges(where, vocab, map));
done:
    gw_map_free(map);
    return status;
}

static gw_status check_ids(const char *where, const gw_vocab *vocab) {
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", vocab->bos},
               {"eos", vocab->eos},
               {"unknown", vocab->unk},
               {"pad", vocab->pad},
               {"sep", vocab->sep}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (ids[i].id < -1 || ids[i].id >= (int64_t)vocab->n_tokens) {
            return gw_fail(GW_E_METADATA, where,
                           "the %s token is %d, the vocabulary has %zu tokens", ids[i].name,
                           (int)ids[i].id, vocab->n_tokens);
        }
    }
    for (int i = 0; i < vocab->n_end; i++) {
        if (vocab->end[i] < 0 || vocab->end[i] >= (int64_t)vocab->n_tokens) {
            return gw_fail(GW_E_METADATA, where, "end token %d is not in the vocabulary",
                           (int)vocab->end[i]);
        }
    }
    return GW_OK;
}

static gw_status check_parts(const char *where, const gw_vocab *vocab, const gw_vocab_part *parts,
                             size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (parts[i].id < GW_FRAME_PAIR || parts[i].id >= (int64_t)vocab->n_tokens) {
            return gw_fail(GW_E_METADATA, where,
                           "the post-processor adds token %d, the vocabulary has %zu",
                           (int)parts[i].id, vocab->n_tokens);
        }
    }
    return GW_OK;
}

static gw_status check_steps(const char *where, const gw_vocab *vocab) {
    const gw_vocab_step *lists[] = {vocab->normal, vocab->decode};
    const size_t counts[] = {vocab->n_normal, vocab->n_decode};
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < counts[k]; i++) {
            const gw_vocab_step *step = &lists[k][i];
            if (step->kind == GW_CHANGE_CHARSMAP &&
                !gw_charsmap_valid((const uint8_t *)step->text, step->text_bytes)) {
                return gw_fail(GW_E_METADATA, where, "the normalizer's character map is broken");
            }
            if (step->text_bytes > STEP_TEXT_MAX && step->kind != GW_CHANGE_CHARSMAP) {
                return gw_fail(GW_E_LIMIT, where,
                               "a step of the tokenizer with a text of %zu bytes",
                               step->text_bytes);
            }
        }
    }
    return GW_OK;
}

void gw_vocab_add_end(gw_vocab *vocab, int32_t id) {
    for (int i = 0; i < vocab->n_end; i++) {
        if (vocab->end[i] == id) {
            return;
        }
    }
    if (id >= 0 && (size_t)vocab->n_end < sizeof vocab->end / sizeof vocab->end[0]) {
        vocab->end[vocab->n_end++] = id;
    }
}

/* Files name one end token; chat models end a turn with others. */
static void find_ends(gw_vocab *vocab) {
    static const char *const ENDS[] = {
        "<|eot_id|>",    "<|im_end|>", "<|end_of_text|>", "</s>",    "<|endoftext|>", "<|eom_id|>",
        "<end_of_turn>", "<|end|>",    "<|EOT|>",         "<|eot|>", "<EOT>"};
    gw_vocab_add_end(vocab, vocab->eos);
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        const gw_vocab_token *t = &vocab->tokens[i];
        if (t->kind != GW_TOKEN_CONTROL && t->kind != GW_TOKEN_USER) {
            continue;
        }
        for (size_t k = 0; k < sizeof ENDS / sizeof ENDS[0]; k++) {
            if (t->bytes == strlen(ENDS[k]) && memcmp(t->text, ENDS[k], t->bytes) == 0) {
                gw_vocab_add_end(vocab, (int32_t)i);
            }
        }
    }
}

/* ---- building by hand -------------------------------------------------------------------- */

static gw_status nomem(void) { return gw_fail(GW_E_NOMEM, NULL, "no memory for the vocabulary"); }

/* Room for one more in an arena: lists are short, and grow by doubling. */
static void *grown(gw_vocab *vocab, void *list, size_t n, size_t size) {
    if (n != 0 && (n & (n - 1)) != 0) {
        return list;
    }
    void *more = gw_arena_array(vocab->arena, n == 0 ? 1 : 2 * n, size);
    if (more != NULL && n > 0) {
        memcpy(more, list, n * size);
    }
    return more;
}

gw_status gw_vocab_add_step(gw_vocab *vocab, gw_vocab_step **list, size_t *n,
                            const gw_vocab_step *step) {
    gw_vocab_step own = *step;
    if (own.text != NULL) {
        own.text = gw_arena_copy(vocab->arena, step->text, step->text_bytes);
        GW_TRY(own.text == NULL ? nomem() : GW_OK);
    } else {
        own.text = "";
    }
    if (own.to != NULL) {
        own.to = gw_arena_copy(vocab->arena, step->to, step->to_bytes);
        GW_TRY(own.to == NULL ? nomem() : GW_OK);
    } else {
        own.to = "";
    }
    gw_vocab_step *steps = grown(vocab, *list, *n, sizeof *steps);
    GW_TRY(steps == NULL ? nomem() : GW_OK);
    steps[*n] = own;
    *list = steps;
    ++*n;
    return GW_OK;
}

static gw_vocab_step step_of(gw_change_kind kind, unsigned flags, const char *text,
                             const char *to) {
    return (gw_vocab_step){.kind = kind,
                           .flags = flags,
                           .text = text,
                           .to = to,
                           .text_bytes = text != NULL ? strlen(text) : 0,
                           .to_bytes = to != NULL ? strlen(to) : 0};
}

gw_status gw_vocab_add_normal(gw_vocab *vocab, gw_change_kind kind, unsigned flags,
                              const char *text, const char *to) {
    const gw_vocab_step step = step_of(kind, flags, text, to);
    return gw_vocab_add_step(vocab, &vocab->normal, &vocab->n_normal, &step);
}

gw_status gw_vocab_add_decode(gw_vocab *vocab, gw_change_kind kind, unsigned flags,
                              const char *text, const char *to) {
    const gw_vocab_step step = step_of(kind, flags, text, to);
    return gw_vocab_add_step(vocab, &vocab->decode, &vocab->n_decode, &step);
}

gw_status gw_vocab_add_split(gw_vocab *vocab, gw_vocab_split split) {
    gw_vocab_split *splits = grown(vocab, vocab->splits, vocab->n_splits, sizeof *splits);
    GW_TRY(splits == NULL ? nomem() : GW_OK);
    splits[vocab->n_splits++] = split;
    vocab->splits = splits;
    return GW_OK;
}

gw_status gw_vocab_grow(const char *where, gw_vocab *vocab, size_t n_tokens) {
    if (n_tokens > TOKENS_MAX) {
        return gw_fail(GW_E_LIMIT, where, "a vocabulary of %zu tokens", n_tokens);
    }
    if (n_tokens <= vocab->n_tokens) {
        return GW_OK;
    }
    gw_vocab_token *tokens = gw_arena_array(vocab->arena, n_tokens, sizeof *tokens);
    GW_TRY(tokens == NULL ? nomem() : GW_OK);
    if (vocab->n_tokens > 0) {
        memcpy(tokens, vocab->tokens, vocab->n_tokens * sizeof *tokens);
    }
    for (size_t i = vocab->n_tokens; i < n_tokens; i++) {
        tokens[i].text = "";
        tokens[i].kind = GW_TOKEN_UNUSED;
    }
    vocab->tokens = tokens;
    vocab->n_tokens = n_tokens;
    return GW_OK;
}

/* ---- the whole --------------------------------------------------------------------------- */

gw_status gw_vocab_check(const char *where, gw_vocab *vocab) {
    if (vocab->n_tokens == 0 || vocab->n_tokens > TOKENS_MAX || vocab->n_merges > TOKENS_MAX) {
        return gw_fail(vocab->n_tokens == 0 ? GW_E_METADATA : GW_E_LIMIT, where,
                       "a vocabulary of %zu tokens and %zu merges", vocab->n_tokens,
                       vocab->n_merges);
    }
    if (vocab->n_end < 0 || (size_t)vocab->n_end > sizeof vocab->end / sizeof vocab->end[0]) {
        return gw_fail(GW_E_LIMIT, where, "%d end tokens", vocab->n_end);
    }
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        GW_TRY(check_token(where, vocab, i));
    }
    GW_TRY(check_ids(where, vocab));
    if (vocab->kind == GW_VOCAB_LONGEST) {
        GW_TRY(check_single_bytes(where, vocab));
    } else if (vocab->kind != GW_VOCAB_BYTE_BPE && vocab->kind != GW_VOCAB_BYTE_RANKS) {
        GW_TRY(check_byte_tokens(where, vocab));
    }
    GW_TRY(check_parts(where, vocab, vocab->single, vocab->n_single));
    GW_TRY(check_parts(where, vocab, vocab->pair, vocab->n_pair));
    GW_TRY(check_steps(where, vocab));
    GW_TRY(check_texts(where, vocab));
    if (vocab->charsmap != NULL && !gw_charsmap_valid(vocab->charsmap, vocab->charsmap_bytes)) {
        return gw_fail(GW_E_METADATA, where, "the normalizer's character map is broken");
    }
    if (GW_VOCAB_IS_SPM(vocab->kind)) {
        vocab->strip_start = vocab->remove_extra_spaces ? 2 : vocab->add_space_prefix ? 1 : 0;
    }
    find_ends(vocab);
    gw_fill_find(vocab);
    return GW_OK;
}
