/* cpu/linear_float_body.h - float weights times float activations. Template: cpu/vec.h and
 * cpu/micro_body.h.
 *
 * Decode: element i of a row belongs to lane i % 32, lanes live in registers; one row after the
 * other as one stream, or turns of several rows far apart, whichever this machine reads faster; for
 * several activations at a time. Prefill: lanes are weight rows. A block of DEPTH columns of
 * TILE rows is widened to f32 and transposed once, then every token is multiplied with it; sums
 * wait in scratch between blocks, so each output stays one chain over k.
 */
enum {
    NAME(J) = GW_LANES / VW,            /* vectors that hold the 32 lanes   */
    NAME(BATCH) = NAME(J) == 2 ? 8 : 3, /* activations of one row, at most  */
    NAME(STREAMS) = 16,                 /* places a range is read from      */
    NAME(STRIP) = MICRO_VECS * VW       /* weight rows of one register tile */
};

/* Byte of element i of a row, of two a byte; bytes of a row of k. */
GW_INLINE size_t NAME(byte)(const int fmt, size_t i) {
    return fmt == GW_FMT_E4M3 ? i / GW_E4M3_BLOCK * sizeof(gw_block_e4m3) + i % GW_E4M3_BLOCK
           : fmt == GW_FMT_NVFP4_CODES
               ? i / GW_NVFP4_BLOCK * sizeof(gw_block_nvfp4) + i % GW_NVFP4_BLOCK / 2
               : i * (fmt == GW_FMT_F32 ? 4 : 2);
}
GW_INLINE size_t NAME(row_bytes)(const int fmt, size_t k) {
    size_t blocks = (k + GW_E4M3_BLOCK - 1) / GW_E4M3_BLOCK; /* of both formats */
    return fmt == GW_FMT_E4M3          ? blocks * sizeof(gw_block_e4m3)
           : fmt == GW_FMT_NVFP4_CODES ? blocks * sizeof(gw_block_nvfp4)
                                       : NAME(byte)(fmt, k);
}

/* A vector of weights from element i on, a multiple of VW. */
GW_INLINE VT vf NAME(weights)(const int fmt, const void *row, size_t i) {
    if (fmt == GW_FMT_E4M3) {
        const gw_block_e4m3 *b = (const gw_block_e4m3 *)row + i / GW_E4M3_BLOCK;
        return v_mul(v_from_e4m3(b->code + i % GW_E4M3_BLOCK), v_set(gw_load_f32(b->scale)));
    }
    if (fmt == GW_FMT_NVFP4_CODES) {
        const gw_block_nvfp4 *b = (const gw_block_nvfp4 *)row + i / GW_NVFP4_BLOCK;
        const int at = (int)(i % GW_NVFP4_BLOCK);
        return v_mul(v_from_e2m1(b->nibbles + at / 2), v_set(v_nvfp4_scale(b, at)));
    }
    if (fmt == GW_FMT_F32) {
        return v_load((const float *)row + i);
    }
    if (fmt == GW_FMT_F16) {
        return v_from_f16((const gw_u16 *)row + i);
    }
    return v_from_bf16((const gw_u16 *)row + i);
}

GW_INLINE float NAME(weight)(const int fmt, const void *row, size_t i) {
    if (fmt == GW_FMT_E4M3) {
        return gw_e4m3_weight((const gw_block_e4m3 *)row, (int)i);
    }
    if (fmt == GW_FMT_NVFP4_CODES) {
        return gw_nvfp4_weight((const gw_block_nvfp4 *)row, (int)i);
    }
    if (fmt == GW_FMT_F32) {
        return ((const float *)row)[i];
    }
    gw_u16 bits = ((const gw_u16 *)row)[i];
    return fmt == GW_FMT_F16 ? gw_f16_to_f32(bits) : gw_bf16_to_f32(bits);
}

/* ---- decode ---------------------------------------------------------------------------------- */

GW_INLINE VT float NAME(total)(const int fmt, const vf *sum, const void *row, const float *x,
                               size_t whole, size_t k) {
    if (whole == k) {
        return v_join(sum);
    }
    float lane[GW_LANES];
    for (int j = 0; j < NAME(J); j++) {
        v_store(lane + j * VW, sum[j]);
    }
    for (size_t i = whole; i < k; i++) {
        lane[i - whole] = fmaf(NAME(weight)(fmt, row, i), x[i], lane[i - whole]);
    }
    return gw_join_lanes(lane);
}

