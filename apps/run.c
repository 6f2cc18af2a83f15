/* apps/run.c - `godwit run`: continues a text. Text on stdout as it comes, all else on stderr. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/beams.h"
#include "apps/caches.h"
#include "apps/common.h"
#include "apps/generate.h"
#include "apps/output.h"
#include "apps/pictures.h"
#include "apps/signals.h"
#include "core/base/os.h"
#include "include/godwit_fill.h"

typedef struct run_job {
    const app_options *o;
    app_generator g;
    int32_t *prompt,
        *source; /* source: of a model that reads one; the prompt then begins the text */
    size_t n_prompt, n_source;
    char last; /* byte written; 0 before the first */
    const char *ended;
    char seed_text[24]; /* JSON numbers do not hold 64 bits everywhere */
    double started, prompt_seconds, first_token, text_seconds;
    int32_t generated;
    int32_t timed; /* tokens that came in text_seconds */
    size_t cached; /* tokens of the prompt that came from a file */
    int no_cache;  /* the file of --prompt-cache is left alone   */
    app_pictures pictures;
    app_text prefix, suffix; /* of --suffix; shown as they are, not as the prompt has them */
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
    gw_status status = gw_detokenize(job->g.model, &id, 1, 0, &hidden, &n_hidden);
    if (status == GW_OK) {
        status = gw_detokenize(job->g.model, &id, 1, 1, &spelled, &n_spelled);
    }
    int code = status == GW_OK ? APP_OK : app_fail(status);
    if (code == APP_OK && n_hidden == 0 && n_spelled > 0) {
        code = show(job, spelled, n_spelled);
    }
    gw_free(hidden);
    gw_free(spelled);
    return code;
}

static int show_token(run_job *job, int32_t id, const char *text, size_t bytes) {
    if (bytes == 0 && id >= 0 && job->o->special) {
        return show_special(job, id);
    }
    return show(job, text, bytes);
}

/* The prompt's text, and how many bytes of it there are. */
static int show_tokens(run_job *job, gw_stream *stream, size_t *all) {
    for (size_t i = 0; i < job->n_prompt; i++) {
        const char *text;
        size_t bytes;
        gw_status status = gw_stream_push(stream, job->prompt[i], &text, &bytes);
        if (status != GW_OK) {
            return app_fail(status);
        }
        *all += bytes;
        if (!job->o->no_display_prompt && show_token(job, job->prompt[i], text, bytes) != APP_OK) {
            return APP_FAILURE;
        }
    }
    return APP_OK;
}

/* The text goes on within the prompt's; but one of a grammar without a text begins there. */
static int show_prompt(run_job *job) {
    gw_stream *stream = NULL;
    size_t all = 0;
    if (job->suffix.at != NULL) {
        int shown =
            job->o->no_display_prompt ? APP_OK : show(job, job->prefix.at, job->prefix.bytes);
        int begun = generator_begin(&job->g, job->g.grammar, job->g.grammar == NULL);
        return shown == APP_OK ? begun : shown;
    }
    gw_status status = gw_stream_new(job->g.model, &stream);
    int code = status == GW_OK ? show_tokens(job, stream, &all) : app_fail(status);
    gw_stream_free(stream);
    if (code == APP_OK) {
        code = generator_begin(&job->g, job->g.grammar, job->g.grammar == NULL || all > 0);
    }
    return code == APP_OK && out_flush() != 0 ? APP_FAILURE : code;
}

/* ---- setting up ------------------------------------------------------------------------------ */

