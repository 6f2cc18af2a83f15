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
    static const struct {
        const char *architecture, *family;
        int interleaved;
    } cases[] = {
        {"llama", "llama", 1},
        {"LlamaForCausalLM", "llama", 1},
        {"MistralForCausalLM", "llama", 1},
        {"qwen2", "qwen2", 0},
        {"Qwen2ForCausalLM", "qwen2", 0},
        {"qwen3", "qwen3", 0},
        {"Qwen3ForCausalLM", "qwen3", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const gw_spec *spec = NULL;
        assert_int_equal(gw_spec_find("test", cases[i].architecture, &spec), GW_OK);
        assert_string_equal(gw_spec_family(spec), cases[i].family);
        assert_int_equal(gw_spec_gguf_interleaved(spec), cases[i].interleaved);
    }
    const gw_spec *untouched = NULL;
    static const char *const unknown[] = {"mamba", "", "interleaved", "llam", "llama2", "embed"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(gw_spec_find("model.gguf", unknown[i], &untouched), GW_E_METADATA);
        assert_null(untouched);
        assert_non_null(strstr(gw_error_text(), "Qwen3ForCausalLM"));
        assert_non_null(strstr(gw_error_text(), "model.gguf"));
    }
}

static void test_every_spec_reads(void **state) {
    (void)state;
    size_t n = 0;
    for (; gw_spec_at(n) != NULL; n++) {
        gw_blueprint bp;
        const gw_spec *spec = gw_spec_at(n);
        gw_status status = gw_blueprint_read(gw_spec_family(spec), gw_spec_text(spec), &bp);
        if (status != GW_OK) {
            fail_msg("%s", gw_error_text());
        }
        assert_string_equal(bp.family, gw_spec_family(spec)); /* file name and family line agree */
        assert_int_equal(bp.block[0].kind, GW_BLOCK_EMBED);
        assert_int_equal(bp.block[bp.n_blocks - 1].kind, GW_BLOCK_LINEAR);
    }
    assert_true(n >= 3);
}

static void test_reading(void **state) {
    (void)state;
    gw_blueprint bp;
    const gw_spec *spec = NULL;
    assert_int_equal(gw_spec_find("test", "qwen2", &spec), GW_OK);
    assert_int_equal(gw_blueprint_read("qwen2", gw_spec_text(spec), &bp), GW_OK);
    int q_bias = -1, out = -1;
    for (int i = 0; i < bp.n_weights; i++) {
        q_bias = strcmp(bp.weight[i].role, "q_bias") == 0 ? i : q_bias;
        out = strcmp(bp.weight[i].role, "out") == 0 ? i : out;
    }
    assert_true(q_bias >= 0 && out >= 0);
    assert_int_equal(bp.weight[q_bias].n_dim, 1);
    assert_int_equal(bp.weight[q_bias].per_layer, 1);
    assert_int_equal(bp.weight[q_bias].optional, 0);
    assert_string_equal(bp.weight[q_bias].gguf, "blk.%d.attn_q.bias");
    assert_string_equal(bp.weight[bp.weight[out].fallback].role, "embed");
    const gw_hparams hp = {.n_heads = 6, .d_head = 16, .d_model = 80, .n_vocab = 99};
    assert_int_equal(gw_spec_extent(bp.weight[q_bias].dim[0], &hp), 96);
    assert_int_equal(gw_spec_extent(bp.weight[out].dim[0], &hp), 99);
    assert_int_equal(gw_spec_extent(bp.weight[out].dim[1], &hp), 80);
    for (int i = 0; i < bp.n_blocks; i++) {
        if (bp.block[i].kind == GW_BLOCK_QKV) {
            assert_int_equal(bp.block[i].weight[3], q_bias);
        }
    }
}

/* ---- mistakes ------------------------------------------------------------------------------- */

#define HEAD "family x\ngguf x\nhf X\ngguf_rope halves\n"
#define WEIGHTS                                                                                    \
    "weight e v,d emb emb\nweight n d b.%d.n l.%d.n\nweight q h*e,d b.%d.q l.%d.q\n"               \
    "weight m d,f b.%d.m l.%d.m\nweight o d b.%d.o l.%d.o optional\n"                              \
    "weight fn d fn fn\nweight out v,d out out else e\n"
#define LAYER "start\nembed e\nlayer\nnorm n\nglu silu q q\nresidual m bias o\n"
#define GOOD HEAD WEIGHTS LAYER "head\nnorm fn\nlinear out\n"

