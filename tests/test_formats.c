/* tests/test_formats.c - every format against bytes and numbers that blocks.h had no part in.
 *
 * Kernels and oracle share blocks.h, so parity cannot see a mistake there. Three outside views can:
 * golden blocks made by tools/golden_blocks.py, a few rows worked out by hand, and the per-weight
 * field readers of format_readings.h. Encoders: test_encode.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/tensor/formats.h"
#include "core/tensor/small.h"
#include "tests/data/golden_blocks.h"
#include "tests/exact_fma.h"
#include "tests/format_readings.h"

enum { N_GOLDENS = sizeof goldens / sizeof goldens[0], GUARD = 16, MAX_ROW = 512, MAX_COLS = 256 };

static size_t from_hex(const char *hex, uint8_t *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    return n;
}

static uint32_t word_at(const char *hex, size_t i) {
    char eight[9] = {0};
    memcpy(eight, hex + 8 * i, 8);
    return (uint32_t)strtoul(eight, NULL, 16);
}

static void set_act(gw_act8 *x, float scale, const int8_t *q) {
    x->scale = scale;
    memcpy(x->q, q, sizeof x->q);
    for (int h = 0; h < 2; h++) {
        int sum = 0;
        for (int i = 0; i < 16; i++) {
            sum += q[16 * h + i];
        }
        x->sum[h] = (int16_t)sum;
    }
}

/* ---- golden blocks -------------------------------------------------------------------------- */

/* Decode into a fenced buffer, from an odd address: a stored row may begin at any byte. */
static void decode_fenced(gw_fmt fmt, const uint8_t *row, size_t bytes, size_t cols, float *out) {
    uint8_t stored[MAX_ROW + 1];
    float room[GUARD + MAX_COLS + GUARD];
    memset(room, 0xff, sizeof room);
    memcpy(stored + 1, row, bytes);
    gw_format_of(fmt)->decode(room + GUARD, stored + 1, cols);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(GW_F32_BITS(room[i]), 0xffffffffu);
        assert_int_equal(GW_F32_BITS(room[GUARD + cols + i]), 0xffffffffu);
    }
    memcpy(out, room + GUARD, cols * sizeof *out);
}

static void golden_weights(void **state) {
    (void)state;
    for (size_t g = 0; g < N_GOLDENS; g++) {
        uint8_t row[MAX_ROW];
        float got[MAX_COLS];
        size_t bytes = from_hex(goldens[g].bytes, row), cols = strlen(goldens[g].weights) / 8, need;
        assert_int_equal(gw_row_bytes(goldens[g].fmt, cols, &need), GW_OK);
        assert_int_equal(need, bytes);
        decode_fenced(goldens[g].fmt, row, bytes, cols, got);
        for (size_t i = 0; i < cols; i++) {
            uint32_t want = word_at(goldens[g].weights, i);
            if (GW_F32_BITS(got[i]) != want) {
                fail_msg("%s, %s: weight %zu is %08x, want %08x",
                         gw_format_of(goldens[g].fmt)->name, goldens[g].what, i,
                         GW_F32_BITS(got[i]), want);
            }
        }
    }
}

static void golden_terms(void **state) {
    (void)state;
    for (size_t g = 0; g < N_GOLDENS; g++) {
        uint8_t row[MAX_ROW];
        const gw_format *f = gw_format_of(goldens[g].fmt);
        from_hex(goldens[g].bytes, row);
        size_t count = strlen(goldens[g].terms) / 16;
        assert_int_equal(count, strlen(goldens[g].weights) / 8 / 32 / f->span);
        for (size_t s = 0; s < count; s++) {
            gw_act8 x[GW_ACT_SPAN];
            for (size_t b = 0; b < f->span; b++) {
                const char *act = golden_acts[(s * f->span + b) % 8];
                int8_t q[32];
                from_hex(act + 8, (uint8_t *)q);
                set_act(&x[b], GW_F32_FROM_BITS(word_at(act, 0)), q);
            }
            if (f->span > 1) {
                gw_act8_span(x, x);
            }
            float acc = GW_F32_FROM_BITS(word_at(goldens[g].terms, 2 * s));
            uint32_t got = GW_F32_BITS(f->term(row, s * f->span, x, acc));
            uint32_t want = word_at(goldens[g].terms, 2 * s + 1);
            if (got != want) {
                fail_msg("%s, %s: term %zu is %08x, want %08x", f->name, goldens[g].what, s, got,
                         want);
            }
        }
    }
}

