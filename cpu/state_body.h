/* cpu/state_body.h - CONV and SCAN of cpu/ops.h on vectors of columns. Template: cpu/vec.h. */

VT static void NAME(conv)(float *y, const float *const *x, const float *w, const float *bias,
                          const gw_cpu_conv *c, size_t from, size_t n) {
    size_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf sum = v_zero();
        for (int t = 0; t < c->taps; t++) {
            sum = v_fma(v_load(w + (size_t)t * c->width + from + i), v_load(x[t] + from + i), sum);
        }
        v_store(y + i, bias != NULL ? v_add(sum, v_load(bias + from + i)) : sum);
    }
    if (i < n) {
        gw_cpu_ops_scalar.conv(y + i, x, w, bias, c, from + i, n - i);
    }
}

/* Columns [c, c + vecs * VW) of a memory: neighbours together, so that it is read row by row and
 * chains do not wait for themselves. */
enum { NAME(SCAN_VECS) = 4 };
GW_INLINE VT void NAME(delta_columns)(const int vecs, float *y, float *to, const float *from,
                                      const gw_cpu_scan *s, size_t c) {
    const size_t width = s->width;
    vf known[NAME(SCAN_VECS)], u[NAME(SCAN_VECS)], out[NAME(SCAN_VECS)];
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        known[i] = out[i] = v_zero();
    }
    for (size_t j = 0; j < s->keys; j++) {
        const vf d = v_set(s->d[j * s->d_step]), k = v_set(s->k[j]);
        const float *m = from + j * width + c;
        GW_UNROLL
        for (int i = 0; i < vecs; i++) {
            known[i] = v_fma(k, v_mul(v_load(m + i * VW), d), known[i]);
        }
    }
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        u[i] = v_mul(v_sub(v_load(s->v + c + i * VW), known[i]), v_set(s->beta));
    }
    for (size_t j = 0; j < s->keys; j++) {
        const vf d = v_set(s->d[j * s->d_step]), k = v_set(s->k[j]), q = v_set(s->q[j]);
        const size_t at = j * width + c;
        GW_UNROLL
        for (int i = 0; i < vecs; i++) {
            vf m = v_fma(k, u[i], v_mul(v_load(from + at + i * VW), d));
            v_store(to + at + i * VW, m);
            out[i] = v_fma(q, m, out[i]);
        }
    }
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        v_store(y + c + i * VW, out[i]);
    }
}

VT static void NAME(scan_delta)(float *y, float *to, const float *from, const gw_cpu_scan *s,
                                size_t n) {
    size_t c = 0;
    for (; c + NAME(SCAN_VECS) * VW <= n; c += NAME(SCAN_VECS) * VW) {
        NAME(delta_columns)(NAME(SCAN_VECS), y, to, from, s, c);
    }
    for (; c + VW <= n; c += VW) {
        NAME(delta_columns)(1, y, to, from, s, c);
    }
    if (c < n) {
        gw_cpu_scan rest = *s;
        rest.v += c;
        gw_cpu_ops_scalar.scan_delta(y + c, to + c, from + c, &rest, n - c);
    }
}

GW_INLINE VT void NAME(ssm_columns)(const int vecs, float *y, float *to, const float *from,
                                    const gw_cpu_scan *s, size_t c) {
    const vf d = v_set(s->d[0]), t = v_set(s->beta);
    vf u[NAME(SCAN_VECS)], out[NAME(SCAN_VECS)];
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        u[i] = v_mul(t, v_load(s->v + c + i * VW));
        out[i] = v_zero();
    }
    for (size_t j = 0; j < s->keys; j++) {
        const vf k = v_set(s->k[j]), q = v_set(s->q[j]);
        const size_t at = j * s->width + c;
        GW_UNROLL
        for (int i = 0; i < vecs; i++) {
            vf m = v_fma(k, u[i], v_mul(v_load(from + at + i * VW), d));
            v_store(to + at + i * VW, m);
            out[i] = v_fma(q, m, out[i]);
        }
    }
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        v_store(y + c + i * VW, v_fma(v_set(s->skip), v_load(s->v + c + i * VW), out[i]));
    }
}

VT static void NAME(scan_ssm)(float *y, float *to, const float *from, const gw_cpu_scan *s,
                              size_t n) {
    size_t c = 0;
    for (; c + NAME(SCAN_VECS) * VW <= n; c += NAME(SCAN_VECS) * VW) {
        NAME(ssm_columns)(NAME(SCAN_VECS), y, to, from, s, c);
    }
    for (; c + VW <= n; c += VW) {
        NAME(ssm_columns)(1, y, to, from, s, c);
    }
    if (c < n) {
        gw_cpu_scan rest = *s;
        rest.v += c;
        gw_cpu_ops_scalar.scan_ssm(y + c, to + c, from + c, &rest, n - c);
    }
}

/* gw_softplus, step for step: 1 + t is in [1, 2], where gw_log has one exponent or the next. */
GW_INLINE VT vf NAME(softplus)(vf x) {
    const vf one = v_set(1.0f), t = NAME(exp)(v_neg(v_abs(x))), w = v_add(one, t);
    const vf half = v_mul(w, v_set(0.5f)), edge = v_set(0.707106781186547524f);
    const vf e = v_below(half, edge, v_zero(), one);
    const vf m = v_sub(v_below(half, edge, w, half), one), z = v_mul(m, m);
    vf p = v_fma(v_set(7.0376836292e-2f), m, v_set(-1.1514610310e-1f));
    p = v_fma(p, m, v_set(1.1676998740e-1f));
    p = v_fma(p, m, v_set(-1.2420140846e-1f));
    p = v_fma(p, m, v_set(1.4249322787e-1f));
    p = v_fma(p, m, v_set(-1.6668057665e-1f));
    p = v_fma(p, m, v_set(2.0000714765e-1f));
    p = v_fma(p, m, v_set(-2.4999993993e-1f));
    p = v_fma(p, m, v_set(3.3333331174e-1f));
    vf y = v_fma(e, v_set(-2.12194440e-4f), v_mul(v_mul(m, z), p));
    y = v_fma(z, v_set(-0.5f), y);
    y = v_fma(e, v_set(0.693359375f), v_add(m, y));
    y = v_add(y, v_div(v_sub(t, v_sub(w, one)), w));
    return v_add(v_below(v_zero(), x, x, v_zero()), y);
}

