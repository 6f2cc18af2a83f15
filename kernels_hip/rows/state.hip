/* kernels_hip/rows/state.hip - CONV, SCAN, GROUP_NORM, HEADS and COLUMNS (docs/arithmetic.md,
 * section 5). */
#include "kernels_hip/join.h"
#include "kernels_hip/rows/state.h"

/* ---- CONV ------------------------------------------------------------------------------------ */

GW_KERNEL(gw_state_conv, struct gw_state_conv_params, GW_STATE_THREADS) {
    const int first = (int)blockIdx.y, c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step), before = p.taps - 1;
    if (first >= live || c >= p.width) {
        return;
    }
    int left = rows_from(p.step, first, live);
    if (left == 0) {
        return;
    }
    const size_t width = (size_t)before * p.width;
    const int start = gw_step_pos(p.step, first);
    const float *from = p.state + entry_of(p.step, first, start, p.entries, width) + c;
    float x[8], w[8];
#pragma unroll
    for (int t = 0; t < 8; t++) {
        x[t] = t < before && start > 0 ? from[(size_t)t * p.width] : 0.0f;
        w[t] = t < p.taps ? p.w[(size_t)c * p.taps + t] : 0.0f;
    }
    for (int i = first; i < live; i = next_row(p.step, i, live)) {
        const float newest = p.in[(size_t)i * p.width + c];
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < 8; t++) {
            x[t] = t == before ? newest : x[t];
            sum = t < p.taps ? GW_FMA(w[t], x[t], sum) : sum;
        }
        sum = p.bias ? sum + p.bias[c] : sum;
        p.out[(size_t)i * p.width + c] = gate_of(p.kind, sum);
        left--;
        float *to =
            p.state + entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, width) + c;
#pragma unroll
        for (int t = 0; t < 7; t++) {
            x[t] = x[t + 1];
            if (t < before && left < p.entries - 1) {
                to[(size_t)t * p.width] = x[t];
            }
        }
    }
}

/* The same with rows between the taps. */
GW_KERNEL(gw_state_conv_apart, struct gw_state_conv_params, GW_STATE_THREADS) {
    const int first = (int)blockIdx.y, c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step), before = (p.taps - 1) * p.apart;
    if (first >= live || c >= p.width) {
        return;
    }
    int left = rows_from(p.step, first, live);
    const size_t width = (size_t)before * p.width;
    const int start = gw_step_pos(p.step, first);
    const float *from = p.state + entry_of(p.step, first, start, p.entries, width) + c;
    float x[16];
    for (int t = 0; t < before && left > 0; t++) {
        x[t] = start > 0 ? from[(size_t)t * p.width] : 0.0f;
    }
    for (int i = first; i < live && left > 0; i = next_row(p.step, i, live)) {
        float sum = 0.0f;
        x[before] = p.in[(size_t)i * p.width + c];
        for (int t = 0; t < p.taps; t++) {
            sum = GW_FMA(p.w[(size_t)c * p.taps + t], x[t * p.apart], sum);
        }
        sum = p.bias ? sum + p.bias[c] : sum;
        p.out[(size_t)i * p.width + c] = gate_of(p.kind, sum);
        left--;
        float *to =
            p.state + entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, width) + c;
        for (int t = 0; t < before; t++) {
            x[t] = x[t + 1];
            if (left < p.entries - 1) {
                to[(size_t)t * p.width] = x[t];
            }
        }
    }
}

/* ---- SCAN ------------------------------------------------------------------------------------ */

/* A step of SSM; NaN stays NaN. */
GW_DEVICE float within(float t, float low, float high) {
    return t < low ? low : t > high ? high : t;
}

