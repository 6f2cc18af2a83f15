/* core/text/tokens/encode_spm.c - SentencePiece BPE: join by score, then byte tokens for what is
 * left (Kudo and Richardson 2018, arXiv:1808.06226). */
#include "core/text/tokens/normalize.h"
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

enum { CACHE_FROM = 4096 }; /* bytes of text that are worth a cache of words */

typedef struct word {
    gw_encoding *e;
    const char *text;
    size_t bytes;
} word;

static int find_pair(void *context, const gw_symbol *left, const gw_symbol *right, uint32_t *rank,
                     int32_t *id) {
    const word *w = context;
    const gw_tokenizer *t = w->e->t;
    size_t bytes = (size_t)left->bytes + right->bytes, found;
    if (bytes > t->word_max || !gw_map_find(t->words, w->text + left->start, bytes, &found) ||
        !gw_encoding_allows(w->e, (int32_t)found)) {
        return 0;
    }
    if (t->vocab->tokens[found].kind == GW_TOKEN_UNUSED) { /* it will be taken apart again */
        w->e->merger.path[found] = (int32_t)left->bytes;
    }
    *rank = t->rank[found];
    *id = (int32_t)found;
    return 1;
}

/* A symbol that is no token: its bytes, else the unknown token (one for neighbours). */
gw_status gw_put_spm_unknown(gw_encoding *e, const char *text, size_t n) {
    if (e->t->vocab->byte_fallback) {
        for (size_t i = 0; i < n; i++) {
            GW_TRY(gw_ids_add(&e->ids, e->t->byte_id[(uint8_t)text[i]]));
        }
        return GW_OK;
    }
    if (e->after_unk) {
        return GW_OK;
    }
    e->after_unk = 1;
    return gw_ids_add(&e->ids, e->t->vocab->unk);
}

static gw_status put_text(gw_encoding *e, const char *text, size_t n, int32_t id) {
    size_t found;
    if (id < 0 && gw_map_find(e->t->words, text, n, &found)) {
        id = (int32_t)found;
    }
    if (id < 0) {
        return gw_put_spm_unknown(e, text, n);
    }
    e->after_unk = 0;
    return gw_ids_add(&e->ids, id);
}

/* An unused token only helps others to form: it goes out as the two parts it was joined from, and
 * these again. The parts to come wait in `later`, from the end of the text to its beginning. */
static gw_status put_parts(gw_encoding *e, const char *text, size_t n) {
    gw_ids later = {0};
    gw_status status = gw_ids_add(&later, (int32_t)n);
    while (status == GW_OK && later.n > 0) {
        size_t bytes = (size_t)later.data[later.n - 1], id;
        int known = gw_map_find(e->t->words, text, bytes, &id);
        int32_t left =
            known && e->t->vocab->tokens[id].kind == GW_TOKEN_UNUSED && e->merger.path[id] > 0
                ? e->merger.path[id]
                : (int32_t)bytes;
        if ((size_t)left < bytes) {
            later.data[later.n - 1] = (int32_t)bytes - left;
            status = gw_ids_add(&later, left);
            continue;
        }
        later.n--;
        status = put_text(e, text, bytes, known ? (int32_t)id : -1);
        text += bytes;
    }
    free(later.data);
    return status;
}

static gw_status split_symbols(gw_encoding *e, const word *w) {
    e->merger.n = 0;
    for (size_t at = 0; at < w->bytes;) {
        int32_t id = -1;
        size_t n = gw_trie_match(e->t->inline_user, w->text + at, w->bytes - at, 0, &id);
        if (n > 0 && !gw_encoding_allows(e, id)) {
            n = 0;
            id = -1;
        }
        int frozen = n > 0;
        if (n == 0) {
            n = gw_utf8_next(w->text + at, w->bytes - at, NULL);
        }
        if (n == 0) { /* a byte that is not UTF-8 keeps to itself */
            frozen = 1;
            n = 1;
        }
        GW_TRY(gw_merger_add(&e->merger, (uint32_t)at, (uint32_t)n, id, frozen));
        at += n;
    }
    return GW_OK;
}

static gw_status put_word(gw_encoding *e, const char *text, size_t n) {
    word w = {e, text, n};
    GW_TRY(split_symbols(e, &w));
    GW_TRY(gw_merger_run(&e->merger, find_pair, &w));
    for (uint32_t i = 0; i != GW_NO_SYMBOL; i = e->merger.symbols[i].next) {
        const gw_symbol *s = &e->merger.symbols[i];
        const char *piece = text + s->start;
        int unused = s->id >= 0 && e->t->vocab->tokens[s->id].kind == GW_TOKEN_UNUSED;
        GW_TRY(unused ? put_parts(e, piece, s->bytes) : put_text(e, piece, s->bytes, s->id));
    }
    return GW_OK;
}

/* Where the word that begins at text [n] ends: before the next space behind a letter. */
static size_t word_end(const gw_tokenizer *t, const char *text, size_t n) {
    if (!t->cut_words) {
        return n;
    }
    size_t at = 0;
    while (n - at >= 3 && memcmp(text + at, GW_SPACE_MARK, 3) == 0) {
        at += 3;
    }
    const char *next = memmem(text + at, n - at, GW_SPACE_MARK, 3);
    return next != NULL ? (size_t)(next - text) : n;
}

gw_status gw_encode_spm(gw_encoding *e, const char *text, size_t n, int first) {
    const gw_vocab *v = e->t->vocab;
    gw_vocab how = *v;
    how.add_space_prefix = v->add_space_prefix && !e->joined && (first || !v->space_first_only);
    e->normal.n = 0;
    GW_TRY(
        gw_normalize_sentencepiece(&how, e->t->inline_user, text, n, v->byte_fallback, &e->normal));
    if (e->normal.n > INT32_MAX) {
        return gw_fail(GW_E_LIMIT, NULL, "a text of %zu bytes is too long", e->normal.n);
    }
    e->after_unk = 0;
    if (v->kind == GW_VOCAB_SPM_UNIGRAM) {
        return e->normal.n == 0 ? GW_OK : gw_put_unigram_word(e, e->normal.data, e->normal.n);
    }
    if (e->normal.n >= CACHE_FROM && e->cache == NULL) {
        e->cache = gw_word_cache_new();
    }
    if (e->merger.path == NULL) {
        e->merger.path = calloc(v->n_tokens, sizeof *e->merger.path);
        if (e->merger.path == NULL) {
            return gw_fail(GW_E_NOMEM, NULL, "no memory for a text");
        }
    }
    for (size_t at = 0; at < e->normal.n;) {
        size_t end = word_end(e->t, e->normal.data + at, e->normal.n - at);
        const char *from = e->normal.data + at;
        GW_TRY(e->after_unk ? put_word(e, from, end) /* an unknown beginning gives nothing here */
                            : gw_put_cached(e, from, end, put_word, v->unk));
        at += end;
    }
    return GW_OK;
}
