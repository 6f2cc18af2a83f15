/* core/model/build_walk.h - what the emitters of build.c and build_more.c share: the state of a
 * walk over a spec's blocks, the tensors and nodes that it makes, and what cards of a group
 * exchange. Nobody else includes this.
 */
#ifndef GW_MODEL_BUILD_WALK_H
#define GW_MODEL_BUILD_WALK_H

#include <string.h>

#include "core/model/build.h"
#include "core/model/cut.h"

/* A value that blocks hand on by name: as floats, as activation blocks, or both. */
typedef struct handed {
    gw_tensor *f32, *act8;
} handed;

/* State of one walk; the cards of a group each have one, over the same blocks. */
typedef struct walk {
    gw_graph *graph;
    const gw_graph_inputs *in;
    const gw_blueprint *bp;
    handed value[GW_SPEC_VALUES];
    int layer, device, block;  /* block: index in the blueprint */
    gw_block_kind before;      /* the block before it           */
    int last;                  /* of the section: its result goes to `result` */
    int deep;                  /* the section `deep` of the layers */
    char idle[GW_SPEC_BLOCKS]; /* nobody needs what the block gives */
    const gw_tensor *result;
    const gw_group *group; /* that runs the block, and which of its cards this is */
    int card;
    int exchanges; /* numbers the exchanges of a stage from here */
} walk;

/* max_tensors and max_nodes are counted from the blocks: never exceeded. */
static inline gw_tensor *new_tensor(walk *w, gw_fmt fmt, int64_t cols) {
    gw_tensor *t = &w->graph->tensors[w->graph->n_tensors++];
    *t = (gw_tensor){.fmt = fmt, .n_dim = 2, .dim = {w->in->rows, cols}, .device = w->device};
    return t;
}

static inline gw_tensor *new_view(walk *w, const gw_tensor *of) {
    gw_tensor *t = &w->graph->tensors[w->graph->n_tensors++];
    *t = *of;
    return t;
}

/* The stream on a device. */
static inline gw_tensor *stream_on(walk *w, int device) {
    gw_tensor **view = &w->graph->streams[device];
    if (*view == NULL) {
        *view = new_view(w, &w->in->stream[device]);
    }
    return *view;
}

static inline gw_node *new_node(walk *w, gw_op op, const char *what, gw_tensor *out) {
    w->graph->blocks[w->graph->n_nodes] = w->block;
    gw_node *node = &w->graph->nodes[w->graph->n_nodes++];
    *node = (gw_node){.op = op, .what = what, .layer = w->layer, .device = w->device, .out = out};
    return node;
}

static inline const gw_tensor *weight(const walk *w, const gw_spec_block *b, int arg) {
    return gw_weights_get(w->in->weights, b->weight[arg], w->layer,
                          w->in->outline ? GW_WEIGHTS_WHOLE : w->device);
}

static inline const gw_layer *layer_of(const walk *w) {
    return &w->in->hp->layer[w->layer < 0 ? 0 : w->layer];
}

/* A number of the block, or `absent` where the spec gives none. */
static inline double number(const walk *w, const gw_spec_block *b, int slot, double absent) {
    return b->number[slot].n > 0 ? gw_spec_value(w->bp, w->in->hp, w->layer, b->number[slot])
                                 : absent;
}

static inline const char *role(const walk *w, const gw_spec_block *b, int arg) {
    return b->weight[arg] >= 0 ? w->bp->weight[b->weight[arg]].role : "value";
}

/* ---- formats: who reads a value how --------------------------------------------------------- */

static inline int is_quantized(const gw_tensor *matrix) {
    return matrix != NULL && !gw_format_of(matrix->fmt)->is_float;
}

/* The matrix by which block b reads its input; NULL: it reads floats. */
static inline const gw_tensor *reads_by(const walk *w, const gw_spec_block *b) {
    int arg = b->kind == GW_BLOCK_EXPERTS && b->weight[0] < 0 ? 1 : 0;
    return gw_block_matrices(b) > 0 ? weight(w, b, arg) : NULL;
}

