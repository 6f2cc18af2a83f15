/* tests/test_place.c - layers spread over devices: one text for every N, what has no kernel, what
 * does not fit, what fails. The second device is that of twin_device.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/placing/gauge.h"
#include "core/engine/run/kv.h"
#include "core/engine/run/model_state.h"
#include "tests/reference_files.h"
#include "tests/sanitized.h"
#include "tests/twin_device.h"

/* ---- one text ----------------------------------------------------------------------------------
 */

enum { N_IDS = 80, N_DECODE = 37 };

static const char *const small = "tests/data/tales-2m-q4_0.gguf";

static gw_model *open_model(const gw_model_options *options) {
    gw_model_options o = *options;
    gw_model *m = NULL;
    o.path = o.path != NULL ? o.path : small;
    o.threads = 2;
    if (gw_engine_open(&o, registry, &m) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return m;
}

static gw_status refused(const gw_model_options *options) {
    gw_model_options o = *options;
    gw_model *m = NULL;
    o.path = o.path != NULL ? o.path : small;
    gw_status status = gw_engine_open(&o, registry, &m);
    assert_int_not_equal(status, GW_OK);
    assert_null(m);
    return status;
}

typedef struct text {
    float *rows; /* all logits that a timeline hands out */
    size_t n, v;
} text;

static int keep_row(void *user, size_t row, const float *logits) {
    text *t = user;
    (void)row;
    memcpy(t->rows + t->n++ * t->v, logits, t->v * sizeof *logits);
    return 0;
}

/* A prompt in chunks, decoding in all widths, a rewind into the prompt, and on. */
static text run_model(gw_model *m, const char *kv_type) {
    static const size_t widths[] = {1, 5, 1, 16, 2, 3, 8};
    gw_model_info info;
    gw_model_describe(m, &info);
    int32_t ids[N_IDS + N_DECODE];
    uint32_t x = 7;
    for (int i = 0; i < N_IDS + N_DECODE; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(x >> 8) % info.n_vocab;
    }
    text t = {.v = (size_t)info.n_vocab};
    t.rows = calloc((N_IDS + 2 * N_DECODE) * t.v, sizeof *t.rows);
    assert_non_null(t.rows);
    gw_session_options o = {.n_ctx = 256, .chunk = 23, .kv_type = kv_type};
    gw_session *s = NULL;
    if (gw_session_new(m, &o, &s) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    if (gw_session_prefill_rows(s, ids, N_IDS, 0, keep_row, &t) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    for (size_t i = 0, at = N_IDS; i < sizeof widths / sizeof widths[0]; at += widths[i++]) {
        assert_int_equal(gw_session_decode(s, ids + at, widths[i]), GW_OK);
        for (size_t r = 0; r < widths[i]; r++) {
            keep_row(&t, r, gw_session_logits(s, r));
        }
    }
    assert_int_equal(gw_session_rewind(s, 50), GW_OK);
    assert_int_equal(gw_session_prefill(s, ids + 60, 30), GW_OK);
    keep_row(&t, 0, gw_session_logits(s, 0));
    assert_int_equal(gw_session_decode(s, ids, 1), GW_OK);
    keep_row(&t, 0, gw_session_logits(s, 0));
    gw_session_free(s);
    return t;
}

static void compare(gw_model *m, const char *kv_type, const text *want, const char *what) {
    text have = run_model(m, kv_type);
    assert_int_equal(have.n, want->n);
    if (memcmp(have.rows, want->rows, want->n * want->v * sizeof(float)) != 0) {
        fail_msg("%s: other bits than on one device", what);
    }
    free(have.rows);
    gw_model_free(m);
}

static text on_cpu(const char *path, const char *kv_type) {
    gw_model_options o = {.path = path};
    gw_model *m = open_model(&o);
    text t = run_model(m, kv_type);
    gw_model_free(m);
    return t;
}

static int layers_of(const char *path) {
    gw_model_options o = {.path = path};
    gw_model *m = open_model(&o);
    gw_model_info info;
    gw_model_describe(m, &info);
    gw_model_free(m);
    return info.n_layers;
}

/* Every N with these options, compared with the CPU. */
static void check_every_n(const gw_model_options *options, const char *kv_type) {
    text want = on_cpu(options->path, kv_type);
    int n_layers = layers_of(options->path);
    for (int n = 0; n <= n_layers; n++) {
        gw_model_options o = *options;
        char count[16], what[96];
        snprintf(count, sizeof count, "%d", n);
        snprintf(what, sizeof what, "%s on %s, N = %d", o.path ? o.path : small, o.device, n);
        o.offload_layers = count;
        gw_model *m = open_model(&o);
        assert_int_equal(m->place.offloaded, n);
        compare(m, kv_type, &want, what);
    }
    free(want.rows);
}

static void test_every_n(void **state) {
    (void)state;
    gw_model_options o = {.device = "twin"};
    check_every_n(&o, NULL);
    check_every_n(&o, "f32");
    o.path = "tests/data/tales-2m-q4_k_m.gguf";
    check_every_n(&o, NULL);
}

static void test_every_n_of_other_formats(void **state) {
    (void)state;
    static const char *const shared[] = {"models/tales-2m-q8_0.gguf", "models/tales-2m-f16.gguf",
                                         "models/tales-2m-iq4_xs.gguf", "models/tales-2m",
                                         "models/tales-21m-q4_k_m.gguf"};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i += TEST_SANITIZED ? 3 : 1) {
        char path[512];
        snprintf(path, sizeof path, "%s", shared_path(shared[i]));
        gw_model_options o = {.path = path, .device = "twin"};
        check_every_n(&o, NULL);
    }
}

static void test_hidden_memory(void **state) {
    (void)state;
    twin.hidden = 1;
    gw_model_options o = {.device = "twin:1,twin:0", .split = "1,1"};
    check_every_n(&o, NULL);
}

static void test_several_devices(void **state) {
    (void)state;
    static const char *const splits[] = {"3,1", "1,0", "0,1", "1,7"};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i += 1 + TEST_SANITIZED) {
        gw_model_options o = {.device = "twin:0,twin:1", .split = splits[i]};
        check_every_n(&o, NULL);
        o.device = "twin,cpu";
        check_every_n(&o, NULL);
    }
}

/* Devices that compute a layer together, through the host: the text of one. */
static void test_groups(void **state) {
    (void)state;
    static const struct {
        const char *device, *mode, *groups, *split, *layers, *kv_type;
    } cases[] = {
        {"twin:0,twin:1", "tensor", NULL, NULL, NULL, NULL},
        {"cpu,twin:1", "tensor", NULL, "1,3", "1", "q8_0"},
        {"twin:0,cpu,twin:1", "hybrid", "0;1,2", NULL, NULL, "q8_0"},
        {"cpu,twin:1", "tensor", NULL, "1,3", "1", "q4_0"},
        {"twin:0,twin:1", "tensor", NULL, NULL, NULL, "q8_0,q4_0"},
        {"twin:0,cpu,twin:1", "hybrid", "0,1;2", NULL, "1", NULL},
        {"twin:0,twin:1", "auto", NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_model_options o = {.device = cases[i].device,
                              .split_mode = cases[i].mode,
                              .groups = cases[i].groups,
                              .split = cases[i].split,
                              .offload_layers = cases[i].layers};
        text want = on_cpu(NULL, cases[i].kv_type);
        gw_model *m = open_model(&o);
        assert_true(m->place.grouped || strcmp(o.split_mode, "auto") == 0);
        compare(m, cases[i].kv_type, &want, o.split_mode);
        free(want.rows);
    }
}

/* What the second device cannot do, the first does. */
static void test_declined(void **state) {
    (void)state;
    text want = on_cpu(NULL, NULL), wide = on_cpu(NULL, "f32");
    for (int op = 0; op < GW_OP_COUNT; op++) {
        twin.declined = op;
        gw_model_options o = {.device = "twin"};
        gw_model *m = open_model(&o);
        gw_model_info info;
        gw_model_describe(m, &info);
        int in_layer = op != GW_OP_EMBED && op != GW_OP_PICK && op != GW_OP_QUANTIZE &&
                       op < GW_OP_SAMPLE; /* later ops do not occur in this model */
        assert_int_equal(in_layer, strstr(info.note, "no kernel") != NULL);
        if (op != GW_OP_PICK) { /* rows are picked where the stream is */
            compare(m, NULL, &want, info.note);
        } else {
            gw_model_free(m);
        }
    }
    twin.declined = GW_OP_ATTENTION; /* only known when a session asks for such a cache */
    twin.declined_cache = GW_FMT_F32;
    gw_model_options o = {.device = "twin"};
    compare(open_model(&o), "f32", &wide, "a cache of floats");
    compare(open_model(&o), NULL, &want, "the usual cache");
    free(want.rows);
    free(wide.rows);
}

/* Is every table of n-grams on device d? */
static int tables_are_on(const gw_model *m, int d) {
    const gw_blueprint *bp = gw_weights_blueprint(m->weights);
    int all = 1, n = 0;
    for (int at = 0; at < m->hp.n_layers * bp->n_blocks; at++) {
        const gw_spec_block *b = &bp->block[at % bp->n_blocks];
        if (b->kind == GW_BLOCK_NGRAM && gw_block_runs(b, &m->hp, at / bp->n_blocks)) {
            all &= m->place.where[at] == d;
            n++;
        }
    }
    assert_true(n > 0);
    return all;
}

/* Tables of n-grams go with the layers where there is room, else they stay in main memory. */
static void test_tables(void **state) {
    (void)state;
    gw_model_options o = {.path = shared_path("goldens/qwen4-exp"), .device = "twin"};
    text want = on_cpu(o.path, NULL);
    gw_model *m = open_model(&o);
    assert_true(tables_are_on(m, 1));
    assert_null(strstr(m->place.note, "n-grams"));
    for (int at = 0; at < (m->hp.n_layers + 1) * m->place.n_blocks; at++) {
        assert_int_equal(m->place.where[at], 1); /* nothing crosses */
    }
    compare(m, NULL, &want, "tables beside their layers");
    uint64_t low = 1, high = 1 << 30; /* the least that all layers fit in */
    while (low < high) {
        o.vram_budget = low + (high - low) / 2;
        int fits = gw_engine_open(&o, registry, &m) == GW_OK;
        if (fits) {
            gw_model_free(m);
        }
        low = fits ? low : o.vram_budget + 1;
        high = fits ? o.vram_budget : high;
    }
    o.vram_budget = low;
    m = open_model(&o);
    assert_true(tables_are_on(m, 0));
    assert_non_null(strstr(m->place.note, "tables of n-grams stay in main memory"));
    compare(m, NULL, &want, "tables in main memory");
    free(want.rows);
    /* Cards that share layers; an embedding in front of streams. */
    gw_model_options shared = {.device = "twin:0,twin:1", .split_mode = "tensor"};
    shared.path = shared_path("goldens/deepseek-v4");
    want = on_cpu(shared.path, NULL);
    compare(open_model(&shared), NULL, &want, "streams of several cards");
    free(want.rows);
}

/* ---- names --------------------------------------------------------------------------------------
 */

static void check_device(const char *device, const char *offload, const char *want) {
    gw_model_options o = {.device = device, .offload_layers = offload};
    gw_model *m = open_model(&o);
    gw_model_info info;
    gw_model_describe(m, &info);
    if (strstr(info.device, want) == NULL) {
        fail_msg("'%s' is '%s', not '%s'", device ? device : "(none)", info.device, want);
    }
    gw_model_free(m);
}

static void test_names(void **state) {
    (void)state;
    check_device(NULL, NULL, "cpu (");
    check_device("cpu", NULL, "cpu (");
    check_device("cpu:0", NULL, "cpu (");
    check_device("twin", NULL, "twin:0 (");
    check_device("twin:1", NULL, "twin:1 (");
    check_device("processor b", NULL, "twin:1 (Second Processor B)");
    check_device("ref", NULL, "ref (");
    check_device("twin", "1", "1 layer and the head");
    check_device("twin", "999", "twin:0 (");
    check_device(NULL, "all", "twin:0 (");
    check_device(NULL, "0", "cpu (");
}

static void test_bad_names(void **state) {
    (void)state;
    static const struct {
        const char *device, *offload, *split;
        gw_status status;
        const char *word;
    } cases[] = {
        {"hal", NULL, NULL, GW_E_DEVICE, "'hal' is not on this machine; there are cpu ("},
        {"twin:2", NULL, NULL, GW_E_DEVICE, "twin:1 (Second Processor B)"},
        {"twin:x", NULL, NULL, GW_E_DEVICE, "twin:x"},
        {"", NULL, NULL, GW_E_DEVICE, "not on this machine"},
        {"twin,", NULL, NULL, GW_E_DEVICE, "not on this machine"},
        {"twin,twin:0", NULL, NULL, GW_E_ARGUMENT, "twice"},
        {"cpu", "3", NULL, GW_E_ARGUMENT, "offload-layers"},
        {"twin", "-1", NULL, GW_E_ARGUMENT, "'-1' is neither"},
        {"twin", "3x", NULL, GW_E_ARGUMENT, "'3x' is neither"},
        {"twin", "", NULL, GW_E_ARGUMENT, "'' is neither"},
        {"twin,cpu", NULL, "1", GW_E_ARGUMENT, "list of 2 shares"},
        {"twin,cpu", NULL, "1,2,3", GW_E_ARGUMENT, "list of 2 shares"},
        {"twin,cpu", NULL, "1,-2", GW_E_ARGUMENT, "list of 2 shares"},
        {"twin,cpu", NULL, "0,0", GW_E_ARGUMENT, "zero"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_model_options o = {
            .device = cases[i].device, .offload_layers = cases[i].offload, .split = cases[i].split};
        assert_int_equal(refused(&o), cases[i].status);
        if (strstr(gw_error_text(), cases[i].word) == NULL) {
            fail_msg("'%s' lacks '%s'", gw_error_text(), cases[i].word);
        }
    }
}

/* Nothing was named: the CPU computes, and says so. */
static void test_no_device(void **state) {
    (void)state;
    twin.fail_open = 1;
    gw_model_options o = {.offload_layers = "all"};
    gw_model *m = open_model(&o);
    gw_model_info info;
    gw_model_describe(m, &info);
    assert_non_null(strstr(info.note, "the cpu computes"));
    assert_non_null(strstr(info.note, "made to fail"));
    assert_non_null(strstr(info.device, "cpu ("));
    gw_model_free(m);
    o.device = "twin";
    assert_int_equal(refused(&o), GW_E_DEVICE);
}

/* ---- memory -------------------------------------------------------------------------------------
 */

/* What sizes predict is what opening takes: weights and caches to the byte, the rest not more. */
static void test_predicted_bytes(void **state) {
    (void)state;
    int n_layers = layers_of(NULL);
    for (int n = 0; n <= n_layers; n++) {
        char count[16];
        snprintf(count, sizeof count, "%d", n);
        gw_model_options o = {
            .device = "twin:1", .offload_layers = count, .n_ctx = 300, .chunk = 64, .threads = 2};
        gw_session_options so = {.n_ctx = 300, .chunk = 64};
        gw_session *s = NULL;
        twin.allocated = twin.loaded = 0;
        gw_model *m = open_model(&o);
        assert_int_equal(gw_session_new(m, &so, &s), GW_OK);
        gw_model_options vocab = {.path = small};
        gw_checkpoint *c = NULL;
        gw_blueprint *bp = malloc(sizeof *bp);
        gw_weights *w = NULL;
        gw_place_sizes sizes;
        gw_place_use use[GW_MAX_DEVICES];
        gw_weights_options wo = {.where = small};
        assert_non_null(bp);
        assert_int_equal(gw_checkpoint_open(vocab.path, NULL, 0, &c), GW_OK);
        *bp = *gw_weights_blueprint(m->weights);
        assert_int_equal(gw_weights_open(c, bp, &wo, &w), GW_OK);
        assert_int_equal(gw_place_measure(&m->place, w, &m->hp, &o, &sizes), GW_OK);
        assert_int_equal(gw_place_fits(&m->place, &sizes, m->place.where, use, NULL), 1);
        assert_int_equal(use[1].layers, n);
        assert_int_equal(use[1].head, n > 0);
        assert_int_equal(use[1].kv, (uint64_t)n * gw_kv_layer_bytes(m->hp.layer, sizes.kv_fmt,
                                                                    (gw_kv_size){1, sizes.n_ctx, 0,
                                                                                 sizes.chunk}));
        assert_int_equal(use[1].weights, twin.loaded + sizes.vectors);
        if (n > 0) {
            uint64_t more = twin.allocated - sizes.vectors - use[1].kv;
            assert_true(more <= use[1].scratch);
        }
        gw_place_sizes_free(&sizes);
        gw_weights_free(w);
        gw_checkpoint_free(c);
        free(bp);
        gw_session_free(s);
        gw_model_free(m);
    }
}

/* The largest N that a refusal names fits; one more does not. */
static void test_budget(void **state) {
    (void)state;
    int n_layers = layers_of(NULL), seen = 0;
    for (uint64_t budget = 200000; budget < 9000000; budget += 400000) {
        gw_model_options o = {.device = "twin", .vram_budget = budget, .n_ctx = 128, .chunk = 16};
        gw_model *m = NULL;
        o.path = small;
        gw_status status = gw_engine_open(&o, registry, &m);
        if (status == GW_OK) {
            gw_model_free(m);
            continue;
        }
        assert_int_equal(status, GW_E_NOMEM);
        assert_non_null(strstr(gw_error_text(), "may be used"));
        const char *at = strstr(gw_error_text(), "; ");
        int most = at != NULL ? atoi(at + 2) : 0;
        if (strstr(gw_error_text(), "not one layer fits") != NULL) {
            most = 0;
        }
        assert_in_range(most, 0, n_layers - 1);
        seen |= 1 << most;
        char count[16];
        snprintf(count, sizeof count, "%d", most);
        o.offload_layers = count;
        m = open_model(&o);
        assert_int_equal(m->place.offloaded, most);
        gw_model_free(m);
        snprintf(count, sizeof count, "%d", most + 1);
        assert_int_equal(refused(&o), GW_E_NOMEM);
    }
    assert_true((seen & 1) != 0 && seen > 1); /* none, and some, have occurred */
}

/* An allocation that fails at any point leaves nothing behind, and the CPU still works. */
static void test_failing_allocations(void **state) {
    (void)state;
    text want = on_cpu(NULL, NULL);
    int k = 1;
    for (;; k++) {
        gw_model_options o = {.path = small, .device = "twin", .offload_layers = "3"};
        gw_session_options so = {.n_ctx = 128, .chunk = 16};
        gw_model *m = NULL;
        gw_session *s = NULL;
        twin.fail_alloc = k;
        gw_status status = gw_engine_open(&o, registry, &m);
        status = status == GW_OK ? gw_session_new(m, &so, &s) : status;
        int reached = twin.fail_alloc == 0;
        gw_session_free(s);
        gw_model_free(m);
        if (!reached) {
            assert_int_equal(status, GW_OK);
            break;
        }
        assert_int_equal(status, GW_E_NOMEM);
        assert_non_null(strstr(gw_error_text(), "simulated"));
    }
    assert_true(k > 20);
    twin.fail_alloc = 0;
    gw_model_options o = {.device = "cpu"};
    compare(open_model(&o), NULL, &want, "after failures");
    free(want.rows);
}

/* ---- forecasts ----------------------------------------------------------------------------------
 */

static gw_forecast *forecast(const gw_model_options *options) {
    gw_model_options o = *options;
    gw_forecast *f = NULL;
    o.path = small;
    if (gw_engine_forecast(&o, registry, &f) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return f;
}

/* Caches go to a folder of their own. */
static void new_cache(char *folder, size_t room) {
    snprintf(folder, room, "/tmp/test_place.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
}

static void test_forecast(void **state) {
    (void)state;
    char folder[64];
    new_cache(folder, sizeof folder);
    gw_model_options o = {
        .device = "twin:1", .offload_layers = "auto", .n_ctx = 128, .chunk = 16, .threads = 1};
    twin.loaded = 0;
    gw_forecast *f = forecast(&o), *again = forecast(&o);
    assert_int_equal(f->n_rows, f->n_layers + 1);
    assert_int_equal(f->n_devices, 2);
    assert_string_equal(f->devices[1].id, "twin:1");
    for (size_t n = 0; n < f->n_rows; n++) {
        const gw_forecast_row *r = &f->rows[n], *first = &f->rows[0];
        assert_int_equal(r->offloaded, n);
        assert_int_equal(r->use[1].layers, n);
        assert_int_equal(r->use[0].layers + r->use[1].layers, f->n_layers);
        assert_int_equal(r->use[0].head + r->use[1].head, 1);
        assert_int_equal(r->use[0].weights + r->use[1].weights,
                         first->use[0].weights + first->use[1].weights);
        assert_int_equal(r->use[0].kv + r->use[1].kv, first->use[0].kv);
        assert_true(r->fits && r->prompt_rate > 0.0 && r->token_rate > 0.0);
        assert_true(r->token_rate <= f->rows[f->chosen].token_rate);
        /* the second time nothing is measured, so nothing differs; what is disturbed is not kept */
        int kept = !f->disturbed[0] && !f->disturbed[1];
        assert_true(!kept || r->prompt_rate == again->rows[n].prompt_rate);
        assert_true(!kept || r->token_rate == again->rows[n].token_rate);
    }
    gw_forecast_free(f);
    gw_forecast_free(again);
    text want = on_cpu(NULL, NULL);
    compare(open_model(&o), NULL, &want, "auto");
    free(want.rows);
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* A device that has few layers reads them from its caches, and pays once for being asked: not the
 * time of so many layers out of many. */
static void test_time_of_layers(void **state) {
    (void)state;
    enum { LAYERS = 12 };
    static const gw_gauge speeds[2] = {
        {.n_points = 3,
         .at = {1, 2, 4},
         .token_body = {1.0, 3.0, 11.0},
         .token_layer = 4.0,
         .token_rest = 7.0,
         .weight_bytes = 100.0},
        {.n_points = 2,
         .at = {1, 2},
         .token_body = {0.5, 0.75},
         .token_layer = 0.25,
         .token_rest = 1.0,
         .send_token = 0.5,
         .weight_bytes = 100.0},
    };
    static const struct {
        double layers, of_first;
    } bodies[] = {{0, 0}, {0.5, 0.5}, {1, 1}, {1.5, 2}, {2, 3}, {3, 7}, {4, 11}, {5, 15}, {12, 43}};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        assert_true(gw_gauge_body(&speeds[0], bodies[i].layers) == bodies[i].of_first);
    }
    uint64_t bytes[LAYERS + 1];
    gw_hparams hp = {.n_layers = LAYERS};
    gw_place place = {.n_devices = 2, .n_layers = LAYERS, .n_blocks = 1};
    gw_place_sizes sizes = {.hp = &hp, .bytes = {bytes, bytes}};
    for (int i = 0; i <= LAYERS; i++) {
        bytes[i] = 100;
    }
    for (int n = 0; n <= LAYERS; n++) {
        gw_where where[LAYERS + 1];
        double prompt, token;
        for (int i = 0; i <= LAYERS; i++) {
            where[i] = n > 0 && i >= LAYERS - n;
        }
        gw_gauge_predict(&place, &sizes, speeds, where, &prompt, &token);
        double home = gw_gauge_body(&speeds[0], LAYERS - n), away = gw_gauge_body(&speeds[1], n);
        double cross = n > 0 && n < LAYERS ? 0.25 : 0.0;
        assert_true(token == home + away + cross + (n > 0 ? 1.0 : 7.0));
    }
    for (int i = 0; i < LAYERS; i++) {
        bytes[i] = 50; /* counted by bytes */
    }
    gw_where all_home[LAYERS + 1] = {0};
    double prompt, token;
    gw_gauge_predict(&place, &sizes, speeds, all_home, &prompt, &token);
    assert_true(token == 7.0 + 11.0 + 2 * 4.0);
}

/* What devices take together is what they were seen to take together, not a share of what each
 * takes alone. */
static void test_time_of_a_group(void **state) {
    (void)state;
    enum { LAYERS = 4, GROUP = GW_MAX_DEVICES + 1 };
    const gw_gauge alone = {.n_points = 1,
                            .at = {1},
                            .token_body = {8.0},
                            .token_layer = 8.0,
                            .token_rest = 2.0,
                            .prompt_layer = 16.0,
                            .prompt_rest = 1.0,
                            .send_token = 0.5,
                            .weight_bytes = 100.0};
    gw_gauge gauges[GW_GAUGES] = {alone, alone, alone};
    gauges[GROUP] = alone;
    gauges[GROUP].token_body[0] = gauges[GROUP].token_layer = 5.0;
    gauges[GROUP].prompt_layer = 9.0;
    gauges[GROUP].token_rest = 3.0;
    uint64_t bytes[LAYERS + 1] = {100, 100, 100, 100, 100};
    gw_hparams hp = {.n_layers = LAYERS};
    gw_place place = {.n_devices = 3, .n_layers = LAYERS, .n_blocks = 1, .grouped = 1};
    gw_place_sizes sizes = {.hp = &hp, .bytes = {bytes, bytes, bytes}};
    place.group[0] = (gw_group){.n = 1, .device = {0}, .share = {1.0}};
    place.group[1] = (gw_group){.n = 2, .device = {1, 2}, .share = {1.0, 1.0}};
    place.group[2] = (gw_group){.n = 1, .device = {2}, .share = {1.0}};
    const gw_where together[LAYERS + 1] = {1, 1, 1, 1, 1}, mixed[LAYERS + 1] = {0, 1, 1, 1, 1};
    double prompt, token;
    gw_gauge_predict(&place, &sizes, gauges, together, &prompt, &token);
    assert_true(token == 3.0 + 4 * 5.0 && prompt == 1.0 + 4 * 9.0);
    gw_gauge_predict(&place, &sizes, gauges, mixed, &prompt, &token);
    assert_true(token == 3.0 + 8.0 + 3 * 5.0 + 0.5 && prompt == 1.0 + 16.0 + 3 * 9.0);
    gauges[GROUP].drawn_layer = 4.0; /* drawn by the group, where it has everything */
    gauges[GROUP].drawn_rest = 1.5;
    gw_gauge_predict(&place, &sizes, gauges, together, &prompt, &token);
    assert_true(token == 1.5 + 4 * 4.0 && prompt == 1.0 + 4 * 9.0);
    gw_gauge_predict(&place, &sizes, gauges, mixed, &prompt, &token);
    assert_true(token == 3.0 + 8.0 + 3 * 5.0 + 0.5);
    place.grouped = 0; /* each its own layers */
    gw_gauge_predict(&place, &sizes, gauges, together, &prompt, &token);
    assert_true(token == 2.0 + 4 * 8.0);
}

/* ---- --split-mode auto -------------------------------------------------------------------------
 */

/* Links of six devices, told by their addresses: a letter for each as in GODWIT_EMULATOR_LINKS. */
static const char *links;
static char handles[6];

static int linked(const struct gw_device *a, const struct gw_device *b) {
    char x = links[(const char *)(const void *)a - handles];
    char y = links[(const char *)(const void *)b - handles];
    return x == '-' || y == '-' ? 0 : x == y ? 1000 : 500;
}

enum { AUTO_LAYERS = 8 };

/* Made-up times of the groups that there are: a layer takes 8 alone, its part of 8 and an exchange
 * by the slowest link together. */
static void make_gauges(const gw_place *p, double fast, double slow, gw_gauge *gauges) {
    for (int d = 0; d < p->n_devices; d++) {
        const gw_group *g = &p->group[d];
        double layer = 8.0 / g->n;
        for (int i = 0; i < g->n; i++) {
            for (int j = 0; j < i; j++) {
                int rank = linked(p->devices[g->device[i]].device, p->devices[g->device[j]].device);
                double cost = 8.0 / g->n + (rank == 1000 ? fast : slow) * g->n / 2.0;
                layer = cost > layer ? cost : layer;
            }
        }
        gauges[d] = (gw_gauge){.n_points = 1,
                               .at = {1},
                               .token_body = {8.0},
                               .token_layer = 8.0,
                               .send_token = 0.5,
                               .weight_bytes = 100.0};
        gauges[GW_MAX_DEVICES + d] = gauges[d];
        gauges[GW_MAX_DEVICES + d].token_body[0] = layer;
        gauges[GW_MAX_DEVICES + d].token_layer = layer;
    }
}

/* All ways are weighed, and the fastest of those that fit is taken: by numbers. */
static void test_choice_of_a_mode(void **state) {
    (void)state;
    static const struct {
        const char *links, *weighed;
        double fast, slow; /* exchanges of two */
        const char *taken;
    } cases[] = {
        {"aabb", "tensor,layer,hybrid 0,1;2,3", 0.5, 0.5, "tensor"},
        {"aabb", "tensor,layer,hybrid 0,1;2,3", 0.5, 4.0, "hybrid 0,1;2,3"},
        {"aabb", "tensor,layer,hybrid 0,1;2,3", 5.0, 9.0, "layer"},
        {"abab", "tensor,layer,hybrid 0,2;1,3", 0.5, 4.0, "hybrid 0,2;1,3"},
        {"aaaa", "tensor,layer,hybrid 0,1;2,3", 0.5, 0.5, "tensor"},
        {"aaaa", "tensor,layer,hybrid 0,1;2,3", 3.0, 9.0, "hybrid 0,1;2,3"},
        {"aaabbb", "tensor,layer,hybrid 0,1,2;3,4,5,hybrid 0,1;2,3;4,5", 0.5, 9.0,
         "hybrid 0,1,2;3,4,5"},
        {"aa", "tensor,layer", 0.5, 9.0, "tensor"},
        {"aaa", "tensor,layer", 3.0, 9.0, "tensor"},
        {"aab", "tensor,layer,hybrid 0,1;2", 0.5, 9.0, "hybrid 0,1;2"},
        {"----", "tensor,layer", 0.5, 9.0, "layer"},
    };
    gw_backend made_up = {.name = "made up", .link_rank = linked};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_place p = {.n_devices = (int)strlen(cases[i].links) + 1,
                      .n_layers = AUTO_LAYERS,
                      .n_blocks = 1,
                      .equal = 1};
        gw_hparams hp = {.n_layers = AUTO_LAYERS};
        gw_place_sizes sizes = {.hp = &hp};
        uint64_t bytes[AUTO_LAYERS + 1];
        gw_arrangement ways[GW_ARRANGEMENTS];
        gw_gauge gauges[GW_GAUGES];
        double seconds[GW_ARRANGEMENTS];
        char weighed[256] = "";
        links = cases[i].links;
        for (int l = 0; l <= AUTO_LAYERS; l++) {
            bytes[l] = 100;
        }
        p.n_listed = p.n_devices - 1;
        for (int d = 0; d < p.n_devices; d++) {
            sizes.bytes[d] = bytes;
            p.devices[d].backend = &made_up;
            if (d > 0) {
                p.devices[d].device = (struct gw_device *)(void *)&handles[d - 1];
                p.listed[d - 1] = d;
                p.listed_share[d - 1] = 1.0;
            }
        }
        int n = gw_place_arrangements(&p, ways);
        for (int w = 0; w < n; w++) {
            gw_where where[AUTO_LAYERS + 1];
            double prompt;
            size_t used = strlen(weighed);
            snprintf(weighed + used, sizeof weighed - used, "%s%s", w > 0 ? "," : "", ways[w].name);
            assert_int_equal(gw_place_arrange(&p, &ways[w]), GW_OK);
            for (int l = 0; l <= AUTO_LAYERS; l++) {
                int at = l * p.n_asked / AUTO_LAYERS;
                where[l] = (gw_where)p.asked[at < p.n_asked ? at : p.n_asked - 1];
            }
            make_gauges(&p, cases[i].fast, cases[i].slow, gauges);
            gw_gauge_predict(&p, &sizes, gauges, where, &prompt, &seconds[w]);
        }
        assert_string_equal(weighed, cases[i].weighed);
        assert_string_equal(ways[gw_place_fastest(seconds, n)].name, cases[i].taken);
    }
    const double none[] = {-1.0, -1.0}, second[] = {-1.0, 3.0, 3.0};
    assert_int_equal(gw_place_fastest(none, 2), -1);
    assert_int_equal(gw_place_fastest(second, 3), 1);
}

/* The whole way: every arrangement is timed, what is taken is said, and the text is the same. */
static void test_split_mode_auto(void **state) {
    (void)state;
    char folder[64];
    new_cache(folder, sizeof folder);
    gw_model_options o = {.device = "twin:0,twin:1", .split_mode = "auto", .n_ctx = 64, .chunk = 8};
    text want = on_cpu(NULL, NULL);
    gw_model *m = open_model(&o);
    const char *note = strstr(m->place.note, "tokens/s by the forecast: tensor ");
    assert_non_null(note);
    assert_non_null(strstr(note, ", layer "));
    assert_null(strstr(note, "does not fit"));
    int together = strstr(note, "(taken), layer") != NULL;
    assert_int_equal(m->place.grouped, together);
    assert_int_equal(m->place.n_asked, together ? 1 : 2);
    compare(m, NULL, &want, "auto");
    free(want.rows);
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* What the forecast says fits, opens; what it says does not is refused. auto stays within. */
static void test_forecast_within_a_budget(void **state) {
    (void)state;
    char folder[64];
    new_cache(folder, sizeof folder);
    gw_model_options o = {.device = "twin", .vram_budget = 2200000, .n_ctx = 128, .chunk = 16};
    o.offload_layers = "auto";
    gw_forecast *f = forecast(&o);
    int fits = 0;
    for (size_t n = 0; n < f->n_rows; n++) {
        char count[24];
        snprintf(count, sizeof count, "%zu", n);
        gw_model_options one = o;
        one.offload_layers = count;
        if (f->rows[n].fits) {
            gw_model_free(open_model(&one));
            fits++;
        } else {
            assert_int_equal(refused(&one), GW_E_NOMEM);
        }
    }
    assert_in_range(fits, 1, f->n_layers); /* not all */
    assert_true(f->rows[f->chosen].fits);
    gw_model *m = open_model(&o);
    assert_int_equal(m->place.offloaded, f->chosen);
    gw_model_free(m);
    gw_forecast_free(f);
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* A device that fails while it is measured: an error, nothing left behind. */
static void test_failing_measurement(void **state) {
    (void)state;
    char folder[64];
    new_cache(folder, sizeof folder);
    for (int k = 1; k < 40; k += 3) {
        gw_model_options o = {
            .path = small, .device = "twin", .offload_layers = "auto", .n_ctx = 64, .chunk = 8};
        gw_forecast *f = NULL;
        twin.fail_alloc = k;
        gw_status status = gw_engine_forecast(&o, registry, &f);
        if (twin.fail_alloc > 0) {
            assert_int_equal(status, GW_OK);
            gw_forecast_free(f);
            break;
        }
        assert_int_equal(status, GW_E_NOMEM);
        assert_null(f);
    }
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_n, reset),
        cmocka_unit_test_setup(test_every_n_of_other_formats, reset),
        cmocka_unit_test_setup(test_hidden_memory, reset),
        cmocka_unit_test_setup(test_several_devices, reset),
        cmocka_unit_test_setup(test_groups, reset),
        cmocka_unit_test_setup(test_declined, reset),
        cmocka_unit_test_setup(test_tables, reset),
        cmocka_unit_test_setup(test_names, reset),
        cmocka_unit_test_setup(test_bad_names, reset),
        cmocka_unit_test_setup(test_no_device, reset),
        cmocka_unit_test_setup(test_predicted_bytes, reset),
        cmocka_unit_test_setup(test_budget, reset),
        cmocka_unit_test_setup(test_failing_allocations, reset),
        cmocka_unit_test_setup(test_forecast, reset),
        cmocka_unit_test(test_time_of_layers),
        cmocka_unit_test(test_time_of_a_group),
        cmocka_unit_test(test_choice_of_a_mode),
        cmocka_unit_test_setup(test_split_mode_auto, reset),
        cmocka_unit_test_setup(test_forecast_within_a_budget, reset),
        cmocka_unit_test_setup(test_failing_measurement, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
