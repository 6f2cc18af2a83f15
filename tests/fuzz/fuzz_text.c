/* tests/fuzz/fuzz_text.c - any bytes through tokenizers of every kind: byte-level with splitting
 * rules, and each other kind behind every normalizer. The first byte chooses. */
#include <stdio.h>

#include "tests/fuzz/vocab_target.h"

static const char *const rules[] = {"gpt-2",     "llama-bpe",      "qwen2",  "falcon",
                                    "starcoder", "deepseek-coder", "default"};
static const gw_vocab_kind others[] = {GW_VOCAB_SPM_BPE,  GW_VOCAB_RANK_BPE,  GW_VOCAB_BYTE_RANKS,
                                       GW_VOCAB_UNIGRAM,  GW_VOCAB_WORDPIECE, GW_VOCAB_SPM_UNIGRAM,
                                       GW_VOCAB_WORDLEVEL, GW_VOCAB_LONGEST};
enum {
    RULES = sizeof rules / sizeof rules[0],
    KINDS = RULES + sizeof others / sizeof others[0],
    BYTES = 256,
    PAIRS = 24
};

#define STEP(k, f, t, to_)                                                                         \
    {                                                                                              \
        .kind = (k), .flags = (f), .text = (t), .to = (to_), .text_bytes = sizeof(t) - 1,          \
        .to_bytes = sizeof(to_) - 1                                                                \
    }
static gw_vocab_step normal[] = {
    STEP(GW_CHANGE_NFD, 0, "", ""),
    STEP(GW_CHANGE_NFKC, 0, "", ""),
    STEP(GW_CHANGE_NFC, 0, "", ""),
    STEP(GW_CHANGE_NFKD, 0, "", ""),
    STEP(GW_CHANGE_NMT, 0, "", ""),
    STEP(GW_CHANGE_BERT, GW_CHANGE_CLEAN | GW_CHANGE_HAN | GW_CHANGE_ACCENTS | GW_CHANGE_LOWER, "",
         ""),
    STEP(GW_CHANGE_STRIP_MARKS, 0, "", ""),
    STEP(GW_CHANGE_STRIP, GW_CHANGE_LEFT | GW_CHANGE_RIGHT, "", ""),
    STEP(GW_CHANGE_LOWERCASE, 0, "", ""),
    STEP(GW_CHANGE_REPLACE, GW_CHANGE_PATTERN, " {2,}|(?=x)", " "),
    STEP(GW_CHANGE_REPLACE, 0, " ", "\xe2\x96\x81"),
    STEP(GW_CHANGE_PREPEND, GW_CHANGE_IF_NONE, "\xe2\x96\x81", "")};
static gw_vocab_step decoding[] = {STEP(GW_CHANGE_FROM_BYTES, 0, "", ""),
                                   STEP(GW_CHANGE_JOIN_PIECES, GW_CHANGE_CLEAN, "##", ""),
                                   STEP(GW_CHANGE_JOIN_WORDS, 0, "</w>", ""),
                                   STEP(GW_CHANGE_FROM_MARKS, GW_CHANGE_FIRST, "\xe2\x96\x81", ""),
                                   STEP(GW_CHANGE_CTC, GW_CHANGE_CLEAN, "a", "|")};

typedef struct subject {
    gw_vocab vocab;
    gw_tokenizer *tokenizer;
} subject;

/* The byte alphabet of GPT-2: the printable bytes are themselves, the others follow from U+0100. */
static size_t spell(int byte, char *out) {
    int printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    int point = byte, next = 256;
    for (int b = 0; b < byte && !printable; b++) {
        next += !((b >= 33 && b <= 126) || (b >= 161 && b != 173));
    }
    point = printable ? byte : next;
    if (point < 128) {
        out[0] = (char)point;
        return 1;
    }
    out[0] = (char)(0xc0 | point >> 6);
    out[1] = (char)(0x80 | (point & 0x3f));
    return 2;
}

