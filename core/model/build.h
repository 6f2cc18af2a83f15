/* core/model/build.h - spec + hyper-parameters + weights -> node lists for a plan.
 *
 * The body runs from the tokens to the stream after the last layer; the head turns rows of the
 * stream into logits. The stream lives in a buffer of the caller, so that a head can follow in a
 * plan of its own (prompts) or in the same plan (decode).
 */
#ifndef GW_MODEL_BUILD_H
#define GW_MODEL_BUILD_H

#include "core/model/weights.h"

/* What a graph is built over; tensors are borrowed and must outlive the graph's plan. */
typedef struct gw_graph_inputs {
    const gw_hparams *hp;
    const gw_weights *weights;
    const gw_tensor *rope;       /* [positions, 2, rope_dim / 2] f32 */
    const gw_tensor *page_table; /* [slots, pages] i32               */
    const gw_tensor *k, *v;      /* [n_layers] caches                */
    gw_tensor stream;            /* [rows, d] f32, placed            */
    gw_tensor logits;            /* [rows, v] f32, placed            */
    int rows;                    /* capacity of the body; of the head in gw_graph_head */
    gw_order order;
} gw_graph_inputs;

typedef struct gw_graph {
    gw_node *nodes;
    size_t n_nodes, max_nodes;
    gw_tensor *tensors; /* outputs between nodes, and views of stream and logits */
    size_t n_tensors, max_tensors;
    gw_tensor *stream; /* the view that all blocks share */
} gw_graph;

/* Start an empty graph with room for a body and a head. */
gw_status gw_graph_new(const gw_graph_inputs *in, gw_graph *out);
void gw_graph_free(gw_graph *graph);

/* Append layers [first, end), before them the embedding when first is 0. */
void gw_graph_body(gw_graph *graph, const gw_graph_inputs *in, int first, int end);
/* Append pick (when `pick`), norm and head for `rows` rows. Without pick the head reads the stream
 * of the body before it. */
void gw_graph_head(gw_graph *graph, const gw_graph_inputs *in, int pick);

#endif
