/* backends/opencl/rows.c - EMBED, PICK, NORM, QUANTIZE, SAMPLE: nodes to launches. */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/tensor/sample.h"

enum { ITEMS = 64 }; /* of a group that walks along a row */

/* Groups along a row: one item on a processor. */
static gw_status along_rows(gw_cl_call *call, const struct gw_segment *segment, size_t pieces) {
    if (segment->device->item) {
        return gw_cl_launch_end(call, 1, 1, (size_t)segment->rows, 1);
    }
    size_t groups = gw_cl_groups(pieces, ITEMS);
    return gw_cl_launch_end(call, ITEMS, groups, (size_t)segment->rows, 1);
}

static int f32_or_act8(const gw_tensor *t) {
    return t->fmt == GW_FMT_F32 || (t->fmt == GW_FMT_ACT8 && gw_cl_width(t) % GW_ACT_BLOCK == 0);
}

/* ---- EMBED ----------------------------------------------------------------------------------- */

int gw_cl_accepts_embed(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS && node->out->fmt == GW_FMT_F32 &&
           gw_format_of(node->w[0]->fmt)->decode != NULL;
}

static void embed_options(gw_fmt fmt, char *out, size_t room) {
    const gw_format *f = gw_format_of(fmt);
    const char *kind = fmt == GW_FMT_F32                                   ? "F32"
                       : fmt == GW_FMT_F16                                 ? "F16"
                       : fmt == GW_FMT_BF16                                ? "BF16"
                       : fmt == GW_FMT_E4M3                                ? "E4M3"
                       : fmt == GW_FMT_NVFP4_CODES                         ? "NVFP4"
                       : fmt == GW_FMT_INT8                                ? "INT8"
                       : fmt >= GW_FMT_INT4_G32 && fmt <= GW_FMT_INT4_G256 ? "INT4"
                                                                           : "BLOCKS";
    char name[24];
    snprintf(name, sizeof name, "%s", f->name);
    for (char *c = name; *c != '\0'; c++) {
        *c = *c == '-' ? '_' : *c;
    }
    snprintf(out, room, "-DFORMAT_%s -DFORMAT=%s -DSUBS=%d", kind, name,
             (int)(f->block_elems / GW_ACT_BLOCK));
}

gw_status gw_cl_record_embed(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_tensor *table = node->w[0];
    char options[96];
    size_t row_bytes, width = gw_cl_width(node->out);
    (void)kernel;
    GW_TRY(gw_row_bytes(table->fmt, width, &row_bytes));
    embed_options(table->fmt, options, sizeof options);
    for (int i = 0; i < table->buf->n_chunks; i++) {
        const gw_cl_chunk *chunk = &table->buf->chunks[i];
        gw_cl_call call = gw_cl_launch_new(segment, "embed", options, "embed");
        gw_cl_arg_step(&call);
        gw_cl_arg_mem(&call, chunk->mem, 0);
        gw_cl_arg_tensor(&call, node->in[0]);
        gw_cl_arg_tensor(&call, node->out);
        gw_cl_arg_int(&call, (int64_t)width);
        gw_cl_arg_int(&call, (int64_t)row_bytes);
        gw_cl_arg_int(&call, chunk->first);
        gw_cl_arg_int(&call, chunk->rows);
        GW_TRY(along_rows(&call, segment, width / GW_ACT_BLOCK + 1));
    }
    return GW_OK;
}

/* ---- PICK ------------------------------------------------------------------------------------ */

int gw_cl_accepts_pick(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

gw_status gw_cl_record_pick(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    gw_cl_call call = gw_cl_launch_new(segment, "rows", "", "pick");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->out->dim[1]);
    return along_rows(&call, segment, gw_cl_width(node->out));
}

/* ---- NORM ------------------------------------------------------------------------------------ */

int gw_cl_accepts_norm(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && f32_or_act8(node->out) &&
           node->w[0]->fmt == GW_FMT_F32;
}

