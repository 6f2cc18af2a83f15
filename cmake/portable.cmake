# cmake/portable.cmake - a program for every Linux with glibc 2.31 or later: compiled and linked against
# Debian 11's C library, from a folder that tools/old-root fills. This machine's gcc does it, so that
# instruction sets newer than Debian 11's own compiler are there.
#   GODWIT_PORTABLE_ARCH  amd64 or arm64; default: this machine's
execute_process(COMMAND dpkg --print-architecture OUTPUT_VARIABLE HOST_ARCH
  OUTPUT_STRIP_TRAILING_WHITESPACE)
set(GODWIT_PORTABLE_ARCH ${HOST_ARCH} CACHE STRING "amd64 or arm64")
set(GODWIT_OLD_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/old-root-${GODWIT_PORTABLE_ARCH} CACHE PATH
    "what tools/old-root has unpacked")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GODWIT_PORTABLE_ARCH GODWIT_OLD_ROOT)
get_filename_component(CMAKE_SYSROOT ${GODWIT_OLD_ROOT} ABSOLUTE)
set(TRIPLE x86_64-linux-gnu)
if(GODWIT_PORTABLE_ARCH STREQUAL "arm64")
  set(TRIPLE aarch64-linux-gnu)
endif()
if(GODWIT_PORTABLE_ARCH STREQUAL HOST_ARCH)
  set(CMAKE_C_COMPILER gcc)
else() # a cross compiler has headers of its own, and must not find them
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
  set(CMAKE_C_COMPILER ${TRIPLE}-gcc)
  set(CMAKE_ASM_COMPILER ${TRIPLE}-gcc)
  set(CMAKE_C_FLAGS_INIT "-isystem ${CMAKE_SYSROOT}/usr/include/${TRIPLE} -isystem ${CMAKE_SYSROOT}/usr/include")
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L ${CMAKE_SYSROOT})
endif()
# Two builds in different folders give equal bytes: no path of the build is kept.
get_filename_component(SOURCES ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
string(APPEND CMAKE_C_FLAGS_INIT " -ffile-prefix-map=${CMAKE_SYSROOT}=/ -ffile-prefix-map=${CMAKE_BINARY_DIR}=. -ffile-prefix-map=${SOURCES}=.")
# gcc looks beside itself before it looks into the sysroot.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-B${CMAKE_SYSROOT}/usr/lib/${TRIPLE} -L${CMAKE_SYSROOT}/usr/lib/${TRIPLE} -Wl,--allow-shlib-undefined")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}") # of a wheel
set(CMAKE_LIBRARY_ARCHITECTURE ${TRIPLE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/${TRIPLE}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
