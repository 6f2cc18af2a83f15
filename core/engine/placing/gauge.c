/* core/engine/placing/gauge.c - times sample layers on every device and predicts speeds from them.
 */
#include "core/engine/placing/gauge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cache.h"
#include "core/base/clock.h"
#include "core/engine/placing/rig.h"

enum { VERSION = 11 };
enum { SAMPLE = 8, MOST_TIMES = 64, SETTLED = 16 };

static const double enough = 384e6;  /* bytes of sampled layers: more than caches hold */
static const double plenty = 1e9;    /* and no more for the sake of SAMPLE layers */
static const double patience = 0.25; /* seconds for each timing of two rigs, and before it */
static const double longest = 0.005; /* wait: nothing is left in caches and no thread is awake */
static const double calm = 3.0;      /* times of one thing that vary more are disturbed */
static const double glance = 0.12;   /* the same for one of a part, without its waits         */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- one timing -------------------------------------------------------------------------------
 */

static gw_status run_once(gw_rig *r, int is_prompt, double *seconds) {
    static const int32_t ids[GW_CHUNK_MAX] = {0};
    int32_t pos = gw_session_pos(r->session);
    if (is_prompt) {
        GW_TRY(gw_session_rewind(r->session, 0));
    } else if (pos >= GW_RIG_LAST) { /* early in a text: later positions cost more attention */
        GW_TRY(gw_session_rewind(r->session, GW_RIG_FIRST));
    }
    double start = gw_seconds_now();
    gw_status status = is_prompt ? gw_session_prefill(r->session, ids, (size_t)r->rows)
                                 : gw_session_decode(r->session, ids, 1);
    *seconds = gw_seconds_now() - start;
    return status == GW_E_NUMERIC ? GW_OK : status; /* made-up numbers may grow; time is time */
}

/* Seconds of a token that the device draws, a step ahead of the host; 0: it could not. */
static gw_status run_drawn(gw_rig *r, double *seconds) {
    enum { AT_ONCE = 8 };
    static const gw_choice most_probable = {.temperature = 0.0f};
    if (gw_session_pos(r->session) + AT_ONCE > GW_RIG_LAST) {
        GW_TRY(gw_session_rewind(r->session, GW_RIG_FIRST));
        r->token = 0;
    }
    double start = gw_seconds_now();
    for (int i = 0; i < AT_ONCE; i++) {
        GW_TRY(gw_session_step(r->session, &most_probable, r->token, 1, &r->token));
        if (r->token < 0) { /* of made-up numbers none is the largest */
            *seconds = 0.0;
            r->token = 0;
            return GW_OK;
        }
    }
    *seconds = (gw_seconds_now() - start) / AT_ONCE;
    return GW_OK;
}

/* The middle of several, of two rigs in turn. */
static gw_status time_drawn(gw_rig *small, gw_rig *large, double *of_small, double *of_large) {
    double a[MOST_TIMES], b[MOST_TIMES], start = gw_seconds_now();
    int n = 0;
    *of_small = *of_large = 0.0;
    if (!gw_session_steps_ahead(small->session) || !gw_session_steps_ahead(large->session)) {
        return GW_OK;
    }
    for (; n < MOST_TIMES && (n < 5 || gw_seconds_now() - start < glance); n++) {
        GW_TRY(run_drawn(small, &a[n]));
        GW_TRY(run_drawn(large, &b[n]));
    }
    qsort(a, (size_t)n, sizeof *a, by_size);
    qsort(b, (size_t)n, sizeof *b, by_size);
    *of_small = a[n / 2];
    *of_large = b[n / 2];
    return GW_OK;
}

static void note_spread(gw_rig *r, const double *sorted, int n) {
    double spread = sorted[3 * n / 4] / sorted[n / 4];
    r->spread = spread > r->spread ? spread : r->spread;
}

/* The middle of several timings of two rigs in turn: each finds the caches as the other left them.
 */
static gw_status time_both(gw_rig *small, gw_rig *large, int is_prompt, double *of_small,
                           double *of_large) {
    double a[MOST_TIMES], b[MOST_TIMES], start = gw_seconds_now(), unused;
    int n = 0;
    do { /* drivers finish their work at the first run, and clocks rise with the load */
        GW_TRY(run_once(small, is_prompt, &unused));
        GW_TRY(run_once(large, is_prompt, &unused));
    } while (gw_seconds_now() - start < patience);
    start = gw_seconds_now();
    while (n < MOST_TIMES && (n < 3 || gw_seconds_now() - start < patience)) {
        GW_TRY(run_once(small, is_prompt, &a[n]));
        GW_TRY(run_once(large, is_prompt, &b[n]));
        n++;
    }
    qsort(a, (size_t)n, sizeof *a, by_size);
    qsort(b, (size_t)n, sizeof *b, by_size);
    note_spread(large, b, n);
    note_spread(small, a, n);
    *of_small = a[n / 2];
    *of_large = b[n / 2];
    return GW_OK;
}

