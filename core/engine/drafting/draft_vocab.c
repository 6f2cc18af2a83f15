/* core/engine/drafting/draft_vocab.c - do two models mean the same tokens? */
#include <stdio.h>
#include <string.h>

#include "core/engine/drafting/draft.h"
#include "core/engine/run/session_hidden.h"

/* Printable form of a token's text, cut to fit. */
static const char *show(const gw_vocab_token *t, char out[48]) {
    size_t n = 0;
    for (uint32_t i = 0; i < t->bytes && n < 36; i++) {
        unsigned char c = (unsigned char)t->text[i];
        if (c < 0x20 || c == 0x7f) {
            n += (size_t)snprintf(out + n, 48 - n, "\\x%02x", c);
        } else {
            out[n++] = (char)c;
        }
    }
    while (n > 0 && n < t->bytes && ((unsigned char)out[n - 1] & 0xc0) == 0x80) {
        n--; /* no half characters */
    }
    out[n] = '\0';
    return out;
}

static gw_status compare_tokens(const char *where, const gw_vocab *target, const gw_vocab *draft) {
    if (draft->n_tokens != target->n_tokens) {
        return gw_fail(GW_E_UNSUPPORTED, where,
                       "it has %zu tokens, the target %zu: a draft needs the target's vocabulary",
                       draft->n_tokens, target->n_tokens);
    }
    for (size_t i = 0; i < target->n_tokens; i++) {
        const gw_vocab_token *a = &target->tokens[i], *b = &draft->tokens[i];
        if (a->bytes != b->bytes || memcmp(a->text, b->text, a->bytes) != 0) {
            char ours[48], its[48];
            return gw_fail(
                GW_E_UNSUPPORTED, where,
                "its token %zu is '%s', the target's is '%s': a draft needs the target's "
                "vocabulary",
                i, show(b, its), show(a, ours));
        }
    }
    const struct {
        const char *name;
        int32_t target, draft;
    } special[] = {{"start", target->bos, draft->bos}, {"end", target->eos, draft->eos}};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        if (special[i].target != special[i].draft) {
            return gw_fail(GW_E_UNSUPPORTED, where,
                           "its %s token is %d, the target's is %d: a draft needs the target's "
                           "vocabulary",
                           special[i].name, special[i].draft, special[i].target);
        }
    }
    return GW_OK;
}

gw_status gw_draft_same_vocab(const gw_model *target, const gw_model *draft) {
    gw_model_info info;
    int32_t layer[GW_TAPS];
    int taps = 0;
    GW_TRY(gw_model_taps(draft, target, layer, &taps));
    if (taps > 0) {
        return GW_OK; /* a head says which tokens it is for by their number alone */
    }
    gw_model_describe(draft, &info);
    const gw_vocab *a = gw_model_vocab(target), *b = gw_model_vocab(draft);
    if (a != NULL && b != NULL) {
        return compare_tokens(info.name, a, b);
    }
    if (a != NULL || b != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, info.name, "%s has no tokenizer to compare",
                       a == NULL ? "the target" : "the draft");
    }
    if (gw_model_n_vocab(target) != gw_model_n_vocab(draft)) {
        return gw_fail(GW_E_UNSUPPORTED, info.name, "it has %d tokens, the target %d",
                       gw_model_n_vocab(draft), gw_model_n_vocab(target));
    }
    return GW_OK;
}
