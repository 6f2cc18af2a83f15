/* backends/mpi/wire.c - what messages are made of: numbers, texts, tensors, nodes, steps. All ranks
 * run one build, so structs travel as they are, without their pointers. */
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi.h"

enum { TEXT = 64, MOST_NODES = 1 << 20, NO_TENSOR = -1 };

/* ---- bytes ----------------------------------------------------------------------------------- */

void gw_wire_put(gw_wire *w, const void *bytes, size_t n) {
    if (w->room - w->n < n) {
        size_t room = w->n + n + w->room / 2 + 256;
        unsigned char *grown = w->failed ? NULL : realloc(w->at, room);
        if (grown == NULL) {
            w->failed = 1;
            return;
        }
        w->at = grown;
        w->room = room;
    }
    if (n > 0) {
        memcpy(w->at + w->n, bytes, n);
    }
    w->n += n;
}

const unsigned char *gw_wire_view(gw_wire *w, size_t n) {
    if (w->failed || n > w->n - w->taken) {
        w->failed = 1;
        return NULL;
    }
    w->taken += n;
    return w->at + w->taken - n;
}

void gw_wire_take(gw_wire *w, void *bytes, size_t n) {
    const unsigned char *from = gw_wire_view(w, n);
    if (from != NULL && n > 0) {
        memcpy(bytes, from, n);
    } else {
        memset(bytes, 0, n);
    }
}

void gw_wire_put_number(gw_wire *w, uint64_t x) { gw_wire_put(w, &x, sizeof x); }

uint64_t gw_wire_take_number(gw_wire *w) {
    uint64_t x;
    gw_wire_take(w, &x, sizeof x);
    return x;
}

void gw_wire_put_text(gw_wire *w, const char *text) {
    size_t n = text != NULL ? strlen(text) : 0;
    gw_wire_put_number(w, n);
    gw_wire_put(w, text, n);
}

void gw_wire_take_text(gw_wire *w, char *out, size_t room) {
    size_t n = (size_t)gw_wire_take_number(w);
    const unsigned char *from = gw_wire_view(w, n);
    n = from == NULL ? 0 : n < room ? n : room - 1;
    memcpy(out, from != NULL ? (const char *)from : "", n);
    out[n] = '\0';
}

void gw_wire_clear(gw_wire *w) { w->n = w->taken = 0, w->failed = 0; }

void gw_wire_free(gw_wire *w) {
    free(w->at);
    *w = (gw_wire){.at = NULL};
}

/* ---- tensors and nodes ----------------------------------------------------------------------- */

void gw_wire_put_tensor(gw_wire *w, const gw_tensor *t) {
    gw_tensor plain = {.fmt = t->fmt, .layout = t->layout, .n_dim = t->n_dim};
    memcpy(plain.dim, t->dim, sizeof plain.dim);
    gw_wire_put(w, &plain, sizeof plain);
}

void gw_wire_take_tensor(gw_wire *w, gw_tensor *t) {
    gw_wire_take(w, t, sizeof *t);
    w->failed |= (unsigned)t->fmt >= GW_FMT_COUNT || t->n_dim < 0 || t->n_dim > 4;
    t->fmt = w->failed ? GW_FMT_F32 : t->fmt;
    t->n_dim = w->failed ? 0 : t->n_dim;
    t->name = "weight";
    t->buf = NULL;
    t->offset = 0;
}

/* Number of a tensor among those seen so far. */
static int64_t number_of(gw_wire_tensors *all, const gw_tensor *t, gw_wire *w) {
    for (size_t i = all->n; t != NULL && i > 0; i--) { /* most often a late one */
        if (all->seen[i - 1] == t) {
            return (int64_t)i - 1;
        }
    }
    if (t == NULL || all->n == all->room) {
        w->failed |= t != NULL;
        return NO_TENSOR;
    }
    all->seen[all->n++] = t;
    return (int64_t)all->n - 1;
}

static void put_node(gw_wire *w, const gw_node *node, int64_t kernel, gw_wire_tensors *all) {
    gw_op_args args = node->args;
    if (node->op == GW_OP_EXCHANGE) {
        args.exchange.link = NULL;
    }
    gw_wire_put_number(w, (uint64_t)node->op);
    gw_wire_put(w, &args, sizeof args);
    gw_wire_put_text(w, node->what);
    gw_wire_put_number(w, (uint64_t)(int64_t)node->layer);
    gw_wire_put_number(w, (uint64_t)kernel);
    for (int k = 0; k < GW_MAX_IN; k++) {
        gw_wire_put_number(w, (uint64_t)number_of(all, node->in[k], w));
    }
    for (int k = 0; k < GW_MAX_W; k++) {
        gw_wire_put_number(w, (uint64_t)number_of(all, node->w[k], w));
    }
    gw_wire_put_number(w, (uint64_t)number_of(all, node->out, w));
}

void gw_wire_put_nodes(gw_wire *w, const gw_node *nodes, size_t n, const int64_t *kernel,
                       gw_wire_place_fn place) {
    gw_wire_tensors all = {.room = n * (GW_MAX_IN + GW_MAX_W + 1)};
    all.seen = calloc(all.room, sizeof *all.seen);
    if (all.seen == NULL) {
        w->failed = 1;
        return;
    }
    gw_wire_put_number(w, n);
    for (size_t i = 0; i < n; i++) {
        put_node(w, &nodes[i], kernel != NULL ? kernel[i] : -1, &all);
    }
    gw_wire_put_number(w, all.n);
    for (size_t i = 0; i < all.n; i++) {
        const gw_tensor *t = all.seen[i];
        gw_wire_put_tensor(w, t);
        gw_wire_put_text(w, place != NULL ? t->name : NULL);
        gw_wire_put_number(w, t->buf == NULL ? 0 : place != NULL ? place(t->buf) : 1);
        gw_wire_put_number(w, place != NULL ? t->offset : 0);
    }
    free(all.seen);
}

