/* backends/cpu/experts.c - EXPERTS_GLU and EXPERTS_DOWN: rows gathered by expert, then the row
 * kernels of LINEAR over that expert's rows. Who shares an expert with whom changes no bit.
 */
#include <stdint.h>
#include <string.h>

#include "backends/cpu/cpu.h"

enum {
    DECODE_CHUNK = 16, /* activation rows of a call, at most */
    PREFILL_CHUNK = 64,
    TILE = 64, /* columns of a piece */
    GLU_DECODE_TILE = 512,
    EDGE = 2 * GW_STRIP_ROWS /* more rows of a matrix, where an expert begins inside a strip */
};

/* Rows of a step by the expert that they chose, in the order of experts and then of rows. */
typedef struct lists {
    size_t active;    /* experts that somebody chose           */
    uint32_t *expert; /* [active]                              */
    uint32_t *first;  /* [active + 1] places in choice         */
    uint32_t *choice; /* row * used + place in the row's route */
} lists;

static size_t list_bytes(const gw_experts_args *a, size_t rows) {
    size_t words = 3 * (size_t)a->experts + 2 + rows * (size_t)a->used;
    return (words * sizeof(uint32_t) + GW_CACHE_LINE - 1) / GW_CACHE_LINE * GW_CACHE_LINE;
}

static const float *route_of(const gw_cpu_launch *l, size_t row) {
    return (const float *)(const void *)(l->in1 + row * l->in1_stride);
}

static size_t expert_at(const gw_cpu_launch *l, size_t row, size_t place) {
    float x = route_of(l, row)[place];
    return x > 0.0f && x < (float)l->u.experts.args.experts ? (size_t)x : 0;
}

/* Every thread makes its own: sooner done than a barrier. */
static lists make_lists(const gw_cpu_launch *l, size_t n, char *scratch) {
    size_t experts = (size_t)l->u.experts.args.experts, used = (size_t)l->u.experts.args.used;
    lists s = {.expert = (uint32_t *)(void *)scratch};
    uint32_t *at = s.expert + experts, sum = 0;
    s.first = at + experts;
    s.choice = s.first + experts + 1;
    memset(at, 0, experts * sizeof *at);
    for (size_t i = 0; i < n * used; i++) {
        at[expert_at(l, i / used, i % used)]++;
    }
    for (size_t x = 0; x < experts; x++) {
        uint32_t count = at[x];
        at[x] = sum;
        if (count > 0) {
            s.expert[s.active] = (uint32_t)x;
            s.first[s.active++] = sum;
        }
        sum += count;
    }
    s.first[s.active] = sum;
    for (size_t i = 0; i < n * used; i++) {
        s.choice[at[expert_at(l, i / used, i % used)]++] = (uint32_t)i;
    }
    return s;
}

/* ---- one call of a row kernel
 * ------------------------------------------------------------------------------------------- */

/* The activations that some rows bring to one expert, and what a kernel has made of them. */
typedef struct inputs {
    const char *x;
    size_t stride;
    int n;
    const gw_cpu_linear_kernel *made[2]; /* whose prepared form lies there */
    char *prepared[2];
    const uint32_t *choice; /* [n] */
} inputs;

static size_t input_bytes(const gw_cpu_launch *l) { return l->in_stride / l->u.experts.places; }

/* Rows choice[0 .. n) next to one another; a single one stays where it is. */
static void gather(const gw_cpu_launch *l, inputs *in, const uint32_t *choice, size_t n,
                   char *room) {
    size_t used = (size_t)l->u.experts.args.used, bytes = input_bytes(l);
    for (size_t i = 0; i < n; i++) {
        size_t place = l->u.experts.places > 1 ? choice[i] % used : 0;
        const char *x = l->in + choice[i] / used * l->in_stride + place * bytes;
        if (n == 1) {
            in->x = x;
        } else {
            memcpy(room + i * bytes, x, bytes);
            in->x = room;
        }
    }
    in->stride = bytes;
    in->n = (int)n;
    in->choice = choice;
    in->made[0] = in->made[1] = NULL;
}

/* Sums of rows [first, end) of one matrix, counted through all experts, for the rows of `in`:
 * y [n, stride], row `first` at y + the offset that is returned. */
