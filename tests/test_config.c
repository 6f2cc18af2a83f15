/* tests/test_config.c - hyper-parameters: both containers, both spellings of config.json, defaults,
 * and every number that describes no possible model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/json.h"
#include "core/model/config.h"
#include "core/model/spec.h"
#include "tests/gguf_image.h"

/* ---- config.json ------------------------------------------------------------------------- */

/* `change` is merged over `base`; a null removes a key. */
static gw_arena *arena; /* of what is read, up to the end */

static gw_status read_facts(const gw_facts *facts, const char *architecture, gw_hparams *out) {
    const gw_spec *spec = NULL;
    gw_blueprint *bp = malloc(sizeof *bp);
    assert_non_null(bp);
    gw_status status = gw_spec_find(facts->where, architecture, &spec);
    status =
        status == GW_OK ? gw_blueprint_read(gw_spec_family(spec), gw_spec_text(spec), bp) : status;
    status = status == GW_OK ? gw_config_read(facts, bp, arena, out) : status;
    free(bp);
    return status;
}

static gw_status settle_json(const char *base, const char *change, gw_hparams *out) {
    json_t *root = json_loads(base, 0, NULL), *more = json_loads(change, 0, NULL), *value;
    const char *key;
    assert_non_null(root);
    if (more == NULL) {
        fail_msg("the test's own JSON is wrong: %s", change);
    }
    json_object_foreach(more, key, value) { json_object_set(root, key, value); }
    char architecture[64];
    gw_facts facts = gw_config_hf_facts("config.json", root);
    gw_status status = gw_config_hf_architecture("config.json", root, 1, architecture, 64);
    status = status == GW_OK ? gw_config_refuse_quantized(&facts) : status;
    status = status == GW_OK ? read_facts(&facts, architecture, out) : status;
    json_decref(root);
    json_decref(more);
    return status;
}

