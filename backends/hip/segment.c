/* backends/hip/segment.c - nodes to launches, launches to a captured graph, and its replay. The
 * first kernel of the graph fetches the step block from pinned memory, and a kernel that draws
 * writes its tokens to pinned memory. So a pass is one call of the driver without copies: a copy
 * would switch the card between its copy and compute engines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "core/base/list.h"
#include "core/base/waits.h"
#include "kernels_hip/rows/rows_params.h"

enum { PLAIN_SHARED = 48 << 10 };

/* ---- recording ------------------------------------------------------------------------------- */

static gw_status grow(struct gw_segment *segment) {
    gw_hip_launch *launches =
        gw_list_grown(segment->launches, segment->n, &segment->capacity, sizeof *launches);
    if (launches == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for %zu launches", segment->n + 1);
    }
    segment->launches = launches;
    return GW_OK;
}

/* NVIDIA gives a block more than 48 KB of shared memory, its declared arrays included, only when it
 * is asked to; what is asked for is all there is, so that no launch lowers it for another. */
static gw_status allow_shared(struct gw_device *device, gw_hip_function function, unsigned bytes,
                              const char *kernel) {
    const gw_hip_driver *d = device->driver;
    int declared = 0, most = device->shared_bytes;
    if (d->FunctionGet != NULL &&
        d->FunctionGet(&declared, GW_HIP_FUNCTION_STATIC_SHARED, function) != GW_HIP_OK) {
        declared = 0;
    }
    if (most > 0 && bytes + (unsigned)declared > (unsigned)most) {
        return gw_fail(GW_E_UNSUPPORTED, "hip", "%s needs %u bytes of shared memory, %s has %d",
                       kernel, bytes + (unsigned)declared, device->name, most);
    }
    if (bytes + (unsigned)declared <= PLAIN_SHARED || d->FunctionSet == NULL) {
        return GW_OK;
    }
    return gw_hip_check(
        d, d->FunctionSet(function, GW_HIP_FUNCTION_DYNAMIC_SHARED, most - declared), kernel);
}

gw_status gw_hip_record(struct gw_segment *segment, const gw_node *node, const char *kernel,
                        unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        const void *params, size_t params_bytes) {
    (void)node;
    GW_TRY(grow(segment));
    gw_hip_launch *l = &segment->launches[segment->n];
    *l = (gw_hip_launch){.grid = {grid_x, grid_y, grid_z},
                         .block = {block_x, block_y, block_z},
                         .shared_bytes = shared_bytes,
                         .node = segment->node,
                         .ways = (1 << GW_HIP_ATTEND_KINDS) - 1};
    snprintf(l->kernel, sizeof l->kernel, "%s", kernel);
    GW_TRY(gw_hip_need_kernel(segment->device, kernel));
    l->params = malloc(params_bytes > 0 ? params_bytes : 1);
    if (l->params == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a launch");
    }
    memcpy(l->params, params, params_bytes);
    segment->n++;
    return GW_OK;
}

/* The last of *pieces [*count] that is large enough, or one more. */
static gw_status shared_memory(struct gw_device *device, gw_hip_piece **pieces, size_t *count,
                               size_t bytes, gw_hip_ptr *out) {
    size_t n = *count;
    *out = 0;
    if (bytes == 0) {
        return GW_OK;
    }
    if (n > 0 && (*pieces)[n - 1].bytes >= bytes) {
        *out = (*pieces)[n - 1].at;
        return GW_OK;
    }
    gw_hip_piece *list = realloc(*pieces, (n + 1) * sizeof *list);
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for scratch");
    }
    *pieces = list;
    GW_TRY(gw_hip_memory_new(device, bytes, &list[n].at));
    list[n].bytes = bytes;
    ++*count;
    *out = list[n].at;
    return GW_OK;
}

gw_status gw_hip_scratch(struct gw_segment *segment, size_t bytes, gw_hip_ptr *out) {
    struct gw_device *d = segment->device;
    return shared_memory(d, &d->scratch, &d->n_scratch, bytes, out);
}

