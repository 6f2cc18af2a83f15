/* kernels_hip/rows/state.h - what the files of CONV, SCAN and EXP_GATES share: activations, rows of
 * a sequence, places of states, and what gw_state_prepare makes for scans. */
#ifndef GW_KERNELS_HIP_STATE_H
#define GW_KERNELS_HIP_STATE_H

#include "kernels_hip/device.h"
#include "kernels_hip/rows/state_params.h"
#include "core/tensor/act.h"

GW_DEVICE float gate_of(int kind, float x) {
    return gw_act_gate((gw_act_kind)kind, x, 0.0f, 0.0f, 0.0f, 0.0f);
}

/* Where the state before position pos of row i's sequence begins. */
GW_DEVICE size_t entry_of(const struct gw_step_params &s, int i, int pos, int entries,
                          size_t width) {
    return ((size_t)gw_step_slot(s, i) * entries + pos % entries) * width;
}

/* Rows of row i's sequence; 0 when an earlier row is of it too. */
GW_DEVICE int rows_from(const struct gw_step_params &s, int i, int live) {
    const int slot = gw_step_slot(s, i);
    int n = 0;
    for (int j = 0; j < i; j++) {
        if (gw_step_slot(s, j) == slot) {
            return 0;
        }
    }
    for (int j = i; j < live; j++) {
        n += gw_step_slot(s, j) == slot;
    }
    return n;
}
/* The next row of it, or live. */
GW_DEVICE int next_row(const struct gw_step_params &s, int i, int live) {
    int j = i + 1;
    while (j < live && gw_step_slot(s, j) != gw_step_slot(s, i)) {
        j++;
    }
    return j;
}

/* A row of gw_state_prepare, in floats. */
GW_DEVICE int made_width(int groups, int heads, int keys, int by_key) {
    return 2 * groups * keys + heads * ((by_key ? keys : 0) + GW_SCAN_RECORD);
}
/* The record of head h; d: where what is made of the decays begins. */
template <class T>
__device__ static inline T *record_of(T *d, int h, int heads, int keys, int by_key) {
    return d + (by_key ? heads * keys : 0) + h * GW_SCAN_RECORD;
}
/* The group of q and k that head h has. */
GW_DEVICE int group_of(const struct gw_state_scan_params &p, int h) {
    return p.tiled ? h % p.groups : h / (p.heads / p.groups);
}

#endif
