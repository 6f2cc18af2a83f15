/* backends/hip/memory.c - device memory, and how weights get into it: through pinned memory in two
 * halves, so that filling one overlaps the transfer of the other. Large weights are packed on the
 * card (pack.c), others on the way into pinned memory, by all processors.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "backends/load.h"
#include "core/base/team.h"
#include "core/base/text.h"

enum { HALVES = 2, HALF_BYTES = 16 << 20, LANDING_BYTES = 1 << 20 };
/* A smaller weight is not worth a kernel that may have to be compiled first. */
enum { LEAST_ON_CARD = 1 << 20 };

typedef struct gw_hip_ring {
    void *half[HALVES];
    gw_hip_event sent[HALVES];
    int next;
    gw_hip_ptr stored; /* HALF_BYTES on the card, for rows that it packs; 0 until there are some */
} gw_hip_ring;

/* ---- allocation ------------------------------------------------------------------------------ */

static int simulated(struct gw_device *device) {
    return device->fail_alloc > 0 && --device->fail_alloc == 0;
}

gw_status gw_hip_memory_new(struct gw_device *device, size_t bytes, gw_hip_ptr *out) {
    char need[GW_SIZE_TEXT], rest[GW_SIZE_TEXT];
    const gw_hip_driver *d = device->driver;
    if (simulated(device)) {
        return gw_fail(GW_E_NOMEM, "hip", "%s refused %s (simulated)", device->name,
                       gw_text_size(bytes, 4, need));
    }
    gw_hip_ptr at = 0;
    gw_hip_error error = d->Alloc(&at, bytes > 0 ? bytes : 4);
    if (error != GW_HIP_OK || at == 0) {
        size_t left = 0, total = 0;
        if (d->MemInfo(&left, &total) != GW_HIP_OK) {
            left = 0;
        }
        return gw_fail(error == GW_HIP_OUT_OF_MEMORY ? GW_E_NOMEM : GW_E_DEVICE, "hip",
                       "needs %s, %s of %s are left: %s", gw_text_size(bytes, 4, need),
                       gw_text_size(left, 4, rest), device->name, gw_hip_error_name(d, error));
    }
    device->reserved += bytes;
    *out = at;
    return GW_OK;
}

void gw_hip_memory_free(struct gw_device *device, gw_hip_ptr at, size_t bytes) {
    if (at != 0) {
        device->driver->Free(at);
        device->reserved -= bytes;
    }
}

gw_status gw_hip_host_new(struct gw_device *device, size_t bytes, void **out) {
    void *at = NULL;
    if (simulated(device)) {
        return gw_fail(GW_E_NOMEM, "hip", "no pinned memory (simulated)");
    }
    GW_TRY(gw_hip_check(device->driver, device->driver->HostAlloc(&at, bytes, 0),
                        "taking pinned memory"));
    *out = at;
    return GW_OK;
}

gw_status gw_hip_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out) {
    GW_TRY(gw_hip_enter(device));
    struct gw_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a buffer");
    }
    buffer->device = device;
    buffer->bytes = bytes;
    gw_status status = gw_hip_memory_new(device, bytes, &buffer->at);
    if (status == GW_OK && bytes > 0) {
        status =
            gw_hip_check(device->driver, device->driver->Fill(buffer->at, 0, bytes, device->stream),
                         "clearing a buffer");
    }
    if (status != GW_OK) {
        gw_hip_release(buffer);
        return status;
    }
    *out = buffer;
    return GW_OK;
}

/* Addresses of pinned memory are the device's, too: as with the step block (segment.c). */
gw_status gw_hip_alloc_mapped(struct gw_device *device, size_t bytes, size_t page_bytes,
                              struct gw_buffer **out) {
    (void)page_bytes;
    GW_TRY(gw_hip_enter(device));
    struct gw_buffer *buffer = calloc(1, sizeof *buffer);
    void *at = NULL;
    if (buffer == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a buffer");
    }
    gw_status status = gw_hip_host_new(device, bytes > 0 ? bytes : 4, &at);
    if (status != GW_OK && status != GW_E_NOMEM) {
        free(buffer);
        return status;
    }
    if (status != GW_OK || at == NULL) {
        char need[GW_SIZE_TEXT];
        free(buffer);
        return gw_fail(GW_E_NOMEM, "hip",
                       "needs %s of main memory that %s can read, the driver gives no more of it",
                       gw_text_size(bytes, 4, need), device->name);
    }
    memset(at, 0, bytes);
    *buffer = (struct gw_buffer){
        .device = device, .at = (gw_hip_ptr)(uintptr_t)at, .bytes = bytes, .in_host = 1};
    *out = buffer;
    return GW_OK;
}

