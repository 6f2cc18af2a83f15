/* backends/open.c - the library's front door where it needs devices: core/ never names a backend.
 */
#include "backends/cpu/roof.h"
#include "core/engine/model.h"

gw_status gw_model_open(const gw_model_options *options, gw_model **out) {
    return gw_engine_open(options, gw_backends, out);
}

size_t gw_devices(gw_device_info *rows, size_t capacity) {
    size_t n = 0;
    for (size_t i = 0; gw_backends[i] != NULL; i++) {
        if (gw_backends[i]->device_count() > 0) {
            if (n < capacity && rows != NULL) {
                gw_backends[i]->describe(NULL, &rows[n]);
            }
            n++;
        }
    }
    return n;
}

gw_status gw_measure_roof(int threads, gw_roof *out) { return gw_cpu_measure_roof(threads, out); }
