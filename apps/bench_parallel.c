/* apps/bench_parallel.c - `godwit bench --parallel`: many texts at once, as llama-batched-bench
 * times them: B prompts of PP tokens, TG tokens of an answer to each. */
#include <stdlib.h>
#include <string.h>

#include "apps/bench.h"
#include "apps/output.h"
#include "apps/signals.h"
#include "apps/speculation.h"

enum { PAGE = 64 };

typedef struct one_text {
    int read, done;
    int32_t generated;
    double last; /* token, in seconds; 0: none yet */
    struct parallel_run *run;
} one_text;

typedef struct parallel_run {
    int32_t n_prompt, n_gen, n;
    one_text *texts;
    int32_t left_to_read;
    double start, all_read; /* seconds */
    int64_t before;         /* tokens generated until all prompts were read */
    double *gaps;           /* between two tokens of a text, behind that */
    size_t n_gaps;
    char error[256];
} parallel_run;

typedef struct parallel_figures {
    double prompt_seconds, text_seconds, seconds, prompt_rate, text_rate, rate, median, slowest;
} parallel_figures;

static void listen(void *user, const gw_event *e) {
    one_text *t = user;
    parallel_run *run = t->run;
    double now = app_seconds();
    if (e->kind == GW_EVENT_PROMPT && e->n_read == e->n_prompt && !t->read) {
        t->read = 1;
        run->left_to_read--;
        run->all_read = run->left_to_read == 0 ? now : run->all_read;
    } else if (e->kind == GW_EVENT_TOKEN) {
        run->before += run->left_to_read > 0;
        if (run->left_to_read == 0 && t->last >= run->all_read && run->gaps != NULL) {
            run->gaps[run->n_gaps++] = now - t->last;
        }
        t->last = now;
        t->generated++;
    } else if (e->kind == GW_EVENT_DONE) {
        t->done = 1;
    } else if (e->kind == GW_EVENT_END && e->finish == GW_FINISH_ERROR) {
        snprintf(run->error, sizeof run->error, "%s", e->error);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int still_open(const parallel_run *run) {
    for (int32_t i = 0; i < run->n; i++) {
        if (!run->texts[i].done) {
            return 1;
        }
    }
    return 0;
}

/* Prompts have nothing in common; the most probable tokens, also after the end of a text. */
static int submit(gw_batch *batch, parallel_run *run, int32_t n_vocab, uint32_t salt) {
    int32_t *tokens = calloc((size_t)run->n_prompt, sizeof *tokens);
    gw_sampler_options greedy;
    gw_status status = GW_OK;
    if (tokens == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    gw_sampler_defaults(&greedy);
    greedy.temperature = 0;
    for (int32_t i = 0; i < run->n && status == GW_OK; i++) {
        gw_request *handle = NULL;
        for (int32_t k = 0; k < run->n_prompt; k++) {
            uint32_t x = (salt + (uint32_t)i) * 40503u + (uint32_t)k;
            tokens[k] = (int32_t)((x * 2654435761u >> 7) % (uint32_t)n_vocab);
        }
        gw_request_options o = {.tokens = tokens,
                                .n_tokens = (size_t)run->n_prompt,
                                .sampler = &greedy,
                                .ignore_eos = 1,
                                .max_tokens = run->n_gen,
                                .no_cache = 1,
                                .event = listen,
                                .user = &run->texts[i]};
        run->texts[i].run = run;
        status = gw_batch_submit(batch, &o, &handle);
        gw_request_free(handle);
    }
    free(tokens);
    return status == GW_OK ? APP_OK : app_fail(status);
}

static int time_once(gw_batch *batch, parallel_run *run, int32_t n_vocab, uint32_t salt,
                     parallel_figures *out) {
    memset(run->texts, 0, (size_t)run->n * sizeof *run->texts);
    run->left_to_read = run->n;
    run->before = 0;
    run->n_gaps = 0;
    run->error[0] = '\0';
    int code = submit(batch, run, n_vocab, salt);
    run->start = app_seconds();
    for (size_t work = 1; code == APP_OK && work > 0 && still_open(run);) {
        gw_status status = gw_batch_step(batch, &work);
        code = status != GW_OK ? app_fail(status) : signals_caught() != 0 ? APP_FAILURE : APP_OK;
    }
    if (code == APP_OK && run->error[0] != '\0') {
        app_error("%s", run->error);
        code = APP_FAILURE;
    }
    double end = app_seconds();
    int64_t all = 0;
    for (int32_t i = 0; i < run->n; i++) {
        all += run->texts[i].generated;
    }
    parallel_figures f = {.prompt_seconds = run->all_read - run->start,
                          .text_seconds = end - run->all_read,
                          .seconds = end - run->start};
    f.prompt_rate = (double)run->n * run->n_prompt / f.prompt_seconds;
    f.text_rate = f.text_seconds > 0 ? (double)(all - run->before) / f.text_seconds : 0;
    f.rate = ((double)run->n * run->n_prompt + (double)all) / f.seconds;
    if (run->n_gaps > 0) {
        qsort(run->gaps, run->n_gaps, sizeof *run->gaps, ascending);
        f.median = run->gaps[run->n_gaps / 2];
        f.slowest = run->gaps[(run->n_gaps - 1) * 99 / 100];
    }
    *out = f;
    return code;
}

static void add(parallel_figures *sum, const parallel_figures *f, double share) {
    sum->prompt_seconds += share * f->prompt_seconds;
    sum->text_seconds += share * f->text_seconds;
    sum->seconds += share * f->seconds;
    sum->prompt_rate += share * f->prompt_rate;
    sum->text_rate += share * f->text_rate;
    sum->rate += share * f->rate;
    sum->median += share * f->median;
    sum->slowest += share * f->slowest;
}

/* ---- one line -------------------------------------------------------------------------------- */

static void print_header(const char *format) {
    if (strcmp(format, "md") == 0) {
        out_text("|    PP |    TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |    "
                 "  T s |    S t/s | ms between | 99% ms |\n"
                 "|------:|------:|-----:|-------:|---------:|---------:|---------:|---------:|---"
                 "------:|---------:|-----------:|-------:|\n");
    } else if (strcmp(format, "csv") == 0) {
        out_text("pp,tg,pl,n_kv,t_pp,speed_pp,t_tg,speed_tg,t,speed,ms_between,ms_between_99\n");
    }
}

static void print_line(const char *format, const parallel_run *run, const parallel_figures *f,
                       size_t number) {
    const char *line =
        strcmp(format, "md") == 0
            ? "| %5d | %5d | %4d | %6d | %8.3f | %8.2f | %8.3f | %8.2f | %8.3f | %8.2f | %10.2f | "
              "%6.2f |\n"
        : strcmp(format, "csv") == 0
            ? "%d,%d,%d,%d,%.4f,%.2f,%.4f,%.2f,%.4f,%.2f,%.3f,%.3f\n"
            : "{\"pp\": %d, \"tg\": %d, \"pl\": %d, \"n_kv\": %d, \"t_pp\": %.4f, \"speed_pp\": "
              "%.2f, \"t_tg\": %.4f, \"speed_tg\": %.2f, \"t\": %.4f, \"speed\": %.2f, "
              "\"ms_between\": %.3f, \"ms_between_99\": %.3f}";
    if (strcmp(format, "json") == 0) {
        out_text(number > 0 ? ",\n  " : "[\n  ");
    }
    out_print(line, (int)run->n_prompt, (int)run->n_gen, (int)run->n,
              (int)(run->n * (run->n_prompt + run->n_gen)), f->prompt_seconds, f->prompt_rate,
              f->text_seconds, f->text_rate, f->seconds, f->rate, 1e3 * f->median,
              1e3 * f->slowest);
    if (strcmp(format, "jsonl") == 0) {
        out_text("\n");
    }
}

typedef struct bench_draft {
    gw_model *model; /* or NULL */
    int lookup;
} bench_draft;

/* ---- all of them ----------------------------------------------------------------------------- */

static int time_width(const app_options *o, gw_model *model, const gw_model_info *info,
                      const bench_draft *draft, parallel_run *run, size_t number) {
    gw_batch *batch = NULL;
    int32_t n_ctx = run->n_prompt + run->n_gen, pages = (n_ctx - 1) / PAGE + 1;
    gw_batch_options bo = {.n_ctx = n_ctx,
                           .chunk = o->batch_list.n > 0 ? o->batch_list.at[0] : 0,
                           .kv_type = o->kv_type,
                           .parallel = run->n,
                           .queue = run->n,
                           .cache_tokens = (int64_t)run->n * (pages + 1) * PAGE,
                           .no_sharing = 1,
                           .prompts_first = 1,
                           .draft_model = draft->model,
                           .draft_lookup = draft->lookup,
                           .draft_length = o->draft_length,
                           .draft_assume = o->assume_acceptance,
                           .cancel = signals_cancel()};
    parallel_figures sum = {0}, one;
    gw_status status = gw_batch_new(model, &bo, &batch);
    int code = status == GW_OK ? APP_OK : app_fail(status);
    run->texts = calloc((size_t)run->n, sizeof *run->texts);
    run->gaps = calloc((size_t)run->n * (size_t)run->n_gen + 1, sizeof *run->gaps);
    if (code == APP_OK && (run->texts == NULL || run->gaps == NULL)) {
        app_error("out of memory");
        code = APP_FAILURE;
    }
    for (int32_t i = 0; i <= o->repetitions && code == APP_OK; i++) { /* the first warms up */
        code = time_once(batch, run, info->n_vocab, (uint32_t)i * 128, &one);
        if (i > 0) {
            add(&sum, &one, 1.0 / o->repetitions);
        }
    }
    if (code == APP_OK) {
        print_line(o->format, run, &sum, number);
        code = out_flush() == 0 ? APP_OK : APP_FAILURE;
    }
    gw_batch_free(batch);
    free(run->texts);
    free(run->gaps);
    return code;
}

static int32_t largest(const app_ints *list) {
    int32_t most = 0;
    for (size_t i = 0; i < list->n; i++) {
        most = list->at[i] > most ? list->at[i] : most;
    }
    return most;
}

int bench_parallel(const app_options *o) {
    const char *path = o->models.n > 0 ? o->models.at[0] : NULL;
    int threads = o->thread_list.n > 0 ? o->thread_list.at[0] : 0;
    int32_t n_ctx = largest(&o->n_prompt) + largest(&o->n_gen);
    gw_model *model = NULL;
    gw_model_info info;
    size_t number = 0;
    if (largest(&o->parallel) > GW_PARALLEL_MAX) {
        app_error("--parallel: at most %d", GW_PARALLEL_MAX);
        return APP_USAGE;
    }
    /* The cache of all is placed together with the layers. */
    app_need need = {.n_ctx = largest(&o->parallel) * (n_ctx + PAGE),
                     .batch = o->batch_list.n > 0 ? o->batch_list.at[0] : 0};
    bench_draft draft = {0};
    int code = app_open_model(o, path, threads, &need, &model);
    if (code == APP_OK) {
        code = draft_open_many(o, model, path, need.n_ctx, &draft.model, &draft.lookup);
    }
    if (code == APP_OK) {
        gw_model_describe(model, &info);
        print_header(o->format);
    }
    for (size_t p = 0; p < o->n_prompt.n && code == APP_OK; p++) {
        for (size_t g = 0; g < o->n_gen.n && code == APP_OK; g++) {
            for (size_t b = 0; b < o->parallel.n && code == APP_OK; b++) {
                parallel_run run = {.n_prompt = o->n_prompt.at[p] > 0 ? o->n_prompt.at[p] : 1,
                                    .n_gen = o->n_gen.at[g] > 0 ? o->n_gen.at[g] : 1,
                                    .n = o->parallel.at[b]};
                code = time_width(o, model, &info, &draft, &run, number++);
            }
        }
    }
    if (code == APP_OK && strcmp(o->format, "json") == 0) {
        out_text("\n]\n");
    }
    if (code == APP_OK && strcmp(o->format, "md") == 0) {
        out_print("\n%s %s, %s\n", info.name, info.format, info.device);
    }
    app_close_model(draft.model);
    app_close_model(model);
    return code == APP_OK && out_flush() != 0 ? APP_FAILURE : code;
}
