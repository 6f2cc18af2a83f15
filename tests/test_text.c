/* tests/test_text.c - the parts of core/text on hand-made input: cuts, normal forms, added tokens,
 * pieces of every kind, streams, broken files. Expectations are worked out by hand or come from
 * another library. */
#include "tests/tokenizer_subject.h"

#include <utf8proc.h>

#include "core/text/tokens/normalize.h"
#include "core/text/tokens/known.h"
#include "core/text/tokens/pretokenize.h"
#include "core/text/tokens/stream.h"
#include "core/text/utf8.h"
#include "tests/random.h"

/* ---- characters -------------------------------------------------------------------------- */

static void test_utf8(void **state) {
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char out[4];
        uint32_t back = 0;
        if (cp >= 0xD800 && cp < 0xE000) {
            continue;
        }
        size_t n = gw_utf8_put(cp, out);
        assert_int_equal(gw_utf8_next(out, n, &back), n);
        assert_int_equal(back, cp);
        assert_int_equal(gw_utf8_next(out, n - 1, NULL), 0);
    }
    static const char *const BAD[] = {
        "\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(gw_utf8_next(BAD[i], strlen(BAD[i]), NULL), 0);
    }
    int open;
    assert_int_equal(gw_utf8_bad("\xF0\x9F\xA6", 3, &open), 3);
    assert_int_equal(open, 1);
    assert_int_equal(gw_utf8_bad("\xF0\x9F"
                                 "ab",
                                 4, &open),
                     2);
    assert_int_equal(open, 0);
    size_t letters = 0;
    for (uint32_t cp = 0; cp < 0x400; cp++) {
        letters += gw_letter_byte(cp) >= 0;
    }
    assert_int_equal(letters, 256);
    for (unsigned b = 0; b < 256; b++) {
        assert_int_equal(gw_letter_byte(gw_byte_letter((uint8_t)b)), (int)b);
    }
    assert_int_equal(gw_byte_letter(' '), 0x120); /* the well-known G with dot */
    assert_int_equal(gw_byte_letter('\n'), 0x10A);
}

