/* core/engine/run/session_blame.c - finds where numbers stopped being finite, after the fact. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/engine/run/session_state.h"

/* Row of x [n, d] with a value that is not finite, or n. */
static int32_t first_bad_row(const float *x, int32_t n, size_t d) {
    for (int32_t i = 0; i < n; i++) {
        for (size_t j = 0; j < d; j++) {
            if (!(fabsf(x[(size_t)i * d + j]) <= FLT_MAX)) {
                return i;
            }
        }
    }
    return n;
}

static size_t stream_width(const gw_session *s) {
    return (size_t)s->model->hp.n_streams * (size_t)s->model->hp.d_model;
}

/* The stream after these layers, of the step that is set: its first bad row, or n. */
static gw_status run_layers(gw_session *s, int rows, gw_order order, gw_layer_range layers,
                            float *stream, int32_t *bad) {
    size_t d = stream_width(s), n = (size_t)s->step.n;
    gw_pass pass = {0};
    gw_status status = gw_pass_build(s, &pass, rows, order, GW_PASS_BODY, layers);
    if (status == GW_OK) {
        status = gw_plan_run(pass.plan, &s->step);
    }
    if (status == GW_OK) {
        int at = pass.graph.stream[0]->device;
        status = s->model->place.devices[at].backend->read(s->stream[at], 0, stream,
                                                           n * d * sizeof *stream);
    }
    if (status == GW_OK) {
        *bad = first_bad_row(stream, s->step.n, d);
    }
    gw_pass_free(&pass);
    return status;
}

typedef struct finding {
    int layer;   /* -1: the embedding; n_layers: the output head */
    int32_t pos; /* of the first token it concerns               */
} finding;

/* One chunk through the embedding and all layers; out->layer == n_layers when all is finite. */
static gw_status walk_layers(gw_session *s, int rows, gw_order order, float *stream, finding *out) {
    int32_t n = s->step.n, bad = n;
    int first = s->model->hp.n_source, layer = first - 1, layers = s->model->hp.n_layers;
    for (; layer < layers && bad == n; layer++) {
        gw_layer_range range = {layer < first ? first : layer, layer + 1};
        GW_TRY(gw_session_check_cancel(s));
        GW_TRY(run_layers(s, rows, order, range, stream, &bad));
    }
    *out = (finding){bad < n ? layer - 1 : layers, bad < n ? s->step.pos[bad] : s->step.pos[n - 1]};
    return GW_OK;
}

static gw_status find(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos, gw_order order,
                      finding *out) {
    int32_t rows = order == GW_ORDER_DECODE ? GW_DECODE_MAX : s->chunk;
    float *stream = malloc((size_t)rows * stream_width(s) * sizeof *stream);
    if (stream == NULL) {
        return gw_fail(GW_E_NOMEM, "session", "no memory to look for the layer");
    }
    gw_status status = gw_session_return(s);
    out->layer = s->model->hp.n_layers;
    for (int32_t at = 0; at < n && status == GW_OK && out->layer == s->model->hp.n_layers;) {
        int32_t part = n - at < rows ? n - at : rows;
        gw_session_set_step(s, tokens + at, part, pos + at);
        status = walk_layers(s, rows, order, stream, out);
        at += part;
    }
    free(stream);
    return status;
}

gw_status gw_session_blame(gw_session *s, const int32_t *tokens, int32_t n, int32_t pos,
                           gw_order order) {
    finding f;
    gw_status status = find(s, tokens, n, pos, order, &f);
    if (status != GW_OK) { /* cancelled, or no memory: the numbers are as bad without a place */
        return status == GW_E_CANCELLED
                   ? status
                   : gw_fail(GW_E_NUMERIC, s->model->name,
                             "logits are not finite after %d tokens: weights are damaged, or the "
                             "16-bit cache overflowed (try kv-type f32)",
                             (int)(pos + n));
    }
    if (f.layer < 0 || f.layer == s->model->hp.n_layers) {
        return gw_fail(GW_E_NUMERIC, s->model->name,
                       "logits are not finite after %d tokens: it begins in the %s; its weights "
                       "are damaged",
                       (int)(f.pos + 1), f.layer < 0 ? "embedding" : "output head");
    }
    return gw_fail(
        GW_E_NUMERIC, s->model->name,
        "logits are not finite after %d tokens: it begins in layer %d of %d; its weights "
        "are damaged, or the 16-bit cache overflowed (try kv-type f32)",
        (int)(f.pos + 1), f.layer, s->model->hp.n_layers);
}
