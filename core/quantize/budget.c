/* core/quantize/budget.c - see budget.h. */
#include "core/quantize/budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/engine/run/model_state.h"

enum { WINDOWS = 8, N_CTX = 512, SCORED = N_CTX / 2 - 1, FORMATS = 6, HEAD_ROOM = 4096 };

static const gw_fmt formats[FORMATS] = {GW_FMT_Q2_K, GW_FMT_Q3_K, GW_FMT_Q4_K,
                                        GW_FMT_Q5_K, GW_FMT_Q6_K, GW_FMT_Q8_0};

typedef struct measure {
    gw_making *m;
    const gw_backend *const *backends;
    int32_t *ids;
    int64_t windows;
    size_t n_vocab;
    float *base; /* [windows, SCORED, n_vocab] ln p of the float model */
    int64_t row; /* that comes next */
    int keep;    /* 1: rows become the base */
    double sum;  /* of divergences */
    char *path;  /* of variants */
} measure;

/* ln p of a row, in double, in the order of the vocabulary. */
static double log_sum(const float *logits, size_t n) {
    double top = (double)logits[0], sum = 0.0;
    for (size_t i = 1; i < n; i++) {
        top = (double)logits[i] > top ? (double)logits[i] : top;
    }
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - top);
    }
    return top + log(sum);
}

static int on_row(void *user, size_t row, const float *logits) {
    measure *q = user;
    float *base = q->base + (size_t)q->row++ * q->n_vocab;
    double norm = log_sum(logits, q->n_vocab), sum = 0.0;
    (void)row;
    for (size_t i = 0; i < q->n_vocab; i++) {
        double here = (double)logits[i] - norm;
        if (q->keep) {
            base[i] = (float)here;
        } else {
            sum += exp((double)base[i]) * ((double)base[i] - here);
        }
    }
    q->sum += sum;
    return 0;
}

/* The model at path on the windows; *mean: divergence of a row. */
static gw_status run_model(measure *q, const char *path, double *mean) {
    const gw_quantize_options *o = q->m->o;
    const gw_model_options options = {.path = path,
                                      .weights = "float",
                                      .threads = o->threads,
                                      .n_ctx = N_CTX,
                                      .chunk = N_CTX,
                                      .kv_type = "f32",
                                      .cancel = o->cancel};
    const gw_session_options session_options = {
        .n_ctx = N_CTX, .chunk = N_CTX, .kv_type = "f32", .cancel = o->cancel};
    gw_model *model = NULL;
    gw_session *session = NULL;
    gw_status status = GW_OK;
    q->row = 0;
    q->sum = 0.0;
    GW_TRY_DONE(gw_engine_open(&options, q->backends, &model));
    GW_TRY_DONE(gw_session_new(model, &session_options, &session));
    for (int64_t w = 0; w < q->windows; w++) {
        GW_TRY_DONE(gw_session_rewind(session, 0));
        GW_TRY_DONE(
            gw_session_prefill_rows(session, q->ids + w * N_CTX, N_CTX - 1, N_CTX / 2, on_row, q));
    }
    *mean = q->sum / (double)(q->windows * SCORED);
done:
    gw_session_free(session);
    gw_model_free(model);
    return status;
}

/* The first windows of the text, as the model cuts it. */
static gw_status read_windows(measure *q) {
    const gw_quantize_options *o = q->m->o;
    const gw_model_options options = {.path = o->model, .vocab_only = 1};
    gw_model *model = NULL;
    gw_file file;
    size_t n = 0;
    GW_TRY(gw_file_open(o->calibrate, o->calibrate, &file));
    gw_status status = gw_engine_open(&options, q->backends, &model);
    status = status == GW_OK ? gw_tokenize(model, file.data != NULL ? file.data : "",
                                           (size_t)file.size, GW_TEXT_BOS, &q->ids, &n)
                             : status;
    if (status == GW_OK) {
        int32_t bos = gw_token_bos(model);
        q->n_vocab = (size_t)gw_checkpoint_hparams(q->m->source.checkpoint)->n_vocab;
        q->windows = (int64_t)(n / N_CTX) < WINDOWS ? (int64_t)(n / N_CTX) : WINDOWS;
        for (int64_t w = 0; w < q->windows && n > 0 && bos >= 0 && q->ids[0] == bos; w++) {
            q->ids[w * N_CTX] = bos;
        }
    }
    gw_model_free(model);
    gw_file_close(&file);
    if (status == GW_OK && q->windows == 0) {
        status =
            gw_fail(GW_E_ARGUMENT, o->calibrate, "has %zu tokens, a window needs %d", n, N_CTX);
    }
    return status;
}

