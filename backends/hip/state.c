/* backends/hip/state.c - CONV, SCAN, EXP_GATES, DIVIDE, GROUP_NORM, HEADS, COLUMNS and WIDEN:
 * nodes to launches. */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "kernels_hip/rows/state_params.h"
#include "kernels_hip/strip.h"

static gw_hip_ptr at_or_none(const gw_tensor *t) { return t != NULL ? gw_hip_at(t) : 0; }

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

/* Threads of a block along columns, or teams of 32 of them where `team`. */
static gw_status launch(struct gw_segment *segment, const gw_node *node, const char *kernel,
                        size_t pieces, int team, const void *params, size_t bytes) {
    size_t each = team ? GW_STATE_TEAMS : GW_STATE_THREADS;
    return gw_hip_record(segment, node, kernel, gw_hip_groups(pieces, each),
                         (unsigned)segment->rows, 1, GW_STATE_THREADS, 1, 1, 0, params, bytes);
}

static gw_status record_conv(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    struct gw_state_conv_params p = {.step = gw_hip_step(segment),
                                     .in = gw_hip_at(node->in[0]),
                                     .state = gw_hip_at(node->in[1]),
                                     .w = gw_hip_at(node->w[0]),
                                     .bias = at_or_none(node->w[1]),
                                     .out = gw_hip_at(node->out),
                                     .width = (int32_t)gw_hip_width(node->out),
                                     .taps = node->args.conv.taps,
                                     .apart = node->args.conv.apart,
                                     .entries = (int32_t)node->in[1]->dim[1],
                                     .kind = (int32_t)node->args.conv.act,
                                     .slots = (int32_t)node->in[1]->dim[0]};
    (void)kernel;
    if (p.apart <= 1 && segment->rows >= GW_STATE_PROMPT) {
        size_t rows = (size_t)segment->rows;
        return gw_hip_record(segment, node, "gw_state_prompt_conv",
                             gw_hip_groups(gw_hip_width(node->out), GW_STATE_THREADS),
                             (unsigned)p.slots + gw_hip_groups(rows, GW_CONV_ROWS), 1,
                             GW_STATE_THREADS, 1, 1, (unsigned)(rows * GW_STATE_LISTED), &p,
                             sizeof p);
    }
    return launch(segment, node, p.apart > 1 ? "gw_state_conv_apart" : "gw_state_conv",
                  gw_hip_width(node->out), 0, &p, sizeof p);
}

static gw_status prepare_scan(struct gw_segment *segment, const gw_node *node, int decays,
                              gw_hip_ptr made) {
    const gw_scan_args *a = &node->args.scan;
    int delta = a->kind == GW_SCAN_DELTA, together = delta && node->in[2] == node->in[3];
    struct gw_state_prepare_params p = {.step = gw_hip_step(segment),
                                        .in = gw_hip_at(node->in[0]),
                                        .decay = gw_hip_at(node->in[2]),
                                        .beta = at_or_none(node->in[3]),
                                        .a = at_or_none(node->w[0]),
                                        .bias = at_or_none(node->w[1]),
                                        .out = made,
                                        .delta = delta,
                                        .given = a->kind == GW_SCAN_RETENTION,
                                        .heads = a->heads,
                                        .groups = a->groups,
                                        .keys = a->k_dim,
                                        .values = a->v_dim,
                                        .decays = decays,
                                        .decay_step = (int32_t)gw_hip_width(node->in[2]),
                                        .eps = a->eps,
                                        .q_scale = a->q_scale,
                                        .k_scale = a->k_scale,
                                        .low = a->low,
                                        .high = a->high};
    if (delta) {
        p.beta += together ? (size_t)a->heads * sizeof(float) : 0;
        p.beta_step = (int32_t)gw_hip_width(node->in[3]);
    }
    return launch(segment, node, "gw_state_prepare", (size_t)(2 * a->groups + a->heads), 1, &p,
                  sizeof p);
}

