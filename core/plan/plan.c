/* core/plan/plan.c - from a node list to frozen segments: check, mirror what crosses devices,
 * choose kernels, place activations by lifetime, freeze. Knows no op's meaning and no model word.
 */
#include "core/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"
#include "core/base/text.h"
#include "core/plan/exchange.h"

enum { ARENA_ALIGN = 256 };

/* ---- arenas --------------------------------------------------------------------------------- */

/* Buffers are kept when a larger one follows: frozen segments hold their addresses. */
typedef struct arena_buffer {
    struct arena_buffer *older;
    struct gw_buffer *buffer;
    uint64_t bytes;
} arena_buffer;

struct gw_arena_set {
    int n_devices;
    gw_plan_device *devices; /* [n_devices] */
    arena_buffer **newest;   /* [n_devices] */
};

gw_status gw_arena_set_new(const gw_plan_device *devices, int n_devices, gw_arena_set **out) {
    if (n_devices < 1) {
        return gw_fail(GW_E_ARGUMENT, "plan", "needs at least one device");
    }
    gw_arena_set *a = calloc(1, sizeof *a);
    if (a != NULL) {
        a->n_devices = n_devices;
        a->devices = calloc((size_t)n_devices, sizeof *a->devices);
        a->newest = calloc((size_t)n_devices, sizeof(arena_buffer *));
    }
    if (a == NULL || a->devices == NULL || a->newest == NULL) {
        gw_arena_set_free(a);
        return gw_fail(GW_E_NOMEM, "plan", "no memory for the activation arenas");
    }
    memcpy(a->devices, devices, (size_t)n_devices * sizeof *devices);
    *out = a;
    return GW_OK;
}

void gw_arena_set_free(gw_arena_set *arenas) {
    if (arenas == NULL) {
        return;
    }
    for (int d = 0; arenas->newest != NULL && d < arenas->n_devices; d++) {
        for (arena_buffer *b = arenas->newest[d]; b != NULL;) {
            arena_buffer *older = b->older;
            arenas->devices[d].backend->release(b->buffer);
            free(b);
            b = older;
        }
    }
    free(arenas->devices);
    free(arenas->newest);
    free(arenas);
}

static gw_status arena_reserve(gw_arena_set *arenas, int device, uint64_t bytes,
                               struct gw_buffer **out) {
    arena_buffer *newest = arenas->newest[device];
    if (newest != NULL && newest->bytes >= bytes) {
        *out = newest->buffer;
        return GW_OK;
    }
    if (bytes > SIZE_MAX) {
        return gw_fail(GW_E_OVERFLOW, "plan", "activations do not fit the address space");
    }
    arena_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for an arena");
    }
    const gw_plan_device *d = &arenas->devices[device];
    gw_status status = d->backend->alloc(d->device, (size_t)bytes, &b->buffer);
    if (status != GW_OK) {
        free(b);
        return status;
    }
    b->bytes = bytes;
    b->older = newest;
    arenas->newest[device] = b;
    *out = b->buffer;
    return GW_OK;
}

/* ---- the plan ------------------------------------------------------------------------------- */

enum { OUTSIDE = -1, NO_DEVICE = -1 };

/* A tensor that a node on another device reads: copied before its segment. */
typedef struct mirror {
    const gw_tensor *from;
    int device;
    int64_t producer; /* node that made `from`; OUTSIDE: it was there before */
    size_t before;    /* first node of the reading segment */
    size_t row_bytes;
    gw_tensor to;
} mirror;

typedef struct segment {
    int device; /* NO_DEVICE: an exchange through the host, `count` cards */
    size_t first, count;
    struct gw_segment *frozen;
} segment;

/* An activation that waits for its place: alive over nodes [first, last]. */
typedef struct placement {
    gw_tensor *tensor;
    int device;
    size_t first, last;
    uint64_t bytes, offset;
} placement;