void gw_hip_in_order(struct gw_segment *segment, size_t front) {
    for (size_t i = front; i < segment->n; i++) {
        segment->launches[i].in_order = 1;
    }
}

gw_status gw_hip_unpacked(struct gw_segment *segment, size_t bytes, gw_hip_ptr *out) {
    struct gw_device *d = segment->device;
    return shared_memory(d, &d->unpacked, &d->n_unpacked, bytes, out);
}

gw_status gw_hip_private(struct gw_segment *segment, size_t bytes, gw_hip_ptr *out) {
    struct gw_device *device = segment->device;
    size_t n = segment->n_pieces;
    gw_hip_piece *list = realloc(segment->pieces, (n + 1) * sizeof *list);
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a plan");
    }
    segment->pieces = list;
    GW_TRY(gw_hip_memory_new(device, bytes, &list[n].at));
    list[n].bytes = bytes;
    segment->n_pieces++;
    *out = list[n].at;
    return gw_hip_check(device->driver, device->driver->Fill(list[n].at, 0, bytes, device->stream),
                        "clearing memory");
}

gw_status gw_hip_counters(struct gw_segment *segment, size_t n, gw_hip_ptr *out) {
    size_t bytes = n * sizeof(uint32_t);
    if (segment->arrived.bytes < bytes) { /* a smaller one stays for the launches that have it */
        GW_TRY(gw_hip_private(segment, bytes, &segment->arrived.at));
        segment->arrived.bytes = bytes;
    }
    *out = segment->arrived.at;
    return GW_OK;
}

gw_status gw_hip_draws(struct gw_segment *segment, gw_hip_ptr ids, gw_hip_ptr *host) {
    void *drawn = NULL;
    segment->draws = 1;
    segment->ids = ids;
    GW_TRY(gw_hip_host_new(segment->device, 2 * (size_t)segment->rows * sizeof(int32_t), &drawn));
    segment->drawn = drawn;
    *host = (uint64_t)(uintptr_t)drawn;
    return GW_OK;
}

const int32_t *gw_hip_drawn(const struct gw_device *device, gw_hip_ptr at, size_t bytes) {
    const struct gw_segment *s = device->drew;
    if (s == NULL || at < s->ids || at + bytes > s->ids + (size_t)s->rows * sizeof(int32_t)) {
        return NULL;
    }
    return s->drawn + s->turn * s->rows + (at - s->ids) / sizeof(int32_t);
}

int gw_hip_disjoint(const gw_tensor *a, const gw_tensor *b) {
    size_t a_bytes, b_bytes;
    return gw_matrix_bytes(a->fmt, (uint64_t)a->dim[0], (uint64_t)a->dim[1], &a_bytes) == GW_OK &&
           gw_matrix_bytes(b->fmt, (uint64_t)b->dim[0], (uint64_t)b->dim[1], &b_bytes) == GW_OK &&
           (a->buf != b->buf || a->offset + a_bytes <= b->offset ||
            b->offset + b_bytes <= a->offset);
}

int gw_hip_same_place(const gw_tensor *a, const gw_tensor *b) {
    return a->buf == b->buf && a->offset == b->offset;
}

int gw_hip_resident(struct gw_device *device, const char *kernel, unsigned threads,
                    unsigned shared_bytes) {
    gw_hip_function function = NULL;
    int blocks = 0;
    if (gw_hip_find(device, kernel, &function) != GW_OK || device->driver->Occupancy == NULL ||
        allow_shared(device, function, shared_bytes, kernel) != GW_OK ||
        device->driver->Occupancy(&blocks, function, (int)threads, shared_bytes) != GW_HIP_OK) {
        return 1;
    }
    return blocks > 0 ? blocks : 1;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Of a launch with room for more attributes. */
static gw_hip_launch_config config_of(const struct gw_device *device, const gw_hip_launch *l,
                                      gw_hip_launch_attribute *attributes) {
    gw_hip_launch_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                   .block = {l->block[0], l->block[1], l->block[2]},
                                   .shared_bytes = l->shared_bytes,
                                   .stream = device->stream,
                                   .attributes = attributes};
    if (l->cluster > 1) {
        attributes[config.n_attributes++] = (gw_hip_launch_attribute){
            .id = GW_HIP_LAUNCH_CLUSTER, .value.size = {l->cluster, 1, 1}};
    }
    return config;
}

