/* apps/inspect.c - `godwit inspect`: what is in a model's files, and whether they are sound. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/known_names.h"
#include "apps/needed.h"
#include "apps/output.h"
#include "apps/signals.h"
#include "include/godwit_families.h"

enum { FORMATS = 32 };

typedef struct inspect_job {
    const app_options *o;
    const char *shown; /* how the model is called */
    gw_inspection *v;
    gw_model_info info;
    gw_meta *meta;
    gw_tensor_info *tensors;
    size_t n_meta, n_tensors;
    struct {
        const char *name;
        size_t tensors;
        uint64_t bytes;
    } formats[FORMATS];
    size_t n_formats;
} inspect_job;

static void count_formats(inspect_job *job) {
    for (size_t i = 0; i < job->n_tensors; i++) {
        size_t f = 0;
        while (f < job->n_formats && strcmp(job->formats[f].name, job->tensors[i].format) != 0) {
            f++;
        }
        if (f == FORMATS) {
            return;
        }
        job->n_formats += f == job->n_formats;
        job->formats[f].name = job->tensors[i].format;
        job->formats[f].tensors++;
        job->formats[f].bytes += job->tensors[i].bytes;
    }
}

/* Names from a file may hold anything: what is shown on a terminal must not move its cursor. */
static const char *clean(const char *name, char *text, size_t room) {
    snprintf(text, room, "%s", name);
    for (char *c = text; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    }
    return text;
}

static void shape(const gw_tensor_info *t, char *text, size_t room) {
    size_t used = (size_t)snprintf(text, room, "[");
    for (int d = 0; d < t->n_dim; d++) {
        used +=
            (size_t)snprintf(text + used, room - used, "%s%" PRId64, d > 0 ? ", " : "", t->dim[d]);
    }
    snprintf(text + used, room - used, "]");
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_summary(const inspect_job *job) {
    const gw_model_info *m = &job->info;
    char file[32], weights[32], kv[32], name[256], architecture[80];
    out_print("%s: %s; %s, %s\n", job->shown, gw_inspection_container(job->v),
              clean(m->name, name, sizeof name),
              m->architecture[0] != '\0' ? clean(m->architecture, architecture, sizeof architecture)
                                         : "no architecture");
    out_print("%s of files, %zu tensors with %s, %.4g M parameters\n",
              app_bytes(m->file_bytes, file), job->n_tensors, app_bytes(m->weight_bytes, weights),
              (double)m->n_params * 1e-6);
    if (m->n_layers > 0) {
        out_print("%d layers, width %d, %d heads over %d of %d, feed-forward %d", (int)m->n_layers,
                  (int)m->d_model, (int)m->n_heads, (int)m->n_kv_heads, (int)m->d_head,
                  (int)m->d_ff);
    }
    if (m->n_layers > 0 && m->n_ctx_train > 0) {
        out_print(", vocabulary %d, context %d; KV cache %s per token", (int)m->n_vocab,
                  (int)m->n_ctx_train, app_bytes(m->kv_bytes_per_token, kv));
    }
    out_text(m->n_layers > 0 ? "\n" : "");
    if (m->note[0] != '\0') {
        out_print("%s\n", m->note);
    }
    if (m->n_predictors > 0) {
        out_print("%d layer beside them predicts one token more: --draft mtp\n",
                  (int)m->n_predictors);
    }
    if (m->target_width > 0) {
        out_print("a head that drafts (%s), no model by itself: --draft gives it to a model "
                  "of width %d and %d tokens\n",
                  app_head_kind(m), (int)m->target_width, (int)m->target_vocab);
    }
    if (m->state_bytes > 0) {
        char batch[32];
        out_print("recurrent layers remember %s of a text, whatever its length, of which 16 tokens "
                  "can be taken back;\n%s of each text of a batch without drafts, where none are\n",
                  app_bytes(m->state_bytes, kv), app_bytes(m->batch_state_bytes, batch));
    }
    if (gw_inspection_chat(job->v)[0] != '\0') {
        out_print("chat template: %s\n", gw_inspection_chat(job->v));
    }
}

/* Of a family that is not known: what a spec, or this program, would have to have. */
static void print_needed(const inspect_job *job) {
    app_needed blocks[APP_NEEDED_MOST];
    char name[256];
    size_t missing = 0;
    if (!app_unknown_family(job->info.architecture)) {
        return;
    }
    size_t n = app_needed_blocks(job->meta, job->n_meta, job->tensors, job->n_tensors, blocks);
    out_print("no family has this architecture; by its tensors and numbers it needs%s\n",
              n > 0 ? ":" : " nothing that has a name here");
    for (size_t i = 0; i < n; i++) {
        out_print("  %-8s %s%s%s (%s)\n", blocks[i].by != NULL ? "known" : "missing",
                  blocks[i].block, blocks[i].by != NULL ? ": " : "",
                  blocks[i].by != NULL ? blocks[i].by : "",
                  clean(blocks[i].seen, name, sizeof name));
        missing += blocks[i].by == NULL;
    }
    if (n > 0 && missing == 0) {
        out_text(
            "none of these is missing: --spec FILE may describe the family, where nothing else "
            "is new in it\n");
    }
}

static void print_lists(const inspect_job *job) {
    char text[128], bytes[32], name[1100];
    out_text("\nmetadata:\n");
    for (size_t i = 0; i < job->n_meta; i++) {
        const gw_meta *m = &job->meta[i];
        if (m->is_array) {
            out_print("  %s = %s (%" PRIu64 " of %s)\n", m->key, m->value, m->count, m->type);
        } else {
            out_print("  %s = %s\n", m->key, m->value);
        }
    }
    out_text("\ntensors:\n");
    for (size_t i = 0; i < job->n_tensors; i++) {
        const gw_tensor_info *t = &job->tensors[i];
        shape(t, text, sizeof text);
        out_print("  %-40s %-8s %-20s %12" PRIu64 "\n", clean(t->name, name, sizeof name),
                  t->format, text, t->bytes);
    }
    out_text("\nformats:\n");
    for (size_t i = 0; i < job->n_formats; i++) {
        out_print("  %-8s %5zu tensors  %s\n", job->formats[i].name, job->formats[i].tensors,
                  app_bytes(job->formats[i].bytes, bytes));
    }
}

/* ---- for programs ---------------------------------------------------------------------------- */

static json_t *meta_json(const inspect_job *job) {
    json_t *list = json_array();
    for (size_t i = 0; i < job->n_meta; i++) {
        const gw_meta *m = &job->meta[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:I, s:s}", "key", m->key, "type",
                                              m->type, "array", m->is_array, "count",
                                              (json_int_t)m->count, "value", m->value));
    }
    return list;
}