/* A long plan's scan, where a block of columns is of one head and its keys fit registers. */
static gw_status scan_prompt(struct gw_segment *segment, const gw_node *node, const gw_scan_args *a,
                             const struct gw_state_scan_params *p) {
    const char *name = a->kind != GW_SCAN_DELTA ? "gw_state_prompt_scan_ssm"
                       : a->by_channel          ? "gw_state_prompt_scan_key"
                                                : "gw_state_prompt_scan_head";
    size_t ring = (size_t)(GW_SCAN_RING * GW_SCAN_SLOT(a->by_channel)) * sizeof(float);
    return gw_hip_record(
        segment, node, name, gw_hip_groups(gw_hip_width(node->out), GW_SCAN_THREADS),
        (unsigned)node->in[1]->dim[0], 1, GW_SCAN_THREADS, 1, 1,
        (unsigned)(ring + (size_t)(segment->rows + GW_SCAN_RING + 1) * GW_STATE_LISTED), p,
        sizeof *p);
}

static gw_status scan_channels(struct gw_segment *segment, const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    struct gw_state_channels_params p = {.step = gw_hip_step(segment),
                                         .in = gw_hip_at(node->in[0]),
                                         .decay = gw_hip_at(node->in[2]),
                                         .a = gw_hip_at(node->w[0]),
                                         .bias = at_or_none(node->w[1]),
                                         .skip = gw_hip_at(node->w[2]),
                                         .state = gw_hip_at(node->in[1]),
                                         .out = gw_hip_at(node->out),
                                         .heads = a->heads,
                                         .groups = a->groups,
                                         .keys = a->k_dim,
                                         .values = a->v_dim,
                                         .tiled = a->tiled,
                                         .entries = (int32_t)node->in[1]->dim[1],
                                         .low = a->low,
                                         .high = a->high};
    int held = a->v_dim % GW_SCAN_THREADS == 0; /* a block's columns are of one head */
    return gw_hip_record(segment, node,
                         held && a->k_dim == 16 ? "gw_state_scan_channels_16"
                                                : "gw_state_scan_channels",
                         gw_hip_groups(gw_hip_width(node->out), GW_SCAN_THREADS),
                         (unsigned)segment->rows, 1, GW_SCAN_THREADS, 1, 1, 0, &p, sizeof p);
}

static gw_status scan_wkv(struct gw_segment *segment, const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    struct gw_state_wkv_params p = {.step = gw_hip_step(segment),
                                    .in = gw_hip_at(node->in[0]),
                                    .decay = gw_hip_at(node->in[2]),
                                    .back = gw_hip_at(node->in[3]),
                                    .state = gw_hip_at(node->in[1]),
                                    .out = gw_hip_at(node->out),
                                    .heads = a->heads,
                                    .keys = a->k_dim,
                                    .values = a->v_dim,
                                    .entries = (int32_t)node->in[1]->dim[1],
                                    .base = GW_WKV_DECAY,
                                    .scale = a->k_scale};
    int held = a->v_dim % GW_SCAN_THREADS == 0; /* a block's columns are of one head */
    return gw_hip_record(segment, node,
                         held && a->k_dim == 64 ? "gw_state_scan_wkv_64" : "gw_state_scan_wkv",
                         gw_hip_groups(gw_hip_width(node->out), GW_SCAN_THREADS),
                         (unsigned)segment->rows, 1, GW_SCAN_THREADS, 1, 1, 0, &p, sizeof p);
}

