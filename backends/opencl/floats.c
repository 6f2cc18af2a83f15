/* backends/opencl/floats.c - does a device compute floats as arith.h wants them? What drivers say
 * of themselves is no answer: some have a fused multiply-add that they do not announce, because it
 * is slow, and correct rounding that they do not promise. So operands that tell are computed there,
 * one by one and as vectors, and on the host (kernels_cl/floats.cl).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/base/waits.h"
#include "core/tensor/arith.h"

typedef enum operation {
    FMA,
    DIVIDE,
    ROOT,
    SUM,
    PRODUCT,
    BOTH,
    ROUND,
    NUMBER,
    OPERATIONS
} operation;

enum {
    EACH = 128, /* operands of an operation: those of the table, then made ones */
    WIDE = 16,  /* of an item */
    ITEMS = OPERATIONS * EACH / WIDE,
    IN_WORDS = 1 + 3 * WIDE,
    OUT_WORDS = 2 * WIDE,
    SIGNIFICAND = 1 << 24
};

typedef struct operands {
    operation of;
    float a, b, c;
} operands;

/* What goes wrong in each: a product rounded before the sum; a sum in double precision, rounded
 * twice; subnormal numbers taken for zeros; quotients by reciprocals; ties. */
static const operands table[] = {
    {FMA, 0x1.001p+0f, 0x1.001p+0f, -0x1.002p+0f}, /* 2^-24; rounded product: 0 */
    {FMA, 0x1.001p+0f, -0x1.001p+0f, 0x1.002p+0f},
    {FMA, 0x1.fffffep-1f, 0x1.fffffep-1f, -0x1.fffffcp-1f}, /* 2^-48 */
    {FMA, 0x1.555556p-2f, 3.0f, -1.0f},                     /* what 1/3 is off by */
    {FMA, 0x1.99999ap-4f, 10.0f, -1.0f},
    {FMA, 0x1.000002p+0f, 0x1.000002p+0f, -0x1.000004p+0f},
    {FMA, 0x1.6a09e6p+0f, 0x1.6a09e6p+0f, -2.0f},
    {FMA, 0x1.921fb6p+1f, 0x1.45f306p-2f, -1.0f},
    {FMA, 0x1.001p+0f, 0x1.001p+0f, 0x1p-60f},  /* above a tie by less than a double has */
    {FMA, 0x1.003p+0f, 0x1.001p+0f, -0x1p-60f}, /* below one */
    {FMA, 0x1.001p+0f, 0x1.005p+0f, 0x1p-70f},
    {FMA, 0x1.003p+0f, 0x1.001p+0f, 0x1p-50f},
    {FMA, -0x1.001p+0f, 0x1.001p+0f, -0x1p-60f},
    {FMA, 0x1.001p+20f, 0x1.001p+20f, 0x1p-30f},
    {FMA, 1.0f, 1.0f, 0x1p-24f},               /* a tie, to even: down */
    {FMA, 1.0f, 0x1.000002p+0f, 0x1p-24f},     /* and up */
    {FMA, 0x1p-100f, 0x1p-40f, 0.0f},          /* subnormal: results */
    {FMA, 0x1p-149f, 0x1p+10f, 0x1p-140f},     /* operands */
    {FMA, 0x1.8p-75f, 0x1p-75f, 0x1p-149f},    /* 2.5 of the least number: a tie ... */
    {FMA, 0x1.000002p-75f, 0x1p-75f, 0x0p+0f}, /* and more than half of it */
    {FMA, 0x1.fffffep-64f, 0x1.fffffep-64f, -0x1p-127f},
    {FMA, 0x1.fffffep-127f, 1.0f, 0x1p-149f}, /* the largest subnormal number, and one more */
    {FMA, 0x1.fffffep+127f, 2.0f, -0x1.fffffep+127f}, /* the product alone is infinite */
    {FMA, 0x1p+64f, 0x1p+64f, -0x1.fffffep+127f},
    {DIVIDE, 1.0f, 3.0f, 0.0f},
    {DIVIDE, 2.0f, 3.0f, 0.0f},
    {DIVIDE, 1.0f, 0x1.fffffep-1f, 0.0f},
    {DIVIDE, 0x1.fffffcp-1f, 0x1.fffffep-1f, 0.0f},
    {DIVIDE, 127.0f, 7.0f, 0.0f},
    {DIVIDE, 1.0f, 127.0f, 0.0f},
    {DIVIDE, 1.0f, 10.0f, 0.0f},
    {DIVIDE, 5.0f, 41.0f, 0.0f},
    {DIVIDE, 1.0f, 0x1p+127f, 0.0f}, /* subnormal */
    {DIVIDE, 3.0f, 0x1.8p+127f, 0.0f},
    {DIVIDE, 0x1p-149f, 0x1p-149f, 0.0f},
    {DIVIDE, 0x1.4p-147f, 3.0f, 0.0f},
    {DIVIDE, 0x1p-126f, 0x1.000002p+0f, 0.0f},
    {DIVIDE, 0x1.fffffep+127f, 0x1.fffffep+127f, 0.0f}, /* whose reciprocal is subnormal */
    {DIVIDE, 0x1p+100f, 0x1.4p+127f, 0.0f},
    {ROOT, 2.0f, 0.0f, 0.0f},
    {ROOT, 3.0f, 0.0f, 0.0f},
    {ROOT, 0x1.fffffep-1f, 0.0f, 0.0f},
    {ROOT, 0x1.000002p+0f, 0.0f, 0.0f},
    {ROOT, 0x1.fffffep+127f, 0.0f, 0.0f},
    {ROOT, 0x1.99999ap-4f, 0.0f, 0.0f},
    {ROOT, 0x1p-149f, 0.0f, 0.0f}, /* subnormal */
    {ROOT, 0x1.8p-140f, 0.0f, 0.0f},
    {ROOT, 0x1.fffff8p-127f, 0.0f, 0.0f},
    {SUM, 1.0f, 0x1p-24f, 0.0f},
    {SUM, 0x1.000002p+0f, 0x1p-24f, 0.0f},
    {SUM, 0x1.000002p+0f, 0x1.000002p-24f, 0.0f},
    {SUM, 0x1.8p-126f, -0x1p-126f, 0.0f}, /* subnormal */
    {SUM, 0x1p-149f, 0x1p-149f, 0.0f},
    {PRODUCT, 0x1.001p+0f, 0x1.001p+0f, 0.0f},
    {PRODUCT, 0x1.000002p+0f, 0x1.000002p+0f, 0.0f},
    {PRODUCT, 0x1p-126f, 0.5f, 0.0f}, /* subnormal */
    {PRODUCT, 0x1.8p-149f, 0x1.8p+0f, 0.0f},
    {BOTH, 0x1.001p+0f, 0x1.001p+0f, -0x1.002p+0f}, /* 0 here */
    {BOTH, 0x1.555556p-2f, 3.0f, -1.0f},
    {BOTH, 0x1.fffffep-1f, 0x1.fffffep-1f, -0x1.fffffcp-1f},
    {ROUND, 0.5f, 0.0f, 0.0f},
    {ROUND, 1.5f, 0.0f, 0.0f},
    {ROUND, 2.5f, 0.0f, 0.0f},
    {ROUND, -0.5f, 0.0f, 0.0f},
    {ROUND, 0x1.fffffep-2f, 0.0f, 0.0f},
    {ROUND, 0x1.fffffep+21f, 0.0f, 0.0f},
};