static void forget_kept(struct gw_buffer *buffer) {
    if (buffer->kept_plain) {
        free(buffer->kept);
    } else if (buffer->kept != NULL) {
        buffer->device->driver->HostFree(buffer->kept);
    }
    buffer->kept = NULL;
}

void gw_hip_release(struct gw_buffer *buffer) {
    if (buffer == NULL) {
        return;
    }
    (void)gw_hip_enter(buffer->device);
    if (buffer->in_host) {
        buffer->device->driver->HostFree((void *)(uintptr_t)buffer->at);
    } else {
        gw_hip_memory_free(buffer->device, buffer->at, buffer->bytes);
    }
    forget_kept(buffer);
    free(buffer);
}

/* Pinned, or plain where the driver pins no more: that takes longer to come back. */
static gw_status keep_bytes(struct gw_buffer *b) {
    const gw_hip_driver *d = b->device->driver;
    b->kept_plain = gw_hip_host_new(b->device, b->bytes, &b->kept) != GW_OK;
    b->kept = b->kept_plain ? malloc(b->bytes) : b->kept;
    if (b->kept == NULL) {
        char need[GW_SIZE_TEXT];
        return gw_fail(GW_E_NOMEM, "hip", "no %s of main memory for weights",
                       gw_text_size(b->bytes, 4, need));
    }
    gw_status status =
        gw_hip_check(d, d->Read(b->kept, b->at, b->bytes, b->device->stream), "reading a weight");
    status = status == GW_OK ? gw_hip_wait(b->device) : status;
    if (status != GW_OK) {
        forget_kept(b);
    }
    return status;
}

gw_status gw_hip_stow(struct gw_buffer *buffer, uint64_t *kept) {
    GW_TRY(gw_hip_enter(buffer->device));
    if (buffer->kept == NULL && buffer->bytes > 0) {
        GW_TRY(keep_bytes(buffer));
    }
    GW_TRY(gw_hip_wait(buffer->device));
    gw_hip_memory_free(buffer->device, buffer->at, buffer->bytes);
    buffer->at = 0;
    *kept = buffer->bytes;
    return GW_OK;
}

gw_status gw_hip_restore(struct gw_buffer *buffer) {
    const gw_hip_driver *d = buffer->device->driver;
    gw_hip_ptr at = 0;
    GW_TRY(gw_hip_enter(buffer->device));
    if (buffer->at != 0) {
        return GW_OK;
    }
    GW_TRY(gw_hip_memory_new(buffer->device, buffer->bytes, &at));
    gw_status status =
        buffer->bytes == 0
            ? GW_OK
            : gw_hip_check(d, d->Write(at, buffer->kept, buffer->bytes, buffer->device->stream),
                           "sending a weight");
    if (status != GW_OK) {
        gw_hip_memory_free(buffer->device, at, buffer->bytes);
        return status;
    }
    buffer->at = at;
    return GW_OK;
}

/* ---- host access ----------------------------------------------------------------------------- */

static gw_status enter_range(const struct gw_buffer *buffer, size_t at, size_t bytes) {
    size_t end;
    if (__builtin_add_overflow(at, bytes, &end) || end > buffer->bytes) {
        return gw_fail(GW_E_BOUNDS, "hip", "bytes %zu to %zu of a buffer of %zu", at, at + bytes,
                       buffer->bytes);
    }
    if (buffer->device->lost) {
        return gw_fail(GW_E_DEVICE, "hip", "%s was lost earlier", buffer->device->name);
    }
    return gw_hip_enter(buffer->device);
}

