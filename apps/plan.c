/* apps/plan.c - `godwit plan`: what a model would take of each device, and how fast it would be. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/caches.h"
#include "apps/common.h"
#include "apps/output.h"
#include "apps/roof.h"
#include "apps/signals.h"
#include "include/godwit_image.h"

/* ---- markdown -------------------------------------------------------------------------------- */

/* Does the row that would be taken use the device? */
static int is_chosen(const gw_forecast *f, size_t d) {
    const gw_forecast_row *row = &f->rows[f->n_rows > 1 ? (size_t)f->chosen : 0];
    return row->use[d].layers > 0 || row->use[d].head;
}

/* How fast weights are read: from memory at the speed that `devices --measure` names, or at that of
 * the caches that hold them. */
static void reading(const gw_forecast *f, size_t d, const gw_roof *roof, char text[64]) {
    uint64_t weights = 0;
    for (size_t i = 0; i < f->n_rows; i++) {
        weights = f->rows[i].use[d].weights > weights ? f->rows[i].use[d].weights : weights;
    }
    if (strcmp(f->devices[d].id, "cpu") == 0 && weights <= cache_bytes()) {
        snprintf(text, 64, "its caches hold them");
    } else if (roof->read_gbps > 0) {
        snprintf(text, 64, "%.0f%% of %.2f GB/s",
                 f->read_gbps[d] < roof->read_gbps ? 100 * f->read_gbps[d] / roof->read_gbps : 100,
                 roof->read_gbps);
    } else {
        snprintf(text, 64, "%.1f GB/s", f->read_gbps[d]);
    }
}

static void print_devices(const gw_forecast *f, int threads) {
    out_print("%s: %d layers, a context of %d tokens, prompts of %d\n\n", f->name, (int)f->n_layers,
              (int)f->n_ctx, (int)f->chunk);
    out_text("| device | name | may use | reads weights | hidden state there and back |\n"
             "|---|---|---:|---:|---:|\n");
    int disturbed = 0;
    for (size_t d = 0; d < f->n_devices; d++) {
        char room[32], send[32] = "", speed[64];
        gw_roof roof = {0};
        int cpu = strcmp(f->devices[d].id, "cpu") == 0; /* its threads alone are an option */
        (void)roof_of_device(f->devices[d].id, cpu ? threads : 0, 0, &roof, NULL);
        reading(f, d, &roof, speed);
        if (d > 0) {
            snprintf(send, sizeof send, "%.0f us", f->send_us[d]);
        }
        out_print("| %s%s | %s | %s | %s%s | %s |\n", is_chosen(f, d) ? "* " : "", f->devices[d].id,
                  f->devices[d].name, f->room[d] > 0 ? app_bytes(f->room[d], room) : "?", speed,
                  f->disturbed[d] ? " (disturbed)" : "", send);
        disturbed |= f->disturbed[d];
    }
    out_text("\n* is where it would run.\n");
    if (disturbed) {
        out_text("Something else was running while the disturbed speeds were measured: they are "
                 "too low, and\nthe next call measures them again.\n");
    }
}

/* What one more token of the context costs; windows and page tables are spread over all of it. */
static void print_token_bytes(const gw_forecast *f, const char *kv_type) {
    uint64_t kv = 0;
    for (size_t d = 0; d < f->n_devices && f->n_rows > 0; d++) {
        kv += f->rows[0].use[d].kv + f->caches[0].bytes[d];
    }
    if (kv > f->state_bytes && f->n_ctx > 0) {
        char each[32];
        out_print("A token of the context takes %s of KV (--kv-type %s).\n",
                  app_bytes((kv - f->state_bytes) / (uint64_t)f->n_ctx, each), kv_type);
    }
}

static void print_table(const gw_forecast *f) {
    out_print("\n| N | pp%d t/s | tg t/s | fits |", (int)f->chunk);
    for (size_t d = 0; d < f->n_devices; d++) {
        const char *id = f->devices[d].id;
        out_print(" %s layers | weights | KV | scratch |", id);
    }
    out_text("\n|---:|---:|---:|---|");
    for (size_t d = 0; d < f->n_devices; d++) {
        out_text("---:|---:|---:|---:|");
    }
    for (size_t i = 0; i < f->n_rows; i++) {
        const gw_forecast_row *r = &f->rows[i];
        out_print("\n| %s%d | %.1f | %.2f | %s |", r->offloaded == f->chosen ? "* " : "",
                  (int)r->offloaded, r->prompt_rate, r->token_rate, r->fits ? "yes" : "no");
        for (size_t d = 0; d < f->n_devices; d++) {
            const gw_forecast_use *u = &r->use[d];
            char weights[32], kv[32], scratch[32], away[64] = "", host[32];
            if (f->caches[i].layers[d] > 0) {
                snprintf(away, sizeof away, ", %s in main memory",
                         app_bytes(f->caches[i].bytes[d], host));
            }
            out_print(" %d%s | %s | %s%s | %s |", (int)u->layers, u->head ? " + head" : "",
                      app_bytes(u->weights, weights), app_bytes(u->kv, kv), away,
                      app_bytes(u->scratch, scratch));
        }
    }
    out_print("\n\n* is what --offload-layers would take. Scratch is an upper bound.\n");
    if (f->state_bytes > 0) {
        char states[32], batch[32];
        out_print("Of the KV %s are states of recurrent layers, whatever the context; a batch "
                  "without drafts has %s of each text.\n",
                  app_bytes(f->state_bytes, states), app_bytes(f->batch_state_bytes, batch));
    }
}

