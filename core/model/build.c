/* core/model/build.c - walks the blocks of a spec and emits nodes. Knows blocks, no family. */
#include "core/model/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* State of one walk: the value that blocks hand on. */
typedef struct walk {
    gw_graph *graph;
    const gw_graph_inputs *in;
    const gw_blueprint *bp;
    gw_tensor *value; /* last output */
    int layer, device, block;
    int after_glu; /* which projection a residual closes */
} walk;

gw_status gw_graph_new(const gw_graph_inputs *in, gw_graph *out) {
    const gw_blueprint *bp = gw_weights_blueprint(in->weights);
    size_t most = (size_t)bp->n_blocks * (size_t)in->hp->n_layers + (size_t)bp->n_blocks + 4;
    gw_graph g = {.max_nodes = most, .max_tensors = most + 4 + GW_MAX_DEVICES};
    g.nodes = calloc(g.max_nodes, sizeof *g.nodes);
    g.blocks = calloc(g.max_nodes, sizeof *g.blocks);
    g.tensors = calloc(g.max_tensors, sizeof *g.tensors);
    if (g.nodes == NULL || g.blocks == NULL || g.tensors == NULL) {
        gw_graph_free(&g);
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %zu nodes", most);
    }
    *out = g;
    return GW_OK;
}

void gw_graph_free(gw_graph *graph) {
    free(graph->nodes);
    free(graph->blocks);
    free(graph->tensors);
    memset(graph, 0, sizeof *graph);
}

/* max_tensors and max_nodes are counted from the blocks: never exceeded. */
static gw_tensor *new_tensor(walk *w, gw_fmt fmt, int64_t cols) {
    gw_tensor *t = &w->graph->tensors[w->graph->n_tensors++];
    *t = (gw_tensor){.fmt = fmt, .n_dim = 2, .dim = {w->in->rows, cols}, .device = w->device};
    return t;
}

static gw_tensor *new_view(walk *w, const gw_tensor *of) {
    gw_tensor *t = &w->graph->tensors[w->graph->n_tensors++];
    *t = *of;
    return t;
}

/* The stream on a device. */
static gw_tensor *stream_on(walk *w, int device) {
    gw_tensor **view = &w->graph->streams[device];
    if (*view == NULL) {
        *view = new_view(w, &w->in->stream[device]);
    }
    return *view;
}

static gw_node *new_node(walk *w, gw_op op, const char *what, gw_tensor *out) {
    w->graph->blocks[w->graph->n_nodes] = w->block;
    gw_node *node = &w->graph->nodes[w->graph->n_nodes++];
    *node = (gw_node){.op = op, .what = what, .layer = w->layer, .device = w->device, .out = out};
    w->value = out;
    return node;
}

static const gw_tensor *weight(const walk *w, const gw_spec_block *b, int arg) {
    return gw_weights_get(w->in->weights, b->weight[arg], w->layer, w->device);
}

/* The format in which matrix products of block b read their input. */
static gw_fmt input_format(const walk *w, const gw_spec_block *b) {
    const gw_tensor *matrix = weight(w, b, 0);
    return gw_format_of(matrix->fmt)->is_float ? GW_FMT_F32 : GW_FMT_ACT8;
}

/* ---- one emitter per block; `next` consumes what the block gives ---------------------------- */

static void emit_embed(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    (void)next;
    w->graph->stream = stream_on(w, w->device);
    gw_node *node = new_node(w, GW_OP_EMBED, "embed", w->graph->stream);
    node->w[0] = weight(w, b, 0);
    if (w->in->ids != NULL && w->in->ids->device == w->device) {
        node->in[0] = w->in->ids;
    }
}

static void emit_norm(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    const gw_tensor *x = w->value;
    gw_tensor *out = new_tensor(w, input_format(w, next), x->dim[1]);
    gw_node *node = new_node(w, GW_OP_NORM, w->bp->weight[b->weight[0]].role, out);
    node->in[0] = x;
    node->w[0] = weight(w, b, 0);
    node->args.norm.eps = w->in->hp->norm_eps;
}

