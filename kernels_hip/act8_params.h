/* kernels_hip/act8_params.h - how rows of act8 lie in device memory; chosen by the host side where
 * they are recorded (backends/hip/linear.c), known to who writes and who reads them.
 *
 * Plain rows are gw_act8 after gw_act8. Products of generated tokens on devices with GW_COPIES want
 * them in groups of four blocks, as their threads read them, so that a row comes to shared memory
 * in one piece: 40 words, first the scales of the four blocks, then their second numbers, then for
 * each quarter t the words t and t + 4 of block 0, of block 1, ..: eight neighbours. Rows have
 * whole groups; blocks that they lack are zeros. The second number is what the weights' term needs.
 */
#ifndef GW_KERNELS_HIP_ACT8_PARAMS_H
#define GW_KERNELS_HIP_ACT8_PARAMS_H

enum {
    GW_ACT_WORDS = 10, /* of a gw_act8: scale, sums, eight of q */
    GW_ACT_GROUP = 4,  /* blocks                               */
    GW_ACT_GROUP_WORDS = GW_ACT_GROUP * GW_ACT_WORDS,
};

enum {
    GW_FORM_FLOATS, /* not act8 */
    GW_FORM_PLAIN,
    /* In groups; the second number is */
    GW_FORM_SUMS,   /* the sums of the halves, 16 bits each */
    GW_FORM_FLOAT,  /* the sum, a float                     */
    GW_FORM_SCALED, /* scale times the sum, a float         */
    GW_FORM_LESS_8, /* the sum times -8, of codes with that offset; times -16 */
    GW_FORM_LESS_16,
    GW_FORM_SPAN, /* one scale for all four (gw_act8_span); that times the sum of all of them */
};

#endif
