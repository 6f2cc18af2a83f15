/* tests/linear_cases.h - inputs and checks for quantized linear kernels, whatever compiled them.
 *
 * A kernel is right when its bits equal the scalar kernel's. Outputs are poisoned with NaN and
 * fenced; the fences and the rows outside [first, end) must keep the poison.
 */
#ifndef GW_TESTS_LINEAR_CASES_H
#define GW_TESTS_LINEAR_CASES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/planes.h"
#include "cpu/linear.h"
#include "tests/random.h"

enum { FENCE = 64, POISON_BYTE = 0xff }; /* four of them are a NaN */
static const uint32_t poison = 0x7fc0beefu;

typedef enum fill { RANDOM, LOWEST, HIGHEST, ALL_BITS, ALL_ZERO, FILL_COUNT } fill;

static void *lc_alloc(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

/* Where the f16 fields of a block are; -1: none. Everything else in a block is codes and integer
 * scales, for which any byte is legal. */
static void lc_f16_fields(gw_fmt fmt, int at[2]) {
    at[0] = 0;
    at[1] = -1;
    switch (fmt) {
    case GW_FMT_Q4_1:
    case GW_FMT_Q5_1:
    case GW_FMT_Q4_K:
    case GW_FMT_Q5_K:
    case GW_FMT_INT4_G32:
    case GW_FMT_INT4_G64:
    case GW_FMT_INT4_G128:
    case GW_FMT_INT4_G256:
    case GW_FMT_BL3H_B64:
    case GW_FMT_BL2_B32:
    case GW_FMT_BL3_B32:
    case GW_FMT_BL5_B64:
    case GW_FMT_BL6_B64:
    case GW_FMT_BL8_B32:
    case GW_FMT_BL8_B64:
        at[1] = 2;
        break;
    case GW_FMT_Q2_K:
        at[0] = 80;
        at[1] = 82;
        break;
    case GW_FMT_Q3_K:
        at[0] = 108;
        break;
    case GW_FMT_Q6_K:
        at[0] = 208;
        break;
    case GW_FMT_INT8:
    case GW_FMT_MXFP4:
    case GW_FMT_IQ3_S_CODES:
    case GW_FMT_IQ3_XXS_CODES:
    case GW_FMT_IQ2_CODES:
    case GW_FMT_IQ1_CODES:
        at[0] = -1;
        break;
    default:
        break;
    }
}

static void lc_put_f16(unsigned char *p) {
    /* now and then zero, subnormal or large; always finite */
    uint32_t pick = random_u32() % 16;
    uint16_t h = gw_f32_to_f16(random_float(1.0f));
    h = pick == 0 ? 0 : pick == 1 ? (uint16_t)(random_u32() & 0x83ff) : pick == 2 ? 0x7bff : h;
    p[0] = (unsigned char)(h & 255);
    p[1] = (unsigned char)(h >> 8);
}

/* [m, k] rows as stored. */
static unsigned char *lc_weights(gw_fmt fmt, size_t m, size_t k, fill how) {
    const gw_format *f = gw_format_of(fmt);
    size_t row_bytes = f->row_header + k / f->block_elems * f->block_bytes;
    unsigned char *w = lc_alloc(m * row_bytes);
    static const int values[FILL_COUNT] = {0, 0x80, 0x7f, 0xff, 0};
    for (size_t i = 0; i < m * row_bytes; i++) {
        w[i] = (unsigned char)(how == RANDOM ? random_u32() >> 11 : (uint32_t)values[how]);
    }
    int at[2];
    lc_f16_fields(fmt, at);
    for (size_t r = 0; r < m; r++) {
        unsigned char *row = w + r * row_bytes;
        if (f->row_header > 0) {
            float scale = random_float(1.0f);
            memcpy(row, &scale, sizeof scale);
        }
        for (size_t b = 0; b < k / f->block_elems; b++) {
            unsigned char *block = row + f->row_header + b * f->block_bytes;
            if (fmt == GW_FMT_MXFP4) { /* now and then tiny or large; products stay finite */
                uint32_t pick = random_u32() % 16;
                block[0] = (unsigned char)(pick < 3 ? pick : pick == 3 ? 180 : 112 + pick);
            }
            if (fmt >= GW_FMT_IQ3_S_CODES && fmt <= GW_FMT_IQ1_CODES) { /* scales of 0 .. 31 */
                float d = random_float(1.0f);
                memcpy(block, &d, sizeof d);
                for (int j = 4; j < 20; j++) {
                    block[j] &= 31;
                }
            }
            for (int j = 0; j < 2; j++) {
                if (at[j] >= 0) {
                    lc_put_f16(block + at[j]);
                }
            }
        }
    }
    return w;
}

static gw_act8 *lc_activations(size_t n, size_t k, fill how) {
    gw_act8 *x = lc_alloc(n * (k / 32) * sizeof *x);
    for (size_t b = 0; b < n * (k / 32); b++) {
        /* neighbours of any ratio, now and then none or next to none */
        uint32_t pick = random_u32() % 16;
        float v[32], size = pick < 14 ? (float)(1 << pick % 8) : pick < 15 ? 0.0f : 0x1p-12f;
        for (int i = 0; i < 32; i++) {
            v[i] = how == LOWEST     ? -1.0f
                   : how == HIGHEST  ? 1.0f
                   : how == ALL_BITS ? (i & 1 ? -1.0f : 1.0f)
                   : how == ALL_ZERO ? 0.0f
                                     : size * random_float(1.0f);
        }
        gw_act8_encode(&x[b], v);
    }
    return x;
}

static void *lc_pack(gw_fmt fmt, const unsigned char *w, size_t m, size_t k) {
    const gw_format *f = gw_format_of(fmt);
    size_t row_bytes = f->row_header + k / f->block_elems * f->block_bytes;
    size_t strip = gw_strip_bytes(fmt, k), strips = (m + 15) / 16;
    unsigned char *packed = lc_alloc(strip * strips);
    memset(packed, POISON_BYTE, strip * strips);
    for (size_t s = 0; s < strips; s++) {
        size_t rows = m - s * 16 < 16 ? m - s * 16 : 16;
        gw_strip_pack(fmt, packed + s * strip, w + s * 16 * row_bytes, rows, k);
    }
    return packed;
}

typedef struct lc_out {
    float *all, *y; /* y [n, stride] between two fences */
    size_t count;
} lc_out;

/* NaN everywhere, but for what lies in place: NULL, or `values` floats of y. */
static void lc_poison(lc_out *o, const float *in_place, size_t values) {
    for (size_t i = 0; i < o->count; i++) {
        memcpy(&o->all[i], &poison, 4);
    }
    if (in_place != NULL) {
        memcpy(o->y, in_place, values * 4);
    }
}

static lc_out lc_new_out(size_t n, size_t stride) {
    lc_out o = {lc_alloc((n * stride + 2 * FENCE) * 4), NULL, n * stride + 2 * FENCE};
    o.y = o.all + FENCE;
    lc_poison(&o, NULL, 0);
    return o;
}

enum { BIAS = 1, RESIDUAL = 2, IN_PLACE = 4 };

/* Run into got and compare with want, bit by bit; scratch is fenced. */
static void lc_run(const gw_cpu_linear_kernel *kernel, const gw_cpu_linear *job, size_t first,
                   size_t end, const lc_out *want, const lc_out *got) {
    size_t bytes = kernel->scratch != NULL ? kernel->scratch(job->k, job->n) : 0;
    unsigned char *scratch = lc_alloc(bytes + 64);
    memset(scratch, POISON_BYTE, bytes + 64);
    kernel->run(job, first, end, scratch);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(scratch[bytes + i], POISON_BYTE);
    }
    for (size_t i = 0; i < want->count; i++) {
        if (memcmp(&want->all[i], &got->all[i], 4) != 0) {
            fail_msg("%s m %zu k %zu n %d rows %zu..%zu%s streams %d: value %zd is %a, scalar %a",
                     kernel->name, job->m, job->k, job->n, first, end,
                     job->prepared != NULL ? " prepared" : "", job->streams, (ptrdiff_t)i - FENCE,
                     (double)got->all[i], (double)want->all[i]);
        }
    }
    free(scratch);
}

