/* backends/opencl/segment.c - nodes to prepared launches, and their replay: one write of the step
 * block, then the list. Arguments are set once; grids cover the plan's rows and groups beyond the
 * live ones leave at once, so nothing is edited per token.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/base/list.h"
#include "core/base/waits.h"

/* ---- recording ------------------------------------------------------------------------------- */

gw_status gw_cl_pool_get(struct gw_device *device, gw_cl_pool *pool, size_t bytes, cl_mem *out) {
    if (pool->n > 0 && pool->bytes >= bytes) {
        *out = pool->list[pool->n - 1];
        return GW_OK;
    }
    cl_mem *list = realloc(pool->list, (pool->n + 1) * sizeof *list);
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for scratch");
    }
    pool->list = list;
    GW_TRY(gw_cl_new_mem(device, bytes, &list[pool->n]));
    pool->n++;
    pool->bytes = bytes;
    *out = list[pool->n - 1];
    return GW_OK;
}

gw_status gw_cl_scratch(struct gw_device *device, size_t bytes, cl_mem *out) {
    return gw_cl_pool_get(device, &device->scratch, bytes, out);
}

static gw_status grow(struct gw_segment *segment) {
    gw_cl_launch *launches =
        gw_list_grown(segment->launches, segment->n, &segment->capacity, sizeof *launches);
    if (launches == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for %zu launches", segment->n + 1);
    }
    segment->launches = launches;
    return GW_OK;
}

gw_cl_call gw_cl_launch_new(struct gw_segment *segment, const char *source, const char *options,
                            const char *kernel) {
    gw_cl_call call = {.segment = segment};
    struct gw_device *device = segment->device;
    const gw_cl_program *program = NULL;
    call.status = grow(segment);
    if (call.status == GW_OK) {
        call.status = gw_cl_program_get(device, source, options, &program);
    }
    if (call.status == GW_OK) {
        cl_int error = CL_SUCCESS;
        gw_cl_launch *launch = &segment->launches[segment->n];
        memset(launch, 0, sizeof *launch);
        launch->node = segment->node;
        launch->program = program;
        launch->name = kernel;
        launch->kernel = device->cl->CreateKernel(program->program, kernel, &error);
        call.status = gw_cl_check(error, kernel);
        call.launch = launch;
        segment->n += error == CL_SUCCESS;
    }
    return call;
}

static void set(gw_cl_call *call, gw_cl_arg arg, size_t bytes, const void *value) {
    if (call->status == GW_OK) {
        gw_cl_launch *l = call->launch;
        call->status =
            gw_cl_check(call->segment->device->cl->SetKernelArg(l->kernel, l->n_args, bytes, value),
                        "setting an argument");
        l->args[l->n_args < GW_CL_MOST_ARGS ? l->n_args : 0] = arg;
        l->n_args++;
    }
}

void gw_cl_arg_mem(gw_cl_call *call, cl_mem mem, cl_ulong offset) {
    set(call, (gw_cl_arg){.kind = GW_CL_ARG_MEM, .mem = mem}, sizeof mem, &mem);
    gw_cl_arg_ulong(call, offset);
}

void gw_cl_arg_tensor(gw_cl_call *call, const gw_tensor *t) {
    gw_cl_arg_mem(call, t != NULL ? gw_cl_mem(t) : call->segment->step, t != NULL ? t->offset : 0);
}

void gw_cl_arg_int(gw_cl_call *call, int64_t value) {
    cl_int v = (cl_int)value;
    if (call->status == GW_OK && v != value) {
        call->status =
            gw_fail(GW_E_OVERFLOW, "opencl", "%lld is too large for a kernel", (long long)value);
    }
    set(call, (gw_cl_arg){.kind = GW_CL_ARG_INT, .value = (cl_ulong)value}, sizeof v, &v);
}

void gw_cl_arg_ulong(gw_cl_call *call, cl_ulong value) {
    set(call, (gw_cl_arg){.kind = GW_CL_ARG_ULONG, .value = value}, sizeof value, &value);
}

void gw_cl_arg_float(gw_cl_call *call, float value) {
    cl_uint bits;
    memcpy(&bits, &value, sizeof bits);
    set(call, (gw_cl_arg){.kind = GW_CL_ARG_FLOAT, .value = bits}, sizeof value, &value);
}

void gw_cl_arg_step(gw_cl_call *call) {
    cl_mem step = call->segment->step;
    set(call, (gw_cl_arg){.kind = GW_CL_ARG_MEM, .mem = step}, sizeof step, &step);
    gw_cl_arg_int(call, call->segment->rows);
    gw_cl_arg_int(call, call->segment->picked);
}

