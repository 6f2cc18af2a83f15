/* kernels_cl/rows.cl - the ops that treat each row on its own: PICK, NORM, QUANTIZE, and the second
 * half of GLU where its two products were computed apart.
 */

#ifndef NORM

#define LOCALS(X) X(int, unused, 1)
#ifdef WALK
LOCALS_TYPE
#endif

KERNEL_OF_ANY_SIZE pick(STEP, IN(in), OUT(out), const int width) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= step[2]) {
        return;
    }
    __global const float *from = READS(float, in) + (size_t)(step[1] + row) * width;
    __global float *to = WRITES(float, out) + (size_t)row * width;
    for (int i = ITEM_ID; i < width; i += ITEM_COUNT) {
        to[i] = from[i];
    }
}

/* f32 [n, width] -> act8. Items: blocks. */
KERNEL_OF_ANY_SIZE quantize(STEP, IN(in), OUT(out), const int width) {
    const int row = GROUP_ID(1), blocks = width / GW_ACT_BLOCK;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int b = ITEM_ID; b < blocks; b += ITEM_COUNT) {
        __global const float *from = READS(float, in) + ((size_t)row * blocks + b) * GW_ACT_BLOCK;
        float x[GW_ACT_BLOCK];
        for (int i = 0; i < GW_ACT_BLOCK; i++) {
            x[i] = from[i];
        }
        item_encode(WRITES(gw_act8, out) + (size_t)row * blocks + b, x);
    }
}

/* silu(gate) * up; both [n, 2, width]: gate, up. Items: blocks of 32, the last one ragged when out is f32. */
KERNEL_OF_ANY_SIZE glu_join(STEP, IN(both), OUT(out), const int width, const int act8) {
    const int row = GROUP_ID(1);
    AWAIT;
    const int blocks = (width + GW_ACT_BLOCK - 1) / GW_ACT_BLOCK;
    if (row >= LIVE) {
        return;
    }
    __global const float *g = READS(float, both) + (size_t)row * 2 * width, *u = g + width;
    for (int b = ITEM_ID; b < blocks; b += ITEM_COUNT) {
        float x[GW_ACT_BLOCK];
        int n = min(GW_ACT_BLOCK, width - b * GW_ACT_BLOCK);
        for (int i = 0; i < n; i++) {
            x[i] = gw_silu(g[b * GW_ACT_BLOCK + i]) * u[b * GW_ACT_BLOCK + i];
        }
        if (act8) {
            item_encode(WRITES(gw_act8, out) + (size_t)row * blocks + b, x);
        } else {
            __global float *y = WRITES(float, out) + (size_t)row * width + b * GW_ACT_BLOCK;
            for (int i = 0; i < n; i++) {
                y[i] = x[i];
            }
        }
    }
}

#elif defined(GW_ITEM)

static inline float sum_of_squares(__global const float *x, int d) {
    float16 low = 0.0f, high = 0.0f;
    float lane[GW_LANES];
    int whole = d / GW_LANES * GW_LANES;
    for (int i = 0; i < whole; i += GW_LANES) {
        float16 a = vload16(0, x + i), b = vload16(0, x + i + 16);
        low = fma(a, a, low);
        high = fma(b, b, high);
    }
    vstore16(low, 0, lane);
    vstore16(high, 0, lane + 16);
    for (int i = whole; i < d; i++) {
        lane[i - whole] = fma(x[i], x[i], lane[i - whole]);
    }
    return gw_join_lanes(lane);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void norm(STEP, IN(in), IN(w), OUT(out), const int d, const float eps) {
    const int row = (int)get_global_id(1);
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * d, *weight = READS(float, w);
    float scale = gw_rms_scale(sum_of_squares(x, d), d, eps);
#ifndef ACT8
    __global float *y = WRITES(float, out) + (size_t)row * d;
    for (int i = 0; i < d; i++) {
        y[i] = (x[i] * scale) * weight[i];
    }
#else
    __global gw_act8 *y = WRITES(gw_act8, out) + (size_t)row * (d / GW_ACT_BLOCK);
    for (int b = 0; b < d / GW_ACT_BLOCK; b++) {
        float v[GW_ACT_BLOCK];
        for (int i = 0; i < GW_ACT_BLOCK; i++) {
            v[i] = (x[b * GW_ACT_BLOCK + i] * scale) * weight[b * GW_ACT_BLOCK + i];
        }
        item_encode(y + b, v);
    }
#endif
}

#else

#define STAGE 6144 /* values of a row kept in local memory: 24 of the 32 kB that a device has */

#define LOCALS(X) X(float, stage, STAGE) X(float, scratch, GROUP) X(float, total, 1)
LOCALS_TYPE

/* A group per row; its first team sums the squares. */
KERNEL(GROUP) norm(STEP, IN(in), IN(w), OUT(out), const int d, const float eps) {
    LOCALS_HERE
    const int row = GROUP_ID(1), id = LOCAL_ID;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * d, *weight = READS(float, w);
    const int staged = d <= STAGE;
    for (int i = id; i < d && staged; i += GROUP) {
        stage[i] = x[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const float scale = norm_scale(staged ? stage : 0, x, d, eps, total, scratch, id);
#ifdef ACT8
    __global gw_act8 *y = WRITES(gw_act8, out) + (size_t)row * (d / GW_ACT_BLOCK);
    for (int base = 0; base < d; base += 8 * GROUP) {
        const int i = base + 8 * id;
        float v[8];
        UNROLL
        for (int j = 0; j < 8; j++) {
            v[j] = i < d ? ((staged ? stage[i + j] : x[i + j]) * scale) * weight[i + j] : 0.0f;
        }
        act8_quarter r;
        quad_encode(&r, v, (__local uint *)scratch, id);
        if (i < d) {
            quad_store(y + i / GW_ACT_BLOCK, &r, i / 8 % 4);
        }
    }
#else
    for (int base = 0; base < d; base += GROUP) {
        const int i = base + again(id);
        if (i < d) {
            WRITES(float, out)[(size_t)row * d + i] =
                ((staged ? stage[i] : x[i]) * scale) * weight[i];
        }
    }
#endif
}

#endif
