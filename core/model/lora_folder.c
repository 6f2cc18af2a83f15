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

/* ---- parameters ----------------------------------------------------------------------------- */

/* target_parameters: MODULE.NAME each. PEFT wraps a module once for each of its parameters that is
 * changed, in the order in which the module has them, so that the last one's factors stand outside
 * and each one before it a ".base_layer" further inside. */
static const char wrapped[] = ".base_layer";
static const char *const in_order[] = {"gate_up_proj", "down_proj"};
enum { IN_ORDER = sizeof in_order / sizeof in_order[0] };

typedef struct settings_of_parameters {
    const json_t *targets;
    gw_lora_square square;
} settings_of_parameters;

/* Is the module [n] the one that a target names in front of its parameter, which is returned? */
static const char *parameter_of(const char *target, const char *module, size_t n) {
    const char *dot = strrchr(target, '.');
    size_t front = dot != NULL ? (size_t)(dot - target) : 0;
    int ends = front <= n && memcmp(module + n - front, target, front) == 0 &&
               (front == 0 || front == n || module[n - front - 1] == '.');
    return ends ? dot != NULL ? dot + 1 : target : NULL;
}

/* Of a module [*n] the parameter that its factors change, and the module's own length; "": it is a
 * linear layer. */
static gw_status find_parameter(const gw_lora *l, const settings_of_parameters *of,
                                const char *module, size_t *n, const char **out) {
    const char *alone = NULL, *found[IN_ORDER] = {NULL};
    size_t own = *n, tail = sizeof wrapped - 1, depth = 0, count = 0, others = 0;
    while (own > tail && memcmp(module + own - tail, wrapped, tail) == 0) {
        own -= tail;
        depth++;
    }
    for (size_t i = 0; i < json_array_size(of->targets); i++) {
        const char *target = json_string_value(json_array_get(of->targets, i));
        const char *name = target != NULL ? parameter_of(target, module, own) : NULL;
        size_t k = 0;
        while (name != NULL && k < IN_ORDER && strcmp(name, in_order[k]) != 0) {
            k++;
        }
        if (name != NULL && k < IN_ORDER) {
            count += found[k] == NULL;
            found[k] = name;
        } else if (name != NULL && (alone == NULL || strcmp(alone, name) != 0)) {
            alone = name;
            others++;
        }
    }
    *out = "";
    if (count + others == 0) {
        return GW_OK;
    }
    if (depth >= count + others || (others > 0 && count + others > 1)) {
        return gw_fail(GW_E_UNSUPPORTED, l->path,
                       "target_parameters: which parameter of %.*s a factor changes is not known; "
                       "of several only %s and %s are run",
                       (int)(own < 160 ? own : 160), module, in_order[0], in_order[1]);
    }
    size_t at = 0;
    for (size_t left = count - 1 - depth; others == 0; at++) {
        if (found[at] != NULL && left-- == 0) {
            break;
        }
    }
    *out = others > 0 ? alone : found[at];
    *n = own;
    return GW_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* The same of a module's parameter, by the name that it has in the model. */
static gw_status add_parameter(gw_lora *l, const gw_stored *t, const char *module, size_t n,
                               const char *name, int is_b, gw_lora_square square) {
    char full[300];
    size_t at = 0;
    int is_weight = strcmp(name, "weight") == 0;
    int used = snprintf(full, sizeof full, "%.*s%s%s", (int)(n < 200 ? n : 200), module,
                        is_weight ? "" : ".", is_weight ? "" : name);
    if (n >= 200 || used < 0 || (size_t)used >= sizeof full) {
        return gw_fail(GW_E_LIMIT, l->path, "tensor %.80s has a name that is too long", t->name);
    }
    GW_TRY(gw_lora_add(l, t, full, (size_t)used, is_b));
    (void)gw_map_find(l->names, full, (size_t)used, &at);
    l->pair[at].parameter = 1;
    l->pair[at].square = square;
    return GW_OK;
}

/* base_model.model.MODULE.lora_A.weight, by some programs with the adapter's name after lora_A. */
static gw_status add_tensor(gw_lora *l, const gw_stored *t, const settings_of_parameters *of) {
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
    size_t n = (size_t)(mark - module);
    const char *parameter = "";
    GW_TRY(find_parameter(l, of, module, &n, &parameter));
    return parameter[0] != '\0' ? add_parameter(l, t, module, n, parameter, mark == b, of->square)
                                : gw_lora_add(l, t, module, n, mark == b);
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
        if (p->parameter) {
            int whole = rank == floor(rank) && rank <= GW_LORA_RANK_MOST;
            p->rank = whole ? (int)rank : GW_LORA_RANK_MOST + 1; /* refused by its number */
        } else if (p->a != NULL && (double)p->a->dim[p->a->n_dim - 2] != rank) {
            return gw_fail(GW_E_METADATA, where,
                           "says rank %g of layer %.160s, whose tensors have rank %lld", rank,
                           p->module, (long long)p->a->dim[p->a->n_dim - 2]);
        }
        p->scale = (float)(stabilized ? own / sqrt(rank) : own / rank);
    }
    return GW_OK;
}

/* 0.18.0 and later say which version they are. */
static gw_status read_parameters(const char *where, const json_t *root,
                                 settings_of_parameters *out) {
    const char *version = "";
    json_t *list = NULL;
    int number[3] = {0, 0, 0};
    GW_TRY(gw_json_array(where, root, "target_parameters", &list));
    GW_TRY(gw_json_text(where, root, "peft_version", &version));
    (void)sscanf(version, "%3d.%3d.%3d", &number[0], &number[1], &number[2]);
    int all = number[0] * 1000000 + number[1] * 1000 + number[2];
    out->targets = list;
    out->square = all >= 19001   ? GW_LORA_SQUARE_A
                  : all == 19000 ? GW_LORA_SQUARE_B
                                 : GW_LORA_SQUARE_BY_STORED;
    return GW_OK;
}

static gw_status read_all(gw_lora *l, const char *where, const json_t *root, patterns *ranks,
                          patterns *alphas) {
    settings_of_parameters of = {NULL, GW_LORA_SQUARE_A};
    GW_TRY(check_settings(where, root));
    GW_TRY(read_parameters(where, root, &of));
    GW_TRY(read_patterns(where, root, "rank_pattern", ranks));
    GW_TRY(read_patterns(where, root, "alpha_pattern", alphas));
    GW_TRY(open_tensors(l));
    GW_TRY(gw_lora_room(l, gw_checkpoint_count(l->tensors)));
    for (size_t i = 0; i < gw_checkpoint_count(l->tensors); i++) {
        GW_TRY(add_tensor(l, gw_checkpoint_at(l->tensors, i), &of));
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
