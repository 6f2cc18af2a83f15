/* tests/test_plan.c - the op table and the planner: checks, lifetimes, devices, refusals, replay.
 */
#include "tests/count_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cpu/cpu.h"
#include "core/plan/plan.h"
#include "core/tensor/sample.h"

static const gw_backend *find_backend(const char *name) {
    for (size_t i = 0; gw_backends[i] != NULL; i++) {
        if (strcmp(gw_backends[i]->name, name) == 0) {
            return gw_backends[i];
        }
    }
    fail_msg("no backend %s", name);
    return NULL;
}

static gw_plan_device open_device(const gw_backend *backend) {
    gw_device_options o = {.threads = 1};
    struct gw_device *d = NULL;
    assert_int_equal(backend->open(0, &o, &d), GW_OK);
    return (gw_plan_device){backend, d};
}

static gw_tensor shaped(gw_fmt fmt, int64_t rows, int64_t cols) {
    return (gw_tensor){.name = "t", .fmt = fmt, .n_dim = 2, .dim = {rows, cols}};
}

static gw_tensor vector(int64_t n) {
    return (gw_tensor){.name = "v", .fmt = GW_FMT_F32, .n_dim = 1, .dim = {n}};
}

/* A float tensor of n values on a device, v[i] = f(i). */
static void fill(const gw_plan_device *d, gw_tensor *t, size_t n, float scale) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        x[i] = scale * (float)((int)(i * 7919 % 23) - 11) / 11.0f;
    }
    assert_int_equal(d->backend->alloc(d->device, n * sizeof *x, &t->buf), GW_OK);
    assert_int_equal(d->backend->write(t->buf, 0, x, n * sizeof *x), GW_OK);
    t->offset = 0;
    free(x);
}

/* ---- the op table --------------------------------------------------------------------------- */

static void test_table_is_whole(void **state) {
    (void)state;
    for (int op = 0; op < GW_OP_COUNT; op++) {
        const gw_op_info *info = gw_op_describe((gw_op)op);
        assert_non_null(info->name);
        assert_non_null(info->check);
        assert_non_null(info->cost);
    }
}

/* Good nodes of every op over one set of tensors; each case breaks one thing. */
typedef struct bench {
    gw_tensor x, x8, y, y8, qkv, q, table, norm, head_norm, w, w2, wq, wk, bias, k, v, pages, rope,
        wide, choice, ids, route, half, wide8, one, taps, window, memory, logits, strength, gates,
        decays, area, unit, tokens, lora;
} bench;

static bench new_bench(void) {
    bench b = {
        .x = shaped(GW_FMT_F32, 4, 64),
        .x8 = shaped(GW_FMT_ACT8, 4, 64),
        .y = shaped(GW_FMT_F32, 4, 64),
        .y8 = shaped(GW_FMT_ACT8, 4, 64),
        .qkv = shaped(GW_FMT_F32, 4, 128),
        .q = shaped(GW_FMT_F32, 4, 64),
        .table = shaped(GW_FMT_F16, 100, 64),
        .norm = vector(64),
        .head_norm = vector(16),
        .w = shaped(GW_FMT_F16, 64, 64),
        .w2 = shaped(GW_FMT_F32, 64, 64),
        .wq = shaped(GW_FMT_Q4_0, 64, 64),
        .wk = shaped(GW_FMT_Q8_0, 64, 64),
        .bias = vector(64),
        .k = {.fmt = GW_FMT_F16, .n_dim = 4, .dim = {2, 2, 16, GW_PAGE}},
        .v = {.fmt = GW_FMT_F16, .n_dim = 4, .dim = {2, 2, GW_PAGE, 16}},
        .pages = {.fmt = GW_FMT_I32, .n_dim = 2, .dim = {1, 2}},
        .rope = {.fmt = GW_FMT_F32, .n_dim = 3, .dim = {128, 2, 8}},
        .wide = shaped(GW_FMT_F32, 4, 128),
        .choice = shaped(GW_FMT_I32, 4, GW_CHOICE_WORDS),
        .ids = shaped(GW_FMT_I32, 4, 1),
        .route = shaped(GW_FMT_F32, 4, 4),
        .half = shaped(GW_FMT_F32, 4, 32),
        .wide8 = shaped(GW_FMT_ACT8, 4, 128),
        .one = vector(1),
        .taps = vector(256),
        .window = {.fmt = GW_FMT_F32, .n_dim = 3, .dim = {2, 17, 192}},
        .memory = {.fmt = GW_FMT_F32, .n_dim = 3, .dim = {2, 17, 1024}},
        .logits = shaped(GW_FMT_F32, 4, 4),
        .strength = shaped(GW_FMT_F32, 4, 4),
        .gates = shaped(GW_FMT_F32, 4, 6),
        .decays = vector(4),
        .area = shaped(GW_FMT_F32, 2, 2304),
        .unit = shaped(GW_FMT_F32, 4, 1),
        .lora = shaped(GW_FMT_F32, 256, 16),
        .tokens = {.fmt = GW_FMT_F32, .n_dim = 3, .dim = {2, 17, 2}},
    };
    return b;
}

