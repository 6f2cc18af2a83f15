/* apps/bench.c - `godwit bench`: times prompts and generation against this machine's roof. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/bench.h"
#include "apps/output.h"
#include "apps/pictures.h"
#include "apps/signals.h"
#include "core/base/os.h"

enum {
    WARM_GEN = 16,          /* tokens of a warm-up, at most                                    */
    PER_READING = 3,        /* seconds of tokens for one of reading memory between them        */
    READ_BESIDE = 256 << 20 /* bytes of weights: more than caches hold, here and of any server */
};

typedef struct bench_test {
    int32_t n_prompt, n_gen, n_depth;
    int drafted;
} bench_test;

typedef struct bench_job {
    const app_options *o;
    bench_test *tests;
    size_t n_tests;
    const int32_t *batches; /* prompt tokens of a pass; 0: the session's own */
    size_t n_batches;
    int32_t n_ctx;
    const char *path;   /* of the model that is timed */
    app_draft draft;    /* of the session; drafter NULL without --draft */
    gw_sampler *greedy; /* of all passes; devices can draw in its place */
    bench_printer printer;
    bench_result *kept; /* with --ops and md: printed after the table, per model */
    size_t n_kept;
} bench_job;

/* ---- the tests ------------------------------------------------------------------------------- */

static void add_test(bench_job *job, int32_t n_prompt, int32_t n_gen) {
    const app_options *o = job->o;
    for (size_t d = 0; d < o->n_depth.n && (n_prompt > 0 || n_gen > 0); d++) {
        int32_t n_depth = o->n_depth.at[d], n_ctx = n_depth + n_prompt + n_gen;
        job->tests[job->n_tests++] = (bench_test){n_prompt, n_gen, n_depth, 0};
        if (n_gen > 0 && o->draft != NULL) {
            job->tests[job->n_tests++] = (bench_test){n_prompt, n_gen, n_depth, 1};
            n_ctx += 1 + GW_DECODE_MAX; /* a text needs a first token; drafts some room */
        }
        job->n_ctx = n_ctx > job->n_ctx ? n_ctx : job->n_ctx;
    }
}

