/* core/text/tokens/pieces.c - what each token stands for in a decoded text: the decoder's steps,
 * done once for every token, in the middle of a text and at its beginning. */
#include "core/text/tokens/normalize.h"
#include "core/text/tokens/tokenizer_impl.h"
#include "core/text/utf8.h"

gw_status gw_letters_to_bytes(const char *text, size_t n, gw_bytes *out) {
    size_t begin = out->n;
    for (size_t at = 0; at < n;) {
        uint32_t cp = 0;
        size_t length = gw_utf8_next(text + at, n - at, &cp);
        int byte = length == 0 ? -1 : gw_letter_byte(cp);
        if (byte < 0) { /* not of the alphabet: plain text */
            out->n = begin;
            return gw_bytes_add(out, text, n);
        }
        char c = (char)byte;
        GW_TRY(gw_bytes_add(out, &c, 1));
        at += length;
    }
    return GW_OK;
}

/* ---- parts of steps ---------------------------------------------------------------------- */

/* `what` becomes `to` wherever it stands. */
static gw_status substitute(gw_bytes *text, gw_bytes *scratch, const char *what, size_t n,
                            const char *to, size_t to_bytes) {
    scratch->n = 0;
    for (size_t at = 0; n > 0 && at < text->n;) {
        const char *hit = memmem(text->data + at, text->n - at, what, n);
        size_t until = hit != NULL ? (size_t)(hit - text->data) : text->n;
        GW_TRY(gw_bytes_add(scratch, text->data + at, until - at));
        GW_TRY(hit != NULL ? gw_bytes_add(scratch, to, to_bytes) : GW_OK);
        at = until + (hit != NULL ? n : 0);
    }
    if (n > 0) {
        gw_bytes swap = *text;
        *text = *scratch;
        *scratch = swap;
    }
    return GW_OK;
}

