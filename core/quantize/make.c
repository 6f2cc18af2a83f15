/* core/quantize/make.c - a GGUF file, tensor by tensor in slabs of rows: what is held at once does
 * not grow with the model, and what a row becomes does not depend on its slab. */
#include "core/quantize/make.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/os.h"
#include "core/base/text.h"
#include "core/quantize/budget.h"
#include "core/quantize/folder_out.h"
#include "core/quantize/inputs.h"
#include "core/quantize/merge.h"
#include "core/quantize/original_check.h"
#include "core/quantize/parts.h"

enum { CHUNK = GW_GPTQ_ROWS, SLAB_BYTES = 16 << 20, LEAST_SLAB = 1 << 16 };

/* ---- metadata ------------------------------------------------------------------------------- */

static const char *const replaced[] = {"general.file_type",
                                       "general.quantization_version",
                                       "quantize.imatrix.file",
                                       "quantize.imatrix.dataset",
                                       "quantize.imatrix.entries_count",
                                       "quantize.imatrix.chunks_count",
                                       "godwit.quantize.recipe",
                                       "godwit.quantize.source",
                                       "split.no",
                                       "split.count",
                                       "split.tensors.count",
                                       NULL};

static const char *base_name(const char *path) {
    const char *slash = gw_os_last_slash(path);
    return slash != NULL ? slash + 1 : path;
}

static void put_text(gw_bytes *b, const char *key, const char *text) {
    gw_pair_text(b, key, text, strlen(text));
}

static void add_pairs(const gw_making *m, gw_bytes *b) {
    gw_bytes_put(b, m->source.pairs.at, m->source.pairs.n);
    b->pairs = m->source.pairs.pairs;
    if (m->mixture.file_type >= 0) {
        gw_pair_u32(b, "general.file_type", (uint32_t)m->mixture.file_type);
    }
    gw_pair_u32(b, "general.quantization_version", 2);
    if (m->imatrix.n > 0) {
        put_text(b, "quantize.imatrix.file",
                 base_name(m->o->imatrix != NULL ? m->o->imatrix : m->o->calibrate));
        put_text(b, "quantize.imatrix.dataset", m->imatrix.dataset);
        gw_pair_i32(b, "quantize.imatrix.entries_count", (int32_t)m->imatrix.n);
        gw_pair_i32(b, "quantize.imatrix.chunks_count", (int32_t)m->imatrix.chunks);
    }
    if (m->o->recipe != NULL) {
        put_text(b, "godwit.quantize.recipe", m->o->recipe);
    }
}

/* KEY=TYPE:VALUE in place of what the source says. */
static gw_status add_override(gw_bytes *b, const char *text) {
    const char *mark = strchr(text, '='), *colon = mark != NULL ? strchr(mark, ':') : NULL;
    char key[128];
    if (colon == NULL || (size_t)(mark - text) >= sizeof key || mark == text) {
        return gw_fail(GW_E_ARGUMENT, "--override-kv", "'%.80s' is not KEY=TYPE:VALUE", text);
    }
    snprintf(key, sizeof key, "%.*s", (int)(mark - text), text);
    size_t n = (size_t)(colon - mark - 1);
    const char *type = mark + 1, *value = colon + 1;
    char *end = NULL;
    if (n == 3 && strncmp(type, "int", n) == 0) {
        long long v = strtoll(value, &end, 10);
        if (*value == '\0' || *end != '\0' || v < 0 || v > UINT32_MAX) {
            return gw_fail(GW_E_ARGUMENT, "--override-kv", "'%.40s' is no integer from 0 to 2^32",
                           value);
        }
        gw_pair_u32(b, key, (uint32_t)v);
    } else if (n == 5 && strncmp(type, "float", n) == 0) {
        double v = strtod(value, &end);
        if (*value == '\0' || *end != '\0') {
            return gw_fail(GW_E_ARGUMENT, "--override-kv", "'%.40s' is no number", value);
        }
        gw_pair_f32(b, key, (float)v);
    } else if (n == 4 && strncmp(type, "bool", n) == 0) {
        gw_pair_bool(b, key, strcmp(value, "true") == 0);
    } else if (n == 3 && strncmp(type, "str", n) == 0) {
        put_text(b, key, value);
    } else {
        return gw_fail(GW_E_ARGUMENT, "--override-kv", "'%.*s' is none of int, float, bool, str",
                       n < 20 ? (int)n : 20, type);
    }
    return GW_OK;
}

