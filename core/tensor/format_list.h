/* core/tensor/format_list.h - every quantized weight format as numbers: how its codes and scales
 * look, whatever the device. Read by C and by HIP; the layouts of the CPU (cpu/strip.h), of hip
 * (kernels_hip/strip.h) and of opencl (backends/opencl/layout.c), their kernels' parameters and the
 * lists of kernels are generated from it. What the bytes of a file mean is in blocks.h.
 */
#ifndef GW_TENSOR_FORMAT_LIST_H
#define GW_TENSOR_FORMAT_LIST_H

/* The term of docs/arithmetic.md, section 4. SPAN: affine, one term for GW_ACT_SPAN blocks. */
enum { GW_TERM_SIGNED, GW_TERM_AFFINE, GW_TERM_HALVES, GW_TERM_Q2, GW_TERM_SPAN };

/* The numbers in floating point that blocks share. */
enum {
    GW_HEAD_F16,  /* d                                     */
    GW_HEAD_PAIR, /* d, then m, dmin or zero; both binary16 */
    GW_HEAD_F32,  /* scale; not for affine terms           */
    GW_HEAD_E8M0  /* a byte e: the scale is 2^(e - 128)    */
};
#define GW_HEAD_BYTES(head) ((head) == GW_HEAD_E8M0 ? 1 : (head) == GW_HEAD_F16 ? 2 : 4)

/* What a code names; NONE: itself. Numbers in macros: OpenCL's preprocessor compares them. */
#define GW_LEVELS_NONE 0
#define GW_LEVELS_IQ4 1
#define GW_LEVELS_E2M1 2
#define GW_LEVELS_IQ2 3
#define GW_LEVELS_IQ3_XXS 4
#define GW_LEVELS_IQ3_S 5
#define GW_LEVELS_IQ1 6

/* Levels 4 i .. 4 i + 3 as bytes, lowest first: tables in constant memory are spelled differently in
 * each dialect, and shifts are not. Codes of three bits have two words.
 *   IQ4      -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
 *   E2M1     0 1 2 3 4 6 8 12, and less than 0
 *   IQ2      8 25 43 -, IQ1 1 7 9 -, and less than 0
 *   IQ3_XXS  4 12 20 28 36 44 52 62, IQ3_S 1 3 .. 15, and less than 0 */
#define GW_LEVEL_OF_WORDS(i, a, b, c, d) ((i) == 0 ? (a) : (i) == 1 ? (b) : (i) == 2 ? (c) : (d))
/* clang-format off */
#define GW_LEVEL_WORD(levels, i)                                                                       \
    ((levels) == GW_LEVELS_IQ4     ? GW_LEVEL_OF_WORDS(i, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u) \
   : (levels) == GW_LEVELS_E2M1    ? GW_LEVEL_OF_WORDS(i, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu) \
   : (levels) == GW_LEVELS_IQ2     ? GW_LEVEL_OF_WORDS(i, 0x002b1908u, 0x00d5e7f8u, 0u, 0u)            \
   : (levels) == GW_LEVELS_IQ3_XXS ? GW_LEVEL_OF_WORDS(i, 0x1c140c04u, 0x3e342c24u, 0xe4ecf4fcu, 0xc2ccd4dcu) \
   : (levels) == GW_LEVELS_IQ3_S   ? GW_LEVEL_OF_WORDS(i, 0x07050301u, 0x0f0d0b09u, 0xf9fbfdffu, 0xf1f3f5f7u) \
                                   : GW_LEVEL_OF_WORDS(i, 0x00090701u, 0x00f7f9ffu, 0u, 0u))
/* clang-format on */

/* ROW(X, FORMAT, name, low, high, offset, levels, term, sub, share, head)
 *   low, high  bits of a code that are stored together, and apart from those
 *   offset     subtracted from the code as stored (8-bit codes are signed as they are; of bytes
 *              without a sign, 128)
 *   levels     what the code is the index of; of halves, at most 63 in size
 *   sub        1: two bytes of integer scales a block (gw_row_sub_scales)
 *   share      blocks of 32 that share a head; 0: all of a row
 * ROW is a macro that hands its further arguments, in a form of its own, to X. */
/* clang-format off */
#define GW_QUANT_FORMATS(ROW, X) GW_BLOCK_FORMATS(ROW, X) GW_PLANE_FORMATS(ROW, X)

/* Formats whose bytes blocks.h has. TWINS differ from another one but in how many blocks share a head:
 * where heads are repeated (hip), they have its kernels. */
