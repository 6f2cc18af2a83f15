/* backends/opencl/opencl.h - the inside of the "opencl" backend: devices, buffers, prepared
 * launches.
 *
 * Two ways through every op, chosen by what the device is: "item" for processors (one work-item
 * does a strip of 16 rows with explicit vectors; no barriers) and "team" for everything else (32
 * work-items are the 32 lanes of arith.h). Both give the bits of the scalar CPU.
 */
#ifndef GW_BACKENDS_OPENCL_H
#define GW_BACKENDS_OPENCL_H

#include <stdatomic.h>

#include "backends/opencl/driver.h"
#include "core/plan/kernel_list.h"

enum {
    GW_CL_LAYOUT_PLANES = GW_LAYOUT_PRIVATE, /* quantized: codes and scales apart, row by row     */
    GW_CL_LAYOUT_STRIPS,                     /* the same planes, 16 rows interleaved by the word  */
    GW_CL_LAYOUT_LANES,                      /* floats: 16 bytes hold one lane's elements         */
    GW_CL_TEAM = 32,
    GW_CL_GROUP = 256, /* of teams; devices that take less: kernels of items */
    GW_CL_STRIP = 16,
    GW_CL_PIECES = 8, /* most allocations of a cache: arguments of SPLIT in attention.cl */
    GW_CL_MAX_DEVICES = 64
};

/* ---- device (device.c) ----------------------------------------------------------------------- */

typedef struct gw_cl_program {
    struct gw_cl_program *next;
    char *key; /* "SOURCE OPTIONS" */
    cl_program program;
} gw_cl_program;

/* Device memory that grows: older, smaller pieces stay, because prepared launches hold them. */
typedef struct gw_cl_pool {
    cl_mem *list;
    size_t n, bytes; /* bytes: of the last piece */
} gw_cl_pool;

struct gw_device {
    const gw_cl_driver *cl;
    cl_platform_id platform;
    cl_device_id id;
    int ordinal;
    cl_context context;
    cl_command_queue queue, timed; /* timed: with profiling; NULL until asked for */
    int item;                      /* the way for processors                      */
    int nvidia;                    /* inline PTX is understood                    */
    int shuffles, dots;            /* GW_CL_SHUFFLES_.., GW_CL_DOTS_..; 0: plain OpenCL */
    int matrix;                    /* prompts on matrix instructions              */
    int unified;                   /* memory is the host's                        */
    int doubles;                   /* kernels may have them                       */
    int exact;                     /* float weights of prompts to the CPU's bits  */
    int hints;                     /* PTX loads say which caches to use           */
    int compact;                   /* the compiler is slow: no loop is unrolled   */
    int plain;                     /* no inline assembly, for tests               */
    int last_joins;                /* a group sees what others of its launch wrote */
    int units;                     /* that run groups at the same time            */
    int group;                     /* work-items of a team kernel's group         */
    int walkers;                   /* groups of the one launch of a step (walk.c); 0: none */
    int walk_rows;                 /* most rows of a step that it takes                    */
    int walk_all;                  /* however few the launches                             */
    int must_walk, fail_walk;      /* that it cannot be done is an error; it cannot        */
    cl_ulong max_alloc, memory, local_bytes;
    uint64_t max_cache; /* in one allocation; 0: max_alloc */
    uint64_t reserved;  /* bytes of all buffers                        */
    int unpromised;     /* its compiler does not know the option for correct rounding */
    char floats[64];    /* tests: it computes them as kernels_cl/floats.cl says */
    char name[128], driver[64];
    gw_cl_program *programs;
    gw_kernel_list kernels;
    int fail_alloc, fail_enqueue, fail_build,
        fail_wait;                            /* tests: fail the k-th from now; 0: never */
    int no_cache;                             /* programs are not kept on disk */
    int processor;                            /* of the host, as PoCL's is */
    int card;                                 /* chosen by itself though it is a processor */
    int lost;                                 /* an earlier failure: nothing more is enqueued */
    int any_floats, no_matrix, asked_walkers; /* tests: of GODWIT_OPENCL, read when it is opened */
    int asked_group, asked_local;             /* the same: at most so much     */
    uint64_t asked_alloc;                     /* 0: as much as the device says */
    /* Shared by all segments: their launches run in order. widened, products: blas.c's. */
    gw_cl_pool scratch, widened, products, narrowed, unpacked;
    int no_blas, fail_blas; /* tests: CLBlast is not there; its k-th call from now fails */
    _Atomic int blas;       /* GW_CL_BLAS_...                                            */
    char blas_note[192];    /* not written any more once blas is GW_CL_BLAS_FAILED       */
};

