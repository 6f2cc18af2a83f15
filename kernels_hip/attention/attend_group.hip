/* kernels_hip/attention/attend_group.hip - ATTENTION over so many pages that every block has groups
 * of them (docs/arithmetic.md, section 5, steps 1 to 5): its teams take the pages, as in
 * attention.hip, and join what they leave in shared memory, so that a sixteenth of the partial
 * results goes through memory. attend_join.hip joins the groups.
 *
 * For up to four heads of 64 or 128 values, on devices whose multiprocessors have room for two such
 * blocks: one computes while the other joins. (Not for four heads of 128 in q8_0 within 228 KB.)
 */
#include "kernels_hip/attention/attend_page.h"

enum {
    TEAMS = GW_GROUP_THREADS / GW_LANES,
    OF_TEAM = GW_PAGE_GROUP / TEAMS /* pages of a group that a team has: every TEAMS-th */
};

/* A page of a team, and where its group lies in the block's list. */
struct gw_group_unit : gw_unit {
    int item;  /* number of the group, of gridDim.x a block's are that far apart */
    int group; /* of its row                                                     */
    int turn;  /* of the team's pages in it                                      */
};

/* Goes through the pages of a team. Groups are counted by rows, KV heads and tiles of heads, the
 * last one fastest. */
template <int HEADS> struct gw_group_walk {
    int groups, rows, tiles, items;

    __device__ inline gw_group_walk(const struct gw_attend_params &p, int live) {
        const int group = p.heads / p.kv_heads, seen = live - p.parts.row0;
        tiles = p.kv_heads * ((group + HEADS - 1) / HEADS);
        rows = seen < p.parts.rows ? seen : p.parts.rows;
        const int pages = p.step.step[GW_STEP_POS_MAX] / GW_PAGE + 1;
        const int most = p.window > 0 ? GW_WINDOW_PAGES(p.window) : pages;
        groups = ((most < pages ? most : pages) + GW_PAGE_GROUP - 1) / GW_PAGE_GROUP;
        items = rows > 0 ? groups * rows * tiles : 0;
    }
    /* Row, heads and group of an item; 0: the row does not see as much. */
    __device__ inline int open(const struct gw_attend_params &p, gw_group_unit &u) const {
        const int group = p.heads / p.kv_heads, of_head = tiles / p.kv_heads;
        const int tile = u.item % tiles % of_head;
        u.g = u.item % tiles / of_head;
        u.head = u.g * group + tile * HEADS;
        u.heads = group - tile * HEADS < HEADS ? group - tile * HEADS : HEADS;
        u.row = p.parts.row0 + u.item / tiles % rows;
        u.group = u.item / tiles / rows;
        u.value = 0;
        u.span = span_of(p.step, u.row, p.window);
        return u.span.first + u.group * GW_PAGE_GROUP <= u.span.last;
    }
    /* From here on to a page that the team has; to find_tile() when the number of its tile has had
     * the time to come. */
    __device__ inline void settle(const struct gw_attend_params &p, gw_group_unit &u) const {
        for (; u.item < items; u.item += (int)gridDim.x, u.turn = 0) {
            if (!open(p, u)) {
                continue;
            }
            u.page = u.span.first + u.group * GW_PAGE_GROUP + u.turn * TEAMS + gw_team();
            if (u.turn < OF_TEAM && u.page <= u.span.last) {
                u.more = 1;
                u.tile = p.pages[(size_t)gw_step_slot(p.step, u.row) * p.table_stride + u.page];
                return;
            }
        }
        u.more = 0;
    }
    __device__ inline gw_group_unit next(const struct gw_attend_params &p, gw_group_unit u) const {
        u.turn++;
        settle(p, u);
        return u;
    }
};

/* What a block's teams share: queries, new cells, what the pages of a group leave. */
template <int HEADS, int E> struct gw_group_desk {
    gw_f32s<HEADS> q[E];
    float values[GW_PAGE_GROUP][HEADS][E];
    float top[HEADS][GW_PAGE_GROUP], sum[HEADS][GW_PAGE_GROUP];
};

template <class CELLS, int HEADS, class CUT, int E>
__device__ static inline gw_desk<HEADS>
desk_of_team(uint8_t *shared, const struct gw_attend_params &p, const CUT &c) {
    gw_desk<HEADS> d;
    d.q = ((gw_group_desk<HEADS, E> *)shared)->q;
    d.k_fresh = shared + sizeof(gw_group_desk<HEADS, E>);
    d.v_fresh = d.k_fresh + p.fresh_bytes;
    uint8_t *mine = d.v_fresh + p.fresh_bytes + gw_team() * p.team_bytes;
    d.p = (gw_f32s<HEADS> *)mine;
    d.k_scales = (uint8_t *)(d.p + GW_PAGE);
    d.v_scales = d.k_scales + c.scale_bytes;
    d.ring = d.v_scales + c.scale_bytes;
    return d;
}

