/* backends/cpu/memory.c - buffers of the CPU, and how weights get into them. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/os.h"
#include "core/base/text.h"

enum { HUGE_PAGE = 2 << 20, CHUNK_BYTES = 256 << 20, PACK_BYTES = 256 << 10 };

void *gw_cpu_map_pages(size_t bytes) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return NULL;
    }
    if (bytes >= HUGE_PAGE) {
        (void)madvise(data, bytes, MADV_HUGEPAGE); /* a wish: refused where there are none */
    }
    return data;
}

void gw_cpu_unmap_pages(void *data, size_t bytes) {
    if (data != NULL) {
        munmap(data, bytes);
    }
}

/* Memory is only promised by the system until it is touched, so what was reserved before counts
 * against what was there at the start. */
static gw_status check_room(struct gw_device *device, size_t bytes) {
    uint64_t total, available;
    uint64_t reserved = atomic_load_explicit(&device->reserved, memory_order_relaxed);
    if (bytes < (64u << 20) && reserved < (1ull << 30)) {
        return GW_OK; /* too little to be worth a look */
    }
    gw_cpu_memory(&total, &available);
    uint64_t start = device->memory_at_open;
    uint64_t left = start > reserved ? start - reserved : 0;
    left = available < left ? available : left;
    if (bytes > left) {
        char need[GW_SIZE_TEXT], rest[GW_SIZE_TEXT];
        return gw_fail(GW_E_NOMEM, "cpu",
                       "needs %s, %s of memory are available; a smaller context or model may fit",
                       gw_text_size(bytes, 4, need), gw_text_size(left, 4, rest));
    }
    return GW_OK;
}

/* A multiple of `unit`, and at least one; GW_E_NOMEM when no address reaches that far. */
static gw_status whole(size_t bytes, size_t unit, size_t *out) {
    size_t sum;
    if (__builtin_add_overflow(bytes, unit - 1, &sum)) {
        return gw_fail(GW_E_NOMEM, "cpu", "needs %zu bytes, more than an address can reach", bytes);
    }
    *out = sum < unit ? unit : sum / unit * unit;
    return GW_OK;
}

gw_status gw_cpu_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out) {
    size_t mapped;
    GW_TRY(whole(bytes, 4096, &mapped));
    GW_TRY(check_room(device, mapped));
    struct gw_buffer *buffer = calloc(1, sizeof *buffer);
    void *data = buffer != NULL ? gw_cpu_map_pages(mapped) : NULL;
    if (data == NULL) {
        free(buffer);
        return gw_fail(GW_E_NOMEM, "cpu", "the system refused %zu bytes", mapped);
    }
    *buffer = (struct gw_buffer){.device = device, .data = data, .bytes = bytes, .mapped = mapped};
    atomic_fetch_add_explicit(&device->reserved, mapped, memory_order_relaxed);
    *out = buffer;
    return GW_OK;
}

/* A chunk with room for `bytes`; memory is only promised by the system until it is touched. Where
 * addresses are limited it is smaller than usual. */
static gw_status new_chunk(size_t bytes, gw_cpu_chunk **out) {
    size_t room, least;
    GW_TRY(whole(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES, HUGE_PAGE, &room));
    GW_TRY(whole(bytes, HUGE_PAGE, &least));
    gw_cpu_chunk *chunk = calloc(1, sizeof *chunk);
    char *map = NULL;
    while (chunk != NULL && room < SIZE_MAX - HUGE_PAGE &&
           (map = gw_cpu_map_pages(room + HUGE_PAGE)) == NULL && room > least) {
        room = room / 4 > least ? room / 4 / HUGE_PAGE * HUGE_PAGE : least;
    }
    if (map == NULL) {
        free(chunk);
        return gw_fail(GW_E_NOMEM, "cpu", "the system refused %zu bytes", room);
    }
    size_t skip = (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
    *chunk = (gw_cpu_chunk){.map = map, .data = map + skip, .bytes = room};
    *out = chunk;
    return GW_OK;
}

/* A buffer for a weight in the device's chunk, or in a new one that takes its place. */
static gw_status alloc_weight(struct gw_device *device, size_t bytes, struct gw_buffer **out) {
    size_t taken;
    GW_TRY(whole(bytes, 4096, &taken));
    GW_TRY(check_room(device, taken));
    struct gw_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "no memory for a buffer");
    }
    if (device->chunk == NULL || device->chunk->bytes - device->chunk->used < taken) {
        gw_status status = new_chunk(taken, &device->chunk);
        if (status != GW_OK) {
            free(buffer);
            return status;
        }
    }
    gw_cpu_chunk *chunk = device->chunk;
    *buffer = (struct gw_buffer){.device = device,
                                 .data = chunk->data + chunk->used,
                                 .bytes = bytes,
                                 .mapped = taken,
                                 .chunk = chunk};
    chunk->used += taken;
    chunk->buffers++;
    atomic_fetch_add_explicit(&device->reserved, taken, memory_order_relaxed);
    *out = buffer;
    return GW_OK;
}