enum { GW_CL_BLAS_UNASKED, GW_CL_BLAS_WORKS, GW_CL_BLAS_FAILED };

/* Devices of all platforms, in order. Returns how many; fills at most `room`. */
int gw_cl_devices(cl_platform_id *platforms, cl_device_id *devices, int room);

/* How lanes exchange values and bytes are multiplied: the numbers of kernels_cl/exchange.cl. */
enum { GW_CL_SHUFFLES_PTX = 1, GW_CL_SHUFFLES_AMD, GW_CL_SHUFFLES_INTEL, GW_CL_SHUFFLES_LOCAL };
enum { GW_CL_DOTS_PTX = 1, GW_CL_DOTS_AMD, GW_CL_DOTS_AMD_SIGNED, GW_CL_DOTS_SIGNED };

/* probe.c, with small kernels. find: shuffles, dots and nvidia of the device, by which instructions
 * it knows (PTX counts where it has both). tries: do those that it has been told to use give the
 * right numbers? has_matrix: does its PTX know matrix instructions and what feeds them? */
void gw_cl_find_ways(struct gw_device *device);
int gw_cl_tries_ways(struct gw_device *device);
int gw_cl_has_matrix(struct gw_device *device);
int gw_cl_has_doubles(const struct gw_device *device);

/* floats.c: one line that says which operand goes wrong, and what the device lacks therefore. Sets
 * unpromised. */
gw_status gw_cl_try_floats(struct gw_device *device);

/* The queue with profiling; NULL: there is none. */
cl_command_queue gw_cl_timed(struct gw_device *device);
/* roof.c; launches wait for those before. */
cl_int gw_cl_build(const struct gw_device *device, cl_program program, const char *options);
gw_status gw_cl_roof(struct gw_device *device, gw_roof *out);

/* ---- buffers (memory.c, weights.c, layout.c) ------------------------------------------------- */

/* Rows [first, first + rows) of a weight in one allocation; offsets of the planes in bytes. */
typedef struct gw_cl_pinned {
    cl_mem mem; /* NULL: none */
    void *at;
} gw_cl_pinned;

typedef struct gw_cl_chunk {
    cl_mem mem; /* NULL: stowed */
    size_t bytes;
    int in_host;       /* gw_cl_alloc_mapped: no memory of the device */
    int is_there;      /* rows of a mapped file, read in place */
    gw_cl_pinned kept; /* its bytes on the host once it was stowed */
    int64_t first, rows;
    cl_ulong low, high, head, sub;
} gw_cl_chunk;

struct gw_buffer {
    struct gw_device *device;
    size_t bytes;
    int n_chunks; /* 1, except for large weights and caches */
    gw_cl_chunk *chunks;
    size_t piece; /* bytes of each allocation of a cache but the last; 0: no such cache */
};

static inline cl_mem gw_cl_mem(const gw_tensor *t) { return t->buf->chunks[0].mem; }

gw_status gw_cl_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out);
/* At most GW_CL_PIECES allocations of whole pages; one, where the device gives it. */
gw_status gw_cl_alloc_pages(struct gw_device *device, size_t bytes, size_t page_bytes,
                            struct gw_buffer **out);
gw_status gw_cl_alloc_mapped(struct gw_device *device, size_t bytes, size_t page_bytes,
                             struct gw_buffer **out);
gw_status gw_cl_new_mem(struct gw_device *device, size_t bytes, cl_mem *out);
/* A buffer of up to n_chunks allocations, and one more of these: of the device, of the host
 * (in_host), or, not NULL, what lies there already, which nothing may write to. */
gw_status gw_cl_new_buffer(struct gw_device *device, int n_chunks, struct gw_buffer **out);
gw_status gw_cl_add_chunk(struct gw_buffer *buffer, size_t bytes, int in_host, const void *there);
/* The host's memory, zeros, that copies come from and go to while the host goes on: with ordinary
 * memory some drivers wait for the copy, and so for all that is queued before it. */
