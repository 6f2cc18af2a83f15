/* core/quantize/rules.c - scale and zero of int4 groups by range, with an integer zero, symmetric.
 */
#include "core/quantize/rules.h"

#include "core/quantize/encode_rows.h"

static void codes(const gw_coding *e, const gw_encode_in *in, const float *w, gw_coded *o) {
    memset(o->code, 0, sizeof o->code);
    gw_codes_of(e, o, 0, w, in->cols, o->code);
}

static void search_integer(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *w = in->w + (size_t)b * in->w_stride;
        gw_coded *o = &out[b];
        if (!gw_all_finite(w, (size_t)in->cols)) {
            gw_coded_broken(o, 1);
            continue;
        }
        float low = 0.0f, high = 0.0f;
        for (int i = 0; i < in->cols; i++) {
            low = w[i] < low ? w[i] : low;
            high = w[i] > high ? w[i] : high;
        }
        o->d = gw_encode_f16((high - low) / 15.0f);
        o->ws[0] = gw_f16_to_f32(o->d);
        float zero = o->ws[0] > 0.0f ? GW_RINT(-low / o->ws[0]) : 0.0f;
        zero = zero > 15.0f ? 15.0f : zero;
        o->m = (gw_u16)zero;
        o->wm[0] = -(o->ws[0] * zero);
        codes(e, in, w, o);
    }
}

static void search_symmetric(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    for (int b = 0; b < in->blocks; b++) {
        const float *w = in->w + (size_t)b * in->w_stride;
        gw_coded *o = &out[b];
        if (!gw_all_finite(w, (size_t)in->cols)) {
            gw_coded_broken(o, 1);
            continue;
        }
        float top = 0.0f;
        for (int i = 0; i < in->cols; i++) {
            top = GW_FABS(w[i]) > top ? GW_FABS(w[i]) : top;
        }
        o->d = gw_encode_f16(2.0f * top / 15.0f);
        o->ws[0] = gw_f16_to_f32(o->d);
        o->m = 8;
        o->wm[0] = -(o->ws[0] * 8.0f);
        codes(e, in, w, o);
    }
}

gw_coding gw_rule_coding(gw_int4_rule rule, int group) {
    gw_coding c = gw_coding_int4_g32;
    c.block = c.sub = group;
    c.short_blocks = 1;
    c.pack = NULL;
    c.search = rule == GW_RULE_RANGE     ? c.search
               : rule == GW_RULE_INTEGER ? search_integer
                                         : search_symmetric;
    return c;
}
