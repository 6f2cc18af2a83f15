/* core/text/tokens/tokenizer.c - walks a text past its added tokens, and frames it. */
#include "core/text/tokens/tokenizer.h"

#include <utf8proc.h>

#include "core/text/tokens/normalize.h"
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

/* ---- encoding ---------------------------------------------------------------------------- */

/* The character that ends at `end`, 0 when it is none. */
static uint32_t char_before(const char *text, size_t begin, size_t end, size_t *length) {
    for (size_t n = 1; n <= 4 && n <= end - begin; n++) {
        uint32_t cp;
        if (gw_utf8_next(text + end - n, n, &cp) == n) {
            *length = n;
            return cp;
        }
    }
    *length = 0;
    return 0;
}

/* \w of the reference: letters, marks, numbers of digits and letters, connectors, joiners. */
static int is_word_char(uint32_t cp) {
    if (cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) ||
        (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
        (cp >= 0x1F170 && cp <= 0x1F189)) {
        return 1;
    }
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return 1;
    default:
        return 0;
    }
}

static int touches_word(const char *text, size_t n, size_t begin, size_t end) {
    size_t length;
    uint32_t before = char_before(text, 0, begin, &length), after;
    if (length > 0 && is_word_char(before)) {
        return 1;
    }
    return gw_utf8_next(text + end, n - end, &after) > 0 && is_word_char(after);
}

gw_status gw_encode_added(gw_encoding *e, const gw_trie *trie, const char *text, size_t n,
                          int first, gw_stretch_fn fn) {
    size_t done = 0, at = 0, length;
    while (at < n) {
        int32_t id = -1;
        size_t matched = gw_trie_match(trie, text + at, n - at, e->special, &id);
        if (matched == 0 || !gw_encoding_allows(e, id)) {
            at++;
            continue;
        }
        const gw_vocab_token *token = &e->t->vocab->tokens[id];
        size_t begin = at, end = at + matched;
        at = end;
        if (token->single_word && touches_word(text, n, begin, end)) {
            continue;
        }
        while (token->lstrip && begin > done &&
               gw_utf8_is_space(char_before(text, done, begin, &length)) && length > 0) {
            begin -= length;
        }
        uint32_t cp;
        while (token->rstrip && (length = gw_utf8_next(text + end, n - end, &cp)) > 0 &&
               gw_utf8_is_space(cp)) {
            end += length;
        }
        if (begin > done) {
            GW_TRY(fn(e, text + done, begin - done, first && done == 0));
        }
        GW_TRY(gw_ids_add(&e->ids, id));
        done = at = end;
    }
    return done < n ? fn(e, text + done, n - done, first && done == 0) : GW_OK;
}

static gw_status put_stretch(gw_encoding *e, const char *text, size_t n, int first) {
    return GW_VOCAB_IS_SPM(e->t->vocab->kind) ? gw_encode_spm(e, text, n, first)
                                              : gw_encode_stretch(e, text, n, first);
}

/* The result is never NULL. */
static gw_status begin_encoding(gw_encoding *e) {
    GW_TRY(gw_ids_add(&e->ids, 0));
    e->ids.n = 0;
    return e->t->splitter != NULL ? gw_split_work_new(&e->work) : GW_OK;
}

static gw_status put_text(gw_encoding *e, const char *text, size_t bytes) {
    return bytes == 0 ? GW_OK : gw_encode_added(e, e->t->added, text, bytes, 1, put_stretch);
}

/* ---- frames ------------------------------------------------------------------------------ */

typedef struct framed { /* texts and what stands around them */
    const char *text, *pair;
    size_t bytes, pair_bytes;
    const gw_vocab_part *parts;
    size_t n;
    gw_ids types;
} framed;

static gw_status put_part(gw_encoding *e, framed *f, const gw_vocab_part *part) {
    GW_TRY(part->id == GW_FRAME_TEXT   ? put_text(e, f->text, f->bytes)
           : part->id == GW_FRAME_PAIR ? put_text(e, f->pair, f->pair_bytes)
                                       : gw_ids_add(&e->ids, part->id));
    while (f->types.n < e->ids.n) {
        GW_TRY(gw_ids_add(&f->types, part->type));
    }
    return GW_OK;
}

static gw_status put_framed(gw_encoding *e, framed *f) {
    GW_TRY(begin_encoding(e));
    GW_TRY(gw_ids_add(&f->types, 0));
    f->types.n = 0;
    for (size_t i = 0; i < f->n; i++) {
        GW_TRY(put_part(e, f, &f->parts[i]));
    }
    return GW_OK;
}

enum { FRAME_MAX = 8 };

/* What stands around one text: the template, or bos and eos as the switches say; open: nothing
 * behind it. Returns where the parts are, in `own` or the vocabulary. */
static const gw_vocab_part *frame_single(const gw_vocab *v, int flags, gw_vocab_part *own,
                                         size_t *n) {
    int around = (flags & GW_TEXT_BOS) != 0, open = (flags & GW_TEXT_OPEN) != 0;
    const gw_vocab_part text = {GW_FRAME_TEXT, 0};
    if (around && v->n_single > 0) {
        *n = v->n_single;
        while (open && *n > 0 && v->single[*n - 1].id != GW_FRAME_TEXT) {
            --*n;
        }
        return v->single;
    }
    *n = 0;
    if (around && v->add_bos && v->bos >= 0) {
        own[(*n)++] = (gw_vocab_part){v->bos, 0};
    }
    own[(*n)++] = text;
    if (around && !open && v->add_eos && v->eos >= 0) {
        own[(*n)++] = (gw_vocab_part){v->eos, 0};
    }
    return own;
}