/* n activation rows times `streams` weight rows that are `step` bytes apart, a turn of columns of
 * each, into out [streams][n]. Only what one line of a row needs is asked for early, near and (one
 * activation row) further as in linear_one_body.h, but less far than there: activations are floats,
 * 22 KB of the first-level cache for 5632 columns. Of several, what a turn needs stays there for
 * all weight rows. */
GW_INLINE VT void NAME(dots_in_turn)(const int fmt, const int n, size_t streams, const char *w,
                                     size_t step, const char *x, size_t x_stride, size_t k,
                                     float *out) {
    enum { AHEAD = 2048, FURTHER = 3584 };
    float lane[NAME(STREAMS) * NAME(BATCH)][GW_LANES];
    const size_t whole = k / GW_LANES * GW_LANES, turn = n == 1 ? 128 : 256;
    const size_t size = fmt == GW_FMT_F32 ? 4 : fmt == GW_FMT_E4M3 || fmt == GW_FMT_NVFP4_CODES ? 1 : 2;
    memset(lane, 0, streams * (size_t)n * sizeof lane[0]);
    for (size_t at = 0; at < whole; at += turn) {
        size_t end = whole - at < turn ? whole : at + turn;
        for (size_t s = 0; s < streams; s++) {
            const char *row = w + s * step;
            float *lanes = lane[s * (size_t)n];
            vf sum[8][NAME(J)];
            GW_UNROLL
            for (int a = 0; a < n; a++) {
                GW_UNROLL
                for (int j = 0; j < NAME(J); j++) {
                    sum[a][j] = v_load(lanes + a * GW_LANES + j * VW);
                }
            }
            for (size_t i = at; i < end; i += GW_LANES) {
                GW_UNROLL
                for (size_t line = 0; line < GW_LANES * size; line += 64) {
                    const char *here = row + NAME(byte)(fmt, i) + line;
                    __builtin_prefetch(here + AHEAD, 0, 3);
                    if (n == 1) {
                        __builtin_prefetch(here + FURTHER, 0, 2);
                    }
                }
                GW_UNROLL
                for (int j = 0; j < NAME(J); j++) {
                    size_t c = i + (size_t)(j * VW);
                    vf value = NAME(weights)(fmt, row, c);
                    GW_UNROLL
                    for (int a = 0; a < n; a++) {
                        const float *xa = (const float *)(const void *)(x + (size_t)a * x_stride);
                        sum[a][j] = v_fma(value, v_load(xa + c), sum[a][j]);
                    }
                }
            }
            GW_UNROLL
            for (int a = 0; a < n; a++) {
                GW_UNROLL
                for (int j = 0; j < NAME(J); j++) {
                    v_store(lanes + a * GW_LANES + j * VW, sum[a][j]);
                }
            }
        }
    }
    for (size_t s = 0; s < streams; s++) {
        for (size_t a = 0; a < (size_t)n; a++) {
            const float *xa = (const float *)(const void *)(x + a * x_stride);
            vf sum[NAME(J)];
            GW_UNROLL
            for (int j = 0; j < NAME(J); j++) {
                sum[j] = v_load(lane[s * (size_t)n + a] + j * VW);
            }
            out[s * (size_t)n + a] = NAME(total)(fmt, sum, w + s * step, xa, whole, k);
        }
    }
}

/* One weight row times n activation rows into out[n]. Weights are asked for as in linear_body.h:
 * AHEAD bytes early, and from `stop` on `jump` bytes further; or not at all. */
GW_INLINE VT void NAME(dots)(const int fmt, const int n, const int asks, const char *w,
                             const char *x, size_t x_stride, size_t k, uintptr_t stop,
                             uintptr_t jump, float *out) {
    enum { AHEAD = 6144 };
    vf sum[8][NAME(J)];
    size_t whole = k / GW_LANES * GW_LANES;
    const size_t size = fmt == GW_FMT_F32 ? 4 : 2;
    GW_UNROLL
    for (int a = 0; a < n; a++) {
        GW_UNROLL
        for (int j = 0; j < NAME(J); j++) {
            sum[a][j] = v_zero();
        }
    }
    for (size_t i = 0; i < whole; i += GW_LANES) {
        uintptr_t next = (uintptr_t)w + NAME(byte)(fmt, i) + AHEAD;
        next += next >= stop ? jump : 0;
        if (asks) {
            __builtin_prefetch((const void *)next, 0, 3);
        }
        if (asks && size == 4) {
            __builtin_prefetch((const void *)(next + 64), 0, 3);
        }
        GW_UNROLL
        for (int j = 0; j < NAME(J); j++) {
            size_t at = i + (size_t)(j * VW);
            vf value = NAME(weights)(fmt, w, at);
            GW_UNROLL
            for (int a = 0; a < n; a++) {
                const float *xa = (const float *)(const void *)(x + (size_t)a * x_stride);
                sum[a][j] = v_fma(value, v_load(xa + at), sum[a][j]);
            }
        }
    }
    GW_UNROLL
    for (int a = 0; a < n; a++) {
        const float *xa = (const float *)(const void *)(x + (size_t)a * x_stride);
        out[a] = NAME(total)(fmt, sum[a], w, xa, whole, k);
    }
}

