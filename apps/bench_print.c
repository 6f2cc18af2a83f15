/* apps/bench_print.c - results of `godwit bench` as markdown, csv, json or json lines. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/bench.h"
#include "apps/caches.h"
#include "apps/output.h"
#include "core/base/utf8.h"

/* ---- figures --------------------------------------------------------------------------------- */

typedef struct figures {
    double seconds, seconds_dev; /* mean, sample standard deviation */
    double rate, rate_dev;       /* tokens per second               */
    double gbps, mbu; /* tg: weight bytes per second; share of the read bandwidth, 0: it is none */
    double gops, peak_share; /* pp: linear layers; share of the peak                     */
    int is_float;
} figures;

static void mean_and_dev(const double *x, int32_t n, double *mean, double *dev) {
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += x[i];
    }
    *mean = sum / n;
    for (int32_t i = 0; i < n; i++) {
        squares += (x[i] - *mean) * (x[i] - *mean);
    }
    *dev = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

static int is_float_format(const char *format) {
    return strcmp(format, "F32") == 0 || strcmp(format, "F16") == 0 ||
           strcmp(format, "BF16") == 0 || strcmp(format, "E4M3") == 0;
}

/* What the caches hold is not read from memory: its speed is no share of the bandwidth. */
static int in_caches(const bench_result *r) {
    return strncmp(r->info.device, "cpu", 3) == 0 && r->info.decode_bytes <= cache_bytes();
}

static figures figures_of(const bench_result *r) {
    figures f = {.is_float = is_float_format(r->info.format)};
    double tokens = (double)r->n_prompt + (double)r->n_gen;
    double *rates = malloc((size_t)r->n * sizeof *rates);
    mean_and_dev(r->seconds, r->n, &f.seconds, &f.seconds_dev);
    if (rates != NULL) {
        for (int32_t i = 0; i < r->n; i++) {
            rates[i] = tokens / r->seconds[i];
        }
        mean_and_dev(rates, r->n, &f.rate, &f.rate_dev);
    }
    free(rates);
    if (r->draft != NULL) {
        return f; /* neither a token nor a weight is what a pass reads */
    }
    if (r->n_prompt == 0) {
        f.gbps = f.rate * (double)r->info.decode_bytes * 1e-9;
        f.mbu = r->roof.read_gbps > 0 && !in_caches(r) ? f.gbps / r->roof.read_gbps : 0;
        f.mbu = f.mbu <= 1 ? f.mbu : 0;
    } else if (r->n_gen == 0) {
        double peak = f.is_float ? r->roof.f32_gflops : r->roof.int8_gops;
        f.gops = r->prompt_gops / f.seconds;
        f.peak_share = peak > 0 ? f.gops / peak : 0;
    }
    return f;
}

static const char *test_name(const bench_result *r, char text[48]) {
    if (r->n_gen == 0) {
        snprintf(text, 48, "pp%d", (int)r->n_prompt);
    } else if (r->n_prompt == 0) {
        snprintf(text, 48, "tg%d", (int)r->n_gen);
    } else {
        snprintf(text, 48, "pp%d+tg%d", (int)r->n_prompt, (int)r->n_gen);
    }
    if (r->n_depth > 0) {
        size_t used = strlen(text);
        snprintf(text + used, 48 - used, " @ d%d", (int)r->n_depth);
    }
    if (r->draft != NULL) {
        size_t used = strlen(text);
        snprintf(text + used, 48 - used, " draft");
    }
    return text;
}

/* Of a drafted pass, what is neither drafting, verifying nor choosing; without the prompt, which is
 * known only where there is none. */
static double other_ms(const bench_result *r) {
    const draft_figures *d = &r->figures;
    double seconds = 0;
    for (int32_t i = 0; i < r->n; i++) {
        seconds += r->seconds[i];
    }
    double passes = d->stats.passes > 0 ? (double)d->stats.passes : 1;
    return 1e3 * seconds / passes - d->draft_ms - d->verify_ms - d->pick_ms;
}

/* Seconds of the plain passes over those of the drafted ones. */
static double speed_up(const bench_result *r) {
    double seconds = 0;
    for (int32_t i = 0; i < r->n; i++) {
        seconds += r->seconds[i];
    }
    return seconds > 0 ? r->plain_seconds / seconds : 0;
}

/* "CPU", or the device's id. */
static const char *backend_of(const bench_result *r, char text[32]) {
    int n = (int)strcspn(r->info.device, " ,");
    snprintf(text, 32, "%.*s", n < 31 ? n : 31, r->info.device);
    return strcmp(text, "cpu") == 0 ? "CPU" : text;
}

