/* core/model/config.c - every range check of a model's numbers, whatever container they came in. */
#include "core/model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void gw_config_defaults(gw_config *out) {
    *out = (gw_config){
        .n_layers = GW_ABSENT,
        .d_model = GW_ABSENT,
        .n_heads = GW_ABSENT,
        .d_ff = GW_ABSENT,
        .n_vocab = GW_ABSENT,
        .n_ctx = GW_ABSENT,
        .n_kv_heads = GW_ABSENT,
        .d_head = GW_ABSENT,
        .rope_dim = GW_ABSENT,
        .norm_eps = (double)NAN,
        .partial_rotary = 1.0,
        .rope_base = 10000.0,
        .rope_scaling = GW_ROPE_NONE,
        .rope_factor = 1.0,
        .rope_low_freq = 1.0,
        .rope_high_freq = 4.0,
        .rope_original_ctx = GW_ABSENT,
        .rope_beta_fast = 32.0,
        .rope_beta_slow = 1.0,
    };
}

static gw_status in_range(const char *where, const char *what, int64_t value, int64_t low,
                          int64_t high, int32_t *out) {
    if (value == GW_ABSENT) {
        return gw_fail(GW_E_METADATA, where, "the %s is not stated", what);
    }
    if (value < low || value > high) {
        return gw_fail(GW_E_METADATA, where,
                       "the %s is %" PRId64 "; %" PRId64 " to %" PRId64 " is possible", what, value,
                       low, high);
    }
    *out = (int32_t)value;
    return GW_OK;
}

static gw_status positive(const char *where, const char *what, double value, double low) {
    if (!(value >= low && value <= 1e12) || value <= 0.0) {
        return gw_fail(GW_E_METADATA, where, "the %s is %g; a number of at least %g is needed",
                       what, value, low);
    }
    return GW_OK;
}

static gw_status settle_shape(const char *where, const gw_config *c, gw_hparams *out) {
    GW_TRY(in_range(where, "number of layers", c->n_layers, 1, 4096, &out->n_layers));
    GW_TRY(in_range(where, "model width", c->d_model, 1, 1 << 20, &out->d_model));
    GW_TRY(in_range(where, "number of attention heads", c->n_heads, 1, 1 << 14, &out->n_heads));
    GW_TRY(in_range(where, "number of key-value heads",
                    c->n_kv_heads == GW_ABSENT ? c->n_heads : c->n_kv_heads, 1, 1 << 14,
                    &out->n_kv_heads));
    GW_TRY(in_range(where, "feed-forward width", c->d_ff, 1, 1 << 24, &out->d_ff));
    GW_TRY(in_range(where, "vocabulary size", c->n_vocab, 1, 1 << 24, &out->n_vocab));
    GW_TRY(in_range(where, "context length", c->n_ctx, 1, 1 << 30, &out->n_ctx));
    if (out->n_heads % out->n_kv_heads != 0) {
        return gw_fail(GW_E_METADATA, where, "%d attention heads do not share %d key-value heads",
                       out->n_heads, out->n_kv_heads);
    }
    if (c->d_head == GW_ABSENT && out->d_model % out->n_heads != 0) {
        return gw_fail(GW_E_METADATA, where, "a width of %d does not divide into %d heads",
                       out->d_model, out->n_heads);
    }
    GW_TRY(in_range(where, "width of a head",
                    c->d_head == GW_ABSENT ? out->d_model / out->n_heads : c->d_head, 2, 1 << 13,
                    &out->d_head));
    if (out->d_head % 2 != 0) {
        return gw_fail(GW_E_METADATA, where, "the width of a head is %d; it must be even",
                       out->d_head);
    }
    int64_t width = (int64_t)out->n_heads * out->d_head;
    if (width > 1 << 24) {
        return gw_fail(GW_E_METADATA, where, "%d heads of %d are too wide", out->n_heads,
                       out->d_head);
    }
    if (!(c->norm_eps >= 0.0 && c->norm_eps <= 1.0)) { /* also NaN */
        return gw_fail(GW_E_METADATA, where,
                       "the norm epsilon is %g%s; a number from 0 to 1 is needed", c->norm_eps,
                       isnan(c->norm_eps) ? " or not stated" : "");
    }
    out->norm_eps = (float)c->norm_eps;
    return GW_OK;
}