/* The prompt's text becomes the prefix. */
static int take_filling(run_job *job, app_text *text) {
    app_options of_suffix = *job->o;
    of_suffix.prompt = job->o->suffix;
    of_suffix.file = NULL;
    int code = app_read_prompt(&of_suffix, "", 0, &job->suffix);
    job->prefix = *text;
    *text = (app_text){0};
    if (code != APP_OK) {
        return code;
    }
    size_t n_ctx = (size_t)generator_n_ctx(&job->g), answer = n_ctx / 4, cut = 0;
    if (job->o->n_predict >= 0 && (size_t)job->o->n_predict <= n_ctx / 2) {
        answer = (size_t)job->o->n_predict;
    }
    const gw_fill fill = {.prefix = job->prefix.at,
                          .prefix_bytes = job->prefix.bytes,
                          .suffix = job->suffix.at,
                          .suffix_bytes = job->suffix.bytes,
                          .room = n_ctx - answer};
    gw_status status = gw_fill_in(job->g.model, &fill, &job->prompt, &job->n_prompt, &cut);
    if (status != GW_OK) {
        return app_fail(status);
    }
    if (cut > 0) {
        app_note("prompt  %zu tokens, farthest from the gap, have no room (-c sets it)", cut);
    }
    return APP_OK;
}

/* An empty one is none, as in requests to the server. */
static int has_suffix(const app_options *o) { return o->suffix != NULL && o->suffix[0] != '\0'; }

static int take_prompt(run_job *job) {
    const app_options *o = job->o;
    static const char story[] = "Once upon a time";
    app_options piped = *o;
    app_text text = {0};
    if (o->prompt == NULL && o->file == NULL && app_stdin_is_piped()) {
        piped.file = "-";
    }
    int code = app_read_prompt(&piped, story, 1, &text);
    if (code == APP_OK && text.bytes == 0 && piped.file != o->file) { /* nothing came */
        free(text.at);
        code = app_read_prompt(o, story, 1, &text);
    }
    if (code == APP_OK && has_suffix(o)) {
        code = take_filling(job, &text);
    } else if (code == APP_OK && o->image_files.n > 0) {
        code =
            pictures_prompt(&job->pictures, o, job->g.model, &text, &job->prompt, &job->n_prompt);
    } else if (code == APP_OK) {
        int source = gw_model_reads_source(job->g.model); /* a whole text, with its end */
        int flags = GW_TEXT_BOS | (source ? 0 : GW_TEXT_OPEN) | (o->special ? GW_TEXT_SPECIAL : 0);
        code = app_tokenize(job->g.model, &text, flags, &job->prompt, &job->n_prompt);
        if (code == APP_OK) {
            app_note_tokens(job->g.model, &text, flags, job->prompt, job->n_prompt);
        }
    }
    free(text.at);
    if (code == APP_OK && job->n_prompt == 0) {
        app_error("the prompt is empty, and this model has no start token to begin with");
        code = APP_FAILURE;
    }
    return code;
}

/* Of a model that reads a source text the prompt is that, and the text begins after what the model
 * puts there. */
static int take_source(run_job *job) {
    const app_options *o = job->o;
    int32_t *text = job->prompt, *target = malloc(2 * sizeof *target);
    size_t n_text = job->n_prompt;
    if (!gw_model_reads_source(job->g.model)) {
        free(target);
        if (o->to != NULL || o->from != NULL) {
            app_error("--to, --from: the model reads no source text; ask for it in the prompt");
            return APP_USAGE;
        }
        return APP_OK;
    }
    if (target == NULL || o->prompt_cache != NULL) {
        free(target);
        app_error("--prompt-cache: of a model that reads a source text nothing is kept");
        return APP_USAGE;
    }
    gw_status status = gw_translation_begin(job->g.model, o->from, o->to, text, n_text,
                                            &job->source, &job->n_source, target, &job->n_prompt);
    job->prompt = target;
    gw_free(text);
    return status == GW_OK ? APP_OK : app_fail(status);
}

static int open_session(run_job *job) {
    int32_t n_ctx = generator_n_ctx(&job->g);
    size_t most = job->n_source > job->n_prompt ? job->n_source : job->n_prompt;
    if (most > (size_t)n_ctx) {
        app_error("the prompt needs %zu tokens, context is %d (-c sets it)", most, (int)n_ctx);
        return APP_FAILURE;
    }
    int32_t asked = job->o->keep, whole = (int32_t)job->n_prompt;
    job->g.keep = asked < 0 || asked > whole ? whole : asked;
    job->g.keep += job->g.keep == 0 && app_adds_bos(job->g.model);
    if (job->o->context_shift && n_ctx - job->g.keep < 2) {
        app_error("--keep: %d tokens leave no room in a context of %d", (int)job->g.keep,
                  (int)n_ctx);
        return APP_USAGE;
    }
    return app_open_session(job->o, job->g.model, n_ctx, job->o->batch, &job->g.session);
}

