/* kernels_hip/gemm/gemm_tiling.h - into which tiles the tokens of a product on instructions of four
 * waves are cut: the same for the kernel that lays them out (gw_spread_span) and for the product.
 *
 * Weights become operands once per tile, which takes as long as some 70 tokens do. So some tokens
 * more than a multiple of 128 had better not have a tile of their own, if others can take them in:
 * products whose stages are one term (gemm_span_terms.h) have tiles of 160 tokens too.
 */
#ifndef GW_KERNELS_HIP_GEMM_TILING_H
#define GW_KERNELS_HIP_GEMM_TILING_H

#include "kernels_hip/gemm/gemm_params.h"

#ifdef __cplusplus
#include "kernels_hip/device.h"
#else /* tests */
#define GW_DEVICE static inline
#endif

enum { GROUP_TOKENS = GW_GEMM_TOKENS(1) };

/* Tiles in their order: of GW_GROUP_WIDE tokens, of 128, and one of `last`, which is 64, 32, or 0
 * when there is none. The last one of all need not be full. */
typedef struct gw_cut {
    int wide, whole, last;
} gw_cut;

GW_DEVICE gw_cut gw_cut_with(int live, int wide) {
    const int in_wide = wide * (int)GW_GROUP_WIDE, rest = live > in_wide ? live - in_wide : 0;
    const int left = rest % (int)GROUP_TOKENS, fewer = left > 0 && left <= (int)GROUP_TOKENS / 2;
    const int last = left <= (int)GROUP_TOKENS / 4 ? GROUP_TOKENS / 4 : GROUP_TOKENS / 2;
    const gw_cut cut = {wide, (rest + (int)GROUP_TOKENS - 1) / (int)GROUP_TOKENS - fewer,
                        fewer ? last : 0};
    return cut;
}
GW_DEVICE int gw_cut_tiles(gw_cut cut) { return cut.wide + cut.whole + (cut.last > 0); }
/* What stages take, of the last tile and of all together. */
GW_DEVICE int gw_cut_cost_of_last(gw_cut cut) {
    return cut.last == 0                       ? 0
           : cut.last <= (int)GROUP_TOKENS / 4 ? (int)GW_SHARE_QUARTER
                                               : (int)GW_SHARE_HALF;
}
GW_DEVICE int gw_cut_cost(gw_cut cut) {
    return cut.wide * (int)GW_SHARE_WIDE + cut.whole * (int)GW_SHARE_WHOLE +
           gw_cut_cost_of_last(cut);
}
/* What a launch takes, times its blocks: of `rows` tiles of each kind, which are shared out, or of
 * which a block has one at most (gemm_stream_k.h). */
GW_DEVICE int gw_cut_time(gw_cut cut, int rows, int blocks) {
    const int longest = cut.wide    ? (int)GW_SHARE_WIDE
                        : cut.whole ? (int)GW_SHARE_WHOLE
                                    : gw_cut_cost_of_last(cut);
    return rows * gw_cut_tiles(cut) <= blocks ? blocks * longest : rows * gw_cut_cost(cut);
}

/* The cut that takes least; of those, the one with the fewest wide tiles. Four of them take in what
 * another one of 128 would have, and whole tiles are left as they are. */
GW_DEVICE gw_cut gw_cut_of(int live, int rows, int blocks) {
    enum { MOST = GROUP_TOKENS / (GW_GROUP_WIDE - GROUP_TOKENS) };
    const int whole = live / (int)GROUP_TOKENS, most = whole < (int)MOST ? whole : (int)MOST;
    gw_cut best = gw_cut_with(live, 0);
    int least = gw_cut_time(best, rows, blocks);
    for (int wide = 1; wide <= most && live % (int)GROUP_TOKENS > 0; wide++) {
        const gw_cut cut = gw_cut_with(live, wide);
        const int time = gw_cut_time(cut, rows, blocks);
        if (time < least) {
            best = cut;
            least = time;
        }
    }
    return best;
}

/* The first token of a tile; how many it is made for. */
GW_DEVICE int gw_cut_from(gw_cut cut, int tile) {
    const int wide = tile < cut.wide ? tile : cut.wide;
    return wide * (int)GW_GROUP_WIDE + (tile - wide) * (int)GROUP_TOKENS;
}
GW_DEVICE int gw_cut_tokens(gw_cut cut, int tile) {
    return tile < cut.wide               ? (int)GW_GROUP_WIDE
           : tile < cut.wide + cut.whole ? (int)GROUP_TOKENS
                                         : cut.last;
}
/* The tile of a token. */
GW_DEVICE int gw_cut_tile(gw_cut cut, int token) {
    const int in_wide = cut.wide * (int)GW_GROUP_WIDE;
    return token < in_wide ? token / (int)GW_GROUP_WIDE
                           : cut.wide + (token - in_wide) / (int)GROUP_TOKENS;
}

#endif
