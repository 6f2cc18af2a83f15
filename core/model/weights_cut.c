/* core/model/weights_cut.c - rows of a weight out of what is stored: cut, transposed, experts put
 * one after the other, values changed, formats converted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/packed.h"
#include "core/model/rope.h"
#include "core/model/weights_parts.h"
#include "core/tensor/small.h"

int64_t gw_entry_stored_row(const gw_entry *e, int64_t row) {
    static const int from[4] = {2, 0, 3, 1};
    row = e->row != NULL ? e->row[row] : row;
    if (e->of == 0) {
        return row;
    }
    int64_t at = row % e->count, quarter = e->count / 4;
    if (e->source->quarters && quarter > 0) {
        at = from[at / quarter] * quarter + at % quarter;
    }
    return row / e->count * e->of + e->first + at;
}

/* ---- values --------------------------------------------------------------------------------- */

static double softplus(double x) {
    return x > 30.0 ? x : x > -700.0 ? gw_rope_log(1.0 + gw_rope_exp(x)) : 0.0;
}

static float changed(const gw_entry *e, float value) {
    double x = (double)value;
    for (int i = 0; e->source != NULL && i < GW_SPEC_TRANSFORMS; i++) {
        switch (e->source->transform[i]) {
        case GW_TRANSFORM_PLUS_ONE:
            x = (double)((float)x + 1.0f);
            break;
        case GW_TRANSFORM_EXP:
            x = x > -700.0 && x < 700.0 ? gw_rope_exp(x) : x > 0.0 ? (double)INFINITY : 0.0;
            break;
        case GW_TRANSFORM_NEGATE:
            x = -x;
            break;
        case GW_TRANSFORM_SOFTPLUS:
            x = softplus(x);
            break;
        case GW_TRANSFORM_SQRT:
            x = sqrt(x);
            break;
        case GW_TRANSFORM_TIMES:
            x = x * (double)e->times;
            break;
        default:
            break;
        }
    }
    return (float)x;
}

static void change(const gw_entry *e, float *values, size_t n) {
    if (e->source == NULL || e->source->transform[0] == GW_TRANSFORM_NONE) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = changed(e, values[i]);
    }
}

/* Slopes of ALiBi: 2^(-8 i / n) for the power of two n below the number of heads; those beyond
 * take every second one of 2 n. */
static void make_slopes(float *values, int64_t heads) {
    int64_t n = 1;
    while (2 * n <= heads) {
        n *= 2;
    }
    const double ln2 = gw_rope_log(2.0);
    for (int64_t i = 0; i < heads; i++) {
        double power =
            i < n ? 8.0 * (double)(i + 1) / (double)n : 4.0 * (double)(2 * (i - n) + 1) / (double)n;
        values[i] = (float)gw_rope_exp(-power * ln2);
    }
}

/* Rows [first, first + n) of sines, then cosines, of position * 10000^(-i / period): Vaswani et al.
 * 2017, arXiv:1706.03762. */
static gw_status rows_of_sines(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const gw_entry *e = src->state;
    int64_t cols = e->t.dim[1], half = cols / 2;
    double step = gw_rope_log(10000.0) / e->period, sine, cosine;
    float *out = dst;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < half; i++) {
            double freq =
                gw_rope_exp(-(e->single ? (double)((float)i * (float)step) : (double)i * step));
            double angle = (double)(first + r) * (e->single ? (double)(float)freq : freq);
            gw_rope_sin_cos(e->single ? (double)(float)angle : angle, &sine, &cosine);
            out[r * cols + i] = (float)sine;
            out[r * cols + half + i] = (float)cosine;
        }
        if (cols % 2 != 0) {
            out[r * cols + cols - 1] = 0.0f;
        }
        if (first + r == e->zero) {
            memset(out + r * cols, 0, (size_t)cols * sizeof *out);
        }
    }
    return GW_OK;
}

/* The bucket of a key so far behind its query (T5: Raffel et al. 2020, arXiv:1910.10683): half of
 * the buckets for one distance each, the others for distances that grow up to `most`. */
