/* tests/fuzz/fuzz_stop.c - stop strings: however a text is cut, the same comes out. Input: the
 * number of strings, each with its length before it, then the text. */
#include "include/godwit.h"
#include "tests/fuzz/fuzz.h"

enum { STRINGS = 6 };

typedef struct outcome {
    char *text;
    size_t n;
    int hit;
} outcome;

static outcome run(const char *const *texts, size_t n_texts, const char *text, size_t n,
                   size_t piece) {
    outcome o = {.text = malloc(n + 1), .hit = -1};
    gw_stop *stop = NULL;
    gw_status status = gw_stop_new(texts, n_texts, &stop);
    fuzz_judge(status);
    for (size_t at = 0; status == GW_OK && at <= n && o.hit < 0; at += piece) {
        size_t take = n - at < piece ? n - at : piece, bytes = 0;
        const char *safe = NULL;
        status = gw_stop_push(stop, text + at, take, at + piece > n, &safe, &bytes, &o.hit);
        fuzz_judge(status);
        if (status == GW_OK && bytes > n - o.n) {
            abort();
        }
        if (status == GW_OK && bytes > 0) {
            memcpy(o.text + o.n, safe, bytes);
            o.n += bytes;
        }
    }
    gw_stop_free(stop);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *texts[STRINGS];
    size_t count = n > 0 ? data[0] % STRINGS + 1 : 0, at = 1, made = 0;
    for (; made < count && at < n; made++) {
        size_t take = 1 + data[at] % 12u;
        at++;
        take = take < n - at ? take : n - at;
        texts[made] = calloc(take + 1, 1);
        for (size_t i = 0; i < take; i++) {
            texts[made][i] = data[at + i] != 0 ? (char)data[at + i] : 'x';
        }
        at += take;
        if (take == 0) {
            texts[made][0] = '\0'; /* refused */
        }
    }
    const char *text = (const char *)data + (at < n ? at : n);
    size_t bytes = at < n ? n - at : 0;
    outcome whole = run((const char *const *)texts, made, text, bytes, bytes + 1);
    for (size_t piece = 1; piece < 8; piece += 3) {
        outcome cut = run((const char *const *)texts, made, text, bytes, piece);
        if (cut.hit != whole.hit || cut.n != whole.n ||
            (whole.n > 0 && memcmp(cut.text, whole.text, whole.n) != 0)) {
            abort();
        }
        free(cut.text);
    }
    free(whole.text);
    while (made > 0) {
        free(texts[--made]);
    }
    return 0;
}
