/* core/quantize/original_numbers.c - a folder's hyper-parameters as GGUF's pairs. The keys are
 * those of the spec that the file will be read by, which is not always the folder's own: Mistral's
 * folders are llama in GGUF. What these keys cannot say is found by original_check.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/rope.h"
#include "core/model/spec.h"
#include "core/quantize/original_folder.h"

static double value_at(const gw_hparams *hp, int layer, int i) {
    return hp->values[(size_t)layer * (size_t)hp->n_values + (size_t)i];
}

/* Not keys of a file, but what is counted out of its tensors. */
static int is_counted(const char *key) {
    return strcmp(key, "classes") == 0 || strcmp(key, "token_types") == 0 ||
           strcmp(key, "qk_norm") == 0;
}

/* A value for each layer. */
static void put_list(gw_original *s, const gw_spec_number *n, int i, const char *key) {
    const gw_hparams *hp = gw_checkpoint_hparams(s->checkpoint);
    int flag = n->type == GW_NUMBER_FLAG, real = n->type == GW_NUMBER_REAL;
    gw_pair_array(&s->pairs, key,
                  flag   ? GW_GGUF_BOOL
                  : real ? GW_GGUF_F32
                         : GW_GGUF_I32,
                  (uint64_t)hp->n_layers);
    for (int l = 0; l < hp->n_layers; l++) {
        double v = value_at(hp, l, i);
        gw_bytes_number(&s->pairs,
                        flag   ? v != 0.0
                        : real ? GW_F32_BITS((float)v)
                               : (uint32_t)(int32_t)v,
                        flag ? 1 : 4);
    }
}

/* Is a number that no key states 0 in the file's spec? */
static int is_zero_unsaid(const gw_blueprint *to, const gw_spec_number *n) {
    const gw_expr_step *step = &to->pool.step[n->absent.first];
    return n->absent.n == 1 && step->op == GW_EXPR_CONSTANT && step->constant == 0.0;
}

/* n: of the spec that will read the file; i: the number of that name in the folder's. */
static void put_number(gw_original *s, const gw_blueprint *to, const gw_spec_number *n, int i) {
    const gw_hparams *hp = gw_checkpoint_hparams(s->checkpoint);
    char key[160];
    double first = value_at(hp, 0, i);
    int same = 1;
    snprintf(key, sizeof key, "%s.%s", s->architecture, n->gguf[0]);
    for (int l = 1; l < hp->n_layers; l++) {
        same &= value_at(hp, l, i) == first || (isnan(first) && isnan(value_at(hp, l, i)));
    }
    if (isnan(first) || is_counted(n->gguf[0]) || n->type == GW_NUMBER_ACTIVATION ||
        n->type == GW_NUMBER_LETTER || n->type == GW_NUMBER_LIST ||
        (same && first == 0.0 && is_zero_unsaid(to, n))) {
        return;
    }
    if (n->type == GW_NUMBER_WORD) {
        const char *word = first >= 0.0 && first < n->n_words ? n->words[(int)first] : "";
        gw_pair_text(&s->pairs, key, word, strlen(word));
    } else if (!same) {
        put_list(s, n, i, key);
    } else if (n->type == GW_NUMBER_FLAG) {
        gw_pair_bool(&s->pairs, key, first != 0.0);
    } else if (n->type == GW_NUMBER_REAL) {
        gw_pair_f32(&s->pairs, key, (float)first);
    } else if (first >= 0.0) {
        gw_pair_u32(&s->pairs, key, (uint32_t)first);
    }
}

/* ---- positions ------------------------------------------------------------------------------ */

/* The one scaling that rope.scaling.* can state; NULL: no positions are scaled. */
static const gw_rope *scaled_rope(const gw_original *s) {
    const gw_hparams *hp = gw_checkpoint_hparams(s->checkpoint);
    for (int i = 0; i < hp->n_ropes; i++) {
        if (hp->rope[i].scaling != GW_ROPE_NONE) {
            return &hp->rope[i];
        }
    }
    return NULL;
}

static void put_scaling(gw_original *s, const char *key, double value) {
    char name[160];
    snprintf(name, sizeof name, "%s.rope.scaling.%s", s->architecture, key);
    gw_pair_f32(&s->pairs, name, (float)value);
}

/* A magnitude of 1 is written as llama.cpp's converter does for mscale = mscale_all_dim = 1 too;
 * specs that scale scores by that multiplier write it as their own number. */
static void put_yarn(gw_original *s, const gw_rope *r, int takes_log) {
    put_scaling(s, "yarn_beta_fast", r->beta_fast);
    put_scaling(s, "yarn_beta_slow", r->beta_slow);
    if (r->attn_factor > 0.0) {
        put_scaling(s, "yarn_attn_factor", r->attn_factor);
    }
    if (r->attn_factor == 1.0 && !takes_log) {
        put_scaling(s, "yarn_log_multiplier", 1.0);
    }
}