/* Against utf8proc's own forms, which differ only in how they sort marks. */
static void test_normal_forms(void **state) {
    static const uint32_t FROM[] = {'a',    'e',    0x300,  0x301,  0x315,  0x327,  0x345,
                                    0xC5,   0x212B, 0xFB01, 0x1112, 0x1161, 0x11AB, 0xD55C,
                                    0x915,  0x93C,  0x9C7,  0x9BE,  0x1F82, 0x3099, 0x304B,
                                    0xAC00, 0x11A8, 0xFDFA, 0x338,  '<',    0x0,    0x2F800};
    (void)state;
    for (int round = 0; round < 20000; round++) {
        utf8proc_int32_t want[512];
        char text[128];
        size_t n = 0, count = 1 + random_u32() % 20;
        int compat = round & 1, compose = round >> 1 & 1;
        for (size_t i = 0; i < count; i++) {
            n += gw_utf8_put(FROM[random_u32() % (sizeof FROM / sizeof FROM[0])], text + n);
        }
        utf8proc_option_t options = UTF8PROC_STABLE |
                                    (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                    (compat ? UTF8PROC_COMPAT : 0);
        utf8proc_ssize_t wide = utf8proc_decompose((const utf8proc_uint8_t *)text,
                                                   (utf8proc_ssize_t)n, want, 512, options);
        assert_true(wide > 0 && wide <= 512);
        wide = compose ? utf8proc_normalize_utf32(want, wide, options) : wide;
        gw_bytes have = {0};
        must(gw_normalize_unicode(
            text, n, (compat ? GW_FORM_COMPATIBLE : 0) | (compose ? GW_FORM_COMPOSED : 0), &have));
        size_t at = 0;
        for (utf8proc_ssize_t i = 0; i < wide; i++) {
            uint32_t cp = 0;
            at += gw_utf8_next(have.data + at, have.n - at, &cp);
            assert_int_equal(cp, want[i]);
        }
        assert_int_equal(at, have.n);
        free(have.data);
    }
}

/* ---- cuts -------------------------------------------------------------------------------- */

typedef struct cut_case {
    const char *pre, *text, *want; /* pieces separated by | */
} cut_case;

static const cut_case CUTS[] = {
    {"qwen2", "Hello world", "Hello| world"},
    {"qwen2", "abc123", "abc|1|2|3"},
    {"llama-bpe", "abc12345", "abc|123|45"},
    {"gpt-2", "abc12345 67", "abc|12345| 67"},
    {"starcoder", "a12 b", "a|1|2| b"},
    {"falcon", "a12345!?", "a|123|45|!?"},
    {"qwen2", "I'LL go, we've", "I|'LL| go|,| we|'ve"},
    {"gpt-2", "I'LL I'll", "I|'|LL| I|'ll"},
    {"qwen2", "a\n\n b", "a|\n\n| b"},
    {"qwen2", "x  y", "x| | y"},
    {"qwen2", "foo();\nbar", "foo|();\n|bar"},
    {"gpt-2", "foo();\nbar", "foo|();|\n|bar"},
    {"qwen2", "  \n x", "  \n| x"},
    {"qwen2",
     "3.14 \xE2\x82\xAC"
     "5",
     "3|.|1|4| \xE2\x82\xAC|5"},
    {"qwen2", "\t\tif", "\t|\tif"},
    {"qwen2", "end   ", "end|   "},
    {"qwen2", "!\xE1\xA0\x8E", "!\xE1\xA0\x8E"}, /* U+180E is no White_Space */
    {"qwen2",
     "\xE4\xB8\xAD\xE6\x96\x87"
     "abc",
     "\xE4\xB8\xAD\xE6\x96\x87"
     "abc"},
    {"deepseek-coder", "a\nb 12", "a|\n|b| |1|2"},
    {"deepseek-coder", "x = y;", "x| =| y|;"},
    {"default", "a12345!?", "a|123|45|!?"},
    {"bloom", "ab (c), d", "ab| (|c|),| d"},
    {"viking", "a12, b", "a|1|2|,| b"},
    {"chameleon", "a<sentinel:1>b  2", "a|<|sentinel|:|1|>|b|  |2"},
    {"tekken", "camelCase's 12", "camel|Case|'s| |1|2"},
    {"gpt-4o", "camelCase's 1234/\n", "camel|Case's| |123|4|/\n"},
    {"granite-embed-multi-97m", "camelCase's", "camel|Case's"},
    {"tiny_aya", "1234567 aB", "1|234|567| a|B"},
    {"youtu", "camelCase 12", "camel|Case| |1|2"},
    {"kimi-k2", "a\xE6\xBC\xA2\xE5\xAD\x97 b", "a|\xE6\xBC\xA2\xE5\xAD\x97| b"},
    {"qwen35", "x\xCC\x81y", "x\xCC\x81y"},
    {"qwen2", "x\xCC\x81y", "x|\xCC\x81y"},
    {"ufakzeka", "'sam 12", "'sam| |1|2"},
    {"seed-coder", "a!\n b", "a|!|\n| b"},
    {"laguna", "a \nb", "a| |\n|b"},
    {"jais-2", "       x", "    |  | x"},
    {"minicpm5", "1234a", "123|4|a"},
    {"bailingmoe", "a'S\n\n\tb", "a|'S|\n\n|\tb"},
    {"exaone-moe", "ab cd 1", "ab cd| |1"},
    {"superbpe", "1234567 a b", "1|234|567| a b"},
    {"afmoe", "a1234567 b", "a|1|234|567| b"},
    {"deepseek-llm", "ab 12\n", "ab| |1|2|\n"},
    {"deepseek-v3", "a1234 b.c", "a|123|4| b|.c"},
    {"spark2_5", "a12345.\n\nb", "a|1|2|3|4|5|.|\n|\n|b"},
    {"gemma4", "a b\n\nc", "a b|\n\n|c"},
    {"sarvam-moe", "a b\n\nc", "a b|\n\n|c"},
    {"mmbert", GW_SPACE_MARK "a" GW_SPACE_MARK "b\n", GW_SPACE_MARK "a|" GW_SPACE_MARK "b|\n"},
    {"whitespace", "ab, c_d  e", "ab|,|c_d|e"},
};

static void check_cut(const gw_vocab *vocab, const char *text, const char *want) {
    gw_splitter *splitter = NULL;
    gw_split_work *work = NULL;
    const gw_span *spans;
    size_t n;
    char have[256] = "";
    must(gw_splitter_new("test", vocab, &splitter));
    must(gw_split_work_new(&work));
    must(gw_splitter_run(splitter, work, text, strlen(text), 0, &text, &spans, &n));
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(have);
        snprintf(have + at, sizeof have - at, "%s%.*s", i == 0 ? "" : "|", (int)spans[i].bytes,
                 text + spans[i].start);
    }
    assert_string_equal(have, want);
    gw_split_work_free(work);
    gw_splitter_free(splitter);
}

