/* kernels_cl/rope_kv.cl - ROPE_KV: q and k normed and rotated, k and v into the caches. One group
 * per row and head of q, k and v.
 */
#ifdef GW_ITEM
#define ROPE_STEP 1
__attribute__((reqd_work_group_size(1, 1, 1)))
#else
#define ROPE_STEP TEAM
__attribute__((reqd_work_group_size(TEAM, 1, 1)))
#endif
__kernel void rope_kv(STEP, IN(in), OUT(k), OUT(v), IN(pages), ROPE_ARGS, const int heads,
                      const int kv_heads, const int e, const int page_stride) {
    const int h = (int)get_group_id(0), row = (int)get_group_id(1), id = (int)get_local_id(0);
    if (row >= LIVE) {
        return;
    }
    const int pos = STEP_POS(row), is_q = h < heads, is_v = h >= heads + kv_heads;
    const int g = is_v ? h - heads - kv_heads : h - heads;
    __global const float *in_row = READS(float, in) + (size_t)row * (heads + 2 * kv_heads) * e;
    turning t = TURNING(in_row, h, heads, kv_heads, e, pos);
#ifdef GW_ITEM
    if (t.normed) {
        float lane[GW_LANES];
        for (int i = 0; i < GW_LANES; i++) {
            lane[i] = 0.0f;
        }
        for (int i = 0; i < e; i++) {
            lane[i % GW_LANES] = fma(t.x[i], t.x[i], lane[i % GW_LANES]);
        }
        t.scale = gw_rms_scale(gw_join_lanes(lane), e, eps);
    }
#else /* always: a barrier is no place to differ in */
    __local float scratch[TEAM];
    float sum = 0.0f;
    for (int base = 0; base < e; base += TEAM) {
        float x = base + id < e ? t.x[base + id] : 0.0f; /* lanes beyond the end add +0 */
        sum = fma(x, x, sum);
    }
    t.scale = gw_rms_scale(team_fold(sum, scratch, id), e, eps);
#endif
    __global CELL *cache = 0;
    if (!is_q) {
        int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + pos / GW_PAGE];
        size_t at = ((size_t)page * kv_heads + g) * GW_PAGE * e;
        cache = is_v ? WRITES(CELL, v) + at + (size_t)(pos % GW_PAGE) * e
                     : WRITES(CELL, k) + at + pos % GW_PAGE;
    }
    __global float *y = WRITES(float, turned) + ((size_t)row * heads + h) * e;
    for (int base = 0; base < e; base += ROPE_STEP) {
        const int i = base + again(id);
        if (i >= e) {
            continue;
        }
        float value = turned_value(&t, i);
        if (is_q) {
            y[i] = value;
        } else {
            cache[i * (is_v ? 1 : GW_PAGE)] = NARROW(value);
        }
    }
}
