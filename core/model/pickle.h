/* core/model/pickle.h - the table of tensors in a pickle stream, read without running anything.
 *
 * Python's pickle is a program that may call anything. This reader knows the two dozen instructions
 * that torch.save writes for tensors and plain values, and the few names that they need; any other
 * instruction or name ends the reading. What is called here only notes its arguments.
 */
#ifndef GW_MODEL_PICKLE_H
#define GW_MODEL_PICKLE_H

#include "core/base/arena.h"
#include "core/base/status.h"

enum { GW_PICKLE_RANK_MAX = 8 };

typedef struct gw_pickled { /* one tensor: a view of a storage */
    const char *name;       /* UTF-8, in the arena                               */
    const char *storage;    /* its key: the name of its entry under data/        */
    const char *dtype;      /* in the words of safetensors: "F32"; constant      */
    uint64_t elements;      /* of the storage                                    */
    int in_bytes;           /* elements count bytes                              */
    uint64_t offset;        /* in elements                                       */
    int n_dim;              /* as many sizes as strides                          */
    uint64_t size[GW_PICKLE_RANK_MAX], stride[GW_PICKLE_RANK_MAX];
} gw_pickled;

/* The tensors of the table that the stream makes, or of its member "state_dict", "model" or
 * "module" when it has none itself, in order; what lies beside them is left out. GW_E_FORBIDDEN,
 * GW_E_SYNTAX, GW_E_TRUNCATED, GW_E_VERSION, GW_E_LIMIT, GW_E_TYPE, GW_E_ENCODING, GW_E_METADATA.
 */
gw_status gw_pickle_read(const char *where, const void *bytes, uint64_t n, gw_arena *arena,
                         gw_pickled **out, size_t *count);

/* The form that torch.save wrote before 1.6, without an archive: five streams (two of them fixed
 * numbers), then of each storage its count of elements and these. *at: where they begin. */
typedef struct gw_pickled_storage {
    const char *key, *dtype;
} gw_pickled_storage;

int gw_pickle_is_old(const void *data, uint64_t size);
gw_status gw_pickle_read_old(const char *where, const void *bytes, uint64_t size, gw_arena *arena,
                             gw_pickled **out, size_t *count, gw_pickled_storage **storages,
                             size_t *n_storages, uint64_t *at);

#endif