/* What adapters have for the block in this layer; NULL: nothing. */
static inline const gw_lora_product *adapted(const walk *w, const gw_spec_block *b) {
    return b->section == GW_SECTION_LAYER ? gw_lora_bank_at(w->in->lora, w->layer, b->index) : NULL;
}

/* Do adapters read the block's input, as floats? */
static inline int adapters_read(const walk *w, const gw_spec_block *b) {
    const gw_lora_experts *e =
        b->kind == GW_BLOCK_EXPERTS ? gw_lora_bank_experts(w->in->lora, w->layer, b->index) : NULL;
    return adapted(w, b) != NULL || (e != NULL && (e->a[0].n_dim > 0 || e->a[1].n_dim > 0));
}

/* Which value of the input each column of a quantized matrix takes; NULL: in order. */
static inline const gw_tensor *columns_of(const walk *w, const gw_spec_block *b, int arg) {
    return gw_weights_columns(w->in->weights, b->weight[arg], w->layer, w->device);
}

static inline int runs(const walk *w, const gw_spec_block *b) {
    return gw_block_runs(b, w->in->hp, w->layer < 0 ? w->in->hp->n_layers : w->layer) &&
           !w->idle[b->index] && b->section == w->bp->block[w->block].section;
}

enum { AS_F32 = 1, AS_ACT8 = 2, AS_LORA = 4 /* floats, for adapters of the product */ };

/* How the blocks behind this one read value v, up to where it is given anew. */
static inline int readers(const walk *w, int v) {
    int mask = 0;
    for (int i = w->block + 1; i < w->bp->n_blocks; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (!runs(w, b)) {
            continue;
        }
        if (b->in == v) {
            mask |= is_quantized(reads_by(w, b)) && columns_of(w, b, 0) == NULL ? AS_ACT8 : AS_F32;
            mask |= adapters_read(w, b) ? AS_LORA : 0;
        }
        mask |= b->side == v || b->plus == v || b->more == v ? AS_F32 : 0;
        if (b->out == v) {
            break;
        }
    }
    return mask;
}

/* Does the product that reads value v behind block `from`, directly or through blocks without
 * matrices, have quantized weights? */
static inline int feeds_quantized(const walk *w, int v, int from) {
    for (int i = from + 1; i < w->bp->n_blocks && v != GW_VALUE_STREAM; i++) {
        const gw_spec_block *b = &w->bp->block[i];
        if (!runs(w, b) || (b->in != v && b->side != v && b->plus != v && b->more != v)) {
            continue;
        }
        if (gw_block_matrices(b) > 0) {
            return is_quantized(reads_by(w, b));
        }
        v = b->out;
    }
    return 0;
}

static inline int is_kept(const walk *w, int v) { return w->bp->width[v].n > 0; }

/* Of tensors [devices, each]: number i of a device; where it has none, that of one that has. */
static inline const gw_tensor *on_device(const walk *w, const gw_tensor *list, int each, int i) {
    const gw_tensor *own = &list[(w->in->n_devices > 0 ? w->device : 0) * each + i];
    for (int d = 0; own->n_dim == 0 && d < w->in->n_devices; d++) {
        own = list[d * each + i].n_dim > 0 ? &list[d * each + i] : own;
    }
    return own;
}

/* Values of a cache; NULL where they are part of the keys. */
static inline const gw_tensor *values_of(const walk *w, int layer) {
    const gw_hparams *hp = w->in->hp;
    return hp->layer[layer].v_first < 0 ? on_device(w, w->in->v, hp->n_layers, layer) : NULL;
}

/* Of a kept value: where it lies, in every plan. */
static inline gw_tensor *kept_value(walk *w, int v) {
    const gw_tensor *kept = on_device(w, w->in->kept, GW_SPEC_VALUES, v);
    gw_tensor **view = &w->graph->kept[kept->device][v];
    if (*view == NULL) {
        *view = new_view(w, kept);
        (*view)->dim[0] = w->in->rows;
    }
    return *view;
}

