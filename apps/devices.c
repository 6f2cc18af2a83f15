/* apps/devices.c - `godwit devices`: what can compute here. */
#include <stdio.h>

#include "apps/common.h"
#include "apps/output.h"
#include "apps/roof.h"

enum { ROWS = 32 };

/* Nothing for a device that cannot be measured. */
static void print_roof(const char *id, const gw_roof *roof, int first) {
    if (roof->read_gbps > 0) {
        out_print("%s%s: reads %.2f GB/s", first ? "\n" : "", id, roof->read_gbps);
        if (roof->int8_gops > 0) {
            out_print("; int8 %.0f GOP/s; f32 %.1f GFLOP/s", roof->int8_gops, roof->f32_gflops);
        }
        out_text("\n");
    }
}

static int run_devices(const app_options *o) {
    gw_device_info rows[ROWS];
    size_t n = gw_devices(rows, ROWS);
    int code = APP_OK;
    n = n < ROWS ? n : ROWS;
    out_text("| device | name | threads | memory | free | |\n|---|---|---:|---:|---:|---|\n");
    for (size_t i = 0; i < n; i++) {
        char memory[32], unused[32];
        out_print("| %s | %s | %d | %s | %s | %s |\n", rows[i].id, rows[i].name, rows[i].threads,
                  app_bytes(rows[i].memory_bytes, memory), app_bytes(rows[i].free_bytes, unused),
                  rows[i].detail);
    }
    for (size_t i = 0; o->measure && i < n && out_flush() == 0; i++) {
        gw_roof roof, now;
        gw_status status = roof_of_device(rows[i].id, o->threads, 1, &roof, &now);
        if (status == GW_OK) {
            print_roof(rows[i].id, &roof, i == 0);
            if (now.read_gbps < 0.85 * roof.read_gbps) {
                app_note("%s: %.2f GB/s just now, less than it can do: something else is running",
                         rows[i].id, now.read_gbps);
            }
        } else {
            code = app_fail(status); /* the others may still do */
        }
    }
    return out_failed() ? APP_FAILURE : code;
}

const app_command command_devices = {
    .name = "devices",
    .bit = CMD_DEVICES,
    .usage = "[--measure] [OPTIONS]",
    .summary = "what can compute on this machine",
    .detail =
        "Lists the names that --device takes, with their instruction set, threads and memory.\n"
        "--measure: the speed of memory and arithmetic, the best of all measurements so far, as\n"
        "'godwit plan' and 'godwit doctor' name it.\n",
    .examples = "  godwit devices\n  godwit devices --measure -t 2\n",
    .run = run_devices,
};