static gw_status record_scan(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_scan_args *a = &node->args.scan;
    int decays = a->by_channel ? a->k_dim : 1;
    size_t by_key = decays > 1 ? (size_t)decays : 0, heads = (size_t)a->heads;
    size_t row = 2 * (size_t)a->groups * (size_t)a->k_dim + heads * (by_key + GW_SCAN_RECORD);
    gw_hip_ptr made;
    (void)kernel;
    if (a->kind == GW_SCAN_SSM && a->by_channel) {
        return scan_channels(segment, node);
    }
    if (a->kind == GW_SCAN_WKV) {
        return scan_wkv(segment, node);
    }
    GW_TRY(gw_hip_scratch(segment, (size_t)segment->rows * row * sizeof(float), &made));
    GW_TRY(prepare_scan(segment, node, decays, made));
    struct gw_state_scan_params p = {.step = gw_hip_step(segment),
                                     .in = gw_hip_at(node->in[0]),
                                     .made = made,
                                     .state = gw_hip_at(node->in[1]),
                                     .skip = at_or_none(node->w[2]),
                                     .out = gw_hip_at(node->out),
                                     .delta = a->kind == GW_SCAN_DELTA,
                                     .heads = a->heads,
                                     .groups = a->groups,
                                     .keys = a->k_dim,
                                     .values = a->v_dim,
                                     .decays = decays,
                                     .tiled = a->tiled,
                                     .entries = (int32_t)node->in[1]->dim[1]};
    if (segment->rows >= GW_STATE_PROMPT && a->k_dim == GW_SCAN_KEYS_HELD &&
        a->v_dim % GW_SCAN_THREADS == 0) {
        return scan_prompt(segment, node, a, &p);
    }
    const char *name = a->k_dim == 64    ? "gw_state_scan_64"
                       : a->k_dim == 128 ? "gw_state_scan_128"
                                         : "gw_state_scan";
    return gw_hip_record(segment, node, name,
                         gw_hip_groups(gw_hip_width(node->out), GW_SCAN_THREADS),
                         (unsigned)segment->rows, 1, GW_SCAN_THREADS, 1, 1, 0, &p, sizeof p);
}

static gw_status record_exp_gates(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    struct gw_gates_exp_params p = {.step = gw_hip_step(segment),
                                    .in = gw_hip_at(node->in[0]),
                                    .state = gw_hip_at(node->in[1]),
                                    .out = gw_hip_at(node->out),
                                    .heads = (int32_t)node->in[1]->dim[2],
                                    .entries = (int32_t)node->in[1]->dim[1]};
    (void)kernel;
    return launch(segment, node, "gw_gates_exp", (size_t)p.heads, 0, &p, sizeof p);
}

static gw_status record_divide(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    struct gw_gates_divide_params p = {.step = gw_hip_step(segment),
                                       .in = gw_hip_at(node->in[0]),
                                       .by = gw_hip_at(node->in[1]),
                                       .least = gw_hip_at(node->in[2]),
                                       .out = gw_hip_at(node->out),
                                       .width = (int32_t)gw_hip_width(node->out),
                                       .columns = (int32_t)gw_hip_width(node->in[1]),
                                       .eps = node->args.divide.eps};
    (void)kernel;
    return launch(segment, node, "gw_gates_divide", gw_hip_width(node->out), 0, &p, sizeof p);
}

static gw_status record_group_norm(struct gw_segment *segment, const gw_kernel *kernel,
                                   const gw_node *node) {
    const gw_group_norm_args *a = &node->args.group_norm;
    const gw_tensor *w = node->w[0];
    struct gw_state_group_norm_params p = {.step = gw_hip_step(segment),
                                           .in = gw_hip_at(node->in[0]),
                                           .gate = at_or_none(node->in[1]),
                                           .weight = at_or_none(w),
                                           .bias = at_or_none(node->w[1]),
                                           .out = gw_hip_at(node->out),
                                           .width = (int32_t)gw_hip_width(node->in[0]),
                                           .measure = a->measure,
                                           .center = a->center,
                                           .groups = a->groups,
                                           .kind = (int32_t)a->gate_act,
                                           .gate_first = a->gate_first,
                                           .wide = w != NULL ? (int32_t)w->dim[0] : 1,
                                           .eps = a->eps};
    (void)kernel;
    return launch(segment, node, "gw_state_group_norm", (size_t)a->groups, 1, &p, sizeof p);
}

