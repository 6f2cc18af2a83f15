/* tests/test_draft_identity.c - with speculation the text is the text without, token for token:
 * every weight format as target, model and lookup as drafts, every length, every sampler of
 * draft_rig.h.
 *
 * On the CPU every format meets every length and source; samplers rotate. On a device
 * (GODWIT_DRAFT_DEVICE), wholly or for half of the layers, and with the drafts on it or on the CPU,
 * rows of a covering table: every format with every length, any two values of all else together.
 * The text that must come out is always the CPU's without speculation.
 *
 *   GODWIT_DRAFT_FORMATS  1..17 formats for the CPU, spread over the list (17); a few are enough
 * for the sanitizers: drafting knows no formats, and test_ops and test_linear take the kernels of
 * all of them there GODWIT_DRAFT_PROMPTS  1..100 prompts for each pairing of the CPU (2)
 *   GODWIT_DRAFT_DEVICE   as --device takes it; without it no device is tried
 *   GODWIT_DRAFT_ROWS     the first N rows of the covering table (all)
 */
#include "tests/draft_rig.h"

typedef struct weights {
    const char *name, *file, *as;
} weights;

static const weights formats[] = {
    {"f16", "tales-2m-f16.gguf", NULL},
    {"bf16", "tales-2m-bf16.gguf", NULL},
    {"q8_0", "tales-2m-q8_0.gguf", NULL},
    {"q4_0", "tales-2m-q4_0.gguf", NULL},
    {"q4_1", "tales-2m-q4_1.gguf", NULL},
    {"q5_0", "tales-2m-q5_0.gguf", NULL},
    {"q5_1", "tales-2m-q5_1.gguf", NULL},
    {"q2_k", "tales-2m-q2_k.gguf", NULL},
    {"q3_k_m", "tales-2m-q3_k_m.gguf", NULL},
    {"q4_k_m", "tales-2m-q4_k_m.gguf", NULL},
    {"q5_k_m", "tales-2m-q5_k_m.gguf", NULL},
    {"q6_k", "tales-2m-q6_k.gguf", NULL},
    {"iq4_nl", "tales-2m-iq4_nl.gguf", NULL},
    {"iq4_xs", "tales-2m-iq4_xs.gguf", NULL},
    {"int8", "tales-2m", "int8"},
    {"int4-g32", "tales-2m", "int4-g32"},
    {"int4-g256", "tales-2m", "int4-g256"},
};
enum {
    FORMATS = sizeof formats / sizeof formats[0],
    LENGTHS = GW_DRAFT_MAX + 2, /* fixed ones, heuristic, cost */
    ROWS = FORMATS * LENGTHS,
    LENGTH = 32
};

static size_t wish(const char *name, size_t usual, size_t most) {
    const char *set = getenv(name);
    int n = set != NULL ? atoi(set) : (int)usual;
    return n < 1 ? 1 : (size_t)n > most ? most : (size_t)n;
}

static prompt_list prompts;

static void read_all_prompts(void) {
    gw_model *m = open_shared("tales-2m-q8_0.gguf");
    read_prompts(m, &prompts);
    gw_model_free(m);
}

typedef struct subject {
    gw_model *m;
    gw_session *s;
    const char *name;
} subject;

static subject open_subject(const weights *w, const char *device, const char *layers) {
    subject x = {.m = open_on(w->file, w->as, device, layers), .name = w->name};
    x.s = open_session(x.m, 256);
    return x;
}

static void close_subject(subject *x) {
    gw_session_free(x->s);
    gw_model_free(x->m);
    *x = (subject){0};
}

typedef struct tally {
    size_t texts, tokens, differing, passes, drafted, accepted;
} tally;

static void compare(const text *want, const text *got, const char *what, size_t prompt,
                    const char *sampler, tally *sum) {
    size_t most = want->n > got->n ? want->n : got->n, bad = 0, first = 0;
    for (size_t i = 0; i < most; i++) {
        if (i >= want->n || i >= got->n || want->ids[i] != got->ids[i]) {
            first = bad == 0 ? i : first;
            bad++;
        }
    }
    if (bad > 0) {
        print_message("%s, prompt %zu, %s: %zu of %zu tokens differ, the first is token %zu\n",
                      what, prompt, sampler, bad, most, first);
    }
    sum->differing += bad;
    sum->texts++;
}

