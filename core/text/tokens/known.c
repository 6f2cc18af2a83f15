/* core/text/tokens/known.c - see known.h. A rule is the chain of expressions of the published
 * tokenizers; a row the names that mean the same. */
#include "core/text/tokens/known.h"

#include <stdio.h>
#include <string.h>

/* ---- expressions ------------------------------------------------------------------------- */

#define BYTE_LEVEL                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
const char GW_PATTERN_GPT2[] = BYTE_LEVEL;

#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SYMBOLS_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define SPACES "\\s+(?!\\S)|\\s+"
#define LINES "\\s*[\\r\\n]+|" SPACES
#define PUNCTUATION "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define QWEN2 ENDING "|" WORD "|\\p{N}|" SYMBOLS "|" LINES

/* A word is told apart at its capitals. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* The same but Han, by what they leave out: one class, where an intersection would backtrack. */
#define UPPER_NO_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define LOWER_NO_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define CASED(upper, lower, ending)                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower  \
    "*" ending
#define GPT_4O CASED(UPPER, LOWER, ENDING "?") "|\\p{N}{1,3}|" SYMBOLS_SLASH "|" LINES

#define HAN_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define HAN_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define ASCII_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define MARKED_WORD "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
#define DEEPSEEK_V3 ASCII_WORD "|" MARKED_WORD "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES
#define BLOOM " ?[^(\\s|[.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c}])]+"
#define AFMOE_SCRIPTS                                                                              \
    "[\\x{4e00}-\\x{9fff}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}\\x{3400}-\\x{4dbf}"                \
    "\\x{f900}-\\x{faff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}]+|[\\x{e00}-\\x{e7f}]+"             \
    "|[\\x{e80}-\\x{eff}]+|[\\x{1780}-\\x{17ff}]+"                                                 \
    "|[\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}]+"                                \
    "|[\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+"                                                    \
    "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}" \
    "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" HAN_KANA
/* \w as Unicode says it; PCRE2's changes from version to version. */
#define WORD_CHARACTERS                                                                            \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"  \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

#define WORDS "[" WORD_CHARACTERS "]+|[^\\s" WORD_CHARACTERS "]+"
const char GW_PATTERN_WORDS[] = WORDS;

/* Digits in threes from the right where no `stop` follows, each run looked at as a whole only once:
 * behind a match inside a run what is left of it is threes. */
#define THREES(digit, stop)                                                                        \
    "(?<=" digit ")\\G" digit "{3}|(?<!" digit ")" digit "{1,3}(?=(?:" digit "{3})*(?![" stop "])" \
    ")"

static const char DEEPSEEK_LLM_LETTERS[] =
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-"
    "\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-"
    "\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-"
    "\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-"
    "\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+";

/* ---- rules ------------------------------------------------------------------------------- */

/* Every match is a piece of its own. */
#define CUT(pattern)                                                                               \
    { pattern, GW_SPLIT_ISOLATED, 0, 0, NULL }

static const gw_vocab_split GPT2[] = {CUT(BYTE_LEVEL)};
static const gw_vocab_split LLAMA3[] = {CUT(ENDING "|" WORD "|\\p{N}{1,3}|" SYMBOLS "|" LINES)};
static const gw_vocab_split JAIS2[] = {
    CUT(ENDING "|" WORD "|\\p{N}{1,3}|" SYMBOLS "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)"
               "|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)"
               "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}")};
static const gw_vocab_split DEEPSEEK_LLM[] = {
    CUT("[\\r\\n]"),
    CUT(DEEPSEEK_LLM_LETTERS),
    CUT("\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
        "\\x{3000}-\\x{3002}]+"),
    CUT("\\s+$"),
    CUT(HAN_HANGUL),
    CUT("\\p{N}")};
static const gw_vocab_split DEEPSEEK_CODER[] = {CUT("[\\r\\n]"), CUT("\\s?\\p{L}+"),
                                                CUT("\\s?\\p{P}+"), CUT(HAN_HANGUL), CUT("\\p{N}")};
