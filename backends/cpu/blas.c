/* backends/cpu/blas.c - float-weight prefill through OpenBLAS, only under --blas.
 *
 * Each thread of our team multiplies its own rows with a single-threaded sgemm. Its sums run in
 * OpenBLAS's order: the one place whose bits are not ours.
 */
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112, BLAS_ROWS = 64 };

struct gw_cpu_blas {
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_threads)(int n);
};

static gw_cpu_blas library;
static int library_ready;
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void open_library(void) {
#if defined(_WIN32)
    static const char *const names[] = {"libopenblas.dll", "openblas.dll"};
#else
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
#endif
    void *handle = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && handle == NULL; i++) {
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        return;
    }
    void *sgemm = dlsym(handle, "cblas_sgemm"),
         *threads = dlsym(handle, "openblas_set_num_threads");
    if (sgemm == NULL || threads == NULL) {
        return;
    }
    memcpy(&library.sgemm, &sgemm, sizeof sgemm); /* ISO C has no cast from object to function */
    memcpy(&library.set_threads, &threads, sizeof threads);
    library.set_threads(1);
    library_ready = 1;
}

const gw_cpu_blas *gw_cpu_blas_open(void) {
    pthread_once(&library_once, open_library);
    return library_ready ? &library : NULL;
}

static void run(gw_fmt fmt, const gw_cpu_linear *job, size_t first, size_t end, void *scratch) {
    const gw_format *f = gw_format_of(fmt);
    const size_t row_bytes = gw_format_blocks(f, job->k) * f->block_bytes;
    float *rows = scratch;
    int k = (int)job->k, ldx = (int)(job->x_stride / sizeof(float));
    for (size_t r = first; r < end; r += BLAS_ROWS) {
        size_t n = end - r < BLAS_ROWS ? end - r : BLAS_ROWS;
        const char *w = (const char *)job->w + r * row_bytes;
        for (size_t i = 0; i < n; i++) {
            f->decode(rows + i * job->k, w + i * row_bytes, job->k);
        }
        for (size_t i = 0; i < (size_t)job->n && job->residual != NULL; i++) {
            memmove(job->y + i * job->y_stride + r, job->residual + i * job->residual_stride + r,
                    n * sizeof(float));
        }
        library.sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, job->n, (int)n, k, 1.0f,
                      (const float *)job->x, ldx, rows, k, job->residual != NULL ? 1.0f : 0.0f,
                      job->y + r, (int)job->y_stride);
        for (size_t i = 0; i < (size_t)job->n && job->bias != NULL; i++) {
            for (size_t c = r; c < r + n; c++) {
                job->y[i * job->y_stride + c] += job->bias[c];
            }
        }
    }
}

static size_t scratch_bytes(size_t k, int n_max) {
    (void)n_max;
    return BLAS_ROWS * k * sizeof(float);
}

static void run_f32(const gw_cpu_linear *job, size_t first, size_t end, void *scratch) {
    run(GW_FMT_F32, job, first, end, scratch);
}
static void run_f16(const gw_cpu_linear *job, size_t first, size_t end, void *scratch) {
    run(GW_FMT_F16, job, first, end, scratch);
}
static void run_bf16(const gw_cpu_linear *job, size_t first, size_t end, void *scratch) {
    run(GW_FMT_BF16, job, first, end, scratch);
}
static void run_e4m3(const gw_cpu_linear *job, size_t first, size_t end, void *scratch) {
    run(GW_FMT_E4M3, job, first, end, scratch);
}
static void run_nvfp4(const gw_cpu_linear *job, size_t first, size_t end, void *scratch) {
    run(GW_FMT_NVFP4_CODES, job, first, end, scratch);
}

const gw_cpu_linear_kernel *gw_cpu_blas_kernel(gw_fmt fmt) {
    static const gw_cpu_linear_kernel kernels[] = {
        {GW_FMT_F32, GW_CPU_SCALAR, 1, 0, "linear.f32.blas", run_f32, scratch_bytes, NULL, NULL},
        {GW_FMT_F16, GW_CPU_SCALAR, 1, 0, "linear.f16.blas", run_f16, scratch_bytes, NULL, NULL},
        {GW_FMT_BF16, GW_CPU_SCALAR, 1, 0, "linear.bf16.blas", run_bf16, scratch_bytes, NULL, NULL},
        {GW_FMT_E4M3, GW_CPU_SCALAR, 1, 0, "linear.e4m3.blas", run_e4m3, scratch_bytes, NULL, NULL},
        {GW_FMT_NVFP4_CODES, GW_CPU_SCALAR, 1, 0, "linear.nvfp4.blas", run_nvfp4, scratch_bytes,
         NULL, NULL},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (kernels[i].fmt == fmt) {
            return &kernels[i];
        }
    }
    return NULL;
}