/* ---- operands that are made ------------------------------------------------------------------ */

static gw_u32 drawn(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (gw_u32)(*state >> 32);
}

/* With an exponent in [least, least + many). */
static float some_float(uint64_t *state, int least, int many) {
    const gw_u32 bits = drawn(state);
    const float x = ldexpf((float)(bits % (SIGNIFICAND / 2) + SIGNIFICAND / 2),
                           least - 23 + (int)(drawn(state) % (gw_u32)many));
    return bits >> 31 ? -x : x;
}

/* A quotient as near to the middle of two floats as there is one: y a = 2^24 b +- 1 for an odd y of
 * 25 bits, which is that middle. */
static operands near_tie(uint64_t *state) {
    for (;;) {
        const uint64_t b = SIGNIFICAND / 2 + (drawn(state) % (SIGNIFICAND / 2) | 1);
        const int up = (int)(drawn(state) & 1);
        uint64_t inverse = b; /* modulo 2^3, then twice as many bits each time */
        for (int i = 0; i < 4; i++) {
            inverse *= 2 - b * inverse;
        }
        const uint64_t middle = ((up ? 0 - inverse : inverse) & (SIGNIFICAND - 1)) + SIGNIFICAND;
        const uint64_t a = (middle * b + (up ? 1 : (uint64_t)-1)) / SIGNIFICAND;
        if (a < SIGNIFICAND || a % 2 == 0) {
            return (operands){DIVIDE, (float)a, (float)b, 0.0f};
        }
    }
}

