/* core/model/build_more.c - emitters of states, groups, columns, streams, areas and lists. */
#include <math.h>

#include "core/model/build_walk.h"

/* ---- states, groups, columns ---------------------------------------------------------------- */

static const gw_tensor *state_of(const walk *w) {
    int n_blocks = w->bp->n_blocks;
    return on_device(w, w->in->state, w->in->hp->n_layers * n_blocks,
                     w->layer * n_blocks + w->block);
}

static void emit_conv(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_CONV, role(w, b, 0), out);
    node->in[0] = x;
    node->in[1] = state_of(w);
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->args.conv = (gw_conv_args){.taps = (int)number(w, b, GW_ARG_TAPS, 0.0),
                                     .act = act_of(w, b),
                                     .apart = (int)number(w, b, GW_ARG_APART, 1.0)};
    give(w, b, out);
}

static void emit_scan(walk *w, const gw_spec_block *b) {
    static const struct {
        gw_scan_kind kind;
        const char *what;
        int weights, beta;
    } scans[GW_BLOCK_KINDS] = {[GW_BLOCK_DELTA] = {GW_SCAN_DELTA, "delta", 2, 1},
                               [GW_BLOCK_SSM] = {GW_SCAN_SSM, "ssm", 3, 0},
                               [GW_BLOCK_RETENTION] = {GW_SCAN_RETENTION, "retention", 0, 0},
                               [GW_BLOCK_WKV] = {GW_SCAN_WKV, "wkv", 0, 1}};
    gw_scan_args a = {.kind = scans[b->kind].kind,
                      .heads = (int)number(w, b, GW_ARG_HEADS, 0.0),
                      .groups = (int)number(w, b, GW_ARG_GROUPS, number(w, b, GW_ARG_HEADS, 0.0)),
                      .k_dim = (int)number(w, b, GW_ARG_KEYS, 0.0),
                      .v_dim = (int)number(w, b, GW_ARG_VALUES, 0.0),
                      .by_channel = (b->flags & GW_FLAG_BY_CHANNEL) != 0,
                      .tiled = number(w, b, GW_ARG_TILED, 0.0) != 0.0,
                      .low = (float)number(w, b, GW_ARG_LOW, 0.0),
                      .high = (float)number(w, b, GW_ARG_HIGH, (double)INFINITY)};
    if (a.k_dim > 0) { /* vectors of length 1, q divided by the square root of its width */
        a.eps = (float)(number(w, b, GW_ARG_EPS, 1e-6) / a.k_dim);
        a.q_scale = (float)(1.0 / a.k_dim);
        a.k_scale = (float)(1.0 / sqrt((double)a.k_dim));
    }
    int64_t cols = (int64_t)a.heads * a.v_dim;
    gw_tensor *out = new_tensor(w, GW_FMT_F32, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_SCAN, scans[b->kind].what, out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = state_of(w);
    node->in[2] = as_f32(w, b->side);
    node->in[3] = scans[b->kind].beta ? as_f32(w, b->plus) : NULL;
    for (int i = 0; i < scans[b->kind].weights; i++) {
        node->w[i] = weight(w, b, i);
    }
    node->args.scan = a;
    give(w, b, out);
}

static void emit_exp_gates(walk *w, const gw_spec_block *b) {
    int64_t heads = (int64_t)number(w, b, GW_ARG_HEADS, 0.0);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, heads > 0 ? 3 * heads : 1);
    gw_node *node = new_node(w, GW_OP_EXP_GATES, "exp_gates", out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = state_of(w);
    give(w, b, out);
}

static void emit_divide(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_DIVIDE, "divide", out);
    node->in[0] = x;
    node->in[1] = as_f32(w, b->side);
    node->in[2] = as_f32(w, b->plus);
    node->args.divide.eps = (float)number(w, b, GW_ARG_EPS, 0.0);
    give(w, b, out);
}

