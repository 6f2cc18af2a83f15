/* backends/mpi/serve.c - a rank that is not 0: opens its devices and does what rank 0 says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backends/mpi/mpi.h"
#include "core/base/list.h"

typedef struct frozen {
    struct gw_segment *segment;
    gw_wire_nodes nodes;
    gw_node_time *times;
} frozen;

typedef struct held {
    const gw_backend *backend;
    int ordinal;
    struct gw_device *device;
    struct gw_buffer **buffer; /* by number; [0]: none */
    frozen *segment;           /* by number            */
    size_t buffers_room, segments_room;
    gw_status failed; /* of a command without an answer */
    char text[512];
} held;

static struct {
    held held[GW_MPI_HELD];
    int n, threads;
    gw_wire in, out, data;
    gw_step step;
    uint64_t came, kept; /* bytes of weights */
} serving;

void gw_mpi_served(uint64_t *came, uint64_t *kept) {
    *came = serving.came;
    *kept = serving.kept;
}

/* ---- which devices --------------------------------------------------------------------------- */

static gw_status hold(const gw_backend *backend, int ordinal, gw_mpi_self *self) {
    if (serving.n == GW_MPI_HELD) {
        return gw_fail(GW_E_ARGUMENT, "device", "a rank holds at most %d devices", GW_MPI_HELD);
    }
    backend->describe(NULL, ordinal, &self->device[serving.n]);
    serving.held[serving.n++] = (held){.backend = backend, .ordinal = ordinal};
    self->n_devices = serving.n;
    return GW_OK;
}

/* The first card that may be chosen although nobody named it; else the CPU. */
static gw_status hold_any(gw_mpi_self *self) {
    for (size_t i = 1; gw_backends[i] != NULL; i++) {
        const gw_backend *b = gw_backends[i];
        int ordinal = 0;
        int n = b->cards != NULL ? b->cards(&ordinal, 1) : b->by_name_only ? 0 : b->device_count();
        if (n > 0) {
            return hold(b, ordinal, self);
        }
    }
    return hold(gw_backends[0], 0, self);
}

/* One name of [name, name + n). */
static gw_status hold_named(const char *name, size_t n, gw_mpi_self *self) {
    for (size_t i = 0; gw_backends[i] != NULL; i++) {
        const gw_backend *b = gw_backends[i];
        size_t own = strlen(b->name);
        if (n < own || strncmp(name, b->name, own) != 0 || (n > own && name[own] != ':')) {
            continue;
        }
        long ordinal = n > own ? strtol(name + own + 1, NULL, 10) : 0;
        if (ordinal < 0 || ordinal >= b->device_count()) {
            break;
        }
        return hold(b, (int)ordinal, self);
    }
    return gw_fail(GW_E_DEVICE, "device", "'%.*s' is not on this host", n < 40 ? (int)n : 40, name);
}

gw_status gw_mpi_held(const char *device, gw_mpi_self *self) {
    if (device == NULL || strcmp(device, "auto") == 0) {
        return hold_any(self);
    }
    for (const char *at = device;; at++) {
        size_t n = strcspn(at, ",");
        GW_TRY(hold_named(at, n, self));
        at += n;
        if (*at == '\0') {
            return GW_OK;
        }
    }
}

/* ---- what commands name ---------------------------------------------------------------------- */

/* Room for number i in a list by number; zeroed. */
static gw_status reach(void *list, size_t *room, size_t size, uint64_t i) {
    void **at = list;
    while (*room <= i) {
        size_t before = *room;
        if (i > 1u << 30) {
            return gw_fail(GW_E_METADATA, "mpi", "number %llu", (unsigned long long)i);
        }
        void *grown = gw_list_grown(*at, before, room, size);
        if (grown == NULL) {
            return gw_fail(GW_E_NOMEM, "mpi", "no memory for a list");
        }
        *at = grown;
        memset((char *)grown + before * size, 0, (*room - before) * size);
    }
    return GW_OK;
}

