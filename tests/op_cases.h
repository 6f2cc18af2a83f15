/* tests/op_cases.h - cases of every op, and how one runs on any kernel of any backend.
 *
 * Everything goes through gw_backend, so that a new backend is held against the scalar CPU by
 * walking this table over its own kernels. Outputs are poisoned with NaN and fenced on both sides;
 * rows that are not live must keep the poison; cache positions that no row may see hold NaN.
 * The data of a case depends on the case alone.
 */
#ifndef GW_TESTS_OP_CASES_H
#define GW_TESTS_OP_CASES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plan/backend.h"
#include "core/tensor/sample.h"
#include "tests/random.h"

enum { OC_FENCE = 256, OC_SPARE_ROWS = 2, OC_TENSORS = 12 };

typedef struct op_case {
    gw_op op;
    const char *why;
    int n;         /* live rows */
    int spare;     /* more rows of the plan than are live; 0: OC_SPARE_ROWS */
    int k;         /* width of the input, or of a row */
    int m[3];      /* LINEAR: rows of the stacked weights; GLU: m[0] */
    gw_fmt fmt[3]; /* of the weights */
    gw_fmt out;    /* F32 or ACT8 */
    gw_order order;
    int bias, residual; /* LINEAR; residual 2: in place */
    int pick;           /* PICK: first row */
    int heads, kv_heads, e, rope_dim, interleaved, head_norm;
    gw_fmt kv;
    int window, pos, slots; /* pos: of the first row; row i is at pos + i, in slot i % slots */
    int wild; /* QUANTIZE, NORM, ROPE_KV into q8_0: zeros, infinities, NaN, tiny numbers;
               * SAMPLE: 1 logits that rule a draw out, 2 ties, 3 minus infinities, 4 too
               * large for the temperature */
    /* General forms; what is 0 is plain. */
    int v_dim, chunk, sinks, slopes; /* ATTENTION, ROPE_KV */
    float cap;                       /* ATTENTION, MIX */
    gw_norm_kind norm_kind;
    gw_norm_span norm_span;
    int norm_after, norm_plain, norm_v, q_factor; /* ROPE_KV; no table where rope_dim is 0 */
    int bare, norm_bias, addend, factor;          /* NORM: no weight; 2: in place; MIX */
    float scale;                                  /* EMBED, MIX, ROUTE */
    int places, place_offset;                     /* EMBED: positions of the table */
    gw_act_kind act;
    int gated, gates; /* ACT; MIX: columns of the gate; EXPERTS_GLU: two matrices */
    float limit;
    gw_route_args route;             /* its used, and experts: of EXPERTS too */
    int experts, gate_input, chosen; /* chosen: 1 all rows the same, 2 few experts */
    float temperature;               /* SAMPLE */
    int top_k;
    float top_p, min_p;
} op_case;

#define OC_F32                                                                                     \
    { GW_FMT_F32, GW_FMT_F32, GW_FMT_F32 }
#define OC_F16                                                                                     \
    { GW_FMT_F16, GW_FMT_F16, GW_FMT_F16 }
#define OC_BF16                                                                                    \
    { GW_FMT_BF16, GW_FMT_BF16, GW_FMT_BF16 }
#define OC_Q8                                                                                      \
    { GW_FMT_Q8_0, GW_FMT_Q8_0, GW_FMT_Q8_0 }
#define OC_DEC .order = GW_ORDER_DECODE
#define OC_PRE .order = GW_ORDER_PREFILL

