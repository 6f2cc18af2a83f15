/* backends/cpu/roof.c - measuring the roofs: read bandwidth, int8 and float peaks of the team. */
#include "backends/cpu/roof.h"

#include <math.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/base/clock.h"
#include "core/base/hooks.h"
#include "cpu/peak.h"

enum { WAY_TRIALS = 6, READ_TRIALS = 2, PEAK_TRIALS = 3 };
/* No power of two: streams of a piece that lie so far apart share sets of the caches (4% less). */
enum { PIECE = 768 << 10 };

static const size_t read_bytes = 512u << 20; /* more than any last-level cache here */

/* Tests of what is printed need no figure that means something, nor its second and a half. */
static int is_brief(void) { return gw_hook("GODWIT_BRIEF_ROOF") != NULL; }

/* What one thread did, and when. */
typedef struct share {
    double start, end;
    float result;
} share;

/* One measurement by all threads, which begin together. */
typedef struct trial {
    const gw_cpu_peak *peak;
    gw_barrier ready;
    const char *data; /* to be read; NULL: to compute */
    size_t bytes;
    _Atomic size_t next;
    int reading, integers;
    uint64_t rounds;
    share shares[GW_CPU_MAX_THREADS];
} trial;

/* Each thread reads pieces as the kernels do: handed out while there are any. */
static float read_share(trial *t) {
    float top = 0.0f;
    for (size_t at; (at = atomic_fetch_add(&t->next, (size_t)PIECE)) + PIECE <= t->bytes;) {
        float v = t->peak->read((const float *)(const void *)(t->data + at), PIECE, t->reading);
        top = v > top ? v : top;
    }
    return top;
}

static float compute_share(const trial *t) {
    return t->integers ? (float)t->peak->int8(t->rounds) : t->peak->f32(t->rounds);
}

static void run_share(void *user, int id, int team) {
    trial *t = user;
    gw_barrier_wait(&t->ready, (unsigned)team, 0);
    double start = gw_seconds_now();
    float result = t->data != NULL ? read_share(t) : compute_share(t);
    t->shares[id] = (share){.start = start, .end = gw_seconds_now(), .result = result};
}

/* Seconds from the start of the first thread to the end of the last one. */
static double run_trial(trial *t, int threads, float *keep) {
    for (int i = 0; i < threads; i++) {
        t->shares[i] = (share){.start = INFINITY};
    }
    gw_team_run(threads, run_share, t);
    double start = INFINITY, end = 0.0;
    for (int i = 0; i < threads; i++) {
        start = fmin(start, t->shares[i].start);
        end = fmax(end, t->shares[i].end);
        *keep += t->shares[i].result;
    }
    return end - start;
}

static double read_once(const gw_cpu_peak *peak, int way, const char *data, size_t bytes,
                        int threads, float *keep) {
    trial t = {.peak = peak, .data = data, .bytes = bytes, .reading = way};
    return run_trial(&t, threads, keep);
}

static double compute_once(const gw_cpu_peak *peak, int integers, uint64_t rounds, int threads,
                           float *keep) {
    trial t = {.peak = peak, .integers = integers, .rounds = rounds};
    return run_trial(&t, threads, keep);
}

/* The way of reading that is fastest here. Ways are compared on parts of the memory in turn, so
 * that what is read was last touched longer ago than the caches remember, and by all their trials,
 * since memory changes its speed between them. */
static int best_way(const gw_cpu_peak *peak, const char *data, size_t bytes, int threads,
                    float *keep) {
    size_t part = bytes / GW_READ_WAYS / PIECE * PIECE;
    double taken[GW_READ_WAYS] = {0};
    int way = 0;
    for (int i = 0; i < WAY_TRIALS * GW_READ_WAYS; i++) {
        const char *from = data + (size_t)((i + i / GW_READ_WAYS) % GW_READ_WAYS) * part;
        taken[i % GW_READ_WAYS] += read_once(peak, i % GW_READ_WAYS, from, part, threads, keep);
    }
    for (int i = 1; i < GW_READ_WAYS; i++) {
        way = taken[i] < taken[way] ? i : way;
    }
    return way;
}

