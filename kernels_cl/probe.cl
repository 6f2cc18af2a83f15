/* kernels_cl/probe.cl - tries, behind exchange.cl, what it is to use; probe.c knows the results. */
#ifdef PROBE_SHUFFLES
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) OF_TEAMS void probe(__global int *out) {
    __local int scratch[256];
    const int id = (int)get_local_id(0);
    uint v = 0;
    for (int mask = 1; mask < 32; mask++) {
        v = 3 * v + (uint)shuffle_xor(id, mask, scratch, id);
    }
    out[id] = (int)v;
}
#else
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void probe(__global int *out) {
    const int id = (int)get_local_id(0);
    out[id] = dot4(0x81020304u + (uint)id, 0xff7f8001u, id);
}
#endif