/* The last buffer of a chunk takes it along. */
static void leave_chunk(struct gw_device *device, gw_cpu_chunk *chunk) {
    if (--chunk->buffers > 0) {
        return;
    }
    if (device->chunk == chunk) {
        device->chunk = NULL;
    }
    gw_cpu_unmap_pages(chunk->map, chunk->bytes + HUGE_PAGE);
    free(chunk);
}

gw_status gw_cpu_alias(struct gw_device *device, const void *data, size_t bytes,
                       struct gw_buffer **out) {
    struct gw_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "no memory for a buffer");
    }
    /* Nothing writes to an alias: it holds weights, and kernels take weights as const. */
    char *address;
    memcpy(&address, &data, sizeof address);
    *buffer = (struct gw_buffer){.device = device, .data = address, .bytes = bytes};
    *out = buffer;
    return GW_OK;
}

void gw_cpu_release(struct gw_buffer *buffer) {
    if (buffer == NULL) {
        return;
    }
    if (buffer->mapped > 0) {
        if (buffer->chunk != NULL) {
            leave_chunk(buffer->device, buffer->chunk);
        } else {
            gw_cpu_unmap_pages(buffer->data, buffer->mapped);
        }
        atomic_fetch_sub_explicit(&buffer->device->reserved, buffer->mapped, memory_order_relaxed);
    }
    free(buffer);
}

/* ---- weights
 * --------------------------------------------------------------------------------------- */

/* One weight on its way in: rows of `row_bytes`, in units of GW_STRIP_ROWS rows. */
typedef struct loading {
    const gw_weight_source *src;
    gw_fmt fmt;
    int64_t rows;
    size_t cols, row_bytes, strip_bytes, strips;
    int pack;
    char *dst;
    char *stored;                /* of each thread `step` strips, as stored */
    size_t step;                 /* strips read together */
    _Atomic size_t next, failed; /* strips */
} loading;

/* Strips [first, end) through `rows`, room for (end - first) strips of stored rows. */
static gw_status load_strips(const loading *l, size_t first, size_t end, char *rows) {
    int64_t from = (int64_t)(first * GW_STRIP_ROWS), to = (int64_t)(end * GW_STRIP_ROWS);
    to = to < l->rows ? to : l->rows;
    if (!l->pack) {
        return l->src->rows(l->src, from, to - from, l->dst + (size_t)from * l->row_bytes);
    }
    const char *stored = rows;
    if (l->src->map != NULL) {
        stored = (const char *)l->src->map + (size_t)from * l->row_bytes;
    } else {
        GW_TRY(l->src->rows(l->src, from, to - from, rows));
    }
    for (size_t s = first; s < end; s++) {
        size_t at = (s - first) * GW_STRIP_ROWS;
        size_t n = (size_t)(to - from) - at;
        gw_strip_pack(l->fmt, l->dst + s * l->strip_bytes, stored + at * l->row_bytes,
                      n < GW_STRIP_ROWS ? n : GW_STRIP_ROWS, l->cols);
    }
    return GW_OK;
}

static void load_share(void *user, int id, int team) {
    loading *l = user;
    char *mine = l->stored + (size_t)id * l->step * GW_STRIP_ROWS * l->row_bytes;
    (void)team;
    for (;;) {
        size_t first = atomic_fetch_add(&l->next, l->step);
        if (first >= l->strips || atomic_load(&l->failed) != SIZE_MAX) {
            break;
        }
        size_t end = first + l->step < l->strips ? first + l->step : l->strips;
        if (load_strips(l, first, end, mine) != GW_OK) {
            atomic_store(&l->failed, first);
        }
    }
}

