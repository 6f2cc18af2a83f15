/* core/model/lora_bank.h - adapters as the products of a model read them.
 *
 * The adapters of a model stand in numbered places, place 0 being an adapter of zeros. For every
 * block that multiplies by matrices which one of them changes there are two tensors over all
 * places, so that the ops over experts choose a row's adapters: place x of A has rows [x K, x K +
 * K) and of B rows [x m, x m + m). K is the common rank R, 8, 16 or a multiple of 32, for each of
 * the block's stacked matrices that is changed: part p has columns [p R, p R + R) of B, which is
 * zero elsewhere. So a sum over a row of B has the terms of one adapter in neighbouring lanes, and
 * its bits do not depend on what else is in the bank (docs/arithmetic.md, "Adapters").
 *
 * Of experts each matrix has tensors of its own, with the largest rank that an adapter has for it,
 * and without place 0: adapter p's expert x is number (p - 1) E + x.
 */
#ifndef GW_MODEL_LORA_BANK_H
#define GW_MODEL_LORA_BANK_H

#include "core/model/lora.h"
#include "core/model/weights.h"

enum { GW_LORA_PLACES_MOST = 65 };

typedef struct gw_lora_bank gw_lora_bank;

typedef struct gw_lora_product {
    gw_tensor a, b; /* n_dim 0: no adapter changes the block */
    /* Rows of B: those of matrix k end before end[k], and have values in columns [part[k] R,
     * (part[k] + 1) R); part[k] -1: it is not changed. */
    int end[3], part[3];
} gw_lora_product;

/* Of experts' gate, up and down: [P E R, k], [P E m, R], row by row. n_dim 0: none changes it. */
typedef struct gw_lora_experts {
    gw_tensor a[3], b[3];
} gw_lora_experts;

/* n adapters into places 1 .. n; they may be freed afterwards. at_once: how many a row has at most.
 * The weights are loaded, and outlive the bank with their devices; where as they were loaded.
 * GW_E_UNSUPPORTED names a layer that the model does not have, or that cannot be changed;
 * GW_E_METADATA a shape that does not fit. */
gw_status gw_lora_bank_new(const gw_weights *weights, gw_lora *const *adapters, int n, int at_once,
                           const gw_where *where, gw_lora_bank **out);
void gw_lora_bank_free(gw_lora_bank *bank); /* accepts NULL */

/* Of a block in a layer; NULL: none changes it. bank may be NULL. */
const gw_lora_product *gw_lora_bank_at(const gw_lora_bank *bank, int layer, int block);
/* The same of a block of experts. */
const gw_lora_experts *gw_lora_bank_experts(const gw_lora_bank *bank, int layer, int block);
int gw_lora_bank_places(const gw_lora_bank *bank); /* with place 0 */
int gw_lora_bank_at_once(const gw_lora_bank *bank);
int gw_lora_bank_rank(const gw_lora_bank *bank); /* R */
uint64_t gw_lora_bank_bytes(const gw_lora_bank *bank);

/* What an adapter has for a matrix of the model, in the order of the matrix's rows; of experts
 * [experts rank, columns], those of one expert together. */
typedef struct gw_lora_factors {
    int rank;     /* 0: it does not change the matrix */
    float *a, *b; /* [rank, columns], [rows, rank] times alpha / r; free */
    int64_t each; /* rows of one expert; 0: no experts */
} gw_lora_factors;

/* Of weight `role` in a layer, by which block b multiplies as its matrix number arg. used [pairs of
 * the adapter]: marked where one was taken. */
gw_status gw_lora_factors_of(const gw_weights *weights, const gw_lora *adapter,
                             const gw_spec_block *b, int arg, int layer, unsigned char *used,
                             gw_lora_factors *out);
/* The same of a matrix of experts (lora_experts.c). */
gw_status gw_lora_expert_factors(const gw_weights *weights, const gw_lora *adapter,
                                 const gw_spec_block *b, int arg, int layer, unsigned char *used,
                                 gw_lora_factors *out);
/* A pair by the name of a tensor without prefix, in folders below any prefix of the family; -1. */
int gw_lora_find_below(const gw_weights *weights, const gw_lora *adapter, const char *tensor);
/* Does the block multiply by matrices of linear layers or of experts, in the layers of the model?
 */
int gw_lora_takes(const gw_spec_block *b);
/* Of how many, where it does. */
int gw_lora_matrices(const gw_spec_block *b);
/* GW_E_UNSUPPORTED names the first pair that was not marked. */
gw_status gw_lora_all_used(const gw_weights *weights, const gw_lora *adapter,
                           const unsigned char *used);

#endif