/* Bytes per second, the best of a few readings. */
static double read_roof(const gw_cpu_peak *peak, const char *data, size_t bytes, int threads,
                        float *keep) {
    int way = best_way(peak, data, bytes, threads, keep);
    double best = 0.0;
    for (int i = 0; i < READ_TRIALS; i++) {
        double rate = (double)bytes / read_once(peak, way, data, bytes, threads, keep);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Best of a few runs of some 40 ms each, in operations per second of the whole team. */
static double compute_peak(const gw_cpu_peak *peak, int integers, int threads, float *keep) {
    uint64_t rounds = 1u << 16;
    double least = is_brief() ? 0.0002 : 0.02;
    double ops = integers ? peak->int8_ops : peak->f32_ops, best = 0.0;
    while (compute_once(peak, integers, rounds, threads, keep) < least && rounds < 1ull << 40) {
        rounds *= 2;
    }
    for (int i = 0; i < PEAK_TRIALS; i++) {
        double seconds = compute_once(peak, integers, rounds * 2, threads, keep);
        double rate = ops * (double)rounds * 2.0 * (double)threads / seconds;
        best = rate > best ? rate : best;
    }
    return best;
}

static void touch_piece(void *user, int64_t i) {
    memset((char *)user + (size_t)i * PIECE, 1, PIECE);
}

/* More than caches hold, each page its own and not the shared page of zeros. */
static gw_status take_memory(int threads, char **data, size_t *bytes) {
    uint64_t total, available;
    *bytes = read_bytes / (is_brief() ? 32 : 1);
    gw_cpu_memory(&total, &available);
    while (*bytes > available / 2 && *bytes > (size_t)PIECE * 16) {
        *bytes /= 2;
    }
    *bytes -= *bytes % PIECE;
    char *fresh = gw_cpu_map_pages(*bytes);
    if (fresh == NULL) {
        return gw_fail(GW_E_NOMEM, "roof", "needs %zu bytes to read from", *bytes);
    }
    gw_parallel_for(threads, (int64_t)(*bytes / PIECE), touch_piece, fresh);
    *data = fresh;
    return GW_OK;
}

gw_status gw_cpu_measure_roof(struct gw_device *device, gw_roof *out) {
    const gw_cpu_peak *peak = gw_cpu_peak_of(device->level);
    int threads = device->threads;
    char *data = device->reading;
    size_t bytes = device->reading_bytes;
    float keep = 0.0f;
    if (data == NULL) {
        GW_TRY(take_memory(threads, &data, &bytes));
    }
    gw_roof roof = {.read_gbps = read_roof(peak, data, bytes, threads, &keep) * 1e-9};
    if (data != device->reading) {
        gw_cpu_unmap_pages(data, bytes);
    }
    roof.int8_gops = compute_peak(peak, 1, threads, &keep) * 1e-9;
    roof.f32_gflops = compute_peak(peak, 0, threads, &keep) * 1e-9;
    volatile float sink = keep; /* the results are used, so the loops stay */
    (void)sink;
    *out = roof;
    return GW_OK;
}

gw_status gw_cpu_read_memory(struct gw_device *device, double *gbps) {
    const gw_cpu_peak *peak = gw_cpu_peak_of(device->level);
    int threads = device->threads;
    float keep = 0.0f;
    if (device->reading == NULL) {
        GW_TRY(take_memory(threads, &device->reading, &device->reading_bytes));
        device->reading_way =
            best_way(peak, device->reading, device->reading_bytes, threads, &keep);
    }
    double seconds = read_once(peak, device->reading_way, device->reading, device->reading_bytes,
                               threads, &keep);
    volatile float sink = keep;
    (void)sink;
    *gbps = (double)device->reading_bytes / seconds * 1e-9;
    return GW_OK;
}

void gw_cpu_end_readings(struct gw_device *device) {
    gw_cpu_unmap_pages(device->reading, device->reading_bytes);
    device->reading = NULL;
}
