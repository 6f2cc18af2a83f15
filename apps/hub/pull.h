/* apps/hub/pull.h - a model by its name: found in the cache, or downloaded into it. */
#ifndef GW_HUB_PULL_H
#define GW_HUB_PULL_H

#include "apps/hub/cache.h"
#include "apps/options.h"

/* The file or folder of a model that is in the cache, whole: 1, in out; 0: it is not. */
int hub_find(const hub_name *name, char out[HUB_PATH]);

/* Downloads what is missing and puts the path in out. o: the devices, of which the quantization
 * depends that is chosen when none is named. Exit code. */
int hub_pull(const hub_name *name, const app_options *o, char out[HUB_PATH]);

int hub_is_offline(void); /* HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE */

#endif