static int accepts_heads(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    gw_fmt fmt = node->w[0]->fmt;
    return accepts(kernel, node, device) && node->w[0]->layout == GW_LAYOUT_ROWS &&
           (fmt == GW_FMT_F32 || fmt == GW_FMT_F16 || fmt == GW_FMT_BF16);
}

static gw_status record_heads(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const gw_heads_args *a = &node->args.heads;
    const gw_tensor *w = node->w[0];
    struct gw_state_heads_params p = {.step = gw_hip_step(segment),
                                      .in = gw_hip_at(node->in[0]),
                                      .w = gw_hip_at(w),
                                      .out = gw_hip_at(node->out),
                                      .heads = a->heads,
                                      .e = (int32_t)gw_hip_width(node->in[0]) / a->heads,
                                      .m = (int32_t)w->dim[0] / a->heads,
                                      .k = (int32_t)w->dim[1],
                                      .first = a->first,
                                      .pass_first = a->pass_first,
                                      .pass = a->pass};
    char name[48];
    (void)kernel;
    snprintf(name, sizeof name, "gw_state_heads_%s", gw_format_of(w->fmt)->name);
    return launch(segment, node, name, gw_hip_width(node->out), 1, &p, sizeof p);
}

static gw_status record_streams(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const gw_streams_args *a = &node->args.streams;
    struct gw_state_streams_params p = {.step = gw_hip_step(segment),
                                        .in = gw_hip_at(node->in[0]),
                                        .coef = at_or_none(node->in[1]),
                                        .base = at_or_none(node->in[2]),
                                        .out = gw_hip_at(node->out),
                                        .m = (int32_t)gw_hip_width(node->out) / a->streams,
                                        .streams = a->streams,
                                        .inputs = a->inputs,
                                        .from = a->from,
                                        .plus = a->plus};
    (void)kernel;
    return launch(segment, node, "gw_state_streams", gw_hip_width(node->out), 0, &p, sizeof p);
}

static gw_status record_columns(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    size_t wide = gw_hip_width(node->out), others = 0, at = 0;
    (void)kernel;
    for (int i = 1; i < GW_MAX_IN; i++) {
        others += node->in[i] != NULL ? gw_hip_width(node->in[i]) : 0;
    }
    for (int i = 0; i < GW_MAX_IN; i++) {
        if (node->in[i] == NULL) {
            continue;
        }
        size_t width = gw_hip_width(node->in[i]), n = i == 0 ? wide - others : width;
        struct gw_state_columns_params p = {.step = gw_hip_step(segment),
                                            .in = gw_hip_at(node->in[i]),
                                            .out = gw_hip_at(node->out),
                                            .width = (int32_t)width,
                                            .from = i == 0 ? node->args.columns.first : 0,
                                            .n = (int32_t)n,
                                            .wide = (int32_t)wide,
                                            .at = (int32_t)at};
        GW_TRY(launch(segment, node, "gw_state_columns", n, 0, &p, sizeof p));
        at += n;
    }
    return GW_OK;
}

static gw_status record_widen(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const int32_t heads = node->args.widen.heads;
    struct gw_state_widen_params p = {.step = gw_hip_step(segment),
                                      .in = gw_hip_at(node->in[0]),
                                      .out = gw_hip_at(node->out),
                                      .heads = heads,
                                      .k = (int32_t)gw_hip_width(node->in[0]) / heads,
                                      .m = (int32_t)gw_hip_width(node->out) / heads};
    (void)kernel;
    return launch(segment, node, "gw_state_widen", gw_hip_width(node->out), 0, &p, sizeof p);
}

/* ---- what lies between a delta net's products, of one row ------------------------------------ */

