/* apps/judge/windows.c - see windows.h.
 *
 * Model and base read the same piece of a window, then their rows are compared, so nothing is kept
 * but the logits of one piece. Comparing takes two exponentials per token of the vocabulary, on a
 * fast device more time than the model: the rows of a piece are shared among threads, and since
 * each has its own place the figures do not depend on how many there are. */
#include "apps/judge/windows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/signals.h"
#include "core/base/os_threads.h"

enum { THREADS_MAX = 64 };

#define PIECE_BYTES ((size_t)512 << 20) /* most logits of a side */

static size_t count_windows(size_t n, int32_t n_ctx, int32_t stride, size_t most) {
    size_t step = (size_t)(stride > 0 ? stride : n_ctx);
    size_t count = n < (size_t)n_ctx ? 0 : (n - (size_t)n_ctx) / step + 1;
    return most > 0 && most < count ? most : count;
}

int judge_cut_text(const app_options *o, const gw_model *model, const app_text *text, int32_t **ids,
                   judge_windows *out) {
    size_t n = 0;
    if (o->stride >= o->n_ctx) {
        app_error("--stride: %d is not less than a window of -c %d", (int)o->stride, (int)o->n_ctx);
        return APP_USAGE;
    }
    int code = app_tokenize(model, text, GW_TEXT_BOS | GW_TEXT_OPEN, ids, &n);
    if (code != APP_OK) {
        return code;
    }
    *out = (judge_windows){.ids = *ids,
                           .n_ctx = o->n_ctx,
                           .stride = o->stride,
                           .count = count_windows(n, o->n_ctx, o->stride, (size_t)o->chunks)};
    if (out->count == 0) {
        app_error("%s: has %zu tokens, a window of -c %d needs as many", o->file, n, (int)o->n_ctx);
        return APP_FAILURE;
    }
    return APP_OK;
}

typedef struct side {
    gw_session *session;
    float *logits; /* [piece, n_vocab], of the wanted rows of a piece */
    size_t n;      /* rows that have come */
} side;

typedef struct scoring {
    const judge_text *text;
    tally *out;
    int32_t n_vocab;
    int threads;
    size_t piece;    /* tokens */
    int32_t *window; /* [n_ctx], its start token in place */
    int32_t bos;     /* -1: none */
    side own, base;
    const int32_t *tokens; /* that the rows of the piece are scored against */
    size_t file_row;       /* of the base file, the first of the piece */
    uint16_t *codes;
    app_progress *progress; /* ends before an error line */
} scoring;

/* ---- the rows of a piece --------------------------------------------------------------------- */

typedef struct share {
    const scoring *s;
    size_t from, to;
} share;

static void *score_share(void *user) {
    const share *x = user;
    const scoring *s = x->s;
    size_t v = (size_t)s->n_vocab;
    for (size_t i = x->from; i < x->to; i++) {
        const float *logits = s->own.logits + i * v;
        tally_row *row = &s->out->at[s->out->n + i];
        if (s->text->base_file != NULL) {
            tally_codes codes = base_file_row(s->text->base_file, s->file_row + i);
            tally_score_codes(logits, s->n_vocab, s->tokens[i], &codes, row);
        } else {
            const float *base = s->base.session != NULL ? s->base.logits + i * v : NULL;
            tally_score(logits, s->n_vocab, s->tokens[i], base, row);
        }
    }
    return NULL;
}

/* A thread that cannot be had is no error: its share is done here. */
static void score_piece(scoring *s, size_t n) {
    pthread_t threads[THREADS_MAX];
    share shares[THREADS_MAX];
    int wanted = s->threads, started[THREADS_MAX] = {0};
    for (int t = 0; t < wanted; t++) {
        shares[t] = (share){.s = s,
                            .from = n * (size_t)t / (size_t)wanted,
                            .to = n * (size_t)(t + 1) / (size_t)wanted};
        started[t] = t > 0 && pthread_create(&threads[t], NULL, score_share, &shares[t]) == 0;
    }
    for (int t = 0; t < wanted; t++) {
        if (started[t]) {
            pthread_join(threads[t], NULL);
        } else {
            score_share(&shares[t]);
        }
    }
}

static int save_piece(scoring *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tally_codes row;
        tally_encode(s->own.logits + i * (size_t)s->n_vocab, s->n_vocab, s->codes, &row);
        if (base_file_write(s->text->save, &row, s->n_vocab) != APP_OK) {
            return APP_FAILURE;
        }
    }
    return APP_OK;
}

/* Into the tally, once all of them are known to be numbers. */
static int take_piece(scoring *s, size_t n, size_t window) {
    for (size_t i = 0; i < n; i++) {
        const tally_row *row = &s->out->at[s->out->n];
        if (!(row->nll < INFINITY) || isnan(row->kl)) {
            progress_end(s->progress);
            app_error("the logits of window %zu are not finite: the weights or the numbers of this "
                      "model, or of its base, are broken",
                      window);
            return APP_FAILURE;
        }
        s->out->nll += row->nll;
        s->out->n++;
    }
    return APP_OK;
}

/* ---- the pieces of a window ------------------------------------------------------------------ */

typedef struct row_reader {
    side *to;
    size_t n_vocab;
} row_reader;

