/* core/engine/placing/forecast.c - what a model would take of each device for every N, and how fast
 * it would be; no weight is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/placing/cache_time.h"
#include "core/engine/placing/gauge.h"
#include "core/engine/run/model_state.h"
#include "core/engine/run/tower.h"

_Static_assert((int)GW_DEVICES_MAX == (int)GW_MAX_DEVICES, "a row has a use for every device");

static void describe_devices(const gw_place *place, const gw_place_sizes *sizes,
                             const gw_gauge *speeds, gw_forecast *f) {
    f->n_devices = (size_t)place->n_devices;
    for (int d = 0; d < place->n_devices; d++) {
        f->devices[d] = place->info[d];
        f->room[d] = sizes->room[d];
        f->read_gbps[d] = speeds[d].token_layer > 0.0
                              ? 1e-9 * speeds[d].weight_bytes / speeds[d].token_layer
                              : 0.0;
        f->disturbed[d] = speeds[d].disturbed;
        f->send_us[d] = 1e6 * speeds[d].send_token;
    }
}

/* times NULL: not measured. */
static void fill_row(const gw_place *place, const gw_place_sizes *sizes, const gw_gauge *speeds,
                     const gw_cache_time *times, int n, gw_where *where, gw_forecast_row *row,
                     gw_forecast_cache *cache) {
    gw_place_use use[GW_MAX_DEVICES];
    double prompt = 0.0, token = 0.0;
    gw_place_spread(place, sizes, n, where);
    row->offloaded = n;
    row->fits =
        gw_place_fits(place, sizes, where, use, NULL) && gw_place_home_fits(place, sizes, use);
    gw_gauge_predict(place, sizes, speeds, where, &prompt, &token);
    row->prompt_rate = prompt > 0.0 ? sizes->chunk / prompt : 0.0;
    row->token_rate = token > 0.0 ? 1.0 / token : 0.0;
    cache->full_seconds = times != NULL ? gw_cache_seconds(place, sizes, times) : 0.0;
    for (int d = 0; d < place->n_devices; d++) {
        cache->layers[d] = use[d].host_layers;
        cache->bytes[d] = use[d].kv_host;
        row->use[d] = (gw_forecast_use){.layers = use[d].layers,
                                        .head = use[d].head,
                                        .weights = use[d].weights,
                                        .kv = use[d].kv,
                                        .scratch = use[d].scratch};
    }
}

static void fill_rows(gw_place *place, const gw_place_sizes *sizes, const gw_gauge *speeds,
                      const gw_cache_time *times, gw_forecast *f) {
    for (size_t n = 0; n < f->n_rows; n++) {
        fill_row(place, sizes, speeds, times, (int)n, place->where, &f->rows[n], &f->caches[n]);
    }
}

static int hosts_some(const gw_forecast *f) {
    int some = 0;
    for (size_t i = 0; i < f->n_rows * f->n_devices; i++) {
        some |= f->caches[i / f->n_devices].layers[i % f->n_devices] > 0;
    }
    return some;
}

static gw_status fill(gw_model *m, const gw_model_options *o, const gw_place_sizes *sizes,
                      gw_forecast *f) {
    gw_gauge speeds[GW_GAUGES];
    gw_cache_time times[GW_MAX_DEVICES];
    gw_place *place = &m->place;
    int spread = place->n_asked > 1 || place->asked[0] != 0;
    GW_TRY(gw_place_layers(place, sizes, o));
    GW_TRY(gw_gauge_all(place, sizes, speeds));
    describe_devices(place, sizes, speeds, f);
    f->n_layers = m->hp.n_layers;
    f->n_ctx = sizes->n_ctx;
    f->chunk = sizes->chunk;
    f->state_bytes = m->hp.state_bytes;
    f->batch_state_bytes = m->hp.least_state_bytes;
    f->chosen = place->offloaded;
    snprintf(f->note, sizeof f->note, "%.*s", (int)sizeof f->note - 1, place->note);
    snprintf(f->name, sizeof f->name, "%s", gw_checkpoint_name(m->checkpoint));
    f->n_rows = spread ? (size_t)m->hp.n_layers + 1 : 1;
    f->rows = calloc(f->n_rows, sizeof *f->rows);
    f->caches = calloc(f->n_rows, sizeof *f->caches);
    if (f->rows == NULL || f->caches == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %zu rows", f->n_rows);
    }
    f->chosen = spread ? f->chosen : 0;
    fill_rows(place, sizes, speeds, NULL, f);
    if (hosts_some(f)) {
        gw_status status = gw_cache_times(place, sizes, times);
        fill_rows(place, sizes, speeds, status == GW_OK ? times : NULL, f);
        return status == GW_E_CANCELLED ? status : GW_OK;
    }
    return GW_OK;
}

static gw_status forecast_once(gw_model *m, const gw_model_options *options,
                               const gw_backend *const *backends, const gw_passed *passed,
                               const gw_tower *tower, gw_forecast *f) {
    gw_weights_options load;
    gw_place_sizes sizes = {0};
    GW_TRY(gw_model_begin(m, options));
    GW_TRY(gw_model_prepare(m, options, backends, passed, &load));
    if (tower != NULL) {
        gw_tower_taken(tower, 0, &m->place);
    }
    gw_status status = gw_place_measure(&m->place, m->weights, &m->hp, options, &sizes);
    status = status == GW_OK ? fill(m, options, &sizes, f) : status;
    gw_place_sizes_free(&sizes);
    return status;
}

gw_status gw_engine_forecast(const gw_model_options *options, const gw_backend *const *backends,
                             gw_forecast **out) {
    gw_passed passed = {0};
    gw_tower *tower = NULL; /* first: layers are placed in what it leaves free */
    gw_status status;
    int again;
    GW_TRY(options->images ? gw_tower_open(options, backends, 0, &tower) : GW_OK);
    do {
        gw_model *m = calloc(1, sizeof *m);
        gw_forecast *f = calloc(1, sizeof *f);
        status = m != NULL && f != NULL ? forecast_once(m, options, backends, &passed, tower, f)
                                        : gw_fail(GW_E_NOMEM, "plan", "no memory for a forecast");
        again =
            status != GW_OK && m != NULL && gw_place_pass_over(&m->place, options, status, &passed);
        if (status == GW_OK) {
            *out = f;
        } else {
            gw_forecast_free(f);
        }
        gw_model_free(m);
    } while (again);
    gw_tower_free(tower);
    return status;
}

void gw_forecast_free(gw_forecast *forecast) {
    if (forecast != NULL) {
        free(forecast->rows);
        free(forecast->caches);
        free(forecast);
    }
}
