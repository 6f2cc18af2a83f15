/* backends/cpu/segment.c - freezing nodes into launches, and the team that walks them. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/clock.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"

enum { LAUNCHES_PER_NODE = 4 }; /* most that one node appends */
enum { LATEST = 1024 };         /* passes until ways of reading are tried again, at most */

/* ---- freezing
 * --------------------------------------------------------------------------------------- */

size_t gw_cpu_row_stride(const gw_tensor *t) {
    const gw_format *f = gw_format_of(t->fmt);
    size_t cols = 1;
    for (int i = 1; i < t->n_dim; i++) {
        cols *= (size_t)t->dim[i];
    }
    return f->row_header + gw_format_blocks(f, cols) * f->block_bytes;
}

static size_t row_width(const gw_tensor *t) {
    size_t cols = 1;
    for (int i = 1; i < t->n_dim; i++) {
        cols *= (size_t)t->dim[i];
    }
    return cols;
}

gw_cpu_launch *gw_cpu_append(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    gw_cpu_launch *launch = &segment->launches[segment->n]; /* the last is never launched */
    segment->n += segment->n + 1 < segment->capacity;
    segment->overfull |= launch == &segment->launches[segment->capacity - 1];
    memset(launch, 0, sizeof *launch);
    launch->ops = gw_cpu_ops_of(gw_cpu_row_of(kernel)->level);
    launch->node = segment->node;
    launch->picked = segment->picked;
    if (node->in[0] != NULL) {
        launch->in = gw_cpu_data(node->in[0]);
        launch->in_stride = gw_cpu_row_stride(node->in[0]);
    }
    if (node->in[1] != NULL) {
        launch->in1 = gw_cpu_data(node->in[1]);
        launch->in1_stride = gw_cpu_row_stride(node->in[1]);
    }
    if (node->out != NULL) {
        launch->out = gw_cpu_data(node->out);
        launch->out_stride = gw_cpu_row_stride(node->out);
        launch->act8 = node->out->fmt == GW_FMT_ACT8;
        launch->width = row_width(node->out);
    }
    return launch;
}

void gw_cpu_need_scratch(struct gw_segment *segment, size_t bytes) {
    segment->scratch_bytes = bytes > segment->scratch_bytes ? bytes : segment->scratch_bytes;
}

void gw_cpu_need_shared(struct gw_segment *segment, size_t bytes) {
    segment->shared_bytes = bytes > segment->shared_bytes ? bytes : segment->shared_bytes;
}

gw_status gw_cpu_vector(struct gw_segment *segment, const gw_tensor *t, const float **out) {
    *out = NULL;
    if (t == NULL) {
        return GW_OK;
    }
    const char *data = gw_cpu_data(t);
    if (t->fmt == GW_FMT_F32 && (uintptr_t)data % sizeof(float) == 0) {
        *out = (const float *)(const void *)data;
        return GW_OK;
    }
    size_t n = 1;
    for (int i = 0; i < t->n_dim; i++) {
        n *= (size_t)t->dim[i];
    }
    float *copy = malloc((n + 1) * sizeof *copy);
    if (copy == NULL) {
        return gw_fail(GW_E_NOMEM, t->name, "no memory for %zu values", n);
    }
    gw_format_of(t->fmt)->decode(copy, data, n);
    segment->copies[segment->n_copies++] = copy;
    *out = copy;
    return GW_OK;
}

gw_status gw_cpu_ones(struct gw_segment *segment, const gw_node *node, size_t n,
                      const float **out) {
    float *ones = malloc((n + 1) * sizeof *ones);
    if (ones == NULL) {
        return gw_fail(GW_E_NOMEM, node->what, "no memory for %zu values", n);
    }
    for (size_t i = 0; i < n; i++) {
        ones[i] = 1.0f;
    }
    segment->copies[segment->n_copies++] = ones;
    *out = ones;
    return GW_OK;
}

/* One for the team, one for each thread; each in a cache line of its own. */
static size_t counter_bytes(const struct gw_segment *segment) {
    return (1 + (size_t)segment->device->threads) * GW_CACHE_LINE;
}

