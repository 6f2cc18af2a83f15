/* core/engine/placing/gauge.h - how fast each device runs this model's layers, measured on a sample
 * of them.
 *
 * A few layers of the model's shapes and formats with made-up weights are loaded and timed, as a
 * prompt and token by token, more of them than caches hold; no weight is read. A few seconds per
 * device; kept on disk by machine, device, driver and model shape. A disturbed reading is taken
 * again, and never kept. Devices that compute a layer together are measured so, as one device: what
 * each computes again and what they wait for one another is in their times.
 */
#ifndef GW_ENGINE_GAUGE_H
#define GW_ENGINE_GAUGE_H

#include "core/engine/placing/place.h"

struct gw_cache_time;

enum {
    GW_GAUGE_POINTS = 10,
    /* Of device d at [d]; of the group that it stands for, where it does, at [GW_MAX_DEVICES + d].
     */
    GW_GAUGES = 2 * GW_MAX_DEVICES
};

/* Seconds. Times of layers grow with the bytes of their weights: weight_bytes are the sample's.
 *
 * A generated token does not take a multiple of one layer's time: what begins and ends a device's
 * work is paid once, and the weights of a few layers are still in the device's caches when the next
 * token comes, those of many are not. So token_body[i] is what the first at[i] layers of the sample
 * take, token after token; on the CPU, whose caches others use meanwhile and whose threads fall
 * asleep, after a wait as long as the second device needs for the model's other layers. Only layers
 * beyond the last point, which is the whole sample, are token_layer each: one that no cache holds.
 */
typedef struct gw_gauge {
    int32_t n_points, at[GW_GAUGE_POINTS]; /* 1, 2, 4, ... and the sample */
    double token_body[GW_GAUGE_POINTS];    /* never less than the one before */
    double token_layer, token_rest;        /* rest: embedding, head, and reading the logits */
    /* Times per token with sampling on the device, one step ahead of the host, so that launches and
     * the host's reads are hidden; possible where the device has the whole model. 0: it is not. */
    double drawn_layer, drawn_rest;
    double prompt_layer, prompt_rest; /* a prompt of `chunk` tokens                    */
    double send_token, send_prompt;   /* the hidden state from the host and back to it      */
    double weight_bytes;       /* that a token reads in one layer of the sample, on the average */
    int32_t disturbed, unused; /* its times varied so much that something else was running */
} gw_gauge;

/* All devices and groups of the place, sizes from gw_place_measure. gauges [GW_GAUGES]. */
gw_status gw_gauge_all(const gw_place *place, const gw_place_sizes *sizes, gw_gauge *gauges);
/* Its two parts: each device alone, and the groups as the devices are arranged. */
gw_status gw_gauge_devices(const gw_place *place, const gw_place_sizes *sizes, gw_gauge *gauges);
gw_status gw_gauge_groups(const gw_place *place, const gw_place_sizes *sizes, gw_gauge *gauges);

/* Could it have been measured? What comes from a file may say anything. */
int gw_gauge_is_sound(const gw_gauge *gauge);

/* Seconds that `layers` layers of the sample's size, counted by bytes, take of a token. */
double gw_gauge_body(const gw_gauge *gauge, double layers);

/* Seconds of a prompt of sizes->chunk tokens and of one generated token. */
void gw_gauge_predict(const gw_place *place, const gw_place_sizes *sizes, const gw_gauge *gauges,
                      const gw_where *where, double *prompt, double *token);

/* The N that generates fastest of those that fit; -1: none fits. times: of gw_cache_times, half of
 * a full context counts, what a text that fills it reads on the average; NULL: caches count
 * nothing. room [as where]. Where a model has experts and *cpu_experts is 0, also how many layers'
 * experts stay at home while everything else is offloaded. */
int gw_gauge_best(const gw_place *place, const gw_place_sizes *sizes, const gw_gauge *gauges,
                  const struct gw_cache_time *times, gw_where *room, int *cpu_experts);

#endif
