/* tests/test_spec.c - family specs: lookup, reading, and an error with a line for every mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/model/spec.h"

static void test_find(void **state) {
    (void)state;
    assert_string_equal(gw_spec_family(gw_spec_of("llama+experts")), "mixtral");
    static const struct {
        const char *architecture, *family;
    } cases[] = {
        {"llama", "llama"},
        {"LlamaForCausalLM", "llama"},
        {"MistralForCausalLM", "mistral"},
        {"qwen2", "qwen2"},
        {"Qwen2ForCausalLM", "qwen2"},
        {"qwen3", "qwen3"},
        {"Qwen3ForCausalLM", "qwen3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const gw_spec *spec = NULL;
        assert_int_equal(gw_spec_find("test", cases[i].architecture, &spec), GW_OK);
        assert_string_equal(gw_spec_family(spec), cases[i].family);
    }
    const gw_spec *untouched = NULL;
    static const char *const unknown[] = {"frobnicate", "",       "interleaved",
                                          "llam",       "llama2", "embed"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(gw_spec_find("model.gguf", unknown[i], &untouched), GW_E_METADATA);
        assert_null(untouched);
        assert_non_null(strstr(gw_error_text(), "inspect --families"));
        assert_non_null(strstr(gw_error_text(), "model.gguf"));
    }
}

/* On the heap: a blueprint is large. */
static gw_blueprint *read_or_fail(const char *name, const char *text) {
    gw_blueprint *bp = malloc(sizeof *bp);
    assert_non_null(bp);
    if (gw_blueprint_read(name, text, bp) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return bp;
}

static void test_every_spec_reads(void **state) {
    (void)state;
    size_t n = 0;
    for (; gw_spec_at(n) != NULL; n++) {
        const gw_spec *spec = gw_spec_at(n);
        gw_blueprint *bp = read_or_fail(gw_spec_family(spec), gw_spec_text(spec));
        assert_string_equal(bp->family, gw_spec_family(spec)); /* file name and family line agree */
        int sees = strstr(gw_spec_family(spec), "-vision") != NULL; /* begins with patches */
        assert_int_equal(bp->block[0].kind, sees ? GW_BLOCK_LINEAR : GW_BLOCK_EMBED);
        free(bp);
    }
    assert_true(n >= 4);
}

static int role_of(const gw_blueprint *bp, const char *role) {
    for (int i = 0; i < bp->n_weights; i++) {
        if (strcmp(bp->weight[i].role, role) == 0) {
            return i;
        }
    }
    fail_msg("no weight %s", role);
    return -1;
}

static int number_of(const gw_blueprint *bp, const char *name) {
    for (int i = 0; i < bp->n_numbers; i++) {
        if (strcmp(bp->number[i].name, name) == 0) {
            return i;
        }
    }
    fail_msg("no number %s", name);
    return -1;
}

/* What is inherited, what is replaced, and shapes out of numbers. */
static void test_reading(void **state) {
    (void)state;
    const gw_spec *spec = NULL;
    assert_int_equal(gw_spec_find("test", "qwen2", &spec), GW_OK);
    gw_blueprint *bp = read_or_fail("qwen2", gw_spec_text(spec));
    int q_bias = role_of(bp, "q_bias"), out = role_of(bp, "out"), blocks = 0;
    assert_int_equal(bp->weight[q_bias].n_dim, 1);
    assert_int_equal(bp->weight[q_bias].per_layer, 1);
    assert_int_equal(bp->weight[q_bias].optional, 0);
    assert_string_equal(bp->weight[q_bias].gguf[0].name, "blk.%d.attn_q.bias");
    assert_string_equal(bp->weight[bp->weight[out].fallback].role, "embed");
    double values[GW_SPEC_NUMBERS] = {0};
    gw_layer layer = {0};
    const gw_hparams hp = {
        .n_layers = 1, .layer = &layer, .values = values, .n_values = bp->n_numbers};
    values[number_of(bp, "heads")] = 6;
    values[number_of(bp, "d_head")] = 16;
    values[number_of(bp, "d_model")] = 80;
    values[number_of(bp, "vocab")] = 99;
    const gw_spec_weight *w = &bp->weight[q_bias];
    int64_t extent[3];
    assert_int_equal(gw_spec_extent(bp, &hp, 0, w, w->dim[0], &extent[0]), GW_OK);
    w = &bp->weight[out];
    assert_int_equal(gw_spec_extent(bp, &hp, 0, w, w->dim[0], &extent[1]), GW_OK);
    assert_int_equal(gw_spec_extent(bp, &hp, 0, w, w->dim[1], &extent[2]), GW_OK);
    assert_int_equal(extent[0], 96);
    assert_int_equal(extent[1], 99);
    assert_int_equal(extent[2], 80);
    values[number_of(bp, "vocab")] = 0;
    assert_int_equal(gw_spec_extent(bp, &hp, 0, w, w->dim[0], &extent[1]), GW_E_METADATA);
    for (int i = 0; i < bp->n_blocks; i++) {
        blocks += bp->block[i].section == GW_SECTION_LAYER;
        if (bp->block[i].kind == GW_BLOCK_QKV) {
            assert_int_equal(bp->block[i].weight[3], q_bias);
        }
    }
    assert_int_equal(blocks, 8); /* its own layer in place of the inherited one */
    assert_int_equal(bp->block[bp->n_blocks - 1].section, GW_SECTION_SCORE);
    free(bp);
}

/* ---- expressions ---------------------------------------------------------------------------- */

static gw_expr_name no_names(const void *user, const char *name, size_t n) {
    (void)user;
    return n == 1 && *name == 'x' ? (gw_expr_name){.kind = GW_NAME_CONSTANT, .constant = 7}
                                  : (gw_expr_name){.kind = GW_NAME_UNKNOWN};
}

static void test_expressions(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double want;
    } cases[] = {{"1+2*3", 7},
                 {"(1+2)*3", 9},
                 {"x%4", 3},
                 {"10-2-3", 5},
                 {"2*x==14 ? 3 : 4", 3},
                 {"0 ? 1 : 0 ? 2 : 5", 5},
                 {"1 && 0 || 1", 1},
                 {"!x || 3", 1},
                 {"x>=7 && x<8", 1},
                 {"x!=7", 0},
                 {"-x+1", -6},
                 {"sqrt(16)+floor(1.9)", 5},
                 {"max(1,min(x,3))", 3},
                 {"l", 2},
                 {"7/2", 3.5},
                 {"1e3*2", 2000},
                 {"x>7", 0},
                 {"0 && x/0", 0}};
    gw_expr_pool *pool = calloc(1, sizeof *pool);
    const gw_expr_scope scope = {.layer = 2};
    const char *why = NULL;
    assert_non_null(pool);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_expr e;
        double got = -1e9;
        if (gw_expr_read(pool, cases[i].text, strlen(cases[i].text), no_names, NULL, 0, 0, &e,
                         &why) != GW_OK) {
            fail_msg("%s: %s", cases[i].text, why);
        }
        assert_int_equal(gw_expr_evaluate(pool, e, &scope, &got), GW_OK);
        if (!(got == cases[i].want)) {
            fail_msg("%s is %g, not %g", cases[i].text, got, cases[i].want);
        }
    }
    static const char *const wrong[] = {
        "",       "1+",       "y",      "(1",
        "1 2",    "p",        "1 ? 2",  "max(1)",
        "sin(1)", "given(x)", "1..2",   "*1",
        "a b",    "1 ? : 2",  "sqrt()", "((((((((((((((((1))))))))))))))))"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gw_expr e;
        if (gw_expr_read(pool, wrong[i], strlen(wrong[i]), no_names, NULL, 0, 0, &e, &why) !=
            GW_E_SYNTAX) {
            fail_msg("%s was read", wrong[i]);
        }
    }
    free(pool);
}

