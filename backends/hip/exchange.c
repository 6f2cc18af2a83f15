/* backends/hip/exchange.c - cards that reach one another's memory, and EXCHANGE over it. */
#include <stdlib.h>
#include <string.h>

#include "backends/hip/shape.h"
#include "core/base/clock.h"
#include "kernels_hip/act8_params.h"
#include "kernels_hip/linear/linear_params.h"
#include "kernels_hip/rows/exchange_params.h"

_Static_assert((int)GW_SENDS_CARDS == (int)GW_MAX_CARDS, "as many cards on both sides");

enum { ALREADY_ENABLED = 704, FINE_GRAINED = 1 };

/* Receive buffers, one on each card, all of one size. Exchanges of many rows use separate buffers,
 * followed by flags, since their words carry no sequence number. Outgrown buffers are kept because
 * captured graphs hold their addresses; every card picks the first that is large enough, hence the
 * same one. */
typedef struct arrivals {
    int64_t cell;  /* pairs of a card and half (sends_params.h)                   */
    int64_t flags; /* of many rows: so many of a card and half; else 0, for a word
                    * must not be taken for a number                              */
    gw_hip_ptr at[GW_MAX_CARDS];
} arrivals;

struct gw_link {
    int n;
    struct gw_device *card[GW_MAX_CARDS];
    uint32_t exchanges[GW_MAX_CARDS];         /* that each card was given so far; modulo 2^32 */
    int32_t *lost;                            /* pinned */
    struct gw_segment *waiting[GW_MAX_CARDS]; /* for launches of the others; or NULL */
    int way[GW_MAX_CARDS];
    arrivals *list;
    size_t n_list;
};

/* ---- linking --------------------------------------------------------------------------------- */

static gw_status reach(struct gw_device *from, const struct gw_device *to) {
    const gw_hip_driver *d = from->driver;
    int can = 0;
    if (to->driver != d || d->CanPeer == NULL ||
        (d->nvidia ? d->PeerContext == NULL : d->PeerDevice == NULL) ||
        d->CanPeer(&can, from->id, to->id) != GW_HIP_OK || !can) {
        return gw_fail(GW_E_UNSUPPORTED, "hip", "%s does not reach the memory of %s", from->name,
                       to->name);
    }
    GW_TRY(gw_hip_enter(from));
    gw_hip_error error = d->nvidia ? d->PeerContext(to->context, 0) : d->PeerDevice(to->id, 0);
    return error == ALREADY_ENABLED ? GW_OK : gw_hip_check(d, error, "opening a card to another");
}

/* Zeroed memory that others write into while kernels run. */
static gw_status shared_new(struct gw_device *device, size_t bytes, gw_hip_ptr *out) {
    const gw_hip_driver *d = device->driver;
    GW_TRY(gw_hip_enter(device));
    if (d->AllocFine != NULL && d->AllocFine(out, bytes, FINE_GRAINED) == GW_HIP_OK) {
        device->reserved += bytes;
    } else {
        GW_TRY(gw_hip_memory_new(device, bytes, out));
    }
    GW_TRY(gw_hip_check(d, d->Fill(*out, 0, bytes, device->stream), "clearing memory"));
    return gw_hip_wait(device);
}

static size_t bytes_of(const struct gw_link *link, const arrivals *a) {
    size_t words = 2 * (size_t)a->cell + 4 * (size_t)a->flags;
    return 2 * (size_t)link->n * words * sizeof(uint32_t);
}

void gw_hip_unlink(struct gw_link *link) {
    if (link == NULL) {
        return;
    }
    for (int c = 0; c < link->n; c++) {
        (void)gw_hip_enter(link->card[c]);
        link->card[c]->driver->StreamWait(link->card[c]->stream);
    }
    for (int c = 0; c < link->n; c++) {
        (void)gw_hip_enter(link->card[c]);
        for (size_t i = 0; i < link->n_list; i++) {
            gw_hip_memory_free(link->card[c], link->list[i].at[c], bytes_of(link, &link->list[i]));
        }
        link->card[c]->link = NULL;
    }
    if (link->lost != NULL) {
        link->card[0]->driver->HostFree(link->lost);
    }
    free(link->list);
    free(link);
}

