/* apps/judge/choices.c - see choices.h.
 *
 * Every choice is a request of the batch engine that asks for the probabilities of its own prompt,
 * so passes are as wide as -b whatever the lengths, and the pages of a context are read once for
 * all of its endings. */
#include "apps/judge/choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/signals.h"

enum { PAGE = 64, UNDER_WAY = 256, AT_ONCE_MAX = 64, AT_ONCE_MIN = 4, BATCH = 512 };

/* ---- ids ------------------------------------------------------------------------------------- */

typedef struct vocabulary {
    const gw_model *model;
    int32_t prefix; /* stands in front of what has no token in front: -1 none */
} vocabulary;

static int tokenize(const vocabulary *v, const char *text, size_t bytes, int32_t **ids, size_t *n) {
    const int flags = GW_TEXT_BOS | GW_TEXT_OPEN;
    gw_status status = gw_tokenize(v->model, text, bytes, flags, ids, n);
    return status == GW_OK ? APP_OK : app_fail(status);
}

static int count_ids(const vocabulary *v, const char *text, size_t bytes, size_t *n) {
    int32_t *ids = NULL;
    int code = tokenize(v, text, bytes, &ids, n);
    gw_free(ids);
    return code;
}

/* Context and ending as one text, malloc'd; NULL: no memory. */
static char *join(const judge_set *set, const judge_choice *c) {
    char *text = malloc(c->context.bytes + c->ending.bytes + 1);
    if (text != NULL) {
        memcpy(text, set->pool.at + c->context.at, c->context.bytes);
        memcpy(text + c->context.bytes, set->pool.at + c->ending.at, c->ending.bytes);
    }
    return text;
}

