/* backends/hip/listed.c - hyper-connections, ROTATE, GROUP_DOT, compressed caches and attention
 * over lists: nodes to launches. */
#include "backends/hip/hip.h"
#include "kernels_hip/rows/listed_params.h"

enum { SCRATCH_BYTES = 128 << 20 };

static gw_hip_ptr at_or_none(const gw_tensor *t) { return t != NULL ? gw_hip_at(t) : 0; }

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32;
}

/* Threads of a block along x, or teams of 32 of them where `team`; rows along y. */
static gw_status launch(struct gw_segment *segment, const gw_node *node, const char *kernel,
                        size_t pieces, size_t rows, int team, const void *params, size_t bytes) {
    size_t each = team ? GW_LISTED_TEAMS : GW_LISTED_THREADS;
    return gw_hip_record(segment, node, kernel, gw_hip_groups(pieces, each), (unsigned)rows, 1,
                         GW_LISTED_THREADS, 1, 1, 0, params, bytes);
}

static struct gw_area_params area_of(const gw_area *a, const gw_tensor *pages,
                                     const gw_tensor *table) {
    return (struct gw_area_params){.pages = at_or_none(pages),
                                   .mapped = gw_hip_at(table),
                                   .at = a->at,
                                   .width = a->width,
                                   .ratio = a->ratio,
                                   .entry = a->entry,
                                   .page_floats = pages != NULL ? (int32_t)pages->dim[1] : 0,
                                   .table_stride = (int32_t)table->dim[1]};
}

static gw_status record_hyper(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const gw_hyper_args *a = &node->args.hyper;
    struct gw_listed_hyper_params p = {.step = gw_hip_step(segment),
                                       .in = gw_hip_at(node->in[0]),
                                       .scale = gw_hip_at(node->w[0]),
                                       .base = gw_hip_at(node->w[1]),
                                       .out = gw_hip_at(node->out),
                                       .width = (int32_t)gw_hip_width(node->out),
                                       .streams = a->streams,
                                       .rounds = a->rounds,
                                       .eps = a->eps};
    (void)kernel;
    return launch(segment, node, "gw_listed_hyper", (size_t)segment->rows, 1, 0, &p, sizeof p);
}

static gw_status record_rotate(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_rotate_args *a = &node->args.rotate;
    size_t width = gw_hip_width(node->out);
    struct gw_listed_rotate_params p = {.step = gw_hip_step(segment),
                                        .in = gw_hip_at(node->in[0]),
                                        .table = at_or_none(node->w[0]),
                                        .out = gw_hip_at(node->out),
                                        .width = (int32_t)width,
                                        .heads = a->heads,
                                        .first = a->first,
                                        .rope_dim = a->rope_dim,
                                        .interleaved = a->style == GW_ROPE_INTERLEAVED,
                                        .back = a->back};
    (void)kernel;
    return launch(segment, node, "gw_listed_rotate", width, (size_t)segment->rows, 0, &p, sizeof p);
}

static gw_status record_dot(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    const gw_dot_args *a = &node->args.dot;
    struct gw_listed_dot_params p = {.step = gw_hip_step(segment),
                                     .in = gw_hip_at(node->in[0]),
                                     .other = gw_hip_at(node->in[1]),
                                     .out = gw_hip_at(node->out),
                                     .width = (int32_t)gw_hip_width(node->in[0]),
                                     .groups = a->groups,
                                     .root = a->root,
                                     .scale = a->scale};
    (void)kernel;
    return launch(segment, node, "gw_listed_dot", (size_t)a->groups, (size_t)segment->rows, 1, &p,
                  sizeof p);
}

/* All rows are kept before an entry is made of them. */
static gw_status record_compress(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_compress_args *a = &node->args.compress;
    size_t rows = (size_t)segment->rows;
    struct gw_listed_compress_params p = {.step = gw_hip_step(segment),
                                          .area = area_of(&a->area, node->in[1], node->in[2]),
                                          .in = gw_hip_at(node->in[0]),
                                          .bias = at_or_none(node->w[0]),
                                          .weight = at_or_none(node->w[1]),
                                          .table = at_or_none(node->w[2]),
                                          .series = a->series,
                                          .first = a->first,
                                          .rope_dim = a->rope_dim,
                                          .interleaved = a->style == GW_ROPE_INTERLEAVED,
                                          .eps = a->eps};
    (void)kernel;
    size_t width = (size_t)gw_area_kept(&a->area);
    GW_TRY(launch(segment, node, "gw_listed_keep", width, rows, 0, &p, sizeof p));
    return a->area.width == 0
               ? GW_OK
               : launch(segment, node, "gw_listed_compress", rows, 1, 1, &p, sizeof p);
}