static size_t multiply(const gw_cpu_launch *l, const gw_cpu_worker *worker, int which, inputs *in,
                       size_t first, size_t end, float *y, size_t stride, const void *next) {
    const gw_cpu_experts_part *part = &l->u.experts.part[which];
    size_t base = part->strips ? first / GW_STRIP_ROWS * GW_STRIP_ROWS : first;
    gw_cpu_linear job = {.w = part->w + base * part->row_bytes,
                         .m = part->m - base,
                         .k = l->u.experts.k,
                         .x = in->x,
                         .x_stride = in->stride,
                         .n = in->n,
                         .y = y,
                         .y_stride = stride,
                         .streams = worker->streams,
                         .next = next};
    size_t stop = part->strips ? (end - base + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS * GW_STRIP_ROWS
                               : end - base;
    job.m = part->strips ? job.m : stop; /* rows as stored: the last need not fill a strip */
    int from = which == 1 && l->u.experts.part[0].kernel == part->kernel ? 0 : which;
    if (part->kernel->prepare != NULL) {
        if (in->made[from] != part->kernel) {
            part->kernel->prepare(&job, 0, (size_t)in->n, in->prepared[from]);
            in->made[from] = part->kernel;
        }
        job.prepared = in->prepared[from];
    }
    part->kernel->run(&job, 0, stop < job.m ? stop : job.m, worker->scratch + l->u.experts.inner);
    return first - base;
}

/* ---- EXPERTS_GLU
 * ---------------------------------------------------------------------------------------------- */

/* Sums behind their gate and bias: y [count]. */
static void finish_sums(const gw_cpu_launch *l, int which, float *y, size_t count, size_t first,
                        const float *gate) {
    const float *bias = l->u.experts.part[which].bias;
    for (size_t i = 0; i < count && gate != NULL; i++) {
        y[i] = y[i] * *gate;
    }
    for (size_t i = 0; i < count && bias != NULL; i++) {
        y[i] = y[i] + bias[first + i];
    }
}

/* Columns [at, stop) of expert x for the rows of `in`. */
static void glu_tile(const gw_cpu_launch *l, gw_cpu_worker *worker, inputs *in, size_t x, size_t at,
                     size_t stop) {
    const gw_experts_args *a = &l->u.experts.args;
    size_t f = l->u.experts.rows, used = (size_t)a->used, count = stop - at;
    size_t first = x * f + at, stride = GLU_DECODE_TILE + EDGE, offset[2] = {0, 0};
    float *sums[2] = {(float *)(void *)(worker->scratch + l->u.experts.sums), NULL};
    stride = l->u.experts.chunk == DECODE_CHUNK ? stride : TILE + EDGE;
    sums[1] = sums[0] + l->u.experts.chunk * stride;
    for (int p = 0; p < l->u.experts.n_parts; p++) {
        const gw_cpu_experts_part *next = &l->u.experts.part[1];
        const char *weights =
            p == 0 && l->u.experts.n_parts == 2
                ? next->w + first / GW_STRIP_ROWS * GW_STRIP_ROWS * next->row_bytes
                : NULL;
        offset[p] = multiply(l, worker, p, in, first, first + count, sums[p], stride, weights);
    }
    gw_cpu_act act = {.kind = a->act.kind, .limit = a->act.limit, .alpha = a->act.alpha};
    for (size_t i = 0; i < (size_t)in->n; i++) {
        size_t row = in->choice[i] / used, place = in->choice[i] % used;
        const float *by = a->gate_input ? route_of(l, row) + used + place : NULL;
        float *gate = sums[0] + i * stride + offset[0], *up = sums[1] + i * stride + offset[1];
        char *out = l->out + row * l->out_stride;
        finish_sums(l, 0, gate, count, first, by);
        if (l->u.experts.n_parts == 2) {
            finish_sums(l, 1, up, count, first, by);
        }
        float *y = l->act8 ? gate : (float *)(void *)out + place * f + at;
        l->ops->act(y, gate, l->u.experts.n_parts == 2 ? up : NULL, count, &act);
        if (l->act8) {
            l->ops->encode((gw_act8 *)(void *)out + (place * f + at) / GW_ACT_BLOCK, gate,
                           count / GW_ACT_BLOCK);
        }
    }
}

static inputs no_inputs(const gw_cpu_launch *l, const gw_cpu_worker *worker) {
    char *at = worker->scratch + l->u.experts.lists + l->u.experts.chunk * input_bytes(l);
    at += (GW_CACHE_LINE - (uintptr_t)at % GW_CACHE_LINE) % GW_CACHE_LINE;
    return (inputs){.prepared = {at, at + l->u.experts.prepared}};
}

/* Pieces are columns of experts that somebody chose. */
static void run_experts_glu(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), f = l->u.experts.rows, first, end;
    size_t tile = l->u.experts.chunk == DECODE_CHUNK ? GW_ACT_BLOCK : TILE;
    size_t most = l->u.experts.chunk == DECODE_CHUNK ? GLU_DECODE_TILE / GW_ACT_BLOCK : 1;
    size_t tiles = (f + tile - 1) / tile;
    lists s = make_lists(l, n, worker->scratch);
    inputs in = no_inputs(l, worker);
    while (gw_cpu_take(worker, s.active * tiles, most, &first, &end)) {
        for (size_t x = first / tiles; x * tiles < end; x++) {
            size_t from = first > x * tiles ? first - x * tiles : 0;
            size_t to = end < (x + 1) * tiles ? end - x * tiles : tiles;
            size_t stop = to * tile < f ? to * tile : f;
            for (size_t c = s.first[x]; c < s.first[x + 1]; c += l->u.experts.chunk) {
                size_t left = s.first[x + 1] - c;
                left = left < l->u.experts.chunk ? left : l->u.experts.chunk;
                if (n > 1 || in.n == 0) { /* one row brings every expert the same */
                    gather(l, &in, s.choice + c, left, worker->scratch + l->u.experts.lists);
                }
                in.choice = s.choice + c;
                glu_tile(l, worker, &in, s.expert[x], from * tile, stop);
            }
        }
    }
}

