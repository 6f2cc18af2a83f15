/* core/quantize/folder_out.c - see folder_out.h. */
#include "core/quantize/folder_out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/os.h"
#include "core/base/text.h"
#include "core/quantize/inputs.h"
#include "core/quantize/make.h"
#include "core/quantize/safe_out.h"

int gw_folder_type_named(const char *name, gw_folder_type *out) {
    static const char *const stems[] = {"gptq-g", "w4a16-g"};
    for (int i = 0; name != NULL && i < 2; i++) {
        size_t n = strlen(stems[i]);
        int group = strncasecmp(name, stems[i], n) == 0 ? atoi(name + n) : 0;
        if (group == 32 || group == 64 || group == 128 || group == 256) {
            *out = (gw_folder_type){.packed_rows = i, .group = group};
            return 1;
        }
    }
    return 0;
}

typedef struct packing {
    const gw_quantize_options *o;
    gw_folder_type type;
    gw_int4_rule rule;
    gw_coding coding;
    gw_gptq_order order;
    gw_checkpoint *checkpoint;
    gw_inputs *inputs;
    gw_safe_out out;
    /* the matrix at work */
    const gw_stored *t;
    int64_t rows, cols, groups;
    uint32_t *codes, *zeros;
    uint16_t *scales;
    int32_t *group_of; /* [cols] */
    const gw_gptq *gptq;
    _Atomic int status;
} packing;

/* ---- which matrices ------------------------------------------------------------------------- */

/* Products of layers by their usual names; GPT-2's are stored the other way round. */
static int is_linear(const packing *p, const gw_stored *t) {
    static const char *const tails[] = {"_proj.weight",
                                        ".fc1.weight",
                                        ".fc2.weight",
                                        ".w1.weight",
                                        ".w2.weight",
                                        ".w3.weight",
                                        ".query_key_value.weight",
                                        ".dense.weight",
                                        ".dense_h_to_4h.weight",
                                        ".dense_4h_to_h.weight"};
    if (t->n_dim != 2 || !gw_format_of(t->fmt)->is_float || t->packed != NULL ||
        strstr(t->name, "layers.") == NULL || strstr(t->name, "c_proj") != NULL ||
        t->dim[0] % 8 != 0 || t->dim[1] % p->type.group != 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        if (gw_text_ends(t->name, tails[i])) {
            return 1;
        }
    }
    return 0;
}

static gw_status add_part(packing *p, const gw_stored *t, const char *tail, const char *dtype,
                          int64_t a, int64_t b, size_t width) {
    char name[400];
    int64_t dim[2] = {a, b};
    snprintf(name, sizeof name, "%.*s%s", (int)strlen(t->name) - 6, t->name, tail);
    return gw_safe_out_add(&p->out, name, dtype, dim, b > 0 ? 2 : 1,
                           (uint64_t)(a * (b > 0 ? b : 1)) * width);
}

static gw_status declare(packing *p, const gw_stored *t) {
    static const char *const dtypes[] = {
        [GW_FMT_F32] = "F32", [GW_FMT_F16] = "F16", [GW_FMT_BF16] = "BF16"};
    int64_t n = t->dim[0], k = t->dim[1], g = p->type.group;
    if (!is_linear(p, t)) {
        return gw_safe_out_add(&p->out, t->name, dtypes[t->fmt], t->dim, t->n_dim, t->bytes);
    }
    if (p->type.packed_rows) {
        GW_TRY(add_part(p, t, "weight_packed", "I32", n, k / 8, 4));
        GW_TRY(add_part(p, t, "weight_scale", "F16", n, k / g, 2));
        GW_TRY(add_part(p, t, "weight_shape", "I64", 2, 0, 8));
        return p->rule == GW_RULE_SYMMETRIC
                   ? GW_OK
                   : add_part(p, t, "weight_zero_point", "I32", n / 8, k / g, 4);
    }
    GW_TRY(add_part(p, t, "qweight", "I32", k / 8, n, 4));
    GW_TRY(add_part(p, t, "qzeros", "I32", k / g, n / 8, 4));
    GW_TRY(add_part(p, t, "scales", "F16", k / g, n, 2));
    return add_part(p, t, "g_idx", "I32", k, 0, 4);
}