/* Tokens per second that --forecast expects of this test; 0: it says nothing about it. */
static double forecast_of(const bench_result *r) {
    int whole = r->forecast_chunk > 0 && r->n_prompt % r->forecast_chunk == 0;
    if (r->draft != NULL || r->n_depth > 0 || (r->n_prompt > 0 && r->n_gen > 0)) {
        return 0;
    }
    return r->n_prompt == 0 ? r->forecast_token : whole ? r->forecast_prompt : 0;
}

/* ---- markdown -------------------------------------------------------------------------------- */

static void params_text(uint64_t n, char text[32]) {
    snprintf(text, 32, n >= 1000000000 ? "%.2f B" : "%.2f M",
             (double)n * (n >= 1000000000 ? 1e-9 : 1e-6));
}

/* In the units of llama-bench, whose table this is; elsewhere sizes are app_bytes. */
static void size_text(uint64_t bytes, char text[32]) {
    double mib = (double)bytes / 1048576.0;
    snprintf(text, 32, mib >= 1024 ? "%.2f GiB" : "%.2f MiB", mib >= 1024 ? mib / 1024 : mib);
}

static void share_of_memory(const bench_result *r, double mbu, char *text, size_t room) {
    if (in_caches(r)) {
        snprintf(text, room, "the caches hold the weights");
    } else if (mbu == 0) {
        snprintf(text, room, "above %.2f GB/s: disturbed", r->roof.read_gbps);
    } else {
        snprintf(text, room, "MBU %.1f%% of %.2f GB/s", 100 * mbu, r->roof.read_gbps);
    }
}

static void print_markdown(bench_printer *p, const bench_result *r) {
    figures f = figures_of(r);
    char size[32], params[32], name[48], speed[48], batch[24] = "", gbps[24] = "-", roof[160] = "-";
    char where[32], forecast[48] = "";
    double peak = f.is_float ? r->roof.f32_gflops : r->roof.int8_gops;
    size_text(r->info.weight_bytes, size);
    params_text(r->info.n_params, params);
    snprintf(speed, sizeof speed, "%.2f \302\261 %.2f", f.rate, f.rate_dev);
    if (r->draft != NULL) {
        const draft_figures *d = &r->figures;
        snprintf(roof, sizeof roof,
                 "%.2fx, %.2f tokens/pass of %.2f ms drafting, %.2f verifying, %.2f choosing, "
                 "%.2f other",
                 speed_up(r), d->tokens_per_pass, d->draft_ms, d->verify_ms, d->pick_ms,
                 other_ms(r));
    } else if (r->n_prompt == 0) {
        snprintf(gbps, sizeof gbps, "%.2f", f.gbps);
        if (r->roof.read_gbps > 0) {
            share_of_memory(r, f.mbu, roof, sizeof roof);
        }
    } else if (r->n_gen == 0 && peak > 0) {
        snprintf(roof, sizeof roof, "%.1f%% of %.0f %s", 100 * f.peak_share, peak,
                 f.is_float ? "GFLOP/s" : "int8 GOP/s");
    }
    if (p->show_batch) {
        snprintf(batch, sizeof batch, " %7d |", (int)r->batch);
    }
    if (p->show_forecast) {
        double expected = forecast_of(r);
        if (expected > 0) {
            snprintf(forecast, sizeof forecast, " %9.2f, x%.2f |", expected, expected / f.rate);
        } else {
            snprintf(forecast, sizeof forecast, " %16s |", "-");
        }
    }
    out_print("| %-26s | %10s | %8s | %-7s | %7d |%s %12s | %18s |%s %7s | %27s |\n", r->info.name,
              size, params, backend_of(r, where), (int)r->info.threads, batch, test_name(r, name),
              speed, forecast, gbps, roof);
    if (strcmp(backend_of(r, where), "CPU") != 0) {
        snprintf(p->device, sizeof p->device, "%s", r->info.device);
    }
}

/* Does the name have a quantized format in it, as "cpu.linear.q4_0.avx2" does? */
static int is_integer_kernel(const char *name) {
    return strstr(name, ".q") != NULL || strstr(name, ".iq") != NULL ||
           strstr(name, ".int") != NULL;
}

