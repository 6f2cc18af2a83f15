/* apps/caches.h - how much of a model the processor's caches hold. */
#ifndef GW_APPS_CACHES_H
#define GW_APPS_CACHES_H

#include <stdint.h>

/* Bytes of all second and higher level caches of data of this machine, each counted once, as the
 * kernel tells them in /sys/devices/system/cpu; 0: it does not. Cores that this process may not use
 * are counted as well: what is said with the number is then too careful, not wrong. */
uint64_t cache_bytes(void);

#endif
