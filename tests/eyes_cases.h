/* tests/eyes_cases.h - models that see, out of tests/data/goldens-eyes: a picture opened with the
 * prompt that it stands in, and the bits that a device makes of it. */
#ifndef GW_TESTS_EYES_CASES_H
#define GW_TESTS_EYES_CASES_H

#include "tests/reference_files.h"

#include <math.h>

#include "core/engine/run/tower_state.h"
#include "core/image/patches.h"
#include "include/godwit_see.h"
#include "include/godwit_sleep.h"

enum { PLACEHOLDER = 60 }; /* of all examples: tools/eyes_goldens.py */

typedef struct example {
    reference_file file;
    gw_model *model;
    gw_patches patches;
    gw_tile tile[8];
    gw_sight *sight;
    int32_t *ids, *greedy;
    size_t n, n_greedy;
    gw_seen_rows *seen;
    size_t n_seen;
} example;

static void must(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

/* Tiles [n, 2] of grids, patches one after the other. */
static void read_patches(example *x) {
    const gw_stored *values = reference_find(&x->file, "patches");
    size_t n = 0;
    int32_t *grid = reference_ids(&x->file, "grid", &n);
    x->patches = (gw_patches){.n = values->dim[0],
                              .width = (int32_t)values->dim[1],
                              .values = (float *)(uintptr_t)values->data,
                              .n_tiles = (int32_t)(n / 2),
                              .tile = x->tile};
    int64_t first = 0;
    for (size_t i = 0; i < n / 2; i++) {
        x->tile[i] = (gw_tile){.first = first, .rows = grid[2 * i], .columns = grid[2 * i + 1]};
        first += (int64_t)grid[2 * i] * grid[2 * i + 1];
    }
    free(grid);
}

/* A GGUF file without a vocabulary names no placeholder; all rows stand in one run. */
static void place_rows(example *x) {
    size_t at = 0;
    while (at < x->n && x->ids[at] != PLACEHOLDER) {
        at++;
    }
    x->seen = calloc(1, sizeof *x->seen);
    assert_non_null(x->seen);
    x->seen[0] = (gw_seen_rows){x->sight, 0, gw_sight_rows(x->sight), at};
    x->n_seen = 1;
}

/* mmproj: the tower out of a file; NULL: out of the folder. */
static void open_example(example *x, const char *folder, const char *mmproj, const char *device,
                         int exact) {
    char file[600];
    const char *end = strstr(folder, ".gguf") != NULL ? strrchr(folder, '/') : NULL;
    int bytes = end != NULL ? (int)(end - folder) : (int)strlen(folder);
    memset(x, 0, sizeof *x);
    snprintf(file, sizeof file, "%.*s/golden.safetensors", bytes, folder);
    reference_open(&x->file, file);
    gw_model_options options = {.path = folder, .mmproj = mmproj, .images = 1};
    options.device = device;
    options.exact = exact; /* 0: cards have 16-bit products of float weights */
    options.offload_layers = device != NULL && strcmp(device, "cpu") != 0 ? "all" : NULL;
    must(gw_model_open(&options, &x->model));
    read_patches(x);
    must(gw_model_see(x->model, &x->patches, &x->sight));
    x->ids = reference_ids(&x->file, "input_ids", &x->n);
    x->greedy = reference_ids(&x->file, "greedy_ids", &x->n_greedy);
    gw_eyes eyes;
    assert_true(gw_model_eyes(x->model, &eyes));
    if (eyes.token >= 0) {
        must(gw_see_places(x->model, x->ids, x->n, &x->sight, 1, &x->seen, &x->n_seen));
    } else {
        place_rows(x);
    }
}

static void close_example(example *x) {
    gw_free(x->seen);
    free(x->ids);
    free(x->greedy);
    gw_sight_free(x->sight);
    gw_model_free(x->model);
    reference_close(&x->file);
}

/* Rows of the picture, then logits after the prompt in passes of `chunk`. *n values: free. */
static float *bits_on(const char *folder, const char *device, int exact, const char *kv_type,
                      int32_t chunk, size_t *n) {
    example x;
    gw_session *s;
    gw_model_info info;
    gw_eyes eyes;
    char path[600];
    snprintf(path, sizeof path, "tests/data/goldens-eyes/%s", folder);
    open_example(&x, path, NULL, device, exact);
    gw_model_describe(x.model, &info);
    assert_true(gw_model_eyes(x.model, &eyes));
    const gw_session_options options = {.kv_type = kv_type, .chunk = chunk, .n_ctx = 96};
    must(gw_session_new(x.model, &options, &s));
    must(gw_session_prefill_seen(s, x.ids, x.n, x.seen, x.n_seen));
    const size_t rows = (size_t)gw_sight_rows(x.sight) * (size_t)eyes.width;
    const size_t logits = (size_t)info.n_vocab;
    float *out = malloc((rows + logits) * sizeof *out);
    assert_non_null(out);
    memcpy(out, gw_sight_row(x.sight, 0), rows * sizeof *out);
    memcpy(out + rows, gw_session_logits(s, 0), logits * sizeof *out);
    *n = rows + logits;
    gw_session_free(s);
    close_example(&x);
    return out;
}

/* A tower sleeps with its decoder, and makes the same rows when it is awake. moves: its weights
 * leave the device. */
static inline void eyes_asleep(const char *device, int moves) {
    example x;
    gw_sleep_info info;
    gw_eyes eyes;
    gw_model_info model;
    open_example(&x, "tests/data/goldens-eyes/qwen3vl", NULL, device, 1);
    assert_true(gw_model_eyes(x.model, &eyes) && eyes.weight_bytes > 0);
    gw_model_describe(x.model, &model);
    const size_t bytes =
        (size_t)gw_sight_rows(x.sight) * (size_t)eyes.width * sizeof(float);
    for (int round = 1; round < 3; round++) {
        gw_sight *again = NULL;
        must(gw_model_sleep(x.model));
        gw_model_sleep_info(x.model, &info);
        assert_true(info.asleep && (info.kept > model.weight_bytes) == moves);
        assert_int_equal(gw_model_see(x.model, &x.patches, &again), GW_E_ARGUMENT);
        assert_null(again);
        must(gw_model_wake(x.model));
        x.patches.digest[0] = (uint8_t)round; /* as another picture, or nothing is computed */
        must(gw_model_see(x.model, &x.patches, &again));
        assert_ptr_not_equal(again, x.sight);
        assert_memory_equal(gw_sight_row(again, 0), gw_sight_row(x.sight, 0), bytes);
        gw_sight_free(again);
    }
    must(gw_model_sleep(x.model));
    close_example(&x); /* asleep */
}

/* Towers and decoders on a device have the bits of the CPU. */
static inline void eyes_on_device(const char *device) {
    static const char *const folder[] = {"qwen3vl", "qwen35",  "qwen25vl",   "mistral3", "gemma3",
                                         "gemma4",  "smolvlm", "internvl6b", "internvl", "lfm2vl",
                                         "glm4v",   "kimivl",  "llama4",     "gemma4e"};
    for (size_t i = 0; i < sizeof folder / sizeof folder[0]; i++) {
        const char *kv = i % 2 == 0 ? "f32" : "f16";
        size_t n = 0, m = 0;
        float *want = bits_on(folder[i], "cpu", 1, kv, 64, &n);
        float *have = bits_on(folder[i], device, 1, kv, 13, &m);
        print_message("%s, %s\n", folder[i], kv);
        assert_int_equal(n, m);
        assert_memory_equal(have, want, n * sizeof *have);
        free(want);
        free(have);
    }
}

/* Rows of the picture without exact, on a device with 16-bit matrix units: those of the CPU but
 * for what binary16 costs, and not its bits. Random layers keep errors: Gemma 4's have 1.1%. */
static inline void eyes_in_halves(const char *device) {
    static const char *const folder[] = {"qwen3vl", "qwen25vl", "gemma4"};
    for (size_t i = 0; i < sizeof folder / sizeof folder[0]; i++) {
        size_t n = 0, m = 0;
        float *want = bits_on(folder[i], "cpu", 1, "f32", 64, &n);
        float *have = bits_on(folder[i], device, 0, "f32", 64, &m);
        double power = 0.0, off = 0.0;
        assert_int_equal(n, m);
        for (size_t k = 0; k < n; k++) {
            power += (double)want[k] * (double)want[k];
            off += ((double)have[k] - (double)want[k]) * ((double)have[k] - (double)want[k]);
        }
        print_message("%s: %.1e\n", folder[i], sqrt(off / power));
        assert_true(off > 0.0 && off < 4e-4 * power);
        free(want);
        free(have);
    }
}

extern const gw_backend *const gw_backends[];

/* Rows of the example's picture by a tower out of its own file, whose largest tile is known. */
static inline gw_tower *rows_of_file(const char *folder, const char *device, float **rows,
                                     size_t *n) {
    char path[600], file[640];
    example x = {.sight = NULL};
    gw_tower *t;
    gw_sight *s;
    snprintf(path, sizeof path, "tests/data/goldens-eyes/%s/golden.safetensors", folder);
    snprintf(file, sizeof file, "tests/data/goldens-eyes/%s/mmproj.gguf", folder);
    const gw_model_options o = {.path = file, .mmproj = file, .device = device, .exact = 1};
    reference_open(&x.file, path);
    read_patches(&x);
    must(gw_tower_open(&o, gw_backends, 1, &t));
    must(gw_tower_see(t, &x.patches, NULL, NULL, &s));
    *n = (size_t)s->n_rows * (size_t)s->width;
    *rows = malloc(*n * sizeof **rows);
    assert_non_null(*rows);
    memcpy(*rows, s->rows, *n * sizeof **rows);
    gw_sight_free(s);
    reference_close(&x.file);
    return t;
}

/* Memory for the largest picture is taken when a tower is opened, no more than is foretold, and
 * what a smaller one becomes in it has the bits of the CPU. */
static inline void eyes_reserved(const char *device) {
    static const char *const folder[] = {"qwen25vl", "gemma4"};
    for (size_t i = 0; i < sizeof folder / sizeof folder[0]; i++) {
        float *want, *have;
        size_t n, m;
        gw_device_info now;
        gw_tower *t = rows_of_file(folder[i], "cpu", &want, &n);
        gw_tower_free(t);
        t = rows_of_file(folder[i], device, &have, &m);
        assert_int_equal(n, m);
        assert_memory_equal(have, want, n * sizeof *have);
        const gw_place *place = &t->model->place;
        assert_true(t->most > 0 && place->n_devices == 2 && t->room.rows >= t->most);
        place->devices[1].backend->describe(place->devices[1].device, 0, &now);
        const uint64_t taken = place->info[1].free_bytes - now.free_bytes;
        print_message("%s: %llu bytes of %llu\n", folder[i], (unsigned long long)taken,
                      (unsigned long long)(t->use[1].weights + gw_tower_scratch(t, 1)));
        assert_true(now.free_bytes <= place->info[1].free_bytes);
        assert_true(taken <= t->use[1].weights + gw_tower_scratch(t, 1));
        gw_tower_free(t);
        free(want);
        free(have);
    }
}

#endif
