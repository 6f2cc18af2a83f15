/* apps/serve/models_metrics.c - what is counted of each model, for /metrics. */
#include <event2/buffer.h>

#include "apps/serve/models_parts.h"

typedef struct gauge {
    const char *name, *kind, *help;
    double (*of)(const gw_batch_stats *s);
} gauge;

#define FIGURE(field)                                                                              \
    static double of_##field(const gw_batch_stats *s) { return (double)s->field; }
FIGURE(waiting)
FIGURE(waiting_tokens)
FIGURE(running)
FIGURE(held)
FIGURE(last_rows)
FIGURE(steps)
FIGURE(rows)
FIGURE(pages)
FIGURE(pages_used)
FIGURE(pages_cached)
FIGURE(prompt_passes)
FIGURE(prompt_tokens)
FIGURE(cached_tokens)
FIGURE(drafted)
FIGURE(draft_accepted)
FIGURE(draft_rests)
FIGURE(read_ahead)
FIGURE(preemptions)
FIGURE(evictions)
FIGURE(host_pages)
FIGURE(host_pages_cached)
FIGURE(host_saved)
FIGURE(host_fetched)
FIGURE(failed)
FIGURE(refused)
FIGURE(decode_seconds)
FIGURE(prompt_seconds)

static const gauge gauges[] = {
    {"queue_requests", "gauge", "Requests that wait.", of_waiting},
    {"queue_tokens", "gauge", "Prompt tokens that wait.", of_waiting_tokens},
    {"running", "gauge", "Choices that are being generated.", of_running},
    {"held", "gauge", "Of these, those whose reader is slow.", of_held},
    {"step_rows", "gauge", "Rows of the last pass of generated tokens.", of_last_rows},
    {"steps_total", "counter", "Passes of generated tokens.", of_steps},
    {"rows_total", "counter", "Rows of these passes.", of_rows},
    {"pages", "gauge", "Pages of the KV cache, 64 tokens each.", of_pages},
    {"pages_used", "gauge", "Pages that running choices hold.", of_pages_used},
    {"pages_cached", "gauge", "Pages that only keep a prefix.", of_pages_cached},
    {"prompt_passes_total", "counter", "Passes of prompts.", of_prompt_passes},
    {"prompt_tokens_read_total", "counter", "Prompt tokens that were computed.", of_prompt_tokens},
    {"prefix_hit_tokens_total", "counter", "Prompt tokens found in the cache.", of_cached_tokens},
    {"drafted_tokens_total", "counter", "Tokens that were drafted.", of_drafted},
    {"draft_accepted_tokens_total", "counter", "Of these, those that stayed.", of_draft_accepted},
    {"draft_rests_total", "counter", "Rests of a draft model that did not pay.", of_draft_rests},
    {"read_ahead_tokens_total", "counter", "Tokens of answers read for the next turn.",
     of_read_ahead},
    {"preemptions_total", "counter", "Choices that gave up their pages.", of_preemptions},
    {"evictions_total", "counter", "Pages of prefixes that were dropped.", of_evictions},
    {"host_pages", "gauge", "Places for pages in main memory.", of_host_pages},
    {"host_pages_cached", "gauge", "Places that have a page.", of_host_pages_cached},
    {"host_pages_saved_total", "counter", "Pages copied into main memory.", of_host_saved},
    {"host_pages_fetched_total", "counter", "Pages copied back from there.", of_host_fetched},
    {"requests_failed_total", "counter", "Requests that ended with an error.", of_failed},
    {"requests_refused_total", "counter", "Requests that found the queue full.", of_refused},
    {"decode_seconds_total", "counter", "Time in passes of generated tokens.", of_decode_seconds},
    {"prompt_seconds_total", "counter", "Time in passes of prompts.", of_prompt_seconds},
};

/* The label of a model, as the text format of Prometheus escapes it. */
static void put_label(struct evbuffer *to, const char *id) {
    evbuffer_add_printf(to, "%s", "{model=\"");
    for (; *id != '\0'; id++) {
        if (*id == '"' || *id == '\\') {
            evbuffer_add_printf(to, "%c", '\\');
        }
        evbuffer_add_printf(to, "%c", *id);
    }
    evbuffer_add_printf(to, "%s", "\"}");
}

static double is_loaded(const entry *e) { return e->state == MODEL_READY; }
static double is_asleep(const entry *e) { return e->state == MODEL_ASLEEP; }
static double kept_of(const entry *e) { return (double)e->kept; }
static double sleeps_of(const entry *e) { return (double)e->sleeps; }
static double wakes_of(const entry *e) { return (double)e->wakes; }
static double wake_seconds_of(const entry *e) { return e->wake_seconds; }

/* Of every model, loaded or not. */
static void put_states(const models *all, struct evbuffer *to) {
    static const struct {
        const char *name, *help;
        int is_total;
        double (*of)(const entry *e);
    } rows[] = {
        {"model_loaded", "Is the model loaded?", 0, is_loaded},
        {"model_asleep", "Are the weights in main memory alone?", 0, is_asleep},
        {"model_kept_bytes", "Main memory that the weights have to sleep in.", 0, kept_of},
        {"model_sleeps_total", "How often the model went to sleep.", 1, sleeps_of},
        {"model_wakes_total", "How often it woke.", 1, wakes_of},
        {"model_wake_seconds", "How long it took to wake, the last time.", 0, wake_seconds_of},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        evbuffer_add_printf(to, "# HELP godwit_%s %s\n# TYPE godwit_%s %s\n", rows[k].name,
                            rows[k].help, rows[k].name, rows[k].is_total ? "counter" : "gauge");
        for (size_t i = 0; i < all->n; i++) {
            evbuffer_add_printf(to, "godwit_%s", rows[k].name);
            put_label(to, all->entries[i].m.id);
            evbuffer_add_printf(to, " %.17g\n", rows[k].of(&all->entries[i]));
        }
    }
}

void models_metrics(const models *all, struct evbuffer *to) {
    put_states(all, to);
    for (size_t k = 0; k < sizeof gauges / sizeof gauges[0]; k++) {
        const gauge *g = &gauges[k];
        evbuffer_add_printf(to, "# HELP godwit_%s %s\n# TYPE godwit_%s %s\n", g->name, g->help,
                            g->name, g->kind);
        for (size_t i = 0; i < all->n; i++) {
            const entry *e = &all->entries[i];
            gw_batch_stats stats;
            if (e->state == MODEL_READY && e->m.batch != NULL) {
                gw_batch_get_stats(e->m.batch, &stats);
                evbuffer_add_printf(to, "godwit_%s", g->name);
                put_label(to, e->m.id);
                evbuffer_add_printf(to, " %.17g\n", g->of(&stats));
            }
        }
    }
}
