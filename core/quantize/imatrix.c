/* core/quantize/imatrix.c - see imatrix.h. Forms: llama.cpp's tools/imatrix. */
#include "core/quantize/imatrix.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/save.h"
#include "core/base/text.h"
#include "core/quantize/gguf_out.h"

static const char SUMS[] = ".in_sum2", COUNTS[] = ".counts";
enum { PRIOR_ROWS = 64, NAME_MAX_BYTES = 256 };

static gw_status nomem(const char *where) {
    return gw_fail(GW_E_NOMEM, where, "no memory for the importance matrix");
}

void gw_imatrix_free(gw_imatrix *m) {
    gw_arena_free(m->arena);
    *m = (gw_imatrix){0};
}

const gw_imatrix_entry *gw_imatrix_find(const gw_imatrix *m, const char *name) {
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(m->list[i].name, name) == 0) {
            return &m->list[i];
        }
    }
    return NULL;
}

static void keep_base_name(gw_imatrix *m, const char *text, size_t n) {
    for (size_t i = n; i-- > 0;) {
        if (text[i] == '/' || text[i] == '\\') {
            text += i + 1;
            n -= i + 1;
            break;
        }
    }
    n = n < sizeof m->dataset - 1 ? n : sizeof m->dataset - 1;
    memcpy(m->dataset, text, n);
    m->dataset[n] = '\0';
}

static gw_status check_entry(const char *where, const gw_imatrix_entry *e) {
    for (int64_t x = 0; x < e->experts; x++) {
        float count = e->counts[x];
        if (!(count >= 0.0f && count < 1e30f)) {
            return gw_fail(GW_E_NUMERIC, where, "%s: the count of expert %lld is %g", e->name,
                           (long long)x, (double)count);
        }
        for (int64_t c = 0; c < e->cols; c++) {
            float sum = e->sums[x * e->cols + c];
            if (!(sum >= 0.0f && sum < 3.4e38f)) {
                return gw_fail(GW_E_NUMERIC, where, "%s: column %lld is %g, no sum of squares",
                               e->name, (long long)c, (double)sum);
            }
        }
    }
    return GW_OK;
}

/* ---- GGUF ----------------------------------------------------------------------------------- */

static const gw_stored *tensor_named(const gw_gguf *g, const char *stem, size_t n,
                                     const char *tail) {
    for (size_t i = 0; i < gw_gguf_tensors(g); i++) {
        const gw_stored *t = gw_gguf_tensor(g, i);
        if (strncmp(t->name, stem, n) == 0 && strcmp(t->name + n, tail) == 0) {
            return t;
        }
    }
    return NULL;
}

static gw_status take_gguf(const char *where, const gw_gguf *g, gw_imatrix *m) {
    gw_gguf_view kind = {"", 0};
    gw_gguf_array sets;
    int found = 0;
    GW_TRY(gw_gguf_text(g, "general.type", &kind, &found));
    if (!found || kind.bytes != 7 || memcmp(kind.text, "imatrix", 7) != 0) {
        return gw_fail(GW_E_METADATA, where,
                       "is no importance matrix: general.type is not imatrix");
    }
    GW_TRY(gw_gguf_list(g, "imatrix.datasets", GW_GGUF_TEXT, &sets, &found));
    if (found && sets.count > 0) {
        gw_gguf_view first = gw_gguf_next_text(&sets);
        keep_base_name(m, first.text, (size_t)first.bytes);
    }
    GW_TRY(gw_gguf_int(g, "imatrix.chunk_count", &m->chunks, NULL));
    GW_TRY(gw_gguf_int(g, "imatrix.chunk_size", &m->chunk_size, NULL));
    m->list = gw_arena_array(m->arena, gw_gguf_tensors(g) + 1, sizeof *m->list);
    for (size_t i = 0; m->list != NULL && i < gw_gguf_tensors(g); i++) {
        const gw_stored *t = gw_gguf_tensor(g, i);
        if (!gw_text_ends(t->name, SUMS)) {
            continue;
        }
        size_t stem = strlen(t->name) - strlen(SUMS);
        const gw_stored *counts = tensor_named(g, t->name, stem, COUNTS);
        gw_imatrix_entry *e = &m->list[m->n];
        e->cols = t->n_dim > 0 ? t->dim[t->n_dim - 1] : 1;
        e->experts = t->n_dim > 1 ? t->dim[t->n_dim - 2] : 1;
        if (t->fmt != GW_FMT_F32 || counts == NULL || counts->fmt != GW_FMT_F32 ||
            t->bytes != (size_t)(e->cols * e->experts) * 4 ||
            counts->bytes != (size_t)e->experts * 4) {
            return gw_fail(GW_E_METADATA, where, "%s: sums and counts do not belong together",
                           t->name);
        }
        e->name = gw_arena_copy(m->arena, t->name, stem);
        e->sums = gw_arena_alloc(m->arena, t->bytes);
        e->counts = gw_arena_alloc(m->arena, counts->bytes);
        if (e->name == NULL || e->sums == NULL || e->counts == NULL) {
            return nomem(where);
        }
        memcpy(e->sums, t->data, t->bytes);
        memcpy(e->counts, counts->data, counts->bytes);
        GW_TRY(check_entry(where, e));
        m->n++;
    }
    return m->list != NULL ? GW_OK : nomem(where);
}