/* Of compressed caches and lists, of gates and widths, and what comes with them. */
static void listed_node_of(bench *b, gw_node *n) {
    const gw_area area = {.width = 32, .ratio = 4, .entry = 16};
    switch (n->op) {
    case GW_OP_HYPER: /* four streams, what goes in alone */
        n->in[0] = &b->route, n->w[0] = &b->one, n->w[1] = &b->decays, n->out = &b->logits;
        n->args.hyper = (gw_hyper_args){.streams = 4, .rounds = 1};
        break;
    case GW_OP_EXP_GATES:
        n->in[0] = &b->logits, n->in[1] = &b->tokens, n->out = &b->gates;
        break;
    case GW_OP_DIVIDE:
        n->in[1] = &b->logits, n->in[2] = &b->strength;
        break;
    case GW_OP_WIDEN: /* 64 heads, from one column to two */
        n->out = &b->wide, n->args.widen.heads = 64;
        break;
    case GW_OP_ROTATE:
        n->w[0] = &b->rope, n->args.rotate = (gw_rotate_args){.heads = 4, .rope_dim = 16};
        break;
    case GW_OP_GROUP_DOT:
        n->in[1] = &b->y, n->out = &b->logits, n->args.dot.groups = 4;
        break;
    case GW_OP_COMPRESS:
        n->in[0] = &b->half, n->in[1] = &b->area, n->in[2] = &b->pages, n->out = &b->unit;
        n->w[0] = &b->bias, n->w[1] = &b->head_norm, n->w[2] = &b->rope;
        n->args.compress = (gw_compress_args){.area = area, .series = 1, .rope_dim = 16};
        break;
    case GW_OP_CHOOSE:
        n->in[1] = &b->area, n->in[2] = &b->pages, n->in[3] = &b->logits, n->out = &b->route;
        n->args.choose = (gw_choose_args){.area = area, .heads = 4};
        break;
    case GW_OP_LISTED: /* blocks of four positions */
        n->in[1] = &b->k, n->in[2] = &b->v, n->in[3] = &b->pages, n->in[4] = &b->route;
        n->args.listed = (gw_listed_args){.area = area, .heads = 4, .kv_heads = 2, .head_dim = 16};
        break;
    case GW_OP_NGRAM: /* lengths 2 and 3 */
        n->in[0] = NULL, n->in[1] = &b->tokens, n->w[0] = &b->table, n->out = &b->wide;
        n->args.ngram = (gw_ngram_args){.size = 3, .heads = 1, .vocab = 50, .base = 5};
        break;
    default:
        break;
    }
}

static gw_node node_of(bench *b, gw_op op, int quantized) {
    gw_node n = {.op = op, .what = "unit", .layer = 3, .out = &b->y};
    const gw_tensor *x = quantized ? &b->x8 : &b->x;
    n.in[0] = &b->x;
    switch (op) {
    case GW_OP_EMBED:
        n.in[0] = NULL;
        n.w[0] = &b->table;
        break;
    case GW_OP_NORM:
        n.w[0] = &b->norm;
        n.out = quantized ? &b->y8 : &b->y;
        break;
    case GW_OP_QUANTIZE:
        n.out = &b->y8;
        break;
    case GW_OP_LINEAR:
        n.in[0] = x;
        n.w[0] = quantized ? &b->wq : &b->w;
        n.w[1] = quantized ? &b->wk : &b->w2;
        n.w[3] = &b->bias;
        n.out = &b->wide;
        break;
    case GW_OP_GLU:
        n.in[0] = x;
        n.w[0] = quantized ? &b->wq : &b->w;
        n.w[1] = quantized ? &b->wk : &b->w2;
        break;
    case GW_OP_ROPE_KV:
        n.in[0] = &b->qkv, n.in[1] = &b->k, n.in[2] = &b->v, n.in[3] = &b->pages;
        n.w[0] = &b->head_norm, n.w[2] = &b->rope, n.out = &b->q;
        n.args.rope = (gw_rope_args){.heads = 4, .kv_heads = 2, .head_dim = 16, .rope_dim = 16};
        break;
    case GW_OP_ATTENTION:
        n.in[1] = &b->k, n.in[2] = &b->v, n.in[3] = &b->pages, n.out = quantized ? &b->y8 : &b->y;
        n.args.attn = (gw_attn_args){.scale = 0.25f, .heads = 4, .kv_heads = 2, .head_dim = 16};
        break;
    case GW_OP_SAMPLE:
        n.in[1] = &b->choice, n.out = &b->ids;
        break;
    case GW_OP_ACT:
        n.in[0] = &b->wide, n.args.act.gated = 1;
        break;
    case GW_OP_MIX:
        n.in[1] = &b->route, n.in[2] = &b->x, n.w[0] = &b->one;
        break;
    case GW_OP_ROUTE:
        n.w[0] = &b->norm, n.out = &b->route, n.args.route.used = 2;
        break;
    case GW_OP_EXPERTS_GLU: /* two experts, each of them used: 32 rows each */
        n.in[0] = x, n.in[1] = &b->route;
        n.w[0] = quantized ? &b->wq : &b->w, n.w[1] = quantized ? &b->wk : &b->w2;
        n.w[2] = &b->bias;
        n.args.experts = (gw_experts_args){.experts = 2, .used = 2};
        break;
    case GW_OP_EXPERTS_DOWN: /* from 64 values each to 32 */
        n.in[0] = quantized ? &b->wide8 : &b->wide, n.in[1] = &b->route, n.in[2] = &b->half;
        n.w[0] = quantized ? &b->wq : &b->w, n.w[1] = &b->bias, n.out = &b->half;
        n.args.experts = (gw_experts_args){.experts = 2, .used = 2};
        break;
    case GW_OP_EXPERTS_LORA_A: /* two of two adapters of two experts, rank 16 */
        n.in[1] = n.in[2] = &b->route, n.w[0] = &b->w2;
        n.args.experts_lora =
            (gw_experts_lora_args){.experts = 2, .used = 2, .places = 2, .at_once = 2, .rank = 16};
        break;
    case GW_OP_EXPERTS_LORA_B: /* 64 columns of all experts, or 32 of each */
        n.in[1] = n.in[2] = &b->route, n.in[3] = &b->x, n.w[0] = &b->lora;
        n.args.experts_lora = (gw_experts_lora_args){.experts = 2,
                                                     .used = 2,
                                                     .places = quantized ? 4 : 2,
                                                     .at_once = 2,
                                                     .rank = 16,
                                                     .sum = !quantized};
        break;
    case GW_OP_CONV: /* four taps */
        n.in[1] = &b->window, n.w[0] = &b->taps, n.w[1] = &b->bias;
        n.args.conv = (gw_conv_args){.taps = 4, .act = GW_ACT_SILU};
        break;
    case GW_OP_SCAN: /* heads of 16 by 16, two groups of keys; quantized: of the other kind */
        n.in[0] = &b->qkv, n.in[1] = &b->memory, n.in[2] = &b->logits;
        n.in[3] = quantized ? NULL : &b->strength;
        n.w[0] = &b->decays, n.w[1] = &b->decays, n.w[2] = quantized ? &b->decays : NULL;
        n.args.scan = (gw_scan_args){.kind = quantized ? GW_SCAN_SSM : GW_SCAN_DELTA,
                                     .heads = 4,
                                     .groups = 2,
                                     .k_dim = 16,
                                     .v_dim = 16};
        break;
    case GW_OP_GROUP_NORM:
        n.in[1] = &b->y, n.w[0] = &b->head_norm, n.args.group_norm.groups = 4;
        break;
    case GW_OP_STREAMS: /* two of two */
        n.in[0] = &b->x, n.in[1] = &b->route, n.in[2] = &b->x;
        n.out = &b->y, n.args.streams = (gw_streams_args){.streams = 2, .inputs = 2};
        break;
    case GW_OP_SPARSE_GLU:
        n.in[0] = &b->wide, n.out = &b->y;
        break;
    case GW_OP_HEADS: /* two heads of 32: 64 results each from all of them */
        n.in[0] = &b->wide, n.w[0] = &b->w, n.args.heads.heads = 2;
        n.out = &b->y;
        break;
    case GW_OP_COLUMNS:
        n.in[0] = &b->half, n.in[1] = &b->half;
        break;
    case GW_OP_EXCHANGE: {
        int32_t width = (int32_t)b->y.dim[1], half = (int32_t)b->half.dim[1];
        n.in[0] = &b->half, n.in[1] = &b->x;
        n.args.exchange = (gw_exchange_args){.cards = 2, .parts = 1, .first = {0, half, width}};
        break;
    }
    default:
        listed_node_of(b, &n);
        break;
    }
    return n;
}

