/* tests/fuzz/fuzz_tokenizer_json.c - a tokenizer.json, NUL, a text (without NUL: one of ours). */
#include "tests/fuzz/vocab_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_vocab_and_text(gw_vocab_read_tokenizer_json, data, n);
    return 0;
}
