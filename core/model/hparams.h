/* core/model/hparams.h - the numbers of a decoder, from GGUF or config.json. Plain data. */
#ifndef GW_MODEL_HPARAMS_H
#define GW_MODEL_HPARAMS_H

#include "core/plan/op.h"

typedef enum gw_rope_scaling {
    GW_ROPE_NONE,
    GW_ROPE_LINEAR, /* positions / factor                                        */
    GW_ROPE_LLAMA3, /* per-frequency interpolation between low_freq and high_freq */
    GW_ROPE_YARN    /* Peng et al. 2023, arXiv:2309.00071                         */
} gw_rope_scaling;

typedef struct gw_hparams {
    char family[32]; /* spec that describes it: "llama", "qwen2", "qwen3"                        */
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, n_ctx;
    float norm_eps;
    int32_t window; /* sliding window in positions; 0: none                                     */
    int32_t window_from_layer; /* layers below it see everything (Qwen2 max_window_layers)      */
    int tied; /* the output head is the embedding (also when no head tensor exists)              */

    gw_rope_style rope_style;
    int32_t rope_dim; /* leading values of a head that rotate; d_head unless partial             */
    double rope_base;
    gw_rope_scaling rope_scaling;
    double rope_factor;                   /* linear, llama3, yarn                                */
    int32_t rope_original_ctx;            /* llama3, yarn                                        */
    double rope_low_freq, rope_high_freq; /* llama3                                              */
    double rope_beta_fast, rope_beta_slow, rope_attn_factor; /* yarn; attn_factor 0: derive      */
    const float *rope_divisors; /* [rope_dim/2] explicit per-frequency factors (GGUF rope_freqs
                                   tensor), owned by the checkpoint; NULL: none                  */
} gw_hparams;

#endif