/* Keys of the source that are said anew. */
static gw_status skipped_keys(const gw_quantize_options *o, gw_arena *arena,
                              const char *const **out) {
    size_t n = sizeof replaced / sizeof replaced[0];
    const char **list = gw_arena_array(arena, n + o->n_overrides + 1, sizeof *list);
    size_t used = 0;
    for (; list != NULL && replaced[used] != NULL; used++) {
        list[used] = replaced[used];
    }
    for (size_t i = 0; list != NULL && i < o->n_overrides; i++) {
        const char *mark = strchr(o->overrides[i], '=');
        size_t bytes = mark != NULL ? (size_t)(mark - o->overrides[i]) : 0;
        list[used++] = gw_arena_copy(arena, o->overrides[i], bytes);
    }
    *out = list;
    return list != NULL ? GW_OK : gw_fail(GW_E_NOMEM, o->model, "no memory for its metadata");
}

/* ---- places --------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t n) {
    return (n + GW_GGUF_ALIGN - 1) / GW_GGUF_ALIGN * GW_GGUF_ALIGN;
}

/* Which file every tensor goes to, and where. */
static void place_all(gw_making *m) {
    uint64_t at = 0;
    size_t per = m->o->keep_split && m->source.parts > 1
                     ? (m->source.n + (size_t)m->source.parts - 1) / (size_t)m->source.parts
                     : 0;
    m->parts = 1;
    for (size_t i = 0, here = 0; i < m->source.n; i++, here++) {
        gw_item *it = &m->list[i];
        int full = m->o->split_max > 0 ? at + aligned(it->bytes) > m->o->split_max
                                       : per > 0 && here == per;
        if (full && here > 0) {
            m->parts++;
            at = 0;
            here = 0;
        }
        it->part = m->parts - 1;
        it->at = at;
        at += aligned(it->bytes);
    }
}

static gw_status make_head(const gw_making *m, gw_parts *p, int part) {
    gw_bytes pairs = {0};
    gw_gguf_place *list = calloc(m->source.n + 1, sizeof *list);
    gw_status status = GW_OK;
    uint64_t data = 0;
    size_t n = 0;
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, p->list[part].path, "no memory for its head");
    }
    if (part == 0) {
        add_pairs(m, &pairs);
        for (size_t i = 0; i < m->o->n_overrides; i++) {
            GW_TRY_DONE(add_override(&pairs, m->o->overrides[i]));
        }
    }
    if (m->parts > 1) {
        gw_pair_u16(&pairs, "split.no", (uint16_t)part);
        gw_pair_u16(&pairs, "split.count", (uint16_t)m->parts);
        gw_pair_i32(&pairs, "split.tensors.count", (int32_t)m->source.n);
    }
    for (size_t i = 0; i < m->source.n; i++) {
        const gw_item *it = &m->list[i];
        if (it->part == part) {
            list[n] = (gw_gguf_place){.name = it->t->name,
                                      .n_dim = it->t->n_dim > 0 ? it->t->n_dim : 1,
                                      .fmt = it->to,
                                      .bytes = it->bytes,
                                      .at = it->at};
            memcpy(list[n].dim, it->t->dim, sizeof list[n].dim);
            list[n].dim[0] = it->t->n_dim > 0 ? list[n].dim[0] : 1;
            data = it->at + aligned(it->bytes);
            n++;
        }
    }
    gw_gguf_head(&p->list[part].head, &pairs, list, n);
    p->list[part].bytes = p->list[part].head.n + data;
    status = p->list[part].head.failed
                 ? gw_fail(GW_E_NOMEM, p->list[part].path, "no memory for its head")
                 : GW_OK;
