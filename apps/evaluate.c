/* apps/evaluate.c - `godwit evaluate`: models judged by a text, by a base model and by tasks.
 *
 * One model after the other, each opened once. The base is opened first and stays; it reads the
 * text again beside each model, so that nothing has to be kept of it but the logits of a piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/judge/report.h"
#include "apps/judge/windows.h"
#include "apps/output.h"
#include "apps/signals.h"

typedef struct job {
    const app_options *o;
    app_text text;       /* of -f */
    base_file base_file; /* path NULL: none */
    gw_model *base;      /* NULL: none */
    gw_session *base_session;
    int32_t *base_ids; /* the text, by the base's vocabulary */
    size_t n_base_ids;
    judge_set *sets, examples;
    size_t n_sets;
    int has_examples;
    judged *models; /* [n], the base first where there are tasks for it */
    size_t n;
    judge_report report;
} job;

/* ---- what is to be judged -------------------------------------------------------------------- */

static int check(const app_options *o) {
    const char *why = NULL;
    int text = o->file != NULL || o->base_file != NULL;
    if (!text && o->tasks.n == 0) {
        why = "nothing to judge by: give a text with -f FILE, tasks with --tasks FILE, or both";
    } else if (o->base != NULL && o->base_file != NULL) {
        why = "--base and --kl-divergence-base exclude each other: which base is meant?";
    } else if (o->save_logits != NULL && (o->models.n > 1 || o->base_file != NULL || !text)) {
        why = "--save-all-logits: is for the text of one model";
    } else if (o->stride > 0 && (o->save_logits != NULL || o->base_file != NULL)) {
        why = "--stride: files of log-probabilities have windows without it";
    } else if (o->picture != NULL && !text) {
        why = "--picture: shows the loss on a text: give one with -f FILE";
    } else if ((o->shots > 0) != (o->shots_file != NULL)) {
        why = "--shots and --shots-file belong together: how many examples, and from where";
    }
    if (why != NULL) {
        app_error("%s", why);
        return APP_USAGE;
    }
    return APP_OK;
}

