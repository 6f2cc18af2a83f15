/* cpu/ops_body.h - the ops of cpu/ops.h on vectors. Template: cpu/vec.h, cpu/micro_body.h. */

VT static float NAME(norm)(float *y, const float *x, const float *w, size_t d, float eps) {
    enum { J = GW_ACT_BLOCK / VW };
    float lane[GW_LANES] = {0.0f};
    size_t whole = d / GW_ACT_BLOCK * GW_ACT_BLOCK, b = 0, i = 0;
    for (; i < whole; i += GW_ACT_BLOCK, b++) {
        vf square[J];
        GW_UNROLL
        for (int j = 0; j < J; j++) {
            vf v = v_load(x + i + (size_t)(j * VW));
            square[j] = v_mul(v, v);
            v_store(y + i + (size_t)(j * VW), v_mul(v, v_load(w + i + (size_t)(j * VW))));
        }
        GW_UNROLL
        for (int h = J / 2; h > 0; h /= 2) {
            for (int j = 0; j < h; j++) {
                square[j] = v_add(square[j], square[j + h]);
            }
        }
        lane[b % GW_LANES] += v_fold(square[0]);
    }
    if (i < d) {
        lane[b % GW_LANES] += gw_block_squares(x + i, (int)(d - i));
    }
    for (; i < d; i++) {
        y[i] = x[i] * w[i];
    }
    return gw_rms_scale(gw_fold_lanes(lane), (int)d, eps);
}

VT static float NAME(sum)(const float *x, size_t d) {
    enum { J = GW_ACT_BLOCK / VW };
    float lane[GW_LANES] = {0.0f}, rest[GW_ACT_BLOCK] = {0.0f};
    size_t whole = d / GW_ACT_BLOCK, b = 0;
    for (; b < whole; b++) {
        vf v[J];
        GW_UNROLL
        for (int j = 0; j < J; j++) {
            v[j] = v_load(x + b * GW_ACT_BLOCK + (size_t)(j * VW));
        }
        GW_UNROLL
        for (int h = J / 2; h > 0; h /= 2) {
            for (int j = 0; j < h; j++) {
                v[j] = v_add(v[j], v[j + h]);
            }
        }
        lane[b % GW_LANES] += v_fold(v[0]);
    }
    if (b * GW_ACT_BLOCK < d) {
        memcpy(rest, x + b * GW_ACT_BLOCK, (d - b * GW_ACT_BLOCK) * sizeof *x);
        lane[b % GW_LANES] += gw_fold_lanes(rest);
    }
    return gw_fold_lanes(lane);
}

VT static void NAME(head_norm)(float *y, const float *x, const float *w, size_t d, float eps) {
    enum { J = GW_LANES / VW };
    vf sum[J];
    float lane[GW_LANES];
    size_t whole = d / GW_LANES * GW_LANES;
    for (int j = 0; j < J; j++) {
        sum[j] = v_zero();
    }
    for (size_t i = 0; i < whole; i += GW_LANES) {
        GW_UNROLL
        for (int j = 0; j < J; j++) {
            vf v = v_load(x + i + (size_t)(j * VW));
            sum[j] = v_fma(v, v, sum[j]);
        }
    }
    for (int j = 0; j < J; j++) {
        v_store(lane + j * VW, sum[j]);
    }
    for (size_t i = whole; i < d; i++) {
        lane[i - whole] = fmaf(x[i], x[i], lane[i - whole]);
    }
    float scale = gw_rms_scale(gw_fold_lanes(lane), (int)d, eps);
    size_t i = 0;
    for (; i + VW <= d; i += VW) {
        v_store(y + i, v_mul(v_mul(v_load(x + i), v_set(scale)), v_load(w + i)));
    }
    for (; i < d; i++) {
        y[i] = (x[i] * scale) * w[i];
    }
}

