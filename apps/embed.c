/* apps/embed.c - `godwit embed`: vectors of texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/encode.h"
#include "apps/output.h"
#include "core/base/sha256.h"
#include "apps/vectors/ahead.h"
#include "apps/vectors/rows.h"

/* ---- given tokens --------------------------------------------------------------------------- */

/* safetensors: the header, padded to 8 bytes, after its length. */
static size_t make_header(char *room, size_t capacity, size_t rows, const gw_encoder_info *info) {
    unsigned long long hidden = (unsigned long long)rows * (unsigned long long)info->hidden * 4;
    int n = snprintf(room + 8, capacity - 8,
                     "{\"hidden\":{\"dtype\":\"F32\",\"shape\":[%zu,%d],\"data_offsets\":[0,%llu]}",
                     rows, (int)info->hidden, hidden);
    char shape[64];
    size_t values = (info->per_token ? rows : 1) * (size_t)info->width;
    snprintf(shape, sizeof shape, "%zu,%d", rows, (int)info->width);
    n += snprintf(room + 8 + n, capacity - 8 - (size_t)n,
                  ",\"embedding\":{\"dtype\":\"F32\",\"shape\":[%s],"
                  "\"data_offsets\":[%llu,%llu]}",
                  info->per_token ? shape : strchr(shape, ',') + 1, hidden,
                  hidden + 4ull * (unsigned long long)values);
    room[8 + n++] = '}';
    while (n % 8 != 0) {
        room[8 + n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        room[i] = (char)((uint64_t)n >> (8 * i));
    }
    return 8 + (size_t)n;
}

static int write_states(const app_options *o, const gw_encoder_info *info, size_t rows,
                        const float *hidden, const float *vector) {
    out_file file = {.fd = -1};
    char header[512];
    size_t states = rows * (size_t)info->hidden * sizeof *hidden;
    size_t values = (info->per_token ? rows : 1) * (size_t)info->width * sizeof *vector;
    size_t n = make_header(header, sizeof header, rows, info);
    int code = APP_FAILURE;
    if (out_file_open(&file, o->out, n + states + values) == 0 &&
        out_file_write(&file, header, n) == 0 && out_file_write(&file, hidden, states) == 0 &&
        out_file_write(&file, vector, values) == 0) {
        code = out_file_commit(&file) == 0 ? APP_OK : APP_FAILURE;
    }
    out_file_discard(&file);
    return code;
}

/* {"index":0,"embedding":[..]}, of tokens a list of such lists. */
static void print_vectors(const gw_encoder_info *info, size_t rows, const float *at) {
    out_text("{\"index\":0,\"embedding\":[");
    for (size_t r = 0; r < (info->per_token ? rows : 1); r++) {
        out_text(!info->per_token ? "" : r == 0 ? "[" : ",[");
        for (int32_t i = 0; i < info->width; i++) {
            out_print(i == 0 ? "%.9g" : ",%.9g", (double)at[r * (size_t)info->width + (size_t)i]);
        }
        out_text(info->per_token ? "]" : "");
    }
    out_text("]}\n");
}

/* Hidden states and the vectors of one text of given tokens. */
static int embed_ids(const app_options *o, gw_model *model, gw_encoder *encoder) {
    gw_encoder_info info;
    gw_encoder_text text = {.ids = o->ids.at, .n = o->ids.n};
    gw_encoder_get_info(encoder, &info);
    int code = app_check_ids(model, "--ids", &o->ids);
    code = code == APP_OK ? app_token_types(o, &text) : code;
    if (code != APP_OK) {
        return code;
    }
    float *hidden = malloc(text.n * (size_t)info.hidden * sizeof *hidden);
    float *vector = malloc((info.per_token ? text.n : 1) * (size_t)info.width * sizeof *vector);
    if (hidden == NULL || vector == NULL) {
        app_error("no memory for the hidden states of %zu tokens", text.n);
        code = APP_FAILURE;
    } else {
        gw_status status = gw_encoder_hidden(encoder, &text, hidden);
        if (status == GW_OK) {
            status = info.per_token ? gw_encoder_rows(encoder, &text, NULL, 1, vector)
                                    : gw_encoder_embed(encoder, &text, 1, vector);
        }
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    if (code == APP_OK && o->out != NULL) {
        code = write_states(o, &info, text.n, hidden, vector);
    } else if (code == APP_OK) {
        print_vectors(&info, text.n, vector);
    }
    free(hidden);
    free(vector);
    return code;
}

/* ---- texts ---------------------------------------------------------------------------------- */

enum {
    SLICE = 512, /* texts between two looks at the disk */
    TIMES = 256  /* rows of --ops */
};

typedef struct embed_job {
    const app_options *o;
    gw_model *model;
    gw_encoder *encoder;
    gw_encoder_info info;
    app_items items;
    const char *prefix;
    float *vectors; /* [items.n, width] */
    size_t done, cut;
    char *partial;         /* a file of what is done so far; NULL: none */
    unsigned char key[64]; /* of model, texts and options: what the file begins with */
    vectors_ahead ahead;   /* tokens of the next slice */
    int beside;            /* a card computes: they are made meanwhile */
} embed_job;

static int choose_prefix(embed_job *job) {
    const app_options *o = job->o;
    if (o->prefix != NULL && o->prompt_name != NULL) {
        app_error("--prefix and --prompt-name exclude one another");
        return APP_USAGE;
    }
    job->prefix = o->prefix != NULL ? o->prefix : gw_encoder_prompt(job->encoder, o->prompt_name);
    if (job->prefix == NULL) {
        app_error("--prompt-name %.60s: the model's files name no such prompt", o->prompt_name);
        return APP_FAILURE;
    }
    return APP_OK;
}

/* ---- what is done so far */

static void make_key(embed_job *job) {
    gw_model_info info;
    gw_sha256 hash;
    unsigned char digest[32];
    char hex[65], numbers[128];
    gw_model_describe(job->model, &info);
    gw_sha256_begin(&hash);
    snprintf(numbers, sizeof numbers, "%zu %d %d %d %d %llu %s", job->items.n, (int)job->info.width,
             (int)job->info.pooling, job->info.normalize, job->o->truncate,
             (unsigned long long)info.decode_bytes, job->o->kv_type);
    gw_sha256_add(&hash, numbers, strlen(numbers) + 1);
    gw_sha256_add(&hash, info.name, strlen(info.name) + 1);
    gw_sha256_add(&hash, job->prefix, strlen(job->prefix) + 1);
    for (size_t i = 0; i < job->items.n; i++) {
        gw_sha256_add(&hash, &job->items.at[i].bytes, sizeof job->items.at[i].bytes);
        gw_sha256_add(&hash, job->items.at[i].at, job->items.at[i].bytes);
    }
    gw_sha256_end(&hash, digest);
    gw_sha256_hex(digest, hex);
    memcpy(job->key, hex, sizeof job->key);
}

/* Vectors that an earlier call has left, whole slices of them. */
static void take_partial(embed_job *job) {
    unsigned char key[sizeof job->key];
    size_t row = (size_t)job->info.width * sizeof(float);
    FILE *f = job->partial != NULL ? fopen(job->partial, "rb") : NULL;
    if (f == NULL) {
        return;
    }
    if (fread(key, sizeof key, 1, f) == 1 && memcmp(key, job->key, sizeof key) == 0) {
        job->done = fread(job->vectors, row, job->items.n, f) / SLICE * SLICE;
    }
    fclose(f);
    if (job->done > 0) {
        app_note("going on behind %zu of %zu texts (%s)", job->done, job->items.n, job->partial);
    }
}

/* The file anew with what is done; it is only a help, so that a full disk ends nothing. */
static void keep_partial(embed_job *job, size_t from) {
    size_t row = (size_t)job->info.width * sizeof(float);
    FILE *f = job->partial != NULL ? fopen(job->partial, from == 0 ? "wb" : "r+b") : NULL;
    if (f == NULL) {
        return;
    }
    int fine = from > 0 || fwrite(job->key, sizeof job->key, 1, f) == 1;
    fine = fine && fseeko(f, (off_t)(sizeof job->key + from * row), SEEK_SET) == 0 &&
           fwrite(job->vectors + from * (size_t)job->info.width, row, job->done - from, f) ==
               job->done - from;
    if (fclose(f) != 0 || !fine) {
        remove(job->partial);
        free(job->partial);
        job->partial = NULL;
    }
}

static int embed_slice(embed_job *job) {
    size_t first = job->done, left = job->items.n - first, n = left < SLICE ? left : SLICE;
    size_t behind = first + n, next = job->items.n - behind;
    app_encoded tokens = {0};
    int code = vectors_ahead_end(&job->ahead, first, n, &tokens);
    if (code == APP_OK && job->beside && next > 0) {
        vectors_ahead_begin(&job->ahead, behind, next < SLICE ? next : SLICE);
    }
    if (code == APP_OK) {
        gw_status status = gw_encoder_embed(job->encoder, tokens.texts, n,
                                            job->vectors + first * (size_t)job->info.width);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    job->cut += tokens.cut;
    app_encoded_free(&tokens);
    if (code == APP_OK) {
        job->done += n;
        if (job->items.n > SLICE) {
            keep_partial(job, first);
        }
    } else if (job->ahead.runs) {
        (void)vectors_ahead_end(&job->ahead, job->ahead.first, job->ahead.n, &tokens);
        app_encoded_free(&tokens);
    }
    return code;
}

/* ---- output */

/* The head of a .npy file: its format 1.0. */
static size_t npy_header(const embed_job *job, char *room, size_t capacity) {
    int n = snprintf(room + 10, capacity - 10,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }", job->items.n,
                     (int)job->info.width);
    while ((10 + n + 1) % 64 != 0) {
        room[10 + n++] = ' ';
    }
    room[10 + n++] = '\n';
    memcpy(room, "\x93NUMPY\x01\x00", 8);
    room[8] = (char)(n & 255);
    room[9] = (char)(n >> 8);
    return 10 + (size_t)n;
}

static size_t safetensors_header(const embed_job *job, char *room, size_t capacity) {
    unsigned long long bytes =
        (unsigned long long)job->items.n * (unsigned long long)job->info.width * 4;
    int n = snprintf(room + 8, capacity - 8,
                     "{\"embeddings\":{\"dtype\":\"F32\",\"shape\":[%zu,%d],"
                     "\"data_offsets\":[0,%llu]}}",
                     job->items.n, (int)job->info.width, bytes);
    while (n % 8 != 0) {
        room[8 + n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        room[i] = (char)((uint64_t)n >> (8 * i));
    }
    return 8 + (size_t)n;
}

/* {"index":0,"id":..,"embedding":[..]} for each text. */
static int write_lines(const embed_job *job, app_write_fn write, void *to) {
    size_t width = (size_t)job->info.width;
    char *line = malloc(width * 24 + 64);
    int fine = line != NULL;
    for (size_t i = 0; i < job->items.n && fine; i++) {
        const char *id = job->items.at[i].id;
        size_t n = (size_t)snprintf(line, 40, "{\"index\":%zu,", i);
        fine = write(to, line, n) == 0;
        if (id != NULL) {
            fine = fine && write(to, "\"id\":", 5) == 0 && write(to, id, strlen(id)) == 0 &&
                   write(to, ",", 1) == 0;
        }
        n = (size_t)snprintf(line, 24, "\"embedding\":[");
        for (size_t k = 0; k < width; k++) {
            n += (size_t)snprintf(line + n, 24, k == 0 ? "%.9g" : ",%.9g",
                                  (double)job->vectors[i * width + k]);
        }
        n += (size_t)snprintf(line + n, 8, "]}\n");
        fine = fine && write(to, line, n) == 0;
    }
    free(line);
    return fine ? APP_OK : APP_FAILURE;
}

static int write_vectors(const embed_job *job) {
    const app_options *o = job->o;
    char header[512];
    size_t bytes = job->items.n * (size_t)job->info.width * sizeof(float), n = 0;
    if (o->out == NULL) {
        return write_lines(job, app_to_stdout, NULL);
    }
    out_file file = {.fd = -1};
    int lines = app_name_ends(o->out, ".jsonl"), code = APP_FAILURE;
    n = lines                                   ? 0
        : app_name_ends(o->out, ".safetensors") ? safetensors_header(job, header, sizeof header)
                                                : npy_header(job, header, sizeof header);
    if (out_file_open(&file, o->out, lines ? 0 : n + bytes) == 0) {
        if (lines) {
            code = write_lines(job, app_to_file, &file);
        } else if (out_file_write(&file, header, n) == 0 &&
                   out_file_write(&file, job->vectors, bytes) == 0) {
            code = APP_OK;
        }
        code = code == APP_OK && out_file_commit(&file) != 0 ? APP_FAILURE : code;
    }
    out_file_discard(&file);
    return code;
}

static int check_output(const app_options *o) {
    if (o->out == NULL) {
        return APP_OK;
    }
    if (!app_name_ends(o->out, ".npy") && !app_name_ends(o->out, ".safetensors") &&
        !app_name_ends(o->out, ".jsonl")) {
        app_error("-o %s: the name must end in .npy, .safetensors or .jsonl", o->out);
        return APP_USAGE;
    }
    if (o->model != NULL && out_would_destroy(o->out, o->model)) {
        app_error("%s: this is the model itself; give -o another name", o->out);
        return APP_FAILURE;
    }
    return APP_OK;
}

static int embed_all(embed_job *job) {
    double start = app_seconds();
    size_t before = job->done;
    gw_model_info model;
    gw_model_describe(job->model, &model);
    job->beside = strncmp(model.device, "cpu", 3) != 0;
    job->ahead = (vectors_ahead){.o = job->o,
                                 .model = job->model,
                                 .encoder = job->encoder,
                                 .items = &job->items,
                                 .prefix = job->prefix};
    app_progress progress;
    int code = APP_OK;
    progress_begin(&progress, "embedding");
    while (job->done < job->items.n && code == APP_OK) {
        progress_update(&progress, job->done, job->items.n, NULL);
        code = embed_slice(job);
    }
    progress_end(&progress);
    if (code != APP_OK) {
        if (job->partial != NULL && job->done > 0) {
            app_note("%zu of %zu texts are done; the same command goes on there", job->done,
                     job->items.n);
        }
        return code;
    }
    if (job->cut > 0) {
        app_note("%zu texts were longer than %d tokens and have been cut", job->cut,
                 (int)job->info.n_ctx);
    }
    code = write_vectors(job);
    if (code == APP_OK) {
        double seconds = app_seconds() - start;
        if (job->partial != NULL) {
            remove(job->partial);
        }
        app_note("%zu texts, vectors of %d values, %.2f s (%.1f texts/s)", job->items.n,
                 (int)job->info.width, seconds, (double)(job->items.n - before) / seconds);
    }
    return code;
}

/* ---- times */

static int slower(const void *a, const void *b) {
    double x = ((const gw_kernel_time *)a)->seconds, y = ((const gw_kernel_time *)b)->seconds;
    return (x < y) - (x > y);
}

/* Where the time of --ops went, to stderr, which has no vectors. */
static void print_times(const gw_encoder *encoder) {
    gw_kernel_time rows[TIMES];
    size_t n = gw_encoder_kernel_times(encoder, rows, TIMES);
    double sum = 0.0;
    qsort(rows, n, sizeof rows[0], slower);
    for (size_t i = 0; i < n; i++) {
        sum += rows[i].seconds;
    }
    app_note("| kernel | role | calls | ms | share | GB/s | TOP/s |");
    app_note("|---|---|--:|--:|--:|--:|--:|");
    for (size_t i = 0; i < n; i++) {
        const gw_kernel_time *k = &rows[i];
        double s = k->seconds > 0.0 ? k->seconds : 1e-12;
        app_note("| %s | %s | %llu | %.3f | %.1f%% | %.1f | %.2f |", k->name,
                 k->what != NULL ? k->what : "", (unsigned long long)k->calls, 1e3 * k->seconds,
                 sum > 0.0 ? 100.0 * k->seconds / sum : 0.0, 1e-9 * k->bytes / s,
                 1e-12 * k->ops / s);
    }
    app_note("%.3f ms in kernels", 1e3 * sum);
}

static int embed_texts(embed_job *job) {
    const app_options *o = job->o;
    gw_encoder_get_info(job->encoder, &job->info);
    if (job->info.per_token) {
        return vectors_rows(o, job->encoder);
    }
    int code = app_read_items(o, &job->items);
    code = code == APP_OK ? choose_prefix(job) : code;
    if (code != APP_OK) {
        return code;
    }
    job->vectors = malloc(job->items.n * (size_t)job->info.width * sizeof(float) + 1);
    if (job->vectors == NULL) {
        app_error("no memory for %zu vectors", job->items.n);
        return APP_FAILURE;
    }
    if (o->out != NULL && job->items.n > SLICE) {
        size_t n = strlen(o->out) + sizeof ".partial";
        job->partial = malloc(n);
        if (job->partial != NULL) {
            snprintf(job->partial, n, "%s.partial", o->out);
        }
        make_key(job);
        take_partial(job);
    }
    return embed_all(job);
}

static int run_embed(const app_options *o) {
    embed_job job = {.o = o};
    if (o->ids.n == 0 && o->prompt == NULL && o->file == NULL) {
        app_error("no text: give one with -p, one a line with -f FILE, or --ids ID,...");
        return APP_USAGE;
    }
    if (o->ids.n > 0 && (o->prompt != NULL || o->file != NULL)) {
        app_error("--ids excludes -p and -f: which tokens are meant?");
        return APP_USAGE;
    }
    int code = check_output(o);
    code = code == APP_OK ? app_open_encoder(o, &job.model, &job.encoder) : code;
    if (code == APP_OK && o->ops && gw_encoder_profile(job.encoder, 1) != GW_OK) {
        code = app_fail(GW_E_NOMEM);
    }
    if (code == APP_OK) {
        code = o->ids.n > 0 ? embed_ids(o, job.model, job.encoder) : embed_texts(&job);
    }
    if (code == APP_OK && o->ops) {
        print_times(job.encoder);
    }
    app_items_free(&job.items);
    free(job.vectors);
    free(job.partial);
    gw_encoder_free(job.encoder);
    app_close_model(job.model);
    return code;
}

const app_command command_embed = {
    .name = "embed",
    .bit = CMD_EMBED,
    .usage = "-m MODEL (-p TEXT | -f FILE | --ids ID,...) [-o FILE] [OPTIONS]",
    .summary = "vectors of texts, for search and comparison",
    .detail =
        "Computes a vector for each text: that of -p, each line of -f FILE, or the member "
        "\"text\" of\n"
        "each line of FILE.jsonl. Encoders (BERT, XLM-R, ModernBERT, ...) and decoders "
        "(Qwen3) alike;\n"
        "pooling, dense layers and prompts are those of the model's files (modules.json, "
        "1_Pooling,\n"
        "config_sentence_transformers.json). Without -o a JSON line per text goes to stdout. "
        "A text's\n"
        "vector does not depend on the texts beside it, bit for bit. A long run that was "
        "stopped goes\n"
        "on where it was (FILE.partial). With --ids, -o writes the hidden states too. Models of "
        "late\n"
        "interaction (ColBERT), and --pooling none, have a vector of each token;\n"
        "--prompt-name query is for questions there.\n",
    .examples = "  godwit embed -m bge-small -p \"a text\"\n"
                "  godwit embed -m e5-base -f passages.txt --prefix \"passage: \" -o vectors.npy\n",
    .operand = "--model",
    .run = run_embed,
};