/* ---- one matrix at a time ------------------------------------------------------------------- */

/* Matrices of layers that the mixture makes anew. */
static int is_free(const gw_item *it) {
    return it->kept == NULL && strncmp(it->t->name, "blk.", 4) == 0 && it->t->cols % 256 == 0 &&
           !gw_format_of(it->to)->is_float;
}

static gw_status resize(gw_item *it, gw_fmt to) {
    size_t bytes = 0;
    it->to = it->wanted = to;
    GW_TRY(gw_row_bytes(to, (uint64_t)it->t->cols, &it->row_bytes));
    GW_TRY(gw_matrix_bytes(to, (uint64_t)it->t->rows, (uint64_t)it->t->cols, &bytes));
    it->bytes = bytes;
    return GW_OK;
}

/* The divergence with matrix i alone in a format, the others as they came. */
static gw_status measure_one(measure *q, size_t i, gw_fmt fmt, double *mean) {
    gw_making variant = *q->m;
    gw_quantize_options quiet = *q->m->o;
    quiet.out = q->path;
    quiet.say = NULL;
    quiet.report = NULL;
    quiet.split_max = 0;
    quiet.keep_split = quiet.resume = quiet.dry_run = 0;
    variant.o = &quiet;
    variant.inputs = NULL; /* importance alone: error feedback lowers all of them alike */
    variant.list = malloc((q->m->source.n + 1) * sizeof *variant.list);
    if (variant.list == NULL) {
        return gw_fail(GW_E_NOMEM, q->path, "no memory for a list of tensors");
    }
    gw_status status = GW_OK;
    memcpy(variant.list, q->m->list, q->m->source.n * sizeof *variant.list);
    for (size_t k = 0; k < q->m->source.n; k++) {
        gw_item *it = &variant.list[k];
        it->hash = 0;
        GW_TRY_DONE(resize(it, k == i ? fmt : it->t->fmt));
    }
    GW_TRY_DONE(gw_write_gguf(&variant));
    status = run_model(q, q->path, mean);
done:
    unlink(q->path);
    free(variant.list);
    return status;
}

/* ---- the choice ----------------------------------------------------------------------------- */

typedef struct choice {
    size_t item;
    double loss[FORMATS];
    uint64_t bytes[FORMATS];
    int at; /* the format chosen */
} choice;

static uint64_t total(const choice *list, size_t n, double *loss) {
    uint64_t bytes = 0;
    *loss = 0.0;
    for (size_t i = 0; i < n; i++) {
        bytes += list[i].bytes[list[i].at];
        *loss += list[i].loss[list[i].at];
    }
    return bytes;
}

/* Of each matrix the format of least loss + price * bytes, the smaller one of equals. */
static void choose_at(choice *list, size_t n, double price) {
    for (size_t i = 0; i < n; i++) {
        list[i].at = 0;
        for (int f = 1; f < FORMATS; f++) {
            double now = list[i].loss[list[i].at] + price * (double)list[i].bytes[list[i].at];
            if (list[i].loss[f] + price * (double)list[i].bytes[f] < now) {
                list[i].at = f;
            }
        }
    }
}

/* What is left over goes where it lowers the loss most for its bytes. */
static void spend(choice *list, size_t n, uint64_t room) {
    double loss;
    for (;;) {
        uint64_t left = room - total(list, n, &loss);
        size_t best = n;
        int to = 0;
        double gain = 0.0;
        for (size_t i = 0; i < n; i++) {
            for (int f = list[i].at + 1; f < FORMATS; f++) {
                uint64_t more = list[i].bytes[f] - list[i].bytes[list[i].at];
                double per = (list[i].loss[list[i].at] - list[i].loss[f]) / (double)(more + 1);
                if (more <= left && per > gain) {
                    gain = per;
                    best = i;
                    to = f;
                }
            }
        }
        if (best == n) {
            return;
        }
        list[best].at = to;
    }
}

