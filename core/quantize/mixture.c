/* core/quantize/mixture.c - which matrix of a model gets which format. The rules and the numbers
 * of general.file_type are llama.cpp's, so that a name means here what it means there. */
#include "core/quantize/mixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/text.h"

/* What a name has besides its base. */
enum { PLAIN, SMALL, MEDIUM, LARGE, BETWEEN };

/* clang-format off */
static const struct row {
    gw_mixture m;
    int size;
} table[] = {
    {{"f32",       GW_FMT_F32,     0, 0}, PLAIN},  {{"f16",    GW_FMT_F16,  1, 0}, PLAIN},
    {{"bf16",      GW_FMT_BF16,   32, 0}, PLAIN},
    {{"q4_0",      GW_FMT_Q4_0,    2, 0}, PLAIN},  {{"q4_1",   GW_FMT_Q4_1, 3, 0}, PLAIN},
    {{"q5_0",      GW_FMT_Q5_0,    8, 0}, PLAIN},  {{"q5_1",   GW_FMT_Q5_1, 9, 0}, PLAIN},
    {{"q8_0",      GW_FMT_Q8_0,    7, 0}, PLAIN},
    {{"q2_k",      GW_FMT_Q2_K,   10, 0}, MEDIUM}, {{"q2_k_s", GW_FMT_Q2_K, 21, 0}, SMALL},
    {{"q3_k_s",    GW_FMT_Q3_K,   11, 0}, SMALL},  {{"q3_k_m", GW_FMT_Q3_K, 12, 0}, MEDIUM},
    {{"q3_k_l",    GW_FMT_Q3_K,   13, 0}, LARGE},  {{"q3_k",   GW_FMT_Q3_K, 12, 0}, MEDIUM},
    {{"q4_k_s",    GW_FMT_Q4_K,   14, 0}, SMALL},  {{"q4_k_m", GW_FMT_Q4_K, 15, 0}, MEDIUM},
    {{"q4_k",      GW_FMT_Q4_K,   15, 0}, MEDIUM},
    {{"q5_k_s",    GW_FMT_Q5_K,   16, 0}, SMALL},  {{"q5_k_m", GW_FMT_Q5_K, 17, 0}, MEDIUM},
    {{"q5_k",      GW_FMT_Q5_K,   17, 0}, MEDIUM}, {{"q6_k",   GW_FMT_Q6_K, 18, 0}, PLAIN},
    {{"iq4_nl",    GW_FMT_IQ4_NL, 25, 0}, PLAIN},  {{"iq4_xs", GW_FMT_IQ4_XS, 30, 0}, PLAIN},
    {{"iq1_s",     GW_FMT_IQ1_S,  24, 0}, PLAIN},  {{"iq1_m",  GW_FMT_IQ1_M, 31, 0}, PLAIN},
    {{"iq2_xxs", GW_FMT_IQ2_XXS,  19, 0}, PLAIN},  {{"iq2_xs", GW_FMT_IQ2_XS, 20, 0}, PLAIN},
    {{"iq2_s",   GW_FMT_IQ2_XS,   28, 0}, SMALL},  {{"iq2_m",  GW_FMT_IQ2_S, 29, 0}, MEDIUM},
    {{"iq3_xxs", GW_FMT_IQ3_XXS,  23, 0}, PLAIN},  {{"iq3_xs", GW_FMT_IQ3_S, 22, 0}, BETWEEN},
    {{"iq3_s",   GW_FMT_IQ3_S,    26, 0}, PLAIN},  {{"iq3_m",  GW_FMT_IQ3_S, 27, 0}, MEDIUM},
    {{"tq1_0",     GW_FMT_TQ1_0,  36, 0}, PLAIN},  {{"tq2_0",  GW_FMT_TQ2_0, 37, 0}, PLAIN},
    {{"q1_0",      GW_FMT_Q1_0,   40, 0}, PLAIN},  {{"q2_0",   GW_FMT_Q2_0, 41, 0}, PLAIN},
    {{"nvfp4",     GW_FMT_NVFP4,  39, 0}, PLAIN},
    {{"mxfp4_moe", GW_FMT_MXFP4,  38, 0}, PLAIN},  {{"mxfp4",  GW_FMT_MXFP4, 38, 0}, PLAIN},
    {{"copy",      GW_FMT_F32,    -1, 1}, PLAIN},
};
/* clang-format on */
enum { ROWS = sizeof table / sizeof table[0] };

const char *gw_mixture_name(int i) { return i >= 0 && i < ROWS ? table[i].m.name : NULL; }

