/* core/quantize/rules.c - scale and zero of int4 groups by range, with an integer zero, symmetric.
 */
#include "core/quantize/rules.h"

#include "core/quantize/encode_rows.h"

static void by_integer(const gw_coding *e, float low, float high, gw_coded *o) {
    low = low < 0.0f ? low : 0.0f;
    high = high > 0.0f ? high : 0.0f;
    o->d = gw_encode_f16((high - low) / (float)e->code_max);
    o->ws[0] = gw_f16_to_f32(o->d);
    float zero = o->ws[0] > 0.0f ? GW_RINT(-low / o->ws[0]) : 0.0f;
    zero = zero > 15.0f ? 15.0f : zero;
    o->m = (gw_u16)zero;
    o->wm[0] = -(o->ws[0] * zero);
}

static void by_size(const gw_coding *e, float low, float high, gw_coded *o) {
    float top = -low > high ? -low : high;
    o->d = gw_encode_f16(2.0f * top / (float)e->code_max);
    o->ws[0] = gw_f16_to_f32(o->d);
    o->m = 8;
    o->wm[0] = -(o->ws[0] * 8.0f);
}

static void search_integer(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    gw_search_range(e, in, out, by_integer);
}

static void search_symmetric(const gw_coding *e, const gw_encode_in *in, gw_coded *out) {
    gw_search_range(e, in, out, by_size);
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
