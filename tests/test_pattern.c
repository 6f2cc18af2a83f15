/* tests/test_pattern.c - expressions of tokenizer files as Oniguruma reads them: classes within
 * classes, intersections, escapes; by the pieces that they cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/text/tokens/pretokenize.h"
#include "core/text/tokens/steps.h"

/* The pieces of text joined by bars. */
static void cut_by(gw_vocab_split *splits, size_t n_splits, const char *text, char *out) {
    gw_vocab vocab;
    gw_splitter *splitter = NULL;
    gw_split_work *work = NULL;
    const gw_span *spans = NULL;
    size_t n = 0, used = 0;
    gw_vocab_init(&vocab);
    vocab.splits = splits;
    vocab.n_splits = n_splits;
    assert_int_equal(gw_splitter_new(NULL, &vocab, &splitter), GW_OK);
    assert_int_equal(gw_split_work_new(&work), GW_OK);
    assert_int_equal(
        gw_splitter_run(splitter, work, text, strlen(text), GW_PLACE_FIRST, &text, &spans, &n),
        GW_OK);
    for (size_t i = 0; i < n; i++) {
        out[used] = '|';
        used += i > 0;
        memcpy(out + used, text + spans[i].start, spans[i].bytes);
        used += spans[i].bytes;
    }
    out[used] = '\0';
    gw_split_work_free(work);
    gw_splitter_free(splitter);
}

static void cut(const char *pattern, const char *text, char *out) {
    gw_vocab_split split = {pattern, GW_SPLIT_ISOLATED, 0, 0, NULL};
    cut_by(&split, 1, text, out);
}

static void test_classes(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text, *want;
    } rows[] = {
        {"[a-z&&[^aeiou]]+", "the hen", "th|e |h|e|n"},
        {"[a-z&&b-y&&[^m]]+", "abcmyz", "a|bc|m|y|z"},
        {"[^a-z&&[^aeiou]]+", "the 1", "th|e 1"}, /* all but the consonants */
        {"[x[0-9]]+", "ax12b", "a|x12|b"},
        {"[[a-c][^a-z]]+", "dab 1e", "d|ab 1|e"},
        {"[\\p{Lu}&&[^\\p{Han}A]]+", "ABC", "A|BC"},
        {"[\\S&&[^0-9]]+", "a1 b", "a|1 |b"},
        {"[\\s\\p{L}]+", "1a b2", "1|a b|2"},
        {"[^\\S\\n]+", "a \n b", "a| |\n| |b"},
        {"\\h+", "xafz", "x|af|z"},
        {"[]a]+", "]ab", "]a|b"},
        {"\\O+", "a\nb", "a\nb"}, /* any character, line ends too */
        {"(?m:.)+", "a\nb", "a\nb"},
        {"[[:word:]]+", "a\xCC\x81_1-", "a\xCC\x81_1|-"}, /* with its marks, as \\w */
        {"[[:^word:]-]+", "a-. b", "a|-. |b"},
        {"[[:alnum:]\\u00e9]+", "a1\xC3\xA9_", "a1\xC3\xA9|_"},
        {"\\v+", "a\n\vb", "a\n|\v|b"}, /* one character, not PCRE2's class */
        {"[a&b]+", "&c", "&|c"},
        {"[[:digit:]x]+", "12xy", "12x|y"},
        {"\\[a\\]", "x[a]y", "x|[a]|y"},
        {"a{2}+b", "aaaab", "aaaab"}, /* not possessive: pairs of a */
        {"\\p{N}{3}+(?!\\d)", "a1234567", "a1|234567"},
        {"\\d{2}+x", "1234x", "1234x"},
        {"(ab){2}+c", "xababababc", "x|ababababc"},
        {"\\x{61}+", "baa", "b|aa"},
        {"\\w+", "e\xCC\x81\xC2\xB2_ \xE2\x91\xA0\xE2\x93\x90",
         "e\xCC\x81\xC2\xB2_| \xE2\x91\xA0|\xE2\x93\x90"},
        {"[^\\w\\s]+|[\\W1]+", "a.\xCC\x81 1-", "a|.|\xCC\x81| 1-"},
        {"\\b", "e\xCC\x81, x", "e\xCC\x81|, |x"},
        {"\\B", "ab,,", "a|b,|,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char got[64];
        cut(rows[i].pattern, rows[i].text, got);
        if (strcmp(got, rows[i].want) != 0) {
            fail_msg("%s: %s, not %s", rows[i].pattern, got, rows[i].want);
        }
    }
}

/* A match of nothing parts what is alike; what is put in front of the first piece alone is not put
 * where the text in front of that piece was dropped. */
static void test_steps(void **state) {
    (void)state;
    char got[64];
    gw_vocab_split between = {"(?<=[a-z])(?=[A-Z])", GW_SPLIT_CONTIGUOUS, 0, 0, NULL};
    cut_by(&between, 1, "oneTwoThree", got);
    assert_string_equal(got, "one|Two|Three");
    static const gw_vocab_step mark = {
        .kind = GW_CHANGE_REPLACE, .text = "-", .to = "+", .text_bytes = 1, .to_bytes = 1};
    static const gw_vocab_step front = {.kind = GW_CHANGE_PREPEND,
                                        .flags = GW_CHANGE_IF_NONE | GW_CHANGE_FIRST,
                                        .text = "+",
                                        .text_bytes = 1};
    gw_vocab_split steps[] = {{"\\s+", GW_SPLIT_REMOVED, 0, 0, NULL},
                              {NULL, GW_SPLIT_ISOLATED, 0, 0, &mark},
                              {NULL, GW_SPLIT_ISOLATED, 0, 0, &front}};
    cut_by(steps, 3, "a-b c", got);
    assert_string_equal(got, "+a+b|c");
    cut_by(steps, 3, " a-b c", got);
    assert_string_equal(got, "a+b|c");
}

static void test_depth(void **state) {
    (void)state;
    char pattern[4096];
    gw_vocab_split split = {pattern, GW_SPLIT_ISOLATED, 0, 0, NULL};
    gw_vocab vocab;
    gw_splitter *splitter = NULL;
    memset(pattern, '[', sizeof pattern);
    pattern[sizeof pattern - 1] = '\0';
    gw_vocab_init(&vocab);
    vocab.splits = &split;
    vocab.n_splits = 1;
    assert_int_equal(gw_splitter_new("x", &vocab, &splitter), GW_E_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_depth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
