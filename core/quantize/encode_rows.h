/* core/quantize/encode_rows.h - the encoders of encode_*.c, for the table of encode.c alone. */
#ifndef GW_QUANTIZE_ENCODE_ROWS_H
#define GW_QUANTIZE_ENCODE_ROWS_H

#include "core/quantize/encode.h"

extern const float gw_iq4_floats[16]; /* the levels of IQ4_NL and IQ4_XS */

extern const gw_coding gw_coding_q8_0, gw_coding_q4_0, gw_coding_q4_1, gw_coding_q5_0,
    gw_coding_q5_1, gw_coding_q2_k, gw_coding_q3_k, gw_coding_q4_k, gw_coding_q5_k, gw_coding_q6_k,
    gw_coding_iq4_nl, gw_coding_iq4_xs, gw_coding_mxfp4;
extern const gw_coding gw_coding_int4_g32, gw_coding_int4_g64, gw_coding_int4_g128,
    gw_coding_int4_g256;
extern const gw_coding gw_coding_bl3h_b64, gw_coding_bl2_b32, gw_coding_bl3_b32, gw_coding_bl5_b64,
    gw_coding_bl6_b64, gw_coding_bl8_b32, gw_coding_bl8_b64;

#endif
