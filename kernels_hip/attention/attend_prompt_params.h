/* kernels_hip/attention/attend_prompt_params.h - parameters of attention over the rows of a prompt.
 */
#ifndef GW_KERNELS_HIP_ATTEND_PROMPT_PARAMS_H
#define GW_KERNELS_HIP_ATTEND_PROMPT_PARAMS_H

#include "core/tensor/arith.h"
#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"

/* Queries of a block for heads of up to `e` values, and threads, each with four of them. wide: as
 * in gemm_params.h; there is room for more. Rows of queries and of probabilities lie so that
 * threads which write a column of them use different banks. */
#define GW_PROMPT_QUERIES(e, wide) ((wide) && (e) <= 128 ? 64u : 32u)
#define GW_PROMPT_THREADS(e, wide) (4u * GW_PROMPT_QUERIES(e, wide))
#define GW_PROMPT_STEP(queries) ((queries) + 2u)

/* Shared memory: queries, a page, probabilities, rows, what they see, and slots. */
#define GW_PROMPT_SHARED(e, wide)                                                                 \
    (4u * ((e) * (GW_PROMPT_STEP(GW_PROMPT_QUERIES(e, wide)) + 64u) +                            \
           64u * GW_PROMPT_STEP(GW_PROMPT_QUERIES(e, wide)) + 4u * GW_PROMPT_QUERIES(e, wide)))

/* On 16-bit matrix instructions (attend_prompt_half.hip): a wave has 16 queries; heads are 64 or
 * 128 values wide there. Shared memory: pages of K and V, two of each for waves of 32, else one,
 * transposed, with the weights of all waves; what queries see, and slots. */
enum { GW_PROMPT_HALF_QUERIES = 64 };
#define GW_PROMPT_HALF_SHARED(e, wide)                                                            \
    (((wide) ? 2 * 2 * 64 * (e)*2                                                                  \
             : 64 * ((e) / 2 + 2) * 4 + (e)*34 * 4 + GW_PROMPT_HALF_QUERIES * 72 * 2) +           \
     12 * GW_PROMPT_HALF_QUERIES)

/* gw_attend_prompt_own_CACHE_E: each row's own page, in float: its largest score and its sum to
 * tops and totals, [rows, heads], its values to out, as floats; scores, sums and sinks are not
 * read. */
struct gw_prompt_params {
    struct gw_step_params step;
    GW_DEV(const float) q;       /* [rows, heads * e]       */
    GW_DEV(const void) k;        /* [pages, kv_heads, e, P] */
    GW_DEV(const void) v;        /* [pages, kv_heads, P, e] */
    GW_DEV(const int32_t) pages; /* [slots, page_stride]    */
    GW_DEV(const float) sinks;   /* [heads] or 0; not of _half */
    GW_DEV(void) out;            /* [rows, heads * e]       */
    GW_DEV(float) scores;        /* [blocks, kv_heads, kept, queries, 64] */
    GW_DEV(float) tops;          /* [blocks, kv_heads, queries, groups]   */
    GW_DEV(float) totals;        /* [blocks, kv_heads, queries, kept_groups] */
    GW_DEV(float) sums;          /* [blocks, kv_heads, kept_groups, queries, E] */
    int32_t kept;                /* pages of a run whose scores have room there      */
    int32_t groups;              /* most groups of pages of a row                    */
    int32_t kept_groups;         /* of which so many have room for their sums        */
    int32_t heads, kv_heads, e, page_stride, window;
    int32_t both; /* 1: up to the step's last of the row */
    int32_t form; /* of out: act8_params.h; where that is act8 e is a multiple of 32 */
    float scale;
};

#endif
