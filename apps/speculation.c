/* apps/speculation.c - --draft: models, files and figures. */
#include "apps/speculation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/signals.h"
#include "core/base/os.h"

/* ---- opening --------------------------------------------------------------------------------- */

typedef struct drafter_parts {
    const app_options *o;
    const gw_model *target;
    const char *path;    /* of it; NULL: the built-in one */
    gw_session *session; /* NULL: of many texts */
    int32_t n_ctx;
    int32_t *corpus;
    size_t n_corpus;
    int lookup, past_end;
    int mtp; /* the draft model is the layer in the target's own files */
} drafter_parts;

static gw_accept accept_of(const char *name) {
    return strcmp(name, "rejection") == 0 ? GW_ACCEPT_REJECTION
           : strcmp(name, "pool") == 0    ? GW_ACCEPT_POOL
                                          : GW_ACCEPT_EXACT;
}

static gw_status make_drafter(const drafter_parts *parts, app_draft *out) {
    const app_options *o = parts->o;
    gw_drafter_options options = {
        .model = out->model,
        .lookup = parts->lookup,
        .corpus = parts->corpus,
        .n_corpus = parts->n_corpus,
        .accept = accept_of(o->draft_accept),
        .length = o->draft_length,
        .greedy_draft = o->draft_greedy,
        .assume = o->assume_acceptance,
        .past_end = parts->past_end,
        .kv_type = o->kv_type,
        .cancel = signals_cancel(),
    };
    return gw_drafter_new(parts->session, &options, &out->drafter);
}

/* Where the target is, unless it has a device of its own; all of it, unless told otherwise. */
static int open_draft_model(const drafter_parts *parts, const char *path, gw_model **model) {
    const app_options *o = parts->o;
    app_options mine = *o;
    int implied = o->draft_device == NULL && o->device == NULL && o->offload_layers != NULL;
    if (o->draft_device != NULL) {
        mine.device = o->draft_device;
        mine.split = mine.split_mode = mine.groups = NULL;
    }
    mine.offload_layers = implied && strcmp(o->offload_layers, "0") != 0 ? "all" : NULL;
    if (o->draft_offload_layers != NULL) {
        mine.offload_layers = o->draft_offload_layers;
    }
    if (!parts->mtp) {
        mine.weights = NULL; /* the draft stays as it is stored */
    }
    int32_t threads = o->threads > 0          ? o->threads
                      : o->thread_list.n == 1 ? o->thread_list.at[0]
                                              : 0;
    const app_need need = {.n_ctx = parts->n_ctx,
                           .batch = 0,
                           .is_draft = 1,
                           .predictor = parts->mtp,
                           .target = parts->path};
    return app_open_model(&mine, path, threads, &need, model);
}

static int read_corpus(drafter_parts *parts) {
    app_text text = {0};
    int code = app_read_file(parts->o->draft_file, &text);
    if (code == APP_OK) {
        code = app_tokenize(parts->target, &text, 0, &parts->corpus, &parts->n_corpus);
    }
    free(text.at);
    return code;
}

/* ---- what it costs ------------------------------------------------------------------------------
 */

static int is_fixed(const app_options *o) { return strncmp(o->draft_length, "fixed", 5) == 0; }

/* What a draft reads against what a token of the model does, where that is a part to speak of; one
 * that reads more than the model is not used unless their number is given. bench measures
 * what it is told to. */
static void weigh(const drafter_parts *parts, app_draft *draft) {
    enum { FEW = 10 };
    gw_model_info own, target;
    char reads[32], whole[32];
    if (draft->model == NULL) {
        return;
    }
    gw_model_describe(draft->model, &own);
    gw_model_describe(parts->target, &target);
    if (own.decode_bytes <= target.decode_bytes / FEW) {
        return;
    }
    app_bytes(own.decode_bytes, reads);
    app_bytes(target.decode_bytes, whole);
    if (own.decode_bytes > target.decode_bytes && !is_fixed(parts->o) && !parts->past_end) {
        app_note("draft   %s is not used: it reads %s for a token, the model itself %s; "
                 "--draft-length fixed:K drafts all the same",
                 own.name, reads, whole);
        draft_close(draft);
        return;
    }
    app_note("draft   %s reads %s for a token, the model %s: "
             "a draft is expected to cost %.2f tokens",
             own.name, reads, whole, (double)own.decode_bytes / (double)target.decode_bytes);
}

