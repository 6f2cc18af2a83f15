/* backends/opencl/probe.c - which instructions beyond OpenCL 1.2 a device understands: small
 * kernels that run before anything else does. What does not build, run or give the right numbers is
 * not used.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"

enum { LANES = 32, WORDS = 256, MATRIX_WORDS = 4 * LANES, MAGIC_BITS = 0x4b400000 };

/* Runs kernel `probe` of the texts with n items over WORDS words. */
static int runs(struct gw_device *d, const char **texts, cl_uint n_texts, size_t n, cl_int *words) {
    const gw_cl_driver *cl = d->cl;
    cl_int error = CL_SUCCESS;
    const size_t bytes = WORDS * sizeof *words;
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

/* The word `name` is among the device's extensions; a name that ends in _ : one begins so. */
static int has_extension(const struct gw_device *d, const char *name) {
    size_t bytes = 0;
    char *all = NULL;
    int found = 0;
    if (d->cl->GetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes) == CL_SUCCESS) {
        all = calloc(1, bytes + 1);
    }
    if (all != NULL &&
        d->cl->GetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, bytes, all, NULL) == CL_SUCCESS) {
        const size_t n = strlen(name), whole = name[n - 1] != '_';
        for (const char *p = strstr(all, name); p != NULL && !found; p = strstr(p + 1, name)) {
            found = (p == all || p[-1] == ' ') && (!whole || p[n] == ' ' || p[n] == '\0');
        }
    }
    free(all);
    return found;
}

typedef struct way {
    const char *begin;     /* of the text: chooses it in exchange.cl */
    const char *extension; /* which names a device that may know it; NULL: inline PTX */
} way;

/* By the numbers of exchange.cl. */
static const way shuffle_ways[] = {
    [1] = {"#define PROBE_SHUFFLES\n#define GW_SHUFFLES 1\n", NULL},
    [2] = {"#define PROBE_SHUFFLES\n#define GW_SHUFFLES 2\n", "cl_amd_"},
    [3] = {"#define PROBE_SHUFFLES\n#define GW_SHUFFLES 3\n", "cl_intel_required_subgroup_size"},
};
static const way dot_ways[] = {
    [1] = {"#define GW_DOTS 1\n", NULL},
    [2] = {"#define GW_DOTS 2\n", "cl_amd_"},
    [3] = {"#define GW_DOTS 3\n", "cl_amd_"},
};
enum { WAYS = 4, DOTS_SIGNED = 3 };

/* What probe.cl makes of item `id`. */
static cl_int shuffled(cl_uint id) {
    const cl_uint lane = id % LANES, team = id - lane;
    cl_uint v = 0;
    for (cl_uint h = LANES / 2; h > 0; h /= 2) {
        v = 3 * v + (id ^ h);
        v = 3 * v + (lane + h < LANES ? id + h : id);
    }
    for (cl_uint from = 0; from < LANES; from++) {
        v = 3 * v + team + from;
    }
    return (cl_int)v;
}

static cl_int multiplied(cl_uint id, int is_signed) {
    const cl_uint a = 0x81020304u + id, b = 0xff7f8001u;
    cl_int sum = (cl_int)id;
    for (int i = 0; i < 4; i++) {
        const int code = (int)(a >> (8 * i) & 255u), q = (int)(b >> (8 * i) & 255u);
        sum += (is_signed && code > 127 ? code - 256 : code) * (q > 127 ? q - 256 : q);
    }
    return sum;
}

/* The first way, from `first` on, that the device knows; 0: none. */
static int find_way(struct gw_device *d, const way *ways, int first, int shuffles) {
    for (int number = first; number < WAYS; number++) {
        const char *texts[] = {ways[number].begin, gw_cl_text("kernels_cl/exchange.cl"),
                               gw_cl_text("kernels_cl/probe.cl")};
        cl_int out[WORDS] = {0};
        int good = (ways[number].extension == NULL || has_extension(d, ways[number].extension)) &&
                   runs(d, texts, sizeof texts / sizeof texts[0], WORDS, out);
        for (cl_uint i = 0; i < WORDS && good; i++) {
            good = out[i] == (shuffles ? shuffled(i) : multiplied(i, number == DOTS_SIGNED));
        }
        if (good) {
            return number;
        }
    }
    return 0;
}

void gw_cl_find_ways(struct gw_device *d) {
    d->shuffles = find_way(d, shuffle_ways, 1, 1);
    d->nvidia = d->shuffles == 1;
    d->dots = find_way(d, dot_ways, d->nvidia ? 1 : 2, 0);
    d->nvidia = d->nvidia && d->dots == 1;
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
    cl_int out[WORDS] = {0};
    for (int i = 0; i < LANES * 16; i++) {
        rows[i / 16][i % 16] = (signed char)((i * 37 + i / 16 * 11) % 31 - 15);
    }
    memcpy(out, rows, sizeof rows);
    memset(rows[LANES - 1], 0, sizeof rows[LANES - 1]);
    int good = runs(d, texts, sizeof texts / sizeof texts[0], LANES, out);
    for (int i = 0; i < MATRIX_WORDS && good; i++) {
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
