/* core/quantize/mixture.h - names of what is made: one format for all matrices, or llama.cpp's
 * mixtures, which give some matrices more bits.
 */
#ifndef GW_QUANTIZE_MIXTURE_H
#define GW_QUANTIZE_MIXTURE_H

#include "core/tensor/formats.h"

typedef struct gw_mixture {
    const char *name; /* "q4_k_m" */
    gw_fmt base;
    int file_type; /* general.file_type of GGUF; -1: none */
    int copy;      /* tensors stay as they are */
} gw_mixture;

/* By name, in any case; GW_E_ARGUMENT names near ones. */
gw_status gw_mixture_find(const char *name, gw_mixture *out);
/* Names, in the order of the table: NULL behind the last. */
const char *gw_mixture_name(int i);

/* What the mixture knows of the model. */
typedef struct gw_mixture_model {
    const char *architecture;
    int layers, heads, kv_heads, experts;
    int has_output; /* it has a head of its own */
    int has_imatrix;
    int n_attn_v, n_ffn_down; /* how many matrices of that kind there are */
    int attn_v, ffn_down;     /* how many have been asked about; 0 at the start */
} gw_mixture_model;

/* Is a tensor of this name and shape made smaller at all? */
int gw_mixture_takes(const char *name, int n_dim);
/* The format of a matrix, in the order of the file; columns are not looked at. */
gw_fmt gw_mixture_choose(const gw_mixture *m, gw_mixture_model *model, const char *name,
                         int64_t cols, int n_dim);
/* Is it one of the kinds that are counted? */
int gw_mixture_is_attn_v(const char *name);
int gw_mixture_is_ffn_down(const char *name);
/* Is a matrix in this format far off without importance? (llama.cpp refuses to make it then.) */
int gw_mixture_needs_importance(gw_fmt fmt, const char *name);
/* What a format becomes where its blocks do not divide the columns. */
gw_fmt gw_mixture_fallback(gw_fmt fmt, int64_t cols);

#endif