static const char llama[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":128,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"vocab_size\":320,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5}";

static gw_hparams good(const char *change) {
    gw_hparams hp;
    gw_status status = settle_json(llama, change, &hp);
    if (status != GW_OK) {
        fail_msg("%s: %s", change, gw_error_text());
    }
    return hp;
}

static void test_plain(void **state) {
    (void)state;
    gw_hparams hp = good("{}");
    assert_string_equal(hp.family, "llama");
    assert_int_equal(hp.n_layers, 2);
    assert_int_equal(hp.d_model, 64);
    assert_int_equal(hp.layer[0].n_heads, 4);
    assert_int_equal(hp.layer[0].n_kv_heads, 2);
    assert_int_equal(hp.layer[0].d_head, 16);
    assert_int_equal(hp.layer[0].d_ff, 128);
    assert_int_equal(hp.n_vocab, 320);
    assert_int_equal(hp.n_ctx, 256);
    assert_true(hp.norm_eps == 1e-5f);
    assert_int_equal(hp.tied, 0);
    assert_int_equal(hp.layer[0].window, 0);
    assert_int_equal(hp.rope[0].style, GW_ROPE_HALVES);
    assert_int_equal(hp.rope[0].dim, 16);
    assert_true(hp.rope[0].base == 10000.0);
    assert_int_equal(hp.rope[0].scaling, GW_ROPE_NONE);
    assert_int_equal(good("{\"num_key_value_heads\":null}").layer[0].n_kv_heads, 4);
    assert_int_equal(good("{\"head_dim\":32}").layer[0].d_head, 32);
    assert_int_equal(good("{\"hidden_size\":64.0}").d_model, 64);
    assert_int_equal(good("{\"tie_word_embeddings\":true}").tied, 1);
    assert_int_equal(good("{\"partial_rotary_factor\":0.5}").rope[0].dim, 8);
    assert_int_equal(good("{\"max_position_embeddings\":null}").n_ctx, 2048);
    assert_int_equal(good("{\"sliding_window\":8}").layer[0].window,
                     0); /* the Llama class ignores it */
}

static void test_both_spellings(void **state) {
    (void)state;
    static const char *const linear[] = {
        "{\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
        "{\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4.0}}",
        "{\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"linear\",\"factor\":4.0}}"};
    for (size_t i = 0; i < 3; i++) {
        gw_hparams hp = good(linear[i]);
        assert_int_equal(hp.rope[0].scaling, GW_ROPE_LINEAR);
        assert_true(hp.rope[0].base == 5e5 && hp.rope[0].factor == 4.0);
    }
    static const char *const llama3[] = {
        "{\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
        "\"low_freq_factor\":1.5,\"high_freq_factor\":5,\"original_max_position_embeddings\":64}}",
        "{\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"llama3\",\"factor\":8,"
        "\"low_freq_factor\":1.5,\"high_freq_factor\":5,\"original_max_position_embeddings\":64}}"};
    for (size_t i = 0; i < 2; i++) {
        gw_hparams hp = good(llama3[i]);
        assert_int_equal(hp.rope[0].scaling, GW_ROPE_LLAMA3);
        assert_true(hp.rope[0].low_freq == 1.5 && hp.rope[0].high_freq == 5.0);
        assert_int_equal(hp.rope[0].original_ctx, 64);
    }
    gw_hparams hp = good("{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}");
    assert_int_equal(hp.rope[0].scaling, GW_ROPE_YARN);
    assert_true(hp.rope[0].beta_fast == 32.0 && hp.rope[0].beta_slow == 1.0);
    assert_true(hp.rope[0].attn_factor == 0.0);
    assert_int_equal(hp.rope[0].original_ctx, 256);
    hp = good("{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":1.25}}");
    assert_true(hp.rope[0].attn_factor == 1.25);
    hp = good("{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":2,"
              "\"mscale_all_dim\":1}}");
    assert_true(fabs(hp.rope[0].attn_factor - (0.2 * log(4.0) + 1) / (0.1 * log(4.0) + 1)) < 1e-12);
    hp = good("{\"original_max_position_embeddings\":32,\"rope_scaling\":{\"type\":\"yarn\","
              "\"factor\":4,\"original_max_position_embeddings\":64}}");
    assert_int_equal(hp.rope[0].original_ctx, 32); /* the outer one */
    assert_int_equal(good("{\"rope_scaling\":null}").rope[0].scaling, GW_ROPE_NONE);
    assert_int_equal(good("{\"rope_parameters\":{\"rope_type\":\"default\"}}").rope[0].scaling,
                     GW_ROPE_NONE);
}

static void test_windows(void **state) {
    (void)state;
#define QWEN2 "\"architectures\":[\"Qwen2ForCausalLM\"]"
#define MISTRAL "\"architectures\":[\"MistralForCausalLM\"]"
    assert_int_equal(good("{" MISTRAL ",\"sliding_window\":8}").layer[0].window, 8);
    assert_int_equal(good("{" MISTRAL ",\"sliding_window\":null}").layer[0].window, 0);
    assert_int_equal(good("{" MISTRAL "}").layer[0].window, 4096);
    assert_int_equal(good("{" QWEN2 ",\"sliding_window\":8}").layer[0].window, 0);
    gw_hparams hp = good("{" QWEN2 ",\"sliding_window\":8,\"use_sliding_window\":true,"
                         "\"max_window_layers\":1}");
    assert_string_equal(hp.family, "qwen2");
    assert_int_equal(hp.layer[0].window, 0);
    assert_int_equal(hp.layer[1].window, 8);
    hp = good("{" QWEN2 ",\"sliding_window\":8,\"use_sliding_window\":true,"
              "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");
    assert_int_equal(hp.layer[0].window, 0);
    assert_int_equal(hp.layer[1].window, 8);
    hp = good("{" QWEN2 ",\"sliding_window\":8,\"use_sliding_window\":true,"
              "\"layer_types\":[\"full_attention\",\"full_attention\"]}");
    assert_int_equal(hp.layer[0].window, 0);
    assert_int_equal(good("{\"architectures\":[\"Qwen3ForCausalLM\"]}").layer[0].d_head, 128);
}

