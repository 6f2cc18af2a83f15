/* bench/bench_linear.c - the quantized linear kernels against the roofs of this machine.
 *
 * usage: bench_linear [-t threads] [-f format] [-s megabytes]
 * Per format and level that runs here: decode GB/s from six places, from one, and from one that is
 * not asked for, each with its share of the read bandwidth (medians of rounds, in which all ways
 * and the roof take turns); the cost of n = 2, 4, 8, 16 rows relative to one, prefill GOP/s
 * (k = 2048, 5632) and its share of the integer peak, packing GB/s.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/base/team.h"
#include "cpu/linear.h"
#include "cpu/peak.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *map(size_t bytes) {
    bytes = (bytes + (2u << 20)) >> 21 << 21;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

/* Bytes 0x20 .. 0x3f: whatever field they fall in, a half float is between 2^-7 and 2. */
static void fill_weights(unsigned char *w, size_t bytes) {
    uint32_t state = 1;
    for (size_t i = 0; i < bytes; i += 4) {
        state = state * 1664525u + 1013904223u;
        uint32_t word = (state ^ state >> 15) & 0x1f1f1f1fu;
        word |= 0x20202020u;
        memcpy(w + i, &word, 4);
    }
}

static void fill_activations(gw_act8 *x, size_t blocks) {
    uint32_t state = 1;
    for (size_t b = 0; b < blocks; b++) {
        float v[GW_ACT_BLOCK];
        for (int i = 0; i < GW_ACT_BLOCK; i++) {
            state = state * 1664525u + 1013904223u;
            v[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
        }
        gw_act8_encode(x + b, v);
    }
}

/* ---- roofs ------------------------------------------------------------------------------------
 */

typedef struct reading {
    const gw_cpu_peak *peak;
    const char *from;
    size_t pieces; /* of each thread */
    int way;
} reading;

enum { PIECE = 768 << 10 };

static void read_share(void *user, int id, int team) {
    const reading *r = user;
    volatile float sink = 0; /* the results are used, so the loops stay */
    (void)team;
    for (size_t i = 0; i < r->pieces; i++) {
        const char *at = r->from + ((size_t)id * r->pieces + i) * PIECE;
        sink = r->peak->read((const float *)(const void *)at, PIECE, r->way);
    }
    (void)sink;
}

/* The fastest of the ways of reading (cpu/peak.h). */
static double read_gbps(const char *p, size_t bytes, int threads) {
    const char *bad;
    const gw_cpu_peak *peak = gw_cpu_peak_of(gw_cpu_level_choose(&bad));
    const size_t pieces = bytes / (size_t)threads / PIECE;
    double best = 0;
    for (int way = 0; way < GW_READ_WAYS; way++) {
        reading r = {.peak = peak, .from = p, .pieces = pieces, .way = way};
        double start = now();
        gw_team_run(threads, read_share, &r);
        double rate = (double)(pieces * PIECE * (size_t)threads) / (now() - start);
        best = rate > best ? rate : best;
    }
    return best * 1e-9;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
    qsort(v, n, sizeof *v, ascending);
    return v[n / 2];
}

#if defined(__x86_64__)
/* Byte products with operands in registers: product, pair sum, sum; 16 accumulators. */
#define PEAK(name, isa, instructions, ops)                                                         \
    __attribute__((target(isa))) static double name(long rounds) {                                 \
        for (long i = 0; i < rounds; i++) {                                                        \
            __asm__ volatile(instructions ::: "memory");                                           \
        }                                                                                          \
        return (double)rounds * (ops);                                                             \
    }
#define MADD(a, b, t)                                                                              \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm" t "\n vpmaddwd %%ymm13, %%ymm" t ", %%ymm" t              \
    "\n vpaddd %%ymm" t ", %%ymm" a ", %%ymm" a "\n"
PEAK(peak_avx2, "avx2",
     MADD("0", "", "6") MADD("1", "", "7") MADD("2", "", "8") MADD("3", "", "9") MADD("4", "", "10")
         MADD("5", "", "11"),
     6 * 64)
#define VNNI(a) "vpdpbusd %%zmm14, %%zmm15, %%zmm" a "\n"
PEAK(peak_vnni, "avx512f,avx512vnni",
     VNNI("0") VNNI("1") VNNI("2") VNNI("3") VNNI("4") VNNI("5") VNNI("6") VNNI("7") VNNI("8")
         VNNI("9") VNNI("10") VNNI("11"),
     12 * 128)
#endif

#if defined(__x86_64__)
static void peak_share(void *user, int id, int team) {
    double *ops = user; /* all threads do as many */
    double mine = gw_cpu_level_runs(GW_CPU_VNNI) ? peak_vnni(20000000) : peak_avx2(20000000);
    if (id == 0) {
        *ops = mine * team;
    }
}
#endif

static double peak_gops(int threads) {
    double best = 0;
#if defined(__x86_64__)
    for (int pass = 0; pass < 3; pass++) {
        double ops = 0, start = now();
        gw_team_run(threads, peak_share, &ops);
        double rate = ops / (now() - start);
        best = rate > best ? rate : best;
    }
#else
    (void)threads;
#endif
    return best * 1e-9;
}

/* ---- kernels ----------------------------------------------------------------------------------
 */

typedef struct setup {
    unsigned char *w;
    size_t w_bytes;
    gw_act8 *x;
    float *y;
    void *scratch[64];
    int threads;
} setup;

typedef struct pass {
    const setup *s;
    const gw_cpu_linear_kernel *kernel;
    size_t m, cols;
    int n, streams;
} pass;

static void run_share(void *user, int id, int team) {
    const pass *p = user;
    const setup *s = p->s;
    size_t t = (size_t)id, all = (size_t)team, m = p->m;
    gw_cpu_linear job = {.w = s->w,
                         .m = m,
                         .k = p->cols,
                         .x = s->x,
                         .x_stride = p->cols / 32 * sizeof(gw_act8),
                         .n = p->n,
                         .streams = p->streams,
                         .y = s->y,
                         .y_stride = m};
    p->kernel->run(&job, m / 16 * t / all * 16, m / 16 * (t + 1) / all * 16, s->scratch[t]);
}

/* Seconds of one pass over the matrix with n rows: the best of `passes`. */
static double time_rows(const setup *s, const gw_cpu_linear_kernel *k, size_t m, size_t cols, int n,
                        int streams, int passes) {
    pass p = {.s = s, .kernel = k, .m = m, .cols = cols, .n = n, .streams = streams};
    double best = 1e9;
    for (int i = 0; i < passes; i++) {
        double start = now();
        gw_team_run(s->threads, run_share, &p);
        double t = now() - start;
        best = t < best ? t : best;
    }
    return best;
}

static void bench(const setup *s, const gw_cpu_linear_kernel *decode,
                  const gw_cpu_linear_kernel *prefill, double peak) {
    const size_t k = 2048;
    size_t strip = gw_strip_bytes(decode->fmt, k), m = s->w_bytes / strip * 16;
    if (!decode->strips) {
        return;
    }
    enum { ROUNDS = 15, WAYS = 3 };
    static const int ways[WAYS] = {GW_PLACES, 1, GW_UNASKED};
    double bytes = (double)(m / 16 * strip), rate[WAYS][ROUNDS], share[WAYS][ROUNDS], roof[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) { /* in turn: other programs disturb all alike */
        roof[i] = read_gbps((const char *)s->w, s->w_bytes, s->threads);
        for (int way = 0; way < WAYS; way++) {
            rate[way][i] = bytes / time_rows(s, decode, m, k, 1, ways[way], 1) * 1e-9;
            share[way][i] = 100 * rate[way][i] / roof[i];
        }
    }
    printf("%-22s", decode->name);
    for (int way = 0; way < WAYS; way++) {
        printf(" %5.1f %3.0f%%", median(rate[way], ROUNDS), median(share[way], ROUNDS));
    }
    printf(" of %5.1f GB/s  x", median(roof, ROUNDS));
    size_t part = m / 4 / 16 * 16;
    double first = time_rows(s, decode, part, k, 1, GW_PLACES, 3);
    for (int n = 2; n <= 16; n *= 2) {
        printf(" %5.2f", time_rows(s, decode, part, k, n, GW_PLACES, 2) / first);
    }
    double best = 0;
    for (int i = 0; i < 2; i++) { /* the two shapes of a 1.1b block */
        size_t cols = i == 0 ? 2048 : 5632, rows = 1024;
        double gops = 2.0 * (double)rows * (double)cols * 512 /
                      time_rows(s, prefill, rows, cols, 512, 0, 2) * 1e-9;
        printf("  %s%6.0f", i == 0 ? "pp " : "", gops);
        best = gops > best ? gops : best;
    }
    printf(" GOP/s %4.0f%%", 100 * best / peak);
    double start = now();
    size_t rows_at_once = s->w_bytes / 2 / strip;
    for (size_t i = 0; i < rows_at_once; i++) {
        gw_strip_pack(decode->fmt, s->w + i * strip, s->w + (rows_at_once + i) * strip, 16, k);
    }
    printf("  pack %4.1f GB/s\n", (double)(rows_at_once * strip) / (now() - start) * 1e-9);
}

int main(int argc, char **argv) {
    setup s = {.threads = 2, .w_bytes = 256u << 20};
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-t") == 0) {
            s.threads = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "-f") == 0) {
            only = argv[i + 1];
        } else if (strcmp(argv[i], "-s") == 0) {
            s.w_bytes = (size_t)atoi(argv[i + 1]) << 20;
        }
    }
    s.threads = s.threads < 1 ? 1 : s.threads > 64 ? 64 : s.threads;
    s.w = map(s.w_bytes + (64u << 10));
    s.x = map(512 * 5632 / 32 * sizeof *s.x);
    fill_weights(s.w, s.w_bytes);
    fill_activations(s.x, 512 * 5632 / 32);
    s.y = map(512 * 4 * (s.w_bytes / 512 / 4 + 2048));
    size_t count, scratch = 0;
    const gw_cpu_linear_kernel *k = gw_cpu_linear_kernels(&count);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = k[i].scratch != NULL ? k[i].scratch(5632, 512) : 0;
        scratch = bytes > scratch ? bytes : scratch;
    }
    for (int t = 0; t < s.threads; t++) {
        s.scratch[t] = map(scratch);
    }
    double peak = peak_gops(s.threads);
    printf("%d threads: int8 peak %.0f GOP/s\n", s.threads, peak);
    for (size_t i = 0; i < count; i++) {
        if (!k[i].prefill && gw_cpu_level_runs(k[i].level) &&
            (only == NULL || strstr(k[i].name, only) != NULL)) {
            bench(&s, &k[i], gw_cpu_linear_find(k[i].fmt, k[i].level, 1), peak);
        }
    }
    return 0;
}