static void put_rope(gw_original *s, int takes_log) {
    static const char *const types[] = {
        [GW_ROPE_LINEAR] = "linear", [GW_ROPE_YARN] = "yarn", [GW_ROPE_LONGROPE] = "longrope"};
    const gw_rope *r = scaled_rope(s);
    char key[160];
    if (r == NULL || r->scaling == GW_ROPE_LLAMA3) { /* whose divisors are a tensor */
        return;
    }
    snprintf(key, sizeof key, "%s.rope.scaling.type", s->architecture);
    gw_pair_text(&s->pairs, key, types[r->scaling], strlen(types[r->scaling]));
    if (r->scaling == GW_ROPE_LONGROPE) {
        put_scaling(s, "attn_factor", r->attn_factor);
    } else {
        put_scaling(s, "factor", r->factor);
    }
    if (r->scaling == GW_ROPE_YARN) {
        put_yarn(s, r, takes_log);
    }
    if (r->scaling != GW_ROPE_LINEAR) {
        snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", s->architecture);
        gw_pair_u32(&s->pairs, key, (uint32_t)r->original_ctx);
    }
}

static gw_status give_divisors(gw_original *s, const char *name, const float *values, int n) {
    if (values == NULL) {
        return gw_fail(GW_E_NOMEM, name, "no memory for %d values", n);
    }
    s->list[s->n++] = (gw_original_tensor){.name = name,
                                           .seen_as = "",
                                           .n_dim = 1,
                                           .dim = {n},
                                           .rows = 1,
                                           .cols = n,
                                           .fmt = GW_FMT_F32,
                                           .read = gw_original_given,
                                           .state = values};
    return GW_OK;
}

/* Llama 3's, which follow from four numbers. */
static const float *llama3_divisors(gw_original *s, const gw_rope *r) {
    int n = r->dim / 2;
    float *values = gw_arena_array(s->arena, (size_t)n, sizeof *values);
    const double turn = 6.283185307179586, original = r->original_ctx;
    for (int i = 0; values != NULL && i < n; i++) {
        double length = turn * gw_rope_exp(gw_rope_log(r->base) * 2.0 * i / r->dim);
        double smooth = (original / length - r->low_freq) / (r->high_freq - r->low_freq);
        values[i] = length < original / r->high_freq ? 1.0f
                    : length > original / r->low_freq
                        ? (float)r->factor
                        : (float)(1.0 / ((1.0 - smooth) / r->factor + smooth));
    }
    return values;
}

gw_status gw_original_take_divisors(gw_original *s) {
    const gw_rope *r = scaled_rope(s);
    if (r != NULL && r->scaling == GW_ROPE_LLAMA3) {
        return give_divisors(s, "rope_freqs.weight", llama3_divisors(s, r), r->dim / 2);
    }
    if (r == NULL || r->scaling != GW_ROPE_LONGROPE) {
        return GW_OK;
    }
    const float *far = r->long_divisors != NULL ? r->long_divisors : r->divisors;
    GW_TRY(give_divisors(s, "rope_factors_short.weight", r->divisors, r->dim / 2));
    return give_divisors(s, "rope_factors_long.weight", far, r->dim / 2);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The spec that a file of this architecture is read by. */
static const gw_spec *reader_of(const gw_original *s) {
    char name[80];
    snprintf(name, sizeof name, "%s+experts", s->architecture);
    const gw_spec *spec = s->experts > 0 ? gw_spec_of(name) : NULL;
    return spec != NULL ? spec : gw_spec_of(s->architecture);
}

static void put_numbers(gw_original *s, const gw_blueprint *to) {
    const gw_blueprint *bp = gw_checkpoint_blueprint(s->checkpoint);
    int takes_log = 0;
    for (int k = 0; k < to->n_numbers; k++) {
        int i = 0;
        while (i < bp->n_numbers && strcmp(bp->number[i].name, to->number[k].name) != 0) {
            i++;
        }
        if (i < bp->n_numbers && to->number[k].n_gguf > 0) {
            takes_log |= strcmp(to->number[k].gguf[0], "rope.scaling.yarn_log_multiplier") == 0;
            put_number(s, to, &to->number[k], i);
        }
    }
    put_rope(s, takes_log);
}

gw_status gw_original_take_numbers(gw_original *s) {
    const gw_blueprint *bp = gw_checkpoint_blueprint(s->checkpoint);
    const gw_spec *spec = reader_of(s);
    if (spec == NULL) {
        return gw_original_no_form(s, "family", bp->family);
    }
    gw_blueprint *to = malloc(sizeof *to);
    gw_status status = to != NULL ? gw_blueprint_read(gw_spec_family(spec), gw_spec_text(spec), to)
                                  : gw_fail(GW_E_NOMEM, bp->family, "no memory for its numbers");
    if (status == GW_OK) {
        put_numbers(s, to);
    }
    free(to);
    return status;
}
