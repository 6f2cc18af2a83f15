/* core/quantize/folder_out.h - a Hugging Face folder with int4 matrices, as GPTQ's tools and
 * compressed-tensors lay them out: out of a folder with float weights.
 *
 * A matrix [N, K], codes q of 4 bits, groups of G columns:
 *   gptq-gG   qweight i32 [K/8, N], qzeros i32 [K/G, N/8] (zero less one), scales f16 [K/G, N],
 *             g_idx i32 [K]
 *   w4a16-gG  weight_packed i32 [N, K/8], weight_scale f16 [N, K/G], weight_shape i64 [2], and
 * where zeros are not 8 weight_zero_point i32 [N/8, K/G]
 */
#ifndef GW_QUANTIZE_FOLDER_OUT_H
#define GW_QUANTIZE_FOLDER_OUT_H

#include "core/plan/backend.h"
#include "core/quantize/quantize.h"

typedef struct gw_folder_type {
    int packed_rows; /* 1: compressed-tensors, 0: GPTQ */
    int group;
} gw_folder_type;

/* 1 when the name is such a type. */
int gw_folder_type_named(const char *name, gw_folder_type *out);
gw_status gw_write_folder(const gw_quantize_options *o, const gw_folder_type *type,
                          gw_parallel_fn parallel, const gw_backend *const *backends);

#endif
