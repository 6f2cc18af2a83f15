/* backends/cpu/cpu.h - the inside of the "cpu" backend: device, buffers, frozen segments.
 *
 * A device is a thread team. A frozen segment is an array of launches; run() opens one parallel
 * region in which every thread walks the array with a barrier after each launch. Inside a launch
 * the work is handed out by atomic counters; who computes a piece never changes its bits.
 */
#ifndef GW_BACKENDS_CPU_H
#define GW_BACKENDS_CPU_H

#include <stdatomic.h>

#include "core/base/team.h"
#include "core/plan/kernel_list.h"
#include "core/tensor/sample.h"
#include "cpu/linear.h"
#include "cpu/ops.h"

enum { GW_CACHE_LINE = 64, GW_CPU_MAX_THREADS = GW_TEAM_MOST };

/* ---- the machine (machine.c) ------------------------------------------------------------------
 */

int gw_cpu_default_threads(void); /* OMP_NUM_THREADS, else physical cores, affinity, cgroup quota */
int gw_cpu_usable_processors(void); /* logical ones this process may run on                       */
void gw_cpu_memory(uint64_t *total, uint64_t *available); /* machine and cgroup, the smaller */
void gw_cpu_model_name(char *out, size_t bytes); /* "AMD EPYC 7B13"; "" when unknown      */

/* ---- device, buffers (device.c, memory.c) ------------------------------------------------------
 */

/* Which functions a kernel row stands for. */
typedef struct gw_cpu_row {
    gw_cpu_level level;
    gw_fmt fmt; /* LINEAR, GLU: format of w0 */
    int blas;
} gw_cpu_row;

typedef struct gw_cpu_blas gw_cpu_blas;

struct gw_device {
    gw_cpu_level level;
    int threads;
    int spins;   /* polls of a barrier before it yields the processor */
    int streams; /* gw_cpu_linear.streams of several rows: what suited one row (segment.c) */
    int blas_wanted;
    const gw_cpu_blas *blas; /* NULL: not wanted, or not there */
    uint64_t memory_at_open;
    _Atomic uint64_t reserved;  /* bytes of all buffers that are not aliases */
    struct gw_cpu_chunk *chunk; /* where weights are put; NULL: none begun       */
    char *reading;              /* memory for short readings (roof.c); NULL: none yet */
    size_t reading_bytes;
    int reading_way; /* gw_cpu_peak.read */
    gw_kernel_list kernels;
    gw_cpu_row *rows;      /* state of kernels.at[i] */
    gw_observe_fn observe; /* NULL: nobody looks */
    void *observe_user;
};

/* Weights share large mappings, so that nearly all of them lie in huge pages: a mapping of its own
 * keeps small pages at both ends, a third of all bytes with matrices of a few megabytes. */
typedef struct gw_cpu_chunk {
    char *map, *data; /* as mapped; from the first huge page on */
    size_t bytes, used;
    int buffers; /* that lie in it */
} gw_cpu_chunk;

struct gw_buffer {
    struct gw_device *device;
    char *data;
    size_t bytes, mapped; /* mapped 0: an alias of memory that is not ours */
    gw_cpu_chunk *chunk;  /* of a weight, else NULL */
};

/* Zeroed, at least 64-byte aligned. GW_E_NOMEM says how much is needed and how much there is. */
gw_status gw_cpu_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out);
gw_status gw_cpu_alias(struct gw_device *device, const void *data, size_t bytes,
                       struct gw_buffer **out);
void gw_cpu_release(struct gw_buffer *buffer);
/* Zeroed pages, huge where the system has them; NULL when refused. */
void *gw_cpu_map_pages(size_t bytes);
void gw_cpu_unmap_pages(void *data, size_t bytes);

gw_status gw_cpu_load_weight(struct gw_device *device, gw_tensor *t, const gw_weight_source *src);
gw_status gw_cpu_size_weight(const struct gw_device *device, gw_tensor *t,
                             const gw_weight_source *src, uint64_t *bytes);

/* ---- segments (segment.c) -----------------------------------------------------------------------
 */

enum { GW_CPU_WAYS = 3, GW_CPU_ROUNDS = 5 }; /* of reading weights, and trials of all of them */

typedef struct gw_cpu_worker {
    int id, team;
    const gw_step *step;
    int timed;   /* every node on its own */
    int streams; /* gw_cpu_linear.streams */
    char *scratch;
    char *row;      /* own too: one row that a launch before would have put out           */
    char *shared;   /* of the whole team                                                  */
    char *counters; /* of the launch being run: a cache line for all, then one per thread */
    const char *x;  /* activations of the product being run                               */
    gw_observe_fn observe;
    void *observe_user;
} gw_cpu_worker;

