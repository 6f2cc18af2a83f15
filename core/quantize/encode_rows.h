/* core/quantize/encode_rows.h - the encoders of encode_*.c, for the table of encode.c, and what
 * encoders share. */
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
extern const gw_coding gw_coding_iq2_xxs, gw_coding_iq2_xs, gw_coding_iq2_s, gw_coding_iq3_xxs,
    gw_coding_iq3_s, gw_coding_iq1_s, gw_coding_iq1_m;
extern const gw_coding gw_coding_tq1_0, gw_coding_tq2_0, gw_coding_q1_0, gw_coding_q2_0,
    gw_coding_nvfp4;

/* Blocks that are coded by their range: scale and zero (d, m, ws[0], wm[0]) from the least and the
 * largest value, then all codes. */
typedef void (*gw_range_fn)(const gw_coding *e, float low, float high, gw_coded *out);
void gw_search_range(const gw_coding *e, const gw_encode_in *in, gw_coded *out,
                     gw_range_fn scale_of);

#endif
