/* bench/bench_token.c - generated tokens on the CPU in turn with readings of memory.
 *
 * usage: bench_token MODEL [threads [tokens]]   (2 threads, 100 tokens)
 * Each token (one row, short context) is compared with the readings right before and after it;
 * median and quartiles of the share, where `godwit bench` gives the mean of a pass. A token finds
 * the caches empty.
 * Build: cc -O2 -pthread -I. bench/bench_token.c build/X/libgodwit.a, and its libraries.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "include/godwit.h"

enum { MOST = 1000, REWIND = 30 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static int measure(const gw_model *model, gw_session *session, double bytes, int n) {
    static double share[MOST], seconds[MOST], roof[MOST];
    double before, after;
    int failed = gw_model_read_memory(model, &before) != GW_OK;
    for (int i = 0; i < n && !failed; i++) {
        int32_t token = i * 77 % 1000;
        failed = i % REWIND == 0 && gw_session_rewind(session, 0) != GW_OK;
        double start = now();
        failed = failed || gw_session_decode(session, &token, 1) != GW_OK;
        seconds[i] = now() - start;
        failed = failed || gw_model_read_memory(model, &after) != GW_OK;
        roof[i] = (before + after) / 2;
        share[i] = bytes * 1e-9 / seconds[i] / roof[i];
        before = after;
    }
    if (failed) {
        return 1;
    }
    qsort(share, (size_t)n, sizeof *share, by_size);
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    qsort(roof, (size_t)n, sizeof *roof, by_size);
    printf("token %.3f ms, memory %.1f GB/s, share %.3f (quartiles %.3f, %.3f)\n",
           1e3 * seconds[n / 2], roof[n / 2], share[n / 2], share[n / 4], share[n * 3 / 4]);
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
    int failed = gw_model_open(&options, &model) != GW_OK ||
                 gw_session_new(model, &timeline, &session) != GW_OK;
    if (!failed) {
        gw_model_describe(model, &info);
        failed = measure(model, session, (double)info.decode_bytes, n);
    }
    if (failed) {
        fprintf(stderr, "bench_token: %s\n", gw_error_text());
    }
    gw_session_free(session);
    gw_model_free(model);
    return failed;
}
