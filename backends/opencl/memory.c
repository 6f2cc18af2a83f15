/* backends/opencl/memory.c - buffers of a device. */
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/base/os.h"
#include "core/base/size.h"
#include "core/base/team.h"
#include "core/base/text.h"
#include "core/base/waits.h"

/* ---- allocation ------------------------------------------------------------------------------ */

static gw_status create_at(struct gw_device *device, cl_ulong flags, void *at, size_t bytes,
                           cl_mem *out) {
    char need[GW_SIZE_TEXT];
    cl_int error = CL_SUCCESS;
    if (device->fail_alloc > 0 && --device->fail_alloc == 0) {
        return gw_fail(GW_E_NOMEM, "opencl", "%s refused %s (simulated)", device->name,
                       gw_text_size(bytes, 4, need));
    }
    *out = device->cl->CreateBuffer(device->context, flags, bytes > 0 ? bytes : 4, at, &error);
    if (error != CL_SUCCESS || *out == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "%s refused %s: %s", device->name,
                       gw_text_size(bytes, 4, need), gw_cl_error_name(error));
    }
    return GW_OK;
}

static gw_status create(struct gw_device *device, cl_ulong flags, size_t bytes, cl_mem *out) {
    return create_at(device, CL_MEM_READ_WRITE | flags, NULL, bytes, out);
}

/* Nothing writes to it: kernels take weights as const. */
static gw_status create_there(struct gw_device *device, const void *there, size_t bytes,
                              cl_mem *out) {
    void *address;
    memcpy(&address, &there, sizeof address);
    return create_at(device, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, address, bytes, out);
}

static gw_status check_piece(const struct gw_device *device, size_t bytes) {
    char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
    return bytes <= device->max_alloc
               ? GW_OK
               : gw_fail(GW_E_NOMEM, "opencl", "needs %s in one piece, %s gives at most %s",
                         gw_text_size(bytes, 4, need), device->name,
                         gw_text_size(device->max_alloc, 4, have));
}

gw_status gw_cl_new_mem(struct gw_device *device, size_t bytes, cl_mem *out) {
    char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
    cl_mem mem;
    GW_TRY(check_piece(device, bytes));
    if (device->memory > 0 &&
        bytes > device->memory -
                    (device->reserved < device->memory ? device->reserved : device->memory)) {
        return gw_fail(GW_E_NOMEM, "opencl", "needs %s, %s of %s are left",
                       gw_text_size(bytes, 4, need),
                       gw_text_size(device->memory - device->reserved, 4, have), device->name);
    }
    GW_TRY(create(device, 0, bytes, &mem));
    device->reserved += bytes;
    *out = mem;
    return GW_OK;
}

gw_status gw_cl_pin(struct gw_device *device, size_t bytes, gw_cl_pinned *out) {
    const gw_cl_driver *cl = device->cl;
    cl_int error = CL_SUCCESS;
    cl_mem mem;
    GW_TRY(create(device, CL_MEM_ALLOC_HOST_PTR, bytes, &mem));
    void *at = cl->EnqueueMapBuffer(device->queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                    bytes, 0, NULL, NULL, &error);
    if (error != CL_SUCCESS || at == NULL) {
        cl->ReleaseMemObject(mem);
        return gw_cl_check(error == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : error,
                           "mapping memory of the host");
    }
    memset(at, 0, bytes);
    *out = (gw_cl_pinned){mem, at};
    return GW_OK;
}

void gw_cl_unpin(struct gw_device *device, gw_cl_pinned *pinned) {
    if (pinned->mem != NULL) {
        device->cl->EnqueueUnmapMemObject(device->queue, pinned->mem, pinned->at, 0, NULL, NULL);
        device->cl->ReleaseMemObject(pinned->mem);
        *pinned = (gw_cl_pinned){NULL, NULL};
    }
}

gw_status gw_cl_new_buffer(struct gw_device *device, int n_chunks, struct gw_buffer **out) {
    struct gw_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer != NULL) {
        buffer->chunks = calloc((size_t)n_chunks, sizeof *buffer->chunks);
    }
    if (buffer == NULL || buffer->chunks == NULL) {
        free(buffer);
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a buffer");
    }
    buffer->device = device;
    *out = buffer;
    return GW_OK;
}

gw_status gw_cl_add_chunk(struct gw_buffer *buffer, size_t bytes, int in_host, const void *there) {
    gw_cl_chunk *chunk = &buffer->chunks[buffer->n_chunks];
    chunk->is_there = there != NULL;
    if (there != NULL) {
        GW_TRY(check_piece(buffer->device, bytes));
        GW_TRY(create_there(buffer->device, there, bytes, &chunk->mem));
    } else if (in_host) {
        GW_TRY(check_piece(buffer->device, bytes));
        GW_TRY(create(buffer->device, CL_MEM_ALLOC_HOST_PTR, bytes, &chunk->mem));
    } else {
        GW_TRY(gw_cl_new_mem(buffer->device, bytes, &chunk->mem));
    }
    chunk->in_host = in_host;
    chunk->bytes = bytes;
    buffer->n_chunks++;
    buffer->bytes += bytes;
    return GW_OK;
}

