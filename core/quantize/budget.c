/* core/quantize/budget.c - see budget.h. */
#include "core/quantize/budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/os.h"
#include "core/engine/run/kv.h"
#include "core/engine/run/model_state.h"

enum { WINDOWS = 8, N_CTX = 512, SCORED = N_CTX / 2 - 1, HEAD_ROOM = 4096, CHUNK = 16 };

/* By bytes. Two of them are measured, the others by how far their weights are off. */
static const gw_fmt formats[] = {GW_FMT_IQ2_XS, GW_FMT_Q2_K,   GW_FMT_IQ3_XXS, GW_FMT_Q3_K,
                                 GW_FMT_IQ3_S,  GW_FMT_IQ4_XS, GW_FMT_Q4_K,    GW_FMT_Q5_K,
                                 GW_FMT_Q6_K,   GW_FMT_Q8_0};
enum { FORMATS = sizeof formats / sizeof formats[0], COARSE = 1, FINE = 6 };

typedef struct measure {
    gw_making *m;
    const gw_backend *const *backends;
    gw_making quiet; /* says nothing */
    gw_quantize_options quiet_options;
    /* The float model as a GGUF file in memory; float matrices are computed where they lie there.
     */
    unsigned char *image;
    size_t image_bytes;
    gw_gguf_place *place; /* [source.n]; at: in the image */
    gw_model *model;
    gw_session *session;
    int32_t *ids;
    int64_t windows;
    size_t n_vocab;
    float *base; /* [windows, SCORED, n_vocab] ln p of the float model */
    int64_t row; /* that comes next */
    int keep;    /* 1: rows become the base */
    double sum;  /* of divergences */
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

/* ---- the model in memory -------------------------------------------------------------------- */

static void *aligned_room(size_t bytes) { return gw_os_aligned(bytes + 64); }

static int64_t chunks_of(const gw_original_tensor *t) { return (t->rows + CHUNK - 1) / CHUNK; }

/* One tensor on its way into the image: as it is, or as what a format makes of it. */
typedef struct change {
    const gw_item *item;
    const gw_gguf_place *place;
    unsigned char *to; /* NULL: only the errors */
    int as_it_is;      /* 1: fmt is not read */
    gw_fmt fmt;
    const float *importance; /* [experts, cols] or NULL */
    double *errors;          /* [chunks] sums of importance (w - value)^2; NULL: not asked for */
    _Atomic int failed;
} change;

static void change_chunk(void *user, int64_t chunk) {
    change *c = user;
    const gw_original_tensor *t = c->item->t;
    const gw_format *kept = gw_format_of(c->place->fmt);
    int64_t first = chunk * CHUNK, n = t->rows - first < CHUNK ? t->rows - first : CHUNK;
    size_t cols = (size_t)t->cols, bytes = 0, coded = 0;
    int64_t experts = t->n_dim == 3 ? t->dim[0] : 1;
    if (gw_row_bytes(c->place->fmt, cols, &bytes) != GW_OK ||
        (!c->as_it_is && gw_row_bytes(c->fmt, cols, &coded) != GW_OK)) {
        c->failed = GW_E_METADATA;
        return;
    }
    float *w = malloc((size_t)(n + 1) * cols * sizeof *w);
    unsigned char *row = malloc(coded + 1);
    gw_status status = w != NULL && row != NULL ? t->read(t, first, n, w) : GW_E_NOMEM;
    double error = 0.0;
    for (int64_t r = 0; r < n && status == GW_OK; r++) {
        float *x = w + r * t->cols, *made = w + n * t->cols;
        const float *h = c->importance != NULL
                             ? c->importance + (first + r) / (t->rows / experts) * t->cols
                             : NULL;
        if (!c->as_it_is) {
            gw_encode_row(c->fmt, x, h, cols, row);
            gw_format_of(c->fmt)->decode(made, row, cols);
        }
        for (size_t i = 0; i < cols && c->errors != NULL; i++) {
            double off = (double)made[i] - (double)x[i];
            error += (h != NULL ? (double)h[i] : 1.0) * off * off;
        }
        if (c->to != NULL) {
            kept->encode(c->to + (size_t)(first + r) * bytes, c->as_it_is ? x : made, cols);
        }
    }
    if (c->errors != NULL) {
        c->errors[chunk] = error;
    }
    if (status != GW_OK) {
        c->failed = (int)status;
    }
    free(w);
    free(row);
}

static gw_status change_all(measure *q, change *c) {
    q->m->parallel(q->m->o->threads, chunks_of(c->item->t), change_chunk, c);
    return c->failed ? gw_fail((gw_status)c->failed, c->item->t->name, "cannot be read or made")
                     : GW_OK;
}

static gw_status put_as_it_is(measure *q, size_t i) {
    change c = {.item = &q->m->list[i],
                .place = &q->place[i],
                .to = q->image + q->place[i].at,
                .as_it_is = 1};
    return change_all(q, &c);
}

/* Matrix i as fmt makes it: into the image where put is 1; *error: how far it is off. */
static gw_status put_as(measure *q, size_t i, gw_fmt fmt, int put, double *error) {
    float *importance = NULL;
    int64_t n = chunks_of(q->m->list[i].t);
    change c = {.item = &q->m->list[i],
                .place = &q->place[i],
                .to = put ? q->image + q->place[i].at : NULL,
                .fmt = fmt};
    gw_status status = GW_OK;
    GW_TRY_DONE(gw_importance_of(&q->quiet, &q->m->list[i], &importance));
    c.importance = importance;
    c.errors = calloc((size_t)n, sizeof *c.errors);
    if (c.errors == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, q->m->list[i].t->name, "no memory for its errors"));
    }
    GW_TRY_DONE(change_all(q, &c));
    *error = 0.0;
    for (int64_t k = 0; k < n; k++) {
        *error += c.errors[k];
    }
