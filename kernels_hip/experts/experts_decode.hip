/* kernels_hip/experts/experts_decode.hip - experts of generated tokens: both products, activation
 * and codes in one launch, the last product and the sum over a row's experts in another. A shared
 * expert has its part in both. Which weights are needed the launch in front says, so nothing can be
 * asked for before it has ended; then a wave has a class of the lanes of arith.h
 * (linear/linear_quant.h), whose records it reads side by side with the other waves. */
#include "kernels_hip/act8.h"
#include "kernels_hip/experts/experts.h"
#include "kernels_hip/linear/strip_read.h"

enum {
    CLASSES = GW_EXPERTS_CLASSES,
    STEP = GW_STRIP_ROWS + 1 /* floats of a class in shared memory */
};

/* Codes of the lane's block of row lane / 4 from `first` on, of a record in global memory. */
template <class F>
__device__ static inline void load_codes(gw_row_block<F> &c, const unsigned char *record, int first,
                                         int lane) {
    const unsigned char *above = record + GW_STRIP_LOW(F::LOW);
    if (F::LOW == 2) {
        c.load_8(c.low, record, 8 * first, lane);
    } else {
#pragma unroll
        for (int h = 0; h < F::LOW / 4; h++) {
#pragma unroll
            for (int t = 0; t < 4; t++) {
                c.low[(4 * h + t) % (F::LOW == 8 ? 8 : 4)] =
                    *(const unsigned *)(record + 1024 * h + GW_STRIP_AT_16(lane / 4, t) +
                                        512 * first + lane % 4 * 4);
            }
        }
    }
    if (F::HIGH == 1) {
#pragma unroll
        for (int t = 0; t < 4; t++) {
            c.high[t] =
                *(const unsigned *)(above + 128 * first + lane / 4 * 16 + 4 * t) >> 2 * (lane % 4);
        }
    } else if (F::HIGH == 2) {
        c.load_8(c.high, above, 8 * first, lane);
    }
}

/* A block of x as the terms of a row want it: `act` as in memory, scale and number made of it. */
struct lane_acts {
    unsigned act[GW_ACT_WORDS], number;
};
template <class F>
__device__ static inline void load_acts(lane_acts &a, const unsigned *x, int b, int blocks) {
    struct __align__(8) pair {
        unsigned w[2];
    };
#pragma unroll
    for (int w = 0; w < (int)GW_ACT_WORDS; w += 2) {
        pair v = {{0, 0}};
        if (b < blocks) {
            v = *(const pair *)(x + (size_t)b * GW_ACT_WORDS + w);
        }
        a.act[w] = v.w[0];
        a.act[w + 1] = v.w[1];
    }
    if (F::SPAN) {
        gw_span_blocks(a.act);
    }
    const int first = gw_first_sum(a.act[1]), second = F::SPAN ? 0 : gw_second_sum(a.act[1]);
    const float scale = GW_F32_FROM_BITS(a.act[0]);
    a.number = F::AFFINE                   ? GW_F32_BITS(scale * (float)(first + second))
               : F::TERM == GW_TERM_SIGNED ? (unsigned)(-F::OFFSET * (first + second))
                                           : a.act[1];
}

/* The records of class q of a strip, SETS rows a thread, added up: chains of the lane's block. */
template <class F>
__device__ static inline void add_strip(const unsigned char *strip, const unsigned *x, int blocks,
                                        int q, float *sums) {
    const int lane = gw_wave_lane(), i = lane % 4;
    const int records = (blocks + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS;
#pragma unroll
    for (int s = 0; s < SETS; s++) {
        sums[s] = 0.0f;
    }
#pragma unroll 1
    for (int u = q; u < records; u += CLASSES) {
        const unsigned char *record = strip + (size_t)u * F::BYTES;
        gw_row_block<F> codes[SETS];
        gw_block_scales<F> scales[SETS];
        lane_acts a;
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            load_codes<F>(codes[s], record, s, lane);
            scales[s].load(record, 8 * s, lane / 4, i);
        }
        load_acts<F>(a, x, u * GW_STRIP_BLOCKS + i, blocks);
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            int half[2] = {F::TERM == GW_TERM_SIGNED ? (int)a.number : 0, 0};
#pragma unroll
            for (int t = 0; t < 4; t++) {
                unsigned w[2];
                codes[s].words(t, w);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    half[h] = gw_dp4a((int)w[h], (int)a.act[2 + 4 * h + t], half[h]);
                }
            }
            int sum = F::TERM == GW_TERM_HALVES || F::TERM == GW_TERM_Q2
                          ? gw_sub_scale<F>(scales[s].sub, 0) * half[0] +
                                gw_sub_scale<F>(scales[s].sub, 1) * half[1]
                          : half[0] + half[1];
            if (F::SPAN) {
                sum += gw_quad_xor<1>(sum);
                sum += gw_quad_xor<2>(sum);
            }
            const float dx = GW_F32_FROM_BITS(a.act[0]);
            const float v = scales[s].term(sum, dx, a.number, sums[s]);
            sums[s] = (F::SPAN && i != 0) || u * GW_STRIP_BLOCKS + i >= blocks ? sums[s] : v;
        }
    }
}