/* clang-format off */
static const op_case op_cases[] = {
    {.op = GW_OP_EMBED, .why = "f32 rows", .n = 3, .k = 80, .m = {50}, .fmt = OC_F32},
    {.op = GW_OP_EMBED, .why = "f16 rows", .n = 17, .k = 96, .m = {50}, .fmt = OC_F16},
    {.op = GW_OP_EMBED, .why = "q8_0 rows", .n = 5, .k = 64, .m = {33}, .fmt = OC_Q8},
    {.op = GW_OP_EMBED, .why = "q6_k rows", .n = 2, .k = 512, .m = {33}, .fmt = {GW_FMT_Q6_K}},
    {.op = GW_OP_PICK, .why = "the last row", .n = 1, .k = 48, .pick = 9},
    {.op = GW_OP_PICK, .why = "some rows", .n = 7, .k = 100, .pick = 2},

    {.op = GW_OP_NORM, .why = "whole lanes", .n = 3, .k = 2048},
    {.op = GW_OP_NORM, .why = "ragged", .n = 2, .k = 77},
    {.op = GW_OP_NORM, .why = "narrower than the lanes", .n = 1, .k = 5},
    {.op = GW_OP_NORM, .why = "to act8", .n = 5, .k = 512, .out = GW_FMT_ACT8},
    {.op = GW_OP_NORM, .why = "to act8, one row", .n = 1, .k = 96, .out = GW_FMT_ACT8},
    {.op = GW_OP_QUANTIZE, .why = "many rows", .n = 9, .k = 320, .out = GW_FMT_ACT8},
    {.op = GW_OP_QUANTIZE, .why = "one long row", .n = 1, .k = 5632, .out = GW_FMT_ACT8},
    {.op = GW_OP_QUANTIZE, .why = "zeros, NaN, infinity, tiny", .n = 8, .k = 64, .out = GW_FMT_ACT8,
     .wild = 1},

    {.op = GW_OP_LINEAR, .why = "f16 decode", .n = 1, .k = 512, .m = {96}, .fmt = OC_F16, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "f16 decode, ragged k and m", .n = 1, .k = 75, .m = {37},
     .fmt = OC_F16, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "f16 decode, 2 rows", .n = 2, .k = 256, .m = {48}, .fmt = OC_F16,
     OC_DEC},
    {.op = GW_OP_LINEAR, .why = "f16 decode, 5 rows, ragged", .n = 5, .k = 83, .m = {19},
     .fmt = OC_F16, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "f16 decode, 16 rows", .n = 16, .k = 320, .m = {33},
     .fmt = OC_F16, OC_DEC, .bias = 1, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "f32 decode", .n = 3, .k = 160, .m = {40}, .fmt = OC_F32, OC_DEC,
     .bias = 1},
    {.op = GW_OP_LINEAR, .why = "f32 decode, one value", .n = 1, .k = 1, .m = {1}, .fmt = OC_F32,
     OC_DEC},
    {.op = GW_OP_LINEAR, .why = "bf16 decode", .n = 1, .k = 2048, .m = {128}, .fmt = OC_BF16,
     OC_DEC, .residual = 2},
    {.op = GW_OP_LINEAR, .why = "stacked floats of three formats", .n = 7, .k = 128, .m = {64, 17,
     32},
     .fmt = {GW_FMT_F16, GW_FMT_F32, GW_FMT_BF16}, OC_DEC, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "f16 prefill", .n = 29, .k = 300, .m = {150}, .fmt = OC_F16,
     OC_PRE},
    {.op = GW_OP_LINEAR, .why = "f16 prefill, more than a block deep", .n = 100, .k = 600,
     .m = {80}, .fmt = OC_F16, OC_PRE, .bias = 1, .residual = 2},
    {.op = GW_OP_LINEAR, .why = "f16 prefill, one row", .n = 1, .k = 257, .m = {65},
     .fmt = OC_F16, OC_PRE},
    {.op = GW_OP_LINEAR, .why = "bf16 prefill, ragged", .n = 13, .k = 31, .m = {7},
     .fmt = OC_BF16, OC_PRE, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "f32 prefill, stacked", .n = 11, .k = 515, .m = {48, 16, 21},
     .fmt = OC_F32, OC_PRE, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "quantized, stacked, formats differ", .n = 4, .k = 256, .m = {64,
     32, 48},
     .fmt = {GW_FMT_Q4_K, GW_FMT_Q4_K, GW_FMT_Q6_K}, OC_DEC, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "quantized prefill, stacked, formats differ", .n = 35, .k = 256,
     .m = {64, 32, 48},
     .fmt = {GW_FMT_Q4_0, GW_FMT_Q8_0, GW_FMT_Q5_1}, OC_PRE, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "int4 of one scale, long rows, few tokens", .n = 39, .k = 1920,
     .m = {150}, .fmt = {GW_FMT_INT4_G128}, OC_PRE, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "int4 of one scale, long rows, many tokens", .n = 150, .k = 1408,
     .m = {64, 17}, .fmt = {GW_FMT_INT4_G128, GW_FMT_INT4_G128}, OC_PRE, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "more tiles than blocks, few tokens", .n = 20, .k = 1024,
     .m = {1600}, .fmt = {GW_FMT_INT4_G128}, OC_PRE},
    {.op = GW_OP_LINEAR, .why = "more tiles than blocks, stacked", .n = 140, .k = 768,
     .m = {400, 300, 17}, .fmt = {GW_FMT_INT4_G256, GW_FMT_INT4_G256, GW_FMT_INT4_G256}, OC_PRE},
    {.op = GW_OP_LINEAR, .why = "more tiles than blocks, residual", .n = 170, .k = 768,
     .m = {896}, .fmt = {GW_FMT_Q4_K}, OC_PRE, .bias = 1, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "quantized, residual in place", .n = 1, .k = 64, .m = {200},
     .fmt = OC_Q8, OC_DEC, .residual = 2},

    {.op = GW_OP_GLU, .why = "f16 decode", .n = 1, .k = 96, .m = {300}, .fmt = OC_F16, OC_DEC},
    {.op = GW_OP_GLU, .why = "f16 decode to act8", .n = 3, .k = 64, .m = {160}, .fmt = OC_F16,
     OC_DEC, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "f32 prefill, ragged", .n = 19, .k = 65, .m = {77}, .fmt = OC_F32,
     OC_PRE},
    {.op = GW_OP_GLU, .why = "bf16 prefill to act8", .n = 33, .k = 128, .m = {192},
     .fmt = OC_BF16, OC_PRE, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "quantized decode to act8", .n = 2, .k = 256, .m = {288},
     .fmt = OC_Q8, OC_DEC, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "int4 of one scale, long rows, to act8", .n = 200, .k = 2048,
     .m = {96}, .fmt = {GW_FMT_INT4_G256, GW_FMT_INT4_G256}, OC_PRE, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "more tiles than blocks", .n = 180, .k = 1024, .m = {448},
     .fmt = {GW_FMT_Q8_0, GW_FMT_Q8_0}, OC_PRE},
    {.op = GW_OP_GLU, .why = "more tiles than blocks, to act8", .n = 130, .k = 1024, .m = {448},
     .fmt = {GW_FMT_INT4_G128, GW_FMT_INT4_G128}, OC_PRE, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "quantized, formats differ", .n = 41, .k = 256, .m = {96},
     .fmt = {GW_FMT_Q4_0, GW_FMT_Q5_K}, OC_PRE},

    {.op = GW_OP_ROPE_KV, .why = "halves, f16", .n = 1, .heads = 4, .kv_heads = 2, .e = 64,
     .rope_dim = 64, .kv = GW_FMT_F16, .pos = 63, .slots = 1},
    {.op = GW_OP_ROPE_KV, .why = "interleaved, f32, over page borders", .n = 70, .heads = 3,
     .kv_heads = 3, .e = 16, .rope_dim = 16, .interleaved = 1, .kv = GW_FMT_F32, .pos = 62,
     .slots = 1},
    {.op = GW_OP_ROPE_KV, .why = "head norms, 128 wide", .n = 40, .heads = 8, .kv_heads = 2,
     .e = 128, .rope_dim = 128, .head_norm = 1, .kv = GW_FMT_F16, .pos = 100, .slots = 1},
    {.op = GW_OP_ROPE_KV, .why = "partial rotation, odd width, slots", .n = 6, .heads = 2,
     .kv_heads = 1, .e = 20, .rope_dim = 12, .head_norm = 1, .kv = GW_FMT_F16, .pos = 5,
     .slots = 2},
    {.op = GW_OP_ROPE_KV, .why = "80 wide, partial, interleaved", .n = 2, .heads = 2,
     .kv_heads = 2, .e = 80, .rope_dim = 32, .interleaved = 1, .kv = GW_FMT_F32, .pos = 0,
     .slots = 1},

    {.op = GW_OP_ATTENTION, .why = "first position", .n = 1, .heads = 4, .kv_heads = 2, .e = 64,
     .kv = GW_FMT_F16, .pos = 0, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "a full page", .n = 1, .heads = 4, .kv_heads = 4, .e = 64,
     .kv = GW_FMT_F16, .pos = 63, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "one past a page", .n = 1, .heads = 8, .kv_heads = 1, .e = 64,
     .kv = GW_FMT_F16, .pos = 64, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "several pages, f32", .n = 1, .heads = 2, .kv_heads = 2,
     .e = 80, .kv = GW_FMT_F32, .pos = 300, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "verification over a page border", .n = 5, .heads = 6,
     .kv_heads = 2, .e = 128, .kv = GW_FMT_F16, .pos = 125, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "batch of slots", .n = 6, .heads = 4, .kv_heads = 2, .e = 16,
     .kv = GW_FMT_F16, .pos = 60, .slots = 3},
    {.op = GW_OP_ATTENTION, .why = "prefill from nothing", .n = 130, .heads = 4, .kv_heads = 2,
     .e = 64, .kv = GW_FMT_F16, .pos = 0, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "prefill, f32, 16 wide", .n = 70, .heads = 2, .kv_heads = 2,
     .e = 16, .kv = GW_FMT_F32, .pos = 30, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "window inside a page", .n = 20, .heads = 4, .kv_heads = 2,
     .e = 16, .kv = GW_FMT_F32, .window = 8, .pos = 0, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "window over pages", .n = 75, .heads = 2, .kv_heads = 1,
     .e = 80, .kv = GW_FMT_F16, .window = 100, .pos = 150, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "window of a page", .n = 1, .heads = 2, .kv_heads = 1, .e = 64,
     .kv = GW_FMT_F16, .window = 64, .pos = 191, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "odd head width", .n = 4, .heads = 3, .kv_heads = 1, .e = 20,
     .kv = GW_FMT_F16, .pos = 70, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "to act8", .n = 3, .heads = 4, .kv_heads = 2, .e = 64,
     .kv = GW_FMT_F16, .pos = 90, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "to act8, blocks over heads", .n = 17, .heads = 6,
     .kv_heads = 3, .e = 80, .kv = GW_FMT_F16, .pos = 0, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "group larger than a tile", .n = 2, .heads = 64, .kv_heads = 1,
     .e = 16, .kv = GW_FMT_F16, .pos = 500, .slots = 1},

    {.op = GW_OP_ROPE_KV, .why = "halves, q8_0", .n = 3, .heads = 4, .kv_heads = 2, .e = 64,
     .rope_dim = 64, .kv = GW_FMT_Q8_0, .pos = 62, .slots = 1},
    {.op = GW_OP_ROPE_KV, .why = "interleaved, head norms, q8_0, slots", .n = 40, .heads = 2,
     .kv_heads = 1, .e = 96, .rope_dim = 64, .interleaved = 1, .head_norm = 1,
     .kv = GW_FMT_Q8_0, .pos = 5, .slots = 2},
    {.op = GW_OP_ROPE_KV, .why = "q8_0, infinity, NaN, huge, tiny, zeros", .n = 9, .heads = 2,
     .kv_heads = 2, .e = 64, .rope_dim = 32, .kv = GW_FMT_Q8_0, .pos = 60, .slots = 1, .wild = 1},
    {.op = GW_OP_ATTENTION, .why = "q8_0, first position", .n = 1, .heads = 4, .kv_heads = 2,
     .e = 32, .kv = GW_FMT_Q8_0, .pos = 0, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "q8_0, several pages", .n = 5, .heads = 6, .kv_heads = 2,
     .e = 128, .kv = GW_FMT_Q8_0, .pos = 125, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "q8_0, prefill, slots, to act8", .n = 70, .heads = 4,
     .kv_heads = 2, .e = 64, .kv = GW_FMT_Q8_0, .pos = 30, .slots = 2, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "q8_0, window", .n = 9, .heads = 3, .kv_heads = 3, .e = 96,
     .kv = GW_FMT_Q8_0, .window = 100, .pos = 150, .slots = 1},

    {.op = GW_OP_EMBED, .why = "ids that were drawn", .n = 4, .k = 96, .m = {50}, .fmt = OC_Q8,
     .pick = 1},
    {.op = GW_OP_SAMPLE, .why = "the largest", .n = 3, .k = 5000},
    {.op = GW_OP_SAMPLE, .why = "the largest, ties", .n = 4, .k = 4097, .wild = 2},
    {.op = GW_OP_SAMPLE, .why = "one token", .n = 2, .k = 1, .temperature = 1.0f},
    {.op = GW_OP_SAMPLE, .why = "a draw", .n = 9, .k = 6001, .temperature = 1.0f, .pos = 77},
    {.op = GW_OP_SAMPLE, .why = "a draw, colder", .n = 5, .k = 2048, .temperature = 0.3f},
    {.op = GW_OP_SAMPLE, .why = "a draw, ties", .n = 5, .k = 2049, .temperature = 5.0f, .wild = 2},
    {.op = GW_OP_SAMPLE, .why = "nothing to draw", .n = 6, .k = 3000, .wild = 1},
    {.op = GW_OP_SAMPLE, .why = "nothing to draw, top-k", .n = 6, .k = 3000, .wild = 1,
     .temperature = 0.7f, .top_k = 9},
    {.op = GW_OP_SAMPLE, .why = "too cold for the numbers", .n = 1, .k = 300, .wild = 4,
     .temperature = 0.001f},
    {.op = GW_OP_SAMPLE, .why = "most tokens impossible", .n = 3, .k = 3000, .wild = 3,
     .temperature = 1.0f, .top_k = 60},
    {.op = GW_OP_SAMPLE, .why = "top-k", .n = 1, .k = 32000, .temperature = 0.8f, .top_k = 40},
    {.op = GW_OP_SAMPLE, .why = "top-1", .n = 3, .k = 5000, .temperature = 2.0f, .top_k = 1},
    {.op = GW_OP_SAMPLE, .why = "top-1, ties", .n = 8, .k = 5000, .temperature = 2.0f, .top_k = 1,
     .wild = 2},
    {.op = GW_OP_SAMPLE, .why = "top-k, ties", .n = 8, .k = 7000, .temperature = 1.0f,
     .top_k = 300, .wild = 2},
    {.op = GW_OP_SAMPLE, .why = "top-k beyond a piece", .n = 3, .k = 7001, .temperature = 9.0f,
     .top_k = 6500},
    {.op = GW_OP_SAMPLE, .why = "top-k of all but one", .n = 8, .k = 11, .temperature = 50.0f,
     .top_k = 10},
    {.op = GW_OP_SAMPLE, .why = "top-k of more than all", .n = 3, .k = 300, .temperature = 3.0f,
     .top_k = 400},
    {.op = GW_OP_SAMPLE, .why = "the largest, top-k without a meaning", .n = 2, .k = 300,
     .top_k = 4},
    {.op = GW_OP_LINEAR, .why = "q4_0 decode, one row of 4096", .n = 1, .k = 4096, .m = {75},
     .fmt = {GW_FMT_Q4_0}, OC_DEC, .bias = 1, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "three matrices of long rows", .n = 1, .k = 4096, .m = {75, 33, 17},
     .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0, GW_FMT_Q4_0}, OC_DEC},
    {.op = GW_OP_GLU, .why = "q8_0 decode, one row of 2048", .n = 1, .k = 2048, .m = {96},
     .fmt = {GW_FMT_Q8_0, GW_FMT_Q8_0}, OC_DEC, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "one page, to act8", .n = 1, .heads = 4, .kv_heads = 2, .e = 64,
     .kv = GW_FMT_F16, .pos = 40, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "one page, group larger than a tile", .n = 1, .heads = 40,
     .kv_heads = 2, .e = 16, .kv = GW_FMT_F32, .pos = 50, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "pages shared by blocks, to act8", .n = 1, .heads = 2,
     .kv_heads = 1, .e = 128, .kv = GW_FMT_F16, .pos = 1200, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "pages shared by blocks, f32, a batch of slots", .n = 2,
     .heads = 1, .kv_heads = 1, .e = 80, .kv = GW_FMT_F32, .pos = 1000, .slots = 2},
    {.op = GW_OP_ATTENTION, .why = "pages shared by blocks, q8_0, window", .n = 2, .heads = 2,
     .kv_heads = 1, .e = 96, .kv = GW_FMT_Q8_0, .window = 600, .pos = 1300, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "rows together, large group", .n = 1, .heads = 10,
     .kv_heads = 1, .e = 72, .kv = GW_FMT_F16, .pos = 230, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "rows together over a page border, to act8", .n = 8, .heads = 4,
     .kv_heads = 2, .e = 64, .kv = GW_FMT_F16, .pos = 60, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "rows together, f32, a batch of slots", .n = 7, .heads = 8,
     .kv_heads = 8, .e = 36, .kv = GW_FMT_F32, .pos = 70, .slots = 3},
    {.op = GW_OP_ATTENTION, .why = "rows together, q8_0, window", .n = 5, .heads = 6, .kv_heads = 2,
     .e = 96, .kv = GW_FMT_Q8_0, .window = 70, .pos = 200, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "rows together, some pages", .n = 4, .heads = 6, .kv_heads = 1,
     .e = 128, .kv = GW_FMT_F16, .pos = 230, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "more pages than blocks share", .n = 1, .heads = 4,
     .kv_heads = 1, .e = 32, .kv = GW_FMT_F16, .pos = 4300, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "few pages, a team for each", .n = 1, .heads = 1,
     .kv_heads = 1, .e = 64, .kv = GW_FMT_Q8_0, .pos = 2500, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "groups of pages", .n = 1, .heads = 4, .kv_heads = 2, .e = 64,
     .kv = GW_FMT_F16, .pos = 10300, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "groups of pages, q8_0, window", .n = 2, .heads = 1,
     .kv_heads = 1, .e = 128, .kv = GW_FMT_Q8_0, .window = 9300, .pos = 10300, .slots = 1},
    {.op = GW_OP_ATTENTION, .why = "groups of pages, f32, a batch of slots", .n = 3, .heads = 10,
     .kv_heads = 1, .e = 64, .kv = GW_FMT_F32, .pos = 5200, .slots = 3},
    {.op = GW_OP_ATTENTION, .why = "prefill, the border of a group of pages", .n = 70, .heads = 2,
     .kv_heads = 1, .e = 20, .kv = GW_FMT_F16, .pos = 1000, .slots = 1, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "prefill, two and three groups of pages, slots", .n = 40,
     .heads = 2, .kv_heads = 1, .e = 64, .kv = GW_FMT_F16, .pos = 2030, .slots = 2,
     .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "prefill, groups of pages, window, to act8", .n = 66,
     .heads = 2, .kv_heads = 2, .e = 32, .kv = GW_FMT_F32, .window = 2100, .pos = 3100, .slots = 2,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "q8_0, prefill, groups of pages", .n = 65, .heads = 2,
     .kv_heads = 1, .e = 32, .kv = GW_FMT_Q8_0, .window = 1700, .pos = 2020, .slots = 1},
    {.op = GW_OP_LINEAR, .why = "f16 prefill, over the borders of tiles", .n = 66, .k = 40,
     .m = {70}, .fmt = OC_F16, OC_PRE, .bias = 1, .residual = 1},
    {.op = GW_OP_NORM, .why = "several blocks to a lane, ragged", .n = 2, .k = 4421},
    {.op = GW_OP_NORM, .why = "to act8, several blocks to a lane", .n = 2, .k = 5152,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_NORM, .why = "zeros, NaN, infinity, tiny, large", .n = 8, .k = 96, .wild = 1},
    {.op = GW_OP_NORM, .why = "to act8, zeros, NaN, infinity, tiny, large", .n = 8, .k = 96,
     .out = GW_FMT_ACT8, .wild = 1},
    {.op = GW_OP_NORM, .why = "a long ragged row", .n = 1, .k = 8237},
    {.op = GW_OP_NORM, .why = "to act8, a long row", .n = 2, .k = 9376, .out = GW_FMT_ACT8},
    {.op = GW_OP_LINEAR, .why = "tiles of 160 tokens", .n = 150, .k = 256, .m = {1210},
     .fmt = {GW_FMT_INT4_G128}, OC_PRE},
    {.op = GW_OP_LINEAR, .why = "tiles of 160 tokens, shared", .n = 131, .k = 512, .m = {1000, 790},
     .fmt = {GW_FMT_INT4_G128, GW_FMT_INT4_G128}, OC_PRE, .bias = 1},
    {.op = GW_OP_LINEAR, .why = "tiles of 160 and 64 tokens, shared", .n = 199, .k = 768,
     .m = {890}, .fmt = {GW_FMT_INT4_G256}, OC_PRE, .residual = 1},
    {.op = GW_OP_LINEAR, .why = "tiles of 160 and 128 tokens, shared", .n = 270, .k = 640,
     .m = {840}, .fmt = {GW_FMT_INT4_G128}, OC_PRE, .bias = 1, .residual = 1},
    {.op = GW_OP_GLU, .why = "tiles of 160 tokens, to act8", .n = 145, .k = 256, .m = {736},
     .fmt = {GW_FMT_INT4_G128, GW_FMT_INT4_G128}, OC_PRE, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "tiles of 160 tokens, shared", .n = 320, .k = 512, .m = {450},
     .fmt = {GW_FMT_INT4_G256, GW_FMT_INT4_G256}, OC_PRE},
    {.op = GW_OP_SAMPLE, .why = "top-p and min-p", .n = 9, .k = 32000, .temperature = 0.8f,
     .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
    {.op = GW_OP_SAMPLE, .why = "top-p of few, hot", .n = 9, .k = 5000, .temperature = 20.0f,
     .top_k = 9, .top_p = 0.5f},
    {.op = GW_OP_SAMPLE, .why = "top-p of ties", .n = 9, .k = 200, .temperature = 20.0f,
     .top_k = 20, .top_p = 0.6f, .wild = 2},
    {.op = GW_OP_SAMPLE, .why = "min-p of as many as can be ranked", .n = 9, .k = 7001,
     .temperature = 30.0f, .top_k = 256, .min_p = 0.8f},
    {.op = GW_OP_SAMPLE, .why = "top-p of the first", .n = 3, .k = 2049, .temperature = 9.0f,
     .top_k = 100, .top_p = 1e-30f},
    {.op = GW_OP_SAMPLE, .why = "top-p of more than can be ranked", .n = 3, .k = 7000,
     .temperature = 1.0f, .top_k = 250, .top_p = 0.9f, .wild = 2},
    {.op = GW_OP_SAMPLE, .why = "top-p without top-k", .n = 2, .k = 300, .temperature = 1.0f,
     .top_p = 0.9f},
    {.op = GW_OP_SAMPLE, .why = "min-p, nothing to draw", .n = 6, .k = 3000, .wild = 1,
     .temperature = 0.7f, .top_k = 9, .top_p = 0.9f, .min_p = 0.05f},

    {.op = GW_OP_EMBED, .why = "scaled", .n = 5, .k = 64, .m = {33}, .fmt = OC_Q8, .scale = 8.0f},
    {.op = GW_OP_EMBED, .why = "scaled, positions", .n = 17, .k = 80, .m = {33}, .fmt = OC_F16,
     .scale = 1.7f, .places = 40, .place_offset = 2, .pos = 3, .slots = 1},
    {.op = GW_OP_NORM, .why = "no weight", .n = 3, .k = 333, .bare = 1},
    {.op = GW_OP_NORM, .why = "no weight, to act8", .n = 5, .k = 1088, .bare = 1,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_NORM, .why = "bias", .n = 2, .k = 75, .norm_bias = 1},
    {.op = GW_OP_NORM, .why = "bias, to act8", .n = 2, .k = 96, .norm_bias = 1,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_NORM, .why = "addend and factor", .n = 5, .k = 160, .addend = 1, .factor = 1},
    {.op = GW_OP_NORM, .why = "addend in place", .n = 16, .k = 64, .addend = 2},
    {.op = GW_OP_NORM, .why = "layer, ragged", .n = 3, .k = 1221, .norm_kind = GW_NORM_LAYER,
     .norm_bias = 1},
    {.op = GW_OP_NORM, .why = "layer, no bias", .n = 1, .k = 2048, .norm_kind = GW_NORM_LAYER},
    {.op = GW_OP_NORM, .why = "layer, bare, addend", .n = 2, .k = 45, .norm_kind = GW_NORM_LAYER,
     .bare = 1, .addend = 1},
    {.op = GW_OP_NORM, .why = "layer, to act8", .n = 5, .k = 352, .norm_kind = GW_NORM_LAYER,
     .norm_bias = 1, .out = GW_FMT_ACT8},

    {.op = GW_OP_ACT, .why = "silu", .n = 3, .k = 300, .gated = 1},
    {.op = GW_OP_ACT, .why = "silu, limit, to act8", .n = 1, .k = 2080, .gated = 1,
     .limit = 0.7f, .out = GW_FMT_ACT8},
    {.op = GW_OP_ACT, .why = "gelu", .n = 5, .k = 77, .act = GW_ACT_GELU},
    {.op = GW_OP_ACT, .why = "gelu, gated, to act8", .n = 16, .k = 96, .act = GW_ACT_GELU,
     .gated = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ACT, .why = "gelu_tanh", .n = 2, .k = 1111, .act = GW_ACT_GELU_TANH, .gated = 1},
    {.op = GW_OP_ACT, .why = "relu", .n = 2, .k = 65, .act = GW_ACT_RELU},
    {.op = GW_OP_ACT, .why = "relu2, to act8", .n = 3, .k = 64, .act = GW_ACT_RELU2,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_ACT, .why = "swiglu_oai", .n = 5, .k = 90, .act = GW_ACT_SWIGLU_OAI, .gated = 1,
     .limit = 1.5f},
    {.op = GW_OP_ACT, .why = "xielu", .n = 3, .k = 70, .act = GW_ACT_XIELU},
    {.op = GW_OP_ACT, .why = "sigmoid", .n = 2, .k = 33, .act = GW_ACT_SIGMOID, .gated = 1},
    {.op = GW_OP_ACT, .why = "softplus", .n = 2, .k = 33, .act = GW_ACT_SOFTPLUS},
    {.op = GW_OP_ACT, .why = "a product", .n = 40, .k = 48, .act = GW_ACT_NONE, .gated = 1},

    {.op = GW_OP_MIX, .why = "scale", .n = 3, .k = 75, .scale = 0.3f},
    {.op = GW_OP_MIX, .why = "cap", .n = 2, .k = 130, .cap = 1.5f},
    {.op = GW_OP_MIX, .why = "a gate, addend", .n = 5, .k = 96, .gates = 1,
     .act = GW_ACT_SIGMOID, .addend = 1},
    {.op = GW_OP_MIX, .why = "gates of heads, to act8", .n = 16, .k = 128, .gates = 4,
     .act = GW_ACT_SOFTPLUS, .out = GW_FMT_ACT8},
    {.op = GW_OP_MIX, .why = "gates of columns", .n = 2, .k = 64, .gates = 64, .act = GW_ACT_SILU},
    {.op = GW_OP_MIX, .why = "everything, in place", .n = 3, .k = 90, .gates = 3,
     .act = GW_ACT_NONE, .scale = 2.5f, .cap = 3.0f, .addend = 2, .factor = 1},

    {.op = GW_OP_ROUTE, .why = "softmax", .n = 5, .experts = 60, .route = {.used = 4}},
    {.op = GW_OP_ROUTE, .why = "softmax, renormed, scaled, factors", .n = 40, .experts = 128,
     .route = {.used = 8, .renorm = 1, .scale = 2.5f}, .factor = 1},
    {.op = GW_OP_ROUTE, .why = "softmax of the chosen", .n = 16, .experts = 32,
     .route = {.used = 4, .score = GW_SCORE_SOFTMAX_CHOSEN}},
    {.op = GW_OP_ROUTE, .why = "sigmoid, bias, groups of two best", .n = 9, .experts = 64,
     .route = {.used = 6, .score = GW_SCORE_SIGMOID, .groups = 8, .groups_used = 3,
               .group_best = 2, .renorm = 1, .scale = 2.0f}, .norm_bias = 1},
    {.op = GW_OP_ROUTE, .why = "groups by their best", .n = 5, .experts = 40,
     .route = {.used = 5, .groups = 5, .groups_used = 2, .group_best = 1}},
    {.op = GW_OP_ROUTE, .why = "softplus, bias", .n = 5, .experts = 48,
     .route = {.used = 6, .score = GW_SCORE_SQRT_SOFTPLUS, .renorm = 1}, .norm_bias = 1},
    {.op = GW_OP_ROUTE, .why = "sparsemixer", .n = 9, .experts = 16,
     .route = {.used = 2, .score = GW_SCORE_SPARSEMIXER, .jitter = 0.2f}},
    {.op = GW_OP_ROUTE, .why = "ties", .n = 5, .experts = 24, .wild = 2, .route = {.used = 7}},
    {.op = GW_OP_ROUTE, .why = "one expert", .n = 1, .experts = 16,
     .route = {.used = 1, .score = GW_SCORE_SIGMOID}},

    {.op = GW_OP_EXPERTS_GLU, .why = "one row", .n = 1, .k = 96, .m = {80}, .fmt = OC_F16, OC_DEC,
     .experts = 8, .route = {.used = 3}, .gated = 1},
    {.op = GW_OP_EXPERTS_GLU, .why = "5 rows, ragged, biases", .n = 5, .k = 45, .m = {37},
     .fmt = OC_F32, OC_DEC, .experts = 6, .route = {.used = 2}, .gated = 1, .bias = 1,
     .act = GW_ACT_SWIGLU_OAI, .limit = 2.0f},
    {.op = GW_OP_EXPERTS_GLU, .why = "one matrix, inside strips", .n = 5, .k = 64, .m = {40},
     .fmt = OC_Q8, OC_DEC, .experts = 5, .route = {.used = 2}, .act = GW_ACT_RELU2, .bias = 1},
    {.op = GW_OP_EXPERTS_GLU, .why = "16 rows to act8", .n = 16, .k = 256, .m = {96},
     .fmt = {GW_FMT_Q4_K, GW_FMT_Q6_K}, OC_DEC, .experts = 12, .route = {.used = 4}, .gated = 1,
     .out = GW_FMT_ACT8},
    {.op = GW_OP_EXPERTS_GLU, .why = "all rows the same experts", .n = 16, .k = 64, .m = {64},
     .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0}, OC_DEC, .experts = 16, .route = {.used = 4}, .gated = 1,
     .chosen = 1, .act = GW_ACT_GELU_TANH},
    {.op = GW_OP_EXPERTS_GLU, .why = "gates at the input", .n = 5, .k = 64, .m = {48},
     .fmt = OC_BF16, OC_DEC, .experts = 4, .route = {.used = 1}, .gated = 1, .gate_input = 1,
     .bias = 1},
    {.op = GW_OP_EXPERTS_GLU, .why = "prefill", .n = 40, .k = 128, .m = {96}, .fmt = OC_F16,
     OC_PRE, .experts = 8, .route = {.used = 2}, .gated = 1},
    {.op = GW_OP_EXPERTS_GLU, .why = "prefill, few experts, to act8", .n = 90, .k = 256,
     .m = {160}, .fmt = {GW_FMT_Q4_K, GW_FMT_Q4_K}, OC_PRE, .experts = 8, .route = {.used = 2},
     .gated = 1, .chosen = 2, .out = GW_FMT_ACT8},
    {.op = GW_OP_EXPERTS_DOWN, .why = "one row", .n = 1, .k = 80, .m = {96}, .fmt = OC_F16,
     OC_DEC, .experts = 8, .route = {.used = 3}},
    {.op = GW_OP_EXPERTS_DOWN, .why = "5 rows, ragged, bias, addend", .n = 5, .k = 37, .m = {45},
     .fmt = OC_F32, OC_DEC, .experts = 6, .route = {.used = 2}, .bias = 1, .addend = 1},
    {.op = GW_OP_EXPERTS_DOWN, .why = "inside strips", .n = 5, .k = 64, .m = {40}, .fmt = OC_Q8,
     OC_DEC, .experts = 5, .route = {.used = 2}, .bias = 1},
    {.op = GW_OP_EXPERTS_DOWN, .why = "16 rows, addend in place", .n = 16, .k = 256, .m = {96},
     .fmt = {GW_FMT_Q6_K}, OC_DEC, .experts = 12, .route = {.used = 4}, .addend = 2},
    {.op = GW_OP_EXPERTS_DOWN, .why = "gates at the input", .n = 5, .k = 48, .m = {64},
     .fmt = OC_BF16, OC_DEC, .experts = 4, .route = {.used = 2}, .gate_input = 1, .addend = 1},
    {.op = GW_OP_EXPERTS_DOWN, .why = "prefill", .n = 40, .k = 96, .m = {128}, .fmt = OC_F16,
     OC_PRE, .experts = 8, .route = {.used = 2}, .addend = 1},
    {.op = GW_OP_EXPERTS_DOWN, .why = "prefill, few experts", .n = 90, .k = 256, .m = {160},
     .fmt = {GW_FMT_Q4_K}, OC_PRE, .experts = 8, .route = {.used = 3}, .chosen = 2, .bias = 1},

    {.op = GW_OP_ROPE_KV, .why = "layer norms of heads, wide weights", .n = 5, .heads = 4,
     .kv_heads = 2, .e = 48, .rope_dim = 32, .kv = GW_FMT_F16, .pos = 60, .slots = 1,
     .head_norm = 1, .norm_kind = GW_NORM_LAYER, .norm_span = GW_SPAN_HEADS},
    {.op = GW_OP_ROPE_KV, .why = "norms of rows", .n = 20, .heads = 4, .kv_heads = 4, .e = 32,
     .rope_dim = 32, .kv = GW_FMT_F32, .pos = 60, .slots = 2, .head_norm = 1,
     .norm_span = GW_SPAN_ROW},
    {.op = GW_OP_ROPE_KV, .why = "norms behind the rotation, values normed", .n = 3, .heads = 4,
     .kv_heads = 1, .e = 64, .rope_dim = 64, .kv = GW_FMT_F16, .pos = 9, .slots = 1,
     .norm_after = 1, .norm_plain = 1, .norm_v = 1, .interleaved = 1},
    {.op = GW_OP_ROPE_KV, .why = "narrow values, no rotation, factors", .n = 5, .heads = 4,
     .kv_heads = 2, .e = 48, .v_dim = 32, .kv = GW_FMT_F16, .pos = 61, .slots = 1, .q_factor = 1},
    {.op = GW_OP_ROPE_KV, .why = "wide values, q8_0", .n = 5, .heads = 2, .kv_heads = 2, .e = 64,
     .rope_dim = 16, .v_dim = 96, .kv = GW_FMT_Q8_0, .pos = 61, .slots = 1},
    {.op = GW_OP_ROPE_KV, .why = "queries alone", .n = 5, .heads = 4, .e = 64, .rope_dim = 64,
     .kv = GW_FMT_F16, .pos = 61, .slots = 1, .head_norm = 1},

    {.op = GW_OP_ATTENTION, .why = "narrow values", .n = 5, .heads = 4, .kv_heads = 2, .e = 96,
     .v_dim = 64, .kv = GW_FMT_F16, .pos = 70, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_ATTENTION, .why = "wide values, q8_0, slots", .n = 6, .heads = 4, .kv_heads = 1,
     .e = 64, .v_dim = 128, .kv = GW_FMT_Q8_0, .pos = 130, .slots = 2},
    {.op = GW_OP_ATTENTION, .why = "cap and sinks", .n = 1, .heads = 6, .kv_heads = 2, .e = 64,
     .kv = GW_FMT_F16, .pos = 150, .slots = 1, .cap = 2.0f, .sinks = 1},
    {.op = GW_OP_ATTENTION, .why = "sinks, window, groups of pages", .n = 3, .heads = 4,
     .kv_heads = 1, .e = 32, .kv = GW_FMT_F16, .window = 1500, .pos = 2100, .slots = 1,
     .sinks = 1},
    {.op = GW_OP_ATTENTION, .why = "slopes, prefill, f32", .n = 70, .heads = 4, .kv_heads = 2,
     .e = 20, .kv = GW_FMT_F32, .pos = 30, .slots = 1, .slopes = 1},
    {.op = GW_OP_ATTENTION, .why = "chunks", .n = 40, .heads = 2, .kv_heads = 1, .e = 48,
     .kv = GW_FMT_F16, .pos = 180, .slots = 1, .chunk = 100, .out = GW_FMT_F32},
    {.op = GW_OP_ATTENTION, .why = "all of it, to act8", .n = 16, .heads = 4, .kv_heads = 2,
     .e = 64, .v_dim = 80, .kv = GW_FMT_F16, .pos = 200, .slots = 3, .chunk = 150, .window = 70,
     .cap = 3.0f, .sinks = 1, .slopes = 1, .out = GW_FMT_ACT8},
};
/* clang-format on */
enum {
    OC_COUNT = sizeof op_cases / sizeof op_cases[0],
    OC_PER_FORMAT = 8,
    OC_TOTAL = OC_COUNT + OC_PER_FORMAT * GW_FMT_ACT8
};

