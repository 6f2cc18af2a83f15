/* core/model/weights.h - the weights of a model on its devices, found by their role in the spec.
 *
 * Every tensor is looked up and checked when the weights are opened, before the first byte is read;
 * then their sizes on any device can be asked, and they are loaded, each matrix on the device of
 * the block that uses it, vectors on every device. Matrices are loaded as
 * stored, or converted on the way in; vectors (norms, biases) become f32. A matrix product whose
 * matrices would mix float and quantized formats gets its quantized ones expanded to f32.
 */
#ifndef GW_MODEL_WEIGHTS_H
#define GW_MODEL_WEIGHTS_H

#include "core/model/spec.h"
#include "core/plan/plan.h"

typedef struct gw_weights gw_weights;

/* Which device runs block b of layer l: at [l * n_blocks + b]; the blocks outside the layers
 * (start, head) in the row behind the last layer. n_blocks is the blueprint's. */
typedef unsigned char gw_where;

typedef struct gw_weights_options {
    const char *where;   /* the file, for messages */
    const char *convert; /* NULL or "int8", "int4-g32|g64|g128|g256": float matrices become that;
                            "float": quantized ones become f32; "bf16", "f16": all that */
    int as_stored; /* 1: rows and columns in the publisher's order: they are read, and not run */
    gw_progress_fn progress; /* may be NULL */
    void *progress_user;
    const volatile int *cancel; /* polled between tensors; may be NULL */
} gw_weights_options;

/* checkpoint must outlive the result: float matrices may stay in its mapping.
 *   GW_E_METADATA   a tensor is missing or its shape is wrong (names it and both shapes)
 *   GW_E_TYPE       a tensor that is no weight, or a quantized norm
 *   GW_E_UNSUPPORTED a layer holds a tensor that the family does not use
 *   GW_E_ARGUMENT   `convert` is unknown or nothing could be converted
 *   GW_E_CANCELLED, GW_E_IO, GW_E_NOMEM, GW_E_DEVICE */
gw_status gw_weights_open(const gw_checkpoint *checkpoint, const gw_blueprint *blueprint,
                          const gw_weights_options *options, gw_weights **out);
/* Once. options: the same. The devices must outlive the weights. An error leaves them unloaded.
 * groups [n_devices]: of the device that `where` names; NULL: each alone. Cards of a group get
 * their shares (cut.h). */
gw_status gw_weights_load(gw_weights *w, const gw_plan_device *devices, int n_devices,
                          const gw_where *where, const gw_group *groups,
                          const gw_weights_options *options);
void gw_weights_free(gw_weights *w);

/* Of weights that are not loaded: give every tensor the layout it would have on the device, and add
 * up the bytes of the matrices of each block into bytes [(n_layers + 1) * n_blocks], as in
 * gw_where. A matrix counts in the first block that uses it. *vectors: of all vectors. */
gw_status gw_weights_size(gw_weights *w, const gw_plan_device *device, uint64_t *bytes,
                          uint64_t *vectors);

/* Weights to measure a device with: n layers, spread over those of w (open, not loaded), and what
 * lies outside the layers; the bytes are made up, with scales and norms that keep numbers ordinary.
 * group: what share each of the devices [group->n] has, device[c] being c; n 1: all. The devices'
 * array outlives the sample. */
gw_status gw_weights_sample(const gw_weights *w, const gw_plan_device *devices,
                            const gw_group *group, int n, gw_weights **out);

const gw_blueprint *gw_weights_blueprint(const gw_weights *w);
/* Its own numbers: a sample has fewer layers than the model. */
const gw_hparams *gw_weights_hparams(const gw_weights *w);
/* Weight number `role` of the blueprint in a layer (any value when it is not per layer); NULL when
 * role is -1 or the optional tensor is absent. device: whose copy of a vector, or share of a
 * matrix; GW_WEIGHTS_WHOLE: shape, format and layout of the whole, without memory. */
enum { GW_WEIGHTS_WHOLE = -1 };
const gw_tensor *gw_weights_get(const gw_weights *w, int role, int layer, int device);

/* weights_fetch.c, of loaded weights. Room on a device for the matrices of layers that device 0
 * has, one layer's at a time: gw_weights_get for that device then gives tensors that lie there, and
 * many share a place. Once. An error leaves nothing. */
gw_status gw_weights_fetch_new(gw_weights *w, int device);
/* Is it such a tensor? */
int gw_weights_is_fetched(const gw_weights *w, const gw_tensor *t);
/* Bring rows [first, first + n) of such a tensor to its place, ahead of what is run then. */
gw_status gw_weights_fetch(const gw_weights *w, const gw_tensor *t, int64_t first, int64_t n);

/* weights_sleep.c, of loaded weights that no plan uses. The memory of their devices is given back,
 * and what lay there stays in main memory; *kept: bytes there. wake: all lies where it lay, and is
 * on its way. Either is done again after an error. Weights that main memory has anyway stay.
 *   GW_E_NOMEM   main memory, or that of a device
 *   GW_E_DEVICE */
gw_status gw_weights_sleep(gw_weights *w, uint64_t *kept);
gw_status gw_weights_wake(gw_weights *w);

/* Rows of a whole matrix of which cards of a group have shares; 0 as above. */
int64_t gw_weights_rows(const gw_weights *w, int role, int layer);

/* Of a matrix whose columns do not lie in the order of its input: which value of the input each
 * takes, as floats [columns]; NULL: in order. */
const gw_tensor *gw_weights_columns(const gw_weights *w, int role, int layer, int device);

/* A matrix or vector outside the layers that no block uses, for the host: *out malloc'd [*rows,
 * columns] or [*rows] f32; NULL: it is optional and absent. */
gw_status gw_weights_values(gw_weights *w, int role, float **out, int64_t *rows);

/* A row of a matrix outside the layers, as the file has it: out [columns] f32. Also of loaded
 * weights. */
gw_status gw_weights_row(const gw_weights *w, int role, int64_t row, float *out);

/* Bytes read for one generated token: every matrix of the layers and the head, of experts those
 * that a token uses, norms and biases. */
uint64_t gw_weights_decode_bytes(const gw_weights *w);
/* The format that most bytes of the layers' matrices have: embedding and head often differ. */
gw_fmt gw_weights_format(const gw_weights *w);

#endif
