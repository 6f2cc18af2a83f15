/* tests/hip_host/fibres.hpp - running the blocks of one launch; driver.cpp asks for it. */
#ifndef GW_HIP_HOST_FIBRES_HPP
#define GW_HIP_HOST_FIBRES_HPP

#include <stddef.h>

struct gw_emulator_launch {
    const char *name;
    void (*kernel)(const void *params);
    const void *params;
    unsigned grid[3], block[3];
    size_t shared_bytes;
};

/* Runs blocks *done, .. and counts them there. NULL, or what the kernel did wrong: valid until the
 * next call; or gw_emulator_waits: a block waits for another card, and is to run again from its
 * start. */
extern const char *const gw_emulator_waits;
/* A block that waits for another card is told that it is silent, instead. */
extern bool gw_emulator_impatient;
const char *gw_emulator_run(const gw_emulator_launch &launch, size_t *done);

#endif