/* The ids of a choice, and where its ending begins. */
static int tokenize_choice(const vocabulary *v, const judge_set *set, const judge_choice *c,
                           choice_ids *out) {
    char *text = join(set, c);
    size_t n = 0, before = 0, prefix = 0;
    int32_t *ids = NULL;
    if (text == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    int code = tokenize(v, text, c->context.bytes + c->ending.bytes, &ids, &n);
    if (code == APP_OK) {
        code = count_ids(v, text, text_right_stripped(text, c->context.bytes), &before);
    }
    free(text);
    if (code == APP_OK && n > INT32_MAX / 2) {
        app_error("%s: a choice of %zu tokens", set->path, n);
        code = APP_FAILURE;
    }
    prefix = code == APP_OK && before == 0 && v->prefix >= 0;
    if (code == APP_OK && n + prefix < 2) {
        app_error("%s: a choice without a token behind its first", set->path);
        code = APP_FAILURE;
    }
    out->ids = code == APP_OK ? malloc((n + prefix) * sizeof *ids) : NULL;
    if (code == APP_OK && out->ids == NULL) {
        app_error("out of memory");
        code = APP_FAILURE;
    }
    if (code == APP_OK) {
        out->ids[0] = v->prefix;
        memcpy(out->ids + prefix, ids, n * sizeof *ids);
        out->n = (int32_t)(n + prefix);
        out->ending = (int32_t)(before + prefix);
        /* a context whose end melts into the ending: at least the last id is the ending's */
        out->ending = out->ending < out->n ? out->ending : out->n - 1;
        out->ending = out->ending > 0 ? out->ending : 1;
    }
    gw_free(ids);
    return code;
}

static int32_t common_beginning(const choice_ids *c, size_t n) {
    int32_t same = 0, least = c[0].n;
    for (size_t k = 1; k < n; k++) {
        least = c[k].n < least ? c[k].n : least;
    }
    for (; same < least; same++) {
        for (size_t k = 1; k < n; k++) {
            if (c[k].ids[same] != c[0].ids[same]) {
                return same;
            }
        }
    }
    return same;
}

/* What llama.cpp takes the mean over. Of a pair, options are passed over where more than three ids
 * are left behind the common beginning of both, and a last id where it is not the only one. */
static void choose_means(const judge_set *set, choice_ids *c, size_t n) {
    int32_t same = common_beginning(c, n);
    int pair = (set->measures & JUDGE_PAIR) != 0, skip = pair;
    for (size_t k = 0; k < n; k++) {
        skip = skip && c[k].n - same > 3;
    }
    for (size_t k = 0; k < n; k++) {
        int32_t from = skip ? c[k].ending : same;
        from = from < c[k].n ? from : c[k].n - 1;
        c[k].mean_from = from > 0 ? from : 1;
        c[k].mean_to = c[k].n - (pair && c[k].n - from > 1);
    }
}

/* The ids behind the first go, as many as there are too many. */
static void cut(choice_ids *c, int32_t longest, choice_texts *out) {
    int32_t more = c->n - longest;
    if (longest < 2 || more <= 0) {
        return;
    }
    memmove(c->ids + 1, c->ids + 1 + more, (size_t)(c->n - 1 - more) * sizeof *c->ids);
    c->n -= more;
    c->ending = c->ending - more > 1 ? c->ending - more : 1;
    out->cut++;
}

int choices_tokenize(const judge_set *set, const gw_model *model, int32_t longest,
                     choice_texts *out) {
    int adds = app_adds_bos(model);
    const vocabulary v = {.model = model,
                          .prefix = adds                       ? -1
                                    : gw_token_bos(model) >= 0 ? gw_token_bos(model)
                                                               : gw_token_eos(model)};
    *out = (choice_texts){.at = calloc(set->n_choices, sizeof *out->at), .n = set->n_choices};
    if (out->at == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    for (size_t i = 0; i < set->n; i++) {
        const judge_task *task = &set->tasks[i];
        choice_ids *c = out->at + task->first;
        for (size_t k = 0; k < task->n; k++) {
            int code = tokenize_choice(&v, set, &set->choices[task->first + k], &c[k]);
            if (code != APP_OK) {
                return code;
            }
            cut(&c[k], longest, out);
            out->longest = c[k].n > out->longest ? c[k].n : out->longest;
            out->ids += c[k].n;
        }
        choose_means(set, c, task->n);
    }
    return APP_OK;
}

void choices_free(choice_texts *texts) {
    for (size_t i = 0; texts->at != NULL && i < texts->n; i++) {
        free(texts->at[i].ids);
    }
    free(texts->at);
    *texts = (choice_texts){0};
}

/* ---- scores ---------------------------------------------------------------------------------- */

typedef struct asked {
    const choice_ids *c;
    choice_score *score;
    struct asking *all;
} asked;

typedef struct asking {
    asked *at; /* [n] */
    size_t n, submitted, done;
    char error[256];
} asking;

static void on_event(void *user, const gw_event *e) {
    asked *a = user;
    if (e->kind == GW_EVENT_ROW) {
        if (e->index >= a->c->ending) {
            a->score->sum += (double)e->logprob;
            a->score->n++;
        }
        if (e->index >= a->c->mean_from && e->index < a->c->mean_to) {
            a->score->mean_sum += (double)e->logprob;
            a->score->n_mean++;
        }
    } else if (e->kind == GW_EVENT_END && e->finish == GW_FINISH_ERROR) {
        snprintf(a->all->error, sizeof a->all->error, "%s", e->error);
    } else if (e->kind == GW_EVENT_DONE) {
        a->all->done++;
    }
}

static int32_t at_once(const app_options *o, const choice_texts *t) {
    double mean = t->ids / (double)(t->n > 0 ? t->n : 1);
    double fit = 2.0 * (o->batch > 0 ? o->batch : BATCH) / mean;
    return fit < AT_ONCE_MIN ? AT_ONCE_MIN : fit > AT_ONCE_MAX ? AT_ONCE_MAX : (int32_t)fit;
}

int64_t choices_cache(const app_options *o, const choice_texts *t) {
    return (int64_t)at_once(o, t) * ((t->longest - 1) / PAGE + 2) * PAGE;
}

static gw_status submit(gw_batch *batch, asking *all) {
    while (all->submitted < all->n && all->submitted - all->done < UNDER_WAY) {
        asked *a = &all->at[all->submitted];
        int32_t from = a->c->ending < a->c->mean_from ? a->c->ending : a->c->mean_from;
        gw_request_options ro = {.tokens = a->c->ids,
                                 .n_tokens = (size_t)a->c->n,
                                 .max_tokens = 0,
                                 .prompt_logprobs = 1,
                                 .prompt_logprobs_from = from,
                                 .event = on_event,
                                 .user = a};
        gw_request *handle = NULL;
        gw_status status = gw_batch_submit(batch, &ro, &handle);
        if (status != GW_OK) {
            return status;
        }
        gw_request_free(handle);
        all->submitted++;
    }
    return GW_OK;
}

static int serve(gw_batch *batch, asking *all) {
    app_progress progress;
    gw_status status = GW_OK;
    size_t work;
    progress_begin(&progress, "scoring");
    while (status == GW_OK && all->done < all->n && all->error[0] == '\0' &&
           signals_caught() == 0) {
        progress_update(&progress, all->done, all->n, NULL);
        status = submit(batch, all);
        status = status == GW_OK ? gw_batch_step(batch, &work) : status;
    }
    progress_end(&progress);
    if (status != GW_OK) {
        return app_fail(status);
    }
    if (all->error[0] != '\0') {
        app_error("%s", all->error);
        return APP_FAILURE;
    }
    return signals_exit_code(APP_OK);
}

int choices_score(const app_options *o, gw_model *model, const choice_texts *texts,
                  choice_score *scores) {
    gw_batch *batch = NULL;
    gw_batch_options bo = {.n_ctx = texts->longest,
                           .chunk = o->batch,
                           .kv_type = o->kv_type,
                           .parallel = at_once(o, texts),
                           .queue = UNDER_WAY,
                           .cache_tokens = choices_cache(o, texts),
                           .step_seconds = 1e9,
                           .cancel = signals_cancel()};
    asking all = {.at = calloc(texts->n, sizeof *all.at), .n = texts->n};
    if (all.at == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    for (size_t i = 0; i < texts->n; i++) {
        scores[i] = (choice_score){0};
        all.at[i] = (asked){.c = &texts->at[i], .score = &scores[i], .all = &all};
    }
    gw_status status = gw_batch_new(model, &bo, &batch);
    int code = status == GW_OK ? serve(batch, &all) : app_fail(status);
    gw_batch_free(batch);
    free(all.at);
    return code;
}

/* ---- measures -------------------------------------------------------------------------------- */

const char *judge_measure_name(judge_measure m) {
    static const char *const names[MEASURES] = {"acc", "acc_norm", "mean"};
    return names[m];
}

int judge_has_measure(const judge_set *set, judge_measure m) {
    return m == MEASURE_ACC || (m == MEASURE_NORM && (set->measures & JUDGE_NORM) != 0) ||
           (m == MEASURE_MEAN && (set->measures & (JUDGE_MEAN | JUDGE_PAIR)) != 0);
}

static double value_of(const judge_choice *c, const choice_score *s, judge_measure m) {
    return m == MEASURE_ACC    ? s->sum
           : m == MEASURE_NORM ? s->sum / (c->characters > 0 ? c->characters : 1)
                               : s->mean_sum / (s->n_mean > 0 ? s->n_mean : 1);
}

size_t judge_best(const judge_set *set, const judge_task *task, const choice_score *scores,
                  judge_measure m) {
    const judge_choice *c = set->choices + task->first;
    const choice_score *s = scores + task->first;
    size_t best = 0;
    for (size_t k = 1; k < task->n; k++) {
        best = value_of(&c[k], &s[k], m) > value_of(&c[best], &s[best], m) ? k : best;
    }
    return best;
}
