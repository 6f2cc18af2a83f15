/* core/engine/gauge.h - how fast each device runs this model's layers, measured on a sample of
 * them.
 *
 * A few layers of the model's shapes and formats with made-up weights are loaded and timed, as a
 * prompt and token by token, more of them than caches hold; no weight is read. About two seconds
 * per device; kept on disk by machine, device, driver and model shape.
 */
#ifndef GW_ENGINE_GAUGE_H
#define GW_ENGINE_GAUGE_H

#include "core/engine/place.h"

/* Seconds. Times of layers grow with the bytes of their weights: weight_bytes are the sample's. */
typedef struct gw_gauge {
    double token_layer, token_rest;   /* one generated token: per layer; embedding and head */
    double prompt_layer, prompt_rest; /* a prompt of `chunk` tokens                         */
    double send_token, send_prompt;   /* the hidden state from the host and back to it      */
    double weight_bytes;              /* of one layer of the sample                         */
} gw_gauge;

/* All devices of the place, sizes from gw_place_measure. gauges [n_devices]. */
gw_status gw_gauge_all(const gw_place *place, const gw_place_sizes *sizes, gw_gauge *gauges);

/* Seconds of a prompt of sizes->chunk tokens and of one generated token. */
void gw_gauge_predict(const gw_place *place, const gw_place_sizes *sizes, const gw_gauge *gauges,
                      const gw_where *where, double *prompt, double *token);

/* The N that generates fastest of those that fit; -1: none fits. room [as where]. */
int gw_gauge_best(const gw_place *place, const gw_place_sizes *sizes, const gw_gauge *gauges,
                  gw_where *room);

#endif
