/* core/model/lora_parts.h - what lora.c and lora_folder.c share. Nobody else includes this. */
#ifndef GW_MODEL_LORA_PARTS_H
#define GW_MODEL_LORA_PARTS_H

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/model/gguf.h"
#include "core/model/lora.h"

struct gw_lora {
    const char *path;
    gw_arena *arena;
    gw_map *names; /* of modules: index in pair */
    gw_lora_pair *pair;
    size_t n;
    int rank;
    uint64_t digest;
    char architecture[64];
    gw_checkpoint *tensors; /* of a folder */
    gw_gguf *gguf;          /* or of a file */
    gw_file file;
    int has_file;
};

/* Room for the pairs of so many tensors; once. */
gw_status gw_lora_room(gw_lora *l, size_t tensors);
/* Tensor t is A, or B, of the layer module [n]. */
gw_status gw_lora_add(gw_lora *l, const gw_stored *t, const char *module, size_t n, int is_b);

/* lora_folder.c: all pairs and their scales. */
gw_status gw_lora_read_folder(gw_lora *l);

#endif