/* Around two: the template, or bos A eos sep B eos with what of these there is. */
static const gw_vocab_part *frame_pair(const gw_vocab *v, int flags, gw_vocab_part *own,
                                       size_t *n) {
    if (flags & GW_TEXT_BOS && v->n_pair > 0) {
        *n = v->n_pair;
        return v->pair;
    }
    int around = (flags & GW_TEXT_BOS) != 0;
    int32_t bos = around && v->add_bos ? v->bos : -1, eos = around && v->add_eos ? v->eos : -1;
    int32_t sep = around ? v->sep : -1;
    int alone = bos < 0 && eos < 0 && sep < 0; /* then the type alone tells the two apart */
    const gw_vocab_part all[] = {{bos, 0}, {GW_FRAME_TEXT, 0},     {eos, 0},
                                 {sep, 0}, {GW_FRAME_PAIR, alone}, {eos, 0}};
    const int has[] = {bos >= 0, 1, eos >= 0, sep >= 0, 1, eos >= 0};
    *n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (has[i]) {
            own[(*n)++] = all[i];
        }
    }
    return own;
}

/* The scratch goes; the ids go to the caller, or with an error. */
static gw_status end_encoding(gw_encoding *e, gw_status status, int32_t **ids, size_t *n) {
    gw_merger_clear(&e->merger);
    gw_split_work_free(e->work);
    gw_word_cache_free(e->cache);
    free(e->normal.data);
    free(e->scratch.data);
    free(e->valid.data);
    free(e->letter.data);
    free(e->lattice);
    if (status != GW_OK) {
        free(e->ids.data);
        return status;
    }
    *ids = e->ids.data;
    *n = e->ids.n;
    return GW_OK;
}

gw_status gw_tokenizer_encode(const gw_tokenizer *t, const char *text, size_t bytes, int flags,
                              int32_t **ids, size_t *n) {
    gw_encoding e = {.t = t, .special = (flags & GW_TEXT_SPECIAL) != 0};
    gw_vocab_part own[FRAME_MAX];
    framed f = {.text = text, .bytes = bytes};
    f.parts = frame_single(t->vocab, flags, own, &f.n);
    gw_status status = put_framed(&e, &f);
    free(f.types.data);
    return end_encoding(&e, status, ids, n);
}

gw_status gw_tokenizer_encode_pair(const gw_tokenizer *t, const char *text, size_t bytes,
                                   const char *pair, size_t pair_bytes, int flags, int32_t **ids,
                                   int32_t **types, size_t *n) {
    gw_encoding e = {.t = t, .special = (flags & GW_TEXT_SPECIAL) != 0};
    gw_vocab_part own[FRAME_MAX];
    framed f = {.text = text, .bytes = bytes, .pair = pair, .pair_bytes = pair_bytes};
    f.parts = pair == NULL ? frame_single(t->vocab, flags, own, &f.n)
                           : frame_pair(t->vocab, flags, own, &f.n);
    gw_status status = end_encoding(&e, put_framed(&e, &f), ids, n);
    if (status != GW_OK) {
        free(f.types.data);
        return status;
    }
    *types = f.types.data;
    return GW_OK;
}

/* ---- pieces ------------------------------------------------------------------------------ */

/* White space at the ends of text that the tokens beside it swallow. */
static void strip_beside(const gw_encoding *e, const gw_text_piece *before,
                         const gw_text_piece *behind, const char **text, size_t *n) {
    const gw_vocab_token *tokens = e->t->vocab->tokens;
    size_t length;
    uint32_t cp;
    if (before != NULL && (tokens[before->id].rstrip || e->rules->strip_after)) {
        while ((length = gw_utf8_next(*text, *n, &cp)) > 0 && gw_utf8_is_space(cp)) {
            *text += length;
            *n -= length;
        }
    }
    if (behind != NULL && tokens[behind->id].lstrip) {
        while (gw_utf8_is_space(char_before(*text, 0, *n, &length)) && length > 0) {
            *n -= length;
        }
    }
}

static gw_status encode_pieces(gw_encoding *e, const gw_text_piece *pieces, size_t n) {
    gw_status status = begin_encoding(e);
    gw_bytes stretch = {0};
    for (size_t i = 0; i < n && status == GW_OK;) {
        if (pieces[i].id >= 0) {
            status = gw_ids_add(&e->ids, pieces[i++].id);
            continue;
        }
        size_t begin = i;
        stretch.n = 0;
        for (; i < n && pieces[i].id < 0 && status == GW_OK; i++) {
            status = gw_bytes_add(&stretch, pieces[i].text, pieces[i].bytes);
        }
        const char *text = stretch.data;
        size_t bytes = stretch.n;
        if (status == GW_OK && bytes > 0) {
            strip_beside(e, begin > 0 ? &pieces[begin - 1] : NULL, i < n ? &pieces[i] : NULL, &text,
                         &bytes);
        }
        if (status == GW_OK && bytes > 0) {
            e->joined = begin == 0 && e->rules->joined;
            status =
                gw_encode_added(e, e->t->added, text, bytes, begin == 0 && !e->joined, put_stretch);
        }
    }
    free(stretch.data);
    return status;
}

gw_status gw_tokenizer_encode_pieces(const gw_tokenizer *t, const gw_text_piece *pieces, size_t n,
                                     const gw_text_rules *rules, int32_t **ids, size_t *n_ids) {
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].id >= 0 && (size_t)pieces[i].id >= t->vocab->n_tokens) {
            return gw_fail(GW_E_ARGUMENT, NULL, "token %d is not in the vocabulary of %zu",
                           (int)pieces[i].id, t->vocab->n_tokens);
        }
    }
    gw_encoding e = {.t = t, .rules = rules};
    return end_encoding(&e, encode_pieces(&e, pieces, n), ids, n_ids);
}
