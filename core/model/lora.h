/* core/model/lora.h - low-rank adapters (Hu et al. 2021, arXiv:2106.09685): pairs of matrices that
 * change the products of a model, read from PEFT folders and GGUF files.
 *
 * An adapter gives a linear layer y = W x the form y = W x + s B (A x), A [r, k], B [m, r]; s is
 * its scale times the file's own (alpha / r, or alpha / sqrt(r)).
 */
#ifndef GW_MODEL_LORA_H
#define GW_MODEL_LORA_H

#include "core/model/checkpoint.h"

enum { GW_LORA_RANK_MOST = 256 };

typedef struct gw_lora gw_lora;

/* Of a square parameter shapes do not tell which of its two factors reads the input; versions of
 * PEFT differ. */
typedef enum gw_lora_square {
    GW_LORA_SQUARE_A,        /* A (since 0.19.1)                            */
    GW_LORA_SQUARE_B,        /* B (0.19.0)                                  */
    GW_LORA_SQUARE_BY_STORED /* A where the layer is stored [k, m], else B  */
} gw_lora_square;

/* What an adapter has for one linear layer, or for the experts E of a mixture together. */
typedef struct gw_lora_pair {
    const char *module;     /* the layer's name in the adapter, without prefix and suffix */
    const char *name;       /* of the tensor A, for messages */
    const gw_stored *a, *b; /* [r, k], [m, r]; of three axes [E, r, k], [E, m, r] */
    int rank;               /* r */
    int experts;            /* E; 0: one linear layer */
    /* A parameter in PEFT: a [E r, k] and b [m, r E], column c E + x being column c of expert x; or
     * with k and m in each other's place, which makes b's columns A, and a's rows B. */
    int parameter;
    gw_lora_square square;
    float scale; /* alpha / r as the file means it */
} gw_lora_pair;

/* path: a PEFT folder (adapter_config.json, adapter_model.safetensors or .bin) or a GGUF file.
 * GW_E_UNSUPPORTED names what is there and cannot be run (DoRA, biases, whole layers, ...);
 * GW_E_METADATA a pair that is incomplete or of ranks outside 1..256; the file classes. */
gw_status gw_lora_open(const char *path, gw_lora **out);
void gw_lora_free(gw_lora *lora); /* accepts NULL */

int gw_lora_is_folder(const gw_lora *lora); /* names are those of a Hugging Face folder */
const char *gw_lora_path(const gw_lora *lora);
/* The architecture that a GGUF adapter was made for; "": not said. */
const char *gw_lora_architecture(const gw_lora *lora);
size_t gw_lora_count(const gw_lora *lora);
const gw_lora_pair *gw_lora_at(const gw_lora *lora, size_t i);
/* By the name of a layer; -1: it changes no such layer. */
int gw_lora_find(const gw_lora *lora, const char *module);
int gw_lora_rank(const gw_lora *lora); /* the largest */
/* Of everything in it: the same for equal files alone. */
uint64_t gw_lora_digest(const gw_lora *lora);

#endif