gw_status gw_mixture_find(const char *name, gw_mixture *out) {
    for (int i = 0; name != NULL && i < ROWS; i++) {
        if (strcasecmp(table[i].m.name, name) == 0) {
            *out = table[i].m;
            return GW_OK;
        }
    }
    gw_fmt fmt;
    if (name != NULL && gw_format_from_name(name, &fmt) && gw_format_of(fmt)->gguf_type >= 0) {
        *out = (gw_mixture){gw_format_of(fmt)->name, fmt, -1, 0};
        return GW_OK;
    }
    char known[640] = "";
    for (int i = 0; i < ROWS; i++) {
        gw_text_append(known, sizeof known, "%s%s", i > 0 ? ", " : "", table[i].m.name);
    }
    return gw_fail(GW_E_ARGUMENT, "type", "'%.40s' is none of %s", name != NULL ? name : "", known);
}

static int size_of(const gw_mixture *m) {
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(table[i].m.name, m->name) == 0) {
            return table[i].size;
        }
    }
    return PLAIN;
}

/* ---- names ---------------------------------------------------------------------------------- */

static int has(const char *name, const char *part) { return strstr(name, part) != NULL; }

int gw_mixture_is_attn_v(const char *name) {
    return has(name, "attn_v.weight") || has(name, "attn_qkv.weight") ||
           has(name, "attn_kv_b.weight");
}
int gw_mixture_is_ffn_down(const char *name) { return has(name, "ffn_down"); }

static int is_head(const gw_mixture_model *model, const char *name) {
    return strcmp(name, "output.weight") == 0 ||
           (!model->has_output && strcmp(name, "token_embd.weight") == 0);
}

int gw_mixture_takes(const char *name, int n_dim) {
    static const char *const kept[] = {"_norm.weight",
                                       "ffn_gate_inp",
                                       "position_embd",
                                       "token_types",
                                       "ssm_conv1d",
                                       "shortconv.conv",
                                       "pos_embd",
                                       "attn_rel_b",
                                       "altup",
                                       "laurel",
                                       "per_layer_model_proj",
                                       "time_mix",
                                       "ssm_x",
                                       "ssm_dt",
                                       "ssm_a",
                                       "rope_freqs"};
    if (n_dim < 2 || !gw_text_ends(name, "weight")) {
        return 0;
    }
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (has(name, kept[i])) {
            return 0;
        }
    }
    return 1;
}

static int layer_of(const char *name) { return strncmp(name, "blk.", 4) == 0 ? atoi(name + 4) : 0; }

