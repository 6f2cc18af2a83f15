/* core/quantize/merge.h - adapters become part of a model that is made anew (core/model/lora.h). */
#ifndef GW_QUANTIZE_MERGE_H
#define GW_QUANTIZE_MERGE_H

#include "core/quantize/original.h"
#include "include/godwit_lora.h"

typedef struct gw_merge gw_merge;

/* The tensors of s that the adapters [n] change are read as W + the sum of scale * B A, summed in
 * double and rounded once. from_quantized: also of formats that round. *out outlives every read of
 * s, then gw_merge_free. Errors of gw_model_adapt; GW_E_ARGUMENT: a tensor is quantized. */
gw_status gw_merge_into(gw_original *s, const gw_lora_file *adapters, size_t n, int from_quantized,
                        gw_merge **out);
void gw_merge_free(gw_merge *merge); /* accepts NULL */

#endif
