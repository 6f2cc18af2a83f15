/* tests/test_goldens.c - whole models against the reference library's logits and greedy ids, on
 * every backend that can run here. KV cache in f32, as the references were made. */
#include "tests/reference_files.h"
#include "tests/sanitized.h"

#include <math.h>
#include <unistd.h>

#define CLOSE_ENOUGH 2e-5 /* norm of the difference over norm of the reference */

/* ---- tiny random models: logits of the whole prompt, then greedy ---------------------------- */

typedef struct comparison {
    const float *want;
    int32_t n_vocab;
    double diff, norm;
    size_t rows;
} comparison;

static int compare_row(void *user, size_t row, const float *logits) {
    comparison *c = user;
    const float *want = c->want + row * (size_t)c->n_vocab;
    for (int32_t i = 0; i < c->n_vocab; i++) {
        double d = (double)logits[i] - (double)want[i];
        c->diff += d * d;
        c->norm += (double)want[i] * (double)want[i];
    }
    c->rows++;
    return 0;
}

static const char *spec_path;    /* NULL: the family that the files name */
static const char *weights_type; /* NULL: as stored */
static int32_t chunk = 7;

static void open_f32(const char *path, const char *device, gw_model **m, gw_session **s) {
    gw_model_options mo = {
        .path = path, .device = device, .spec = spec_path, .weights = weights_type};
    gw_status status = gw_model_open(&mo, m);
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    gw_session_options so = {.kv_type = "f32", .chunk = chunk};
    status = gw_session_new(*m, &so, s);
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

/* Feed ids, then check n greedy tokens one by one. */
static void check_greedy(gw_session *s, int32_t n_vocab, const int32_t *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float *logits = gw_session_logits(s, 0);
        assert_non_null(logits);
        int32_t got = largest(logits, n_vocab);
        if (got != want[i]) {
            fail_msg("greedy token %zu is %d, not %d", i, got, want[i]);
        }
        if (i + 1 < n) {
            assert_int_equal(gw_session_decode(s, &got, 1), GW_OK);
        }
    }
}

static void check_golden(const char *folder, const char *device, double bound) {
    char file[600];
    const char *end = strstr(folder, ".gguf") != NULL ? strrchr(folder, '/') : NULL;
    int n_folder = end != NULL ? (int)(end - folder) : (int)strlen(folder);
    snprintf(file, sizeof file, "%.*s/golden.safetensors", n_folder, folder);
    reference_file r;
    reference_open(&r, file);
    gw_model *m;
    gw_session *s;
    open_f32(folder, device, &m, &s);
    gw_model_info info;
    gw_model_describe(m, &info);

    size_t n, n_all;
    int32_t *prompt = reference_ids(&r, "input_ids", &n);
    int32_t *all = reference_ids(&r, "greedy_ids", &n_all);
    assert_int_equal(n_all, n + 24);
    comparison c = {.want = reference_find(&r, "logits")->data, .n_vocab = info.n_vocab};
    assert_int_equal(reference_find(&r, "logits")->dim[1], info.n_vocab);
    assert_int_equal(gw_session_prefill_rows(s, prompt, n, 0, compare_row, &c), GW_OK);
    assert_int_equal(c.rows, n);
    double error = sqrt(c.diff / c.norm);
    print_message("  %s on %s: %.2g\n", folder, device, error);
    assert_true(error <= bound);
    check_greedy(s, info.n_vocab, all + n, 24);

    free(prompt);
    free(all);
    gw_session_free(s);
    gw_model_free(m);
    reference_close(&r);
}

static const char *const families[] = {"llama-mha", "llama-gqa-llama3rope", "mistral-swa", "qwen2",
                                       "qwen3"};