gw_status gw_hip_write(struct gw_buffer *dst, size_t at, const void *src, size_t bytes) {
    GW_TRY(enter_range(dst, at, bytes));
    struct gw_device *device = dst->device;
    if (bytes == 0) {
        return GW_OK;
    }
    if (dst->in_host) {
        GW_TRY(gw_hip_wait(device));
        memcpy((char *)(uintptr_t)dst->at + at, src, bytes);
        return GW_OK;
    }
    device->landed = NULL; /* it may be what is written */
    if (gw_hip_fits_slot(device, bytes)) {
        return gw_hip_send(device, dst->at + at, src, bytes);
    }
    GW_TRY(gw_hip_check(device->driver,
                        device->driver->Write(dst->at + at, src, bytes, device->stream),
                        "writing a buffer"));
    return gw_hip_wait(device);
}

gw_status gw_hip_landing_new(struct gw_device *device) {
    return device->landing != NULL ? GW_OK
                                   : gw_hip_host_new(device, LANDING_BYTES, &device->landing);
}

gw_status gw_hip_read(const struct gw_buffer *src, size_t at, void *dst, size_t bytes) {
    GW_TRY(enter_range(src, at, bytes));
    struct gw_device *device = src->device;
    if (bytes == 0) {
        return GW_OK;
    }
    if (src->in_host) {
        GW_TRY(gw_hip_wait(device));
        memcpy(dst, (const char *)(uintptr_t)src->at + at, bytes);
        return GW_OK;
    }
    const int32_t *drawn = gw_hip_drawn(device, src->at + at, bytes);
    if (drawn != NULL) {
        GW_TRY(gw_hip_wait(device));
        memcpy(dst, drawn, bytes);
        return GW_OK;
    }
    const void *landed = gw_hip_landed_at(device, src->at + at, bytes);
    if (landed != NULL) {
        GW_TRY(gw_hip_wait(device));
        memcpy(dst, landed, bytes);
        return GW_OK;
    }
    void *landing = bytes <= LANDING_BYTES ? device->landing : NULL;
    void *to = landing != NULL ? landing : dst;
    GW_TRY(gw_hip_check(device->driver,
                        device->driver->Read(to, src->at + at, bytes, device->stream),
                        "reading a buffer"));
    GW_TRY(gw_hip_wait(device));
    if (landing != NULL) {
        memcpy(dst, landing, bytes);
    }
    return GW_OK;
}

/* ---- the staging ring ------------------------------------------------------------------------ */

void gw_hip_ring_free(struct gw_device *device) {
    gw_hip_ring *ring = device->ring;
    if (ring == NULL) {
        return;
    }
    device->driver->StreamWait(device->stream);
    for (int i = 0; i < HALVES; i++) {
        if (ring->sent[i] != NULL) {
            device->driver->EventFree(ring->sent[i]);
        }
        if (ring->half[i] != NULL) {
            device->driver->HostFree(ring->half[i]);
        }
    }
    gw_hip_memory_free(device, ring->stored, HALF_BYTES);
    free(ring);
    device->ring = NULL;
}

static gw_status ring_new(struct gw_device *device) {
    gw_hip_ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a staging ring");
    }
    device->ring = ring;
    for (int i = 0; i < HALVES; i++) {
        gw_status status = gw_hip_host_new(device, HALF_BYTES, &ring->half[i]);
        if (status == GW_OK) {
            status = gw_hip_check(device->driver,
                                  device->driver->EventNew(&ring->sent[i], GW_HIP_EVENT_NO_TIMING),
                                  "creating an event");
        }
        if (status != GW_OK) {
            gw_hip_ring_free(device);
            return status;
        }
    }
    return GW_OK;
}

/* A half that no transfer reads any more. */
static gw_status ring_next(struct gw_device *device, void **half, gw_hip_event *sent) {
    if (device->ring == NULL) {
        GW_TRY(ring_new(device));
    }
    gw_hip_ring *ring = device->ring;
    int i = ring->next;
    ring->next = (i + 1) % HALVES;
    *half = ring->half[i];
    *sent = ring->sent[i];
    return gw_hip_check(device->driver, device->driver->EventWait(*sent), "sending a weight");
}

/* ---- weights --------------------------------------------------------------------------------- */

/* One weight on its way in. */
typedef struct loading {
    struct gw_device *device;
    const gw_weight_source *src;
    gw_hip_layout layout;
    gw_hip_ptr to;
    unsigned char *stored; /* rows that a conversion made; NULL when they are mapped */
    size_t piece;          /* units that travel together */
    int on_card;           /* it packs them */
} loading;

