/* tests/fuzz/fuzz_tokenizer_model.c - a SentencePiece model file. */
#include "tests/fuzz/vocab_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_vocab(gw_vocab_read_sentencepiece, data, n);
    return 0;
}