/* ---- one matrix ----------------------------------------------------------------------------- */

/* Row r as it is packed; words of different rows, and of every eight rows, are different ones. */
static void put_row(packing *p, int64_t r, const gw_coded *blocks) {
    int64_t g = p->type.group;
    for (int64_t b = 0; b < p->groups; b++) {
        uint32_t zero = (blocks[b].m - (p->type.packed_rows ? 0u : 1u)) & 15u;
        size_t wide = (size_t)(p->type.packed_rows ? r * p->groups + b : b * p->rows + r);
        size_t at =
            (size_t)(p->type.packed_rows ? r / 8 * p->groups + b : b * (p->rows / 8) + r / 8);
        p->scales[wide] = blocks[b].d;
        p->zeros[at] |= zero << 4 * (r % 8);
    }
    for (int64_t i = 0; i < p->cols; i++) { /* place i of the groups */
        int64_t k = p->gptq != NULL && p->gptq->order == GW_GPTQ_GROUP ? p->gptq->column[i] : i;
        uint32_t code = (uint32_t)blocks[i / g].code[i % g] & 15u;
        size_t at = (size_t)(p->type.packed_rows ? r * (p->cols / 8) + k / 8 : k / 8 * p->rows + r);
        p->codes[at] |= code << 4 * (k % 8);
    }
}

static gw_status make_rows(packing *p, int64_t first, int64_t n) {
    size_t cols = (size_t)p->cols, row = 0;
    GW_TRY(gw_row_bytes(p->t->fmt, cols, &row));
    unsigned char *raw = malloc(row * (size_t)n);
    float *w = malloc((size_t)n * cols * sizeof *w);
    gw_coded *coded = malloc((size_t)(n * p->groups) * sizeof *coded);
    gw_status status = GW_OK;
    if (raw == NULL || w == NULL || coded == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, p->t->name, "no memory for a few rows"));
    }
    GW_TRY_DONE(gw_stored_read(p->t, row * (size_t)first, row * (size_t)n, raw));
    gw_format_of(p->t->fmt)->decode(w, raw, (size_t)n * cols);
    if (!gw_all_finite(w, (size_t)n * cols) && !p->o->allow_nan) {
        GW_TRY_DONE(gw_fail(GW_E_NUMERIC, p->t->name, "a value is not finite"));
    }
    if (p->gptq != NULL) {
        GW_TRY_DONE(gw_gptq_rows(p->gptq, &p->coding, w, (int)n, coded, NULL));
    }
    for (int64_t i = 0; i < n * p->groups && p->gptq == NULL; i++) {
        const gw_encode_in in = {.w = w + i * p->type.group, .blocks = 1, .cols = p->type.group};
        p->coding.search(&p->coding, &in, &coded[i]);
    }
    for (int64_t r = 0; r < n; r++) {
        put_row(p, first + r, coded + r * p->groups);
    }
done:
    free(raw);
    free(w);
    free(coded);
    return status;
}

static void make_part(void *user, int64_t part) {
    packing *p = user;
    int64_t first = part * GW_GPTQ_ROWS;
    int64_t n = p->rows - first < GW_GPTQ_ROWS ? p->rows - first : GW_GPTQ_ROWS;
    gw_status status = make_rows(p, first, n);
    if (status != GW_OK) {
        p->status = (int)status;
    }
}

static gw_status write_matrix(packing *p) {
    size_t codes = (size_t)(p->rows * p->cols / 8) * 4, groups = (size_t)(p->rows * p->groups);
    if (p->type.packed_rows) {
        int64_t shape[2] = {p->rows, p->cols};
        GW_TRY(gw_safe_out_write(&p->out, p->codes, codes));
        GW_TRY(gw_safe_out_write(&p->out, p->scales, groups * 2));
        GW_TRY(gw_safe_out_write(&p->out, shape, sizeof shape));
        return p->rule == GW_RULE_SYMMETRIC ? GW_OK
                                            : gw_safe_out_write(&p->out, p->zeros, groups / 8 * 4);
    }
    GW_TRY(gw_safe_out_write(&p->out, p->codes, codes));
    GW_TRY(gw_safe_out_write(&p->out, p->zeros, groups / 8 * 4));
    GW_TRY(gw_safe_out_write(&p->out, p->scales, groups * 2));
    return gw_safe_out_write(&p->out, p->group_of, (size_t)p->cols * 4);
}