gw_status gw_hip_link(struct gw_device *const *devices, int n, struct gw_link **out) {
    struct gw_link *link = calloc(1, sizeof *link);
    void *lost = NULL;
    gw_status status = GW_OK;
    if (link == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a link");
    }
    link->n = n;
    memcpy(link->card, devices, (size_t)n * sizeof(struct gw_device *));
    for (int i = 0; i < n * n && status == GW_OK; i++) {
        status = i / n != i % n ? reach(link->card[i / n], link->card[i % n]) : GW_OK;
    }
    for (int c = 0; c < n && status == GW_OK; c++) {
        link->card[c]->link = link;
    }
    if (status == GW_OK) {
        status = gw_hip_enter(link->card[0]);
    }
    if (status == GW_OK) {
        status = gw_hip_host_new(link->card[0], sizeof *link->lost, &lost);
    }
    link->lost = lost;
    if (status != GW_OK) {
        gw_hip_unlink(link);
        return status;
    }
    *link->lost = 0;
    *out = link;
    return GW_OK;
}

int gw_hip_link_lost(const struct gw_device *device) {
    return device->link != NULL && *(const volatile int32_t *)device->link->lost != 0;
}

/* Where cells of so many pairs arrive. A unit of many rows is two pairs and more, and a chunk of
 * units has a flag of each card. */
static gw_status arrivals_for(struct gw_link *link, int64_t cell, int many, const arrivals **out) {
    for (size_t i = 0; i < link->n_list; i++) {
        if (link->list[i].cell >= cell && (link->list[i].flags > 0) == many) {
            *out = &link->list[i];
            return GW_OK;
        }
    }
    arrivals *list = realloc(link->list, (link->n_list + 1) * sizeof *list);
    if (list == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for an exchange");
    }
    link->list = list;
    arrivals *a = &list[link->n_list++];
    *a = (arrivals){.cell = cell,
                    .flags = many ? link->n * cell / (2 * GW_EXCHANGE_THREADS) + 1 : 0};
    for (int c = 0; c < link->n; c++) {
        GW_TRY(shared_new(link->card[c], bytes_of(link, a), &a->at[c]));
    }
    *out = a;
    return GW_OK;
}

/* ---- launching ------------------------------------------------------------------------------- */

static int card_of(const struct gw_link *link, const struct gw_device *device) {
    int c = 0;
    while (link->card[c] != device) {
        c++;
    }
    return c;
}

/* All that waits: a part of each card, then the next part of each. A driver that makes the host
 * wait for room in one card's queue then waits for launches whose counterparts are all given. */
static gw_status launch_all(struct gw_link *link) {
    struct gw_segment *waiting[GW_MAX_CARDS];
    gw_status status = GW_OK;
    size_t parts = 0;
    memcpy(waiting, link->waiting, sizeof waiting);
    memset(link->waiting, 0, sizeof link->waiting);
    for (int c = 0; c < link->n; c++) {
        size_t own = waiting[c] != NULL ? waiting[c]->n_parts : 0;
        parts = own > parts ? own : parts;
    }
    for (size_t part = 0; part < parts && status == GW_OK; part++) {
        for (int c = 0; c < link->n && status == GW_OK; c++) {
            if (waiting[c] != NULL && part < waiting[c]->n_parts) {
                status = gw_hip_launch_part(waiting[c], link->way[c], part);
            }
        }
    }
    for (int c = 0; c < link->n && status == GW_OK; c++) {
        status = waiting[c] != NULL ? gw_hip_launch_end(waiting[c], link->way[c]) : GW_OK;
    }
    return status;
}

