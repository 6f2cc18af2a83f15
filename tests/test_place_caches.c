/* tests/test_place_caches.c - caches of a card's layers in main memory: which layers, how many
 * bytes where, one text, and when fewer layers on the card are better. The card is twin_device.h's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/placing/cache_time.h"
#include "core/engine/placing/gauge.h"
#include "core/engine/run/kv.h"
#include "core/engine/run/session_state.h"
#include "tests/reference_files.h"
#include "tests/twin_device.h"

static const char *const small = "tests/data/tales-2m-q4_0.gguf";
static uint64_t mapped, home_memory; /* 0: the machine's */

static void home_describe(const struct gw_device *device, int ordinal, gw_device_info *out) {
    gw_backend_cpu.describe(device, ordinal, out);
    out->free_bytes = home_memory > 0 ? home_memory : out->free_bytes;
}

static gw_backend home;
static const gw_backend *const homes[] = {&home, &backend, NULL};

static gw_status twin_mapped(struct gw_device *device, size_t bytes, size_t page_bytes,
                             struct gw_buffer **out) {
    if (page_bytes > 0 && bytes % page_bytes != 0) {
        return gw_fail(GW_E_BOUNDS, "twin", "%zu bytes are no whole pages", bytes);
    }
    mapped += bytes;
    return gw_backend_cpu.alloc(device, bytes, out);
}

static int reset_mapped(void **state) {
    mapped = home_memory = 0;
    (void)reset(state);
    home = gw_backend_cpu;
    home.describe = home_describe;
    backend.alloc_mapped = twin_mapped;
    return 0;
}

/* ---- which layers ------------------------------------------------------------------------------
 */

enum { LAYERS = 8 };

static void check_host(const gw_place *place, const gw_place_caches *caches, const char *want) {
    unsigned char host[LAYERS];
    char have[LAYERS + 1] = "";
    gw_place_host_caches(place, caches, host);
    for (int l = 0; l < LAYERS; l++) {
        have[l] = (char)('0' + host[l]);
    }
    assert_string_equal(have, want);
}

static void test_which_layers(void **state) {
    (void)state;
    static const uint64_t bytes[LAYERS] = {10, 90, 10, 90, 90, 0, 90, 10};
    static const int at[LAYERS] = {0, 1, 1, 1, 2, 2, 2, 2};
    gw_place place = {.n_devices = 3, .n_layers = LAYERS};
    gw_place_caches caches = {.bytes = bytes, .at = at};
    static const struct {
        int hosted;
        const char *want;
    } counts[] = {{0, "00000000"}, {1, "00000010"}, {2, "00010010"}, {3, "00011010"},
                  {4, "01011010"}, {5, "01011011"}, {6, "01111011"}, {INT32_MAX, "01111011"}};
    place.devices[0].backend = &gw_backend_cpu; /* the layer at home has its cache there anyway */
    place.devices[1].backend = place.devices[2].backend = &backend;
    place.hosting = GW_HOST_COUNT;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        place.hosted = counts[i].hosted;
        check_host(&place, &caches, counts[i].want);
    }
    static const struct {
        uint64_t first, second;
        const char *want;
    } rooms[] = {{190, 190, "00000000"}, {189, 190, "01000000"},
                 {100, 190, "01000000"}, {99, 190, "01010000"},
                 {9, 99, "01111010"},    {0, 0, "01111011"},
                 {190, 9, "00001011"},   {UINT64_MAX, UINT64_MAX, "00000000"}};
    place.hosting = GW_HOST_AUTO;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        caches.room[0] = UINT64_MAX;
        caches.room[1] = rooms[i].first;
        caches.room[2] = rooms[i].second;
        check_host(&place, &caches, rooms[i].want);
    }
    place.hosting = GW_HOST_NONE;
    check_host(&place, &caches, "00000000");
    backend.alloc_mapped = NULL; /* a card that cannot */
    place.hosting = GW_HOST_AUTO;
    check_host(&place, &caches, "00000000");
}

