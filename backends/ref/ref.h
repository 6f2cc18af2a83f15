/* backends/ref/ref.h - inside the ref backend: each op in double precision from its definition.
 *
 * Sums are double chains; nothing is rounded but what an op hands on: f32 results once, act8
 * outputs by gw_act8_encode after rounding to float, cache entries to the cache's format. Inputs
 * are exact (act8: q * scale). So the distance of a backend from ref is the error of its op.
 */
#ifndef GW_BACKENDS_REF_H
#define GW_BACKENDS_REF_H

#include "core/plan/backend.h"

/* Host memory: its own (base != NULL), or a mapped file's. */
struct gw_buffer {
    unsigned char *memory;
    void *base;
    size_t bytes;
};

typedef struct ref_op {
    /* Doubles of scratch that run() needs for `rows` live rows. */
    size_t (*scratch)(const gw_node *node, int rows);
    void (*run)(const gw_node *node, const gw_step *step, int rows, double *scratch);
} ref_op;

const ref_op *ref_op_of(gw_op op);

/* By subject: product.c, attention.c, route.c, state.c, listed.c; the others are in ops.c. */
extern const ref_op ref_linear, ref_glu, ref_experts_glu, ref_experts_down;
extern const ref_op ref_lora_a, ref_lora_b;
extern const ref_op ref_rope_kv, ref_attention, ref_route;
extern const ref_op ref_conv, ref_scan, ref_group_norm, ref_heads, ref_columns, ref_widen;
extern const ref_op ref_streams, ref_sparse_glu, ref_exp_gates, ref_divide;
extern const ref_op ref_hyper, ref_rotate, ref_group_dot, ref_compress, ref_choose, ref_listed;
extern const ref_op ref_ngram;

/* ---- rows of tensors (ops.c) ---- */

static inline unsigned char *ref_bytes(const gw_tensor *t) { return t->buf->memory + t->offset; }
static inline int64_t ref_cols(const gw_tensor *t) { return t->dim[t->n_dim - 1]; }
unsigned char *ref_row(const gw_tensor *t, int64_t row);
float *ref_floats(const gw_tensor *t, int64_t row);
void ref_read(double *dst, const gw_tensor *t, int64_t row);        /* an activation row, exactly */
void ref_write(const gw_tensor *t, int64_t row, const double *src); /* in the output's format */
/* Row r of a weight matrix in floats, which every format expands to exactly. */
const float *ref_weight_row(const gw_tensor *w, int64_t r, float *room);
/* In place: kind of norm, then * w + b, each where it is there. */
void ref_norm_row(double *x, int64_t n, gw_norm_kind kind, float eps, const float *w,
                  const float *b);
/* act(g) * u, without u where it is not gated; xielu: w0 of XIELU or CLAMP, or NULL. */
double ref_act(const gw_act_args *a, double g, double u, int gated, const float *xielu);

/* ---- the KV cache (attention.c): K [page, g, e, P], V [page, g, P, e] ---- */

/* Where values of one position stand in the page of head g: value i at at + i * step, its scale in
 * q8_0 at scale + i / 32 * scale_step; bits > 0: position pos of a page of cells.h. */
typedef struct ref_cell {
    unsigned char *page;
    size_t at, step, scale, scale_step;
    gw_fmt fmt;
    int bits, e, is_k, pos;
} ref_cell;
int64_t ref_page_of(const gw_tensor *table, int32_t slot, int32_t pos);
ref_cell ref_cell_of(const gw_tensor *t, int is_k, int64_t page, int g, int32_t pos);
double ref_cell_get(const ref_cell *c, int i);
/* In place, the first `dim` values of a head by the angles of a position; back: by the negative. */
void ref_turn(double *head, int dim, gw_rope_style style, const gw_tensor *table, int32_t pos,
              int back);
/* The entry of a state before a position of a slot (state.c). */
float *ref_entry(const gw_tensor *t, int32_t slot, int32_t pos);
/* Row by row of each sequence, with its state as doubles (state.c). */
void ref_each_sequence(const gw_node *node, const gw_step *step, int rows, double *state,
                       void (*row)(const gw_node *node, const gw_step *step, int i, double *state));

#endif
