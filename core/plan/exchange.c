/* core/plan/exchange.c - see exchange.h. */
#include "core/plan/exchange.h"

#include <stdlib.h>
#include <string.h>

const gw_kernel gw_exchange_host = {.op = GW_OP_EXCHANGE, .name = "host.exchange"};

static int through_host(const gw_node *node) {
    return node->op == GW_OP_EXCHANGE && node->kernel == &gw_exchange_host;
}

/* ---- order ---------------------------------------------------------------------------------- */

/* Where a node stands: first stages, which end where a node reads what another device has made in
 * them; in a stage rounds, which end with an exchange through the host; in a round devices. */
typedef struct place {
    int stage, round, late, device;
    size_t index;
} place;

static int compare(const void *a, const void *b) {
    const place *x = a, *y = b;
    const int of_x[] = {x->stage, x->round, x->late, x->device};
    const int of_y[] = {y->stage, y->round, y->late, y->device};
    for (size_t i = 0; i < sizeof of_x / sizeof of_x[0]; i++) {
        if (of_x[i] != of_y[i]) {
            return of_x[i] < of_y[i] ? -1 : 1;
        }
    }
    return (x->index > y->index) - (x->index < y->index);
}

/* Does node i read what a node of another device has made since node `first`? */
static int crosses(const gw_node *nodes, size_t i, size_t first) {
    for (int k = 0; k < GW_MAX_IN; k++) {
        const gw_tensor *t = nodes[i].in[k];
        for (size_t j = first; t != NULL && t->device != nodes[i].device && j < i; j++) {
            if (nodes[j].out == t) {
                return 1;
            }
        }
    }
    return 0;
}

gw_status gw_exchange_order(gw_node *nodes, size_t n, int n_devices) {
    int exchanges = 0, stage = 0, round[GW_MAX_DEVICES] = {0};
    for (size_t i = 0; i < n; i++) {
        exchanges += nodes[i].op == GW_OP_EXCHANGE;
    }
    if (exchanges == 0 || n_devices > GW_MAX_DEVICES) {
        return GW_OK;
    }
    place *places = calloc(n, sizeof *places);
    gw_node *copy = malloc(n * sizeof *copy);
    if (places == NULL || copy == NULL) {
        free(places);
        free(copy);
        return gw_fail(GW_E_NOMEM, "plan", "no memory for the order of %zu nodes", n);
    }
    memcpy(copy, nodes, n * sizeof *copy);
    for (size_t i = 0, first = 0; i < n; i++) {
        int d = nodes[i].device, late = through_host(&nodes[i]);
        if (crosses(nodes, i, first)) {
            stage++;
            first = i;
            memset(round, 0, sizeof round);
        }
        places[i] = (place){.stage = stage, .round = round[d], .late = late, .device = d};
        places[i].index = i;
        round[d] += late;
    }
    qsort(places, n, sizeof *places, compare);
    for (size_t i = 0; i < n; i++) {
        nodes[i] = copy[places[i].index];
    }
    free(places);
    free(copy);
    return GW_OK;
}

/* ---- through the host ----------------------------------------------------------------------- */

/* Bytes of `columns` columns of a row. */
static size_t bytes_of(const gw_tensor *t, int64_t columns) {
    const gw_format *f = gw_format_of(t->fmt);
    return (size_t)columns / f->block_elems * f->block_bytes;
}

gw_status gw_exchange_room(const gw_node *nodes, size_t n, size_t *bytes) {
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t all;
        if (!through_host(&nodes[i])) {
            continue;
        }
        const gw_tensor *y = nodes[i].out; /* whole rows, and a share or rows that are added */
        GW_TRY(gw_matrix_bytes(y->fmt, (uint64_t)y->dim[0], (uint64_t)y->dim[1], &all));
        if (all > SIZE_MAX / 2) {
            return gw_fail(GW_E_OVERFLOW, "plan", "an exchange does not fit the address space");
        }
        *bytes = 2 * all > *bytes ? 2 * all : *bytes;
    }
    return GW_OK;
}

/* The share of one card to its columns of the whole rows. */
static void put_share(const gw_node *node, int64_t rows, const char *share, char *all) {
    const gw_exchange_args *a = &node->args.exchange;
    const int32_t *first = &a->first[a->card];
    size_t own = bytes_of(node->in[0], first[1] - first[0]);
    size_t part = bytes_of(node->out, a->first[a->cards]), at = bytes_of(node->out, first[0]);
    for (int64_t i = 0; i < rows * a->parts; i++) {
        memcpy(all + (size_t)i * part + at, share + (size_t)i * own, own);
    }
}

gw_status gw_exchange_run(const gw_plan_device *devices, const gw_node *nodes, int64_t rows,
                          void *room) {
    int cards = nodes[0].args.exchange.cards;
    const gw_tensor *y = nodes[0].out, *plus = nodes[0].in[1];
    rows = rows < y->dim[0] ? rows : y->dim[0];
    size_t bytes = (size_t)rows * bytes_of(y, y->dim[1]);
    char *all = room, *share = all + bytes;
    for (int c = 0; c < cards; c++) {
        const gw_plan_device *d = &devices[nodes[c].device];
        const gw_tensor *x = nodes[c].in[0];
        GW_TRY(d->backend->wait(d->device));
        GW_TRY(d->backend->read(x->buf, x->offset, share, (size_t)rows * bytes_of(x, x->dim[1])));
        put_share(&nodes[c], rows, share, all);
    }
    if (plus != NULL) { /* the same on every card */
        const gw_plan_device *d = &devices[nodes[0].device];
        float *sum = (float *)(void *)all, *more = (float *)(void *)share;
        GW_TRY(d->backend->read(plus->buf, plus->offset, more, bytes));
        for (int64_t i = 0; i < rows * y->dim[1]; i++) {
            sum[i] = sum[i] + more[i];
        }
    }
    for (int c = 0; c < cards; c++) {
        const gw_plan_device *d = &devices[nodes[c].device];
        GW_TRY(d->backend->write(nodes[c].out->buf, nodes[c].out->offset, all, bytes));
    }
    return GW_OK;
}
