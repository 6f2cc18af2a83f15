/* backends/hip/compiler.h - the run-time compilers, NVRTC and hiprtc: one table of entry points,
 * found when it is first needed, as the drivers are.
 */
#ifndef GW_BACKENDS_HIP_COMPILER_H
#define GW_BACKENDS_HIP_COMPILER_H

#include <stddef.h>

#include "core/base/status.h"

/* A text that #include "name" finds. */
typedef struct gw_hip_text {
    const char *name, *text;
} gw_hip_text;

typedef struct gw_hip_compiler gw_hip_compiler;

/* NULL when the library is not there. Any thread. */
const gw_hip_compiler *gw_hip_compiler_open(int nvidia);
int gw_hip_compiler_major(const gw_hip_compiler *compiler);
/* "NVRTC 13.0": also a part of a cache key. out: at least 32 bytes. */
void gw_hip_compiler_name(const gw_hip_compiler *compiler, char *out, size_t room);

/* What the compiler is told of every kernel for one processor ("sm_90", "gfx90a"), apart from its
 * name; extra: one more option, or "". Part of a cache key. A
 * processor that kernels_hip/arch.h does not know is compiled for as gw_hip_processor_of says. */
enum { GW_HIP_OPTIONS = 9 };
typedef struct gw_hip_options { /* points into itself: not to be copied */
    const char *at[GW_HIP_OPTIONS];
    int n;
    char target[64], extra[64], unknown[64];
} gw_hip_options;
void gw_hip_options_for(const gw_hip_compiler *compiler, const char *arch, const char *extra,
                        gw_hip_options *out);

/* Code of one kernel of a text, or of all that are in it (NULL), malloc'd. GW_E_DEVICE with the
 * first lines of the compiler's log, GW_E_NOMEM. NVRTC: several threads at once; hiprtc: one. */
gw_status gw_hip_compile(const gw_hip_compiler *compiler, const gw_hip_text *source,
                         const char *kernel, const gw_hip_text *headers, size_t n_headers,
                         const gw_hip_options *options, void **out, size_t *bytes);
/* The same from the texts of this build (program.c): of one kernel, and of all in a file. */
gw_status gw_hip_compile_kernel(const gw_hip_compiler *compiler, const char *kernel,
                                const char *arch, void **out, size_t *bytes);
gw_status gw_hip_compile_file(const gw_hip_compiler *compiler, const char *file, const char *arch,
                              void **out, size_t *bytes);

/* places.c: the file of a kernel, NULL where no name is like it; and whether what is compiled for
 * arch has the kernel: others need matrix instructions, or copies, that it has none of. */
const char *gw_hip_file_of(const char *kernel);
int gw_hip_arch_has(const char *arch, const char *kernel);

#endif