/* Which roof binds a kernel: the larger share of the two. */
static void kernel_roof(const gw_kernel_time *k, const gw_roof *roof, char *text, size_t capacity) {
    int is_int = is_integer_kernel(k->name);
    double peak = is_int ? roof->int8_gops : roof->f32_gflops;
    double s = k->seconds;
    double reading = s > 0 && roof->read_gbps > 0 ? k->bytes * 1e-9 / s / roof->read_gbps : 0;
    double computing = s > 0 && peak > 0 ? k->ops * 1e-9 / s / peak : 0;
    if (reading >= computing && reading > 1) {
        snprintf(text, capacity, "caches");
    } else if (reading >= computing) {
        snprintf(text, capacity, "%.1f%% read", 100 * reading);
    } else {
        snprintf(text, capacity, "%.1f%% %s", 100 * computing, is_int ? "int8" : "fp32");
    }
}

static int slower(const void *a, const void *b) {
    double x = ((const gw_kernel_time *)a)->seconds, y = ((const gw_kernel_time *)b)->seconds;
    return (x < y) - (x > y);
}

void bench_print_kernels(const bench_result *r) {
    char name[48];
    gw_kernel_time rows[KERNELS_MAX];
    double sum = 0;
    memcpy(rows, r->kernels, sizeof rows);
    qsort(rows, r->n_kernels, sizeof rows[0], slower);
    for (size_t i = 0; i < r->n_kernels; i++) {
        sum += rows[i].seconds;
    }
    out_print("\n%s, %s, %d threads: %.2f ms in kernels of %.2f ms\n\n", r->info.name,
              test_name(r, name), (int)r->info.threads, 1e3 * sum, 1e3 * r->profiled_seconds);
    out_text(
        "| kernel                         | role                 |   calls |       ms |  share |"
        "    GB/s |    GOP/s |         roof |\n"
        "|--------------------------------|----------------------|--------:|---------:|-------:|"
        "--------:|---------:|-------------:|\n");
    for (size_t i = 0; i < r->n_kernels; i++) {
        const gw_kernel_time *k = &rows[i];
        char roof[32];
        kernel_roof(k, &r->roof, roof, sizeof roof);
        double s = k->seconds > 0 ? k->seconds : 1e-12;
        out_print("| %-30s | %-20s | %7" PRIu64 " | %8.3f | %5.1f%% | %7.2f | %8.1f | %12s |\n",
                  k->name, k->what != NULL ? k->what : "", k->calls, 1e3 * k->seconds,
                  sum > 0 ? 100 * k->seconds / sum : 0, k->bytes * 1e-9 / s, k->ops * 1e-9 / s,
                  roof);
    }
}

/* ---- records: csv and json ------------------------------------------------------------------- */

typedef struct record {
    const char *format;
    size_t fields;
    int header; /* csv: print names instead of values */
} record;

/* What is not UTF-8, as the name of a file can be, becomes U+FFFD. */
static void json_text(const char *text) {
    out_text("\"");
    for (const char *c = text; *c != '\0';) {
        size_t n = gw_utf8_next(c, strnlen(c, 4), NULL);
        if (n == 0) {
            out_text("\\ufffd");
        } else if (*c == '"' || *c == '\\') {
            out_print("\\%c", *c);
        } else if ((unsigned char)*c < 0x20) {
            out_print("\\u%04x", (unsigned)(unsigned char)*c);
        } else {
            out_write(c, n);
        }
        c += n > 0 ? n : 1;
    }
    out_text("\"");
}

static void csv_text(const char *text) {
    out_text("\"");
    for (const char *c = text; *c != '\0'; c++) {
        out_write("\"\"", *c == '"' ? 2 : 0);
        if (*c != '"') {
            out_write(c, 1);
        }
    }
    out_text("\"");
}

static void begin_field(record *rec, const char *name) {
    if (strcmp(rec->format, "csv") == 0) {
        out_text(rec->fields > 0 ? "," : "");
    } else {
        out_text(rec->fields > 0 ? ", " : "");
        json_text(name);
        out_text(": ");
    }
    rec->fields++;
}

static void text_field(record *rec, const char *name, const char *text) {
    begin_field(rec, name);
    if (rec->header) {
        out_text(name);
    } else if (strcmp(rec->format, "csv") == 0) {
        csv_text(text);
    } else {
        json_text(text);
    }
}