static void test_cuts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CUTS / sizeof CUTS[0]; i++) {
        gw_vocab vocab;
        gw_vocab_init(&vocab);
        snprintf(vocab.pre, sizeof vocab.pre, "%s", CUTS[i].pre);
        check_cut(&vocab, CUTS[i].text, CUTS[i].want);
    }
}

static void test_cut_rules(void **state) {
    static const char *const WANT[2][5] = {
        {"a|-|-|b|-|c", "a|b|c", "a-|-|b-|c", "a|-|-b|-c", "a|--|b|-|c"},
        {"a|-|-|b|-|c", "-|-|-", "a|-|-b|-c", "a-|-|b-|c", "a|-|-|b|-|c"}};
    (void)state;
    for (int invert = 0; invert < 2; invert++) {
        for (int rule = 0; rule < 5; rule++) {
            gw_vocab_split split = {"-", (gw_split_rule)rule, rule & 1, invert, NULL};
            gw_vocab vocab;
            gw_vocab_init(&vocab);
            vocab.splits = &split;
            vocab.n_splits = 1;
            if (invert && rule == GW_SPLIT_CONTIGUOUS) {
                continue; /* the same as the plain one; checked there */
            }
            check_cut(&vocab, "a--b-c", WANT[invert][rule]);
        }
    }
}

/* An empty match cuts where it is. */
static void test_cut_empty(void **state) {
    gw_vocab_split split = {"(?=b)", GW_SPLIT_ISOLATED, 0, 0, NULL};
    gw_vocab vocab;
    (void)state;
    gw_vocab_init(&vocab);
    vocab.splits = &split;
    vocab.n_splits = 1;
    check_cut(&vocab, "babbac", "ba|b|bac");
}

static void test_known(void **state) {
    static const struct {
        const char *name;
        unsigned flags;
    } rows[] = {
        {"llama-bpe", GW_KNOWN_IGNORE_MERGES | GW_KNOWN_BOS},
        {"pixtral", GW_KNOWN_IGNORE_MERGES | GW_KNOWN_BOS},
        {"tekken", GW_KNOWN_IGNORE_MERGES | GW_KNOWN_BOS},
        {"glm4", GW_KNOWN_IGNORE_MERGES},
        {"glm5", GW_KNOWN_IGNORE_MERGES},
        {"youtu", GW_KNOWN_IGNORE_MERGES},
        {"chatglm-bpe", 0},
        {"smaug-bpe", 0},
        {"roberta-bpe", GW_KNOWN_SEP},
        {"chameleon", GW_KNOWN_BOS},
        {"minimax-m2", GW_KNOWN_NFC},
        {"gemma4", GW_KNOWN_PIECES | GW_KNOWN_MARKS},
        {"whitespace", GW_KNOWN_PIECES},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const gw_known_pretokenizer *known = NULL;
        must(gw_known_find("test", rows[i].name, &known));
        assert_int_equal(known->flags, rows[i].flags);
    }
}

static void test_cut_refused(void **state) {
    gw_splitter *splitter = NULL;
    gw_vocab vocab;
    gw_vocab_split split = {"a(", GW_SPLIT_ISOLATED, 0, 0, NULL};
    (void)state;
    gw_vocab_init(&vocab);
    snprintf(vocab.pre, sizeof vocab.pre, "nobody");
    assert_int_equal(gw_splitter_new("test", &vocab, &splitter), GW_E_UNSUPPORTED);
    assert_non_null(strstr(gw_error_text(), "--pretokenizer"));
    for (size_t i = 0; i < sizeof CUTS / sizeof CUTS[0]; i++) {
        assert_non_null(strstr(gw_error_text(), CUTS[i].pre));
    }
    assert_non_null(strstr(gw_error_text(), " whitespace")); /* the last: nothing is cut off */
    vocab.pre[0] = '\0';
    vocab.splits = &split;
    vocab.n_splits = 1;
    assert_int_equal(gw_splitter_new("test", &vocab, &splitter), GW_E_UNSUPPORTED);
}