/* The families of the second edition of specs; bound: of the relative error. */
static const struct {
    const char *name;
    double bound;
} decoders[] = {
    {"apertus", CLOSE_ENOUGH},
    {"bloom", CLOSE_ENOUGH},
    {"cohere2", CLOSE_ENOUGH},
    {"deepseek-v3", CLOSE_ENOUGH},
    {"deepseek-v3/deepseek-v3.gguf", CLOSE_ENOUGH},
    {"deepseek-v4", CLOSE_ENOUGH},
    {"falcon-40b-style", CLOSE_ENOUGH},
    {"falcon-7b-style", CLOSE_ENOUGH},
    {"falcon-h1", CLOSE_ENOUGH},
    {"gemma2", CLOSE_ENOUGH},
    {"gemma3-pattern", CLOSE_ENOUGH},
    {"gemma3n", CLOSE_ENOUGH},
    {"gemma4-e", CLOSE_ENOUGH},
    {"gemma4-e/gemma4-e.gguf", CLOSE_ENOUGH},
    {"gemma4-moe", CLOSE_ENOUGH},
    {"glm4", CLOSE_ENOUGH},
    {"gpt-neox", CLOSE_ENOUGH},
    {"gpt-oss", CLOSE_ENOUGH},
    {"gpt-oss-mxfp4", CLOSE_ENOUGH},
    {"gpt-oss-mxfp4/gpt-oss-mxfp4.gguf", CLOSE_ENOUGH},
    {"gpt2", CLOSE_ENOUGH},
    {"granite-hybrid", CLOSE_ENOUGH},
    {"hunyuan-dense", CLOSE_ENOUGH},
    {"kimi-linear", CLOSE_ENOUGH},
    {"lfm2", CLOSE_ENOUGH},
    {"llama-pickle", CLOSE_ENOUGH},
    {"llama-sharded", CLOSE_ENOUGH},
    {"llama4", CLOSE_ENOUGH},
    {"mamba2", CLOSE_ENOUGH},
    {"ministral3-mm", CLOSE_ENOUGH},
    {"mixtral", CLOSE_ENOUGH},
    {"nemotron", CLOSE_ENOUGH},
    {"nemotron-h-moe", CLOSE_ENOUGH},
    {"nemotron-h-moe/nemotron-h-moe.gguf", CLOSE_ENOUGH},
    {"olmo3", CLOSE_ENOUGH},
    {"opt", CLOSE_ENOUGH},
    {"phi3", CLOSE_ENOUGH},
    {"phi4-mini", CLOSE_ENOUGH},
    {"phimoe", CLOSE_ENOUGH},
    {"qwen2-moe", CLOSE_ENOUGH},
    {"qwen3-next", CLOSE_ENOUGH},
    {"qwen4-exp", CLOSE_ENOUGH},
    {"qwen3.5-moe-mm", CLOSE_ENOUGH},
    {"qwen3.5-moe-mm/qwen3.5-moe-mm.gguf", CLOSE_ENOUGH},
    {"smollm3", CLOSE_ENOUGH},
};

static void test_decoders(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++) {
        char name[80];
        snprintf(name, sizeof name, "goldens/%s", decoders[i].name);
        check_golden(shared_path(name), "cpu", decoders[i].bound);
    }
}

/* Matrices as quantizers publish them. The references computed in floats, so do these; of the first
 * three the references' own scales were not yet rounded to the binary16 that is stored. */
static const struct {
    const char *name;
    double bound;
} packed[] = {
    {"llama-gptq-g32", 5e-4},
    {"llama-gptq-g64-actorder", 5e-4},
    {"llama-awq-g32", 5e-4},
    {"llama-gptq-v2-g64", CLOSE_ENOUGH},
    {"llama-ct-fp8-channel", CLOSE_ENOUGH},
    {"llama-ct-nvfp4a16", CLOSE_ENOUGH},
    {"llama-ct-w4a16-asym-actorder", CLOSE_ENOUGH},
    {"llama-ct-w4a16-g64", CLOSE_ENOUGH},
    {"llama-fp8-block", CLOSE_ENOUGH},
};

static void test_packed(void **state) {
    (void)state;
    weights_type = "float";
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        char name[80];
        snprintf(name, sizeof name, "goldens/%s", packed[i].name);
        check_golden(shared_path(name), "cpu", packed[i].bound);
    }
    weights_type = NULL;
}

