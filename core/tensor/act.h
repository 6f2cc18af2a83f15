/* core/tensor/act.h - the activations of every op, once, for every compiler we use: a gate g, and
 * where there is one the value u beside it. docs/arithmetic.md, sections 5 and 6, says the same in
 * words; the polynomials are fits of ours. Scalars only, as in arith.h.
 */
#ifndef GW_TENSOR_ACT_H
#define GW_TENSOR_ACT_H

#include "core/tensor/arith.h"

/* How a gate g and, where there is one, the value u beside it become a value. */
typedef enum gw_act_kind {
    GW_ACT_SILU,       /* g sigmoid(g) * u; limit > 0: min(g, limit), u within +-limit first     */
    GW_ACT_GELU,       /* g/2 (1 + erf(g / sqrt 2)) * u                                          */
    GW_ACT_GELU_TANH,  /* g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) * u                      */
    GW_ACT_RELU,       /* max(g, 0) * u                                                          */
    GW_ACT_RELU2,      /* max(g, 0)^2 * u                                                        */
    GW_ACT_SWIGLU_OAI, /* g sigmoid(alpha g) * (u + 1); min(g, limit), u within +-limit first   */
    GW_ACT_XIELU,   /* w0 = {ap, an, b, e}: b g + (g > 0: ap g^2; else an (expm1(min(g, e)) - g)) */
    GW_ACT_SIGMOID, /* sigmoid(g) * u                                                         */
    GW_ACT_SOFTPLUS, /* log(1 + exp(g)) * u                                                    */
    GW_ACT_TANH,     /* tanh(g) * u                                                            */
    GW_ACT_CLAMP,    /* w0 = {low, high, -, -}: min(max(g, low), high) * u                     */
    GW_ACT_CLIP,     /* g * u; limit > 0: g within +-limit                                     */
    GW_ACT_SILU_CAPPED, /* g sigmoid(g) * u; limit > 0: min(g sigmoid(g), limit), u within it  */
    GW_ACT_NONE,     /* g * u                                                                  */
    GW_ACT_KINDS
} gw_act_kind;

/* Within 1.4 ulp of tanh x. */
GW_FN float gw_tanh(float x) {
    gw_u32 sign = GW_F32_BITS(x) & 0x80000000u;
    float a = GW_FABS(x), z = x * x, p = -0x1.69691p-8f;
    if (a < 0.625f) {
        p = GW_FMA(p, z, 0x1.4f5d38p-6f);
        p = GW_FMA(p, z, -0x1.b7cfb2p-5f);
        p = GW_FMA(p, z, 0x1.1103fp-3f);
        p = GW_FMA(p, z, -0x1.555524p-2f);
        return GW_FMA(x * z, p, x);
    }
    a = 1.0f - 2.0f / (gw_exp(a + a) + 1.0f);
    return GW_F32_FROM_BITS(GW_F32_BITS(a) | sign);
}

/* Within 1.2 ulp of erf x. */
GW_FN float gw_erf(float x) {
    gw_u32 sign = GW_F32_BITS(x) & 0x80000000u;
    float a = GW_FABS(x), z = x * x, p = -0x1.3a47bp-11f;
    if (a < 0.90625f) {
        p = GW_FMA(p, z, 0x1.4749dcp-8f);
        p = GW_FMA(p, z, -0x1.b68e62p-6f);
        p = GW_FMA(p, z, 0x1.ce1ab4p-4f);
        p = GW_FMA(p, z, -0x1.8126e8p-2f);
        p = GW_FMA(p, z, 0x1.06eba6p-3f);
        return GW_FMA(x, p, x);
    }
    a = a > 4.0f ? 4.0f : a;
    p = -0x1.9fb4a4p-13f; /* -ln(1 - erf a) */
    p = GW_FMA(p, a, 0x1.91cdecp-9f);
    p = GW_FMA(p, a, -0x1.6d9d36p-6f);
    p = GW_FMA(p, a, 0x1.aa734p-4f);
    p = GW_FMA(p, a, 0x1.4621b8p-1f);
    p = GW_FMA(p, a, 0x1.20b752p+0f);
    p = GW_FMA(p, a, 0x1.5d157p-13f);
    a = 1.0f - gw_exp(-p);
    return GW_F32_FROM_BITS(GW_F32_BITS(a) | sign);
}

