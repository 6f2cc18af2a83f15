/* kernels_hip/attention/attend_latent_params.h - parameters of attend_latent.hip: ATTENTION whose
 * values are part of the keys. */
#ifndef GW_KERNELS_HIP_ATTEND_LATENT_PARAMS_H
#define GW_KERNELS_HIP_ATTEND_LATENT_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"

enum {
    GW_LATENT_THREADS = 128, /* of scores and of the join */
    GW_LATENT_TEAMS = GW_LATENT_THREADS / 32,
    GW_LATENT_HEADS = 16,  /* query heads of a block */
    GW_LATENT_QUAD = 4,    /* of them a lane has, of scores      */
    GW_LATENT_OCTET = 8,   /* of values                          */
    GW_LATENT_STEP = 16,   /* a divisor of e: rows of a page that are fetched together */
    GW_LATENT_AHEAD = 192, /* a multiple of it: rows of a page that are on their way from memory */
    GW_LATENT_VALUES_THREADS = 256, /* of values at most; at least GW_LATENT_LEAST_TEAMS */
    GW_LATENT_LEAST_TEAMS = 2,
    GW_LATENT_COLUMNS = 64,        /* of a value that a block has     */
    GW_LATENT_POSITIONS = 16,      /* of a page that come together    */
    GW_LATENT_RING = 3,            /* such parts of a page: of a team */
    GW_LATENT_SCALES = 3,          /* blocks of 32 that columns of a block can touch */
    GW_LATENT_ALONE = 128,         /* pages at most whose sums go through memory one by one */
    GW_LATENT_SOON = GW_PAGE_GROUP /* values of a column that the join asks for at once */
};
/* Bytes of shared memory: of scores; of a place of a team's ring; of values. */
#define GW_LATENT_Q_BYTES(e) ((e)*GW_LATENT_HEADS * 4)
#define GW_LATENT_STAGE(cell_bytes)                                                                \
    (GW_LATENT_POSITIONS * (GW_LATENT_COLUMNS * (cell_bytes) + GW_LATENT_HEADS * 4 +               \
                            ((cell_bytes) == 1 ? GW_LATENT_SCALES * 2 : 0)))
#define GW_LATENT_VALUES_BYTES(cell_bytes, teams)                                                  \
    ((teams) *                                                                                     \
     (GW_LATENT_RING * GW_LATENT_STAGE(cell_bytes) + GW_LATENT_HEADS * GW_LATENT_COLUMNS * 4))

/* Query heads of a KV head come in blocks of GW_LATENT_HEADS, the last one perhaps not full.
 * gw_latent_scores_CACHE: grid (KV heads times such blocks, rows, anything: blocks share the
 * pages); lanes have two positions of a row that sees at most `few` pages, else four.
 * gw_latent_values_CACHE: grid (KV heads times blocks of heads times slices of columns, rows,
 * anything), any power of two of teams; a unit is a page where a row sees at most `alone`, else a
 * group of pages. gw_latent_join: grid (heads times slices of GW_LATENT_THREADS columns, rows). */
struct gw_attend_latent_params {
    struct gw_step_params step;
    GW_DEV(const float) q;       /* [rows, heads e]           */
    GW_DEV(const void) k;        /* cache, core/plan/op.h     */
    GW_DEV(const int32_t) pages; /* [slots, table_stride]     */
    GW_DEV(void) out;            /* [rows, heads ev], of form */
    /* Of `rows` rows from row0 on; pages and units are counted from the first: */
    GW_DEV(float) top;     /* [rows, heads, table_stride] of a page's scores                      */
    GW_DEV(float) sum;     /* [rows, heads, table_stride] of a page's weights                     */
    GW_DEV(float) weights; /* [rows, blocks of heads, table_stride, GW_PAGE, GW_LATENT_HEADS]     */
    GW_DEV(float) values;  /* [rows, heads, units, ev]                                            */
    int32_t row0, rows, table_stride, units;
    int32_t alone, few; /* alone: at most GW_LATENT_ALONE */
    int32_t heads, kv_heads, e, ev, v_first, form;
    int32_t k_bytes; /* of a page of a KV head */
    float scale;
};

#endif