/* A family that no part of the program knows, from its spec alone; and one that is wrong. */
static void test_spec_file(void **state) {
    (void)state;
    static const char text[] = "family mine\nlike qwen2\nweight q_norm d_head - "
                               "layers.%d.self_attn.q_norm.weight\nlayer\n norm attn_norm -> h\n"
                               " qkv q k v from h\n rope_kv norm q_norm k_norm\n attention\n"
                               " residual o\n norm ffn_norm\n glu silu gate up\n residual down\n";
    char path[] = "/tmp/godwit-spec-XXXXXX";
    for (int broken = 0; broken < 2; broken++) {
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        size_t n = sizeof text - 1 - (broken ? 3 : 0);
        assert_int_equal(write(fd, text, n), n);
        close(fd);
        gw_model_options o = {.path = shared_path("goldens/qwen3"), .spec = path};
        gw_model *m = NULL;
        gw_status status = gw_model_open(&o, &m);
        assert_int_equal(status, broken ? GW_E_SYNTAX : GW_OK);
        if (broken) {
            assert_non_null(strstr(gw_error_text(), ".spec:12"));
        } else {
            gw_model_info info;
            gw_model_describe(m, &info);
            assert_string_equal(info.architecture, "mine");
            spec_path = path;
            check_golden(shared_path("goldens/qwen3"), "cpu", CLOSE_ENOUGH);
            spec_path = NULL;
        }
        gw_model_free(m);
        unlink(path);
        memcpy(path + sizeof path - 7, "XXXXXX", 6);
    }
}

static void goldens_on(const char *device) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "goldens/%s", families[i]);
        check_golden(shared_path(name), device, CLOSE_ENOUGH);
    }
}

/* Families that the shared data have no checkpoint of. */
static void test_families(void **state) {
    (void)state;
    static const char *const names[] = {
        "afmoe",
        "arcee",
        "baichuan",
        "bailingmoe3",
        "bailingmoe3-low",
        "cohere2moe",
        "cohere2moe-shared",
        "command-r",
        "command-r-plus",
        "cwm",
        "dbrx",
        "deepseek32",
        "dots1",
        "ernie4_5",
        "ernie4_5-moe",
        "exaone",
        "exaone-moe",
        "exaone4",
        "exaone4-full",
        "falcon-mamba",
        "falcon-one-norm",
        "gemma",
        "glm",
        "glm-dsa",
        "glm4moe-air",
        "glm4moe-groups",
        "glm5-next",
        "gptj",
        "gptneox-serial",
        "granite",
        "granite_swa",
        "granitemoe",
        "hunyuan-moe",
        "hy_v3",
        "hy_v4",
        "internlm2",
        "jais2",
        "jamba",
        "jamba-dense",
        "laguna",
        "mamba",
        "mellum",
        "mimo2",
        "minicpm",
        "minicpm3",
        "minimax-m2",
        "minimax-m3",
        "mistral4",
        "mpt",
        "mpt-clip",
        "muse-glimmer",
        "olmo",
        "olmo-clip",
        "olmo2",
        "olmoe",
        "olmoe-clip",
        "orion",
        "phi2",
        "phi3-window",
        "qwen",
        "rwkv7",
        "seed_oss",
        "smollm3-window",
        "solar_open",
        "stablelm",
        "stablelm-parallel",
        "starcoder",
        "starcoder2",
        "step35",
        "xlstm",
        "xlstm-fused",
        "xverse",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[80];
        snprintf(folder, sizeof folder, "tests/data/goldens-families/%s", names[i]);
        check_golden(folder, "cpu", CLOSE_ENOUGH);
    }
}

