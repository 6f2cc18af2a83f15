/* core/model/sentence_modules.c - the folders of modules that modules.json names: their settings
 * and weights; see sentence.h. What is not understood is refused by its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/model/checkpoint.h"
#include "core/model/sentence_act.h"

enum { PATH_BYTES = 4096, WIDEST = 1 << 20 };

static gw_status join(const char *folder, const char *part, const char *name, char *out) {
    int n = part[0] != '\0' ? snprintf(out, PATH_BYTES, "%s/%s/%s", folder, part, name)
                            : snprintf(out, PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < PATH_BYTES
               ? GW_OK
               : gw_fail(GW_E_LIMIT, folder, "a path in it is longer than %d bytes", PATH_BYTES);
}

gw_status gw_sentence_json(const char *folder, const char *part, const char *name, json_t **out) {
    char path[PATH_BYTES];
    *out = NULL;
    GW_TRY(join(folder, part, name, path));
    if (gw_path_look(path) == GW_PATH_NONE) {
        return GW_OK;
    }
    gw_file file;
    GW_TRY(gw_file_open(path, path, &file));
    gw_status status = gw_json_parse_settings(
        path, file.data != NULL ? (const char *)file.data : "", (size_t)file.size, out);
    gw_file_close(&file);
    return status;
}

gw_status gw_sentence_settings(const char *folder, const char *part, const char *name,
                               json_t **out) {
    GW_TRY(gw_sentence_json(folder, part, name, out));
    if (*out != NULL && !json_is_object(*out)) {
        char path[PATH_BYTES];
        json_decref(*out);
        *out = NULL;
        GW_TRY(join(folder, part, name, path));
        return gw_fail(GW_E_TYPE, path, "must be a JSON object");
    }
    return GW_OK;
}

/* The module's config.json; where: its path for messages. */
static gw_status read_config(const char *folder, const char *part, char where[PATH_BYTES],
                             json_t **out) {
    GW_TRY(join(folder, part, "config.json", where));
    GW_TRY(gw_sentence_json(folder, part, "config.json", out));
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return gw_fail(GW_E_METADATA, where, "is missing, or no JSON object");
    }
    return GW_OK;
}

/* ---- weights -------------------------------------------------------------------------------- */

/* A tensor as floats; rows 0: of any number, which *rows becomes; cols 0: it has one axis. */
static gw_status read_values(const gw_checkpoint *c, const char *path, const char *name,
                             int64_t *rows, int64_t *cols, int axes, float **out) {
    const gw_stored *t = gw_checkpoint_find(c, name);
    const gw_format *f = t != NULL && t->fmt < GW_FMT_ACT8 ? gw_format_of(t->fmt) : NULL;
    int fits = t != NULL && f != NULL && f->is_float && t->n_dim == axes && t->dim[0] > 0 &&
               (*rows == 0 || t->dim[0] == *rows) &&
               (axes == 1 || (t->dim[1] > 0 && (*cols == 0 || t->dim[1] == *cols)));
    if (!fits) {
        return gw_fail(GW_E_METADATA, path, "tensor %s is missing, or not of floats [%lld%s%.0lld]",
                       name, (long long)*rows, axes > 1 ? ", " : "", (long long)*cols);
    }
    *rows = t->dim[0];
    *cols = axes > 1 ? t->dim[1] : 1;
    size_t n;
    if (__builtin_mul_overflow((size_t)*rows, (size_t)*cols, &n) || n > SIZE_MAX / sizeof **out) {
        return gw_fail(GW_E_LIMIT, path, "tensor %s is too large", name);
    }
    unsigned char *raw = malloc(t->bytes + 1);
    *out = malloc(n * sizeof **out);
    gw_status status = raw != NULL && *out != NULL
                           ? gw_stored_read(t, 0, t->bytes, raw)
                           : gw_fail(GW_E_NOMEM, path, "no memory for %zu values", n);
    if (status == GW_OK) {
        f->decode(*out, raw, n);
    }
    free(raw);
    return status;
}

static gw_status read_matrix(const gw_checkpoint *c, const char *path, const char *name,
                             int64_t rows, int64_t cols, float **out) {
    return read_values(c, path, name, &rows, &cols, 2, out);
}

static gw_status read_vector(const gw_checkpoint *c, const char *path, const char *name, int64_t n,
                             float **out) {
    int64_t one = 0;
    return read_values(c, path, name, &n, &one, 1, out);
}

