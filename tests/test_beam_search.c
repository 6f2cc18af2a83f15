/* tests/test_beam_search.c - beam search: every text that comes out has the log probability that a
 * session alone gives it, bit for bit, so that no fork of the cache is wrong; alone or beside
 * others; what is refused. The choice itself is compared with the reference library's in
 * test_beams.py. */
#include <math.h>

#include "core/engine/sampling/logprob.h"
#include "include/godwit.h"
#include "random.h"
#include "reference_files.h"
#include "sanitized.h"

enum { TEXTS = 3, BEAMS = 3, MOST = 128 };

typedef struct subject {
    gw_model *model;
    gw_model_info info;
    int reads;
    int32_t ids[2 * TEXTS][MOST];
    gw_beam_input in[TEXTS];
} subject;

static void open_subject(subject *s, const char *path, int32_t vocab) {
    gw_model_options o = {.path = path, .threads = 2, .device = "cpu"};
    random_seed(7);
    assert_int_equal(gw_model_open(&o, &s->model), GW_OK);
    gw_model_describe(s->model, &s->info);
    s->reads = gw_model_reads_source(s->model);
    for (int t = 0; t < TEXTS; t++) {
        size_t n = (size_t)(3 + 23 * t);
        for (size_t i = 0; i < n; i++) {
            s->ids[t][i] = 3 + (int32_t)(random_u32() % (uint32_t)(vocab - 3));
        }
        s->in[t] = (gw_beam_input){.prompt = s->ids[t], .n_prompt = n, .max_tokens = 66};
        if (s->reads) { /* the text is the source */
            s->ids[TEXTS + t][0] = 2;
            s->ids[TEXTS + t][1] = 7;
            s->in[t] = (gw_beam_input){.source = s->ids[t],
                                       .n_source = n,
                                       .prompt = s->ids[TEXTS + t],
                                       .n_prompt = 2,
                                       .n_forced = 1,
                                       .max_tokens = 66};
        }
    }
}

static void search(const subject *s, int texts, const gw_beam_options *given, gw_beam_text *out) {
    gw_beam_options o = *given;
    gw_beam *beam;
    o.texts = texts;
    o.n_ctx = MOST;
    o.kv_type = "f32";
    assert_int_equal(gw_beam_new(s->model, &o, &beam), GW_OK);
    assert_int_equal(gw_beam_search(beam, s->in, TEXTS, out), GW_OK);
    gw_beam_free(beam);
}

/* Its log probability by a session that reads the prompt and takes its tokens one by one. */
static float rescore(const subject *s, gw_session *session, const gw_beam_input *in,
                     const gw_beam_text *text) {
    float sum = 0.0f, one;
    assert_int_equal(gw_session_rewind(session, 0), GW_OK);
    if (s->reads) {
        assert_int_equal(gw_session_source(session, in->source, in->n_source), GW_OK);
    }
    assert_int_equal(gw_session_prefill(session, in->prompt, in->n_prompt), GW_OK);
    for (size_t i = 0; i < text->n; i++) {
        gw_logprobs(gw_session_logits(session, 0), s->info.n_vocab, text->tokens[i], &one, NULL, 0);
        sum = sum + one;
        if (i + 1 < text->n) {
            assert_int_equal(gw_session_decode(session, &text->tokens[i], 1), GW_OK);
        }
    }
    return sum;
}

