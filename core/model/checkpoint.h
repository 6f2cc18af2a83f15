/* core/model/checkpoint.h - a model on disk, whatever its container: names, shapes, bytes.
 *
 * Opens a GGUF file (or split set, or an image in memory) or a Hugging Face folder, checks
 * everything that can be checked without reading weights, and offers typed access. Files stay
 * mapped (read-only) and open until gw_checkpoint_free.
 */
#ifndef GW_MODEL_CHECKPOINT_H
#define GW_MODEL_CHECKPOINT_H

#include "core/model/hparams.h"
#include "core/tensor/tensor.h"
#include "core/text/tokens/vocab.h"

typedef struct gw_checkpoint gw_checkpoint;

/* One tensor as stored. The range [data, data + bytes) lies inside the mapping (checked). */
typedef struct gw_stored {
    const char *name;
    gw_fmt fmt;
    int n_dim;
    int64_t dim[4];   /* C order: a GGUF [cols, rows] reads [rows, cols] here */
    const void *data; /* mapped; any alignment                                */
    size_t bytes;
    int fd;      /* the file, for pread; -1 for an image in memory        */
    uint64_t at; /* offset of data in that file                          */
    /* A matrix in several tensors (packed.h): bytes are those of whole rows in fmt, data are its
     * codes, code_bytes of them. NULL: data is all. */
    const struct gw_packed *packed;
    size_t code_bytes;
    int as_linear; /* [out, in] though the family's plain matrix may lie transposed */
    int part;      /* of a packed matrix, or what a quantizer notes besides: no weight of its own */
} gw_stored;

/* Bytes [at, at + bytes) of a tensor, through its file where there is one; of a packed matrix whole
 * rows. GW_E_IO, GW_E_TRUNCATED. */
gw_status gw_stored_read(const gw_stored *t, size_t at, size_t bytes, void *dst);

typedef enum gw_container {
    GW_CONTAINER_GGUF,
    GW_CONTAINER_HF,
    GW_CONTAINER_WEIGHTS /* one file of tensors, without a word of what model they are */
} gw_container;

/* path: .gguf or folder; or memory/bytes with path NULL. */
gw_status gw_checkpoint_open(const char *path, const void *memory, size_t bytes,
                             gw_checkpoint **out);
/* A family's spec from outside (--spec), in place of the one that the architecture names. */
typedef struct gw_spec_given {
    const char *name, *text; /* name: for messages */
    int predicts; /* text NULL: not the family's own, but that of the layers which a checkpoint of
                   * it ships to predict one token more, FAMILY-mtp. GW_E_UNSUPPORTED: not known */
    int chains;   /* the same of what a head adds to the logits of a block, FAMILY-chain */
    int sees;     /* the same of its vision tower, NAME-vision, or that of an mmproj file */
    int bare;     /* names, shapes and bytes alone, of whatever family */
    const char *lender; /* of a head that drafts for another model: that one's path, or NULL. Where
                         * the head has no embedding, or no output head, that model's serve  */
} gw_spec_given;
gw_status gw_checkpoint_open_as(const char *path, const void *memory, size_t bytes,
                                const gw_spec_given *given, gw_checkpoint **out);
/* The same for a tokenizer alone (vocab_only): the architecture may be unknown, hyper-parameters
 * and weights may be missing; gw_checkpoint_hparams is then NULL. The path may also be that of the
 * tokenizer's file in a folder (tokenizer.json, tekken.json, tokenizer.model, ...). */
gw_status gw_checkpoint_open_vocab(const char *path, const void *memory, size_t bytes,
                                   gw_checkpoint **out);
/* The tensors of one .safetensors file, or of one that torch.save wrote: no architecture, no
 * hyper-parameters, no vocabulary. */
gw_status gw_checkpoint_open_weights(const char *path, gw_checkpoint **out);
/* 1 when that is the way to open the path: a file that its name says to be one. */
int gw_is_weights_file(const char *path);
void gw_checkpoint_free(gw_checkpoint *c);