static gw_status open_weights(const char *folder, const char *part, char path[PATH_BYTES],
                              gw_checkpoint **c) {
    static const char *const names[] = {"model.safetensors", "pytorch_model.bin"};
    for (int i = 0; i < 2; i++) {
        GW_TRY(join(folder, part, names[i], path));
        if (gw_path_look(path) != GW_PATH_NONE) {
            break;
        }
    }
    return gw_checkpoint_open_weights(path, c);
}

/* ---- pooling -------------------------------------------------------------------------------- */

/* In the order in which the library puts the vectors of several modes. */
static const struct {
    const char *flag, *word;
} modes[GW_POOL_MODES] = {
    [GW_POOL_CLS] = {"pooling_mode_cls_token", "cls"},
    [GW_POOL_MAX] = {"pooling_mode_max_tokens", "max"},
    [GW_POOL_MEAN] = {"pooling_mode_mean_tokens", "mean"},
    [GW_POOL_MEAN_SQRT] = {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
    [GW_POOL_WEIGHTED] = {"pooling_mode_weightedmean_tokens", "weightedmean"},
    [GW_POOL_LAST] = {"pooling_mode_lasttoken", "lasttoken"}};

static gw_status add_mode(const char *path, const char *word, gw_module *m) {
    int mode = 0;
    while (mode < GW_POOL_MODES && (word == NULL || strcmp(word, modes[mode].word) != 0)) {
        mode++;
    }
    if (mode == GW_POOL_MODES || m->n_modes == GW_POOL_MODES) {
        return gw_fail(GW_E_UNSUPPORTED, path, "pools by \"%.60s\", which is not known",
                       word != NULL ? word : "");
    }
    m->mode[m->n_modes++] = (gw_pooling_mode)mode;
    return GW_OK;
}

static gw_status read_modes(const char *path, const json_t *root, gw_module *m) {
    const json_t *mode = json_object_get(root, "pooling_mode");
    if (json_is_array(mode)) {
        for (size_t i = 0; i < json_array_size(mode); i++) {
            GW_TRY(add_mode(path, json_string_value(json_array_get(mode, i)), m));
        }
    } else if (mode != NULL) {
        GW_TRY(add_mode(path, json_string_value(mode), m));
    }
    for (int i = 0; i < GW_POOL_MODES && mode == NULL; i++) {
        int on = 0;
        GW_TRY(gw_json_bool(path, root, modes[i].flag, &on));
        GW_TRY(on ? add_mode(path, modes[i].word, m) : GW_OK);
    }
    if (m->n_modes == 0) { /* the library's own default */
        m->mode[m->n_modes++] = GW_POOL_MEAN;
    }
    return GW_OK;
}

static gw_status read_pooling(const char *folder, const char *part, gw_sentence *s, gw_module *m) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    int prompt = 1;
    GW_TRY(read_config(folder, part, path, &root));
    gw_status status = gw_json_bool(path, root, "include_prompt", &prompt);
    status = status == GW_OK ? read_modes(path, root, m) : status;
    json_decref(root);
    s->skips_prompt = !prompt;
    return status;
}

/* ---- dense layers and norms ----------------------------------------------------------------- */

static gw_status read_act(const char *path, const char *name, int *act) {
    static const char *const names[] = {
        [GW_SENTENCE_IDENTITY] = "Identity", [GW_SENTENCE_TANH] = "Tanh",
        [GW_SENTENCE_RELU] = "ReLU",         [GW_SENTENCE_GELU] = "GELU",
        [GW_SENTENCE_SILU] = "SiLU",         [GW_SENTENCE_SIGMOID] = "Sigmoid",
        [GW_SENTENCE_LEAKY] = "LeakyReLU",   [GW_SENTENCE_SOFTPLUS] = "Softplus"};
    const char *dot = strrchr(name, '.'), *class = dot != NULL ? dot + 1 : name;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(class, names[i]) == 0 && strncmp(name, "torch.", 6) == 0) {
            *act = (int)i;
            return GW_OK;
        }
    }
    return gw_fail(GW_E_UNSUPPORTED, path, "the activation %.80s is not known", name);
}

static gw_status read_dense_weights(const char *folder, const char *part, int bias, gw_dense *d) {
    char path[PATH_BYTES];
    gw_checkpoint *c = NULL;
    gw_status status;
    GW_TRY(open_weights(folder, part, path, &c));
    GW_TRY_DONE(read_matrix(c, path, "linear.weight", d->out, d->in, &d->weight));
    GW_TRY_DONE(bias ? read_vector(c, path, "linear.bias", d->out, &d->bias) : GW_OK);
    if (d->residual && d->in != d->out) {
        GW_TRY_DONE(read_matrix(c, path, "residual.weight", d->out, d->in, &d->straight));
    }
done:
    gw_checkpoint_free(c);
    return status;
}

