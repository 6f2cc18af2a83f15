/* tests/hip_early.h - that no launch begins before the step block is there. On NVIDIA a launch may
 * begin while the one in front of it runs; the emulator knows no such launches, so the calls of its
 * driver are watched.
 */
#ifndef GW_TESTS_HIP_EARLY_H
#define GW_TESTS_HIP_EARLY_H

#include "op_table.h"

#include "backends/hip/hip.h"
#include "hip_cut.h"

static const gw_hip_driver *early_driver;
static int early_place; /* of the next launch in its list: that of the step block is the first */
static int early_launches, early_faults;

static gw_hip_error launch_watched(gw_hip_function function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, gw_hip_stream stream,
                                   void **params, void **extra) {
    early_place++;
    return early_driver->Launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                shared_bytes, stream, params, extra);
}

static gw_hip_error launch_ex_watched(const gw_hip_launch_config *config, gw_hip_function function,
                                      void **params, void **extra) {
    for (unsigned i = 0; i < config->n_attributes; i++) {
        if (config->attributes[i].id == GW_HIP_LAUNCH_PROGRAMMATIC) {
            early_launches++;
            early_faults += early_place < 2;
        }
    }
    return launch_watched(function, config->grid[0], config->grid[1], config->grid[2],
                          config->block[0], config->block[1], config->block[2],
                          config->shared_bytes, config->stream, params, extra);
}

static gw_hip_error capture_watched(gw_hip_stream stream, int mode) {
    early_place = 0;
    return early_driver->CaptureBegin(stream, mode);
}

/* Runs attention of the table's first cases. absent: in how many of them some way of attention has
 * not the first launch. */
static void launch_attention(struct gw_device *device, int *absent) {
    for (int i = 0; i < OC_COUNT; i++) {
        op_case c = oc_case(i);
        op_setup s;
        struct gw_segment *segment;
        if (c.op != GW_OP_ATTENTION || c.n > 8 || c.order == GW_ORDER_PREFILL) {
            continue;
        }
        oc_open(&s, &c, &gw_backend_hip, device, 0, 1);
        s.node.kernel = oc_find(&s, "");
        assert_int_equal(gw_backend_hip.freeze(device, &s.node, 1, s.rows, &segment), GW_OK);
        *absent += segment->launches[0].ways != (1 << GW_HIP_ATTEND_KINDS) - 1;
        assert_int_equal(gw_hip_ready(segment, NULL), GW_OK);
        early_place = 0;
        assert_int_equal(gw_backend_hip.run(segment, &s.step), GW_OK);
        assert_int_equal(gw_backend_hip.wait(device), GW_OK);
        gw_backend_hip.segment_free(segment);
        oc_close(&s);
    }
}

static void step_is_there_first(void **state) {
    (void)state;
    for (int listed = 0; listed < 2; listed++) { /* by graphs; launch by launch */
        struct gw_device *device = open_hip(1);
        int absent = 0;
        gw_hip_driver watched = *device->driver;
        if (!watched.emulated || device->warp != 32) { /* NVIDIA's, and its launches are counted */
            gw_backend_hip.close(device);
            return;
        }
        early_driver = device->driver;
        watched.Launch = launch_watched;
        watched.LaunchEx = launch_ex_watched;
        watched.CaptureBegin = capture_watched;
        device->driver = &watched;
        device->programmatic = 1;
        device->no_graph = listed;
        early_launches = early_faults = 0;
        launch_attention(device, &absent);
        assert_true(absent > 0 && early_launches > 0);
        assert_int_equal(early_faults, 0);
        device->driver = early_driver;
        gw_backend_hip.close(device);
    }
}

#endif
