# cmake/aarch64.cmake - cross build for 64-bit ARM on Debian, run under qemu-user.
# The target's libraries come from GODWIT_ARM64_ROOT, a folder that tools/arm64-root fills; the
# compiler brings its own C library (libc6-dev-arm64-cross).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_ASM_COMPILER aarch64-linux-gnu-gcc)

set(GODWIT_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root CACHE PATH
    "the unpacked arm64 packages")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GODWIT_ARM64_ROOT)
get_filename_component(ARM64_ROOT ${GODWIT_ARM64_ROOT} ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${ARM64_ROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} ${ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${ARM64_ROOT})

# cortex-a76 and later have the dot product; "max" is what qemu can do.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)
