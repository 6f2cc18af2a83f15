/* kernels_hip/pack.hip - rows as stored become strips (strip.h) on the card, by a table that the
 * host has made of its own packing (backends/hip/pack.c). Bound by the link that brings the rows:
 * 50 GB/s where a card reads thousands. A block makes one piece (the fewest columns that begin a
 * block of the format and a record of a strip) of 16 rows.
 */
#include "kernels_hip/device.h"
#include "kernels_hip/pack_params.h"
#include "kernels_hip/strip.h"

GW_KERNEL(gw_pack_rows, struct gw_pack_params, GW_PACK_THREADS) {
    __shared__ uint8_t stored[GW_PACK_MOST];
    const int first = (int)blockIdx.y * GW_STRIP_ROWS;
    const uint8_t *from = p.from + (size_t)first * p.row_bytes + (size_t)blockIdx.x * p.stored;
    for (int at = threadIdx.x; at < GW_STRIP_ROWS * p.stored; at += GW_PACK_THREADS) {
        const int row = at / p.stored;
        stored[at] = first + row < p.rows ? from[row * p.row_bytes + at % p.stored] : 0;
    }
    __syncthreads();
    uint32_t *to = (uint32_t *)(p.to + (size_t)blockIdx.y * p.strip_bytes +
                                (size_t)blockIdx.x * p.piece_bytes);
    for (int w = threadIdx.x; w < p.piece_bytes / 4; w += GW_PACK_THREADS) {
        uint32_t word = 0;
        for (int k = 0; k < 4; k++) {
            const uint32_t *entry = p.table + 4 * w + k;
            uint32_t byte = *entry;
            for (int i = 0; i < p.bits_from; i++) {
                const uint32_t e = *(entry += p.piece_bytes);
                const uint32_t v = stored[e & 0xffff] * 0x101u;
                byte ^= v >> (e >> GW_PACK_ROTATION & 7) & e >> GW_PACK_MASK;
            }
            word |= byte << 8 * k;
        }
        to[w] = word;
    }
}
