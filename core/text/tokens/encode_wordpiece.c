/* core/text/tokens/encode_wordpiece.c - the longest token from the left (Wu et al. 2016,
 * arXiv:1609.08144), and words that are tokens. */
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

enum { WORD_MAX = 100 };

static gw_status put_unknown(gw_encoding *e) {
    return e->t->vocab->unk < 0 ? GW_OK : gw_ids_add(&e->ids, e->t->vocab->unk);
}

/* The longest token at the beginning of text [n]; inside 0: that ends where a character does. */
static size_t longest(const gw_encoding *e, const gw_trie *trie, const char *text, size_t n,
                      int inside, int32_t *id) {
    uint32_t node = 0;
    size_t best = 0;
    for (size_t i = 0; i < n && (node = gw_trie_step(trie, node, (uint8_t)text[i])) != 0; i++) {
        int32_t here = gw_trie_word(trie, node);
        int ends = inside || i + 1 == n || ((uint8_t)text[i + 1] & 0xC0) != 0x80;
        if (here >= 0 && ends && gw_encoding_allows(e, here)) {
            best = i + 1;
            *id = here;
        }
    }
    return best;
}

gw_status gw_put_wordpiece_word(gw_encoding *e, const char *word, size_t n) {
    const gw_tokenizer *t = e->t;
    size_t begin = e->ids.n, most = t->vocab->word_max > 0 ? t->vocab->word_max : WORD_MAX;
    if (n > most && gw_utf8_count(word, n) > most) {
        return put_unknown(e);
    }
    for (size_t at = 0; at < n;) {
        int32_t id = -1;
        size_t length = longest(e, at == 0 ? t->begins : t->inside, word + at, n - at, 0, &id);
        if (length == 0) { /* one part that is none makes the whole word unknown */
            e->ids.n = begin;
            return put_unknown(e);
        }
        GW_TRY(gw_ids_add(&e->ids, id));
        at += length;
    }
    return GW_OK;
}

gw_status gw_put_longest(gw_encoding *e, const char *text, size_t n) {
    for (size_t at = 0; at < n;) {
        int32_t id = -1;
        size_t length = longest(e, e->t->begins, text + at, n - at, 1, &id);
        GW_TRY(length > 0 ? gw_ids_add(&e->ids, id) : put_unknown(e));
        at += length > 0 ? length : 1;
    }
    return GW_OK;
}

gw_status gw_put_wordlevel_word(gw_encoding *e, const char *word, size_t n) {
    size_t id;
    return gw_map_find(e->t->words, word, n, &id) && gw_encoding_allows(e, (int32_t)id)
               ? gw_ids_add(&e->ids, (int32_t)id)
               : put_unknown(e);
}
