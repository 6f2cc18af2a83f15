/* tests/grammar_rig.h - what test_grammar and test_json_schema share: a model's tokens, a program
 * with its matcher, long texts, time. */
#ifndef GW_TESTS_GRAMMAR_RIG_H
#define GW_TESTS_GRAMMAR_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/engine/run/model.h"
#include "core/text/grammar/grammar.h"

#include "tests/sanitized.h"

#if TEST_SANITIZED || !defined(__OPTIMIZE__)
#define SLOWER 20
#else
#define SLOWER 1
#endif
#define MODEL "tests/data/tales-2m-q4_0.gguf"

static gw_model *model;
static gw_token_tree *tree;
static int32_t n_vocab;

static inline int open_model(void **state) {
    (void)state;
    gw_model_options options = {.path = MODEL, .vocab_only = 1};
    if (gw_model_open(&options, &model) != GW_OK) {
        return 1;
    }
    n_vocab = gw_model_n_vocab(model);
    return gw_token_tree_new(gw_model_vocab(model), gw_model_tokenizer(model), (size_t)n_vocab,
                             &tree) != GW_OK;
}

static inline int close_model(void **state) {
    (void)state;
    gw_token_tree_free(tree);
    gw_model_free(model);
    return 0;
}

static inline void ok(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

typedef struct subject {
    gw_program *program;
    gw_matcher *m;
    int32_t end;
} subject;

static inline void open_program(subject *s, gw_program *program) {
    s->program = program;
    s->end = gw_token_eos(model);
    ok(gw_matcher_new(program, tree, &s->end, 1, n_vocab, &s->m));
}

static inline void open_subject(subject *s, const char *text) {
    gw_program *program = NULL;
    ok(gw_grammar_compile("grammar", text, strlen(text), &program));
    open_program(s, program);
}

static inline void close_subject(subject *s) {
    gw_matcher_free(s->m);
    gw_program_free(s->program);
}

/* 0: no text of the grammar begins so; 1: one does; 2: it is whole. */
static inline int judge(gw_matcher *m, const char *text, size_t n) {
    int taken = 0;
    gw_matcher_reset(m);
    ok(gw_matcher_bytes(m, text, n, &taken));
    return !taken ? 0 : gw_matcher_may_end(m) ? 2 : 1;
}

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline char *filled(const char *format, int n, size_t *bytes) {
    size_t capacity = (size_t)n * 64 + 256, at = 0;
    char *text = malloc(capacity);
    assert_non_null(text);
    for (int i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, capacity - at, format, i, i + 1, i + 1);
    }
    *bytes = at;
    return text;
}

/* Compiles or says why not, then a mask and some steps or says why not; a second of processor. */

#endif
