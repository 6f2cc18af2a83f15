/* kernels_hip/attention/attend_more_params.h - parameters of attend_more.hip: every form of
 * ATTENTION. */
#ifndef GW_KERNELS_HIP_ATTEND_MORE_PARAMS_H
#define GW_KERNELS_HIP_ATTEND_MORE_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"

enum { GW_ATTEND_MORE_THREADS = 256, GW_ATTEND_MORE_TEAMS = GW_ATTEND_MORE_THREADS / 32 };

/* gw_attend_more_CACHE, gw_attend_more_mixed (keys and values in two formats): pages on their own;
 * a team per page of a row and head, `side` heads of a KV head next to one another in a block,
 * which read the same tiles; grid (KV heads times ceil(heads of one / side), rows, anything: blocks
 * share the pages). gw_attend_more_join: pages joined; grid (heads, rows). */
enum { GW_MORE_F32, GW_MORE_F16, GW_MORE_Q8_0 }; /* k_cells, v_cells */
struct gw_attend_more_params {
    struct gw_step_params step;
    GW_DEV(const float) q; /* [rows, heads e]                 */
    GW_DEV(const void) k;  /* caches, core/plan/op.h          */
    GW_DEV(const void) v;  /* 0: columns of k from v_first on */
    GW_DEV(const int32_t) pages; /* [slots, table_stride]     */
    GW_DEV(const float) sinks;   /* [heads] or 0              */
    GW_DEV(const float) slopes;  /* [heads] or 0              */
    GW_DEV(const float) bias;    /* [heads, 2 reach + 1] or 0 */
    GW_DEV(void) out;            /* [rows, heads ev], of form */
    /* What pages leave, of `rows` rows from row0 on, counted from the first that a row sees: */
    GW_DEV(float) top;    /* [rows, heads, page_stride]     */
    GW_DEV(float) sum;    /* [rows, heads, page_stride]     */
    GW_DEV(float) values; /* [rows, heads, page_stride, ev] */
    int32_t row0, rows, page_stride, table_stride;
    int32_t heads, kv_heads, e, ev, window, chunk, form;
    int32_t side;             /* a divisor of GW_ATTEND_MORE_TEAMS */
    int32_t k_bytes, v_bytes; /* of a page of a KV head */
    int32_t k_cells, v_cells; /* of _mixed */
    int32_t v_first;
    int32_t both, reach;      /* both: rows see up to the step's last */
    float scale, softcap;
};

#endif
