/* tests/fuzz/fuzz.h - what the fuzz targets share. A target is LLVMFuzzerTestOneInput over bytes
 * that came from outside; the sanitizers judge. tests/fuzz/corpus/NAME holds its seeds. */
#ifndef GW_TESTS_FUZZ_H
#define GW_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An error must say something, in one line. */
static inline void fuzz_judge(gw_status status) {
    const char *text = gw_error_text();
    if (status != GW_OK && (text[0] == '\0' || strchr(text, '\n') != NULL)) {
        abort();
    }
}

#endif
