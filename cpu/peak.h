/* cpu/peak.h - loops that reach what a core can do: the roofs that kernels are measured against. */
#ifndef GW_CPU_PEAK_H
#define GW_CPU_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/isa.h"

enum { GW_READ_WAYS = 5 };

typedef struct gw_cpu_peak {
    /* `rounds` rounds of fused multiply-adds, or of int8 dot products as the linear kernels of the
     * level compute them, on operands in registers. The result keeps the loop alive. */
    float (*f32)(uint64_t rounds);
    double f32_ops; /* per round; a multiply-add counts as 2 */
    int32_t (*int8)(uint64_t rounds);
    double int8_ops;
    /* Read bytes (a multiple of 4096) in one of GW_READ_WAYS ways: number of streams and distance
     * of prefetching. Which is fastest depends on the machine; the roof is the best of them. */
    float (*read)(const float *data, size_t bytes, int way);
} gw_cpu_peak;

/* Never NULL for a level that runs here. */
const gw_cpu_peak *gw_cpu_peak_of(gw_cpu_level level);

#endif
