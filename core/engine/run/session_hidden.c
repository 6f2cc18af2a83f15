/* core/engine/run/session_hidden.c - see session_hidden.h. */
#include "core/engine/run/session_hidden.h"

#include <stdlib.h>
#include <string.h>

int gw_model_predicts(const gw_model *model) {
    return model->weights != NULL && gw_weights_blueprint(model->weights)->given >= 0;
}

int32_t gw_session_hidden_width(const gw_session *s) {
    return (s->hidden.n_taps > 0 ? s->hidden.n_taps : 1) * s->model->hp.d_model;
}

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
    size_t width = (size_t)s->model->hp.d_model;
    gw_layer_range none = {0, 0};
    if (h->buffer != NULL || h->n_taps > 0) {
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
    h->read = malloc((size_t)rows[1] * width * sizeof *h->read);
    if (h->read == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for hidden states of %d rows", rows[1]);
    }
    h->widest = widest;
    gw_session_number_rows(s);
    return GW_OK;
}

static void free_taps(gw_session *s) {
    gw_hidden *h = &s->hidden;
    for (int i = 0; i < h->n_taps; i++) {
        if (h->tap_buffer[i] != NULL) {
            s->model->place.devices[h->tap_on[i].device].backend->release(h->tap_buffer[i]);
        }
        h->tap_buffer[i] = NULL;
    }
    if (h->joined.buf != NULL) {
        s->model->place.devices[h->joined.device].backend->release(h->joined.buf);
    }
    h->joined.buf = NULL;
    free(h->read);
    h->read = NULL;
    h->n_taps = 0;
}

void gw_session_hidden_free(gw_session *s) {
    gw_hidden *h = &s->hidden;
    if (h->buffer != NULL) {
        s->model->place.devices[h->on.device].backend->release(h->buffer);
    }
    for (int d = 0; d < s->model->place.n_devices; d++) {
        const gw_backend *backend = s->model->place.devices[d].backend;
        if (h->marks[d] != NULL) {
            backend->release(h->marks[d]);
        }
        if (h->zeros[d] != NULL) {
            backend->release(h->zeros[d]);
        }
    }
    free_taps(s);
    free(h->rows);
    free(h->mark_rows);
    memset(h, 0, sizeof *h);
}

void gw_session_hidden_watch(gw_session *s, gw_hidden_fn fn, void *user) {
    s->hidden.watch = fn;
    s->hidden.watch_user = user;
}

/* Taps on one device stand side by side there too, so that one reading has all. */
static gw_status join_taps(gw_session *s, int64_t rows, int64_t width) {
    gw_hidden *h = &s->hidden;
    const int d = h->tap_on[0].device;
    const gw_plan_device *to = &s->model->place.devices[d];
    int together = h->n_taps > 1;
    for (int i = 1; i < h->n_taps; i++) {
        together &= h->tap_on[i].device == d;
    }
    if (!together) {
        return GW_OK;
    }
    struct gw_buffer *buffer = NULL;
    GW_TRY(to->backend->alloc(to->device, (size_t)(rows * width) * sizeof(float), &buffer));
    h->joined = (gw_tensor){.name = "taps",
                            .fmt = GW_FMT_F32,
                            .n_dim = 2,
                            .dim = {rows, width},
                            .buf = buffer,
                            .device = d};
    return GW_OK;
}

gw_status gw_session_hidden_tap(gw_session *s, const int32_t *layer, int n) {
    gw_hidden *h = &s->hidden;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    int widest = gw_session_widest(s), rows = s->most_rows > widest ? s->most_rows : widest;
    size_t width = (size_t)s->model->hp.d_model;
    if (h->n_taps == n && memcmp(h->tap_layer, layer, (size_t)n * sizeof *layer) == 0) {
        return GW_OK; /* as for the drafter before */
    }
    free_taps(s);
    for (int i = 0; i < n; i++) {
        int d = gw_graph_stream_device(bp, &s->model->hp, s->where, layer[i]);
        const gw_plan_device *to = &s->model->place.devices[d];
        h->tap_layer[i] = layer[i];
        h->tap_on[i] = (gw_tensor){.name = "tap",
                                   .fmt = GW_FMT_F32,
                                   .n_dim = 2,
                                   .dim = {rows, (int64_t)width},
                                   .device = d};
        h->n_taps = i + 1;
        GW_TRY(to->backend->alloc(to->device, (size_t)rows * width * sizeof(float),
                                  &h->tap_buffer[i]));
        h->tap_on[i].buf = h->tap_buffer[i];
    }
    GW_TRY(join_taps(s, rows, (int64_t)n * (int64_t)width));
    width *= h->joined.buf != NULL ? (size_t)n : 1;
    h->read = malloc((size_t)rows * width * sizeof *h->read);
    if (h->read == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for hidden states of %d rows", rows);
    }
    GW_TRY(gw_session_settle(s));
    return gw_session_rebuild(s);
}

gw_status gw_session_hidden_read(gw_session *s, int32_t at, int32_t n, float *out, int32_t stride) {
    gw_hidden *h = &s->hidden;
    int parts = h->n_taps > 0 && h->joined.buf == NULL ? h->n_taps : 1;
    size_t d = (size_t)(gw_session_hidden_width(s) / parts), row = d * sizeof(float);
    if (h->n_taps == 0) {
        GW_TRY(gw_pass_run(s, h->pass[s->step.n > h->widest], gw_plan_run));
    }
    for (int i = 0; i < parts; i++) {
        const gw_tensor *on = h->n_taps == 0          ? &h->on
                              : h->joined.buf != NULL ? &h->joined
                                                      : &h->tap_on[i];
        struct gw_buffer *from = on->buf;
        int device = on->device;
        float *to = (size_t)stride == d ? out : h->read;
        GW_TRY(s->model->place.devices[device].backend->read(from, (size_t)at * row, to,
                                                             (size_t)n * row));
        for (int32_t r = 0; to != out && r < n; r++) {
            memcpy(out + (size_t)r * (size_t)stride + (size_t)i * d, to + (size_t)r * d, row);
        }
    }
    return GW_OK;
}

