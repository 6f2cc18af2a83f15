/* apps/common.c - opening models, reading texts, reporting errors. */
#include "apps/common.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/signals.h"

/* default_model.S; absent from builds without a built-in model. */
extern const unsigned char gw_default_model[] __attribute__((weak));
extern const unsigned char gw_default_model_end[] __attribute__((weak));

int app_fail(gw_status status) {
    if (status == GW_E_CANCELLED && signals_caught() != 0) {
        return signals_exit_code(APP_FAILURE);
    }
    app_error("%s", gw_error_text());
    return status == GW_E_ARGUMENT ? APP_USAGE : APP_FAILURE;
}

/* ---- models ---------------------------------------------------------------------------------- */

static void on_progress(void *user, uint64_t done, uint64_t total) {
    progress_update(user, done, total, NULL);
}

int app_builtin_model(const void **memory, size_t *bytes) {
    const unsigned char *begin = gw_default_model, *end = gw_default_model_end;
    if (begin == NULL || end == NULL) {
        app_error("this build has no built-in model: name one with -m PATH");
        return APP_USAGE;
    }
    *memory = begin;
    *bytes = (size_t)(end - begin);
    return APP_OK;
}

int app_model_options(const app_options *o, const char *path, int32_t threads, const app_need *need,
                      gw_model_options *out) {
    *out = (gw_model_options){
        .path = path,
        .weights = o->weights,
        .device = o->device,
        .threads = threads,
        .blas = o->blas,
        .no_graph = o->no_graph,
        .exact = o->exact,
        .vocab_only = need == NULL,
        .offload_layers = o->offload_layers,
        .split = o->split,
        .vram_budget = o->vram_budget,
        .n_ctx = need != NULL ? need->n_ctx : 0,
        .chunk = need != NULL ? need->batch : 0,
        .kv_type = o->kv_type,
        .cancel = signals_cancel(),
    };
    if (path == NULL) {
        return app_builtin_model(&out->memory, &out->memory_bytes);
    }
    return APP_OK;
}

int app_open_model(const app_options *o, const char *path, int32_t threads, const app_need *need,
                   gw_model **model) {
    app_progress progress;
    gw_model_options options;
    int code = app_model_options(o, path, threads, need, &options);
    if (code != APP_OK) {
        return code;
    }
    progress_begin(&progress, "loading");
    options.progress = on_progress;
    options.progress_user = &progress;
    gw_status status = gw_model_open(&options, model);
    progress_end(&progress);
    if (status != GW_OK) {
        return app_fail(status);
    }
    gw_model_info info;
    gw_model_describe(*model, &info);
    if (info.note[0] != '\0') {
        app_note("%s", info.note);
    }
    return APP_OK;
}

void app_close_model(gw_model *model) {
    gw_model_info info;
    if (model != NULL) {
        gw_model_describe(model, &info);
        if (info.fault[0] != '\0') {
            app_note("%s", info.fault);
        }
        gw_model_free(model);
    }
}

int app_open_session(const app_options *o, gw_model *model, int32_t n_ctx, int32_t batch,
                     gw_session **session) {
    app_progress progress;
    gw_session_options options = {
        .n_ctx = n_ctx,
        .chunk = batch,
        .kv_type = o->kv_type,
        .cancel = signals_cancel(),
        .progress = on_progress,
        .progress_user = &progress,
    };
    progress_begin(&progress, "compiling kernels");
    gw_status status = gw_session_new(model, &options, session);
    progress_end(&progress);
    return status == GW_OK ? APP_OK : app_fail(status);
}

/* ---- texts ----------------------------------------------------------------------------------- */

enum { TEXT_MAX = 1 << 30 };

static int read_all(int fd, const char *name, app_text *text) {
    size_t capacity = 0;
    for (;;) {
        if (text->bytes + 1 >= capacity) {
            capacity = capacity == 0 ? 1 << 16 : capacity * 2;
            char *grown = capacity <= 2u * TEXT_MAX ? realloc(text->at, capacity) : NULL;
            if (grown == NULL) {
                app_error("%s: the text is longer than 1 GiB or than the memory", name);
                return APP_FAILURE;
            }
            text->at = grown;
        }
        ssize_t n = signals_read(fd, text->at + text->bytes, capacity - text->bytes - 1);
        if (n == 0) {
            text->at[text->bytes] = '\0';
            return APP_OK;
        }
        if (n < 0) {
            if (errno != EINTR) {
                app_error("%s: cannot read: %s", name, strerror(errno));
            }
            return signals_exit_code(APP_FAILURE);
        }
        text->bytes += (size_t)n;
    }
}

int app_read_file(const char *path, app_text *out) {
    int is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        app_error("%s: cannot open: %s", name, strerror(errno));
        return APP_FAILURE;
    }
    app_text text = {0};
    int code = read_all(fd, name, &text);
    if (!is_stdin) {
        close(fd);
    }
    if (code != APP_OK) {
        free(text.at);
        return code;
    }
    *out = text;
    return APP_OK;
}

int app_read_prompt(const app_options *o, const char *otherwise, int trim, app_text *out) {
    if (o->prompt != NULL && o->file != NULL) {
        app_error("-p and -f exclude each other: which text is meant?");
        return APP_USAGE;
    }
    if (o->file != NULL) {
        int code = app_read_file(o->file, out);
        if (code == APP_OK && trim && out->bytes > 0 && out->at[out->bytes - 1] == '\n') {
            out->at[--out->bytes] = '\0';
        }
        return code;
    }
    const char *text = o->prompt != NULL ? o->prompt : otherwise;
    if (text == NULL) {
        app_error("no text: give one with -p TEXT or -f FILE");
        return APP_USAGE;
    }
    app_text copy = {.at = strdup(text), .bytes = strlen(text)};
    if (copy.at == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    *out = copy;
    return APP_OK;
}

int app_tokenize(const gw_model *model, const app_text *text, int flags, int32_t **ids, size_t *n) {
    gw_status status = gw_tokenize(model, text->at, text->bytes, flags, ids, n);
    return status == GW_OK ? APP_OK : app_fail(status);
}

int app_check_ids(const gw_model *model, const char *option, const app_ints *ids) {
    gw_model_info info;
    gw_model_describe(model, &info);
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->at[i] >= info.n_vocab) {
            app_error("%s: token %d is not between 0 and %d, the tokens of this model", option,
                      (int)ids->at[i], (int)info.n_vocab - 1);
            return APP_USAGE;
        }
    }
    return APP_OK;
}

int app_adds_bos(const gw_model *model) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (gw_tokenize(model, "", 0, GW_TEXT_BOS, &ids, &n) != GW_OK) {
        return 0;
    }
    int adds = n > 0 && ids[0] == gw_token_bos(model);
    gw_free(ids);
    return adds;
}

/* ---- small things ---------------------------------------------------------------------------- */

int32_t app_argmax(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!(x[i] < INFINITY)) {
            return -1;
        }
        best = x[i] > x[best] ? i : best;
    }
    return n > 0 && x[best] > -INFINITY ? best : -1;
}

const char *app_bytes(uint64_t bytes, char text[32]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double x = (double)bytes;
    int unit = 0;
    for (; x >= 999.5 && unit < 4; unit++) {
        x /= 1000;
    }
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.3g %s", x, units[unit]);
    return text;
}