gw_status gw_cl_launch_end(gw_cl_call *call, size_t local, size_t groups_x, size_t groups_y,
                           size_t groups_z) {
    if (call->status == GW_OK) {
        gw_cl_launch *l = call->launch;
        l->n_dim = groups_z > 1 ? 3 : groups_y > 1 ? 2 : 1;
        l->global[0] = groups_x * local;
        l->global[1] = groups_y;
        l->global[2] = groups_z;
        l->local[0] = local;
        l->local[1] = l->local[2] = 1;
    }
    return call->status;
}

gw_status gw_cl_private(struct gw_segment *segment, const void *from, size_t bytes, cl_mem *out) {
    size_t n = segment->n_own;
    struct gw_buffer **own = realloc(segment->own, (n + 1) * sizeof *own);
    if (own == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a plan");
    }
    segment->own = own;
    GW_TRY(gw_cl_alloc(segment->device, bytes, &own[n]));
    segment->n_own++;
    *out = own[n]->chunks[0].mem;
    return gw_cl_write(own[n], 0, from, bytes);
}

static gw_status new_zeros(struct gw_device *device, size_t bytes, cl_mem *out) {
    static const cl_int zero = 0;
    GW_TRY(gw_cl_new_mem(device, bytes, out));
    return gw_cl_check(device->cl->EnqueueFillBuffer(device->queue, *out, &zero, sizeof zero, 0,
                                                     bytes, 0, NULL, NULL),
                       "clearing a buffer");
}

static gw_status new_counters(struct gw_segment *segment, const gw_node *nodes, size_t n) {
    struct gw_device *device = segment->device;
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t each = nodes[i].op == GW_OP_ATTENTION ? (size_t)nodes[i].args.attn.kv_heads
                      : nodes[i].op == GW_OP_SAMPLE  ? 2
                                                     : 0;
        most = each > most ? each : most;
    }
    if (device->item || most == 0) {
        return GW_OK;
    }
    size_t bytes = most * (size_t)segment->rows * sizeof(cl_int);
    segment->arrived_bytes = bytes;
    return new_zeros(device, bytes, &segment->arrived);
}

/* Is `node` recorded together with the one that follows? */
static int waits(struct gw_segment *segment, const gw_node *node, const gw_node *next) {
    if (gw_cl_takes_norm(segment, node, next)) {
        segment->norm = node;
    } else if (gw_cl_takes_rope(segment, node, next)) {
        segment->rope = node;
    }
    return segment->norm == node || segment->rope == node;
}

/* With NVIDIA's driver 580 (H100) a write of more than a kilobyte of pinned memory took some 300 us
 * while kernels ran; one of ordinary memory took no time that showed. */
static gw_status new_staging(struct gw_segment *segment) {
    enum { MOST_PINNED = 1024 };
    size_t bytes = segment->staging_bytes;
    if (bytes <= MOST_PINNED) {
        GW_TRY(gw_cl_pin(segment->device, 2 * bytes, &segment->pinned));
        segment->staging[0] = segment->pinned.at;
    } else {
        segment->staging[0] = calloc(2, bytes);
        if (segment->staging[0] == NULL) {
            return gw_fail(GW_E_NOMEM, "opencl", "no memory for a step of %d rows", segment->rows);
        }
    }
    segment->staging[1] = segment->staging[0] + bytes / sizeof(int32_t);
    return GW_OK;
}

gw_status gw_cl_freeze(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                       struct gw_segment **out) {
    gw_status status = GW_OK;
    struct gw_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a plan");
    }
    segment->device = device;
    segment->rows = rows;
    segment->staging_bytes = gw_step_bytes(rows);
    GW_TRY_DONE(new_staging(segment));
    /* Kernels may read rows that are not live. */
    GW_TRY_DONE(new_zeros(device, segment->staging_bytes, &segment->step));
    GW_TRY_DONE(new_counters(segment, nodes, n));
    for (size_t i = 0; i < n; i++) {
        segment->node = (int)i;
        if (i + 1 < n && waits(segment, &nodes[i], &nodes[i + 1])) {
            continue;
        }
        GW_TRY_DONE(nodes[i].kernel->record(segment, nodes[i].kernel, &nodes[i]));
        segment->norm = segment->rope = NULL;
        if (nodes[i].op == GW_OP_PICK) {
            segment->picked = 1;
        }
    }
    GW_TRY_DONE(gw_cl_walk_new(segment));
    *out = segment;
    segment = NULL;
done:
    gw_cl_segment_free(segment);
    return status;
}

