/* core/text/tokens/fill.c - see fill.h. */
#include "core/text/tokens/fill.h"

#include <stdlib.h>
#include <string.h>

#include "core/text/buffer.h"

/* ---- marks ----------------------------------------------------------------------------------- */

/* What families call them; the first that a vocabulary has counts. */
static const struct {
    gw_fill_mark mark;
    const char *text;
} spellings[] = {
    {GW_FILL_PREFIX, "<|fim_prefix|>"}, /* Qwen 2.5 Coder, CodeGemma */
    {GW_FILL_PREFIX, "<fim_prefix>"},   /* StarCoder, Granite */
    {GW_FILL_PREFIX, "<fim-prefix>"},   /* SantaCoder, Refact */
    {GW_FILL_PREFIX, "<\xEF\xBD\x9C"
                     "fim\xE2\x96\x81"
                     "begin\xEF\xBD\x9C>"}, /* DeepSeek */
    {GW_FILL_PREFIX, "\xE2\x96\x81<PRE>"},  /* Code Llama */
    {GW_FILL_PREFIX, "<PRE>"},
    {GW_FILL_PREFIX, "<|code_prefix|>"}, /* GLM 4.5 */
    {GW_FILL_PREFIX, "<|prefix|>"},      /* Falcon H1 Tiny Coder */
    {GW_FILL_PREFIX, "[PREFIX]"},        /* Codestral */
    {GW_FILL_SUFFIX, "<|fim_suffix|>"},
    {GW_FILL_SUFFIX, "<fim_suffix>"},
    {GW_FILL_SUFFIX, "<fim-suffix>"},
    {GW_FILL_SUFFIX, "<\xEF\xBD\x9C"
                     "fim\xE2\x96\x81hole\xEF\xBD\x9C>"},
    {GW_FILL_SUFFIX, "\xE2\x96\x81<SUF>"},
    {GW_FILL_SUFFIX, "<SUF>"},
    {GW_FILL_SUFFIX, "<|code_suffix|>"},
    {GW_FILL_SUFFIX, "<|suffix|>"},
    {GW_FILL_SUFFIX, "[SUFFIX]"},
    {GW_FILL_MIDDLE, "<|fim_middle|>"},
    {GW_FILL_MIDDLE, "<fim_middle>"},
    {GW_FILL_MIDDLE, "<fim-middle>"},
    {GW_FILL_MIDDLE, "<\xEF\xBD\x9C"
                     "fim\xE2\x96\x81"
                     "end\xEF\xBD\x9C>"},
    {GW_FILL_MIDDLE, "\xE2\x96\x81<MID>"},
    {GW_FILL_MIDDLE, "<MID>"},
    {GW_FILL_MIDDLE, "<|code_middle|>"},
    {GW_FILL_MIDDLE, "<|middle|>"},
    {GW_FILL_PAD, "<|fim_pad|>"},
    {GW_FILL_PAD, "<fim_pad>"},
    {GW_FILL_PAD, "<fim-pad>"},
    {GW_FILL_REPO, "<|fim_repo|>"},
    {GW_FILL_REPO, "<|repo_name|>"},
    {GW_FILL_REPO, "<fim-repo>"},
    {GW_FILL_REPO, "<reponame>"},
    {GW_FILL_REPO, "<repo_name>"},
    {GW_FILL_FILE, "<|file_sep|>"},
    {GW_FILL_FILE, "<|file_separator|>"}, /* CodeGemma */
    {GW_FILL_FILE, "<file_sep>"},
};
enum { SPELLINGS = sizeof spellings / sizeof spellings[0] };

static int has_marks(const gw_vocab *v) {
    return v->fill[GW_FILL_PREFIX] >= 0 && v->fill[GW_FILL_SUFFIX] >= 0 &&
           (v->fill[GW_FILL_MIDDLE] >= 0 || v->fill_suffix_first);
}

static void note(gw_vocab *v, int32_t id, size_t best[GW_FILL_MARKS]) {
    const gw_vocab_token *t = &v->tokens[id];
    for (size_t k = 0; k < SPELLINGS; k++) {
        gw_fill_mark mark = spellings[k].mark;
        if (t->bytes == strlen(spellings[k].text) && k < best[mark] &&
            memcmp(t->text, spellings[k].text, t->bytes) == 0) {
            best[mark] = k;
            v->fill[mark] = id;
        }
    }
}

