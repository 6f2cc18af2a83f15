/* backends/opencl/experts.c - EXPERTS_GLU and EXPERTS_DOWN: the products of every row with the
 * experts that it chose, then what becomes of them. Rows are taken as many at a time as scratch
 * holds the sums of.
 */
#include <stdio.h>

#include "backends/opencl/opencl.h"

enum { SCRATCH_BYTES = 64 << 20, MOST_ENTRIES = 32768, TEAMS = GW_CL_GROUP / GW_CL_TEAM };

/* Rows [row0, row0 + rows) of the step. */
typedef struct tile {
    cl_mem sums;
    size_t row0, rows;
} tile;

static size_t rows_of_one(const gw_node *node) {
    return (size_t)(node->w[0]->dim[0] / node->args.experts.experts);
}

/* ---- what is accepted ------------------------------------------------------------------------ */

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device,
                   int parts) {
    for (int i = 0; i < parts && node->w[i] != NULL; i++) {
        const gw_tensor *bias = node->w[parts + i];
        int floats = gw_cl_planes_of(node->w[i]->fmt) == NULL;
        if (node->in[0]->fmt != (floats ? GW_FMT_F32 : GW_FMT_ACT8) ||
            !gw_cl_layout_fits(node->w[i], device) || (bias != NULL && bias->fmt != GW_FMT_F32)) {
            return 0;
        }
    }
    return gw_format_of(node->w[0]->fmt) == kernel->state && node->in[1]->fmt == GW_FMT_F32;
}

int gw_cl_accepts_experts_glu(const gw_kernel *kernel, const gw_node *node,
                              const struct gw_device *device) {
    const gw_fmt out = node->out->fmt;
    return accepts(kernel, node, device, 2) &&
           (out == GW_FMT_F32 || (out == GW_FMT_ACT8 && rows_of_one(node) % GW_ACT_BLOCK == 0));
}

int gw_cl_accepts_experts_down(const gw_kernel *kernel, const gw_node *node,
                               const struct gw_device *device) {
    return accepts(kernel, node, device, 1) && node->out->fmt == GW_FMT_F32 &&
           (node->in[2] == NULL || node->in[2]->fmt == GW_FMT_F32);
}

/* ---- one matrix ------------------------------------------------------------------------------ */

static gw_status end_sums(gw_cl_call *call, const gw_tensor *w, gw_order order, size_t m,
                          size_t entries) {
    if (call->segment->device->item) { /* an expert may begin and end inside a strip */
        size_t groups =
            gw_cl_planes_of(w->fmt) != NULL ? m / GW_CL_STRIP + 2 : gw_cl_groups(m, GW_CL_STRIP);
        return gw_cl_launch_end(call, 1, groups, entries, 1);
    }
    return order == GW_ORDER_DECODE
               ? gw_cl_launch_end(call, GW_CL_GROUP, gw_cl_groups(m, TEAMS), entries, 1)
               : gw_cl_launch_end(call, GW_CL_TEAM, gw_cl_groups(m, GW_CL_TEAM), entries, 1);
}