VT static void NAME(scan_steps)(float *t, const float *x, const float *bias, size_t n, float low,
                                float high) {
    size_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf v = v_load(x + i);
        v = NAME(softplus)(bias != NULL ? v_add(v, v_load(bias + i)) : v);
        v = v_below(v_set(high), v, v_set(high), v);
        v_store(t + i, v_below(v, v_set(low), v_set(low), v));
    }
    gw_cpu_ops_scalar.scan_steps(t + i, x + i, bias != NULL ? bias + i : NULL, n - i, low, high);
}

GW_INLINE VT void NAME(ssm_channels)(const int vecs, float *y, float *to, const float *from,
                                     const gw_cpu_scan *s, size_t c) {
    vf t[NAME(SCAN_VECS)], u[NAME(SCAN_VECS)], out[NAME(SCAN_VECS)], d[NAME(SCAN_VECS)];
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        t[i] = v_load(s->steps + c + i * VW);
        u[i] = v_mul(t[i], v_load(s->v + c + i * VW));
        out[i] = v_zero();
    }
    for (size_t j = 0; j < s->keys; j++) {
        const vf k = v_set(s->k[j]), q = v_set(s->q[j]);
        const size_t at = j * s->width + c;
        GW_UNROLL
        for (int i = 0; i < vecs; i++) {
            d[i] = v_mul(t[i], v_load(s->d + at + i * VW));
        }
        NAME(exp_all)(d, vecs);
        GW_UNROLL
        for (int i = 0; i < vecs; i++) {
            vf m = v_fma(k, u[i], v_mul(v_load(from + at + i * VW), d[i]));
            v_store(to + at + i * VW, m);
            out[i] = v_fma(q, m, out[i]);
        }
    }
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        const size_t at = c + (size_t)(i * VW);
        v_store(y + at, v_fma(v_load(s->skips + at), v_load(s->v + at), out[i]));
    }
}

VT static void NAME(scan_channels)(float *y, float *to, const float *from, const gw_cpu_scan *s,
                                   size_t n) {
    size_t c = 0;
    for (; c + NAME(SCAN_VECS) * VW <= n; c += NAME(SCAN_VECS) * VW) {
        NAME(ssm_channels)(NAME(SCAN_VECS), y, to, from, s, c);
    }
    for (; c + VW <= n; c += VW) {
        NAME(ssm_channels)(1, y, to, from, s, c);
    }
    if (c < n) {
        gw_cpu_scan rest = *s;
        rest.v += c;
        rest.d += c;
        rest.steps += c;
        rest.skips += c;
        gw_cpu_ops_scalar.scan_channels(y + c, to + c, from + c, &rest, n - c);
    }
}

GW_INLINE VT void NAME(wkv_columns)(const int vecs, float *y, float *to, const float *from,
                                    const gw_cpu_scan *s, size_t c) {
    const size_t width = s->width;
    vf known[NAME(SCAN_VECS)], v[NAME(SCAN_VECS)], out[NAME(SCAN_VECS)];
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        known[i] = out[i] = v_zero();
        v[i] = v_load(s->v + c + i * VW);
    }
    for (size_t j = 0; j < s->keys; j++) {
        const vf e = v_set(s->e[j]);
        GW_UNROLL
        for (int i = 0; i < vecs; i++) {
            known[i] = v_fma(e, v_load(from + j * width + c + i * VW), known[i]);
        }
    }
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        known[i] = v_neg(known[i]);
    }
    for (size_t j = 0; j < s->keys; j++) {
        const vf d = v_set(s->d[j]), k = v_set(s->k[j]), q = v_set(s->q[j]), b = v_set(s->b[j]);
        const size_t at = j * width + c;
        GW_UNROLL
        for (int i = 0; i < vecs; i++) {
            vf m = v_fma(b, known[i], v_mul(v_load(from + at + i * VW), d));
            m = v_fma(k, v[i], m);
            v_store(to + at + i * VW, m);
            out[i] = v_fma(q, m, out[i]);
        }
    }
    GW_UNROLL
    for (int i = 0; i < vecs; i++) {
        v_store(y + c + i * VW, out[i]);
    }
}

VT static void NAME(scan_wkv)(float *y, float *to, const float *from, const gw_cpu_scan *s,
                              size_t n) {
    size_t c = 0;
    for (; c + NAME(SCAN_VECS) * VW <= n; c += NAME(SCAN_VECS) * VW) {
        NAME(wkv_columns)(NAME(SCAN_VECS), y, to, from, s, c);
    }
    for (; c + VW <= n; c += VW) {
        NAME(wkv_columns)(1, y, to, from, s, c);
    }
    if (c < n) {
        gw_cpu_scan rest = *s;
        rest.v += c;
        gw_cpu_ops_scalar.scan_wkv(y + c, to + c, from + c, &rest, n - c);
    }
}