/* The lanes' sums of a strip, joined within the class, to [CLASSES][STEP]. */
GW_DEVICE void leave_strip(float *to, int q, const float *sums) {
    const int lane = gw_wave_lane();
#pragma unroll
    for (int s = 0; s < SETS; s++) {
        float v = sums[s] + gw_quad_xor<1>(sums[s]);
        v = v + gw_quad_xor<2>(v);
        if (lane % 4 == 0) {
            to[q * STEP + lane / 4 + 8 * s] = v;
        }
    }
}

/* ---- EXPERTS_GLU ----------------------------------------------------------------------------- */

/* Two strips of gate and two of up: a wave has a class of both strips of one of them. */
template <class F> __device__ static inline void glu(const struct gw_experts_params &p) {
    __shared__ float sums[4][CLASSES * STEP];
    const int shared = p.own[0] ? p.step.rows : 0, is_own = (int)blockIdx.y < shared;
    const int entry = (int)blockIdx.y - shared, row = is_own ? (int)blockIdx.y : entry / p.used;
    const int item = (int)blockIdx.x, wave = gw_wave(), m = is_own ? p.own_n : p.m;
    const int q = wave % CLASSES, part = wave / CLASSES, blocks = p.k / GW_ACT_BLOCK;
    const int records = (blocks + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS;
    const int bytes = records * (int)F::BYTES;
    const uint8_t *gate = is_own ? p.own[0] : p.w[0], *up = is_own ? p.own[1] : p.w[1];
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || item * GW_ACT_BLOCK >= m) {
        return;
    }
    const int expert = is_own ? 0 : gw_expert_of(p, entry);
    const size_t strip = (size_t)expert * (size_t)(m / GW_STRIP_ROWS) + 2 * (size_t)item;
    const unsigned char *w = (part ? up : gate) + strip * (size_t)bytes;
    const unsigned *x = (const unsigned *)p.x + (size_t)row * (size_t)blocks * GW_ACT_WORDS;
    float mine[2][SETS];
    if (part == 0 || up) {
        add_strip<F>(w, x, blocks, q, mine[0]);
        add_strip<F>(w + bytes, x, blocks, q, mine[1]);
        leave_strip(sums[2 * part], q, mine[0]);
        leave_strip(sums[2 * part + 1], q, mine[1]);
    }
    __syncthreads();
    if (gw_team() > 0) {
        return;
    }
    const int lane = gw_lane(), at = item * GW_ACT_BLOCK + lane, r = lane % GW_STRIP_ROWS;
    const size_t of = (size_t)expert * m + at;
    float g = gw_join_classes<CLASSES>(sums[lane / GW_STRIP_ROWS] + r, STEP), u = 0.0f;
    if (up) {
        u = gw_join_classes<CLASSES>(sums[2 + lane / GW_STRIP_ROWS] + r, STEP);
    }
    if (is_own) {
        gw_team_encode(p.own_y, ((size_t)row * m + at) / GW_ACT_BLOCK, GW_FORM_PLAIN,
                       gw_silu(g) * u);
        return;
    }
    g = gw_expert_sum(p, entry, 0, of, g);
    u = up ? gw_expert_sum(p, entry, 1, of, u) : u;
    const float v = gw_expert_act(p, g, u);
    const size_t to = (size_t)entry * m + at;
    if (p.form != GW_FORM_FLOATS) {
        gw_team_encode(p.y, to / GW_ACT_BLOCK, p.form, v);
    } else {
        ((float *)p.y)[to] = v;
    }
}

/* ---- EXPERTS_DOWN ---------------------------------------------------------------------------- */

