/* apps/common.c - opening models, reading texts, reporting errors. */
#include "apps/common.h"
#include "apps/lora.h"
#include "core/base/os.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/pictures.h"
#include "apps/signals.h"
#include "core/base/text.h"
#include "include/godwit_hosts.h"

/* default_model.S; absent from builds without a built-in model. */
extern const unsigned char gw_default_model[] __attribute__((weak));
extern const unsigned char gw_default_model_end[] __attribute__((weak));

/* Behind the name of a class of errors, as in "device: ...". */
static const char *behind_class(const char *text) {
    for (int status = 0; status < GW_STATUS_COUNT; status++) {
        const char *name = gw_status_name((gw_status)status);
        size_t n = strlen(name);
        if (strncmp(text, name, n) == 0 && strncmp(text + n, ": ", 2) == 0) {
            return text + n + 2;
        }
    }
    return text;
}

/* The library's errors begin with where it happened and their class. Parts of the engine are no
 * place that a user knows: an option's name stands there instead, or nothing. Files keep both. */
static const char *plain_words(const char *text) {
    static const struct {
        const char *part, *instead;
    } rows[] = {{"device: ", "--device: "},
                {"offload-layers: ", "--offload-layers: "},
                {"kv-host-layers: ", "--kv-host-layers: "},
                {"split: ", "--split: "},
                {"split-mode: ", "--split-mode: "},
                {"groups: ", "--groups: "},
                {"threads: ", "--threads: "},
                {"kv-type: ", "--kv-type: "},
                {"weights: ", "--weights: "},
                {"pretokenizer: ", "--pretokenizer: "},
                {"chat template: ", "--chat-template: "},
                {"draft length: ", "--draft-length: "},
                {"draft file: ", "--draft-file: "},
                {"sampler order: ", "--samplers: "},
                {"logit bias: ", "--logit-bias: "},
                {"dry_breakers: ", "--dry-sequence-breaker: "},
                {"banned strings: ", "--ban: "},
                {"assumed acceptance: ", "--assume-acceptance: "},
                {"chunk: ", "--batch-size: "},
                {"hip: ", "hip: "},
                {"opencl: ", "opencl: "},
                {"mpi: ", ""},
                {"grammar: ", "the grammar: "},
                {"ban: ", "--ban: "},
                {"stop: ", "--stop: "},
                {"plan: ", ""},
                {"model: ", ""},
                {"session: ", ""},
                {"sampler: ", ""},
                {"context: ", ""},
                {"context shift: ", ""},
                {"draft: ", ""},
                {"roof: ", ""},
                {"product: ", ""},
                {"chat: ", ""},
                {"rewind: ", ""},
                {"logits: ", ""},
                {"tokens: ", ""},
                {"token: ", ""},
                {"self-test: ", ""},
                {"cpu: ", ""}};
    static char line[1024];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = strlen(rows[i].part);
        if (strncmp(text, rows[i].part, n) == 0) {
            snprintf(line, sizeof line, "%s%s", rows[i].instead, behind_class(text + n));
            return line;
        }
    }
    return behind_class(text);
}

int app_fail(gw_status status) {
    if (status == GW_E_CANCELLED && signals_caught() != 0) {
        return signals_exit_code(APP_FAILURE);
    }
    app_error("%s", plain_words(gw_error_text()));
    return status == GW_E_ARGUMENT ? APP_USAGE : APP_FAILURE;
}

/* ---- models ---------------------------------------------------------------------------------- */

static void on_progress(void *user, uint64_t done, uint64_t total) {
    progress_update(user, done, total, NULL);
}

int app_has_builtin_model(void) { return gw_default_model != NULL; }

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

/* The list of devices, with those of other hosts; a draft runs here. NULL: it was reported. */
static const char *device_list(const app_options *o, const app_need *need) {
    static char list[1024];
    const char *own = o->device != NULL ? o->device : "auto";
    if (need == NULL || need->is_draft) {
        return own;
    }
    return gw_hosts_devices(own, list, sizeof list) == GW_OK ? list : NULL;
}

