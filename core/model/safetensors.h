/* core/model/safetensors.h - the tensor table of one safetensors file, checked.
 *
 * Format: huggingface.co/docs/safetensors. The header is at most 100 MB of JSON that starts with
 * '{'; the data ranges must cover what follows it exactly, without holes or overlaps.
 */
#ifndef GW_MODEL_SAFETENSORS_H
#define GW_MODEL_SAFETENSORS_H

#include "core/base/arena.h"
#include "core/model/checkpoint.h"

typedef struct gw_safetensor {
    gw_stored stored;  /* fmt is meaningful only when usable                                    */
    const char *dtype; /* as written: "F16", "I64"; a constant string                           */
    int usable;        /* a float type this program computes with, of at most four dimensions  */
} gw_safetensor;

/* The memory and the arena (which holds names and the list) must outlive the result, in the order
 * of the data. fd: what the tensors' fd becomes. Errors: the file classes of godwit.h. */
gw_status gw_safetensors_parse(const char *where, const void *data, uint64_t size, int fd,
                               gw_arena *arena, gw_safetensor **out, size_t *n);

/* dtype, usable and fmt of a type by its name, and the bits of an element; 0: no such type. */
int gw_safetensors_dtype(const char *name, gw_safetensor *t, unsigned *bits);

#endif