/* The first and the last eighth, and every third between. */
static int more(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

/* ---- by kind -------------------------------------------------------------------------------- */

static gw_fmt of_attn_v(const gw_mixture *m, gw_mixture_model *model, int size) {
    int i = model->attn_v++, n = model->n_attn_v;
    int grouped = model->kv_heads > 0 && model->heads / model->kv_heads >= 4;
    gw_fmt f = m->base;
    switch (m->base) {
    case GW_FMT_Q2_K:
        f = grouped ? GW_FMT_Q4_K : size == SMALL ? f : GW_FMT_Q3_K;
        break;
    case GW_FMT_Q3_K:
        f = size == MEDIUM ? (i < 2 ? GW_FMT_Q5_K : GW_FMT_Q4_K) : size == LARGE ? GW_FMT_Q5_K : f;
        break;
    case GW_FMT_Q4_K:
        f = size == MEDIUM ? (more(i, n) ? GW_FMT_Q6_K : f) : i < 4 ? GW_FMT_Q5_K : f;
        break;
    case GW_FMT_Q5_K:
        f = size == MEDIUM && more(i, n) ? GW_FMT_Q6_K : f;
        break;
    case GW_FMT_IQ4_NL:
    case GW_FMT_IQ4_XS:
        f = grouped ? GW_FMT_Q5_K : f;
        break;
    case GW_FMT_IQ3_XXS:
        f = grouped ? GW_FMT_Q4_K : model->has_imatrix ? f : GW_FMT_IQ3_S;
        break;
    case GW_FMT_IQ3_S:
        f = grouped || size == MEDIUM ? GW_FMT_Q4_K : f;
        break;
    default:
        break;
    }
    int is_70b = strcmp(model->architecture, "llama") == 0 && model->layers == 80 &&
                 model->heads != model->kv_heads;
    if (is_70b && (f == GW_FMT_Q3_K || f == GW_FMT_Q4_K)) {
        f = GW_FMT_Q5_K;
    }
    return model->experts == 8 ? GW_FMT_Q8_0 : f;
}

static gw_fmt of_ffn_down(const gw_mixture *m, gw_mixture_model *model, const char *name,
                          int size) {
    int i = model->ffn_down++, n = model->n_ffn_down;
    int falcon = strcmp(model->architecture, "falcon") == 0;
    if (model->experts > 1) {
        i = layer_of(name);
        n = model->layers;
    }
    int early = i < n / 8;
    switch (m->base) {
    case GW_FMT_Q2_K:
        return size == SMALL ? (early ? GW_FMT_Q4_K : m->base) : GW_FMT_Q3_K;
    case GW_FMT_Q3_K:
        if (size == MEDIUM) {
            return i < n / 16 ? GW_FMT_Q5_K : !falcon || more(i, n) ? GW_FMT_Q4_K : m->base;
        }
        return size == LARGE ? (falcon ? GW_FMT_Q4_K : GW_FMT_Q5_K) : m->base;
    case GW_FMT_Q4_K:
        if (size == MEDIUM && falcon) {
            return i < n / 16 ? GW_FMT_Q6_K : more(i, n) ? GW_FMT_Q5_K : m->base;
        }
        return size == MEDIUM     ? (more(i, n) ? GW_FMT_Q6_K : m->base)
               : early && !falcon ? GW_FMT_Q5_K
                                  : m->base;
    case GW_FMT_Q5_K:
        return size == MEDIUM && more(i, n) ? GW_FMT_Q6_K : m->base;
    case GW_FMT_IQ4_NL:
    case GW_FMT_IQ4_XS:
        return early && !model->has_imatrix ? GW_FMT_Q5_K : m->base;
    case GW_FMT_IQ3_XXS:
        return model->has_imatrix ? m->base : early ? GW_FMT_Q4_K : GW_FMT_Q3_K;
    case GW_FMT_IQ3_S:
        early = early || (model->experts == 8 && more(i, n));
        return size == MEDIUM && early ? GW_FMT_Q4_K : m->base;
    case GW_FMT_Q4_0:
        return early && model->has_imatrix ? GW_FMT_Q4_1 : m->base;
    case GW_FMT_Q5_0:
        return early && model->has_imatrix ? GW_FMT_Q5_1 : m->base;
    default:
        return m->base;
    }
}

static gw_fmt of_attn_output(const gw_mixture *m, const gw_mixture_model *model, int size) {
    gw_fmt f = m->base;
    int falcon = strcmp(model->architecture, "falcon") == 0;
    if (falcon) {
        return f == GW_FMT_Q3_K && size == LARGE ? GW_FMT_Q4_K : f;
    }
    if (model->experts == 8) {
        int lifted = (f == GW_FMT_Q2_K && size != SMALL) || (f == GW_FMT_Q3_K && size != LARGE) ||
                     f == GW_FMT_Q4_K || f == GW_FMT_IQ4_NL || f == GW_FMT_IQ4_XS ||
                     f == GW_FMT_IQ3_XXS || f == GW_FMT_IQ3_S;
        return lifted ? GW_FMT_Q5_K : f;
    }
    if (f == GW_FMT_IQ3_XXS || (f == GW_FMT_IQ3_S && size == MEDIUM)) {
        return f == GW_FMT_IQ3_XXS ? GW_FMT_IQ3_S : GW_FMT_Q4_K;
    }
    if (f == GW_FMT_Q2_K && size != SMALL) {
        return GW_FMT_Q3_K;
    }
    return f == GW_FMT_Q3_K && size == MEDIUM  ? GW_FMT_Q4_K
           : f == GW_FMT_Q3_K && size == LARGE ? GW_FMT_Q5_K
                                               : f;
}

/* Formats below Q2_K and near it: what they lift, they lift to others than K formats do. */
static int is_two_bit(gw_fmt f) {
    return f == GW_FMT_IQ1_S || f == GW_FMT_IQ1_M || f == GW_FMT_IQ2_XXS || f == GW_FMT_IQ2_XS ||
           f == GW_FMT_IQ2_S;
}

static gw_fmt of_two_bit(const gw_mixture *m, gw_mixture_model *model, const char *name, int size) {
    gw_fmt lifted = size == PLAIN ? GW_FMT_Q2_K : GW_FMT_IQ3_S;
    int grouped = model->kv_heads > 0 && model->heads / model->kv_heads >= 4;
    if (gw_mixture_is_attn_v(name)) {
        model->attn_v++;
        return grouped || model->experts >= 4 ? GW_FMT_Q4_K : lifted;
    }
    if (has(name, "attn_k.weight") && model->experts == 8) {
        return GW_FMT_Q4_K;
    }
    if (gw_mixture_is_ffn_down(name)) {
        return model->ffn_down++ < model->n_ffn_down / 8 ? lifted : m->base;
    }
    if (!has(name, "attn_output.weight")) {
        return m->base;
    }
    return model->experts == 8                                  ? GW_FMT_Q5_K
           : m->base == GW_FMT_IQ1_S || m->base == GW_FMT_IQ1_M ? GW_FMT_IQ2_XXS
           : size == PLAIN                                      ? m->base
                                                                : lifted;
}

static gw_fmt of_embedding(const gw_mixture *m, int size) {
    switch (m->base) {
    case GW_FMT_TQ1_0:
    case GW_FMT_TQ2_0:
    case GW_FMT_Q2_0:
        return GW_FMT_Q4_K;
    case GW_FMT_IQ3_XXS:
        return GW_FMT_IQ3_S;
    default:
        return !is_two_bit(m->base) ? m->base : size == PLAIN ? GW_FMT_Q2_K : GW_FMT_IQ3_S;
    }
}

/* q and k, gate and up: three bits have less there. */
static gw_fmt of_the_rest(const gw_mixture *m, const gw_mixture_model *model, const char *name,
                          int size) {
    int q_or_k = has(name, "attn_q.weight") || has(name, "attn_k.weight");
    int i = layer_of(name), n = model->layers, inner = i >= n / 8 && i < 7 * n / 8;
    if (q_or_k && m->base == GW_FMT_IQ3_XXS) {
        return GW_FMT_IQ2_S;
    }
    int gate_or_up = has(name, "ffn_gate") || has(name, "ffn_up");
    return size == BETWEEN && (q_or_k || (gate_or_up && inner)) ? GW_FMT_IQ3_XXS : m->base;
}

int gw_mixture_needs_importance(gw_fmt fmt, const char *name) {
    return (is_two_bit(fmt) || fmt == GW_FMT_IQ3_XXS) && strcmp(name, "output.weight") != 0 &&
           strcmp(name, "token_embd.weight") != 0;
}

gw_fmt gw_mixture_choose(const gw_mixture *m, gw_mixture_model *model, const char *name,
                         int64_t cols, int n_dim) {
    int size = size_of(m), block = (int)gw_format_of(m->base)->block_elems;
    /* MXFP4 is what experts are published in; a dense model has it where it is asked for. */
    int for_experts =
        m->base == GW_FMT_MXFP4 && (model->experts > 0 || strcmp(m->name, "mxfp4_moe") == 0);
    if (gw_format_of(m->base)->is_float) {
        return m->base;
    }
    if (is_head(model, name)) {
        int wide = for_experts || strcmp(model->architecture, "falcon") == 0 || cols % block != 0;
        int few = is_two_bit(m->base) || m->base == GW_FMT_IQ3_XXS;
        return wide || m->base == GW_FMT_Q8_0 ? GW_FMT_Q8_0 : few ? GW_FMT_Q5_K : GW_FMT_Q6_K;
    }
    if (for_experts) {
        return n_dim == 3 ? m->base : GW_FMT_Q8_0;
    }
    if (strcmp(name, "token_embd.weight") == 0) {
        return of_embedding(m, size);
    }
    if (is_two_bit(m->base)) {
        return of_two_bit(m, model, name, size);
    }
    if (gw_mixture_is_attn_v(name)) {
        return of_attn_v(m, model, size);
    }
    if (has(name, "attn_k.weight") && model->experts == 8) {
        return GW_FMT_Q8_0;
    }
    if (gw_mixture_is_ffn_down(name)) {
        return of_ffn_down(m, model, name, size);
    }
    if (has(name, "attn_output.weight")) {
        return of_attn_output(m, model, size);
    }
    return of_the_rest(m, model, name, size);
}

gw_fmt gw_mixture_fallback(gw_fmt fmt, int64_t cols) {
    if (cols % (int64_t)gw_format_of(fmt)->block_elems == 0) {
        return fmt;
    }
    switch (fmt) {
    case GW_FMT_Q4_K:
        fmt = GW_FMT_Q5_0;
        break;
    case GW_FMT_Q5_K:
        fmt = GW_FMT_Q5_1;
        break;
    case GW_FMT_Q6_K:
        fmt = GW_FMT_Q8_0;
        break;
    case GW_FMT_Q2_K:
    case GW_FMT_Q3_K:
    case GW_FMT_TQ1_0:
    case GW_FMT_TQ2_0:
    case GW_FMT_Q1_0:
    case GW_FMT_Q2_0:
        fmt = GW_FMT_Q4_0;
        break;
    default:
        fmt = GW_FMT_IQ4_NL;
        break;
    }
    return cols % 32 == 0 ? fmt : GW_FMT_F16;
}