/* ---- a SentencePiece vocabulary by hand -------------------------------------------------- */

#define M GW_SPACE_MARK
#define TOKEN(t, k, s)                                                                             \
    { .text = t, .bytes = sizeof(t) - 1, .kind = k, .score = s }

enum { UNK, BOS, EOS, MARK, A, B, C, AB, ABC, USER, MARK_A, X, N_HAND };

static void hand_vocab(gw_vocab_token tokens[N_HAND], gw_vocab *v) {
    const gw_vocab_token from[N_HAND] = {
        TOKEN("<unk>", GW_TOKEN_UNKNOWN, 0), TOKEN("<s>", GW_TOKEN_CONTROL, 0),
        TOKEN("</s>", GW_TOKEN_CONTROL, 0),  TOKEN(M, GW_TOKEN_NORMAL, -9),
        TOKEN("a", GW_TOKEN_NORMAL, -9),     TOKEN("b", GW_TOKEN_NORMAL, -9),
        TOKEN("c", GW_TOKEN_NORMAL, -9),     TOKEN("ab", GW_TOKEN_UNUSED, -1),
        TOKEN("abc", GW_TOKEN_NORMAL, -2),   TOKEN("bca", GW_TOKEN_USER, 0),
        TOKEN(M "a", GW_TOKEN_NORMAL, -3),   TOKEN("xyz", GW_TOKEN_NORMAL, -9)};
    memcpy(tokens, from, sizeof from);
    gw_vocab_init(v);
    v->kind = GW_VOCAB_SPM_BPE;
    v->tokens = tokens;
    v->n_tokens = N_HAND;
    v->unk = UNK;
    v->bos = BOS;
    v->eos = EOS;
    v->add_bos = 1;
    v->add_space_prefix = 1;
}

static void check_text(const gw_tokenizer *t, const char *text, int flags, const int32_t *want) {
    int32_t *ids = NULL;
    size_t n = 0, n_want = 0;
    while (want[n_want] >= 0) {
        n_want++;
    }
    must(gw_tokenizer_encode(t, text, strlen(text), flags, &ids, &n));
    for (size_t i = 0; n != n_want && i < n; i++) {
        print_error(" %d", (int)ids[i]);
    }
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n * sizeof *ids);
    free(ids);
}

#define IDS(...)                                                                                   \
    (const int32_t[]) { __VA_ARGS__, -1 }

static void test_spm_by_hand(void **state) {
    gw_vocab_token tokens[N_HAND];
    gw_vocab v;
    gw_tokenizer *t = NULL;
    (void)state;
    hand_vocab(tokens, &v);
    must(gw_vocab_check("hand", &v));
    must(gw_tokenizer_new(&v, &t));
    check_text(t, "b", 0, IDS(MARK, B));
    check_text(t, "abc", 0, IDS(MARK, ABC));          /* "ab" first, whatever it is */
    check_text(t, "cab", 0, IDS(MARK, C, A, B));      /* the unused piece falls apart */
    check_text(t, "abca", 0, IDS(MARK_A, USER));      /* the user's piece is cut out first */
    check_text(t, "??b?", 0, IDS(MARK, UNK, B, UNK)); /* neighbours are one unknown */
    check_text(t, "<s>b", GW_TEXT_SPECIAL | GW_TEXT_BOS, IDS(BOS, BOS, MARK, B));
    check_text(t, "<s>b", 0, IDS(MARK, UNK, B));
    check_text(t, "", GW_TEXT_BOS, IDS(BOS));
    gw_tokenizer_free(t);
    v.remove_extra_spaces = 1;
    must(gw_vocab_check("hand", &v));
    must(gw_tokenizer_new(&v, &t));
    check_text(t, "  b   c ", 0, IDS(MARK, B, MARK, C));
    check_text(t, "   ", 0, (const int32_t[]){-1});
    char *text = NULL;
    size_t bytes;
    must(gw_tokenizer_decode(t, IDS(BOS, MARK, UNK, EOS), 4, 0, &text, &bytes));
    assert_string_equal(text, " \xE2\x81\x87 ");
    free(text);
    int32_t beyond = N_HAND;
    assert_int_equal(gw_tokenizer_decode(t, &beyond, 1, 0, &text, &bytes), GW_E_ARGUMENT);
    gw_tokenizer_free(t);
}

