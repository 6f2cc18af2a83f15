/* bench/bench_token.c - generated tokens on the CPU in turn with readings of memory.
 *
 * usage: bench_token MODEL [threads [tokens]]   (2 threads, 100 tokens)
 * `godwit bench` compares whole passes with the best of several readings before and after; where
 * the speed of memory changes within a second, that says little. Here each token (one row, short
 * context) is compared with the readings right before and after it; median and quartiles of the
 * share. A token finds the caches empty.
 * Build: cc -O2 -fopenmp -I. bench/bench_token.c build/X/libgodwit.a, and its libraries.
 */
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cpu/peak.h"
#include "include/godwit.h"

enum { MOST = 1000, PIECE = 1 << 20, REWIND = 30 };
static const size_t read_bytes = (size_t)600 << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bytes per second, read in one of the ways of cpu/peak.h. */
static double read_memory(const char *data, int threads, int way) {
    const char *bad;
    const gw_cpu_peak *peak = gw_cpu_peak_of(gw_cpu_level_choose(&bad));
    _Atomic size_t next = 0;
    double start = 0, end = 0;
    float keep = 0;
#pragma omp parallel num_threads(threads) reduction(+ : keep)
    {
#pragma omp barrier
#pragma omp master
        start = now();
        for (size_t at; (at = atomic_fetch_add(&next, (size_t)PIECE)) + PIECE <= read_bytes;) {
            keep += peak->read((const float *)(const void *)(data + at), PIECE, way);
        }
#pragma omp barrier
#pragma omp master
        end = now();
    }
    volatile float sink = keep;
    (void)sink;
    return (double)read_bytes / (end - start);
}

/* Which way is fastest depends on the machine. */
static int best_way(const char *data, int threads) {
    double best = 0;
    int chosen = 0;
    for (int i = 0; i < 3 * GW_READ_WAYS; i++) {
        double rate = read_memory(data, threads, i % GW_READ_WAYS);
        chosen = rate > best ? i % GW_READ_WAYS : chosen;
        best = rate > best ? rate : best;
    }
    return chosen;
}

static int by_size(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static int measure(gw_session *session, double bytes, const char *data, int threads, int n) {
    static double share[MOST], seconds[MOST], roof[MOST];
    int way = best_way(data, threads);
    double before = read_memory(data, threads, way);
    for (int i = 0; i < n; i++) {
        int32_t token = i * 77 % 1000;
        if (i % REWIND == 0 && gw_session_rewind(session, 0) != GW_OK) {
            return 1;
        }
        double start = now();
        if (gw_session_decode(session, &token, 1) != GW_OK) {
            return 1;
        }
        seconds[i] = now() - start;
        double after = read_memory(data, threads, way);
        roof[i] = (before + after) / 2;
        share[i] = bytes / seconds[i] / roof[i];
        before = after;
    }
    qsort(share, (size_t)n, sizeof *share, by_size);
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    qsort(roof, (size_t)n, sizeof *roof, by_size);
    printf("token %.3f ms, memory %.1f GB/s, share %.3f (quartiles %.3f, %.3f)\n",
           1e3 * seconds[n / 2], 1e-9 * roof[n / 2], share[n / 2], share[n / 4], share[n * 3 / 4]);
    return 0;
}

int main(int argc, char **argv) {
    gw_model *model = NULL;
    gw_session *session = NULL;
    gw_model_info info;
    int threads = argc > 2 ? atoi(argv[2]) : 2, n = argc > 3 ? atoi(argv[3]) : 100;
    if (argc < 2 || threads < 1 || n < 1 || n > MOST) {
        fprintf(stderr, "usage: bench_token MODEL [threads [tokens, at most %d]]\n", MOST);
        return 2;
    }
    gw_model_options options = {.path = argv[1], .device = "cpu", .threads = threads};
    gw_session_options timeline = {.n_ctx = 512};
    char *data = mmap(NULL, read_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int failed = data == MAP_FAILED || gw_model_open(&options, &model) != GW_OK ||
                 gw_session_new(model, &timeline, &session) != GW_OK;
    if (!failed) {
        madvise(data, read_bytes, MADV_HUGEPAGE);
        memset(data, 1, read_bytes);
        gw_model_describe(model, &info);
        failed = measure(session, (double)info.decode_bytes, data, threads, n);
    }
    if (failed) {
        fprintf(stderr, "bench_token: %s\n", gw_error_text());
    }
    gw_session_free(session);
    gw_model_free(model);
    return failed;
}
