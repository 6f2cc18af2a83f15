/* core/model/spec.c - reads the embedded family specs. Knows the grammar, no family. */
#include "core/model/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spec_table.h"

/* A gw_spec is a row of the generated table, whose struct has no name; it is never defined. */
typedef __typeof__(spec_table[0]) spec_row;

static const spec_row *row_of(const gw_spec *spec) { return (const spec_row *)(const void *)spec; }

/* ---- words of a line ------------------------------------------------------------------------ */

typedef struct word {
    const char *at;
    size_t n;
} word;

enum { MAX_WORDS = 16 };

typedef struct line {
    word word[MAX_WORDS];
    int n;
} line;

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Split the line at text into words up to a comment. Returns the start of the next line, or NULL
 * when the line has too many words. */
static const char *split_line(const char *text, line *out) {
    const char *p = text;
    out->n = 0;
    for (;;) {
        while (is_blank(*p)) {
            p++;
        }
        if (*p == '\0' || *p == '\n' || *p == '#') {
            break;
        }
        if (out->n == MAX_WORDS) {
            return NULL;
        }
        word *w = &out->word[out->n++];
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

static int is_word(word w, const char *s) { return strlen(s) == w.n && memcmp(w.at, s, w.n) == 0; }

/* ---- the table ------------------------------------------------------------------------------ */

const gw_spec *gw_spec_at(size_t i) {
    size_t n = sizeof spec_table / sizeof spec_table[0] - 1;
    return i < n ? (const gw_spec *)(const void *)&spec_table[i] : NULL;
}

const char *gw_spec_text(const gw_spec *spec) { return row_of(spec)->text; }
const char *gw_spec_family(const gw_spec *spec) { return row_of(spec)->name; }

/* 1 when some line `key ... value ...` stands in the spec. */
static int has_value(const gw_spec *spec, const char *key, const char *value) {
    line l;
    for (const char *p = row_of(spec)->text; p != NULL && *p != '\0';) {
        p = split_line(p, &l);
        for (int i = 1; p != NULL && i < l.n && is_word(l.word[0], key); i++) {
            if (is_word(l.word[i], value)) {
                return 1;
            }
        }
    }
    return 0;
}

int gw_spec_gguf_interleaved(const gw_spec *spec) {
    return has_value(spec, "gguf_rope", "interleaved");
}

static void list_known(char *text, size_t room) {
    size_t used = 0;
    line l;
    text[0] = '\0';
    for (size_t i = 0; gw_spec_at(i) != NULL; i++) {
        for (const char *p = gw_spec_text(gw_spec_at(i)); p != NULL && *p != '\0';) {
            p = split_line(p, &l);
            int names =
                p != NULL && l.n > 0 && (is_word(l.word[0], "gguf") || is_word(l.word[0], "hf"));
            for (int k = 1; names && k < l.n && used + l.word[k].n + 3 < room; k++) {
                used += (size_t)snprintf(text + used, room - used, "%s%.*s", used ? ", " : "",
                                         (int)l.word[k].n, l.word[k].at);
            }
        }
    }
}

gw_status gw_spec_find(const char *where, const char *architecture, const gw_spec **out) {
    for (size_t i = 0; gw_spec_at(i) != NULL; i++) {
        const gw_spec *spec = gw_spec_at(i);
        if (has_value(spec, "gguf", architecture) || has_value(spec, "hf", architecture)) {
            *out = spec;
            return GW_OK;
        }
    }
    char known[512];
    list_known(known, sizeof known);
    return gw_fail(GW_E_METADATA, where, "architecture '%.64s' is not known; known are %s",
                   architecture, known);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* What a block takes and gives: the stream x, or the value handed from block to block. */
typedef enum value { V_NONE, V_STREAM, V_NORMED, V_QKV, V_Q, V_HEADS, V_HIDDEN, V_LOGITS } value;
static const char *const value_name[] = {"nothing", "the stream",      "a normed row", "q, k and v",
                                         "q",       "attention heads", "a hidden row", "logits"};

/* Shape of the arguments: `must` roles, then optionally `word` and `more` roles. */
typedef struct block_rule {
    const char *name;
    gw_section first, last; /* sections where it may stand                          */
    const char *lead;       /* a fixed word before the roles: the activation        */
    int must;
    const char *word;
    int more;
    value takes, gives;
} block_rule;

/* clang-format off */
static const block_rule rules[GW_BLOCK_KINDS] = {
    [GW_BLOCK_EMBED]     = {"embed",     GW_SECTION_START, GW_SECTION_START, NULL,   1, NULL,   0, V_NONE,   V_STREAM},
    [GW_BLOCK_NORM]      = {"norm",      GW_SECTION_LAYER, GW_SECTION_HEAD,  NULL,   1, NULL,   0, V_STREAM, V_NORMED},
    [GW_BLOCK_QKV]       = {"qkv",       GW_SECTION_LAYER, GW_SECTION_LAYER, NULL,   3, "bias", 3, V_NORMED, V_QKV},
    [GW_BLOCK_ROPE_KV]   = {"rope_kv",   GW_SECTION_LAYER, GW_SECTION_LAYER, NULL,   0, "norm", 2, V_QKV,    V_Q},
    [GW_BLOCK_ATTENTION] = {"attention", GW_SECTION_LAYER, GW_SECTION_LAYER, NULL,   0, NULL,   0, V_Q,      V_HEADS},
    [GW_BLOCK_RESIDUAL]  = {"residual",  GW_SECTION_LAYER, GW_SECTION_LAYER, NULL,   1, "bias", 1, V_HEADS,  V_STREAM},
    [GW_BLOCK_GLU]       = {"glu",       GW_SECTION_LAYER, GW_SECTION_LAYER, "silu", 2, NULL,   0, V_NORMED, V_HIDDEN},
    [GW_BLOCK_LINEAR]    = {"linear",    GW_SECTION_HEAD,  GW_SECTION_HEAD,  NULL,   1, NULL,   0, V_NORMED, V_LOGITS},
};
/* clang-format on */

/* ---- the reader ----------------------------------------------------------------------------- */

typedef struct reader {
    const char *name;
    int number;  /* line, from 1 */
    int section; /* gw_section, -1 before the first */
    int named, rope;
    value holds;
    gw_blueprint *out;
} reader;

#define SPEC_FAIL(r, ...)                                                                          \
    (spec_where(r, place, sizeof place), gw_fail(GW_E_SYNTAX, place, __VA_ARGS__))

static void spec_where(const reader *r, char *text, size_t room) {
    snprintf(text, room, "%.40s.spec:%d", r->name, r->number);
}

static gw_status copy_word(const reader *r, word w, char *dst, size_t room, const char *what) {
    char place[64];
    if (w.n >= room) {
        return SPEC_FAIL(r, "%s '%.*s...' is longer than %zu characters", what, 40, w.at, room - 1);
    }
    memcpy(dst, w.at, w.n);
    dst[w.n] = '\0';
    return GW_OK;
}

static int find_role(const gw_blueprint *bp, word w) {
    for (int i = 0; i < bp->n_weights; i++) {
        if (is_word(w, bp->weight[i].role)) {
            return i;
        }
    }
    return -1;
}

static gw_status read_shape(const reader *r, word w, gw_spec_weight *out) {
    char place[64];
    size_t factors = 0;
    int want_symbol = 1;
    out->n_dim = 1;
    for (size_t i = 0; i < w.n; i++) {
        char c = w.at[i];
        if (want_symbol) {
            if (strchr("vdhgef", c) == NULL || factors == GW_SPEC_FACTORS) {
                return SPEC_FAIL(r, "shape '%.*s': expected up to %d of v d h g e f joined by *",
                                 (int)w.n, w.at, GW_SPEC_FACTORS);
            }
            out->dim[out->n_dim - 1][factors++] = c;
            want_symbol = 0;
        } else if (c == '*') {
            want_symbol = 1;
        } else if (c == ',' && out->n_dim < 2) {
            out->n_dim++;
            factors = 0;
            want_symbol = 1;
        } else {
            return SPEC_FAIL(r, "shape '%.*s': expected one or two dimensions such as h*e,d",
                             (int)w.n, w.at);
        }
    }
    if (want_symbol) {
        return SPEC_FAIL(r, "shape '%.*s' ends where a symbol is expected", (int)w.n, w.at);
    }
    return GW_OK;
}

/* 1 for a name with %d once, 0 for none, -1 for any other use of %. */
static int layer_marks(const char *name) {
    const char *first = strchr(name, '%');
    if (first == NULL) {
        return 0;
    }
    return first[1] == 'd' && strchr(first + 1, '%') == NULL ? 1 : -1;
}

static gw_status read_weight(reader *r, const line *l) {
    char place[64];
    gw_blueprint *bp = r->out;
    if (l->n < 5) {
        return SPEC_FAIL(r, "weight needs a role, a shape, a GGUF name and a Hugging Face name");
    }
    if (bp->n_weights == GW_SPEC_WEIGHTS) {
        return SPEC_FAIL(r, "more than %d weights", GW_SPEC_WEIGHTS);
    }
    if (find_role(bp, l->word[1]) >= 0) {
        return SPEC_FAIL(r, "weight '%.*s' is declared twice", (int)l->word[1].n, l->word[1].at);
    }
    gw_spec_weight w;
    memset(&w, 0, sizeof w);
    w.fallback = -1;
    GW_TRY(copy_word(r, l->word[1], w.role, sizeof w.role, "role"));
    GW_TRY(read_shape(r, l->word[2], &w));
    GW_TRY(copy_word(r, l->word[3], w.gguf, sizeof w.gguf, "GGUF name"));
    GW_TRY(copy_word(r, l->word[4], w.hf, sizeof w.hf, "Hugging Face name"));
    w.per_layer = layer_marks(w.gguf);
    if (w.per_layer < 0 || w.per_layer != layer_marks(w.hf)) {
        return SPEC_FAIL(r, "weight '%s': both names need %%d once, or neither", w.role);
    }
    if (l->n == 6 && is_word(l->word[5], "optional")) {
        w.optional = 1;
    } else if (l->n == 7 && is_word(l->word[5], "else")) {
        w.fallback = find_role(bp, l->word[6]);
        if (w.fallback < 0) {
            return SPEC_FAIL(r, "weight '%.*s' after else is not declared above", (int)l->word[6].n,
                             l->word[6].at);
        }
    } else if (l->n != 5) {
        return SPEC_FAIL(r, "weight '%s' may end in 'optional' or 'else ROLE', not '%.*s'", w.role,
                         (int)l->word[5].n, l->word[5].at);
    }
    bp->weight[bp->n_weights++] = w;
    return GW_OK;
}

/* Roles l->word[at ..] of one group into b->weight[slot ..]. spare: they may be absent. */
static gw_status read_roles(const reader *r, const line *l, int at, int n, gw_spec_block *b,
                            int slot, int spare) {
    char place[64];
    for (int i = 0; i < n; i++) {
        word w = l->word[at + i];
        int role = find_role(r->out, w);
        if (role < 0) {
            return SPEC_FAIL(r, "weight '%.*s' is not declared above", (int)w.n, w.at);
        }
        int layered = r->out->weight[role].per_layer;
        if (layered != (b->section == GW_SECTION_LAYER)) {
            return SPEC_FAIL(r, "weight '%.*s' is %s, which does not fit this section", (int)w.n,
                             w.at, layered ? "per layer" : "not per layer");
        }
        if (!spare && r->out->weight[role].optional) {
            return SPEC_FAIL(r, "weight '%.*s' is optional, but this block cannot do without it",
                             (int)w.n, w.at);
        }
        b->weight[slot + i] = role;
    }
    return GW_OK;
}

static gw_status check_flow(reader *r, const block_rule *rule, gw_block_kind kind) {
    char place[64];
    /* The residual projection closes attention and feed-forward alike. */
    int fits = rule->takes == r->holds || (kind == GW_BLOCK_RESIDUAL && r->holds == V_HIDDEN);
    if (!fits) {
        return SPEC_FAIL(r, "%s takes %s, but the block before gives %s", rule->name,
                         value_name[rule->takes], value_name[r->holds]);
    }
    r->holds = rule->gives;
    return GW_OK;
}

static gw_status read_block(reader *r, const line *l, gw_block_kind kind) {
    char place[64];
    const block_rule *rule = &rules[kind];
    if (r->section < (int)rule->first || r->section > (int)rule->last) {
        return SPEC_FAIL(r, "%s may not stand in this section", rule->name);
    }
    if (r->out->n_blocks == GW_SPEC_BLOCKS) {
        return SPEC_FAIL(r, "more than %d blocks", GW_SPEC_BLOCKS);
    }
    gw_spec_block b = {.kind = kind, .section = (gw_section)r->section};
    for (int i = 0; i < GW_SPEC_ARGS; i++) {
        b.weight[i] = -1;
    }
    int at = 1;
    if (rule->lead != NULL) {
        if (l->n < 2 || !is_word(l->word[1], rule->lead)) {
            return SPEC_FAIL(r, "%s needs its activation first: %s", rule->name, rule->lead);
        }
        at++;
    }
    int has_more = rule->word != NULL && l->n > at + rule->must &&
                   is_word(l->word[at + rule->must], rule->word);
    if (l->n != at + rule->must + (has_more ? 1 + rule->more : 0)) {
        return SPEC_FAIL(r, "%s takes %d weights%s%s", rule->name, rule->must,
                         rule->word != NULL ? ", and after the word " : "",
                         rule->word != NULL ? rule->word : "");
    }
    GW_TRY(read_roles(r, l, at, rule->must, &b, 0, 0));
    if (has_more) {
        GW_TRY(read_roles(r, l, at + rule->must + 1, rule->more, &b, rule->must, 1));
    }
    GW_TRY(check_flow(r, rule, kind));
    r->out->block[r->out->n_blocks++] = b;
    return GW_OK;
}

static gw_status enter_section(reader *r, gw_section section) {
    char place[64];
    static const char *const names[] = {"start", "layer", "head"};
    if (r->section != (int)section - 1) {
        return SPEC_FAIL(r, "section '%s' is out of order: start, layer, head", names[section]);
    }
    if (section != GW_SECTION_START && r->holds != V_STREAM) {
        return SPEC_FAIL(r, "the section before '%s' ends with %s, not with the stream",
                         names[section], value_name[r->holds]);
    }
    r->section = (int)section;
    return GW_OK;
}

static gw_status read_line(reader *r, const line *l) {
    char place[64];
    word key = l->word[0];
    if (is_word(key, "start") && l->n == 1) {
        return enter_section(r, GW_SECTION_START);
    }
    if (is_word(key, "layer") && l->n == 1) {
        return enter_section(r, GW_SECTION_LAYER);
    }
    if (is_word(key, "head") && l->n == 1) {
        return enter_section(r, GW_SECTION_HEAD);
    }
    for (int i = 0; i < GW_BLOCK_KINDS; i++) {
        if (is_word(key, rules[i].name)) {
            return read_block(r, l, (gw_block_kind)i);
        }
    }
    if (is_word(key, "family") && l->n == 2) {
        r->named = 1;
        return copy_word(r, l->word[1], r->out->family, sizeof r->out->family, "family");
    }
    if ((is_word(key, "gguf") || is_word(key, "hf")) && l->n >= 2) {
        return GW_OK;
    }
    if (is_word(key, "gguf_rope") && l->n == 2 &&
        (is_word(l->word[1], "interleaved") || is_word(l->word[1], "halves"))) {
        r->rope = 1;
        return GW_OK;
    }
    if (is_word(key, "weight")) {
        return read_weight(r, l);
    }
    return SPEC_FAIL(r, "'%.*s' with %d arguments is no line of a spec (specs/README.md)",
                     (int)key.n, key.at, l->n - 1);
}

gw_status gw_blueprint_read(const char *name, const char *text, gw_blueprint *out) {
    char place[64];
    gw_blueprint *bp = calloc(1, sizeof *bp);
    if (bp == NULL) {
        return gw_fail(GW_E_NOMEM, name, "cannot hold a model spec");
    }
    reader r = {.name = name, .section = -1, .holds = V_NONE, .out = bp};
    gw_status status = GW_OK;
    for (const char *p = text; *p != '\0' && status == GW_OK;) {
        line l;
        r.number++;
        p = split_line(p, &l);
        if (p == NULL) {
            status = SPEC_FAIL(&r, "more than %d words on a line", MAX_WORDS);
            break;
        }
        status = l.n > 0 ? read_line(&r, &l) : GW_OK;
    }
    if (status == GW_OK && (!r.named || !r.rope)) {
        status = SPEC_FAIL(&r, "the line '%s' is missing", r.named ? "gguf_rope" : "family");
    } else if (status == GW_OK && r.holds != V_LOGITS) {
        status = SPEC_FAIL(&r, "the spec ends with %s, not with logits", value_name[r.holds]);
    }
    if (status == GW_OK) {
        *out = *bp;
    }
    free(bp);
    return status;
}

int64_t gw_spec_extent(const char *symbols, const gw_hparams *hp) {
    int64_t product = 1;
    for (; *symbols != '\0'; symbols++) {
        switch (*symbols) {
        case 'v':
            product *= hp->n_vocab;
            break;
        case 'd':
            product *= hp->d_model;
            break;
        case 'h':
            product *= hp->n_heads;
            break;
        case 'g':
            product *= hp->n_kv_heads;
            break;
        case 'e':
            product *= hp->d_head;
            break;
        default:
            product *= hp->d_ff;
            break;
        }
    }
    return product;
}
