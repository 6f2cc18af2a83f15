/* backends/opencl/blas.c - prompts with float weights through CLBlast, only under --blas.
 *
 * Its sums run in its own order: the one place here whose bits are not ours. Weights are widened to
 * f32 tile by tile and given to SGEMM; HGEMM would keep its sums in 16 bits. Declarations and
 * status codes are those of clblast_c.h, version 1.5: codes down to -63 are OpenCL's.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/base/os.h"
#include "core/base/os_threads.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112, ITEMS = 64, TILE_ALIGN = 64 };

typedef int sgemm_function(int layout, int a_transpose, int b_transpose, size_t m, size_t n,
                           size_t k, float alpha, cl_mem a, size_t a_at, size_t a_ld, cl_mem b,
                           size_t b_at, size_t b_ld, float beta, cl_mem c, size_t c_at, size_t c_ld,
                           cl_command_queue *queue, cl_event *event);

static sgemm_function *sgemm; /* NULL: no library */
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void open_library(void) {
#if defined(_WIN32)
    static const char *const names[] = {"clblast.dll"};
#else
    static const char *const names[] = {"libclblast.so.1", "libclblast.so"};
#endif
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    void *at = library != NULL ? dlsym(library, "CLBlastSgemm") : NULL;
    memcpy(&sgemm, &at, sizeof at); /* ISO C has no cast from object to function */
}

/* y [n, m] = x [n, k] w^T. CLBlast builds its kernels for a device at the first call and keeps them
 * for as long as the process lives. */
static int multiply(struct gw_device *d, cl_command_queue queue, const gw_cl_gemm *g, size_t n,
                    cl_event *event) {
    if (d->fail_blas > 0 && --d->fail_blas == 0) {
        return CL_OUT_OF_RESOURCES;
    }
    return sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, n, g->m, g->k, 1.0f, g->x, g->x_at, g->k, g->w,
                 0, g->k, 0.0f, g->y, 0, g->m, &queue, event);
}

static void do_without(struct gw_device *d, const char *why) {
    snprintf(d->blas_note, sizeof d->blas_note,
             "--blas without CLBlast on opencl:%d: %s; godwit's own kernels multiply there",
             d->ordinal, why);
    atomic_store(&d->blas, GW_CL_BLAS_FAILED);
}

static void do_without_status(struct gw_device *d, int status) {
    char why[64];
    snprintf(why, sizeof why, "a product failed, %s", gw_cl_error_name(status));
    do_without(d, why);
}

/* ---- the trial ------------------------------------------------------------------------------- */

/* Whole numbers, small enough that every order of summing gives the same. */
enum { N = 5, M = 37, K = 70 };

static float sample(size_t i) { return (float)(i * 7 % 13) - 6.0f; }

static int is_right(const float *y, const float *x, const float *w) {
    for (size_t i = 0; i < (size_t)N * M; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < K; j++) {
            sum += x[i / M * K + j] * w[i % M * K + j];
        }
        if (!(y[i] == sum)) {
            return 0;
        }
    }
    return 1;
}

/* CLBlast's status, or an OpenCL error; *right: the numbers are what they must be. */
static int try_buffers(struct gw_device *d, const gw_cl_gemm *g, int *right) {
    const gw_cl_driver *cl = d->cl;
    float x[N * K], w[M * K], y[N * M];
    for (size_t i = 0; i < M * K; i++) {
        w[i] = sample(i);
        x[i % (N * K)] = sample(3 * (i % (N * K)) + 1);
    }
    memset(y, 0xff, sizeof y);
    int status = cl->EnqueueWriteBuffer(d->queue, g->x, CL_TRUE, 0, sizeof x, x, 0, NULL, NULL);
    status = status != 0
                 ? status
                 : cl->EnqueueWriteBuffer(d->queue, g->w, CL_TRUE, 0, sizeof w, w, 0, NULL, NULL);
    status = status != 0
                 ? status
                 : cl->EnqueueWriteBuffer(d->queue, g->y, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL);
    status = status != 0 ? status : multiply(d, d->queue, g, N, NULL);
    status = status != 0
                 ? status
                 : cl->EnqueueReadBuffer(d->queue, g->y, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL);
    *right = status == 0 && is_right(y, x, w);
    return status;
}

