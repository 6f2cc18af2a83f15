/* cpu/isa.h - instruction-set levels of the CPU kernels, chosen once at run time. */
#ifndef GW_CPU_ISA_H
#define GW_CPU_ISA_H

#include <stdint.h>

typedef enum gw_cpu_level {
    GW_CPU_SCALAR, /* plain C over GW_LAYOUT_ROWS: the anchor every other level must equal */
    GW_CPU_AVX2,   /* AVX2, FMA, F16C                                                      */
    GW_CPU_AVX512, /* AVX-512 F, BW, VL, DQ                                                */
    GW_CPU_VNNI,   /* the same with AVX512_VNNI                                            */
    GW_CPU_AMX,    /* the same with AMX_TILE and AMX_INT8: prompts of quantized weights    */
    GW_CPU_NEON,   /* AArch64 with dot product                                             */
    GW_CPU_I8MM,   /* the same with products of int8 matrices: prompts of quantized weights */
    GW_CPU_RVV,    /* RISC-V's vectors 1.0: quantized weights; all else is scalar           */
    GW_CPU_LEVEL_COUNT
} gw_cpu_level;

const char *gw_cpu_level_name(gw_cpu_level level); /* "avx2" */
/* This processor has it, and this build, and Linux lets this process use it: asked for AMX, that is
 * requested from it. */
int gw_cpu_level_runs(gw_cpu_level level);
/* The best level that runs, capped by GODWIT_CPU=scalar|avx2|avx512|vnni|amx|neon|i8mm|rvv. *bad
 * receives the value of GODWIT_CPU when it names no level or one that cannot run here, else NULL.
 */
gw_cpu_level gw_cpu_level_choose(const char **bad);

/* What an x86 processor says of itself: registers of CPUID by leaf (7.1: "7_1"), 0 where it has no
 * such leaf; xcr0: which registers the system saves, by XGETBV. */
typedef struct gw_cpu_id {
    uint32_t ecx1, ebx7, ecx7, edx7, edx7_1, ebx24;
    uint64_t xcr0;
} gw_cpu_id;

/* A bit for each level, 1 << level, whose instructions are there and whose registers are saved. */
unsigned gw_cpu_x86_levels(const gw_cpu_id *id);

#endif