static void add_stats(gw_drafter *d, tally *sum) {
    gw_draft_stats stats;
    gw_drafter_stats(d, &stats);
    sum->tokens += stats.tokens;
    sum->passes += stats.passes;
    sum->drafted += stats.drafted;
    sum->accepted += stats.accepted;
}

static void check_tally(const tally *sum, const char *where) {
    print_message("  %s: %zu texts, %zu tokens, %zu of them differ; %zu passes, %zu of %zu drafts "
                  "accepted\n",
                  where, sum->texts, sum->tokens, sum->differing, sum->passes, sum->accepted,
                  sum->drafted);
    assert_int_equal(sum->differing, 0);
    assert_true(sum->accepted > sum->drafted / 10 && sum->accepted < sum->drafted);
    assert_true(sum->passes < sum->tokens);
}

static const char *length_name(int k, char *out, size_t room) {
    snprintf(out, room, "fixed:%d", k + 1);
    return k < GW_DRAFT_MAX ? out : k == GW_DRAFT_MAX ? "heuristic" : "cost";
}

/* ---- the processor --------------------------------------------------------------------------- */

static size_t n_prompts(void) { return wish("GODWIT_DRAFT_PROMPTS", 2, PROMPTS_MAX); }

/* All prompts with one drafter. which: rotates the samplers so that each meets each length. */
static void check_drafter(const subject *x, gw_drafter *d, const char *what, size_t which,
                          text (*want)[SAMPLERS], tally *sum) {
    for (size_t i = 0; i < n_prompts(); i++) {
        size_t row = (which + i) % SAMPLERS;
        text got;
        drafted_text(x->m, x->s, d, &sampler_table[row], 11 + i, prompts.ids[i], prompts.n[i],
                     LENGTH, GW_DECODE_MAX - which % 3, &got);
        compare(&want[i][row], &got, what, i, sampler_table[row].name, sum);
    }
    add_stats(d, sum);
    gw_drafter_free(d);
}

static void check_format(size_t f, tally *sum) {
    subject x = open_subject(&formats[f], "cpu", NULL);
    subject other = open_subject(&formats[(f + 1) % FORMATS], "cpu", NULL);
    subject same = open_subject(&formats[f], "cpu", NULL);
    static text want[PROMPTS_MAX][SAMPLERS];
    for (size_t i = 0; i < n_prompts(); i++) {
        for (size_t row = 0; row < SAMPLERS; row++) {
            plain_text(x.m, x.s, &sampler_table[row], 11 + i, prompts.ids[i], prompts.n[i], LENGTH,
                       &want[i][row]);
        }
    }
    for (int k = 0; k < LENGTHS; k++) {
        char name[24], what[96];
        size_t which = f + (size_t)k;
        const char *length = length_name(k, name, sizeof name);
        gw_model *draft = k % 3 == 2 ? same.m : other.m;
        snprintf(what, sizeof what, "%s, draft %s, %s", x.name,
                 draft == same.m ? x.name : other.name, length);
        check_drafter(&x, new_drafter(x.s, draft, k >= GW_DRAFT_MAX, length), what, which, want,
                      sum);
        snprintf(what, sizeof what, "%s, lookup, %s", x.name, length);
        check_drafter(&x, new_drafter(x.s, NULL, 1, length), what, which + 3, want, sum);
    }
    close_subject(&x);
    close_subject(&other);
    close_subject(&same);
}

static void test_cpu(void **state) {
    (void)state;
    tally sum = {0};
    if (getenv("GODWIT_DRAFT_DEVICE") != NULL) {
        skip();
    }
    read_all_prompts();
    size_t n = wish("GODWIT_DRAFT_FORMATS", FORMATS, FORMATS);
    for (size_t i = 0; i < n; i++) {
        size_t f = i * FORMATS / n;
        check_format(f, &sum);
        if (n_prompts() > 2) { /* it takes a while */
            print_message("  %s: %zu texts so far, %zu tokens, %zu differ\n", formats[f].name,
                          sum.texts, sum.tokens, sum.differing);
            fflush(stdout);
        }
    }
    check_tally(&sum, "cpu");
}

/* ---- devices --------------------------------------------------------------------------------- */

enum { FORMAT, AT_LENGTH, SAMPLER, SOURCE, PLACE, AXES };
enum { SOURCES = 2, PLACES = 5 }; /* draft model, lookup */