GW_INLINE void NAME(put)(const gw_cpu_linear *job, size_t r, size_t i, float sum) {
    if (job->bias != NULL) {
        sum = sum + job->bias[r];
    }
    if (job->residual != NULL) {
        sum = sum + job->residual[i * job->residual_stride + r];
    }
    job->y[i * job->y_stride + r] = sum;
}

/* All activation rows, as many at a time as fit. */
/* clang-format off */
#define IN_BATCHES(some)                                                                           \
    if (NAME(J) == 2) {                                                                            \
        some(8)                                                                                    \
        some(4)                                                                                    \
    }                                                                                              \
    some(3)                                                                                        \
    some(2)                                                                                        \
    some(1)
/* clang-format on */

GW_INLINE VT void NAME(decode_in_turn)(const int fmt, const gw_cpu_linear *job, size_t first,
                                       size_t end, size_t streams) {
    const size_t row_bytes = NAME(row_bytes)(fmt, job->k), n = (size_t)job->n;
    const size_t each = (end - first + streams - 1) / streams;
    float out[NAME(STREAMS) * NAME(BATCH)];
    for (size_t r = first; r < first + each; r++) {
        const size_t live = (end - r + each - 1) / each;
        const char *w = (const char *)job->w + r * row_bytes;
        size_t i = 0;
#define SOME(count)                                                                                \
    for (; i + (count) <= n; i += (count)) {                                                       \
        NAME(dots_in_turn)                                                                         \
        (fmt, (count), live, w, each * row_bytes, (const char *)job->x + i * job->x_stride,        \
         job->x_stride, job->k, out);                                                              \
        for (size_t o = 0; o < live * (count); o++) {                                              \
            NAME(put)(job, r + o / (count)*each, i + o % (count), out[o]);                         \
        }                                                                                          \
    }
        IN_BATCHES(SOME)
#undef SOME
    }
}

GW_INLINE VT void NAME(decode)(const int fmt, const gw_cpu_linear *job, size_t first, size_t end) {
    const size_t row_bytes = NAME(row_bytes)(fmt, job->k), stride = job->x_stride;
    const size_t n = (size_t)job->n, most = NAME(STREAMS);
    uintptr_t stop = (uintptr_t)job->w + end * row_bytes;
    uintptr_t jump = job->next != NULL ? (uintptr_t)job->next - stop : 0;
    float out[NAME(BATCH)];
    const int unasked = job->streams == GW_UNASKED && n == 1;
    const int places = job->streams == GW_UNASKED ? GW_PLACES : job->streams;
    if (places > 1 && !unasked) {
        NAME(decode_in_turn)
        (fmt, job, first, end, (size_t)places < most ? (size_t)places : most);
        return;
    }
    for (size_t r = first; r < end; r++) {
        const char *w = (const char *)job->w + r * row_bytes, *x = (const char *)job->x;
        size_t i = 0;
        if (unasked) {
            NAME(dots)(fmt, 1, 0, w, x, stride, job->k, stop, jump, out);
            NAME(put)(job, r, i++, out[0]);
        }
#define SOME(count)                                                                                \
    for (; i + (count) <= n; i += (count)) {                                                       \
        NAME(dots)(fmt, (count), 1, w, x + i * stride, stride, job->k, stop, jump, out);           \
        for (size_t j = 0; j < (count); j++) {                                                     \
            NAME(put)(job, r, i + j, out[j]);                                                      \
        }                                                                                          \
    }
        IN_BATCHES(SOME)
#undef SOME
    }
}

#undef IN_BATCHES

/* ---- prefill --------------------------------------------------------------------------------- */

