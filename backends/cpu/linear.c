/* backends/cpu/linear.c - LINEAR and GLU: nodes to jobs of cpu/linear.h, pieces to threads. */
#include <stdint.h>
#include <string.h>

#include "backends/cpu/cpu.h"

enum {
    DECODE_BYTES = 4 << 20, /* weights handed out at a time, at most: long streams, few starts */
    PIECE_STRIPS = 2,       /* a piece: 32 rows, one block of what a GLU puts out             */
    LONG_ROW = 4096,        /* columns; quantized strips as long are read one by one anyway   */
    PREFILL_PIECES = 8,
    GLU_PREFILL_ROWS = 64, /* of gate and up, kept in scratch */
    GLU_DECODE_ROWS = 512,
    DECODE_TILE = 16,      /* decode rows of one call of a kernel */
    WIDE_BYTES = 128 << 10 /* weights handed out at a time where several calls read them */
};
#define NOT_PREPARED SIZE_MAX

const gw_cpu_linear_kernel *gw_cpu_kernel_for(const gw_cpu_row *row, const gw_tensor *w,
                                              gw_order order) {
    int strips = w->layout == GW_LAYOUT_PRIVATE, prefill = order == GW_ORDER_PREFILL;
    if (row->blas) {
        return gw_cpu_blas_kernel(w->fmt);
    }
    const gw_cpu_linear_kernel *k = gw_cpu_linear_find(w->fmt, row->level, prefill);
    if (k->strips != strips) {
        k = gw_cpu_linear_find(w->fmt, GW_CPU_SCALAR, prefill);
    }
    return k->strips == strips ? k : NULL;
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device,
                   int first, int end) {
    const gw_cpu_row *row = gw_cpu_row_of(kernel);
    gw_order order = node->args.linear.order;
    gw_fmt x = node->in[0]->fmt;
    if (node->w[first]->fmt != row->fmt ||
        (row->blas && (device->blas == NULL || order != GW_ORDER_PREFILL))) {
        return 0;
    }
    for (int i = first; i < end && node->w[i] != NULL; i++) {
        gw_fmt want = gw_format_of(node->w[i]->fmt)->is_float ? GW_FMT_F32 : GW_FMT_ACT8;
        if (x != want || gw_cpu_kernel_for(row, node->w[i], order) == NULL) {
            return 0;
        }
    }
    return 1;
}