static int read_sets(job *j) {
    const app_options *o = j->o;
    int code = APP_OK;
    j->sets = calloc(o->tasks.n + 1, sizeof *j->sets);
    if (j->sets == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    if (o->shots > 0) {
        j->has_examples = 1;
        code = judge_read_tasks(o->shots_file, 0, &j->examples);
    }
    for (size_t i = 0; i < o->tasks.n && code == APP_OK; i++) {
        code = judge_read_tasks(o->tasks.at[i], (size_t)o->limit, &j->sets[j->n_sets++]);
        if (code == APP_OK) {
            code = judge_complete_contexts(&j->sets[i], j->has_examples ? &j->examples : NULL,
                                           (size_t)o->shots);
        }
    }
    return code;
}

/* ---- a model --------------------------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *name = path;
    for (const char *c = path; *c != '\0'; c++) {
        name = *c == '/' && c[1] != '\0' ? c + 1 : name;
    }
    return name;
}

static void describe(judged *out, const gw_model *model, const char *path) {
    gw_model_info info;
    gw_model_describe(model, &info);
    out->path = path;
    snprintf(out->name, sizeof out->name, "%s", path != NULL ? base_name(path) : "built-in");
    snprintf(out->format, sizeof out->format, "%s", info.format);
    snprintf(out->device, sizeof out->device, "%s", info.device);
    out->file_bytes = info.file_bytes;
    out->weight_bytes = info.weight_bytes;
    out->n_params = info.n_params;
}

/* The choices of every set as ids; before the model's weights are there, since what its cache has
 * to hold decides where its layers go. texts [n_sets], zeroed. */
static int tokenize_sets(job *j, const char *path, choice_texts *texts, int64_t *cache) {
    gw_model *vocabulary = NULL;
    int code = app_open_model(j->o, path, j->o->threads, NULL, &vocabulary);
    gw_model_info info = {0};
    if (code == APP_OK) {
        gw_model_describe(vocabulary, &info);
    }
    for (size_t i = 0; i < j->n_sets && code == APP_OK; i++) {
        code = choices_tokenize(&j->sets[i], vocabulary, info.n_ctx_train, &texts[i]);
        int64_t need = code == APP_OK ? choices_cache(j->o, &texts[i]) : 0;
        *cache = need > *cache ? need : *cache;
        if (code == APP_OK && texts[i].cut > 0) {
            app_note("%s: %zu choices are longer than the %d tokens that the model was trained "
                     "for; they lose their beginning",
                     j->sets[i].path, texts[i].cut, (int)info.n_ctx_train);
        }
    }
    app_close_model(vocabulary);
    return code;
}

static int score_sets(job *j, gw_model *model, const choice_texts *texts, judged *out) {
    int code = APP_OK;
    for (size_t i = 0; i < j->n_sets && code == APP_OK; i++) {
        out->scores[i] = calloc(j->sets[i].n_choices, sizeof *out->scores[i]);
        if (out->scores[i] == NULL) {
            app_error("out of memory");
            return APP_FAILURE;
        }
        code = choices_score(j->o, model, &texts[i], out->scores[i]);
        if (code != APP_OK) {
            free(out->scores[i]);
            out->scores[i] = NULL;
        }
    }
    return code;
}

/* The text's windows, of the base's file where there is one. */
static int cut_text(job *j, const gw_model *model, int32_t **ids, judge_windows *out) {
    gw_model_info info;
    gw_model_describe(model, &info);
    if (j->base_file.path != NULL) {
        size_t most = (size_t)j->o->chunks, n = j->base_file.windows;
        if (info.n_vocab != j->base_file.n_vocab) {
            app_error("%s: is of a vocabulary of %d tokens, the model has %d", j->base_file.path,
                      (int)j->base_file.n_vocab, (int)info.n_vocab);
            return APP_FAILURE;
        }
        *out = (judge_windows){.ids = j->base_file.ids,
                               .n_ctx = j->base_file.n_ctx,
                               .count = most > 0 && most < n ? most : n};
        return APP_OK;
    }
    return judge_cut_text(j->o, model, &j->text, ids, out);
}

/* Both models must mean the same by their ids. */
static int check_base(const job *j, const gw_model *model, const judge_windows *w) {
    gw_model_info own, base;
    gw_model_describe(model, &own);
    gw_model_describe(j->base, &base);
    size_t step = (size_t)(w->stride > 0 ? w->stride : w->n_ctx);
    size_t n = (w->count - 1) * step + (size_t)w->n_ctx;
    if (own.n_vocab != base.n_vocab || j->n_base_ids < n ||
        memcmp(w->ids, j->base_ids, n * sizeof *w->ids) != 0) {
        app_error("--base: %s and the model write the text in other tokens (vocabularies of %d and "
                  "%d): no common base",
                  base_name(j->o->base), (int)base.n_vocab, (int)own.n_vocab);
        return APP_FAILURE;
    }
    return APP_OK;
}

static int score_windows(job *j, gw_model *model, const judge_windows *w, judged *out) {
    judge_text t = {.windows = w,
                    .model = model,
                    .base = j->base_session,
                    .base_file = j->base_file.path != NULL ? &j->base_file : NULL};
    tally scored = {0};
    out_file save = {.fd = -1};
    gw_model_info info;
    gw_model_describe(model, &info);
    int code = app_open_session(j->o, model, w->n_ctx, j->o->batch, &t.session);
    if (code == APP_OK && j->o->save_logits != NULL) {
        t.save = &save;
        code = base_file_begin(&save, j->o->save_logits, w->n_ctx, info.n_vocab, w->ids, w->count);
    }
    code = code == APP_OK ? judge_score_text(&t, &scored) : code;
    gw_session_free(t.session);
    if (code == APP_OK && t.save != NULL) {
        code = out_file_commit(&save) == 0 ? APP_OK : APP_FAILURE;
    }
    out_file_discard(&save);
    if (code == APP_OK &&
        tally_sum_up(&scored, t.base != NULL || t.base_file != NULL, &out->text) != 0) {
        app_error("out of memory");
        code = APP_FAILURE;
    }
    out->has_text = code == APP_OK;
    j->report.windows = w->count;
    j->report.n_ctx = w->n_ctx;
    tally_free(&scored);
    return code;
}

static int score_text(job *j, gw_model *model, judged *out) {
    judge_windows w;
    int32_t *ids = NULL;
    int code = cut_text(j, model, &ids, &w);
    if (code == APP_OK && j->base != NULL) {
        code = check_base(j, model, &w);
    }
    if (code == APP_OK && j->base_file.path != NULL) {
        code = base_file_rewind(&j->base_file);
    }
    code = code == APP_OK ? score_windows(j, model, &w, out) : code;
    gw_free(ids);
    return code;
}

static int judge_model(job *j, const char *path, judged *out) {
    gw_model *model = NULL;
    choice_texts *texts = calloc(j->n_sets + 1, sizeof *texts);
    int64_t cache = 0;
    double start = app_seconds();
    int has_text = j->text.at != NULL || j->base_file.path != NULL;
    int32_t n_ctx = j->base_file.path != NULL ? j->base_file.n_ctx : has_text ? j->o->n_ctx : 0;
    if (texts == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    int code = j->n_sets > 0 ? tokenize_sets(j, path, texts, &cache) : APP_OK;
    if (code == APP_OK) {
        int64_t most = cache > n_ctx ? cache : n_ctx;
        const app_need need = {.n_ctx = most < INT32_MAX ? (int32_t)most : INT32_MAX,
                               .batch = j->o->batch};
        code = app_open_model(j->o, path, j->o->threads, &need, &model);
    }
    if (code == APP_OK) {
        describe(out, model, path);
        code = has_text && !out->is_base ? score_text(j, model, out) : APP_OK;
    }
    code = code == APP_OK ? score_sets(j, model, texts, out) : code;
    out->seconds = app_seconds() - start;
    if (code == APP_OK) {
        app_note("%s: %.1f s", out->name, out->seconds);
    }
    app_close_model(model);
    for (size_t i = 0; i < j->n_sets; i++) {
        choices_free(&texts[i]);
    }
    free(texts);
    return code;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The base as it is stored, whatever --weights makes of the models. */
static int open_base(job *j) {
    app_options o = *j->o;
    const app_need need = {.n_ctx = o.n_ctx, .batch = o.batch};
    o.weights = NULL;
    o.device = o.base_device != NULL ? o.base_device : o.device;
    o.offload_layers = o.base_device != NULL ? NULL : o.offload_layers;
    int code = app_open_model(&o, o.base, o.threads, &need, &j->base);
    if (code == APP_OK) {
        code = app_open_session(&o, j->base, o.n_ctx, o.batch, &j->base_session);
    }
    return code == APP_OK ? app_tokenize(j->base, &j->text, GW_TEXT_BOS | GW_TEXT_OPEN,
                                         &j->base_ids, &j->n_base_ids)
                          : code;
}

static int open_text(job *j) {
    const app_options *o = j->o;
    int code = APP_OK;
    j->report.file = o->file;
    j->report.stride = o->stride;
    if (o->base_file != NULL) {
        if (o->file != NULL) {
            app_note("the text is the one of %s; -f is not read", o->base_file);
        }
        j->report.file = "its text";
        j->report.base = o->base_file;
        return base_file_open(&j->base_file, o->base_file);
    }
    if (o->file != NULL) {
        code = app_read_file(o->file, &j->text);
    }
    if (code == APP_OK && o->base != NULL && o->file != NULL) {
        j->report.base = o->base;
        code = open_base(j);
    }
    return code;
}

static int judge_all(job *j) {
    static const char *const default_model[1] = {NULL};
    const app_options *o = j->o;
    size_t n = o->models.n > 0 ? o->models.n : 1, with_base = o->base != NULL && j->n_sets > 0;
    const char *const *models = o->models.n > 0 ? o->models.at : default_model;
    choice_score **places = calloc((n + with_base) * (j->n_sets + 1), sizeof(choice_score *));
    int code = APP_OK;
    j->models = calloc(n + with_base, sizeof *j->models);
    if (places == NULL || j->models == NULL) {
        app_error("out of memory");
        free(places);
        return APP_FAILURE;
    }
    for (size_t i = 0; i < n + with_base && code == APP_OK; i++) {
        judged *out = &j->models[i];
        out->scores = places + i * (j->n_sets + 1);
        out->is_base = with_base && i == 0;
        code = judge_model(j, out->is_base ? o->base : models[i - with_base], out);
        j->n += code == APP_OK;
    }
    j->report.models = j->models;
    j->report.n = j->n;
    j->report.sets = j->sets;
    j->report.n_sets = j->n_sets;
    if (j->n > 0) { /* also what there was before a model that failed */
        int printed = report_print(&j->report, o->format);
        code = code == APP_OK ? printed : code;
    }
    if (code == APP_OK && o->picture != NULL) {
        code = report_draw(&j->report, o->picture);
    }
    for (size_t i = 0; i < (n + with_base) * (j->n_sets + 1); i++) {
        free(places[i]);
    }
    free(places);
    free(j->models);
    return code;
}

static int run_evaluate(const app_options *o) {
    job j = {.o = o};
    int code = check(o);
    code = code == APP_OK ? read_sets(&j) : code;
    code = code == APP_OK ? open_text(&j) : code;
    code = code == APP_OK ? judge_all(&j) : code;
    gw_free(j.base_ids);
    gw_session_free(j.base_session);
    app_close_model(j.base);
    base_file_close(&j.base_file);
    free(j.text.at);
    for (size_t i = 0; i < j.n_sets; i++) {
        judge_free_tasks(&j.sets[i]);
    }
    judge_free_tasks(&j.examples);
    free(j.sets);
    return code;
}

const app_command command_evaluate = {
    .name = "evaluate",
    .bit = CMD_EVALUATE,
    .usage = "[-m MODEL]... [-f TEXT] [--base MODEL] [--tasks FILE]... [OPTIONS]",
    .summary = "judge models by a text, a base model and tasks, in one table",
    .detail =
        "By a text: perplexity and bits per byte, over windows of -c tokens (the second half of\n"
        "each is scored, as llama.cpp's tool does) or, with --stride, over windows that overlap.\n"
        "Against a base, the model before it was made smaller: KL divergence with quantiles, the\n"
        "share of tokens that both find most probable, and how far the text's own tokens' \n"
        "probabilities moved; --base runs the base beside each model, --kl-divergence-base reads\n"
        "what llama.cpp or --save-all-logits wrote of it. By tasks with choices, --tasks:\n"
        "HellaSwag, WinoGrande, ARC, MMLU, OpenBookQA, PIQA and others of their form, as JSON\n"
        "lines from Hugging Face or in llama.cpp's files; acc, acc_norm and llama.cpp's mean,\n"
        "with 95% intervals, and how many tasks a model does better or worse than the first one.\n"
        "docs/evaluate.md has the definitions.\n",
    .examples = "  godwit evaluate -m q4.gguf -m q5.gguf -f text.txt --base folder/\n"
                "  godwit evaluate -m q4.gguf -m q5.gguf -f text.txt --base f16.gguf --picture "
                "loss.svg\n"
                "  godwit evaluate -m f16.gguf -f text.txt --save-all-logits f16.kld\n"
                "  godwit evaluate -m q4.gguf --kl-divergence-base f16.kld\n"
                "  godwit evaluate -m model.gguf --tasks hellaswag.jsonl --tasks winogrande.csv\n"
                "  godwit evaluate -m model.gguf --tasks mmlu.jsonl --shots 5 --shots-file "
                "dev.jsonl -o json\n",
    .operand = "--model",
    .run = run_evaluate,
};
