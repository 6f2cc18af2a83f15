/* kernels_cl/gemm/glu_team.cl - silu(gate) * up of a prompt on teams, where the two products were
 * computed apart: as glu_join of rows.cl, with a quarter of a block per item.
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
        const int i = first / 8 + id;
        act8_quarter r;
        float4 v[2];
        UNROLL
        for (int j = 0; j < 2; j++) {
            const int at = QUARTER_LOW(min(i, width / 8 - 1)) + 4 * j;
            const float4 a = ((__global const float4 *)g)[at], b = ((__global const float4 *)u)[at];
            v[j] = (float4)(gw_silu(a.s0) * b.s0, gw_silu(a.s1) * b.s1, gw_silu(a.s2) * b.s2,
                            gw_silu(a.s3) * b.s3);
        }
        quad_encode(&r, v[0], v[1], scratch, id);
        if (again(i) < width / 8) {
            quad_store(WRITES(gw_act8, out) + (size_t)row * (width / GW_ACT_BLOCK) + i / 4, &r,
                       i % 4);
        }
    } else {
        for (int i = first + id; i < min(first + 8 * GROUP, width); i += GROUP) {
            WRITES(float, out)[(size_t)row * width + i] = gw_silu(g[i]) * u[i];
        }
    }
}