void gw_cl_segment_free(struct gw_segment *segment) {
    if (segment == NULL) {
        return;
    }
    struct gw_device *device = segment->device;
    if (segment->unfinished) {
        (void)GW_WAITED(device->cl->Finish(device->queue));
    }
    gw_cl_walk_free(segment);
    for (size_t i = 0; i < segment->n; i++) {
        device->cl->ReleaseKernel(segment->launches[i].kernel);
    }
    if (segment->arrived != NULL) {
        device->cl->ReleaseMemObject(segment->arrived);
        device->reserved -= segment->arrived_bytes;
    }
    if (segment->step != NULL) {
        device->cl->ReleaseMemObject(segment->step);
        device->reserved -= segment->staging_bytes;
    }
    for (size_t i = 0; i < segment->n_own; i++) {
        gw_cl_release(segment->own[i]);
    }
    free(segment->own);
    free(segment->events);
    free(segment->launches);
    for (int i = 0; i < 2; i++) {
        if (segment->sent[i] != NULL) {
            device->cl->ReleaseEvent(segment->sent[i]);
        }
    }
    if (segment->pinned.mem == NULL) {
        free(segment->staging[0]);
    }
    gw_cl_unpin(device, &segment->pinned);
    free(segment);
}

/* ---- replay ---------------------------------------------------------------------------------- */

static gw_status lose(struct gw_device *device, cl_int error, const char *what) {
    device->lost = 1;
    return gw_fail(GW_E_DEVICE, "opencl", "%s was lost while %s: %s", device->name, what,
                   gw_cl_error_name(error));
}

/* Is it not to run, because CLBlast does the product, or does not? */
static int left_out(struct gw_segment *segment, cl_command_queue queue, const gw_cl_launch *l,
                    const gw_step *step, cl_event *event) {
    switch (l->part) {
    case GW_CL_ALONE:
        return 0;
    case GW_CL_WIDENS:
        return segment->device->blas != GW_CL_BLAS_WORKS;
    case GW_CL_MULTIPLIES:
        segment->multiplied = gw_cl_blas_multiply(segment, l, queue, step, event);
        return segment->multiplied;
    case GW_CL_FINISHES:
        return !segment->multiplied;
    }
    return 0;
}

static cl_int enqueue(struct gw_segment *segment, cl_command_queue queue, const gw_cl_launch *l,
                      const gw_step *step, cl_event *event) {
    struct gw_device *device = segment->device;
    size_t global[3] = {l->global[0], l->global[1], l->global[2]};
    if (left_out(segment, queue, l, step, event)) {
        return CL_SUCCESS;
    }
    if (l->page_groups > 0) {
        size_t pages = (size_t)step->pos_max / GW_PAGE + 1;
        global[0] = l->local[0] * (pages < l->page_groups ? pages : l->page_groups);
    }
    if (device->fail_enqueue > 0 && --device->fail_enqueue == 0) {
        return CL_OUT_OF_RESOURCES;
    }
    return device->cl->EnqueueNDRangeKernel(queue, l->kernel, l->n_dim, NULL, global, l->local, 0,
                                            NULL, event);
}

static void add_times(struct gw_segment *segment, size_t n) {
    const gw_cl_driver *cl = segment->device->cl;
    cl_ulong start = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        if (segment->events[i] == NULL) {
            continue; /* left out */
        }
        if (segment->launches[i].part == GW_CL_MULTIPLIES) {
            start = end; /* the event is that of the last of CLBlast's launches */
        } else {
            cl->GetEventProfilingInfo(segment->events[i], CL_PROFILING_COMMAND_START, sizeof start,
                                      &start, NULL);
        }
        cl->GetEventProfilingInfo(segment->events[i], CL_PROFILING_COMMAND_END, sizeof end, &end,
                                  NULL);
        cl->ReleaseEvent(segment->events[i]);
        int node = segment->launches[i].node;
        segment->times[node].seconds += end > start ? 1e-9 * (double)(end - start) : 0.0;
        segment->times[node].calls += i == 0 || segment->launches[i - 1].node != node;
    }
}