static gw_status take_buffer(held *h, struct gw_buffer **out, uint64_t *number) {
    uint64_t i = gw_wire_take_number(&serving.in);
    *out = i < h->buffers_room ? h->buffer[i] : NULL;
    if (number != NULL) {
        *number = i;
    }
    return *out != NULL ? GW_OK
                        : gw_fail(GW_E_METADATA, "mpi", "no buffer %llu", (unsigned long long)i);
}

static gw_status take_segment(held *h, frozen **out) {
    uint64_t i = gw_wire_take_number(&serving.in);
    *out = i < h->segments_room ? &h->segment[i] : NULL;
    return *out != NULL && (*out)->segment != NULL
               ? GW_OK
               : gw_fail(GW_E_METADATA, "mpi", "no segment %llu", (unsigned long long)i);
}

/* ---- devices --------------------------------------------------------------------------------- */

static const char *note_of(const held *h) {
    return h->backend->note != NULL ? h->backend->note(h->device) : "";
}

static gw_status do_open(held *h) {
    gw_device_options options = {.threads = serving.threads};
    size_t count = 0;
    options.blas = (int)gw_wire_take_number(&serving.in);
    options.no_graph = (int)gw_wire_take_number(&serving.in);
    options.exact = (int)gw_wire_take_number(&serving.in);
    GW_TRY(h->backend->open(h->ordinal, &options, &h->device));
    const gw_kernel *list = h->backend->kernels(h->device, &count);
    gw_wire_put_number(&serving.out, count);
    for (size_t i = 0; i < count; i++) {
        gw_wire_put_number(&serving.out, (uint64_t)list[i].op);
        gw_wire_put_number(&serving.out, (uint64_t)list[i].every_form);
        gw_wire_put_text(&serving.out, list[i].name);
    }
    gw_wire_put_number(&serving.out,
                       h->backend->narrows == NULL || h->backend->narrows(h->device) != 0);
    gw_wire_put_number(&serving.out, h->backend->roof != NULL);
    gw_wire_put_text(&serving.out, note_of(h));
    return GW_OK;
}

static void free_one(held *h, frozen *f) {
    if (f->segment != NULL) {
        h->backend->segment_free(f->segment);
    }
    gw_wire_nodes_free(&f->nodes);
    free(f->times);
    *f = (frozen){.segment = NULL};
}

static gw_status do_close(held *h) {
    for (size_t i = 0; i < h->segments_room; i++) {
        free_one(h, &h->segment[i]);
    }
    for (size_t i = 0; i < h->buffers_room; i++) {
        if (h->buffer[i] != NULL) {
            h->backend->release(h->buffer[i]);
        }
    }
    free(h->segment);
    free(h->buffer);
    if (h->device != NULL) {
        h->backend->close(h->device);
    }
    *h = (held){.backend = h->backend, .ordinal = h->ordinal};
    return GW_OK;
}

static gw_status do_describe(held *h) {
    gw_device_info info;
    h->backend->describe(h->device, h->ordinal, &info);
    gw_wire_put(&serving.out, &info, sizeof info);
    return GW_OK;
}

static gw_status do_roof(held *h) {
    gw_roof roof = {0};
    GW_TRY(h->backend->roof(h->device, &roof));
    gw_wire_put(&serving.out, &roof, sizeof roof);
    return GW_OK;
}

static gw_status do_wait(held *h) { return h->backend->wait(h->device); }

/* ---- buffers --------------------------------------------------------------------------------- */

static gw_status do_alloc(held *h) {
    uint64_t number = gw_wire_take_number(&serving.in);
    size_t bytes = (size_t)gw_wire_take_number(&serving.in);
    size_t page = (size_t)gw_wire_take_number(&serving.in);
    struct gw_buffer *buffer = NULL;
    GW_TRY(reach(&h->buffer, &h->buffers_room, sizeof(struct gw_buffer *), number));
    GW_TRY(page > 0 && h->backend->alloc_pages != NULL
               ? h->backend->alloc_pages(h->device, bytes, page, &buffer)
               : h->backend->alloc(h->device, bytes, &buffer));
    h->buffer[number] = buffer;
    return GW_OK;
}

static gw_status do_release(held *h) {
    struct gw_buffer *buffer = NULL;
    uint64_t number = 0;
    GW_TRY(take_buffer(h, &buffer, &number));
    h->backend->release(buffer);
    h->buffer[number] = NULL;
    return GW_OK;
}