static void emit_qkv(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    (void)next;
    const gw_tensor *x = w->value;
    int64_t cols = 0;
    for (int i = 0; i < 3; i++) {
        cols += weight(w, b, i)->dim[0];
    }
    gw_node *node = new_node(w, GW_OP_LINEAR, "attn_qkv", new_tensor(w, GW_FMT_F32, cols));
    node->in[0] = x;
    for (int i = 0; i < 6; i++) {
        node->w[i] = weight(w, b, i);
    }
    node->args.linear.order = w->in->order;
}

static void emit_rope_kv(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    (void)next;
    const gw_hparams *hp = w->in->hp;
    const gw_tensor *x = w->value;
    gw_tensor *q = new_tensor(w, GW_FMT_F32, (int64_t)hp->n_heads * hp->d_head);
    gw_node *node = new_node(w, GW_OP_ROPE_KV, "rope_kv", q);
    node->in[0] = x;
    node->in[1] = &w->in->k[w->layer];
    node->in[2] = &w->in->v[w->layer];
    node->in[3] = &w->in->page_table[w->device];
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->w[2] = &w->in->rope[w->device];
    node->args.rope = (gw_rope_args){.heads = hp->n_heads,
                                     .kv_heads = hp->n_kv_heads,
                                     .head_dim = hp->d_head,
                                     .rope_dim = hp->rope_dim,
                                     .style = hp->rope_style,
                                     .eps = hp->norm_eps};
}

static void emit_attention(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    (void)b;
    const gw_hparams *hp = w->in->hp;
    const gw_tensor *q = w->value;
    gw_tensor *out = new_tensor(w, input_format(w, next), q->dim[1]);
    gw_node *node = new_node(w, GW_OP_ATTENTION, "attention", out);
    node->in[0] = q;
    node->in[1] = &w->in->k[w->layer];
    node->in[2] = &w->in->v[w->layer];
    node->in[3] = &w->in->page_table[w->device];
    node->args.attn = (gw_attn_args){.scale = (float)(1.0 / sqrt((double)hp->d_head)),
                                     .heads = hp->n_heads,
                                     .kv_heads = hp->n_kv_heads,
                                     .head_dim = hp->d_head,
                                     .window = w->layer >= hp->window_from_layer ? hp->window : 0,
                                     .order = w->in->order};
}

static void emit_residual(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    (void)next;
    const gw_tensor *x = w->value;
    gw_tensor *stream = w->graph->stream, *out = stream_on(w, w->device);
    gw_node *node = new_node(w, GW_OP_LINEAR, w->after_glu ? "ffn_down" : "attn_out", out);
    node->in[0] = x;
    node->in[1] = stream;
    w->graph->stream = out;
    node->w[0] = weight(w, b, 0);
    node->w[3] = weight(w, b, 1);
    node->args.linear.order = w->in->order;
}

static void emit_glu(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    const gw_tensor *x = w->value;
    gw_tensor *out = new_tensor(w, input_format(w, next), weight(w, b, 0)->dim[0]);
    gw_node *node = new_node(w, GW_OP_GLU, "ffn_gate_up", out);
    node->in[0] = x;
    node->w[0] = weight(w, b, 0);
    node->w[1] = weight(w, b, 1);
    node->args.linear.order = w->in->order;
}

static void emit_linear(walk *w, const gw_spec_block *b, const gw_spec_block *next) {
    (void)next;
    const gw_tensor *x = w->value;
    gw_node *node = new_node(w, GW_OP_LINEAR, "head", new_view(w, &w->in->logits));
    node->in[0] = x;
    node->w[0] = weight(w, b, 0);
    node->args.linear.order = w->in->order;
}

