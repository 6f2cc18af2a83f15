/* backends/hip/hip.h - the inside of the "hip" backend: devices, buffers, weight layouts, programs,
 * launches. One code for AMD (hip* entry points) and NVIDIA (cu*); the kernels are those
 * of kernels_hip.
 *
 * A node becomes one or more launches when a plan is frozen: gw_hip_record; some nodes are recorded
 * together with the next one. When it is made ready the kernels of the list are found, or compiled,
 * and it is captured into a graph, which is replayed; only the step block changes between two
 * replays.
 */
#ifndef GW_BACKENDS_HIP_H
#define GW_BACKENDS_HIP_H

#include "backends/hip/driver.h"
#include "backends/hip/processor.h"
#include "core/plan/backend.h"
#include "kernels_hip/narrow_params.h"
#include "kernels_hip/params.h"
#include "kernels_hip/rows/rope_params.h"
#include "kernels_hip/rows/route_params.h"

/* ---- device (device.c) ----------------------------------------------------------------------- */

/* Code on the device: a file of kernels_hip, or one kernel. */
typedef struct gw_hip_program {
    char name[64];
    gw_hip_module module; /* NULL: wanted, still to be compiled */
} gw_hip_program;

struct gw_device {
    const gw_hip_driver *driver;
    int ordinal; /* among the devices of all drivers */
    int id;      /* the driver's                     */
    gw_hip_context context;
    gw_hip_stream stream;
    int warp;                 /* threads that run together: 32 or 64                          */
    int units;                /* multiprocessors or compute units                             */
    int shared_bytes;         /* of one block, at most                                        */
    int capability;           /* NVIDIA: 90 for sm_90; AMD and the emulator: 0                */
    int code;                 /* NVIDIA: that of the code that is loaded, at most capability   */
    char name[128], arch[64]; /* "sm_90", "gfx90a", "emulator"                        */
    size_t memory;
    uint64_t reserved; /* bytes of all buffers, scratch and steps                     */
    const gw_hip_processor *processor;      /* of that code; set with the programs     */
    char note[256];                         /* that it is in no row of arch.h; else "" */
    const struct gw_hip_compiler *compiler; /* NULL: the programs are code of the build */
    gw_hip_program *programs;
    size_t n_programs, programs_room;
    int programmatic; /* the code was built with dependency waits (sm_90 and later)   */
    int group;        /* and with matrix instructions of four waves (sm_90a)          */
    int has_carve_out;       /* programmatic, and the driver knows GW_HIP_LAUNCH_CARVEOUT    */
    int exact;        /* every bit as on the CPU: no 16-bit matrix units for floats   */
    int no_graph;     /* launches one by one                                          */
    int no_fuse;      /* every node has launches of its own, to compare               */
    int no_block;     /* attention of few pages by teams, as of many, to compare      */
    int send;         /* products in front of exchanges send                          */
    int early;        /* exchanges do not await the end of those products             */
    int flags;        /* exchanges of many rows: words without numbers, and flags behind them */
    int no_pages;     /* that by groups of pages, however few, to compare             */
    int no_group;     /* prompts without matrix instructions of four waves            */
    int check;        /* that, and the end of each is awaited: faults name the kernel */
    int part;         /* exchanges in one graph of a card that shares layers      */
    int compile;      /* programs are compiled now, whatever the build has           */
    int older;        /* NVIDIA: for this processor instead of the card's own; or 0  */
    char option[64];  /* one more for the compiler, or ""                            */
    uint64_t waits;   /* how often the stream was seen empty                          */
    struct gw_segment *drew; /* the last one that drew; or NULL                      */
    gw_kernel *kernels;
    size_t n_kernels;
    int fail_alloc, fail_launch, fail_build; /* faults for tests: the k-th from now; 0: never */
    int lost;                                /* an earlier failure: nothing more is launched  */
    gw_hip_event mark;        /* where another device's stream joins this one's; or NULL      */
    struct gw_link *link;     /* to other cards; or NULL                                      */
    struct gw_segment *timed; /* whose events are read when the device is waited for; or NULL */
    int timed_way;
    /* Scratch is shared by all segments: their launches run in order. Older, smaller ones stay,
     * because captured graphs hold their addresses. */
    struct gw_hip_piece *scratch;
    size_t n_scratch;
    struct gw_hip_piece *unpacked; /* the same, of gw_hip_unpacked */
    size_t n_unpacked;
    struct gw_segment *landed;  /* the last one that ran, with what it has landed; or NULL */
    struct gw_hip_slots *slots; /* small writes on their way; NULL until there is a plan   */
    void *landing;            /* pinned memory for what is read; NULL until there is a plan */
    struct gw_hip_ring *ring; /* pinned memory that weights travel through; NULL until one does */
    struct gw_hip_packing { /* pack.c: tables that have been asked for */
        struct gw_hip_table *table; /* [n] */
        size_t n, room;
    } packing;
};