gw_status gw_cl_pin(struct gw_device *device, size_t bytes, gw_cl_pinned *out);
void gw_cl_unpin(struct gw_device *device, gw_cl_pinned *pinned);
void gw_cl_release(struct gw_buffer *buffer);
gw_status gw_cl_stow(struct gw_buffer *buffer, uint64_t *kept);
gw_status gw_cl_restore(struct gw_buffer *buffer);
gw_status gw_cl_write(struct gw_buffer *dst, size_t at, const void *src, size_t bytes);
gw_status gw_cl_read(const struct gw_buffer *src, size_t at, void *dst, size_t bytes);
gw_status gw_cl_load_weight(struct gw_device *device, gw_tensor *t, const gw_weight_source *src);
gw_status gw_cl_fetch_weight(struct gw_device *device, const gw_tensor *t,
                             const gw_weight_source *src, int64_t first, int64_t n);
gw_status gw_cl_size_weight(const struct gw_device *device, gw_tensor *t,
                            const gw_weight_source *src, uint64_t *bytes);

/* How a quantized format is cut into planes. Codes are stored without a sign: code + offset. */
typedef struct gw_cl_planes {
    int low_bits, high_bits; /* of a code: 2, 4 or 8; 0, 1 or 2      */
    int offset;
    int levels;      /* codes are indices of the IQ4 levels  */
    int kind;        /* GW_KIND_... of kernels_cl/planes.cl  */
    int head_bytes;  /* 1: e8m0; 2: d; 4: d and a second one, or f32 */
    int head_blocks; /* blocks of 32 that share it; 0: a row */
    int sub_bytes;   /* 0 or 2, per block of 32              */
} gw_cl_planes;

enum { GW_KIND_SIGNED = 1, GW_KIND_AFFINE, GW_KIND_HALVES, GW_KIND_Q2, GW_KIND_SPAN };

const gw_cl_planes *gw_cl_planes_of(gw_fmt fmt); /* NULL for floats */

enum { GW_CL_TOGETHER = 8 }; /* blocks of 8-bit codes: layout.c */

/* Bytes of one row in each plane, and the offsets of the planes of `rows` rows (256-byte aligned).
 * Strips: rows counts whole strips. *total: bytes of all. */
typedef struct gw_cl_layout {
    const gw_cl_planes *planes;
    gw_fmt fmt;
    int strips;
    size_t cols, blocks, heads; /* per row */
    size_t low_row, high_row, head_row, sub_row;
} gw_cl_layout;

void gw_cl_layout_of(gw_fmt fmt, size_t cols, int strips, gw_cl_layout *out);
/* n rows as stored -> planes that start at the four pointers; n <= 16 for strips, row 0 first. */
void gw_cl_pack(const gw_cl_layout *layout, const void *rows, size_t row_bytes, size_t n,
                unsigned char *low, unsigned char *high, unsigned char *head, unsigned char *sub);
/* Floats to GW_CL_LAYOUT_LANES. Bytes of one row; padded with zeros. */
size_t gw_cl_lanes_bytes(gw_fmt fmt, size_t cols);
size_t gw_cl_lanes_pieces(gw_fmt fmt, size_t cols); /* of a row */
void gw_cl_lanes_pack(gw_fmt fmt, const void *row, size_t cols, void *out);

/* ---- programs (program.c) -------------------------------------------------------------------- */

/* The program made of `source` (the file NAME.cl behind the shared texts) with -D options; built
 * once per device, kept on disk. GW_E_DEVICE with the first lines of the compiler's log. */
gw_status gw_cl_program_get(struct gw_device *device, const char *source, const char *options,
                            const gw_cl_program **out);
/* The same of one text alone. */
gw_status gw_cl_program_of(struct gw_device *device, const char *text, const char *options,
                           const gw_cl_program **out);
/* A text by its path from the root: "kernels_cl/rows/rows.cl", "core/tensor/arith.h". */
const char *gw_cl_text(const char *name);

/* The text of the file NAME.cl of kernels_cl, in whichever of its folders. */
const char *gw_cl_kernels(const char *name);
void gw_cl_programs_free(struct gw_device *device);

/* ---- segments (segment.c) -------------------------------------------------------------------- */

/* As it was set, for walk.c. */
typedef struct gw_cl_arg {
    enum { GW_CL_ARG_MEM = 1, GW_CL_ARG_ULONG, GW_CL_ARG_INT, GW_CL_ARG_FLOAT } kind;
    cl_mem mem;
    cl_ulong value;
} gw_cl_arg;