done:
    free(list);
    gw_bytes_free(&pairs);
    return status;
}

/* ---- one tensor ----------------------------------------------------------------------------- */

typedef struct slab {
    gw_making *m;
    gw_item *item;
    int64_t first, n; /* rows */
    unsigned char *out;
    float *importance; /* [experts, cols]; NULL */
    const gw_gptq *gptq;
    double *errors;         /* [chunks][2]; NULL: not asked for */
    int only_look;          /* nothing is made: the digest of what is read */
    _Atomic int64_t broken; /* row * cols + column of the first value that is not finite; -1 */
    _Atomic int status;
} slab;

static const float *importance_of_row(const slab *s, int64_t row) {
    const gw_original_tensor *t = s->item->t;
    int64_t experts = t->n_dim == 3 ? t->dim[0] : 1;
    return s->importance == NULL ? NULL : s->importance + row / (t->rows / experts) * t->cols;
}

/* The first value that is not finite, of all threads. */
static void look_for_broken(slab *s, int64_t row, const float *w) {
    int64_t cols = s->item->t->cols;
    if (gw_all_finite(w, (size_t)cols)) {
        return;
    }
    int64_t c = 0;
    while (gw_all_finite(w + c, 1)) {
        c++;
    }
    int64_t at = row * cols + c, now = s->broken;
    while ((now < 0 || at < now) && !atomic_compare_exchange_weak(&s->broken, &now, at)) {
    }
}

/* In whatever order the rows come: a sum. */
static void add_source(const slab *s, int64_t row, const void *data, size_t bytes) {
    atomic_fetch_add(&s->item->source, gw_parts_hash((uint64_t)row + 1, data, bytes));
}

static void add_error(slab *s, int64_t chunk, const float *w, const float *h, const void *row,
                      float *decoded) {
    size_t cols = (size_t)s->item->t->cols;
    gw_format_of(s->item->to)->decode(decoded, row, cols);
    double error = 0.0, size = 0.0;
    for (size_t c = 0; c < cols; c++) {
        double weight = h != NULL ? (double)h[c] : 1.0, off = (double)decoded[c] - (double)w[c];
        error += weight * off * off;
        size += weight * (double)w[c] * (double)w[c];
    }
    s->errors[2 * chunk] += error;
    s->errors[2 * chunk + 1] += size;
}

static gw_status feed_back(const slab *s, const float *w, int64_t n, unsigned char *out) {
    const gw_coding *c = gw_coding_of(s->item->to);
    size_t cols = (size_t)s->item->t->cols, blocks = cols / (size_t)c->block;
    size_t bytes = gw_format_of(s->item->to)->block_bytes;
    gw_coded *coded = malloc((size_t)n * blocks * sizeof *coded);
    gw_status status = coded != NULL ? gw_gptq_rows(s->gptq, c, w, (int)n, coded, NULL)
                                     : gw_fail(GW_E_NOMEM, NULL, "no memory for error feedback");
    for (size_t b = 0; status == GW_OK && b < (size_t)n * blocks; b++) {
        c->pack(c, &coded[b], out + b / blocks * s->item->row_bytes + b % blocks * bytes);
    }
    free(coded);
    return status;
}