/* Units that fit in half a ring, packed and as stored. */
static gw_status plan_pieces(loading *l) {
    size_t packed = 0, stored = l->layout.unit * l->layout.row_bytes;
    for (int p = 0; p < l->layout.n_planes; p++) {
        packed += l->layout.unit_bytes[p];
    }
    size_t most = packed > stored ? packed : stored;
    l->piece = most > 0 ? HALF_BYTES / most : 1;
    if (l->piece == 0) {
        return gw_fail(GW_E_LIMIT, "hip", "a row of %zu bytes does not fit the staging ring",
                       l->layout.row_bytes);
    }
    if (l->src->map == NULL) {
        l->stored = malloc(l->piece * stored);
        if (l->stored == NULL) {
            return gw_fail(GW_E_NOMEM, "hip", "no memory for reading %zu rows",
                           l->piece * l->layout.unit);
        }
    }
    return GW_OK;
}

typedef struct packing {
    const gw_hip_layout *layout;
    const unsigned char *rows;
    size_t n_rows;
    unsigned char *const *out; /* [GW_HIP_PLANES] */
} packing;

static void pack_unit(void *user, int64_t i) {
    const packing *p = user;
    const gw_hip_layout *layout = p->layout;
    size_t u = (size_t)i, first = u * layout->unit, left = p->n_rows - first;
    unsigned char *at[GW_HIP_PLANES] = {NULL};
    for (int plane = 0; plane < layout->n_planes; plane++) {
        at[plane] = p->out[plane] + u * layout->unit_bytes[plane];
    }
    gw_hip_pack(layout, p->rows + first * layout->row_bytes,
                left < layout->unit ? left : layout->unit, at);
}

static void pack_units(const gw_hip_layout *layout, const unsigned char *rows, size_t n_rows,
                       size_t units, unsigned char *const out[GW_HIP_PLANES]) {
    packing p = {.layout = layout, .rows = rows, .n_rows = n_rows, .out = out};
    gw_parallel_for(0, (int64_t)units, pack_unit, &p);
}

typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
} copy;

enum { COPY_BYTES = 1 << 16 };

static void copy_piece(void *user, int64_t i) {
    const copy *c = user;
    size_t at = (size_t)i * COPY_BYTES, left = c->bytes - at;
    memcpy(c->to + at, c->from + at, left < COPY_BYTES ? left : COPY_BYTES);
}

/* n rows as they are to the card, and packed there. */
static gw_status pack_on_card(const loading *l, const unsigned char *rows, size_t n, void *half,
                              gw_hip_ptr to) {
    struct gw_device *device = l->device;
    gw_hip_ptr stored = device->ring->stored;
    const size_t bytes = n * l->layout.row_bytes;
    copy c = {.to = half, .from = rows, .bytes = bytes};
    gw_parallel_for(0, (int64_t)((bytes + COPY_BYTES - 1) / COPY_BYTES), copy_piece, &c);
    GW_TRY(gw_hip_check(device->driver, device->driver->Write(stored, half, bytes, device->stream),
                        "sending a weight"));
    return gw_hip_pack_rows(device, &l->layout, stored, n, to);
}

/* Units [first, first + units): through a half of the ring into the planes. */
static gw_status load_piece(const loading *l, size_t first, size_t units) {
    const gw_hip_layout *layout = &l->layout;
    const gw_hip_driver *d = l->device->driver;
    size_t row = first * layout->unit, n = layout->rows - row, used = 0;
    unsigned char *out[GW_HIP_PLANES] = {NULL};
    const unsigned char *rows = l->stored;
    gw_hip_event sent = NULL;
    void *half = NULL;
    n = n < units * layout->unit ? n : units * layout->unit;
    if (l->src->map != NULL) {
        rows = (const unsigned char *)l->src->map + row * layout->row_bytes;
    } else {
        GW_TRY(gw_load_rows(l->src, (int64_t)row, (int64_t)n, layout->row_bytes, l->stored));
    }
    GW_TRY(ring_next(l->device, &half, &sent));
    if (l->on_card) {
        GW_TRY(pack_on_card(l, rows, n, half,
                            l->to + layout->plane[0] + first * layout->unit_bytes[0]));
        return gw_hip_check(d, d->EventRecord(sent, l->device->stream), "sending a weight");
    }
    for (int p = 0; p < layout->n_planes; p++) {
        out[p] = (unsigned char *)half + used;
        used += units * layout->unit_bytes[p];
    }
    pack_units(layout, rows, n, units, out);
    for (int p = 0; p < layout->n_planes; p++) {
        gw_hip_ptr to = l->to + layout->plane[p] + first * layout->unit_bytes[p];
        /* a plane of rows as stored ends with its last row, not with a whole unit */
        size_t bytes =
            layout->unit == 1 ? n * layout->unit_bytes[p] : units * layout->unit_bytes[p];
        GW_TRY(gw_hip_check(d, d->Write(to, out[p], bytes, l->device->stream), "sending a weight"));
    }
    return gw_hip_check(d, d->EventRecord(sent, l->device->stream), "sending a weight");
}