#if GW_VEC != GW_VEC_NEON
GW_INLINE VT __m256 NAME(eight)(const int fmt, const void *row, size_t i) {
    const void *at = (const char *)row + NAME(byte)(fmt, i);
    if (fmt == GW_FMT_E4M3) {
        const gw_block_e4m3 *b = (const gw_block_e4m3 *)row + i / GW_E4M3_BLOCK;
        return _mm256_mul_ps(e4m3_avx2(b->code + i % GW_E4M3_BLOCK),
                             _mm256_set1_ps(gw_load_f32(b->scale)));
    }
    if (fmt == GW_FMT_NVFP4_CODES) {
        const gw_block_nvfp4 *b = (const gw_block_nvfp4 *)row + i / GW_NVFP4_BLOCK;
        const int in = (int)(i % GW_NVFP4_BLOCK);
        return _mm256_mul_ps(e2m1_avx2(b->nibbles + in / 2), _mm256_set1_ps(nvfp4_scale_avx2(b, in)));
    }
    if (fmt == GW_FMT_F32) {
        return _mm256_loadu_ps((const float *)at);
    }
    __m128i bits = _mm_loadu_si128((const __m128i *)at);
    if (fmt == GW_FMT_F16) {
        return _mm256_cvtph_ps(bits);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* Columns i .. i+7 of eight rows, as columns of the strip. */
GW_INLINE VT void NAME(turn)(const int fmt, float *strip, const void *rows, size_t row_bytes,
                             size_t i) {
    __m256 a[8], b[8];
    GW_UNROLL
    for (int r = 0; r < 8; r++) {
        a[r] = NAME(eight)(fmt, (const char *)rows + (size_t)r * row_bytes, i);
    }
    GW_UNROLL
    for (int r = 0; r < 8; r += 2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
    }
    GW_UNROLL
    for (int r = 0; r < 8; r += 4) {
        a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
        a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xee);
        a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
        a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xee);
    }
    GW_UNROLL
    for (int r = 0; r < 4; r++) {
        _mm256_storeu_ps(strip + r * NAME(STRIP), _mm256_permute2f128_ps(a[r], a[r + 4], 0x20));
        _mm256_storeu_ps(strip + (r + 4) * NAME(STRIP),
                         _mm256_permute2f128_ps(a[r], a[r + 4], 0x31));
    }
}
#endif

/* Rows [r, r + STRIP) of columns [at, at + depth) as f32 [depth, STRIP]; rows from m on are zeros.
 */
GW_INLINE VT void NAME(unpack)(const int fmt, float *strip, const gw_cpu_linear *job, size_t r,
                               size_t at, size_t depth) {
    size_t row_bytes = NAME(row_bytes)(fmt, job->k);
    const char *from = (const char *)job->w + r * row_bytes;
    for (size_t c = 0; c < NAME(STRIP); c += 8, from += 8 * row_bytes) {
        size_t rows = r + c >= job->m ? 0 : job->m - r - c < 8 ? job->m - r - c : 8, i = 0;
#if GW_VEC != GW_VEC_NEON
        for (; rows == 8 && i + 8 <= depth; i += 8) {
            NAME(turn)(fmt, strip + i * NAME(STRIP) + c, from, row_bytes, at + i);
        }
#endif
        for (; i < depth; i++) {
            for (size_t s = 0; s < 8; s++) {
                strip[i * NAME(STRIP) + c + s] =
                    s < rows ? NAME(weight)(fmt, from + s * row_bytes, at + i) : 0.0f;
            }
        }
    }
}

/* The weights of the next columns come near while these are used: `count` lines of `rows` rows,
 * from number `line` on. */
GW_INLINE VT void NAME(fetch)(const int fmt, const gw_cpu_linear *job, size_t r, size_t rows,
                              size_t at, size_t line, size_t count) {
    const size_t lines = NAME(row_bytes)(fmt, DEPTH) / 64, row_bytes = NAME(row_bytes)(fmt, job->k);
    for (size_t i = line; i < line + count && i / lines < rows; i++) {
        size_t byte = (r + i / lines) * row_bytes + NAME(byte)(fmt, at) + i % lines * 64;
        __builtin_prefetch((const char *)job->w + byte, 0, 2);
    }
}

/* Sums [n, TILE_ROWS] to their place, with bias and residual. */
VT static void NAME(finish)(const gw_cpu_linear *job, const float *sums, size_t first,
                            size_t rows) {
    size_t whole = rows / VW * VW;
    for (size_t i = 0; i < (size_t)job->n; i++) {
        const float *from = sums + i * TILE_ROWS;
        float *y = job->y + i * job->y_stride + first;
        const float *residual =
            job->residual != NULL ? job->residual + i * job->residual_stride + first : NULL;
        for (size_t r = 0; r < whole; r += VW) {
            vf v = v_load(from + r);
            if (job->bias != NULL) {
                v = v_add(v, v_load(job->bias + first + r));
            }
            if (residual != NULL) {
                v = v_add(v, v_load(residual + r));
            }
            v_store(y + r, v);
        }
        for (size_t r = whole; r < rows; r++) {
            NAME(put)(job, first + r, i, from[r]);
        }
    }
}

