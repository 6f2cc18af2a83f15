/* kernels_hip/rows/router.hip - norm, router, route, the experts' input and the shared expert's
 * gate of generated tokens in one launch. Each of its steps takes less than what stands between two
 * launches. A block norms the whole row again, since that costs less than waiting for another
 * block's; the last block of a row that is done chooses the experts. Of many rows a block has
 * several, and the route is a launch of its own. */
#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/rows/router_params.h"
#include "kernels_hip/rows/route.h"
#include "kernels_hip/rows/row_sum.h"
#include "kernels_hip/strip.h"

enum { HELD = 16 /* pieces of a weight row that a thread asks for before x is there */ };

/* A thread has 16 bytes of each record of its row: four columns of one lane of arith.h, or of two
 * neighbouring lanes. */
struct router_f32 {
    enum { PAIR = 1, RECORD = GW_STRIP_ROWS * GW_STRIP_FLOATS * 4 };
    __device__ static inline float element(const gw_16b &v, int e, int) {
        return GW_F32_FROM_BITS(v.w[e]);
    }
};
struct router_f16 {
    enum { PAIR = 2, RECORD = GW_STRIP_ROWS * GW_STRIP_FLOATS * 2 };
    __device__ static inline float element(const gw_16b &v, int e, int o) {
        return gw_widen_f16((gw_u16)(v.w[e] >> 16 * o));
    }
};
struct router_bf16 {
    enum { PAIR = 2, RECORD = GW_STRIP_ROWS * GW_STRIP_FLOATS * 2 };
    __device__ static inline float element(const gw_16b &v, int e, int o) {
        return gw_bf16_to_f32((gw_u16)(v.w[e] >> 16 * o));
    }
};

/* One row of W for each group of 32 / PAIR threads. */
template <class F> struct router_row {
    enum { THREADS = GW_LANES / F::PAIR };
    gw_16b held[HELD];
    const uint8_t *from;
    int expert, records, lane; /* lane: the first of arith.h; expert -1: none */

    /* gate: of that matrix, whose row is called 0. */
    __device__ inline void open(const struct gw_router_params &p, int gate, int each) {
        const int i = (int)threadIdx.x % THREADS, here = (int)threadIdx.x / THREADS;
        expert = gate ? here : (int)blockIdx.x * each + here;
        expert = here < each && expert < (gate ? 1 : p.route.experts) ? expert : -1;
        records = (p.k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
        lane = i * F::PAIR;
        const int r = expert < 0 ? 0 : expert;
        from = (gate ? p.gate : p.w) + (size_t)(r / 16) * records * F::RECORD + 1024 * (i / 4) +
               64 * (r % 16) + 16 * (i % 4);
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            if (expert >= 0 && j < records) {
                held[j] = gw_stream(from + (size_t)j * F::RECORD);
            }
        }
    }
    /* Columns of record j: of each of R rows h, `apart` floats apart, to its lanes' sums. */
    template <int R>
    __device__ inline void add(const gw_16b &v, const float *h, int apart, int j,
                               float (*acc)[F::PAIR]) const {
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float *x = h + r * apart + j * (int)GW_STRIP_FLOATS + 4 * lane;
#pragma unroll
            for (int o = 0; o < F::PAIR; o++) {
                const row_four y = *(const row_four *)(x + 4 * o);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    acc[r][o] = GW_FMA(F::element(v, e, o), y.v[e], acc[r][o]);
                }
            }
        }
    }
    /* Products with R rows h, in every thread of the row of W; whole teams call it. */
    template <int R> __device__ inline void sums(const float *h, int apart, float *v) const {
        float acc[R][F::PAIR] = {};
        if (expert >= 0) {
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                if (j < records) {
                    add<R>(held[j], h, apart, j, acc);
                }
            }
#pragma unroll 1
            for (int j = HELD; j < records; j++) {
                add<R>(gw_stream(from + (size_t)j * F::RECORD), h, apart, j, acc);
            }
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            v[r] = F::PAIR == 2 ? acc[r][0] + acc[r][F::PAIR - 1] : acc[r][0];
#pragma unroll
            for (int by = 1; by < THREADS; by *= 2) {
                v[r] = v[r] + gw_shuffle_xor(v[r], by);
            }
        }
    }
};

