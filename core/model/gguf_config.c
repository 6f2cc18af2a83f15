/* core/model/gguf_config.c - GGUF metadata keys -> gw_config. Names and defaults only; ranges are
 * checked in config.c. Key names: the GGUF specification. */
#include <stdio.h>
#include <string.h>

#include "core/model/config.h"
#include "core/model/rope.h"
#include "core/model/spec.h"

typedef struct source {
    const gw_gguf *g;
    const char *architecture;
} source;

typedef char key_text[128];

static const char *key_of(const source *s, const char *name, key_text out) {
    snprintf(out, sizeof(key_text), "%s.%s", s->architecture, name);
    return out;
}

static gw_status integer(const source *s, const char *name, int64_t *out, int *found) {
    key_text key;
    return gw_gguf_int(s->g, key_of(s, name, key), out, found);
}

static gw_status real(const source *s, const char *name, double *out, int *found) {
    key_text key;
    return gw_gguf_real(s->g, key_of(s, name, key), out, found);
}

gw_status gw_config_gguf_architecture(const gw_gguf *g, int needed, char *out, size_t capacity) {
    gw_gguf_view name = {"", 0};
    int found;
    GW_TRY(gw_gguf_text(g, "general.architecture", &name, &found));
    if ((needed && !found) || name.bytes >= capacity ||
        memchr(name.text, 0, (size_t)name.bytes) != NULL) {
        return gw_fail(GW_E_METADATA, gw_gguf_where(g), "general.architecture is %s",
                       found ? "not the name of an architecture" : "missing");
    }
    memcpy(out, name.text, (size_t)name.bytes);
    out[name.bytes] = '\0';
    return GW_OK;
}

static gw_status read_shape(const source *s, gw_config *c) {
    const struct {
        const char *name;
        int64_t *to;
    } rows[] = {
        {"context_length", &c->n_ctx},
        {"embedding_length", &c->d_model},
        {"block_count", &c->n_layers},
        {"feed_forward_length", &c->d_ff},
        {"attention.head_count", &c->n_heads},
        {"attention.head_count_kv", &c->n_kv_heads},
        {"attention.key_length", &c->d_head},
        {"rope.dimension_count", &c->rope_dim},
        {"attention.sliding_window", &c->window},
        {"vocab_size", &c->n_vocab},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        GW_TRY(integer(s, rows[i].name, rows[i].to, NULL));
    }
    GW_TRY(real(s, "attention.layer_norm_rms_epsilon", &c->norm_eps, NULL));
    int64_t value_length = c->d_head, experts = 0;
    int found;
    GW_TRY(integer(s, "attention.value_length", &value_length, &found));
    int64_t derived = c->n_heads > 0 ? c->d_model / c->n_heads : 0;
    if (found && value_length != (c->d_head != GW_ABSENT ? c->d_head : derived)) {
        return gw_fail(GW_E_UNSUPPORTED, gw_gguf_where(s->g),
                       "key and value heads of different width are not supported");
    }
    GW_TRY(integer(s, "expert_count", &experts, NULL));
    if (experts != 0) {
        return gw_fail(GW_E_UNSUPPORTED, gw_gguf_where(s->g),
                       "a mixture of experts is not supported yet");
    }
    return GW_OK;
}

/* One embedding row per token: the list of tokens states the vocabulary's size. */
static gw_status read_vocab_size(const source *s, gw_config *c) {
    gw_gguf_array tokens;
    int found;
    GW_TRY(gw_gguf_list(s->g, "tokenizer.ggml.tokens", GW_GGUF_TEXT, &tokens, &found));
    if (found) {
        c->n_vocab = tokens.count <= INT64_MAX ? (int64_t)tokens.count : INT64_MAX;
    }
    for (size_t i = 0; i < gw_gguf_tensors(s->g) && c->n_vocab == GW_ABSENT; i++) {
        const gw_stored *t = gw_gguf_tensor(s->g, i);
        if (strcmp(t->name, "token_embd.weight") == 0 && t->n_dim == 2) {
            c->n_vocab = t->dim[0];
        }
    }
    return GW_OK;
}