static void put_u32(uint8_t *at, uint32_t v) {
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(v >> (8 * i));
    }
}

/* A double array of 256 units with two rules, "A" -> "a" and "AB" -> "xyz". */
static void test_charsmap(void **state) {
    uint8_t map[4 + 4 * 256 + 6] = {0};
    (void)state;
    put_u32(map, 4 * 256);
    uint8_t *units = map + 4;
    put_u32(units + 4 * 0x41, 1u << 10 | 0x100 | 0x41); /* 'A' at 0 ^ 'A'; its base is 0x41 ^ 1 */
    put_u32(units + 4 * 0x40, 0x80000000u);             /* value 0 */
    put_u32(units + 4 * 0x02, 4u << 10 | 0x100 | 0x42); /* 'B' at 0x40 ^ 'B' */
    put_u32(units + 4 * 0x06, 0x80000002u);             /* value 2 */
    memcpy(map + 4 + 4 * 256, "a\0xyz", 6);
    assert_true(gw_charsmap_valid(map, sizeof map));
    assert_false(gw_charsmap_valid(map, sizeof map - 1));
    assert_false(gw_charsmap_valid(map, 7));
    gw_vocab_token tokens[N_HAND];
    gw_vocab v;
    gw_tokenizer *t = NULL;
    hand_vocab(tokens, &v);
    v.charsmap = map;
    v.charsmap_bytes = sizeof map;
    must(gw_vocab_check("hand", &v));
    must(gw_tokenizer_new(&v, &t));
    check_text(t, "Ac", 0, IDS(MARK_A, C));
    check_text(t, "bA", 0, IDS(MARK, B, A));
    check_text(t, "B", 0, IDS(MARK, UNK));
    gw_bytes out = {0};
    gw_trie *none = gw_trie_new();
    must(gw_normalize_sentencepiece(&v, none, "AAB B", 5, 0, &out));
    assert_int_equal(out.n, strlen(M "axyz" M "B"));
    assert_memory_equal(out.data, M "axyz" M "B", out.n);
    gw_trie_free(none);
    free(out.data);
    gw_tokenizer_free(t);
    for (int i = 0; i < 20000; i++) { /* any array is safe to walk */
        const char *to;
        size_t n;
        put_u32(units + 4 * (random_u32() % 256), (uint32_t)random_u32());
        (void)gw_charsmap_match(map, sizeof map,
                                "AB\x01\xFF"
                                "CABAB",
                                9, i & 1, &to, &n);
    }
}

static void test_checks(void **state) {
    gw_vocab_token tokens[N_HAND];
    gw_vocab v;
    (void)state;
    hand_vocab(tokens, &v);
    tokens[A].score = strtof("nan", NULL);
    assert_int_equal(gw_vocab_check("hand", &v), GW_E_METADATA);
    hand_vocab(tokens, &v);
    v.bos = N_HAND;
    assert_int_equal(gw_vocab_check("hand", &v), GW_E_METADATA);
    hand_vocab(tokens, &v);
    v.unk = -1;
    assert_int_equal(gw_vocab_check("hand", &v), GW_E_METADATA);
    static const char *const NAMES[] = {"<0x-1>", "<0xZZ>", "<0x1>", "<0x41>"};
    for (size_t i = 0; i < 4; i++) { /* the last is well spelled, but 255 others are missing */
        hand_vocab(tokens, &v);
        tokens[X].text = NAMES[i];
        tokens[X].bytes = (uint32_t)strlen(NAMES[i]);
        tokens[X].kind = GW_TOKEN_BYTE;
        assert_int_equal(gw_vocab_check("hand", &v), GW_E_METADATA);
    }
    hand_vocab(tokens, &v);
    tokens[C].bytes = 0; /* converters lose them: no text can be made of it */
    assert_int_equal(gw_vocab_check("hand", &v), GW_OK);
    assert_int_equal(tokens[C].kind, GW_TOKEN_UNUSED);
    hand_vocab(tokens, &v);
    v.kind = GW_VOCAB_BYTE_BPE; /* no letters for the bytes */
    assert_int_equal(gw_vocab_check("hand", &v), GW_E_METADATA);
}