static void accepted(const gw_node *n) {
    if (gw_op_describe(n->op)->check(n) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    double bytes = -1.0, ops = -1.0;
    gw_op_describe(n->op)->cost(n, 3, 50, &bytes, &ops);
    assert_true(bytes > 0.0 && ops > 0.0);
}

static void refused(const gw_node *n) {
    gw_status status = gw_op_describe(n->op)->check(n);
    if (status != GW_E_METADATA) {
        fail_msg("a broken %s is accepted (%d)", gw_op_describe(n->op)->name, (int)status);
    }
    assert_non_null(strstr(gw_error_text(), "layer 3 unit"));
    assert_non_null(strstr(gw_error_text(), gw_op_describe(n->op)->name));
}

static void test_good_nodes(void **state) {
    (void)state;
    for (int op = 0; op < GW_OP_COUNT; op++) {
        for (int quantized = 0; quantized < 2; quantized++) {
            bench b = new_bench();
            gw_node n = node_of(&b, (gw_op)op, quantized);
            accepted(&n);
        }
    }
}

/* Operands that a node may lack, a bit each: inputs, then weights. */
static const unsigned may_miss[GW_OP_COUNT] = {
    [GW_OP_NORM] = 1u << GW_MAX_IN,
    [GW_OP_LINEAR] = 1u << (GW_MAX_IN + 1) | 1u << (GW_MAX_IN + 3),
    [GW_OP_ROPE_KV] = 1u << GW_MAX_IN,
    [GW_OP_MIX] = 1u << 1 | 1u << 2 | 1u << GW_MAX_IN,
    [GW_OP_ROUTE] = 1u << GW_MAX_IN,
    [GW_OP_EXPERTS_GLU] = 1u << (GW_MAX_IN + 1) | 1u << (GW_MAX_IN + 2),
    [GW_OP_EXPERTS_DOWN] = 1u << 2 | 1u << (GW_MAX_IN + 1),
    [GW_OP_CONV] = 1u << (GW_MAX_IN + 1),
    [GW_OP_SCAN] = 1u << (GW_MAX_IN + 1),
    [GW_OP_GROUP_NORM] = 1u << 1 | 1u << GW_MAX_IN,
    [GW_OP_STREAMS] = 1u << 1 | 1u << 2,
    [GW_OP_COMPRESS] = 1u << (GW_MAX_IN + 1),
    [GW_OP_CHOOSE] = 1u << 3,
    [GW_OP_EXCHANGE] = 1u << 1,
};

/* Every operand in turn is taken away, widened, shortened, or given a wrong format. */
static void test_broken_nodes(void **state) {
    (void)state;
    for (int op = 0; op < GW_OP_COUNT; op++) {
        for (int slot = 0; slot < GW_MAX_IN + GW_MAX_W + 1; slot++) {
            for (int quantized = 0; quantized < 2; quantized++) {
                bench b = new_bench();
                gw_node n = node_of(&b, (gw_op)op, quantized);
                const gw_tensor **place = slot < GW_MAX_IN ? &n.in[slot]
                                          : slot < GW_MAX_IN + GW_MAX_W
                                              ? &n.w[slot - GW_MAX_IN]
                                              : (const gw_tensor **)&n.out;
                if (*place == NULL) {
                    continue;
                }
                gw_tensor broken = **place;
                *place = &broken;
                int last = broken.n_dim - 1;
                /* any number of pages does, and of tokens */
                int any = (slot == 3 && op != GW_OP_SCAN && op != GW_OP_EXPERTS_LORA_B) ||
                          (op == GW_OP_SAMPLE && slot == 0) ||
                          ((op == GW_OP_HEADS || op == GW_OP_COLUMNS) && slot == 0) ||
                          ((op == GW_OP_COMPRESS || op == GW_OP_CHOOSE) && slot < 3 && slot > 0) ||
                          (op == GW_OP_LISTED && slot == 4) ||
                          (op == GW_OP_CHOOSE && slot == GW_MAX_IN + GW_MAX_W);
                broken.dim[last] += any ? 0 : 32;
                if (!any) {
                    refused(&n);
                    broken.dim[last] -= 32;
                }
                broken.n_dim--;
                refused(&n);
                broken.n_dim++;
                broken.fmt = broken.fmt == GW_FMT_I32 ? GW_FMT_F32 : GW_FMT_I32;
                refused(&n);
                *place = NULL;
                if ((may_miss[op] >> slot & 1) == 0) {
                    refused(&n);
                }
            }
        }
    }
}

static void test_mixed_weights(void **state) {
    (void)state;
    bench b = new_bench();
    gw_node n = node_of(&b, GW_OP_LINEAR, 1);
    n.w[1] = &b.w;
    refused(&n);
    n = node_of(&b, GW_OP_LINEAR, 0);
    n.in[0] = &b.x8; /* act8 for float weights */
    refused(&n);
    n = node_of(&b, GW_OP_LINEAR, 0);
    n.in[1] = &b.x; /* a residual of another width */
    refused(&n);
    n.in[1] = &b.wide; /* the output itself */
    accepted(&n);
    n = node_of(&b, GW_OP_ATTENTION, 0);
    n.args.attn.heads = 3;
    refused(&n);
    n = node_of(&b, GW_OP_ROPE_KV, 0);
    n.args.rope.rope_dim = 15;
    refused(&n);
}

/* A refusal names what is at fault. */
static void refused_for(const gw_node *n, const char *what) {
    refused(n);
    if (strstr(gw_error_text(), what) == NULL) {
        fail_msg("\"%s\" does not name %s", gw_error_text(), what);
    }
}

static void test_broken_widths(void **state) {
    (void)state;
    bench b = new_bench();
    gw_node n = node_of(&b, GW_OP_WIDEN, 0);
    n.args.widen.heads = 0;
    refused_for(&n, "the output");
    n.args.widen.heads = 3; /* 128 columns */
    refused_for(&n, "the output");
    n.args.widen.heads = 128; /* 64 columns become 128 */
    refused_for(&n, "the input");
    n = node_of(&b, GW_OP_WIDEN, 0);
    n.in[0] = &b.wide; /* as wide as before */
    refused_for(&n, "the input");
    n.out = &b.y; /* narrower */
    accepted(&n);
    n = node_of(&b, GW_OP_WIDEN, 0);
    n.in[1] = &b.x;
    refused_for(&n, "a further input");
    n = node_of(&b, GW_OP_WIDEN, 0);
    n.w[0] = &b.norm;
    refused_for(&n, "a weight");
}

static void test_broken_scans(void **state) {
    (void)state;
    bench b = new_bench();
    gw_node n = node_of(&b, GW_OP_SCAN, 1);
    n.args.scan.low = 0.5f;
    n.args.scan.high = 0.25f;
    refused_for(&n, "the limits of a step are 0.5 and 0.25");
    n.args.scan.high = NAN;
    refused_for(&n, "the limits of a step");
    n.args.scan.high = INFINITY;
    accepted(&n);
    n.w[2] = &b.bias;
    refused_for(&n, "D is f32 [64]");
    n = node_of(&b, GW_OP_SCAN, 0);
    n.w[1] = &b.bias;
    refused_for(&n, "the bias is f32 [64]");
    n = node_of(&b, GW_OP_SCAN, 0);
    n.in[3] = &b.x;
    refused_for(&n, "the write strength is f32 [4, 64]");
    n.args.scan.groups = 3;
    refused_for(&n, "heads and groups are 4 and 3");

    n = node_of(&b, GW_OP_SCAN, 0);
    gw_tensor all = shaped(GW_FMT_F32, 4, 4 * 64), decay = b.y, out = b.y;
    n.in[0] = &all, n.in[2] = &decay, n.in[3] = &b.x, n.out = &out;
    n.w[0] = n.w[1] = n.w[2] = NULL;
    n.args.scan = (gw_scan_args){
        .kind = GW_SCAN_WKV, .heads = 4, .groups = 4, .k_dim = 16, .v_dim = 16, .k_scale = 0.25f};
    accepted(&n);
    for (int i = 0; i < 3; i++) {
        n.w[i] = &b.decays;
        refused_for(&n, "a weight is f32 [4]");
        n.w[i] = NULL;
    }
    n.in[3] = &b.half;
    refused_for(&n, "what is taken back is f32 [4, 32]");
    n.in[2] = &b.half;
    refused_for(&n, "the decay is f32 [4, 32]");

    n = node_of(&b, GW_OP_SCAN, 0);
    n.in[3] = n.w[0] = n.w[1] = NULL;
    n.args.scan.kind = GW_SCAN_RETENTION;
    accepted(&n);
    n.w[1] = &b.decays;
    refused_for(&n, "a weight is f32 [4]");
    n.w[1] = NULL, n.in[2] = &b.half;
    refused_for(&n, "the decay is f32 [4, 32]");
    n.args.scan.by_channel = 1;
    refused_for(&n, "one a head");
}

/* 64 f16 rows of 64 and 64 f32 rows of 64, biases, 3 rows of 64 in and 128 out, all f32. */
static void test_cost(void **state) {
    (void)state;
    bench b = new_bench();
    double bytes, ops;
    gw_node n = node_of(&b, GW_OP_LINEAR, 0);
    gw_op_describe(n.op)->cost(&n, 3, 50, &bytes, &ops);
    assert_true(bytes == 64 * 64 * 2 + 64 * 64 * 4 + 64 * 4 + 3 * (64 + 128) * 4);
    assert_true(ops == 2.0 * 3 * 64 * 64 * 2);
    n = node_of(&b, GW_OP_ATTENTION, 0);
    gw_op_describe(n.op)->cost(&n, 2, 50, &bytes, &ops);
    assert_true(bytes == 2.0 * 50 * 2 * 16 * 2 + 2 * 2 * 64 * 4);
    assert_true(ops == 4.0 * (49 + 50) * 4 * 16);
    n.args.attn.window = 8;
    gw_op_describe(n.op)->cost(&n, 2, 50, &bytes, &ops);
    assert_true(ops == 4.0 * (8 + 8) * 4 * 16);
}

/* ---- a chain of layers ---------------------------------------------------------------------- */

enum { LINKS = 12, WIDTH = 48, ROWS = 5 };

/* x -> norm -> linear -> norm -> ... ; every second linear adds the value before its norm. */
typedef struct chain {
    gw_tensor first, last, between[LINKS], norm[2], w[2];
    gw_node nodes[LINKS];
} chain;

/* The values that fill() gives, as a weight that the device arranges as it likes. */
static gw_status link_rows(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    float *x = dst;
    (void)src;
    for (size_t i = 0; i < (size_t)n * WIDTH; i++) {
        x[i] = (float)((int)(((size_t)first * WIDTH + i) * 7919 % 23) - 11) / 11.0f;
    }
    return GW_OK;
}

/* device_of[i % 2]: where node i runs; its weights live there. */
static chain *new_chain(const gw_plan_device *devices, const int *device_of) {
    chain *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->first = shaped(GW_FMT_F32, ROWS, WIDTH);
    c->last = shaped(GW_FMT_F32, ROWS, WIDTH);
    fill(&devices[device_of[0]], &c->first, ROWS * WIDTH, 1.0f);
    fill(&devices[device_of[(LINKS - 1) % 2]], &c->last, ROWS * WIDTH, 0.0f);
    c->first.device = device_of[0];
    c->last.device = device_of[(LINKS - 1) % 2];
    for (int i = 0; i < LINKS; i++) {
        const gw_plan_device *d = &devices[device_of[i % 2]];
        c->between[i] = shaped(GW_FMT_F32, ROWS, WIDTH);
        gw_node *n = &c->nodes[i];
        n->device = device_of[i % 2];
        n->layer = i;
        n->in[0] = i == 0 ? &c->first : &c->between[i - 1];
        n->out = i == LINKS - 1 ? &c->last : &c->between[i];
        if (i < 2) {
            c->norm[i] = vector(WIDTH);
            fill(d, &c->norm[i], WIDTH, 2.0f);
            c->w[i] = shaped(GW_FMT_F32, WIDTH, WIDTH);
            const gw_weight_source source = {.rows = link_rows};
            assert_int_equal(d->backend->load_weight(d->device, &c->w[i], &source), GW_OK);
            c->norm[i].device = c->w[i].device = device_of[i];
        }
        if (i % 2 == 0) {
            n->op = GW_OP_NORM;
            n->what = "norm";
            n->w[0] = &c->norm[0];
            n->args.norm.eps = 1e-5f;
        } else {
            n->op = GW_OP_LINEAR;
            n->what = "link";
            n->w[0] = &c->w[1];
            n->in[1] = i >= 3 ? &c->between[i - 2] : NULL;
        }
    }
    return c;
}

static void free_chain(chain *c, const gw_plan_device *devices, const int *device_of) {
    devices[device_of[0]].backend->release(c->first.buf);
    devices[device_of[(LINKS - 1) % 2]].backend->release(c->last.buf);
    for (int i = 0; i < 2; i++) {
        devices[device_of[i]].backend->release(c->norm[i].buf);
        devices[device_of[i]].backend->release(c->w[i].buf);
    }
    free(c);
}

static void run_chain(const gw_plan_device *devices, int n_devices, const int *device_of, int rows,
                      float *out) {
    chain *c = new_chain(devices, device_of);
    gw_arena_set *arenas = NULL;
    gw_plan *plan = NULL;
    assert_int_equal(gw_arena_set_new(devices, n_devices, &arenas), GW_OK);
    if (gw_plan_build(c->nodes, LINKS, devices, n_devices, ROWS, arenas, &plan) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    assert_int_equal(gw_plan_size(plan), LINKS);
    gw_step *step = calloc(1, sizeof *step);
    assert_non_null(step);
    step->n = rows;
    step->n_pick = rows;
    for (int turn = 0; turn < 2; turn++) { /* a replay gives the same */
        size_t before = atomic_load(&allocations);
        assert_int_equal(gw_plan_run(plan, step), GW_OK);
        float again[ROWS * WIDTH];
        const gw_backend *b = devices[device_of[(LINKS - 1) % 2]].backend;
        int seen = devices[device_of[0]].backend->host(c->w[0].buf) != NULL &&
                   devices[device_of[1]].backend->host(c->w[1].buf) != NULL;
        /* the first pass may start the device's threads; a driver may do as it likes */
        assert_true(turn == 0 || !seen || atomic_load(&allocations) == before);
        assert_int_equal(b->read(c->last.buf, 0, again, sizeof again), GW_OK);
        assert_true(turn == 0 || memcmp(again, out, sizeof again) == 0);
        memcpy(out, again, sizeof again);
    }
    free(step);
    gw_plan_free(plan);
    gw_arena_set_free(arenas);
    free_chain(c, devices, device_of);
}

/* The same chain by hand, in double precision, over fresh arrays: no placement can be wrong here.
 */
static void chain_by_hand(double *x) {
    static double value[LINKS + 1][ROWS * WIDTH];
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        value[0][i] = (double)((int)(i * 7919 % 23) - 11) / 11.0;
    }
    for (int i = 0; i < LINKS; i++) {
        for (int r = 0; r < ROWS; r++) {
            const double *in = value[i] + r * WIDTH;
            double sum = 0.0;
            for (int k = 0; k < WIDTH; k++) {
                sum += in[k] * in[k];
            }
            for (int k = 0; k < WIDTH; k++) {
                double y = in[k] / sqrt(sum / WIDTH + 1e-5) *
                           (2.0 * ((int)((size_t)k * 7919 % 23) - 11) / 11.0);
                if (i % 2 == 1) {
                    y = i >= 3 ? value[i - 1][r * WIDTH + k] : 0.0;
                    for (int j = 0; j < WIDTH; j++) {
                        size_t at = (size_t)(k * WIDTH + j);
                        y += in[j] * ((int)(at * 7919 % 23) - 11) / 11.0;
                    }
                }
                value[i + 1][r * WIDTH + k] = y;
            }
        }
    }
    memcpy(x, value[LINKS], sizeof value[LINKS]);
}

static void check_close(const float *got, const double *want) {
    double diff = 0.0, norm = 0.0;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        diff += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    assert_true(norm > 0.0 && sqrt(diff / norm) < 1e-4);
}

static void test_chain(void **state) {
    (void)state;
    double want[ROWS * WIDTH];
    chain_by_hand(want);
    static const int all_first[2] = {0, 0}, split[2] = {0, 1}, split_back[2] = {1, 0};
    for (size_t i = 0; gw_backends[i] != NULL; i++) {
        if (gw_backends[i]->device_count() < 1) {
            continue;
        }
        gw_plan_device d[2] = {open_device(gw_backends[i]), open_device(find_backend("ref"))};
        float one[ROWS * WIDTH], two[ROWS * WIDTH], back[ROWS * WIDTH];
        run_chain(d, 1, all_first, ROWS, one);
        check_close(one, want);
        run_chain(d, 2, split, ROWS, two); /* every input and residual crosses or stays */
        check_close(two, want);
        run_chain(d, 2, split_back, ROWS, back);
        check_close(back, want);
        if (gw_backends[i] == d[1].backend) { /* two devices of one kind: the same bits */
            assert_memory_equal(one, two, sizeof one);
            assert_memory_equal(one, back, sizeof one);
        }
        d[0].backend->close(d[0].device);
        d[1].backend->close(d[1].device);
    }
}

/* Rows of a shorter pass equal those of the full one, and the others are left alone. */
static void test_fewer_rows(void **state) {
    (void)state;
    static const int device_of[2] = {0, 0};
    gw_plan_device d = open_device(find_backend("ref"));
    float all[ROWS * WIDTH], some[ROWS * WIDTH];
    run_chain(&d, 1, device_of, ROWS, all);
    run_chain(&d, 1, device_of, 2, some);
    assert_memory_equal(all, some, 2 * WIDTH * sizeof(float));
    for (int i = 2 * WIDTH; i < ROWS * WIDTH; i++) {
        assert_true(some[i] == 0.0f);
    }
    d.backend->close(d.device);
}

/* Values that live at once do not overlap, and a chain needs no more than it must. */
static void test_placement(void **state) {
    (void)state;
    static const int device_of[2] = {0, 0};
    gw_plan_device d = open_device(find_backend("ref"));
    chain *c = new_chain(&d, device_of);
    gw_arena_set *arenas = NULL;
    gw_plan *plan = NULL;
    assert_int_equal(gw_arena_set_new(&d, 1, &arenas), GW_OK);
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS, arenas, &plan), GW_OK);
    size_t bytes = ROWS * WIDTH * sizeof(float), top = 0;
    for (int i = 0; i < LINKS - 1; i++) {
        const gw_tensor *a = &c->between[i];
        top = a->offset + bytes > top ? a->offset + bytes : top;
        assert_ptr_equal(a->buf, c->between[0].buf);
        for (int j = i + 1; j <= i + 3 && j < LINKS - 1; j++) {
            /* i is read by node i + 1, and as a residual (odd i) by node i + 2; it stays for a node
             * more */
            int meets = j <= i + 2 || i % 2 == 1;
            const gw_tensor *b = &c->between[j];
            int apart = a->offset + bytes <= b->offset || b->offset + bytes <= a->offset;
            assert_true(!meets || apart);
        }
    }
    assert_true(top <= 4 * (bytes + 256)); /* 4 values live at once */
    /* A second plan shares the arena. */
    gw_plan *second = NULL;
    chain *e = new_chain(&d, device_of);
    assert_int_equal(gw_plan_build(e->nodes, LINKS, &d, 1, ROWS, arenas, &second), GW_OK);
    assert_ptr_equal(e->between[0].buf, c->between[0].buf);
    gw_plan_free(second);
    gw_plan_free(plan);
    gw_arena_set_free(arenas);
    free_chain(c, &d, device_of);
    free_chain(e, &d, device_of);
    d.backend->close(d.device);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static int never(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device) {
    (void)kernel, (void)node, (void)device;
    return 0;
}