static gw_status settle_window(const char *where, const gw_config *c, gw_hparams *out) {
    /* A window as long as the largest context hides nothing. */
    int64_t window = c->window > 1 << 30 ? 0 : c->window;
    GW_TRY(in_range(where, "sliding window", window, 0, 1 << 30, &out->window));
    GW_TRY(in_range(where, "first layer with a window", c->window_from_layer, 0, INT32_MAX,
                    &out->window_from_layer));
    return GW_OK;
}

static gw_status settle_scaling(const char *where, const gw_config *c, gw_hparams *out) {
    int64_t original = c->rope_original_ctx == GW_ABSENT ? out->n_ctx : c->rope_original_ctx;
    switch (c->rope_scaling) {
    case GW_ROPE_NONE:
        return GW_OK;
    case GW_ROPE_LINEAR:
        return positive(where, "rope scaling factor", c->rope_factor, 1e-6);
    case GW_ROPE_LLAMA3:
        GW_TRY(positive(where, "rope low frequency factor", c->rope_low_freq, 1e-6));
        GW_TRY(positive(where, "rope high frequency factor", c->rope_high_freq, 1e-6));
        if (!(c->rope_low_freq < c->rope_high_freq)) {
            return gw_fail(GW_E_METADATA, where,
                           "the rope low frequency factor %g is not below the high one, %g",
                           c->rope_low_freq, c->rope_high_freq);
        }
        break;
    case GW_ROPE_YARN:
        GW_TRY(positive(where, "rope beta_fast", c->rope_beta_fast, 1e-6));
        GW_TRY(positive(where, "rope beta_slow", c->rope_beta_slow, 1e-6));
        if (c->rope_attn_factor != 0.0) {
            GW_TRY(positive(where, "rope attention factor", c->rope_attn_factor, 1e-6));
        }
        if (!(c->rope_base > 1.0)) {
            return gw_fail(GW_E_METADATA, where, "yarn scaling needs a rope base above 1");
        }
        break;
    }
    GW_TRY(positive(where, "rope scaling factor", c->rope_factor, 1.0));
    return in_range(where, "original context of the rope scaling", original, 1, 1 << 30,
                    &out->rope_original_ctx);
}

static gw_status settle_rope(const char *where, const gw_config *c, gw_hparams *out) {
    int64_t dim = c->rope_dim;
    if (dim == GW_ABSENT) {
        if (!(c->partial_rotary > 0.0 && c->partial_rotary <= 1.0)) {
            return gw_fail(GW_E_METADATA, where,
                           "the rotating part of a head is %g; a share up to 1 is needed",
                           c->partial_rotary);
        }
        dim = (int64_t)(c->partial_rotary * out->d_head);
    }
    if (dim < 2 || dim > out->d_head || dim % 2 != 0) {
        return gw_fail(GW_E_METADATA, where,
                       "rope rotates %" PRId64
                       " values of a head of %d; an even number up to it is "
                       "needed",
                       dim, out->d_head);
    }
    out->rope_dim = (int32_t)dim;
    GW_TRY(positive(where, "rope base", c->rope_base, 1e-6));
    GW_TRY(settle_scaling(where, c, out));
    out->rope_style = c->interleaved ? GW_ROPE_INTERLEAVED : GW_ROPE_HALVES;
    out->rope_base = c->rope_base;
    out->rope_scaling = c->rope_scaling;
    out->rope_factor = c->rope_factor;
    out->rope_low_freq = c->rope_low_freq;
    out->rope_high_freq = c->rope_high_freq;
    out->rope_beta_fast = c->rope_beta_fast;
    out->rope_beta_slow = c->rope_beta_slow;
    out->rope_attn_factor = c->rope_attn_factor;
    return GW_OK;
}

gw_status gw_config_settle(const char *where, const char *family, const gw_config *config,
                           gw_hparams *out) {
    gw_hparams hp = {.tied = config->tied};
    snprintf(hp.family, sizeof hp.family, "%s", family);
    GW_TRY(settle_shape(where, config, &hp));
    GW_TRY(settle_window(where, config, &hp));
    GW_TRY(settle_rope(where, config, &hp));
    *out = hp;
    return GW_OK;
}