/* ---- added tokens of tokenizer.json ------------------------------------------------------ */

#define JSON_HEAD(added, normalizer)                                                               \
    "{\"added_tokens\":[" added "],\"normalizer\":" normalizer                                     \
    ",\"pre_tokenizer\":null,\"decoder\":null,\"post_processor\":null,\"model\":{\"type\":"        \
    "\"BPE\","                                                                                     \
    "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\" \":3,"    \
    "\"\xE2\x96\x81\":4,\"ab\":5,\"bb\":7},\"merges\":[[\"a\",\"b\"],\"b b\"]}}"
#define ADDED(id, text, flags) "{\"id\":" id ",\"content\":\"" text "\"" flags "}"
#define LLAMA_NORMALIZER                                                                           \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}," \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]}"

static void check_json(const char *json, const char *text, int flags, const int32_t *want) {
    gw_vocab v;
    gw_tokenizer *t = NULL;
    must(gw_vocab_read_tokenizer_json("test", json, strlen(json), &v));
    must(gw_tokenizer_new(&v, &t));
    check_text(t, text, flags, want);
    gw_tokenizer_free(t);
    gw_vocab_free(&v);
}

static void test_added(void **state) {
    (void)state;
    const char *plain = JSON_HEAD(ADDED("8", "<x>", ""), "null");
    check_json(plain, "a<x>b", 0, IDS(1, 8, 2));
    check_json(plain, "abbb??", 0, IDS(5, 7, 0));
    check_json(plain, "bbb", 0, IDS(7, 2)); /* the leftmost pair first */
    const char *special = JSON_HEAD(ADDED("8", "<x>", ",\"special\":true"), "null");
    check_json(special, "a<x>b", 0, IDS(1, 0, 2));
    check_json(special, "a<x>b", GW_TEXT_SPECIAL, IDS(1, 8, 2));
    const char *left = JSON_HEAD(ADDED("8", "<x>", ",\"lstrip\":true"), "null");
    check_json(left, "a  <x> b", 0, IDS(1, 8, 3, 2));
    const char *right = JSON_HEAD(ADDED("8", "<x>", ",\"rstrip\":true"), "null");
    check_json(right, "a <x>  b", 0, IDS(1, 3, 8, 2));
    const char *word = JSON_HEAD(ADDED("8", "aa", ",\"single_word\":true"), "null");
    check_json(word, "aa b", 0, IDS(8, 3, 2));
    check_json(word, "aab", 0, IDS(1, 5));
    const char *longest = JSON_HEAD(ADDED("8", "<x>", "") "," ADDED("9", "<x><x>", ""), "null");
    check_json(longest, "<x><x><x>", 0, IDS(9, 8));
    const char *raw = JSON_HEAD(ADDED("8", "<x>", ",\"normalized\":false"), LLAMA_NORMALIZER);
    check_json(raw, "b<x>b", 0, IDS(4, 2, 8, 4, 2)); /* the prefix comes again */
    const char *normal = JSON_HEAD(ADDED("8", "<x>", ",\"normalized\":true"), LLAMA_NORMALIZER);
    check_json(normal, "b <x>b", 0, IDS(4, 2, 8, 2)); /* it is looked for with its prefix */
}

static void test_json_refused(void **state) {
    static const struct {
        const char *json;
        gw_status want;
    } rows[] = {
        {"[]", GW_E_TYPE},
        {"{}", GW_E_METADATA},
        {"{", GW_E_SYNTAX},
        {"{\"model\":{\"type\":\"Rwkv\"}}", GW_E_UNSUPPORTED},
        {JSON_HEAD(ADDED("8", "<x>", "") "," ADDED("8", "<y>", ""), "null"), GW_E_METADATA},
        {JSON_HEAD(ADDED("8", "a", ""), "null"), GW_E_METADATA},
        {JSON_HEAD(ADDED("-1", "<x>", ""), "null"), GW_E_METADATA},
        {JSON_HEAD(ADDED("8", "", ""), "null"), GW_E_METADATA},
        {JSON_HEAD("", "{\"type\":\"Uppercase\"}"), GW_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"\"]]}}",
         GW_E_METADATA},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a \"]}}", GW_E_METADATA},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}}", GW_E_TYPE},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"}}}", GW_E_TYPE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_vocab v;
        gw_status status =
            gw_vocab_read_tokenizer_json("test", rows[i].json, strlen(rows[i].json), &v);
        if (status != rows[i].want) {
            print_error("row %zu: %s\n", i, gw_error_text());
        }
        assert_int_equal(status, rows[i].want);
    }
}

