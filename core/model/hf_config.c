/* core/model/hf_config.c - config.json of a Hugging Face folder -> gw_config.
 *
 * Both spellings: rope_theta / rope_scaling / torch_dtype, and rope_parameters / dtype. Defaults
 * are those of the transformers library's configuration classes; ranges are checked in config.c.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "core/model/config.h"
#include "core/model/rope.h"
#include "core/model/spec.h"

/* What a class means by keys that its config.json leaves out. */
typedef struct class_defaults {
    const char *architecture;
    int64_t n_ctx, d_head; /* d_head 0: width / heads                        */
    enum { NO_WINDOW, EVERY_LAYER, FLAGGED } window; /* FLAGGED: only with use_sliding_window */
    int64_t window_default;
} class_defaults;

/* clang-format off */
static const class_defaults classes[] = {
    {"LlamaForCausalLM",   2048,   0,   NO_WINDOW,   0},
    {"MistralForCausalLM", 131072, 0,   EVERY_LAYER, 4096},
    {"Qwen2ForCausalLM",   32768,  0,   FLAGGED,     4096},
    {"Qwen3ForCausalLM",   32768,  128, FLAGGED,     4096},
};
/* clang-format on */

static class_defaults defaults_of(const char *architecture) {
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strcmp(classes[i].architecture, architecture) == 0) {
            return classes[i];
        }
    }
    return (class_defaults){architecture, GW_ABSENT, 0, NO_WINDOW, 0};
}

gw_status gw_config_hf_architecture(const char *where, const json_t *config, int needed, char *out,
                                    size_t capacity) {
    json_t *list = NULL;
    const char *name = NULL;
    GW_TRY(gw_json_array(where, config, "architectures", &list));
    if (json_array_size(list) > 0) {
        name = json_string_value(json_array_get(list, 0));
        if (name == NULL) {
            return gw_fail(GW_E_TYPE, where, "\"architectures\" must be a list of names");
        }
    } else { /* old configurations state the type of model only */
        GW_TRY(gw_json_text(where, config, "model_type", &name));
        name = name != NULL && strcmp(name, "mistral") == 0 ? "MistralForCausalLM" : name;
    }
    if ((name == NULL && needed) || (name != NULL && strlen(name) >= capacity)) {
        return gw_fail(GW_E_METADATA, where, "\"architectures\" does not name the model's class");
    }
    snprintf(out, capacity, "%s", name != NULL ? name : "");
    return GW_OK;
}

static gw_status read_shape(const char *where, const json_t *root, gw_config *c) {
    const struct {
        const char *name;
        int64_t *to;
    } rows[] = {
        {"max_position_embeddings", &c->n_ctx},
        {"hidden_size", &c->d_model},
        {"num_hidden_layers", &c->n_layers},
        {"intermediate_size", &c->d_ff},
        {"num_attention_heads", &c->n_heads},
        {"num_key_value_heads", &c->n_kv_heads},
        {"head_dim", &c->d_head},
        {"vocab_size", &c->n_vocab},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        GW_TRY(gw_json_int(where, root, rows[i].name, rows[i].to));
    }
    c->norm_eps = 1e-6;
    GW_TRY(gw_json_real(where, root, "rms_norm_eps", &c->norm_eps));
    return gw_json_bool(where, root, "tie_word_embeddings", &c->tied);
}

/* layer_types says per layer what max_window_layers says with one number. Only a list of that
 * kind (full attention first, then windows) can be expressed. */
static gw_status read_layer_types(const char *where, const json_t *list, gw_config *c) {
    size_t n = json_array_size(list), from = n;
    for (size_t i = 0; i < n; i++) {
        const char *kind = json_string_value(json_array_get(list, i));
        int slides = kind != NULL && strcmp(kind, "sliding_attention") == 0;
        if (!slides && (kind == NULL || strcmp(kind, "full_attention") != 0)) {
            return gw_fail(GW_E_UNSUPPORTED, where, "layer_types: %s is not supported",
                           kind != NULL ? kind : "something that is no name");
        }
        if (slides && from == n) {
            from = i;
        }
        if (!slides && from < n) {
            return gw_fail(GW_E_UNSUPPORTED, where,
                           "layer_types: full attention after a sliding window is not supported");
        }
    }
    if (n > 0) {
        c->window_from_layer = (int64_t)from;
        c->window = from == n ? 0 : c->window;
    }
    return GW_OK;
}

static gw_status read_window(const char *where, const json_t *root, const class_defaults *d,
                             gw_config *c) {
    int on = d->window == EVERY_LAYER;
    if (d->window == FLAGGED) {
        GW_TRY(gw_json_bool(where, root, "use_sliding_window", &on));
    }
    if (!on) {
        return GW_OK;
    }
    const json_t *window = json_object_get(root, "sliding_window");
    c->window = window == NULL ? d->window_default : 0; /* null: none */
    GW_TRY(gw_json_int(where, root, "sliding_window", &c->window));
    if (d->window != FLAGGED) {
        return GW_OK;
    }
    c->window_from_layer = 28;
    GW_TRY(gw_json_int(where, root, "max_window_layers", &c->window_from_layer));
    json_t *types = NULL;
    GW_TRY(gw_json_array(where, root, "layer_types", &types));
    return read_layer_types(where, types, c);
}