static void test_impossible_configs(void **state) {
    (void)state;
    static const struct {
        const char *change;
        gw_status want;
    } rows[] = {
        {"{\"num_attention_heads\":0}", GW_E_METADATA},
        {"{\"num_attention_heads\":\"four\"}", GW_E_TYPE},
        {"{\"num_attention_heads\":4.5}", GW_E_TYPE},
        {"{\"num_attention_heads\":1000000000}", GW_E_METADATA},
        {"{\"num_attention_heads\":7}", GW_E_METADATA},
        {"{\"num_attention_heads\":-4}", GW_E_METADATA},
        {"{\"num_key_value_heads\":0}", GW_E_METADATA},
        {"{\"num_key_value_heads\":3}", GW_E_METADATA},
        {"{\"num_hidden_layers\":1000000000000000}", GW_E_METADATA},
        {"{\"num_hidden_layers\":1e300}", GW_E_TYPE},
        {"{\"num_hidden_layers\":null}", GW_E_METADATA},
        {"{\"hidden_size\":0}", GW_E_METADATA},
        {"{\"hidden_size\":-9223372036854775807}", GW_E_METADATA},
        {"{\"intermediate_size\":0}", GW_E_METADATA},
        {"{\"vocab_size\":-1}", GW_E_METADATA},
        {"{\"vocab_size\":4294967296}", GW_E_METADATA},
        {"{\"max_position_embeddings\":0}", GW_E_METADATA},
        {"{\"head_dim\":15}", GW_E_METADATA},
        {"{\"head_dim\":0}", GW_E_METADATA},
        {"{\"head_dim\":1000000}", GW_E_METADATA},
        {"{\"rms_norm_eps\":-1}", GW_E_METADATA},
        {"{\"rms_norm_eps\":\"1e-5\"}", GW_E_TYPE},
        {"{\"rope_theta\":0}", GW_E_METADATA},
        {"{\"rope_theta\":-1e4}", GW_E_METADATA},
        {"{\"partial_rotary_factor\":2}", GW_E_METADATA},
        {"{\"partial_rotary_factor\":0.01}", GW_E_METADATA},
        {"{\"tie_word_embeddings\":1}", GW_E_TYPE},
        {"{\"architectures\":[]}", GW_E_METADATA},
        {"{\"architectures\":[1]}", GW_E_TYPE},
        {"{\"architectures\":\"Llama\"}", GW_E_TYPE},
        {"{\"architectures\":[\"FrobnicateForCausalLM\"]}", GW_E_METADATA},
        {"{\"rope_scaling\":[]}", GW_E_TYPE},
        {"{\"rope_scaling\":{\"type\":7}}", GW_E_TYPE},
        {"{\"rope_scaling\":{\"type\":\"linear\"}}", GW_E_METADATA},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", GW_E_METADATA},
        {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}}", GW_E_TYPE},
        {"{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":0}}", GW_E_METADATA},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}", GW_E_TYPE},
        {"{\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2,\"short_factor\":[1],"
         "\"long_factor\":[1]}}",
         GW_E_METADATA},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0.5}}", GW_E_METADATA},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":7}}", GW_E_TYPE},
        {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":-1}}", GW_E_METADATA},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,"
         "\"high_freq_factor\":4}}",
         GW_E_METADATA},
        {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2,"
         "\"original_max_position_embeddings\":0}}",
         GW_E_METADATA},
        {"{\"quantization_config\":{\"quant_method\":\"aqlm\"}}", GW_E_UNSUPPORTED},
        {"{\"quantization_config\":{\"quant_method\":\"exl3\"}}", GW_E_UNSUPPORTED},
        {"{\"hidden_act\":\"frobnicate\"}", GW_E_UNSUPPORTED},
        {"{" MISTRAL ",\"sliding_window\":-8}", GW_E_METADATA},
        {"{" QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\"]}",
         GW_E_METADATA},
        {"{" QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"chunked\"]}", GW_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_hparams hp = {.n_layers = -7};
        gw_status got = settle_json(llama, rows[i].change, &hp);
        if (got != rows[i].want || hp.n_layers != -7) {
            fail_msg("%s: %s (%s)", rows[i].change, gw_status_name(got), gw_error_text());
        }
    }
}

