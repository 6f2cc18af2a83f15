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
    int good = gw_cl_build(d, program, "-cl-std=CL1.2") == CL_SUCCESS;
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
    const char *extension; /* which names a device that may know it; NULL: any */
} way;

#define SHUFFLES(number) "#define PROBE_SHUFFLES\n#define GW_SHUFFLES " #number "\n"
#define DOTS(number) "#define GW_DOTS " #number "\n"
static const way shuffle_ways[] = {
    [GW_CL_SHUFFLES_PTX] = {SHUFFLES(1), NULL},
    [GW_CL_SHUFFLES_AMD] = {SHUFFLES(2), "cl_amd_"},
    [GW_CL_SHUFFLES_INTEL] = {SHUFFLES(3), "cl_intel_required_subgroup_size"},
    [GW_CL_SHUFFLES_LOCAL] = {SHUFFLES(4), NULL},
};
static const way dot_ways[] = {
    [0] = {DOTS(0), NULL},
    [GW_CL_DOTS_PTX] = {DOTS(1), NULL},
    [GW_CL_DOTS_AMD] = {DOTS(2), "cl_amd_"},
    [GW_CL_DOTS_AMD_SIGNED] = {DOTS(3), "cl_amd_"},
    [GW_CL_DOTS_SIGNED] = {DOTS(4), NULL},
};

/* What probe.cl makes of item `id`. */
static cl_int shuffled(cl_uint id) {
    cl_uint v = 0;
    for (cl_uint mask = 1; mask < LANES; mask++) {
        v = 3 * v + (id ^ mask);
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

static int gives(struct gw_device *d, const way *w, cl_int *out) {
    const char *texts[] = {w->begin, gw_cl_text("kernels_cl/exchange.cl"),
                           gw_cl_text("kernels_cl/probe.cl")};
    memset(out, 0, WORDS * sizeof *out);
    return (w->extension == NULL || has_extension(d, w->extension)) &&
           runs(d, texts, sizeof texts / sizeof texts[0], WORDS, out);
}

static int shuffles_by(struct gw_device *d, int number) {
    cl_int out[WORDS];
    int good = gives(d, &shuffle_ways[number], out);
    for (cl_uint i = 0; i < WORDS && good; i++) {
        good = out[i] == shuffled(i);
    }
    return good;
}

static int multiplies_by(struct gw_device *d, int number) {
    const int is_signed = number == GW_CL_DOTS_AMD_SIGNED || number == GW_CL_DOTS_SIGNED;
    cl_int out[WORDS];
    int good = gives(d, &dot_ways[number], out);
    for (cl_uint i = 0; i < WORDS && good; i++) {
        good = out[i] == multiplied(i, is_signed);
    }
    return good;
}

void gw_cl_find_ways(struct gw_device *d) {
    d->shuffles = d->dots = 0;
    for (int n = GW_CL_SHUFFLES_PTX; n < GW_CL_SHUFFLES_LOCAL && d->shuffles == 0; n++) {
        d->shuffles = shuffles_by(d, n) ? n : 0;
    }
    const int ptx = d->shuffles == GW_CL_SHUFFLES_PTX;
    for (int n = ptx ? GW_CL_DOTS_PTX : GW_CL_DOTS_AMD; n < GW_CL_DOTS_SIGNED && d->dots == 0;
         n++) {
        d->dots = multiplies_by(d, n) ? n : 0;
    }
    d->nvidia = ptx && d->dots == GW_CL_DOTS_PTX;
}

int gw_cl_tries_ways(struct gw_device *d) {
    return d->shuffles == 0 ||
           (shuffles_by(d, d->shuffles) && multiplies_by(d, d->dots) && multiplies_by(d, 0));
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
    "    multiply_32(d, r, r, MAGIC_BITS, 0, i);\n"
    "    multiply_16(e, r, r + 1, MAGIC_BITS, 0, i);\n"
    "    for (int k = 0; k < 4; k++) {\n"
    "        data[4 * i + k] = (d[k] - MAGIC_BITS) * 64 + (e[k] - MAGIC_BITS);\n"
    "    }\n"
    "}\n";

/* Byte k of row r of tile t: what a register of number t holds of row r. */
static int tile_byte(signed char (*rows)[16], int t, int r, int k) { return rows[8 * t + r][k]; }

int gw_cl_has_doubles(const struct gw_device *d) { return has_extension(d, "cl_khr_fp64"); }

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
