/* core/model/build.h - spec + hyper-parameters + weights -> node lists for a plan.
 *
 * The body runs from the tokens to the stream after the last layer; the head turns rows of the
 * stream into logits. The stream lives in a buffer of the caller, so that a head can follow in a
 * plan of its own (prompts) or in the same plan (decode). Each device has its own buffer for the
 * stream: a block that adds to it reads the one of the block before it and writes its own device's.
 */
#ifndef GW_MODEL_BUILD_H
#define GW_MODEL_BUILD_H

#include "core/model/lora_bank.h"
#include "core/model/weights.h"

/* What a graph is built over; tensors are borrowed and must outlive the graph's plan. */
typedef struct gw_graph_inputs {
    const gw_hparams *hp;
    const gw_weights *weights;
    const gw_where *where;       /* of every block; NULL: all on device 0                */
    const gw_group *groups;      /* [devices] of the device that `where` names; NULL: each alone */
    int n_devices;               /* 0: one */
    int outline;                 /* only looked at: whole weights, without their memory */
    const gw_tensor *rope;       /* [devices, GW_MAX_ROPES] of [positions, 2, dim / 2] f32 */
    const gw_tensor *q_factor;   /* [devices, GW_MAX_FACTORS] of [positions] f32         */
    const gw_tensor *page_table; /* [kinds, GW_MAX_DEVICES] of [slots, pages] i32        */
    const unsigned char *table_of; /* [n_layers] the kind of each layer's cache; NULL: 0 */
    const gw_tensor *k, *v;        /* [devices, n_layers] caches, on the devices of the attention */
    const gw_tensor *paged; /* [devices, n_layers] of [pages, floats]: areas, there; may be NULL */
    const gw_tensor *source_table; /* [devices] page tables of the source's caches; may be NULL */
    /* [devices, n_layers * n_blocks] states of op.h, where a block has one */
    const gw_tensor *state;
    /* [devices, GW_SPEC_VALUES] of [rows, width] f32: what start gives layers */
    const gw_tensor *kept;
    const gw_tensor *stream; /* [devices] of [rows, d] f32, placed                   */
    /* Of a model with eyes, of prompts; gate NULL: neither. What a row has of a picture takes the
     * place of its embedding: [devices] of [rows, 1], 0 in such rows, else 1; [devices, 1 + n_deep]
     * of [rows, d]: that, then what is added after each of the first n_deep layers; 0 elsewhere */
    const gw_tensor *gate, *seen;
    int n_deep;
    /* Or NULL: adapters, and [devices] of [rows, 2 at_once] f32, placed: of each row the places of
     * its adapters in increasing order, 0 where it has fewer, then their scales */
    const gw_lora_bank *lora;
    const gw_tensor *lora_route;
    gw_tensor logits; /* [rows, v] f32, placed on the device of the last block */
    /* Or NULL: ids [rows, 1] i32 on the device of the logits, which gw_graph_sample writes and an
     * embedding on the same device reads; the choices [rows, GW_CHOICE_WORDS] i32 beside it. Behind
     * a head [devices] of them; alone, one. */
    gw_tensor *ids;
    const gw_tensor *choice;
    gw_tensor hidden, pooled, scores; /* of texts; placed on the device of the last layer */
    /* Of a target of a head that drafts: [n_taps] of [rows, d] f32, placed: copies of the stream
     * before layer tap_layer[i]; n_layers: after the last one. joined: NULL, or [rows, n_taps*d]
     * on the same device, in which they stand side by side once the last layer has run. */
    const gw_tensor *taps, *joined;
    const int32_t *tap_layer;
    int n_taps;
    int both;                         /* rows see positions up to step.last: those of a picture */
    int rows;                         /* capacity of the body; of the head in gw_graph_head   */
    gw_order order;
} gw_graph_inputs;

typedef struct gw_graph {
    gw_node *nodes;
    int *blocks; /* [n_nodes] index of the block that each came from; -1: the pick */
    size_t n_nodes, max_nodes;
    gw_tensor *tensors; /* outputs between nodes, and views of stream and logits */
    size_t n_tensors, max_tensors;
    gw_tensor *streams[GW_MAX_DEVICES]; /* the views that all blocks share */
    /* Of each card of a group, [0] of a device alone: the one that was written last. */
    gw_tensor *stream[GW_MAX_CARDS];
    gw_tensor *logits[GW_MAX_CARDS];                 /* what the head's last block has given */
    const gw_tensor *hidden;                         /* what gw_graph_hidden has given */
    gw_tensor *kept[GW_MAX_DEVICES][GW_SPEC_VALUES]; /* views of kept values           */
    gw_tensor *lora_route[GW_MAX_DEVICES];           /* views of the adapters' route   */
    int exchanges;                                   /* so far                         */
} gw_graph;

/* Start an empty graph with room for a body and a head. */
gw_status gw_graph_new(const gw_graph_inputs *in, gw_graph *out);
void gw_graph_free(gw_graph *graph);

/* The device that runs the last block of the head, where the logits are. */
int gw_graph_head_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where);
/* The device where what stands before layer `first` (n_layers: behind all) has left the stream. */
int gw_graph_stream_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                           int first);
/* The device of the first block of this kind in a layer (n_layers: outside of them); 0 where there
 * is none. */
int gw_graph_block_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                          int layer, gw_block_kind kind);

/* Of a block that gives a value which others keep reading: where among `where` it lies, by start or
 * the first layer that gives it; -1: it gives none. */
int gw_graph_kept_at(const gw_blueprint *bp, const gw_hparams *hp, const gw_spec_block *b);

/* The device of what fills a layer's cache, or of what reads it. */
int gw_graph_cache_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                          int layer);

/* The shapes of all nodes; GW_E_METADATA names the first that does not fit. */
gw_status gw_graph_check(const gw_graph *graph);

/* Append layers [first, end), before them the embedding when first is 0. */
void gw_graph_body(gw_graph *graph, const gw_graph_inputs *in, int first, int end);
/* Append pick (when `pick`), norm and head for `rows` rows. Without pick the head reads the stream
 * of the body before it. */
void gw_graph_head(gw_graph *graph, const gw_graph_inputs *in, int pick);
/* Append the blocks of the layers' section `deep`, after one that has them: of a vision tower,
 * what goes from there to the decoder, in in->logits. */
void gw_graph_deep(gw_graph *graph, const gw_graph_inputs *in, int layer);
/* Append what stands in the head before its first matrix: rows of hidden states, in in->hidden, or
 * in the stream where there is nothing. Where the spec's number `hands_raw` is 1, in->hidden are
 * what the layers have given. */
void gw_graph_hidden(gw_graph *graph, const gw_graph_inputs *in);
/* Append, behind that, one row for each text: in->pooled. */
void gw_graph_pool(gw_graph *graph, const gw_graph_inputs *in, gw_pick_kind kind);
/* Append, behind that of hidden states, the section score: in->scores. */
void gw_graph_score(gw_graph *graph, const gw_graph_inputs *in);
/* Append the draw from the logits of the head before it; in an empty graph, from logits that are
 * there. */
void gw_graph_sample(gw_graph *graph, const gw_graph_inputs *in);

#endif
