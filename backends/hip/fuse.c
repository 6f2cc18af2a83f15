/* backends/hip/fuse.c - nodes that become one launch together (docs/gpu.md), found before each is
 * recorded. What products and attention fuse with their neighbours is decided by gw_hip_can_fuse_*
 * of linear.c and attention.c.
 */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "kernels_hip/rows/more_params.h"
#include "kernels_hip/rows/router_params.h"

enum { SHARED = 48 << 10, DECLARED = 2 << 10 /* arrays of gw_router_FORMAT */ };

int gw_hip_is_read(const gw_tensor *t, const gw_node *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < GW_MAX_IN; j++) {
            if (nodes[i].in[j] == t) {
                return 1;
            }
        }
        if (nodes[i].out == t) {
            break;
        }
    }
    return 0;
}

/* ---- norm, router, route --------------------------------------------------------------------- */

static int is_router(const gw_node *norm, const gw_node *product, const gw_node *route) {
    const gw_tensor *w = product->w[0];
    return product->op == GW_OP_LINEAR && product->in[0] == norm->out && product->in[1] == NULL &&
           product->w[1] == NULL && product->args.linear.order == GW_ORDER_DECODE &&
           w->layout == GW_HIP_LAYOUT_STRIPS && gw_format_of(w->fmt)->is_float &&
           gw_format_of(w->fmt)->block_elems == 1 &&
           (product->w[3] == NULL || product->w[3]->fmt == GW_FMT_F32) &&
           route->op == GW_OP_ROUTE && route->in[0] == product->out && route->in[1] == NULL &&
           gw_hip_width(product->out) == (size_t)w->dim[0];
}

/* The number that a shared expert's result is multiplied by, of the router's input: a matrix of one
 * row and its activation, nodes[3] and nodes[4]. */
static int has_gate(const gw_node *nodes, size_t n) {
    const gw_node *norm = &nodes[0], *router = &nodes[1], *gate = &nodes[3], *act = &nodes[4];
    return n > 4 && gate->op == GW_OP_LINEAR && gate->in[0] == norm->out && gate->in[1] == NULL &&
           gate->w[1] == NULL && gate->w[3] == NULL && gate->w[0]->dim[0] == 1 &&
           gate->w[0]->fmt == router->w[0]->fmt && gate->w[0]->layout == GW_HIP_LAYOUT_STRIPS &&
           gate->args.linear.order == GW_ORDER_DECODE && !gate->crosses && act->op == GW_OP_ACT &&
           act->in[0] == gate->out && act->w[0] == NULL && !act->args.act.gated &&
           act->args.act.kind == GW_ACT_SIGMOID && act->out->fmt == GW_FMT_F32 &&
           gw_hip_disjoint(act->out, norm->in[0]) && !gw_hip_is_read(gate->out, &nodes[5], n - 5);
}

/* How many nodes from nodes[0] of n on, a norm, become one launch with the router behind it: NORM,
 * LINEAR, ROUTE, the gate of a shared expert and QUANTIZE of the norm where they follow; 0: none.
 */
static size_t router_nodes(const struct gw_segment *segment, const gw_node *nodes, size_t n) {
    const gw_node *norm = &nodes[0];
    if (n < 3 || segment->device->no_fuse || nodes[1].crosses || norm->op != GW_OP_NORM ||
        !gw_op_is_plain(norm) || norm->in[0]->fmt != GW_FMT_F32 || norm->out->fmt != GW_FMT_F32 ||
        norm->w[0]->fmt != GW_FMT_F32 || !gw_hip_disjoint(norm->in[0], norm->out) ||
        !is_router(norm, &nodes[1], &nodes[2]) || gw_hip_width(norm->out) % GW_ACT_BLOCK != 0 ||
        gw_hip_width(norm->out) > GW_ROUTER_MOST ||
        GW_ROUTER_SHARED(gw_hip_width(norm->out), gw_hip_width(nodes[1].out)) + DECLARED > SHARED) {
        return 0;
    }
    if (gw_hip_is_read(nodes[1].out, &nodes[3], n - 3)) { /* the logits are not stored */
        return 0;
    }
    size_t taken = has_gate(nodes, n) ? 5 : 3;
    const gw_node *next = &nodes[taken];
    /* Blocks write the norm's blocks while others may still read its input. */
    int quantizes = n > taken && next->op == GW_OP_QUANTIZE && next->in[0] == norm->out &&
                    next->w[0] == NULL && gw_hip_disjoint(next->out, norm->in[0]);
    return taken + (size_t)quantizes;
}

/* Of so many blocks in a row each leaves a part of it. */
static int32_t leaves_of(const struct gw_router_params *p, unsigned blocks) {
    return (int32_t)gw_hip_groups(gw_hip_groups((size_t)p->k, 128), blocks);
}

static gw_status record_few(struct gw_segment *segment, const gw_node *nodes,
                            struct gw_router_params *p) {
    unsigned rows = (unsigned)segment->rows;
    unsigned blocks = gw_hip_groups((size_t)p->route.experts, GW_ROUTER_EACH);
    char name[32];
    snprintf(name, sizeof name, "gw_router_%s", gw_format_of(nodes[1].w[0]->fmt)->name);
    p->leaves = leaves_of(p, blocks);
    GW_TRY(gw_hip_counters(segment, rows, &p->arrived));
    return gw_hip_record(segment, nodes, name, blocks + (p->gate != 0), rows, 1, GW_ROUTER_THREADS,
                         1, 1, (unsigned)GW_ROUTER_SHARED(p->k, p->route.experts), p, sizeof *p);
}

