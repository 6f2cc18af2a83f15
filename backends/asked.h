/* backends/asked.h - which devices a list of ids means. */
#ifndef GW_BACKENDS_ASKED_H
#define GW_BACKENDS_ASKED_H

#include "core/plan/backend.h"

/* Is device `ordinal` of b, whose id is `id`, one of `devices`: ids separated by commas, a
 * backend's name for its first device, or "all"? NULL: the CPU, and what computes without being
 * named. */
int gw_is_asked(const gw_backend *b, int ordinal, const char *id, const char *devices);

#endif