static operands made(uint64_t *state, operation of, int number) {
    operands o = {of, some_float(state, -12, 24), some_float(state, -12, 24),
                  some_float(state, -12, 24)};
    switch (of) {
    case FMA:
        if (number % 3 ==
            0) { /* an odd product of 25 bits, a tie, and less than a double adds to it */
            o.a = (float)(4097 + 2 * (drawn(state) % 800));
            o.b = (float)(4097 + 2 * (drawn(state) % 800));
            o.c = ldexpf(o.c < 0.0f ? -1.0f : 1.0f, -40);
        } else if (number % 3 == 1) { /* near the least numbers */
            o.a = some_float(state, -80, 30);
            o.b = some_float(state, -80, 30);
            o.c = some_float(state, -160, 30);
        }
        return o;
    case DIVIDE:
        if (number % 3 == 0) {
            return near_tie(state);
        }
        if (number % 3 == 1) {
            o.a = some_float(state, -126, 40);
            o.b = some_float(state, 10, 60);
        }
        return o;
    case ROOT:
        o.a = fabsf(number % 2 ? some_float(state, -140, 200) : o.a * o.a);
        return o;
    case ROUND:
        o.a = ldexpf((float)(int)(drawn(state) % 4096) - 2048.0f, -1);
        return o;
    default:
        return o;
    }
}

/* ---- what the host makes of them ------------------------------------------------------------- */

/* An item's operands as the kernel takes them. NUMBER: bits of an integer. */
static void fill(cl_uint *in) {
    uint64_t state = 20261130;
    for (int of = 0; of < OPERATIONS; of++) {
        size_t row = 0;
        for (int i = 0; i < EACH; i++) {
            while (row < sizeof table / sizeof table[0] && table[row].of != (operation)of) {
                row++;
            }
            const int listed = row < sizeof table / sizeof table[0];
            const operands o = listed ? table[row++] : made(&state, (operation)of, i);
            cl_uint *to = in + (of * EACH + i) / WIDE * IN_WORDS;
            to[0] = (cl_uint)of;
            to[1 + i % WIDE] = of == NUMBER ? drawn(&state) >> i % 8 : GW_F32_BITS(o.a);
            to[1 + WIDE + i % WIDE] = GW_F32_BITS(o.b);
            to[1 + 2 * WIDE + i % WIDE] = GW_F32_BITS(o.c);
        }
    }
}

static float computed(operation of, cl_uint bits, float b, float c) {
    const float a = GW_F32_FROM_BITS(bits);
    switch (of) {
    case FMA:
        return GW_FMA(a, b, c);
    case DIVIDE:
        return a / b;
    case ROOT:
        return GW_SQRT(a);
    case SUM:
        return a + b;
    case PRODUCT:
        return a * b;
    case BOTH:
        return a * b + c;
    case ROUND:
        return GW_RINT(a);
    default:
        return (float)(cl_int)bits;
    }
}

/* ---- what the device makes of them ----------------------------------------------------------- */