static int32_t exchanges(const struct gw_segment *segment) {
    int32_t n = 0;
    for (size_t i = 0; i < segment->n; i++) {
        n += segment->launches[i].exchanges;
    }
    return n;
}

int32_t gw_hip_count_exchanges(const struct gw_segment *segment) {
    struct gw_link *link = segment->device->link;
    if (link == NULL) {
        return 0;
    }
    int c = card_of(link, segment->device);
    uint32_t before = link->exchanges[c];
    link->exchanges[c] += (uint32_t)exchanges(segment);
    return (int32_t)before;
}

gw_status gw_hip_launch_group(struct gw_segment *segment, int way) {
    struct gw_link *link = segment->device->link;
    if (link == NULL || exchanges(segment) == 0) {
        for (size_t part = 0; part < segment->n_parts; part++) {
            GW_TRY(gw_hip_launch_part(segment, way, part));
        }
        return gw_hip_launch_end(segment, way);
    }
    int c = card_of(link, segment->device), all = 1;
    link->waiting[c] = segment;
    link->way[c] = way;
    for (c = 0; c < link->n; c++) {
        all &= link->waiting[c] != NULL;
    }
    return all ? launch_all(link) : GW_OK;
}

gw_status gw_hip_launch_waiting(const struct gw_device *device) {
    struct gw_link *link = device->link;
    return link->waiting[card_of(link, device)] != NULL ? launch_all(link) : GW_OK;
}

/* ---- a word alone ---------------------------------------------------------------------------- */

/* The emulator runs a block that waits again from its beginning, once. */
enum { FLAG_TURNS = 1000, FLAG_EMULATED = 1, FLAG_TRIALS = 5 };

/* Two cards hand a word back and forth; seconds of one way. */
static gw_status time_flag(struct gw_link *link, const arrivals *at, int number, double *seconds) {
    struct gw_exchange_params p = {
        .lost = (uint64_t)(uintptr_t)link->lost,
        .to = {.arrives = {at->at[0], at->at[1]}, .cell = at->cell, .cards = 2, .index = number},
        .width = (int32_t)at->cell / 2};
    gw_hip_launch l[2];
    for (int c = 0; c < 2; c++) { /* code is there before a card waits for another */
        l[c] = (gw_hip_launch){.kernel = "gw_exchange_flag",
                               .grid = {1, 1, 1},
                               .block = {GW_EXCHANGE_THREADS, 1, 1},
                               .params = &p};
        GW_TRY(gw_hip_enter(link->card[c]));
        GW_TRY(gw_hip_find(link->card[c], l[c].kernel, &l[c].function));
    }
    double start = gw_seconds_now();
    for (int c = 0; c < 2; c++) {
        p.to.card = c;
        GW_TRY(gw_hip_enter(link->card[c]));
        GW_TRY(gw_hip_check(link->card[c]->driver,
                            gw_hip_start(link->card[c], &l[c], 0, GW_HIP_ATTEND_MANY),
                            l[c].kernel));
    }
    for (int c = 0; c < 2; c++) {
        GW_TRY(gw_hip_enter(link->card[c]));
        GW_TRY(gw_hip_wait(link->card[c]));
    }
    *seconds = (gw_seconds_now() - start) / (2 * p.width);
    return GW_OK;
}

