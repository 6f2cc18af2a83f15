/* core/base/hooks.h - what only a build with its tests has (GODWIT_TESTS): drivers that are opened
 * instead of the machine's, and simulated faults.
 */
#ifndef GW_BASE_HOOKS_H
#define GW_BASE_HOOKS_H

#include <stdlib.h>

#ifdef GODWIT_TEST_HOOKS
enum { GW_TEST_HOOKS = 1 };
#else
enum { GW_TEST_HOOKS = 0 };
#endif

/* The variable of that name; NULL in a build without tests. */
static inline const char *gw_hook(const char *name) { return GW_TEST_HOOKS ? getenv(name) : NULL; }

#endif
