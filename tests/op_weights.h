/* tests/op_weights.h - rows of weights for the cases of op_cases.h: any numbers, or the largest.
 */
#ifndef GW_TESTS_OP_WEIGHTS_H
#define GW_TESTS_OP_WEIGHTS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/plan/op.h"
#include "core/tensor/arith.h"
#include "core/tensor/formats.h"
#include "tests/random.h"

static void *oc_alloc(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

static size_t oc_row_bytes(gw_fmt fmt, size_t cols) {
    size_t bytes;
    assert_int_equal(gw_row_bytes(fmt, cols, &bytes), GW_OK);
    return bytes;
}

/* One weight row: encoded where the format has an encoder, else random blocks that decode to
 * finite numbers of moderate size. */
static void oc_fill_weight_row(gw_fmt fmt, void *row, size_t cols) {
    const gw_format *f = gw_format_of(fmt);
    float *x = oc_alloc(cols * sizeof(float));
    for (size_t i = 0; i < cols; i++) {
        x[i] = random_float(1.0f);
    }
    if (f->encode != NULL) {
        f->encode(row, x, cols);
    } else if (fmt == GW_FMT_F16 || fmt == GW_FMT_BF16) {
        for (size_t i = 0; i < cols; i++) {
            ((gw_u16 *)row)[i] =
                fmt == GW_FMT_F16 ? gw_f32_to_f16(x[i]) : (gw_u16)(GW_F32_BITS(x[i]) >> 16);
        }
    } else if (fmt == GW_FMT_F32) {
        memcpy(row, x, cols * sizeof(float));
    } else {
        for (size_t b = 0; b < cols / f->block_elems; b++) {
            unsigned char *block = (unsigned char *)row + b * f->block_bytes;
            for (int moderate = 0; !moderate;) {
                for (size_t i = 0; i < f->block_bytes; i++) {
                    block[i] = (unsigned char)(random_u32() >> 11);
                }
                f->decode(x, block, f->block_elems);
                moderate = 1;
                for (size_t i = 0; i < f->block_elems; i++) {
                    moderate &= fabsf(x[i]) < 100.0f;
                }
            }
        }
    }
    free(x);
}

/* A weight row of codes and integer scales as large as they come; floats stay what was drawn. */
static void oc_make_loud(gw_fmt fmt, void *row, size_t cols) {
    static const struct part {
        gw_fmt fmt;
        int from, end, byte;
    } parts[] = {
        {GW_FMT_Q2_K, 0, 80, 0xff},  {GW_FMT_Q3_K, 0, 108, 0}, {GW_FMT_Q4_K, 4, 144, 0xff},
        {GW_FMT_Q5_K, 4, 176, 0xff}, {GW_FMT_Q6_K, 0, 192, 0}, {GW_FMT_Q6_K, 192, 208, 0x80},
        {GW_FMT_IQ4_XS, 2, 136, 0},
    };
    const gw_format *f = gw_format_of(fmt);
    int known = 0;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        for (size_t b = 0; parts[p].fmt == fmt && b < cols / f->block_elems; b++) {
            memset((unsigned char *)row + b * f->block_bytes + parts[p].from, parts[p].byte,
                   (size_t)(parts[p].end - parts[p].from));
            known = 1;
        }
    }
    assert_true(known);
}

#endif
