/* core/model/spec_numbers.c - the lines number, real, flag, word, list, activation, rope, factor.
 */
#include <string.h>

#include "core/model/spec_parts.h"

static const char *const reserved[GW_NUM_RESERVED] = {[GW_NUM_LAYERS] = "layers",
                                                      [GW_NUM_D_MODEL] = "d_model",
                                                      [GW_NUM_VOCAB] = "vocab",
                                                      [GW_NUM_CONTEXT] = "context",
                                                      [GW_NUM_EPS] = "eps",
                                                      [GW_NUM_TIED] = "tied",
                                                      [GW_NUM_KIND] = "kind",
                                                      [GW_NUM_HEADS] = "heads",
                                                      [GW_NUM_KV_HEADS] = "kv_heads",
                                                      [GW_NUM_D_HEAD] = "d_head",
                                                      [GW_NUM_V_HEAD] = "v_head",
                                                      [GW_NUM_V_FIRST] = "v_first",
                                                      [GW_NUM_FF] = "ff",
                                                      [GW_NUM_WINDOW] = "window",
                                                      [GW_NUM_CHUNK] = "chunk",
                                                      [GW_NUM_ROPE] = "rope",
                                                      [GW_NUM_Q_FACTOR] = "q_factor",
                                                      [GW_NUM_ATTN_SCALE] = "attn_scale",
                                                      [GW_NUM_ATTN_CAP] = "attn_cap",
                                                      [GW_NUM_EXPERTS] = "experts",
                                                      [GW_NUM_USED] = "used",
                                                      [GW_NUM_EXPERT_FF] = "expert_ff",
                                                      [GW_NUM_CAUSAL] = "causal",
                                                      [GW_NUM_SOURCE] = "source",
                                                      [GW_NUM_NAMED] = "named",
                                                      [GW_NUM_UNCOUNTED] = "uncounted",
                                                      [GW_NUM_STREAMS] = "streams"};

const char *gw_reserved_name(gw_reserved i) { return reserved[i]; }

/* ---- numbers -------------------------------------------------------------------------------- */

static gw_status declare(gw_spec_reader *r, gw_spec_word w, gw_spec_number **out) {
    gw_blueprint *bp = r->out;
    int i = gw_spec_number_of(bp, w.at, w.n);
    if (i < 0 && bp->n_numbers == GW_SPEC_NUMBERS) {
        return gw_spec_fail(r, "more than %d numbers", GW_SPEC_NUMBERS);
    }
    if (i >= 0 && r->pass == 1 && bp->number[i].file == r->file) {
        return gw_spec_fail(r, "number '%.*s' is declared twice", (int)w.n, w.at);
    }
    if (i < 0) {
        i = bp->n_numbers;
        GW_TRY(gw_spec_copy(r, w, bp->number[i].name, sizeof bp->number[i].name, "name"));
        bp->n_numbers++;
        for (int k = 0; k < GW_NUM_RESERVED; k++) {
            bp->reserved[k] = gw_spec_is(w, reserved[k]) ? i : bp->reserved[k];
        }
    }
    *out = &bp->number[i];
    return GW_OK;
}

static gw_number_type type_of(gw_spec_word w) {
    return gw_spec_is(w, "number")   ? GW_NUMBER_INTEGER
           : gw_spec_is(w, "list")   ? GW_NUMBER_LIST
           : gw_spec_is(w, "real")   ? GW_NUMBER_REAL
           : gw_spec_is(w, "flag")   ? GW_NUMBER_FLAG
           : gw_spec_is(w, "word")   ? GW_NUMBER_WORD
           : gw_spec_is(w, "letter") ? GW_NUMBER_LETTER
                                     : GW_NUMBER_ACTIVATION;
}

/* Words from `at` on up to the next of the line's own words. */
static int reach(const gw_spec_line *l, int at) {
    static const char *const own[] = {"hf", "gguf", "words", "null", "must", "="};
    for (; at < l->n; at++) {
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
            if (gw_spec_is(l->word[at], own[i])) {
                return at;
            }
        }
    }
    return at;
}

