/* core/text/tokens/encode_unigram.c - the likeliest tokens of a word: Viterbi over the sum of log
 * probabilities (Kudo 2018, arXiv:1804.10959). Time: bytes times the longest token. */
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

static gw_status reserve(gw_encoding *e, size_t n) {
    void *nodes = e->lattice;
    gw_status status = gw_array_reserve(&nodes, &e->lattice_capacity, n, sizeof *e->lattice);
    e->lattice = nodes;
    return status;
}

/* The first of equals stays. SentencePiece keeps its sums in float. */
static void offer(gw_lattice_node *to, double score, int32_t id, size_t from, int in_float) {
    if (to->from == UINT32_MAX || score > to->score) {
        *to = (gw_lattice_node){in_float ? (double)(float)score : score, id, (uint32_t)from};
    }
}

static double score_of(const gw_tokenizer *t, int32_t id, size_t bytes) {
    const gw_vocab_token *token = &t->vocab->tokens[id];
    return t->vocab->kind == GW_VOCAB_SPM_UNIGRAM && token->kind == GW_TOKEN_USER
               ? (double)((float)bytes * (float)t->user_score) - 0.1
               : token->score;
}

/* Tokens that begin at byte `at`. */
static void offer_tokens(gw_encoding *e, const char *word, size_t n, size_t at) {
    const gw_tokenizer *t = e->t;
    int in_float = t->vocab->kind == GW_VOCAB_SPM_UNIGRAM, single = 0;
    size_t length = gw_utf8_next(word + at, n - at, NULL);
    double till_here = e->lattice[at].score;
    uint32_t node = 0;
    length = length == 0 ? 1 : length;
    for (size_t i = at; i < n && (node = gw_trie_step(t->begins, node, (uint8_t)word[i])) != 0;
         i++) {
        int32_t id = gw_trie_word(t->begins, node);
        if (id < 0 || !gw_encoding_allows(e, id)) {
            continue;
        }
        offer(&e->lattice[i + 1], till_here + score_of(t, id, i + 1 - at), id, at, in_float);
        single |= i + 1 - at == length;
    }
    if (!single) {
        offer(&e->lattice[at + length], till_here + t->unk_score, -1, at, in_float);
    }
}

/* A run of unknown characters that is a token after all, or bytes, or one unknown token. */
static gw_status put_unknown(gw_encoding *e, const char *text, size_t n) {
    const gw_tokenizer *t = e->t;
    uint32_t node = 0;
    size_t i = 0;
    while (i < n && (node = gw_trie_step(t->begins, node, (uint8_t)text[i])) != 0) {
        i++;
    }
    int32_t id = i == n && node != 0 ? gw_trie_word(t->begins, node) : -1;
    if (id >= 0 && gw_encoding_allows(e, id)) {
        return gw_ids_add(&e->ids, id);
    }
    for (i = 0; t->vocab->byte_fallback && i < n; i++) {
        GW_TRY(gw_ids_add(&e->ids, t->byte_id[(uint8_t)text[i]]));
    }
    return t->vocab->byte_fallback || t->vocab->unk < 0 ? GW_OK
                                                        : gw_ids_add(&e->ids, t->vocab->unk);
}

/* Node i: where the token that ends at i begins -> where the one that begins at i ends. */
static void turn(gw_lattice_node *nodes, size_t n) {
    uint32_t end = UINT32_MAX, at = (uint32_t)n;
    int32_t id = -1;
    while (at != 0) {
        gw_lattice_node node = nodes[at];
        nodes[at].from = end;
        nodes[at].id = id;
        end = at;
        id = node.id;
        at = node.from;
    }
    nodes[0].from = end;
    nodes[0].id = id;
}

gw_status gw_put_unigram_word(gw_encoding *e, const char *word, size_t n) {
    int spm = e->t->vocab->kind == GW_VOCAB_SPM_UNIGRAM;
    GW_TRY(reserve(e, n + 1));
    for (size_t i = 0; i <= n; i++) {
        e->lattice[i].from = UINT32_MAX;
    }
    e->lattice[0].score = 0;
    for (size_t at = 0, length; at < n; at += length) {
        offer_tokens(e, word, n, at);
        length = gw_utf8_next(word + at, n - at, NULL);
        length = length == 0 ? 1 : length;
    }
    turn(e->lattice, n);
    for (size_t at = 0, end; at < n; at = end) {
        int32_t id = e->lattice[at].id;
        end = e->lattice[at].from;
        if (id >= 0) {
            e->after_unk = 0;
            GW_TRY(gw_ids_add(&e->ids, id));
            continue;
        }
        while (!spm && end < n && e->lattice[end].id < 0) { /* neighbours are one */
            end = e->lattice[end].from;
        }
        GW_TRY(spm ? gw_put_spm_unknown(e, word + at, end - at)
                   : put_unknown(e, word + at, end - at));
    }
    return GW_OK;
}