GW_INLINE VT void NAME(prefill)(const int fmt, const gw_cpu_linear *job, size_t first, size_t end,
                                void *scratch) {
    float *strips = scratch, *sums = strips + TILE_ROWS * DEPTH;
    size_t n = (size_t)job->n, xs = job->x_stride / sizeof(float);
    const float *packed = job->prepared;
    for (size_t r = first; r < end; r += TILE_ROWS) {
        size_t rows = end - r < TILE_ROWS ? end - r : TILE_ROWS;
        size_t n_strips = (rows + NAME(STRIP) - 1) / NAME(STRIP);
        for (size_t at = 0; at < job->k; at += DEPTH) {
            size_t depth = job->k - at < DEPTH ? job->k - at : DEPTH;
            const float *x = (const float *)job->x + at;
            for (size_t s = 0; s < n_strips; s++) {
                NAME(unpack)
                (fmt, strips + s * NAME(STRIP) * DEPTH, job, r + s * NAME(STRIP), at, depth);
            }
            size_t tiles = n_strips * ((n + MICRO_ROWS - 1) / MICRO_ROWS), line = 0;
            size_t count = (rows * (NAME(row_bytes)(fmt, DEPTH) / 64) + tiles - 1) / tiles;
            for (size_t block = 0; block < n; block += TOKENS) {
                size_t stop = n - block < TOKENS ? n : block + TOKENS;
                for (size_t s = 0; s < n_strips; s++) {
                    for (size_t t = block; t < stop; t += MICRO_ROWS) {
                        NAME(fetch)
                        (fmt, job, r, at + DEPTH < job->k ? rows : 0, at + DEPTH, line, count);
                        line += count;
                        size_t high = stop - t < MICRO_ROWS ? stop - t : MICRO_ROWS;
                        const float *w = strips + s * NAME(STRIP) * DEPTH;
                        float *y = sums + t * TILE_ROWS + s * NAME(STRIP);
                        if (packed != NULL) { /* the first strip brings the activations near */
                            const float *tile = packed + t * job->k + at * MICRO_ROWS;
                            const float *next = s == 0 ? tile + MICRO_ROWS * job->k : tile;
                            NAME(tile_packed)
                            (high, depth, tile, next, w, NAME(STRIP), y, TILE_ROWS, at == 0);
                        } else {
                            NAME(tile_full)
                            (high, depth, x + t * xs, xs, w, NAME(STRIP), y, TILE_ROWS, at == 0);
                        }
                    }
                }
            }
        }
        NAME(finish)(job, sums, r, rows);
    }
}

/* Tiles of MICRO_ROWS tokens as [k, MICRO_ROWS], a block of columns at a time so that the strided
 * stores stay in the first-level cache; the rows of the last tile may be fewer. */
VT static void NAME(prepare)(const gw_cpu_linear *job, size_t first, size_t end, void *dst) {
    enum { COLUMNS = 64 };
    for (size_t t = first; t < end; t += MICRO_ROWS) {
        size_t rows = end - t < MICRO_ROWS ? end - t : MICRO_ROWS;
        float *tile = (float *)dst + t * job->k;
        for (size_t at = 0; at < job->k; at += COLUMNS) {
            size_t stop = job->k - at < COLUMNS ? job->k : at + COLUMNS;
            for (size_t r = 0; r < rows; r++) {
                const char *row = (const char *)job->x + (t + r) * job->x_stride;
                const float *x = (const float *)(const void *)row;
                for (size_t i = at; i < stop; i++) {
                    tile[i * MICRO_ROWS + r] = x[i];
                }
            }
        }
    }
}

#define FLOAT_KERNELS(fmt, what)                                                                   \
    VT static void NAME(decode_##what)(const gw_cpu_linear *job, size_t first, size_t end,         \
                                       void *scratch) {                                            \
        (void)scratch;                                                                             \
        NAME(decode)(fmt, job, first, end);                                                        \
    }                                                                                              \
    VT static void NAME(prefill_##what)(const gw_cpu_linear *job, size_t first, size_t end,        \
                                        void *scratch) {                                           \
        NAME(prefill)(fmt, job, first, end, scratch);                                              \
    }
FLOAT_KERNELS(GW_FMT_F32, f32)
FLOAT_KERNELS(GW_FMT_F16, f16)
FLOAT_KERNELS(GW_FMT_BF16, bf16)
FLOAT_KERNELS(GW_FMT_E4M3, e4m3)
FLOAT_KERNELS(GW_FMT_NVFP4_CODES, nvfp4_codes)
#undef FLOAT_KERNELS