/* The least sum of losses in `room` bytes; 0: nothing fits. */
static int choose_all(choice *list, size_t n, uint64_t room) {
    double low = 0.0, high = 1.0, loss, uniform_loss;
    choose_at(list, n, 1e30);
    if (total(list, n, &loss) > room) {
        return 0;
    }
    for (int k = 0; k < 200; k++) { /* the least price at which it fits */
        double price = low + (high - low) / 2.0;
        choose_at(list, n, price);
        if (total(list, n, &loss) > room) {
            low = price;
        } else {
            high = price;
        }
    }
    choose_at(list, n, high);
    if (total(list, n, &loss) > room) {
        choose_at(list, n, 1e30);
    }
    spend(list, n, room);
    total(list, n, &loss);
    for (int f = 0; f < FORMATS; f++) { /* never worse than one format for all */
        uint64_t bytes = 0;
        uniform_loss = 0.0;
        for (size_t i = 0; i < n; i++) {
            bytes += list[i].bytes[f];
            uniform_loss += list[i].loss[f];
        }
        if (bytes <= room && uniform_loss < loss) {
            loss = uniform_loss;
            for (size_t i = 0; i < n; i++) {
                list[i].at = f;
            }
        }
    }
    return 1;
}

/* Bytes of the file that are not of these matrices: head, metadata, the other tensors. */
static uint64_t fixed_bytes(const gw_making *m) {
    uint64_t bytes = HEAD_ROOM + m->source.pairs.n;
    for (size_t i = 0; i < m->source.n; i++) {
        bytes += strlen(m->list[i].t->name) + 64 + GW_GGUF_ALIGN;
        bytes += is_free(&m->list[i]) ? 0 : m->list[i].bytes;
    }
    return bytes;
}

static gw_status measure_all(measure *q, choice *list, size_t n) {
    double ignored = 0.0;
    q->keep = 1;
    GW_TRY(run_model(q, q->m->o->model, &ignored));
    q->keep = 0;
    for (size_t i = 0; i < n; i++) {
        for (int f = 0; f < FORMATS; f++) {
            GW_TRY(measure_one(q, list[i].item, formats[f], &list[i].loss[f]));
        }
        gw_say(q->m->o, "measured %zu/%zu  %s  KL %.5f in q2_k, %.5f in q4_k, %.5f in q6_k", i + 1,
               n, q->m->list[list[i].item].t->name, list[i].loss[0], list[i].loss[2],
               list[i].loss[4]);
    }
    return GW_OK;
}

gw_status gw_fit_budget(gw_making *m, const gw_backend *const *backends) {
    const gw_quantize_options *o = m->o;
    measure q = {.m = m, .backends = backends};
    choice *list = calloc(m->source.n + 1, sizeof *list);
    uint64_t fixed = fixed_bytes(m);
    size_t n = 0, room = strlen(o->out) + 32;
    gw_status status = GW_OK;
    q.path = malloc(room);
    if (list == NULL || q.path == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, "--fit", "no memory for a list of matrices"));
    }
    snprintf(q.path, room, "%s.fit.gguf", o->out);
    if (o->calibrate == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, "--fit", "measures on a text: give --calibrate TEXT"));
    }
    for (size_t i = 0; i < m->source.n; i++) {
        if (is_free(&m->list[i])) {
            list[n].item = i;
            for (int f = 0; f < FORMATS; f++) {
                size_t bytes = 0;
                GW_TRY_DONE(gw_matrix_bytes(formats[f], (uint64_t)m->list[i].t->rows,
                                            (uint64_t)m->list[i].t->cols, &bytes));
                list[n].bytes[f] = bytes;
            }
            n++;
        }
    }
    choose_at(list, n, 1e30);
    double loss = 0.0;
    if (n == 0 || fixed + total(list, n, &loss) > o->fit) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, "--fit", "%llu bytes are too few: in q2_k it takes %llu",
                            (unsigned long long)o->fit,
                            (unsigned long long)(fixed + total(list, n, &loss))));
    }
    GW_TRY_DONE(read_windows(&q));
    q.base = malloc((size_t)(q.windows * SCORED) * q.n_vocab * sizeof *q.base);
    if (q.base == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, "--fit", "no memory for the float model's answers"));
    }
    GW_TRY_DONE(measure_all(&q, list, n));
    choose_all(list, n, o->fit - fixed);
    for (size_t i = 0; i < n; i++) {
        gw_item *it = &m->list[list[i].item];
        GW_TRY_DONE(resize(it, formats[list[i].at]));
        gw_say(o, "%s  %s", it->t->name, gw_format_of(it->to)->name);
    }
    total(list, n, &loss);
    gw_say(o, "sum of what was measured: KL %.5f", loss);
done:
    free(list);
    free(q.base);
    free(q.path);
    gw_free(q.ids);
    return status;
}