static const gw_kernel picky_kernels[] = {
    {GW_OP_NORM, "picky.norm.wide", never, NULL, NULL, 0},
    {GW_OP_LINEAR, "picky.linear.fast", never, NULL, NULL, 0},
    {GW_OP_NORM, "picky.norm.narrow", never, NULL, NULL, 0},
};

static const gw_kernel *list_picky(const struct gw_device *device, size_t *count) {
    (void)device;
    *count = sizeof picky_kernels / sizeof picky_kernels[0];
    return picky_kernels;
}

static gw_status freeze_fails(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                              struct gw_segment **out) {
    (void)device, (void)nodes, (void)n, (void)rows, (void)out;
    return gw_fail(GW_E_DEVICE, "broken", "freezing failed");
}

static void check_refusal(const gw_backend *backend, gw_status want, const char *first,
                          const char *second) {
    static const int device_of[2] = {0, 0};
    gw_plan_device real = open_device(find_backend("ref")), d = {backend, real.device};
    chain *c = new_chain(&real, device_of);
    gw_arena_set *arenas = NULL;
    gw_plan *plan = NULL;
    assert_int_equal(gw_arena_set_new(&d, 1, &arenas), GW_OK);
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS, arenas, &plan), want);
    assert_null(plan);
    assert_non_null(strstr(gw_error_text(), first));
    assert_non_null(strstr(gw_error_text(), second));
    assert_null(strstr(gw_error_text(), "linear.fast")); /* another op's kernel */
    for (int i = 0; i < LINKS - 1; i++) {
        assert_null(c->between[i].buf); /* as they were */
    }
    assert_non_null(c->first.buf);
    gw_arena_set_free(arenas);
    free_chain(c, &real, device_of);
    real.backend->close(real.device);
}

