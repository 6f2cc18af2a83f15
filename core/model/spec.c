/* core/model/spec.c - the table of embedded specs, and questions to one that was read. */
#include "core/model/spec.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/model/spec_parts.h"
#include "spec_table.h"

/* A gw_spec is a row of the generated table, whose struct has no name; it is never defined. */
typedef __typeof__(spec_table[0]) spec_row;

static const spec_row *row_of(const gw_spec *spec) { return (const spec_row *)(const void *)spec; }

const gw_spec *gw_spec_at(size_t i) {
    size_t n = sizeof spec_table / sizeof spec_table[0] - 1;
    return i < n ? (const gw_spec *)(const void *)&spec_table[i] : NULL;
}

const char *gw_spec_text(const gw_spec *spec) { return row_of(spec)->text; }
const char *gw_spec_family(const gw_spec *spec) { return row_of(spec)->name; }

const gw_spec *gw_spec_named(const char *name, size_t bytes) {
    const gw_spec *spec;
    for (size_t i = 0; (spec = gw_spec_at(i)) != NULL; i++) {
        if (strlen(gw_spec_family(spec)) == bytes &&
            memcmp(gw_spec_family(spec), name, bytes) == 0) {
            return spec;
        }
    }
    return NULL;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* 1 when some line `key ... value ...` stands in the spec. */
static int has_value(const gw_spec *spec, const char *key, const char *value) {
    gw_spec_line l;
    for (const char *p = row_of(spec)->text; p != NULL && *p != '\0';) {
        p = gw_spec_split(p, &l);
        for (int i = 1; p != NULL && i < l.n && gw_spec_is(l.word[0], key); i++) {
            if (gw_spec_is(l.word[i], value)) {
                return 1;
            }
        }
    }
    return 0;
}

void gw_spec_words(const gw_spec *spec, const char *key, char *out, size_t room) {
    gw_spec_line l;
    size_t used = 0;
    out[0] = '\0';
    for (const char *p = gw_spec_text(spec); p != NULL && *p != '\0';) {
        p = gw_spec_split(p, &l);
        for (int i = 1; p != NULL && i < l.n && gw_spec_is(l.word[0], key); i++) {
            size_t n = l.word[i].n;
            if (used + n + 2 > room) {
                return;
            }
            if (used > 0) {
                out[used++] = ' ';
            }
            memcpy(out + used, l.word[i].at, n);
            used += n;
            out[used] = '\0';
        }
    }
}

static const gw_spec *find_spec(const char *architecture, int tower) {
    for (size_t i = 0; gw_spec_at(i) != NULL; i++) {
        const gw_spec *spec = gw_spec_at(i);
        if (gw_text_ends(gw_spec_family(spec), "-vision") != tower) {
            continue;
        }
        if (has_value(spec, "gguf", architecture) || has_value(spec, "hf", architecture)) {
            return spec;
        }
    }
    return NULL;
}

const gw_spec *gw_spec_of(const char *architecture) { return find_spec(architecture, 0); }
const gw_spec *gw_spec_tower(const char *name) { return find_spec(name, 1); }

int gw_spec_sees_for(const gw_spec *tower, const char *family) {
    return has_value(tower, "decoders", family);
}

/* "qwen3_moe" and "Qwen3MoeForCausalLM": letters and digits alike, then one of the endings. */
static int is_class_of(gw_spec_word name, const char *type) {
    static const char *const endings[] = {"ForCausalLM", "ForConditionalGeneration", "LMHeadModel",
                                          "Model"};
    size_t at = 0;
    for (; *type != '\0'; type++) {
        if (*type == '_' || *type == '-') {
            continue;
        }
        if (at == name.n || tolower((unsigned char)name.at[at]) != tolower((unsigned char)*type)) {
            return 0;
        }
        at++;
    }
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (strlen(endings[i]) == name.n - at &&
            memcmp(endings[i], name.at + at, name.n - at) == 0) {
            return 1;
        }
    }
    return 0;
}

int gw_spec_class(const char *model_type, char *out, size_t room) {
    gw_spec_line l;
    if (gw_spec_of(model_type) != NULL) {
        return snprintf(out, room, "%s", model_type) < (int)room;
    }
    for (size_t i = 0; gw_spec_at(i) != NULL; i++) {
        for (const char *p = gw_spec_text(gw_spec_at(i)); p != NULL && *p != '\0';) {
            p = gw_spec_split(p, &l);
            for (int k = 1; p != NULL && k < l.n && gw_spec_is(l.word[0], "hf"); k++) {
                if (is_class_of(l.word[k], model_type)) {
                    return snprintf(out, room, "%.*s", (int)l.word[k].n, l.word[k].at) < (int)room;
                }
            }
        }
    }
    return 0;
}

