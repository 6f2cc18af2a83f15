/* tests/fuzz/fuzz_gguf.c - a GGUF image: table of tensors, configuration, vocabulary. */
#include "core/model/checkpoint.h"
#include "core/text/tokens/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void use_vocab(gw_checkpoint *c) {
    const gw_vocab *vocab = NULL;
    gw_tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    gw_status status = gw_checkpoint_vocab(c, &vocab);
    fuzz_judge(status);
    if (status == GW_OK && vocab != NULL && gw_tokenizer_new(vocab, &t) == GW_OK) {
        fuzz_judge(gw_tokenizer_encode(t, "a b\xc3\xa9 <s>", 9, GW_TEXT_BOS, &ids, &count));
        free(ids);
    }
    gw_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    for (int vocab_only = 0; vocab_only < 2; vocab_only++) {
        gw_checkpoint *c = NULL;
        gw_status status =
            (vocab_only ? gw_checkpoint_open_vocab : gw_checkpoint_open)(NULL, data, n, &c);
        fuzz_judge(status);
        if (status == GW_OK) {
            use_vocab(c);
            for (size_t i = 0; i < gw_checkpoint_count(c); i++) {
                const gw_stored *t = gw_checkpoint_at(c, i);
                const uint8_t *at = t->data; /* inside the image, as promised */
                if (t->bytes > 0 && (at < data || t->bytes > (size_t)(data + n - at))) {
                    abort();
                }
            }
        }
        gw_checkpoint_free(c);
    }
    return 0;
}
