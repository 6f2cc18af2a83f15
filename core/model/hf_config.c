/* core/model/hf_config.c - config.json of a Hugging Face folder: which class it is of, and its
 * facts for the number lines of a spec. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/model/config.h"

/* Does a class that no family has stand for a model of its type? Not one of another task, nor one
 * that predicts for another model, nor one whose code lies beside it. */
static int is_wrapper(const json_t *config, const char *name) {
    static const char *const others[] = {"Reward",     "Classification", "Answering", "Eagle",
                                         "Medusa",     "Speculator",     "Draft",     "MTP",
                                         "Embedding",  "Bidirectional",  "Ranking",   "Retrieval",
                                         "MultiToken", "Encoder"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strstr(name, others[i]) != NULL) {
            return 0;
        }
    }
    return gw_spec_of(name) == NULL && json_object_get(config, "auto_map") == NULL;
}

/* A head of EAGLE-3 may be called after the model that its layer is of (SafeAILab's are). */
static int is_eagle3(const json_t *config, const char *name) {
    const char *type = json_string_value(json_object_get(config, "speculators_model_type"));
    return json_is_integer(json_object_get(config, "draft_vocab_size")) &&
           (type != NULL ? strcmp(type, "eagle3") == 0
                         : strcmp(name, "LlamaForCausalLM") == 0 || strstr(name, "Eagle3") != NULL);
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
        name = is_eagle3(config, name) ? "Eagle3Speculator" : name;
        const char *type = json_string_value(json_object_get(config, "model_type"));
        if (type != NULL && is_wrapper(config, name) && gw_spec_class(type, out, capacity)) {
            return GW_OK; /* PeftModelForCausalLM and other wrappers: the type decides */
        }
    } else { /* old configurations state the type of model only */
        GW_TRY(gw_json_text(where, config, "model_type", &name));
        if (name != NULL && gw_spec_class(name, out, capacity)) {
            return GW_OK;
        }
    }
    if ((name == NULL && needed) || (name != NULL && strlen(name) >= capacity)) {
        return gw_fail(GW_E_METADATA, where, "\"architectures\" does not name the model's class");
    }
    snprintf(out, capacity, "%s", name != NULL ? name : "");
    return GW_OK;
}

gw_facts gw_config_hf_facts(const char *where, const json_t *config) {
    static const char *const inner[] = {"text_config", "llm_config", "language_config",
                                        "transformer_layer_config"};
    gw_facts facts = {.where = where, .object = config, .in_folder = 1};
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        const json_t *text = json_object_get(config, inner[i]);
        if (json_is_object(text)) {
            facts.object = text;
            facts.outer = config;
            break;
        }
    }
    return facts;
}

gw_status gw_config_refuse_quantized(const gw_facts *facts) {
    static const char keys[][64] = {"quantization_config"};
    static const char *const read[] = {
        "gptq",     "awq",   "compressed-tensors", "fp8",        "fbgemm_fp8",
        "modelopt", "mxfp4", "bitsandbytes",       "auto-round", "mlx"};
    const char *key = keys[0], *method = NULL;
    const json_t *quant = gw_facts_find(facts, keys, 1, 0, &key);
    if (quant == NULL || json_is_null(quant)) {
        return GW_OK;
    }
    if (!json_is_object(quant)) {
        return gw_fail(GW_E_TYPE, facts->where, "\"quantization_config\" must be an object");
    }
    GW_TRY(gw_json_text(facts->where, quant, "quant_method", &method));
    for (size_t i = 0; method != NULL && i < sizeof read / sizeof read[0]; i++) {
        if (strncmp(method, read[i], strlen(read[i])) == 0) {
            return GW_OK;
        }
    }
    if (method == NULL && json_object_get(quant, "bits") != NULL) {
        return GW_OK; /* MLX names no method */
    }
    return gw_fail(GW_E_UNSUPPORTED, facts->where,
                   "weights quantized by %.40s are not read (gptq, awq, compressed-tensors, fp8, "
                   "modelopt, mxfp4, bitsandbytes and mlx are); use the original model or a GGUF "
                   "file",
                   method != NULL ? method : "an unnamed method");
}

/* ---- bare words ----------------------------------------------------------------------------- */

static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
enum { WORDS = 3, LONGER = 16 }; /* {"__float__":""} */

static size_t word_at(const char *p, const char *end, int *which) {
    for (int i = 0; i < WORDS; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(end - p) >= n && memcmp(p, words[i], n) == 0) {
            *which = i;
            return n;
        }
    }
    return 0;
}

char *gw_config_plain_json(const char *text, size_t bytes, size_t *n) {
    const char *end = text + bytes;
    size_t found = 0;
    int which = 0;
    for (const char *p = text; p < end; p++) {
        found += (*p == 'I' || *p == 'N') && word_at(p, end, &which) > 0;
    }
    char *out = malloc(bytes + found * LONGER + 1), *to = out;
    int quoted = 0;
    for (const char *p = text; out != NULL && p < end;) {
        size_t word = quoted ? 0 : word_at(p, end, &which);
        if (word > 0) {
            to += sprintf(to, "{\"__float__\":\"%s\"}", words[which]);
            p += word;
            continue;
        }
        if (quoted && *p == '\\' && p + 1 < end) {
            *to++ = *p++;
        } else if (*p == '"') {
            quoted = !quoted;
        }
        *to++ = *p++;
    }
    *n = out != NULL ? (size_t)(to - out) : 0;
    return out;
}
