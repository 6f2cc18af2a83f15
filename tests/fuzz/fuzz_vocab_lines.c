/* tests/fuzz/fuzz_vocab_lines.c - a file of tiktoken's ranks, vocab.txt of BERT, or RWKV's numbered
 * tokens; the first byte chooses. */
#include "tests/fuzz/vocab_target.h"

static gw_status read_ranks(const char *where, const void *bytes, size_t n, gw_vocab *out) {
    GW_TRY(gw_vocab_read_tiktoken(where, bytes, n, out));
    gw_status status = gw_vocab_check(where, out);
    if (status != GW_OK) {
        gw_vocab_free(out);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static fuzz_reader *const readers[] = {read_ranks, gw_vocab_read_vocab_txt, gw_vocab_read_rwkv};
    if (n > 0) {
        fuzz_vocab(readers[data[0] % 3], data + 1, n - 1);
    }
    return 0;
}
