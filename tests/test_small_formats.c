/* tests/test_small_formats.c - formats that are only in files (core/tensor/small.h) against numbers
 * of another implementation, and the formats that they become in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "core/tensor/formats.h"
#include "core/tensor/small.h"
#include "tests/reference_files.h"

/* Formats of one to three bits and NVFP4: four random blocks of each, with the numbers of another
 * implementation (tests/data/README.md). */
static void small_ones(void **state) {
    (void)state;
    reference_file r;
    size_t seen = 0, homes = 0;
    reference_open(&r, "tests/data/small-formats.safetensors");
    for (int i = 0; i < GW_FMT_COUNT; i++) {
        const gw_format *f = gw_format_of((gw_fmt)i);
        char name[64];
        float got[1024];
        if (!gw_format_is_small((gw_fmt)i)) {
            continue;
        }
        snprintf(name, sizeof name, "%s.bytes", f->name);
        const gw_stored *bytes = reference_find(&r, name);
        snprintf(name, sizeof name, "%s.weights", f->name);
        const gw_stored *want = reference_find(&r, name);
        assert_int_equal(bytes->bytes, 4 * f->block_bytes);
        assert_int_equal(want->bytes, 4 * f->block_elems * sizeof *got);
        f->decode(got, bytes->data, 4 * f->block_elems);
        for (size_t k = 0; k < 4 * f->block_elems; k++) {
            float w;
            memcpy(&w, (const char *)want->data + k * sizeof w, sizeof w);
            if (!(got[k] == w)) { /* zeros may differ in their sign */
                fail_msg("%s: weight %zu is %a, not %a", f->name, k, (double)got[k], (double)w);
            }
        }
        seen++;
        /* Where they stay; the last block's scale is tiny. */
        size_t n = 4;
        gw_fmt home = gw_small_home((gw_fmt)i);
        homes += home != GW_FMT_F32;
        if (home != GW_FMT_F32) {
            unsigned char row[1024];
            float again[1024];
            gw_small_convert((gw_fmt)i, bytes->data, n * f->block_elems, home, row);
            gw_format_of(home)->decode(again, row, n * f->block_elems);
            for (size_t j = 0; j < n * f->block_elems; j++) {
                assert_true(again[j] == got[j]);
            }
        }
    }
    assert_int_equal(homes, 12);
    assert_int_equal(seen, 12);
    reference_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
