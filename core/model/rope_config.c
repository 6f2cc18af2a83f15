/* core/model/rope_config.c - rope lines of a spec and the scaling that a container states. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/model/config.h"
#include "core/model/rope.h"

typedef struct source {
    const gw_facts *facts;
    const json_t *object; /* that holds the scaling; NULL: none does */
    const char *prefix;   /* "rope.scaling." in GGUF                 */
    int takes_log; /* the family has a number of yarn's log multiplier: it scales scores by it */
} source;

static const json_t *get(const source *s, const char *key) {
    char name[80];
    if (s->object == NULL) {
        return NULL;
    }
    snprintf(name, sizeof name, "%s%s", s->prefix, key);
    const json_t *v = json_object_get(s->object, name);
    return json_is_null(v) ? NULL : v;
}

static gw_status wrong(const source *s, const char *key, const char *want) {
    return gw_fail(GW_E_TYPE, s->facts->where, "\"%s%s\" must be %s", s->prefix, key, want);
}

static gw_status real(const source *s, const char *key, double *out) {
    const json_t *v = get(s, key);
    double x = 0.0;
    if (v == NULL) {
        return GW_OK;
    }
    if (!gw_facts_real(v, &x)) {
        return wrong(s, key, "a number");
    }
    *out = x;
    return GW_OK;
}

static gw_status flag(const source *s, const char *key, int *out) {
    const json_t *v = get(s, key);
    if (v != NULL && !json_is_boolean(v)) {
        return wrong(s, key, "true or false");
    }
    *out = v != NULL ? json_is_true(v) : *out;
    return GW_OK;
}

static gw_status positive(const source *s, const char *what, double value, double low) {
    if (!(value >= low && value <= 1e12) || value <= 0.0) {
        return gw_fail(GW_E_METADATA, s->facts->where,
                       "the %s is %g; a number of at least %g is needed", what, value, low);
    }
    return GW_OK;
}

/* ---- kinds of scaling ----------------------------------------------------------------------- */

static gw_status read_original(const source *s, const gw_hparams *hp, int needed, gw_rope *r) {
    static const char keys[][64] = {"original_max_position_embeddings", "initial_context_length"};
    double x = hp->n_ctx;
    const char *key = keys[0];
    GW_TRY(real(s, s->facts->in_folder ? keys[0] : "original_context_length", &x));
    /* Where both state it, the transformers library believes the outer one. */
    const json_t *outer = s->facts->in_folder ? gw_facts_find(s->facts, keys, 1, 0, &key) : NULL;
    if (outer != NULL && !json_is_null(outer) && !gw_facts_real(outer, &x)) {
        return wrong(s, key, "a number");
    }
    if (!(x >= 1.0 && x <= 1 << 30) && needed) {
        return gw_fail(GW_E_METADATA, s->facts->where,
                       "the original context of the rope scaling is %g; 1 to %d is possible", x,
                       1 << 30);
    }
    r->original_ctx = x >= 1.0 && x <= 1 << 30 ? (int32_t)x : 0;
    return GW_OK;
}

static gw_status read_yarn_hf(const source *s, gw_rope *r) {
    double scale = 0.0, scale_all = 0.0;
    GW_TRY(real(s, "beta_fast", &r->beta_fast));
    GW_TRY(real(s, "beta_slow", &r->beta_slow));
    GW_TRY(real(s, "attention_factor", &r->attn_factor));
    GW_TRY(real(s, "mscale", &scale));
    GW_TRY(real(s, "mscale_all_dim", &scale_all));
    GW_TRY(flag(s, "truncate", &r->truncate));
    if (r->attn_factor == 0.0 && scale != 0.0 && scale_all != 0.0) {
        r->attn_factor =
            gw_rope_yarn_magnitude(r->factor, scale) / gw_rope_yarn_magnitude(r->factor, scale_all);
    }
    return GW_OK;
}

/* yarn_attn_factor is the attention_factor of a config.json: the whole magnitude. attn_factor comes
 * on top of it, or of the derived one. */
