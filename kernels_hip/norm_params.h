/* kernels_hip/norm_params.h - how a block of threads takes a row through NORM (norm.h). */
#ifndef GW_KERNELS_HIP_NORM_PARAMS_H
#define GW_KERNELS_HIP_NORM_PARAMS_H

enum {
    GW_NORM_THREADS = 512,
    GW_NORM_FOURS = 2, /* of a thread, asked for before they are needed                */
    GW_NORM_STEP = 4 * GW_NORM_THREADS,
    GW_NORM_GROUP = 8, /* values of each of the 32 chains that a team brings at a time */
    GW_NORM_SPAN = 32 * GW_NORM_GROUP
};

/* Floats from chain to chain, where `piece` values of a row are there at a time, a multiple of
 * GW_NORM_SPAN: four of the one side by side with those of seven others use all banks. Floats of
 * all chains. */
#define GW_NORM_PITCH(piece) ((piece) / 32 + 4)
#define GW_NORM_STAGE(piece) (32 * GW_NORM_PITCH(piece))

#endif
