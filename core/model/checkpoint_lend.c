/* core/model/checkpoint_lend.c - the embedding and the output head that a head that drafts may do
 * without: those of the model that it drafts for. */
#include <string.h>

#include "core/model/checkpoint_parts.h"

enum { OWN = 2, THEIRS = 6 };

/* Under which name of its own the head has it, and under which other models do. */
typedef struct lent {
    const char *gguf, *folder[OWN], *theirs[THEIRS];
} lent;

static const lent embedding = {
    "token_embd.weight",
    {"embed_tokens.weight", "model.embed_tokens.weight"},
    {"token_embd.weight", "model.embed_tokens.weight", "embed_tokens.weight",
     "model.language_model.embed_tokens.weight", "language_model.model.embed_tokens.weight"}};
static const lent output = {"output.weight",
                            {"lm_head.weight", "model.lm_head.weight"},
                            {"output.weight", "lm_head.weight", "language_model.lm_head.weight"}};

static int has(const gw_checkpoint *c, const lent *what) {
    int own = c->container == GW_CONTAINER_GGUF && gw_checkpoint_find(c, what->gguf) != NULL;
    for (int i = 0; i < OWN; i++) {
        own |= gw_checkpoint_find(c, what->folder[i]) != NULL;
    }
    return own;
}

int gw_checkpoint_embeds(const gw_checkpoint *c) { return has(c, &embedding); }

static const gw_stored *theirs(const gw_checkpoint *lender, const lent *what) {
    const gw_stored *t = NULL;
    for (int i = 0; i < THEIRS && t == NULL && what->theirs[i] != NULL; i++) {
        t = gw_checkpoint_find(lender, what->theirs[i]);
    }
    return t;
}

static gw_status borrow(gw_checkpoint *c, const lent *what) {
    const gw_stored *t = has(c, what) ? NULL : theirs(c->lender, what);
    if (t == NULL && !has(c, what) && what == &output) { /* a model may have one for both */
        t = theirs(c->lender, &embedding);
    }
    if (t == NULL) {
        return GW_OK; /* what is missing is named when weights are matched */
    }
    gw_stored own = *t;
    own.name = c->container == GW_CONTAINER_GGUF ? what->gguf : what->folder[0];
    return gw_checkpoint_add(c, c->where, &own);
}

static double named(const gw_checkpoint *c, const char *number) {
    return gw_spec_named_number(c->blueprint, &c->hparams, number, 0.0);
}

gw_status gw_checkpoint_borrow(gw_checkpoint *c, const char *path) {
    const gw_hparams *hp = &c->hparams;
    if (!gw_checkpoint_drafts(c) || (has(c, &embedding) && has(c, &output))) {
        return GW_OK;
    }
    GW_TRY(gw_checkpoint_open(path, NULL, 0, &c->lender));
    const gw_hparams *own = &c->lender->hparams;
    const double width = named(c, "d_target"), tokens = named(c, "target_vocab");
    if (width != (double)own->d_model || tokens != (double)own->n_vocab) {
        return gw_fail(GW_E_UNSUPPORTED, c->name,
                       "drafts for a model of width %g and %g tokens; %s has %d and %d", width,
                       tokens, c->lender->name, (int)own->d_model, (int)own->n_vocab);
    }
    GW_TRY(borrow(c, &embedding));
    return tokens == (double)hp->n_vocab ? borrow(c, &output) : GW_OK;
}
