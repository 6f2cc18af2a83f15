/* tests/hip_layer.h - a layer of products, norms and attention on the hip backend against the
 * scalar CPU: what its nodes leave to one another, and what its launches know of those behind them.
 */
#ifndef GW_TESTS_HIP_LAYER_H
#define GW_TESTS_HIP_LAYER_H

#include "op_table.h"

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "kernels_hip/linear/linear_params.h"
#include "kernels_hip/strip.h"

extern const gw_backend gw_backend_hip;

/* ---- forms ----------------------------------------------------------------------------------- */

/* The forms of what nodes leave to one another. */
static void find_forms(const gw_backend *backend, struct gw_segment *segment, const gw_node *nodes,
                       size_t n, int *form) {
    for (size_t k = 0; k < n; k++) {
        form[k] = GW_FORM_PLAIN;
    }
    if (backend == &gw_backend_hip) {
        segment->nodes = nodes;
        segment->n_nodes = n;
        for (size_t k = 0; k < n; k++) {
            form[k] = gw_hip_form(segment, nodes[k].out);
        }
        segment->nodes = NULL;
    }
}

/* An output between fences, whose blocks are in groups, as it would be without; the second numbers
 * are what their form says. */
static void make_plain(const gw_tensor *out, int form, unsigned char *bytes) {
    size_t blocks = oc_tensor_bytes(out) / sizeof(gw_act8);
    if (form == GW_FORM_FLOATS || form == GW_FORM_PLAIN) {
        return;
    }
    for (size_t at = 0; at < blocks; at += GW_ACT_GROUP) {
        uint32_t group[GW_ACT_GROUP_WORDS];
        unsigned char *to = bytes + OC_FENCE + at * sizeof(gw_act8);
        memcpy(group, to, sizeof group);
        for (size_t i = 0; i < GW_ACT_GROUP; i++, to += sizeof(gw_act8)) {
            const uint32_t poison = 0xffffffffu;
            gw_act8 block;
            memcpy(&block.scale, &group[i], 4);
            for (size_t word = 0; word < 8; word++) {
                memcpy(block.q + 4 * word, &group[8 + word % 4 * 8 + 2 * i + word / 4], 4);
            }
            memcpy(block.sum, &poison, 4);
            if (group[i] != poison || group[GW_ACT_GROUP + i] != poison) { /* a row that is alive */
                int sum[2] = {0};
                for (int k = 0; k < GW_ACT_BLOCK; k++) {
                    sum[k / 16] += block.q[k];
                }
                block.sum[0] = (gw_i16)sum[0];
                block.sum[1] = (gw_i16)sum[1];
                float scaled = block.scale * (float)(sum[0] + sum[1]);
                int less = (sum[0] + sum[1]) * (form == GW_FORM_LESS_8 ? -8 : -16);
                const void *second = form == GW_FORM_SUMS     ? (const void *)block.sum
                                     : form == GW_FORM_SCALED ? (const void *)&scaled
                                                              : (const void *)&less;
                assert_memory_equal(&group[GW_ACT_GROUP + i], second, 4);
            }
            memcpy(to, &block, sizeof block);
        }
    }
}

/* ---- ahead of the next launch ---------------------------------------------------------------- */

enum { LAYER = 7, LAYER_OUT = 1, LAYER_GLU = 3, LAYER_DOWN = 4 };
/* clang-format off */
static const op_case layer[LAYER] = {
    {.op = GW_OP_ATTENTION, .why = "in front", .n = 1, .heads = 20, .kv_heads = 20, .e = 128,
     .kv = GW_FMT_F16, .pos = 5, .slots = 1, .out = GW_FMT_ACT8},
    {.op = GW_OP_LINEAR, .why = "output", .n = 1, .k = 2560, .m = {64}, .fmt = {GW_FMT_Q4_0}, OC_DEC,
     .residual = 1},
    {.op = GW_OP_NORM, .why = "a norm", .n = 1, .k = 64, .out = GW_FMT_ACT8},
    {.op = GW_OP_GLU, .why = "gate and up", .n = 1, .k = 64, .m = {8192},
     .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0}, .out = GW_FMT_ACT8, OC_DEC},
    {.op = GW_OP_LINEAR, .why = "down", .n = 1, .k = 8192, .m = {64}, .fmt = {GW_FMT_Q4_0}, OC_DEC,
     .residual = 1},
    {.op = GW_OP_NORM, .why = "a norm", .n = 1, .k = 64, .out = GW_FMT_ACT8},
    {.op = GW_OP_LINEAR, .why = "q, k and v", .n = 1, .k = 64, .m = {96, 17, 16},
     .fmt = {GW_FMT_Q4_0, GW_FMT_Q4_0, GW_FMT_Q4_0}, OC_DEC},
};
/* clang-format on */