/* clang-format off */
#define Z8 "0000000000000000"
#define Z32 Z8 Z8 Z8 Z8
static const struct by_hand { gw_fmt fmt; const char *bytes; size_t at; float want; } by_hand[] = {
    {GW_FMT_F32, "0000c07f", 0, NAN},
    {GW_FMT_F32, "01000080", 0, -0x1p-149f},
    {GW_FMT_F16, "ff7b", 0, 65504.0f},
    {GW_FMT_F16, "0180", 0, -0x1p-24f},
    {GW_FMT_F16, "00fc", 0, -INFINITY},
    {GW_FMT_BF16, "80bf", 0, -1.0f},
    {GW_FMT_BF16, "0100", 0, 0x1p-133f},
#define E4M3 "00008043" "387e0188" "00000000" Z8 Z8 Z8 Z32 Z32 Z32 /* scale 256, codes */
    {GW_FMT_E4M3, E4M3, 0, 1.0f},
    {GW_FMT_E4M3, E4M3, 1, 448.0f},
    {GW_FMT_E4M3, E4M3, 2, 0x1p-9f},
    {GW_FMT_E4M3, E4M3, 3, -0x1p-6f},
/* 2^22; scales 1 and 448; nibbles 1 and 7, 8 and 9, at 16 13 */
#define NVFP4 "0000804a" "387e000000000000" "7198000000000000" "0d00000000000000" Z8 Z8 Z32
    {GW_FMT_NVFP4_CODES, NVFP4, 0, 0.5f},
    {GW_FMT_NVFP4_CODES, NVFP4, 1, 6.0f},
    {GW_FMT_NVFP4_CODES, NVFP4, 3, -0.5f},
    {GW_FMT_NVFP4_CODES, NVFP4, 16, -1344.0f},
    {GW_FMT_Q4_0, "003c" "21" Z8 "000000000000f8", 0, -7.0f},    /* low nibble 1 - 8  */
    {GW_FMT_Q4_0, "003c" "21" Z8 "000000000000f8", 16, -6.0f},   /* high nibble 2 - 8 */
    {GW_FMT_Q4_0, "003c" "21" Z8 "000000000000f8", 15, 0.0f},
    {GW_FMT_Q4_0, "003c" "21" Z8 "000000000000f8", 31, 7.0f},
    {GW_FMT_Q4_1, "00b8" "003c" Z8 "00000000000000f0", 31, -6.5f}, /* -0.5 * 15 + 1 */
    {GW_FMT_Q5_0, "003c" "00000100" Z8 Z8, 16, 0.0f},            /* bit 16 of the plane: 16 - 16 */
    {GW_FMT_Q5_0, "003c" "00000100" Z8 Z8, 15, -16.0f},
    {GW_FMT_Q5_1, "003c" "0040" "00000080" Z8 "00000000000000f0", 31, 33.0f}, /* 31 + 2 */
    {GW_FMT_Q8_0, "00b8" "0080" Z8 Z8 Z8 "000000000000", 1, 64.0f}, /* -0.5 * -128 */
    /* Q2_K: scale byte 15 (last half): sc 3, min 2; weight 255 is the top two bits of byte 63 */
    {GW_FMT_Q2_K, Z8 "00000000000000" "23" Z32 Z8 Z8 Z8 "00000000000000c0" "003c" "0038",
        255, 8.0f},
    /* Q3_K: scales 0 mean -32; scale 15: high nibble of byte 7, bits 6-7 of byte 11: 63 - 32 */
    {GW_FMT_Q3_K, Z32 Z32 Z32 "00000000000000f0000000c0" "003c", 255, 31.0f * -4.0f},
    {GW_FMT_Q3_K, Z32 Z32 Z32 "00000000000000f0000000c0" "003c", 0, -32.0f * -4.0f},
    /* Q4_K: sub-block 7: byte 11 = 0x21: sc 1, min 2; byte 3 top bits: sc + 48; byte 7: min + 32 */
    {GW_FMT_Q4_K, "003c" "0038" "000000c0" "00000080" "00000021"
        Z32 Z32 Z32 Z8 Z8 Z8 "00000000000000f0", 255, 49.0f * 15.0f - 0.5f * 34.0f},
    {GW_FMT_Q5_K, "003c" "0000" "01000000" "00000000" "00000000" "01" "00000000000000" Z8 Z8 Z8
        Z32 Z32 Z32 Z32, 0, 16.0f},
    {GW_FMT_Q6_K, Z32 Z32 Z32 Z32 Z32 Z8 Z8 Z8 "00000000000000c0"
        Z8 "00000000000000fe" "003c", 255, -2.0f * 16.0f},       /* (48 - 32) * -2 */
    {GW_FMT_IQ4_NL, "003c" "80" Z8 "00000000000000", 16, 1.0f},
    {GW_FMT_IQ4_NL, "003c" "80" Z8 "00000000000000", 0, -127.0f},
    {GW_FMT_IQ4_XS, "003c" "00c0" "000000f0" Z32 Z32 Z32 Z8 Z8 Z8 "00000000000000f0", 255,
        31.0f * 113.0f},
    {GW_FMT_MXFP4, "80" "f7" Z8 "00000000000000", 0, 12.0f}, /* 6 in units of 2^1 */
    {GW_FMT_MXFP4, "7f" "f1" Z8 "00000000000000", 16, -6.0f},
    {GW_FMT_MXFP4, "00" "01" Z8 "00000000000000", 0, 0x1p-128f}, /* 0.5 * 2^-127 */
};
/* clang-format on */