/* e^x - 1, within 1.6 ulp; x counts as one within [-87, 88]. The polynomial is gw_exp's. */
GW_FN float gw_expm1(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float n = GW_RINT(x * 1.44269504088896341f);
    float r = GW_FMA(n, -0.693359375f, x);
    r = GW_FMA(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = GW_FMA(p, r, 1.3981999507e-3f);
    p = GW_FMA(p, r, 8.3334519073e-3f);
    p = GW_FMA(p, r, 4.1665795894e-2f);
    p = GW_FMA(p, r, 1.6666665459e-1f);
    p = GW_FMA(p, r, 5.0000001201e-1f);
    p = GW_FMA(p, r * r, r);
    float power = GW_F32_FROM_BITS((GW_F32_BITS(n + 12582912.0f) << 23) + 0x3f800000u);
    return GW_FMA(p, power, power - 1.0f);
}

/* ln(1 + e^x), within 2 ulp: of 1 + t, and what is lost in adding that. */
GW_FN float gw_softplus(float x) {
    float t = gw_exp(-GW_FABS(x)), w = 1.0f + t;
    return (x > 0.0f ? x : 0.0f) + (gw_log(w) + (t - (w - 1.0f)) / w);
}

/* Within 2.5 ulp for x >= -87. */
GW_FN float gw_sigmoid(float x) { return 1.0f / (1.0f + gw_exp(-x)); }

/* What a delta net keeps of its memory, by the logit x and A < 0: exp(A softplus(x)); with a bound
 * low < 0 exp(low sigmoid(-A x)), which is exp(low) at least. */
GW_FN float gw_delta_decay(float a, float x, float low) {
    return gw_exp(low < 0.0f ? low * gw_sigmoid(-a * x) : a * gw_softplus(x));
}

/* m + log(sigmoid(x)): of EXP_GATES. */
GW_FN float gw_log_kept(float m, float x) { return m - gw_softplus(-x); }

/* DIVIDE. */
GW_FN float gw_divided(float x, float by, float least, float eps) {
    by = GW_FABS(by);
    return x / ((by < least ? least : by) + eps);
}

/* cap * tanh(x / cap): of scores and logits. */
GW_FN float gw_softcap(float x, float cap) { return cap * gw_tanh(x / cap); }

/* What becomes of the gate. limit 0: none. XIELU: p and q are ap and an, alpha is b, limit is e;
 * CLAMP: p and q are the bounds. */
GW_FN float gw_act_gate(gw_act_kind kind, float g, float limit, float alpha, float p, float q) {
    float half_g = g * 0.5f, z;
    switch (kind) {
    case GW_ACT_SILU:
        return gw_silu(limit > 0.0f && g > limit ? limit : g);
    case GW_ACT_GELU:
        return half_g * (1.0f + gw_erf(g * 0x1.6a09e6p-1f));
    case GW_ACT_GELU_TANH:
        z = (g * 0x1.988454p-1f) * GW_FMA(g * g, 0x1.6e4e26p-5f, 1.0f);
        return half_g * (1.0f + gw_tanh(z));
    case GW_ACT_RELU:
        return g < 0.0f ? 0.0f : g;
    case GW_ACT_RELU2:
        z = g < 0.0f ? 0.0f : g;
        return z * z;
    case GW_ACT_SWIGLU_OAI:
        g = limit > 0.0f && g > limit ? limit : g;
        return g / (1.0f + gw_exp(-(alpha * g)));
    case GW_ACT_XIELU:
        z = g > limit ? limit : g;
        return g > 0.0f ? GW_FMA(p * g, g, alpha * g) : GW_FMA(q, gw_expm1(z) - g, alpha * g);
    case GW_ACT_SIGMOID:
        return gw_sigmoid(g);
    case GW_ACT_SOFTPLUS:
        return gw_softplus(g);
    case GW_ACT_TANH:
        return gw_tanh(g);
    case GW_ACT_CLAMP:
        g = g < p ? p : g;
        return g > q ? q : g;
    case GW_ACT_CLIP:
        g = limit > 0.0f && g < -limit ? -limit : g;
        return limit > 0.0f && g > limit ? limit : g;
    case GW_ACT_SILU_CAPPED:
        z = gw_silu(g);
        return limit > 0.0f && z > limit ? limit : z;
    default:
        return g;
    }
}

/* Whether u is kept within +-limit, where there is a limit. */
GW_FN int gw_act_bounds_factor(gw_act_kind kind) {
    return kind == GW_ACT_SILU || kind == GW_ACT_SWIGLU_OAI || kind == GW_ACT_SILU_CAPPED;
}

/* What the gate's value is multiplied by where there is a value u. */
GW_FN float gw_act_factor(gw_act_kind kind, float u, float limit) {
    if (limit > 0.0f && gw_act_bounds_factor(kind)) {
        u = u > limit ? limit : u;
        u = u < -limit ? -limit : u;
    }
    return kind == GW_ACT_SWIGLU_OAI ? u + 1.0f : u;
}

#endif
