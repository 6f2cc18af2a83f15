/* backends/opencl/cells.c - ATTENTION over caches in 4 and 5 bits (core/tensor/cells.h): nodes to
 * launches. Generated tokens are summed in the codes as they lie in the cache. For others queries
 * and pages are made ready for a kernel that reads q8_0, whose result is rotated back: one layer's
 * pages at a time.
 */
#include <stdio.h>

#include "backends/opencl/opencl.h"
#include "core/plan/digits.h"
#include "core/tensor/cells.h"

static size_t value_width(const gw_attn_args *a) {
    return (size_t)(a->v_dim > 0 ? a->v_dim : a->head_dim);
}

/* The node as it would be over caches of q8_0; what it names is in here. */
typedef struct unpacked {
    gw_node node;
    gw_tensor q, k, v, out;
    struct gw_buffer buffer; /* of all four */
    gw_cl_chunk chunk;
} unpacked;

static void as_q8_0(const gw_node *node, unpacked *u) {
    u->node = *node;
    u->buffer = (struct gw_buffer){.n_chunks = 1, .chunks = &u->chunk};
    u->q = *node->in[0];
    u->k = *node->in[1];
    u->out = *node->out;
    u->k.fmt = GW_FMT_Q8_0;
    u->out.fmt = GW_FMT_F32;
    u->q.buf = u->k.buf = u->out.buf = &u->buffer;
    u->node.in[0] = &u->q;
    u->node.in[1] = &u->k;
    u->node.out = &u->out;
    if (node->in[2] != NULL) {
        u->v = *node->in[2];
        u->v.fmt = GW_FMT_Q8_0;
        u->v.buf = &u->buffer;
        u->node.in[2] = &u->v;
    }
}

static const gw_kernel *reader_of(const struct gw_device *d, const gw_node *node) {
    return gw_kernel_first(d->kernels.at, d->kernels.n, node, d);
}

int gw_cl_accepts_cells(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    unpacked u;
    (void)kernel;
    if (gw_cache_bits(node->in[1]->fmt) == 0 || node->in[0]->fmt != GW_FMT_F32 ||
        (node->in[2] != NULL && node->in[2]->fmt != node->in[1]->fmt)) {
        return 0;
    }
    if (gw_attn_in_codes(node)) {
        return node->out->fmt == GW_FMT_F32 || node->out->fmt == GW_FMT_ACT8;
    }
    as_q8_0(node, &u);
    return reader_of(device, &u.node) != NULL;
}

static gw_status record_rotation(struct gw_segment *segment, cl_mem in, cl_ulong in_at, cl_mem out,
                                 cl_ulong out_at, size_t width, int span) {
    gw_cl_call call = gw_cl_launch_new(segment, "cells", "", "rotate_cells");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, in, in_at);
    gw_cl_arg_mem(&call, out, out_at);
    gw_cl_arg_int(&call, (int64_t)width);
    gw_cl_arg_int(&call, span);
    return gw_cl_launch_end(&call, 1, width / (size_t)span, (size_t)segment->rows, 1);
}

static gw_status record_unpack(struct gw_segment *segment, const gw_node *node, const unpacked *u,
                               int is_v) {
    enum { ITEMS = 64 };
    const gw_attn_args *a = &node->args.attn;
    const size_t pages = gw_cl_width(node->in[3]);
    const gw_tensor *to = is_v ? &u->v : &u->k;
    gw_cl_call call =
        gw_cl_launch_new(segment, "cells", gw_cl_cache_options(node->in[1]), "unpack_cells");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[is_v ? 2 : 1]);
    gw_cl_arg_mem(&call, u->chunk.mem, to->offset);
    gw_cl_arg_tensor(&call, node->in[3]);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, is_v ? (int64_t)value_width(a) : a->head_dim);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_int(&call, a->window);
    gw_cl_arg_int(&call, is_v);
    gw_cl_arg_split(&call, node->in[1]);
    GW_TRY(gw_cl_launch_end(&call, segment->device->item ? 1 : ITEMS, pages, (size_t)a->kv_heads,
                            (size_t)segment->rows));
    call.launch->page_groups = pages;
    return GW_OK;
}

/* The result, from out_at of `from` on, to the node's output. */
static gw_status record_back(struct gw_segment *segment, const gw_node *node, cl_mem from,
                             cl_ulong out_at, size_t width, int span) {
    const int act8 = node->out->fmt == GW_FMT_ACT8;
    GW_TRY(record_rotation(segment, from, out_at, act8 ? from : gw_cl_mem(node->out),
                           act8 ? out_at : node->out->offset, width, span));
    return act8 ? gw_cl_record_encode(segment, from, out_at, node->out) : GW_OK;
}