VT static void NAME(encode_block)(gw_act8 *y, const float *x) {
    enum { J = GW_ACT_BLOCK / VW };
    vi top = vi_zero();
    GW_UNROLL
    for (int j = 0; j < J; j++) {
        top = vi_max(top, vi_abs(v_load(x + j * VW)));
    }
    gw_u32 bits = (gw_u32)vi_largest(top);
    if (bits >= 0x7f800000u) {
        gw_act8_encode(y, x);
        return;
    }
    float amax = gw_f32_from_bits(bits);
    float inverse = amax > 0.0f ? 127.0f / amax : 0.0f;
    inverse = inverse < 3.0e38f ? inverse : 0.0f;
    v_codes(y->q, y->sum, x, inverse);
    y->scale = amax / 127.0f;
}

VT static void NAME(encode)(gw_act8 *y, const float *x, size_t blocks) {
    for (size_t b = 0; b < blocks; b++) {
        NAME(encode_block)(&y[b], x + b * GW_ACT_BLOCK);
    }
}

/* gw_exp of n vectors, step for step and each step for all of them: one alone waits for itself. */
GW_INLINE VT void NAME(exp_all)(vf *x, const int n) {
    enum { MOST = 4 };
    vf whole[MOST], r[MOST], p[MOST];
#define EXP_STEP(what)                                                                             \
    GW_UNROLL                                                                                      \
    for (int i = 0; i < n; i++) {                                                                  \
        what;                                                                                      \
    }
    EXP_STEP(r[i] = v_min(v_set(88.0f), x[i]))
    EXP_STEP(whole[i] = v_rint(v_mul(r[i], v_set(1.44269504088896341f))))
    EXP_STEP(r[i] = v_fma(whole[i], v_set(-0.693359375f), r[i]))
    EXP_STEP(r[i] = v_fma(whole[i], v_set(2.12194440e-4f), r[i]))
    EXP_STEP(p[i] = v_fma(v_set(1.9875691500e-4f), r[i], v_set(1.3981999507e-3f)))
    EXP_STEP(p[i] = v_fma(p[i], r[i], v_set(8.3334519073e-3f)))
    EXP_STEP(p[i] = v_fma(p[i], r[i], v_set(4.1665795894e-2f)))
    EXP_STEP(p[i] = v_fma(p[i], r[i], v_set(1.6666665459e-1f)))
    EXP_STEP(p[i] = v_fma(p[i], r[i], v_set(5.0000001201e-1f)))
    EXP_STEP(p[i] = v_add(v_fma(p[i], v_mul(r[i], r[i]), r[i]), v_set(1.0f)))
    EXP_STEP(x[i] = v_zero_below(v_mul(p[i], v_exp2i(whole[i])), x[i], v_set(-87.0f)))
#undef EXP_STEP
}
GW_INLINE VT vf NAME(exp)(vf x) {
    NAME(exp_all)(&x, 1);
    return x;
}

VT static void NAME(silu_mul)(float *y, const float *gate, const float *up, size_t n) {
    size_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf g = v_load(gate + i);
        vf s = v_div(g, v_add(v_set(1.0f), NAME(exp)(v_neg(g))));
        v_store(y + i, v_mul(s, v_load(up + i)));
    }
    for (; i < n; i++) {
        y[i] = gw_silu(gate[i]) * up[i];
    }
}

/* gw_tanh and gw_erf, step for step, both ways of each. */
GW_INLINE VT vf NAME(tanh)(vf x) {
    vf a = v_abs(x), z = v_mul(x, x);
    vf p = v_fma(v_set(-0x1.69691p-8f), z, v_set(0x1.4f5d38p-6f));
    p = v_fma(p, z, v_set(-0x1.b7cfb2p-5f));
    p = v_fma(p, z, v_set(0x1.1103fp-3f));
    p = v_fma(p, z, v_set(-0x1.555524p-2f));
    p = v_fma(v_mul(x, z), p, x);
    vf e = v_add(NAME(exp)(v_add(a, a)), v_set(1.0f));
    vf far = v_sub(v_set(1.0f), v_div(v_set(2.0f), e));
    return v_below(a, v_set(0.625f), p, v_signed(far, x));
}