/* Sixteen bytes at a time: from 2 GB on NVIDIA's driver 580 loses the device, or never comes back,
 * when it fills with single bytes. */
static gw_status add_zeros(struct gw_buffer *buffer, size_t bytes, int in_host) {
    static const cl_uint zero[4];
    struct gw_device *d = buffer->device;
    bytes = (bytes + sizeof zero - 1) / sizeof zero * sizeof zero;
    GW_TRY(gw_cl_add_chunk(buffer, bytes, in_host, NULL));
    cl_mem mem = buffer->chunks[buffer->n_chunks - 1].mem;
    return bytes == 0 ? GW_OK
                      : gw_cl_check(d->cl->EnqueueFillBuffer(d->queue, mem, &zero, sizeof zero, 0,
                                                             bytes, 0, NULL, NULL),
                                    "clearing a buffer");
}

static gw_status new_whole(struct gw_device *device, size_t bytes, int in_host,
                           struct gw_buffer **out) {
    struct gw_buffer *buffer = NULL;
    GW_TRY(gw_cl_new_buffer(device, 1, &buffer));
    gw_status status = add_zeros(buffer, bytes, in_host);
    if (status != GW_OK) {
        gw_cl_release(buffer);
        return status;
    }
    *out = buffer;
    return GW_OK;
}

static gw_status new_pages(struct gw_device *device, size_t bytes, size_t page_bytes, int in_host,
                           struct gw_buffer **out) {
    size_t most = device->max_cache > 0 ? device->max_cache : device->max_alloc;
    size_t piece = page_bytes > 0 ? most / page_bytes * page_bytes : 0;
    if (bytes <= most || page_bytes == 0) {
        return new_whole(device, bytes, in_host, out);
    }
    if (piece == 0 || (bytes - 1) / piece >= GW_CL_PIECES) {
        char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
        return gw_fail(GW_E_NOMEM, "opencl",
                       "the cache of a layer needs %s, %s gives at most %s in %d allocations; ask "
                       "for a shorter context (-c) or --kv-type q8_0",
                       gw_text_size(bytes, 4, need), device->name,
                       gw_text_size((uint64_t)GW_CL_PIECES * piece, 4, have), GW_CL_PIECES);
    }
    struct gw_buffer *buffer = NULL;
    gw_status status = GW_OK;
    GW_TRY(gw_cl_new_buffer(device, GW_CL_PIECES, &buffer));
    buffer->piece = piece;
    while (buffer->bytes < bytes && status == GW_OK) {
        size_t left = bytes - buffer->bytes;
        status = add_zeros(buffer, left < piece ? left : piece, in_host);
    }
    if (status != GW_OK) {
        gw_cl_release(buffer);
        return status;
    }
    *out = buffer;
    return GW_OK;
}

gw_status gw_cl_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out) {
    return new_whole(device, bytes, 0, out);
}

gw_status gw_cl_alloc_pages(struct gw_device *device, size_t bytes, size_t page_bytes,
                            struct gw_buffer **out) {
    return new_pages(device, bytes, page_bytes, 0, out);
}

gw_status gw_cl_alloc_mapped(struct gw_device *device, size_t bytes, size_t page_bytes,
                             struct gw_buffer **out) {
    return new_pages(device, bytes, page_bytes, 1, out);
}

static void free_chunk(const struct gw_buffer *buffer, gw_cl_chunk *chunk) {
    if (chunk->mem != NULL) {
        buffer->device->cl->ReleaseMemObject(chunk->mem);
        buffer->device->reserved -= chunk->in_host || chunk->is_there ? 0 : chunk->bytes;
        chunk->mem = NULL;
    }
}

void gw_cl_release(struct gw_buffer *buffer) {
    if (buffer == NULL) {
        return;
    }
    for (int i = 0; i < buffer->n_chunks; i++) {
        free_chunk(buffer, &buffer->chunks[i]);
        gw_cl_unpin(buffer->device, &buffer->chunks[i].kept);
    }
    free(buffer->chunks);
    free(buffer);
}