static gw_status read_yarn_gguf(const source *s, gw_rope *r) {
    double ext = 1.0, log_multiplier = 0.0, attn = 1.0, whole = 1.0;
    GW_TRY(real(s, "yarn_beta_fast", &r->beta_fast));
    GW_TRY(real(s, "yarn_beta_slow", &r->beta_slow));
    GW_TRY(real(s, "yarn_ext_factor", &ext));
    GW_TRY(real(s, "yarn_log_multiplier", &log_multiplier));
    if (ext != 1.0 && ext != -1.0) { /* -1: the default */
        return gw_fail(GW_E_UNSUPPORTED, s->facts->where,
                       "yarn with an extrapolation factor of %g is not supported", ext);
    }
    if (log_multiplier != 0.0 && log_multiplier != 1.0 && !s->takes_log) {
        return gw_fail(GW_E_UNSUPPORTED, s->facts->where,
                       "yarn with a log multiplier of %g is not supported", log_multiplier);
    }
    GW_TRY(real(s, "yarn_attn_factor", &whole));
    GW_TRY(real(s, "attn_factor", &attn));
    GW_TRY(positive(s, "yarn attention factor", whole, 1e-9));
    GW_TRY(positive(s, "attention factor", attn, 1e-9));
    int stated = get(s, "yarn_attn_factor") != NULL;
    if (stated || get(s, "attn_factor") != NULL) {
        r->attn_factor = attn * (stated ? whole : gw_rope_yarn_magnitude(r->factor, 1.0));
    } else if (log_multiplier != 0.0) { /* mscale and mscale_all_dim are equal */
        r->attn_factor = 1.0;
    }
    return GW_OK;
}

static gw_status read_yarn(const source *s, const gw_hparams *hp, gw_rope *r) {
    r->scaling = GW_ROPE_YARN;
    GW_TRY(s->facts->in_folder ? read_yarn_hf(s, r) : read_yarn_gguf(s, r));
    GW_TRY(positive(s, "rope beta_fast", r->beta_fast, 1e-6));
    GW_TRY(positive(s, "rope beta_slow", r->beta_slow, 1e-6));
    if (r->attn_factor != 0.0) {
        GW_TRY(positive(s, "rope attention factor", r->attn_factor, 1e-6));
    }
    if (!(r->base > 1.0)) {
        return gw_fail(GW_E_METADATA, s->facts->where, "yarn scaling needs a rope base above 1");
    }
    GW_TRY(positive(s, "rope scaling factor", r->factor, 1.0));
    return read_original(s, hp, 1, r);
}

static gw_status read_llama3(const source *s, const gw_hparams *hp, gw_rope *r) {
    r->scaling = GW_ROPE_LLAMA3;
    GW_TRY(real(s, "low_freq_factor", &r->low_freq));
    GW_TRY(real(s, "high_freq_factor", &r->high_freq));
    GW_TRY(positive(s, "rope low frequency factor", r->low_freq, 1e-6));
    GW_TRY(positive(s, "rope high frequency factor", r->high_freq, 1e-6));
    if (!(r->low_freq < r->high_freq)) {
        return gw_fail(GW_E_METADATA, s->facts->where,
                       "the rope low frequency factor %g is not below the high one, %g",
                       r->low_freq, r->high_freq);
    }
    GW_TRY(positive(s, "rope scaling factor", r->factor, 1.0));
    return read_original(s, hp, 1, r);
}

static gw_status read_divisors(const source *s, const char *key, gw_arena *arena, const gw_rope *r,
                               const float **out) {
    const json_t *list = get(s, key);
    size_t n = (size_t)r->dim / 2;
    if (!json_is_array(list)) {
        return wrong(s, key, "a list of numbers");
    }
    if (json_array_size(list) != n) {
        return gw_fail(GW_E_METADATA, s->facts->where, "%s has %zu values, rope turns %zu pairs",
                       key, json_array_size(list), n);
    }
    float *copy = gw_arena_array(arena, n, sizeof *copy);
    if (copy == NULL) {
        return gw_fail(GW_E_NOMEM, s->facts->where, "no memory for rope");
    }
    for (size_t i = 0; i < n; i++) {
        double x = 0.0;
        if (!gw_facts_real(json_array_get(list, i), &x) || !(x > 1e-30 && x < 1e30)) {
            return gw_fail(GW_E_METADATA, s->facts->where, "%s [%zu] is no positive number", key,
                           i);
        }
        copy[i] = (float)x;
    }
    *out = copy;
    return GW_OK;
}

