/* cpu/peak_body.h - the float loops of cpu/peak.h. Template: cpu/vec.h. */

enum { NAME(CHAINS) = 12 };

VT static float NAME(f32_peak)(uint64_t rounds) {
    vf sum[NAME(CHAINS)];
    float start = rounds == UINT64_MAX ? 2.0f : 0.999f; /* not a constant to the compiler */
    vf a = v_set(start), b = v_set(1e-3f);
    for (int i = 0; i < NAME(CHAINS); i++) {
        sum[i] = v_set((float)i);
    }
    for (uint64_t r = 0; r < rounds; r++) {
        GW_UNROLL
        for (int i = 0; i < NAME(CHAINS); i++) {
            sum[i] = v_fma(sum[i], a, b);
        }
    }
    for (int i = 1; i < NAME(CHAINS); i++) {
        sum[0] = v_add(sum[0], sum[i]);
    }
    return v_fold(sum[0]);
}

/* ahead: floats between a load and the line asked for with it; 0: left to the processor. */
GW_INLINE VT float NAME(read_streams)(const int streams, const size_t ahead, const float *data,
                                      size_t bytes) {
    enum { LINE = 16, STEP = 2 * LINE };
    size_t n = bytes / sizeof(float) / (size_t)streams;
    vf top[8];
    for (int s = 0; s < 8; s++) {
        top[s] = v_zero();
    }
    for (size_t i = 0; i < n; i += STEP) {
        GW_UNROLL
        for (int s = 0; s < streams; s++) {
            const float *at = data + (size_t)s * n + i;
            if (ahead > 0) {
                __builtin_prefetch(at + ahead, 0, 3);
                __builtin_prefetch(at + ahead + LINE, 0, 3);
            }
            GW_UNROLL
            for (int j = 0; j < STEP; j += VW) {
                int chain = streams == 1 ? j / VW % 4 : s;
                top[chain] = v_max(v_load(at + j), top[chain]);
            }
        }
    }
    for (int s = 1; s < 8; s++) {
        top[0] = v_max(top[0], top[s]);
    }
    return v_largest(top[0]);
}

VT static float NAME(read_peak)(const float *data, size_t bytes, int way) {
    switch (way) {
    case 0:
        return NAME(read_streams)(4, 512, data, bytes);
    case 1:
        return NAME(read_streams)(4, 128, data, bytes);
    case 2:
        return NAME(read_streams)(1, 0, data, bytes);
    case 3:
        return NAME(read_streams)(8, 0, data, bytes);
    default:
        return NAME(read_streams)(8, 1024, data, bytes);
    }
}
