/* cpu/strip.h - the strip layout of quantized weights: 16 rows interleaved so that lanes are rows.
 *
 * A strip is its groups in order (a group: one file block of each of the 16 rows), so that it is
 * one stream for the memory system; a format with a row header (INT8: one f32) has the headers of
 * the 16 rows in front. A group is a list of vectors: a 32-bit word of every row (64 bytes: row r
 * at byte 4 r) or a 16-bit word of every row (32 bytes). The same number of bytes as the 16 rows
 * as stored (BL3H: of INT4_G64, its codes apart), no padding; groups with a lone f16 therefore
 * start at multiples of 32, not 64, those with a lone byte at multiples of 16.
 *
 * A 4-byte code word holds weights 4 i .. 4 i + 3 of its row exactly as the file does, so packing
 * is a transposition of words; only the fifth bits of Q5_0 and Q5_1 are also permuted: bit i of
 * byte j belongs to weight 4 i + j. Offsets below are bytes from the start of a group.
 *
 * With GW_STRIP_PLANES a vector of code words (not of scales) is the first bytes of all 16 words,
 * then the second ones, and so on: row r's byte k at byte 16 k + r. Nothing that is done to all
 * bytes of a vector at once can tell.
 */
#ifndef GW_CPU_STRIP_H
#define GW_CPU_STRIP_H

#include "core/tensor/blocks.h"
#include "core/tensor/format_list.h"
#include "core/tensor/planes.h"
#include "cpu/linear.h"

/*   X(name, gw_fmt without its prefix, weights and bytes of a group, bytes of the row headers) */
#define GW_STRIP_ROW(X, NAME, name, low, high, offset, levels, term, sub, share, head)             \
    X(name, NAME, 32 * ((share) > 0 ? (share) : 1), GW_STRIP_ROWS * GW_STRIP_BLOCK(NAME, name),    \
      (share) > 0 ? 0 : 4 * GW_STRIP_ROWS)
#define GW_STRIP_BLOCK(NAME, name)                                                                 \
    (GW_FMT_##NAME == GW_FMT_BL3H_B64 ? (int)sizeof(gw_block_int4_g64)                             \
                                      : (int)sizeof(gw_block_##name))
#define GW_STRIP_FORMATS(X) GW_QUANT_FORMATS(GW_STRIP_ROW, X)
#define GW_STRIP_BLOCK_FORMATS(X) GW_BLOCK_FORMATS(GW_STRIP_ROW, X)
#define GW_STRIP_PLANE_FORMATS(X) GW_PLANE_FORMATS(GW_STRIP_ROW, X)

/* What a group holds, from which byte on (strip.c packs, linear_unpack.h reads):
 *   q8_0    codes 0, d 512                      q4_k    d 0, dmin 32, scales 64, nibbles 256
 *   q4_0    nibbles 0, d 256                    q5_k    the same, high 256, nibbles 768
 *   q4_1    d 0, m 32, nibbles 64               q6_k    scales 0, high 256, low 1280, d 3328
 *   q5_0    fifth bits 0, nibbles 64, d 320     iq4_nl  nibbles 0, d 256
 *   q5_1    d 0, m 32, fifth bits 64,           iq4_xs  d 0, scales_high 32, scales_low 64,
 *           nibbles 128                                 nibbles 128
 *   q2_k    d 0, dmin 32, scales 64, codes 320  mxfp4   nibbles 0, e 256
 *   q3_k    scales 0, high 192, codes 704,      int8    codes 0
 *           d 1728                              int4    scale 0, zero 32, nibbles 64; bl3h too
 * Those of planes.h: head, sub, low and high in this order; of single bits as of fifth bits. */

#if defined(__riscv)
#define GW_STRIP_PLANES 1 /* simd_rvv.h */
#else
#define GW_STRIP_PLANES 0
#endif

/* Levels of formats with a scale per 16 weights are codes with this offset. */
enum { GW_HALVED_LEVELS = 64 };

/* Blocks of a term: gw_format.span as a constant. */
#define GW_STRIP_SPAN(fmt)                                                                         \
    ((fmt) == GW_FMT_INT4_G128 || (fmt) == GW_FMT_INT4_G256 ? GW_ACT_SPAN : 1)

#define GW_STRIP_ENUM(name, NAME, weights, bytes, head)                                            \
    GW_STRIP_SUBS_##name = (weights) / 32, GW_STRIP_GROUP_##name = (bytes),                        \
    GW_STRIP_HEAD_##name = (head), GW_STRIP_FMT_##name = GW_FMT_##NAME,                            \
    GW_STRIP_SPAN_##name = GW_STRIP_SPAN(GW_FMT_##NAME),
enum { GW_STRIP_FORMATS(GW_STRIP_ENUM) GW_STRIP_ENUM_END };
#undef GW_STRIP_ENUM

/* Integer scales: a term of a prompt is GW_ACT_SPAN blocks (gw_format.prompt_span). */
#define GW_STRIP_SCALED(unused, NAME, name, low, high, offset, levels, term, sub, share, head)     \
    GW_STRIP_SCALED_##name = (sub),
enum { GW_QUANT_FORMATS(GW_STRIP_SCALED, 0) GW_STRIP_SCALED_END };
#undef GW_STRIP_SCALED

#endif