/* Where caches lie in main memory, what they cost late in a text. */
static void print_caches(const gw_forecast *f) {
    const gw_forecast_cache *c = &f->caches[f->n_rows > 1 ? (size_t)f->chosen : 0];
    const double token = f->rows[f->n_rows > 1 ? (size_t)f->chosen : 0].token_rate;
    int layers = 0;
    for (size_t d = 0; d < f->n_devices; d++) {
        layers += c->layers[d];
    }
    if (layers > 0 && token > 0) {
        out_print("With --offload-layers %d the caches of %d layers lie in main memory: early in a "
                  "text a token takes\n%.3g ms",
                  (int)f->chosen, layers, 1e3 / token);
        if (c->full_seconds > 1e-6) { /* less is noise */
            out_print(", and with the context full %.3g ms more for reading the caches of all "
                      "layers",
                      1e3 * c->full_seconds);
        }
        out_print(".\n");
    }
}

/* What is taken for pictures before layers are placed. */
static void print_eyes(const gw_eyes_need *eyes) {
    char weights[32], scratch[32];
    if (eyes->device[0] == '\0') {
        return;
    }
    out_print("Pictures: the vision tower is on %s, %s of weights", eyes->device,
              app_bytes(eyes->weights, weights));
    if (eyes->patches > 0) {
        out_print(", and a picture of the most patches, %d, takes %s", (int)eyes->patches,
                  app_bytes(eyes->scratch, scratch));
    }
    out_text(strcmp(eyes->device, "cpu") == 0
                 ? ".\n"
                 : ".\nBoth are taken before layers are placed; --no-mmproj is for text alone.\n");
}

/* What --draft mtp would load with the model. */
static void print_predictor(const char *path) {
    gw_inspection *v = NULL;
    if (path != NULL && gw_inspect(path, NULL, 0, 0, signals_cancel(), &v) == GW_OK) {
        gw_model_info info;
        gw_inspection_describe(v, &info);
        if (info.n_predictors > 0) {
            out_print("%d layer beside them predicts one token more: --draft mtp, not counted "
                      "here.\n",
                      (int)info.n_predictors);
        }
    }
    gw_inspection_free(v);
}

/* ---- csv and json ---------------------------------------------------------------------------- */

static void print_csv(const gw_forecast *f) {
    out_text("offloaded,chosen,fits,prompt_tokens_per_second,generated_tokens_per_second,device,"
             "layers,head,weight_bytes,kv_bytes,scratch_bytes,kv_host_layers,kv_host_bytes\n");
    for (size_t i = 0; i < f->n_rows; i++) {
        const gw_forecast_row *r = &f->rows[i];
        for (size_t d = 0; d < f->n_devices; d++) {
            const gw_forecast_use *u = &r->use[d];
            out_print("%d,%d,%d,%.6g,%.6g,%s,%d,%d,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%d,%" PRIu64
                      "\n",
                      (int)r->offloaded, r->offloaded == f->chosen, r->fits, r->prompt_rate,
                      r->token_rate, f->devices[d].id, (int)u->layers, u->head, u->weights, u->kv,
                      u->scratch, (int)f->caches[i].layers[d], f->caches[i].bytes[d]);
        }
    }
}

static json_t *row_json(const gw_forecast *f, size_t i) {
    const gw_forecast_row *r = &f->rows[i];
    const gw_forecast_cache *c = &f->caches[i];
    json_t *devices = json_array();
    for (size_t d = 0; d < f->n_devices; d++) {
        const gw_forecast_use *u = &r->use[d];
        json_array_append_new(
            devices, json_pack("{ss si sb sI sI sI si sI}", "device", f->devices[d].id, "layers",
                               (int)u->layers, "head", u->head, "weight_bytes",
                               (json_int_t)u->weights, "kv_bytes", (json_int_t)u->kv,
                               "scratch_bytes", (json_int_t)u->scratch, "kv_host_layers",
                               (int)c->layers[d], "kv_host_bytes", (json_int_t)c->bytes[d]));
    }
    return json_pack("{si sb sf sf sf so}", "offloaded", (int)r->offloaded, "fits", r->fits,
                     "prompt_tokens_per_second", r->prompt_rate, "generated_tokens_per_second",
                     r->token_rate, "full_cache_seconds", c->full_seconds, "devices", devices);
}