/* Short or long divisors by the length of the context; sines times sqrt(1 + ln s / ln n0). */
static gw_status read_longrope(const source *s, const gw_hparams *hp, gw_arena *arena, gw_rope *r) {
    r->scaling = GW_ROPE_LONGROPE;
    GW_TRY(read_original(s, hp, 1, r));
    GW_TRY(read_divisors(s, "short_factor", arena, r, &r->divisors));
    GW_TRY(read_divisors(s, "long_factor", arena, r, &r->long_divisors));
    double stretch = (double)hp->n_ctx / r->original_ctx;
    if (get(s, "factor") != NULL) {
        stretch = r->factor;
    }
    double own = stretch > 1.0 && r->original_ctx > 1
                     ? sqrt(1.0 + gw_rope_log(stretch) / gw_rope_log(r->original_ctx))
                     : 1.0;
    GW_TRY(real(s, "attention_factor", &own));
    r->attn_factor = r->long_attn_factor = own;
    GW_TRY(real(s, "short_mscale", &r->attn_factor)); /* Phi-3.5-MoE states both */
    GW_TRY(real(s, "long_mscale", &r->long_attn_factor));
    GW_TRY(positive(s, "rope attention factor", r->attn_factor, 1e-6));
    return positive(s, "rope attention factor", r->long_attn_factor, 1e-6);
}

/* Hunyuan: the base grows by alpha^(dim / (dim - 2)). Without alpha it grows with the length of a
 * text that is longer than the model was trained for; up to there nothing is scaled. */
static gw_status read_alpha(const source *s, gw_rope *r) {
    double alpha = 0.0;
    GW_TRY(real(s, "alpha", &alpha));
    if (get(s, "alpha") == NULL || r->dim <= 2) {
        return positive(s, "rope scaling factor", r->factor, 1e-6);
    }
    GW_TRY(positive(s, "rope alpha", alpha, 1e-6));
    r->base *= gw_rope_exp(gw_rope_log(alpha) * r->dim / (r->dim - 2.0));
    return GW_OK;
}

/* ---- one rope ------------------------------------------------------------------------------- */

static gw_status read_type(const source *s, const char **type) {
    static const char *const keys[] = {"type", "rope_type"};
    *type = "default";
    for (int i = 0; i < 2; i++) {
        const json_t *v = get(s, keys[i]);
        if (v != NULL && !json_is_string(v)) {
            return wrong(s, keys[i], "a word");
        }
        *type = v != NULL ? json_string_value(v) : *type;
    }
    return GW_OK;
}

