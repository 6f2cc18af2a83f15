/* core/model/lora_folder.c - reads the folder of an adapter as PEFT saves it: adapter_config.json
 * and the tensors next to it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/model/lora_parts.h"
#include "core/model/sentence.h"
#include "core/text/regex.h"

static const char settings[] = "adapter_config.json";

/* ---- settings ------------------------------------------------------------------------------- */

/* Absent, null, false, "", [] and {}. */
static int says_nothing(const json_t *v) {
    return v == NULL || json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* What makes more of a layer than a sum of products, by the member that says so. */
static gw_status refuse_others(const char *where, const json_t *root) {
    static const struct {
        const char *key, *what;
    } rows[] = {{"use_dora", "DoRA scales whole rows of the model's weights"},
                {"modules_to_save", "whole layers are saved in place of the model's"},
                {"lora_bias", "biases are part of the adapter"},
                {"target_parameters", "parameters that are no linear layers are changed (experts)"},
                {"trainable_token_indices", "rows of the embedding are changed"},
                {"layer_replication", "layers of the model are repeated"},
                {"use_qalora", "inputs are pooled (QALoRA)"},
                {"use_bdlora", "matrices are block-diagonal"},
                {"alora_invocation_tokens", "it changes only what stands after its tokens (aLoRA)"},
                {"arrow_config", "adapters are chosen token by token (Arrow)"},
                {"velora_config", "inputs are projected (VeLoRA)"},
                {"monteclora_config", "factors are drawn at random"},
                {"kasa_config", "singular values of the weights are changed (KaSA)"},
                {"megatron_config", "layers are those of Megatron"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!says_nothing(json_object_get(root, rows[i].key))) {
            return gw_fail(GW_E_UNSUPPORTED, where,
                           "%s: %s; such adapters are not run: merge it with PEFT and load the "
                           "merged model",
                           rows[i].key, rows[i].what);
        }
    }
    return GW_OK;
}

/* Initialisations that change the model's own weights: the adapter fits the changed ones alone. */
static gw_status refuse_changed(const char *where, const json_t *root) {
    static const char *const changing[] = {"pissa", "olora", "loftq", "corda", "lora_ga"};
    const json_t *v = json_object_get(root, "init_lora_weights");
    for (size_t i = 0; json_is_string(v) && i < sizeof changing / sizeof changing[0]; i++) {
        if (gw_text_starts(json_string_value(v), changing[i])) {
            return gw_fail(GW_E_UNSUPPORTED, where,
                           "init_lora_weights is '%.40s', which changed the model's own weights: "
                           "save the adapter with path_initial_model_for_weight_conversion",
                           json_string_value(v));
        }
    }
    return GW_OK;
}

static gw_status check_settings(const char *where, const json_t *root) {
    const char *type = "", *bias = "none";
    GW_TRY(gw_json_text(where, root, "peft_type", &type));
    GW_TRY(gw_json_text(where, root, "bias", &bias));
    if (strcmp(type, "LORA") != 0) {
        return gw_fail(GW_E_UNSUPPORTED, where, "peft_type is '%.40s'; expected LORA", type);
    }
    if (strcmp(bias, "none") != 0) {
        return gw_fail(GW_E_UNSUPPORTED, where,
                       "bias is '%.40s': adapters that change biases are not run; expected none",
                       bias);
    }
    GW_TRY(refuse_others(where, root));
    return refuse_changed(where, root);
}

/* ---- patterns ------------------------------------------------------------------------------- */

/* rank_pattern, alpha_pattern: expressions for the end of a module's name, and a number each. */
typedef struct pattern {
    gw_regex *regex;
    double value;
} pattern;
typedef struct patterns {
    pattern *at;
    size_t n;
    gw_regex_work *work;
} patterns;

static void free_patterns(patterns *p) {
    for (size_t i = 0; i < p->n; i++) {
        gw_regex_free(p->at[i].regex);
    }
    gw_regex_work_free(p->work);
    free(p->at);
}

static gw_status add_pattern(const char *where, const char *key, const json_t *value,
                             pattern *out) {
    char text[600];
    if (!json_is_number(value) || !(json_number_value(value) > 0.0) || strlen(key) > 512) {
        return gw_fail(GW_E_METADATA, where, "the pattern '%.80s' has no number above 0", key);
    }
    snprintf(text, sizeof text, "^(?:.*\\.)?(?:%s)$", key);
    out->value = json_number_value(value);
    return gw_regex_new(where, text, 0, &out->regex);
}

static gw_status read_patterns(const char *where, const json_t *root, const char *key,
                               patterns *out) {
    enum { MOST = 4096 };
    json_t *object = NULL, *value;
    const char *name;
    GW_TRY(gw_json_object(where, root, key, &object));
    size_t n = object != NULL ? json_object_size(object) : 0;
    if (n > MOST) {
        return gw_fail(GW_E_LIMIT, where, "%s has %zu entries, at most %d", key, n, (int)MOST);
    }
    out->at = calloc(n + 1, sizeof *out->at);
    if (out->at == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for %zu patterns", n);
    }
    GW_TRY(gw_regex_work_new(&out->work));
    json_object_foreach(object, name, value) {
        GW_TRY(add_pattern(where, name, value, &out->at[out->n]));
        out->n++;
    }
    return GW_OK;
}

/* The first pattern that fits counts, as in PEFT. */
static gw_status look_up(const patterns *p, const char *module, double *value) {
    for (size_t i = 0; i < p->n; i++) {
        size_t start, end;
        int found = 0;
        GW_TRY(gw_regex_find(p->at[i].regex, p->work, module, strlen(module), 0, &found, &start,
                             &end));
        if (found) {
            *value = p->at[i].value;
            return GW_OK;
        }
    }
    return GW_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* base_model.model.MODULE.lora_A.weight, by some programs with the adapter's name after lora_A. */
static gw_status add_tensor(gw_lora *l, const gw_stored *t) {
    static const char base[] = "base_model.model.", weight[] = ".weight";
    const char *name = t->name, *a = strstr(name, ".lora_A."), *b = strstr(name, ".lora_B.");
    const char *mark = a != NULL ? a : b;
    if (mark == NULL || !gw_text_ends(name, weight)) {
        return gw_fail(GW_E_UNSUPPORTED, l->path,
                       "tensor %s is no matrix of a linear layer's LoRA (NAME.lora_A.weight, "
                       "NAME.lora_B.weight)",
                       name);
    }
    const char *module = gw_text_starts(name, base) ? name + sizeof base - 1 : name;
    if (mark <= module) {
        return gw_fail(GW_E_METADATA, l->path, "tensor %s names no layer", name);
    }
    return gw_lora_add(l, t, module, (size_t)(mark - module), mark == b);
}

static gw_status open_tensors(gw_lora *l) {
    static const char *const names[] = {"adapter_model.safetensors", "adapter_model.bin"};
    char path[4096];
    for (size_t i = 0; i < 2; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", l->path, names[i]);
        if (n > 0 && (size_t)n < sizeof path && gw_path_look(path) == GW_PATH_FILE) {
            return gw_checkpoint_open_weights(path, &l->tensors);
        }
    }
    return gw_fail(GW_E_IO, l->path, "holds neither %s nor %s", names[0], names[1]);
}

static gw_status read_scales(gw_lora *l, const char *where, const json_t *root,
                             const patterns *ranks, const patterns *alphas) {
    double r = 8.0, alpha = 8.0; /* PEFT's own defaults */
    int stabilized = 0;
    GW_TRY(gw_json_real(where, root, "r", &r));
    GW_TRY(gw_json_real(where, root, "lora_alpha", &alpha));
    GW_TRY(gw_json_bool(where, root, "use_rslora", &stabilized));
    for (size_t i = 0; i < l->n; i++) {
        gw_lora_pair *p = &l->pair[i];
        double rank = r, own = alpha;
        GW_TRY(look_up(ranks, p->module, &rank));
        GW_TRY(look_up(alphas, p->module, &own));
        if (p->a != NULL && (double)p->a->dim[0] != rank) {
            return gw_fail(GW_E_METADATA, where,
                           "says rank %g of layer %.160s, whose tensors have rank %lld", rank,
                           p->module, (long long)p->a->dim[0]);
        }
        p->scale = (float)(stabilized ? own / sqrt(rank) : own / rank);
    }
    return GW_OK;
}

static gw_status read_all(gw_lora *l, const char *where, const json_t *root, patterns *ranks,
                          patterns *alphas) {
    GW_TRY(check_settings(where, root));
    GW_TRY(read_patterns(where, root, "rank_pattern", ranks));
    GW_TRY(read_patterns(where, root, "alpha_pattern", alphas));
    GW_TRY(open_tensors(l));
    GW_TRY(gw_lora_room(l, gw_checkpoint_count(l->tensors)));
    for (size_t i = 0; i < gw_checkpoint_count(l->tensors); i++) {
        GW_TRY(add_tensor(l, gw_checkpoint_at(l->tensors, i)));
    }
    return read_scales(l, where, root, ranks, alphas);
}

gw_status gw_lora_read_folder(gw_lora *l) {
    char where[4200];
    json_t *root = NULL;
    patterns ranks = {0}, alphas = {0};
    snprintf(where, sizeof where, "%.4100s/%s", l->path, settings);
    GW_TRY(gw_sentence_json(l->path, "", settings, &root));
    gw_status status =
        json_is_object(root)
            ? read_all(l, where, root, &ranks, &alphas)
            : gw_fail(GW_E_METADATA, where, "is missing, or no JSON object: this is no adapter");
    free_patterns(&ranks);
    free_patterns(&alphas);
    json_decref(root);
    return status;
}
