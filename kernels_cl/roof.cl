/* kernels_cl/roof.cl - how fast a device reads its memory: `pieces` of 16 KB. The measure of
 * `bench`, not a part of any model. A text of its own, without the shared ones.
 */
enum { PIECE = 1024, GROUP = 256 }; /* loads of 16 bytes in a piece; items of a group */

#ifdef GW_ITEM

/* A processor: an item reads a share of its own, from four places in turn. */
__kernel void roof_read(__global const uint4 *from, const ulong pieces, __global uint *out,
                        const uint never) {
    const ulong each = pieces / get_global_size(0) / 4 * PIECE;
    __global const uint4 *at = from + get_global_id(0) * each * 4;
    uint4 sum[4] = {(uint4)(0), (uint4)(0), (uint4)(0), (uint4)(0)};
    for (ulong i = 0; i < each; i += 16) {
        for (int place = 0; place < 4; place++) {
            for (int j = 0; j < 16; j++) {
                sum[place] ^= at[place * each + i + j];
            }
        }
    }
    const uint4 all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    if ((all.x ^ all.y ^ all.z ^ all.w) == never) { /* so that the loads are needed */
        *out = never;
    }
}

#else

/* Every item has four loads on the way, a group walks pieces. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
roof_read(__global const uint4 *from, const ulong pieces, __global uint *out, const uint never) {
    uint4 sum = (uint4)(0);
    for (ulong piece = get_group_id(0); piece < pieces; piece += get_num_groups(0)) {
        __global const uint4 *at = from + piece * PIECE + get_local_id(0);
        const uint4 a = at[0], b = at[GROUP], c = at[2 * GROUP], d = at[3 * GROUP];
        sum ^= (a ^ b) ^ (c ^ d);
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == never) { /* so that the loads are needed */
        *out = never;
    }
}

#endif