static gw_status take_memory(struct gw_segment *segment, size_t nodes) {
    segment->capacity = nodes * LAUNCHES_PER_NODE + 1;
    segment->launches = calloc(segment->capacity, sizeof *segment->launches);
    segment->copies = calloc(nodes * (GW_MAX_W + 2) + 1, sizeof *segment->copies);
    segment->counters = gw_os_aligned(2 * counter_bytes(segment));
    if (segment->launches == NULL || segment->copies == NULL || segment->counters == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "no memory for a plan of %zu nodes", nodes);
    }
    memset(segment->counters, 0, 2 * counter_bytes(segment));
    return GW_OK;
}

static gw_status take_scratch(struct gw_segment *segment) {
    size_t line = GW_CACHE_LINE;
    segment->row_bytes = (segment->row_bytes + line - 1) / line * line + 4 * line; /* apart */
    size_t one = (segment->scratch_bytes + line - 1) / line * line + segment->row_bytes;
    segment->scratch_bytes = one;
    segment->scratch_mapped = one * (size_t)segment->device->threads + segment->shared_bytes;
    segment->scratch = gw_cpu_map_pages(segment->scratch_mapped);
    if (segment->scratch == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "needs %zu bytes of scratch", segment->scratch_mapped);
    }
    return GW_OK;
}

/* A launch that reads what the one before it puts out may do that one's work as well. What is put
 * out still lies where others may read it; it must not be written while a slower thread still reads
 * what went in. */
static void join_launches(struct gw_segment *segment) {
    for (size_t i = 1; i < segment->n; i++) {
        gw_cpu_launch *l = &segment->launches[i];
        const gw_cpu_launch *before = l - 1;
        int apart = before->in == NULL || l->out + l->out_stride <= before->in ||
                    before->in + before->in_stride <= l->out; /* an embedding has no input */
        if (l->in != before->out || !apart || l->picked != before->picked) {
            continue;
        }
        if (gw_cpu_joins_linear(before, l)) {
            l->before = before;
            segment->row_bytes =
                before->out_stride > segment->row_bytes ? before->out_stride : segment->row_bytes;
        } else if (gw_cpu_joins_attention(before, l)) {
            l->before = before;
            l->joins = gw_cpu_attends_by_heads;
        }
    }
}

static void run_observer(const gw_cpu_launch *launch, gw_cpu_worker *worker) {
    const gw_observed seen = {.x = (const float *)(const void *)launch->in,
                              .route = (const float *)(const void *)launch->in1,
                              .rows = gw_cpu_live(launch, worker->step),
                              .id = worker->id,
                              .team = worker->team};
    worker->observe(worker->observe_user, launch->u.seen, &seen);
}

static void add_observer(struct gw_segment *segment, const gw_node *node) {
    int product = node->op == GW_OP_LINEAR || node->op == GW_OP_GLU ||
                  node->op == GW_OP_EXPERTS_GLU || node->op == GW_OP_EXPERTS_DOWN;
    if (segment->device->observe == NULL || !product || node->in[0]->fmt != GW_FMT_F32) {
        return;
    }
    gw_cpu_launch *launch = gw_cpu_append(segment, node->kernel, node);
    launch->run = run_observer;
    launch->u.seen = node;
}

gw_status gw_cpu_freeze(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                        struct gw_segment **out) {
    gw_status status = GW_OK;
    struct gw_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "no memory for a plan");
    }
    segment->device = device;
    segment->rows = rows;
    GW_TRY_DONE(take_memory(segment, n));
    for (size_t i = 0; i < n; i++) {
        segment->node = (int)i;
        add_observer(segment, &nodes[i]);
        GW_TRY_DONE(nodes[i].kernel->record(segment, nodes[i].kernel, &nodes[i]));
        if (segment->overfull) {
            GW_TRY_DONE(gw_fail(GW_E_OVERFLOW, "cpu", "%s appends more than %d launches",
                                nodes[i].kernel->name, LAUNCHES_PER_NODE));
        }
        if (nodes[i].op == GW_OP_PICK) {
            segment->picked = 1;
        }
    }
    join_launches(segment);
    GW_TRY_DONE(take_scratch(segment));
    gw_cpu_link_linear(segment);
    *out = segment;
    segment = NULL;
