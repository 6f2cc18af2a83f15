/* core/quantize/encode_int4.c - groups with a scale and a zero from the range of their values:
 * scale = (high - low) / 15, zero = low. */
#include "core/quantize/encode_rows.h"
#include "core/tensor/blocks.h"

static void search(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *w = in->w + (size_t)b * in->w_stride;
        gw_coded *o = &out[b];
        if (!gw_all_finite(w, (size_t)in->cols)) {
            gw_coded_broken(o, 1);
            continue;
        }
        float low = w[0], high = w[0];
        for (int i = 1; i < in->cols; i++) {
            low = w[i] < low ? w[i] : low;
            high = w[i] > high ? w[i] : high;
        }
        low = low == 0.0f ? 0.0f : low; /* -0 and +0 are equal: which one is found is chance */
        high = high == 0.0f ? 0.0f : high;
        o->d = gw_encode_f16((high - low) / (float)e->code_max);
        o->m = gw_encode_f16(low);
        o->ws[0] = gw_f16_to_f32(o->d);
        o->wm[0] = gw_f16_to_f32(o->m);
        for (int i = 0; i < e->block; i++) {
            o->code[i] = i < in->cols ? (gw_i16)gw_code_of(e, o, 0, w[i]) : 0;
        }
    }
}

static void put_u16(gw_u8 *to, gw_u16 bits) {
    to[0] = (gw_u8)(bits & 255u);
    to[1] = (gw_u8)(bits >> 8);
}

static void pack(const gw_coding *e, const gw_coded *b, void *block) {
    gw_int4_head *head = block;
    gw_u8 *nibbles = (gw_u8 *)(head + 1);
    put_u16(head->scale, b->d);
    put_u16(head->zero, b->m);
    for (int i = 0; i < e->block; i += 32) {
        for (int j = 0; j < 16; j++) {
            nibbles[i / 2 + j] = (gw_u8)(b->code[i + j] | b->code[i + j + 16] << 4);
        }
    }
}

#define INT4(G)                                                                                    \
    const gw_coding gw_coding_int4_g##G = {.fmt = GW_FMT_INT4_G##G,                                \
                                           .block = G,                                             \
                                           .sub = G,                                               \
                                           .code_max = 15,                                         \
                                           .search = search,                                       \
                                           .pack = pack};
INT4(32)
INT4(64)
INT4(128)
INT4(256)