/* One matrix of a LINEAR or GLU. */
typedef struct gw_cpu_part {
    const gw_cpu_linear_kernel *kernel;
    gw_cpu_linear job; /* n, x, y, residual are filled per run */
    size_t column;     /* of the first output */
    size_t strips;     /* of GW_STRIP_ROWS rows */
    size_t strip_bytes;
    size_t prepared;   /* place of its prepared activations: decode, from the start of the thread's
                        * scratch; prefill, of the shared memory; NOT_PREPARED */
    size_t tile_bytes; /* of what is prepared for one tile of rows */
    int prepares;      /* the first part of its launch that wants them there */
} gw_cpu_part;

/* The experts' rows of one matrix. */
typedef struct gw_cpu_experts_part {
    const gw_cpu_linear_kernel *kernel;
    const char *w;
    size_t m, row_bytes; /* of all experts */
    const float *bias;
    int strips;
} gw_cpu_experts_part;

/* A table beside that of the tokens; rows NULL: none. */
typedef struct gw_cpu_table {
    const char *rows;
    size_t bytes; /* of a row */
    gw_fmt fmt;
} gw_cpu_table;

typedef struct gw_cpu_launch gw_cpu_launch;
struct gw_cpu_launch {
    void (*run)(const gw_cpu_launch *launch, gw_cpu_worker *worker); /* by every thread */
    const gw_cpu_ops *ops;
    /* One row's part of it, by one thread, to `out`; NULL where that has no meaning. */
    void (*row)(const gw_cpu_launch *launch, gw_cpu_worker *worker, size_t i, void *out);
    /* The launch before this one when this one can do its work too, without a barrier between;
     * joins: whether it does so in this step (NULL: yes). */
    const gw_cpu_launch *before;
    int (*joins)(const gw_cpu_launch *launch, const gw_cpu_worker *worker);
    int node;   /* index in the segment, for times */
    int picked; /* after PICK: step.n_pick rows are live */
    int act8;   /* the output is quantized */
    const char *in, *in1;
    size_t in_stride, in1_stride; /* bytes from row to row */
    char *out;
    size_t out_stride;
    size_t width; /* d of row-wise ops */
    union {
        struct {
            const char *table;
            size_t row_bytes;
            gw_fmt fmt;
            gw_cpu_table places, types;
            gw_embed_args args;
        } embed;
        struct {
            gw_cpu_act act;
            int gated;
            gw_mix_args mix;
            const char *addend; /* of MIX: in2 */
            size_t addend_stride, gates, factors;
            const float *factor; /* [factors]: 1 or a column's own */
        } act;
        struct {
            gw_route_args args;
            const float *bias, *factor;
        } route; /* in1: the experts chosen, or NULL */
        struct {
            gw_cpu_experts_part part[2];
            int n_parts;
            gw_experts_args args;
            size_t k, rows; /* of an expert: input, rows of each matrix */
            const char *addend;
            size_t addend_stride;
            size_t chunk, places;                /* activation rows of a call; experts' inputs
                                                  * in one of them */
            size_t lists, prepared, sums, inner; /* of scratch: bytes, bytes, places of others */
        } experts;
        struct {
            gw_experts_lora_args args;
            const gw_cpu_linear_kernel *kernel;
            const char *w, *adapters, *addend;
            size_t row_bytes, adapters_stride, addend_stride;
            size_t rows, k; /* of an expert of one adapter: rows of w; columns */
        } experts_lora;
        const gw_choice *choice;
        struct {
            const float *weight, *bias, *factor, *ones; /* weight: ones where there is none */
            gw_norm_args args;
            float eps;
        } norm;
        struct {
            gw_cpu_part part[3];
            int n_parts, prefill, wide; /* wide: decode rows in tiles */
            size_t own;         /* bytes at the start of the scratch for what is prepared there */
            size_t total, most; /* pieces, and how many are handed out at a time */
            size_t strips;      /* of a piece */
            const gw_cpu_launch *follow; /* decode: the next launch that reads weights */
            size_t tile;                 /* GLU: rows computed into scratch at a time */
        } linear;
        struct {
            gw_rope_args args;
            const float *q_weight, *k_weight, *table;
            const float *factor, *ones; /* of q by position; what has no weight is normed by */
            char *k, *v;
            gw_fmt k_fmt, v_fmt;
            const int32_t *pages;
            size_t page_stride;
        } rope;
        struct {
            gw_conv_args conv;
            gw_scan_args scan;
            const float *w, *bias, *skip; /* CONV: [taps, c]; SCAN: A, its bias, D       */
            float *state;                 /* [slots, entries, width]                     */
            size_t entries, state_width;
            const char *decay, *beta; /* rows of SCAN */
            size_t decay_stride, beta_stride;
            const float *q_scale, *k_scale; /* [k_dim] each */
        } state;
        struct {
            const char *least; /* rows as those of in1 */
            float eps;
        } divide;
        struct {
            gw_group_norm_args args;
            const float *weight, *bias, *ones; /* [e] or [m]; [m]; ones [e] */
            size_t wide, e;                    /* of the weight, of a group */
        } group_norm;
        struct {
            gw_streams_args args;
            const char *base;
            size_t base_stride;
        } streams;
        struct {
            gw_sparse_args args;
            const float *ones;
        } sparse;
        struct {
            gw_hyper_args args;
            const float *scale, *base;
            int in_only;
        } hyper;
        struct {
            gw_rotate_args args;
            const float *table;
        } rotate;
        gw_dot_args dot;
        struct { /* COMPRESS, CHOOSE */
            gw_compress_args compress;
            gw_choose_args choose;
            const float *bias, *weight, *table;
            float *pages; /* [pages, page_floats] */
            size_t page_floats, page_stride;
            const int32_t *mapped; /* page table [slots, page_stride] */
            const char *by;
            size_t by_stride;
        } area;
        struct {
            gw_listed_args args;
            const char *k, *v, *list;
            gw_fmt kv;
            size_t list_stride, page_floats, page_stride, most, attend, ev; /* ev: of a value */
            const float *pages, *sinks;
            const int32_t *mapped;
        } listed;
        struct {
            gw_ngram *hashes;
            gw_fmt fmt;
            const char *table;
            size_t row_bytes, wide, entries;
            float *state;
        } ngram;
        struct {
            gw_heads_args args;
            const gw_cpu_linear_kernel *kernel;
            const char *w;
            size_t m, k, e, head_bytes, scratch; /* of one head; scratch: bytes */
        } heads;
        struct {
            const char *in[GW_MAX_IN];
            size_t stride[GW_MAX_IN], bytes[GW_MAX_IN];
        } columns;
        struct {
            size_t heads, k, m; /* k, m: columns of a head before and after */
        } widen;
        struct {
            gw_cpu_attention job; /* pos, slot are filled per run */
            size_t scratch;       /* bytes */
            int both;
        } attention;
        gw_pick_kind pick;
        const gw_node *seen; /* of an observer */
    } u;
};