/* Where target and draft compute: on the device, half on it, on the processor. */
static const struct {
    const char *name, *target, *target_layers, *draft; /* NULL: the device */
} places[PLACES] = {
    {"all on the device", NULL, NULL, NULL},
    {"draft on the cpu", NULL, NULL, "cpu"},
    {"target on the cpu", "cpu", NULL, NULL},
    {"target split", NULL, "1", NULL},
    {"target split, draft on the cpu", NULL, "1", "cpu"},
};

static const int values[AXES] = {FORMATS, LENGTHS, SAMPLERS, SOURCES, PLACES};
enum { VALUES_MAX = 64 };
_Static_assert((int)SAMPLERS <= (int)VALUES_MAX, "room for the pairs of every sampler");

typedef struct cover {
    int row[ROWS][AXES];
    char met[AXES][AXES][VALUES_MAX][VALUES_MAX];
} cover;

static size_t new_pairs(cover *c, const int *row, int mark) {
    size_t n = 0;
    for (int a = 0; a < AXES; a++) {
        for (int b = a + 1; b < AXES; b++) {
            char *met = &c->met[a][b][row[a]][row[b]];
            n += !*met;
            *met = mark ? 1 : *met;
        }
    }
    return n;
}

/* Row i has format and length of its place on a diagonal, so that a few rows meet many of both, and
 * the sampler, source and place that bring the most new pairs. */
static void fill_cover(cover *c) {
    for (int i = 0; i < ROWS; i++) {
        int best[AXES] = {0};
        size_t most = 0;
        for (int j = 0; j < SAMPLERS * SOURCES * PLACES; j++) {
            int at = (j + 7 * i) % (SAMPLERS * SOURCES * PLACES);
            int row[AXES] = {i % FORMATS, (i + i / FORMATS) % LENGTHS, at % SAMPLERS,
                             at / SAMPLERS % SOURCES, at / SAMPLERS / SOURCES};
            size_t n = new_pairs(c, row, 0);
            if (j == 0 || n > most) {
                most = n;
                memcpy(best, row, sizeof best);
            }
        }
        new_pairs(c, best, 1);
        memcpy(c->row[i], best, sizeof best);
    }
}

static void test_cover(void **state) {
    (void)state;
    static cover c;
    fill_cover(&c);
    for (int a = 0; a < AXES; a++) {
        for (int b = a + 1; b < AXES; b++) {
            for (int i = 0; i < values[a] * values[b]; i++) {
                assert_true(c.met[a][b][i % values[a]][i / values[a]]);
            }
        }
    }
}

static void check_row(const int *row, int i, const char *device, tally *sum) {
    const weights *w = &formats[row[FORMAT]], *other = &formats[(row[FORMAT] + 1) % FORMATS];
    const named_sampler *sampler = &sampler_table[row[SAMPLER]];
    const char *target = places[row[PLACE]].target, *draft = places[row[PLACE]].draft;
    size_t p = (size_t)i % PROMPTS_MAX, n = prompts.n[p] / 2;
    char name[24], what[128];
    const char *length = length_name(row[AT_LENGTH], name, sizeof name);
    snprintf(what, sizeof what, "row %d, %s, %s, %s, %s", i, w->name, length,
             row[SOURCE] == 0 ? "draft model" : "lookup", places[row[PLACE]].name);
    text want, got;
    subject plain = open_subject(w, "cpu", NULL);
    plain_text(plain.m, plain.s, sampler, 11, prompts.ids[p], n, LENGTH, &want);
    close_subject(&plain);
    subject x = open_subject(w, target != NULL ? target : device, places[row[PLACE]].target_layers);
    gw_model *m = NULL;
    if (row[SOURCE] == 0) {
        m = open_on(other->file, other->as, draft != NULL ? draft : device, NULL);
    }
    gw_drafter *d = new_drafter(x.s, m, row[SOURCE] == 1, length);
    drafted_text(x.m, x.s, d, sampler, 11, prompts.ids[p], n, LENGTH, GW_DECODE_MAX, &got);
    compare(&want, &got, what, p, sampler->name, sum);
    add_stats(d, sum);
    gw_drafter_free(d);
    gw_model_free(m);
    close_subject(&x);
}

/* ---- drafting ahead -------------------------------------------------------------------------- */