static gw_status make_matrix(packing *p, gw_parallel_fn parallel) {
    gw_gptq gptq = {0};
    float *xtx = NULL;
    gw_status status = GW_OK;
    p->rows = p->t->dim[0];
    p->cols = p->t->dim[1];
    p->groups = p->cols / p->type.group;
    p->gptq = NULL;
    p->codes = calloc((size_t)(p->rows * p->cols / 8), 4);
    p->zeros = calloc((size_t)(p->rows / 8 * p->groups) + 1, 4);
    p->scales = calloc((size_t)(p->rows * p->groups), 2);
    p->group_of = calloc((size_t)p->cols, 4);
    if (p->codes == NULL || p->zeros == NULL || p->scales == NULL || p->group_of == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, p->t->name, "no memory for its codes"));
    }
    if (p->inputs != NULL) {
        xtx = gw_inputs_find(p->inputs, p->t->name, p->cols, 0);
    }
    if (xtx != NULL) {
        status = gw_gptq_prepare(p->t->name, xtx, (int)p->cols,
                                 p->o->damp > 0.0 ? p->o->damp : 0.01, p->order, &p->coding, &gptq);
        if (status == GW_E_NUMERIC) {
            gw_say(p->o, "%s; rounded as it is", gw_error_text());
        } else if (status != GW_OK) {
            goto done;
        } else {
            p->gptq = &gptq;
        }
    }
    for (int64_t i = 0; i < p->cols; i++) {
        int64_t k = p->gptq != NULL && gptq.order == GW_GPTQ_GROUP ? gptq.column[i] : i;
        p->group_of[k] = (int32_t)(i / p->type.group);
    }
    p->status = GW_OK;
    parallel(p->o->threads, (p->rows + GW_GPTQ_ROWS - 1) / GW_GPTQ_ROWS, make_part, p);
    status = p->status == GW_OK ? write_matrix(p)
                                : gw_fail((gw_status)p->status, p->t->name,
                                          "cannot be made (a value that is not "
                                          "finite, a file that cannot be read)");
done:
    free(p->codes);
    free(p->zeros);
    free(p->scales);
    free(p->group_of);
    gw_gptq_free(&gptq);
    return status;
}

static gw_status copy_tensor(packing *p, const gw_stored *t) {
    enum { PIECE = 1 << 20 };
    char *buffer = malloc(PIECE);
    gw_status status =
        buffer != NULL ? GW_OK : gw_fail(GW_E_NOMEM, t->name, "no memory to copy it");
    for (size_t at = 0; at < t->bytes && status == GW_OK;) {
        size_t n = t->bytes - at < PIECE ? t->bytes - at : PIECE;
        status = gw_stored_read(t, at, n, buffer);
        status = status == GW_OK ? gw_safe_out_write(&p->out, buffer, n) : status;
        at += n;
    }
    free(buffer);
    return status;
}

/* ---- the folder ----------------------------------------------------------------------------- */

static json_t *settings(const packing *p) {
    int symmetric = p->rule == GW_RULE_SYMMETRIC;
    if (!p->type.packed_rows) {
        return json_pack(
            "{s:s,s:i,s:i,s:b,s:b,s:b,s:f,s:s,s:b}", "quant_method", "gptq", "bits", 4,
            "group_size", p->type.group, "desc_act", p->inputs != NULL && p->order == GW_GPTQ_GROUP,
            "sym", symmetric, "static_groups", p->order == GW_GPTQ_STATIC, "damp_percent",
            p->o->damp > 0.0 ? p->o->damp : 0.01, "checkpoint_format", "gptq", "lm_head", 0);
    }
    json_t *weights = json_pack("{s:i,s:s,s:b,s:s,s:i,s:b,s:s}", "num_bits", 4, "type", "int",
                                "symmetric", symmetric, "strategy", "group", "group_size",
                                p->type.group, "dynamic", 0, "observer", "minmax");
    return json_pack("{s:s,s:s,s:s,s:{s:{s:[s],s:o,s:n,s:n}},s:[s]}", "quant_method",
                     "compressed-tensors", "format", "pack-quantized", "quantization_status",
                     "compressed", "config_groups", "group_0", "targets", "Linear", "weights",
                     weights, "input_activations", "output_activations", "ignore", "lm_head");
}