static void emit_norm_groups(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    int groups = (int)number(w, b, GW_ARG_HEADS, 1.0), measure = (b->flags & GW_FLAG_MEASURE) != 0;
    int64_t cols = x != NULL ? x->dim[1] : 1;
    gw_tensor *out = b->section == GW_SECTION_START && is_kept(w, b->out)
                         ? kept_value(w, b->out)
                         : new_tensor(w, GW_FMT_F32, measure ? groups : cols);
    gw_node *node = new_node(w, GW_OP_GROUP_NORM, role(w, b, 0), out);
    node->in[0] = x;
    node->in[1] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->args.group_norm =
        (gw_group_norm_args){.groups = groups,
                             .center = (b->flags & GW_FLAG_CENTER) != 0,
                             .measure = measure,
                             .eps = (float)number(w, b, GW_ARG_EPS, (double)w->in->hp->norm_eps),
                             .gate_act = act_of(w, b),
                             .gate_first = (b->flags & GW_FLAG_BEFORE) != 0};
    give(w, b, out);
}

static void emit_heads(walk *w, const gw_spec_block *b) {
    const gw_tensor *matrix = weight(w, b, 0);
    gw_heads_args a = {.heads = (int)number(w, b, GW_ARG_HEADS, 1.0),
                       .first = (int)number(w, b, GW_ARG_FIRST, 0.0),
                       .pass_first = (int)number(w, b, GW_ARG_PASS_FIRST, 0.0),
                       .pass = (int)number(w, b, GW_ARG_PASS, 0.0)};
    int64_t rows = matrix != NULL && a.heads > 0 ? matrix->dim[0] : 1;
    gw_tensor *out = new_tensor(w, GW_FMT_F32, rows + (int64_t)a.heads * a.pass);
    gw_node *node = new_node(w, GW_OP_HEADS, role(w, b, 0), out);
    node->in[0] = as_f32(w, b->in);
    node->w[0] = matrix;
    node->args.heads = a;
    give(w, b, out);
}

static gw_tensor *new_float(walk *w, const gw_spec_block *b, int64_t cols) {
    return w->last || b->out == GW_VALUE_STREAM ? new_result(w, b, cols)
                                                : new_tensor(w, GW_FMT_F32, cols);
}

/* What another device has made is copied to where it is kept (NULL: nowhere). */
static void copy_to_kept(walk *w, const gw_tensor *out, gw_tensor *kept, const char *what) {
    if (kept != NULL && kept != out) {
        gw_node *copy = new_node(w, GW_OP_COLUMNS, what, kept);
        copy->device = kept->device;
        copy->in[0] = out;
    }
}

static void emit_columns(walk *w, const gw_spec_block *b) {
    enum { PARTS = 4 };
    const int values[PARTS] = {b->in, b->side, b->plus, b->more};
    const gw_tensor *in[PARTS] = {NULL};
    int64_t cols = 0;
    for (int i = 0; i < PARTS; i++) {
        in[i] = values[i] >= 0 ? as_f32(w, values[i]) : NULL;
        cols += in[i] != NULL ? in[i]->dim[1] : 0;
    }
    int first = (int)number(w, b, GW_ARG_FIRST, 0.0), own = in[0] != NULL ? (int)in[0]->dim[1] : 1;
    cols = cols - own + (int)number(w, b, GW_ARG_WIDTH, own - first);
    int lasts = b->section == GW_SECTION_LAYER && is_kept(w, b->out);
    gw_tensor *kept = lasts ? kept_value(w, b->out) : NULL;
    gw_tensor *out =
        kept != NULL && kept->device == w->device ? kept : new_float(w, b, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_COLUMNS, "columns", out);
    memcpy(node->in, in, sizeof in);
    node->args.columns.first = first;
    copy_to_kept(w, out, kept, "columns");
    finish(w, b, out);
}