/* Of the two products whose rows are long. */
static gw_fmt long_fmt = GW_FMT_Q4_0;

/* Outputs of the nodes for `rows` rows; of the hip backend also the parameters of its products, and
 * in beside[LAYER] which of them have a kernel that leaves registers. */
static char beside[LAYER];
static void run_layer(int rows, const gw_backend *backend, struct gw_device *device, int rows_kept,
                      unsigned char *out[LAYER], size_t bytes[LAYER],
                      struct gw_linear_params *params) {
    op_setup s[LAYER];
    gw_node nodes[LAYER];
    struct gw_segment *segment;
    int form[LAYER];
    for (int k = 0; k < LAYER; k++) {
        op_case c = layer[k];
        c.n = rows;
        c.fmt[0] = k == LAYER_OUT || k == LAYER_DOWN ? long_fmt : c.fmt[0];
        oc_open(&s[k], &c, backend, device, rows_kept, !rows_kept);
        if (k > 0) {
            s[k].node.in[0] = nodes[k - 1].out;
        }
        nodes[k] = s[k].node;
        nodes[k].kernel = oc_find(&s[k], rows_kept ? ".scalar" : "");
        assert_non_null(nodes[k].kernel);
    }
    assert_int_equal(backend->freeze(device, nodes, LAYER, rows, &segment), GW_OK);
    find_forms(backend, segment, nodes, LAYER, form);
    for (size_t i = 0; params != NULL && i < segment->n; i++) {
        const gw_hip_launch *l = &segment->launches[i];
        if (nodes[l->node].op == GW_OP_LINEAR || nodes[l->node].op == GW_OP_GLU) {
            params[l->node] = *(const struct gw_linear_params *)l->params;
            beside[l->node] = strstr(l->kernel, "_beside") != NULL;
        }
    }
    assert_int_equal(backend->run(segment, &s[0].step), GW_OK);
    assert_int_equal(backend->wait(device), GW_OK);
    for (int k = 0; k < LAYER; k++) {
        bytes[k] = oc_tensor_bytes(s[k].node.out) + 2 * OC_FENCE;
        out[k] = oc_download(&s[k], s[k].node.out, 0, bytes[k]);
        make_plain(s[k].node.out, form[k], out[k]);
    }
    backend->segment_free(segment);
    for (int k = 0; k < LAYER; k++) {
        oc_close(&s[k]);
    }
}

/* All that `of` asks for ahead lies in the strips of a part of `next`. */
static void ahead_is_within(const struct gw_linear_params *of, const struct gw_linear_params *next,
                            int second_part) {
    const uint64_t strip = (uint64_t)of->ahead_step / 2;
    assert_true(of->ahead_blocks > 0 && of->ahead_bytes > 0);
    assert_true((uint64_t)of->ahead_bytes <= strip && of->ahead_bytes % 16 == 0);
    for (int i = 0; i < 2; i++) {
        const struct gw_linear_part *part = &next->part[i * second_part];
        uint64_t end = part->w + (uint64_t)part->rows / GW_STRIP_ROWS * strip;
        uint64_t last = of->ahead[i] + (uint64_t)(of->ahead_blocks - 1) * 2 * strip;
        assert_true(of->ahead[i] >= part->w && last + (uint64_t)of->ahead_bytes <= end);
    }
}

static void same_layer(const op_bench *bench, int rows, struct gw_linear_params *params) {
    unsigned char *want[LAYER], *got[LAYER];
    size_t bytes[LAYER];
    run_layer(rows, &gw_backend_cpu, bench->scalar, 1, want, bytes, NULL);
    run_layer(rows, &gw_backend_hip, bench->device, 0, got, bytes, params);
    for (int k = 0; k < LAYER; k++) {
        if (layer[k].op != GW_OP_NORM) { /* a norm between two products is nowhere */
            oc_same_bytes("a layer", &layer[k], "outputs", got[k], want[k], bytes[k]);
        }
        free(want[k]);
        free(got[k]);
    }
}

