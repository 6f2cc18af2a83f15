/* kernels_cl/gemm/blas.cl - what is left of y = x W^T with float weights when a library multiplies:
 * weight rows as they lie here to plain f32, and bias and residual behind the product.
 */
#if defined(FORMAT_F32)
#define STORED float
#define STORED_AT(row, i) ((row)[i])
#elif defined(FORMAT_F16)
#define STORED half
#define STORED_AT(row, i) vload_half(i, row)
#else
#define STORED ushort
#define STORED_AT(row, i) gw_bf16_to_f32((row)[i])
#endif

/* Element i of a row, and the elements of one. */
#ifdef GW_ITEM
#define PLACE(i) (i)
#define ROW(k) ((size_t)(k))
#else
#define PLACE(i) ((i) / PIECE * PIECE + (i) % TEAM * PER_LANE + (i) % PIECE / TEAM)
#define ROW(k) ((size_t)(((k) + PIECE - 1) / PIECE) * PIECE)
#endif

#if !defined(FORMAT_E4M3) && !defined(FORMAT_NVFP4)
#define ELEMENT(w, r, i) STORED_AT((__global const STORED *)(w) + (r) * ROW(k), PLACE(i))
#elif defined(GW_ITEM) && defined(FORMAT_NVFP4)
#define ELEMENT(w, r, i)                                                                           \
    gw_nvfp4_weight((__global const gw_block_nvfp4 *)(w) +                                         \
                        (r) * ((k + GW_NVFP4_BLOCK - 1) / GW_NVFP4_BLOCK),                         \
                    i)
#elif defined(GW_ITEM)
#define ELEMENT(w, r, i)                                                                           \
    gw_e4m3_weight((__global const gw_block_e4m3 *)(w) +                                           \
                       (r) * ((k + GW_E4M3_BLOCK - 1) / GW_E4M3_BLOCK),                            \
                   i)
#else
#define ELEMENT(w, r, i) element_at(w, r, i, k)
#endif

/* Items: columns in turn, rows. */
KERNEL_OF_ANY_SIZE widen_rows(IN(w), OUT(y), const int k) {
    const size_t r = get_global_id(1);
    __global float *out = WRITES(float, y) + r * (size_t)k;
    for (int i = (int)get_global_id(0); i < k; i += (int)get_global_size(0)) {
        out[i] = ELEMENT(w_buf + w_off, r, i);
    }
}

/* The product is [LIVE, m]; flags as in LINEAR. */
KERNEL_OF_ANY_SIZE finish_product(STEP, IN(product), IN(bias), IN(residual), OUT(y), const int m,
                                  const int k, const int y_stride, const int flags) {
    const int t = (int)get_global_id(1);
    __global const float *from = READS(float, product) + (size_t)t * m;
    if (t >= LIVE) {
        return;
    }
    for (int r = (int)get_global_id(0); r < m; r += (int)get_global_size(0)) {
        size_t at = (size_t)t * y_stride + r;
        float v = from[r];
        v = flags & 1 ? v + READS(float, bias)[r] : v;
        v = flags & 2 ? v + READS(float, residual)[at] : v;
        WRITES(float, y)[at] = v;
    }
}
