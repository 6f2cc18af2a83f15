/* core/engine/run/session_hidden.c - see session_hidden.h. */
#include "core/engine/run/session_hidden.h"

#include <stdlib.h>
#include <string.h>

int gw_model_predicts(const gw_model *model) {
    return model->weights != NULL && gw_weights_blueprint(model->weights)->given >= 0;
}

int32_t gw_session_hidden_width(const gw_session *s) { return s->model->hp.d_model; }

/* ---- handing out ----------------------------------------------------------------------------- */

/* The device of the head's first block. */
static int hidden_device(const gw_session *s) {
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    int b = 0;
    while (b < bp->n_blocks && bp->block[b].section != GW_SECTION_HEAD) {
        b++;
    }
    return b < bp->n_blocks ? s->where[s->model->hp.n_layers * bp->n_blocks + b] : s->head_device;
}

gw_status gw_session_hidden_open(gw_session *s) {
    gw_hidden *h = &s->hidden;
    int widest = gw_session_widest(s), d = hidden_device(s);
    int rows[2] = {widest, s->most_rows > widest ? s->most_rows : widest};
    const gw_plan_device *to = &s->model->place.devices[d];
    size_t width = (size_t)gw_session_hidden_width(s);
    gw_layer_range none = {0, 0};
    if (h->buffer != NULL) {
        return GW_OK;
    }
    GW_TRY(to->backend->alloc(to->device, (size_t)rows[1] * width * sizeof(float), &h->buffer));
    h->on = (gw_tensor){.name = "hidden",
                        .fmt = GW_FMT_F32,
                        .n_dim = 2,
                        .dim = {rows[1], (int64_t)width},
                        .buf = h->buffer,
                        .device = d};
    for (int i = 0; i < 2; i++) {
        h->pass[i] = &s->passes[s->n_passes++];
        GW_TRY(gw_pass_build(s, h->pass[i], rows[i], GW_ORDER_DECODE, GW_PASS_HIDDEN, none));
        if (h->pass[i]->graph.n_nodes == 0) {
            return gw_fail(GW_E_UNSUPPORTED, s->model->name,
                           "its head has no norm: there is no hidden state to hand out");
        }
        GW_TRY(gw_plan_ready(h->pass[i]->plan, NULL));
    }
    h->widest = widest;
    gw_session_number_rows(s);
    return GW_OK;
}

void gw_session_hidden_free(gw_session *s) {
    gw_hidden *h = &s->hidden;
    if (h->buffer != NULL) {
        s->model->place.devices[h->on.device].backend->release(h->buffer);
    }
    free(h->rows);
    memset(h, 0, sizeof *h);
}

void gw_session_hidden_watch(gw_session *s, gw_hidden_fn fn, void *user) {
    s->hidden.watch = fn;
    s->hidden.watch_user = user;
}

gw_status gw_session_hidden_read(gw_session *s, int32_t at, int32_t n, float *out) {
    gw_hidden *h = &s->hidden;
    size_t row = (size_t)gw_session_hidden_width(s) * sizeof(float);
    GW_TRY(gw_pass_run(s, h->pass[s->step.n > h->widest], gw_plan_run));
    return s->model->place.devices[h->on.device].backend->read(h->buffer, (size_t)at * row, out,
                                                               (size_t)n * row);
}

gw_status gw_session_hidden_tell(gw_session *s, int32_t pos) {
    return s->hidden.watch != NULL ? s->hidden.watch(s->hidden.watch_user, s, pos, s->step.n)
                                   : GW_OK;
}

/* ---- taking ---------------------------------------------------------------------------------- */

void gw_session_hidden_source(gw_session *s, gw_hidden_source_fn fn, void *user) {
    s->hidden.source = fn;
    s->hidden.source_user = user;
}

gw_status gw_session_hidden_give(gw_session *s, const float *rows, int32_t n) {
    int v = gw_weights_blueprint(s->model->weights)->given;
    size_t bytes = (size_t)n * (size_t)gw_session_hidden_width(s) * sizeof(float);
    for (int d = 0; d < s->model->place.n_devices; d++) {
        GW_TRY(s->kept[d][v] != NULL
                   ? s->model->place.devices[d].backend->write(s->kept[d][v], 0, rows, bytes)
                   : GW_OK);
    }
    return GW_OK;
}

gw_status gw_session_hidden_ask(gw_session *s, int32_t pos) {
    gw_hidden *h = &s->hidden;
    int widest = gw_session_widest(s), most = s->most_rows > widest ? s->most_rows : widest;
    if (!gw_model_predicts(s->model) || (h->source == NULL && h->rows != NULL)) {
        return GW_OK;
    }
    if (h->rows == NULL) {
        h->rows = calloc((size_t)most * (size_t)gw_session_hidden_width(s), sizeof *h->rows);
        if (h->rows == NULL) {
            return gw_fail(GW_E_NOMEM, "context", "no memory for hidden states");
        }
    }
    if (h->source == NULL) {
        return gw_session_hidden_give(s, h->rows, most);
    }
    h->source(h->source_user, pos, s->step.n, h->rows);
    return gw_session_hidden_give(s, h->rows, s->step.n);
}
