# cmake/isa.cmake - compiler flags of the files written for one instruction set, by their names:
# *_avx2.c, *_avx512.c, *_vnni.c, *_amx.c, *_neon.c, *_i8mm.c. Such a file is empty on
# other machines (its own #if).
# *_rvv.c needs none: clang's attributes turn the vectors of RISC-V on.
# Files that hold several sets use target attributes instead and need nothing here.
# Under GODWIT_SIMDE every kernel file is compiled for AVX2 and FMA, and SIMDe builds the 512-bit
# intrinsics from those (without FMA it would round twice).
set(ISA_AVX2 -mavx2 -mfma -mf16c)
set(ISA_AVX512 ${ISA_AVX2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(ISA_VNNI ${ISA_AVX512} -mavx512vnni)
set(ISA_AMX ${ISA_VNNI} -mamx-tile -mamx-int8)
set(ISA_NEON -march=armv8.2-a+dotprod)
set(ISA_I8MM -march=armv8.2-a+dotprod+i8mm)

# AMX needs a recent assembler; without one the level is left out.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_FLAGS "-mamx-tile -mamx-int8")
check_c_source_compiles("int main(void) {
  __asm__ volatile(\"tdpbssd %tmm2, %tmm1, %tmm0\"); return 0; }" GODWIT_AMX_COMPILES)
unset(CMAKE_REQUIRED_FLAGS)
if(GODWIT_AMX_COMPILES OR GODWIT_SIMDE)
  add_compile_definitions(GODWIT_AMX)
endif()

# i8mm of 64-bit ARM needs a recent compiler. zig's has other names of processors; clang's attributes suffice it.
include(CheckCCompilerFlag)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  check_c_compiler_flag("${ISA_NEON}" GODWIT_NEON_FLAG)
  if(NOT GODWIT_NEON_FLAG)
    set(ISA_NEON "")
    set(ISA_I8MM "")
  endif()
endif()
string(REPLACE ";" " " CMAKE_REQUIRED_FLAGS "${ISA_I8MM}")
check_c_source_compiles("#include <arm_neon.h>
  #if defined(__clang__)
  __attribute__((target(\"i8mm\")))
  #endif
  int main(int n, char **text) {
  int8x16_t a = vdupq_n_s8((signed char)n); (void)text;
  return vgetq_lane_s32(vmmlaq_s32(vdupq_n_s32(0), a, a), 0); }" GODWIT_I8MM_COMPILES)
unset(CMAKE_REQUIRED_FLAGS)
if(GODWIT_I8MM_COMPILES)
  add_compile_definitions(GODWIT_I8MM)
  # A tile has as many vectors as there are registers; gcc's scheduler before their allocation makes
  # more of them live at once.
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND ISA_I8MM -fno-schedule-insns)
  endif()
endif()

# Vectors of RISC-V: fixed ones that multiply, convert and round once, by a clang of 2024 or later.
check_c_source_compiles("#if !defined(__riscv) || __riscv_xlen != 64
#error other processor
#endif
#pragma clang attribute push(__attribute__((target(\"arch=+v\"))), apply_to = function)
#include <riscv_vector.h>
typedef __attribute__((vector_size(64))) float floats;
static floats fused(floats a, floats b) { return __builtin_elementwise_fma(a, b, a); }
int main(int n, char **text) { (void)text;
  floats a = (floats){0} + (float)n; a = fused(a, a);
  return (int)a[3] + (int)__riscv_vsetvl_e8m1(16); }
#pragma clang attribute pop" GODWIT_RVV_COMPILES)
if(GODWIT_RVV_COMPILES)
  add_compile_definitions(GODWIT_RVV)
endif()

function(godwit_isa_flags)
  string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
  foreach(source ${ARGN})
    set(flags "")
    if(GODWIT_SIMDE AND source MATCHES "/cpu/[^/]*\\.c$")
      set(flags ${ISA_AVX2} -Wno-conversion -Wno-sign-conversion -Wno-psabi) # SIMDe's macros expand here
    elseif(processor MATCHES "x86_64|amd64" AND source MATCHES "_(avx2|avx512|vnni|amx)\\.c$")
      string(TOUPPER "ISA_${CMAKE_MATCH_1}" list)
      set(flags ${${list}})
    elseif(processor MATCHES "aarch64|arm64" AND source MATCHES "_(neon|i8mm)\\.c$")
      string(TOUPPER "ISA_${CMAKE_MATCH_1}" list)
      set(flags ${${list}})
    endif()
    if(flags)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
    endif()
  endforeach()
endfunction()