/* Spaces of English that a tokenizer put in. */
static gw_status clean_up(gw_bytes *text, gw_bytes *scratch) {
    static const char *const ROWS[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                          {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                          {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                          {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        GW_TRY(substitute(text, scratch, ROWS[i][0], strlen(ROWS[i][0]), ROWS[i][1],
                          strlen(ROWS[i][1])));
    }
    return GW_OK;
}

static gw_status insert(gw_bytes *text, const char *what, size_t n) {
    GW_TRY(gw_bytes_reserve(text, n));
    memmove(text->data + n, text->data, text->n);
    memcpy(text->data, what, n);
    text->n += n;
    return GW_OK;
}

static void strip_counts(const gw_vocab_step *how, gw_bytes *text) {
    size_t n = how->text_bytes, begin = 0;
    for (uint32_t i = 0; i < how->start && n > 0 && text->n - begin >= n &&
                         memcmp(text->data + begin, how->text, n) == 0;
         i++) {
        begin += n;
    }
    memmove(text->data, text->data + begin, text->n - begin);
    text->n -= begin;
    for (uint32_t i = 0; i < how->stop && n > 0 && text->n >= n &&
                         memcmp(text->data + text->n - n, how->text, n) == 0;
         i++) {
        text->n -= n;
    }
}

/* ---- one token --------------------------------------------------------------------------- */

typedef struct piece {
    gw_tokenizer *t;
    const gw_change *steps; /* of vocab->decode */
    size_t id;
    gw_regex_work *work;
    gw_bytes text, scratch, a, b;
} piece;

static int spelled_byte(const gw_bytes *text, char *byte) {
    char hex[3] = {0}, *end;
    if (text->n != 6 || memcmp(text->data, "<0x", 3) != 0 || text->data[5] != '>') {
        return 0;
    }
    memcpy(hex, text->data + 3, 2);
    *byte = (char)strtol(hex, &end, 16);
    return *end == '\0' && hex[0] != '+' && hex[0] != '-' && hex[0] != ' ';
}

static gw_status join_piece(piece *p, const gw_vocab_step *how, int first) {
    size_t n = how->text_bytes;
    if (!first) {
        if (p->text.n >= n && n > 0 && memcmp(p->text.data, how->text, n) == 0) {
            memmove(p->text.data, p->text.data + n, p->text.n - n);
            p->text.n -= n;
        } else {
            GW_TRY(insert(&p->text, " ", 1));
        }
    }
    return how->flags & GW_CHANGE_CLEAN ? clean_up(&p->text, &p->scratch) : GW_OK;
}

static gw_status join_word(piece *p, const gw_vocab_step *how) {
    gw_bytes *text = &p->text;
    size_t n = how->text_bytes;
    int ends = n > 0 && text->n >= n && memcmp(text->data + text->n - n, how->text, n) == 0;
    p->t->joining.ends_word[p->id] = (uint8_t)ends;
    text->n -= ends ? n : 0;
    GW_TRY(substitute(text, &p->scratch, how->text, n, " ", 1));
    return insert(text, " ", 1); /* gw_decode_next leaves it out where none is due */
}

static gw_status ctc(piece *p, const gw_vocab_step *how) {
    GW_TRY(substitute(&p->text, &p->scratch, how->text, how->text_bytes, "", 0));
    if (!(how->flags & GW_CHANGE_CLEAN)) {
        return GW_OK;
    }
    GW_TRY(clean_up(&p->text, &p->scratch));
    return substitute(&p->text, &p->scratch, how->to, how->to_bytes, " ", 1);
}

static gw_status decode_step(piece *p, const gw_change *step, int first, int fused) {
    const gw_vocab_step *how = step->how;
    gw_bytes *text = &p->text, *scratch = &p->scratch;
    char byte;
    switch (how->kind) {
    case GW_CHANGE_FROM_LETTERS:
        scratch->n = 0;
        GW_TRY(gw_letters_to_bytes(text->data, text->n, scratch));
        text->n = 0;
        return gw_bytes_add(text, scratch->data, scratch->n);
    case GW_CHANGE_FROM_BYTES:
        if (spelled_byte(text, &byte)) {
            text->n = 0;
            return gw_bytes_add(text, &byte, 1);
        }
        return GW_OK;
    case GW_CHANGE_FROM_MARKS:
        return substitute(text, scratch, how->text, how->text_bytes, " ",
                          !(first && how->flags & GW_CHANGE_FIRST));
    case GW_CHANGE_JOIN_PIECES:
        return join_piece(p, how, first || fused);
    case GW_CHANGE_JOIN_WORDS:
        return join_word(p, how);
    case GW_CHANGE_CTC:
        return ctc(p, how);
    case GW_CHANGE_STRIP_COUNT:
        if (!fused) {
            strip_counts(how, text);
        }
        return GW_OK;
    case GW_CHANGE_REPLACE: {
        scratch->n = 0;
        GW_TRY(gw_change_run(step, p->work, text->data, text->n, 0, scratch));
        gw_bytes swap = *text;
        *text = *scratch;
        *scratch = swap;
        return GW_OK;
    }
    default:
        return GW_OK;
    }
}

static gw_status decode_steps(piece *p, int first) {
    const gw_vocab *v = p->t->vocab;
    const gw_vocab_token *token = &v->tokens[p->id];
    int fused = 0;
    const char *name = token->text;
    size_t n = token->bytes;
    if (token->normalized) { /* the library knows it by what it looks for */
        GW_TRY(gw_normalize_steps(p->t, p->work, name, n, GW_PLACE_FIRST, &p->a, &p->b, &name, &n));
    }
    p->text.n = 0;
    GW_TRY(gw_bytes_add(&p->text, name, n));
    if (v->n_decode == 0 && v->spaced_decode && !first) {
        return insert(&p->text, " ", 1);
    }
    for (size_t i = 0; i < v->n_decode; i++) {
        GW_TRY(decode_step(p, &p->steps[i], first, fused));
        fused |= v->decode[i].kind == GW_CHANGE_FUSE || v->decode[i].kind == GW_CHANGE_FROM_LETTERS;
    }
    return GW_OK;
}

/* SentencePiece, and files that name no decoder. */
static gw_status plain_piece(piece *p) {
    const gw_vocab *v = p->t->vocab;
    const gw_vocab_token *token = &v->tokens[p->id];
    gw_bytes *text = &p->text;
    int spm = GW_VOCAB_IS_SPM(v->kind);
    text->n = 0;
    if (token->kind == GW_TOKEN_BYTE) {
        return gw_bytes_add(text, &token->byte, 1);
    }
    if (token->kind == GW_TOKEN_UNKNOWN && (int32_t)p->id == v->unk && spm) {
        return gw_bytes_add(text, " \xE2\x81\x87 ", 5); /* what SentencePiece decodes it to */
    }
    int normal = token->kind == GW_TOKEN_NORMAL || token->kind == GW_TOKEN_UNUSED;
    if (v->kind == GW_VOCAB_BYTE_BPE && normal) {
        return gw_letters_to_bytes(token->text, token->bytes, text);
    }
    GW_TRY(gw_bytes_add(text, token->text, token->bytes));
    int marks = v->kind == GW_VOCAB_RANK_BPE || (spm && token->kind != GW_TOKEN_CONTROL);
    return marks ? substitute(text, &p->scratch, GW_SPACE_MARK, 3, " ", 1) : GW_OK;
}

/* ---- all tokens -------------------------------------------------------------------------- */

static gw_status nomem(void) { return gw_fail(GW_E_NOMEM, NULL, "no memory for the tokenizer"); }

/* Behind FUSE a step sees the whole text: what can be said of each token is done there, the rest
 * is refused. */
static gw_status read_joining(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    gw_joining *j = &t->joining;
    int fused = 0;
    j->own_first = v->n_decode == 0 && v->spaced_decode;
    for (size_t i = 0; i < v->n_decode; i++) {
        const gw_vocab_step *how = &v->decode[i];
        fused |= how->kind == GW_CHANGE_FUSE;
        j->own_first |= how->kind == GW_CHANGE_JOIN_PIECES ||
                        (how->kind == GW_CHANGE_FROM_MARKS && how->flags & GW_CHANGE_FIRST);
        j->words |= how->kind == GW_CHANGE_JOIN_WORDS;
        j->ctc |= how->kind == GW_CHANGE_CTC;
        if (fused && how->kind == GW_CHANGE_STRIP_COUNT) {
            j->strip = how->text_bytes == 1 ? *how->text : 0;
            j->start = how->start;
            j->stop = how->stop;
        }
        int whole = fused && (how->kind == GW_CHANGE_REPLACE || how->kind == GW_CHANGE_STRIP_COUNT);
        if (whole && how->text_bytes != 1 && how->text_bytes != 3) {
            return gw_fail(GW_E_UNSUPPORTED, NULL,
                           "a decoder that looks for \"%.40s\" behind Fuse is not supported",
                           how->text);
        }
    }
    if (j->words && (j->ends_word = calloc(v->n_tokens, 1)) == NULL) {
        return nomem();
    }
    return GW_OK;
}

static gw_status build_all(piece *p, int first, gw_pieces *out) {
    const gw_vocab *v = p->t->vocab;
    int plain = GW_VOCAB_IS_SPM(v->kind) || (v->n_decode == 0 && !v->spaced_decode);
    out->at = calloc(v->n_tokens + 1, sizeof *out->at);
    GW_TRY(out->at == NULL ? nomem() : GW_OK);
    for (p->id = 0; p->id < v->n_tokens; p->id++) {
        GW_TRY(plain ? plain_piece(p) : decode_steps(p, first));
        GW_TRY(gw_bytes_add(&out->text, p->text.data, p->text.n));
        out->at[p->id + 1] = out->text.n;
    }
    return GW_OK;
}

gw_status gw_pieces_build(gw_tokenizer *t) {
    const gw_vocab *v = t->vocab;
    gw_change *steps = calloc(v->n_decode + 1, sizeof *steps);
    piece p = {.t = t, .steps = steps};
    gw_status status = GW_OK;
    GW_TRY(steps == NULL ? nomem() : GW_OK);
    GW_TRY_DONE(read_joining(t));
    GW_TRY_DONE(gw_regex_work_new(&p.work));
    GW_TRY_DONE(gw_bytes_reserve(&p.text, 64));
    GW_TRY_DONE(gw_bytes_reserve(&p.scratch, 64));
    for (size_t i = 0; i < v->n_decode; i++) {
        GW_TRY_DONE(gw_change_new(NULL, &v->decode[i], &steps[i]));
    }
    GW_TRY_DONE(build_all(&p, 0, &t->inner));
    GW_TRY_DONE(t->joining.own_first ? build_all(&p, 1, &t->first) : GW_OK);
done:
    for (size_t i = 0; i < v->n_decode; i++) {
        gw_change_free(&steps[i]);
    }
    free(steps);
    free(p.text.data);
    free(p.scratch.data);
    free(p.a.data);
    free(p.b.data);
    gw_regex_work_free(p.work);
    return status;
}

void gw_pieces_free(gw_tokenizer *t) {
    gw_pieces *all[] = {&t->inner, &t->first, &t->whole};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]->text.data);
        free(all[i]->at);
    }
    free(t->joining.ends_word);
}