done:
    gw_cpu_segment_free(segment);
    return status;
}

void gw_cpu_segment_free(struct gw_segment *segment) {
    if (segment == NULL) {
        return;
    }
    for (size_t i = 0; i < segment->n_copies; i++) {
        free(segment->copies[i]);
    }
    gw_cpu_unmap_pages(segment->scratch, segment->scratch_mapped);
    free(segment->copies);
    free(segment->launches);
    gw_os_aligned_free(segment->counters);
    free(segment);
}

void gw_cpu_profile(struct gw_segment *segment, gw_node_time *times) { segment->times = times; }

/* ---- replay
 * ------------------------------------------------------------------------------------------- */

/* owner -1: the team's. */
static _Atomic size_t *counter(const gw_cpu_worker *worker, int owner) {
    return (_Atomic size_t *)(void *)(worker->counters + (size_t)(owner + 1) * GW_CACHE_LINE);
}

/* A `parts`-th of what is left, at least one piece and at most `most`. */
static int hand_out(_Atomic size_t *next, size_t total, size_t parts, size_t most, size_t *first,
                    size_t *end) {
    size_t at = atomic_load_explicit(next, memory_order_relaxed), n;
    do {
        if (at >= total) {
            return 0;
        }
        n = (total - at) / parts;
        n = n < 1 ? 1 : n;
        n = n > most ? most : n;
    } while (!atomic_compare_exchange_weak_explicit(next, &at, at + n, memory_order_relaxed,
                                                    memory_order_relaxed));
    *first = at;
    *end = at + n;
    return 1;
}

int gw_cpu_take(const gw_cpu_worker *worker, size_t total, size_t most, size_t *first,
                size_t *end) {
    return hand_out(counter(worker, -1), total, 2 * (size_t)worker->team, most, first, end);
}

int gw_cpu_take_from(const gw_cpu_worker *worker, int owner, size_t total, size_t parts,
                     size_t most, size_t *first, size_t *end) {
    return hand_out(counter(worker, owner), total, parts, most, first, end);
}

size_t gw_cpu_left(const gw_cpu_worker *worker, int owner, size_t total) {
    size_t at = atomic_load_explicit(counter(worker, owner), memory_order_relaxed);
    return at < total ? total - at : 0;
}

/* Counters are used again two launches later: after the next barrier, which orders this. */
static void clear_counters(const gw_cpu_worker *worker) {
    atomic_store_explicit(counter(worker, worker->id), 0, memory_order_relaxed);
    if (worker->id == 0) {
        atomic_store_explicit(counter(worker, -1), 0, memory_order_relaxed);
    }
}

static void walk(struct gw_segment *segment, gw_cpu_worker *worker, gw_barrier *b) {
    gw_node_time *times = worker->id == 0 ? segment->times : NULL;
    double before = times != NULL ? gw_seconds_now() : 0.0;
    char *counters[2] = {segment->counters, segment->counters + counter_bytes(segment)};
    int turn = 0;
    for (size_t i = 0; i < segment->n; i++) {
        const gw_cpu_launch *launch = &segment->launches[i];
        if (i + 1 < segment->n && launch[1].before == launch && gw_cpu_joins(launch + 1, worker)) {
            continue;
        }
        worker->counters = counters[turn];
        launch->run(launch, worker);
        gw_barrier_wait(b, (unsigned)worker->team, segment->device->spins);
        clear_counters(worker);
        turn = !turn;
        if (times != NULL) {
            double after = gw_seconds_now();
            gw_node_time *t = &times[launch->node];
            t->seconds += after - before;
            t->calls += i == 0 || segment->launches[i - 1].node != launch->node;
            before = after;
        }
    }
}