static gw_status write_text(const char *path, const void *data, size_t n) {
    gw_save save;
    GW_TRY(gw_save_begin(&save, path, 0666, n));
    gw_status status = gw_save_write(&save, data, n);
    if (status == GW_OK) {
        return gw_save_end(&save);
    }
    gw_save_drop(&save);
    return status;
}

static gw_status write_config(const packing *p, const char *from, const char *to) {
    json_error_t wrong;
    json_t *config = json_load_file(from, 0, &wrong);
    if (config == NULL) {
        return gw_fail(GW_E_SYNTAX, from, "line %d: %s", wrong.line, wrong.text);
    }
    json_object_set_new(config, "quantization_config", settings(p));
    char *text = json_dumps(config, JSON_INDENT(2));
    gw_status status = text != NULL ? write_text(to, text, strlen(text))
                                    : gw_fail(GW_E_NOMEM, to, "no memory for it");
    free(text);
    json_decref(config);
    return status;
}

/* Tokenizer, templates, settings: all small files that hold no weights. */
static int is_taken_along(const char *name) {
    static const char *const tails[] = {".json", ".model", ".txt", ".jinja", ".md", ".tiktoken"};
    if (strcmp(name, "config.json") == 0 || gw_text_ends(name, ".index.json")) {
        return 0;
    }
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        if (gw_text_ends(name, tails[i])) {
            return 1;
        }
    }
    return strncmp(name, "LICENSE", 7) == 0;
}

static gw_status take_along(const packing *p, const char *folder) {
    char from[4400], to[4400];
    DIR *d = opendir(p->o->model);
    gw_status status = GW_OK;
    if (d == NULL) {
        return gw_fail(GW_E_IO, p->o->model, "cannot be listed: %s", strerror(errno));
    }
    for (struct dirent *e; status == GW_OK && (e = readdir(d)) != NULL;) {
        snprintf(from, sizeof from, "%.4000s/%.255s", p->o->model, e->d_name);
        snprintf(to, sizeof to, "%.4090s/%.255s", folder, e->d_name);
        gw_file file;
        if (!is_taken_along(e->d_name) || gw_path_look(from) != GW_PATH_FILE) {
            continue;
        }
        status = gw_file_open(from, from, &file);
        if (status == GW_OK) {
            status = write_text(to, file.data != NULL ? file.data : "", (size_t)file.size);
            gw_file_close(&file);
        }
    }
    closedir(d);
    return status;
}

/* Of a folder that this program made: its files, then itself. */
static void remove_folder(const char *folder) {
    char path[4400];
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%.4090s/%.255s", folder, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            unlink(path);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    rmdir(folder);
}

static gw_status write_weights(packing *p, const char *folder, gw_parallel_fn parallel) {
    char path[4400];
    size_t made = 0, n = gw_checkpoint_count(p->checkpoint);
    GW_TRY(gw_safe_out_new(&p->out));
    for (size_t i = 0; i < n; i++) {
        const gw_stored *t = gw_checkpoint_at(p->checkpoint, i);
        if (t->part || t->packed != NULL || !gw_format_of(t->fmt)->is_float) {
            return gw_fail(GW_E_UNSUPPORTED, t->name, "is quantized already: give float weights");
        }
        GW_TRY(declare(p, t));
        made += (size_t)is_linear(p, t);
    }
    if (made == 0) {
        return gw_fail(GW_E_UNSUPPORTED, p->o->model,
                       "no matrix of its layers can be packed in groups of %d", p->type.group);
    }
    gw_say(p->o, "%zu matrices in int4, %zu tensors as they are", made, n - made);
    snprintf(path, sizeof path, "%.4090s/model.safetensors", folder);
    json_t *format = json_pack("{s:s}", "format", "pt");
    gw_status status = gw_safe_out_begin(&p->out, path, format);
    json_decref(format);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        const gw_stored *t = gw_checkpoint_at(p->checkpoint, i);
        p->t = t;
        status = p->o->cancel != NULL && *p->o->cancel
                     ? gw_fail(GW_E_CANCELLED, t->name, "interrupted")
                 : is_linear(p, t) ? make_matrix(p, parallel)
                                   : copy_tensor(p, t);
    }
    return status == GW_OK ? gw_safe_out_end(&p->out) : status;
}