static void test_refusals(void **state) {
    (void)state;
    gw_backend picky = *find_backend("ref"), broken = picky;
    picky.name = "picky";
    picky.kernels = list_picky;
    check_refusal(&picky, GW_E_UNSUPPORTED, "picky.norm.wide, picky.norm.narrow", "layer 0 norm");
    broken.freeze = freeze_fails;
    check_refusal(&broken, GW_E_DEVICE, "broken", "freezing failed");
}

static void test_bad_plans(void **state) {
    (void)state;
    static const int device_of[2] = {0, 0};
    gw_plan_device d = open_device(find_backend("ref"));
    chain *c = new_chain(&d, device_of);
    gw_arena_set *arenas = NULL;
    gw_plan *plan = NULL;
    assert_int_equal(gw_arena_set_new(&d, 0, &arenas), GW_E_ARGUMENT);
    assert_int_equal(gw_arena_set_new(&d, 1, &arenas), GW_OK);
    assert_int_equal(gw_plan_build(c->nodes, 0, &d, 1, ROWS, arenas, &plan), GW_E_ARGUMENT);
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, 0, arenas, &plan), GW_E_ARGUMENT);
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 2, ROWS, arenas, &plan), GW_E_ARGUMENT);
    /* more live rows than the activations hold */
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS + 1, arenas, &plan), GW_E_METADATA);
    c->nodes[4].device = 1;
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS, arenas, &plan), GW_E_ARGUMENT);
    c->nodes[4].device = 0;
    c->nodes[5].op = GW_OP_COUNT;
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS, arenas, &plan), GW_E_ARGUMENT);
    c->nodes[5].op = GW_OP_LINEAR;
    c->between[5].dim[1]++;
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS, arenas, &plan), GW_E_METADATA);
    assert_non_null(strstr(gw_error_text(), "layer 5 link"));
    assert_null(plan);
    gw_arena_set_free(arenas);
    free_chain(c, &d, device_of);
    d.backend->close(d.device);
}

