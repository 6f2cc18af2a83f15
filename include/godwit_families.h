/* include/godwit_families.h - the model families that the library knows, by their names. A header
 * of its own: godwit.h does not include it. */
#ifndef GODWIT_FAMILIES_H
#define GODWIT_FAMILIES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names of one family. Both lists are words separated by blanks, "" where there are none. */
typedef struct gw_family {
    char name[64];  /* as errors and gw_model_info say it */
    char gguf[256]; /* values of general.architecture; ARCH+experts: of files with experts */
    char hf[1024];  /* values of architectures, or model_type, in config.json */
} gw_family;

/* Family number i, in the order of names. Returns 1, or 0 beyond the last one (*out is unchanged).
 * May be called from any thread. */
int gw_family_at(size_t i, gw_family *out);

#ifdef __cplusplus
}
#endif

#endif
