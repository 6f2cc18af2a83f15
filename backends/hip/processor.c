/* backends/hip/processor.c - finds a processor among those that are known. */
#include "backends/hip/processor.h"

#include <stdlib.h>
#include <string.h>

static const gw_hip_processor rows[] = {
#define ROW(name, is, wave, dot, matrix, copies, ahead) {#name, wave, dot, matrix, copies},
    GW_PROCESSORS(ROW)
#undef ROW
};

static int number_of(const char *arch) { return strncmp(arch, "sm_", 3) == 0 ? atoi(arch + 3) : 0; }

const gw_hip_processor *gw_hip_processor_of(const char *arch, int *known) {
    static const gw_hip_processor unknown = {"", 0, GW_DOT_NONE, GW_MATRIX_NONE, 0};
    const gw_hip_processor *found = &unknown;
    const int number = number_of(arch);
    *known = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !*known; i++) {
        const int same =
            number > 0 ? number_of(rows[i].name) == number : strcmp(rows[i].name, arch) == 0;
        if (same || (number_of(rows[i].name) > number_of(found->name) &&
                     number_of(rows[i].name) < number)) {
            found = &rows[i];
        }
        *known = same;
    }
    return found;
}