static int is(const gw_gguf_view *text, const char *word) {
    return text->bytes == strlen(word) && memcmp(text->text, word, strlen(word)) == 0;
}

static gw_status positive(const source *s, const char *name, double *out, int *found) {
    GW_TRY(real(s, name, out, found));
    if (!(*out > 0.0 && *out <= 1e12)) { /* also NaN */
        return gw_fail(GW_E_METADATA, gw_gguf_where(s->g), "%s is %g; it must be positive", name,
                       *out);
    }
    return GW_OK;
}

/* yarn_attn_factor is the attention_factor of a config.json: the whole magnitude. attn_factor comes
 * on top of it, or of the derived one. hparams hold the product. */
static gw_status read_yarn(const source *s, gw_config *c) {
    double ext = 1.0, log_multiplier = 0.0, attn = 1.0, whole = 1.0;
    int stated, more;
    GW_TRY(real(s, "rope.scaling.yarn_beta_fast", &c->rope_beta_fast, NULL));
    GW_TRY(real(s, "rope.scaling.yarn_beta_slow", &c->rope_beta_slow, NULL));
    GW_TRY(real(s, "rope.scaling.yarn_ext_factor", &ext, NULL));
    GW_TRY(real(s, "rope.scaling.yarn_log_multiplier", &log_multiplier, NULL));
    if (ext != 1.0 && ext != -1.0) { /* -1: the default */
        return gw_fail(GW_E_UNSUPPORTED, gw_gguf_where(s->g),
                       "yarn with an extrapolation factor of %g is not supported", ext);
    }
    if (log_multiplier != 0.0) {
        return gw_fail(GW_E_UNSUPPORTED, gw_gguf_where(s->g),
                       "yarn with a log multiplier of %g is not supported", log_multiplier);
    }
    GW_TRY(positive(s, "rope.scaling.yarn_attn_factor", &whole, &stated));
    GW_TRY(positive(s, "rope.scaling.attn_factor", &attn, &more));
    if (stated || more) {
        c->rope_attn_factor = attn * (stated ? whole : gw_rope_yarn_magnitude(c->rope_factor, 1.0));
    }
    return GW_OK;
}

static gw_status read_rope(const source *s, gw_config *c) {
    GW_TRY(real(s, "rope.freq_base", &c->rope_base, NULL));
    double factor = 0.0;
    int typed, scaled, old;
    gw_gguf_view type = {"", 0};
    key_text key;
    GW_TRY(gw_gguf_text(s->g, key_of(s, "rope.scaling.type", key), &type, &typed));
    GW_TRY(real(s, "rope.scaling.factor", &factor, &scaled));
    if (!scaled) {
        GW_TRY(real(s, "rope.scale_linear", &factor, &old));
    }
    c->rope_factor =
        factor != 0.0 ? factor : 1.0; /* 0: not scaled, also NaN stays and is refused */
    GW_TRY(integer(s, "rope.scaling.original_context_length", &c->rope_original_ctx, NULL));
    if (is(&type, "none")) {
        return GW_OK;
    }
    if (!typed || is(&type, "linear")) {
        c->rope_scaling = c->rope_factor != 1.0 ? GW_ROPE_LINEAR : GW_ROPE_NONE;
        return GW_OK;
    }
    if (is(&type, "yarn")) {
        c->rope_scaling = GW_ROPE_YARN;
        return read_yarn(s, c);
    }
    return gw_fail(GW_E_UNSUPPORTED, gw_gguf_where(s->g),
                   "rope scaling %.*s is not supported; none, linear and yarn are",
                   (int)(type.bytes < 40 ? type.bytes : 40), type.text);
}

gw_status gw_config_from_gguf(const gw_gguf *g, gw_config *config) {
    const gw_spec *spec;
    GW_TRY(gw_spec_find(gw_gguf_where(g), config->architecture, &spec));
    source s = {g, config->architecture};
    GW_TRY(read_shape(&s, config));
    GW_TRY(read_vocab_size(&s, config));
    GW_TRY(read_rope(&s, config));
    config->interleaved = gw_spec_gguf_interleaved(spec);
    return GW_OK;
}
