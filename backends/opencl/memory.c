/* backends/opencl/memory.c - buffers of a device, and how weights get into them. */
#include <stdlib.h>
#include <string.h>

#include "backends/load.h"
#include "backends/opencl/opencl.h"
#include "core/base/os.h"
#include "core/base/size.h"
#include "core/base/team.h"
#include "core/base/text.h"
#include "core/base/waits.h"

enum { PLANE_ALIGN = 256, UPLOAD_BYTES = 32 << 20 };

/* ---- allocation ------------------------------------------------------------------------------ */

static gw_status create(struct gw_device *device, cl_ulong flags, size_t bytes, cl_mem *out) {
    char need[GW_SIZE_TEXT];
    cl_int error = CL_SUCCESS;
    if (device->fail_alloc > 0 && --device->fail_alloc == 0) {
        return gw_fail(GW_E_NOMEM, "opencl", "%s refused %s (simulated)", device->name,
                       gw_text_size(bytes, 4, need));
    }
    *out = device->cl->CreateBuffer(device->context, CL_MEM_READ_WRITE | flags,
                                    bytes > 0 ? bytes : 4, NULL, &error);
    if (error != CL_SUCCESS || *out == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "%s refused %s: %s", device->name,
                       gw_text_size(bytes, 4, need), gw_cl_error_name(error));
    }
    return GW_OK;
}

static gw_status check_piece(const struct gw_device *device, size_t bytes) {
    char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
    return bytes <= device->max_alloc
               ? GW_OK
               : gw_fail(GW_E_NOMEM, "opencl", "needs %s in one piece, %s gives at most %s",
                         gw_text_size(bytes, 4, need), device->name,
                         gw_text_size(device->max_alloc, 4, have));
}

gw_status gw_cl_new_mem(struct gw_device *device, size_t bytes, cl_mem *out) {
    char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
    cl_mem mem;
    GW_TRY(check_piece(device, bytes));
    if (device->memory > 0 &&
        bytes > device->memory -
                    (device->reserved < device->memory ? device->reserved : device->memory)) {
        return gw_fail(GW_E_NOMEM, "opencl", "needs %s, %s of %s are left",
                       gw_text_size(bytes, 4, need),
                       gw_text_size(device->memory - device->reserved, 4, have), device->name);
    }
    GW_TRY(create(device, 0, bytes, &mem));
    device->reserved += bytes;
    *out = mem;
    return GW_OK;
}

gw_status gw_cl_pin(struct gw_device *device, size_t bytes, gw_cl_pinned *out) {
    const gw_cl_driver *cl = device->cl;
    cl_int error = CL_SUCCESS;
    cl_mem mem;
    GW_TRY(create(device, CL_MEM_ALLOC_HOST_PTR, bytes, &mem));
    void *at = cl->EnqueueMapBuffer(device->queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                    bytes, 0, NULL, NULL, &error);
    if (error != CL_SUCCESS || at == NULL) {
        cl->ReleaseMemObject(mem);
        return gw_cl_check(error == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : error,
                           "mapping memory of the host");
    }
    memset(at, 0, bytes);
    *out = (gw_cl_pinned){mem, at};
    return GW_OK;
}

void gw_cl_unpin(struct gw_device *device, gw_cl_pinned *pinned) {
    if (pinned->mem != NULL) {
        device->cl->EnqueueUnmapMemObject(device->queue, pinned->mem, pinned->at, 0, NULL, NULL);
        device->cl->ReleaseMemObject(pinned->mem);
        *pinned = (gw_cl_pinned){NULL, NULL};
    }
}

static gw_status new_buffer(struct gw_device *device, int n_chunks, struct gw_buffer **out) {
    struct gw_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer != NULL) {
        buffer->chunks = calloc((size_t)n_chunks, sizeof *buffer->chunks);
    }
    if (buffer == NULL || buffer->chunks == NULL) {
        free(buffer);
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a buffer");
    }
    buffer->device = device;
    *out = buffer;
    return GW_OK;
}