gw_status gw_spec_find(const char *where, const char *architecture, const gw_spec **out) {
    *out = gw_spec_of(architecture);
    if (*out != NULL) {
        return GW_OK;
    }
    return gw_fail(GW_E_METADATA, where,
                   "architecture '%.64s' is not known ('godwit inspect --families' lists those "
                   "that are); a newer version may know it, and --spec FILE describes it",
                   architecture);
}

/* ---- questions ------------------------------------------------------------------------------ */

int gw_block_matrices(const gw_spec_block *b) {
    switch (b->kind) {
    case GW_BLOCK_QKV:
        return 3;
    case GW_BLOCK_LINEAR:
        return b->weight[2] >= 0 ? 3 : b->weight[1] >= 0 ? 2 : 1;
    case GW_BLOCK_GLU:
        return 2;
    case GW_BLOCK_EXPERTS:
        return b->weight[1] >= 0 ? 2 : 1;
    case GW_BLOCK_RESIDUAL:
    case GW_BLOCK_MLP:
        return 1;
    default:
        return 0;
    }
}

uint64_t gw_block_state(const gw_blueprint *bp, const gw_hparams *hp, int layer, int block) {
    const gw_spec_block *b = &bp->block[block];
    double width = 0.0;
    if (layer >= hp->n_layers || !gw_block_runs(b, hp, layer)) {
        return 0;
    }
    if (b->kind == GW_BLOCK_CONV) { /* all inputs but the newest */
        const gw_spec_weight *w = &bp->weight[b->weight[0]];
        double taps = gw_spec_value(bp, hp, layer, b->number[GW_ARG_TAPS]);
        gw_expr e = b->number[GW_ARG_APART];
        double apart = e.n > 0 ? gw_spec_value(bp, hp, layer, e) : 1.0;
        width = gw_spec_value(bp, hp, layer, w->dim[0]) / taps * (taps - 1.0) * apart;
    } else if (b->kind == GW_BLOCK_NGRAM) {
        width = gw_spec_value(bp, hp, layer, b->number[GW_ARG_SIZE]) - 1.0;
    } else if (b->kind == GW_BLOCK_EXP_GATES) {
        width = gw_spec_value(bp, hp, layer, b->number[GW_ARG_HEADS]);
    } else if (b->kind == GW_BLOCK_DELTA || b->kind == GW_BLOCK_SSM || b->kind == GW_BLOCK_WKV ||
               b->kind == GW_BLOCK_RETENTION) {
        width = gw_spec_value(bp, hp, layer, b->number[GW_ARG_HEADS]) *
                gw_spec_value(bp, hp, layer, b->number[GW_ARG_KEYS]) *
                gw_spec_value(bp, hp, layer, b->number[GW_ARG_VALUES]);
    }
    return width >= 1.0 && width < 0x1p40 ? (uint64_t)width : 0;
}

int32_t gw_block_entries(const gw_blueprint *bp, const gw_hparams *hp, int layer, int block,
                         int32_t entries) {
    const gw_spec_block *b = &bp->block[block];
    if (b->kind == GW_BLOCK_NGRAM) {
        return GW_STATE_ENTRIES;
    }
    if (b->kind != GW_BLOCK_CONV) {
        return entries;
    }
    gw_expr e = b->number[GW_ARG_APART];
    double apart = e.n > 0 ? gw_spec_value(bp, hp, layer, e) : 1.0;
    double taps = gw_spec_value(bp, hp, layer, b->number[GW_ARG_TAPS]);
    double least = (taps - 1.0) * (apart > 1.0 ? apart : 1.0) + 2.0;
    int32_t most = least <= GW_STATE_ENTRIES ? (int32_t)least : GW_STATE_ENTRIES;
    return entries > most ? entries : most;
}

gw_ngram_args gw_block_ngram(const gw_blueprint *bp, const gw_hparams *hp, int layer,
                             const gw_spec_block *b) {
    static const struct {
        int slot;
        double absent;
    } rows[] = {{GW_ARG_SIZE, 2.0}, {GW_ARG_HEADS, 1.0}, {GW_ARG_INDEX, 0.0}, {GW_ARG_END, 0.0},
                {GW_ARG_BASE, 0.0}, {GW_ARG_SEED, 0.0},  {GW_ARG_STATED, 0.0}};
    double x[sizeof rows / sizeof rows[0]];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_expr e = b->number[rows[i].slot];
        x[i] = e.n > 0 ? gw_spec_value(bp, hp, layer, e) : rows[i].absent;
    }
    int64_t base = (int64_t)x[4];
    return (gw_ngram_args){.size = (int)x[0],
                           .heads = (int)x[1],
                           .index = (int)x[2],
                           .vocab = hp->n_vocab,
                           .end = (int)x[3],
                           .base = hp->most_ngrams > 0 && base > hp->most_ngrams ? hp->most_ngrams
                                                                                 : base,
                           .seed = (int64_t)x[5],
                           .factor = x[6]};
}

