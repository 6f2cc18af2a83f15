/* core/text/tokens/tokenizer.c - builds a tokenizer and walks a text past its added tokens. */
#include "core/text/tokens/tokenizer.h"

#include <utf8proc.h>

#include "core/text/tokens/normalize.h"
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

/* ---- what tokens stand for --------------------------------------------------------------- */

static gw_status add_letters(const gw_vocab_token *token, gw_bytes *out) {
    size_t begin = out->n;
    for (size_t at = 0; at < token->bytes;) {
        uint32_t cp = 0;
        size_t n = gw_utf8_next(token->text + at, token->bytes - at, &cp);
        int byte = n == 0 ? -1 : gw_letter_byte(cp);
        if (byte < 0) { /* not of the alphabet: plain text */
            out->n = begin;
            return gw_bytes_add(out, token->text, token->bytes);
        }
        char c = (char)byte;
        GW_TRY(gw_bytes_add(out, &c, 1));
        at += n;
    }
    return GW_OK;
}

static gw_status add_unmarked(const gw_vocab_token *token, gw_bytes *out) {
    for (size_t at = 0; at < token->bytes;) {
        int mark = token->bytes - at >= 3 && memcmp(token->text + at, GW_SPACE_MARK, 3) == 0;
        GW_TRY(gw_bytes_add(out, mark ? " " : token->text + at, 1));
        at += mark ? 3 : 1;
    }
    return GW_OK;
}

static gw_status add_piece(const gw_vocab *v, size_t id, gw_bytes *out) {
    const gw_vocab_token *token = &v->tokens[id];
    if (token->kind == GW_TOKEN_BYTE) {
        return gw_bytes_add(out, &token->byte, 1);
    }
    if (token->kind == GW_TOKEN_UNKNOWN && (int32_t)id == v->unk && v->kind == GW_VOCAB_SPM_BPE) {
        return gw_bytes_add(out, " \xE2\x81\x87 ", 5); /* what SentencePiece decodes it to */
    }
    if (v->kind != GW_VOCAB_BYTE_BPE) {
        return token->kind == GW_TOKEN_CONTROL && v->kind == GW_VOCAB_SPM_BPE
                   ? gw_bytes_add(out, token->text, token->bytes)
                   : add_unmarked(token, out);
    }
    return token->kind == GW_TOKEN_NORMAL || token->kind == GW_TOKEN_UNUSED
               ? add_letters(token, out)
               : gw_bytes_add(out, token->text, token->bytes);
}

static gw_status build_pieces(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    t->at = calloc(v->n_tokens + 1, sizeof *t->at);
    if (t->at == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer");
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        GW_TRY(add_piece(v, i, &t->text));
        t->at[i + 1] = t->text.n;
    }
    return GW_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

static gw_status add_word(gw_map *map, const char *text, size_t n, size_t id) {
    return n == 0 || gw_map_add(map, text, n, id, NULL) != GW_MAP_NOMEM
               ? GW_OK
               : gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer");
}

static int compare_scores(const void *a, const void *b, void *tokens) {
    float x = ((const gw_vocab_token *)tokens)[*(const uint32_t *)a].score;
    float y = ((const gw_vocab_token *)tokens)[*(const uint32_t *)b].score;
    return x > y ? -1 : x < y;
}

/* Ranks in place of scores: equal scores share one, so that the leftmost pair goes first. */
static gw_status build_ranks(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    uint32_t *order = calloc(v->n_tokens, sizeof *order), rank = 0;
    t->rank = calloc(v->n_tokens, sizeof *t->rank);
    if (order == NULL || t->rank == NULL) {
        free(order);
        return gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer");
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        order[i] = (uint32_t)i;
    }
    qsort_r(order, v->n_tokens, sizeof *order, compare_scores, v->tokens);
    for (size_t i = 0; i < v->n_tokens; i++) {
        rank += i > 0 && v->tokens[order[i]].score != v->tokens[order[i - 1]].score;
        t->rank[order[i]] = rank;
    }
    free(order);
    return GW_OK;
}

/* Whether a space mark follows something else inside the word. */
static int crosses_space(const gw_vocab_token *token) {
    size_t at = 0;
    while (token->bytes - at >= 3 && memcmp(token->text + at, GW_SPACE_MARK, 3) == 0) {
        at += 3;
    }
    for (; token->bytes - at >= 3; at++) {
        if (memcmp(token->text + at, GW_SPACE_MARK, 3) == 0) {
            return 1;
        }
    }
    return 0;
}

static gw_status build_spm(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    t->cut_words = 1;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *token = &v->tokens[i];
        if (token->kind == GW_TOKEN_USER) {
            GW_TRY(gw_trie_add(t->inline_user, token->text, token->bytes, (int32_t)i, 0));
        } else if (token->kind != GW_TOKEN_NORMAL && token->kind != GW_TOKEN_UNUSED) {
            continue;
        }
        GW_TRY(add_word(t->words, token->text, token->bytes, i));
        t->word_max = token->bytes > t->word_max ? token->bytes : t->word_max;
        t->cut_words = t->cut_words && !crosses_space(token);
    }
    return build_ranks(t);
}