typedef struct gw_hip_piece {
    gw_hip_ptr at;
    size_t bytes;
} gw_hip_piece;

/* The calling thread works on this device from here on. Every entry of the backend begins so. What
 * the device was given and waits for other cards (gw_hip_launch_group) is launched before. */
gw_status gw_hip_enter(const struct gw_device *device);
/* The first half of that. */
gw_status gw_hip_choose(const struct gw_device *device);
/* "%s was lost while %s: %s"; nothing runs on the device any more. */
gw_status gw_hip_lose(struct gw_device *device, gw_hip_error error, const char *what);

/* ---- buffers (memory.c) ---------------------------------------------------------------------- */

struct gw_buffer {
    struct gw_device *device;
    gw_hip_ptr at; /* 0: stowed */
    size_t bytes;
    void *kept; /* its bytes on the host once it was stowed, pinned unless kept_plain */
    int kept_plain;
    int in_host; /* `at` is pinned memory of the host: gw_hip_alloc_mapped */
};

/* Where a tensor begins on the device. */
static inline gw_hip_ptr gw_hip_at(const gw_tensor *t) { return t->buf->at + t->offset; }

/* Uninitialized device memory, counted in device->reserved. GW_E_NOMEM says how much is left. */
gw_status gw_hip_memory_new(struct gw_device *device, size_t bytes, gw_hip_ptr *out);
void gw_hip_memory_free(struct gw_device *device, gw_hip_ptr at, size_t bytes);

/* Pinned host memory. */
gw_status gw_hip_host_new(struct gw_device *device, size_t bytes, void **out);
/* What is read goes through this, for the driver takes longer over memory that is not pinned. */
gw_status gw_hip_landing_new(struct gw_device *device);
/* The staging ring, when it is not needed any more. */
void gw_hip_ring_free(struct gw_device *device);

gw_status gw_hip_alloc(struct gw_device *device, size_t bytes, struct gw_buffer **out);
gw_status gw_hip_alloc_mapped(struct gw_device *device, size_t bytes, size_t page_bytes,
                              struct gw_buffer **out);
void gw_hip_release(struct gw_buffer *buffer);
gw_status gw_hip_stow(struct gw_buffer *buffer, uint64_t *kept);
gw_status gw_hip_restore(struct gw_buffer *buffer);
gw_status gw_hip_write(struct gw_buffer *dst, size_t at, const void *src, size_t bytes);
gw_status gw_hip_read(const struct gw_buffer *src, size_t at, void *dst, size_t bytes);
gw_status gw_hip_load_weight(struct gw_device *device, gw_tensor *t, const gw_weight_source *src);
gw_status gw_hip_fetch_weight(struct gw_device *device, const gw_tensor *t,
                              const gw_weight_source *src, int64_t first, int64_t n);
gw_status gw_hip_size_weight(const struct gw_device *device, gw_tensor *t,
                             const gw_weight_source *src, uint64_t *bytes);

/* ---- weight layouts (layout.c) --------------------------------------------------------------- */

enum {
    GW_HIP_PLANES = 4,
    GW_HIP_LAYOUT_STRIPS = GW_LAYOUT_PRIVATE /* kernels_hip/strip.h: what LINEAR and GLU read */
};

