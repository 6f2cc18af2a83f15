/* core/engine/run/describe.h - the parts of a gw_model_info that files alone tell. */
#ifndef GW_ENGINE_DESCRIBE_H
#define GW_ENGINE_DESCRIBE_H

#include "core/model/checkpoint.h"

/* Bytes of the files, parameters and bytes of the tensors; bytes [GW_FMT_COUNT] of each format. */
void gw_describe_files(const gw_checkpoint *checkpoint, gw_model_info *info,
                       uint64_t bytes[GW_FMT_COUNT]);
void gw_describe_shape(const gw_hparams *hp, gw_model_info *info);
/* Of a head that drafts for another model what that one is. */
void gw_describe_head(const gw_checkpoint *checkpoint, gw_model_info *info);
/* The name of a format in capitals, cut to what fits. */
void gw_describe_format(gw_fmt fmt, char *out, size_t room);

#endif