struct gw_plan {
    gw_plan_device *devices;
    int n_devices, rows;
    gw_node *nodes;
    gw_node_time *times;
    size_t n;
    mirror *mirrors; /* capacity n * GW_MAX_IN, so that addresses stay */
    size_t n_mirrors;
    segment *segments; /* capacity n */
    size_t n_segments;
    placement *placed; /* capacity n + mirrors; freed after the build */
    size_t n_placed;
    gw_pause_fn pause; /* or NULL; after what ran on pause_device */
    void *pause_user;
    int pause_device, parts; /* 0: not cut */
    gw_fetch_fn fetch;       /* of nodes that fetch: each begins a segment */
    void *fetch_user;
    void *staging;   /* the largest mirrored tensor, for two devices that the host cannot see */
    void *exchanged; /* what exchanges through the host work in; NULL: there is none */
};

static const char *node_text(const gw_node *node, char *text, size_t room) {
    snprintf(text, room, "layer %d %s (%s)", node->layer, node->what ? node->what : "?",
             gw_op_describe(node->op)->name);
    return text;
}

/* The node before `at` that last wrote tensor t, or OUTSIDE. */
static int64_t producer_of(const gw_plan *p, const gw_tensor *t, size_t at) {
    for (size_t i = at; i > 0; i--) {
        if (p->nodes[i - 1].out == t) {
            return (int64_t)i - 1;
        }
    }
    return OUTSIDE;
}

/* What never moves must lie where its node runs; weights of a plan that is only measured lie
 * nowhere yet. */
static gw_status check_places(const gw_node *node, int measured) {
    char where[96];
    for (int i = 0; i < GW_MAX_W && !measured; i++) {
        if (node->w[i] != NULL && node->w[i]->device != node->device) {
            return gw_fail(GW_E_UNSUPPORTED, node_text(node, where, sizeof where),
                           "runs on device %d, its weight %s lies on device %d", node->device,
                           node->w[i]->name ? node->w[i]->name : "?", node->w[i]->device);
        }
    }
    if (node->out->buf == NULL) {
        node->out->device = node->device;
    } else if (node->out->device != node->device) {
        return gw_fail(GW_E_ARGUMENT, node_text(node, where, sizeof where),
                       "runs on device %d and writes to device %d", node->device,
                       node->out->device);
    }
    return GW_OK;
}

static gw_status check_nodes(gw_plan *p, int measured) {
    for (size_t i = 0; i < p->n; i++) {
        gw_node *node = &p->nodes[i];
        if ((unsigned)node->op >= GW_OP_COUNT || node->device < 0 || node->device >= p->n_devices) {
            return gw_fail(GW_E_ARGUMENT, "plan", "node %zu has op %d on device %d of %d", i,
                           (int)node->op, node->device, p->n_devices);
        }
        GW_TRY(gw_op_describe(node->op)->check(node));
        GW_TRY(check_places(node, measured));
        if (node->out->dim[0] < p->rows && node->out->buf == NULL) {
            char where[96];
            return gw_fail(GW_E_METADATA, node_text(node, where, sizeof where),
                           "the output has %lld rows, the plan %d", (long long)node->out->dim[0],
                           p->rows);
        }
    }
    return GW_OK;
}

static int number_of(const gw_node *node) {
    return node->kernel == &gw_exchange_host ? node->args.exchange.number : NO_DEVICE;
}

static gw_status split_segments(gw_plan *p) {
    for (size_t i = 0; i < p->n; i++) {
        const gw_node *node = &p->nodes[i];
        int device = node->kernel == &gw_exchange_host ? NO_DEVICE : node->device;
        segment *last = p->n_segments > 0 ? &p->segments[p->n_segments - 1] : NULL;
        if (last == NULL || device != last->device || number_of(node) != number_of(node - 1) ||
            node->fetches) {
            last = &p->segments[p->n_segments++];
            *last = (segment){.device = device, .first = i};
        }
        last->count++;
    }
    for (size_t s = 0; s < p->n_segments; s++) {
        const segment *seg = &p->segments[s];
        const gw_node *node = &p->nodes[seg->first];
        if (seg->device == NO_DEVICE && (int)seg->count != node->args.exchange.cards) {
            return gw_fail(GW_E_ARGUMENT, "plan", "%zu of %d cards take part in an exchange",
                           seg->count, node->args.exchange.cards);
        }
    }
    return GW_OK;
}

