/* cpu/cells.c - see cells.h. */
#include "cpu/cells.h"

#include <math.h>
#include <string.h>

void gw_cpu_rotate(float *x, size_t n, size_t width) {
    float norm = gw_cells_norm((int)width);
    for (size_t h = 1; h < width; h *= 2) {
        for (size_t at = 0; at < n; at += 2 * h) {
            float *a = x + at, *b = a + h;
            for (size_t i = 0; i < h; i++) {
                float sum = a[i] + b[i];
                b[i] = a[i] - b[i];
                a[i] = sum;
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] * norm;
    }
}

/* The scale of a block of 32. */
static gw_u16 scale_of(const float *x, int bits) {
    float peak = 0.0f;
    int finite = 1;
    for (int i = 0; i < 32; i++) {
        finite &= (GW_F32_BITS(x[i]) & 0x7fffffffu) < 0x7f800000u;
        peak = fabsf(x[i]) > fabsf(peak) ? x[i] : peak;
    }
    return gw_cells_scale(peak, finite, bits);
}

void gw_cpu_pack(void *page, int bits, size_t e, int is_k, size_t j, const float *x) {
    gw_u8 *codes = page, *high = codes + gw_cells_high_at((int)e);
    gw_u8 *scales = codes + gw_cells_scales_at((int)e, bits);
    for (size_t b = 0; b < e; b += 32) {
        gw_u16 scale = scale_of(x + b, bits);
        float d = gw_f16_to_f32(scale);
        memcpy(scales + 2 * gw_cells_scale_at((int)e, is_k, (int)j, (int)b), &scale, sizeof scale);
        for (size_t i = b; i < b + 32; i += 8) {
            unsigned above = 0;
            for (size_t k = 0; k < 8; k += 2) {
                unsigned low = (unsigned)gw_cells_code(x[i + k], d, bits);
                unsigned next = (unsigned)gw_cells_code(x[i + k + 1], d, bits);
                codes[gw_cells_code_at((int)e, is_k, (int)j, (int)(i + k))] =
                    (gw_u8)((low & 15) | (next & 15) << 4);
                above |= (low >> 4 | next >> 4 << 1) << k;
            }
            if (bits == 5) {
                high[gw_cells_bit_at((int)e, is_k, (int)j, (int)i)] = (gw_u8)above;
            }
        }
    }
}

/* [e / 2, GW_PAGE] bytes -> [e, GW_PAGE]. */
static void unpack_keys(gw_i8 *to, const gw_u8 *codes, const gw_u8 *high, size_t e) {
    for (size_t r = 0; r < e / 2; r++, codes += GW_PAGE, to += 2 * GW_PAGE) {
        const gw_u8 *bits = high != NULL ? high + r / 4 * GW_PAGE : NULL;
        unsigned shift = (unsigned)(r % 4 * 2);
        for (size_t j = 0; j < GW_PAGE && bits == NULL; j++) {
            to[j] = (gw_i8)((codes[j] & 15) - 8);
            to[GW_PAGE + j] = (gw_i8)((codes[j] >> 4) - 8);
        }
        for (size_t j = 0; j < GW_PAGE && bits != NULL; j++) {
            unsigned two = (unsigned)bits[j] >> shift;
            to[j] = (gw_i8)((int)((codes[j] & 15u) | (two & 1u) << 4) - 16);
            to[GW_PAGE + j] = (gw_i8)((int)((codes[j] >> 4 & 15u) | (two & 2u) << 3) - 16);
        }
    }
}

/* [GW_PAGE, e / 2] bytes -> [GW_PAGE, e]. */
static void unpack_values(gw_i8 *to, const gw_u8 *codes, const gw_u8 *high, size_t e) {
    for (size_t i = 0; i < GW_PAGE * e / 2 && high == NULL; i++) {
        to[2 * i] = (gw_i8)((codes[i] & 15) - 8);
        to[2 * i + 1] = (gw_i8)((codes[i] >> 4) - 8);
    }
    for (size_t i = 0; i < GW_PAGE * e / 2 && high != NULL; i++) {
        unsigned two = (unsigned)high[i / 4] >> i % 4 * 2;
        to[2 * i] = (gw_i8)((int)((codes[i] & 15u) | (two & 1u) << 4) - 16);
        to[2 * i + 1] = (gw_i8)((int)((codes[i] >> 4 & 15u) | (two & 2u) << 3) - 16);
    }
}

const void *gw_cpu_unpack(void *to, const void *page, int bits, size_t e, int is_k) {
    const gw_u8 *codes = page, *high = bits == 5 ? codes + gw_cells_high_at((int)e) : NULL;
    (is_k ? unpack_keys : unpack_values)(to, codes, high, e);
    memcpy((char *)to + GW_PAGE * e, codes + gw_cells_scales_at((int)e, bits), GW_PAGE / 16 * e);
    return to;
}