static int is_plain(const char *type) {
    static const char *const plain[] = {"default", "none", "proportional", "mrope"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(type, plain[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* GGUF states no type for longrope: the divisors are tensors, the magnitude is a key. */
static gw_status read_magnitude(const source *s, const gw_hparams *hp, gw_rope *r) {
    GW_TRY(read_original(s, hp, 0, r));
    if (get(s, "attn_factor") != NULL) {
        r->scaling = GW_ROPE_LONGROPE;
        GW_TRY(real(s, "attn_factor", &r->attn_factor));
        GW_TRY(positive(s, "rope attention factor", r->attn_factor, 1e-6));
        r->long_attn_factor = r->attn_factor;
    }
    return GW_OK;
}

static gw_status read_scaling(const source *s, const gw_hparams *hp, gw_arena *arena, gw_rope *r) {
    const char *type = NULL;
    GW_TRY(read_type(s, &type));
    int gguf = !s->facts->in_folder, typed = get(s, "type") != NULL;
    r->factor = 1.0;
    if (gguf) { /* an old key */
        source old = {.facts = s->facts, .object = s->object, .prefix = "rope."};
        GW_TRY(real(&old, "scale_linear", &r->factor));
    }
    GW_TRY(real(s, "factor", &r->factor));
    r->factor = gguf && r->factor == 0.0 ? 1.0 : r->factor;
    if (gguf && !typed) {
        type = r->factor != 1.0 ? "linear" : "none";
    }
    if (gguf && (is_plain(type) || strcmp(type, "longrope") == 0)) {
        return read_magnitude(s, hp, r);
    }
    if (is_plain(type)) {
        return GW_OK;
    }
    if (strcmp(type, "longrope") == 0 || (!gguf && strcmp(type, "su") == 0)) { /* its older name */
        return read_longrope(s, hp, arena, r);
    }
    if (strcmp(type, "dynamic") == 0 && !gguf) {
        return read_alpha(s, r);
    }
    if (!gguf && get(s, "factor") == NULL) {
        return gw_fail(GW_E_METADATA, s->facts->where, "rope scaling %.40s has no factor", type);
    }
    if (strcmp(type, "linear") == 0) {
        r->scaling = r->factor != 1.0 ? GW_ROPE_LINEAR : GW_ROPE_NONE;
        return positive(s, "rope scaling factor", r->factor, 1e-6);
    }
    if (strcmp(type, "yarn") == 0) {
        return read_yarn(s, hp, r);
    }
    if (strcmp(type, "llama3") == 0 && !gguf) {
        return read_llama3(s, hp, r);
    }
    return gw_fail(GW_E_UNSUPPORTED, s->facts->where,
                   "rope scaling %.40s is not supported; linear, yarn%s are", type,
                   gguf ? "" : ", llama3, longrope and dynamic");
}

static int takes_log(const gw_blueprint *bp) {
    for (int i = 0; i < bp->n_numbers; i++) {
        for (int k = 0; k < bp->number[i].n_gguf; k++) {
            if (strcmp(bp->number[i].gguf[k], "rope.scaling.yarn_log_multiplier") == 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* The first object of the line's keys that is there, or one that says which scaling. */
static gw_status find_scaling(const gw_facts *facts, const gw_blueprint *bp, const gw_spec_rope *x,
                              source *s) {
    *s = (source){.facts = facts, .prefix = ""};
    if (!facts->in_folder) {
        *s = (source){.facts = facts,
                      .object = x->scales ? facts->object : NULL,
                      .prefix = "rope.scaling.",
                      .takes_log = takes_log(bp)};
        return GW_OK;
    }
    for (int i = 0; i < x->n_scaling; i++) {
        const char *key = x->scaling[i];
        const json_t *v = gw_facts_find(facts, &x->scaling[i], 1, 0, &key);
        if (v == NULL || json_is_null(v)) {
            continue;
        }
        if (!json_is_object(v)) {
            return wrong(s, key, "an object");
        }
        s->object = v;
        return GW_OK;
    }
    return GW_OK;
}

/* Pairs that rotate by rows and columns of patches. */
static gw_status read_grid(const gw_facts *facts, const gw_blueprint *bp, const gw_spec_rope *x,
                           int layer, const gw_hparams *hp, gw_rope *r) {
    if (x->rows.n == 0 && x->columns.n == 0) {
        return GW_OK;
    }
    double rows = gw_spec_value(bp, hp, layer, x->rows);
    double columns = gw_spec_value(bp, hp, layer, x->columns);
    double spread = x->spread.n > 0 ? gw_spec_value(bp, hp, layer, x->spread) : GW_ROPE_SIDE;
    if (!(rows >= 0.0 && columns >= 0.0 && rows + columns <= r->dim / 2) || rows != floor(rows) ||
        columns != floor(columns)) {
        return gw_fail(GW_E_METADATA, facts->where,
                       "%g pairs rotate by row and %g by column; a head has %d", rows, columns,
                       r->dim / 2);
    }
    if (!(spread >= GW_ROPE_SIDE && spread <= GW_ROPE_ACROSS) || spread != floor(spread)) {
        return gw_fail(GW_E_METADATA, facts->where, "a rope has no spread of number %g", spread);
    }
    r->by_row = (int32_t)rows;
    r->by_column = (int32_t)columns;
    r->spread = (gw_rope_spread)(int)spread;
    return GW_OK;
}

static gw_status read_rope(const gw_facts *facts, const gw_blueprint *bp, int index, int layer,
                           gw_arena *arena, gw_hparams *hp) {
    const gw_spec_rope *x = &bp->rope[index];
    gw_rope r = {
        .low_freq = 1.0, .high_freq = 4.0, .beta_fast = 32.0, .beta_slow = 1.0, .truncate = 1};
    double dim = gw_spec_value(bp, hp, layer, x->dim);
    int d_head = hp->layer[layer].d_head;
    source s;
    GW_TRY(find_scaling(facts, bp, x, &s));
    if (!(dim >= 2.0 && dim <= d_head) || dim != floor(dim) || (int)dim % 2 != 0) {
        return gw_fail(GW_E_METADATA, facts->where,
                       "rope rotates %g values of a head of %d; an even number up to it is needed",
                       dim, d_head);
    }
    r.dim = (int32_t)dim;
    double turning = x->turning.n > 0 ? gw_spec_value(bp, hp, layer, x->turning) : dim / 2;
    if (!(turning >= 0.0 && turning <= dim / 2)) {
        return gw_fail(GW_E_METADATA, facts->where, "rope turns %g pairs of %g", turning, dim / 2);
    }
    r.turning = (int32_t)turning;
    r.style = facts->in_folder ? x->style_hf : x->style_gguf;
    r.base = gw_spec_value(bp, hp, layer, x->base);
    GW_TRY(positive(&s, "rope base", r.base, 1e-6));
    if (x->truncate.n > 0) {
        r.truncate = gw_spec_value(bp, hp, layer, x->truncate) != 0.0;
    }
    if (x->scales) {
        GW_TRY(read_scaling(&s, hp, arena, &r));
    }
    if (x->magnitude.n > 0 && r.attn_factor == 0.0) {
        r.attn_factor = gw_spec_value(bp, hp, layer, x->magnitude);
    }
    GW_TRY(read_grid(facts, bp, x, layer, hp, &r));
    if (x->shorter.n > 0 && gw_spec_value(bp, hp, layer, x->shorter) != 0.0) {
        r.long_divisors = r.long_divisors != NULL ? r.divisors : NULL;
    }
    hp->rope[index] = r;
    return GW_OK;
}

/* Does a layer rotate by rope i, all of its heads or in a block of its own? */
static int turns_by(const gw_blueprint *bp, const gw_hparams *hp, int layer, int i) {
    int turns = hp->layer[layer].rope == i;
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        gw_expr e = block->number[GW_ARG_TABLE];
        int own = block->kind == GW_BLOCK_ROTATE || block->kind == GW_BLOCK_COMPRESS;
        turns |= own && e.n > 0 && block->layer_kind == hp->layer[layer].kind &&
                 gw_spec_value(bp, hp, layer, e) == (double)i;
    }
    return turns;
}

gw_status gw_config_ropes(const gw_facts *facts, const gw_blueprint *bp, gw_arena *arena,
                          gw_hparams *hp) {
    hp->n_ropes = bp->n_ropes;
    for (int i = 0; i < bp->n_ropes; i++) {
        int l = 0;
        while (l < hp->n_layers && !turns_by(bp, hp, l, i)) {
            l++;
        }
        if (l < hp->n_layers) {
            GW_TRY(read_rope(facts, bp, i, l, arena, hp));
        }
    }
    for (int l = 0; l < hp->n_layers; l++) {
        const gw_layer *layer = &hp->layer[l];
        if (layer->rope >= 0 && hp->rope[layer->rope].dim > layer->d_head) {
            return gw_fail(GW_E_METADATA, facts->where,
                           "rope rotates %d values, a head of layer %d has %d",
                           hp->rope[layer->rope].dim, l, layer->d_head);
        }
    }
    return GW_OK;
}
