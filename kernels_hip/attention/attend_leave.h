/* kernels_hip/attention/attend_leave.h - what attention leaves: values of a head to its result, and
 * to all cards where an exchange is behind it.
 */
#ifndef GW_KERNELS_HIP_ATTEND_LEAVE_H
#define GW_KERNELS_HIP_ATTEND_LEAVE_H

#include "kernels_hip/sends.h"

/* Value i of a head, which is the lane's; coded: as act8, of which heads have whole blocks; number:
 * gw_ask_number. p: out, heads, e, form, sends. The whole team calls it. */
template <class Params>
__device__ static inline void leave_value(const Params &p, int coded, int row, int h, int i,
                                          float o, unsigned number) {
    const int width = p.heads * p.e, column = h * p.e + i;
    const size_t to = (size_t)row * width + column;
    if (coded) {
        gw_team_act8<1> codes;
        codes.encode(&o);
        if (p.sends.cards > 0) {
            gw_send_blocks<1>(p.sends, number, codes, row, 1, width / GW_ACT_BLOCK,
                              column / GW_ACT_BLOCK, 1);
        }
        codes.store(p.out, to / GW_ACT_BLOCK, 0, p.form, 1);
    } else if (i < p.e) {
        ((float *)p.out)[to] = o;
        if (p.sends.cards > 0) {
            gw_send_word(p.sends, number, gw_pair_of_column(row, width, column), GW_F32_BITS(o));
        }
    }
}

#endif