/* ---- the prompt cache ------------------------------------------------------------------------ */

/* No file yet, or an empty one. */
static int cache_is_new(const char *path) {
    struct stat st;
    return stat(path, &st) != 0 ? errno == ENOENT : S_ISREG(st.st_mode) && st.st_size == 0;
}

/* Take over what the file holds of the prompt; its last token is always read, for its logits. A
 * file that does not fit is left as it is, and the whole prompt is read. */
static int load_cache(run_job *job) {
    const char *path = job->o->prompt_cache;
    if (path == NULL || cache_is_new(path)) {
        return APP_OK;
    }
    gw_status loaded = gw_session_load(job->g.session, path);
    if (loaded == GW_E_CANCELLED) {
        return app_fail(loaded);
    }
    if (loaded != GW_OK) {
        app_note("the prompt cache is not used: %s; remove the file or name another",
                 gw_error_text());
        job->no_cache = 1;
        return APP_OK;
    }
    const int32_t *tokens = gw_session_tokens(job->g.session);
    size_t same = 0, held = (size_t)gw_session_prompted(job->g.session);
    while (same < held && same < job->n_prompt && tokens[same] == job->prompt[same]) {
        same++;
    }
    same = same == job->n_prompt ? same - 1 : same;
    job->cached =
        gw_session_same_seen(job->g.session, job->pictures.seen, job->pictures.n_seen, same);
    gw_status status = gw_session_rewind(job->g.session, (int32_t)job->cached);
    return status == GW_OK ? APP_OK : app_fail(status);
}

/* What cannot be written does not cost the answer. */
static int save_cache(const run_job *job) {
    const char *path = job->o->prompt_cache;
    if (path == NULL || job->no_cache || job->o->prompt_cache_ro ||
        job->cached + 1 == job->n_prompt) {
        return APP_OK;
    }
    gw_status status = gw_session_save(job->g.session, path);
    if (status == GW_E_CANCELLED) {
        return app_fail(status);
    }
    if (status != GW_OK) {
        app_note("the prompt cache is not written: %s", gw_error_text());
    }
    return APP_OK;
}

/* ---- generating ------------------------------------------------------------------------------ */

/* Rows of pictures from that token on, counted from there. */
static size_t seen_from(run_job *job, size_t from, const gw_seen_rows **seen) {
    app_pictures *p = &job->pictures;
    size_t k = 0;
    while (k < p->n_seen && p->seen[k].at < from) {
        k++;
    }
    for (size_t i = k; i < p->n_seen; i++) {
        p->seen[i].at -= from;
    }
    *seen = p->seen != NULL ? p->seen + k : NULL;
    return p->n_seen - k;
}

static int read_prompt(run_job *job) {
    double start = app_seconds();
    app_progress progress;
    progress_begin(&progress, "reading");
    gw_status status =
        job->n_source > 0 ? gw_session_source(job->g.session, job->source, job->n_source) : GW_OK;
    if (status == GW_OK && job->n_source > 0 && job->g.draft.drafter != NULL) {
        status = gw_drafter_source(job->g.draft.drafter, job->source, job->n_source);
    }
    status = status == GW_OK ? generator_know(&job->g, job->prompt, job->cached) : status;
    const gw_seen_rows *seen = NULL;
    size_t n_seen = seen_from(job, job->cached, &seen);
    if (status == GW_OK && n_seen > 0) {
        status = generator_read_seen(&job->g, job->prompt + job->cached,
                                     job->n_prompt - job->cached, seen, n_seen);
    } else if (status == GW_OK) {
        status = generator_read(&job->g, job->prompt + job->cached, job->n_prompt - job->cached,
                                &progress);
    }
    progress_end(&progress);
    if (status != GW_OK) {
        return app_fail(status);
    }
    job->prompt_seconds = app_seconds() - start;
    int saved = save_cache(job);
    return saved == APP_OK ? show_prompt(job) : saved;
}