/* A row's experts, as a block of gw_experts_down has them: the shared one is the last. */
template <class F> struct down_experts {
    const struct gw_experts_params &p;
    int row, strip, n, blocks, own_blocks;

    __device__ inline down_experts(const struct gw_experts_params &params)
        : p(params), row((int)blockIdx.y), strip((int)blockIdx.x),
          n(params.used + (params.own[0] != 0)), blocks(params.k / GW_ACT_BLOCK),
          own_blocks(params.own[0] ? params.own_n / GW_ACT_BLOCK : 0) {}
    __device__ inline int expert(int k) const {
        return k < p.used ? gw_expert_of(p, row * p.used + k) : 0;
    }
    __device__ inline float gate(int k) const {
        return k >= p.used    ? p.own_gate[row]
               : p.gate_input ? 1.0f
                              : gw_gate_of(p, row * p.used + k);
    }
    __device__ inline int records(int k) const {
        return ((k < p.used ? blocks : own_blocks) + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS;
    }
    /* Classes of lanes that have a record at all. */
    __device__ inline int classes(int k) const {
        return records(k) < CLASSES ? records(k) : CLASSES;
    }
    __device__ inline int bytes(int k) const { return records(k) * (int)F::BYTES; }
    __device__ inline const unsigned char *weights(int k) const {
        const size_t first = (size_t)expert(k) * (size_t)(p.m / GW_STRIP_ROWS);
        return (k < p.used ? p.w[0] : p.own[0]) + (first + strip) * (size_t)bytes(k);
    }
    __device__ inline const unsigned *x(int k) const {
        const size_t entry = (size_t)row * p.used + k;
        return k < p.used ? (const unsigned *)p.x + entry * blocks * GW_ACT_WORDS
                          : (const unsigned *)p.own_y + (size_t)row * own_blocks * GW_ACT_WORDS;
    }
};

/* A strip of the result of a row. */
template <class F> __device__ static inline void down(const struct gw_experts_params &p) {
    GW_SHARED_DYNAMIC(float, sums); /* [experts][CLASSES * STEP] */
    __shared__ unsigned before;
    const down_experts<F> of(p);
    const int row = of.row, strip = of.strip, wave = gw_wave(), n = of.n;
    const int strips = p.m / GW_STRIP_ROWS, every = CLASSES * STEP;
    gw_grid_launch_dependents();
    for (int i = (int)threadIdx.x; i < n * every; i += (int)blockDim.x) { /* classes without any */
        if (i % every / STEP >= of.classes(i / every)) {
            sums[i] = 0.0f;
        }
    }
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    /* Experts with as many classes lie one after the other, the shared one behind them. */
    const int own = p.used * of.classes(0), pieces = own + (n > p.used ? of.classes(p.used) : 0);
#pragma unroll 1
    for (int i = wave; i < pieces; i += (int)blockDim.x / LANES) {
        const int k = i < own ? i / of.classes(0) : p.used, q = i - k * of.classes(0);
        float mine[SETS];
        add_strip<F>(of.weights(k), of.x(k), k < p.used ? of.blocks : of.own_blocks, q, mine);
        leave_strip(sums + k * every, q, mine);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n * GW_STRIP_ROWS; i += (int)blockDim.x) {
        const int k = i / GW_STRIP_ROWS, r = i % GW_STRIP_ROWS;
        float *classes = sums + k * every + r; /* becomes the value, and its gate */
        float v = gw_join_classes<CLASSES>(classes, STEP), gate = of.gate(k);
        if (k < p.used) {
            const size_t at = (size_t)of.expert(k) * p.m + strip * GW_STRIP_ROWS + r;
            v = gw_expert_sum(p, row * p.used + k, 0, at, v);
        }
        classes[0] = k < p.used ? v : v * gate;
        classes[STEP] = gate;
    }
    __syncthreads();
    if (threadIdx.x < GW_STRIP_ROWS) {
        const float *mine = sums + threadIdx.x;
        float acc = 0.0f;
        for (int k = 0; k < p.used; k++) {
            acc = GW_FMA(mine[k * every + STEP], mine[k * every], acc);
        }
        const size_t to = (size_t)row * p.m + strip * GW_STRIP_ROWS + threadIdx.x;
        acc = p.addend ? p.addend[to] + acc : acc;
        ((float *)p.y)[to] = n > p.used ? acc + mine[p.used * every] : acc;
    }
    if (p.behind &&
        gw_block_arrives(p.arrived + (size_t)row * (strips / 2) + strip / 2, 1, &before) == 1 &&
        gw_team() == 0) {
        const int pair = strip / 2; /* made by this block and by one that has ended before */
        const float *y = (const float *)p.y + (size_t)row * p.m + pair * GW_ACT_BLOCK;
        gw_experts_leave_norm(p, row, pair, y[gw_lane()]);
    }
}

#define KERNELS(FORMAT, name, ...)                                                                 \
    GW_KERNEL(gw_experts_glu_##name, struct gw_experts_params, GW_EXPERTS_GLU_WAVES *LANES, 2) {   \
        glu<gw_strip_##name>(p);                                                                   \
    }                                                                                              \
    GW_KERNEL(gw_experts_down_##name, struct gw_experts_params, 1024, 1) {                         \
        down<gw_strip_##name>(p);                                                                  \
    }
GW_STRIP_KERNELS(KERNELS)
