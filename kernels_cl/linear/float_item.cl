/* kernels_cl/linear/float_item.cl - y = x W^T with float weights as stored, for processors. Decode:
 * a work-item per weight row. Prefill: 16 weight rows and 16 activation rows, vector lanes are
 * weight rows, one chain per output.
 */
#define MOST_ROWS 16
#define DEPTH 64 /* columns turned at a time */

#if defined(FORMAT_E4M3)
#define ROW(r) (READS(gw_block_e4m3, w) + (size_t)(r) * ((k + GW_E4M3_BLOCK - 1) / GW_E4M3_BLOCK))
#define AT(row, i) gw_e4m3_weight(row, i)
typedef __global const gw_block_e4m3 *weights;

/* Weights i .. i + 15 of a row; i is a multiple of 16. */
static inline float16 load16(weights row, int i) {
    __global const gw_block_e4m3 *b = row + i / GW_E4M3_BLOCK;
    const uint16 code = convert_uint16(vload16(0, b->code + i % GW_E4M3_BLOCK));
    const uint16 size = code & 127u;
    const float16 small = convert_float16(size) * 0x1p-17f; /* of gw_e4m3_value, below 2^-14 */
    const float16 normal = as_float16((size << 20u) + (112u << 23));
    const float16 v = select(normal, small, convert_int16(size < 8u));
    return as_float16(as_uint16(v) | (code & 128u) << 24u) * gw_load_f32(b->scale);
}
#elif defined(FORMAT_NVFP4)
#define ROW(r)                                                                                     \
    (READS(gw_block_nvfp4, w) + (size_t)(r) * ((k + GW_NVFP4_BLOCK - 1) / GW_NVFP4_BLOCK))
#define AT(row, i) gw_nvfp4_weight(row, i)
typedef __global const gw_block_nvfp4 *weights;

/* Weights i .. i + 15 of a row, which have one scale. */
static inline float16 load16(weights row, int i) {
    __global const gw_block_nvfp4 *b = row + i / GW_NVFP4_BLOCK;
    const int at = i % GW_NVFP4_BLOCK;
    const uint8 pair = convert_uint8(vload8(0, b->nibbles + at / 2));
    uint16 code;
    code.even = pair & 15u;
    code.odd = pair >> 4u;
    const uint16 size = code & 7u; /* 2^-15 below a number of which the exponent is not 0 */
    const float16 normal = as_float16((size << 22u) + (112u << 23));
    const float16 v = select(normal, convert_float16(size) * 0x1p-15f, convert_int16(size < 2u));
    return as_float16(as_uint16(v) | (code & 8u) << 28u) * gw_nvfp4_scale(b, at);
}
#else
#if defined(FORMAT_F32)
#define ELEMENT float
#define WIDEN(x) (x)
#elif defined(FORMAT_F16)
#define ELEMENT ushort
#define WIDEN(x) gw_f16_to_f32(x)
#else
#define ELEMENT ushort
#define WIDEN(x) gw_bf16_to_f32(x)
#endif

#define ROW(r) (READS(ELEMENT, w) + (size_t)(r) * k)
#define AT(row, i) WIDEN((row)[i])
typedef __global const ELEMENT *weights;

static inline float16 load16(weights row, int i) {
    __global const ELEMENT *p = row + i;
#if defined(FORMAT_F32)
    return vload16(0, p);
#elif defined(FORMAT_F16)
    return vload_half16(0, (__global const half *)p);
#else
    return as_float16(convert_uint16(vload16(0, p)) << 16u);
#endif
}
#endif

#define LINEAR_ARGS                                                                                \
    STEP, IN(w), IN(x), IN(bias), IN(residual), OUT(y), const int m, const int k,                  \
        const int y_stride, const int flags

static inline void finish(__global float *y, __global const float *bias,
                          __global const float *residual, int flags, size_t at, int r, float v) {
    v = flags & 1 ? v + bias[r] : v;
    v = flags & 2 ? v + residual[at] : v;
    y[at] = v;
}

#ifdef DECODE

/* Items: weight rows. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void linear_decode(LINEAR_ARGS) {
    const int r = (int)get_global_id(0), n = LIVE, whole = k / GW_LANES * GW_LANES;
    const weights row = ROW(r);
    for (int i = 0; i < n; i++) {
        __global const float *x = READS(float, x) + (size_t)i * k;
        float16 low = 0.0f, high = 0.0f;
        float lane[GW_LANES];
        for (int j = 0; j < whole; j += GW_LANES) {
            low = fma(load16(row, j), vload16(0, x + j), low);
            high = fma(load16(row, j + 16), vload16(0, x + j + 16), high);
        }
        vstore16(low, 0, lane);
        vstore16(high, 0, lane + 16);
        for (int j = whole; j < k; j++) {
            lane[j - whole] = fma(AT(row, j), x[j], lane[j - whole]);
        }
        finish(WRITES(float, y), READS(float, bias), READS(float, residual), flags,
               (size_t)i * y_stride + r, r, gw_join_lanes(lane));
    }
}

#else

/* Items: strips of weight rows, tiles of activation rows. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void linear_prefill(LINEAR_ARGS) {
    const int r0 = (int)get_global_id(0) * 16, rows = min(16, m - r0);
    const int first = (int)get_global_id(1) * MOST_ROWS, n = min(LIVE - first, MOST_ROWS);
    if (n <= 0) {
        return;
    }
    float16 acc[MOST_ROWS];
    float turned[DEPTH * 16];
    for (int i = 0; i < n; i++) {
        acc[i] = 0.0f;
    }
    for (int i = 0; i < DEPTH * 16; i++) {
        turned[i] = 0.0f;
    }
    for (int from = 0; from < k; from += DEPTH) {
        const int depth = min(DEPTH, k - from);
        for (int r = 0; r < rows; r++) {
            const weights row = ROW(r0 + r);
            for (int j = 0; j < depth; j++) {
                turned[j * 16 + r] = AT(row, from + j);
            }
        }
        for (int i = 0; i < n; i++) {
            __global const float *x = READS(float, x) + (size_t)(first + i) * k + from;
            float16 sum = acc[i];
            for (int j = 0; j < depth; j++) {
                sum = fma(vload16(j, turned), (float16)x[j], sum);
            }
            acc[i] = sum;
        }
    }
    for (int i = 0; i < n; i++) {
        float out[16];
        vstore16(acc[i], 0, out);
        for (int r = 0; r < rows; r++) {
            finish(WRITES(float, y), READS(float, bias), READS(float, residual), flags,
                   (size_t)(first + i) * y_stride + r0 + r, r0 + r, out[r]);
        }
    }
}

#endif