int app_model_options(const app_options *o, const char *path, int32_t threads, const app_need *need,
                      gw_model_options *out) {
    const char *devices = device_list(o, need);
    if (devices == NULL) {
        return app_fail(GW_E_LIMIT);
    }
    /* "auto" stands there too where nobody said anything */
    if (o->no_kv_offload && o->kv_host_layers != NULL && strcmp(o->kv_host_layers, "all") != 0 &&
        strcmp(o->kv_host_layers, "auto") != 0) {
        app_error("--no-kv-offload and --kv-host-layers %s exclude each other: of how many layers "
                  "are the caches to lie in main memory?",
                  o->kv_host_layers);
        return APP_USAGE;
    }
    *out = (gw_model_options){
        .path = path,
        .weights = o->weights,
        .device = devices,
        .pretokenizer = o->pretokenizer,
        .spec = o->spec != NULL && path != NULL && o->model != NULL && strcmp(path, o->model) == 0
                    ? o->spec
                    : NULL,
        .threads = threads,
        .blas = o->blas,
        .no_graph = o->no_graph,
        .exact = o->exact,
        .vocab_only = need == NULL,
        .offload_layers = o->offload_layers,
        .split = o->split,
        .split_mode = o->split_mode,
        .groups = o->groups,
        .vram_budget = o->vram_budget,
        .prompt_offload = o->prompt_offload,
        .kv_host_layers = o->no_kv_offload ? "all" : o->kv_host_layers,
        .cpu_experts = o->cpu_moe ? INT32_MAX : o->n_cpu_moe,
        .n_ctx = need != NULL ? need->n_ctx : 0,
        .chunk = need != NULL ? need->batch : 0,
        .predictor = need != NULL && need->predictor,
        .target = need != NULL ? need->target : NULL,
        .images = need != NULL && need->images,
        .mmproj = need != NULL && need->images ? o->mmproj : NULL,
        .kv_type = o->kv_type != NULL && strcmp(o->kv_type, "auto") == 0 ? "f32" : o->kv_type,
        .cancel = signals_cancel(),
    };
    if (need != NULL && need->is_draft && (gw_hosts_asked() > 1 || o->workers != NULL)) {
        out->split = out->split_mode = out->groups = NULL; /* these are of the target's ranks */
    }
    if (path == NULL) {
        return app_builtin_model(&out->memory, &out->memory_bytes);
    }
    return APP_OK;
}

int app_mentions(const char *text, const char *word) {
    const size_t n = strlen(word);
    while (*text != '\0' && strncasecmp(text, word, n) != 0) {
        text++;
    }
    return *text != '\0';
}

const char *app_head_kind(const gw_model_info *info) {
    return app_mentions(info->architecture, "dspark")   ? "DSpark"
           : app_mentions(info->architecture, "dflash") ? "DFlash"
                                                        : "EAGLE-3";
}