void gw_fill_find(gw_vocab *v) {
    size_t best[GW_FILL_MARKS];
    for (size_t mark = 0; mark < GW_FILL_MARKS; mark++) {
        best[mark] = v->fill[mark] >= 0 ? 0 : SPELLINGS; /* a key goes first */
    }
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *t = &v->tokens[i];
        char first = t->bytes >= 5 && t->bytes <= 24 ? t->text[0] : '\0';
        if (first == '<' || first == '[' || first == '\xE2') {
            note(v, (int32_t)i, best);
        }
    }
    int32_t prefix = v->fill[GW_FILL_PREFIX];
    v->fill_suffix_first = prefix >= 0 && v->tokens[prefix].bytes == 8 &&
                           memcmp(v->tokens[prefix].text, "[PREFIX]", 8) == 0;
    for (int mark = GW_FILL_PAD; has_marks(v) && mark < GW_FILL_MARKS; mark++) {
        gw_vocab_add_end(v, v->fill[mark]);
    }
}

const char *gw_fill_missing(const gw_vocab *v) {
    static const char *const words[] = {
        NULL,
        "no prefix token",
        "no suffix token",
        "no prefix and no suffix token",
        "no middle token",
        "no prefix and no middle token",
        "no suffix and no middle token",
        "no prefix, no suffix and no middle token",
    };
    return words[(v->fill[GW_FILL_PREFIX] < 0) | (v->fill[GW_FILL_SUFFIX] < 0) << 1 |
                 (v->fill[GW_FILL_MIDDLE] < 0 && !v->fill_suffix_first) << 2];
}

/* ---- the prompt ------------------------------------------------------------------------------ */

typedef struct filling {
    const gw_vocab *v;
    const gw_tokenizer *t;
} filling;

/* Appends the tokens of a text, in which no mark is spelled. joined: no space is put before it. */
static gw_status add_text(const filling *f, gw_ids *out, const char *text, size_t bytes,
                          int joined) {
    int32_t barred[GW_FILL_MARKS], *ids = NULL;
    size_t n = 0;
    gw_text_rules rules = {.barred = barred, .joined = joined};
    for (int mark = 0; mark < GW_FILL_MARKS; mark++) {
        barred[rules.n_barred] = f->v->fill[mark];
        rules.n_barred += f->v->fill[mark] >= 0;
    }
    if (bytes == 0) {
        return GW_OK;
    }
    const gw_text_piece piece = {.id = -1, .text = text, .bytes = bytes};
    gw_status status = gw_tokenizer_encode_pieces(f->t, &piece, 1, &rules, &ids, &n);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_ids_add(out, ids[i]);
    }
    free(ids);
    return status;
}

/* [mark] name newline; without a mark the name alone. */
static gw_status add_name(const filling *f, gw_ids *out, gw_fill_mark mark, const char *name) {
    if (f->v->fill[mark] >= 0) {
        GW_TRY(gw_ids_add(out, f->v->fill[mark]));
    }
    GW_TRY(add_text(f, out, name, strlen(name), 1));
    return add_text(f, out, "\n", 1, 1);
}

static gw_status add_file(const filling *f, gw_ids *out, const gw_fill_file *file) {
    int marked = f->v->fill[GW_FILL_FILE] >= 0;
    if (marked || file->name != NULL) {
        GW_TRY(add_name(f, out, GW_FILL_FILE, file->name != NULL ? file->name : "untitled"));
    }
    GW_TRY(add_text(f, out, file->text, file->bytes, 1));
    return marked ? GW_OK : add_text(f, out, "\n\n", 2, 1);
}

/* What comes first and what comes last of all that is not the text itself. */
static gw_status add_project(const filling *f, const gw_fill *fill, gw_ids *repo, gw_ids *name) {
    int of_many = fill->n_files > 0 || fill->name != NULL || fill->repo != NULL;
    if (of_many && f->v->fill[GW_FILL_REPO] >= 0) {
        GW_TRY(add_name(f, repo, GW_FILL_REPO, fill->repo != NULL ? fill->repo : "project"));
    }
    return of_many && f->v->fill[GW_FILL_FILE] >= 0
               ? add_name(f, name, GW_FILL_FILE, fill->name != NULL ? fill->name : "untitled")
               : GW_OK;
}

static gw_status add_last(gw_ids *out, const gw_ids *from, size_t n) {
    gw_status status = GW_OK;
    for (size_t i = from->n - n; i < from->n && status == GW_OK; i++) {
        status = gw_ids_add(out, from->data[i]);
    }
    return status;
}

static gw_status add_suffix(const filling *f, gw_ids *out, const gw_ids *suffix, size_t n) {
    GW_TRY(gw_ids_add(out, f->v->fill[GW_FILL_SUFFIX]));
    for (size_t i = 0; i < n; i++) {
        GW_TRY(gw_ids_add(out, suffix->data[i]));
    }
    return GW_OK;
}

