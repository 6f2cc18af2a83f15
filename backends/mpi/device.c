/* backends/mpi/device.c - devices of other ranks, for the engine of rank 0; the function table. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/load.h"
#include "backends/mpi/mpi.h"
#include "core/base/list.h"

/* Which kernel takes a node, by the node's bytes without its places. */
typedef struct choice {
    uint64_t key[2];
    int64_t kernel; /* -1: none */
    char arithmetic[GW_ARITHMETIC_BYTES];
} choice;

struct gw_device {
    int ordinal, rank, held;
    gw_wire answer;
    gw_kernel *kernels;
    char (*name)[64];
    size_t n_kernels;
    int narrows, has_roof;
    char note[256];
    choice *choices;
    size_t n_choices, choices_room;
    uint64_t last_number; /* of a buffer or segment */
    struct gw_segment *profiled;
};

struct gw_buffer {
    struct gw_device *device;
    uint64_t number;
    size_t bytes;
};

struct gw_segment {
    struct gw_device *device;
    uint64_t number;
    size_t n;
    gw_node_time *times;
    struct gw_segment *next; /* profiled */
};

/* An answer belongs to the question before it. */
static pthread_mutex_t talk = PTHREAD_MUTEX_INITIALIZER;

/* ---- messages -------------------------------------------------------------------------------- */

static gw_wire message(const struct gw_device *d, gw_mpi_command command) {
    gw_wire w = {.at = NULL};
    gw_wire_put_number(&w, (uint64_t)command);
    gw_wire_put_number(&w, (uint64_t)d->held);
    return w;
}

static gw_status tell(struct gw_device *d, gw_wire *w) { return gw_mpi_send(d->rank, w); }

/* The answer, behind its status, is in d->answer. */
static gw_status hear(struct gw_device *d) {
    char text[512];
    GW_TRY(gw_mpi_take(d->rank, &d->answer));
    uint64_t status = gw_wire_take_number(&d->answer);
    if (status != GW_OK) {
        gw_wire_take_text(&d->answer, text, sizeof text);
        return gw_fail(status < GW_STATUS_COUNT ? (gw_status)status : GW_E_DEVICE, "mpi",
                       "%s: %s", gw_mpi_called(d->rank), text);
    }
    return GW_OK;
}

static gw_status ask(struct gw_device *d, gw_wire *w) {
    pthread_mutex_lock(&talk);
    gw_status status = tell(d, w);
    status = status == GW_OK ? hear(d) : status;
    pthread_mutex_unlock(&talk);
    return status;
}

static gw_status ask_plain(struct gw_device *d, gw_mpi_command command) {
    gw_wire w = message(d, command);
    return ask(d, &w);
}

static gw_status understood(const struct gw_device *d) {
    return d->answer.failed
               ? gw_fail(GW_E_DEVICE, "mpi", "%s gives an answer that is too short",
                         gw_mpi_called(d->rank))
               : GW_OK;
}

/* ---- devices --------------------------------------------------------------------------------- */

/* Ordinals count the devices of rank 1, then those of rank 2, and so on. */
static int rank_of(int ordinal, int *held) {
    for (int r = 1; r < gw_mpi_ranks() && ordinal >= 0; r++) {
        int n = gw_mpi_peer(r)->n_devices;
        if (ordinal < n) {
            *held = ordinal;
            return r;
        }
        ordinal -= n;
    }
    return -1;
}

static int device_count(void) {
    int n = 0;
    for (int r = 1; gw_mpi_rank() == 0 && r < gw_mpi_ranks(); r++) {
        n += gw_mpi_peer(r)->n_devices;
    }
    return n;
}

