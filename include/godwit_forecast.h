/* include/godwit_forecast.h - the part of godwit.h for what would run where; it comes with
 * godwit.h, and only so. */
#ifndef GODWIT_FORECAST_H
#define GODWIT_FORECAST_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GW_DEVICES_MAX = 17 };

typedef struct gw_forecast_use { /* of one device */
    int32_t layers;
    int head;                      /* the output head is there                           */
    uint64_t weights, kv, scratch; /* bytes; scratch is an upper bound                   */
} gw_forecast_use;

typedef struct gw_forecast_row {
    int32_t offloaded; /* N */
    int fits;
    double prompt_rate, token_rate; /* tokens per second, predicted */
    gw_forecast_use use[GW_DEVICES_MAX];
} gw_forecast_row;

/* Of a row: caches in main memory of layers that a card computes (--kv-host-layers). */
typedef struct gw_forecast_cache {
    int32_t layers[GW_DEVICES_MAX];
    uint64_t bytes[GW_DEVICES_MAX]; /* which `kv` of the row's use is without */
    double full_seconds; /* to read the caches of all layers with the context full; 0: not known */
} gw_forecast_cache;

typedef struct gw_forecast {
    char name[256];
    int32_t n_layers, n_ctx, chunk;
    int32_t chosen; /* the row that options ask for */
    size_t n_devices, n_rows;
    gw_device_info devices[GW_DEVICES_MAX]; /* the CPU first */
    uint64_t room[GW_DEVICES_MAX];          /* bytes that may be used; 0: unknown           */
    double read_gbps[GW_DEVICES_MAX];       /* weights read by a generated token per second */
    double send_us[GW_DEVICES_MAX];         /* one hidden state there and back              */
    int disturbed[GW_DEVICES_MAX]; /* something else ran while it was measured: not kept    */
    gw_forecast_row *rows;         /* [n_rows], N = 0 first                        */
    char note[256];                /* what was not as asked for; "" when nothing   */
    uint64_t state_bytes, batch_state_bytes; /* as in gw_model_info; the former is in all kv */
    gw_forecast_cache *caches; /* [n_rows] */
} gw_forecast;

/* For the devices of options, every N: what it would take and how fast it would be. Loads no
 * weights; measures each device for about two seconds the first time, then remembers. GW_E_NOMEM
 * when options ask for an N that does not fit. */
gw_status gw_forecast_new_sized(const gw_model_options *options, size_t size, gw_forecast **out);
static inline gw_status gw_forecast_new(const gw_model_options *options, gw_forecast **out) {
    return gw_forecast_new_sized(options, sizeof *options, out);
}
void gw_forecast_free(gw_forecast *forecast);

#ifdef __cplusplus
}
#endif

#endif