/* How the rows of a weight lie on the device: in up to four planes (codes, scales, ...), one behind
 * the other in one buffer. Rows travel in units that are packed together; a plane holds the units
 * in order without gaps. The last unit may have fewer rows; its missing rows are packed as zeros.
 */
typedef struct gw_hip_layout {
    int number; /* gw_tensor.layout                   */
    gw_fmt fmt;
    size_t rows, cols;
    size_t row_bytes; /* as stored                          */
    size_t unit;      /* rows packed together               */
    int n_planes;
    size_t unit_bytes[GW_HIP_PLANES]; /* of one unit in each plane          */
    size_t plane[GW_HIP_PLANES];      /* offset of each, 256-byte aligned   */
    size_t bytes;                     /* of all planes                      */
} gw_hip_layout;

/* The layout of a weight by its format and shape [rows, cols]; keep_rows: GW_LAYOUT_ROWS. The same
 * answer at load and when a launch is recorded: layout->plane are the offsets kernels get. */
gw_status gw_hip_layout_of(const struct gw_device *device, const gw_tensor *t, int keep_rows,
                           gw_hip_layout *out);
/* n rows as stored, n <= unit -> out[p], unit_bytes[p] each. Any thread. */
void gw_hip_pack(const gw_hip_layout *layout, const unsigned char *rows, size_t n,
                 unsigned char *const out[GW_HIP_PLANES]);

/* Whether the card can pack rows of this layout as gw_hip_pack would (pack.c); *on_card 0: the host
 * has to. The first question of a format and width makes a table, some milliseconds. */
gw_status gw_hip_packs(struct gw_device *device, const gw_hip_layout *layout, int *on_card);
/* The same of n rows that lie on the card, from a whole unit of the layout on: into the units at
 * `to`, in the device's stream. Only where gw_hip_packs has said so. */
gw_status gw_hip_pack_rows(struct gw_device *device, const gw_hip_layout *layout, gw_hip_ptr rows,
                           size_t n, gw_hip_ptr to);
void gw_hip_packing_free(struct gw_device *device);

/* ---- programs (program.c) -------------------------------------------------------------------- */

const char *gw_hip_note(const struct gw_device *device); /* gw_backend.note */
/* Loads all code of the build, or makes the compiler ready. GW_E_UNSUPPORTED names the device and
 * what this build has code for; GW_E_DEVICE has the compiler's first lines. */
gw_status gw_hip_programs_open(struct gw_device *device);
void gw_hip_programs_free(struct gw_device *device);
/* This kernel will be looked for: it is compiled together with all others that are wanted. */
gw_status gw_hip_need_kernel(struct gw_device *device, const char *kernel);
/* Compiles what is wanted, or finds it on disk, and loads it. watch: may be NULL; GW_E_CANCELLED:
 * what was compiled until then is kept. */
gw_status gw_hip_programs_build(struct gw_device *device, const gw_watch *watch);
/* The kernel of that name; builds what is wanted when it is not there. */
gw_status gw_hip_find(struct gw_device *device, const char *kernel, gw_hip_function *out);

/* ---- segments (segment.c) -------------------------------------------------------------------- */

typedef struct gw_hip_launch {
    gw_hip_function function;
    char kernel[64];
    unsigned grid[3], block[3], shared_bytes;
    void *params; /* own copy */
    int node;
    int exchanges; /* with other cards, whose launches it waits for */
    size_t sends_at; /* where in params its gw_sends are, if it makes a node's output; or 0 */
    int ways; /* that it belongs to: a bit for each of them */
    /* Not 0: grid[0] is cut to the blocks that run at once, in whole multiples of this. */
    unsigned fill;
    unsigned cluster; /* blocks that run side by side; 0, 1: as it comes */
    unsigned items;   /* of a product, which its blocks take one after the other; else 0 */
    /* 1: a product that is not bound by memory alone: a kernel beside it costs it little. */
    int has_slack;
    /* 1: a product that can prefetch weights of the product behind it; has_all: its own are so few
     * that all of them are in flight before it has x. */
    int asks_ahead, has_all;
    /* 1: attention's blocks are to run beside this launch's on an NVIDIA multiprocessor: it gets
     * the largest carve-out (shared memory instead of first-level cache). */
    int carve_out;
    /* 1: begins when the launch in front of it has ended: of attention that reads pages early,
     * which that one makes. */
    int in_order;
} gw_hip_launch;

