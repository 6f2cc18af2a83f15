/* tests/test_linear.c - y = x W^T for quantized weights: every kernel that this CPU runs equals the
 * scalar one bit for bit; the scalar one is within its rounding bound of a double evaluation. */
#include "cpu/linear_float.h"
#include "cpu/strip.h"
#include "tests/linear_cases.h"
#include "tests/sanitized.h"

static int is_quantized(gw_fmt fmt) { return gw_format_of(fmt)->term != NULL; }

static void kernels_equal_scalar(void **state) {
    (void)state;
    size_t count;
    const gw_cpu_linear_kernel *k = gw_cpu_linear_kernels(&count);
    int skipped[GW_CPU_LEVEL_COUNT] = {0}, checked = 0;
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (!is_quantized(k[i].fmt) || k[i].level == GW_CPU_SCALAR) {
            continue;
        }
        if (!gw_cpu_level_runs(k[i].level)) {
            skipped[k[i].level]++;
            continue;
        }
        lc_check_kernel(&k[i], !TEST_SANITIZED);
        checked++;
    }
    for (int level = 0; level < GW_CPU_LEVEL_COUNT; level++) {
        if (skipped[level] > 0) {
            print_message("SKIP %d kernels: this CPU lacks %s\n", skipped[level],
                          gw_cpu_level_name((gw_cpu_level)level));
        }
    }
    print_message("%d kernels checked\n", checked);
    if (checked == 0) {
        skip();
    }
}

/* Float weights read from several places in turn; test_ops holds one stream against the scalar. */
static void streams_of_floats_are_equal(void **state) {
    (void)state;
    enum { M = 41, K = 1100, MOST = 16 };
    size_t count;
    const gw_cpu_linear_kernel *kernels = gw_cpu_linear_float_kernels(&count);
    float *x = lc_alloc(MOST * K * 4), y[2][MOST * M];
    unsigned char *w = lc_alloc(M * K * 4);
    for (size_t i = 0; i < MOST * K; i++) {
        x[i] = random_float(1.0f);
    }
    for (size_t i = 0; i < M * K * 2; i++) { /* finite and normal as f16, bf16 and f32 */
        gw_u16 bits = (gw_u16)((random_u32() & 0x83ff) | 0x3800);
        memcpy(w + 2 * i, &bits, 2);
    }
    for (size_t i = 0; i < count; i++) {
        const gw_cpu_linear_kernel *k = &kernels[i];
        if (k->prefill || !gw_cpu_level_runs(k->level)) {
            continue;
        }
        gw_cpu_linear job = {.w = w, .m = M, .k = K, .x = x, .x_stride = K * 4, .y_stride = M};
        size_t bytes = k->scratch != NULL ? k->scratch(K, MOST) : 0;
        void *scratch = lc_alloc(bytes);
        for (int c = 0; c < MOST * 7; c++) {
            const int streams = c % 7 == 6 ? GW_UNASKED : 1 + c % 7 * 3, several = streams != 1;
            job.n = 1 + c / 7;
            job.streams = streams;
            job.y = y[several];
            memset(job.y, POISON_BYTE, sizeof y[0]);
            k->run(&job, 0, M, scratch);
            if (memcmp(y[0], y[several], sizeof y[0]) != 0) {
                fail_msg("%s: %d rows from %d streams differ from one", k->name, job.n, streams);
            }
        }
        free(scratch);
    }
    free(x);
    free(w);
}

static void spans_are_those_of_the_formats(void **state) {
    (void)state;
    for (int fmt = 0; fmt < GW_FMT_COUNT; fmt++) {
        if (is_quantized((gw_fmt)fmt)) {
            assert_int_equal(GW_STRIP_SPAN(fmt), gw_format_of((gw_fmt)fmt)->span);
        }
    }
}