/* One more allocation of the buffer. */
static gw_status add_chunk(struct gw_buffer *buffer, size_t bytes, int in_host) {
    gw_cl_chunk *chunk = &buffer->chunks[buffer->n_chunks];
    if (in_host) {
        GW_TRY(check_piece(buffer->device, bytes));
        GW_TRY(create(buffer->device, CL_MEM_ALLOC_HOST_PTR, bytes, &chunk->mem));
    } else {
        GW_TRY(gw_cl_new_mem(buffer->device, bytes, &chunk->mem));
    }
    chunk->in_host = in_host;
    chunk->bytes = bytes;
    buffer->n_chunks++;
    buffer->bytes += bytes;
    return GW_OK;
}

/* Sixteen bytes at a time: from 2 GB on NVIDIA's driver 580 loses the device, or never comes back,
 * when it fills with single bytes. */
static gw_status add_zeros(struct gw_buffer *buffer, size_t bytes, int in_host) {
    static const cl_uint zero[4];
    struct gw_device *d = buffer->device;
    bytes = (bytes + sizeof zero - 1) / sizeof zero * sizeof zero;
    GW_TRY(add_chunk(buffer, bytes, in_host));
    cl_mem mem = buffer->chunks[buffer->n_chunks - 1].mem;
    return bytes == 0 ? GW_OK
                      : gw_cl_check(d->cl->EnqueueFillBuffer(d->queue, mem, &zero, sizeof zero, 0,
                                                             bytes, 0, NULL, NULL),
                                    "clearing a buffer");
}

static gw_status new_whole(struct gw_device *device, size_t bytes, int in_host,
                           struct gw_buffer **out) {
    struct gw_buffer *buffer = NULL;
    GW_TRY(new_buffer(device, 1, &buffer));
    gw_status status = add_zeros(buffer, bytes, in_host);
    if (status != GW_OK) {
        gw_cl_release(buffer);
        return status;
    }
    *out = buffer;
    return GW_OK;
}

static gw_status new_pages(struct gw_device *device, size_t bytes, size_t page_bytes, int in_host,
                           struct gw_buffer **out) {
    size_t most = device->max_cache > 0 ? device->max_cache : device->max_alloc;
    size_t piece = page_bytes > 0 ? most / page_bytes * page_bytes : 0;
    if (bytes <= most || page_bytes == 0) {
        return new_whole(device, bytes, in_host, out);
    }
    if (piece == 0 || (bytes - 1) / piece >= GW_CL_PIECES) {
        char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
        return gw_fail(GW_E_NOMEM, "opencl",
                       "the cache of a layer needs %s, %s gives at most %s in %d allocations; ask "
                       "for a shorter context (-c) or --kv-type q8_0",
                       gw_text_size(bytes, 4, need), device->name,
                       gw_text_size((uint64_t)GW_CL_PIECES * piece, 4, have), GW_CL_PIECES);
    }
    struct gw_buffer *buffer = NULL;
    gw_status status = GW_OK;
    GW_TRY(new_buffer(device, GW_CL_PIECES, &buffer));
    buffer->piece = piece;
    while (buffer->bytes < bytes && status == GW_OK) {
        size_t left = bytes - buffer->bytes;
        status = add_zeros(buffer, left < piece ? left : piece, in_host);
    }
    if (status != GW_OK) {
        gw_cl_release(buffer);
        return status;
    }
    *out = buffer;
    return GW_OK;
}

gw_status gw_cl_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out) {
    return new_whole(device, bytes, 0, out);
}

gw_status gw_cl_alloc_pages(struct gw_device *device, size_t bytes, size_t page_bytes,
                            struct gw_buffer **out) {
    return new_pages(device, bytes, page_bytes, 0, out);
}

gw_status gw_cl_alloc_mapped(struct gw_device *device, size_t bytes, size_t page_bytes,
                             struct gw_buffer **out) {
    return new_pages(device, bytes, page_bytes, 1, out);
}

static void free_chunk(const struct gw_buffer *buffer, gw_cl_chunk *chunk) {
    if (chunk->mem != NULL) {
        buffer->device->cl->ReleaseMemObject(chunk->mem);
        buffer->device->reserved -= chunk->in_host ? 0 : chunk->bytes;
        chunk->mem = NULL;
    }
}

