/* core/quantize/original.h - a model to be made smaller, as a GGUF file would hold it: names,
 * shapes and rows of every tensor, and the metadata as pairs. From a GGUF file these are what is
 * stored; from a folder they are put into GGUF's names and order by the family's spec.
 */
#ifndef GW_QUANTIZE_ORIGINAL_H
#define GW_QUANTIZE_ORIGINAL_H

#include "core/base/arena.h"
#include "core/model/checkpoint.h"
#include "core/quantize/gguf_out.h"

typedef struct gw_original_tensor gw_original_tensor;
struct gw_original_tensor {
    const char *name;
    const char *seen_as; /* what the model calls it that was opened from the same files */
    int n_dim;
    int64_t dim[4]; /* C order */
    int64_t rows, cols;
    gw_fmt fmt;              /* as stored */
    gw_fmt from;             /* folder: what floats were made of; F32: of floats */
    const gw_stored *stored; /* rows are stored one after the other in fmt; NULL: they are made */
    /* Rows [first, first + n) as floats, any thread. */
    gw_status (*read)(const gw_original_tensor *t, int64_t first, int64_t n, float *out);
    const void *state;
    int64_t heads, turning; /* folder: rows of a head's halves take turns; turning 0: they do not */
};

typedef struct gw_original {
    gw_checkpoint *checkpoint;
    struct gw_weights *weights; /* of a folder */
    gw_arena *arena;
    gw_original_tensor *list;
    size_t n;
    gw_bytes pairs; /* without what is said of the quantization */
    const char *architecture;
    int layers, heads, kv_heads, experts;
    uint64_t file_bytes;
    int parts;  /* files of a GGUF set */
    int pruned; /* layers that were left out: names of tensors are not those of the file */
} gw_original;

/* skip: keys that are not taken over, NULL at the end. prune: layers that are left out, as in
 * "20,21", or NULL; those behind them move up, and so do arrays of the metadata that have a value
 * for each layer. GW_E_ARGUMENT: no such layers, or none would be left. */
gw_status gw_original_open(const char *path, const char *const *skip, const char *prune,
                           gw_original *out);
void gw_original_close(gw_original *s);
const gw_original_tensor *gw_original_find(const gw_original *s, const char *name);

/* original_folder.c: names, order and metadata of a folder. */
gw_status gw_original_take_folder(gw_original *s);

#endif