static int bucket_of(int64_t behind, int buckets, int both, int64_t most) {
    int base = 0;
    if (both) {
        buckets /= 2;
        base = behind > 0 ? buckets : 0;
        behind = behind < 0 ? -behind : behind;
    } else {
        behind = behind < 0 ? -behind : 0;
    }
    int exact = buckets / 2;
    if (behind < exact) {
        return base + (int)behind;
    }
    float far = (float)gw_rope_log((double)behind / exact),
          all = (float)gw_rope_log((double)most / exact);
    int64_t more = (int64_t)(far / all * (float)(buckets - exact));
    return base + (exact + more < buckets ? exact + (int)more : buckets - 1);
}

/* [buckets, heads] to [heads, 2 reach + 1]. */
static void make_relative(const gw_entry *e, const float *stored, float *values) {
    int64_t heads = e->stored_rows / e->buckets, width = e->t.dim[0] / heads, reach = width / 2;
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t i = 0; i < width; i++) {
            int bucket = bucket_of(i - reach, e->buckets, e->both, reach);
            values[h * width + i] = stored[bucket * heads + h];
        }
    }
}

/* What xIELU takes: softplus(alpha_p), beta + softplus(alpha_n), beta, eps. */
static void make_xielu(float *values) {
    double p = (double)values[0], n = (double)values[1];
    values[0] = (float)softplus(p);
    values[1] = (float)((double)values[2] + softplus(n));
}

static int is_xielu(const gw_entry *e) {
    return e->source != NULL && e->source->transform[0] == GW_TRANSFORM_XIELU;
}

int gw_entry_taps(const gw_entry *e) {
    int shifts = 0;
    for (int i = 0; e->source != NULL && i < GW_SPEC_TRANSFORMS; i++) {
        shifts |= e->source->transform[i] == GW_TRANSFORM_SHIFT;
    }
    return shifts ? 2 : 1;
}

gw_status gw_entry_values(const gw_entry *e, float *values) {
    size_t n = (size_t)e->t.dim[0];
    if (e->made) {
        make_slopes(values, e->t.dim[0]);
        return GW_OK;
    }
    size_t each = (size_t)e->stored_rows;
    unsigned char *raw = malloc(e->stored[0]->bytes + 1);
    float *all = malloc((each + 1) * sizeof *all);
    gw_status status = raw != NULL && all != NULL
                           ? GW_OK
                           : gw_fail(GW_E_NOMEM, e->t.name, "no memory for %zu values", n);
    if (status == GW_OK && e->buckets > 0) {
        GW_TRY_DONE(gw_stored_read(e->stored[0], 0, e->stored[0]->bytes, raw));
        gw_format_of(e->from)->decode(all, raw, each);
        make_relative(e, all, values);
        goto done;
    }
    int64_t here = -1;
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        int64_t row = gw_entry_stored_row(e, (int64_t)i / gw_entry_taps(e));
        int64_t x = row / e->stored_rows;
        if (x != here) {
            status = gw_stored_read(e->stored[x], 0, e->stored[x]->bytes, raw);
            if (status == GW_OK) {
                gw_format_of(e->from)->decode(all, raw, each);
            }
            here = x;
        }
        values[i] = status == GW_OK ? changed(e, all[row % e->stored_rows]) : 0.0f;
        values[i] = i % (size_t)gw_entry_taps(e) == 1 ? 1.0f - values[i] : values[i];
    }
    if (status == GW_OK && is_xielu(e) && n == 4) {
        make_xielu(values);
    }
done:
    free(raw);
    free(all);
    return status;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* n rows of a stored tensor, `bytes` bytes each. */
static gw_status read_rows(const gw_entry *e, const gw_stored *t, int64_t first, int64_t n,
                           size_t bytes, void *dst) {
    if (t->packed == NULL) {
        return gw_stored_read(t, (size_t)first * bytes, (size_t)n * bytes, dst);
    }
    gw_packed_rows(t->packed, e->from, NULL, first, n, bytes, dst);
    return GW_OK;
}

