/* tests/fuzz/vocab_target.h - a vocabulary file, then a text through what it describes. */
#ifndef GW_TESTS_FUZZ_VOCAB_TARGET_H
#define GW_TESTS_FUZZ_VOCAB_TARGET_H

#include "core/text/tokens/tokenizer.h"
#include "tests/fuzz/fuzz.h"

/* Tokens of a text are in range, and decode to something. */
static inline void fuzz_text(const gw_tokenizer *t, size_t n_tokens, const char *text, size_t n,
                             int flags) {
    int32_t *ids = NULL;
    char *back = NULL;
    size_t count = 0, bytes = 0;
    gw_status status = gw_tokenizer_encode(t, text, n, flags, &ids, &count);
    fuzz_judge(status);
    for (size_t i = 0; status == GW_OK && i < count; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= n_tokens) {
            abort();
        }
    }
    if (status == GW_OK) {
        fuzz_judge(gw_tokenizer_decode(t, ids, count, 1, &back, &bytes));
    }
    free(back);
    free(ids);
    int32_t *types = NULL;
    status = gw_tokenizer_encode_pair(t, text, n / 2, text + n / 2, n - n / 2, flags, &ids, &types,
                                      &count);
    fuzz_judge(status);
    if (status == GW_OK) {
        free(ids);
        free(types);
    }
}

typedef gw_status fuzz_reader(const char *, const void *, size_t, gw_vocab *);

static inline void fuzz_vocab_text(fuzz_reader *reader, const uint8_t *data, size_t n,
                                   const char *text, size_t text_bytes) {
    gw_vocab vocab;
    gw_tokenizer *t = NULL;
    gw_status status = reader("fuzz", data, n, &vocab);
    fuzz_judge(status);
    if (status == GW_OK) {
        status = gw_tokenizer_new(&vocab, &t);
        fuzz_judge(status);
        if (status == GW_OK) {
            fuzz_text(t, vocab.n_tokens, text, text_bytes, GW_TEXT_BOS | GW_TEXT_SPECIAL);
        }
        gw_tokenizer_free(t);
        gw_vocab_free(&vocab);
    }
}

static inline void fuzz_vocab(fuzz_reader *reader, const uint8_t *data, size_t n) {
    static const char text[] = "Hello  world 123\n\xe6\x97\xa5 <s></s> \xff";
    fuzz_vocab_text(reader, data, n, text, sizeof text - 1);
}

/* A file that has no NUL inside; behind one comes the text. */
static inline void fuzz_vocab_and_text(fuzz_reader *reader, const uint8_t *data, size_t n) {
    size_t file = 0;
    while (file < n && data[file] != '\0') {
        file++;
    }
    if (file == n) {
        fuzz_vocab(reader, data, n);
    } else {
        fuzz_vocab_text(reader, data, file, (const char *)data + file + 1, n - file - 1);
    }
}

#endif
