/* tests/test_grammar.c - grammars: what they accept and refuse, how errors read, masks against
 * trying every token, states that are held and gone back to, hostile grammars. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/engine/sampling/constraint.h"
#include "core/engine/run/model.h"
#include "core/text/grammar/grammar.h"
#include "tests/count_alloc.h"
#include "tests/grammar_rig.h"

/* ---- accept and refuse ----------------------------------------------------------------------- */

static const struct {
    const char *grammar, *whole[6], *begun[4], *wrong[6];
} texts[] = {
    {"root ::= \"a\" \"bc\"", {"abc"}, {"", "a", "ab"}, {"b", "abcd", "ac", "\xFF"}},
    {"root ::= \"a\" | \"b\" | \"\"", {"", "a", "b"}, {NULL}, {"ab", "c"}},
    {"root ::= \"ab\"*", {"", "ab", "abab"}, {"a", "aba"}, {"b", "aa"}},
    {"root ::= [a-c]+ [^a-c]?", {"a", "abcz", "cb\xC3\xA9"}, {"", "a\xC3"}, {"z", "azz"}},
    {"root ::= \"x\"{3}", {"xxx"}, {"xx"}, {"xxxx"}},
    {"root ::= \"x\"{2,}", {"xx", "xxxxxx"}, {"x"}, {"y"}},
    {"root ::= \"x\"{1,3} \"y\"", {"xy", "xxxy"}, {"xxx"}, {"y", "xxxx"}},
    {"root ::= (\"a\" \"b\"){ 2 , 3 }", {"abab", "ababab"}, {"aba"}, {"abababa"}},
    {"root ::= \"x\"{0} \"y\"", {"y"}, {""}, {"x"}},
    {"root ::= .",
     {"a", "\n", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"},
     {"\xF0\x9F"},
     {"ab", "\xED\xA0"}},
    {"root ::= [^]", {"a", "\n", "\xE2\x82\xAC"}, {"\xE2"}, {"ab", "\xED\xA0"}},
    {"root ::= [\\x41-\\x43\\u00e9\\U0001F600\\]\\\\]",
     {"B", "\xC3\xA9", "\xF0\x9F\x98\x80", "]", "\\"},
     {NULL},
     {"D", "\xC3\xA8", "\xF0\x9F\x98\x81"}},
    {"root ::= \"\\\"\\t\\n\\r\\\\\\u20ac\"", {"\"\t\n\r\\\xE2\x82\xAC"}, {NULL}, {"t"}},
    {"# a list\nroot ::= item (\",\" # more\n  item)*\nitem ::= [0-9]+\n",
     {"1", "1,22,3"},
     {"1,"},
     {",", "1,,"}},
    {"root ::=\n  a |\n  b\na ::= \"1\"\nb ::= \"2\"", {"1", "2"}, {NULL}, {"12"}},
    {"root ::= a\n  | b\n\na ::= \"1\"\nb ::= \"2\"\r\n", {"1", "2"}, {NULL}, {"12"}},
    {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()"}, {")", "())"}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
     {"", "ab", "aabc", "aaaabcbc"},
     {"aab"},
     {"b", "abb"}},
    {"root ::= (\"a\"*)* \"b\"", {"b", "aaab"}, {"aaaa"}, {"c"}},
    {"root ::= ((\"a\"?)+ (\"b\"*)*)* ", {"", "abba", "ba"}, {NULL}, {"c"}},
    {"root ::= n m n \"!\"\nn ::= \"a\"?\nm ::= n | n n | \"b\"",
     {"!", "a!", "aaaa!", "aba!"},
     {"ab"},
     {"aaaaa!", "bb"}},
    {"root ::= x \"1\" | x \"2\"\nx ::= y \"3\" | y \"4\"\ny ::= \"a\" | \"a\" \"a\"",
     {"a31", "aa42"},
     {"a3", "aa"},
     {"a1", "aaa"}},
    {"root ::= ([ab]{0,1000} [cd]{0,1000}){0,2000}{0,90000}{90000}",
     {"", "a", "abcdabcd"},
     {NULL},
     {"e", "abe"}},
    {"root ::= [^\\n]{0,3} \"\\n\"",
     {"\n", "a\xE2\x82\xAC"
            "c\n"},
     {"abc", "\xE2"},
     {"abcd", "\x80"}},
    {"root ::= [a-zA-Z_-] [\\-x]", {"--", "_x"}, {"Q"}, {".", "ab"}},
    {"root ::= [^\\U00000000-\\U0000007F]",
     {"\xC2\x80", "\xF4\x8F\xBF\xBF", "\xEE\x80\x80"},
     {"\xF4"},
     {"a", "\xF4\x90", "\xC1", "\xED\xA0", "\xE0\x80"}},
};

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        subject s;
        open_subject(&s, texts[i].grammar);
        const char *const *lists[] = {texts[i].wrong, texts[i].begun, texts[i].whole};
        const size_t most[] = {6, 4, 6};
        for (int want = 0; want < 3; want++) {
            for (size_t k = 0; k < most[want] && lists[want][k] != NULL; k++) {
                const char *text = lists[want][k];
                int got = judge(s.m, text, strlen(text));
                if (got != want) {
                    fail_msg("%s: '%s' is %d, not %d", texts[i].grammar, text, got, want);
                }
            }
        }
        close_subject(&s);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *grammar, *words;
    gw_status status;
} faults[] = {
    {"", "there is no rule 'root'", GW_E_METADATA},
    {"rot ::= \"a\"", "there is no rule 'root'", GW_E_METADATA},
    {"root ::= a\nb ::= \"x\"", "line 1 column 10: there is no rule 'a'", GW_E_METADATA},
    {"root = \"a\"", "line 1 column 6: '=' instead of '::=' behind 'root'", GW_E_SYNTAX},
    {"root ::= \"a\n", "line 1 column 10: the text in quotes", GW_E_SYNTAX},
    {"root ::= [a-z\n", "line 1 column 10: the class has no ']'", GW_E_SYNTAX},
    {"root ::= \"a\" |\n  [z-a]", "line 2 column 4: the range runs backwards", GW_E_SYNTAX},
    {"root ::= []", "no character is in this class", GW_E_SYNTAX},
    {"root ::= [^\\U00000000-\\U0010FFFF]", "no character is in this class", GW_E_SYNTAX},
    {"root ::= \"\\q\"", "line 1 column 11: unknown escape", GW_E_SYNTAX},
    {"root ::= \"\\u12\"", "needs 4 hexadecimal digits", GW_E_SYNTAX},
    {"root ::= \"\\uD800\"", "U+D800 is no character", GW_E_SYNTAX},
    {"root ::= \"\\U00110000\"", "U+110000 is no character", GW_E_SYNTAX},
    {"root ::= * \"a\"", "nothing stands here to be repeated", GW_E_SYNTAX},
    {"root ::= \"a\" | +", "line 1 column 16: nothing stands here", GW_E_SYNTAX},
    {"root ::= \"a\"{3,1}", "the most is less than the least", GW_E_SYNTAX},
    {"root ::= \"a\"{,1}", "',' instead of a number", GW_E_SYNTAX},
    {"root ::= \"a\"{1", "the end of the text instead of '}'", GW_E_SYNTAX},
    {"root ::= (\"a\"\n\n", "line 1 column 10: '(' is not closed", GW_E_SYNTAX},
    {"root ::= \"a\")", "line 1 column 13: ')' without its '('", GW_E_SYNTAX},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2 column 1: rule 'root' is defined on line 1",
     GW_E_SYNTAX},
    {"root ::= \"a\" $", "line 1 column 14: '$' is not part of a rule", GW_E_SYNTAX},
    {"root ::= \"\xC3\xA9\" \xE2\x82\xAC", "line 1 column 14: '\xE2\x82\xAC' is not part",
     GW_E_SYNTAX},
    {"root ::= \"a\"\n\"b\"", "line 2 column 1: '\"' instead of the name of a rule", GW_E_SYNTAX},
    {"root ::= \"a\xFF\"", "line 1 column 12: this is not UTF-8", GW_E_ENCODING},
    {"root ::= root \"a\" | \"b\"", "rule 'root' is left-recursive", GW_E_METADATA},
    {"root ::= \"x\" | a\na ::= b\nb ::= c? a \"y\" | \"z\"\nc ::= \"c\"",
     "rule 'a' is left-recursive", GW_E_METADATA},
    {"root ::= (\"\" | \"a\")* (root)", "'root'", GW_E_METADATA},
    {"root ::= \"a\" root", "no text can end rule 'root'", GW_E_METADATA},
    {"root ::= \"a\" | loop\nloop ::= \"b\" more\nmore ::= loop", "no text can end rule 'loop'",
     GW_E_METADATA},
    {"root ::= \"a\"{0,1000000}", "line 1 column 16: more than 100000 repetitions", GW_E_LIMIT},
};