/* clang-format off */
static void (*const emitters[GW_BLOCK_KINDS])(walk *, const gw_spec_block *, const gw_spec_block *) = {
    [GW_BLOCK_EMBED]     = emit_embed,
    [GW_BLOCK_NORM]      = emit_norm,
    [GW_BLOCK_QKV]       = emit_qkv,
    [GW_BLOCK_ROPE_KV]   = emit_rope_kv,
    [GW_BLOCK_ATTENTION] = emit_attention,
    [GW_BLOCK_RESIDUAL]  = emit_residual,
    [GW_BLOCK_GLU]       = emit_glu,
    [GW_BLOCK_LINEAR]    = emit_linear,
};
/* clang-format on */

static int row_of(const gw_hparams *hp, int layer) { return layer < 0 ? hp->n_layers : layer; }

static int block_device(const walk *w, int block) {
    const gw_where *where = w->in->where;
    return where != NULL ? where[row_of(w->in->hp, w->layer) * w->bp->n_blocks + block] : 0;
}

int gw_graph_head_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where) {
    return where[hp->n_layers * bp->n_blocks + bp->n_blocks - 1];
}

int gw_graph_block_device(const gw_blueprint *bp, const gw_where *where, int layer,
                          gw_block_kind kind) {
    int b = 0;
    while (b + 1 < bp->n_blocks && bp->block[b].kind != kind) {
        b++;
    }
    return where[layer * bp->n_blocks + b];
}

/* Where the block before layer `first` has left the stream. */
static int stream_device(const walk *w, int first) {
    walk before = *w;
    before.layer = first - 1;
    for (int i = w->bp->n_blocks - 1; i >= 0; i--) {
        gw_block_kind kind = w->bp->block[i].kind;
        if (kind == (first > 0 ? GW_BLOCK_RESIDUAL : GW_BLOCK_EMBED)) {
            return block_device(&before, i);
        }
    }
    return 0;
}

/* The blocks of a section in order. What follows a block that hands on stands in the same section:
 * the reader of specs has checked it. */
static void emit_section(walk *w, gw_section section) {
    for (int i = 0; i < w->bp->n_blocks; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (b->section == section) {
            w->device = block_device(w, i);
            w->block = i;
            emitters[b->kind](w, b, i + 1 < w->bp->n_blocks ? b + 1 : NULL);
            w->after_glu = b->kind == GW_BLOCK_GLU;
        }
    }
}

/* first: the layer before which the walk begins. */
static walk start_walk(gw_graph *graph, const gw_graph_inputs *in, int first) {
    walk w = {.graph = graph, .in = in, .bp = gw_weights_blueprint(in->weights)};
    w.layer = w.block = -1;
    if (graph->stream == NULL) {
        graph->stream = stream_on(&w, stream_device(&w, first));
    }
    w.value = graph->stream;
    return w;
}

void gw_graph_body(gw_graph *graph, const gw_graph_inputs *in, int first, int end) {
    walk w = start_walk(graph, in, first);
    if (first == 0) {
        emit_section(&w, GW_SECTION_START);
    }
    for (w.layer = first; w.layer < end; w.layer++) {
        emit_section(&w, GW_SECTION_LAYER);
    }
}

void gw_graph_head(gw_graph *graph, const gw_graph_inputs *in, int pick) {
    walk w = start_walk(graph, in, in->hp->n_layers);
    if (pick) { /* where the stream is, so that only the rows picked travel */
        const gw_tensor *x = w.value;
        w.device = x->device;
        gw_tensor *rows = new_tensor(&w, GW_FMT_F32, x->dim[1]);
        new_node(&w, GW_OP_PICK, "pick", rows)->in[0] = x;
    }
    emit_section(&w, GW_SECTION_HEAD);
}

void gw_graph_sample(gw_graph *graph, const gw_graph_inputs *in) {
    walk w = start_walk(graph, in, in->hp->n_layers);
    w.device = in->logits.device;
    gw_node *node = new_node(&w, GW_OP_SAMPLE, "sample", in->ids);
    int alone = graph->n_nodes == 1;
    node->in[0] = alone ? new_view(&w, &in->logits) : graph->nodes[graph->n_nodes - 2].out;
    node->in[1] = in->choice;
}
