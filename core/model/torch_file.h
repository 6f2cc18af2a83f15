/* core/model/torch_file.h - the tensors of what torch.save wrote: an archive with a pickle in it.
 */
#ifndef GW_MODEL_TORCH_FILE_H
#define GW_MODEL_TORCH_FILE_H

#include "core/model/safetensors.h"

/* As gw_safetensors_parse, in the order of the table. Tensors may share data. One whose elements do
 * not follow each other is not usable. Nothing in the file is run: see pickle.h. */
gw_status gw_torch_parse(const char *where, const void *data, uint64_t size, int fd,
                         gw_arena *arena, gw_safetensor **out, size_t *n);

#endif
