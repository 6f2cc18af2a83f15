/* core/plan/op.h - the vocabulary of a decoder: what is computed, never how or where.
 *
 * Axes: n rows (tokens), d model width, h query heads, g KV heads, e head width, f feed-forward
 * width, m output columns, v vocabulary, P = GW_PAGE positions. Meaning to the last bit is in
 * docs/arithmetic.md; backends/ref computes each op in double precision and is the oracle.
 */
#ifndef GW_PLAN_OP_H
#define GW_PLAN_OP_H

#include "core/tensor/area.h"
#include "core/tensor/ngram.h"
#include "core/tensor/route.h"
#include "core/tensor/tensor.h"

/* clang-format off */
typedef enum gw_op {
    GW_OP_EMBED,     /* out[n,d]  = w0[v,d] row of step token (* scale) (+ w1[positions,d] row of
                      * step position - step less + offset) (+ w2[types,d] row of step type); f32.
                      * Where the token is -1: of the id in0[n,1] i32 (may be NULL), row 0 where
                      * that is -1 too                                                         */
    GW_OP_PICK,      /* out[n,d]  = in0 row step.pick + i (i < step.n_pick); or the first row of
                      * slot i, its last one, the mean of its rows (gw_pick_kind): the rows of a
                      * slot stand side by side, slots count from 0                            */
    GW_OP_NORM,      /* out[n,d]  = norm(in0[n,d]), weight w0[d] and bias w1[d] (each may be NULL);
                      * then (+ in1[n,d]) (* w2[1]), out f32; without in1 and w2 f32 or act8   */
    GW_OP_QUANTIZE,  /* out[n,d]  = in0[n,d] f32 as act8; with w0 [d]: value i is in0's w0[i]  */
    GW_OP_LINEAR,    /* out[n,m]  = in0[n,k] W^T (+ bias[m]) (+ in1[n,m]); W = w0,w1,w2 stacked
                      * (rows m0+m1+m2 = m), biases w3,w4,w5 (each may be NULL)                */
    GW_OP_GLU,       /* out[n,f]  = act(in0 w0[f,k]^T) * (in0 w1[f,k]^T); out f32 or act8      */
    GW_OP_ROPE_KV,   /* in0 = qkv[n,(h+g)e + g*ev]: q,k normed by w0,w1 (gw_rope_args), rotated by
                      * w2 = rope table [positions,2,r/2] f32 (cos row, sin row; NULL: r is 0), row
                      * step.pos - step.less; q
                      * times w3[positions] f32 (may be NULL) -> out[n,h*e]; k, v -> caches in1,
                      * in2 at step.pos of step.slot; in2 NULL: values are part of the keys, in0 is
                      * [n,(h+g)e]. g = 0: q alone, without caches; h = 0: k, v alone, and
                      * out[n,1] is left as it is                                              */
    GW_OP_ATTENTION, /* out[n,h*ev] = softmax(q k^T * scale, causal, window) v; in0 = q[n,h*e],
                      * in1 = K cache, in2 = V cache (NULL: v is columns [v_first, v_first + ev)
                      * of k), in3 = page table, w0 = sinks [h] f32, w1 =
                      * ALiBi slopes [h] f32, w2 = bias by distance [h*(2*reach+1)] f32 (each may
                      * be NULL); out f32 or act8                                              */
    GW_OP_SAMPLE,    /* out[n,1] i32 = the token drawn from in0[n,v] f32 as the row's choice in1
                      * [n,7] i32 says (core/tensor/sample.h); -1: none can be                  */
    GW_OP_ACT,       /* out[n,f]  = act(in0[n,0..f)) (* in0[n,f..2f) when gated); w0 [4] f32 for
                      * XIELU and CLAMP; in0 f32, out f32 or act8                               */
    GW_OP_MIX,       /* out[n,m]  = in0[n,m] f32 (* scale) (* gate in1[n,c] f32, column i / (m/c),
                      * through gate_act) (cap * tanh(. / cap)) (+ in2[n,m] f32) (* w0[1] or [m]
                      * f32), in this order; out f32 or act8                                    */
    GW_OP_ROUTE,     /* out[n,2u] f32 = u expert numbers in increasing order, then their u gates;
                      * in0 = router logits [n,E] f32, w0 = selection bias [E] f32, w1 = factor of
                      * each expert's gate [E] f32, in1 = the experts chosen [n,u] f32 (each may be
                      * NULL)                                                                   */
    GW_OP_EXPERTS_GLU, /* out[n,u*f]: of each row's u experts act(x W^T) (* x U^T) in the route's
                        * order; in0 = x[n,d], in1 = route[n,2u]; w0 = W [E*f,d], w1 = U [E*f,d]
                        * (NULL: no gate), biases w2, w3 [E*f]; rows of expert x begin at x*f;
                        * out f32 or act8                                                        */
    GW_OP_EXPERTS_DOWN, /* out[n,d] f32 = (in2[n,d] +) sum over the route's order of gate * (h W^T
                         * + bias); in0 = h[n,u*f], in1 = route[n,2u], w0 = W [E*d,f], w1 = bias
                         * [E*d] (may be NULL)                                                   */
    GW_OP_EXPERTS_LORA_A, /* out[n,u*v*R] f32: of each of a row's u experts x, in the route's order, and
                           * of each of its v adapters p: A x; in0 = x[n,d], or [n,u*d], each
                           * expert's own, in1 = route[n,2u], in2 = adapters[n,2v] (their places,
                           * from 1 on, in increasing order, then scales; 0: none, zeros), w0 = A
                           * [P*E*R,d]: rows of p's expert x begin at ((p - 1)*E + x)*R            */
    GW_OP_EXPERTS_LORA_B, /* out[n,u*m] f32 = in3[n,u*m] + of each expert the sum over the adapters of
                           * scale * B h; or out[n,m] = in3[n,m] + sum over the experts of gate *
                           * that (gw_experts_lora_args). in0 = h[n,u*v*R] f32, in1, in2 as above,
                           * w0 = B [P*E*m,R]                                                      */
    GW_OP_CONV,      /* out[n,c]  = act(sum over t < T of w0[c,T] row i-(T-1-t)D of in0[n,c] f32 (+
                      * w1[c])): rows of one sequence, those before the step from the state in1
                      * [slots,R,(T-1)Dc], oldest first                                         */
    GW_OP_SCAN,      /* out[n,h*v] = what a memory S [h,k,v] of each sequence, the state in1
                      * [slots,R,h*k*v], answers row by row (gw_scan_args); in0 = rows, in2, in3 =
                      * logits of decay and write strength, w0 = A [h], w1 = bias of the decay (may
                      * be NULL), w2 = D [h] (SSM); SSM by channel: w0 [h*v,k], w1, w2 [h*v]     */
    GW_OP_EXP_GATES, /* out[n,3h] f32 = [decay h | write h | floor h] of logits in0[n,2h] f32, those of
                      * writing, then those of forgetting; the state in1 [slots,R,h] is the largest
                      * exponent so far: m' = max(m + log sigmoid(forget), write), decay =
                      * exp(m + log sigmoid(forget) - m'), write = exp(write - m'), floor = exp(-m')
                      * (Beck et al. 2024, arXiv:2405.04517)                                    */
    GW_OP_DIVIDE,    /* out[n,m] f32 = in0[n,m] f32 / (max(|in1[n,c]|, in2[n,c]) + eps), column i by
                      * those of i / (m/c); in1, in2 f32                                        */
    GW_OP_GROUP_NORM, /* out[n,m] f32 = RMS norm of each of m/g groups of in0[n,m] f32, by w0 [g] or
                       * [m] (may be NULL), times act(gate in1[n,m]) (may be NULL) before or after;
                       * with `measure` out[n,groups]: what each group is divided by              */
    GW_OP_HEADS,     /* out[n,h*(s+m)] f32: of each head of in0[n,h*e] f32 columns [a,a+s) as they
                      * are, then W_h times columns [b,b+k); w0 = float W [h*m,k], in
                      * GW_LAYOUT_ROWS (gw_heads_args)                                          */
    GW_OP_STREAMS,   /* out[n,I*m] f32: of I streams side by side, i = base i (in2[n,I*m], may be
                      * NULL) + sum over J inputs of (c + plus) * in0[n,J*m] j, c = in1[n,I*J] f32
                      * (may be NULL: 0); streams before `from` are base alone (gw_streams_args)  */
    GW_OP_SPARSE_GLU, /* out[n,f] = act(max(g - (mean + deviations * deviation), 0)) * u of a row's
                       * gates g = in0[n,0..f) and values u = in0[n,f..2f) f32; out f32           */
    GW_OP_COLUMNS,   /* out[n,m] f32 = columns [first,..) of in0 f32, then all of in1, in2, in3 (may
                      * be NULL) side by side, m in all                                         */
    GW_OP_WIDEN,     /* out[n,h*m] f32 = of each of h heads of in0[n,h*k] f32 its first min(k, m)
                      * columns, then zeros: m > k widens heads, m < k narrows them (gw_widen_args) */
    GW_OP_HYPER,     /* out[n,N(N+2)] f32, or [n,N]: coefficients of N streams out of logits
                      * in0 of that width, w0 = scales [3] or [1], w1 = base [N(N+2)] or [N] f32:
                      * in, out, and the matrix that mixes them, transposed (gw_hyper_args)      */
    GW_OP_ROTATE,    /* out[n,h*e] f32 = in0, of each head the columns [first, first + r) rotated by
                      * w0 = rope table (as in ROPE_KV; NULL: by nothing) (gw_rotate_args)       */
    GW_OP_GROUP_DOT, /* out[n,G] f32 = sum of in0 * in1 over each of G groups of columns, * scale;
                      * with root: its sign times the root of its size, 1e-6 at least            */
    GW_OP_COMPRESS,  /* in0 = rows [n,W] f32 go to the area in1 at step.pos; each entry of the area
                      * that a row completes is made of the rows before: normed by w1 [e] (NULL,
                      * of gated ones: as it is), rotated by w2 (rope table, may be NULL); w0 = bias of gates [ratio*series*e]. An
                      * area without rows: they are the entries, and w0, w1, w2 are NULL. in2 =
                      * page table; out[n,1] is left as it is (gw_compress_args)                 */
    GW_OP_CHOOSE,    /* out[n,C] f32 = the C best complete entries of the area in1 (keys [e]), in
                      * increasing order, then -1; score: sum over heads of in3[n,h] (may be NULL:
                      * 1) * max(in0[n,h*e] . key, 0); in2 = page table (gw_choose_args)         */
    GW_OP_LISTED,    /* ATTENTION over a list: entries in4[n,C] (may be NULL: all complete ones) of
                      * the area in5, or blocks of positions where in5 is NULL; then the positions
                      * of gw_listed_args. in0 = q, in1 = K, in2 = V (NULL: as of ATTENTION),
                      * in3 = page table, w0 = sinks [h] (may be NULL); out f32                  */
    GW_OP_NGRAM,     /* out[n,H*w] f32 = rows of w0 [rows,w] that the token and those before it
                      * name by hash, H of them side by side; in0 = ids as in EMBED (may be NULL),
                      * in1 = state [slots,R,size-1]: tokens before, + 1 (gw_ngram_args)         */
    GW_OP_EXCHANGE,  /* out[n,m] = the shares of all cards of a group side by side (+ in1[n,m] f32);
                      * in0 = those of this card, f32 or act8 as out (gw_exchange_args)         */
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
 * order, followed by the f16 scales, one for 32 values of a position: [e/32, P], [P, e/32]. Or
 * q5_0, q4_0: pages as core/tensor/cells.h has them, of k and v that ROPE_KV has rotated; ATTENTION
 * rotates q and its result, and reads the codes as those of q8_0.
 * Page table (in3 of ATTENTION and ROPE_KV) [slots, pages] i32. */

/* States of CONV, SCAN and EXP_GATES: in1 [slots, R, width] f32. What is known of a sequence before
 * position p stands in entry p mod R of its slot; before position 0 that is all zeros, whatever the
 * entry holds. The first row of a sequence in a step begins with its entry, every further row of
 * the sequence (in increasing position) with what the one before it knows. What is known behind
 * position p goes to entry (p + 1) mod R, for the last R - 1 rows of a sequence in the step: so up
 * to R - 1 positions can be taken back. */
typedef struct gw_conv_args {
    int taps;        /* T, 2 .. GW_CONV_TAPS */
    gw_act_kind act; /* SILU or NONE */
    int apart;       /* D: rows from tap to tap, (T - 1) D < GW_CONV_REACH; 0: 1 */
} gw_conv_args;
enum { GW_CONV_TAPS = 8, GW_CONV_REACH = 16, GW_SCAN_KEYS = 256 };
/* R of the engine: what a pass of decode appends can be taken back; where nothing is. */
enum { GW_STATE_ENTRIES = 17, GW_STATE_LEAST = 2 };

typedef enum gw_scan_kind {
    GW_SCAN_DELTA,     /* in0 = [q g*k | k g*k | v h*v], q and k normed (RMS) and times their scale:
                        * S = d S; S = S + k beta (v - k S); out = q S; d = exp(A softplus(in2 + w1)) by
                        * head or by head and k, beta = sigmoid(in3) (Yang et al. 2024,
                        * arXiv:2412.06464)                                                         */
    GW_SCAN_SSM,       /* in0 = [x h*v | B g*k | C g*k]: t = softplus(in2 + w1) within [low, high];
                        * S = exp(t A) S + B t x; out = C S + D x (Dao and Gu 2024,
                        * arXiv:2405.21060); by channel a step for each value and an A for each value
                        * and key (Gu and Dao 2023, arXiv:2312.00752)                               */
    GW_SCAN_RETENTION, /* in0 as of SSM, in2 = d [n,h] as it is: S = d S + B x; out = C S; no
                        * weights (Sun et al. 2023, arXiv:2307.08621) */
    GW_SCAN_WKV /* in0 = [r h*k | k h*k | v h*v | e h*k], in2 = s, in3 = a, both [n, h*k]: with
                 * e times k_scale S = exp(GW_WKV_DECAY s) S - (e a) (e S) + k v; out = r S;
                 * h groups and no weights (Peng et al. 2025, arXiv:2503.14456)             */
} gw_scan_kind;
#define GW_WKV_DECAY (-0.60653065971263342f) /* -1 / sqrt(e) */
typedef struct gw_scan_args {
    gw_scan_kind kind;
    int heads, groups, k_dim, v_dim; /* h, g (a divisor of h), k, v               */
    int by_channel; /* DELTA: the decay is [n, h*k], SSM: [n, h*v]; else [n, h]   */
    int tiled;      /* head i has q, k of group i mod g, else those of group i / (h / g) */
    float eps, q_scale, k_scale; /* DELTA: of the norms                            */
    float low, high;             /* SSM; DELTA: low < 0 bounds decays (gw_delta_decay of act.h) */
} gw_scan_args;
/* DELTA with in3 == in2: both logits side by side, [n, 2 h]. */

typedef struct gw_divide_args {
    float eps;
} gw_divide_args;
typedef struct gw_group_norm_args {
    int groups; /* how many */
    int center; /* LayerNorm of each: less its mean; w1 = bias [m] (may be NULL); no gate */
    float eps;
    gw_act_kind gate_act;
    int gate_first; /* the gate comes before the norm */
    int measure;
} gw_group_norm_args;
typedef struct gw_streams_args {
    int streams, inputs, from; /* I, J */
    float plus;
} gw_streams_args;
typedef struct gw_sparse_args {
    gw_act_kind act;
    float deviations;
} gw_sparse_args;
typedef struct gw_heads_args {
    int heads;
    int first;            /* b: first column of a head that is multiplied */
    int pass_first, pass; /* a, s: columns that stay as they are        */
} gw_heads_args;
typedef struct gw_columns_args {
    int first;
} gw_columns_args;
typedef struct gw_widen_args {
    int32_t heads;
} gw_widen_args;

/* Hyper-connections (Xie et al. 2026): `in` = sigmoid + eps, `out` = 2 sigmoid, the matrix a
 * softmax of each row + eps, then made doubly stochastic by `rounds` of Sinkhorn and Knopp 1967. */
typedef struct gw_hyper_args {
    int streams, rounds;
    float eps;
} gw_hyper_args;
enum { GW_HYPER_MOST = 8 }; /* streams */

typedef struct gw_rotate_args {
    int heads, first, rope_dim;
    gw_rope_style style;
    int back; /* by the negative angle */
} gw_rotate_args;

typedef struct gw_dot_args {
    int groups;
    float scale;
    int root;
} gw_dot_args;

/* COMPRESS, NSA-like (DeepSeek-V4; Qwen4): entry i is made of the rows of positions [i * ratio,
 * (i + 1) * ratio), and of the ratio before them where series is 2; its position is i * ratio.
 * Rows: series 0: [e], the mean of them; 1: values [e], gates [e]; 2: values [2e], gates [2e], the
 * first half for the entry behind. Gates are weights by a softmax over the rows, column by column.
 */
typedef struct gw_compress_args {
    gw_area area;
    int series, first, rope_dim;
    gw_rope_style style;
    float eps;
} gw_compress_args;

/* ties, GW_TIES_ of area.h: which of equal scores; what is read at once ends at step.last. block >
 *0 : every head has a list of its own, of blocks of so many positions of an area without rows,
 *among those before the `local` last ones. */
typedef struct gw_choose_args {
    gw_area area;
    int heads, ties, block, local;
} gw_choose_args;

/* LISTED. Its positions: with an area the last `window` ones, the own one included; else those
 * behind the last complete block of `area.ratio`, whose chosen ones are listed; none where blocks
 * are single positions; `local` blocks up to the own one where that is not 0. lists > 1: so many
 * lists side by side, one for each kv_heads / lists KV heads. */
typedef struct gw_listed_args {
    gw_area area;
    float scale;
    int heads, kv_heads, head_dim, v_dim, v_first, window; /* v_dim, v_first: as of ATTENTION */
    int local, lists;
} gw_listed_args;
/* Cards that compute a layer together. A product's rows are cut over them, and what each has made
 * is handed to all: sums are those of one card, and so are the bits. */
enum { GW_MAX_CARDS = 8 };
struct gw_link; /* how cards of one backend reach one another's memory (backend.h) */
typedef struct gw_exchange_args {
    struct gw_link *link;            /* NULL: through the host                              */
    int cards, card;                 /* of the group; this one                              */
    int parts;                       /* equal parts of a row: every expert has its own      */
    int number;                      /* what the nodes of one exchange have in common       */
    int32_t first[GW_MAX_CARDS + 1]; /* of a part card c has columns [first[c], first[c + 1]) */
} gw_exchange_args;

typedef enum gw_norm_kind {
    GW_NORM_RMS,  /* x / sqrt(mean of squares + eps)            */
    GW_NORM_LAYER /* (x - mean) / sqrt(mean of squares of that + eps) */
} gw_norm_kind;

typedef struct gw_act_args {
    gw_act_kind kind;
    int gated; /* ACT: two halves side by side */
    float limit, alpha;
} gw_act_args;
typedef struct gw_embed_args {
    float scale; /* 0: none */
    int offset;  /* of positions in w1 */
} gw_embed_args;
typedef enum gw_pick_kind {
    GW_PICK_ROWS, /* rows step.pick .. of the pass */
    GW_PICK_FIRST,
    GW_PICK_LAST,
    GW_PICK_MEAN
} gw_pick_kind;
typedef struct gw_pick_args {
    gw_pick_kind kind;
} gw_pick_args;
typedef struct gw_norm_args {
    float eps;
    gw_norm_kind kind;
} gw_norm_args;
typedef struct gw_mix_args {
    float scale, cap;     /* 0: none */
    gw_act_kind gate_act; /* SIGMOID, SOFTPLUS, SILU or NONE */
} gw_mix_args;

typedef struct gw_experts_args {
    int experts, used;
    gw_act_args act; /* EXPERTS_GLU */
    int gate_input;  /* the gate multiplies both products of EXPERTS_GLU, not the result */
    gw_order order;
    /* Of products of adapters (core/model/lora_bank.h): the common rank, else 0. Expert 0 is then
     * all zeros, and of each other expert's rows of EXPERTS_DOWN's w0 those below end[k], from
     * end[k - 1] on, have values in columns [part[k] * rank, (part[k] + 1) * rank) alone; part[k]
     * -1: none. */
    int rank, end[3], part[3];
} gw_experts_args;
/* Adapters of experts: float w0 in GW_LAYOUT_ROWS. */
typedef struct gw_experts_lora_args {
    int experts, used;         /* E, u */
    int places, at_once, rank; /* P, v, R */
    int sum;                   /* LORA_B: over a row's experts */
    int gated;                 /* LORA_B: what an expert adds is times its gate */
} gw_experts_lora_args;
typedef struct gw_linear_args {
    gw_order order;
} gw_linear_args;
/* What a norm of q or k goes over, and so its weight. */
typedef enum gw_norm_span {
    GW_SPAN_HEAD,  /* each head alone, weight [e]                                */
    GW_SPAN_HEADS, /* each head alone, weight [heads*e]                          */
    GW_SPAN_ROW    /* all heads of q, or of k, as one row, weight [heads*e]      */
} gw_norm_span;
typedef struct gw_rope_args {
    int heads, kv_heads, head_dim, rope_dim;
    gw_rope_style style;
    float eps; /* of the q/k norms */
    int v_dim; /* ev; 0: head_dim  */
    gw_norm_kind norm_kind;
    gw_norm_span norm_span;
    int norm_after; /* q, k are normed after the rotation       */
    int norm_plain; /* q, k are normed also where w0, w1 are NULL: by 1 */
    int norm_v;     /* heads of v are normed (RMS) without a weight     */
} gw_rope_args;
typedef struct gw_attn_args {
    float scale;
    int heads, kv_heads, head_dim;
    int v_dim;      /* ev; 0: head_dim */
    int v_first;    /* where the value begins in the key; read where there is no V cache */
    int window;     /* positions seen, the own one included; 0: all. Both ways: so many each way */
    int chunk;      /* only positions of the same chunk of so many; 0: all; -1: all but the first,
                     * whose row sees itself alone */
    float softcap;  /* scores become softcap * tanh(score / softcap); 0: none */
    int both;       /* not causal: positions up to step.last of the row are seen */
    int reach;      /* of w2: distances beyond +-reach count as that */
    gw_order order; /* what the rows are: a backend may sum those of prompts in an order of its own
                     * where it does so with the weights behind (docs/arithmetic.md, section 5) */
    int digits;     /* 1: pages before a row's own are summed in integers, which only prompts in
                     * front of quantized weights are (core/plan/digits.h). A kernel computes it so
                     * or does not take the node (gw_kernel.every_form) */
} gw_attn_args;

/* Arguments are typed per op; there is no untyped parameter block to index by hand. */
typedef union gw_op_args {
    gw_norm_args norm;
    gw_linear_args linear; /* LINEAR, GLU */
    gw_rope_args rope;
    gw_attn_args attn;
    gw_embed_args embed;
    gw_pick_args pick;
    gw_act_args act;
    gw_mix_args mix;
    gw_route_args route;
    gw_experts_args experts;
    gw_experts_lora_args experts_lora;
    gw_conv_args conv;
    gw_scan_args scan;
    gw_divide_args divide;
    gw_group_norm_args group_norm;
    gw_heads_args heads;
    gw_columns_args columns;
    gw_widen_args widen;
    gw_streams_args streams;
    gw_sparse_args sparse;
    gw_hyper_args hyper;
    gw_rotate_args rotate;
    gw_dot_args dot;
    gw_compress_args compress;
    gw_choose_args choose;
    gw_listed_args listed;
    gw_ngram_args ngram;
    gw_exchange_args exchange;
} gw_op_args;

enum { GW_MAX_IN = 6, GW_MAX_W = 6 };

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
    int crosses; /* 1: a node on another device reads `out`; filled when the plan is built       */
    int fetches; /* 1: its weights are brought to the device before it runs (gw_plan_fetch)       */
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

/* Formats of caches (caches.c). Bits of a code where k and v are rotated (core/tensor/cells.h): 4,
 * 5; else 0. */
int gw_cache_bits(gw_fmt fmt);
/* Can keys, or values, of this width be in a cache of the format? */
int gw_cache_takes(gw_fmt fmt, int e);
/* Can values be columns [first, first + ev) of keys e wide: in whole rotations? */
int gw_cache_parts(gw_fmt fmt, int e, int first, int ev);

/* 1 for the form of EMBED, PICK, NORM, ROPE_KV and ATTENTION that plain Llama models need: RMS norm
 * by a weight, one head width, norms of q and k by head before the rotation, causal scores within a
 * window. Kernels that know no other form accept these alone; 1 for every other op. */
int gw_op_is_plain(const gw_node *node);

#endif