done:
    free(c.errors);
    free(importance);
    return status;
}

/* Floats of 16 bits stay that; everything else is float, so that a format's errors are all there.
 */
static gw_status make_image(measure *q) {
    const gw_original *source = &q->m->source;
    gw_bytes head = {0}, pairs = {0};
    uint64_t at = 0;
    gw_status status = GW_OK;
    q->place = calloc(source->n + 1, sizeof *q->place);
    if (q->place == NULL) {
        return gw_fail(GW_E_NOMEM, "--fit", "no memory for a list of tensors");
    }
    for (size_t i = 0; i < source->n; i++) {
        const gw_original_tensor *t = &source->list[i];
        gw_gguf_place *p = &q->place[i];
        size_t bytes = 0;
        *p = (gw_gguf_place){.name = t->name,
                             .n_dim = t->n_dim > 0 ? t->n_dim : 1,
                             .fmt = t->fmt == GW_FMT_F16 ? GW_FMT_F16 : GW_FMT_F32,
                             .at = at};
        memcpy(p->dim, t->dim, sizeof p->dim);
        p->dim[0] = t->n_dim > 0 ? p->dim[0] : 1;
        GW_TRY_DONE(gw_matrix_bytes(p->fmt, (uint64_t)t->rows, (uint64_t)t->cols, &bytes));
        p->bytes = bytes;
        at += (bytes + GW_GGUF_ALIGN - 1) / GW_GGUF_ALIGN * GW_GGUF_ALIGN;
    }
    gw_bytes_put(&pairs, source->pairs.at, source->pairs.n);
    pairs.pairs = source->pairs.pairs;
    gw_gguf_head(&head, &pairs, q->place, source->n);
    q->image_bytes = head.n + (size_t)at;
    q->image = head.failed ? NULL : aligned_room(q->image_bytes);
    if (q->image == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, "--fit", "no memory for the float model, %llu bytes",
                            (unsigned long long)q->image_bytes));
    }
    memset(q->image, 0, q->image_bytes);
    memcpy(q->image, head.at, head.n);
    for (size_t i = 0; i < source->n; i++) {
        q->place[i].at += head.n;
        GW_TRY_DONE(put_as_it_is(q, i));
    }
done:
    gw_bytes_free(&head);
    gw_bytes_free(&pairs);
    return status;
}

static void close_model(measure *q) {
    gw_session_free(q->session);
    gw_model_free(q->model);
    q->session = NULL;
    q->model = NULL;
}

static gw_status open_model(measure *q) {
    const gw_quantize_options *o = q->m->o;
    const gw_model_options options = {.memory = q->image,
                                      .memory_bytes = q->image_bytes,
                                      .weights = "float",
                                      .threads = o->threads,
                                      .n_ctx = N_CTX,
                                      .chunk = N_CTX,
                                      .kv_type = "f32",
                                      .cancel = o->cancel};
    const gw_session_options session_options = {
        .n_ctx = N_CTX, .chunk = N_CTX, .kv_type = "f32", .cancel = o->cancel};
    close_model(q);
    GW_TRY(gw_engine_open(&options, q->backends, &q->model));
    return gw_session_new(q->model, &session_options, &q->session);
}

