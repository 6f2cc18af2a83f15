/* backends/opencl/weights.c - how weights get into buffers of a device: packed for it, or, where
 * its memory is the host's and it reads rows as the file has them, not at all.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/load.h"
#include "backends/opencl/opencl.h"
#include "core/base/team.h"

enum { PLANE_ALIGN = 256, UPLOAD_BYTES = 32 << 20 };

/* One weight that is being loaded. Rows travel in units: a strip, or one row. */
typedef struct loading {
    const struct gw_device *device;
    const gw_weight_source *src;
    gw_fmt fmt;
    int layout;
    size_t cols, row_bytes; /* as stored */
    int64_t rows, unit;
    size_t unit_bytes[4]; /* of one unit in each plane; rows and lanes: plane 0 */
    gw_cl_layout planes;
} loading;

static size_t plane_bytes(const loading *l, int64_t rows, int plane) {
    size_t units = (size_t)((rows + l->unit - 1) / l->unit);
    return (units * l->unit_bytes[plane] + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN;
}

static void plan_layout(loading *l, const gw_tensor *t) {
    const struct gw_device *d = l->device;
    const gw_cl_planes *planes = gw_cl_planes_of(l->fmt);
    int matrix = t->n_dim == 2 && !l->src->keep_rows;
    l->unit = 1;
    l->layout = GW_LAYOUT_ROWS;
    l->unit_bytes[0] = l->row_bytes;
    if (matrix && planes != NULL) {
        l->layout = d->item ? GW_CL_LAYOUT_STRIPS : GW_CL_LAYOUT_PLANES;
        l->unit = d->item ? GW_CL_STRIP : 1;
        gw_cl_layout_of(l->fmt, l->cols, d->item, &l->planes);
        size_t n = (size_t)l->unit;
        l->unit_bytes[0] = n * l->planes.low_row;
        l->unit_bytes[1] = n * l->planes.high_row;
        l->unit_bytes[2] = n * l->planes.head_row;
        l->unit_bytes[3] = n * l->planes.sub_row;
    } else if (matrix && !d->item) {
        l->layout = GW_CL_LAYOUT_LANES;
        l->unit_bytes[0] = gw_cl_lanes_bytes(l->fmt, l->cols);
    }
}

/* Rows as stored -> the planes at out[], unit by unit. */
typedef struct conversion {
    const loading *l;
    const unsigned char *rows;
    int64_t have;
    unsigned char *const *out;
} conversion;

static void convert_unit(void *user, int64_t u) {
    const conversion *c = user;
    const loading *l = c->l;
    const unsigned char *row = c->rows + (size_t)(u * l->unit) * l->row_bytes;
    int64_t left = c->have - u * l->unit;
    unsigned char *at[4];
    for (int p = 0; p < 4; p++) {
        at[p] = c->out[p] + (size_t)u * l->unit_bytes[p];
    }
    if (l->layout == GW_CL_LAYOUT_LANES) {
        gw_cl_lanes_pack(l->fmt, row, l->cols, at[0]);
    } else {
        gw_cl_pack(&l->planes, row, l->row_bytes, (size_t)(left < l->unit ? left : l->unit), at[0],
                   at[1], at[2], at[3]);
    }
}

/* Units [first, first + n). */
static void convert_units(const loading *l, const unsigned char *rows, int64_t have, int64_t n,
                          unsigned char *const *out) {
    if (l->layout == GW_LAYOUT_ROWS) {
        memcpy(out[0], rows, (size_t)have * l->row_bytes);
        return;
    }
    conversion c = {.l = l, .rows = rows, .have = have, .out = out};
    gw_parallel_for(0, n, convert_unit, &c);
}

/* Where rows on their way are: as stored, and packed, or the memory of the chunk itself. */
typedef struct room {
    unsigned char *stored, *packed;
    unsigned char *mapped; /* NULL: packed rows are copied to the device */
} room;

/* Rows [first, first + n) of the weight into their chunk. */
static gw_status load_rows(const loading *l, const gw_cl_chunk *chunk, int64_t first, int64_t n,
                           const room *r) {
    const unsigned char *rows = r->stored;
    const cl_ulong base[4] = {chunk->low, chunk->high, chunk->head, chunk->sub};
    const size_t begin = (size_t)((first - chunk->first) / l->unit);
    unsigned char *out[4];
    int64_t units = (n + l->unit - 1) / l->unit;
    if (l->src->map != NULL) {
        rows = (const unsigned char *)l->src->map + (size_t)first * l->row_bytes;
    } else {
        GW_TRY(gw_load_rows(l->src, first, n, l->row_bytes, r->stored));
    }
    size_t at = 0;
    for (int p = 0; p < 4; p++) {
        out[p] =
            r->mapped != NULL ? r->mapped + base[p] + begin * l->unit_bytes[p] : r->packed + at;
        at += (size_t)units * l->unit_bytes[p];
        memset(out[p], 0, (size_t)units * l->unit_bytes[p]);
    }
    convert_units(l, rows, n, units, out);
    for (int p = 0; p < 4 && r->mapped == NULL; p++) {
        const gw_cl_driver *cl = l->device->cl;
        size_t bytes = (size_t)units * l->unit_bytes[p];
        if (bytes > 0) {
            GW_TRY(gw_cl_check(cl->EnqueueWriteBuffer(l->device->queue, chunk->mem, CL_TRUE,
                                                      (size_t)base[p] + begin * l->unit_bytes[p],
                                                      bytes, out[p], 0, NULL, NULL),
                               "writing a weight"));
        }
    }
    return GW_OK;
}

/* For `step` rows. Where memory is the host's, the chunk is written to itself, after what was
 * queued before. */
static gw_status open_room(const loading *l, const gw_cl_chunk *chunk, size_t packed, size_t stored,
                           room *r) {
    const struct gw_device *d = l->device;
    cl_int error = CL_SUCCESS;
    if (d->unified) {
        r->mapped = d->cl->EnqueueMapBuffer(d->queue, chunk->mem, CL_TRUE, CL_MAP_WRITE, 0,
                                            chunk->bytes, 0, NULL, NULL, &error);
        GW_TRY(gw_cl_check(error, "mapping a weight"));
    }
    r->packed = r->mapped == NULL ? malloc(packed) : NULL;
    r->stored = l->src->map == NULL ? malloc(stored) : NULL;
    return (r->mapped == NULL && r->packed == NULL) || (l->src->map == NULL && r->stored == NULL)
               ? gw_fail(GW_E_NOMEM, "opencl", "no memory for reading %zu bytes", stored)
               : GW_OK;
}

static gw_status close_room(const loading *l, const gw_cl_chunk *chunk, const room *r) {
    const struct gw_device *d = l->device;
    free(r->packed);
    free(r->stored);
    return r->mapped == NULL ? GW_OK
                             : gw_cl_check(d->cl->EnqueueUnmapMemObject(d->queue, chunk->mem,
                                                                        r->mapped, 0, NULL, NULL),
                                           "unmapping a weight");
}

/* Those of rows [first, end) that lie in the chunk, and those that share a unit with them. */
static gw_status load_chunk(const loading *l, const gw_cl_chunk *chunk, int64_t first,
                            int64_t end) {
    size_t unit_packed = 0, unit_stored = (size_t)l->unit * l->row_bytes;
    for (int p = 0; p < 4; p++) {
        unit_packed += l->unit_bytes[p];
    }
    int64_t step =
        (int64_t)(UPLOAD_BYTES / (unit_packed > unit_stored ? unit_packed : unit_stored));
    step = (step < 1 ? 1 : step) * l->unit;
    step = step < chunk->rows ? step : (chunk->rows + l->unit - 1) / l->unit * l->unit;
    room r = {.mapped = NULL};
    gw_status status = open_room(l, chunk, (size_t)(step / l->unit) * unit_packed,
                                 (size_t)step * l->row_bytes, &r);
    int64_t from = first > chunk->first ? (first - chunk->first) / l->unit * l->unit : 0;
    int64_t to = (end - chunk->first + l->unit - 1) / l->unit * l->unit;
    to = to < chunk->rows ? to : chunk->rows;
    for (int64_t at = from; at < to && status == GW_OK; at += step) {
        int64_t n = to - at < step ? to - at : step;
        status = load_rows(l, chunk, chunk->first + at, n, &r);
    }
    gw_status closed = close_room(l, chunk, &r);
    return status != GW_OK ? status : closed;
}

/* Most rows of one allocation: a multiple of 64, so that no strip and no activation block is cut.
 */
static int64_t rows_per_chunk(const loading *l) {
    int64_t rows = l->rows;
    size_t total = 0;
    for (int p = 0; p < 4; p++) {
        total += plane_bytes(l, rows, p);
    }
    while (rows > 64 && total > l->device->max_alloc) {
        rows = (rows / 2 + 63) / 64 * 64;
        total = 0;
        for (int p = 0; p < 4; p++) {
            total += plane_bytes(l, rows, p);
        }
    }
    return rows;
}

/* Does the device read the rows where the file is mapped? Blocks hold 2- and 4-byte fields: a map
 * at an odd place is copied. */
static int is_there(const loading *l) {
    return l->device->unified && l->layout == GW_LAYOUT_ROWS && l->src->map != NULL &&
           !l->src->changes && (uintptr_t)l->src->map % 4 == 0;
}

static gw_status load_all(const loading *l, struct gw_buffer *buffer, int64_t per_chunk) {
    for (int64_t first = 0; first < l->rows; first += per_chunk) {
        gw_cl_chunk *c = &buffer->chunks[buffer->n_chunks];
        c->first = first;
        c->rows = l->rows - first < per_chunk ? l->rows - first : per_chunk;
        c->low = 0;
        c->high = c->low + plane_bytes(l, c->rows, 0);
        c->head = c->high + plane_bytes(l, c->rows, 1);
        c->sub = c->head + plane_bytes(l, c->rows, 2);
        if (is_there(l)) {
            const char *rows = (const char *)l->src->map + (size_t)first * l->row_bytes;
            GW_TRY(gw_cl_add_chunk(buffer, (size_t)c->rows * l->row_bytes, 0, rows));
            continue;
        }
        GW_TRY(gw_cl_add_chunk(buffer, (size_t)c->sub + plane_bytes(l, c->rows, 3), 0, NULL));
        GW_TRY(load_chunk(l, c, c->first, c->first + c->rows));
    }
    return GW_OK;
}

static gw_status begin_loading(const struct gw_device *device, const gw_tensor *t,
                               const gw_weight_source *src, loading *out) {
    if (t->fmt >= GW_FMT_ACT8 || t->n_dim < 1) {
        return gw_fail(GW_E_TYPE, t->name, "not a weight");
    }
    loading l = {.device = device, .src = src, .fmt = t->fmt, .rows = 1};
    l.cols = gw_cl_width(t);
    for (int i = 0; i + 1 < t->n_dim; i++) {
        l.rows *= t->dim[i];
    }
    size_t all;
    GW_TRY(gw_row_bytes(t->fmt, l.cols, &l.row_bytes));
    GW_TRY(gw_matrix_bytes(t->fmt, (uint64_t)l.rows, l.cols, &all));
    plan_layout(&l, t);
    *out = l;
    return GW_OK;
}

gw_status gw_cl_size_weight(const struct gw_device *device, gw_tensor *t,
                            const gw_weight_source *src, uint64_t *bytes) {
    loading l;
    GW_TRY(begin_loading(device, t, src, &l));
    int64_t per_chunk = rows_per_chunk(&l);
    uint64_t total = 0;
    for (int64_t first = 0; first < l.rows; first += per_chunk) {
        int64_t rows = l.rows - first < per_chunk ? l.rows - first : per_chunk;
        for (int p = 0; p < 4; p++) {
            total += plane_bytes(&l, rows, p);
        }
    }
    t->layout = l.layout;
    *bytes = total;
    return GW_OK;
}

gw_status gw_cl_load_weight(struct gw_device *device, gw_tensor *t, const gw_weight_source *src) {
    loading l;
    GW_TRY(begin_loading(device, t, src, &l));
    int64_t per_chunk = rows_per_chunk(&l);
    struct gw_buffer *buffer = NULL;
    GW_TRY(gw_cl_new_buffer(device, (int)((l.rows + per_chunk - 1) / per_chunk), &buffer));
    gw_status status = load_all(&l, buffer, per_chunk);
    if (status != GW_OK) {
        gw_cl_release(buffer);
        return status;
    }
    t->buf = buffer;
    t->offset = 0;
    t->layout = l.layout;
    return GW_OK;
}

gw_status gw_cl_fetch_weight(struct gw_device *device, const gw_tensor *t,
                             const gw_weight_source *src, int64_t first, int64_t n) {
    loading l;
    GW_TRY(begin_loading(device, t, src, &l));
    for (int i = 0; i < t->buf->n_chunks; i++) {
        const gw_cl_chunk *c = &t->buf->chunks[i];
        if (first < c->first + c->rows && first + n > c->first) {
            GW_TRY(load_chunk(&l, c, first, first + n));
        }
    }
    return GW_OK;
}
