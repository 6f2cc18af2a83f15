/* core/engine/run/model_draft.c - what a head that drafts (specs/eagle3.spec, specs/dflash.spec)
 * says of the model that it drafts for: which of its layers, which of its tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/run/session_hidden.h"

static double named(const gw_model *m, const char *number, double absent) {
    return m->weights != NULL
               ? gw_spec_named_number(gw_weights_blueprint(m->weights), &m->hp, number, absent)
               : absent;
}

int32_t gw_model_tokens(const gw_model *m) {
    return (int32_t)named(m, "target_vocab", (double)m->hp.n_vocab);
}

int32_t gw_model_given_width(const gw_model *m) {
    const gw_blueprint *bp = gw_weights_blueprint(m->weights);
    double width = bp->given >= 0 ? gw_spec_value(bp, &m->hp, 0, bp->width[bp->given]) : 0.0;
    return width >= 1.0 && width <= 0x1p24 ? (int32_t)width : 0;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Folders hold how much further on the target's token is, GGUF files its number. */
static gw_status read_tokens(gw_model *m, const gw_stored *t, int32_t n, int32_t theirs) {
    const char *where = gw_checkpoint_path(m->checkpoint);
    const int moves = gw_checkpoint_container(m->checkpoint) != GW_CONTAINER_GGUF;
    if (t->n_dim != 1 || t->dim[0] != n) {
        return gw_fail(GW_E_METADATA, where, "d2t must have a number for each of the %d tokens",
                       (int)n);
    }
    unsigned char *taken = calloc((size_t)theirs, 1);
    m->draft_token = calloc((size_t)n, sizeof *m->draft_token);
    gw_status status = taken == NULL || m->draft_token == NULL
                           ? gw_fail(GW_E_NOMEM, where, "no memory for %d tokens", (int)n)
                           : GW_OK;
    for (int32_t i = 0; i < n && status == GW_OK; i++) {
        double to = (double)((const float *)t->data)[i] + (moves ? i : 0);
        if (!(to >= 0.0 && to < (double)theirs) || taken[(int32_t)to]++) {
            status = gw_fail(GW_E_METADATA, where,
                             "d2t makes token %d of it %g: no token of a model of %d, or one that "
                             "another is already",
                             (int)i, to, (int)theirs);
            break;
        }
        m->draft_token[i] = (int32_t)to;
    }
    free(taken);
    return status;
}

static int has_tensor(const gw_model *m, const char *part, const char **name) {
    for (size_t i = 0; i < gw_checkpoint_count(m->checkpoint); i++) {
        *name = gw_checkpoint_at(m->checkpoint, i)->name;
        if (strstr(*name, part) != NULL) {
            return 1;
        }
    }
    return 0;
}

gw_status gw_model_draft_check(const gw_model *m) {
    const char *name;
    if (gw_checkpoint_drafts(m->checkpoint) &&
        (has_tensor(m, "selector", &name) || has_tensor(m, "conv_", &name) ||
         has_tensor(m, "_conv.", &name))) {
        return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(m->checkpoint),
                       "has %s: convolutions within a block and a choice among its best tokens "
                       "(DFlash2) are not computed; DFlash and DSpark are",
                       name);
    }
    return GW_OK;
}

static gw_status read_chain(gw_model *m) {
    const char *where = gw_checkpoint_path(m->checkpoint), *name;
    const double rank = named(m, "chain_rank", 0.0);
    if (rank == 0.0 && has_tensor(m, "markov", &name)) {
        return gw_fail(GW_E_METADATA, where, "has %s, but does not state markov_rank", name);
    }
    if (!(rank >= 0.0 && rank <= 0x1p16)) {
        return gw_fail(GW_E_METADATA, where, "markov_rank is %g", rank);
    }
    m->draft_chain = (gw_draft_chain){
        .rank = (int32_t)rank,
        .kind = (gw_chain_kind)named(m, "chain_kind", 0.0),
        .sure = named(m, "sure", 0.0) > 0.0,
        .sure_by_token = rank > 0.0 && named(m, "sure_chain", 0.0) > 0.0};
    return GW_OK;
}

gw_draft_chain gw_model_draft_chain(const gw_model *model) { return model->draft_chain; }