static void number_field(record *rec, const char *name, const char *fmt, ...) APP_PRINTF(3, 4);
static void number_field(record *rec, const char *name, const char *fmt, ...) {
    char text[64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    begin_field(rec, name);
    out_text(rec->header ? name : text);
}

static const char *cpu_name(char name[128]) {
    gw_device_info rows[32];
    size_t n = gw_devices(rows, 32);
    name[0] = '\0';
    for (size_t i = 0; i < n && i < 32; i++) {
        if (strcmp(rows[i].id, "cpu") == 0) {
            snprintf(name, 128, "%s", rows[i].name);
        }
    }
    return name;
}

static void model_fields(record *rec, const bench_result *r) {
    char cpu[128], type[192], where[32];
    snprintf(type, sizeof type, "%s %s", r->info.name, r->info.format);
    text_field(rec, "build_commit", GW_VERSION);
    text_field(rec, "cpu_info", rec->header ? "" : cpu_name(cpu));
    int is_cpu = rec->header || strcmp(backend_of(r, where), "CPU") == 0;
    text_field(rec, "gpu_info", is_cpu ? "" : r->info.device);
    text_field(rec, "backends", is_cpu ? "CPU" : where);
    text_field(rec, "device", r->info.device);
    text_field(rec, "model_filename", r->path);
    text_field(rec, "model_type", type);
    number_field(rec, "model_size", "%" PRIu64, r->info.weight_bytes);
    number_field(rec, "model_n_params", "%" PRIu64, r->info.n_params);
    number_field(rec, "n_batch", "%d", (int)r->batch);
    number_field(rec, "n_ubatch", "%d", (int)r->batch);
    number_field(rec, "n_threads", "%d", (int)r->info.threads);
    size_t comma = strcspn(r->kv_type, ",");
    snprintf(type, sizeof type, "%.*s", (int)comma, r->kv_type);
    text_field(rec, "type_k", type);
    text_field(rec, "type_v", r->kv_type[comma] == ',' ? r->kv_type + comma + 1 : r->kv_type);
    number_field(rec, "n_gpu_layers", "%d", 0);
}

static void time_fields(record *rec, const bench_result *r) {
    figures f = rec->header ? (figures){0} : figures_of(r);
    number_field(rec, "n_prompt", "%d", (int)r->n_prompt);
    number_field(rec, "n_gen", "%d", (int)r->n_gen);
    number_field(rec, "n_depth", "%d", (int)r->n_depth);
    text_field(rec, "test_time", r->when);
    number_field(rec, "avg_ns", "%.0f", 1e9 * f.seconds);
    number_field(rec, "stddev_ns", "%.0f", 1e9 * f.seconds_dev);
    number_field(rec, "avg_ts", "%.6f", f.rate);
    number_field(rec, "stddev_ts", "%.6f", f.rate_dev);
    number_field(rec, "decode_bytes", "%" PRIu64, r->info.decode_bytes);
    number_field(rec, "gbps", "%.4f", f.gbps);
    number_field(rec, "mbu", "%.4f", f.mbu);
    number_field(rec, "gops", "%.4f", f.gops);
    number_field(rec, "peak_share", "%.4f", f.peak_share);
    number_field(rec, "roof_read_gbps", "%.4f", r->roof.read_gbps);
    number_field(rec, "roof_int8_gops", "%.4f", r->roof.int8_gops);
    number_field(rec, "roof_f32_gflops", "%.4f", r->roof.f32_gflops);
    const gw_draft_stats *d = &r->figures.stats;
    text_field(rec, "draft", r->draft != NULL ? r->draft->name : "");
    text_field(rec, "draft_accept", r->draft != NULL ? r->draft_options[0] : "");
    text_field(rec, "draft_length", r->draft != NULL ? r->draft_options[1] : "");
    number_field(rec, "drafted", "%" PRIu64, d->drafted);
    number_field(rec, "draft_accepted", "%" PRIu64, d->accepted);
    number_field(rec, "tokens_per_pass", "%.4f", r->figures.tokens_per_pass);
    number_field(rec, "speed_up", "%.4f", r->draft != NULL ? speed_up(r) : 0);
    number_field(rec, "passes", "%" PRIu64, d->passes);
    number_field(rec, "passes_without_drafts", "%" PRIu64, d->plain);
    number_field(rec, "draft_ms", "%.4f", r->figures.draft_ms);
    number_field(rec, "draft_read_ms", "%.4f", r->figures.read_ms);
    number_field(rec, "verify_ms", "%.4f", r->figures.verify_ms);
    number_field(rec, "pick_ms", "%.4f", r->figures.pick_ms);
    number_field(rec, "wasted_ms", "%.4f", r->figures.wasted_ms);
    number_field(rec, "forecast_ts", "%.4f", forecast_of(r));
    number_field(rec, "draft_step_ms", "%.4f", 1e3 * d->draft_step_seconds);
    for (int w = 0; w < GW_DECODE_MAX; w++) {
        char name[24];
        snprintf(name, sizeof name, "rows_%d_ms", w + 1);
        number_field(rec, name, "%.4f", 1e3 * d->width_seconds[w]);
    }
}

static void list_fields(record *rec, const bench_result *r) {
    double tokens = (double)r->n_prompt + (double)r->n_gen;
    begin_field(rec, "samples_ns");
    for (int32_t i = 0; i < r->n; i++) {
        out_print("%s%.0f", i > 0 ? ", " : "[", 1e9 * r->seconds[i]);
    }
    out_text("]");
    begin_field(rec, "samples_ts");
    for (int32_t i = 0; i < r->n; i++) {
        out_print("%s%.6f", i > 0 ? ", " : "[", tokens / r->seconds[i]);
    }
    out_text("]");
    if (r->n_kernels == 0) {
        return;
    }
    begin_field(rec, "kernels");
    for (size_t i = 0; i < r->n_kernels; i++) {
        const gw_kernel_time *k = &r->kernels[i];
        record row = {.format = "json"};
        out_text(i > 0 ? ", {" : "[{");
        text_field(&row, "name", k->name);
        text_field(&row, "what", k->what != NULL ? k->what : "");
        number_field(&row, "calls", "%" PRIu64, k->calls);
        number_field(&row, "ns", "%.0f", 1e9 * k->seconds);
        number_field(&row, "bytes", "%.0f", k->bytes);
        number_field(&row, "ops", "%.0f", k->ops);
        out_text("}");
    }
    out_text("]");
}

/* ---- pictures -------------------------------------------------------------------------------- */

typedef struct image_figures {
    double prepare, prepare_dev, tower, tower_dev; /* seconds of a picture */
    double prepare_rate, tower_rate;               /* patches per second   */
    double gops, peak, peak_share;                 /* 0: not known         */
} image_figures;

static image_figures image_figures_of(const bench_image_result *r) {
    image_figures f = {.peak = r->tower.is_float ? r->roof.f32_gflops : r->roof.int8_gops};
    mean_and_dev(r->prepare_seconds, r->n, &f.prepare, &f.prepare_dev);
    mean_and_dev(r->tower_seconds, r->n, &f.tower, &f.tower_dev);
    f.prepare_rate = (double)r->picture.patches / f.prepare;
    f.tower_rate = (double)r->picture.patches / f.tower;
    f.gops = r->tower.gops / f.tower;
    f.peak_share = f.peak > 0 ? f.gops / f.peak : 0;
    return f;
}

static void image_markdown(const bench_image_result *r, const image_figures *f) {
    char roof[48] = "-";
    if (f->peak > 0) {
        snprintf(roof, sizeof roof, "%.1f%% of %.0f %s", 100 * f->peak_share, f->peak,
                 r->tower.is_float ? "GFLOP/s" : "int8 GOP/s");
    }
    out_print("%s, vision tower of %d layers of %d, %s, on %s\n"
              "%d x %d pixels: %" PRId64 " patches of %d x %d in %d tiles, %" PRId64 " rows\n\n",
              r->info.name, (int)r->eyes.layers, (int)r->eyes.d_model, r->tower.format,
              r->tower.device, (int)r->width, (int)r->height, r->picture.patches,
              (int)r->eyes.patch, (int)r->eyes.patch, (int)r->picture.tiles, r->picture.tokens);
    out_text(
        "| step      |      ms of a picture |  patches/s |      GOP/s |                        "
        "roof |\n"
        "| --------- | -------------------: | ---------: | ---------: | ----------------------"
        "----: |\n");
    out_print("| pictures  | %11.3f \302\261 %6.3f | %10.0f | %10s | %26s |\n", 1e3 * f->prepare,
              1e3 * f->prepare_dev, f->prepare_rate, "-", "-");
    out_print("| tower     | %11.3f \302\261 %6.3f | %10.0f | %10.1f | %26s |\n", 1e3 * f->tower,
              1e3 * f->tower_dev, f->tower_rate, f->gops, roof);
}

static void image_fields(record *rec, const bench_image_result *r, const image_figures *f) {
    text_field(rec, "build_commit", GW_VERSION);
    text_field(rec, "model_filename", r->path != NULL ? r->path : "");
    text_field(rec, "model_name", r->info.name);
    text_field(rec, "device", r->tower.device);
    text_field(rec, "tower_format", r->tower.format);
    number_field(rec, "tower_layers", "%d", (int)r->eyes.layers);
    number_field(rec, "tower_width", "%d", (int)r->eyes.d_model);
    number_field(rec, "n_threads", "%d", (int)r->info.threads);
    number_field(rec, "width", "%d", (int)r->width);
    number_field(rec, "height", "%d", (int)r->height);
    number_field(rec, "pictures", "%d", (int)r->pictures);
    number_field(rec, "repetitions", "%d", (int)r->n);
    number_field(rec, "tiles", "%d", (int)r->picture.tiles);
    number_field(rec, "patches", "%" PRId64, r->picture.patches);
    number_field(rec, "rows", "%" PRId64, r->picture.tokens);
    number_field(rec, "prepare_ns", "%.0f", 1e9 * f->prepare);
    number_field(rec, "prepare_stddev_ns", "%.0f", 1e9 * f->prepare_dev);
    number_field(rec, "prepare_patches_s", "%.2f", f->prepare_rate);
    number_field(rec, "tower_ns", "%.0f", 1e9 * f->tower);
    number_field(rec, "tower_stddev_ns", "%.0f", 1e9 * f->tower_dev);
    number_field(rec, "tower_patches_s", "%.2f", f->tower_rate);
    number_field(rec, "gops", "%.6f", f->gops);
    number_field(rec, "peak_share", "%.4f", f->peak_share);
    number_field(rec, "roof_int8_gops", "%.4f", r->roof.int8_gops);
    number_field(rec, "roof_f32_gflops", "%.4f", r->roof.f32_gflops);
}

void bench_print_image(const char *format, const bench_image_result *r) {
    image_figures f = image_figures_of(r);
    record rec = {.format = format};
    if (strcmp(format, "md") == 0) {
        image_markdown(r, &f);
    } else if (strcmp(format, "csv") == 0) {
        record header = {.format = format, .header = 1};
        image_fields(&header, r, &f);
        out_text("\n");
        image_fields(&rec, r, &f);
        out_text("\n");
    } else {
        int list = strcmp(format, "json") == 0;
        out_text(list ? "[\n  {" : "{");
        image_fields(&rec, r, &f);
        out_text(list ? "}\n]\n" : "}\n");
    }
}

/* ---- the printer ----------------------------------------------------------------------------- */

void bench_print_begin(bench_printer *p) {
    if (strcmp(p->format, "md") == 0) {
        out_print("| %-26s | %10s | %8s | %-7s | %7s |%s %12s | %17s |%s %7s | %27s |\n", "model",
                  "size", "params", "backend", "threads", p->show_batch ? "   batch |" : "", "test",
                  "t/s", p->show_forecast ? "         forecast |" : "", "GB/s", "roof");
        out_print("| -------------------------- | ---------: | -------: | ------- | ------: |%s "
                  "-----------: | ----------------: |%s ------: | --------------------------: |\n",
                  p->show_batch ? " ------: |" : "", p->show_forecast ? " ---------------: |" : "");
    } else if (strcmp(p->format, "csv") == 0) {
        bench_result none = {
            .path = "", .kv_type = "", .info.name = "", .info.format = "", .info.device = ""};
        record rec = {.format = "csv", .header = 1};
        model_fields(&rec, &none);
        time_fields(&rec, &none);
        out_text("\n");
    } else if (strcmp(p->format, "json") == 0) {
        out_text("[\n");
    }
    out_flush();
}

void bench_print_row(bench_printer *p, const bench_result *r) {
    record rec = {.format = p->format};
    if (strcmp(p->format, "md") == 0) {
        print_markdown(p, r);
    } else if (strcmp(p->format, "csv") == 0) {
        model_fields(&rec, r);
        time_fields(&rec, r);
        out_text("\n");
    } else {
        int lines = strcmp(p->format, "jsonl") == 0;
        out_text(lines ? "{" : p->rows > 0 ? ",\n  {" : "  {");
        model_fields(&rec, r);
        time_fields(&rec, r);
        list_fields(&rec, r);
        out_text(lines ? "}\n" : "}");
    }
    p->rows++;
}

void bench_print_end(bench_printer *p) {
    if (strcmp(p->format, "json") == 0) {
        out_text(p->rows > 0 ? "\n]\n" : "]\n");
    }
    if (p->device[0] != '\0') {
        out_print("\n%s\n", p->device);
    }
}
