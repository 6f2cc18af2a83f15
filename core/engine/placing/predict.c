/* core/engine/placing/predict.c - speeds to expect of layers placed so or so, from times of a
 * sample.
 */
#include "core/engine/placing/gauge.h"

#include "core/engine/placing/cache_time.h"

double gw_gauge_body(const gw_gauge *g, double layers) {
    double x = 0.0, y = 0.0; /* the point before: none take no time */
    for (int i = 0; i < g->n_points; i++) {
        if (layers <= g->at[i]) {
            return y + (g->token_body[i] - y) * (layers - x) / (g->at[i] - x);
        }
        x = g->at[i];
        y = g->token_body[i];
    }
    return y + (layers - x) * g->token_layer;
}

/* Of what stands at device d. */
static const gw_gauge *gauge_at(const gw_place *place, const gw_gauge *gauges, int d) {
    return &gauges[place->grouped && place->group[d].n > 1 ? GW_MAX_DEVICES + d : d];
}

/* Does everything stand at one device? */
static int is_at_one(const gw_place *place, int n_layers, const gw_where *where) {
    int all = 1;
    for (int at = 1; at < (n_layers + 1) * place->n_blocks; at++) {
        all &= where[at] == where[0];
    }
    return all;
}

void gw_gauge_predict(const gw_place *place, const gw_place_sizes *sizes, const gw_gauge *gauges,
                      const gw_where *where, double *prompt, double *token) {
    int n_layers = sizes->hp->n_layers, n_blocks = place->n_blocks, at = 0;
    int head = where[n_layers * n_blocks + n_blocks - 1];
    double layers[GW_MAX_DEVICES] = {0.0}; /* of the samples' size */
    *prompt = gauge_at(place, gauges, head)->prompt_rest;
    *token = gauge_at(place, gauges, head)->token_rest;
    for (int l = 0; l < n_layers; l++) {
        int d = where[l * n_blocks + place->last_block], away = 0;
        const gw_gauge *own = gauge_at(place, gauges, d);
        for (int b = 0; b < n_blocks;
             b++) { /* experts may stay at home: then rows go and come back */
            int on = where[l * n_blocks + b];
            on = gauge_at(place, gauges, on)->weight_bytes > 0.0 ? on : d;
            const gw_gauge *g = gauge_at(place, gauges, on);
            double used = gw_place_used(sizes, on, l * n_blocks + b);
            double part = g->weight_bytes > 0.0 ? used / g->weight_bytes : 0.0;
            layers[on] += part;
            *prompt += part * g->prompt_layer;
            away |= on != d && part > 0.0;
        }
        *prompt += away ? own->send_prompt : 0.0;
        *token += away ? own->send_token : 0.0;
        if (l > 0 && d != at) { /* half of what was timed goes each way */
            const gw_gauge *before = gauge_at(place, gauges, at);
            *prompt += 0.5 * (own->send_prompt + before->send_prompt);
            *token += 0.5 * (own->send_token + before->send_token);
        }
        at = d;
    }
    for (int d = 0; d < place->n_devices; d++) {
        *token += gw_gauge_body(gauge_at(place, gauges, d), layers[d]);
    }
    const gw_gauge *all = gauge_at(place, gauges, head);
    if (all->drawn_layer > 0.0 && is_at_one(place, n_layers, where)) {
        *token = all->drawn_rest + layers[head] * all->drawn_layer;
    }
}

int gw_gauge_best(const gw_place *place, const gw_place_sizes *sizes, const gw_gauge *gauges,
                  const gw_cache_time *times, gw_where *room, int *cpu_experts) {
    gw_place trial = *place;
    gw_place_use use[GW_MAX_DEVICES];
    double fastest = 0.0, prompt, token;
    int best = -1, all = sizes->hp->n_layers, given = *cpu_experts;
    int most = given == 0 && sizes->has_experts ? all : 0;
    for (int turn = 0; turn <= all + most; turn++) {
        int n = turn < all ? turn : all;
        trial.cpu_experts = turn > all ? turn - all : given;
        gw_place_spread(&trial, sizes, n, room);
        if (gw_place_fits(&trial, sizes, room, use, NULL)) {
            gw_gauge_predict(&trial, sizes, gauges, room, &prompt, &token);
            token += times != NULL ? 0.5 * gw_cache_seconds(&trial, sizes, times) : 0.0;
            if (best < 0 || token < fastest) {
                best = n;
                fastest = token;
                *cpu_experts = trial.cpu_experts;
            }
        }
    }
    return best;
}
