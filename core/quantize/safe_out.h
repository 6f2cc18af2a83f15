/* core/quantize/safe_out.h - writes a safetensors file: first all names and shapes, then the data
 * in their order. The file appears when it is whole (core/base/save.h).
 */
#ifndef GW_QUANTIZE_SAFE_OUT_H
#define GW_QUANTIZE_SAFE_OUT_H

#include <jansson.h>

#include "core/base/save.h"

typedef struct gw_safe_out {
    json_t *header;
    uint64_t bytes, written; /* of the data: declared, and already there */
    gw_save save;
    int begun;
} gw_safe_out;

/* GW_E_NOMEM. Released by gw_safe_out_end or _drop. */
gw_status gw_safe_out_new(gw_safe_out *o);
/* dtype as the format names it ("U8", "F16"); dim [n_dim]; bytes: of the tensor. */
gw_status gw_safe_out_add(gw_safe_out *o, const char *name, const char *dtype, const int64_t *dim,
                          int n_dim, uint64_t bytes);
/* metadata: texts as an object, or NULL; borrowed. Then the data of every tensor in the order of
 * the calls above, in pieces of any size. */
gw_status gw_safe_out_begin(gw_safe_out *o, const char *path, json_t *metadata);
gw_status gw_safe_out_write(gw_safe_out *o, const void *data, size_t bytes);
gw_status gw_safe_out_end(gw_safe_out *o);
void gw_safe_out_drop(gw_safe_out *o);

#endif
