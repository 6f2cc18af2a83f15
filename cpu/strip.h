/* cpu/strip.h - the strip layout of quantized weights: 16 rows interleaved so that lanes are rows.
 *
 * A strip is its groups in order (a group: one file block of each of the 16 rows), so that it is
 * one stream for the memory system; a format with a row header (INT8: one f32) has the headers of
 * the 16 rows in front. A group is a list of vectors: a 32-bit word of every row (64 bytes: row r
 * at byte 4 r) or a 16-bit word of every row (32 bytes). The same number of bytes as the 16 rows as
 * stored, no padding; groups with a lone f16 therefore start at multiples of 32, not 64.
 *
 * A 4-byte code word holds weights 4 i .. 4 i + 3 of its row exactly as the file does, so packing
 * is a transposition of words; only the fifth bits of Q5_0 and Q5_1 are also permuted: bit i of
 * byte j belongs to weight 4 i + j. Offsets below are bytes from the start of a group.
 */
#ifndef GW_CPU_STRIP_H
#define GW_CPU_STRIP_H

#include "cpu/linear.h"

/* clang-format off */
/*   X(name, gw_fmt without its prefix, weights and bytes of a group, bytes of the row headers) */
#define GW_STRIP_FORMATS(X)                                                                        \
    X(q8_0,      Q8_0,       32,  544,  0) /* codes 0, d 512 */ \
    X(q4_0,      Q4_0,       32,  288,  0) /* nibbles 0, d 256 */ \
    X(q4_1,      Q4_1,       32,  320,  0) /* d 0, m 32, nibbles 64 */ \
    X(q5_0,      Q5_0,       32,  352,  0) /* fifth bits 0, nibbles 64, d 320 */ \
    X(q5_1,      Q5_1,       32,  384,  0) /* d 0, m 32, fifth bits 64, nibbles 128 */ \
    X(q2_k,      Q2_K,      256, 1344,  0) /* d 0, dmin 32, scales 64, codes 320 */ \
    X(q3_k,      Q3_K,      256, 1760,  0) /* scales 0, high 192, codes 704, d 1728 */ \
    X(q4_k,      Q4_K,      256, 2304,  0) /* d 0, dmin 32, scales 64, nibbles 256 */ \
    X(q5_k,      Q5_K,      256, 2816,  0) /* d 0, dmin 32, scales 64, high 256, nibbles 768 */ \
    X(q6_k,      Q6_K,      256, 3360,  0) /* scales 0, high 256, low 1280, d 3328 */ \
    X(iq4_nl,    IQ4_NL,     32,  288,  0) /* nibbles 0, d 256 */ \
    X(iq4_xs,    IQ4_XS,    256, 2176,  0) /* d 0, scales_high 32, scales_low 64, nibbles 128 */ \
    X(int8,      INT8,       32,  512, 64) /* codes 0 */ \
    X(int4_g32,  INT4_G32,   32,  320,  0) /* scale 0, zero 32, nibbles 64 */ \
    X(int4_g64,  INT4_G64,   64,  576,  0) \
    X(int4_g128, INT4_G128, 128, 1088,  0) \
    X(int4_g256, INT4_G256, 256, 2112,  0)
/* clang-format on */

/* Blocks of a term: gw_format.span as a constant. */
#define GW_STRIP_SPAN(fmt)                                                                         \
    ((fmt) == GW_FMT_INT4_G128 || (fmt) == GW_FMT_INT4_G256 ? GW_ACT_SPAN : 1)

#define GW_STRIP_ENUM(name, NAME, weights, bytes, head)                                            \
    GW_STRIP_SUBS_##name = (weights) / 32, GW_STRIP_GROUP_##name = (bytes),                        \
    GW_STRIP_HEAD_##name = (head), GW_STRIP_FMT_##name = GW_FMT_##NAME,                            \
    GW_STRIP_SPAN_##name = GW_STRIP_SPAN(GW_FMT_##NAME),
enum { GW_STRIP_FORMATS(GW_STRIP_ENUM) GW_STRIP_ENUM_END };
#undef GW_STRIP_ENUM

#endif
