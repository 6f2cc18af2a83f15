/* core/model/packed_declared.c - which layout of codes a folder's configuration declares, and which
 * of those that quantizers write are not read here: those are refused by name, for nothing in names
 * and shapes tells them from one that is. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/model/packed_parts.h"
#include "core/text/regex.h"

int64_t gw_json_whole(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? json_integer_value(v) : 0;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static int same_word(const char *a, const char *b) {
    for (; *a != '\0' && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++, b++) {
    }
    return tolower((unsigned char)*a) == tolower((unsigned char)*b);
}

static int among(const char *word, const char *const *list) {
    for (; *list != NULL; list++) {
        if (same_word(word, *list)) {
            return 1;
        }
    }
    return 0;
}

static gw_status refuse(const gw_declared *d, const char *what, const char *name) {
    return gw_fail(GW_E_UNSUPPORTED, d->where,
                   "%s '%.60s' is not read; use the original model, a GGUF file, or another "
                   "quantization of it",
                   what, name);
}

/* ---- where it stands ------------------------------------------------------------------------ */

static const json_t *config_of(const gw_checkpoint *c) {
    static const char *const keys[] = {"quantization_config", "quantization"};
    const json_t *inner = json_object_get(c->config, "text_config");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *own = json_object_get(c->config, keys[i]);
        own = json_is_object(own) ? own : json_object_get(inner, keys[i]);
        if (json_is_object(own)) {
            return own;
        }
    }
    return NULL;
}

/* ---- GPTQ, AWQ, auto-round ------------------------------------------------------------------ */

/* What the method is, when no method is named: of a file of AWQ's or GPTQ's own. */
static gw_gptq_layout layout_of_awq(const char *version) {
    return same_word(version, "gemv") ? GW_GPTQ_GEMV : GW_GPTQ_AWQ;
}

static gw_gptq_layout layout_of_gptq(const char *format) {
    return same_word(format, "gptq_p")    ? GW_GPTQ_PLANES
           : same_word(format, "gptq_v2") ? GW_GPTQ_RAW
                                          : GW_GPTQ_LESS_ONE;
}

/* auto-round writes zeros as AutoGPTQ does ("auto_round:auto_gptq", and by default where they are
 * symmetric), as they are ("auto_round", "auto_round:gptqmodel"), or as AWQ. */
static gw_gptq_layout layout_of_auto_round(const char *packing) {
    return strstr(packing, "awq") != NULL ? GW_GPTQ_AWQ
           : strstr(packing, "gptqmodel") != NULL || strstr(packing, "gptq") == NULL
               ? GW_GPTQ_RAW
               : GW_GPTQ_LESS_ONE;
}

static gw_status read_gptq(gw_declared *d) {
    static const char *const awq[] = {"", "gemm", "gemv", "exllama", "ipex", NULL};
    static const char *const gptq[] = {"", "gptq", "gptq_v2", "gptq_p", NULL};
    static const char *const packings[] = {"",
                                           "auto_round",
                                           "auto_round:auto_gptq",
                                           "auto_round:gptq",
                                           "auto_round:gptqmodel",
                                           "auto_round:exllamav2",
                                           "auto_round:gptq:exllamav2",
                                           "auto_round:auto_awq",
                                           "auto_round:awq",
                                           "auto_round:fp8_static",
                                           "auto_round:fp8",
                                           "auto_round:llm_compressor",
                                           NULL};
    const char *method = text_of(d->config, "quant_method");
    const char *format = text_of(d->config, "checkpoint_format");
    format = format[0] != '\0' ? format : text_of(d->config, "format");
    const char *version = text_of(d->config, "version");
    if (strstr(method, "auto-round") != NULL || strstr(method, "autoround") != NULL) {
        const char *packing = text_of(d->config, "packing_format");
        packing = packing[0] != '\0' ? packing : text_of(d->config, "backend");
        d->gptq = layout_of_auto_round(packing);
        return among(packing, packings) ? GW_OK : refuse(d, "auto-round's packing_format", packing);
    }
    if (same_word(method, "awq") || (method[0] == '\0' && gw_json_whole(d->config, "w_bit") > 0)) {
        version = version[0] != '\0' ? version : format;
        d->gptq = layout_of_awq(version);
        return among(version, awq) ? GW_OK : refuse(d, "AWQ's layout", version);
    }
    if (same_word(method, "gptq") || (method[0] == '\0' && gw_json_whole(d->config, "bits") > 0)) {
        if (among(format, awq) && format[0] != '\0') { /* AWQ by GPTQModel */
            d->gptq = layout_of_awq(format);
            return GW_OK;
        }
        format = json_is_true(json_object_get(d->config, "is_marlin_format")) ? "marlin" : format;
        d->gptq = layout_of_gptq(format);
        return among(format, gptq) ? GW_OK : refuse(d, "GPTQ's checkpoint_format", format);
    }
    return GW_OK;
}