static void add(gw_vocab *v, const char *text, size_t n, gw_token_kind kind, float score) {
    char *copy = calloc(n + 1, 1);
    memcpy(copy, text, n);
    v->tokens[v->n_tokens++] =
        (gw_vocab_token){.text = copy, .bytes = (uint32_t)n, .kind = (uint8_t)kind, .score = score};
}

/* Every byte, pairs of the commonest letters as merges, two special tokens. */
static void make(subject *s, int which) {
    static const char pairs[PAIRS][3] = {"th", "he", "in", "er", "an", "re", "on", "at",
                                         "en", "nd", "ti", "es", "or", "te", "of", "ed",
                                         "is", "it", "al", "ar", "st", "to", "nt", "ng"};
    gw_vocab *v = &s->vocab; /* borrowed by the tokenizer: it stays where it is */
    gw_vocab_init(v);
    v->kind = which < RULES ? GW_VOCAB_BYTE_BPE : others[which - RULES];
    v->tokens = calloc(2 * BYTES + PAIRS + 8, sizeof *v->tokens);
    v->merges = calloc(PAIRS, sizeof *v->merges);
    add(v, "<unk>", 5, GW_TOKEN_UNKNOWN, 0);
    add(v, "<s>", 3, GW_TOKEN_CONTROL, 0);
    add(v, "</s>", 4, GW_TOKEN_CONTROL, 0);
    char text[16];
    for (int b = 0; b < BYTES; b++) {
        if (v->kind == GW_VOCAB_BYTE_BPE) {
            add(v, text, spell(b, text), GW_TOKEN_NORMAL, 0);
        } else if (v->kind == GW_VOCAB_BYTE_RANKS || v->kind == GW_VOCAB_LONGEST) {
            text[0] = (char)b;
            add(v, text, 1, GW_TOKEN_NORMAL, 0);
        } else {
            snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
            add(v, text, 6, GW_TOKEN_BYTE, 0);
        }
    }
    if (v->kind != GW_VOCAB_BYTE_BPE && v->kind != GW_VOCAB_BYTE_RANKS &&
        v->kind != GW_VOCAB_LONGEST) {
        for (char c = 'a'; c <= 'z'; c++) {
            add(v, &c, 1, GW_TOKEN_NORMAL, -100);
        }
        add(v, "\xe2\x96\x81", 3, GW_TOKEN_NORMAL, -50);
        v->byte_fallback = v->add_space_prefix = 1;
    }
    for (int p = 0; p < PAIRS; p++) {
        add(v, pairs[p], 2, GW_TOKEN_NORMAL, (float)-p);
        v->merges[p] = (gw_vocab_merge){pairs[p], pairs[p] + 1, 1, 1};
    }
    v->n_merges = v->kind == GW_VOCAB_BYTE_BPE || v->kind == GW_VOCAB_RANK_BPE ? PAIRS : 0;
    v->unk = 0;
    v->bos = 1;
    v->eos = 2;
    v->add_bos = 1;
    v->normal = which == 2 ? normal + 2 : normal;
    v->n_normal = which == 2 ? 1 : which < RULES ? 0 : sizeof normal / sizeof normal[0];
    v->decode = decoding;
    v->n_decode = which < RULES ? 0 : sizeof decoding / sizeof decoding[0];
    if (v->kind == GW_VOCAB_BYTE_BPE) {
        snprintf(v->pre, sizeof v->pre, "%s", rules[which]);
    }
    if (gw_vocab_check("fuzz", v) != GW_OK || gw_tokenizer_new(v, &s->tokenizer) != GW_OK) {
        fprintf(stderr, "%s\n", gw_error_text());
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static subject subjects[KINDS];
    if (n < 1) {
        return 0;
    }
    int which = data[0] % KINDS, flags = data[0] / KINDS % 4;
    if (subjects[which].tokenizer == NULL) {
        make(&subjects[which], which);
    }
    const subject *s = &subjects[which];
    fuzz_text(s->tokenizer, s->vocab.n_tokens, (const char *)data + 1, n - 1, flags);
    return 0;
}
