/* core/engine/placing/cache_time.c - times attention of one token early in a text and at the end of
 * a context: the difference is what reading the cache takes. */
#include "core/engine/placing/cache_time.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cache.h"
#include "core/base/clock.h"
#include "core/engine/placing/rig.h"

enum { VERSION = 1, BEFORE = 3, TIMES = 5 };

static const double enough = 96e6; /* bytes of cache: what a link brings in milliseconds      */
static const double least = 1e-14; /* seconds of a byte, where the difference is lost in noise */

/* The context that is timed: of the model's, what is enough. */
static int32_t context_of(const gw_hparams *hp, int layers, gw_kv_pair fmt, int32_t n_ctx) {
    uint64_t page = 0;
    for (int l = 0; l < layers; l++) {
        page += gw_kv_layer_bytes(&hp->layer[l], fmt, (gw_kv_size){1, GW_PAGE, 0, 0});
    }
    double pages = page > 0 ? enough / (double)page : 0.0;
    double most = (double)n_ctx / GW_PAGE;
    int32_t positions = (int32_t)(pages < most ? pages : most) * GW_PAGE;
    return page == 0 || n_ctx < 2 * GW_PAGE ? 0 : positions < 2 * GW_PAGE ? 2 * GW_PAGE : positions;
}

/* Written once, so that each page of main memory is one of its own. */
static gw_status write_cache(gw_rig *r, int32_t n_ctx, uint64_t *bytes) {
    gw_kv *kv = &r->session->kv;
    void *zeros = calloc(1, gw_kv_largest_page(kv));
    gw_status status = zeros != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "plan", "no memory for a page");
    *bytes = 0;
    for (int i = 0; i < GW_KV_PARTS * kv->n_layers && status == GW_OK; i++) {
        int l = i / GW_KV_PARTS, part = i % GW_KV_PARTS, kind = kv->table_of[l];
        int32_t pages = kind > 0 ? kv->ring[kind] : n_ctx / GW_PAGE;
        *bytes += gw_kv_page_bytes(kv, l, part) * (uint64_t)pages;
        for (int32_t p = 0; p < pages && gw_kv_page_bytes(kv, l, part) > 0 && status == GW_OK;
             p++) {
            status = gw_kv_write_page(kv, l, part, p, zeros);
        }
    }
    free(zeros);
    return status;
}

/* The least of several. */
static gw_status time_at(gw_rig *r, gw_pass *body, int32_t pos, double *seconds) {
    static const int32_t id = 0;
    *seconds = 0.0;
    for (int i = 0; i < BEFORE + TIMES; i++) {
        gw_session_set_step(r->session, &id, 1, pos);
        double start = gw_seconds_now();
        GW_TRY(gw_pass_run(r->session, body, gw_plan_run));
        double t = gw_seconds_now() - start;
        *seconds = i == BEFORE || (i > BEFORE && t < *seconds) ? t : *seconds;
    }
    return GW_OK;
}

static gw_status time_cache(const gw_subject *of, const gw_place_sizes *sizes, gw_weights *weights,
                            gw_rig_cache cache, double *seconds) {
    int layers = gw_weights_hparams(weights)->n_layers;
    gw_rig *r = calloc(1, sizeof *r);
    gw_pass body = {.plan = NULL};
    double early = 0.0, late = 0.0;
    uint64_t bytes = 0;
    gw_status status;
    if (r == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory to measure with");
    }
    GW_TRY_DONE(gw_rig_open(of, sizes, weights, layers, &cache, r));
    GW_TRY_DONE(gw_pass_build(r->session, &body, 1, GW_ORDER_DECODE, GW_PASS_BODY,
                              (gw_layer_range){0, layers}));
    GW_TRY_DONE(write_cache(r, cache.n_ctx, &bytes));
    GW_TRY_DONE(time_at(r, &body, 0, &early));
    GW_TRY_DONE(time_at(r, &body, cache.n_ctx - 1, &late));
    *seconds = bytes > 0 ? (late - early) / (double)bytes : 0.0;
    *seconds = *seconds > least ? *seconds : least;
done:
    gw_pass_free(&body);
    gw_rig_close(r);
    free(r);
    return status;
}