/* Sums of a page to their place in its group. */
template <int HEADS, int E, int PER>
__device__ static inline void leave(gw_group_desk<HEADS, E> &all, int place,
                                    const gw_page_sums<HEADS, PER> &made) {
    enum { SHARE = GW_LANES / HEADS };
    const int lane = gw_lane();
    if (lane % SHARE == 0) {
        all.top[lane / SHARE][place] = made.top;
        all.sum[lane / SHARE][place] = made.sum;
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        gw_f32s<PER> of;
#pragma unroll
        for (int k = 0; k < PER; k++) {
            of.v[k] = made.o[h][k];
        }
        *(gw_f32s<PER> *)&all.values[place][h][lane * PER] = of;
    }
}

/* n pages of a group, a team for 32 values of a head. */
template <int HEADS, int E>
__device__ static inline void join_group(const struct gw_attend_params &p,
                                         const gw_group_desk<HEADS, E> &all, const gw_group_unit &u,
                                         int n) {
    enum { SLICES = E / GW_LANES };
    const int lane = gw_lane();
#pragma unroll 1
    for (int unit = gw_team(); unit < SLICES * u.heads; unit += TEAMS) {
        const int h = unit / SLICES, i = unit % SLICES * GW_LANES + lane;
        const int place = lane % GW_PAGE_GROUP;
        const float top = place < n ? all.top[h][place] : minus_infinity();
        const gw_group_sums made =
            join_pages(&all.values[0][h][i], HEADS * E, top, all.sum[h][place], n);
        const int row = (u.row - p.parts.row0) * p.heads + u.head + h;
        const int at = row * p.parts.page_stride + u.group;
        p.parts.values[(size_t)at * p.parts.e_padded + i] = made.value;
        if (i == 0) {
            p.parts.top[at] = made.top;
            p.parts.sum[at] = made.sum;
        }
    }
}

template <class CELLS, int HEADS, int E>
__device__ static inline void attend(const struct gw_attend_params &p, uint8_t *shared) {
    enum { PER = E / GW_LANES };
    typedef gw_cut<CELLS, E> cut;
    const cut c(p);
    gw_group_desk<HEADS, E> &all = *(gw_group_desk<HEADS, E> *)shared;
    const gw_desk<HEADS> d = desk_of_team<CELLS, HEADS, cut, E>(shared, p, c);
    const int live = gw_live(p.step);
    gw_grid_launch_dependents();
    const gw_group_walk<HEADS> walk(p, live);
    gw_group_unit u, now;
    u.item = now.item = (int)blockIdx.x;
    u.turn = 0;
    walk.settle(p, u);
    find_tile(p, c, u);
    /* Pages that no kernel before this one writes may be fetched while it still runs. */
    const int early = u.more && live == 1 && (p.turn.in || u.page < u.span.last);
    if (!early) {
        gw_grid_dependency_wait();
    }
    gw_ring<CELLS, cut, GW_ATTEND_STAGES> ring(d);
    if (u.more) {
        ring.open(c, u.k, u.v);
    }
    if (early) {
        gw_grid_dependency_wait();
    }
    int loaded_row = -1, loaded_head = -1;
#pragma unroll 1
    for (; now.item < walk.items; now.item += (int)gridDim.x) {
        if (!walk.open(p, now)) {
            continue;
        }
        if (loaded_row != now.row || loaded_head != now.head) {
            if (gw_team() == 0) {
                load_queries<HEADS>(p, d, now);
            }
            __syncthreads();
            loaded_row = now.row;
            loaded_head = now.head;
        }
        const int first = now.span.first + now.group * GW_PAGE_GROUP;
#pragma unroll 1
        while (u.more && u.item == now.item) {
            gw_group_unit next = walk.next(p, u);
            gw_page_sums<HEADS, PER> made;
            attend_page<CELLS, HEADS, PER, E>(p, c, d, ring, u, next, made);
            leave(all, u.page - first, made);
            u = next;
        }
        __syncthreads();
        const int left = now.span.last - first + 1;
        join_group<HEADS, E>(p, all, now, left < GW_PAGE_GROUP ? left : GW_PAGE_GROUP);
        __syncthreads(); /* its places and the queries are free */
    }
}

#define GROUP(format, HEADS, E)                                                                    \
    GW_KERNEL(gw_attend_group_##format##_h##HEADS##_e##E, struct gw_attend_params,                 \
              GW_GROUP_THREADS, 2) {                                                               \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        attend<gw_cells_##format, HEADS, E>(p, shared);                                            \
    }
#define GROUP_WIDTHS(format, HEADS) GROUP(format, HEADS, 64) GROUP(format, HEADS, 128)
#define GROUP_ALL(format) GROUP_WIDTHS(format, 1) GROUP_WIDTHS(format, 2) GROUP_WIDTHS(format, 4)
GROUP_ALL(f16)
GROUP_ALL(f32)
GROUP_ALL(q8_0)