gw_hip_error gw_hip_start(struct gw_device *device, const gw_hip_launch *l, int after, int way) {
    const gw_hip_driver *d = device->driver;
    void *params[1] = {l->params};
    if (device->fail_launch > 0 && --device->fail_launch == 0) {
        return GW_HIP_OUT_OF_MEMORY;
    }
    gw_hip_launch_attribute attributes[3];
    gw_hip_launch_config config = config_of(device, l, attributes);
    if (after && !l->in_order && device->programmatic && d->LaunchEx != NULL) {
        attributes[config.n_attributes++] =
            (gw_hip_launch_attribute){.id = GW_HIP_LAUNCH_PROGRAMMATIC, .value.flag = 1};
        if (way > GW_HIP_ATTEND_PAGES && l->carve_out && device->has_carve_out) {
            attributes[config.n_attributes++] =
                (gw_hip_launch_attribute){.id = GW_HIP_LAUNCH_CARVEOUT, .value.flag = 100};
        }
    }
    if (config.n_attributes > 0) {
        return d->LaunchEx(&config, l->function, params, NULL);
    }
    return d->Launch(l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
                     l->block[2], l->shared_bytes, device->stream, params, NULL);
}

/* Kernels read the step before they wait for the launch in front of them, so the first one of a
 * way, whichever launch that is, begins when this one has ended. */
static gw_hip_error send_step(struct gw_segment *segment, int turn) {
    struct gw_take_step_params p = {.from = (uint64_t)(uintptr_t)segment->staging[turn],
                                    .to = segment->step,
                                    .n = (int32_t)(segment->step_bytes / sizeof(int32_t))};
    gw_hip_launch l = {.function = segment->take_step,
                       .grid = {1, 1, 1},
                       .block = {p.n <= GW_ROWS_THREADS ? GW_ROWS_THREADS : GW_TAKE_THREADS, 1, 1},
                       .params = &p};
    return gw_hip_start(segment->device, &l, 0, GW_HIP_ATTEND_MANY);
}

/* ---- freezing -------------------------------------------------------------------------------- */

static gw_status capture_part(struct gw_segment *segment, int turn, int way, size_t part) {
    struct gw_device *device = segment->device;
    const gw_hip_driver *d = device->driver;
    gw_hip_graph graph = NULL;
    GW_TRY(gw_hip_check(d, d->StreamWait(device->stream), "freezing a plan"));
    GW_TRY(gw_hip_check(d, d->CaptureBegin(device->stream, GW_HIP_CAPTURE_THREAD_LOCAL),
                        "capturing a graph"));
    const size_t first = segment->part[part], end = segment->part[part + 1];
    gw_hip_error error = part == 0 ? send_step(segment, turn) : GW_HIP_OK;
    const char *what = "the step block";
    int after = 0;
    for (size_t i = first; i < end && error == GW_HIP_OK; i++) {
        what = segment->launches[i].kernel;
        if (segment->launches[i].ways >> way & 1) {
            error = gw_hip_start(device, &segment->launches[i], after, way);
            after = 1;
        }
    }
    gw_hip_error ended = d->CaptureEnd(device->stream, &graph);
    gw_status status = GW_OK;
    if (error != GW_HIP_OK || ended != GW_HIP_OK) {
        status = gw_fail(GW_E_DEVICE, "hip", "capturing %s failed: %s", what,
                         gw_hip_error_name(d, error != GW_HIP_OK ? error : ended));
    } else {
        status = gw_hip_check(d, d->ExecNew(&segment->graph[way][turn][part], graph, 0),
                              "instantiating a graph");
    }
    if (graph != NULL) {
        d->GraphFree(graph);
    }
    return status;
}

