/* core/base/options.h - option structs of programs that were built for another version of godwit.h.
 * Fields are appended, never into the padding at a struct's end, and 0 means not set.
 */
#ifndef GW_BASE_OPTIONS_H
#define GW_BASE_OPTIONS_H

#include <string.h>

#include "core/base/status.h"

/* Over own, which holds the defaults, what the program has of the struct. GW_E_ARGUMENT: it sets
 * what does not exist here. */
static inline gw_status gw_options_take(void *own, size_t own_size, const void *given, size_t size,
                                        const char *where) {
    const char *bytes = given;
    for (size_t i = own_size; i < size; i++) {
        if (bytes[i] != 0) {
            return gw_fail(GW_E_ARGUMENT, where,
                           "the program sets an option that libgodwit " GW_VERSION
                           " does not have; install the version it was built for");
        }
    }
    memcpy(own, given, size < own_size ? size : own_size);
    return GW_OK;
}

#endif
