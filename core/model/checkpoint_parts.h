/* core/model/checkpoint_parts.h - what checkpoint.c and its two containers share. Nobody else
 * includes this. */
#ifndef GW_MODEL_CHECKPOINT_PARTS_H
#define GW_MODEL_CHECKPOINT_PARTS_H

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/model/checkpoint.h"
#include "core/model/gguf.h"
#include "core/model/spec.h"

struct gw_checkpoint {
    gw_container container;
    gw_arena *arena;   /* names, paths, divisors                          */
    const char *where; /* the path as given, or "(memory)"                */
    const char *root;  /* of an embedding model whose transformer is in a folder of its own: the
                          folder that holds it; else NULL                   */
    int tabled;        /* it is a table of vectors, without a transformer     */
    const char *name;
    char architecture[64];
    gw_file *files; /* all that are mapped */
    size_t n_files, files_capacity;
    const char **file_names; /* [n_files] */
    gw_gguf **gguf;          /* parts of a split set; the first has the metadata */
    size_t n_gguf;
    uint64_t memory_bytes; /* of an image in memory */
    gw_stored *list;
    size_t n, capacity;
    gw_map *names; /* -> index into list */
    struct gw_unusable {
        gw_stored stored; /* without a format */
        const char *why;  /* its type */
    } * unusable;         /* at unusable_names' values */
    size_t n_unusable, unusable_capacity;
    gw_map *unusable_names;
    int has_hparams;
    gw_hparams hparams;
    gw_blueprint *blueprint;
    json_t *config, *generation; /* of a folder; generation may be NULL */
    enum { GW_VOCAB_UNREAD, GW_VOCAB_READ, GW_VOCAB_NONE } vocab_state;
    gw_vocab vocab;
    const char *vocab_file;   /* of a folder: the tokenizer's; NULL: as FILES of hf_vocab.c says */
    const char *pretokenizer; /* in place of what the files say; NULL: nothing */
    gw_checkpoint *lender;    /* whose tensors stand in the list as well; NULL: none */
};

/* checkpoint_lend.c: of another model's files the tensors that a head does without. */
gw_status gw_checkpoint_borrow(gw_checkpoint *c, const char *path);

/* checkpoint.c */
gw_status gw_checkpoint_map(gw_checkpoint *c, const char *path, gw_file *out); /* kept by c */
gw_status gw_checkpoint_add(gw_checkpoint *c, const char *where, const gw_stored *t);
gw_status gw_checkpoint_add_unusable(gw_checkpoint *c, const char *where, const gw_stored *t,
                                     const char *why);
/* A packed matrix, maybe under the name of its codes. */
gw_status gw_checkpoint_replace(gw_checkpoint *c, const gw_stored *t);
/* packed_find.c: matrices out of codes and scales that are tensors of their own, when all are
 * there. */
gw_status gw_checkpoint_join_codes(gw_checkpoint *c);
const char *gw_checkpoint_join(gw_checkpoint *c, const char *folder, const char *name);
gw_status gw_checkpoint_nomem(const gw_checkpoint *c);

/* gguf_split.c: parse the first image, then the other parts of its set. path NULL: memory. */
gw_status gw_gguf_load(gw_checkpoint *c, const char *path, const void *memory, size_t bytes);
/* hf_folder.c: config.json and the weight files; without weights when vocab_only. */
gw_status gw_hf_load(gw_checkpoint *c, const char *folder, int vocab_only);
/* Maps a file of weights and lists its tensors: safetensors, or by its name what torch.save wrote.
 */
gw_status gw_weights_file_load(gw_checkpoint *c, const char *path);
/* llama2c.c: the file of llama2.c's own form, next to whose tokenizer it lies. */
int gw_is_llama2c(const char *path);
gw_status gw_llama2c_load(gw_checkpoint *c, const char *path);
int gw_is_torch_name(const char *path);
/* A small file of the folder as JSON; *out NULL and GW_OK when it does not exist. */
gw_status gw_hf_json(gw_checkpoint *c, const char *name, json_t **out);

/* The one .gguf file, or first part of a set, of a folder that is no Hugging Face folder; "" when
 * it is one, or has none. GW_E_METADATA: there are several. */
gw_status gw_folder_gguf(const char *folder, char *out, size_t room);

/* The vocabularies. *found 0: the checkpoint carries none. */
gw_status gw_gguf_vocab(const gw_gguf *g, const char *pre, gw_vocab *out,
                        int *found); /* gguf_vocab.c; pre NULL: the file's pre-tokenizer */
gw_status gw_hf_vocab(gw_checkpoint *c, gw_vocab *out, int *found); /* hf_vocab.c   */
/* Is the name, without its folder, that of a tokenizer's file? */
int gw_hf_is_vocab_file(const char *name);
/* What a file of ranks or of SentencePiece leaves open: special tokens, pre-tokenizer, frame
 * (hf_vocab_files.c). */
gw_status gw_hf_tiktoken(gw_checkpoint *c, const char *name, gw_vocab *v);
gw_status gw_hf_model_file(gw_checkpoint *c, const char *name, gw_vocab *v);

/* hf_chat.c: a chat template of a folder, copied into the arena; *text NULL: none of that name
 * (NULL: the default). */
gw_status gw_hf_chat_template(gw_checkpoint *c, const char *name, const char **text, size_t *bytes);

#endif