enum { GW_CL_MOST_ARGS = 56 };

/* How a launch belongs to a product through CLBlast: three in a row (blas.c). */
typedef enum gw_cl_part {
    GW_CL_ALONE,
    GW_CL_WIDENS,     /* only while CLBlast works                             */
    GW_CL_MULTIPLIES, /* CLBlast instead of the launch; if that fails, itself */
    GW_CL_FINISHES    /* only when CLBlast multiplied                         */
} gw_cl_part;

typedef struct gw_cl_gemm {
    cl_mem x, w, y; /* y [n, m] = x [n, k] w^T [m, k], all f32 */
    size_t x_at;    /* in floats                               */
    size_t m, k;
    int picked; /* it comes behind a PICK */
} gw_cl_gemm;

typedef struct gw_cl_launch {
    cl_kernel kernel;
    gw_cl_part part;
    gw_cl_gemm gemm; /* of one that multiplies */
    const gw_cl_program *program;
    const char *name; /* of the kernel */
    gw_cl_arg args[GW_CL_MOST_ARGS];
    cl_uint n_args;
    cl_uint n_dim;
    size_t global[3], local[3];
    size_t page_groups; /* global[0] follows the step: groups for its pages, at most these; or 0 */
    int node;
} gw_cl_launch;

struct gw_segment {
    struct gw_device *device;
    gw_cl_launch *launches;
    size_t n, capacity;
    int rows, node, picked, unfinished;
    int blas;                   /* float products that are being recorded go through CLBlast */
    int multiplied;             /* while running: CLBlast took the last product              */
    const gw_node *norm, *rope; /* recorded with the node that follows; else NULL */
    cl_mem step;
    cl_mem arrived; /* zeros between launches: groups that have come, per row and KV head */
    size_t arrived_bytes;
    struct gw_buffer **own; /* gw_cl_private */
    size_t n_own;
    /* gw_step_pack, in turn: the copy of the step before may still be on its way */
    int32_t *staging[2];
    gw_cl_pinned pinned; /* where they are; NULL: in ordinary memory */
    cl_event sent[2];    /* that copy; NULL: none */
    int turn;
    size_t staging_bytes;
    gw_node_time *times;
    cl_event *events;        /* [n] while timing */
    struct gw_cl_walk *walk; /* all launches in one; NULL: one by one */
};

/* Launches whose arguments are being set, first to last; the first error stays. */
typedef struct gw_cl_call {
    struct gw_segment *segment;
    gw_cl_launch *launch;
    gw_status status;
} gw_cl_call;

/* A new launch of `kernel` of a program. dims: of the group grid, in groups of `local` items. */
gw_cl_call gw_cl_launch_new(struct gw_segment *segment, const char *source, const char *options,
                            const char *kernel);
void gw_cl_arg_mem(gw_cl_call *call, cl_mem mem, cl_ulong offset); /* two arguments */
void gw_cl_arg_tensor(gw_cl_call *call, const gw_tensor *t);       /* two; NULL: none, offset 0 */
void gw_cl_arg_int(gw_cl_call *call, int64_t value);
void gw_cl_arg_ulong(gw_cl_call *call, cl_ulong value);
void gw_cl_arg_float(gw_cl_call *call, float value);
/* step, rows, picked: what every kernel begins with */
void gw_cl_arg_step(gw_cl_call *call);
gw_status gw_cl_launch_end(gw_cl_call *call, size_t local, size_t groups_x, size_t groups_y,
                           size_t groups_z);
gw_status gw_cl_pool_get(struct gw_device *device, gw_cl_pool *pool, size_t bytes, cl_mem *out);
gw_status gw_cl_scratch(struct gw_device *device, size_t bytes, cl_mem *out);
/* Memory of this segment alone with these bytes. */
gw_status gw_cl_private(struct gw_segment *segment, const void *from, size_t bytes, cl_mem *out);

/* walk.c: the segment's launches as one, where the device can do that: segment->walk, or NULL. An
 * error is one of memory or of the device. */
gw_status gw_cl_walk_new(struct gw_segment *segment);
/* One step; step: as packed, kept until the call returns. */
cl_int gw_cl_walk_enqueue(struct gw_segment *segment, const cl_int *step);
void gw_cl_walk_free(struct gw_segment *segment);