/* A sample that has a cache; *n_ctx 0: no layer has. */
static gw_status sample(const gw_subject *of, const gw_place_sizes *sizes, int32_t *n_ctx,
                        gw_weights **out) {
    gw_weights *w = NULL;
    *n_ctx = 0;
    for (int n = 1; *n_ctx == 0; n = 2 * n < sizes->hp->n_layers ? 2 * n : sizes->hp->n_layers) {
        GW_TRY(gw_weights_sample(sizes->weights, of->devices, &of->group, n, &w));
        *n_ctx = context_of(gw_weights_hparams(w), n, sizes->kv_fmt, sizes->n_ctx);
        if (*n_ctx == 0) {
            gw_weights_free(w);
            w = NULL;
        }
        if (n == sizes->hp->n_layers) {
            break;
        }
    }
    *out = w;
    return GW_OK;
}

static gw_status measure(const gw_subject *of, const gw_place_sizes *sizes, gw_cache_time *out) {
    gw_weights *w = NULL;
    gw_rig_cache cache = {.n_ctx = 0};
    gw_cache_time t = {least, 0.0};
    GW_TRY(sample(of, sizes, &cache.n_ctx, &w));
    gw_status status = GW_OK;
    if (w != NULL) {
        status = time_cache(of, sizes, w, cache, &t.own);
        cache.in_host = 1;
        if (status == GW_OK && of->devices[0].backend->alloc_mapped != NULL) {
            status = time_cache(of, sizes, w, cache, &t.host);
        }
        gw_weights_free(w);
    }
    *out = t;
    return status;
}

static uint64_t key_of(const gw_place *place, const gw_place_sizes *s, int d) {
    const gw_device_info *info[] = {&place->info[0], &place->info[d]};
    const int64_t numbers[] = {VERSION, place->info[0].threads, s->n_ctx, gw_kv_number(s->kv_fmt)};
    uint64_t h = gw_cache_hash(0, numbers, sizeof numbers);
    for (int32_t l = 0; l < s->hp->n_layers; l++) {
        const gw_layer *y = &s->hp->layer[l];
        const int32_t words[] = {y->kind,   y->n_heads, y->n_kv_heads, y->d_head,
                                 y->v_head, y->window,  y->has_cache,  y->reach};
        h = gw_cache_hash(h, words, sizeof words);
    }
    for (int i = 0; i < 2; i++) {
        h = gw_cache_hash(h, info[i]->id, strlen(info[i]->id));
        h = gw_cache_hash(h, info[i]->name, strlen(info[i]->name));
        h = gw_cache_hash(h, info[i]->detail, strlen(info[i]->detail));
    }
    return gw_cache_hash(h, GW_VERSION, sizeof GW_VERSION);
}

static int is_sound(const gw_cache_time *t) {
    return t->own > 0.0 && t->own < 1.0 && t->host >= 0.0 && t->host < 1.0;
}

gw_status gw_cache_times(const gw_place *place, const gw_place_sizes *sizes, gw_cache_time *times) {
    if (sizes->hp->n_source > 0) {
        return gw_fail(GW_E_UNSUPPORTED, "plan", "models that read a source text are not timed");
    }
    for (int d = 0; d < place->n_devices; d++) {
        const gw_group alone = {.n = 1, .device = {d}, .share = {1.0}};
        gw_subject of = gw_subject_of(place, &alone);
        uint64_t key = key_of(place, sizes, d);
        size_t bytes = 0;
        void *kept = gw_cache_read("kv", key, &bytes);
        int good = kept != NULL && bytes == sizeof *times && is_sound(kept);
        if (good) {
            memcpy(&times[d], kept, sizeof *times);
        }
        free(kept);
        GW_TRY(good ? GW_OK : measure(&of, sizes, &times[d]));
        if (!good) {
            gw_cache_write("kv", key, &times[d], sizeof *times);
        }
    }
    return GW_OK;
}

double gw_cache_seconds(const gw_place *place, const gw_place_sizes *sizes,
                        const gw_cache_time *times) {
    double sum = 0.0;
    for (int l = 0; l < place->n_layers; l++) {
        int d = sizes->cache_at[l];
        gw_group group = gw_place_group(place, d);
        double slowest = 0.0;
        for (int c = 0; c < group.n; c++) { /* all at once */
            const gw_cache_time *t = &times[group.device[c]];
            double part = gw_place_part(place, d, group.device[c]);
            double seconds = part * (double)sizes->cache[l] * (sizes->host[l] ? t->host : t->own);
            slowest = seconds > slowest ? seconds : slowest;
        }
        sum += slowest;
    }
    return sum;
}
