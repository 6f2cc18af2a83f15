/* kernels_hip/rows/state_step.hip - what lies between a delta net's products, of one generated
 * token, in one launch: CONV, SCAN, GROUP_NORM and the codes of its result (docs/arithmetic.md,
 * section 5). A head's block makes its group's q and k itself, which other heads' blocks do as
 * well. Everything but the row itself is asked for before it is there: states of earlier positions
 * are not written by any launch of the pass in front. */
#include "kernels_hip/act8.h"
#include "kernels_hip/rows/state.h"

enum { TAPS = GW_STEP_TAPS };

/* One column of CONV. */
struct step_column {
    float x[TAPS], w[TAPS], bias;
    int at;

    __device__ inline void ask(const struct gw_state_step_params &p, int column, int width,
                               int start) {
        const int before = p.taps - 1;
        const float *from =
            p.taps_state + entry_of(p.step, 0, start, p.taps_entries, (size_t)before * width);
        at = column;
#pragma unroll
        for (int t = 0; t < (int)TAPS; t++) {
            x[t] = t < before && start > 0 ? from[(size_t)t * width + at] : 0.0f;
            w[t] = t < p.taps ? p.taps_w[(size_t)at * p.taps + t] : 0.0f;
        }
        bias = p.taps_bias ? p.taps_bias[at] : 0.0f;
    }
    /* Its value; writes: and what the next position finds. */
    __device__ inline float value(const struct gw_state_step_params &p, int width, int start,
                                  int writes) {
        const int before = p.taps - 1;
        const float newest = p.in[at];
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < (int)TAPS; t++) {
            x[t] = t == before ? newest : x[t];
            sum = t < p.taps ? GW_FMA(w[t], x[t], sum) : sum;
        }
        sum = p.taps_bias ? sum + bias : sum;
        float *to = p.taps_state +
                    entry_of(p.step, 0, start + 1, p.taps_entries, (size_t)before * width) + at;
#pragma unroll
        for (int t = 0; t < (int)TAPS - 1; t++) {
            if (t < before && writes) {
                to[(size_t)t * width] = x[t + 1];
            }
        }
        return gate_of(p.taps_kind, sum);
    }
};

/* The factor of a vector of KEYS values in shared memory; every lane of a team gets it. */
template <int KEYS> __device__ static inline float step_factor(const float *v, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < KEYS; i += GW_LANES) {
        sum = GW_FMA(v[i + gw_lane()], v[i + gw_lane()], sum);
    }
    return gw_rms_scale(gw_fold(sum), KEYS, eps);
}

/* Blocks without a head: memory is idle while the others are at work. */
GW_DEVICE void step_soon(const struct gw_state_step_params &p) {
    const int64_t first = (int64_t)(blockIdx.x - p.heads) * blockDim.x + threadIdx.x;
    const int64_t step = (int64_t)(gridDim.x - p.heads) * blockDim.x * GW_STEP_PIECE;
#pragma unroll
    for (int i = 0; i < (int)GW_STEP_SOON; i++) {
        for (int64_t at = first * GW_STEP_PIECE; at < p.soon_bytes[i]; at += step) {
            const int64_t left = p.soon_bytes[i] - at;
            const int64_t piece = left < (int64_t)GW_STEP_PIECE ? left : (int64_t)GW_STEP_PIECE;
            gw_prefetch_bytes(p.soon[i] + at, (int)piece);
        }
    }
}

template <int KEYS> __device__ static inline void step(const struct gw_state_step_params &p) {
    __shared__ __align__(16) float q[KEYS], k[KEYS];
    __shared__ float row[2][KEYS];
    gw_grid_launch_dependents();
    if ((int)blockIdx.x >= p.heads) {
        step_soon(p);
        return;
    }
    const int h = (int)blockIdx.x, t = (int)threadIdx.x, all = p.groups * KEYS;
    const int g = p.tiled ? h % p.groups : h / (p.heads / p.groups);
    const int is_first = p.tiled ? h < p.groups : h % (p.heads / p.groups) == 0;
    const int width = 2 * all + p.heads * KEYS, start = gw_step_pos(p.step, 0);
    const size_t memory = (size_t)p.heads * KEYS * KEYS;
    float *known = p.state + (size_t)h * KEYS * KEYS + t;
    const float *from = known + entry_of(p.step, 0, start, p.entries, memory);
    step_column column[3];
    float s[KEYS];
    column[0].ask(p, g * KEYS + t, width, start);
    column[1].ask(p, all + g * KEYS + t, width, start);
    column[2].ask(p, 2 * all + h * KEYS + t, width, start);
    const float a = p.a[h], bias = p.bias ? p.bias[h] : 0.0f;
    const float weight = p.weight ? p.weight[(h * KEYS + t) % p.wide] : 1.0f;
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        s[j] = start > 0 ? from[(size_t)j * KEYS] : 0.0f;
    }
    gw_grid_dependency_wait();
    if (gw_live(p.step) < 1) {
        return;
    }
    const float logit = p.decay[h], by = p.gate ? p.gate[h * KEYS + t] : 0.0f;
    const float beta = p.beta[h];
    const float mine_q = column[0].value(p, width, start, is_first);
    const float mine_k = column[1].value(p, width, start, is_first);
    const float mine_v = column[2].value(p, width, start, 1);
    row[0][t] = mine_q;
    row[1][t] = mine_k;
    const float d = gw_exp(a * gw_softplus(p.bias ? logit + bias : logit));
    const float strength = gw_sigmoid(beta), gate = p.gate ? gate_of(p.gate_kind, by) : 1.0f;
    __syncthreads();
    q[t] = (mine_q * step_factor<KEYS>(row[0], p.eps)) * p.q_scale;
    k[t] = (mine_k * step_factor<KEYS>(row[1], p.eps)) * p.k_scale;
    __syncthreads();
    float sum = 0.0f, y = 0.0f;
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        s[j] = s[j] * d;
        sum = GW_FMA(k[j], s[j], sum);
    }
    const float u = (mine_v - sum) * strength;
    float *to = known + entry_of(p.step, 0, start + 1, p.entries, memory);
    gw_sync_wave(); /* k is read again: beside the memory's column there is no room for it */
    gw_read_no_earlier();
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        s[j] = GW_FMA(k[j], u, s[j]);
        to[(size_t)j * KEYS] = s[j]; /* while the chain of y is what one waits for */
        y = GW_FMA(q[j], s[j], y);
    }
    y = p.gate && p.gate_first ? y * gate : y;
    row[0][t] = y;
    __syncthreads();
    float v = (y * step_factor<KEYS>(row[0], p.norm_eps)) * weight;
    v = p.gate && !p.gate_first ? v * gate : v;
    if (p.form != GW_FORM_FLOATS) {
        gw_team_encode(p.out, (size_t)h * (KEYS / GW_ACT_BLOCK) + gw_team(), p.form, v);
    } else {
        ((float *)p.out)[h * KEYS + t] = v;
    }
}

GW_KERNEL(gw_state_step_64, struct gw_state_step_params, 64) { step<64>(p); }
GW_KERNEL(gw_state_step_128, struct gw_state_step_params, 128) { step<128>(p); }
