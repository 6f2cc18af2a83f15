/* tests/fuzz/fuzz_tekken.c - a tekken.json. */
#include "tests/fuzz/vocab_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_vocab_and_text(gw_vocab_read_tekken, data, n);
    return 0;
}
