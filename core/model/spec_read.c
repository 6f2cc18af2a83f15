/* core/model/spec_read.c - lines of a spec: words, names, `like`, and which reader a line is for.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/spec_parts.h"

enum { MOST_LIKE = 6 };

/* ---- words ---------------------------------------------------------------------------------- */

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

const char *gw_spec_split(const char *text, gw_spec_line *out) {
    const char *p = text;
    out->n = 0;
    for (;;) {
        while (is_blank(*p)) {
            p++;
        }
        out->end = p;
        if (*p == '\0' || *p == '\n' || *p == '#') {
            break;
        }
        if (out->n == GW_SPEC_LINE_WORDS) {
            return NULL;
        }
        gw_spec_word *w = &out->word[out->n++];
        w->at = p;
        while (*p != '\0' && *p != '\n' && *p != '#' && !is_blank(*p)) {
            p++;
        }
        w->n = (size_t)(p - w->at);
    }
    while (*p != '\0' && *p != '\n') {
        p++;
    }
    return *p == '\n' ? p + 1 : p;
}

int gw_spec_is(gw_spec_word w, const char *s) {
    return strlen(s) == w.n && memcmp(w.at, s, w.n) == 0;
}

gw_status gw_spec_fail(const gw_spec_reader *r, const char *format, ...) {
    char place[64], text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    size_t n = strlen(r->name), tail = n > 5 && strcmp(r->name + n - 5, ".spec") == 0 ? 5 : 0;
    snprintf(place, sizeof place, "%.*s.spec:%d", (int)(n - tail < 40 ? n - tail : 40), r->name,
             r->line);
    return gw_fail(GW_E_SYNTAX, place, "%s", text);
}

gw_status gw_spec_copy(const gw_spec_reader *r, gw_spec_word w, char *dst, size_t room,
                       const char *what) {
    if (w.n >= room) {
        return gw_spec_fail(r, "%s '%.*s...' is longer than %zu characters", what, 40, w.at,
                            room - 1);
    }
    memcpy(dst, w.at, w.n);
    dst[w.n] = '\0';
    return GW_OK;
}

/* ---- names ---------------------------------------------------------------------------------- */

int gw_spec_role(const gw_blueprint *bp, gw_spec_word w) {
    for (int i = 0; i < bp->n_weights; i++) {
        if (gw_spec_is(w, bp->weight[i].role)) {
            return i;
        }
    }
    return -1;
}

int gw_spec_number_of(const gw_blueprint *bp, const char *name, size_t n) {
    for (int i = 0; i < bp->n_numbers; i++) {
        if (strlen(bp->number[i].name) == n && memcmp(bp->number[i].name, name, n) == 0) {
            return i;
        }
    }
    return -1;
}

int gw_activation_named(const char *text, size_t n, gw_act_kind *out) {
    static const struct {
        const char *name;
        gw_act_kind kind;
    } known[] = {{"silu", GW_ACT_SILU},
                 {"swish", GW_ACT_SILU},
                 {"gelu", GW_ACT_GELU},
                 {"gelu_new", GW_ACT_GELU_TANH},
                 {"gelu_tanh", GW_ACT_GELU_TANH},
                 {"gelu_fast", GW_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", GW_ACT_GELU_TANH},
                 {"relu", GW_ACT_RELU},
                 {"relu2", GW_ACT_RELU2},
                 {"xielu", GW_ACT_XIELU},
                 {"sqrelu", GW_ACT_RELU2},
                 {"swiglu_oai", GW_ACT_SWIGLU_OAI},
                 {"sigmoid", GW_ACT_SIGMOID},
                 {"softplus", GW_ACT_SOFTPLUS},
                 {"tanh", GW_ACT_TANH},
                 {"clamp", GW_ACT_CLAMP},
                 {"clip", GW_ACT_CLIP},
                 {"silu_capped", GW_ACT_SILU_CAPPED},
                 {"linear", GW_ACT_NONE}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == n && memcmp(known[i].name, text, n) == 0) {
            *out = known[i].kind;
            return 1;
        }
    }
    return 0;
}