/* One case: the kernel and the scalar kernel over rows [first, end), compared bit by bit. */
static void lc_check(const gw_cpu_linear_kernel *kernel, size_t m, size_t k, int n, int extras,
                     fill weights, fill acts, size_t first, size_t end) {
    size_t rows = (size_t)n, stride = m + 3, blocks = k / 32;
    unsigned char *w = lc_weights(kernel->fmt, m, k, weights);
    void *packed = kernel->strips ? lc_pack(kernel->fmt, w, m, k) : NULL;
    gw_act8 *x = lc_activations(rows, k, acts);
    float *bias = lc_alloc(m * 4), *residual = lc_alloc(rows * stride * 4);
    for (size_t i = 0; i < m; i++) {
        bias[i] = random_float(1.0f);
    }
    for (size_t i = 0; i < rows * stride; i++) {
        residual[i] = random_float(1.0f);
    }
    lc_out want = lc_new_out(rows, stride), got = lc_new_out(rows, stride);
    gw_cpu_linear job = {.w = w,
                         .m = m,
                         .k = k,
                         .x = x,
                         .x_stride = blocks * sizeof *x,
                         .n = n,
                         .y = want.y,
                         .y_stride = stride,
                         .bias = extras & BIAS ? bias : NULL,
                         .residual = extras & RESIDUAL ? residual : NULL,
                         .residual_stride = stride};
    if (extras & IN_PLACE) {
        memcpy(want.y, residual, rows * stride * 4);
        memcpy(got.y, residual, rows * stride * 4);
        job.residual = want.y;
    }
    const gw_cpu_linear_kernel *scalar =
        gw_cpu_linear_find(kernel->fmt, GW_CPU_SCALAR, kernel->prefill);
    scalar->run(&job, first, end, NULL);
    job.w = kernel->strips ? packed : w;
    job.y = got.y;
    job.residual = extras & IN_PLACE ? got.y : job.residual;
    lc_run(kernel, &job, first, end, &want, &got);
    static const int streams[] = {3, 6, GW_UNASKED};
    for (size_t i = 0; i < 3 && !kernel->prefill; i++) {
        job.streams = streams[i];
        lc_poison(&got, extras & IN_PLACE ? residual : NULL, rows * stride);
        lc_run(kernel, &job, first, end, &want, &got);
    }
    if (kernel->prepare != NULL) { /* the same from activations prepared once, in pieces */
        size_t bytes = kernel->prepared(k, n);
        unsigned char *prepared = lc_alloc(bytes + 64);
        memset(prepared, POISON_BYTE, bytes + 64);
        for (size_t at = 0; at < rows; at += GW_PREPARE_ROWS) {
            size_t stop = at + GW_PREPARE_ROWS < rows ? at + GW_PREPARE_ROWS : rows;
            kernel->prepare(&job, at, stop, prepared);
        }
        for (size_t i = 0; i < 64; i++) {
            assert_int_equal(prepared[bytes + i], POISON_BYTE);
        }
        job.prepared = prepared;
        job.next = w; /* only ever asked for early */
        lc_poison(&got, extras & IN_PLACE ? residual : NULL, rows * stride);
        lc_run(kernel, &job, first, end, &want, &got);
        free(prepared);
    }
    free(want.all);
    free(got.all);
    free(bias);
    free(residual);
    free(x);
    free(packed);
    free(w);
}