static void test_errors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        gw_program *program = NULL;
        gw_status status =
            gw_grammar_compile("grammar", faults[i].grammar, strlen(faults[i].grammar), &program);
        if (status != faults[i].status || strstr(gw_error_text(), faults[i].words) == NULL ||
            program != NULL) {
            fail_msg("%s: %s: '%s'", faults[i].grammar, gw_status_name(status),
                     status != GW_OK ? gw_error_text() : "");
        }
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void compare_mask(subject *s) {
    gw_token_mask mask;
    uint64_t *copy = calloc((size_t)n_vocab / 64 + 1, sizeof *copy);
    ok(gw_matcher_mask(s->m, &mask));
    memcpy(copy, mask.bits, ((size_t)n_vocab + 63) / 64 * sizeof *copy);
    gw_matcher_keep(s->m, 3);
    for (int32_t id = 0; id < n_vocab; id++) {
        int taken = 0, allowed = (int)(copy[id / 64] >> (id % 64) & 1);
        if (id == s->end) {
            assert_int_equal(allowed, gw_matcher_may_end(s->m));
            continue;
        }
        if (gw_token_is_text(gw_model_vocab(model), gw_model_tokenizer(model), id)) {
            const char *text;
            size_t bytes;
            gw_tokenizer_piece(gw_model_tokenizer(model), id, 0, &text, &bytes);
            ok(gw_matcher_bytes(s->m, text, bytes, &taken));
            gw_matcher_back(s->m, 3);
        }
        if (taken != allowed) {
            fail_msg("token %d: %d, by its bytes %d", (int)id, allowed, taken);
        }
    }
    free(copy);
}