/* ---- one rig alone ----------------------------------------------------------------------------
 */

/* A token through the first layers, without the head; NULL: a whole token. */
static gw_status run_part(gw_rig *r, gw_pass *body, double wait, double *seconds) {
    static const int32_t id = 0;
    double until = gw_seconds_now() + wait;
    while (gw_seconds_now() < until) { /* as a driver does */
    }
    if (body == NULL) {
        return run_once(r, 0, seconds);
    }
    double start = gw_seconds_now();
    gw_session_set_step(r->session, &id, 1, (GW_RIG_FIRST + GW_RIG_LAST) / 2);
    GW_TRY(gw_pass_run(r->session, body, gw_plan_run));
    *seconds = gw_seconds_now() - start;
    return GW_OK;
}

/* The middle of several runs, each of which finds the caches as the one before and `wait` seconds
 * of waiting left them. */
static gw_status time_part(gw_rig *r, gw_pass *body, double wait, double *seconds) {
    double t[MOST_TIMES], spent = 0.0, start = gw_seconds_now();
    int n = 0, before = 0;
    do { /* a backend may try several ways first */
        GW_TRY(run_part(r, body, wait, &t[0]));
    } while (++before < SETTLED || gw_seconds_now() - start < glance);
    while (n < MOST_TIMES && (n < 3 || spent < glance)) {
        GW_TRY(run_part(r, body, wait, &t[n]));
        spent += t[n];
        n++;
    }
    qsort(t, (size_t)n, sizeof *t, by_size);
    *seconds = t[n / 2];
    return GW_OK;
}

static gw_status time_body(gw_rig *r, int layers, double wait, double *seconds) {
    gw_pass body = {.plan = NULL};
    gw_layer_range range = {0, layers};
    gw_status status = gw_pass_build(r->session, &body, 1, GW_ORDER_DECODE, GW_PASS_BODY, range);
    status = status == GW_OK ? time_part(r, &body, wait, seconds) : status;
    gw_pass_free(&body);
    return status;
}

/* token_body and token_rest, of a rig of `layers`. The more of `n_layers` another device has, the
 * longer the wait for it between two tokens. */
static gw_status time_bodies(gw_rig *r, int layers, int n_layers, const gw_gauge *other,
                             gw_gauge *out) {
    double whole, wait = 0.0, before = 0.0;
    out->n_points = 0;
    for (int n = 1; out->n_points < GW_GAUGE_POINTS; n = 2 * n < layers ? 2 * n : layers) {
        double seconds;
        int last = n == layers || out->n_points == GW_GAUGE_POINTS - 1;
        n = last ? layers : n;
        wait = other == NULL || n >= n_layers
                   ? 0.0
                   : gw_gauge_body(other, n_layers - n) + other->token_rest;
        wait = wait < longest ? wait : longest;
        GW_TRY(time_body(r, n, wait, &seconds));
        before = seconds > before ? seconds : before;
        out->at[out->n_points] = n;
        out->token_body[out->n_points++] = before;
        if (last) {
            break;
        }
    }
    GW_TRY(time_part(r, NULL, wait, &whole));
    out->token_rest = whole > before ? whole - before : 0.0;
    return GW_OK;
}

/* ---- layers of a sample -----------------------------------------------------------------------
 */

/* Layers of the sample: enough bytes for each card, SAMPLE layers where they are not too much, and
 * no more than a quarter of what is free on one. Tables of n-grams are small in a sample. */