static void check_ahead(const op_bench *bench, int rows) {
    static struct gw_linear_params params[LAYER];
    memset(params, 0, sizeof params);
    same_layer(bench, rows, params);
    const int copies = bench->device->warp == 32;
    const int crowded = layer[0].heads > bench->device->units; /* of a card none is left over */
    for (int k = 0; k < LAYER; k++) {
        const int is_linear = layer[k].op == GW_OP_LINEAR || layer[k].op == GW_OP_GLU;
        assert_int_equal(params[k].paced, copies && rows == 1 && k == LAYER_OUT);
        assert_int_equal(is_linear && beside[k], copies && rows == 1 && k == LAYER_OUT && crowded);
        assert_int_equal(params[k].ahead_end, copies && k == LAYER_DOWN);
        assert_int_equal(params[k].ahead_blocks > 0, copies && (k == LAYER_OUT || k == LAYER_DOWN));
    }
    if (copies) {
        ahead_is_within(&params[LAYER_OUT], &params[LAYER_GLU], 1);
        ahead_is_within(&params[LAYER_DOWN], &params[LAYER - 1], 0);
    }
}

/* Rows in pieces ask ahead too, at their end; of one with so little memory that they are. */
static void check_pieces_ahead(const op_bench *bench) {
    static struct gw_linear_params params[LAYER];
    memset(params, 0, sizeof params);
    same_layer(bench, 8, params);
    if (bench->device->warp == 32 && bench->device->driver->emulated) {
        assert_true(params[LAYER_DOWN].span > 0 && params[LAYER_DOWN].ahead_end);
        ahead_is_within(&params[LAYER_DOWN], &params[LAYER - 1], 0);
    }
}

/* ---- rows that several read -------------------------------------------------------------------*/

enum { READERS = 4, READERS_WRITES = 2 };

/* Three products that read the same rows, which a norm writes anew in front of the last one. */
static void run_readers(const gw_backend *backend, struct gw_device *device, int keep_rows,
                        unsigned char *out[READERS], size_t bytes[READERS], int *grouped) {
    static const op_case product = {.op = GW_OP_LINEAR,
                                    .why = "reads rows again",
                                    .n = 2,
                                    .k = 256,
                                    .m = {48},
                                    .fmt = {GW_FMT_Q5_1},
                                    OC_DEC};
    static const op_case norm = {
        .op = GW_OP_NORM, .why = "writes them", .n = 2, .k = 256, .out = GW_FMT_ACT8};
    op_setup s[READERS];
    gw_node nodes[READERS];
    struct gw_segment *segment;
    for (int k = 0; k < READERS; k++) {
        oc_open(&s[k], k == READERS_WRITES ? &norm : &product, backend, device, keep_rows,
                !keep_rows);
        nodes[k] = s[k].node;
        nodes[k].kernel = oc_find(&s[k], keep_rows ? ".scalar" : "");
        assert_non_null(nodes[k].kernel);
        if (k == READERS_WRITES) {
            nodes[k].out = (gw_tensor *)(uintptr_t)nodes[0].in[0];
        } else {
            nodes[k].in[0] = nodes[0].in[0];
        }
    }
    assert_int_equal(backend->freeze(device, nodes, READERS, s[0].rows, &segment), GW_OK);
    for (size_t i = 0; grouped != NULL && i < segment->n; i++) {
        *grouped += strcmp(segment->launches[i].kernel, "gw_act8_group") == 0;
    }
    assert_int_equal(backend->run(segment, &s[0].step), GW_OK);
    assert_int_equal(backend->wait(device), GW_OK);
    for (int k = 0; k < READERS; k++) {
        bytes[k] = oc_tensor_bytes(s[k].node.out) + 2 * OC_FENCE;
        out[k] = oc_download(&s[k], s[k].node.out, 0, bytes[k]);
    }
    backend->segment_free(segment);
    for (int k = 0; k < READERS; k++) {
        oc_close(&s[k]);
    }
}

/* ---- behind the product in front ------------------------------------------------------------- */

/* q, k and v of some shapes on a card of 132 multiprocessors, two and four rows. */
static void blocks_stand_alone_or_share(void **state) {
    static const struct {
        unsigned items, grid, blocks;
        int alone;
    } cases[] = {
        {384, 132, 64, 1},  {384, 132, 128, 1}, /* 12 are free early: all wait anyway   */
        {192, 132, 64, 1},  {192, 132, 128, 0}, /* 72: one each do; two each            */
        {320, 132, 128, 0},                     /* 76: two each                         */
        {160, 132, 48, 1},  {160, 132, 96, 1},  /* 104                                  */
        {80, 80, 64, 0},    {80, 80, 128, 1},   /* 52 that it does not have             */
        {264, 132, 128, 1}, {0, 0, 128, 1},     /* none; not known                      */
        {320, 132, 133, 0}, {384, 132, 256, 0}, /* more than there are multiprocessors  */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(gw_hip_stand_alone(132, cases[i].items, cases[i].grid, cases[i].blocks),
                         cases[i].alone);
    }
}

#endif
