/* apps/run.c - `godwit run`: continues a text. Text on stdout as it comes, all else on stderr. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/output.h"
#include "apps/signals.h"
#include "apps/speculation.h"

typedef struct run_job {
    const app_options *o;
    gw_model *model;
    gw_session *session;
    gw_sampler *sampler;
    app_draft draft; /* drafter NULL: one token per pass */
    gw_stream *stream;
    gw_model_info info;
    int32_t *prompt;
    size_t n_prompt;
    char last; /* byte written; 0 before the first */
    const char *ended;
    char seed_text[24]; /* JSON numbers do not hold 64 bits everywhere */
    double started, prompt_seconds, first_token, text_seconds;
    int32_t generated, passes;
    int32_t timed;   /* tokens that came in text_seconds */
    int32_t pending; /* the last token, not yet in the session; -1: none */
} run_job;

/* ---- text out -------------------------------------------------------------------------------- */

static int show(run_job *job, const char *text, size_t bytes) {
    if (bytes > 0) {
        job->last = text[bytes - 1];
    }
    return out_write(text, bytes) == 0 ? APP_OK : APP_FAILURE;
}

/* The spelling of a token that the stream leaves out because it is a special one. */
static int show_special(run_job *job, int32_t id) {
    char *hidden = NULL, *spelled = NULL;
    size_t n_hidden = 0, n_spelled = 0;
    gw_status status = gw_detokenize(job->model, &id, 1, 0, &hidden, &n_hidden);
    if (status == GW_OK) {
        status = gw_detokenize(job->model, &id, 1, 1, &spelled, &n_spelled);
    }
    int code = status == GW_OK ? APP_OK : app_fail(status);
    if (code == APP_OK && n_hidden == 0 && n_spelled > 0) {
        code = show(job, spelled, n_spelled);
    }
    gw_free(hidden);
    gw_free(spelled);
    return code;
}

/* id: -1 at the end of the text. */
static int emit(run_job *job, int32_t id, int visible) {
    const char *text;
    size_t bytes;
    gw_status status = gw_stream_push(job->stream, id, &text, &bytes);
    if (status != GW_OK) {
        return app_fail(status);
    }
    if (!visible) {
        return APP_OK;
    }
    if (bytes == 0 && id >= 0 && job->o->special) {
        return show_special(job, id);
    }
    return show(job, text, bytes);
}

/* ---- setting up ------------------------------------------------------------------------------ */