/* ---- a row of h ------------------------------------------------------------------------------ */

/* Where in shared memory column i of a row stands: the four of a record that a lane of arith.h adds
 * up lie together. Columns that a row has not are 0, and their weights -0: such terms change no
 * sum. */
GW_DEVICE int router_at(int i) { return (i & ~127) + 4 * (i & 31) + (i >> 5 & 3); }
GW_DEVICE int router_width(int k) { return (k + 127) & ~127; }

/* Four neighbours of a row at i go to memory; whole teams. */
GW_DEVICE void router_leave(const struct gw_router_params &p, int row, int i, const row_four &y) {
    const size_t at = (size_t)row * p.k + i;
    gw_act8_four code;
    if (p.act) {
        code.encode(y.v); /* whole teams */
    }
    if (i < p.k) {
        *(row_four *)(p.h + at) = y;
        if (p.act) {
            code.store(p.act, at / GW_ACT_BLOCK, p.form);
        }
    }
}

/* The norm's weights to shared memory, before x is there. */
GW_DEVICE void router_weight(const struct gw_router_params &p, float *weight) {
#pragma unroll 2
    for (int i = 4 * (int)threadIdx.x; i < p.k; i += 4 * GW_ROUTER_THREADS) {
        *(row_four *)(weight + i) = row_read(p.weight + i);
    }
}

template <int TEAM> __device__ static inline void router_sync(void) {
    if (TEAM) {
        gw_sync_team();
    } else {
        __syncthreads();
    }
}

/* Norm of a row x -> h in shared memory, by the block or by a TEAM. The compiler can see that loops
 * have as many iterations for all lanes: else shuffles in them get code for lanes that take no
 * part. */
template <int TEAM>
__device__ static inline void router_norm(const struct gw_router_params &p, int row,
                                          const float *weight, float *h, float *squares) {
    enum { STEP = 4 * (TEAM ? (int)GW_LANES : (int)GW_ROUTER_THREADS), UNROLL = TEAM ? 8 : 2 };
    const int k = p.k, lane = gw_lane(), end = router_width(k);
    const int from = 4 * (TEAM ? lane : (int)threadIdx.x);
    const float *x = p.in + (size_t)row * k;
    float sum = 0.0f;
#pragma unroll UNROLL
    for (int base = 0; base < end; base += STEP) {
        const int i = base + from, at = router_at(i);
        row_four v = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (i < k) {
            v = row_read(x + i);
        }
        const float square = row_squares(v);
        if (i < end) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                h[at + 4 * j] = v.v[j];
            }
        }
        if (lane % 8 == 0 && i < k) {
            squares[i / GW_ACT_BLOCK] = square;
        }
    }
    router_sync<TEAM>();
#pragma unroll 1
    for (int b = 0; b < k / GW_ACT_BLOCK; b += GW_LANES) {
        sum = b + lane < k / GW_ACT_BLOCK ? sum + squares[b + lane] : sum;
    }
    const float r = gw_rms_scale(gw_fold(sum), k, p.eps);
#pragma unroll UNROLL
    for (int base = 0; base < end; base += STEP) {
        const int i = base + from;
        if (i < k) {
            const row_four w = *(const row_four *)(weight + i);
            float *at = h + router_at(i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                at[4 * j] = (at[4 * j] * w.v[j]) * r;
            }
        }
    }
    router_sync<TEAM>();
}

/* A block's pieces of a row h in shared memory to memory. Code of kernels of one row is short where
 * it can be: most of it runs once in a launch, and comes from memory each time. */