static void test_json_text(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        gw_status want;
    } rows[] = {
        {"{\"a\":1}", 7, GW_OK},
        {"{\"a\":NaN}", 9, GW_E_SYNTAX},
        {"{\"a\":1,\"a\":2}", 13, GW_E_DUPLICATE},
        {"", 0, GW_E_SYNTAX},
        {"{\"\xff\":1}", 7, GW_E_ENCODING},
        {"{\"a\\u0000\":1}", 12, GW_E_ENCODING},
        {"[1e999]", 7, GW_E_OVERFLOW},
        {"{} {}", 5, GW_E_SYNTAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *root = NULL;
        assert_int_equal(gw_json_parse("text", rows[i].text, rows[i].n, &root), rows[i].want);
        json_decref(root);
    }
    json_t *text = NULL;
    const char kept[] = "[\"a\\u0000b\"]", named[] = "[{\"a\\u0000b\":1}]";
    assert_int_equal(gw_json_parse("text", kept, sizeof kept - 1, &text), GW_E_ENCODING);
    assert_int_equal(gw_json_parse_nul("text", named, sizeof named - 1, &text), GW_E_ENCODING);
    assert_non_null(strstr(gw_error_text(), "in the name of a member"));
    assert_int_equal(gw_json_parse_nul("text", kept, sizeof kept - 1, &text), GW_OK);
    assert_int_equal(json_string_length(json_array_get(text, 0)), 3);
    json_decref(text);
    static char deep[100000];
    memset(deep, '[', sizeof deep);
    json_t *root = NULL;
    assert_int_equal(gw_json_parse("text", deep, sizeof deep, &root), GW_E_LIMIT);
}

/* ---- GGUF keys --------------------------------------------------------------------------- */

typedef struct entry {
    const char *key; /* without the architecture; "=..." as it stands */
    char type;       /* u: uint32, i: int32, l: uint64, f: float, t: text, 0: the key is absent */
    double number;
    const char *text;
} entry;

static const entry gguf_base[] = {
    {"=general.architecture", 't', 0, "llama"},
    {"context_length", 'u', 256, NULL},
    {"embedding_length", 'u', 64, NULL},
    {"block_count", 'u', 2, NULL},
    {"feed_forward_length", 'u', 128, NULL},
    {"attention.head_count", 'u', 4, NULL},
    {"attention.head_count_kv", 'u', 2, NULL},
    {"rope.dimension_count", 'u', 16, NULL},
    {"vocab_size", 'u', 320, NULL},
    {"attention.layer_norm_rms_epsilon", 'f', 1e-5, NULL},
};
enum { N_BASE = sizeof gguf_base / sizeof gguf_base[0] };

static image m;

static void put_entry(const char *architecture, const entry *e) {
    char key[128];
    snprintf(key, sizeof key, e->key[0] == '=' ? "%s%s" : "%s.%s",
             e->key[0] == '=' ? "" : architecture, e->key[0] == '=' ? e->key + 1 : e->key);
    put_text(&m, key);
    put_u32(&m, e->type == 'u'   ? 4
                : e->type == 'i' ? 5
                : e->type == 'l' ? 10
                : e->type == 'f' ? 6
                                 : 8);
    if (e->type == 't') {
        put_text(&m, e->text);
    } else if (e->type == 'f') {
        put_f32(&m, e->number);
    } else {
        put_number(&m, (uint64_t)(int64_t)e->number, e->type == 'l' ? 8 : 4);
    }
}