static int open_sampler(run_job *job) {
    const app_options *o = job->o;
    size_t n = 0, capacity = o->n_bias + (o->ignore_eos ? (size_t)job->info.n_vocab : 0);
    gw_logit_bias *bias = calloc(capacity + 1, sizeof *bias);
    if (bias == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    for (; n < o->n_bias; n++) {
        bias[n] = o->bias[n];
    }
    for (int32_t id = 0; o->ignore_eos && id < job->info.n_vocab; id++) {
        if (gw_token_is_end(job->model, id)) {
            bias[n++] = (gw_logit_bias){.token = id, .bias = -INFINITY};
        }
    }
    gw_sampler_options options;
    gw_sampler_defaults(&options);
    options.seed = o->seed;
    options.temperature = (float)o->temperature;
    options.top_k = o->top_k;
    options.top_p = (float)o->top_p;
    options.min_p = (float)o->min_p;
    options.typical_p = (float)o->typical;
    options.repeat_penalty = (float)o->repeat_penalty;
    options.presence_penalty = (float)o->presence_penalty;
    options.frequency_penalty = (float)o->frequency_penalty;
    options.repeat_last_n = o->repeat_last_n;
    options.order = o->samplers;
    options.bias = bias;
    options.n_bias = n;
    gw_status status = gw_sampler_new(job->model, &options, &job->sampler);
    free(bias);
    return status == GW_OK ? APP_OK : app_fail(status);
}

static int take_prompt(run_job *job) {
    const app_options *o = job->o;
    app_text text = {0};
    int code = app_read_prompt(o, "Once upon a time", 1, &text);
    if (code == APP_OK) {
        code = app_tokenize(job->model, &text, GW_TEXT_BOS | (o->special ? GW_TEXT_SPECIAL : 0),
                            &job->prompt, &job->n_prompt);
    }
    free(text.at);
    if (code == APP_OK && job->n_prompt == 0) {
        app_error("the prompt is empty, and this model has no start token to begin with");
        code = APP_FAILURE;
    }
    return code;
}

static int open_session(run_job *job) {
    int32_t trained = job->info.n_ctx_train, n_ctx = job->o->n_ctx;
    if (n_ctx < 0) {
        n_ctx = trained > 0 && trained < 4096 ? trained : 4096;
    } else if (n_ctx == 0) {
        n_ctx = trained;
    }
    if (job->n_prompt > (size_t)n_ctx) {
        app_error("the prompt needs %zu tokens, context is %d (-c sets it)", job->n_prompt,
                  (int)n_ctx);
        return APP_FAILURE;
    }
    return app_open_session(job->o, job->model, n_ctx, job->o->batch, &job->session);
}

/* ---- generating ------------------------------------------------------------------------------ */

static int read_prompt(run_job *job) {
    double start = app_seconds();
    size_t slice = (size_t)job->o->batch;
    app_progress progress;
    progress_begin(&progress, "reading");
    gw_status status = GW_OK;
    for (size_t at = 0; at < job->n_prompt && status == GW_OK; at += slice) {
        size_t n = job->n_prompt - at < slice ? job->n_prompt - at : slice;
        progress_update(&progress, at, job->n_prompt, NULL);
        status = gw_session_prefill(job->session, job->prompt + at, n);
        if (status == GW_OK && job->draft.drafter != NULL) {
            status = gw_drafter_prompt(job->draft.drafter, job->prompt + at, n);
        }
    }
    progress_end(&progress);
    if (status != GW_OK) {
        return app_fail(status);
    }
    job->prompt_seconds = app_seconds() - start;
    for (size_t i = 0; i < job->n_prompt; i++) {
        int code = emit(job, job->prompt[i], !job->o->no_display_prompt);
        status = gw_sampler_accept(job->sampler, job->prompt[i]);
        if (code != APP_OK || status != GW_OK) {
            return code != APP_OK ? code : app_fail(status);
        }
    }
    return out_flush() == 0 ? APP_OK : APP_FAILURE;
}

/* One token by one pass; the first one needs none. */
static gw_status one_token(run_job *job, int32_t *token) {
    if (job->pending >= 0) {
        gw_status status = gw_session_decode(job->session, &job->pending, 1);
        if (status != GW_OK) {
            return status;
        }
        job->passes++;
    }
    const float *logits = gw_session_logits(job->session, 0);
    gw_status status = gw_sampler_pick(job->sampler, logits, gw_session_pos(job->session), token);
    if (status == GW_OK && !gw_token_is_end(job->model, *token)) {
        status = gw_sampler_accept(job->sampler, *token);
    }
    return status;
}

/* The next tokens of the text, tokens [GW_DECODE_MAX]. */
static gw_status next_tokens(run_job *job, int32_t *tokens, size_t *n) {
    gw_status status;
    if (job->draft.drafter != NULL) {
        int32_t left = job->o->n_predict < 0 ? GW_DECODE_MAX : job->o->n_predict - job->generated;
        size_t most = left < GW_DECODE_MAX ? (size_t)left : GW_DECODE_MAX;
        status = gw_drafter_next(job->draft.drafter, job->sampler, tokens, most, n);
        job->passes += job->pending >= 0;
    } else {
        *n = 1;
        status = one_token(job, tokens);
    }
    if (status == GW_OK) {
        job->pending = tokens[*n - 1];
    }
    return status;
}

/* Show a token; *end when the text ends with it. */
static int show_token(run_job *job, int32_t token, int *end) {
    *end = !job->o->ignore_eos && gw_token_is_end(job->model, token);
    if (*end) {
        return job->o->special ? emit(job, token, 1) : APP_OK;
    }
    job->generated++;
    return emit(job, token, 1);
}

static int generate(run_job *job) {
    double start = 0;
    int32_t limit = job->o->n_predict, room = gw_session_n_ctx(job->session);
    int code = APP_OK, end = 0;
    job->pending = -1;
    job->ended = "as long as asked for";
    while (code == APP_OK && !end && (limit < 0 || job->generated < limit)) {
        int32_t tokens[GW_DECODE_MAX];
        size_t n = 0;
        if (job->pending >= 0 && gw_session_pos(job->session) == room) {
            job->ended = "context full";
            break;
        }
        gw_status status = next_tokens(job, tokens, &n);
        if (status != GW_OK) {
            return app_fail(status);
        }
        double now = app_seconds();
        if (start == 0) {
            start = now;
            job->first_token = now - job->started;
        } else {
            job->timed += (int32_t)n;
            job->text_seconds = now - start;
        }
        for (size_t i = 0; i < n && code == APP_OK; i++) {
            code = show_token(job, tokens[i], &end);
        }
        code = code == APP_OK && out_flush() != 0 ? APP_FAILURE : code;
    }
    job->ended = end ? "end of text" : job->ended;
    return code;
}

/* ---- the summary ----------------------------------------------------------------------------- */

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

static const char *how_ended(const run_job *job) {
    return signals_caught() != 0 ? "interrupted" : job->ended;
}

static double read_gbps(const run_job *job) {
    return rate(job->passes, job->text_seconds) * (double)job->info.decode_bytes * 1e-9;
}

/* Read bandwidth of this machine, measured now; 0 when it makes no sense. */
static double measured_gbps(const run_job *job) {
    gw_roof roof;
    if (job->passes == 0 || signals_caught() != 0) {
        return 0;
    }
    signals_at_once();
    return gw_measure_roof(job->info.threads, &roof) == GW_OK ? roof.read_gbps : 0;
}

static void summary(const run_job *job) {
    const gw_model_info *info = &job->info;
    char size[32];
    double gbps = read_gbps(job);
    app_note("\nmodel   %s, %s %s, %s; %s", info->name, info->architecture, info->format,
             app_bytes(info->weight_bytes, size), info->device);
    app_note("load    %.3f s; context %d, seed %" PRIu64, info->load_seconds,
             (int)gw_session_n_ctx(job->session), job->o->seed);
    app_note("prompt  %zu tokens in %.3f s, %.1f tok/s; first token %.3f s after the start",
             job->n_prompt, job->prompt_seconds, rate((double)job->n_prompt, job->prompt_seconds),
             job->first_token);
    app_note("text    %d tokens in %.3f s, %.1f tok/s, %.2f GB/s; %s", (int)job->generated,
             job->text_seconds, rate(job->timed, job->text_seconds), gbps, how_ended(job));
    if (job->draft.drafter != NULL) {
        draft_note(job->o, &job->draft);
    }
    double roof = measured_gbps(job);
    if (roof > 0) {
        app_note("memory  %.2f GB/s read bandwidth measured now: MBU %.0f%%", roof,
                 100 * gbps / roof);
    }
}

static void summary_json(const run_job *job) {
    const gw_model_info *info = &job->info;
    json_t *all = json_pack(
        "{s:{s:s?, s:s, s:s, s:I, s:s}, s:f, s:i, s:s, s:{s:I, s:f, s:f}, s:f, "
        "s:{s:i, s:f, s:f, s:i, s:f, s:s}}",
        "model", "name", info->name, "architecture", info->architecture, "format", info->format,
        "weight_bytes", (json_int_t)info->weight_bytes, "device", info->device, "load_seconds",
        info->load_seconds, "context", (int)gw_session_n_ctx(job->session), "seed", job->seed_text,
        "prompt", "tokens", (json_int_t)job->n_prompt, "seconds", job->prompt_seconds,
        "tokens_per_second", rate((double)job->n_prompt, job->prompt_seconds),
        "first_token_seconds", job->first_token, "text", "tokens", (int)job->generated, "seconds",
        job->text_seconds, "tokens_per_second", rate(job->timed, job->text_seconds), "passes",
        (int)job->passes, "gbps", read_gbps(job), "ended", how_ended(job));
    if (all != NULL && job->draft.drafter != NULL) {
        json_object_set_new(all, "draft", draft_json(job->o, &job->draft));
    }
    char *line = all != NULL ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    if (line != NULL) {
        app_note("%s", line);
    } else {
        app_error("out of memory, or a name that is not UTF-8: no summary");
    }
    free(line);
    json_decref(all);
}

static int run_run(const app_options *o) {
    run_job job = {.o = o, .started = app_seconds(), .ended = "nothing was generated"};
    int code = app_open_model(o, o->model, o->threads, 0, &job.model);
    if (code == APP_OK) {
        gw_model_describe(job.model, &job.info);
        code = take_prompt(&job);
    }
    if (code == APP_OK) {
        code = open_session(&job);
    }
    if (code == APP_OK) {
        code = draft_open(o, job.model, o->model, job.session, &job.draft);
    }
    if (code == APP_OK) {
        code = open_sampler(&job);
    }
    if (code == APP_OK) {
        gw_status status = gw_stream_new(job.model, &job.stream);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code == APP_OK) {
        code = read_prompt(&job);
        if (code == APP_OK) {
            code = generate(&job);
        }
        int finish = emit(&job, -1, 1);
        if (job.last != '\n' && job.last != 0) {
            out_text("\n");
        }
        out_flush();
        code = code == APP_OK ? finish : code;
        if (!o->no_stats && !terminal_quiet() && !out_failed()) {
            if (strcmp(o->stats, "json") == 0) {
                snprintf(job.seed_text, sizeof job.seed_text, "%" PRIu64, o->seed);
                summary_json(&job);
            } else {
                summary(&job);
            }
        }
        code = out_failed() ? APP_FAILURE : code;
    }
    gw_free(job.prompt);
    gw_stream_free(job.stream);
    gw_sampler_free(job.sampler);
    draft_close(&job.draft);
    gw_session_free(job.session);
    gw_model_free(job.model);
    return code;
}

const app_command command_run = {
    .name = "run",
    .bit = CMD_RUN,
    .usage = "[-m MODEL] [-p TEXT | -f FILE] [OPTIONS]",
    .summary = "continue a text",
    .detail =
        "Prints the prompt and its continuation on stdout as it comes, everything else on stderr:\n"
        "a summary with load time, time to first token, speeds, the weight bytes read per second\n"
        "(GB/s) and their share of the read bandwidth (MBU), which takes a second to measure "
        "after\n"
        "the text (--no-stats or --quiet leave it out). Without -p a story begins with \"Once "
        "upon\n"
        "a time\". One newline at the end of a file of -f is dropped. The same model, prompt, "
        "seed\n"
        "and options give the same text. Ctrl-C ends the text and shows the summary.\n",
    .examples = "  godwit run\n"
                "  godwit run -p \"The old king\" -n 64 --temp 0\n"
                "  godwit run -m model.gguf -f prompt.txt -n 256 --temp 0.7 --seed 42\n",
    .run = run_run,
};