template <int TEAM>
__device__ static inline void router_leave_row(const struct gw_router_params &p, int row,
                                               const float *h) {
    enum { STEP = TEAM ? 1 : (int)GW_ROUTER_THREADS / (int)GW_LANES };
    const int first = (int)blockIdx.x * p.leaves, all = router_width(p.k) / 128;
    const int end = first + p.leaves < all ? first + p.leaves : all;
#pragma unroll 1
    for (int base = first; base < end; base += STEP) {
        const int piece = base + (TEAM ? 0 : gw_team()), i = 128 * piece + 4 * gw_lane();
        row_four v = {{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v.v[j] = piece < end ? h[router_at(i) + 4 * j] : 0.0f;
        }
        router_leave(p, row, piece < end ? i : p.k, v);
    }
}

/* What becomes of a row's product with the row of W that a thread has. */
template <class F>
__device__ static inline void router_put(const struct gw_router_params &p,
                                         const router_row<F> &mine, int row, int gate, float v) {
    if (mine.expert < 0 || mine.lane != 0) {
        return;
    }
    if (gate) {
        p.gate_out[row] = gw_sigmoid(v);
    } else {
        p.logits[(size_t)row * p.route.experts + mine.expert] =
            p.bias ? v + p.bias[mine.expert] : v;
    }
}

template <class F> __device__ static inline void router(const struct gw_router_params &p) {
    GW_SHARED_DYNAMIC(float, shared);
    __shared__ float squares[GW_ROUTER_MOST / GW_ACT_BLOCK];
    __shared__ unsigned before;
    const int row = (int)blockIdx.y, n = p.route.experts;
    float *h = shared, *weight = h + router_width(p.k); /* later the route's place */
    router_row<F> mine;
    const int gates = p.gate != 0, gate = gates && blockIdx.x == gridDim.x - 1;
    const unsigned last = gridDim.x - 1 - gates;
    mine.open(p, gate, GW_ROUTER_EACH);
    router_weight(p, weight);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    router_norm<0>(p, row, weight, h, squares);
    if (gw_team() * (int)F::PAIR < GW_ROUTER_EACH) { /* teams with rows */
        float v;
        mine.template sums<1>(h, 0, &v);
        router_put(p, mine, row, gate, v);
    }
    if (!gate && gw_block_arrives(p.arrived + row, last, &before) == last) {
        gw_route_block(p.route, p.logits + (size_t)row * n, 0,
                       p.out + (size_t)row * 2 * p.route.used, weight);
    }
    router_leave_row<0>(p, row, h);
}

/* Rows together: a team norms one, all have each product, of four rows at a time. */
template <class F> __device__ static inline void router_many(const struct gw_router_params &p) {
    enum { TEAMS = GW_ROUTER_THREADS / GW_LANES, R = GW_ROUTER_AT_ONCE };
    GW_SHARED_DYNAMIC(float, weight); /* [k] of the norm, then h [p.rows, width] */
    __shared__ float squares[TEAMS][GW_ROUTER_MOST / GW_ACT_BLOCK];
    const int gate = p.gate && blockIdx.x == gridDim.x - 1, first = (int)blockIdx.y * p.rows;
    const int width = router_width(p.k);
    float *h = weight + width;
    router_row<F> mine;
    mine.open(p, gate, GW_ROUTER_MANY * F::PAIR);
    router_weight(p, weight);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int left = gw_live(p.step) - first, n = left < p.rows ? left : p.rows;
    if (n <= 0) {
        return;
    }
    __syncthreads();     /* weights are there */
    if (gw_team() < n) { /* p.rows are no more than teams */
        float *row = h + gw_team() * width;
        router_norm<1>(p, first + gw_team(), weight, row, squares[gw_team()]);
        router_leave_row<1>(p, first + gw_team(), row);
    }
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < n; r += R) {
        float v[R];
        mine.template sums<R>(h + r * width, width, v);
#pragma unroll
        for (int i = 0; i < R; i++) {
            if (r + i < n) {
                router_put(p, mine, first + r + i, gate, v[i]);
            }
        }
    }
}

#define ROUTER(format)                                                                             \
    GW_KERNEL(gw_router_##format, struct gw_router_params, GW_ROUTER_THREADS, 1) {                 \
        router<router_##format>(p);                                                                \
    }                                                                                              \
    GW_KERNEL(gw_router_many_##format, struct gw_router_params, GW_ROUTER_THREADS, 1) {            \
        router_many<router_##format>(p);                                                           \
    }
ROUTER(f32)
ROUTER(f16)
ROUTER(bf16)
