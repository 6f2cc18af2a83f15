/* backends/ref/ref.c - the oracle as a backend: host memory, one thread, the ops of ops.c and
 * beside. It must run whole tiny models; it need not be fast. */
#include "backends/ref/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/os.h"

enum { BUFFER_ALIGN = 64, LOAD_ROWS = 64 };

struct gw_device {
    int unused; /* the oracle has no state */
};

struct gw_segment {
    const gw_node *nodes;
    size_t n;
    double *scratch;
    gw_node_time *times;
};

extern const gw_backend gw_backend_ref;

/* ---- device --------------------------------------------------------------------------------- */

static int device_count(void) { return 1; }

static gw_status open_device(int ordinal, const gw_device_options *options,
                             struct gw_device **out) {
    (void)options;
    if (ordinal != 0) {
        return gw_fail(GW_E_ARGUMENT, "ref", "there is no device %d", ordinal);
    }
    struct gw_device *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return gw_fail(GW_E_NOMEM, "ref", "no memory for the device");
    }
    *out = d;
    return GW_OK;
}

static void close_device(struct gw_device *device) { free(device); }

static uint64_t available_bytes(void) {
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1) {
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return (uint64_t)kib * 1024;
}

static void describe(const struct gw_device *device, int ordinal, gw_device_info *out) {
    (void)device, (void)ordinal;
    memset(out, 0, sizeof *out);
    snprintf(out->id, sizeof out->id, "ref");
    snprintf(out->name, sizeof out->name, "double precision");
    snprintf(out->detail, sizeof out->detail, "every op from its definition, for checking");
    out->memory_bytes = gw_os_memory();
    out->free_bytes = available_bytes();
    out->threads = 1;
}

/* ---- memory --------------------------------------------------------------------------------- */

static gw_status alloc_buffer(struct gw_device *device, size_t bytes, struct gw_buffer **out) {
    (void)device;
    struct gw_buffer *b = calloc(1, sizeof *b);
    void *base = bytes <= SIZE_MAX - BUFFER_ALIGN ? calloc(1, bytes + BUFFER_ALIGN) : NULL;
    if (b == NULL || base == NULL) {
        free(b);
        free(base);
        return gw_fail(GW_E_NOMEM, "ref", "no memory for %zu bytes", bytes);
    }
    size_t skip = (size_t)((uintptr_t)base % BUFFER_ALIGN);
    b->base = base;
    b->memory = (unsigned char *)base + (skip ? BUFFER_ALIGN - skip : 0);
    b->bytes = bytes;
    *out = b;
    return GW_OK;
}

static void release_buffer(struct gw_buffer *buffer) {
    if (buffer != NULL) {
        free(buffer->base);
        free(buffer);
    }
}

static gw_status check_range(const struct gw_buffer *b, size_t at, size_t bytes) {
    if (at > b->bytes || bytes > b->bytes - at) {
        return gw_fail(GW_E_BOUNDS, "ref", "%zu bytes at %zu of a buffer of %zu", bytes, at,
                       b->bytes);
    }
    return GW_OK;
}

static gw_status write_buffer(struct gw_buffer *dst, size_t at, const void *src, size_t bytes) {
    GW_TRY(check_range(dst, at, bytes));
    memcpy(dst->memory + at, src, bytes);
    return GW_OK;
}

static gw_status read_buffer(const struct gw_buffer *src, size_t at, void *dst, size_t bytes) {
    GW_TRY(check_range(src, at, bytes));
    memcpy(dst, src->memory + at, bytes);
    return GW_OK;
}

static void *host_address(const struct gw_buffer *buffer) { return buffer->memory; }

static gw_status alias_map(const void *map, size_t bytes, struct gw_buffer **out) {
    struct gw_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return gw_fail(GW_E_NOMEM, "ref", "no memory for a buffer");
    }
    b->memory = (unsigned char *)(uintptr_t)map; /* weights are only read */
    b->bytes = bytes;
    *out = b;
    return GW_OK;
}