static void fill_part(gw_cpu_part *part, const gw_cpu_launch *l, const gw_cpu_linear_kernel *kernel,
                      const gw_tensor *w, size_t column, const float *bias) {
    part->kernel = kernel;
    part->column = column;
    part->job.w = gw_cpu_data(w);
    part->job.m = (size_t)w->dim[0];
    part->job.k = (size_t)w->dim[1];
    part->job.x = l->in;
    part->job.x_stride = l->in_stride;
    part->job.bias = bias;
    part->strip_bytes = w->layout == GW_LAYOUT_PRIVATE ? gw_strip_bytes(w->fmt, part->job.k)
                                                       : GW_STRIP_ROWS * gw_cpu_row_stride(w);
    part->strips = (part->job.m + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS;
}

/* The smaller the last pieces, the less threads wait for one another. */
static size_t strips_of_piece(const gw_tensor *w, gw_order order) {
    return order != GW_ORDER_PREFILL && w->dim[1] >= LONG_ROW ? 1 : PIECE_STRIPS;
}

static size_t pieces_at_once(const gw_tensor *w, size_t strips, gw_order order, int wide) {
    size_t piece = strips * GW_STRIP_ROWS * gw_cpu_row_stride(w);
    size_t bytes = wide ? WIDE_BYTES : DECODE_BYTES;
    if (order == GW_ORDER_PREFILL) {
        return PREFILL_PIECES;
    }
    return piece < bytes ? bytes / piece : 1;
}

static size_t kernel_scratch(const gw_cpu_part *part, const gw_cpu_launch *l, int rows) {
    rows = l->u.linear.wide && rows > DECODE_TILE ? DECODE_TILE : rows;
    return part->kernel->scratch != NULL ? part->kernel->scratch(part->job.k, rows) : 0;
}

/* More decode rows than a kernel takes in one call: tile after tile over the same weights. */
static int is_wide(const struct gw_segment *segment, gw_order order) {
    return order == GW_ORDER_DECODE && segment->rows > DECODE_TILE;
}

/* Rows [at, at + DECODE_TILE) of a wide job, as far as there are. */
static gw_cpu_linear tile_of(const gw_cpu_linear *job, const gw_cpu_part *part, int at) {
    gw_cpu_linear tile = *job;
    size_t row = (size_t)at;
    tile.n = job->n - at < DECODE_TILE ? job->n - at : DECODE_TILE;
    tile.x = (const char *)job->x + row * job->x_stride;
    tile.y = job->y != NULL ? job->y + row * job->y_stride : NULL;
    tile.residual = job->residual != NULL ? job->residual + row * job->residual_stride : NULL;
    if (job->prepared != NULL) {
        tile.prepared = (const char *)job->prepared + row / DECODE_TILE * part->tile_bytes;
    }
    tile.next = at + DECODE_TILE < job->n ? NULL : job->next;
    return tile;
}

/* ---- preparing activations ------------------------------------------------------------------
 *
 * Once per launch: for a prompt, and for many rows of decode, by the whole team, in a launch of its
 * own; for few rows of decode by every thread for itself, which is sooner done than another
 * barrier. */

static int team_prepares(const gw_cpu_launch *l) { return l->u.linear.prefill || l->u.linear.wide; }

static void prepare_rows(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t first,
                         size_t end, char *place) {
    for (int i = 0; i < l->u.linear.n_parts; i++) {
        const gw_cpu_part *part = &l->u.linear.part[i];
        gw_cpu_linear job = part->job;
        job.n = gw_cpu_live(l, worker->step);
        job.x = worker->x;
        for (size_t at = first; part->prepares && at < end && l->u.linear.wide; at += DECODE_TILE) {
            gw_cpu_linear tile = tile_of(&job, part, (int)at);
            part->kernel->prepare(&tile, 0, (size_t)tile.n,
                                  place + part->prepared + at / DECODE_TILE * part->tile_bytes);
        }
        if (part->prepares && !l->u.linear.wide) {
            part->kernel->prepare(&job, first, end, place + part->prepared);
        }
    }
}

static void run_prepare(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), first, end;
    worker->x = l->in;
    while (gw_cpu_take(worker, (n + GW_PREPARE_ROWS - 1) / GW_PREPARE_ROWS, 1, &first, &end)) {
        prepare_rows(l, worker, first * GW_PREPARE_ROWS,
                     end * GW_PREPARE_ROWS < n ? end * GW_PREPARE_ROWS : n, worker->shared);
    }
}

/* Where the activations of every part will lie; parts of one kernel share them. */
static size_t place_prepared(gw_cpu_launch *l, int rows) {
    size_t total = 0;
    for (int i = 0; i < l->u.linear.n_parts; i++) {
        gw_cpu_part *part = &l->u.linear.part[i];
        part->prepared = NOT_PREPARED;
        if (part->kernel->prepare == NULL) {
            continue;
        }
        for (int j = 0; j < i; j++) {
            if (l->u.linear.part[j].kernel == part->kernel) {
                part->prepared = l->u.linear.part[j].prepared;
                part->tile_bytes = l->u.linear.part[j].tile_bytes;
            }
        }
        if (part->prepared == NOT_PREPARED) {
            int tiles = l->u.linear.wide ? (rows - 1) / DECODE_TILE + 1 : 1;
            size_t bytes = part->kernel->prepared(part->job.k, tiles > 1 ? DECODE_TILE : rows);
            part->tile_bytes = (bytes + GW_CACHE_LINE - 1) / GW_CACHE_LINE * GW_CACHE_LINE;
            part->prepares = 1;
            part->prepared = total;
            total += (size_t)tiles * part->tile_bytes;
        }
    }
    return total;
}