/* Variants of attention by the number of pages that a step reads (docs/gpu.md); the last one whose
 * limit is not exceeded is used. Each is a graph of its own. */
enum {
    GW_HIP_ATTEND_MANY,  /* any number: a launch joins pages, or groups of them     */
    GW_HIP_ATTEND_PAGES, /* too few for groups, where MANY has groups               */
    GW_HIP_ATTEND_DEEP,  /* a team has eight chunks of its page in flight, not four */
    GW_HIP_ATTEND_WHOLE, /* or all chunks                                           */
    GW_HIP_ATTEND_SPLIT, /* blocks share the pages of a row                         */
    GW_HIP_ATTEND_ROWS,  /* a block has all pages of several rows                   */
    GW_HIP_ATTEND_BLOCK, /* a block has all pages of a row                          */
    GW_HIP_ATTEND_KINDS
};

struct gw_segment {
    struct gw_device *device;
    gw_hip_launch *launches;
    size_t n, capacity;
    const gw_node *nodes; /* while it is being recorded */
    size_t n_nodes;
    int rows;    /* most live rows */
    int node;    /* being recorded */
    gw_op front; /* of the node before it that has launches */
    int is_ready;
    /* Nodes fused into the one being recorded; or NULL. norm: its input norm, computed by the
     * previous product's epilogue. behind: the norm that follows it, computed by its own epilogue.
     * rope: the ROPE_KV of several rows just before it, launched separately. order: a QUANTIZE that
     * permutes x into the product's column order, which the product does itself. */
    const gw_node *norm, *rope, *behind, *order;
    const gw_node *unmade; /* a norm as floats, for adapters alone, that is not made */
    int most_pages[GW_HIP_ATTEND_KINDS]; /* that a way takes, in all launches; 0: it is not there */
    int attends;                 /* nodes of attention so far */
    int picked;                  /* a PICK came before: live rows are step.n_pick, else step.n */
    int draws; /* a SAMPLE: its next step may begin while this one is at work, so step
                * block and graphs are there twice, used in turn */
    int turn;
    int ran[2];
    uint64_t waits[2];     /* device->waits when it last ran: equal means it may still run */
    gw_hip_event ended[2]; /* of a segment that draws: when it last did */
    gw_hip_ptr ids;        /* what it draws, [rows] */
    int32_t *drawn;        /* the same in pinned host memory, [2, rows] */
    struct gw_post *post[2]; /* that is to have one of them; or NULL */
    gw_hip_ptr step;         /* the step block in device memory (kernels_hip/params.h) */
    int32_t *staging[2];     /* the same in pinned host memory */
    size_t step_bytes;
    gw_hip_function take_step; /* the kernel that fetches it */
    gw_hip_piece *pieces; /* gw_hip_private */
    size_t n_pieces;
    gw_hip_piece arrived; /* gw_hip_counters */
    gw_hip_ptr has_left;  /* of blocks that share tiles out (gemm.c) */
    gw_hip_ptr left;      /* by a product with a norm behind it (linear.c), ..    */
    size_t left_width;    /* .. of rows of that width                             */
    struct {              /* rows that a launch has put into groups (linear.c)    */
        const gw_tensor *of;
        gw_hip_ptr at;
        int form, node;
    } grouped;
    const gw_tensor *late_gate; /* what a MIX is to take the sigmoid of (linear.c); or NULL */
    struct { /* a result that is elsewhere than its tensor, for one product (gw_hip_move) */
        const gw_tensor *of;
        gw_hip_ptr at;
        size_t bytes;
    } moved;
    struct { /* 16-bit copy of the last node's output (gw_hip_narrow_to) */
        const gw_tensor *of;
        struct gw_narrow_to to;
        gw_hip_ptr at; /* memory for them, used again by every such node */
        size_t bytes;
        int node;
    } narrowed;
    struct { /* rows sorted by the experts of a route (experts.c) */
        const gw_tensor *of;
        gw_hip_ptr at;
        size_t bytes;
        int node;
    } sorted;
    /* Launches of a card that shares layers are given to the driver in parts, since its queue has
     * an end: [n_parts + 1] where each begins. */
    size_t *part;
    size_t n_parts;
    gw_hip_exec *graph[GW_HIP_ATTEND_KINDS][2]; /* [n_parts]; of MANY NULL: launches one by one */
    struct gw_hip_landed *landed; /* results that cross to other devices (crossing.c) */
    size_t n_landed;
    gw_node_time *times;
    gw_hip_event *events; /* [n + 1] while timing */
};