static void test_profile(void **state) {
    (void)state;
    static const int device_of[2] = {0, 0};
    gw_plan_device d = open_device(gw_backends[0]);
    gw_step *step = calloc(1, sizeof *step);
    assert_non_null(step);
    step->n = step->n_pick = ROWS;
    chain *c = new_chain(&d, device_of);
    gw_arena_set *arenas = NULL;
    gw_plan *plan = NULL;
    assert_int_equal(gw_arena_set_new(&d, 1, &arenas), GW_OK);
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS, arenas, &plan), GW_OK);
    assert_int_equal(gw_plan_run(plan, step), GW_OK);
    gw_plan_profile(plan, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gw_plan_run(plan, step), GW_OK);
    }
    for (size_t i = 0; i < LINKS; i++) {
        assert_int_equal(gw_plan_time(plan, i).calls, 3);
        assert_true(gw_plan_time(plan, i).seconds > 0.0);
        assert_non_null(gw_plan_node(plan, i)->kernel);
    }
    gw_plan_profile(plan, 0);
    assert_int_equal(gw_plan_run(plan, step), GW_OK);
    assert_int_equal(gw_plan_time(plan, 0).calls, 0);
    gw_plan_free(plan);
    gw_arena_set_free(arenas);
    free_chain(c, &d, device_of);
    free(step);
    d.backend->close(d.device);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static gw_status (*real_freeze)(struct gw_device *, const gw_node *, size_t, int,
                                struct gw_segment **);
