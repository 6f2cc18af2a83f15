/* backends/hip/kernels.c - the kernel table of a device: the tables of the files that record, best
 * kernels first.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/hip/hip.h"

static const gw_kernel *const tables[] = {
    gw_hip_rows_kernels,
    gw_hip_linear_kernels,
    gw_hip_gemm_kernels,
    gw_hip_attention_kernels,
    gw_hip_more_kernels,
    gw_hip_attend_digits_kernels,
    gw_hip_attend_latent_kernels,
    gw_hip_attend_more_kernels,
    gw_hip_adapters_kernels,
    gw_hip_experts_kernels,
    gw_hip_state_kernels,
    gw_hip_listed_kernels,
    gw_hip_ngram_kernels,
    gw_hip_exchange_kernels,
    gw_hip_cells_kernels,
    NULL,
};

gw_status gw_hip_list_kernels(struct gw_device *d) {
    size_t n = 0;
    for (size_t t = 0; tables[t] != NULL; t++) {
        for (const gw_kernel *k = tables[t]; k->name != NULL; k++) {
            n++;
        }
    }
    d->kernels = calloc(n + 1, sizeof *d->kernels);
    if (d->kernels == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for the kernel table");
    }
    for (size_t t = 0; tables[t] != NULL; t++) {
        for (const gw_kernel *k = tables[t]; k->name != NULL; k++) {
            d->kernels[d->n_kernels++] = *k;
        }
    }
    return GW_OK;
}
