/* backends/opencl/listed.c - hyper-connections, ROTATE, GROUP_DOT, compressed caches and attention
 * over lists: nodes to launches. */
#include "backends/opencl/opencl.h"

enum { SCRATCH_BYTES = 64 << 20 }; /* and more where a row needs it */

static int present(const gw_tensor *t, int bit) { return (t != NULL) << bit; }

static gw_cl_call call_new(struct gw_segment *segment, const char *options, const char *name) {
    gw_cl_call call = gw_cl_launch_new(segment, "listed", options, name);
    gw_cl_arg_step(&call);
    return call;
}

gw_status gw_cl_record_hyper(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    const gw_hyper_args *a = &node->args.hyper;
    gw_cl_call call = call_new(segment, "", "hyper");
    (void)kernel;
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)gw_cl_width(node->out));
    gw_cl_arg_int(&call, a->streams);
    gw_cl_arg_int(&call, a->rounds);
    gw_cl_arg_float(&call, a->eps);
    return gw_cl_launch_rows(&call, 1, (size_t)segment->rows);
}

gw_status gw_cl_record_rotate(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const gw_rotate_args *a = &node->args.rotate;
    gw_cl_call call = call_new(segment, "", "rotate_heads");
    (void)kernel;
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)gw_cl_width(node->out));
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->first);
    gw_cl_arg_int(&call, node->w[0] != NULL ? a->rope_dim : 0);
    gw_cl_arg_int(&call, a->style == GW_ROPE_INTERLEAVED);
    gw_cl_arg_int(&call, a->back);
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), (size_t)segment->rows);
}

gw_status gw_cl_record_group_dot(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_dot_args *a = &node->args.dot;
    gw_cl_call call = call_new(segment, "", "group_dot");
    (void)kernel;
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)gw_cl_width(node->in[0]));
    gw_cl_arg_int(&call, a->groups);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, a->root);
    return gw_cl_launch_rows(&call, (size_t)a->groups, (size_t)segment->rows);
}

/* ---- areas ----------------------------------------------------------------------------------- */

/* pages NULL: none. */
static void arg_area(gw_cl_call *call, const gw_area *a, const gw_tensor *pages,
                     const gw_tensor *table) {
    gw_cl_arg_tensor(call, pages);
    gw_cl_arg_tensor(call, table);
    gw_cl_arg_int(call, a->at);
    gw_cl_arg_int(call, a->width);
    gw_cl_arg_int(call, a->ratio);
    gw_cl_arg_int(call, a->entry);
    gw_cl_arg_int(call, pages != NULL ? pages->dim[1] : 0);
    gw_cl_arg_int(call, table->dim[1]);
}

/* Areas lie in one piece, and so do caches beside them. */
static int is_whole(const gw_tensor *t) {
    return t == NULL || (t->fmt == GW_FMT_F32 && (t->buf == NULL || t->buf->piece == 0));
}

int gw_cl_accepts_area(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32 && is_whole(node->in[1]);
}