/* Complete a launch whose kernels need `scratch` bytes, and room for what they want prepared. */
static void finish_record(struct gw_segment *segment, const gw_kernel *kernel, const gw_node *node,
                          gw_cpu_launch *l, size_t scratch) {
    size_t bytes = place_prepared(l, segment->rows);
    l->u.linear.own = team_prepares(l) ? 0 : bytes;
    gw_cpu_need_scratch(segment, l->u.linear.own + scratch);
    if (team_prepares(l) && bytes > 0) {
        gw_cpu_need_shared(segment, bytes);
        *gw_cpu_append(segment, kernel, node) = *l;
        l->run = run_prepare;
    }
}

/* The norm or quantization of one row before a product is done by every thread for itself, too. */
static void prepare_own(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    worker->x = l->in;
    if (gw_cpu_joins(l, worker)) {
        worker->x = worker->id == 0 ? l->in : worker->row;
        l->before->row(l->before, worker, 0, worker->id == 0 ? l->before->out : worker->row);
    }
    if (!team_prepares(l)) {
        prepare_rows(l, worker, 0, (size_t)gw_cpu_live(l, worker->step), worker->scratch);
    }
}

static void take_prepared(gw_cpu_linear *job, const gw_cpu_part *part, const gw_cpu_launch *l,
                          const gw_cpu_worker *worker) {
    job->x = worker->x;
    job->streams = worker->streams;
    const char *place = team_prepares(l) ? worker->shared : worker->scratch;
    job->prepared = part->prepared != NOT_PREPARED ? place + part->prepared : NULL;
}

static void run_kernel(const gw_cpu_launch *l, const gw_cpu_worker *worker, const gw_cpu_part *part,
                       gw_cpu_linear *job, size_t first, size_t end, void *scratch) {
    take_prepared(job, part, l, worker);
    if (!l->u.linear.wide) {
        part->kernel->run(job, first, end, scratch);
        return;
    }
    for (int at = 0; at < job->n; at += DECODE_TILE) {
        gw_cpu_linear tile = tile_of(job, part, at);
        part->kernel->run(&tile, first, end, scratch);
    }
}

/* ---- pieces ----------------------------------------------------------------------------------
 *
 * Every thread has a share of neighbouring pieces, so that what it reads is one stream; who is done
 * with his own takes from another's. A thread takes the next piece before it runs the one it has,
 * so that kernels can ask for its weights early, and where a share begins is fixed, so that the
 * launch before can. */

enum { LOOK_AT = 8 }; /* other shares: the counters of a large team are far apart */

static size_t share_start(const gw_cpu_launch *l, const gw_cpu_worker *worker, int owner) {
    return l->u.linear.total * (size_t)owner / (size_t)worker->team;
}

/* The neighbour with most left; -1 when none has any. */
static int find_share(const gw_cpu_launch *l, const gw_cpu_worker *worker) {
    int best = -1;
    size_t most = 0;
    for (int i = 1; i <= LOOK_AT && i < worker->team; i++) {
        int owner = (worker->id + i) % worker->team;
        size_t start = share_start(l, worker, owner), end = share_start(l, worker, owner + 1);
        size_t left = gw_cpu_left(worker, owner, end - start);
        if (left > most) {
            most = left;
            best = owner;
        }
    }
    return best;
}

static int take_piece(const gw_cpu_launch *l, const gw_cpu_worker *worker, size_t *first,
                      size_t *end) {
    /* One stream is better long, and large tiles of a prompt too. */
    const size_t parts = worker->streams > 1 && !l->u.linear.prefill ? 4 : 2;
    for (int owner = worker->id; owner >= 0; owner = find_share(l, worker)) {
        size_t start = share_start(l, worker, owner);
        size_t total = share_start(l, worker, owner + 1) - start;
        if (gw_cpu_take_from(worker, owner, total, parts, l->u.linear.most, first, end)) {
            *first += start;
            *end += start;
            return 1;
        }
    }
    return 0;
}

