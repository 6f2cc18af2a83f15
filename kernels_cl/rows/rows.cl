/* kernels_cl/rows/rows.cl - the ops that treat each row on its own: PICK, NORM, QUANTIZE, the
 * second half of GLU where its two products were computed apart, and one scale for each span.
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

/* f32 [n, width] -> act8; ordered: value i is that of number columns[i]. Items: blocks. */
KERNEL_OF_ANY_SIZE quantize(STEP, IN(in), IN(columns), OUT(out), const int width,
                            const int ordered) {
    const int row = GROUP_ID(1), blocks = width / GW_ACT_BLOCK;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int b = ITEM_ID; b < blocks; b += ITEM_COUNT) {
        __global const float *from = READS(float, in) + (size_t)row * width;
        float x[GW_ACT_BLOCK];
        for (int i = 0; i < GW_ACT_BLOCK; i++) {
            const int at = b * GW_ACT_BLOCK + i;
            x[i] = from[ordered ? (int)READS(float, columns)[at] : at];
        }
        item_encode(WRITES(gw_act8, out) + (size_t)row * blocks + b, x);
    }
}

/* act8 [n, width] -> as gw_act8_span leaves them; but the first block alone of a span has the scale,
 * the others that times the sum of all its codes. Items: spans. */
KERNEL_OF_ANY_SIZE align_spans(STEP, IN(in), OUT(out), const int width) {
    const int row = GROUP_ID(1), spans = width / (GW_ACT_SPAN * GW_ACT_BLOCK);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    for (int s = ITEM_ID; s < spans; s += ITEM_COUNT) {
        const size_t at = ((size_t)row * spans + s) * GW_ACT_SPAN * 10;
        __global const uint *from = READS(uint, in) + at;
        __global uint *to = WRITES(uint, out) + at;
        const uint top = span_top((uint4)(from[0], from[10], from[20], from[30]));
        const float inverse = gw_span_inverse(top);
        int all = 0;
        for (int b = 0; b < GW_ACT_SPAN; b++) {
            const int part = gw_span_part(as_float(from[10 * b]), inverse);
            int sum[2] = {0, 0};
            vstore4(span_codes(vload4(0, from + 10 * b + 2), part, &sum[0]), 0, to + 10 * b + 2);
            vstore4(span_codes(vload4(0, from + 10 * b + 6), part, &sum[1]), 0, to + 10 * b + 6);
            to[10 * b + 1] = ((uint)sum[0] & 0xffffu) | (uint)sum[1] << 16;
            all += sum[0] + sum[1];
        }
        to[0] = top;
        for (int b = 1; b < GW_ACT_SPAN; b++) {
            to[10 * b] = as_uint(as_float(top) * (float)all);
        }
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

static inline float fold16(float16 v) {
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    const float2 c = b.lo + b.hi;
    return c.lo + c.hi;
}

static inline float sum_of_squares(__global const float *x, int d) {
    float lane[GW_LANES] = {0.0f}, last[GW_ACT_BLOCK] = {0.0f};
    const int whole = d / GW_ACT_BLOCK;
    for (int b = 0; b < whole; b++) {
        float16 low = vload16(2 * b, x), high = vload16(2 * b + 1, x);
        lane[b % GW_LANES] += fold16(low * low + high * high);
    }
    for (int i = whole * GW_ACT_BLOCK; i < d; i++) {
        last[i % GW_ACT_BLOCK] = x[i];
    }
    lane[whole % GW_LANES] += gw_block_squares(last, GW_ACT_BLOCK);
    return gw_fold_lanes(lane);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void norm(STEP, IN(in), IN(w), OUT(out), const int d, const float eps) {
    const int row = (int)get_global_id(1);
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * d, *weight = READS(float, w);
    const float factor = gw_rms_scale(sum_of_squares(x, d), d, eps);
#ifndef ACT8
    __global float *y = WRITES(float, out) + (size_t)row * d;
    for (int i = 0; i < d; i++) {
        y[i] = (x[i] * weight[i]) * factor;
    }
#else
    __global gw_act8 *y = WRITES(gw_act8, out) + (size_t)row * (d / GW_ACT_BLOCK);
    for (int b = 0; b < d / GW_ACT_BLOCK; b++) {
        float v[GW_ACT_BLOCK];
        for (int i = 0; i < GW_ACT_BLOCK; i++) {
            v[i] = x[b * GW_ACT_BLOCK + i] * weight[b * GW_ACT_BLOCK + i];
        }
        item_encode(y + b, v);
        y[b].scale = y[b].scale * factor;
    }
#endif
}

#else

#define LOCALS(X) X(float, squares, GROUP / 4) X(float, scratch, GROUP)
LOCALS_TYPE

/* Vector i of a row; zeros behind its end. */
static inline float4 vector_of(__global const float *x, int i, int d) {
#ifdef ACT8
    return 4 * i < d ? ((__global const float4 *)x)[i] : 0.0f;
#else
    i *= 4;
    return (float4)(i < d ? x[i] : 0.0f, i + 1 < d ? x[i + 1] : 0.0f, i + 2 < d ? x[i + 2] : 0.0f,
                    i + 3 < d ? x[i + 3] : 0.0f);
#endif
}

/* A group per row. Its blocks are stored without the row's factor, which is known last. */
KERNEL(GROUP) norm(STEP, IN(in), IN(w), OUT(out), const int d, const float eps) {
    LOCALS_HERE
    const int row = GROUP_ID(1), id = LOCAL_ID, quarters = QUARTERS(d);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const float *x = READS(float, in) + (size_t)row * d, *weight = READS(float, w);
#ifdef ACT8
    __global gw_act8 *y = WRITES(gw_act8, out) + (size_t)row * (d / GW_ACT_BLOCK);
#else
    __global float *y = WRITES(float, out) + (size_t)row * d;
#endif
    float sum = 0.0f;
    for (int base = 0; base < quarters; base += GROUP) {
        const int i = base + id;
        const float4 low = vector_of(x, QUARTER_LOW(i), d), high = vector_of(x, QUARTER_HIGH(i), d);
        const float of_block = quad_squares(low, high, (__local uint *)scratch, id);
#ifdef ACT8
        act8_quarter r;
        quad_encode(&r, low * vector_of(weight, QUARTER_LOW(i), d),
                    high * vector_of(weight, QUARTER_HIGH(i), d), (__local uint *)scratch, id);
        if (again(i) < quarters) {
            quad_store(y + i / 4, &r, i % 4);
        }
#endif
        if ((again(id) & 3) == 0) {
            squares[id / 4] = of_block;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int b = 0; b < GROUP / 4; b += TEAM) {
            sum = sum + squares[b + (id & (TEAM - 1))];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float factor = gw_rms_scale(team_fold(sum, scratch, id), d, eps);
#ifdef ACT8
    for (int i = id; i < quarters; i += GROUP) { /* of what this item has stored */
        if (i % 4 == 0) {
            y[i / 4].scale = y[i / 4].scale * factor;
        }
    }
#else
    for (int i = id; i < d; i += GROUP) {
        y[i] = (x[i] * weight[i]) * factor;
    }
#endif
}

#endif
