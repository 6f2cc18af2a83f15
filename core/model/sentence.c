/* core/model/sentence.c - reads modules.json and what it names. */
#include "core/model/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/model/checkpoint.h"
#include "core/tensor/act.h"

enum { PATH_BYTES = 4096 };

static gw_status join(const char *folder, const char *part, const char *name, char *out) {
    int n = part[0] != '\0' ? snprintf(out, PATH_BYTES, "%s/%s/%s", folder, part, name)
                            : snprintf(out, PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < PATH_BYTES
               ? GW_OK
               : gw_fail(GW_E_LIMIT, folder, "a path in it is longer than %d bytes", PATH_BYTES);
}

/* *out NULL: there is no such file. */
static gw_status read_json(const char *path, json_t **out) {
    *out = NULL;
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

/* ---- pooling -------------------------------------------------------------------------------- */

static const struct {
    const char *flag, *word;
    gw_pooling pooling;
} ways[] = {{"pooling_mode_cls_token", "cls", GW_POOLING_CLS},
            {"pooling_mode_mean_tokens", "mean", GW_POOLING_MEAN},
            {"pooling_mode_lasttoken", "lasttoken", GW_POOLING_LAST},
            {"pooling_mode_max_tokens", "max", GW_POOLING_MODEL},
            {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", GW_POOLING_MODEL},
            {"pooling_mode_weightedmean_tokens", "weightedmean", GW_POOLING_MODEL}};
enum { WAYS = sizeof ways / sizeof ways[0] };

static gw_status take_way(const char *path, int way, gw_sentence *s) {
    if (way >= WAYS || ways[way].pooling == GW_POOLING_MODEL || s->pooling != GW_POOLING_MODEL) {
        return gw_fail(GW_E_UNSUPPORTED, path,
                       "pools by %s; cls, mean and last token are known, one of them at a time",
                       way < WAYS ? ways[way].word : "another rule");
    }
    s->pooling = ways[way].pooling;
    return GW_OK;
}

static gw_status pool_by_word(const char *path, const char *word, gw_sentence *s) {
    int way = 0;
    while (way < WAYS && (word == NULL || strcmp(word, ways[way].word) != 0)) {
        way++;
    }
    return take_way(path, way, s);
}

static gw_status read_pooling(const char *folder, const char *part, gw_sentence *s) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    gw_status status;
    GW_TRY(join(folder, part, "config.json", path));
    GW_TRY(read_json(path, &root));
    if (!json_is_object(root)) {
        status = gw_fail(GW_E_METADATA, path, "is missing, or no JSON object");
        goto done;
    }
    int prompt = 1;
    const json_t *mode = json_object_get(root, "pooling_mode");
    GW_TRY_DONE(gw_json_bool(path, root, "include_prompt", &prompt));
    if (!prompt) {
        status = gw_fail(GW_E_UNSUPPORTED, path,
                         "leaves the prompt out of the mean (include_prompt), which is not known");
        goto done;
    }
    if (mode != NULL && json_is_array(mode)) {
        for (size_t i = 0; i < json_array_size(mode); i++) {
            GW_TRY_DONE(pool_by_word(path, json_string_value(json_array_get(mode, i)), s));
        }
    } else if (mode != NULL) {
        GW_TRY_DONE(pool_by_word(path, json_string_value(mode), s));
    }
    for (int way = 0; way < WAYS && mode == NULL; way++) {
        int on = 0;
        GW_TRY_DONE(gw_json_bool(path, root, ways[way].flag, &on));
        GW_TRY_DONE(on ? take_way(path, way, s) : GW_OK);
    }
    status = s->pooling != GW_POOLING_MODEL ? GW_OK
                                            : gw_fail(GW_E_METADATA, path, "names no way to pool");
done:
    json_decref(root);
    return status;
}

/* ---- dense layers --------------------------------------------------------------------------- */

static gw_status read_values(const gw_checkpoint *c, const char *path, const char *name,
                             int64_t rows, int64_t cols, float **out) {
    const gw_stored *t = gw_checkpoint_find(c, name);
    const gw_format *f = t != NULL && t->fmt < GW_FMT_ACT8 ? gw_format_of(t->fmt) : NULL;
    int fits = t != NULL && f != NULL && f->is_float && t->dim[0] == rows &&
               (cols == 0 ? t->n_dim == 1 : t->n_dim == 2 && t->dim[1] == cols);
    if (!fits) {
        return gw_fail(GW_E_METADATA, path, "tensor %s is missing, or not [%lld%s%.0lld]", name,
                       (long long)rows, cols > 0 ? ", " : "", (long long)cols);
    }
    size_t n = (size_t)(rows * (cols > 0 ? cols : 1));
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

static gw_status read_dense_weights(const char *folder, const char *part, int bias, gw_dense *d) {
    static const char *const names[] = {"model.safetensors", "pytorch_model.bin"};
    char path[PATH_BYTES];
    gw_checkpoint *c = NULL;
    gw_status status;
    for (int i = 0; i < 2; i++) {
        GW_TRY(join(folder, part, names[i], path));
        if (gw_path_look(path) != GW_PATH_NONE) {
            break;
        }
    }
    GW_TRY(gw_checkpoint_open_weights(path, &c));
    GW_TRY_DONE(read_values(c, path, "linear.weight", d->out, d->in, &d->weight));
    GW_TRY_DONE(bias ? read_values(c, path, "linear.bias", d->out, 0, &d->bias) : GW_OK);
done:
    gw_checkpoint_free(c);
    return status;
}

static gw_status read_dense(const char *folder, const char *part, gw_sentence *s) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    int64_t in = 0, out = 0;
    int bias = 1;
    const char *act = "torch.nn.modules.activation.Tanh";
    gw_status status;
    GW_TRY(join(folder, part, "config.json", path));
    GW_TRY(read_json(path, &root));
    if (!json_is_object(root) || s->n_dense == GW_DENSE_MOST) {
        status = gw_fail(GW_E_METADATA, path, "is missing, or there are more than %d dense layers",
                         GW_DENSE_MOST);
        goto done;
    }
    gw_dense *d = &s->dense[s->n_dense];
    GW_TRY_DONE(gw_json_int(path, root, "in_features", &in));
    GW_TRY_DONE(gw_json_int(path, root, "out_features", &out));
    GW_TRY_DONE(gw_json_bool(path, root, "bias", &bias));
    GW_TRY_DONE(gw_json_text(path, root, "activation_function", &act));
    const char *dot = strrchr(act, '.'), *name = dot != NULL ? dot + 1 : act;
    d->tanh = strcmp(name, "Tanh") == 0;
    if (in < 1 || out < 1 || in > 1 << 20 || out > 1 << 20 ||
        (!d->tanh && strcmp(name, "Identity") != 0) ||
        (s->n_dense > 0 && s->dense[s->n_dense - 1].out != in)) {
        status = gw_fail(GW_E_UNSUPPORTED, path,
                         "a dense layer of %lld to %lld values with %.60s is not known",
                         (long long)in, (long long)out, name);
        goto done;
    }
    d->in = (int32_t)in;
    d->out = (int32_t)out;
    s->n_dense++;
    GW_TRY_DONE(read_dense_weights(folder, part, bias, d));
done:
    json_decref(root);
    return status;
}

static float dot(const float *w, const float *x, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)w[i] * (double)x[i];
    }
    return (float)sum;
}