/* ---- .dat ----------------------------------------------------------------------------------- */

/* entries i32; each: bytes of the name i32, name, calls i32, values i32, values f32 [values] =
 * calls * mean square; then chunks i32, bytes i32, dataset. */
static gw_status take_dat(const char *where, const void *bytes, uint64_t size, gw_imatrix *m) {
    gw_reader r = gw_reader_of(bytes, size);
    uint32_t n = 0, length, calls, values;
    if (!gw_reader_u32(&r, &n) || n < 1 || n > 1u << 20) {
        return gw_fail(GW_E_METADATA, where, "is no importance matrix");
    }
    m->list = gw_arena_array(m->arena, n, sizeof *m->list);
    for (uint32_t i = 0; m->list != NULL && i < n; i++) {
        gw_imatrix_entry *e = &m->list[i];
        const uint8_t *name = gw_reader_u32(&r, &length) && length <= NAME_MAX_BYTES
                                  ? gw_reader_take(&r, length)
                                  : NULL;
        const uint8_t *data =
            name != NULL && gw_reader_u32(&r, &calls) && gw_reader_u32(&r, &values)
                ? gw_reader_take(&r, (uint64_t)values * 4)
                : NULL;
        if (data == NULL || values == 0) {
            return gw_fail(GW_E_TRUNCATED, where, "ends in entry %u of %u", i + 1, n);
        }
        e->name = gw_arena_copy(m->arena, name, length);
        e->cols = values; /* experts of it: as many as the tensor has, divided later */
        e->experts = 1;
        e->sums = gw_arena_alloc(m->arena, (size_t)values * 4);
        e->counts = gw_arena_alloc(m->arena, 4);
        if (e->name == NULL || e->sums == NULL || e->counts == NULL) {
            return nomem(where);
        }
        memcpy(e->sums, data, (size_t)values * 4);
        e->counts[0] = (float)(int32_t)calls;
        m->n = i + 1;
        GW_TRY(check_entry(where, e));
    }
    if (gw_reader_u32(&r, &n)) {
        m->chunks = (int32_t)n;
    }
    const uint8_t *set = gw_reader_u32(&r, &length) ? gw_reader_take(&r, length) : NULL;
    if (set != NULL) {
        keep_base_name(m, (const char *)set, length);
    }
    return m->list != NULL ? GW_OK : nomem(where);
}

gw_status gw_imatrix_parse(const char *where, const void *data, uint64_t size, gw_imatrix *out) {
    gw_imatrix m = {.arena = gw_arena_new()};
    gw_gguf *g = NULL;
    if (m.arena == NULL) {
        return nomem(where);
    }
    gw_status status;
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        status = gw_gguf_parse(where, data, size, -1, &g);
        status = status == GW_OK ? take_gguf(where, g, &m) : status;
        gw_gguf_free(g);
    } else {
        status = take_dat(where, data, size, &m);
    }
    if (status == GW_OK && m.n == 0) {
        status = gw_fail(GW_E_METADATA, where, "names no weight");
    }
    if (status != GW_OK) {
        gw_imatrix_free(&m);
        return status;
    }
    *out = m;
    return GW_OK;
}

gw_status gw_imatrix_read(const char *path, gw_imatrix *out) {
    gw_file file;
    GW_TRY(gw_file_open(path, path, &file));
    gw_status status = gw_imatrix_parse(path, file.data, file.size, out);
    gw_file_close(&file);
    return status;
}

void gw_imatrix_means(const gw_imatrix_entry *e, float *out, int *unseen) {
    *unseen = 0;
    double rows = 0.0;
    for (int64_t x = 0; x < e->experts; x++) {
        rows += (double)e->counts[x];
        *unseen += e->counts[x] == 0.0f;
    }
    for (int64_t c = 0; c < e->cols; c++) {
        double all = 0.0;
        for (int64_t x = 0; x < e->experts; x++) {
            all += (double)e->sums[x * e->cols + c];
        }
        double mean = rows > 0.0 ? all / rows : 1.0;
        for (int64_t x = 0; x < e->experts; x++) {
            double n = (double)e->counts[x], prior = 0.0;
            if (e->experts > 1 && n < PRIOR_ROWS) {
                prior = PRIOR_ROWS - n;
            }
            double sum = (double)e->sums[x * e->cols + c] + prior * mean;
            out[x * e->cols + c] = n + prior > 0.0 ? (float)(sum / (n + prior)) : 1.0f;
        }
    }
}