static int try_product(struct gw_device *d, int *right) {
    cl_mem mem[3] = {NULL};
    const size_t bytes[3] = {N * K * sizeof(float), M * K * sizeof(float), N * M * sizeof(float)};
    cl_int error = CL_SUCCESS;
    for (int i = 0; i < 3 && error == CL_SUCCESS; i++) {
        mem[i] = d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE, bytes[i], NULL, &error);
        mem[i] = error == CL_SUCCESS ? mem[i] : NULL;
    }
    const gw_cl_gemm g = {.x = mem[0], .w = mem[1], .y = mem[2], .m = M, .k = K};
    int status = error == CL_SUCCESS ? try_buffers(d, &g, right) : error;
    for (int i = 0; i < 3; i++) {
        if (mem[i] != NULL) {
            d->cl->ReleaseMemObject(mem[i]);
        }
    }
    return status;
}

void gw_cl_blas_open(struct gw_device *d) {
    int right = 0;
    pthread_once(&library_once, open_library);
    if (sgemm == NULL || d->no_blas) {
        do_without(d, "libclblast.so.1 cannot be opened");
        return;
    }
    int status = try_product(d, &right);
    if (status != 0) {
        do_without_status(d, status);
    } else if (!right) {
        do_without(d, "a trial product is wrong");
    } else {
        atomic_store(&d->blas, GW_CL_BLAS_WORKS);
    }
}

const char *gw_cl_blas_note(const struct gw_device *d) {
    return atomic_load(&d->blas) == GW_CL_BLAS_FAILED ? d->blas_note : "";
}

/* ---- recording and replay -------------------------------------------------------------------- */

gw_status gw_cl_blas_tile(struct gw_segment *segment, const gw_tensor *w, int64_t rows,
                          gw_cl_gemm *gemm, int64_t *tile) {
    struct gw_device *d = segment->device;
    const size_t k = (size_t)w->dim[1], n = (size_t)segment->rows;
    /* Half of the room: CLBlast pads matrices into copies of its own. */
    const size_t room = GW_BLAS_BYTES / 2 < d->max_alloc ? GW_BLAS_BYTES / 2 : (size_t)d->max_alloc;
    size_t fit = room / ((k + n) * sizeof(float)) / TILE_ALIGN * TILE_ALIGN;
    size_t most = fit < TILE_ALIGN ? TILE_ALIGN : fit;
    most = (size_t)rows < most ? (size_t)rows : most;
    gemm->k = k;
    GW_TRY(gw_cl_pool_get(d, &d->widened, most * k * sizeof(float), &gemm->w));
    GW_TRY(gw_cl_pool_get(d, &d->products, most * n * sizeof(float), &gemm->y));
    *tile = (int64_t)most;
    return GW_OK;
}

gw_status gw_cl_blas_widen(struct gw_segment *segment, const gw_tensor *w, const gw_cl_chunk *tile,
                           gw_cl_gemm *gemm) {
    char options[32];
    gw_cl_format_options(w->fmt, GW_ORDER_PREFILL, options, sizeof options);
    gw_cl_call call = gw_cl_launch_new(segment, "blas", options, "widen_rows");
    gw_cl_arg_mem(&call, tile->mem, tile->low);
    gw_cl_arg_mem(&call, gemm->w, 0);
    gw_cl_arg_int(&call, w->dim[1]);
    if (call.status == GW_OK) {
        call.launch->part = GW_CL_WIDENS;
    }
    gemm->m = (size_t)tile->rows;
    if (segment->device->item) {
        return gw_cl_launch_end(&call, 1, 1, gemm->m, 1);
    }
    return gw_cl_launch_end(&call, ITEMS, gw_cl_groups(gemm->k, ITEMS), gemm->m, 1);
}

int gw_cl_blas_multiply(struct gw_segment *segment, const gw_cl_launch *launch,
                        cl_command_queue queue, const gw_step *step, cl_event *event) {
    struct gw_device *d = segment->device;
    int n = segment->rows == 1 ? 1 : launch->gemm.picked ? step->n_pick : step->n;
    if (atomic_load(&d->blas) != GW_CL_BLAS_WORKS || n < 1) {
        return 0;
    }
    int status = multiply(d, queue, &launch->gemm, (size_t)n, event);
    if (status != 0) {
        do_without_status(d, status);
    }
    return status == 0;
}