static void hand_worked_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof by_hand / sizeof by_hand[0]; i++) {
        const struct by_hand *h = &by_hand[i];
        const gw_format *f = gw_format_of(h->fmt);
        uint8_t row[MAX_ROW];
        float got[MAX_COLS];
        size_t bytes = from_hex(h->bytes, row);
        if (bytes != f->block_bytes) {
            fail_msg("row %zu (%s) has %zu bytes", i, f->name, bytes);
        }
        decode_fenced(h->fmt, row, bytes, f->block_elems, got);
        if (GW_F32_BITS(got[h->at]) != GW_F32_BITS(h->want)) {
            fail_msg("row %zu (%s): weight %zu is %g, want %g", i, f->name, h->at,
                     (double)got[h->at], (double)h->want);
        }
    }
}

/* ---- terms against the contract ------------------------------------------------------------- */

static float product(double a, double b) { return (float)(a * b); } /* exact, rounded once */

/* The contract of docs/arithmetic.md, of a term of `span` blocks; *size: sum of the sizes of all
 * parts of the exact result. */
static float contract(const struct reading *r, int span, const uint8_t *block, size_t sub,
                      const gw_act8 *x, float acc, double *size) {
    int64_t s[2] = {0, 0};
    weight_fields w[2];
    double dx = (double)x->scale, sums = 0.0;
    *size = fabs((double)acc);
    for (int i = 0; i < 32 * span; i++) {
        weight_fields *f = &w[i / 16 % 2];
        int q = x[i / 32].q[i % 32];
        *f = (weight_fields){.sc = 1, .mn = 1};
        r->read(block, (int)(32 * sub) + i, f);
        s[i / 16 % 2] += f->code * q;
        sums += q;
        *size += fabs(dx * q) * (fabs(f->d * f->sc * f->code) + fabs(f->wm * f->mn));
    }
    assert_true(llabs(s[0] + s[1]) < 1 << 24);
    double d = w[0].d;
    double sign = r->shape == AFFINE ? 1.0 : -1.0;
    if (r->shape == HALVES || r->shape == HALVES_MIN) {
        int64_t total = w[0].sc * s[0] + w[1].sc * s[1];
        assert_true(llabs(total) < 1 << 24);
        acc = exact_fma((double)product(d, dx), (double)total, (double)acc);
        double m = w[0].mn * x->sum[0] + w[1].mn * x->sum[1];
        return r->shape == HALVES ? acc : exact_fma(-(double)product(w[0].wm, dx), m, (double)acc);
    }
    acc = exact_fma((double)product(d * w[0].sc, dx), (double)(s[0] + s[1]), (double)acc);
    return r->shape == SIGNED
               ? acc
               : exact_fma(sign * w[0].wm * w[0].mn, (double)product(dx, sums), (double)acc);
}