static gw_status rows_as_stored(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const gw_entry *e = src->state;
    size_t row = 0;
    GW_TRY(gw_row_bytes(e->from, (uint64_t)e->stored_cols, &row));
    if (e->row == NULL) {
        return read_rows(e, e->stored[0], first, n, row, dst);
    }
    if (e->stored[0]->packed != NULL) {
        gw_packed_rows(e->stored[0]->packed, e->from, e->row, first, n, row, dst);
        return GW_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        GW_TRY(
            read_rows(e, e->stored[0], e->row[first + i], 1, row, (char *)dst + (size_t)i * row));
    }
    return GW_OK;
}

enum { READ_AT_ONCE = 64 };

/* Stored rows of the entry, raw, from `row` on: as many of n as are neighbours there. */
static gw_status read_neighbours(const gw_entry *e, int64_t row, int64_t n, size_t bytes, void *raw,
                                 int64_t *count) {
    int64_t at = gw_entry_stored_row(e, row), of = at / e->stored_rows, most = n;
    most = most < READ_AT_ONCE ? most : READ_AT_ONCE;
    *count = 1;
    while (*count < most && gw_entry_stored_row(e, row + *count) == at + *count &&
           (at + *count) / e->stored_rows == of) {
        ++*count;
    }
    return read_rows(e, e->stored[of], at % e->stored_rows, *count, bytes, raw);
}

/* Rows [first, first + n) of a matrix stored [columns, rows]: piece by piece of every stored row.
 */
static gw_status read_transposed(const gw_entry *e, int64_t first, int64_t n, float *values) {
    int64_t cols = e->t.dim[1], wide = e->stored_cols; /* stored_rows: experts * columns */
    int64_t high = e->n_stored > 1 || e->experts == 0 ? 1 : e->experts;
    size_t row_bytes = 0;
    GW_TRY(gw_row_bytes(e->from, (uint64_t)wide, &row_bytes));
    unsigned char *raw = malloc(row_bytes);
    float *all = malloc((size_t)wide * sizeof *all);
    gw_status status = raw != NULL && all != NULL
                           ? GW_OK
                           : gw_fail(GW_E_NOMEM, e->t.name, "no memory to convert a row");
    for (int64_t done = 0; done < n && status == GW_OK;) {
        /* rows of one expert, or of the one tensor */
        int64_t row = gw_entry_stored_row(e, first + done), x = row / wide, upto = done + 1;
        while (upto < n && gw_entry_stored_row(e, first + upto) / wide == x) {
            upto++;
        }
        const gw_stored *t = e->stored[high > 1 || e->span > 0 ? 0 : x];
        int64_t base = e->span > 0 ? x * e->span + e->within : high > 1 ? x * cols : 0;
        for (int64_t c = 0; c < cols && status == GW_OK; c++) {
            status = read_rows(e, t, base + c, 1, row_bytes, raw);
            if (status == GW_OK) {
                gw_format_of(e->from)->decode(all, raw, (size_t)wide);
            }
            for (int64_t i = done; i < upto && status == GW_OK; i++) {
                values[i * cols + c] = all[gw_entry_stored_row(e, first + i) % wide];
            }
        }
        done = upto;
    }
    free(raw);
    free(all);
    return status;
}

static void encode_row(const gw_entry *e, float *values, size_t cols, void *out) {
    change(e, values, cols);
    if (e->t.fmt == GW_FMT_F32) {
        memcpy(out, values, cols * sizeof *values);
    } else {
        gw_format_of(e->t.fmt)->encode(out, values, cols);
    }
}

/* The factor of a row: one for all, or that of its expert. */
static float factor_of(const gw_entry *e, int64_t row) {
    size_t n = e->factor->bytes / sizeof(float);
    int64_t each = e->experts > 0 ? e->t.dim[0] / e->experts : e->t.dim[0];
    size_t x = n > 1 && each > 0 ? (size_t)(row / each) : 0;
    float v;
    memcpy(&v, (const char *)e->factor->data + (x < n ? x : 0) * sizeof v, sizeof v);
    return v;
}