static gw_status run(struct gw_device *d, cl_program program, const cl_uint *in, cl_uint *out) {
    const gw_cl_driver *cl = d->cl;
    const size_t in_bytes = ITEMS * IN_WORDS * sizeof *in,
                 out_bytes = ITEMS * OUT_WORDS * sizeof *out;
    const size_t items = ITEMS, one = 1; /* no group is too large for any device */
    cl_int error = CL_SUCCESS;
    cl_mem mem[2] = {NULL, NULL};
    cl_kernel kernel = cl->CreateKernel(program, "floats", &error);
    for (int i = 0; i < 2 && error == CL_SUCCESS; i++) {
        mem[i] = cl->CreateBuffer(d->context, CL_MEM_READ_WRITE, i == 0 ? in_bytes : out_bytes,
                                  NULL, &error);
        error = error == CL_SUCCESS ? cl->SetKernelArg(kernel, (cl_uint)i, sizeof mem[i], &mem[i])
                                    : error;
    }
    error = error != CL_SUCCESS
                ? error
                : cl->EnqueueWriteBuffer(d->queue, mem[0], CL_TRUE, 0, in_bytes, in, 0, NULL, NULL);
    error = error != CL_SUCCESS
                ? error
                : cl->EnqueueNDRangeKernel(d->queue, kernel, 1, NULL, &items, &one, 0, NULL, NULL);
    error = error != CL_SUCCESS ? error
                                : GW_WAITED(cl->EnqueueReadBuffer(d->queue, mem[1], CL_TRUE, 0,
                                                                  out_bytes, out, 0, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        if (mem[i] != NULL) {
            cl->ReleaseMemObject(mem[i]);
        }
    }
    if (kernel != NULL) {
        cl->ReleaseKernel(kernel);
    }
    return gw_cl_check(error, "computing floats");
}

static int is_subnormal(float x) { return x != 0.0f && fabsf(x) < 0x1p-126f; }

/* Which operand went wrong, and what that needs. */
static gw_status wrong(const struct gw_device *d, operation of, const cl_uint *from, float got,
                       float want) {
    static const char *const needs[] = {[FMA] = "a fused multiply-add",
                                        [DIVIDE] = "correctly rounded division",
                                        [ROOT] = "correctly rounded square roots",
                                        [SUM] = "sums rounded to nearest",
                                        [PRODUCT] = "products rounded to nearest",
                                        [BOTH] =
                                            "products that are rounded before something is added",
                                        [ROUND] = "integers rounded to even",
                                        [NUMBER] = "integers rounded to the nearest float"};
    const float a = GW_F32_FROM_BITS(from[0]), b = GW_F32_FROM_BITS(from[WIDE]);
    const float c = GW_F32_FROM_BITS(from[2 * WIDE]);
    char text[128];
    const int two = of == DIVIDE || of == SUM || of == PRODUCT, three = of == FMA || of == BOTH;
    const int small = is_subnormal(want) || (of != NUMBER && is_subnormal(a)) ||
                      ((two || three) && is_subnormal(b)) || (three && is_subnormal(c));
    switch (of) {
    case FMA:
        snprintf(text, sizeof text, "fma(%a, %a, %a)", (double)a, (double)b, (double)c);
        break;
    case BOTH:
        snprintf(text, sizeof text, "%a * %a + %a", (double)a, (double)b, (double)c);
        break;
    case NUMBER:
        snprintf(text, sizeof text, "float(%d)", (int)from[0]);
        break;
    case ROOT:
        snprintf(text, sizeof text, "sqrt(%a)", (double)a);
        break;
    case ROUND:
        snprintf(text, sizeof text, "rint(%a)", (double)a);
        break;
    default:
        snprintf(text, sizeof text, "%a %c %a", (double)a,
                 of == DIVIDE ? '/'
                 : of == SUM  ? '+'
                              : '*',
                 (double)b);
    }
    return gw_fail(GW_E_UNSUPPORTED, "opencl",
                   "%s lacks %s, which equal results need: %s is %a there, not %a; "
                   "GODWIT_OPENCL=any-floats uses it all the same",
                   d->name, small ? "subnormal numbers" : needs[of], text, (double)got,
                   (double)want);
}

static gw_status compare(const struct gw_device *d, const cl_uint *in, const cl_uint *out) {
    for (int i = 0; i < OPERATIONS * EACH; i++) {
        const cl_uint *from = in + i / WIDE * IN_WORDS + 1 + i % WIDE;
        const cl_uint *got = out + i / WIDE * OUT_WORDS + i % WIDE;
        const operation of = (operation)(i / EACH);
        const float want =
            computed(of, from[0], GW_F32_FROM_BITS(from[WIDE]), GW_F32_FROM_BITS(from[2 * WIDE]));
        for (int k = 0; k < 2; k++) {
            if (got[k * WIDE] != GW_F32_BITS(want)) {
                return wrong(d, of, from, GW_F32_FROM_BITS(got[k * WIDE]), want);
            }
        }
    }
    return GW_OK;
}

/* Built with the option for correct rounding where the compiler takes it, else without. */
static gw_status program(struct gw_device *d, const gw_cl_program **out) {
    const char *texts[] = {"#pragma OPENCL FP_CONTRACT OFF\n", gw_cl_text("core/tensor/dialect.h"),
                           gw_cl_text("kernels_cl/floats.cl")};
    const size_t bytes = strlen(texts[0]) + strlen(texts[1]) + strlen(texts[2]) + 1;
    char options[96] = "", *text = malloc(bytes);
    if (text == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for a program");
    }
    snprintf(text, bytes, "%s%s%s", texts[0], texts[1], texts[2]);
    if (d->floats[0] != '\0') {
        snprintf(options, sizeof options, "-DGW_FLOATS_%s", d->floats);
    }
    gw_status status = gw_cl_program_of(d, text, options, out);
    if (status == GW_E_DEVICE) {
        d->unpromised = 1;
        status = gw_cl_program_of(d, text, options, out);
    }
    free(text);
    return status;
}

gw_status gw_cl_try_floats(struct gw_device *d) {
    const int fail_build = d->fail_build; /* counts what comes after this */
    const gw_cl_program *p;
    cl_uint *in = calloc(ITEMS, (IN_WORDS + OUT_WORDS) * sizeof *in);
    if (in == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for %d operands", OPERATIONS * EACH);
    }
    d->fail_build = 0;
    fill(in);
    gw_status status = program(d, &p);
    status = status == GW_OK ? run(d, p->program, in, in + ITEMS * IN_WORDS) : status;
    status = status == GW_OK ? compare(d, in, in + ITEMS * IN_WORDS) : status;
    d->fail_build = fail_build;
    free(in);
    return status;
}