struct gw_segment {
    struct gw_device *device;
    gw_cpu_launch *launches;
    size_t n, capacity;
    int overfull;                            /* more was appended than there is room for */
    int rows;                                /* most live rows of a step */
    uint64_t passes, trial;                  /* so far; when all ways of reading are tried next */
    double pace[GW_CPU_ROUNDS][GW_CPU_WAYS]; /* seconds of each trial (segment.c) */
    int node;                                /* being recorded */
    int picked;                              /* a PICK has been recorded */
    size_t scratch_bytes;                    /* of one thread */
    size_t row_bytes;                        /* at the end of it: gw_cpu_worker.row */
    char *scratch;
    size_t scratch_mapped;
    size_t shared_bytes; /* at the end of scratch, for the whole team */
    char *counters;      /* two sets, for launches in turn */
    void **copies;       /* float vectors converted when frozen */
    size_t n_copies;
    gw_node_time *times; /* the caller's, while profiling */
};

/* Append a launch whose common fields are filled from the node. There is always one to write to;
 * freeze fails behind a node that appended more than it made room for. */
gw_cpu_launch *gw_cpu_append(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node);
/* n ones, which the segment owns: the weight of a norm without one. */
gw_status gw_cpu_ones(struct gw_segment *segment, const gw_node *node, size_t n, const float **out);
/* The kernel of a row's level that reads the weight as it lies, else the scalar one (linear.c). */
const gw_cpu_linear_kernel *gw_cpu_kernel_for(const gw_cpu_row *row, const gw_tensor *w,
                                              gw_order order);
void gw_cpu_need_scratch(struct gw_segment *segment, size_t bytes);
/* The elements of a weight vector as aligned f32: in place, or a copy that the segment owns.
 * NULL for a NULL tensor. */
gw_status gw_cpu_vector(struct gw_segment *segment, const gw_tensor *t, const float **out);