/* What was held back until the end of the text. */
static int take_rest(run_job *job) {
    gw_piece rest = {.text = ""};
    gw_status status = gw_writer_rest(job->g.writer, &rest);
    return status == GW_OK ? show(job, rest.text, rest.bytes) : app_fail(status);
}

static int take_piece(run_job *job, const gw_piece *piece) {
    job->generated += job->o->ignore_eos || !gw_token_is_end(job->g.model, piece->token);
    return show(job, piece->text, piece->bytes) != APP_OK || out_flush() != 0 ? APP_FAILURE
                                                                              : APP_OK;
}

static void time_piece(run_job *job, double *start) {
    double now = app_seconds();
    if (*start == 0) {
        *start = now;
        job->first_token = now - job->started;
    } else {
        job->timed++;
        job->text_seconds = now - *start;
    }
}

static int generate(run_job *job) {
    double start = 0;
    int32_t limit = job->o->n_predict;
    int code = APP_OK, there = 1;
    job->ended = "as long as asked for";
    while (code == APP_OK && there && (limit < 0 || job->generated < limit)) {
        size_t most = limit < 0 ? SIZE_MAX : (size_t)(limit - job->generated);
        gw_piece piece;
        gw_status status = generator_next(&job->g, most, &piece, &there);
        if (status != GW_OK) {
            return app_fail(status);
        }
        if (there) {
            time_piece(job, &start);
            code = take_piece(job, &piece);
        } else {
            job->ended = job->g.ended;
        }
    }
    job->ended = generator_stopped(&job->g) ? "stop string" : job->ended;
    return code;
}

/* ---- the summary ----------------------------------------------------------------------------- */

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

static const char *how_ended(const run_job *job) {
    return signals_caught() != 0 ? "interrupted" : job->ended;
}

static double read_gbps(const run_job *job) {
    return rate(job->g.passes, job->text_seconds) * (double)job->g.info.decode_bytes * 1e-9;
}

/* Read bandwidth where the model is, measured now; 0 when it makes no sense. */
static double measured_gbps(const run_job *job) {
    gw_roof roof;
    if (job->g.passes == 0 || signals_caught() != 0) {
        return 0;
    }
    signals_at_once();
    return gw_model_measure_roof(job->g.model, &roof) == GW_OK ? roof.read_gbps : 0;
}

/* A share of the bandwidth is one only where every token reads the weights from memory, and where
 * the memory was as fast during the text as it is now. */
static void memory_note(const run_job *job, double gbps) {
    char size[32];
    uint64_t caches = cache_bytes();
    int on_cpu = strncmp(job->g.info.device, "cpu", 3) == 0;
    if (on_cpu && job->g.info.decode_bytes <= caches) {
        app_note(
            "memory  the weights fit the processor's caches (%s): their speed is no measure of "
            "the memory's",
            app_bytes(caches, size));
        return;
    }
    double roof = measured_gbps(job);
    if (roof > 0 && gbps > roof) {
        app_note(
            "memory  %.2f GB/s read bandwidth measured now, less than the text read: something "
            "else is running, or caches hold a part of the weights",
            roof);
    } else if (roof > 0) {
        app_note("memory  %.2f GB/s read bandwidth measured now: MBU %.0f%%", roof,
                 100 * gbps / roof);
    }
}