static void spans_of_prompts_are_those_of_the_formats(void **state) {
    (void)state;
#define CHECK(name, NAME, weights, bytes, head)                                                    \
    assert_int_equal(GW_STRIP_SCALED_##name ? GW_ACT_SPAN : GW_STRIP_SPAN(GW_FMT_##NAME),          \
                     gw_format_of(GW_FMT_##NAME)->prompt_span);
    GW_STRIP_FORMATS(CHECK)
#undef CHECK
}

static void every_format_has_both_orders(void **state) {
    (void)state;
    for (int fmt = 0; fmt < GW_FMT_COUNT; fmt++) {
        if (!is_quantized((gw_fmt)fmt)) {
            continue;
        }
        for (int level = 0; level < GW_CPU_LEVEL_COUNT; level++) {
            for (int prefill = 0; prefill < 2; prefill++) {
                const gw_cpu_linear_kernel *k =
                    gw_cpu_linear_find((gw_fmt)fmt, (gw_cpu_level)level, prefill);
                assert_non_null(k);
                assert_int_equal(k->fmt, fmt);
                assert_int_equal(k->prefill, prefill);
                assert_true(k->level == (gw_cpu_level)level || k->level == GW_CPU_SCALAR);
            }
        }
    }
}

/* What block b has in its term, in double: value, and the sum of magnitudes that rounding scales
 * with. Parts are read off through the term itself with unit activations (which it handles
 * exactly), the value through the format's decode. */
static void block_in_double(const gw_format *f, int prefill, const void *row, size_t b,
                            const float *w, const gw_act8 *x, double *value, double *size) {
    const size_t span = prefill ? f->prompt_span : f->span, first = b - b % span;
    float (*term)(const void *, size_t, const gw_act8 *, float) =
        prefill ? f->prompt_term : f->term;
    gw_act8 units[GW_ACT_SPAN] = {{1.0f, {0, 0}, {0}}}, *unit = &units[b % span];
    for (int i = 0; i < 32; i++) {
        unit->q[i] = 1;
        double part = (double)term(row, first, units, 0.0f) * x->q[i] * (double)x->scale;
        unit->q[i] = 0;
        *value += (double)w[b * 32 + (size_t)i] * x->q[i] * (double)x->scale;
        *size += part < 0 ? -part : part;
    }
    for (int h = 0; h < 2; h++) {
        unit->sum[h] = 1;
        double part = (double)term(row, first, units, 0.0f) * x->sum[h] * (double)x->scale;
        unit->sum[h] = 0;
        *size += part < 0 ? -part : part;
    }
}

/* A chain of at most 2 blocks fused steps (or a shorter one and five joins), the products ws * dx
 * and dx * sum, and the rounding of each decoded weight: (2 blocks + 8) half-ulps of the sum of
 * magnitudes, doubled where a weight cancels (code part against minimum). */
static void scalar_is_accurate(void **state) {
    (void)state;
    const size_t m = 5, n = 3;
    for (int fmt = 0; fmt < GW_FMT_COUNT; fmt++) {
        const gw_format *f = gw_format_of((gw_fmt)fmt);
        if (!is_quantized((gw_fmt)fmt)) {
            continue;
        }
        const size_t k = 2048, blocks = k / 32;
        const size_t row_bytes = f->row_header + k / f->block_elems * f->block_bytes;
        unsigned char *w = lc_weights((gw_fmt)fmt, m, k, RANDOM);
        gw_act8 *x = lc_activations(n, k, RANDOM);
        float *decoded = lc_alloc(k * 4), y[2][15];
        gw_cpu_linear job = {.w = w,
                             .m = m,
                             .k = k,
                             .x = x,
                             .x_stride = blocks * sizeof *x,
                             .n = (int)n,
                             .y_stride = m};
        for (int prefill = 0; prefill < 2; prefill++) {
            const size_t span = prefill ? f->prompt_span : f->span;
            job.y = y[prefill];
            gw_cpu_linear_find((gw_fmt)fmt, GW_CPU_SCALAR, prefill)->run(&job, 0, m, NULL);
            for (size_t b = 0; span > 1 && b < n * blocks; b += span) {
                gw_act8_span(x + b, x + b); /* once more changes nothing */
            }
            for (size_t r = 0; r < m; r++) {
                f->decode(decoded, w + r * row_bytes, k);
                for (size_t i = 0; i < n; i++) {
                    double value = 0, size = 0;
                    for (size_t b = 0; b < blocks; b++) {
                        block_in_double(f, prefill, w + r * row_bytes, b, decoded,
                                        x + i * blocks + b, &value, &size);
                    }
                    double bound = (double)(2 * blocks + 16) * 0x1p-24 * size + 1e-30;
                    double error = (double)y[prefill][i * m + r] - value;
                    if (!(error <= bound && -error <= bound)) {
                        fail_msg("%s prefill %d row %zu: off by %g, bound %g", f->name, prefill, r,
                                 error, bound);
                    }
                }
            }
        }
        free(decoded);
        free(x);
        free(w);
    }
}

static void packing_is_complete(void **state) {
    (void)state;
    for (int fmt = 0; fmt < GW_FMT_COUNT; fmt++) {
        if (!is_quantized((gw_fmt)fmt)) {
            continue;
        }
        const gw_format *f = gw_format_of((gw_fmt)fmt);
        const size_t k = lc_k((gw_fmt)fmt, 768), strip = gw_strip_bytes((gw_fmt)fmt, k);
        int nibbles = fmt == GW_FMT_BL3H_B64; /* its codes lie apart */
        assert_int_equal(strip, 16 * (f->row_header +
                                      k / f->block_elems * (f->block_bytes + (nibbles ? 4 : 0))));
        unsigned char *w = lc_weights((gw_fmt)fmt, 16, k, RANDOM);
        unsigned char *a = lc_alloc(strip + 64), *b = lc_alloc(strip + 64);
        memset(a, 0x11, strip + 64);
        memset(b, 0xee, strip + 64);
        gw_strip_pack((gw_fmt)fmt, a, w, 16, k);
        gw_strip_pack((gw_fmt)fmt, b, w, 16, k);
        assert_true(memcmp(a, b, strip) == 0); /* every byte is written, always the same */
        for (size_t i = 0; i < 64; i++) {
            assert_int_equal(a[strip + i], 0x11);
        }
        size_t bits[2] = {0, 0}; /* and no bit of the file is lost */
        for (size_t i = 0; i < strip && !nibbles; i++) {
            bits[0] += (size_t)__builtin_popcount(w[i]);
            bits[1] += (size_t)__builtin_popcount(a[i]);
        }
        assert_int_equal(bits[0], bits[1]);
        gw_strip_pack((gw_fmt)fmt, a, w, 3, k);
        size_t zero_rows = 0;
        for (size_t i = 0; i < strip; i++) {
            zero_rows += a[i] == 0;
        }
        assert_true(zero_rows >= strip / 16 * 13);
        free(a);
        free(b);
        free(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_those_of_the_formats),
        cmocka_unit_test(spans_of_prompts_are_those_of_the_formats),
        cmocka_unit_test(every_format_has_both_orders),
        cmocka_unit_test(packing_is_complete),
        cmocka_unit_test(scalar_is_accurate),
        cmocka_unit_test(streams_of_floats_are_equal),
        cmocka_unit_test(kernels_equal_scalar),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