static void test_mistakes(void **state) {
    (void)state;
    static const struct {
        const char *text, *line, *says;
    } cases[] = {
        {"", "x.spec:0", "family"},
        {"family x\n" WEIGHTS LAYER "head\nnorm fn\nlinear out\n", "x.spec", "gguf_rope"},
        {"family x\nbogus line\n", "x.spec:2", "bogus"},
        {"family\n", "x.spec:1", "family"},
        {"family a-name-that-is-much-too-long-for-the-field\n", "x.spec:1", "longer"},
        {HEAD "gguf_rope sideways\n", "x.spec:5", "gguf_rope"},
        {HEAD "weight q\n", "x.spec:5", "needs a role"},
        {HEAD "weight q d a\n", "x.spec:5", "needs a role"},
        {HEAD "weight q z a b\n", "x.spec:5", "'z'"},
        {HEAD "weight q d* a b\n", "x.spec:5", "ends"},
        {HEAD "weight q d,d,d a b\n", "x.spec:5", "one or two"},
        {HEAD "weight q d*d*d*d a b\n", "x.spec:5", "joined"},
        {HEAD "weight q dd a b\n", "x.spec:5", "one or two"},
        {HEAD "weight q d a.%d b\n", "x.spec:5", "both names"},
        {HEAD "weight q d a.%d.%d b.%d\n", "x.spec:5", "both names"},
        {HEAD "weight q d a.%s b.%s\n", "x.spec:5", "both names"},
        {HEAD "weight q d a b maybe\n", "x.spec:5", "maybe"},
        {HEAD "weight q d a b else p\n", "x.spec:5", "'p'"},
        {HEAD "weight q d a b\nweight q d a b\n", "x.spec:6", "twice"},
        {HEAD "a b c d e f g h i j k l m n o p q\n", "x.spec:5", "more than"},
        {HEAD WEIGHTS "layer\n", "x.spec:12", "order"},
        {HEAD WEIGHTS "norm n\n", "x.spec:12", "may not stand"},
        {HEAD WEIGHTS "start\nembed\n", "x.spec:13", "takes 1"},
        {HEAD WEIGHTS "start\nembed zz\n", "x.spec:13", "'zz'"},
        {HEAD WEIGHTS "start\nembed n\n", "x.spec:13", "per layer"},
        {HEAD WEIGHTS "start\nlayer\n", "x.spec:13", "nothing"},
        {HEAD WEIGHTS "start\nembed e\nlayer\nnorm n extra\n", "x.spec:15", "takes 1"},
        {HEAD WEIGHTS "start\nembed e\nlayer\nnorm n\nnorm n\n", "x.spec:16", "normed row"},
        {HEAD WEIGHTS "start\nembed e\nlayer\nnorm n\nglu gelu q q\n", "x.spec:16", "silu"},
        {HEAD WEIGHTS "start\nembed e\nlayer\nnorm n\nresidual m\n", "x.spec:16", "takes"},
        {HEAD WEIGHTS "start\nembed e\nlayer\nnorm o\n", "x.spec:15", "optional"},
        {HEAD WEIGHTS LAYER, "x.spec", "ends with the stream"},
        {HEAD WEIGHTS "start\nembed e\nlayer\nnorm n\nhead\n", "x.spec:16", "not with the stream"},
        {HEAD WEIGHTS LAYER "head\nattention\n", "x.spec:19", "may not stand"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_blueprint bp;
        memset(&bp, 0x55, sizeof bp);
        gw_blueprint before = bp;
        gw_status status = gw_blueprint_read("x", cases[i].text, &bp);
        if (status != GW_E_SYNTAX || strstr(gw_error_text(), cases[i].line) == NULL ||
            strstr(gw_error_text(), cases[i].says) == NULL) {
            fail_msg("case %zu: status %d, '%s'", i, (int)status, gw_error_text());
        }
        assert_memory_equal(&bp, &before, sizeof bp); /* unchanged on error */
    }
    gw_blueprint bp;
    assert_int_equal(gw_blueprint_read("x", GOOD, &bp), GW_OK);
    assert_int_equal(bp.n_weights, 7);
    assert_int_equal(bp.n_blocks, 6);
}

/* Every prefix of a spec is refused: none is taken for a whole one, none is read past its end. */
static void test_prefixes(void **state) {
    (void)state;
    size_t whole = strlen(GOOD) - 1; /* the last newline may go */
    for (size_t n = 0; n < whole; n++) {
        char *text = malloc(n + 1);
        assert_non_null(text);
        memcpy(text, GOOD, n);
        text[n] = '\0';
        gw_blueprint bp;
        assert_int_equal(gw_blueprint_read("x", text, &bp), GW_E_SYNTAX);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),     cmocka_unit_test(test_every_spec_reads),
        cmocka_unit_test(test_reading),  cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
