/* bench/hip_attention.c - decode attention of the hip backend against the read roof of the device.
 *
 * usage: hip_attention [heads [kv_heads [head_dim [f16|f32|q8_0 [rows [context ...]]]]]]
 * (32 8 128 f16 1 2048 32768 131072: 8b; 16 1 576/512: DeepSeek-V2-Lite, whose keys of 576 have
 * values in their last 512 columns)
 * Needs a build with GODWIT_HIP; GODWIT_HIP_DRIVER as in the tests. For each context: time of a
 * layer's attention in a captured pass of several layers (each with caches of its own, together far
 * beyond what the device keeps), GB/s of K and V, share of the roof measured in the same run; then,
 * up to 32k, whether the bits are those of the scalar CPU.
 * Build: cc -O2 -I. -Ibuild/X/generated bench/hip_attention.c build/X/libgodwit.a, and its
 * libraries.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/plan/backend.h"

extern const gw_backend gw_backend_cpu, gw_backend_hip;

enum { FEWEST_LAYERS = 6, MOST_LAYERS = 48, PASSES = 20, TRIALS = 5, MOST_COMPARED = 32768 };

typedef struct shape {
    int heads, kv_heads, e, rows;
    gw_fmt kv;
    int within; /* width of values that are part of the keys; 0: they have a cache of their own */
} shape;

typedef struct rig {
    const gw_backend *backend;
    struct gw_device *device;
    gw_tensor q, k[MOST_LAYERS], v[MOST_LAYERS], pages, out;
    gw_node nodes[MOST_LAYERS];
} rig;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(gw_status status, const char *what) {
    if (status != GW_OK) {
        fprintf(stderr, "%s: %s\n", what, gw_error_text());
        exit(1);
    }
}

/* Random halves in (-1, 1) for every format: codes and scales of q8_0 are small numbers too. */
static void *noise(size_t bytes, gw_fmt fmt) {
    unsigned char *p = malloc(bytes);
    unsigned state = 12345;
    for (size_t i = 0; p != NULL && i + 4 <= bytes; i += 4) {
        state = state * 1664525u + 1013904223u;
        unsigned word = (state & 0x83ff83ffu) | 0x30003000u;
        float x = (float)(int)state * 0x1p-31f;
        memcpy(p + i, fmt == GW_FMT_F32 ? (void *)&x : (void *)&word, 4);
    }
    return p;
}

static size_t bytes_of(const gw_tensor *t) {
    size_t n = 1, row;
    for (int i = 0; i + 1 < t->n_dim; i++) {
        n *= (size_t)t->dim[i];
    }
    must(gw_row_bytes(t->fmt, (uint64_t)t->dim[t->n_dim - 1], &row), "a row");
    return n * row;
}

static void place(rig *r, gw_tensor *t, const void *data) {
    size_t bytes = bytes_of(t);
    must(r->backend->alloc(r->device, bytes, &t->buf), "memory");
    must(r->backend->write(t->buf, 0, data, bytes), "writing");
}

static void set_up(rig *r, const shape *s, int context, int layers) {
    int64_t n_pages = (context + GW_PAGE - 1) / GW_PAGE;
    r->q = (gw_tensor){.fmt = GW_FMT_F32, .n_dim = 2, .dim = {s->rows, s->heads * s->e}};
    r->out = r->q;
    r->out.dim[1] = s->heads * (s->within > 0 ? s->within : s->e);
    r->pages = (gw_tensor){.fmt = GW_FMT_I32, .n_dim = 2, .dim = {1, n_pages}};
    gw_tensor k = {.fmt = s->kv, .n_dim = 4, .dim = {n_pages, s->kv_heads, s->e, GW_PAGE}};
    gw_tensor v = {.fmt = s->kv, .n_dim = 4, .dim = {n_pages, s->kv_heads, GW_PAGE, s->e}};
    int32_t *table = calloc((size_t)n_pages, sizeof *table);
    for (int i = 0; i < n_pages; i++) {
        table[i] = i;
    }
    void *q = noise(bytes_of(&r->q), GW_FMT_F32), *cells = noise(bytes_of(&k), s->kv);
    place(r, &r->q, q);
    place(r, &r->out, q);
    place(r, &r->pages, table);
    for (int i = 0; i < layers; i++) {
        r->k[i] = k;
        r->v[i] = v;
        place(r, &r->k[i], cells);
        if (s->within == 0) {
            place(r, &r->v[i], cells);
        }
        r->nodes[i] = (gw_node){.op = GW_OP_ATTENTION,
                                .args.attn = {.scale = (float)(1.0 / sqrt(s->e)),
                                              .heads = s->heads,
                                              .kv_heads = s->kv_heads,
                                              .head_dim = s->e,
                                              .v_dim = s->within,
                                              .v_first = s->within > 0 ? s->e - s->within : 0},
                                .in = {&r->q, &r->k[i], s->within > 0 ? NULL : &r->v[i], &r->pages},
                                .out = &r->out,
                                .what = "attention"};
        size_t n;
        const gw_kernel *kernels = r->backend->kernels(r->device, &n);
        for (size_t j = n; j-- > 0;) { /* the first that accepts */
            gw_node *node = &r->nodes[i];
            if (kernels[j].op == node->op && kernels[j].accepts(&kernels[j], node, r->device)) {
                node->kernel = &kernels[j];
            }
        }
    }
    free(q);
    free(cells);
    free(table);
}