gw_status gw_hip_flag(struct gw_link *link, double *seconds) {
    int turns = link->card[0]->driver->emulated ? FLAG_EMULATED : FLAG_TURNS;
    arrivals at = {.cell = 2 * turns};
    gw_status status = GW_OK;
    double best = 0.0, own = 0.0;
    if (link->n < 2) {
        return gw_fail(GW_E_UNSUPPORTED, "hip", "a word goes from one card to another");
    }
    for (int c = 0; c < 2 && status == GW_OK; c++) {
        status = shared_new(link->card[c], bytes_of(link, &at), &at.at[c]);
    }
    for (int i = 1; i <= FLAG_TRIALS && status == GW_OK; i++) {
        status = time_flag(link, &at, i, &own);
        best = i == 1 || own < best ? own : best;
    }
    for (int c = 0; c < 2; c++) {
        (void)gw_hip_enter(link->card[c]);
        gw_hip_memory_free(link->card[c], at.at[c], bytes_of(link, &at));
    }
    *seconds = status == GW_OK ? best : *seconds;
    return status;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* What is launched on `later` from here on begins behind what was launched on `before`. */
static gw_status join(struct gw_device *before, struct gw_device *later) {
    const gw_hip_driver *d = before->driver;
    GW_TRY(gw_hip_enter(before));
    if (before->mark == NULL) {
        GW_TRY(gw_hip_check(d, d->EventNew(&before->mark, GW_HIP_EVENT_NO_TIMING), "a mark"));
    }
    gw_hip_error error = d->EventRecord(before->mark, before->stream);
    GW_TRY(error == GW_HIP_OK ? gw_hip_enter(later) : gw_hip_lose(before, error, "a mark was set"));
    error = d->StreamAwait(later->stream, before->mark, 0);
    return error == GW_HIP_OK ? GW_OK : gw_hip_lose(later, error, "joining another card");
}

/* Through the host, where the drivers differ or cannot. */
static gw_status copy_by_host(struct gw_buffer *dst, size_t at, const struct gw_buffer *src,
                              size_t from, size_t bytes) {
    void *between = malloc(bytes > 0 ? bytes : 1);
    if (between == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a copy of %zu bytes", bytes);
    }
    gw_status status = gw_hip_read(src, from, between, bytes);
    status = status == GW_OK ? gw_hip_write(dst, at, between, bytes) : status;
    free(between);
    return status;
}

gw_status gw_hip_copy(struct gw_buffer *dst, size_t at, const struct gw_buffer *src, size_t from,
                      size_t bytes) {
    struct gw_device *a = src->device, *b = dst->device;
    const gw_hip_driver *d = a->driver;
    if (b->driver != d || d->StreamAwait == NULL ||
        (d->nvidia ? d->CopyContext == NULL : d->CopyDevice == NULL)) {
        return copy_by_host(dst, at, src, from, bytes);
    }
    if (a->lost || b->lost) {
        return gw_fail(GW_E_DEVICE, "hip", "%s was lost earlier", a->lost ? a->name : b->name);
    }
    if (at > dst->bytes || bytes > dst->bytes - at || from > src->bytes ||
        bytes > src->bytes - from) {
        return gw_fail(GW_E_BOUNDS, "hip", "a copy of %zu bytes beyond a buffer", bytes);
    }
    GW_TRY(join(a, b));
    b->landed = NULL;
    gw_hip_error error =
        d->nvidia
            ? d->CopyContext(dst->at + at, b->context, src->at + from, a->context, bytes, b->stream)
            : d->CopyDevice(dst->at + at, b->id, src->at + from, a->id, bytes, b->stream);
    GW_TRY(error == GW_HIP_OK ? GW_OK : gw_hip_lose(b, error, "copying from another card"));
    return join(b, a); /* what is copied stays until it is */
}

/* ---- EXCHANGE -------------------------------------------------------------------------------- */

/* A checking device waits for every launch, which would wait for launches still to come. */
static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    const gw_exchange_args *a = &node->args.exchange;
    int grain = node->out->fmt == GW_FMT_F32 ? 4 : GW_ACT_BLOCK;
    int fits = a->link != NULL && !device->check && a->cards == a->link->n &&
               node->out->fmt == *(const gw_fmt *)kernel->state;
    for (int c = 0; fits && c <= a->cards; c++) {
        int is_end = c == a->cards && a->parts == 1 && grain == 4;
        fits = a->first[c] % grain == 0 || is_end;
    }
    return fits && a->link->card[a->card] == device;
}