static int sample_layers(const gw_place_sizes *s, const gw_subject *of, double *bytes) {
    int n_layers = s->hp->n_layers, n_blocks = gw_weights_blueprint(s->weights)->n_blocks;
    int d = of->d;
    double sum = 0.0, used = 0.0, cards = of->group.n;
    for (int at = 0; at < n_layers * n_blocks; at++) {
        const gw_spec_block *b = &gw_weights_blueprint(s->weights)->block[at % n_blocks];
        sum += b->kind == GW_BLOCK_NGRAM ? 0.0 : (double)s->bytes[d][at];
        used += gw_place_used(s, d, at);
    }
    double layer = sum / n_layers > 1.0 ? sum / n_layers : 1.0, asked = SAMPLE * layer;
    asked = asked > cards * plenty   ? cards * plenty
            : asked < cards * enough ? cards * enough
                                     : asked;
    double most = s->room[d] > 0 ? 0.25 * (double)s->room[d] : asked;
    double n = (most < asked ? most : asked) / layer;
    n = n > (int)n ? n + 1.0 : n;
    *bytes = used / n_layers > 1.0 ? used / n_layers : 1.0;
    return n < 2.0 ? (n_layers < 2 ? 1 : 2) : n > n_layers ? n_layers : (int)n;
}

static double one_layer(int half, double of_half, int n, double of_n) {
    double layer = n > half ? (of_n - of_half) / (n - half) : of_n / n;
    return layer > 0.0 ? layer : of_n / n;
}

/* What a prompt takes beside its layers is small and the difference of two uncertain numbers: it is
 * held to a few times what a token takes beside its own. */
static gw_status time_layers(const gw_subject *of, const gw_place_sizes *sizes, gw_weights *weights,
                             int n, const gw_gauge *other, gw_gauge *out) {
    enum { REST = 4 };
    int half = n / 2 > 0 ? n / 2 : 1;
    gw_rig *rigs = calloc(2, sizeof *rigs);
    double small = 0.0, large = 0.0, rest;
    gw_status status;
    if (rigs == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory to measure with");
    }
    GW_TRY_DONE(gw_rig_open(of, sizes, weights, half, NULL, &rigs[0]));
    GW_TRY_DONE(gw_rig_open(of, sizes, weights, n, NULL, &rigs[1]));
    GW_TRY_DONE(time_both(&rigs[0], &rigs[1], 0, &small, &large));
    out->token_layer = one_layer(half, small, n, large);
    GW_TRY_DONE(time_bodies(&rigs[1], n, sizes->hp->n_layers, other, out));
    GW_TRY_DONE(time_drawn(&rigs[0], &rigs[1], &small, &large));
    if (small > 0.0 && large > 0.0) {
        out->drawn_layer = one_layer(half, small, n, large);
        rest = large - n * out->drawn_layer;
        out->drawn_rest = rest > 0.0 ? rest : 0.0;
    }
    GW_TRY_DONE(time_both(&rigs[0], &rigs[1], 1, &small, &large));
    rest = large - n * one_layer(half, small, n, large);
    rest = rest < 0.0 ? 0.0 : rest > REST * out->token_rest ? REST * out->token_rest : rest;
    out->prompt_rest = rest;
    out->disturbed = rigs[0].spread > calm || rigs[1].spread > calm;
    out->prompt_layer = (small + large - 2.0 * rest) / (half + n) * sizes->chunk / rigs[0].rows;
done:
    gw_rig_close(&rigs[0]);
    gw_rig_close(&rigs[1]);
    free(rigs);
    return status;
}

/* The hidden state of `rows` tokens to the device and back. */
static gw_status time_transfer(const gw_plan_device *d, size_t bytes, double *seconds) {
    enum { TURNS = 9 };
    double t[TURNS];
    struct gw_buffer *buffer = NULL;
    void *host = calloc(1, bytes);
    gw_status status;
    if (host == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory to measure with");
    }
    GW_TRY_DONE(d->backend->alloc(d->device, bytes, &buffer));
    for (int i = 0; i < TURNS; i++) {
        double start = gw_seconds_now();
        GW_TRY_DONE(d->backend->write(buffer, 0, host, bytes));
        GW_TRY_DONE(d->backend->read(buffer, 0, host, bytes));
        t[i] = gw_seconds_now() - start;
    }
    qsort(t, TURNS, sizeof *t, by_size);
    *seconds = t[TURNS / 2];
done:
    if (buffer != NULL) {
        d->backend->release(buffer);
    }
    free(host);
    return status;
}