static gw_status load_weight(struct gw_device *device, gw_tensor *t, const gw_weight_source *src) {
    struct gw_buffer *b = NULL;
    size_t row, bytes;
    GW_TRY(gw_row_bytes(t->fmt, (uint64_t)t->dim[1], &row));
    GW_TRY(gw_matrix_bytes(t->fmt, (uint64_t)t->dim[0], (uint64_t)t->dim[1], &bytes));
    if (src->map != NULL) {
        GW_TRY(alias_map(src->map, bytes, &b));
    } else {
        GW_TRY(alloc_buffer(device, bytes, &b));
        for (int64_t r = 0; r < t->dim[0]; r += LOAD_ROWS) {
            int64_t n = t->dim[0] - r < LOAD_ROWS ? t->dim[0] - r : LOAD_ROWS;
            gw_status status = src->rows(src, r, n, b->memory + (size_t)r * row);
            if (status != GW_OK) {
                release_buffer(b);
                return status;
            }
        }
    }
    t->buf = b;
    t->offset = 0;
    t->layout = GW_LAYOUT_ROWS;
    return GW_OK;
}

static gw_status size_weight(const struct gw_device *device, gw_tensor *t,
                             const gw_weight_source *src, uint64_t *bytes) {
    size_t all;
    (void)device, (void)src;
    GW_TRY(gw_matrix_bytes(t->fmt, (uint64_t)t->dim[0], (uint64_t)t->dim[1], &all));
    t->layout = GW_LAYOUT_ROWS;
    *bytes = all;
    return GW_OK;
}

/* ---- kernels -------------------------------------------------------------------------------- */

static int is_rows(const gw_tensor *t) { return t == NULL || t->layout == GW_LAYOUT_ROWS; }

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    (void)kernel, (void)device;
    for (int i = 0; i < GW_MAX_W; i++) {
        if (!is_rows(node->w[i])) {
            return 0;
        }
    }
    return 1;
}

/* Segments walk their nodes, so that nothing is left to record. */
static gw_status record(struct gw_segment *segment, const gw_kernel *kernel, const gw_node *node) {
    (void)segment, (void)kernel, (void)node;
    return GW_OK;
}

/* clang-format off */
static const gw_kernel kernels[] = {
    {GW_OP_EMBED,         "ref.embed",         accepts, record, NULL, 1},
    {GW_OP_PICK,          "ref.pick",          accepts, record, NULL, 1},
    {GW_OP_NORM,          "ref.norm",          accepts, record, NULL, 1},
    {GW_OP_QUANTIZE,      "ref.quantize",      accepts, record, NULL, 1},
    {GW_OP_LINEAR,        "ref.linear",        accepts, record, NULL, 1},
    {GW_OP_GLU,           "ref.glu",           accepts, record, NULL, 1},
    {GW_OP_ROPE_KV,       "ref.rope_kv",       accepts, record, NULL, 1},
    {GW_OP_ATTENTION,     "ref.attention",     accepts, record, NULL, GW_DIGITS_TOO},
    {GW_OP_SAMPLE,        "ref.sample",        accepts, record, NULL, 1},
    {GW_OP_ACT,           "ref.act",           accepts, record, NULL, 1},
    {GW_OP_MIX,           "ref.mix",           accepts, record, NULL, 1},
    {GW_OP_ROUTE,         "ref.route",         accepts, record, NULL, 1},
    {GW_OP_EXPERTS_GLU,   "ref.experts_glu",   accepts, record, NULL, 1},
    {GW_OP_EXPERTS_DOWN,  "ref.experts_down",  accepts, record, NULL, 1},
    {GW_OP_EXPERTS_LORA_A, "ref.experts_lora_a", accepts, record, NULL, 1},
    {GW_OP_EXPERTS_LORA_B, "ref.experts_lora_b", accepts, record, NULL, 1},
    {GW_OP_CONV,          "ref.conv",          accepts, record, NULL, 1},
    {GW_OP_SCAN,          "ref.scan",          accepts, record, NULL, 1},
    {GW_OP_EXP_GATES,     "ref.exp_gates",     accepts, record, NULL, 1},
    {GW_OP_DIVIDE,        "ref.divide",        accepts, record, NULL, 1},
    {GW_OP_GROUP_NORM,    "ref.group_norm",    accepts, record, NULL, 1},
    {GW_OP_HEADS,         "ref.heads",         accepts, record, NULL, 1},
    {GW_OP_STREAMS,       "ref.streams",       accepts, record, NULL, 1},
    {GW_OP_SPARSE_GLU,    "ref.sparse_glu",    accepts, record, NULL, 1},
    {GW_OP_COLUMNS,       "ref.columns",      accepts, record, NULL, 1},
    {GW_OP_WIDEN,         "ref.widen",        accepts, record, NULL, 1},
    {GW_OP_HYPER,         "ref.hyper",        accepts, record, NULL, 1},
    {GW_OP_ROTATE,        "ref.rotate",       accepts, record, NULL, 1},
    {GW_OP_GROUP_DOT,     "ref.group_dot",    accepts, record, NULL, 1},
    {GW_OP_COMPRESS,      "ref.compress",     accepts, record, NULL, 1},
    {GW_OP_CHOOSE,        "ref.choose",       accepts, record, NULL, 1},
    {GW_OP_LISTED,        "ref.listed",       accepts, record, NULL, 1},
    {GW_OP_NGRAM,         "ref.ngram",        accepts, record, NULL, 1},
};
/* clang-format on */
_Static_assert(sizeof kernels / sizeof kernels[0] == GW_OP_COUNT - 1,
               "an op has no ref kernel"); /* EXCHANGE is the plan's */

