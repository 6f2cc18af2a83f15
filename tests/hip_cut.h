/* tests/hip_cut.h - that the op table's products of int4 groups of 128 and 256 have tiles of 160
 * tokens in all the ways there are (kernels_hip/gemm/gemm_tiling.h), on the emulator's twelve
 * multiprocessors. And where a card without matrix instructions of four waves is another one.
 */
#ifndef GW_TESTS_HIP_CUT_H
#define GW_TESTS_HIP_CUT_H

#include "op_table.h"

#include "backends/hip/hip.h"
#include "kernels_hip/gemm/gemm_tiling.h"

extern const gw_backend gw_backend_hip;

static struct gw_device *open_hip(int exact) {
    struct gw_device *device = NULL;
    gw_device_options options = {.exact = exact};
    if (gw_backend_hip.open(0, &options, &device) != GW_OK) {
        fail_msg("cannot open: %s", gw_error_text());
    }
    return device;
}

/* The cut of the case's product, if it has one: so the launch that lays out its tokens says, of as
 * many blocks as the product has. */
static int cut_of_case(const struct gw_segment *segment, const op_case *c, gw_cut *cut,
                       int *shared) {
    for (size_t l = 0; l + 1 < segment->n; l++) {
        const struct gw_spread_params *p = segment->launches[l].params;
        if (strcmp(segment->launches[l].kernel, "gw_spread_span") == 0) {
            assert_int_equal(segment->launches[l + 1].grid[0], p->blocks);
            *cut = gw_cut_of(c->n, p->tiles, p->blocks);
            *shared = p->tiles * gw_cut_tiles(*cut) > p->blocks;
            return 1;
        }
    }
    return 0;
}

static void table_has_wide_tiles(void **state) {
    static op_bench bench;
    struct gw_device *device = open_hip(1);
    int alone = 0, shared = 0, with_whole = 0, with_last = 0, glu = 0, act8 = 0;
    (void)state;
    ot_open(&bench, &gw_backend_hip, device, OT_MAPPED);
    for (int i = 0; i < OC_COUNT && device->group && device->driver->emulated; i++) {
        op_case c = oc_case(i);
        op_setup s;
        struct gw_segment *segment;
        gw_cut cut;
        int in_parts;
        if ((c.op != GW_OP_LINEAR && c.op != GW_OP_GLU) || c.order != GW_ORDER_PREFILL) {
            continue;
        }
        oc_open(&s, &c, bench.backend, device, 0, 1);
        s.node.kernel = oc_find(&s, "");
        assert_int_equal(bench.backend->freeze(device, &s.node, 1, s.rows, &segment), GW_OK);
        if (cut_of_case(segment, &c, &cut, &in_parts) && cut.wide > 0) {
            alone += !in_parts;
            shared += in_parts;
            with_whole += cut.whole > 0;
            with_last += cut.last > 0;
            glu += c.op == GW_OP_GLU && c.out == GW_FMT_F32;
            act8 += c.op == GW_OP_GLU && c.out == GW_FMT_ACT8;
        }
        bench.backend->segment_free(segment);
        oc_close(&s);
    }
    if (device->group && device->driver->emulated) {
        assert_true(alone > 0 && shared > 0 && with_whole > 0 && with_last > 0);
        assert_true(glu > 0 && act8 > 0);
    }
    ot_close(&bench);
}

/* From now on devices have no matrix instructions of four waves, and less memory. 0: the emulator
 * has none anyway, nothing tells the two devices apart and their table has been through; or, with
 * GODWIT_HIP_KINDS, the other order goes through it, as the kernels with groups go through both. */
static int hide_groups(void) {
    struct gw_device *device = open_hip(1);
    const char *order = getenv("GODWIT_EMULATOR_ORDER");
    const int none = device->driver->emulated && !device->group, shared = device->shared_bytes;
    gw_backend_hip.close(device);
    setenv("GODWIT_HIP", "no-group", 1);
    if (none) {
        device = open_hip(1);
        assert_true(!device->group && device->shared_bytes == shared);
        gw_backend_hip.close(device);
    }
    return !none &&
           (getenv("GODWIT_HIP_KINDS") == NULL || order == NULL || strcmp(order, "reverse") == 0);
}

#endif