static int on_row(void *user, size_t row, const float *logits) {
    row_reader *r = user;
    (void)row;
    memcpy(r->to->logits + r->to->n * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    r->to->n++;
    return 0;
}

/* tokens [n], of which the rows from `first` on are wanted (n or more: none). */
static gw_status feed(scoring *s, side *to, const int32_t *tokens, size_t n, size_t first) {
    row_reader reader = {.to = to, .n_vocab = (size_t)s->n_vocab};
    to->n = 0;
    return first >= n ? gw_session_prefill(to->session, tokens, n)
                      : gw_session_prefill_rows(to->session, tokens, n, first, on_row, &reader);
}

/* Rows [first, n_ctx - 1) of s->window. */
static int score_window(scoring *s, size_t window, size_t first) {
    size_t n = (size_t)s->text->windows->n_ctx - 1; /* the last token predicts nothing known */
    gw_status status = gw_session_rewind(s->own.session, 0);
    if (status == GW_OK && s->base.session != NULL) {
        status = gw_session_rewind(s->base.session, 0);
    }
    for (size_t done = 0; done < n && status == GW_OK;) {
        size_t rows = n - done < s->piece ? n - done : s->piece;
        size_t skip = first > done ? first - done : 0, wanted = skip < rows ? rows - skip : 0;
        const int32_t *tokens = s->window + done;
        status = feed(s, &s->own, tokens, rows, skip);
        if (status == GW_OK && s->base.session != NULL) {
            status = feed(s, &s->base, tokens, rows, skip);
        }
        if (status != GW_OK) {
            break;
        }
        s->tokens = tokens + skip + 1;
        s->file_row = done + skip - first;
        score_piece(s, wanted);
        if (take_piece(s, wanted, window) != APP_OK ||
            (s->text->save != NULL && save_piece(s, wanted) != APP_OK)) {
            return APP_FAILURE;
        }
        done += rows;
    }
    if (status != GW_OK) {
        progress_end(s->progress);
    }
    return status == GW_OK ? APP_OK : app_fail(status);
}

/* Bytes of the text that window[at .. n) stand for: what they add to the token before them, whose
 * own text may have lost a space at its beginning. */
static int count_bytes(const scoring *s, size_t at, uint64_t *bytes) {
    size_t n = (size_t)s->text->windows->n_ctx, n_all = 0, n_before = 0;
    char *all = NULL, *before = NULL;
    gw_status status =
        gw_detokenize(s->text->model, s->window + at - 1, n - at + 1, 0, &all, &n_all);
    if (status == GW_OK) {
        status = gw_detokenize(s->text->model, s->window + at - 1, 1, 0, &before, &n_before);
    }
    gw_free(all);
    gw_free(before);
    *bytes += n_all > n_before ? n_all - n_before : 0;
    return status == GW_OK ? APP_OK : app_fail(status);
}

static size_t first_row(const judge_windows *w, size_t window) {
    return w->stride == 0 ? (size_t)w->n_ctx / 2
           : window == 0  ? 0
                          : (size_t)(w->n_ctx - w->stride - 1);
}

static int score_windows(scoring *s, app_progress *progress) {
    const judge_windows *w = s->text->windows;
    size_t n_ctx = (size_t)w->n_ctx, step = (size_t)(w->stride > 0 ? w->stride : w->n_ctx);
    for (size_t i = 0; i < w->count; i++) {
        char running[64] = "";
        size_t first = first_row(w, i);
        if (s->out->n > 0) {
            snprintf(running, sizeof running, "window %zu of %zu  PPL %.4f", i, w->count,
                     exp(s->out->nll / (double)s->out->n));
        }
        progress_update(progress, i, w->count, running);
        memcpy(s->window, w->ids + i * step, n_ctx * sizeof *s->window);
        s->window[0] = s->bos >= 0 ? s->bos : s->window[0];
        int code = s->text->base_file != NULL ? base_file_next(s->text->base_file) : APP_OK;
        if (code == APP_OK && tally_reserve(s->out, n_ctx) != 0) {
            progress_end(progress);
            app_error("out of memory");
            code = APP_FAILURE;
        }
        code = code == APP_OK ? score_window(s, i, first) : code;
        code = code == APP_OK ? count_bytes(s, first + 1, &s->out->bytes) : code;
        if (code != APP_OK) {
            return code;
        }
    }
    return APP_OK;
}

int judge_score_text(const judge_text *text, tally *out) {
    gw_model_info info;
    gw_model_describe(text->model, &info);
    size_t v = (size_t)info.n_vocab, most = PIECE_BYTES / (v * sizeof(float));
    size_t chunk = (size_t)gw_session_chunk(text->session);
    size_t piece = chunk < most || most == 0 ? chunk : most;
    scoring s = {.text = text,
                 .out = out,
                 .n_vocab = info.n_vocab,
                 .threads = info.threads < 1             ? 1
                            : info.threads > THREADS_MAX ? THREADS_MAX
                                                         : info.threads,
                 .piece =
                     piece < (size_t)text->windows->n_ctx ? piece : (size_t)text->windows->n_ctx,
                 .bos = app_adds_bos(text->model) ? gw_token_bos(text->model) : -1,
                 .own.session = text->session,
                 .base.session = text->base};
    app_progress progress;
    s.progress = &progress;
    s.window = malloc((size_t)text->windows->n_ctx * sizeof *s.window);
    s.own.logits = malloc(s.piece * v * sizeof(float));
    s.base.logits = text->base != NULL ? malloc(s.piece * v * sizeof(float)) : NULL;
    s.codes = malloc(v * sizeof *s.codes);
    int code = APP_FAILURE;
    if (s.window == NULL || s.own.logits == NULL || s.codes == NULL ||
        (text->base != NULL && s.base.logits == NULL)) {
        app_error("no memory for the logits of %zu tokens: a smaller -b needs less", s.piece);
    } else {
        progress_begin(&progress, "scoring");
        code = score_windows(&s, &progress);
        progress_end(&progress);
    }
    free(s.window);
    free(s.own.logits);
    free(s.base.logits);
    free(s.codes);
    return code;
}
