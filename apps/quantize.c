/* apps/quantize.c - `godwit quantize`: a smaller model out of one in floats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/lora.h"
#include "apps/output.h"
#include "apps/signals.h"
#include "core/base/os.h"

static void say(void *user, const char *line) {
    (void)user;
    app_note("%s", line);
}

/* Lines of a file after the rules that were given, in one list; text: what they point into. */
static int add_rules(const app_options *o, app_texts *rules, app_text *text) {
    size_t lines = 1;
    if (o->tensor_type_file != NULL) {
        int code = app_read_file(o->tensor_type_file, text);
        if (code != APP_OK) {
            return code;
        }
        for (size_t i = 0; i < text->bytes; i++) {
            lines += text->at[i] == '\n';
        }
    }
    rules->at = malloc((o->tensor_types.n + lines + 1) * sizeof *rules->at);
    if (rules->at == NULL) {
        app_error("no memory for rules");
        return APP_FAILURE;
    }
    for (size_t i = 0; i < o->tensor_types.n; i++) {
        rules->at[rules->n++] = o->tensor_types.at[i];
    }
    for (char *line = text->at; line != NULL && *line != '\0';) {
        char *end = line + strcspn(line, "\r\n");
        char *next = *end != '\0' ? end + 1 : end;
        *end = '\0';
        if (*line != '\0' && *line != '#') {
            rules->at[rules->n++] = line;
        }
        line = next;
    }
    return APP_OK;
}

static void append(char *text, size_t room, const char *word, const char *value) {
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s%s", word, value != NULL ? " " : "",
             value != NULL ? value : "");
}

static const char *base_name(const char *path) {
    const char *slash = path != NULL ? gw_os_last_slash(path) : NULL;
    return slash != NULL ? slash + 1 : path;
}

/* What decides the bytes, without paths: threads and memory do not. */
static void write_recipe(const app_options *o, const app_texts *rules, char *out, size_t room) {
    out[0] = '\0';
    append(out, room, "godwit quantize", o->type);
    if (o->fit > 0) {
        char size[32];
        snprintf(size, sizeof size, "%llu", (unsigned long long)o->fit);
        append(out, room, " --fit", size);
        if (o->fit_ctx > 0) {
            snprintf(size, sizeof size, "%d", (int)o->fit_ctx);
            append(out, room, " --fit-ctx", size);
        }
    }
    if (o->imatrix != NULL) {
        append(out, room, " --imatrix", base_name(o->imatrix));
    }
    if (o->calibrate != NULL) {
        append(out, room, " --calibrate", base_name(o->calibrate));
    }
    if (o->pure) {
        append(out, room, " --pure", NULL);
    }
    for (size_t i = 0; i < rules->n; i++) {
        append(out, room, " --tensor-type", rules->at[i]);
    }
    if (o->output_type != NULL) {
        append(out, room, " --output-tensor-type", o->output_type);
    }
    if (o->embedding_type != NULL) {
        append(out, room, " --token-embedding-type", o->embedding_type);
    }
    if (o->order != NULL) {
        append(out, room, " --order", o->order);
    }
    if (o->prune != NULL) {
        append(out, room, " --prune-layers", o->prune);
    }
    for (size_t i = 0; i < o->lora.n; i++) {
        append(out, room, " --lora", base_name(o->lora.at[i]));
    }
}

static int report(gw_status status) { return status == GW_OK ? APP_OK : app_fail(status); }

static int run_quantize(const app_options *o) {
    if (o->out == NULL) {
        app_error("no place for the result: give one with -o PATH");
        return APP_USAGE;
    }
    if (o->type == NULL && o->fit == 0) {
        app_error("no type: as in 'godwit quantize -m MODEL -o OUT q4_k_m'");
        return APP_USAGE;
    }
    if (o->model == NULL && o->tensors == NULL) {
        app_error("no model: give one with -m PATH");
        return APP_USAGE;
    }
    if (o->gptq && o->calibrate == NULL && o->tensors == NULL) {
        app_error("--gptq needs --calibrate TEXT: error feedback goes by what a text gives");
        return APP_USAGE;
    }
    app_texts rules = {0};
    app_text text = {0};
    char recipe[2048];
    gw_lora_file *files = lora_list(o);
    int code = files != NULL ? add_rules(o, &rules, &text) : APP_USAGE;
    write_recipe(o, &rules, recipe, sizeof recipe);
    gw_quantize_options q = {.model = o->tensors != NULL ? o->tensors : o->model,
                             .out = o->out,
                             .type = o->type,
                             .threads = o->threads,
                             .imatrix = o->imatrix,
                             .rules = rules.at,
                             .n_rules = rules.n,
                             .output_type = o->output_type,
                             .embedding_type = o->embedding_type,
                             .include = o->include_weights.at,
                             .n_include = o->include_weights.n,
                             .exclude = o->exclude_weights.at,
                             .n_exclude = o->exclude_weights.n,
                             .overrides = o->overrides.at,
                             .n_overrides = o->overrides.n,
                             .pure = o->pure,
                             .leave_output = o->leave_output,
                             .allow_requantize = o->allow_requantize,
                             .keep_split = o->keep_split,
                             .no_fallback = o->no_fallback,
                             .allow_nan = o->allow_nan,
                             .dry_run = o->dry_run,
                             .resume = o->resume,
                             .split_max = o->split_max,
                             .memory = o->memory,
                             .report = o->report,
                             .recipe = recipe,
                             .calibrate = o->calibrate,
                             .gptq = o->calibrate != NULL && !o->no_gptq,
                             .damp = o->damp,
                             .order = o->order,
                             .rule = o->rule,
                             .fit = o->fit,
                             .fit_ctx = o->fit_ctx,
                             .prune = o->prune,
                             .lora = files,
                             .n_lora = o->lora.n,
                             .windows = o->windows,
                             .say = say,
                             .cancel = signals_cancel()};
    if (code == APP_OK) {
        double start = app_seconds();
        code = report(o->tensors != NULL ? gw_quantize_tensors(&q) : gw_quantize(&q));
        if (code == APP_OK && !o->dry_run) {
            app_note("%s in %.1f s, at most %.0f MiB held", o->out, app_seconds() - start,
                     (double)gw_os_memory_peak() / (1 << 20));
        }
    }
    free(files);
    free(text.at);
    free(rules.at);
    return code;
}