/* The output of a node that can write either form. */
static inline gw_tensor *new_value(walk *w, const gw_spec_block *b, int64_t cols) {
    if (is_kept(w, b->out) && b->section == GW_SECTION_START) {
        return kept_value(w, b->out);
    }
    int act8 = b->out != GW_VALUE_STREAM && readers(w, b->out) == AS_ACT8;
    return new_tensor(w, act8 ? GW_FMT_ACT8 : GW_FMT_F32, cols);
}

static inline void give(walk *w, const gw_spec_block *b, gw_tensor *t) {
    w->value[b->out] = (handed){t->fmt == GW_FMT_F32 ? t : NULL, t->fmt == GW_FMT_ACT8 ? t : NULL};
}

static inline const gw_tensor *as_f32(walk *w, int v) {
    if (v != GW_VALUE_STREAM && w->value[v].f32 == NULL && is_kept(w, v)) {
        return kept_value(w, v);
    }
    return v == GW_VALUE_STREAM ? w->graph->stream[w->card] : w->value[v].f32;
}

/* Made once where floats are there and blocks are asked for. */
static inline const gw_tensor *as_act8(walk *w, int v) {
    const gw_tensor *x = as_f32(w, v);
    if (v != GW_VALUE_STREAM && w->value[v].act8 != NULL) {
        return w->value[v].act8;
    }
    gw_tensor *out = new_tensor(w, GW_FMT_ACT8, x != NULL ? x->dim[1] : 1);
    new_node(w, GW_OP_QUANTIZE, "quantize", out)->in[0] = x;
    if (v != GW_VALUE_STREAM) {
        w->value[v].act8 = out;
    }
    return out;
}

/* The same with values in the order of a matrix's columns: for that product alone. */
static inline const gw_tensor *in_columns(walk *w, int v, const gw_tensor *columns) {
    const gw_tensor *x = as_f32(w, v);
    gw_tensor *out = new_tensor(w, GW_FMT_ACT8, x != NULL ? x->dim[1] : 1);
    gw_node *node = new_node(w, GW_OP_QUANTIZE, "quantize", out);
    node->in[0] = x;
    node->w[0] = columns;
    return out;
}

static inline const gw_tensor *input(walk *w, const gw_spec_block *b, const gw_tensor *matrix) {
    const gw_tensor *columns = columns_of(w, b, 0);
    if (is_quantized(matrix) && columns != NULL) {
        return in_columns(w, b->in, columns);
    }
    return is_quantized(matrix) ? as_act8(w, b->in) : as_f32(w, b->in);
}

/* Where a float result goes: the stream of this device, the logits, or a tensor of its own. */
static inline gw_tensor *new_result(walk *w, const gw_spec_block *b, int64_t cols) {
    if (b->out == GW_VALUE_STREAM) {
        return stream_on(w, w->device);
    }
    gw_tensor *t =
        w->last && w->card == 0 ? new_view(w, w->result) : new_tensor(w, GW_FMT_F32, cols);
    w->graph->logits[w->card] = w->last ? t : w->graph->logits[w->card];
    return t;
}

static inline void finish(walk *w, const gw_spec_block *b, gw_tensor *out) {
    if (b->out == GW_VALUE_STREAM) {
        w->graph->stream[w->card] = out;
    }
    give(w, b, out);
}

/* ---- cards of a group ----------------------------------------------------------------------- */

static inline int row_of(const gw_hparams *hp, int layer) {
    return layer < 0 ? hp->n_layers : layer;
}

/* Of a part of a block's result the columns of each card; 0: every card makes all of it. */
static inline int is_cut(const walk *w, const gw_spec_block *b, int arg, int32_t *first) {
    gw_cut_rows rows;
    int layer = row_of(w->in->hp, w->layer);
    int64_t n = w->group->n > 1 ? gw_weights_rows(w->in->weights, b->weight[arg], w->layer) : 0;
    if (n == 0 ||
        gw_cut_of(w->bp, w->in->hp, w->group, layer, b->index, arg, n, &rows) == GW_CUT_WHOLE) {
        return 0;
    }
    for (int c = 0; c < w->group->n; c++) {
        first[c] = rows.first[c];
        first[c + 1] = rows.first[c] + rows.count[c];
    }
    return 1;
}

