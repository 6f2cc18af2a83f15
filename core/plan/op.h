/* core/plan/op.h - the vocabulary of a decoder: what is computed, never how or where.
 *
 * Axes: n rows (tokens), d model width, h query heads, g KV heads, e head width, f feed-forward
 * width, m output columns, v vocabulary, P = GW_PAGE positions. Meaning to the last bit is in
 * docs/arithmetic.md; backends/ref computes each op in double precision and is the oracle.
 */
#ifndef GW_PLAN_OP_H
#define GW_PLAN_OP_H

#include "core/tensor/tensor.h"

/* clang-format off */
typedef enum gw_op {
    GW_OP_EMBED,     /* out[n,d]  = w0[v,d] row of step token; f32. Where that is -1: of the id
                      * in0[n,1] i32 (may be NULL), row 0 where that is -1 too                 */
    GW_OP_PICK,      /* out[n,d]  = in0 row step.pick + i (i < step.n_pick)                   */
    GW_OP_NORM,      /* out[n,d]  = (in0[n,d] * w0[d]) * rms_scale; out f32 or act8            */
    GW_OP_QUANTIZE,  /* out[n,d]  = in0[n,d] f32 as act8                                       */
    GW_OP_LINEAR,    /* out[n,m]  = in0[n,k] W^T (+ bias[m]) (+ in1[n,m]); W = w0,w1,w2 stacked
                      * (rows m0+m1+m2 = m), biases w3,w4,w5 (each may be NULL)                */
    GW_OP_GLU,       /* out[n,f]  = act(in0 w0[f,k]^T) * (in0 w1[f,k]^T); out f32 or act8      */
    GW_OP_ROPE_KV,   /* in0 = qkv[n,(h+2g)e]: q,k normed by w0[e],w1[e] (may be NULL), rotated by
                      * w2 = rope table [positions,2,r/2] f32 (cos row, sin row); q -> out[n,h*e];
                      * k, v -> caches in1, in2 at step.pos of step.slot                       */
    GW_OP_ATTENTION, /* out[n,h*e] = softmax(q k^T * scale, causal, window) v; in0 = q[n,h*e],
                      * in1 = K cache, in2 = V cache, in3 = page table; out f32 or act8        */
    GW_OP_SAMPLE,    /* out[n,1] i32 = the token drawn from in0[n,v] f32 as the choice in1 [1,7] i32
                      * says (core/tensor/sample.h); -1: none can be                            */
    GW_OP_COUNT
} gw_op;
/* clang-format on */

/* Which of the two orders of arith.h a sum uses: by purpose, never by row count. */
typedef enum gw_order { GW_ORDER_DECODE, GW_ORDER_PREFILL } gw_order;

typedef enum gw_rope_style {
    GW_ROPE_HALVES,     /* pair (i, i + r/2): Hugging Face, Qwen GGUF */
    GW_ROPE_INTERLEAVED /* pair (2i, 2i + 1): Llama GGUF              */
} gw_rope_style;

/* KV cache layout, the same on every device so that a cache can be moved or saved:
 *   K cache [slots * pages, g, e, P]   one position is a column: scores of a page are lanes
 *   V cache [slots * pages, g, P, e]   one position is a row
 * fmt f16, f32, or q8_0 (e a multiple of 32): then each [e, P] or [P, e] is its int8 codes in that
 * order, followed by the f16 scales, one for 32 values of a position: [e/32, P], [P, e/32].
 * Page table (in3 of ATTENTION and ROPE_KV) [slots, pages] i32. */
typedef struct gw_norm_args {
    float eps;
} gw_norm_args;
typedef struct gw_linear_args {
    gw_order order;
} gw_linear_args;
typedef struct gw_rope_args {
    int heads, kv_heads, head_dim, rope_dim;
    gw_rope_style style;
    float eps; /* of the q/k norms */
} gw_rope_args;
typedef struct gw_attn_args {
    float scale;
    int heads, kv_heads, head_dim;
    int window;     /* positions seen, the own one included; 0: all */
    gw_order order; /* what the rows are: a backend may sum those of prompts in an order of its own
                     * where it does so with the weights behind (docs/arithmetic.md, section 5) */
} gw_attn_args;

/* Arguments are typed per op; there is no untyped parameter block to index by hand. */
typedef union gw_op_args {
    gw_norm_args norm;
    gw_linear_args linear; /* LINEAR, GLU */
    gw_rope_args rope;
    gw_attn_args attn;
} gw_op_args;

enum { GW_MAX_IN = 4, GW_MAX_W = 6 };

struct gw_kernel;

typedef struct gw_node {
    gw_op op;
    gw_op_args args;
    const gw_tensor *in[GW_MAX_IN]; /* activations and caches */
    const gw_tensor *w[GW_MAX_W];   /* weights and tables     */
    gw_tensor *out;
    const char *what;               /* role for people: "attn_qkv", "ffn_down", "head"; a literal */
    int layer;                      /* -1 outside the blocks                                      */
    int device;                     /* index into the plan's device list                          */
    const struct gw_kernel *kernel; /* filled when the plan is built                              */
} gw_node;

typedef struct gw_op_info {
    const char *name;
    /* Shapes and formats; once per plan. GW_E_METADATA with a message on a mismatch. */
    gw_status (*check)(const gw_node *node);
    /* Least memory traffic (weights, caches at `positions`, activations) and arithmetic for `rows`
     * live rows: roofline, GB/s. ops count a multiply-add as 2. */
    void (*cost)(const gw_node *node, int rows, int positions, double *bytes, double *ops);
} gw_op_info;

const gw_op_info *gw_op_describe(gw_op op);

#endif