static gw_status capture(struct gw_segment *segment, int turn, int way) {
    segment->graph[way][turn] = calloc(segment->n_parts, sizeof(gw_hip_exec));
    if (segment->graph[way][turn] == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for %zu graphs", segment->n_parts);
    }
    for (size_t part = 0; part < segment->n_parts; part++) {
        GW_TRY(capture_part(segment, turn, way, part));
    }
    return GW_OK;
}

/* Has nodes[0] no launch of its own? Of the nodes that are left there are n. */
static int has_none(struct gw_segment *segment, const gw_node *nodes, size_t n) {
    if (segment->unmade == &nodes[0]) {
        return 1;
    }
    if (segment->behind != NULL) {
        segment->norm = segment->behind;
        segment->behind = NULL;
        return 1;
    }
    if (n > 1 && segment->rows == 1 && gw_hip_can_fuse_rope(segment, &nodes[0], &nodes[1])) {
        segment->rope = &nodes[0];
        return 1;
    }
    if (gw_hip_can_fuse_order(segment, nodes, n)) {
        segment->order = &nodes[0];
        return 1;
    }
    segment->behind = n > 2 && gw_hip_can_fuse_norm(segment, nodes, n) ? &nodes[1] : NULL;
    if (segment->behind == NULL && gw_hip_can_fuse_norms(segment, nodes, n)) {
        segment->unmade = &nodes[1];
        segment->behind = &nodes[2];
    }
    return 0;
}

_Static_assert((int)GW_STEP_TURN == (int)GW_STEP_OWN && (int)GW_STEP_ROWS == (int)GW_STEP_HEAD &&
                   (int)GW_STEP_OF_ROW == (int)GW_STEP_WORDS,
               "kernels read what gw_step_pack writes");

static gw_status take_staging(struct gw_segment *segment, int turn) {
    void *staging = NULL;
    GW_TRY(gw_hip_host_new(segment->device, segment->step_bytes, &staging));
    segment->staging[turn] = staging;
    memset(staging, 0, segment->step_bytes);
    segment->staging[turn][GW_STEP_TURN] = turn;
    return GW_OK;
}

static gw_status capture_turn(struct gw_segment *segment, int turn) {
    GW_TRY(capture(segment, turn, GW_HIP_ATTEND_MANY));
    for (int way = GW_HIP_ATTEND_BLOCK, most = 0; way > GW_HIP_ATTEND_MANY; way--) {
        if (segment->most_pages[way] > most) {
            GW_TRY(capture(segment, turn, way));
            most = segment->most_pages[way];
        }
    }
    return GW_OK;
}

static gw_status record_all(struct gw_segment *segment, const gw_node *nodes, size_t n) {
    struct gw_device *device = segment->device;
    GW_TRY(gw_hip_landing_new(device));
    GW_TRY(gw_hip_slots_new(device));
    GW_TRY(gw_hip_memory_new(device, segment->step_bytes, &segment->step));
    GW_TRY(gw_hip_check(device->driver,
                        device->driver->Fill(segment->step, 0, segment->step_bytes, device->stream),
                        "clearing the step block")); /* rows that are not live may be read */
    GW_TRY(take_staging(segment, 0));
    GW_TRY(gw_hip_need_kernel(device, "gw_take_step"));
    for (size_t i = 0; i < n; i++) {
        segment->node = (int)i;
        GW_TRY(gw_hip_land(segment, &nodes[i]));
        if (has_none(segment, &nodes[i], n - i)) {
            continue;
        }
        size_t fused = 0;
        GW_TRY(gw_hip_record_together(segment, &nodes[i], n - i, &fused));
        if (fused > 0) {
            for (size_t k = 1; k < fused; k++) {
                GW_TRY(gw_hip_land(segment, &nodes[i + k]));
            }
            segment->front = nodes[i + fused - 1].op;
            segment->norm = segment->rope = segment->order = NULL;
            i += fused - 1;
            continue;
        }
        GW_TRY(gw_hip_record_node(segment, &nodes[i]));
        segment->front = nodes[i].op;
        segment->norm = segment->rope = segment->order = NULL;
        if (i + 1 < n && gw_hip_can_fuse_rope(segment, &nodes[i], &nodes[i + 1])) {
            segment->rope = &nodes[i]; /* its launch is left out where attention does it */
        }
        if (nodes[i].op == GW_OP_PICK) {
            segment->picked = 1;
        }
    }
    for (int turn = 0; turn < 2 && segment->draws; turn++) {
        GW_TRY(gw_hip_check(device->driver,
                            device->driver->EventNew(&segment->ended[turn], GW_HIP_EVENT_NO_TIMING),
                            "freezing a plan"));
    }
    return segment->draws ? take_staging(segment, 1) : GW_OK;
}