static gw_status collect(packing *p, const gw_backend *const *backends) {
    const gw_quantize_options *o = p->o;
    gw_original original = {0};
    const gw_inputs_wish wish = {.text = o->calibrate,
                                 .windows = o->windows > 0 ? o->windows : GW_CALIBRATE_WINDOWS,
                                 .threads = o->threads,
                                 .xtx = 1,
                                 .as_seen = 1,
                                 .memory = o->memory,
                                 .cancel = o->cancel,
                                 .say = o->say,
                                 .say_user = o->say_user};
    gw_status status = gw_original_open(o->model, NULL, NULL, &original);
    status = status == GW_OK ? gw_inputs_collect(&original, backends, &wish, &p->inputs) : status;
    gw_original_close(&original);
    return status;
}

gw_status gw_write_folder(const gw_quantize_options *o, const gw_folder_type *type,
                          gw_parallel_fn parallel, const gw_backend *const *backends) {
    packing p = {.o = o, .type = *type, .rule = GW_RULE_SYMMETRIC};
    char folder[4096], from[4200], to[4200];
    int made = 0;
    gw_status status = GW_OK;
    GW_TRY(o->rule != NULL ? gw_int4_rule_named(o->rule, &p.rule) : GW_OK);
    if (p.rule == GW_RULE_RANGE) {
        return gw_fail(GW_E_ARGUMENT, "--rule",
                       "these folders have integer zeros: integer or "
                       "symmetric");
    }
    p.coding = gw_rule_coding(p.rule, type->group);
    GW_TRY(gw_gptq_order_named(o->order, &p.coding, &p.order));
    if (p.order == GW_GPTQ_GROUP && type->packed_rows) {
        return gw_fail(GW_E_ARGUMENT, "--order", "w4a16 folders have no g_idx: static or none");
    }
    if (gw_path_look(o->model) != GW_PATH_FOLDER) {
        return gw_fail(GW_E_ARGUMENT, o->model, "is no Hugging Face folder, which this type needs");
    }
    if (gw_path_look(o->out) != GW_PATH_NONE) {
        return gw_fail(GW_E_IO, o->out, "is there already: give a name that is not");
    }
    GW_TRY_DONE(gw_checkpoint_open(o->model, NULL, 0, &p.checkpoint));
    GW_TRY_DONE(o->calibrate != NULL && !o->dry_run ? collect(&p, backends) : GW_OK);
    snprintf(folder, sizeof folder, "%.4000s.partial", o->out);
    if (o->dry_run) {
        goto done;
    }
    if (mkdir(folder, 0777) != 0) {
        GW_TRY_DONE(gw_fail(GW_E_IO, folder, "cannot be made: %s", strerror(errno)));
    }
    made = 1;
    GW_TRY_DONE(write_weights(&p, folder, parallel));
    snprintf(from, sizeof from, "%.4000s/config.json", o->model);
    snprintf(to, sizeof to, "%.4090s/config.json", folder);
    GW_TRY_DONE(write_config(&p, from, to));
    GW_TRY_DONE(take_along(&p, folder));
    if (rename(folder, o->out) != 0) {
        GW_TRY_DONE(gw_fail(GW_E_IO, o->out, "cannot be named so: %s", strerror(errno)));
    }
    made = 0;
done:
    gw_safe_out_drop(&p.out);
    if (made) {
        remove_folder(folder);
    }
    gw_inputs_free(p.inputs);
    gw_checkpoint_free(p.checkpoint);
    return status;
}