/* Words of a row that card c sends, in whole teams (gw_pair_of of kernels_hip/sends.h). */
static int64_t words_of(const gw_node *node, int c, int grain) {
    const gw_exchange_args *a = &node->args.exchange;
    int64_t columns = (int64_t)a->parts * (a->first[c + 1] - a->first[c]);
    int64_t units = grain == 1 ? (columns + 3) / 4 : columns / grain;
    int64_t each = grain == 1 ? 4 : GW_ACT_WORDS;
    return (units + GW_LANES - 1) / GW_LANES * GW_LANES * each;
}

/* ---- what the product in front does of it ---------------------------------------------------- */

/* Has what a product reads nothing in common with what an exchange writes? Squares are fewer bytes
 * than x. */
static int is_apart(const struct gw_segment *segment, const struct gw_linear_params *from,
                    const struct gw_exchange_params *p, const gw_node *node) {
    size_t rows = (size_t)segment->rows, x_rows = (size_t)from->x_rows, out_bytes;
    size_t width = gw_hip_width(node->out), blocks = (size_t)p->left_blocks;
    if (from->columns != 0 || /* then x has another form */
        gw_matrix_bytes(node->out->fmt, rows, width, &out_bytes) != GW_OK) {
        return 0;
    }
    const struct {
        gw_hip_ptr at;
        size_t bytes;
    } read[] = {{from->x, x_rows * (size_t)from->row_bytes},
                {from->squares, x_rows * (size_t)from->row_bytes},
                {from->residual, rows * (size_t)from->stride * sizeof(float)}},
      written[] = {{p->out, out_bytes},
                   {p->left, rows * blocks * GW_ACT_BLOCK * sizeof(float)},
                   {p->left_squares, rows * width / GW_ACT_BLOCK * sizeof(float)}};
    for (int i = 0; i < 9; i++) {
        int r = i / 3, w = i % 3;
        if (read[r].at != 0 && written[w].at != 0 &&
            read[r].at < written[w].at + written[w].bytes &&
            written[w].at < read[r].at + read[r].bytes) {
            return 0;
        }
    }
    return 1;
}

/* Is node `front` independent of what this exchange writes? Then the exchange needs no barrier
 * against the launch before it: a peer's data word comes only after that peer has finished reading
 * the buffer. */
static int is_early(const struct gw_segment *segment, const gw_node *front,
                    const gw_hip_launch *launch, const struct gw_exchange_params *p,
                    const gw_node *node) {
    if (front->op != GW_OP_ATTENTION) {
        return is_apart(segment, launch->params, p, node);
    }
    int early = p->behind == 0, turns = front > segment->nodes && front[-1].op == GW_OP_ROPE_KV;
    for (const gw_node *n = front - turns; n <= front; n++) {
        for (int i = 0; i < GW_MAX_IN; i++) {
            early &= n->in[i] == NULL || n->in[i]->buf != node->out->buf ||
                     gw_hip_disjoint(n->in[i], node->out);
        }
    }
    return early;
}

/* Where launches in front make all of this card's share, they send it, whichever way they are. */
static void let_front_send(struct gw_segment *segment, const gw_node *node,
                           struct gw_exchange_params *p) {
    const gw_exchange_args *a = &node->args.exchange;
    int own = a->parts * (a->first[a->card + 1] - a->first[a->card]), ways = 0, needed = 0;
    size_t first = segment->n;
    while (first > 0 &&
           segment->launches[first - 1].node == segment->launches[segment->n - 1].node) {
        first--;
        ways |= segment->launches[first].sends_at > 0 ? segment->launches[first].ways : 0;
    }
    for (int way = 0; way < GW_HIP_ATTEND_KINDS; way++) {
        needed |= (way == GW_HIP_ATTEND_MANY || segment->most_pages[way] > 0) << way;
    }
    if (!segment->device->send || own == 0 || own % 4 != 0 || (ways & needed) != needed) {
        return;
    }
    const gw_node *front = &segment->nodes[segment->launches[first].node];
    if (front->out != node->in[0]) {
        return;
    }
    p->sent = 1;
    p->early = segment->device->early;
    for (size_t i = first; i < segment->n; i++) {
        gw_hip_launch *l = &segment->launches[i];
        if (l->sends_at > 0) {
            *(struct gw_sends *)((unsigned char *)l->params + l->sends_at) = p->to;
            p->early = p->early && is_early(segment, front, l, p, node);
        }
    }
}