int gw_activation_known(const char *text, gw_act_kind *out) {
    return gw_activation_named(text, strlen(text), out);
}

static int is_called(const char *name, const char *text, size_t n) {
    return strlen(name) == n && memcmp(name, text, n) == 0;
}

/* Numbers first; then indices of ropes, factors and kinds of layers. */
static gw_expr_name meaning_of(const void *user, const char *name, size_t n) {
    const gw_blueprint *bp = user;
    gw_expr_name constant = {.kind = GW_NAME_CONSTANT};
    int number = gw_spec_number_of(bp, name, n);
    if (number >= 0) {
        return (gw_expr_name){.kind = GW_NAME_NUMBER, .number = number};
    }
    for (int i = 0; i < bp->n_ropes; i++) {
        if (is_called(bp->rope[i].name, name, n)) {
            constant.constant = i;
            return constant;
        }
    }
    for (int i = 0; i < bp->n_factors; i++) {
        if (is_called(bp->factor[i].name, name, n)) {
            constant.constant = i;
            return constant;
        }
    }
    for (int i = 0; i < bp->n_kinds; i++) {
        if (is_called(bp->kind[i], name, n)) {
            constant.constant = i;
            return constant;
        }
    }
    constant.constant = -1.0;
    return is_called("none", name, n) ? constant : (gw_expr_name){.kind = GW_NAME_UNKNOWN};
}

gw_status gw_spec_expr(const gw_spec_reader *r, gw_spec_word w, int positions, int lists,
                       gw_expr *out) {
    const char *why = "";
    if (gw_expr_read(&r->out->pool, w.at, w.n, meaning_of, r->out, positions, lists, out, &why) !=
        GW_OK) {
        return gw_spec_fail(r, "'%.*s': %s", w.n < 60 ? (int)w.n : 60, w.at, why);
    }
    return GW_OK;
}

