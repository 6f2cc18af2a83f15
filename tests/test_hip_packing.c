/* tests/test_hip_packing.c - what the card packs is what the host packs (backends/hip/pack.c), of
 * every format, of whole pieces of columns and of rests; rows that the last strip lacks are rows of
 * zeros there.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "core/plan/backend.h"
#include "tests/hip_drivers.h"

extern const gw_backend gw_backend_hip;

/* Codes that are computed while they are packed; a number of a whole row. */
static int host_packs(gw_fmt fmt) {
    return fmt == GW_FMT_INT8 || fmt == GW_FMT_BL3H_B64;
}

static void same_strips(struct gw_device *device, gw_fmt fmt, int64_t cols) {
    enum { ROWS = 37, STRIPS = 48 };
    gw_tensor t = {.name = "w", .fmt = fmt, .n_dim = 2, .dim = {STRIPS, cols}};
    gw_hip_layout layout;
    size_t bytes = 0;
    int on_card = -1;
    assert_int_equal(gw_matrix_bytes(fmt, STRIPS, (uint64_t)cols, &bytes), GW_OK);
    assert_int_equal(gw_hip_layout_of(device, &t, 0, &layout), GW_OK);
    assert_int_equal(gw_hip_packs(device, &layout, &on_card), GW_OK);
    if (on_card == host_packs(fmt)) {
        fail_msg("%s of %d columns: on the card: %d", gw_format_of(fmt)->name, (int)cols, on_card);
    }
    if (!on_card) {
        return;
    }
    unsigned char *rows = malloc(bytes), *want = malloc(layout.bytes), *got = malloc(layout.bytes);
    assert_true(rows != NULL && want != NULL && got != NULL);
    uint64_t draw = 1 + (uint64_t)fmt;
    memset(rows, 0, bytes);
    for (size_t i = 0; i < bytes / STRIPS * ROWS; i++) {
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        rows[i] = (unsigned char)(draw >> 56);
    }
    gw_weight_source src = {.map = rows};
    assert_int_equal(gw_backend_hip.load_weight(device, &t, &src), GW_OK); /* small: by the host */
    assert_int_equal(gw_backend_hip.read(t.buf, 0, want, layout.bytes), GW_OK);
    memset(got, 0xa5, layout.bytes);
    t.dim[0] = ROWS;
    assert_int_equal(gw_backend_hip.write(t.buf, 0, got, layout.bytes), GW_OK);
    assert_int_equal(gw_backend_hip.fetch_weight(device, &t, &src, 0, 20), GW_OK);
    assert_int_equal(gw_backend_hip.fetch_weight(device, &t, &src, 32, ROWS - 32), GW_OK);
    assert_int_equal(gw_backend_hip.read(t.buf, 0, got, layout.bytes), GW_OK);
    if (memcmp(want, got, layout.bytes) != 0) {
        size_t at = 0;
        while (want[at] == got[at]) {
            at++;
        }
        fail_msg("%s of %d columns: byte %zu of %zu is %d, not %d", gw_format_of(fmt)->name,
                 (int)cols, at, layout.bytes, got[at], want[at]);
    }
    gw_backend_hip.release(t.buf);
    free(rows);
    free(want);
    free(got);
}

static void strips_are_packed_on_the_card(void **state) {
    struct gw_device *device = NULL;
    gw_device_options options = {.exact = 1};
    (void)state;
    assert_int_equal(gw_backend_hip.open(0, &options, &device), GW_OK);
    for (int fmt = 0; fmt < GW_FMT_ACT8; fmt++) {
        int64_t block = (int64_t)gw_format_of((gw_fmt)fmt)->block_elems;
        same_strips(device, (gw_fmt)fmt, 256);
        same_strips(device, (gw_fmt)fmt, block < 64 ? 256 + 64 : 3 * block);
        same_strips(device, (gw_fmt)fmt, block < 64 ? 96 : block);
    }
    gw_backend_hip.close(device);
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(strips_are_packed_on_the_card)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