/* ---- EXPERTS_DOWN
 * --------------------------------------------------------------------------------------------- */

/* Columns [at, stop) of every row: experts in increasing order, as the definition adds them up. */
static void down_tile(const gw_cpu_launch *l, gw_cpu_worker *worker, const lists *s, inputs *in,
                      size_t n, size_t at, size_t stop) {
    const gw_experts_args *a = &l->u.experts.args;
    size_t d = l->u.experts.rows, used = (size_t)a->used, count = stop - at;
    size_t stride = TILE + EDGE;
    float *acc = (float *)(void *)(worker->scratch + l->u.experts.sums), *y = acc + n * TILE;
    memset(acc, 0, n * TILE * sizeof *acc);
    for (size_t x = 0; x < s->active; x++) {
        size_t first = s->expert[x] * d + at, left;
        for (size_t c = s->first[x]; c < s->first[x + 1]; c += left) {
            left = s->first[x + 1] - c;
            left = left < l->u.experts.chunk ? left : l->u.experts.chunk;
            gather(l, in, s->choice + c, left, worker->scratch + l->u.experts.lists);
            size_t offset = multiply(l, worker, 0, in, first, first + count, y, stride, NULL);
            for (size_t i = 0; i < left; i++) {
                size_t row = in->choice[i] / used, place = in->choice[i] % used;
                float gate = a->gate_input ? 1.0f : route_of(l, row)[used + place];
                float *sum = acc + row * TILE, *own = y + i * stride + offset;
                finish_sums(l, 0, own, count, first, NULL);
                for (size_t k = 0; k < count; k++) {
                    sum[k] = fmaf(gate, own[k], sum[k]);
                }
            }
        }
    }
    for (size_t row = 0; row < n; row++) {
        float *out = (float *)(void *)(l->out + row * l->out_stride) + at;
        const float *addend = NULL;
        if (l->u.experts.addend != NULL) {
            const char *more = l->u.experts.addend + row * l->u.experts.addend_stride;
            addend = (const float *)(const void *)more + at;
        }
        for (size_t k = 0; k < count; k++) {
            float sum = acc[row * TILE + k];
            out[k] = addend != NULL ? addend[k] + sum : sum;
        }
    }
}

static void run_experts_down(const gw_cpu_launch *l, gw_cpu_worker *worker) {
    size_t n = (size_t)gw_cpu_live(l, worker->step), d = l->u.experts.rows, first, end;
    size_t tile = l->u.experts.chunk == DECODE_CHUNK ? GW_ACT_BLOCK : TILE;
    lists s = make_lists(l, n, worker->scratch);
    inputs in = no_inputs(l, worker);
    while (gw_cpu_take(worker, (d + tile - 1) / tile, TILE / tile, &first, &end)) {
        down_tile(l, worker, &s, &in, n, first * tile, end * tile < d ? end * tile : d);
    }
}

/* ---- recording
 * -----------------------------------------------------------------------------------------------
 */