static int freezes_left;

static gw_status freeze_few(struct gw_device *device, const gw_node *nodes, size_t n, int rows,
                            struct gw_segment **out) {
    if (freezes_left-- <= 0) {
        return gw_fail(GW_E_DEVICE, "broken", "freezing failed");
    }
    return real_freeze(device, nodes, n, rows, out);
}

static void count_pause(void *user) { ++*(int *)user; }

/* A plan that cannot be cut otherwise goes on with the parts and the callback that it had. */
static void test_pause_survives_errors(void **state) {
    (void)state;
    static const int device_of[2] = {0, 0};
    gw_backend limited = *find_backend("ref");
    gw_plan_device d = open_device(find_backend("ref"));
    int pauses = 0, others = 0;
    chain *c = new_chain(&d, device_of);
    gw_step *step = calloc(1, sizeof *step);
    assert_non_null(step);
    step->n = step->n_pick = 1;
    real_freeze = limited.freeze;
    limited.freeze = freeze_few;
    d.backend = &limited;
    gw_arena_set *arenas = NULL;
    gw_plan *plan = NULL;
    freezes_left = 4; /* whole, in three parts, and no more */
    assert_int_equal(gw_arena_set_new(&d, 1, &arenas), GW_OK);
    assert_int_equal(gw_plan_build(c->nodes, LINKS, &d, 1, ROWS, arenas, &plan), GW_OK);
    assert_int_equal(gw_plan_pause(plan, 0, 3, count_pause, &pauses), GW_OK);
    assert_int_equal(gw_plan_pause(plan, 0, 2, count_pause, &others), GW_E_DEVICE);
    assert_int_equal(gw_plan_run(plan, step), GW_OK);
    assert_int_equal(pauses, 2);
    assert_int_equal(others, 0);
    gw_plan_free(plan);
    gw_arena_set_free(arenas);
    free_chain(c, &d, device_of);
    free(step);
    d.backend->close(d.device);
}