static gw_status do_write(held *h) {
    struct gw_buffer *buffer = NULL;
    GW_TRY(take_buffer(h, &buffer, NULL));
    size_t at = (size_t)gw_wire_take_number(&serving.in);
    size_t bytes = serving.in.n - serving.in.taken;
    return h->backend->write(buffer, at, gw_wire_view(&serving.in, bytes), bytes);
}

/* Bytes of a buffer behind what w holds. */
static gw_status put_bytes(held *h, const struct gw_buffer *buffer, size_t at, size_t bytes,
                           gw_wire *w) {
    unsigned char *read = malloc(bytes + 1);
    if (read == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for %zu bytes", bytes);
    }
    gw_status status = h->backend->read(buffer, at, read, bytes);
    gw_wire_put(w, read, status == GW_OK ? bytes : 0);
    free(read);
    return status;
}

static gw_status do_read(held *h) {
    struct gw_buffer *buffer = NULL;
    GW_TRY(take_buffer(h, &buffer, NULL));
    size_t at = (size_t)gw_wire_take_number(&serving.in);
    size_t bytes = (size_t)gw_wire_take_number(&serving.in);
    return put_bytes(h, buffer, at, bytes, &serving.out);
}

/* Something is sent in any case: the other rank waits for it. */
static gw_status do_hand(held *h) {
    struct gw_buffer *buffer = NULL;
    gw_status status = take_buffer(h, &buffer, NULL);
    size_t at = (size_t)gw_wire_take_number(&serving.in);
    size_t bytes = (size_t)gw_wire_take_number(&serving.in);
    int rank = (int)gw_wire_take_number(&serving.in), other = (int)gw_wire_take_number(&serving.in);
    gw_wire_clear(&serving.data);
    status = status == GW_OK ? put_bytes(h, buffer, at, bytes, &serving.data) : status;
    if (rank != gw_mpi_rank()) {
        gw_status sent = gw_mpi_send(rank, &serving.data);
        return status != GW_OK ? status : sent;
    }
    GW_TRY(status);
    held *to = &serving.held[other >= 0 && other < serving.n ? other : 0];
    GW_TRY(take_buffer(to, &buffer, NULL));
    return to->backend->write(buffer, (size_t)gw_wire_take_number(&serving.in), serving.data.at,
                              bytes);
}

static gw_status do_accept(held *h) {
    struct gw_buffer *buffer = NULL;
    gw_status status = take_buffer(h, &buffer, NULL);
    size_t at = (size_t)gw_wire_take_number(&serving.in);
    size_t bytes = (size_t)gw_wire_take_number(&serving.in);
    GW_TRY(gw_mpi_take((int)gw_wire_take_number(&serving.in), &serving.data));
    GW_TRY(status);
    return serving.data.n == bytes ? h->backend->write(buffer, at, serving.data.at, bytes)
                                   : gw_fail(GW_E_DEVICE, "mpi", "another rank has failed");
}

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct rows_here {
    const unsigned char *at;
    size_t row;
} rows_here;

static gw_status rows_of(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const rows_here *a = src->state;
    memcpy(dst, a->at + (size_t)first * a->row, (size_t)n * a->row);
    return GW_OK;
}

static gw_status do_size(held *h) {
    gw_tensor t;
    gw_weight_source src = {.rows = rows_of};
    uint64_t bytes = 0;
    gw_wire_take_tensor(&serving.in, &t);
    src.keep_rows = (int)gw_wire_take_number(&serving.in);
    GW_TRY(h->backend->size_weight(h->device, &t, &src, &bytes));
    gw_wire_put_number(&serving.out, (uint64_t)t.layout);
    gw_wire_put_number(&serving.out, bytes);
    return GW_OK;
}

static gw_status do_have(held *h) {
    unsigned char digest[GW_MPI_DIGEST];
    (void)h;
    gw_wire_take(&serving.in, digest, sizeof digest);
    size_t n = (size_t)gw_wire_take_number(&serving.in);
    const void *map = serving.in.failed ? NULL : gw_mpi_keep_find(digest, n);
    gw_wire_put_number(&serving.out, map != NULL);
    if (map != NULL) {
        (void)munmap((void *)(uintptr_t)map, n);
    }
    return GW_OK;
}