/* The base with up to three entries (to the first NULL) replaced, added or (type 0) left out. */
static gw_status settle_gguf(const entry *const changes[4], gw_hparams *out) {
    const entry *list[N_BASE + 3];
    const char *architecture = "llama";
    size_t n = 0;
    for (size_t i = 0; i < N_BASE; i++) {
        list[n++] = &gguf_base[i];
    }
    for (size_t k = 0; changes[k] != NULL; k++) {
        size_t at = 0;
        while (at < n && strcmp(list[at]->key, changes[k]->key) != 0) {
            at++;
        }
        list[at] = changes[k];
        n = at == n ? n + 1 : n;
        if (changes[k]->type == 't' && strcmp(changes[k]->key, "=general.architecture") == 0) {
            architecture = changes[k]->text;
        }
        if (changes[k]->type == 0) {
            list[at] = list[--n];
        }
    }
    put_head(&m, 0, n);
    for (size_t i = 0; i < n; i++) {
        put_entry(architecture, list[i]);
    }
    gw_gguf *g = NULL;
    char name[64];
    json_t *object = NULL;
    gw_status status = gw_gguf_parse("image", m.data, m.n, -1, &g);
    assert_int_equal(status, GW_OK);
    status = gw_config_gguf_architecture(g, 1, name, sizeof name);
    status = status == GW_OK ? gw_config_gguf_facts(g, name, &object) : status;
    gw_facts facts = {.where = "image", .object = object};
    status = status == GW_OK ? read_facts(&facts, name, out) : status;
    json_decref(object);
    gw_gguf_free(g);
    return status;
}