static const gw_vocab_split DEEPSEEK_V3_CHAIN[] = {CUT("\\p{N}{1,3}"), CUT(HAN_KANA),
                                                   CUT(DEEPSEEK_V3)};
static const gw_vocab_split SPARK[] = {
    CUT("\\p{N}{1,3}"), CUT(HAN_KANA),
    CUT(ASCII_WORD "|" MARKED_WORD "| ?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACES), CUT("\\p{N}")};
static const gw_vocab_split YOUTU[] = {
    CUT(YOUTU_SCRIPTS), CUT(CASED(UPPER, LOWER, ENDING "?") "|\\p{N}|" SYMBOLS_SLASH "|" LINES)};
static const gw_vocab_split FALCON[] = {CUT(PUNCTUATION), CUT(BYTE_LEVEL), CUT("[0-9][0-9][0-9]")};
static const gw_vocab_split STARCODER[] = {CUT("\\p{N}"), CUT(BYTE_LEVEL)};
static const gw_vocab_split QWEN2_CHAIN[] = {CUT(QWEN2)};
static const gw_vocab_split QWEN35[] = {
    CUT(ENDING "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
               "|" LINES)};
static const gw_vocab_split BLOOM_CHAIN[] = {CUT(BLOOM)};
static const gw_vocab_split VIKING[] = {CUT(BLOOM), CUT("\\p{N}")};
static const gw_vocab_split TEKKEN[] = {
    CUT(CASED(UPPER, LOWER, "") "|\\p{N}|" SYMBOLS_SLASH "|" LINES)};
static const gw_vocab_split CHAMELEON[] = {
    CUT("<sentinel:[0-9]+>"),  CUT("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    CUT("([\\t\\n]|    |  )"), CUT("\\p{N}"),
    CUT("[\\p{P}$+<=>^`|~]"),  CUT(BYTE_LEVEL)};
static const gw_vocab_split GPT_4O_CHAIN[] = {CUT(GPT_4O)};
static const gw_vocab_split TINY_AYA[] = {CUT(THREES("\\d", "\\d" WORD_CHARACTERS)), CUT(GPT_4O)};
static const gw_vocab_split KIMI_K2[] = {CUT("[\\p{Han}]+|" CASED(
    UPPER_NO_HAN, LOWER_NO_HAN, ENDING "?") "|\\p{N}{1,3}|" SYMBOLS "|" LINES)};
static const gw_vocab_split SUPERBPE[] = {
    CUT("\\p{N}+"), CUT("\\G(?:(?<=\\d)\\d{3}|(?<!\\d)\\d{3}(?=(?:\\d{3})*(?!\\d))"
                        "|(?s:.)+?(?=(?:\\d{3})+(?!\\d)))")};
static const gw_vocab_split BAILINGMOE[] = {
    CUT("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" SPACES)};
static const gw_vocab_split SEED_CODER[] = {
    CUT(ENDING "|" WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LINES)};
static const gw_vocab_split UFAKZEKA[] = {CUT(WORD "|\\p{N}|" SYMBOLS "|" LINES)};
static const gw_vocab_split AFMOE[] = {CUT(THREES("\\p{Nd}", "\\p{Nd}")), CUT(AFMOE_SCRIPTS),
                                       CUT(DEEPSEEK_V3)};
static const gw_vocab_split LAGUNA[] = {CUT("[^\\n]+|[\\n]+"), CUT(QWEN2)};
static const gw_vocab_split EXAONE_MOE[] = {
    CUT(ENDING "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|" SPACES)};
static const gw_vocab_split MINICPM5[] = {CUT("\\p{N}{1,3}"),
                                          CUT(ENDING "|" WORD "|\\p{N}+|" SYMBOLS "|" LINES)};
static const gw_vocab_split GEMMA4[] = {CUT("[^\\n]+|[\\n]+")};
/* Every line begins with a space. */
static const gw_vocab_step LINE_SPACE = {.kind = GW_CHANGE_PREPEND,
                                         .flags = GW_CHANGE_IF_NONE | GW_CHANGE_LINES,
                                         .text = "\xE2\x96\x81",
                                         .text_bytes = 3};
static const gw_vocab_split MMBERT[] = {CUT("[^\\n]+|[\\n]+"),
                                        {NULL, GW_SPLIT_ISOLATED, 0, 0, &LINE_SPACE},
                                        {"\xE2\x96\x81", GW_SPLIT_WITH_NEXT, 1, 0, NULL}};
static const gw_vocab_split WHITESPACE[] = {{WORDS, GW_SPLIT_REMOVED, 0, 1, NULL}};
static const gw_vocab_split NAMELESS[] = {CUT("[\\p{P}\\$\\+<=>\\^~\\|]+"), CUT(BYTE_LEVEL),
                                          CUT("\\p{N}+"), CUT("[0-9][0-9][0-9]")};

/* ---- names ------------------------------------------------------------------------------- */

#define RULE(splits, flags)                                                                        \
    { splits, sizeof(splits) / sizeof(splits)[0], flags }
enum { LLAMA3_WAY = GW_KNOWN_IGNORE_MERGES | GW_KNOWN_BOS };

static const struct {
    const char *names; /* separated by spaces */
    gw_known_pretokenizer means;
} ROWS[] = {
    {"default", RULE(NAMELESS, 0)},
    {"gpt-2 gpt2 a.x-4.0 exaone4 gigachat granite-docling jais jina-de jina-es "
     "jina-v2-de jina-v2-es mellum modern-bert mpt olmo phi-2 trillion",
     RULE(GPT2, 0)},
    {"jina-v1-en jina-v2-code roberta-bpe", RULE(GPT2, GW_KNOWN_SEP)},
    {"llama-bpe llama3 llama-v3 falcon-h1 falcon3 jina-v5-nano lfm2 midm-2.0 pixtral",
     RULE(LLAMA3, LLAMA3_WAY)},
    {"glm4 glm5", RULE(LLAMA3, GW_KNOWN_IGNORE_MERGES)},
    {"chatglm-bpe dbrx smaug-bpe", RULE(LLAMA3, 0)},
    {"jais-2", RULE(JAIS2, 0)},
    {"qwen2 deepseek-r1-qwen megrez stablelm2", RULE(QWEN2_CHAIN, GW_KNOWN_NFC)},
    {"f2llmv2 grok-2 hunyuan kormo solar-open", RULE(QWEN2_CHAIN, 0)},
    {"qwen35", RULE(QWEN35, GW_KNOWN_NFC)},
    {"laguna", RULE(LAGUNA, 0)},
    {"ufakzeka", RULE(UFAKZEKA, 0)},
    {"seed-coder", RULE(SEED_CODER, 0)},
    {"bailingmoe bailingmoe2 llada-moe", RULE(BAILINGMOE, 0)},
    {"exaone-moe", RULE(EXAONE_MOE, 0)},
    {"minicpm5", RULE(MINICPM5, GW_KNOWN_IGNORE_MERGES)},
    {"starcoder codeshell exaone mellum2 minerva-7b refact smollm", RULE(STARCODER, 0)},
    {"command-r", RULE(STARCODER, GW_KNOWN_NFC)},
    {"falcon", RULE(FALCON, 0)},
    {"bloom gpt3-finnish poro-chat", RULE(BLOOM_CHAIN, 0)},
    {"viking", RULE(VIKING, 0)},
    {"tekken", RULE(TEKKEN, LLAMA3_WAY)},
    {"gpt-4o kanana2 llama4 talkie", RULE(GPT_4O_CHAIN, 0)},
    {"minimax-m2", RULE(GPT_4O_CHAIN, GW_KNOWN_NFC)},
    {"granite-embed-multi-97m", RULE(GPT_4O_CHAIN, GW_KNOWN_IGNORE_MERGES)},
    {"tiny_aya cohere2moe", RULE(TINY_AYA, 0)},
    {"kimi-k2", RULE(KIMI_K2, 0)},
    {"youtu", RULE(YOUTU, GW_KNOWN_IGNORE_MERGES)},
    {"superbpe", RULE(SUPERBPE, 0)},
    {"afmoe", RULE(AFMOE, 0)},
    {"deepseek-llm", RULE(DEEPSEEK_LLM, 0)},
    {"deepseek-coder", RULE(DEEPSEEK_CODER, 0)},
    {"deepseek-v3 hunyuan-dense hy_v4 joyai-llm", RULE(DEEPSEEK_V3_CHAIN, 0)},
    {"spark2_5", RULE(SPARK, 0)},
    {"chameleon", RULE(CHAMELEON, GW_KNOWN_BOS)},
    {"gemma4 granite-embed-multi-311m sarvam-moe", RULE(GEMMA4, GW_KNOWN_PIECES | GW_KNOWN_MARKS)},
    {"mmbert", RULE(MMBERT, GW_KNOWN_PIECES | GW_KNOWN_MARKS)},
    {"whitespace", RULE(WHITESPACE, GW_KNOWN_PIECES)},
};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };

/* ---- chains of files --------------------------------------------------------------------- */

/* Digits in threes from the right, as the files write it: each looks at all that follows. */
static const struct {
    const char *patterns[4]; /* as far as not NULL */
    const gw_vocab_split *means;
    size_t n;
} SLOW[] = {
    {{"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}, SUPERBPE, 2},
    {{"\\p{Nd}{1,510}(?=(?>\\p{Nd}{510})*(?:\\P{Nd}|$))|\\G\\p{Nd}{510}",
      "\\A\\p{Nd}{1,2}(?=\\p{Nd}{3}+\\z)", "\\A\\p{Nd}{3}|\\G\\p{Nd}{3}"},
     AFMOE,
     1},
    {{"\\d{1,3}(?=(?:\\d{3})*\\b)"}, TINY_AYA, 1},
};

static size_t chain_length(const gw_vocab_split *splits, size_t n, const char *const *patterns) {
    size_t k = 0;
    while (k < 4 && patterns[k] != NULL) {
        if (k == n || splits[k].change != NULL || splits[k].literal || splits[k].invert ||
            splits[k].rule != GW_SPLIT_ISOLATED || strcmp(splits[k].pattern, patterns[k]) != 0) {
            return 0;
        }
        k++;
    }
    return k;
}

size_t gw_known_linear(gw_vocab_split *splits, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof SLOW / sizeof SLOW[0]; k++) {
            size_t length = chain_length(splits + i, n - i, SLOW[k].patterns);
            if (length >= SLOW[k].n && length > 0) {
                memcpy(splits + i, SLOW[k].means, SLOW[k].n * sizeof *splits);
                memmove(splits + i + SLOW[k].n, splits + i + length,
                        (n - i - length) * sizeof *splits);
                n -= length - SLOW[k].n;
                i += SLOW[k].n - 1;
                break;
            }
        }
    }
    return n;
}

static int has_name(const char *names, const char *name) {
    size_t n = strlen(name);
    for (const char *p = names; n > 0 && (p = strstr(p, name)) != NULL; p += n) {
        if ((p == names || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) {
            return strchr(name, ' ') == NULL;
        }
    }
    return 0;
}

gw_status gw_known_find(const char *where, const char *name, const gw_known_pretokenizer **out) {
    char all[1400] = "";
    for (size_t i = 0; i < N_ROWS; i++) {
        if (has_name(ROWS[i].names, name)) {
            *out = &ROWS[i].means;
            return GW_OK;
        }
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s", i == 0 ? "" : " ", ROWS[i].names);
    }
    return gw_fail(GW_E_UNSUPPORTED, where,
                   "unknown pre-tokenizer \"%.40s\"; --pretokenizer NAME takes one of: %s", name,
                   all);
}
