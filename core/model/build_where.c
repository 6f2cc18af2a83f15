/* core/model/build_where.c - which device runs what a session has memory for; the check of a graph,
 * and its end. */
#include <stdlib.h>
#include <string.h>

#include "core/model/build.h"

int gw_graph_head_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where) {
    int last = bp->n_blocks - 1;
    while (last > 0 && bp->block[last].section == GW_SECTION_SCORE) {
        last--;
    }
    return where[(bp->block[last].section == GW_SECTION_HEAD ? hp->n_layers : hp->n_layers - 1) *
                     bp->n_blocks +
                 last];
}

int gw_graph_block_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                          int layer, gw_block_kind kind) {
    for (int b = 0; b < bp->n_blocks; b++) {
        if (bp->block[b].kind == kind && gw_block_runs(&bp->block[b], hp, layer)) {
            return where[layer * bp->n_blocks + b];
        }
    }
    return 0;
}

int gw_graph_cache_device(const gw_blueprint *bp, const gw_hparams *hp, const gw_where *where,
                          int layer) {
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        int fills = block->kind == GW_BLOCK_ROPE_KV && !(block->flags & GW_FLAG_QUERY);
        int reads = (block->kind == GW_BLOCK_ATTENTION && !(block->flags & GW_FLAG_CROSS)) ||
                    block->kind == GW_BLOCK_LISTED;
        if ((fills || reads) && gw_block_runs(block, hp, layer)) {
            return where[layer * bp->n_blocks + b];
        }
    }
    return 0;
}

int gw_graph_kept_at(const gw_blueprint *bp, const gw_hparams *hp, const gw_spec_block *b) {
    int first = b->section == GW_SECTION_START ? hp->n_layers : 0, l = first;
    int gives = b->section == GW_SECTION_START || gw_block_hands_on(b);
    int end = first == hp->n_layers ? hp->n_layers + 1 : hp->n_layers;
    while (l < end && !gw_block_runs(b, hp, l)) {
        l++;
    }
    return gives && bp->width[b->out].n > 0 && l < end ? l * bp->n_blocks + b->index : -1;
}

gw_status gw_graph_check(const gw_graph *graph) {
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const gw_node *node = &graph->nodes[i];
        if (node->op == GW_OP_ACT && node->args.act.kind >= GW_ACT_KINDS) {
            return gw_fail(GW_E_METADATA, "plan", "layer %d: the activation is none", node->layer);
        }
        GW_TRY(gw_op_describe(node->op)->check(node));
    }
    return GW_OK;
}

void gw_graph_free(gw_graph *graph) {
    free(graph->nodes);
    free(graph->blocks);
    free(graph->tensors);
    memset(graph, 0, sizeof *graph);
}
