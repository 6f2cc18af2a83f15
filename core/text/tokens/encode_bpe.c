/* core/text/tokens/encode_bpe.c - byte pair encoding with a merge list: byte-level (GPT-2) and over
 * characters (tokenizer.json of Llama-2 kind). */
#include "core/text/tokens/normalize.h"
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

static int find_pair(void *context, const gw_symbol *left, const gw_symbol *right, uint32_t *rank,
                     int32_t *id) {
    const gw_encoding *e = context;
    return gw_pairs_find(e->t->pairs, left->id, right->id, rank, id) && gw_encoding_allows(e, *id);
}

/* A byte the vocabulary lacks is dropped, as the reference libraries do. */
static gw_status split_bytes(gw_encoding *e, const char *piece, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->t->byte_id[(uint8_t)piece[i]];
        if (id >= 0) {
            GW_TRY(gw_merger_add(&e->merger, (uint32_t)i, 1, id, 0));
        }
    }
    return GW_OK;
}

static gw_status split_unknown(gw_encoding *e, const char *piece, size_t at, size_t n) {
    const gw_vocab *v = e->t->vocab;
    if (v->byte_fallback) {
        for (size_t i = 0; i < n; i++) {
            int32_t id = e->t->byte_id[(uint8_t)piece[at + i]];
            GW_TRY(gw_merger_add(&e->merger, (uint32_t)(at + i), 1, id, 0));
        }
        return GW_OK;
    }
    gw_symbol *last = e->merger.n > 0 ? &e->merger.symbols[e->merger.n - 1] : NULL;
    if (v->fuse_unk && last != NULL && last->id == v->unk) {
        last->bytes += (uint32_t)n;
        return GW_OK;
    }
    return v->unk < 0 ? GW_OK : gw_merger_add(&e->merger, (uint32_t)at, (uint32_t)n, v->unk, 0);
}

static gw_status split_letters(gw_encoding *e, const char *piece, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t length = gw_utf8_next(piece + at, n - at, NULL), id;
        length = length == 0 ? 1 : length;
        if (gw_map_find(e->t->words, piece + at, length, &id)) {
            GW_TRY(gw_merger_add(&e->merger, (uint32_t)at, (uint32_t)length, (int32_t)id, 0));
        } else {
            GW_TRY(split_unknown(e, piece, at, length));
        }
        at += length;
    }
    return GW_OK;
}

static gw_status put_piece(gw_encoding *e, const char *piece, size_t n) {
    const gw_vocab *v = e->t->vocab;
    size_t whole;
    if (v->ignore_merges && gw_map_find(e->t->words, piece, n, &whole) &&
        gw_encoding_allows(e, (int32_t)whole)) {
        return gw_ids_add(&e->ids, (int32_t)whole);
    }
    e->merger.n = 0;
    GW_TRY(v->kind == GW_VOCAB_BYTE_BPE ? split_bytes(e, piece, n) : split_letters(e, piece, n));
    if (e->merger.n == 0) {
        return GW_OK;
    }
    GW_TRY(gw_merger_run(&e->merger, find_pair, e));
    for (uint32_t i = 0; i != GW_NO_SYMBOL; i = e->merger.symbols[i].next) {
        GW_TRY(gw_ids_add(&e->ids, e->merger.symbols[i].id));
    }
    return GW_OK;
}

static gw_status put_normal(gw_encoding *e, const char *text, size_t n, int first) {
    const gw_span *spans;
    size_t count;
    (void)first;
    GW_TRY(gw_splitter_run(e->t->splitter, e->work, text, n, &spans, &count));
    for (size_t i = 0; i < count; i++) {
        GW_TRY(put_piece(e, text + spans[i].start, spans[i].bytes));
    }
    return GW_OK;
}

static int starts_with_space(const gw_vocab *v, const char *text, size_t n) {
    return (n > 0 && (text[0] == ' ' || (v->space_lines && text[0] == '\n'))) ||
           (v->kind == GW_VOCAB_RANK_BPE && n >= 3 && memcmp(text, GW_SPACE_MARK, 3) == 0);
}

gw_status gw_bpe_normalize(const gw_vocab *v, const char *text, size_t n, int first,
                           gw_bytes *scratch, gw_bytes *out) {
    if (v->nfc || v->nfkc) {
        scratch->n = 0;
        GW_TRY(gw_normalize_unicode(text, n, v->nfkc, scratch));
        text = scratch->data;
        n = scratch->n;
    }
    const char *space = v->kind == GW_VOCAB_RANK_BPE ? GW_SPACE_MARK : " ";
    if (v->add_space_prefix && (first || !v->space_first_only) &&
        !(v->space_if_none && starts_with_space(v, text, n))) {
        GW_TRY(gw_bytes_add(out, space, strlen(space)));
    }
    if (!v->escape_spaces) {
        return gw_bytes_add(out, text, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (v->space_lines && i > 0 && text[i - 1] == '\n' &&
            !starts_with_space(v, text + i, n - i)) {
            GW_TRY(gw_bytes_add(out, GW_SPACE_MARK, 3));
        }
        GW_TRY(text[i] == ' ' ? gw_bytes_add(out, GW_SPACE_MARK, 3)
                              : gw_bytes_add(out, text + i, 1));
    }
    return GW_OK;
}

/* Well-formed text; prefix: what makes a stretch begin with a space still has to happen. */
static gw_status put_valid(gw_encoding *e, const char *text, size_t n, int first, int prefix) {
    const gw_vocab *v = e->t->vocab;
    int plain = !v->nfc && !v->nfkc && !v->escape_spaces && !(v->add_space_prefix && prefix);
    if (!plain) {
        gw_vocab how = *v;
        how.add_space_prefix = v->add_space_prefix && prefix;
        e->normal.n = 0;
        GW_TRY(gw_bpe_normalize(&how, text, n, first, &e->scratch, &e->normal));
        text = e->normal.data;
        n = e->normal.n;
    }
    if (gw_trie_count(e->t->added_normal) > 0) {
        return gw_encode_added(e, e->t->added_normal, text, n, first, put_normal);
    }
    return n == 0 ? GW_OK : put_normal(e, text, n, first);
}

/* The token of a byte that is not UTF-8; text where the vocabulary has none. */
static gw_status put_byte(gw_encoding *e, uint8_t byte) {
    int32_t id = e->t->byte_id[byte];
    return id >= 0 ? gw_ids_add(&e->ids, id) : put_normal(e, "\xEF\xBF\xBD", 3, 0);
}

gw_status gw_encode_bpe(gw_encoding *e, const char *text, size_t n, int first) {
    int prefix = !e->joined;
    if (n > INT32_MAX / 8) {
        return gw_fail(GW_E_LIMIT, NULL, "a text of %zu bytes is too long", n);
    }
    for (size_t at = 0; at < n;) {
        size_t length = gw_utf8_span(text + at, n - at);
        if (length > 0 || prefix) {
            GW_TRY(put_valid(e, text + at, length, first, prefix));
        }
        prefix = 0;
        at += length;
        if (at < n) {
            GW_TRY(put_byte(e, (uint8_t)text[at]));
            at++;
        }
    }
    return GW_OK;
}