/* The model on the windows; *mean: divergence of a row. */
static gw_status run_model(measure *q, double *mean) {
    q->row = 0;
    q->sum = 0.0;
    for (int64_t w = 0; w < q->windows; w++) {
        GW_TRY(gw_session_rewind(q->session, 0));
        GW_TRY(gw_session_prefill_rows(q->session, q->ids + w * N_CTX, N_CTX - 1, N_CTX / 2, on_row,
                                       q));
    }
    *mean = q->sum / (double)(q->windows * SCORED);
    return GW_OK;
}

/* The same after the image has changed. A model that has copied what changed is opened again. */
static gw_status run_changed(measure *q, double *mean) {
    GW_TRY(run_model(q, mean));
    if (*mean == 0.0) {
        GW_TRY(open_model(q));
        GW_TRY(run_model(q, mean));
    }
    return GW_OK;
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
    double low = 0.0, high = 1.0, loss;
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
    return 1;
}

/* One format for all: the one of least loss that fits; -1: none does. */
static int best_uniform(const choice *list, size_t n, uint64_t room) {
    int best = -1;
    double least = 0.0;
    for (int f = 0; f < FORMATS; f++) {
        uint64_t bytes = 0;
        double loss = 0.0;
        for (size_t i = 0; i < n; i++) {
            bytes += list[i].bytes[f];
            loss += list[i].loss[f];
        }
        if (bytes <= room && (best < 0 || loss < least)) {
            best = f;
            least = loss;
        }
    }
    return best;
}

static uint64_t aligned(uint64_t n) {
    return (n + GW_GGUF_ALIGN - 1) / GW_GGUF_ALIGN * GW_GGUF_ALIGN;
}

/* Bytes of the file that are not of these matrices: head, metadata, the other tensors. Of several
 * parts there may come to be a few more, each with a head. */
