/* backends/opencl/roof.c - measures how fast a device reads its memory (kernels_cl/roof.cl). */
#include "backends/opencl/opencl.h"

enum { TRIALS = 7, PIECE = 16384, GROUP = 256, GROUPS_OF_UNIT = 8 };

/* Far more than any cache: of a card, of a processor. */
static const cl_ulong most = (cl_ulong)4 << 30, most_of_item = (cl_ulong)512 << 20;

typedef struct reading {
    struct gw_device *device;
    struct gw_buffer *buffer;
    cl_kernel read;
    cl_ulong pieces;
    size_t items, local;
} reading;

/* Whole shares of every item, or rounds of all groups. */
static cl_ulong pieces_of(const struct gw_device *d, size_t round) {
    cl_ulong bytes = d->item ? most_of_item : most;
    cl_ulong left = d->memory > d->reserved ? (d->memory - d->reserved) / 8 : 0;
    bytes = bytes < d->max_alloc ? bytes : d->max_alloc;
    bytes = bytes < left || d->memory == 0 ? bytes : left;
    return bytes / PIECE > round ? bytes / PIECE / round * round : round;
}

static gw_status launch(const reading *r, double *seconds) {
    const struct gw_device *d = r->device;
    cl_ulong start = 0, end = 0;
    cl_event event;
    GW_TRY(gw_cl_check(d->cl->EnqueueNDRangeKernel(d->timed, r->read, 1, NULL, &r->items, &r->local,
                                                   0, NULL, &event),
                       "reading memory"));
    cl_int error = d->cl->Finish(d->timed);
    d->cl->GetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
    d->cl->GetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    d->cl->ReleaseEvent(event);
    *seconds = end > start ? 1e-9 * (double)(end - start) : 0.0;
    return gw_cl_check(error, "reading memory");
}

static gw_status make_kernel(reading *r, const gw_cl_program *program) {
    const gw_cl_driver *cl = r->device->cl;
    const cl_mem memory = r->buffer->chunks[0].mem;
    const cl_uint never = 1;
    cl_int error = CL_SUCCESS;
    r->read = cl->CreateKernel(program->program, "roof_read", &error);
    GW_TRY(gw_cl_check(error, "roof_read"));
    GW_TRY(gw_cl_check(cl->SetKernelArg(r->read, 0, sizeof memory, &memory), "roof_read"));
    GW_TRY(gw_cl_check(cl->SetKernelArg(r->read, 1, sizeof r->pieces, &r->pieces), "roof_read"));
    GW_TRY(gw_cl_check(cl->SetKernelArg(r->read, 2, sizeof memory, &memory), "roof_read"));
    return gw_cl_check(cl->SetKernelArg(r->read, 3, sizeof never, &never), "roof_read");
}

static gw_status measure(reading *r, gw_roof *out) {
    struct gw_device *d = r->device;
    const gw_cl_program *program;
    size_t groups = (size_t)(d->units > 0 ? d->units : 1) * GROUPS_OF_UNIT;
    double seconds;
    r->local = d->item ? 1 : GROUP;
    r->items = groups * r->local;
    r->pieces = pieces_of(d, d->item ? 4 * groups : groups);
    GW_TRY(gw_cl_program_of(d, gw_cl_text("kernels_cl/roof.cl"), "", &program));
    GW_TRY(gw_cl_alloc(d, (size_t)r->pieces * PIECE, &r->buffer));
    GW_TRY(make_kernel(r, program));
    GW_TRY(gw_cl_check(d->cl->Finish(d->queue), "clearing memory to read"));
    for (int i = 0; i < TRIALS; i++) {
        GW_TRY(launch(r, &seconds));
        double rate = seconds > 0 ? 1e-9 * (double)(r->pieces * PIECE) / seconds : 0;
        out->read_gbps = rate > out->read_gbps ? rate : out->read_gbps;
    }
    return GW_OK;
}

/* What there is no clock or no memory for is not measured: 0. */
gw_status gw_cl_roof(struct gw_device *device, gw_roof *out) {
    reading r = {.device = device};
    *out = (gw_roof){0};
    if (device->lost) {
        return gw_fail(GW_E_DEVICE, "opencl", "%s was lost earlier", device->name);
    }
    if (gw_cl_timed(device) == NULL) {
        return GW_OK;
    }
    gw_status status = measure(&r, out);
    if (r.read != NULL) {
        device->cl->ReleaseKernel(r.read);
    }
    gw_cl_release(r.buffer);
    return status == GW_E_NOMEM ? GW_OK : status;
}
