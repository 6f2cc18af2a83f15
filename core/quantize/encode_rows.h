/* core/quantize/encode_rows.h - the encoders of encode_*.c, for the table of encode.c alone. */
#ifndef GW_QUANTIZE_ENCODE_ROWS_H
#define GW_QUANTIZE_ENCODE_ROWS_H

#include "core/quantize/encode.h"

extern const gw_encoder gw_encoder_int4_g32, gw_encoder_int4_g64, gw_encoder_int4_g128,
    gw_encoder_int4_g256;

#endif