/* ---- auto: a head, a layer or a model next to the target ----------------------------------------
 */

enum { SMALLER = 6, CANDIDATES = 8 };

typedef struct beside {
    char path[1024];
    uint64_t bytes;
} beside;

/* Keep the largest files, largest first. */
static size_t keep(beside *list, size_t n, const beside *file) {
    size_t at = 0;
    while (at < n && list[at].bytes >= file->bytes) {
        at++;
    }
    if (at == CANDIDATES) {
        return n;
    }
    n = n < CANDIDATES ? n + 1 : n;
    memmove(&list[at + 1], &list[at], (n - at - 1) * sizeof *list);
    list[at] = *file;
    return n;
}

static size_t list_beside(const char *path, uint64_t most, beside *list) {
    const char *slash = gw_os_last_slash(path);
    char folder[1024];
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 2,
             slash != NULL ? path : "./");
    DIR *dir = opendir(folder);
    size_t n = 0;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        size_t length = strlen(e->d_name);
        struct stat st;
        beside file;
        int wrote = snprintf(file.path, sizeof file.path, "%s%s", folder, e->d_name);
        if (length < 6 || strcmp(e->d_name + length - 5, ".gguf") != 0 || wrote < 0 ||
            (size_t)wrote >= sizeof file.path || stat(file.path, &st) != 0 ||
            !S_ISREG(st.st_mode) || (uint64_t)st.st_size > most) {
            continue;
        }
        file.bytes = (uint64_t)st.st_size;
        n = keep(list, n, &file);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* Does the file hold a model with as many tokens as the target? Errors mean no. */
static int may_draft(const gw_model *target, const char *path) {
    gw_model *model = NULL;
    gw_model_options options = {.path = path, .vocab_only = 1};
    if (gw_model_open(&options, &model) != GW_OK) {
        return 0;
    }
    gw_model_info info, wanted;
    gw_model_describe(model, &info);
    gw_model_describe(target, &wanted);
    gw_model_free(model);
    return info.n_vocab == wanted.n_vocab;
}

/* Opens the model at path as a draft. 1: it is one for the target, 0: it is none; below: exit
 * code. */
static int try_draft(drafter_parts *parts, const char *path, int mtp, app_draft *out) {
    parts->mtp = mtp;
    int code = open_draft_model(parts, path, &out->model);
    if (code != APP_OK) {
        return -code;
    }
    weigh(parts, out);
    if (out->model == NULL) {
        parts->mtp = 0;
        return 0;
    }
    gw_status status = parts->session != NULL ? make_drafter(parts, out) : GW_OK;
    if (status == GW_OK) {
        return 1;
    }
    app_close_model(out->model);
    out->model = NULL;
    parts->mtp = 0;
    return status == GW_E_UNSUPPORTED ? 0 : -app_fail(status);
}

/* Does a folder's configuration speak of a vocabulary of drafts, as heads do? */
static int says_head(const char *folder) {
    char path[1100];
    app_text text = {0};
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "rb");
    enum { MOST = 1 << 16 };
    text.at = calloc(1, MOST);
    if (file != NULL && text.at != NULL) {
        text.bytes = fread(text.at, 1, MOST - 1, file);
    }
    int says = text.at != NULL && (strstr(text.at, "\"draft_vocab_size\"") != NULL ||
                                   strstr(text.at, "\"dflash_config\"") != NULL ||
                                   strstr(text.at, "\"markov_rank\"") != NULL);
    if (file != NULL) {
        fclose(file);
    }
    free(text.at);
    return says;
}

static int names_head(const char *name) {
    return app_mentions(name, "eagle3") || app_mentions(name, "dflash") ||
           app_mentions(name, "dspark");
}

/* Is what lies there a head for a model of this width and vocabulary? */
static int is_head(const char *path, const gw_model_info *target) {
    gw_inspection *seen = NULL;
    gw_model_info info = {.target_width = 0};
    const char *fault = NULL;
    if (gw_inspect(path, NULL, 0, 0, NULL, &seen) == GW_OK) {
        gw_inspection_describe(seen, &info);
    }
    int fits = seen != NULL && gw_inspection_verdict(seen, &fault) == GW_OK &&
               info.target_width == target->d_model && info.target_vocab == target->n_vocab;
    gw_inspection_free(seen);
    return fits;
}

