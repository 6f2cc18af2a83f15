/* core/quantize/encode_int4.c - groups with a scale and a zero from the range of their values, INT4
 * and block-linear ones: scale = (high - low) / the largest code, zero = low. Block-linear ones
 * with importance: of least weighted error. */
#include "core/quantize/encode_rows.h"
#include "core/quantize/fit.h"
#include "core/tensor/codes.h"
#include "core/tensor/planes.h"

void gw_search_range(const gw_coding *e, const gw_encode_in *in, gw_coded *out,
                     gw_range_fn scale_of) {
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
        scale_of(e, low, high, o);
        memset(o->code, 0, sizeof o->code);
        gw_codes_of(e, o, 0, w, in->cols, o->code);
    }
}

static void by_range(const gw_coding *e, float low, float high, gw_coded *o) {
    o->d = gw_encode_f16((high - low) / (float)e->code_max);
    o->m = gw_encode_f16(low);
    o->ws[0] = gw_f16_to_f32(o->d);
    o->wm[0] = gw_f16_to_f32(o->m);
}

static void search(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    gw_search_range(e, in, out, by_range);
}

static void search_linear(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    const gw_fit_rule rule = {.kind = GW_FIT_AFFINE,
                              .n = e->code_max,
                              .first = -0.9f,
                              .step = 0.05f,
                              .tries = 37,
                              .weight = in->feedback ? GW_WEIGHT_GIVEN : GW_WEIGHT_MEAN,
                              .spread = 2.0f};
    gw_fit_in lanes = {.lanes = in->blocks, .cols = in->cols};
    gw_fit_out fit;
    if (in->importance == NULL) {
        gw_search_range(e, in, out, by_range);
        return;
    }
    for (int b = 0; b < in->blocks; b++) {
        lanes.w[b] = in->w + (size_t)b * in->w_stride;
        lanes.importance[b] = in->importance + (size_t)b * in->importance_stride;
        lanes.mean_square[b] = in->mean_square[b];
    }
    gw_fit(&rule, &lanes, &fit);
    for (int b = 0; b < in->blocks; b++) {
        gw_coded *o = &out[b];
        if (!gw_all_finite(lanes.w[b], (size_t)in->cols)) {
            gw_coded_broken(o, 1);
            continue;
        }
        o->d = gw_encode_f16(fit.scale[b]);
        o->m = gw_encode_f16(fit.low[b]);
        o->ws[0] = gw_f16_to_f32(o->d);
        o->wm[0] = gw_f16_to_f32(o->m);
        memset(o->code, 0, sizeof o->code);
        gw_codes_of(e, o, 0, lanes.w[b], in->cols, o->code);
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

/* The bits of a code: lower and upper ones in planes. */
static void pack_planes(const gw_coding *e, const gw_coded *b, int low, int high, size_t bytes,
                        gw_u8 *block) {
    memset(block, 0, bytes);
    put_u16(block, b->d);
    put_u16(block + 2, b->m);
    for (int i = 0; i < e->block; i++) {
        gw_u8 *plane = block + 4 + 4 * low * (i / 32);
        gw_plane_put(plane, low, i % 32, b->code[i]);
        if (high > 0) {
            plane = block + 4 + low * e->block / 8 + 4 * high * (i / 32);
            gw_plane_put(plane, high, i % 32, b->code[i] >> low);
        }
    }
}

/* Two codes of 0 .. 10 in a number of 7 bits. */
static void pack_elevens(const gw_coding *e, const gw_coded *b, void *block) {
    gw_block_bl3h_b64 *to = block;
    memset(to, 0, sizeof *to);
    put_u16(to->head.scale, b->d);
    put_u16(to->head.zero, b->m);
    for (int p = 0; p < e->block / 2; p++) {
        int v = 11 * b->code[2 * p] + b->code[2 * p + 1];
        gw_plane_put(to->four, 4, p, v);
        gw_plane_put(to->two, 2, p, v >> 4);
        gw_plane_put(to->one, 1, p, v >> 6);
    }
}

#define LINEAR(FORMAT, name, columns, low, high)                                                   \
    static void pack_##name(const gw_coding *e, const gw_coded *b, void *block) {                  \
        pack_planes(e, b, low, high, sizeof(gw_block_##name), block);                              \
    }                                                                                              \
    const gw_coding gw_coding_##name = {.fmt = GW_FMT_##FORMAT,                                    \
                                        .block = columns,                                          \
                                        .sub = columns,                                            \
                                        .code_max = (1 << ((low) + (high))) - 1,                   \
                                        .short_blocks = 1,                                         \
                                        .by_importance = 1,                                        \
                                        .search = search_linear,                                   \
                                        .pack = pack_##name};
LINEAR(BL2_B32, bl2_b32, 32, 2, 0)
LINEAR(BL3_B32, bl3_b32, 32, 2, 1)
LINEAR(BL5_B64, bl5_b64, 64, 4, 1)
LINEAR(BL6_B64, bl6_b64, 64, 4, 2)
LINEAR(BL8_B32, bl8_b32, 32, 8, 0)
LINEAR(BL8_B64, bl8_b64, 64, 8, 0)
const gw_coding gw_coding_bl3h_b64 = {.fmt = GW_FMT_BL3H_B64,
                                      .block = 64,
                                      .sub = 64,
                                      .code_max = 10,
                                      .short_blocks = 1,
                                      .by_importance = 1,
                                      .search = search_linear,
                                      .pack = pack_elevens};
