/* core/engine/run/translation.c - what source texts and their translations begin with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/model_state.h"

/* The one token that this spelling is when special tokens are read, and is not otherwise; -1. */
int32_t gw_model_special(const gw_model *m, const char *spelling) {
    int32_t *ids = NULL, *plain = NULL, found = -1;
    size_t n = 0, n_plain = 0, bytes = strlen(spelling);
    gw_status status =
        gw_tokenizer_encode(m->tokenizer, spelling, bytes, GW_TEXT_SPECIAL, &ids, &n);
    if (status == GW_OK) {
        status = gw_tokenizer_encode(m->tokenizer, spelling, bytes, 0, &plain, &n_plain);
    }
    if (status == GW_OK && n == 1 && (n_plain != 1 || plain[0] != ids[0])) {
        found = ids[0];
    }
    free(ids);
    free(plain);
    return found;
}

/* The token of a language; *in_source 1: it stands before the source, whatever that is in. */
static gw_status language_of(const gw_model *m, const char *name, int32_t *id, int *in_source) {
    static const struct {
        const char *form;
        int in_source;
    } forms[] = {{"__%s__", 0}, {"%s", 0}, {"%s_XX", 0}, {"<2%s>", 1}, {">>%s<<", 1}};
    char spelling[80];
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const char *mark = strstr(forms[i].form, "%s");
        int n = snprintf(spelling, sizeof spelling, "%.*s%s%s", (int)(mark - forms[i].form),
                         forms[i].form, name, mark + 2);
        int32_t found = n > 0 && (size_t)n < sizeof spelling ? gw_model_special(m, spelling) : -1;
        if (found >= 0) {
            *id = found;
            *in_source = forms[i].in_source;
            return GW_OK;
        }
    }
    return gw_fail(GW_E_ARGUMENT, "language",
                   "'%.40s' is none that %s has a token for; names are the model's own, such as fr "
                   "or fra_Latn",
                   name, m->name);
}

/* Is a token spelled as languages are: __xx__, xxx_Xxxx? Then a source begins with it. */
static int is_language(const gw_model *m, int32_t id) {
    char *text = NULL;
    size_t bytes = 0;
    if (gw_tokenizer_decode(m->tokenizer, &id, 1, 1, &text, &bytes) != GW_OK) {
        return 0;
    }
    const char *bar = strchr(text, '_');
    int is = bar != NULL && bytes >= 5 && bytes <= 12 && text[0] != '<';
    free(text);
    return is;
}

gw_status gw_translation_begin(const gw_model *m, const char *from, const char *to,
                               const int32_t *text, size_t n_text, int32_t **source, size_t *n,
                               int32_t target[2], size_t *n_target) {
    int32_t language = -1, own = -1, before = -1;
    int in_source = 0, ignored = 0;
    if (!gw_model_reads_source(m)) {
        return gw_fail(GW_E_UNSUPPORTED, m->name, "reads no source text: it is a decoder");
    }
    const gw_blueprint *bp = gw_weights_blueprint(m->weights);
    if ((to != NULL || from != NULL) && m->tokenizer == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, m->name, "has no tokenizer, so no tokens of languages");
    }
    GW_TRY(to != NULL ? language_of(m, to, &language, &in_source) : GW_OK);
    GW_TRY(from != NULL ? language_of(m, from, &own, &ignored) : GW_OK);
    int replaces = own >= 0 && n_text > 0 && is_language(m, text[0]);
    before = in_source ? language : own;
    *source = malloc((n_text + 1) * sizeof **source);
    if (*source == NULL) {
        return gw_fail(GW_E_NOMEM, "source", "no memory for %zu tokens", n_text);
    }
    size_t at = 0, first = replaces ? 1 : 0;
    if (before >= 0) {
        (*source)[at++] = before;
    }
    memcpy(*source + at, text + first, (n_text - first) * sizeof *text);
    *n = at + n_text - first;
    int32_t forced = (int32_t)gw_spec_named_number(bp, &m->hp, "language", -1.0);
    forced = language >= 0 && !in_source ? language : forced;
    *n_target = 0;
    target[(*n_target)++] = (int32_t)gw_spec_named_number(bp, &m->hp, "begin", 0.0);
    if (forced >= 0) {
        target[(*n_target)++] = forced;
    }
    return GW_OK;
}
