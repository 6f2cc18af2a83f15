/* core/model/config.h - the numbers of a model as its container states them, and the one place
 * where they are checked.
 *
 * A reader (gguf_config.c, hf_config.c) fills gw_config in wide types; gw_config_settle applies the
 * defaults that follow from other numbers, checks every range and narrows to gw_hparams.
 */
#ifndef GW_MODEL_CONFIG_H
#define GW_MODEL_CONFIG_H

#include <jansson.h>

#include "core/model/gguf.h"
#include "core/model/hparams.h"

#define GW_ABSENT INT64_MIN /* of an integer that the file does not state */

typedef struct gw_config {
    char architecture[64];                                    /* what gw_spec_find takes */
    int64_t n_layers, d_model, n_heads, d_ff, n_vocab, n_ctx; /* needed */
    int64_t n_kv_heads;                                       /* absent: n_heads           */
    int64_t d_head;                                           /* absent: d_model / n_heads */
    int64_t rope_dim;                                         /* absent: d_head            */
    int64_t window, window_from_layer;
    double norm_eps;       /* NaN: absent, which is refused */
    double partial_rotary; /* of d_head, used when rope_dim is absent; 1: all */
    int tied, interleaved;
    double rope_base;
    gw_rope_scaling rope_scaling;
    double rope_factor, rope_low_freq, rope_high_freq;
    int64_t rope_original_ctx; /* absent: n_ctx */
    double rope_beta_fast, rope_beta_slow, rope_attn_factor;
} gw_config;

void gw_config_defaults(gw_config *out);

/* The architecture alone, for messages and for files that are only a vocabulary; "" when none is
 * named and `needed` is 0. */
gw_status gw_config_gguf_architecture(const gw_gguf *g, int needed, char *out, size_t capacity);
gw_status gw_config_hf_architecture(const char *where, const json_t *config, int needed, char *out,
                                    size_t capacity);

/* Readers: need config->architecture. GW_E_TYPE, GW_E_METADATA, GW_E_UNSUPPORTED. */
gw_status gw_config_from_gguf(const gw_gguf *g, gw_config *config);
gw_status gw_config_from_hf(const char *where, const json_t *root, gw_config *config);

/* Check and narrow. family: of the spec. rope_divisors stays NULL. GW_E_METADATA names the number.
 */
gw_status gw_config_settle(const char *where, const char *family, const gw_config *config,
                           gw_hparams *out);

#endif