static void make_chunk(void *user, int64_t chunk) {
    slab *s = user;
    const gw_item *it = s->item;
    int64_t cols = it->t->cols, row = chunk * CHUNK;
    int64_t n = s->n - row < CHUNK ? s->n - row : CHUNK;
    unsigned char *out = s->out + (size_t)row * it->row_bytes;
    float *w = malloc((size_t)(n + 1) * (size_t)cols * sizeof *w); /* the last: decoded */
    gw_status status = w != NULL ? it->t->read(it->t, s->first + row, n, w)
                                 : gw_fail(GW_E_NOMEM, it->t->name, "no memory for a few rows");
    for (int64_t r = 0; r < n && status == GW_OK; r++) {
        add_source(s, s->first + row + r, w + r * cols, (size_t)cols * sizeof *w);
        look_for_broken(s, s->first + row + r, w + r * cols);
        if (s->gptq == NULL && !s->only_look) {
            gw_encode_row(it->to, w + r * cols, importance_of_row(s, s->first + row + r),
                          (size_t)cols, out + (size_t)r * it->row_bytes);
        }
    }
    if (status == GW_OK && s->gptq != NULL) {
        status = feed_back(s, w, n, out);
    }
    for (int64_t r = 0; r < n && status == GW_OK && s->errors != NULL; r++) {
        add_error(s, chunk, w + r * cols, importance_of_row(s, s->first + row + r),
                  out + (size_t)r * it->row_bytes, w + n * cols);
    }
    if (status != GW_OK) {
        s->status = (int)status;
    }
    free(w);
}

static gw_status refuse_broken(const slab *s) {
    const gw_original_tensor *t = s->item->t;
    int64_t at = s->broken;
    return at < 0 || s->m->o->allow_nan
               ? GW_OK
               : gw_fail(GW_E_NUMERIC, s->m->o->model,
                         "%s: value %lld of row %lld is not finite; --allow-nan keeps it", t->name,
                         (long long)(at % t->cols), (long long)(at / t->cols));
}

/* Floats that are copied are looked at as well. */
static gw_status look_at_copies(slab *s) {
    const gw_item *it = s->item;
    float *w = NULL;
    if (!gw_format_of(it->to)->is_float) {
        return GW_OK;
    }
    w = malloc((size_t)it->t->cols * sizeof *w + 1);
    for (int64_t r = 0; r < s->n && w != NULL; r++) {
        gw_format_of(it->to)->decode(w, s->out + (size_t)r * it->row_bytes, (size_t)it->t->cols);
        look_for_broken(s, s->first + r, w);
    }
    int done = w != NULL;
    free(w);
    return done ? GW_OK : gw_fail(GW_E_NOMEM, it->t->name, "no memory for a row");
}

static gw_status make_slab(slab *s) {
    const gw_item *it = s->item;
    const gw_quantize_options *o = s->m->o;
    if (o->cancel != NULL && *o->cancel) {
        return gw_fail(GW_E_CANCELLED, it->t->name, "interrupted");
    }
    if (it->to == it->t->fmt && it->t->stored != NULL) {
        GW_TRY(gw_stored_read(it->t->stored, (size_t)s->first * it->row_bytes,
                              (size_t)s->n * it->row_bytes, s->out));
        GW_TRY(look_at_copies(s));
        return refuse_broken(s);
    }
    int64_t chunks = (s->n + CHUNK - 1) / CHUNK;
    s->status = GW_OK;
    s->errors = o->report != NULL ? calloc((size_t)chunks, 2 * sizeof *s->errors) : NULL;
    s->m->parallel(o->threads, chunks, make_chunk, s);
    for (int64_t c = 0; c < chunks && s->errors != NULL; c++) {
        s->item->error += s->errors[2 * c];
        s->item->size += s->errors[2 * c + 1];
    }
    free(s->errors);
    s->errors = NULL;
    if (s->status != GW_OK) { /* what went wrong was said on another thread */
        return gw_fail((gw_status)s->status, it->t->name, "cannot be read or made");
    }
    return refuse_broken(s);
}

/* Rows at once: whole chunks, as many as the memory allows. */
static int64_t slab_rows(const gw_making *m, const gw_item *it) {
    uint64_t bytes = SLAB_BYTES;
    if (m->o->memory > 0 && m->o->memory / 4 < bytes) {
        bytes = m->o->memory / 4 > LEAST_SLAB ? m->o->memory / 4 : LEAST_SLAB;
    }
    uint64_t rows = bytes / (it->row_bytes + 1) / CHUNK * CHUNK;
    return rows < CHUNK ? CHUNK : rows > INT32_MAX ? INT32_MAX : (int64_t)rows;
}