gw_status gw_cl_record_norm(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    int item = segment->device->item;
    char options[48];
    snprintf(options, sizeof options, "-DNORM%s", node->out->fmt == GW_FMT_ACT8 ? " -DACT8" : "");
    if (!item) {
        size_t used = strlen(options);
        snprintf(options + used, sizeof options - used, " -DGROUP=%d", segment->device->group);
    }
    gw_cl_call call = gw_cl_launch_new(segment, "rows", options, "norm");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->out->dim[1]);
    gw_cl_arg_float(&call, node->args.norm.eps);
    return gw_cl_launch_end(&call, item ? 1 : (size_t)segment->device->group, 1,
                            (size_t)segment->rows, 1);
}

/* ---- QUANTIZE -------------------------------------------------------------------------------- */

int gw_cl_accepts_quantize(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_ACT8 &&
           gw_cl_width(node->out) % GW_ACT_BLOCK == 0;
}

static gw_status encode(struct gw_segment *segment, cl_mem from, cl_ulong offset,
                        const gw_tensor *columns, const gw_tensor *out) {
    gw_cl_call call = gw_cl_launch_new(segment, "rows", "", "quantize");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, from, offset);
    gw_cl_arg_tensor(&call, columns != NULL ? columns : out);
    gw_cl_arg_tensor(&call, out);
    gw_cl_arg_int(&call, out->dim[1]);
    gw_cl_arg_int(&call, columns != NULL);
    return along_rows(&call, segment, gw_cl_width(out) / GW_ACT_BLOCK);
}

gw_status gw_cl_record_encode(struct gw_segment *segment, cl_mem from, cl_ulong offset,
                              const gw_tensor *out) {
    return encode(segment, from, offset, NULL, out);
}

gw_status gw_cl_record_quantize(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    (void)kernel;
    return encode(segment, gw_cl_mem(node->in[0]), node->in[0]->offset, node->w[0], node->out);
}

/* ---- activations with one scale per span ----------------------------------------------------- */

int gw_cl_takes_spans(const gw_tensor *w, gw_order order) {
    const gw_format *f = gw_format_of(w->fmt);
    return (order == GW_ORDER_PREFILL ? f->prompt_span : f->span) > 1;
}

gw_status gw_cl_record_spans(struct gw_segment *segment, const gw_tensor *x, cl_mem *out) {
    const size_t k = gw_cl_width(x);
    if (*out != NULL) {
        return GW_OK;
    }
    GW_TRY(gw_cl_pool_get(segment->device, &segment->device->narrowed,
                          (size_t)segment->rows * (k / GW_ACT_BLOCK) * sizeof(gw_act8), out));
    gw_cl_call call = gw_cl_launch_new(segment, "rows", "", "align_spans");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, x);
    gw_cl_arg_mem(&call, *out, 0);
    gw_cl_arg_int(&call, (int64_t)k);
    return along_rows(&call, segment, k / (GW_ACT_SPAN * GW_ACT_BLOCK));
}

/* ---- SAMPLE ---------------------------------------------------------------------------------- */

enum { PIECE = 2048 }; /* logits of a group (sample.cl) */

int gw_cl_accepts_sample(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32;
}

static gw_status record_sample(struct gw_segment *segment, const gw_node *node, const char *kernel,
                               size_t local, size_t groups, cl_mem list) {
    gw_cl_call call = gw_cl_launch_new(segment, "sample", "", kernel);
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_mem(&call, list, 0);
    gw_cl_arg_mem(&call, segment->arrived != NULL ? segment->arrived : list, 0);
    gw_cl_arg_int(&call, node->in[0]->dim[1]);
    return gw_cl_launch_end(&call, local, groups, (size_t)segment->rows, 1);
}

gw_status gw_cl_record_sample(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    size_t n = gw_cl_width(node->in[0]);
    cl_mem list;
    (void)kernel;
    GW_TRY(gw_cl_scratch(segment->device, (size_t)segment->rows * n * sizeof(gw_listed), &list));
    if (segment->device->item) {
        return record_sample(segment, node, "sample", 1, 1, list);
    }
    GW_TRY(
        record_sample(segment, node, "sample_pieces", GW_CL_GROUP, gw_cl_groups(n, PIECE), list));
    return record_sample(segment, node, "sample_join", GW_CL_GROUP, 1, list);
}