/* Any way through a grammar: at every step the mask agrees with trying each token. */
static void test_masks(void **state) {
    (void)state;
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        subject s;
        open_subject(&s, texts[i].grammar);
        for (int step = 0; step < 8; step++) {
            gw_token_mask mask;
            int taken = 0;
            compare_mask(&s);
            ok(gw_matcher_mask(s.m, &mask));
            if (mask.n_text == 0) {
                assert_true(gw_matcher_at_end(s.m));
                break;
            }
            assert_false(gw_matcher_at_end(s.m));
            int32_t id = 0;
            for (int tries = 0; tries < 100000; tries++) {
                random = random * 1664525u + 1013904223u;
                id = (int32_t)((random >> 8) % (uint32_t)n_vocab);
                if (id != s.end && (mask.bits[id / 64] >> (id % 64) & 1)) {
                    break;
                }
            }
            ok(gw_matcher_token(s.m, id, &taken));
            if (!taken && (mask.bits[id / 64] >> (id % 64) & 1)) {
                fail_msg("token %d is in the mask and not taken", (int)id);
            }
        }
        close_subject(&s);
    }
}

/* Any way through a grammar with a limit: wherever the shortest text fits in, the text is whole
 * when the limit is reached, and what is taken out is nothing but what leads too far. */
static void test_limits(void **state) {
    (void)state;
    static const struct {
        const char *grammar;
        uint32_t shortest;
    } cases[] = {
        {"root ::= \"{\" (member (\",\" member)*)? \"}\"\nmember ::= \"\\\"\" [a-z]* \"\\\":\" "
         "(root | "
         "\"null\")",
         2},
        {"root ::= \"(\" root \")\" | [a-z] root | \"end\"", 3},
        {"root ::= item+\nitem ::= \"<\" .* \">\" | \"[\" item{2} \"]\"", 2},
        {"root ::= \"a\"{40} \"b\"*", 40},
        {"root ::= [a-z \\n]*", 0},
        {"root ::= a b\na ::= \"x\" a \"y\" | c\nb ::= \"\" | b2\nb2 ::= \"z\" b\nc ::= a2 | "
         "\"\"\na2 ::= \"q\" "
         "a",
         0},
    };
    uint32_t random = 7;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t limit = 0; limit < 60; limit += limit < 8 ? 1 : 13) {
            subject s;
            uint32_t made = 0;
            open_subject(&s, cases[i].grammar);
            for (; made < limit && !gw_matcher_at_end(s.m); made++) {
                gw_token_mask all, near;
                ok(gw_matcher_mask(s.m, &all));
                uint32_t n_all = all.n_text;
                ok(gw_matcher_mask_within(s.m, limit - made - 1, &near));
                assert_true(near.n_text <= n_all);
                int32_t id = 0;
                int taken = 0, tries = 0;
                do {
                    random = random * 1664525u + 1013904223u;
                    id = tries < 100000 ? (int32_t)((random >> 8) % (uint32_t)n_vocab)
                                        : tries - 100000;
                } while (++tries < 100000 + n_vocab &&
                         (id == s.end || !(near.bits[id / 64] >> (id % 64) & 1)));
                if (near.n_text == 0) { /* whole, and nothing that fits in behind it */
                    assert_true(gw_matcher_may_end(s.m));
                    break;
                }
                ok(gw_matcher_token(s.m, id, &taken));
                assert_true(taken);
            }
            if (limit >= cases[i].shortest && !gw_matcher_may_end(s.m)) {
                fail_msg("%s: %u tokens of %u", cases[i].grammar, made, limit);
            }
            close_subject(&s);
        }
    }
}

