/* core/quantize/gptq.h - error feedback between columns: each column's rounding error is made good
 * by the columns that come after it, as far as the inputs X of the matrix allow.
 *
 * Frantar et al. 2022, arXiv:2210.17323: for every row w the codes q of small (w - q)^T H (w - q),
 * H = X^T X. With inverse(H) = U^T U, U upper triangular, in the order of columns:
 *   e = (w_i - q_i) / U_ii;  w_j -= e U_ij for j > i.
 * Different from the paper: a group's scale is found from columns that are up to date, so that the
 * width of a lazy block changes nothing; dead columns (H_ii = 0) are coded like any other; integer
 * scales of a K format's sub-block are refitted when the sub-block is reached; the eight columns
 * that a codebook's point stands for are coded at once, by 1 / U_ii^2, and their errors go on as if
 * they had been coded one after the other.
 */
#ifndef GW_QUANTIZE_GPTQ_H
#define GW_QUANTIZE_GPTQ_H

#include <stddef.h>

#include "core/quantize/encode.h"

typedef enum gw_gptq_order {
    GW_GPTQ_NONE,   /* left to right                                                             */
    GW_GPTQ_STATIC, /* by falling H_ii; scales of groups from the weights as they came            */
    GW_GPTQ_GROUP,  /* by falling H_ii; runs of that order are the groups (g_idx)                 */
    GW_GPTQ_FALLING /* groups by falling sum of H_ii, columns in them by falling H_ii             */
} gw_gptq_order;

typedef struct gw_gptq {
    int n;          /* columns                                                             */
    int block, sub; /* columns of a group, of a sub-block                                  */
    int together;   /* columns that are coded at once                                      */
    gw_gptq_order order;
    int *column;         /* [n] the column at each place of the order                           */
    double *u;           /* [n, n] rows of U in that order; below the diagonal anything         */
    float *importance;   /* [n] H_ii by column                                                  */
    unsigned char *dead; /* [n] by place                                                      */
    double damp;         /* the share of the mean diagonal that was added                       */
} gw_gptq;

/* xtx [n, n] f32, symmetric; damp: 0.01. When the factorization fails the damping is raised
 * tenfold, up to 1. GW_E_NUMERIC: it fails still, or xtx is not finite (where names the matrix; the
 * caller falls back to importance alone). Released by gw_gptq_free. */
gw_status gw_gptq_prepare(const char *where, const float *xtx, int n, double damp,
                          gw_gptq_order order, const gw_coding *coding, gw_gptq *out);
void gw_gptq_free(gw_gptq *g);
/* Bytes that prepare and one call of gw_gptq_rows take for n columns. */
uint64_t gw_gptq_bytes(uint64_t n);

enum { GW_GPTQ_ROWS = 16 }; /* rows of one call, at most */

/* Rows w [rows, n] to blocks out [rows, (n + block - 1) / block]: of consecutive columns, or of
 * GW_GPTQ_GROUP in the order's runs. codes [rows, n] (may be NULL): of every column in the order of
 * the matrix. GW_E_NOMEM. */
gw_status gw_gptq_rows(const gw_gptq *g, const gw_coding *coding, const float *w, int rows,
                       gw_coded *out, gw_u8 *codes);

#endif