int app_open_model(const app_options *o, const char *path, int32_t threads, const app_need *need,
                   gw_model **model) {
    app_progress progress;
    gw_model_options options;
    int code = app_model_options(o, path, threads, need, &options);
    if (code != APP_OK) {
        return code;
    }
    if (lora_check(o) != 0) {
        return APP_USAGE;
    }
    progress_begin(&progress, "loading");
    options.progress = on_progress;
    options.progress_user = &progress;
    gw_status status = need != NULL && need->eyes != NULL
                           ? pictures_open_model(o, &options, model, need->eyes, need->blind)
                           : gw_model_open(&options, model);
    progress_end(&progress);
    if (status == GW_OK && o->lora.n > 0 &&
        !(need != NULL && (need->is_draft || need->predictor))) {
        status = lora_open(o, *model);
    }
    if (status != GW_OK) {
        return app_fail(status);
    }
    gw_model_info info;
    gw_model_describe(*model, &info);
    if (info.note[0] != '\0') {
        app_note("%s", info.note);
    }
    if (info.target_width > 0 && need != NULL && !need->is_draft) {
        app_error("%s: a head that drafts (%s), no model by itself: give it to a model of "
                  "width %d and %d tokens with --draft",
                  path, app_head_kind(&info), (int)info.target_width, (int)info.target_vocab);
        gw_model_free(*model);
        *model = NULL;
        return APP_FAILURE;
    }
    if (info.placed[0] != '\0' && !(need != NULL && need->is_draft)) {
        app_note("%s", info.placed);
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

static void note_long_context(const gw_model *model, int32_t n_ctx) {
    gw_model_info info;
    gw_model_describe(model, &info);
    if (info.n_ctx_train > 0 && n_ctx > info.n_ctx_train) {
        app_note("a context of %d tokens, but the model was trained for %d: text beyond them may "
                 "make no sense",
                 (int)n_ctx, (int)info.n_ctx_train);
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
    if (status != GW_OK) {
        return app_fail(status);
    }
    note_long_context(model, n_ctx);
    return APP_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

enum { TEXT_MAX = 1 << 30 };

static int read_all(int fd, const char *name, const char *what, size_t most, app_text *text) {
    size_t capacity = 0;
    for (;;) {
        if (text->bytes + 1 >= capacity) {
            capacity = capacity == 0 ? 1 << 16 : capacity * 2;
            char *grown = capacity <= 2 * most ? realloc(text->at, capacity) : NULL;
            if (grown == NULL) {
                app_error("%s: the %s has more than %zu MiB or than the memory", name, what,
                          most >> 20);
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
    return app_read_bytes(path, "text", TEXT_MAX, out);
}

int app_read_bytes(const char *path, const char *what, size_t most, app_text *out) {
    int is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (path[0] == '\0') {
            app_error("the name of the %s's file is empty", what);
        } else {
            app_error("%s: cannot open: %s", name, strerror(errno));
        }
        return APP_FAILURE;
    }
    app_text text = {0};
    int code = read_all(fd, name, what, most, &text);
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

/* The one that an editor adds: LF, CR LF, or the lone CR of old files. */
static void drop_line_end(app_text *text) {
    size_t n = text->bytes;
    n -= n > 0 && text->at[n - 1] == '\n';
    n -= n > 0 && text->at[n - 1] == '\r';
    text->at[n] = '\0';
    text->bytes = n;
}

/* -e: what a backslash and a letter stand for; others stay as they are. */
static void unescape(app_text *text) {
    static const char letters[] = "ntr\\\"'", meant[] = "\n\t\r\\\"'";
    size_t n = 0;
    for (size_t i = 0; i < text->bytes; i++) {
        const char *at = text->at + i, *found = NULL;
        if (at[0] == '\\' && i + 1 < text->bytes) {
            found = memchr(letters, at[1], sizeof letters - 1);
        }
        if (found != NULL) {
            text->at[n++] = meant[found - letters];
            i++;
        } else if (at[0] == '\\' && i + 3 < text->bytes && at[1] == 'x' &&
                   isxdigit((unsigned char)at[2]) && isxdigit((unsigned char)at[3])) {
            char hex[3] = {at[2], at[3], '\0'};
            text->at[n++] = (char)strtol(hex, NULL, 16);
            i += 3;
        } else {
            text->at[n++] = at[0];
        }
    }
    text->at[n] = '\0';
    text->bytes = n;
}

int app_stdin_is_piped(void) {
    enum { PATIENCE_MS = 1000 };
    struct stat st;
    if (fstat(STDIN_FILENO, &st) != 0 || !(S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode))) {
        return 0;
    }
    if (!gw_os_readable(STDIN_FILENO, PATIENCE_MS)) {
        app_note("waiting for the prompt on standard input (-p TEXT, or < /dev/null for none)");
    }
    return 1;
}

static int read_prompt(const app_options *o, const char *otherwise, int trim, app_text *out) {
    if (o->prompt != NULL && o->file != NULL) {
        app_error("-p and -f exclude each other: which text is meant?");
        return APP_USAGE;
    }
    if (o->file != NULL) {
        int code = app_read_file(o->file, out);
        if (code == APP_OK && trim) {
            drop_line_end(out);
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

int app_read_prompt(const app_options *o, const char *otherwise, int trim, app_text *out) {
    int code = read_prompt(o, otherwise, trim, out);
    if (code == APP_OK && o->escape) {
        unescape(out);
    }
    return code;
}

/* What people stumble over: special tokens that are spelled and not read as such, and a start token
 * that is spelled where the model puts one anyway. */
void app_note_tokens(const gw_model *model, const app_text *text, int flags, const int32_t *ids,
                     size_t n) {
    int32_t bos = gw_token_bos(model), *special = NULL;
    size_t n_special = 0;
    if (n > 1 && bos >= 0 && ids[0] == bos && ids[1] == bos) {
        app_note("the text begins with two start tokens: leave out the one that is spelled, the "
                 "model's is added");
    }
    if ((flags & GW_TEXT_SPECIAL) != 0 ||
        gw_tokenize(model, text->at, text->bytes, flags | GW_TEXT_SPECIAL, &special, &n_special) !=
            GW_OK) {
        return;
    }
    size_t same = 0, bytes = 0;
    char *name = NULL;
    while (same < n && same < n_special && ids[same] == special[same]) {
        same++;
    }
    if (same < n_special && gw_detokenize(model, &special[same], 1, 1, &name, &bytes) == GW_OK &&
        bytes > 0) {
        app_note("%.40s in the text is read as letters; --special makes it the special token",
                 name);
    }
    gw_free(name);
    gw_free(special);
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

const char *app_bytes(uint64_t bytes, char text[32]) { return gw_text_size(bytes, 3, text); }