/* Case i < OC_TOTAL: the table, then the products of every weight format in both orders. */
static inline op_case oc_case(int i) {
    if (i < OC_COUNT) {
        op_case c = op_cases[i];
        c.out = c.op == GW_OP_QUANTIZE || c.out == GW_FMT_ACT8 ? GW_FMT_ACT8 : GW_FMT_F32;
        return c;
    }
    gw_fmt fmt = (gw_fmt)((i - OC_COUNT) / OC_PER_FORMAT);
    int form = (i - OC_COUNT) % OC_PER_FORMAT, prefill = form & 1;
    static const gw_op products[] = {GW_OP_LINEAR, GW_OP_GLU, GW_OP_EXPERTS_GLU,
                                     GW_OP_EXPERTS_DOWN};
    op_case c = {.op = products[form / 2],
                 .why = gw_format_of(fmt)->name,
                 .n = prefill ? 21 : 3,
                 .k = 768,
                 .m = {80},
                 .fmt = {fmt, fmt, fmt},
                 .order = prefill ? GW_ORDER_PREFILL : GW_ORDER_DECODE};
    if (form >= 4) {
        c.k = 256;
        c.m[0] = 48;
        c.experts = 5;
        c.route.used = 2;
        c.gated = 1;
    }
    return c;
}

