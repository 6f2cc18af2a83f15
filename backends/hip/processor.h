/* backends/hip/processor.h - the rows of kernels_hip/arch.h for the host. */
#ifndef GW_BACKENDS_HIP_PROCESSOR_H
#define GW_BACKENDS_HIP_PROCESSOR_H

#include "kernels_hip/arch.h"

typedef struct gw_hip_processor {
    const char *name; /* "gfx90a", "sm_90"; of a row that stands for what is not known: "" */
    int wave, dot, matrix, copies;
} gw_hip_processor;

/* Never NULL. *known: arch itself has the row ("sm_90a" has that of "sm_90"). Else, of NVIDIA's the
 * row of the nearest older one, whose code it runs, and of AMD's one without any instructions. */
const gw_hip_processor *gw_hip_processor_of(const char *arch, int *known);

#endif