gw_status gw_hip_record_exchange(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_exchange_args *a = &node->args.exchange;
    int is_float = node->out->fmt == GW_FMT_F32, grain = is_float ? 1 : GW_ACT_BLOCK;
    const arrivals *at = NULL;
    int64_t most = 0;
    (void)kernel;
    for (int c = 0; c < a->cards; c++) {
        int64_t words = words_of(node, c, grain);
        most = words > most ? words : most;
    }
    int many = segment->rows > GW_DECODE_MAX && segment->device->flags;
    /* Without numbers half as many words, those of a block in twelve (exchange.hip). */
    most = !many ? most : is_float ? most / 2 : most / GW_ACT_WORDS * 6;
    GW_TRY(arrivals_for(a->link, most * segment->rows, many, &at));
    GW_TRY(gw_hip_enter(segment->device));
    struct gw_exchange_params p = {.step = gw_hip_step(segment),
                                   .share = gw_hip_at(node->in[0]),
                                   .out = gw_hip_at(node->out),
                                   .plus = node->in[1] != NULL ? gw_hip_at(node->in[1]) : 0,
                                   .lost = (uint64_t)(uintptr_t)a->link->lost,
                                   .to = {.cell = at->cell,
                                          .cards = a->cards,
                                          .card = a->card,
                                          .index = exchanges(segment) + 1},
                                   .parts = a->parts,
                                   .width = (int32_t)gw_hip_width(node->out) / grain,
                                   .form = gw_hip_form(segment, node->out)};
    for (int c = 0; c <= a->cards; c++) {
        p.first[c] = a->first[c] / grain;
        p.to.arrives[c < a->cards ? c : 0] = at->at[c < a->cards ? c : 0];
    }
    if (segment->behind != NULL) {
        p.behind = gw_hip_at(segment->behind->w[0]);
        GW_TRY(gw_hip_norm_memory(segment, segment->behind, &p.left, &p.left_squares, &p.left_form,
                                  &p.left_blocks));
    }
    if (many) {
        p.flags = at->flags;
    } else {
        let_front_send(segment, node, &p);
    }
    const char *const kernels[] = {"gw_exchange_act8", "gw_exchange_f32", "gw_exchange_many_act8",
                                   "gw_exchange_many_f32"};
    size_t units = (size_t)segment->rows * (size_t)p.width / (is_float ? 4 : 1);
    units += GW_EXCHANGE_THREADS; /* rows are whole teams */
    GW_TRY(gw_hip_record(segment, node, kernels[2 * many + is_float],
                         gw_hip_groups(units, GW_EXCHANGE_THREADS), 1, 1, GW_EXCHANGE_THREADS, 1, 1,
                         0, &p, sizeof p));
    segment->launches[segment->n - 1].exchanges = 1;
    segment->launches[segment->n - 1].fill = 1; /* all blocks run at once: they wait for others' */
    return GW_OK;
}

static const gw_fmt floats = GW_FMT_F32, blocks = GW_FMT_ACT8;
const gw_kernel gw_hip_exchange_kernels[] = {
    {GW_OP_EXCHANGE, "hip.exchange.f32", accepts, gw_hip_record_exchange, &floats, 1},
    {GW_OP_EXCHANGE, "hip.exchange.act8", accepts, gw_hip_record_exchange, &blocks, 1},
    {.name = NULL},
};
