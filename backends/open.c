/* backends/open.c - the library's front door where it needs devices: core/ never names a backend.
 */
#include <string.h>

#include "core/base/options.h"
#include "core/engine/run/model.h"
#include "core/plan/exchange_time.h"
#include "core/plan/product.h"

gw_status gw_model_open_sized(const gw_model_options *options, size_t size, gw_model **out) {
    gw_model_options own = {.path = NULL};
    GW_TRY(gw_options_take(&own, sizeof own, options, size, "model"));
    return gw_engine_open(&own, gw_backends, out);
}

gw_status gw_forecast_new_sized(const gw_model_options *options, size_t size, gw_forecast **out) {
    gw_model_options own = {.path = NULL};
    GW_TRY(gw_options_take(&own, sizeof own, options, size, "plan"));
    return gw_engine_forecast(&own, gw_backends, out);
}

gw_status gw_eyes_forecast_sized(const gw_model_options *options, size_t size, gw_eyes_need *out) {
    gw_model_options own = {.path = NULL};
    GW_TRY(gw_options_take(&own, sizeof own, options, size, "plan"));
    return gw_engine_eyes_forecast(&own, gw_backends, out);
}

size_t gw_devices(gw_device_info *rows, size_t capacity) {
    size_t n = 0;
    for (size_t i = 0; gw_backends[i] != NULL; i++) {
        int count = gw_backends[i]->device_count();
        for (int k = 0; k < count; k++, n++) {
            if (n < capacity && rows != NULL) {
                gw_backends[i]->describe(NULL, k, &rows[n]);
            }
        }
    }
    return n;
}

static gw_status measure(const gw_backend *b, struct gw_device *device, gw_roof *out) {
    *out = (gw_roof){0};
    return b->roof != NULL ? b->roof(device, out) : GW_OK;
}

/* "hip" is the first of "hip:0", "hip:1". */
static int is_named(const char *device, const char *id) {
    size_t n = strlen(id);
    return strncmp(device, id, n) == 0 &&
           (device[n] == '\0' || (device[n] == ':' && strcmp(device + n, ":0") == 0));
}

/* The device of that name; NULL: the CPU. */
static gw_status open_device(const char *id, int threads, const gw_backend **backend,
                             struct gw_device **out) {
    gw_device_options options = {.threads = threads};
    id = id != NULL ? id : "cpu";
    for (size_t i = 0; gw_backends[i] != NULL; i++) {
        const gw_backend *b = gw_backends[i];
        for (int k = 0; k < b->device_count(); k++) {
            gw_device_info info;
            b->describe(NULL, k, &info);
            if (is_named(info.id, id)) {
                *backend = b;
                return b->open(k, &options, out);
            }
        }
    }
    return gw_fail(GW_E_DEVICE, "roof", "'%.40s' is no device of this machine", id);
}

gw_status gw_measure_roof(const char *id, int threads, gw_roof *out) {
    const gw_backend *backend = NULL;
    struct gw_device *device = NULL;
    GW_TRY(open_device(id, threads, &backend, &device));
    gw_status status = measure(backend, device, out);
    backend->close(device);
    return status;
}

gw_status gw_time_products(const char *id, int threads, const gw_product *product, const int32_t *n,
                           size_t count, gw_product_result *results, gw_roof *roof) {
    const gw_backend *backend = NULL;
    struct gw_device *device = NULL;
    if (product->rows < 1 || product->cols < 1) {
        return gw_fail(GW_E_ARGUMENT, "product", "a matrix of no rows or columns");
    }
    GW_TRY(open_device(id, threads, &backend, &device));
    gw_status status = gw_product_time(backend, device, product, n, count, results);
    status = status == GW_OK ? measure(backend, device, roof) : status;
    backend->close(device);
    return status;
}

/* "hip:0,hip:1": devices of one backend. */
static gw_status open_list(const char *ids, const gw_backend **backend, struct gw_device **devices,
                           int *cards) {
    for (const char *at = ids; at != NULL && *at != '\0'; (*cards)++) {
        size_t bytes = strcspn(at, ",");
        const gw_backend *own = NULL;
        char id[32] = "";
        memcpy(id, at, bytes < sizeof id ? bytes : sizeof id - 1);
        if (*cards == GW_MAX_CARDS) {
            return gw_fail(GW_E_ARGUMENT, "exchange", "at most %d cards", GW_MAX_CARDS);
        }
        GW_TRY(open_device(id, 0, &own, &devices[*cards]));
        if (*cards > 0 && own != *backend) {
            own->close(devices[*cards]);
            return gw_fail(GW_E_UNSUPPORTED, "exchange",
                           "devices of %s and %s exchange through the host", (*backend)->name,
                           own->name);
        }
        *backend = own;
        at += bytes + (at[bytes] == ',');
    }
    return GW_OK;
}

gw_status gw_time_exchanges(const char *ids, int32_t width, const int32_t *n, size_t count,
                            gw_exchange_result *results, double *flag_seconds) {
    const gw_backend *backend = NULL;
    struct gw_device *devices[GW_MAX_CARDS];
    int cards = 0;
    gw_status status = open_list(ids, &backend, devices, &cards);
    if (status == GW_OK) {
        status = backend == NULL ? gw_fail(GW_E_ARGUMENT, "exchange", "no cards are named")
                                 : gw_exchange_time(backend, devices, cards, width, n, count,
                                                    results, flag_seconds);
    }
    while (cards-- > 0) {
        backend->close(devices[cards]);
    }
    return status;
}