gw_status gw_cl_freeze(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                       struct gw_segment **out);
gw_status gw_cl_run(struct gw_segment *segment, const gw_step *step);
gw_status gw_cl_wait(struct gw_device *device);
void gw_cl_segment_free(struct gw_segment *segment);
void gw_cl_profile(struct gw_segment *segment, gw_node_time *times);

gw_status gw_cl_post_new(struct gw_device *device, struct gw_post **out);
void gw_cl_post_free(struct gw_post *post);
gw_status gw_cl_post(struct gw_post *post, const struct gw_buffer *src, size_t at);
gw_status gw_cl_collect(struct gw_post *post, int32_t *out);

/* ---- float prefill through CLBlast (blas.c)
 * ------------------------------------------------------------------------------------------ */

/* Opens the library once per process, with local visibility, and tries it on the device. What is
 * missing or wrong is in blas_note; the device then does without. */
void gw_cl_blas_open(struct gw_device *device);
/* Most rows of a tile of a matrix of `rows`, and memory for one: gemm's w, y and k. */
gw_status gw_cl_blas_tile(struct gw_segment *segment, const gw_tensor *w, int64_t rows,
                          gw_cl_gemm *gemm, int64_t *tile);
/* Launches that widen the rows of a tile to f32; fills gemm's m. */
gw_status gw_cl_blas_widen(struct gw_segment *segment, const gw_tensor *w, const gw_cl_chunk *tile,
                           gw_cl_gemm *gemm);
/* 1: CLBlast was given the product; 0: it must be done by the launch itself. */
int gw_cl_blas_multiply(struct gw_segment *segment, const gw_cl_launch *launch,
                        cl_command_queue queue, const gw_step *step, cl_event *event);
const char *gw_cl_blas_note(const struct gw_device *device);

/* ---- kernels (kernels.c lists, rows.c, linear.c, attention.c record) ------------------------- */

gw_status gw_cl_list_kernels(struct gw_device *device);
/* gw_backend.arithmetic (linear.c): 16-bit matrix units, CLBlast. */
void gw_cl_arithmetic(const struct gw_device *device, const gw_node *node, char *out);

#define GW_CL_KERNEL(op)                                                                           \
    int gw_cl_accepts_##op(const gw_kernel *kernel, const gw_node *node,                           \
                           const struct gw_device *device);                                        \
    gw_status gw_cl_record_##op(struct gw_segment *segment, const gw_kernel *kernel,               \
                                const gw_node *node);
GW_CL_KERNEL(embed)
GW_CL_KERNEL(pick)
GW_CL_KERNEL(norm)
GW_CL_KERNEL(quantize)
GW_CL_KERNEL(linear)
GW_CL_KERNEL(glu)
GW_CL_KERNEL(blas_linear)
GW_CL_KERNEL(blas_glu)
GW_CL_KERNEL(rope_kv)
GW_CL_KERNEL(attention)
GW_CL_KERNEL(attention_digits)
GW_CL_KERNEL(sample)
GW_CL_KERNEL(embed_form)
GW_CL_KERNEL(pick_form)
GW_CL_KERNEL(norm_form)
GW_CL_KERNEL(route)
GW_CL_KERNEL(rope_form)
GW_CL_KERNEL(attention_form)
GW_CL_KERNEL(cells)
GW_CL_KERNEL(experts_glu)
GW_CL_KERNEL(experts_down)
GW_CL_KERNEL(lora_a)
GW_CL_KERNEL(lora_b)
GW_CL_KERNEL(heads)
GW_CL_KERNEL(listed)
GW_CL_KERNEL(ngram)
#undef GW_CL_KERNEL
/* state.c */
int gw_cl_accepts_state(const gw_kernel *kernel, const gw_node *node,
                        const struct gw_device *device);
gw_status gw_cl_record_conv(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node);
gw_status gw_cl_record_scan(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node);
gw_status gw_cl_record_exp_gates(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node);
gw_status gw_cl_record_divide(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node);
gw_status gw_cl_record_group_norm(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node);
gw_status gw_cl_record_columns(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node);
gw_status gw_cl_record_widen(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node);
gw_status gw_cl_record_streams(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node);
gw_status gw_cl_record_sparse_glu(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node); /* forms.c */
/* listed.c */
gw_status gw_cl_record_hyper(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node);
gw_status gw_cl_record_rotate(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node);
gw_status gw_cl_record_group_dot(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node);
int gw_cl_accepts_area(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device);
gw_status gw_cl_record_compress(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node);
gw_status gw_cl_record_choose(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node);
int gw_cl_accepts_rowwise(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device);
gw_status gw_cl_record_act(struct gw_segment *segment, const gw_kernel *kernel,
                           const gw_node *node);