static gw_status read_yarn(const char *where, const json_t *rope, gw_config *c) {
    double scale = 0.0, scale_all = 0.0;
    int truncate = 1;
    GW_TRY(gw_json_real(where, rope, "beta_fast", &c->rope_beta_fast));
    GW_TRY(gw_json_real(where, rope, "beta_slow", &c->rope_beta_slow));
    GW_TRY(gw_json_real(where, rope, "attention_factor", &c->rope_attn_factor));
    GW_TRY(gw_json_real(where, rope, "mscale", &scale));
    GW_TRY(gw_json_real(where, rope, "mscale_all_dim", &scale_all));
    GW_TRY(gw_json_bool(where, rope, "truncate", &truncate));
    if (!truncate) {
        return gw_fail(GW_E_UNSUPPORTED, where, "yarn without truncation is not supported");
    }
    if (c->rope_attn_factor == 0.0 && scale != 0.0 && scale_all != 0.0) {
        c->rope_attn_factor = gw_rope_yarn_magnitude(c->rope_factor, scale) /
                              gw_rope_yarn_magnitude(c->rope_factor, scale_all);
    }
    return GW_OK;
}

/* rope: the object that holds type and factors; may be NULL. */
static gw_status read_scaling(const char *where, const json_t *rope, gw_config *c) {
    const char *type = "default";
    GW_TRY(gw_json_text(where, rope, "type", &type));
    GW_TRY(gw_json_text(where, rope, "rope_type", &type));
    if (strcmp(type, "default") == 0) {
        return GW_OK;
    }
    if (!gw_json_has(rope, "factor")) {
        return gw_fail(GW_E_METADATA, where, "rope scaling %s has no factor", type);
    }
    GW_TRY(gw_json_real(where, rope, "factor", &c->rope_factor));
    GW_TRY(gw_json_int(where, rope, "original_max_position_embeddings", &c->rope_original_ctx));
    if (strcmp(type, "linear") == 0) {
        c->rope_scaling = GW_ROPE_LINEAR;
    } else if (strcmp(type, "llama3") == 0) {
        c->rope_scaling = GW_ROPE_LLAMA3;
        GW_TRY(gw_json_real(where, rope, "low_freq_factor", &c->rope_low_freq));
        GW_TRY(gw_json_real(where, rope, "high_freq_factor", &c->rope_high_freq));
    } else if (strcmp(type, "yarn") == 0) {
        c->rope_scaling = GW_ROPE_YARN;
        GW_TRY(read_yarn(where, rope, c));
    } else {
        return gw_fail(GW_E_UNSUPPORTED, where,
                       "rope scaling %s is not supported; linear, llama3 and yarn are", type);
    }
    return GW_OK;
}

static gw_status read_rope(const char *where, const json_t *root, gw_config *c) {
    json_t *rope = NULL;
    GW_TRY(gw_json_real(where, root, "rope_theta", &c->rope_base));
    GW_TRY(gw_json_real(where, root, "partial_rotary_factor", &c->partial_rotary));
    GW_TRY(gw_json_object(where, root, "rope_scaling", &rope));
    GW_TRY(gw_json_object(where, root, "rope_parameters", &rope));
    if (rope == NULL) {
        return GW_OK;
    }
    const char *key;
    json_t *value;
    json_object_foreach(rope, key, value) {
        if (json_is_object(value)) {
            return gw_fail(GW_E_UNSUPPORTED, where,
                           "rope parameters per kind of layer (%s) are not supported", key);
        }
    }
    GW_TRY(gw_json_real(where, rope, "rope_theta", &c->rope_base));
    GW_TRY(gw_json_real(where, rope, "partial_rotary_factor", &c->partial_rotary));
    GW_TRY(read_scaling(where, rope, c));
    /* Where both state it, the transformers library believes the outer one. */
    return gw_json_int(where, root, "original_max_position_embeddings", &c->rope_original_ctx);
}

/* What the file says and this program would otherwise pass over in silence. */
static gw_status refuse_foreign(const char *where, const json_t *root, const gw_spec *spec) {
    if (gw_json_has(root, "quantization_config")) {
        const char *method = "unknown";
        json_t *quant = NULL;
        GW_TRY(gw_json_object(where, root, "quantization_config", &quant));
        GW_TRY(gw_json_text(where, quant, "quant_method", &method));
        return gw_fail(GW_E_UNSUPPORTED, where,
                       "weights quantized by %s are not supported yet; use the original model or a "
                       "GGUF file",
                       method);
    }
    const char *act = "silu";
    GW_TRY(gw_json_text(where, root, "hidden_act", &act));
    int silu = strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0;
    if (!silu && strstr(gw_spec_text(spec), "glu silu") != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, where, "hidden_act %s is not supported; silu is", act);
    }
    int mlp_bias = 0;
    GW_TRY(gw_json_bool(where, root, "mlp_bias", &mlp_bias));
    if (mlp_bias) {
        return gw_fail(GW_E_UNSUPPORTED, where, "mlp_bias is not supported");
    }
    return GW_OK;
}

gw_status gw_config_from_hf(const char *where, const json_t *root, gw_config *config) {
    const gw_spec *spec;
    GW_TRY(gw_spec_find(where, config->architecture, &spec));
    class_defaults d = defaults_of(config->architecture);
    config->n_ctx = d.n_ctx;
    config->d_head = d.d_head != 0 ? d.d_head : GW_ABSENT;
    GW_TRY(refuse_foreign(where, root, spec));
    GW_TRY(read_shape(where, root, config));
    GW_TRY(read_window(where, root, &d, config));
    return read_rope(where, root, config);
}