static void describe(const struct gw_device *device, int ordinal, gw_device_info *out) {
    int held = 0, rank = rank_of(device != NULL ? device->ordinal : ordinal, &held);
    memset(out, 0, sizeof *out);
    if (rank < 0) {
        return;
    }
    gw_device_info info = gw_mpi_peer(rank)->device[held];
    struct gw_device *d = (struct gw_device *)(uintptr_t)device;
    if (d != NULL && ask_plain(d, GW_MPI_DESCRIBE) == GW_OK) {
        gw_wire_take(&d->answer, &info, sizeof info);
    }
    *out = info;
    snprintf(out->id, sizeof out->id, "mpi:%d", device != NULL ? device->ordinal : ordinal);
    snprintf(out->name, sizeof out->name, "%.60s of %.32s on %.24s", info.name,
             gw_mpi_called(rank), gw_mpi_peer(rank)->host);
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device);

static gw_status take_kernels(struct gw_device *d) {
    size_t n = (size_t)gw_wire_take_number(&d->answer);
    if (n > 1 << 16) {
        return gw_fail(GW_E_DEVICE, "mpi", "%s has %zu kernels", gw_mpi_called(d->rank), n);
    }
    d->kernels = calloc(n + 1, sizeof *d->kernels);
    d->name = calloc(n + 1, sizeof *d->name);
    if (d->kernels == NULL || d->name == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for %zu kernels", n);
    }
    for (size_t i = 0; i < n; i++) {
        gw_op op = (gw_op)gw_wire_take_number(&d->answer);
        int every_form = (int)gw_wire_take_number(&d->answer);
        gw_wire_take_text(&d->answer, d->name[i], sizeof d->name[i]);
        d->kernels[i] =
            (gw_kernel){.op = op, .name = d->name[i], .accepts = accepts, .every_form = every_form};
    }
    d->n_kernels = n;
    d->narrows = (int)gw_wire_take_number(&d->answer);
    d->has_roof = (int)gw_wire_take_number(&d->answer);
    gw_wire_take_text(&d->answer, d->note, sizeof d->note);
    return understood(d);
}

static void device_free(struct gw_device *d) {
    gw_wire_free(&d->answer);
    free(d->kernels);
    free(d->name);
    free(d->choices);
    free(d);
}

static gw_status open_device(int ordinal, const gw_device_options *options,
                             struct gw_device **out) {
    int held = 0, rank = rank_of(ordinal, &held);
    if (rank < 0) {
        return gw_fail(GW_E_ARGUMENT, "mpi", "device %d is not one of the %d of other ranks",
                       ordinal, device_count());
    }
    struct gw_device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for a device");
    }
    *d = (struct gw_device){.ordinal = ordinal, .rank = rank, .held = held};
    gw_wire w = message(d, GW_MPI_OPEN);
    gw_wire_put_number(&w, options != NULL && options->blas);
    gw_wire_put_number(&w, options != NULL && options->no_graph);
    gw_wire_put_number(&w, options != NULL && options->exact);
    gw_status status = ask(d, &w);
    int is_open = status == GW_OK;
    status = is_open ? take_kernels(d) : status;
    if (status != GW_OK) {
        if (is_open) {
            (void)ask_plain(d, GW_MPI_CLOSE);
        }
        device_free(d);
        return status;
    }
    *out = d;
    return GW_OK;
}

static void close_device(struct gw_device *d) {
    if (d != NULL) {
        (void)ask_plain(d, GW_MPI_CLOSE);
        device_free(d);
    }
}

static const char *note(const struct gw_device *device) { return device->note; }
static int narrows(const struct gw_device *device) { return device->narrows; }

/* ---- buffers --------------------------------------------------------------------------------- */

static gw_status buffer_new(struct gw_device *d, size_t bytes, struct gw_buffer **out) {
    struct gw_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for a buffer");
    }
    *b = (struct gw_buffer){.device = d, .number = ++d->last_number, .bytes = bytes};
    *out = b;
    return GW_OK;
}

static gw_status alloc_pages(struct gw_device *d, size_t bytes, size_t page,
                             struct gw_buffer **out) {
    struct gw_buffer *b = NULL;
    GW_TRY(buffer_new(d, bytes, &b));
    gw_wire w = message(d, GW_MPI_ALLOC);
    gw_wire_put_number(&w, b->number);
    gw_wire_put_number(&w, bytes);
    gw_wire_put_number(&w, page);
    gw_status status = ask(d, &w);
    if (status != GW_OK) {
        free(b);
        return status;
    }
    *out = b;
    return GW_OK;
}