gw_status gw_cl_record_mix(struct gw_segment *segment, const gw_kernel *kernel,
                           const gw_node *node);

/* forms.c: gates and, side by side or not, values: rows [first, first + rows) of those that the
 * step has, `times` to a live row, at `stride` floats from one to the next. */
typedef struct gw_cl_activation {
    gw_act_args args;
    cl_mem mem;
    cl_ulong gate, up; /* in bytes */
    int gated, times;
    size_t width, stride, first, rows;
} gw_cl_activation;

/* numbers: of XIELU or CLAMP, or NULL. */
gw_status gw_cl_record_activation(struct gw_segment *segment, const gw_cl_activation *a,
                                  const gw_tensor *numbers, const gw_tensor *out);
/* Ends a launch of items that share nothing: pieces of a row along x. */
gw_status gw_cl_launch_rows(gw_cl_call *call, size_t pieces, size_t rows);

/* linear.c: does the weight lie as products on this device read it? */
int gw_cl_layout_fits(const gw_tensor *w, const struct gw_device *device);

/* -D options that describe to the kernels a format in products of that order. Returns the length of
 * the text. */
size_t gw_cl_format_options(gw_fmt fmt, gw_order order, char *out, size_t room);
/* decode.c: generated tokens on teams, quantized LINEAR of any order on items (stacked). The norm
 * before a node is recorded with it where the first says so; GLU takes one launch per allocation
 * where the last says so. */
int gw_cl_takes_norm(const struct gw_segment *segment, const gw_node *norm, const gw_node *node);
gw_status gw_cl_record_stacked(struct gw_segment *segment, const gw_node *node);
gw_status gw_cl_record_decode_glu(struct gw_segment *segment, const gw_node *node);
int gw_cl_one_glu_launch(const struct gw_segment *segment, const gw_node *node);
/* attention.c: is it of a format that caches have; -D options of every kernel that reads or writes
 * it; the last arguments of these kernels, its other allocations, which K and V of a layer share.
 */
int gw_cl_is_cache(const gw_tensor *t);
const char *gw_cl_cache_options(const gw_tensor *cache);
void gw_cl_arg_split(gw_cl_call *call, const gw_tensor *cache);
/* The float sums of each row's own page: e values, the maximum, the sum, of [rows, heads]. */
gw_status gw_cl_record_own_pages(struct gw_segment *segment, const gw_node *node, cl_mem part,
                                 cl_ulong offset);
/* The same of keys and values in two formats. */
gw_status gw_cl_record_own_mixed(struct gw_segment *segment, const gw_node *node, cl_mem part,
                                 cl_ulong offset);
/* May ROPE_KV be recorded with the ATTENTION that follows? */
int gw_cl_takes_rope(const struct gw_segment *segment, const gw_node *rope, const gw_node *node);

/* Do products with w read activations with one scale per span? */
int gw_cl_takes_spans(const gw_tensor *w, gw_order order);
/* x [rows, k] of act8 as such products read it, unless *out has it already: in memory that is
 * another's after the next such call or that of linear.c for 16-bit floats. */
gw_status gw_cl_record_spans(struct gw_segment *segment, const gw_tensor *x, cl_mem *out);

/* Pages that a launch left at the beginning of parts, ev + 2 floats each, are joined: rows [row0,
 * row0 + rows) of f32 out (attention_form.cl). */
gw_status gw_cl_record_form_join(struct gw_segment *segment, const gw_node *node, cl_mem parts,
                                 size_t row0, size_t rows, cl_mem out, cl_ulong out_at);
/* f32 [rows, width] in scratch -> act8 out. */
gw_status gw_cl_record_encode(struct gw_segment *segment, cl_mem from, cl_ulong offset,
                              const gw_tensor *out);

static inline size_t gw_cl_width(const gw_tensor *t) { return (size_t)t->dim[t->n_dim - 1]; }
static inline size_t gw_cl_groups(size_t n, size_t of) { return (n + of - 1) / of; }

#endif