/* All pieces come, whatever happens here; *out, malloc'd. GW_E_CANCELLED: rank 0 gave up. */
static gw_status take_rows(size_t need, unsigned char **out) {
    unsigned char *all = malloc(need + 1);
    for (size_t have = 0; have < need; have += serving.data.n) {
        gw_status status = gw_mpi_take(0, &serving.data);
        if (status != GW_OK || serving.data.n == 0 || serving.data.n > need - have) {
            free(all);
            return status != GW_OK ? status : GW_E_CANCELLED;
        }
        if (all != NULL) {
            memcpy(all + have, serving.data.at, serving.data.n);
        }
    }
    *out = all;
    serving.came += need;
    return all != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "mpi", "no memory for %zu bytes", need);
}

/* A weight from its rows at a->at. */
static gw_status load_from(held *h, gw_tensor *t, int keep_rows, uint64_t number, rows_here *a) {
    gw_weight_source src = {.rows = rows_of, .state = a, .keep_rows = keep_rows};
    GW_TRY(reach(&h->buffer, &h->buffers_room, sizeof(struct gw_buffer *), number));
    GW_TRY(h->backend->load_weight(h->device, t, &src));
    h->buffer[number] = t->buf;
    gw_wire_put_number(&serving.out, (uint64_t)t->layout);
    gw_wire_put_number(&serving.out, t->offset);
    return GW_OK;
}

static gw_status load_kept(held *h, gw_tensor *t, int keep_rows, uint64_t number, rows_here *a,
                           const unsigned char *digest, size_t need) {
    const void *map = gw_mpi_keep_find(digest, need);
    if (map == NULL) {
        return gw_fail(GW_E_IO, "mpi", "a weight that was kept here is gone; start again");
    }
    a->at = map;
    serving.kept += need;
    gw_status status = load_from(h, t, keep_rows, number, a);
    (void)munmap((void *)(uintptr_t)map, need);
    return status;
}

static gw_status do_load(held *h) {
    gw_tensor t;
    rows_here a = {.row = 0};
    unsigned char digest[GW_MPI_DIGEST], *all = NULL;
    gw_wire_take_tensor(&serving.in, &t);
    int keep_rows = (int)gw_wire_take_number(&serving.in);
    uint64_t number = gw_wire_take_number(&serving.in), kept = gw_wire_take_number(&serving.in);
    size_t need = 0;
    int64_t cols = 1;
    gw_wire_take(&serving.in, digest, sizeof digest);
    for (int i = 1; i < t.n_dim; i++) {
        cols = t.dim[i] > 0 && cols <= INT64_MAX / t.dim[i] ? cols * t.dim[i] : 0;
    }
    GW_TRY(gw_row_bytes(t.fmt, (uint64_t)cols, &a.row));
    if (serving.in.failed || t.n_dim < 1 || t.dim[0] < 1 || a.row == 0 ||
        __builtin_mul_overflow((size_t)t.dim[0], a.row, &need) || need >= SIZE_MAX / 2) {
        return gw_fail(GW_E_METADATA, "mpi", "a weight of no size");
    }
    if (kept == GW_MPI_KEPT) {
        return load_kept(h, &t, keep_rows, number, &a, digest, need);
    }
    gw_status status = take_rows(need, &all);
    if (status == GW_E_CANCELLED) {
        return GW_OK; /* and knows why */
    }
    if (status == GW_OK && kept == GW_MPI_NEW) {
        gw_mpi_keep_add(digest, all, need);
    }
    a.at = all;
    status = status == GW_OK ? load_from(h, &t, keep_rows, number, &a) : status;
    free(all);
    return status;
}

static gw_status do_stow(held *h) {
    struct gw_buffer *buffer = NULL;
    uint64_t kept = 0;
    GW_TRY(take_buffer(h, &buffer, NULL));
    GW_TRY(h->backend->stow != NULL ? h->backend->stow(buffer, &kept) : GW_OK);
    gw_wire_put_number(&serving.out, kept);
    return GW_OK;
}

