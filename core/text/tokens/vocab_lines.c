/* core/text/tokens/vocab_lines.c - vocabularies with a token a line: tiktoken's ranks, RWKV's,
 * vocab.txt of BERT. */
#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/text/tokens/base64.h"
#include "core/text/tokens/vocab.h"
#include "core/text/utf8.h"

enum { LINES_MAX = 1 << 22 };

static gw_status no_memory(const char *where) {
    return gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
}

/* The line at *at, without what ends it; *at is left behind. 0: no more. */
static int next_line(const char *text, size_t n, size_t *at, const char **line, size_t *length) {
    if (*at >= n) {
        return 0;
    }
    const char *end = memchr(text + *at, '\n', n - *at);
    size_t until = end != NULL ? (size_t)(end - text) : n;
    *line = text + *at;
    *length = until - *at;
    *length -= *length > 0 && text[until - 1] == '\r';
    *at = until + 1;
    return 1;
}

static gw_status open_lines(const char *where, const char *text, size_t n, gw_vocab *v) {
    size_t count = 1;
    for (size_t i = 0; i < n; i++) {
        count += text[i] == '\n';
    }
    count++; /* RWKV's first token has no line */
    if (count > LINES_MAX) {
        return gw_fail(GW_E_LIMIT, where, "%zu lines; at most %d tokens are handled", count,
                       (int)LINES_MAX);
    }
    v->arena = gw_arena_new();
    v->tokens = v->arena != NULL ? gw_arena_array(v->arena, count, sizeof *v->tokens) : NULL;
    return v->tokens != NULL ? GW_OK : no_memory(where);
}

/* twice: of two equal ones the later counts, as for the reference library. */
static gw_status add_token(const char *where, gw_vocab *v, const char *text, size_t n, int twice,
                           gw_map *seen) {
    gw_vocab_token *t = &v->tokens[v->n_tokens];
    size_t before = 0;
    t->text = gw_arena_copy(v->arena, text, n);
    t->bytes = (uint32_t)n;
    t->kind = GW_TOKEN_NORMAL;
    t->score = (double)v->n_tokens;
    GW_TRY(t->text == NULL ? no_memory(where) : GW_OK);
    switch (gw_map_add(seen, t->text, n, v->n_tokens, &before)) {
    case GW_MAP_NOMEM:
        return no_memory(where);
    case GW_MAP_PRESENT:
        if (twice) {
            v->tokens[before].kind = GW_TOKEN_UNUSED;
            v->n_tokens++;
            return GW_OK;
        }
        return gw_fail(GW_E_DUPLICATE, where, "tokens %zu and %zu are the same", before,
                       v->n_tokens);
    default:
        v->n_tokens++;
        return GW_OK;
    }
}

/* ---- tiktoken ---------------------------------------------------------------------------- */

/* "IQ== 0": ranks count from 0. */
static gw_status read_rank(const char *where, const char *line, size_t n, gw_vocab *v,
                           gw_bytes *bytes, gw_map *seen) {
    const char *space = memchr(line, ' ', n);
    size_t text = space != NULL ? (size_t)(space - line) : n, rank = 0, digits = 0;
    for (size_t i = text + 1; i < n && line[i] >= '0' && line[i] <= '9' && digits < 9; i++) {
        rank = rank * 10 + (size_t)(line[i] - '0');
        digits++;
    }
    bytes->n = 0;
    if (space == NULL || digits == 0 || text + 1 + digits != n ||
        !gw_base64_read(line, text, bytes) || bytes->n == 0) {
        return gw_fail(GW_E_SYNTAX, where, "line %zu is not bytes in base64 and a rank",
                       v->n_tokens + 1);
    }
    if (rank != v->n_tokens) {
        return gw_fail(GW_E_METADATA, where, "line %zu has the rank %zu", v->n_tokens + 1, rank);
    }
    return add_token(where, v, bytes->data, bytes->n, 0, seen);
}