static gw_status mirror_input(gw_plan *p, const segment *seg, gw_node *node, size_t at, int slot) {
    const gw_tensor *t = node->in[slot];
    if (t->device == node->device) {
        return GW_OK;
    }
    if (t->n_dim != 2 || t->fmt == GW_FMT_I32) {
        char where[96];
        return gw_fail(GW_E_UNSUPPORTED, node_text(node, where, sizeof where),
                       "runs on device %d, its cache lies on device %d", node->device, t->device);
    }
    int64_t made = producer_of(p, t, at);
    if (made >= 0) {
        p->nodes[made].crosses = 1;
    }
    for (size_t i = 0; i < p->n_mirrors; i++) {
        mirror *m = &p->mirrors[i];
        if (m->from == t && m->producer == made && m->device == node->device) {
            node->in[slot] = &m->to;
            return GW_OK;
        }
    }
    mirror *m = &p->mirrors[p->n_mirrors];
    *m = (mirror){
        .from = t, .device = node->device, .producer = made, .before = seg->first, .to = *t};
    GW_TRY(gw_row_bytes(t->fmt, (uint64_t)t->dim[1], &m->row_bytes));
    m->to.buf = NULL;
    m->to.offset = 0;
    m->to.device = node->device;
    node->in[slot] = &m->to;
    p->n_mirrors++;
    return GW_OK;
}

static gw_status mirror_all(gw_plan *p) {
    uint64_t most = 0;
    for (size_t s = 0; s < p->n_segments; s++) {
        const segment *seg = &p->segments[s];
        for (size_t i = seg->first; i < seg->first + seg->count; i++) {
            for (int k = 0; k < GW_MAX_IN; k++) {
                if (p->nodes[i].in[k] != NULL) {
                    GW_TRY(mirror_input(p, seg, &p->nodes[i], i, k));
                }
            }
        }
    }
    for (size_t i = 0; i < p->n_mirrors; i++) {
        uint64_t bytes = (uint64_t)p->mirrors[i].to.dim[0] * p->mirrors[i].row_bytes;
        most = bytes > most ? bytes : most;
    }
    if (most > 0) {
        p->staging = malloc((size_t)most);
        if (p->staging == NULL) {
            return gw_fail(GW_E_NOMEM, "plan", "no memory for copies between devices");
        }
    }
    return GW_OK;
}

/* ---- placement ------------------------------------------------------------------------------ */

static placement *placement_of(gw_plan *p, const gw_tensor *t) {
    for (size_t i = 0; i < p->n_placed; i++) {
        if (p->placed[i].tensor == t) {
            return &p->placed[i];
        }
    }
    return NULL;
}

static gw_status add_placement(gw_plan *p, gw_tensor *t, int device, size_t first) {
    size_t bytes;
    uint64_t rounded;
    GW_TRY(gw_matrix_bytes(t->fmt, (uint64_t)t->dim[0], (uint64_t)t->dim[1], &bytes));
    if (!gw_size_align(bytes, ARENA_ALIGN, &rounded)) {
        return gw_fail(GW_E_OVERFLOW, "plan", "an activation does not fit 64 bits");
    }
    p->placed[p->n_placed++] =
        (placement){.tensor = t, .device = device, .first = first, .last = p->n, .bytes = rounded};
    return GW_OK;
}

/* The last node that may read what node i reads: the next one, for a backend may compute them
 * together; or the exchange behind that, which may begin before they have ended. */
static size_t stays_until(const gw_plan *p, size_t i) {
    size_t last = i + 1 < p->n ? i + 1 : i;
    return i + 2 < p->n && p->nodes[i + 2].op == GW_OP_EXCHANGE ? i + 2 : last;
}

