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

VT static void NAME(scan_delta)(float *y, float *to, const float *from, const gw_cpu_scan *s,
                                size_t n) {
    size_t c = 0, width = s->width;
    for (; c + VW <= n; c += VW) {
        vf known = v_zero(), out = v_zero();
        for (size_t j = 0; j < s->keys; j++) {
            vf d = v_set(s->d[j * s->d_step]);
            known = v_fma(v_set(s->k[j]), v_mul(v_load(from + j * width + c), d), known);
        }
        vf u = v_mul(v_sub(v_load(s->v + c), known), v_set(s->beta));
        for (size_t j = 0; j < s->keys; j++) {
            vf d = v_set(s->d[j * s->d_step]);
            vf m = v_fma(v_set(s->k[j]), u, v_mul(v_load(from + j * width + c), d));
            v_store(to + j * width + c, m);
            out = v_fma(v_set(s->q[j]), m, out);
        }
        v_store(y + c, out);
    }
    if (c < n) {
        gw_cpu_scan rest = *s;
        rest.v += c;
        gw_cpu_ops_scalar.scan_delta(y + c, to + c, from + c, &rest, n - c);
    }
}

VT static void NAME(scan_ssm)(float *y, float *to, const float *from, const gw_cpu_scan *s,
                              size_t n) {
    size_t c = 0, width = s->width;
    for (; c + VW <= n; c += VW) {
        vf x = v_load(s->v + c), u = v_mul(v_set(s->beta), x), out = v_zero(), d = v_set(s->d[0]);
        for (size_t j = 0; j < s->keys; j++) {
            vf m = v_fma(v_set(s->k[j]), u, v_mul(v_load(from + j * width + c), d));
            v_store(to + j * width + c, m);
            out = v_fma(v_set(s->q[j]), m, out);
        }
        v_store(y + c, v_fma(v_set(s->skip), x, out));
    }
    if (c < n) {
        gw_cpu_scan rest = *s;
        rest.v += c;
        gw_cpu_ops_scalar.scan_ssm(y + c, to + c, from + c, &rest, n - c);
    }
}
