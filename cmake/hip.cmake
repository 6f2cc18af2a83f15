# cmake/hip.cmake - the device code of the hip backend: the texts of kernels_hip always, and compiled
# code for GODWIT_HIP_ARCHS, all as bytes in the program (a generated .S with the table that
# backends/hip/program.c reads). Sets HIP_SOURCES.
#   GODWIT_HIP_ARCHS  "auto": those that kernels_hip/arch.h marks for it and that nvcc and hipcc, where they
#                     are found, say they know; "none": all is compiled when it runs (NVRTC, hiprtc); or a
#                     list such as "sm_80;sm_90;gfx90a". Of NVIDIA's the last one is also kept as PTX,
#                     and sm_90.
set(GODWIT_HIP_ARCHS "none" CACHE STRING "processors to compile GPU code for: auto, none or a list")
find_program(GODWIT_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda/bin DOC "NVIDIA's compiler")
find_program(GODWIT_HIPCC hipcc HINTS ENV ROCM_PATH PATHS /opt/rocm/bin DOC "AMD's compiler")

file(GLOB_RECURSE KERNELS_HIP CONFIGURE_DEPENDS kernels_hip/*.hip)
file(GLOB_RECURSE KERNEL_HEADERS CONFIGURE_DEPENDS kernels_hip/*.h)
list(APPEND KERNEL_HEADERS ${CMAKE_SOURCE_DIR}/core/tensor/dialect.h
     ${CMAKE_SOURCE_DIR}/core/tensor/arith.h ${CMAKE_SOURCE_DIR}/core/tensor/blocks.h
     ${CMAKE_SOURCE_DIR}/core/tensor/e4m3.h ${CMAKE_SOURCE_DIR}/core/tensor/nvfp4.h
     ${CMAKE_SOURCE_DIR}/core/tensor/format_list.h ${CMAKE_SOURCE_DIR}/core/tensor/planes.h
     ${CMAKE_SOURCE_DIR}/core/tensor/digits.h ${CMAKE_SOURCE_DIR}/core/tensor/cells.h
     ${CMAKE_SOURCE_DIR}/core/tensor/sample.h ${CMAKE_SOURCE_DIR}/core/tensor/act.h
     ${CMAKE_SOURCE_DIR}/core/tensor/route.h ${CMAKE_SOURCE_DIR}/core/tensor/area.h
     ${CMAKE_SOURCE_DIR}/core/tensor/ngram_row.h)

# Which of the wanted the compilers can do.
set(CUDA_ARCHS "")
set(AMD_ARCHS "")
set(known "")
if(GODWIT_NVCC)
  execute_process(COMMAND ${GODWIT_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
  execute_process(COMMAND ${GODWIT_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  string(REGEX REPLACE ".*release ([0-9.]+).*" "\\1" nvcc_version "${nvcc_version}")
endif()
set(wanted ${GODWIT_HIP_ARCHS})
# Does hipcc make code for it?
function(hipcc_knows arch result)
  set(error 1)
  if(GODWIT_HIPCC)
    execute_process(COMMAND ${GODWIT_HIPCC} --offload-arch=${arch} --cuda-device-only -nogpuinc -nogpulib
      -x hip -fsyntax-only /dev/null RESULT_VARIABLE error OUTPUT_QUIET ERROR_QUIET)
  endif()
  if(error EQUAL 0)
    set(${result} 1 PARENT_SCOPE)
  else()
    set(${result} 0 PARENT_SCOPE)
  endif()
endfunction()
if(wanted STREQUAL "auto")
  set(wanted "")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS kernels_hip/arch.h)
  file(STRINGS kernels_hip/arch.h rows REGEX "^ +X\\((gfx|sm_).*, 1\\)")
  foreach(row ${rows})
    string(REGEX REPLACE "^ +X\\(([a-z0-9_]+),.*" "\\1" arch "${row}")
    if(arch MATCHES "^gfx")
      hipcc_knows(${arch} knows)
    elseif(arch IN_LIST known)
      set(knows 1)
    else()
      set(knows 0)
    endif()
    if(knows)
      list(APPEND wanted ${arch})
    endif()
  endforeach()
elseif(wanted STREQUAL "none")
  set(wanted "")
endif()
foreach(arch ${wanted})
  if(arch MATCHES "^sm_[0-9]+$" AND arch IN_LIST known)
    list(APPEND CUDA_ARCHS ${arch})
  elseif(arch MATCHES "^gfx[0-9a-f]+$")
    if(GODWIT_HIP_ARCHS STREQUAL "auto")
      set(knows 1)
    else()
      hipcc_knows(${arch} knows)
    endif()
    if(NOT knows)
      message(FATAL_ERROR "GODWIT_HIP_ARCHS: ${arch}: no compiler here makes code for it")
    endif()
    list(APPEND AMD_ARCHS ${arch})
  else()
    message(FATAL_ERROR "GODWIT_HIP_ARCHS: ${arch}: no compiler here makes code for it")
  endif()
endforeach()
list(SORT CUDA_ARCHS COMPARE NATURAL)

# One arithmetic: no contraction, IEEE division and square root, subnormal numbers (both defaults).
set(NVCC_FLAGS -std=c++17 -O3 -fmad=false -x cu -I ${CMAKE_SOURCE_DIR} -fatbin)
foreach(arch ${CUDA_ARCHS})
  string(REPLACE "sm_" "compute_" virtual ${arch})
  if(arch STREQUAL "sm_90" AND nvcc_version VERSION_GREATER_EQUAL 12)
    list(APPEND NVCC_FLAGS "-gencode=arch=compute_90a,code=sm_90a") # with instructions of its own
  else()
    list(APPEND NVCC_FLAGS "-gencode=arch=${virtual},code=${arch}")
  endif()
endforeach()
# PTX: of the last, and of sm_90 for what lies between.
if(CUDA_ARCHS)
  list(APPEND NVCC_FLAGS "-gencode=arch=${virtual},code=${virtual}")
  if(sm_90 IN_LIST CUDA_ARCHS AND NOT virtual STREQUAL "compute_90")
    list(APPEND NVCC_FLAGS "-gencode=arch=compute_90,code=compute_90")
  endif()
endif()
set(HIPCC_FLAGS -std=c++17 -O3 -ffp-contract=off -I ${CMAKE_SOURCE_DIR} --genco)
foreach(arch ${AMD_ARCHS})
  list(APPEND HIPCC_FLAGS --offload-arch=${arch})
endforeach()

set(rows "")
set(bytes "")
set(count 0)
macro(hip_embed name path)
  string(APPEND rows "    .8byte n${count}, f${count}, e${count} - f${count}\n")
  string(APPEND bytes "n${count}: .asciz \"${name}\"\n    .balign 64\nf${count}: .incbin \"${path}\"\n"
         "e${count}: .byte 0\n")
  list(APPEND EMBEDDED ${path})
  math(EXPR count "${count} + 1")
endmacro()

foreach(source ${KERNELS_HIP})
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
  get_filename_component(stem ${source} NAME_WE)
  hip_embed(${name} ${source})
  if(CUDA_ARCHS)
    set(object ${CMAKE_BINARY_DIR}/hip/${stem}.fatbin)
    add_custom_command(OUTPUT ${object} COMMAND ${GODWIT_NVCC} ${NVCC_FLAGS} -o ${object} ${source}
      DEPENDS ${source} ${KERNEL_HEADERS} VERBATIM COMMENT "nvcc ${name}")
    hip_embed(cuda/${stem} ${object})
  endif()
  if(AMD_ARCHS)
    set(object ${CMAKE_BINARY_DIR}/hip/${stem}.hsaco)
    add_custom_command(OUTPUT ${object} COMMAND ${GODWIT_HIPCC} ${HIPCC_FLAGS} -o ${object} ${source}
      DEPENDS ${source} ${KERNEL_HEADERS} VERBATIM COMMENT "hipcc ${name}")
    hip_embed(amd/${stem} ${object})
  endif()
endforeach()
foreach(source ${KERNEL_HEADERS})
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
  hip_embed(${name} ${source})
endforeach()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/hip)
set(HIP_SOURCES ${CMAKE_BINARY_DIR}/hip/files.S)
file(CONFIGURE OUTPUT ${HIP_SOURCES} @ONLY CONTENT
"/* Generated by cmake/hip.cmake: {name, bytes, length} of every file, a row of zeros behind them. */
    .section .rodata
@bytes@
    .section .data.rel.ro, \"aw\"
    .balign 8
    .global gw_hip_files
    .type gw_hip_files, %object
gw_hip_files:
@rows@    .8byte 0, 0, 0
    .size gw_hip_files, . - gw_hip_files
    .section .note.GNU-stack, \"\", %progbits
")
set_source_files_properties(${HIP_SOURCES} PROPERTIES OBJECT_DEPENDS "${EMBEDDED}")
list(JOIN CUDA_ARCHS " " cuda_text)
if(nvcc_version VERSION_GREATER_EQUAL 12)
  string(REPLACE "sm_90" "sm_90a" cuda_text "${cuda_text}")
endif()
list(JOIN AMD_ARCHS " " amd_text)
set_source_files_properties(${CMAKE_SOURCE_DIR}/backends/hip/program.c PROPERTIES COMPILE_DEFINITIONS
  "GODWIT_CUDA_ARCHS=\"${cuda_text}\";GODWIT_AMD_ARCHS=\"${amd_text}\"")
message(STATUS "hip: code for [${cuda_text}] [${amd_text}]")
