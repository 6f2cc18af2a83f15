/* apps/encode.c - opens encoders by the options. */
#include "apps/encode.h"

#include <string.h>

#include "apps/signals.h"

static gw_pooling pooling_of(const char *name) {
    return name == NULL                ? GW_POOLING_MODEL
           : strcmp(name, "none") == 0 ? GW_POOLING_NONE
           : strcmp(name, "cls") == 0  ? GW_POOLING_CLS
           : strcmp(name, "last") == 0 ? GW_POOLING_LAST
                                       : GW_POOLING_MEAN;
}

int app_open_encoder(const app_options *o, gw_model **model, gw_encoder **encoder) {
    const app_need need = {.n_ctx = o->n_ctx > 0 ? o->n_ctx : -512, .batch = 512};
    int code = app_open_model(o, o->model, o->threads, &need, model);
    if (code != APP_OK) {
        return code;
    }
    gw_encoder_options options = {.n_ctx = o->n_ctx,
                                  .rows = o->batch,
                                  .pooling = pooling_of(o->pooling),
                                  .dimensions = o->dimensions,
                                  .normalize = o->no_normalize ? -1 : 0,
                                  .kv_type = o->kv_type,
                                  .cancel = signals_cancel()};
    gw_status status = gw_encoder_new(*model, &options, encoder);
    return status == GW_OK ? APP_OK : app_fail(status);
}

int app_token_types(const app_options *o, gw_encoder_text *text) {
    if (o->types.n > 0 && o->types.n != text->n) {
        app_error("--types: %zu types for %zu tokens", o->types.n, text->n);
        return APP_USAGE;
    }
    text->types = o->types.n > 0 ? o->types.at : NULL;
    return APP_OK;
}