/* Is what the tensor is made of what it was when the journal was written? */
static int same_source(gw_making *m, const gw_parts *p, size_t i) {
    gw_item *it = &m->list[i];
    int64_t most = slab_rows(m, it);
    slab s = {.m = m, .item = it, .broken = -1, .status = GW_OK, .only_look = 1};
    for (s.first = 0; s.first < it->t->rows && s.status == GW_OK; s.first += s.n) {
        s.n = it->t->rows - s.first < most ? it->t->rows - s.first : most;
        m->parallel(m->o->threads, (s.n + CHUNK - 1) / CHUNK, make_chunk, &s);
    }
    int same = s.status == GW_OK && it->source == p->sources[i];
    it->source = 0;
    return same;
}

/* 1 when the file has the tensor, as the journal says. What is copied is copied again. */
static int is_whole(gw_making *m, const gw_parts *p, size_t i, unsigned char *buffer, size_t room) {
    const gw_item *it = &m->list[i];
    uint64_t hash = 0;
    int copied = it->to == it->t->fmt && it->t->stored != NULL;
    if (p->hashes[i] == 0 || copied || !same_source(m, p, i)) {
        return 0;
    }
    room = room / 8 * 8;
    for (uint64_t at = 0; at < it->bytes; at += room) {
        size_t n = it->bytes - at < room ? (size_t)(it->bytes - at) : room;
        if (gw_parts_read(p, it->part, it->at + at, buffer, n) != GW_OK) {
            return 0;
        }
        hash = gw_parts_hash(hash, buffer, n);
    }
    if ((hash | 1) != p->hashes[i]) {
        return 0;
    }
    m->list[i].hash = hash;
    return 1;
}

/* Has the matrix, have its experts, error feedback? What an expert's rows take is hashed in eights.
 */
static int has_feedback(const gw_making *m, const gw_item *it) {
    int64_t experts = it->t->n_dim == 3 ? it->t->dim[0] : 1;
    return m->inputs != NULL && gw_coding_of(it->to) != NULL && it->to != it->t->fmt &&
           (uint64_t)(it->t->rows / experts) * it->row_bytes % 8 == 0 &&
           gw_inputs_find(m->inputs, it->t->name, it->t->cols, 0) != NULL;
}

static gw_status prepare_feedback(gw_making *m, slab *s, gw_gptq *gptq, int64_t expert) {
    const gw_item *it = s->item;
    const gw_coding *c = gw_coding_of(it->to);
    gw_gptq_order order;
    gw_gptq_free(gptq);
    s->gptq = NULL;
    GW_TRY(gw_gptq_order_named(m->o->order, c, &order));
    gw_status status =
        gw_gptq_prepare(it->t->name, gw_inputs_find(m->inputs, it->t->name, it->t->cols, expert),
                        (int)it->t->cols, m->o->damp > 0.0 ? m->o->damp : 0.01, order, c, gptq);
    if (status == GW_E_NUMERIC) {
        gw_say(m->o, "%s; importance alone is used", gw_error_text());
        return GW_OK;
    }
    s->gptq = status == GW_OK ? gptq : NULL;
    s->item->by_feedback += s->gptq != NULL;
    return status;
}