typedef struct parts {
    gw_ids prefix, begun, suffix, repo, files, name;
    size_t n_prefix, n_suffix, n_files; /* what is kept */
    int named;                          /* repo and name are kept */
} parts;

static gw_status read_parts(const filling *f, const gw_fill *fill, parts *p) {
    GW_TRY(add_text(f, &p->prefix, fill->prefix, fill->prefix_bytes, 0));
    GW_TRY(add_text(f, &p->begun, fill->begun, fill->begun != NULL ? fill->begun_bytes : 0,
                    fill->prefix_bytes > 0));
    GW_TRY(add_text(f, &p->suffix, fill->suffix, fill->suffix_bytes, 1));
    GW_TRY(add_project(f, fill, &p->repo, &p->name));
    for (size_t i = 0; i < fill->n_files; i++) {
        GW_TRY(add_file(f, &p->files, &fill->files[i]));
    }
    return GW_OK;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* The room's shares; how many tokens are cut. */
static gw_status share(const gw_vocab *v, parts *p, size_t room, size_t *cut) {
    size_t fixed = 2 + (size_t)(v->add_bos && v->bos >= 0) +
                   (size_t)(v->fill[GW_FILL_MIDDLE] >= 0) + p->begun.n;
    if (room > 0 && fixed > room) {
        return gw_fail(GW_E_LIMIT, NULL,
                       "%zu tokens have no room for the %zu that fill-in takes at least", room,
                       fixed);
    }
    size_t left = room > 0 ? room - fixed : SIZE_MAX / 2;
    size_t beyond = left > p->prefix.n ? left - p->prefix.n : 0;
    p->n_suffix = smaller(p->suffix.n, beyond > left / 4 ? beyond : left / 4);
    p->n_prefix = smaller(p->prefix.n, left - p->n_suffix);
    left -= p->n_suffix + p->n_prefix;
    p->named = p->repo.n + p->name.n <= left;
    left -= p->named ? p->repo.n + p->name.n : 0;
    p->n_files = p->named ? smaller(p->files.n, left) : 0;
    *cut = p->suffix.n - p->n_suffix + p->prefix.n - p->n_prefix + p->files.n - p->n_files +
           (p->named ? 0 : p->repo.n + p->name.n);
    return GW_OK;
}

static gw_status add_prefix(const filling *f, gw_ids *out, const parts *p) {
    GW_TRY(gw_ids_add(out, f->v->fill[GW_FILL_PREFIX]));
    GW_TRY(add_last(out, &p->prefix, p->n_prefix));
    return add_last(out, &p->begun, p->begun.n);
}

static gw_status put_together(const filling *f, const parts *p, gw_ids *out) {
    const gw_vocab *v = f->v;
    if (v->add_bos && v->bos >= 0) {
        GW_TRY(gw_ids_add(out, v->bos));
    }
    if (p->named) {
        GW_TRY(add_last(out, &p->repo, p->repo.n));
        GW_TRY(add_last(out, &p->files, p->n_files));
        GW_TRY(add_last(out, &p->name, p->name.n));
    }
    if (v->fill_suffix_first) {
        GW_TRY(add_suffix(f, out, &p->suffix, p->n_suffix));
    }
    GW_TRY(add_prefix(f, out, p));
    if (!v->fill_suffix_first) {
        GW_TRY(add_suffix(f, out, &p->suffix, p->n_suffix));
    }
    return v->fill[GW_FILL_MIDDLE] >= 0 ? gw_ids_add(out, v->fill[GW_FILL_MIDDLE]) : GW_OK;
}

gw_status gw_fill_prompt(const gw_vocab *vocab, const gw_tokenizer *t, const gw_fill *fill,
                         int32_t **ids, size_t *n, size_t *cut) {
    const filling f = {vocab, t};
    parts p = {0};
    gw_ids all = {0};
    size_t less = 0;
    gw_status status = GW_OK;
    if (gw_fill_missing(vocab) != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, NULL, "the model cannot fill in: its vocabulary has %s",
                       gw_fill_missing(vocab));
    }
    GW_TRY_DONE(read_parts(&f, fill, &p));
    GW_TRY_DONE(share(vocab, &p, fill->room, &less));
    GW_TRY_DONE(put_together(&f, &p, &all));
    *ids = all.data;
    *n = all.n;
    all.data = NULL;
    if (cut != NULL) {
        *cut = less;
    }
done:
    free(all.data);
    gw_ids *const lists[] = {&p.prefix, &p.begun, &p.suffix, &p.repo, &p.files, &p.name};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        free(lists[i]->data);
    }
    return status;
}
