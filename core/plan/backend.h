/* core/plan/backend.h - everything the engine may ask of a device. No vendor type appears here. */
#ifndef GW_PLAN_BACKEND_H
#define GW_PLAN_BACKEND_H

#include "core/plan/op.h"
#include "core/plan/step.h"

struct gw_device;  /* one GPU, or the CPU thread team   */
struct gw_segment; /* a run of nodes frozen for replay  */
struct gw_post;    /* a number on its way to the host   */

enum { GW_BLAS_BYTES = 128 << 20 }; /* most that a device works with for options.blas */
enum { GW_ARITHMETIC_BYTES = 96 };  /* of a name, see gw_backend.arithmetic */

typedef struct gw_device_options {
    int threads;  /* CPU team; 0: physical cores this process may use */
    int blas;     /* float-weight prefill through a BLAS library, where there is one */
    int no_graph; /* launch kernels one by one, to compare            */
    int exact;    /* every bit as on the CPU: no 16-bit matrix units for float weights */
} gw_device_options;

/* Of work that takes seconds. All may be NULL. */
typedef struct gw_watch {
    gw_progress_fn progress;
    void *user;
    const volatile int *cancel; /* not 0: end with GW_E_CANCELLED */
} gw_watch;

/* One implementation of one op. A backend lists its kernels best first; the planner takes the
 * first whose accepts() says yes, so "is it supported" and "what runs" cannot disagree. */
enum { GW_DIGITS_TOO = 2 };
typedef struct gw_kernel {
    gw_op op;
    const char *name; /* "cpu.linear.q4_0.vnni": logs, tests, bench --ops */
    int (*accepts)(const struct gw_kernel *kernel, const gw_node *node,
                   const struct gw_device *device);
    /* Append the launch of this node to a segment that is being frozen. */
    gw_status (*record)(struct gw_segment *segment, const struct gw_kernel *kernel,
                        const gw_node *node);
    const void *state; /* the backend's */
    /* 0: is never asked for a node that is not plain (gw_op_is_plain); 1: is asked for every form;
     * GW_DIGITS_TOO: for an ATTENTION whose args.attn.digits is 1, too, which no other kernel is.
     */
    int every_form;
} gw_kernel;

/* Does this kernel run the node? The one question that everybody asks. */
static inline int gw_kernel_takes(const gw_kernel *kernel, const gw_node *node,
                                  const struct gw_device *device) {
    int digits = node->op == GW_OP_ATTENTION && node->args.attn.digits;
    return kernel->op == node->op && (kernel->every_form || gw_op_is_plain(node)) &&
           (!digits || kernel->every_form == GW_DIGITS_TOO) &&
           kernel->accepts(kernel, node, device);
}

/* The first of the list [n] that does, by which "best first" is kept; NULL: none. */
static inline const gw_kernel *gw_kernel_first(const gw_kernel *list, size_t n, const gw_node *node,
                                               const struct gw_device *device) {
    for (size_t i = 0; i < n; i++) {
        if (gw_kernel_takes(&list[i], node, device)) {
            return &list[i];
        }
    }
    return NULL;
}

typedef struct gw_node_time {
    uint64_t calls;
    double seconds;
} gw_node_time;

/* What a node that multiplies by weights is about to read: rows [rows, k] of in[0] as floats, and
 * of experts the route in[1]. Called by every thread of the team, who share out the work as they
 * like: none goes on before all are back. */
typedef struct gw_observed {
    const float *x, *route;
    int rows, id, team;
} gw_observed;
typedef void (*gw_observe_fn)(void *user, const gw_node *node, const gw_observed *seen);