static int list_tests(bench_job *job) {
    const app_options *o = job->o;
    if (o->pg.n % 2 != 0) {
        app_error("-pg: needs pairs of numbers PP,TG");
        return APP_USAGE;
    }
    job->tests =
        calloc(2 * o->n_depth.n * (o->n_prompt.n + o->n_gen.n + o->pg.n) + 1, sizeof *job->tests);
    if (job->tests == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    for (size_t i = 0; i < o->n_prompt.n; i++) {
        add_test(job, o->n_prompt.at[i], 0);
    }
    for (size_t i = 0; i < o->n_gen.n; i++) {
        add_test(job, 0, o->n_gen.at[i]);
    }
    for (size_t i = 0; i + 1 < o->pg.n; i += 2) {
        add_test(job, o->pg.at[i], o->pg.at[i + 1]);
    }
    if (job->n_tests == 0) {
        app_error("nothing to do: -p 0, -n 0 and no -pg");
        return APP_USAGE;
    }
    return APP_OK;
}

/* Any tokens do: their values do not change the work. */
static int32_t token_at(int32_t i, int32_t n_vocab) {
    return (int32_t)(((uint32_t)i * 2654435761u >> 7) % (uint32_t)n_vocab);
}

/* What models that read a source text read before the first pass. */
static gw_status read_source(const bench_job *job, gw_session *session, const int32_t *tokens,
                             const bench_result *r) {
    enum { SOURCE = 128 };
    size_t n = job->n_ctx < SOURCE ? (size_t)job->n_ctx : SOURCE;
    if (!gw_model_reads_source(r->model)) {
        return GW_OK;
    }
    gw_status status = gw_session_source(session, tokens, n);
    return status == GW_OK && r->draft != NULL ? gw_drafter_source(job->draft.drafter, tokens, n)
                                               : status;
}

/* The text that every pass of a test continues: no part of what is timed. */
static gw_status go_deep(const bench_job *job, gw_session *session, const int32_t *tokens,
                         const bench_result *r) {
    gw_status status = read_source(job, session, tokens, r);
    if (status == GW_OK) {
        status = gw_session_rewind(session, 0);
    }
    if (status == GW_OK && r->n_depth > 0) {
        status = gw_session_prefill(session, tokens, (size_t)r->n_depth);
    }
    if (status == GW_OK && r->draft != NULL) {
        status = gw_drafter_rewind(job->draft.drafter, 0);
    }
    if (status == GW_OK && r->draft != NULL && r->n_depth > 0) {
        status = gw_drafter_prompt(job->draft.drafter, tokens, (size_t)r->n_depth);
    }
    return status;
}

/* What is generated is the most probable text, chosen where the logits are. */
static gw_status pass(const bench_job *job, gw_session *session, const int32_t *tokens,
                      const bench_result *r, int32_t n_prompt, int32_t n_gen) {
    const int32_t *mine = tokens + r->n_depth;
    gw_status status = gw_session_rewind(session, r->n_depth);
    if (status == GW_OK && n_prompt > 0) {
        status = gw_session_prefill(session, mine, (size_t)n_prompt);
    }
    int32_t token = n_gen > 0 ? mine[n_prompt] : 0;
    for (int32_t i = 0; i < n_gen && status == GW_OK; i++) {
        status = gw_session_next(session, job->greedy, token, 0, &token);
    }
    return status;
}

/* The same with drafts: what is generated is the model's own text then, and goes on behind its end.
 */
static gw_status drafted_pass(const bench_job *job, gw_session *session, const int32_t *tokens,
                              const bench_result *r, int32_t n_gen) {
    gw_drafter *drafter = job->draft.drafter;
    const int32_t *mine = tokens + r->n_depth;
    size_t n_text = r->n_prompt > 0 ? (size_t)r->n_prompt : 1;
    gw_status status = gw_session_rewind(session, r->n_depth);
    if (status == GW_OK) {
        status = gw_drafter_rewind(drafter, r->n_depth);
    }
    if (status == GW_OK) { /* without a prompt by a step, as the plain pass does it */
        status = r->n_prompt > 0 ? gw_session_prefill(session, mine, n_text)
                                 : gw_session_decode(session, mine, n_text);
    }
    if (status == GW_OK) {
        status = gw_drafter_prompt(drafter, mine, n_text);
    }
    for (int32_t done = 0; done < n_gen && status == GW_OK;) {
        int32_t out[GW_DECODE_MAX];
        size_t n = 0, left = (size_t)(n_gen - done);
        status = gw_drafter_next(drafter, job->greedy, out,
                                 left < GW_DECODE_MAX ? left : GW_DECODE_MAX, &n);
        done += (int32_t)n;
    }
    return status;
}

/* Each repetition is a plain pass and a drafted one, so that both meet the same machine. */
static gw_status time_drafts(const bench_job *job, gw_session *session, const int32_t *tokens,
                             bench_result *r) {
    int32_t warm_gen = r->n_gen < 32 ? r->n_gen : 32;
    gw_status status = go_deep(job, session, tokens, r);
    if (status == GW_OK) {
        status = drafted_pass(job, session, tokens, r, warm_gen);
    }
    if (status == GW_OK) {
        status = gw_model_measure_roof(r->model, &r->roof);
    }
    gw_draft_stats before;
    gw_drafter_stats(job->draft.drafter, &before);
    for (int32_t i = 0; i < job->o->repetitions && status == GW_OK; i++) {
        double start = app_seconds();
        status = pass(job, session, tokens, r, r->n_prompt, r->n_gen);
        double middle = app_seconds();
        if (status == GW_OK) {
            status = drafted_pass(job, session, tokens, r, r->n_gen);
        }
        r->plain_seconds += middle - start;
        r->seconds[i] = app_seconds() - middle;
        r->n = i + 1;
    }
    r->figures = draft_figures_of(&job->draft, &before);
    return status;
}

/* Times per kernel go to r->kernels; returns how many. */
static size_t profiled_pass(const bench_job *job, gw_session *session, const int32_t *tokens,
                            bench_result *r, int32_t n_gen, gw_status *status) {
    gw_session_profile(session, 1);
    *status = pass(job, session, tokens, r, r->n_prompt, n_gen);
    size_t n = gw_session_kernel_times(session, r->kernels, KERNELS_MAX);
    gw_session_profile(session, 0);
    return n < KERNELS_MAX ? n : KERNELS_MAX;
}

/* Operations of the linear layers (a gated unit is two of them): what the integer or float peak
 * is about. */
static double linear_gops(const gw_kernel_time *rows, size_t n) {
    double ops = 0;
    for (size_t i = 0; i < n; i++) {
        int linear =
            strstr(rows[i].name, ".linear.") != NULL || strstr(rows[i].name, ".glu.") != NULL;
        ops += linear ? rows[i].ops : 0;
    }
    return ops * 1e-9;
}

/* The roof drifts with whatever else the machine does, so it is measured before and after every
 * repetition, or beside its tokens; the share is a mean over repetitions, each against its own
 * roof. These sums turn that into one roof: speed / roof_of() is the mean share. A peak that the
 * device does not measure is 0 and stays so. */
typedef struct roof_sums {
    double speed, read, int8, f32; /* of speed, and of speed over each roof */
} roof_sums;

static void add_repetition(roof_sums *sums, double seconds, const gw_roof *roof) {
    if (seconds > 0) {
        sums->speed += 1 / seconds;
        sums->read += 1 / seconds / roof->read_gbps;
        sums->int8 += 1 / seconds / roof->int8_gops;
        sums->f32 += 1 / seconds / roof->f32_gflops;
    }
}

static gw_roof roof_of(const roof_sums *sums) {
    return (gw_roof){.read_gbps = sums->speed / sums->read,
                     .int8_gops = sums->speed / sums->int8,
                     .f32_gflops = sums->speed / sums->f32};
}

/* A pass between two measurements: its roof is their mean. */
static gw_status pass_between(const bench_job *job, gw_session *session, const int32_t *tokens,
                              const bench_result *r, gw_roof *before, gw_roof *mean,
                              double *seconds) {
    gw_roof after = *before;
    double start = app_seconds();
    gw_status status = pass(job, session, tokens, r, r->n_prompt, r->n_gen);
    *seconds = app_seconds() - start;
    if (status == GW_OK) {
        status = gw_model_measure_roof(r->model, &after);
    }
    *mean = (gw_roof){.read_gbps = (before->read_gbps + after.read_gbps) / 2,
                      .int8_gops = (before->int8_gops + after.int8_gops) / 2,
                      .f32_gflops = (before->f32_gflops + after.f32_gflops) / 2};
    *before = after;
    return status;
}

/* Generation, stopped for a reading of memory before it, after it, and whenever it has taken
 * PER_READING times as long as the last reading did: *seconds without them, and *gbps of all of
 * them together, bytes over time, as a token's are. */
static gw_status pass_beside(const bench_job *job, gw_session *session, int32_t token,
                             const bench_result *r, double *gbps, double *seconds) {
    double rate = 0, start = app_seconds();
    gw_status status = gw_session_rewind(session, r->n_depth);
    if (status == GW_OK) {
        status = gw_model_read_memory(r->model, &rate);
    }
    double slow = 1 / rate, taken = 1; /* of the readings: seconds per GB; how many */
    *seconds = 0;
    for (int32_t i = 0; i < r->n_gen && status == GW_OK;) {
        double begin = app_seconds(), end = begin;
        while (i < r->n_gen && end - begin < PER_READING * (begin - start) && status == GW_OK) {
            status = gw_session_next(session, job->greedy, token, 0, &token);
            end = app_seconds();
            i++;
        }
        *seconds += end - begin;
        start = app_seconds();
        if (status == GW_OK) {
            status = gw_model_read_memory(r->model, &rate);
        }
        slow += 1 / rate;
        taken += 1;
    }
    *gbps = taken / slow;
    return status;
}

/* Weights that caches hold would be thrown out of them by a reading. */
static gw_status can_read_beside(const bench_result *r, int *can) {
    double rate = 0;
    gw_status status = GW_OK;
    if (r->n_prompt == 0 && r->info.decode_bytes >= READ_BESIDE) {
        status = gw_model_read_memory(r->model, &rate);
    }
    *can = rate > 0;
    return status;
}

static gw_status repeat(const bench_job *job, gw_session *session, const int32_t *tokens,
                        bench_result *r) {
    roof_sums sums = {.speed = 0};
    gw_roof before, roof;
    int beside = 0;
    gw_status status = can_read_beside(r, &beside);
    if (status == GW_OK) {
        status = gw_model_measure_roof(r->model, &before);
    }
    for (int32_t i = 0; i < job->o->repetitions && status == GW_OK; i++) {
        roof = before;
        status = beside ? pass_beside(job, session, tokens[r->n_depth], r, &roof.read_gbps,
                                      &r->seconds[i])
                        : pass_between(job, session, tokens, r, &before, &roof, &r->seconds[i]);
        r->n = i + 1;
        add_repetition(&sums, r->seconds[i], &roof);
    }
    r->roof = roof_of(&sums);
    return status;
}

static gw_status time_test(const bench_job *job, gw_session *session, const int32_t *tokens,
                           bench_result *r) {
    const app_options *o = job->o;
    gw_status status = go_deep(job, session, tokens, r);
    /* The warm-up counts the operations of a prompt; of a generation one step is enough. */
    if (status == GW_OK) {
        size_t n = profiled_pass(job, session, tokens, r, r->n_gen > 0, &status);
        r->prompt_gops = r->n_gen == 0 ? linear_gops(r->kernels, n) : 0;
    }
    /* A plan tries ways of reading in its first steps (docs/performance.md). */
    if (status == GW_OK && r->n_gen > 0) {
        status = pass(job, session, tokens, r, 0, r->n_gen < WARM_GEN ? r->n_gen : WARM_GEN);
    }
    if (status == GW_OK) {
        status = repeat(job, session, tokens, r);
    }
    if (o->ops && status == GW_OK) {
        double start = app_seconds();
        r->n_kernels = profiled_pass(job, session, tokens, r, r->n_gen, &status);
        r->profiled_seconds = app_seconds() - start;
    }
    return status;
}

/* ---- model by model -------------------------------------------------------------------------- */

static int run_test(bench_job *job, gw_session *session, const int32_t *tokens,
                    const bench_result *base, const bench_test *test) {
    bench_result *r = malloc(sizeof *r);
    if (r == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    *r = *base;
    r->n_prompt = test->n_prompt;
    r->n_gen = test->n_gen;
    r->n_depth = test->n_depth;
    time_t now = time(NULL);
    struct tm utc;
    strftime(r->when, sizeof r->when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    r->seconds = calloc((size_t)job->o->repetitions, sizeof *r->seconds);
    gw_status status = GW_OK;
    int code = APP_OK;
    if (r->seconds == NULL) {
        app_error("out of memory");
        code = APP_FAILURE;
    } else {
        r->draft = test->drafted ? &job->draft : NULL;
        r->draft_options[0] = job->o->draft_accept;
        r->draft_options[1] = job->o->draft_length;
        status = test->drafted ? time_drafts(job, session, tokens, r)
                               : time_test(job, session, tokens, r);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code == APP_OK) {
        bench_print_row(&job->printer, r);
        code = out_flush() == 0 ? APP_OK : APP_FAILURE;
    }
    if (code == APP_OK && job->o->ops && !test->drafted && strcmp(job->o->format, "md") == 0) {
        job->kept[job->n_kept++] = *r;
    }
    free(r->seconds);
    free(r);
    return code;
}

/* The most probable token. */
static int open_greedy(bench_job *job, const gw_model *model) {
    gw_sampler_options options;
    gw_sampler_defaults(&options);
    options.temperature = 0;
    gw_status status = gw_sampler_new(model, &options, &job->greedy);
    return status == GW_OK ? APP_OK : app_fail(status);
}

static void close_drafts(bench_job *job) {
    gw_sampler_free(job->greedy);
    job->greedy = NULL;
    draft_close(&job->draft);
}

static int run_batches(bench_job *job, gw_model *model, bench_result *base) {
    const app_options *o = job->o;
    int32_t *tokens = calloc((size_t)job->n_ctx, sizeof *tokens);
    int code = APP_OK;
    if (tokens == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    for (int32_t i = 0; i < job->n_ctx; i++) {
        tokens[i] = token_at(i, base->info.n_vocab);
    }
    for (size_t b = 0; b < job->n_batches && code == APP_OK; b++) {
        gw_session *session = NULL;
        code = app_open_session(o, model, job->n_ctx, job->batches[b], &session);
        if (code == APP_OK) {
            base->batch = job->batches[b] > 0 ? job->batches[b] : gw_session_chunk(session);
            code = open_greedy(job, model);
        }
        if (code == APP_OK) {
            code = draft_open(o, model, job->path, session, 1, &job->draft);
        }
        for (size_t t = 0; t < job->n_tests && code == APP_OK; t++) {
            code = run_test(job, session, tokens, base, &job->tests[t]);
        }
        close_drafts(job);
        gw_session_free(session);
    }
    free(tokens);
    return code;
}

/* The kernels' names belong to the model: their tables are printed before it goes. */
static void print_kept(bench_job *job) {
    for (size_t i = 0; i < job->n_kept; i++) {
        bench_print_kernels(&job->kept[i]);
    }
    job->n_kept = 0;
}

/* What is expected where the model is placed; devices are opened and closed for it. */
static int forecast(const app_options *o, const char *path, int32_t threads, const app_need *need,
                    bench_result *base) {
    gw_model_options options;
    gw_forecast *f = NULL;
    int code = app_model_options(o, path, threads, need, &options);
    if (code != APP_OK) {
        return code;
    }
    gw_status status = gw_forecast_new(&options, &f);
    if (status != GW_OK) {
        return app_fail(status);
    }
    const gw_forecast_row *row = &f->rows[f->n_rows > 1 ? f->chosen : 0];
    base->forecast_prompt = row->prompt_rate;
    base->forecast_token = row->token_rate;
    base->forecast_chunk = f->chunk;
    gw_forecast_free(f);
    return APP_OK;
}

static int run_model(bench_job *job, const char *path, int32_t threads) {
    gw_model *model = NULL;
    bench_result *base = calloc(1, sizeof *base);
    int code = APP_FAILURE;
    if (base == NULL) {
        app_error("out of memory");
    } else {
        app_need need = {.n_ctx = job->n_ctx};
        for (size_t i = 0; i < job->n_batches; i++) {
            need.batch = job->batches[i] > need.batch ? job->batches[i] : need.batch;
        }
        code = job->o->forecast ? forecast(job->o, path, threads, &need, base) : APP_OK;
        code = code == APP_OK ? app_open_model(job->o, path, threads, &need, &model) : code;
    }
    if (code == APP_OK) {
        base->path = path != NULL ? path : "built-in";
        job->path = path;
        base->kv_type = job->o->kv_type;
        base->model = model;
        gw_model_describe(model, &base->info);
        code = run_batches(job, model, base);
        print_kept(job);
    }
    app_close_model(model);
    free(base);
    return code;
}

static int run_bench(const app_options *o) {
    static const int32_t default_threads[1] = {0}, default_batches[1] = {0};
    static const char *const default_model[1] = {NULL};
    bench_job job = {.o = o, .batches = default_batches, .n_batches = 1};
    if (o->gemm != NULL) {
        return bench_gemm(o);
    }
    if (o->exchange != NULL) {
        return bench_exchange(o);
    }
    if (o->image_size != NULL) {
        return bench_image(o);
    }
    if (o->parallel.n > 0) {
        return bench_parallel(o);
    }
    if (o->batch_list.n > 0) {
        job.batches = o->batch_list.at;
        job.n_batches = o->batch_list.n;
    }
    job.printer = (bench_printer){.format = o->format, .show_batch = job.n_batches > 1};
    job.printer.show_forecast = o->forecast;
    if (o->ops && strcmp(o->format, "csv") == 0) {
        app_error("--ops: a csv table has no place for it: use -o md, json or jsonl");
        return APP_USAGE;
    }
    int code = list_tests(&job);
    code = code == APP_OK ? pictures_check(o) : code;
    if (code == APP_OK && o->assume_acceptance > 0 &&
        (o->draft == NULL || strcmp(o->draft, "ngram") == 0 || strcmp(o->draft, "suffix") == 0)) {
        app_error("--assume-acceptance needs the model that drafts: --draft MODEL");
        code = APP_USAGE;
    }
    size_t n_threads = o->thread_list.n > 0 ? o->thread_list.n : 1;
    size_t n_models = o->models.n > 0 ? o->models.n : 1;
    const int32_t *threads = o->thread_list.n > 0 ? o->thread_list.at : default_threads;
    const char *const *models = o->models.n > 0 ? o->models.at : default_model;
    if (code == APP_OK) {
        job.kept = calloc(job.n_tests * job.n_batches, sizeof *job.kept);
        if (job.kept == NULL) {
            app_error("out of memory");
            code = APP_FAILURE;
        }
    }
    if (code == APP_OK) {
        bench_print_begin(&job.printer);
        for (size_t m = 0; m < n_models && code == APP_OK; m++) {
            for (size_t t = 0; t < n_threads && code == APP_OK; t++) {
                code = run_model(&job, models[m], threads[t]);
            }
        }
        bench_print_end(&job.printer);
    }
    free(job.kept);
    free(job.tests);
    return code;
}

const app_command command_bench = {
    .name = "bench",
    .bit = CMD_BENCH,
    .usage = "[-m MODEL]... [-p N,...] [-n N,...] [-d N,...] [OPTIONS]",
    .summary = "time prompts and generation against this machine's roof",
    .detail =
        "Times pp (reading a prompt of N tokens) and tg (generating N tokens, the most probable\n"
        "ones, one by one) as llama-bench does: a warm-up, then -r repetitions, mean and standard\n"
        "deviation. With -d they go on behind a text of that many tokens. Lists multiply. Around\n"
        "each repetition the roof is measured: the read bandwidth for tg (the share of it that\n"
        "weights take is the MBU), the int8 or, for float weights, fp32 peak for pp. On the CPU a\n"
        "tg of weights that no cache holds is stopped for readings of memory instead, whose time\n"
        "is not counted. A model that fits in the caches can exceed the bandwidth of memory. With\n"
        "--draft every tg is timed with drafts as well, each time behind one without. --parallel\n"
        "times many texts at once: the seconds until all prompts are read (T_PP), those of the\n"
        "tokens behind that (T_TG), and the time between two tokens of a text, its median and "
        "what\n"
        "99 of 100 do not exceed; with --draft all of them with drafts. --image times how "
        "pictures\n"
        "are resized and cut into patches, and the vision tower over those, apart.\n",
    .examples = "  godwit bench -p 64 -n 32 -r 2\n"
                "  godwit bench -m model.gguf -p 512 -n 128 -t 1,2 -o json\n"
                "  godwit bench -p 0 -n 32 -d 0,256 -r 2\n"
                "  godwit bench -p 128 -n 32 -r 2 --ops\n"
                "  godwit bench -p 0 -n 64 -r 2 --draft ngram\n"
                "  godwit bench -p 32 -n 16 --parallel 1,4 -r 1\n"
                "  godwit bench --gemm q4_0:K=4096,N=4096,M=1,16\n",
    .operand = "--model",
    .run = run_bench,
};