static void tear_down(rig *r, const shape *s, int layers) {
    for (int i = 0; i < layers; i++) {
        r->backend->release(r->k[i].buf);
        if (s->within == 0) {
            r->backend->release(r->v[i].buf);
        }
    }
    r->backend->release(r->q.buf);
    r->backend->release(r->out.buf);
    r->backend->release(r->pages.buf);
}

static gw_step step;

static void set_step(const shape *s, int context) {
    step.n = step.n_pick = s->rows;
    for (int i = 0; i < s->rows; i++) {
        step.pos[i] = context - s->rows + i;
    }
    step.pos_max = context - 1;
}

/* Seconds of one layer: the best of some trials. */
static double time_layer(rig *r, int rows, int layers) {
    struct gw_segment *segment;
    double best = 1e9;
    must(r->backend->freeze(r->device, r->nodes, (size_t)layers, rows, &segment), "freeze");
    for (int t = 0; t < TRIALS; t++) {
        double start = now();
        for (int i = 0; i < PASSES; i++) {
            must(r->backend->run(segment, &step), "run");
        }
        must(r->backend->wait(r->device), "wait");
        double each = (now() - start) / PASSES / layers;
        best = t > 0 && each < best ? each : best; /* the first one warms up */
    }
    r->backend->segment_free(segment);
    return best;
}

static void *result(rig *r, const shape *s, int context) {
    struct gw_segment *segment;
    set_up(r, s, context, 1);
    void *out = malloc(bytes_of(&r->out));
    must(r->backend->freeze(r->device, r->nodes, 1, s->rows, &segment), "freeze");
    must(r->backend->run(segment, &step), "run");
    must(r->backend->wait(r->device), "wait");
    must(r->backend->read(r->out.buf, 0, out, bytes_of(&r->out)), "read");
    r->backend->segment_free(segment);
    tear_down(r, s, 1);
    return out;
}

static void measure(rig *hip, rig *cpu, const shape *s, int context, double roof_gbps) {
    int layers = MOST_LAYERS * 8192 / context; /* together as long as that many of 8192 */
    layers = layers < FEWEST_LAYERS ? FEWEST_LAYERS : layers > MOST_LAYERS ? MOST_LAYERS : layers;
    const char *bits = "not compared";
    set_step(s, context);
    set_up(hip, s, context, layers);
    double bytes = (s->within > 0 ? 1.0 : 2.0) * (double)bytes_of(&hip->k[0]);
    double seconds = time_layer(hip, s->rows, layers);
    tear_down(hip, s, layers);
    if (context <= MOST_COMPARED) {
        void *got = result(hip, s, context), *want = result(cpu, s, context);
        bits = memcmp(got, want, bytes_of(&hip->out)) == 0 ? "equal" : "DIFFER";
        free(got);
        free(want);
    }
    printf("| %d | %.2f | %.0f | %.1f%% | %s |\n", context, 1e6 * seconds, 1e-9 * bytes / seconds,
           1e-7 * bytes / seconds / roof_gbps, bits);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static rig hip, cpu;
    static const int usual[] = {2048, 32768, 131072};
    shape s = {argc > 1 ? atoi(argv[1]) : 32,
               argc > 2 ? atoi(argv[2]) : 8,
               argc > 3 ? atoi(argv[3]) : 128,
               argc > 5 ? atoi(argv[5]) : 1,
               GW_FMT_F16,
               argc > 3 && strchr(argv[3], '/') != NULL ? atoi(strchr(argv[3], '/') + 1) : 0};
    int given = argc > 6 ? argc - 6 : 0;
    gw_roof roof;
    if (argc > 4 && !gw_format_from_name(argv[4], &s.kv)) {
        fprintf(stderr, "%s is no format\n", argv[4]);
        return 2;
    }
    hip.backend = &gw_backend_hip;
    cpu.backend = &gw_backend_cpu;
    must(gw_backend_hip.open(0, NULL, &hip.device), "hip");
    setenv("GODWIT_CPU", "scalar", 1);
    must(gw_backend_cpu.open(0, NULL, &cpu.device), "cpu");
    must(gw_backend_hip.roof(hip.device, &roof), "roof");
    printf("heads %d, kv heads %d, width %d, %s, rows %d; roof %.0f GB/s\n", s.heads, s.kv_heads,
           s.e, gw_format_of(s.kv)->name, s.rows, roof.read_gbps);
    printf("| context | us a layer | GB/s | of the roof | bits |\n|---|---|---|---|---|\n");
    for (int i = 0; i < (given > 0 ? given : 3); i++) {
        int context = given > 0 ? atoi(argv[6 + i]) : usual[i];
        if (context < s.rows) {
            fprintf(stderr, "a context of %d for %d rows\n", context, s.rows);
            return 2;
        }
        measure(&hip, &cpu, &s, context, roof.read_gbps);
    }
    gw_backend_hip.close(hip.device);
    gw_backend_cpu.close(cpu.device);
    return 0;
}