GW_KERNEL(gw_state_prepare, struct gw_state_prepare_params, GW_STATE_THREADS) {
    const int row = (int)blockIdx.y, u = (int)blockIdx.x * GW_STATE_TEAMS + gw_team();
    const int all = p.groups * p.keys, lane = gw_lane();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || u >= 2 * p.groups + p.heads) {
        return; /* whole teams */
    }
    const float *x = p.in + (size_t)row * (p.heads * p.values + 2 * all);
    float *to = p.out + (size_t)row * made_width(p.groups, p.heads, p.keys, p.decays > 1);
    if (u < 2 * p.groups) { /* of SSM b comes first, which is the key */
        const int is_k = u >= p.groups, g = is_k ? u - p.groups : u;
        const int at = p.delta ? (is_k ? all : 0) : p.heads * p.values + (is_k ? 0 : all);
        const float *from = x + at + g * p.keys, scale = is_k ? p.k_scale : p.q_scale;
        float sum = 0.0f;
        for (int i = lane; i < p.keys && p.delta; i += GW_LANES) {
            sum = GW_FMA(from[i], from[i], sum);
        }
        const float r = gw_rms_scale(gw_fold(sum), p.keys, p.eps);
        for (int i = lane; i < p.keys; i += GW_LANES) {
            to[(is_k ? all : 0) + g * p.keys + i] = p.delta ? (from[i] * r) * scale : from[i];
        }
        return;
    }
    const int h = u - 2 * p.groups, by_key = p.decays > 1;
    float *d = to + 2 * all, *record = record_of(d, h, p.heads, p.keys, by_key);
    const float *logits = p.decay + (size_t)row * p.decay_step;
    if (p.given) {
        if (lane == 0) {
            record[0] = logits[h];
            record[1] = 1.0f;
        }
        return;
    }
    const float a = p.a[h];
    for (int j = h * p.decays + lane; j < (h + 1) * p.decays; j += GW_LANES) {
        const float x = p.bias ? logits[j] + p.bias[j] : logits[j];
        if (p.delta) {
            (by_key ? d + j : record)[0] = gw_delta_decay(a, x, p.low);
        } else {
            record[1] = within(gw_softplus(x), p.low, p.high);
            record[0] = gw_exp(record[1] * a);
        }
    }
    if (p.delta && lane == 0) {
        record[1] = gw_sigmoid(p.beta[(size_t)row * p.beta_step + h]);
    }
}

/* One row's logits of a head in what gw_state_prepare has made. */
struct scan_row {
    const float *q, *k, *d;
    float strength, x;
};
GW_DEVICE scan_row row_of(const struct gw_state_scan_params &p, int i, int at) {
    const int h = at / p.values, all = p.groups * p.keys, by_key = p.decays > 1;
    const int g = group_of(p, h);
    const float *made = p.made + (size_t)i * made_width(p.groups, p.heads, p.keys, by_key);
    const float *record = record_of(made + 2 * all, h, p.heads, p.keys, by_key);
    const float *in = p.in + (size_t)i * (p.heads * p.values + 2 * all);
    scan_row r;
    r.q = made + g * p.keys;
    r.k = r.q + all;
    r.d = by_key ? made + 2 * all + h * p.keys : record;
    r.strength = record[1];
    r.x = in[(p.delta ? 2 * all : 0) + at];
    return r;
}
GW_DEVICE void answer(const struct gw_state_scan_params &p, int i, int at, float x, float y) {
    y = p.delta ? y : GW_FMA(p.skip ? p.skip[at / p.values] : 0.0f, x, y);
    p.out[(size_t)i * (p.heads * p.values) + at] = y;
}

/* A row that leaves no entry works in the last one's. */
GW_KERNEL(gw_state_scan, struct gw_state_scan_params, GW_SCAN_THREADS) {
    const int first = (int)blockIdx.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int wide = p.heads * p.values;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (first >= live || at >= wide) {
        return;
    }
    const int rows = rows_from(p.step, first, live), start = gw_step_pos(p.step, first);
    if (rows == 0) {
        return;
    }
    const size_t width = (size_t)wide * p.keys;
    float *known = p.state + (size_t)(at / p.values) * p.keys * p.values + at % p.values;
    float *working = known + entry_of(p.step, first, start + rows, p.entries, width);
    const float *from = known + entry_of(p.step, first, start, p.entries, width);
    int left = rows, empty = start == 0;
    for (int i = first; i < live; i = next_row(p.step, i, live)) {
        const scan_row r = row_of(p, i, at);
        left--;
        const int pos = gw_step_pos(p.step, i);
        float *to = left < p.entries - 1
                        ? known + entry_of(p.step, i, pos + 1, p.entries, width)
                        : working;
        float sum = 0.0f, y = 0.0f;
        for (int j = 0; j < p.keys && p.delta; j++) {
            const float m = empty ? 0.0f : from[(size_t)j * p.values];
            sum = GW_FMA(r.k[j], m * r.d[p.decays > 1 ? j : 0], sum);
        }
        const float u = p.delta ? (r.x - sum) * r.strength : r.strength * r.x;
        for (int j = 0; j < p.keys; j++) {
            float m = empty ? 0.0f : from[(size_t)j * p.values];
            m = GW_FMA(r.k[j], u, m * r.d[p.decays > 1 ? j : 0]);
            to[(size_t)j * p.values] = m;
            y = GW_FMA(r.q[j], m, y);
        }
        answer(p, i, at, r.x, y);
        from = to;
        empty = 0;
    }
}