static gw_status measure(const gw_subject *of, const gw_place_sizes *sizes, const gw_gauge *other,
                         gw_gauge *out) {
    gw_gauge g = {0};
    gw_weights *weights = NULL;
    size_t row = (size_t)sizes->hp->n_streams * (size_t)sizes->hp->d_model * sizeof(float);
    int n = sample_layers(sizes, of, &g.weight_bytes);
    GW_TRY(gw_weights_sample(sizes->weights, of->devices, &of->group, n, &weights));
    gw_status status = time_layers(of, sizes, weights, n, other, &g);
    gw_weights_free(weights);
    GW_TRY(status);
    GW_TRY(time_transfer(&of->devices[0], row, &g.send_token));
    GW_TRY(time_transfer(&of->devices[0], row * (size_t)sizes->chunk, &g.send_prompt));
    *out = g;
    return GW_OK;
}

/* ---- kept on disk -----------------------------------------------------------------------------
 */

/* All that a measurement depends on: machine, device and what it waits for, driver, shapes,
 * formats. */
static uint64_t key_of(const gw_place *place, const gw_place_sizes *s, int d, int other) {
    const gw_device_info *home = &place->info[0], *own = &place->info[d];
    const gw_device_info *waits = &place->info[other];
    const gw_hparams *hp = s->hp;
    int n_blocks = gw_weights_blueprint(s->weights)->n_blocks;
    const int64_t kv = gw_kv_number(s->kv_fmt);
    const int64_t numbers[] = {VERSION,     home->threads, hp->n_layers, hp->d_model,
                               hp->n_vocab, s->chunk,      kv,           own->threads};
    uint64_t h = gw_cache_hash(0, numbers, sizeof numbers);
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        const int32_t words[] = {y->kind,   y->n_heads,  y->n_kv_heads, y->d_head,
                                 y->v_head, y->d_ff,     y->window,     y->n_experts,
                                 y->n_used, y->d_expert, y->v_first};
        h = gw_cache_hash(h, words, sizeof words);
    }
    h = gw_cache_hash(h, home->name, strlen(home->name));
    h = gw_cache_hash(h, own->id, strlen(own->id));
    h = gw_cache_hash(h, own->name, strlen(own->name));
    h = gw_cache_hash(h, own->detail, strlen(own->detail));
    h = gw_cache_hash(h, waits->id, strlen(waits->id));
    h = gw_cache_hash(h, waits->name, strlen(waits->name));
    h = gw_cache_hash(h, waits->detail, strlen(waits->detail));
    h = gw_cache_hash(h, GW_VERSION, sizeof GW_VERSION);
    return gw_cache_hash(h, s->bytes[d],
                         (size_t)(hp->n_layers + 1) * (size_t)n_blocks * sizeof *s->bytes[d]);
}

int gw_gauge_is_sound(const gw_gauge *g) {
    const double times[] = {g->token_layer,  g->token_rest,  g->drawn_layer, g->drawn_rest,
                            g->prompt_layer, g->prompt_rest, g->send_token,  g->send_prompt};
    int sound = g->n_points >= 1 && g->n_points <= GW_GAUGE_POINTS && isfinite(g->weight_bytes) &&
                g->weight_bytes > 0.0;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        sound = sound && isfinite(times[i]) && times[i] >= 0.0;
    }
    for (int i = 0; sound && i < g->n_points; i++) {
        sound = isfinite(g->token_body[i]) && g->token_body[i] >= 0.0 &&
                g->at[i] > (i > 0 ? g->at[i - 1] : 0);
    }
    return sound;
}

/* Of a group also who is in it, and how they share. */
static uint64_t key_of_group(const gw_place *place, const gw_place_sizes *s, int d) {
    const gw_group *group = &place->group[d];
    uint64_t h = key_of(place, s, d, d);
    for (int c = 0; c < group->n; c++) {
        const gw_device_info *info = &place->info[group->device[c]];
        h = gw_cache_hash(h, info->id, strlen(info->id));
        h = gw_cache_hash(h, info->name, strlen(info->name));
        h = gw_cache_hash(h, info->detail, strlen(info->detail));
        h = gw_cache_hash(h, &group->share[c], sizeof group->share[c]);
    }
    const char linked = group->link != NULL;
    return gw_cache_hash(h, &linked, sizeof linked);
}

/* As it was kept, or now. */
static gw_status gauge_one(const gw_subject *of, const gw_place_sizes *sizes, uint64_t key,
                           const gw_gauge *waits, gw_gauge *out) {
    size_t bytes = 0;
    void *kept = gw_cache_read("gauge", key, &bytes);
    int good = kept != NULL && bytes == sizeof *out && gw_gauge_is_sound(kept);
    if (good) {
        memcpy(out, kept, sizeof *out);
    }
    free(kept);
    GW_TRY(good ? GW_OK : measure(of, sizes, waits, out));
    if (out->disturbed) { /* disturbances make it slower */
        gw_gauge again;
        GW_TRY(measure(of, sizes, waits, &again));
        *out = !again.disturbed || again.token_layer < out->token_layer ? again : *out;
    }
    if (!good && !out->disturbed) {
        gw_cache_write("gauge", key, out, sizeof *out);
    }
    return GW_OK;
}

