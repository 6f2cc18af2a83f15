/* core/plan/plan.h - nodes in order, split by device, frozen once and replayed per token. */
#ifndef GW_PLAN_PLAN_H
#define GW_PLAN_PLAN_H

#include "core/plan/backend.h"

typedef struct gw_plan gw_plan;

enum { GW_MAX_DEVICES = 17 };

typedef struct gw_plan_device {
    const gw_backend *backend;
    struct gw_device *device;
} gw_plan_device;

/* Devices, by index, that compute a layer together, and the share of each. */
typedef struct gw_group {
    int n;
    int device[GW_MAX_CARDS]; /* [0]: the one that stands for the group */
    double share[GW_MAX_CARDS];
    struct gw_link *link; /* NULL: through the host */
} gw_group;

/* The first kernel of the device that accepts the node; NULL. Reads formats, shapes, layouts. */
const gw_kernel *gw_plan_kernel(const gw_plan_device *device, const gw_node *node);

/* Check every node, choose every kernel, place the activations that have no buffer yet (one arena
 * per device, lifetimes known), freeze each run of nodes on one device.
 *
 *   nodes  execution order; copied. Tensors are borrowed and must outlive the plan; an `out` tensor
 *          without a buffer becomes an activation [rows, ...] placed in the arena of its node's
 *          device. An input that lies on another device is copied before the nodes that read it;
 *          weights and caches never are.
 *   rows   capacity in live rows: dim[0] of every activation.
 *   arena  shared by plans that never run at once; grown when a plan needs more.
 *
 * GW_E_METADATA names the node; GW_E_UNSUPPORTED also lists the kernels that declined. All
 * allocation happens here: gw_plan_run never allocates. */
typedef struct gw_arena_set gw_arena_set;
gw_status gw_arena_set_new(const gw_plan_device *devices, int n_devices, gw_arena_set **out);
void gw_arena_set_free(gw_arena_set *arenas);

gw_status gw_plan_build(const gw_node *nodes, size_t n, const gw_plan_device *devices,
                        int n_devices, int rows, gw_arena_set *arenas, gw_plan **out);
/* What gw_plan_build would take of each device's arena, without taking it: need [n_devices] is
 * raised to that where it is less. Weights may be without memory. Not counted: what kernels work
 * with. */
gw_status gw_plan_need(const gw_node *nodes, size_t n, const gw_plan_device *devices, int n_devices,
                       int rows, uint64_t *need);
/* After all plans of a session are frozen: what is left to do before the first run, for all of them
 * at once (backend.h). gw_plan_run does it where this was not called. */
gw_status gw_plan_ready(gw_plan *plan, const gw_watch *watch);
/* May return while the last device is still at work; plans on the same devices then follow in
 * order, so that one device works while another is given its next rows. */
gw_status gw_plan_start(gw_plan *plan, const gw_step *step);
gw_status gw_plan_wait(gw_plan *plan);                     /* for every device of the plan */
gw_status gw_plan_run(gw_plan *plan, const gw_step *step); /* both                         */
void gw_plan_free(gw_plan *plan);

/* Cut what runs on one device at layers, into about `parts` parts, and call fn whenever a part but
 * the plan's last was run: the host looks after another device meanwhile. fn NULL: no more calls.
 * On an error the plan is as it was. */
typedef void (*gw_pause_fn)(void *user);
gw_status gw_plan_pause(gw_plan *plan, int device, int parts, gw_pause_fn fn, void *user);

/* What a plan with nodes that fetch asks for: called before each of them, when its inputs are on
 * its device; to be set before the plan runs. */
typedef gw_status (*gw_fetch_fn)(void *user, const gw_node *node, const gw_step *step);
void gw_plan_fetch(gw_plan *plan, gw_fetch_fn fn, void *user);

/* Per-node times since gw_plan_profile(plan, 1). node i of plan: gw_plan_node(plan, i). */
void gw_plan_profile(gw_plan *plan, int on);
size_t gw_plan_size(const gw_plan *plan);
const gw_node *gw_plan_node(const gw_plan *plan, size_t i);
gw_node_time gw_plan_time(const gw_plan *plan, size_t i);

#endif
