/* apps/serve/metrics.c - counters, histograms and their text: see metrics.h. */
#include "apps/serve/metrics.h"

#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/access_log.h"
#include "apps/serve/models.h"

enum { BOUNDS = 16 };
static const double bounds[BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                      0.5,   1,      2.5,   5,    10,    30,   60,  300};

typedef struct histogram {
    uint64_t counts[BOUNDS + 1];
    double sum;
} histogram;

struct metrics {
    histogram times[TIME_KINDS];
    uint64_t answers[6]; /* by the first digit of the status; [0]: cut off */
    uint64_t refused, cancelled;
    uint64_t prompt, cached, generated;
};

metrics *metrics_new(void) { return calloc(1, sizeof(metrics)); }
void metrics_free(metrics *m) { free(m); }

void metrics_answered(metrics *m, int status) {
    int class = status / 100;
    m->answers[class >= 1 && class <= 5 ? class : 0]++;
}

void metrics_refused(metrics *m) { m->refused++; }
void metrics_cancelled(metrics *m) { m->cancelled++; }
uint64_t metrics_generated(const metrics *m) { return m->generated; }

void metrics_tokens(metrics *m, int64_t prompt, int64_t cached, int64_t generated) {
    m->prompt += (uint64_t)prompt;
    m->cached += (uint64_t)cached;
    m->generated += (uint64_t)generated;
}

void metrics_took(metrics *m, metrics_time kind, double seconds) {
    histogram *h = &m->times[kind];
    int i = 0;
    while (i < BOUNDS && seconds > bounds[i]) {
        i++;
    }
    h->counts[i]++;
    h->sum += seconds;
}

static void number(struct evbuffer *to, const char *name, const char *kind, const char *help,
                   double value) {
    evbuffer_add_printf(to, "# HELP godwit_%s %s\n# TYPE godwit_%s %s\ngodwit_%s %.17g\n", name,
                        help, name, kind, name, value);
}

static void write_times(struct evbuffer *to, const metrics *m) {
    static const struct {
        const char *name, *help;
    } rows[TIME_KINDS] = {
        [TIME_FIRST] = {"time_to_first_token_seconds", "From a request to its first token."},
        [TIME_BETWEEN] = {"time_between_tokens_seconds", "From one token to the next."},
        [TIME_WHOLE] = {"request_seconds", "Whole requests that generate."},
        [TIME_QUEUE] = {"queue_seconds", "From a request to its first prompt token being read."}};
    for (int kind = 0; kind < TIME_KINDS; kind++) {
        const histogram *h = &m->times[kind];
        const char *name = rows[kind].name;
        uint64_t sum = 0;
        evbuffer_add_printf(to, "# HELP godwit_%s %s\n# TYPE godwit_%s histogram\n", name,
                            rows[kind].help, name);
        for (int i = 0; i < BOUNDS; i++) {
            sum += h->counts[i];
            evbuffer_add_printf(to, "godwit_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i],
                                sum);
        }
        sum += h->counts[BOUNDS];
        evbuffer_add_printf(to, "godwit_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, sum);
        evbuffer_add_printf(to, "godwit_%s_sum %.9g\ngodwit_%s_count %" PRIu64 "\n", name, h->sum,
                            name, sum);
    }
}

static void write_answers(struct evbuffer *to, const metrics *m) {
    evbuffer_add_printf(to, "# HELP godwit_http_responses_total Answers by class of status.\n"
                            "# TYPE godwit_http_responses_total counter\n");
    for (int class = 1; class <= 5; class ++) {
        evbuffer_add_printf(to, "godwit_http_responses_total{code=\"%dxx\"} %" PRIu64 "\n", class,
                            m->answers[class]);
    }
}

char *metrics_text(const server *s, size_t *bytes) {
    const metrics *m = s->metrics;
    char *text = NULL;
    struct evbuffer *to = evbuffer_new();
    if (to == NULL) {
        return NULL;
    }
    number(to, "uptime_seconds", "gauge", "Since the start.", app_seconds() - s->started);
    number(to, "connections", "gauge", "Open connections.", s->n_conns);
    number(to, "requests_open", "gauge", "Requests that generate or wait for it.", s->n_jobs);
    number(to, "http_malformed_total", "counter", "What was no request.", (double)m->refused);
    number(to, "cancelled_total", "counter", "Requests whose client left.", (double)m->cancelled);
    number(to, "access_log_lost_total", "counter", "Lines of the access log that were lost.",
           (double)access_log_lost(s->log));
    number(to, "prompt_tokens_total", "counter", "Prompt tokens of finished requests.",
           (double)m->prompt);
    number(to, "prompt_tokens_cached_total", "counter", "Of these, found in the prefix cache.",
           (double)m->cached);
    number(to, "generated_tokens_total", "counter", "Generated tokens.", (double)m->generated);
    write_answers(to, m);
    write_times(to, m);
    models_metrics(s->models, to);
    *bytes = evbuffer_get_length(to);
    text = malloc(*bytes + 1);
    if (text != NULL) {
        (void)evbuffer_remove(to, text, *bytes);
        text[*bytes] = '\0';
    }
    evbuffer_free(to);
    return text;
}