static size_t lc_k(gw_fmt fmt, size_t k) {
    size_t group = gw_format_of(fmt)->block_elems;
    return (k + group - 1) / group * group;
}

/* Kernels whose text is that of several rows for one row too: of some formats, and of RISC-V. */
static int lc_is_plain(const gw_cpu_linear_kernel *kernel) {
#define LC_PLANES(unused, FORMAT, ...) kernel->fmt == GW_FMT_##FORMAT ||
    return GW_PLANE_FORMATS(LC_PLANES, 0) kernel->level == GW_CPU_RVV;
#undef LC_PLANES
}

/* Codes and scales at their ends; every number of rows once, and a row of several turns. */
static void lc_check_plain(const gw_cpu_linear_kernel *kernel) {
    gw_fmt fmt = kernel->fmt;
    for (int weights = RANDOM; weights < FILL_COUNT; weights++) {
        lc_check(kernel, 16, lc_k(fmt, 256), 1, 0, (fill)weights, LOWEST, 0, 16);
        lc_check(kernel, 16, lc_k(fmt, 256), 5, 0, (fill)weights, HIGHEST, 0, 16);
    }
    for (int n = 1; n <= 16; n += 3) {
        lc_check(kernel, 17, lc_k(fmt, 96 * (size_t)n), n, n % 8, RANDOM, RANDOM, 0, 17);
    }
    lc_check(kernel, 41, lc_k(fmt, 2048), kernel->prefill ? 35 : 2, BIAS | RESIDUAL, RANDOM, RANDOM,
             16, 41);
}