/* The first head in a folder, by name; *path "": there is none. */
static void find_head(const char *folder, const gw_model_info *target, char *path, size_t room) {
    char best[1024] = "";
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char at[1024];
        struct stat st;
        size_t length = strlen(e->d_name);
        int n = snprintf(at, sizeof at, "%s/%s", folder, e->d_name);
        if (n < 0 || (size_t)n >= sizeof at || stat(at, &st) != 0 || e->d_name[0] == '.') {
            continue;
        }
        int file = S_ISREG(st.st_mode) && length > 5 && names_head(e->d_name) &&
                   strcmp(e->d_name + length - 5, ".gguf") == 0;
        if ((file || (S_ISDIR(st.st_mode) && says_head(at))) &&
            (best[0] == '\0' || strcmp(at, best) < 0) && is_head(at, target)) {
            snprintf(best, sizeof best, "%s", at);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    snprintf(path, room, "%s", best);
}

/* A head in the target's folder; of a folder that is the target, in it or next to it. */
static int open_head(drafter_parts *parts, const char *path, app_draft *out) {
    gw_model_info info;
    char folder[1024], head[1024] = "";
    struct stat st;
    gw_model_describe(parts->target, &info);
    snprintf(folder, sizeof folder, "%s", path);
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') {
        folder[--n] = '\0';
    }
    if (stat(folder, &st) == 0 && S_ISDIR(st.st_mode)) {
        find_head(folder, &info, head, sizeof head);
    }
    char *slash = gw_os_last_slash(folder);
    if (head[0] == '\0' && slash != folder) {
        if (slash != NULL) {
            *slash = '\0';
        }
        find_head(slash != NULL ? folder : ".", &info, head, sizeof head);
    }
    int is = head[0] != '\0' ? try_draft(parts, head, 0, out) : 0;
    if (is == 1) {
        gw_model_describe(out->model, &info);
        app_note("draft   %s: a head (%s) for this model", head, app_head_kind(&info));
    }
    return is;
}

/* The layer that the target's own files have. */
static int open_layer(drafter_parts *parts, const char *path, app_draft *out) {
    gw_inspection *seen = NULL;
    gw_model_info info = {.n_predictors = 0};
    if (gw_inspect(path, NULL, 0, 0, NULL, &seen) == GW_OK) {
        gw_inspection_describe(seen, &info);
    }
    gw_inspection_free(seen);
    int is = info.n_predictors > 0 ? try_draft(parts, path, 1, out) : 0;
    if (is == 1) {
        app_note("draft   the layer in the model's own files that predicts one token more");
    }
    return is;
}