/* The weights of piece `at`, counted through all stacked matrices (of a GLU: the gate's). */
static const char *weights_at(const gw_cpu_launch *l, size_t at) {
    size_t strip = at * l->u.linear.strips;
    int i = 0;
    while (i + 1 < l->u.linear.n_parts && strip >= l->u.linear.part[i].strips) {
        strip -= l->u.linear.part[i++].strips;
    }
    const gw_cpu_part *part = &l->u.linear.part[i];
    return (const char *)part->job.w + strip * part->strip_bytes;
}

static const char *weights_after(const gw_cpu_launch *l, const gw_cpu_worker *worker) {
    const gw_cpu_launch *next = l->u.linear.follow;
    return next != NULL ? weights_at(next, share_start(next, worker, worker->id)) : NULL;
}

/* run: pieces [first, end), then the thread reads at `next`. */
static void run_pieces(const gw_cpu_launch *l, gw_cpu_worker *worker,
                       void (*run)(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t first,
                                   size_t end, const char *next)) {
    size_t first, end, then, then_end;
    prepare_own(l, worker);
    int more = take_piece(l, worker, &first, &end);
    for (; more; first = then, end = then_end) {
        more = take_piece(l, worker, &then, &then_end);
        run(l, worker, first, end, more ? weights_at(l, then) : weights_after(l, worker));
    }
}

/* ---- LINEAR
 * ------------------------------------------------------------------------------------------- */

/* Strips of pieces [first, end), counted through all stacked weights. */
static void run_strips(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t first, size_t end,
                       const char *next) {
    size_t base = 0;
    first *= l->u.linear.strips;
    end *= l->u.linear.strips;
    for (int i = 0; i < l->u.linear.n_parts; i++) {
        const gw_cpu_part *part = &l->u.linear.part[i];
        size_t from = first > base ? first - base : 0;
        size_t to = end < base + part->strips ? end : base + part->strips;
        if (to > base + from) {
            gw_cpu_linear job = part->job;
            size_t stop = (to - base) * GW_STRIP_ROWS;
            job.n = gw_cpu_live(l, worker->step);
            job.y = (float *)(void *)l->out + part->column;
            job.y_stride = l->out_stride / sizeof(float);
            if (l->in1 != NULL) {
                job.residual = (const float *)(const void *)l->in1 + part->column;
                job.residual_stride = l->in1_stride / sizeof(float);
            }
            job.next = to < end && i + 1 < l->u.linear.n_parts ? part[1].job.w : next;
            run_kernel(l, worker, part, &job, from * GW_STRIP_ROWS, stop < job.m ? stop : job.m,
                       worker->scratch + l->u.linear.own);
        }
        base += part->strips;
    }
}

static void run_linear(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_pieces(l, worker, run_strips);
}

int gw_cpu_accepts_linear(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    return node->out->fmt == GW_FMT_F32 && accepts(kernel, node, device, 0, 3);
}

gw_status gw_cpu_record_linear(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    gw_order order = node->args.linear.order;
    size_t column = 0, scratch = 0, strips = 0;
    l->run = run_linear;
    l->u.linear.prefill = order == GW_ORDER_PREFILL;
    l->u.linear.wide = is_wide(segment, order);
    l->u.linear.strips = strips_of_piece(node->w[0], order);
    l->u.linear.most = pieces_at_once(node->w[0], l->u.linear.strips, order, l->u.linear.wide);
    for (int i = 0; i < 3 && node->w[i] != NULL; i++) {
        gw_cpu_part *part = &l->u.linear.part[l->u.linear.n_parts++];
        const float *bias;
        GW_TRY(gw_cpu_vector(segment, node->w[3 + i], &bias));
        fill_part(part, l, gw_cpu_kernel_for(gw_cpu_row_of(kernel), node->w[i], order), node->w[i],
                  column, bias);
        size_t need = kernel_scratch(part, l, segment->rows);
        scratch = need > scratch ? need : scratch;
        column += part->job.m;
        strips += part->strips;
    }
    l->u.linear.total = (strips + l->u.linear.strips - 1) / l->u.linear.strips;
    finish_record(segment, kernel, node, l, scratch);
    return GW_OK;
}

/* ---- GLU
 * -----------------------------------------------------------------------------------------------
 */