/* What all cards have made, parts of a row side by side, and `plus` where it is not NULL. */
static inline void exchange(walk *w, const gw_tensor *share, const int32_t *first, int parts,
                            const gw_tensor *plus, gw_tensor *out) {
    gw_node *node = new_node(w, GW_OP_EXCHANGE, "exchange", out);
    gw_exchange_args a = {.link = w->group->link, .cards = w->group->n, .card = w->card};
    a.parts = parts;
    a.number = w->exchanges++;
    memcpy(a.first, first, (size_t)(a.cards + 1) * sizeof *first);
    node->in[0] = share;
    node->in[1] = plus;
    node->args.exchange = a;
}

/* Heads that a card has of a layer: all, or its share. */
typedef struct own_heads {
    int cut, heads, kv_heads;
    int32_t first[GW_MAX_CARDS + 1]; /* query heads of each card */
} own_heads;

static inline own_heads heads_of(const walk *w) {
    const gw_layer *l = layer_of(w);
    own_heads own = {.heads = l->n_heads, .kv_heads = l->n_kv_heads};
    gw_cut_heads cut;
    own.cut = w->layer >= 0 && gw_cut_attention(w->bp, w->in->hp, w->group, w->layer, &cut);
    if (own.cut) {
        memcpy(own.first, cut.head, sizeof own.first);
        own.heads = cut.head[w->card + 1] - cut.head[w->card];
        own.kv_heads = cut.kv_count[w->card];
    }
    return own;
}

/* The activation that the block names, or that a number of the model says. */
static inline gw_act_kind act_of(const walk *w, const gw_spec_block *b) {
    if (b->act_number < 0) {
        return b->act;
    }
    int row = w->layer < 0 ? 0 : w->layer;
    double x = w->in->hp->values[(size_t)row * (size_t)w->in->hp->n_values + (size_t)b->act_number];
    return x >= 0.0 && x < GW_ACT_KINDS ? (gw_act_kind)x : GW_ACT_KINDS;
}

static inline gw_act_args act_args(const walk *w, const gw_spec_block *b, int gated) {
    float limit = (float)number(w, b, GW_ARG_LIMIT, 0.0);
    gw_act_kind kind = act_of(w, b);
    int plain = kind == GW_ACT_SILU_CAPPED && !(limit > 0.0f); /* the same, and faster */
    return (gw_act_args){.kind = plain ? GW_ACT_SILU : kind,
                         .gated = gated,
                         .limit = limit,
                         .alpha = (float)number(w, b, GW_ARG_ALPHA, 0.0)};
}

/* The page table of a source's caches, or of a layer's cache of the text itself. */
static inline const gw_tensor *table_of(const walk *w, int source, int layer) {
    int kind = w->in->table_of != NULL ? w->in->table_of[layer] : 0;
    return source && w->in->source_table != NULL
               ? &w->in->source_table[w->device]
               : &w->in->page_table[kind * GW_MAX_DEVICES + w->device];
}

static inline gw_tensor *view_of_rows(walk *w, const gw_tensor *of) {
    gw_tensor *t = new_view(w, of);
    t->dim[0] = w->in->rows;
    return t;
}

/* Which adapters rows have. */
static inline const gw_tensor *lora_route(walk *w) {
    gw_tensor **view = &w->graph->lora_route[w->device];
    if (*view == NULL) {
        *view = view_of_rows(w, &w->in->lora_route[w->device]);
    }
    return *view;
}

/* Experts that adapters change (build_lora.c). */
void gw_emit_adapted_experts(walk *w, const gw_spec_block *b, const gw_lora_experts *lora);
/* The emitter of a kind of block that build_more.c knows; NULL. */
typedef void (*gw_emit_fn)(walk *, const gw_spec_block *);
void gw_emit_attention(walk *w, const gw_spec_block *b);
/* Do lists that choose blocks give as value v have room for all positions of a text? */
int gw_lists_all(const walk *w, int v);
gw_emit_fn gw_emit_more(gw_block_kind kind);

#endif