/* ---- mistakes ------------------------------------------------------------------------------- */

#define HEAD "family x\nlike llama\n"
#define LAYER "layer\nnorm attn_norm -> h\nqkv q k v from h\nrope_kv\nattention\nresidual o\n"

static void test_mistakes(void **state) {
    (void)state;
    static const struct {
        const char *text, *line, *says;
    } cases[] = {
        {"", "x.spec:0", "family"},
        {"family x\n", "x.spec:1", "embed"},
        {"family x\nbogus line\n", "x.spec:2", "bogus"},
        {"family\n", "x.spec:1", "family"},
        {"family a-name-that-is-much-too-long-for-the-field\n", "x.spec:1", "longer"},
        {"family x\nlike y\n", "x.spec:2", "'y'"},
        {HEAD "rope plain dim 8\n", "x.spec:3", "base"},
        {HEAD "rope plain dim 8 base 1 hf sideways\n", "x.spec:3", "sideways"},
        {HEAD "rope a dim 8\nrope b dim 8\nrope c dim 8\nrope d dim 8\n", "x.spec:6", "more than"},
        {HEAD "factor a\n", "x.spec:3", "position"},
        {HEAD "factor a p+\n", "x.spec:3", "expected"},
        {HEAD "number\n", "x.spec:3", "name"},
        {HEAD "number a hf x = p\n", "x.spec:3", "position"},
        {HEAD "number a = nowhere\n", "x.spec:3", "not known"},
        {HEAD "number a\nnumber a\n", "x.spec:4", "twice"},
        {HEAD "number a perhaps\n", "x.spec:3", "perhaps"},
        {HEAD "number a hf 1 2 3 4 5\n", "x.spec:3", "more than"},
        {HEAD "word a words 1 2 3 4 5 6 7 8 9\n", "x.spec:3", "more than"},
        {HEAD "weight q\n", "x.spec:3", "needs a role"},
        {HEAD "weight w zebra a b\n", "x.spec:3", "zebra"},
        {HEAD "weight w ff* a b\n", "x.spec:3", "expected"},
        {HEAD "weight w ff,ff,ff,ff a b\n", "x.spec:3", "one to three"},
        {HEAD "weight w ff a.%d b\n", "x.spec:3", "every name"},
        {HEAD "weight w ff a.%d.%d b.%d\n", "x.spec:3", "every name"},
        {HEAD "weight w ff a.%s b.%s\n", "x.spec:3", "every name"},
        {HEAD "weight w ff a b maybe\n", "x.spec:3", "maybe"},
        {HEAD "weight w ff a b else p\n", "x.spec:3", "'p'"},
        {HEAD "weight w ff a b\nweight w ff a b\n", "x.spec:4", "twice"},
        {HEAD "stored w hf a\n", "x.spec:3", "declared"},
        {HEAD "stored q hf layers.%d.a cut 1 2\n", "x.spec:3", "cut"},
        {HEAD "stored q hf layers.%d.a times\n", "x.spec:3", "times"},
        {HEAD "head\nlayer\n", "x.spec:4", "order"},
        {HEAD "layer a\nlayer a\n", "x.spec:4", "twice"},
        {HEAD "norm attn_norm\n", "x.spec:3", "may not stand"},
        {HEAD "start\nembed\n", "x.spec:4", "takes 1"},
        {HEAD "start\nembed zz\n", "x.spec:4", "'zz'"},
        {HEAD "start\nembed q\n", "x.spec:4", "per layer"},
        {HEAD "start\nlayer\n", "x.spec:4", "embed"},
        {HEAD "layer\n", "x.spec", "no blocks"},
        {HEAD "layer\nnorm attn_norm attn_norm\n", "x.spec:4", "attn_norm"},
        {HEAD "layer\nnorm attn_norm -> h\nqkv q k v from g\n", "x.spec:5", "'g'"},
        {HEAD "layer\nqkv q k v\n", "x.spec:4", "there is none"},
        {HEAD "layer\nnorm attn_norm\nglu frobnicate gate up\n", "x.spec:5", "frobnicate"},
        {HEAD "layer\nnorm o_bias\n", "x.spec:4", "optional"},
        {HEAD "layer\nnorm attn_norm\nroute softmax\n", "x.spec:5", "used"},
        {HEAD "layer\nnorm attn_norm\nexperts silu gate up down\n", "x.spec:5", "route"},
        {HEAD LAYER "head\nattention\n", "x.spec:10", "may not stand"},
        {HEAD LAYER "head\nnorm out_norm\n", "x.spec", "logits"},
    };
    gw_blueprint *bp = malloc(sizeof *bp), *before = malloc(sizeof *before);
    assert_non_null(bp);
    assert_non_null(before);
    memset(bp, 0x55, sizeof *bp);
    memcpy(before, bp, sizeof *bp);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_status status = gw_blueprint_read("x", cases[i].text, bp);
        if (status != GW_E_SYNTAX || strstr(gw_error_text(), cases[i].line) == NULL ||
            strstr(gw_error_text(), cases[i].says) == NULL) {
            fail_msg("case %zu: status %d, '%s'", i, (int)status, gw_error_text());
        }
        assert_memory_equal(bp, before, sizeof *bp); /* unchanged on error */
    }
    free(before);
    free(bp);
    free(read_or_fail("x", HEAD LAYER "head\nnorm out_norm\nlinear out\nmix scale 2\n"));
}

