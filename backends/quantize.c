/* backends/quantize.c - the library's front door for making models: core/ has no threads. */
#include "backends/cpu/parallel.h"
#include "core/base/options.h"
#include "core/quantize/inputs.h"
#include "core/quantize/quantize.h"

gw_status gw_quantize_sized(const gw_quantize_options *options, size_t size) {
    gw_quantize_options own = {.model = NULL};
    GW_TRY(gw_options_take(&own, sizeof own, options, size, "quantize"));
    return gw_quantize_model(&own, gw_cpu_parallel, gw_backends);
}

gw_status gw_quantize_tensors_sized(const gw_quantize_options *options, size_t size) {
    gw_quantize_options own = {.model = NULL};
    GW_TRY(gw_options_take(&own, sizeof own, options, size, "quantize"));
    return gw_quantize_tensor_file(&own, gw_cpu_parallel);
}

gw_status gw_calibrate_sized(const gw_calibrate_options *options, size_t size) {
    gw_calibrate_options own = {.model = NULL};
    GW_TRY(gw_options_take(&own, sizeof own, options, size, "calibrate"));
    return gw_calibrate_model(&own, gw_backends);
}