gw_status gw_vocab_read_tiktoken(const char *where, const void *bytes, size_t n, gw_vocab *out) {
    gw_vocab v;
    gw_bytes token = {0};
    gw_map *seen = gw_map_new();
    const char *line;
    size_t at = 0, length;
    gw_vocab_init(&v);
    v.kind = GW_VOCAB_BYTE_RANKS;
    v.ignore_merges = 1;
    gw_status status = GW_OK;
    GW_TRY_DONE(seen == NULL ? no_memory(where) : open_lines(where, bytes, n, &v));
    while (next_line(bytes, n, &at, &line, &length)) {
        if (length > 0) {
            GW_TRY_DONE(read_rank(where, line, length, &v, &token, seen));
        }
    }
    GW_TRY_DONE(v.n_tokens == 0 ? gw_fail(GW_E_METADATA, where, "no ranks") : GW_OK);
done:
    gw_map_free(seen);
    free(token.data);
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    *out = v;
    return GW_OK;
}

/* ---- RWKV -------------------------------------------------------------------------------- */

/* The number of `digits` hexadecimal digits, or -1. */
static int32_t hex(const char *text, size_t n, size_t digits) {
    int32_t value = 0;
    if (n < digits) {
        return -1;
    }
    for (size_t i = 0; i < digits; i++) {
        int c = (unsigned char)text[i], lower = c | 0x20;
        int digit = c >= '0' && c <= '9'           ? c - '0'
                    : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                   : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

size_t gw_vocab_unescape(const char *text, size_t n, int characters, char *out) {
    size_t made = 0;
    for (size_t at = 0; at < n;) {
        if (text[at] != '\\' || at + 1 == n) {
            out[made++] = text[at++];
            continue;
        }
        char c = text[at + 1];
        size_t digits = c == 'x' ? 2 : !characters ? 0 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        int32_t code = digits > 0 ? hex(text + at + 2, n - at - 2, digits) : -1;
        if (code >= 0 && characters) {
            made += gw_utf8_put((uint32_t)code, out + made);
        } else if (code >= 0) {
            out[made++] = (char)(unsigned char)code;
        } else {
            out[made++] = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
        }
        at += 2 + (code >= 0 ? digits : 0);
    }
    return made;
}

/* "256 ' 7' 2", "300 b'\xe4\xb8' 2". Token 0 is written nowhere: it ends a text. */
static gw_status read_numbered(const char *where, const char *line, size_t n, gw_vocab *v,
                               gw_map *seen) {
    char number[24], *out = gw_arena_alloc(v->arena, n + 1);
    GW_TRY(out == NULL ? no_memory(where) : GW_OK);
    size_t end = n, begin;
    while (end > 0 && line[end - 1] != ' ') {
        end--;
    }
    begin = (size_t)snprintf(number, sizeof number, "%zu ", v->n_tokens);
    int fits = end > begin + 3 && memcmp(line, number, begin) == 0;
    int bytes = fits && line[begin] == 'b';
    begin += (size_t)bytes;
    char quote = fits ? line[begin] : '\0';
    if (!fits || (quote != '\'' && quote != '"') || end < begin + 4 || line[end - 2] != quote) {
        return gw_fail(GW_E_SYNTAX, where, "line %zu is not '%zu', a text in quotes and its length",
                       v->n_tokens, v->n_tokens);
    }
    size_t made = gw_vocab_unescape(line + begin + 1, end - begin - 3, !bytes, out);
    size_t digits = (size_t)snprintf(number, sizeof number, "%zu", made);
    if (digits != n - end || memcmp(line + end, number, digits) != 0) {
        return gw_fail(GW_E_METADATA, where, "line %zu has %zu bytes, not %.*s", v->n_tokens, made,
                       (int)(n - end < 20 ? n - end : 20), line + end);
    }
    return add_token(where, v, out, made, 0, seen);
}

gw_status gw_vocab_read_rwkv(const char *where, const void *bytes, size_t n, gw_vocab *out) {
    static const char end[] = "<|rwkv_tokenizer_end_of_text|>";
    gw_vocab v;
    gw_map *seen = gw_map_new();
    const char *line;
    size_t at = 0, length;
    gw_vocab_init(&v);
    v.kind = GW_VOCAB_LONGEST;
    gw_status status = GW_OK;
    GW_TRY_DONE(seen == NULL ? no_memory(where) : open_lines(where, bytes, n, &v));
    GW_TRY_DONE(add_token(where, &v, end, sizeof end - 1, 0, seen));
    v.tokens[0].kind = GW_TOKEN_CONTROL;
    v.eos = 0;
    while (next_line(bytes, n, &at, &line, &length)) {
        GW_TRY_DONE(length > 0 ? read_numbered(where, line, length, &v, seen) : GW_OK);
    }
    GW_TRY_DONE(gw_vocab_check(where, &v));
done:
    gw_map_free(seen);
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    *out = v;
    return GW_OK;
}

/* ---- vocab.txt --------------------------------------------------------------------------- */

static void find_special(gw_vocab *v) {
    const struct {
        const char *text;
        int32_t *id;
    } known[] = {{"[CLS]", &v->bos},
                 {"[SEP]", &v->eos},
                 {"[UNK]", &v->unk},
                 {"[PAD]", &v->pad},
                 {"[MASK]", NULL}};
    for (size_t i = 0; i < v->n_tokens; i++) {
        gw_vocab_token *t = &v->tokens[i];
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            if (t->bytes == strlen(known[k].text) &&
                memcmp(t->text, known[k].text, t->bytes) == 0) {
                t->kind = GW_TOKEN_CONTROL;
                t->special = 1;
                if (known[k].id != NULL) {
                    *known[k].id = (int32_t)i;
                }
            }
        }
    }
    v->add_bos = v->bos >= 0;
    v->add_eos = v->eos >= 0;
}

gw_status gw_vocab_bert(const char *where, gw_vocab *v, int lower, int accents, int han) {
    const gw_vocab_step normal = {
        .kind = GW_CHANGE_BERT,
        .flags = GW_CHANGE_CLEAN | (han ? GW_CHANGE_HAN : 0u) | (lower ? GW_CHANGE_LOWER : 0u) |
                 ((accents < 0 ? lower : accents) ? GW_CHANGE_ACCENTS : 0u)};
    const gw_vocab_step decode = {
        .kind = GW_CHANGE_JOIN_PIECES, .flags = GW_CHANGE_CLEAN, .text = "##", .text_bytes = 2};
    (void)where;
    v->n_normal = v->n_decode = v->n_splits = 0;
    GW_TRY(gw_vocab_add_step(v, &v->normal, &v->n_normal, &normal));
    GW_TRY(gw_vocab_add_step(v, &v->decode, &v->n_decode, &decode));
    GW_TRY(gw_vocab_add_split(v, (gw_vocab_split){"\\s+", GW_SPLIT_REMOVED, 0, 0, NULL}));
    GW_TRY(gw_vocab_add_split(
        v, (gw_vocab_split){"[\\p{P}$+<=>^`|~]", GW_SPLIT_ISOLATED, 0, 0, NULL}));
    v->inside_prefix = "##";
    int32_t cls = v->bos, sep = v->eos;
    if (cls >= 0 && sep >= 0 && v->n_pair == 0) {
        const gw_vocab_part pair[] = {
            {cls, 0}, {GW_FRAME_TEXT, 0}, {sep, 0}, {GW_FRAME_PAIR, 1}, {sep, 1}};
        v->pair = gw_arena_array(v->arena, sizeof pair / sizeof pair[0], sizeof pair[0]);
        GW_TRY(v->pair == NULL ? no_memory(where) : GW_OK);
        memcpy(v->pair, pair, sizeof pair);
        v->n_pair = sizeof pair / sizeof pair[0];
    }
    return GW_OK;
}

gw_status gw_vocab_read_vocab_txt(const char *where, const void *bytes, size_t n, gw_vocab *out) {
    gw_vocab v;
    gw_map *seen = gw_map_new();
    const char *line;
    size_t at = 0, length;
    gw_vocab_init(&v);
    v.kind = GW_VOCAB_WORDPIECE;
    gw_status status = GW_OK;
    if (gw_utf8_span(bytes, n) != n) {
        GW_TRY_DONE(gw_fail(GW_E_ENCODING, where, "not UTF-8 at byte %zu", gw_utf8_span(bytes, n)));
    }
    GW_TRY_DONE(seen == NULL ? no_memory(where) : open_lines(where, bytes, n, &v));
    while (next_line(bytes, n, &at, &line, &length)) {
        GW_TRY_DONE(add_token(where, &v, line, length, 1, seen));
    }
    find_special(&v);
    GW_TRY_DONE(v.unk < 0 ? gw_fail(GW_E_METADATA, where, "no [UNK]: not a vocabulary of BERT")
                          : GW_OK);
    GW_TRY_DONE(gw_vocab_bert(where, &v, 1, -1, 1));
    GW_TRY_DONE(gw_vocab_check(where, &v));
done:
    gw_map_free(seen);
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    *out = v;
    return GW_OK;
}