/* All rows are kept before an entry is made of them. */
gw_status gw_cl_record_compress(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const gw_compress_args *a = &node->args.compress;
    const size_t rows = (size_t)segment->rows;
    (void)kernel;
    gw_cl_call call = call_new(segment, "", "keep_rows");
    arg_area(&call, &a->area, node->in[1], node->in[2]);
    gw_cl_arg_tensor(&call, node->in[0]);
    GW_TRY(gw_cl_launch_rows(&call, (size_t)gw_area_kept(&a->area), rows));
    if (a->area.width == 0) {
        return GW_OK;
    }
    call = call_new(segment, "", "compress");
    arg_area(&call, &a->area, node->in[1], node->in[2]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_int(&call, a->series);
    GW_TRY(gw_cl_launch_rows(&call, (size_t)a->area.entry, rows));
    call = call_new(segment, "", "finish_entry");
    arg_area(&call, &a->area, node->in[1], node->in[2]);
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_tensor(&call, node->w[2]);
    gw_cl_arg_int(&call, a->first);
    gw_cl_arg_int(&call, node->w[2] != NULL ? a->rope_dim : 0);
    gw_cl_arg_int(&call, a->style == GW_ROPE_INTERLEAVED);
    gw_cl_arg_float(&call, a->eps);
    gw_cl_arg_int(&call, present(node->w[1], 0));
    return gw_cl_launch_rows(&call, 1, rows);
}

/* Rows that scratch of `bytes` each has room for at once. */
static size_t at_once(const struct gw_segment *segment, size_t bytes) {
    const size_t rows = (size_t)segment->rows, most = SCRATCH_BYTES / bytes;
    return most < 1 ? 1 : most > rows ? rows : most;
}

/* Keys of `n` rows from row0 on, where rows of keys have room for so many. */
static gw_status record_scores(struct gw_segment *segment, const gw_node *node, cl_mem keys,
                               size_t room, size_t row0, size_t n) {
    const gw_choose_args *a = &node->args.choose;
    const size_t lists = a->block > 0 ? (size_t)a->heads : 1;
    gw_cl_call call = call_new(segment, "", a->block > 0 ? "score_blocks" : "score_entries");
    arg_area(&call, &a->area, node->in[1], node->in[2]);
    gw_cl_arg_tensor(&call, node->in[0]);
    if (a->block == 0) {
        gw_cl_arg_tensor(&call, node->in[3]);
    }
    gw_cl_arg_mem(&call, keys, 0);
    gw_cl_arg_int(&call, a->heads);
    if (a->block > 0) {
        gw_cl_arg_int(&call, a->block);
        gw_cl_arg_int(&call, a->local);
    }
    gw_cl_arg_int(&call, (int64_t)(gw_cl_width(node->out) / lists));
    gw_cl_arg_int(&call, (int64_t)room);
    gw_cl_arg_int(&call, (int64_t)row0);
    if (a->block == 0) {
        gw_cl_arg_int(&call, present(node->in[3], 0));
    }
    return gw_cl_launch_rows(&call, room, n * lists);
}

gw_status gw_cl_record_choose(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const gw_choose_args *a = &node->args.choose;
    const size_t lists = a->block > 0 ? (size_t)a->heads : 1;
    const int ratio = a->block > 0 ? a->block : a->area.ratio;
    const size_t room = gw_cl_width(node->in[2]) * GW_PAGE / (size_t)ratio + 1;
    const size_t bytes = lists * 2 * room * sizeof(cl_uint), each = at_once(segment, bytes);
    const size_t rows = (size_t)segment->rows;
    cl_mem keys;
    (void)kernel;
    GW_TRY(gw_cl_scratch(segment->device, each * bytes, &keys));
    for (size_t row0 = 0; row0 < rows; row0 += each) {
        const size_t n = rows - row0 < each ? rows - row0 : each;
        GW_TRY(record_scores(segment, node, keys, room, row0, n));
        gw_cl_call call = call_new(segment, "", "choose");
        gw_cl_arg_mem(&call, keys, 0);
        gw_cl_arg_tensor(&call, node->out);
        gw_cl_arg_int(&call, ratio);
        gw_cl_arg_int(&call, a->local);
        gw_cl_arg_int(&call, (int64_t)lists);
        gw_cl_arg_int(&call, (int64_t)(gw_cl_width(node->out) / lists));
        gw_cl_arg_int(&call, a->ties);
        gw_cl_arg_int(&call, (int64_t)room);
        gw_cl_arg_int(&call, (int64_t)row0);
        GW_TRY(gw_cl_launch_rows(&call, 1, n * lists));
    }
    return GW_OK;
}

/* ---- LISTED ---------------------------------------------------------------------------------- */

int gw_cl_accepts_listed(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32 &&
           gw_cl_is_cache(node->in[1]) && is_whole(node->in[5]);
}

/* Rows from row0 on, and what they leave for one another's launches. */
typedef struct turn {
    cl_mem scores;
    size_t row0, rows, room;
    int most, flags;
} turn;

static int lists_of(const gw_listed_args *a) { return a->lists > 1 ? a->lists : 1; }

static void arg_turn(gw_cl_call *call, const gw_node *node, const turn *t) {
    gw_cl_arg_int(call, t->most);
    gw_cl_arg_int(call, node->args.listed.window);
    gw_cl_arg_int(call, (int64_t)t->room);
    gw_cl_arg_int(call, (int64_t)t->row0);
    gw_cl_arg_int(call, node->args.listed.local);
    gw_cl_arg_int(call, lists_of(&node->args.listed));
}

static gw_status record_turn(struct gw_segment *segment, const gw_node *node, const turn *t) {
    const gw_listed_args *a = &node->args.listed;
    const char *options = gw_cl_cache_options(node->in[1]);
    const gw_tensor *values = node->in[2] != NULL ? node->in[2] : node->in[1];
    const int ev = a->v_dim > 0 ? a->v_dim : a->head_dim;
    const size_t heads = (size_t)a->heads;
    gw_cl_call call = call_new(segment, options, "listed_scores");
    arg_area(&call, &a->area, node->in[5], node->in[3]);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->in[4]);
    gw_cl_arg_mem(&call, t->scores, 0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    arg_turn(&call, node, t);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, t->flags);
    gw_cl_arg_split(&call, node->in[1]);
    GW_TRY(gw_cl_launch_rows(&call, heads * t->room, t->rows));
    call = call_new(segment, options, "listed_weights");
    arg_area(&call, &a->area, node->in[5], node->in[3]);
    gw_cl_arg_tensor(&call, node->in[4]);
    gw_cl_arg_mem(&call, t->scores, 0);
    gw_cl_arg_int(&call, a->heads);
    arg_turn(&call, node, t);
    gw_cl_arg_int(&call, t->flags);
    GW_TRY(gw_cl_launch_rows(&call, heads * (t->room / GW_PAGE), t->rows));
    call = call_new(segment, options, "listed_values");
    arg_area(&call, &a->area, node->in[5], node->in[3]);
    gw_cl_arg_tensor(&call, values);
    gw_cl_arg_tensor(&call, node->in[4]);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_mem(&call, t->scores, 0);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, values == node->in[1] ? a->head_dim : ev);
    gw_cl_arg_int(&call, ev);
    gw_cl_arg_int(&call, node->in[2] == NULL ? a->v_first : 0);
    arg_turn(&call, node, t);
    gw_cl_arg_int(&call, t->flags);
    gw_cl_arg_split(&call, values);
    return gw_cl_launch_rows(&call, gw_cl_width(node->out), t->rows);
}