/* The same of a term of a prompt, whose formats have integer scales; all parts below 2^53 are exact
 * in double. */
static float prompt_contract(const struct reading *r, const uint8_t *block, size_t sub,
                             const gw_act8 *x, float acc, double *size) {
    int64_t s = 0, m = 0;
    double d = 0.0, dmin = 0.0;
    *size = fabs((double)acc);
    for (int i = 0; i < 32 * GW_ACT_SPAN; i++) {
        weight_fields f = {.sc = 1, .mn = 1};
        int q = x[i / 32].q[i % 32];
        r->read(block, (int)(32 * sub) + i, &f);
        s += (int64_t)f.sc * f.code * q;
        m += (int64_t)f.mn * q;
        d = f.d;
        dmin = f.wm;
        *size += fabs((double)x->scale * q) * (fabs(d * f.sc * f.code) + fabs(dmin * f.mn));
    }
    assert_true(llabs(s) <= 4 * 16646144);
    int has_min = r->shape == AFFINE_K || r->shape == HALVES_MIN;
    float y = has_min ? exact_fma(d, (double)(float)s, -(double)product(dmin, (double)m))
                      : product(d, (double)(float)s);
    return exact_fma((double)x->scale, (double)y, (double)acc);
}

static void random_block(const struct reading *r, uint8_t *block, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        block[i] = (uint8_t)random_u32();
    }
    if (r->halfs < 0) {
        float scale = random_float(1.0f);
        memcpy(block, &scale, sizeof scale);
    }
    if (r->fmt == GW_FMT_MXFP4) {
        block[0] %= 200; /* products stay finite */
    }
    if (r->halfs == FLOAT_AND_SCALES) { /* d*sc is exact: d is part of a binary16 in files */
        float d = gw_f16_to_f32(gw_f32_to_f16(random_float(1.0f))) / 8.0f;
        memcpy(block, &d, sizeof d);
        for (int i = 4; i < 20; i++) {
            block[i] &= 31;
        }
    }
    for (int h = 0; h < r->n_halfs; h++) { /* any half that is finite, subnormals included */
        uint8_t *top = block + r->halfs + 2 * h + 1;
        *top = (*top & 0x7c) == 0x7c ? (uint8_t)(*top & 0xbf) : *top;
    }
}

static void random_act(gw_act8 *x, unsigned turn) {
    int8_t q[32];
    for (int i = 0; i < 32; i++) {
        int v = (int)(random_u32() % 255) - 127;
        q[i] = (int8_t)(turn % 7 == 0 ? 127 : turn % 7 == 1 ? -127 : turn % 7 == 2 ? v / 127 : v);
    }
    set_act(x, fabsf(random_float(1.0f)) * ldexpf(1.0f, -(int)(turn % 120)), q);
}

/* The activations of a term: blocks with one scale. */
static void random_acts(gw_act8 *x, size_t span, unsigned turn) {
    for (size_t b = 0; b < span; b++) {
        random_act(&x[b], turn % 5 == 0 ? turn : turn + (unsigned)b);
        x[b].scale = x[0].scale;
    }
}

/* Bits against the contract; and against the decoded weights in double. With u = 2^-24 a signed
 * term rounds twice (ws * dx, the fma), an affine one three times (dx * sum, two fmas), a decoded
 * weight once: each at most u of a partial result no larger than `size`; 6 u bounds all of it.
 * Products of subnormals add at most 2^-149 each, times |s| < 2^24. */
