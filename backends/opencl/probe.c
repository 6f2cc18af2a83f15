/* backends/opencl/probe.c - what a device's inline assembly understands: small kernels that run
 * before anything else does. What does not build, run or give the right numbers is not used.
 */
#include <string.h>

#include "backends/opencl/opencl.h"

enum { LANES = 32, WORDS = 4 * LANES, MAGIC_BITS = 0x4b400000 };

/* Runs kernel `probe` of the texts with 32 items over `words`. */
static int runs(struct gw_device *d, const char **texts, cl_uint n_texts, cl_int *words) {
    const gw_cl_driver *cl = d->cl;
    cl_int error = CL_SUCCESS;
    const size_t n = LANES, bytes = WORDS * sizeof *words;
    cl_program program = cl->CreateProgramWithSource(d->context, n_texts, texts, NULL, &error);
    if (error != CL_SUCCESS) {
        return 0;
    }
    cl_kernel kernel = NULL;
    cl_mem mem = NULL;
    int good = cl->BuildProgram(program, 1, &d->id, "-cl-std=CL1.2", NULL, NULL) == CL_SUCCESS;
    if (good) {
        kernel = cl->CreateKernel(program, "probe", &error);
        good = error == CL_SUCCESS;
    }
    if (good) {
        mem = cl->CreateBuffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
        good = error == CL_SUCCESS;
    }
    good = good && cl->EnqueueWriteBuffer(d->queue, mem, CL_TRUE, 0, bytes, words, 0, NULL, NULL) ==
                       CL_SUCCESS;
    good = good && cl->SetKernelArg(kernel, 0, sizeof mem, &mem) == CL_SUCCESS;
    good = good &&
           cl->EnqueueNDRangeKernel(d->queue, kernel, 1, NULL, &n, &n, 0, NULL, NULL) == CL_SUCCESS;
    good = good && cl->EnqueueReadBuffer(d->queue, mem, CL_TRUE, 0, bytes, words, 0, NULL, NULL) ==
                       CL_SUCCESS;
    if (mem != NULL) {
        cl->ReleaseMemObject(mem);
    }
    if (kernel != NULL) {
        cl->ReleaseKernel(kernel);
    }
    cl->ReleaseProgram(program);
    return good;
}

/* ---- shuffles and four-way dot products ------------------------------------------------------ */

static const char *const lanes_probe =
    "__kernel void probe(__global int *out) {\n"
    "    int i = (int)get_local_id(0), down, dot;\n"
    "    __asm__ volatile(\"shfl.sync.down.b32 %0, %1, %2, 0x1f, 0xffffffff;\"\n"
    "                 : \"=r\"(down) : \"r\"(i), \"r\"(16));\n"
    "    __asm__(\"dp4a.u32.s32 %0, %1, %2, %3;\"\n"
    "        : \"=r\"(dot) : \"r\"(0x01020304), \"r\"(0xff010101), \"r\"(i));\n"
    "    out[i] = down * 1000 + dot;\n"
    "}\n";

int gw_cl_has_ptx(struct gw_device *d) {
    const char *text = lanes_probe;
    cl_int out[WORDS] = {0};
    int good = runs(d, &text, 1, out);
    for (int i = 0; i < LANES && good; i++) {
        int down = i < LANES / 2 ? i + LANES / 2 : i; /* beyond the end: the own value */
        good = out[i] == down * 1000 + (4 + 3 + 2 - 1) + i;
    }
    return good;
}

/* ---- matrix instructions --------------------------------------------------------------------- */

/* 31 rows of 16 bytes and one of zeros come to local memory by copies of 16, 8 and 4 bytes and are
 * multiplied with themselves. */
static const char *const matrix_head = "#define MATRIX\n#define GW_NV\n";
static const char *const matrix_probe =
    "__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void probe(__global int *data) {\n"
    "    __local uchar rows[512] __attribute__((aligned(128)));\n"
    "    int i = (int)get_local_id(0), d[4], e[4];\n"
    "    uint r[4];\n"
    "    __global const uchar *from = (__global const uchar *)(data + 4 * i);\n"
    "    if (i % 2 == 0) {\n"
    "        copy_16(rows + 16 * i, from, 16);\n"
    "    } else {\n"
    "        copy_8(rows + 16 * i, from, i < 31 ? 8 : 0);\n"
    "        copy_4(rows + 16 * i + 8, from + 8, i < 31 ? 4 : 0);\n"
    "        copy_4(rows + 16 * i + 12, from + 12, i < 31 ? 4 : 0);\n"
    "    }\n"
    "    copies_wait();\n"
    "    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);\n"
    "    load_matrices(r, rows, (uint)(16 * i), 0, i);\n"
    "    multiply_32(d, r, r, 0, i);\n"
    "    multiply_16(e, r, r + 1, 0, i);\n"
    "    for (int k = 0; k < 4; k++) {\n"
    "        data[4 * i + k] = (d[k] - MAGIC_BITS) * 64 + (e[k] - MAGIC_BITS);\n"
    "    }\n"
    "}\n";

/* Byte k of row r of tile t: what a register of number t holds of row r. */
static int tile_byte(signed char (*rows)[16], int t, int r, int k) { return rows[8 * t + r][k]; }

int gw_cl_has_matrix(struct gw_device *d) {
    const char *texts[] = {matrix_head, gw_cl_text("kernels_cl/matrix.cl"), matrix_probe};
    signed char rows[LANES][16];
    cl_int out[WORDS];
    for (int i = 0; i < LANES * 16; i++) {
        rows[i / 16][i % 16] = (signed char)((i * 37 + i / 16 * 11) % 31 - 15);
    }
    memcpy(out, rows, sizeof rows);
    memset(rows[LANES - 1], 0, sizeof rows[LANES - 1]);
    int good = runs(d, texts, sizeof texts / sizeof texts[0], out);
    for (int i = 0; i < WORDS && good; i++) {
        int lane = i / 4, row = lane / 4 + i % 4 / 2 * 8, col = lane % 4 * 2 + i % 2;
        int both = 0, one = 0;
        for (int k = 0; k < 16; k++) {
            int first = tile_byte(rows, row / 8, row % 8, k);
            both += first * tile_byte(rows, 0, col, k) +
                    tile_byte(rows, 2 + row / 8, row % 8, k) * tile_byte(rows, 1, col, k);
            one += first * tile_byte(rows, 1, col, k);
        }
        good = out[i] == both * 64 + one;
    }
    return good;
}
