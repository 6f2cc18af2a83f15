/* tests/test_draft_identity.c - with speculation the text is the text without, token for token:
 * every format of the small model as target, model and lookup as drafts, every length, every
 * sampler. GODWIT_DRAFT_PROMPTS (1..100) sets how many prompts; few by default. */
#include "tests/draft_rig.h"

static const char *const formats[] = {
    "f16",  "bf16",   "q8_0",   "q4_0",   "q4_1", "q5_0",   "q5_1",
    "q2_k", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k", "iq4_nl", "iq4_xs",
};
enum { FORMATS = sizeof formats / sizeof formats[0], LENGTH = 32 };

static size_t prompts_wanted(void) {
    const char *wish = getenv("GODWIT_DRAFT_PROMPTS");
    int n = wish != NULL ? atoi(wish) : 2;
    return n < 1 ? 1 : n > PROMPTS_MAX ? PROMPTS_MAX : (size_t)n;
}

static prompt_list prompts;

typedef struct subject {
    gw_model *m;
    gw_session *s;
    const char *name;
} subject;

static subject open_subject(const char *format) {
    char file[64];
    snprintf(file, sizeof file, "tales-2m-%s.gguf", format);
    subject x = {.m = open_shared(file), .name = format};
    x.s = open_session(x.m, 256);
    return x;
}

static void close_subject(subject *x) {
    gw_session_free(x->s);
    gw_model_free(x->m);
}

typedef struct tally {
    size_t texts, tokens, passes, drafted, accepted;
} tally;

static void compare(const text *want, const text *got, const char *what, size_t prompt,
                    const char *sampler) {
    for (size_t i = 0; i < want->n && i < got->n; i++) {
        if (want->ids[i] != got->ids[i]) {
            fail_msg("%s, prompt %zu, %s: token %zu is %d, without speculation %d", what, prompt,
                     sampler, i, got->ids[i], want->ids[i]);
        }
    }
    assert_int_equal(want->n, got->n);
}

/* All prompts with one drafter. which: rotates the samplers so that each meets each length. */
static void check_drafter(const subject *x, gw_drafter *d, const char *what, size_t which,
                          text (*want)[SAMPLERS], tally *sum) {
    for (size_t i = 0; i < prompts_wanted(); i++) {
        size_t row = (which + i) % SAMPLERS;
        text got;
        drafted_text(x->m, x->s, d, &sampler_table[row], 11 + i, prompts.ids[i], prompts.n[i],
                     LENGTH, GW_DECODE_MAX - which % 3, &got);
        compare(&want[i][row], &got, what, i, sampler_table[row].name);
        sum->texts++;
    }
    gw_draft_stats stats;
    gw_drafter_stats(d, &stats);
    sum->tokens += stats.tokens;
    sum->passes += stats.passes;
    sum->drafted += stats.drafted;
    sum->accepted += stats.accepted;
    gw_drafter_free(d);
}

static void check_format(size_t f, tally *sum) {
    subject x = open_subject(formats[f]), other = open_subject(formats[(f + 1) % FORMATS]);
    subject same = open_subject(formats[f]);
    static text want[PROMPTS_MAX][SAMPLERS];
    for (size_t i = 0; i < prompts_wanted(); i++) {
        for (size_t row = 0; row < SAMPLERS; row++) {
            plain_text(x.m, x.s, &sampler_table[row], 11 + i, prompts.ids[i], prompts.n[i], LENGTH,
                       &want[i][row]);
        }
    }
    for (int k = 1; k <= GW_DRAFT_MAX; k++) {
        char length[24], what[96];
        size_t which = f + (size_t)k;
        snprintf(length, sizeof length, "fixed:%d", k);
        gw_model *draft = k % 3 == 0 ? same.m : other.m;
        snprintf(what, sizeof what, "%s, draft %s, %s", x.name,
                 draft == same.m ? x.name : other.name, length);
        check_drafter(&x, new_drafter(x.s, draft, 0, length), what, which, want, sum);
        snprintf(what, sizeof what, "%s, lookup, %s", x.name, length);
        check_drafter(&x, new_drafter(x.s, NULL, 1, length), what, which + 3, want, sum);
    }
    check_drafter(&x, new_drafter(x.s, other.m, 1, "heuristic"), "heuristic", f, want, sum);
    check_drafter(&x, new_drafter(x.s, other.m, 1, NULL), "cost", f + 1, want, sum);
    close_subject(&x);
    close_subject(&other);
    close_subject(&same);
}

static void test_identity(void **state) {
    (void)state;
    tally sum = {0};
    gw_model *m = open_shared("tales-2m-q8_0.gguf");
    read_prompts(m, &prompts);
    gw_model_free(m);
    for (size_t f = 0; f < FORMATS; f++) {
        check_format(f, &sum);
    }
    print_message("  %zu texts, %zu tokens in %zu passes, %zu of %zu drafts accepted\n", sum.texts,
                  sum.tokens, sum.passes, sum.accepted, sum.drafted);
    assert_true(sum.accepted > sum.drafted / 10 && sum.accepted < sum.drafted);
    assert_true(sum.passes < sum.tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_identity)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