static void random_terms(void **state) {
    (void)state;
    for (size_t k = 0; k < N_READINGS; k++) {
        const struct reading *r = &readings[k];
        const gw_format *f = gw_format_of(r->fmt);
        for (unsigned turn = 0; turn < 2000; turn++) {
            uint8_t block[MAX_ROW];
            float w[MAX_COLS];
            gw_act8 x[GW_ACT_SPAN];
            size_t sub = turn % (f->block_elems / 32) / f->span * f->span;
            random_block(r, block, f->row_header + f->block_bytes);
            random_acts(x, f->span, turn);
            f->decode(w, block, f->block_elems);
            float acc = turn % 3 ? random_float(100.0f) : 0.0f;
            double size, exact = (double)acc;
            float got = f->term(block, sub, x, acc),
                  want = contract(r, (int)f->span, block, sub, x, acc, &size);
            for (size_t i = 0; i < 32 * f->span; i++) {
                exact += (double)w[32 * sub + i] * (double)x->scale * x[i / 32].q[i % 32];
            }
            if (GW_F32_BITS(got) != GW_F32_BITS(want)) {
                fail_msg("%s: term is %a, want %a (turn %u)", f->name, (double)got, (double)want,
                         turn);
            }
            if (!(fabs((double)got - exact) <= 6 * 0x1p-24 * size + 0x1p-123)) {
                fail_msg("%s: term is %g, weights say %g (turn %u)", f->name, (double)got, exact,
                         turn);
            }
        }
    }
}

/* The same of prompts, also with the largest codes and activations. Beside the roundings above, the
 * sum itself is rounded to float, and the minimum times its sum: 8 u. */
static void random_prompt_terms(void **state) {
    (void)state;
    int seen = 0;
    for (size_t k = 0; k < N_READINGS; k++) {
        const struct reading *r = &readings[k];
        const gw_format *f = gw_format_of(r->fmt);
        if (f->prompt_term == f->term) {
            continue;
        }
        seen++;
        for (unsigned turn = 0; turn < 500; turn++) {
            uint8_t block[MAX_ROW];
            float w[MAX_COLS];
            gw_act8 x[GW_ACT_SPAN];
            size_t sub = turn % 2 * GW_ACT_SPAN;
            random_block(r, block, f->row_header + f->block_bytes);
            random_acts(x, GW_ACT_SPAN, turn);
            f->decode(w, block, f->block_elems);
            float acc = turn % 3 ? random_float(100.0f) : 0.0f;
            double size, exact = (double)acc;
            float got = f->prompt_term(block, sub, x, acc),
                  want = prompt_contract(r, block, sub, x, acc, &size);
            for (size_t i = 0; i < 32 * GW_ACT_SPAN; i++) {
                exact += (double)w[32 * sub + i] * (double)x->scale * x[i / 32].q[i % 32];
            }
            if (GW_F32_BITS(got) != GW_F32_BITS(want)) {
                fail_msg("%s: term is %a, want %a (turn %u)", f->name, (double)got, (double)want,
                         turn);
            }
            if (!(fabs((double)got - exact) <= 8 * 0x1p-24 * size + 0x1p-120)) {
                fail_msg("%s: term is %g, weights say %g (turn %u)", f->name, (double)got, exact,
                         turn);
            }
        }
    }
    assert_int_equal(seen, 10);
}