gw_container gw_checkpoint_container(const gw_checkpoint *c);
const char *gw_checkpoint_name(const gw_checkpoint *c); /* for people */
/* The folder of an embedding model, whose parts are below it; else the path. */
const char *gw_checkpoint_root(const gw_checkpoint *c);
/* Is it a table of vectors (StaticEmbedding)? Then it has a vocabulary alone. */
int gw_checkpoint_is_table(const gw_checkpoint *c);
const char *gw_checkpoint_path(const gw_checkpoint *c); /* as given, or "(memory)": for gw_fail */
uint64_t gw_checkpoint_file_bytes(const gw_checkpoint *c);
/* The hyper-parameters, read and range-checked: head counts divide, epsilons are finite, ... */
const gw_hparams *gw_checkpoint_hparams(const gw_checkpoint *c);
/* Is it a head that drafts for another model (EAGLE-3)? Nothing else opens such files. */
int gw_checkpoint_drafts(const gw_checkpoint *c);
/* ... and has it an embedding of its own? */
int gw_checkpoint_embeds(const gw_checkpoint *c);
/* The spec that they were read by (core/model/spec.h). */
const struct gw_blueprint *gw_checkpoint_blueprint(const gw_checkpoint *c);
/* "llama", "qwen2", "LlamaForCausalLM": what gw_spec_find takes; "" when the file names none. */
const char *gw_checkpoint_architecture(const gw_checkpoint *c);
/* GW_E_IO when a file changed (size or time) since it was opened; see core/base/file.h. */
gw_status gw_checkpoint_unchanged(const gw_checkpoint *c);
/* The vocabulary as plain data; owned by the checkpoint, read at the first call (not thread-safe).
 * GW_OK with *out NULL when the checkpoint carries no tokenizer at all (a folder with neither
 * tokenizer.json nor tokenizer.model; a GGUF without tokenizer.ggml.model).
 * Errors: GW_E_METADATA, GW_E_TYPE, ... */
gw_status gw_checkpoint_vocab(gw_checkpoint *c, const gw_vocab **out);

/* Cut texts as the pre-tokenizer of this name does, whatever the files say; before the first call
 * of gw_checkpoint_vocab, which fails when there is no such name. */
gw_status gw_checkpoint_set_pretokenizer(gw_checkpoint *c, const char *name);

/* The text of one of the model's chat templates, owned by the checkpoint; NULL when there is none.
 * name NULL: the default. A folder keeps it in chat_template.jinja, additional_chat_templates/
 * NAME.jinja, chat_template.json or tokenizer_config.json, a GGUF file in tokenizer.chat_template
 * and tokenizer.chat_template.NAME. Not thread-safe: a folder's is read at the call. */
gw_status gw_checkpoint_chat_template(gw_checkpoint *c, const char *name, const char **text,
                                      size_t *bytes);

/* How the model's publisher makes texts with it: generation_config.json of a folder, else the same
 * members of config.json; NULL: nothing is said. Owned by the checkpoint. */
const struct json_t *gw_checkpoint_generation(const gw_checkpoint *c);

/* A number that its publisher recommends to sample with: general.sampling.KEY of a GGUF file, or a
 * member of generation_config.json; NULL: there is no such key. 1 and *out when it is stated. */
int gw_checkpoint_sampling(const gw_checkpoint *c, const char *gguf, const char *hf, double *out);

/* The metadata for people: pairs of a GGUF file, members of config.json. Texts live in the
 * checkpoint; long values are cut. *out: malloc'd [*n], the caller's to free. */
gw_status gw_checkpoint_meta(gw_checkpoint *c, gw_meta **out, size_t *n);
/* "GGUF v3, 2 files", "Hugging Face folder, 4 files": in the checkpoint. NULL: no memory. */
const char *gw_checkpoint_describe(gw_checkpoint *c);

size_t gw_checkpoint_count(const gw_checkpoint *c);
const gw_stored *gw_checkpoint_at(const gw_checkpoint *c, size_t i);
const gw_stored *gw_checkpoint_find(const gw_checkpoint *c, const char *name); /* or NULL; hashed */
/* Tensors that no weight can be (I64, BOOL, five axes, ...) are checked but not in the list above.
 * For messages: why `name` is not there ("I64"), or NULL when the files do not have it. */
const char *gw_checkpoint_unusable(const gw_checkpoint *c, const char *name);
/* One of integers (I64, I32) as floats, made in the checkpoint's memory; NULL: `name` is none, or
 * there is no memory. */
const gw_stored *gw_checkpoint_integers(const gw_checkpoint *c, const char *name);

#endif