/* Every activation with its lifetime. One that nothing reads stays to the end of the plan. */
static gw_status collect(gw_plan *p) {
    for (size_t i = 0; i < p->n_mirrors; i++) {
        mirror *m = &p->mirrors[i];
        GW_TRY(add_placement(p, &m->to, m->device, m->before));
    }
    for (size_t i = 0; i < p->n; i++) {
        gw_node *node = &p->nodes[i];
        if (node->out->buf == NULL && placement_of(p, node->out) == NULL) {
            GW_TRY(add_placement(p, node->out, node->device, i));
        }
    }
    for (size_t i = 0; i < p->n; i++) {
        for (int k = 0; k < GW_MAX_IN; k++) {
            placement *at = p->nodes[i].in[k] ? placement_of(p, p->nodes[i].in[k]) : NULL;
            if (at != NULL) {
                at->last = stays_until(p, i);
            }
        }
    }
    /* A copy reads its source when the segment of the reader begins. */
    for (size_t i = 0; i < p->n_mirrors; i++) {
        placement *at = placement_of(p, p->mirrors[i].from);
        if (at != NULL && (at->last == p->n || at->last < p->mirrors[i].before)) {
            at->last = p->mirrors[i].before;
        }
    }
    return GW_OK;
}

/* Lowest offset that is free over the whole lifetime. */
static uint64_t first_fit(const gw_plan *p, size_t index) {
    const placement *x = &p->placed[index];
    uint64_t offset = 0;
    int moved = 1;
    while (moved) {
        moved = 0;
        for (size_t i = 0; i < index; i++) {
            const placement *y = &p->placed[i];
            int meets = y->device == x->device && y->first <= x->last && x->first <= y->last;
            if (meets && offset < y->offset + y->bytes && y->offset < offset + x->bytes) {
                offset = y->offset + y->bytes;
                moved = 1;
            }
        }
    }
    return offset;
}

static gw_status fit_all(gw_plan *p) {
    GW_TRY(collect(p));
    for (size_t i = 0; i < p->n_placed; i++) {
        p->placed[i].offset = first_fit(p, i);
    }
    return GW_OK;
}

/* Bytes of the device's arena. */
static uint64_t need_of(const gw_plan *p, int device) {
    uint64_t need = 0;
    for (size_t i = 0; i < p->n_placed; i++) {
        uint64_t end = p->placed[i].offset + p->placed[i].bytes;
        need = p->placed[i].device == device && end > need ? end : need;
    }
    return need;
}

static gw_status place_all(gw_plan *p, gw_arena_set *arenas) {
    GW_TRY(fit_all(p));
    for (int d = 0; d < p->n_devices; d++) {
        const uint64_t need = need_of(p, d);
        struct gw_buffer *buffer = NULL;
        if (need > 0) {
            GW_TRY(arena_reserve(arenas, d, need, &buffer));
        }
        for (size_t i = 0; i < p->n_placed; i++) {
            if (p->placed[i].device == d) {
                p->placed[i].tensor->buf = buffer;
                p->placed[i].tensor->offset = (size_t)p->placed[i].offset;
            }
        }
    }
    return GW_OK;
}

/* ---- kernels -------------------------------------------------------------------------------- */

const gw_kernel *gw_plan_kernel(const gw_plan_device *d, const gw_node *node) {
    size_t count;
    const gw_kernel *kernels = d->backend->kernels(d->device, &count);
    return gw_kernel_first(kernels, count, node, d->device);
}

static gw_status choose_kernel(gw_plan *p, gw_node *node) {
    const gw_plan_device *d = &p->devices[node->device];
    node->kernel = gw_plan_kernel(d, node);
    if (node->kernel != NULL) {
        return GW_OK;
    }
    size_t count;
    const gw_kernel *kernels = d->backend->kernels(d->device, &count);
    char declined[512] = "";
    for (size_t i = 0; i < count; i++) {
        if (kernels[i].op != node->op) {
            continue;
        }
        gw_text_append(declined, sizeof declined, "%s%s", declined[0] != '\0' ? ", " : "",
                       kernels[i].name);
    }
    char where[96];
    return gw_fail(GW_E_UNSUPPORTED, node_text(node, where, sizeof where),
                   "no kernel of device '%s' runs this; declined: %s", d->backend->name,
                   declined[0] != '\0' ? declined : "none offered");
}