/* The case table of one kernel. thorough: all widths on a long row too (slow under emulation). */
static void lc_check_kernel(const gw_cpu_linear_kernel *kernel, int thorough) {
    static const size_t ms[] = {1, 15, 16, 17, 48};
    static const size_t ks[] = {32, 96, 512, 1056, 2048, 5632};
    static const int prefill_n[] = {1, 3, 16, 17, 33, 65};
    gw_fmt fmt = kernel->fmt;
    size_t n_ks = sizeof ks / sizeof ks[0];
    if (lc_is_plain(kernel)) {
        lc_check_plain(kernel);
        return;
    }
    for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++) {
        for (size_t j = 0; j < n_ks; j++) {
            int n = kernel->prefill ? prefill_n[(i + j) % 6] : (int)(1 + (i * 7 + j) % 16);
            n = thorough || ks[j] <= 512 ? n : 1 + n % 3;
            lc_check(kernel, ms[i], lc_k(fmt, ks[j]), n, (int)(i + j) % 8, RANDOM, RANDOM, 0,
                     ms[i]);
        }
    }
    for (int n = 1; n <= 16; n++) {
        lc_check(kernel, 17, lc_k(fmt, 544), n, 0, RANDOM, RANDOM, 0, 17);
    }
    for (int i = 0; i < 6; i++) {
        lc_check(kernel, 17, lc_k(fmt, 96), kernel->prefill ? prefill_n[i] : 1 + 3 * i, BIAS,
                 RANDOM, RANDOM, 0, 17);
    }
    for (int weights = RANDOM; weights < FILL_COUNT; weights++) {
        for (int acts = RANDOM; acts < FILL_COUNT; acts++) {
            if (!thorough && acts != weights) {
                continue; /* values of other bits, by the same path */
            }
            lc_check(kernel, 16, lc_k(fmt, 512), 1, 0, (fill)weights, (fill)acts, 0, 16);
            lc_check(kernel, 16, lc_k(fmt, 256), 2, 0, (fill)weights, (fill)acts, 0, 16);
            lc_check(kernel, 16, lc_k(fmt, 256), 16, 0, (fill)weights, (fill)acts, 0, 16);
            if (kernel->prefill) {
                lc_check(kernel, 32, lc_k(fmt, 256), 35, 0, (fill)weights, (fill)acts, 0, 32);
            }
        }
    }
    for (size_t j = 0; j < n_ks && !kernel->prefill; j++) { /* one row: parts of 1 .. 6 segments */
        lc_check(kernel, 219, lc_k(fmt, ks[j]), 1, BIAS, RANDOM, RANDOM, 0, 219);
        lc_check(kernel, 41, lc_k(fmt, ks[j] + 1536), 1, 0, RANDOM, RANDOM, 16, 41);
    }
    for (int n = 1; n <= 4 && !kernel->prefill; n++) { /* parts of 2, 3 and 5 strips, one shorter */
        lc_check(kernel, 219, lc_k(fmt, 96), n, RESIDUAL, RANDOM, RANDOM, 0, 219);
        lc_check(kernel, 219, lc_k(fmt, 512), n, 0, RANDOM, RANDOM, 32, 208);
    }
    lc_check(kernel, 48, lc_k(fmt, 512), 3, 0, RANDOM, RANDOM, 16, 32);
    lc_check(kernel, 41, lc_k(fmt, 512), 5, BIAS | RESIDUAL, RANDOM, RANDOM, 32, 41);
    lc_check(kernel, 48, lc_k(fmt, 512), 5, IN_PLACE, RANDOM, RANDOM, 16, 16);
    if (kernel->prefill && thorough) { /* more rows than one chunk of activations */
        lc_check(kernel, 33, lc_k(fmt, 5632), 150, 0, RANDOM, RANDOM, 0, 33);
    }
}

#endif
