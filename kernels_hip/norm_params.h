/* kernels_hip/norm_params.h - how a block of threads takes a row through NORM (norm.h). */
#ifndef GW_KERNELS_HIP_NORM_PARAMS_H
#define GW_KERNELS_HIP_NORM_PARAMS_H

enum {
    GW_NORM_THREADS = 512,
    GW_NORM_FOURS = 2, /* of a thread, asked for before they are needed                */
    GW_NORM_STEP = 4 * GW_NORM_THREADS,
    GW_NORM_GROUP = 16, /* terms of each of the 32 chains that are added at a time */
    GW_NORM_SPAN = 32 * GW_NORM_GROUP
};

/* Floats from chain to chain, where `piece` values of a row are there at a time, a multiple of
 * GW_NORM_SPAN: an odd number, so that the same term of all chains, or four of eight, are in
 * different banks. Floats of all chains. */
#define GW_NORM_PITCH(piece) ((piece) / 32 + 1)
#define GW_NORM_STAGE(piece) (32 * GW_NORM_PITCH(piece))

#endif