/* Whether the card packs, and room for what it packs. */
static gw_status ready_to_pack(loading *l) {
    struct gw_device *device = l->device;
    GW_TRY(gw_hip_packs(device, &l->layout, &l->on_card));
    if (!l->on_card || (device->ring != NULL && device->ring->stored != 0)) {
        return GW_OK;
    }
    GW_TRY(device->ring == NULL ? ring_new(device) : GW_OK);
    gw_status status = gw_hip_memory_new(device, HALF_BYTES, &device->ring->stored);
    l->on_card = status == GW_OK;
    return status == GW_E_NOMEM ? GW_OK : status; /* the host packs where a card is that full */
}

/* Rows [first, end), and those that share a unit with them. */
static gw_status load_rows(loading *l, size_t first, size_t end) {
    size_t units = (end + l->layout.unit - 1) / l->layout.unit;
    gw_status status = plan_pieces(l);
    for (size_t u = first / l->layout.unit; u < units && status == GW_OK; u += l->piece) {
        status = load_piece(l, u, units - u < l->piece ? units - u : l->piece);
    }
    free(l->stored);
    return status;
}

gw_status gw_hip_load_weight(struct gw_device *device, gw_tensor *t, const gw_weight_source *src) {
    if (t->fmt >= GW_FMT_ACT8 || t->n_dim < 1) {
        return gw_fail(GW_E_TYPE, t->name, "not a weight");
    }
    loading l = {.device = device, .src = src};
    struct gw_buffer *buffer = NULL;
    GW_TRY(gw_hip_layout_of(device, t, src->keep_rows || src->thin, &l.layout));
    GW_TRY(gw_hip_alloc(device, l.layout.bytes, &buffer));
    l.to = buffer->at;
    gw_status status = l.layout.bytes >= LEAST_ON_CARD ? ready_to_pack(&l) : GW_OK;
    status = status == GW_OK ? load_rows(&l, 0, l.layout.rows) : status;
    if (status != GW_OK) {
        gw_hip_release(buffer);
        return status;
    }
    t->buf = buffer;
    t->offset = 0;
    t->layout = l.layout.number;
    return GW_OK;
}

gw_status gw_hip_fetch_weight(struct gw_device *device, const gw_tensor *t,
                              const gw_weight_source *src, int64_t first, int64_t n) {
    loading l = {.device = device, .src = src, .to = gw_hip_at(t)};
    GW_TRY(gw_hip_enter(device));
    GW_TRY(gw_hip_layout_of(device, t, src->keep_rows || src->thin, &l.layout));
    if (first < 0 || n < 0 || (size_t)(first + n) > l.layout.rows) {
        return gw_fail(GW_E_BOUNDS, t->name, "rows %lld to %lld of %zu", (long long)first,
                       (long long)(first + n), l.layout.rows);
    }
    GW_TRY(ready_to_pack(&l));
    return load_rows(&l, (size_t)first, (size_t)(first + n));
}

gw_status gw_hip_size_weight(const struct gw_device *device, gw_tensor *t,
                             const gw_weight_source *src, uint64_t *bytes) {
    gw_hip_layout layout;
    if (t->fmt >= GW_FMT_ACT8 || t->n_dim < 1) {
        return gw_fail(GW_E_TYPE, t->name, "not a weight");
    }
    GW_TRY(gw_hip_layout_of(device, t, src->keep_rows || src->thin, &layout));
    t->layout = layout.number;
    *bytes = layout.bytes;
    return GW_OK;
}