/* The same with the column in registers. */
template <int KEYS> __device__ static inline void scan_held(const struct gw_state_scan_params &p) {
    const int first = (int)blockIdx.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int wide = p.heads * p.values;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (first >= live || at >= wide) {
        return;
    }
    int left = rows_from(p.step, first, live);
    if (left == 0) {
        return;
    }
    const int start = gw_step_pos(p.step, first), by_key = p.decays > 1;
    const size_t width = (size_t)wide * KEYS;
    float *known = p.state + (size_t)(at / p.values) * KEYS * p.values + at % p.values;
    const float *from = known + entry_of(p.step, first, start, p.entries, width);
    float s[KEYS];
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        s[j] = start > 0 ? from[(size_t)j * p.values] : 0.0f;
    }
    for (int i = first; i < live; i = next_row(p.step, i, live)) {
        const scan_row r = row_of(p, i, at);
        const float d = r.d[0];
        float sum = 0.0f, y = 0.0f;
        left--;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = s[j] * (by_key ? r.d[j] : d);
        }
        if (p.delta) {
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                sum = GW_FMA(r.k[j], s[j], sum);
            }
        }
        const float u = p.delta ? (r.x - sum) * r.strength : r.strength * r.x;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = GW_FMA(r.k[j], u, s[j]);
            y = GW_FMA(r.q[j], s[j], y);
        }
        answer(p, i, at, r.x, y);
        if (left < p.entries - 1) {
            float *to =
                known + entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, width);
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                to[(size_t)j * p.values] = s[j];
            }
        }
    }
}
GW_KERNEL(gw_state_scan_64, struct gw_state_scan_params, GW_SCAN_THREADS) { scan_held<64>(p); }
GW_KERNEL(gw_state_scan_128, struct gw_state_scan_params, GW_SCAN_THREADS) { scan_held<128>(p); }

/* A row of a channel's scan: its steps, value, and where B and C of its head stand. */
struct channel_row {
    const float *k, *q;
    float t, x;
};
GW_DEVICE channel_row channel_row_of(const struct gw_state_channels_params &p, int i, int at) {
    const int h = at / p.values, all = p.groups * p.keys, wide = p.heads * p.values;
    const int g = p.tiled ? h % p.groups : h / (p.heads / p.groups);
    const float *in = p.in + (size_t)i * (wide + 2 * all);
    const float logit = p.decay[(size_t)i * wide + at];
    channel_row r;
    r.k = in + wide + g * p.keys;
    r.q = r.k + all;
    r.x = in[at];
    r.t = within(gw_softplus(p.bias ? logit + p.bias[at] : logit), p.low, p.high);
    return r;
}

GW_KERNEL(gw_state_scan_channels, struct gw_state_channels_params, GW_SCAN_THREADS) {
    const int first = (int)blockIdx.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int wide = p.heads * p.values;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (first >= live || at >= wide) {
        return;
    }
    const int rows = rows_from(p.step, first, live), start = gw_step_pos(p.step, first);
    if (rows == 0) {
        return;
    }
    const size_t width = (size_t)wide * p.keys;
    float *known = p.state + (size_t)(at / p.values) * p.keys * p.values + at % p.values;
    float *working = known + entry_of(p.step, first, start + rows, p.entries, width);
    const float *from = known + entry_of(p.step, first, start, p.entries, width);
    int left = rows, empty = start == 0;
    for (int i = first; i < live; i = next_row(p.step, i, live)) {
        const channel_row r = channel_row_of(p, i, at);
        const float u = r.t * r.x;
        left--;
        float *to = left < p.entries - 1
                        ? known + entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, width)
                        : working;
        float y = 0.0f;
        for (int j = 0; j < p.keys; j++) {
            float m = empty ? 0.0f : from[(size_t)j * p.values];
            m = GW_FMA(r.k[j], u, m * gw_exp(r.t * p.a[(size_t)at * p.keys + j]));
            to[(size_t)j * p.values] = m;
            y = GW_FMA(r.q[j], m, y);
        }
        p.out[(size_t)i * wide + at] = GW_FMA(p.skip[at], r.x, y);
        from = to;
        empty = 0;
    }
}

