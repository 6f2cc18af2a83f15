/* core/engine/run/describe.c - the parts of a gw_model_info that files alone tell. */
#include "core/engine/run/describe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/model/spec.h"
#include "core/tensor/formats.h"

void gw_describe_files(const gw_checkpoint *checkpoint, gw_model_info *info,
                       uint64_t bytes[GW_FMT_COUNT]) {
    memset(bytes, 0, GW_FMT_COUNT * sizeof *bytes);
    info->file_bytes = gw_checkpoint_file_bytes(checkpoint);
    info->n_params = info->weight_bytes = 0;
    for (size_t i = 0; i < gw_checkpoint_count(checkpoint); i++) {
        const gw_stored *t = gw_checkpoint_at(checkpoint, i);
        uint64_t n = 1;
        for (int d = 0; d < t->n_dim; d++) {
            n *= (uint64_t)t->dim[d];
        }
        info->n_params += n;
        info->weight_bytes += t->bytes;
        bytes[t->fmt] += t->bytes;
    }
}

void gw_describe_shape(const gw_hparams *hp, gw_model_info *info) {
    info->n_layers = hp->n_layers;
    info->d_model = hp->d_model;
    const gw_layer *first = hp->layer; /* NULL: the numbers are not known */
    info->n_heads = first != NULL ? first->n_heads : 0;
    info->n_kv_heads = first != NULL ? first->n_kv_heads : 0;
    info->d_head = first != NULL ? first->d_head : 0;
    info->d_ff = first != NULL ? first->d_ff : 0;
    info->n_vocab = hp->n_vocab;
    info->n_ctx_train = hp->n_ctx;
    info->state_bytes = hp->state_bytes;
    info->batch_state_bytes = hp->least_state_bytes;
    info->kv_bytes_per_token = 0;
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        info->kv_bytes_per_token +=
            y->has_cache ? 2 * (uint64_t)y->n_kv_heads * (uint64_t)(y->d_head + gw_layer_v_width(y))
                         : 0;
        info->kv_bytes_per_token += sizeof(float) * (uint64_t)gw_layer_paged(y) / GW_PAGE;
    }
}

void gw_describe_head(const gw_checkpoint *checkpoint, gw_model_info *info) {
    const gw_blueprint *bp = gw_checkpoint_blueprint(checkpoint);
    const gw_hparams *hp = gw_checkpoint_hparams(checkpoint);
    if (gw_checkpoint_drafts(checkpoint)) {
        info->target_width = (int32_t)gw_spec_named_number(bp, hp, "d_target", 0.0);
        info->target_vocab = (int32_t)gw_spec_named_number(bp, hp, "target_vocab", 0.0);
    }
}

void gw_describe_format(gw_fmt fmt, char *out, size_t room) {
    snprintf(out, room, "%s", gw_format_of(fmt)->name);
    for (char *c = out; *c != '\0'; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
}