/* All strips by the whole team. A strip that failed is done again by the calling thread, because
 * the text of an error belongs to the thread that met it. */
static gw_status load_all(struct gw_device *device, loading *l) {
    size_t stored = GW_STRIP_ROWS * l->row_bytes;
    size_t step = stored < PACK_BYTES ? PACK_BYTES / stored : 1;
    int threads = l->strips < 4 ? 1 : device->threads;
    l->step = step;
    l->stored = malloc((size_t)threads * step * stored);
    atomic_store(&l->next, 0);
    atomic_store(&l->failed, SIZE_MAX);
    if (l->stored == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "no memory for reading %zu rows", step * GW_STRIP_ROWS);
    }
    gw_team_run(threads, load_share, l);
    gw_status status = GW_OK;
    for (size_t first = atomic_load(&l->failed); first < l->strips && status == GW_OK;
         first += step) {
        size_t end = first + step < l->strips ? first + step : l->strips;
        status = load_strips(l, first, end, l->stored);
    }
    free(l->stored);
    return status;
}

/* Strips are worth packing only when both orders have kernels that read them at this level. */
static int wants_strips(const struct gw_device *device, const gw_tensor *t,
                        const gw_weight_source *src) {
    return !src->keep_rows && t->n_dim == 2 && !gw_format_of(t->fmt)->is_float &&
           gw_cpu_linear_find(t->fmt, device->level, 0)->strips &&
           gw_cpu_linear_find(t->fmt, device->level, 1)->strips;
}

/* *bytes: as stored, row after row. */
static gw_status begin_loading(const struct gw_device *device, const gw_tensor *t,
                               const gw_weight_source *src, loading *out, size_t *bytes) {
    if (t->fmt == GW_FMT_ACT8 || (unsigned)t->fmt >= GW_FMT_COUNT || t->n_dim < 1) {
        return gw_fail(GW_E_TYPE, t->name, "not a weight");
    }
    loading l = {.src = src, .fmt = t->fmt, .rows = 1, .cols = (size_t)t->dim[t->n_dim - 1]};
    for (int i = 0; i + 1 < t->n_dim; i++) {
        l.rows *= t->dim[i];
    }
    GW_TRY(gw_row_bytes(t->fmt, l.cols, &l.row_bytes));
    GW_TRY(gw_matrix_bytes(t->fmt, (uint64_t)l.rows, l.cols, bytes));
    l.strips = ((size_t)l.rows + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS;
    l.pack = wants_strips(device, t, src);
    l.strip_bytes = l.pack ? gw_strip_bytes(t->fmt, l.cols) : 0;
    *out = l;
    return GW_OK;
}

gw_status gw_cpu_size_weight(const struct gw_device *device, gw_tensor *t,
                             const gw_weight_source *src, uint64_t *bytes) {
    loading l;
    size_t stored;
    GW_TRY(begin_loading(device, t, src, &l, &stored));
    t->layout = l.pack ? GW_LAYOUT_PRIVATE : GW_LAYOUT_ROWS;
    *bytes = l.pack ? l.strips * l.strip_bytes : stored;
    return GW_OK;
}

gw_status gw_cpu_load_weight(struct gw_device *device, gw_tensor *t, const gw_weight_source *src) {
    loading l;
    size_t bytes;
    GW_TRY(begin_loading(device, t, src, &l, &bytes));
    struct gw_buffer *buffer = NULL;
    /* Blocks hold 2- and 4-byte fields: a map at an odd place is copied. */
    if (!l.pack && src->map != NULL && (uintptr_t)src->map % 4 == 0) {
        GW_TRY(gw_cpu_alias(device, src->map, bytes, &buffer));
    } else {
        GW_TRY(alloc_weight(device, l.pack ? l.strips * l.strip_bytes : bytes, &buffer));
        l.dst = buffer->data;
        gw_status status = GW_OK;
        if (!l.pack && src->map != NULL) {
            memcpy(l.dst, src->map, bytes);
        } else if (l.rows > 0) {
            status = load_all(device, &l);
        }
        if (status != GW_OK) {
            gw_cpu_release(buffer);
            return status;
        }
    }
    t->buf = buffer;
    t->offset = 0;
    t->layout = l.pack ? GW_LAYOUT_PRIVATE : GW_LAYOUT_ROWS;
    return GW_OK;
}