/* Several blocks in a row: block b of 32 weights is found inside block b / (elems / 32). */
static void rows_of_blocks(void **state) {
    (void)state;
    for (size_t k = 0; k < N_READINGS; k++) {
        const struct reading *r = &readings[k];
        const gw_format *f = gw_format_of(r->fmt);
        uint8_t row[4 + 3 * 256], one[MAX_ROW];
        float all[3 * MAX_COLS], single[MAX_COLS];
        for (size_t b = 0; b < 3; b++) {
            random_block(r, one, f->row_header + f->block_bytes);
            memcpy(row, one, f->row_header);
            memcpy(row + f->row_header + b * f->block_bytes, one + f->row_header, f->block_bytes);
        }
        f->decode(all, row, 3 * f->block_elems);
        for (size_t b = 0; b < 3; b++) {
            gw_act8 x[GW_ACT_SPAN];
            memcpy(one, row, f->row_header);
            memcpy(one + f->row_header, row + f->row_header + b * f->block_bytes, f->block_bytes);
            f->decode(single, one, f->block_elems);
            assert_memory_equal(all + b * f->block_elems, single, f->block_elems * sizeof *all);
            for (size_t s = 0; s < f->block_elems / 32; s += f->span) {
                random_acts(x, f->span, (unsigned)s);
                float a = f->term(row, b * (f->block_elems / 32) + s, x, 1.0f);
                float c = f->term(one, s, x, 1.0f);
                assert_int_equal(GW_F32_BITS(a), GW_F32_BITS(c));
            }
        }
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

/* clang-format off */
static const struct facts {
    const char *name;
    int gguf;
    size_t elems, bytes, header;
    int is_float;
} facts[] = {
    [GW_FMT_F32] = {"f32", 0, 1, 4, 0, 1},          [GW_FMT_F16] = {"f16", 1, 1, 2, 0, 1},
    [GW_FMT_E4M3] = {"e4m3", -1, 128, 132, 0, 1},
    [GW_FMT_NVFP4_CODES] = {"nvfp4_codes", -1, 128, 76, 0, 1},
    [GW_FMT_BF16] = {"bf16", 30, 1, 2, 0, 1},       [GW_FMT_Q8_0] = {"q8_0", 8, 32, 34, 0, 0},
    [GW_FMT_Q4_0] = {"q4_0", 2, 32, 18, 0, 0},      [GW_FMT_Q4_1] = {"q4_1", 3, 32, 20, 0, 0},
    [GW_FMT_Q5_0] = {"q5_0", 6, 32, 22, 0, 0},      [GW_FMT_Q5_1] = {"q5_1", 7, 32, 24, 0, 0},
    [GW_FMT_Q2_K] = {"q2_k", 10, 256, 84, 0, 0},    [GW_FMT_Q3_K] = {"q3_k", 11, 256, 110, 0, 0},
    [GW_FMT_Q4_K] = {"q4_k", 12, 256, 144, 0, 0},   [GW_FMT_Q5_K] = {"q5_k", 13, 256, 176, 0, 0},
    [GW_FMT_Q6_K] = {"q6_k", 14, 256, 210, 0, 0},   [GW_FMT_IQ4_NL] = {"iq4_nl", 20, 32, 18, 0, 0},
    [GW_FMT_IQ4_XS] = {"iq4_xs", 23, 256, 136, 0, 0},
    [GW_FMT_INT8] = {"int8", GW_GGUF_OWN + 11, 32, 32, 4, 0},
    [GW_FMT_MXFP4] = {"mxfp4", 39, 32, 17, 0, 0},
    [GW_FMT_INT4_G32] = {"int4-g32", GW_GGUF_OWN + 7, 32, 20, 0, 0},
    [GW_FMT_INT4_G64] = {"int4-g64", GW_GGUF_OWN + 8, 64, 36, 0, 0},
    [GW_FMT_INT4_G128] = {"int4-g128", GW_GGUF_OWN + 9, 128, 68, 0, 0},
    [GW_FMT_INT4_G256] = {"int4-g256", GW_GGUF_OWN + 10, 256, 132, 0, 0},
    [GW_FMT_BL2_B32] = {"bl2-b32", GW_GGUF_OWN + 0, 32, 12, 0, 0},
    [GW_FMT_BL3_B32] = {"bl3-b32", GW_GGUF_OWN + 1, 32, 16, 0, 0},
    [GW_FMT_BL3H_B64] = {"bl3h-b64", GW_GGUF_OWN + 2, 64, 32, 0, 0},
    [GW_FMT_BL5_B64] = {"bl5-b64", GW_GGUF_OWN + 3, 64, 44, 0, 0},
    [GW_FMT_BL6_B64] = {"bl6-b64", GW_GGUF_OWN + 4, 64, 52, 0, 0},
    [GW_FMT_BL8_B32] = {"bl8-b32", GW_GGUF_OWN + 5, 32, 36, 0, 0},
    [GW_FMT_BL8_B64] = {"bl8-b64", GW_GGUF_OWN + 6, 64, 68, 0, 0},
    [GW_FMT_IQ3_S_CODES] = {"iq3_s_codes", -1, 256, 148, 0, 0},
    [GW_FMT_IQ3_XXS_CODES] = {"iq3_xxs_codes", -1, 256, 148, 0, 0},
    [GW_FMT_IQ2_CODES] = {"iq2_codes", -1, 256, 116, 0, 0},
    [GW_FMT_IQ1_CODES] = {"iq1_codes", -1, 256, 116, 0, 0},
    [GW_FMT_IQ2_XXS] = {"iq2_xxs", 16, 256, 66, 0, 0},
    [GW_FMT_IQ2_XS] = {"iq2_xs", 17, 256, 74, 0, 0},
    [GW_FMT_IQ2_S] = {"iq2_s", 22, 256, 82, 0, 0},
    [GW_FMT_IQ3_XXS] = {"iq3_xxs", 18, 256, 98, 0, 0},
    [GW_FMT_IQ3_S] = {"iq3_s", 21, 256, 110, 0, 0},
    [GW_FMT_IQ1_S] = {"iq1_s", 19, 256, 50, 0, 0},
    [GW_FMT_IQ1_M] = {"iq1_m", 29, 256, 56, 0, 0},
    [GW_FMT_TQ1_0] = {"tq1_0", 34, 256, 54, 0, 0},
    [GW_FMT_TQ2_0] = {"tq2_0", 35, 256, 66, 0, 0},
    [GW_FMT_Q1_0] = {"q1_0", 41, 128, 18, 0, 0},
    [GW_FMT_Q2_0] = {"q2_0", 42, 64, 18, 0, 0},
    [GW_FMT_NVFP4] = {"nvfp4", 40, 64, 36, 0, 0},
    [GW_FMT_ACT8] = {"act8", -1, 32, 40, 0, 0},     [GW_FMT_I32] = {"i32", -1, 1, 4, 0, 0},
};
_Static_assert(sizeof facts / sizeof facts[0] == GW_FMT_COUNT, "a format has no facts here");
/* clang-format on */

static void table_is_complete(void **state) {
    (void)state;
    for (int i = 0; i < GW_FMT_COUNT; i++) {
        const gw_format *f = gw_format_of((gw_fmt)i);
        gw_fmt found = GW_FMT_COUNT;
        char upper[32] = {0};
        if (!f->name || !f->decode) {
            fail_msg("format %d has no row in formats.c", i);
        }
        assert_string_equal(f->name, facts[i].name);
        assert_int_equal(f->gguf_type, facts[i].gguf);
        assert_int_equal(f->block_elems, facts[i].elems);
        assert_int_equal(f->block_bytes, facts[i].bytes);
        assert_int_equal(f->row_header, facts[i].header);
        assert_int_equal(f->is_float, facts[i].is_float);
        int long_groups = i == GW_FMT_INT4_G128 || i == GW_FMT_INT4_G256;
        assert_int_equal(f->span, long_groups ? GW_ACT_SPAN : f->term != NULL);
        int scaled = f->prompt_term != f->term;
        assert_int_equal(f->prompt_span, scaled ? GW_ACT_SPAN : f->span);
        assert_int_equal(scaled, f->term != NULL && f->block_elems == 256 && !long_groups);
        assert_true(gw_format_from_name(f->name, &found) && (int)found == i);
        for (size_t c = 0; f->name[c]; c++) {
            upper[c] = (char)toupper((unsigned char)f->name[c]);
        }
        found = GW_FMT_COUNT;
        assert_true(gw_format_from_name(upper, &found) && (int)found == i);

        int has_golden = 0, has_reading = 0,
            plain =
                f->is_float || i == GW_FMT_ACT8 || i == GW_FMT_I32 || gw_format_is_small((gw_fmt)i);
        for (size_t g = 0; g < N_GOLDENS; g++) {
            has_golden |= (int)goldens[g].fmt == i;
        }
        for (size_t g = 0; g < N_READINGS; g++) {
            has_reading |= (int)readings[g].fmt == i;
        }
        if (!plain && (!has_golden || !has_reading || !f->term)) {
            fail_msg("%s: golden %d, reading %d, term %d", f->name, has_golden, has_reading,
                     !!f->term);
        }
        assert_true(!plain || !f->term);
    }
    gw_fmt out = GW_FMT_Q6_K;
    assert_false(gw_format_from_name("q4_2", &out) || gw_format_from_name("", &out) ||
                 gw_format_from_name("q4_", &out) || gw_format_from_name(NULL, &out));
    assert_int_equal(out, GW_FMT_Q6_K);
    assert_true(gw_format_from_name("BL4-b32", &out) && out == GW_FMT_INT4_G32);
    assert_true(gw_format_from_name("bl4-b64", &out) && out == GW_FMT_INT4_G64);
}

static void gguf_numbers(void **state) {
    (void)state;
    static const struct {
        int64_t type;
        const char *says;
    } refused[] = {
        {4, "withdrawn"},
        {5, "withdrawn"},
        {31, "withdrawn"},
        {32, "withdrawn"},
        {33, "withdrawn"},
        {36, "withdrawn"},
        {37, "withdrawn"},
        {38, "withdrawn"},
        {9, "Q8_1"},
        {15, "Q8_K"},
        {24, "I8"},
        {25, "I16"},
        {26, "I32"},
        {27, "I64"},
        {28, "F64"},
        {-1, "unknown"},
        {999, "unknown"},
        {INT64_MAX, "unknown"},
        {INT64_MIN, "unknown"},
        {(1LL << 32) + 2, "unknown"},
    };
    size_t accepted = 0;
    for (int64_t type = -300; type < GW_GGUF_OWN + 300; type++) {
        gw_fmt out = GW_FMT_COUNT;
        gw_status status = gw_format_from_gguf(type, &out);
        if (status == GW_OK) {
            accepted++;
            assert_int_equal(facts[out].gguf, type);
        } else {
            assert_int_equal(status, GW_E_TYPE);
            assert_int_equal(out, GW_FMT_COUNT);
        }
    }
    assert_int_equal(accepted, 40);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        gw_fmt out = GW_FMT_COUNT;
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)refused[i].type);
        assert_int_equal(gw_format_from_gguf(refused[i].type, &out), GW_E_TYPE);
        assert_non_null(strstr(gw_error_text(), refused[i].says));
        assert_non_null(strstr(gw_error_text(), number));
    }
}