/* Nothing grows beyond its table. */
static void test_limits(void **state) {
    (void)state;
    static const struct {
        const char *head, *line;
        int many;
    } cases[] = {
        {"family x\nlike llama\n", "weight w%d ff a%d b%d\n", GW_SPEC_WEIGHTS},
        {"family x\nlike llama\n", "number n%d hf a%d gguf b%d\n", GW_SPEC_NUMBERS},
        {"family x\nlike llama\nlayer\n", "norm attn_norm -> a%d # %d %d\n", GW_SPEC_BLOCKS},
        {"family x\nlike llama\n", "layer k%d # %d %d\nnorm attn_norm\n", GW_SPEC_KINDS}};
    gw_blueprint *bp = malloc(sizeof *bp);
    char *text = malloc(1 << 16);
    assert_non_null(bp);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t used = (size_t)snprintf(text, 1 << 16, "%s", cases[i].head);
        for (int k = 0; k <= cases[i].many; k++) {
            used += (size_t)snprintf(text + used, (1 << 16) - used, cases[i].line, k, k, k);
        }
        assert_int_equal(gw_blueprint_read("x", text, bp), GW_E_SYNTAX);
        assert_non_null(strstr(gw_error_text(), "more than"));
    }
    free(text);
    free(bp);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),     cmocka_unit_test(test_every_spec_reads),
        cmocka_unit_test(test_reading),  cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