float *gw_sentence_dense(const gw_sentence *s, float *x, float *room) {
    for (int l = 0; l < s->n_dense; l++) {
        const gw_dense *d = &s->dense[l];
        for (int32_t o = 0; o < d->out; o++) {
            float y = dot(d->weight + (size_t)o * (size_t)d->in, x, d->in);
            y = d->bias != NULL ? y + d->bias[o] : y;
            room[o] = d->tanh ? gw_tanh(y) : y;
        }
        float *free_now = x;
        x = room;
        room = free_now;
    }
    return x;
}

/* ---- modules and prompts -------------------------------------------------------------------- */

static gw_status read_module(const char *folder, const char *where, const json_t *module,
                             gw_sentence *s) {
    const char *type = "", *part = "";
    GW_TRY(gw_json_text(where, module, "type", &type));
    GW_TRY(gw_json_text(where, module, "path", &part));
    const char *dot = strrchr(type, '.'), *name = dot != NULL ? dot + 1 : type;
    if (strstr(part, "..") != NULL || part[0] == '/') {
        return gw_fail(GW_E_METADATA, where, "names \"%.80s\", which is no part of the folder",
                       part);
    }
    if (strcmp(name, "Transformer") == 0) {
        return GW_OK;
    }
    if (strcmp(name, "Pooling") == 0) {
        return read_pooling(folder, part, s);
    }
    if (strcmp(name, "Dense") == 0) {
        return read_dense(folder, part, s);
    }
    if (strcmp(name, "Normalize") == 0) {
        s->normalize = 1;
        return GW_OK;
    }
    return gw_fail(GW_E_UNSUPPORTED, where, "module %.60s is not known", name);
}