gw_status gw_spec_rest(const gw_spec_reader *r, const gw_spec_line *l, int at, int positions,
                       int lists, gw_expr *out) {
    if (at >= l->n) {
        return gw_spec_fail(r, "an expression is missing at the end of the line");
    }
    const char *start = l->word[at].at;
    return gw_spec_expr(r, (gw_spec_word){start, (size_t)(l->end - start)}, positions, lists, out);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static gw_status read_text(gw_spec_reader *r, const char *name, const char *text);

static gw_status read_like(gw_spec_reader *r, gw_spec_word w) {
    const gw_spec *spec = gw_spec_named(w.at, w.n);
    if (spec == NULL) {
        return gw_spec_fail(r, "family '%.*s' after like is not known", w.n < 40 ? (int)w.n : 40,
                            w.at);
    }
    if (r->depth == MOST_LIKE) {
        return gw_spec_fail(r, "like leads through more than %d families", MOST_LIKE);
    }
    gw_spec_reader before = *r;
    r->depth++;
    gw_status status = read_text(r, gw_spec_family(spec), gw_spec_text(spec));
    int file = r->file;
    if (status == GW_OK) {
        *r = before;
        r->file = file + 1;
    }
    return status;
}

static gw_status read_names(const gw_spec_reader *r, const gw_spec_line *l,
                            char list[GW_SPEC_LISTED][40], int *count) {
    if (r->pass == 1) {
        return GW_OK;
    }
    *count = 0;
    for (int i = 1; i < l->n; i++) {
        if (*count == GW_SPEC_LISTED) {
            return gw_spec_fail(r, "more than %d names", GW_SPEC_LISTED);
        }
        gw_spec_word w = gw_spec_is(l->word[i], "-") ? (gw_spec_word){"", 0} : l->word[i];
        GW_TRY(gw_spec_copy(r, w, list[*count], 40, "name"));
        ++*count;
    }
    return GW_OK;
}

static gw_status read_family(gw_spec_reader *r, const gw_spec_line *l) {
    r->families |= r->depth == 0;
    if (r->depth > 0) {
        return GW_OK;
    }
    return gw_spec_copy(r, l->word[1], r->out->family, sizeof r->out->family, "family");
}

static gw_status read_line(gw_spec_reader *r, const gw_spec_line *l) {
    static const struct {
        const char *word;
        gw_status (*read)(gw_spec_reader *, const gw_spec_line *);
    } readers[] = {{"number", gw_spec_read_number}, {"real", gw_spec_read_number},
                   {"flag", gw_spec_read_number},   {"list", gw_spec_read_number},
                   {"word", gw_spec_read_number},   {"activation", gw_spec_read_number},
                   {"letter", gw_spec_read_number}, {"rope", gw_spec_read_rope},
                   {"factor", gw_spec_read_factor}, {"weight", gw_spec_read_weight},
                   {"stored", gw_spec_read_stored}, {"value", gw_spec_read_value}};
    static const char *const sections[] = {"start", "layer", "head", "score"};
    gw_spec_word key = l->word[0];
    for (int i = 0; i < GW_SECTIONS; i++) {
        if (gw_spec_is(key, sections[i]) && l->n <= 1 + (i == GW_SECTION_LAYER)) {
            return gw_spec_enter(r, l, (gw_section)i);
        }
    }
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (gw_spec_is(key, readers[i].word)) {
            return readers[i].read(r, l);
        }
    }
    if (gw_spec_is(key, "like") && l->n == 2) {
        return read_like(r, l->word[1]);
    }
    if (gw_spec_is(key, "family") && l->n == 2) {
        return read_family(r, l);
    }
    static const char *const kept[] = {"gguf", "hf", "decoders", "placeholder"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) { /* for gw_spec_words */
        if (gw_spec_is(key, kept[i]) && l->n >= 2) {
            return GW_OK;
        }
    }
    if (gw_spec_is(key, "prefix")) {
        return read_names(r, l, r->out->prefix, &r->out->n_prefixes);
    }
    if (gw_spec_is(key, "skip")) {
        return read_names(r, l, r->out->skip, &r->out->n_skips);
    }
    int found = 0;
    GW_TRY(gw_spec_read_block(r, l, &found));
    return found ? GW_OK
                 : gw_spec_fail(r,
                                "'%.*s' with %d arguments is no line of a spec "
                                "(specs/README.md)",
                                key.n < 40 ? (int)key.n : 40, key.at, l->n - 1);
}

static gw_status read_text(gw_spec_reader *r, const char *name, const char *text) {
    r->name = name;
    r->line = 0;
    r->section = -1;
    memset(r->own, 0, sizeof r->own);
    for (const char *p = text; *p != '\0';) {
        gw_spec_line l;
        r->line++;
        p = gw_spec_split(p, &l);
        if (p == NULL) {
            return gw_spec_fail(r, "more than %d words on a line", GW_SPEC_LINE_WORDS);
        }
        GW_TRY(l.n > 0 ? read_line(r, &l) : GW_OK);
    }
    return GW_OK;
}

static gw_status read_twice(gw_spec_reader *r, const char *name, const char *text) {
    for (r->pass = 1; r->pass <= 2; r->pass++) {
        r->depth = r->families = 0;
        r->file = 1;
        GW_TRY(read_text(r, name, text));
        if (!r->families) {
            return gw_spec_fail(r, "the line 'family' is missing");
        }
    }
    return gw_spec_check_end(r);
}

gw_status gw_blueprint_read(const char *name, const char *text, gw_blueprint *out) {
    gw_blueprint *bp = calloc(1, sizeof *bp);
    if (bp == NULL) {
        return gw_fail(GW_E_NOMEM, name, "cannot hold a model spec");
    }
    for (int i = 0; i < GW_NUM_RESERVED; i++) {
        bp->reserved[i] = -1;
    }
    snprintf(bp->value[GW_VALUE_STREAM], sizeof bp->value[0], "x");
    snprintf(bp->value[GW_VALUE_LAST], sizeof bp->value[0], "it");
    bp->n_values = 2;
    bp->given = -1;
    gw_spec_reader r = {.out = bp};
    gw_status status = read_twice(&r, name, text);
    if (status == GW_OK) {
        *out = *bp;
    }
    free(bp);
    return status;
}