static void test_words(void **state) {
    (void)state;
    static const struct {
        const char *text;
        gw_hosting hosting;
        int32_t hosted;
    } good[] = {{NULL, GW_HOST_AUTO, 0},    {"auto", GW_HOST_AUTO, 0},
                {"none", GW_HOST_COUNT, 0}, {"all", GW_HOST_COUNT, INT32_MAX},
                {"7", GW_HOST_COUNT, 7},    {"99999999999", GW_HOST_COUNT, INT32_MAX}};
    static const char *const bad[] = {"", "-1", "3x", "some", " 1"};
    gw_place place = {.n_layers = 1};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(gw_place_read_hosting(&place, good[i].text), GW_OK);
        assert_int_equal(place.hosting, good[i].hosting);
        assert_int_equal(place.hosted, good[i].hosted);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(gw_place_read_hosting(&place, bad[i]), GW_E_ARGUMENT);
        assert_non_null(strstr(gw_error_text(), "neither a number of layers"));
    }
}

/* ---- a model -----------------------------------------------------------------------------------
 */

static gw_model *open_model(gw_model_options o) {
    gw_model *m = NULL;
    o.path = small;
    o.threads = 2;
    o.device = o.device != NULL ? o.device : "twin";
    o.chunk = 16;
    if (gw_engine_open(&o, registry, &m) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return m;
}

static gw_session *open_session(gw_model *m, int32_t n_ctx) {
    gw_session_options o = {.n_ctx = n_ctx, .chunk = 16};
    gw_session *s = NULL;
    if (gw_session_new(m, &o, &s) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return s;
}

static int hosted(const gw_session *s) {
    int n = 0;
    for (int l = 0; l < s->kv.n_layers; l++) {
        n += s->kv.in_host[l];
    }
    return n;
}

/* The logits after a prompt of more than a page and a token. */
static float *last_logits(gw_session *s, size_t *n) {
    int32_t ids[70];
    for (int i = 0; i < 70; i++) {
        ids[i] = 3 + i * 37 % 290;
    }
    gw_model_info info;
    gw_model_describe(s->model, &info);
    *n = (size_t)info.n_vocab * sizeof(float);
    assert_int_equal(gw_session_prefill(s, ids, 70), GW_OK);
    assert_int_equal(gw_session_decode(s, ids, 1), GW_OK);
    float *out = malloc(*n);
    assert_non_null(out);
    memcpy(out, gw_session_logits(s, 0), *n);
    return out;
}

/* Those of every session are the first one's. */
static void same_logits(gw_session *s, float **want) {
    size_t bytes;
    float *have = last_logits(s, &bytes);
    *want = *want != NULL ? *want : have;
    assert_memory_equal(have, *want, bytes);
    if (have != *want) {
        free(have);
    }
}

/* The last row's, of all layers on the card. */
static gw_forecast *forecast(const char *layers, uint64_t budget) {
    gw_model_options o = {.path = small,
                          .device = "twin",
                          .offload_layers = "0",
                          .vram_budget = budget,
                          .n_ctx = 256,
                          .chunk = 16,
                          .threads = 1,
                          .kv_host_layers = layers};
    gw_forecast *f = NULL;
    if (gw_engine_forecast(&o, homes, &f) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    return f;
}

/* Byte by byte less room: one layer's cache more in main memory each time, until all are there;
 * what the forecast says is what a session allocates, and the logits stay. */
static void test_budget(void **state) {
    (void)state;
    gw_forecast *f = forecast("none", 0);
    const gw_forecast_use *use = &f->rows[f->n_layers].use[1];
    const int n = f->n_layers;
    const uint64_t layer = use->kv / (uint64_t)n, all = use->weights + use->kv + use->scratch;
    float *want = NULL;
    gw_forecast_free(f);
    for (int k = 0; k <= n; k++) {
        uint64_t budget = all - (uint64_t)k * layer;
        gw_model *m = open_model((gw_model_options){.vram_budget = budget, .n_ctx = 256});
        twin.allocated = mapped = 0;
        gw_session *s = open_session(m, 256);
        assert_int_equal(hosted(s), k);
        assert_int_equal(mapped, (uint64_t)k * layer);
        assert_int_equal(strstr(m->place.note, "in main memory") != NULL, k > 0);
        same_logits(s, &want);
        gw_session_free(s);
        f = forecast("auto", budget);
        assert_int_equal(f->rows[n].fits, 1);
        assert_int_equal(f->caches[n].layers[1], k);
        assert_int_equal(f->caches[n].bytes[1], (uint64_t)k * layer);
        assert_int_equal(f->rows[n].use[1].kv, (uint64_t)(n - k) * layer);
        assert_true((f->caches[n].full_seconds > 0.0) == (k > 0));
        gw_forecast_free(f);
        if (k == 0) { /* a session of a longer context than layers were placed for */
            s = open_session(m, 512);
            assert_in_range(hosted(s), 1, n);
            gw_session_free(s);
        }
        gw_model_free(m);
    }
    free(want);
    gw_model_options o = {.path = small, .device = "twin", .n_ctx = 256, .chunk = 16};
    gw_model *m = NULL;
    o.vram_budget = all - (uint64_t)n * layer - 1;
    assert_int_equal(gw_engine_open(&o, registry, &m), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "in main memory"));
    o.vram_budget = all - 1;
    o.kv_host_layers = "none";
    assert_int_equal(gw_engine_open(&o, registry, &m), GW_E_NOMEM);
    assert_null(strstr(gw_error_text(), "in main memory"));
}

/* Main memory has room for the caches of all layers, and one byte less. */
static void test_main_memory(void **state) {
    (void)state;
    gw_model_options o = {
        .path = small, .device = "twin", .n_ctx = 256, .chunk = 16, .kv_host_layers = "all"};
    gw_model *m = NULL;
    gw_forecast *f = forecast("all", 0);
    const int n = f->n_layers;
    const uint64_t all = f->caches[n].bytes[1];
    assert_int_equal(f->rows[n].fits, 1);
    gw_forecast_free(f);
    home_memory = all;
    f = forecast("all", 0);
    for (int i = 0; i <= n; i++) { /* those of the CPU are there, too */
        assert_int_equal(f->rows[i].fits, 1);
    }
    gw_forecast_free(f);
    assert_int_equal(gw_engine_open(&o, homes, &m), GW_OK);
    gw_model_free(m);
    home_memory = all - 1;
    f = forecast("all", 0);
    for (int i = 0; i <= n; i++) {
        assert_int_equal(f->rows[i].fits, 0);
    }
    gw_forecast_free(f);
    assert_int_equal(gw_engine_open(&o, homes, &m), GW_E_NOMEM);
    assert_non_null(strstr(gw_error_text(), "of main memory"));
    o.device = "cpu"; /* a model may be opened for shorter texts than its options say */
    assert_int_equal(gw_engine_open(&o, homes, &m), GW_OK);
    gw_model_free(m);
}

/* Two cards by layers, and both for each layer: a part of each card's. */
static void test_several_cards(void **state) {
    (void)state;
    static const char *const modes[] = {"layer", "tensor"};
    float *want = NULL;
    for (int i = 0; i < 4; i++) {
        gw_model *m = open_model((gw_model_options){.device = "twin:0,twin:1",
                                                    .split_mode = modes[i / 2],
                                                    .n_ctx = 128,
                                                    .kv_host_layers = i % 2 ? "all" : "1"});
        mapped = 0;
        gw_session *s = open_session(m, 128);
        assert_int_equal(hosted(s), i % 2 ? m->hp.n_layers : 1);
        assert_true(mapped > 0);
        same_logits(s, &want);
        gw_session_free(s);
        gw_model_free(m);
    }
    free(want);
}

static void test_refused(void **state) {
    (void)state;
    gw_model_options o = {.path = small, .device = "twin", .kv_host_layers = "1", .n_ctx = 128};
    gw_model *m = NULL;
    backend.alloc_mapped = NULL;
    assert_int_equal(gw_engine_open(&o, registry, &m), GW_E_UNSUPPORTED);
    assert_non_null(strstr(gw_error_text(), "twin:0 cannot read caches in main memory"));
    o.device = "cpu";
    assert_int_equal(gw_engine_open(&o, registry, &m), GW_OK); /* they are there anyway */
    assert_null(strstr(m->place.note, "main memory"));
    gw_model_free(m);
}

/* ---- what is faster ----------------------------------------------------------------------------
 */

static void test_cache_seconds(void **state) {
    (void)state;
    uint64_t cache[LAYERS];
    int at[LAYERS];
    unsigned char host[LAYERS];
    double want = 0.0;
    for (int l = 0; l < LAYERS; l++) {
        cache[l] = l == 5 ? 0 : 1000;
        at[l] = l >= 3;
        host[l] = l == 4;
        want += l == 5 ? 0.0 : 1000 * (l < 3 ? 0.25 : l == 4 ? 2.0 : 0.125);
    }
    gw_place place = {.n_devices = 2, .n_layers = LAYERS, .n_blocks = 1};
    gw_place_sizes sizes = {.cache = cache, .host = host, .cache_at = at};
    const gw_cache_time times[2] = {{0.25, 0.0}, {0.125, 2.0}};
    assert_true(gw_cache_seconds(&place, &sizes, times) == want);
}

/* Both layers fit on the card with their caches in main memory, or one with its own. A layer there
 * is faster than one with the processor by a second; half of two caches, read over a link, takes
 * more than that or less. */
static void test_choice(void **state) {
    (void)state;
    gw_forecast *f = forecast("none", 0);
    const gw_forecast_use *use = &f->rows[f->n_layers].use[1];
    gw_model_options o = {.vram_budget = use->weights + use->scratch, .n_ctx = 256};
    gw_forecast_free(f);
    gw_model *m = open_model(o);
    gw_weights_options load = {.where = small};
    gw_checkpoint *c = NULL;
    gw_weights *w = NULL;
    gw_place_sizes sizes;
    gw_gauge speeds[GW_GAUGES] = {{.n_points = 1, .at = {1}}, {.n_points = 1, .at = {1}}};
    gw_where *room = calloc((size_t)(m->hp.n_layers + 1) * (size_t)m->place.n_blocks, sizeof *room);
    assert_non_null(room);
    assert_int_equal(gw_checkpoint_open(small, NULL, 0, &c), GW_OK);
    assert_int_equal(gw_weights_open(c, gw_weights_blueprint(m->weights), &load, &w), GW_OK);
    o.chunk = 16;
    assert_int_equal(gw_place_measure(&m->place, w, &m->hp, &o, &sizes), GW_OK);
    for (int d = 0; d < 2; d++) {
        double layer = 0.0;
        for (int b = 0; b < m->place.n_blocks; b++) {
            layer += (double)sizes.bytes[d][b];
        }
        speeds[d].weight_bytes = layer;
        speeds[d].token_body[0] = speeds[d].token_layer = d == 0 ? 2.0 : 1.0;
    }
    assert_int_equal(m->hp.n_layers, 2);
    const double of_layer = 1.0 / (double)sizes.cache[0]; /* a second for half of two */
    const double links[] = {0.5, 0.9, 1.1, 9.0};
    for (int i = 0; i < 4; i++) {
        const gw_cache_time times[2] = {{1e-14, 0.0}, {1e-14, links[i] * of_layer}};
        int experts = 0;
        int best = gw_gauge_best(&m->place, &sizes, speeds, times, room, &experts);
        assert_int_equal(best, links[i] < 1.0 ? m->hp.n_layers : m->hp.n_layers - 1);
        best = gw_gauge_best(&m->place, &sizes, speeds, NULL, room, &experts);
        assert_int_equal(best, m->hp.n_layers);
    }
    free(room);
    gw_place_sizes_free(&sizes);
    gw_weights_free(w);
    gw_checkpoint_free(c);
    gw_model_free(m);
}

/* Times of a real cache: of bytes that are read, on a device that can have them in both places. */
static void test_times(void **state) {
    (void)state;
    gw_forecast *f = forecast("all", 0);
    const int n = f->n_layers;
    assert_int_equal(f->caches[0].layers[1], 0);
    assert_true(f->caches[0].full_seconds > 0.0);
    assert_int_equal(f->caches[n].layers[1], n);
    assert_true(f->caches[n].full_seconds > 0.0 && f->caches[n].full_seconds < 1.0);
    gw_forecast_free(f);
}

int main(void) {
    char folder[] = "/tmp/test_place_caches.XXXXXX", command[96];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_which_layers, reset_mapped),
        cmocka_unit_test_setup(test_words, reset_mapped),
        cmocka_unit_test_setup(test_budget, reset_mapped),
        cmocka_unit_test_setup(test_main_memory, reset_mapped),
        cmocka_unit_test_setup(test_several_cards, reset_mapped),
        cmocka_unit_test_setup(test_refused, reset_mapped),
        cmocka_unit_test(test_cache_seconds),
        cmocka_unit_test_setup(test_choice, reset_mapped),
        cmocka_unit_test_setup(test_times, reset_mapped),
    };
    if (mkdtemp(folder) == NULL || setenv("XDG_CACHE_HOME", folder, 1) != 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0 ? 1 : failed;
}