static void emit_streams(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_streams_args a = {.streams = (int)number(w, b, GW_ARG_HEADS, 1.0),
                         .inputs = (int)number(w, b, GW_ARG_INPUTS, 1.0),
                         .from = (int)number(w, b, GW_ARG_FIRST, 0.0),
                         .plus = (float)number(w, b, GW_ARG_PLUS, 0.0)};
    int64_t cols = x != NULL && a.inputs > 0 ? x->dim[1] / a.inputs * a.streams : 1;
    gw_tensor *out = new_float(w, b, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_STREAMS, "streams", out);
    node->in[0] = x;
    node->in[1] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->in[2] = b->plus >= 0 ? as_f32(w, b->plus) : NULL;
    node->args.streams = a;
    finish(w, b, out);
}

static void emit_sparse_glu(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL && x->dim[1] > 1 ? x->dim[1] / 2 : 1);
    gw_node *node = new_node(w, GW_OP_SPARSE_GLU, "act", out);
    node->in[0] = x;
    node->args.sparse = (gw_sparse_args){.act = act_of(w, b),
                                         .deviations = (float)number(w, b, GW_ARG_DEVIATIONS, 0.0)};
    give(w, b, out);
}

/* ---- hyper-connections, compressed caches, lists, n-grams ----------------------------------- */

static void emit_hyper(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_HYPER, "hyper", out);
    node->in[0] = x;
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->args.hyper = (gw_hyper_args){.streams = (int)number(w, b, GW_ARG_HEADS, 1.0),
                                       .rounds = (int)number(w, b, GW_ARG_ROUNDS, 1.0),
                                       .eps = (float)number(w, b, GW_ARG_EPS, 0.0)};
    give(w, b, out);
}

/* The rope that a block names, or the layer's; NULL: none, of no width. */
static const gw_tensor *rope_of(const walk *w, const gw_spec_block *b, int *dim,
                                gw_rope_style *style) {
    int r = (int)number(w, b, GW_ARG_TABLE, (double)layer_of(w)->rope);
    int is = r >= 0 && r < w->in->hp->n_ropes;
    *dim = is ? w->in->hp->rope[r].dim : 0;
    *style = is ? w->in->hp->rope[r].style : GW_ROPE_HALVES;
    return is ? &w->in->rope[w->device * GW_MAX_ROPES + r] : NULL;
}

static void emit_rotate(walk *w, const gw_spec_block *b) {
    const gw_tensor *x = as_f32(w, b->in);
    gw_tensor *out = new_tensor(w, GW_FMT_F32, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_ROTATE, "rotate", out);
    gw_rotate_args a = {.heads = (int)number(w, b, GW_ARG_HEADS, 1.0),
                        .first = (int)number(w, b, GW_ARG_FIRST, 0.0),
                        .back = (b->flags & GW_FLAG_BACK) != 0};
    node->in[0] = x;
    node->w[0] = rope_of(w, b, &a.rope_dim, &a.style);
    node->args.rotate = a;
    give(w, b, out);
}