static json_t *eyes_json(const gw_eyes_need *eyes) {
    if (eyes->device[0] == '\0') {
        return json_null();
    }
    return json_pack("{ss ss si sI sI}", "device", eyes->device, "format", eyes->format, "patches",
                     (int)eyes->patches, "weight_bytes", (json_int_t)eyes->weights, "scratch_bytes",
                     (json_int_t)eyes->scratch);
}

static int print_json(const gw_forecast *f, const gw_eyes_need *eyes) {
    json_t *devices = json_array(), *rows = json_array();
    for (size_t d = 0; d < f->n_devices; d++) {
        json_array_append_new(
            devices, json_pack("{ss ss sI sf sf sb sb}", "device", f->devices[d].id, "name",
                               f->devices[d].name, "room_bytes", (json_int_t)f->room[d],
                               "read_gbps", f->read_gbps[d], "send_us", f->send_us[d], "chosen",
                               is_chosen(f, d), "disturbed", f->disturbed[d]));
    }
    for (size_t i = 0; i < f->n_rows; i++) {
        json_array_append_new(rows, row_json(f, i));
    }
    json_t *all =
        json_pack("{ss si si si si so so so}", "model", f->name, "layers", (int)f->n_layers,
                  "context", (int)f->n_ctx, "prompt", (int)f->chunk, "chosen", (int)f->chosen,
                  "devices", devices, "rows", rows, "pictures", eyes_json(eyes));
    char *text = all != NULL ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(all);
    if (text == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    out_print("%s\n", text);
    free(text);
    return APP_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* With the vision tower where there is one that can be computed, as chat and serve open it: else of
 * text alone. */
static gw_status look_ahead(const app_options *o, gw_model_options *options, gw_forecast **f,
                            gw_eyes_need *eyes) {
    gw_images *images = NULL;
    gw_status status =
        o->no_mmproj ? GW_E_UNSUPPORTED : gw_images_open(options->path, o->mmproj, &images);
    gw_images_free(images);
    if (status == GW_OK) {
        options->images = 1;
        options->mmproj = o->mmproj;
        status = gw_eyes_forecast(options, eyes);
    }
    if (status != GW_OK && o->mmproj != NULL && !o->no_mmproj) {
        return status;
    }
    options->images = status == GW_OK;
    options->mmproj = status == GW_OK ? o->mmproj : NULL;
    return gw_forecast_new(options, f);
}

static int run_plan(const app_options *o) {
    gw_forecast *f = NULL;
    gw_eyes_need eyes = {.device = ""};
    gw_model_options options;
    const app_need need = {.n_ctx = o->n_ctx < 0 ? -4096 : o->n_ctx, .batch = o->batch};
    int code = app_model_options(o, o->model, o->threads, &need, &options);
    if (code != APP_OK) {
        return code;
    }
    if (options.offload_layers == NULL && (o->device == NULL || strcmp(o->device, "cpu") != 0)) {
        options.offload_layers = "auto";
    }
    gw_status status = look_ahead(o, &options, &f, &eyes);
    if (status != GW_OK) {
        return app_fail(status);
    }
    if (f->note[0] != '\0') {
        app_note("%s", f->note);
    }
    if (strcmp(o->format, "csv") == 0) {
        print_csv(f);
    } else if (strcmp(o->format, "json") == 0) {
        code = print_json(f, &eyes);
    } else {
        print_devices(f, o->threads);
        print_table(f);
        print_token_bytes(f, o->kv_type);
        print_caches(f);
        print_eyes(&eyes);
        print_predictor(o->model);
    }
    gw_forecast_free(f);
    return out_failed() ? APP_FAILURE : code;
}

const app_command command_plan = {
    .name = "plan",
    .bit = CMD_PLAN,
    .usage = "[-m MODEL] [--device NAME,...] [--vram-budget SIZE] [OPTIONS]",
    .summary = "what would run where: memory and speed for every --offload-layers",
    .detail =
        "Without loading weights: for each number N of offloaded blocks, the layers, weights, "
        "cache\n"
        "and scratch on each device, and the speed to expect, from a few layers of the model's\n"
        "shape timed on each device for a few seconds; the times are kept, unless something else\n"
        "disturbed them. Measuring takes up to 1 GB of each device, two layers at least, and no\n"
        "more than a quarter of what is free there. Without --device the first graphics card that\n"
        "works is looked at, as 'godwit run' does. Nothing that is asked for is made smaller: "
        "what\n"
        "does not fit says no.\n",
    .examples = "  godwit plan -m model.gguf\n"
                "  godwit plan -m model.gguf -c 8192 --device opencl:0 --vram-budget 6G -o json\n",
    .operand = "--model",
    .run = run_plan,
};
