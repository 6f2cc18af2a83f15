/* tests/test_mpi.c - what ranks tell one another: nodes and steps come out as they went in, and
 * bytes that are cut off or changed are an error or other numbers, never a read beyond them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/mpi/mpi.h"

enum { PLACES = 3 };

/* Nothing looks into a buffer: its address is all that counts. */
static char buffers[PLACES];
static struct gw_buffer *place(int i) { return i > 0 ? (void *)&buffers[i] : NULL; }
static uint64_t number_of(const struct gw_buffer *b) {
    return (uint64_t)((const char *)(const void *)b - buffers);
}

typedef struct sample {
    gw_tensor x, w, y, z;
    gw_node node[2];
} sample;

/* A product and a norm of what it makes. */
static void fill(sample *s) {
    memset(s, 0, sizeof *s);
    s->x = (gw_tensor){.name = "x", .fmt = GW_FMT_ACT8, .n_dim = 2, .dim = {4, 64}};
    s->w = (gw_tensor){.name = "w", .fmt = GW_FMT_Q4_0, .layout = 7, .n_dim = 2, .dim = {96, 64}};
    s->y = (gw_tensor){.name = "y", .fmt = GW_FMT_F32, .n_dim = 2, .dim = {4, 96}};
    s->z = (gw_tensor){.name = NULL, .fmt = GW_FMT_F32, .n_dim = 2, .dim = {4, 96}};
    s->x.buf = place(1);
    s->w.buf = place(2);
    s->w.offset = 4096;
    s->y.buf = s->z.buf = place(1);
    s->node[0] = (gw_node){.op = GW_OP_LINEAR, .what = "product", .layer = -1, .out = &s->y};
    s->node[0].args.linear.order = GW_ORDER_PREFILL;
    s->node[0].in[0] = &s->x;
    s->node[0].w[0] = &s->w;
    s->node[1] = (gw_node){.op = GW_OP_NORM, .layer = 5, .out = &s->z};
    s->node[1].args.norm.eps = 0.5f;
    s->node[1].in[0] = &s->y;
}

static gw_status take(gw_wire *w, gw_wire_nodes *out) {
    struct gw_buffer *places[PLACES];
    for (int i = 0; i < PLACES; i++) {
        places[i] = place(i);
    }
    return gw_wire_take_nodes(w, places, PLACES, out);
}

static void test_nodes(void **state) {
    sample s;
    gw_wire w = {.at = NULL};
    gw_wire_nodes got;
    const int64_t kernels[] = {11, 12};
    (void)state;
    fill(&s);
    gw_wire_put_nodes(&w, s.node, 2, kernels, number_of);
    assert_int_equal(take(&w, &got), GW_OK);
    assert_int_equal(w.taken, w.n);
    const gw_node *a = &got.node[0], *b = &got.node[1];
    assert_int_equal(got.n, 2);
    assert_int_equal(got.n_tensors, 4);
    assert_ptr_equal(a->out, b->in[0]);
    assert_null(a->in[1]);
    assert_int_equal(got.kernel[1], 12);
    assert_int_equal(a->op, GW_OP_LINEAR);
    assert_int_equal(a->args.linear.order, GW_ORDER_PREFILL);
    assert_int_equal(a->layer, -1);
    assert_string_equal(a->what, "product");
    assert_string_equal(a->w[0]->name, "w");
    assert_int_equal(a->w[0]->layout, 7);
    assert_int_equal(a->w[0]->dim[0], 96);
    assert_int_equal(a->w[0]->offset, 4096);
    assert_ptr_equal(a->w[0]->buf, place(2));
    assert_true(b->args.norm.eps == 0.5f);
    gw_wire_nodes_free(&got);
    gw_wire_free(&w);
}

/* Nodes of two layers are one question where they differ in places alone. */
static void test_without_places(void **state) {
    sample s, t;
    gw_wire a = {.at = NULL}, b = {.at = NULL}, c = {.at = NULL};
    (void)state;
    fill(&s);
    fill(&t);
    t.w.buf = place(1);
    t.w.offset = 0;
    t.w.name = "another";
    gw_wire_put_nodes(&a, s.node, 1, NULL, NULL);
    gw_wire_put_nodes(&b, t.node, 1, NULL, NULL);
    t.w.layout = 8;
    gw_wire_put_nodes(&c, t.node, 1, NULL, NULL);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    assert_int_equal(a.n, c.n);
    assert_memory_not_equal(a.at, c.at, a.n);
    gw_wire_free(&a);
    gw_wire_free(&b);
    gw_wire_free(&c);
}

/* In memory of exactly their size, so that a sanitizer sees the first byte beyond. */
static gw_status take_copy(const unsigned char *bytes, size_t n) {
    gw_wire_nodes got;
    gw_wire w = {.at = malloc(n + (n == 0)), .n = n, .room = n};
    assert_non_null(w.at);
    memcpy(w.at, bytes, n);
    gw_status status = take(&w, &got);
    if (status == GW_OK) {
        gw_wire_nodes_free(&got);
    }
    gw_wire_free(&w);
    return status;
}

static void test_wrong_bytes(void **state) {
    sample s;
    gw_wire w = {.at = NULL};
    uint64_t random = 5;
    int errors = 0;
    (void)state;
    fill(&s);
    gw_wire_put_nodes(&w, s.node, 2, NULL, number_of);
    for (size_t n = 0; n < w.n; n++) {
        assert_int_equal(take_copy(w.at, n), GW_E_METADATA);
    }
    for (int i = 0; i < 4000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(random >> 33) % w.n;
        unsigned char before = w.at[at];
        w.at[at] ^= (unsigned char)(1 + (random >> 25) % 255);
        errors += take_copy(w.at, w.n) != GW_OK;
        w.at[at] = before;
    }
    assert_true(errors > 100);
    gw_wire_free(&w);
}

static void test_steps(void **state) {
    static gw_step step, got;
    gw_wire w = {.at = NULL};
    (void)state;
    step = (gw_step){.n = 2, .pick = 1, .n_pick = 3, .pos_max = 9};
    for (int i = 0; i < 3; i++) {
        step.token[i] = i + 1;
        step.less[i] = 10 * i;
    }
    gw_wire_put_step(&w, &step);
    for (size_t n = 0; n < w.n; n += 4) {
        gw_wire part = {.at = w.at, .n = n, .room = n};
        gw_wire_take_step(&part, &got);
        assert_true(part.failed);
    }
    gw_wire_take_step(&w, &got);
    assert_false(w.failed);
    assert_int_equal(got.n_pick, 3);
    assert_int_equal(got.pos_max, 9);
    assert_memory_equal(got.token, step.token, 3 * sizeof *got.token);
    assert_memory_equal(got.less, step.less, 3 * sizeof *got.less);
    gw_wire_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes), cmocka_unit_test(test_without_places),
        cmocka_unit_test(test_wrong_bytes), cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