static gw_status keep_bytes(struct gw_device *d, gw_cl_chunk *chunk) {
    GW_TRY(gw_cl_pin(d, chunk->bytes, &chunk->kept));
    gw_status status =
        chunk->bytes == 0
            ? GW_OK
            : gw_cl_check(d->cl->EnqueueReadBuffer(d->queue, chunk->mem, CL_TRUE, 0, chunk->bytes,
                                                   chunk->kept.at, 0, NULL, NULL),
                          "reading a weight");
    if (status != GW_OK) {
        gw_cl_unpin(d, &chunk->kept);
    }
    return status;
}

gw_status gw_cl_stow(struct gw_buffer *buffer, uint64_t *kept) {
    for (int i = 0; i < buffer->n_chunks; i++) { /* all are there before one goes */
        gw_cl_chunk *chunk = &buffer->chunks[i];
        if (chunk->kept.mem == NULL && !chunk->is_there) {
            GW_TRY(keep_bytes(buffer->device, chunk));
        }
    }
    GW_TRY(gw_cl_wait(buffer->device));
    for (int i = 0; i < buffer->n_chunks; i++) {
        if (!buffer->chunks[i].is_there) {
            free_chunk(buffer, &buffer->chunks[i]);
        }
    }
    *kept = buffer->bytes;
    return GW_OK;
}

gw_status gw_cl_restore(struct gw_buffer *buffer) {
    struct gw_device *d = buffer->device;
    gw_status status = GW_OK;
    for (int i = 0; i < buffer->n_chunks && status == GW_OK; i++) {
        gw_cl_chunk *chunk = &buffer->chunks[i];
        if (chunk->mem != NULL) {
            continue;
        }
        status = gw_cl_new_mem(d, chunk->bytes, &chunk->mem);
        if (status == GW_OK && chunk->bytes > 0) {
            status =
                gw_cl_check(d->cl->EnqueueWriteBuffer(d->queue, chunk->mem, CL_FALSE, 0,
                                                      chunk->bytes, chunk->kept.at, 0, NULL, NULL),
                            "sending a weight");
        }
    }
    for (int i = 0; i < buffer->n_chunks && status != GW_OK; i++) {
        if (!buffer->chunks[i].is_there) {
            free_chunk(buffer, &buffer->chunks[i]);
        }
    }
    return status;
}

/* ---- host access ----------------------------------------------------------------------------- */

static gw_status check_range(const struct gw_buffer *buffer, size_t at, size_t bytes) {
    size_t end;
    if (__builtin_add_overflow(at, bytes, &end) || end > buffer->bytes ||
        (buffer->n_chunks != 1 && buffer->piece == 0)) {
        return gw_fail(GW_E_BOUNDS, "opencl", "bytes %zu to %zu of a buffer of %zu", at, at + bytes,
                       buffer->bytes);
    }
    return GW_OK;
}

/* Bytes from `at` on that lie in one allocation; *mem, *inside: where. */
static size_t bytes_here(const struct gw_buffer *b, size_t at, size_t bytes, cl_mem *mem,
                         size_t *inside) {
    size_t i = b->piece > 0 ? at / b->piece : 0, left = b->piece > 0 ? b->piece : b->bytes;
    *mem = b->chunks[i].mem;
    *inside = at - i * b->piece;
    left -= *inside;
    return bytes < left ? bytes : left;
}

gw_status gw_cl_write(struct gw_buffer *dst, size_t at, const void *src, size_t bytes) {
    GW_TRY(check_range(dst, at, bytes));
    struct gw_device *d = dst->device;
    for (size_t done = 0, n; done < bytes; done += n) {
        cl_mem mem;
        size_t inside;
        n = bytes_here(dst, at + done, bytes - done, &mem, &inside);
        GW_TRY(gw_cl_check(
            GW_WAITED(d->cl->EnqueueWriteBuffer(d->queue, mem, CL_TRUE, inside, n,
                                                (const char *)src + done, 0, NULL, NULL)),
            "writing a buffer"));
    }
    return GW_OK;
}

static int wait_for_ever(void) {
    while (pause() != 0) { /* it has no other value */
    }
    return CL_SUCCESS;
}

gw_status gw_cl_read(const struct gw_buffer *src, size_t at, void *dst, size_t bytes) {
    GW_TRY(check_range(src, at, bytes));
    struct gw_device *d = src->device;
    if (d->fail_wait > 0 && --d->fail_wait == 0) {
        (void)GW_WAITED(wait_for_ever());
    }
    for (size_t done = 0, n; done < bytes; done += n) {
        cl_mem mem;
        size_t inside;
        n = bytes_here(src, at + done, bytes - done, &mem, &inside);
        GW_TRY(gw_cl_check(GW_WAITED(d->cl->EnqueueReadBuffer(d->queue, mem, CL_TRUE, inside, n,
                                                              (char *)dst + done, 0, NULL, NULL)),
                           "reading a buffer"));
    }
    return GW_OK;
}
