/* kernels_hip/attention/attend_prompt.h - what a row of a prompt sees. */
#ifndef GW_KERNELS_HIP_ATTEND_PROMPT_H
#define GW_KERNELS_HIP_ATTEND_PROMPT_H

#include "kernels_hip/attention/attend_prompt_params.h"

/* The first and last position. */
struct gw_prompt_span {
    int low, high;
};

GW_DEVICE gw_prompt_span gw_prompt_seen(const gw_prompt_params &p, int row) {
    const int pos = gw_step_pos(p.step, row);
    gw_prompt_span s = {p.window > 0 && pos + 1 > p.window ? pos + 1 - p.window : 0, pos};
    if (p.both) {
        const int last = gw_step_last(p.step, row), edge = pos + p.window - 1;
        s.high = p.window > 0 && edge < last ? edge : last;
    }
    return s;
}

#endif