static gw_status read_limit(const char *folder, gw_sentence *s) {
    char path[PATH_BYTES];
    json_t *root = NULL;
    int64_t n = 0;
    GW_TRY(join(folder, "", "sentence_bert_config.json", path));
    GW_TRY(read_json(path, &root));
    gw_status status = json_is_object(root) ? gw_json_int(path, root, "max_seq_length", &n) : GW_OK;
    s->n_ctx = n > 0 && n < 1 << 30 ? (int32_t)n : 0;
    json_decref(root);
    return status;
}

static gw_status read_prompts(const char *folder, gw_sentence *s) {
    char path[PATH_BYTES];
    json_t *root = NULL, *prompts = NULL;
    const char *standard = "";
    gw_status status = GW_OK;
    GW_TRY(join(folder, "", "config_sentence_transformers.json", path));
    GW_TRY(read_json(path, &root));
    if (json_is_object(root)) {
        GW_TRY_DONE(gw_json_object(path, root, "prompts", &prompts));
        GW_TRY_DONE(gw_json_text(path, root, "default_prompt_name", &standard));
        s->prompts = json_incref(prompts);
        snprintf(s->standard, sizeof s->standard, "%s", standard);
    }
done:
    json_decref(root);
    return status;
}

static gw_status read_all(const char *folder, const char *where, const json_t *modules,
                          gw_sentence *s) {
    if (!json_is_array(modules)) {
        return gw_fail(GW_E_TYPE, where, "must be a list of modules");
    }
    for (size_t i = 0; i < json_array_size(modules); i++) {
        GW_TRY(read_module(folder, where, json_array_get(modules, i), s));
    }
    GW_TRY(read_limit(folder, s));
    return read_prompts(folder, s);
}

gw_status gw_sentence_read(const char *folder, gw_sentence *out) {
    char path[PATH_BYTES];
    json_t *modules = NULL;
    gw_sentence s = {0};
    memset(out, 0, sizeof *out);
    GW_TRY(join(folder, "", "modules.json", path));
    GW_TRY(read_json(path, &modules));
    if (modules == NULL) {
        return GW_OK;
    }
    s.found = 1;
    gw_status status = read_all(folder, path, modules, &s);
    json_decref(modules);
    if (status == GW_OK) {
        *out = s;
    } else {
        gw_sentence_free(&s);
    }
    return status;
}

void gw_sentence_free(gw_sentence *s) {
    for (int i = 0; i < s->n_dense; i++) {
        free(s->dense[i].weight);
        free(s->dense[i].bias);
    }
    json_decref(s->prompts);
    memset(s, 0, sizeof *s);
}
