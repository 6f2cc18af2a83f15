/* apps/logits.c - `godwit logits`: the raw scores of given tokens, hashed, and greedy tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/beams.h"
#include "apps/common.h"
#include "apps/output.h"
#include "core/base/sha256.h"
#include "apps/signals.h"

typedef struct logits_job {
    const app_options *o;
    gw_model *model;
    gw_session *session;
    const int32_t *ids;
    size_t n;
    int32_t n_vocab;
    gw_sha256 hash;
    out_file file;
    int32_t best; /* most probable token after the last row */
    int code;     /* what went wrong inside a row, already reported */
} logits_job;

/* The width of --rows: 0 for prefill; -1 and an error line if it is none. */
static int row_width(const char *rows) {
    if (strcmp(rows, "prefill") == 0) {
        return 0;
    }
    if (strcmp(rows, "decode") == 0) {
        return 1;
    }
    char *end;
    long width = strtol(rows, &end, 10);
    if (rows[0] < '0' || rows[0] > '9' || *end != '\0' || width < 1 || width > GW_DECODE_MAX) {
        app_error("--rows: '%.60s' is not prefill, decode or a width from 1 to %d", rows,
                  GW_DECODE_MAX);
        return -1;
    }
    return (int)width;
}

/* One row of the result, in little-endian order as every supported machine stores it. */
static int on_row(void *user, size_t row, const float *logits) {
    logits_job *job = user;
    size_t bytes = (size_t)job->n_vocab * sizeof *logits;
    job->best = app_argmax(logits, job->n_vocab);
    if (job->best < 0) {
        app_error("the logits of token %zu are not finite: the weights or the numbers of this "
                  "model are broken",
                  row);
        job->code = APP_FAILURE;
        return 1;
    }
    gw_sha256_add(&job->hash, logits, bytes);
    if (job->o->out != NULL && out_file_write(&job->file, logits, bytes) != 0) {
        job->code = APP_FAILURE;
        return 1;
    }
    return 0;
}

static gw_status feed(logits_job *job, int width) {
    if (width == 0) {
        return gw_session_prefill_rows(job->session, job->ids, job->n, 0, on_row, job);
    }
    for (size_t at = 0; at < job->n;) {
        size_t n = job->n - at < (size_t)width ? job->n - at : (size_t)width;
        gw_status status = gw_session_decode(job->session, job->ids + at, n);
        if (status != GW_OK) {
            return status;
        }
        for (size_t row = 0; row < n; row++) {
            if (on_row(job, at + row, gw_session_logits(job->session, row)) != 0) {
                return GW_E_CANCELLED;
            }
        }
        at += n;
    }
    return GW_OK;
}

static int print_greedy(logits_job *job) {
    out_text("greedy: ");
    for (int32_t i = 0; i < job->o->greedy; i++) {
        out_print(i == 0 ? "%d" : ",%d", (int)job->best);
        if (i + 1 < job->o->greedy) {
            gw_status status = gw_session_decode(job->session, &job->best, 1);
            if (status != GW_OK) {
                return app_fail(status);
            }
            job->best = app_argmax(gw_session_logits(job->session, 0), job->n_vocab);
            if (job->best < 0) {
                app_error("the logits of generated token %d are not finite", (int)i);
                return APP_FAILURE;
            }
        }
    }
    return out_text("\n") == 0 ? APP_OK : APP_FAILURE;
}

