/* tests/fuzz/fuzz_imatrix.c - an importance matrix in either form, and the means made of it. */
#include <math.h>
#include <stdlib.h>

#include "core/quantize/imatrix.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gw_imatrix m = {0};
    gw_status status = gw_imatrix_parse("fuzz", data, n, &m);
    fuzz_judge(status);
    for (size_t i = 0; status == GW_OK && i < m.n; i++) {
        const gw_imatrix_entry *e = &m.list[i];
        size_t values = (size_t)(e->cols * e->experts);
        float *means = malloc(values * sizeof *means + 1);
        int unseen = 0;
        if (means != NULL) {
            gw_imatrix_means(e, means, &unseen);
            for (size_t k = 0; k < values; k++) {
                if (isnan(means[k])) {
                    abort();
                }
            }
        }
        free(means);
    }
    if (status == GW_OK) {
        gw_imatrix_free(&m);
    }
    return 0;
}
