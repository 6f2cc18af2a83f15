/* core/model/weights_order.c - where a product's columns lie in another order than its input, and
 * that input is the activation of gate and up alone, their rows lie in that order instead, so that
 * nothing has to move values between the two while the model runs. A value of the input is the same
 * number wherever it stands, and sums of the product run over the same columns in the same order.
 */
#include "core/model/weights_parts.h"

/* A matrix whose columns lie group by group, as floats: in the publisher's order. */
void gw_weights_keep_columns(gw_weights *w) {
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        gw_entry *e = &w->entries[i];
        e->t.fmt = e->column != NULL ? GW_FMT_F32 : e->t.fmt;
    }
}

static gw_entry *entry_of(gw_weights *w, const gw_spec_block *b, int arg, int layer) {
    int r = b->weight[arg];
    gw_entry *e = r >= 0 ? &w->entries[w->start[r] + (size_t)layer] : NULL;
    return e != NULL && w->bp.weight[r].per_layer && gw_entry_there(e) ? e : NULL;
}

static int takes(const gw_spec_block *b, int v) {
    return b->in == v || b->side == v || b->plus == v || b->more == v;
}

/* The block of a layer whose result block c takes, where nobody else does; NULL: there is none. */
static const gw_spec_block *maker_of(const gw_weights *w, const gw_spec_block *c, int layer) {
    const gw_blueprint *bp = &w->bp;
    const gw_spec_block *maker = NULL;
    int alone = 1, v = c->in;
    if (v == GW_VALUE_STREAM || bp->width[v].n > 0) {
        return NULL;
    }
    for (int i = 0; i < bp->n_blocks; i++) {
        const gw_spec_block *b = &bp->block[i];
        if (b->section != c->section || !gw_block_runs(b, &w->hp, layer)) {
            continue;
        }
        if (maker != NULL && takes(b, v)) {
            alone = alone && b == c && b->side != v && b->plus != v && b->more != v;
        }
        if (b->out == v && b->index < c->index) {
            maker = b;
            alone = 1;
        } else if (b->out == v && b->index >= c->index) {
            break;
        }
    }
    return alone ? maker : NULL;
}

/* Does no other block of the layer use this weight? */
static int is_used_once(const gw_weights *w, int role, int layer) {
    int used = 0;
    for (int i = 0; i < w->bp.n_blocks; i++) {
        const gw_spec_block *b = &w->bp.block[i];
        for (int k = 0; k < GW_SPEC_ARGS && gw_block_runs(b, &w->hp, layer); k++) {
            used += b->weight[k] == role;
        }
    }
    return used == 1;
}

/* What gives rows to the result of block b: its matrices, and their biases. 0: nothing does. */
static int gives_rows(const gw_spec_block *b, int arg) {
    int n = gw_block_matrices(b);
    return b->weight[arg] >= 0 && (arg < n || (arg >= 3 && arg < 3 + n));
}

/* Can the rows of all of them stand in another order? Those of one stored tensor each, as many as
 * the order has. An optional one may be absent. */
static int can_move(gw_weights *w, const gw_spec_block *b, int layer, int64_t rows) {
    int matrices = 0;
    for (int k = 0; k < GW_SPEC_ARGS; k++) {
        const gw_entry *e = gives_rows(b, k) ? entry_of(w, b, k, layer) : NULL;
        if (e != NULL &&
            (e->n_stored != 1 || e->experts > 0 || e->transposed || e->of > 0 || e->buckets > 0 ||
             e->row != NULL || e->t.dim[0] != rows || !is_used_once(w, b->weight[k], layer))) {
            return 0;
        }
        matrices += e != NULL && e->t.n_dim == 2;
    }
    return matrices == gw_block_matrices(b);
}

static void move_rows(gw_weights *w, const gw_spec_block *b, gw_entry *down, int layer) {
    for (int k = 0; k < GW_SPEC_ARGS; k++) {
        gw_entry *e = gives_rows(b, k) ? entry_of(w, b, k, layer) : NULL;
        if (e != NULL) {
            e->row = down->column;
        }
    }
    down->column = NULL;
}

void gw_weights_order(gw_weights *w) {
    for (int i = 0; i < w->bp.n_blocks; i++) {
        const gw_spec_block *c = &w->bp.block[i];
        int product = c->kind == GW_BLOCK_RESIDUAL || c->kind == GW_BLOCK_LINEAR;
        for (int l = 0; product && gw_block_matrices(c) == 1 && l < w->hp.n_layers; l++) {
            int here = c->section == GW_SECTION_LAYER && gw_block_runs(c, &w->hp, l);
            gw_entry *down = here ? entry_of(w, c, 0, l) : NULL;
            const gw_spec_block *b =
                down != NULL && down->column != NULL ? maker_of(w, c, l) : NULL;
            if (b != NULL && (b->kind == GW_BLOCK_GLU || b->kind == GW_BLOCK_MLP) &&
                can_move(w, b, l, down->t.dim[1])) {
                move_rows(w, b, down, l);
            }
        }
    }
}