#define GW_BLOCK_FORMATS(ROW, X) GW_BLOCKS_ALONE(ROW, X) GW_BLOCK_TWINS(ROW, X)
#define GW_BLOCKS_ALONE(ROW, X)                                                       \
    ROW(X, Q8_0,      q8_0,      8, 0,  0, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 1, GW_HEAD_F16) \
    ROW(X, Q4_0,      q4_0,      4, 0,  8, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 1, GW_HEAD_F16) \
    ROW(X, Q4_1,      q4_1,      4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, Q5_0,      q5_0,      4, 1, 16, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 1, GW_HEAD_F16) \
    ROW(X, Q5_1,      q5_1,      4, 1,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, Q2_K,      q2_k,      2, 0,  0, GW_LEVELS_NONE, GW_TERM_Q2,     1, 8, GW_HEAD_PAIR) \
    ROW(X, Q3_K,      q3_k,      2, 1,  4, GW_LEVELS_NONE, GW_TERM_HALVES, 1, 8, GW_HEAD_F16) \
    ROW(X, Q4_K,      q4_k,      4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 1, 8, GW_HEAD_PAIR) \
    ROW(X, Q5_K,      q5_k,      4, 1,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 1, 8, GW_HEAD_PAIR) \
    ROW(X, Q6_K,      q6_k,      4, 2, 32, GW_LEVELS_NONE, GW_TERM_HALVES, 1, 8, GW_HEAD_F16) \
    ROW(X, IQ4_NL,    iq4_nl,    4, 0,  0, GW_LEVELS_IQ4,  GW_TERM_SIGNED, 0, 1, GW_HEAD_F16) \
    ROW(X, IQ4_XS,    iq4_xs,    4, 0,  0, GW_LEVELS_IQ4,  GW_TERM_SIGNED, 1, 8, GW_HEAD_F16) \
    ROW(X, MXFP4,     mxfp4,     4, 0,  0, GW_LEVELS_E2M1, GW_TERM_SIGNED, 0, 1, GW_HEAD_E8M0) \
    ROW(X, INT8,      int8,      8, 0,  0, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 0, GW_HEAD_F32) \
    ROW(X, INT4_G128, int4_g128, 4, 0,  0, GW_LEVELS_NONE, GW_TERM_SPAN,   0, 4, GW_HEAD_PAIR)
#define GW_BLOCK_TWINS(ROW, X)                                                        \
    ROW(X, INT4_G32,  int4_g32,  4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, INT4_G64,  int4_g64,  4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 2, GW_HEAD_PAIR) \
    ROW(X, INT4_G256, int4_g256, 4, 0,  0, GW_LEVELS_NONE, GW_TERM_SPAN,   0, 8, GW_HEAD_PAIR) \
    ROW(X, BL3H_B64,  bl3h_b64,  4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 2, GW_HEAD_PAIR)

/* Formats whose bytes are these numbers too (planes.h): a row is all that they need. Those of codes are
 * never in a file: codebooks of GGUF's smallest formats written out as the numbers of levels. */
#define GW_PLANE_FORMATS(ROW, X) GW_PLANES_ALONE(ROW, X) GW_PLANE_TWINS(ROW, X)
#define GW_PLANES_ALONE(ROW, X)                                                       \
    ROW(X, BL2_B32,   bl2_b32,   2, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, BL3_B32,   bl3_b32,   2, 1,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, BL6_B64,   bl6_b64,   4, 2,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 2, GW_HEAD_PAIR) \
    ROW(X, BL8_B32,   bl8_b32,   8, 0, 128, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, IQ3_S_CODES,   iq3_s_codes,   4, 0, 0, GW_LEVELS_IQ3_S,   GW_TERM_SIGNED, 1, 8, GW_HEAD_F32) \
    ROW(X, IQ3_XXS_CODES, iq3_xxs_codes, 4, 0, 0, GW_LEVELS_IQ3_XXS, GW_TERM_SIGNED, 1, 8, GW_HEAD_F32) \
    ROW(X, IQ2_CODES,     iq2_codes,     2, 1, 0, GW_LEVELS_IQ2,     GW_TERM_HALVES, 1, 8, GW_HEAD_F32) \
    ROW(X, IQ1_CODES,     iq1_codes,     2, 1, 0, GW_LEVELS_IQ1,     GW_TERM_HALVES, 1, 8, GW_HEAD_F32)
#define GW_PLANE_TWINS(ROW, X)                                                        \
    ROW(X, BL5_B64,   bl5_b64,   4, 1,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 2, GW_HEAD_PAIR) \
    ROW(X, BL8_B64,   bl8_b64,   8, 0, 128, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 2, GW_HEAD_PAIR)
/* clang-format on */

#endif