/* Which exchanges the plan runs itself; then the order of nodes, which depends on that. */
static gw_status settle_exchanges(gw_plan *p) {
    for (size_t i = 0; i < p->n; i++) {
        gw_node *node = &p->nodes[i];
        const gw_plan_device *d = &p->devices[node->device];
        node->kernel = NULL;
        if (node->op == GW_OP_EXCHANGE && gw_plan_kernel(d, node) == NULL) {
            node->kernel = &gw_exchange_host;
        }
    }
    size_t bytes = 0;
    GW_TRY(gw_exchange_order(p->nodes, p->n, p->n_devices));
    GW_TRY(gw_exchange_room(p->nodes, p->n, &bytes));
    p->exchanged = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && p->exchanged == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for exchanges of %zu bytes", bytes);
    }
    return GW_OK;
}

static gw_status freeze_all(gw_plan *p) {
    for (size_t i = 0; i < p->n; i++) {
        if (p->nodes[i].kernel == NULL) {
            GW_TRY(choose_kernel(p, &p->nodes[i]));
        }
    }
    for (size_t s = 0; s < p->n_segments; s++) {
        segment *seg = &p->segments[s];
        if (seg->device == NO_DEVICE) {
            continue;
        }
        const gw_plan_device *d = &p->devices[seg->device];
        GW_TRY(d->backend->freeze(d->device, p->nodes + seg->first, seg->count, p->rows,
                                  &seg->frozen));
    }
    return GW_OK;
}

/* ---- building ------------------------------------------------------------------------------- */

static gw_plan *allocate(const gw_node *nodes, size_t n, const gw_plan_device *devices,
                         int n_devices, int rows) {
    gw_plan *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->n = n;
    p->n_devices = n_devices;
    p->rows = rows;
    p->devices = calloc((size_t)n_devices, sizeof *p->devices);
    p->nodes = calloc(n, sizeof *p->nodes);
    p->times = calloc(n, sizeof *p->times);
    p->segments = calloc(n, sizeof *p->segments);
    p->mirrors = n_devices > 1 ? calloc(n * GW_MAX_IN, sizeof *p->mirrors) : NULL;
    p->placed = calloc(n * (n_devices > 1 ? 1 + GW_MAX_IN : 1), sizeof *p->placed);
    if (p->devices == NULL || p->nodes == NULL || p->times == NULL || p->segments == NULL ||
        p->placed == NULL || (n_devices > 1 && p->mirrors == NULL)) {
        gw_plan_free(p);
        return NULL;
    }
    memcpy(p->devices, devices, (size_t)n_devices * sizeof *devices);
    memcpy(p->nodes, nodes, n * sizeof *nodes);
    return p;
}

gw_status gw_plan_need(const gw_node *nodes, size_t n, const gw_plan_device *devices, int n_devices,
                       int rows, uint64_t *need) {
    gw_plan *p = n > 0 ? allocate(nodes, n, devices, n_devices, rows) : NULL;
    if (p == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for a plan of %zu nodes", n);
    }
    gw_status status = check_nodes(p, 1);
    status = status == GW_OK ? settle_exchanges(p) : status;
    status = status == GW_OK ? split_segments(p) : status;
    status = status == GW_OK && n_devices > 1 ? mirror_all(p) : status;
    status = status == GW_OK ? fit_all(p) : status;
    for (int d = 0; d < n_devices && status == GW_OK; d++) {
        const uint64_t own = need_of(p, d);
        need[d] = own > need[d] ? own : need[d];
    }
    gw_plan_free(p);
    return status;
}

gw_status gw_plan_build(const gw_node *nodes, size_t n, const gw_plan_device *devices,
                        int n_devices, int rows, gw_arena_set *arenas, gw_plan **out) {
    if (n < 1 || n_devices < 1 || n_devices > arenas->n_devices || rows < 1 || rows > GW_ROWS_MAX) {
        return gw_fail(GW_E_ARGUMENT, "plan", "%zu nodes, %d devices and %d rows make no plan", n,
                       n_devices, rows);
    }
    gw_plan *p = allocate(nodes, n, devices, n_devices, rows);
    if (p == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for a plan of %zu nodes", n);
    }
    gw_status status;
    GW_TRY_DONE(check_nodes(p, 0));
    GW_TRY_DONE(settle_exchanges(p));
    GW_TRY_DONE(split_segments(p));
    if (n_devices > 1) {
        GW_TRY_DONE(mirror_all(p));
    }
    GW_TRY_DONE(place_all(p, arenas));
    GW_TRY_DONE(freeze_all(p));
    free(p->placed);
    p->placed = NULL;
    *out = p;
    return GW_OK;
done:
    for (size_t i = 0; i < p->n_placed; i++) { /* the tensors are as they were */
        p->placed[i].tensor->buf = NULL;
        p->placed[i].tensor->offset = 0;
    }
    gw_plan_free(p);
    return status;
}