void gw_cl_release(struct gw_buffer *buffer) {
    if (buffer == NULL) {
        return;
    }
    for (int i = 0; i < buffer->n_chunks; i++) {
        free_chunk(buffer, &buffer->chunks[i]);
        gw_cl_unpin(buffer->device, &buffer->chunks[i].kept);
    }
    free(buffer->chunks);
    free(buffer);
}

static gw_status keep_bytes(struct gw_device *d, gw_cl_chunk *chunk) {
    GW_TRY(gw_cl_pin(d, chunk->bytes, &chunk->kept));
    gw_status status =
        chunk->bytes == 0
            ? GW_OK
            : gw_cl_check(d->cl->EnqueueReadBuffer(d->queue, chunk->mem, CL_TRUE, 0, chunk->bytes,
                                                   chunk->kept.at, 0, NULL, NULL),
                          "reading a weight");
    if (status != GW_OK) {
        gw_cl_unpin(d, &chunk->kept);
    }
    return status;
}

gw_status gw_cl_stow(struct gw_buffer *buffer, uint64_t *kept) {
    for (int i = 0; i < buffer->n_chunks; i++) { /* all are there before one goes */
        gw_cl_chunk *chunk = &buffer->chunks[i];
        if (chunk->kept.mem == NULL) {
            GW_TRY(keep_bytes(buffer->device, chunk));
        }
    }
    GW_TRY(gw_cl_wait(buffer->device));
    for (int i = 0; i < buffer->n_chunks; i++) {
        free_chunk(buffer, &buffer->chunks[i]);
    }
    *kept = buffer->bytes;
    return GW_OK;
}

gw_status gw_cl_restore(struct gw_buffer *buffer) {
    struct gw_device *d = buffer->device;
    gw_status status = GW_OK;
    for (int i = 0; i < buffer->n_chunks && status == GW_OK; i++) {
        gw_cl_chunk *chunk = &buffer->chunks[i];
        if (chunk->mem != NULL) {
            continue;
        }
        status = gw_cl_new_mem(d, chunk->bytes, &chunk->mem);
        if (status == GW_OK && chunk->bytes > 0) {
            status =
                gw_cl_check(d->cl->EnqueueWriteBuffer(d->queue, chunk->mem, CL_FALSE, 0,
                                                      chunk->bytes, chunk->kept.at, 0, NULL, NULL),
                            "sending a weight");
        }
    }
    for (int i = 0; i < buffer->n_chunks && status != GW_OK; i++) {
        free_chunk(buffer, &buffer->chunks[i]);
    }
    return status;
}

/* ---- host access ----------------------------------------------------------------------------- */

static gw_status check_range(const struct gw_buffer *buffer, size_t at, size_t bytes) {
    size_t end;
    if (__builtin_add_overflow(at, bytes, &end) || end > buffer->bytes ||
        (buffer->n_chunks != 1 && buffer->piece == 0)) {
        return gw_fail(GW_E_BOUNDS, "opencl", "bytes %zu to %zu of a buffer of %zu", at, at + bytes,
                       buffer->bytes);
    }
    return GW_OK;
}

/* Bytes from `at` on that lie in one allocation; *mem, *inside: where. */
static size_t bytes_here(const struct gw_buffer *b, size_t at, size_t bytes, cl_mem *mem,
                         size_t *inside) {
    size_t i = b->piece > 0 ? at / b->piece : 0, left = b->piece > 0 ? b->piece : b->bytes;
    *mem = b->chunks[i].mem;
    *inside = at - i * b->piece;
    left -= *inside;
    return bytes < left ? bytes : left;
}

gw_status gw_cl_write(struct gw_buffer *dst, size_t at, const void *src, size_t bytes) {
    GW_TRY(check_range(dst, at, bytes));
    struct gw_device *d = dst->device;
    for (size_t done = 0, n; done < bytes; done += n) {
        cl_mem mem;
        size_t inside;
        n = bytes_here(dst, at + done, bytes - done, &mem, &inside);
        GW_TRY(gw_cl_check(
            GW_WAITED(d->cl->EnqueueWriteBuffer(d->queue, mem, CL_TRUE, inside, n,
                                                (const char *)src + done, 0, NULL, NULL)),
            "writing a buffer"));
    }
    return GW_OK;
}

static int wait_for_ever(void) {
    while (pause() != 0) { /* it has no other value */
    }
    return CL_SUCCESS;
}