gw_status gw_hip_freeze(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                        struct gw_segment **out) {
    GW_TRY(gw_hip_enter(device));
    struct gw_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a plan");
    }
    gw_hip_ring_free(device); /* the weights are there */
    segment->device = device;
    segment->nodes = nodes;
    segment->n_nodes = n;
    segment->rows = rows;
    segment->step_bytes = gw_step_bytes(rows);
    gw_status status = record_all(segment, nodes, n);
    if (status != GW_OK) {
        gw_hip_segment_free(segment);
        return status;
    }
    segment->nodes = NULL;
    *out = segment;
    return GW_OK;
}

/* As many blocks as run at once: not all multiprocessors have enough neighbours. */
static void cut_clusters(const struct gw_device *device, gw_hip_launch *l) {
    gw_hip_launch_attribute attributes[1];
    gw_hip_launch_config config = config_of(device, l, attributes);
    int clusters = 0;
    if (device->driver->OccupancyClusters == NULL ||
        device->driver->OccupancyClusters(&clusters, l->function, &config) != GW_HIP_OK) {
        return;
    }
    unsigned most = (unsigned)clusters / l->grid[1] * l->cluster;
    if (most > 0 && most < l->grid[0]) {
        l->grid[0] = most;
    }
}

/* Now that the kernel is there. */
static gw_status complete(struct gw_device *device, gw_hip_launch *l) {
    GW_TRY(gw_hip_find(device, l->kernel, &l->function));
    GW_TRY(allow_shared(device, l->function, l->shared_bytes, l->kernel));
    if (l->fill > 0) {
        int resident = gw_hip_resident(device, l->kernel, l->block[0], l->shared_bytes);
        unsigned blocks = (unsigned)(device->units * resident) / l->fill * l->fill;
        blocks = blocks > 0 ? blocks : l->fill;
        l->grid[0] = l->grid[0] < blocks ? l->grid[0] : blocks;
    }
    if (l->cluster > 1) {
        cut_clusters(device, l);
    }
    return GW_OK;
}

/* A part ends behind so many exchanges: at the same ones on every card. */
static gw_status cut_parts(struct gw_segment *segment) {
    const int most = segment->device->part;
    int seen = 0;
    segment->part = calloc(segment->n + 2, sizeof *segment->part);
    if (segment->part == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for %zu launches", segment->n);
    }
    segment->n_parts = 1;
    for (size_t i = 0; i + 1 < segment->n; i++) {
        seen += segment->launches[i].exchanges;
        if (seen == most) {
            segment->part[segment->n_parts++] = i + 1;
            seen = 0;
        }
    }
    segment->part[segment->n_parts] = segment->n;
    return GW_OK;
}

