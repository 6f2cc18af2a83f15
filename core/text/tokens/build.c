/* core/text/tokens/build.c - the tables of a tokenizer. */
#include "core/text/tokens/normalize.h"
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

static gw_status no_memory(void) {
    return gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer");
}

/* ---- tables ------------------------------------------------------------------------------ */

static gw_status add_word(gw_map *map, const char *text, size_t n, size_t id) {
    return n == 0 || gw_map_add(map, text, n, id, NULL) != GW_MAP_NOMEM ? GW_OK : no_memory();
}

typedef struct ranked {
    double score;
    uint32_t id;
} ranked;

static int compare_scores(const void *a, const void *b) {
    double x = ((const ranked *)a)->score, y = ((const ranked *)b)->score;
    return x > y ? -1 : x < y;
}

/* Ranks in place of scores: equal scores share one, so that the leftmost pair goes first. */
static gw_status build_ranks(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    ranked *order = calloc(v->n_tokens, sizeof *order);
    uint32_t rank = 0;
    t->rank = calloc(v->n_tokens, sizeof *t->rank);
    if (order == NULL || t->rank == NULL) {
        free(order);
        return no_memory();
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        order[i] = (ranked){v->tokens[i].score, (uint32_t)i};
    }
    qsort(order, v->n_tokens, sizeof *order, compare_scores);
    for (size_t i = 0; i < v->n_tokens; i++) {
        rank += i > 0 && order[i].score != order[i - 1].score;
        t->rank[order[i].id] = rank;
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

/* A mark of the inside of words is not repeated within the whole. */
static uint32_t skip_prefix(const gw_vocab *v, const gw_vocab_merge *m) {
    size_t n = v->inside_prefix != NULL ? strlen(v->inside_prefix) : 0;
    return n > 0 && m->right_bytes >= n && memcmp(m->right, v->inside_prefix, n) == 0 ? (uint32_t)n
                                                                                      : 0;
}

static gw_status build_merges(gw_tokenizer *t, const gw_map *map) {
    const gw_vocab *v = t->vocab;
    gw_bytes whole = {0};
    gw_status status = GW_OK;
    t->pairs = gw_pairs_new(v->n_merges);
    GW_TRY(t->pairs == NULL ? no_memory() : GW_OK);
    for (size_t i = 0; i < v->n_merges; i++) {
        const gw_vocab_merge *m = &v->merges[i];
        whole.n = 0;
        GW_TRY_DONE(gw_bytes_add(&whole, m->left, m->left_bytes));
        GW_TRY_DONE(
            gw_bytes_add(&whole, m->right + skip_prefix(v, m), m->right_bytes - skip_prefix(v, m)));
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

/* Letters of bytes, as they are and marked as the inside or the end of a word. */
static gw_status build_letters(gw_tokenizer *t, const gw_map *map) {
    const gw_vocab *v = t->vocab;
    const char *affix[2] = {v->inside_prefix != NULL ? v->inside_prefix : "",
                            v->word_suffix != NULL ? v->word_suffix : ""};
    gw_bytes text = {0};
    gw_status status = GW_OK;
    if (*affix[0] != '\0' || *affix[1] != '\0') {
        t->edge_id = calloc(4, sizeof *t->edge_id);
        GW_TRY(t->edge_id == NULL ? no_memory() : GW_OK);
    }
    for (unsigned b = 0; b < 256; b++) {
        char letter[4];
        size_t n = gw_utf8_put(gw_byte_letter((uint8_t)b), letter);
        int32_t id = id_of(map, letter, n);
        t->byte_id[b] = id >= 0 && v->tokens[id].kind == GW_TOKEN_NORMAL ? id : -1;
        for (unsigned edge = 0; t->edge_id != NULL && edge < 4; edge++) {
            text.n = 0;
            GW_TRY_DONE(gw_bytes_add(&text, affix[0], edge & 1 ? strlen(affix[0]) : 0));
            GW_TRY_DONE(gw_bytes_add(&text, letter, n));
            GW_TRY_DONE(gw_bytes_add(&text, affix[1], edge & 2 ? strlen(affix[1]) : 0));
            t->edge_id[edge][b] = id_of(map, text.data, text.n);
        }
    }
done:
    free(text.data);
    return status;
}

/* Words can be cut where a space begins when no token crosses that place, and the mark is one. */
static int can_cut_words(const gw_vocab *v, const gw_map *map) {
    if (id_of(map, GW_SPACE_MARK, 3) < 0 || v->inside_prefix != NULL || v->word_suffix != NULL ||
        v->ignore_merges) {
        return 0;
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (v->tokens[i].kind == GW_TOKEN_NORMAL && crosses_space(&v->tokens[i])) {
            return 0;
        }
    }
    return 1;
}

/* BYTE_BPE: words that are tokens, as bytes. */
static gw_status build_whole_words(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    t->whole.at = calloc(v->n_tokens + 1, sizeof *t->whole.at);
    GW_TRY(t->whole.at == NULL ? no_memory() : GW_OK);
    for (size_t i = 0; i < v->n_tokens; i++) {
        GW_TRY(v->tokens[i].kind == GW_TOKEN_NORMAL
                   ? gw_letters_to_bytes(v->tokens[i].text, v->tokens[i].bytes, &t->whole.text)
                   : GW_OK);
        t->whole.at[i + 1] = t->whole.text.n;
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        GW_TRY(add_word(t->words, t->whole.text.data + t->whole.at[i],
                        t->whole.at[i + 1] - t->whole.at[i], i));
    }
    return GW_OK;
}

static gw_status build_bpe(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    int byte_level = v->kind == GW_VOCAB_BYTE_BPE;
    gw_map *map = byte_level ? gw_map_new() : t->words;
    gw_status status = GW_OK;
    GW_TRY(map == NULL ? no_memory() : GW_OK);
    for (size_t i = 0; i < v->n_tokens; i++) {
        GW_TRY_DONE(v->tokens[i].added_only
                        ? GW_OK
                        : add_word(map, v->tokens[i].text, v->tokens[i].bytes, i));
    }
    GW_TRY_DONE(byte_level && v->ignore_merges ? build_whole_words(t) : GW_OK);
    GW_TRY_DONE(byte_level ? build_letters(t, map) : GW_OK);
    t->cut_words = !byte_level && can_cut_words(v, map);
    GW_TRY_DONE(build_merges(t, map));
done:
    if (byte_level) {
        gw_map_free(map);
    }
    return status;
}

static gw_status build_byte_ranks(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *token = &v->tokens[i];
        if (token->kind != GW_TOKEN_NORMAL) {
            continue;
        }
        GW_TRY(add_word(t->words, token->text, token->bytes, i));
        t->word_max = token->bytes > t->word_max ? token->bytes : t->word_max;
        if (token->bytes == 1) {
            t->byte_id[(uint8_t)*token->text] = (int32_t)i;
        }
    }
    return GW_OK;
}

static int knows_mark(const gw_trie *trie) {
    uint32_t node = gw_trie_step(trie, 0, 0xE2);
    node = node != 0 ? gw_trie_step(trie, node, 0x96) : 0;
    node = node != 0 ? gw_trie_step(trie, node, 0x81) : 0;
    return node != 0 && gw_trie_word(trie, node) >= 0;
}

static gw_status build_unigram(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    int spm = v->kind == GW_VOCAB_SPM_UNIGRAM;
    double least = 0, most = 0;
    int any = 0;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *token = &v->tokens[i];
        int user = token->kind == GW_TOKEN_USER;
        int scored = token->kind == GW_TOKEN_NORMAL || (user && !spm) ||
                     (token->kind == GW_TOKEN_BYTE && !spm);
        scored = scored && !token->added_only;
        if (user && spm) {
            GW_TRY(gw_trie_add(t->inline_user, token->text, token->bytes, (int32_t)i, 0));
        }
        if (scored) {
            least = !any || token->score < least ? token->score : least;
            most = !any || token->score > most ? token->score : most;
            any = 1;
        }
        if ((scored || (user && spm)) && token->bytes > 0) {
            GW_TRY(gw_trie_add(t->begins, token->text, token->bytes, (int32_t)i, 0));
        }
    }
    t->unk_score = spm ? (double)((float)least - 10.0f) : least - 10.0;
    t->user_score = most;
    t->cut_words = !spm && knows_mark(t->begins);
    for (size_t i = 0; t->cut_words && i < v->n_tokens; i++) {
        t->cut_words = v->tokens[i].kind == GW_TOKEN_CONTROL || !crosses_space(&v->tokens[i]);
    }
    return GW_OK;
}

static gw_status build_wordpiece(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    const char *prefix = v->inside_prefix != NULL ? v->inside_prefix : "";
    size_t n = strlen(prefix);
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *token = &v->tokens[i];
        int user = token->kind == GW_TOKEN_USER && !token->added_only;
        if ((token->kind != GW_TOKEN_NORMAL && !user) || token->bytes == 0) {
            continue;
        }
        if (v->kind == GW_VOCAB_WORDLEVEL) {
            GW_TRY(add_word(t->words, token->text, token->bytes, i));
            continue;
        }
        GW_TRY(gw_trie_add(t->begins, token->text, token->bytes, (int32_t)i, 0));
        if (token->bytes > n && memcmp(token->text, prefix, n) == 0) {
            GW_TRY(gw_trie_add(t->inside, token->text + n, token->bytes - n, (int32_t)i, 0));
        }
    }
    return GW_OK;
}

static gw_status build_longest(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *token = &v->tokens[i];
        if (token->kind == GW_TOKEN_NORMAL && token->bytes > 0) {
            GW_TRY(gw_trie_add(t->begins, token->text, token->bytes, (int32_t)i, 0));
        }
        if (token->kind == GW_TOKEN_NORMAL && token->bytes == 1) {
            t->byte_id[(uint8_t)*token->text] = (int32_t)i;
        }
    }
    return GW_OK;
}