gw_status gw_cl_record_listed(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const gw_listed_args *a = &node->args.listed;
    const gw_tensor *list = node->in[4], *area = node->in[5];
    const size_t rows = (size_t)segment->rows, context = gw_cl_width(node->in[3]) * GW_PAGE;
    const size_t ratio = (size_t)a->area.ratio, local = a->local > 1 ? (size_t)a->local : 1;
    const size_t own = area != NULL ? (size_t)a->window : ratio * local;
    const size_t most = area != NULL ? context / ratio : context;
    const size_t wide = list != NULL ? gw_cl_width(list) / (size_t)lists_of(a) : 0;
    const size_t listed = list != NULL ? wide * (area != NULL ? 1 : ratio) : most;
    turn t = {.room = ((listed < most ? listed : most) + own + GW_PAGE) / GW_PAGE * GW_PAGE,
              .most = (int)wide,
              .flags = present(list, 0) | present(area, 1) | present(node->w[0], 2) |
                       (node->in[2] == NULL) << 3};
    const size_t bytes = (size_t)a->heads * (t.room + 2 * (t.room / GW_PAGE)) * sizeof(float);
    const size_t each = at_once(segment, bytes);
    (void)kernel;
    GW_TRY(gw_cl_scratch(segment->device, each * bytes, &t.scores));
    for (; t.row0 < rows; t.row0 += each) {
        t.rows = rows - t.row0 < each ? rows - t.row0 : each;
        GW_TRY(record_turn(segment, node, &t));
    }
    return GW_OK;
}