static gw_status record_choose(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_choose_args *a = &node->args.choose;
    size_t rows = (size_t)segment->rows, lists = a->block > 0 ? (size_t)a->heads : 1;
    int each = a->block > 0 ? a->block : a->area.ratio;
    size_t room = gw_hip_width(node->in[2]) * GW_PAGE / (size_t)each + 1;
    size_t bytes = lists * 2 * room * sizeof(uint32_t), at_once = SCRATCH_BYTES / bytes;
    struct gw_listed_choose_params p = {.step = gw_hip_step(segment),
                                        .area = area_of(&a->area, node->in[1], node->in[2]),
                                        .in = gw_hip_at(node->in[0]),
                                        .by = at_or_none(node->in[3]),
                                        .out = gw_hip_at(node->out),
                                        .heads = a->heads,
                                        .most = (int32_t)(gw_hip_width(node->out) / lists),
                                        .ties = a->ties,
                                        .room = (int32_t)room,
                                        .block = each,
                                        .local = a->local,
                                        .lists = (int32_t)lists};
    const char *score = a->block > 0 ? "gw_listed_score_blocks" : "gw_listed_score";
    (void)kernel;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    GW_TRY(gw_hip_scratch(segment, at_once * bytes, &p.keys));
    for (size_t row0 = 0; row0 < rows; row0 += at_once) {
        size_t n = lists * (rows - row0 < at_once ? rows - row0 : at_once);
        p.row0 = (int32_t)row0;
        p.rows = (int32_t)n;
        GW_TRY(launch(segment, node, score, room, n, 0, &p, sizeof p));
        GW_TRY(launch(segment, node, "gw_listed_choose", n, 1, 1, &p, sizeof p));
    }
    return GW_OK;
}

static int accepts_listed(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    const gw_listed_args *a = &node->args.listed;
    gw_fmt kv = node->in[1]->fmt;
    return accepts(kernel, node, device) &&
           (a->v_dim > 0 ? a->v_dim : a->head_dim) <= GW_LISTED_WIDEST &&
           (kv == GW_FMT_F32 || kv == GW_FMT_F16 || kv == GW_FMT_Q8_0);
}

static gw_status record_listed(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_listed_args *a = &node->args.listed;
    const gw_tensor *list = node->in[4], *area = node->in[5], *table = node->in[3];
    size_t rows = (size_t)segment->rows, context = gw_hip_width(table) * GW_PAGE;
    size_t local = a->local > 1 ? (size_t)a->local : 1, lists = a->lists > 1 ? (size_t)a->lists : 1;
    size_t ratio = (size_t)a->area.ratio, own = area != NULL ? (size_t)a->window : ratio * local;
    size_t most = area != NULL ? context / ratio : context;
    size_t listed = list != NULL ? gw_hip_width(list) / lists * (area != NULL ? 1 : ratio) : most;
    size_t room = ((listed < most ? listed : most) + own + GW_PAGE) / GW_PAGE * GW_PAGE;
    size_t bytes = (size_t)a->heads * (room + room / GW_PAGE) * sizeof(float);
    size_t at_once = SCRATCH_BYTES / bytes;
    gw_fmt kv = node->in[1]->fmt;
    struct gw_listed_attend_params p = {.step = gw_hip_step(segment),
                                        .area = area_of(&a->area, area, table),
                                        .q = gw_hip_at(node->in[0]),
                                        .k = gw_hip_at(node->in[1]),
                                        .v = at_or_none(node->in[2]),
                                        .list = at_or_none(list),
                                        .sinks = at_or_none(node->w[0]),
                                        .out = gw_hip_at(node->out),
                                        .heads = a->heads,
                                        .kv_heads = a->kv_heads,
                                        .e = a->head_dim,
                                        .ev = a->v_dim > 0 ? a->v_dim : a->head_dim,
                                        .v_first = a->v_first,
                                        .most = list != NULL ? (int32_t)(gw_hip_width(list) / lists)
                                                             : 0,
                                        .window = a->window,
                                        .local = a->local,
                                        .lists = (int32_t)lists,
                                        .room = (int32_t)room,
                                        .kind = kv == GW_FMT_F32   ? 0
                                                : kv == GW_FMT_F16 ? 1
                                                                   : 2,
                                        .scale = a->scale};
    (void)kernel;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    GW_TRY(gw_hip_scratch(segment, at_once * bytes, &p.scores));
    for (size_t row0 = 0; row0 < rows; row0 += at_once) {
        p.row0 = (int32_t)row0;
        GW_TRY(launch(segment, node, "gw_listed_attend", (size_t)a->heads,
                      rows - row0 < at_once ? rows - row0 : at_once, 1, &p, sizeof p));
    }
    return GW_OK;
}

/* clang-format off */
const gw_kernel gw_hip_listed_kernels[] = {
    {GW_OP_HYPER, "hip.hyper", accepts, record_hyper, NULL, 1},
    {GW_OP_ROTATE, "hip.rotate", accepts, record_rotate, NULL, 1},
    {GW_OP_GROUP_DOT, "hip.group_dot", accepts, record_dot, NULL, 1},
    {GW_OP_COMPRESS, "hip.compress", accepts, record_compress, NULL, 1},
    {GW_OP_CHOOSE, "hip.choose", accepts, record_choose, NULL, 1},
    {GW_OP_LISTED, "hip.listed", accepts_listed, record_listed, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