typedef struct sequence {
    int drafted[256], accepted[256];
    size_t n;
} sequence;

static void note_pass(void *user, int drafted, int accepted) {
    sequence *s = user;
    assert_true(s->n < sizeof s->drafted / sizeof s->drafted[0]);
    s->drafted[s->n] = drafted;
    s->accepted[s->n++] = accepted;
}

/* Some texts in one session. */
static gw_draft_stats drafted_texts(const char *target, const char *draft, const weights *drafter,
                                    const char *length, text *out, size_t n, sequence *passes) {
    subject x = open_subject(&formats[3], target, NULL);
    gw_model *m = open_on(drafter->file, drafter->as, draft, NULL);
    gw_drafter *d = new_drafter(x.s, m, 0, length);
    gw_draft_stats stats;
    gw_drafter_watch(d, note_pass, passes);
    for (size_t i = 0; i < n; i++) {
        drafted_text(x.m, x.s, d, &sampler_table[i % SAMPLERS], 11 + i, prompts.ids[i], 16, LENGTH,
                     GW_DECODE_MAX, &out[i]);
    }
    gw_drafter_stats(d, &stats);
    gw_drafter_free(d);
    gw_model_free(m);
    close_subject(&x);
    return stats;
}

/* Going ahead changes neither the text nor what is drafted, only where the time goes: every pass is
 * that of drafts made in turn, and part of the drafts were there before it began. */
static void check_ahead(int on_cpu) {
    enum { TEXTS = 4 };
    const char *device = getenv("GODWIT_DRAFT_DEVICE");
    if (device == NULL) {
        skip();
    }
    read_all_prompts();
    int few = wish("GODWIT_DRAFT_ROWS", ROWS, ROWS) < FORMATS; /* it is slow there */
    size_t n = few ? 1 : TEXTS;
    for (int same = 0; same <= 1; same++) { /* as a draft, the model itself is rejected seldom */
        for (int k = 0; k < (few ? 1 : 3); k++) {
            static const char *const lengths[] = {"fixed:2", "fixed:5", "heuristic"};
            const weights *drafter = &formats[same ? 3 : 7];
            text plain[TEXTS], got[TEXTS];
            static sequence in_turn, ahead;
            tally sum = {0};
            in_turn.n = ahead.n = 0;
            gw_draft_stats a = drafted_texts("cpu", "cpu", drafter, lengths[k], plain, n, &in_turn);
            gw_draft_stats b = drafted_texts(on_cpu ? "cpu" : device, on_cpu ? device : "cpu",
                                             drafter, lengths[k], got, n, &ahead);
            for (size_t i = 0; i < n; i++) {
                compare(&plain[i], &got[i], lengths[k], i, sampler_table[i % SAMPLERS].name, &sum);
            }
            assert_int_equal(sum.differing, 0);
            assert_int_equal(in_turn.n, ahead.n);
            assert_memory_equal(in_turn.drafted, ahead.drafted, ahead.n * sizeof(int));
            assert_memory_equal(in_turn.accepted, ahead.accepted, ahead.n * sizeof(int));
            print_message("  %s, %s: %zu drafted, %zu of %zu drafted ahead were used\n",
                          drafter->name, lengths[k], (size_t)b.drafted, (size_t)b.ahead_used,
                          (size_t)b.ahead);
            assert_true(a.ahead == 0 && a.ahead_used == 0);
            assert_true(b.ahead_used > 0 && b.ahead_used < b.ahead);
            assert_true(!same || k == 2 || b.ahead_used > b.drafted / 3);
        }
    }
}

static void test_ahead(void **state) {
    (void)state;
    check_ahead(0);
}

static void test_ahead_of_cpu(void **state) {
    (void)state;
    check_ahead(1);
}

static void test_device(void **state) {
    (void)state;
    static cover c;
    const char *device = getenv("GODWIT_DRAFT_DEVICE");
    if (device == NULL) {
        skip();
    }
    tally sum = {0};
    read_all_prompts();
    fill_cover(&c);
    for (int i = 0; i < (int)wish("GODWIT_DRAFT_ROWS", ROWS, ROWS); i++) {
        check_row(c.row[i], i, device, &sum);
    }
    check_tally(&sum, device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),    cmocka_unit_test(test_cover),
        cmocka_unit_test(test_ahead),  cmocka_unit_test(test_ahead_of_cpu),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