/* Two devices of one kind, with the same to compute. */
static int are_alike(const gw_place *place, const gw_place_sizes *s, int d, int e) {
    const gw_device_info *a = &place->info[d], *b = &place->info[e];
    size_t blocks = (size_t)gw_weights_blueprint(s->weights)->n_blocks;
    size_t bytes = ((size_t)s->hp->n_layers + 1) * blocks * sizeof *s->bytes[d];
    return place->devices[d].backend == place->devices[e].backend && a->name[0] != '\0' &&
           strcmp(a->name, b->name) == 0 && strcmp(a->detail, b->detail) == 0 &&
           memcmp(s->bytes[d], s->bytes[e], bytes) == 0;
}

/* A device beyond d whose times are d's, too; d: none. */
static int twin_of(const gw_place *place, const gw_place_sizes *s, int d) {
    for (int e = d + 1; d > 0 && e < place->n_devices; e++) {
        if (are_alike(place, s, d, e)) {
            return e;
        }
    }
    return d;
}

static int rank_of(const gw_place *place, int d, int e) {
    const gw_backend *backend = place->devices[d].backend;
    return backend->link_rank != NULL
               ? backend->link_rank(place->devices[d].device, place->devices[e].device)
               : 0;
}

/* Two groups of devices that are alike, linked alike. */
static int are_alike_groups(const gw_place *place, const gw_place_sizes *s, const gw_group *g,
                            const gw_group *h) {
    int alike = g->n == h->n && (g->link == NULL) == (h->link == NULL);
    for (int i = 0; alike && i < g->n; i++) {
        alike = g->device[i] > 0 && g->share[i] == h->share[i] &&
                are_alike(place, s, g->device[i], h->device[i]);
        for (int j = 0; alike && j < i; j++) {
            alike = rank_of(place, g->device[i], g->device[j]) ==
                    rank_of(place, h->device[i], h->device[j]);
        }
    }
    return alike;
}

/* A group before that of d whose times are its, too; d: none. */
static int twin_of_group(const gw_place *place, const gw_place_sizes *s, int d) {
    for (int e = 1; e < d; e++) {
        if (place->group[e].n > 1 &&
            are_alike_groups(place, s, &place->group[d], &place->group[e])) {
            return e;
        }
    }
    return d;
}

gw_status gw_gauge_devices(const gw_place *place, const gw_place_sizes *sizes, gw_gauge *gauges) {
    for (int d = place->n_devices - 1; d >= 0; d--) { /* first what the CPU waits for */
        int other = d == 0 && place->n_devices > 1 ? 1 : d, twin = twin_of(place, sizes, d);
        if (twin != d) {
            gauges[d] = gauges[twin];
            continue;
        }
        const gw_group alone = {.n = 1, .device = {d}, .share = {1.0}};
        gw_subject of = gw_subject_of(place, &alone);
        GW_TRY(gauge_one(&of, sizes, key_of(place, sizes, d, other),
                         other != d ? &gauges[other] : NULL, &gauges[d]));
    }
    return GW_OK;
}

gw_status gw_gauge_groups(const gw_place *place, const gw_place_sizes *sizes, gw_gauge *gauges) {
    for (int d = 0; d < place->n_devices && place->grouped; d++) {
        int twin = twin_of_group(place, sizes, d);
        if (place->group[d].n > 1 && twin != d) {
            gauges[GW_MAX_DEVICES + d] = gauges[GW_MAX_DEVICES + twin];
        } else if (place->group[d].n > 1) {
            gw_subject of = gw_subject_of(place, &place->group[d]);
            GW_TRY(gauge_one(&of, sizes, key_of_group(place, sizes, d), NULL,
                             &gauges[GW_MAX_DEVICES + d]));
        }
    }
    return GW_OK;
}

gw_status gw_gauge_all(const gw_place *place, const gw_place_sizes *sizes, gw_gauge *gauges) {
    GW_TRY(gw_gauge_devices(place, sizes, gauges));
    return gw_gauge_groups(place, sizes, gauges);
}