void gw_plan_free(gw_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (size_t s = 0; s < plan->n_segments; s++) {
        if (plan->segments[s].frozen != NULL) {
            plan->devices[plan->segments[s].device].backend->segment_free(plan->segments[s].frozen);
        }
    }
    free(plan->devices);
    free(plan->nodes);
    free(plan->times);
    free(plan->segments);
    free(plan->mirrors);
    free(plan->placed);
    free(plan->staging);
    free(plan->exchanged);
    free(plan);
}

static gw_status ready_segment(const gw_plan *p, const segment *seg, const gw_watch *watch) {
    if (seg->device == NO_DEVICE) {
        return GW_OK;
    }
    const gw_backend *backend = p->devices[seg->device].backend;
    return backend->ready != NULL ? backend->ready(seg->frozen, watch) : GW_OK;
}

gw_status gw_plan_ready(gw_plan *plan, const gw_watch *watch) {
    for (size_t s = 0; s < plan->n_segments; s++) {
        GW_TRY(ready_segment(plan, &plan->segments[s], watch));
    }
    return GW_OK;
}

/* ---- pauses --------------------------------------------------------------------------------- */

static int starts_layer(const gw_plan *p, size_t i) {
    return p->nodes[i].layer != p->nodes[i - 1].layer;
}

/* The parts of a segment, not frozen, at `out`; how many. */
static size_t cut_segment(const gw_plan *p, const segment *seg, int parts, segment *out) {
    size_t n = 0, end = seg->first + seg->count;
    int layers = 1, seen = 0;
    for (size_t i = seg->first + 1; i < end; i++) {
        layers += starts_layer(p, i);
    }
    int each = (layers + parts - 1) / parts;
    for (size_t i = seg->first; i < end; i++) {
        seen += i > seg->first && starts_layer(p, i);
        if (i == seg->first || seen == each) {
            out[n++] = (segment){.device = seg->device, .first = i};
            seen = 0;
        }
        out[n - 1].count++;
    }
    return n;
}

gw_status gw_plan_pause(gw_plan *plan, int device, int parts, gw_pause_fn fn, void *user) {
    const gw_plan_device *d = &plan->devices[device];
    gw_status status = GW_OK;
    size_t n = 0;
    if (fn == NULL || (plan->parts == parts && plan->pause_device == device)) {
        plan->pause = fn;
        plan->pause_user = user;
        return GW_OK;
    }
    segment *cut = calloc(plan->n, sizeof *cut);
    if (cut == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %zu parts", plan->n);
    }
    for (size_t s = 0; s < plan->n_segments; s++) {
        if (plan->segments[s].device == device) {
            n += cut_segment(plan, &plan->segments[s], parts, &cut[n]);
        } else {
            cut[n++] = plan->segments[s];
        }
    }
    for (size_t s = 0; s < n && status == GW_OK; s++) {
        if (cut[s].device == device) {
            status = d->backend->freeze(d->device, plan->nodes + cut[s].first, cut[s].count,
                                        plan->rows, &cut[s].frozen);
            status = status == GW_OK ? ready_segment(plan, &cut[s], NULL) : status;
        }
    }
    segment *out = status == GW_OK ? plan->segments : cut; /* what is given up */
    size_t n_out = status == GW_OK ? plan->n_segments : n;
    for (size_t s = 0; s < n_out; s++) {
        if (out[s].device == device && out[s].frozen != NULL) {
            d->backend->segment_free(out[s].frozen);
        }
    }
    if (status == GW_OK) {
        plan->segments = cut;
        plan->n_segments = n;
        plan->pause = fn;
        plan->pause_user = user;
        plan->pause_device = device;
        plan->parts = parts;
    }
    free(out);
    return status;
}