int gw_session_hidden_stays(const gw_session *s) {
    const gw_backend *own = s->model->place.devices[s->hidden.on.device].backend;
    const int v = gw_weights_blueprint(s->model->weights)->given;
    int stays = s->hidden.buffer != NULL && own->copy != NULL;
    for (int d = 0; d < s->model->place.n_devices; d++) {
        stays &= s->kept[d][v] == NULL || s->model->place.devices[d].backend == own;
    }
    return stays;
}

gw_status gw_session_hidden_keep(gw_session *s, int32_t row) {
    s->hidden.own_row = row;
    return gw_pass_run(s, s->hidden.pass[s->step.n > s->hidden.widest], gw_plan_start);
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
    size_t bytes = (size_t)n * (size_t)gw_model_given_width(s->model) * sizeof(float);
    s->hidden.cleared = 0;
    for (int d = 0; d < s->model->place.n_devices; d++) {
        GW_TRY(s->kept[d][v] != NULL
                   ? s->model->place.devices[d].backend->write(s->kept[d][v], 0, rows, bytes)
                   : GW_OK);
    }
    return GW_OK;
}

void gw_session_hidden_mark(gw_session *s, int marked) { s->hidden.marked = marked; }

/* Rows of a block are always the same: a device that copies has them already. */
static gw_status give_marks_to(gw_session *s, int d, size_t bytes) {
    gw_hidden *h = &s->hidden;
    const gw_plan_device *to = &s->model->place.devices[d];
    const int v = gw_weights_blueprint(s->model->weights)->given;
    const size_t all = (size_t)GW_DECODE_MAX * (size_t)gw_model_given_width(s->model);
    if (to->backend->copy == NULL) {
        return to->backend->write(s->kept[d][v], 0, h->mark_rows, bytes);
    }
    if (h->marks[d] == NULL) {
        GW_TRY(to->backend->alloc(to->device, all * sizeof(float), &h->marks[d]));
        GW_TRY(to->backend->write(h->marks[d], 0, h->mark_rows, all * sizeof(float)));
    }
    return to->backend->copy(s->kept[d][v], 0, h->marks[d], 0, bytes);
}

static gw_status give_marks(gw_session *s) {
    gw_hidden *h = &s->hidden;
    const int v = gw_weights_blueprint(s->model->weights)->given;
    const size_t width = (size_t)gw_model_given_width(s->model);
    if (h->mark_rows == NULL) {
        h->mark_rows = calloc(GW_DECODE_MAX, width * sizeof *h->mark_rows);
        if (h->mark_rows == NULL) {
            return gw_fail(GW_E_NOMEM, "draft", "no memory for a block");
        }
        for (size_t i = 1; i <= GW_DECODE_MAX; i++) {
            h->mark_rows[i * width - 1] = 1.0f;
        }
    }
    for (int d = 0; d < s->model->place.n_devices; d++) {
        GW_TRY(s->kept[d][v] != NULL
                   ? give_marks_to(s, d, (size_t)s->step.n * width * sizeof(float))
                   : GW_OK);
    }
    return GW_OK;
}

/* The row's own state is the last part of what it takes; the rest, a target's, is zeros. */
static gw_status give_own(gw_session *s) {
    gw_hidden *h = &s->hidden;
    const int v = gw_weights_blueprint(s->model->weights)->given;
    const size_t own = (size_t)s->model->hp.d_model * sizeof(float);
    const size_t rest = (size_t)gw_model_given_width(s->model) * sizeof(float) - own;
    for (int d = 0; d < s->model->place.n_devices; d++) {
        const gw_plan_device *to = &s->model->place.devices[d];
        struct gw_buffer *given = s->kept[d][v];
        if (given == NULL) {
            continue;
        }
        if (rest > 0 && h->zeros[d] == NULL) {
            GW_TRY(to->backend->alloc(to->device, rest, &h->zeros[d]));
        }
        if (rest > 0 && !h->cleared) {
            GW_TRY(to->backend->copy(given, 0, h->zeros[d], 0, rest));
        }
        GW_TRY(to->backend->copy(given, rest, h->buffer, (size_t)h->own_row * own, own));
    }
    h->cleared = 1;
    return GW_OK;
}

gw_status gw_session_hidden_ask(gw_session *s, int32_t pos) {
    gw_hidden *h = &s->hidden;
    if (h->marked) {
        h->cleared = 0;
        return give_marks(s);
    }
    int widest = gw_session_widest(s), most = s->most_rows > widest ? s->most_rows : widest;
    if (!gw_model_predicts(s->model) || (h->source == NULL && h->rows != NULL)) {
        return GW_OK;
    }
    if (h->rows == NULL) {
        h->rows = calloc((size_t)most * (size_t)gw_model_given_width(s->model), sizeof *h->rows);
        if (h->rows == NULL) {
            return gw_fail(GW_E_NOMEM, "context", "no memory for hidden states");
        }
    }
    if (h->source == NULL) {
        return gw_session_hidden_give(s, h->rows, most);
    }
    if (h->source(h->source_user, pos, s->step.n, h->rows)) {
        return give_own(s);
    }
    return gw_session_hidden_give(s, h->rows, s->step.n);
}
