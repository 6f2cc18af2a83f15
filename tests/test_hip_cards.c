/* tests/test_hip_cards.c - a layer over several cards of the emulator: the bits of one. Prompts,
 * every width of decode, what the cards draw themselves, saved and shifted timelines, batches with
 * drafts, a driver whose queue is short, and a card that goes silent.
 */
#include "tests/batch_cases.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/reference_files.h"

enum { N_IDS = 24, N_DECODE = 136, N_TEXT = 5, MOST = N_IDS + N_DECODE };

static const char *const small = "tests/data/tales-2m-q4_0.gguf";

typedef struct answer {
    float *rows; /* all logits of a timeline */
    size_t n, v;
    int32_t text[2 * N_TEXT]; /* greedy, then drawn */
    char device[512];
} answer;

static void need(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static int keep_row(void *user, size_t row, const float *logits) {
    answer *a = user;
    (void)row;
    assert_true(a->n < MOST);
    memcpy(a->rows + a->n++ * a->v, logits, a->v * sizeof *logits);
    return 0;
}

/* Widths of the passes, up to N_DECODE tokens in all. The emulator takes its time for each. */
static const size_t some_widths[] = {1, 3, 16, 2, 0};
static const size_t all_widths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0};
static const size_t *widths = some_widths;

static void decode(gw_session *s, const int32_t *ids, answer *a) {
    for (size_t i = 0; widths[i] > 0; ids += widths[i++]) {
        need(gw_session_decode(s, ids, widths[i]));
        for (size_t r = 0; r < widths[i]; r++) {
            keep_row(a, r, gw_session_logits(s, r));
        }
    }
}

/* Drawn by the cards where they can, a step ahead of the host. */
static void write_text(gw_model *m, gw_session *s, float temperature, int32_t *out) {
    gw_sampler_options o;
    gw_sampler *sampler = NULL;
    gw_sampler_defaults(&o);
    o.temperature = temperature;
    o.seed = 11;
    need(gw_sampler_new(m, &o, &sampler));
    need(gw_session_rewind(s, N_IDS));
    out[0] = 7;
    for (int i = 0; i + 1 < N_TEXT; i++) {
        if (i == 1 || i == 2) { /* the second is timed, on every card of every group */
            gw_session_profile(s, i == 1);
        }
        need(gw_session_next(s, sampler, out[i], 0, &out[i + 1]));
    }
    gw_sampler_free(sampler);
}

static answer run(const gw_model_options *options) {
    gw_model_options o = *options;
    gw_model *m = NULL;
    gw_model_info info;
    gw_session *s = NULL;
    int32_t ids[N_IDS + N_DECODE];
    uint32_t x = 7;
    o.path = o.path != NULL ? o.path : small;
    o.threads = 2;
    need(gw_model_open(&o, &m));
    gw_model_describe(m, &info);
    answer a = {.v = (size_t)info.n_vocab};
    snprintf(a.device, sizeof a.device, "%s", info.device);
    a.rows = calloc(MOST * a.v, sizeof *a.rows);
    assert_non_null(a.rows);
    for (int i = 0; i < N_IDS + N_DECODE; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)(x >> 8) % info.n_vocab;
    }
    gw_session_options so = {.n_ctx = 192, .chunk = 17};
    need(gw_session_new(m, &so, &s));
    need(gw_session_prefill_rows(s, ids, N_IDS, N_IDS - 9, keep_row, &a));
    decode(s, ids + N_IDS, &a);
    write_text(m, s, 0.0f, a.text);
    write_text(m, s, 0.9f, a.text + N_TEXT);
    gw_session_free(s);
    gw_model_free(m);
    return a;
}

