/* backends/opencl/cells.c - ATTENTION over caches in 4 and 5 bits (core/tensor/cells.h): nodes to
 * launches. Generated tokens are summed in the codes as they lie in the cache, where keys and
 * values have one format. Else pages are made ready for a kernel that reads q8_0, one layer's at a
 * time: queries are rotated where keys have 4 or 5 bits, results where values have.
 */
#include <stdio.h>

#include "backends/opencl/opencl.h"
#include "core/plan/digits.h"
#include "core/tensor/cells.h"

static size_t value_width(const gw_attn_args *a) {
    return (size_t)(a->v_dim > 0 ? a->v_dim : a->head_dim);
}

/* The node as it would be with q8_0 in place of 4 and 5 bits; what it names is in here, or where it
 * was. span: of the rotation of queries, and of results; 0: they are not rotated. */
typedef struct unpacked {
    gw_node node;
    gw_tensor q, k, v, out;
    struct gw_buffer buffer; /* of all four */
    gw_cl_chunk chunk;
    int span, back;
} unpacked;

static const gw_tensor *moved(unpacked *u, gw_tensor *t, const gw_tensor *from, gw_fmt fmt) {
    *t = *from;
    t->fmt = fmt;
    t->buf = &u->buffer;
    return t;
}

static void as_q8_0(const gw_node *node, unpacked *u) {
    const gw_attn_args *a = &node->args.attn;
    const gw_tensor *v = node->in[2];
    u->node = *node;
    u->buffer = (struct gw_buffer){.n_chunks = 1, .chunks = &u->chunk};
    u->span = gw_cache_bits(node->in[1]->fmt) > 0 ? gw_cells_width(a->head_dim) : 0;
    u->back = v == NULL                   ? u->span
              : gw_cache_bits(v->fmt) > 0 ? gw_cells_width((int)value_width(a))
                                          : 0;
    if (u->span > 0) {
        u->node.in[0] = moved(u, &u->q, node->in[0], GW_FMT_F32);
        u->node.in[1] = moved(u, &u->k, node->in[1], GW_FMT_Q8_0);
    }
    if (u->back > 0) {
        u->node.in[2] = v != NULL ? moved(u, &u->v, v, GW_FMT_Q8_0) : NULL;
        (void)moved(u, &u->out, node->out, GW_FMT_F32);
        u->node.out = &u->out;
    }
}

static const gw_kernel *reader_of(const struct gw_device *d, const gw_node *node) {
    return gw_kernel_first(d->kernels.at, d->kernels.n, node, d);
}

int gw_cl_accepts_cells(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    unpacked u;
    (void)kernel;
    as_q8_0(node, &u);
    if ((u.span == 0 && u.back == 0) || node->in[0]->fmt != GW_FMT_F32) {
        return 0;
    }
    if (gw_attn_in_codes(node)) {
        return node->out->fmt == GW_FMT_F32 || node->out->fmt == GW_FMT_ACT8;
    }
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
        gw_cl_launch_new(segment, "cells", gw_cl_cache_options(node->in[is_v ? 2 : 1]),
                         "unpack_cells");
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
    int values_move;
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
    values_move = u.back > 0 && node->in[2] != NULL;
    u.q.offset = take(&end, u.span > 0 ? rows * q * sizeof(float) : 0);
    u.out.offset = take(&end, u.back > 0 ? rows * values * sizeof(float) : 0);
    u.k.offset = take(&end, u.span > 0 ? pages * k_bytes : 0);
    u.v.offset = take(&end, values_move ? pages * v_bytes : 0);
    GW_TRY(gw_cl_pool_get(d, &d->unpacked, end, &u.chunk.mem));
    if (u.span > 0) {
        GW_TRY(record_rotation(segment, gw_cl_mem(node->in[0]), node->in[0]->offset, u.chunk.mem,
                               u.q.offset, q, u.span));
        GW_TRY(record_unpack(segment, node, &u, 0));
    }
    GW_TRY(values_move ? record_unpack(segment, node, &u, 1) : GW_OK);
    GW_TRY(reads->record(segment, reads, &u.node));
    return u.back > 0 ? record_back(segment, node, u.chunk.mem, u.out.offset, values, u.back)
                      : GW_OK;
}
