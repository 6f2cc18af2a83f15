/* backends/opencl/state.c - CONV, SCAN, EXP_GATES, DIVIDE, GROUP_NORM, HEADS and COLUMNS: nodes to
 * launches. */
#include "backends/opencl/opencl.h"

static int present(const gw_tensor *t, int bit) { return (t != NULL) << bit; }

int gw_cl_accepts_state(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    for (int i = 0; i < GW_MAX_IN; i++) {
        if (node->in[i] != NULL && node->in[i]->fmt != GW_FMT_F32) {
            return 0;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (node->w[i] != NULL && node->w[i]->fmt != GW_FMT_F32) {
            return 0;
        }
    }
    return node->out->fmt == GW_FMT_F32;
}

gw_status gw_cl_record_conv(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "conv");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->out->dim[1]);
    gw_cl_arg_int(&call, node->args.conv.taps);
    gw_cl_arg_int(&call, node->args.conv.apart > 1 ? node->args.conv.apart : 1);
    gw_cl_arg_int(&call, node->in[1]->dim[1]);
    gw_cl_arg_int(&call, node->args.conv.act);
    gw_cl_arg_int(&call, present(node->w[1], 0));
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

/* Decays of a head. */
static int decays_of(const gw_scan_args *a) { return a->by_channel ? a->k_dim : 1; }

static gw_status prepare_scan(struct gw_segment *segment, const gw_node *node, cl_mem made) {
    const gw_scan_args *a = &node->args.scan;
    const int delta = a->kind == GW_SCAN_DELTA, together = delta && node->in[2] == node->in[3];
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "scan_prepare");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[2]);
    gw_cl_arg_tensor(&call, node->in[3]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_mem(&call, made, 0);
    gw_cl_arg_int(&call, delta);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->groups);
    gw_cl_arg_int(&call, a->k_dim);
    gw_cl_arg_int(&call, a->v_dim);
    gw_cl_arg_int(&call, decays_of(a));
    gw_cl_arg_float(&call, a->eps);
    gw_cl_arg_float(&call, a->q_scale);
    gw_cl_arg_float(&call, a->k_scale);
    gw_cl_arg_float(&call, a->low);
    gw_cl_arg_float(&call, a->high);
    gw_cl_arg_int(&call,
                  present(node->w[1], 0) | together << 1 | (a->kind == GW_SCAN_RETENTION) << 2);
    return gw_cl_launch_rows(&call, (size_t)(2 * a->groups + a->heads), (size_t)segment->rows);
}

static gw_status scan_channels(struct gw_segment *segment, const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "scan_channels");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[2]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_tensor(&call, node->w[2]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->groups);
    gw_cl_arg_int(&call, a->k_dim);
    gw_cl_arg_int(&call, a->v_dim);
    gw_cl_arg_int(&call, a->tiled);
    gw_cl_arg_int(&call, node->in[1]->dim[1]);
    gw_cl_arg_float(&call, a->low);
    gw_cl_arg_float(&call, a->high);
    gw_cl_arg_int(&call, present(node->w[1], 0));
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

static gw_status scan_wkv(struct gw_segment *segment, const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "scan_wkv");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[2]);
    gw_cl_arg_tensor(&call, node->in[3]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->k_dim);
    gw_cl_arg_int(&call, a->v_dim);
    gw_cl_arg_int(&call, node->in[1]->dim[1]);
    gw_cl_arg_float(&call, GW_WKV_DECAY);
    gw_cl_arg_float(&call, a->k_scale);
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

gw_status gw_cl_record_scan(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    if (a->kind == GW_SCAN_SSM && a->by_channel) {
        return scan_channels(segment, node);
    }
    if (a->kind == GW_SCAN_WKV) {
        return scan_wkv(segment, node);
    }
    size_t row =
        2 * (size_t)a->groups * (size_t)a->k_dim + (size_t)a->heads * (size_t)(decays_of(a) + 1);
    cl_mem made;
    (void)kernel;
    GW_TRY(gw_cl_scratch(segment->device, (size_t)segment->rows * row * sizeof(float), &made));
    GW_TRY(prepare_scan(segment, node, made));
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "scan");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_mem(&call, made, 0);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->w[2]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, a->kind == GW_SCAN_DELTA);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->groups);
    gw_cl_arg_int(&call, a->k_dim);
    gw_cl_arg_int(&call, a->v_dim);
    gw_cl_arg_int(&call, decays_of(a));
    gw_cl_arg_int(&call, a->tiled);
    gw_cl_arg_int(&call, node->in[1]->dim[1]);
    gw_cl_arg_int(&call, present(node->w[2], 0));
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

gw_status gw_cl_record_exp_gates(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_tensor *state = node->in[1];
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "exp_gates");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, state);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, state->dim[2]);
    gw_cl_arg_int(&call, state->dim[1]);
    return gw_cl_launch_rows(&call, (size_t)state->dim[2], (size_t)segment->rows);
}

gw_status gw_cl_record_divide(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "divide");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->in[2]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)gw_cl_width(node->out));
    gw_cl_arg_int(&call, (int64_t)gw_cl_width(node->in[1]));
    gw_cl_arg_float(&call, node->args.divide.eps);
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