static gw_status build_added(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    gw_bytes a = {0}, b = {0};
    gw_regex_work *work = NULL;
    gw_status status = GW_OK;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *token = &v->tokens[i];
        int user = token->kind == GW_TOKEN_USER && !GW_VOCAB_IS_SPM(v->kind);
        if (!user && !token->special) {
            continue;
        }
        if (!token->normalized) {
            GW_TRY_DONE(
                gw_trie_add(t->added, token->text, token->bytes, (int32_t)i, token->special));
            continue;
        }
        const char *text = token->text;
        size_t n = token->bytes;
        if (gw_utf8_span(text, n) != n) {
            continue;
        }
        GW_TRY_DONE(work == NULL ? gw_regex_work_new(&work) : GW_OK);
        GW_TRY_DONE(gw_normalize_steps(t, work, text, n, GW_PLACE_FIRST, &a, &b, &text, &n));
        if (n > 0 && n <= GW_TRIE_WORD_MAX) {
            GW_TRY_DONE(gw_trie_add(t->added_normal, text, n, (int32_t)i, token->special));
        }
    }
done:
    free(a.data);
    free(b.data);
    gw_regex_work_free(work);
    return status;
}

static gw_status build_normal(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    t->normal = calloc(v->n_normal + 1, sizeof *t->normal);
    GW_TRY(t->normal == NULL ? no_memory() : GW_OK);
    for (size_t i = 0; i < v->n_normal; i++) {
        GW_TRY(gw_change_new(NULL, &v->normal[i], &t->normal[i]));
    }
    return gw_splitter_new(NULL, v, &t->splitter);
}