static gw_tensor *tensor_at(gw_wire *w, gw_wire_nodes *o) {
    int64_t i = (int64_t)gw_wire_take_number(w);
    w->failed |= i < NO_TENSOR || i >= (int64_t)o->n_tensors;
    return i == NO_TENSOR || w->failed ? NULL : &o->tensor[i];
}

static void take_node(gw_wire *w, gw_wire_nodes *o, size_t i) {
    gw_node *node = &o->node[i];
    char *what = o->text[o->n_tensors + i];
    node->op = (gw_op)gw_wire_take_number(w);
    w->failed |= (unsigned)node->op >= GW_OP_COUNT;
    gw_wire_take(w, &node->args, sizeof node->args);
    gw_wire_take_text(w, what, TEXT);
    node->what = what;
    node->layer = (int)(int64_t)gw_wire_take_number(w);
    o->kernel[i] = (int64_t)gw_wire_take_number(w);
    for (int k = 0; k < GW_MAX_IN; k++) {
        node->in[k] = tensor_at(w, o);
    }
    for (int k = 0; k < GW_MAX_W; k++) {
        node->w[k] = tensor_at(w, o);
    }
    node->out = tensor_at(w, o);
    w->failed |= node->out == NULL;
}

/* The nodes refer to tensors that stand behind them. */
static void skip_nodes(gw_wire *w, size_t n) {
    for (size_t i = 0; i < n && !w->failed; i++) {
        gw_wire_view(w, sizeof(uint64_t) + sizeof(gw_op_args));
        gw_wire_view(w, (size_t)gw_wire_take_number(w));
        gw_wire_view(w, (2 + GW_MAX_IN + GW_MAX_W + 1) * sizeof(uint64_t));
    }
}

gw_status gw_wire_take_nodes(gw_wire *w, struct gw_buffer *const *buffers, size_t n_buffers,
                             gw_wire_nodes *out) {
    size_t n = (size_t)gw_wire_take_number(w), begin = w->taken;
    n = n <= MOST_NODES ? n : 0;
    skip_nodes(w, n);
    size_t n_tensors = (size_t)gw_wire_take_number(w);
    gw_wire_nodes o = {.n = n, .n_tensors = n_tensors};
    if (n == 0 || w->failed || n_tensors > n * (GW_MAX_IN + GW_MAX_W + 1)) {
        return gw_fail(GW_E_METADATA, "mpi", "nodes that are not understood");
    }
    o.node = calloc(n, sizeof *o.node);
    o.kernel = calloc(n, sizeof *o.kernel);
    o.tensor = calloc(n_tensors + 1, sizeof *o.tensor);
    o.text = calloc(n_tensors + n, sizeof *o.text);
    if (o.node == NULL || o.kernel == NULL || o.tensor == NULL || o.text == NULL) {
        gw_wire_nodes_free(&o);
        return gw_fail(GW_E_NOMEM, "mpi", "no memory for %zu nodes", n);
    }
    for (size_t i = 0; i < n_tensors; i++) {
        gw_tensor *t = &o.tensor[i];
        gw_wire_take_tensor(w, t);
        gw_wire_take_text(w, o.text[i], TEXT);
        uint64_t place = gw_wire_take_number(w);
        t->name = o.text[i];
        t->offset = (size_t)gw_wire_take_number(w);
        w->failed |= place >= n_buffers;
        t->buf = w->failed ? NULL : buffers[place];
    }
    size_t end = w->taken;
    w->taken = begin;
    for (size_t i = 0; i < n; i++) {
        take_node(w, &o, i);
    }
    w->taken = end;
    if (w->failed) {
        gw_wire_nodes_free(&o);
        return gw_fail(GW_E_METADATA, "mpi", "nodes that are not understood");
    }
    *out = o;
    return GW_OK;
}

void gw_wire_nodes_free(gw_wire_nodes *nodes) {
    free(nodes->node);
    free(nodes->kernel);
    free(nodes->tensor);
    free(nodes->text);
    *nodes = (gw_wire_nodes){.n = 0};
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int32_t live_rows(const gw_step *s) {
    int32_t n = s->n > s->n_pick ? s->n : s->n_pick;
    return n < 0 ? 0 : n < GW_ROWS_MAX ? n : GW_ROWS_MAX;
}

enum { STEP_HEAD = 4, STEP_ARRAYS = 6 };

void gw_wire_put_step(gw_wire *w, const gw_step *step) {
    const int32_t head[STEP_HEAD] = {step->n, step->pick, step->n_pick, step->pos_max};
    const int32_t *const arrays[STEP_ARRAYS] = {step->token, step->pos,  step->slot,
                                                step->last,  step->type, step->less};
    gw_wire_put(w, head, sizeof head);
    for (int i = 0; i < STEP_ARRAYS; i++) {
        gw_wire_put(w, arrays[i], (size_t)live_rows(step) * sizeof(int32_t));
    }
}

void gw_wire_take_step(gw_wire *w, gw_step *step) {
    int32_t head[STEP_HEAD];
    int32_t *const arrays[STEP_ARRAYS] = {step->token, step->pos,  step->slot,
                                          step->last,  step->type, step->less};
    gw_wire_take(w, head, sizeof head);
    step->n = head[0];
    step->pick = head[1];
    step->n_pick = head[2];
    step->pos_max = head[3];
    for (int i = 0; i < STEP_ARRAYS; i++) {
        gw_wire_take(w, arrays[i], (size_t)live_rows(step) * sizeof(int32_t));
    }
}