/* ---- writing -------------------------------------------------------------------------------- */

static void make_dat(const gw_imatrix *m, gw_bytes *b) {
    gw_bytes_number(b, m->n, 4);
    for (size_t i = 0; i < m->n; i++) {
        const gw_imatrix_entry *e = &m->list[i];
        uint32_t calls = m->chunks > 0 ? (uint32_t)m->chunks : 1;
        gw_bytes_number(b, strlen(e->name), 4);
        gw_bytes_put(b, e->name, strlen(e->name));
        gw_bytes_number(b, calls, 4);
        gw_bytes_number(b, (uint64_t)(e->cols * e->experts), 4);
        for (int64_t k = 0; k < e->cols * e->experts; k++) {
            float n = e->counts[k / e->cols];
            float mean = n > 0.0f ? e->sums[k] / n : 1.0f;
            gw_bytes_number(b, GW_F32_BITS(mean * (float)calls), 4);
        }
    }
    gw_bytes_number(b, (uint64_t)m->chunks, 4);
    gw_bytes_number(b, strlen(m->dataset), 4);
    gw_bytes_put(b, m->dataset, strlen(m->dataset));
}

static void make_gguf(const gw_imatrix *m, gw_bytes *b) {
    gw_bytes pairs = {0};
    static const unsigned char zeros[GW_GGUF_ALIGN];
    gw_gguf_place *list = calloc(2 * m->n + 1, sizeof *list);
    char(*names)[NAME_MAX_BYTES + 16] = calloc(2 * m->n + 1, sizeof *names);
    uint64_t at = 0;
    for (size_t i = 0; list != NULL && names != NULL && i < 2 * m->n; i++) {
        const gw_imatrix_entry *e = &m->list[i / 2];
        int counts = i % 2 != 0;
        gw_text_append(names[i], sizeof names[i], "%s%s", e->name, counts ? COUNTS : SUMS);
        int64_t cols = counts ? 1 : e->cols;
        list[i] = (gw_gguf_place){.name = names[i],
                                  .n_dim = 2,
                                  .dim = {e->experts, cols},
                                  .fmt = GW_FMT_F32,
                                  .bytes = (uint64_t)(e->experts * cols) * 4,
                                  .at = at};
        at += (list[i].bytes + GW_GGUF_ALIGN - 1) / GW_GGUF_ALIGN * GW_GGUF_ALIGN;
    }
    gw_pair_text(&pairs, "general.type", "imatrix", 7);
    gw_pair_array(&pairs, "imatrix.datasets", GW_GGUF_TEXT, 1);
    gw_bytes_text(&pairs, m->dataset, strlen(m->dataset));
    gw_pair_u32(&pairs, "imatrix.chunk_count", (uint32_t)m->chunks);
    gw_pair_u32(&pairs, "imatrix.chunk_size", (uint32_t)m->chunk_size);
    b->failed |= list == NULL || names == NULL;
    if (!b->failed) {
        gw_gguf_head(b, &pairs, list, 2 * m->n);
    }
    for (size_t i = 0; !b->failed && i < 2 * m->n; i++) {
        const gw_imatrix_entry *e = &m->list[i / 2];
        gw_bytes_put(b, i % 2 != 0 ? e->counts : e->sums, (size_t)list[i].bytes);
        gw_bytes_put(b, zeros, (GW_GGUF_ALIGN - list[i].bytes % GW_GGUF_ALIGN) % GW_GGUF_ALIGN);
    }
    free(list);
    free(names);
    gw_bytes_free(&pairs);
}

gw_status gw_imatrix_write(const gw_imatrix *m, const char *path) {
    gw_bytes b = {0};
    gw_save save;
    if (gw_text_ends(path, ".dat")) {
        make_dat(m, &b);
    } else {
        make_gguf(m, &b);
    }
    gw_status status = b.failed ? nomem(path) : gw_save_begin(&save, path, 0666, b.n);
    if (status == GW_OK) {
        status = gw_save_write(&save, b.at, b.n);
        if (status == GW_OK) {
            status = gw_save_end(&save);
        } else {
            gw_save_drop(&save);
        }
    }
    gw_bytes_free(&b);
    return status;
}