static gw_status alloc(struct gw_device *d, size_t bytes, struct gw_buffer **out) {
    return alloc_pages(d, bytes, 0, out);
}

static void release(struct gw_buffer *b) {
    if (b != NULL) {
        gw_wire w = message(b->device, GW_MPI_RELEASE);
        gw_wire_put_number(&w, b->number);
        (void)tell(b->device, &w);
        free(b);
    }
}

static gw_status within(const struct gw_buffer *b, size_t at, size_t bytes) {
    return at > b->bytes || bytes > b->bytes - at
               ? gw_fail(GW_E_BOUNDS, "mpi", "%zu bytes at %zu of a buffer of %zu", bytes, at,
                         b->bytes)
               : GW_OK;
}

static gw_wire about(const struct gw_buffer *b, gw_mpi_command command, size_t at) {
    gw_wire w = message(b->device, command);
    gw_wire_put_number(&w, b->number);
    gw_wire_put_number(&w, at);
    return w;
}

/* The bytes are on their way, in order with all that is asked for after. */
static gw_status write_bytes(struct gw_buffer *dst, size_t at, const void *src, size_t bytes) {
    GW_TRY(within(dst, at, bytes));
    for (size_t done = 0; done < bytes; done += GW_MPI_PIECE) {
        size_t n = bytes - done < GW_MPI_PIECE ? bytes - done : GW_MPI_PIECE;
        gw_wire w = about(dst, GW_MPI_WRITE, at + done);
        gw_wire_put(&w, (const char *)src + done, n);
        GW_TRY(tell(dst->device, &w));
    }
    return GW_OK;
}

static gw_status read_bytes(const struct gw_buffer *src, size_t at, void *dst, size_t bytes) {
    struct gw_device *d = src->device;
    GW_TRY(within(src, at, bytes));
    for (size_t done = 0; done < bytes; done += GW_MPI_PIECE) {
        size_t n = bytes - done < GW_MPI_PIECE ? bytes - done : GW_MPI_PIECE;
        gw_wire w = about(src, GW_MPI_READ, at + done);
        gw_wire_put_number(&w, n);
        GW_TRY(ask(d, &w));
        gw_wire_take(&d->answer, (char *)dst + done, n);
        GW_TRY(understood(d));
    }
    return GW_OK;
}

/* Workers do not speak to one another: through here. */
static gw_status copy_here(struct gw_buffer *dst, size_t at, const struct gw_buffer *src,
                           size_t from, size_t bytes) {
    unsigned char *room = malloc(bytes + 1);
    if (room == NULL) {
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for %zu bytes", bytes);
    }
    gw_status status = read_bytes(src, from, room, bytes);
    status = status == GW_OK ? write_bytes(dst, at, room, bytes) : status;
    free(room);
    return status;
}

/* From rank to rank; rank 0 does not see it. */
static gw_status copy(struct gw_buffer *dst, size_t at, const struct gw_buffer *src, size_t from,
                      size_t bytes) {
    GW_TRY(within(dst, at, bytes));
    GW_TRY(within(src, from, bytes));
    if (dst->device->rank != src->device->rank && !gw_mpi_is_meshed()) {
        return copy_here(dst, at, src, from, bytes);
    }
    gw_wire w = about(src, GW_MPI_HAND, from);
    gw_wire_put_number(&w, bytes);
    gw_wire_put_number(&w, (uint64_t)dst->device->rank);
    gw_wire_put_number(&w, (uint64_t)dst->device->held);
    gw_wire_put_number(&w, dst->number);
    gw_wire_put_number(&w, at);
    GW_TRY(tell(src->device, &w));
    if (dst->device->rank == src->device->rank) {
        return GW_OK;
    }
    w = about(dst, GW_MPI_ACCEPT, at);
    gw_wire_put_number(&w, bytes);
    gw_wire_put_number(&w, (uint64_t)src->device->rank);
    return tell(dst->device, &w);
}