/* ---- data
 * ------------------------------------------------------------------------------------------- */

static void *oc_alloc(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

static size_t oc_row_bytes(gw_fmt fmt, size_t cols) {
    size_t bytes;
    assert_int_equal(gw_row_bytes(fmt, cols, &bytes), GW_OK);
    return bytes;
}

/* One weight row: encoded where the format has an encoder, else random blocks that decode to
 * finite numbers of moderate size. */
static void oc_fill_weight_row(gw_fmt fmt, void *row, size_t cols) {
    const gw_format *f = gw_format_of(fmt);
    float *x = oc_alloc(cols * sizeof(float));
    for (size_t i = 0; i < cols; i++) {
        x[i] = random_float(1.0f);
    }
    if (f->encode != NULL) {
        f->encode(row, x, cols);
    } else if (fmt == GW_FMT_F16 || fmt == GW_FMT_BF16) {
        for (size_t i = 0; i < cols; i++) {
            ((gw_u16 *)row)[i] =
                fmt == GW_FMT_F16 ? gw_f32_to_f16(x[i]) : (gw_u16)(GW_F32_BITS(x[i]) >> 16);
        }
    } else if (fmt == GW_FMT_F32) {
        memcpy(row, x, cols * sizeof(float));
    } else {
        for (size_t b = 0; b < cols / f->block_elems; b++) {
            unsigned char *block = (unsigned char *)row + b * f->block_bytes;
            for (int moderate = 0; !moderate;) {
                for (size_t i = 0; i < f->block_bytes; i++) {
                    block[i] = (unsigned char)(random_u32() >> 11);
                }
                f->decode(x, block, f->block_elems);
                moderate = 1;
                for (size_t i = 0; i < f->block_elems; i++) {
                    moderate &= fabsf(x[i]) < 100.0f;
                }
            }
        }
    }
    free(x);
}

/* ---- one run
 * ------------------------------------------------------------------------------------------ */

/* A node with everything it needs on a device; host copies of the inputs stay for bounds. */
typedef struct op_setup {
    const op_case *c;
    const gw_backend *backend;
    struct gw_device *device;
    gw_node node;
    gw_tensor t[OC_TENSORS];
    int n_t;
    struct gw_buffer *owned[OC_TENSORS];
    int n_owned;
    void *host[OC_TENSORS]; /* input bytes of t[i] */
    int rows;               /* capacity */
    gw_step step;
    size_t out_bytes; /* of the live rows */
} op_setup;

typedef struct op_result {
    unsigned char *out;
    size_t out_bytes;
    unsigned char *k, *v; /* caches after ROPE_KV */
    size_t cache_bytes, value_bytes;
} op_result;

static void oc_free_result(op_result *r) {
    free(r->out);
    free(r->k);
    free(r->v);
    memset(r, 0, sizeof *r);
}

static size_t oc_tensor_bytes(const gw_tensor *t) {
    size_t rows = 1;
    for (int i = 0; i + 1 < t->n_dim; i++) {
        rows *= (size_t)t->dim[i];
    }
    return rows * oc_row_bytes(t->fmt, (size_t)t->dim[t->n_dim - 1]);
}

static gw_tensor *oc_tensor(op_setup *s, const char *name, gw_fmt fmt, int n_dim,
                            const int64_t *dim) {
    gw_tensor *t = &s->t[s->n_t++];
    assert_true(s->n_t <= OC_TENSORS);
    *t = (gw_tensor){.name = name, .fmt = fmt, .n_dim = n_dim};
    memcpy(t->dim, dim, (size_t)n_dim * sizeof *dim);
    s->host[t - s->t] = oc_alloc(oc_tensor_bytes(t));
    return t;
}
static gw_tensor *oc_matrix(op_setup *s, const char *name, gw_fmt fmt, int64_t rows, int64_t cols) {
    int64_t dim[2] = {rows, cols};
    return oc_tensor(s, name, fmt, 2, dim);
}
static void *oc_host(const op_setup *s, const gw_tensor *t) { return s->host[t - s->t]; }

static void oc_fill_floats(op_setup *s, gw_tensor *t, float scale) {
    float *x = oc_host(s, t);
    for (size_t i = 0; i < oc_tensor_bytes(t) / sizeof(float); i++) {
        x[i] = random_float(1.0f) * scale;
    }
}

/* Host bytes to a device buffer of their own. */
static void oc_upload(op_setup *s, gw_tensor *t) {
    size_t bytes = oc_tensor_bytes(t);
    assert_int_equal(s->backend->alloc(s->device, bytes, &t->buf), GW_OK);
    assert_int_equal(s->backend->write(t->buf, 0, oc_host(s, t), bytes), GW_OK);
    s->owned[s->n_owned++] = t->buf;
}

typedef struct oc_rows {
    const unsigned char *bytes;
    size_t row_bytes;
} oc_rows;

static gw_status oc_produce(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const oc_rows *r = src->state;
    memcpy(dst, r->bytes + (size_t)first * r->row_bytes, (size_t)n * r->row_bytes);
    return GW_OK;
}

/* keep_rows: as stored, for kernels that read rows; else in the layout that the backend likes. */
static gw_tensor *oc_weight(op_setup *s, gw_fmt fmt, int rows, int cols, int keep_rows,
                            int mapped) {
    gw_tensor *t = oc_matrix(s, "weight", fmt, rows, cols);
    oc_rows state = {oc_host(s, t), oc_row_bytes(fmt, (size_t)cols)};
    for (int r = 0; r < rows; r++) {
        oc_fill_weight_row(fmt, (unsigned char *)oc_host(s, t) + (size_t)r * state.row_bytes,
                           (size_t)cols);
    }
    gw_weight_source src = {.map = mapped ? state.bytes : NULL,
                            .rows = oc_produce,
                            .state = &state,
                            .keep_rows = keep_rows};
    assert_int_equal(s->backend->load_weight(s->device, t, &src), GW_OK);
    s->owned[s->n_owned++] = t->buf;
    return t;
}

/* An activation input of the format that `weights` take. */
static gw_tensor *oc_input(op_setup *s, gw_fmt weights, int rows, int k) {
    int quantized = !gw_format_of(weights)->is_float;
    gw_tensor *t = oc_matrix(s, "input", quantized ? GW_FMT_ACT8 : GW_FMT_F32, rows, k);
    float block[GW_ACT_BLOCK];
    if (!quantized) {
        oc_fill_floats(s, t, 1.0f);
    } else {
        gw_act8 *x = oc_host(s, t);
        for (int i = 0; i < rows * k / GW_ACT_BLOCK; i++) {
            for (int j = 0; j < GW_ACT_BLOCK; j++) {
                block[j] = random_float(1.0f) * (float)(1 + i % 3);
            }
            gw_act8_encode(&x[i], block);
        }
    }
    oc_upload(s, t);
    return t;
}

static void oc_make_output(op_setup *s, gw_fmt fmt, int cols) {
    gw_tensor *t = oc_matrix(s, "output", fmt, s->rows, cols);
    size_t bytes = oc_tensor_bytes(t) + 2 * OC_FENCE;
    void *poison = oc_alloc(bytes);
    memset(poison, 0xff, bytes);
    assert_int_equal(s->backend->alloc(s->device, bytes, &t->buf), GW_OK);
    assert_int_equal(s->backend->write(t->buf, 0, poison, bytes), GW_OK);
    s->owned[s->n_owned++] = t->buf;
    t->offset = OC_FENCE;
    free(poison);
    s->node.out = t;
    s->out_bytes = (size_t)s->c->n * oc_row_bytes(fmt, (size_t)cols);
}

static gw_tensor *oc_vector(op_setup *s, const char *name, int n, float scale) {
    int64_t dim[1] = {n};
    gw_tensor *t = oc_tensor(s, name, GW_FMT_F32, 1, dim);
    oc_fill_floats(s, t, scale);
    oc_upload(s, t);
    return t;
}

/* What is added to the result: of its own, or 2: what lies where it goes (live rows alone). */
static const gw_tensor *oc_addend(op_setup *s, int form) {
    gw_tensor *t;
    if (form == 0) {
        return NULL;
    }
    t = oc_matrix(s, "addend", GW_FMT_F32, s->rows, s->node.out->dim[1]);
    oc_fill_floats(s, t, 1.0f);
    oc_upload(s, t);
    if (form == 2) {
        assert_int_equal(s->backend->write(s->node.out->buf, OC_FENCE, oc_host(s, t), s->out_bytes),
                         GW_OK);
        return s->node.out;
    }
    return t;
}

static void oc_product(op_setup *s, int parts, int keep_rows, int mapped) {
    const op_case *c = s->c;
    int columns = 0;
    s->node.args.linear.order = c->order;
    s->node.in[0] = oc_input(s, c->fmt[0], s->rows, c->k);
    for (int i = 0; i < parts; i++) {
        int m = c->op == GW_OP_GLU ? c->m[0] : c->m[i];
        if (m == 0) {
            break;
        }
        s->node.w[i] = oc_weight(s, c->fmt[i], m, c->k, keep_rows, mapped);
        columns += m;
        if (c->bias) {
            int64_t dim[1] = {m};
            gw_tensor *bias = oc_tensor(s, "bias", GW_FMT_F32, 1, dim);
            oc_fill_floats(s, bias, 0.5f);
            oc_upload(s, bias);
            s->node.w[3 + i] = bias;
        }
    }
    oc_make_output(s, c->op == GW_OP_GLU ? c->out : GW_FMT_F32,
                   c->op == GW_OP_GLU ? c->m[0] : columns);
    if (c->residual) {
        gw_tensor *r = oc_matrix(s, "residual", GW_FMT_F32, s->rows, columns);
        oc_fill_floats(s, r, 1.0f);
        oc_upload(s, r);
        s->node.in[1] = r;
        if (c->residual == 2) { /* in place: only live rows, the others stay poisoned */
            assert_int_equal(
                s->backend->write(s->node.out->buf, OC_FENCE, oc_host(s, r), s->out_bytes), GW_OK);
            s->node.in[1] = s->node.out;
        }
    }
}

static int oc_v_dim(const op_case *c) { return c->v_dim > 0 ? c->v_dim : c->e; }
static int oc_most(const op_case *c) { return oc_v_dim(c) > c->e ? oc_v_dim(c) : c->e; }

/* Value i (head, then the larger width) of position pos of a page in q8_0: core/plan/op.h. */
static void oc_fill_q8(op_setup *s, const gw_tensor *k, const gw_tensor *v, size_t page, int i,
                       int pos, float kx, float vx) {
    int most = oc_most(s->c), at = i % most, width[2] = {s->c->e, oc_v_dim(s->c)};
    size_t head = page * (size_t)s->c->kv_heads + (size_t)(i / most);
    for (int part = 0; part < 2; part++) {
        int e = width[part], is_k = part == 0;
        unsigned char *p = oc_host(s, is_k ? k : v);
        gw_u16 scale = gw_f32_to_f16(is_k ? 0.01f * (1.0f + fabsf(kx)) : 0.01f);
        p += head * GW_PAGE * (size_t)e * 34 / 32;
        if (at < e) {
            p[is_k ? at * GW_PAGE + pos : pos * e + at] =
                (unsigned char)(gw_i8)(is_k ? kx * 60.0f : vx * 127.0f);
            memcpy(p + GW_PAGE * e +
                       2 * (is_k ? at / 32 * GW_PAGE + pos : pos * (e / 32) + at / 32),
                   &scale, 2);
        }
    }
}

/* The number at index i = element of [pages, g, e, P] (K) or [pages, g, P, e] (V). */
static inline double oc_cached(const op_case *c, const void *cache, int is_k, size_t i) {
    if (c->kv == GW_FMT_F16) {
        return gw_f16_to_f32(((const gw_u16 *)cache)[i]);
    }
    if (c->kv == GW_FMT_F32) {
        return ((const float *)cache)[i];
    }
    size_t e = (size_t)(is_k ? c->e : oc_v_dim(c)), page = GW_PAGE * e, at = i % page, scale;
    const unsigned char *p = (const unsigned char *)cache + i / page * page * 34 / 32;
    scale = is_k ? at / GW_PAGE / 32 * GW_PAGE + at % GW_PAGE : at / e * (e / 32) + at % e / 32;
    gw_u16 d;
    memcpy(&d, p + page + 2 * scale, sizeof d);
    return (double)gw_f16_to_f32(d) * (double)(gw_i8)p[at];
}

/* Caches with two pages more than needed, and a page table that is not the identity. Positions up
 * to the last one of each slot are filled, all others are NaN. */
static void oc_caches(op_setup *s, int filled) {
    const op_case *c = s->c;
    int last = c->pos + c->n - 1, pages = last / GW_PAGE + 2, total = c->slots * pages;
    int64_t k_dim[4] = {total, c->kv_heads, c->e, GW_PAGE},
            v_dim[4] = {total, c->kv_heads, GW_PAGE, oc_v_dim(c)};
    int64_t p_dim[2] = {c->slots, pages};
    gw_tensor *k = oc_tensor(s, "K", c->kv, 4, k_dim), *v = oc_tensor(s, "V", c->kv, 4, v_dim);
    gw_tensor *table = oc_tensor(s, "pages", GW_FMT_I32, 2, p_dim);
    int32_t *at = oc_host(s, table);
    for (int i = 0; i < total; i++) {
        at[i] = total - 1 - i;
    }
    memset(oc_host(s, k), 0xff, oc_tensor_bytes(k));
    memset(oc_host(s, v), 0xff, oc_tensor_bytes(v));
    for (int p = 0; p < total * GW_PAGE && filled; p++) {
        int slot = p / (pages * GW_PAGE), pos = p % (pages * GW_PAGE);
        size_t page = (size_t)at[slot * pages + pos / GW_PAGE];
        int most = oc_most(c), ev = oc_v_dim(c);
        for (int i = 0; i < c->kv_heads * most && pos <= last; i++) {
            size_t head = (page * (size_t)c->kv_heads + (size_t)(i / most)) * GW_PAGE;
            size_t ki = head * (size_t)c->e + (size_t)(i % most * GW_PAGE + pos % GW_PAGE);
            size_t vi = head * (size_t)ev + (size_t)(pos % GW_PAGE * ev + i % most);
            int in_k = i % most < c->e, in_v = i % most < ev;
            float kx = random_float(1.0f) * 2.0f, vx = random_float(1.0f);
            if (c->kv == GW_FMT_Q8_0) { /* any codes, any scales */
                oc_fill_q8(s, k, v, page, i, pos % GW_PAGE, kx, vx);
                continue;
            }
            if (in_k && c->kv == GW_FMT_F16) {
                ((gw_u16 *)oc_host(s, k))[ki] = gw_f32_to_f16(kx);
            } else if (in_k) {
                ((float *)oc_host(s, k))[ki] = kx;
            }
            if (in_v && c->kv == GW_FMT_F16) {
                ((gw_u16 *)oc_host(s, v))[vi] = gw_f32_to_f16(vx);
            } else if (in_v) {
                ((float *)oc_host(s, v))[vi] = vx;
            }
        }
    }
    oc_upload(s, k);
    oc_upload(s, v);
    oc_upload(s, table);
    s->node.in[1] = k;
    s->node.in[2] = v;
    s->node.in[3] = table;
}

static void oc_rope(op_setup *s) {
    const op_case *c = s->c;
    int64_t t_dim[3] = {c->pos + c->n, 2, c->rope_dim / 2};
    s->node.args.rope =
        (gw_rope_args){.heads = c->heads,
                       .kv_heads = c->kv_heads,
                       .head_dim = c->e,
                       .rope_dim = c->rope_dim,
                       .eps = 1e-5f,
                       .v_dim = c->v_dim,
                       .norm_kind = c->norm_kind,
                       .norm_span = c->norm_span,
                       .norm_after = c->norm_after,
                       .norm_plain = c->norm_plain,
                       .norm_v = c->norm_v,
                       .style = c->interleaved ? GW_ROPE_INTERLEAVED : GW_ROPE_HALVES};
    const int width = (c->heads + c->kv_heads) * c->e + c->kv_heads * oc_v_dim(c);
    gw_tensor *x = oc_matrix(s, "qkv", GW_FMT_F32, s->rows, width);
    oc_fill_floats(s, x, 1.0f);
    float *values = oc_host(s, x);
    for (int i = 0; i < c->n * width && c->wild; i++) { /* blocks of k and v; q stays finite */
        static const float odd[] = {1.0f, NAN, 3e7f, INFINITY, 1e-6f, 3e38f, 1e-7f, 0.0f};
        int block = i / 32, at_k = i % width >= c->heads * c->e;
        int whole = block % 8 != 1 && block % 8 != 3;
        values[i] *= at_k && (whole || i % 32 == 7) ? odd[block % 8] : 1.0f;
    }
    oc_upload(s, x);
    s->node.in[0] = x;
    oc_make_output(s, GW_FMT_F32, c->heads * c->e);
    if (c->kv_heads > 0) {
        oc_caches(s, 0);
    }
    for (int i = 0; i < 2 && c->head_norm; i++) {
        int heads = c->norm_span == GW_SPAN_HEAD ? 1 : i == 0 ? c->heads : c->kv_heads;
        s->node.w[i] = oc_vector(s, "head norm", heads * c->e, 1.0f);
    }
    if (c->q_factor) {
        s->node.w[3] = oc_vector(s, "factors", c->pos + c->n, 1.0f);
    }
    if (c->rope_dim == 0) {
        return;
    }
    gw_tensor *table = oc_tensor(s, "rope", GW_FMT_F32, 3, t_dim);
    float *t = oc_host(s, table);
    for (int p = 0; p < c->pos + c->n; p++) {
        for (int i = 0; i < c->rope_dim / 2; i++) {
            double angle = p * pow(10000.0, -2.0 * i / c->rope_dim);
            t[p * c->rope_dim + i] = (float)cos(angle);
            t[p * c->rope_dim + c->rope_dim / 2 + i] = (float)sin(angle);
        }
    }
    oc_upload(s, table);
    s->node.w[2] = table;
}

static void oc_attention(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.attn = (gw_attn_args){.scale = (float)(1.0 / sqrt(c->e)),
                                       .heads = c->heads,
                                       .kv_heads = c->kv_heads,
                                       .head_dim = c->e,
                                       .v_dim = c->v_dim,
                                       .window = c->window,
                                       .chunk = c->chunk,
                                       .softcap = c->cap,
                                       .order = c->order};
    gw_tensor *q = oc_matrix(s, "q", GW_FMT_F32, s->rows, c->heads * c->e);
    oc_fill_floats(s, q, 2.0f);
    oc_upload(s, q);
    s->node.in[0] = q;
    oc_caches(s, 1);
    s->node.w[0] = c->sinks ? oc_vector(s, "sinks", c->heads, 3.0f) : NULL;
    s->node.w[1] = c->slopes ? oc_vector(s, "slopes", c->heads, 0.1f) : NULL;
    oc_make_output(s, c->out, c->heads * oc_v_dim(c));
}

static void oc_rowwise(op_setup *s) {
    const op_case *c = s->c;
    gw_tensor *x = oc_matrix(s, "input", GW_FMT_F32, s->rows + c->pick, c->k);
    oc_fill_floats(s, x, 3.0f);
    float *at = oc_host(s, x);
    for (int i = 0; i < c->n * c->k && c->wild; i++) {
        static const float odd[] = {0.0f, -0.0f, INFINITY, NAN, 1e-45f, 1e-38f, 3e38f, -INFINITY};
        int row = i / c->k;
        at[i] = row % 8 < 2   ? odd[row % 8]
                : row % 8 < 4 ? (i % c->k == 40 ? odd[row % 8] : at[i])
                              : at[i] * odd[row % 8 == 7 ? 6 : row % 8];
    }
    oc_upload(s, x);
    s->node.in[0] = x;
    oc_make_output(s, c->out, c->k);
    if (c->op == GW_OP_NORM) {
        s->node.args.norm = (gw_norm_args){.eps = 1e-5f, .kind = c->norm_kind};
        s->node.w[0] = c->bare ? NULL : oc_vector(s, "norm", c->k, 2.0f);
        s->node.w[1] = c->norm_bias ? oc_vector(s, "norm bias", c->k, 0.7f) : NULL;
        s->node.w[2] = c->factor ? oc_vector(s, "factor", 1, 2.0f) : NULL;
        s->node.in[1] = oc_addend(s, c->addend);
    }
}

static void oc_act(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.act =
        (gw_act_args){.kind = c->act, .gated = c->gated, .limit = c->limit, .alpha = 1.702f};
    gw_tensor *x = oc_matrix(s, "input", GW_FMT_F32, s->rows, c->k * (c->gated ? 2 : 1));
    oc_fill_floats(s, x, 4.0f);
    oc_upload(s, x);
    s->node.in[0] = x;
    s->node.w[0] = c->act == GW_ACT_XIELU ? oc_vector(s, "parameters", 2, 0.8f) : NULL;
    oc_make_output(s, c->out, c->k);
}

static void oc_mix(op_setup *s) {
    const op_case *c = s->c;
    s->node.args.mix = (gw_mix_args){.scale = c->scale, .cap = c->cap, .gate_act = c->act};
    oc_rowwise(s);
    if (c->gates > 0) {
        gw_tensor *gate = oc_matrix(s, "gate", GW_FMT_F32, s->rows, c->gates);
        oc_fill_floats(s, gate, 2.0f);
        oc_upload(s, gate);
        s->node.in[1] = gate;
    }
    s->node.w[0] = c->factor ? oc_vector(s, "factor", 1, 2.0f) : NULL;
    s->node.in[2] = oc_addend(s, c->addend);
}

/* Logits that are well apart from one another, or 2: of few values. */
static void oc_route(op_setup *s) {
    const op_case *c = s->c;
    gw_tensor *x = oc_matrix(s, "logits", GW_FMT_F32, s->rows, c->experts);
    float *at = oc_host(s, x);
    for (int i = 0; i < s->rows * c->experts; i++) {
        int step = (i % c->experts * 37 + i / c->experts * 11) % 1009 * 613 % 1009;
        at[i] = c->wild == 2 ? 0.5f * (float)(step % 3) : (float)step / 200.0f - 2.5f;
    }
    oc_upload(s, x);
    s->node.in[0] = x;
    s->node.args.route = c->route;
    s->node.w[0] = c->norm_bias ? oc_vector(s, "bias", c->experts, 0.1f) : NULL;
    s->node.w[1] = c->factor ? oc_vector(s, "factors", c->experts, 2.0f) : NULL;
    oc_make_output(s, GW_FMT_F32, 2 * c->route.used);
}

/* A route in increasing order; the last expert is nobody's where there are enough. */
static gw_tensor *oc_route_of(op_setup *s) {
    const op_case *c = s->c;
    int u = c->route.used, from = c->chosen == 2 ? u + 1 : c->experts > u ? c->experts - 1 : u;
    gw_tensor *t = oc_matrix(s, "route", GW_FMT_F32, s->rows, 2 * u);
    float *at = oc_host(s, t);
    for (int i = 0; i < s->rows; i++, at += 2 * u) {
        unsigned char used[64] = {0};
        for (int j = 0; j < u;) {
            int x =
                c->chosen == 1 ? (j * 3 + 1) % c->experts : (int)(random_u32() % (unsigned)from);
            j += !used[x];
            used[x] = 1;
        }
        for (int x = 0, j = 0; x < 64; x++) {
            if (used[x]) {
                at[j] = (float)x;
                at[u + j++] = 0.1f + fabsf(random_float(1.0f));
            }
        }
    }
    oc_upload(s, t);
    return t;
}

static void oc_experts(op_setup *s, int keep_rows, int mapped) {
    const op_case *c = s->c;
    int glu = c->op == GW_OP_EXPERTS_GLU, parts = glu && c->gated ? 2 : 1, u = c->route.used;
    s->node.args.experts =
        (gw_experts_args){.experts = c->experts,
                          .used = u,
                          .act = {.kind = c->act, .limit = c->limit, .alpha = 1.702f},
                          .gate_input = c->gate_input,
                          .order = c->order};
    s->node.in[0] = oc_input(s, c->fmt[0], s->rows, glu ? c->k : c->k * u);
    s->node.in[1] = oc_route_of(s);
    for (int i = 0; i < parts; i++) {
        int rows = c->experts * c->m[0];
        s->node.w[i] = oc_weight(s, c->fmt[i], rows, c->k, keep_rows, mapped);
        s->node.w[(glu ? 2 : 1) + i] = c->bias ? oc_vector(s, "bias", rows, 0.5f) : NULL;
    }
    oc_make_output(s, glu ? c->out : GW_FMT_F32, glu ? c->m[0] * u : c->m[0]);
    s->node.in[2] = glu ? NULL : oc_addend(s, c->addend);
}

/* Logits of a size that a model's have. */
static void oc_sample(op_setup *s) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, -NAN};
    const op_case *c = s->c;
    gw_choice choice = {c->temperature, c->top_k, 0x89abcdefu, 0x01234567u,
                        1 + c->k,       c->top_p, c->min_p};
    gw_tensor *x = oc_matrix(s, "logits", GW_FMT_F32, s->rows, c->k);
    gw_tensor *words = oc_matrix(s, "choice", GW_FMT_I32, 1, GW_CHOICE_WORDS);
    float *at = oc_host(s, x);
    oc_fill_floats(s, x, 12.0f);
    for (int i = 0; i < c->n * c->k && c->wild; i++) {
        int row = i / c->k, col = i % c->k;
        at[i] = c->wild == 2   ? rintf(at[i]) * (at[i] < 1.0f && at[i] > -2.0f ? -0.0f : 0.5f)
                : c->wild == 3 ? (col % 100 == 7 ? at[i] : -INFINITY)
                : c->wild == 4 ? 2e37f * at[i]
                : row == 2     ? odd[2]
                : col == 2999 - 2100 * (row % 2) && row < 4 ? odd[row]
                                                            : at[i];
    }
    memcpy(oc_host(s, words), &choice, sizeof choice);
    oc_upload(s, x);
    oc_upload(s, words);
    s->node.in[0] = x;
    s->node.in[1] = words;
    oc_make_output(s, GW_FMT_I32, 1);
}