gw_status gw_cl_run(struct gw_segment *segment, const gw_step *step) {
    struct gw_device *device = segment->device;
    const gw_cl_driver *cl = device->cl;
    int timed = segment->times != NULL && segment->events != NULL && device->timed != NULL;
    cl_command_queue queue = timed ? device->timed : device->queue;
    if (step->n < 1 || step->n > segment->rows || step->n_pick > segment->rows) {
        return gw_fail(GW_E_ARGUMENT, "opencl", "a step of %d rows for a plan of %d", step->n,
                       segment->rows);
    }
    if (device->lost) {
        return gw_fail(GW_E_DEVICE, "opencl", "%s was lost earlier", device->name);
    }
    int turn = segment->turn = !segment->turn;
    cl_int error = timed ? GW_WAITED(cl->Finish(device->queue)) : CL_SUCCESS;
    if (error == CL_SUCCESS && segment->sent[turn] != NULL) {
        error = GW_WAITED(cl->WaitForEvents(1, &segment->sent[turn]));
        cl->ReleaseEvent(segment->sent[turn]);
        segment->sent[turn] = NULL;
    }
    if (error != CL_SUCCESS) {
        return lose(device, error, "finishing a step");
    }
    const size_t bytes = gw_step_pack(step, segment->rows, segment->staging[turn]);
    size_t done = 0;
    segment->unfinished = 1;
    if (segment->walk != NULL && !timed) {
        error = gw_cl_walk_enqueue(segment, segment->staging[turn]);
        done = segment->n;
    } else {
        error = cl->EnqueueWriteBuffer(queue, segment->step, CL_FALSE, 0, bytes,
                                       segment->staging[turn], 0, NULL, &segment->sent[turn]);
        segment->sent[turn] = error == CL_SUCCESS ? segment->sent[turn] : NULL;
    }
    if (timed) {
        memset(segment->events, 0, segment->n * sizeof *segment->events);
    }
    for (; done < segment->n && error == CL_SUCCESS; done++) {
        error = enqueue(segment, queue, &segment->launches[done], step,
                        timed ? &segment->events[done] : NULL);
    }
    if (error != CL_SUCCESS) {
        done -= done > 0;
        (void)GW_WAITED(
            cl->Finish(queue)); /* nothing may still use the buffers that the caller frees */
        for (size_t i = 0; timed && i < done; i++) {
            if (segment->events[i] != NULL) {
                cl->ReleaseEvent(segment->events[i]);
            }
        }
        return lose(device, error, "a step was enqueued");
    }
    if (timed) {
        error = GW_WAITED(cl->Finish(queue));
        add_times(segment, segment->n);
    } else {
        error = cl->Flush(queue);
    }
    return error == CL_SUCCESS ? GW_OK : lose(device, error, "a step ran");
}

gw_status gw_cl_wait(struct gw_device *device) {
    cl_int error = GW_WAITED(device->cl->Finish(device->queue));
    return error == CL_SUCCESS ? GW_OK : lose(device, error, "finishing a step");
}

/* ---- numbers on their way -------------------------------------------------------------------- */

struct gw_post {
    struct gw_device *device;
    cl_event there;     /* NULL: nothing is under way */
    gw_cl_pinned value; /* int32_t */
};

gw_status gw_cl_post_new(struct gw_device *device, struct gw_post **out) {
    struct gw_post *post = calloc(1, sizeof *post);
    if (post == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a post");
    }
    post->device = device;
    gw_status status = gw_cl_pin(device, sizeof(int32_t), &post->value);
    if (status != GW_OK) {
        free(post);
        return status;
    }
    *out = post;
    return GW_OK;
}

static cl_int settle(struct gw_post *post) {
    const gw_cl_driver *cl = post->device->cl;
    cl_int error = CL_SUCCESS;
    if (post->there != NULL) {
        error = GW_WAITED(cl->WaitForEvents(1, &post->there));
        cl->ReleaseEvent(post->there);
        post->there = NULL;
    }
    return error;
}

void gw_cl_post_free(struct gw_post *post) {
    settle(post);
    gw_cl_unpin(post->device, &post->value);
    free(post);
}

gw_status gw_cl_post(struct gw_post *post, const struct gw_buffer *src, size_t at) {
    struct gw_device *device = post->device;
    cl_int error = settle(post); /* one that nobody has collected */
    if (error == CL_SUCCESS) {
        error =
            device->cl->EnqueueReadBuffer(device->queue, src->chunks[0].mem, CL_FALSE, at,
                                          sizeof(int32_t), post->value.at, 0, NULL, &post->there);
        post->there = error == CL_SUCCESS ? post->there : NULL;
    }
    if (error == CL_SUCCESS) {
        error = device->cl->Flush(device->queue);
    }
    return error == CL_SUCCESS ? GW_OK : lose(device, error, "a token was posted");
}

gw_status gw_cl_collect(struct gw_post *post, int32_t *out) {
    cl_int error = settle(post);
    if (error != CL_SUCCESS) {
        return lose(post->device, error, "a token was awaited");
    }
    memcpy(out, post->value.at, sizeof *out);
    return GW_OK;
}

/* ---- times ----------------------------------------------------------------------------------- */

void gw_cl_profile(struct gw_segment *segment, gw_node_time *times) {
    struct gw_device *device = segment->device;
    segment->times = times;
    if (times == NULL) {
        return;
    }
    if (segment->events == NULL) {
        segment->events = calloc(segment->n + 1, sizeof(cl_event));
    }
    gw_cl_timed(device);
}
