/* tests/fuzz/no_adapters.h - what apps/serve/lora.c asks of a server, for fuzzers of requests: no
 * adapter is there.
 */
#ifndef GW_FUZZ_NO_ADAPTERS_H
#define GW_FUZZ_NO_ADAPTERS_H

#include "apps/serve/models.h"

const adapters *models_adapters(const models *all) {
    static const adapters none;
    (void)all;
    return &none;
}
int32_t adapters_find(const adapters *all, const char *name) {
    (void)all, (void)name;
    return -1;
}

#endif