/* Tokens come from the step, or every other one from in0. */
static void oc_embed(op_setup *s, int mapped) {
    const op_case *c = s->c;
    s->node.w[0] = oc_weight(s, c->fmt[0], c->m[0], c->k, 1, mapped);
    s->node.args.embed = (gw_embed_args){.scale = c->scale, .offset = c->place_offset};
    if (c->places > 0) {
        s->node.w[1] = oc_weight(s, GW_FMT_F16, c->places, c->k, 1, mapped);
    }
    if (c->pick) {
        gw_tensor *ids = oc_matrix(s, "ids", GW_FMT_I32, s->rows, 1);
        int32_t *id = oc_host(s, ids);
        for (int i = 0; i < s->rows; i++) {
            id[i] = i == 2 ? -1 : 5 + i;
            s->step.token[i] = i % 2 == 0 ? -1 : s->step.token[i];
        }
        oc_upload(s, ids);
        s->node.in[0] = ids;
    }
    oc_make_output(s, GW_FMT_F32, c->k);
}

/* keep_rows, mapped: how weights are loaded. The case must stay while the setup does. */
static void oc_open(op_setup *s, const op_case *c, const gw_backend *backend,
                    struct gw_device *device, int keep_rows, int mapped) {
    memset(s, 0, sizeof *s);
    s->c = c;
    s->backend = backend;
    s->device = device;
    s->rows = c->n + (c->spare > 0 ? c->spare : OC_SPARE_ROWS);
    s->node.op = c->op;
    s->node.what = c->why;
    random_seed(0);
    s->step.n = c->op == GW_OP_PICK ? c->n + c->pick : c->n;
    s->step.n_pick = c->n;
    s->step.pick = c->pick;
    for (int i = 0; i < c->n; i++) {
        s->step.slot[i] = c->slots > 1 ? i % c->slots : 0;
        s->step.pos[i] = c->pos + i;
        s->step.pos_max = c->pos + i;
        s->step.token[i] = c->op == GW_OP_EMBED ? (i * 7 + 3) % c->m[0] : 0;
    }
    switch (c->op) {
    case GW_OP_EMBED:
        oc_embed(s, mapped);
        break;
    case GW_OP_SAMPLE:
        oc_sample(s);
        break;
    case GW_OP_LINEAR:
        oc_product(s, 3, keep_rows, mapped);
        break;
    case GW_OP_GLU:
        oc_product(s, 2, keep_rows, mapped);
        break;
    case GW_OP_ROPE_KV:
        oc_rope(s);
        break;
    case GW_OP_ATTENTION:
        oc_attention(s);
        break;
    case GW_OP_ACT:
        oc_act(s);
        break;
    case GW_OP_MIX:
        oc_mix(s);
        break;
    case GW_OP_ROUTE:
        oc_route(s);
        break;
    case GW_OP_EXPERTS_GLU:
    case GW_OP_EXPERTS_DOWN:
        oc_experts(s, keep_rows, mapped);
        break;
    default:
        oc_rowwise(s);
        break;
    }
    assert_int_equal(gw_op_describe(c->op)->check(&s->node), GW_OK);
}