/* Columns of pieces [at, stop) of gate and up into scratch, then one row after the other out. */
static void run_tile(const gw_cpu_launch *l, gw_cpu_worker *worker, size_t at, size_t stop,
                     const char *next) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), tile = l->u.linear.tile;
    size_t first = at * GW_ACT_BLOCK, end = stop * GW_ACT_BLOCK;
    float *sums[2] = {(float *)(void *)(worker->scratch + l->u.linear.own), NULL};
    sums[1] = sums[0] + n * tile;
    void *scratch = sums[1] + n * tile;
    end = end < l->width ? end : l->width;
    for (int i = 0; i < 2; i++) {
        const gw_cpu_part *part = &l->u.linear.part[i];
        gw_cpu_linear job = part->job;
        job.w = (const char *)job.w + first / GW_STRIP_ROWS * part->strip_bytes;
        job.m -= first;
        job.n = (int)n;
        job.y = sums[i];
        job.y_stride = tile;
        job.next = i == 0
                       ? (const char *)part[1].job.w + first / GW_STRIP_ROWS * part[1].strip_bytes
                       : next;
        run_kernel(l, worker, part, &job, 0, end - first, scratch);
    }
    for (size_t i = 0; i < n; i++) {
        float *gate = sums[0] + i * tile, *up = sums[1] + i * tile;
        char *out = l->out + i * l->out_stride;
        if (!l->act8) {
            l->ops->silu_mul((float *)(void *)out + first, gate, up, end - first);
            continue;
        }
        l->ops->silu_mul(gate, gate, up, end - first);
        l->ops->encode((gw_act8 *)(void *)out + first / GW_ACT_BLOCK, gate,
                       (end - first) / GW_ACT_BLOCK);
    }
}

static void run_glu(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    run_pieces(l, worker, run_tile);
}

int gw_cpu_accepts_glu(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    const gw_tensor *out = node->out;
    int fits = out->fmt == GW_FMT_F32 ||
               (out->fmt == GW_FMT_ACT8 && out->dim[out->n_dim - 1] % GW_ACT_BLOCK == 0);
    return fits && accepts(kernel, node, device, 0, 2);
}

gw_status gw_cpu_record_glu(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    gw_order order = node->args.linear.order;
    size_t inner = 0;
    l->run = run_glu;
    l->u.linear.prefill = order == GW_ORDER_PREFILL;
    l->u.linear.strips = PIECE_STRIPS;
    l->u.linear.wide = is_wide(segment, order);
    l->u.linear.tile = team_prepares(l) ? GLU_PREFILL_ROWS : GLU_DECODE_ROWS;
    l->u.linear.most = l->u.linear.tile / GW_ACT_BLOCK;
    l->u.linear.total = (l->width + GW_ACT_BLOCK - 1) / GW_ACT_BLOCK;
    l->u.linear.n_parts = 2;
    for (int i = 0; i < 2; i++) {
        gw_cpu_part *part = &l->u.linear.part[i];
        fill_part(part, l, gw_cpu_kernel_for(gw_cpu_row_of(kernel), node->w[i], order), node->w[i],
                  0, NULL);
        size_t need = kernel_scratch(part, l, segment->rows);
        inner = need > inner ? need : inner;
    }
    finish_record(segment, kernel, node, l,
                  2 * (size_t)segment->rows * l->u.linear.tile * sizeof(float) + inner +
                      GW_CACHE_LINE);
    return GW_OK;
}

int gw_cpu_joins_linear(const gw_cpu_launch *before, const gw_cpu_launch *l) {
    return before->row != NULL && (l->run == run_linear || l->run == run_glu) && !team_prepares(l);
}

void gw_cpu_link_linear(struct gw_segment *segment) {
    const gw_cpu_launch *next = NULL;
    for (int round = 0; round < 2;
         round++) { /* the last one is followed by the next pass's first */
        for (size_t i = segment->n; i-- > 0;) {
            gw_cpu_launch *l = &segment->launches[i];
            if (l->run == run_linear || l->run == run_glu) {
                l->u.linear.follow = l->u.linear.prefill ? NULL : next;
                next = l;
            }
        }
    }
}