gw_status gw_hip_ready(struct gw_segment *segment, const gw_watch *watch) {
    struct gw_device *device = segment->device;
    if (segment->is_ready) {
        return GW_OK;
    }
    GW_TRY(gw_hip_enter(device));
    GW_TRY(gw_hip_programs_build(device, watch));
    GW_TRY(gw_hip_find(device, "gw_take_step", &segment->take_step));
    for (size_t i = 0; i < segment->n; i++) {
        GW_TRY(complete(device, &segment->launches[i]));
    }
    GW_TRY(segment->part == NULL ? cut_parts(segment) : GW_OK);
    for (int turn = 0; device->driver->graphs && !device->no_graph && turn <= segment->draws;
         turn++) {
        GW_TRY(capture_turn(segment, turn));
    }
    segment->is_ready = 1;
    return GW_OK;
}

static void free_events(struct gw_segment *segment) {
    for (size_t i = 0; segment->events != NULL && i <= segment->n; i++) {
        if (segment->events[i] != NULL) {
            segment->device->driver->EventFree(segment->events[i]);
        }
    }
    free(segment->events);
    segment->events = NULL;
}

/* What a step of a segment, not NULL, leaves in host memory until that is taken again; or it was.
 */
struct gw_post {
    struct gw_device *device;
    struct gw_segment *segment;
    int turn;
    const int32_t *drawn;
    int32_t value;
};

static void forget_segment(struct gw_post *post) {
    if (post->segment != NULL) {
        post->segment->post[post->turn] = NULL;
        post->segment = NULL;
    }
}

/* The step of that turn has ended, and what it left is about to be gone. */
static void settle(struct gw_segment *segment, int turn) {
    struct gw_post *post = segment->post[turn];
    if (post != NULL) {
        post->value = *post->drawn;
        forget_segment(post);
    }
}

static void free_graphs(struct gw_segment *segment, gw_hip_exec *graphs) {
    for (size_t part = 0; graphs != NULL && part < segment->n_parts; part++) {
        if (graphs[part] != NULL) {
            segment->device->driver->ExecFree(graphs[part]);
        }
    }
    free(graphs);
}

void gw_hip_segment_free(struct gw_segment *segment) {
    if (segment == NULL) {
        return;
    }
    struct gw_device *device = segment->device;
    (void)gw_hip_enter(device);
    /* nothing may use what is freed now */
    (void)GW_WAITED(device->driver->StreamWait(device->stream));
    if (device->drew == segment) {
        device->drew = NULL;
    }
    if (device->timed == segment) {
        device->timed = NULL;
    }
    for (int turn = 0; turn < 2; turn++) {
        settle(segment, turn);
        for (int way = 0; way < GW_HIP_ATTEND_KINDS; way++) {
            free_graphs(segment, segment->graph[way][turn]);
        }
        if (segment->ended[turn] != NULL) {
            device->driver->EventFree(segment->ended[turn]);
        }
        if (segment->staging[turn] != NULL) {
            device->driver->HostFree(segment->staging[turn]);
        }
    }
    if (segment->drawn != NULL) {
        device->driver->HostFree(segment->drawn);
    }
    gw_hip_landed_free(segment);
    free_events(segment);
    for (size_t i = 0; i < segment->n; i++) {
        free(segment->launches[i].params);
    }
    for (size_t i = 0; i < segment->n_pieces; i++) {
        gw_hip_memory_free(device, segment->pieces[i].at, segment->pieces[i].bytes);
    }
    gw_hip_memory_free(device, segment->step, segment->step_bytes);
    free(segment->pieces);
    free(segment->part);
    free(segment->launches);
    free(segment);
}

/* ---- replay ---------------------------------------------------------------------------------- */

static void add_times(struct gw_segment *segment, int way) {
    int before = -1;
    for (size_t i = 0; i < segment->n; i++) {
        float ms = 0.0f;
        int node = segment->launches[i].node;
        if (!(segment->launches[i].ways >> way & 1)) {
            continue;
        }
        segment->device->driver->EventTime(&ms, segment->events[i], segment->events[i + 1]);
        segment->times[node].seconds += ms > 0.0f ? 1e-3 * (double)ms : 0.0;
        segment->times[node].calls += node != before;
        before = node;
    }
}

static int is_timed(const struct gw_segment *segment) {
    return segment->times != NULL && segment->events != NULL;
}

