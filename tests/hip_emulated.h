/* tests/hip_emulated.h - what test_hip_ops.c asks of emulators: which kernels they have run, and
 * what matrix instructions compute.
 */
#ifndef GW_TESTS_HIP_EMULATED_H
#define GW_TESTS_HIP_EMULATED_H

#include <dlfcn.h>

#include "op_table.h"

/* How often the emulator has run kernels whose names begin with this. */
static size_t emulator_ran(const char *beginning) {
    size_t (*ran)(const char *);
    void *library = dlopen(getenv("GODWIT_HIP_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *at = dlsym(library, "gw_emulator_ran");
    assert_non_null(at);
    memcpy(&ran, &at, sizeof at);
    size_t launches = ran(beginning);
    dlclose(library);
    return launches;
}

/* Products and attention of prompts. Their kernels with matrix instructions have run: a device that
 * lacked them would pass all cases too. */
static void check_matrices(const gw_backend *backend, struct gw_device *device,
                           op_case (*case_of)(int), int cases) {
    static const char *const kernels[] = {"gw_gemm_q4_0",          "gw_gemm_q2_k",
                                          "gw_gemm_large_q4_0",    "gw_gemm_large_q4_k",
                                          "gw_experts_gemm_",      "gw_attend_digits_64",
                                          "gw_attend_digits_128",  "gw_linear_q4_0_four",
                                          "gw_linear_q4_0_pieces", "gw_linear_q4_0_wide"};
    enum { KERNELS = sizeof kernels / sizeof kernels[0] };
    static op_bench bench;
    size_t before[KERNELS];
    int n = 0;
    ot_open(&bench, backend, device, OT_MAPPED);
    for (int i = 0; i < KERNELS; i++) {
        before[i] = emulator_ran(kernels[i]);
    }
    for (int i = 0; i < cases; i++) {
        op_case c = case_of(i);
        int experts = c.op == GW_OP_EXPERTS_GLU || c.op == GW_OP_EXPERTS_DOWN;
        if (experts || c.op == GW_OP_LINEAR || c.op == GW_OP_GLU ||
            (c.op == GW_OP_ATTENTION && c.order == GW_ORDER_PREFILL)) {
            ot_check_case(&bench, &c);
            n++;
        }
    }
    assert_true(n > 100);
    for (int i = 0; i < KERNELS; i++) {
        if (emulator_ran(kernels[i]) == before[i]) {
            fail_msg("no launch of %s", kernels[i]);
        }
    }
    ot_close(&bench);
}

#endif