/* ---- ModelOpt ------------------------------------------------------------------------------- */

static gw_status read_modelopt(const gw_declared *d) {
    static const char *const not_read[] = {"W4A16_AWQ", "INT4_AWQ", "W4A8_AWQ",
                                           "NVFP4_SVD", "W4A8_SVD", NULL};
    const char *algo = text_of(d->config, "quant_algo");
    return among(algo, not_read) ? refuse(d, "ModelOpt's quant_algo", algo) : GW_OK;
}

/* ---- compressed-tensors --------------------------------------------------------------------- */

/* Does a version "a.b.c" come from `major.minor` on? */
static int is_since(const char *version, int major, int minor) {
    int a = 0, b = 0;
    return sscanf(version, "%d.%d", &a, &b) == 2 && (a > major || (a == major && b >= minor));
}

static gw_status check_format(const gw_declared *d, const char *format) {
    static const char *const read[] = {"",
                                       "dense",
                                       "int-quantized",
                                       "float-quantized",
                                       "naive-quantized",
                                       "pack-quantized",
                                       "mixed-precision",
                                       "nvfp4-pack-quantized",
                                       "mxfp4-pack-quantized",
                                       "mxfp6-pack-quantized",
                                       "mxfp8-quantized",
                                       NULL};
    return among(format, read) ? GW_OK : refuse(d, "compressed-tensors' format", format);
}

static gw_status read_schemes(gw_declared *d) {
    const char *key, *all = text_of(d->config, "format");
    json_t *group;
    GW_TRY(check_format(d, all));
    GW_TRY(check_format(d, text_of(json_object_get(d->config, "sparsity_config"), "format")));
    d->dense = is_since(text_of(d->config, "version"), 0, 18);
    json_object_foreach(json_object_get(d->config, "config_groups"), key, group) {
        const char *own = text_of(group, "format");
        GW_TRY(check_format(d, own));
        if (d->n_schemes == GW_MOST_SCHEMES) {
            return gw_fail(GW_E_LIMIT, d->where, "more than %d groups of quantization",
                           GW_MOST_SCHEMES);
        }
        d->scheme[d->n_schemes++] = (gw_scheme){.weights = json_object_get(group, "weights"),
                                                .targets = json_object_get(group, "targets"),
                                                .format = own[0] != '\0'   ? own
                                                          : all[0] != '\0' ? all
                                                                           : NULL};
    }
    return GW_OK;
}

/* One use of a rotation. What is done to weights has been done; queries and keys that both turn by
 * the same matrix have the scores that they had. */
static gw_status add_turned(gw_declared *d, const char *name, const json_t *group,
                            const json_t *use, int *scores) {
    const char *location = text_of(use, "location");
    int inverse = json_is_true(json_object_get(use, "inverse"));
    if (same_word(location, "weight_input") || same_word(location, "weight_output")) {
        return GW_OK;
    }
    if (same_word(location, "q_attn") || same_word(location, "k_cache")) {
        *scores += (same_word(location, "q_attn") ? 1 : 16) + (inverse ? 256 : 0);
        return GW_OK;
    }
    if (!same_word(location, "input")) {
        return refuse(d, "the location of a rotation (transform_config)", location);
    }
    if (d->n_turned == GW_MOST_TURNED) {
        return gw_fail(GW_E_LIMIT, d->where, "more than %d rotations", GW_MOST_TURNED);
    }
    d->turned[d->n_turned++] = (gw_turned){.name = name,
                                           .targets = json_object_get(use, "targets"),
                                           .ignore = json_object_get(use, "ignore"),
                                           .head_dim = gw_json_whole(group, "head_dim"),
                                           .inverse = inverse,
                                           .walsh = same_word(text_of(group, "type"), "hadamard")};
    return GW_OK;
}