/* Appends a launch: kernel by name, grid in blocks, block in threads, dynamic shared memory, and
 * the one parameter struct, which is copied. Grids depend on the plan's rows only; kernels read
 * live rows and positions from the step block. */
gw_status gw_hip_record(struct gw_segment *segment, const gw_node *node, const char *kernel,
                        unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        const void *params, size_t params_bytes);

/* Device memory for the launches of one node, free again for the next node; not cleared. A node
 * asks once: a second call may return the same memory. */
gw_status gw_hip_scratch(struct gw_segment *segment, size_t bytes, gw_hip_ptr *out);
/* The same, disjoint from it: for caches that are unpacked for a node that has scratch, too. */
gw_status gw_hip_unpacked(struct gw_segment *segment, size_t bytes, gw_hip_ptr *out);
/* Launches from number `front` on begin when the one before them has ended (gw_hip_launch). */
void gw_hip_in_order(struct gw_segment *segment, size_t front);
/* Zeroed device memory of this segment alone, for what lasts from one launch or replay to the next
 * (counters that reset themselves). */
gw_status gw_hip_private(struct gw_segment *segment, size_t bytes, gw_hip_ptr *out);
/* Counters of units that are done, 0 between launches: one memory for all launches of a segment. */
gw_status gw_hip_counters(struct gw_segment *segment, size_t n, gw_hip_ptr *out);
/* The segment draws ids [rows]; *host: [2, rows] where a step of turn 0 or 1 leaves them, too. */
gw_status gw_hip_draws(struct gw_segment *segment, gw_hip_ptr ids, gw_hip_ptr *host);
/* Where the last step that drew leaves these ids in host memory, bytes of them; NULL: nowhere. */
const int32_t *gw_hip_drawn(const struct gw_device *device, gw_hip_ptr at, size_t bytes);
/* Whether two activations share no memory. */
int gw_hip_disjoint(const gw_tensor *a, const gw_tensor *b);
int gw_hip_same_place(const gw_tensor *a, const gw_tensor *b);
/* Does one of these nodes read t before one writes it (fuse.c)? */
int gw_hip_is_read(const gw_tensor *t, const gw_node *nodes, size_t n);
/* Blocks of this kernel that one unit holds at once, at least 1: grids of exactly what fits. */
int gw_hip_resident(struct gw_device *device, const char *kernel, unsigned threads,
                    unsigned shared_bytes);

/* What every kernel begins with. */
static inline struct gw_step_params gw_hip_step(const struct gw_segment *segment) {
    return (struct gw_step_params){segment->step, segment->rows, segment->picked};
}

/* Launches at once. after: the launch before it may still run when this one begins; the kernel
 * waits for it. */
gw_hip_error gw_hip_start(struct gw_device *device, const gw_hip_launch *launch, int after,
                          int way);

gw_status gw_hip_freeze(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                        struct gw_segment **out);
gw_status gw_hip_ready(struct gw_segment *segment, const gw_watch *watch);
gw_status gw_hip_run(struct gw_segment *segment, const gw_step *step);
gw_status gw_hip_wait(struct gw_device *device);
void gw_hip_segment_free(struct gw_segment *segment);
void gw_hip_profile(struct gw_segment *segment, gw_node_time *times);

