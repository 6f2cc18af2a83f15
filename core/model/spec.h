/* core/model/spec.h - a model family as data: which weights, which blocks, in which order.
 *
 * specs/NAME.spec are text, embedded at build time; the grammar stands in specs/README.md. A new
 * family made of known blocks is one new file there and nothing else.
 */
#ifndef GW_MODEL_SPEC_H
#define GW_MODEL_SPEC_H

#include "core/model/checkpoint.h"

typedef struct gw_spec gw_spec;

/* Find the family by a GGUF architecture name or a Hugging Face architecture class name.
 * GW_E_METADATA names what is unknown and lists what is known. The spec is const data. */
gw_status gw_spec_find(const char *where, const char *architecture, const gw_spec **out);
const char *gw_spec_family(const gw_spec *spec);
/* 1 when GGUF files of the family store q and k for GW_ROPE_INTERLEAVED. Hugging Face folders are
 * always GW_ROPE_HALVES. */
int gw_spec_gguf_interleaved(const gw_spec *spec);
/* The embedded specs in order of name; NULL past the last one. */
const gw_spec *gw_spec_at(size_t i);
const char *gw_spec_text(const gw_spec *spec);

/* ---- a spec, read --------------------------------------------------------------------------- */

enum { GW_SPEC_WEIGHTS = 32, GW_SPEC_BLOCKS = 24, GW_SPEC_ARGS = 6, GW_SPEC_FACTORS = 3 };

typedef struct gw_spec_weight {
    char role[24];                    /* "q_bias": what blocks call it, and messages too       */
    char gguf[64], hf[96];            /* names on disk; per layer when they hold %d            */
    char dim[2][GW_SPEC_FACTORS + 1]; /* each a product of symbols: "he" = heads * head width  */
    int n_dim;
    int per_layer;
    int optional;
    int fallback; /* index of the weight that serves when this one is absent; -1: none */
} gw_spec_weight;

/* clang-format off */
typedef enum gw_block_kind {
    GW_BLOCK_EMBED, GW_BLOCK_NORM, GW_BLOCK_QKV, GW_BLOCK_ROPE_KV, GW_BLOCK_ATTENTION,
    GW_BLOCK_RESIDUAL, GW_BLOCK_GLU, GW_BLOCK_LINEAR, GW_BLOCK_KINDS
} gw_block_kind;
/* clang-format on */

typedef enum gw_section { GW_SECTION_START, GW_SECTION_LAYER, GW_SECTION_HEAD } gw_section;

typedef struct gw_spec_block {
    gw_block_kind kind;
    gw_section section;
    int weight[GW_SPEC_ARGS]; /* indices of weights, -1: none. qkv: q k v, then their biases;
                                 rope_kv: q norm, k norm; residual: matrix, bias; glu: gate, up */
} gw_spec_block;

typedef struct gw_blueprint {
    char family[32];
    gw_spec_weight weight[GW_SPEC_WEIGHTS];
    int n_weights;
    gw_spec_block block[GW_SPEC_BLOCKS];
    int n_blocks;
} gw_blueprint;

/* Read the text of a spec. name: for messages, which read "NAME.spec:LINE". GW_E_SYNTAX. */
gw_status gw_blueprint_read(const char *name, const char *text, gw_blueprint *out);

/* The value of one dimension of a weight, for example "he" = n_heads * d_head. */
int64_t gw_spec_extent(const char *symbols, const gw_hparams *hp);

#endif