/* ---- launches ------------------------------------------------------------------------------- */

static int appended;

static gw_status append_many(struct gw_segment *segment, const gw_kernel *kernel,
                             const gw_node *node) {
    for (int i = 0; i < appended; i++) {
        gw_cpu_append(segment, kernel, node);
    }
    return GW_OK;
}

/* A kernel of the CPU that appends more launches than a node has room for is refused. */
static void test_too_many_launches(void **state) {
    (void)state;
    gw_plan_device d = open_device(find_backend("cpu"));
    gw_tensor in = shaped(GW_FMT_F32, ROWS, WIDTH), out = in, norm = vector(WIDTH);
    gw_node node = {.op = GW_OP_NORM, .what = "norm", .in = {&in}, .out = &out, .w = {&norm}};
    fill(&d, &in, ROWS * WIDTH, 1.0f);
    fill(&d, &out, ROWS * WIDTH, 1.0f);
    fill(&d, &norm, WIDTH, 1.0f);
    gw_kernel kernel = *gw_plan_kernel(&d, &node);
    kernel.record = append_many;
    node.kernel = &kernel;
    for (appended = 1; appended < 7; appended++) {
        struct gw_segment *segment = NULL;
        gw_status status = d.backend->freeze(d.device, &node, 1, ROWS, &segment);
        assert_int_equal(status, appended <= 4 ? GW_OK : GW_E_OVERFLOW);
        d.backend->segment_free(segment);
    }
    d.backend->release(in.buf);
    d.backend->release(out.buf);
    d.backend->release(norm.buf);
    d.backend->close(d.device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_whole),
        cmocka_unit_test(test_good_nodes),
        cmocka_unit_test(test_broken_nodes),
        cmocka_unit_test(test_mixed_weights),
        cmocka_unit_test(test_broken_scans),
        cmocka_unit_test(test_broken_widths),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_fewer_rows),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bad_plans),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_pause_survives_errors),
        cmocka_unit_test(test_too_many_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