/* Columns [cols / N, N] become [N, cols / N]. room [cols] */
static void fold_row(const gw_entry *e, float *row, size_t cols, float *room) {
    size_t n = (size_t)e->folded, each = n > 0 && cols % n == 0 ? cols / n : 0;
    for (size_t i = 0; i < each * n; i++) {
        room[i % n * each + i / n] = row[i];
    }
    if (each > 0) {
        memcpy(row, room, cols * sizeof *row);
    }
}

/* Decode to float, then encode; row by row, so that the bytes depend on nothing else. */
static gw_status rows_converted(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const gw_entry *e = src->state;
    size_t cols = (size_t)e->t.dim[1], in_row = 0, out_row = 0;
    int transposed = e->transposed;
    int same = e->t.fmt == e->from && !transposed && e->folded == 0;
    GW_TRY(gw_row_bytes(e->t.fmt, cols, &out_row));
    GW_TRY(transposed ? GW_OK : gw_row_bytes(e->from, cols, &in_row));
    size_t several = n < READ_AT_ONCE ? (size_t)n : READ_AT_ONCE;
    int64_t have = 0, used = 0; /* rows in raw */
    unsigned char *raws = malloc(in_row * several + 1);
    float *values = malloc((transposed ? (size_t)n : 1) * cols * sizeof *values);
    float *fold = malloc((e->folded > 0 ? cols : 1) * sizeof *fold);
    gw_status status = GW_OK;
    if (raws == NULL || values == NULL || fold == NULL) {
        status = gw_fail(GW_E_NOMEM, e->t.name, "no memory to convert a row");
    }
    if (status == GW_OK && transposed) {
        status = read_transposed(e, first, n, values);
    }
    for (int64_t r = 0; r < n && status == GW_OK; r++) {
        unsigned char *out = (unsigned char *)dst + (size_t)r * out_row;
        float *row = transposed ? values + (size_t)r * cols : values;
        if (!transposed && used == have) {
            status = read_neighbours(e, first + r, n - r, in_row, same ? out : raws, &have);
            used = 0;
        }
        const unsigned char *raw = raws + (size_t)used++ * in_row * (same ? 0 : 1);
        if (status == GW_OK && e->t.fmt == gw_small_home(e->from) && e->t.fmt != GW_FMT_F32) {
            gw_small_convert(e->from, raw, cols, e->t.fmt, out);
            if (e->factor != NULL) {
                gw_nvfp4_times(out, cols, factor_of(e, first + r));
            }
        } else if (status == GW_OK && !same) {
            if (!transposed) {
                gw_format_of(e->from)->decode(row, raw, cols);
            }
            float factor = e->factor != NULL ? factor_of(e, first + r) : 1.0f;
            for (size_t i = 0; e->factor != NULL && i < cols; i++) {
                row[i] *= factor;
            }
            fold_row(e, row, cols, fold);
            encode_row(e, row, cols, out);
        }
    }
    free(raws);
    free(fold);
    free(values);
    return status;
}

gw_weight_source gw_entry_source(const gw_entry *e) {
    gw_weight_source src = {
        .state = e, .keep_rows = e->keep_rows || e->plain, .rows = rows_converted};
    if (e->made) {
        src.rows = rows_of_sines;
        return src;
    }
    size_t align = e->t.fmt == GW_FMT_F32 ? sizeof(float) : sizeof(gw_u16);
    if (e->t.fmt == e->from && gw_entry_plain(e)) {
        src.rows = rows_as_stored;
        int there = e->stored[0]->packed == NULL && e->row == NULL &&
                    (uintptr_t)e->stored[0]->data % align == 0;
        src.map = there ? e->stored[0]->data : NULL;
        src.fd = there && e->stored[0]->fd > 0 ? e->stored[0]->fd : 0;
        src.at = e->stored[0]->at;
    }
    return src;
}