static void summary(const run_job *job) {
    const gw_model_info *info = &job->g.info;
    char size[32];
    double gbps = read_gbps(job);
    app_note("\nmodel   %s, %s %s, %s; %s", info->name, info->architecture, info->format,
             app_bytes(info->weight_bytes, size), info->device);
    app_note("load    %.3f s; context %d, seed %" PRIu64, info->load_seconds,
             (int)gw_session_n_ctx(job->g.session), job->o->seed);
    size_t n_read = job->n_prompt - job->cached;
    if (n_read > 0 && job->prompt_seconds == 0) {
        app_note("prompt  %zu tokens, not read to the end", n_read);
    } else {
        app_note("prompt  %zu tokens in %.3f s, %.1f tok/s; first token %.3f s after the start",
                 n_read, job->prompt_seconds, rate((double)n_read, job->prompt_seconds),
                 job->first_token);
    }
    if (job->o->prompt_cache != NULL) {
        app_note("cache   %zu more tokens of the prompt from %s", job->cached,
                 job->o->prompt_cache);
    }
    app_note("text    %d tokens in %.3f s, %.1f tok/s, %.2f GB/s; %s", (int)job->generated,
             job->text_seconds, rate(job->timed, job->text_seconds), gbps, how_ended(job));
    if (job->o->bans.n > 0) {
        app_note("banned  strings came up %d times; %d tokens taken back", (int)job->g.bans,
                 (int)job->g.taken_back);
    }
    if (job->g.draft.drafter != NULL) {
        draft_note(job->o, &job->g.draft);
    }
    if (job->o->stats != NULL) {
        memory_note(job, gbps);
    }
    if (job->o->model == NULL) {
        app_note("\nThe built-in model has 21 million parameters: it tells children's stories and "
                 "cannot chat. Next:\n"
                 "  godwit run -p \"The old king\"                 another story\n"
                 "  godwit chat -m MODEL                          talk with a model of yours: a "
                 ".gguf file or a folder\n"
                 "  godwit --help                                 all commands");
    }
}

