/* core/engine/encode/judge.c - scores of logits (LogitScore): rows of the head's matrix, and what
 * they say of a hidden state. */
#include <stdlib.h>

#include "core/engine/encode/encoder.h"

/* The head's matrix, whose rows are all that such a score needs; GW_E_UNSUPPORTED: logits are more
 * than its product with the hidden state. */
static gw_status find_head(const gw_encoder *e, int *role) {
    int n = 0, plain = 1;
    for (int b = 0; b < e->bp->n_blocks; b++) {
        const gw_spec_block *block = &e->bp->block[b];
        if (block->section != GW_SECTION_HEAD || block->kind == GW_BLOCK_NORM) {
            continue;
        }
        n++;
        *role = block->weight[0];
        plain &= block->kind == GW_BLOCK_LINEAR && *role >= 0 && block->number[0].n == 0;
        for (int k = 1; k < GW_SPEC_ARGS; k++) {
            plain &= block->weight[k] < 0 ||
                     gw_weights_get(e->model->weights, block->weight[k], 0, 0) == NULL;
        }
    }
    return n == 1 && plain
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, e->model->name,
                         "LogitScore of the family %s, whose logits are capped, scaled or biased, "
                         "is not known yet",
                         e->model->hp.family);
}

gw_status gw_judges_read(gw_encoder *e) {
    size_t width = (size_t)e->info.hidden;
    int role = -1;
    GW_TRY(find_head(e, &role));
    e->judge = malloc((size_t)e->sentence.n_judges * width * sizeof *e->judge);
    if (e->judge == NULL) {
        return gw_fail(GW_E_NOMEM, "encoder", "no memory for %zu values", width);
    }
    for (int i = 0; i < e->sentence.n_judges; i++) {
        if (e->sentence.judge[i] >= e->model->hp.n_vocab) {
            return gw_fail(GW_E_METADATA, e->model->name,
                           "LogitScore names token %d, and there are %d", e->sentence.judge[i],
                           e->model->hp.n_vocab);
        }
        GW_TRY(gw_weights_row(e->model->weights, role, e->sentence.judge[i],
                              e->judge + (size_t)i * width));
    }
    return GW_OK;
}

/* The logit of the first token, less that of the second; sums in double, in order. */
float gw_judge_row(const gw_encoder *e, const float *row) {
    float logit[2] = {0};
    for (int i = 0; i < e->sentence.n_judges; i++) {
        const float *w = e->judge + (size_t)i * (size_t)e->info.hidden;
        double sum = 0.0;
        for (int32_t c = 0; c < e->info.hidden; c++) {
            sum += (double)w[c] * (double)row[c];
        }
        logit[i] = (float)sum;
    }
    return logit[0] - logit[1];
}
