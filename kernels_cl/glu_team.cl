/* kernels_cl/glu_team.cl - silu(gate) * up of a prompt on teams, where the two products were computed
 * apart: as glu_join of rows.cl, with 8 neighbouring values per item.
 */

/* both [n, 2, width]: gate, up. Groups: 8 * GROUP values of a row; rows. */
KERNEL(GROUP)
glu_join(STEP, IN(both), OUT(out), const int width, const int act8) {
    __local uint scratch[GROUP];
    const int id = (int)get_local_id(0), row = (int)get_group_id(1);
    const int first = (int)get_group_id(0) * 8 * GROUP;
    __global const float *g = READS(float, both) + (size_t)row * 2 * width, *u = g + width;
    if (row >= LIVE) {
        return;
    }
    if (act8) { /* width: whole blocks, of four items each */
        const int i = first + 8 * id;
        act8_quarter r;
        float v[8];
        UNROLL
        for (int j = 0; j < 2; j++) {
            const int at = min(i, width - 8) / 4 + j;
            const float4 a = ((__global const float4 *)g)[at], b = ((__global const float4 *)u)[at];
            v[4 * j] = gw_silu(a.s0) * b.s0, v[4 * j + 1] = gw_silu(a.s1) * b.s1;
            v[4 * j + 2] = gw_silu(a.s2) * b.s2, v[4 * j + 3] = gw_silu(a.s3) * b.s3;
        }
        quad_encode(&r, v, scratch, id);
        if (again(i) < width) {
            quad_store(WRITES(gw_act8, out) + (size_t)row * (width / GW_ACT_BLOCK) +
                           i / GW_ACT_BLOCK,
                       &r, i / 8 % 4);
        }
    } else {
        for (int i = first + id; i < min(first + 8 * GROUP, width); i += GROUP) {
            WRITES(float, out)[(size_t)row * width + i] = gw_silu(g[i]) * u[i];
        }
    }
}
