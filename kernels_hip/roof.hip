/* kernels_hip/roof.hip - how fast this device reads its memory: every thread has four 16-byte loads
 * on the way, a block walks pieces of 16 KB. The measure of `bench`, not a part of any model.
 */
#include "kernels_hip/device.h"
#include "kernels_hip/roof_params.h"

GW_KERNEL(gw_roof_read, struct gw_roof_params, 256) {
    const uint8_t *piece = p.from + (size_t)blockIdx.x * GW_ROOF_PIECE + 16 * threadIdx.x;
    unsigned sum = 0;
    for (uint64_t at = 0; at < p.bytes; at += (uint64_t)gridDim.x * GW_ROOF_PIECE) {
        gw_16b v[4];
        for (int i = 0; i < 4; i++) {
            v[i] = gw_stream(piece + at + 4096 * i);
        }
        for (int i = 0; i < 4; i++) {
            sum += v[i].w[0] ^ v[i].w[1] ^ v[i].w[2] ^ v[i].w[3];
        }
    }
    if (sum == p.never) { /* so that the loads are needed; the memory is zeros */
        p.out[threadIdx.x] = sum;
    }
}