/* What each kind of model needs. */
static const struct {
    gw_status (*build)(gw_tokenizer *t);
    gw_word_fn put_word;
} KINDS[] = {
    [GW_VOCAB_SPM_BPE] = {build_spm, NULL},
    [GW_VOCAB_BYTE_BPE] = {build_bpe, gw_put_bpe_word},
    [GW_VOCAB_RANK_BPE] = {build_bpe, gw_put_bpe_word},
    [GW_VOCAB_BYTE_RANKS] = {build_byte_ranks, gw_put_ranks_word},
    [GW_VOCAB_UNIGRAM] = {build_unigram, gw_put_unigram_word},
    [GW_VOCAB_SPM_UNIGRAM] = {build_unigram, NULL},
    [GW_VOCAB_WORDPIECE] = {build_wordpiece, gw_put_wordpiece_word},
    [GW_VOCAB_WORDLEVEL] = {build_wordpiece, gw_put_wordlevel_word},
    [GW_VOCAB_LONGEST] = {build_longest, gw_put_longest},
};

static gw_status build(gw_tokenizer *t) {
    memset(t->byte_id, -1, sizeof t->byte_id);
    t->words = gw_map_new();
    gw_trie **tries[] = {&t->added, &t->added_normal, &t->inline_user, &t->begins, &t->inside};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        *tries[i] = gw_trie_new();
        GW_TRY(*tries[i] == NULL ? no_memory() : GW_OK);
    }
    GW_TRY(t->words == NULL ? no_memory() : GW_OK);
    for (size_t i = 0; i < t->vocab->n_tokens; i++) {
        if (t->vocab->tokens[i].kind == GW_TOKEN_BYTE) {
            t->byte_id[t->vocab->tokens[i].byte] = (int32_t)i;
        }
    }
    GW_TRY(GW_VOCAB_IS_SPM(t->vocab->kind) ? GW_OK : build_normal(t));
    GW_TRY(gw_pieces_build(t));
    GW_TRY(build_added(t));
    t->put_word = KINDS[t->vocab->kind].put_word;
    GW_TRY(KINDS[t->vocab->kind].build(t));
    for (size_t b = 0; b < 256; b++) {
        t->has_bytes |= t->byte_id[b] >= 0;
    }
    return GW_OK;
}

gw_status gw_tokenizer_new(const gw_vocab *vocab, gw_tokenizer **out) {
    gw_tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return no_memory();
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
    free(t->edge_id);
    gw_trie_free(t->added);
    gw_trie_free(t->added_normal);
    gw_trie_free(t->inline_user);
    gw_trie_free(t->begins);
    gw_trie_free(t->inside);
    for (size_t i = 0; t->normal != NULL && i < t->vocab->n_normal; i++) {
        gw_change_free(&t->normal[i]);
    }
    free(t->normal);
    gw_splitter_free(t->splitter);
    gw_pieces_free(t);
    free(t);
}