static int32_t id_of(const gw_map *map, const char *text, size_t n) {
    size_t id;
    return gw_map_find(map, text, n, &id) ? (int32_t)id : -1;
}

static gw_status build_merges(gw_tokenizer *t, const gw_map *map) {
    const gw_vocab *v = t->vocab;
    gw_bytes whole = {0};
    gw_status status = GW_OK;
    t->pairs = gw_pairs_new(v->n_merges);
    GW_TRY(t->pairs == NULL ? gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer") : GW_OK);
    for (size_t i = 0; i < v->n_merges; i++) {
        const gw_vocab_merge *m = &v->merges[i];
        whole.n = 0;
        GW_TRY_DONE(gw_bytes_add(&whole, m->left, m->left_bytes));
        GW_TRY_DONE(gw_bytes_add(&whole, m->right, m->right_bytes));
        int32_t left = id_of(map, m->left, m->left_bytes);
        int32_t right = id_of(map, m->right, m->right_bytes), id = id_of(map, whole.data, whole.n);
        if (left < 0 || right < 0 || id < 0) { /* gw_vocab_check was left out */
            GW_TRY_DONE(gw_fail(GW_E_METADATA, NULL, "merge %zu is not made of tokens", i));
        }
        gw_pairs_set(t->pairs, left, right, (uint32_t)i, id);
    }
done:
    free(whole.data);
    return status;
}

static gw_status build_bpe(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    int byte_level = v->kind == GW_VOCAB_BYTE_BPE;
    gw_map *map = byte_level ? gw_map_new() : t->words;
    gw_status status = GW_OK;
    GW_TRY(map == NULL ? gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer") : GW_OK);
    for (size_t i = 0; i < v->n_tokens; i++) {
        GW_TRY_DONE(add_word(map, v->tokens[i].text, v->tokens[i].bytes, i));
        if (byte_level && v->ignore_merges && v->tokens[i].kind == GW_TOKEN_NORMAL) {
            size_t at = t->at[i];
            GW_TRY_DONE(add_word(t->words, t->text.data + at, t->at[i + 1] - at, i));
        }
    }
    for (unsigned b = 0; byte_level && b < 256; b++) {
        char letter[4];
        int32_t id = id_of(map, letter, gw_utf8_put(gw_byte_letter((uint8_t)b), letter));
        t->byte_id[b] = id >= 0 && v->tokens[id].kind == GW_TOKEN_NORMAL ? id : -1;
    }
    GW_TRY_DONE(build_merges(t, map));
    GW_TRY_DONE(gw_splitter_new(NULL, v, &t->splitter));
done:
    if (byte_level) {
        gw_map_free(map);
    }
    return status;
}

static gw_status build_added(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    gw_bytes scratch = {0}, normal = {0};
    gw_status status = GW_OK;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *token = &v->tokens[i];
        int user = token->kind == GW_TOKEN_USER && v->kind != GW_VOCAB_SPM_BPE;
        if (!user && !token->special) {
            continue;
        }
        if (!token->normalized) {
            GW_TRY_DONE(
                gw_trie_add(t->added, token->text, token->bytes, (int32_t)i, token->special));
            continue;
        }
        normal.n = 0;
        if (gw_utf8_span(token->text, token->bytes) == token->bytes) {
            GW_TRY_DONE(gw_bpe_normalize(v, token->text, token->bytes, 1, &scratch, &normal));
        }
        if (normal.n > 0 && normal.n <= GW_TRIE_WORD_MAX) {
            GW_TRY_DONE(
                gw_trie_add(t->added_normal, normal.data, normal.n, (int32_t)i, token->special));
        }
    }
done:
    free(scratch.data);
    free(normal.data);
    return status;
}

static gw_status build(gw_tokenizer *t) {
    memset(t->byte_id, -1, sizeof t->byte_id);
    t->words = gw_map_new();
    t->added = gw_trie_new();
    t->added_normal = gw_trie_new();
    t->inline_user = gw_trie_new();
    if (t->words == NULL || t->added == NULL || t->added_normal == NULL || t->inline_user == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer");
    }
    for (size_t i = 0; i < t->vocab->n_tokens; i++) {
        if (t->vocab->tokens[i].kind == GW_TOKEN_BYTE) {
            t->byte_id[t->vocab->tokens[i].byte] = (int32_t)i;
        }
    }
    GW_TRY(build_pieces(t));
    GW_TRY(build_added(t));
    return t->vocab->kind == GW_VOCAB_SPM_BPE ? build_spm(t) : build_bpe(t);
}

gw_status gw_tokenizer_new(const gw_vocab *vocab, gw_tokenizer **out) {
    gw_tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer");
    }
    t->vocab = vocab;
    gw_status status = build(t);
    if (status != GW_OK) {
        gw_tokenizer_free(t);
        return status;
    }
    *out = t;
    return GW_OK;
}

