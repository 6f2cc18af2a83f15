/* core/text/tokens/encode.c - a stretch of text to words: normalizer, added tokens of the
 * normalised text, pre-tokenizer; each word then goes to its model. */
#include "core/text/tokens/normalize.h"
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

enum { CACHE_FROM = 4096 }; /* bytes of text that are worth a cache of words */

gw_status gw_normalize_steps(const gw_tokenizer *t, gw_regex_work *work, const char *text, size_t n,
                             int place, gw_bytes *a, gw_bytes *b, const char **out,
                             size_t *out_bytes) {
    for (size_t i = 0; i < t->vocab->n_normal; i++) {
        gw_bytes *to = i % 2 == 0 ? a : b;
        to->n = 0;
        GW_TRY(gw_change_run(&t->normal[i], work, text, n, place, to));
        text = to->n > 0 ? to->data : "";
        n = to->n;
    }
    *out = text;
    *out_bytes = n;
    return GW_OK;
}

gw_status gw_put_cached(gw_encoding *e, const char *word, size_t n, gw_word_fn fn, int32_t never) {
    if (e->cache == NULL || n > GW_CACHED_BYTES) {
        return fn(e, word, n);
    }
    int known;
    gw_cached_word *place = gw_word_cache_find(e->cache, word, n, &known);
    if (known) {
        for (size_t i = 0; i < place->n_ids; i++) {
            GW_TRY(gw_ids_add(&e->ids, e->ids.data[place->at + i]));
        }
        return GW_OK;
    }
    size_t at = e->ids.n;
    GW_TRY(fn(e, word, n));
    for (size_t i = at; i < e->ids.n && never >= 0; i++) {
        if (e->ids.data[i] == never) {
            return GW_OK;
        }
    }
    gw_word_cache_put(place, word, n, at, e->ids.n - at);
    return GW_OK;
}

static int is_mark(const char *p, size_t n) { return n >= 3 && memcmp(p, GW_SPACE_MARK, 3) == 0; }

/* Where the word that begins at text [n] ends: before the next mark behind something else. */
static size_t word_end(const char *text, size_t n) {
    size_t at = 0;
    while (is_mark(text + at, n - at)) {
        at += 3;
    }
    while (at < n) {
        const char *next = memchr(text + at, '\xE2', n - at);
        if (next == NULL) {
            return n;
        }
        at = (size_t)(next - text);
        if (is_mark(next, n - at)) {
            return at;
        }
        at++;
    }
    return at;
}

static gw_status put_word(gw_encoding *e, const char *word, size_t n) {
    const gw_tokenizer *t = e->t;
    if (!t->cut_words) {
        return gw_put_cached(e, word, n, t->put_word, -1);
    }
    for (size_t at = 0, end; at < n; at = end) {
        end = at + word_end(word + at, n - at);
        GW_TRY(gw_put_cached(e, word + at, end - at, t->put_word, -1));
    }
    return GW_OK;
}

static gw_status put_normal(gw_encoding *e, const char *text, size_t n, int first) {
    const gw_span *spans;
    size_t count;
    int place = (first ? GW_PLACE_FIRST : 0) | (e->joined ? GW_PLACE_JOINED : 0);
    GW_TRY(gw_splitter_run(e->t->splitter, e->work, text, n, place, &text, &spans, &count));
    for (size_t i = 0; i < count; i++) {
        if (spans[i].bytes > 0) {
            GW_TRY(put_word(e, text + spans[i].start, spans[i].bytes));
        }
    }
    return GW_OK;
}

static gw_status put_valid(gw_encoding *e, const char *text, size_t n, int first) {
    const gw_tokenizer *t = e->t;
    int place = (first ? GW_PLACE_FIRST : 0) | (e->joined ? GW_PLACE_JOINED : 0);
    GW_TRY(gw_normalize_steps(t, gw_split_work_regex(e->work), text, n, place, &e->normal,
                              &e->scratch, &text, &n));
    if (n > INT32_MAX) {
        return gw_fail(GW_E_LIMIT, NULL, "a text of %zu bytes is too long", n);
    }
    if (gw_trie_count(t->added_normal) > 0) {
        return gw_encode_added(e, t->added_normal, text, n, first, put_normal);
    }
    return n == 0 ? GW_OK : put_normal(e, text, n, first);
}

/* What is not UTF-8 becomes U+FFFD. */
static gw_status put_repaired(gw_encoding *e, const char *text, size_t n, int first) {
    e->valid.n = 0;
    for (size_t at = 0; at < n;) {
        size_t length = gw_utf8_span(text + at, n - at);
        GW_TRY(gw_bytes_add(&e->valid, text + at, length));
        at += length;
        if (at < n) {
            int open;
            at += gw_utf8_bad(text + at, n - at, &open);
            GW_TRY(gw_bytes_add(&e->valid, "\xEF\xBF\xBD", 3));
        }
    }
    return put_valid(e, e->valid.data, e->valid.n, first);
}

/* The token of a byte that is not UTF-8; text where the vocabulary has none. */
static gw_status put_byte(gw_encoding *e, uint8_t byte) {
    int32_t id = e->t->byte_id[byte];
    return id >= 0 ? gw_ids_add(&e->ids, id) : put_normal(e, "\xEF\xBF\xBD", 3, 0);
}

gw_status gw_encode_stretch(gw_encoding *e, const char *text, size_t n, int first) {
    if (n > INT32_MAX / 8) {
        return gw_fail(GW_E_LIMIT, NULL, "a text of %zu bytes is too long", n);
    }
    if (n >= CACHE_FROM && e->cache == NULL && (e->cache = gw_word_cache_new()) == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for a text");
    }
    size_t length = gw_utf8_span(text, n);
    if (length == n) {
        return put_valid(e, text, n, first);
    }
    if (!e->t->has_bytes) {
        return put_repaired(e, text, n, first);
    }
    int joined = e->joined;
    gw_status status = GW_OK;
    for (size_t at = 0; at < n && status == GW_OK;) {
        length = gw_utf8_span(text + at, n - at);
        status = length > 0 ? put_valid(e, text + at, length, first && at == 0) : GW_OK;
        e->joined = 1; /* what makes a stretch begin with a space has happened */
        at += length;
        if (at < n && status == GW_OK) {
            status = put_byte(e, (uint8_t)text[at]);
            at++;
        }
    }
    e->joined = joined;
    return status;
}
