/* core/text/tokens/decode.c - see decode.h and tokenizer.h. */
#include "core/text/tokens/decode.h"

#include "core/text/tokens/tokenizer_impl.h"

void gw_tokenizer_piece(const gw_tokenizer *t, int32_t id, int keep_special, const char **text,
                        size_t *bytes) {
    *text = "";
    *bytes = 0;
    if (id < 0 || (size_t)id >= t->vocab->n_tokens) {
        return;
    }
    if (t->vocab->tokens[id].kind == GW_TOKEN_CONTROL && !keep_special) {
        return;
    }
    *bytes = t->at[id + 1] - t->at[id];
    if (*bytes > 0) {
        *text = t->text.data + t->at[id];
    }
}

/* Spaces in front belong to the encoding, not to the text. SentencePiece drops one space of the
 * first piece, or, when it had removed extra ones, those of every piece until text comes;
 * tokenizer.json says what its decoder drops (strip_start). */
gw_status gw_decode_next(const gw_tokenizer *t, gw_decode_state *state, int32_t id,
                         int keep_special, const char **text, size_t *bytes) {
    const gw_vocab *v = t->vocab;
    if (id < 0 || (size_t)id >= v->n_tokens) {
        return gw_fail(GW_E_ARGUMENT, NULL, "token %d is not in the vocabulary of %zu", (int)id,
                       v->n_tokens);
    }
    gw_tokenizer_piece(t, id, keep_special, text, bytes);
    int kind = v->tokens[id].kind, spm = v->kind == GW_VOCAB_SPM_BPE;
    if (state->begun || v->strip_start == 0 || (kind == GW_TOKEN_CONTROL && !keep_special)) {
        return GW_OK;
    }
    int own = spm && kind != GW_TOKEN_NORMAL && kind != GW_TOKEN_USER && kind != GW_TOKEN_UNUSED;
    size_t most = spm || v->strip_start == 1 ? 1 : *bytes;
    int dropped = 0;
    while (!own && most > 0 && *bytes > 0 && **text == ' ') {
        (*text)++;
        (*bytes)--;
        most--;
        dropped = 1;
    }
    state->begun = *bytes > 0 || (v->strip_start == 1 ? dropped : !spm);
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