/* Does the module read and write what stands at its place: rows before the pooling, the vector
 * after it? */
static gw_status check_names(const char *path, const json_t *root, const gw_sentence *s) {
    const char *expected = s->at_pooling < 0 ? "token_embeddings" : "sentence_embedding";
    const char *from = s->named_late ? expected : "sentence_embedding", *to = NULL;
    GW_TRY(gw_json_text(path, root, "module_input_name", &from));
    if (json_is_string(json_object_get(root, "module_output_name"))) {
        GW_TRY(gw_json_text(path, root, "module_output_name", &to));
    }
    to = to != NULL ? to : from;
    return strcmp(from, expected) == 0 && strcmp(to, expected) == 0
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, path,
                         "makes \"%.60s\" of \"%.60s\"; at this place only \"%s\" is known", to,
                         from, expected);
}

static gw_status read_dense(const char *folder, const char *part, const gw_sentence *s,
                            gw_dense *d) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    int64_t in = 0, out = 0;
    int bias = 1;
    const char *act = "torch.nn.modules.activation.Tanh";
    gw_status status;
    GW_TRY(read_config(folder, part, path, &root));
    GW_TRY_DONE(gw_json_int(path, root, "in_features", &in));
    GW_TRY_DONE(gw_json_int(path, root, "out_features", &out));
    GW_TRY_DONE(gw_json_bool(path, root, "bias", &bias));
    GW_TRY_DONE(gw_json_bool(path, root, "use_residual", &d->residual));
    GW_TRY_DONE(gw_json_text(path, root, "activation_function", &act));
    GW_TRY_DONE(check_names(path, root, s));
    GW_TRY_DONE(read_act(path, act, &d->act));
    if (in < 1 || out < 1 || in > WIDEST || out > WIDEST) {
        GW_TRY_DONE(gw_fail(GW_E_METADATA, path, "a dense layer of %lld to %lld values",
                            (long long)in, (long long)out));
    }
    d->in = (int32_t)in;
    d->out = (int32_t)out;
    status = read_dense_weights(folder, part, bias, d);
done:
    json_decref(root);
    return status;
}

static gw_status read_layer_norm(const char *folder, const char *part, gw_dense *d) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    gw_checkpoint *c = NULL;
    int64_t n = 0;
    GW_TRY(read_config(folder, part, path, &root));
    gw_status status = gw_json_int(path, root, "dimension", &n);
    json_decref(root);
    GW_TRY(status);
    if (n < 1 || n > WIDEST) {
        return gw_fail(GW_E_METADATA, path, "\"dimension\" is %lld", (long long)n);
    }
    d->in = d->out = (int32_t)n;
    GW_TRY(open_weights(folder, part, path, &c));
    GW_TRY_DONE(read_vector(c, path, "norm.weight", n, &d->weight));
    status = read_vector(c, path, "norm.bias", n, &d->bias);
done:
    gw_checkpoint_free(c);
    return status;
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Rows that tokens share, and factors of rows (model2vec), put into the table itself. */
static gw_status fold_table(const gw_checkpoint *c, const char *path, gw_dense *d) {
    const gw_stored *map = gw_checkpoint_find(c, "mapping");
    if (map != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, path,
                       "a table whose rows tokens share (\"mapping\") is not known");
    }
    if (gw_checkpoint_find(c, "weights") == NULL) {
        return GW_OK;
    }
    float *factors = NULL;
    GW_TRY(read_vector(c, path, "weights", d->in, &factors));
    for (size_t i = 0; i < (size_t)d->in * (size_t)d->out; i++) {
        d->weight[i] *= factors[i / (size_t)d->out];
    }
    free(factors);
    return GW_OK;
}

static gw_status read_table(const char *folder, const char *part, gw_dense *d) {
    char path[PATH_BYTES];
    gw_checkpoint *c = NULL;
    int64_t rows = 0, cols = 0;
    gw_status status;
    GW_TRY(open_weights(folder, part, path, &c));
    int own = gw_checkpoint_find(c, "embedding.weight") != NULL;
    GW_TRY_DONE(
        read_values(c, path, own ? "embedding.weight" : "embeddings", &rows, &cols, 2, &d->weight));
    if (rows > INT32_MAX || cols > WIDEST) {
        GW_TRY_DONE(gw_fail(GW_E_LIMIT, path, "a table of %lld rows", (long long)rows));
    }
    d->in = (int32_t)rows;
    d->out = (int32_t)cols;
    status = own ? GW_OK : fold_table(c, path, d);
done:
    gw_checkpoint_free(c);
    return status;
}

