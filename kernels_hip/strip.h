/* kernels_hip/strip.h - how weights lie on a device of the hip backend; read by the C host side
 * (backends/hip/layout.c packs) and by the kernels.
 *
 * A strip is 16 rows, stored one after the other; rows that a matrix does not have are zeros. A
 * strip is a sequence of records. A record of a quantized format is blocks 4u .. 4u+3 (blocks of
 * 32) of its 16 rows; where a row has no such block, codes are 0 and scales add nothing (-0). Its
 * parts, in this order (row r, quarter t = 0..3, block i = 0..3 of the record, half h of a block):
 *   low   4 bits: 1024 bytes; the 16 at GW_STRIP_AT_16(r, t) are four words, word i of block i:
 *         byte k has the code of weight 4t+k in its low nibble and of weight 16+4t+k in its high one
 *         8 bits: 2048 bytes; half h at 1024 h, then as above: word i is weights 16h+4t .. +3
 *         2 bits: 512 bytes; the 8 at GW_STRIP_AT_8(r, t) are two words; bits 2 (2 (i%2) + h) of
 *         byte k of word i/2 are the code of weight 16h+4t+k of block i
 *   high  1 bit: 256 bytes; the word at 16 r + 4 t: bit 2i+h of byte k
 *         2 bits: 512 bytes; as low with 2 bits
 *   sub   128 bytes; at 8 r + 2 i two bytes of integer scales (Q4_K, Q5_K: sc, m; Q6_K, Q3_K: sc
 *         of the halves; Q2_K: the two bytes S; IQ4_XS: sc, 0)
 *   head  per block or per record, row by row: d (binary16), or d and a second number (m, dmin,
 *         zero); INT8: the row's float scale; IQ1 to IQ3: a float; MXFP4: a byte
 * Codes are stored without a sign, code + offset; those of 8 bits with it; where a format has levels,
 * their indices.
 *
 * A record of a float format is 128 columns, cut into classes of 1024 bytes: the 16 bytes at
 * 64 r + 16 t of class q are, for F16 and BF16 (4 classes), columns 32 e + 8 q + 2 t + o at element
 * 2 e + o; for F32 (8 classes) columns 32 e + 4 q + t at element e. Missing columns are -0. E4M3:
 * strip_e4m3.h.
 *
 * So the operands of matrix instructions are 16 bytes of a thread, quarter t of a row. Of these words
 * the dot products take the others: a thread has block i of a row, word i of its four quarters. The
 * order of the pieces lets eight rows of a quarter, and two rows of all quarters, use different
 * banks of shared memory. A term's lane is 4u + i, of the terms of records 4u, for floats the class's.
 */
#ifndef GW_KERNELS_HIP_STRIP_H
#define GW_KERNELS_HIP_STRIP_H

#include "core/tensor/format_list.h"

enum { GW_STRIP_ROWS = 16, GW_STRIP_BLOCKS = 4, GW_STRIP_FLOATS = 128 };


/* Where quarter t of row r is in a plane of 4 or 8 bits, of 2 bits. */
#define GW_STRIP_AT_16(r, t) (16 * ((r) / 8 * 32 + (t)*8 + ((r) + 2 * (t)) % 8))
#define GW_STRIP_AT_8(r, t) (8 * ((r) / 8 * 32 + (t)*8 + ((r) + (t) / 2 * 4) % 8))

/* Heads in a record. Blocks of GW_HEAD_E8M0 that a row does not have: 2^-128, times x's scale of 0. */
#define GW_STRIP_HEADS(share) ((share) == 1 || (share) == 2 ? 4 : 1)

/* X(FORMAT, name, low bits, high bits, offset, levels, term, sub, heads per record, their bytes) */
#define GW_STRIP_ROW(X, FORMAT, name, low, high, offset, levels, term, sub, share, head)           \
    X(FORMAT, name, low, high, offset, levels, term, sub, GW_STRIP_HEADS(share),                   \
      GW_HEAD_BYTES(head))
#define GW_STRIP_FORMATS(X) GW_QUANT_FORMATS(GW_STRIP_ROW, X)
/* Those that have kernels: the others are in strips as one of these is (gw_hip_kernels_of). */
#define GW_STRIP_KERNELS(X) GW_BLOCKS_ALONE(GW_STRIP_ROW, X) GW_PLANES_ALONE(GW_STRIP_ROW, X)

/* Formats whose product of one row has a variant that shares a multiprocessor with attention: 64
 * registers suffice without spills, and a ring of their records leaves enough shared memory free.
 * X(FORMAT, name) */
#define GW_STRIP_BESIDE(X)                                                                         \
    X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q4_K, q4_k) X(IQ4_NL, iq4_nl) X(IQ4_XS, iq4_xs)                  \
    X(INT4_G128, int4_g128)

/* Kernels of the formats in which packed folders are kept, whose columns may have an order: their
 * product of one row has a variant that takes the row as floats and encodes it in that order.
 * X(FORMAT, name) */
#define GW_STRIP_ORDER(X)                                                                          \
    X(Q4_0, q4_0) X(Q5_0, q5_0) X(Q8_0, q8_0) X(INT8, int8) X(INT4_G128, int4_g128)

/* Kernels of formats whose product of one row has a variant for the matrices of several nodes.
 * X(FORMAT, name) */
#define GW_STRIP_PARTS(X)                                                                          \
    X(Q4_0, q4_0)                                                                                  \
    X(Q8_0, q8_0) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(INT8, int8) X(INT4_G128, int4_g128)
/* clang-format on */

/* Bytes of the parts of a record. */
#define GW_STRIP_LOW(low) ((low)*256)
#define GW_STRIP_HIGH(high) ((high)*256)
#define GW_STRIP_SUB(sub) ((sub)*128)
#define GW_STRIP_HEAD(heads, bytes) (16 * (heads) * (bytes))
#define GW_STRIP_RECORD(low, high, sub, heads, bytes)                                              \
    (GW_STRIP_LOW(low) + GW_STRIP_HIGH(high) + GW_STRIP_SUB(sub) + GW_STRIP_HEAD(heads, bytes))

#endif
