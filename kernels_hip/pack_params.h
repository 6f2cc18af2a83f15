/* kernels_hip/pack_params.h - parameters of packing on the card (pack.hip). */
#ifndef GW_KERNELS_HIP_PACK_PARAMS_H
#define GW_KERNELS_HIP_PACK_PARAMS_H

#include "kernels_hip/params.h"

/* A byte of a packed piece: its constant bits, then `bits_from` words, each of which takes some
 * bits of a byte of the rows as stored: index | right rotation << 16 | mask << 24. Rows of a piece
 * lie one behind the other. */
enum { GW_PACK_THREADS = 256, GW_PACK_MOST = 8192, GW_PACK_ROTATION = 16, GW_PACK_MASK = 24 };

/* gw_pack_rows: grid (pieces of a row, strips of 16 rows). */
struct gw_pack_params {
    GW_DEV(const uint8_t) from;   /* rows as stored, row_bytes each; the first piece's column */
    GW_DEV(uint8_t) to;           /* the first strip's first piece                            */
    GW_DEV(const uint32_t) table; /* [1 + bits_from, piece_bytes]                             */
    int64_t row_bytes;            /* as stored                                                */
    int64_t strip_bytes;          /* packed                                                   */
    int32_t rows;                 /* those that are missing in the last strip count as zeros  */
    int32_t stored;               /* bytes of a row in a piece; 16 of them <= GW_PACK_MOST    */
    int32_t piece_bytes;          /* packed, a multiple of 4                                  */
    int32_t bits_from;
};

#endif