gw_status gw_hip_post_new(struct gw_device *device, struct gw_post **out);
void gw_hip_post_free(struct gw_post *post);
gw_status gw_hip_post(struct gw_post *post, const struct gw_buffer *src, size_t at);
gw_status gw_hip_collect(struct gw_post *post, int32_t *out);

/* ---- the host, a token at a time (crossing.c) ------------------------------------------------ */

/* Of a node that is recorded: where its result crosses and is small, every run leaves it in pinned
 * memory as well. */
gw_status gw_hip_land(struct gw_segment *segment, const gw_node *node);
/* Behind the launches of a run. */
gw_hip_error gw_hip_send_landed(struct gw_segment *segment);
/* Where these bytes are when the device has been waited for, if its last run has landed them and
 * nothing was written since; or NULL. */
const void *gw_hip_landed_at(const struct gw_device *device, gw_hip_ptr at, size_t bytes);
void gw_hip_landed_free(struct gw_segment *segment);

gw_status gw_hip_slots_new(struct gw_device *device);
int gw_hip_fits_slot(const struct gw_device *device, size_t bytes);
/* A write that need not be waited for: what runs behind it in the device's stream sees it. Bytes
 * that fit a slot. */
gw_status gw_hip_send(struct gw_device *device, gw_hip_ptr to, const void *src, size_t bytes);
void gw_hip_slots_free(struct gw_device *device);

/* ---- other cards (exchange.c) ---------------------------------------------------------------- */

gw_status gw_hip_copy(struct gw_buffer *dst, size_t at, const struct gw_buffer *src, size_t from,
                      size_t bytes);
gw_status gw_hip_link(struct gw_device *const *devices, int n, struct gw_link **out);
void gw_hip_unlink(struct gw_link *link);
gw_status gw_hip_flag(struct gw_link *link, double *seconds);
int gw_hip_link_rank(const struct gw_device *a, const struct gw_device *b); /* links.c */
/* What gw_hip_run has made ready: launched at once, but where it exchanges only when every card of
 * its link has its own, or this card is asked for something else (gw_hip_enter). Then part after
 * part, card by card: no card's queue holds more of what waits for another card than a part. */
gw_status gw_hip_launch_group(struct gw_segment *segment, int way);
/* Of a device that is entered: what waits so. */
gw_status gw_hip_launch_waiting(const struct gw_device *device);
/* One part, and the end behind all of them (segment.c). Errors lose the device. */
gw_status gw_hip_launch_part(struct gw_segment *segment, int way, size_t part);
gw_status gw_hip_launch_end(struct gw_segment *segment, int way);
/* Has a card of its link not answered? */
int gw_hip_link_lost(const struct gw_device *device);
/* The segment is about to run: how many exchanges its card was given before. */
int32_t gw_hip_count_exchanges(const struct gw_segment *segment);
gw_status gw_hip_record_exchange(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node);

/* ---- the roof (roof.c) ----------------------------------------------------------------------- */

gw_status gw_hip_roof(struct gw_device *device, gw_roof *out);

/* ---- kernels --------------------------------------------------------------------------------- */

/* Each file that records has one table, best kernels first, ended by a row without a name;
 * kernels.c lists the tables. */
gw_status gw_hip_list_kernels(struct gw_device *device);
/* gemm_params.h: waves of 32 with matrix instructions (gemm.c). */
int gw_hip_is_wide(const struct gw_device *device);
/* Products of float weights are on 16-bit matrix units: gw_backend.matrix16. */
int gw_hip_matrix16(const struct gw_device *device);
/* gw_backend.arithmetic (gemm.c): 16-bit matrix units. */
void gw_hip_arithmetic(const struct gw_device *device, const gw_node *node, char *out);
/* The kernel for every form of ATTENTION over the node's caches, and what its parameters say of
 * them (attend_more.c). */