static gw_status read_block(gw_model *m, int32_t theirs) {
    const char *where = gw_checkpoint_path(m->checkpoint);
    double rows = named(m, "draft_block", 0.0), mask = named(m, "draft_mask", -1.0);
    if (rows == 0.0) {
        return GW_OK;
    }
    GW_TRY(read_chain(m));
    if (!(rows >= 2.0 && rows <= GW_DECODE_MAX)) {
        return gw_fail(GW_E_UNSUPPORTED, where, "drafts blocks of %g tokens; 2 to %d are known",
                       rows, GW_DECODE_MAX);
    }
    if (!(mask >= 0.0 && mask < (double)theirs)) {
        return gw_fail(GW_E_METADATA, where,
                       "mask_token_id is %g, which is none of the %d tokens of its model", mask,
                       (int)theirs);
    }
    m->draft_block =
        (gw_draft_block){.rows = (int32_t)rows,
                         .mask = (int32_t)mask,
                         .first = named(m, "draft_first", 0.0) > 0.0 ? 0 : 1};
    return GW_OK;
}

gw_draft_block gw_model_draft_block(const gw_model *model) { return model->draft_block; }

gw_status gw_model_draft_open(gw_model *m) {
    const char *where = gw_checkpoint_path(m->checkpoint);
    double taps = named(m, "target_states", -1.0);
    int32_t theirs = gw_model_tokens(m), n = m->hp.n_vocab;
    if (taps < 0.0) {
        return GW_OK;
    }
    if (!(taps >= 1.0 && taps <= GW_TAPS)) {
        return gw_fail(GW_E_UNSUPPORTED, where,
                       "a head that drafts from that many layers is not known: EAGLE-3 has 3, "
                       "DFlash at most %d",
                       (int)GW_TAPS);
    }
    if (gw_model_given_width(m) == 0 || theirs < 1) {
        return gw_fail(GW_E_METADATA, where, "its model's width or vocabulary is not possible");
    }
    GW_TRY(read_block(m, theirs));
    const gw_stored *t = gw_checkpoint_integers(m->checkpoint, "d2t");
    if (t != NULL) {
        return read_tokens(m, t, n, theirs);
    }
    return n == theirs ? GW_OK
                       : gw_fail(GW_E_METADATA, where,
                                 "d2t is missing, or holds no integers: which of the %d tokens of "
                                 "its model its %d are is not said",
                                 (int)theirs, (int)n);
}

const int32_t *gw_model_draft_tokens(const gw_model *model) { return model->draft_token; }

void gw_model_spread(const gw_model *draft, const float *logits, float *to) {
    for (int32_t i = 0; i < draft->hp.n_vocab; i++) {
        to[draft->draft_token[i]] = logits[i];
    }
}

/* ---- layers ---------------------------------------------------------------------------------- */

static gw_status fits(const gw_model *m, const gw_model *target) {
    double width = named(m, "d_target", 0.0);
    if (width != (double)target->hp.d_model || target->hp.n_streams != 1) {
        return gw_fail(GW_E_UNSUPPORTED, m->name,
                       "drafts for a model of width %g; %s has %d%s", width, target->name,
                       (int)target->hp.d_model,
                       target->hp.n_streams != 1 ? " in several streams" : "");
    }
    if (gw_model_tokens(m) != target->hp.n_vocab) {
        return gw_fail(GW_E_UNSUPPORTED, m->name, "drafts for a model of %d tokens; %s has %d",
                       (int)gw_model_tokens(m), target->name, (int)target->hp.n_vocab);
    }
    return GW_OK;
}

gw_status gw_model_taps(const gw_model *model, const gw_model *target, int32_t *layer, int *n) {
    static const char *const names[GW_TAPS] = {"before0", "before1", "before2", "before3",
                                               "before4", "before5", "before6", "before7"};
    const int32_t layers = target->hp.n_layers, usual[] = {2, layers / 2, layers - 3};
    const int taps = (int)named(model, "target_states", 0.0);
    *n = 0;
    if (taps < 1 || taps > GW_TAPS) {
        return GW_OK;
    }
    GW_TRY(fits(model, target));
    for (int i = 0; i < taps; i++) {
        double at = named(model, names[i], -1.0);
        layer[i] = at < 0.0 ? usual[i % 3] : at <= 0x1p20 ? (int32_t)at : INT32_MAX;
        if (layer[i] < 0 || layer[i] > layers) {
            return gw_fail(GW_E_UNSUPPORTED, model->name,
                           "drafts for a model with a layer %d; %s has %d", (int)layer[i],
                           target->name, (int)layers);
        }
    }
    *n = taps;
    return GW_OK;
}
