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
    GW_HEAD_F32,  /* scale                                 */
    GW_HEAD_E8M0  /* a byte e: the scale is 2^(e - 128)    */
};
#define GW_HEAD_BYTES(head) ((head) == GW_HEAD_E8M0 ? 1 : (head) == GW_HEAD_F16 ? 2 : 4)

/* What a code of 4 bits names; NONE: itself. */
enum { GW_LEVELS_NONE, GW_LEVELS_IQ4, GW_LEVELS_E2M1 };

/* ROW(X, FORMAT, name, low, high, offset, levels, term, sub, share, head)
 *   low, high  bits of a code that are stored together, and apart from those
 *   offset     subtracted from the code as stored (8-bit codes are signed as they are)
 *   levels     what the code is the index of
 *   sub        1: two bytes of integer scales a block (gw_row_sub_scales)
 *   share      blocks of 32 that share a head; 0: all of a row
 * ROW is a macro that hands its further arguments, in a form of its own, to X. */
/* clang-format off */
#define GW_QUANT_FORMATS(ROW, X)                                                        \
    ROW(X, Q8_0,      q8_0,      8, 0,  0, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 1, GW_HEAD_F16)  \
    ROW(X, Q4_0,      q4_0,      4, 0,  8, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 1, GW_HEAD_F16)  \
    ROW(X, Q4_1,      q4_1,      4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, Q5_0,      q5_0,      4, 1, 16, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 1, GW_HEAD_F16)  \
    ROW(X, Q5_1,      q5_1,      4, 1,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, Q2_K,      q2_k,      2, 0,  0, GW_LEVELS_NONE, GW_TERM_Q2,     1, 8, GW_HEAD_PAIR) \
    ROW(X, Q3_K,      q3_k,      2, 1,  4, GW_LEVELS_NONE, GW_TERM_HALVES, 1, 8, GW_HEAD_F16)  \
    ROW(X, Q4_K,      q4_k,      4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 1, 8, GW_HEAD_PAIR) \
    ROW(X, Q5_K,      q5_k,      4, 1,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 1, 8, GW_HEAD_PAIR) \
    ROW(X, Q6_K,      q6_k,      4, 2, 32, GW_LEVELS_NONE, GW_TERM_HALVES, 1, 8, GW_HEAD_F16)  \
    ROW(X, IQ4_NL,    iq4_nl,    4, 0,  0, GW_LEVELS_IQ4,  GW_TERM_SIGNED, 0, 1, GW_HEAD_F16)  \
    ROW(X, IQ4_XS,    iq4_xs,    4, 0,  0, GW_LEVELS_IQ4,  GW_TERM_SIGNED, 1, 8, GW_HEAD_F16)  \
    ROW(X, MXFP4,     mxfp4,     4, 0,  0, GW_LEVELS_E2M1, GW_TERM_SIGNED, 0, 1, GW_HEAD_E8M0) \
    ROW(X, INT8,      int8,      8, 0,  0, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 0, GW_HEAD_F32)  \
    ROW(X, INT4_G32,  int4_g32,  4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 1, GW_HEAD_PAIR) \
    ROW(X, INT4_G64,  int4_g64,  4, 0,  0, GW_LEVELS_NONE, GW_TERM_AFFINE, 0, 2, GW_HEAD_PAIR) \
    ROW(X, INT4_G128, int4_g128, 4, 0,  0, GW_LEVELS_NONE, GW_TERM_SPAN,   0, 4, GW_HEAD_PAIR) \
    ROW(X, INT4_G256, int4_g256, 4, 0,  0, GW_LEVELS_NONE, GW_TERM_SPAN,   0, 8, GW_HEAD_PAIR)
/* clang-format on */

#endif