/* Launch by launch; timed: with an event before, between and after. */
static gw_status run_list(struct gw_segment *segment, int way, size_t part) {
    struct gw_device *device = segment->device;
    const gw_hip_driver *d = device->driver;
    const size_t first = segment->part[part], end = segment->part[part + 1];
    int timed = is_timed(segment);
    gw_hip_error error = part == 0 ? send_step(segment, segment->turn) : GW_HIP_OK;
    const char *what = "the step block was sent";
    int after = 0;
    if (timed && part == 0 && error == GW_HIP_OK) {
        error = d->EventRecord(segment->events[0], device->stream);
    }
    for (size_t i = first; i < end && error == GW_HIP_OK; i++) {
        what = segment->launches[i].kernel;
        if (segment->launches[i].ways >> way & 1) {
            error = gw_hip_start(device, &segment->launches[i], after, way);
            after = !timed && !device->check;
        }
        if (timed && error == GW_HIP_OK) {
            error = d->EventRecord(segment->events[i + 1], device->stream);
        }
        if (device->check && error == GW_HIP_OK) {
            error = d->StreamWait(device->stream);
        }
    }
    if (error != GW_HIP_OK) {
        d->StreamWait(device->stream);
        return gw_hip_lose(device, error, what);
    }
    return GW_OK;
}

/* Until the copy from this turn's staging is over. */
static gw_status free_staging(struct gw_segment *segment, int turn) {
    struct gw_device *device = segment->device;
    if (!segment->ran[turn] || segment->waits[turn] != device->waits) {
        return GW_OK;
    }
    if (segment->ended[turn] == NULL) {
        return gw_hip_wait(device);
    }
    gw_hip_error error = GW_WAITED(device->driver->EventWait(segment->ended[turn]));
    return error == GW_HIP_OK ? GW_OK : gw_hip_lose(device, error, "finishing a step");
}

gw_status gw_hip_launch_part(struct gw_segment *segment, int way, size_t part) {
    struct gw_device *device = segment->device;
    GW_TRY(gw_hip_choose(device));
    if (segment->graph[GW_HIP_ATTEND_MANY][segment->turn] == NULL || is_timed(segment)) {
        return run_list(segment, way, part);
    }
    gw_hip_error error = GW_HIP_OUT_OF_MEMORY;
    if (device->fail_launch == 0 || --device->fail_launch > 0) {
        error = device->driver->ExecLaunch(segment->graph[way][segment->turn][part],
                                           device->stream);
    }
    return error == GW_HIP_OK ? GW_OK : gw_hip_lose(device, error, "a graph was launched");
}

gw_status gw_hip_launch_end(struct gw_segment *segment, int way) {
    struct gw_device *device = segment->device;
    gw_hip_error error = GW_HIP_OK;
    GW_TRY(gw_hip_choose(device));
    if (is_timed(segment)) { /* read later: other cards may be still to be given their launches */
        device->timed = segment;
        device->timed_way = way;
        GW_TRY(device->link == NULL ? gw_hip_wait(device) : GW_OK);
    }
    error = gw_hip_send_landed(segment);
    if (segment->ended[segment->turn] != NULL && error == GW_HIP_OK) {
        error = device->driver->EventRecord(segment->ended[segment->turn], device->stream);
    }
    return error == GW_HIP_OK ? GW_OK : gw_hip_lose(device, error, "a step ran");
}

/* The step that is in staging. */
static gw_status launch(struct gw_segment *segment, int pages) {
    struct gw_device *device = segment->device;
    int way = GW_HIP_ATTEND_BLOCK;
    while (way > GW_HIP_ATTEND_MANY && pages > segment->most_pages[way]) {
        way--;
    }
    if (is_timed(segment) && device->timed != NULL) {
        GW_TRY(gw_hip_wait(device));
    }
    return gw_hip_launch_group(segment, way);
}