gw_status gw_cl_read(const struct gw_buffer *src, size_t at, void *dst, size_t bytes) {
    GW_TRY(check_range(src, at, bytes));
    struct gw_device *d = src->device;
    if (d->fail_wait > 0 && --d->fail_wait == 0) {
        (void)GW_WAITED(wait_for_ever());
    }
    for (size_t done = 0, n; done < bytes; done += n) {
        cl_mem mem;
        size_t inside;
        n = bytes_here(src, at + done, bytes - done, &mem, &inside);
        GW_TRY(gw_cl_check(GW_WAITED(d->cl->EnqueueReadBuffer(d->queue, mem, CL_TRUE, inside, n,
                                                              (char *)dst + done, 0, NULL, NULL)),
                           "reading a buffer"));
    }
    return GW_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* One weight on its way in. Rows travel in units: a strip, or one row. */
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

/* Rows [first, first + n) of the weight into their chunk. */
static gw_status load_rows(const loading *l, const gw_cl_chunk *chunk, int64_t first, int64_t n,
                           unsigned char *stored, unsigned char *packed) {
    const unsigned char *rows = stored;
    const cl_ulong base[4] = {chunk->low, chunk->high, chunk->head, chunk->sub};
    unsigned char *out[4];
    int64_t units = (n + l->unit - 1) / l->unit;
    if (l->src->map != NULL) {
        rows = (const unsigned char *)l->src->map + (size_t)first * l->row_bytes;
    } else {
        GW_TRY(gw_load_rows(l->src, first, n, l->row_bytes, stored));
    }
    size_t at = 0;
    for (int p = 0; p < 4; p++) {
        out[p] = packed + at;
        at += (size_t)units * l->unit_bytes[p];
    }
    memset(packed, 0, at);
    convert_units(l, rows, n, units, out);
    for (int p = 0; p < 4; p++) {
        size_t bytes = (size_t)units * l->unit_bytes[p];
        size_t to = (size_t)((first - chunk->first) / l->unit) * l->unit_bytes[p];
        const gw_cl_driver *cl = l->device->cl;
        if (bytes > 0) {
            GW_TRY(gw_cl_check(cl->EnqueueWriteBuffer(l->device->queue, chunk->mem, CL_TRUE,
                                                      (size_t)base[p] + to, bytes, out[p], 0, NULL,
                                                      NULL),
                               "writing a weight"));
        }
    }
    return GW_OK;
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
    unsigned char *packed = malloc((size_t)(step / l->unit) * unit_packed);
    unsigned char *stored = l->src->map == NULL ? malloc((size_t)step * l->row_bytes) : packed;
    gw_status status = GW_OK;
    if (packed == NULL || stored == NULL) {
        status = gw_fail(GW_E_NOMEM, "opencl", "no memory for reading %lld rows", (long long)step);
    }
    int64_t from = first > chunk->first ? (first - chunk->first) / l->unit * l->unit : 0;
    int64_t to = (end - chunk->first + l->unit - 1) / l->unit * l->unit;
    to = to < chunk->rows ? to : chunk->rows;
    for (int64_t r = from; r < to && status == GW_OK; r += step) {
        int64_t n = to - r < step ? to - r : step;
        status = load_rows(l, chunk, chunk->first + r, n, stored, packed);
    }
    if (stored != packed) {
        free(stored);
    }
    free(packed);
    return status;
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

static gw_status load_all(const loading *l, struct gw_buffer *buffer, int64_t per_chunk) {
    for (int64_t first = 0; first < l->rows; first += per_chunk) {
        gw_cl_chunk *c = &buffer->chunks[buffer->n_chunks];
        c->first = first;
        c->rows = l->rows - first < per_chunk ? l->rows - first : per_chunk;
        c->low = 0;
        c->high = c->low + plane_bytes(l, c->rows, 0);
        c->head = c->high + plane_bytes(l, c->rows, 1);
        c->sub = c->head + plane_bytes(l, c->rows, 2);
        GW_TRY(add_chunk(buffer, (size_t)c->sub + plane_bytes(l, c->rows, 3), 0));
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
    GW_TRY(new_buffer(device, (int)((l.rows + per_chunk - 1) / per_chunk), &buffer));
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