static void emit_dot(walk *w, const gw_spec_block *b) {
    gw_dot_args a = {.groups = (int)number(w, b, GW_ARG_HEADS, 1.0),
                     .scale = (float)number(w, b, GW_ARG_FACTOR, 1.0),
                     .root = (b->flags & GW_FLAG_ROOT) != 0};
    gw_tensor *out = new_tensor(w, GW_FMT_F32, a.groups > 0 ? a.groups : 1);
    gw_node *node = new_node(w, GW_OP_GROUP_DOT, "dot", out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = as_f32(w, b->side);
    node->args.dot = a;
    give(w, b, out);
}

/* Of a layer's areas the one that number n says; one of no size where there is none. */
static gw_area area_of(const walk *w, int n) {
    const gw_layer *l = layer_of(w);
    return n >= 0 && n < l->n_areas ? l->area[n] : (gw_area){.ratio = 0};
}

static const gw_tensor *paged_of(const walk *w) {
    return w->in->paged != NULL ? on_device(w, w->in->paged, w->in->hp->n_layers, w->layer) : NULL;
}

static void emit_compress(walk *w, const gw_spec_block *b) {
    int nth = 0;
    for (int i = 0; i < w->block; i++) {
        nth += w->bp->block[i].kind == GW_BLOCK_COMPRESS &&
               gw_block_runs(&w->bp->block[i], w->in->hp, w->layer);
    }
    gw_tensor *out = new_tensor(w, GW_FMT_F32, 1);
    gw_node *node = new_node(w, GW_OP_COMPRESS, "compress", out);
    gw_compress_args a = {.area = area_of(w, nth),
                          .series = (int)number(w, b, GW_ARG_SERIES, 0.0),
                          .first = (int)number(w, b, GW_ARG_FIRST, 0.0),
                          .eps = (float)number(w, b, GW_ARG_EPS, (double)w->in->hp->norm_eps)};
    node->in[0] = as_f32(w, b->in);
    node->in[1] = paged_of(w);
    node->in[2] = table_of(w, 0, w->layer);
    node->w[0] = weight(w, b, 1);
    node->w[1] = weight(w, b, 0);
    node->w[2] = a.area.width > 0 ? rope_of(w, b, &a.rope_dim, &a.style) : NULL;
    node->args.compress = a;
    give(w, b, out);
}

/* A list that later layers take as well lies where it is kept; what another device has chosen is
 * copied there. */
static void emit_choose(walk *w, const gw_spec_block *b) {
    int block = (int)number(w, b, GW_ARG_BLOCKS, 0.0);
    int heads = (int)number(w, b, GW_ARG_HEADS, 1.0);
    int64_t most = (int64_t)number(w, b, GW_ARG_MOST, 1.0) * (block > 0 ? heads : 1);
    gw_tensor *kept = is_kept(w, b->out) ? kept_value(w, b->out) : NULL;
    gw_tensor *out = kept != NULL && kept->device == w->device
                         ? kept
                         : new_tensor(w, GW_FMT_F32, most > 0 ? most : 1);
    gw_node *node = new_node(w, GW_OP_CHOOSE, "choose", out);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = paged_of(w);
    node->in[2] = table_of(w, 0, w->layer);
    node->in[3] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->args.choose = (gw_choose_args){.area = area_of(w, (int)number(w, b, GW_ARG_AREA, 0.0)),
                                         .heads = heads,
                                         .block = block,
                                         .local = (int)number(w, b, GW_ARG_LOCAL, 0.0),
                                         .ties = b->flags & GW_FLAG_LOWEST  ? GW_TIES_LOWEST
                                                 : b->flags & GW_FLAG_WHOLE ? GW_TIES_TEXT
                                                                            : GW_TIES_COMPLETE};
    copy_to_kept(w, out, kept, "choose");
    give(w, b, out);
}

int gw_lists_all(const walk *w, int v) {
    int64_t positions = table_of(w, 0, w->layer)->dim[1] * GW_PAGE;
    int all = 0;
    for (int i = 0; i < w->bp->n_blocks; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (b->kind == GW_BLOCK_CHOOSE && b->out == v) {
            double blocks = number(w, b, GW_ARG_MOST, 0.0) + number(w, b, GW_ARG_LOCAL, 0.0);
            double reach = blocks * number(w, b, GW_ARG_BLOCKS, 1.0);
            all = !w->in->outline && reach >= (double)positions;
        }
    }
    return all;
}

/* Attention over a list of positions, or of blocks and the local ones, that holds all is plain
 * attention: its bits are equal, and it has faster kernels. */
static void emit_listed(walk *w, const gw_spec_block *b) {
    const gw_layer *l = layer_of(w);
    int local = (int)number(w, b, GW_ARG_LOCAL, 0.0);
    int single = b->number[GW_ARG_AREA].n == 0 && number(w, b, GW_ARG_RATIO, 0.0) == 1.0;
    if ((single || local > 0) && gw_lists_all(w, b->side)) {
        gw_emit_attention(w, b);
        return;
    }
    gw_tensor *out = new_tensor(w, GW_FMT_F32, (int64_t)l->n_heads * l->v_head);
    gw_node *node = new_node(w, GW_OP_LISTED, "listed", out);
    int area = (int)number(w, b, GW_ARG_AREA, -1.0);
    node->in[0] = as_f32(w, b->in);
    node->in[1] = on_device(w, w->in->k, w->in->hp->n_layers, w->layer);
    node->in[2] = values_of(w, w->layer);
    node->in[3] = table_of(w, 0, w->layer);
    node->in[4] = b->side >= 0 ? as_f32(w, b->side) : NULL;
    node->in[5] = area >= 0 ? paged_of(w) : NULL;
    node->w[0] = weight(w, b, 0);
    node->args.listed =
        (gw_listed_args){.area = area_of(w, area),
                         .scale = l->attn_scale,
                         .heads = l->n_heads,
                         .kv_heads = l->n_kv_heads,
                         .head_dim = l->d_head,
                         .v_dim = l->v_head != l->d_head || l->v_first >= 0 ? l->v_head : 0,
                         .v_first = l->v_first > 0 ? l->v_first : 0,
                         .window = l->window,
                         .local = local,
                         .lists = (int)number(w, b, GW_ARG_LISTS, 0.0)};
    if (area < 0) {
        node->args.listed.area.ratio = (int)number(w, b, GW_ARG_RATIO, 0.0);
    }
    give(w, b, out);
}

static void emit_ngram(walk *w, const gw_spec_block *b) {
    const gw_tensor *table = weight(w, b, 0);
    gw_ngram_args a = gw_block_ngram(w->bp, w->in->hp, w->layer, b);
    int64_t cols = table != NULL ? table->dim[1] * (a.size - 1) * a.heads : 1;
    gw_tensor *out = new_tensor(w, GW_FMT_F32, cols > 0 ? cols : 1);
    gw_node *node = new_node(w, GW_OP_NGRAM, "ngram", out);
    node->in[1] = state_of(w);
    node->w[0] = table;
    node->args.ngram = a;
    if (w->in->ids != NULL && w->in->ids[w->device].n_dim > 0) {
        node->in[0] = &w->in->ids[w->device];
    }
    give(w, b, out);
}

/* clang-format off */
static const gw_emit_fn emitters[GW_BLOCK_KINDS] = {
    [GW_BLOCK_CONV]      = emit_conv,
    [GW_BLOCK_DELTA]     = emit_scan,
    [GW_BLOCK_SSM]       = emit_scan,
    [GW_BLOCK_WKV]       = emit_scan,
    [GW_BLOCK_RETENTION] = emit_scan,
    [GW_BLOCK_EXP_GATES] = emit_exp_gates,
    [GW_BLOCK_DIVIDE]    = emit_divide,
    [GW_BLOCK_NORM_GROUPS] = emit_norm_groups,
    [GW_BLOCK_HEADS]     = emit_heads,
    [GW_BLOCK_COLUMNS]   = emit_columns,
    [GW_BLOCK_STREAMS]   = emit_streams,
    [GW_BLOCK_SPARSE_GLU] = emit_sparse_glu,
    [GW_BLOCK_HYPER]     = emit_hyper,
    [GW_BLOCK_ROTATE]    = emit_rotate,
    [GW_BLOCK_DOT]       = emit_dot,
    [GW_BLOCK_COMPRESS]  = emit_compress,
    [GW_BLOCK_CHOOSE]    = emit_choose,
    [GW_BLOCK_LISTED]    = emit_listed,
    [GW_BLOCK_NGRAM]     = emit_ngram,
};
/* clang-format on */

gw_emit_fn gw_emit_more(gw_block_kind kind) { return emitters[kind]; }
