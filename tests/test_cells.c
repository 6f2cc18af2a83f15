/* tests/test_cells.c - caches in 4 and 5 bits: the rotation against its matrix, codes against the
 * nearest numbers, pages against their layout in words (docs/arithmetic.md, section 5, "KV cache").
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/formats.h"
#include "cpu/cells.h"
#include "tests/random.h"

enum { MOST = 576 };

static void fill(float *x, int n) {
    for (int i = 0; i < n; i++) {
        x[i] = random_float(1.0f) * (i % 7 == 0 ? 9.0f : 1.0f);
    }
}

static void test_rotation(void **state) {
    (void)state;
    static const int widths[][2] = {{32, 32},   {64, 64},  {128, 128}, {256, 256}, {512, 256},
                                    {576, 64}, {96, 32}, {192, 64},  {160, 32}};
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        int n = widths[w][0], width = gw_cells_width(n);
        float x[MOST], y[MOST], again[MOST];
        assert_int_equal(width, widths[w][1]);
        fill(x, n);
        memcpy(y, x, sizeof y);
        gw_cpu_rotate(y, (size_t)n, (size_t)width);
        for (int i = 0; i < n; i++) {
            double sum = 0.0, size = 0.0;
            for (int k = 0; k < width; k++) {
                int minus = __builtin_popcount((unsigned)(i % width & k)) % 2;
                double of = (double)x[i / width * width + k] / sqrt((double)width);
                sum += minus ? -of : of;
                size += fabs(of);
            }
            assert_true(fabs(y[i] - sum) <= 1e-6 * size);
        }
        memcpy(again, y, sizeof again);
        gw_cpu_rotate(again, (size_t)n, (size_t)width);
        for (int i = 0; i < n; i++) {
            assert_true(fabsf(again[i] - x[i]) <= 2e-5f);
        }
        memcpy(again, x, sizeof again);
        for (int at = 0; at < n; at += width) { /* what kernels of devices share */
            gw_cells_mix(again + at, width);
        }
        assert_memory_equal(again, y, (size_t)n * sizeof *y);
    }
}

/* Value i of position j of a page, by the words of the page of arithmetic. */
static void stored(const unsigned char *page, int bits, int e, int is_k, int j, int i, int *code,
                   float *d) {
    const unsigned char *fifth = page + 32 * e, *scales = page + 8 * e * bits;
    int byte = is_k ? 64 * (i / 2) + j : e / 2 * j + i / 2;
    int eight = is_k ? 64 * (i / 8) + j : e / 8 * j + i / 8;
    int block = is_k ? 64 * (i / 32) + j : e / 32 * j + i / 32;
    gw_u16 half;
    *code = i % 2 ? page[byte] >> 4 : page[byte] & 15;
    *code += bits == 5 ? 16 * (fifth[eight] >> i % 8 & 1) : 0;
    *code -= bits == 5 ? 16 : 8;
    memcpy(&half, scales + 2 * block, sizeof half);
    *d = gw_f16_to_f32(half);
}

static void check_pages(int bits, int e, int is_k) {
    size_t bytes;
    gw_fmt fmt = bits == 4 ? GW_FMT_Q4_0 : GW_FMT_Q5_0;
    assert_int_equal(gw_row_bytes(fmt, (uint64_t)(GW_PAGE * e), &bytes), GW_OK);
    unsigned char *page = malloc(bytes);
    float *x = malloc(sizeof *x * GW_PAGE * (size_t)e), *room;
    room = malloc(sizeof *room * GW_CPU_CELLS_ROOM(e));
    assert_true(page != NULL && x != NULL && room != NULL);
    memset(page, 0xff, bytes);
    fill(x, GW_PAGE * e);
    for (int j = GW_PAGE; j-- > 0;) { /* in any order: no byte is of two positions */
        gw_cpu_pack(page, bits, (size_t)e, is_k, (size_t)j, x + j * e);
    }
    const gw_i8 *codes = gw_cpu_unpack(room, page, bits, (size_t)e, is_k);
    const gw_u16 *scales = (const gw_u16 *)(const void *)(codes + GW_PAGE * e);
    int least = bits == 4 ? -8 : -16, most = -least - 1;
    for (int j = 0; j < GW_PAGE; j++) {
        for (int i = 0; i < e; i++) {
            int code, lowest = 0;
            float d, at = x[j * e + i], peak = 0.0f;
            stored(page, bits, e, is_k, j, i, &code, &d);
            for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++) {
                peak = fabsf(x[j * e + k]) > fabsf(peak) ? x[j * e + k] : peak;
                lowest = k == i && x[j * e + k] == peak;
            }
            assert_int_equal(gw_f32_to_f16(d), gw_f32_to_f16(peak / (float)least));
            assert_true(!lowest || code == least);
            assert_true(code >= least && code <= most);
            double off = fabs((double)at - (double)d * code);
            assert_true(off <= 0.5 * fabs((double)d) * 1.0001 || code == most || code == least);
            assert_true(off <= 1.01 * fabs((double)d));
            assert_int_equal(codes[is_k ? i * GW_PAGE + j : j * e + i], code);
            assert_int_equal(
                scales[is_k ? i / 32 * GW_PAGE + j : j * (e / 32) + i / 32], gw_f32_to_f16(d));
        }
    }
    free(page);
    free(x);
    free(room);
}

static void test_pages(void **state) {
    (void)state;
    static const int widths[] = {32, 64, 96, 128, 256, 576};
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        for (int form = 0; form < 4; form++) {
            check_pages(4 + form / 2, widths[w], form % 2);
        }
    }
}

/* What is not finite makes its block NaN; zeros stay zeros; scales do not overflow. */
static void test_odd_blocks(void **state) {
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    unsigned char page[GW_PAGE * 64 / 32 * 22];
    float x[64], d;
    int code;
    for (int bits = 4; bits <= 5; bits++) {
        for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++) {
            fill(x, 64);
            x[40] = odd[o];
            gw_cpu_pack(page, bits, 64, 1, 5, x);
            stored(page, bits, 64, 1, 5, 35, &code, &d);
            assert_true(isnan(d));
            stored(page, bits, 64, 1, 5, 3, &code, &d);
            assert_true(isfinite(d));
        }
        memset(x, 0, sizeof x);
        x[32] = -3e38f;
        gw_cpu_pack(page, bits, 64, 0, 63, x);
        stored(page, bits, 64, 0, 63, 7, &code, &d);
        assert_true(d == 0.0f && code == 0);
        stored(page, bits, 64, 0, 63, 32, &code, &d);
        assert_true(d == 65504.0f && code == (bits == 4 ? -8 : -16));
        x[32] = 1e-9f; /* below what a scale can say */
        gw_cpu_pack(page, bits, 64, 0, 0, x);
        stored(page, bits, 64, 0, 0, 32, &code, &d);
        assert_true(d == 0.0f && code == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_odd_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
