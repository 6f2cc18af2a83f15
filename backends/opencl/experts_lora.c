/* backends/opencl/experts_lora.c - adapters of experts, EXPERTS_LORA_A and EXPERTS_LORA_B. Rows of
 * the second are taken as many at a time as scratch holds the sums of.
 */
#include "backends/opencl/opencl.h"

enum { SCRATCH_BYTES = 64 << 20 };

/* Products of rows [row0, row0 + rows) with what their adapters have of their experts, to out. */
static gw_status record_products(struct gw_segment *segment, const gw_node *node, cl_mem out,
                                 cl_ulong at, size_t row0, size_t rows) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    const gw_tensor *w = node->w[0];
    const int64_t m = w->dim[0] / a->places / a->experts, k = w->dim[1];
    const int each = node->op == GW_OP_EXPERTS_LORA_B ? 2 : node->in[0]->dim[1] > k;
    for (int i = 0; i < w->buf->n_chunks; i++) {
        const gw_cl_chunk *chunk = &w->buf->chunks[i];
        gw_cl_call call = gw_cl_launch_new(segment, "experts_lora", "", "lora_products");
        gw_cl_arg_step(&call);
        gw_cl_arg_tensor(&call, node->in[0]);
        gw_cl_arg_tensor(&call, node->in[1]);
        gw_cl_arg_tensor(&call, node->in[2]);
        gw_cl_arg_mem(&call, chunk->mem, 0);
        gw_cl_arg_mem(&call, out, at);
        gw_cl_arg_int(&call, m);
        gw_cl_arg_int(&call, k);
        gw_cl_arg_int(&call, a->used);
        gw_cl_arg_int(&call, a->at_once);
        gw_cl_arg_int(&call, a->experts);
        gw_cl_arg_int(&call, each);
        gw_cl_arg_int(&call, (int64_t)row0);
        gw_cl_arg_int(&call, chunk->first);
        gw_cl_arg_int(&call, chunk->rows);
        GW_TRY(gw_cl_launch_rows(&call, (size_t)a->used * (size_t)a->at_once * (size_t)m, rows));
    }
    return GW_OK;
}

int gw_cl_accepts_lora_a(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS;
}

int gw_cl_accepts_lora_b(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    return gw_cl_accepts_lora_a(kernel, node, device);
}

gw_status gw_cl_record_lora_a(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    (void)kernel;
    return record_products(segment, node, node->out->buf->chunks[0].mem,
                           (cl_ulong)node->out->offset, 0, (size_t)segment->rows);
}

gw_status gw_cl_record_lora_b(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const gw_experts_lora_args *a = &node->args.experts_lora;
    const size_t m = (size_t)(node->w[0]->dim[0] / a->places / a->experts);
    const size_t rows = (size_t)segment->rows;
    const size_t row_bytes = (size_t)a->used * (size_t)a->at_once * m * sizeof(float);
    size_t at_once = SCRATCH_BYTES / row_bytes;
    cl_mem sums;
    (void)kernel;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    GW_TRY(gw_cl_scratch(segment->device, at_once * row_bytes, &sums));
    for (size_t row0 = 0; row0 < rows; row0 += at_once) {
        size_t n = rows - row0 < at_once ? rows - row0 : at_once;
        GW_TRY(record_products(segment, node, sums, 0, row0, n));
        gw_cl_call call = gw_cl_launch_new(segment, "experts_lora", "", "lora_join");
        gw_cl_arg_step(&call);
        gw_cl_arg_tensor(&call, node->in[1]);
        gw_cl_arg_tensor(&call, node->in[2]);
        gw_cl_arg_mem(&call, sums, 0);
        gw_cl_arg_tensor(&call, node->in[3]);
        gw_cl_arg_tensor(&call, node->out);
        gw_cl_arg_int(&call, (int64_t)m);
        gw_cl_arg_int(&call, a->used);
        gw_cl_arg_int(&call, a->at_once);
        gw_cl_arg_int(&call, (int64_t)row0);
        gw_cl_arg_int(&call, a->sum | a->gated << 1);
        GW_TRY(gw_cl_launch_rows(&call, gw_cl_width(node->out), n));
    }
    return GW_OK;
}
