/* tests/test_encode.c - the encoders of formats.c: known bytes, ties, bounds, groups without a
 * scale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/tensor/formats.h"
#include "tests/format_readings.h"

enum { GUARD = 16, MAX_COLS = 256 };

/* Encode [cols] into a fenced, poisoned row; twice, from different poison: every byte is written.
 */
static void encode_row(gw_fmt fmt, const float *src, size_t cols, uint8_t *row) {
    uint8_t room[2][GUARD + MAX_COLS * 4 + GUARD];
    size_t bytes;
    assert_int_equal(gw_row_bytes(fmt, cols, &bytes), GW_OK);
    for (int i = 0; i < 2; i++) {
        memset(room[i], i ? 0xa5 : 0x5a, sizeof room[i]);
        gw_format_of(fmt)->encode(room[i] + GUARD, src, cols);
        assert_int_equal(room[i][GUARD - 1], i ? 0xa5 : 0x5a);
        assert_int_equal(room[i][GUARD + bytes], i ? 0xa5 : 0x5a);
    }
    assert_memory_equal(room[0] + GUARD, room[1] + GUARD, bytes);
    memcpy(row, room[0] + GUARD, bytes);
}

static void known_bytes(void **state) {
    (void)state;
    /* Scale 1 everywhere; ties go to the even code, both signs. */
    static const float ties[8] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 3.49999976f, 3.5f};
    static const int even[8] = {0, 2, 2, 0, -2, -2, 3, 4};
    float src[32] = {0};
    uint8_t row[256];
    memcpy(src, ties, sizeof ties);

    src[31] = -127.0f;
    encode_row(GW_FMT_INT8, src, 32, row);
    assert_memory_equal(row, "\x00\x00\x80\x3f", 4);
    encode_row(GW_FMT_Q8_0, src, 32, row + 64);
    assert_memory_equal(row + 64, "\x00\x3c", 2);
    for (int i = 0; i < 8; i++) {
        assert_int_equal((int8_t)row[4 + i], even[i]);
        assert_int_equal((int8_t)row[66 + i], even[i]);
    }
    assert_int_equal((int8_t)row[35], -127);

    src[31] = -8.0f;
    encode_row(GW_FMT_Q4_0, src, 32, row);
    assert_memory_equal(row, "\x00\x3c", 2);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(row[2 + i] & 15, 8 + even[i]);
    }
    assert_int_equal(row[17], 0x08);

    /* INT4: minimum -4, maximum 11: scale 1, zero -4. x + 4 is a float: 3.49999976 + 4 = 7.5 */
    src[30] = -4.0f;
    src[31] = 11.0f;
    encode_row(GW_FMT_INT4_G32, src, 32, row);
    assert_memory_equal(row, "\x00\x3c\x00\xc4", 4);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(row[4 + i] & 15, i == 6 ? 8 : 4 + even[i]);
    }
    assert_int_equal(row[4 + 14], 0x04);
    assert_int_equal(row[4 + 15], 0xf4);

    static const float floats[8] = {1.0f,     -2.0f,       65520.0f,    0x1p-24f,
                                    0x1p-25f, 1.00390625f, 1.01171875f, -0.0f};
    encode_row(GW_FMT_F16, floats, 8, row);
    assert_memory_equal(row, "\x00\x3c\x00\xc0\x00\x7c\x01\x00\x00\x00\x04\x3c\x0c\x3c\x00\x80",
                        16);
    encode_row(GW_FMT_BF16, floats, 8, row);
    assert_memory_equal(row, "\x80\x3f\x00\xc0\x80\x47\x80\x33\x00\x33\x80\x3f\x82\x3f\x00\x80",
                        16);
    encode_row(GW_FMT_F32, floats, 8, row);
    assert_memory_equal(row, floats, 32);
}

static const gw_fmt encoded[] = {GW_FMT_INT8,      GW_FMT_INT4_G32,  GW_FMT_INT4_G64,
                                 GW_FMT_INT4_G128, GW_FMT_INT4_G256, GW_FMT_Q8_0,
                                 GW_FMT_Q4_0};
enum { N_ENCODED = sizeof encoded / sizeof encoded[0] };

/* Half a step, with the rounding of the stored scale and zero on top (2^-11 each; a clamped code
 * of INT4 is off by 15 scale errors at most); Q4_0 also clamps +8 to 7: a whole step. */
static double encode_bound(gw_fmt fmt, double step, double x, double zero) {
    if (fmt == GW_FMT_Q4_0 && fabs(x) > 7.4 * step) {
        return step * 1.01;
    }
    double offset =
        fmt >= GW_FMT_INT4_G32 && fmt <= GW_FMT_INT4_G256 ? 15 * step + fabs(zero) : 0.0;
    return 0.5 * step * (1 + 0x1p-15) + offset * 0x1p-11 + 0x1p-22 * fabs(x);
}