GW_INLINE VT vf NAME(erf)(vf x) {
    vf a = v_abs(x), z = v_mul(x, x), near;
    vf p = v_fma(v_set(-0x1.3a47bp-11f), z, v_set(0x1.4749dcp-8f));
    p = v_fma(p, z, v_set(-0x1.b68e62p-6f));
    p = v_fma(p, z, v_set(0x1.ce1ab4p-4f));
    p = v_fma(p, z, v_set(-0x1.8126e8p-2f));
    p = v_fma(p, z, v_set(0x1.06eba6p-3f));
    near = v_fma(x, p, x);
    vf c = v_below(v_set(4.0f), a, v_set(4.0f), a);
    p = v_fma(v_set(-0x1.9fb4a4p-13f), c, v_set(0x1.91cdecp-9f));
    p = v_fma(p, c, v_set(-0x1.6d9d36p-6f));
    p = v_fma(p, c, v_set(0x1.aa734p-4f));
    p = v_fma(p, c, v_set(0x1.4621b8p-1f));
    p = v_fma(p, c, v_set(0x1.20b752p+0f));
    p = v_fma(p, c, v_set(0x1.5d157p-13f));
    vf far = v_sub(v_set(1.0f), NAME(exp)(v_neg(p)));
    return v_below(a, v_set(0.90625f), near, v_signed(far, x));
}

/* gw_act_gate of the kinds that wide layers have; the others never come here. */
GW_INLINE VT vf NAME(act_gate)(gw_act_kind kind, vf g, const gw_cpu_act *a) {
    vf half = v_mul(g, v_set(0.5f)), one = v_set(1.0f), z;
    if (a->limit > 0.0f && (kind == GW_ACT_SILU || kind == GW_ACT_SWIGLU_OAI)) {
        g = v_below(v_set(a->limit), g, v_set(a->limit), g);
    }
    switch (kind) {
    case GW_ACT_SILU:
        return v_div(g, v_add(one, NAME(exp)(v_neg(g))));
    case GW_ACT_SWIGLU_OAI:
        return v_div(g, v_add(one, NAME(exp)(v_neg(v_mul(v_set(a->alpha), g)))));
    case GW_ACT_GELU:
        return v_mul(half, v_add(one, NAME(erf)(v_mul(g, v_set(0x1.6a09e6p-1f)))));
    case GW_ACT_GELU_TANH:
        z = v_mul(v_mul(g, v_set(0x1.988454p-1f)), v_fma(v_mul(g, g), v_set(0x1.6e4e26p-5f), one));
        return v_mul(half, v_add(one, NAME(tanh)(z)));
    case GW_ACT_CLAMP:
        g = v_below(g, v_set(a->p), v_set(a->p), g);
        return v_below(v_set(a->q), g, v_set(a->q), g);
    case GW_ACT_CLIP:
        z = v_below(g, v_set(-a->limit), v_set(-a->limit), g);
        return a->limit > 0.0f ? v_below(v_set(a->limit), z, v_set(a->limit), z) : g;
    case GW_ACT_SILU_CAPPED:
        z = v_div(g, v_add(one, NAME(exp)(v_neg(g))));
        return a->limit > 0.0f ? v_below(v_set(a->limit), z, v_set(a->limit), z) : z;
    case GW_ACT_SIGMOID:
        return v_div(one, v_add(one, NAME(exp)(v_neg(g))));
    default: /* RELU, RELU2 */
        z = v_below(g, v_zero(), v_zero(), g);
        return kind == GW_ACT_RELU ? z : v_mul(z, z);
    }
}

VT static void NAME(act)(float *y, const float *gate, const float *up, size_t n,
                         const gw_cpu_act *a) {
    int vectors = a->kind <= GW_ACT_SWIGLU_OAI || a->kind == GW_ACT_SIGMOID ||
                  (a->kind >= GW_ACT_CLAMP && a->kind <= GW_ACT_SILU_CAPPED);
    size_t i = 0;
    for (; vectors && i + VW <= n; i += VW) {
        vf v = NAME(act_gate)(a->kind, v_load(gate + i), a);
        vf u = up != NULL ? v_load(up + i) : v;
        if (a->limit > 0.0f && gw_act_bounds_factor(a->kind)) {
            u = v_below(v_set(a->limit), u, v_set(a->limit), u);
            u = v_below(u, v_set(-a->limit), v_set(-a->limit), u);
        }
        u = a->kind == GW_ACT_SWIGLU_OAI ? v_add(u, v_set(1.0f)) : u;
        v_store(y + i, up != NULL ? v_mul(v, u) : v);
    }
    gw_cpu_ops_scalar.act(y + i, gate + i, up != NULL ? up + i : NULL, n - i, a);
}