static gw_status make_tensor(gw_making *m, gw_parts *p, size_t i) {
    gw_item *it = &m->list[i];
    slab s = {.m = m, .item = it, .broken = -1};
    gw_gptq gptq = {0};
    int64_t each = it->t->rows / (it->t->n_dim == 3 ? it->t->dim[0] : 1);
    int64_t most = slab_rows(m, it);
    most = most < it->t->rows ? most : it->t->rows;
    int feedback = has_feedback(m, it);
    gw_status status = GW_OK;
    s.out = malloc((size_t)most * it->row_bytes + 8);
    if (s.out == NULL) {
        return gw_fail(GW_E_NOMEM, it->t->name, "no memory for %lld rows", (long long)most);
    }
    if (is_whole(m, p, i, s.out, (size_t)most * it->row_bytes + 8)) {
        goto done;
    }
    GW_TRY_DONE(gw_importance_of(m, it, &s.importance));
    for (s.first = 0; s.first < it->t->rows; s.first += s.n) {
        s.n = it->t->rows - s.first < most ? it->t->rows - s.first : most;
        if (feedback) { /* slabs end where an expert does */
            int64_t left = each - s.first % each;
            s.n = s.n < left ? s.n : left;
        }
        if (feedback && s.first % each == 0) {
            GW_TRY_DONE(prepare_feedback(m, &s, &gptq, s.first / each));
        }
        GW_TRY_DONE(make_slab(&s));
        size_t bytes = (size_t)s.n * it->row_bytes;
        GW_TRY_DONE(
            gw_parts_write(p, it->part, it->at + (uint64_t)s.first * it->row_bytes, s.out, bytes));
        it->hash = gw_parts_hash(it->hash, s.out, bytes);
    }
    status = gw_parts_note(p, i, it->hash | 1, it->source);
done:
    free(s.out);
    free(s.importance);
    gw_gptq_free(&gptq);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* One line a layer; tensors outside of layers have their own. */
static void say_layer(const gw_making *m, size_t i, double began, uint64_t done, uint64_t all) {
    const gw_item *it = &m->list[i];
    const char *name = it->t->name, *next = i + 1 < m->source.n ? m->list[i + 1].t->name : "";
    const char *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    size_t prefix = dot != NULL ? (size_t)(dot - name) + 1 : 0;
    if (prefix == 0 || strncmp(name, next, prefix) == 0) {
        return;
    }
    double seconds = gw_seconds_now() - began;
    double left = done > 0 ? seconds * (double)(all - done) / (double)done : 0.0;
    char text[32];
    gw_say(m->o, "layer %d/%d  %s  %.0f s left", atoi(name + 4) + 1,
           m->source.layers - m->source.pruned, gw_text_size(done, 4, text), left);
}

/* Where everything goes, and the heads; *all: bytes of all files. */
static gw_status lay_out(gw_making *m, gw_parts *p, uint64_t *all) {
    *all = 0;
    place_all(m);
    GW_TRY(gw_parts_new(m->o->out, m->parts, p));
    p->identity = m->source.file_bytes;
    for (int i = 0; i < m->parts; i++) {
        GW_TRY(make_head(m, p, i));
        *all += p->list[i].bytes;
    }
    return GW_OK;
}

gw_status gw_gguf_bytes(gw_making *m, uint64_t *out) {
    gw_parts p = {.journal_fd = -1};
    gw_status status = lay_out(m, &p, out);
    gw_parts_free(&p, 0);
    return status;
}

static uint64_t with_text(uint64_t h, const char *text) {
    return text != NULL ? gw_parts_hash(h + 1, text, strlen(text)) : h;
}

/* What decides the bytes beside the source's values and the heads: importance, the calibration
 * text, and how errors are fed back. */
static gw_status identify(const gw_making *m, uint64_t *identity) {
    const gw_quantize_options *o = m->o;
    const int32_t numbers[] = {o->gptq, o->windows, o->n_ctx, o->allow_nan};
    uint64_t h = gw_parts_hash(*identity, numbers, sizeof numbers);
    h = gw_parts_hash(h, &o->damp, sizeof o->damp);
    h = with_text(with_text(h, o->order), o->rule);
    for (size_t i = 0; i < m->imatrix.n; i++) {
        const gw_imatrix_entry *e = &m->imatrix.list[i];
        h = with_text(h, e->name);
        h = gw_parts_hash(h, e->counts, (size_t)e->experts * sizeof *e->counts);
        h = gw_parts_hash(h, e->sums, (size_t)(e->experts * e->cols) * sizeof *e->sums);
    }
    if (o->calibrate != NULL) {
        gw_file text;
        GW_TRY(gw_file_open(o->calibrate, o->calibrate, &text));
        h = text.size > 0 ? gw_parts_hash(h, text.data, (size_t)text.size) : h;
        gw_file_close(&text);
    }
    *identity = h;
    return GW_OK;
}

/* Was the file made of a folder, by keys that nobody overrides? It must then mean what that says.
 */
static int is_of_folder(const gw_making *m) {
    return m->source.weights != NULL && m->o->n_overrides == 0;
}

gw_status gw_write_gguf(gw_making *m) {
    gw_parts p = {.journal_fd = -1};
    uint64_t done = 0, all = 0;
    double began = gw_seconds_now();
    int resumed = 0;
    gw_status status = GW_OK;
    GW_TRY_DONE(lay_out(m, &p, &all));
    if (m->o->fit > 0 && all > m->o->fit) { /* of parts there came to be more */
        GW_TRY_DONE(
            gw_fail(GW_E_ARGUMENT, "--fit", "it comes to %llu bytes", (unsigned long long)all));
    }
    if (m->o->dry_run) {
        char text[32];
        gw_say(m->o, "%s would be %s in %d file%s", m->o->out, gw_text_size(all, 4, text), m->parts,
               m->parts == 1 ? "" : "s");
        goto done;
    }
    GW_TRY_DONE(identify(m, &p.identity));
    GW_TRY_DONE(gw_parts_begin(&p, m->o->resume, m->source.n, &resumed));
    if (m->o->resume && !resumed) {
        gw_say(m->o, "--resume: nothing of this work is there: everything is made");
    }
    for (size_t i = 0; i < m->source.n; i++) {
        GW_TRY_DONE(make_tensor(m, &p, i));
        done += m->list[i].bytes;
        if (m->o->progress != NULL) {
            m->o->progress(m->o->progress_user, done, all);
        }
        say_layer(m, i, began, done, all);
    }
    if (is_of_folder(m) && m->parts == 1) {
        GW_TRY_DONE(gw_original_check_file(&m->source, p.list[0].partial));
    }
    status = gw_parts_end(&p);
done:
    if (status == GW_E_CANCELLED && p.journal_fd >= 0) {
        gw_say(m->o, "%s.partial is kept: --resume goes on with it", m->o->out);
    }
    gw_parts_free(&p, status == GW_E_CANCELLED);
    return status;
}

static gw_status check_places(const gw_quantize_options *o) {
    char a[4096], b[4096];
    if (o->model == NULL || o->out == NULL) {
        return gw_fail(GW_E_ARGUMENT, "quantize", "needs a model and a place for the result");
    }
    int same = realpath(o->model, a) != NULL && realpath(o->out, b) != NULL && strcmp(a, b) == 0;
    return same ? gw_fail(GW_E_ARGUMENT, o->out, "is the model itself: give another name") : GW_OK;
}

/* Importance, and X^T X for error feedback, from the text. */
static gw_status calibrate(gw_making *m, const gw_backend *const *backends) {
    const gw_quantize_options *o = m->o;
    const gw_inputs_wish wish = {.text = o->calibrate,
                                 .windows = o->windows > 0 ? o->windows : GW_CALIBRATE_WINDOWS,
                                 .n_ctx = o->n_ctx,
                                 .threads = o->threads,
                                 .xtx = o->gptq,
                                 .memory = o->memory,
                                 .cancel = o->cancel,
                                 .say = o->say,
                                 .say_user = o->say_user};
    GW_TRY(gw_inputs_collect(&m->source, backends, &wish, &m->inputs));
    return m->imatrix.n > 0 ? GW_OK : gw_inputs_imatrix(m->inputs, o->calibrate, &m->imatrix);
}

/* Few bits without a word about which columns matter. */
static void say_hint(const gw_making *m) {
    const gw_format *f = gw_format_of(m->mixture.base);
    double bits = 8.0 * (double)f->block_bytes / (double)f->block_elems;
    if (m->imatrix.n == 0 && !m->mixture.copy && bits < 4.5) {
        gw_say(m->o,
               "%s has %.2f bits a weight: --imatrix FILE or --calibrate TEXT make it clearly "
               "better",
               m->mixture.name, bits);
    }
}

static void say_made(const gw_making *m) {
    double weights = 0.0, bytes = 0.0;
    uint64_t hash = 0;
    char text[32];
    for (size_t i = 0; i < m->source.n; i++) {
        weights += (double)(m->list[i].t->rows * m->list[i].t->cols);
        bytes += (double)m->list[i].bytes;
        hash = gw_parts_hash(hash, &m->list[i].hash, 8);
    }
    if (!m->o->dry_run) {
        gw_say(m->o, "%s, %.2f bits per weight, hash %016" PRIx64,
               gw_text_size((uint64_t)bytes, 4, text), 8.0 * bytes / weights, hash);
    }
}

gw_status gw_quantize_model(const gw_quantize_options *o, gw_parallel_fn parallel,
                            const gw_backend *const *backends) {
    gw_making m = {.o = o, .parallel = parallel};
    double began = gw_seconds_now();
    gw_arena *arena = NULL;
    const char *const *skip = NULL;
    gw_status status = GW_OK;
    gw_folder_type folder;
    gw_merge *merge = NULL;
    GW_TRY(check_places(o));
    if (o->prune != NULL && (o->fit > 0 || gw_folder_type_named(o->type, &folder))) {
        return gw_fail(GW_E_ARGUMENT, "--prune-layers",
                       "not together with --fit or a folder's type: make a GGUF file without the "
                       "layers first (type copy), then that of it");
    }
    if (o->n_lora > 0 && gw_folder_type_named(o->type, &folder)) {
        return gw_fail(GW_E_ARGUMENT, "--lora",
                       "not together with a folder's type: make a merged "
                       "GGUF file");
    }
    if (gw_folder_type_named(o->type, &folder)) {
        return gw_write_folder(o, &folder, parallel, backends);
    }
    if (o->n_lora > 0 && (o->prune != NULL || o->fit > 0 || o->calibrate != NULL || o->gptq)) {
        return gw_fail(
            GW_E_ARGUMENT, "--lora",
            "not together with --prune-layers, --fit or --calibrate, which run the model "
            "as it was: make a merged file first (type bf16), then that of it");
    }
    GW_TRY(gw_mixture_find(o->type != NULL || o->fit == 0 ? o->type : "q4_k_m", &m.mixture));
    arena = gw_arena_new();
    if (arena == NULL) {
        return gw_fail(GW_E_NOMEM, o->model, "no memory for its metadata");
    }
    GW_TRY_DONE(skipped_keys(o, arena, &skip));
    GW_TRY_DONE(gw_original_open(o->model, skip, o->prune, &m.source));
    if (o->n_lora > 0) {
        GW_TRY_DONE(gw_merge_into(&m.source, o->lora, o->n_lora, o->allow_requantize, &merge));
    }
    if (is_of_folder(&m)) {
        GW_TRY_DONE(gw_original_check_form(&m.source));
    }
    if (o->imatrix != NULL) {
        GW_TRY_DONE(gw_imatrix_read(o->imatrix, &m.imatrix));
    }
    m.list = gw_arena_array(arena, m.source.n + 1, sizeof *m.list);
    if (m.list == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, o->model, "no memory for its tensors"));
    }
    if (o->calibrate != NULL && !o->dry_run) {
        GW_TRY_DONE(calibrate(&m, backends));
    }
    GW_TRY_DONE(gw_choose_formats(&m));
    if (o->fit > 0) {
        GW_TRY_DONE(gw_fit_budget(&m, backends));
    }
    say_hint(&m);
    GW_TRY_DONE(gw_write_gguf(&m));
    say_made(&m);
    if (o->report != NULL && !o->dry_run) {
        status = gw_write_report(&m, gw_seconds_now() - began);
    }
done:
    gw_inputs_free(m.inputs);
    gw_imatrix_free(&m.imatrix);
    gw_original_close(&m.source);
    gw_merge_free(merge);
    gw_arena_free(arena);
    return status;
}