/* ---- streams ----------------------------------------------------------------------------- */

static void push(gw_text_stream *s, int32_t id, const char *want) {
    const char *text;
    size_t bytes;
    must(gw_text_stream_push(s, id, &text, &bytes));
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(text, want);
}

static void test_stream(void **state) {
    subject s;
    (void)state;
    load("models/tales-21m/tokenizer.model", &s); /* byte tokens begin at id 3 */
    gw_text_stream *stream = NULL;
    must(gw_text_stream_new(s.t, &stream));
    push(stream, 1, "");
    push(stream, 2662, "Once"); /* the space in front is the encoder's */
    push(stream, 621, " upon");
    push(stream, 3 + 0xF0, "");
    push(stream, 3 + 0x9F, "");
    push(stream, 3 + 0xA6, "");
    push(stream, 3 + 0x99, "\xF0\x9F\xA6\x99");
    push(stream, 3 + 0xE4, "");
    push(stream, 621, "\xEF\xBF\xBD upon"); /* never completed */
    push(stream, 3 + 0xFF, "\xEF\xBF\xBD");
    push(stream, 3 + 0xC3, "");
    push(stream, -1, "\xEF\xBF\xBD");
    push(stream, -1, "");
    const char *text;
    size_t bytes;
    assert_int_equal(gw_text_stream_push(stream, 1 << 20, &text, &bytes), GW_E_ARGUMENT);
    gw_text_stream_free(stream);
    unload(&s);
}

/* ---- broken files ------------------------------------------------------------------------ */

/* Every outcome is a vocabulary that tokenizes, or one line that says why not. */
static void try_file(const char *name, const void *bytes, size_t n) {
    gw_vocab v;
    int json = strstr(name, ".json") != NULL;
    gw_status status = json ? gw_vocab_read_tokenizer_json(name, bytes, n, &v)
                            : gw_vocab_read_sentencepiece(name, bytes, n, &v);
    if (status != GW_OK) {
        assert_true(strlen(gw_error_text()) > 10);
        assert_null(strchr(gw_error_text(), '\n'));
        return;
    }
    gw_tokenizer *t = NULL;
    if (gw_tokenizer_new(&v, &t) == GW_OK) {
        int32_t *ids = NULL;
        size_t n_ids;
        if (gw_tokenizer_encode(t, "The king \xFF said", 14, GW_TEXT_SPECIAL, &ids, &n_ids) ==
            GW_OK) {
            free(ids);
        }
        gw_tokenizer_free(t);
    }
    gw_vocab_free(&v);
}

static void test_broken(void **state) {
    const char *name = *state;
    gw_file file = open_shared(name);
    char *copy = malloc(file.size);
    assert_non_null(copy);
    for (int round = 0; round < 60; round++) {
        size_t cut = round % 3 == 0 ? random_u32() % file.size : file.size;
        memcpy(copy, file.data, file.size);
        for (int i = 0; i < round % 5; i++) {
            /* the ends hold the settings; hit them more often */
            size_t span = round % 2 == 0 ? file.size : file.size < 400 ? file.size : 400;
            copy[file.size - 1 - random_u32() % span] = (char)random_u32();
        }
        char *tight = malloc(cut + 1); /* so that a sanitizer sees one byte too many */
        assert_non_null(tight);
        memcpy(tight, copy, cut);
        try_file(name, tight, cut);
        free(tight);
    }
    free(copy);
    gw_file_close(&file);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_normal_forms),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_cut_rules),
        cmocka_unit_test(test_cut_empty),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_cut_refused),
        cmocka_unit_test(test_spm_by_hand),
        cmocka_unit_test(test_charsmap),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_added),
        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_stream),
        {"broken tokenizer.model", test_broken, NULL, NULL, "tokenizers/spm-bpe/tokenizer.model"},
        {"broken tokenizer.json", test_broken, NULL, NULL, "badfiles/hf-valid-base/tokenizer.json"},
        {"broken llama json", test_broken, NULL, NULL,
         "tokenizers/llama-bytefallback/tokenizer.json"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
