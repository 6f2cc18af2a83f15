/* cpu/linear.h - y = x W^T on the CPU: what a kernel gets and how it is found.
 *
 * Kernels here know bytes and rows, never nodes or plans; backends/cpu adapts them to the op table.
 * Quantized weights: SIMD levels read a private strip layout (strip.h): 16 rows interleaved so that
 * lanes are rows, the same bytes for every level of an architecture; the scalar level reads rows as
 * stored.
 * Float weights: rows as stored at every level (a mapped file is used in place).
 */
#ifndef GW_CPU_LINEAR_H
#define GW_CPU_LINEAR_H

#include "core/tensor/formats.h"
#include "cpu/isa.h"

enum { GW_STRIP_ROWS = 16, GW_PREPARE_ROWS = 48 };

/* Ways of reading weights, gw_cpu_linear.streams: several places, as many as suited the processors
 * tried; one place, its weights asked for by the processor's own prefetchers only (several rows,
 * and formats that are not read in order, then come from GW_PLACES). */
enum { GW_PLACES = 6, GW_UNASKED = -1 };

typedef struct gw_cpu_linear {
    const void *w; /* packed strips or rows of one matrix [m, k]                          */
    size_t m, k;
    const void *x;     /* activations: gw_act8 [n, k/32] (|q| <= 127, as encoded) or float [n, k] */
    size_t x_stride;   /* bytes from row to row of x                                        */
    int n;             /* live rows: decode 1..16, prefill any                                */
    float *y;          /* y[i * y_stride + r] for matrix row r                                */
    size_t y_stride;   /* floats                                                      */
    const float *bias; /* [m] or NULL: y = (sum + bias) + residual                    */
    const float *residual; /* residual[i * residual_stride + r], or NULL; may alias y     */
    size_t residual_stride;
    int streams;      /* places that decode reads a range from in turn; 0: one; or GW_UNASKED   */
    const void *next; /* weights the caller reads after this range: asked for early; or NULL */
    const void *prepared; /* what prepare() made of all n rows of x; NULL: run() does it itself */
} gw_cpu_linear;

/* One kernel: rows [first, end) of the matrix for all n activation rows. first is a multiple of
 * GW_STRIP_ROWS; end too, unless it is m. scratch: `scratch` bytes of the calling thread, 64-byte
 * aligned. Pure, any thread. Bits equal the scalar kernel's of the same order. */
typedef struct gw_cpu_linear_kernel {
    gw_fmt fmt;
    gw_cpu_level level;
    int prefill;      /* the order of its sums: 0 decode, 1 prefill */
    int strips;       /* reads the strip layout                     */
    const char *name; /* "linear.q4_0.avx2" */
    void (*run)(const gw_cpu_linear *job, size_t first, size_t end, void *scratch);
    size_t (*scratch)(size_t k, int n_max); /* bytes; NULL: none */
    /* Once per pass instead of once per run(): the activations in the form the inner loops want.
     * prepare() does rows [first, end) of x, first a multiple of GW_PREPARE_ROWS (any tile height
     * divides it); dst is the same for all rows and has prepared(k, n) bytes, 64-byte aligned.
     * NULL: no such step. */
    size_t (*prepared)(size_t k, int n_max);
    void (*prepare)(const gw_cpu_linear *job, size_t first, size_t end, void *dst);
} gw_cpu_linear_kernel;

/* Every kernel for quantized weights in this build, whether or not this CPU runs it; best first per
 * format and order. Tests walk it; NULL-free. linear_float.h lists those for float weights. */
const gw_cpu_linear_kernel *gw_cpu_linear_kernels(size_t *count);
/* Over both tables: the first kernel for (fmt, prefill) with exactly this level, else the scalar
 * one. Never NULL for a weight format. */
const gw_cpu_linear_kernel *gw_cpu_linear_find(gw_fmt fmt, gw_cpu_level level, int prefill);

/* Strip layout. bytes: of a packed [rows, cols] matrix, rows padded to a multiple of 16 (padding
 * rows are zero bytes). pack: rows [first, first + n) given as stored in src, n <= 16, first a
 * multiple of 16; writes one whole strip at dst = base + first / 16 * gw_strip_bytes. Runs on any
 * level's machine; the bytes are those of this architecture's levels. */
size_t gw_strip_bytes(gw_fmt fmt, size_t cols); /* of one strip of 16 rows: 16 * row bytes */
void gw_strip_pack(gw_fmt fmt, void *dst, const void *src, size_t n, size_t cols);

#endif