typedef struct gw_backend {
    const char *name; /* "cpu": what --device takes */
    int by_name_only; /* never chosen unless it is named */
    int (*device_count)(void);
    /* Ordinals of the devices that may be chosen although nobody named them, graphics cards; at
     * most room. Cheap where there is none. NULL: all, unless by_name_only. */
    int (*cards)(int *ordinals, int room);
    gw_status (*open)(int ordinal, const gw_device_options *options, struct gw_device **out);
    void (*close)(struct gw_device *device);
    /* device NULL: device `ordinal` without opening it (gw_devices); else ordinal is not read. */
    void (*describe)(const struct gw_device *device, int ordinal, gw_device_info *out);
    /* What was asked for in the options and is done another way, as a line for people; "" when
     * nothing. May come up while it runs, and stays then. Any thread. NULL: never. */
    const char *(*note)(const struct gw_device *device);

    gw_status (*alloc)(struct gw_device *device, size_t bytes, struct gw_buffer **out); /* zeroed */
    /* For caches: may lie in several allocations, each of whole pages. NULL: alloc does. */
    gw_status (*alloc_pages)(struct gw_device *device, size_t bytes, size_t page_bytes,
                             struct gw_buffer **out);
    /* The same in the host's memory, where the device's kernels read and write it over its link;
     * page_bytes 0: in one allocation. NULL: cannot, or all its memory is the host's. */
    gw_status (*alloc_mapped)(struct gw_device *device, size_t bytes, size_t page_bytes,
                              struct gw_buffer **out);
    void (*release)(struct gw_buffer *buffer);
    /* Both end when the bytes are there, after all that was run before. */
    gw_status (*write)(struct gw_buffer *dst, size_t at, const void *src, size_t bytes);
    gw_status (*read)(const struct gw_buffer *src, size_t at, void *dst, size_t bytes);
    /* Between two devices of this backend, whose streams it joins: after all that was run on src's
     * before, and ahead of all that is run on either from then on; returns at once. NULL: through
     * the host. */
    gw_status (*copy)(struct gw_buffer *dst, size_t at, const struct gw_buffer *src, size_t from,
                      size_t bytes);
    /* NULL when the memory is not the host's: else the address, for reading logits in place. */
    void *(*host)(const struct gw_buffer *buffer);
    /* Weights only: places t (fmt, dims set by the caller) in a new or aliased buffer, in a layout
     * of its choice, and fills t->buf, t->offset, t->layout; the caller releases the buffer. */
    gw_status (*load_weight)(struct gw_device *device, gw_tensor *t, const gw_weight_source *src);
    /* What load_weight will choose and take, without doing it: fills t->layout and *bytes. Reads
     * keep_rows and whether map is NULL of src. */
    gw_status (*size_weight)(const struct gw_device *device, gw_tensor *t,
                             const gw_weight_source *src, uint64_t *bytes);

    /* Rows [first, first + n) of a weight that load_weight has placed, from another source of its
     * shape and format: after all that was run before and ahead of all that is run from then on;
     * may return before they are there. Rows beside them may be written too, from the same source.
     * NULL: cannot. */
    gw_status (*fetch_weight)(struct gw_device *device, const gw_tensor *t,
                              const gw_weight_source *src, int64_t first, int64_t n);

    /* Of a buffer of weights that no plan uses. stow: its bytes stay in the host's memory, where
     * the device reads fastest, and its own memory is given back; *kept: bytes there. restore: they
     * are sent to the device, ahead of all that is run from then on. The bytes are the same each
     * time; what is so already is left so; an error changes nothing. Both NULL: they lie in the
     * host's memory anyway. */
    gw_status (*stow)(struct gw_buffer *buffer, uint64_t *kept);
    gw_status (*restore)(struct gw_buffer *buffer);

    const gw_kernel *(*kernels)(const struct gw_device *device, size_t *count);
    /* The name of the arithmetic in which node->kernel computes this node where it is not that of
     * docs/arithmetic.md alone ("openblas", "half of sm_90"): equal names, equal bits. Else "".
     * out: GW_ARITHMETIC_BYTES. NULL: never another. */
    void (*arithmetic)(const struct gw_device *device, const gw_node *node, char *out);
    /* Can its SAMPLE do top-p and min-p (core/tensor/sample.h)? NULL: yes. */
    int (*narrows)(const struct gw_device *device);
    /* Are products of binary16 and bfloat16 weights on 16-bit matrix units? Attention over caches
     * of binary16 is then, too, and loses no more than those products do. NULL: no. */
    int (*matrix16)(const struct gw_device *device);
    /* rows: the most live rows a step of this plan has. Allocates all scratch that replay needs. */
    gw_status (*freeze)(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                        struct gw_segment **out);
    /* Does what is left before a segment can run: kernels are compiled, those of everything that
     * was frozen so far at once; progress of watch (may be NULL) then gets their number. NULL:
     * nothing is left. run() makes up for it; only after this does it take no memory. */
    gw_status (*ready)(struct gw_segment *segment, const gw_watch *watch);
    /* May return before it ends; the step is copied. Runs of one device are in order. */
    gw_status (*run)(struct gw_segment *segment, const gw_step *step);
    gw_status (*wait)(struct gw_device *device);
    void (*segment_free)(struct gw_segment *segment);
    /* An id that the last run has drawn, fetched while the device goes on with what is run after:
     * post starts it, collect waits for it and for nothing else. A post is made once and holds one
     * fetch at a time; freed before its device is closed, at any time. All NULL: a device that the
     * host waits for anyway. */
    gw_status (*post_new)(struct gw_device *device, struct gw_post **out);
    void (*post_free)(struct gw_post *post);
    gw_status (*post)(struct gw_post *post, const struct gw_buffer *src, size_t at);
    gw_status (*collect)(struct gw_post *post, int32_t *out);
    /* Lets devices of this backend reach one another's memory, for EXCHANGE: outlived by them.
     * NULL, or GW_E_UNSUPPORTED with the reason: they cannot, and exchange through the host. */
    gw_status (*link)(struct gw_device *const *devices, int n, struct gw_link **out);
    void (*unlink)(struct gw_link *link);
    /* As the driver's table of links says: 0: no link of their own, but the bus of the host; else
     * the larger, the faster. NULL: not known. */
    int (*link_rank)(const struct gw_device *a, const struct gw_device *b);
    /* Seconds until a word that the first card of a link writes is seen by the second. NULL where
     * link is. */
    gw_status (*flag)(struct gw_link *link, double *seconds);
    /* Time per node since profiling was turned on. times [n nodes]; NULL: turn off. The array is
     * the caller's and is written by run(). */
    void (*profile)(struct gw_segment *segment, gw_node_time *times);
    /* Measures what the device can do; about a second at most. Peaks it cannot measure are 0. NULL:
     * nothing can be measured. */
    gw_status (*roof)(struct gw_device *device, gw_roof *out);
    /* One short reading of the bandwidth, GB/s, comparable with the work right beside it; what it
     * needs is kept until the device is closed. NULL: there is none. */
    gw_status (*read_memory)(struct gw_device *device, double *gbps);
    /* Of what is frozen from now on: fn is shown the inputs of LINEAR, GLU and of experts where
     * they are floats. fn NULL: no longer. NULL: cannot be seen. */
    void (*observe)(struct gw_device *device, gw_observe_fn fn, void *user);
} gw_backend;

/* NULL-terminated, fastest first, fixed at build time (backends/registry.c). core/ never names it:
 * the library's front door (backends/open.c) hands the list to the engine. */
extern const gw_backend *const gw_backends[];

#endif