/* Of matrix i, to t->sums + at; spans: its input with one scale per span, or NULL. */
static gw_status record_sums(struct gw_segment *segment, const gw_node *node, int i, cl_mem spans,
                             const tile *t, cl_ulong at) {
    const gw_experts_args *a = &node->args.experts;
    const gw_tensor *w = node->w[i];
    const int glu = node->op == GW_OP_EXPERTS_GLU, item = segment->device->item;
    const gw_tensor *bias = node->w[(glu ? 2 : 1) + i];
    const size_t m = rows_of_one(node), entries = t->rows * (size_t)a->used;
    char options[320];
    size_t used = gw_cl_format_options(w->fmt, a->order, options, sizeof options);
    snprintf(options + used, sizeof options - used, " -DEXPERTS%s",
             a->order == GW_ORDER_DECODE ? " -DDECODE" : "");
    const char *source = item && gw_cl_planes_of(w->fmt) != NULL ? "linear_item" : "experts";
    for (int c = 0; c < w->buf->n_chunks; c++) {
        const gw_cl_chunk *chunk = &w->buf->chunks[c];
        gw_cl_call call = gw_cl_launch_new(segment, source, options, "experts_sum");
        gw_cl_arg_step(&call);
        gw_cl_arg_mem(&call, chunk->mem, chunk->low);
        gw_cl_arg_ulong(&call, chunk->high);
        gw_cl_arg_ulong(&call, chunk->head);
        gw_cl_arg_ulong(&call, chunk->sub);
        if (spans != NULL) {
            gw_cl_arg_mem(&call, spans, 0);
        } else {
            gw_cl_arg_tensor(&call, node->in[0]);
        }
        gw_cl_arg_tensor(&call, node->in[1]);
        gw_cl_arg_tensor(&call, bias);
        gw_cl_arg_mem(&call, t->sums, at);
        gw_cl_arg_int(&call, (int64_t)m);
        gw_cl_arg_int(&call, w->dim[1]);
        gw_cl_arg_int(&call, a->used);
        gw_cl_arg_int(&call, a->experts);
        gw_cl_arg_int(&call, (int64_t)t->row0 * a->used);
        gw_cl_arg_int(&call, chunk->first);
        gw_cl_arg_int(&call, chunk->rows);
        gw_cl_arg_int(&call, !glu);
        gw_cl_arg_int(&call, (bias != NULL ? 1 : 0) | (glu && a->gate_input ? 2 : 0));
        GW_TRY(end_sums(&call, w, a->order, m, entries));
    }
    return GW_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static gw_status finish_glu(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const size_t used = (size_t)node->args.experts.used, entries = t->rows * used;
    const size_t m = rows_of_one(node);
    const gw_cl_activation act = {.args = node->args.experts.act,
                                  .mem = t->sums,
                                  .up = entries * m * sizeof(float),
                                  .gated = node->w[1] != NULL,
                                  .width = m,
                                  .stride = m,
                                  .first = t->row0 * used,
                                  .rows = entries,
                                  .times = (int)used};
    return gw_cl_record_activation(segment, &act, NULL, node->out);
}

static gw_status finish_down(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_experts_args *a = &node->args.experts;
    gw_cl_call call = gw_cl_launch_new(segment, "experts", "-DJOIN", "experts_join");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_mem(&call, t->sums, 0);
    gw_cl_arg_tensor(&call, node->in[2]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->out->dim[1]);
    gw_cl_arg_int(&call, a->used);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->gate_input);
    gw_cl_arg_int(&call, node->in[2] != NULL);
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), t->rows);
}

static gw_status record(struct gw_segment *segment, const gw_node *node, int parts,
                        gw_status (*finish)(struct gw_segment *segment, const gw_node *node,
                                            const tile *t)) {
    const size_t rows = (size_t)segment->rows, used = (size_t)node->args.experts.used;
    const size_t row_bytes = (size_t)parts * used * rows_of_one(node) * sizeof(float);
    size_t at_once = SCRATCH_BYTES / row_bytes, most = MOST_ENTRIES / used;
    const gw_order order = node->args.experts.order;
    cl_mem spans = NULL;
    tile t = {0};
    at_once = at_once < most ? at_once : most;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    GW_TRY(gw_cl_scratch(segment->device, at_once * row_bytes, &t.sums));
    for (int i = 0; i < parts; i++) { /* one input for both matrices */
        if (gw_cl_takes_spans(node->w[i], order)) {
            GW_TRY(gw_cl_record_spans(segment, node->in[0], &spans));
        }
    }
    for (; t.row0 < rows; t.row0 += at_once) {
        t.rows = rows - t.row0 < at_once ? rows - t.row0 : at_once;
        for (int i = 0; i < parts; i++) {
            int aligned = gw_cl_takes_spans(node->w[i], order);
            cl_ulong at = (cl_ulong)i * t.rows * used * rows_of_one(node) * sizeof(float);
            GW_TRY(record_sums(segment, node, i, aligned ? spans : NULL, &t, at));
        }
        GW_TRY(finish(segment, node, &t));
    }
    return GW_OK;
}

gw_status gw_cl_record_experts_glu(struct gw_segment *segment, const gw_kernel *kernel,
                                   const gw_node *node) {
    (void)kernel;
    return record(segment, node, node->w[1] != NULL ? 2 : 1, finish_glu);
}

gw_status gw_cl_record_experts_down(struct gw_segment *segment, const gw_kernel *kernel,
                                    const gw_node *node) {
    (void)kernel;
    return record(segment, node, 1, finish_down);
}