static gw_status fixed_bytes(gw_making *m, const choice *list, size_t n, uint64_t *out) {
    GW_TRY(gw_gguf_bytes(m, out));
    for (size_t i = 0; i < n; i++) {
        *out -= aligned(m->list[list[i].item].bytes);
    }
    *out += m->o->split_max > 0 ? (uint64_t)(m->parts + 8) * HEAD_ROOM : 0;
    return GW_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* A matrix alone in two formats. The divergence grows as a power, near 1, of how far weights are
 * off, and both are known of the two; errors of different matrices would not compare. */
static gw_status measure_one(measure *q, choice *c) {
    double error[FORMATS], coarse = 0.0, fine = 0.0;
    for (int f = 0; f < FORMATS; f++) {
        GW_TRY(put_as(q, c->item, formats[f], f == COARSE || f == FINE, &error[f]));
        if (f == COARSE || f == FINE) {
            GW_TRY(run_changed(q, f == COARSE ? &coarse : &fine));
        }
    }
    GW_TRY(put_as_it_is(q, c->item));
    double power = 1.0;
    if (coarse > 0.0 && fine > 0.0 && error[COARSE] > error[FINE] && error[FINE] > 0.0) {
        power = log(coarse / fine) / log(error[COARSE] / error[FINE]);
        power = power < 0.5 ? 0.5 : power > 1.5 ? 1.5 : power;
    }
    for (int f = 0; f < FORMATS; f++) {
        int from = f < FINE ? COARSE : FINE;
        double known = f < FINE ? coarse : fine;
        c->loss[f] = error[from] > 0.0 ? known * pow(error[f] / error[from], power) : 0.0;
    }
    return GW_OK;
}

static gw_status measure_all(measure *q, choice *list, size_t n) {
    double ignored = 0.0;
    GW_TRY(make_image(q));
    GW_TRY(open_model(q));
    q->keep = 1;
    GW_TRY(run_model(q, &ignored));
    q->keep = 0;
    for (size_t i = 0; i < n; i++) {
        GW_TRY(measure_one(q, &list[i]));
        gw_say(q->m->o, "measured %zu/%zu  %s  KL %.5f in q2_k, %.5f in q4_k, %.5f in q6_k", i + 1,
               n, q->m->list[list[i].item].t->name, list[i].loss[COARSE], list[i].loss[FINE],
               list[i].loss[8]);
    }
    return GW_OK;
}

/* The divergence of the whole choice, or with f >= 0 of one format for all. */
static gw_status measure_together(measure *q, const choice *list, size_t n, int f, double *mean) {
    double ignored;
    for (size_t i = 0; i < n; i++) {
        GW_TRY(put_as(q, list[i].item, formats[f >= 0 ? f : list[i].at], 1, &ignored));
    }
    return run_changed(q, mean);
}

/* Sums of single divergences are near the whole, but not it: one format for all is taken where it
 * is better measured. */
static gw_status choose(measure *q, choice *list, size_t n, uint64_t room) {
    double mixed = 0.0, uniform = 0.0;
    choose_all(list, n, room);
    int f = best_uniform(list, n, room);
    GW_TRY(measure_together(q, list, n, -1, &mixed));
    if (f >= 0) {
        GW_TRY(measure_together(q, list, n, f, &uniform));
        for (size_t i = 0; i < n && uniform < mixed; i++) {
            list[i].at = f;
        }
        gw_say(q->m->o, "measured together: KL %.5f; %.5f all in %s", mixed, uniform,
               gw_format_of(formats[f])->name);
    }
    return GW_OK;
}

/* What the size leaves for weights: a cache of so many positions takes its part. */
static gw_status cache_bytes(const gw_making *m, uint64_t *out) {
    const gw_hparams *hp = gw_checkpoint_hparams(m->source.checkpoint);
    gw_kv_size size = {.slots = 1, .n_ctx = m->o->fit_ctx};
    *out = 0;
    if (size.n_ctx <= 0) {
        return GW_OK;
    }
    const gw_kv_pair f16 = {GW_FMT_F16, GW_FMT_F16};
    GW_TRY(gw_kv_bytes(hp, f16, size, out));
    for (int l = 0; l < hp->n_layers; l++) {
        *out += gw_kv_layer_bytes(&hp->layer[l], f16, size);
    }
    return GW_OK;
}

static gw_status list_choices(const gw_making *m, choice *list, size_t *n) {
    for (size_t i = 0; i < m->source.n; i++) {
        const gw_original_tensor *t = m->list[i].t;
        if (!is_free(&m->list[i])) {
            continue;
        }
        choice *c = &list[(*n)++];
        c->item = i;
        for (int f = 0; f < FORMATS; f++) {
            size_t bytes = 0;
            GW_TRY(gw_matrix_bytes(formats[f], (uint64_t)t->rows, (uint64_t)t->cols, &bytes));
            c->bytes[f] = aligned(bytes);
        }
    }
    return GW_OK;
}

static void release(measure *q) {
    close_model(q);
    gw_os_aligned_free(q->image);
    free(q->place);
    free(q->base);
    gw_free(q->ids);
}

gw_status gw_fit_budget(gw_making *m, const gw_backend *const *backends) {
    const gw_quantize_options *o = m->o;
    measure q = {.m = m, .backends = backends, .quiet = *m, .quiet_options = *o};
    choice *list = calloc(m->source.n + 1, sizeof *list);
    uint64_t fixed = 0, cache = 0;
    double loss = 0.0;
    size_t n = 0;
    gw_status status = GW_OK;
    q.quiet.o = &q.quiet_options;
    q.quiet_options.say = NULL;
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "--fit", "no memory for a list of matrices");
    }
    if (o->calibrate == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, "--fit", "measures on a text: give --calibrate TEXT"));
    }
    GW_TRY_DONE(list_choices(m, list, &n));
    GW_TRY_DONE(fixed_bytes(m, list, n, &fixed));
    GW_TRY_DONE(cache_bytes(m, &cache));
    choose_at(list, n, 1e30);
    uint64_t least = fixed + cache + total(list, n, &loss);
    if (n == 0 || least > o->fit) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, "--fit", "%llu bytes are too few: in %s it takes %llu",
                            (unsigned long long)o->fit, gw_format_of(formats[0])->name,
                            (unsigned long long)least));
    }
    GW_TRY_DONE(read_windows(&q));
    q.base = malloc((size_t)(q.windows * SCORED) * q.n_vocab * sizeof *q.base);
    if (q.base == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, "--fit", "no memory for the float model's answers"));
    }
    GW_TRY_DONE(measure_all(&q, list, n));
    GW_TRY_DONE(choose(&q, list, n, o->fit - fixed - cache));
    for (size_t i = 0; i < n; i++) {
        gw_item *it = &m->list[list[i].item];
        GW_TRY_DONE(resize(it, formats[list[i].at]));
        gw_say(o, "%s  %s", it->t->name, gw_format_of(it->to)->name);
    }
    total(list, n, &loss);
    gw_say(o, "sum of what was measured: KL %.5f", loss);
done:
    release(&q);
    free(list);
    return status;
}