static void sizes(void **state) {
    (void)state;
    size_t bytes = 7;
    assert_int_equal(gw_row_bytes(GW_FMT_Q4_K, 512, &bytes), GW_OK);
    assert_int_equal(bytes, 288);
    assert_int_equal(gw_matrix_bytes(GW_FMT_INT8, 3, 64, &bytes), GW_OK);
    assert_int_equal(bytes, 3 * 68);
    assert_int_equal(gw_matrix_bytes(GW_FMT_F16, 0, 5, &bytes), GW_OK);
    assert_int_equal(bytes, 0);
    bytes = 7;
    assert_int_equal(gw_row_bytes(GW_FMT_Q4_K, 500, &bytes), GW_E_METADATA);
    assert_int_equal(gw_row_bytes(GW_FMT_F32, UINT64_MAX, &bytes), GW_E_OVERFLOW);
    assert_int_equal(gw_matrix_bytes(GW_FMT_F16, 1ULL << 32, 1ULL << 31, &bytes), GW_E_OVERFLOW);
    assert_int_equal(gw_matrix_bytes(GW_FMT_Q4_0, 2, 33, &bytes), GW_E_METADATA);
    assert_int_equal(bytes, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_weights),
        cmocka_unit_test(golden_terms),
        cmocka_unit_test(hand_worked_rows),
        cmocka_unit_test(random_terms),
        cmocka_unit_test(random_prompt_terms),
        cmocka_unit_test(rows_of_blocks),
        cmocka_unit_test(table_is_complete),
        cmocka_unit_test(gguf_numbers),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
