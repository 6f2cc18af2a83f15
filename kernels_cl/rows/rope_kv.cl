/* kernels_cl/rows/rope_kv.cl - ROPE_KV: q and k normed and rotated, k and v into the caches. One
 * item or team per row and head of q, k and v.
 */
#ifdef WALK
#define ROPE_ITEMS GROUP
#else
#define ROPE_ITEMS TEAM
#endif
#define LOCALS(X) X(float, scratch, ROPE_ITEMS)
#ifndef GW_ITEM
LOCALS_TYPE
#endif

#ifdef Q8

/* 32 values of one position in a page, column `at`. */
static inline void put_q8(__global char *cells, int is_v, int base, int at, int e, int i, float x,
                          ushort scale) {
    cells[CELL_AT(is_v, base + i, at, e)] = q8_code(x, scale);
    if (i == 0) {
        ((__global ushort *)(cells + GW_PAGE * e))[SCALE_AT(is_v, base / 32, at, e)] = scale;
    }
}

/* Values base .. base + 31 of a head: to y where `is_q`, else into the page `cells`. */
#ifdef GW_ITEM
static inline void put_block(const turning *t, int is_q, __global float *y, __global char *cells,
                             int is_v, int base, int at, int e) {
    float x[32];
    uint top = 0;
    for (int i = 0; i < 32; i++) {
        x[i] = turned_value(t, base + i);
        top = max(top, as_uint(x[i]) & 0x7fffffffu);
    }
    for (int i = 0; i < 32; i++) {
        if (is_q) {
            y[base + i] = x[i];
        } else {
            put_q8(cells, is_v, base, at, e, i, x[i], q8_scale(top));
        }
    }
}
#else
static inline void put_block(const turning *t, int is_q, __global float *y, __global char *cells,
                             int is_v, int base, int at, int e, int mine, __local float *scratch,
                             int id) {
    const int lane = id & (TEAM - 1);
    const float x = turned_value(t, base + lane);
    const uint top = team_max(as_uint(x) & 0x7fffffffu, (__local uint *)scratch, id);
    if (is_q && again(mine)) {
        y[base + lane] = x;
    } else if (again(mine)) {
        put_q8(cells, is_v, base, at, e, lane, x, q8_scale(top));
    }
}
#endif

#endif

#ifdef GW_ITEM
#define ROPE_STEP 1
#define ROPE_SCRATCH
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
#else
#define ROPE_STEP TEAM
#define ROPE_SCRATCH , mine, scratch, id
KERNEL(TEAM)
#endif
rope_kv(STEP, IN(in), OUT(k), OUT(v), IN(pages), ROPE_ARGS, const int heads,
                      const int kv_heads, const int e, const int page_stride SPLIT_ARGS) {
    const int row = GROUP_ID(1);
#ifdef GW_ITEM
    const int h = GROUP_ID(0), mine = 1, lane = 0;
#else
    LOCALS_HERE
    const int id = LOCAL_ID, lane = id & (TEAM - 1), all = heads + 2 * kv_heads;
    const int task = GROUP_ID(0) * (ROPE_ITEMS / TEAM) + id / TEAM;
    const int mine = task < all, h = min(task, all - 1);
    AWAIT;
#endif
    if (row >= LIVE) {
        return;
    }
    const int pos = STEP_POS(row), is_q = h < heads, is_v = h >= heads + kv_heads;
    const int g = is_v ? h - heads - kv_heads : h - heads;
    __global const float *in_row = READS(float, in) + (size_t)row * (heads + 2 * kv_heads) * e;
    turning t = TURNING(in_row, h, heads, kv_heads, e, pos - STEP_LESS(row));
#ifdef GW_ITEM
    if (t.normed) {
        float lane[GW_LANES];
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = 0.0f;
        }
        for (int i = 0; i < e; i++) {
            lane[i % GW_LANES] = fma(t.x[i], t.x[i], lane[i % GW_LANES]);
        }
        t.scale = gw_rms_scale(gw_fold_lanes(lane), e, eps);
    }
#else /* always: a barrier is no place to differ in */
    float sum = 0.0f;
    for (int base = 0; base < e; base += TEAM) {
        float x = base + lane < e ? t.x[base + lane] : 0.0f; /* lanes beyond the end add +0 */
        sum = fma(x, x, sum);
    }
    t.scale = gw_rms_scale(team_fold(sum, scratch, id), e, eps);
#endif
    __global CELL *cells = 0;
    if (!is_q) {
        int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + pos / GW_PAGE];
        cells = (__global CELL *)(is_v ? CACHE(v, page, e) : CACHE(k, page, e));
    }
    const int at = pos % GW_PAGE;
    __global float *y = WRITES(float, turned) + ((size_t)row * heads + h) * e;
#ifdef Q8
    for (int base = 0; base < e; base += 32) {
        put_block(&t, is_q, y, cells, is_v, base, at, e ROPE_SCRATCH);
    }
#else
    for (int base = 0; base < e; base += ROPE_STEP) {
        const int i = base + again(lane);
        if (i >= e || !again(mine)) {
            continue;
        }
        float value = turned_value(&t, i);
        if (is_q) {
            y[i] = value;
        } else {
            cells[CELL_AT(is_v, i, at, e)] = NARROW(value);
        }
    }
#endif
}
