/* cpu/isa.h - instruction-set levels of the CPU kernels, chosen once at run time. */
#ifndef GW_CPU_ISA_H
#define GW_CPU_ISA_H

typedef enum gw_cpu_level {
    GW_CPU_SCALAR, /* plain C over GW_LAYOUT_ROWS: the anchor every other level must equal */
    GW_CPU_AVX2,   /* AVX2, FMA, F16C                                                      */
    GW_CPU_AVX512, /* AVX-512 F, BW, VL, DQ                                                */
    GW_CPU_VNNI,   /* the same with AVX512_VNNI                                            */
    GW_CPU_AMX,    /* the same with AMX_TILE and AMX_INT8: prompts of quantized weights    */
    GW_CPU_NEON,   /* AArch64 with dot product                                             */
    GW_CPU_LEVEL_COUNT
} gw_cpu_level;

const char *gw_cpu_level_name(gw_cpu_level level); /* "avx2" */
/* This processor has it, and this build, and Linux lets this process use it: asked for AMX, that is
 * requested from it. */
int gw_cpu_level_runs(gw_cpu_level level);
/* The best level that runs, capped by GODWIT_CPU=scalar|avx2|avx512|vnni|amx|neon. *bad receives
 * the value of GODWIT_CPU when it names no level or one that cannot run here, else NULL. */
gw_cpu_level gw_cpu_level_choose(const char **bad);

#endif
