/* backends/cpu/roof.h - what the processor can do, measured. */
#ifndef GW_BACKENDS_CPU_ROOF_H
#define GW_BACKENDS_CPU_ROOF_H

#include "core/base/status.h"

/* About a second. threads 0: the default team. GW_E_NOMEM, GW_E_ARGUMENT. */
gw_status gw_cpu_measure_roof(int threads, gw_roof *out);

#endif