static gw_status do_restore(held *h) {
    struct gw_buffer *buffer = NULL;
    GW_TRY(take_buffer(h, &buffer, NULL));
    return h->backend->restore != NULL ? h->backend->restore(buffer) : GW_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static gw_status do_choose(held *h) {
    gw_wire_nodes nodes;
    struct gw_buffer *some = NULL;
    char name[GW_ARITHMETIC_BYTES] = "";
    size_t count = 0;
    for (size_t i = 0; i < h->buffers_room && some == NULL; i++) {
        some = h->buffer[i];
    }
    struct gw_buffer *const places[2] = {NULL, some};
    GW_TRY(gw_wire_take_nodes(&serving.in, places, 2, &nodes));
    gw_node *node = nodes.node;
    const gw_kernel *list = h->backend->kernels(h->device, &count);
    const gw_kernel *k = gw_kernel_first(list, count, node, h->device);
    node->kernel = k;
    if (k != NULL && h->backend->arithmetic != NULL) {
        h->backend->arithmetic(h->device, node, name);
    }
    gw_wire_put_number(&serving.out, (uint64_t)(k != NULL ? (int64_t)(k - list) : -1));
    gw_wire_put_text(&serving.out, name);
    gw_wire_nodes_free(&nodes);
    return GW_OK;
}

static gw_status do_freeze(held *h) {
    uint64_t number = gw_wire_take_number(&serving.in);
    int rows = (int)gw_wire_take_number(&serving.in);
    size_t count = 0;
    frozen f = {.segment = NULL};
    const gw_kernel *list = h->backend->kernels(h->device, &count);
    GW_TRY(reach(&h->segment, &h->segments_room, sizeof *h->segment, number));
    GW_TRY(reach(&h->buffer, &h->buffers_room, sizeof(struct gw_buffer *), 0));
    GW_TRY(gw_wire_take_nodes(&serving.in, h->buffer, h->buffers_room, &f.nodes));
    gw_status status = GW_OK;
    for (size_t i = 0; i < f.nodes.n && status == GW_OK; i++) {
        int64_t k = f.nodes.kernel[i];
        status = k >= 0 && k < (int64_t)count && f.nodes.node[i].op == list[k].op
                     ? GW_OK
                     : gw_fail(GW_E_METADATA, "mpi", "a node without a kernel");
        f.nodes.node[i].kernel = status == GW_OK ? &list[k] : NULL;
    }
    if (status == GW_OK) {
        status = h->backend->freeze(h->device, f.nodes.node, f.nodes.n, rows, &f.segment);
    }
    if (status != GW_OK) {
        gw_wire_nodes_free(&f.nodes);
        return status;
    }
    h->segment[number] = f;
    return GW_OK;
}

static gw_status do_ready(held *h) {
    frozen *f = NULL;
    GW_TRY(take_segment(h, &f));
    GW_TRY(h->backend->ready != NULL ? h->backend->ready(f->segment, NULL) : GW_OK);
    gw_wire_put_text(&serving.out, note_of(h));
    return GW_OK;
}

static gw_status do_run(held *h) {
    frozen *f = NULL;
    GW_TRY(take_segment(h, &f));
    gw_wire_take_step(&serving.in, &serving.step);
    if (serving.in.failed) {
        return gw_fail(GW_E_METADATA, "mpi", "a step that is too short");
    }
    return h->backend->run(f->segment, &serving.step);
}

static gw_status do_free(held *h) {
    frozen *f = NULL;
    GW_TRY(take_segment(h, &f));
    free_one(h, f);
    return GW_OK;
}

static gw_status do_profile(held *h) {
    frozen *f = NULL;
    GW_TRY(take_segment(h, &f));
    int on = gw_wire_take_number(&serving.in) != 0;
    free(f->times);
    f->times = on ? calloc(f->nodes.n + 1, sizeof *f->times) : NULL;
    h->backend->profile(f->segment, f->times);
    return GW_OK;
}

static gw_status do_times(held *h) {
    frozen *f = NULL;
    GW_TRY(take_segment(h, &f));
    for (size_t i = 0; i < f->nodes.n; i++) {
        gw_node_time none = {0};
        gw_wire_put(&serving.out, f->times != NULL ? &f->times[i] : &none, sizeof none);
    }
    return GW_OK;
}

/* ---- the loop -------------------------------------------------------------------------------- */

typedef struct row {
    gw_status (*run)(held *h);
    int answers, opens; /* opens: needs no open device */
} row;

static const row rows[GW_MPI_END] = {
    [GW_MPI_OPEN] = {do_open, 1, 1},         [GW_MPI_CLOSE] = {do_close, 1, 1},
    [GW_MPI_DESCRIBE] = {do_describe, 1, 1}, [GW_MPI_ALLOC] = {do_alloc, 1, 0},
    [GW_MPI_RELEASE] = {do_release, 0, 0},   [GW_MPI_WRITE] = {do_write, 0, 0},
    [GW_MPI_READ] = {do_read, 1, 0},         [GW_MPI_SIZE] = {do_size, 1, 0},
    [GW_MPI_HAVE] = {do_have, 1, 0},         [GW_MPI_LOAD] = {do_load, 1, 0},
    [GW_MPI_STOW] = {do_stow, 1, 0},
    [GW_MPI_RESTORE] = {do_restore, 1, 0},   [GW_MPI_CHOOSE] = {do_choose, 1, 0},
    [GW_MPI_FREEZE] = {do_freeze, 1, 0},     [GW_MPI_READY] = {do_ready, 1, 0},
    [GW_MPI_RUN] = {do_run, 0, 0},           [GW_MPI_WAIT] = {do_wait, 1, 0},
    [GW_MPI_FREE] = {do_free, 0, 0},         [GW_MPI_PROFILE] = {do_profile, 0, 0},
    [GW_MPI_TIMES] = {do_times, 1, 0},       [GW_MPI_ROOF] = {do_roof, 1, 0},
    [GW_MPI_HAND] = {do_hand, 0, 0},         [GW_MPI_ACCEPT] = {do_accept, 0, 0},
};

static gw_status answer(gw_status status, const char *text) {
    gw_wire w = {.at = NULL};
    gw_wire_put_number(&w, (uint64_t)status);
    if (status != GW_OK) {
        gw_wire_put_text(&w, text);
    } else {
        gw_wire_put(&w, serving.out.at, serving.out.n);
        w.failed |= serving.out.failed;
    }
    gw_wire_clear(&serving.out);
    return gw_mpi_send(0, &w);
}

static gw_status serve_one(held *h, const row *command) {
    gw_wire_clear(&serving.out);
    gw_status status = command->opens || h->device != NULL
                           ? command->run(h)
                           : gw_fail(GW_E_DEVICE, "mpi", "the device is not open");
    if (gw_mpi_lost(0.0)[0] != '\0') {
        return status != GW_OK ? status : GW_E_DEVICE;
    }
    if (!command->answers) {
        if (status != GW_OK && h->failed == GW_OK) {
            h->failed = status;
            snprintf(h->text, sizeof h->text, "%s", gw_error_text());
        }
        return GW_OK;
    }
    if (h->failed != GW_OK && command->run != do_close) {
        status = h->failed;
        h->failed = GW_OK;
        return answer(status, h->text);
    }
    return answer(status, gw_error_text());
}

gw_status gw_mpi_serve(int threads) {
    gw_status status = GW_OK;
    serving.threads = threads;
    for (uint64_t command = 0; status == GW_OK;) {
        status = gw_mpi_take(0, &serving.in);
        if (status != GW_OK) {
            break;
        }
        command = gw_wire_take_number(&serving.in);
        uint64_t device = gw_wire_take_number(&serving.in);
        if (command == GW_MPI_END) {
            break;
        }
        status = command < GW_MPI_END && device < (uint64_t)serving.n
                     ? serve_one(&serving.held[device], &rows[command])
                     : gw_fail(GW_E_METADATA, "mpi", "command %llu", (unsigned long long)command);
    }
    for (int i = 0; i < serving.n; i++) {
        (void)do_close(&serving.held[i]);
    }
    gw_wire_free(&serving.in);
    gw_wire_free(&serving.out);
    gw_wire_free(&serving.data);
    return status;
}