static gw_status read_turned(gw_declared *d) {
    static const char *const types[] = {"hadamard", "random-hadamard", NULL};
    const char *key;
    json_t *group, *use;
    size_t i;
    const json_t *transforms = json_object_get(d->config, "transform_config");
    json_object_foreach(json_object_get(transforms, "config_groups"), key, group) {
        int scores = 0;
        const char *type = text_of(group, "type");
        if (!among(type, types)) {
            return refuse(d, "the rotation (transform_config)", type);
        }
        if (json_is_true(json_object_get(group, "randomize"))) {
            return refuse(d, "the rotation (transform_config) with randomize of", key);
        }
        json_array_foreach(json_object_get(group, "apply"), i, use) {
            GW_TRY(add_turned(d, key, group, use, &scores));
        }
        if (scores != 0 && scores != 17 && scores != 17 + 512) {
            return refuse(d, "the rotation of queries or keys alone (transform_config)", key);
        }
    }
    return GW_OK;
}

/* ---- targets -------------------------------------------------------------------------------- */

/* "re:EXPRESSION" from the beginning of the module's name on. */
static int matches(const char *expression, const char *module, size_t n) {
    gw_regex *regex = NULL;
    gw_regex_work *work = NULL;
    int found = 0;
    size_t start = 1, end = 0;
    if (gw_regex_new("targets", expression, 0, &regex) == GW_OK &&
        gw_regex_work_new(&work) == GW_OK) {
        (void)gw_regex_find(regex, work, module, n, 0, &found, &start, &end);
    }
    gw_regex_work_free(work);
    gw_regex_free(regex);
    return found && start == 0;
}

/* 2: one of the list names the module or matches its name, 1: names a class of modules. */
static int targeted(const json_t *list, const char *module, size_t n) {
    int best = 0;
    for (size_t i = 0; i < json_array_size(list) && best < 2; i++) {
        const char *t = json_string_value(json_array_get(list, i));
        if (t == NULL) {
            continue;
        }
        int named = strncmp(t, "re:", 3) == 0 ? matches(t + 3, module, n)
                                              : strlen(t) == n && memcmp(t, module, n) == 0;
        int class = strchr(t, '.') == NULL && isupper((unsigned char)t[0]);
        best = named ? 2 : class ? 1 : best;
    }
    return best;
}

const gw_scheme *gw_declared_scheme(const gw_declared *d, const char *module, size_t bytes) {
    const gw_scheme *by_class = NULL;
    for (int i = 0; i < d->n_schemes && d->n_schemes > 1; i++) {
        int how = targeted(d->scheme[i].targets, module, bytes);
        if (how == 2) {
            return &d->scheme[i];
        }
        by_class = how == 1 && by_class == NULL ? &d->scheme[i] : by_class;
    }
    return d->n_schemes == 1 ? &d->scheme[0] : by_class;
}

const gw_turned *gw_declared_turned(const gw_declared *d, const char *module, size_t bytes) {
    for (int i = 0; i < d->n_turned; i++) {
        if (targeted(d->turned[i].targets, module, bytes) > 0 &&
            targeted(d->turned[i].ignore, module, bytes) < 2) {
            return &d->turned[i];
        }
    }
    return NULL;
}

/* ---- all ------------------------------------------------------------------------------------ */

gw_status gw_declared_read(gw_checkpoint *c, gw_declared *out, json_t **apart) {
    static const char *const files[] = {"quantize_config.json", "quant_config.json"};
    *out = (gw_declared){.where = c->where, .config = config_of(c)};
    *apart = NULL;
    for (size_t i = 0; i < 2 && out->config == NULL && c->config != NULL; i++) {
        GW_TRY(gw_hf_json(c, files[i], apart));
        out->config = *apart;
    }
    if (out->config == NULL) {
        return GW_OK;
    }
    gw_status status = read_gptq(out);
    status = status == GW_OK ? read_modelopt(out) : status;
    if (strstr(text_of(out->config, "quant_method"), "compressed-tensors") != NULL ||
        json_object_get(out->config, "config_groups") != NULL) {
        status = status == GW_OK ? read_schemes(out) : status;
        status = status == GW_OK ? read_turned(out) : status;
    }
    if (status != GW_OK) {
        json_decref(*apart);
        *apart = NULL;
    }
    return status;
}