/* A character in four byte tokens, or two. */
static void test_split_characters(void **state) {
    (void)state;
    subject s;
    int taken = 0;
    open_subject(&s, "root ::= [\\U0001F600-\\U0001F64F] \"!\"");
    const unsigned char bytes[] = {0xF0, 0x9F, 0x98, 0x81, '!'};
    for (size_t i = 0; i < sizeof bytes; i++) {
        compare_mask(&s);
        ok(gw_matcher_bytes(s.m, (const char *)&bytes[i], 1, &taken));
        assert_true(taken);
    }
    assert_true(gw_matcher_at_end(s.m));
    ok(gw_matcher_token(s.m, s.end, &taken));
    assert_true(taken);
    close_subject(&s);
}

/* Special tokens are never text, whatever they spell. */
static void test_special(void **state) {
    (void)state;
    subject s;
    gw_token_mask mask;
    open_subject(&s, "root ::= .*");
    ok(gw_matcher_mask(s.m, &mask));
    int32_t special[] = {gw_token_bos(model), gw_model_vocab(model)->unk};
    for (size_t i = 0; i < 2; i++) {
        int taken = 1;
        assert_true(special[i] >= 0);
        assert_false(mask.bits[special[i] / 64] >> (special[i] % 64) & 1);
        ok(gw_matcher_token(s.m, special[i], &taken));
        assert_false(taken);
    }
    int taken = 1;
    ok(gw_matcher_token(s.m, -1, &taken));
    assert_false(taken);
    taken = 1;
    ok(gw_matcher_token(s.m, n_vocab, &taken));
    assert_false(taken);
    close_subject(&s);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Depth beyond the limit is ruled out, not an error; going back is exact; nothing is allocated. */
static void test_states(void **state) {
    (void)state;
    subject s;
    int taken = 0, depth = 0;
    open_subject(&s, "root ::= \"(\" root \")\" | \"x\"");
    for (int slot = 0; slot < GW_MATCHER_KEPT; slot++) {
        gw_matcher_keep(s.m, slot);
        ok(gw_matcher_bytes(s.m, "(", 1, &taken));
        assert_true(taken);
    }
    gw_matcher_back(s.m, 5);
    ok(gw_matcher_bytes(s.m, "x)))))", 6, &taken));
    assert_true(taken);
    assert_true(gw_matcher_at_end(s.m));
    gw_matcher_reset(s.m);
    for (taken = 1; taken; depth += taken) {
        ok(gw_matcher_bytes(s.m, "(", 1, &taken));
    }
    assert_true(depth >= GW_GRAMMAR_DEPTH_MAX - 2 && depth <= GW_GRAMMAR_DEPTH_MAX);
    ok(gw_matcher_bytes(s.m, "x", 1, &taken));
    assert_true(taken);
    close_subject(&s);
}

static void test_no_allocation(void **state) {
    (void)state;
    subject s;
    if (!COUNTS_ALLOCATIONS) {
        skip();
    }
    open_subject(&s, "root ::= value\nvalue ::= \"[\" value (\",\" value)* \"]\" | [a-z ]+");
    size_t before = atomic_load(&allocations);
    for (int i = 0; i < 200; i++) {
        gw_token_mask mask;
        int taken = 0;
        ok(gw_matcher_mask(s.m, &mask));
        ok(gw_matcher_bytes(s.m,
                            i % 3 == 0   ? "["
                            : i % 3 == 1 ? "once"
                                         : ",",
                            i % 3 == 1 ? 4 : 1, &taken));
    }
    assert_int_equal(atomic_load(&allocations), before);
    close_subject(&s);
}

/* A long text of many states: what is no longer needed goes, and nothing changes by it. */
static void test_collecting(void **state) {
    (void)state;
    subject s;
    int taken = 0;
    open_subject(&s, "root ::= \"<\" root \">\" | \"a\"{0,3000} \"b\"{0,3000} \"c\"");
    for (int round = 0; round < 60; round++) {
        gw_matcher_reset(s.m);
        for (int i = 0; i < 10 + round * 3; i++) {
            ok(gw_matcher_bytes(s.m, "<", 1, &taken));
        }
        gw_matcher_keep(s.m, 1);
        for (int i = 0; i < 3000; i++) {
            ok(gw_matcher_bytes(s.m, "a", 1, &taken));
            assert_true(taken);
        }
        ok(gw_matcher_bytes(s.m, "a", 1, &taken));
        assert_false(taken);
        gw_matcher_back(s.m, 1);
        ok(gw_matcher_bytes(s.m, "bbbc", 4, &taken));
        assert_true(taken);
        for (int i = 0; i < 10 + round * 3; i++) {
            assert_false(gw_matcher_may_end(s.m));
            ok(gw_matcher_bytes(s.m, ">", 1, &taken));
            assert_true(taken);
        }
        assert_true(gw_matcher_at_end(s.m));
    }
    close_subject(&s);
}

/* ---- a sampler's text ------------------------------------------------------------------------ */

enum { PROMPT = 7, WRITTEN = 5000 };

/* Logits of a text: one that was rewound meets them again. */
static int32_t pick_next(gw_sampler *s, const int32_t *text, int n) {
    static float logits[8192];
    uint32_t x = 12345u + (uint32_t)n;
    for (int i = n > 3 ? n - 3 : 0; i < n; i++) {
        x = x * 1664525u + 1013904223u + (uint32_t)text[i];
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        x = x * 1664525u + 1013904223u;
        logits[i] = (float)(x >> 8) / (float)(1 << 21);
    }
    int32_t token = -1;
    ok(gw_sampler_pick(s, logits, PROMPT + n, &token));
    return token;
}

static void write_on(gw_sampler *s, int32_t *text, int *n, int count) {
    for (; count > 0; count--) {
        text[*n] = pick_next(s, text, *n);
        ok(gw_sampler_accept(s, text[*n]));
        ++*n;
    }
}

static gw_sampler *constrained(const gw_grammar *grammar) {
    gw_sampler *s = NULL;
    gw_sampler_options o;
    gw_sampler_defaults(&o);
    o.repeat_penalty = 1.1f;
    ok(gw_sampler_new(model, &o, &s));
    for (int i = 0; i < PROMPT; i++) {
        ok(gw_sampler_accept(s, 300 + i));
    }
    ok(gw_sampler_constrain(s, grammar));
    return s;
}

/* Drafts that are dropped and tokens that are taken back, few and many, change nothing. */
static void test_sampler_rewind(void **state) {
    (void)state;
    static const char rules[] = "root ::= x*\nx ::= \"(\" x* \")\" | \"[\" x* \"]\" | "
                                "[a-z]{1,9} [.,]\n";
    static int32_t straight[WRITTEN], text[WRITTEN];
    gw_grammar *grammar = NULL;
    assert_true(n_vocab <= 8192);
    ok(gw_grammar_new(model, GW_GRAMMAR_GBNF, rules, sizeof rules - 1, NULL, &grammar));
    gw_sampler *a = constrained(grammar), *b = constrained(grammar);
    int n = 0, m = 0, high = 0, far = 0;
    write_on(a, straight, &n, WRITTEN);
    for (uint32_t dice = 3; m < WRITTEN;) {
        dice = dice * 1664525u + 1013904223u;
        int wish = 1 + (int)(dice >> 20) % 400, back = (int)(dice >> 12) % 300;
        for (int i = 0; i < wish % 5; i++) {
            gw_sampler_ahead(b, i % 2 ? 300 : pick_next(b, text, m));
        }
        gw_sampler_back(b);
        write_on(b, text, &m, wish < WRITTEN - m ? wish : WRITTEN - m);
        high = m > high ? m : high;
        int most = high > GW_HISTORY_BACK ? m - (high - GW_HISTORY_BACK) : m;
        if (high > GW_HISTORY_BACK && far < 2) {
            far++;
            back = most;
        }
        back = m == WRITTEN ? 0 : back < most ? back : most;
        ok(gw_sampler_rewind(b, (size_t)back));
        m -= back;
    }
    assert_int_equal(far, 2);
    assert_memory_equal(straight, text, sizeof text);
    assert_int_equal(gw_sampler_rewind(b, GW_HISTORY_BACK + 1), GW_E_ARGUMENT);
    m -= GW_HISTORY_BACK;
    ok(gw_sampler_rewind(b, GW_HISTORY_BACK));
    write_on(b, text, &m, 100);
    assert_memory_equal(straight, text, sizeof text);
    ok(gw_sampler_rewind(b, (size_t)m)); /* all of it */
    m = 0;
    write_on(b, text, &m, 200);
    assert_memory_equal(straight, text, 200 * sizeof *text);
    ok(gw_sampler_rewind(b, (size_t)m + 2)); /* the prompt's end too: the text begins anew */
    assert_int_equal(gw_sampler_accept(b, gw_token_bos(model)), GW_E_ARGUMENT);
    write_on(b, text, &m, 1);
    gw_sampler_free(a);
    gw_sampler_free(b);
    gw_grammar_free(grammar);
}

/* ---- hostile grammars ------------------------------------------------------------------------ */

static void endure(const char *name, const char *text, size_t n, const char *walk) {
    gw_program *program = NULL;
    double start = seconds();
    gw_status status = gw_grammar_compile(name, text, n, &program);
    if (status == GW_OK) {
        subject s = {0};
        s.program = program;
        s.end = gw_token_eos(model);
        status = gw_matcher_new(program, tree, &s.end, 1, n_vocab, &s.m);
        int taken = 1;
        gw_token_mask mask;
        for (size_t i = 0; status == GW_OK && taken && i < 24; i++) {
            status = gw_matcher_bytes(s.m, walk, strlen(walk), &taken);
            if (status == GW_OK) {
                status = gw_matcher_mask(s.m, &mask);
            }
        }
        close_subject(&s);
    }
    double took = seconds() - start;
    print_message("%-12s %s, %.3f s\n", name, gw_status_name(status), took);
    if (status != GW_OK && status != GW_E_LIMIT && status != GW_E_METADATA) {
        fail_msg("%s: %s", name, gw_error_text());
    }
    assert_true(took < 1.0 * SLOWER);
}

static void test_hostile(void **state) {
    (void)state;
    static const char *const small[][3] = {
        {"doubling",
         "root ::= a \"x\" | a \"y\"\na ::= b \"x\" | b \"y\"\nb ::= c \"x\" | c \"y\"\n"
         "c ::= d \"x\" | d \"y\"\nd ::= \"q\" root | \"q\"",
         "qx"},
        {"pairs", "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"", "aa"},
        {"stars", "root ::= ((((((\"a\"*)*)*)*)*)*)*", "a"},
        {"optional", "root ::= (\"a\"? \"a\"? \"a\"? \"a\"?){0,500} \"b\"", "a"},
        {"counts", "root ::= ((\"a\"{0,200}){0,200}){0,200} \"b\"", "a"},
        {"catalan", "root ::= \"a\" | \"(\" root root \")\" | \"(\" root root root \")\"", "(a"},
        {"ambiguous", "root ::= x\nx ::= \"a\" | \"a\" x x | \"a\" x x x", "aaaa"},
        {"any", "root ::= (.*){0,1000}", "abc"},
        {"powers", "root ::= ((((((\"a\"{10}){10}){10}){10}){10}){10}){10}", "aaaaa"},
    };
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        endure(small[i][0], small[i][1], strlen(small[i][1]), small[i][2]);
    }
    size_t n;
    char *text = filled("r%d ::= r%d \"x\" | r%d \"y\"\n", 8000, &n);
    n += (size_t)sprintf(text + n, "r8000 ::= \"a\"\nroot ::= r0\n");
    endure("deep-left", text, n, "ax");
    free(text);
    text = filled("r%d ::= \"(\" r%d \")\" r%d | \"\"\n", 8000, &n);
    n += (size_t)sprintf(text + n, "r8000 ::= \"a\"\nroot ::= r0\n");
    endure("deep-right", text, n, "(");
    free(text);
    text = malloc(GW_GRAMMAR_BYTES_MAX);
    assert_non_null(text);
    memset(text, '(', GW_GRAMMAR_BYTES_MAX);
    memcpy(text, "root ::= ", 9);
    endure("open", text, GW_GRAMMAR_BYTES_MAX, "a");
    free(text);
}

/* Names on one line, alternatives by the ten thousand, classes of everything, texts of a MiB. */
static void test_large(void **state) {
    (void)state;
    size_t n, at;
    char *text = filled("\"word-%d-%d\" | \"w%d\" | ", 8000, &n);
    char *whole = malloc(4u << 20);
    assert_non_null(whole);
    at = (size_t)sprintf(whole, "root ::= ");
    memcpy(whole + at, text, n);
    at += n + (size_t)sprintf(whole + at + n, "\"end\"");
    endure("words", whole, at, "w");
    free(text);
    text = filled("a%d b%d c%d ", 20000, &n);
    at = (size_t)sprintf(whole, "root ::= ");
    memcpy(whole + at, text, n);
    endure("undefined", whole, at + n, "w");
    free(text);
    gw_program *program = NULL;
    text = filled("[a-z]{1000} \"%d\" ", 1200, &n);
    memcpy(whole + at, text, n);
    assert_int_equal(gw_grammar_compile("grammar", whole, at + n, &program), GW_E_LIMIT);
    assert_non_null(strstr(gw_error_text(), "too large"));
    free(text);
    free(whole);
    whole = calloc(GW_GRAMMAR_BYTES_MAX + 1, 1);
    assert_non_null(whole);
    memset(whole, 'a', GW_GRAMMAR_BYTES_MAX + 1);
    endure("too-long", whole, GW_GRAMMAR_BYTES_MAX + 1, "w");
    memset(whole, '\n', GW_GRAMMAR_BYTES_MAX);
    endure("lines", whole, GW_GRAMMAR_BYTES_MAX, "w");
    free(whole);
}

/* A special token is written by its spelling, and text that spells it is another thing. */
static void test_special_terms(void **state) {
    (void)state;
    static const char *const grammars[] = {"root ::= \"a\" <s> \"b\"",
                                           "root ::= \"a\" @\"<s>\" \"b\""};
    int32_t bos = gw_token_bos(model), a = -1, b = -1;
    const char *text;
    size_t bytes;
    for (int32_t id = 0; id < n_vocab; id++) {
        gw_tokenizer_piece(gw_model_tokenizer(model), id, 0, &text, &bytes);
        int letter =
            bytes == 1 && gw_token_is_text(gw_model_vocab(model), gw_model_tokenizer(model), id);
        a = letter && text[0] == 'a' ? id : a;
        b = letter && text[0] == 'b' ? id : b;
    }
    assert_true(bos >= 0 && a >= 0 && b >= 0);
    for (int i = 0; i < 2; i++) {
        subject s;
        gw_token_mask mask;
        int taken = 0;
        open_subject(&s, grammars[i]);
        ok(gw_matcher_token(s.m, bos, &taken));
        assert_int_equal(taken, 0);
        ok(gw_matcher_token(s.m, a, &taken));
        assert_int_equal(taken, 1);
        ok(gw_matcher_mask(s.m, &mask));
        assert_int_equal(mask.n_text, 1);
        gw_matcher_keep(s.m, 1);
        ok(gw_matcher_bytes(s.m, "<s>", 3, &taken));
        assert_int_equal(taken, 0);
        ok(gw_matcher_token(s.m, bos, &taken));
        assert_int_equal(taken, 1);
        ok(gw_matcher_token(s.m, b, &taken));
        assert_true(taken && gw_matcher_at_end(s.m));
        gw_matcher_back(s.m, 1);
        ok(gw_matcher_retake(s.m, bos));
        assert_false(gw_matcher_may_end(s.m));
        close_subject(&s);
    }
    static const char *const wrong[] = {"root ::= <",     "root ::= <>",    "root ::= @",
                                        "root ::= @a",    "root ::= @\"\"", "root ::= @\"a",
                                        "root ::= <a\nb>"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gw_program *program = NULL;
        assert_int_equal(gw_grammar_compile("grammar", wrong[i], strlen(wrong[i]), &program),
                         GW_E_SYNTAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_split_characters),
        cmocka_unit_test(test_special_terms),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_collecting),
        cmocka_unit_test(test_sampler_rewind),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests_name("grammar", tests, open_model, close_model);
}