static gw_status read_keys(const gw_spec_reader *r, const gw_spec_line *l, int at, int end,
                           char keys[][64], int most, int *n) {
    for (*n = 0; at < end; at++) {
        if (*n == most) {
            return gw_spec_fail(r, "more than %d keys", most);
        }
        GW_TRY(gw_spec_copy(r, l->word[at], keys[*n], 64, "key"));
        ++*n;
    }
    return GW_OK;
}

static gw_status read_words(const gw_spec_reader *r, const gw_spec_line *l, int at, int end,
                            gw_spec_number *x) {
    for (x->n_words = 0; at < end; at++) {
        if (x->n_words == GW_SPEC_WORDS) {
            return gw_spec_fail(r, "more than %d words", GW_SPEC_WORDS);
        }
        GW_TRY(gw_spec_copy(r, l->word[at], x->words[x->n_words], sizeof x->words[0], "word"));
        x->n_words++;
    }
    return GW_OK;
}

/* `= silu` names an activation; anything else is an expression. */
static gw_status read_absent(const gw_spec_reader *r, const gw_spec_line *l, int at,
                             gw_spec_number *x) {
    gw_act_kind kind;
    if (x->type == GW_NUMBER_ACTIVATION && at + 1 == l->n &&
        gw_activation_named(l->word[at].at, l->word[at].n, &kind)) {
        gw_expr_pool *pool = &r->out->pool;
        if (pool->n == GW_EXPR_STEPS) {
            return gw_spec_fail(r, "the spec has too many expressions");
        }
        pool->step[pool->n] = (gw_expr_step){GW_EXPR_CONSTANT, 0, kind};
        x->absent = (gw_expr){pool->n++, 1};
        return GW_OK;
    }
    return gw_spec_rest(r, l, at, 0, 1, &x->absent);
}

gw_status gw_spec_read_number(gw_spec_reader *r, const gw_spec_line *l) {
    gw_spec_number *x = NULL;
    if (l->n < 2) {
        return gw_spec_fail(r, "a number needs a name");
    }
    GW_TRY(declare(r, l->word[1], &x));
    if (r->pass == 1) {
        x->file = r->file;
    }
    if (r->pass == 1 || x->file != r->file) { /* another family replaces it */
        return GW_OK;
    }
    x->type = type_of(l->word[0]);
    x->n_hf = x->n_gguf = x->n_words = 0;
    x->absent = x->null = x->must = (gw_expr){0, 0};
    for (int at = 2; at < l->n;) {
        int end = reach(l, at + 1);
        gw_spec_word w = l->word[at];
        if (gw_spec_is(w, "hf")) {
            GW_TRY(read_keys(r, l, at + 1, end, x->hf, GW_SPEC_KEYS, &x->n_hf));
        } else if (gw_spec_is(w, "gguf")) {
            GW_TRY(read_keys(r, l, at + 1, end, x->gguf, GW_SPEC_KEYS, &x->n_gguf));
        } else if (gw_spec_is(w, "words")) {
            GW_TRY(read_words(r, l, at + 1, end, x));
        } else if ((gw_spec_is(w, "null") || gw_spec_is(w, "must")) && end == at + 2) {
            GW_TRY(gw_spec_expr(r, l->word[at + 1], 0, 1,
                                gw_spec_is(w, "null") ? &x->null : &x->must));
        } else if (gw_spec_is(w, "=")) {
            return read_absent(r, l, at + 1, x);
        } else {
            return gw_spec_fail(r, "'%.*s': expected hf, gguf, words, null, must or =",
                                w.n < 40 ? (int)w.n : 40, w.at);
        }
        at = end;
    }
    return GW_OK;
}

/* ---- positions ------------------------------------------------------------------------------ */

static gw_status find_rope(gw_spec_reader *r, gw_spec_word w, gw_spec_rope **out) {
    gw_blueprint *bp = r->out;
    for (int i = 0; i < bp->n_ropes; i++) {
        if (gw_spec_is(w, bp->rope[i].name)) {
            *out = &bp->rope[i];
            return GW_OK;
        }
    }
    if (bp->n_ropes == GW_MAX_ROPES) {
        return gw_spec_fail(r, "more than %d kinds of rope", GW_MAX_ROPES);
    }
    *out = &bp->rope[bp->n_ropes];
    GW_TRY(gw_spec_copy(r, w, (*out)->name, sizeof(*out)->name, "name"));
    bp->n_ropes++;
    return GW_OK;
}