void gw_tokenizer_free(gw_tokenizer *t) {
    if (t == NULL) {
        return;
    }
    gw_map_free(t->words);
    gw_pairs_free(t->pairs);
    free(t->rank);
    gw_trie_free(t->added);
    gw_trie_free(t->added_normal);
    gw_trie_free(t->inline_user);
    gw_splitter_free(t->splitter);
    free(t->text.data);
    free(t->at);
    free(t);
}

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

static int is_word_char(uint32_t cp) {
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
    return e->t->vocab->kind == GW_VOCAB_SPM_BPE ? gw_encode_spm(e, text, n, first)
                                                 : gw_encode_bpe(e, text, n, first);
}

static gw_status encode_all(gw_encoding *e, const char *text, size_t bytes, int flags) {
    const gw_vocab *v = e->t->vocab;
    GW_TRY(gw_ids_add(&e->ids, 0)); /* the result is never NULL */
    e->ids.n = 0;
    if (e->t->splitter != NULL) {
        GW_TRY(gw_split_work_new(&e->work));
    }
    if ((flags & GW_TEXT_BOS) && v->add_bos && v->bos >= 0) {
        GW_TRY(gw_ids_add(&e->ids, v->bos));
    }
    GW_TRY(gw_encode_added(e, e->t->added, text, bytes, 1, put_stretch));
    if ((flags & (GW_TEXT_BOS | GW_TEXT_OPEN)) == GW_TEXT_BOS && v->add_eos && v->eos >= 0) {
        GW_TRY(gw_ids_add(&e->ids, v->eos));
    }
    return GW_OK;
}

/* The scratch goes; the ids go to the caller, or with an error. */
static gw_status end_encoding(gw_encoding *e, gw_status status, int32_t **ids, size_t *n) {
    gw_merger_clear(&e->merger);
    gw_split_work_free(e->work);
    free(e->normal.data);
    free(e->scratch.data);
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
    return end_encoding(&e, encode_all(&e, text, bytes, flags), ids, n);
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
    gw_status status = gw_ids_add(&e->ids, 0); /* the result is never NULL */
    gw_bytes stretch = {0};
    e->ids.n = 0;
    if (status == GW_OK && e->t->splitter != NULL) {
        status = gw_split_work_new(&e->work);
    }
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