static void *host(const struct gw_buffer *buffer) {
    (void)buffer;
    return NULL;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The other side has no mapping of the file: what it holds is its own. */
static gw_status size_weight(const struct gw_device *device, gw_tensor *t,
                             const gw_weight_source *src, uint64_t *bytes) {
    struct gw_device *d = (struct gw_device *)(uintptr_t)device;
    gw_wire w = message(d, GW_MPI_SIZE);
    gw_wire_put_tensor(&w, t);
    gw_wire_put_number(&w, (uint64_t)src->keep_rows);
    GW_TRY(ask(d, &w));
    t->layout = (int)gw_wire_take_number(&d->answer);
    *bytes = gw_wire_take_number(&d->answer);
    return understood(d);
}

/* Rows of a weight as they travel. */
typedef struct sending {
    const gw_weight_source *src;
    int64_t rows;
    size_t row; /* bytes */
    gw_mpi_kept kept;
    unsigned char digest[GW_MPI_DIGEST];
} sending;

static gw_status send_rows(const struct gw_device *d, const sending *s) {
    const gw_weight_source *src = s->src;
    int64_t each = s->row < GW_MPI_PIECE ? (int64_t)(GW_MPI_PIECE / (s->row > 0 ? s->row : 1)) : 1;
    unsigned char *piece = src->map == NULL ? malloc((size_t)each * s->row + 1) : NULL;
    gw_status status = src->map != NULL || piece != NULL
                           ? GW_OK
                           : gw_fail(GW_E_NOMEM, "mpi", "no memory for rows of a weight");
    for (int64_t at = 0; at < s->rows && status == GW_OK; at += each) {
        int64_t n = s->rows - at < each ? s->rows - at : each;
        const unsigned char *from = piece;
        if (src->map != NULL) {
            from = (const unsigned char *)src->map + (size_t)at * s->row;
        } else {
            status = gw_load_rows(src, at, n, s->row, piece);
        }
        gw_wire w = {.at = NULL};
        gw_wire_put(&w, from, status == GW_OK ? (size_t)n * s->row : 0); /* none: it ends there */
        gw_status sent = gw_mpi_send(d->rank, &w);
        status = status != GW_OK ? status : sent;
    }
    free(piece);
    return status;
}

/* Small weights are sent as fast as a question is. */
static gw_status find_kept(struct gw_device *d, sending *s) {
    enum { LEAST = 64 << 10 };
    if (!gw_mpi_peer(d->rank)->keeps || (uint64_t)s->rows * s->row < LEAST) {
        return GW_OK;
    }
    GW_TRY(gw_mpi_digest_source(s->src, s->rows, s->row, s->digest));
    gw_wire w = message(d, GW_MPI_HAVE);
    gw_wire_put(&w, s->digest, sizeof s->digest);
    gw_wire_put_number(&w, (uint64_t)s->rows * s->row);
    GW_TRY(ask(d, &w));
    s->kept = gw_wire_take_number(&d->answer) != 0 ? GW_MPI_KEPT : GW_MPI_NEW;
    return understood(d);
}

/* The answer to LOAD is in d->answer. */
static gw_status send_weight(struct gw_device *d, gw_wire *w, const sending *s) {
    pthread_mutex_lock(&talk);
    gw_status status = tell(d, w);
    if (status == GW_OK) {
        status = s->kept != GW_MPI_KEPT ? send_rows(d, s) : GW_OK;
        gw_status heard = hear(d);
        status = status != GW_OK ? status : heard;
    }
    pthread_mutex_unlock(&talk);
    return status;
}

static gw_status load_weight(struct gw_device *d, gw_tensor *t, const gw_weight_source *src) {
    struct gw_buffer *b = NULL;
    sending s = {.src = src, .rows = t->dim[0]};
    int64_t cols = 1;
    for (int i = 1; i < t->n_dim; i++) {
        cols *= t->dim[i];
    }
    GW_TRY(gw_row_bytes(t->fmt, (uint64_t)cols, &s.row));
    GW_TRY(find_kept(d, &s));
    GW_TRY(buffer_new(d, SIZE_MAX, &b)); /* its size is the other side's matter */
    gw_wire w = message(d, GW_MPI_LOAD);
    gw_wire_put_tensor(&w, t);
    gw_wire_put_number(&w, (uint64_t)src->keep_rows);
    gw_wire_put_number(&w, b->number);
    gw_wire_put_number(&w, (uint64_t)s.kept);
    gw_wire_put(&w, s.digest, sizeof s.digest);
    gw_status status = send_weight(d, &w, &s);
    if (status == GW_OK) {
        t->layout = (int)gw_wire_take_number(&d->answer);
        t->offset = (size_t)gw_wire_take_number(&d->answer);
        t->buf = b;
        status = understood(d);
    }
    if (status != GW_OK) {
        t->buf = NULL;
        free(b);
    }
    return status;
}

static gw_status stow(struct gw_buffer *b, uint64_t *kept) {
    gw_wire w = message(b->device, GW_MPI_STOW);
    gw_wire_put_number(&w, b->number);
    GW_TRY(ask(b->device, &w));
    *kept = gw_wire_take_number(&b->device->answer);
    return understood(b->device);
}

static gw_status restore(struct gw_buffer *b) {
    gw_wire w = message(b->device, GW_MPI_RESTORE);
    gw_wire_put_number(&w, b->number);
    return ask(b->device, &w);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void digest(const gw_wire *w, uint64_t key[2]) {
    key[0] = 14695981039346656037u;
    key[1] = 1099511628211u;
    for (size_t i = 0; i < w->n; i++) {
        key[0] = (key[0] ^ w->at[i]) * 1099511628211u;
        key[1] = (key[1] ^ (w->at[i] + 1u)) * 6364136223846793005u + 1442695040888963407u;
    }
}

/* What the device says of this node; NULL: it could not be asked, and the next command tells. */
static const choice *choose(struct gw_device *d, const gw_node *node) {
    choice c;
    gw_wire w = message(d, GW_MPI_CHOOSE);
    gw_wire_put_nodes(&w, node, 1, NULL, NULL);
    digest(&w, c.key);
    for (size_t i = d->n_choices; i > 0; i--) {
        if (memcmp(d->choices[i - 1].key, c.key, sizeof c.key) == 0) {
            gw_wire_free(&w);
            return &d->choices[i - 1];
        }
    }
    choice *grown = gw_list_grown(d->choices, d->n_choices, &d->choices_room, sizeof *grown);
    if (grown == NULL) {
        gw_wire_free(&w);
        return NULL;
    }
    d->choices = grown;
    if (ask(d, &w) != GW_OK) {
        return NULL;
    }
    c.kernel = (int64_t)gw_wire_take_number(&d->answer);
    gw_wire_take_text(&d->answer, c.arithmetic, sizeof c.arithmetic);
    d->choices[d->n_choices] = c;
    return &d->choices[d->n_choices++];
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    const choice *c = choose((struct gw_device *)(uintptr_t)device, node);
    return c != NULL && c->kernel == kernel - device->kernels;
}

static void arithmetic(const struct gw_device *device, const gw_node *node, char *out) {
    const choice *c = choose((struct gw_device *)(uintptr_t)device, node);
    snprintf(out, GW_ARITHMETIC_BYTES, "%s", c != NULL ? c->arithmetic : "");
}

static const gw_kernel *kernels(const struct gw_device *device, size_t *count) {
    *count = device->n_kernels;
    return device->kernels;
}

/* ---- segments -------------------------------------------------------------------------------- */

static uint64_t place_of(const struct gw_buffer *buffer) { return buffer->number; }

static gw_status freeze(struct gw_device *d, const gw_node *nodes, size_t n, int rows,
                        struct gw_segment **out) {
    struct gw_segment *s = calloc(1, sizeof *s);
    int64_t *kernel = calloc(n + 1, sizeof *kernel);
    gw_mpi_digests_save(); /* plans are made of weights that are there */
    if (s == NULL || kernel == NULL) {
        free(s);
        free(kernel);
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for a plan");
    }
    *s = (struct gw_segment){.device = d, .number = ++d->last_number, .n = n};
    for (size_t i = 0; i < n; i++) {
        kernel[i] = nodes[i].kernel - d->kernels;
    }
    gw_wire w = message(d, GW_MPI_FREEZE);
    gw_wire_put_number(&w, s->number);
    gw_wire_put_number(&w, (uint64_t)rows);
    gw_wire_put_nodes(&w, nodes, n, kernel, place_of);
    free(kernel);
    gw_status status = ask(d, &w);
    if (status != GW_OK) {
        free(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

static gw_wire of_segment(const struct gw_segment *s, gw_mpi_command command) {
    gw_wire w = message(s->device, command);
    gw_wire_put_number(&w, s->number);
    return w;
}

/* Compilers of the other side are not watched. */
static gw_status ready(struct gw_segment *s, const gw_watch *watch) {
    gw_wire w = of_segment(s, GW_MPI_READY);
    (void)watch;
    GW_TRY(ask(s->device, &w));
    gw_wire_take_text(&s->device->answer, s->device->note, sizeof s->device->note);
    return GW_OK;
}

static gw_status run(struct gw_segment *s, const gw_step *step) {
    gw_wire w = of_segment(s, GW_MPI_RUN);
    gw_wire_put_step(&w, step);
    return tell(s->device, &w);
}

static gw_status take_times(struct gw_segment *s) {
    gw_wire w = of_segment(s, GW_MPI_TIMES);
    GW_TRY(ask(s->device, &w));
    gw_wire_take(&s->device->answer, s->times, s->n * sizeof *s->times);
    return understood(s->device);
}

static gw_status wait_for(struct gw_device *d) {
    GW_TRY(ask_plain(d, GW_MPI_WAIT));
    for (struct gw_segment *s = d->profiled; s != NULL; s = s->next) {
        GW_TRY(take_times(s));
    }
    return GW_OK;
}

static void forget_times(struct gw_segment *s) {
    for (struct gw_segment **at = &s->device->profiled; *at != NULL; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            return;
        }
    }
}

static void profile(struct gw_segment *s, gw_node_time *times) {
    gw_wire w = of_segment(s, GW_MPI_PROFILE);
    gw_wire_put_number(&w, times != NULL);
    (void)tell(s->device, &w);
    forget_times(s);
    s->times = times;
    if (times != NULL) {
        s->next = s->device->profiled;
        s->device->profiled = s;
    }
}

static void segment_free(struct gw_segment *s) {
    if (s != NULL) {
        gw_wire w = of_segment(s, GW_MPI_FREE);
        (void)tell(s->device, &w);
        forget_times(s);
        free(s);
    }
}

static gw_status roof(struct gw_device *d, gw_roof *out) {
    *out = (gw_roof){0};
    if (d->has_roof) {
        GW_TRY(ask_plain(d, GW_MPI_ROOF));
        gw_wire_take(&d->answer, out, sizeof *out);
    }
    return understood(d);
}

const gw_backend gw_backend_mpi = {.name = "mpi",
                                   .by_name_only = 1,
                                   .device_count = device_count,
                                   .open = open_device,
                                   .close = close_device,
                                   .describe = describe,
                                   .note = note,
                                   .alloc = alloc,
                                   .alloc_pages = alloc_pages,
                                   .release = release,
                                   .write = write_bytes,
                                   .read = read_bytes,
                                   .copy = copy,
                                   .host = host,
                                   .load_weight = load_weight,
                                   .stow = stow,
                                   .restore = restore,
                                   .size_weight = size_weight,
                                   .kernels = kernels,
                                   .arithmetic = arithmetic,
                                   .narrows = narrows,
                                   .freeze = freeze,
                                   .ready = ready,
                                   .run = run,
                                   .wait = wait_for,
                                   .segment_free = segment_free,
                                   .profile = profile,
                                   .roof = roof};