void gw_plan_fetch(gw_plan *plan, gw_fetch_fn fn, void *user) {
    plan->fetch = fn;
    plan->fetch_user = user;
}

/* ---- replay --------------------------------------------------------------------------------- */

static int64_t live_rows(const gw_step *step) {
    return step->n > step->n_pick ? step->n : step->n_pick;
}

/* Straight from or into memory that the host sees. */
static gw_status copy_mirror(gw_plan *p, const mirror *m, const gw_step *step) {
    int64_t live = live_rows(step);
    live = live > m->to.dim[0] ? m->to.dim[0] : live;
    size_t bytes = (size_t)live * m->row_bytes;
    const gw_plan_device *from = &p->devices[m->from->device], *to = &p->devices[m->device];
    if (from->backend == to->backend && from->backend->copy != NULL) {
        return from->backend->copy(m->to.buf, m->to.offset, m->from->buf, m->from->offset, bytes);
    }
    GW_TRY(from->backend->wait(from->device));
    const unsigned char *seen = from->backend->host(m->from->buf);
    if (seen != NULL) {
        return to->backend->write(m->to.buf, m->to.offset, seen + m->from->offset, bytes);
    }
    unsigned char *into = to->backend->host(m->to.buf);
    if (into != NULL) {
        GW_TRY(to->backend->wait(to->device));
        return from->backend->read(m->from->buf, m->from->offset, into + m->to.offset, bytes);
    }
    GW_TRY(from->backend->read(m->from->buf, m->from->offset, p->staging, bytes));
    return to->backend->write(m->to.buf, m->to.offset, p->staging, bytes);
}

gw_status gw_plan_start(gw_plan *plan, const gw_step *step) {
    for (size_t s = 0; s < plan->n_segments; s++) {
        const segment *seg = &plan->segments[s];
        if (seg->device == NO_DEVICE) {
            GW_TRY(gw_exchange_run(plan->devices, &plan->nodes[seg->first], live_rows(step),
                                   plan->exchanged));
            continue;
        }
        const gw_plan_device *d = &plan->devices[seg->device];
        for (size_t i = 0; i < plan->n_mirrors; i++) {
            if (plan->mirrors[i].before == seg->first) {
                GW_TRY(copy_mirror(plan, &plan->mirrors[i], step));
            }
        }
        if (plan->nodes[seg->first].fetches) {
            GW_TRY(plan->fetch(plan->fetch_user, &plan->nodes[seg->first], step));
        }
        GW_TRY(d->backend->run(seg->frozen, step));
        if (plan->pause != NULL && seg->device == plan->pause_device && s + 1 < plan->n_segments) {
            plan->pause(plan->pause_user);
        }
    }
    return GW_OK;
}

gw_status gw_plan_wait(gw_plan *plan) {
    gw_status first = GW_OK;
    for (int i = 0; i < plan->n_devices; i++) { /* all, also behind one that failed */
        gw_status status = plan->devices[i].backend->wait(plan->devices[i].device);
        first = first != GW_OK ? first : status;
    }
    return first;
}

gw_status gw_plan_run(gw_plan *plan, const gw_step *step) {
    gw_status status = gw_plan_start(plan, step);
    gw_status end = gw_plan_wait(plan);
    return status != GW_OK ? status : end;
}

void gw_plan_profile(gw_plan *plan, int on) {
    memset(plan->times, 0, plan->n * sizeof *plan->times);
    for (size_t s = 0; s < plan->n_segments; s++) {
        const segment *seg = &plan->segments[s];
        if (seg->device != NO_DEVICE) {
            plan->devices[seg->device].backend->profile(seg->frozen,
                                                        on ? plan->times + seg->first : NULL);
        }
    }
}

size_t gw_plan_size(const gw_plan *plan) { return plan->n; }
const gw_node *gw_plan_node(const gw_plan *plan, size_t i) { return &plan->nodes[i]; }
gw_node_time gw_plan_time(const gw_plan *plan, size_t i) { return plan->times[i]; }