/* Which way of reading is fastest is the machine's affair: one place asked for early on a Zen 5,
 * where four were a fifth slower; six on a Sapphire Rapids, where one is a third slower; one that
 * is not asked for on a Zen 4, where the others are 7 to 17% slower. The bits are the same, so
 * some passes of one row try them in turn, after one that may find caches and pages cold. Memory
 * changes its speed between passes, so a way is compared with what is used in the same round, and
 * the middle of the rounds counts. Other programs can spoil that or change what is best, so it is
 * done again after twice as many passes (LATEST at most), and what was chosen stays where no
 * other way is clearly faster. */
static const int ways[GW_CPU_WAYS] = {GW_PLACES, 1, GW_UNASKED};

static int tries(const struct gw_segment *segment) {
    return segment->rows == 1 && segment->times == NULL && segment->passes >= segment->trial;
}

static size_t way_tried(const struct gw_segment *segment) {
    return (size_t)(segment->passes - segment->trial + GW_CPU_WAYS - 1) % GW_CPU_WAYS;
}

static int choose_streams(const struct gw_segment *segment) {
    return tries(segment) ? ways[way_tried(segment)] : segment->device->streams;
}

/* The middle of a way's seconds over those of way `now`, round by round. */
static double middle_share(const struct gw_segment *segment, int way, int now) {
    double share[GW_CPU_ROUNDS];
    for (int r = 0; r < GW_CPU_ROUNDS; r++) {
        const double s = segment->pace[r][way] / segment->pace[r][now];
        int at = r;
        for (; at > 0 && share[at - 1] > s; at--) {
            share[at] = share[at - 1];
        }
        share[at] = s;
    }
    return share[GW_CPU_ROUNDS / 2];
}

static void learn_streams(struct gw_segment *segment, double seconds) {
    const int n = (int)(segment->passes - segment->trial);
    if (n > 0) {
        segment->pace[(n - 1) / GW_CPU_WAYS][way_tried(segment)] = seconds;
    }
    if (n < GW_CPU_ROUNDS * GW_CPU_WAYS) {
        return;
    }
    int now = 0;
    double least = 0.97;
    for (int i = 1; i < GW_CPU_WAYS; i++) {
        now = segment->device->streams == ways[i] ? i : now;
    }
    int best = now;
    for (int i = 0; i < GW_CPU_WAYS; i++) {
        const double share = middle_share(segment, i, now);
        best = share < least ? i : best;
        least = share < least ? share : least;
    }
    segment->device->streams = ways[best];
    const uint64_t later = segment->passes + 64;
    segment->trial = segment->passes + (later < LATEST ? later : LATEST);
}

/* One step of a segment, for all threads of the team. */
typedef struct pass {
    struct gw_segment *segment;
    const gw_step *step;
    int streams;
    gw_barrier barrier;
} pass;

static void run_pass(void *user, int id, int team) {
    pass *p = user;
    struct gw_segment *segment = p->segment;
    char *scratch = segment->scratch + (size_t)id * segment->scratch_bytes;
    gw_cpu_worker worker = {.id = id,
                            .team = team,
                            .step = p->step,
                            .timed = segment->times != NULL,
                            .streams = p->streams,
                            .scratch = scratch,
                            .observe = segment->device->observe,
                            .observe_user = segment->device->observe_user,
                            .row = scratch + segment->scratch_bytes - segment->row_bytes,
                            .shared =
                                segment->scratch + segment->scratch_mapped - segment->shared_bytes};
    walk(segment, &worker, &p->barrier);
}

gw_status gw_cpu_run(struct gw_segment *segment, const gw_step *step) {
    if (step->n < 1 || step->n > segment->rows) {
        return gw_fail(GW_E_ARGUMENT, "cpu", "a step of %d rows for a plan of %d", step->n,
                       segment->rows);
    }
    int learns = tries(segment);
    pass p = {.segment = segment, .step = step, .streams = choose_streams(segment)};
    double began = learns ? gw_seconds_now() : 0.0;
    gw_team_run(segment->device->threads, run_pass, &p);
    if (learns) {
        learn_streams(segment, gw_seconds_now() - began);
    }
    segment->passes++;
    return GW_OK;
}