static const gw_kernel *list_kernels(const struct gw_device *device, size_t *count) {
    (void)device;
    *count = sizeof kernels / sizeof kernels[0];
    return kernels;
}

/* ---- segments ------------------------------------------------------------------------------- */

static void segment_free(struct gw_segment *segment) {
    if (segment != NULL) {
        free(segment->scratch);
        free(segment);
    }
}

static gw_status freeze(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                        struct gw_segment **out) {
    (void)device;
    size_t most = 1;
    for (size_t i = 0; i < n; i++) {
        size_t need = ref_op_of(nodes[i].op)->scratch(&nodes[i], rows);
        most = need > most ? need : most;
    }
    struct gw_segment *s = calloc(1, sizeof *s);
    double *scratch = calloc(most, sizeof *scratch);
    if (s == NULL || scratch == NULL) {
        free(s);
        free(scratch);
        return gw_fail(GW_E_NOMEM, "ref", "no memory for %zu values of scratch", most);
    }
    *s = (struct gw_segment){.nodes = nodes, .n = n, .scratch = scratch};
    *out = s;
    return GW_OK;
}

static gw_status run(struct gw_segment *segment, const gw_step *step) {
    int rows = step->n;
    for (size_t i = 0; i < segment->n; i++) {
        const gw_node *node = &segment->nodes[i];
        rows = node->op == GW_OP_PICK ? step->n_pick : rows;
        double start = segment->times != NULL ? gw_seconds_now() : 0.0;
        ref_op_of(node->op)->run(node, step, rows, segment->scratch);
        if (segment->times != NULL) {
            segment->times[i].calls++;
            segment->times[i].seconds += gw_seconds_now() - start;
        }
    }
    return GW_OK;
}

static gw_status wait_device(struct gw_device *device) {
    (void)device;
    return GW_OK;
}

static void profile(struct gw_segment *segment, gw_node_time *times) { segment->times = times; }

static void name_arithmetic(const struct gw_device *device, const gw_node *node, char *out) {
    (void)device, (void)node;
    snprintf(out, GW_ARITHMETIC_BYTES, "ref"); /* sums in double */
}

const gw_backend gw_backend_ref = {
    .name = "ref",
    .by_name_only = 1,
    .device_count = device_count,
    .open = open_device,
    .close = close_device,
    .describe = describe,
    .alloc = alloc_buffer,
    .release = release_buffer,
    .write = write_buffer,
    .read = read_buffer,
    .host = host_address,
    .load_weight = load_weight,
    .size_weight = size_weight,
    .kernels = list_kernels,
    .arithmetic = name_arithmetic,
    .freeze = freeze,
    .run = run,
    .wait = wait_device,
    .segment_free = segment_free,
    .profile = profile,
};