static void summary_json(const run_job *job) {
    const gw_model_info *info = &job->g.info;
    json_t *all = json_pack(
        "{s:{s:s?, s:s, s:s, s:I, s:s}, s:f, s:i, s:s, s:{s:I, s:I, s:f, s:f}, s:f, "
        "s:{s:i, s:f, s:f, s:i, s:f, s:s}}",
        "model", "name", info->name, "architecture", info->architecture, "format", info->format,
        "weight_bytes", (json_int_t)info->weight_bytes, "device", info->device, "load_seconds",
        info->load_seconds, "context", (int)gw_session_n_ctx(job->g.session), "seed",
        job->seed_text, "prompt", "tokens", (json_int_t)job->n_prompt, "cached",
        (json_int_t)job->cached, "seconds", job->prompt_seconds, "tokens_per_second",
        rate((double)(job->n_prompt - job->cached), job->prompt_seconds), "first_token_seconds",
        job->first_token, "text", "tokens", (int)job->generated, "seconds", job->text_seconds,
        "tokens_per_second", rate(job->timed, job->text_seconds), "passes", (int)job->g.passes,
        "gbps", read_gbps(job), "ended", how_ended(job));
    if (all != NULL && job->o->bans.n > 0) {
        json_object_set_new(all, "banned",
                            json_pack("{s:i, s:i}", "times", (int)job->g.bans, "tokens_taken_back",
                                      (int)job->g.taken_back));
    }
    if (all != NULL && job->g.draft.drafter != NULL) {
        json_object_set_new(all, "draft", draft_json(job->o, &job->g.draft));
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

/* In place of a session: texts side by side. */
static int run_beams(run_job *job) {
    int reads = job->n_source > 0;
    const gw_beam_input input = {.source = job->source,
                                 .n_source = job->n_source,
                                 .prompt = job->prompt,
                                 .n_prompt = job->n_prompt,
                                 .n_forced = reads ? job->n_prompt - 1 : 0,
                                 .max_tokens = job->o->n_predict,
                                 .seen = job->pictures.seen,
                                 .n_seen = job->pictures.n_seen};
    int code = beams_run(job->o, job->g.model, generator_n_ctx(&job->g), &input);
    gw_free(job->prompt);
    gw_free(job->source);
    pictures_free(&job->pictures);
    generator_close(&job->g);
    return code;
}

static int run_run(const app_options *o) {
    run_job job = {.o = o, .started = app_seconds(), .ended = "nothing was generated"};
    job.g.o = o;
    job.g.shifts = o->context_shift && !o->no_context_shift;
    const app_need need = {.n_ctx = o->n_ctx < 0 ? -4096 : o->n_ctx,
                           .batch = o->batch,
                           .images = o->image_files.n > 0};
    int beams = 0, code = beams_check(o, &beams);
    if (code == APP_OK && has_suffix(o) && (beams || need.images)) {
        app_error("--suffix: not together with %s", beams ? "--beams" : "--image");
        code = APP_USAGE;
    }
    code = code == APP_OK && !need.images ? pictures_check(o) : code;
    code = code == APP_OK ? app_open_model(o, o->model, o->threads, &need, &job.g.model) : code;
    if (code == APP_OK) {
        gw_model_describe(job.g.model, &job.g.info);
        code = take_prompt(&job);
    }
    if (code == APP_OK) {
        code = take_source(&job);
    }
    if (code == APP_OK && beams) {
        return run_beams(&job);
    }
    if (code == APP_OK) {
        code = open_session(&job);
    }
    if (code == APP_OK) {
        code = generator_open(&job.g, NULL);
    }
    if (code == APP_OK) {
        code = load_cache(&job);
    }
    if (code == APP_OK) {
        code = read_prompt(&job);
        if (code == APP_OK) {
            code = generate(&job);
        }
        int finish = take_rest(&job);
        if (finish == APP_OK && code == APP_OK && job.suffix.at != NULL && !o->no_display_prompt) {
            finish = show(&job, job.suffix.at, job.suffix.bytes);
        }
        if (job.last != '\n' && job.last != 0) {
            out_text("\n");
        }
        out_flush();
        code = code == APP_OK ? finish : code;
        if (!o->no_stats && !terminal_quiet() && !out_failed()) {
            if (o->stats != NULL && strcmp(o->stats, "json") == 0) {
                snprintf(job.seed_text, sizeof job.seed_text, "%" PRIu64, o->seed);
                summary_json(&job);
            } else {
                summary(&job);
            }
        }
        code = out_failed() ? APP_FAILURE : code;
    }
    gw_free(job.prompt);
    gw_free(job.source);
    free(job.prefix.at);
    free(job.suffix.at);
    pictures_free(&job.pictures);
    generator_close(&job.g);
    return code;
}

const app_command command_run = {
    .name = "run",
    .bit = CMD_RUN,
    .usage = "[MODEL] [-p TEXT | -f FILE] [OPTIONS]",
    .summary = "continue a text",
    .detail =
        "Prints the prompt and its continuation on stdout as it comes, everything else on stderr:\n"
        "a summary with load time, time to first token, speeds and the weight bytes read per "
        "second\n"
        "(--no-stats or --quiet leave it out; --stats measures the memory, too, and shows the "
        "share\n"
        "of its bandwidth that was used, MBU). The prompt is that of -p, -f or what comes down a\n"
        "pipe; without any a story begins with \"Once upon a time\". One line end at "
        "the\n"
        "end of a file is dropped. The same model, prompt, seed and options give the same text.\n"
        "Ctrl-C ends the text and shows the summary.\n",
    .examples = "  godwit run\n"
                "  godwit run model.gguf -p \"The old king\" -n 64 --temp 0\n"
                "  echo \"The old king\" | godwit run -n 64\n"
                "  godwit run -m coder.gguf -p \"def add(a, b):\" --suffix \"print(add(1, 2))\"\n"
                "  godwit run -m qwen3-vl/ --image cat.jpg -p \"What is in this picture?\"\n"
                "  godwit run -m model.gguf -f prompt.txt -n 256 --temp 0.7 --seed 42\n"
                "  godwit run -p \"Was it a \" --grammar 'root ::= \"cat\" | \"dog\"'\n"
                "  godwit run -p \"Here it is: \" --json-schema '{\"enum\": [\"cat\", \"dog\"]}'\n",
    .operand = "--model",
    .run = run_run,
};
