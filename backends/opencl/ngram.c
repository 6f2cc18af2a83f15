/* backends/opencl/ngram.c - NGRAM: nodes to launches. */
#include "backends/opencl/opencl.h"

int gw_cl_accepts_ngram(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    gw_fmt fmt = node->w[0]->fmt;
    (void)kernel;
    (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS && node->out->fmt == GW_FMT_F32 &&
           (fmt == GW_FMT_F32 || fmt == GW_FMT_F16 || fmt == GW_FMT_BF16);
}

static gw_status record_rows(struct gw_segment *segment, const gw_node *node, cl_mem hashes,
                             const gw_cl_chunk *chunk) {
    const gw_fmt fmt = node->w[0]->fmt;
    const char *options = fmt == GW_FMT_F32   ? "-DFORMAT_F32"
                          : fmt == GW_FMT_F16 ? "-DFORMAT_F16"
                                              : "-DFORMAT_BF16";
    gw_cl_call call = gw_cl_launch_new(segment, "ngram", options, "ngram");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, chunk->mem, 0);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_mem(&call, hashes, 0);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->w[0]->dim[1]);
    gw_cl_arg_int(&call, (int64_t)gw_cl_width(node->out));
    gw_cl_arg_int(&call, node->in[1]->dim[1]);
    gw_cl_arg_int(&call, node->in[0] != NULL);
    gw_cl_arg_ulong(&call, (cl_ulong)chunk->first);
    gw_cl_arg_ulong(&call, (cl_ulong)chunk->rows);
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

gw_status gw_cl_record_ngram(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    gw_ngram made;
    cl_mem hashes;
    (void)kernel;
    gw_ngram_init(&made, &node->args.ngram);
    GW_TRY(gw_cl_private(segment, &made, sizeof made, &hashes));
    for (int i = 0; i < node->w[0]->buf->n_chunks; i++) {
        GW_TRY(record_rows(segment, node, hashes, &node->w[0]->buf->chunks[i]));
    }
    gw_cl_call call = gw_cl_launch_new(segment, "ngram", "-DFORMAT_F32", "ngram_note");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_mem(&call, hashes, 0);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_int(&call, node->in[1]->dim[1]);
    gw_cl_arg_int(&call, node->in[0] != NULL);
    return gw_cl_launch_rows(&call, 1, (size_t)segment->rows);
}