static gw_hparams good_gguf(const entry *a, const entry *b) {
    gw_hparams hp;
    if (settle_gguf((const entry *const[]){a, b, NULL, NULL}, &hp) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return hp;
}

static const entry yarn = {"rope.scaling.type", 't', 0, "yarn"};
static const entry fourfold = {"rope.scaling.factor", 'f', 4, NULL};

static gw_status settle_yarn(const char *key, double number, gw_hparams *out) {
    char name[64];
    snprintf(name, sizeof name, "rope.scaling.%s", key);
    entry more = {name, strcmp(key, "original_context_length") == 0 ? 'u' : 'f', number, NULL};
    return settle_gguf((const entry *const[]){&yarn, &fourfold, &more, NULL}, out);
}

static gw_hparams good_yarn(const char *key, double number) {
    gw_hparams hp;
    if (settle_yarn(key, number, &hp) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return hp;
}

static void test_gguf_keys(void **state) {
    (void)state;
    gw_hparams hp = good_gguf(NULL, NULL);
    assert_string_equal(hp.family, "llama");
    assert_int_equal(hp.n_layers, 2);
    assert_int_equal(hp.layer[0].d_head, 16);
    assert_int_equal(hp.layer[0].n_kv_heads, 2);
    assert_int_equal(hp.n_vocab, 320);
    assert_int_equal(hp.rope[0].style, GW_ROPE_INTERLEAVED);
    assert_true(hp.norm_eps == 1e-5f && hp.rope[0].base == 10000.0);
    hp = good_gguf(&(entry){"=general.architecture", 't', 0, "qwen2"}, NULL);
    assert_int_equal(hp.rope[0].style, GW_ROPE_HALVES);
    assert_int_equal(
        good_gguf(&(entry){"attention.head_count_kv", 0, 0, NULL}, NULL).layer[0].n_kv_heads, 4);
    assert_int_equal(good_gguf(&(entry){"rope.dimension_count", 0, 0, NULL}, NULL).rope[0].dim, 16);
    assert_int_equal(good_gguf(&(entry){"block_count", 'l', 3, NULL}, NULL).n_layers, 3);
    assert_int_equal(good_gguf(&(entry){"block_count", 'i', 3, NULL}, NULL).n_layers, 3);
    assert_int_equal(good_gguf(&(entry){"attention.key_length", 'u', 32, NULL},
                               &(entry){"attention.value_length", 'u', 32, NULL})
                         .layer[0]
                         .d_head,
                     32);
    assert_int_equal(
        good_gguf(&(entry){"attention.sliding_window", 'u', 8, NULL}, NULL).layer[0].window, 8);
    hp = good_gguf(&(entry){"rope.scaling.type", 't', 0, "linear"},
                   &(entry){"rope.scaling.factor", 'f', 4, NULL});
    assert_int_equal(hp.rope[0].scaling, GW_ROPE_LINEAR);
    assert_true(hp.rope[0].factor == 4.0);
    hp = good_gguf(&(entry){"rope.scaling.attn_factor", 'f', 1.5, NULL},
                   &(entry){"rope.scaling.original_context_length", 'u', 64, NULL});
    assert_int_equal(hp.rope[0].scaling, GW_ROPE_LONGROPE);
    assert_int_equal(hp.rope[0].original_ctx, 64);
    assert_true(hp.rope[0].attn_factor == 1.5 && hp.rope[0].long_attn_factor == 1.5);
    hp = good_gguf(&(entry){"rope.scale_linear", 'f', 2, NULL}, NULL);
    assert_int_equal(hp.rope[0].scaling, GW_ROPE_LINEAR);
    assert_int_equal(good_gguf(&(entry){"rope.scaling.type", 't', 0, "none"},
                               &(entry){"rope.scaling.factor", 'f', 4, NULL})
                         .rope[0]
                         .scaling,
                     GW_ROPE_NONE);
}

static void test_gguf_yarn(void **state) {
    (void)state;
    gw_hparams hp = good_gguf(&yarn, &fourfold);
    assert_int_equal(hp.rope[0].scaling, GW_ROPE_YARN);
    assert_int_equal(hp.rope[0].original_ctx, 256);
    assert_true(hp.rope[0].factor == 4.0 && hp.rope[0].beta_fast == 32.0 &&
                hp.rope[0].beta_slow == 1.0);
    assert_true(hp.rope[0].attn_factor == 0.0); /* derived */
    assert_int_equal(good_yarn("original_context_length", 64).rope[0].original_ctx, 64);
    assert_true(good_yarn("yarn_beta_fast", 16).rope[0].beta_fast == 16.0);
    assert_true(good_yarn("yarn_beta_slow", 2).rope[0].beta_slow == 2.0);
    assert_true(good_yarn("yarn_attn_factor", 1.25).rope[0].attn_factor == 1.25);
    assert_true(good_yarn("yarn_ext_factor", -1).rope[0].attn_factor == 0.0);
    assert_true(good_yarn("yarn_log_multiplier", 1).rope[0].attn_factor == 1.0);
    double derived = 0.1 * log(4.0) + 1.0;
    assert_true(fabs(good_yarn("attn_factor", 1.25).rope[0].attn_factor - 1.25 * derived) < 1e-12);
    static const struct {
        const char *key;
        double number;
        gw_status want;
    } rows[] = {
        {"yarn_attn_factor", 0, GW_E_METADATA},
        {"yarn_attn_factor", (double)INFINITY, GW_E_METADATA},
        {"attn_factor", -1, GW_E_METADATA},
        {"attn_factor", (double)NAN, GW_E_METADATA},
        {"yarn_beta_slow", -1, GW_E_METADATA},
        {"yarn_ext_factor", 0.5, GW_E_UNSUPPORTED},
        {"yarn_log_multiplier", 0.1, GW_E_UNSUPPORTED},
        {"factor", 0.5, GW_E_METADATA},
        {"original_context_length", 0, GW_E_METADATA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_status got = settle_yarn(rows[i].key, rows[i].number, &hp);
        if (got != rows[i].want) {
            fail_msg("%s %g: %s", rows[i].key, rows[i].number, gw_status_name(got));
        }
    }
}

static void test_impossible_gguf(void **state) {
    (void)state;
    static const struct {
        entry change;
        gw_status want;
    } rows[] = {
        {{"=general.architecture", 0, 0, NULL}, GW_E_METADATA},
        {{"=general.architecture", 'u', 1, NULL}, GW_E_TYPE},
        {{"=general.architecture", 't', 0, ""}, GW_E_METADATA},
        {{"=general.architecture", 't', 0, "frobnicate"}, GW_E_METADATA},
        {{"attention.head_count", 'u', 0, NULL}, GW_E_METADATA},
        {{"attention.head_count", 'u', 4294967295.0, NULL}, GW_E_METADATA},
        {{"attention.head_count", 'u', 5, NULL}, GW_E_METADATA},
        {{"attention.head_count", 'f', 4, NULL}, GW_E_TYPE},
        {{"attention.head_count_kv", 'u', 0, NULL}, GW_E_METADATA},
        {{"attention.head_count_kv", 'u', 3, NULL}, GW_E_METADATA},
        {{"embedding_length", 'u', 0, NULL}, GW_E_METADATA},
        {{"embedding_length", 0, 0, NULL}, GW_E_METADATA},
        {{"block_count", 'u', 4294967295.0, NULL}, GW_E_METADATA},
        {{"block_count", 'i', -1, NULL}, GW_E_METADATA},
        {{"context_length", 'u', 0, NULL}, GW_E_METADATA},
        {{"feed_forward_length", 't', 0, "x"}, GW_E_TYPE},
        {{"attention.layer_norm_rms_epsilon", 'f', (double)NAN, NULL}, GW_E_METADATA},
        {{"attention.layer_norm_rms_epsilon", 'f', (double)INFINITY, NULL}, GW_E_METADATA},
        {{"attention.layer_norm_rms_epsilon", 'f', -1, NULL}, GW_E_METADATA},
        {{"attention.layer_norm_rms_epsilon", 'u', 0, NULL}, GW_E_TYPE},
        {{"attention.layer_norm_rms_epsilon", 0, 0, NULL}, GW_E_METADATA},
        {{"attention.value_length", 'u', 0, NULL}, GW_E_METADATA},
        {{"rope.dimension_count", 'u', 4096, NULL}, GW_E_METADATA},
        {{"rope.dimension_count", 'u', 15, NULL}, GW_E_METADATA},
        {{"rope.dimension_count", 'u', 0, NULL}, GW_E_METADATA},
        {{"rope.freq_base", 'f', 0, NULL}, GW_E_METADATA},
        {{"rope.freq_base", 'f', (double)NAN, NULL}, GW_E_METADATA},
        {{"rope.scaling.factor", 'f', (double)NAN, NULL}, GW_E_METADATA},
        {{"rope.scaling.type", 't', 0, "su"}, GW_E_UNSUPPORTED},
        {{"rope.scaling.type", 'u', 1, NULL}, GW_E_TYPE},
        {{"expert_count", 'u', 8, NULL}, GW_E_UNSUPPORTED},
        {{"vocab_size", 0, 0, NULL}, GW_E_METADATA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_hparams hp = {.n_layers = -7};
        gw_status got = settle_gguf((const entry *const[]){&rows[i].change, NULL, NULL, NULL}, &hp);
        if (got != rows[i].want || hp.n_layers != -7) {
            fail_msg("%s %c %g: %s (%s)", rows[i].change.key, rows[i].change.type,
                     rows[i].change.number, gw_status_name(got), gw_error_text());
        }
    }
}

static int begin(void **state) {
    (void)state;
    arena = gw_arena_new();
    return arena == NULL;
}

static int end(void **state) {
    (void)state;
    gw_arena_free(arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),     cmocka_unit_test(test_both_spellings),
        cmocka_unit_test(test_windows),   cmocka_unit_test(test_impossible_configs),
        cmocka_unit_test(test_json_text), cmocka_unit_test(test_gguf_keys),
        cmocka_unit_test(test_gguf_yarn), cmocka_unit_test(test_impossible_gguf),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
