/* core/model/weights_parts.h - what the weights*.c files share, and core/quantize, which takes the
 * rows of a folder's weights as they become here. Nobody else includes this. */
#ifndef GW_MODEL_WEIGHTS_PARTS_H
#define GW_MODEL_WEIGHTS_PARTS_H

#include "core/model/cut.h"
#include "core/model/weights.h"

/* One weight of one layer: what is stored, what it becomes. */
typedef struct gw_entry {
    const gw_stored **stored;     /* [n_stored]: one, or one for each expert */
    int n_stored;                 /* 0: absent */
    int made;                     /* 1: not stored, but made: ALiBi slopes, sines of positions */
    const gw_spec_source *source; /* how; NULL: as it is */
    int transposed;               /* the stored matrix is [columns, rows] */
    int64_t first, count, of;     /* of every `of` stored rows, `count` from `first`; of 0: all */
    int64_t within, span;         /* transposed by heads; span 0: not */
    float times;                  /* of GW_TRANSFORM_TIMES */
    int buckets, both;            /* of GW_TRANSFORM_RELATIVE */
    int64_t folded;               /* gw_spec_source.folded; 0: not */
    double period;                /* of sines of positions */
    int single, zero;             /* zero: the row that is; -1: none */
    gw_fmt from;                  /* format of what is stored */
    const int32_t *column; /* [dim 1] which input each column of t takes; NULL: as they stand */
    const int32_t *row; /* [dim 0] which row of what is stored each row is; NULL: as they stand */
    gw_tensor columns;  /* the same as a vector: its shape */
    const gw_stored *factor; /* NVFP4 in GGUF: times its number, or each expert's; NULL: nothing */
    int64_t stored_rows, stored_cols; /* of one stored tensor, as a matrix */
    gw_tensor t;   /* buf NULL until loaded; matrices of experts are [experts * rows, cols] */
    int keep_rows; /* the embedding table */
    int plain;     /* a float matrix in rows, for a product by heads */
    int keep_float;
    int experts, used; /* 0: no experts */
    int owned;         /* t.buf is released with the weights; vectors share one buffer */
    int block, layer;  /* the first block that uses it; layer n_layers: outside */
} gw_entry;

struct gw_weights {
    gw_blueprint bp;
    gw_hparams hp;
    gw_layer *layers; /* of a sample: its own; NULL: the checkpoint's */
    double *values;
    unsigned char *skips;
    const char *where; /* of the options; used while loading */
    const gw_checkpoint *checkpoint;
    const gw_plan_device *devices;
    int n_devices;
    gw_entry *entries;      /* of weight r: entries[start[r] + layer] */
    const gw_stored **pool; /* of the entries' lists */
    size_t n_pool, pool_capacity;
    size_t start[GW_SPEC_WEIGHTS + 1];
    struct gw_buffer *vectors[GW_MAX_DEVICES]; /* all norms and biases, at equal offsets */
    gw_tensor *copies[GW_MAX_DEVICES];         /* [entries] vectors as they lie on a device */
    gw_tensor *shares[GW_MAX_DEVICES]; /* [entries] matrices of a card of a group; NULL: of none */
    /* weights_fetch.c: matrices of device 0 as they lie on another one for a while, several at one
     * place [n_places]. */
    gw_tensor *fetched; /* [entries]; n_dim 0: not; NULL: none */
    gw_tensor *places;
    size_t n_places;
    int fetched_on;
};

/* weights_find.c */
gw_status gw_weights_match(gw_weights *w);
/* Name number i that a linear layer's matrix has in folders (without a prefix), or in GGUF files;
 * "": it is stored in a way that no linear layer is. expert: whose matrix, where experts have each
 * its own; -1: no name then. e: out, which rows of that tensor it is. *there 0: there are no
 * more. */
gw_status gw_weights_named(const gw_weights *w, int role, int layer, int expert, int folder, int i,
                           char *name, size_t room, gw_entry *e, int *there);
/* Has each expert a tensor of its own? */
int gw_source_names_experts(const gw_spec_source *s);
static inline int gw_entry_there(const gw_entry *e) { return e->n_stored > 0 || e->made; }
static inline int gw_entry_plain(const gw_entry *e) {
    return e->n_stored == 1 && e->of == 0 && e->folded == 0 &&
           (e->source == NULL || (!e->transposed && e->source->transform[0] == GW_TRANSFORM_NONE));
}

/* weights_cut.c: rows of an entry as they become, whatever is stored. */
gw_weight_source gw_entry_source(const gw_entry *e);
/* Which stored row a row comes from: of all stored tensors one after the other. */
int64_t gw_entry_stored_row(const gw_entry *e, int64_t row);
/* Values that one stored one becomes. */
int gw_entry_taps(const gw_entry *e);
/* Values of a vector, f32. */
gw_status gw_entry_values(const gw_entry *e, float *values);

/* weights.c. Bytes that an entry has of the buffer of vectors, rounded up to 64; of all entries,
 * and *stored (may be NULL) of all tensors in the file. */
size_t gw_entry_vector_bytes(const gw_entry *e);
size_t gw_weights_vectors(const gw_weights *w, uint64_t *stored);
/* That buffer on every device; the inputs of the columns of a matrix in it. */
gw_status gw_weights_make_vectors(gw_weights *w, size_t bytes);
gw_status gw_weights_load_column(const gw_weights *w, const gw_entry *e, size_t at);

/* weights_order.c. Before formats are settled: matrices with columns in another order as floats, in
 * the publisher's. Behind it: rows of gate and up in the order of the columns of down. */
void gw_weights_keep_columns(gw_weights *w);
void gw_weights_order(gw_weights *w);

/* weights_fetch.c */
void gw_weights_free_fetched(gw_weights *w);

/* weights_share.c: the part of an entry that card c of a group has. */
typedef struct gw_entry_share {
    gw_tensor t; /* the entry's, with so many rows */
    int parts;   /* runs of rows: `count` from `first` on of every `span` */
    int64_t span, first, count;
    gw_weight_source whole; /* of matrices */
} gw_entry_share;
/* GW_E_UNSUPPORTED: blocks use it in different ways. */
gw_status gw_entry_share_of(const gw_weights *w, const gw_entry *e, const gw_group *group, int card,
                            gw_entry_share *out);
/* Where the share's rows come from; share outlives the loading. */
gw_weight_source gw_entry_share_source(const gw_entry *e, gw_entry_share *share);
/* Those of the values of a vector that are of the share, to its beginning. */
void gw_entry_share_values(const gw_entry_share *share, float *values);

#endif
