/* backends/opencl/forms.c - EMBED, PICK and NORM in every form, ACT, MIX and ROUTE: nodes to
 * launches. */
#include "backends/opencl/opencl.h"

enum { ITEMS = 64 };

static int is_f32(const gw_tensor *t) { return t == NULL || t->fmt == GW_FMT_F32; }

static int f32_or_act8(const gw_tensor *t) {
    return t->fmt == GW_FMT_F32 || (t->fmt == GW_FMT_ACT8 && gw_cl_width(t) % GW_ACT_BLOCK == 0);
}

/* Bit i: tensor i of n is there. */
static int present(const gw_tensor *const *t, int n) {
    int bits = 0;
    for (int i = 0; i < n; i++) {
        bits |= (t[i] != NULL) << i;
    }
    return bits;
}

gw_status gw_cl_launch_rows(gw_cl_call *call, size_t pieces, size_t rows) {
    const int item = call->segment->device->item;
    return gw_cl_launch_end(call, item ? 1 : ITEMS, item ? 1 : gw_cl_groups(pieces, ITEMS), rows,
                            1);
}

/* ---- EMBED ----------------------------------------------------------------------------------- */

static int is_table(const gw_tensor *t) {
    return t == NULL || (t->layout == GW_LAYOUT_ROWS && gw_format_of(t->fmt)->is_float);
}

int gw_cl_accepts_embed_form(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    return gw_cl_accepts_embed(kernel, node, device) && is_table(node->w[1]) &&
           is_table(node->w[2]);
}

static gw_status record_table(struct gw_segment *segment, const gw_node *node, int by_type) {
    const gw_tensor *places = node->w[by_type ? 2 : 1];
    const size_t width = gw_cl_width(node->out);
    for (int i = 0; i < (places != NULL ? places->buf->n_chunks : 1); i++) {
        const gw_cl_chunk *chunk = places != NULL ? &places->buf->chunks[i] : NULL;
        gw_cl_call call = gw_cl_launch_new(segment, "forms", "", "embed_form");
        gw_cl_arg_step(&call);
        gw_cl_arg_tensor(&call, node->out);
        gw_cl_arg_mem(&call, chunk != NULL ? chunk->mem : segment->step, 0);
        gw_cl_arg_int(&call, (int64_t)width);
        gw_cl_arg_int(&call, chunk != NULL ? chunk->first : 0);
        gw_cl_arg_int(&call, chunk != NULL ? chunk->rows : 0);
        gw_cl_arg_int(&call, by_type ? 0 : node->args.embed.offset);
        gw_cl_arg_int(&call, places == NULL || places->fmt == GW_FMT_F32 ? 0
                             : places->fmt == GW_FMT_F16                 ? 1
                                                                         : 2);
        gw_cl_arg_float(&call, by_type ? 0.0f : node->args.embed.scale);
        gw_cl_arg_int(&call, (places != NULL ? 1 : 0) | (by_type ? 2 : 0));
        GW_TRY(gw_cl_launch_rows(&call, width, (size_t)segment->rows));
    }
    return GW_OK;
}

/* The rows of the tokens, then what comes to them, in place. */
gw_status gw_cl_record_embed_form(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    GW_TRY(gw_cl_record_embed(segment, kernel, node));
    GW_TRY(record_table(segment, node, 0));
    return node->w[2] != NULL ? record_table(segment, node, 1) : GW_OK;
}

/* ---- PICK ------------------------------------------------------------------------------------ */

int gw_cl_accepts_pick_form(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->args.pick.kind != GW_PICK_ROWS && is_f32(node->in[0]) && is_f32(node->out);
}

gw_status gw_cl_record_pick_form(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_pick_kind kind = node->args.pick.kind;
    const size_t width = gw_cl_width(node->out);
    gw_cl_call call = gw_cl_launch_new(segment, "forms", "", "pool");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)width);
    gw_cl_arg_int(&call, (kind == GW_PICK_LAST ? 1 : 0) | (kind == GW_PICK_MEAN ? 2 : 0));
    return gw_cl_launch_rows(&call, width, (size_t)segment->rows);
}

/* ---- NORM ------------------------------------------------------------------------------------ */

int gw_cl_accepts_norm_form(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return is_f32(node->in[0]) && is_f32(node->in[1]) && is_f32(node->w[0]) && is_f32(node->w[1]) &&
           is_f32(node->w[2]) && f32_or_act8(node->out);
}

gw_status gw_cl_record_norm_form(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_tensor *more[] = {node->w[0], node->w[1], node->in[1], node->w[2]};
    gw_cl_call call = gw_cl_launch_new(segment, "forms", "-DNORM", "norm_form");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, more[i]);
    }
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->out->dim[1]);
    gw_cl_arg_int(&call, node->args.norm.kind == GW_NORM_LAYER);
    gw_cl_arg_float(&call, node->args.norm.eps);
    gw_cl_arg_int(&call, node->out->fmt == GW_FMT_ACT8);
    gw_cl_arg_int(&call, present(more, 4));
    return gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM, 1, (size_t)segment->rows,
                            1);
}

