/* kernels_hip/attention/attention.hip - ATTENTION in two steps, of which this is the first: pages
 * on their own (docs/arithmetic.md, section 5). The second, which joins them in order:
 * attend_join.hip. Fewer pages have kernels that do both: attend_block.hip, attend_rows.hip,
 * attend_split.hip; of many a block has a group, whose sums it joins: attend_group.hip.
 *
 * A team takes one page at a time (attend_page.h), and goes through them in a loop, so any grid
 * does. Where there are few, each has a team of its own and more shared memory: what a page needs
 * is on its way at once, and before the wait for the product in front, not chunk by chunk.
 */
#include "kernels_hip/attention/attend_page.h"

/* What a page leaves behind. */
template <int HEADS, int PER>
__device__ static inline void leave(const struct gw_attend_params &p, const gw_unit &u, int e,
                                    const gw_page_sums<HEADS, PER> &made) {
    enum { SHARE = GW_LANES / HEADS };
    const int lane = gw_lane(), h = lane / SHARE, value = u.value + lane * PER;
    const int at =
        ((u.row - p.parts.row0) * p.heads + u.head) * p.parts.page_stride + u.page - u.span.first;
    if (lane % SHARE == 0 && h < u.heads && u.value == 0) {
        p.parts.top[at + h * p.parts.page_stride] = made.top;
        p.parts.sum[at + h * p.parts.page_stride] = made.sum;
    }
    if (value >= e) {
        return;
    }
    float *to = p.parts.values + (size_t)at * p.parts.e_padded + value;
    const size_t step = (size_t)p.parts.page_stride * p.parts.e_padded;
#pragma unroll
    for (int k = 0; k < HEADS; k++, to += step) {
        gw_f32s<PER> all;
#pragma unroll
        for (int c = 0; c < PER; c++) {
            all.v[c] = made.o[k][c];
        }
        if (k < u.heads) {
            *(gw_f32s<PER> *)to = all;
        }
    }
}

template <class CELLS, int HEADS, int PER, int E, int STAGES>
__device__ static inline void attend(const struct gw_attend_params &p, uint8_t *shared) {
    typedef gw_cut<CELLS, E> cut;
    const cut c(p);
    const gw_desk<HEADS> d = desk_at<HEADS>(shared, p, c);
    const int live = gw_live(p.step);
    gw_grid_launch_dependents();
    const gw_walk<CELLS, HEADS, PER, cut> walk(p, c, live);
    gw_unit u = walk.first(p, c);
    if (!u.more && blockIdx.x > 0) {
        return; /* later kernels rely on one that waits */
    }
    /* Pages that no kernel before this one writes may be fetched while it still runs. */
    const int early = u.more && live == 1 && (p.turn.in || u.page < u.span.last);
    if (!early) {
        gw_grid_dependency_wait();
    }
    gw_ring<CELLS, cut, STAGES> ring(d);
    if (u.more) {
        ring.open(c, u.k, u.v);
    }
    if (early) {
        gw_grid_dependency_wait();
    }
    int loaded_row = -1, loaded_head = -1;
    while (u.more) {
        gw_unit next = walk.next(p, c, u);
        if (loaded_row != u.row || loaded_head != u.head) {
            load_queries<HEADS>(p, d, u);
            loaded_row = u.row;
            loaded_head = u.head;
        }
        gw_page_sums<HEADS, PER> made;
        attend_page<CELLS, HEADS, PER, E>(p, c, d, ring, u, next, made);
        leave<HEADS, PER>(p, u, c.e, made);
        u = next;
        if (STAGES == 0 && u.more) {
            gw_sync_team();
            ring.open(c, u.k, u.v);
        }
    }
}

/* gw_attend_CACHE_hH_vV for any width, V values of a head per lane; gw_attend_CACHE_hH_eE for one.
 */
#define ATTEND_BY(format, HEADS, name, PER, E, STAGES)                                             \
    GW_KERNEL(gw_attend_##format##_h##HEADS##_##name, struct gw_attend_params, GW_ATTEND_THREADS,  \
              8) {                                                                                 \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        attend<gw_cells_##format, HEADS, PER, E, STAGES>(p, shared);                               \
    }
#define ATTEND(format, HEADS, name, PER, E) ATTEND_BY(format, HEADS, name, PER, E, GW_ATTEND_STAGES)
#define ATTEND_WIDTHS(format, HEADS)                                                               \
    ATTEND(format, HEADS, v1, 1, 0)                                                                \
    ATTEND(format, HEADS, v2, 2, 0)                                                                \
    ATTEND(format, HEADS, v4, 4, 0)                                                                \
    ATTEND(format, HEADS, e64, 2, 64)                                                              \
    ATTEND(format, HEADS, e128, 4, 128)
#define ATTEND_ALL(format)                                                                         \
    ATTEND_WIDTHS(format, 1)                                                                       \
    ATTEND_WIDTHS(format, 2)                                                                       \
    ATTEND_WIDTHS(format, 4)                                                                       \
    ATTEND_WIDTHS(format, 8)
ATTEND_ALL(f16)
ATTEND_ALL(f32)
ATTEND_ALL(q8_0)

/* The same of few pages, for which a team has more shared memory. */
#define ATTEND_DEEP(HEADS) ATTEND_BY(f16, HEADS, deep128, 4, 128, GW_ATTEND_DEEP)
#define ATTEND_WHOLE(format, HEADS)                                                                \
    ATTEND_BY(format, HEADS, whole64, 2, 64, 0) ATTEND_BY(format, HEADS, whole128, 4, 128, 0)
#define ATTEND_FEW(HEADS) ATTEND_DEEP(HEADS) ATTEND_WHOLE(f16, HEADS) ATTEND_WHOLE(q8_0, HEADS)
ATTEND_FEW(1)
ATTEND_FEW(2)
ATTEND_FEW(4)
ATTEND_FEW(8)
