/* kernels_hip/strip_e4m3.h - strips of E4M3 and of NVFP4 (core/tensor/e4m3.h, nvfp4.h), read by the
 * C host side and by the kernels: as strip.h has F16, but for half and a quarter as many bytes.
 *
 * A record is 128 columns, a block of the format, cut into four classes of 512 bytes: the 8 bytes
 * at 32 r + 8 t of class q are columns 32 e + 8 q + 2 t + o at byte 2 e + o; then the floats of the
 * 16 rows. Missing columns are -0.
 *
 * NVFP4: classes of 256 bytes, the 4 at 16 r + 4 t the same columns in nibble 2 e + o; then of each
 * row 12 bytes, its float and the eight scales of 16 columns.
 */
#ifndef GW_KERNELS_HIP_STRIP_E4M3_H
#define GW_KERNELS_HIP_STRIP_E4M3_H

#include "core/tensor/nvfp4.h"

/* Bytes of a class, of all of them, of a record; of a class with the floats, as a wave reads it. */
enum {
    GW_STRIP_E4M3_CLASS = 512,
    GW_STRIP_E4M3_CODES = 2048,
    GW_STRIP_E4M3_RECORD = 2112,
    GW_STRIP_E4M3_SLOT = 576,
    GW_STRIP_NVFP4_CLASS = 256,
    GW_STRIP_NVFP4_CODES = 1024,
    GW_STRIP_NVFP4_HEAD = 12,
    GW_STRIP_NVFP4_RECORD = 1216,
    GW_STRIP_NVFP4_SLOT = 448
};

#ifdef __cplusplus
#include "kernels_hip/device.h"

/* Codes of E4M3 2 k and 2 k + 1 of a word (k: 0, 1) as two binary16, a 256th of what they stand for
 * (gw_e4m3_value). */
GW_DEVICE unsigned gw_e4m3_halves(unsigned word, int k) {
#if defined(GW_NVIDIA)
    const unsigned high = __byte_perm(word, 0, k == 0 ? 0x1404 : 0x3424);
#else
    const unsigned high = k == 0 ? (word & 0xffu) << 8 | (word & 0xff00u) << 16
                                 : (word & 0xff0000u) >> 8 | (word & 0xff000000u);
#endif
    return (high & 0x80008000u) | (high >> 1 & 0x3f803f80u);
}
/* Code i of a word. */
GW_DEVICE float gw_widen_e4m3(unsigned word, int i) {
    return gw_widen_f16((gw_u16)(gw_e4m3_halves(word, i / 2) >> 16 * (i % 2)));
}
/* The same codes by an instruction where there is one, half as many as shifts and masks take: then
 * they are what they stand for, and GW_E4M3_TIMES brings a block's scale down (exact: e4m3.h). */
#if defined(GW_NVIDIA) && GW_SM >= 890 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201
#define GW_E4M3_TIMES 0x1p-8f
GW_DEVICE unsigned gw_e4m3_numbers(unsigned word, int k) {
    unsigned pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)(word >> 16 * k)));
    return pair;
}
#else
#define GW_E4M3_TIMES 1.0f
GW_DEVICE unsigned gw_e4m3_numbers(unsigned word, int k) { return gw_e4m3_halves(word, k); }
#endif
/* Nibble i of a word (gw_nvfp4_value). */
GW_DEVICE float gw_widen_e2m1(unsigned word, int i) {
    const unsigned code = word >> 4 * i;
    return gw_widen_f16((gw_u16)((code & 8u) << 12 | (code & 7u) << 9));
}
/* Of columns 32 e + 8 q and on of a row with these 12 bytes. */
GW_DEVICE float gw_strip_nvfp4_scale(const uint8_t *head, int e, int q) {
    const unsigned s = head[4 + 2 * e + q / 2];
    return gw_widen_f16((gw_u16)((s & 128u) << 8 | (s & 127u) << 7)) * *(const float *)head;
}
#endif

#endif