/* Rows of a block: as many as give each multiprocessor a block, and as fit. */
static gw_status record_many(struct gw_segment *segment, const gw_node *nodes,
                             struct gw_router_params *p) {
    const struct gw_device *d = segment->device;
    unsigned rows = (unsigned)segment->rows, each = GW_ROUTER_MANY;
    each *= nodes[1].w[0]->fmt == GW_FMT_F32 ? 1 : 2;
    unsigned blocks = gw_hip_groups((size_t)p->route.experts, each);
    unsigned shared = (unsigned)(d->shared_bytes - GW_ROUTER_DECLARED);
    unsigned fit = shared / (4 * (unsigned)GW_ROUTER_WIDTH(p->k)); /* rows, and the weights */
    fit = fit > 0 ? (fit - 1) / GW_ROUTER_AT_ONCE : 0;
    unsigned of_block = gw_hip_groups((size_t)rows * blocks, (size_t)d->units);
    of_block = gw_hip_groups(of_block, GW_ROUTER_AT_ONCE) * GW_ROUTER_AT_ONCE;
    of_block = of_block < GW_ROUTER_MANY ? of_block : GW_ROUTER_MANY;
    fit *= GW_ROUTER_AT_ONCE;
    of_block = of_block < fit ? of_block : fit;
    if (of_block == 0) {
        return record_few(segment, nodes, p);
    }
    char name[32];
    snprintf(name, sizeof name, "gw_router_many_%s", gw_format_of(nodes[1].w[0]->fmt)->name);
    p->leaves = leaves_of(p, blocks);
    p->rows = (int32_t)of_block;
    GW_TRY(gw_hip_record(segment, nodes, name, blocks + (p->gate != 0),
                         gw_hip_groups(rows, of_block), 1, GW_ROUTER_THREADS, 1, 1,
                         (unsigned)GW_ROUTER_MANY_SHARED(of_block, (unsigned)p->k), p, sizeof *p));
    struct gw_more_route_params route = {
        .step = p->step, .logits = p->logits, .out = p->out, .route = p->route};
    return gw_hip_record(segment, nodes, "gw_more_route", rows, 1, 1, GW_ROUTE_THREADS, 1, 1,
                         (unsigned)GW_ROUTE_SHARED(p->route.experts), &route, sizeof route);
}

static gw_status record_router(struct gw_segment *segment, const gw_node *nodes, size_t n) {
    const gw_node *norm = &nodes[0], *product = &nodes[1], *route = &nodes[2];
    unsigned rows = (unsigned)segment->rows, experts = (unsigned)gw_hip_width(product->out);
    struct gw_router_params p = {.step = gw_hip_step(segment),
                                 .in = gw_hip_at(norm->in[0]),
                                 .weight = gw_hip_at(norm->w[0]),
                                 .h = gw_hip_at(norm->out),
                                 .w = gw_hip_at(product->w[0]),
                                 .bias = product->w[3] != NULL ? gw_hip_at(product->w[3]) : 0,
                                 .out = gw_hip_at(route->out),
                                 .route = gw_hip_route_of(route),
                                 .k = (int32_t)gw_hip_width(norm->out),
                                 .eps = norm->args.norm.eps};
    if (n > 4) { /* with a gate */
        p.gate = gw_hip_at(nodes[3].w[0]);
        p.gate_out = gw_hip_at(nodes[4].out);
    }
    if (nodes[n - 1].op == GW_OP_QUANTIZE) {
        p.act = gw_hip_at(nodes[n - 1].out);
        p.form = gw_hip_form(segment, nodes[n - 1].out);
    }
    GW_TRY(gw_hip_scratch(segment, (size_t)rows * experts * sizeof(float), &p.logits));
    return rows > GW_ROUTER_FEW ? record_many(segment, nodes, &p) : record_few(segment, nodes, &p);
}

/* ---- all of these ---------------------------------------------------------------------------- */

gw_status gw_hip_record_together(struct gw_segment *segment, const gw_node *nodes, size_t n,
                                 size_t *taken) {
    if ((*taken = router_nodes(segment, nodes, n)) > 0) {
        return record_router(segment, nodes, *taken);
    }
    if ((*taken = gw_hip_joined_nodes(segment, nodes, n)) > 0) {
        return gw_hip_record_joined(segment, nodes, n);
    }
    if ((*taken = gw_hip_step_nodes(segment, nodes, n)) > 0) {
        return gw_hip_record_step(segment, nodes, *taken, n);
    }
    if ((*taken = gw_hip_adapted_nodes(segment, nodes, n)) > 0) {
        return gw_hip_record_adapters(segment, nodes, n);
    }
    if ((*taken = gw_hip_shared_nodes(segment, nodes, n)) > 0) {
        return gw_hip_record_shared(segment, nodes, n);
    }
    return GW_OK;
}
