/* core/text/tokens/decode.c - see decode.h and tokenizer.h. */
#include "core/text/tokens/decode.h"

#include "core/text/tokens/tokenizer_impl.h"

/* Tokens that frame texts are left out where they are not wanted; SentencePiece shows an unknown
 * one. */
static int is_hidden(const gw_vocab *v, int32_t id, int keep_special) {
    int kind = v->tokens[id].kind;
    return !keep_special &&
           (kind == GW_TOKEN_CONTROL || (kind == GW_TOKEN_UNKNOWN && v->n_decode > 0));
}

static void piece_of(const gw_pieces *pieces, int32_t id, const char **text, size_t *bytes) {
    *bytes = pieces->at[id + 1] - pieces->at[id];
    *text = *bytes > 0 ? pieces->text.data + pieces->at[id] : "";
}

void gw_tokenizer_piece(const gw_tokenizer *t, int32_t id, int keep_special, const char **text,
                        size_t *bytes) {
    *text = "";
    *bytes = 0;
    if (id < 0 || (size_t)id >= t->vocab->n_tokens || is_hidden(t->vocab, id, keep_special)) {
        return;
    }
    piece_of(&t->inner, id, text, bytes);
    if (t->joining.words && *bytes > 0) {
        (*text)++;
        (*bytes)--;
    }
}

/* Spaces in front belong to the encoding, not to the text. SentencePiece drops one space of the
 * first piece, or, when it had removed extra ones, those of every piece until text comes. */
static void strip_spm(const gw_vocab *v, gw_decode_state *state, int kind, const char **text,
                      size_t *bytes) {
    if (state->begun || v->strip_start == 0) {
        return;
    }
    int own = kind != GW_TOKEN_NORMAL && kind != GW_TOKEN_USER && kind != GW_TOKEN_UNUSED;
    int dropped = !own && *bytes > 0 && **text == ' ';
    *text += dropped;
    *bytes -= (size_t)dropped;
    state->begun = *bytes > 0 || (v->strip_start == 1 && dropped);
}

/* What the decoder's steps behind Fuse take from the beginning of the whole. */
static void strip_start(const gw_joining *j, gw_decode_state *state, const char **text,
                        size_t *bytes) {
    while (!state->ended_start && *bytes > 0) {
        if (state->dropped == j->start || **text != j->strip) {
            state->ended_start = 1;
            break;
        }
        (*text)++;
        (*bytes)--;
        state->dropped++;
    }
}

gw_status gw_decode_next(const gw_tokenizer *t, gw_decode_state *state, int32_t id,
                         int keep_special, const char **text, size_t *bytes) {
    const gw_vocab *v = t->vocab;
    const gw_joining *j = &t->joining;
    *text = "";
    *bytes = 0;
    if (id < 0 || (size_t)id >= v->n_tokens) {
        return gw_fail(GW_E_ARGUMENT, NULL, "token %d is not in the vocabulary of %zu", (int)id,
                       v->n_tokens);
    }
    if (is_hidden(v, id, keep_special)) {
        return GW_OK;
    }
    if (GW_VOCAB_IS_SPM(v->kind)) {
        piece_of(&t->inner, id, text, bytes);
        strip_spm(v, state, v->tokens[id].kind, text, bytes);
        return GW_OK;
    }
    if (!(j->ctc && state->last == id + 1)) {
        piece_of(j->own_first && !state->begun ? &t->first : &t->inner, id, text, bytes);
    }
    if (j->words && *bytes > 0) {
        int spaced = state->ended_word;
        *text += !spaced;
        *bytes -= (size_t)!spaced;
        state->ended_word = j->ends_word[id];
    }
    state->begun = 1;
    state->last = id + 1;
    strip_start(j, state, text, bytes);
    return GW_OK;
}

gw_status gw_tokenizer_decode(const gw_tokenizer *t, const int32_t *ids, size_t n, int keep_special,
                              char **text, size_t *bytes) {
    gw_bytes out = {0};
    gw_decode_state state = {0};
    gw_status status = GW_OK;
    for (size_t i = 0; i < n; i++) {
        const char *piece = "";
        size_t piece_bytes = 0;
        GW_TRY_DONE(gw_decode_next(t, &state, ids[i], keep_special, &piece, &piece_bytes));
        GW_TRY_DONE(gw_bytes_add(&out, piece, piece_bytes));
    }
    for (uint32_t i = 0;
         i < t->joining.stop && out.n > 0 && out.data[out.n - 1] == t->joining.strip; i++) {
        out.n--;
    }
    GW_TRY_DONE(gw_bytes_add(&out, "", 1));
done:
    if (status != GW_OK) {
        free(out.data);
        return status;
    }
    *text = out.data;
    *bytes = out.n - 1;
    return GW_OK;
}