static void check_subject(const char *path, int32_t vocab, int pad) {
    static subject s;
    static const gw_beam_options ways[] = {
        {.n_beams = BEAMS, .length_penalty = 1.0f, .forced_end = -1},
        {.n_beams = BEAMS, .length_penalty = 0.5f, .early = GW_BEAM_EARLY_YES, .no_repeat = 3,
         .forced_end = -1}};
    gw_beam_text alone[TEXTS * BEAMS], together[TEXTS * BEAMS];
    gw_session *session;
    open_subject(&s, path, vocab);
    gw_session_options so = {.n_ctx = MOST, .kv_type = "f32"};
    assert_int_equal(gw_session_new(s.model, &so, &session), GW_OK);
    for (size_t w = TEST_SANITIZED; w < sizeof ways / sizeof ways[0]; w++) {
        size_t longest = 0;
        search(&s, 1, &ways[w], alone);
        search(&s, 2, &ways[w], together);
        for (int i = 0; i < TEXTS * BEAMS; i++) {
            const gw_beam_text *t = &alone[i];
            const gw_beam_input *in = &s.in[i / BEAMS];
            size_t length = t->n + in->n_forced;
            int padded = 0;
            assert_true(t->n > 0 && t->n == together[i].n);
            assert_memory_equal(t->tokens, together[i].tokens, t->n * sizeof *t->tokens);
            assert_memory_equal(&t->score, &together[i].score, sizeof t->score);
            for (size_t k = 0; k < t->n; k++) {
                padded |= t->tokens[k] == pad;
            }
            float again = padded ? t->logprob : rescore(&s, session, in, t);
            assert_memory_equal(&t->logprob, &again, sizeof again);
            float score = again / (float)pow((double)length, (double)ways[w].length_penalty);
            assert_memory_equal(&t->score, &score, sizeof score);
            assert_true(i % BEAMS == 0 || t->score <= alone[i - 1].score);
            longest = t->n + in->n_prompt > longest ? t->n + in->n_prompt : longest;
        }
        assert_true(longest > 64); /* more than a page of the cache */
        gw_beam_texts_free(alone, TEXTS * BEAMS);
        gw_beam_texts_free(together, TEXTS * BEAMS);
    }
    gw_session_free(session);
    gw_model_free(s.model);
}

static void decoders(void **state) {
    (void)state;
    check_subject(shared_path("models/tales-2m-q8_0.gguf"), 1000, -1);
}

static void encoder_decoders(void **state) {
    (void)state;
    check_subject(shared_path("goldens/m2m100"), 320, 1);
}

/* What recurrent blocks keep goes with a text. */
static void recurrent_blocks(void **state) {
    (void)state;
    check_subject(shared_path("goldens/lfm2"), 300, -1);
}

static void refusals(void **state) {
    static const gw_beam_options wrong[] = {{.n_beams = 0, .forced_end = -1},
                                            {.n_beams = 65, .forced_end = -1},
                                            {.n_beams = 8, .texts = 33, .forced_end = -1},
                                            {.n_beams = 2, .no_repeat = -1, .forced_end = -1},
                                            {.n_beams = 2, .length_penalty = NAN}};
    int32_t ids[4] = {5, 6, 7, 100000000};
    gw_model *model;
    gw_model_options o = {.path = shared_path("models/tales-2m-q8_0.gguf"), .device = "cpu"};
    gw_beam *beam = NULL;
    gw_beam_text out[2];
    (void)state;
    assert_int_equal(gw_model_open(&o, &model), GW_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(gw_beam_new(model, &wrong[i], &beam), GW_E_ARGUMENT);
    }
    gw_beam_options fine = {.n_beams = 2, .length_penalty = 1, .n_ctx = 16, .forced_end = -1};
    assert_int_equal(gw_beam_new(model, &fine, &beam), GW_OK);
    const gw_beam_input inputs[] = {{.prompt = ids, .n_prompt = 0},
                                    {.prompt = ids, .n_prompt = 4, .max_tokens = -1},
                                    {.source = ids, .n_source = 1, .prompt = ids, .n_prompt = 1},
                                    {.prompt = ids, .n_prompt = 3, .max_tokens = 0}};
    const gw_status want[] = {GW_E_ARGUMENT, GW_E_ARGUMENT, GW_E_ARGUMENT, GW_E_CONTEXT};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_int_equal(gw_beam_search(beam, &inputs[i], 1, out), want[i]);
    }
    gw_beam_input last = {.prompt = ids, .n_prompt = 3, .max_tokens = 1};
    assert_int_equal(gw_beam_search(beam, &last, 1, out), GW_OK);
    assert_int_equal(out[0].n, 1);
    gw_beam_texts_free(out, 2);
    gw_beam_free(beam);
    gw_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders),
        cmocka_unit_test(encoder_decoders),
        cmocka_unit_test(recurrent_blocks),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