enum { CONV, SCAN, NORM, STEP_NODES, SOON_BLOCKS = 64 };

static int are_step(const gw_node *nodes) {
    const gw_node *conv = &nodes[CONV], *scan = &nodes[SCAN], *norm = &nodes[NORM];
    if (conv->op != GW_OP_CONV || scan->op != GW_OP_SCAN || norm->op != GW_OP_GROUP_NORM ||
        scan->in[0] != conv->out || norm->in[0] != scan->out || norm->args.group_norm.center) {
        return 0;
    }
    const gw_scan_args *a = &scan->args.scan;
    const gw_group_norm_args *g = &norm->args.group_norm;
    size_t wide = (size_t)a->heads * (size_t)a->v_dim, all = (size_t)a->groups * (size_t)a->k_dim;
    return conv->args.conv.apart <= 1 && conv->args.conv.taps <= (int)GW_STEP_TAPS &&
           !conv->crosses && a->kind == GW_SCAN_DELTA && !a->by_channel && a->k_dim == a->v_dim &&
           !(a->low < 0.0f) && (a->k_dim == 64 || a->k_dim == 128) &&
           gw_hip_width(conv->out) == 2 * all + wide && !scan->crosses && g->groups == a->heads &&
           !g->measure && norm->w[0] != NULL &&
           (norm->in[1] == NULL || gw_hip_width(norm->in[1]) == wide);
}

/* Memory that the blocks of one launch read and write belongs to different tensors. */
static int apart(const gw_node *nodes, const gw_tensor *out) {
    const gw_tensor *in[] = {nodes[CONV].in[0], nodes[SCAN].in[2], nodes[SCAN].in[3],
                             nodes[NORM].in[1]};
    int all = 1;
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        all = all && (in[i] == NULL || gw_hip_disjoint(in[i], out));
    }
    return all;
}

size_t gw_hip_step_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    if (n <= STEP_NODES || segment->device->no_fuse || segment->rows != 1 || !are_step(nodes)) {
        return 0;
    }
    const gw_node *behind = &nodes[STEP_NODES];
    int codes = !nodes[NORM].crosses && behind->op == GW_OP_QUANTIZE &&
                behind->in[0] == nodes[NORM].out && behind->w[0] == NULL &&
                !gw_hip_is_read(nodes[NORM].out, behind + 1, n - STEP_NODES - 1);
    size_t taken = STEP_NODES + (size_t)codes;
    const gw_node *last = &nodes[taken - 1];
    if (gw_hip_is_read(nodes[CONV].out, &nodes[NORM], n - NORM) ||
        gw_hip_is_read(nodes[SCAN].out, behind, n - STEP_NODES)) {
        return 0;
    }
    /* Where it would lie over what other blocks still read, it goes to memory of the segment. */
    return apart(nodes, last->out) || gw_hip_can_move(segment, nodes + taken - 1, n - taken + 1)
               ? taken
               : 0;
}

/* The weights of the next products, in the order in which they are read. */
static int ask_soon(const struct gw_segment *segment, const gw_node *nodes, size_t n,
                    struct gw_state_step_params *p) {
    int count = 0;
    if (!gw_hip_has_copies(segment->device)) {
        return 0;
    }
    for (size_t i = 0; i < n && i < 8 && count < GW_STEP_SOON; i++) {
        int products = nodes[i].op == GW_OP_GLU ? 2 : nodes[i].op == GW_OP_LINEAR;
        for (int k = 0; k < products && count < GW_STEP_SOON; k++) {
            const gw_tensor *w = nodes[i].w[k];
            size_t strips = gw_hip_groups((size_t)w->dim[0], GW_STRIP_ROWS);
            size_t records = gw_hip_groups(gw_hip_width(w), GW_STRIP_FLOATS);
            if (strips > 1 && w->layout == GW_HIP_LAYOUT_STRIPS) {
                p->soon[count] = gw_hip_at(w);
                p->soon_bytes[count++] =
                    (int64_t)(strips * records * (size_t)gw_hip_record_bytes(w->fmt)) / 16 * 16;
            }
        }
    }
    return count;
}