/* ---- ACT, MIX -------------------------------------------------------------------------------- */

int gw_cl_accepts_rowwise(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return is_f32(node->in[0]) && is_f32(node->in[1]) && is_f32(node->in[2]) &&
           is_f32(node->w[0]) && f32_or_act8(node->out);
}

gw_status gw_cl_record_activation(struct gw_segment *segment, const gw_cl_activation *a,
                                  const gw_tensor *numbers, const gw_tensor *out) {
    gw_cl_call call = gw_cl_launch_new(segment, "forms", "", "act");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, a->mem, a->gate);
    gw_cl_arg_mem(&call, a->mem, a->gated ? a->up : a->gate);
    gw_cl_arg_tensor(&call, numbers);
    gw_cl_arg_tensor(&call, out);
    gw_cl_arg_int(&call, (int64_t)a->width);
    gw_cl_arg_int(&call, (int64_t)a->stride);
    gw_cl_arg_int(&call, (int64_t)a->first);
    gw_cl_arg_int(&call, a->times);
    gw_cl_arg_int(&call, a->args.kind);
    gw_cl_arg_float(&call, a->args.limit);
    gw_cl_arg_float(&call, a->args.alpha);
    gw_cl_arg_int(&call, out->fmt == GW_FMT_ACT8);
    gw_cl_arg_int(&call, (a->gated ? 1 : 0) | (numbers != NULL ? 2 : 0));
    return gw_cl_launch_rows(&call, gw_cl_groups(a->width, GW_ACT_BLOCK), a->rows);
}

gw_status gw_cl_record_act(struct gw_segment *segment, const gw_kernel *kernel,
                           const gw_node *node) {
    const size_t width = gw_cl_width(node->out);
    const gw_cl_activation a = {.args = node->args.act,
                                .mem = gw_cl_mem(node->in[0]),
                                .gate = node->in[0]->offset,
                                .up = node->in[0]->offset + width * sizeof(float),
                                .gated = node->args.act.gated,
                                .width = width,
                                .stride = gw_cl_width(node->in[0]),
                                .rows = (size_t)segment->rows,
                                .times = 1};
    (void)kernel;
    return gw_cl_record_activation(segment, &a, node->w[0], node->out);
}

gw_status gw_cl_record_mix(struct gw_segment *segment, const gw_kernel *kernel,
                           const gw_node *node) {
    const gw_tensor *more[] = {node->in[1], node->in[2], node->w[0]};
    const size_t width = gw_cl_width(node->out);
    gw_cl_call call = gw_cl_launch_new(segment, "forms", "", "mix_rows");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    for (int i = 0; i < 3; i++) {
        gw_cl_arg_tensor(&call, more[i]);
    }
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)width);
    gw_cl_arg_int(&call, node->in[1] != NULL ? node->in[1]->dim[1] : 1);
    gw_cl_arg_int(&call, node->args.mix.gate_act);
    gw_cl_arg_float(&call, node->args.mix.scale);
    gw_cl_arg_float(&call, node->args.mix.cap);
    gw_cl_arg_int(&call, node->out->fmt == GW_FMT_ACT8);
    gw_cl_arg_int(&call, present(more, 3) | (node->w[0] != NULL && node->w[0]->dim[0] > 1) << 3);
    return gw_cl_launch_rows(&call, gw_cl_groups(width, GW_ACT_BLOCK), (size_t)segment->rows);
}

gw_status gw_cl_record_sparse_glu(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    gw_cl_call call = gw_cl_launch_new(segment, "forms", "-DNORM", "sparse_glu");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->out->dim[1]);
    gw_cl_arg_int(&call, node->args.sparse.act);
    gw_cl_arg_float(&call, node->args.sparse.deviations);
    return gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM, 1, (size_t)segment->rows,
                            1);
}

/* ---- ROUTE ----------------------------------------------------------------------------------- */

int gw_cl_accepts_route(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return is_f32(node->in[0]) && is_f32(node->in[1]) && is_f32(node->w[0]) &&
           is_f32(node->w[1]) && is_f32(node->out) && gw_cl_width(node->in[0]) <= GW_ROUTE_MOST;
}

gw_status gw_cl_record_route(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_route_args *a = &node->args.route;
    gw_cl_call call = gw_cl_launch_new(segment, "forms", "", "route");
    (void)kernel;
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, node->in[0]->dim[1]);
    gw_cl_arg_int(&call, a->used);
    gw_cl_arg_int(&call, a->score);
    gw_cl_arg_int(&call, a->groups);
    gw_cl_arg_int(&call, a->groups_used);
    gw_cl_arg_int(&call, a->group_best);
    gw_cl_arg_int(&call, a->renorm);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_float(&call, a->jitter);
    gw_cl_arg_int(&call, present(node->w, 2) | (node->in[1] != NULL) << 2);
    return gw_cl_launch_end(&call, 1, 1, (size_t)segment->rows, 1);
}
