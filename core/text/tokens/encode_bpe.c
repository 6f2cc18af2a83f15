/* core/text/tokens/encode_bpe.c - byte pair encoding of a word: with a merge list, byte-level
 * (GPT-2) or over characters (tokenizer.json of Llama-2 kind), and by the ranks of byte strings
 * (tiktoken, tekken). */
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

/* ---- with a merge list ------------------------------------------------------------------- */

static int find_pair(void *context, const gw_symbol *left, const gw_symbol *right, uint32_t *rank,
                     int32_t *id) {
    const gw_encoding *e = context;
    return gw_pairs_find(e->t->pairs, left->id, right->id, rank, id) && gw_encoding_allows(e, *id);
}

/* A symbol without a token: one unknown token, joined with its neighbour where the model says. */
static gw_status put_unknown(gw_encoding *e, size_t at, size_t n) {
    const gw_vocab *v = e->t->vocab;
    gw_symbol *last = e->merger.n > 0 ? &e->merger.symbols[e->merger.n - 1] : NULL;
    if (v->fuse_unk && last != NULL && last->id == v->unk) {
        last->bytes += (uint32_t)n;
        return GW_OK;
    }
    return v->unk < 0 ? GW_OK : gw_merger_add(&e->merger, (uint32_t)at, (uint32_t)n, v->unk, 0);
}

/* A byte the vocabulary lacks is dropped unless the model names an unknown token, as the reference
 * libraries do. */
static gw_status split_bytes(gw_encoding *e, const char *piece, size_t n) {
    const gw_tokenizer *t = e->t;
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)piece[i];
        int32_t id =
            t->edge_id == NULL ? t->byte_id[byte] : t->edge_id[(i > 0) | (i + 1 == n) << 1][byte];
        if (id >= 0) {
            GW_TRY(gw_merger_add(&e->merger, (uint32_t)i, 1, id, 0));
        } else if (t->vocab->byte_unk) {
            GW_TRY(put_unknown(e, i, 1));
        }
    }
    return GW_OK;
}

static gw_status split_unknown(gw_encoding *e, const char *piece, size_t at, size_t n) {
    if (!e->t->vocab->byte_fallback) {
        return put_unknown(e, at, n);
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->t->byte_id[(uint8_t)piece[at + i]];
        GW_TRY(gw_merger_add(&e->merger, (uint32_t)(at + i), 1, id, 0));
    }
    return GW_OK;
}

/* The token of a character, with what marks the inside or the end of a word. */
static gw_status find_letter(gw_encoding *e, const char *letter, size_t n, int first, int last,
                             size_t *id, int *found) {
    const gw_vocab *v = e->t->vocab;
    const char *prefix = !first && v->inside_prefix != NULL ? v->inside_prefix : "";
    const char *suffix = last && v->word_suffix != NULL ? v->word_suffix : "";
    if (*prefix != '\0' || *suffix != '\0') {
        e->letter.n = 0;
        GW_TRY(gw_bytes_add(&e->letter, prefix, strlen(prefix)));
        GW_TRY(gw_bytes_add(&e->letter, letter, n));
        GW_TRY(gw_bytes_add(&e->letter, suffix, strlen(suffix)));
        letter = e->letter.data;
        n = e->letter.n;
    }
    *found = gw_map_find(e->t->words, letter, n, id);
    return GW_OK;
}

static gw_status split_letters(gw_encoding *e, const char *piece, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t length = gw_utf8_next(piece + at, n - at, NULL), id = 0;
        int found = 0;
        length = length == 0 ? 1 : length;
        GW_TRY(find_letter(e, piece + at, length, at == 0, at + length == n, &id, &found));
        if (found) {
            GW_TRY(gw_merger_add(&e->merger, (uint32_t)at, (uint32_t)length, (int32_t)id, 0));
        } else {
            GW_TRY(split_unknown(e, piece, at, length));
        }
        at += length;
    }
    return GW_OK;
}

static gw_status put_merged(gw_encoding *e, gw_pair_fn find, void *context) {
    if (e->merger.n == 0) {
        return GW_OK;
    }
    GW_TRY(gw_merger_run(&e->merger, find, context));
    for (uint32_t i = 0; i != GW_NO_SYMBOL; i = e->merger.symbols[i].next) {
        GW_TRY(gw_ids_add(&e->ids, e->merger.symbols[i].id));
    }
    return GW_OK;
}

static int is_whole(const gw_encoding *e, const char *word, size_t n, size_t *id) {
    return e->t->vocab->ignore_merges && gw_map_find(e->t->words, word, n, id) &&
           e->t->vocab->tokens[*id].kind != GW_TOKEN_CONTROL && gw_encoding_allows(e, (int32_t)*id);
}

gw_status gw_put_bpe_word(gw_encoding *e, const char *word, size_t n) {
    size_t whole;
    if (is_whole(e, word, n, &whole)) {
        return gw_ids_add(&e->ids, (int32_t)whole);
    }
    e->merger.n = 0;
    GW_TRY(e->t->vocab->kind == GW_VOCAB_BYTE_BPE ? split_bytes(e, word, n)
                                                  : split_letters(e, word, n));
    return put_merged(e, find_pair, e);
}

/* ---- by ranks ---------------------------------------------------------------------------- */

typedef struct ranked {
    gw_encoding *e;
    const char *text;
} ranked;

/* Ids go up with the ranks. */
static int find_ranked(void *context, const gw_symbol *left, const gw_symbol *right, uint32_t *rank,
                       int32_t *id) {
    const ranked *w = context;
    const gw_tokenizer *t = w->e->t;
    size_t bytes = (size_t)left->bytes + right->bytes, found;
    if (bytes > t->word_max || !gw_map_find(t->words, w->text + left->start, bytes, &found) ||
        !gw_encoding_allows(w->e, (int32_t)found)) {
        return 0;
    }
    *rank = (uint32_t)found;
    *id = (int32_t)found;
    return 1;
}

gw_status gw_put_ranks_word(gw_encoding *e, const char *word, size_t n) {
    size_t whole;
    ranked w = {e, word};
    if (is_whole(e, word, n, &whole)) {
        return gw_ids_add(&e->ids, (int32_t)whole);
    }
    e->merger.n = 0;
    GW_TRY(split_bytes(e, word, n));
    return put_merged(e, find_ranked, &w);
}