int gw_block_stays_home(const gw_blueprint *bp, const gw_spec_block *b) {
    int is_beside = b->kind == GW_BLOCK_EMBED && b->section == GW_SECTION_START;
    int before = 0;
    for (int i = 0; i < b->index; i++) {
        before |= bp->block[i].kind == GW_BLOCK_EMBED;
    }
    return b->kind == GW_BLOCK_NGRAM || (is_beside && before && b->out != GW_VALUE_STREAM);
}

/* A number of a block from 0 to `most`; 0 where it is none. */
static int small_number(const gw_blueprint *bp, const gw_hparams *hp, int layer, gw_expr e,
                        double most) {
    double x = e.n > 0 ? gw_spec_value(bp, hp, layer, e) : 0.0;
    return x >= 0.0 && x <= most ? (int)x : 0;
}

gw_area gw_block_area(const gw_blueprint *bp, const gw_hparams *hp, int layer,
                      const gw_spec_block *b) {
    enum { WIDEST = 1 << 16, LONGEST = 1 << 14 };
    int series = small_number(bp, hp, layer, b->number[GW_ARG_SERIES], 2);
    gw_area a = {.ratio = small_number(bp, hp, layer, b->number[GW_ARG_RATIO], LONGEST)};
    gw_expr width = b->weight[0] < 0 ? b->number[GW_ARG_WIDTH] : bp->weight[b->weight[0]].dim[0];
    a.entry = small_number(bp, hp, layer, width, WIDEST);
    if (b->weight[0] < 0 && b->weight[1] < 0) { /* rows as they are */
        a.ratio = 1;
        return a;
    }
    a.width = series == 0 ? a.entry : 2 * series * a.entry;
    a.ratio = a.ratio > 0 ? a.ratio : 1;
    return a;
}

typedef struct values {
    const double *row;
} values;

static gw_status value_of(void *user, int number, double *out) {
    *out = ((const values *)user)->row[number];
    return GW_OK;
}

static double evaluate(const gw_blueprint *bp, const gw_hparams *hp, int layer, gw_expr e,
                       double position) {
    double out = (double)NAN;
    int row = layer >= 0 && layer < hp->n_layers ? layer : 0; /* outside: those of the first */
    values v = {hp->values + (size_t)row * (size_t)hp->n_values};
    gw_expr_scope scope = {.layer = row,
                           .position = position,
                           .in_folder = hp->in_folder,
                           .number = value_of,
                           .user = &v};
    if (e.n > 0) {
        (void)gw_expr_evaluate(&bp->pool, e, &scope, &out);
    }
    return out;
}

double gw_spec_value(const gw_blueprint *bp, const gw_hparams *hp, int layer, gw_expr e) {
    return evaluate(bp, hp, layer, e, 0.0);
}

double gw_spec_value_at(const gw_blueprint *bp, const gw_hparams *hp, gw_expr e, double position) {
    return evaluate(bp, hp, 0, e, position);
}

double gw_spec_layer_number(const gw_blueprint *bp, const gw_hparams *hp, const char *name,
                            int layer, double absent) {
    int i = gw_spec_number_of(bp, name, strlen(name));
    double x = i >= 0 ? hp->values[(size_t)layer * (size_t)hp->n_values + (size_t)i] : NAN;
    return isnan(x) ? absent : x;
}

double gw_spec_named_number(const gw_blueprint *bp, const gw_hparams *hp, const char *name,
                            double absent) {
    return gw_spec_layer_number(bp, hp, name, 0, absent);
}

gw_status gw_spec_extent(const gw_blueprint *bp, const gw_hparams *hp, int layer,
                         const gw_spec_weight *w, gw_expr e, int64_t *out) {
    double x = gw_spec_value(bp, hp, layer, e);
    if (!(x >= 1.0 && x <= 0x1p31) || x != floor(x)) {
        return gw_fail(GW_E_METADATA, bp->family, "a dimension of weight '%s' in layer %d is %g",
                       w->role, layer, x);
    }
    *out = (int64_t)x;
    return GW_OK;
}