struct gw_attend_more_params;
enum { GW_HIP_NAME = 48 };
void gw_hip_more_cells(const gw_node *node, char name[GW_HIP_NAME],
                       struct gw_attend_more_params *p);
extern const gw_kernel gw_hip_rows_kernels[], gw_hip_linear_kernels[], gw_hip_gemm_kernels[],
    gw_hip_attention_kernels[], gw_hip_more_kernels[], gw_hip_attend_latent_kernels[],
    gw_hip_attend_digits_kernels[], gw_hip_attend_more_kernels[], gw_hip_experts_kernels[],
    gw_hip_adapters_kernels[],
    gw_hip_state_kernels[], gw_hip_listed_kernels[], gw_hip_ngram_kernels[],
    gw_hip_exchange_kernels[], gw_hip_cells_kernels[];

/* By its kernel; of prompts over caches in main memory, pages that come to the card first
 * (attend_host.c). */
gw_status gw_hip_record_node(struct gw_segment *segment, const gw_node *node);

/* Is the table of EMBED one that a kernel reads? The launch of a plain node (rows.c). */
int gw_hip_embeds(const gw_node *node);
gw_status gw_hip_record_embed(struct gw_segment *segment, const gw_node *node);
/* node->out = act(gate) (* up, if not 0), rows of both `step` floats apart, in a form (more.c). */
gw_status gw_hip_record_act(struct gw_segment *segment, const gw_node *node,
                            const gw_act_args *args, gw_hip_ptr gate, gw_hip_ptr up, size_t step,
                            int form);

/* f32 [rows, width] -> act8 out (rows.c). */
gw_status gw_hip_record_encode(struct gw_segment *segment, const gw_node *node, gw_hip_ptr from,
                               const gw_tensor *out);

/* Parameters of a ROPE_KV node (rows.c). */
struct gw_rope_params gw_hip_rotation(const gw_node *rope);

/* The form of an activation in device memory (kernels_hip/act8_params.h): grouped if all nodes that
 * write or read it are of this segment and know groups (linear.c). */
int gw_hip_form(const struct gw_segment *segment, const gw_tensor *t);
/* Where the node that is being recorded leaves rows of its result in 16 bits too, as the product
 * right behind it wants them; y 0: nowhere. alone: only if no node but that reads the result, which
 * then need not be stored at all (gemm.c). */
gw_status gw_hip_narrow_to(struct gw_segment *segment, const gw_node *node, int alone,
                           struct gw_narrow_to *out);

/* Can nodes[1] of n, a norm, be fused into nodes[0] (a product or the embedding) and nodes[2] (a
 * product)? Its result is then not stored (linear.c). */
int gw_hip_can_fuse_norm(const struct gw_segment *segment, const gw_node *nodes, size_t n);
/* The same, whatever launch it is that leaves nodes[0]. */
int gw_hip_can_leave_norm(const struct gw_segment *segment, const gw_node *nodes, size_t n);
/* Can nodes[0] of n, a QUANTIZE with an order, be fused into nodes[1], a product of one row? Its
 * blocks then take floats and encode them in that order, and nothing else is stored (linear.c). */
int gw_hip_can_fuse_order(const struct gw_segment *segment, const gw_node *nodes, size_t n);
/* Does this EXPERTS_DOWN leave what a norm behind it asks for (experts.c)? */
int gw_hip_experts_leave(const struct gw_segment *segment, const gw_node *node);
/* Memory between nodes[0] and nodes[2] of a fused norm: rows of x times the norm's weights, in
 * *form, *blocks blocks of 32 each; and the sum of squares of each block. */
gw_status gw_hip_norm_memory(struct gw_segment *segment, const gw_node *norm, gw_hip_ptr *x,
                        gw_hip_ptr *squares, int32_t *form, int32_t *blocks);
