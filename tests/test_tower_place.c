/* tests/test_tower_place.c - memory of vision towers on a card: what is foretold is what is taken,
 * all of it before the first picture, and a budget holds for towers, layers and sessions together.
 */
#include "core/engine/run/tower_state.h"
#include "tests/reference_files.h"
#include "tests/twin_device.h"

static gw_model_options seeing(const char *folder, char path[2][200]) {
    snprintf(path[0], 200, "tests/data/goldens-eyes/%s", folder);
    snprintf(path[1], 200, "tests/data/goldens-eyes/%s/mmproj.gguf", folder);
    return (gw_model_options){.path = path[0],
                              .mmproj = path[1],
                              .images = 1,
                              .device = "twin:1",
                              .n_ctx = 96,
                              .chunk = 16,
                              .threads = 2};
}

static gw_status count_tile(gw_tower *t, int32_t patches) {
    const int32_t columns = t->merge, rows = patches / columns / t->merge * t->merge;
    gw_tile tile = {.rows = rows, .columns = columns};
    gw_patches p = {.n = (int64_t)rows * columns, .n_tiles = 1, .tile = &tile};
    gw_tower_ops ops = {.floats = 0.0};
    gw_status status = gw_tower_count(t, &p, 0, &ops);
    if (status != GW_OK) {
        print_message("%d patches: %s\n", (int)patches, gw_error_text());
    }
    return status;
}

/* What is foretold of a tower is what it takes of a card, to the byte but for what kernels work
 * with; and it takes all of it when it is opened. */
static void test_tower_bytes(void **state) {
    (void)state;
    static const char *const folders[] = {"qwen3vl", "qwen25vl", "gemma4", "llama4"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char path[2][200];
        const gw_model_options o = seeing(folders[i], path);
        gw_eyes_need need;
        gw_tower *t;
        twin.allocated = twin.loaded = 0;
        assert_int_equal(gw_engine_eyes_forecast(&o, registry, &need), GW_OK);
        assert_int_equal(twin.allocated + twin.loaded, 0);
        assert_string_equal(need.device, "twin:1");
        assert_int_equal(gw_tower_open(&o, registry, 1, &t), GW_OK);
        assert_int_equal(t->most, need.patches);
        assert_true(t->most > 0);
        assert_int_equal(t->use[1].weights, need.weights);
        assert_int_equal(gw_tower_scratch(t, 1), need.scratch);
        assert_int_equal(twin.allocated + twin.loaded, t->use[1].weights + t->use[1].memory);
        twin.fail_alloc = 1; /* nothing more for any picture */
        for (int32_t n = t->merge * t->merge; n <= t->most; n = n < 100 ? 2 * n : n + n / 3) {
            assert_int_equal(count_tile(t, n), GW_OK);
        }
        assert_int_equal(count_tile(t, t->most), GW_OK);
        assert_int_equal(twin.fail_alloc, 1);
        twin.fail_alloc = 0;
        gw_tower_free(t);
    }
}

/* With a budget, tower, layers and a session stay within it; a tower for which there is no room is
 * on the CPU. */
static void test_tower_budget(void **state) {
    (void)state;
    char path[2][200];
    gw_model_options o = seeing("qwen3vl", path);
    const gw_session_options so = {.n_ctx = 96, .chunk = 16};
    int near = 0, home = 0, refusals = 0;
    for (uint64_t budget = 100000; budget < (uint64_t)1 << 31; budget += budget / 3) {
        gw_model *m = NULL;
        gw_session *s = NULL;
        o.vram_budget = budget;
        twin.allocated = twin.loaded = 0;
        gw_status status = gw_engine_open(&o, registry, &m);
        refusals += status != GW_OK;
        if (status != GW_OK) {
            assert_int_equal(status, GW_E_NOMEM);
            continue;
        }
        int on = m->tower->model->place.n_devices > 1; /* one that fell back has the CPU alone */
        near += on;
        home += !on;
        assert_int_equal(gw_session_new(m, &so, &s), GW_OK);
        assert_true(twin.allocated + twin.loaded <= budget);
        gw_session_free(s);
        gw_model_free(m);
    }
    assert_true(near > 0 && home > 0 && refusals > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_tower_bytes, reset),
        cmocka_unit_test_setup(test_tower_budget, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