static void encode_round_trip(void **state) {
    (void)state;
    for (size_t k = 0; k < N_ENCODED * 200; k++) {
        gw_fmt fmt = encoded[k % N_ENCODED];
        const gw_format *f = gw_format_of(fmt);
        float src[MAX_COLS], got[MAX_COLS], size = ldexpf(1.0f, (int)(k / N_ENCODED % 16) - 6);
        uint8_t row[MAX_COLS * 4];
        for (size_t i = 0; i < MAX_COLS; i++) {
            src[i] = random_float(size) + (k % 5 ? 0.0f : size * 3.0f);
        }
        encode_row(fmt, src, MAX_COLS, row);
        f->decode(got, row, MAX_COLS);
        for (size_t i = 0; i < MAX_COLS; i++) {
            weight_fields w = {0};
            for (size_t r = 0; r < N_READINGS; r++) {
                if (readings[r].fmt == fmt) {
                    readings[r].read(row + i / f->block_elems *
                                               (fmt == GW_FMT_INT8 ? 0 : f->block_bytes),
                                     (int)(fmt == GW_FMT_INT8 ? i : i % f->block_elems), &w);
                }
            }
            double error = fabs((double)got[i] - (double)src[i]);
            if (!(error <= encode_bound(fmt, fabs(w.d), (double)src[i], w.wm))) {
                fail_msg("%s: %g became %g, step %g", f->name, (double)src[i], (double)got[i], w.d);
            }
        }
    }
}

static void constant_and_broken_groups(void **state) {
    (void)state;
    static const float constants[] = {0.0f,      -0.0f,      0.1f,  -3.0f,
                                      0x1p-149f, -0x1p-100f, 1e30f, -3e38f};
    for (size_t k = 0; k < N_ENCODED; k++) {
        const gw_format *f = gw_format_of(encoded[k]);
        uint8_t row[MAX_COLS * 4], zeros[MAX_COLS * 4] = {0};
        float src[MAX_COLS], got[MAX_COLS];
        for (size_t c = 0; c < sizeof constants / sizeof constants[0]; c++) {
            for (size_t i = 0; i < MAX_COLS; i++) {
                src[i] = constants[c];
            }
            encode_row(encoded[k], src, MAX_COLS, row);
            f->decode(got, row, MAX_COLS);
            float want = GW_FABS(src[0]) < 1e-29f ? 0.0f : src[0];
            for (size_t i = 0; i < MAX_COLS; i++) { /* beyond f16: finite, of the right sign */
                int beyond = GW_FABS(want) > 65504.0f && encoded[k] != GW_FMT_INT8;
                double slack = beyond ? INFINITY : fabs((double)want) * 0x1p-10 + 0x1p-99;
                assert_true(isfinite(got[i]) && fabs((double)got[i] - (double)want) <= slack);
                assert_true(want == 0.0f || got[i] * want > 0.0f);
            }
            if (want == 0.0f && src[0] == 0.0f && encoded[k] != GW_FMT_Q4_0) {
                size_t bytes;
                assert_int_equal(gw_row_bytes(encoded[k], MAX_COLS, &bytes), GW_OK);
                assert_memory_equal(row, zeros, bytes);
            }
        }
        static const float broken[] = {NAN, INFINITY, -INFINITY};
        for (size_t c = 0; c < 3; c++) {
            size_t bad = c * 40 + 5, span = encoded[k] == GW_FMT_INT8 ? MAX_COLS : f->block_elems;
            for (size_t i = 0; i < MAX_COLS; i++) {
                src[i] = i == bad ? broken[c] : 1.0f;
            }
            encode_row(encoded[k], src, MAX_COLS, row);
            f->decode(got, row, MAX_COLS);
            for (size_t i = 0; i < MAX_COLS; i++) {
                assert_true(i / span == bad / span ? isnan(got[i])
                                                   : got[i] > 0.9f && got[i] < 1.1f);
            }
        }
    }
}

static void act8_rows(void **state) {
    (void)state;
    const gw_format *f = gw_format_of(GW_FMT_ACT8);
    float src[64], got[64];
    gw_act8 row[2];
    for (int i = 0; i < 64; i++) {
        src[i] = (float)(i - 32);
    }
    f->encode(row, src, 64);
    f->decode(got, row, 64);
    for (int i = 0; i < 64; i++) {
        assert_true(GW_FABS(got[i] - src[i]) <= 0.5f * row[i / 32].scale * 1.0001f);
        assert_true(got[i] == row[i / 32].scale * (float)row[i / 32].q[i % 32]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_bytes),
        cmocka_unit_test(encode_round_trip),
        cmocka_unit_test(constant_and_broken_groups),
        cmocka_unit_test(act8_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
