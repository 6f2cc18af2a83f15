/* bench/bench_choice.c - what choosing a token costs the host: per generated token, and per draft
 * and verified row of speculation, where no device draws.
 *
 * usage: bench_choice [vocabulary]   (32000 and 128256)
 * Microseconds, the least of 60: narrow (what the stages leave, and the draw), weigh (the
 * probabilities of what is left, for a draft's certainty), pick (both halves of a plain step). The
 * last column is a hash of all that was chosen: equal before and after a change that may only save
 * time. Logits are normal with deviation 2.5: flatter than a trained model's.
 * Build: cc -O2 -I. bench/bench_choice.c build/release/libgodwit.a, and its libraries.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/engine/drafting/draft_accept.h"
#include "core/engine/sampling/sampler.h"
#include "tests/random.h"

enum { ROWS = 8, TIMES = 60 };

typedef struct setting {
    const char *name;
    float temperature;
    int32_t top_k;
    float top_p, min_p, repeat_penalty;
} setting;

static const setting settings[] = {
    {"greedy, default filters", 0, 40, 0.95f, 0.05f, 1},
    {"0.8, default filters", 0.8f, 40, 0.95f, 0.05f, 1},
    {"0.8, with penalties", 0.8f, 40, 0.95f, 0.05f, 1.1f},
    {"0.8, no filter", 0.8f, 0, 1, 0, 1},
    {"0.8, top-p alone", 0.8f, 0, 0.95f, 0, 1},
};

static double least(double a, double b) { return a < b ? a : b; }

static int time_setting(const setting *row, const float *logits, int32_t n) {
    gw_sampler_options o;
    gw_sampler *s;
    gw_sampler_defaults(&o);
    o.temperature = row->temperature;
    o.top_k = row->top_k;
    o.top_p = row->top_p;
    o.min_p = row->min_p;
    o.repeat_penalty = row->repeat_penalty;
    o.seed = 3;
    if (gw_sampler_make(n, &o, NULL, &s) != GW_OK) {
        fprintf(stderr, "%s\n", gw_error_text());
        return 1;
    }
    double narrow = 1, weigh = 1, pick = 1;
    uint32_t hash = 0;
    for (int i = 0; i < TIMES; i++) {
        const float *x = logits + (size_t)(i % ROWS) * (size_t)n;
        gw_candidates c = {0};
        int32_t a = 0, b = 0;
        double t0 = gw_seconds_now();
        gw_status status = gw_sampler_narrow(s, x, n, i, &c);
        status = status == GW_OK ? gw_sampler_choose(s, &c, i, &a) : status;
        double t1 = gw_seconds_now();
        gw_draft_weigh(&c, 0);
        double t2 = gw_seconds_now();
        status = status == GW_OK ? gw_sampler_pick(s, x, i, &b) : status;
        double t3 = gw_seconds_now();
        if (status != GW_OK || a != b) {
            fprintf(stderr, "%s: %s\n", row->name, gw_error_text());
            return 1;
        }
        narrow = least(narrow, t1 - t0);
        weigh = least(weigh, t2 - t1);
        pick = least(pick, t3 - t2);
        hash = hash * 31 + (uint32_t)a * 7 + (uint32_t)c.n;
    }
    printf("%6d  %-24s narrow %8.1f  weigh %7.1f  pick %8.1f  %08x\n", (int)n, row->name,
           1e6 * narrow, 1e6 * weigh, 1e6 * pick, (unsigned)hash);
    gw_sampler_free(s);
    return 0;
}

int main(int argc, char **argv) {
    int32_t sizes[2] = {argc > 1 ? atoi(argv[1]) : 32000, 128256};
    int failed = sizes[0] < 1;
    for (int v = 0; v < (argc > 1 ? 1 : 2) && !failed; v++) {
        size_t total = (size_t)ROWS * (size_t)sizes[v];
        float *logits = malloc(total * sizeof *logits);
        for (size_t i = 0; logits != NULL && i < total; i++) {
            logits[i] = 2.5f * normal();
        }
        for (size_t i = 0; i < sizeof settings / sizeof settings[0] && !failed; i++) {
            failed = logits == NULL || time_setting(&settings[i], logits, sizes[v]);
        }
        free(logits);
    }
    return failed;
}