static json_t *tensors_json(const inspect_job *job) {
    json_t *list = json_array();
    for (size_t i = 0; i < job->n_tensors; i++) {
        const gw_tensor_info *t = &job->tensors[i];
        json_t *dims = json_array();
        for (int d = 0; d < t->n_dim; d++) {
            json_array_append_new(dims, json_integer(t->dim[d]));
        }
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "format",
                                        t->format, "shape", dims, "bytes", (json_int_t)t->bytes));
    }
    return list;
}

/* null where the family is known. */
static json_t *needed_json(const inspect_job *job) {
    app_needed blocks[APP_NEEDED_MOST];
    if (!app_unknown_family(job->info.architecture)) {
        return json_null();
    }
    json_t *list = json_array();
    size_t n = app_needed_blocks(job->meta, job->n_meta, job->tensors, job->n_tensors, blocks);
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s}", "block", blocks[i].block, "by",
                                              blocks[i].by, "seen", blocks[i].seen));
    }
    return list;
}

static int print_json(const inspect_job *job, gw_status verdict, const char *fault) {
    const gw_model_info *m = &job->info;
    json_t *formats = json_object();
    for (size_t i = 0; i < job->n_formats; i++) {
        json_object_set_new(formats, job->formats[i].name,
                            json_pack("{s:I, s:I}", "tensors", (json_int_t)job->formats[i].tensors,
                                      "bytes", (json_int_t)job->formats[i].bytes));
    }
    json_t *all = json_pack(
        "{s:b, s:s?, s:s?, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:o, s:o, s:o, s:o}",
        "valid", verdict == GW_OK, "class", verdict != GW_OK ? gw_status_name(verdict) : NULL,
        "fault", fault, "container", gw_inspection_container(job->v), "name", m->name,
        "architecture", m->architecture, "chat_template", gw_inspection_chat(job->v), "file_bytes",
        (json_int_t)m->file_bytes, "weight_bytes", (json_int_t)m->weight_bytes, "parameters",
        (json_int_t)m->n_params, "layers", (int)m->n_layers, "vocabulary", (int)m->n_vocab,
        "context", (int)m->n_ctx_train, "formats", formats, "metadata", meta_json(job), "tensors",
        tensors_json(job), "needed", needed_json(job));
    char *text = all != NULL ? json_dumps(all, JSON_INDENT(1)) : NULL;
    json_decref(all);
    if (text == NULL) {
        app_error("out of memory, or a name that is not UTF-8");
        return APP_FAILURE;
    }
    out_text(text);
    out_text("\n");
    free(text);
    return APP_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int fetch(inspect_job *job) {
    gw_inspection_describe(job->v, &job->info);
    job->n_meta = gw_inspection_meta(job->v, NULL, 0);
    job->n_tensors = gw_inspection_tensors(job->v, NULL, 0);
    job->meta = calloc(job->n_meta + 1, sizeof *job->meta);
    job->tensors = calloc(job->n_tensors + 1, sizeof *job->tensors);
    if (job->meta == NULL || job->tensors == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    gw_inspection_meta(job->v, job->meta, job->n_meta);
    gw_inspection_tensors(job->v, job->tensors, job->n_tensors);
    count_formats(job);
    return APP_OK;
}

static int report(inspect_job *job) {
    const char *fault = NULL;
    gw_status verdict = gw_inspection_verdict(job->v, &fault);
    int code = fetch(job);
    if (code == APP_OK && job->o->json) {
        code = print_json(job, verdict, fault);
    } else if (code == APP_OK) {
        int readable = gw_inspection_container(job->v)[0] != '\0';
        if (readable) {
            print_summary(job);
            print_needed(job);
        }
        if (readable && !job->o->quiet) {
            print_lists(job);
        }
        if (verdict == GW_OK) {
            out_text("valid\n");
        }
    }
    out_flush();
    if (code == APP_OK && verdict != GW_OK && !out_failed()) {
        app_error("%s", fault);
        code = APP_FAILURE;
    }
    return out_failed() ? APP_FAILURE : code;
}

static int is_run(const gw_family *all, size_t n_all, const char *word, size_t n) {
    for (size_t i = 0; i < n_all; i++) {
        if (strstr(all[i].name, "-vision") == NULL && app_has_word(all[i].gguf, word, n)) {
            return 1;
        }
    }
    return 0;
}

/* How much of a list of names that others keep is known, and what is not. */
static void count_names(const gw_family *all, size_t n_all) {
    char missing[sizeof known_names + 1] = "";
    int names = 0, run = 0;
    for (const char *p = known_names; *p != '\0'; names++) {
        size_t n = strcspn(p, " "), used = strlen(missing);
        int is = is_run(all, n_all, p, n);
        run += is;
        if (!is) {
            snprintf(missing + used, sizeof missing - used, " %.*s", (int)n, p);
        }
        p += n + (p[n] == ' ');
    }
    out_print("# %d of the %d architecture names of llama.cpp b11434; not:%s\n", run, names,
              missing);
}

/* NAME <tab> GGUF's names <tab> names in config.json, and how many of the names that are in use
 * these are; or a list in JSON. */
static void print_families(const gw_family *all, size_t n_all, int json) {
    out_text(json ? "[" : "");
    for (size_t i = 0; i < n_all; i++) {
        const gw_family *f = &all[i];
        if (json) { /* names are of letters, digits and - _ + . alone */
            out_print("%s\n  {\"family\": \"%s\", \"gguf\": \"%s\", \"hf\": \"%s\"}",
                      i > 0 ? "," : "", f->name, f->gguf, f->hf);
        } else {
            out_print("%s\t%s\t%s\n", f->name, f->gguf[0] != '\0' ? f->gguf : "-",
                      f->hf[0] != '\0' ? f->hf : "-");
        }
    }
    if (json) {
        out_text("\n]\n");
    } else {
        count_names(all, n_all);
    }
    out_flush();
}

static int list_families(int json) {
    gw_family one, *all;
    size_t n = 0;
    while (gw_family_at(n, &one)) {
        n++;
    }
    all = calloc(n, sizeof *all);
    if (all == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    for (size_t i = 0; i < n; i++) {
        gw_family_at(i, &all[i]);
    }
    print_families(all, n, json);
    free(all);
    return out_failed() ? APP_FAILURE : APP_OK;
}

static int run_inspect(const app_options *o) {
    if (o->families) {
        return list_families(o->json);
    }
    inspect_job job = {.o = o, .shown = o->model != NULL ? o->model : "the built-in model"};
    const void *memory = NULL;
    size_t bytes = 0;
    int code = o->model == NULL ? app_builtin_model(&memory, &bytes) : APP_OK;
    if (code == APP_OK) {
        gw_status status =
            gw_inspect(o->model, memory, bytes, o->check_tensors ? GW_INSPECT_VALUES : 0,
                       signals_cancel(), &job.v);
        code = status == GW_OK ? report(&job) : app_fail(status);
    }
    free(job.meta);
    free(job.tensors);
    gw_inspection_free(job.v);
    return code;
}

const app_command command_inspect = {
    .name = "inspect",
    .bit = CMD_INSPECT,
    .usage = "[MODEL] [OPTIONS]",
    .summary = "what is in a model's files, and whether they are sound",
    .detail =
        "Prints metadata, tensors (name, format, shape, bytes) and totals per format on stdout, "
        "and\n"
        "ends with \"valid\", or with one error line that says what is wrong and where (exit code\n"
        "1): what loading the model would say, without loading it. --quiet leaves the lists out.\n"
        "A .safetensors file alone, or one that torch.save wrote (.bin, .pt, .pth, .ckpt), is\n"
        "looked at as what it is, a table of tensors; nothing in it is run. --families lists what\n"
        "the program knows instead. Of a family that it does not know it says which blocks that\n"
        "family needs, and which of them are missing here.\n",
    .examples = "  godwit inspect\n"
                "  godwit inspect model.gguf -q\n"
                "  godwit inspect model.gguf --json\n"
                "  godwit inspect -m model.gguf --check-tensors -q\n"
                "  godwit inspect --families\n",
    .operand = "--model",
    .run = run_inspect,
};