gw_status gw_hip_run(struct gw_segment *segment, const gw_step *step) {
    struct gw_device *device = segment->device;
    if (step->n < 1 || step->n > segment->rows || step->n_pick > segment->rows) {
        return gw_fail(GW_E_ARGUMENT, "hip", "a step of %d rows for a plan of %d", step->n,
                       segment->rows);
    }
    if (device->lost) {
        return gw_fail(GW_E_DEVICE, "hip", "%s was lost earlier", device->name);
    }
    GW_TRY(gw_hip_ready(segment, NULL));
    GW_TRY(device->link != NULL ? gw_hip_launch_waiting(device) : GW_OK);
    GW_TRY(gw_hip_choose(device));
    int turn = segment->turn = segment->draws ? !segment->turn : 0;
    GW_TRY(free_staging(segment, turn));
    settle(segment, turn);
    device->drew = segment->draws ? segment : device->drew;
    segment->ran[turn] = 1;
    segment->waits[turn] = device->waits;
    (void)gw_step_pack(step, segment->rows, segment->staging[turn]);
    segment->staging[turn][GW_STEP_EXCHANGES] = gw_hip_count_exchanges(segment);
    return launch(segment, step->pos_max / GW_PAGE + 1);
}

gw_status gw_hip_wait(struct gw_device *device) {
    GW_TRY(gw_hip_enter(device));
    gw_hip_error error = GW_WAITED(device->driver->StreamWait(device->stream));
    device->waits++;
    if (error == GW_HIP_OK && gw_hip_link_lost(device)) {
        device->lost = 1;
        return gw_fail(GW_E_DEVICE, "hip", "a card that shares layers with %s does not answer",
                       device->name);
    }
    if (device->timed != NULL && error == GW_HIP_OK) {
        add_times(device->timed, device->timed_way);
    }
    device->timed = NULL;
    return error == GW_HIP_OK ? GW_OK : gw_hip_lose(device, error, "finishing a step");
}

void gw_hip_profile(struct gw_segment *segment, gw_node_time *times) {
    if (segment->device->timed == segment) { /* its events are read into the times of before */
        (void)gw_hip_wait(segment->device);
    }
    segment->times = times;
    if (times == NULL || segment->events != NULL || gw_hip_enter(segment->device) != GW_OK) {
        return;
    }
    segment->events = calloc(segment->n + 1, sizeof(gw_hip_event));
    for (size_t i = 0; segment->events != NULL && i <= segment->n; i++) {
        if (segment->device->driver->EventNew(&segment->events[i], 0) != GW_HIP_OK) {
            free_events(segment); /* then nothing is timed */
            return;
        }
    }
}

/* ---- numbers on their way -------------------------------------------------------------------- */

gw_status gw_hip_post_new(struct gw_device *device, struct gw_post **out) {
    struct gw_post *post = calloc(1, sizeof *post);
    if (post == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a post");
    }
    post->device = device;
    *out = post;
    return GW_OK;
}

void gw_hip_post_free(struct gw_post *post) {
    forget_segment(post);
    free(post);
}

gw_status gw_hip_post(struct gw_post *post, const struct gw_buffer *src, size_t at) {
    struct gw_segment *drew = post->device->drew;
    forget_segment(post);
    post->drawn = gw_hip_drawn(post->device, src->at + at, sizeof post->value);
    if (post->drawn == NULL || drew->post[drew->turn] != NULL) {
        return gw_fail(GW_E_ARGUMENT, "hip", "no step has just drawn what is posted");
    }
    post->segment = drew;
    post->turn = drew->turn;
    drew->post[post->turn] = post;
    return GW_OK;
}

gw_status gw_hip_collect(struct gw_post *post, int32_t *out) {
    if (post->segment != NULL) {
        GW_TRY(gw_hip_enter(post->device));
        gw_hip_error error =
            GW_WAITED(post->device->driver->EventWait(post->segment->ended[post->turn]));
        if (error != GW_HIP_OK) {
            return gw_hip_lose(post->device, error, "a token was awaited");
        }
        post->value = *post->drawn;
    }
    *out = post->value;
    return GW_OK;
}