static gw_status record_codes_pages(struct gw_segment *segment, const gw_node *node, cl_mem q,
                                    cl_mem parts, size_t row0, size_t rows) {
    const gw_attn_args *a = &node->args.attn;
    const size_t pages = gw_cl_width(node->in[3]);
    char options[64];
    snprintf(options, sizeof options, "%s -DCODES", gw_cl_cache_options(node->in[1]));
    gw_cl_call call = gw_cl_launch_new(segment, "cells", options, "attend_codes");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, q, 0);
    for (int i = 1; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_mem(&call, parts, 0);
    gw_cl_arg_int(&call, (int64_t)row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, a->window);
    gw_cl_arg_split(&call, node->in[1]);
    GW_TRY(gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM, pages, (size_t)a->heads,
                            rows));
    call.launch->page_groups = pages;
    return GW_OK;
}

static gw_status record_codes(struct gw_segment *segment, const gw_node *node) {
    enum { PARTS_BYTES = 64 << 20 };
    const gw_attn_args *a = &node->args.attn;
    struct gw_device *d = segment->device;
    const size_t width = (size_t)a->heads * (size_t)a->head_dim, rows = (size_t)segment->rows;
    const size_t of_row =
        (size_t)a->heads * gw_cl_width(node->in[3]) * ((size_t)a->head_dim + 2) * sizeof(float);
    const size_t bytes = (rows * width * sizeof(float) + 255) / 256 * 256;
    const int span = gw_cells_width(a->head_dim);
    size_t at_once = PARTS_BYTES / of_row;
    cl_mem both, parts; /* queries, and results after them */
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    GW_TRY(gw_cl_pool_get(d, &d->unpacked, 2 * bytes, &both));
    GW_TRY(gw_cl_scratch(d, at_once * of_row, &parts));
    GW_TRY(record_rotation(segment, gw_cl_mem(node->in[0]), node->in[0]->offset, both, 0, width,
                           span));
    for (size_t row0 = 0; row0 < rows; row0 += at_once) {
        const size_t some = rows - row0 < at_once ? rows - row0 : at_once;
        GW_TRY(record_codes_pages(segment, node, both, parts, row0, some));
        GW_TRY(gw_cl_record_form_join(segment, node, parts, row0, some, both, bytes));
    }
    return record_back(segment, node, both, bytes, width, span);
}

static size_t take(size_t *end, size_t bytes) {
    size_t at = *end;
    *end += (bytes + 255) / 256 * 256;
    return at;
}

gw_status gw_cl_record_cells(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    struct gw_device *d = segment->device;
    const size_t e = (size_t)a->head_dim, ev = value_width(a), rows = (size_t)segment->rows;
    const size_t pages = (size_t)node->in[1]->dim[0] * (size_t)a->kv_heads;
    const size_t q = (size_t)a->heads * e, values = (size_t)a->heads * ev;
    const int within = node->in[2] == NULL;
    const int span = gw_cells_width(a->head_dim), back = within ? span : gw_cells_width((int)ev);
    size_t end = 0, k_bytes, v_bytes;
    unpacked u;
    (void)kernel;
    if (gw_attn_in_codes(node)) {
        return record_codes(segment, node);
    }
    as_q8_0(node, &u);
    const gw_kernel *reads = reader_of(d, &u.node);
    u.node.kernel = reads;
    GW_TRY(gw_row_bytes(GW_FMT_Q8_0, (uint64_t)GW_PAGE * e, &k_bytes));
    GW_TRY(gw_row_bytes(GW_FMT_Q8_0, (uint64_t)GW_PAGE * ev, &v_bytes));
    u.q.offset = take(&end, rows * q * sizeof(float));
    u.out.offset = take(&end, rows * values * sizeof(float));
    u.k.offset = take(&end, pages * k_bytes);
    u.v.offset = take(&end, within ? 0 : pages * v_bytes);
    GW_TRY(gw_cl_pool_get(d, &d->unpacked, end, &u.chunk.mem));
    GW_TRY(record_rotation(segment, gw_cl_mem(node->in[0]), node->in[0]->offset, u.chunk.mem,
                           u.q.offset, q, span));
    GW_TRY(record_unpack(segment, node, &u, 0));
    if (!within) {
        GW_TRY(record_unpack(segment, node, &u, 1));
    }
    GW_TRY(reads->record(segment, reads, &u.node));
    return record_back(segment, node, u.chunk.mem, u.out.offset, values, back);
}