/* Is this ATTENTION plain (gw_op_is_plain) but for sinks, which the kernels that say so take? */
static inline int gw_hip_is_plain_but_sinks(const gw_node *node) {
    gw_node without = *node;
    without.w[0] = NULL;
    return gw_op_is_plain(&without);
}
/* The same with positions seen both ways. */
static inline int gw_hip_is_plain_both_ways(const gw_node *node) {
    gw_node without = *node;
    without.args.attn.both = 0;
    return gw_hip_is_plain_but_sinks(&without);
}
/* Can the ROPE_KV node `before` be fused into the attention behind it (attention.c)? For one row
 * always; for several rows in the variants whose blocks have all pages, while the others need a
 * launch for it. */
int gw_hip_can_fuse_rope(const struct gw_segment *segment, const gw_node *before,
                         const gw_node *node);

/* What a block that does ROUTE is told (more.c). */
struct gw_route_params gw_hip_route_of(const gw_node *node);
/* Launches of nodes[0] of n and those behind it that become fewer together: *taken of them; 0: none
 * was recorded (fuse.c). */
gw_status gw_hip_record_together(struct gw_segment *segment, const gw_node *nodes, size_t n,
                                 size_t *taken);
/* Is the result of nodes[0] of n read by nodes[1] alone, a product that finds it where gw_hip_move
 * has put it (linear.c)? */
int gw_hip_can_move(const struct gw_segment *segment, const gw_node *nodes, size_t n);
gw_status gw_hip_move(struct gw_segment *segment, const gw_tensor *t, gw_hip_ptr *at);

/* How many nodes from nodes[0] of n on are products of the same row that one launch makes; 0: it
 * would be one product alone. That launch, of n nodes from there on (linear.c). */
size_t gw_hip_joined_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n);
gw_status gw_hip_record_joined(struct gw_segment *segment, const gw_node *nodes, size_t n);
/* Can a product of one row have adapters in its launch, of `columns` values of A x in all, and
 * encode the row itself (floats)? Can the row come to it without its norm's factor? Can a launch
 * store what a norm of it needs? That launch, to y, which is the activation's where `glu`
 * (linear.c). */
struct gw_linear_lora;
int gw_hip_can_adapt(const struct gw_segment *segment, const gw_node *node, int glu, int floats,
                     size_t columns);
int gw_hip_takes_norm(const struct gw_segment *segment, const gw_node *norm, const gw_node *node);
int gw_hip_has_norm(const struct gw_segment *segment, const gw_node *node, const gw_node *norm);
gw_status gw_hip_record_adapted(struct gw_segment *segment, const gw_node *node,
                                const gw_tensor *y, int glu, const struct gw_linear_lora *lora);
/* How many nodes from nodes[0] of n on, a LINEAR of one row, its adapters and what follows, become
 * one launch; 0: none. That launch. Can nodes[1] and nodes[2], norms of nodes[0] as floats and in
 * blocks, be fused into nodes[0] and such a launch after them (adapters.c)? */
size_t gw_hip_adapted_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n);
gw_status gw_hip_record_adapters(struct gw_segment *segment, const gw_node *nodes, size_t n);
int gw_hip_can_fuse_norms(const struct gw_segment *segment, const gw_node *nodes, size_t n);
/* How many nodes from nodes[0] of n on, CONV, SCAN, GROUP_NORM and QUANTIZE of one row, become one
 * launch; 0: none (state.c). That launch, of `taken` of n nodes. */
size_t gw_hip_step_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n);
gw_status gw_hip_record_step(struct gw_segment *segment, const gw_node *nodes, size_t taken,
                             size_t n);
/* How many nodes from nodes[0] of n on, a GLU, are a shared expert, the experts beside it and their
 * sum, which become two launches; 0: none (experts.c). */
size_t gw_hip_shared_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n);
/* Those, of n nodes from there on: the norm behind the last one is looked at. */
gw_status gw_hip_record_shared(struct gw_segment *segment, const gw_node *nodes, size_t n);

static inline size_t gw_hip_width(const gw_tensor *t) { return (size_t)t->dim[t->n_dim - 1]; }
static inline unsigned gw_hip_groups(size_t n, size_t of) { return (unsigned)((n + of - 1) / of); }

#endif