/* The same of 16 keys, in registers with their A, for blocks of one head: a row's B and C are in
 * shared memory, and what the next row brings is read while this one is computed. */
GW_KERNEL(gw_state_scan_channels_16, struct gw_state_channels_params, GW_SCAN_THREADS) {
    enum { KEYS = 16 };
    __shared__ float shared[2][2 * KEYS];
    const int first = (int)blockIdx.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int wide = p.heads * p.values, h = at / p.values, lane = gw_lane();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (first >= live) {
        return; /* whole blocks */
    }
    int left = rows_from(p.step, first, live);
    if (left == 0) {
        return;
    }
    const int start = gw_step_pos(p.step, first), all = p.groups * KEYS;
    const int g = p.tiled ? h % p.groups : h / (p.heads / p.groups);
    const int mine = wide + g * KEYS + (lane < KEYS ? lane : all + lane - KEYS);
    const size_t width = (size_t)wide * KEYS;
    float *known = p.state + (size_t)h * KEYS * p.values + at % p.values;
    const float *from = known + entry_of(p.step, first, start, p.entries, width);
    float s[KEYS], a[KEYS];
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        s[j] = start > 0 ? from[(size_t)j * p.values] : 0.0f;
        a[j] = p.a[(size_t)at * KEYS + j];
    }
    const float skip = p.skip[at], bias = p.bias ? p.bias[at] : 0.0f;
    const float *row = p.in + (size_t)first * (wide + 2 * all);
    float part = row[mine], x = row[at], logit = p.decay[(size_t)first * wide + at];
    for (int i = first, which = 0; i < live; which ^= 1) {
        const int next = next_row(p.step, i, live);
        const float now = x;
        const float t = within(gw_softplus(p.bias ? logit + bias : logit), p.low, p.high);
        float y = 0.0f;
        shared[which][lane] = part;
        gw_sync_team();
        if (next < live) {
            row = p.in + (size_t)next * (wide + 2 * all);
            part = row[mine];
            x = row[at];
            logit = p.decay[(size_t)next * wide + at];
        }
        const float u = t * now;
        left--;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = GW_FMA(shared[which][j], u, s[j] * gw_exp(t * a[j]));
            y = GW_FMA(shared[which][KEYS + j], s[j], y);
        }
        p.out[(size_t)i * wide + at] = GW_FMA(skip, now, y);
        if (left < p.entries - 1) {
            float *to =
                known + entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, width);
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                to[(size_t)j * p.values] = s[j];
            }
        }
        i = next;
    }
}

/* What a row brings to a column's scan of WKV: [keys] each, and its value. */
struct wkv_row {
    const float *r, *k, *e, *d, *b;
    float v;
};
GW_DEVICE wkv_row wkv_row_of(const struct gw_state_wkv_params &p, int i, int at) {
    const int all = p.heads * p.keys, wide = p.heads * p.values, h = at / p.values * p.keys;
    const float *in = p.in + (size_t)i * (3 * all + wide);
    wkv_row w;
    w.r = in + h;
    w.k = w.r + all;
    w.v = in[2 * all + at];
    w.e = in + 2 * all + wide + h;
    w.d = p.decay + (size_t)i * all + h;
    w.b = p.back + (size_t)i * all + h;
    return w;
}

/* Keys lane, lane + 32, .. of a row: e, b, d, k, r. */
template <int EACH>
__device__ static inline void take_keys(const wkv_row &w, int lane, float (&mine)[5][EACH]) {
#pragma unroll
    for (int t = 0; t < EACH; t++) {
        const int j = lane + t * GW_SCAN_THREADS;
        mine[0][t] = w.e[j];
        mine[1][t] = w.b[j];
        mine[2][t] = w.d[j];
        mine[3][t] = w.k[j];
        mine[4][t] = w.r[j];
    }
}

