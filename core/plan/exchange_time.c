/* core/plan/exchange_time.c - the exchange of cards alone: made-up shares, a frozen pass of many.
 */
#include "core/plan/exchange_time.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

/* So many that the start of a pass and the wait for its end, some 10 us, are little beside them. */
enum { EACH_PASS = 128, PASSES = 2 };
static const double PATIENCE = 0.05; /* seconds, once every pass has run */

typedef struct rig {
    const gw_backend *backend;
    struct gw_device *const *devices;
    int cards;
    struct gw_link *link;
    gw_tensor share[GW_MAX_CARDS], out[GW_MAX_CARDS];
    struct gw_segment *segment[GW_MAX_CARDS];
    gw_node nodes[GW_MAX_CARDS][EACH_PASS];
} rig;

static gw_status tensor_new(const rig *r, int c, gw_fmt fmt, int32_t n, int32_t width,
                            gw_tensor *t) {
    size_t bytes;
    *t = (gw_tensor){.fmt = fmt, .n_dim = 2, .dim = {n, width}, .device = c};
    GW_TRY(gw_matrix_bytes(fmt, (uint64_t)n, (uint64_t)width, &bytes));
    return r->backend->alloc(r->devices[c], bytes, &t->buf);
}

static void free_segments(rig *r) {
    for (int c = 0; c < r->cards; c++) {
        gw_tensor *const both[] = {&r->share[c], &r->out[c]};
        if (r->segment[c] != NULL) {
            r->backend->segment_free(r->segment[c]);
        }
        r->segment[c] = NULL;
        for (int i = 0; i < 2; i++) {
            if (both[i]->buf != NULL) {
                r->backend->release(both[i]->buf);
            }
            both[i]->buf = NULL;
        }
    }
}

static gw_status freeze(rig *r, gw_fmt fmt, int32_t n, int32_t width, const int32_t *first) {
    for (int c = 0; c < r->cards; c++) {
        size_t count;
        const gw_kernel *kernels = r->backend->kernels(r->devices[c], &count);
        gw_node node = {
            .op = GW_OP_EXCHANGE,
            .in = {&r->share[c]},
            .out = &r->out[c],
            .what = "exchange",
            .device = c,
            .args.exchange = {.link = r->link, .cards = r->cards, .card = c, .parts = 1}};
        memcpy(node.args.exchange.first, first, ((size_t)r->cards + 1) * sizeof *first);
        GW_TRY(tensor_new(r, c, fmt, n, first[c + 1] - first[c], &r->share[c]));
        GW_TRY(tensor_new(r, c, fmt, n, width, &r->out[c]));
        GW_TRY(gw_op_describe(node.op)->check(&node));
        node.kernel = gw_kernel_first(kernels, count, &node, r->devices[c]);
        if (node.kernel == NULL) {
            return gw_fail(GW_E_UNSUPPORTED, "exchange", "no kernel here for rows of %d", width);
        }
        for (int i = 0; i < EACH_PASS; i++) {
            r->nodes[c][i] = node;
        }
        GW_TRY(r->backend->freeze(r->devices[c], r->nodes[c], EACH_PASS, n, &r->segment[c]));
    }
    for (int c = 0; c < r->cards && r->backend->ready != NULL; c++) {
        GW_TRY(r->backend->ready(r->segment[c], NULL));
    }
    return GW_OK;
}

static gw_status time_pass(const rig *r, const gw_step *step, double *seconds) {
    double start = gw_seconds_now();
    for (int c = 0; c < r->cards; c++) {
        GW_TRY(r->backend->run(r->segment[c], step));
    }
    for (int c = 0; c < r->cards; c++) {
        GW_TRY(r->backend->wait(r->devices[c]));
    }
    *seconds = (gw_seconds_now() - start) / EACH_PASS;
    return GW_OK;
}

/* Seconds of one exchange: the best pass behind the first, which warms up. */
static gw_status time_one(rig *r, gw_fmt fmt, int32_t n, int32_t width, const int32_t *first,
                          gw_step *step, double *best) {
    double begin = gw_seconds_now(), each;
    gw_status status;
    step->n = step->n_pick = n;
    GW_TRY_DONE(freeze(r, fmt, n, width, first));
    for (int i = 0; i <= PASSES || gw_seconds_now() - begin < PATIENCE; i++) {
        GW_TRY_DONE(time_pass(r, step, &each));
        *best = i > 0 && (*best <= 0.0 || each < *best) ? each : *best;
    }
done:
    free_segments(r);
    return status;
}

/* Equal shares in blocks; 0: some card has none. */
static int share_out(int cards, int32_t width, int32_t *first) {
    int32_t blocks = width / GW_ACT_BLOCK;
    for (int c = 0; c < cards; c++) {
        first[c] = (int32_t)((int64_t)blocks * c / cards) * GW_ACT_BLOCK;
    }
    first[cards] = width;
    return blocks >= cards;
}

gw_status gw_exchange_time(const gw_backend *backend, struct gw_device *const *devices, int cards,
                           int32_t width, const int32_t *n, size_t count,
                           gw_exchange_result *results, double *flag_seconds) {
    int32_t first[GW_MAX_CARDS + 1];
    gw_status status;
    if (cards < 2 || cards > GW_MAX_CARDS || !share_out(cards, width, first)) {
        return gw_fail(GW_E_ARGUMENT, "exchange", "2 to %d cards, and at least %d columns for each",
                       GW_MAX_CARDS, GW_ACT_BLOCK);
    }
    if (backend->link == NULL || backend->flag == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, "exchange", "devices of %s exchange through the host",
                       backend->name);
    }
    rig *r = calloc(1, sizeof *r);
    gw_step *step = calloc(1, sizeof *step);
    if (r == NULL || step == NULL) {
        status = gw_fail(GW_E_NOMEM, "exchange", "no memory to measure with");
        goto done;
    }
    *r = (rig){.backend = backend, .devices = devices, .cards = cards};
    GW_TRY_DONE(backend->link(devices, cards, &r->link));
    GW_TRY_DONE(backend->flag(r->link, flag_seconds));
    for (size_t i = 0; i < count; i++) {
        results[i] = (gw_exchange_result){.n = n[i]};
        if (n[i] < 1 || n[i] > GW_CHUNK_MAX) {
            status = gw_fail(GW_E_ARGUMENT, "exchange", "%d rows: 1 to %d", n[i], GW_CHUNK_MAX);
            goto done;
        }
        GW_TRY_DONE(time_one(r, GW_FMT_F32, n[i], width, first, step, &results[i].f32_seconds));
        if (width % GW_ACT_BLOCK == 0) {
            GW_TRY_DONE(
                time_one(r, GW_FMT_ACT8, n[i], width, first, step, &results[i].act8_seconds));
        }
    }
done:
    if (r != NULL && r->link != NULL) {
        backend->unlink(r->link);
    }
    free(r);
    free(step);
    return status;
}
