/* tests/fuzz/fuzz_grammar.c - grammars and schemas of any bytes, then a walk through what they
 * allow: what a mask allows is taken byte for byte, what it does not is not, and going back is
 * exact. Input: kind and seed of the walk, then the text. */
#include <stdio.h>

#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema.h"
#include "tests/fuzz/fuzz.h"

enum { BYTES = 256, WORDS = 12, TOKENS = BYTES + WORDS + 1, STEPS = 40, COMPARED = 8, PARTS = 4 };

static const char *const words[WORDS] = {"{\"",  "\":", "\", \"",   "true",
                                         "null", " }",  "\xC3\xA9", "\xE2\x82",
                                         "once", "12",  "\n  ",     "aaaaaaaa"};

typedef struct rig {
    gw_vocab_token tokens[TOKENS];
    gw_vocab vocab;
    gw_tokenizer *tokenizer;
    gw_token_tree *tree;
} rig;

static void must(int fine) {
    if (!fine) {
        abort();
    }
}

/* Every byte as a token, some longer ones, and an end. */
static rig *open_rig(void) {
    static rig r;
    static char spelled[BYTES][8];
    if (r.tree != NULL) {
        return &r;
    }
    gw_vocab_init(&r.vocab);
    r.vocab.kind = GW_VOCAB_SPM_BPE;
    for (int i = 0; i < BYTES; i++) {
        snprintf(spelled[i], sizeof spelled[i], "<0x%02X>", (unsigned)i);
        r.tokens[i] = (gw_vocab_token){.text = spelled[i], .bytes = 6, .kind = GW_TOKEN_BYTE};
    }
    for (int i = 0; i < WORDS; i++) {
        r.tokens[BYTES + i] = (gw_vocab_token){
            .text = words[i], .bytes = (uint32_t)strlen(words[i]), .kind = GW_TOKEN_USER};
    }
    r.tokens[TOKENS - 1] = (gw_vocab_token){.text = "</s>", .bytes = 4, .kind = GW_TOKEN_CONTROL};
    r.vocab.tokens = r.tokens;
    r.vocab.n_tokens = TOKENS;
    r.vocab.eos = TOKENS - 1;
    must(gw_vocab_check("fuzz", &r.vocab) == GW_OK);
    must(gw_tokenizer_new(&r.vocab, &r.tokenizer) == GW_OK);
    must(gw_token_tree_new(&r.vocab, r.tokenizer, TOKENS, &r.tree) == GW_OK);
    return &r;
}

static int allowed(const uint64_t *bits, int32_t id) {
    return (int)(bits[id / 64] >> (id % 64) & 1);
}

/* Tokens part, part + PARTS, ... by their bytes, against the mask: all of them, where a byte takes
 * a grammar's limit of work, are seconds. */
static void compare(const rig *r, gw_matcher *m, const uint64_t *bits, int part) {
    gw_matcher_keep(m, 0);
    for (int32_t id = part; id < TOKENS - 1; id += PARTS) {
        const char *text;
        size_t bytes;
        int taken = 0;
        if (!gw_token_is_text(&r->vocab, r->tokenizer, id)) {
            continue;
        }
        gw_tokenizer_piece(r->tokenizer, id, 0, &text, &bytes);
        if (gw_matcher_bytes(m, text, bytes, &taken) != GW_OK) {
            return; /* too many readings */
        }
        gw_matcher_back(m, 0);
        must(taken == allowed(bits, id));
    }
    must(allowed(bits, TOKENS - 1) == gw_matcher_may_end(m));
}

static void walk(const rig *r, gw_matcher *m, uint32_t random) {
    uint64_t bits[(TOKENS + 63) / 64];
    for (int step = 0; step < STEPS; step++) {
        gw_token_mask mask;
        gw_status status = gw_matcher_mask(m, &mask);
        fuzz_judge(status);
        if (status != GW_OK || mask.n_text == 0) {
            return;
        }
        memcpy(bits, mask.bits, sizeof bits);
        if (step % COMPARED == 0) {
            compare(r, m, bits, (int)((random >> 4) + (uint32_t)(step / COMPARED)) % PARTS);
        }
        int32_t id = TOKENS - 1;
        int taken = 0;
        for (uint32_t skip = (random >> 8) % mask.n_text + 1; skip > 0;
             skip -= allowed(bits, id) != 0) {
            id = (id + 1) % (TOKENS - 1);
        }
        random = random * 1664525u + 1013904223u;
        status = gw_matcher_token(m, id, &taken);
        fuzz_judge(status);
        if (status != GW_OK) {
            return;
        }
        must(taken);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const rig *r = open_rig();
    if (n < 2) {
        return 0;
    }
    const char *text = (const char *)data + 2;
    gw_program *program = NULL;
    gw_status status = data[0] & 1 ? gw_json_schema_compile(text, n - 2, &program)
                                   : gw_grammar_compile("grammar", text, n - 2, &program);
    fuzz_judge(status);
    if (status == GW_OK) {
        gw_matcher *m = NULL;
        status = gw_matcher_new(program, r->tree, &r->vocab.eos, 1, TOKENS, &m);
        fuzz_judge(status);
        if (status == GW_OK) {
            walk(r, m, data[1]);
        }
        gw_matcher_free(m);
    }
    gw_program_free(program);
    return 0;
}