gw_status gw_cl_record_group_norm(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    const gw_group_norm_args *a = &node->args.group_norm;
    const size_t width = gw_cl_width(node->in[0]), groups = (size_t)a->groups;
    const int64_t wide = node->w[0] != NULL ? node->w[0]->dim[0] : 1;
    cl_mem lanes;
    (void)kernel;
    GW_TRY(gw_cl_scratch(segment->device, (size_t)segment->rows * groups * GW_LANES * sizeof(float),
                         &lanes));
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "group_lanes");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_mem(&call, lanes, 0);
    gw_cl_arg_int(&call, (int64_t)width);
    gw_cl_arg_int(&call, a->groups);
    gw_cl_arg_int(&call, a->gate_act);
    gw_cl_arg_int(&call, a->gate_first);
    gw_cl_arg_int(&call, present(node->in[1], 0) | a->center << 1);
    GW_TRY(gw_cl_launch_rows(&call, groups * GW_LANES, (size_t)segment->rows));
    call = gw_cl_launch_new(segment, "state", "", "group_norm");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_mem(&call, lanes, 0);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)width);
    gw_cl_arg_int(&call, a->groups);
    gw_cl_arg_int(&call, a->gate_act);
    gw_cl_arg_int(&call, a->gate_first);
    gw_cl_arg_int(&call, wide);
    gw_cl_arg_float(&call, a->eps);
    gw_cl_arg_int(&call, present(node->in[1], 0) | present(node->w[0], 1) | a->measure << 2 |
                             a->center << 3 | present(node->w[1], 4));
    return gw_cl_launch_rows(&call, groups * gw_cl_groups(width / groups, GW_LANES),
                             (size_t)segment->rows);
}

int gw_cl_accepts_heads(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->w[0]->layout == GW_LAYOUT_ROWS &&
           gw_format_of(node->w[0]->fmt)->is_float;
}

gw_status gw_cl_record_heads(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_heads_args *a = &node->args.heads;
    const gw_tensor *w = node->w[0];
    (void)kernel;
    for (int i = 0; i < w->buf->n_chunks; i++) {
        const gw_cl_chunk *chunk = &w->buf->chunks[i];
        gw_cl_call call = gw_cl_launch_new(segment, "state", "", "heads");
        gw_cl_arg_step(&call);
        gw_cl_arg_tensor(&call, node->in[0]);
        gw_cl_arg_mem(&call, chunk->mem, 0);
        gw_cl_arg_tensor(&call, node->out);
        gw_cl_arg_int(&call, a->heads);
        gw_cl_arg_int(&call, node->in[0]->dim[1] / a->heads);
        gw_cl_arg_int(&call, w->dim[0] / a->heads);
        gw_cl_arg_int(&call, w->dim[1]);
        gw_cl_arg_int(&call, a->first);
        gw_cl_arg_int(&call, a->pass_first);
        gw_cl_arg_int(&call, a->pass);
        gw_cl_arg_int(&call, chunk->first);
        gw_cl_arg_int(&call, chunk->rows);
        gw_cl_arg_int(&call, w->fmt == GW_FMT_F32 ? 0 : w->fmt == GW_FMT_F16 ? 1 : 2);
        GW_TRY(gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows));
    }
    return GW_OK;
}

gw_status gw_cl_record_streams(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_streams_args *a = &node->args.streams;
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "streams");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->in[2]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->out->dim[1] / a->streams);
    gw_cl_arg_int(&call, a->streams);
    gw_cl_arg_int(&call, a->inputs);
    gw_cl_arg_int(&call, a->from);
    gw_cl_arg_float(&call, a->plus);
    gw_cl_arg_int(&call, present(node->in[1], 0) | present(node->in[2], 1));
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

gw_status gw_cl_record_columns(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    size_t wide = gw_cl_width(node->out), others = 0, at = 0;
    (void)kernel;
    for (int i = 1; i < GW_MAX_IN; i++) {
        others += node->in[i] != NULL ? gw_cl_width(node->in[i]) : 0;
    }
    for (int i = 0; i < GW_MAX_IN; i++) {
        if (node->in[i] == NULL) {
            continue;
        }
        size_t n = i == 0 ? wide - others : gw_cl_width(node->in[i]);
        gw_cl_call call = gw_cl_launch_new(segment, "state", "", "columns");
        gw_cl_arg_step(&call);
        gw_cl_arg_tensor(&call, node->in[i]);
        gw_cl_arg_tensor(&call, node->out);
        gw_cl_arg_int(&call, (int64_t)gw_cl_width(node->in[i]));
        gw_cl_arg_int(&call, i == 0 ? node->args.columns.first : 0);
        gw_cl_arg_int(&call, (int64_t)n);
        gw_cl_arg_int(&call, (int64_t)wide);
        gw_cl_arg_int(&call, (int64_t)at);
        GW_TRY(gw_cl_launch_rows(&call, n, (size_t)segment->rows));
        at += n;
    }
    return GW_OK;
}

gw_status gw_cl_record_widen(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const int32_t heads = node->args.widen.heads;
    gw_cl_call call = gw_cl_launch_new(segment, "state", "", "widen_heads");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, heads);
    gw_cl_arg_int(&call, node->in[0]->dim[1] / heads);
    gw_cl_arg_int(&call, node->out->dim[1] / heads);
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}