/* 4,000 tokens, of which an indexer chooses 64: the first logits of each row. */
static void test_long_text(void **state) {
    (void)state;
    enum { TOKENS = 4000, VOCAB = 4096 };
    const char *folder = "tests/data/goldens-families/glm-dsa-long";
    size_t n = TEST_SANITIZED || TEST_EMULATED ? TOKENS / 8 : TOKENS;
    int32_t *ids = malloc(n * sizeof *ids);
    gw_model *m;
    gw_session *s;
    reference_file r;
    reference_open(&r, "tests/data/goldens-families/glm-dsa-long/golden.safetensors");
    chunk = 256;
    open_f32(folder, "cpu", &m, &s);
    chunk = 7;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)((i * 1237 + 5) % VOCAB);
    }
    const gw_stored *want = reference_find(&r, "logits");
    comparison c = {.want = want->data, .n_vocab = (int32_t)want->dim[1]};
    assert_int_equal(want->dim[0], TOKENS);
    assert_int_equal(gw_session_prefill_rows(s, ids, n, 0, compare_row, &c), GW_OK);
    assert_int_equal(c.rows, n);
    print_message("  %s: %.2g\n", folder, sqrt(c.diff / c.norm));
    assert_true(sqrt(c.diff / c.norm) <= CLOSE_ENOUGH);
    free(ids);
    gw_session_free(s);
    gw_model_free(m);
    reference_close(&r);
}

/* Prompts longer than the original context, under every rope scaling. */
static void rope_on(const char *device) {
    static const char *const cases[] = {"llama-yarn",   "llama-yarn-betas", "llama-yarn-mscale",
                                        "llama-linear", "llama-llama3",     "qwen2-yarn"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "tests/data/goldens-rope/%s", cases[i]);
        check_golden(folder, device, CLOSE_ENOUGH);
    }
}

static void test_goldens_ref(void **state) {
    (void)state;
    goldens_on("ref");
}

static void test_goldens_cpu(void **state) {
    (void)state;
    goldens_on("cpu");
}

static void test_rope_ref(void **state) {
    (void)state;
    rope_on("ref");
}

static void test_rope_cpu(void **state) {
    (void)state;
    rope_on("cpu");
}

/* ---- the trained pair: 64 greedy tokens of five prompts ------------------------------------- */

static void check_trained(const char *file, const char *model, const char *device, size_t limit) {
    char path[128];
    snprintf(path, sizeof path, "models/%s", file);
    const char *where = shared_path(path);
    json_error_t error;
    json_t *golden = json_load_file(shared_path("models/golden.json"), 0, &error);
    assert_non_null(golden);
    const json_t *cases = json_object_get(json_object_get(golden, "models"), model);
    assert_true(json_array_size(cases) > 0);
    gw_model *m;
    gw_session *s;
    open_f32(where, device, &m, &s);
    gw_model_info info;
    gw_model_describe(m, &info);
    for (size_t i = 0; i < json_array_size(cases) && i < limit; i++) {
        const json_t *c = json_array_get(cases, i);
        size_t n, n_more;
        int32_t *prompt = json_ids(json_object_get(c, "prompt_ids"), &n);
        int32_t *more = json_ids(json_object_get(c, "continuation"), &n_more);
        assert_int_equal(n_more, 64);
        assert_int_equal(gw_session_rewind(s, 0), GW_OK);
        assert_int_equal(gw_session_prefill(s, prompt, n), GW_OK);
        check_greedy(s, info.n_vocab, more, n_more);
        free(prompt);
        free(more);
    }
    gw_session_free(s);
    gw_model_free(m);
    json_decref(golden);
}

static void test_trained_ref(void **state) {
    (void)state;
    check_trained("tales-2m", "draft", "ref", 1);
}

static void test_trained_cpu(void **state) {
    (void)state;
    check_trained("tales-21m", "target", "cpu", SIZE_MAX);
    check_trained("tales-2m", "draft", "cpu", SIZE_MAX);
    check_trained("tales-2m-f16.gguf", "draft", "cpu", SIZE_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens_ref), cmocka_unit_test(test_goldens_cpu),
        cmocka_unit_test(test_families),    cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_long_text),   cmocka_unit_test(test_packed),
        cmocka_unit_test(test_spec_file),   cmocka_unit_test(test_rope_ref),
        cmocka_unit_test(test_rope_cpu),    cmocka_unit_test(test_trained_ref),
        cmocka_unit_test(test_trained_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