GW_KERNEL(gw_state_scan_wkv, struct gw_state_wkv_params, GW_SCAN_THREADS) {
    const int first = (int)blockIdx.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int wide = p.heads * p.values;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (first >= live || at >= wide) {
        return;
    }
    const int rows = rows_from(p.step, first, live), start = gw_step_pos(p.step, first);
    if (rows == 0) {
        return;
    }
    const size_t width = (size_t)wide * p.keys;
    float *known = p.state + (size_t)(at / p.values) * p.keys * p.values + at % p.values;
    float *working = known + entry_of(p.step, first, start + rows, p.entries, width);
    const float *from = known + entry_of(p.step, first, start, p.entries, width);
    int left = rows, empty = start == 0;
    for (int i = first; i < live; i = next_row(p.step, i, live)) {
        const wkv_row w = wkv_row_of(p, i, at);
        left--;
        float *to = left < p.entries - 1
                        ? known + entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, width)
                        : working;
        float sum = 0.0f, y = 0.0f;
        for (int j = 0; j < p.keys; j++) {
            sum = GW_FMA(w.e[j] * p.scale, empty ? 0.0f : from[(size_t)j * p.values], sum);
        }
        for (int j = 0; j < p.keys; j++) {
            float m = empty ? 0.0f : from[(size_t)j * p.values];
            m = GW_FMA((w.e[j] * p.scale) * w.b[j], -sum, m * gw_exp(p.base * w.d[j]));
            m = GW_FMA(w.k[j], w.v, m);
            to[(size_t)j * p.values] = m;
            y = GW_FMA(w.r[j], m, y);
        }
        p.out[(size_t)i * wide + at] = y;
        from = to;
        empty = 0;
    }
}

/* The same of 64 keys, in registers, for blocks of one head: each thread makes two keys of a row
 * for all, and what the next row brings is read while this one is computed. */
GW_KERNEL(gw_state_scan_wkv_64, struct gw_state_wkv_params, GW_SCAN_THREADS) {
    enum { KEYS = 64, EACH = KEYS / GW_SCAN_THREADS };
    __shared__ float e[2][KEYS], b[2][KEYS], d[2][KEYS], k[2][KEYS], r[2][KEYS];
    const int first = (int)blockIdx.y, at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int wide = p.heads * p.values, lane = gw_lane();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int live = gw_live(p.step);
    if (first >= live) {
        return; /* whole blocks */
    }
    int left = rows_from(p.step, first, live);
    if (left == 0) {
        return;
    }
    const int start = gw_step_pos(p.step, first);
    const size_t width = (size_t)wide * KEYS;
    float *known = p.state + (size_t)(at / p.values) * KEYS * p.values + at % p.values;
    const float *from = known + entry_of(p.step, first, start, p.entries, width);
    float s[KEYS], mine[5][EACH];
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
        s[j] = start > 0 ? from[(size_t)j * p.values] : 0.0f;
    }
    wkv_row w = wkv_row_of(p, first, at);
    for (int i = first, which = 0; i < live; which ^= 1) {
        const int next = next_row(p.step, i, live);
        if (i == first) {
            take_keys<EACH>(w, lane, mine);
        }
        const float v = w.v;
#pragma unroll
        for (int t = 0; t < EACH; t++) {
            const int j = lane + t * GW_SCAN_THREADS;
            e[which][j] = mine[0][t] * p.scale;
            b[which][j] = (mine[0][t] * p.scale) * mine[1][t];
            d[which][j] = gw_exp(p.base * mine[2][t]);
            k[which][j] = mine[3][t];
            r[which][j] = mine[4][t];
        }
        gw_sync_team();
        if (next < live) {
            w = wkv_row_of(p, next, at);
            take_keys<EACH>(w, lane, mine);
        }
        float sum = 0.0f, y = 0.0f;
        left--;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            sum = GW_FMA(e[which][j], s[j], sum);
        }
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = GW_FMA(b[which][j], -sum, s[j] * d[which][j]);
            s[j] = GW_FMA(k[which][j], v, s[j]);
            y = GW_FMA(r[which][j], s[j], y);
        }
        p.out[(size_t)i * wide + at] = y;
        if (left < p.entries - 1) {
            float *to =
                known + entry_of(p.step, i, gw_step_pos(p.step, i) + 1, p.entries, width);
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                to[(size_t)j * p.values] = s[j];
            }
        }
        i = next;
    }
}

/* ---- GROUP_NORM ------------------------------------------------------------------------------ */

