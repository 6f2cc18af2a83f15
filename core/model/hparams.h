/* core/model/hparams.h - the numbers of a decoder, from GGUF or config.json. Plain data; layers,
 * values and divisors are owned by whoever read them (the checkpoint). */
#ifndef GW_MODEL_HPARAMS_H
#define GW_MODEL_HPARAMS_H

#include "core/plan/op.h"

typedef enum gw_rope_scaling {
    GW_ROPE_NONE,
    GW_ROPE_LINEAR,  /* positions / factor                                        */
    GW_ROPE_LLAMA3,  /* per-frequency interpolation between low_freq and high_freq */
    GW_ROPE_YARN,    /* Peng et al. 2023, arXiv:2309.00071                         */
    GW_ROPE_LONGROPE /* divisors by the length of the context                     */
} gw_rope_scaling;

enum { GW_MAX_ROPES = 4, GW_MAX_FACTORS = 2, GW_MAX_AREAS = 2 };

/* Which pairs rotate by which part of a position (time, row, column), and how fast. */
typedef enum gw_rope_spread {
    GW_ROPE_SIDE,    /* first those by time, then by row, then by column                     */
    GW_ROPE_STRIPED, /* alternating: time, row, column, as long as row and column have any       */
    GW_ROPE_EACH,    /* as SIDE, and each part begins with the highest frequency again, of a
                      * head as wide as the part                                             */
    GW_ROPE_EVEN,    /* as SIDE; the first part has the even frequencies, the other the odd  */
    GW_ROPE_TURNS,   /* column and row in turn, each with the frequencies of EACH            */
    GW_ROPE_ACROSS   /* as EACH, columns before rows                                         */
} gw_rope_spread;

/* One kind of positions. */
typedef struct gw_rope {
    int32_t dim;     /* leading values of a head that rotate                         */
    int32_t turning; /* pairs that do turn; those behind have the angle 0: dim / 2   */
    gw_rope_style style;
    double base;
    gw_rope_scaling scaling;
    double factor;              /* linear, llama3, yarn, longrope                          */
    int32_t original_ctx;       /* llama3, yarn, longrope                                  */
    double low_freq, high_freq; /* llama3                                                  */
    double beta_fast, beta_slow;
    double attn_factor, long_attn_factor; /* of sines and cosines; 0: derive */
    int truncate;                         /* yarn: the ramp begins and ends at whole pairs */
    const float *divisors;      /* [dim/2] explicit per-frequency factors; NULL: none      */
    const float *long_divisors; /* the same where the context is longer than the original  */
    gw_rope_spread spread;
    int32_t by_row, by_column; /* pairs that rotate by the row or the column of a patch          */
} gw_rope;

/* What may differ from layer to layer. */
typedef struct gw_layer {
    int32_t kind; /* section of the blueprint that lists its blocks                   */
    int32_t n_heads, n_kv_heads, d_head, v_head, d_ff;
    int32_t v_first;        /* values are columns of the keys from here on; -1: their own */
    int32_t window, chunk;  /* of attention; 0: none                          */
    int32_t rope, q_factor; /* indices; -1: none                              */
    int32_t n_experts, n_used, d_expert;
    float attn_scale, attn_cap;
    int has_cache;    /* it attends, or holds keys and values for layers that do */
    int32_t causal;   /* 0: attention looks both ways                                  */
    int32_t named;    /* the layer's number in names of tensors                        */
    int32_t cache_of; /* the layer whose cache its attention reads: its own */
    int32_t reach;    /* positions that readers of its cache see, the own one included; 0: all */
    int n_areas;      /* of compressed caches, one behind the other in what it keeps of a page */
    gw_area area[GW_MAX_AREAS];
} gw_layer;

/* Width of what is stored of a value: nothing where it is part of the key. */
static inline int32_t gw_layer_v_width(const gw_layer *l) { return l->v_first < 0 ? l->v_head : 0; }

/* Floats of them in a page. */
static inline int64_t gw_layer_paged(const gw_layer *l) {
    const gw_area *last = l->n_areas > 0 ? &l->area[l->n_areas - 1] : NULL;
    return last != NULL ? last->at + (int64_t)gw_area_floats(last) : 0;
}

typedef struct gw_hparams {
    char family[32]; /* spec that describes it: "llama", "qwen2", "qwen3"                        */
    int32_t n_layers, d_model, n_vocab, n_ctx;
    int32_t n_streams; /* side by side, d_model each, in what goes from layer to layer */
    int32_t n_source;  /* leading layers that read a source text; all: an encoder, 0: a decoder */
    int32_t uncounted; /* learned positions pass over this token, the padding; -1: none */
    float norm_eps;
    int tied;        /* the output head is the embedding (also when no head tensor exists)     */
    gw_layer *layer; /* [n_layers]                                                             */
    gw_rope rope[GW_MAX_ROPES];
    int n_ropes;
    int in_folder;  /* read from a Hugging Face folder */
    double *values; /* [n_layers, n_values] of the spec's numbers; NaN: not stated */
    int n_values;
    unsigned char
        *skips; /* [n_layers + 1, n_blocks] 1: the block's condition does not hold there */
    int n_blocks;
    int deep_kind;       /* 1 + the kind of layer whose blocks follow those of any other; 0: none */
    int32_t most_ngrams; /* of a sample: a hash of n-grams names about so many rows; 0: as stated */
    uint64_t state_bytes;       /* that recurrent blocks remember of one sequence */
    uint64_t least_state_bytes; /* the same where nothing is taken back      */
} gw_hparams;

#endif