static gw_status read_style(const gw_spec_reader *r, gw_spec_word w, gw_rope_style *out) {
    *out = gw_spec_is(w, "interleaved") ? GW_ROPE_INTERLEAVED : GW_ROPE_HALVES;
    return *out == GW_ROPE_INTERLEAVED || gw_spec_is(w, "halves")
               ? GW_OK
               : gw_spec_fail(r, "'%.*s': expected halves or interleaved", w.n < 40 ? (int)w.n : 40,
                              w.at);
}

static gw_expr *number_of_rope(gw_spec_rope *x, gw_spec_word w) {
    return gw_spec_is(w, "dim")         ? &x->dim
           : gw_spec_is(w, "turning")   ? &x->turning
           : gw_spec_is(w, "base")      ? &x->base
           : gw_spec_is(w, "truncate")  ? &x->truncate
           : gw_spec_is(w, "short")     ? &x->shorter
           : gw_spec_is(w, "magnitude") ? &x->magnitude
           : gw_spec_is(w, "rows")      ? &x->rows
           : gw_spec_is(w, "columns")   ? &x->columns
           : gw_spec_is(w, "spread")    ? &x->spread
                                        : NULL;
}

gw_status gw_spec_read_rope(gw_spec_reader *r, const gw_spec_line *l) {
    gw_spec_rope *x = NULL;
    if (l->n < 2) {
        return gw_spec_fail(r, "rope needs a name");
    }
    GW_TRY(find_rope(r, l->word[1], &x));
    if (r->pass == 1) {
        return GW_OK;
    }
    char name[sizeof x->name];
    memcpy(name, x->name, sizeof name);
    memset(x, 0, sizeof *x);
    memcpy(x->name, name, sizeof name);
    for (int at = 2; at < l->n; at += 2) {
        gw_spec_word w = l->word[at];
        if (gw_spec_is(w, "scaling")) { /* the last: keys up to the end */
            x->scales = 1;
            GW_TRY(read_keys(r, l, at + 1, l->n, x->scaling, GW_SPEC_KEYS, &x->n_scaling));
            break;
        }
        if (at + 1 == l->n) {
            return gw_spec_fail(r, "'%.*s' needs a value", w.n < 40 ? (int)w.n : 40, w.at);
        }
        gw_spec_word v = l->word[at + 1];
        if (gw_spec_is(w, "hf") || gw_spec_is(w, "gguf")) {
            GW_TRY(read_style(r, v, gw_spec_is(w, "hf") ? &x->style_hf : &x->style_gguf));
        } else if (number_of_rope(x, w) != NULL) {
            GW_TRY(gw_spec_expr(r, v, 0, 0, number_of_rope(x, w)));
        } else {
            return gw_spec_fail(
                r,
                "'%.*s': expected dim, turning, base, truncate, short, magnitude, rows, columns, "
                "spread, hf, gguf or scaling",
                w.n < 40 ? (int)w.n : 40, w.at);
        }
    }
    return x->dim.n > 0 && x->base.n > 0 ? GW_OK : gw_spec_fail(r, "rope needs dim and base");
}

gw_status gw_spec_read_factor(gw_spec_reader *r, const gw_spec_line *l) {
    gw_blueprint *bp = r->out;
    int i = 0;
    if (l->n < 3) {
        return gw_spec_fail(r, "factor needs a name and an expression of the position p");
    }
    while (i < bp->n_factors && !gw_spec_is(l->word[1], bp->factor[i].name)) {
        i++;
    }
    if (i == GW_MAX_FACTORS) {
        return gw_spec_fail(r, "more than %d factors", GW_MAX_FACTORS);
    }
    GW_TRY(gw_spec_copy(r, l->word[1], bp->factor[i].name, sizeof bp->factor[i].name, "name"));
    bp->n_factors = i == bp->n_factors ? i + 1 : bp->n_factors;
    return r->pass == 1 ? GW_OK : gw_spec_rest(r, l, 2, 1, 0, &bp->factor[i].value);
}