/* ---- scores of logits ------------------------------------------------------------------------ */

static gw_status read_judge(const char *path, const json_t *root, const char *name,
                            gw_sentence *s) {
    int64_t id = -1;
    GW_TRY(gw_json_int(path, root, name, &id));
    if (id < 0 || id > INT32_MAX) {
        return gw_fail(GW_E_METADATA, path, "\"%s\" must be the number of a token", name);
    }
    s->judge[s->n_judges++] = (int32_t)id;
    return GW_OK;
}

static gw_status read_logit_score(const char *folder, const char *part, gw_sentence *s) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    const char *from = "causal_logits";
    GW_TRY(read_config(folder, part, path, &root));
    gw_status status = gw_json_text(path, root, "module_input_name", &from);
    if (status == GW_OK && strcmp(from, "causal_logits") != 0) {
        status = gw_fail(GW_E_UNSUPPORTED, path,
                         "scores \"%.60s\"; only \"causal_logits\" are known", from);
    }
    status = status == GW_OK ? read_judge(path, root, "true_token_id", s) : status;
    if (status == GW_OK && gw_json_has(root, "false_token_id")) {
        status = read_judge(path, root, "false_token_id", s);
    }
    json_decref(root);
    return status;
}

/* ---- by class ------------------------------------------------------------------------------- */

static int is(const char *name, const char *a) { return strcmp(name, a) == 0; }

/* Versions before 0.3 had a class for each family. */
int gw_module_is_transformer(const char *class) {
    static const char *const names[] = {"Transformer", "BERT",  "RoBERTa",   "DistilBERT",
                                        "ALBERT",      "XLNet", "CamemBERT", "XLMRoBERTa"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is(class, names[i])) {
            return 1;
        }
    }
    return 0;
}

static gw_status read_normalize(const char *folder, const char *part, const gw_sentence *s) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    if (part[0] == '\0') { /* config.json there is the model's */
        return GW_OK;
    }
    GW_TRY(join(folder, part, "config.json", path));
    GW_TRY(gw_sentence_settings(folder, part, "config.json", &root));
    gw_status status =
        json_object_get(root, "module_input_name") != NULL ? check_names(path, root, s) : GW_OK;
    json_decref(root);
    return status;
}

gw_status gw_module_read(const char *folder, const char *where, const char *class, const char *part,
                         gw_sentence *s) {
    gw_module *m = &s->module[s->n_modules];
    if (gw_module_is_transformer(class) || is(class, "Dropout")) {
        return GW_OK; /* dropout is for training */
    }
    if (s->n_modules == GW_MODULES_MOST) {
        return gw_fail(GW_E_LIMIT, where, "names more than %d modules", GW_MODULES_MOST);
    }
    gw_status status;
    if (is(class, "LogitScore") && s->n_modules == 0 && s->n_judges == 0) {
        return read_logit_score(folder, part, s);
    }
    if (s->n_judges > 0) {
        return gw_fail(GW_E_UNSUPPORTED, where, "module %.60s is not known after LogitScore",
                       class);
    }
    if (is(class, "Pooling") && s->at_pooling < 0) {
        m->kind = GW_MODULE_POOLING;
        status = read_pooling(folder, part, s, m);
        s->at_pooling = s->n_modules;
    } else if (is(class, "Dense")) {
        m->kind = GW_MODULE_DENSE;
        status = read_dense(folder, part, s, &m->dense);
    } else if (is(class, "LayerNorm") && s->at_pooling >= 0) {
        m->kind = GW_MODULE_LAYER_NORM;
        status = read_layer_norm(folder, part, &m->dense);
    } else if (is(class, "Normalize")) {
        m->kind = GW_MODULE_NORMALIZE;
        status = read_normalize(folder, part, s);
    } else if (is(class, "StaticEmbedding") && s->n_modules == 0) {
        m->kind = GW_MODULE_STATIC;
        status = read_table(folder, part, &m->dense);
        s->at_pooling = 0;
        s->tabled = 1;
    } else {
        return gw_fail(GW_E_UNSUPPORTED, where, "module %.60s is not known at its place", class);
    }
    s->n_modules++; /* what it has so far is freed with it */
    return status;
}
