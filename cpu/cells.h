/* cpu/cells.h - pages of caches in 4 and 5 bits (core/tensor/cells.h) on the CPU: written a
 * position at a time, read as pages of q8_0, whose numbers they are. Any thread.
 */
#ifndef GW_CPU_CELLS_H
#define GW_CPU_CELLS_H

#include "core/tensor/cells.h"

#include <stddef.h>

/* Floats that hold a page of q8_0, of e values. */
#define GW_CPU_CELLS_ROOM(e) ((size_t)(e) * (GW_PAGE + GW_PAGE / 16) / sizeof(float))

/* x [n] in place, n a multiple of width: each width of them by a Hadamard matrix of length 1. It
 * undoes itself. */
void gw_cpu_rotate(float *x, size_t n, size_t width);
/* x [e], rotated: position j of a page. */
void gw_cpu_pack(void *page, int bits, size_t e, int is_k, size_t j, const float *x);
/* A page as one of q8_0: int8 codes, then f16 scales; GW_CPU_CELLS_ROOM. */
const void *gw_cpu_unpack(void *to, const void *page, int bits, size_t e, int is_k);

#endif