gw_status gw_hip_record_step(struct gw_segment *segment, const gw_node *nodes, size_t taken,
                             size_t n) {
    const gw_node *conv = &nodes[CONV], *scan = &nodes[SCAN], *norm = &nodes[NORM];
    const gw_node *last = &nodes[taken - 1];
    const gw_scan_args *a = &scan->args.scan;
    const gw_group_norm_args *g = &norm->args.group_norm;
    struct gw_state_step_params p = {.step = gw_hip_step(segment),
                                     .in = gw_hip_at(conv->in[0]),
                                     .taps_state = gw_hip_at(conv->in[1]),
                                     .taps_w = gw_hip_at(conv->w[0]),
                                     .taps_bias = at_or_none(conv->w[1]),
                                     .decay = gw_hip_at(scan->in[2]),
                                     .beta = gw_hip_at(scan->in[3]),
                                     .a = gw_hip_at(scan->w[0]),
                                     .bias = at_or_none(scan->w[1]),
                                     .state = gw_hip_at(scan->in[1]),
                                     .gate = at_or_none(norm->in[1]),
                                     .weight = gw_hip_at(norm->w[0]),
                                     .out = gw_hip_at(last->out),
                                     .taps = conv->args.conv.taps,
                                     .taps_entries = (int32_t)conv->in[1]->dim[1],
                                     .taps_kind = (int32_t)conv->args.conv.act,
                                     .heads = a->heads,
                                     .groups = a->groups,
                                     .entries = (int32_t)scan->in[1]->dim[1],
                                     .tiled = a->tiled,
                                     .gate_kind = (int32_t)g->gate_act,
                                     .gate_first = g->gate_first,
                                     .wide = (int32_t)norm->w[0]->dim[0],
                                     .form = gw_hip_form(segment, last->out),
                                     .eps = a->eps,
                                     .q_scale = a->q_scale,
                                     .k_scale = a->k_scale,
                                     .norm_eps = g->eps};
    char name[32];
    p.beta += scan->in[2] == scan->in[3] ? (size_t)a->heads * sizeof(float) : 0;
    if (!apart(nodes, last->out)) {
        GW_TRY(gw_hip_move(segment, last->out, &p.out));
    }
    unsigned more = ask_soon(segment, &nodes[taken], n - taken, &p) > 0 ? SOON_BLOCKS : 0;
    snprintf(name, sizeof name, "gw_state_step_%d", a->k_dim);
    segment->node += SCAN;
    GW_TRY(gw_hip_record(segment, scan, name, (unsigned)a->heads + more, 1, 1, (unsigned)a->k_dim,
                         1, 1, 0, &p, sizeof p));
    segment->node += (int)taken - 1 - SCAN;
    return GW_OK;
}

/* clang-format off */
const gw_kernel gw_hip_state_kernels[] = {
    {GW_OP_CONV, "hip.conv", accepts, record_conv, NULL, 1},
    {GW_OP_SCAN, "hip.scan", accepts, record_scan, NULL, 1},
    {GW_OP_EXP_GATES, "hip.exp_gates", accepts, record_exp_gates, NULL, 1},
    {GW_OP_DIVIDE, "hip.divide", accepts, record_divide, NULL, 1},
    {GW_OP_GROUP_NORM, "hip.group_norm", accepts, record_group_norm, NULL, 1},
    {GW_OP_HEADS, "hip.heads", accepts_heads, record_heads, NULL, 1},
    {GW_OP_STREAMS, "hip.streams", accepts, record_streams, NULL, 1},
    {GW_OP_COLUMNS, "hip.columns", accepts, record_columns, NULL, 1},
    {GW_OP_WIDEN, "hip.widen", accepts, record_widen, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