static void oc_close(op_setup *s) {
    for (int i = 0; i < s->n_owned; i++) {
        s->backend->release(s->owned[i]);
    }
    for (int i = 0; i < s->n_t; i++) {
        free(s->host[i]);
    }
}

static unsigned char *oc_download(const op_setup *s, const gw_tensor *t, size_t at, size_t bytes) {
    unsigned char *p = oc_alloc(bytes);
    assert_int_equal(s->backend->read(t->buf, at, p, bytes), GW_OK);
    return p;
}

/* Run the node with one kernel; the result holds the live rows (and the caches). */
/* Which NaN a NaN is nobody defines (docs/arithmetic.md, section 1): floats of f32, scales of act8
 * that are NaN become the same one. */
static void oc_one_nan(unsigned char *bytes, size_t n, gw_fmt fmt) {
    size_t step = fmt == GW_FMT_ACT8 ? sizeof(gw_act8) : sizeof(float);
    for (size_t at = 0; at + step <= n; at += step) {
        float v;
        memcpy(&v, bytes + at, sizeof v);
        v = isnan(v) ? NAN : v;
        memcpy(bytes + at, &v, sizeof v);
    }
}

static void oc_run(op_setup *s, const gw_kernel *kernel, op_result *r) {
    struct gw_segment *segment;
    memset(r, 0, sizeof *r);
    s->node.kernel = kernel;
    int rows = s->rows + (s->c->op == GW_OP_PICK ? s->c->pick : 0);
    assert_int_equal(s->backend->freeze(s->device, &s->node, 1, rows, &segment), GW_OK);
    assert_int_equal(s->backend->run(segment, &s->step), GW_OK);
    assert_int_equal(s->backend->wait(s->device), GW_OK);
    s->backend->thaw(segment);

    size_t all = oc_tensor_bytes(s->node.out) + 2 * OC_FENCE;
    unsigned char *out = oc_download(s, s->node.out, 0, all);
    for (size_t i = 0; i < all; i++) {
        int inside = i >= OC_FENCE && i < OC_FENCE + s->out_bytes;
        if (!inside && out[i] != 0xff) {
            fail_msg("%s (%s) wrote byte %zu of %zu, outside its rows", kernel->name, s->c->why, i,
                     all);
        }
    }
    r->out_bytes = s->out_bytes;
    r->out = oc_alloc(s->out_bytes);
    memcpy(r->out, out + OC_FENCE, s->out_bytes);
    free(out);
    if (s->c->op == GW_OP_NORM && s->c->wild) {
        oc_one_nan(r->out, r->out_bytes, s->node.out->fmt);
    }
    if (s->c->op == GW_OP_ROPE_KV && s->c->kv_heads > 0) {
        r->cache_bytes = oc_tensor_bytes(s->node.in[1]);
        r->value_bytes = oc_tensor_bytes(s->node.in[2]);
        r->k = oc_download(s, s->node.in[1], 0, r->cache_bytes);
        r->v = oc_download(s, s->node.in[2], 0, r->value_bytes);
    }
}

