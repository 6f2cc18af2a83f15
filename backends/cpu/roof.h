/* backends/cpu/roof.h - what the processor can do, measured. */
#ifndef GW_BACKENDS_CPU_ROOF_H
#define GW_BACKENDS_CPU_ROOF_H

#include "core/base/status.h"

struct gw_device;

/* About a second. GW_E_NOMEM. */
gw_status gw_cpu_measure_roof(struct gw_device *device, gw_roof *out);
/* One reading, some 20 ms, GB/s; the first takes and fills the memory for all of them, some 300 ms.
 * GW_E_NOMEM. */
gw_status gw_cpu_read_memory(struct gw_device *device, double *gbps);
void gw_cpu_end_readings(struct gw_device *device);

#endif
