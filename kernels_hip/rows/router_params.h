/* kernels_hip/rows/router_params.h - parameters of gw_router_FORMAT: what lies between a residual
 * stream and a mixture's experts in one launch, for generated tokens. */
#ifndef GW_KERNELS_HIP_ROUTER_PARAMS_H
#define GW_KERNELS_HIP_ROUTER_PARAMS_H

#include "kernels_hip/act8_params.h"
#include "kernels_hip/params.h"
#include "kernels_hip/rows/route_params.h"

/* h = RMS norm of a row of `in`; logits = h W^T (+ bias) in the decode order; out = the route; act:
 * h as activation blocks of a form, if not 0. Grid (experts over GW_ROUTER_EACH and a block for the
 * gate, rows); dynamic shared memory GW_ROUTER_SHARED, 16-byte aligned. */
enum { GW_ROUTER_THREADS = GW_ROUTE_THREADS, GW_ROUTER_EACH = 4, GW_ROUTER_MOST = 8192 /* of k */ };
#define GW_ROUTER_WIDTH(k) (((k) + 127) / 128 * 128) /* floats of a row in shared memory */
/* gw_router_many_FORMAT: the same of many rows, without the route: a block has `rows` rows and as
 * many experts as its threads can have, GW_ROUTER_MANY, of 16-bit weights twice as many. Dynamic
 * shared memory: the weights of the norm and h. */
enum {
    GW_ROUTER_MANY = GW_ROUTER_THREADS / 32,
    GW_ROUTER_AT_ONCE = 4,       /* rows whose products are made together */
    GW_ROUTER_FEW = 8,           /* rows up to which each has blocks of its own */
    GW_ROUTER_DECLARED = 9 << 10 /* bytes of shared memory besides           */
};
#define GW_ROUTER_MANY_SHARED(rows, k) (4 * ((rows) + 1) * GW_ROUTER_WIDTH(k))
#define GW_ROUTER_SHARED(k, experts)                                                               \
    (4 * GW_ROUTER_WIDTH(k) +                                                                      \
     (4 * (k) > GW_ROUTE_SHARED(experts) ? 4 * (k) : GW_ROUTE_SHARED(experts)))
struct gw_router_params {
    struct gw_step_params step;
    GW_DEV(const float) in;     /* [rows, k]                            */
    GW_DEV(const float) weight; /* of the norm [k]                      */
    GW_DEV(float) h;            /* [rows, k]                            */
    GW_DEV(void) act;           /* the same in blocks, or 0             */
    GW_DEV(const uint8_t) w;    /* strips of floats [experts, k]        */
    GW_DEV(const float) bias;   /* [experts] or 0                       */
    GW_DEV(float) logits;       /* [rows, experts]                      */
    GW_DEV(float) out;          /* [rows, 2 used]                       */
    GW_DEV(uint32_t) arrived;   /* [rows], 0 between launches           */
    GW_DEV(const uint8_t) gate; /* a strip of one row [1, k], or 0      */
    GW_DEV(float) gate_out;     /* [rows]: sigmoid(h gate)              */
    struct gw_route_params route;
    int32_t k, form; /* of act; k is a multiple of 32 */
    int32_t leaves;  /* 128 values of h that a block leaves in memory, so many times */
    float eps;
    int32_t rows; /* of a block of gw_router_many_.. */
};

#endif