static void oc_same_bytes(const char *name, const op_case *c, const char *what,
                          const unsigned char *a, const unsigned char *b, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i]) {
            float got, want;
            memcpy(&got, a + i / 4 * 4, 4);
            memcpy(&want, b + i / 4 * 4, 4);
            fail_msg("%s (%s) n %d: %s differ at byte %zu of %zu: as floats %.9g, not %.9g", name,
                     c->why, c->n, what, i, bytes, (double)got, (double)want);
        }
    }
}

static void oc_same(const char *name, const op_case *c, const op_result *got,
                    const op_result *want) {
    assert_int_equal(got->out_bytes, want->out_bytes);
    oc_same_bytes(name, c, "outputs", got->out, want->out, got->out_bytes);
    if (want->k != NULL) {
        oc_same_bytes(name, c, "K caches", got->k, want->k, got->cache_bytes);
        oc_same_bytes(name, c, "V caches", got->v, want->v, got->value_bytes);
    }
}

/* The kernel of a table by its name's end (".scalar") that accepts the node; NULL when none. */
static const gw_kernel *oc_find(const op_setup *s, const char *suffix) {
    size_t n;
    const gw_kernel *kernels = s->backend->kernels(s->device, &n);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(kernels[i].name), end = strlen(suffix);
        if (length >= end && strcmp(kernels[i].name + length - end, suffix) == 0 &&
            gw_kernel_takes(&kernels[i], &s->node, s->device)) {
            return &kernels[i];
        }
    }
    return NULL;
}

#endif