GW_KERNEL(gw_state_group_norm, struct gw_state_group_norm_params, GW_STATE_THREADS) {
    const int row = (int)blockIdx.y, g = (int)blockIdx.x * GW_STATE_TEAMS + gw_team();
    const int e = p.width / p.groups;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || g >= p.groups) {
        return; /* whole teams */
    }
    const size_t base = (size_t)row * p.width + (size_t)g * e;
    const int gated = p.gate && p.gate_first;
    float sum = 0.0f, mean = 0.0f;
    for (int i = gw_lane(); i < e && p.center; i += GW_LANES) {
        sum = sum + p.in[base + i];
    }
    if (p.center) {
        mean = gw_fold(sum) / (float)e;
    }
    sum = 0.0f;
    for (int i = gw_lane(); i < e; i += GW_LANES) {
        float v = gated ? p.in[base + i] * gate_of(p.kind, p.gate[base + i]) : p.in[base + i];
        v = p.center ? v - mean : v;
        sum = GW_FMA(v, v, sum);
    }
    const float r = gw_rms_scale(gw_fold(sum), e, p.eps);
    if (p.measure) {
        if (gw_lane() == 0) {
            p.out[(size_t)row * p.groups + g] = 1.0f / r;
        }
        return;
    }
    for (int i = gw_lane(); i < e; i += GW_LANES) {
        const float by = p.gate ? gate_of(p.kind, p.gate[base + i]) : 1.0f;
        float v = gated ? p.in[base + i] * by : p.in[base + i];
        v = p.center ? v - mean : v;
        v = (v * r) * (p.weight ? p.weight[(g * e + i) % p.wide] : 1.0f);
        v = p.bias ? v + p.bias[g * e + i] : v;
        p.out[base + i] = p.gate && !gated ? v * by : v;
    }
}

/* ---- HEADS, COLUMNS, WIDEN ------------------------------------------------------------------- */

#define HEADS(format, type, widen)                                                                 \
    GW_KERNEL(gw_state_heads_##format, struct gw_state_heads_params, GW_STATE_THREADS) {           \
        const int row = (int)blockIdx.y, u = (int)blockIdx.x * GW_STATE_TEAMS + gw_team();         \
        const int wide = p.pass + p.m, lane = gw_lane();                                           \
        gw_grid_launch_dependents();                                                               \
        gw_grid_dependency_wait();                                                                 \
        if (row >= gw_live(p.step) || u >= p.heads * wide) {                                       \
            return; /* whole teams */                                                              \
        }                                                                                          \
        const int h = u / wide, at = u % wide;                                                     \
        const float *x = p.in + ((size_t)row * p.heads + h) * p.e;                                 \
        float *y = p.out + (size_t)row * p.heads * wide + u;                                       \
        float sum = 0.0f;                                                                          \
        if (at < p.pass) {                                                                         \
            sum = x[p.pass_first + at];                                                            \
        } else {                                                                                   \
            const type *w = (const type *)p.w + ((size_t)h * p.m + at - p.pass) * p.k;             \
            for (int c = lane; c < p.k; c += GW_LANES) {                                           \
                sum = GW_FMA(widen(w[c]), x[p.first + c], sum);                                    \
            }                                                                                      \
            sum = gw_join(sum);                                                                    \
        }                                                                                          \
        if (lane == 0) {                                                                           \
            *y = sum;                                                                              \
        }                                                                                          \
    }
#define SAME(x) (x)
HEADS(f32, float, SAME)
HEADS(f16, gw_u16, gw_f16_to_f32)
HEADS(bf16, gw_u16, gw_bf16_to_f32)

GW_KERNEL(gw_state_streams, struct gw_state_streams_params, GW_STATE_THREADS) {
    const int row = (int)blockIdx.y, u = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || u >= p.streams * p.m) {
        return;
    }
    const int s = u / p.m;
    const size_t place = (size_t)row * p.streams * p.m + u;
    float y = p.base ? p.base[place] : 0.0f;
    for (int j = 0; j < p.inputs && s >= p.from; j++) {
        const float c = p.coef ? p.coef[((size_t)row * p.streams + s) * p.inputs + j] : 0.0f;
        y = y + (c + p.plus) * p.in[((size_t)row * p.inputs + j) * p.m + u % p.m];
    }
    p.out[place] = y;
}

GW_KERNEL(gw_state_columns, struct gw_state_columns_params, GW_STATE_THREADS) {
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row < gw_live(p.step) && i < p.n) {
        p.out[(size_t)row * p.wide + p.at + i] = p.in[(size_t)row * p.width + p.from + i];
    }
}

GW_KERNEL(gw_state_widen, struct gw_state_widen_params, GW_STATE_THREADS) {
    const int row = (int)blockIdx.y, u = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step) || u >= p.heads * p.m) {
        return;
    }
    const int h = u / p.m, i = u % p.m;
    const float *x = p.in + ((size_t)row * p.heads + h) * p.k;
    p.out[(size_t)row * p.heads * p.m + u] = i < p.k ? x[i] : 0.0f;
}