const app_command command_quantize = {
    .name = "quantize",
    .bit = CMD_QUANTIZE,
    .usage = "IN OUT TYPE | -m MODEL -o OUT TYPE [OPTIONS]",
    .summary = "make a smaller model",
    .detail =
        "Makes a GGUF file of the given type out of a model, tensor by tensor, whatever its size.\n"
        "TYPE is a name of llama.cpp's, in any case: f32 f16 bf16 q8_0 q6_k q5_k_m q5_k_s q5_1\n"
        "q5_0 q4_k_m q4_k_s q4_1 q4_0 q3_k_l q3_k_m q3_k_s q2_k q2_k_s iq4_xs iq4_nl iq3_m iq3_s\n"
        "iq3_xs iq3_xxs iq2_m iq2_s iq2_xs iq2_xxs iq1_m iq1_s tq2_0 tq1_0 q2_0 q1_0 mxfp4 nvfp4\n"
        "and copy. The mixtures give the matrices of a name the formats that it gives them there.\n"
        "gptq-g128 and w4a16-g128 (32, 64, 256) make a folder of int4 matrices as GPTQ's tools "
        "and\n"
        "compressed-tensors lay them out, out of a folder in floats.\n"
        "The bytes are the same for every number of threads, instruction set and --memory. The\n"
        "file appears when it is whole; a run that was cut off goes on with --resume.\n",
    .examples =
        "  godwit quantize -m model-f16.gguf -o model-q4_k_m.gguf q4_k_m --imatrix im.gguf\n"
        "  godwit quantize -m model-f16.gguf -o small.gguf q3_k_m --tensor-type "
        "'attn_v=q6_k'\n"
        "  godwit quantize -m model-f16.gguf -o x.gguf q5_k_m --dry-run\n",
    .operand = "--type",
    .run = run_quantize,
};

static void show(void *user, const char *line) {
    (void)user;
    (void)out_print("%s\n", line);
}

static int run_calibrate(const app_options *o) {
    if (o->out == NULL && !o->show) {
        app_error("no place for the result: give one with -o PATH, or --show");
        return APP_USAGE;
    }
    if (o->file == NULL && o->in_files.n == 0) {
        app_error("no text: give one with -f FILE");
        return APP_USAGE;
    }
    if (o->model == NULL && o->file != NULL) {
        app_error("no model: give one with -m PATH");
        return APP_USAGE;
    }
    const gw_calibrate_options c = {.model = o->model,
                                    .text = o->file,
                                    .out = o->out,
                                    .xtx = o->xtx,
                                    .in_files = o->in_files.at,
                                    .n_in = o->in_files.n,
                                    .threads = o->threads,
                                    .windows = o->windows,
                                    .with_output = o->with_output,
                                    .memory = o->memory,
                                    .say = say,
                                    .cancel = signals_cancel(),
                                    .show = o->show ? show : NULL};
    double start = app_seconds();
    int code = report(gw_calibrate(&c));
    if (code == APP_OK && o->out != NULL) {
        app_note("%s in %.1f s", o->out, app_seconds() - start);
    }
    return code;
}

const app_command command_calibrate = {
    .name = "calibrate",
    .bit = CMD_CALIBRATE,
    .usage = "-m MODEL -f TEXT -o OUT.gguf [OPTIONS]",
    .summary = "which columns of a model's weights matter, from a text",
    .detail =
        "Runs the float model over windows of 512 tokens of a text and writes the importance\n"
        "matrix that godwit quantize and llama-quantize read: sums of squares of what each matrix\n"
        "is multiplied with, of experts each one's own. A name that ends in .dat: the older "
        "form.\n",
    .examples = "  godwit calibrate -m model-f16.gguf -f text.txt -o imatrix.gguf\n"
                "  godwit calibrate --in-file imatrix.gguf --show\n"
                "  godwit calibrate --in-file a.gguf --in-file b.gguf -o both.gguf\n",
    .operand = "--model",
    .run = run_calibrate,
};
