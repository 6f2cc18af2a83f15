/* cpu/ops_simd.c - compiles cpu/ops_body.h once per instruction set and finds a level's table. */
#include "cpu/ops.h"

#include <math.h>
#include <string.h>

#include "cpu/vec.h"

#define MICRO_MULTIPLY

#if defined(__x86_64__)
#undef GW_VEC
#define GW_VEC GW_VEC_AVX2
#include "cpu/vec.h"
#include "cpu/micro_body.h"
#include "cpu/ops_body.h"
#undef GW_VEC
#define GW_VEC GW_VEC_AVX512
#include "cpu/vec.h"
#include "cpu/micro_body.h"
#include "cpu/ops_body.h"
#elif defined(__aarch64__)
#undef GW_VEC
#define GW_VEC GW_VEC_NEON
#include "cpu/vec.h"
#include "cpu/micro_body.h"
#include "cpu/ops_body.h"
#endif

const gw_cpu_ops *gw_cpu_ops_of(gw_cpu_level level) {
    switch (level) {
    case GW_CPU_SCALAR:
    case GW_CPU_RVV: /* of linear alone (isa.h) */
        return &gw_cpu_ops_scalar;
#if defined(__x86_64__)
    case GW_CPU_AVX2:
        return &ops_avx2;
    case GW_CPU_AVX512:
    case GW_CPU_VNNI:
    case GW_CPU_AMX:
        return &ops_avx512;
#elif defined(__aarch64__)
    case GW_CPU_NEON:
    case GW_CPU_I8MM:
        return &ops_neon;
#endif
    default:
        return NULL;
    }
}