static int open_auto(drafter_parts *parts, const char *path, app_draft *out) {
    gw_model_info info;
    int is = path != NULL ? open_head(parts, path, out) : 0;
    is = is == 0 && path != NULL ? open_layer(parts, path, out) : is;
    if (is != 0) {
        return is > 0 ? APP_OK : -is;
    }
    gw_model_describe(parts->target, &info);
    beside *list = calloc(CANDIDATES, sizeof *list);
    if (list == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    size_t n = path != NULL ? list_beside(path, info.file_bytes / SMALLER, list) : 0;
    for (size_t i = 0; i < n && is == 0; i++) {
        is = may_draft(parts->target, list[i].path) ? try_draft(parts, list[i].path, 0, out) : 0;
        if (is == 1) {
            app_note("draft   %s: the largest model next to it with its vocabulary", list[i].path);
        }
    }
    free(list);
    return is < 0 ? -is : APP_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

static int is_mtp(const app_options *o) { return o->draft != NULL && strcmp(o->draft, "mtp") == 0; }

/* What --draft names, or the target's own path. */
static const char *draft_path(const drafter_parts *parts) {
    return is_mtp(parts->o) ? parts->path : parts->o->draft;
}

/* What --draft asks of lookup (gw_drafter_options); 0: none. */
static int lookup_of(const char *draft) {
    return strcmp(draft, "ngram") == 0 || strcmp(draft, "auto") == 0 ? 1
           : strcmp(draft, "suffix") == 0                            ? 2
                                                                     : 0;
}

static int check_options(const app_options *o) {
    if (o->draft_file != NULL && lookup_of(o->draft) == 0) {
        app_error("--draft-file: a draft model does not search; use --draft ngram, suffix or auto");
        return APP_USAGE;
    }
    return APP_OK;
}

static void name_draft(const drafter_parts *parts, app_draft *out) {
    gw_model_info info = {.name = "", .format = ""};
    if (out->model != NULL) {
        gw_model_describe(out->model, &info);
    }
    snprintf(out->name, sizeof out->name, "%s%s%s%s%s%s", parts->mtp ? "mtp of " : "", info.name,
             out->model != NULL ? " " : "", info.format,
             out->model != NULL && parts->lookup ? " and " : "",
             parts->lookup == 2 ? "suffix lookup"
             : parts->lookup    ? "lookup"
                                : "");
}

int draft_open(const app_options *o, const gw_model *target, const char *path, gw_session *session,
               int past_end, app_draft *out) {
    *out = (app_draft){0};
    if (o->draft == NULL) {
        return APP_OK;
    }
    drafter_parts parts = {.o = o,
                           .target = target,
                           .path = path,
                           .session = session,
                           .n_ctx = gw_session_n_ctx(session),
                           .past_end = past_end,
                           .mtp = is_mtp(o)};
    int is_auto = strcmp(o->draft, "auto") == 0;
    parts.lookup = lookup_of(o->draft);
    int code = check_options(o);
    if (code == APP_OK && o->draft_file != NULL) {
        code = read_corpus(&parts);
    }
    if (code == APP_OK && is_auto) {
        code = open_auto(&parts, path, out);
    } else if (code == APP_OK && !parts.lookup) {
        code = open_draft_model(&parts, draft_path(&parts), &out->model);
    }
    if (code == APP_OK && out->drafter == NULL && (out->model != NULL || parts.lookup)) {
        gw_status status = make_drafter(&parts, out);
        code = status == GW_OK ? APP_OK : app_fail(status);
        if (code == APP_OK && !is_auto) { /* what is wrong with it has been said by then */
            weigh(&parts, out);
        }
    }
    gw_free(parts.corpus);
    name_draft(&parts, out);
    return code;
}

int draft_open_many(const app_options *o, const gw_model *target, const char *path, int32_t n_ctx,
                    gw_model **model, int *lookup) {
    drafter_parts parts = {.o = o, .target = target, .path = path, .n_ctx = n_ctx};
    parts.mtp = o->draft != NULL && is_mtp(o);
    app_draft draft = {0};
    int code = APP_OK, is_auto = o->draft != NULL && strcmp(o->draft, "auto") == 0;
    *model = NULL;
    if (o->draft != NULL && ((o->draft_accept != NULL && strcmp(o->draft_accept, "exact") != 0) ||
                             o->draft_file != NULL || o->draft_greedy)) {
        app_error("--draft-accept, --draft-file, --draft-greedy: for one text; drafts of many are "
                  "exact");
        return APP_USAGE;
    }
    *lookup = o->draft != NULL ? lookup_of(o->draft) : 0;
    if (is_auto) {
        code = open_auto(&parts, path, &draft);
    } else if (o->draft != NULL && !*lookup) {
        code = open_draft_model(&parts, draft_path(&parts), &draft.model);
        if (code == APP_OK) {
            weigh(&parts, &draft);
        }
    }
    *model = draft.model;
    return code;
}

void draft_close(app_draft *draft) {
    gw_drafter_free(draft->drafter);
    app_close_model(draft->model);
    *draft = (app_draft){0};
}

/* ---- figures -----------------------------------------------------------------------------------
 */

static void take_away(gw_draft_stats *s, const gw_draft_stats *before) {
    s->tokens -= before->tokens;
    s->passes -= before->passes;
    s->plain -= before->plain;
    s->pass_tokens -= before->pass_tokens;
    s->drafted -= before->drafted;
    s->accepted -= before->accepted;
    s->looked_up -= before->looked_up;
    s->looked_up_accepted -= before->looked_up_accepted;
    s->ahead -= before->ahead;
    s->ahead_used -= before->ahead_used;
    for (int j = 0; j < GW_DRAFT_MAX; j++) {
        s->tried_at[j] -= before->tried_at[j];
        s->accepted_at[j] -= before->accepted_at[j];
    }
    s->draft_seconds -= before->draft_seconds;
    s->read_seconds -= before->read_seconds;
    s->verify_seconds -= before->verify_seconds;
    s->pick_seconds -= before->pick_seconds;
    s->wasted_seconds -= before->wasted_seconds;
}

draft_figures draft_figures_of(const app_draft *draft, const gw_draft_stats *before) {
    draft_figures f = {0};
    gw_draft_stats *s = &f.stats;
    gw_drafter_stats(draft->drafter, s);
    if (before != NULL) {
        take_away(s, before);
    }
    double seconds = s->draft_seconds + s->verify_seconds + s->pick_seconds + s->wasted_seconds;
    double ms = s->passes > 0 ? 1e3 / (double)s->passes : 0;
    f.tokens_per_pass = s->passes > 0 ? (double)s->pass_tokens / (double)s->passes : 0;
    f.with = seconds > 0 ? (double)s->pass_tokens / seconds : 0;
    f.without = s->step_seconds > 0 ? 1 / s->step_seconds : 0;
    f.draft_ms = ms * s->draft_seconds;
    f.read_ms = ms * s->read_seconds;
    f.verify_ms = ms * s->verify_seconds;
    f.pick_ms = ms * s->pick_seconds;
    f.wasted_ms = ms * s->wasted_seconds;
    return f;
}

static double share(uint64_t part, uint64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

void draft_note(const app_options *o, const app_draft *draft) {
    draft_figures f = draft_figures_of(draft, NULL);
    const gw_draft_stats *s = &f.stats;
    char places[16 * GW_DRAFT_MAX] = "";
    size_t used = 0;
    for (int j = 0; j < GW_DRAFT_MAX && s->tried_at[j] > 0; j++) {
        used += (size_t)snprintf(places + used, sizeof places - used, "%s%.2f", j > 0 ? " " : "",
                                 share(s->accepted_at[j], s->tried_at[j]));
    }
    app_note("draft   %s, %s, %s: %d drafted, %d accepted (%.0f%%), by position %s", draft->name,
             o->draft_accept, o->draft_length, (int)s->drafted, (int)s->accepted,
             100 * share(s->accepted, s->drafted), used > 0 ? places : "-");
    char gain[96] = "";
    if (f.without > 0) {
        snprintf(gain, sizeof gain, "; %.1f tok/s, without %.1f (estimated): %.2fx", f.with,
                 f.without, f.with / f.without);
    }
    app_note("passes  %d, %d of them without drafts, %.2f tokens each%s", (int)s->passes,
             (int)s->plain, f.tokens_per_pass, gain);
    app_note("times   of a pass: %.2f ms drafting, %.2f verifying, %.2f choosing, %.2f wasted",
             f.draft_ms, f.verify_ms, f.pick_ms, f.wasted_ms);
}

json_t *draft_json(const app_options *o, const app_draft *draft) {
    draft_figures f = draft_figures_of(draft, NULL);
    const gw_draft_stats *s = &f.stats;
    json_t *places = json_array(), *widths = json_array();
    for (int j = 0; j < GW_DRAFT_MAX && s->tried_at[j] > 0; j++) {
        json_array_append_new(places, json_real(share(s->accepted_at[j], s->tried_at[j])));
    }
    for (int w = 0; w < GW_DECODE_MAX; w++) {
        json_array_append_new(widths, json_real(s->width_seconds[w]));
    }
    return json_pack("{s:s%, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, "
                     "s:f, s:f, s:f, s:f, s:f, s:f, "
                     "s:f, s:o}",
                     "source", draft->name, strlen(draft->name), "accept", o->draft_accept,
                     "length", o->draft_length, "tokens", (json_int_t)s->tokens, "passes",
                     (json_int_t)s->passes, "passes_without_drafts", (json_int_t)s->plain,
                     "drafted", (json_int_t)s->drafted, "accepted", (json_int_t)s->accepted,
                     "looked_up", (json_int_t)s->looked_up, "looked_up_accepted",
                     (json_int_t)s->looked_up_accepted, "ahead", (json_int_t)s->ahead, "ahead_used",
                     (json_int_t)s->ahead_used, "acceptance_by_position", places, "tokens_per_pass",
                     f.tokens_per_pass, "draft_seconds", s->draft_seconds, "verify_seconds",
                     s->verify_seconds, "pick_seconds", s->pick_seconds, "read_seconds",
                     s->read_seconds, "wasted_seconds", s->wasted_seconds, "draft_step_seconds",
                     s->draft_step_seconds, "tokens_per_second", f.with,
                     "tokens_per_second_without", f.without, "width_seconds", widths);
}