static int accepts(const gw_kernel *kernel, const gw_node *node, int n_parts) {
    const gw_cpu_row *row = gw_cpu_row_of(kernel);
    for (int i = 0; i < n_parts && node->w[i] != NULL; i++) {
        gw_fmt want = gw_format_of(node->w[i]->fmt)->is_float ? GW_FMT_F32 : GW_FMT_ACT8;
        if (node->in[0]->fmt != want ||
            gw_cpu_kernel_for(row, node->w[i], node->args.experts.order) == NULL) {
            return 0;
        }
    }
    return node->w[0]->fmt == row->fmt && !row->blas;
}

int gw_cpu_accepts_experts_glu(const gw_kernel *kernel, const gw_node *node,
                               const struct gw_device *device) {
    (void)device;
    return accepts(kernel, node, 2);
}

int gw_cpu_accepts_experts_down(const gw_kernel *kernel, const gw_node *node,
                                const struct gw_device *device) {
    (void)device;
    return accepts(kernel, node, 1) && node->out->fmt == GW_FMT_F32;
}

static size_t whole_lines(size_t bytes) {
    return (bytes + GW_CACHE_LINE - 1) / GW_CACHE_LINE * GW_CACHE_LINE;
}

/* places: experts' inputs in an input row, 1 for GLU. */
static gw_status record(struct gw_segment *segment, const gw_kernel *kernel, const gw_node *node,
                        gw_cpu_launch *l, int n_parts, int bias, size_t places) {
    const gw_experts_args *a = &node->args.experts;
    size_t inner = 0;
    l->u.experts.args = *a;
    l->u.experts.k = (size_t)node->w[0]->dim[1];
    l->u.experts.rows = (size_t)node->w[0]->dim[0] / (size_t)a->experts;
    l->u.experts.chunk = a->order == GW_ORDER_PREFILL ? PREFILL_CHUNK : DECODE_CHUNK;
    l->u.experts.places = places;
    for (int i = 0; i < n_parts && node->w[i] != NULL; i++) {
        const gw_tensor *w = node->w[i];
        gw_cpu_experts_part *part = &l->u.experts.part[l->u.experts.n_parts++];
        part->kernel = gw_cpu_kernel_for(gw_cpu_row_of(kernel), w, a->order);
        part->w = gw_cpu_data(w);
        part->m = (size_t)w->dim[0];
        part->strips = w->layout == GW_LAYOUT_PRIVATE;
        part->row_bytes = part->strips ? gw_strip_bytes(w->fmt, l->u.experts.k) / GW_STRIP_ROWS
                                       : gw_cpu_row_stride(w);
        GW_TRY(gw_cpu_vector(segment, node->w[bias + i], &part->bias));
        const int chunk = (int)l->u.experts.chunk;
        size_t need =
            part->kernel->scratch != NULL ? part->kernel->scratch(l->u.experts.k, chunk) : 0;
        size_t made =
            part->kernel->prepared != NULL ? part->kernel->prepared(l->u.experts.k, chunk) : 0;
        inner = need > inner ? need : inner;
        made = whole_lines(made);
        l->u.experts.prepared = made > l->u.experts.prepared ? made : l->u.experts.prepared;
    }
    l->u.experts.lists = list_bytes(a, (size_t)segment->rows);
    l->u.experts.sums = whole_lines(l->u.experts.lists + l->u.experts.chunk * input_bytes(l)) +
                        GW_CACHE_LINE + 2 * l->u.experts.prepared;
    int glu = n_parts == 2; /* else what is added up for every row has a place, too */
    size_t wide = l->u.experts.chunk == DECODE_CHUNK && glu ? GLU_DECODE_TILE : TILE;
    size_t floats = (glu ? 2 : 1) * l->u.experts.chunk * (wide + EDGE) +
                    (glu ? 0 : (size_t)segment->rows * TILE);
    l->u.experts.inner = whole_lines(l->u.experts.sums + floats * sizeof(float));
    gw_cpu_need_scratch(segment, l->u.experts.inner + inner);
    return GW_OK;
}

gw_status gw_cpu_record_experts_glu(struct gw_segment *segment, const gw_kernel *kernel,
                                    const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_experts_glu;
    return record(segment, kernel, node, l, 2, 2, 1);
}

gw_status gw_cpu_record_experts_down(struct gw_segment *segment, const gw_kernel *kernel,
                                     const gw_node *node) {
    gw_cpu_launch *l = gw_cpu_append(segment, kernel, node);
    l->run = run_experts_down;
    if (node->in[2] != NULL) {
        l->u.experts.addend = gw_cpu_data(node->in[2]);
        l->u.experts.addend_stride = gw_cpu_row_stride(node->in[2]);
    }
    return record(segment, kernel, node, l, 1, 1, (size_t)node->args.experts.used);
}