static void same(const gw_model_options *o, const answer *want, const char *devices) {
    answer have = run(o);
    assert_int_equal(have.n, want->n);
    for (size_t i = 0; i < want->n * want->v; i += want->v) {
        if (memcmp(have.rows + i, want->rows + i, want->v * sizeof(float)) != 0) {
            fail_msg("%s, %s, groups %s: other bits than on one device in row %zu of %zu", o->path,
                     o->device, o->groups ? o->groups : "none", i / want->v, want->n);
        }
    }
    for (int i = 0; i < 2 * N_TEXT; i++) {
        if (have.text[i] != want->text[i]) {
            fail_msg("%s, %s: draws token %d, not %d, at %d", o->path, o->device, have.text[i],
                     want->text[i], i);
        }
    }
    if (strstr(have.device, devices) == NULL) {
        fail_msg("runs on %s, not on %s", have.device, devices);
    }
    free(have.rows);
}

static void check(const char *path, const char *const *lists, size_t n) {
    gw_model_options o = {.path = path, .exact = 1};
    answer want = run(&o);
    o.split_mode = "tensor";
    for (size_t i = 0; i < n; i++) {
        o.device = lists[i];
        same(&o, &want, " + ");
    }
    free(want.rows);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static const char *const two[] = {"hip:0,hip:1"};

/* So many of the emulator; a machine may have two. */
static int has_cards(int wanted) {
    gw_device_info rows[64];
    size_t n = gw_devices(rows, 64);
    int cards = 0;
    for (size_t i = 0; i < n && i < 64; i++) {
        cards += strncmp(rows[i].id, "hip:", 4) == 0;
    }
    assert_true(cards >= 2);
    return cards >= wanted;
}

/* What GODWIT_HIP says, for what follows; NULL: nothing. */
static void set_hip(const char *words) {
    (void)(words != NULL ? setenv("GODWIT_HIP", words, 1) : unsetenv("GODWIT_HIP"));
}

/* Launches given in the smallest parts, with no room for more (test_short_queue). */
static void test_two_cards(void **state) {
    (void)state;
    set_hip("part=1,early");
    setenv("GODWIT_EMULATOR_QUEUE", "12", 1);
    check(small, two, 1);
    set_hip("part=1,no-send,flags");
    check(small, two, 1);
    unsetenv("GODWIT_EMULATOR_QUEUE");
    set_hip(NULL);
}

static void test_eight_cards(void **state) {
    (void)state;
    static const char *const eight[] = {"hip:0,hip:1,hip:2,hip:3,hip:4,hip:5,hip:6,hip:7"};
    if (!has_cards(8)) {
        skip();
    }
    set_hip("flags");
    check(small, eight, 1);
    set_hip(NULL);
}

static void test_groups(void **state) {
    (void)state;
    if (!has_cards(4)) {
        skip();
    }
    gw_model_options o = {.path = small, .device = "hip:0,hip:1,hip:2,hip:3", .exact = 1};
    gw_model_options on_cpu = {.path = small};
    answer want = run(&on_cpu);
    o.split_mode = "hybrid";
    o.groups = "0,2;1,3";
    same(&o, &want, " + ");
    setenv("GODWIT_EMULATOR_LINKS", "aabb", 1); /* the groups that links make */
    o.groups = NULL;
    same(&o, &want, getenv("GODWIT_EMULATOR_DEVICES") != NULL ? "): 1 layer; hip:2 (" : " + ");
    unsetenv("GODWIT_EMULATOR_LINKS");
    o = (gw_model_options){.path = small, .device = "hip:1,cpu", .split_mode = "tensor"};
    o.exact = 1;
    same(&o, &want, " + "); /* cards of unlike makers, through the host */
    o = (gw_model_options){.path = small, .device = "hip:0,hip:1", .split_mode = "tensor"};
    o.exact = 1;
    o.split_mode = "layer"; /* the second chunk begins while the first is at work */
    same(&o, &want, "; ");
    o.split_mode = "tensor";
    o.split = "1,3";
    same(&o, &want, " + "); /* shares that are not equal */
    free(want.rows);
}

/* What the table of links makes of the cards, as the description of the model names them. */
static void test_groups_by_links(void **state) {
    (void)state;
    if (getenv("GODWIT_EMULATOR_DEVICES") == NULL) {
        skip(); /* real ones have the links that they have */
    }
    static const struct {
        const char *links;
        int cards;
        const char *note;
    } cases[] = {
        {"aabb", 4, "groups by the driver's table of links: 0,1;2,3"},
        {"abab", 4, "groups by the driver's table of links: 0,2;1,3"},
        {"aabbccdd", 8, "groups by the driver's table of links: 0,1;2,3;4,5;6,7"},
        {"aaaabbbb", 8, "groups by the driver's table of links: 0,1,2,3;4,5,6,7"},
        {"aaaa", 4, "groups by the driver's table of links: 0,1,2,3"},
        {"aa-", 3, "groups by the driver's table of links: 0,1;2"},
        {"----", 4, "no two of the devices have a link of their own: each has layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char devices[64] = "";
        gw_model *m = NULL;
        gw_model_info info;
        for (int c = 0; c < cases[i].cards; c++) {
            size_t used = strlen(devices);
            snprintf(devices + used, sizeof devices - used, "%ship:%d", c > 0 ? "," : "", c);
        }
        gw_model_options o = {.path = small, .device = devices, .split_mode = "hybrid"};
        setenv("GODWIT_EMULATOR_LINKS", cases[i].links, 1);
        need(gw_model_open(&o, &m));
        gw_model_describe(m, &info);
        if (strstr(info.note, cases[i].note) == NULL) {
            fail_msg("%s: '%s'", cases[i].links, info.note);
        }
        gw_model_free(m);
    }
    unsetenv("GODWIT_EMULATOR_LINKS");
}

/* auto weighs the groups that links make, too, and says what it took. */
static void test_auto(void **state) {
    (void)state;
    if (getenv("GODWIT_EMULATOR_DEVICES") == NULL) {
        skip();
    }
    gw_model_options o = {.path = shared_path("goldens/qwen3"), .exact = 1, .n_ctx = 128};
    answer want = run(&o);
    gw_model *m = NULL;
    gw_model_info info;
    o.device = "hip:0,hip:1,hip:2,hip:3";
    o.split_mode = "auto";
    o.chunk = 17;
    setenv("GODWIT_EMULATOR_LINKS", "abab", 1);
    need(gw_model_open(&o, &m));
    gw_model_describe(m, &info);
    const char *note = strstr(info.note, "tokens/s by the forecast: tensor ");
    if (note == NULL || strstr(note, ", layer ") == NULL || strstr(note, "not fit") != NULL ||
        strstr(note, ", hybrid 0,2;1,3 ") == NULL || strstr(note, "(taken)") == NULL) {
        fail_msg("'%s'", info.note);
    }
    int joined = 0, taken = strstr(note, "(taken), layer") != NULL    ? 3
                            : strstr(note, "(taken), hybrid") != NULL ? 0
                                                                      : 2;
    for (const char *at = info.device; (at = strstr(at, ") + ")) != NULL; at++) {
        joined++;
    }
    if (joined != taken) { /* "hip:0 (...) + hip:2 (...): 1 layer; ..." */
        fail_msg("'%s' on %s", note, info.device);
    }
    gw_model_free(m);
    same(&o, &want, "hip:0 ("); /* another choice, maybe, where times are disturbed */
    unsetenv("GODWIT_EMULATOR_LINKS");
    free(want.rows);
}

static void test_models(void **state) {
    (void)state;
    static const char *const models[] = {"goldens/mixtral", "goldens/gpt-oss",
                                         "goldens/qwen3-next"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s", shared_path(models[i]));
        check(path, two, 1);
    }
}

/* What no run of all tests has time for: the files of GODWIT_CARDS_MODELS (a list as in PATH), with
 * every width from 1 to 16, over two cards and over four. */
static void test_given_models(void **state) {
    (void)state;
    static const char *const lists[] = {"hip:0,hip:1", "hip:0,hip:1,hip:2,hip:3"};
    const char *given = getenv("GODWIT_CARDS_MODELS");
    if (given == NULL) {
        skip();
    }
    char *paths = strdup(given), *rest = paths;
    assert_non_null(paths);
    widths = all_widths;
    for (char *path; (path = strsep(&rest, ":")) != NULL;) {
        size_t n = has_cards(4) ? 2 : 1;
        check(path, lists, n);
        printf("%s: one card's bits on %s\n", path, n == 2 ? "two and four" : "two");
        fflush(stdout);
    }
    widths = some_widths;
    free(paths);
}

/* ---- timelines and batches ------------------------------------------------------------------- */

enum { LONG = 40, ROOM = 64 };

/* Saved to `path`, loaded into another session, filled up and shifted: the last logits. */
static float *save_and_shift(const gw_model_options *o, const int32_t *ids, const char *path) {
    gw_model *m = NULL;
    gw_model_info info;
    gw_session *s = NULL, *other = NULL;
    int32_t dropped = 0;
    gw_session_options so = {.n_ctx = ROOM, .chunk = 17};
    need(gw_model_open(o, &m));
    gw_model_describe(m, &info);
    need(gw_session_new(m, &so, &s));
    need(gw_session_prefill(s, ids, LONG));
    need(gw_session_save(s, path));
    gw_session_free(s);
    need(gw_session_new(m, &so, &other));
    need(gw_session_load(other, path));
    for (int i = LONG; i < ROOM; i += 8) {
        need(gw_session_decode(other, ids + i, 8));
    }
    need(gw_session_shift(other, 4, &dropped));
    assert_true(dropped > 0);
    need(gw_session_decode(other, ids, 2));
    size_t bytes = (size_t)info.n_vocab * sizeof(float);
    float *last = malloc(bytes);
    assert_non_null(last);
    memcpy(last, gw_session_logits(other, 1), bytes);
    gw_session_free(other);
    gw_model_free(m);
    return last;
}

/* What two cards have saved is what one device saves, byte for byte. */
static void test_saved_and_shifted(void **state) {
    (void)state;
    char path[2][64];
    int32_t ids[ROOM];
    float *last[2];
    char *bytes[2];
    long n[2];
    for (int i = 0; i < ROOM; i++) {
        ids[i] = 300 + 37 * i % 1000;
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "/tmp/godwit-cards-%d-%d", (int)getpid(), i);
        gw_model_options o = {.path = small, .device = "cpu", .threads = 1, .exact = 1};
        o.device = i == 0 ? "cpu" : "hip:0,hip:1";
        o.split_mode = i == 0 ? NULL : "tensor";
        last[i] = save_and_shift(&o, ids, path[i]);
        FILE *f = fopen(path[i], "rb");
        assert_non_null(f);
        assert_int_equal(fseek(f, 0, SEEK_END), 0);
        n[i] = ftell(f);
        rewind(f);
        bytes[i] = malloc((size_t)n[i]);
        assert_int_equal(fread(bytes[i], 1, (size_t)n[i], f), n[i]);
        fclose(f);
        unlink(path[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], (size_t)n[0]);
    assert_memory_equal(last[0], last[1], sizeof *last[0]);
    for (int i = 0; i < 2; i++) {
        free(last[i]);
        free(bytes[i]);
    }
}

static void test_batches(void **state) {
    (void)state;
    bc_plan p = {.device = "hip:0,hip:1",
                 .split_mode = "tensor",
                 .requests = 3,
                 .stem = 20,
                 .own = 6,
                 .answer = 5,
                 .parallel = 8,
                 .chunk = 40,
                 .seed = 5,
                 .disorder = 1,
                 .lookup = 1,
                 .draft = 1,
                 .tokens = 64 * 8};
    bc_check(&p);
}

/* ---- a short queue --------------------------------------------------------------------------- */

static gw_status try_a_token(void) {
    gw_model_options o = {.path = small, .device = "hip:0,hip:1", .split_mode = "tensor"};
    gw_session_options so = {.n_ctx = 64, .chunk = 16};
    const int32_t id = 300;
    gw_model *m = NULL;
    gw_session *s = NULL;
    gw_status status = gw_model_open(&o, &m);
    status = status == GW_OK ? gw_session_new(m, &so, &s) : status;
    status = status == GW_OK ? gw_session_decode(s, &id, 1) : status;
    gw_session_free(s);
    gw_model_free(m);
    return status;
}

/* A driver makes the host wait where a card's queue is full. A card whose queue is full of launches
 * that wait for another card, which the same host has still to give its own, waits for ever; with
 * launches given in parts, card by card, a part has to fit. */
static void test_short_queue(void **state) {
    (void)state;
    if (getenv("GODWIT_EMULATOR_DEVICES") == NULL) {
        skip(); /* a real one has a queue of its own */
    }
    setenv("GODWIT_EMULATOR_QUEUE", "12", 1);
    static const char *const ways[] = {"part=1000", "part=1000,no-graph", "part=1",
                                       "part=1,no-graph"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        set_hip(ways[i]);
        gw_status status = try_a_token();
        if ((status == GW_OK) != (i >= 2)) {
            fail_msg("%s: %s", ways[i], status == GW_OK ? "does not hang" : gw_error_text());
        }
    }
    unsetenv("GODWIT_EMULATOR_QUEUE");
    set_hip(NULL);
}

/* ---- a card that goes silent ----------------------------------------------------------------- */

/* Its group ends in one line, at once and at every later call; what was computed before stays. */
static void test_silent_card(void **state) {
    (void)state;
    if (getenv("GODWIT_EMULATOR_DEVICES") == NULL) {
        skip();
    }
    gw_model_options o = {.path = small, .device = "hip:0,hip:1", .split_mode = "tensor"};
    gw_session_options so = {.n_ctx = 64, .chunk = 16};
    const int32_t id = 300;
    gw_model *m = NULL;
    gw_session *s = NULL;
    need(gw_model_open(&o, &m));
    need(gw_session_new(m, &so, &s));
    need(gw_session_decode(s, &id, 1));
    setenv("GODWIT_EMULATOR_SILENT", "1", 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gw_session_decode(s, &id, 1), GW_E_DEVICE);
        if (strstr(gw_error_text(), "does not answer") == NULL ||
            strchr(gw_error_text(), '\n') != NULL) {
            fail_msg("'%s'", gw_error_text());
        }
    }
    unsetenv("GODWIT_EMULATOR_SILENT");
    gw_session_free(s);
    gw_model_free(m);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *device, *mode, *groups, *split, *says;
    } cases[] = {
        {"hip:0,hip:1", "rows", NULL, NULL, "none of layer, tensor, hybrid, auto"},
        {"hip:0,hip:1", "tensor", "0;1", NULL, "are for --split-mode hybrid"},
        {"hip:0,hip:1", "hybrid", "0,2", NULL, "no list like"},
        {"hip:0,hip:1", "hybrid", "0", NULL, "leaves out"},
        {"hip:0,hip:1", "hybrid", "0;0,1", NULL, "in two groups"},
        {"hip:0,hip:1", "tensor", NULL, "1,0", "more than 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_model_options o = {.path = small,
                              .device = cases[i].device,
                              .split_mode = cases[i].mode,
                              .groups = cases[i].groups,
                              .split = cases[i].split};
        gw_model *m = NULL;
        assert_int_equal(gw_model_open(&o, &m), GW_E_ARGUMENT);
        if (strstr(gw_error_text(), cases[i].says) == NULL) {
            fail_msg("'%s' does not say '%s'", gw_error_text(), cases[i].says);
        }
    }
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_cards),
                                       cmocka_unit_test(test_eight_cards),
                                       cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_groups_by_links),
                                       cmocka_unit_test(test_auto),
                                       cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_saved_and_shifted),
                                       cmocka_unit_test(test_batches),
                                       cmocka_unit_test(test_short_queue),
                                       cmocka_unit_test(test_silent_card),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_given_models)};
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* One process per driver: it is opened once. */
static int run_in_child(const char *driver) {
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("GODWIT_HIP_DRIVER", driver, 1);
        setenv("GODWIT_EMULATOR_DEVICES", "8", 1);
        _exit(run_all());
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
}

int main(void) {
    const char *driver = getenv("GODWIT_HIP_DRIVER");
    if (driver != NULL) { /* "system": the cards of this machine */
        if (strcmp(driver, "system") == 0) {
            unsetenv("GODWIT_HIP_DRIVER");
        }
        return run_all();
    }
    return run_in_child(GODWIT_EMULATORS "libgodwit_emu32.so") != 0;
}