/* safetensors: 8 bytes of header length, the header padded to 8 bytes, the data. */
static int begin_file(logits_job *job) {
    const app_options *o = job->o;
    if (o->out == NULL) {
        return APP_OK;
    }
    if (o->model != NULL && out_would_destroy(o->out, o->model)) {
        app_error("%s: this is the model itself; give -o another name", o->out);
        return APP_FAILURE;
    }
    uint64_t bytes = (uint64_t)job->n * (uint64_t)job->n_vocab * sizeof(float);
    char header[256];
    int n =
        snprintf(header + 8, sizeof header - 8,
                 "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%zu,%d],\"data_offsets\":[0,%llu]}}",
                 job->n, (int)job->n_vocab, (unsigned long long)bytes);
    while (n % 8 != 0) {
        header[8 + n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        header[i] = (char)((uint64_t)n >> (8 * i));
    }
    if (out_file_open(&job->file, o->out, bytes + 8 + (uint64_t)n) != 0) {
        return APP_FAILURE;
    }
    if (job->file.standard && o->greedy > 0) {
        app_error("-o %s: --greedy writes there, too; name a file", o->out);
        return APP_USAGE;
    }
    return out_file_write(&job->file, header, 8 + (size_t)n) == 0 ? APP_OK : APP_FAILURE;
}

static int compute(logits_job *job, int width) {
    int code = begin_file(job);
    if (code != APP_OK) {
        return code;
    }
    gw_sha256_begin(&job->hash);
    gw_status status = feed(job, width);
    if (job->code != APP_OK) {
        return job->code;
    }
    if (status != GW_OK) {
        return app_fail(status);
    }
    int taken = job->file.standard;
    if (job->o->out != NULL && out_file_commit(&job->file) != 0) {
        return APP_FAILURE;
    }
    unsigned char digest[32];
    char hex[65];
    gw_sha256_end(&job->hash, digest);
    gw_sha256_hex(digest, hex);
    if (taken) { /* standard output is the file */
        fprintf(stderr, "hash: %s\n", hex);
        return APP_OK;
    }
    out_print("hash: %s\n", hex);
    return job->o->greedy > 0 ? print_greedy(job) : APP_OK;
}

/* The tokens: --ids or a text. *owned is what to free. */
static int take_tokens(logits_job *job, int32_t **owned) {
    const app_options *o = job->o;
    if (o->ids.n > 0) {
        if (o->prompt != NULL || o->file != NULL) {
            app_error("--ids excludes -p and -f: which tokens are meant?");
            return APP_USAGE;
        }
        job->ids = o->ids.at;
        job->n = o->ids.n;
        return app_check_ids(job->model, "--ids", &o->ids);
    }
    app_text text = {0};
    int code = app_read_prompt(o, NULL, 1, &text);
    if (code == APP_OK) {
        int flags = (o->no_bos ? 0 : GW_TEXT_BOS) | (o->special ? GW_TEXT_SPECIAL : 0) |
                    (o->greedy > 0 ? GW_TEXT_OPEN : 0);
        code = app_tokenize(job->model, &text, flags, owned, &job->n);
        job->ids = *owned;
        if (code == APP_OK) {
            app_note_tokens(job->model, &text, flags, *owned, job->n);
        }
    }
    free(text.at);
    if (code == APP_OK && job->n == 0) {
        app_error("the text has no tokens");
        code = APP_FAILURE;
    }
    return code;
}

/* Of a model that reads a source, the tokens so far are that, and --decoder-ids those of the text.
 */
static int take_target(logits_job *job) {
    const app_options *o = job->o;
    int reads = gw_model_reads_source(job->model);
    if (reads != (o->decoder_ids.n > 0)) {
        app_error(reads ? "the model reads a source text: give --decoder-ids ID,... for the other"
                        : "--decoder-ids: the model reads no source text");
        return APP_USAGE;
    }
    if (!reads) {
        return APP_OK;
    }
    job->ids = o->decoder_ids.at;
    job->n = o->decoder_ids.n;
    return app_check_ids(job->model, "--decoder-ids", &o->decoder_ids);
}

static int run_logits(const app_options *o) {
    logits_job job = {.o = o, .file.fd = -1};
    int32_t *owned = NULL;
    int width = row_width(o->rows);
    if (width < 0) {
        return APP_USAGE;
    }
    if (o->ids.n == 0 && o->prompt == NULL && o->file == NULL) {
        app_error("no tokens: give --ids ID,... or a text with -p or -f");
        return APP_USAGE;
    }
    app_need need = {.n_ctx = o->n_ctx > 0 ? o->n_ctx : -4096, .batch = o->batch};
    if (o->n_ctx <= 0 && o->ids.n > 0 && o->ids.n < INT32_MAX / 2) {
        need.n_ctx = (int32_t)o->ids.n + (int32_t)o->decoder_ids.n + o->greedy;
    }
    int code = app_open_model(o, o->model, o->threads, &need, &job.model);
    if (code == APP_OK) {
        gw_model_info info;
        gw_model_describe(job.model, &info);
        job.n_vocab = info.n_vocab;
        code = take_tokens(&job, &owned);
    }
    const int32_t *source = job.ids;
    size_t n_source = job.n;
    if (code == APP_OK) {
        code = take_target(&job);
    }
    if (code == APP_OK) {
        int32_t steps = o->greedy > 0 ? o->greedy - (o->beams == 0) : 0;
        uint64_t needed = (uint64_t)job.n + (uint64_t)steps;
        needed = n_source > needed ? n_source : needed;
        int32_t n_ctx =
            o->n_ctx > 0 ? o->n_ctx : (int32_t)(needed < INT32_MAX ? needed : INT32_MAX);
        if (needed > (uint64_t)n_ctx) {
            app_error("needs %llu tokens, context is %d", (unsigned long long)needed, (int)n_ctx);
            code = APP_FAILURE;
        } else {
            code = app_open_session(o, job.model, n_ctx, o->batch, &job.session);
        }
    }
    if (code == APP_OK && gw_model_reads_source(job.model)) {
        gw_status status = gw_session_source(job.session, source, n_source);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code == APP_OK) {
        code = compute(&job, width);
        out_file_discard(&job.file);
    }
    if (code == APP_OK && o->beams > 0) {
        int reads = gw_model_reads_source(job.model);
        const gw_beam_input input = {.source = reads ? source : NULL,
                                     .n_source = reads ? n_source : 0,
                                     .prompt = job.ids,
                                     .n_prompt = job.n,
                                     .n_forced = reads ? job.n - 1 : 0,
                                     .max_tokens = o->greedy > 0 ? o->greedy : -1};
        code = beams_list(o, job.model, gw_session_n_ctx(job.session), &input);
    }
    gw_free(owned);
    gw_session_free(job.session);
    app_close_model(job.model);
    return code;
}

const app_command command_logits = {
    .name = "logits",
    .bit = CMD_LOGITS,
    .usage = "-m MODEL (--ids ID,... | -p TEXT | -f FILE) [OPTIONS]",
    .summary = "the raw scores of every token: hash, file, greedy continuation",
    .detail =
        "Computes the logits [T, V] of T tokens and prints \"hash: \" with the SHA-256 of these\n"
        "little-endian floats; equal hashes are equal bits. With --greedy N a second line\n"
        "\"greedy: \" lists the N most probable next tokens, the lowest id first among equals.\n"
        "With --beams B lines \"beam: SCORE ID,...\" list texts of up to N tokens, best first.\n",
    .examples =
        "  godwit logits --ids 1,15,27 --greedy 8\n"
        "  godwit logits -p \"Once upon a time\" --rows decode -o /tmp/logits.safetensors\n",
    .operand = "--model",
    .run = run_logits,
};