VT static void NAME(rope)(float *y, const float *x, const float *table, size_t r, size_t e,
                          int interleaved) {
    size_t half = r / 2, i = 0;
    for (; !interleaved && i + VW <= half; i += VW) {
        vf a = v_load(x + i), b = v_load(x + half + i);
        vf c = v_load(table + i), s = v_load(table + half + i);
        v_store(y + i, v_fma(a, c, v_neg(v_mul(b, s))));
        v_store(y + half + i, v_fma(b, c, v_mul(a, s)));
    }
    for (; i < half; i++) {
        size_t at = interleaved ? 2 * i : i, to = interleaved ? at + 1 : at + half;
        float a = x[at], b = x[to];
        y[at] = gw_rope_first(a, b, table[i], table[half + i]);
        y[to] = gw_rope_second(a, b, table[i], table[half + i]);
    }
    for (i = r; i < e; i++) {
        y[i] = x[i];
    }
}

VT static void NAME(to_f16)(gw_u16 *y, const float *x, size_t n) {
    size_t i = 0;
    for (; i + VW <= n; i += VW) {
        v_to_f16(y + i, v_load(x + i));
    }
    for (; i < n; i++) {
        y[i] = gw_f32_to_f16(x[i]);
    }
}

/* The encoder of Q8_0 (core/tensor/formats.c); what is not finite or saturates goes there. */
VT static void NAME(to_q8)(gw_i8 *codes, gw_u16 *scales, const float *x, size_t n) {
    enum { J = 32 / VW };
    for (size_t b = 0; b < n / 32; b++, x += 32, codes += 32) {
        vi top = vi_zero();
        for (int j = 0; j < J; j++) {
            top = vi_max(top, vi_abs(v_load(x + j * VW)));
        }
        float amax = gw_f32_from_bits((gw_u32)vi_largest(top));
        if (!(amax < 8.0e6f)) {
            gw_cpu_ops_scalar.to_q8(codes, scales + b, x, 32);
            continue;
        }
        scales[b] = gw_f32_to_f16(amax / 127.0f);
        float d = gw_f16_to_f32(scales[b]);
        if (!(d > 0.0f)) {
            memset(codes, 0, 32);
            continue;
        }
        gw_i32 q[32];
        for (int j = 0; j < J; j++) {
            vf v = v_div(v_load(x + j * VW), v_set(d));
            v_round_store(q + j * VW, v_min(v_set(127.0f), v_max(v_set(-127.0f), v)));
        }
        for (int i = 0; i < 32; i++) {
            codes[i] = (gw_i8)q[i];
        }
    }
}

#include "cpu/attend_body.h"
#include "cpu/attend_digits_body.h"
#include "cpu/attend_codes_body.h"
#include "cpu/state_body.h"

VT static void NAME(attend)(const gw_cpu_attention *job, const gw_cpu_attention_part *part,
                            void *scratch) {
    (job->codes    ? NAME(attend_codes)
     : job->digits ? NAME(attend_digits)
                   : NAME(attend_floats))(job, part, scratch);
}

static const gw_cpu_ops NAME(ops) = {.norm = NAME(norm),
                                     .head_norm = NAME(head_norm),
                                     .sum = NAME(sum),
                                     .encode = NAME(encode),
                                     .silu_mul = NAME(silu_mul),
                                     .act = NAME(act),
                                     .rope = NAME(rope),
                                     .to_f16 = NAME(to_f16),
                                     .to_q8 = NAME(to_q8),
                                     .attend = NAME(attend),
                                     .conv = NAME(conv),
                                     .scan_delta = NAME(scan_delta),
                                     .scan_ssm = NAME(scan_ssm),
                                     .scan_steps = NAME(scan_steps),
                                     .scan_channels = NAME(scan_channels),
                                     .scan_wkv = NAME(scan_wkv),
                                     .attend_multiple = 16};