static inline char *gw_cpu_data(const gw_tensor *t) { return t->buf->data + t->offset; }
static inline int gw_cpu_live(const gw_cpu_launch *launch, const gw_step *step) {
    return launch->picked ? step->n_pick : step->n;
}
size_t gw_cpu_row_stride(const gw_tensor *t); /* bytes of one row of an activation */
/* Whether this launch also does the one before it, in this step. The same for every thread. */
static inline int gw_cpu_joins(const gw_cpu_launch *l, const gw_cpu_worker *worker) {
    return l->before != NULL && !worker->timed && gw_cpu_live(l->before, worker->step) == 1 &&
           (l->joins == NULL || l->joins(l, worker));
}

/* Launches of one node share it one after the other. */
void gw_cpu_need_shared(struct gw_segment *segment, size_t bytes);

/* The next pieces of `total`: [*first, *end), at most `most`, fewer towards the end so that all
 * threads finish together. 0 when nothing is left. */
int gw_cpu_take(const gw_cpu_worker *worker, size_t total, size_t most, size_t *first, size_t *end);
/* The same from a part of the work, `total` pieces, that belongs to thread `owner`; any thread may
 * take from it: a `parts`-th of what is left. left: how many there are. */
int gw_cpu_take_from(const gw_cpu_worker *worker, int owner, size_t total, size_t parts,
                     size_t most, size_t *first, size_t *end);
size_t gw_cpu_left(const gw_cpu_worker *worker, int owner, size_t total);

/* Once all is recorded: each product learns which one follows (linear.c). */
void gw_cpu_link_linear(struct gw_segment *segment);
/* Whether a launch is a product of decode (linear.c), rotation and its attention (attention.c). */
int gw_cpu_joins_linear(const gw_cpu_launch *before, const gw_cpu_launch *l);
int gw_cpu_joins_attention(const gw_cpu_launch *before, const gw_cpu_launch *l);
/* joins of an attention: no two threads share a KV head. */
int gw_cpu_attends_by_heads(const gw_cpu_launch *l, const gw_cpu_worker *worker);

gw_status gw_cpu_freeze(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                        struct gw_segment **out);
gw_status gw_cpu_run(struct gw_segment *segment, const gw_step *step);
void gw_cpu_segment_free(struct gw_segment *segment);
void gw_cpu_profile(struct gw_segment *segment, gw_node_time *times);

/* ---- the kernels (rows.c, forms.c, state.c, listed.c, linear.c, experts.c, attention.c), in
 * kernels.c
 * ---------------------------
 */

gw_status gw_cpu_list_kernels(struct gw_device *device);

#define GW_CPU_KERNEL(op)                                                                          \
    int gw_cpu_accepts_##op(const gw_kernel *kernel, const gw_node *node,                          \
                            const struct gw_device *device);                                       \
    gw_status gw_cpu_record_##op(struct gw_segment *segment, const gw_kernel *kernel,              \
                                 const gw_node *node);
GW_CPU_KERNEL(embed)
GW_CPU_KERNEL(pick)
GW_CPU_KERNEL(norm)
GW_CPU_KERNEL(quantize)
GW_CPU_KERNEL(linear)
GW_CPU_KERNEL(glu)
GW_CPU_KERNEL(rope_kv)
GW_CPU_KERNEL(attention)
GW_CPU_KERNEL(sample)
GW_CPU_KERNEL(norm_any)
GW_CPU_KERNEL(act)
GW_CPU_KERNEL(mix)
GW_CPU_KERNEL(route)
GW_CPU_KERNEL(experts_glu)
GW_CPU_KERNEL(experts_down)
GW_CPU_KERNEL(lora)
GW_CPU_KERNEL(conv)
GW_CPU_KERNEL(scan)
GW_CPU_KERNEL(exp_gates)
GW_CPU_KERNEL(divide)
GW_CPU_KERNEL(group_norm)
GW_CPU_KERNEL(heads)
GW_CPU_KERNEL(columns)
GW_CPU_KERNEL(widen)
GW_CPU_KERNEL(streams)
GW_CPU_KERNEL(sparse_glu)
GW_CPU_KERNEL(hyper)
GW_CPU_KERNEL(rotate)
GW_CPU_KERNEL(group_dot)
GW_CPU_KERNEL(compress)
GW_CPU_KERNEL(choose)
GW_CPU_KERNEL(listed)
GW_CPU_KERNEL(ngram)
#undef GW_CPU_KERNEL

static inline const gw_cpu_row *gw_cpu_row_of(const gw_kernel *kernel) {
    return (const gw_cpu_row *)kernel->state;
}

/* ---- float prefill through OpenBLAS (blas.c)
 * ------------------------------------------------------ */

/* NULL when the library cannot be opened. Opened once per process, never closed. */
const gw_cpu_blas *gw_cpu_blas_open(void);
const gw_cpu_linear_kernel *gw_cpu_blas_kernel(gw_fmt fmt); /* NULL for quantized formats */

#endif
